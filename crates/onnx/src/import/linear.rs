//! Matrix products, in floating point and in integers.

use tilewright_graph::op::{BinaryOp, EinsumAttrs, GemmAttrs, Op, QuantizeAttrs, Real};
use tilewright_graph::{DType, Dim, ValueId};

use super::attrs::missing;
use super::cx::Cx;
use super::error::{Reason, Result};

pub(super) fn matmul(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    Ok(vec![cx.emit(Op::matmul(), &[a, b])?])
}

pub(super) fn gemm(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (a, b, c) = (cx.input(0)?, cx.input(1)?, cx.opt(2));
    if cx.opset < 7 {
        // Broadcasting of C was optional; where it is possible it is what numpy does.
        cx.attrs.accept("broadcast");
    }
    let attrs = GemmAttrs {
        alpha: Real(cx.attrs.float("alpha", 1.0)?),
        beta: Real(cx.attrs.float("beta", 1.0)?),
        transpose_a: cx.attrs.flag("transA", false)?,
        transpose_b: cx.attrs.flag("transB", false)?,
    };
    Ok(vec![cx.emit_opt(Op::Gemm(attrs), vec![Some(a), Some(b), c])?])
}

/// The equation gets an explicit output: the labels that occur once, in alphabetical order, after any ellipsis.
pub(super) fn einsum(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let given = cx.attrs.opt_text("equation")?.ok_or_else(|| missing("equation"))?;
    let mut equation: String = given.chars().filter(|c| !c.is_whitespace()).collect();
    if !equation.contains("->") {
        let count = |label: char| equation.chars().filter(|&c| c == label).count();
        let mut labels: Vec<char> =
            equation.chars().filter(|&c| c.is_alphabetic() && count(c) == 1).collect();
        labels.sort_unstable();
        let ellipsis = if equation.contains("...") { "..." } else { "" };
        equation = format!("{equation}->{ellipsis}{}", labels.into_iter().collect::<String>());
    }
    let inputs = cx.inputs.clone();
    Ok(vec![cx.emit_opt(Op::Einsum(EinsumAttrs { equation }), inputs)?])
}

pub(super) fn det(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(vec![cx.emit(Op::Det, &[x])?])
}

pub(super) fn matmul_integer(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let inputs = cx.inputs.clone();
    Ok(vec![cx.emit_opt(Op::MatMulInteger, inputs)?])
}

/// The product in integers, scaled by `a_scale * b_scale / y_scale`, rounded and saturated.
pub(super) fn qlinear_matmul(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (a, a_scale, a_zero) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let (b, b_scale, b_zero) = (cx.input(3)?, cx.input(4)?, cx.input(5)?);
    let (y_scale, y_zero) = (cx.input(6)?, cx.input(7)?);
    if cx.dtype(a)?.is_float() {
        return Err(Reason::unsupported("operands are 8-bit floats"));
    }
    let product = cx.emit(Op::MatMulInteger, &[a, b, a_zero, b_zero])?;
    // A vector of scales of A belongs to its rows.
    let a_scale = match cx.ranked(a_scale)?.as_slice() {
        [rows] if !rows.is(1) => cx.reshape(a_scale, vec![rows.clone(), Dim::ONE])?,
        _ => a_scale,
    };
    let scale = cx.binary(BinaryOp::Mul, a_scale, b_scale)?;
    let result = requantize(cx, product, scale, y_scale, y_zero)?;
    Ok(vec![result])
}

/// `saturate(round(x * (scale / y_scale)) + y_zero)` of 32-bit integers.
pub(super) fn requantize(
    cx: &mut Cx<'_>,
    x: ValueId,
    scale: ValueId,
    y_scale: ValueId,
    y_zero: ValueId,
) -> Result<ValueId> {
    let ratio = cx.binary(BinaryOp::Div, scale, y_scale)?;
    let ratio = cx.cast(ratio, DType::F32)?;
    let x = cx.cast(x, DType::F32)?;
    let scaled = cx.binary(BinaryOp::Mul, x, ratio)?;
    let one = cx.scalar(DType::F32, 1.0)?;
    let to = cx.dtype(y_zero)?;
    let y_zero = cx.reshape(y_zero, Vec::new())?;
    let attrs = QuantizeAttrs { axis: 0, block_size: 0, to, saturate: true, precision: None };
    cx.emit(Op::QuantizeLinear(attrs), &[scaled, one, y_zero])
}
