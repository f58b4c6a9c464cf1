//! Operands of definitions.

use tilewright_dtype::DType;
use tilewright_te::{Buffer, Expr, Func, Store};

/// A tensor that a definition reads: a buffer with its element type and extents.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub(super) buffer: Buffer,
    pub(super) dtype: DType,
    pub(super) shape: Vec<Expr>,
}

impl Operand {
    /// The operand that is a buffer of `func`.
    pub(super) fn of(func: &Func, buffer: Buffer) -> Operand {
        let data = &func.buffers[buffer];
        Operand { buffer, dtype: data.dtype, shape: data.shape.clone() }
    }

    /// Number of axes.
    pub(super) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The element at the indices.
    pub(super) fn at(&self, indices: Vec<Expr>) -> Expr {
        debug_assert_eq!(indices.len(), self.rank(), "indices of an operand of rank {}", self.rank());
        Expr::load(self.dtype, self.buffer, indices)
    }

    /// The element at the indices of a result of extents `shape` that this operand is broadcast to.
    pub(super) fn at_broadcast(&self, indices: &[Expr], shape: &[Expr]) -> Expr {
        let skipped = indices.len().saturating_sub(self.rank());
        let own = self.shape.iter().zip(indices[skipped..].iter().zip(&shape[skipped..]));
        self.at(own.map(|(extent, (index, result))| broadcast_index(index, extent, result)).collect())
    }

    /// The only element of a scalar or of a one-element tensor.
    pub(super) fn scalar(&self) -> Expr {
        self.at(vec![Expr::int(0); self.rank()])
    }

    /// Element `index` of a vector as an index.
    pub(super) fn index_at(&self, index: Expr) -> Expr {
        self.at(vec![index]).cast(DType::I64)
    }

    /// A store into the buffer.
    pub(super) fn store(&self, indices: Vec<Expr>, value: Expr) -> Store {
        Store { buffer: self.buffer, indices, value }
    }
}

/// The index into an axis of extent `extent` that is broadcast to `result`.
pub(super) fn broadcast_index(index: &Expr, extent: &Expr, result: &Expr) -> Expr {
    match extent.as_int() {
        Some(1) => Expr::int(0),
        Some(_) => index.clone(),
        None if extent == result => index.clone(),
        None => Expr::select(extent.clone().equals(Expr::int(1)), Expr::int(0), index.clone()),
    }
}
