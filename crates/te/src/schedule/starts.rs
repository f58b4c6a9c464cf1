//! Reductions that may have no step at all: their start becomes a block of its own.
//!
//! The `init` of a block runs with the first step of its reduction. Where an extent is open there may be no
//! first step, and still the result of a reduction over nothing is its start. Reductions that surely have a
//! step are left alone.

use std::borrow::Cow;

use crate::func::{Block, Func, IterKind, Loop};
use crate::schedule::{Apply, DecomposeReduction, ScheduleError, tree};

/// The function with a start of its own for every reduction that may have no step.
///
/// # Errors
/// Where a reduction cannot be taken apart from its start.
pub fn start_apart(func: &Func) -> Result<Cow<'_, Func>, ScheduleError> {
    let mut func = Cow::Borrowed(func);
    while let Some(primitive) = maybe_empty(&func) {
        primitive.apply(func.to_mut())?;
    }
    Ok(func)
}

/// The first reduction that may have no step and starts with it, as what takes its start apart.
fn maybe_empty(func: &Func) -> Option<DecomposeReduction> {
    tree::blocks_with_paths(func).into_iter().filter(|(_, block)| !block.init.is_empty()).find_map(
        |(path, block)| {
            let loops = tree::loops_above(func, &path);
            let reducing: Vec<&&Loop> = loops.iter().filter(|l| reduces(block, l)).collect();
            let simplifier = tree::simplifier_at(func, &path);
            let is_empty = |l: &&&Loop| simplifier.interval(&l.extent).lo < 1;
            let outermost = reducing.first()?;
            reducing.iter().any(is_empty).then(|| DecomposeReduction {
                block: block.name.clone(),
                loop_name: func.vars[outermost.var].name.clone(),
            })
        },
    )
}

fn reduces(block: &Block, l: &Loop) -> bool {
    block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.value.uses(l.var))
}
