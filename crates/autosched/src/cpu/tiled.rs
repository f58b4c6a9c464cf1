//! Register tiles: a reduction's results held in registers over all its steps.
//!
//! A tile is rows times vectors of one block's results. Its loops are those of the epilogue, split; the
//! reduction is computed inside them, its steps around the tile, so that every accumulator stays in a register
//! from its first value until the epilogue has stored it. This is the micro-kernel of Goto and van de Geijn
//! ("Anatomy of High-Performance Matrix Multiplication", 2008) held over the whole depth; the rules of
//! contractions and of windows choose what goes into it.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::{Block, Expr, IterKind, Scope};

use crate::layouts::Relayout;
use crate::model::order::Order;
use crate::model::tile::Tile;
use crate::pattern::{iters_of, pieces_of};
use crate::strategy::list;

/// A block computed by register tiles. Variables of the block are known by their positions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TiledBlock {
    /// The reduction.
    pub block: String,
    /// The data-parallel block that reads its results, if that is to be computed on the registers.
    pub epilogue: Option<String>,
    /// The lanes' variable.
    pub lane: usize,
    /// The rows' variable, if there is one.
    pub row: Option<usize>,
    /// The tile.
    pub tile: Tile,
    /// The order of the loops around it.
    pub order: Order,
    /// The other variables that are rows: all the rest are batches.
    pub rows: Vec<usize>,
    /// The reduction variables, outermost first.
    pub steps: Vec<usize>,
    /// How the first reduction variable of the block is walked in blocks, the innermost of the steps.
    pub blocked_steps: Option<BlockedSteps>,
    /// Reduction variables that are unrolled, around the rows.
    pub unrolled: Vec<usize>,
}

/// A reduction variable that is walked in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockedSteps {
    /// Steps of a block.
    pub factor: i64,
    /// Whether the steps of a block are unrolled.
    pub unroll: bool,
}

/// `tile 7x4 of 16 lanes of 1, rows 3 2, panel-stays, steps 4 5 6 by 8`.
impl fmt::Display for TiledBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tile {} of {} lanes of {}", self.tile, self.tile.lanes, self.lane)?;
        let rows: Vec<usize> = self.row.iter().chain(&self.rows).copied().collect();
        if !rows.is_empty() {
            write!(f, ", rows of {}", list(&rows))?;
        }
        write!(f, ", {}, steps of {}", self.order, list(&self.steps))?;
        if let Some(BlockedSteps { factor, unroll }) = self.blocked_steps {
            write!(f, " by {factor}{}", if unroll { " unrolled" } else { "" })?;
        }
        if !self.unrolled.is_empty() {
            write!(f, ", {} unrolled", list(&self.unrolled))?;
        }
        Ok(())
    }
}

/// A loop around a tile, before it is there.
#[derive(Clone, Debug)]
pub(crate) struct AroundLoop {
    /// The variable that it counts in.
    pub(crate) iter: usize,
    /// Iterations.
    pub(crate) extent: Expr,
}

/// The loops around a tile, before they are there.
#[derive(Clone, Debug)]
pub(crate) struct LoopsAround {
    /// Loops over batches, outermost first.
    pub(crate) batches: Vec<AroundLoop>,
    /// Loops over rows, those inside of a tile aside, outermost first.
    pub(crate) rows: Vec<AroundLoop>,
    /// How many of these are around the loop over panels.
    pub(crate) n_outside: usize,
    /// The loop over panels.
    pub(crate) panels: AroundLoop,
}

/// Names of the loops over the data-parallel variables of a tiled block, in parts.
pub(crate) struct SplitLoops {
    /// Loops over batches, outermost first.
    pub(crate) batches: Vec<String>,
    /// Loops over rows, those inside of a tile aside, outermost first.
    pub(crate) rows: Vec<String>,
    /// How many of these are around the loop over panels.
    pub(crate) n_outside: usize,
    /// The loops over panels, over a tile's vectors, and over their lanes.
    pub(crate) lane: Vec<String>,
    /// The loop over a tile's rows, if there is one.
    pub(crate) tile_rows: Option<String>,
}

