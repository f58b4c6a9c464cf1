//! The numbers of a [`Timing`](crate::Timing) that can be measured by themselves.
//!
//! What is measured is in seconds, and divided by those of a cycle that is measured beside it: the clock changes, and no counter of
//! cycles is for every program to read. Levels of memory are told apart by how many bytes are walked.

use super::ceilings::WorkingSet;
use super::memory::{LINE_BYTES, Pattern, chase_seconds, conflict_seconds, run_seconds, scattered_seconds};
use super::vectors::{self, Aligned, Loop};
use super::{cycle_seconds, least_seconds, remote};
use crate::machine::Machine;
use crate::timing::{Level, Numbers};

/// Lines of a run: as many as the rows of a tile read of a few channels.
const RUN_LINES: usize = 8;

/// Streams that are read by turns.
const STREAMS: usize = 8;

/// Cycles ahead of which lines are asked for, of which the best counts.
const DISTANCES: [f64; 5] = [200.0, 400.0, 800.0, 1600.0, 3200.0];

/// Most bytes that are walked to measure memory.
const MOST_BYTES: u64 = 256 << 20;

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The numbers: those that were measured in place of what they were before.
    pub numbers: Numbers,
    /// Keys of what was measured, as in [`Numbers::rows`].
    pub keys: Vec<String>,
}

impl Measured {
    /// Of several measurements of a machine, the median of each number.
    pub fn median(measured: &[Measured]) -> Option<Measured> {
        let tables: Vec<_> = measured.iter().map(|measured| measured.numbers.rows()).collect();
        let (first, keys) = (tables.first()?, measured.first()?.keys.clone());
        let median = |(n, (key, value)): (usize, &(String, String))| {
            let mut values: Vec<f64> =
                tables.iter().filter_map(|table| table.get(n)?.1.parse().ok()).collect();
            values.sort_by(f64::total_cmp);
            let middle = values.get(values.len() / 2);
            // Whole numbers stay whole.
            let whole = value.parse::<u64>().is_ok();
            match middle {
                Some(middle) if whole => format!("{key}={middle}\n"),
                Some(middle) => format!("{key}={middle:?}\n"),
                None => format!("{key}={value}\n"),
            }
        };
        let text: String = first.iter().enumerate().map(median).collect();
        Some(Measured { numbers: Numbers::parse("median", &text).ok()?, keys })
    }
}

/// Measures this machine on one core (two for what cores hand over); takes some seconds. What cannot be measured by itself stays as it is
/// in `before`.
pub fn measure(before: &Numbers) -> Measured {
    let mut session = Session { cycle: cycle_seconds(), keys: Vec::new() };
    let mut numbers = before.clone();
    numbers.caches = Machine::host().caches;
    numbers.clock_ghz = session.found("clock_ghz", 1e-9 / session.cycle);
    for key in ["caches.l1d", "caches.l2", "caches.l3", "caches.line"] {
        session.keys.push(key.to_owned());
    }
    session.core(&mut numbers);
    session.levels(&mut numbers);
    if let Some(seconds) = remote::line_seconds() {
        numbers.threads.remote_line_cycles = session.cycles("threads.remote_line_cycles", seconds);
    }
    Measured { numbers, keys: session.keys }
}

/// A measurement that is going on.
struct Session {
    /// Seconds of a cycle.
    cycle: f64,
    /// What was measured so far.
    keys: Vec<String>,
}

impl Session {
    /// Notes that a number was measured.
    fn found(&mut self, key: &str, value: f64) -> f64 {
        self.keys.push(key.to_owned());
        round(value)
    }

    /// The cycles of so many seconds.
    fn cycles(&mut self, key: &str, seconds: f64) -> f64 {
        self.found(key, (seconds / self.cycle).max(0.0))
    }

