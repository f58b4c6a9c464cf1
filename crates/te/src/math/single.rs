//! `F32` intrinsics in single precision: the ones that networks spend their time in.
//!
//! Branch-free, without tables, so that they vectorise on every target. Coefficients are minimax fits made
//! for this file; measured errors are in `docs/numerics.md`.

use super::build::*;
use crate::expr::{BinaryOp, Expr};

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// The upper bits of ln 2, few enough that products with exponents are exact, and the rest.
const LN2_HI: f64 = 0.693145751953125;
const LN2_LO: f64 = 1.428606765330187e-6;
/// 1.5 * 2^23: adding it rounds to an integer, which appears in the low bits.
const ROUNDER: f64 = 12582912.0;
const ROUNDER_BITS: i64 = 0x4b400000;
/// As [`ROUNDER`]: the exponent field of the power of two by that integer appears in the low bits.
const BIASED_ROUNDER: f64 = ROUNDER + 127.0;
/// The least `F32` whose exponential is a normal number: the one above ln 2^-126.
const LN_MIN_POSITIVE: f64 = -87.33654022216797;

/// `(e^r - 1 - r) / r^2` on `|r| <= ln(2)/2`, relative error 2^-27 in the result.
const EXP: [f64; 5] = [0.5, 0.1666657627, 0.04166655242, 0.008363232948, 0.001392625156];

/// `(2^r - 1) / r` on `|r| <= 1/2`, relative error 2^-23.3 in the result.
const EXP2: [f64; 5] = [0.69314697760, 0.24022242085, 0.055507337433, 0.0096715126396, 0.0013264727197];

/// `(log(1 + f) - f + f^2/2) / f^3` on `sqrt(1/2) <= 1 + f <= sqrt(2)`.
#[rustfmt::skip]
const LOG: [f64; 9] = [
    0.3333333135, -0.2499999702, 0.2000073045, -0.1666785032, 0.1424855143, -0.1242403761,
    0.1168907136, -0.1149454638, 0.06980702281,
];

/// `(tanh(x) / x - 1) / x^2` in `x^2` on `|x| <= 0.625`, relative error 2^-27 in the result.
#[rustfmt::skip]
const TANH: [f64; 5] = [-0.3333328366, 0.1333149076, -0.05374349654, 0.02065058798, -0.005717045162];

/// `erf(x) / x - 1` in `x^2` on `|x| <= 0.9277`, relative error 2^-25.
#[rustfmt::skip]
const ERF: [f64; 6] = [
    0.1283791512, -0.3761249781, 0.1128183901, -0.02676690556, 0.004992981441, -0.0005987233599,
];

/// `-log(1 - erf(x)) / x - 1` on `0.9277 <= x <= 3.95`.
#[rustfmt::skip]
const ERF_TAIL: [f64; 6] = [
    0.1285082102, 0.6357394457, 0.1052335203, -0.02287152968, 0.003209126415, -0.0002132689406,
];

/// `log2(D(-a))` on `0 <= a <= 6`, `D` being the distribution function of the standard normal distribution; an error of 5.6e-8 in
/// `D(-a)`, and of 7.5e-6 of it.
#[rustfmt::skip]
const NORM_CDF: [f64; 10] = [
    -0.9999998374533062, -1.1511135908722234, -0.4591375751343802, -0.05271030734558043, 0.0073628143251832975,
    -0.00034915107663482963, -0.00010983817707711002, 2.7363559261723228e-05, -2.6627445184531286e-06, 1.0061611347172041e-07,
];

