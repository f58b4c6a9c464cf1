//! Windows: reductions whose results, and what they read, lie consecutive along a data-parallel variable.
//!
//! Depthwise convolution and pooling are of this kind, and sums over the outer axes of a tensor. The variable
//! gives the lanes; neighbouring results along another one make the rows of a register tile, so that
//! the chains of accumulation are many and what the rows share (weights) is loaded once. Short windows
//! are unrolled, which lets overlapping ones share their loads.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Piece, Schedule, ScheduleError};
use tilewright_te::{Block, Func, IterKind};

use crate::context::Context;
use crate::cpu::elementwise::grain_of;
use crate::cpu::padding::{PaddedInput, PaddingBlock};
use crate::cpu::tasks::{Grain, Tasks};
use crate::cpu::tiled::{LoopsAround, TiledBlock, extents};
use crate::decisions::{Candidate, Chooser};
use crate::layouts::Relayout;
use crate::model::machine::MAX_UNROLLED_STEPS;
use crate::model::order::Order;
use crate::model::tasks::rounds_of;
use crate::model::tile::{self, Outputs, Tile, Traffic, Windows, tiles};
use crate::packing::pack_constants;
use crate::pattern::{
    AccessInfo, Stride, constant_product, domain_simplifier, extents_of, is_cheap, iterations, iters_of,
    last_of_several, loads, pieces_of, stores_at_its_variables, walks,
};
use crate::refusal::Refusal;
use crate::rule::Packing;
use crate::strategy::{Domain, list};

/// What is done to a window with its epilogue and what pads its input.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// What it computes.
    pub domain: Domain,
    /// Its register tiles and the loops around them.
    pub tiled: TiledBlock,
    /// The block that stores the tiles: the epilogue, or the copy out of registers that is made where there is none.
    pub store: String,
    /// Constants whose lanes become consecutive.
    pub packings: Vec<Packing>,
    /// How its input is padded in the tasks, if it is.
    pub padding: Option<PaddedInput>,
    /// The tasks, of the loops around tiles or pieces of padded input.
    pub tasks: Tasks,
}

/// `pool: f32[1, 64, 28, 28 | 3, 3], tile 7x1 of 16 lanes of 1, ..., stored by out, tasks loops 3`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {}", self.tiled.block, self.domain, self.tiled)?;
        if !self.packings.is_empty() {
            write!(f, ", constant {}", list(&self.packings))?;
        }
        self.padding.iter().try_for_each(|padding| write!(f, ", {padding}"))?;
        write!(f, ", stored by {}, tasks {}", self.store, self.tasks)
    }
}

/// A window that is being planned.
struct Window<'a> {
    context: Context<'a>,
    block: &'a Block,
    /// The lanes' variable.
    lane: usize,
    /// The rows' variable, if there is one.
    row: Option<usize>,
    /// Lanes of a vector.
    lanes: i64,
    /// What it reads besides its own results.
    reads: Vec<AccessInfo>,
    /// Whether its steps are short: one that computes an elementary function is long enough by itself, and must not be repeated in
    /// the code.
    is_short: bool,
}

/// Plans a reduction along whose results lanes can run, with its epilogue.
pub(crate) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let layout = context.stored_layout(block);
    let (lane, lanes, most) = lanes_of(context, block, layout)?;
    let mut layouts = context.layouts.clone();
    let mut packings = Vec::new();
    if layout.is_some() {
        packings = pack_constants(context, &mut layouts, block, lane, most);
    }
    let window = Window::of(Context { layouts: &layouts, ..*context }, block, lane, lanes)?;
    let tiled = window.decide_tiles(chooser)?;
    let loops = tiled.loops_around(block);
    let dim = layout.and_then(|pieces| pieces.last()).map(|piece| piece.dim);
    let rounds = dim.and_then(|dim| rounds_of(context.target, &all_extents(block), dim));
    let rounds = rounds.filter(|&n| loops.in_order().1 + 1 == n);
    let padding = match dim.and_then(|dim| PaddingBlock::of(context, block, &window.reads, dim)) {
        Some(padding) => padding.decide(context, block, &tiled, rounds.is_some(), chooser)?,
        None => None,
    };
    let tasks = window.decide_tasks(&tiled, &loops, padding.as_ref(), rounds, chooser)?;
    let new_store = || context.new_block(&format!("{}_write", block.name));
    let store = tiled.epilogue.clone().unwrap_or_else(new_store);
    Ok(Strategy { domain: Domain::of(context.func, block), tiled, store, packings, padding, tasks })
}

