//! `split_iter`: a variable of a block as two, of quotients and remainders.

use serde::{Deserialize, Serialize};

use crate::expr::{Expr, Var};
use crate::func::{Func, Iter, Loop, Stmt, VarKind};
use crate::schedule::{Apply, ScheduleError, tree};
use crate::simplify::Simplifier;

/// Makes two variables of one of a block, the inner of extent `inner`, and two loops of its loop.
///
/// Buffers stay as they are. The extent is a multiple of `inner`, and the loops must be as computed. The new loop
/// goes inside the old one; its name is the old one's with `_1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SplitIter {
    /// The block.
    pub block: String,
    /// Position of the variable among the block's.
    pub iter: usize,
    /// Extent of the inner variable.
    pub inner: i64,
}

impl Apply for SplitIter {
    const NAME: &'static str = "split_iter";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.block, reason);
        let path = tree::find_block(func, Self::NAME, &self.block)?;
        let block = tree::block_at(func, &path);
        let iter = block.and_then(|block| block.iters.get(self.iter));
        let iter = iter.ok_or_else(|| fail(format!("it has no variable {}", self.iter)))?;
        let is_one = self.inner == 1 && iter.extent.as_int().is_some_and(|extent| extent > 0);
        if !is_one && Simplifier::for_sizes(func).exact_quotient(&iter.extent, self.inner).is_none() {
            return Err(fail(format!("{} does not divide variable {}", self.inner, self.iter)));
        }
        if block.is_some_and(|block| block.predicate.is_some()) {
            return Err(fail("it has a predicate".into()));
        }
        let made = split_variable(func, &path, iter.var, self.inner).map_err(fail)?;
        let mut simplifier = Simplifier::for_sizes(func).keep_fixed_variables();
        // A loop deeper now.
        let path = tree::find_block(func, Self::NAME, &self.block)?;
        if let Some(block) = tree::block_at_mut(func, &path) {
            for iter in &block.iters {
                simplifier.bind_range(iter.var, Expr::int(0), iter.extent.clone());
            }
            tree::simplify_indices(block, &simplifier);
        }
        Ok(made)
    }
}

/// Makes two variables of one of a block, and two loops of its loop; gives the names of these.
pub(super) fn split_variable(
    func: &mut Func,
    path: &tree::Path,
    var: Var,
    inner: i64,
) -> Result<Vec<String>, String> {
    let at = tree::loop_of(func, path, var)?;
    let simplifier = Simplifier::for_sizes(func);
    let quotient = |extent: &Expr| match inner {
        1 => extent.clone(),
        _ => simplifier.exact_quotient(extent, inner).unwrap_or(Expr::int(0)),
    };
    let name = func.vars[var].name.clone();
    let inner_var = func.add_var(&format!("{name}_1"), VarKind::Iter);
    let Some(outer_loop) = tree::loop_at(func, &at).map(|l| l.var) else { return Ok(Vec::new()) };
    let hint = format!("{}_1", func.vars[outer_loop].name);
    let inner_loop = tree::loop_var(func, &hint);
    if let Some(block) = tree::block_at_mut(func, path)
        && let Some(position) = block.iters.iter().position(|i| i.var == var)
    {
        let outer = &mut block.iters[position];
        outer.extent = quotient(&outer.extent);
        let (extent, kind) = (Expr::int(inner), outer.kind);
        let iter = Iter { var: inner_var, extent, kind, value: Expr::var(inner_loop) };
        block.iters.insert(position + 1, iter);
        let value = Expr::var(var) * inner + Expr::var(inner_var);
        block.substitute(&|v| (v == var).then(|| value.clone()));
    }
    if let Some(l) = tree::loop_at_mut(func, &at) {
        l.extent = quotient(&l.extent);
        let body = std::mem::take(&mut l.body);
        l.body = vec![Stmt::Loop(Box::new(Loop::serial(inner_loop, Expr::int(inner), body)))];
    }
    Ok([outer_loop, inner_loop].map(|var| func.vars[var].name.clone()).to_vec())
}