/// The loops around a tile, outermost first, and the block that stores its results.
#[derive(Clone, Debug)]
pub(crate) struct AroundTile {
    /// Names of the loops.
    pub(crate) loops: Vec<String>,
    /// Which of them goes over tiles of the lanes: each iteration has its own panel.
    pub(crate) panels: String,
    /// The loops over steps that stay loops, outermost first.
    pub(crate) steps: Vec<String>,
    /// The loop over the vectors of a step.
    pub(crate) vectors: String,
    /// The epilogue, or the copy out of the registers where there is none.
    pub(crate) store: String,
    /// The layout of the tile's registers.
    pub(crate) registers: Relayout,
}

/// How a block's variables are numbered, kind by kind.
struct Variables {
    spatial: Vec<usize>,
    first_reduce: Option<usize>,
    /// Position of the lanes' variable among the data-parallel ones.
    lane_dim: usize,
    /// Extent of the rows' own variable, where known.
    n_rows: Option<i64>,
}

impl LoopsAround {
    /// All of them, outermost first, with the position of the one over panels.
    pub(crate) fn in_order(&self) -> (Vec<&AroundLoop>, usize) {
        let (outside, inside) = self.rows.split_at(self.n_outside);
        let loops = self.batches.iter().chain(outside).chain([&self.panels]).chain(inside).collect();
        (loops, self.batches.len() + self.n_outside)
    }
}

/// The extents of loops, where known.
pub(crate) fn extents(loops: &[&AroundLoop]) -> Vec<Option<i64>> {
    loops.iter().map(|l| l.extent.as_int()).collect()
}

impl TiledBlock {
    /// The order of loops over batches, by their variables. Those behind the rows, as groups of channels are in the products of Winograd's
    /// algorithm, come first: blocks before and after have threads share channels, so each thread finds what it has written.
    fn batch_order(&self, iter: usize) -> bool {
        self.row.is_none_or(|row| iter < row)
    }

    /// Tiles of the rows' loop itself that stay, and iterations of the loop of rows around it, given the rows of that loop. Of an open
    /// number of rows neither: [`TiledBlock::block_rows`].
    fn staying(&self, n_rows: Option<i64>) -> (Option<i64>, Option<i64>) {
        let n_tiles = n_rows.map(|n| pieces_of(n, self.tile.rows));
        match self.order {
            Order::BlockStays(tiles) if n_tiles.is_some_and(|n| tiles <= n) => (Some(tiles), None),
            Order::BlockStays(tiles) => (None, n_tiles.map(|n| tiles / n)),
            Order::PanelStays | Order::RowsStay => (None, None),
        }
    }

    /// How many of so many loops over rows are around that over panels; `around` is the position of the one whose iterations stay.
    fn n_outside(&self, n_rows: usize, around: Option<usize>) -> usize {
        match (self.order, around) {
            (Order::PanelStays, _) => 0,
            (Order::RowsStay, _) => n_rows,
            (Order::BlockStays(_), Some(at)) => at + 1,
            (Order::BlockStays(_), None) => n_rows.saturating_sub(1),
        }
    }

