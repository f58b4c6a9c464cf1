//! Row by row: softmax, normalisations, and whatever else combines the elements of a row and then uses the result on each of them.
//!
//! All blocks of such a function are one kernel. A warp has a short row, a task a long one; what they combine goes from lane to lane.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError, indivisible};
use tilewright_te::{Block, Scope, ThreadLevel};

use super::reduction::{Group, Offered, WARPS};
use super::threads::{LANES, Threads};
use super::tree::{Walk, hold, reduce_in_task, reduce_in_warp};
use crate::context::Context;
use crate::decisions::Chooser;
use crate::loops::joined;
use crate::pattern::{constant_product, leading_dims, row_temporaries};
use crate::refusal::Refusal;
use crate::strategy::Domain;

/// Elements of a row from which on a task takes it rather than a warp.
const ROW_OF_TASK: i64 = 2048;

/// Bytes of what blocks compute of the rows of a task that stay in shared memory: a multiprocessor has several tasks.
const SHARED: i64 = 32 << 10;

/// What is done to a function of rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// What its last block computes.
    pub domain: Domain,
    /// The blocks, in order; the last one's loops are around all.
    pub blocks: Vec<RowBlock>,
    /// How many of the last block's loops, the outermost, go over rows.
    pub rows: usize,
    /// Who takes a row.
    pub by: Group,
}

/// A block of a function of rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RowBlock {
    /// The block.
    pub name: String,
    /// What it makes of a row.
    pub kind: RowKind,
}

/// What a block makes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RowKind {
    /// An element for each, that of the function or in memory that the task or the caller has.
    Elements {
        /// Whether it is shared memory.
        shared: bool,
    },
    /// One value, combined of all.
    Combined,
    /// One value, of other values.
    Value,
}

/// `rows of 1 loops by a warp each, 4 a task: max combined, exp shared, sum combined, out`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, rows of {} loops {}:", self.domain, self.rows, self.by)?;
        for (n, RowBlock { name, kind }) in self.blocks.iter().enumerate() {
            write!(f, "{} {name}", if n > 0 { "," } else { "" })?;
            f.write_str(match kind {
                RowKind::Elements { shared: true } => " shared",
                RowKind::Elements { shared: false } => "",
                RowKind::Combined => " combined",
                RowKind::Value => " a value",
            })?;
        }
        Ok(())
    }
}

/// Plans a whole function row by row.
///
/// # Errors
/// Where it is no such function.
pub(crate) fn plan(context: &Context<'_>, chooser: &mut Chooser<'_>) -> Result<Strategy, Refusal> {
    let func = context.func;
    let refuse = |reason: &str| Err(Refusal::new("rows", &func.name, reason));
    if context.target.gpu.is_none() {
        return refuse("the machine has no GPU");
    }
    let blocks = func.blocks();
    let Some((&last, producers)) = blocks.split_last() else { return refuse("nothing to do") };
    let Some(n_rows) = leading_dims(func, last, producers) else {
        return refuse("its blocks do not share rows");
    };
    let (outer, inner) = last.iters.split_at(n_rows);
    let row = constant_product(inner.iter().map(|i| &i.extent));
    if row.is_some_and(|n| n < LANES) {
        return refuse("its rows are short");
    }
    // All warps of a task have a row, so that they may wait for one another.
    let rows = constant_product(outer.iter().map(|i| &i.extent));
    // Those of a task have the last of the outer loops in common, else their temporaries would be as large as all that these go through.
    let innermost = outer.iter().rev().find_map(|i| i.extent.as_int().filter(|n| *n != 1));
    let divides =
        |n: &i64| rows.is_some_and(|rows| rows % n == 0) && innermost.is_some_and(|last| last % n == 0);
    let by = match row {
        Some(n) if n < ROW_OF_TASK || n % (WARPS * LANES) != 0 => {
            Group::Warp([4, 2].into_iter().find(divides).unwrap_or(1))
        }
        Some(_) | None => Group::Task(WARPS),
    };
    let rank = last.iters.len();
    let are_apart = |by: &Group| {
        let threads = Threads { warps: warps(*by), elements: 1 };
        func.may_be_threads(&last.name, rank, inner.len(), &threads.factors())
            && func.may_be_threads(&last.name, outer.len(), outer.len(), &threads.factors())
    };
    if !are_apart(&by) {
        return refuse("its elements cannot be shown to be apart");
    }
    let candidates = by.candidates(|group| {
        let fits = match group {
            Group::Warp(n) => *n == 1 || divides(n),
            Group::Task(n) => row.is_some_and(|row| row % (n * LANES) == 0),
        };
        fits && are_apart(group)
    });
    let Offered(by) = chooser.decide(&last.name, "group", &candidates)?;
    let of_task = if let Group::Warp(n) = by { n } else { 1 };
    let shared = row.is_some_and(|row| of_task * row_temporaries(func, producers, row) <= SHARED);
    let mut planned = Vec::new();
    for block in producers {
        planned.push(plan_producer(context, block, n_rows, shared)?);
    }
    planned.push(RowBlock { name: last.name.clone(), kind: RowKind::Elements { shared: false } });
    Ok(Strategy { domain: Domain::of(func, last), blocks: planned, rows: n_rows, by })
}

