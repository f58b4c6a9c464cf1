//! Matrix products and convolutions: tiles in registers, both factors through shared memory.
//!
//! Whatever indexes the factors, each is copied by the block's variables first (im2col for a convolution), so that there are rows, columns
//! and steps. The copies are filled by all threads of a task, a few steps at a time.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Expr, IterKind, Scope, ThreadLevel};

use super::packing::packing;
use super::store::{Store, shares_loops, store_of};
use super::threads::LANES;
use super::tile::{Extents, Tile, depths};
use crate::context::Context;
use crate::decisions::Chooser;
use crate::layouts::Relayout;
use crate::loops::joined;
use crate::pattern::{
    AccessInfo, Stride, constant_product, domain_simplifier, is_cheap, iters_of, operands,
    stores_at_its_variables,
};
use crate::refusal::Refusal;
use crate::rule::Packing;
use crate::strategy::{Domain, list};

/// Rows, and columns, from which on there are tiles.
pub(super) const LEAST: i64 = 8;

/// Elements that one instruction copies to shared memory where they are consecutive: 16 bytes, the most that it can (PTX ISA, `cp.async`).
const TOGETHER: i64 = 4;

/// Elements between the rows of a shared array that holds the steps of each row together, beyond these: so that lanes which read several rows
/// at once read different banks.
const APART: i64 = 4;

/// What the distance of such rows is a multiple of, but for [`APART`].
const ROWS_APART: i64 = 8;

/// Where the loops over threads and over a thread's own are in what `Strategy::parts` gives: warps, lanes, groups, and those of a group.
const THREADS_FIRST: [usize; 4] = [0, 2, 1, 3];

/// Steps from which on fetching pays.
const LEAST_STEPS: i64 = 4;

/// What is done to a product.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// The block that stores its results.
    pub store: Store,
    /// The factors: that of rows, that of columns.
    pub factors: [Factor; 2],
    /// Positions of the variables that count rows, columns and steps; all other data-parallel ones number products.
    pub rows: Vec<usize>,
    /// See `rows`.
    pub columns: Vec<usize>,
    /// See `rows`; in the order in which steps are taken.
    pub steps: Vec<usize>,
    /// The tile.
    pub tile: Tile,
    /// Steps that are fetched at a time.
    pub steps_at_a_time: i64,
    /// Stages of the pipeline that fetches them, 1 if there is none.
    pub stages: u32,
    /// Constants that are stored as they are fetched.
    pub packings: Vec<Packing>,
}

/// A factor of a product.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Factor {
    /// The buffer.
    pub buffer: String,
    /// The block that fills it, if that is computed on the way.
    pub on_the_way: Option<String>,
    /// The block that fetches it.
    pub fetch: String,
    /// Positions of the variables by which it is read: those that number products first, then steps and rows or columns, the one last that
    /// it is fetched along.
    pub by: Vec<usize>,
    /// Elements that a thread fetches with one instruction: they are consecutive in memory too.
    pub together: i64,
    /// Whether it is fetched along steps, as it is consecutive in memory along these and not along rows or columns.
    pub by_steps: bool,
}

/// `conv: f32[1, 64, 56, 56 | 64, 3, 3], rows 1, columns 2 3, steps 4 5 6, tile 64x128of8x8, 8 steps at a time`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, ", self.block, self.domain)?;
        self.store.fmt(f)?;
        for factor in &self.factors {
            if let Some(block) = &factor.on_the_way {
                write!(f, "{block} on the way, ")?;
            }
            if factor.together > 1 {
                write!(f, "{} by {}, ", factor.buffer, factor.together)?;
            }
            if factor.by_steps {
                write!(f, "{} along steps, ", factor.buffer)?;
            }
        }
        let positions = |of: &[usize]| of.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        let [rows, columns, steps] = [&self.rows, &self.columns, &self.steps].map(|of| positions(of));
        write!(f, "rows {rows}, columns {columns}, steps {steps}, tile {}, ", self.tile)?;
        write!(f, "{} steps at a time", self.steps_at_a_time)?;
        if self.stages > 1 {
            write!(f, " in {} stages", self.stages)?;
        }
        if !self.packings.is_empty() {
            write!(f, ", constant {}", list(&self.packings))?;
        }
        Ok(())
    }
}