    /// The loops that there will be around its tiles.
    pub(crate) fn loops_around(&self, block: &Block) -> LoopsAround {
        let loop_of = |iter: usize, extent: Expr| AroundLoop { iter, extent };
        let pieces = |iter: usize, unit: i64| match block.iters[iter].extent.as_int() {
            Some(n) => Expr::int(pieces_of(n, unit)),
            None => block.iters[iter].extent.clone().ceil_div(unit),
        };
        let n_rows = self.row.and_then(|row| block.iters[row].extent.as_int());
        let (tiles_stay, iterations_stay) = self.staying(n_rows);
        let spatial = iters_of(block, IterKind::Spatial);
        let others = spatial.into_iter().filter(|&n| n != self.lane && Some(n) != self.row);
        let (rows, mut batches): (Vec<usize>, Vec<usize>) = others.partition(|n| self.rows.contains(n));
        batches.sort_by_key(|&n| self.batch_order(n));
        let whole = |n: usize| loop_of(n, block.iters[n].extent.clone());
        let batches = batches.into_iter().map(whole).collect();
        let mut rows: Vec<AroundLoop> = rows.into_iter().map(whole).collect();
        let around = rows.iter().rposition(|l| l.extent.as_int() != Some(1)).zip(iterations_stay);
        if let Some((at, n)) = around {
            let iter = rows[at].iter;
            rows.splice(at..=at, [loop_of(iter, pieces(iter, n)), loop_of(iter, Expr::int(n))]);
        }
        if let Some(row) = self.row {
            rows.push(loop_of(row, pieces(row, self.tile.rows * tiles_stay.unwrap_or(1))));
            rows.extend(tiles_stay.map(|n| loop_of(row, Expr::int(n))));
        }
        let mut n_outside = self.n_outside(rows.len(), around.map(|(at, _)| at));
        if let (None, Order::BlockStays(n), Some(tiles)) = (n_rows, self.order, rows.last_mut()) {
            tiles.extent = tiles.extent.clone().ceil_div(n);
            let iter = tiles.iter;
            rows.push(loop_of(iter, Expr::int(n)));
            n_outside = rows.len() - 1;
        }
        let panels = loop_of(self.lane, pieces(self.lane, self.tile.vectors * self.tile.lanes));
        LoopsAround { batches, rows, n_outside, panels }
    }

    /// Extents of the loops over steps that stay loops, outermost first, where known; the steps are cut into `parts`.
    pub(crate) fn step_extents(&self, block: &Block, parts: i64) -> Vec<Option<i64>> {
        let first = iters_of(block, IterKind::Reduce).first().copied();
        let factor = self.blocked_steps.map_or(1, |blocked| blocked.factor);
        let extent = |n: &usize| {
            let whole = block.iters[*n].extent.as_int();
            if Some(*n) == first { whole.map(|whole| pieces_of(whole, factor * parts)) } else { whole }
        };
        let stay = self.steps.iter().filter(|n| !self.unrolled.contains(n)).map(extent);
        let blocked =
            self.blocked_steps.filter(|blocked| !blocked.unroll).map(|blocked| Some(blocked.factor));
        stay.chain(blocked).collect()
    }

    /// What the extents of a block of so many variables are padded to multiples of, given the rows of the rows' own loop.
    pub(crate) fn factors(&self, rank: usize, n_rows: Option<i64>) -> Vec<i64> {
        let mut factors = vec![1; rank];
        if let Some(row) = self.row {
            factors[row] = self.tile.rows * self.staying(n_rows).0.unwrap_or(1);
        }
        factors[self.lane] = self.tile.vectors * self.tile.lanes;
        factors
    }

    /// The layout of a buffer of so many dimensions whose vectors lie along one of them.
    pub(crate) fn in_vectors(&self, buffer: &str, rank: usize, lane_dim: usize) -> Relayout {
        let mut pieces: Vec<Piece> = (0..rank).map(|dim| Piece { dim, factor: None }).collect();
        pieces.push(Piece { dim: lane_dim, factor: Some(self.tile.lanes) });
        Relayout { buffer: buffer.to_string(), pieces, padding: Padding::Undefined }
    }

