//! Register tiles: a reduction's results held in registers over all its steps.
//!
//! A tile is rows times vectors of one block's results. Its loops are those of the epilogue, split; the
//! reduction is computed inside them, its steps around the tile, so that every accumulator stays in a register
//! from its first value until the epilogue has stored it. This is the micro-kernel of Goto and van de Geijn
//! ("Anatomy of High-Performance Matrix Multiplication", 2008) held over the whole depth; the rules of
//! contractions and of windows choose what goes into it.
//!
//! Its size and the order of the loops around it are choice points.

use std::collections::BTreeMap;
use std::fmt;

use tilewright_machine::Target;
use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::{Block, Buffer, Expr, IterKind, Scope};

use crate::order::Order;
use crate::pattern::{AccessInfo, iters_of};
use crate::tasks::extent_of;
use crate::{Candidate, Context};

/// How many operands a step loads, by what they depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Scalars, one a row.
    pub per_row: i64,
    /// Vectors, one for each of the tile's width.
    pub per_vector: i64,
    /// Vectors, one for each accumulator.
    pub per_accumulator: i64,
    /// Number of a tile's steps, where it is known and what they load is not loaded by other steps.
    pub steps: Option<i64>,
    /// Number of rows that share a vector, of all tiles, where it is known.
    pub sharing: Option<i64>,
    /// The windows that rows read, where they lie along the rows.
    pub windows: Option<Windows>,
}

/// Windows of neighbouring rows: row `r` reads the elements `stride * r + dilation * t` for each tap `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Elements from one row's window to the next one's.
    pub stride: i64,
    /// Elements from one tap to the next.
    pub dilation: i64,
    /// Number of taps.
    pub taps: i64,
}

impl Windows {
    /// How many elements that a tap of so many rows reads are held for another one, at most: those in the windows of several rows are
    /// loaded once.
    fn held(&self, rows: i64) -> i64 {
        // So far apart that they have nothing in common, however many taps there are.
        if self.stride.abs() >= self.dilation.abs().saturating_mul(self.taps) {
            return 0;
        }
        let (mut read, mut shared) = (BTreeMap::new(), 0);
        for (tap, row) in (0..self.taps).flat_map(|tap| (0..rows).map(move |row| (tap, row))) {
            let times: &mut i64 = read.entry(self.stride * row + self.dilation * tap).or_default();
            *times += 1;
            shared += i64::from(*times == 2);
            if shared >= rows {
                break;
            }
        }
        shared
    }
}

/// A register tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows: groups of accumulators that share a step's vectors.
    pub rows: i64,
    /// Vectors of a row.
    pub vectors: i64,
    /// Lanes of a vector.
    pub lanes: i64,
}

/// `ROWSxVECTORS`.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.vectors)
    }
}

/// Most tiles that are offered.
const MAX_TILES: usize = 16;

/// Cycles that a line takes on its way from the second level of cache, beside what is done meanwhile.
const FILL_CYCLES: f64 = 0.3;

/// How many more accumulators than hide the latency of products keep the ports busy where each step waits for loads.
const SPARE: f64 = 1.25;

/// Cycles a step takes longer for each element of several windows that no register is left for (measured on a core of the third Zen
/// generation, windows of 3 x 3 and 5 x 5).
const SPILL_CYCLES: f64 = 0.15;

/// How many tiles longer one of windows takes that reaches past the end: each of its loads has a place of its own.
const PARTIAL: f64 = 2.0;

/// Useful part of a tile that is no power of two, of an open extent: those (batches, sequences) are mostly multiples of powers
/// of two.
const EVEN_OPEN: f64 = 0.94;

/// How much dearer than the best a tile may be to be offered.
const MAX_COST: f64 = 1.5;

