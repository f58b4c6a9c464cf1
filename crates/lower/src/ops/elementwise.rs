//! Operators of one element at a time: functions, activations, arithmetic, comparisons, conversions.
//!
//! Functions composed of several steps are computed in `F32` for narrower floats and rounded once.

use tilewright_dtype::DType;
use tilewright_graph::op::{ActivationAttrs, ActivationKind, BinaryOp, UnaryOp};
use tilewright_graph::tensor::Tensor;
use tilewright_te::{self as te, CompareOp, Expr};

use super::Results;
use super::builder::{Builder, accumulator, real};

/// The intrinsic or primitive operation of one operand.
pub(super) fn apply(op: te::UnaryOp, x: Expr) -> Expr {
    Expr::unary(op, x)
}

/// Computes in the accumulator type and rounds to the operand's.
pub(super) fn widened(x: Expr, value: impl FnOnce(Expr) -> Expr) -> Expr {
    let dtype = x.dtype();
    value(x.cast(accumulator(dtype))).cast(dtype)
}

/// The constant of the operand's type.
fn like(x: &Expr, value: f64) -> Expr {
    real(x.dtype(), value)
}

/// `max(0, x)`; NaN stays.
pub(super) fn relu(x: Expr) -> Expr {
    Expr::zero(x.dtype()).max(x)
}

/// `log(1 + exp(x))` without overflow.
pub(super) fn softplus(x: Expr) -> Expr {
    let tail = apply(te::UnaryOp::Exp, -apply(te::UnaryOp::Abs, x.clone()));
    relu(x) + apply(te::UnaryOp::Log1p, tail)
}

/// `x / (1 + |x|)`.
pub(super) fn softsign(x: Expr) -> Expr {
    x.clone() / (apply(te::UnaryOp::Abs, x.clone()) + like(&x, 1.0))
}

/// `max(0, min(1, alpha x + beta))`; NaN stays.
pub(super) fn hard_sigmoid(x: Expr, alpha: f64, beta: f64) -> Expr {
    let line = Expr::fma(x.clone(), like(&x, alpha), like(&x, beta));
    relu(like(&x, 1.0).min(line))
}

/// `x < 0 ? alpha (exp(x) - 1) : x`.
pub(super) fn elu(x: Expr, alpha: f64) -> Expr {
    let curve = apply(te::UnaryOp::Expm1, x.clone()) * like(&x, alpha);
    Expr::select(x.clone().lt(like(&x, 0.0)), curve, x)
}

/// `x < 0 ? alpha x : x`.
pub(super) fn leaky_relu(x: Expr, alpha: f64) -> Expr {
    Expr::select(x.clone().lt(like(&x, 0.0)), x.clone() * like(&x, alpha), x)
}

/// `x > alpha ? x : 0`.
pub(super) fn thresholded_relu(x: Expr, alpha: f64) -> Expr {
    Expr::select(x.clone().gt(like(&x, alpha)), x.clone(), like(&x, 0.0))
}

fn gelu(x: Expr) -> Expr {
    if x.dtype() == DType::F64 {
        let erf = apply(te::UnaryOp::Erf, x.clone() * like(&x, std::f64::consts::FRAC_1_SQRT_2));
        return x.clone() * like(&x, 0.5) * (erf + like(&x, 1.0));
    }
    // Below -6, where the function is 1e-9, its share of the operand would grow with that.
    x.clone().max(like(&x, -6.0)) * apply(te::UnaryOp::NormCdf, x)
}

fn gelu_tanh(x: Expr) -> Expr {
    let cube = x.clone() * x.clone() * x.clone();
    // Half of one and a hyperbolic tangent is a logistic function, without what is lost in the sum.
    let inner =
        Expr::fma(cube, like(&x, 0.044715), x.clone()) * like(&x, (8.0 / std::f64::consts::PI).sqrt());
    x * apply(te::UnaryOp::Sigmoid, inner)
}

fn sign(x: Expr) -> Expr {
    let zero = Expr::zero(x.dtype());
    let one = Expr::int_of(x.dtype(), 1);
    let positive = x.clone().gt(zero.clone());
    if x.dtype().is_float() || x.dtype().is_signed() {
        let negative = x.clone().lt(zero);
        let minus_one = Expr::int_of(x.dtype(), -1);
        Expr::select(positive, one, Expr::select(negative, minus_one, x))
    } else {
        Expr::select(positive, one, x)
    }
}