/// What a block's variables are to its factors.
pub(super) struct Roles {
    /// The factor of rows and that of columns.
    pub(super) factors: [AccessInfo; 2],
    rows: Vec<usize>,
    columns: Vec<usize>,
    /// The positions of the variables that count steps, in the order in which these are taken.
    pub(super) steps: Vec<usize>,
    products: Vec<usize>,
}

impl Roles {
    /// Finds them.
    pub(super) fn of(block: &Block) -> Result<Roles, &'static str> {
        let Some((a, b)) = operands(block).filter(|_| stores_at_its_variables(block)) else {
            return Err("no sum of products of two operands");
        };
        let uses = |n: &usize, access: &AccessInfo| access.uses(block.iters[*n].var);
        let spatial = iters_of(block, IterKind::Spatial);
        // Columns are those that results are consecutive along.
        let several = |n: &&usize| block.iters[**n].extent.as_int() != Some(1);
        let last = spatial.iter().rev().filter(several).find(|n| uses(n, &a) != uses(n, &b));
        let swapped = last.is_some_and(|n| uses(n, &a));
        let factors = if swapped { [b, a] } else { [a, b] };
        let of = |own: usize| {
            let only = spatial.iter().filter(several);
            let only = only.filter(|n| uses(n, &factors[own]) && !uses(n, &factors[1 - own]));
            last_run(block, &only.copied().collect::<Vec<_>>())
        };
        let (rows, columns) = (of(0), of(1));
        // What has one value moves nothing.
        let steps: Vec<usize> =
            iters_of(block, IterKind::Reduce).into_iter().filter(|n| several(&n)).collect();
        if !steps.iter().all(|n| uses(n, &factors[0]) && uses(n, &factors[1])) {
            return Err("a step does not move both factors");
        }
        if rows.is_empty() || columns.is_empty() || steps.is_empty() {
            return Err("one of its factors is no matrix");
        }
        if last_run(block, &steps).len() < steps.len() {
            return Err("its steps have open extents");
        }
        let products = spatial.into_iter().filter(|n| !rows.contains(n) && !columns.contains(n)).collect();
        Ok(Roles { factors, rows, columns, steps, products })
    }

    /// How many products, rows and columns there are.
    pub(super) fn extents(&self, block: &Block) -> Extents {
        let [batch, rows, columns] =
            [&self.products, &self.rows, &self.columns].map(|of| number_of(block, of));
        Extents { batch, rows, columns }
    }
}

/// The product of the extents of some variables, where known.
pub(super) fn number_of(block: &Block, variables: &[usize]) -> Option<i64> {
    constant_product(variables.iter().map(|&n| &block.iters[n].extent))
}

/// The steps of a convolution through the window first and then through the channels, if what is fetched together then has one place in
/// the window: where that place is, and whether it is padding, is found once for all of it.
fn channels_last(block: &Block, roles: &Roles, at_a_time: i64) -> Vec<usize> {
    let Roles { factors: [_, access], columns, steps, .. } = roles;
    let mut steps = steps.clone();
    let var = |n: usize| block.iters[n].var;
    // A place in a window is added to one among the columns.
    let is_added = |index: &Expr| columns.iter().any(|&column| index.uses(var(column)));
    let is_channel = |n: usize| !access.indices.iter().any(|index| index.uses(var(n)) && is_added(index));
    let is_whole = |n: usize| block.iters[n].extent.as_int().is_some_and(|extent| extent % at_a_time == 0);
    let found = steps.iter().rposition(|&n| is_channel(n) && is_whole(n));
    if let Some(at) = found.filter(|_| !steps.iter().all(|&n| is_channel(n))) {
        let channels = steps.remove(at);
        steps.push(channels);
    }
    steps
}

/// The last of some variables that follow one another and have known extents, or the last alone.
fn last_run(block: &Block, variables: &[usize]) -> Vec<usize> {
    let known = |n: usize| block.iters[n].extent.as_int().is_some();
    let Some((&last, before)) = variables.split_last() else { return Vec::new() };
    let mut run = vec![last];
    for &n in before.iter().rev() {
        if n + 1 != run[0] || !known(n) || !known(run[0]) {
            break;
        }
        run.insert(0, n);
    }
    run
}