    /// Splits the loops over the data-parallel variables, which are at the positions `spatial`, given the rows of the rows' own loop.
    pub(crate) fn split_loops(
        &self,
        schedule: &mut Schedule,
        loops: &[String],
        spatial: &[usize],
        n_rows: Option<i64>,
    ) -> Result<SplitLoops, ScheduleError> {
        let Tile { rows, vectors, lanes } = self.tile;
        let (tiles_stay, iterations_stay) = self.staying(n_rows);
        let of = |n: usize| spatial.iter().position(|&other| other == n).and_then(|dim| loops.get(dim));
        let Some(lane) = of(self.lane) else {
            return Err(ScheduleError::new("tile", &self.block, "its lanes are no data-parallel variable"));
        };
        let lane = schedule.split(lane, &[None, Some(vectors), Some(lanes)])?;
        let mut own = match self.row.and_then(of) {
            Some(name) => {
                let stay = tiles_stay.map(Some);
                let parts: Vec<_> = [None].into_iter().chain(stay).chain([Some(rows)]).collect();
                schedule.split(name, &parts)?
            }
            None => Vec::new(),
        };
        let tile_rows = own.pop();
        let others = spatial.iter().zip(loops).filter(|(n, _)| **n != self.lane && Some(**n) != self.row);
        let (rows, mut batches): (Vec<_>, Vec<_>) = others.partition(|(n, _)| self.rows.contains(n));
        batches.sort_by_key(|(n, _)| self.batch_order(**n));
        let names = |found: Vec<(&usize, &String)>| found.into_iter().map(|(_, name)| name.clone()).collect();
        let (mut rows, batches): (Vec<String>, Vec<String>) = (names(rows), names(batches));
        // The loop of rows around the tile's own, part of which stays.
        let several = |name: &String| schedule.extent(name) != Some(1);
        let around = rows.iter().rposition(several).zip(iterations_stay);
        if let Some((at, n)) = around {
            let parts = schedule.split(&rows[at], &[None, Some(n)])?;
            rows.splice(at..=at, parts);
        }
        rows.extend(own);
        let n_outside = self.n_outside(rows.len(), around.map(|(at, _)| at));
        Ok(SplitLoops { batches, rows, n_outside, lane, tile_rows })
    }

    fn variables(&self, block: &Block) -> Result<Variables, ScheduleError> {
        let spatial = iters_of(block, IterKind::Spatial);
        let Some(lane_dim) = spatial.iter().position(|&n| n == self.lane) else {
            return Err(ScheduleError::new("tile", &self.block, "its lanes are no data-parallel variable"));
        };
        Ok(Variables {
            spatial,
            first_reduce: iters_of(block, IterKind::Reduce).first().copied(),
            lane_dim,
            n_rows: self.row.and_then(|row| block.iters[row].extent.as_int()),
        })
    }

    /// Makes the tile: pads the block to whole tiles, splits the loops of its epilogue and computes it inside.
    /// The block's results are stored at its variables, and no loop of it has been touched.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<AroundTile, ScheduleError> {
        let fail = |reason: &str| Err(ScheduleError::new("tile", &self.block, reason));
        let Some(data) = schedule.func().block(&self.block) else { return fail("no such block") };
        let rank = data.iters.len();
        let variables = self.variables(data)?;
        let (spatial, n_rows) = (&variables.spatial, variables.n_rows);
        let store = match &self.epilogue {
            Some(epilogue) => epilogue.clone(),
            None => schedule.cache_write(&self.block, Scope::Register)?,
        };
        let local = schedule.block_info(&self.block)?.writes.remove(0);
        schedule.pad_einsum(&self.block, &self.factors(rank, n_rows))?;

