//! Optimisers of `ai.onnx.preview.training`, by the formulas of their documentation.
//!
//! All update several tensors at once: the operands are learning rate, update count, then the tensors, their
//! gradients and one or two accumulated quantities each; the results are in the same order, without gradients.

use tilewright_graph::op::{BinaryOp, UnaryOp};
use tilewright_graph::{DType, ValueId};

use super::cx::Cx;
use super::error::{Reason, Result};

/// What one optimised tensor has: its value, its gradient regularised by `norm_coefficient`, its accumulators.
struct Tensor {
    x: ValueId,
    gradient: ValueId,
    state: Vec<ValueId>,
}

/// The optimised tensors of a node with `states` accumulators each.
fn tensors(cx: &mut Cx<'_>, states: usize, norm_coefficient: f32) -> Result<Vec<Tensor>> {
    let (count, each) = (cx.inputs.len() - 2, 2 + states);
    if count == 0 || count % each != 0 {
        return Err(Reason::arity(format!("has {count} tensors, but each optimised one comes with {each}")));
    }
    let n = count / each;
    let mut tensors = Vec::with_capacity(n);
    for i in 0..n {
        let (x, gradient) = (cx.input(2 + i)?, cx.input(2 + n + i)?);
        let regular = cx.binary_scalar(BinaryOp::Mul, x, f64::from(norm_coefficient))?;
        let gradient = cx.binary(BinaryOp::Add, regular, gradient)?;
        let state = (0..states).map(|s| cx.input(2 + (2 + s) * n + i)).collect::<Result<_>>()?;
        tensors.push(Tensor { x, gradient, state });
    }
    Ok(tensors)
}

/// `factor * accumulated + weight * news`.
fn decayed(
    cx: &mut Cx<'_>,
    factor: f32,
    accumulated: ValueId,
    weight: f32,
    news: ValueId,
) -> Result<ValueId> {
    let kept = cx.binary_scalar(BinaryOp::Mul, accumulated, f64::from(factor))?;
    let news = cx.binary_scalar(BinaryOp::Mul, news, f64::from(weight))?;
    cx.binary(BinaryOp::Add, kept, news)
}

/// `x - rate * direction`.
fn step(cx: &mut Cx<'_>, x: ValueId, rate: ValueId, direction: ValueId) -> Result<ValueId> {
    let rate = cast_like(cx, rate, x)?;
    let step = cx.binary(BinaryOp::Mul, rate, direction)?;
    cx.binary(BinaryOp::Sub, x, step)
}

/// `sqrt(x) + epsilon`.
fn root(cx: &mut Cx<'_>, x: ValueId, epsilon: f32) -> Result<ValueId> {
    let root = cx.unary(UnaryOp::Sqrt, x)?;
    cx.binary_scalar(BinaryOp::Add, root, f64::from(epsilon))
}

fn cast_like(cx: &mut Cx<'_>, value: ValueId, like: ValueId) -> Result<ValueId> {
    let dtype = cx.dtype(like)?;
    cx.cast(value, dtype)
}

/// A scalar operand: ONNX lets it be a vector of one element too.
fn scalar(cx: &mut Cx<'_>, position: usize) -> Result<ValueId> {
    let value = cx.input(position)?;
    cx.reshape(value, Vec::new())
}

/// The results: all new values, then each accumulator of all.
fn in_order(updates: Vec<Vec<ValueId>>) -> Vec<ValueId> {
    let each = updates.first().map_or(0, Vec::len);
    (0..each).flat_map(|position| updates.iter().map(move |update| update[position])).collect()
}

/// `Adagrad` (Duchi, Hazan and Singer, Adaptive Subgradient Methods, JMLR 12, 2011).
pub(super) fn adagrad(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let decay = cx.attrs.float("decay_factor", 0.0)?;
    let epsilon = cx.attrs.float("epsilon", 1e-6)?;
    let norm = cx.attrs.float("norm_coefficient", 0.0)?;
    let (rate, count) = (scalar(cx, 0)?, scalar(cx, 1)?);
    let count = cast_like(cx, count, rate)?;
    let decayed = cx.binary_scalar(BinaryOp::Mul, count, f64::from(decay))?;
    let divisor = cx.binary_scalar(BinaryOp::Add, decayed, 1.0)?;
    let rate = cx.binary(BinaryOp::Div, rate, divisor)?;
    let mut updates = Vec::new();
    for Tensor { x, gradient, state } in tensors(cx, 1, norm)? {
        let square = cx.binary(BinaryOp::Mul, gradient, gradient)?;
        let sum = cx.binary(BinaryOp::Add, state[0], square)?;
        let root = root(cx, sum, epsilon)?;
        let rate = cast_like(cx, rate, x)?;
        let scaled = cx.binary(BinaryOp::Mul, rate, gradient)?;
        let change = cx.binary(BinaryOp::Div, scaled, root)?;
        updates.push(vec![cx.binary(BinaryOp::Sub, x, change)?, sum]);
    }
    Ok(in_order(updates))
}

