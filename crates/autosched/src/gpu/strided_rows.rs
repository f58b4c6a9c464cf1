//! Rows whose elements lie apart in memory, beside those of other rows: softmax and normalisations along another dimension than the last.
//!
//! All blocks of such a function are one kernel. A lane has a row, next to its neighbour's, so that a warp reads 32 elements that follow one
//! another. The lane keeps its row in registers, or what is its warp's of it: then the warps of a task share 32 rows, and what they combine
//! meets in shared memory.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, IterKind, Scope, ThreadLevel};

use super::elements::joined_loops;
use super::rows::{IN_REGISTERS, RowBlock, RowKind, elements_each, plan_producer};
use super::threads::{LANES, Threads, in_order};
use super::tree::{hold, parts_of_warps};
use crate::context::Context;
use crate::decisions::{Candidate, Chooser};
use crate::loops::{joined, loops_of};
use crate::pattern::{AccessInfo, Stride, constant_product, domain_simplifier, iters_of, loads, row_dims};
use crate::refusal::Refusal;
use crate::strategy::Domain;

/// Numbers of warps that may share rows, the best first: eight leave room for several tasks on a multiprocessor.
const WARPS: [i64; 4] = [8, 16, 4, 2];

/// What is done to a function of rows whose elements lie apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// What its last block computes.
    pub domain: Domain,
    /// The blocks, in order; the last one's loops are around all.
    pub blocks: Vec<RowBlock>,
    /// How many of the last block's loops, the outermost, count rows.
    pub before: usize,
    /// How many that follow go along a row.
    pub row: usize,
    /// Who takes a row.
    pub by: Group,
}

/// The threads that reduce a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Group {
    /// A thread; so many warps of them are a task.
    Thread(i64),
    /// A lane of each of so many warps of a task.
    Task(i64),
}

/// A group as a value of a decision: `thread4` for four warps of threads with a row each, `task8` for rows that eight warps share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offered(Group);

impl fmt::Display for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Group::Thread(n) => write!(f, "thread{n}"),
            Group::Task(n) => write!(f, "task{n}"),
        }
    }
}