impl Tile {
    /// Tiles for `rows` by `vectors` outputs (`None` where not known), the one with the least cost first.
    ///
    /// Cost is cycles an output and step: products or loads, whichever port is busier, over the useful part
    /// of the tile. Where what the steps of a tile load does not stay in the first level of cache, each line
    /// of it takes [`FILL_CYCLES`] more. Registers hold the accumulators, a step's shared vectors, and one operand in flight;
    /// where elements that several windows have in common find none, each takes [`SPILL_CYCLES`]. A tile of windows that
    /// reaches past the end takes [`PARTIAL`] tiles more.
    pub fn candidates(
        target: &Target,
        lanes: i64,
        rows: Option<i64>,
        vectors: Option<i64>,
        traffic: Traffic,
    ) -> Vec<Candidate<Tile>> {
        let caches = &target.machine.caches;
        let registers = i64::from(target.n_vector_registers());
        let ports = f64::from(target.machine.fma.per_cycle.max(1));
        let latency = f64::from(target.machine.fma.latency.max(1));
        let useful = |n: Option<i64>, tile: i64| match n {
            Some(n) => n as f64 / (((n + tile - 1) / tile) * tile) as f64,
            None if tile.count_ones() == 1 => 1.0,
            None => EVEN_OPEN,
        };
        let mut tiles: Vec<Candidate<Tile>> = Vec::new();
        for v in 1..=vectors.unwrap_or(4).clamp(1, 4) {
            for r in 1..=rows.unwrap_or(30).clamp(1, 30) {
                // One result at a time always fits.
                if r * v > 1 && r * v + traffic.per_vector * v + 1 > registers {
                    break;
                }
                let shared = traffic.windows.map_or(0, |windows| windows.held(r));
                let held = (r + traffic.per_vector + shared) * v;
                let spilled = SPILL_CYCLES * (held + 1 - registers).max(0) as f64;
                let (r_, v_) = (r as f64, v as f64);
                // Products that wait for what they multiply need others besides those that hide their latency.
                let spare = if traffic.per_row > 0 { SPARE } else { 1.0 };
                let products = (r_ * v_).max(latency * ports * spare) / ports;
                let loads = traffic.per_row * r + traffic.per_vector * v + traffic.per_accumulator * r * v;
                let loads = loads as f64 / 2.0;
                // Bytes that a step loads for the first time; those of all rows there are were loaded for the panel before.
                let of_rows =
                    if traffic.sharing.is_some_and(|n| n <= r) { 0 } else { 4 * traffic.per_row * r };
                let fresh = (4 * lanes * traffic.per_vector * v + of_rows) as f64;
                // What half the first level holds stays there; of twice as much nothing does.
                let stays = caches.l1d as f64 / 2.0;
                let loaded = traffic.steps.map_or(0.0, |steps| steps as f64 * fresh);
                let fills = (loaded / stays - 1.0).clamp(0.0, 1.0) * fresh / caches.line as f64;
                let cycles = products.max(loads) + 0.1 * loads + FILL_CYCLES * fills + spilled;
                let at_end = match rows {
                    Some(n) if traffic.windows.is_some() && n % r != 0 => {
                        1.0 + PARTIAL / (n as f64 / r_).ceil()
                    }
                    _ => 1.0,
                };
                // An open number of vectors is taken for one that is divided.
                let waste = at_end / (useful(rows, r) * vectors.map_or(1.0, |_| useful(vectors, v)));
                let cost = cycles * waste / (r_ * v_);
                let features = vec![
                    ("tile.rows", r_.log2()),
                    ("tile.vectors", v_.log2()),
                    ("tile.waste", waste),
                    ("tile.loads", loads / (r_ * v_)),
                    ("tile.registers", held as f64 / registers as f64),
                    ("tile.cost", cost.log2()),
                ];
                tiles.push(Candidate { value: Tile { rows: r, vectors: v, lanes }, cost, features });
            }
        }
        // Of equals the first found: costs that differ by rounding alone must not decide.
        tiles.sort_by(|a, b| (a.cost / 1e-9).round().total_cmp(&(b.cost / 1e-9).round()));
        let most = tiles.first().map_or(0.0, |best| best.cost * MAX_COST);
        tiles.retain(|tile| tile.cost <= most);
        tiles.truncate(MAX_TILES);
        tiles
    }
}

/// A tile with the variables of a block that it is made of.
#[derive(Clone, Debug)]
pub struct TiledBlock<'a> {
    /// The reduction.
    pub block: &'a str,
    /// The data-parallel block that reads its results, if that is to be computed on the registers.
    pub epilogue: Option<String>,
    /// Position of the lanes' variable.
    pub lane: usize,
    /// Position of the rows' variable, if there is one.
    pub row: Option<usize>,
    /// The tile.
    pub tile: Tile,
    /// The order of the loops around it.
    pub order: Order,
    /// Positions of the other variables that are rows: all the rest are batches.
    pub rows: Vec<usize>,
    /// Positions of the reduction variables, outermost first.
    pub steps: Vec<usize>,
    /// How the first reduction variable of the block is walked in blocks, the innermost of the steps.
    pub blocked_steps: Option<BlockedSteps>,
    /// Positions of reduction variables that are unrolled, around the rows.
    pub unrolled: Vec<usize>,
}

/// A reduction variable that is walked in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedSteps {
    /// Steps of a block.
    pub factor: i64,
    /// Whether the steps of a block are unrolled.
    pub unroll: bool,
}

