//! Children that work on rounds: a crash, a hang or a lack of memory ends one of them, and the next goes on behind the round that
//! it ended in.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::num::NonZero;
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// A round that keeps its processor longer than this hangs. Most take hundredths of a second.
const PATIENCE: Duration = Duration::from_secs(10);

/// A round that takes longer than this hangs, whatever it waits for: the machine may be busy with other work.
const MOST_PATIENCE: Duration = Duration::from_secs(300);

/// The most memory a child may hold at once: what asks for more gets none.
const MEMORY: usize = 4 << 30;

/// What an outcome begins with that is a fault.
pub(crate) const FAULT: &str = "fault: ";

/// What a child is doing ends with that where there may be no end: it is given up, which is no fault.
pub(crate) const LOOPS: &str = ", which loops";

/// What came of some rounds.
#[derive(Default)]
pub(crate) struct Tally {
    /// How many rounds had an outcome.
    pub(crate) counts: BTreeMap<String, usize>,
    /// The rounds that went wrong.
    pub(crate) failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, part: Tally) {
        self.failures.extend(part.failures);
        for (outcome, count) in part.counts {
            *self.counts.entry(outcome).or_default() += count;
        }
    }
}

/// Runs rounds, as many at a time as the machine has cores, in children that get `args`, the first round and the one after the
/// last. Gives up after `enough` failures.
pub(crate) fn supervise(args: &[OsString], rounds: usize, enough: usize) -> Result<Tally, String> {
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get).min(8);
    let parts = (0..workers).map(|n| n * rounds / workers..(n + 1) * rounds / workers);
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|rounds| scope.spawn(|| watch(args, rounds, enough))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a watcher does not panic")).collect()
    });
    let mut tally = Tally::default();
    for part in results {
        tally.add(part?);
    }
    Ok(tally)
}

fn watch(args: &[OsString], rounds: Range<usize>, enough: usize) -> Result<Tally, String> {
    // What one mutation leaves as it was is compiled once.
    let cache = tempfile::tempdir().map_err(|error| format!("no folder for a cache: {error}"))?;
    let mut tally = Tally::default();
    let mut first = rounds.start;
    while first < rounds.end && tally.failures.len() < enough {
        let mut child = Command::new(std::env::current_exe().map_err(|error| error.to_string())?)
            .args(args)
            .args([first.to_string(), rounds.end.to_string()])
            .env("RUST_BACKTRACE", "0")
            .env("TILEWRIGHT_CACHE_DIR", cache.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start a child: {error}"))?;
        let mut doing = String::new();
        let hung = listen(&mut child, &mut first, &mut doing, &mut tally)?;
        if hung {
            child.kill().map_err(|error| format!("cannot end a child: {error}"))?;
        }
        let mut said = String::new();
        child.stderr.take().expect("piped above").read_to_string(&mut said).ok();
        let status = child.wait().map_err(|error| error.to_string())?;
        if hung && doing.ends_with(LOOPS) {
            *tally.counts.entry("run given up: the model loops".to_string()).or_default() += 1;
            first += 1;
        } else if hung || !status.success() {
            let end = if hung { "no end".to_string() } else { format!("{status}: {}", said.trim()) };
            tally.failures.push(format!("round {first}: {doing}: {end}"));
            first += 1;
        }
    }
    Ok(tally)
}

/// Reads what a child says until it ends, or hangs (true).
fn listen(
    child: &mut Child,
    first: &mut usize,
    doing: &mut String,
    tally: &mut Tally,
) -> Result<bool, String> {
    let (send, lines) = mpsc::channel();
    let stdout = BufReader::new(child.stdout.take().expect("piped by the caller"));
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
    let (mut since, mut processor) = (Instant::now(), processor_time(child));
    loop {
        match lines.recv_timeout(Duration::from_secs(1)) {
            Ok(line) => {
                (since, processor) = (Instant::now(), processor_time(child));
                let mut words = line.splitn(3, ' ');
                let round = words.next().and_then(|word| word.parse().ok());
                *first = round.ok_or_else(|| format!("not a line of a child: {line}"))?;
                match (words.next(), words.next().unwrap_or_default()) {
                    (Some("done"), outcome) => {
                        if let Some(wrong) = outcome.strip_prefix(FAULT) {
                            tally.failures.push(format!("round {first}: {doing}: {wrong}"));
                        } else {
                            *tally.counts.entry(outcome.to_string()).or_default() += 1;
                        }
                        *first += 1;
                    }
                    (_, what) => *doing = what.to_string(),
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let worked = processor_time(child).saturating_sub(processor);
                if worked > PATIENCE || since.elapsed() > MOST_PATIENCE {
                    return Ok(true);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        }
    }
}

/// What a child has used of processors, as Linux counts it.
fn processor_time(child: &Child) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
    // Behind the name, which is in parentheses: user and system time are fields 14 and 15, in hundredths of a second.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

/// What a child says of its rounds.
pub(crate) fn work(rounds: Range<usize>, mut round: impl FnMut(u64, &mut dyn FnMut(&str)) -> String) {
    let plain = |text: &str| text.replace('\n', " ");
    for n in rounds {
        let outcome = round(n as u64, &mut |doing| println!("{n} doing {}", plain(doing)));
        println!("{n} done {}", plain(&outcome));
    }
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