/// Plans a product of matrices, or what copies of its factors make one.
pub(crate) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("product", &block.name, reason));
    let Some(gpu) = context.target.gpu else { return refuse("the machine has no GPU") };
    if !context.is_as_computed(block) || shares_loops(context, block) {
        return refuse("its loops are not its own");
    }
    let mut roles = Roles::of(block).map_err(|reason| Refusal::new("product", &block.name, reason))?;
    let (extents, steps) = (roles.extents(block), number_of(block, &roles.steps));
    let is_less = |extent: Option<i64>, least: i64| extent.is_some_and(|n| n < least);
    if is_less(extents.rows, LEAST) || is_less(extents.columns, LEAST) || is_less(steps, LEAST_STEPS) {
        return refuse("few rows, columns or steps");
    }
    may_be_copied(context, block, &roles.factors)
        .map_err(|reason| Refusal::new("product", &block.name, reason))?;
    let simplifier = domain_simplifier(context.func, block);
    let Some(store) = store_of(context, block) else { return refuse("its results cannot wait in registers") };
    let tile = chooser.decide(&block.name, "tile", &Tile::candidates(&gpu, extents))?;
    let depth = chooser.decide(&block.name, "depth", &depths(steps))?;
    roles.steps = channels_last(block, &roles, depth);
    let [a, b] = &roles.factors;
    let [own_rows, own_columns] = tile.extents();
    let mut factors = [(a, &roles.rows), (b, &roles.columns)].map(|(access, own)| {
        let used = |n: &&usize| access.uses(block.iters[**n].var);
        let by = roles.products.iter().chain(&roles.steps).chain(own).filter(used).copied().collect();
        let buffer = context.func.buffers[access.buffer].name.clone();
        let on_the_way = producer_on_the_way(context, block, access);
        Factor {
            fetch: context.new_block(&format!("{buffer}_read")),
            buffer,
            on_the_way,
            by,
            together: 1,
            by_steps: false,
        }
    });
    let packings: Vec<Option<Packing>> =
        roles.factors.iter().zip(&factors).map(|(a, f)| packing(context, block, a, &f.by)).collect();
    let owns = [(extents.rows, own_rows, &roles.rows), (extents.columns, own_columns, &roles.columns)];
    for (n, (all, tile, own)) in owns.into_iter().enumerate() {
        let (access, factor) = (&roles.factors[n], &mut factors[n]);
        let is_next =
            |last: usize| context.stride(&simplifier, access, block.iters[last].var) == Stride::Constant(1);
        let run = |last: Option<&usize>| last.and_then(|&last| block.iters[last].extent.as_int());
        let last = own.last().filter(|&&last| packings[n].is_some() || is_next(last));
        let step = roles.steps.last().filter(|&&step| last.is_none() && is_next(step));
        factor.by_steps = step.is_some();
        if factor.by_steps {
            // Those that number products stay in front.
            let at = factor.by.len() - own.len() - roles.steps.len();
            factor.by[at..].rotate_left(roles.steps.len());
        }
        if factor.on_the_way.is_none() {
            factor.together = match factor.by_steps {
                true => together(run(step), (steps, depth), tile),
                false => together(run(last), (all, tile), depth),
            };
        }
    }
    // What keeps rows apart, in elements for each step.
    let apart = [own_rows, own_columns].into_iter().zip(&factors).filter(|(_, factor)| factor.by_steps);
    let apart = apart.map(|(rows, _)| rows * APART / depth).sum::<i64>();
    let stages = chooser.decide(&block.name, "stages", &tile.stages(&gpu, steps, [depth, apart]))?;
    Ok(Strategy {
        block: block.name.clone(),
        domain: Domain::of(context.func, block),
        store,
        packings: packings.into_iter().flatten().collect(),
        factors,
        steps_at_a_time: depth,
        stages,
        tile,
        rows: roles.rows,
        columns: roles.columns,
        steps: roles.steps,
    })
}

