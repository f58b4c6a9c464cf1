//! Guards: facts about symbols that inference had to assume, checked when the model runs.

use std::fmt;

use crate::dim::Dim;
use crate::ids::RegionId;
use crate::symbol::SymbolTable;

/// How the two sides of a guard compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// Equal.
    Equal,
    /// Left at most right.
    AtMost,
}

impl Comparison {
    /// Whether it holds between two numbers.
    pub fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Comparison::Equal => left == right,
            Comparison::AtMost => left <= right,
        }
    }
}

/// An assumption `left comparison right`, with why it was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// Left side.
    pub left: Dim,
    /// How the sides compare.
    pub comparison: Comparison,
    /// Right side.
    pub right: Dim,
    /// Where it must hold: it is checked whenever this region runs (the main one: once, before anything else).
    pub region: RegionId,
    /// The node and reason, for the error at run time.
    pub message: String,
}

impl Guard {
    /// Whether another one demands the same in the same place, for whatever reason. Equality reads the same from both sides.
    fn demands_same(&self, other: &Guard) -> bool {
        let sides = (&self.left, &self.right);
        let is_swapped = self.comparison == Comparison::Equal && sides == (&other.right, &other.left);
        let same_sides = sides == (&other.left, &other.right) || is_swapped;
        same_sides && (self.comparison, self.region) == (other.comparison, other.region)
    }

    /// Adds the guard to others, unless one of these demands the same.
    pub(crate) fn add_to(self, guards: &mut Vec<Guard>) {
        if !guards.iter().any(|known| known.demands_same(&self)) {
            guards.push(self);
        }
    }

    /// Keeps the first of guards that demand the same: others become equal to it where more becomes known of extents.
    pub(crate) fn merge(guards: &mut Vec<Guard>) {
        let mut merged = Vec::with_capacity(guards.len());
        guards.drain(..).for_each(|guard| guard.add_to(&mut merged));
        *guards = merged;
    }

    /// Whether it holds whatever the extents are.
    pub fn holds(&self) -> bool {
        let is_equal = self.comparison == Comparison::Equal && self.left == self.right;
        is_equal || self.constants().is_some_and(|(left, right)| self.comparison.holds(left, right))
    }

    /// Whether it holds for no extents at all, so that what it stands in front of always fails.
    pub fn never_holds(&self) -> bool {
        self.constants().is_some() && !self.holds()
    }

    fn constants(&self) -> Option<(i64, i64)> {
        Some((self.left.as_const()?, self.right.as_const()?))
    }

    /// The condition with symbols shown by name.
    pub fn display<'a>(&'a self, symbols: &'a SymbolTable) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let comparison = match self.comparison {
                Comparison::Equal => "==",
                Comparison::AtMost => "<=",
            };
            write!(f, "{} {comparison} {}", self.left.display(symbols), self.right.display(symbols))
        })
    }
}
