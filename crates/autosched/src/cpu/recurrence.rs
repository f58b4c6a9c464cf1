//! Recurrences: blocks that take turns in a loop over time.
//!
//! The order of their steps is their meaning. What is left is the results of a step, which do not depend on each other: lanes along
//! them, with constants laid out for that, and where a block sums over steps of its own, tiles of them in registers. The block that
//! sets these sums to what they start from goes by the same tiles, each right in front of its sums. Tasks are what has nothing in common,
//! like directions; else groups of a step's results ([`groups`](super::groups)). What such blocks hand to one another and nobody else is on
//! the stack of the task.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::flatten::MAX_PARTIAL_ROWS;
use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::{Block, IterKind, Loop, LoopKind, Scope};

use crate::context::Context;
use crate::cpu::groups::{Groups, MAX_VECTORS};
use crate::cpu::tasks::Tasks;
use crate::decisions::Chooser;
use crate::layouts::Relayout;
use crate::loops::loops_of;
use crate::model::machine::{l1_room, numbers};
use crate::packing::pack_constants;
use crate::pattern::{AccessInfo, Stride, domain_simplifier, iters_of, loads};
use crate::refusal::Refusal;
use crate::rule::Packing;
use crate::strategy::{Domain, list};
use crate::turns::{Nest, accumulates, local_buffers, started, starter};

/// What is done to a block in a loop that others are in, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// Constants whose lanes become consecutive.
    pub packings: Vec<Packing>,
    /// How many of the loops around it, the innermost, it does not share with other blocks.
    pub n_own: usize,
    /// Which of the loops that it has for its results, counted from the outermost, gives the lanes.
    pub lane_loop: usize,
    /// Lanes of a vector.
    pub lanes: i64,
    /// Vectors that a step goes on with side by side.
    pub vectors: i64,
    /// The rows of its tile, if it has one.
    pub rows: Option<Rows>,
    /// Whether its sums stay in registers for all of its steps.
    pub keeps_sums: bool,
    /// The block in front whose tiles are computed with its own, each right before it.
    pub starts_with: Option<String>,
    /// Buffers that move to the stack.
    pub local: Vec<String>,
    /// The tasks, of the loops that it shares.
    pub tasks: Tasks,
    /// The groups of results of a step that are tasks, if they are.
    pub groups: Option<Groups>,
}

/// Rows of a tile in registers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rows {
    /// Which of the loops that the block has for its results, counted from the outermost, gives them.
    pub row_loop: usize,
    /// How many there are.
    pub rows: i64,
}

/// `hidden: f32[1, 128 | 128], 4 vectors of 16 lanes, constant w as a b 16a, tasks one`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strategy { block, domain, packings, lanes, vectors, rows, local, groups, .. } = self;
        write!(f, "{block}: {domain}, ")?;
        if let Some(Rows { rows, .. }) = rows {
            write!(f, "{rows} rows of ")?;
        }
        write!(f, "{vectors} vectors of {lanes} lanes")?;
        if !local.is_empty() {
            write!(f, ", {} on the stack", list(local))?;
        }
        if !packings.is_empty() {
            write!(f, ", constant {}", list(packings))?;
        }
        match groups {
            Some(Groups { n, .. }) => write!(f, ", tasks of {n} groups in order"),
            None => write!(f, ", tasks {}", self.tasks),
        }
    }
}

/// Plans a block inside of a loop that others are in, too.
pub(crate) fn plan(context: &Context<'_>, block: &Block, _: &mut Chooser<'_>) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("recurrence", &block.name, reason));
    if !context.is_as_computed(block) {
        return refuse("the block is scheduled already");
    }
    let nest = Nest::of(context.func, block);
    let Nest { shared, spatial, has_steps } = &nest;
    let has_steps = *has_steps;
    if shared.is_empty() {
        return refuse("no loop is shared with another block");
    }
    let Some(lane_loop) = spatial.iter().rposition(|l| l.extent.as_int() != Some(1)) else {
        return refuse("a single result");
    };
    let Some(lane) = lane_iter(block, spatial, lane_loop) else {
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
    if !walks(&Context { layouts: &layouts, ..*context }, block, lane, has_steps) {
        return refuse("what it reads and writes does not lie consecutive along its results");
    }
    let keeps_sums = has_steps && accumulates(block, lane);
    let groups = Groups::of(context, block);
    let n_groups = groups.as_ref().map_or(1, |groups| groups.n);
    let of = |block: &Block| Tile::of(context, block, lane_loop, extent / lanes / n_groups);
    let tile = match has_steps {
        true => of(block),
        // What starts sums goes by the tiles of the block that has them.
        false => {
            let sums = started(context.func, block).filter(|_| groups.is_none());
            sums.map(of).filter(|tile| tile.is_whole).unwrap_or(Tile::ONE)
        }
    };
    let starter = starter(context.func, block).filter(|_| keeps_sums && tile.is_whole && groups.is_none());
    let local = match groups {
        // What a task has for itself does not last from one step to the next.
        Some(_) => Vec::new(),
        None => local_buffers(context, block, &nest, l1_room(context.target) as i64),
    };
    Ok(Strategy {
        block: block.name.clone(),
        domain: Domain::of(context.func, block),
        packings,
        n_own: context.func.loops_around(&block.name).len() - shared.len(),
        lane_loop,
        lanes,
        vectors: tile.vectors,
        rows: tile.rows,
        keeps_sums,
        starts_with: starter.map(|starter| starter.name.clone()),
        local,
        tasks: Tasks::of_all(nest.n_apart(block)),
        groups,
    })
}

