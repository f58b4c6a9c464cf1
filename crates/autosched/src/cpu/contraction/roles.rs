//! The parts that a contraction's variables and operands play.

use std::fmt;

use tilewright_te::schedule::Piece;
use tilewright_te::simplify::Simplifier;
use tilewright_te::{Block, IterKind};

use crate::context::Context;
use crate::cpu::tiled::BlockedSteps;
use crate::decisions::Candidate;
use crate::model::order::Extents;
use crate::model::tasks::shares_rows;
use crate::model::tile::{Tile, Traffic, loads_rows_ahead};
use crate::pattern::{
    AccessInfo, Stride, bytes_of, constant_product, domain_simplifier, is_window, iters_of, last_of_several,
    pieces_of, plain_variables, stride,
};

/// Steps of the innermost loop up to which it is unrolled where the code generator gains by that.
const UNROLLED_STEPS: i64 = 8;

/// Rows that an open number of them is taken for: those of a batch or sequence of medium size.
const ASSUMED_ROWS: i64 = 128;

/// The parts a contraction's variables, known by their positions, and operands play.
#[derive(Clone, Debug)]
pub(super) struct Roles {
    /// The lanes' variable.
    pub(super) lane: usize,
    /// The rows' variable, if there is one.
    pub(super) row: Option<usize>,
    /// The operand with consecutive elements along the lanes.
    pub(super) panel: AccessInfo,
    /// The other operand.
    pub(super) broadcast: AccessInfo,
    /// Whether the panel has to be laid out anew.
    pub(super) pack: bool,
}

impl Roles {
    /// The roles of a block's operands, given the layout of its results.
    pub(super) fn of(
        context: &Context<'_>,
        block: &Block,
        operands: [AccessInfo; 2],
        layout: Option<&[Piece]>,
    ) -> Option<Roles> {
        let simplifier = domain_simplifier(context.func, block);
        let spatial = iters_of(block, IterKind::Spatial);
        let depends = |a: &AccessInfo, n: usize| a.uses(block.iters[n].var);
        let along_memory = match layout.and_then(|p| p.last()).filter(|p| p.factor.is_some()) {
            Some(piece) => *spatial.get(piece.dim)?,
            None => last_of_several(block, &spatial)?,
        };
        // Where the operand along memory is no panel (the image of a convolution with a stride), a constant one
        // makes good for storing each result by itself.
        let others = spatial.iter().rev().copied().filter(|&n| n != along_memory);
        for lane in std::iter::once(along_memory).chain(others) {
            if block.iters[lane].extent.as_int() == Some(1) {
                continue;
            }
            for (panel, broadcast) in [(&operands[1], &operands[0]), (&operands[0], &operands[1])] {
                if !depends(panel, lane) || depends(broadcast, lane) {
                    continue;
                }
                let consecutive = context.layout(panel.buffer).is_none()
                    && stride(context.func, &simplifier, panel, block.iters[lane].var) == Stride::Constant(1);
                let constant = context.constant_input(panel.buffer).is_some();
                let row = best_row(block, lane, panel, broadcast);
                let pack = constant || !consecutive;
                let is_plain = || plain_variables(block, panel).is_some();
                if (pack && !is_plain()) || (lane != along_memory && !constant) {
                    continue;
                }
                return Some(Roles { lane, row, panel: panel.clone(), broadcast: broadcast.clone(), pack });
            }
        }
        None
    }

    /// Data-parallel variables that the panel does not depend on: their results share it.
    fn sharing(&self, block: &Block) -> Vec<usize> {
        let shares = |n: &usize| !self.panel.uses(block.iters[*n].var);
        iters_of(block, IterKind::Spatial).into_iter().filter(shares).collect()
    }

    /// Variables, besides that of the tile's rows, that are rows and no batches: the panel does not depend on them. Of those before the
    /// lanes' the last, as long as the rows inside of them are so few that to read these again for each panel is less than to read the
    /// panels again.
    pub(super) fn rows_around(&self, block: &Block, tile: &Tile) -> Vec<usize> {
        let mut inside = Some(1i64);
        let mut found = Vec::new();
        for n in self.sharing(block).into_iter().rev() {
            if Some(n) != self.row {
                if n < self.lane && inside.is_none_or(|rows| rows >= tile.vectors * tile.lanes) {
                    break;
                }
                found.push(n);
            }
            inside = inside.zip(block.iters[n].extent.as_int()).and_then(|(rows, n)| rows.checked_mul(n));
        }
        found.reverse();
        found
    }

    /// Bytes of the panel's operand, and of the other and the result together, if they are known.
    fn moved(&self, context: &Context<'_>, block: &Block) -> Option<(i64, i64)> {
        let bytes = |buffer| bytes_of(context.func, buffer);
        let image = bytes(self.broadcast.buffer)? + bytes(block.body[0].buffer)?;
        Some((bytes(self.panel.buffer)?, image))
    }

    /// Whether threads share rows rather than panels.
    pub(super) fn shares_rows(&self, context: &Context<'_>, block: &Block) -> bool {
        self.moved(context, block).is_some_and(|(weights, image)| shares_rows(context.target, weights, image))
    }

