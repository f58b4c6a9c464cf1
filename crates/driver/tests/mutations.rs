//! Damaged models: whatever bytes or fields of a real model are changed, it compiles to an artifact that loads, or is
//! refused by an error of the model. Nothing panics, nobody waits, and nothing takes memory without measure.
//!
//! Real models are mutated a thousand times each, most of it outside of their weights. Of the ONNX suites' models one field is
//! changed at a time, and what compiles runs. The work is done by child processes, this program again, so that a crash or an
//! endless loop is the outcome of one mutation.
//!
//! By hand: `--suites DIR COUNT SEED` tries so many mutants of the suites and prints counts (`cargo xtask mutants` does that);
//! `--write SOURCE SEED ROUND OUT.onnx` writes one, of a model or of a folder of suites.

mod common;
mod mutations {
    pub(crate) mod children;
    pub(crate) mod fields;
    pub(crate) mod mutate;
    pub(crate) mod random;
    pub(crate) mod run;
    pub(crate) mod suites;
}

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use common::{failed, model_path, target_dir};
use mutations::children::{FAULT, LOOPS, Tally, supervise, work};
use mutations::mutate::Mutator;
use mutations::random::Random;
use mutations::run::run;
use mutations::suites::Suites;
use tilewright_driver::onnx::OnnxModel;
use tilewright_driver::runtime::{Bytes, Model};
use tilewright_driver::{Cache, CodegenKind, CompileError, Options, Trust, compile_model};

/// Mutations of each model.
const ROUNDS: usize = 1000;

/// Mutants of the suites in a test run, which takes a minute on two cores.
const SUITE_ROUNDS: usize = 2000;

/// Their seed.
const SUITE_SEED: u64 = 1;

/// Failures after which a child's share is given up.
const ENOUGH: usize = 20;

/// The first argument of a child; the source, the seed, the first round and the one after the last follow.
const CHILD: &str = "--child";

/// The subject that stands for the suites.
const SUITES: &str = "suites";

const SUBJECTS: [&str; 4] = ["digits", "silero_vad", "squeezenet1_1", SUITES];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    match args[..] {
        [CHILD, source, seed, first, end] => {
            child(Path::new(source), number(seed), number(first) as usize..number(end) as usize);
            ExitCode::SUCCESS
        }
        ["--suites", dir, count, seed] => {
            let count = number(count) as usize;
            match supervise(&arguments(Path::new(dir), number(seed)), count, usize::MAX) {
                Ok(tally) => report(&tally),
                Err(error) => {
                    println!("{error}");
                    ExitCode::FAILURE
                }
            }
        }
        ["--write", source, seed, round, out] => {
            let source = Source::open(Path::new(source), number(seed));
            let (what, bytes) = source.mutate(number(round));
            println!("{what}");
            std::fs::write(out, bytes).expect("a file to write");
            ExitCode::SUCCESS
        }
        _ => common::check_all(&SUBJECTS, |name| name, |name| source_of(name).err(), |name| check(name)),
    }
}

/// Prints what came of the mutants of the suites.
fn report(tally: &Tally) -> ExitCode {
    tally.failures.iter().for_each(|failure| println!("{failure}"));
    tally.counts.iter().for_each(|(outcome, count)| println!("{count:7} {outcome}"));
    println!("{:7} faults", tally.failures.len());
    if tally.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a subject's mutants are made of, or why it is not there.
fn source_of(name: &str) -> Result<PathBuf, String> {
    match name {
        "digits" => Ok(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.onnx")),
        SUITES => suites(),
        name => model_path(name),
    }
}

fn check(name: &str) -> Result<(), String> {
    let source = source_of(name)?;
    let (seed, rounds) = if name == SUITES { (SUITE_SEED, SUITE_ROUNDS) } else { (0, ROUNDS) };
    let tally = supervise(&arguments(&source, seed), rounds, ENOUGH).map_err(failed("mutations"))?;
    let mut failures = tally.failures;
    // What is always refused tests little, and what never is was not damaged.
    let is_compiled = |outcome: &str| !outcome.starts_with("refused");
    let compiled: usize =
        tally.counts.iter().filter(|(outcome, _)| is_compiled(outcome)).map(|(_, count)| count).sum();
    if failures.is_empty() && !(rounds / 20..rounds).contains(&compiled) {
        failures.push(format!("{compiled} of {rounds} mutations compiled"));
    }
    if failures.is_empty() { Ok(()) } else { Err(format!("\n{}", failures.join("\n"))) }
}

/// Where the suites lie, if they are there.
fn suites() -> Result<PathBuf, String> {
    if cfg!(debug_assertions) {
        return Err("the build is not optimised".to_string());
    }
    let dir = target_dir().join("conformance");
    if !dir.join("made-by").exists() {
        return Err(format!("no {}; `cargo xtask conformance` makes it", dir.display()));
    }
    Ok(dir)
}

fn arguments(source: &Path, seed: u64) -> [OsString; 3] {
    [CHILD.into(), source.into(), seed.to_string().into()]
}

/// What mutants are made of.
enum Source {
    Model(Box<Mutator>),
    Suites(Suites, u64),
}

impl Source {
    fn open(path: &Path, seed: u64) -> Source {
        if path.is_dir() {
            return Source::Suites(Suites::open(path).expect("the suites"), seed);
        }
        Source::Model(Box::new(Mutator::new(std::fs::read(path).expect("a model"))))
    }

    /// What is mutated in a round, and the file.
    fn mutate(&self, round: u64) -> (String, Vec<u8>) {
        match self {
            Source::Model(mutator) => (String::new(), mutator.mutate(round)),
            Source::Suites(suites, seed) => {
                let mutant = suites.mutate(*seed, round).expect("a case");
                (mutant.what, mutant.bytes)
            }
        }
    }
}

/// Mutates, compiles and, of the suites, runs.
fn child(path: &Path, seed: u64, rounds: std::ops::Range<usize>) {
    let source = Source::open(path, seed);
    let cache = Cache::of_user().expect("a limit, if one is set");
    work(rounds, |round, doing| {
        let (what, bytes) = source.mutate(round);
        // Where it says how often, a model may run for ever.
        let loops = bytes.windows(4).any(|word| word == b"Loop");
        doing(&what);
        match compile(bytes, &cache) {
            Ok(model) => match &source {
                Source::Model(_) => "compiled".to_string(),
                Source::Suites(..) => {
                    doing(&format!("{what}: run{}", if loops { LOOPS } else { "" }));
                    run(&model, &mut Random(seed ^ round))
                }
            },
            Err(error) if error.exit_code() == 70 => format!("{FAULT}{error}"),
            Err(error) if error.to_string().is_empty() => format!("{FAULT}an error without words"),
            Err(error) => match error.exit_code() {
                3 => "refused: unsupported".to_string(),
                4 => "refused: a limit".to_string(),
                5 => "refused: invalid".to_string(),
                code => format!("refused: exit code {code}"),
            },
        }
    });
}

/// Compiles to an artifact and loads it.
fn compile(bytes: Vec<u8>, cache: &Option<Cache>) -> Result<Model, CompileError> {
    let model = OnnxModel::from_bytes(bytes.into())?;
    let options = Options { jobs: 1, cache: cache.clone(), ..Options::host(CodegenKind::Cranelift) };
    let artifact: Bytes = compile_model(&model, &options, &mut ())?.artifact.to_bytes()?;
    tilewright_driver::loader(Trust::Origin)
        .from_bytes(artifact)
        .map_err(|error| CompileError::internal("load", error))
}
