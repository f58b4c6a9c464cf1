//! Numbers of machines that the model goes by. Each stands here once, with where it was measured.
//!
//! "Zen 3" stands for a core of the third Zen generation; "Sapphire Rapids" for one with AVX-512, 2 MiB of L2 and the L3 a mesh away.

use tilewright_machine::{Caches, Target};

/// Cycles that a cache line takes on its way from a level of cache, beside what is done meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fill {
    /// In a stream that is prefetched.
    pub(crate) streamed: f64,
    /// At the start of a run of lines, which nothing announces, in addition.
    pub(crate) at_start: f64,
}

/// From L2 to L1. Zen 3, tiles of 6x2 on 8 lanes, like [`FROM_L3`] and [`FROM_L3_CONTINUED`].
pub(crate) const FROM_L2: Fill = Fill { streamed: 0.2, at_start: 1.0 };

/// From L3, which cores share.
pub(crate) const FROM_L3: Fill = Fill { streamed: 0.7, at_start: 15.0 };

/// From L3 in runs each of which goes on where that of the tile before ended: hardware has seen its lines come.
pub(crate) const FROM_L3_CONTINUED: Fill = Fill { streamed: 0.7, at_start: 4.0 };

/// `streamed` from an L3 behind a network, of which prefetches hide little. Sapphire Rapids, tiles of 13x2 on 16 lanes: 37 ns to L3,
/// 3 to 4 cycles a line.
pub(crate) const FROM_L3_BEHIND_NETWORK: f64 = 3.5;

/// Cycles in which a core gets a line from L3 at best, whatever it does meanwhile: 33 GB/s.
pub(crate) const L3_LINE_AT_BEST: f64 = 6.0;

/// Cycles that a line of a tile's steps takes from L2, as tiles are compared. Zen 3.
pub(crate) const TILE_FILL: f64 = 0.3;

/// Cycles a step takes longer for each element of several windows that no register is left for. Zen 3, windows of 3x3 and 5x5.
pub(crate) const SPILL: f64 = 0.15;

/// Accumulators, relative to those that hide the latency of products, that keep the ports busy while steps wait for loads.
pub(crate) const SPARE_ACCUMULATORS: f64 = 1.25;

/// Vector loads a cycle.
pub(crate) const LOADS_A_CYCLE: f64 = 2.0;

/// Part of the cycles of a tile's loads that its products do not hide.
pub(crate) const LOADS_NOT_HIDDEN: f64 = 0.1;

/// Part of the shorter of two things that go on at the same time, products and a stream of weights, that the longer does not hide.
pub(crate) const NOT_HIDDEN: f64 = 0.3;

/// Reads of each element of a copy from which on it pays: results in vectors of eight at two a cycle take eight cycles over them, a
/// copy of whole vectors about one, and one of single elements that lie apart five. With half as many it is even.
pub(crate) const READS_WORTH_COPY: i64 = 128;

/// Steps of a tile, each an operation on a vector, up to which the loops of a window are unrolled: code that stays well inside the
/// first-level instruction cache.
pub(crate) const MAX_UNROLLED_STEPS: i64 = 256;

/// Bytes a cycle that one core gets from beyond L2.
pub(crate) const BYTES_BEYOND_L2: f64 = 6.0;

/// Cycles of an access to a line far from that before.
pub(crate) const SCATTERED_ACCESS: f64 = 8.0;

/// How many bytes of weights, which are prefetched, arrive in the time of a byte from another core's cache, which is waited for.
/// Zen 3: 28 against 5.6 GB/s.
pub(crate) const REMOTE: f64 = 3.0;

/// Cycles ahead of which a panel is prefetched: memory answers after a few hundred, later while it is busy.
pub(crate) const PREFETCH_CYCLES: i64 = 1600;

/// Part of L1 that what is meant to stay there may fill.
pub(crate) const L1_PART: f64 = 0.75;

/// Part of L1 that what a tile's steps load may fill and stay there for the next tile.
pub(crate) const L1_PART_OF_STEPS: f64 = 0.5;

/// Part of L2 that what is meant to stay there may fill, beside what streams past.
pub(crate) const L2_PART: f64 = 0.6;

/// Part of L2 that products may fill which wait to be summed.
pub(crate) const L2_PART_OF_SUMS: f64 = 0.25;

/// Bytes of a way of L1, where it is indexed by the part of an address that needs no translation.
pub(crate) const L1_WAY: i64 = 4096;

/// Lines in a set of L1 that an operand may have beside what else is read: half of the ways.
pub(crate) const WAYS_FOR_OPERAND: i64 = 4;

/// How much longer copying a piece takes that does not stay in L1: a vector is written to and read from L2.
pub(crate) const COPY_IN_L2: f64 = 1.5;

/// Bytes of a buffer on the stack of the thread that runs a task, at most: callers' threads have small stacks, too.
pub(crate) const MAX_STACK: i64 = 128 << 10;

/// The same of a row's temporaries.
pub(crate) const MAX_STACK_OF_ROW: i64 = 64 << 10;

/// Whether L3 is a network of many cores away: on the machines that there are, where each core has a large L2 of its own.
pub(crate) fn is_behind_network(caches: &Caches) -> bool {
    caches.l2 >= 5 << 18
}

/// Products a cycle.
pub(crate) fn ports(target: &Target) -> f64 {
    f64::from(target.machine.fma.per_cycle.max(1))
}