/// Cycles of a strategy by the model: those of its tiles, and of the copies of what it pads.
pub(crate) fn cost(context: &Context<'_>, strategy: &Strategy) -> Option<f64> {
    let TiledBlock { block, lane, tile, .. } = &strategy.tiled;
    let block = context.func.block(block)?;
    let mut layouts = context.layouts.clone();
    strategy.packings.iter().for_each(|packing| layouts.choose(packing.relayout.clone()));
    let window = Window::of(Context { layouts: &layouts, ..*context }, block, *lane, tile.lanes).ok()?;
    let each = tile::cost(context.target, &window.outputs(), *tile);
    let tiles = each * iterations(block)? as f64 / tile.lanes as f64;
    let padded = strategy.padding.as_ref().map(|padding| padding.cost(context, block, &strategy.tiled));
    Some(tiles + padded.unwrap_or(Some(0.0))?)
}

/// The extents of all variables, where known.
fn all_extents(block: &Block) -> Vec<Option<i64>> {
    block.iters.iter().map(|i| i.extent.as_int()).collect()
}

/// The lanes' variable, the lanes of a vector, and the most that there could be.
fn lanes_of(
    context: &Context<'_>,
    block: &Block,
    layout: Option<&[Piece]>,
) -> Result<(usize, i64, i64), Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("window", &block.name, reason));
    if !block.is_commutative() {
        return refuse("not a reduction whose steps may run in any order");
    }
    if block.body.len() != 1 {
        return refuse("it has several results");
    }
    if !stores_at_its_variables(block) {
        return refuse("its results are not stored at its variables");
    }
    if !context.is_as_computed(block) {
        return refuse("the block is scheduled already");
    }
    if !context.func.is_sole_writer(block) {
        return refuse("another block writes what it writes");
    }
    let spatial = iters_of(block, IterKind::Spatial);
    let innermost = layout.and_then(|pieces| pieces.last());
    let lane = match innermost {
        Some(piece) => spatial.get(piece.dim).copied(),
        None => last_of_several(block, &spatial),
    };
    let Some(lane) = lane else { return refuse("a single result") };
    let of_result = innermost.and_then(|piece| piece.factor);
    let of_operands = context.largest_block(block, block.iters[lane].var);
    let blocks = of_result.into_iter().chain(of_operands);
    let most = blocks.fold(i64::from(context.target.lanes(4)), i64::min);
    let Some(extent) = block.iters[lane].extent.as_int() else { return refuse("an open number of lanes") };
    match (2..=most).rev().find(|n| extent % n == 0 && n.count_ones() == 1) {
        Some(lanes) => Ok((lane, lanes, most)),
        None => refuse("no vector divides the lanes"),
    }
}

