//! Elementwise operators, conversions, clipping and dropout.

use tilewright_graph::op::{
    ActivationAttrs, ActivationKind, BinaryOp, CastAttrs, Op, Real, RoundMode, UnaryOp,
};
use tilewright_graph::{DType, Dim, ValueId};

use super::cx::{Cx, dtype_from_int};
use super::error::{Reason, Result};
use super::generate::unit_noise;
use crate::proto::tensor_proto::DataType;

pub(super) fn unary(cx: &mut Cx<'_>, op: UnaryOp) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(vec![cx.unary(op, x)?])
}

/// Before opset 7, operand B is broadcast only where `broadcast` says so, and its axes line up with those of A
/// from `axis` on instead of with the last ones.
pub(super) fn binary(cx: &mut Cx<'_>, op: BinaryOp) -> Result<Vec<ValueId>> {
    let (a, mut b) = (cx.input(0)?, cx.input(1)?);
    if cx.opset < 7 {
        let broadcast = cx.attrs.flag("broadcast", false)?;
        if let Some(axis) = cx.attrs.opt_int("axis")?.filter(|_| broadcast) {
            let (rank, mut dims) = (cx.rank(a)?, cx.ranked(b)?);
            let axis = cx.axis(axis, rank)?;
            if axis + dims.len() > rank {
                return Err(Reason::malformed(format!("operand B does not fit behind axis {axis}")));
            }
            dims.resize(rank - axis, Dim::ONE);
            b = cx.reshape(b, dims)?;
        }
    }
    Ok(vec![cx.binary(op, a, b)?])
}

pub(super) fn variadic(cx: &mut Cx<'_>, op: BinaryOp) -> Result<Vec<ValueId>> {
    let mut result = cx.input(0)?;
    for position in 1..cx.inputs.len() {
        let next = cx.input(position)?;
        result = cx.binary(op, result, next)?;
    }
    Ok(vec![result])
}

pub(super) fn mean(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let count = cx.inputs.len();
    let sum = variadic(cx, BinaryOp::Add)?[0];
    Ok(vec![if count == 1 { sum } else { cx.binary_scalar(BinaryOp::Div, sum, count as f64)? }])
}

pub(super) fn modulo(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let op = if cx.attrs.flag("fmod", false)? { BinaryOp::Fmod } else { BinaryOp::Mod };
    Ok(vec![cx.binary(op, a, b)?])
}

pub(super) fn bit_shift(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let directions = [("LEFT", BinaryOp::ShiftLeft), ("RIGHT", BinaryOp::ShiftRight)];
    let op = cx.keyword("direction", "", &directions)?;
    Ok(vec![cx.binary(op, a, b)?])
}

pub(super) fn select(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (condition, x, y) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    Ok(vec![cx.select(condition, x, y)?])
}

pub(super) fn is_inf(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let (negative, positive) =
        (cx.attrs.flag("detect_negative", true)?, cx.attrs.flag("detect_positive", true)?);
    let op = match (positive, negative) {
        (true, true) => UnaryOp::IsInf,
        (true, false) => UnaryOp::IsPosInf,
        (false, true) => UnaryOp::IsNegInf,
        (false, false) => {
            let infinite = cx.unary(UnaryOp::IsInf, x)?;
            let none = cx.scalar(DType::Bool, 0.0)?;
            return Ok(vec![cx.binary(BinaryOp::And, infinite, none)?]);
        }
    };
    Ok(vec![cx.unary(op, x)?])
}

pub(super) fn gelu(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let op = cx.keyword("approximate", "none", &[("none", UnaryOp::Gelu), ("tanh", UnaryOp::GeluTanh)])?;
    Ok(vec![cx.unary(op, x)?])
}

fn activate(cx: &mut Cx<'_>, x: ValueId, kind: ActivationKind, alpha: f32, beta: f32) -> Result<ValueId> {
    cx.emit(Op::Activation(ActivationAttrs { kind, alpha: Real(alpha), beta: Real(beta) }), &[x])
}

/// `Swish(A, alpha) * B`.
pub(super) fn swiglu(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    let alpha = cx.attrs.float("alpha", 1.0)?;
    let gate = activate(cx, a, ActivationKind::Swish, alpha, 0.0)?;
    Ok(vec![cx.binary(BinaryOp::Mul, gate, b)?])
}

/// An activation with attributes `alpha` and, where its default is not 0, `beta`.
pub(super) fn activation(
    cx: &mut Cx<'_>,
    kind: ActivationKind,
    alpha: f32,
    beta: f32,
) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let alpha = cx.attrs.float("alpha", alpha)?;
    let beta = if beta == 0.0 { 0.0 } else { cx.attrs.float("beta", beta)? };
    Ok(vec![activate(cx, x, kind, alpha, beta)?])
}

/// The default parameters of SELU became more precise with opset 6.
pub(super) fn selu(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let (alpha, gamma) = if cx.opset < 6 { (1.6732, 1.0507) } else { (1.673_263_2, 1.050_701) };
    let (alpha, gamma) = (cx.attrs.float("alpha", alpha)?, cx.attrs.float("gamma", gamma)?);
    Ok(vec![activate(cx, x, ActivationKind::Selu, alpha, gamma)?])
}

