//! Blocks that take turns in a loop over steps: recurrences, and attention in blocks of keys.
//!
//! A task has what has nothing in common with the rest: a direction, or a block of queries. Its threads share the results of each block, one
//! block after the other, and meet in between. Sums are in registers for all steps of a block, where a block has such of its own, a small
//! tile of them if its results are many; what blocks hand to one another and nobody else is in shared memory.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::Gpu;
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, IterKind, LoopKind, Scope, ThreadLevel};

use super::threads::LANES;
use crate::context::Context;
use crate::loops::{joined, loops_of};
use crate::packing::pack_constants;
use crate::pattern::iters_of;
use crate::refusal::Refusal;
use crate::rule::Packing;
use crate::strategy::{Domain, list};
use crate::turns::{Nest, accumulates, local_buffers};

/// Most warps of a task: enough to hide what each waits for, and few enough for several tasks on a multiprocessor.
const WARPS: i64 = 8;

/// Rows and columns of a thread's tile: 16 sums for an element of each row and a vector of columns.
const OWN: i64 = 4;

/// Steps that are unrolled: the loads of several are under way, and consecutive ones are one.
const UNROLLED: i64 = 4;

/// What is done to a block in a loop that others are in, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// How many of the loops around it, the innermost, it does not share with other blocks.
    pub n_own: usize,
    /// How many of those that it shares, the outermost, are tasks.
    pub n_tasks: usize,
    /// Rows and columns of a thread's tile, of the last two loops over results.
    pub own: [i64; 2],
    /// Warps that share the results.
    pub warps: i64,
    /// Steps of its own that are unrolled.
    pub unrolled: i64,
    /// Whether its sums are in registers.
    pub is_held: bool,
    /// Constants whose lanes become consecutive.
    pub packings: Vec<Packing>,
    /// Buffers that move to shared memory.
    pub local: Vec<String>,
}

/// `scores: f32[64, 64 | 64], 4x4 by 8 warps, scores shared`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strategy { block, domain, own: [rows, columns], warps, local, packings, .. } = self;
        write!(f, "{block}: {domain}, {rows}x{columns} by {warps} warps")?;
        if !local.is_empty() {
            write!(f, ", {} shared", list(local))?;
        }
        if !packings.is_empty() {
            write!(f, ", constant {}", list(packings))?;
        }
        Ok(())
    }
}

/// Plans a block inside of a loop that others are in, too.
pub(crate) fn plan(context: &Context<'_>, block: &Block) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("turns", &block.name, reason));
    if context.target.gpu.is_none() {
        return refuse("the machine has no GPU");
    }
    if !context.is_as_computed(block) {
        return refuse("the block is scheduled already");
    }
    let nest = Nest::of(context.func, block);
    if nest.shared.is_empty() {
        return refuse("no loop is shared with another block");
    }
    let extents: Option<Vec<i64>> = nest.spatial.iter().map(|l| l.extent.as_int()).collect();
    let Some(extents) = extents.filter(|extents| extents.iter().product::<i64>() > 1) else {
        return refuse("a single result, or results of open extents");
    };
    let lane_loop = extents.iter().rposition(|&n| n != 1).unwrap_or_default();
    let is_driven = |n: &usize| block.iters[*n].value.as_var() == Some(nest.spatial[lane_loop].var);
    let Some(lane) = iters_of(block, IterKind::Spatial).into_iter().find(is_driven) else {
        return refuse("its loops are not its variables");
    };
    let held = nest.has_steps && accumulates(block, lane);
    let own = if held { own_tile(&extents, lane_loop) } else { [1, 1] };
    let results = extents.iter().product::<i64>() / (own[0] * own[1]);
    let (warps, is_whole) = warps_for(results);
    let unrolls = held && last_step(block, &nest).is_some_and(|n| n % UNROLLED == 0);
    let packings = pack_constants(context, &mut context.layouts.clone(), block, lane, LANES);
    let strategy = Strategy {
        block: block.name.clone(),
        domain: Domain::of(context.func, block),
        n_own: context.func.loops_around(&block.name).len() - nest.shared.len(),
        n_tasks: nest.n_apart(block),
        own,
        warps,
        unrolled: if unrolls { UNROLLED } else { 1 },
        is_held: held && is_whole,
        packings,
        local: shared_buffers(context, block),
    };
    // Whether threads write apart, and tasks too, the primitives tell.
    match strategy.apply(&mut Schedule::new(context.func.clone())) {
        Ok(()) => Ok(strategy),
        Err(error) => refuse(&error.to_string()),
    }
}

