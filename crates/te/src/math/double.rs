//! Exponentials, logarithms and hyperbolic functions in double precision.
//!
//! They serve `F64` itself, and `F32` where a function is not hot enough for a single-precision form of its
//! own: the result rounded to `F32` is then within a hair of correctly rounded.

use super::build::*;
use super::single::log_specials;
use crate::expr::{BinaryOp, Expr};

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// The upper 32 bits of ln 2 and the rest (fdlibm).
const LN2_HI: f64 = 0.6931471803691238;
const LN2_LO: f64 = 1.9082149292705877e-10;
const LN2: f64 = std::f64::consts::LN_2;
/// 1.5 * 2^52: adding it rounds to an integer, which appears in the low bits.
pub(super) const ROUNDER: f64 = 6755399441055744.0;

/// `(e^r - 1 - r) / r^2` on `|r| <= ln(2)/2`, relative error 2^-62 in the result.
#[rustfmt::skip]
const EXP: [f64; 11] = [
    0.5, 0.1666666666666667, 0.04166666666666667, 0.008333333333326084, 0.0013888888888883711,
    0.0001984126987500231, 2.4801587325679727e-05, 2.755725516996302e-06, 2.7557273476296015e-07,
    2.5105312745353976e-08, 2.091475622174992e-09,
];

/// fdlibm's `log`: `log(1+f) - f + s f = s R(s^2)` with `s = f / (2 + f)`.
#[rustfmt::skip]
const LOG: [f64; 7] = [
    0.6666666666666735, 0.3999999999940942, 0.2857142874366239, 0.22222198432149784,
    0.1818357216161805, 0.15313837699209373, 0.14798198605116586,
];

/// `x` as `n ln 2 + r`: `n` plus [`ROUNDER`], and `r`.
fn reduce(x: &Expr) -> (Expr, Expr) {
    let shifted = fma(x, &num(x, LOG2_E), &num(x, ROUNDER));
    let n = sub(&shifted, &num(x, ROUNDER));
    let r = fma(&n, &num(x, -LN2_LO), &fma(&n, &num(x, -LN2_HI), x));
    (shifted, r)
}

/// `2^e` for an integer expression in the range of normal exponents.
fn power_of_two(e: Expr, like: &Expr) -> Expr {
    let shift = bits(&e, 52);
    from_bits(&Expr::binary(BinaryOp::Shl, e + 1023, shift), like)
}

fn integer(shifted: &Expr) -> Expr {
    to_bits(shifted) - ROUNDER.to_bits() as i64
}

/// `e^x`.
pub(super) fn exp(x: &Expr) -> Expr {
    exp_of_sum(x, &num(x, 0.0))
}

/// `e^x`; 0 where that is subnormal.
pub(super) fn exp_ftz(x: &Expr) -> Expr {
    let value = exp(x);
    select(&lt(&value, &num(x, f64::MIN_POSITIVE)), &num(x, 0.0), &value)
}

/// `2^x` for `x <= 0`; 0 where that is subnormal.
pub(super) fn exp2_ftz(x: &Expr) -> Expr {
    let limited = clamp(x, -1075.0, 1.0);
    let n = sub(&add(&limited, &num(x, ROUNDER)), &num(x, ROUNDER));
    let value = exp(&mul(&sub(&limited, &n), &num(x, std::f64::consts::LN_2)));
    let whole = integer(&add(&n, &num(x, ROUNDER)));
    let half = Expr::binary(BinaryOp::Shr, whole.clone(), bits(&whole, 1));
    let value = mul(&value, &power_of_two(half.clone(), x));
    let value = mul(&value, &power_of_two(sub(&whole, &half), x));
    select(&lt(&value, &num(x, f64::MIN_POSITIVE)), &num(x, 0.0), &value)
}

/// `e^(x + tail)` for a tail far smaller than `x`.
pub(super) fn exp_of_sum(x: &Expr, tail: &Expr) -> Expr {
    let x = clamp(x, -746.0, 710.0);
    let (shifted, r) = reduce(&x);
    let r = if tail.as_float() == Some(0.0) { r } else { add(&r, tail) };
    let value = add(&fma(&mul(&r, &r), &polynomial(&r, &EXP), &r), &num(&x, 1.0));
    let n = integer(&shifted);
    let half = Expr::binary(BinaryOp::Shr, n.clone(), bits(&n, 1));
    let value = mul(&value, &power_of_two(half.clone(), &x));
    mul(&value, &power_of_two(sub(&n, &half), &x))
}

/// `e^x - 1`.
pub(super) fn expm1(x: &Expr) -> Expr {
    let limited = clamp(x, -40.0, 710.0);
    let (shifted, r) = reduce(&limited);
    let p = fma(&mul(&r, &r), &polynomial(&r, &EXP), &r);
    // 2^n p + 2^n - 1 in halves, for n = 1024.
    let h = power_of_two(integer(&shifted) - 1, x);
    let halved = fma(&h, &p, &sub(&h, &num(x, 0.5)));
    keep_zero(x, &mul(&halved, &num(x, 2.0)))
}

