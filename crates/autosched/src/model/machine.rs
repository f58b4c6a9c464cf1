//! What the model asks of the target's machine: every number of it comes from its [`Timing`](tilewright_machine::Timing).

use tilewright_machine::{Level, Numbers, Target};

/// Bytes of a buffer on the stack of the thread that runs a task, at most: callers' threads have small stacks on every machine.
pub(crate) const MAX_STACK: i64 = 128 << 10;

/// The same of a row's temporaries.
pub(crate) const MAX_STACK_OF_ROW: i64 = 64 << 10;

/// Steps of a tile, each an operation on a vector, up to which the loops of a window are unrolled: code that stays well inside the
/// first-level instruction cache, 32 KiB or more on every machine with vectors.
pub(crate) const MAX_UNROLLED_STEPS: i64 = 256;

/// The numbers of the machine.
pub(crate) fn numbers(target: &Target) -> &Numbers {
    &target.machine.timing.numbers
}

/// Products a cycle.
pub(crate) fn ports(target: &Target) -> f64 {
    f64::from(numbers(target).core.fma_per_cycle)
}

/// Cores that there are to be tasks for.
pub(crate) fn n_cores(target: &Target) -> i64 {
    i64::from(numbers(target).cores)
}

/// The level beyond L2: L3, or memory where there is none.
pub(crate) fn beyond_l2(target: &Target) -> &Level {
    let Numbers { l3, memory, .. } = numbers(target);
    l3.as_ref().filter(|_| target.machine.caches.l3 > 0).unwrap_or(memory)
}

/// Bytes of L1 that what is meant to stay there may fill.
pub(crate) fn l1_room(target: &Target) -> f64 {
    numbers(target).l1.usable * target.machine.caches.l1d as f64
}

/// Bytes of L2 that what is meant to stay there may fill, beside what streams past.
pub(crate) fn l2_room(target: &Target) -> f64 {
    numbers(target).l2.usable * target.machine.caches.l2 as f64
}

/// Cycles in which one core streams so many bytes from memory or to it.
pub(crate) fn memory_cycles(target: &Target, bytes: f64) -> f64 {
    bytes / target.machine.caches.line as f64 * numbers(target).memory.line_cycles
}

/// Cycles of two things that go on at the same time: the longer hides most of the shorter.
pub(crate) fn overlapped(target: &Target, a: f64, b: f64) -> f64 {
    a.max(b) + numbers(target).core.overlap_loss * a.min(b)
}

/// Cycles that copying a vector takes, from L1 to L1 or within a level behind it.
pub(crate) fn copy_cycles(target: &Target, level: Option<&Level>) -> f64 {
    let core = &numbers(target).core;
    let issued = 1.0 / core.loads_per_cycle + 1.0 / core.stores_per_cycle;
    // It is read and written.
    let lines = 2.0 * f64::from(target.vector_bits() / 8) / target.machine.caches.line as f64;
    // Stores that miss hide nothing.
    issued + level.map_or(0.0, |level| lines * level.line_cycles)
}

/// Bytes of a way of L1: what lies so far apart falls into one set.
pub(crate) fn l1_way(target: &Target) -> i64 {
    let ways = i64::from(numbers(target).l1.ways.max(1));
    (target.machine.caches.l1d as i64 / ways).max(1)
}

/// Lines in a set of L1 that an operand may have beside what else is read.
pub(crate) fn ways_for_operand(target: &Target) -> i64 {
    i64::from(numbers(target).l1.ways / 2)
}
