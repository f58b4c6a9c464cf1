//! The cost of a register tile: cycles an output and step.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::Target;

use crate::decisions::{Candidate, sort_by_cost};
use crate::model::machine::{MAX_UNROLLED_STEPS, l1_room, numbers, ports};

/// How many operands a step loads, by what they depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Scalars, one a row.
    pub per_row: i64,
    /// How many steps' scalars of a row are one load, of a vector that stays in a register for as many steps; 0 is as 1.
    pub row_lanes: i64,
    /// Vectors, one for each of the tile's width.
    pub per_vector: i64,
    /// Vectors, one for each accumulator.
    pub per_accumulator: i64,
    /// Number of a tile's steps, where it is known and what they load is not loaded by other steps.
    pub steps: Option<i64>,
    /// Number of rows that share a vector, of all tiles, where it is known.
    pub sharing: Option<i64>,
    /// The windows that rows read of a vector for each accumulator, where they lie along the rows.
    pub windows: Option<Windows>,
}

impl Traffic {
    /// Loads of a tile's step: what the windows of several rows have in common is loaded once, where their taps are unrolled.
    fn loads(&self, tile: Tile) -> f64 {
        let [rows, vectors] = [tile.rows, tile.vectors].map(|n| n as f64);
        let mut accumulators = self.per_accumulator as f64 * rows;
        if let Some(windows) = self.windows.filter(|windows| windows.is_unrolled(tile)) {
            accumulators -= rows - windows.elements(tile.rows) as f64 / windows.taps as f64;
        }
        self.per_row as f64 * rows / self.row_lanes.max(1) as f64
            + self.per_vector as f64 * vectors
            + accumulators * vectors
    }

    /// Vector registers that a tile takes, with those of elements on their way.
    fn registers(&self, target: &Target, tile: Tile) -> i64 {
        let elements = match self.row_lanes {
            2.. => self.per_row * tile.rows + AHEAD,
            _ => i64::from(target.n_element_registers()),
        };
        self.held(target, tile) + elements
    }

    /// Vectors that a tile holds in registers: its accumulators, what its rows share, and what is read again.
    fn held(&self, target: &Target, tile: Tile) -> i64 {
        let windows = self.windows.filter(|windows| windows.is_unrolled(tile));
        let shared = windows.map_or(0, |windows| windows.live(tile.rows, target.loads_pairs()));
        (tile.rows + self.per_vector + shared) * tile.vectors
    }
}

/// Windows of neighbouring rows over vectors: row `r` reads the elements `stride * r + dilation * t` for each tap `t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    /// Elements from one row's window to the next one's.
    pub stride: i64,
    /// Elements from one tap to the next.
    pub dilation: i64,
    /// Number of taps.
    pub taps: i64,
    /// How many such series of taps a window has, each in elements of its own: the rows of a two-dimensional window.
    pub series: i64,
}

impl Windows {
    /// Whether taps may be unrolled, so that registers keep what several rows read.
    fn is_unrolled(&self, tile: Tile) -> bool {
        self.taps.saturating_mul(tile.rows * tile.vectors) <= MAX_UNROLLED_STEPS
    }

    /// The first and the last time that each element is read in one series of taps by so many rows, tap by tap and, for each tap, row by row.
    fn uses(&self, rows: i64) -> BTreeMap<i64, [i64; 2]> {
        let mut uses: BTreeMap<i64, [i64; 2]> = BTreeMap::new();
        for (tap, row) in (0..self.taps).flat_map(|tap| (0..rows).map(move |row| (tap, row))) {
            let now = tap * rows + row;
            uses.entry(self.stride * row + self.dilation * tap).or_insert([now, now])[1] = now;
        }
        uses
    }

    /// Different elements that so many rows read in one series of taps.
    fn elements(&self, rows: i64) -> i64 {
        self.uses(rows).len() as i64
    }

