//! The cost of a register tile: cycles an output and step.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::Target;

use crate::decisions::{Candidate, sort_by_cost};
use crate::model::machine::{l1_room, numbers, ports};

/// How many operands a step loads, by what they depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
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

impl Traffic {
    /// Loads of a tile's step.
    fn loads(&self, tile: Tile) -> i64 {
        let Tile { rows, vectors, .. } = tile;
        self.per_row * rows + self.per_vector * vectors + self.per_accumulator * rows * vectors
    }

    /// Vectors that a tile holds in registers: its accumulators, what its rows share, and what is read again.
    fn held(&self, tile: Tile) -> i64 {
        let shared = self.windows.map_or(0, |windows| windows.held(tile.rows));
        (tile.rows + self.per_vector + shared) * tile.vectors
    }
}

/// Windows of neighbouring rows: row `r` reads the elements `stride * r + dilation * t` for each tap `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

/// Most tiles that are offered: enough to search among, few enough to plan fast.
const MAX_TILES: usize = 16;

/// Rows and vectors of the largest tile: no machine has more registers than such a tile fills.
const LARGEST: (i64, i64) = (30, 4);

/// How much dearer than the best a tile may be to be offered: the model is not so wrong.
const MAX_COST: f64 = 1.5;

/// How many tiles longer a row of tiles of windows, or of panels, takes that reaches past the end: each of its loads has a place of its
/// own, so a tile takes three times as many instructions, whatever the machine.
const PARTIAL: f64 = 2.0;

/// Useful part of a tile that is no power of two, of an open extent: those (batches, sequences) are mostly multiples of powers
/// of two.
const EVEN_OPEN: f64 = 0.94;

/// Costs that differ by less are equal.
const PRECISION: f64 = 1e-9;

/// What tiles are compared for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outputs {
    /// Lanes of a vector.
    pub lanes: i64,
    /// Rows, where known.
    pub rows: Option<i64>,
    /// Vectors of a row, where known.
    pub vectors: Option<i64>,
    /// Steps of a tile, where known.
    pub depth: Option<i64>,
    /// What a step loads.
    pub traffic: Traffic,
}

/// Tiles for some outputs, the one with the least cost first.
pub(crate) fn tiles(target: &Target, outputs: &Outputs) -> Vec<Candidate<Tile>> {
    let Outputs { lanes, rows, vectors, traffic, .. } = *outputs;
    let registers = i64::from(target.n_vector_registers());
    let mut tiles: Vec<Candidate<Tile>> = Vec::new();
    for v in 1..=vectors.unwrap_or(LARGEST.1).clamp(1, LARGEST.1) {
        for r in 1..=rows.unwrap_or(LARGEST.0).clamp(1, LARGEST.0) {
            // One result at a time always fits.
            if r * v > 1 && r * v + traffic.per_vector * v + 1 > registers {
                break;
            }
            tiles.push(candidate(target, outputs, Tile { rows: r, vectors: v, lanes }));
        }
    }
    // Of equals the first, which is the least code: dozens of addresses in a body take LLVM long.
    sort_by_cost(&mut tiles, PRECISION);
    let most = tiles.first().map_or(0.0, |best| best.cost * MAX_COST);
    tiles.retain(|tile| tile.cost <= most);
    tiles.truncate(MAX_TILES);
    tiles
}

/// The cost of a tile: cycles of its steps and of the lines that come from L2, over its useful part, a vector of results and step.
pub(crate) fn cost(target: &Target, outputs: &Outputs, tile: Tile) -> f64 {
    let lines = numbers(target).l2.stream_cycles * fills(target, &outputs.traffic, tile);
    let cycles = step_cycles(target, &outputs.traffic, tile, outputs.depth) + lines;
    cycles * waste(outputs, tile) / (tile.rows as f64 * tile.vectors as f64)
}

/// A tile with its cost.
fn candidate(target: &Target, outputs: &Outputs, tile: Tile) -> Candidate<Tile> {
    let Outputs { traffic, .. } = *outputs;
    let (r, v) = (tile.rows as f64, tile.vectors as f64);
    let cost = cost(target, outputs, tile);
    let features = vec![
        ("tile.rows", r.log2()),
        ("tile.vectors", v.log2()),
        ("tile.waste", waste(outputs, tile)),
        ("tile.loads", traffic.loads(tile) as f64 / numbers(target).core.loads_per_cycle / (r * v)),
        ("tile.registers", traffic.held(tile) as f64 / f64::from(target.n_vector_registers())),
        ("tile.cost", cost.log2()),
    ];
    Candidate { value: tile, cost, features }
}

