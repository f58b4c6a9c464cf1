//! Transforms: data-parallel blocks that make several results at once from several elements.
//!
//! The input and output transforms of Winograd convolution are of this kind, and the sums of quarters that Strassen's algorithm
//! multiplies. All elements of one iteration stay in registers, as vectors along the last variable. What pads the input is computed
//! piece by piece in the cache, right before it is read; a block that takes the results apart again (the epilogue of the convolution)
//! runs on the registers.

use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError};
use tilewright_te::{BinaryOp, Block, Buffer, Expr, ExprKind, Func, IterKind, Scope, Var};

use crate::Context;
use crate::pattern::{AccessInfo, Stride, constant_product, domain_simplifier, loads, stride};
use crate::tasks::{MAX_STACK, PARALLEL_GRAIN, extent_of, grains, parallelize};
use crate::tile::stores_at_its_variables;

/// Whether a block is a transform: data-parallel, with several stores to one buffer at its own variables, in order,
/// after constant indices.
pub fn is_transform(block: &Block) -> bool {
    let Some(first) = block.body.first() else { return false };
    let Some(n_constant) = first.indices.len().checked_sub(block.iters.len()) else { return false };
    let fits = |(index, iter): (&Expr, &tilewright_te::Iter)| index.as_var() == Some(iter.var);
    block.body.len() > 1
        && !block.iters.is_empty()
        && block.iters.iter().all(|i| i.kind == IterKind::Spatial)
        && block.body.iter().all(|store| {
            let (constant, own) = store.indices.split_at(n_constant);
            store.buffer == first.buffer
                && constant.iter().all(|e| e.as_int().is_some())
                && own.iter().zip(&block.iters).all(fits)
        })
}

/// Gives what transforms write, and what they read of reductions, a layout in vectors of the last dimension, which
/// is outermost but for the dimensions of constant indices; unless it lies in such vectors as it is.
pub(crate) fn choose_layouts(schedule: &Schedule, context: &mut Context<'_>) {
    let func = schedule.func();
    for block in func.blocks().into_iter().filter(|b| is_transform(b)) {
        if is_row_major(schedule, context, block) {
            continue;
        }
        let n_constant = block.body[0].indices.len() - block.iters.len();
        let reduced = loads(block).into_iter().map(|a| a.buffer).filter(|&buffer| {
            let writes = |b: &&&Block| b.body.iter().any(|store| store.buffer == buffer);
            func.blocks().iter().find(writes).is_some_and(|b| b.is_reduction())
        });
        for buffer in std::iter::once(block.body[0].buffer).chain(reduced) {
            let data = &func.buffers[buffer];
            let last = data.shape.len() - 1;
            let Some(lanes) = data.shape[last].as_int().and_then(|extent| vector(context, extent)) else {
                continue;
            };
            if context.layout(&data.name).is_some() || func.params.contains(&buffer) {
                continue;
            }
            let open = |dim| Piece { dim, factor: None };
            let mut pieces: Vec<Piece> = (0..n_constant.min(last)).map(open).collect();
            pieces.push(open(last));
            pieces.extend((n_constant.min(last)..last).map(open));
            pieces.push(Piece { dim: last, factor: Some(lanes) });
            context.set_layout(&data.name.clone(), pieces, Padding::Undefined);
        }
    }
}

/// Whether the vectors of a transform that nothing takes apart at once are consecutive row-major elements of what it reads.
pub(crate) fn is_row_major(schedule: &Schedule, context: &Context<'_>, block: &Block) -> bool {
    let func = schedule.func();
    let Some(last) = block.iters.last() else { return false };
    let simplifier = domain_simplifier(func, block);
    let consecutive = |access: &AccessInfo| {
        context.layout(&func.buffers[access.buffer].name).is_none()
            && stride(func, &simplifier, access, last.var) == Stride::Constant(1)
    };
    epilogue(schedule, &block.name).is_none() && loads(block).iter().all(consecutive)
}

/// Whether what a transform writes lies in whole vectors, and what takes its results apart in the same.
pub(crate) fn is_in_vectors(schedule: &Schedule, context: &Context<'_>, block: &Block) -> bool {
    let func = schedule.func();
    let written = |block: &Block| {
        let (_, lanes) = whole_vectors(func, context, block.body.first()?.buffer)?;
        Some(lanes)
    };
    let own = written(block);
    match epilogue(schedule, &block.name) {
        Some(reader) => own.is_some() && own == func.block(&reader).and_then(written),
        None => own.is_some(),
    }
}

/// The dimension of a buffer that lies in vectors, the last of a temporary that is row-major, and their length, where they divide
/// it: registers have no room for part of a vector.
fn whole_vectors(func: &Func, context: &Context<'_>, buffer: Buffer) -> Option<(usize, i64)> {
    let data = &func.buffers[buffer];
    let Some(mut pieces) = context.layout(&data.name) else {
        let dim = data.shape.len().checked_sub(1).filter(|_| !func.params.contains(&buffer))?;
        return Some((dim, vector(context, data.shape[dim].as_int()?)?));
    };
    let last = pieces.pop()?;
    let (dim, lanes) = (last.dim, last.factor?);
    (data.shape.get(dim)?.as_int()? % lanes == 0).then_some((dim, lanes))
}

