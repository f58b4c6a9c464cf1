//! What this machine can do at most, measured: arithmetic and memory traffic that no kernel can exceed.
//!
//! Each figure is the best of several short measurements, on as many threads at once as are asked for: on a
//! shared machine what disturbs only slows.
#![allow(unsafe_code, reason = "calls functions for instructions that were found to be there")]

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::vectors::{self, Loop};
use crate::machine::Machine;

/// Measured limits of some threads together.
#[derive(Clone, Debug, PartialEq)]
pub struct Ceilings {
    /// Threads that were measured.
    pub threads: usize,
    /// Fused multiply-adds of `f32`, as operations a second: two each.
    pub flops: f64,
    /// Bytes read a second from working sets of growing size.
    pub levels: Vec<Level>,
}

/// How fast a working set can be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// What holds it: `L1`, `L2`, `L3` or `memory`.
    pub name: &'static str,
    /// Bytes that all threads' parts of this level hold; `u64::MAX` for memory.
    pub capacity: u64,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

/// Measurements of each figure, of which the best counts.
const ROUNDS: usize = 40;

/// How long one measurement takes at least: shorter than the time that a system gives a thread before it lets another
/// one run, so that on a busy machine some are whole.
const ROUND: Duration = Duration::from_millis(1);

/// Bytes read between two looks at the clock: many times as long as that takes.
const PIECE: usize = 256 << 10;

/// Most bytes that a thread reads to measure memory. More than its share of the third level on common machines; on others
/// the figure is partly that of the cache, as it is for models of this size.
const MOST_BYTES: u64 = 128 << 20;

impl Ceilings {
    /// Measures so many threads (at least one) of this machine; takes some tenths of a second.
    pub fn measure(threads: usize) -> Ceilings {
        let threads = threads.max(1);
        let caches = Machine::host().caches;
        let per_thread = threads as u64;
        let flops =
            best_rate(threads, || (), |()| 2.0 * vectors::lanes() as f64 * vectors::run(&Loop::Chains));
        let level = |name, capacity: u64, set: u64| {
            let make = || WorkingSet::new(set as usize);
            Level { name, capacity, bytes_per_s: best_rate(threads, make, WorkingSet::read_piece) }
        };
        let mut levels = vec![
            level("L1", caches.l1d * per_thread, caches.l1d / 2),
            level("L2", caches.l2 * per_thread, caches.l2 / 2),
        ];
        if caches.l3 > caches.l2 {
            let set = (caches.l3 / per_thread / 2).clamp(caches.l2 * 2, MOST_BYTES / 4);
            levels.push(level("L3", caches.l3, set));
        }
        levels.push(level("memory", u64::MAX, (2 * caches.l3 / per_thread).clamp(caches.l2 * 8, MOST_BYTES)));
        Ceilings { threads, flops, levels }
    }

    /// Of two measurements of the same machine and threads, the better one of each figure.
    pub fn or_better(mut self, other: Ceilings) -> Ceilings {
        self.flops = self.flops.max(other.flops);
        for (level, other) in self.levels.iter_mut().zip(other.levels) {
            level.bytes_per_s = level.bytes_per_s.max(other.bytes_per_s);
        }
        self
    }

    /// The smallest level that holds so many bytes, else the last.
    pub fn level_of(&self, bytes: f64) -> Option<&Level> {
        self.levels.iter().find(|level| bytes <= level.capacity as f64).or(self.levels.last())
    }

    /// The least time, in seconds, that so many operations on so many bytes take: what bounds them is arithmetic or
    /// traffic, whichever takes longer.
    pub fn least_seconds(&self, flops: f64, bytes: f64) -> f64 {
        let traffic = self.level_of(bytes).map_or(0.0, |level| bytes / level.bytes_per_s);
        (flops / self.flops).max(traffic)
    }
}

/// The best rate of all threads together over some rounds; `work` gives the units it has done.
fn best_rate<S>(threads: usize, make: impl Fn() -> S + Sync, work: impl Fn(&mut S) -> f64 + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let one = || {
        let mut state = make();
        work(&mut state);
        let mut rates = [0.0; ROUNDS];
        for rate in &mut rates {
            barrier.wait();
            let (start, mut done) = (Instant::now(), 0.0);
            while start.elapsed() < ROUND {
                done += work(&mut state);
            }
            *rate = done / start.elapsed().as_secs_f64();
        }
        rates
    };
    let one = &one;
    let rates: Vec<[f64; ROUNDS]> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        let own = one();
        // A thread that measures cannot fail: it only computes.
        others.into_iter().filter_map(|other| other.join().ok()).chain([own]).collect()
    });
    (0..ROUNDS).map(|round| rates.iter().map(|r| r[round]).sum()).fold(0.0, f64::max)
}

/// Words of one step of [`sums`]: eight lines of a cache.
const STRIDE: usize = 64;

/// Memory that is read again and again, in order.
pub(super) struct WorkingSet {
    words: Vec<u64>,
    /// The first word that begins a line: the widest loads read whole ones.
    start: usize,
    /// Where the next piece begins, from there.
    at: usize,
}

impl WorkingSet {
    /// So many bytes, rounded down to whole steps.
    pub(super) fn new(bytes: usize) -> WorkingSet {
        let len = (bytes / 8 / STRIDE).max(1) * STRIDE;
        let words = vec![1; len + STRIDE];
        let start = words.as_ptr().align_offset(64).min(STRIDE);
        WorkingSet { words, start, at: 0 }
    }

    /// Reads [`PIECE`] bytes; how many.
    pub(super) fn read_piece(&mut self) -> f64 {
        let len = self.words.len() - STRIDE;
        let mut left = PIECE / 8;
        while left > 0 {
            let end = (self.at + left).min(len);
            read(&self.words[self.start + self.at..self.start + end]);
            left -= end - self.at;
            self.at = if end == len { 0 } else { end };
        }
        PIECE as f64
    }
}

/// Reads all words.
fn read(words: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the instructions are there.
        return unsafe { wide_sums(words) };
    }
    black_box(sums(words));
}

/// [`sums`] on the widest vectors.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn wide_sums(words: &[u64]) {
    black_box(sums(words));
}

/// The exclusive or of every 64th word: one cheap operation for each word read, in chains that do not wait for each other.
#[inline(always)]
fn sums(words: &[u64]) -> [u64; STRIDE] {
    let mut sums = [0u64; STRIDE];
    for chunk in words.as_chunks::<STRIDE>().0 {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum ^= word;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bounds_takes_longest() {
        let level = |name, capacity, bytes_per_s| Level { name, capacity, bytes_per_s };
        let levels = vec![level("L2", 1000, 100.0), level("memory", u64::MAX, 10.0)];
        let ceilings = Ceilings { threads: 1, flops: 50.0, levels };
        assert_eq!(ceilings.least_seconds(500.0, 100.0), 10.0);
        assert_eq!(ceilings.least_seconds(50.0, 1000.0), 10.0);
        assert_eq!(ceilings.least_seconds(50.0, 2000.0), 200.0);
    }

    #[test]
    fn every_figure_is_measured() {
        let ceilings = Ceilings::measure(2);
        assert!(ceilings.flops > 0.0);
        assert!(ceilings.levels.len() >= 3 && ceilings.levels.iter().all(|level| level.bytes_per_s > 0.0));
    }
}
