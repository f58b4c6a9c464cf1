//! Products of a large matrix with a vector or with few: the large factor comes from memory once, and nothing is shared between tasks.
//!
//! A warp takes a row of the large factor, or a few, with all vectors. Its lanes go along the steps, several at a time, and combine what they
//! have by halves. A constant is stored so that its steps are consecutive. Of several vectors there is more than L1 holds: then the warps of a
//! task go through the steps together, and have both factors in shared memory.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_machine::DeviceKind;
use tilewright_te::schedule::{Schedule, ScheduleError, indivisible};
use tilewright_te::{Block, IterKind, Scope, ThreadLevel};

use super::packing::packing;
use super::product::{LEAST, may_be_copied, number_of};
use super::reduction::{STEPS_OF_TASK, fills};
use super::store::{Store, last_of, shares_loops, store_of};
use super::team::{Extents, Team};
use super::threads::LANES;
use super::tree::{Nest, Sharing, WIDEST, Walk, combine_in_warp, reduce_in_warp};
use crate::context::Context;
use crate::decisions::Chooser;
use crate::loops::{joined, loops_of};
use crate::pattern::{
    AccessInfo, Stride, domain_simplifier, is_window, iters_of, loads, operands, stores_at_its_variables,
};
use crate::refusal::Refusal;
use crate::rule::Packing;
use crate::strategy::{Domain, list};

/// Most vectors beside a matrix: with more, multiply-adds take as long as memory does.
const MOST_VECTORS: i64 = 16;

/// Vectors from which on tiles in shared memory do as well, where steps or warps are few.
const SEVERAL_VECTORS: i64 = LEAST;

/// Steps beside several vectors, at least: what lanes combine at the end is little beside them.
const LEAST_STEPS: i64 = 512;

/// What is done to a product of few rows or columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// The block that stores its results.
    pub store: Store,
    /// Positions of the variables that count vectors, among those that are data-parallel: a warp has all of these.
    pub vectors: Vec<usize>,
    /// Positions of those that the warps of a task share, likewise.
    pub rows: Vec<usize>,
    /// Warps of a task.
    pub warps: i64,
    /// How the warps of a task go through the steps together, if they do.
    pub together: Option<Together>,
    /// How a lane goes through the steps.
    pub walk: Walk,
    /// A constant large factor whose steps are consecutive where it is stored.
    pub packing: Option<Packing>,
}

/// How the warps of a task go through the steps together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Together {
    /// Rows of a warp.
    pub rows: i64,
    /// The factors, which are copied to shared memory.
    pub factors: [String; 2],
    /// The blocks that copy them.
    pub fetch: [String; 2],
    /// Stages of the pipeline that does so.
    pub stages: u32,
}

/// `fc: f32[1, 1000 | 2048], rows 0, 1, 4 warps a task, 4 by 4 steps a lane, constant w as b a`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, ", self.block, self.domain)?;
        self.store.fmt(f)?;
        if !self.vectors.is_empty() {
            write!(f, "vectors {}, ", list(&self.vectors))?;
        }
        write!(f, "rows {}, ", list(&self.rows))?;
        write!(f, "{} warps a task", self.warps)?;
        if let Some(Together { rows, stages, .. }) = &self.together {
            write!(f, " of {rows} rows, fetched in {stages} stages")?;
        }
        write!(f, "{}", self.walk)?;
        self.packing.iter().try_for_each(|packing| write!(f, ", constant {packing}"))
    }
}

/// What a block's variables are to its factors.
struct Roles {
    /// The factors, that which most of what is read is of last.
    factors: [AccessInfo; 2],
    /// Positions of the variables that move the other factor alone.
    vectors: Vec<usize>,
    /// Positions of the variables that warps share.
    rows: Vec<usize>,
    /// Positions of all data-parallel variables but those of vectors.
    others: Vec<usize>,
    steps: Vec<usize>,
}

