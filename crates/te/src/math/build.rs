//! Short constructors for expansions.

use tilewright_dtype::DType;

use crate::expr::{BinaryOp, CompareOp, Expr, UnaryOp};

/// The float constant of the type of `like`.
pub(super) fn num(like: &Expr, value: f64) -> Expr {
    Expr::float_of(like.dtype(), value)
}

/// The integer constant of the type of `like`, as a bit pattern.
pub(super) fn bits(like: &Expr, value: i64) -> Expr {
    Expr::int_of(like.dtype(), value)
}

pub(super) fn add(a: &Expr, b: &Expr) -> Expr {
    Expr::binary(BinaryOp::Add, a.clone(), b.clone())
}

pub(super) fn sub(a: &Expr, b: &Expr) -> Expr {
    Expr::binary(BinaryOp::Sub, a.clone(), b.clone())
}

pub(super) fn mul(a: &Expr, b: &Expr) -> Expr {
    Expr::binary(BinaryOp::Mul, a.clone(), b.clone())
}

pub(super) fn div(a: &Expr, b: &Expr) -> Expr {
    Expr::binary(BinaryOp::Div, a.clone(), b.clone())
}

pub(super) fn and(a: &Expr, b: &Expr) -> Expr {
    a.clone().and(b.clone())
}

pub(super) fn or(a: &Expr, b: &Expr) -> Expr {
    a.clone().or(b.clone())
}

/// `a * b + c` rounded once.
pub(super) fn fma(a: &Expr, b: &Expr, c: &Expr) -> Expr {
    Expr::fma(a.clone(), b.clone(), c.clone())
}

pub(super) fn neg(a: &Expr) -> Expr {
    -a.clone()
}

pub(super) fn abs(a: &Expr) -> Expr {
    Expr::unary(UnaryOp::Abs, a.clone())
}

pub(super) fn sqrt(a: &Expr) -> Expr {
    Expr::unary(UnaryOp::Sqrt, a.clone())
}

pub(super) fn trunc(a: &Expr) -> Expr {
    Expr::unary(UnaryOp::Trunc, a.clone())
}

pub(super) fn is_nan(a: &Expr) -> Expr {
    Expr::unary(UnaryOp::IsNan, a.clone())
}

pub(super) fn not(a: &Expr) -> Expr {
    Expr::unary(UnaryOp::Not, a.clone())
}

pub(super) fn lt(a: &Expr, b: &Expr) -> Expr {
    Expr::compare(CompareOp::Lt, a.clone(), b.clone())
}

pub(super) fn gt(a: &Expr, b: &Expr) -> Expr {
    Expr::compare(CompareOp::Gt, a.clone(), b.clone())
}

pub(super) fn eq(a: &Expr, b: &Expr) -> Expr {
    Expr::compare(CompareOp::Eq, a.clone(), b.clone())
}

pub(super) fn ne(a: &Expr, b: &Expr) -> Expr {
    Expr::compare(CompareOp::Ne, a.clone(), b.clone())
}

pub(super) fn select(c: &Expr, a: &Expr, b: &Expr) -> Expr {
    Expr::select(c.clone(), a.clone(), b.clone())
}

/// `x` limited to `[low, high]`; NaN stays NaN.
pub(super) fn clamp(x: &Expr, low: f64, high: f64) -> Expr {
    num(x, high).min(num(x, low).max(x.clone()))
}

/// Coefficients from the constant term up, by Horner's rule in fused steps.
pub(super) fn polynomial(x: &Expr, coefficients: &[f64]) -> Expr {
    let mut terms = coefficients.iter().rev();
    let first = num(x, terms.next().copied().unwrap_or(0.0));
    terms.fold(first, |sum, &c| fma(&sum, x, &num(x, c)))
}

/// The same polynomial as pairs of terms by Horner's rule in the square: one product more, and half as long to wait for.
pub(super) fn by_pairs(x: &Expr, coefficients: &[f64]) -> Expr {
    let square = mul(x, x);
    let pair = |pair: &[f64]| match pair {
        [even, odd] => fma(&num(x, *odd), x, &num(x, *even)),
        single => num(x, single.first().copied().unwrap_or(0.0)),
    };
    let mut pairs = coefficients.chunks(2).map(pair).rev();
    let first = pairs.next().unwrap_or_else(|| num(x, 0.0));
    pairs.fold(first, |sum, pair| fma(&sum, &square, &pair))
}

/// The integer type of the same width as a float's.
pub(super) fn int_type(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::I64 } else { DType::I32 }
}

/// The bits of a float as a signed integer.
pub(super) fn to_bits(x: &Expr) -> Expr {
    x.clone().bitcast(int_type(x.dtype()))
}

/// The float with these bits, of the type of `like`.
pub(super) fn from_bits(bits: &Expr, like: &Expr) -> Expr {
    bits.clone().bitcast(like.dtype())
}

/// Whether the sign bit is set.
pub(super) fn is_negative(x: &Expr) -> Expr {
    let b = to_bits(x);
    let zero = bits(&b, 0);
    lt(&b, &zero)
}

/// The non-negative `magnitude` with the sign of `sign`.
pub(super) fn with_sign(magnitude: &Expr, sign: &Expr) -> Expr {
    let (m, s) = (to_bits(magnitude), to_bits(sign));
    let lowest = Expr::lowest(s.dtype());
    from_bits(&or(&m, &and(&s, &lowest)), magnitude)
}

/// `y`, but `x` itself where it is a zero: keeps the sign of a zero that an odd function's sums would lose.
pub(super) fn keep_zero(x: &Expr, y: &Expr) -> Expr {
    select(&eq(x, &num(x, 0.0)), x, y)
}

/// `a + b` and its rounding error (Knuth's TwoSum).
pub(super) fn two_sum(a: &Expr, b: &Expr) -> (Expr, Expr) {
    let s = add(a, b);
    let bb = sub(&s, a);
    let error = add(&sub(a, &sub(&s, &bb)), &sub(b, &bb));
    (s, error)
}

/// `a * b` and its rounding error.
pub(super) fn two_product(a: &Expr, b: &Expr) -> (Expr, Expr) {
    let p = mul(a, b);
    let error = fma(a, b, &neg(&p));
    (p, error)
}