/// The buffers that a block is the first to write and that move to shared memory.
pub(crate) fn shared_buffers(context: &Context<'_>, block: &Block) -> Vec<String> {
    local_buffers(context, block, &Nest::of(context.func, block), i64::from(Gpu::STATIC_SHARED))
}

/// Iterations of the innermost step that is the block's own, where known.
fn last_step(block: &Block, nest: &Nest<'_>) -> Option<i64> {
    let is_own = |n: &usize| !nest.shared.iter().any(|l| block.iters[*n].value.uses(l.var));
    block.iters[iters_of(block, IterKind::Reduce).into_iter().rfind(is_own)?].extent.as_int()
}

/// Rows and columns of a thread: the most sums of those that leave results for whole warps, or one.
fn own_tile(extents: &[i64], lane_loop: usize) -> [i64; 2] {
    let columns = extents[lane_loop];
    let rows = lane_loop.checked_sub(1).map_or(1, |row| extents[row]);
    if lane_loop + 1 != extents.len() {
        return [1, 1];
    }
    let others: i64 = extents.iter().product::<i64>() / (rows * columns);
    let suits = |[row, column]: &[i64; 2]| {
        rows % row == 0 && columns % column == 0 && (others * rows / row * columns / column) % LANES == 0
    };
    let tiles = (1..=OWN).flat_map(|row| [1, 2, OWN].map(|column| [row, column]));
    tiles.filter(suits).max_by_key(|[row, column]| row * column).unwrap_or([1, 1])
}

/// Warps for so many results, and whether they leave none over.
fn warps_for(results: i64) -> (i64, bool) {
    let most = ((results + LANES - 1) / LANES).clamp(1, WARPS);
    let whole = (1..=most).rev().find(|warps| results % (warps * LANES) == 0);
    (whole.unwrap_or(most), whole.is_some())
}

impl Strategy {
    /// Schedules the block.
    ///
    /// # Errors
    /// Where threads or tasks do not write apart from each other.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let lost = || ScheduleError::new("turns", &self.block, "a loop is lost");
        let around = schedule.loop_names(&self.block)?;
        let (shared, _) = around.split_at(around.len().saturating_sub(self.n_own));
        let own = |names: Vec<String>| names.into_iter().filter(|name| !shared.contains(name));
        let mut steps: Vec<String> = own(loops_of(schedule, &self.block, IterKind::Reduce)?).collect();
        let mut results: Vec<String> = own(loops_of(schedule, &self.block, IterKind::Spatial)?).collect();
        for buffer in &self.local {
            schedule.set_scope(buffer, Scope::Shared)?;
        }
        let mut tile = Vec::new();
        if self.own != [1, 1] {
            let first = results.len().saturating_sub(2);
            let own = &self.own[2 - results.len().min(2)..];
            for (name, own) in results[first..].iter_mut().zip(own.iter().copied()) {
                let parts = schedule.split(name, &[None, Some(own)])?;
                name.clone_from(&parts[0]);
                tile.push(parts[1].clone());
            }
        }
        if let Some(last) = steps.last().cloned().filter(|_| self.unrolled > 1) {
            let parts = schedule.split(&last, &[None, Some(self.unrolled)])?;
            steps.pop();
            steps.extend(parts.clone());
            schedule.unroll(&parts[1])?;
        }
        let order: Vec<&str> = results.iter().chain(&steps).chain(&tile).map(String::as_str).collect();
        schedule.reorder(&order)?;
        for name in &tile {
            schedule.unroll(name)?;
        }
        let all = joined(schedule, &results)?;
        let parts = schedule.split(&all, &[None, Some(self.warps), Some(LANES)])?;
        if self.is_held {
            for copy in schedule.cache_inplace(&self.block, &parts[2], Scope::Register)? {
                let loops = schedule.loop_names(&copy)?;
                let at = loops.iter().position(|name| *name == parts[2]).ok_or_else(lost)?;
                for name in &loops[at + 1..] {
                    schedule.unroll(name)?;
                }
            }
        }
        schedule.bind(&parts[1], ThreadLevel::Warp)?;
        schedule.bind(&parts[2], ThreadLevel::Lane)?;
        let loops = schedule.loops(&self.block)?;
        if loops.first().is_some_and(|l| l.kind != LoopKind::Parallel) && self.n_tasks > 0 {
            let tasks = joined(schedule, &shared[..self.n_tasks.min(shared.len())])?;
            schedule.parallel(&tasks)?;
        }
        Ok(())
    }
}
