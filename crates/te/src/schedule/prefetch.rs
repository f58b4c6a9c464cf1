//! `prefetch`: what the next iteration of an outer loop reads, asked for during this one.

use serde::{Deserialize, Serialize};

use crate::expr::{Expr, ExprKind};
use crate::func::{self, Func, LoopKind, Stmt};
use crate::schedule::{Apply, ScheduleError, tree};

/// Spreads over the iterations of a loop hints for what a block reads of a buffer in the next iteration of an
/// outer loop.
///
/// The part read must be one piece of memory of constant size that moves by that size from iteration to
/// iteration: a packed panel. Every iteration of `loop_name` asks for the cache lines that are its share. Memory
/// far away arrives while this iteration's part is worked on; hardware alone follows a stream only inside of a page,
/// and not before it has begun. Values are not affected. Loops that prefetch can be neither split nor fused, and the
/// buffer keeps its layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefetch {
    /// The loop in whose iterations the hints are given.
    pub loop_name: String,
    /// The block that reads.
    pub block: String,
    /// What it reads, an input.
    pub buffer: String,
    /// The loop around, whose next iteration's part is asked for.
    pub ahead: String,
    /// Bytes that one hint brings: a cache line's.
    pub line: i64,
}

impl Apply for Prefetch {
    const NAME: &'static str = "prefetch";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &self.loop_name, reason));
        let path = tree::find_loop(func, Self::NAME, &self.loop_name)?;
        let outer = tree::find_loop(func, Self::NAME, &self.ahead)?;
        if outer.len() >= path.len() || !path.starts_with(&outer) {
            return fail(format!("`{}` is not around it", self.ahead));
        }
        let within = tree::find_block(func, Self::NAME, &self.block)?;
        if !within.starts_with(&path) {
            return fail(format!("block `{}` is not inside", self.block));
        }
        let buffer = tree::find_buffer(func, Self::NAME, &self.buffer)?;
        if !func.is_input(buffer) {
            // A temporary may yet move or go, and what has just been computed is near.
            return fail(format!("`{}` is no input", self.buffer));
        }
        let (Some(ahead), Some(block)) = (tree::loop_at(func, &outer), tree::block_at(func, &within)) else {
            return fail("the loops are not as named".into());
        };
        let ahead = ahead.var;
        let between: Vec<_> =
            (outer.len() + 1..=path.len()).filter_map(|n| tree::loop_at(func, &path[..n])).collect();
        if let Some(other) = between.iter().find(|l| l.kind != LoopKind::Serial) {
            return fail(format!("`{}` is {:?}", func.vars[other.var].name, other.kind));
        }

        // Where the block reads, in elements, over loop variables.
        let mut reads: Vec<Vec<Expr>> = Vec::new();
        block.for_each_expr(|e| {
            e.walk(&mut |x| {
                if let ExprKind::Load(b, indices) = x.kind()
                    && *b == buffer
                    && !reads.contains(indices)
                {
                    reads.push(indices.clone());
                }
            });
        });
        let [indices] = &reads[..] else {
            return fail(format!("block `{}` reads `{}` at {} places", self.block, self.buffer, reads.len()));
        };
        let mut element = Expr::int(0);
        for (index, extent) in indices.iter().zip(&func.buffers[buffer].shape) {
            element = element * extent.clone() + index.clone();
        }
        let bound =
            |v| block.iters.iter().find(|iter| iter.var == v).map(|iter: &func::Iter| iter.value.clone());
        let element = element.substitute(&bound);

        // The part of the next iteration begins where the loops inside are at their first iterations.
        let inside = tree::loop_at(func, &outer).map_or(&[][..], |l: &func::Loop| &l.body);
        let mut inner = Vec::new();
        tree::for_each_loop(inside, &mut |l| inner.push(l.var));
        let first = element.substitute(&|v| inner.contains(&v).then(|| Expr::int(0)));
        let next = first.substitute_var(ahead, &(Expr::var(ahead) + 1));
        let simplifier = tree::simplifier_within(func, &outer, inside);
        let Some(size) = simplifier.simplify(&(next.clone() - first)).as_int().filter(|&size| size > 0)
        else {
            return fail(format!(
                "what `{}` reads does not move by a constant along `{}`",
                self.block, self.ahead
            ));
        };

        let per_line = self.line / func.buffers[buffer].dtype.bytes() as i64;
        if per_line < 1 {
            return fail(format!("a line of {} bytes holds no element", self.line));
        }
        let lines = size / per_line + i64::from(size % per_line != 0);
        let steps: i64 = between.iter().filter_map(|l| l.extent.as_int()).fold(1, i64::saturating_mul);
        let share = (lines + steps.max(1) - 1) / steps.max(1);
        let counter =
            between.iter().fold(Expr::int(0), |count, l| count * l.extent.clone() + Expr::var(l.var));
        let prefetches: Vec<func::Prefetch> = (0..share)
            .map(|n| {
                let line = (counter.clone() * share + n).min(Expr::int(lines - 1));
                let element = next.clone() + line * per_line;
                func::Prefetch { buffer, element: simplifier.simplify(&element) }
            })
            .collect();
        if let Some(l) = tree::loop_at_mut(func, &path) {
            l.prefetches.extend(prefetches);
        }
        Ok(Vec::new())
    }
}

/// Whether a loop prefetches from the buffer.
pub(crate) fn is_prefetched(stmts: &[Stmt], buffer: crate::expr::Buffer) -> bool {
    let mut found = false;
    tree::for_each_loop(stmts, &mut |l| found |= l.prefetches.iter().any(|p| p.buffer == buffer));
    found
}