/// `softmax: f32[64, 256, 1024], rows along 1 loops after 1 by 8 warps together: max combined, exp in registers, sum combined, softmax`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, rows along {} loops after {} by ", self.domain, self.row, self.before)?;
        match self.by {
            Group::Thread(warps) => write!(f, "a thread each, {warps} warps a task:")?,
            Group::Task(warps) => write!(f, "{warps} warps together:")?,
        }
        for (n, block) in self.blocks.iter().enumerate() {
            write!(f, "{} {block}", if n > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// Plans a whole function of rows that lie beside one another.
///
/// # Errors
/// Where it is no such function.
pub(crate) fn plan(context: &Context<'_>, chooser: &mut Chooser<'_>) -> Result<Strategy, Refusal> {
    let func = context.func;
    let refuse = |reason: &str| Err(Refusal::new("strided_rows", &func.name, reason));
    let Some(gpu) = context.target.gpu else { return refuse("the machine has no GPU") };
    let blocks = func.blocks();
    let Some((&last, producers)) = blocks.split_last() else { return refuse("nothing to do") };
    let Some(dims) = row_dims(func, last, producers).filter(|dims| dims.end < last.iters.len()) else {
        return refuse("its blocks do not share rows that lie beside one another");
    };
    if !blocks.iter().all(|block| walks_by_rows(context, block)) {
        return refuse("what it reads does not lie consecutive along its rows");
    }
    let Some(row) = constant_product(last.iters[dims.clone()].iter().map(|i| &i.extent)) else {
        return refuse("the length of its rows is open");
    };
    let beside = &last.iters[dims.end..];
    let rows = constant_product(last.iters[..dims.start].iter().chain(beside).map(|i| &i.extent));
    let neighbours = beside.last().and_then(|i| i.extent.as_int());
    let each = elements_each(producers, last);
    let mut planned = Vec::new();
    for block in producers {
        planned.push(plan_producer(context, block, last, Scope::Register)?);
    }
    planned.push(RowBlock { name: last.name.clone(), kind: RowKind::Elements { scope: Scope::Global } });
    let fits = |own: i64| own * each <= IN_REGISTERS;
    let strategy = |by: Group| Strategy {
        domain: Domain::of(func, last),
        blocks: planned.clone(),
        before: dims.start,
        row: dims.len(),
        by,
    };
    let of_threads = Group::Thread(Threads::for_results(&gpu, rows, 1).warps);
    let by_threads = Some(of_threads).filter(|_| fits(row));
    let is_long = |warps: &i64| row % warps == 0 && fits(row / warps);
    let by_tasks = WARPS.into_iter().filter(is_long).map(Group::Task);
    let by_tasks = by_tasks.filter(|_| neighbours.is_some_and(|n| n >= LANES));
    // Whether threads write apart the primitives tell.
    let is_apart = |by: &Group| strategy(*by).apply(&mut Schedule::new(func.clone())).is_ok();
    let offered: Vec<Group> = by_threads.into_iter().chain(by_tasks).filter(is_apart).collect();
    if offered.is_empty() {
        return refuse("its rows do not fit in registers, or cannot be shown to be apart");
    }
    let Offered(by) = chooser.decide(&last.name, "group", &candidates(offered))?;
    Ok(strategy(by))
}

fn candidates(groups: Vec<Group>) -> Vec<Candidate<Offered>> {
    in_order(groups.into_iter().map(Offered).collect(), |Offered(group)| {
        let [of_threads, of_tasks] = match group {
            Group::Thread(n) => [(*n as f64).log2(), 0.0],
            Group::Task(n) => [0.0, (*n as f64).log2()],
        };
        vec![("group.threads", of_threads), ("group.task", of_tasks)]
    })
}

/// Whether what a block reads and writes lies consecutive along the last of the variables that count rows, or stays.
fn walks_by_rows(context: &Context<'_>, block: &Block) -> bool {
    let simplifier = domain_simplifier(context.func, block);
    let Some(&last) = iters_of(block, IterKind::Spatial).last() else { return false };
    let mut accesses = loads(block).into_iter().chain(block.body.iter().map(AccessInfo::of_store));
    accesses.all(|access| {
        let stride = context.stride(&simplifier, &access, block.iters[last].var);
        matches!(stride, Stride::Zero | Stride::Constant(1))
    })
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        self.blocks.iter().map(|block| block.name.clone()).collect()
    }

    /// Schedules the function.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        match self.by {
            Group::Thread(warps) => self.by_threads(schedule, warps),
            Group::Task(warps) => self.by_tasks(schedule, warps),
        }
    }

    /// The last block and its loops: those that count rows before, those along a row, and those that count rows after.
    fn last(&self, schedule: &Schedule) -> Result<(&str, [Vec<String>; 3]), ScheduleError> {
        let last = self.blocks.last().ok_or_else(|| lost("function"))?;
        let mut before = schedule.loop_names(&last.name)?;
        let mut row = before.split_off(self.before.min(before.len()));
        let after = row.split_off(self.row.min(row.len()));
        Ok((&last.name, [before, row, after]))
    }

    /// The blocks before the last one, which come first in what a thread does.
    fn producers(&self) -> impl Iterator<Item = &RowBlock> {
        self.blocks.iter().rev().skip(1)
    }

    /// A thread has a row. All that it computes of it waits in its registers.
    fn by_threads(&self, schedule: &mut Schedule, warps: i64) -> Result<(), ScheduleError> {
        let (_, [mut tasks, row, mut after]) = self.last(schedule)?;
        let order: Vec<&str> = tasks.iter().chain(&after).chain(&row).map(String::as_str).collect();
        schedule.reorder(&order)?;
        let extents: Vec<Option<i64>> = after.iter().map(|name| schedule.extent(name)).collect();
        let neighbours = after.split_off(after.len() - joined_loops(&extents));
        tasks.extend(after);
        let neighbours = joined(schedule, &neighbours)?;
        let [task, lane] = Threads { warps, elements: 1 }.apply(schedule, &neighbours)?;
        tasks.push(task);
        let task = joined(schedule, &tasks)?;
        unroll(schedule, &row)?;
        for RowBlock { name, .. } in self.producers() {
            let made = schedule.compute_at(name, &lane)?;
            hold(schedule, name)?;
            let steps = loops_of(schedule, name, IterKind::Reduce)?;
            unroll(schedule, if steps.is_empty() { &made } else { &steps })?;
            if let Some(first) = steps.first() {
                schedule.decompose_reduction(name, first)?;
            }
        }
        schedule.parallel(&task)
    }

    /// The warps of a task share 32 rows.
    fn by_tasks(&self, schedule: &mut Schedule, warps: i64) -> Result<(), ScheduleError> {
        let (last, [mut tasks, row, mut after]) = self.last(schedule)?;
        let neighbours = after.pop().ok_or_else(|| lost(last))?;
        let parts = schedule.split(&neighbours, &[None, Some(LANES)])?;
        let order: Vec<&str> = tasks
            .iter()
            .chain(&after)
            .chain([&parts[0]])
            .chain(&row)
            .chain([&parts[1]])
            .map(String::as_str)
            .collect();
        schedule.reorder(&order)?;
        share(schedule, &row, &parts[1], warps)?;
        tasks.extend(after);
        tasks.push(parts[0].clone());
        let task = joined(schedule, &tasks)?;
        for RowBlock { name, kind } in self.producers() {
            match kind {
                RowKind::Combined => combine(schedule, name, &task, warps)?,
                RowKind::Elements { .. } => {
                    let made = schedule.compute_at(name, &task)?;
                    hold(schedule, name)?;
                    let row = made.get(self.before..self.before + self.row).ok_or_else(|| lost(name))?;
                    share(schedule, row, made.last().ok_or_else(|| lost(name))?, warps)?;
                }
                RowKind::Value => {
                    let made = schedule.compute_at(name, &task)?;
                    hold(schedule, name)?;
                    schedule.bind(made.last().ok_or_else(|| lost(name))?, ThreadLevel::Lane)?;
                }
            }
        }
        schedule.parallel(&task)
    }
}

