//! Tiles of products: what a task computes in the registers of its threads, and which of them suits an extent.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::Gpu;

use super::threads::in_order;
use crate::decisions::Candidate;
use crate::pattern::pieces_of;

/// Rows and columns of a task's tile, from the thread's own to those of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tile {
    /// Rows and columns of a thread.
    pub own: [i64; 2],
    /// Rows and columns of threads of a warp.
    pub lanes: [i64; 2],
    /// Rows and columns of warps.
    pub warps: [i64; 2],
}

/// `128x64of8x8`.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [[rows, columns], [own_rows, own_columns]] = [self.extents(), self.own];
        write!(f, "{rows}x{columns}of{own_rows}x{own_columns}")
    }
}

/// Tiles that are offered, the most economical first. Lanes lie so that a warp's columns are consecutive in shared memory and the elements
/// of both factors that it reads are as few as possible.
///
/// Four warps have the largest: a thread with 8 x 8 results is given some 168 registers, so that a multiprocessor has 12 of their warps, which
/// are three tasks of four, but only one of eight.
const TILES: [Tile; 7] = [
    Tile { own: [8, 8], lanes: [4, 8], warps: [4, 1] },
    Tile { own: [8, 8], lanes: [4, 8], warps: [2, 2] },
    Tile { own: [8, 8], lanes: [4, 8], warps: [2, 1] },
    Tile { own: [4, 4], lanes: [4, 8], warps: [4, 2] },
    Tile { own: [4, 4], lanes: [4, 8], warps: [2, 2] },
    Tile { own: [4, 4], lanes: [4, 8], warps: [2, 1] },
    Tile { own: [4, 4], lanes: [2, 16], warps: [2, 1] },
];

/// Steps that both factors are fetched for at a time, the best first: enough to hide the barriers, and few enough for several tasks' shared
/// memory and the unrolled loop's code.
const STEPS: [i64; 6] = [16, 8, 9, 12, 7, 4];

/// Stages of a pipeline, the best first. Memory answers after about 500 cycles, and a multiprocessor works longer than that on the 8 steps of
/// its large tiles; small ones need more of them under way.
const STAGES: [u32; 2] = [4, 2];

/// Registers of a thread for addresses and loop counters.
pub(crate) const ADDRESSES: i64 = 32;

/// Instructions for an element that is copied: the copy, its address, and its part of a branch.
const COPY: f64 = 2.0;

/// Instructions of a loop over steps for each of them: counters, versions of the shared arrays, waits and branches, some 24 for 8 steps.
const LOOP: f64 = 3.0;

/// Cycles of a step in which no warp of a multiprocessor begins an instruction, for all wait for what they load from shared memory, or at a barrier.
/// On an H100 one warp for each scheduler takes 47 for a step of 22 instructions.
const WAIT: f64 = 25.0;

/// Instructions of a warp that a multiprocessor begins in a cycle.
pub(crate) const WARPS_PER_CYCLE: i64 = 4;

/// Extents of a product, where known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    /// Products of the same extents.
    pub(crate) batch: Option<i64>,
    /// Rows.
    pub(crate) rows: Option<i64>,
    /// Columns.
    pub(crate) columns: Option<i64>,
}

/// What is taken for an open extent.
const OPEN: i64 = 512;

impl Extents {
    /// Products, rows and columns, with a number for those that are open.
    pub(crate) fn assumed(self) -> [i64; 3] {
        [self.batch, self.rows, self.columns].map(|extent| extent.unwrap_or(OPEN))
    }
}

impl Tile {
    /// Rows and columns of the whole.
    pub(crate) fn extents(&self) -> [i64; 2] {
        [0, 1].map(|n| self.own[n] * self.lanes[n] * self.warps[n])
    }

    /// Warps of a task.
    pub(crate) fn n_warps(&self) -> i64 {
        self.warps[0] * self.warps[1]
    }

    /// Cycles of a multiprocessor for a step of the whole product, as if tiles could be divided among all.
    fn cycles(&self, gpu: &Gpu, extents: Extents) -> f64 {
        let tiles = pieces_of(self.tiles(extents), i64::from(gpu.multiprocessors));
        let resident = tiles.min(self.resident(gpu));
        tiles as f64 / resident as f64 * self.cycles_of(resident)
    }