impl<'a> Window<'a> {
    fn of(context: Context<'a>, block: &'a Block, lane: usize, lanes: i64) -> Result<Window<'a>, Refusal> {
        let accumulator = block.body[0].buffer;
        let reads: Vec<AccessInfo> = loads(block).into_iter().filter(|a| a.buffer != accumulator).collect();
        let simplifier = domain_simplifier(context.func, block);
        let var = block.iters[lane].var;
        let strides: Vec<Stride> = reads.iter().map(|a| context.stride(&simplifier, a, var)).collect();
        if !walks(&strides) {
            let reason = "what it reads does not lie consecutive along its results";
            return Err(Refusal::new("window", &block.name, reason));
        }
        let is_short = block.body.iter().all(|store| is_cheap(&store.value));
        // An open batch, which lies before the lanes, is often one.
        let is_row = |&n: &usize| match block.iters[n].extent.as_int() {
            Some(extent) => is_short && n != lane && extent != 1,
            None => is_short && n > lane,
        };
        let row = iters_of(block, IterKind::Spatial).into_iter().rfind(is_row);
        Ok(Window { context, block, lane, row, lanes, reads, is_short })
    }

    /// The outputs that tiles are compared for.
    fn outputs(&self) -> Outputs {
        let extent = |n: usize| self.block.iters[n].extent.as_int();
        Outputs {
            lanes: self.lanes,
            rows: self.row.map_or(Some(1), extent),
            vectors: extent(self.lane).map(|n| n / self.lanes),
            depth: constant_product(
                iters_of(self.block, IterKind::Reduce).iter().map(|&n| &self.block.iters[n].extent),
            ),
            traffic: self.traffic(),
        }
    }

    /// Decides on the tile, on which of its steps are unrolled, and on the order of the loops around it.
    fn decide_tiles(&self, chooser: &mut Chooser<'_>) -> Result<TiledBlock, Refusal> {
        let (block, name, outputs) = (self.block, &self.block.name, self.outputs());
        let tile = chooser.decide(name, "tile", &tiles(self.context.target, &outputs))?;
        let steps = iters_of(block, IterKind::Reduce);
        let n_unrolled = match self.is_short {
            true => chooser.decide(name, "unroll", &unrolled_loops(block, &steps, &tile))?,
            false => 0,
        };
        let depth = constant_product(steps.iter().map(|&n| &block.iters[n].extent));
        let orders = Order::of_tiles(&tile, outputs.rows, outputs.vectors, depth);
        let order = chooser.decide(name, "order", &orders)?;
        let spatial = iters_of(block, IterKind::Spatial).into_iter();
        Ok(TiledBlock {
            block: name.clone(),
            epilogue: self.context.epilogue_of(block).map(|epilogue| epilogue.name.clone()),
            lane: self.lane,
            row: self.row,
            tile,
            order,
            // Dimensions before the lanes' are batches.
            rows: spatial.filter(|&n| n > self.lane && Some(n) != self.row).collect(),
            unrolled: steps[steps.len() - n_unrolled..].to_vec(),
            steps,
            blocked_steps: None,
        })
    }

    /// Decides on the size of tasks.
    fn decide_tasks(
        &self,
        tiled: &TiledBlock,
        loops: &LoopsAround,
        padding: Option<&PaddedInput>,
        rounds: Option<usize>,
        chooser: &mut Chooser<'_>,
    ) -> Result<Tasks, Refusal> {
        let Some(task) = grain_of(&self.block.name, self.context.target, iterations(self.block), chooser)?
        else {
            return Ok(Tasks::default());
        };
        let mut outer = extents(&loops.in_order().0);
        let Tile { rows, vectors, lanes } = tiled.tile;
        let steps = extents_of(self.block, IterKind::Reduce);
        let depth = steps.iter().try_fold(1i64, |n, extent| n.checked_mul((*extent)?));
        let mut elements = depth.map(|depth| depth * (rows * vectors * lanes));
        if let Some(padding) = padding {
            let tiles = if padding.rows_inside { outer.pop().flatten() } else { None };
            let pieces = outer.pop().flatten().map(|n| pieces_of(n, padding.iterations));
            outer.push(pieces);
            outer.extend(padding.tiles.map(|n| tiles.map(|tiles| pieces_of(tiles, n))));
            let inside = padding.tiles.or(tiles).unwrap_or(1);
            elements = elements.map(|n| n * (padding.iterations * inside));
        }
        let grain = Grain { elements, task };
        let in_blocks =
            self.context.stored_layout(self.block).is_some() && loops.rows.len() > loops.n_outside;
        let open = in_blocks.then(|| Tasks::of_open_rows(&outer, loops.in_order().1, grain)).flatten();
        Ok(open.unwrap_or_else(|| Tasks::plan(&outer, rounds, grain)))
    }

    /// What a step of the tile loads.
    fn traffic(&self) -> Traffic {
        let depends = |a: &AccessInfo, n: usize| a.uses(self.block.iters[n].var);
        let mut traffic = Traffic::default();
        for read in &self.reads {
            match (self.row.is_some_and(|n| depends(read, n)), depends(read, self.lane)) {
                (true, true) => traffic.per_accumulator += 1,
                (true, false) => traffic.per_row += 1,
                (false, true) => traffic.per_vector += 1,
                (false, false) => {}
            }
        }
        let Some(row) = self.row else { return traffic };
        let mut reads = self.reads.iter().filter(|read| depends(read, row) && depends(read, self.lane));
        traffic.windows = reads.find_map(|read| windows_along(self.context.func, self.block, read, row));
        traffic
    }
}

/// How many of a window's loops, the innermost first, are unrolled for a tile: as many as [`MAX_UNROLLED_STEPS`]
/// allows, or fewer.
fn unrolled_loops(block: &Block, reduce: &[usize], tile: &Tile) -> Vec<Candidate<usize>> {
    let mut steps = tile.rows * tile.vectors;
    let mut counts = vec![(0, steps)];
    for (count, &n) in reduce.iter().rev().enumerate() {
        let extent = block.iters[n].extent.as_int().filter(|e| steps * e <= MAX_UNROLLED_STEPS);
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

/// The windows that rows read of an operand, if they lie along them and their extents are known.
fn windows_along(func: &Func, block: &Block, read: &AccessInfo, row: usize) -> Option<Windows> {
    let simplifier = domain_simplifier(func, block);
    let index = read.indices.iter().find(|index| index.uses(block.iters[row].var))?;
    let index = simplifier.linear(index);
    let (stride, rest) = index.affine_in(block.iters[row].var)?;
    let steps = iters_of(block, IterKind::Reduce);
    let (taps, dilation) = steps.iter().find_map(|&n| {
        let (dilation, _) = rest.affine_in(block.iters[n].var).filter(|(times, _)| *times != 0)?;
        Some((n, dilation))
    })?;
    let others = steps.iter().filter(|&&n| n != taps && read.uses(block.iters[n].var));
    let series = constant_product(others.map(|&n| &block.iters[n].extent))?;
    Some(Windows { stride, dilation, taps: block.iters[taps].extent.as_int()?, series: series.max(1) })
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        let padding = self.padding.iter().map(|padding| &padding.block);
        [&self.tiled.block, &self.store].into_iter().chain(padding).cloned().collect()
    }

    /// Schedules the blocks.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError> {
        let around = self.tiled.apply(schedule)?;
        let mut outer = around.loops;
        if let Some(padding) = &self.padding {
            padding.apply(schedule, &mut outer)?;
        }
        self.tasks.apply(schedule, &outer)?;
        Ok(vec![around.registers])
    }
}