fn is_infinite(x: Expr) -> Expr {
    apply(te::UnaryOp::Abs, x.clone()).equals(Expr::highest(x.dtype()))
}

fn unary_value(op: UnaryOp, x: Expr) -> Expr {
    let direct = |op: te::UnaryOp, x: Expr| if x.dtype().is_float() { apply(op, x) } else { x };
    match op {
        UnaryOp::Abs if matches!(x.dtype().kind(), tilewright_dtype::Kind::UInt) => x,
        UnaryOp::Abs => apply(te::UnaryOp::Abs, x),
        UnaryOp::Neg => -x,
        UnaryOp::Exp => apply(te::UnaryOp::Exp, x),
        UnaryOp::Log => apply(te::UnaryOp::Log, x),
        UnaryOp::Sqrt => apply(te::UnaryOp::Sqrt, x),
        UnaryOp::Reciprocal => like(&x, 1.0) / x,
        UnaryOp::Floor => direct(te::UnaryOp::Floor, x),
        UnaryOp::Ceil => direct(te::UnaryOp::Ceil, x),
        UnaryOp::Round => direct(te::UnaryOp::Round, x),
        UnaryOp::Sign => sign(x),
        UnaryOp::Not | UnaryOp::BitwiseNot => apply(te::UnaryOp::Not, x),
        UnaryOp::Sin => apply(te::UnaryOp::Sin, x),
        UnaryOp::Cos => apply(te::UnaryOp::Cos, x),
        UnaryOp::Tan => apply(te::UnaryOp::Tan, x),
        UnaryOp::Asin => apply(te::UnaryOp::Asin, x),
        UnaryOp::Acos => apply(te::UnaryOp::Acos, x),
        UnaryOp::Atan => apply(te::UnaryOp::Atan, x),
        UnaryOp::Sinh => apply(te::UnaryOp::Sinh, x),
        UnaryOp::Cosh => apply(te::UnaryOp::Cosh, x),
        UnaryOp::Tanh => apply(te::UnaryOp::Tanh, x),
        UnaryOp::Asinh => apply(te::UnaryOp::Asinh, x),
        UnaryOp::Acosh => apply(te::UnaryOp::Acosh, x),
        UnaryOp::Atanh => apply(te::UnaryOp::Atanh, x),
        UnaryOp::Erf => apply(te::UnaryOp::Erf, x),
        UnaryOp::Sigmoid => apply(te::UnaryOp::Sigmoid, x),
        UnaryOp::Relu => relu(x),
        UnaryOp::Softplus => widened(x, softplus),
        UnaryOp::Softsign => widened(x, softsign),
        UnaryOp::Gelu => widened(x, gelu),
        UnaryOp::GeluTanh => widened(x, gelu_tanh),
        UnaryOp::HardSwish => widened(x, |x| x.clone() * hard_sigmoid(x, 1.0 / 6.0, 0.5)),
        UnaryOp::Mish => widened(x, |x| x.clone() * apply(te::UnaryOp::Tanh, softplus(x))),
        UnaryOp::IsNan => apply(te::UnaryOp::IsNan, x),
        UnaryOp::IsInf => is_infinite(x),
        UnaryOp::IsPosInf => x.clone().equals(Expr::highest(x.dtype())),
        UnaryOp::IsNegInf => x.clone().equals(Expr::lowest(x.dtype())),
    }
}

/// Whether the function is defined on floats alone.
fn needs_float(op: UnaryOp) -> bool {
    use UnaryOp::*;
    match op {
        Exp | Log | Sqrt | Reciprocal | Sin | Cos | Tan | Asin | Acos | Atan | Sinh | Cosh | Tanh | Asinh
        | Acosh | Atanh | Erf | Sigmoid | Softplus | Softsign | Gelu | GeluTanh | HardSwish | Mish
        | IsNan | IsInf | IsPosInf | IsNegInf => true,
        Abs | Neg | Floor | Ceil | Round | Sign | Not | BitwiseNot | Relu => false,
    }
}

/// A function of one element.
pub(super) fn unary(b: &mut Builder, op: UnaryOp) -> Results {
    let x = b.input(0)?;
    if needs_float(op) && !x.dtype.is_float() {
        return Err(b.no_kernel(format!("{op} of {} elements", x.dtype)));
    }
    Ok(vec![b.compute(op.name(), op.result(x.dtype), &x.shape, |i| unary_value(op, x.at(i.to_vec())))])
}

