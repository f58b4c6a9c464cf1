//! Memory that is walked: in chains of loads, in order, in runs.

use std::hint::black_box;

use super::least_seconds;
use super::vectors::{self, Aligned, LINE, Loop, Runs};

/// Lines in which a chain jumps about before it moves on: so few pages that their addresses stay translated.
const NEIGHBOURS: usize = 1024;

/// Bytes of a line.
pub(super) const LINE_BYTES: usize = 4 * LINE;

/// Numbers that look random, the same every time.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        // An xorshift generator; its upper bits are the good ones.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) as usize) % n.max(1)
    }

    /// Puts items into a random order.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for n in (1..items.len()).rev() {
            items.swap(n, self.below(n + 1));
        }
    }
}

/// Seconds of a load that waits for the one before, over lines of so many bytes.
pub(super) fn chase_seconds(bytes: usize) -> f64 {
    let n = (bytes / LINE_BYTES).max(2);
    let mut order: Vec<usize> = (0..n).collect();
    let mut random = Random::new(n as u64);
    order.chunks_mut(NEIGHBOURS).for_each(|lines| random.shuffle(lines));
    chain_seconds(&order, LINE_BYTES)
}

/// Seconds of a load that waits for the one before, over so many places that lie `stride` bytes apart.
pub(super) fn conflict_seconds(places: usize, stride: usize) -> f64 {
    chain_seconds(&(0..places).collect::<Vec<_>>(), stride)
}

/// Goes round places, of `stride` bytes each, in that order.
fn chain_seconds(order: &[usize], stride: usize) -> f64 {
    /// Loads of a call.
    const STEPS: usize = 2048;
    let words = stride / 8;
    let mut next = vec![0u64; order.len() * words];
    for (n, place) in order.iter().enumerate() {
        next[place * words] = (order[(n + 1) % order.len()] * words) as u64;
    }
    let mut at = 0;
    least_seconds(|| {
        for _ in 0..STEPS {
            at = next[at as usize];
        }
        at = black_box(at);
        STEPS as f64
    })
}

/// Seconds of a load of a line at random that waits for none, among so many bytes.
pub(super) fn scattered_seconds(bytes: usize) -> f64 {
    /// Loads of a call.
    const STEPS: usize = 4096;
    let words = vec![1u64; bytes / 8];
    let mut places: Vec<u32> = (0..(bytes / LINE_BYTES) as u32).map(|line| line * 8).collect();
    Random::new(1).shuffle(&mut places);
    let mut at = 0;
    least_seconds(|| {
        let mut sum = 0;
        for place in places.iter().cycle().skip(at).take(STEPS) {
            sum ^= words[*place as usize];
        }
        at = (at + STEPS) % places.len();
        black_box(sum);
        STEPS as f64
    })
}

/// How runs of lines follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Each begins where the one before ends.
    Stream,
    /// Anywhere.
    Scattered,
    /// By turns those of so many streams.
    Turns(usize),
}

/// Seconds of a run of `len` lines among so many bytes, each line of which is multiplied and added 12 times; lines of the run
/// `ahead` places later are asked for.
pub(super) fn run_seconds(bytes: usize, len: usize, pattern: Pattern, ahead: Option<usize>) -> f64 {
    /// Lines of a call.
    const PIECE: usize = 512;
    let n_runs = (bytes / LINE_BYTES / len).max(1);
    let storage = Aligned::new(n_runs * len);
    let lines = storage.as_chunks::<LINE>().0;
    let mut starts: Vec<u32> = (0..n_runs as u32).map(|run| run * len as u32).collect();
    match pattern {
        Pattern::Stream => {}
        Pattern::Scattered => {
            let mut random = Random::new(len as u64);
            starts.chunks_mut(NEIGHBOURS / len).for_each(|runs| random.shuffle(runs));
        }
        Pattern::Turns(streams) => {
            let each = n_runs / streams;
            let turn = |n: usize| ((n % streams) * each + n / streams) * len;
            starts = (0..each * streams).map(|n| turn(n) as u32).collect();
        }
    }
    let piece = (PIECE / len).clamp(1, starts.len());
    let mut at = 0;
    least_seconds(|| {
        let read = at..(at + piece).min(starts.len());
        at = if read.end == starts.len() { 0 } else { read.end };
        vectors::run(&Loop::Lines(Runs { lines, starts: &starts, read, len, ahead }))
    })
}