        let outer = schedule.loop_names(&store)?;
        if outer.len() != spatial.len() {
            return fail("the epilogue has other loops than the reduction");
        }
        let SplitLoops { batches: mut loops, mut rows, n_outside, lane, tile_rows } =
            self.split_loops(schedule, &outer, spatial, n_rows)?;
        rows.insert(n_outside, lane[0].clone());
        loops.extend(rows);
        let Some(innermost) = loops.last().cloned() else { return fail("no loop is left around the tile") };
        let tile_loops = tile_rows.iter().chain(&lane[1..]);
        schedule.reorder(&loops.iter().chain(tile_loops).map(String::as_str).collect::<Vec<_>>())?;
        if let Some(rows) = &tile_rows {
            schedule.unroll(rows)?;
        }
        schedule.unroll(&lane[1])?;
        schedule.vectorize(&lane[2])?;
        let (steps, vectors) = self.compute_inside(schedule, &innermost, &variables)?;
        schedule.set_scope(&local, Scope::Register)?;
        let panels = lane[0].clone();
        if n_rows.is_none() {
            self.block_rows(schedule, &mut loops, &panels)?;
        }
        let registers = self.in_vectors(&local, spatial.len(), variables.lane_dim);
        Ok(AroundTile { loops, panels, steps, vectors, store, registers })
    }

    /// Computes the reduction in the loop `innermost`, its steps around the tile; gives the loops over steps that stay loops, and that
    /// over the vectors of a step.
    fn compute_inside(
        &self,
        schedule: &mut Schedule,
        innermost: &str,
        variables: &Variables,
    ) -> Result<(Vec<String>, String), ScheduleError> {
        let fail = |reason: &str| Err(ScheduleError::new("tile", &self.block, reason));
        let inner = schedule.compute_at(&self.block, innermost)?;
        if inner.len() <= self.lane {
            return fail("the tile has lost a loop");
        }
        let lane = schedule.split(&inner[self.lane], &[None, Some(self.tile.lanes)])?;
        let stays = |n: &&usize| !self.unrolled.contains(*n);
        let mut steps: Vec<String> = self.steps.iter().filter(stays).map(|&n| inner[n].clone()).collect();
        let mut unrolled: Vec<String> = Vec::new();
        if let (Some(BlockedSteps { factor, unroll }), Some(first)) =
            (self.blocked_steps, variables.first_reduce)
        {
            let parts = schedule.split(&inner[first], &[None, Some(factor)])?;
            for step in steps.iter_mut().filter(|step| **step == inner[first]) {
                step.clone_from(&parts[0]);
            }
            steps.push(parts[1].clone());
            unrolled.extend(unroll.then(|| parts[1].clone()));
        }
        let step_loops: Vec<String> = steps.iter().filter(|step| !unrolled.contains(step)).cloned().collect();
        steps.extend(self.unrolled.iter().map(|&n| inner[n].clone()));
        let Some(first_step) = steps.first().cloned() else { return fail("no reduction variable") };
        let is_single = |n: &usize| *n != self.lane && Some(*n) != self.row;
        let single = variables.spatial.iter().copied().filter(is_single).map(|n| &inner[n]);
        let order = single.chain(&steps).chain(self.row.map(|n| &inner[n])).chain(&lane);
        schedule.reorder(&order.map(String::as_str).collect::<Vec<_>>())?;
        unrolled.extend(self.unrolled.iter().map(|&n| inner[n].clone()));
        for name in unrolled.iter().chain(self.row.map(|n| &inner[n])).chain([&lane[0]]) {
            schedule.unroll(name)?;
        }
        schedule.vectorize(&lane[1])?;
        schedule.decompose_reduction(&self.block, &first_step)?;
        Ok((step_loops, lane[0].clone()))
    }

    /// Where the order asks for it, makes blocks of tiles along rows of an open number, around the loop over panels. The last block has
    /// fewer tiles: only the last tile computes rows that there are not.
    fn block_rows(
        &self,
        schedule: &mut Schedule,
        loops: &mut Vec<String>,
        panels: &str,
    ) -> Result<(), ScheduleError> {
        let Order::BlockStays(n_tiles) = self.order else { return Ok(()) };
        let (Some(tiles), Some(at)) = (loops.pop(), loops.iter().position(|name| name == panels)) else {
            return Err(ScheduleError::new("tile", &self.block, "there are no loops around the tile"));
        };
        let parts = schedule.split(&tiles, &[None, Some(n_tiles)])?;
        loops.insert(at, parts[0].clone());
        loops.push(parts[1].clone());
        schedule.reorder(&loops[at..].iter().map(String::as_str).collect::<Vec<_>>())
    }
}
