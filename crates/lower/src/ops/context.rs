//! What definitions are given and what they give.

use std::fmt;

use tilewright_graph::symbol::SymbolTable;
use tilewright_te::computation::DIRECT;
use tilewright_te::{Buffer, Func};

use super::operand::Operand;
use crate::dims::DimMap;

/// What definitions need to know of the graph, and the size variables they make of its symbols.
#[derive(Debug)]
pub struct Context<'a> {
    /// The graph's symbols.
    pub symbols: &'a SymbolTable,
    /// Size variables of the function under construction.
    pub dims: &'a mut DimMap,
    /// How operators are computed that have a choice.
    pub algorithm: Algorithm,
    /// What definitions want to be passed in place of constants; added to by [`define`](super::define).
    pub prepared: Vec<Prepared>,
}

impl<'a> Context<'a> {
    /// The context of definitions that are the operators' meaning.
    pub fn new(symbols: &'a SymbolTable, dims: &'a mut DimMap) -> Context<'a> {
        Context { symbols, dims, algorithm: Algorithm::Direct, prepared: Vec::new() }
    }
}

/// An algorithm for an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// As the operator is defined.
    Direct,
    /// Convolution by tiles of so many outputs along each axis (`winograd`).
    Winograd {
        /// Outputs of a tile along an axis.
        tile: usize,
    },
    /// A product of matrices by seven products of sums of their quarters (`strassen`).
    Strassen,
    /// Transposed convolution with strides as one convolution for each remainder of the result's positions by them, with those
    /// weights that meet an element of the input: the same sums as by definition, without the zeros.
    Phases,
    /// Attention in blocks of queries and keys, with a running maximum (`attention_blocks`).
    Blocks {
        /// Queries of a block.
        queries: i64,
        /// Keys of a block.
        keys: i64,
    },
}

/// `direct`, `winograd-4x4`, `strassen`, `phases`, `blocks-64x64`.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Algorithm::Direct => f.write_str(DIRECT),
            Algorithm::Winograd { tile } => write!(f, "winograd-{tile}x{tile}"),
            Algorithm::Strassen => f.write_str("strassen"),
            Algorithm::Phases => f.write_str("phases"),
            Algorithm::Blocks { queries, keys } => write!(f, "blocks-{queries}x{keys}"),
        }
    }
}

impl Algorithm {
    /// Whether results are those of the definition to the last bit, but for sums' order.
    pub fn is_exact(self) -> bool {
        match self {
            Algorithm::Direct | Algorithm::Phases => true,
            Algorithm::Winograd { .. } | Algorithm::Strassen | Algorithm::Blocks { .. } => false,
        }
    }
}

/// A constant in another form.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The input that is not read.
    pub input: Buffer,
    /// The buffer that is read in its place, which nothing in the function writes.
    pub prepared: Buffer,
    /// Makes the one of the other.
    pub func: Func,
}

/// The operator, or this use of it, has no definition as tensor expressions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op} has no kernel: {reason}")]
pub struct NoKernel {
    /// Name of the operator.
    pub op: &'static str,
    /// What stands against it.
    pub reason: String,
}

/// What a definition gives: the operands that hold its results.
pub(super) type Results = Result<Vec<Operand>, NoKernel>;
