//! Reductions by the lanes of a warp: each goes through every 32nd step, then halves of the lanes add what the others have.

use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{IterKind, Scope, ThreadLevel};

use super::threads::LANES;
use crate::loops::{joined, loops_of};

/// Reduces inside of a loop by the lanes of one warp. The block's nest is its own. Every lane has the result, in a register.
///
/// # Errors
/// Where a primitive refuses: not a reduction that can be made of partial results.
pub(super) fn reduce_in_warp(
    schedule: &mut Schedule,
    block: &str,
    around: &str,
) -> Result<(), ScheduleError> {
    let steps = loops_of(schedule, block, IterKind::Reduce)?;
    let steps = joined(schedule, &steps)?;
    let parts = schedule.split(&steps, &[None, Some(LANES)])?;
    // The first has the most lanes.
    let mut partial = vec![schedule.rfactor(block, &parts[1])?];
    let mut lanes = LANES / 2;
    while lanes > 1 {
        let halves = loops_of(schedule, block, IterKind::Reduce)?;
        let [halves] = &halves[..] else { return Err(lost(block)) };
        let parts = schedule.split(halves, &[None, Some(lanes)])?;
        partial.push(schedule.rfactor(block, &parts[1])?);
        lanes /= 2;
    }
    schedule.compute_at(block, around)?;
    hold(schedule, block)?;
    for name in loops_of(schedule, block, IterKind::Reduce)? {
        schedule.unroll(&name)?;
    }
    for name in partial.iter().rev() {
        let made = schedule.compute_at(name, around)?;
        hold(schedule, name)?;
        let own = |kind| -> Result<Vec<String>, ScheduleError> {
            let loops = loops_of(schedule, name, kind)?;
            Ok(loops.into_iter().filter(|l| made.contains(l)).collect())
        };
        let (spatial, steps) = (own(IterKind::Spatial)?, own(IterKind::Reduce)?);
        let (Some(lane), Some(first)) = (spatial.last(), steps.first()) else { return Err(lost(name)) };
        schedule.bind(lane, ThreadLevel::Lane)?;
        match name == &partial[0] {
            true => _ = schedule.decompose_reduction(name, first)?,
            false => schedule.unroll(first)?,
        }
    }
    Ok(())
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
) -> Result<(), ScheduleError> {
    let steps = loops_of(schedule, block, IterKind::Reduce)?;
    let steps = joined(schedule, &steps)?;
    let parts = schedule.split(&steps, &[None, Some(warps), Some(LANES)])?;
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
    reduce_in_warp(schedule, &of_warp, &warp)
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
