//! Row by row: softmax, normalisations, and whatever else combines the elements of a row and then uses the result on each of them.
//!
//! All blocks of such a function run for one row before the next: what is computed of a row lies in the first-level
//! cache when it is needed, and the function is one kernel. Reductions run on lanes along the row.

use tilewright_te::flatten::masks;
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Expr, Func, IterKind, Scope};

use crate::Context;
use crate::pattern::{constant_product, iters_of};
use crate::reduction::{lanes_at, loops_of};
use crate::tasks::{PARALLEL_GRAIN, extent_of, grains, parallelize};
use crate::tile::stores_at_its_variables;

/// Bytes of a row's temporaries, which lie on the stack of a thread.
const MAX_ROW: i64 = 64 << 10;

/// Schedules a whole function row by row; gives the blocks.
///
/// # Errors
/// Where it is no such function.
pub fn schedule(schedule: &mut Schedule, context: &mut Context<'_>) -> Result<Vec<String>, ScheduleError> {
    let fail = |reason: &str| Err(ScheduleError::new("rows", &schedule.func().name, reason));
    let func = schedule.func();
    let blocks: Vec<&Block> = func.blocks();
    let Some((last, producers)) = blocks.split_last() else { return fail("nothing to do") };
    let Some(n_rows) = leading_dims(func, last, producers) else {
        return fail("its blocks do not share rows");
    };
    if blocks.iter().any(|b| b.body.iter().any(|s| context.layout(&func.buffers[s.buffer].name).is_some())) {
        return fail("rows are in blocks");
    }
    let row = constant_product(last.iters[n_rows..].iter().map(|i| &i.extent));
    let rows = constant_product(last.iters[..n_rows].iter().map(|i| &i.extent));
    let n_cores = i64::from(context.target.machine.n_cores);
    if let (Some(row), Some(rows)) = (row, rows)
        && rows < n_cores
        && row * rows > n_cores * PARALLEL_GRAIN
    {
        return fail("few rows, which are long enough to be shared out");
    }
    let temporaries: i64 = producers
        .iter()
        .filter(|b| !b.is_reduction())
        .map(|b| row.unwrap_or(0) * func.buffers[b.body[0].buffer].dtype.bytes() as i64)
        .sum();
    let on_stack = row.is_some() && temporaries <= MAX_ROW;
    let last = last.name.clone();
    let lanes = i64::from(context.target.lanes(4));
    let is_value = |b: &Block| {
        b.is_reduction()
            || constant_product(b.iters[n_rows.min(b.iters.len())..].iter().map(|i| &i.extent)) == Some(1)
    };
    let producers: Vec<(String, bool, bool)> =
        producers.iter().map(|b| (b.name.clone(), b.is_reduction(), is_value(b))).collect();

    let loops = schedule.loop_names(&last)?;
    let (outer, columns) = loops.split_at(n_rows);
    let innermost = outer[n_rows - 1].clone();
    vectorize_row(schedule, columns, lanes)?;
    for (block, is_reduction, is_value) in producers.iter().rev() {
        let buffer = schedule.block_info(block)?.writes.remove(0);
        if *is_reduction {
            reduce_row(schedule, context, block, &innermost)?;
        } else {
            let made = schedule.compute_at(block, &innermost)?;
            vectorize_row(schedule, made.get(n_rows..).unwrap_or(&[]), lanes)?;
        }
        if *is_value {
            schedule.set_scope(&buffer, Scope::Register)?;
        } else if on_stack {
            schedule.set_scope(&buffer, Scope::Stack)?;
        }
    }
    let work = row.zip(rows).map(|(row, rows)| row * rows);
    if work.is_none_or(|n| n >= PARALLEL_GRAIN) {
        let grain = context.decide(&last, "grain", &grains(context.target, work))?;
        parallelize(schedule, outer, &Expr::int(row.unwrap_or(PARALLEL_GRAIN)), grain)?;
    }
    Ok(schedule.blocks())
}

