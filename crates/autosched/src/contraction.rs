//! Matrix products and convolutions: register tiles of outputs, held across the whole reduction.
//!
//! A contraction is a sum of products of two operands. One data-parallel variable gives the *lanes*: the
//! results' elements lie consecutive along it, and so do those of one operand (the *panel*, packed where it
//! is not), while the other operand (the *broadcast* one) does not depend on it. Another gives the *rows* of
//! the register tile: the panel does not depend on it. A tile of rows times vectors is accumulated in
//! registers over all steps of the reduction and leaves through the epilogue.
//!
//! The shape of the loop nest is that of Goto and van de Geijn ("Anatomy of High-Performance Matrix
//! Multiplication", 2008) with the micro-kernel held over the whole depth; the tile is chosen by [`Tile`].

use tilewright_machine::Target;
use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::simplify::Simplifier;
use tilewright_te::{Block, Expr, ExprKind, Func, IterKind, Scope};

use crate::Context;
use crate::pattern::{AccessInfo, Stride, domain_simplifier, iters_of, stride};

/// A register tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows: broadcast elements of a step.
    pub rows: i64,
    /// Vectors of a row: panel loads of a step.
    pub vectors: i64,
    /// Lanes of a vector.
    pub lanes: i64,
}

impl Tile {
    /// The tile with the least cost for `rows` by `vectors` outputs (`None` where not known).
    ///
    /// Cost is cycles an output and step: products or loads, whichever port is busier, over the useful part
    /// of the tile. Registers hold the accumulators, a step's panel vectors, and one broadcast element.
    pub fn choose(target: &Target, lanes: i64, rows: Option<i64>, vectors: Option<i64>) -> Tile {
        let registers = i64::from(target.n_vector_registers());
        let ports = f64::from(target.machine.fma.per_cycle.max(1));
        let latency = f64::from(target.machine.fma.latency.max(1));
        let useful =
            |n: Option<i64>, tile: i64| n.map_or(1.0, |n| n as f64 / (((n + tile - 1) / tile) * tile) as f64);
        let mut best = (f64::INFINITY, Tile { rows: 1, vectors: 1, lanes });
        for v in 1..=vectors.unwrap_or(4).clamp(1, 4) {
            if vectors.is_some_and(|n| n % v != 0) {
                continue;
            }
            for r in 1..=rows.unwrap_or(30).clamp(1, 30) {
                if r * v + v + 1 > registers {
                    break;
                }
                let (r_, v_) = (r as f64, v as f64);
                let products = (r_ * v_).max(latency * ports) / ports;
                let loads = (r_ + v_) / 2.0;
                let cycles = products.max(loads) + 0.05 * loads;
                let cost = cycles / (r_ * v_ * useful(rows, r));
                if cost < best.0 - 1e-9 {
                    best = (cost, Tile { rows: r, vectors: v, lanes });
                }
            }
        }
        best.1
    }
}

/// The parts a contraction's variables and operands play.
struct Roles {
    /// Position of the lanes' variable.
    lane: usize,
    /// Position of the rows' variable, if there is one.
    row: Option<usize>,
    /// The operand with consecutive elements along the lanes.
    panel: AccessInfo,
    /// Whether the panel has to be laid out anew.
    pack: bool,
}