fn activation_value(attrs: &ActivationAttrs, x: Expr) -> Expr {
    let (alpha, beta) = (attrs.alpha.to_f64(), attrs.beta.to_f64());
    match attrs.kind {
        ActivationKind::LeakyRelu => leaky_relu(x, alpha),
        ActivationKind::Elu => elu(x, alpha),
        ActivationKind::Selu => {
            let curve = apply(te::UnaryOp::Expm1, x.clone()) * like(&x, alpha);
            Expr::select(x.clone().le(like(&x, 0.0)), curve, x.clone()) * like(&x, beta)
        }
        ActivationKind::Celu => {
            let curve = apply(te::UnaryOp::Expm1, x.clone() / like(&x, alpha)) * like(&x, alpha);
            relu(x.clone()) + like(&x, 0.0).min(curve)
        }
        ActivationKind::HardSigmoid => hard_sigmoid(x, alpha, beta),
        ActivationKind::ThresholdedRelu => thresholded_relu(x, alpha),
        ActivationKind::Shrink => {
            let below = x.clone().lt(like(&x, -alpha));
            let above = x.clone().gt(like(&x, alpha));
            let shrunk = Expr::select(above, x.clone() - like(&x, beta), like(&x, 0.0));
            Expr::select(below, x.clone() + like(&x, beta), shrunk)
        }
        ActivationKind::Swish => {
            x.clone()
                * apply(te::UnaryOp::Sigmoid, if alpha == 1.0 { x } else { x.clone() * like(&x, alpha) })
        }
    }
}

/// An activation with parameters.
pub(super) fn activation(b: &mut Builder, attrs: &ActivationAttrs) -> Results {
    let x = b.input(0)?;
    let value = |i: &[Expr]| {
        let x = x.at(i.to_vec());
        if x.dtype().is_float() {
            widened(x, |x| activation_value(attrs, x))
        } else {
            activation_value(attrs, x)
        }
    };
    Ok(vec![b.compute(attrs.kind.name(), x.dtype, &x.shape, value)])
}

/// Remainder with the sign of the divisor, as Python's `%`.
fn python_modulo(x: Expr, y: Expr) -> Expr {
    if !x.dtype().is_float() {
        return x.floor_mod(y);
    }
    let zero = like(&x, 0.0);
    let remainder = Expr::binary(te::BinaryOp::Fmod, x.clone(), y.clone());
    let negative = y.clone().lt(zero.clone());
    let opposite = Expr::compare(CompareOp::Ne, remainder.clone().lt(zero.clone()), negative.clone());
    let adjusted = Expr::select(opposite, remainder.clone() + y, remainder.clone());
    let signed_zero = Expr::select(negative, like(&x, -0.0), zero.clone());
    Expr::select(remainder.equals(zero), signed_zero, adjusted)
}

/// Power with the type of the base; integers go through double precision.
fn power(x: Expr, y: Expr) -> Expr {
    let dtype = x.dtype();
    if dtype.is_float() {
        return Expr::binary(te::BinaryOp::Pow, x, y.cast(dtype));
    }
    Expr::binary(te::BinaryOp::Pow, x.cast(DType::F64), y.cast(DType::F64)).cast(dtype)
}

/// `Min` or `Max` that is NaN where either operand is.
pub(super) fn extreme(op: te::BinaryOp, x: Expr, y: Expr) -> Expr {
    if x.dtype() == DType::Bool {
        return if op == te::BinaryOp::Max { x.or(y) } else { x.and(y) };
    }
    if x.dtype().is_float() {
        return Expr::select(apply(te::UnaryOp::IsNan, x.clone()), x.clone(), Expr::binary(op, x, y));
    }
    Expr::binary(op, x, y)
}

