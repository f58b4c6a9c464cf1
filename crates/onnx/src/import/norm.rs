//! Softmax and normalisations.

use tilewright_graph::op::{
    ArgReduceAttrs, BinaryOp, DimsAttrs, Extreme, GroupNormAttrs, LayerNormAttrs, LpNormAttrs, LrnAttrs,
    NormAttrs, Op, Real, ReduceKind, SoftmaxAttrs, UnaryOp,
};
use tilewright_graph::{DType, Dim, ValueId};

use super::cx::Cx;
use super::error::{Reason, Result};
use super::shape::positions;

/// Before opset 13 the operand counts as a matrix, whose rows hold everything from `axis` on. Gives the operand
/// in that form with the axis there, and the extents to come back to.
fn as_rows(cx: &mut Cx<'_>, x: ValueId) -> Result<(ValueId, usize, Vec<Dim>)> {
    let dims = cx.ranked(x)?;
    let rank = dims.len();
    let default = if cx.opset >= 13 { -1 } else { 1 };
    let given = cx.attrs.int("axis", default)?;
    if rank == 0 || (rank == 1 && given == 1 && cx.opset < 13) {
        // A vector is one row.
        let row = cx.reshape(x, vec![Dim::ONE, Dim::product(&dims)])?;
        return Ok((row, 1, dims));
    }
    let axis = cx.axis(given, rank)?;
    if cx.opset >= 13 || axis + 1 == rank {
        return Ok((x, axis, dims));
    }
    let rows = cx.reshape(x, vec![Dim::product(&dims[..axis]), Dim::product(&dims[axis..])])?;
    Ok((rows, 1, dims))
}

pub(super) fn softmax(cx: &mut Cx<'_>, log: bool) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let (rows, axis, dims) = as_rows(cx, x)?;
    let result = cx.emit(Op::Softmax(SoftmaxAttrs { axis, log }), &[rows])?;
    Ok(vec![cx.reshape(result, dims)?])
}

/// 1 at the first largest element along the axis, else 0.
pub(super) fn hardmax(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let dtype = cx.dtype(x)?;
    let (rows, axis, dims) = as_rows(cx, x)?;
    let attrs = ArgReduceAttrs { extreme: Extreme::Max, axis, keep_dims: true, select_last: false };
    let largest = cx.emit(Op::ArgReduce(attrs), &[rows])?;
    let row_dims = cx.ranked(rows)?;
    let positions = positions(cx, row_dims[axis].clone())?;
    let positions = cx.along_axis(positions, axis, row_dims.len())?;
    let hit = cx.binary(BinaryOp::Equal, largest, positions)?;
    let result = cx.cast(hit, dtype)?;
    Ok(vec![cx.reshape(result, dims)?])
}

fn epsilon(cx: &Cx<'_>, default: f32) -> Result<Real> {
    cx.attrs.float("epsilon", default).map(Real)
}

/// Inference by the given statistics; from opset 14 on `training_mode` computes them from the batch.
pub(super) fn batch_norm(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let dtype = cx.dtype(x)?;
    let attrs = NormAttrs { epsilon: epsilon(cx, 1e-5)? };
    let momentum = cx.attrs.float("momentum", 0.9)?;
    let spatial = cx.opset >= 9 || cx.attrs.flag("spatial", true)?;
    let training = match cx.opset {
        ..7 => !cx.attrs.flag("is_test", false)?,
        7..14 => false,
        _ => cx.attrs.flag("training_mode", false)?,
    };
    if cx.opset < 14 && (training && cx.opset < 7 && cx.wants(1) || cx.opset >= 7 && cx.wants(1)) {
        let reason = Reason::unsupported("statistics as outputs: batch normalisation in training mode");
        return Err(reason.advise("export the model in inference mode"));
    }
    // Statistics may be more precise than the operand; then all is computed in their type.
    let mut operands = Vec::new();
    for position in 1..5 {
        operands.push(cx.input(position)?);
    }
    let wide = if cx.dtype(operands[2])? == dtype { dtype } else { DType::F32 };
    let wide_x = cx.cast(x, wide)?;
    for operand in &mut operands {
        *operand = cx.cast(*operand, wide)?;
    }
    let &[scale, bias, mean, variance] = operands.as_slice() else {
        return Err(Reason::arity("has too few inputs"));
    };
    if !spatial {
        // Statistics of every element on its own.
        let centred = cx.binary(BinaryOp::Sub, wide_x, mean)?;
        let raised = cx.binary_scalar(BinaryOp::Add, variance, attrs.epsilon.to_f64())?;
        let deviation = cx.unary(UnaryOp::Sqrt, raised)?;
        let unit = cx.binary(BinaryOp::Div, centred, deviation)?;
        let scaled = cx.binary(BinaryOp::Mul, unit, scale)?;
        let y = cx.binary(BinaryOp::Add, scaled, bias)?;
        return Ok(vec![cx.cast(y, dtype)?]);
    }
    if !(training && cx.opset >= 14) {
        let y = cx.emit(Op::BatchNorm(attrs), &[wide_x, scale, bias, mean, variance])?;
        return Ok(vec![cx.cast(y, dtype)?]);
    }
    let rank = cx.rank(x)?;
    let axes: Vec<usize> = (0..rank).filter(|&axis| axis != 1).collect();
    let batch_mean = cx.reduce(ReduceKind::Mean, wide_x, &axes, true)?;
    let centred = cx.binary(BinaryOp::Sub, wide_x, batch_mean)?;
    let square = cx.binary(BinaryOp::Mul, centred, centred)?;
    let batch_variance = cx.reduce(ReduceKind::Mean, square, &axes, false)?;
    let channels = cx.ranked(batch_variance)?;
    let batch_mean = cx.reshape(batch_mean, channels)?;
    let y = cx.emit(Op::BatchNorm(attrs), &[wide_x, scale, bias, batch_mean, batch_variance])?;
    let mut results = vec![cx.cast(y, dtype)?];
    for (running, batch) in [(mean, batch_mean), (variance, batch_variance)] {
        let kept = cx.binary_scalar(BinaryOp::Mul, running, f64::from(momentum))?;
        let taken = cx.binary_scalar(BinaryOp::Mul, batch, f64::from(1.0 - momentum))?;
        results.push(cx.binary(BinaryOp::Add, kept, taken)?);
    }
    Ok(results)
}

