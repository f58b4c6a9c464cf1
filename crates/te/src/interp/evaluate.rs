//! One expression, evaluated directly: for extents, for folding constants, and for tests of rewrites.

use tilewright_dtype::DType;
use tilewright_dtype::float_format::round_to;

use crate::expr::{BinaryOp, Buffer, Expr, ExprKind, UnaryOp, Var, wrap};
use crate::math;

use super::InterpError;
use super::scalar;

/// The value of a scalar expression.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// An integer or truth value, extended from its type to 64 bits (`U64` as its bit pattern).
    Int(i64),
    /// A float of any type, exactly.
    Float(f64),
}

impl Scalar {
    /// The integer; 0 for a float.
    pub fn as_int(self) -> i64 {
        match self {
            Scalar::Int(x) => x,
            Scalar::Float(_) => 0,
        }
    }

    /// The float; an integer converted.
    pub fn as_float(self) -> f64 {
        match self {
            Scalar::Int(x) => x as f64,
            Scalar::Float(x) => x,
        }
    }

    /// Whether both have the same bits (any NaN being equal to any other).
    pub fn same_bits(self, other: Scalar) -> bool {
        match (self, other) {
            (Scalar::Int(x), Scalar::Int(y)) => x == y,
            (Scalar::Float(x), Scalar::Float(y)) => x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan()),
            (Scalar::Int(_), Scalar::Float(_)) | (Scalar::Float(_), Scalar::Int(_)) => false,
        }
    }
}

/// The value of an index expression without loads.
pub fn evaluate_index(e: &Expr, var: &impl Fn(Var) -> Option<i64>) -> Result<i64, InterpError> {
    evaluate_expr(e, var, &|_, _| None).map(Scalar::as_int)
}

/// The value of an expression in exact mode, given its variables and the elements it loads. Only the side of
/// a `Select` that is taken is evaluated.
pub fn evaluate_expr(
    e: &Expr,
    var: &impl Fn(Var) -> Option<i64>,
    load: &impl Fn(Buffer, &[i64]) -> Option<Scalar>,
) -> Result<Scalar, InterpError> {
    let dtype = e.dtype();
    let eval = |operand: &Expr| evaluate_expr(operand, var, load);
    let float = |x: f64| Scalar::Float(round_to(dtype, x));
    Ok(match e.kind() {
        ExprKind::Int(x) => Scalar::Int(*x),
        ExprKind::Float(bits) => Scalar::Float(f64::from_bits(*bits)),
        ExprKind::Var(v) => Scalar::Int(
            var(*v).ok_or_else(|| InterpError::Evaluate(format!("no value for the variable {v}")))?,
        ),
        ExprKind::Unary(op, a) if op.is_intrinsic() => eval(&math::expand_unary(*op, a.clone()))?,
        ExprKind::Unary(op, a) => match eval(a)? {
            Scalar::Int(x) => Scalar::Int(wrap(dtype, scalar::int_unary(*op, dtype, x))),
            Scalar::Float(x) if *op == UnaryOp::IsNan => Scalar::Int(x.is_nan() as i64),
            Scalar::Float(x) if dtype == DType::F64 => Scalar::Float(scalar::f64_unary(*op, x)),
            Scalar::Float(x) => float(scalar::f32_unary(*op, x as f32) as f64),
        },
        ExprKind::Binary(op, a, b) if op.is_intrinsic() => {
            eval(&math::expand_binary(*op, a.clone(), b.clone()))?
        }
        ExprKind::Binary(op, a, b) => binary(*op, dtype, eval(a)?, eval(b)?),
        ExprKind::Compare(op, a, b) => Scalar::Int(match (eval(a)?, eval(b)?) {
            (Scalar::Int(x), Scalar::Int(y)) => scalar::int_compare(*op, a.dtype() == DType::U64, x, y),
            (x, y) => scalar::f64_compare(*op, x.as_float(), y.as_float()),
        } as i64),
        ExprKind::Select(c, a, b) => {
            if eval(c)?.as_int() != 0 {
                eval(a)?
            } else {
                eval(b)?
            }
        }
        ExprKind::Cast(a) => match eval(a)? {
            Scalar::Int(x) if !dtype.is_float() => Scalar::Int(wrap(dtype, x)),
            Scalar::Int(x) => {
                let unsigned = a.dtype() == DType::U64;
                let wide = if unsigned { x as u64 as f64 } else { x as f64 };
                let single = if unsigned { x as u64 as f32 } else { x as f32 };
                if dtype == DType::F64 { Scalar::Float(wide) } else { float(single as f64) }
            }
            Scalar::Float(x) if dtype.is_float() => float(x),
            Scalar::Float(x) => Scalar::Int(scalar::float_to_int(dtype, x)),
        },
        ExprKind::Bitcast(a) => {
            let bits = match eval(a)? {
                Scalar::Int(x) => x,
                Scalar::Float(x) => scalar::to_bits(a.dtype(), x),
            };
            if dtype.is_float() {
                Scalar::Float(scalar::from_bits(dtype, bits))
            } else {
                Scalar::Int(wrap(dtype, bits))
            }
        }
        ExprKind::Fma(a, b, c) => {
            let (x, y, z) = (eval(a)?.as_float(), eval(b)?.as_float(), eval(c)?.as_float());
            if dtype == DType::F64 {
                Scalar::Float(x.mul_add(y, z))
            } else {
                float(scalar::f32_fma(x as f32, y as f32, z as f32) as f64)
            }
        }
        ExprKind::Load(buffer, indices) => {
            let at =
                indices.iter().map(|i| Ok(eval(i)?.as_int())).collect::<Result<Vec<i64>, InterpError>>()?;
            load(*buffer, &at).ok_or_else(|| InterpError::Evaluate(format!("no element {buffer}{at:?}")))?
        }
    })
}

fn binary(op: BinaryOp, dtype: DType, x: Scalar, y: Scalar) -> Scalar {
    match (x, y) {
        (Scalar::Int(x), Scalar::Int(y)) => {
            Scalar::Int(wrap(dtype, scalar::int_binary(op, dtype == DType::U64, x, y)))
        }
        (x, y) if dtype == DType::F64 => Scalar::Float(scalar::f64_binary(op, x.as_float(), y.as_float())),
        (x, y) => {
            let value = scalar::f32_binary(op, x.as_float() as f32, y.as_float() as f32);
            Scalar::Float(round_to(dtype, value as f64))
        }
    }
}
