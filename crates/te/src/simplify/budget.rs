//! Budgets: how much an analysis may do before it answers "not known".

use std::cell::Cell;

/// Steps that an analysis may still take.
///
/// Some questions about index expressions take time exponential in their size. An analysis spends a step wherever it branches or
/// goes deeper, and where none is left it answers what it knows without that step, which for all of them is a right answer, if a
/// weaker one. Steps are counted and never timed, so answers are the same on every machine.
#[derive(Debug)]
pub struct Budget {
    left: Cell<u32>,
}

impl Budget {
    /// A budget of so many steps.
    pub fn of(steps: u32) -> Budget {
        Budget { left: Cell::new(steps) }
    }

    /// Takes so many steps, and tells whether they were there; else none are left.
    pub fn spend(&self, steps: u32) -> bool {
        let left = self.left.get().checked_sub(steps);
        self.left.set(left.unwrap_or(0));
        left.is_some()
    }

    /// Steps left.
    pub fn left(&self) -> u32 {
        self.left.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends() {
        let budget = Budget::of(5);
        assert!(budget.spend(3) && budget.spend(2) && budget.left() == 0);
        assert!(!budget.spend(1));
        let budget = Budget::of(5);
        assert!(!budget.spend(6));
        assert!(!budget.spend(1), "what could not be afforded leaves nothing");
    }
}