impl Roles {
    fn of(block: &Block) -> Result<Roles, &'static str> {
        let Some((a, b)) = operands(block).filter(|_| stores_at_its_variables(block)) else {
            return Err("no sum of products of two operands");
        };
        let var = |n: usize| block.iters[n].var;
        let spatial = iters_of(block, IterKind::Spatial);
        let several = |n: &usize| block.iters[*n].extent.as_int() != Some(1);
        let of = |own: &AccessInfo, other: &AccessInfo| -> Vec<usize> {
            let is_own = |n: &usize| several(n) && own.uses(var(*n)) && !other.uses(var(*n));
            spatial.iter().copied().filter(is_own).collect()
        };
        let (of_a, of_b) = (of(&a, &b), of(&b, &a));
        let number = |own: &[usize]| number_of(block, own).unwrap_or(i64::MAX);
        let (large, small, own, vectors) = match number(&of_a) > number(&of_b) {
            true => (a, b, of_a, of_b),
            false => (b, a, of_b, of_a),
        };
        let is_few = number(&vectors) <= MOST_VECTORS;
        if own.is_empty() || !is_few {
            return Err("neither factor is a matrix beside few vectors");
        }
        if is_window(block, &large) {
            return Err("its matrix is read by windows");
        }
        let steps: Vec<usize> = iters_of(block, IterKind::Reduce).into_iter().filter(several).collect();
        if steps.is_empty() || !steps.iter().all(|&n| large.uses(var(n))) {
            return Err("a step does not move the matrix");
        }
        let others: Vec<usize> = spatial.into_iter().filter(|n| !vectors.contains(n)).collect();
        // Of several results of a warp it has to be plain that none is another warp's: they are a constant distance apart.
        let is_plain = own.len() == 1 && block.iters.iter().all(|iter| iter.extent.as_int().is_some());
        if !vectors.is_empty() && !is_plain {
            return Err("the rows of its matrix are more than a variable, or open");
        }
        let rows = if vectors.is_empty() { others.clone() } else { own };
        Ok(Roles { factors: [small, large], vectors, rows, others, steps })
    }
}

