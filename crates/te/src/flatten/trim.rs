//! Loop trimming: iterations at the end of a loop in which no block does anything are not run.
//!
//! A loop whose extent does not divide what it shares out (the vectors of a task, where their number is open) guards its blocks. The
//! last task would ask the guards of all its iterations, and there may be a thousand for one that is needed. Halide has it as
//! `trim_no_ops`. Loops of few iterations stay as they are: their constant extent is worth more.

use super::known::Known;
use super::nest::{self, If, Loop, LoopKind, Nest, Stmt};
use crate::expr::{BinaryOp, Expr, ExprKind};
use crate::schedule::tree;
use crate::simplify::Linear;

/// Iterations up to which a loop is left alone.
const FEW: i64 = 16;

/// Ends loops where the predicates of all their blocks fail from there on.
pub fn trim(nest: &mut Nest<'_>) {
    // Threads of a task meet in a loop: all must run it as often.
    if nest::has_guards(&nest.body) && !nest::has_threads(&nest.body) {
        let mut pass = Trim { known: Known::in_task(nest) };
        pass.list(&mut nest.body);
    }
}

struct Trim {
    known: Known,
}

impl Trim {
    fn list(&mut self, stmts: &mut [Stmt<'_>]) {
        for stmt in stmts {
            match stmt {
                Stmt::Loop(l) => {
                    if let Some(end) = self.last_end(l) {
                        l.end = end;
                    }
                    let before = self.known.enter_loop(l);
                    self.list(&mut l.body.stmts);
                    self.known.leave(before);
                }
                Stmt::If(branch) => {
                    for body in [&mut branch.then, &mut branch.otherwise] {
                        let before = self.known.enter(body.fact.as_ref());
                        self.list(&mut body.stmts);
                        self.known.leave(before);
                    }
                }
                Stmt::Block(_) | Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Prefetch(_) => {}
                Stmt::Barrier | Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => {}
            }
        }
    }

    /// Where a loop may end, if that is before its end.
    fn last_end(&mut self, l: &Loop<'_>) -> Option<Expr> {
        let extent = self.known.simplify(&l.extent());
        if l.kind != LoopKind::Serial || extent.as_int().is_some_and(|n| n <= FEW) {
            return None;
        }
        let conditions: Vec<Expr> =
            conditions_of(&l.body.stmts)?.into_iter().filter(|c| c.uses(l.var)).collect();
        if conditions.is_empty() {
            return None;
        }
        self.known.bind(l);
        let ends = conditions.iter().filter_map(|condition| self.fails_from(l, condition));
        let end = ends.fold(l.end.clone(), |end, at| Expr::binary(BinaryOp::Min, end, at));
        let (end, before) = (self.known.simplify(&end), self.known.simplify(&l.end));
        (end != before).then_some(end)
    }

    /// The iteration of a loop from which on a condition holds for no iteration of the loops inside, if there is one for all.
    fn fails_from(&self, l: &Loop<'_>, condition: &Expr) -> Option<Expr> {
        let mut difference = self.known.difference(condition)?;
        let mut inner: Vec<&Loop<'_>> = Vec::new();
        nest::for_each_loop(&l.body.stmts, &mut |own| inner.push(own));
        for own in inner {
            let (times, rest) = difference.affine_in(own.var)?;
            if times != 0 {
                let (begin, end) = (own.begin.as_int()?, own.end.as_int()?);
                let most = if times > 0 { end - 1 } else { begin };
                difference = rest.add(&Linear::int(times.checked_mul(most)?));
            }
        }
        let (times, rest) = difference.affine_in(l.var)?;
        let rest = rest.to_expr();
        let is_known = times < 0 && !rest.any(&mut |e| matches!(e.kind(), ExprKind::Load(..)));
        is_known.then(|| rest.floor_div(Expr::int(times.saturating_neg())) + 1)
    }
}

/// Conditions without which no block of some statements does anything; nothing where there is no block.
fn conditions_of(stmts: &[Stmt<'_>]) -> Option<Vec<Expr>> {
    stmts.iter().filter_map(conditions_of_one).reduce(|mut common, others| {
        common.retain(|condition| others.contains(condition));
        common
    })
}

fn conditions_of_one(stmt: &Stmt<'_>) -> Option<Vec<Expr>> {
    match stmt {
        Stmt::Loop(l) => conditions_of(&l.body.stmts),
        Stmt::If(If { condition, then, otherwise }) if otherwise.stmts.is_empty() => {
            let mut all = conditions_of(&then.stmts)?;
            all.extend(tree::conjuncts(condition));
            Some(all)
        }
        Stmt::If(branch) => {
            let (then, otherwise) =
                (conditions_of(&branch.then.stmts), conditions_of(&branch.otherwise.stmts));
            match (then, otherwise) {
                (Some(mut then), Some(otherwise)) => {
                    then.retain(|condition| otherwise.contains(condition));
                    Some(then)
                }
                (one, other) => one.or(other),
            }
        }
        Stmt::Block(block) => Some(block.predicate.iter().flat_map(tree::conjuncts).collect()),
        Stmt::Prefetch(_) => None,
        Stmt::Masked(_) | Stmt::Stores(_) | Stmt::Barrier => Some(Vec::new()),
        Stmt::Copies(_) | Stmt::CommitCopies | Stmt::WaitCopies(_) => Some(Vec::new()),
    }
}
