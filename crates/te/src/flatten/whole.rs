//! Whole tiles: a copy of a tile's body for where all of it lies inside.
//!
//! Rows past the end of a padded tile load what the last row does (`pad_einsum`): each row's place is then the lesser of two, and
//! needs an address of its own, of which a processor holds about ten. Where the whole tile lies inside, which for all tiles but the
//! last along a dimension it does, rows are a constant distance apart, so that one address serves all. Which of the two it is is
//! asked once a tile, outside of the loop over its steps. Known as loop partitioning, as in Halide and TVM.

use tilewright_dtype::DType;

use super::emit::Emitter;
use crate::expr::{BinaryOp, Expr, ExprKind, Var};
use crate::func::{Block, Loop, LoopKind, Stmt};
use crate::schedule::tree;

/// A loop of a constant number of iterations, the last of which is `last`, that are repeated.
pub(super) struct Ends {
    pub(super) var: Var,
    pub(super) last: i64,
}

impl Emitter<'_> {
    /// The condition under which no load in the steps of a tile is clamped, if these statements are a tile: loops over steps, with
    /// rows or vectors unrolled inside whose loads are clamped by what is known before the first step.
    pub(super) fn whole_tile(&mut self, stmts: &[&Stmt]) -> Option<Expr> {
        if self.lane.is_some() || self.at_edge || !stmts.iter().any(|stmt| has_clamped_steps(stmt)) {
            return None;
        }
        let (mut ends, mut steps) = (Vec::new(), Vec::new());
        let mut open = |l: &Loop| {
            let extent = self.resolve(&l.extent);
            self.simplifier.bind_range(l.var, 0, extent.clone());
            match (l.kind, extent.as_int()) {
                (LoopKind::Unrolled | LoopKind::Vectorized, Some(n)) => {
                    ends.push(Ends { var: l.var, last: n - 1 });
                }
                (_, Some(1)) => ends.push(Ends { var: l.var, last: 0 }),
                _ => steps.push(l.var),
            }
        };
        stmts.iter().for_each(|stmt| tree::for_each_loop(std::slice::from_ref(*stmt), &mut open));
        let mut whole: Vec<Expr> = Vec::new();
        for clamp in stmts.iter().flat_map(|stmt| clamps_of(stmt)) {
            let clamp = self.resolve(&clamp);
            let ExprKind::Binary(op, a, b) = clamp.kind() else { continue };
            let varies = |e: &Expr| ends.iter().any(|end| e.uses(end.var));
            // The side that differs within the tile must keep to the other.
            let (place, bound) = if varies(a) { (a, b) } else { (b, a) };
            if !varies(place) || varies(bound) || steps.iter().any(|&var| clamp.uses(var)) {
                continue;
            }
            let inside = match op {
                BinaryOp::Min => place.clone().le(bound.clone()),
                BinaryOp::Max => bound.clone().le(place.clone()),
                // It is known to be one of the two.
                _ => continue,
            };
            for condition in self.at_ends(inside, &ends) {
                if !self.follows(&condition, &whole) {
                    whole.push(condition);
                }
            }
        }
        tree::conjunction(whole).filter(|condition| condition.as_int().is_none())
    }

    /// A condition at the last and at the first iterations of loops: being linear in their variables, it holds in between too.
    pub(super) fn at_ends(&self, condition: Expr, ends: &[Ends]) -> Vec<Expr> {
        let used: Vec<&Ends> = ends.iter().filter(|end| condition.uses(end.var)).collect();
        let mut all = vec![condition];
        for end in used {
            let at = |n: i64| all.iter().map(move |c| c.substitute_var(end.var, &Expr::int(n)));
            all = at(end.last).chain(at(0).filter(|_| end.last > 0)).collect();
        }
        all.iter().map(|condition| self.resolve(condition)).collect()
    }

    /// Whether a condition holds wherever others do.
    fn follows(&mut self, condition: &Expr, others: &[Expr]) -> bool {
        let known = self.simplifier.n_facts();
        others.iter().for_each(|other| self.simplifier.assume(other));
        let follows = self.simplifier.prove(condition);
        self.simplifier.forget_facts(known);
        follows
    }
}

/// Whether some loop over steps in the statement has clamped loads inside.
fn has_clamped_steps(stmt: &Stmt) -> bool {
    let mut found = false;
    tree::for_each_loop(std::slice::from_ref(stmt), &mut |l| {
        let is_steps = l.kind == LoopKind::Serial && l.extent.as_int() != Some(1);
        found = found || is_steps && l.body.iter().any(|inner| !clamps_of(inner).is_empty());
    });
    found
}

/// Indices that are the lesser or the greater of two in all blocks of a statement, over variables of loops.
fn clamps_of(stmt: &Stmt) -> Vec<Expr> {
    let mut clamps = Vec::new();
    tree::for_each_block(std::slice::from_ref(stmt), &mut |block: &Block| {
        let value = |var| block.iters.iter().find(|iter| iter.var == var).map(|iter| iter.value.clone());
        let mut visit = |e: &Expr| {
            let is_clamp = matches!(e.kind(), ExprKind::Binary(BinaryOp::Min | BinaryOp::Max, ..));
            if is_clamp && e.dtype() == DType::I64 && !e.any(&mut |x| matches!(x.kind(), ExprKind::Load(..)))
            {
                clamps.push(e.substitute(&value));
            }
        };
        block.for_each_expr(|e| e.walk(&mut visit));
    });
    clamps
}