/// Of the loops over results outside that of the lanes the innermost whose rows share the vectors that a step loads.
fn row_loop(block: &Block, spatial: &[&Loop], lane_loop: usize) -> Option<usize> {
    let drives =
        |l: &Loop, access: &AccessInfo| block.iters.iter().any(|i| i.value.uses(l.var) && access.uses(i.var));
    let own = block.body.first().map(AccessInfo::of_store)?;
    let vectors: Vec<AccessInfo> = loads(block)
        .into_iter()
        .filter(|read| read.buffer != own.buffer && drives(spatial[lane_loop], read))
        .collect();
    let is_shared = |l: &&Loop| l.extent.as_int() != Some(1) && !vectors.iter().any(|read| drives(l, read));
    spatial[..lane_loop].iter().rposition(is_shared)
}

/// Results that a block works on side by side.
struct Tile {
    /// Its rows, if there are several.
    rows: Option<Rows>,
    /// Vectors of a row.
    vectors: i64,
    /// Whether tiles leave no rows over.
    is_whole: bool,
}

impl Tile {
    /// One vector.
    const ONE: Tile = Tile { rows: None, vectors: 1, is_whole: true };

    /// That of a block with steps of its own, of so many vectors along the loop of its lanes.
    fn of(context: &Context<'_>, block: &Block, lane_loop: usize, n_vectors: i64) -> Tile {
        let Nest { spatial, .. } = Nest::of(context.func, block);
        let keeps_sums = lane_iter(block, &spatial, lane_loop).is_some_and(|lane| accumulates(block, lane));
        let row_loop = row_loop(block, &spatial, lane_loop).filter(|_| keeps_sums);
        let extent = row_loop.map_or(Some(1), |n| spatial[n].extent.as_int());
        let (rows, vectors) = fewest_loads(context, extent, n_vectors);
        let rows = row_loop.filter(|_| rows > 1).map(|row_loop| Rows { row_loop, rows });
        Tile { rows, vectors, is_whole: extent.is_some() }
    }
}

/// Rows and vectors of a tile: those that take the fewest loads for a sum, of one vector of each row and of one element for it. Of an
/// open number of rows the last tile has fewer, each number with code of its own.
fn fewest_loads(context: &Context<'_>, rows: Option<i64>, n_vectors: i64) -> (i64, i64) {
    let target = context.target;
    let registers = i64::from(target.n_vector_registers() - target.n_element_registers());
    let divisors = |n: i64, most: i64| (1..=most.min(n)).filter(move |d| n % d == 0);
    // Several vectors first: they are all that a tile of one row has.
    let n_rows = rows.unwrap_or(MAX_PARTIAL_ROWS);
    let mut best = (1, 1);
    let loads = |(rows, vectors): (i64, i64)| (rows + vectors) as f64 / (rows * vectors) as f64;
    for vectors in divisors(n_vectors, MAX_VECTORS) {
        // A register for each sum and for each vector.
        let most = (registers - vectors) / vectors;
        for rows in divisors(n_rows, most) {
            if loads((rows, vectors)) <= loads(best) {
                best = (rows, vectors);
            }
        }
    }
    best
}

/// The variable of a block that is the counter of one of its loops over results.
fn lane_iter(block: &Block, spatial: &[&Loop], lane_loop: usize) -> Option<usize> {
    let is_driven = |n: &usize| block.iters[*n].value.as_var() == Some(spatial[lane_loop].var);
    iters_of(block, IterKind::Spatial).into_iter().find(is_driven)
}

/// Cycles of a vector of results and step of a block that sums over steps of its own in turn with others; nothing for other blocks.
pub(crate) fn step_cycles(context: &Context<'_>, block: &Block) -> Option<f64> {
    let Nest { shared, spatial, has_steps } = Nest::of(context.func, block);
    let lane = spatial.iter().rposition(|l| l.extent.as_int() != Some(1))?;
    let n_vectors = spatial[lane].extent.as_int()? / i64::from(context.target.lanes(4));
    if shared.is_empty() || !has_steps || n_vectors == 0 {
        return None;
    }
    lane_iter(block, &spatial, lane)?;
    let Tile { rows, vectors, .. } = Tile::of(context, block, lane, n_vectors);
    let rows = rows.map_or(1, |rows| rows.rows);
    let core = &numbers(context.target).core;
    let sums = (rows * vectors) as f64;
    let loads = (rows + vectors) as f64 / core.loads_per_cycle;
    Some(loads.max(sums / f64::from(core.fma_per_cycle)).max(f64::from(core.fma_latency)) / sums)
}

