//! Recurrences: blocks that take turns in a loop over time.
//!
//! The order of their steps is their meaning, so there are no register tiles, and no tasks but for what has nothing in common.
//! What is left is lanes along the results of a step, which do not depend on each other, and constants laid out for that.

use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Func, IterKind};

use crate::Context;
use crate::pattern::{AccessInfo, Stride, domain_simplifier, iters_of, loads};
use crate::window::pack_constant;

/// Most vectors of results that a step goes on with side by side.
const MAX_VECTORS: i64 = 4;

/// Schedules a block inside of a loop that others are in, too.
pub(crate) fn schedule(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("recurrence", block, reason));
    let loops = schedule.loops(block)?;
    let Some(data) = schedule.func().block(block) else { return fail("no such block") };
    if loops.len() != data.iters.len() {
        return fail("the block is scheduled already");
    }
    let others = schedule.blocks().into_iter().filter(|name| name != block);
    let around: Vec<String> = others.filter_map(|name| schedule.loop_names(&name).ok()).flatten().collect();
    let (shared, own): (Vec<_>, Vec<_>) = loops.into_iter().partition(|l| around.contains(&l.name));
    if shared.is_empty() {
        return fail("no loop is shared with another block");
    }
    let spatial: Vec<_> = own.iter().filter(|l| l.iter_kind == Some(IterKind::Spatial)).collect();
    let steps: Vec<String> =
        own.iter().filter(|l| l.iter_kind == Some(IterKind::Reduce)).map(|l| l.name.clone()).collect();
    let Some(position) = spatial.iter().rposition(|l| l.extent.as_int() != Some(1)) else {
        return fail("a single result");
    };
    let func = schedule.func();
    let is_driven = |n: &usize| {
        let var = data.iters[*n].value.as_var();
        var.is_some_and(|var| func.vars[var].name == spatial[position].name)
    };
    let Some(lane) = iters_of(data, IterKind::Spatial).into_iter().find(is_driven) else {
        return fail("its loops are not its variables");
    };
    let (name, extent) = (spatial[position].name.clone(), spatial[position].extent.as_int());
    let before: Vec<String> =
        spatial.iter().enumerate().filter(|(n, _)| *n != position).map(|(_, l)| l.name.clone()).collect();
    let most = i64::from(context.target.lanes(4));
    let lanes = extent.and_then(|n| (2..=most).rev().find(|lanes| n % lanes == 0 && lanes.count_ones() == 1));
    let (Some(extent), Some(lanes)) = (extent, lanes) else { return fail("no vector divides its results") };
    while pack_constant(schedule, context, block, lane, lanes)? {}
    let func = schedule.func();
    let Some(data) = func.block(block) else { return fail("no such block") };
    if !walks(func, context, data, lane) {
        return fail("what it reads and writes does not lie consecutive along its results");
    }

    let vectors = extent / lanes;
    let side_by_side = match steps.is_empty() {
        true => 1,
        false => (1..=MAX_VECTORS.min(vectors)).rev().find(|n| vectors % n == 0).unwrap_or(1),
    };
    let parts = schedule.split(&name, &[None, Some(side_by_side), Some(lanes)])?;
    let order: Vec<&str> =
        before.iter().chain([&parts[0]]).chain(&steps).chain(&parts[1..]).map(String::as_str).collect();
    schedule.reorder(&order)?;
    schedule.unroll(&parts[1])?;
    schedule.vectorize(&parts[2])?;
    // What has nothing in common, directions, is shared by threads; the first of the blocks has seen to that for all.
    if let Some(outermost) = shared.first().filter(|l| l.iter_kind == Some(IterKind::Spatial)) {
        _ = schedule.parallel(&outermost.name);
    }
    Ok(vec![block.to_string()])
}

/// Whether all accesses move by one element with the lanes or not at all, and what is written moves.
fn walks(func: &Func, context: &Context<'_>, block: &Block, lane: usize) -> bool {
    let simplifier = domain_simplifier(func, block);
    let stride = |access: &AccessInfo| context.stride(func, &simplifier, access, block.iters[lane].var);
    let mut written = block.body.iter().map(|s| AccessInfo { buffer: s.buffer, indices: s.indices.clone() });
    written.all(|access| stride(&access) == Stride::Constant(1))
        && loads(block).iter().all(|access| matches!(stride(access), Stride::Zero | Stride::Constant(1)))
}