/// `e^x` by `2^n * e^r`, every result rounded once. Nothing but the results between normal and subnormal ones is computed
/// by operations on subnormal values, for which processors take a hundred cycles and more.
pub(super) fn exp(x: &Expr) -> Expr {
    let (shifted, value) = exp_parts(&clamp(x, -104.0, 89.0));
    let n = to_bits(&shifted) - ROUNDER_BITS;
    // False for NaN, which the products pass on.
    let is_tiny = lt(&shifted, &num(x, ROUNDER - 126.0));
    let normal = times_power(&value, &select(&is_tiny, &bits(&n, 0), &n));
    // In units of the least subnormal, as the fraction of a number from 1 to 2: its bits are those of the result.
    let tiny = mul(&value, &power(&(n.clone().min(bits(&n, -127)) + 126), x));
    let fraction = sub(&to_bits(&add(&tiny, &num(x, 1.0))), &to_bits(&num(x, 1.0)));
    select(&is_tiny, &from_bits(&fraction, x), &normal)
}

/// `e^x` for `x <= 0`; 0 where that is subnormal. No operation meets a subnormal value, and there are half as many as in [`exp`].
pub(super) fn exp_ftz(x: &Expr) -> Expr {
    let limited = num(x, LN_MIN_POSITIVE).max(x.clone());
    let shifted = fma(&limited, &num(x, LOG2_E), &num(x, BIASED_ROUNDER));
    let n = sub(&shifted, &num(x, BIASED_ROUNDER));
    let value = mul(&exp_of_rest(&limited, &n), &biased_power(&shifted));
    select(&lt(x, &num(x, LN_MIN_POSITIVE)), &num(x, 0.0), &value)
}

/// `2^x` for `x <= 0`; 0 below 2^-126.5. What is left of `x` without an integer is exact, and `n = -127` gives the power 0: without
/// products for the former and a comparison for the latter it takes 11 operations for the 16 of [`exp_ftz`].
pub(super) fn exp2_ftz(x: &Expr) -> Expr {
    let limited = num(x, -127.0).max(x.clone());
    let shifted = add(&limited, &num(x, BIASED_ROUNDER));
    let r = sub(&limited, &sub(&shifted, &num(x, BIASED_ROUNDER)));
    let value = fma(&r, &polynomial(&r, &EXP2), &num(x, 1.0));
    mul(&value, &biased_power(&shifted))
}

/// `2^n` of a normal value, given `n` plus [`BIASED_ROUNDER`]: the low bits are shifted to their place, what is above them out of the
/// word.
fn biased_power(shifted: &Expr) -> Expr {
    let n = to_bits(shifted);
    from_bits(&Expr::binary(BinaryOp::Shl, n.clone(), bits(&n, 23)), shifted)
}

/// `2^n` for integers `n` from -127 (which gives 0) to 128 (infinity).
fn power(n: &Expr, like: &Expr) -> Expr {
    from_bits(&Expr::binary(BinaryOp::Shl, n.clone() + 127, bits(n, 23)), like)
}

/// `value * 2^n`, in two steps: neither 2^128 nor the least powers are normal values, and a subnormal result is rounded
/// once.
fn times_power(value: &Expr, n: &Expr) -> Expr {
    let half = Expr::binary(BinaryOp::Shr, n.clone(), bits(n, 1));
    mul(&mul(value, &power(&half, value)), &power(&sub(n, &half), value))
}

/// `e^x` for `|x| <= 80`, where the result is normal and the exponent is simply added to its bits; anything
/// for NaN.
fn exp_moderate(x: &Expr) -> Expr {
    let (shifted, value) = exp_parts(x);
    let n = to_bits(&shifted);
    from_bits(&add(&to_bits(&value), &Expr::binary(BinaryOp::Shl, n.clone(), bits(&n, 23))), x)
}

/// `e^x = 2^n e^r`: `n` plus [`ROUNDER`], and `e^r`.
fn exp_parts(x: &Expr) -> (Expr, Expr) {
    let shifted = fma(x, &num(x, LOG2_E), &num(x, ROUNDER));
    let n = sub(&shifted, &num(x, ROUNDER));
    let value = exp_of_rest(x, &n);
    (shifted, value)
}

