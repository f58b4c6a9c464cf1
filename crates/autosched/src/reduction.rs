//! Reductions to few results: vectors along the reduction itself, summed in the end.

use tilewright_te::flatten::masks;
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Expr, IterKind, Scope};

use crate::Context;
use crate::pattern::{AccessInfo, Stride, constant_product, domain_simplifier, iters_of, loads};
use crate::tasks::{PARALLEL_GRAIN, grains, parallelize};

/// Schedules a reduction block: where its innermost reduction variable walks memory, that is cut into lanes that
/// are combined in the end; otherwise its results are shared out as they are.
pub fn schedule(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("reduction", block, reason));
    let info = schedule.block_info(block)?;
    let func = schedule.func();
    let Some(data) = func.block(block) else { return fail("no such block") };
    if !info.is_reduction || !info.is_commutative || data.body.len() != 1 {
        return fail("not a reduction whose steps may run in any order");
    }
    let spatial = iters_of(data, IterKind::Spatial);
    let reduce = iters_of(data, IterKind::Reduce);
    let loops = schedule.loop_names(block)?;
    if loops.len() != data.iters.len() {
        return fail("the block is scheduled already");
    }
    let simplifier = domain_simplifier(func, data);
    let accumulator = data.body[0].buffer;
    let reads: Vec<AccessInfo> = loads(data).into_iter().filter(|a| a.buffer != accumulator).collect();
    let lanes = i64::from(context.target.lanes(4));
    let moves_by = |n: usize| -> Vec<Stride> {
        reads.iter().map(|a| context.stride(func, &simplifier, a, data.iters[n].var)).collect()
    };
    let walks = |strides: &[Stride]| {
        strides.iter().all(|s| matches!(s, Stride::Zero | Stride::Constant(1)))
            && strides.contains(&Stride::Constant(1))
    };
    let work = constant_product(data.iters.iter().map(|i| &i.extent));
    let steps = reduce.iter().fold(Expr::int(1), |p, &n| p * data.iters[n].extent.clone());
    // Elements of a task, where there are enough for several.
    let grain = match work.is_some_and(|n| n < PARALLEL_GRAIN) {
        true => None,
        false => Some(grains(context.target, work)),
    };

    // Lanes along the innermost reduction variable.
    let outer: Vec<String> = spatial.iter().map(|&s| loops[s].clone()).collect();
    let Some(&last) = reduce.last() else { return fail("no reduction variable") };
    let extent = data.iters[last].extent.as_int();
    // A last vector that is cut off needs lanes that can be left out.
    let divides = extent.is_some_and(|e| e % lanes == 0);
    let is_long = extent.is_none_or(|e| e >= lanes);
    let by_lanes = lanes > 1 && is_long && (divides || masks(func, data, context.target.masked_access()));
    if by_lanes && walks(&moves_by(last)) {
        let parts = schedule.split(&loops[last], &[None, Some(lanes)])?;
        let partial = schedule.rfactor(block, &parts[1])?;
        // The combination has a nest of its own now.
        let outer = loops_of(schedule, block, IterKind::Spatial)?;
        let grain = grain.map(|grains| context.decide(block, "grain", &grains)).transpose()?;
        return combine_lanes(schedule, block, &partial, &outer, &steps, grain);
    }
    let tasks: Vec<String> = outer;
    if let Some(grains) = grain {
        let grain = context.decide(block, "grain", &grains)?;
        parallelize(schedule, &tasks, &steps, grain)?;
    }
    Ok(vec![block.to_string()])
}

/// Computes the partial results of a factored reduction beside their combination, as lanes of a register.
fn combine_lanes(
    schedule: &mut Schedule,
    block: &str,
    partial: &str,
    outer: &[String],
    steps: &Expr,
    grain: Option<i64>,
) -> Result<Vec<String>, ScheduleError> {
    if let Some(inner) = outer.last() {
        if lanes_at(schedule, partial, inner)? {
            for name in loops_of(schedule, block, IterKind::Reduce)? {
                schedule.unroll(&name)?;
            }
        }
        if let Some(grain) = grain {
            parallelize(schedule, outer, steps, grain)?;
        }
    }
    Ok(vec![block.to_string(), partial.to_string()])
}

/// Computes partial results of a factored reduction under a loop of their combination, in lanes of a register; tells
/// whether they have a loop for that.
pub(crate) fn lanes_at(schedule: &mut Schedule, partial: &str, around: &str) -> Result<bool, ScheduleError> {
    let made = schedule.compute_at(partial, around)?;
    // The lanes are data-parallel in the partial results: innermost, vectorized.
    let spatial = loops_of(schedule, partial, IterKind::Spatial)?;
    let steps = loops_of(schedule, partial, IterKind::Reduce)?;
    let Some(lane) = spatial.iter().rev().find(|name| made.contains(name)) else { return Ok(false) };
    let order: Vec<&str> = steps.iter().chain([lane]).map(String::as_str).collect();
    schedule.reorder(&order)?;
    schedule.vectorize(lane)?;
    if let Some(first) = steps.first() {
        schedule.decompose_reduction(partial, first)?;
    }
    for buffer in schedule.block_info(partial)?.writes {
        schedule.set_scope(&buffer, Scope::Register)?;
    }
    Ok(true)
}

/// The loops that drive a block's variables of a kind, outermost first.
pub(crate) fn loops_of(
    schedule: &Schedule,
    block: &str,
    kind: IterKind,
) -> Result<Vec<String>, ScheduleError> {
    let loops = schedule.loops(block)?.into_iter();
    Ok(loops.filter(|l| l.iter_kind == Some(kind)).map(|l| l.name).collect())
}