/// `Momentum`, standard or Nesterov's.
pub(super) fn momentum(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let required = |name: &str| {
        let value = cx.attrs.opt_float(name)?;
        value.ok_or_else(|| super::attrs::missing(name))
    };
    let (alpha, beta, norm) = (required("alpha")?, required("beta")?, required("norm_coefficient")?);
    let nesterov = cx.keyword("mode", "", &[("standard", false), ("nesterov", true)])?;
    let (rate, count) = (scalar(cx, 0)?, scalar(cx, 1)?);
    let is_later = cx.binary_scalar(BinaryOp::Greater, count, 0.0)?;
    let mut updates = Vec::new();
    for Tensor { x, gradient, state } in tensors(cx, 1, norm)? {
        let (beta, one) = (cx.scalar_like(x, f64::from(beta))?, cx.scalar_like(x, 1.0)?);
        let beta = cx.select(is_later, beta, one)?;
        let kept = cx.binary_scalar(BinaryOp::Mul, state[0], f64::from(alpha))?;
        let news = cx.binary(BinaryOp::Mul, beta, gradient)?;
        let new = cx.binary(BinaryOp::Add, kept, news)?;
        let direction = if nesterov { decayed(cx, alpha, new, 1.0, gradient)? } else { new };
        updates.push(vec![step(cx, x, rate, direction)?, new]);
    }
    Ok(in_order(updates))
}

/// `Adam` (Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015).
pub(super) fn adam(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (alpha, beta) = (cx.attrs.float("alpha", 0.9)?, cx.attrs.float("beta", 0.999)?);
    let epsilon = cx.attrs.float("epsilon", 1e-6)?;
    let (norm, norm_post) =
        (cx.attrs.float("norm_coefficient", 0.0)?, cx.attrs.float("norm_coefficient_post", 0.0)?);
    let (rate, count) = (scalar(cx, 0)?, scalar(cx, 1)?);
    let rate = adjusted_rate(cx, rate, count, alpha, beta)?;
    let mut updates = Vec::new();
    for Tensor { x, gradient, state } in tensors(cx, 2, norm)? {
        let mean = decayed(cx, alpha, state[0], 1.0 - alpha, gradient)?;
        let square = cx.binary(BinaryOp::Mul, gradient, gradient)?;
        let square = decayed(cx, beta, state[1], 1.0 - beta, square)?;
        let root = root(cx, square, epsilon)?;
        let direction = cx.binary(BinaryOp::Div, mean, root)?;
        let new = step(cx, x, rate, direction)?;
        let new = cx.binary_scalar(BinaryOp::Mul, new, f64::from(1.0 - norm_post))?;
        updates.push(vec![new, mean, square]);
    }
    Ok(in_order(updates))
}

/// `count > 0 ? rate * sqrt(1 - beta^count) / (1 - alpha^count) : rate`, in double precision: the powers are close to 1.
fn adjusted_rate(cx: &mut Cx<'_>, rate: ValueId, count: ValueId, alpha: f32, beta: f32) -> Result<ValueId> {
    let is_later = cx.binary_scalar(BinaryOp::Greater, count, 0.0)?;
    let exponent = cx.cast(count, DType::F64)?;
    let mut rest = |base: f32| {
        let base = cx.scalar(DType::F64, f64::from(base))?;
        let power = cx.binary(BinaryOp::Pow, base, exponent)?;
        let one = cx.scalar(DType::F64, 1.0)?;
        cx.binary(BinaryOp::Sub, one, power)
    };
    let (mean, square) = (rest(alpha)?, rest(beta)?);
    let root = cx.unary(UnaryOp::Sqrt, square)?;
    let factor = cx.binary(BinaryOp::Div, root, mean)?;
    let plain = cx.cast(rate, DType::F64)?;
    let adjusted = cx.binary(BinaryOp::Mul, plain, factor)?;
    let adjusted = cast_like(cx, adjusted, rate)?;
    cx.select(is_later, adjusted, rate)
}