/// `e^r` where `x = n ln 2 + r`.
fn exp_of_rest(x: &Expr, n: &Expr) -> Expr {
    let r = fma(n, &num(x, -LN2_LO), &fma(n, &num(x, -LN2_HI), x));
    let tail = fma(&mul(&r, &r), &polynomial(&r, &EXP), &r);
    add(&tail, &num(x, 1.0))
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

/// `tanh(x)`: a polynomial near 0, `1 - 2 / (e^(2|x|) + 1)` elsewhere.
pub(super) fn tanh(x: &Expr) -> Expr {
    let a = abs(x);
    let square = mul(&a, &a);
    let near = fma(&mul(&square, &a), &polynomial(&square, &TANH), &a);
    // From 10 on the result is 1 to the last bit.
    let limited = num(x, 10.0).min(a.clone());
    let e = exp_moderate(&add(&limited, &limited));
    let far = sub(&num(x, 1.0), &div(&num(x, 2.0), &add(&e, &num(x, 1.0))));
    // NaN takes the near side, which passes it on.
    with_sign(&select(&gt(&a, &num(x, 0.625)), &far, &near), x)
}

/// `erf(x)`: a polynomial near 0, `1 - e^p(|x|)` elsewhere (the form is N. Juffa's).
pub(super) fn erf(x: &Expr) -> Expr {
    let a = num(x, 3.95).min(abs(x));
    let square = mul(&a, &a);
    let near = fma(&a, &polynomial(&square, &ERF), &a);
    let exponent = fma(&neg(&a), &polynomial(&a, &ERF_TAIL), &neg(&a));
    let far = sub(&num(x, 1.0), &exp_moderate(&exponent));
    with_sign(&select(&gt(&a, &num(x, 0.9277)), &far, &near), x)
}

/// The distribution function of the standard normal distribution: `2^p(|x|)` for negative operands, `1 - 2^p(|x|)` for others. What it
/// is at -6, 1e-9, it is below, too.
pub(super) fn norm_cdf(x: &Expr) -> Expr {
    let a = num(x, 6.0).min(abs(x));
    let exponent = by_pairs(&a, &NORM_CDF);
    let shifted = add(&exponent, &num(x, BIASED_ROUNDER));
    let r = sub(&exponent, &sub(&shifted, &num(x, BIASED_ROUNDER)));
    let ln2 = std::f64::consts::LN_2;
    let of_e = [1.0, 1.0].into_iter().chain(EXP);
    let of_2: Vec<f64> = of_e.enumerate().map(|(n, c)| c * ln2.powi(n as i32)).collect();
    let below = mul(&by_pairs(&r, &of_2), &biased_power(&shifted));
    select(&gt(x, &num(x, 0.0)), &sub(&num(x, 1.0), &below), &below)
}

/// `1 / (1 + e^-x)`; 0 where that is subnormal.
pub(super) fn sigmoid(x: &Expr) -> Expr {
    // From 40 on the result is 1 to the last bit. Whatever comes out below the least operand is not taken.
    let limited = num(x, 40.0).min(x.clone());
    let shifted = fma(&limited, &num(x, -LOG2_E), &num(x, BIASED_ROUNDER));
    let n = sub(&shifted, &num(x, BIASED_ROUNDER));
    let r = fma(&n, &num(x, LN2_LO), &fma(&n, &num(x, LN2_HI), &limited));
    // e^-r: the odd coefficients change their signs.
    let signed: Vec<f64> = EXP.iter().enumerate().map(|(n, c)| if n % 2 == 0 { *c } else { -c }).collect();
    let tail = fma(&polynomial(&r, &signed), &r, &num(x, -1.0));
    let one = num(x, 1.0);
    let divisor = fma(&fma(&tail, &r, &one), &biased_power(&shifted), &one);
    let value = div(&one, &divisor);
    select(&lt(x, &num(x, LN_MIN_POSITIVE)), &num(x, 0.0), &value)
}
