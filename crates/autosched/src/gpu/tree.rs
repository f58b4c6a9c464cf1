//! Reductions by the lanes of a warp: each goes through every 32nd step, or every 32nd few, then halves of the lanes add what the others have.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{IterKind, Scope, ThreadLevel};

use super::threads::LANES;
use crate::loops::{joined, loops_of};

/// Elements that an instruction loads at most, of four bytes: 16 bytes (PTX ISA, `ld.global.v4`).
pub(super) const WIDEST: i64 = 4;

/// Numbers of elements that an instruction loads.
const TOGETHER: [i64; 3] = [WIDEST, 2, 1];

/// Loads of a thread that are under way at a time.
const AT_ONCE: [i64; 3] = [4, 2, 1];

/// How a lane goes through the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Walk {
    /// Steps that follow one another, which one instruction loads.
    pub together: i64,
    /// So many of these in an iteration, which wait for memory at the same time.
    pub at_once: i64,
}

/// `4 by 4 steps a lane`, or `2 steps a lane`; nothing for a step at a time.
impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.at_once, self.together) {
            (1, 1) => Ok(()),
            (1, together) => write!(f, ", {together} steps a lane"),
            (at_once, together) => write!(f, ", {at_once} by {together} steps a lane"),
        }
    }
}

impl Walk {
    /// The widest that leaves no step over for so many lanes: what is left over would take a condition for each element. A `run` of steps
    /// is consecutive in memory.
    pub(super) fn of(steps: Option<i64>, run: Option<i64>, lanes: i64) -> Walk {
        let divides = |n: i64, of: Option<i64>| of.is_some_and(|of| of > 0 && of % n == 0);
        let together = TOGETHER.into_iter().find(|&n| divides(n, run) && divides(n * lanes, steps));
        let together = together.unwrap_or(1);
        let at_once = AT_ONCE.into_iter().find(|&n| divides(n * together * lanes, steps));
        Walk { together, at_once: at_once.unwrap_or(1) }
    }

    /// All steps of a thread, which has so many of them, at once. A `run` of steps is consecutive in memory.
    pub(super) fn whole(of_thread: i64, run: Option<i64>) -> Walk {
        let divides = |n: &i64| of_thread % n == 0 && run.is_some_and(|run| run % n == 0);
        let together = TOGETHER.into_iter().find(divides).unwrap_or(1);
        Walk { together, at_once: of_thread / together }
    }

    /// Shares a loop out to the threads of a warp, or of so many, as [`reduce_in_warp`] and [`reduce_in_task`] share their steps: what a
    /// thread makes is what it combines.
    pub(super) fn share(
        self,
        schedule: &mut Schedule,
        name: &str,
        warps: Option<i64>,
    ) -> Result<(), ScheduleError> {
        let own = self.factors().map(|n| (n == LANES || n > 1).then_some(n));
        let lane = 1 + usize::from(warps.is_some()) + usize::from(own[0].is_some());
        let factors: Vec<Option<i64>> =
            [None].into_iter().chain(warps.map(Some)).chain(own.into_iter().flatten().map(Some)).collect();
        let parts = schedule.split(name, &factors)?;
        if warps.is_some() {
            schedule.bind(&parts[1], ThreadLevel::Warp)?;
        }
        if own[0].is_some() {
            schedule.unroll(&parts[lane - 1])?;
        }
        schedule.bind(&parts[lane], ThreadLevel::Lane)?;
        // One by one, as what is combined: elements that are loaded for both then stay in registers. LLVM makes vectors of their accesses.
        match parts.get(lane + 1) {
            Some(together) => schedule.unroll(together),
            None => Ok(()),
        }
    }

    /// The factors of the loop over steps: lanes, and what is unrolled before and after.
    fn factors(self) -> [i64; 3] {
        [self.at_once, LANES, self.together]
    }
}