    /// Most elements that have to stay in registers at a time, because another tap reads them again, or because they came with a
    /// neighbour, where `pairs` of them are loaded at once, and wait for their tap.
    fn live(&self, rows: i64, pairs: bool) -> i64 {
        let uses = self.uses(rows);
        let loaded = |element: i64, first: i64| match uses.get(&(element ^ 1)) {
            Some([of_neighbour, _]) if pairs => first.min(*of_neighbour),
            _ => first,
        };
        // An element comes to stay when it is loaded and goes at its last use.
        let stays = uses.iter().map(|(&element, &[first, last])| (loaded(element, first), last));
        let mut changes: Vec<(i64, i64)> =
            stays.filter(|(first, last)| first < last).flat_map(|(a, b)| [(a, 1), (b, -1)]).collect();
        changes.sort_unstable();
        let stay = changes.iter().scan(0, |n, (_, change)| {
            *n += change;
            Some(*n)
        });
        stay.max().unwrap_or(0)
    }

    /// Lines that a tile's step brings from L2: those of new series of taps, and those of all where the series of a line of tiles, of so
    /// many rows, do not stay in L1 until the next line reads them again.
    fn fills(&self, target: &Target, rows: i64, tile: Tile) -> f64 {
        let vector = (4 * tile.lanes * tile.vectors) as f64;
        let [stride, dilation] = [self.stride, self.dilation].map(|n| n.abs() as f64);
        let [taps, series] = [self.taps, self.series].map(|n| n as f64);
        let read = (rows as f64 * stride + taps * dilation) * vector;
        let missing = (series * read / l1_room(target) - 1.0).clamp(0.0, 1.0);
        let new = 1.0 / series;
        let fresh = vector * tile.rows as f64 * stride / taps;
        (new + missing * (1.0 - new)) * fresh / target.machine.caches.line as f64
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

/// Registers for what a tile's steps load ahead, where a row's elements are a vector.
const AHEAD: i64 = 2;

/// Whether a tile whose rows' elements are vectors leaves registers for two of them a row, while the first half of the rows is multiplied.
pub(crate) fn loads_rows_ahead(target: &Target, tile: &Tile) -> bool {
    let product = Traffic { per_row: 1, row_lanes: 2, per_vector: 1, ..Traffic::default() };
    product.registers(target, *tile) + tile.rows / 2 <= i64::from(target.n_vector_registers())
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
    // What windows have in common may also be loaded again.
    let least = Traffic { windows: None, ..traffic };
    let mut tiles: Vec<Candidate<Tile>> = Vec::new();
    for v in 1..=vectors.unwrap_or(LARGEST.1).clamp(1, LARGEST.1) {
        for r in 1..=rows.unwrap_or(LARGEST.0).clamp(1, LARGEST.0) {
            let tile = Tile { rows: r, vectors: v, lanes };
            // One result at a time always fits.
            if r * v > 1 && least.registers(target, tile) > registers {
                break;
            }
            tiles.push(candidate(target, outputs, tile));
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
    let lines = numbers(target).l2.stream_cycles * fills(target, outputs, tile);
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
        ("tile.loads", traffic.loads(tile) / numbers(target).core.loads_per_cycle / (r * v)),
        ("tile.registers", traffic.held(target, tile) as f64 / f64::from(target.n_vector_registers())),
        ("tile.cost", cost.log2()),
    ];
    Candidate { value: tile, cost, features }
}

/// Cycles of a tile's step whose operands are in L1, of so many where that is known: of its products or loads, whichever port is busier,
/// and of elements that find no register.
pub(crate) fn step_cycles(target: &Target, traffic: &Traffic, tile: Tile, depth: Option<i64>) -> f64 {
    let core = &numbers(target).core;
    let spilled = (traffic.registers(target, tile) - i64::from(target.n_vector_registers())).max(0) as f64;
    let loads = traffic.loads(tile);
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
    let instructions = depth.map(|depth| (own + traffic.loads(tile)) * depth.max(1) as f64);
    let tiles = instructions.map_or(1.0, |n| (f64::from(core.window) / n).max(1.0));
    own.max(in_flight / tiles) / ports(target)
}

/// Lines that a step brings from L2: none where what all steps load stays in L1, all where they load twice as much.
fn fills(target: &Target, outputs: &Outputs, tile: Tile) -> f64 {
    let traffic = &outputs.traffic;
    if let Some((windows, rows)) = traffic.windows.zip(outputs.rows) {
        return windows.fills(target, rows, tile);
    }
    // What all rows share was loaded for the panel before.
    let of_rows =
        if traffic.sharing.is_some_and(|n| n <= tile.rows) { 0 } else { 4 * traffic.per_row * tile.rows };
    let fresh = (4 * tile.lanes * traffic.per_vector * tile.vectors + of_rows) as f64;
    let loaded = traffic.steps.map_or(0.0, |steps| steps as f64 * fresh);
    (loaded / l1_room(target) - 1.0).clamp(0.0, 1.0) * fresh / target.machine.caches.line as f64
}

/// Outputs that tiles compute for one that there is. A tile that reaches past the end takes no longer than others: all that do not have a
/// body of their own, where rows have a fixed stride.
pub(crate) fn waste(outputs: &Outputs, tile: Tile) -> f64 {
    let useful = |n: Option<i64>, tile: i64| match n {
        Some(n) => n as f64 / (((n + tile - 1) / tile) * tile) as f64,
        None if tile.count_ones() == 1 => 1.0,
        None => EVEN_OPEN,
    };
    // An open number of vectors is taken for one that is divided.
    let vectors = outputs.vectors.map_or(1.0, |n| useful(Some(n), tile.vectors));
    1.0 / (useful(outputs.rows, tile.rows) * vectors)
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

    /// Elements that a later tap reads again stay in registers, as far as taps are unrolled; each is loaded once.
    #[test]
    fn windows_hold_what_their_rows_have_in_common() {
        let three = Windows { stride: 1, dilation: 1, taps: 3, series: 3 };
        let five = Windows { stride: 2, dilation: 1, taps: 5, series: 5 };
        // Windows of stride 3 have nothing in common.
        let apart = Windows { stride: 3, ..three };
        let live = |windows: Windows| [1, 2, 7].map(|rows| windows.live(rows, false));
        assert_eq!(live(three), [0, 1, 6]);
        // Taps of even and of odd numbers read elements of their own.
        assert_eq!(live(five), [0, 2, 12]);
        assert_eq!(live(apart), [0, 0, 0]);
        // Every other row's windows meet on the elements of a dilated one.
        let dilated = Windows { dilation: 2, ..three };
        assert_eq!(live(dilated), [0, 0, 5]);
        let elements = |windows: Windows| [1, 2, 7].map(|rows| windows.elements(rows));
        assert_eq!(elements(three), [3, 4, 9]);
        assert_eq!(elements(five), [5, 7, 17]);
        assert_eq!(elements(apart), [3, 6, 21]);
        // Odd elements that come with even ones wait for their tap.
        let halved = Windows { stride: 2, ..three };
        assert_eq!([false, true].map(|pairs| halved.live(7, pairs)), [6, 13]);
    }

    /// Fourteen rows of stride 2 would need 14 registers for their sums and 26 for what taps read again; measured on Zen 4 they took 1.15
    /// to 1.3 times as long as seven.
    #[test]
    fn windows_fit_the_registers() {
        let depthwise = Traffic { per_vector: 1, per_accumulator: 1, ..Traffic::default() };
        let target = Target::parse("x86-64-v4;timing=zen4", CodegenKind::Llvm).expect("a known machine");
        let cost = |rows: i64| {
            let windows = Some(Windows { stride: 2, dilation: 1, taps: 7, series: 7 });
            let traffic = Traffic { windows, ..depthwise };
            let outputs = Outputs { lanes: 16, rows: Some(28), vectors: Some(8), depth: Some(49), traffic };
            cost(&target, &outputs, Tile { rows, vectors: 1, lanes: 16 })
        };
        assert!(1.1 * cost(7) < cost(14), "{}, {}", cost(7), cost(14));
    }

    /// The rows of wide windows over several vectors do not stay in L1 from one line of results to the next.
    #[test]
    fn windows_over_fewer_vectors_stay_in_l1() {
        let target = Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a known machine");
        let windows = Windows { stride: 1, dilation: 1, taps: 7, series: 7 };
        let fills = |vectors: i64, image: i64| {
            windows.fills(&target, image, Tile { rows: 4, vectors, lanes: 16 }) / vectors as f64
        };
        // Of seven series that stay one is new.
        assert!((7.0 * fills(1, 28) - fills(4, 112)).abs() < 1e-9, "{}, {}", fills(1, 28), fills(4, 112));
        assert!(fills(4, 28) > fills(1, 28));
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