pub(super) fn shrink(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let (lambda, bias) = (cx.attrs.float("lambd", 0.5)?, cx.attrs.float("bias", 0.0)?);
    Ok(vec![activate(cx, x, ActivationKind::Shrink, lambda, bias)?])
}

/// `x < 0 ? slope * x : x`. Before opset 7 a slope vector lies along the channels; later it broadcasts as usual.
pub(super) fn prelu(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, mut slope) = (cx.input(0)?, cx.input(1)?);
    if cx.opset < 7 && cx.ranked(slope)?.as_slice() != [Dim::ONE] {
        let rank = cx.rank(x)?;
        slope = cx.along_axis(slope, 1.min(rank.saturating_sub(1)), rank)?;
    }
    let zero = cx.scalar_like(x, 0.0)?;
    let negative = cx.binary(BinaryOp::Less, x, zero)?;
    let scaled = cx.binary(BinaryOp::Mul, slope, x)?;
    Ok(vec![cx.select(negative, scaled, x)?])
}

/// Bounds are attributes before opset 11, operands later.
pub(super) fn clip(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let (least, most) = if cx.opset < 11 {
        let bounds = (cx.attrs.opt_float("min")?, cx.attrs.opt_float("max")?);
        let mut scalar = |bound: Option<f32>| bound.map(|b| cx.scalar_like(x, f64::from(b))).transpose();
        (scalar(bounds.0)?, scalar(bounds.1)?)
    } else {
        (cx.opt(1), cx.opt(2))
    };
    if least.is_none() && most.is_none() {
        return Ok(vec![x]);
    }
    Ok(vec![cx.emit_opt(Op::Clip, vec![Some(x), least, most])?])
}

fn cast_attrs(cx: &Cx<'_>, to: DType) -> Result<CastAttrs> {
    let saturate = if cx.opset >= 19 { cx.attrs.flag("saturate", true)? } else { true };
    let modes = [("up", RoundMode::Up), ("down", RoundMode::Down), ("nearest", RoundMode::Nearest)];
    let round = if cx.opset >= 24 { Some(cx.keyword("round_mode", "up", &modes)?) } else { None };
    Ok(CastAttrs { to, saturate, round: round.filter(|_| to == DType::F8E8M0) })
}

pub(super) fn cast(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let to = if cx.opset < 6 {
        // The type is spelled out.
        let name = cx.attrs.text("to", "")?;
        let code =
            DataType::from_str_name(name).ok_or_else(|| Reason::malformed(format!("`to` is `{name}`")))?;
        dtype_from_int(i64::from(code as i32))?
    } else {
        dtype_from_int(cx.required_int("to")?)?
    };
    let attrs = cast_attrs(cx, to)?;
    Ok(vec![cx.emit(Op::Cast(attrs), &[x])?])
}

pub(super) fn cast_like(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, like) = (cx.input(0)?, cx.input(1)?);
    let attrs = cast_attrs(cx, cx.dtype(like)?)?;
    Ok(vec![cx.emit(Op::Cast(attrs), &[x])?])
}

pub(super) fn bit_cast(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let to = dtype_from_int(cx.required_int("to")?)?;
    Ok(vec![cx.emit(Op::BitCast(to), &[x])?])
}

/// Inference: the operand itself, with a mask of ones. From opset 12 on an operand may ask for training, which
/// draws a random mask.
pub(super) fn dropout(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let training = match cx.opset {
        ..7 => {
            cx.attrs.accept("ratio");
            if !cx.attrs.flag("is_test", false)? {
                let reason = Reason::unsupported("`is_test` is 0: dropout in training mode");
                return Err(reason.advise("export the model in inference mode"));
            }
            None
        }
        7..12 => {
            cx.attrs.accept("ratio");
            None
        }
        _ => cx.opt(2).filter(|&training| cx.known_scalar(training) != Some(0.0)),
    };
    let seed = if cx.opset >= 12 { cx.attrs.opt_int("seed")? } else { None };
    let Some(training) = training else {
        let mut results = vec![x];
        if cx.wants(1) {
            // The mask had the operand's type before opset 10.
            let dtype = if cx.opset < 10 { cx.dtype(x)? } else { DType::Bool };
            let dims = cx.ranked(x)?;
            results.push(cx.full(dtype, dims, 1.0)?);
        }
        return Ok(results);
    };
    let dims = cx.ranked(x)?;
    let dtype = cx.dtype(x)?;
    let noise = unit_noise(cx, seed.map(|seed| Real(seed as f32)), DType::F32, dims)?;
    let ratio = match cx.opt(1) {
        Some(ratio) => cx.cast(ratio, DType::F32)?,
        None => cx.scalar(DType::F32, 0.5)?,
    };
    let drawn = cx.binary(BinaryOp::GreaterEqual, noise, ratio)?;
    let inference = cx.unary(UnaryOp::Not, training)?;
    let keep = cx.binary(BinaryOp::Or, drawn, inference)?;
    let one = cx.scalar(DType::F32, 1.0)?;
    let kept = cx.binary(BinaryOp::Sub, one, ratio)?;
    let growth = cx.binary(BinaryOp::Div, one, kept)?;
    let growth = cx.select(training, growth, one)?;
    let growth = cx.cast(growth, dtype)?;
    let scaled = cx.binary(BinaryOp::Mul, x, growth)?;
    let zero = cx.scalar(dtype, 0.0)?;
    Ok(vec![cx.select(keep, scaled, zero)?, keep])
}
