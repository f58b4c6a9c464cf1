//! Patches of expressions.

use tilewright_dtype::DType;

use crate::graph::Node;
use crate::ids::ValueId;
use crate::op::{BinaryOp, Op, ReduceKind, UnaryOp};
use crate::patch::{Patch, Source, View};
use crate::tensor::Tensor;

/// A patch that grows by expressions of one element type.
pub(super) struct Emit {
    pub(super) patch: Patch,
    pub(super) dtype: DType,
}

impl Emit {
    /// An empty patch for the element type of the node's operand 0.
    pub(super) fn new(view: &View<'_>, node: &Node) -> Option<(Emit, Source)> {
        let x = node.input(0)?;
        let dtype = view.graph.tensor_type(x)?.dtype;
        Some((Emit { patch: Patch::new(), dtype }, Source::Old(x)))
    }

    pub(super) fn constant(&mut self, value: f64) -> Option<Source> {
        Some(self.patch.add(Op::Constant(Tensor::scalar_of(self.dtype, value)?), []))
    }

    pub(super) fn unary(&mut self, op: UnaryOp, x: Source) -> Source {
        self.patch.add(Op::Unary(op), [x])
    }

    pub(super) fn binary(&mut self, op: BinaryOp, a: Source, b: Source) -> Source {
        self.patch.add(Op::Binary(op), [a, b])
    }

    pub(super) fn with_constant(&mut self, op: BinaryOp, x: Source, constant: f64) -> Option<Source> {
        let constant = self.constant(constant)?;
        Some(self.binary(op, x, constant))
    }

    pub(super) fn reduce(&mut self, kind: ReduceKind, axes: &[usize], x: Source) -> Source {
        self.patch.add(Op::reduce(kind, axes.to_vec(), true), [x])
    }

    pub(super) fn finish(self, value: Source) -> Option<Patch> {
        Some(self.patch.replace(value))
    }
}

/// Extents of a value, owned.
pub(super) fn dims(view: &View<'_>, value: ValueId) -> Option<Vec<crate::Dim>> {
    view.graph.dims(value).map(<[crate::Dim]>::to_vec)
}

/// Operand `position` as a source.
pub(super) fn operand(node: &Node, position: usize) -> Option<Source> {
    node.input(position).map(Source::Old)
}