/// Plans a product whose large factor is read along its steps.
pub(crate) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("skinny", &block.name, reason));
    let Some(gpu) = context.target.gpu else { return refuse("the machine has no GPU") };
    if !context.is_as_computed(block) || shares_loops(context, block) {
        return refuse("its loops are not its own");
    }
    if let Some(reason) = indivisible(block) {
        return refuse(reason);
    }
    let roles = Roles::of(block).map_err(|reason| Refusal::new("skinny", &block.name, reason))?;
    let (all, steps) = (number_of(block, &roles.others), number_of(block, &roles.steps));
    if steps.is_none_or(|n| n < LANES) {
        return refuse("few steps");
    }
    let is_long = steps.is_some_and(|n| n >= STEPS_OF_TASK);
    if is_long && all.is_some_and(|n| n < i64::from(gpu.multiprocessors)) {
        return refuse("too few rows for a warp each");
    }
    let [small, large] = &roles.factors;
    let used = |n: &usize| large.uses(block.iters[*n].var);
    let by: Vec<usize> = roles.others.iter().copied().filter(used).chain(roles.steps.clone()).collect();
    let packing = packing(context, block, large, &by);
    let simplifier = domain_simplifier(context.func, block);
    let step = roles.steps.last().map(|&n| &block.iters[n]);
    let is_next_in = |access, var| context.stride(&simplifier, access, var) == Stride::Constant(1);
    let Some(step) = step.filter(|step| packing.is_some() || is_next_in(large, step.var)) else {
        return refuse("the steps of its matrix are not consecutive");
    };
    let Some(store) = store_of(context, block) else { return refuse("its results cannot wait in registers") };
    let last = last_of(context, block, Some(&store));
    if !stores_at_its_variables(last) || last.body.iter().any(|s| context.layout(s.buffer).is_some()) {
        return refuse("its results are stored in other places than computed");
    }
    let spatial = iters_of(block, IterKind::Spatial);
    let places = |of: &[usize]| (0..spatial.len()).filter(|&at| of.contains(&spatial[at])).collect();
    let vectors = number_of(block, &roles.vectors).unwrap_or(1);
    let (rows, mut walk) = (number_of(block, &roles.rows), Walk::of(steps, step.extent.as_int(), LANES));
    let mut warps = [4, 2].into_iter().find(|&n| fills(context, n, rows)).unwrap_or(1);
    let mut together = None;
    if vectors >= SEVERAL_VECTORS {
        // Lanes there shuffle through shared memory, one result after the other.
        if context.target.device == Some(DeviceKind::OpenCl) {
            return refuse("several vectors, on a device that has no shuffles");
        }
        if !is_next_in(small, step.var) || walk.together != WIDEST || steps.is_none_or(|n| n < LEAST_STEPS) {
            return refuse("several vectors, and few steps");
        }
        may_be_copied(context, block, &roles.factors)
            .map_err(|reason| Refusal::new("skinny", &block.name, reason))?;
        walk.at_once = 1;
        let extents =
            rows.zip(all).zip(steps).map(|((rows, all), steps)| Extents { vectors, rows, all, steps });
        let offered = extents.map(|extents| Team::candidates(&gpu, &extents)).unwrap_or_default();
        if offered.is_empty() {
            return refuse("several vectors, and few rows");
        }
        let team = chooser.decide(&block.name, "team", &offered)?;
        warps = team.warps;
        let Some(stages) = team.stages(&gpu, vectors) else { return refuse("too much shared memory") };
        let factors = [small, large].map(|access| context.func.buffers[access.buffer].name.clone());
        let fetch = [0, 1].map(|n: usize| context.new_block(&format!("{}_read", factors[n])));
        together = Some(Together { rows: team.rows, factors, fetch, stages });
    }
    Ok(Strategy {
        block: block.name.clone(),
        domain: Domain::of(context.func, block),
        store,
        vectors: places(&roles.vectors),
        rows: places(&roles.rows),
        warps,
        together,
        walk,
        packing,
    })
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        [self.block.clone()].into_iter().chain(self.store.taken()).collect()
    }

    /// The blocks that it makes.
    pub(crate) fn copies(&self) -> Vec<String> {
        let fetch = self.together.iter().flat_map(|together| together.fetch.clone());
        self.store.copy().into_iter().chain(fetch).collect()
    }

    /// Schedules the block.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        if self.store.is_copy {
            schedule.cache_write(&self.block, Scope::Register)?;
        }
        let loops = schedule.loop_names(&self.store.block)?;
        let named = |of: &[usize]| of.iter().filter_map(|&at| loops.get(at)).cloned().collect::<Vec<_>>();
        let (vectors, rows) = (named(&self.vectors), named(&self.rows));
        let mut tasks = loops.clone();
        tasks.retain(|name| !vectors.contains(name) && !rows.contains(name));
        let order: Vec<&str> = tasks.iter().chain(&rows).chain(&vectors).map(String::as_str).collect();
        schedule.reorder(&order)?;
        let rows = joined(schedule, &rows)?;
        let own = self.together.as_ref().map(|together| Some(together.rows));
        let factors: Vec<Option<i64>> = [None, Some(self.warps)].into_iter().chain(own).collect();
        let parts = schedule.split(&rows, &factors)?;
        schedule.bind(&parts[1], ThreadLevel::Warp)?;
        tasks.push(parts[0].clone());
        let task = joined(schedule, &tasks)?;
        match &self.together {
            None => {
                for name in &vectors {
                    schedule.unroll(name)?;
                }
                reduce_in_warp(schedule, &self.block, &parts[1], self.walk)?;
            }
            Some(together) => {
                let row = parts.last().ok_or_else(|| self.lost())?;
                let (result, sharing) = self.share_results(schedule, row, &vectors)?;
                self.reduce_together(schedule, together, [&task, &parts[1], &result], sharing)?;
            }
        }
        schedule.parallel(&task)
    }

    fn lost(&self) -> ScheduleError {
        ScheduleError::new("skinny", &self.block, "its loops are lost")
    }

    /// Has lanes share the results of a warp: a result for each of its own rows and vectors. Gives the loop over a lane's results.
    fn share_results(
        &self,
        schedule: &mut Schedule,
        row: &str,
        vectors: &[String],
    ) -> Result<(String, Sharing), ScheduleError> {
        let at = self.rows.first().copied().ok_or_else(|| self.lost())?;
        let slowest = self.vectors.iter().filter(|&&vector| vector < at).count();
        let mut results = vectors.to_vec();
        results.insert(slowest, row.to_owned());
        // No lane has parts of what a loop counts beside others, so that it is plain which results are whose.
        let mut lanes = 1;
        for name in [row].into_iter().chain(vectors.iter().map(String::as_str)) {
            let extent = schedule.extent(name).unwrap_or(1);
            lanes *= 1 << extent.trailing_zeros().min(LANES.ilog2());
            if extent.count_ones() != 1 {
                break;
            }
        }
        let sharing = Sharing { lanes: lanes.min(LANES), slowest };
        let all = sharing.joined(schedule, results)?;
        let parts = schedule.split(&all, &[Some(sharing.lanes), None])?;
        schedule.bind(&parts[0], ThreadLevel::Lane)?;
        schedule.unroll(&parts[1])?;
        Ok((parts[1].clone(), sharing))
    }

    /// Reduces by the warps of a task, which fetch both factors for some steps at a time: the loops over tasks, warps and a lane's results.
    fn reduce_together(
        &self,
        schedule: &mut Schedule,
        together: &Together,
        [task, warp, result]: [&str; 3],
        sharing: Sharing,
    ) -> Result<(), ScheduleError> {
        let lost = || self.lost();
        let partial = combine_in_warp(schedule, &self.block, [warp, result], self.walk, sharing)?;
        let mut fetched = Vec::new();
        for factor in &together.factors {
            let by = by_rows(schedule, &partial, factor).ok_or_else(lost)?;
            fetched.push(schedule.reindex(&partial, factor, &by, Scope::Shared)?);
        }
        let made = schedule.compute_at(&partial, task)?;
        let Nest { lane, mut results, steps } = Nest::of(schedule, &partial, &made)?;
        let all: Vec<String> = loops_of(schedule, &partial, IterKind::Spatial)?;
        let all: Vec<&String> = all.iter().filter(|name| made.contains(name)).collect();
        let row = self.rows.first().and_then(|&at| all.get(at).copied()).ok_or_else(lost)?;
        results.retain(|name| name != row);
        let rows = schedule.split(row, &[Some(self.warps), None])?;
        let (first, others) = steps.split_first().ok_or_else(lost)?;
        // A vector at a time: registers have room for a few steps of one, and of all rows.
        let order = [first, &rows[0], &lane].into_iter().chain(&results).chain(others).chain([&rows[1]]);
        schedule.reorder(&order.map(String::as_str).collect::<Vec<_>>())?;
        schedule.bind(&rows[0], ThreadLevel::Warp)?;
        schedule.bind(&lane, ThreadLevel::Lane)?;
        for name in others.iter().chain([&rows[1]]).chain(&results) {
            schedule.unroll(name)?;
        }
        schedule.decompose_reduction(&partial, first)?;
        for fetch in &fetched {
            let made = schedule.compute_at(fetch, first)?;
            let all = joined(schedule, &made)?;
            let parts =
                schedule.split(&all, &[None, Some(self.warps), Some(LANES), Some(self.walk.together)])?;
            schedule.unroll(&parts[0])?;
            schedule.bind(&parts[1], ThreadLevel::Warp)?;
            schedule.bind(&parts[2], ThreadLevel::Lane)?;
            schedule.vectorize(&parts[3])?;
        }
        schedule.pipeline(first, together.stages)
    }
}

/// The variables of the block of partial results by which it reads a factor, so that steps follow one another: those of rows or vectors, the
/// iteration, the lane, and the lane's own steps.
fn by_rows(schedule: &Schedule, partial: &str, factor: &str) -> Option<Vec<usize>> {
    let func = schedule.func();
    let block = func.block(partial)?;
    let access = loads(block).into_iter().find(|access| func.buffers[access.buffer].name == factor)?;
    let used = |kind| iters_of(block, kind).into_iter().filter(|&n| access.uses(block.iters[n].var));
    let (mut by, mut steps): (Vec<usize>, _) = (used(IterKind::Spatial).collect(), used(IterKind::Reduce));
    let lane = by.pop()?;
    by.extend(steps.next());
    by.push(lane);
    by.extend(steps);
    Some(by)
}