/// Shares 32 rows out to the warps of a task: each has the same elements of all, a lane those of one row. The loops along a row and the one
/// over rows follow one another.
fn share(schedule: &mut Schedule, row: &[String], rows: &str, warps: i64) -> Result<(), ScheduleError> {
    let row = joined(schedule, row)?;
    let parts = schedule.split(&row, &[Some(warps), None])?;
    schedule.reorder(&[&parts[0], rows, &parts[1]])?;
    schedule.bind(&parts[0], ThreadLevel::Warp)?;
    schedule.bind(rows, ThreadLevel::Lane)?;
    schedule.unroll(&parts[1])
}

/// Combines the elements of 32 rows, each warp those that it has. Every thread has the result of its row, in a register.
fn combine(schedule: &mut Schedule, block: &str, task: &str, warps: i64) -> Result<(), ScheduleError> {
    let steps = loops_of(schedule, block, IterKind::Reduce)?;
    let steps = joined(schedule, &steps)?;
    let parts = schedule.split(&steps, &[Some(warps), None])?;
    let partial = schedule.rfactor(block, &parts[0])?;
    schedule.compute_at(block, task)?;
    hold(schedule, block)?;
    let rows = loops_of(schedule, block, IterKind::Spatial)?.pop().ok_or_else(|| lost(block))?;
    schedule.bind(&rows, ThreadLevel::Lane)?;
    let steps = loops_of(schedule, block, IterKind::Reduce)?;
    unroll(schedule, &steps)?;
    let steps = parts_of_warps(schedule, &partial, task)?;
    unroll(schedule, &steps)
}

fn unroll(schedule: &mut Schedule, loops: &[String]) -> Result<(), ScheduleError> {
    loops.iter().try_for_each(|name| schedule.unroll(name))
}

fn lost(block: &str) -> ScheduleError {
    ScheduleError::new("strided_rows", block, "a loop is lost")
}
