//! Transpositions: a task copies a square of the input to shared memory along the input's rows, and stores it along the output's.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Expr, IterKind, Scope, ThreadLevel};

use super::store::shares_loops;
use super::threads::{LANES, Threads};
use crate::context::Context;
use crate::loops::joined;
use crate::pattern::{AccessInfo, Stride, domain_simplifier, iters_of, loads, stores_at_its_variables};
use crate::refusal::Refusal;
use crate::strategy::Domain;

/// Warps of a task; a thread has a column's part of the square, every so many rows.
const WARPS: i64 = 8;

/// What is done to a transposition.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// The buffer that is read across its rows.
    pub buffer: String,
    /// The block that fetches it.
    pub fetch: String,
    /// Positions of the variables by which it is read, the one last that it is consecutive along.
    pub by: Vec<usize>,
}

/// `out: f32[64, 56], x across by 1 0`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by: Vec<String> = self.by.iter().map(usize::to_string).collect();
        write!(f, "{}: {}, {} across by {}", self.block, self.domain, self.buffer, by.join(" "))
    }
}

/// Plans a block that reads one buffer across the rows that it writes.
///
/// # Errors
/// Where it is no such block, or the square would be larger than the result.
pub(crate) fn plan(context: &Context<'_>, block: &Block) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("transpose", &block.name, reason));
    if context.target.gpu.is_none() {
        return refuse("the machine has no GPU");
    }
    if !context.is_as_computed(block) || shares_loops(context, block) {
        return refuse("its loops are not its own");
    }
    if block.is_reduction() || block.body.len() != 1 || !stores_at_its_variables(block) {
        return refuse("its results are not stored at its variables");
    }
    let spatial = iters_of(block, IterKind::Spatial);
    let Some(&column) = spatial.last() else { return refuse("a single result") };
    let simplifier = domain_simplifier(context.func, block);
    let walks =
        |a: &AccessInfo, n: usize| context.stride(&simplifier, a, block.iters[n].var) == Stride::Constant(1);
    let accesses = loads(block);
    let across = |a: &&AccessInfo| !walks(a, column) && a.uses(block.iters[column].var);
    let mut reads = accesses.iter().filter(across);
    let (Some(access), None) = (reads.next(), reads.next()) else {
        return refuse("not one input is read across");
    };
    // Each dimension has a variable of its own, so that a square of the variables is one of the buffer.
    let of_dim = |index: &Expr| {
        let var = index.as_var()?;
        spatial.iter().copied().find(|&n| block.iters[n].var == var)
    };
    let Some(by) = access.indices.iter().map(of_dim).collect::<Option<Vec<usize>>>() else {
        return refuse("it is no permutation of the dimensions of its input");
    };
    let Some(row) = by.last().copied().filter(|&row| walks(access, row) && row != column) else {
        return refuse("its input has no rows");
    };
    let is_long = |n: usize| block.iters[n].extent.as_int().is_some_and(|extent| extent >= LANES);
    if !is_long(row) || !is_long(column) {
        return refuse("its rows are short or open");
    }
    if accesses.iter().filter(|a| a.buffer == access.buffer).count() != 1 {
        return refuse("it reads its input several times");
    }
    let buffer = context.func.buffers[access.buffer].name.clone();
    // Along the result's rows second to last: the copy's rows are those of the input.
    let mut order: Vec<usize> = by.iter().copied().filter(|&n| n != column && n != row).collect();
    order.extend([column, row]);
    Ok(Strategy {
        fetch: context.new_block(&format!("{buffer}_read")),
        block: block.name.clone(),
        domain: Domain::of(context.func, block),
        buffer,
        by: order,
    })
}

impl Strategy {
    /// Schedules the block.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let lost = || ScheduleError::new("transpose", &self.block, "its loops are lost");
        let fetch = schedule.reindex(&self.block, &self.buffer, &self.by, Scope::Shared)?;
        let mut loops = schedule.loop_names(&self.block)?;
        let row = *self.by.last().ok_or_else(lost)?;
        let column = loops.len().checked_sub(1).ok_or_else(lost)?;
        let rows = schedule.split(&loops[row].clone(), &[None, Some(LANES / WARPS), Some(WARPS)])?;
        let columns = schedule.split(&loops[column].clone(), &[None, Some(LANES)])?;
        loops[row].clone_from(&rows[0]);
        loops[column].clone_from(&columns[0]);
        let threads = [&rows[2], &columns[1], &rows[1]];
        let order: Vec<&str> = loops.iter().chain(threads).map(String::as_str).collect();
        schedule.reorder(&order)?;
        let task = joined(schedule, &loops)?;
        schedule.bind(&rows[2], ThreadLevel::Warp)?;
        schedule.bind(&columns[1], ThreadLevel::Lane)?;
        schedule.unroll(&rows[1])?;
        let made = schedule.compute_at(&fetch, &task)?;
        for copy in schedule.block_info(&fetch)?.writes {
            // A column of the square lies in all banks.
            schedule.storage_align(&copy, LANES, 1)?;
        }
        let all = joined(schedule, &made)?;
        let [own, _] = Threads { warps: WARPS, elements: 1 }.apply(schedule, &all)?;
        schedule.unroll(&own)?;
        schedule.parallel(&task)
    }
}