pub(super) fn instance_norm(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, scale, bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let attrs = NormAttrs { epsilon: epsilon(cx, 1e-5)? };
    Ok(vec![cx.emit(Op::InstanceNorm(attrs), &[x, scale, bias])?])
}

/// The type of statistics; `None` where it is the operand's.
fn stash(cx: &Cx<'_>, x: ValueId) -> Result<Option<DType>> {
    let stash = cx.dtype_attr("stash_type")?.unwrap_or(DType::F32);
    let dtype = cx.dtype(x)?;
    // A narrower type than the operand's would lose precision for nothing; ONNX's default names F32 for all.
    Ok(Some(stash).filter(|&stash| stash != dtype && stash.bytes() > dtype.bytes()))
}

pub(super) fn layer_norm(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, scale, bias) = (cx.input(0)?, cx.input(1)?, cx.opt(2));
    let attrs =
        LayerNormAttrs { axis: cx.axis_attr(-1, x)?, epsilon: epsilon(cx, 1e-5)?, stash: stash(cx, x)? };
    let n_outputs = cx.n_outputs().max(1);
    cx.emit_n(Op::LayerNorm(attrs), vec![Some(x), Some(scale), bias], n_outputs)
}

pub(super) fn rms_norm(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, scale) = (cx.input(0)?, cx.input(1)?);
    let attrs =
        LayerNormAttrs { axis: cx.axis_attr(-1, x)?, epsilon: epsilon(cx, 1e-5)?, stash: stash(cx, x)? };
    Ok(vec![cx.emit(Op::RmsNorm(attrs), &[x, scale])?])
}

/// Before opset 21 scale and bias belong to groups, later to channels.
pub(super) fn group_norm(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, mut scale, mut bias) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let groups = cx.size_attr("num_groups", 0)?;
    if groups == 0 {
        return Err(Reason::malformed("`num_groups` is missing or 0"));
    }
    let stash = if cx.opset >= 21 { stash(cx, x)? } else { None };
    if cx.opset < 21 {
        let dims = cx.ranked(x)?;
        let channels = dims.get(1).cloned().ok_or_else(|| Reason::ty("the operand has no channels"))?;
        let per_group = channels.floor_div(&Dim::from(groups));
        for operand in [&mut scale, &mut bias] {
            let column = cx.reshape(*operand, vec![Dim::from(groups), Dim::ONE])?;
            let spread = DimsAttrs { dims: vec![Dim::from(groups), per_group.clone()] };
            let spread = cx.emit(Op::Expand(spread), &[column])?;
            *operand = cx.reshape(spread, vec![channels.clone()])?;
        }
    }
    let attrs = GroupNormAttrs { groups, epsilon: epsilon(cx, 1e-5)?, stash };
    Ok(vec![cx.emit(Op::GroupNorm(attrs), &[x, scale, bias])?])
}

pub(super) fn lp_norm(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let attrs = LpNormAttrs { axis: cx.axis_attr(-1, x)?, p: cx.size_attr("p", 2)? };
    Ok(vec![cx.emit(Op::LpNorm(attrs), &[x])?])
}

pub(super) fn lrn(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let attrs = LrnAttrs {
        size: cx.size_attr("size", 0)?,
        alpha: Real(cx.attrs.float("alpha", 1e-4)?),
        beta: Real(cx.attrs.float("beta", 0.75)?),
        bias: Real(cx.attrs.float("bias", 1.0)?),
    };
    if attrs.size == 0 {
        return Err(Reason::malformed("`size` is missing or 0"));
    }
    Ok(vec![cx.emit(Op::Lrn(attrs), &[x])?])
}

/// `(x - mean(x)) / (sqrt(mean(x^2) - mean(x)^2) + 1e-9)` over `axes`.
pub(super) fn mean_variance(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let axes = cx.attrs.ints("axes")?.unwrap_or(&[0, 2, 3]);
    let axes = cx.axes(axes, cx.rank(x)?)?;
    let mean = cx.reduce(ReduceKind::Mean, x, &axes, true)?;
    let mean_square = cx.binary(BinaryOp::Mul, mean, mean)?;
    let square = cx.binary(BinaryOp::Mul, x, x)?;
    let square_mean = cx.reduce(ReduceKind::Mean, square, &axes, true)?;
    let variance = cx.binary(BinaryOp::Sub, square_mean, mean_square)?;
    let deviation = cx.unary(UnaryOp::Sqrt, variance)?;
    let divisor = cx.binary_scalar(BinaryOp::Add, deviation, 1e-9)?;
    let centred = cx.binary(BinaryOp::Sub, x, mean)?;
    Ok(vec![cx.binary(BinaryOp::Div, centred, divisor)?])
}
