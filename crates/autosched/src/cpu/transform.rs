//! Transforms: data-parallel blocks that make several results at once from several elements.
//!
//! All elements of one iteration stay in registers, as vectors along the last variable. What pads the input is computed
//! piece by piece in the cache, right before it is read; a block that takes the results apart again (the epilogue of a convolution)
//! runs on the registers.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Digit, Schedule, ScheduleError, footprint};
use tilewright_te::{BinaryOp, Block, Expr, ExprKind, Scope, Var};

use crate::context::Context;
use crate::cpu::elementwise::grain_of;
use crate::cpu::tasks::{Grain, Tasks};
use crate::decisions::Chooser;
use crate::model::machine::MAX_STACK;
use crate::pattern::{AccessInfo, iterations, loads, pieces_of, stores_at_its_variables};
use crate::refusal::Refusal;
use crate::strategy::{Domain, list};
use crate::transforms::{epilogue, is_in_vectors, is_row_major, is_transform, n_constant, whole_vectors};

/// What is done to a transform.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Strategy {
    /// The block.
    pub block: String,
    /// What it computes.
    pub domain: Domain,
    /// Lanes of a vector.
    pub lanes: i64,
    /// Where it is computed.
    pub place: ComputedAt,
    /// The tasks, of the loops around one iteration.
    pub tasks: Tasks,
}

/// Where a transform is computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ComputedAt {
    /// In loops of its own, for a reduction.
    ByItself {
        /// For each loop but the last the factors that it is split by, outermost first, besides what is left.
        factors: Vec<Vec<i64>>,
        /// Whether the innermost of these loops walks along a row inside of that over vectors, so that its iterations share the
        /// padded rows.
        row_inside: bool,
        /// Variables whose loops are the outermost: groups of channels, which threads share in the product that reads the results too.
        groups: Vec<usize>,
        /// What pads its input, if that is computed for each vector.
        padding: Option<PaddedRows>,
    },
    /// On the registers of the block that takes its results apart.
    InEpilogue {
        /// That block.
        epilogue: String,
        /// The digit of each of its variables that says which result it takes; nothing where none does.
        digits: Vec<Option<VarDigit>>,
        /// Its variable along which vectors lie.
        lane: usize,
    },
}

/// A block that pads the input of a transform, in the loop over its vectors.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PaddedRows {
    /// The block.
    pub block: String,
    /// The dimension along which vectors lie.
    pub lane: usize,
}

/// `tiles: f32[196, 64], by itself in vectors of 16 padding pad, tasks loops 2`.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, ", self.block, self.domain)?;
        match &self.place {
            ComputedAt::ByItself { groups, padding, .. } => {
                write!(f, "by itself in vectors of {}", self.lanes)?;
                if !groups.is_empty() {
                    write!(f, " by groups of {}", list(groups))?;
                }
                padding.iter().try_for_each(|padding| write!(f, " padding {}", padding.block))?;
            }
            ComputedAt::InEpilogue { epilogue, .. } => {
                write!(f, "in {epilogue} in vectors of {}", self.lanes)?;
            }
        }
        write!(f, ", tasks {}", self.tasks)
    }
}

/// Iterations of an innermost loop with an open extent that are made together: so few that the padded rows that they read stay in L1.
const OPEN_ROW: i64 = 16;

/// Plans a transform with what pads its input and what takes its results apart.
pub(crate) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("transform", &block.name, reason));
    if !is_transform(block) {
        return refuse("not several results at constant places");
    }
    if !context.is_as_computed(block) {
        return refuse("the block is scheduled already");
    }
    match epilogue(context.func, block) {
        Some(epilogue) => plan_in_epilogue(context, block, epilogue, chooser),
        None => plan_by_itself(context, block, chooser),
    }
}

