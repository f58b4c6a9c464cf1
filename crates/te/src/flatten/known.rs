//! What is known at a statement of a nest: sizes, the loops around, and facts.

use tilewright_dtype::DType;

use super::nest::{Loop, Nest};
use crate::expr::{CompareOp, Expr, ExprKind};
use crate::simplify::{Linear, Simplifier};

/// Ranges and facts at a statement, kept up by a pass that walks a nest.
pub(super) struct Known {
    pub(super) simplifier: Simplifier,
}

impl Known {
    /// What is known at the beginning of a task.
    pub(super) fn in_task(nest: &Nest<'_>) -> Known {
        let mut simplifier = Simplifier::for_sizes(nest.func);
        for counter in nest.counters() {
            simplifier.bind_range(counter.var, 0, counter.extent.clone());
        }
        Known { simplifier }
    }

    /// An equal expression in normal form.
    pub(super) fn simplify(&self, expr: &Expr) -> Expr {
        self.simplifier.simplify(expr)
    }

    /// The form that is at least 0 where a comparison of indices holds.
    pub(super) fn difference(&self, condition: &Expr) -> Option<Linear> {
        let ExprKind::Compare(op, a, b) = condition.kind() else { return None };
        if a.dtype() != DType::I64 {
            return None;
        }
        let difference = match op {
            CompareOp::Lt => b.clone() - a.clone() - 1,
            CompareOp::Le => b.clone() - a.clone(),
            CompareOp::Gt => a.clone() - b.clone() - 1,
            CompareOp::Ge => a.clone() - b.clone(),
            CompareOp::Eq | CompareOp::Ne => return None,
        };
        Some(self.simplifier.linear(&difference))
    }

    /// Binds the variable of a loop of which nothing but the bounds is known.
    pub(super) fn bind(&mut self, l: &Loop<'_>) {
        self.simplifier.bind_range(l.var, l.begin.clone(), l.extent());
    }

    /// Enters the body of a loop. Gives what [`Known::leave`] wants.
    pub(super) fn enter_loop(&mut self, l: &Loop<'_>) -> usize {
        self.bind(l);
        let before = self.enter(l.body.fact.as_ref());
        if l.body.fact.is_some() {
            // The fact may say more of the bounds.
            let extent = self.simplify(&l.extent());
            self.simplifier.bind_range(l.var, l.begin.clone(), extent);
        }
        before
    }

    /// Enters statements where a condition holds. Gives what [`Known::leave`] wants.
    pub(super) fn enter(&mut self, fact: Option<&Expr>) -> usize {
        let before = self.simplifier.n_facts();
        if let Some(fact) = fact {
            self.simplifier.assume(fact);
        }
        before
    }

    /// Leaves what was entered last.
    pub(super) fn leave(&mut self, before: usize) {
        if self.simplifier.n_facts() > before {
            self.simplifier.forget_facts(before);
        }
    }
}

/// The opposite of a comparison; of anything else what is always true, which says nothing as a fact.
pub(super) fn negated(condition: &Expr) -> Expr {
    let ExprKind::Compare(op, a, b) = condition.kind() else { return Expr::bool(true) };
    let op = match op {
        CompareOp::Lt => CompareOp::Ge,
        CompareOp::Le => CompareOp::Gt,
        CompareOp::Gt => CompareOp::Le,
        CompareOp::Ge => CompareOp::Lt,
        CompareOp::Eq => CompareOp::Ne,
        CompareOp::Ne => CompareOp::Eq,
    };
    Expr::compare(op, a.clone(), b.clone())
}
