//! Row by row: softmax, normalisations, and whatever else combines the elements of a row and then uses the result on each of them.
//!
//! All blocks of such a function are one kernel. A warp has a short row, a task a long one; what they combine goes from lane to lane. A row
//! whose elements fit in the registers of its threads is read once.

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
use crate::pattern::{
    AccessInfo, Stride, constant_product, domain_simplifier, leading_dims, loads, row_temporaries,
};
use crate::refusal::Refusal;
use crate::strategy::Domain;

/// Elements of a row from which on a task takes it rather than a warp.
const ROW_OF_TASK: i64 = 2048;

/// Bytes of what blocks compute of the rows of a task that stay in shared memory: a multiprocessor has several tasks.
const SHARED: i64 = 32 << 10;

/// Elements of a row, and of what blocks compute of it, that a thread keeps in registers at most.
pub(super) const IN_REGISTERS: i64 = 32;

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
    /// How a lane goes through a row.
    pub walk: Walk,
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
    /// An element for each.
    Elements {
        /// Where they are.
        scope: Scope,
    },
    /// One value, combined of all.
    Combined,
    /// One value, of other values.
    Value,
}

/// `rows of 1 loops by a warp each, 4 a task, 4 by 4 steps a lane: max combined, exp in registers, sum combined, out`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, rows of {} loops {}{}:", self.domain, self.rows, self.by, self.walk)?;
        for (n, block) in self.blocks.iter().enumerate() {
            write!(f, "{} {block}", if n > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// `exp in registers`.
impl fmt::Display for RowBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        f.write_str(match self.kind {
            RowKind::Elements { scope: Scope::Register } => " in registers",
            RowKind::Elements { scope: Scope::Shared } => " shared",
            RowKind::Elements { .. } => "",
            RowKind::Combined => " combined",
            RowKind::Value => " a value",
        })
    }
}