    fn core(&mut self, numbers: &mut Numbers) {
        let core = &mut numbers.core;
        let of = |what: Loop<'_>| least_seconds(|| vectors::run(&what));
        core.fma_latency = self.cycles("core.fma_latency", of(Loop::Chain)).round().max(1.0) as u32;
        let each = of(Loop::Chains) / self.cycle;
        core.fma_per_cycle = self.found("core.fma_per_cycle", 1.0 / each).round().max(1.0) as u32;
        let mut near = WorkingSet::new(numbers.caches.l1d as usize / 2);
        let vector = (4 * vectors::lanes()) as f64;
        let loads = least_seconds(|| near.read_piece() / vector);
        core.loads_per_cycle = self.found("core.loads_per_cycle", self.cycle / loads);
        let mut stored = Aligned::new(numbers.caches.l1d as usize / 2 / LINE_BYTES);
        let stores = least_seconds(|| {
            vectors::fill(&mut stored);
            (4 * stored.len()) as f64 / vector
        });
        core.stores_per_cycle = self.found("core.stores_per_cycle", self.cycle / stores);
        // Twelve multiply-adds with the eight loads that a tile of 6 x 2 has, and without.
        let data = Aligned::new(numbers.caches.l1d as usize / 4 / LINE_BYTES);
        let tile = of(Loop::Tile(&data)) / self.cycle;
        core.load_cycles = self.found("core.load_cycles", ((tile - 12.0 * each) / 8.0).max(0.0));
        core.scattered_cycles =
            self.cycles("core.scattered_cycles", scattered_seconds(2 * numbers.caches.l2 as usize));
    }

    fn levels(&mut self, numbers: &mut Numbers) {
        let caches = numbers.caches;
        let [l1, l2] = [caches.l1d / 2, caches.l2 / 2].map(|bytes| bytes as usize);
        let (first, second) = (self.level("l1", numbers.l1, l1, l1), self.level("l2", numbers.l2, l2, l1));
        numbers.l1 = Level { ways: self.ways(&caches, first.latency_cycles), ..first };
        numbers.l2 = second;
        if caches.l3 == 0 {
            numbers.l3 = None;
        } else if caches.l3 > caches.l2 {
            let before = numbers.l3.unwrap_or(numbers.memory);
            // As little of it as does not fit in the second level: others use it, too.
            let bytes = (3 * caches.l2).min(caches.l3) as usize;
            numbers.l3 = Some(self.level("l3", before, bytes, l1));
        }
        let bytes = (4 * caches.l3).max(16 * caches.l2).min(MOST_BYTES.max(16 * caches.l2)) as usize;
        let memory = self.level("memory", numbers.memory, bytes, l1);
        numbers.memory = memory;
        let ahead = self.prefetch_ahead(bytes, l1);
        numbers.core.prefetch_ahead_cycles = self.found("core.prefetch_ahead_cycles", ahead);
    }

    /// A level that holds so many bytes, beside a first level that holds `near`.
    fn level(&mut self, name: &str, before: Level, bytes: usize, near: usize) -> Level {
        let key = |last: &str| format!("{name}.{last}");
        let mut found = before;
        found.latency_cycles = self.cycles(&key("latency_cycles"), chase_seconds(bytes));
        let mut set = WorkingSet::new(bytes);
        let line = least_seconds(|| set.read_piece() / LINE_BYTES as f64);
        found.line_cycles = self.cycles(&key("line_cycles"), line);
        drop(set);
        let lines = RUN_LINES as f64;
        let of = |bytes, pattern, ahead| run_seconds(bytes, RUN_LINES, pattern, ahead);
        let base = of(near, Pattern::Stream, None);
        // Half a thousand cycles ahead, by the cycles that a run of the nearest lines takes.
        let ahead = ((500.0 * self.cycle / base) as usize).max(1);
        let stream = of(bytes, Pattern::Stream, None).min(of(bytes, Pattern::Stream, Some(ahead)));
        found.stream_cycles = self.cycles(&key("stream_cycles"), (stream - base).max(0.0) / lines);
        let beyond = |pattern| (of(bytes, pattern, None) - of(near, pattern, None).max(stream)).max(0.0);
        found.start_cycles = self.cycles(&key("start_cycles"), beyond(Pattern::Scattered));
        found.resume_cycles = self.cycles(&key("resume_cycles"), beyond(Pattern::Turns(STREAMS)));
        found
    }