    /// What a step of a tile loads.
    pub(super) fn traffic(&self, context: &Context<'_>, block: &Block) -> Traffic {
        let product = |of: Vec<usize>| constant_product(of.iter().map(|&n| &block.iters[n].extent));
        let (sharing, steps) = (product(self.sharing(block)), product(iters_of(block, IterKind::Reduce)));
        let row_lanes = self.row_lanes(context, block);
        Traffic { per_row: 1, row_lanes, per_vector: 1, per_accumulator: 0, steps, sharing, windows: None }
    }

    /// Steps whose elements of a row are one load: those that are unrolled, where the elements follow one another and multiply-adds
    /// take lanes.
    fn row_lanes(&self, context: &Context<'_>, block: &Block) -> i64 {
        let lanes = i64::from(context.target.element_lanes(4));
        if lanes == 1 {
            return 1;
        }
        let steps = iters_of(block, IterKind::Reduce);
        let (Some(BlockedSteps { factor, unroll: true }), _) = walk(context, block, &steps, None) else {
            return 1;
        };
        let follows = || {
            let first = block.iters[steps[0]].var;
            let simplifier = domain_simplifier(context.func, block);
            context.stride(&simplifier, &self.broadcast, first) == Stride::Constant(1)
        };
        if factor % lanes == 0 && follows() { lanes } else { 1 }
    }

    /// What the loops around tiles go over, if all of it is known. Of the rows it may be open how many they are: then they are taken for
    /// [`ASSUMED_ROWS`], or for as many as there can be.
    pub(super) fn extents(&self, context: &Context<'_>, block: &Block, tile: &Tile) -> Option<Extents> {
        let row = self.row?;
        let extent = |n: usize| block.iters[n].extent.as_int();
        let panels_bytes = bytes_of(context.func, self.panel.buffer)?;
        let rows = self.rows_around(block, tile);
        let spatial = iters_of(block, IterKind::Spatial);
        let others = spatial.into_iter().filter(|&n| n != self.lane && n != row);
        let (rows, batches): (Vec<usize>, Vec<usize>) = others.partition(|n| rows.contains(n));
        let around: Vec<i64> =
            rows.into_iter().map(extent).filter(|&n| n != Some(1)).collect::<Option<_>>()?;
        let is_shared = batches.iter().all(|n| self.sharing(block).contains(n));
        let batches = constant_product(batches.iter().map(|&n| &block.iters[n].extent))?;
        let reduce = iters_of(block, IterKind::Reduce);
        let depth = constant_product(reduce.iter().map(|&n| &block.iters[n].extent))?;
        let in_blocks = context.largest_block(block, block.iters[*reduce.first()?].var);
        let rows_apart = !is_window(block, &self.broadcast);
        let open = extent(row).is_none();
        let bound = || Simplifier::for_sizes(context.func).upper_bound(&block.iters[row].extent);
        let most = if open { bound() } else { None };
        let assumed = most.map_or(ASSUMED_ROWS, |most| most.clamp(1, ASSUMED_ROWS));
        let rows_bytes = match open {
            true if around.is_empty() && rows_apart => 4 * depth * assumed,
            true => return None,
            false => bytes_of(context.func, self.broadcast.buffer)? / batches.max(1),
        };
        Some(Extents {
            batches,
            parts: 1,
            rows: around.into_iter().chain([extent(row).unwrap_or(assumed)]).collect(),
            open,
            vectors: pieces_of(extent(self.lane)?, tile.lanes),
            depth,
            run: in_blocks.map_or(depth, |factor| tile.rows * factor),
            continues: in_blocks.is_some() && rows_apart,
            rows_apart,
            row_distance: self.row_distance(context, block, row).filter(|_| rows_apart),
            panels_bytes: panels_bytes / if is_shared { 1 } else { batches.max(1) },
            rows_bytes,
            shares_rows: self.shares_rows(context, block),
        })
    }

    /// Bytes of the broadcast operand from one row to the next, where known.
    fn row_distance(&self, context: &Context<'_>, block: &Block, row: usize) -> Option<i64> {
        let simplifier = domain_simplifier(context.func, block);
        match context.stride(&simplifier, &self.broadcast, block.iters[row].var) {
            Stride::Constant(n) => {
                let bytes = context.func.buffers[self.broadcast.buffer].dtype.bytes() as i64;
                n.checked_abs()?.checked_mul(bytes)
            }
            Stride::Zero | Stride::Unknown => None,
        }
    }
}

/// The variable that the broadcast operand depends on and the panel does not: the last such one with more
/// than one value.
fn best_row(block: &Block, lane: usize, panel: &AccessInfo, broadcast: &AccessInfo) -> Option<usize> {
    let fits = |n: &usize| {
        let var = block.iters[*n].var;
        *n != lane && broadcast.uses(var) && !panel.uses(var)
    };
    let rows = iters_of(block, IterKind::Spatial).into_iter().filter(fits);
    rows.rev().find(|&n| block.iters[n].extent.as_int() != Some(1))
}

/// Reduction variables of a block by their positions, outermost first.
#[derive(Clone, Debug)]
pub(super) struct Steps(pub(super) Vec<usize>);

