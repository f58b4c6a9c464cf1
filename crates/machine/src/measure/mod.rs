//! What this machine can do, measured.
//!
//! [`Ceilings`](ceilings::Ceilings) are rates that no kernel can exceed, of several threads together; [`timing`] measures the
//! numbers of a [`Timing`](crate::Timing) on one core. Each figure is the best of many short runs: on a shared machine what disturbs
//! only slows.

pub mod ceilings;
mod memory;
mod remote;
pub mod timing;
mod vectors;

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Runs of each figure, of which the best counts.
const RUNS: usize = 40;

/// How long a run takes at least: much shorter than the time that a system gives a thread before it lets another one run, so that on a
/// busy machine some are whole.
const RUN: Duration = Duration::from_micros(300);

/// The least seconds that a unit of `work` takes; a call of it tells how many it has done, at least one.
fn least_seconds(mut work: impl FnMut() -> f64) -> f64 {
    work();
    let run = || {
        let (start, mut done) = (Instant::now(), 0.0);
        while start.elapsed() < RUN {
            done += work();
        }
        start.elapsed().as_secs_f64() / done
    };
    std::iter::repeat_with(run).take(RUNS).fold(f64::INFINITY, f64::min)
}

/// The seconds of a cycle, by a chain of operations that take one cycle each on every processor.
fn cycle_seconds() -> f64 {
    let (a, b) = (black_box(0x9e37_79b9_7f4a_7c15_u64), black_box(0x5555_5555_5555_5555_u64));
    let mut x = 1u64;
    least_seconds(|| {
        /// Steps of two operations, neither of which can be moved past the other.
        const STEPS: usize = 4096;
        for _ in 0..STEPS {
            x = x.wrapping_add(a) ^ b;
        }
        x = black_box(x);
        2.0 * STEPS as f64
    })
}