/// Reduces inside of a loop by the lanes of one warp. The block's nest is its own. Every lane has the results, in registers: if there are
/// several inside of the loop, the lanes take a step of all of them at a time.
///
/// # Errors
/// Where a primitive refuses: not a reduction that can be made of partial results.
pub(super) fn reduce_in_warp(
    schedule: &mut Schedule,
    block: &str,
    around: &str,
    walk: Walk,
) -> Result<(), ScheduleError> {
    let partial = combine_in_warp(schedule, block, [around, around], walk, Sharing::NONE)?;
    let made = schedule.compute_at(&partial, around)?;
    let Nest { lane, results, steps } = Nest::of(schedule, &partial, &made)?;
    let first = steps.first().ok_or_else(|| lost(&partial))?;
    if !results.is_empty() {
        let order: Vec<&str> =
            [&lane].into_iter().chain(&steps).chain(&results).map(String::as_str).collect();
        schedule.reorder(&order)?;
    }
    schedule.bind(&lane, ThreadLevel::Lane)?;
    for name in results.iter().chain(&steps[1..]) {
        schedule.unroll(name)?;
    }
    schedule.decompose_reduction(&partial, first).map(drop)
}

/// How lanes share several results: of two lanes that combine what they have, each does so for half of the results, as processors do in recursive
/// halving (Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004). Those of a lane are consecutive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sharing {
    /// Lanes, a power of two.
    pub(super) lanes: i64,
    /// Which of the variables over results is the slowest; the others follow in their order.
    pub(super) slowest: usize,
}

impl Sharing {
    /// Each lane combines what there is of all results.
    const NONE: Sharing = Sharing { lanes: 1, slowest: 0 };

    /// Makes one loop of the loops over results.
    pub(super) fn joined(
        self,
        schedule: &mut Schedule,
        mut results: Vec<String>,
    ) -> Result<String, ScheduleError> {
        if let Some(until) = results.get_mut(..=self.slowest) {
            until.rotate_right(1);
        }
        schedule.reorder(&results.iter().map(String::as_str).collect::<Vec<_>>())?;
        joined(schedule, &results)
    }
}

/// Combines inside of a loop what the lanes of a warp have of a reduction, by halves, in registers. Gives the block by which each lane has its
/// part, also in registers, which is not placed yet.
///
/// The last halves are combined inside of a second loop, in which lanes share the results.
///
/// # Errors
/// As [`reduce_in_warp`].
pub(super) fn combine_in_warp(
    schedule: &mut Schedule,
    block: &str,
    [around, last]: [&str; 2],
    walk: Walk,
    sharing: Sharing,
) -> Result<String, ScheduleError> {
    let steps = loops_of(schedule, block, IterKind::Reduce)?;
    let steps = joined(schedule, &steps)?;
    let own = walk.factors().map(|n| (n == LANES || n > 1).then_some(n));
    let lane = 1 + usize::from(own[0].is_some());
    let factors: Vec<Option<i64>> =
        std::iter::once(None).chain(own.into_iter().flatten().map(Some)).collect();
    let parts = schedule.split(&steps, &factors)?;
    let of_lanes = schedule.rfactor(block, &parts[lane])?;
    // The first has the most lanes.
    let mut partial = Vec::new();
    let mut lanes = LANES / 2;
    while lanes > 1 {
        let halves = loops_of(schedule, block, IterKind::Reduce)?;
        let [halves] = &halves[..] else { return Err(lost(block)) };
        let parts = schedule.split(halves, &[None, Some(lanes)])?;
        partial.push(schedule.rfactor(block, &parts[1])?);
        lanes /= 2;
    }
    let made = schedule.compute_at(block, last)?;
    hold(schedule, block)?;
    for name in several(schedule, made) {
        schedule.unroll(&name)?;
    }
    for name in partial.iter().rev() {
        let made = schedule.compute_at(name, around)?;
        hold(schedule, name)?;
        lanes *= 2;
        let groups = (sharing.lanes / lanes).max(1);
        let Nest { mut lane, mut results, steps } = Nest::of(schedule, name, &made)?;
        if groups > 1 {
            let all = sharing.joined(schedule, results)?;
            let parts = schedule.split(&all, &[Some(groups), None])?;
            schedule.reorder(&[&parts[0], &lane, &parts[1]])?;
            lane = joined(schedule, &[parts[0].clone(), lane])?;
            results = several(schedule, vec![parts[1].clone()]);
        }
        if !results.is_empty() {
            let order: Vec<&str> =
                [&lane].into_iter().chain(&steps).chain(&results).map(String::as_str).collect();
            schedule.reorder(&order)?;
        }
        schedule.bind(&lane, ThreadLevel::Lane)?;
        for name in results.iter().chain(&steps) {
            schedule.unroll(name)?;
        }
    }
    hold(schedule, &of_lanes)?;
    Ok(of_lanes)
}

