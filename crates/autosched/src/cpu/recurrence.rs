//! Recurrences: blocks that take turns in a loop over time.
//!
//! The order of their steps is their meaning, so there are no register tiles, and no tasks but for what has nothing in common.
//! What is left is lanes along the results of a step, which do not depend on each other, and constants laid out for that.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Func, IterKind, Loop, Var};

use crate::context::Context;
use crate::cpu::tasks::Tasks;
use crate::cpu::window::pack_constants;
use crate::decisions::Chooser;
use crate::loops::loops_of;
use crate::pattern::{AccessInfo, Stride, domain_simplifier, iters_of, loads};
use crate::refusal::Refusal;
use crate::rule::Packing;
use crate::strategy::{Domain, list};

/// Most vectors of results that a step goes on with side by side.
const MAX_VECTORS: i64 = 4;

/// What is done to a block in a loop that others are in, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// Constants whose lanes become consecutive.
    pub packings: Vec<Packing>,
    /// How many of the loops around it, the outermost, it shares with other blocks.
    pub shared: usize,
    /// Which of the loops that it has for its results, counted from the outermost, gives the lanes.
    pub lane_loop: usize,
    /// Lanes of a vector.
    pub lanes: i64,
    /// Vectors that a step goes on with side by side.
    pub vectors: i64,
    /// The tasks, of the loops that it shares.
    pub tasks: Tasks,
}

/// `hidden: f32[1, 128 | 128], 4 vectors of 16 lanes, constant w as a b 16a, tasks one`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strategy { block, domain, packings, lanes, vectors, .. } = self;
        write!(f, "{block}: {domain}, {vectors} vectors of {lanes} lanes")?;
        if !packings.is_empty() {
            write!(f, ", constant {}", list(packings))?;
        }
        write!(f, ", tasks {}", self.tasks)
    }
}

/// Which loops around a block it shares with others, and what its own ones count.
struct Nest<'a> {
    shared: Vec<&'a Loop>,
    /// Its own loops over results.
    spatial: Vec<&'a Loop>,
    /// Whether it has loops over steps of its own.
    has_steps: bool,
}

impl<'a> Nest<'a> {
    fn of(func: &'a Func, block: &Block) -> Nest<'a> {
        let others = func.blocks().into_iter().filter(|other| other.name != block.name);
        let around: Vec<Var> =
            others.flat_map(|other| func.loops_around(&other.name)).map(|l| l.var).collect();
        let loops = func.loops_around(&block.name).into_iter();
        let (shared, own): (Vec<&Loop>, Vec<&Loop>) = loops.partition(|l| around.contains(&l.var));
        let drives = |l: &Loop, kind| block.iters.iter().any(|i| i.kind == kind && i.value.uses(l.var));
        let (steps, others): (Vec<&Loop>, Vec<&Loop>) =
            own.into_iter().partition(|l| drives(l, IterKind::Reduce));
        let spatial = others.into_iter().filter(|l| drives(l, IterKind::Spatial)).collect();
        Nest { shared, spatial, has_steps: !steps.is_empty() }
    }
}

/// Plans a block inside of a loop that others are in, too.
pub(crate) fn plan(context: &Context<'_>, block: &Block, _: &mut Chooser<'_>) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("recurrence", &block.name, reason));
    if !context.is_as_computed(block) {
        return refuse("the block is scheduled already");
    }
    let Nest { shared, spatial, has_steps } = Nest::of(context.func, block);
    if shared.is_empty() {
        return refuse("no loop is shared with another block");
    }
    let Some(lane_loop) = spatial.iter().rposition(|l| l.extent.as_int() != Some(1)) else {
        return refuse("a single result");
    };
    let is_driven = |n: &usize| block.iters[*n].value.as_var() == Some(spatial[lane_loop].var);
    let Some(lane) = iters_of(block, IterKind::Spatial).into_iter().find(is_driven) else {
        return refuse("its loops are not its variables");
    };
    let extent = spatial[lane_loop].extent.as_int();
    let most = i64::from(context.target.lanes(4));
    let divides = |extent: i64| (2..=most).rev().find(|n| extent % n == 0 && n.count_ones() == 1);
    let (Some(extent), Some(lanes)) = (extent, extent.and_then(divides)) else {
        return refuse("no vector divides its results");
    };
    let mut layouts = context.layouts.clone();
    let packings = pack_constants(context, &mut layouts, block, lane, lanes);
    if !walks(&Context { layouts: &layouts, ..*context }, block, lane) {
        return refuse("what it reads and writes does not lie consecutive along its results");
    }
    let n_vectors = extent / lanes;
    let side_by_side = || (1..=MAX_VECTORS.min(n_vectors)).rev().find(|n| n_vectors % n == 0);
    let vectors = if has_steps { side_by_side().unwrap_or(1) } else { 1 };
    Ok(Strategy {
        block: block.name.clone(),
        domain: Domain::of(context.func, block),
        packings,
        shared: shared.len(),
        lane_loop,
        lanes,
        vectors,
        tasks: tasks(block, shared[0]),
    })
}

/// What has nothing in common, directions, is shared by threads. All blocks in such a loop say so; the first to apply makes the tasks.
fn tasks(block: &Block, outermost: &Loop) -> Tasks {
    let drives = |kind| block.iters.iter().any(|i| i.kind == kind && i.value.uses(outermost.var));
    let is_parallel = drives(IterKind::Spatial) && !drives(IterKind::Reduce);
    if is_parallel { Tasks::of_all(1) } else { Tasks::default() }
}

/// Whether all accesses move by one element with the lanes or not at all, and what is written moves.
fn walks(context: &Context<'_>, block: &Block, lane: usize) -> bool {
    let simplifier = domain_simplifier(context.func, block);
    let stride = |access: &AccessInfo| context.stride(&simplifier, access, block.iters[lane].var);
    let mut written = block.body.iter().map(AccessInfo::of_store);
    written.all(|access| stride(&access) == Stride::Constant(1))
        && loads(block).iter().all(|access| matches!(stride(access), Stride::Zero | Stride::Constant(1)))
}

impl Strategy {
    /// Schedules the block.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let around = schedule.loop_names(&self.block)?;
        let (shared, _) = around.split_at(self.shared.min(around.len()));
        let own = |names: Vec<String>| names.into_iter().filter(|name| !shared.contains(name));
        let steps: Vec<String> = own(loops_of(schedule, &self.block, IterKind::Reduce)?).collect();
        let mut before: Vec<String> = own(loops_of(schedule, &self.block, IterKind::Spatial)?).collect();
        if self.lane_loop >= before.len() {
            return Err(ScheduleError::new("recurrence", &self.block, "the loop of its lanes is lost"));
        }
        let lane = before.remove(self.lane_loop);
        let parts = schedule.split(&lane, &[None, Some(self.vectors), Some(self.lanes)])?;
        let order: Vec<&str> =
            before.iter().chain([&parts[0]]).chain(&steps).chain(&parts[1..]).map(String::as_str).collect();
        schedule.reorder(&order)?;
        schedule.unroll(&parts[1])?;
        schedule.vectorize(&parts[2])?;
        self.tasks.apply(schedule, shared)
    }
}