/// A transform whose results are for a reduction: its padded input piece by piece, its results as vectors.
fn plan_by_itself(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("transform", &block.name, reason));
    let written = block.body[0].buffer;
    let Some((_, lanes)) = whole_vectors(context.func, context.layouts, context.target, written) else {
        return refuse("its results are in no vectors");
    };
    let Some((last, others)) = block.iters.split_last() else { return refuse("a single iteration") };
    let mut factors: Vec<Vec<i64>> = others.iter().map(|i| steps(&divisors(block, i.var))).collect();
    if let (Some(row), Some(factors)) = (others.last(), factors.last_mut())
        && row.extent.as_int().is_none()
        && factors.is_empty()
    {
        factors.push(OPEN_ROW);
    }
    let groups = groups(context, block, others.len());
    let mut outer: Vec<Option<i64>> = Vec::new();
    for n in in_order(&groups, others.len()) {
        let (iter, factors) = (&others[n], &factors[n]);
        outer.push(iter.extent.as_int().map(|n| pieces_of(n, factors.iter().product())));
        outer.extend(factors.iter().copied().map(Some));
    }
    // Where the vectors follow one another in memory they are the innermost themselves.
    let row_inside = !outer.is_empty() && !is_row_major(context.func, context.layouts, block);
    let padding = padded_rows(context, block, &factors, row_inside, lanes);
    let row = if row_inside { outer.pop().flatten().unwrap_or(1) } else { 1 };
    outer.push(last.extent.as_int().map(|n| pieces_of(n, lanes)));
    let n_results = block.body.len() as i64;
    let work = iterations(block).map(|n| n * n_results);
    let grain = grain_of(&block.name, context.target, work, chooser)?;
    let elements = Some(row * lanes * n_results);
    let tasks = grain.map(|task| Tasks::plan(&outer, None, Grain { elements, task })).unwrap_or_default();
    Ok(Strategy {
        block: block.name.clone(),
        domain: Domain::of(context.func, block),
        lanes,
        place: ComputedAt::ByItself { factors, row_inside, groups, padding },
        tasks,
    })
}

/// Of the first variables of a transform those that say which group of channels: of a product that reads the results, both operands
/// depend on them.
fn groups(context: &Context<'_>, block: &Block, n_variables: usize) -> Vec<usize> {
    let store = &block.body[0];
    let readers = context.func.consumers(block);
    let is_group = |reader: &&Block, n: usize| {
        let own = Some(block.iters[n].var);
        let at = store.indices.iter().position(|index| index.as_var() == own);
        let accesses = loads(reader);
        let of_results = accesses.iter().filter(|access| access.buffer == store.buffer);
        let mut variables = of_results.map(|access| access.indices.get(at?).and_then(Expr::as_var));
        reader.is_reduction()
            && variables.all(|var| var.is_some_and(|var| accesses.iter().all(|access| access.uses(var))))
    };
    (0..n_variables).filter(|&n| readers.iter().all(|reader| is_group(reader, n))).collect()
}

/// So many variables, those of groups first.
fn in_order(groups: &[usize], n_variables: usize) -> Vec<usize> {
    let others = (0..n_variables).filter(|n| !groups.contains(n));
    groups.iter().copied().chain(others).collect()
}

/// The block that computes what a transform reads, for it alone and as yet without a strategy, if what is read for one vector, of all
/// iterations of the innermost loop where that is inside, fits on the stack.
fn padded_rows(
    context: &Context<'_>,
    block: &Block,
    factors: &[Vec<i64>],
    row_inside: bool,
    lanes: i64,
) -> Option<PaddedRows> {
    let func = context.func;
    let last = block.iters.last()?;
    let is_for_block = |producer: &Block| {
        let consumers = func.consumers(producer);
        consumers.len() == 1 && consumers[0].name == block.name
    };
    let (producer, lane) = func.blocks().into_iter().find_map(|producer| {
        let [store] = &producer.body[..] else { return None };
        let read = loads(block).into_iter().find(|a| a.buffer == store.buffer)?;
        let lane = read.indices.iter().position(|e| e.as_var() == Some(last.var))?;
        let is_free = !producer.is_reduction()
            && !func.params.contains(&store.buffer)
            && stores_at_its_variables(producer)
            && is_for_block(producer)
            && context.is_as_computed(producer);
        is_free.then_some((producer, lane))
    })?;
    let digit = |extent: Expr, inside: bool| Digit { extent, inside };
    let mut digits: Vec<Vec<Digit>> = Vec::new();
    for (iter, factors) in block.iters.iter().zip(factors) {
        let left = iter.extent.clone().ceil_div(factors.iter().product::<i64>());
        let inner = factors.iter().map(|&factor| digit(Expr::int(factor), false));
        digits.push([digit(left, false)].into_iter().chain(inner).collect());
    }
    if let Some(innermost) = digits.last_mut().and_then(|digits| digits.last_mut()) {
        innermost.inside = row_inside;
    }
    let vectors = last.extent.clone().ceil_div(lanes);
    digits.push(vec![digit(vectors, false), digit(Expr::int(lanes), true)]);
    let extents = footprint(func, block, producer.body[0].buffer, &digits)?;
    let elements = extents.iter().try_fold(1i64, |n, extent| n.checked_mul(extent.as_int()?))?;
    let fits = elements <= MAX_STACK / 4 && extents[lane].as_int() == Some(lanes);
    fits.then(|| PaddedRows { block: producer.name.clone(), lane })
}

