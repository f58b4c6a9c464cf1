//! Data-parallel blocks: vectors along memory, tasks over the rest.

use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Expr, Func, IterKind};

use tilewright_machine::Target;

use crate::Context;
use crate::pattern::{AccessInfo, Stride, constant_product, domain_simplifier, loads, stride};
use crate::tasks::{PARALLEL_GRAIN, grains, parallelize, parallelize_rounds, rounds_of};

/// Schedules a block without reduction: trailing dimensions that every access walks through alike become one
/// loop, cut into vectors; the loops around become tasks.
pub fn schedule(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("elementwise", block, reason));
    let func = schedule.func();
    let Some(data) = func.block(block) else { return fail("no such block") };
    if data.iters.iter().any(|i| i.kind == IterKind::Reduce) {
        // A scatter or a recurrence: its order is its meaning.
        return fail("the block has reduction variables");
    }
    let loops = schedule.loop_names(block)?;
    if loops.is_empty() {
        return Ok(vec![block.to_string()]);
    }
    if loops.len() != data.iters.len() {
        return fail("the block is scheduled already");
    }
    let blocked = data.body.iter().any(|s| context.layout(&func.buffers[s.buffer].name).is_some());
    if blocked {
        return schedule_blocked(schedule, context, block);
    }
    let mixed = loads(data).iter().any(|a| context.layout(&func.buffers[a.buffer].name).is_some());
    let fused = if mixed { 1 } else { task_dims(context.target, data, contiguous_dims(func, data)) };
    let element = data.body.iter().map(|s| func.buffers[s.buffer].dtype.bytes()).max().unwrap_or(4).max(1);
    let lanes = i64::from(context.target.lanes(element.min(4)));
    let vectorizable = is_vectorizable(func, data);
    let total = crate::pattern::constant_product(data.iters.iter().map(|i| &i.extent));

    let split_at = loops.len() - fused.max(1);
    let (outer, inner) = loops.split_at(split_at);
    let inner_extent: Expr = data.iters[split_at..].iter().fold(Expr::int(1), |p, i| p * i.extent.clone());
    let inner_loop = match inner {
        [one] => one.clone(),
        many => schedule.fuse(&many.iter().map(String::as_str).collect::<Vec<_>>())?,
    };
    // Elements of a task, where there are enough for several.
    let grain = match total.is_some_and(|n| n < PARALLEL_GRAIN) {
        true => None,
        false => Some(context.decide(block, "grain", &grains(context.target, total))?),
    };
    let mut outer: Vec<String> = outer.to_vec();
    if vectorizable && inner_extent.as_int().is_none_or(|n| n >= 2) {
        let lanes = match inner_extent.as_int() {
            Some(n) if n < lanes => n,
            Some(_) | None => lanes,
        };
        // Where there is nothing around the row to distribute, the row itself is cut into tasks.
        let is_flat = outer.is_empty();
        if let Some(grain) = grain.filter(|_| is_flat) {
            let vectors = inner_extent.as_int().filter(|n| n % lanes == 0).map(|n| n / lanes);
            let task = even_share(vectors, (grain / lanes).max(1));
            let parts = schedule.split(&inner_loop, &[None, Some(task), Some(lanes)])?;
            schedule.vectorize(&parts[2])?;
            outer.push(parts[0].clone());
        } else {
            let parts = schedule.split(&inner_loop, &[None, Some(lanes)])?;
            schedule.vectorize(&parts[1])?;
        }
    } else if let Some(grain) = grain.filter(|_| outer.is_empty()) {
        let parts = schedule.split(&inner_loop, &[None, Some(grain)])?;
        outer.push(parts[0].clone());
    }
    if let Some(grain) = grain {
        parallelize(schedule, &outer, &inner_extent, grain)?;
    }
    Ok(vec![block.to_string()])
}

