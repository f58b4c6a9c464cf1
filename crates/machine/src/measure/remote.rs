//! Lines that another core has just written.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that are handed over at a time: the half of a small second level of cache.
const LINES: usize = 2048;

/// Times they are handed over.
const ROUNDS: u64 = 400;

/// How long the other core may take to write. Where it takes longer it was at something else, or both threads share a core.
const PROMPT: Duration = Duration::from_micros(60);

/// How long both wait for each other at most: on a machine where others run, too, one may be gone for a while.
const PATIENCE: Duration = Duration::from_millis(20);

/// A line of memory.
#[repr(align(64))]
struct Line(AtomicU64);

/// Seconds in which a core reads a line that another has just written, in order: the median. Nothing where two threads never ran at the
/// same time.
pub(super) fn line_seconds() -> Option<f64> {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        return None;
    }
    let lines: Vec<Line> = (0..LINES).map(|_| Line(AtomicU64::new(0))).collect();
    let (asked, written) = (Line(AtomicU64::new(0)), Line(AtomicU64::new(0)));
    let await_from = |flag: &Line, least: u64| {
        let start = Instant::now();
        while flag.0.load(Ordering::Acquire) < least {
            if start.elapsed() > PATIENCE {
                thread::yield_now();
            }
            spin_loop();
        }
    };
    let mut seconds: Vec<f64> = thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                await_from(&asked, round);
                lines.iter().for_each(|line| line.0.store(round, Ordering::Relaxed));
                written.0.store(round, Ordering::Release);
            }
        });
        let read = |round| {
            let start = Instant::now();
            asked.0.store(round, Ordering::Release);
            await_from(&written, round);
            let was_prompt = start.elapsed() < PROMPT;
            let start = Instant::now();
            let sum = lines.iter().fold(0, |sum, line| sum ^ line.0.load(Ordering::Relaxed));
            black_box(sum);
            was_prompt.then(|| start.elapsed().as_secs_f64() / LINES as f64)
        };
        (1..=ROUNDS).filter_map(read).collect()
    });
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied()
}