/// Schedules a sum of products with its epilogue.
pub fn schedule(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("contraction", block, reason));
    let func = schedule.func();
    let Some(data) = func.block(block) else { return fail("no such block") };
    let Some((a, b)) = operands(data) else { return fail("not a sum of products") };
    if schedule.loop_names(block)?.len() != data.iters.len() {
        return fail("the block is scheduled already");
    }
    let accumulator = data.body[0].buffer;
    let plain_store = iters_of(data, IterKind::Spatial);
    let is_plain = data.body[0].indices.len() == plain_store.len()
        && data.body[0].indices.iter().zip(&plain_store).all(|(e, &n)| e.as_var() == Some(data.iters[n].var));
    if !is_plain {
        return fail("its results are not stored at its variables");
    }
    let accumulator_name = func.buffers[accumulator].name.clone();
    let epilogue = epilogue_of(schedule, block);
    let lanes_of = |n: usize| {
        lanes_for(
            context,
            &data.iters[n].extent,
            &epilogue_layout(schedule, context, &epilogue, accumulator),
            n,
        )
    };
    let Some(roles) =
        roles(func, context, data, [a, b], &epilogue_layout(schedule, context, &epilogue, accumulator))
    else {
        return fail("no variable whose results and one operand lie consecutive");
    };
    let Some(lanes) = lanes_of(roles.lane) else { return fail("no vector of that extent") };

    // The tile.
    let lane_extent = data.iters[roles.lane].extent.as_int();
    let row_extent = roles.row.map(|n| data.iters[n].extent.clone());
    let vectors = lane_extent.map(|n| (n + lanes - 1) / lanes);
    let tile =
        Tile::choose(context.target, lanes, row_extent.as_ref().map_or(Some(1), |e| e.as_int()), vectors);
    let width = tile.vectors * tile.lanes;
    let rank = data.iters.len();
    let n_spatial = plain_store.len();
    let lane_dim = plain_store.iter().position(|&n| n == roles.lane).unwrap_or(0);
    let reduce: Vec<usize> = iters_of(data, IterKind::Reduce);
    let panel_name = func.buffers[roles.panel.buffer].name.clone();
    let constant_panel = func.params[..func.n_inputs]
        .iter()
        .position(|&p| p == roles.panel.buffer)
        .filter(|&n| context.constant_inputs.get(n) == Some(&true) && context.layout(&panel_name).is_none());
    let channel_block = reduce.first().and_then(|&c| {
        // The broadcast operand's blocked dimension, walked in blocks so that its elements are consecutive.
        let factor = context.largest_block(func, data, data.iters[c].var)?;
        (data.iters[c].extent.as_int()? % factor == 0 && factor > 1).then_some(factor)
    });
    let panel_pieces = panel_layout(data, &roles, width, channel_block);

    // The panel, laid out so that a step's vectors are consecutive.
    if roles.pack {
        let Some(pieces) = panel_pieces else { return fail("the panel's indices are not plain") };
        match constant_panel {
            Some(input) => context.pack_input(schedule, input, &panel_name, pieces)?,
            None => {
                let copy = schedule.cache_read(block, &panel_name, Scope::Global)?;
                let buffer = schedule.block_info(&copy)?.writes.remove(0);
                context.set_layout(&buffer, pieces, Padding::Zero);
                context.apply_layout(schedule, &buffer)?;
                crate::elementwise::schedule(schedule, context, &copy)?;
            }
        }
    }

    // Padding of what the tile does not divide.
    let mut factors = vec![1; rank];
    if let Some(row) = roles.row {
        factors[row] = tile.rows;
    }
    factors[roles.lane] = width;
    let copy = match epilogue {
        Some(epilogue) => epilogue,
        None => schedule.cache_write(block, Scope::Register)?,
    };
    let local = schedule.block_info(block)?.writes.remove(0);
    debug_assert!(local == accumulator_name || copy != block);
    schedule.pad_einsum(block, &factors)?;

    // Loops of the epilogue around the tile.
    let outer = schedule.loop_names(&copy)?;
    if outer.len() != n_spatial {
        return fail("the epilogue has other loops than the contraction");
    }
    let lane_parts = schedule.split(&outer[lane_dim], &[None, Some(tile.vectors), Some(tile.lanes)])?;
    let row_dim = roles.row.and_then(|row| plain_store.iter().position(|&n| n == row));
    let row_parts = match row_dim {
        Some(dim) => Some(schedule.split(&outer[dim], &[None, Some(tile.rows)])?),
        None => None,
    };
    let mut order: Vec<String> = Vec::new();
    let others = || (0..n_spatial).filter(|&d| d != lane_dim && Some(d) != row_dim);
    // Dimensions before the lanes' are batches; those after it follow the panel, which stays in cache.
    order.extend(others().filter(|&d| d < lane_dim).map(|d| outer[d].clone()));
    order.push(lane_parts[0].clone());
    order.extend(others().filter(|&d| d > lane_dim).map(|d| outer[d].clone()));
    let tile_loop = match &row_parts {
        Some(parts) => {
            order.push(parts[0].clone());
            parts[0].clone()
        }
        None => order.last().cloned().unwrap_or_default(),
    };
    let outer_loops = order.clone();
    order.extend(row_parts.iter().map(|p| p[1].clone()));
    order.push(lane_parts[1].clone());
    order.push(lane_parts[2].clone());
    schedule.reorder(&order.iter().map(String::as_str).collect::<Vec<_>>())?;
    if let Some(parts) = &row_parts {
        schedule.unroll(&parts[1])?;
    }
    schedule.unroll(&lane_parts[1])?;
    schedule.vectorize(&lane_parts[2])?;

    // The tile inside.
    let inner = schedule.compute_at(block, &tile_loop)?;
    if inner.len() != rank {
        return fail("the tile has lost a loop");
    }
    let lane_inner = schedule.split(&inner[roles.lane], &[None, Some(tile.lanes)])?;
    let mut order: Vec<String> = (0..rank)
        .filter(|n| plain_store.contains(n) && *n != roles.lane && Some(*n) != roles.row)
        .map(|n| inner[n].clone())
        .collect();
    let first_reduce;
    match channel_block {
        Some(factor) => {
            let parts = schedule.split(&inner[reduce[0]], &[None, Some(factor)])?;
            first_reduce = parts[0].clone();
            order.push(parts[0].clone());
            order.extend(reduce[1..].iter().map(|&n| inner[n].clone()));
            order.push(parts[1].clone());
        }
        None => {
            first_reduce = inner[reduce[0]].clone();
            order.extend(reduce.iter().map(|&n| inner[n].clone()));
        }
    }
    order.extend(roles.row.map(|n| inner[n].clone()));
    order.push(lane_inner[0].clone());
    order.push(lane_inner[1].clone());
    schedule.reorder(&order.iter().map(String::as_str).collect::<Vec<_>>())?;
    if let Some(row) = roles.row {
        schedule.unroll(&inner[row])?;
    }
    schedule.unroll(&lane_inner[0])?;
    schedule.vectorize(&lane_inner[1])?;
    schedule.decompose_reduction(block, &first_reduce)?;
    schedule.set_scope(&local, Scope::Register)?;
    let mut pieces: Vec<Piece> = (0..n_spatial).map(|dim| Piece { dim, factor: None }).collect();
    pieces.push(Piece { dim: lane_dim, factor: Some(tile.lanes) });
    context.set_layout(&local, pieces, Padding::Undefined);

    // Tasks: everything around the tile but the innermost loop, which shares the panel.
    match outer_loops.split_last() {
        Some((last, [])) => schedule.parallel(last)?,
        Some((_, around)) => crate::elementwise::parallelize_prefix(schedule, around)?,
        None => {}
    }
    Ok(vec![block.to_string(), copy])
}

