//! Reductions: accumulators in registers, vectors along whatever lies consecutive in memory.

use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::{Expr, IterKind, Scope};

use crate::Context;
use crate::elementwise::parallelize;
use crate::pattern::{AccessInfo, Stride, constant_product, domain_simplifier, iters_of, loads};

/// Schedules a reduction block: where its last data-parallel variable walks memory, that becomes the lanes of
/// an accumulator; otherwise the innermost reduction variable is cut into lanes that are summed in the end.
pub fn schedule(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("reduction", block, reason));
    let info = schedule.block_info(block)?;
    if info.is_reduction {
        while pack_constants(schedule, context, block)? {}
    }
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
    let small = work.is_some_and(|n| n < 8192);

    // Lanes along a data-parallel variable.
    let layout = context.layout(&func.buffers[accumulator].name);
    let innermost = match layout.as_ref().and_then(|pieces| pieces.last()) {
        Some(piece) => spatial.get(piece.dim).copied(),
        None => spatial.last().copied(),
    };
    let block_lanes = layout.as_ref().and_then(|pieces| pieces.last()).and_then(|p| p.factor);
    let lanes = block_lanes.map_or(lanes, |n| n.min(lanes));
    let lane_iter = innermost.filter(|&n| {
        let wide = data.iters[n].extent.as_int().is_none_or(|e| e >= 4);
        wide && walks(&moves_by(n)) && (layout.is_some() || store_walks(data, n))
    });
    let reduce_loops: Vec<String> = reduce.iter().map(|&n| loops[n].clone()).collect();
    if let Some(n) = lane_iter {
        let extent = data.iters[n].extent.clone();
        let lanes = extent.as_int().map_or(lanes, |e| e.min(lanes));
        let divides = extent.as_int().is_some_and(|e| e % lanes == 0);
        if !divides {
            return fail("a partial vector cannot be accumulated");
        }
        let outer: Vec<String> = spatial.iter().filter(|&&s| s != n).map(|&s| loops[s].clone()).collect();
        let copy = schedule.cache_write(block, Scope::Register)?;
        let parts = schedule.split(&loops[n], &[None, Some(lanes)])?;
        let mut order: Vec<&str> = outer.iter().map(String::as_str).collect();
        order.push(&parts[0]);
        order.extend(reduce_loops.iter().map(String::as_str));
        order.push(&parts[1]);
        schedule.reorder(&order)?;
        schedule.vectorize(&parts[1])?;
        schedule.decompose_reduction(block, &reduce_loops[0])?;
        let mut tasks = outer;
        tasks.push(parts[0].clone());
        let copied = schedule.reverse_compute_at(&copy, &parts[0])?;
        if let Some(lane) = spatial.iter().position(|&s| s == n).and_then(|dim| copied.get(dim)) {
            schedule.vectorize(lane)?;
        }
        if !small {
            parallelize(schedule, &tasks, &(steps * lanes))?;
        }
        return Ok(vec![block.to_string(), copy]);
    }

    // Lanes along the innermost reduction variable.
    let outer: Vec<String> = spatial.iter().map(|&s| loops[s].clone()).collect();
    let Some(&last) = reduce.last() else { return fail("no reduction variable") };
    let extent = data.iters[last].extent.as_int();
    let by_lanes = walks(&moves_by(last)) && extent.is_some_and(|e| e >= lanes && e % lanes == 0);
    if by_lanes && lanes > 1 {
        let parts = schedule.split(&loops[last], &[None, Some(lanes)])?;
        let partial = schedule.rfactor(block, &parts[1])?;
        // The combination has a nest of its own now.
        let outer: Vec<String> = schedule
            .loops(block)?
            .into_iter()
            .filter(|l| l.iter_kind == Some(IterKind::Spatial))
            .map(|l| l.name)
            .collect();
        return combine_lanes(schedule, block, &partial, &outer, &steps, small);
    }
    let tasks: Vec<String> = outer;
    if !small {
        parallelize(schedule, &tasks, &steps)?;
    }
    Ok(vec![block.to_string()])
}

