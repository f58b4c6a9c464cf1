//! Reductions of many steps to few results: a warp for each result, or a task.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::DeviceKind;
use tilewright_te::schedule::{Schedule, ScheduleError, indivisible};
use tilewright_te::{Block, IterKind, Scope, ThreadLevel};

use super::store::{Store, last_of, shares_loops, store_of};
use super::threads::{LANES, in_order};
use super::tree::{Walk, reduce_in_task, reduce_in_warp};
use crate::context::Context;
use crate::decisions::{Candidate, Chooser};
use crate::loops::joined;
use crate::pattern::{
    AccessInfo, Stride, constant_product, domain_simplifier, extents_of, iters_of, loads, stride, walks,
};
use crate::refusal::Refusal;
use crate::strategy::Domain;

/// Steps from which on a task takes a result rather than a warp, if there are few.
pub(super) const STEPS_OF_TASK: i64 = 4096;

/// Warps of a task that takes a result. Their threads divide its steps, where these are known: what is left over could not be told from a
/// result that is left out.
pub(crate) const WARPS: i64 = 8;

/// What is done to a reduction of many steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// The block that stores its results.
    pub store: Store,
    /// Who takes a result.
    pub by: Group,
    /// How a lane goes through the steps.
    pub walk: Walk,
}

/// The threads that reduce together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Group {
    /// A warp; so many are a task.
    Warp(i64),
    /// A task of so many warps.
    Task(i64),
}

/// A group as a value of a decision: `warp4` for four warps of a task, each with a result, and `task8` for a task of eight with one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered(pub(crate) Group);

impl fmt::Display for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Group::Warp(n) => write!(f, "warp{n}"),
            Group::Task(n) => write!(f, "task{n}"),
        }
    }
}

impl Group {
    /// Groups that are offered.
    const ALL: [Group; 6] = [
        Group::Warp(4),
        Group::Warp(2),
        Group::Warp(1),
        Group::Task(WARPS),
        Group::Task(WARPS / 2),
        Group::Task(WARPS / 4),
    ];

    /// This group and the others that `fits` says so of.
    pub(crate) fn candidates(self, fits: impl Fn(&Group) -> bool) -> Vec<Candidate<Offered>> {
        let others = Group::ALL.into_iter().filter(|group| *group != self && fits(group));
        in_order([self].into_iter().chain(others).map(Offered).collect(), |Offered(group)| {
            let [of_warps, of_tasks] = match group {
                Group::Warp(n) => [(*n as f64).log2(), 0.0],
                Group::Task(n) => [0.0, (*n as f64).log2()],
            };
            vec![("group.warps", of_warps), ("group.task", of_tasks)]
        })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Warp(n) => write!(f, "by a warp each, {n} a task"),
            Group::Task(n) => write!(f, "by a task of {n} warps each"),
        }
    }
}

/// `sum: f32[64 | 1024], by a warp each, 4 a task`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, ", self.block, self.domain)?;
        self.store.fmt(f)?;
        self.by.fmt(f)?;
        self.walk.fmt(f)
    }
}

