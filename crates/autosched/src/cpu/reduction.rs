//! Reductions to few results: vectors along the reduction itself, summed in the end.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::flatten::masks;
use tilewright_te::schedule::{Schedule, ScheduleError, indivisible};
use tilewright_te::{Block, IterKind, Scope};

use crate::context::Context;
use crate::cpu::elementwise::grain_of;
use crate::cpu::tasks::{Grain, Tasks};
use crate::decisions::Chooser;
use crate::loops::loops_of;
use crate::pattern::{AccessInfo, Stride, domain_simplifier, extents_of, iterations, iters_of, loads, walks};
use crate::refusal::Refusal;
use crate::strategy::Domain;

/// What is done to a reduction.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// How its steps are shared out to lanes, if they are.
    pub lanes: Option<StepLanes>,
    /// The tasks, of the loops over its results.
    pub tasks: Tasks,
}

/// Steps that are shared out to lanes, each with a partial result, which are combined in the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StepLanes {
    /// How many.
    pub lanes: i64,
    /// The block that computes partial results.
    pub partial: String,
}

/// `sum: f32[64 | 1024], steps in 16 lanes, tasks loops 1`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, ", self.block, self.domain)?;
        match &self.lanes {
            Some(StepLanes { lanes, .. }) => write!(f, "steps in {lanes} lanes")?,
            None => f.write_str("steps as they are")?,
        }
        write!(f, ", tasks {}", self.tasks)
    }
}

/// Plans a reduction: where its innermost reduction variable walks memory, that is cut into lanes that are combined in the end;
/// otherwise its results are shared out as they are.
pub(crate) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("reduction", &block.name, reason));
    if !block.is_commutative() || block.body.len() != 1 {
        return refuse("not a reduction whose steps may run in any order");
    }
    if !context.is_as_computed(block) {
        return refuse("the block is scheduled already");
    }
    let mut lanes = None;
    if walks_in_lanes(context, block) {
        if let Some(reason) = indivisible(block) {
            return refuse(reason);
        }
        let partial = context.new_block(&format!("{}_rf", block.name));
        lanes = Some(StepLanes { lanes: i64::from(context.target.lanes(4)), partial });
    }
    let grain = grain_of(&block.name, context.target, iterations(block), chooser)?;
    let elements = extents_of(block, IterKind::Reduce);
    let elements = elements.iter().try_fold(1i64, |n, extent| n.checked_mul((*extent)?));
    let outer = extents_of(block, IterKind::Spatial);
    let plan = |task| Tasks::plan(&outer, None, Grain { elements, task });
    let tasks = grain.map(plan).unwrap_or_default();
    Ok(Strategy { block: block.name.clone(), domain: Domain::of(context.func, block), lanes, tasks })
}

/// Whether a block's innermost reduction variable walks memory, in whole vectors or ones that can be masked.
fn walks_in_lanes(context: &Context<'_>, block: &Block) -> bool {
    let Some(&last) = iters_of(block, IterKind::Reduce).last() else { return false };
    let lanes = i64::from(context.target.lanes(4));
    let extent = block.iters[last].extent.as_int();
    // A last vector that is cut off needs lanes that can be left out.
    let divides = extent.is_some_and(|e| e % lanes == 0);
    let is_long = extent.is_none_or(|e| e >= lanes);
    let by_lanes =
        lanes > 1 && is_long && (divides || masks(context.func, block, context.target.masked_access()));
    let simplifier = domain_simplifier(context.func, block);
    let accumulator = block.body[0].buffer;
    let reads: Vec<AccessInfo> = loads(block).into_iter().filter(|a| a.buffer != accumulator).collect();
    let stride = |a: &AccessInfo| context.stride(&simplifier, a, block.iters[last].var);
    let strides: Vec<Stride> = reads.iter().map(stride).collect();
    by_lanes && walks(&strides)
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        let partial = self.lanes.iter().map(|lanes| &lanes.partial);
        [&self.block].into_iter().chain(partial).cloned().collect()
    }

    /// Schedules the block.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let Some(StepLanes { lanes, .. }) = self.lanes else {
            let outer = loops_of(schedule, &self.block, IterKind::Spatial)?;
            return self.tasks.apply(schedule, &outer);
        };
        let Some(last) = loops_of(schedule, &self.block, IterKind::Reduce)?.pop() else {
            return Err(ScheduleError::new("reduction", &self.block, "no reduction variable"));
        };
        let parts = schedule.split(&last, &[None, Some(lanes)])?;
        let partial = schedule.rfactor(&self.block, &parts[1])?;
        // The combination has a nest of its own now, beside which partial results are computed, as lanes of a register.
        let outer = loops_of(schedule, &self.block, IterKind::Spatial)?;
        let Some(inner) = outer.last() else { return Ok(()) };
        if lanes_at(schedule, &partial, inner)? {
            for name in loops_of(schedule, &self.block, IterKind::Reduce)? {
                schedule.unroll(&name)?;
            }
        }
        self.tasks.apply(schedule, &outer)
    }
}

/// Computes partial results of a factored reduction under a loop of their combination, in lanes of a register; tells
/// whether they have a loop for that.
pub(crate) fn lanes_at(schedule: &mut Schedule, partial: &str, around: &str) -> Result<bool, ScheduleError> {
    let made = schedule.compute_at(partial, around)?;
    // The lanes are data-parallel in the partial results: innermost, vectorized.
    let spatial = loops_of(schedule, partial, IterKind::Spatial)?;
    let steps = loops_of(schedule, partial, IterKind::Reduce)?;
    let Some(lane) = spatial.iter().rev().find(|name| made.contains(name)) else { return Ok(false) };
    let order: Vec<&str> = steps.iter().chain([lane]).map(String::as_str).collect();
    schedule.reorder(&order)?;
    schedule.vectorize(lane)?;
    if let Some(first) = steps.first() {
        schedule.decompose_reduction(partial, first)?;
    }
    for buffer in schedule.block_info(partial)?.writes {
        schedule.set_scope(&buffer, Scope::Register)?;
    }
    Ok(true)
}
