//! Layouts: how the elements of a value lie in memory.
//!
//! A layout is data on a value, never a variant of an operator: every function is right in any layout, and the choice is
//! one of speed alone. `passes::layouts` makes it; lowering carries it out.

use rustc_hash::FxHashMap;

use crate::ids::ValueId;

/// A part of a dimension, as a loop over it would be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The logical dimension.
    pub dim: usize,
    /// Elements along it, one after the other; `None` for what is left of the dimension outside of its other pieces.
    pub factor: Option<i64>,
}

/// The order of a value's elements in memory, the outermost piece first. Dimensions that their factors do not divide are
/// padded; what the padding holds is undefined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The pieces.
    pub pieces: Vec<Piece>,
}

/// The layouts of values that are not row-major.
pub type Layouts = FxHashMap<ValueId, Layout>;

impl Layout {
    /// `[N][C][spatial..]` in blocks of channels: `[N][C / factor][spatial..][factor]`, for a tensor of so many dimensions.
    pub fn channel_blocks(rank: usize, factor: i64) -> Layout {
        let open = (0..rank).map(|dim| Piece { dim, factor: None });
        Layout { pieces: open.chain([Piece { dim: 1, factor: Some(factor) }]).collect() }
    }

    /// Elements of the innermost piece, if that is a block.
    pub fn innermost_block(&self) -> Option<i64> {
        self.pieces.last()?.factor
    }
}