fn warps(by: Group) -> i64 {
    match by {
        Group::Warp(n) | Group::Task(n) => n,
    }
}

fn plan_producer(
    context: &Context<'_>,
    block: &Block,
    n_rows: usize,
    shared: bool,
) -> Result<RowBlock, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("rows", &block.name, reason));
    if !context.func.is_sole_writer(block) {
        return refuse("another block writes what it writes");
    }
    if let Some(reason) = indivisible(block).filter(|_| block.is_reduction()) {
        return refuse(reason);
    }
    let own = block.iters.get(n_rows..).unwrap_or(&[]);
    let is_value = constant_product(own.iter().map(|i| &i.extent)) == Some(1);
    let kind = match (block.is_reduction(), is_value) {
        (true, _) => RowKind::Combined,
        (false, true) => RowKind::Value,
        (false, false) => RowKind::Elements { shared },
    };
    Ok(RowBlock { name: block.name.clone(), kind })
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        self.blocks.iter().map(|block| block.name.clone()).collect()
    }

    /// Schedules the function.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let lost = || ScheduleError::new("rows", "function", "there are no rows");
        let (last, producers) = self.blocks.split_last().ok_or_else(lost)?;
        let loops = schedule.loop_names(&last.name)?;
        let (outer, columns) = loops.split_at(self.rows.min(loops.len()));
        let rows = joined(schedule, outer)?;
        let (task, around) = match self.by {
            Group::Warp(n) => {
                let parts = schedule.split(&rows, &[None, Some(n)])?;
                schedule.bind(&parts[1], ThreadLevel::Warp)?;
                (parts[0].clone(), parts[1].clone())
            }
            Group::Task(_) => (rows.clone(), rows),
        };
        self.share(schedule, columns)?;
        for RowBlock { name, kind } in producers.iter().rev() {
            match kind {
                RowKind::Elements { shared } => {
                    let made = schedule.compute_at(name, &around)?;
                    self.share(schedule, made.get(self.rows..).unwrap_or(&[]))?;
                    for buffer in schedule.block_info(name)?.writes.iter().filter(|_| *shared) {
                        schedule.set_scope(buffer, Scope::Shared)?;
                    }
                }
                RowKind::Value => {
                    schedule.compute_at(name, &around)?;
                    hold(schedule, name)?;
                }
                RowKind::Combined => match self.by {
                    Group::Warp(_) => reduce_in_warp(schedule, name, &around, Walk::PLAIN)?,
                    Group::Task(warps) => reduce_in_task(schedule, name, &around, warps, Walk::PLAIN)?,
                },
            }
        }
        schedule.parallel(&task)
    }

    /// Shares the columns of a row out to the threads that have it.
    fn share(&self, schedule: &mut Schedule, columns: &[String]) -> Result<(), ScheduleError> {
        let row = joined(schedule, columns)?;
        match self.by {
            Group::Warp(_) => {
                let parts = schedule.split(&row, &[None, Some(LANES)])?;
                schedule.bind(&parts[1], ThreadLevel::Lane)
            }
            Group::Task(warps) => Threads { warps, elements: 1 }.apply(schedule, &row).map(drop),
        }
    }
}