/// Loops over the data-parallel variables of a tiled block, in parts.
pub(crate) struct SplitLoops {
    /// Loops over batches, outermost first.
    pub batches: Vec<String>,
    /// Loops over rows, those inside of a tile aside, outermost first.
    pub rows: Vec<String>,
    /// How many of these are around the loop over panels.
    pub n_outside: usize,
    /// The loops over panels, over a tile's vectors, and over their lanes.
    pub lane: Vec<String>,
    /// The loop over a tile's rows, if there is one.
    pub tile_rows: Option<String>,
}

/// The loops around a tile, outermost first, and the block that stores its results.
#[derive(Clone, Debug)]
pub struct AroundTile {
    /// Names of the loops.
    pub loops: Vec<String>,
    /// Which of them goes over tiles of the lanes: each iteration has its own panel.
    pub panels: String,
    /// The loops over steps that stay loops, outermost first.
    pub steps: Vec<String>,
    /// The loop over the vectors of a step.
    pub vectors: String,
    /// The epilogue, or the copy out of the registers where there is none.
    pub store: String,
}

impl TiledBlock<'_> {
    /// Tiles of the rows' loop itself that stay, and iterations of the loop of rows around it, given the rows of that loop. Of an open
    /// number of rows neither: [`TiledBlock::block_rows`].
    pub(crate) fn staying(&self, n_rows: Option<i64>) -> (Option<i64>, Option<i64>) {
        let n_tiles = n_rows.map(|n| (n + self.tile.rows - 1) / self.tile.rows);
        match self.order {
            Order::BlockStays(tiles) if n_tiles.is_some_and(|n| tiles <= n) => (Some(tiles), None),
            Order::BlockStays(tiles) => (None, n_tiles.map(|n| tiles / n)),
            Order::PanelStays | Order::RowsStay => (None, None),
        }
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
            return Err(ScheduleError::new("tile", self.block, "its lanes are no data-parallel variable"));
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
        let (rows, batches): (Vec<_>, Vec<_>) = others.partition(|(n, _)| self.rows.contains(n));
        let names = |found: Vec<(&usize, &String)>| found.into_iter().map(|(_, name)| name.clone()).collect();
        let (mut rows, batches): (Vec<String>, Vec<String>) = (names(rows), names(batches));
        // The loop of rows around the tile's own, part of which stays.
        let several = |name: &String| extent_of(schedule, name) != Some(1);
        let around = rows.iter().rposition(several).zip(iterations_stay);
        if let Some((at, n)) = around {
            let parts = schedule.split(&rows[at], &[None, Some(n)])?;
            rows.splice(at..=at, parts);
        }
        rows.extend(own);
        let n_outside = match (self.order, around) {
            (Order::PanelStays, _) => 0,
            (Order::RowsStay, _) => rows.len(),
            (Order::BlockStays(_), Some((at, _))) => at + 1,
            (Order::BlockStays(_), None) => rows.len().saturating_sub(1),
        };
        Ok(SplitLoops { batches, rows, n_outside, lane, tile_rows })
    }

    /// Makes the tile: pads the block to whole tiles, splits the loops of its epilogue and computes it inside.
    /// The block's results are stored at its variables, and no loop of it has been touched.
    pub fn apply(
        self,
        schedule: &mut Schedule,
        context: &mut Context<'_>,
    ) -> Result<AroundTile, ScheduleError> {
        let fail = |reason: &str| Err(ScheduleError::new("tile", self.block, reason));
        let Some(data) = schedule.func().block(self.block) else { return fail("no such block") };
        let rank = data.iters.len();
        let spatial = iters_of(data, IterKind::Spatial);
        let first_reduce = iters_of(data, IterKind::Reduce).first().copied();
        let n_spatial = spatial.len();
        let Some(lane_dim) = spatial.iter().position(|&n| n == self.lane) else {
            return fail("its lanes are no data-parallel variable");
        };
        let lanes = self.tile.lanes;
        let n_rows = self.row.and_then(|row| data.iters[row].extent.as_int());
        let factors = self.factors(rank, n_rows);
        let store = match &self.epilogue {
            Some(epilogue) => epilogue.clone(),
            None => schedule.cache_write(self.block, Scope::Register)?,
        };
        let local = schedule.block_info(self.block)?.writes.remove(0);
        schedule.pad_einsum(self.block, &factors)?;

        // Loops of the epilogue around the tile.
        let outer = schedule.loop_names(&store)?;
        if outer.len() != n_spatial {
            return fail("the epilogue has other loops than the reduction");
        }
        let SplitLoops { batches: mut loops, mut rows, n_outside, lane: lane_parts, tile_rows } =
            self.split_loops(schedule, &outer, &spatial, n_rows)?;
        rows.insert(n_outside, lane_parts[0].clone());
        loops.extend(rows);
        let Some(innermost) = loops.last().cloned() else { return fail("no loop is left around the tile") };
        let tile_loops = tile_rows.iter().chain(&lane_parts[1..]);
        schedule.reorder(&loops.iter().chain(tile_loops).map(String::as_str).collect::<Vec<_>>())?;
        if let Some(rows) = &tile_rows {
            schedule.unroll(rows)?;
        }
        schedule.unroll(&lane_parts[1])?;
        schedule.vectorize(&lane_parts[2])?;

        // The tile inside.
        let inner = schedule.compute_at(self.block, &innermost)?;
        if inner.len() != rank {
            return fail("the tile has lost a loop");
        }
        let lane_inner = schedule.split(&inner[self.lane], &[None, Some(lanes)])?;
        let is_single = |n: &usize| *n != self.lane && Some(*n) != self.row;
        let mut order: Vec<&str> =
            spatial.iter().copied().filter(is_single).map(|n| inner[n].as_str()).collect();
        let stays = |n: &&usize| !self.unrolled.contains(*n);
        let mut steps: Vec<String> = self.steps.iter().filter(stays).map(|&n| inner[n].clone()).collect();
        let mut unrolled: Vec<String> = Vec::new();
        if let (Some(BlockedSteps { factor, unroll }), Some(first)) = (self.blocked_steps, first_reduce) {
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
        order.extend(steps.iter().map(String::as_str));
        order.extend(self.row.map(|n| inner[n].as_str()));
        order.extend([lane_inner[0].as_str(), lane_inner[1].as_str()]);
        schedule.reorder(&order)?;
        unrolled.extend(self.unrolled.iter().map(|&n| inner[n].clone()));
        for name in &unrolled {
            schedule.unroll(name)?;
        }
        if let Some(row) = self.row {
            schedule.unroll(&inner[row])?;
        }
        schedule.unroll(&lane_inner[0])?;
        schedule.vectorize(&lane_inner[1])?;
        schedule.decompose_reduction(self.block, &first_step)?;
        schedule.set_scope(&local, Scope::Register)?;
        let mut pieces: Vec<Piece> = (0..n_spatial).map(|dim| Piece { dim, factor: None }).collect();
        pieces.push(Piece { dim: lane_dim, factor: Some(lanes) });
        context.set_layout(&local, pieces, Padding::Undefined);
        let (panels, vectors) = (lane_parts[0].clone(), lane_inner[0].clone());
        if n_rows.is_none() {
            self.block_rows(schedule, &mut loops, &panels)?;
        }
        Ok(AroundTile { loops, panels, steps: step_loops, vectors, store })
    }
}