/// A block whose result is blocked: its loops in the order of memory, the innermost as vectors.
fn schedule_blocked(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<Vec<String>, ScheduleError> {
    let lane = stored_dim(schedule, context, block);
    let rounds = lane.and_then(|lane| rounds_of(schedule.func().block(block)?, lane));
    let order = context.order_loops(schedule, block)?;
    let Some((last, outer)) = order.split_last() else { return Ok(vec![block.to_string()]) };
    let loops = schedule.loops(block)?;
    let extent = loops.iter().find(|l| l.name == *last).and_then(|l| l.extent.as_int());
    let lanes = i64::from(context.target.lanes(4));
    match extent {
        Some(n) if n <= lanes => schedule.vectorize(last)?,
        Some(n) if n % lanes == 0 => {
            let parts = schedule.split(last, &[None, Some(lanes)])?;
            schedule.unroll(&parts[0])?;
            schedule.vectorize(&parts[1])?;
        }
        Some(_) | None => {}
    }
    let total = crate::pattern::constant_product(loops.iter().map(|l| &l.extent));
    if total.is_none_or(|n| n >= PARALLEL_GRAIN) {
        let grain = context.decide(block, "grain", &grains(context.target, total))?;
        parallelize_rounds(schedule, outer, rounds, &Expr::int(extent.unwrap_or(1)), grain)?;
    }
    Ok(vec![block.to_string()])
}

/// The dimension of a block's result that lies in blocks, innermost.
fn stored_dim(schedule: &Schedule, context: &Context<'_>, block: &str) -> Option<usize> {
    let func = schedule.func();
    let written = func.block(block)?.body.first()?.buffer;
    let innermost = context.layout(&func.buffers[written].name)?.pop()?;
    innermost.factor.map(|_| innermost.dim)
}

/// `wanted` iterations of a loop, or somewhat fewer that divide its extent: then no task is cut off.
fn even_share(extent: Option<i64>, wanted: i64) -> i64 {
    let divides = |n: &i64| extent.is_some_and(|extent| extent % n == 0);
    ((wanted + 3) / 4..=wanted).rev().find(divides).unwrap_or(wanted)
}

/// How many trailing dimensions of the block every access either walks in full and in order, or not at all.
fn contiguous_dims(func: &Func, block: &Block) -> usize {
    let rank = block.iters.len();
    let mut accesses: Vec<AccessInfo> = loads(block);
    accesses.extend(block.body.iter().map(|s| AccessInfo { buffer: s.buffer, indices: s.indices.clone() }));
    let fits = |n: usize| {
        let trailing = &block.iters[rank - n..];
        accesses.iter().all(|a| {
            if !trailing.iter().any(|i| a.indices.iter().any(|e| e.uses(i.var))) {
                return true;
            }
            let shape = &func.buffers[a.buffer].shape;
            let Some(start) = a.indices.len().checked_sub(n) else { return false };
            let in_order = a.indices[start..]
                .iter()
                .zip(trailing)
                .zip(&shape[start..])
                .all(|((e, i), extent)| crate::pattern::is_identity(e, i) && *extent == i.extent);
            in_order && a.indices[..start].iter().all(|e| trailing.iter().all(|i| !e.uses(i.var)))
        })
    };
    (1..=rank).rev().find(|&n| fits(n)).unwrap_or(1)
}

/// How many of the trailing dimensions that could be walked as one are: no more than make a task, if those around are
/// enough tasks for every core. A task that is a whole number of rows needs no arithmetic to tell rows apart.
fn task_dims(target: &Target, block: &Block, contiguous: usize) -> usize {
    let rank = block.iters.len();
    let product = |iters: &[tilewright_te::Iter]| constant_product(iters.iter().map(|i| &i.extent));
    let enough = |n: &usize| {
        let (around, task) = block.iters.split_at(rank - n);
        product(task).is_some_and(|n| n >= PARALLEL_GRAIN)
            && product(around).is_some_and(|n| 2 * n >= i64::from(target.machine.n_cores))
    };
    (1..contiguous).find(enough).unwrap_or(contiguous)
}

/// Whether vectors along the last dimension store to consecutive elements.
fn is_vectorizable(func: &Func, block: &Block) -> bool {
    let Some(last) = block.iters.last() else { return false };
    let simplifier = domain_simplifier(func, block);
    block.body.iter().all(|s| {
        let access = AccessInfo { buffer: s.buffer, indices: s.indices.clone() };
        stride(func, &simplifier, &access, last.var) == Stride::Constant(1)
    })
}
