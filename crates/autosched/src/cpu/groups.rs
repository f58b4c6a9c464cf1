//! Groups of the results of a step: the tasks of a recurrence whose steps are rounds in order.
//!
//! Where every block of a step computes a unit's results from what it and earlier steps have left, and from other blocks' results for the
//! same unit, units can be shared out to threads that meet after each step. The weights of a recurrence come by in every step: a thread
//! finds those of its units in its own L2, where all of them together would not fit.

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Func};

use crate::context::Context;
use crate::model::machine::n_cores;
use crate::model::tasks::{ENOUGH_TASKS, PARALLEL_GRAIN};
use crate::turns::Nest;

/// Most vectors of results that a step goes on with side by side.
pub(crate) const MAX_VECTORS: i64 = 4;

/// The groups of a block's results that are computed in tasks with those of other blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Groups {
    /// How many there are.
    pub n: i64,
    /// The first block of the loop, whose groups its own are joined to; nothing for that one itself.
    pub first: Option<String>,
    /// Whether it is the last block of the loop: then all of them are joined.
    pub is_last: bool,
}

impl Groups {
    /// The groups of a block in a loop over steps, where there are several, threads to share them, and enough to do for them.
    pub(crate) fn of(context: &Context<'_>, block: &Block) -> Option<Groups> {
        let func = context.func;
        let nest = Nest::of(func, block);
        let [steps] = &nest.shared[..] else { return None };
        let is_inside = |b: &&Block| func.loops_around(&b.name).first().is_some_and(|l| l.var == steps.var);
        let blocks: Vec<&Block> = func.blocks().into_iter().filter(is_inside).collect();
        let units = |block: &&Block| {
            let spatial = Nest::of(func, block).spatial;
            spatial.last().and_then(|l| l.extent.as_int())
        };
        let n_units = blocks.first().and_then(units)?;
        if n_cores(context.target) < 2 || blocks.iter().any(|block| units(block) != Some(n_units)) {
            return None;
        }
        let lanes = i64::from(context.target.lanes(4));
        let work: i64 = blocks.iter().map(|block| elements(func, block)).sum();
        let most = (work / PARALLEL_GRAIN).min(ENOUGH_TASKS).min(n_units / (lanes * MAX_VECTORS));
        let n = (2..=most).rev().find(|n| n_units % (n * lanes) == 0)?;
        let first = blocks.first().map(|first| first.name.clone());
        let is_last = blocks.last().is_some_and(|last| last.name == block.name);
        let names: Vec<&str> = blocks.iter().map(|block| block.name.as_str()).collect();
        let groups = Groups { n, first: first.filter(|first| *first != block.name), is_last };
        (names.len() > 1 && func.may_share_units(&names, n)).then_some(groups)
    }

    /// Joins the loop over its groups to that of the first block, and makes tasks of it where all blocks have done so.
    pub(crate) fn join(&self, schedule: &mut Schedule, group: &str) -> Result<(), ScheduleError> {
        let Some(first) = &self.first else { return Ok(()) };
        let Some(with) = schedule.loop_names(first)?.into_iter().nth(1) else {
            return Err(ScheduleError::new("groups", first, "the loop over its groups is lost"));
        };
        schedule.compute_with(group, &with)?;
        if self.is_last { schedule.parallel(&with) } else { Ok(()) }
    }
}

/// Elements that a step of a block computes, one where an extent is open.
fn elements(func: &Func, block: &Block) -> i64 {
    let own = func.loops_around(&block.name).into_iter().skip(1);
    own.map(|l| l.extent.as_int().unwrap_or(1)).product()
}