impl TiledBlock<'_> {
    /// Where the order asks for it, makes blocks of tiles along rows of an open number, around the loop over panels. The last block has
    /// fewer tiles: rows that there are not are computed for the last tile only.
    fn block_rows(
        &self,
        schedule: &mut Schedule,
        loops: &mut Vec<String>,
        panels: &str,
    ) -> Result<(), ScheduleError> {
        let Order::BlockStays(n_tiles) = self.order else { return Ok(()) };
        let (Some(tiles), Some(at)) = (loops.pop(), loops.iter().position(|name| name == panels)) else {
            return Err(ScheduleError::new("tile", self.block, "there are no loops around the tile"));
        };
        let parts = schedule.split(&tiles, &[None, Some(n_tiles)])?;
        loops.insert(at, parts[0].clone());
        loops.push(parts[1].clone());
        schedule.reorder(&loops[at..].iter().map(String::as_str).collect::<Vec<_>>())
    }
}

/// Whether a block stores each result at its data-parallel variables, in order.
pub fn stores_at_its_variables(block: &Block) -> bool {
    let spatial = iters_of(block, IterKind::Spatial);
    block.body.iter().all(|store| {
        store.indices.len() == spatial.len()
            && store.indices.iter().zip(&spatial).all(|(e, &n)| e.as_var() == Some(block.iters[n].var))
    })
}

/// The last of some variables that has more than one value: the results lie consecutive along it, row-major.
pub fn last_of_several(block: &Block, variables: &[usize]) -> Option<usize> {
    variables.iter().copied().rfind(|&n| block.iters[n].extent.as_int() != Some(1))
}