/// The widest vector that divides the extent.
fn vector(context: &Context<'_>, extent: i64) -> Option<i64> {
    let lanes = i64::from(context.target.lanes(4));
    [lanes, lanes / 2, lanes / 4].into_iter().find(|&f| f >= 4 && extent % f == 0)
}

/// Schedules a transform with what pads its input and what takes its results apart.
pub fn schedule(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("transform", block, reason));
    let Some(data) = schedule.func().block(block) else { return fail("no such block") };
    if !is_transform(data) {
        return fail("not several results at constant places");
    }
    if schedule.loop_names(block)?.len() != data.iters.len() {
        return fail("the block is scheduled already");
    }
    match epilogue(schedule, block) {
        Some(epilogue) => in_epilogue(schedule, context, block, &epilogue),
        None => by_itself(schedule, context, block),
    }
}

/// A transform whose results are for a reduction: its padded input piece by piece, its results as vectors.
fn by_itself(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("transform", block, reason));
    let func = schedule.func();
    let Some(data) = func.block(block) else { return fail("no such block") };
    let Some((_, lanes)) = whole_vectors(func, context, data.body[0].buffer) else {
        return fail("its results are in no vectors");
    };
    let Some((last, others)) = data.iters.split_last() else { return fail("a single iteration") };
    let var = last.var;
    let divisors: Vec<Vec<i64>> = others.iter().map(|i| divisors(data, i.var)).collect();
    let n_results = data.body.len() as i64;
    let work = constant_product(data.iters.iter().map(|i| &i.extent)).map(|n| n * n_results);
    let padding = padding(schedule, data, var);
    let row_major = is_row_major(schedule, context, data);

    let loops = schedule.loop_names(block)?;
    let mut outer: Vec<String> = Vec::new();
    for (name, divisors) in loops.iter().zip(&divisors) {
        let factors: Vec<Option<i64>> = std::iter::once(None).chain(steps(divisors)).collect();
        match factors.len() {
            1 => outer.push(name.clone()),
            _ => outer.extend(schedule.split(name, &factors)?),
        }
    }
    let parts = schedule.split(&loops[loops.len() - 1], &[None, Some(lanes)])?;
    // The innermost of the other loops walks along a row: it stays inside the vectors' loop, to share the padded rows. Where the
    // vectors follow one another in memory they are the innermost themselves.
    let inner = if row_major { None } else { outer.pop() };
    let mut tasks = outer;
    tasks.push(parts[0].clone());
    let order = tasks.iter().chain(&inner).chain([&parts[1]]);
    schedule.reorder(&order.map(String::as_str).collect::<Vec<_>>())?;
    schedule.vectorize(&parts[1])?;
    let row = inner.as_ref().and_then(|name| extent_of(schedule, name)).unwrap_or(1);
    let mut taken = vec![block.to_string()];
    if let Some((padding, lane)) = padding
        && fold_padding(schedule, &padding, &parts[0], lane, lanes)?
    {
        taken.push(padding);
    }
    if work.is_none_or(|n| n >= PARALLEL_GRAIN) {
        let grain = context.decide(block, "grain", &grains(context.target, work))?;
        parallelize(schedule, &tasks, &Expr::int(row * lanes * n_results), grain)?;
    }
    Ok(taken)
}

