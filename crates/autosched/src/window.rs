//! Windows: reductions whose results, and what they read, lie consecutive along a data-parallel variable.
//!
//! Depthwise convolution and pooling are of this kind, and sums over the outer axes of a tensor. The variable
//! gives the lanes; neighbouring results along another one make the rows of a register tile, so that
//! the chains of accumulation are many and what the rows share (weights) is loaded once. Short windows
//! are unrolled, which lets overlapping ones share their loads.

use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::{Block, Expr, Func, IterKind};

use crate::order::Order;
use crate::padding::PaddingBlock;
use crate::pattern::{AccessInfo, Stride, constant_product, domain_simplifier, is_cheap, iters_of, loads};
use crate::tasks::{PARALLEL_GRAIN, extent_of, grains, parallelize_rounds, rounds_of};
use crate::tile::{
    Tile, TiledBlock, Traffic, Windows, epilogue_of, last_of_several, stored_layout, stores_at_its_variables,
};
use crate::{Candidate, Context};

/// Steps of a tile, each an operation on a vector, up to which the loops of a window are unrolled: code that
/// stays well inside the first-level instruction cache.
const MAX_UNROLLED: i64 = 256;

/// Schedules a reduction along whose results lanes can run, with its epilogue.
pub fn schedule(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("window", block, reason));
    let info = schedule.block_info(block)?;
    if !info.is_reduction || !info.is_commutative {
        return fail("not a reduction whose steps may run in any order");
    }
    let epilogue = epilogue_of(schedule, block);
    let Some(data) = schedule.func().block(block) else { return fail("no such block") };
    let [store] = &data.body[..] else { return fail("it has several results") };
    if !stores_at_its_variables(data) {
        return fail("its results are not stored at its variables");
    }
    if schedule.loop_names(block)?.len() != data.iters.len() {
        return fail("the block is scheduled already");
    }
    let accumulator = store.buffer;
    let spatial = iters_of(data, IterKind::Spatial);
    let layout = stored_layout(schedule, context, &epilogue, accumulator);
    let innermost = layout.as_ref().and_then(|pieces| pieces.last());
    let lane = match innermost {
        Some(piece) => spatial.get(piece.dim).copied(),
        None => last_of_several(data, &spatial),
    };
    let Some(lane) = lane else { return fail("a single result") };
    let blocks = innermost.and_then(|piece| piece.factor).into_iter().chain(context.largest_block(
        schedule.func(),
        data,
        data.iters[lane].var,
    ));
    let most = blocks.fold(i64::from(context.target.lanes(4)), i64::min);
    let Some(extent) = data.iters[lane].extent.as_int() else { return fail("an open number of lanes") };
    let Some(lanes) = (2..=most).rev().find(|n| extent % n == 0 && n.count_ones() == 1) else {
        return fail("no vector divides the lanes");
    };
    if layout.is_some() {
        while pack_constant(schedule, context, block, lane, most)? {}
    }

    let func = schedule.func();
    let Some(data) = func.block(block) else { return fail("no such block") };
    let reads: Vec<AccessInfo> = loads(data).into_iter().filter(|a| a.buffer != accumulator).collect();
    if !walks(func, context, data, &reads, lane) {
        return fail("what it reads does not lie consecutive along its results");
    }
    // A step that computes an elementary function is long enough by itself, and must not be repeated in the code.
    let is_short = data.body.iter().all(|store| is_cheap(&store.value));
    let is_row = |&n: &usize| is_short && n != lane && data.iters[n].extent.as_int() != Some(1);
    let row = spatial.iter().copied().rfind(is_row);
    let n_rows = row.map_or(Some(1), |n| data.iters[n].extent.as_int());
    let vectors = Some(extent / lanes);
    let tiles =
        Tile::candidates(context.target, lanes, n_rows, vectors, traffic(func, data, &reads, lane, row));
    let tile = context.decide(block, "tile", &tiles)?;
    let reduce = iters_of(data, IterKind::Reduce);
    let n_unrolled = match is_short {
        true => context.decide(block, "unroll", &unrolled_loops(data, &reduce, &tile))?,
        false => 0,
    };
    let unrolled: Vec<usize> = reduce[reduce.len() - n_unrolled..].to_vec();
    let constant_depth = constant_product(reduce.iter().map(|&n| &data.iters[n].extent));
    let order = context.decide(block, "order", &Order::candidates(&tile, n_rows, vectors, constant_depth))?;
    let padding =
        layout.as_ref().and_then(|pieces| PaddingBlock::of(schedule, block, &reads, pieces.last()?.dim));
    let work = constant_product(data.iters.iter().map(|i| &i.extent));
    let depth = reduce.iter().fold(Expr::int(1), |p, &n| p * data.iters[n].extent.clone());
    let rounds = layout.as_ref().and_then(|pieces| rounds_of(data, pieces.last()?.dim));
    let (steps, blocked_steps) = (reduce, None);
    // Dimensions before the lanes' are batches.
    let rows = spatial.iter().copied().filter(|&n| n > lane && Some(n) != row).collect();
    let tiled = TiledBlock { block, epilogue, lane, row, tile, order, rows, steps, blocked_steps, unrolled };
    let around = tiled.apply(schedule, context)?;
    let mut taken = vec![block.to_string(), around.store];
    let rounds = rounds.filter(|&n| around.loops.get(n - 1) == Some(&around.panels));
    let mut tasks = around.loops;
    let mut elements = depth * (tile.rows * tile.vectors * lanes);
    if let Some(padding) = padding {
        // The loop of the rows' tiles stays inside, where it is the innermost.
        let rows_inside = row.is_some() && order == Order::PanelStays;
        let inner = if rows_inside { tasks.pop() } else { None };
        // Rows that threads share come in an even number of pieces.
        let pieces = if rounds.is_some() { 2 } else { 1 };
        if let Some(rows) = padding.fold(schedule, context, block, &mut tasks, pieces, lanes)? {
            let tiles = inner.and_then(|name| extent_of(schedule, &name)).unwrap_or(1);
            elements = elements * (rows * tiles);
            taken.push(padding.block);
        } else {
            tasks.extend(inner);
        }
    }
    if work.is_none_or(|n| n >= PARALLEL_GRAIN) {
        let grain = context.decide(block, "grain", &grains(context.target, work))?;
        parallelize_rounds(schedule, &tasks, rounds, &elements, grain)?;
    }
    Ok(taken)
}

