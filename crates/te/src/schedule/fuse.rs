//! `fuse`: directly nested loops into one.

use serde::{Deserialize, Serialize};

use crate::expr::Expr;
use crate::func::{Func, IterKind, Loop, LoopKind, Stmt};
use crate::schedule::{Apply, ScheduleError, tree};

/// Makes one loop of directly nested loops, given outermost first.
///
/// Its extent is the product of theirs; the old variables are quotients and remainders of the new one. Loops of
/// a reduction fuse only among themselves. The new loop is named after them all, with `_` between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fuse {
    /// The loops.
    pub loops: Vec<String>,
}

impl Apply for Fuse {
    const NAME: &'static str = "fuse";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let place = self.loops.join(", ");
        let fail = |reason: String| Err(ScheduleError::new(Self::NAME, &place, reason));
        if self.loops.is_empty() {
            return fail("no loops are given".into());
        }
        let path = tree::find_loop(func, Self::NAME, &self.loops[0])?;
        let mut fused: Vec<Loop> = Vec::new();
        let mut here = path.clone();
        for (n, name) in self.loops.iter().enumerate() {
            if tree::find_loop(func, Self::NAME, name)? != here {
                return fail(format!(
                    "`{name}` is not directly inside `{}`",
                    self.loops[n.saturating_sub(1)]
                ));
            }
            let Some(l) = tree::loop_at(func, &here) else { break };
            if l.kind != LoopKind::Serial {
                return fail(format!("`{name}` is already {:?}", l.kind));
            }
            if let Some(tied) = l.tied() {
                return fail(format!("`{name}` {tied}"));
            }
            if let Some(outer) = fused.iter().find(|outer| l.extent.uses(outer.var)) {
                return fail(format!("the extent of `{name}` depends on `{}`", func.vars[outer.var].name));
            }
            if n + 1 < self.loops.len() && l.body.len() != 1 {
                return fail(format!("`{name}` holds more than the next loop"));
            }
            fused.push(l.clone());
            here.push(0);
        }
        if fused.len() < 2 {
            return Ok(self.loops.clone());
        }
        let mut mixed = None;
        tree::for_each_block(&fused[fused.len() - 1].body, &mut |block| {
            let reduces =
                |l: &Loop| block.iters.iter().any(|i| i.kind == IterKind::Reduce && i.value.uses(l.var));
            let counts = |l: &&Loop| l.extent.as_int() != Some(1);
            let mut kinds = fused.iter().filter(counts).map(reduces);
            if kinds.next().is_some_and(|first| kinds.any(|other| other != first)) {
                mixed.get_or_insert(block.name.clone());
            }
        });
        if let Some(block) = mixed {
            return fail(format!("they are data-parallel and reduction loops of `{block}`"));
        }
        let var = tree::loop_var(func, &self.loops.join("_"));
        let extent = fused.iter().fold(Expr::int(1), |p, l| p * l.extent.clone());
        // Said outright: that a quotient is 0 is hard to see where the other extents are open, and there is none by an
        // extent of 0, whose loop never runs.
        let is_single = |l: &Loop| matches!(l.extent.as_int(), Some(0 | 1));
        let outermost = fused.iter().position(|l| !is_single(l));
        let mut inside = Expr::int(1);
        let mut values = Vec::new();
        for (n, l) in fused.iter().enumerate().rev() {
            let quotient = Expr::var(var).floor_div(inside.clone());
            if is_single(l) {
                values.push((l.var, Expr::int(0)));
                continue;
            }
            let value = if Some(n) == outermost { quotient } else { quotient.floor_mod(l.extent.clone()) };
            values.push((l.var, value));
            inside = inside * l.extent.clone();
        }
        let mut body: Vec<Stmt> = fused.pop().map(|l| l.body).unwrap_or_default();
        tree::map_loop_exprs(&mut body, &|e| {
            e.substitute(&|v| values.iter().find(|(old, _)| *old == v).map(|(_, value)| value.clone()))
        });
        if let Some(l) = tree::loop_at_mut(func, &path) {
            *l = Loop::serial(var, extent, body);
        }
        tree::normalize(func);
        Ok(vec![func.vars[var].name.clone()])
    }
}