/// The two loads whose products the block sums.
fn operands(block: &Block) -> Option<(AccessInfo, AccessInfo)> {
    let [store] = &block.body[..] else { return None };
    let load = |e: &Expr| match e.kind() {
        ExprKind::Load(buffer, indices) => Some(AccessInfo { buffer: *buffer, indices: indices.clone() }),
        _ => None,
    };
    let ExprKind::Fma(a, b, c) = store.value.kind() else { return None };
    let is_accumulator = load(c).is_some_and(|x| x.buffer == store.buffer && x.indices == store.indices);
    if !is_accumulator {
        return None;
    }
    Some((load(a)?, load(b)?))
}

/// The one data-parallel block that reads the results, each once, at its own index.
fn epilogue_of(schedule: &Schedule, block: &str) -> Option<String> {
    let consumers = schedule.consumers(block).ok()?;
    let [only] = &consumers[..] else { return None };
    let func = schedule.func();
    let (data, consumer) = (func.block(block)?, func.block(only)?);
    let buffer = data.body.first()?.buffer;
    let is_identity = |a: &AccessInfo| {
        a.indices.len() == consumer.iters.len()
            && a.indices.iter().zip(&consumer.iters).all(|(e, i)| crate::pattern::is_identity(e, i))
    };
    let fits = !consumer.is_reduction()
        && consumer.body.len() == 1
        && !func.params.contains(&buffer)
        && crate::pattern::loads(consumer).iter().filter(|a| a.buffer == buffer).all(is_identity);
    fits.then(|| only.clone())
}

/// The layout of what the epilogue (or the contraction itself) writes.
fn epilogue_layout(
    schedule: &Schedule,
    context: &Context<'_>,
    epilogue: &Option<String>,
    accumulator: tilewright_te::Buffer,
) -> Option<Vec<Piece>> {
    let func = schedule.func();
    let buffer = match epilogue {
        Some(name) => func.block(name)?.body.first()?.buffer,
        None => accumulator,
    };
    context.layout(&func.buffers[buffer].name)
}

/// Vector lanes for a variable: a blocked dimension's block, else the target's vector where it is worth one.
fn lanes_for(context: &Context<'_>, extent: &Expr, layout: &Option<Vec<Piece>>, iter: usize) -> Option<i64> {
    let full = i64::from(context.target.lanes(4));
    let blocked =
        layout.as_ref().and_then(|pieces| pieces.last()).filter(|p| p.dim == iter).and_then(|p| p.factor);
    match (blocked, extent.as_int()) {
        (Some(factor), _) => Some(factor.min(full)),
        (None, Some(n)) if n < full => {
            // A short row: the widest power of two that it fills.
            let lanes = 1i64 << n.ilog2();
            (lanes > 1).then_some(lanes)
        }
        (None, _) => Some(full),
    }
}