/// How many of a window's loops, the innermost first, are unrolled for a tile: as many as [`MAX_UNROLLED`]
/// allows, or fewer.
fn unrolled_loops(block: &Block, reduce: &[usize], tile: &Tile) -> Vec<Candidate<usize>> {
    let mut steps = tile.rows * tile.vectors;
    let mut counts = vec![(0, steps)];
    for (count, &n) in reduce.iter().rev().enumerate() {
        let extent = block.iters[n].extent.as_int().filter(|e| steps * e <= MAX_UNROLLED);
        let Some(extent) = extent else { break };
        steps *= extent;
        counts.push((count + 1, steps));
    }
    counts.reverse();
    // Unrolling a loop of one iteration changes nothing: of equals the first stays.
    counts.dedup_by_key(|(_, steps)| *steps);
    let candidate = |(count, steps): (usize, i64)| {
        let features = vec![("unroll.steps", (steps as f64).log2())];
        Candidate { value: count, cost: 1.0 / steps as f64, features }
    };
    counts.into_iter().map(candidate).collect()
}

/// Whether every operand moves by one element with the lanes or not at all, and one of them moves.
fn walks(func: &Func, context: &Context<'_>, block: &Block, reads: &[AccessInfo], lane: usize) -> bool {
    let simplifier = domain_simplifier(func, block);
    let strides: Vec<Stride> =
        reads.iter().map(|a| context.stride(func, &simplifier, a, block.iters[lane].var)).collect();
    strides.iter().all(|s| matches!(s, Stride::Zero | Stride::Constant(1)))
        && strides.contains(&Stride::Constant(1))
}

/// What a step of the tile loads.
fn traffic(func: &Func, block: &Block, reads: &[AccessInfo], lane: usize, row: Option<usize>) -> Traffic {
    let depends = |a: &AccessInfo, n: usize| a.indices.iter().any(|e| e.uses(block.iters[n].var));
    let mut traffic = Traffic::default();
    for read in reads {
        match (row.is_some_and(|n| depends(read, n)), depends(read, lane)) {
            (true, true) => traffic.per_accumulator += 1,
            (true, false) => traffic.per_row += 1,
            (false, true) => traffic.per_vector += 1,
            (false, false) => {}
        }
    }
    let along_row = |row| reads.iter().find_map(|read| windows_along(func, block, read, row));
    traffic.windows = row.and_then(along_row);
    traffic
}

/// The windows that rows read of an operand, if they lie along them.
fn windows_along(func: &Func, block: &Block, read: &AccessInfo, row: usize) -> Option<Windows> {
    let simplifier = domain_simplifier(func, block);
    let index = read.indices.iter().find(|index| index.uses(block.iters[row].var))?;
    let index = simplifier.linear(index);
    let (stride, rest) = index.affine_in(block.iters[row].var)?;
    iters_of(block, IterKind::Reduce).into_iter().find_map(|n| {
        let (dilation, _) = rest.affine_in(block.iters[n].var).filter(|(times, _)| *times != 0)?;
        let taps = block.iters[n].extent.as_int()?;
        Some(Windows { stride, dilation, taps })
    })
}

/// Lays a constant anew that the lanes would walk with a stride (the weights of a depthwise convolution): the
/// lanes' dimension becomes the innermost. Tells whether it did.
pub(crate) fn pack_constant(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
    lane: usize,
    lanes: i64,
) -> Result<bool, ScheduleError> {
    let func = schedule.func();
    let Some(data) = func.block(block) else { return Ok(false) };
    let lane = data.iters[lane].var;
    for access in loads(data) {
        let name = func.buffers[access.buffer].name.clone();
        let constant = context.constant_input(func, access.buffer);
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
