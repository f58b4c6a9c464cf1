//! What is known at a statement of a nest: sizes, the loops around, and facts.

use super::nest::{Loop, Nest};
use crate::expr::Expr;
use crate::simplify::Simplifier;

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