fn roles(
    func: &Func,
    context: &Context<'_>,
    block: &Block,
    operands: [AccessInfo; 2],
    layout: &Option<Vec<Piece>>,
) -> Option<Roles> {
    let simplifier = domain_simplifier(func, block);
    let spatial = iters_of(block, IterKind::Spatial);
    let depends = |a: &AccessInfo, n: usize| a.indices.iter().any(|e| e.uses(block.iters[n].var));
    let lane_candidates: Vec<usize> =
        match layout.as_ref().and_then(|p| p.last()).filter(|p| p.factor.is_some()) {
            Some(piece) => vec![*spatial.get(piece.dim)?],
            None => vec![*spatial.last()?],
        };
    for lane in lane_candidates {
        if block.iters[lane].extent.as_int() == Some(1) {
            continue;
        }
        for (panel, broadcast) in [(&operands[1], &operands[0]), (&operands[0], &operands[1])] {
            if !depends(panel, lane) || depends(broadcast, lane) {
                continue;
            }
            let consecutive = context.layout(&func.buffers[panel.buffer].name).is_none()
                && stride_of(func, &simplifier, panel, block, lane) == Stride::Constant(1);
            let is_input = func.params[..func.n_inputs].contains(&panel.buffer);
            let constant = is_input
                && func.params[..func.n_inputs]
                    .iter()
                    .position(|&p| p == panel.buffer)
                    .is_some_and(|n| context.constant_inputs.get(n) == Some(&true));
            let row = best_row(block, &spatial, lane, panel, broadcast, &depends);
            // A copy is padded to whole tiles; without one, loads past an open end would be clamped lane by lane.
            let open_end = block.iters[lane].extent.as_int().is_none();
            let pack = constant || !consecutive || open_end;
            return Some(Roles { lane, row, panel: panel.clone(), pack });
        }
    }
    None
}

/// The variable that the broadcast operand depends on and the panel does not: the last such one with more
/// than one value.
fn best_row(
    block: &Block,
    spatial: &[usize],
    lane: usize,
    panel: &AccessInfo,
    broadcast: &AccessInfo,
    depends: &impl Fn(&AccessInfo, usize) -> bool,
) -> Option<usize> {
    spatial
        .iter()
        .copied()
        .filter(|&n| n != lane && depends(broadcast, n) && !depends(panel, n))
        .rfind(|&n| block.iters[n].extent.as_int() != Some(1))
}

fn stride_of(
    func: &Func,
    simplifier: &Simplifier,
    access: &AccessInfo,
    block: &Block,
    iter: usize,
) -> Stride {
    stride(func, simplifier, access, block.iters[iter].var)
}

/// The panel's layout: what is around the reduction outermost, then the reduction in the order of its loops,
/// then a tile's width of lanes. `None` where a dimension is not indexed by one variable.
fn panel_layout(block: &Block, roles: &Roles, width: i64, channel_block: Option<i64>) -> Option<Vec<Piece>> {
    let vars: Vec<usize> = roles
        .panel
        .indices
        .iter()
        .map(|e| block.iters.iter().position(|i| e.as_var() == Some(i.var)))
        .collect::<Option<_>>()?;
    let dim_of = |n: usize| vars.iter().position(|&v| v == n);
    let lane_dim = dim_of(roles.lane)?;
    let reduce = iters_of(block, IterKind::Reduce);
    let open = |dim| Piece { dim, factor: None };
    let mut pieces: Vec<Piece> =
        (0..vars.len()).filter(|&d| d != lane_dim && !reduce.contains(&vars[d])).map(open).collect();
    pieces.push(open(lane_dim));
    pieces.extend(reduce.iter().filter_map(|&n| dim_of(n)).map(open));
    if let (Some(factor), Some(dim)) = (channel_block, reduce.first().and_then(|&n| dim_of(n))) {
        pieces.push(Piece { dim, factor: Some(factor) });
    }
    pieces.push(Piece { dim: lane_dim, factor: Some(width) });
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::CodegenKind;

    fn tile(machine: &str, lanes: i64, rows: i64, vectors: i64) -> (i64, i64) {
        let target = Target::parse(machine, CodegenKind::Llvm).expect("a known machine");
        let tile = Tile::choose(&target, lanes, Some(rows), Some(vectors));
        (tile.rows, tile.vectors)
    }

    #[test]
    fn tiles_hide_the_latency_fit_the_registers_and_divide_the_rows() {
        for (rows, vectors) in [(56, 4), (28, 8), (14, 16), (7, 32), (112, 2)] {
            let (r, v) = tile("x86-64-v4", 16, rows, vectors);
            assert_eq!(rows % r, 0, "{rows} rows in tiles of {r}");
            // A latency of 4 on two ports takes 8 independent products, and some more for the loads' latency.
            assert!(r * v >= 14 && r * v + v < 32, "{r} x {v}");
        }
        let (r, v) = tile("x86-64-v3", 8, 56, 8);
        assert!(r * v + v < 16 && r * v >= 8, "{r} x {v}");
    }
}