/// A positive finite `x` as `2^k (1 + f)` with `1 + f` in `[sqrt(1/2), sqrt(2))`: `k` and `1 + f`.
pub(super) fn split_exponent(x: &Expr) -> (Expr, Expr) {
    let subnormal = lt(x, &num(x, f64::MIN_POSITIVE));
    let normal = select(&subnormal, &mul(x, &num(x, 18014398509481984.0)), x);
    let b = to_bits(&normal);
    let root_half = std::f64::consts::FRAC_1_SQRT_2.to_bits() as i64;
    let k = Expr::binary(BinaryOp::Shr, b.clone() - root_half, bits(&b, 52));
    let m = from_bits(&sub(&b, &Expr::binary(BinaryOp::Shl, k.clone(), bits(&b, 52))), x);
    let k = select(&subnormal, &(k.clone() - 54), &k).cast(x.dtype());
    (k, m)
}

/// `log(x)`.
pub(super) fn log(x: &Expr) -> Expr {
    let (k, m) = split_exponent(x);
    let f = sub(&m, &num(x, 1.0));
    let s = div(&f, &add(&f, &num(x, 2.0)));
    let z = mul(&s, &s);
    let r = mul(&z, &polynomial(&z, &LOG));
    let half_square = mul(&mul(&f, &f), &num(x, 0.5));
    let low = fma(&k, &num(x, LN2_LO), &mul(&s, &add(&half_square, &r)));
    let value = fma(&k, &num(x, LN2_HI), &sub(&f, &sub(&half_square, &low)));
    log_specials(x, &value)
}

/// `log(1 + x)`: the logarithm of the rounded sum, corrected for what rounding lost.
pub(super) fn log1p(x: &Expr) -> Expr {
    let one = num(x, 1.0);
    let u = add(&one, x);
    let lost = select(&gt(&abs(x), &one), &sub(&one, &sub(&u, x)), &sub(x, &sub(&u, &one)));
    let regular = and(&gt(&u, &num(x, 0.0)), &lt(&u, &num(x, f64::INFINITY)));
    let correction = select(&regular, &div(&lost, &u), &num(x, 0.0));
    keep_zero(x, &add(&log(&u), &correction))
}

/// `tanh(x)` through `e^(2|x|) - 1`.
pub(super) fn tanh(x: &Expr) -> Expr {
    let doubled = num(x, 44.0).min(abs(x) * num(x, 2.0));
    let e = expm1(&doubled);
    with_sign(&abs(&div(&e, &add(&e, &num(x, 2.0)))), x)
}

/// `1 / (1 + e^-x)` through `e^-|x|`.
pub(super) fn sigmoid(x: &Expr) -> Expr {
    let e = exp(&neg(&abs(x)));
    let numerator = select(&is_negative(x), &e, &num(x, 1.0));
    div(&numerator, &add(&e, &num(x, 1.0)))
}

/// `sinh(x)`; beyond 40 as half an exponential, in two factors because it may overflow later than they.
pub(super) fn sinh(x: &Expr) -> Expr {
    let a = abs(x);
    let e = expm1(&num(x, 41.0).min(a.clone()));
    let small = mul(&num(x, 0.5), &add(&e, &div(&e, &add(&e, &num(x, 1.0)))));
    with_sign(&abs(&select(&gt(&a, &num(x, 40.0)), &half_exp(&a), &small)), x)
}

/// `cosh(x)`.
pub(super) fn cosh(x: &Expr) -> Expr {
    let a = abs(x);
    let e = exp(&num(x, 41.0).min(a.clone()));
    let small = fma(&num(x, 0.5), &e, &div(&num(x, 0.5), &e));
    select(&gt(&a, &num(x, 40.0)), &half_exp(&a), &small)
}

/// `e^x / 2` without an early overflow.
fn half_exp(x: &Expr) -> Expr {
    let limited = num(x, 711.0).min(x.clone());
    // e^(x - ln 2) in double precision would lose the low bits of ln 2: they go into the tail.
    let shifted = sub(&limited, &num(x, LN2));
    let lost = sub(&sub(&limited, &shifted), &num(x, LN2));
    exp_of_sum(&shifted, &sub(&lost, &num(x, 2.3190468138462996e-17)))
}

/// `asinh(x)`.
pub(super) fn asinh(x: &Expr) -> Expr {
    let (a, one) = (abs(x), num(x, 1.0));
    let limited = num(x, 268435456.0).min(a.clone());
    let square = mul(&limited, &limited);
    let small = log1p(&add(&limited, &div(&square, &add(&one, &sqrt(&add(&one, &square))))));
    let large = add(&log(&a), &num(x, LN2));
    with_sign(&abs(&select(&gt(&a, &num(x, 268435456.0)), &large, &small)), x)
}

/// `acosh(x)`; NaN below 1.
pub(super) fn acosh(x: &Expr) -> Expr {
    let one = num(x, 1.0);
    let t = sub(&num(x, 268435456.0).min(x.clone()), &one);
    let small = log1p(&add(&t, &sqrt(&fma(&t, &t, &add(&t, &t)))));
    let large = add(&log(x), &num(x, LN2));
    let value = select(&gt(x, &num(x, 268435456.0)), &large, &small);
    select(&lt(x, &one), &num(x, f64::NAN), &value)
}

/// `atanh(x)`; NaN beyond 1.
pub(super) fn atanh(x: &Expr) -> Expr {
    let (a, one) = (abs(x), num(x, 1.0));
    let ratio = div(&add(&a, &a), &sub(&one, &a));
    let value = mul(&num(x, 0.5), &log1p(&ratio));
    select(&gt(&a, &one), &num(x, f64::NAN), &with_sign(&abs(&value), x))
}
