//! Attention as two products and a softmax.

use tilewright_dtype::DType;

use super::emit::{Emit, dims, operand};
use crate::dim::Dim;
use crate::ids::NodeId;
use crate::op::*;
use crate::patch::{Patch, Source, View};

/// Attention without positional masks (causal, windows, lengths) and with at most the present keys and values as
/// further results; the other forms stay whole.
pub(super) fn attention(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::Attention(attrs) = &node.op else { return None };
    let (mut emit, q) = Emit::new(view, node)?;
    let positional = attrs.causal || attrs.left_window.is_some() || attrs.right_window.is_some();
    let other_type = attrs.softmax_precision.is_some_and(|dtype| dtype != emit.dtype);
    if positional || other_type || node.input(6).is_some() || node.outputs.len() > 3 {
        return None;
    }
    let (q_dims, k_dims, v_dims) =
        (dims(view, node.input(0)?)?, dims(view, node.input(1)?)?, dims(view, node.input(2)?)?);
    let packed = q_dims.len() == 3;
    let heads =
        |dims: &[Dim], packed: usize| if dims.len() == 3 { Dim::from(packed) } else { dims[1].clone() };
    let (q_heads, kv_heads) = (heads(&q_dims, attrs.q_num_heads), heads(&k_dims, attrs.kv_num_heads));
    let (q, q_shape) = unpack(&mut emit, q, &q_dims, &q_heads);
    let (k, k_shape) = unpack(&mut emit, operand(node, 1)?, &k_dims, &kv_heads);
    let (v, v_shape) = unpack(&mut emit, operand(node, 2)?, &v_dims, &kv_heads);
    let (k, k_shape) = with_past(view, &mut emit, k, k_shape, node.input(4))?;
    let (v, v_shape) = with_past(view, &mut emit, v, v_shape, node.input(5))?;
    let (present_k, present_v) = (k, v);
    let k = repeat_heads(&mut emit, k, &k_shape, &q_heads)?;
    let v = repeat_heads(&mut emit, v, &v_shape, &q_heads)?;

    let scale = match attrs.scale {
        Some(scale) => scale.to_f64(),
        None => 1.0 / (q_shape[3].as_const()? as f64).sqrt(),
    };
    let product = MatMulAttrs { transpose_a: false, transpose_b: true };
    let scores = emit.patch.add(Op::MatMul(product), [q, k]);
    let mut scores = emit.with_constant(BinaryOp::Mul, scores, scale)?;
    if attrs.softcap != Real(0.0) {
        let scaled = emit.with_constant(BinaryOp::Div, scores, attrs.softcap.to_f64())?;
        let tanh = emit.unary(UnaryOp::Tanh, scaled);
        scores = emit.with_constant(BinaryOp::Mul, tanh, attrs.softcap.to_f64())?;
    }
    if let Some(mask) = node.input(3) {
        scores = match view.graph.tensor_type(mask)?.dtype {
            DType::Bool => {
                let least = emit.constant(f64::NEG_INFINITY)?;
                emit.patch.add(Op::Where, [Source::Old(mask), scores, least])
            }
            _ => emit.binary(BinaryOp::Add, scores, Source::Old(mask)),
        };
    }
    let weights = emit.patch.add(Op::Softmax(SoftmaxAttrs { axis: 3, log: false }), [scores]);
    let mut value = emit.patch.add(Op::matmul(), [weights, v]);
    if packed {
        let positions_first = emit.patch.add(Op::transpose(vec![0, 2, 1, 3]), [value]);
        let result = view.graph.dims(node.output()?)?.to_vec();
        value = emit.patch.add(Op::reshape(result), [positions_first]);
    }
    let results = [value, present_k, present_v].into_iter().take(node.outputs.len());
    Some(results.fold(emit.patch, Patch::replace))
}

/// A tensor of heads as `[batch, heads, positions, elements]`, with its extents.
fn unpack(emit: &mut Emit, x: Source, dims: &[Dim], heads: &Dim) -> (Source, [Dim; 4]) {
    if let [a, b, c, d] = dims {
        return (x, [a.clone(), b.clone(), c.clone(), d.clone()]);
    }
    let size = dims[2].floor_div(heads);
    let split = vec![dims[0].clone(), dims[1].clone(), heads.clone(), size.clone()];
    let split = emit.patch.add(Op::reshape(split), [x]);
    let value = emit.patch.add(Op::transpose(vec![0, 2, 1, 3]), [split]);
    (value, [dims[0].clone(), heads.clone(), dims[1].clone(), size])
}

fn with_past(
    view: &View<'_>,
    emit: &mut Emit,
    x: Source,
    mut shape: [Dim; 4],
    past: Option<crate::ValueId>,
) -> Option<(Source, [Dim; 4])> {
    let Some(past) = past else { return Some((x, shape)) };
    shape[2] = &shape[2] + view.graph.dims(past)?.get(2)?;
    Some((emit.patch.add(Op::Concat(AxisAttrs { axis: 2 }), [Source::Old(past), x]), shape))
}

/// Grouped queries: every key and value head serves several query heads.
fn repeat_heads(emit: &mut Emit, x: Source, shape: &[Dim; 4], heads: &Dim) -> Option<Source> {
    let [batch, own, positions, size] = shape;
    if own == heads {
        return Some(x);
    }
    let group = heads.div_exact(own)?;
    let extents = |group: Dim| vec![batch.clone(), own.clone(), group, positions.clone(), size.clone()];
    let apart = emit.patch.add(Op::reshape(extents(Dim::ONE)), [x]);
    let repeated = emit.patch.add(Op::Expand(DimsAttrs { dims: extents(group) }), [apart]);
    let joined = vec![batch.clone(), heads.clone(), positions.clone(), size.clone()];
    Some(emit.patch.add(Op::reshape(joined), [repeated]))
}
