//! The strategy of a function: one for each group of its blocks, and what all of them have in common.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_dtype::DType;
use tilewright_te::schedule::Piece;
use tilewright_te::{Block, Expr, Func, IterKind};

/// An extent: a number, or open until the function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extent {
    /// Known when the function is compiled.
    Known(i64),
    /// Known when it runs.
    Open,
}

impl From<&Expr> for Extent {
    fn from(extent: &Expr) -> Extent {
        extent.as_int().map_or(Extent::Open, Extent::Known)
    }
}

/// A number, or `?`.
impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Known(n) => write!(f, "{n}"),
            Extent::Open => f.write_str("?"),
        }
    }
}

/// What a block computes, as far as strategies go by it: the type of its results and the extents of its variables.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Domain {
    /// Type of an element of the results.
    pub element: DType,
    /// Extents of data-parallel variables.
    pub spatial: Vec<Extent>,
    /// Extents of reduction variables.
    pub reduce: Vec<Extent>,
}

impl Domain {
    /// The domain of a block.
    pub fn of(func: &Func, block: &Block) -> Domain {
        let extents = |kind| {
            let own = block.iters.iter().filter(move |i| i.kind == kind);
            own.map(|i| Extent::from(&i.extent)).collect()
        };
        let element = block.body.first().map_or(DType::F32, |store| func.buffers[store.buffer].dtype);
        Domain { element, spatial: extents(IterKind::Spatial), reduce: extents(IterKind::Reduce) }
    }
}

/// `f32[1, 64, ? | 3, 3]`.
impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}", self.element, list(&self.spatial))?;
        if !self.reduce.is_empty() {
            write!(f, " | {}", list(&self.reduce))?;
        }
        f.write_str("]")
    }
}

/// A level of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Level {
    /// Registers.
    Registers,
    /// The first level of cache.
    L1,
    /// The second level of cache.
    L2,
    /// Beyond the second level: what cores share, and memory.
    Beyond,
}

/// `registers`, `L1`, `L2` or `beyond L2`.
impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Registers => "registers",
            Level::L1 => "L1",
            Level::L2 => "L2",
            Level::Beyond => "beyond L2",
        })
    }
}

/// Things with commas between.
pub(crate) fn list<T: fmt::Display>(things: &[T]) -> String {
    things.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A layout as it is printed: `a b c 8b`.
pub(crate) fn pieces_text(pieces: &[Piece]) -> String {
    let letter = |dim: usize| char::from(b'a' + (dim % 26) as u8);
    let text = |piece: &Piece| match piece.factor {
        Some(factor) => format!("{factor}{}", letter(piece.dim)),
        None => letter(piece.dim).to_string(),
    };
    pieces.iter().map(text).collect::<Vec<_>>().join(" ")
}

/// What is done to a function: the algorithm, and a strategy for each group of its blocks, in the order in which they apply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FuncStrategy<S> {
    /// Name of the algorithm.
    pub algorithm: String,
    /// Strategies of groups of blocks.
    pub blocks: Vec<S>,
}

/// The algorithm, then a line for each group of blocks. It names no function, so equal strategies of functions that differ in their
/// names print alike.
impl<S: fmt::Display> fmt::Display for FuncStrategy<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.algorithm)?;
        self.blocks.iter().try_for_each(|strategy| writeln!(f, "  {strategy}"))
    }
}
