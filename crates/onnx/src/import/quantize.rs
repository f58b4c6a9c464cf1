//! Quantisation.

use tilewright_graph::op::{BinaryOp, DequantizeAttrs, Op, QuantizeAttrs, ReduceKind, UnaryOp};
use tilewright_graph::{DType, ValueId};

use super::cx::{Cx, dtype_from_int};
use super::error::Result;

/// The axis of per-axis or blocked scales. Scalar scales have none; then the attribute may be out of range.
fn scale_axis(cx: &Cx<'_>, x: ValueId, scale: ValueId) -> Result<usize> {
    let given = if cx.opset >= 13 { cx.attrs.int("axis", 1)? } else { 1 };
    match cx.rank(scale)? {
        0 => Ok(0),
        1 if cx.dims(scale).is_some_and(|dims| dims[0].is(1)) => Ok(0),
        _ => cx.axis(given, cx.rank(x)?),
    }
}

/// Scalar parameters may come as vectors of one element.
fn as_scalar(cx: &mut Cx<'_>, value: ValueId) -> Result<ValueId> {
    match cx.dims(value) {
        Some([len]) if len.is(1) => cx.reshape(value, Vec::new()),
        _ => Ok(value),
    }
}

fn output_dtype(cx: &Cx<'_>) -> Result<Option<DType>> {
    match cx.attrs.int("output_dtype", 0)? {
        0 => Ok(None),
        code => dtype_from_int(code).map(Some),
    }
}

pub(super) fn quantize_linear(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, scale, zero) = (cx.input(0)?, cx.input(1)?, cx.opt(2));
    let axis = scale_axis(cx, x, scale)?;
    let given = if cx.opset >= 21 { output_dtype(cx)? } else { None };
    let of_zero = zero.map(|zero| cx.dtype(zero)).transpose()?;
    let precision = match if cx.opset >= 23 { cx.attrs.int("precision", 0)? } else { 0 } {
        0 => None,
        code => Some(dtype_from_int(code)?),
    };
    let attrs = QuantizeAttrs {
        axis,
        block_size: if cx.opset >= 21 { cx.size_attr("block_size", 0)? } else { 0 },
        to: of_zero.or(given).unwrap_or(DType::U8),
        saturate: cx.opset < 19 || cx.attrs.flag("saturate", true)?,
        precision,
    };
    let scale = as_scalar(cx, scale)?;
    let zero = zero.map(|zero| as_scalar(cx, zero)).transpose()?;
    Ok(vec![cx.emit_opt(Op::QuantizeLinear(attrs), vec![Some(x), Some(scale), zero])?])
}

pub(super) fn dequantize_linear(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, scale, zero) = (cx.input(0)?, cx.input(1)?, cx.opt(2));
    let axis = scale_axis(cx, x, scale)?;
    let given = if cx.opset >= 23 { output_dtype(cx)? } else { None };
    let block_size = if cx.opset >= 21 { cx.size_attr("block_size", 0)? } else { 0 };
    let attrs = DequantizeAttrs { axis, block_size, to: given.map_or_else(|| cx.dtype(scale), Ok)? };
    let scale = as_scalar(cx, scale)?;
    let zero = zero.map(|zero| as_scalar(cx, zero)).transpose()?;
    Ok(vec![cx.emit_opt(Op::DequantizeLinear(attrs), vec![Some(x), Some(scale), zero])?])
}

/// To unsigned bytes, by the range of the operand extended to hold 0.
pub(super) fn dynamic_quantize_linear(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let axes: Vec<usize> = (0..cx.rank(x)?).collect();
    let zero = cx.scalar(DType::F32, 0.0)?;
    let least = cx.reduce(ReduceKind::Min, x, &axes, false)?;
    let least = cx.binary(BinaryOp::Min, least, zero)?;
    let most = cx.reduce(ReduceKind::Max, x, &axes, false)?;
    let most = cx.binary(BinaryOp::Max, most, zero)?;
    let range = cx.binary(BinaryOp::Sub, most, least)?;
    let scale = cx.binary_scalar(BinaryOp::Div, range, 255.0)?;
    let offset = cx.binary(BinaryOp::Sub, zero, least)?;
    let offset = cx.binary(BinaryOp::Div, offset, scale)?;
    let bound = cx.scalar(DType::F32, 255.0)?;
    let offset = cx.emit(Op::Clip, &[offset, zero, bound])?;
    let offset = cx.unary(UnaryOp::Round, offset)?;
    let zero_point = cx.cast(offset, DType::U8)?;
    let attrs = QuantizeAttrs { axis: 0, block_size: 0, to: DType::U8, saturate: true, precision: None };
    let y = cx.emit(Op::QuantizeLinear(attrs), &[x, scale, zero_point])?;
    Ok(vec![y, scale, zero_point])
}