/// Whether a block may read both factors through copies: each its own buffer, read inside of it, and written in full.
pub(super) fn may_be_copied(
    context: &Context<'_>,
    block: &Block,
    factors: &[AccessInfo; 2],
) -> Result<(), &'static str> {
    let simplifier = domain_simplifier(context.func, block);
    let is_inside = |access: &AccessInfo| {
        let shape = &context.func.buffers[access.buffer].shape;
        access.indices.iter().zip(shape).all(|(index, extent)| {
            simplifier.prove_le(&Expr::int(0), index) && simplifier.prove_lt(index, extent)
        })
    };
    let [a, b] = factors;
    if a.buffer == b.buffer || !factors.iter().all(is_inside) {
        return Err("its factors cannot be copied");
    }
    match factors.iter().all(|access| context.func.is_whole(access.buffer)) {
        true => Ok(()),
        false => Err("a factor is never written in full"),
    }
}

/// Elements of a factor that a thread fetches with one instruction: several where so many follow one another in memory in a `run`, of which
/// parts, given as all and a part, leave none over. Across them a task fetches `others`: what is not there is read where the last one is.
fn together(run: Option<i64>, (all, part): (Option<i64>, i64), others: i64) -> i64 {
    let is_whole = all.is_some_and(|all| all % part == 0);
    let fits = run.is_some_and(|run| run % TOGETHER == 0) && (part * others) % (TOGETHER * LANES) == 0;
    if fits && is_whole { TOGETHER } else { 1 }
}