/// Plans a whole function row by row.
///
/// # Errors
/// Where it is no such function.
pub(crate) fn plan(context: &Context<'_>, chooser: &mut Chooser<'_>) -> Result<Strategy, Refusal> {
    let func = context.func;
    let refuse = |reason: &str| Err(Refusal::new("rows", &func.name, reason));
    let Some(gpu) = context.target.gpu else { return refuse("the machine has no GPU") };
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
    let is_of_task = match row {
        Some(n) => n >= ROW_OF_TASK && n % (WARPS * LANES) == 0,
        // Rows of open length are taken to be short, unless there are too few of them for all multiprocessors.
        None => rows.is_some_and(|rows| rows < i64::from(gpu.multiprocessors)),
    };
    let by = match is_of_task {
        true => Group::Task(WARPS),
        false => Group::Warp([4, 2].into_iter().find(divides).unwrap_or(1)),
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
    let (walk, scope) = kept(context, &blocks, n_rows, by);
    let mut planned = Vec::new();
    for block in producers {
        planned.push(plan_producer(context, block, last, scope)?);
    }
    planned.push(RowBlock { name: last.name.clone(), kind: RowKind::Elements { scope: Scope::Global } });
    Ok(Strategy { domain: Domain::of(context.func, last), blocks: planned, rows: n_rows, by, walk })
}

/// How lanes go through rows that a group of threads has, and where what blocks make of them is kept.
fn kept(context: &Context<'_>, blocks: &[&Block], n_rows: usize, by: Group) -> (Walk, Scope) {
    let Some((last, producers)) = blocks.split_last() else {
        return (Walk::of(None, None, LANES), Scope::Global);
    };
    let row = constant_product(last.iters[n_rows..].iter().map(|i| &i.extent));
    let (of_task, lanes) = match by {
        Group::Warp(n) => (n, LANES),
        Group::Task(n) => (1, n * LANES),
    };
    let run = run_of_rows(context, blocks, n_rows);
    let of_thread = row.filter(|row| row % lanes == 0).map(|row| row / lanes);
    let fits = |n: &i64| n * elements_each(producers, last) <= IN_REGISTERS;
    if let Some(of_thread) = of_thread.filter(fits) {
        return (Walk::whole(of_thread, run), Scope::Register);
    }
    let is_shared = row.is_some_and(|row| of_task * row_temporaries(context.func, producers, row) <= SHARED);
    (Walk::of(row, run, lanes), if is_shared { Scope::Shared } else { Scope::Global })
}

/// How many elements of a thread each element of a row takes: its own at least, which is read once, and those of other blocks.
pub(super) fn elements_each(producers: &[&Block], last: &Block) -> i64 {
    let makes_several = |block: &&&Block| !block.is_reduction() && !is_value(block, last);
    producers.iter().filter(makes_several).count().max(1) as i64
}

/// Whether a block makes one value of a row, and not, as the last block does, one of each of its elements.
fn is_value(block: &Block, last: &Block) -> bool {
    let extents = |block: &Block| block.iters.iter().map(|i| i.extent.clone()).collect::<Vec<_>>();
    extents(block) != extents(last)
}

/// How many elements of a row follow one another in memory, in all that blocks read and write of it.
fn run_of_rows(context: &Context<'_>, blocks: &[&Block], n_rows: usize) -> Option<i64> {
    let walks_along = |block: &&Block| {
        let Some(last) = block.iters[n_rows..].last() else { return true };
        let simplifier = domain_simplifier(context.func, block);
        let stores = block.body.iter().map(AccessInfo::of_store);
        let mut accesses = loads(block).into_iter().chain(stores);
        let is_short = |a: &AccessInfo| context.func.buffers[a.buffer].dtype.bytes() <= size_of::<f32>();
        accesses.all(|a| {
            let stride = context.stride(&simplifier, &a, last.var);
            is_short(&a) && matches!(stride, Stride::Zero | Stride::Constant(1))
        })
    };
    let last = blocks.last()?.iters.last()?;
    blocks.iter().all(walks_along).then(|| last.extent.as_int())?
}

fn warps(by: Group) -> i64 {
    match by {
        Group::Warp(n) | Group::Task(n) => n,
    }
}

/// What a block before the last one makes of a row.
///
/// # Errors
/// Where its results, or partial results of it, cannot be moved.
pub(super) fn plan_producer(
    context: &Context<'_>,
    block: &Block,
    last: &Block,
    scope: Scope,
) -> Result<RowBlock, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("rows", &block.name, reason));
    if !context.func.is_sole_writer(block) {
        return refuse("another block writes what it writes");
    }
    if let Some(reason) = indivisible(block).filter(|_| block.is_reduction()) {
        return refuse(reason);
    }
    let kind = match (block.is_reduction(), is_value(block, last)) {
        (true, _) => RowKind::Combined,
        (false, true) => RowKind::Value,
        (false, false) => RowKind::Elements { scope },
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
                RowKind::Elements { scope } => {
                    let made = schedule.compute_at(name, &around)?;
                    self.share(schedule, made.get(self.rows..).unwrap_or(&[]))?;
                    for buffer in schedule.block_info(name)?.writes {
                        schedule.set_scope(&buffer, *scope)?;
                    }
                }
                RowKind::Value => {
                    schedule.compute_at(name, &around)?;
                    hold(schedule, name)?;
                }
                RowKind::Combined => match self.by {
                    Group::Warp(_) => reduce_in_warp(schedule, name, &around, self.walk)?,
                    Group::Task(warps) => reduce_in_task(schedule, name, &around, warps, self.walk)?,
                },
            }
        }
        schedule.parallel(&task)
    }

    /// Shares the columns of a row out to the threads that have it, each those that it has where the row is combined.
    fn share(&self, schedule: &mut Schedule, columns: &[String]) -> Result<(), ScheduleError> {
        let row = joined(schedule, columns)?;
        let warps = if let Group::Task(warps) = self.by { Some(warps) } else { None };
        self.walk.share(schedule, &row, warps)
    }
}