/// Lays constants anew that would be walked with a stride by the lanes (the weights of a depthwise
/// convolution): the lanes' dimension becomes the innermost. Tells whether it did.
fn pack_constants(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<bool, ScheduleError> {
    let func = schedule.func();
    let Some(data) = func.block(block) else { return Ok(false) };
    let Some(pieces) = data.body.first().and_then(|s| context.layout(&func.buffers[s.buffer].name)) else {
        return Ok(false);
    };
    let Some((dim, lanes)) = pieces.last().and_then(|p| Some((p.dim, p.factor?))) else { return Ok(false) };
    let spatial = iters_of(data, IterKind::Spatial);
    let Some(lane) = spatial.get(dim).map(|&n| data.iters[n].var) else { return Ok(false) };
    for access in loads(data) {
        let name = func.buffers[access.buffer].name.clone();
        let input = func.params[..func.n_inputs].iter().position(|&p| p == access.buffer);
        let constant = input.filter(|&n| context.constant_inputs.get(n) == Some(&true));
        let along = access.indices.iter().position(|e| e.as_var() == Some(lane));
        let (Some(input), Some(along)) = (constant, along) else { continue };
        if context.layout(&name).is_some() || along + 1 == access.indices.len() {
            continue;
        }
        let mut pieces: Vec<Piece> =
            (0..access.indices.len()).map(|dim| Piece { dim, factor: None }).collect();
        pieces.push(Piece { dim: along, factor: Some(lanes) });
        context.set_layout(&name, pieces.clone(), Padding::Zero);
        context.choose_packing(schedule, input, pieces)?;
        return Ok(true);
    }
    Ok(false)
}

/// Computes the partial results of a factored reduction beside their combination, as lanes of a register.
fn combine_lanes(
    schedule: &mut Schedule,
    block: &str,
    partial: &str,
    outer: &[String],
    steps: &Expr,
    small: bool,
) -> Result<Vec<String>, ScheduleError> {
    if let Some(inner) = outer.last() {
        let made = schedule.compute_at(partial, inner)?;
        // The lanes are data-parallel in the partial results: innermost, vectorized.
        let loops = schedule.loops(partial)?;
        let lane =
            loops.iter().rev().find(|l| made.contains(&l.name) && l.iter_kind == Some(IterKind::Spatial));
        if let Some(lane) = lane {
            let lane = lane.name.clone();
            let reduce: Vec<String> = loops
                .iter()
                .filter(|l| l.iter_kind == Some(IterKind::Reduce))
                .map(|l| l.name.clone())
                .collect();
            let mut order: Vec<&str> = reduce.iter().map(String::as_str).collect();
            order.push(&lane);
            schedule.reorder(&order)?;
            schedule.vectorize(&lane)?;
            if let Some(first) = reduce.first() {
                schedule.decompose_reduction(partial, first)?;
            }
            let writes = schedule.block_info(partial)?.writes;
            for buffer in writes {
                schedule.set_scope(&buffer, Scope::Register)?;
            }
            let combine: Vec<String> = schedule
                .loops(block)?
                .into_iter()
                .filter(|l| l.iter_kind == Some(IterKind::Reduce))
                .map(|l| l.name)
                .collect();
            for name in &combine {
                schedule.unroll(name)?;
            }
        }
        if !small {
            parallelize(schedule, outer, steps)?;
        }
    }
    Ok(vec![block.to_string(), partial.to_string()])
}

/// Whether the store moves by one element with the variable.
fn store_walks(block: &tilewright_te::Block, iter: usize) -> bool {
    let var = block.iters[iter].var;
    block.body.iter().all(|s| s.indices.last().is_some_and(|e| e.as_var() == Some(var)))
}
