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