/// Whether what is written moves by one element with the lanes, and what is read too or not at all; in a block without steps of its own a
/// vector may be gathered.
fn walks(context: &Context<'_>, block: &Block, lane: usize, has_steps: bool) -> bool {
    let simplifier = domain_simplifier(context.func, block);
    let stride = |access: &AccessInfo| context.stride(&simplifier, access, block.iters[lane].var);
    let mut written = block.body.iter().map(AccessInfo::of_store);
    let walks = |access: &AccessInfo| matches!(stride(access), Stride::Zero | Stride::Constant(1));
    written.all(|access| stride(&access) == Stride::Constant(1))
        && (!has_steps || loads(block).iter().all(walks))
}

impl Strategy {
    /// Schedules the block.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError> {
        let lost = || ScheduleError::new("recurrence", &self.block, "the loop of its lanes is lost");
        let around = schedule.loop_names(&self.block)?;
        let (shared, _) = around.split_at(around.len().saturating_sub(self.n_own));
        let own = |names: Vec<String>| names.into_iter().filter(|name| !shared.contains(name));
        let steps: Vec<String> = own(loops_of(schedule, &self.block, IterKind::Reduce)?).collect();
        let mut before: Vec<String> = own(loops_of(schedule, &self.block, IterKind::Spatial)?).collect();
        if self.lane_loop >= before.len() {
            return Err(lost());
        }
        for buffer in &self.local {
            schedule.set_scope(buffer, Scope::Stack)?;
        }
        let lane = before.remove(self.lane_loop);
        let rows = match &self.rows {
            Some(Rows { row_loop, rows }) => {
                let parts = schedule.split(before.get(*row_loop).ok_or_else(lost)?, &[None, Some(*rows)])?;
                before[*row_loop].clone_from(&parts[0]);
                parts.get(1).cloned()
            }
            None => None,
        };
        let mut groups = Vec::new();
        let lane = match self.groups {
            Some(Groups { n, .. }) => {
                groups = schedule.split(&lane, &[Some(n), None])?;
                groups.pop().ok_or_else(lost)?
            }
            None => lane,
        };
        let parts = schedule.split(&lane, &[None, Some(self.vectors), Some(self.lanes)])?;
        let order =
            groups.iter().chain(&before).chain([&parts[0]]).chain(&steps).chain(&rows).chain(&parts[1..]);
        schedule.reorder(&order.map(String::as_str).collect::<Vec<_>>())?;
        for name in rows.iter().chain([&parts[1]]) {
            schedule.unroll(name)?;
        }
        schedule.vectorize(&parts[2])?;
        let kept = match self.keeps_sums {
            true => vec![self.keep_in_registers(schedule, &parts[0])?],
            false => Vec::new(),
        };
        if let Some(starter) = &self.starts_with {
            let names = schedule.loop_names(starter)?.split_off(shared.len());
            for (own, with) in before.iter().chain([&parts[0]]).zip(&names) {
                schedule.compute_with(own, with)?;
            }
        }
        if let (Some(of), [group]) = (&self.groups, &groups[..]) {
            of.join(schedule, group)?;
            return Ok(kept);
        }
        let is_shared_out =
            schedule.loops(&self.block)?.first().is_some_and(|l| l.kind == LoopKind::Parallel);
        if !is_shared_out {
            self.tasks.apply(schedule, shared)?;
        }
        Ok(kept)
    }

    /// Keeps the sums of a tile in registers for all steps inside of a loop; gives their layout.
    fn keep_in_registers(&self, schedule: &mut Schedule, around: &str) -> Result<Relayout, ScheduleError> {
        let lost = || ScheduleError::new("recurrence", &self.block, "its sums are lost");
        let copies = schedule.cache_inplace(&self.block, around, Scope::Register)?;
        let kept = schedule.block_info(&self.block)?.writes.pop().ok_or_else(lost)?;
        let mut rank = 0;
        for copy in &copies {
            let iters = schedule.block_info(copy)?.iters.len();
            rank = iters;
            let loops = schedule.loop_names(copy)?;
            let mut own = loops[loops.len().saturating_sub(rank)..].to_vec();
            let lane = own.pop().ok_or_else(lost)?;
            let lane = schedule.split(&lane, &[None, Some(self.lanes)])?;
            for name in own.iter().chain([&lane[0]]) {
                schedule.unroll(name)?;
            }
            schedule.vectorize(&lane[1])?;
        }
        let mut pieces: Vec<Piece> = (0..rank).map(|dim| Piece { dim, factor: None }).collect();
        pieces.push(Piece { dim: rank.saturating_sub(1), factor: Some(self.lanes) });
        Ok(Relayout { buffer: kept, pieces, padding: Padding::Undefined })
    }
}
