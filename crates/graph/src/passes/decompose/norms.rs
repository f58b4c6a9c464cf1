//! Softmax and the normalisations as reductions and elementwise operators.

use super::emit::{Emit, dims, operand};
use crate::dim::Dim;
use crate::ids::NodeId;
use crate::op::*;
use crate::patch::{Patch, Source, View};

pub(super) fn softmax(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Softmax(attrs) = &node.op else { return None };
    let (mut emit, x) = Emit::new(view, node)?;
    let axes = [attrs.axis];
    let max = emit.reduce(ReduceKind::Max, &axes, x);
    let shifted = emit.binary(BinaryOp::Sub, x, max);
    let exp = emit.unary(UnaryOp::Exp, shifted);
    let sum = emit.reduce(ReduceKind::Sum, &axes, exp);
    let value = if attrs.log {
        let log = emit.unary(UnaryOp::Log, sum);
        emit.binary(BinaryOp::Sub, shifted, log)
    } else {
        emit.binary(BinaryOp::Div, exp, sum)
    };
    emit.finish(value)
}

/// `x / sqrt(mean(x^2) + epsilon)`.
fn divide_by_rms(emit: &mut Emit, x: Source, axes: &[usize], epsilon: Real) -> Option<Source> {
    let square = emit.binary(BinaryOp::Mul, x, x);
    let mean = emit.reduce(ReduceKind::Mean, axes, square);
    let shifted = emit.with_constant(BinaryOp::Add, mean, epsilon.to_f64())?;
    let root = emit.unary(UnaryOp::Sqrt, shifted);
    Some(emit.binary(BinaryOp::Div, x, root))
}

fn centre(emit: &mut Emit, x: Source, axes: &[usize]) -> Source {
    let mean = emit.reduce(ReduceKind::Mean, axes, x);
    emit.binary(BinaryOp::Sub, x, mean)
}

/// Layer normalisation and its root-mean-square variant; statistics of another type stay whole.
pub(super) fn layer_norm(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let (Op::LayerNorm(attrs) | Op::RmsNorm(attrs)) = &node.op else { return None };
    let (mut emit, x) = Emit::new(view, node)?;
    if node.outputs.len() != 1 || attrs.stash.is_some_and(|stash| stash != emit.dtype) {
        return None;
    }
    let axes: Vec<usize> = (attrs.axis..view.graph.dims(node.input(0)?)?.len()).collect();
    let centred = if matches!(node.op, Op::LayerNorm(_)) { centre(&mut emit, x, &axes) } else { x };
    let mut value = divide_by_rms(&mut emit, centred, &axes, attrs.epsilon)?;
    if let Some(scale) = operand(node, 1) {
        value = emit.binary(BinaryOp::Mul, value, scale);
    }
    if let Some(bias) = operand(node, 2) {
        value = emit.binary(BinaryOp::Add, value, bias);
    }
    emit.finish(value)
}

/// Instance and group normalisation, over `[batch, groups, everything else]`.
pub(super) fn channel_norm(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let (mut emit, x) = Emit::new(view, node)?;
    let shape = dims(view, node.input(0)?)?;
    let (groups, epsilon) = match &node.op {
        Op::InstanceNorm(attrs) => (shape[1].clone(), attrs.epsilon),
        Op::GroupNorm(attrs) if attrs.stash.is_none_or(|stash| stash == emit.dtype) => {
            (Dim::from(attrs.groups), attrs.epsilon)
        }
        _ => return None,
    };
    let rest = Dim::product(&shape[1..]).div_exact(&groups)?;
    let grouped = emit.patch.add(Op::reshape(vec![shape[0].clone(), groups, rest]), [x]);
    let centred = centre(&mut emit, grouped, &[2]);
    let normal = divide_by_rms(&mut emit, centred, &[2], epsilon)?;
    let mut parameter = vec![Dim::ONE; shape.len() - 1];
    parameter[0] = shape[1].clone();
    let value = emit.patch.add(Op::reshape(shape), [normal]);
    let scale = emit.patch.add(Op::reshape(parameter.clone()), [operand(node, 1)?]);
    let bias = emit.patch.add(Op::reshape(parameter), [operand(node, 2)?]);
    let scaled = emit.binary(BinaryOp::Mul, value, scale);
    let value = emit.binary(BinaryOp::Add, scaled, bias);
    emit.finish(value)
}
