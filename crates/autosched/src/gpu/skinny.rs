//! Products of a large matrix with a vector or with few: the large factor comes from memory once, and nothing is shared between tasks.
//!
//! A warp takes one row of the large factor with all vectors. Its lanes go along the steps, several at a time, and combine what they have by
//! halves. A constant is stored so that its steps are consecutive.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError, indivisible};
use tilewright_te::{Block, IterKind, Scope, ThreadLevel};

use super::packing::packing;
use super::product::{LEAST, number_of};
use super::reduction::{STEPS_OF_TASK, fills};
use super::store::{Store, last_of, shares_loops, store_of};
use super::threads::LANES;
use super::tree::{Walk, reduce_in_warp};
use crate::context::Context;
use crate::loops::joined;
use crate::pattern::{
    AccessInfo, Stride, domain_simplifier, is_window, iters_of, operands, stores_at_its_variables,
};
use crate::refusal::Refusal;
use crate::rule::Packing;
use crate::strategy::{Domain, list};

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
    /// How a lane goes through the steps.
    pub walk: Walk,
    /// A constant large factor whose steps are consecutive where it is stored.
    pub packing: Option<Packing>,
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
        write!(f, "{} warps a task{}", self.warps, self.walk)?;
        self.packing.iter().try_for_each(|packing| write!(f, ", constant {packing}"))
    }
}

/// What a block's variables are to its factors.
struct Roles {
    /// The factor that most of what is read is of.
    large: AccessInfo,
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
        let (large, own, vectors) = match number(&of_a) > number(&of_b) {
            true => (a, of_a, of_b),
            false => (b, of_b, of_a),
        };
        let is_few = number(&vectors) < LEAST;
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
        Ok(Roles { large, vectors, rows, others, steps })
    }
}

/// Plans a product whose large factor is read along its steps.
pub(crate) fn plan(context: &Context<'_>, block: &Block) -> Result<Strategy, Refusal> {
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
    let used = |n: &usize| roles.large.uses(block.iters[*n].var);
    let by: Vec<usize> = roles.others.iter().copied().filter(used).chain(roles.steps.clone()).collect();
    let packing = packing(context, block, &roles.large, &by);
    let simplifier = domain_simplifier(context.func, block);
    let step = roles.steps.last().map(|&n| &block.iters[n]);
    let is_next = |var| context.stride(&simplifier, &roles.large, var) == Stride::Constant(1);
    let Some(step) = step.filter(|step| packing.is_some() || is_next(step.var)) else {
        return refuse("the steps of its matrix are not consecutive");
    };
    let Some(store) = store_of(context, block) else { return refuse("its results cannot wait in registers") };
    let last = last_of(context, block, Some(&store));
    if !stores_at_its_variables(last) || last.body.iter().any(|s| context.layout(s.buffer).is_some()) {
        return refuse("its results are stored in other places than computed");
    }
    let spatial = iters_of(block, IterKind::Spatial);
    let places = |of: &[usize]| (0..spatial.len()).filter(|&at| of.contains(&spatial[at])).collect();
    let rows = number_of(block, &roles.rows);
    Ok(Strategy {
        block: block.name.clone(),
        domain: Domain::of(context.func, block),
        store,
        vectors: places(&roles.vectors),
        rows: places(&roles.rows),
        warps: [4, 2].into_iter().find(|&n| fills(context, n, rows)).unwrap_or(1),
        walk: Walk::of(steps, step.extent.as_int(), LANES),
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
        self.store.copy().into_iter().collect()
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
        let parts = schedule.split(&rows, &[None, Some(self.warps)])?;
        schedule.bind(&parts[1], ThreadLevel::Warp)?;
        reduce_in_warp(schedule, &self.block, &parts[1], self.walk)?;
        for name in &vectors {
            schedule.unroll(name)?;
        }
        tasks.push(parts[0].clone());
        let task = joined(schedule, &tasks)?;
        schedule.parallel(&task)
    }
}