fn binary_value(op: BinaryOp, x: Expr, y: Expr) -> Expr {
    match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::Pow => power(x, y),
        BinaryOp::Mod => python_modulo(x, y),
        BinaryOp::Fmod if x.dtype().is_float() => Expr::binary(te::BinaryOp::Fmod, x, y),
        BinaryOp::Fmod => Expr::binary(te::BinaryOp::Rem, x, y),
        BinaryOp::Min => extreme(te::BinaryOp::Min, x, y),
        BinaryOp::Max => extreme(te::BinaryOp::Max, x, y),
        BinaryOp::And | BinaryOp::BitwiseAnd => x.and(y),
        BinaryOp::Or | BinaryOp::BitwiseOr => x.or(y),
        BinaryOp::Xor | BinaryOp::BitwiseXor => Expr::binary(te::BinaryOp::Xor, x, y),
        BinaryOp::ShiftLeft => Expr::binary(te::BinaryOp::Shl, x, y),
        BinaryOp::ShiftRight => Expr::binary(te::BinaryOp::Shr, x, y),
        BinaryOp::Equal => x.equals(y),
        BinaryOp::Less => x.lt(y),
        BinaryOp::LessEqual => x.le(y),
        BinaryOp::Greater => x.gt(y),
        BinaryOp::GreaterEqual => x.ge(y),
    }
}

/// A function of two elements, with broadcasting.
pub(super) fn binary(b: &mut Builder, op: BinaryOp) -> Results {
    let (x, y) = (b.input(0)?, b.input(1)?);
    let shape = b.result_shape(0)?;
    let value = |i: &[Expr]| binary_value(op, x.at_broadcast(i, &shape), y.at_broadcast(i, &shape));
    Ok(vec![b.compute(op.name(), b.result_dtype(0), &shape, value)])
}

/// `condition ? x : y`, with broadcasting.
pub(super) fn select(b: &mut Builder) -> Results {
    let (condition, x, y) = (b.input(0)?, b.input(1)?, b.input(2)?);
    let shape = b.result_shape(0)?;
    let value = |i: &[Expr]| {
        let [condition, x, y] = [&condition, &x, &y].map(|operand| operand.at_broadcast(i, &shape));
        Expr::select(condition, x, y)
    };
    Ok(vec![b.compute("where", x.dtype, &shape, value)])
}

/// `min(max(x, low), high)`; NaN stays.
pub(super) fn clip(b: &mut Builder) -> Results {
    let (x, low, high) = (b.input(0)?, b.optional(1), b.optional(2));
    let value = |i: &[Expr]| {
        let raised = match &low {
            Some(low) => low.scalar().max(x.at(i.to_vec())),
            None => x.at(i.to_vec()),
        };
        match &high {
            Some(high) => high.scalar().min(raised),
            None => raised,
        }
    };
    Ok(vec![b.compute("clip", x.dtype, &x.shape, value)])
}

/// The operand itself.
pub(super) fn identity(b: &mut Builder) -> Results {
    let x = b.input(0)?;
    Ok(vec![b.compute("identity", x.dtype, &x.shape, |i| x.at(i.to_vec()))])
}

/// Reinterpretation of bits.
pub(super) fn bit_cast(b: &mut Builder, to: DType) -> Results {
    let x = b.input(0)?;
    if x.dtype.bytes() != to.bytes() {
        return Err(b.no_kernel(format!("{} to {to} changes the number of elements", x.dtype)));
    }
    let value = |i: &[Expr]| {
        let x = x.at(i.to_vec());
        // Truth values have no other bits than 0 and 1, so their bits convert as values do.
        if x.dtype() == DType::Bool || to == DType::Bool { x.cast(to) } else { x.bitcast(to) }
    };
    Ok(vec![b.compute("bit_cast", to, &x.shape, value)])
}

/// A constant all of whose elements are equal; others are data that a function takes as an operand.
pub(super) fn constant(b: &mut Builder, tensor: &Tensor) -> Results {
    let Some(value) = splat(tensor) else {
        return Err(b.no_kernel("a constant with different elements is an operand, not code"));
    };
    let shape: Vec<Expr> = tensor.dims().iter().map(|&extent| Expr::int(extent as i64)).collect();
    Ok(vec![b.compute("constant", tensor.dtype(), &shape, |_| value)])
}

fn splat(tensor: &Tensor) -> Option<Expr> {
    let dtype = tensor.dtype();
    if dtype.is_float() {
        return tensor.as_splat().map(|value| Expr::float_of(dtype, value));
    }
    // Through the integers, since a double does not hold every 64-bit one.
    tensor.as_splat()?;
    tensor.to_i64s()?.first().map(|&value| Expr::int_of(dtype, value))
}