/// Cycles of a tile's step whose operands are in L1, of so many where that is known: of its products or loads, whichever port is busier,
/// and of elements that find no register.
pub(crate) fn step_cycles(target: &Target, traffic: &Traffic, tile: Tile, depth: Option<i64>) -> f64 {
    let core = &numbers(target).core;
    let spilled = (traffic.held(tile) + 1 - i64::from(target.n_vector_registers())).max(0) as f64;
    let loads = traffic.loads(tile) as f64;
    let products = products(target, traffic, tile, depth);
    products.max(loads / core.loads_per_cycle) + core.load_cycles * loads + core.spill_cycles * spilled
}

/// Cycles of a step's products: too few of them wait for their latency, and more of them where they wait for loads too. Tiles of few
/// steps do not wait: the core goes on to the next tile, as far as it sees.
fn products(target: &Target, traffic: &Traffic, tile: Tile, depth: Option<i64>) -> f64 {
    let core = &numbers(target).core;
    let slack = if traffic.per_row > 0 { core.accumulator_slack } else { 1.0 };
    let in_flight = f64::from(core.fma_latency) * ports(target) * slack;
    let own = tile.rows as f64 * tile.vectors as f64;
    let instructions = depth.map(|depth| (own + traffic.loads(tile) as f64) * depth.max(1) as f64);
    let tiles = instructions.map_or(1.0, |n| (f64::from(core.window) / n).max(1.0));
    own.max(in_flight / tiles) / ports(target)
}

/// Lines that a step brings from L2: none where what all steps load stays in L1, all where they load twice as much.
fn fills(target: &Target, traffic: &Traffic, tile: Tile) -> f64 {
    // What all rows share was loaded for the panel before.
    let of_rows =
        if traffic.sharing.is_some_and(|n| n <= tile.rows) { 0 } else { 4 * traffic.per_row * tile.rows };
    let fresh = (4 * tile.lanes * traffic.per_vector * tile.vectors + of_rows) as f64;
    let loaded = traffic.steps.map_or(0.0, |steps| steps as f64 * fresh);
    (loaded / l1_room(target) - 1.0).clamp(0.0, 1.0) * fresh / target.machine.caches.line as f64
}

/// Outputs that tiles compute for one that there is.
pub(crate) fn waste(outputs: &Outputs, tile: Tile) -> f64 {
    let Outputs { rows, vectors, traffic, .. } = *outputs;
    let useful = |n: Option<i64>, tile: i64| match n {
        Some(n) => n as f64 / (((n + tile - 1) / tile) * tile) as f64,
        None if tile.count_ones() == 1 => 1.0,
        None => EVEN_OPEN,
    };
    let past_end = |n: Option<i64>, tile: i64| match n {
        Some(n) if traffic.windows.is_some() && n % tile != 0 => {
            1.0 + PARTIAL / (n as f64 / tile as f64).ceil()
        }
        _ => 1.0,
    };
    let at_end = past_end(rows, tile.rows) * past_end(vectors, tile.vectors);
    // An open number of vectors is taken for one that is divided.
    at_end / (useful(rows, tile.rows) * vectors.map_or(1.0, |_| useful(vectors, tile.vectors)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::CodegenKind;

    fn tile(machine: &str, lanes: i64, rows: i64, vectors: i64, traffic: Traffic) -> (i64, i64) {
        let target = Target::parse(machine, CodegenKind::Llvm).expect("a known machine");
        let outputs = Outputs { lanes, rows: Some(rows), vectors: Some(vectors), depth: None, traffic };
        let tiles = tiles(&target, &outputs);
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

    /// Few chains of products wait for their latency, unless the core sees the next tiles' products meanwhile.
    #[test]
    fn short_tiles_hide_latency_in_the_next_ones() {
        let target = Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a known machine");
        let depthwise = Traffic { per_vector: 1, per_accumulator: 1, ..Traffic::default() };
        let cycles = |rows: i64, depth: i64| {
            let tile = Tile { rows, vectors: 1, lanes: 16 };
            step_cycles(&target, &depthwise, tile, Some(depth)) / rows as f64
        };
        // Four chains of nine steps are seen three at a time, of 49 steps one by one; eight are enough.
        assert!(cycles(4, 9) < 0.75 * cycles(4, 49), "{}, {}", cycles(4, 9), cycles(4, 49));
        assert_eq!(cycles(8, 9), cycles(8, 49));
    }
}
