//! Row by row: softmax, normalisations, and whatever else combines the elements of a row and then uses the result on each of them.
//!
//! All blocks of such a function run for one row before the next: what is computed of a row lies in the first-level
//! cache when it is needed, and the function is one kernel. Reductions run on lanes along the row.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::flatten::masks;
use tilewright_te::schedule::{Schedule, ScheduleError, indivisible};
use tilewright_te::{Block, IterKind, Scope};

use crate::context::Context;
use crate::cpu::elementwise::grain_of;
use crate::cpu::reduction::lanes_at;
use crate::cpu::tasks::{Grain, Tasks};
use crate::decisions::Chooser;
use crate::loops::{joined, loops_of};
use crate::model::machine::{MAX_STACK_OF_ROW, n_cores};
use crate::model::tasks::PARALLEL_GRAIN;
use crate::pattern::{constant_product, iters_of, leading_dims, row_temporaries};
use crate::refusal::Refusal;
use crate::strategy::{Domain, Level};

/// What is done to a function of rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// What its last block computes.
    pub domain: Domain,
    /// The blocks, in order; the last one's loops are around all.
    pub blocks: Vec<RowBlock>,
    /// How many of the last block's loops, the outermost, go over rows.
    pub rows: usize,
    /// Lanes of a vector.
    pub lanes: i64,
    /// The tasks, of the loops over rows.
    pub tasks: Tasks,
}

/// A block of a function of rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RowBlock {
    /// The block.
    pub name: String,
    /// What it makes of a row.
    pub kind: RowKind,
    /// Where its results of a row lie: nothing for those of the function.
    pub home: Option<Level>,
}

/// What a block makes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RowKind {
    /// An element for each, in vectors.
    Elements,
    /// One value, by lanes along the row which are combined in the end.
    InLanes,
    /// One value, element by element.
    InOrder,
}

/// `rows of 1 loops in vectors of 16: max in lanes to registers, exp to L1, ..., tasks loops 1`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, rows of {} loops in vectors of {}:", self.domain, self.rows, self.lanes)?;
        for (n, RowBlock { name, kind, home }) in self.blocks.iter().enumerate() {
            write!(f, "{} {name}", if n > 0 { "," } else { "" })?;
            match kind {
                RowKind::Elements => {}
                RowKind::InLanes => f.write_str(" in lanes")?,
                RowKind::InOrder => f.write_str(" in order")?,
            }
            home.iter().try_for_each(|home| write!(f, " to {home}"))?;
        }
        write!(f, ", tasks {}", self.tasks)
    }
}

/// Plans a whole function row by row.
///
/// # Errors
/// Where it is no such function.
pub(crate) fn plan(context: &Context<'_>, chooser: &mut Chooser<'_>) -> Result<Strategy, Refusal> {
    let func = context.func;
    let refuse = |reason: &str| Err(Refusal::new("rows", &func.name, reason));
    let blocks = func.blocks();
    let Some((&last, producers)) = blocks.split_last() else { return refuse("nothing to do") };
    let Some(n_rows) = leading_dims(func, last, producers) else {
        return refuse("its blocks do not share rows");
    };
    if blocks.iter().any(|b| b.body.iter().any(|s| context.layout(s.buffer).is_some())) {
        return refuse("rows are in blocks");
    }
    let (outer, inner) = last.iters.split_at(n_rows);
    let row = constant_product(inner.iter().map(|i| &i.extent));
    let rows = constant_product(outer.iter().map(|i| &i.extent));
    let n_cores = n_cores(context.target);
    if let (Some(row), Some(rows)) = (row, rows)
        && rows < n_cores
        && row * rows > n_cores * PARALLEL_GRAIN
    {
        return refuse("few rows, which are long enough to be shared out");
    }
    let lanes = i64::from(context.target.lanes(4));
    if row.is_none_or(|row| row >= lanes)
        && inner.len() > 1
        && !func.may_vectorize(&last.name, inner.len(), &[None, Some(lanes)])
    {
        return refuse("its columns cannot be shown to be apart as one loop");
    }
    let mut planned = Vec::new();
    let on_stack = row.is_some_and(|row| row_temporaries(func, producers, row) <= MAX_STACK_OF_ROW);
    for block in producers {
        planned.push(plan_producer(context, block, n_rows, on_stack)?);
    }
    planned.push(RowBlock { name: last.name.clone(), kind: RowKind::Elements, home: None });
    let work = row.zip(rows).map(|(row, rows)| row * rows);
    let grain = grain_of(&last.name, context.target, work, chooser)?;
    let extents: Vec<Option<i64>> = outer.iter().map(|i| i.extent.as_int()).collect();
    let elements = row.or(Some(PARALLEL_GRAIN));
    let tasks = grain.map(|task| Tasks::plan(&extents, None, Grain { elements, task })).unwrap_or_default();
    Ok(Strategy { domain: Domain::of(func, last), blocks: planned, rows: n_rows, lanes, tasks })
}

