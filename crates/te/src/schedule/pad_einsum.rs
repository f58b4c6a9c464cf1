//! `pad_einsum`: a block's iteration domain extended to multiples of factors.

use serde::{Deserialize, Serialize};

use crate::expr::{Buffer, Expr, ExprKind, Var};
use crate::func::{Block, Func, Iter, IterKind};
use crate::schedule::inline::plain_indices;
use crate::schedule::region::covers;
use crate::schedule::transform_layout::extend;
use crate::schedule::{Apply, ScheduleError, tree};
use crate::simplify::Simplifier;

/// Extends a block's iteration domain so that each variable's extent is a multiple of its factor, with no
/// predicate: tiles of a matrix product then need no special case.
///
/// The block writes temporaries, whose shapes grow. Added data-parallel iterations compute elements that
/// nobody reads; their loads are clamped to the last valid index, unless the buffer is large enough (a layout
/// padded by `transform_layout` is). Added reduction steps leave the accumulator as it is. Loops must not be
/// split yet. Consumers keep their domains, so that only the valid part is copied back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PadEinsum {
    /// The block.
    pub block: String,
    /// A factor for each iteration variable, in order; 1 leaves it alone.
    pub factors: Vec<i64>,
}

impl Apply for PadEinsum {
    const NAME: &'static str = "pad_einsum";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let fail = |reason: String| ScheduleError::new(Self::NAME, &self.block, reason);
        let path = tree::find_block(func, Self::NAME, &self.block)?;
        let Some(mut block) = tree::block_at(func, &path).cloned() else { return Ok(Vec::new()) };
        if self.factors.len() != block.iters.len() {
            let (given, wanted) = (self.factors.len(), block.iters.len());
            return Err(fail(format!("{given} factors for {wanted} iteration variables")));
        }
        if let Some(bad) = self.factors.iter().find(|f| **f < 1) {
            return Err(fail(format!("factor {bad} is not positive")));
        }
        if block.predicate.is_some() {
            return Err(fail("the block has a predicate already".into()));
        }
        let sizes = Simplifier::for_sizes(func);
        let mut padded: Vec<(Iter, Expr)> = Vec::new();
        for (iter, factor) in block.iters.iter().zip(&self.factors) {
            let extent = sizes.simplify(&(iter.extent.clone().ceil_div(*factor) * *factor));
            if !sizes.prove_equal(&extent, &iter.extent) {
                padded.push((iter.clone(), extent));
            }
        }
        let buffers = tree::written(&block);
        let mut grown: Vec<(Buffer, usize, Expr)> = Vec::new();
        for store in block.body.iter().chain(&block.init) {
            let places = plain_indices(&block, &store.indices).map_err(fail)?;
            for (iter, extent) in &padded {
                if let Some(dim) = places.iter().position(|p| *p == Some(iter.var)) {
                    grown.push((store.buffer, dim, extent.clone()));
                } else if iter.kind == IterKind::Spatial {
                    let name = &func.vars[iter.var].name;
                    return Err(fail(format!("the padded variable `{name}` is no index of a store")));
                }
            }
        }
        for &buffer in buffers.iter().filter(|_| !grown.is_empty()) {
            let name = &func.buffers[buffer].name;
            if func.params.contains(&buffer) {
                return Err(fail(format!(
                    "its result `{name}` is a parameter of the function; use cache_write"
                )));
            }
            if func.blocks().iter().any(|b| b.name != self.block && tree::writes(b, buffer)) {
                return Err(fail(format!("another block writes `{name}`")));
            }
        }
        for (iter, extent) in &padded {
            extend(func, &path, iter, extent).map_err(fail)?;
            for own in &mut block.iters {
                if own.var == iter.var {
                    own.extent = extent.clone();
                }
            }
        }
        for (buffer, dim, extent) in grown {
            func.buffers[buffer].shape[dim] = extent;
        }

        let clamp = Clamp { func, block: &block, padded: &padded };
        let clamped: Vec<_> = block.body.iter().map(|s| clamp.expr(&s.value, &mut Vec::new())).collect();
        let steps = padded.iter().filter(|(i, _)| i.kind == IterKind::Reduce);
        let valid = tree::conjunction(steps.map(|(i, _)| Expr::var(i.var).lt(i.extent.clone())));
        for (store, value) in block.body.iter_mut().zip(clamped) {
            let accumulator = func.load(store.buffer, store.indices.clone());
            store.value = match &valid {
                Some(condition) => Expr::select(condition.clone(), value, accumulator),
                None => value,
            };
        }
        if let Some(place) = tree::block_at_mut(func, &path) {
            *place = block;
        }
        tree::normalize(func);
        Ok(Vec::new())
    }
}

/// Clamps the indices of loads that added iterations would take out of bounds.
struct Clamp<'a> {
    func: &'a Func,
    block: &'a Block,
    /// The extended variables as they were, with their new extents.
    padded: &'a [(Iter, Expr)],
}

impl Clamp<'_> {
    /// The expression with clamped loads; `facts` are the guards it is under.
    fn expr(&self, e: &Expr, facts: &mut Vec<Expr>) -> Expr {
        match e.kind() {
            ExprKind::Select(condition, a, b) => {
                let guard = self.expr(condition, facts);
                facts.push(condition.clone());
                let a = self.expr(a, facts);
                facts.pop();
                Expr::select(guard, a, self.expr(b, facts))
            }
            ExprKind::Load(buffer, indices) if !tree::writes(self.block, *buffer) => {
                let mut simplifier = Simplifier::for_sizes(self.func);
                for iter in &self.block.iters {
                    simplifier.bind_range(iter.var, 0, iter.extent.clone());
                }
                facts.iter().for_each(|f| simplifier.assume(f));
                let shape = &self.func.buffers[*buffer].shape;
                let is_whole = self.func.is_input(*buffer)
                    || self.func.blocks().iter().any(|b| covers(self.func, b, *buffer));
                let last_valid = |v: Var| {
                    let iter = &self.padded.iter().find(|(i, _)| i.var == v)?.0;
                    Some(Expr::var(v).min(iter.extent.clone() - 1))
                };
                let clamped = indices.iter().zip(shape).map(|(index, extent)| {
                    let index = self.expr(index, facts);
                    if !self.padded.iter().any(|(i, _)| index.uses(i.var)) {
                        return index;
                    }
                    if !is_whole {
                        return simplifier.simplify(&index.substitute(&last_valid));
                    }
                    let last = simplifier.simplify(&(extent.clone() - 1));
                    let high = if simplifier.prove_le(&index, &last) { index } else { index.min(last) };
                    if simplifier.prove_le(&Expr::int(0), &high) { high } else { high.max(Expr::int(0)) }
                });
                let clamped = clamped.collect();
                Expr::load(e.dtype(), *buffer, clamped)
            }
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Var(_)
            | ExprKind::Unary(..)
            | ExprKind::Binary(..)
            | ExprKind::Compare(..)
            | ExprKind::Cast(_)
            | ExprKind::Bitcast(_)
            | ExprKind::Fma(..)
            | ExprKind::Load(..) => e.map_operands(|x| self.expr(x, facts)),
        }
    }
}
