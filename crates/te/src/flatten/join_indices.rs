//! Indices that take a loop variable apart are put together again.
//!
//! A loop over several dimensions walked as one gives each of them a quotient or a remainder of its variable. The
//! row-major position is plain again: an access of which several indices divide gets that as its only index. Accesses
//! are otherwise left alone.

use super::known::Known;
use super::nest::{self, Nest, Stmt};
use crate::expr::{BinaryOp, Buffer, Expr, ExprKind};
use crate::func::Func;

/// Gives accesses with several indices that divide their row-major position as the only index. Blocks must be bound.
pub fn join_indices(nest: &mut Nest<'_>) {
    if any_divides(&nest.body) {
        let mut pass = JoinIndices { func: nest.func, known: Known::in_task(nest) };
        let mut body = std::mem::take(&mut nest.body);
        pass.list(&mut body);
        nest.body = body;
    }
}

struct JoinIndices<'a> {
    func: &'a Func,
    known: Known,
}

impl JoinIndices<'_> {
    fn list(&mut self, stmts: &mut [Stmt<'_>]) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => {
                    self.expr(&mut l.begin);
                    self.expr(&mut l.end);
                    let before = self.known.enter_loop(l);
                    self.list(&mut l.body.stmts);
                    self.known.leave(before);
                }
                Stmt::If(branch) => {
                    self.expr(&mut branch.condition);
                    for body in [&mut branch.then, &mut branch.otherwise] {
                        let before = self.known.enter(body.fact.as_ref());
                        self.list(&mut body.stmts);
                        self.known.leave(before);
                    }
                }
                Stmt::Masked(masked) => {
                    self.expr(&mut masked.mask);
                    self.list(&mut masked.stmts);
                }
                Stmt::Stores(stores) => {
                    for store in &mut stores.stores {
                        store.indices.iter_mut().for_each(|index| self.expr(index));
                        self.expr(&mut store.value);
                        if let Some(position) = self.position(store.buffer, &store.indices) {
                            store.indices = vec![position];
                        }
                    }
                }
                Stmt::Copies(stmts) => self.list(stmts),
                Stmt::Block(_) | Stmt::Prefetch(_) => {}
                Stmt::Barrier | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
            }
        }
    }

    fn expr(&self, expr: &mut Expr) {
        if loads_divide(expr) {
            *expr = expr.rewrite(&mut |e| match e.kind() {
                ExprKind::Load(buffer, indices) => {
                    self.position(*buffer, indices).map(|at| Expr::load(e.dtype(), *buffer, vec![at]))
                }
                _ => None,
            });
        }
    }

    /// The row-major position of an access of which several indices divide.
    fn position(&self, buffer: Buffer, indices: &[Expr]) -> Option<Expr> {
        if !several_divide(indices) {
            return None;
        }
        let (mut stride, mut sum) = (Expr::int(1), Expr::int(0));
        for (index, extent) in indices.iter().zip(&self.func.buffers[buffer].shape).rev() {
            sum = sum + index.clone() * stride.clone();
            stride = stride * self.known.simplify(extent);
        }
        Some(self.known.simplifier.join(&sum))
    }
}

/// Whether more than one index takes a quotient or a remainder.
fn several_divide(indices: &[Expr]) -> bool {
    let divides =
        |e: &Expr| matches!(e.kind(), ExprKind::Binary(BinaryOp::FloorDiv | BinaryOp::FloorMod, ..));
    indices.len() > 1 && indices.iter().filter(|index| index.any(&mut |e| divides(e))).count() > 1
}

fn loads_divide(expr: &Expr) -> bool {
    expr.any(&mut |e| matches!(e.kind(), ExprKind::Load(_, indices) if several_divide(indices)))
}

fn any_divides(stmts: &[Stmt<'_>]) -> bool {
    let mut found = false;
    nest::for_each(stmts, &mut |stmt| match stmt {
        Stmt::Loop(l) => found = found || loads_divide(&l.begin) || loads_divide(&l.end),
        Stmt::If(branch) => found = found || loads_divide(&branch.condition),
        Stmt::Masked(masked) => found = found || loads_divide(&masked.mask),
        Stmt::Stores(stores) => {
            for store in &stores.stores {
                let of_store = || store.indices.iter().chain([&store.value]);
                found = found || several_divide(&store.indices) || of_store().any(loads_divide);
            }
        }
        Stmt::Block(_) | Stmt::Prefetch(_) | Stmt::Barrier => {}
        Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
    });
    found
}
