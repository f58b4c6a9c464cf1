//! A thread for each result, or for a few that follow one another: elementwise blocks, pooling, depthwise convolutions, gathers.
//!
//! A reduction has a thread go through all steps of its results, in order.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Expr, Iter, IterKind, Scope};

use super::store::{Store, last_of, shares_loops, store_of};
use super::threads::{Offered, Threads};
use super::tree::hold;
use crate::context::Context;
use crate::decisions::Chooser;
use crate::loops::{joined, loops_of};
use crate::pattern::{
    AccessInfo, Stride, constant_product, domain_simplifier, extents_of, iters_of, loads, stride,
};
use crate::refusal::Refusal;
use crate::strategy::Domain;

/// Results along trailing loops from which on these are enough for a task.
const ROW: i64 = 4096;

/// Bytes that a thread accesses at a time at most.
const ACCESS: usize = 16;

/// What is done to a block of which a thread has results to itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// For a reduction, the block that stores its results: what is computed of them, or a copy.
    pub store: Option<Store>,
    /// How many trailing loops over results are walked as one, which is shared out to threads.
    pub joined: usize,
    /// The threads of a task.
    pub threads: Threads,
}

/// `out: f32[64, 56], rows of 2 by 8 warps of 4 elements a thread`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, ", self.block, self.domain)?;
        self.store.iter().try_for_each(|store| store.fmt(f))?;
        write!(f, "rows of {} by {}", self.joined, self.threads)
    }
}

/// Plans a block whose results do not depend on each other.
pub(crate) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("elements", &block.name, reason));
    let Some(gpu) = context.target.gpu else { return refuse("the machine has no GPU") };
    if !context.is_as_computed(block) || shares_loops(context, block) {
        return refuse("its loops are not its own");
    }
    // Where it is hard to tell which results there are, they wait where they are stored.
    let is_plain = |iter: &Iter| iter.extent.as_int().is_some() || iter.extent.as_var().is_some();
    let waits = block.is_reduction() && block.iters.iter().all(is_plain);
    let store = if waits { store_of(context, block) } else { None };
    // A thread has the results that it stores, and no other one has them too.
    let results = |block: &Block| -> Vec<Expr> {
        iters_of(block, IterKind::Spatial).iter().map(|&n| block.iters[n].extent.clone()).collect()
    };
    let own = results(block);
    let are_several = own.iter().any(|extent| extent.as_int() != Some(1));
    let store = store.filter(|store| are_several && results(last_of(context, block, Some(store))) == own);
    let last = last_of(context, block, store.as_ref());
    let extents = extents_of(last, IterKind::Spatial);
    if extents.is_empty() {
        return refuse("a single result");
    }
    let results =
        constant_product(last.iters.iter().filter(|i| i.kind == IterKind::Spatial).map(|i| &i.extent));
    let threads = |joined: usize| {
        let row = &extents[extents.len() - joined..];
        let elements = if block.is_reduction() { 1 } else { consecutive(context, block, row) };
        Threads::for_results(&gpu, results, elements)
    };
    // A shorter row is as good where results of the longer one cannot be shown to be apart.
    let is_apart = |&joined: &usize| {
        context.func.may_be_threads(&last.name, extents.len(), joined, &threads(joined).factors())
    };
    let Some(joined) = (1..=joined_loops(&extents)).rev().find(is_apart) else {
        return refuse("its results cannot be shown to be apart");
    };
    let are_apart = |threads: &Threads| {
        context.func.may_be_threads(&last.name, extents.len(), joined, &threads.factors())
    };
    let candidates = threads(joined).candidates(are_apart);
    let Offered(threads) = chooser.decide(&block.name, "threads", &candidates)?;
    Ok(Strategy {
        block: block.name.clone(),
        domain: Domain::of(context.func, block),
        store,
        joined,
        threads,
    })
}

/// How many trailing loops are walked as one: those that make a row, or up to the first whose extent is open.
pub(super) fn joined_loops(extents: &[Option<i64>]) -> usize {
    let mut row = 1i64;
    for (n, extent) in extents.iter().rev().enumerate() {
        row = match extent {
            Some(extent) => row.saturating_mul(*extent),
            None => return n + 1,
        };
        if row >= ROW {
            return n + 1;
        }
    }
    extents.len()
}

/// How many results that follow one another a thread may have at a time: where all accesses walk along with them, or stay.
fn consecutive(context: &Context<'_>, block: &Block, row: &[Option<i64>]) -> i64 {
    let row = row.iter().try_fold(1i64, |n, extent| n.checked_mul((*extent)?));
    let bytes =
        block.body.iter().map(|s| context.func.buffers[s.buffer].dtype.bytes()).max().unwrap_or(ACCESS);
    let Some(last) = iters_of(block, IterKind::Spatial).last().map(|&n| &block.iters[n]) else { return 1 };
    let simplifier = domain_simplifier(context.func, block);
    let stores = block.body.iter().map(AccessInfo::of_store);
    let walks = |a: &AccessInfo| stride(context.func, &simplifier, a, last.var) == Stride::Constant(1);
    let accesses = loads(block);
    let stays = |a: &AccessInfo| stride(context.func, &simplifier, a, last.var) == Stride::Zero;
    let divides =
        |n: &i64| row.is_some_and(|row| row % n == 0) && last.extent.as_int().is_some_and(|e| e % n == 0);
    match stores.into_iter().all(|a| walks(&a)) && accesses.iter().all(|a| walks(a) || stays(a)) {
        true => [4, 2].into_iter().find(|n| *n as usize * bytes <= ACCESS && divides(n)).unwrap_or(1),
        false => 1,
    }
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        let store = self.store.as_ref().and_then(Store::taken);
        [self.block.clone()].into_iter().chain(store).collect()
    }

    /// The blocks that it makes.
    pub(crate) fn copies(&self) -> Vec<String> {
        self.store.as_ref().and_then(Store::copy).into_iter().collect()
    }

    /// Schedules the block.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let last = self.store.as_ref().map_or(&self.block, |store| &store.block);
        if self.store.as_ref().is_some_and(|store| store.is_copy) {
            schedule.cache_write(&self.block, Scope::Register)?;
        }
        let mut loops = loops_of(schedule, last, IterKind::Spatial)?;
        let row = loops.split_off(loops.len().saturating_sub(self.joined));
        let row = joined(schedule, &row)?;
        let [task, lane] = self.threads.apply(schedule, &row)?;
        loops.push(task);
        let task = joined(schedule, &loops)?;
        schedule.parallel(&task)?;
        if self.store.is_some() {
            schedule.compute_at(&self.block, &lane)?;
            hold(schedule, &self.block)?;
        }
        let steps = loops_of(schedule, &self.block, IterKind::Reduce)?;
        let starts = schedule.func().block(&self.block).is_some_and(|block| !block.init.is_empty());
        match steps.first().filter(|_| starts) {
            Some(first) => schedule.decompose_reduction(&self.block, first).map(drop),
            None => Ok(()),
        }
    }
}
