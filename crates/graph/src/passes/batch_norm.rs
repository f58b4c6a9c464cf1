//! Folds inference-time batch normalisation into the convolution or product before it, and writes what remains
//! as a multiplication and an addition.
//!
//! With `s = scale / sqrt(variance + epsilon)` and `t = bias - mean * s`, `BatchNorm(Conv(x, w, b))` is
//! `Conv(x, w * s, b * s + t)`. The new parameters are built as nodes on constants; constant folding computes them.

use crate::dim::Dim;
use crate::graph::{Graph, Node};
use crate::ids::NodeId;
use crate::op::*;
use crate::pass::PassError;
use crate::patch::{Patch, Rule, Source, View, rewrite};
use crate::tensor::Tensor;

/// Removes every batch normalisation.
pub fn batch_norm(graph: &mut Graph) -> Result<bool, PassError> {
    rewrite(graph, RULES, 4)
}

const RULES: &[Rule] =
    &[Rule { name: "fold_batch_norm", apply: fold }, Rule { name: "batch_norm_as_affine", apply: as_affine }];

/// Adds the nodes of `s` and `t` to the patch.
fn scale_and_shift(view: &View<'_>, node: &Node, patch: &mut Patch) -> Option<(Source, Source)> {
    let Op::BatchNorm(attrs) = &node.op else { return None };
    let [scale, bias, mean, variance] =
        [node.input(1)?, node.input(2)?, node.input(3)?, node.input(4)?].map(Source::Old);
    let dtype = view.graph.tensor_type(node.input(4)?)?.dtype;
    let epsilon = patch.add(Op::Constant(Tensor::scalar_of(dtype, attrs.epsilon.to_f64())?), []);
    let shifted = patch.add(Op::Binary(BinaryOp::Add), [variance, epsilon]);
    let deviation = patch.add(Op::Unary(UnaryOp::Sqrt), [shifted]);
    let s = patch.add(Op::Binary(BinaryOp::Div), [scale, deviation]);
    let centre = patch.add(Op::Binary(BinaryOp::Mul), [mean, s]);
    let t = patch.add(Op::Binary(BinaryOp::Sub), [bias, centre]);
    Some((s, t))
}

fn fold(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::BatchNorm(_) = &node.op else { return None };
    let x = node.input(0)?;
    if !view.is_used_once(x) {
        return None;
    }
    let (inner_id, inner) = view.producer(x)?;
    let weight = inner.input(1)?;
    let parameters = [node.input(1)?, node.input(2)?, node.input(3)?, node.input(4)?, weight];
    if !parameters.iter().all(|&value| view.graph.constant(value).is_some()) {
        return None;
    }
    let dtype = view.graph.tensor_type(weight)?.dtype;
    if parameters.iter().any(|&value| view.graph.tensor_type(value).is_none_or(|ty| ty.dtype != dtype)) {
        return None;
    }
    // The axis of the weight that output channels run along.
    let rank = view.graph.dims(weight)?.len();
    let (op, axis) = match &inner.op {
        Op::Conv(_) => (inner.op.clone(), 0),
        Op::ConvTranspose(attrs) if attrs.group == 1 => (inner.op.clone(), 1),
        Op::Gemm(attrs) if attrs.beta == Real(1.0) => (inner.op.clone(), usize::from(!attrs.transpose_b)),
        _ => return None,
    };
    let mut patch = Patch::new();
    let (s, t) = scale_and_shift(view, node, &mut patch)?;
    let channels = view.graph.dims(node.input(1)?)?.first()?.clone();
    let mut dims = vec![Dim::ONE; rank];
    dims[axis] = channels;
    let factor = patch.add(Op::reshape(dims), [s]);
    let scaled = patch.add(Op::Binary(BinaryOp::Mul), [Source::Old(weight), factor]);
    let bias = match inner.input(2) {
        Some(bias) => {
            let scaled_bias = patch.add(Op::Binary(BinaryOp::Mul), [Source::Old(bias), s]);
            patch.add(Op::Binary(BinaryOp::Add), [scaled_bias, t])
        }
        None => t,
    };
    let value = patch.add(op, [Source::Old(inner.input(0)?), scaled, bias]);
    Some(patch.replace(value).absorb([inner_id]))
}

fn as_affine(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::BatchNorm(_) = &node.op else { return None };
    let x = node.input(0)?;
    let ty = view.graph.tensor_type(x)?;
    if (1..5).any(|position| {
        node.input(position)
            .and_then(|value| view.graph.tensor_type(value))
            .is_none_or(|p| p.dtype != ty.dtype)
    }) {
        return None;
    }
    let rank = ty.shape.rank()?;
    let mut patch = Patch::new();
    let (s, t) = scale_and_shift(view, node, &mut patch)?;
    let mut dims = vec![Dim::ONE; rank - 1];
    dims[0] = view.graph.dims(node.input(1)?)?.first()?.clone();
    let s = patch.add(Op::reshape(dims.clone()), [s]);
    let t = patch.add(Op::reshape(dims), [t]);
    let product = patch.add(Op::Binary(BinaryOp::Mul), [Source::Old(x), s]);
    let sum = patch.add(Op::Binary(BinaryOp::Add), [product, t]);
    Some(patch.replace(sum))
}
