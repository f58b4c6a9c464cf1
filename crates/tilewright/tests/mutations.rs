//! Damaged models: whatever bytes or fields of a real model are changed, it compiles to an artifact that loads, or is
//! refused by an error of the model. Nothing panics, nobody waits ten seconds, and nothing takes memory without measure.
//!
//! Each model is mutated a thousand times, most of it outside of its weights. The work is done by a child process,
//! this program again, so that a crash or an endless loop is the outcome of one mutation. To look at one: the arguments
//! `--write MODEL.onnx ROUND OUT.onnx` write it.

mod common;
mod mutations {
    pub(crate) mod mutate;
}

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{BufRead, BufReader, Read};
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use common::{failed, model_path};
use mutations::mutate::Mutator;
use tilewright::onnx::OnnxModel;
use tilewright::runtime::{Bytes, Model};
use tilewright::{CodegenKind, CompileError, Options, compile_model};

/// Mutations of each model.
const ROUNDS: usize = 1000;

/// Longer than this is a hang. The models compile in tenths of a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most memory a child may hold at once: what asks for more gets none.
const MEMORY: usize = 4 << 30;

/// Failures after which a model is given up.
const ENOUGH: usize = 20;

/// The first argument of a child; the model, the first round and the one after the last follow.
const CHILD: &str = "--child";

/// The first argument to write a mutated model; the model, the round and the file follow.
const WRITE: &str = "--write";

const SUBJECTS: [&str; 3] = ["digits", "silero_vad", "squeezenet1_1"];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, model, first, end] = &args[..]
        && flag == CHILD
    {
        let number = |text: &String| text.parse().expect("the parent gives a number");
        return child(Path::new(model), number(first)..number(end));
    }
    if let [flag, model, round, out] = &args[..]
        && flag == WRITE
    {
        let mutator = Mutator::new(std::fs::read(model).expect("a model"));
        std::fs::write(out, mutator.mutate(round.parse().expect("a round"))).expect("a file to write");
        return ExitCode::SUCCESS;
    }
    let check = |name: &&str| supervise(&path(name)?).map_err(failed("mutations"));
    common::check_all(&SUBJECTS, |name| name, |name| path(name).err(), check)
}

fn path(name: &str) -> Result<PathBuf, String> {
    match name {
        "digits" => Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.onnx")),
        name => model_path(name),
    }
}

/// Runs all rounds, as many at a time as the machine has cores, and collects what goes wrong.
fn supervise(model: &Path) -> Result<(), String> {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get).min(8);
    let parts = (0..workers).map(|n| n * ROUNDS / workers..(n + 1) * ROUNDS / workers);
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|rounds| scope.spawn(|| watch(model, rounds))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a watcher does not panic")).collect()
    });
    let (mut failures, mut compiled) = (Vec::new(), 0);
    for result in results {
        let part = result?;
        failures.extend(part.failures);
        compiled += part.compiled;
    }
    // What is always refused tests little, and what never is was not damaged.
    if failures.is_empty() && !(ROUNDS / 20..ROUNDS).contains(&compiled) {
        failures.push(format!("{compiled} of {ROUNDS} mutations compiled"));
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("\n{}", failures.join("\n"))) }
}

/// What came of some rounds.
#[derive(Default)]
struct Part {
    failures: Vec<String>,
    compiled: usize,
}

/// Runs rounds in children, one after the other: the next begins after the round that ended the last.
fn watch(model: &Path, rounds: Range<usize>) -> Result<Part, String> {
    let mut part = Part::default();
    let mut first = rounds.start;
    while first < rounds.end && part.failures.len() < ENOUGH {
        let mut child = Command::new(std::env::current_exe().map_err(|error| error.to_string())?)
            .arg(CHILD)
            .args([model.as_os_str(), first.to_string().as_ref(), rounds.end.to_string().as_ref()])
            .env("RUST_BACKTRACE", "0")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start a child: {error}"))?;
        let (send, lines) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().expect("piped above"));
        let reader = std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let hung = loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let (round, outcome) = line.split_once(' ').unwrap_or((&line, ""));
                    first = round.parse().map_err(|_| format!("not a line of a child: {line}"))?;
                    match outcome {
                        "" => continue,
                        "compiled" => part.compiled += 1,
                        "refused" => {}
                        wrong => part.failures.push(format!("round {first}: {wrong}")),
                    }
                    first += 1;
                }
                Err(RecvTimeoutError::Timeout) => break true,
                Err(RecvTimeoutError::Disconnected) => break false,
            }
        };
        if hung {
            child.kill().map_err(|error| format!("cannot end a child: {error}"))?;
        }
        let mut said = String::new();
        child.stderr.take().expect("piped above").read_to_string(&mut said).ok();
        let status = child.wait().map_err(|error| error.to_string())?;
        reader.join().ok();
        if hung {
            part.failures.push(format!("round {first}: took more than {} s", PATIENCE.as_secs()));
        } else if !status.success() {
            part.failures.push(format!("round {first}: {status}: {}", said.trim()));
        }
        first += usize::from(hung || !status.success());
    }
    Ok(part)
}

/// Mutates and compiles, and says before and after each round which one it is.
fn child(path: &Path, rounds: Range<usize>) -> ExitCode {
    let bytes = std::fs::read(path).expect("the parent gives a model");
    let mutator = Mutator::new(bytes);
    for round in rounds {
        println!("{round}");
        let outcome = match compile(mutator.mutate(round as u64)) {
            Ok(()) => "compiled".to_string(),
            Err(error) if error.exit_code() == 70 => error.to_string(),
            Err(error) if error.to_string().is_empty() => "an error without words".to_string(),
            Err(_) => "refused".to_string(),
        };
        println!("{round} {}", outcome.replace('\n', " "));
    }
    ExitCode::SUCCESS
}

/// Compiles to an artifact and loads it.
fn compile(bytes: Vec<u8>) -> Result<(), CompileError> {
    let model = OnnxModel::from_bytes(bytes.into())?;
    let options = Options { jobs: 1, ..Options::host(CodegenKind::Cranelift) };
    let artifact: Bytes = compile_model(&model, &options, &mut ())?.artifact.to_bytes()?;
    Model::from_bytes(artifact).map(drop).map_err(|error| CompileError::internal("load", error))
}

/// The system's allocator with a limit on what is held at once.
struct Limited;

static HELD: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code, reason = "an allocator")]
// SAFETY: hands everything to the system's allocator, or gives none.
unsafe impl GlobalAlloc for Limited {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if HELD.fetch_add(layout.size(), Ordering::Relaxed).saturating_add(layout.size()) > MEMORY {
            HELD.fetch_sub(layout.size(), Ordering::Relaxed);
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Limited = Limited;