/// `0-2-1`: the reduction variables by their numbers among themselves.
impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.0.iter().min().copied().unwrap_or(0);
        let numbers: Vec<String> = self.0.iter().map(|n| (n - first).to_string()).collect();
        f.write_str(&numbers.join("-"))
    }
}

/// Orders of a tile's steps: as computed, or the first variable (the channels of a convolution) inside the
/// others (its window).
pub(super) fn step_orders(block: &Block) -> Vec<Candidate<Steps>> {
    let natural = iters_of(block, IterKind::Reduce);
    let candidate = |steps: Vec<usize>, inside: bool| {
        let features = vec![("steps.first-inside", f64::from(u8::from(inside)))];
        Candidate { value: Steps(steps), cost: 1.0, features }
    };
    let mut rotated = natural.clone();
    if !rotated.is_empty() {
        rotated.rotate_left(1);
    }
    let several = |&&n: &&usize| block.iters[n].extent.as_int() != Some(1);
    let differs = natural.iter().filter(several).count() > 1;
    let mut orders = vec![candidate(natural, false)];
    orders.extend(differs.then(|| candidate(rotated, true)));
    orders
}

/// How the first variable of the reduction is walked in blocks, and the positions of variables that are unrolled; `steps` are
/// the variables, outermost first; of a tile that is not known yet it is left open how many steps are unrolled.
pub(super) fn walk(
    context: &Context<'_>,
    data: &Block,
    steps: &[usize],
    tile: Option<&Tile>,
) -> (Option<BlockedSteps>, Vec<usize>) {
    let extent = |n: usize| data.iters[n].extent.as_int();
    let divides = |n: usize, factor: i64| extent(n).is_some_and(|n| n >= factor && n % factor == 0);
    // A row's elements of as many steps as a vector has lanes may be one load.
    let joins = context.target.element_lanes(4) > 1;
    let unrolls = !context.target.codegen.carries_in_place || joins;
    let loads_ahead = !joins || tile.is_none_or(|tile| loads_rows_ahead(context.target, tile));
    let parts = if loads_ahead { [UNROLLED_STEPS, UNROLLED_STEPS / 2] } else { [UNROLLED_STEPS / 2; 2] };
    let Some(&first) = iters_of(data, IterKind::Reduce).first() else { return (None, Vec::new()) };
    // The broadcast operand's blocked dimension, walked in blocks so that its elements are consecutive.
    let var = data.iters[first].var;
    let block = context.largest_block(data, var);
    if let Some(factor) = block.filter(|&factor| factor > 1 && divides(first, factor)) {
        let follow = joins && context.blocks_follow(data, var);
        let is_run = |part: &i64| if follow { divides(first, *part) } else { factor % part == 0 };
        let factor = parts.into_iter().filter(|_| joins).find(is_run).unwrap_or(factor);
        return (Some(BlockedSteps { factor, unroll: unrolls && factor <= UNROLLED_STEPS }), Vec::new());
    }
    match steps {
        // Vectors of steps, in whose loop tiles can ask for parts of the next panel.
        [only] if !unrolls => {
            let factor = i64::from(context.target.lanes(4));
            (divides(*only, factor).then_some(BlockedSteps { factor, unroll: false }), Vec::new())
        }
        _ if !unrolls => (None, Vec::new()),
        // A single variable has its elements in order in any blocks.
        [only] => {
            let factor = parts.into_iter().find(|&factor| divides(*only, factor));
            (factor.map(|factor| BlockedSteps { factor, unroll: true }), Vec::new())
        }
        [.., last] if extent(*last).is_some_and(|n| (1..=UNROLLED_STEPS).contains(&n)) => (None, vec![*last]),
        _ => (None, Vec::new()),
    }
}

/// The layout of an operand in the order in which tiles read it: what is around the reduction outermost, then the reduction
/// in the order of its loops, then a tile's `width` of the variable `along`. `None` where a dimension is indexed by neither one variable
/// nor a constant.
pub(super) fn packed_layout(
    block: &Block,
    operand: &AccessInfo,
    along: usize,
    steps: &Steps,
    width: i64,
    blocked_steps: Option<i64>,
) -> Option<Vec<Piece>> {
    let vars = plain_variables(block, operand)?;
    let dim_of = |n: usize| vars.iter().position(|&v| v == Some(n));
    let along = dim_of(along)?;
    let reduce = iters_of(block, IterKind::Reduce);
    let is_step = |d: usize| vars[d].is_some_and(|n| reduce.contains(&n));
    let open = |dim| Piece { dim, factor: None };
    let mut pieces: Vec<Piece> = (0..vars.len()).filter(|&d| d != along && !is_step(d)).map(open).collect();
    pieces.push(open(along));
    pieces.extend(steps.0.iter().filter_map(|&n| dim_of(n)).map(open));
    if let (Some(factor), Some(dim)) = (blocked_steps, reduce.first().and_then(|&n| dim_of(n))) {
        pieces.push(Piece { dim, factor: Some(factor) });
    }
    pieces.push(Piece { dim: along, factor: Some(width) });
    Some(pieces)
}