fn plan_producer(
    context: &Context<'_>,
    block: &Block,
    n_rows: usize,
    on_stack: bool,
) -> Result<RowBlock, Refusal> {
    if !context.func.is_sole_writer(block) {
        return Err(Refusal::new("rows", &block.name, "another block writes what it writes"));
    }
    let own = block.iters.get(n_rows..).unwrap_or(&[]);
    let is_value = block.is_reduction() || constant_product(own.iter().map(|i| &i.extent)) == Some(1);
    let home = match (is_value, on_stack) {
        (true, _) => Some(Level::Registers),
        (false, true) => Some(Level::L1),
        (false, false) => None,
    };
    let kind = match (block.is_reduction(), reduces_in_lanes(context, block)) {
        (false, _) => RowKind::Elements,
        (true, true) => RowKind::InLanes,
        (true, false) => RowKind::InOrder,
    };
    if kind == RowKind::InLanes
        && let Some(reason) = indivisible(block)
    {
        return Err(Refusal::new("rows", &block.name, reason));
    }
    Ok(RowBlock { name: block.name.clone(), kind, home })
}

/// Whether a row is long enough for lanes, and a last vector that is cut off has lanes that can be left out.
fn reduces_in_lanes(context: &Context<'_>, block: &Block) -> bool {
    let lanes = i64::from(context.target.lanes(4));
    let steps = iters_of(block, IterKind::Reduce);
    let extent = constant_product(steps.iter().map(|&n| &block.iters[n].extent));
    let divides = extent.is_some_and(|n| n % lanes == 0);
    let masks = masks(context.func, block, context.target.masked_access());
    extent.is_none_or(|n| n >= lanes) && (divides || masks)
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
        let innermost = outer.last().ok_or_else(lost)?;
        self.vectorize_row(schedule, columns)?;
        for RowBlock { name, kind, home } in producers.iter().rev() {
            let buffer = schedule.block_info(name)?.writes.remove(0);
            match kind {
                RowKind::Elements => {
                    let made = schedule.compute_at(name, innermost)?;
                    self.vectorize_row(schedule, made.get(self.rows..).unwrap_or(&[]))?;
                }
                RowKind::InLanes => self.reduce_in_lanes(schedule, name, innermost)?,
                RowKind::InOrder => reduce_in_order(schedule, name, innermost)?,
            }
            match home {
                Some(Level::Registers) => schedule.set_scope(&buffer, Scope::Register)?,
                Some(Level::L1 | Level::L2) => schedule.set_scope(&buffer, Scope::Stack)?,
                Some(Level::Beyond) | None => {}
            }
        }
        self.tasks.apply(schedule, outer)
    }

    /// Makes one loop of the columns, in vectors.
    fn vectorize_row(&self, schedule: &mut Schedule, columns: &[String]) -> Result<(), ScheduleError> {
        if columns.is_empty() {
            return Ok(());
        }
        let row = joined(schedule, columns)?;
        match schedule.extent(&row) {
            Some(1) => Ok(()),
            Some(n) if n < self.lanes => schedule.vectorize(&row),
            Some(_) | None => {
                let parts = schedule.split(&row, &[None, Some(self.lanes)])?;
                schedule.vectorize(&parts[1])
            }
        }
    }

    /// Computes a reduction of a row inside of the rows' loop, on lanes that are combined in the end.
    fn reduce_in_lanes(
        &self,
        schedule: &mut Schedule,
        block: &str,
        innermost: &str,
    ) -> Result<(), ScheduleError> {
        let steps = loops_of(schedule, block, IterKind::Reduce)?;
        // Of several loops, of which one has an open extent, lanes share the innermost: that the last vector of all of them together
        // leaves out nothing cannot be shown.
        let is_known = steps.iter().all(|name| schedule.extent(name).is_some());
        let row = match steps.last() {
            Some(last) if !is_known => last.clone(),
            _ => joined(schedule, &steps)?,
        };
        let parts = schedule.split(&row, &[None, Some(self.lanes)])?;
        let partial = schedule.rfactor(block, &parts[1])?;
        schedule.compute_at(block, innermost)?;
        for name in loops_of(schedule, block, IterKind::Reduce)? {
            schedule.unroll(&name)?;
        }
        match lanes_at(schedule, &partial, innermost)? {
            true => Ok(()),
            false => Err(ScheduleError::new("rows", block, "its lanes have no loop")),
        }
    }
}

/// Computes a reduction of a row inside of the rows' loop, element by element.
fn reduce_in_order(schedule: &mut Schedule, block: &str, innermost: &str) -> Result<(), ScheduleError> {
    let steps = loops_of(schedule, block, IterKind::Reduce)?;
    joined(schedule, &steps)?;
    let made = schedule.compute_at(block, innermost)?;
    let steps = loops_of(schedule, block, IterKind::Reduce)?;
    match steps.iter().find(|name| made.contains(name)) {
        Some(first) => schedule.decompose_reduction(block, first).map(drop),
        None => Ok(()),
    }
}