/// A transform computed on the registers of the block that takes its results apart.
fn plan_in_epilogue(
    context: &Context<'_>,
    block: &Block,
    reader: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    let refuse = |reason: &str| Err(Refusal::new("transform", &block.name, reason));
    let Context { func, layouts, target, .. } = *context;
    let stored = reader.body.first().and_then(|s| whole_vectors(func, layouts, target, s.buffer));
    let Some((lane, lanes)) = stored else { return refuse("what reads it stores no whole vectors") };
    if !is_in_vectors(func, layouts, target, block) {
        return refuse("it is not in the vectors of what reads it");
    }
    let n_constant = n_constant(block);
    let reads: Vec<AccessInfo> =
        loads(reader).into_iter().filter(|a| a.buffer == block.body[0].buffer).collect();
    let Some(read) = reads.first() else { return refuse("nothing reads it") };
    let is_lane = |e: &Expr| e.as_var() == reader.iters.get(lane).map(|i| i.var);
    if !read.indices.last().is_some_and(is_lane) || reads.iter().any(|a| a.indices != read.indices) {
        return refuse("its last variable is not that of the reader's vectors");
    }
    // Which of the reader's variables have a digit among the constant indices.
    let of = |var: Var| read.indices[..n_constant].iter().find_map(|e| digit(e, var));
    let digits: Vec<Option<VarDigit>> = reader.iters.iter().map(|i| of(i.var)).collect();
    if digits.iter().flatten().count() != n_constant {
        return refuse("results are not taken apart by digits of variables");
    }
    if !context.is_as_computed(reader) {
        return refuse("its reader is scheduled already");
    }
    let grain = grain_of(&block.name, target, iterations(reader), chooser)?;
    let mut outer = Vec::new();
    for (dim, (iter, digit)) in reader.iters.iter().zip(&digits).enumerate() {
        let extent = |unit: i64| iter.extent.as_int().map(|n| pieces_of(n, unit));
        match digit {
            Some(VarDigit { factor, unit: 1 }) => outer.push(extent(*factor)),
            Some(VarDigit { factor, unit }) => outer.extend([extent(factor * unit), Some(*unit)]),
            None if dim == lane => outer.push(extent(lanes)),
            None => outer.push(extent(1)),
        }
    }
    let elements = Some(block.body.len() as i64 * lanes);
    let tasks = grain.map(|task| Tasks::plan(&outer, None, Grain { elements, task })).unwrap_or_default();
    Ok(Strategy {
        block: block.name.clone(),
        domain: Domain::of(func, block),
        lanes,
        place: ComputedAt::InEpilogue { epilogue: reader.name.clone(), digits, lane },
        tasks,
    })
}

/// A digit of a variable: its quotient by `unit` modulo `factor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VarDigit {
    /// Values of the digit.
    pub factor: i64,
    /// Values of the digits below.
    pub unit: i64,
}

/// The digit of a variable that an expression is.
fn digit(e: &Expr, var: Var) -> Option<VarDigit> {
    let ExprKind::Binary(BinaryOp::FloorMod, x, factor) = e.kind() else { return None };
    let unit = match x.kind() {
        ExprKind::Var(v) if *v == var => 1,
        ExprKind::Binary(BinaryOp::FloorDiv, x, unit) if x.as_var() == Some(var) => unit.as_int()?,
        _ => return None,
    };
    Some(VarDigit { factor: factor.as_int()?, unit })
}

