//! Errors of lowering: everything that cannot be compiled, with where and why.

use std::fmt;

/// Why a graph cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// Nodes without a lowering, all of them.
    #[error("{}", Gaps(.0))]
    Unsupported(Vec<Gap>),
    /// An extent is needed before anything defines it.
    #[error("extent `{symbol}` of value {value} is not defined when it is needed")]
    UnboundExtent {
        /// The symbol.
        symbol: String,
        /// The value.
        value: String,
    },
    /// The compiler contradicts itself.
    #[error("internal error while planning: {0}")]
    Internal(String),
}

/// A node that cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The operator.
    pub op: &'static str,
    /// The names of the nodes in the model.
    pub nodes: Vec<String>,
    /// The types of its operands.
    pub operands: Vec<String>,
    /// Why not.
    pub reason: String,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op)?;
        if !self.nodes.is_empty() {
            write!(f, " (node `{}`)", self.nodes.join("`, `"))?;
        }
        write!(f, " on ({}): {}", self.operands.join(", "), self.reason)
    }
}

struct Gaps<'a>(&'a [Gap]);

impl fmt::Display for Gaps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} node(s) cannot be compiled:", self.0.len())?;
        self.0.iter().try_for_each(|gap| write!(f, "\n  {gap}"))
    }
}
