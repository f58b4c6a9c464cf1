//! Long reductions in two levels.
//!
//! Channels in blocks give the lanes of a reduction over images: a result has one lane, and all its steps are one chain of
//! additions. That is slow, because each waits for the one before; and inexact, because the rounding error grows with
//! the chain. Partial results of rows, which are reduced in turn, give the rule for windows neighbouring results for its tiles, and more
//! tasks (N. Higham, The accuracy of floating point summation, SIAM J. Sci. Comput. 14, 1993, section 4).

use tilewright_machine::Target;
use tilewright_te::schedule::{Padding, Piece, Schedule, ScheduleError, indivisible};
use tilewright_te::{Block, Func, IterKind};

use crate::layouts::{Layouts, Relayout};
use crate::loops::loops_of;
use crate::pattern::{AccessInfo, constant_product, iters_of, loads, stores_at_its_variables};

/// Steps of a chain from which on it is cut: with fewer, 16 bits of a sum in `F32` are right, whatever the sign of the rounding errors.
const LONG: i64 = 256;

/// Partial results of an open number of steps in one loop.
const OPEN_PARTS: i64 = 64;

/// Makes partial results of the long reductions whose lanes are blocks of a layout.
pub(super) fn split_long(schedule: &mut Schedule, layouts: &mut Layouts, target: &Target) {
    // Threads of a GPU reduce in a tree.
    if target.gpu.is_some() {
        return;
    }
    for block in schedule.blocks() {
        let mut made = split(schedule, layouts, &block);
        // Partial results of volumes are long themselves. Those of open images are rows, which are seldom longer than a piece.
        while let Some(name) = made.filter(|name| has_known_steps(schedule.func(), name)) {
            made = split(schedule, layouts, &name);
        }
    }
}

/// Makes partial results of a block, if it is long; gives the block that computes them.
fn split(schedule: &mut Schedule, layouts: &mut Layouts, name: &str) -> Option<String> {
    let func = schedule.func();
    let block = func.block(name).filter(|block| is_long(func, block))?;
    let pieces = layout_of_partial(func, layouts, block)?;
    let mut factored = schedule.clone();
    let made = factor(&mut factored, name).ok()?;
    *schedule = factored;
    let func = schedule.func();
    let partial = func.block(&made)?.body.first()?.buffer;
    let buffer = func.buffers[partial].name.clone();
    layouts.choose(Relayout { buffer, pieces, padding: Padding::Undefined });
    Some(made)
}

/// Makes partial results of the iterations of a block's outermost reduction loop, or of pieces of its only one.
fn factor(schedule: &mut Schedule, name: &str) -> Result<String, ScheduleError> {
    let loops = loops_of(schedule, name, IterKind::Reduce)?;
    let several = loops.iter().filter(|name| schedule.extent(name) != Some(1));
    match several.collect::<Vec<_>>()[..] {
        [one] => {
            let one = one.clone();
            let factors = match schedule.extent(&one) {
                Some(extent) => {
                    let Some(n_steps) = piece(extent) else {
                        return Err(ScheduleError::new("rfactor", name, "no factor divides its steps"));
                    };
                    [None, Some(n_steps)]
                }
                // Of few steps most partial results have none.
                None => [Some(OPEN_PARTS), None],
            };
            let parts = schedule.split(&one, &factors)?;
            schedule.rfactor(name, &parts[0])
        }
        [outermost, ..] => schedule.rfactor(name, &outermost.clone()),
        [] => Err(ScheduleError::new("rfactor", name, "no reduction loop")),
    }
}

/// The steps of a piece of a loop, a divisor of them all: the most that are not long, or the fewest.
fn piece(extent: i64) -> Option<i64> {
    let divides = |n: &i64| extent % n == 0;
    let short = (LONG / 16..=LONG).rev().find(divides);
    let longer = || (LONG + 1..=(16 * LONG).min(extent / 2)).find(divides);
    let few = || (2..16).rev().find(divides).map(|parts| extent / parts);
    short.or_else(longer).or_else(few)
}

/// Whether the number of a block's steps is known.
fn has_known_steps(func: &Func, name: &str) -> bool {
    let Some(block) = func.block(name) else { return false };
    iters_of(block, IterKind::Reduce).iter().all(|&n| block.iters[n].extent.as_int().is_some())
}

/// Whether a block reduces many elements, or an open number, each read once.
fn is_long(func: &Func, block: &Block) -> bool {
    let steps = iters_of(block, IterKind::Reduce);
    let n_steps = constant_product(steps.iter().map(|&n| &block.iters[n].extent));
    if !block.is_reduction() || indivisible(block).is_some() || n_steps.is_some_and(|n| n <= LONG) {
        return false;
    }
    let accumulator = block.body[0].buffer;
    let is_step = |a: &AccessInfo| steps.iter().any(|&n| a.uses(block.iters[n].var));
    let reads: Vec<AccessInfo> =
        loads(block).into_iter().filter(|a| a.buffer != accumulator && is_step(a)).collect();
    let is_element = |a: &AccessInfo| {
        let is_index = |n: &usize| a.indices.iter().any(|e| e.as_var() == Some(block.iters[*n].var));
        (0..block.iters.len()).all(|n| block.iters[n].extent.as_int() == Some(1) || is_index(&n))
    };
    stores_at_its_variables(block)
        && func.is_sole_writer(block)
        && !reads.is_empty()
        && reads.iter().all(is_element)
}

/// The layout of partial results, which have one more dimension than the results: outside of the blocks in which what is reduced lies,
/// if it does.
fn layout_of_partial(func: &Func, layouts: &Layouts, block: &Block) -> Option<Vec<Piece>> {
    let spatial = iters_of(block, IterKind::Spatial);
    let lanes = |dim: &usize| layouts.largest_block(func, block, block.iters[spatial[*dim]].var);
    let dim = (0..spatial.len()).find(|dim| lanes(dim).is_some())?;
    let all = (0..=spatial.len()).map(|dim| Piece { dim, factor: None });
    Some(all.chain([Piece { dim, factor: lanes(&dim) }]).collect())
}