/// A transform computed on the registers of the block that takes its results apart.
fn in_epilogue(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
    epilogue: &str,
) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("transform", block, reason));
    let func = schedule.func();
    let (Some(data), Some(reader)) = (func.block(block), func.block(epilogue)) else {
        return fail("no such block");
    };
    let buffer = func.buffers[data.body[0].buffer].name.clone();
    let stored = reader.body.first().and_then(|store| whole_vectors(func, context, store.buffer));
    let Some((lane, lanes)) = stored else { return fail("what reads it stores no whole vectors") };
    if !is_in_vectors(schedule, context, data) {
        return fail("it is not in the vectors of what reads it");
    }
    let n_constant = data.body[0].indices.len() - data.iters.len();
    let reads: Vec<AccessInfo> =
        loads(reader).into_iter().filter(|a| a.buffer == data.body[0].buffer).collect();
    let Some(read) = reads.first() else { return fail("nothing reads it") };
    let is_lane = |e: &Expr| e.as_var() == reader.iters.get(lane).map(|i| i.var);
    if !read.indices.last().is_some_and(is_lane) || reads.iter().any(|a| a.indices != read.indices) {
        return fail("its last variable is not that of the reader's vectors");
    }
    // Which of the reader's variables have a digit among the constant indices.
    let digits: Vec<Option<Digit>> = reader
        .iters
        .iter()
        .map(|i| read.indices[..n_constant].iter().find_map(|e| digit(e, i.var)))
        .collect();
    if digits.iter().flatten().count() != n_constant {
        return fail("results are not taken apart by digits of variables");
    }
    let n_results = data.body.len() as i64;
    let work = constant_product(reader.iters.iter().map(|i| &i.extent));

    let loops = schedule.loop_names(epilogue)?;
    if loops.len() != digits.len() {
        return fail("its reader is scheduled already");
    }
    let (mut outer, mut inner, mut vector) = (Vec::new(), Vec::new(), None);
    for (dim, (name, digit)) in loops.iter().zip(&digits).enumerate() {
        match digit {
            Some(Digit { factor, unit: 1 }) => {
                let parts = schedule.split(name, &[None, Some(*factor)])?;
                outer.push(parts[0].clone());
                inner.push(parts[1].clone());
            }
            Some(Digit { factor, unit }) => {
                let parts = schedule.split(name, &[None, Some(*factor), Some(*unit)])?;
                outer.extend([parts[0].clone(), parts[2].clone()]);
                inner.push(parts[1].clone());
            }
            None if dim == lane => {
                let parts = schedule.split(name, &[None, Some(lanes)])?;
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
    let made = schedule.compute_at(block, &innermost)?;
    let Some(last) = made.last() else { return fail("the transform has lost its loops") };
    schedule.vectorize(last)?;
    schedule.set_scope(&buffer, Scope::Register)?;
    if work.is_none_or(|n| n >= PARALLEL_GRAIN) {
        let grain = context.decide(block, "grain", &grains(context.target, work))?;
        parallelize(schedule, &outer, &Expr::int(n_results * lanes), grain)?;
    }
    Ok(vec![block.to_string(), epilogue.to_string()])
}

/// The one data-parallel block that reads a transform's results, if it stores each of its own at its variables.
fn epilogue(schedule: &Schedule, block: &str) -> Option<String> {
    let consumers = schedule.consumers(block).ok()?;
    let [only] = &consumers[..] else { return None };
    let reader = schedule.func().block(only)?;
    let is_plain = reader.body.len() == 1 && stores_at_its_variables(reader);
    (is_plain && !reader.is_reduction()).then(|| only.clone())
}

/// A digit of a variable: its quotient by `unit` modulo `factor`.
struct Digit {
    factor: i64,
    unit: i64,
}

/// The digit of a variable that an expression is.
fn digit(e: &Expr, var: Var) -> Option<Digit> {
    let ExprKind::Binary(BinaryOp::FloorMod, x, factor) = e.kind() else { return None };
    let unit = match x.kind() {
        ExprKind::Var(v) if *v == var => 1,
        ExprKind::Binary(BinaryOp::FloorDiv, x, unit) if x.as_var() == Some(var) => unit.as_int()?,
        _ => return None,
    };
    Some(Digit { factor: factor.as_int()?, unit })
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
fn steps(divisors: &[i64]) -> impl Iterator<Item = Option<i64>> {
    let mut factors = Vec::new();
    let mut inner = 1;
    for &divisor in divisors {
        if divisor % inner == 0 {
            factors.push(Some(divisor / inner));
            inner = divisor;
        }
    }
    factors.into_iter().rev()
}

/// The block that computes what a transform reads, for it alone and as yet unscheduled, and the dimension of that which
/// `var` indexes.
fn padding(schedule: &Schedule, block: &Block, var: Var) -> Option<(String, usize)> {
    let func: &Func = schedule.func();
    schedule.blocks().into_iter().find_map(|name| {
        let producer = func.block(&name)?;
        let [store] = &producer.body[..] else { return None };
        let read = loads(block).into_iter().find(|a| a.buffer == store.buffer)?;
        let lane = read.indices.iter().position(|e| e.as_var() == Some(var))?;
        let is_free = !producer.is_reduction()
            && !func.params.contains(&store.buffer)
            && stores_at_its_variables(producer)
            && schedule.consumers(&name).ok()? == [block.name.as_str()]
            && schedule.loop_names(&name).ok()?.len() == producer.iters.len();
        is_free.then_some((name, lane))
    })
}

/// Computes what pads the input in each iteration of a loop; tells whether that fits.
fn fold_padding(
    schedule: &mut Schedule,
    padding: &str,
    around: &str,
    lane: usize,
    lanes: i64,
) -> Result<bool, ScheduleError> {
    let buffer = schedule.block_info(padding)?.writes.remove(0);
    let mut trial = schedule.clone();
    let Ok(loops) = trial.compute_at(padding, around) else { return Ok(false) };
    trial.set_scope(&buffer, Scope::Stack)?;
    // The buffer shrinks to what these loops write.
    let elements = loops.iter().try_fold(1i64, |n, name| n.checked_mul(extent_of(&trial, name)?));
    if elements.is_none_or(|n| n > MAX_STACK / 4) || extent_of(&trial, &loops[lane]) != Some(lanes) {
        return Ok(false);
    }
    let mut order: Vec<&str> =
        loops.iter().enumerate().filter(|(n, _)| *n != lane).map(|(_, l)| l.as_str()).collect();
    order.push(&loops[lane]);
    trial.reorder(&order)?;
    trial.vectorize(&loops[lane])?;
    *schedule = trial;
    Ok(true)
}