    /// Lines that a set of the first level holds: of more of them that lie a way apart, some are always missing. Caches that guess
    /// which line was used longest ago lose some before a set is full, so of the numbers that make the sets a power of two it is the
    /// nearest.
    fn ways(&mut self, caches: &crate::Caches, latency: f64) -> u32 {
        /// Most ways that are tried.
        const MOST: usize = 24;
        // A way of any processor is a page or several; so many lie in the same sets whatever its size.
        let stride = (64 << 10).min(caches.l1d as usize);
        let fits = |n: &usize| conflict_seconds(*n, stride) / self.cycle < 1.4 * latency;
        let fitting = (2..=MOST).take_while(fits).last().unwrap_or(1) as f64;
        self.found("l1.ways", nearest_ways(caches, fitting)) as u32
    }

    /// The least distance at which asking for runs of memory is about as good as it gets.
    fn prefetch_ahead(&self, bytes: usize, near: usize) -> f64 {
        let base = run_seconds(near, RUN_LINES, Pattern::Stream, None) / self.cycle;
        let at = |distance: f64| {
            let ahead = (distance / base).round().max(1.0) as usize;
            run_seconds(bytes, RUN_LINES, Pattern::Scattered, Some(ahead))
        };
        let seconds = DISTANCES.map(at);
        let best = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let enough = seconds.iter().position(|seconds| *seconds <= 1.03 * best);
        DISTANCES[enough.unwrap_or(0)]
    }
}

/// The number of ways nearest to `fitting` with which the first level has a power of two of sets.
fn nearest_ways(caches: &crate::Caches, fitting: f64) -> f64 {
    let lines = caches.l1d / caches.line;
    let sets = (0..u64::BITS).map(|bit| 1u64 << bit).take_while(|sets| *sets <= lines);
    let ways = sets.filter(|sets| lines.is_multiple_of(*sets)).map(|sets| (lines / sets) as f64);
    let distance = |ways: &f64| (ways / fitting).ln().abs();
    ways.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(fitting)
}

/// Three digits: more are noise.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.0, 0.123456, 12.3456, 98765.0].map(round), [0.0, 0.123, 12.3, 98800.0]);
    }

    #[test]
    fn sets_are_a_power_of_two() {
        let caches = |l1d| crate::Caches { l1d, l2: 1 << 20, l3: 0, line: 64 };
        let of = |l1d, fitting| nearest_ways(&caches(l1d), fitting);
        assert_eq!(
            [of(48 << 10, 10.0), of(48 << 10, 12.0), of(32 << 10, 8.0), of(64 << 10, 5.0)],
            [12.0, 12.0, 8.0, 4.0]
        );
    }

    /// Whatever else the machine does, what is farther is slower, and a file can be made of what was measured.
    #[test]
    fn what_is_measured_makes_a_file() {
        let before = Machine::host().timing.numbers;
        let measured = measure(&before);
        let numbers = &measured.numbers;
        let keys: Vec<String> = numbers.rows().into_iter().map(|(key, _)| key).collect();
        assert!(measured.keys.iter().all(|key| keys.contains(key)), "{:?}", measured.keys);
        assert!(numbers.l1.latency_cycles < numbers.memory.latency_cycles, "{numbers:?}");
        let timing = crate::Timing { name: "measured".to_owned(), numbers: numbers.clone() };
        assert_eq!(crate::Timing::named(&timing.inline()), Ok(timing));
        let [mut more, mut less] = [measured.clone(), measured.clone()];
        more.numbers.memory.latency_cycles *= 2.0;
        less.numbers.l1.latency_cycles /= 2.0;
        assert_eq!(Measured::median(&[more, measured.clone(), less]), Some(measured));
        assert_eq!(Measured::median(&[]), None);
    }
}