/// Plans a reduction whose steps are shared out to lanes: where its results are too few for a thread each, or its steps lie consecutive.
pub(crate) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("reduction", &block.name, reason));
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
    let steps = constant_product(iters_of(block, IterKind::Reduce).iter().map(|&n| &block.iters[n].extent));
    let results =
        constant_product(iters_of(block, IterKind::Spatial).iter().map(|&n| &block.iters[n].extent));
    if extents_of(block, IterKind::Spatial).is_empty() {
        return refuse("a single result");
    }
    if steps.is_some_and(|n| n < LANES) {
        return refuse("few steps");
    }
    let multiprocessors = i64::from(gpu.multiprocessors);
    let few = results.is_some_and(|n| n < 4 * LANES * multiprocessors);
    if !few && !walks_by_steps(context, block) {
        return refuse("a thread each goes through what lies together");
    }
    let Some(store) = store_of(context, block) else { return refuse("its results cannot wait in registers") };
    let long = steps.is_none_or(|n| n >= STEPS_OF_TASK && n % (WARPS * LANES) == 0);
    let fills = |n: i64| fills(context, n, results);
    let last = last_of(context, block, Some(&store));
    let rank = last.iters.iter().filter(|iter| iter.kind == IterKind::Spatial).count();
    let is_apart = |n: i64| context.func.may_be_threads(&last.name, rank, rank, &[None, Some(n)]);
    let by = match results {
        Some(n) if n < multiprocessors && long => Group::Task(WARPS),
        _ => Group::Warp([4, 2].into_iter().find(|&n| fills(n) && is_apart(n)).unwrap_or(1)),
    };
    let Offered(by) = chooser.decide(
        &block.name,
        "group",
        &by.candidates(|group| match group {
            Group::Warp(n) => *n == 1 || (fills(*n) && is_apart(*n)),
            Group::Task(n) => steps.is_some_and(|steps| steps % (n * LANES) == 0),
        }),
    )?;
    let lanes = match by {
        Group::Warp(_) => LANES,
        Group::Task(warps) => warps * LANES,
    };
    let walk = Walk::of(steps, run_of_steps(context, block), lanes);
    Ok(Strategy { block: block.name.clone(), domain: Domain::of(context.func, block), store, by, walk })
}

/// How many steps follow one another in memory, where all that moves with them does.
fn run_of_steps(context: &Context<'_>, block: &Block) -> Option<i64> {
    let simplifier = domain_simplifier(context.func, block);
    let last = &block.iters[*iters_of(block, IterKind::Reduce).last()?];
    let strides = loads(block).into_iter().map(|a| context.stride(&simplifier, &a, last.var));
    walks(&strides.collect::<Vec<_>>()).then(|| last.extent.as_int())?
}

/// Whether so many warps a task may take so many results, where that is known, a warp each.
pub(super) fn fills(context: &Context<'_>, warps: i64, results: Option<i64>) -> bool {
    // OpenCL has no shuffle but one that all warps of a task come to.
    let all_come = context.target.device == Some(DeviceKind::OpenCl);
    results.map_or(!all_come, |all| all >= warps && (!all_come || all % warps == 0))
}

/// Whether what is read lies consecutive along the steps, and not along the results.
fn walks_by_steps(context: &Context<'_>, block: &Block) -> bool {
    let simplifier = domain_simplifier(context.func, block);
    let last = |kind| iters_of(block, kind).last().map(|&n| block.iters[n].var);
    let (Some(step), Some(result)) = (last(IterKind::Reduce), last(IterKind::Spatial)) else { return false };
    let accumulators: Vec<_> = block.body.iter().map(|store| store.buffer).collect();
    let reads = loads(block).into_iter().filter(|a| !accumulators.contains(&a.buffer));
    let walk = |a: &AccessInfo, var| stride(context.func, &simplifier, a, var) == Stride::Constant(1);
    let reads: Vec<AccessInfo> = reads.collect();
    reads.iter().any(|a| walk(a, step)) && !reads.iter().any(|a| walk(a, result))
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        let store = self.store.taken();
        [self.block.clone()].into_iter().chain(store).collect()
    }

    /// The blocks that it makes.
    pub(crate) fn copies(&self) -> Vec<String> {
        self.store.copy().into_iter().collect()
    }

    /// Schedules the block.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        if self.store.is_copy {
            schedule.cache_write(&self.block, Scope::Register)?;
        }
        let loops = schedule.loop_names(&self.store.block)?;
        let results = joined(schedule, &loops)?;
        match self.by {
            Group::Warp(n) => {
                let parts = schedule.split(&results, &[None, Some(n)])?;
                schedule.bind(&parts[1], ThreadLevel::Warp)?;
                reduce_in_warp(schedule, &self.block, &parts[1], self.walk)?;
                schedule.parallel(&parts[0])
            }
            Group::Task(warps) => {
                reduce_in_task(schedule, &self.block, &results, warps, self.walk)?;
                schedule.parallel(&results)
            }
        }
    }
}