/// The one data-parallel block that reads a block's results, each once, at its own index.
pub fn epilogue_of(schedule: &Schedule, block: &str) -> Option<String> {
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

/// The layout of what the epilogue (or, without one, the reduction itself) writes.
pub fn stored_layout(
    schedule: &Schedule,
    context: &Context<'_>,
    epilogue: &Option<String>,
    accumulator: Buffer,
) -> Option<Vec<Piece>> {
    let func = schedule.func();
    let buffer = match epilogue {
        Some(name) => func.block(name)?.body.first()?.buffer,
        None => accumulator,
    };
    context.layout(&func.buffers[buffer].name)
}

/// Vector lanes for a variable: a blocked dimension's block, else the target's vector where it is worth one.
pub fn lanes_for(
    context: &Context<'_>,
    extent: &Expr,
    layout: &Option<Vec<Piece>>,
    iter: usize,
) -> Option<i64> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::CodegenKind;

    fn tile(machine: &str, lanes: i64, rows: i64, vectors: i64, traffic: Traffic) -> (i64, i64) {
        let target = Target::parse(machine, CodegenKind::Llvm).expect("a known machine");
        let tiles = Tile::candidates(&target, lanes, Some(rows), Some(vectors), traffic);
        let tile = tiles.first().expect("a tile of one result always fits").value;
        (tile.rows, tile.vectors)
    }

    #[test]
    fn tiles_hide_the_latency_fit_the_registers_and_divide_the_rows() {
        let product = Traffic { per_row: 1, per_vector: 1, per_accumulator: 0, ..Traffic::default() };
        for (rows, vectors) in [(56, 4), (28, 8), (14, 16), (7, 32), (112, 2)] {
            let (r, v) = tile("x86-64-v4", 16, rows, vectors, product);
            assert_eq!(rows % r, 0, "{rows} rows in tiles of {r}");
            // A latency of 4 on two ports takes 8 independent products, and some more for the loads' latency.
            assert!(r * v >= 14 && r * v + v < 32, "{r} x {v}");
        }
        let (r, v) = tile("x86-64-v3", 8, 56, 8, product);
        assert!(r * v + v < 16 && r * v >= 8, "{r} x {v}");
    }

    #[test]
    fn windows_hide_the_latency_too() {
        let depthwise = Traffic { per_row: 0, per_vector: 1, per_accumulator: 1, ..Traffic::default() };
        for rows in [112, 56, 28, 14] {
            let (r, v) = tile("x86-64-v4", 16, rows, 2, depthwise);
            assert_eq!(rows % r, 0, "{rows} rows in tiles of {r}");
            assert!(r * v >= 7 && r * v + v < 32, "{r} x {v}");
        }
    }

    /// Seven rows and what they read twice fill 16 registers, fourteen 32; without the latter it is twice as many.
    #[test]
    fn windows_hold_what_their_rows_have_in_common() {
        let three = Windows { stride: 1, dilation: 1, taps: 3 };
        let five = Windows { stride: 2, dilation: 1, taps: 5 };
        // Windows of stride 3 have nothing in common.
        let apart = Windows { stride: 3, ..three };
        assert_eq!([1, 2, 7].map(|rows| three.held(rows)), [0, 2, 7]);
        assert_eq!([1, 2, 7].map(|rows| five.held(rows)), [0, 2, 7]);
        assert_eq!([1, 2, 7].map(|rows| apart.held(rows)), [0, 0, 0]);
        // Every other row's windows meet on the elements of a dilated one.
        let dilated = Windows { dilation: 2, ..three };
        assert_eq!([1, 2, 3, 7].map(|rows| dilated.held(rows)), [0, 0, 2, 7]);
        let depthwise = Traffic { per_vector: 1, per_accumulator: 1, ..Traffic::default() };
        for (windows, rows, [narrow, wide]) in
            [(three, 56, [7, 14]), (five, 28, [7, 14]), (apart, 28, [14, 28])]
        {
            let traffic = Traffic { windows: Some(windows), ..depthwise };
            assert_eq!(tile("x86-64-v3", 8, rows, 1, traffic), (narrow, 1), "{windows:?}");
            assert_eq!(tile("x86-64-v4", 16, rows, 1, traffic), (wide, 1), "{windows:?}");
        }
    }

    /// Forty rows are five times eight, or six times seven less two.
    #[test]
    fn windows_rather_spill_than_reach_past_the_end() {
        let windows = Some(Windows { stride: 1, dilation: 1, taps: 3 });
        let traffic = Traffic { per_vector: 1, per_accumulator: 1, windows, ..Traffic::default() };
        assert_eq!(tile("x86-64-v3", 8, 40, 1, traffic), (8, 1));
    }
}