/// How many leading dimensions of the last block's domain are rows: every other block has the same ones first and then
/// the row's, or, if it computes one value a row, no others. Nothing where no block reduces a row.
fn leading_dims(func: &Func, last: &Block, producers: &[&Block]) -> Option<usize> {
    let plain = |block: &Block| {
        block.body.len() == 1
            && stores_at_its_variables(block)
            && block.iters.iter().all(|i| i.extent.as_int() != Some(0))
    };
    let reductions: Vec<&&Block> = producers.iter().filter(|b| b.is_reduction()).collect();
    let first = reductions.first()?;
    let extents = |block: &Block, kind: IterKind| -> Vec<Expr> {
        iters_of(block, kind).into_iter().map(|n| block.iters[n].extent.clone()).collect()
    };
    let all = extents(last, IterKind::Spatial);
    // One value a row: the row's own dimensions are missing or have one element.
    let is_value = |spatial: &[Expr], rows: &[Expr]| {
        spatial.starts_with(rows) && spatial[rows.len()..].iter().all(|extent| extent.as_int() == Some(1))
    };
    let values = extents(first, IterKind::Spatial);
    let n_rows = (1..all.len()).find(|&n| is_value(&values, &all[..n]))?;
    if last.is_reduction() {
        return None;
    }
    let (rows, row) = all.split_at(n_rows);
    let fits = |block: &&Block| {
        let (spatial, reduced) = (extents(block, IterKind::Spatial), extents(block, IterKind::Reduce));
        let is_temporary = block.body.iter().all(|s| !func.params.contains(&s.buffer));
        let shares_rows = match reduced.is_empty() {
            true => is_value(&spatial, rows) || spatial == all,
            false => is_value(&spatial, rows) && reduced == row,
        };
        plain(block) && is_temporary && shares_rows
    };
    let is_output = last.body.iter().all(|s| func.is_output(s.buffer));
    (plain(last) && is_output && producers.iter().all(fits)).then_some(n_rows)
}

/// Makes one loop of the columns, in vectors.
fn vectorize_row(schedule: &mut Schedule, columns: &[String], lanes: i64) -> Result<(), ScheduleError> {
    let row = match columns {
        [] => return Ok(()),
        [one] => one.clone(),
        many => schedule.fuse(&many.iter().map(String::as_str).collect::<Vec<_>>())?,
    };
    match extent_of(schedule, &row) {
        Some(1) => Ok(()),
        Some(n) if n < lanes => schedule.vectorize(&row),
        Some(_) | None => {
            let parts = schedule.split(&row, &[None, Some(lanes)])?;
            schedule.vectorize(&parts[1])
        }
    }
}

/// Computes a reduction of a row inside of the rows' loop, on lanes that are combined in the end.
fn reduce_row(
    schedule: &mut Schedule,
    context: &Context<'_>,
    block: &str,
    innermost: &str,
) -> Result<(), ScheduleError> {
    let reduce = loops_of(schedule, block, IterKind::Reduce)?;
    let row = match &reduce[..] {
        [one] => one.clone(),
        many => schedule.fuse(&many.iter().map(String::as_str).collect::<Vec<_>>())?,
    };
    let lanes = i64::from(context.target.lanes(4));
    let extent = extent_of(schedule, &row);
    // A last vector that is cut off needs lanes that can be left out.
    let divides = extent.is_some_and(|n| n % lanes == 0);
    let func = schedule.func();
    let masks = func.block(block).is_some_and(|data| masks(func, data, context.target.masked_access()));
    if extent.is_some_and(|n| n < lanes) || !(divides || masks) {
        let made = schedule.compute_at(block, innermost)?;
        let steps = loops_of(schedule, block, IterKind::Reduce)?;
        return match steps.iter().find(|name| made.contains(name)) {
            Some(first) => schedule.decompose_reduction(block, first).map(drop),
            None => Ok(()),
        };
    }
    let parts = schedule.split(&row, &[None, Some(lanes)])?;
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