/// The loops of a block by which lanes have parts of a reduction.
pub(super) struct Nest {
    pub(super) lane: String,
    /// Over results, where there are several.
    pub(super) results: Vec<String>,
    pub(super) steps: Vec<String>,
}

impl Nest {
    /// Those of what `compute_at` has made.
    pub(super) fn of(schedule: &Schedule, block: &str, made: &[String]) -> Result<Nest, ScheduleError> {
        let own = |kind| -> Result<Vec<String>, ScheduleError> {
            let loops = loops_of(schedule, block, kind)?;
            Ok(loops.into_iter().filter(|l| made.contains(l)).collect())
        };
        let (mut results, steps) = (own(IterKind::Spatial)?, own(IterKind::Reduce)?);
        let lane = results.pop().ok_or_else(|| lost(block))?;
        Ok(Nest { lane, results: several(schedule, results), steps })
    }
}

/// Those of some loops that have more than one iteration.
fn several(schedule: &Schedule, loops: Vec<String>) -> Vec<String> {
    loops.into_iter().filter(|name| schedule.extent(name) != Some(1)).collect()
}

/// Reduces inside of a loop by several warps, which meet in shared memory. Every thread has the result, in a register.
///
/// # Errors
/// As [`reduce_in_warp`].
pub(super) fn reduce_in_task(
    schedule: &mut Schedule,
    block: &str,
    around: &str,
    warps: i64,
    walk: Walk,
) -> Result<(), ScheduleError> {
    let steps = loops_of(schedule, block, IterKind::Reduce)?;
    let steps = joined(schedule, &steps)?;
    let of_warp = walk.factors().into_iter().product();
    let parts = schedule.split(&steps, &[None, Some(warps), Some(of_warp)])?;
    schedule.reorder(&[&parts[1], &parts[0], &parts[2]])?;
    let of_warp = schedule.rfactor(block, &parts[1])?;
    schedule.compute_at(block, around)?;
    hold(schedule, block)?;
    for name in loops_of(schedule, block, IterKind::Reduce)? {
        schedule.unroll(&name)?;
    }
    // Lanes cannot read another warp's registers.
    for buffer in schedule.block_info(&of_warp)?.writes {
        schedule.set_scope(&buffer, Scope::Shared)?;
    }
    let store = schedule.cache_write(&of_warp, Scope::Register)?;
    let made = schedule.compute_at(&store, around)?;
    let warp = made.last().ok_or_else(|| lost(&store))?.clone();
    schedule.bind(&warp, ThreadLevel::Warp)?;
    reduce_in_warp(schedule, &of_warp, &warp, walk)
}

/// Has each warp of a task make its part of results, a lane that of one: what the block `partial` computes, whose last two variables over results
/// are these and the warps. Parts meet in shared memory. Gives the loops over a warp's steps, the first of which they start before.
///
/// # Errors
/// As [`reduce_in_warp`].
pub(super) fn parts_of_warps(
    schedule: &mut Schedule,
    partial: &str,
    task: &str,
) -> Result<Vec<String>, ScheduleError> {
    // Lanes cannot read another warp's registers.
    for buffer in schedule.block_info(partial)?.writes {
        schedule.set_scope(&buffer, Scope::Shared)?;
    }
    let store = schedule.cache_write(partial, Scope::Register)?;
    let made = schedule.compute_at(&store, task)?;
    let [.., result, warp] = &made[..] else { return Err(lost(&store)) };
    schedule.reorder(&[warp, result])?;
    schedule.bind(warp, ThreadLevel::Warp)?;
    schedule.bind(result, ThreadLevel::Lane)?;
    schedule.compute_at(partial, result)?;
    hold(schedule, partial)?;
    let steps = loops_of(schedule, partial, IterKind::Reduce)?;
    schedule.decompose_reduction(partial, steps.first().ok_or_else(|| lost(partial))?)?;
    Ok(steps)
}

/// Keeps what a block writes in registers.
pub(super) fn hold(schedule: &mut Schedule, block: &str) -> Result<(), ScheduleError> {
    for buffer in schedule.block_info(block)?.writes {
        schedule.set_scope(&buffer, Scope::Register)?;
    }
    Ok(())
}

fn lost(block: &str) -> ScheduleError {
    ScheduleError::new("tree", block, "a loop is lost")
}
