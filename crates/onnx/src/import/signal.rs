//! Signal processing: Fourier transforms, windows, mel weights.

use std::f64::consts::PI;

use tilewright_graph::op::{BinaryOp, DftAttrs, Op, StftAttrs, UnaryOp};
use tilewright_graph::{DType, Dim, ValueId};

use super::cx::{Cx, dtype_from_int};
use super::error::Result;

/// The axis is an attribute before opset 20, an operand later.
pub(super) fn dft(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, length) = (cx.input(0)?, cx.opt(1));
    let (inverse, onesided) = (cx.attrs.flag("inverse", false)?, cx.attrs.flag("onesided", false)?);
    let (axis, axis_operand) = if cx.opset < 20 {
        (Some(cx.attrs.int("axis", 1)?), None)
    } else {
        match cx.opt(2) {
            None => (Some(-2), None),
            Some(axis) => match cx.known_ints(axis).as_deref() {
                Some(&[known]) => (Some(known), None),
                _ => (None, Some(axis)),
            },
        }
    };
    let axis = axis.map(|axis| cx.axis(axis, cx.rank(x)?)).transpose()?;
    let known: Option<Dim> = length.and_then(|length| cx.graph.shape_value(length)?.first().cloned());
    let length = length.filter(|_| known.is_none());
    let attrs = DftAttrs { axis, inverse, onesided, length: known };
    Ok(vec![cx.emit_opt(Op::Dft(attrs), vec![Some(x), length, axis_operand])?])
}

pub(super) fn stft(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (signal, step, window, length) = (cx.input(0)?, cx.opt(1), cx.opt(2), cx.opt(3));
    let known = |operand: Option<ValueId>| match operand.and_then(|operand| cx.known_ints(operand)).as_deref()
    {
        Some(&[value]) => Some(value),
        _ => None,
    };
    let (frame_step, frame_length) = (known(step), known(length));
    let onesided = cx.attrs.flag("onesided", true)?;
    let step = step.filter(|_| frame_step.is_none());
    let length = length.filter(|_| frame_length.is_none());
    let attrs = StftAttrs { onesided, frame_step, frame_length };
    Ok(vec![cx.emit_opt(Op::Stft(attrs), vec![Some(signal), step, window, length])?])
}

/// A window that is a sum of cosines: `c[0] - c[1] cos(2 pi n / N) + c[2] cos(4 pi n / N)`.
pub(super) struct CosineWindow([f64; 3]);

pub(super) const HANN: CosineWindow = CosineWindow([0.5, 0.5, 0.0]);
pub(super) const HAMMING: CosineWindow = CosineWindow([25.0 / 46.0, 21.0 / 46.0, 0.0]);
pub(super) const BLACKMAN: CosineWindow = CosineWindow([0.42, 0.5, 0.08]);

/// `N` is the size of a periodic window, and one less for a symmetric one.
pub(super) fn window(cx: &mut Cx<'_>, &CosineWindow(coefficients): &CosineWindow) -> Result<Vec<ValueId>> {
    let size = cx.input(0)?;
    let periodic = cx.attrs.flag("periodic", true)?;
    let to = dtype_from_int(cx.attrs.int("output_datatype", 1)?)?;
    let size = cx.cast(size, DType::I64)?;
    let size = cx.reshape(size, Vec::new())?;
    let (zero, one) = (cx.scalar(DType::I64, 0.0)?, cx.scalar(DType::I64, 1.0)?);
    let positions = cx.emit(Op::RangeDynamic, &[zero, size, one])?;
    let period = if periodic { size } else { cx.binary(BinaryOp::Sub, size, one)? };
    let precision = if to == DType::F64 { DType::F64 } else { DType::F32 };
    let (positions, period) = (cx.cast(positions, precision)?, cx.cast(period, precision)?);
    let angle = cx.binary_scalar(BinaryOp::Mul, positions, 2.0 * PI)?;
    let angle = cx.binary(BinaryOp::Div, angle, period)?;
    let cosine = cx.unary(UnaryOp::Cos, angle)?;
    let first = cx.binary_scalar(BinaryOp::Mul, cosine, -coefficients[1])?;
    let mut result = cx.binary_scalar(BinaryOp::Add, first, coefficients[0])?;
    if coefficients[2] != 0.0 {
        let double = cx.binary_scalar(BinaryOp::Mul, angle, 2.0)?;
        let cosine = cx.unary(UnaryOp::Cos, double)?;
        let second = cx.binary_scalar(BinaryOp::Mul, cosine, coefficients[2])?;
        result = cx.binary(BinaryOp::Add, result, second)?;
    }
    Ok(vec![cx.cast(result, to)?])
}

pub(super) fn mel_weight_matrix(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let to = dtype_from_int(cx.attrs.int("output_datatype", 1)?)?;
    let inputs = cx.inputs.clone();
    Ok(vec![cx.emit_opt(Op::MelWeightMatrix(to), inputs)?])
}
