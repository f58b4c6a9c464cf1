//! Reductions of columns: what is read lies consecutive along the results. A lane has a result, and the warps of a task share its steps.
//!
//! A warp reads a piece of a row at a time; what the warps have of a result meets in shared memory.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError, indivisible};
use tilewright_te::{Block, IterKind, Scope, ThreadLevel};

use super::store::{Store, last_of, shares_loops, store_of};
use super::threads::{LANES, in_order};
use super::tree::{hold, parts_of_warps};
use crate::context::Context;
use crate::decisions::{Candidate, Chooser};
use crate::loops::{joined, loops_of};
use crate::pattern::{constant_product, domain_simplifier, iters_of, loads, walks};
use crate::refusal::Refusal;
use crate::strategy::Domain;

/// Warps of a task at most: half of what a task may have, so that a multiprocessor has room for another one.
const WARPS: i64 = 16;

/// Loads of a thread that are under way at a time: 16 warps of them are 16 KiB, which hides the latency of memory on every multiprocessor.
const AT_ONCE: [i64; 4] = [8, 4, 2, 1];

/// What is done to a reduction of columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// The block that stores its results.
    pub store: Store,
    /// Warps of a task, each with steps of the same results.
    pub warps: i64,
    /// Steps of a warp that are unrolled.
    pub at_once: i64,
}

/// `sum: f32[4096 | 512], columns by 16 warps, 8 steps at once`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, ", self.block, self.domain)?;
        self.store.fmt(f)?;
        write!(f, "columns by {} warps, {} steps at once", self.warps, self.at_once)
    }
}

/// Plans a reduction whose results are too few for a thread each, and which reads along them.
///
/// # Errors
/// Where it is no such reduction.
pub(crate) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("columns", &block.name, reason));
    let Some(gpu) = context.target.gpu else { return refuse("the machine has no GPU") };
    if !context.is_as_computed(block) || shares_loops(context, block) {
        return refuse("its loops are not its own");
    }
    if !block.is_commutative() {
        return refuse("its steps may not run in any order");
    }
    if let Some(reason) = indivisible(block) {
        return refuse(reason);
    }
    if !walks_by_results(context, block) {
        return refuse("it does not read along its results");
    }
    let product = |kind| constant_product(iters_of(block, kind).iter().map(|&n| &block.iters[n].extent));
    let (Some(steps), Some(results)) = (product(IterKind::Reduce), product(IterKind::Spatial)) else {
        return refuse("its extents are open");
    };
    let multiprocessors = i64::from(gpu.multiprocessors);
    if results >= 4 * LANES * multiprocessors {
        return refuse("there are results enough for a thread each");
    }
    if results < LANES * multiprocessors / 4 {
        return refuse("there are too few results for a lane each");
    }
    let Some(store) = store_of(context, block) else { return refuse("its results cannot wait in registers") };
    let last = last_of(context, block, Some(&store));
    let rank = last.iters.iter().filter(|iter| iter.kind == IterKind::Spatial).count();
    if !context.func.may_be_threads(&last.name, rank, 1, &[None, Some(1), Some(LANES)]) {
        return refuse("its results cannot be shown to be apart");
    }
    let offered = offers(steps);
    if offered.is_empty() {
        return refuse("warps do not divide its steps");
    }
    let warps = chooser.decide(&block.name, "warps", &offered)?;
    let at_once = AT_ONCE.into_iter().find(|n| steps / warps % n == 0).unwrap_or(1);
    Ok(Strategy { block: block.name.clone(), domain: Domain::of(context.func, block), store, warps, at_once })
}

/// Numbers of warps that divide the steps, the most first. What is left over could not be told from a result that is left out.
fn offers(steps: i64) -> Vec<Candidate<i64>> {
    let divides = (2..=WARPS).rev().filter(|warps| steps % warps == 0).collect();
    in_order(divides, |&warps| vec![("columns.warps", (warps as f64).log2())])
}

/// Whether all that is read lies consecutive along the last of the results, or stays.
fn walks_by_results(context: &Context<'_>, block: &Block) -> bool {
    let simplifier = domain_simplifier(context.func, block);
    let Some(&last) = iters_of(block, IterKind::Spatial).last() else { return false };
    if block.iters[last].extent.as_int().is_none_or(|extent| extent < LANES) {
        return false;
    }
    let accumulators: Vec<_> = block.body.iter().map(|store| store.buffer).collect();
    let reads = loads(block).into_iter().filter(|a| !accumulators.contains(&a.buffer));
    let strides = reads.map(|a| context.stride(&simplifier, &a, block.iters[last].var));
    walks(&strides.collect::<Vec<_>>())
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        [self.block.clone()].into_iter().chain(self.store.taken()).collect()
    }

    /// The blocks that it makes.
    pub(crate) fn copies(&self) -> Vec<String> {
        self.store.copy().into_iter().collect()
    }

    /// Schedules the block.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let lost = || ScheduleError::new("columns", &self.block, "a loop is lost");
        if self.store.is_copy {
            schedule.cache_write(&self.block, Scope::Register)?;
        }
        let mut tasks = schedule.loop_names(&self.store.block)?;
        let columns = tasks.pop().ok_or_else(lost)?;
        let parts = schedule.split(&columns, &[None, Some(LANES)])?;
        let lane = parts[1].clone();
        tasks.push(parts[0].clone());
        let task = joined(schedule, &tasks)?;
        schedule.bind(&lane, ThreadLevel::Lane)?;
        let steps = loops_of(schedule, &self.block, IterKind::Reduce)?;
        let steps = joined(schedule, &steps)?;
        let parts = schedule.split(&steps, &[None, Some(self.warps), Some(self.at_once)])?;
        let partial = schedule.rfactor(&self.block, &parts[1])?;
        schedule.compute_at(&self.block, &lane)?;
        hold(schedule, &self.block)?;
        for name in loops_of(schedule, &self.block, IterKind::Reduce)? {
            schedule.unroll(&name)?;
        }
        let steps = parts_of_warps(schedule, &partial, &task)?;
        if let Some(at_once) = steps.get(1) {
            schedule.unroll(at_once)?;
        }
        schedule.parallel(&task)
    }
}