/// The block that computes a factor, if it is cheap and for this product alone: the padding of a convolution's input.
fn producer_on_the_way(context: &Context<'_>, block: &Block, access: &AccessInfo) -> Option<String> {
    let writes = |other: &&&Block| other.body.iter().any(|store| store.buffer == access.buffer);
    let blocks = context.func.blocks();
    let mut writers = blocks.iter().filter(writes);
    let (Some(writer), None) = (writers.next(), writers.next()) else { return None };
    let [store] = &writer.body[..] else { return None };
    let is_alone = matches!(&context.func.consumers(writer)[..], [consumer] if consumer.name == block.name);
    let inlines = !writer.is_reduction()
        && writer.init.is_empty()
        && stores_at_its_variables(writer)
        && is_cheap(&store.value)
        && context.is_as_computed(writer)
        && !context.func.params.contains(&access.buffer);
    (is_alone && inlines).then(|| writer.name.clone())
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        let store = self.store.taken();
        let producers = self.factors.iter().filter_map(|factor| factor.on_the_way.clone());
        [self.block.clone()].into_iter().chain(store).chain(producers).collect()
    }

    /// The blocks that it makes.
    pub(crate) fn copies(&self) -> Vec<String> {
        let store = self.store.copy();
        self.factors.iter().map(|factor| factor.fetch.clone()).chain(store).collect()
    }

    /// Schedules the block.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError> {
        let fetched = self.as_product(schedule)?;
        let task = self.store_tiles(schedule)?;
        let steps = self.multiply(schedule, &task)?;
        for ((fetch, factor), extent) in fetched.iter().zip(&self.factors).zip(self.tile.extents()) {
            self.fetch(schedule, fetch, &steps, factor, extent * self.steps_at_a_time)?;
        }
        if self.stages > 1 {
            schedule.pipeline(&steps, self.stages)?;
        }
        schedule.parallel(&task)?;
        Ok(Vec::new())
    }

    /// Gives the block one variable for rows, one for columns and one for steps, each a multiple of the tile's, and copies of its factors
    /// that are indexed by these; gives the blocks that fill them.
    fn as_product(&self, schedule: &mut Schedule) -> Result<Vec<String>, ScheduleError> {
        let lost = || ScheduleError::new("product", &self.block, "its variables are lost");
        let mut fetched = Vec::new();
        for factor in &self.factors {
            fetched.push(schedule.reindex(&self.block, &factor.buffer, &factor.by, Scope::Shared)?);
            if let Some(producer) = &factor.on_the_way {
                schedule.compute_inline(producer)?;
            }
        }
        let written = |schedule: &Schedule, block: &str| -> Result<String, ScheduleError> {
            schedule.block_info(block)?.writes.pop().ok_or_else(lost)
        };
        let result = match self.store.is_copy {
            true => {
                schedule.cache_write(&self.block, Scope::Register)?;
                written(schedule, &self.block)?
            }
            false => {
                let result = written(schedule, &self.block)?;
                schedule.set_scope(&result, Scope::Register)?;
                result
            }
        };
        let mut ends = vec![self.store.block.clone()];
        ends.extend(fetched.iter().cloned());
        let first_step = self.steps.iter().min().copied().ok_or_else(lost)?;
        let loops = schedule.loop_names(&self.block)?;
        let steps: Vec<&str> = self.steps.iter().map(|&n| loops[n].as_str()).collect();
        schedule.reorder(&steps)?;
        // Later variables first, so that earlier ones are where they were.
        for run in self.runs() {
            for n in run.iter().rev().skip(1) {
                match *n < first_step {
                    true => schedule.collapse_dims_within(&result, *n, &ends)?,
                    false => {
                        let by = &self.factors[0].by;
                        let dim = by.iter().position(|other| other == n).ok_or_else(lost)?;
                        let copy = written(schedule, &fetched[0])?;
                        schedule.collapse_dims_within(&copy, dim, &ends)?;
                    }
                }
            }
        }
        let n = schedule.block_info(&self.block)?.iters.len();
        let [rows, columns] = self.tile.extents();
        let factors: Vec<i64> = (0..n)
            .map(|at| match at {
                at if at == self.place_of(&self.rows) => rows,
                at if at == self.place_of(&self.columns) => columns,
                at if at == self.place_of(&self.steps) => self.steps_at_a_time,
                _ => 1,
            })
            .collect();
        for ((fetch, factor), extent) in fetched.iter().zip(&self.factors).zip([rows, columns]) {
            let n = schedule.block_info(fetch)?.iters.len();
            let mut factors = vec![1; n.saturating_sub(2)];
            factors.extend([self.steps_at_a_time, extent]);
            if factor.by_steps {
                factors[n.saturating_sub(2)..].reverse();
            }
            schedule.pad_einsum(fetch, &factors)?;
        }
        schedule.pad_einsum(&self.block, &factors)?;
        Ok(fetched)
    }

    /// The variables that become one, the last run first.
    fn runs(&self) -> Vec<&[usize]> {
        let mut runs: Vec<&[usize]> = vec![&self.rows, &self.columns, &self.steps];
        runs.sort_by_key(|run| std::cmp::Reverse(run.iter().min().copied()));
        runs
    }

    /// Where the variable is that a run becomes.
    fn place_of(&self, run: &[usize]) -> usize {
        let first = run.iter().min().copied();
        let before = self.runs().into_iter().filter(|other| other.iter().min().copied() < first);
        first.unwrap_or_default() - before.map(|other| other.len() - 1).sum::<usize>()
    }

    /// Makes tiles of the loops over results; gives the loop over tasks.
    fn store_tiles(&self, schedule: &mut Schedule) -> Result<String, ScheduleError> {
        let mut loops = schedule.loop_names(&self.store.block)?;
        let [row, column] = [self.place_of(&self.rows), self.place_of(&self.columns)];
        let (rows, columns) = (
            schedule.split(&loops[row].clone(), &[&[None], &self.parts(0)[..]].concat())?,
            schedule.split(&loops[column].clone(), &[&[None], &self.parts(1)[..]].concat())?,
        );
        loops[row].clone_from(&rows[0]);
        loops[column].clone_from(&columns[0]);
        let inner = THREADS_FIRST.into_iter().flat_map(|n| [&rows[n + 1], &columns[n + 1]]);
        let order: Vec<&str> = loops.iter().chain(inner).map(String::as_str).collect();
        schedule.reorder(&order)?;
        let task = joined(schedule, &loops)?;
        self.bind(schedule, [&rows[1..], &columns[1..]])?;
        Ok(task)
    }

    /// Of a tile's rows or columns: warps, groups of a thread, lanes, and a thread's own in a group. A lane's groups lie as far apart as all
    /// lanes reach, so that what these read from shared memory at the same time lies in different banks.
    fn parts(&self, n: usize) -> [Option<i64>; 4] {
        let Tile { own, lanes, warps } = self.tile;
        let group = if self.factors[n].by_steps { 1 } else { TOGETHER.min(own[n]) };
        [warps[n], own[n] / group, lanes[n], group].map(Some)
    }

    /// Binds the loops over a tile's warps and lanes, and unrolls those over a thread's own results.
    fn bind(&self, schedule: &mut Schedule, [rows, columns]: [&[String]; 2]) -> Result<(), ScheduleError> {
        let warp = schedule.fuse(&[&rows[0], &columns[0]])?;
        let lane = schedule.fuse(&[&rows[2], &columns[2]])?;
        schedule.bind(&warp, ThreadLevel::Warp)?;
        schedule.bind(&lane, ThreadLevel::Lane)?;
        for own in [&rows[1], &columns[1], &rows[3], &columns[3]] {
            schedule.unroll(own)?;
        }
        Ok(())
    }

    /// Multiplies a tile inside of a task; gives the loop over what is fetched together.
    fn multiply(&self, schedule: &mut Schedule, task: &str) -> Result<String, ScheduleError> {
        let others = schedule.compute_at(&self.block, task)?;
        let places = [&self.rows, &self.columns, &self.steps].map(|run| self.place_of(run));
        let [row, column, step] = places;
        let rows = schedule.split(&others[row], &self.parts(0))?;
        let columns = schedule.split(&others[column], &self.parts(1))?;
        let steps = schedule.split(&others[step], &[None, Some(self.steps_at_a_time)])?;
        // What is left has one value in a task: numbers of products, and steps of which there is one.
        let kinds = schedule.block_info(&self.block)?.iters;
        let left = |wanted: IterKind| -> Vec<&String> {
            let of_kind = (0..others.len()).filter(|n| !places.contains(n) && kinds[*n].0 == wanted);
            of_kind.map(|n| &others[n]).collect()
        };
        let (products, single_steps) = (left(IterKind::Spatial), left(IterKind::Reduce));
        let [warp, lane, group, one] = THREADS_FIRST;
        let threads = [&rows[warp], &columns[warp], &rows[lane], &columns[lane]];
        let own = [&rows[group], &rows[one], &columns[group], &columns[one]];
        let in_task = products.into_iter().chain([&steps[0]]).chain(single_steps);
        let in_task = in_task.chain(threads).chain([&steps[1]]).chain(own);
        let order: Vec<&str> = in_task.map(String::as_str).collect();
        schedule.reorder(&order)?;
        schedule.unroll(&steps[1])?;
        self.bind(schedule, [&rows, &columns])?;
        schedule.decompose_reduction(&self.block, &steps[0])?;
        Ok(steps[0].clone())
    }

    /// Has all threads of a task fetch a factor's part of the steps, `all` elements.
    fn fetch(
        &self,
        schedule: &mut Schedule,
        fetch: &str,
        steps: &str,
        &Factor { together, by_steps, .. }: &Factor,
        all: i64,
    ) -> Result<(), ScheduleError> {
        let made = schedule.compute_at(fetch, steps)?;
        if by_steps {
            let copies = schedule.block_info(fetch)?.writes;
            for copy in copies {
                schedule.storage_align(&copy, ROWS_APART, APART)?;
            }
        }
        let joined = joined(schedule, &made)?;
        let mut factors = vec![None, Some(self.tile.n_warps()), Some(LANES)];
        if together > 1 {
            let of_warps = all / (together * LANES);
            let warps = (1..=self.tile.n_warps()).rev().find(|warps| of_warps % warps == 0);
            factors[1] = warps;
            factors.push(Some(together));
        }
        let parts = schedule.split(&joined, &factors)?;
        if together > 1 {
            schedule.vectorize(&parts[3])?;
        }
        // A thread's elements are a constant distance apart, which instructions have room for.
        schedule.unroll(&parts[0])?;
        schedule.bind(&parts[1], ThreadLevel::Warp)?;
        schedule.bind(&parts[2], ThreadLevel::Lane)
    }
}