    /// As [`Tile::cycles`], by rounds of as many tiles as all multiprocessors have room for. Those of the last round go to multiprocessors that
    /// are free first, so that some get one more than their share: on an H200 the product of 2048 takes 0.49 ms by 1.3 rounds, and 0.42 ms in two
    /// parts by 2.6. Of two tiles the smaller one has the shorter last round, but takes longer by more than that; so tiles are not chosen by this.
    pub(crate) fn cycles_by_rounds(&self, gpu: &Gpu, extents: Extents) -> f64 {
        let (multiprocessors, resident) = (i64::from(gpu.multiprocessors), self.resident(gpu));
        let (tiles, of_round) = (self.tiles(extents), multiprocessors * resident);
        let share = pieces_of(tiles % of_round, multiprocessors);
        let last = match share {
            0 => 0.0,
            share if tiles > of_round => self.cycles_of(resident.min(share + 1)),
            share => self.cycles_of(share),
        };
        (tiles / of_round) as f64 * self.cycles_of(resident) + last
    }

    /// Cycles of a step of so many tiles that a multiprocessor has at the same time. A thread's step has a multiply-add for each of its results, a
    /// load from shared memory for each four elements of either factor, its part of the copies, and what a loop takes. A multiprocessor begins
    /// four warps' instructions in a cycle, and one of these loads (128 bytes a cycle; CUDA C++ Programming Guide). The fewer warps it
    /// has, the more of the time all of them wait.
    fn cycles_of(&self, tiles: i64) -> f64 {
        let [own_rows, own_columns] = self.own;
        let [rows, columns] = self.extents();
        let loads = ((own_rows + own_columns) / 4) as f64;
        let copies = (rows + columns) as f64 / (self.n_warps() * i64::from(Gpu::LANES)) as f64;
        let instructions = (own_rows * own_columns) as f64 + loads + COPY * copies + LOOP;
        let begun = instructions / WARPS_PER_CYCLE as f64;
        // Loads overlap with the rest, but each waits for the other now and then.
        let step = begun.max(loads) + begun.min(loads) / 4.0;
        ((tiles * self.n_warps()) as f64 * step).max(instructions) + WAIT
    }

    /// Tiles of a product.
    pub(crate) fn tiles(&self, extents: Extents) -> i64 {
        let ([own_rows, own_columns], [batch, rows, columns]) = (self.extents(), extents.assumed());
        batch * pieces_of(rows, own_rows) * pieces_of(columns, own_columns)
    }

    /// Tiles that a multiprocessor has at the same time, at most.
    fn resident(&self, gpu: &Gpu) -> i64 {
        let threads = (self.n_warps() * i64::from(Gpu::LANES)) as u32;
        i64::from(gpu.resident_blocks(threads, self.registers() as u32, 0)).max(1)
    }

    /// Registers of a thread: results, and half as many for what is loaded ahead; the parts of both factors for a step and the next; addresses.
    fn registers(&self) -> i64 {
        let [rows, columns] = self.own;
        rows * columns * 3 / 2 + 2 * (rows + columns) + ADDRESSES
    }

    /// Stages of the pipeline that fetches the factors: first as many as make a multiprocessor hold no fewer tasks, and as there are
    /// steps for; then what else there is room for. So many steps are fetched at a time, and for each some elements stay unused.
    pub(crate) fn stages(
        &self,
        gpu: &Gpu,
        steps: Option<i64>,
        [at_a_time, apart]: [i64; 2],
    ) -> Vec<Candidate<u32>> {
        let rounds = steps.map_or(i64::MAX, |steps| pieces_of(steps, at_a_time));
        let [rows, columns] = self.extents();
        let bytes = (rows + columns + apart) * at_a_time * size_of::<f32>() as i64;
        let resident = |stages: u32| {
            let shared = bytes * i64::from(stages);
            let threads = self.n_warps() * i64::from(Gpu::LANES);
            gpu.resident_blocks(threads as u32, self.registers() as u32, shared as u32)
        };
        let runs = |stages: u32| {
            let has_room = bytes * i64::from(stages) <= i64::from(Gpu::STATIC_SHARED);
            i64::from(stages) <= rounds && has_room && resident(stages) > 0
        };
        let keeps = |stages: &u32| runs(*stages) && resident(*stages) == resident(1);
        let best = STAGES.into_iter().find(keeps).unwrap_or(1);
        let others = STAGES.into_iter().chain([1]).filter(|&n| n != best && (n == 1 || runs(n)));
        in_order([best].into_iter().chain(others).collect(), |stages| {
            vec![("stages", f64::from(*stages).log2())]
        })
    }

