//! `F32` intrinsics in single precision: the ones that networks spend their time in.
//!
//! Branch-free, without tables, so that they vectorise on every target. Coefficients are minimax fits made
//! for this file; measured errors are in `docs/numerics.md`.

use super::build::*;
use crate::expr::{BinaryOp, Expr};

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// The upper bits of ln 2, few enough that products with exponents are exact, and the rest.
const LN2_HI: f64 = 0.693145751953125;
const LN2_LO: f64 = 1.428606765330187e-06;
/// 1.5 * 2^23: adding it rounds to an integer, which appears in the low bits.
const ROUNDER: f64 = 12582912.0;
const ROUNDER_BITS: i64 = 0x4b400000;

/// `(e^r - 1 - r) / r^2` on `|r| <= ln(2)/2`, relative error 2^-27 in the result.
const EXP: [f64; 5] = [0.5, 1.666657627e-01, 4.166655242e-02, 8.363232948e-03, 1.392625156e-03];

/// `(log(1 + f) - f + f^2/2) / f^3` on `sqrt(1/2) <= 1 + f <= sqrt(2)`.
#[rustfmt::skip]
const LOG: [f64; 9] = [
    3.333333135e-01, -2.499999702e-01, 2.000073045e-01, -1.666785032e-01, 1.424855143e-01, -1.242403761e-01,
    1.168907136e-01, -1.149454638e-01, 6.980702281e-02,
];

/// `tanh(x) / x` in `x^2` on `|x| <= 9.02`, relative error 2^-29.
#[rustfmt::skip]
const TANH_P: [f64; 6] =
    [1.0, 1.367991567e-01, 3.868327709e-03, 2.800746006e-05, 3.058502784e-08, -1.220347261e-11];
const TANH_Q: [f64; 5] = [1.0, 4.701324701e-01, 2.724583820e-02, 3.938631271e-04, 1.287366786e-06];

/// `erf(x) / x` in `x^2` on `|x| <= 3.925`, relative error 2^-29.
#[rustfmt::skip]
const ERF_P: [f64; 7] = [
    1.128379226e+00, 1.851416081e-01, 5.424942449e-02, 3.839468816e-03, 3.769654722e-04, 4.614706540e-06,
    -1.282922391e-08,
];
#[rustfmt::skip]
const ERF_Q: [f64; 6] =
    [1.0, 4.974108934e-01, 1.138804480e-01, 1.543247420e-02, 1.301972312e-03, 6.245057739e-05];

/// `e^x` by `2^n * e^r`, scaled in two steps so that subnormal results are rounded once.
pub(super) fn exp(x: &Expr) -> Expr {
    exp_in_range(&clamp(x, -104.0, 89.0))
}

/// `e^x` for `x` in `[-104, 89]` or NaN.
fn exp_in_range(x: &Expr) -> Expr {
    let shifted = fma(x, &num(x, LOG2_E), &num(x, ROUNDER));
    let n = sub(&shifted, &num(x, ROUNDER));
    let r = fma(&n, &num(x, -LN2_LO), &fma(&n, &num(x, -LN2_HI), x));
    let tail = fma(&mul(&r, &r), &polynomial(&r, &EXP), &r);
    let value = add(&tail, &num(x, 1.0));
    let n = to_bits(&shifted) - ROUNDER_BITS;
    let half = Expr::binary(BinaryOp::Shr, n.clone(), bits(&n, 1));
    let scale = |e: Expr| from_bits(&Expr::binary(BinaryOp::Shl, e + 127, bits(&n, 23)), x);
    mul(&mul(&value, &scale(half.clone())), &scale(sub(&n, &half)))
}

/// `log(x)` by `k ln 2 + log(m)`, `m` in `[sqrt(1/2), sqrt(2))`.
pub(super) fn log(x: &Expr) -> Expr {
    let subnormal = lt(x, &num(x, f32::MIN_POSITIVE as f64));
    let normal = select(&subnormal, &mul(x, &num(x, 8388608.0)), x);
    let b = to_bits(&normal);
    // Subtracting the bits of sqrt(1/2) makes the exponent field that of the binade around 1.
    let k = Expr::binary(BinaryOp::Shr, b.clone() - 0x3f3504f3, bits(&b, 23));
    let m = from_bits(&sub(&b, &Expr::binary(BinaryOp::Shl, k.clone(), bits(&b, 23))), x);
    let adjusted = select(&subnormal, &(k.clone() - 23), &k).cast(x.dtype());
    let f = sub(&m, &num(x, 1.0));
    let square = mul(&f, &f);
    let cubic = mul(&mul(&square, &f), &polynomial(&f, &LOG));
    let low = fma(&adjusted, &num(x, LN2_LO), &cubic);
    let tail = fma(&square, &num(x, -0.5), &low);
    let value = fma(&adjusted, &num(x, LN2_HI), &add(&f, &tail));
    log_specials(x, &value)
}

/// The results of a logarithm for zero, negative values, infinity and NaN.
pub(super) fn log_specials(x: &Expr, value: &Expr) -> Expr {
    let zero = num(x, 0.0);
    let positive = gt(x, &zero);
    let finite = lt(x, &num(x, f64::INFINITY));
    let outside = select(&eq(x, &zero), &num(x, f64::NEG_INFINITY), &num(x, f64::NAN));
    // Infinity and NaN add up to themselves.
    let unbounded = select(&positive, &num(x, f64::INFINITY), &outside);
    select(&and(&positive, &finite), value, &unbounded)
}

/// `tanh(x)` by a rational function, saturated where the result rounds to 1.
pub(super) fn tanh(x: &Expr) -> Expr {
    let x = clamp(x, -9.02, 9.02);
    let square = mul(&x, &x);
    div(&mul(&x, &polynomial(&square, &TANH_P)), &polynomial(&square, &TANH_Q))
}

/// `erf(x)` by a rational function, saturated where the result rounds to 1.
pub(super) fn erf(x: &Expr) -> Expr {
    let x = clamp(x, -3.925, 3.925);
    let square = mul(&x, &x);
    div(&mul(&x, &polynomial(&square, &ERF_P)), &polynomial(&square, &ERF_Q))
}

/// `1 / (1 + e^-x)` through `e^-|x|`, so that neither end overflows or cancels.
pub(super) fn sigmoid(x: &Expr) -> Expr {
    let e = exp_in_range(&num(x, -104.0).max(neg(&abs(x))));
    let numerator = select(&is_negative(x), &e, &num(x, 1.0));
    div(&numerator, &add(&e, &num(x, 1.0)))
}
