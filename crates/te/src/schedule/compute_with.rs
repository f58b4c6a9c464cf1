//! `compute_with`: two loops after one another as one.

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::expr::{Buffer, Expr, Var};
use crate::func::{Func, Loop, LoopKind, Stmt};
use crate::schedule::region::{Accesses, Span, region_of};
use crate::schedule::{Apply, ScheduleError, tree};
use crate::simplify::Simplifier;

/// Runs each iteration of a serial loop right after that of the serial loop in front of it, in one loop (loop fusion, as
/// Halide's `compute_with` does it).
///
/// Both loops have as many iterations, and what one writes the other accesses in the same iteration only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComputeWith {
    /// The loop that goes.
    pub loop_name: String,
    /// The loop in front of it, which gets its body.
    pub with: String,
}

impl Apply for ComputeWith {
    const NAME: &'static str = "compute_with";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &self.loop_name, reason));
        let second = tree::find_loop(func, Self::NAME, &self.loop_name)?;
        let first = tree::find_loop(func, Self::NAME, &self.with)?;
        let is_next = second
            .split_last()
            .zip(first.split_last())
            .is_some_and(|((at, around), (before, other))| around == other && *at == before + 1);
        if !is_next {
            return fail(format!("it does not follow `{}` in the same loop", self.with));
        }
        let (Some(kept), Some(gone)) = (tree::loop_at(func, &first), tree::loop_at(func, &second)) else {
            return Ok(Vec::new());
        };
        let is_plain = |l: &Loop| l.kind == LoopKind::Serial && l.stages == 1 && l.prefetches.is_empty();
        if !is_plain(kept) || !is_plain(gone) {
            return fail("both must be serial, without pipeline or prefetches".into());
        }
        if !tree::simplifier_at(func, &first).prove_equal(&kept.extent, &gone.extent) {
            return fail(format!("it has another number of iterations than `{}`", self.with));
        }
        // Of a single iteration there is no other that it could meet.
        let is_single = kept.extent.as_int() == Some(1);
        for buffer in shared(kept, gone).into_iter().filter(|_| !is_single) {
            if !meets_in_iterations(func, (&first, kept), (&second, gone), buffer) {
                let name = &func.buffers[buffer].name;
                return fail(format!("different iterations of the two may meet in `{name}`"));
            }
        }
        let (old, new) = (gone.var, Expr::var(kept.var));
        let Some(Stmt::Loop(gone)) = tree::remove(func, &second) else { return Ok(Vec::new()) };
        let mut body = gone.body;
        let rename = |e: &Expr| e.substitute_var(old, &new);
        tree::map_loop_exprs(&mut body, &rename);
        tree::for_each_block_mut(&mut body, &mut |block| {
            block.iters.iter_mut().for_each(|iter| iter.value = rename(&iter.value));
            block.predicate = block.predicate.as_ref().map(rename);
        });
        if let Some(kept) = tree::loop_at_mut(func, &first) {
            kept.body.extend(body);
        }
        tree::normalize(func);
        Ok(Vec::new())
    }
}

/// The buffers that one of two loops writes and the other accesses.
fn shared(first: &Loop, second: &Loop) -> Vec<Buffer> {
    let used = |l: &Loop| {
        let (mut written, mut all) = (FxHashSet::default(), Vec::new());
        tree::for_each_block(&l.body, &mut |block| {
            written.extend(tree::written(block));
            all.extend(tree::written(block).into_iter().chain(tree::read_buffers(block)));
        });
        (written, all)
    };
    let ((first_written, first_all), (second_written, second_all)) = (used(first), used(second));
    let mut found: Vec<Buffer> = first_all.iter().copied().filter(|b| second_written.contains(b)).collect();
    found.extend(second_all.into_iter().filter(|b| first_written.contains(b)));
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether what two loops access of a buffer, where one of the two writes, is the same element in the same iteration only.
fn meets_in_iterations(
    func: &Func,
    (first_path, first): (&[usize], &Loop),
    (second_path, second): (&[usize], &Loop),
    buffer: Buffer,
) -> bool {
    let region = |path: &[usize], l: &Loop, accesses| {
        let simplifier = tree::simplifier_within(func, &[path, &[0]].concat(), &l.body);
        let spans = region_of(func, &simplifier, &l.body, buffer, accesses);
        spans.map(|spans| (simplifier, spans))
    };
    let pairs = [(Accesses::Writes, Accesses::All), (Accesses::All, Accesses::Writes)];
    pairs.into_iter().all(|(of_first, of_second)| {
        let Some((simplifier, a)) = region(first_path, first, of_first) else { return true };
        let Some((_, b)) = region(second_path, second, of_second) else { return true };
        a.iter().zip(&b).any(|(a, b)| {
            are_apart(&simplifier, a, b) || tells_iterations(&simplifier, (first.var, a), (second.var, b))
        })
    })
}

/// Whether two ranges have no index in common, whatever the iterations.
fn are_apart(simplifier: &Simplifier, a: &Span, b: &Span) -> bool {
    simplifier.prove_le(&a.end(), &b.min) || simplifier.prove_le(&b.end(), &a.min)
}

/// Whether the ranges of different iterations of two loops have no index in common: both move by as much as they are long, or more.
fn tells_iterations(simplifier: &Simplifier, (first, a): (Var, &Span), (second, b): (Var, &Span)) -> bool {
    let min = simplifier.linear(&a.min);
    let Some((step, _)) = min.affine_in(first) else { return false };
    let same = simplifier.prove_equal(&a.min, &b.min.substitute_var(second, &Expr::var(first)));
    let is_short = |span: &Span| simplifier.prove_le(&span.extent, &Expr::int(step));
    step > 0 && same && is_short(a) && is_short(b)
}