    /// The tiles that suit a product, the cheapest first.
    pub(crate) fn candidates(gpu: &Gpu, extents: Extents) -> Vec<Candidate<Tile>> {
        let fits = |tile: &Tile| {
            let [rows, columns] = tile.extents();
            let is_used = |extent: Option<i64>, tile: i64| extent.is_none_or(|extent| 2 * extent > tile);
            is_used(extents.rows, rows) && is_used(extents.columns, columns)
        };
        let smallest = TILES.len() - 1;
        let offered = TILES.iter().enumerate().filter(|(n, tile)| *n == smallest || fits(tile));
        let candidate = |(_, tile): (usize, &Tile)| {
            let cost = tile.cycles(gpu, extents);
            Candidate { value: *tile, cost, features: vec![("tile.cycles", cost.log2())] }
        };
        let mut candidates: Vec<Candidate<Tile>> = offered.map(candidate).collect();
        candidates.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        candidates
    }
}

/// Steps that are fetched at a time: a divisor of all, if there is one, so that none is left over.
pub(crate) fn steps_at_a_time(all: Option<i64>) -> i64 {
    let divides = |n: &&i64| all.is_some_and(|all| all % **n == 0);
    let short = all.filter(|&n| n < STEPS[0]);
    short.or_else(|| STEPS.iter().find(divides).copied()).unwrap_or(STEPS[0])
}

/// Steps that may be fetched at a time: [`steps_at_a_time`], then others that leave none over.
pub(crate) fn depths(all: Option<i64>) -> Vec<Candidate<i64>> {
    let best = steps_at_a_time(all);
    let divides = |n: &i64| *n != best && all.is_some_and(|all| all % *n == 0);
    let offered = [best].into_iter().chain(STEPS.into_iter().filter(divides));
    in_order(offered.collect(), |steps| vec![("depth", (*steps as f64).log2())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(batch: i64, rows: i64, columns: i64) -> String {
        let gpu = "sm_90".parse().expect("a GPU");
        let extents = Extents { batch: Some(batch), rows: Some(rows), columns: Some(columns) };
        Tile::candidates(&gpu, extents)[0].value.to_string()
    }

    #[test]
    fn large_products_get_large_tiles_and_small_ones_get_many() {
        assert_eq!(best(1, 4096, 4096), "128x64of8x8");
        assert_eq!(best(1, 512, 49), "32x32of4x4");
        assert_eq!(best(1, 10, 3000), "16x64of4x4");
    }

    #[test]
    fn there_are_stages_where_shared_memory_is_left() {
        let gpu: Gpu = "sm_80".parse().expect("a GPU");
        let stages = |tile: usize, steps: i64| TILES[tile].stages(&gpu, Some(steps), [8, 0])[0].value;
        assert_eq!([stages(0, 1024), stages(5, 4608)], [4, 4]);
        assert_eq!([stages(0, 8), stages(0, 16), stages(0, 32)], [1, 2, 4]);
        let offered = |tile: usize| -> Vec<u32> {
            TILES[tile]
                .stages(&gpu, Some(1024), [8, 0])
                .into_iter()
                .map(|candidate| candidate.value)
                .collect()
        };
        assert_eq!(offered(0), [4, 2, 1]);
    }

    #[test]
    fn other_steps_are_offered_that_leave_none_over() {
        let offered = |all| depths(all).into_iter().map(|candidate| candidate.value).collect::<Vec<_>>();
        assert_eq!(offered(Some(48)), [16, 8, 12, 4]);
        assert_eq!([offered(Some(5)), offered(None)], [[5], [16]]);
    }

    #[test]
    fn steps_are_a_divisor_of_all_where_there_is_one() {
        assert_eq!(
            [Some(576), Some(27), Some(147), Some(5), Some(11), None].map(steps_at_a_time),
            [16, 9, 7, 5, 11, 16]
        );
    }
}