/// The constants by which a block's loads divide a variable, ascending.
fn divisors(block: &Block, var: Var) -> Vec<i64> {
    let mut found: Vec<i64> = Vec::new();
    for access in loads(block) {
        for index in &access.indices {
            index.walk(&mut |e| {
                if let ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, x, by) = e.kind()
                    && x.as_var() == Some(var)
                {
                    found.extend(by.as_int().filter(|&by| by > 1));
                }
            });
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Factors of a split, outermost first, whose inner products are the divisors.
fn steps(divisors: &[i64]) -> Vec<i64> {
    let mut factors = Vec::new();
    let mut inner = 1;
    for &divisor in divisors {
        if divisor % inner == 0 {
            factors.push(divisor / inner);
            inner = divisor;
        }
    }
    factors.reverse();
    factors
}

impl Strategy {
    /// The blocks that it schedules.
    pub(crate) fn blocks(&self) -> Vec<String> {
        let other = match &self.place {
            ComputedAt::ByItself { padding, .. } => padding.as_ref().map(|padding| &padding.block),
            ComputedAt::InEpilogue { epilogue, .. } => Some(epilogue),
        };
        [&self.block].into_iter().chain(other).cloned().collect()
    }

    /// Schedules the blocks.
    pub(crate) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let outer = match &self.place {
            ComputedAt::ByItself { factors, row_inside, groups, padding } => {
                self.apply_by_itself(schedule, (factors, groups), *row_inside, padding.as_ref())?
            }
            ComputedAt::InEpilogue { epilogue, digits, lane } => {
                self.apply_in_epilogue(schedule, epilogue, digits, *lane)?
            }
        };
        self.tasks.apply(schedule, &outer)
    }

    /// Gives the loops that may be tasks.
    fn apply_by_itself(
        &self,
        schedule: &mut Schedule,
        (factors, groups): (&[Vec<i64>], &[usize]),
        row_inside: bool,
        padding: Option<&PaddedRows>,
    ) -> Result<Vec<String>, ScheduleError> {
        let mut loops = schedule.loop_names(&self.block)?;
        let Some(last) = loops.pop() else {
            return Err(ScheduleError::new("transform", &self.block, "it has no loops"));
        };
        let mut outer: Vec<String> = Vec::new();
        for n in in_order(groups, loops.len()) {
            let (name, factors) = (&loops[n], &factors[n]);
            if factors.is_empty() {
                outer.push(name.clone());
                continue;
            }
            let factors: Vec<Option<i64>> =
                std::iter::once(None).chain(factors.iter().copied().map(Some)).collect();
            outer.extend(schedule.split(name, &factors)?);
        }
        let parts = schedule.split(&last, &[None, Some(self.lanes)])?;
        let inner = if row_inside { outer.pop() } else { None };
        outer.push(parts[0].clone());
        let order = outer.iter().chain(&inner).chain([&parts[1]]);
        schedule.reorder(&order.map(String::as_str).collect::<Vec<_>>())?;
        schedule.vectorize(&parts[1])?;
        if let Some(PaddedRows { block, lane }) = padding {
            let buffer = schedule.block_info(block)?.writes.remove(0);
            let mut loops = schedule.compute_at(block, &parts[0])?;
            schedule.set_scope(&buffer, Scope::Stack)?;
            let lane = loops.remove(*lane);
            loops.push(lane.clone());
            schedule.reorder(&loops.iter().map(String::as_str).collect::<Vec<_>>())?;
            schedule.vectorize(&lane)?;
        }
        Ok(outer)
    }

    /// Gives the loops that may be tasks.
    fn apply_in_epilogue(
        &self,
        schedule: &mut Schedule,
        epilogue: &str,
        digits: &[Option<VarDigit>],
        lane: usize,
    ) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: &str| Err(ScheduleError::new("transform", &self.block, reason));
        let buffer = schedule.block_info(&self.block)?.writes.remove(0);
        let loops = schedule.loop_names(epilogue)?;
        let (mut outer, mut inner, mut vector) = (Vec::new(), Vec::new(), None);
        for (dim, (name, digit)) in loops.iter().zip(digits).enumerate() {
            match digit {
                Some(VarDigit { factor, unit: 1 }) => {
                    let parts = schedule.split(name, &[None, Some(*factor)])?;
                    outer.push(parts[0].clone());
                    inner.push(parts[1].clone());
                }
                Some(VarDigit { factor, unit }) => {
                    let parts = schedule.split(name, &[None, Some(*factor), Some(*unit)])?;
                    outer.extend([parts[0].clone(), parts[2].clone()]);
                    inner.push(parts[1].clone());
                }
                None if dim == lane => {
                    let parts = schedule.split(name, &[None, Some(self.lanes)])?;
                    outer.push(parts[0].clone());
                    vector = Some(parts[1].clone());
                }
                None => outer.push(name.clone()),
            }
        }
        let (Some(vector), Some(innermost)) = (vector, outer.last().cloned()) else {
            return fail("its reader has no vectors");
        };
        let order = outer.iter().chain(&inner).chain([&vector]);
        schedule.reorder(&order.map(String::as_str).collect::<Vec<_>>())?;
        for name in &inner {
            schedule.unroll(name)?;
        }
        schedule.vectorize(&vector)?;
        let made = schedule.compute_at(&self.block, &innermost)?;
        let Some(last) = made.last() else { return fail("the transform has lost its loops") };
        schedule.vectorize(last)?;
        schedule.set_scope(&buffer, Scope::Register)?;
        Ok(outer)
    }
}
