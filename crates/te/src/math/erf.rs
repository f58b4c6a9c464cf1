//! The error function in double precision (fdlibm's).

use super::build::*;
use super::double::exp;
use crate::expr::{BinaryOp, Expr};

/// On `[0, 0.84375]`: `erf(x) = x + x P(x^2) / Q(x^2)`.
#[rustfmt::skip]
const PP: [f64; 5] = [
    0.12837916709551256, -0.3250421072470015, -0.02848174957559851,
    -0.005770270296489442, -2.3763016656650163e-05,
];
#[rustfmt::skip]
const QQ: [f64; 6] = [
    1.0, 0.39791722395915535, 0.0650222499887673, 0.005081306281875766,
    0.00013249473800432164, -3.960228278775368e-06,
];
/// On `[0.84375, 1.25]`: `erf(x) = ERX + P(x - 1) / Q(x - 1)`.
const ERX: f64 = 0.8450629115104675;
#[rustfmt::skip]
const PA: [f64; 7] = [
    -0.0023621185607526594, 0.41485611868374833, -0.3722078760357013,
    0.31834661990116175, -0.11089469428239668, 0.035478304325618236,
    -0.002166375594868791,
];
#[rustfmt::skip]
const QA: [f64; 7] = [
    1.0, 0.10642088040084423, 0.540397917702171, 0.07182865441419627,
    0.12617121980876164, 0.01363708391202905, 0.011984499846799107,
];
/// On `[1.25, 1/0.35]`: `1 - erf(x) = exp(-x^2 - 0.5625 + R(1/x^2) / S(1/x^2)) / x`.
#[rustfmt::skip]
const RA: [f64; 8] = [
    -0.009864944034847148, -0.6938585727071818, -10.558626225323291,
    -62.375332450326006, -162.39666946257347, -184.60509290671104,
    -81.2874355063066, -9.814329344169145,
];
#[rustfmt::skip]
const SA: [f64; 9] = [
    1.0, 19.651271667439257, 137.65775414351904, 434.56587747522923,
    645.3872717332679, 429.00814002756783, 108.63500554177944,
    6.570249770319282, -0.0604244152148581,
];
/// The same beyond `1/0.35`.
#[rustfmt::skip]
const RB: [f64; 7] = [
    -0.0098649429247001, -0.799283237680523, -17.757954917754752,
    -160.63638485582192, -637.5664433683896, -1025.0951316110772,
    -483.5191916086514,
];
#[rustfmt::skip]
const SB: [f64; 8] = [
    1.0, 30.33806074348246, 325.7925129965739, 1536.729586084437,
    3199.8582195085955, 2553.0504064331644, 474.52854120695537,
    -22.44095244658582,
];

/// `erf(x)`.
pub(super) fn erf(x: &Expr) -> Expr {
    let c = |v: f64| num(x, v);
    let a = c(6.0).min(abs(x));
    let z = mul(&a, &a);
    let small = fma(&a, &div(&polynomial(&z, &PP), &polynomial(&z, &QQ)), &a);
    let s = sub(&a, &c(1.0));
    let middle = add(&div(&polynomial(&s, &PA), &polynomial(&s, &QA)), &c(ERX));
    // The tails would divide by small numbers where they are not used.
    let far = c(1.25).max(a.clone());
    let inverse = div(&c(1.0), &mul(&far, &far));
    let near_tail = div(&polynomial(&inverse, &RA), &polynomial(&inverse, &SA));
    let far_tail = div(&polynomial(&inverse, &RB), &polynomial(&inverse, &SB));
    let ratio = select(&lt(&far, &c(1.0 / 0.35)), &near_tail, &far_tail);
    // far^2 exactly, as the square of its upper half and the rest.
    let b = to_bits(&far);
    let upper = from_bits(&Expr::binary(BinaryOp::And, b.clone(), bits(&b, !0xffff_ffff)), x);
    let leading = exp(&fma(&neg(&upper), &upper, &c(-0.5625)));
    let rest = exp(&fma(&sub(&upper, &far), &add(&upper, &far), &ratio));
    let tail = sub(&c(1.0), &div(&mul(&leading, &rest), &far));
    let beyond_middle = select(&lt(&a, &c(1.25)), &middle, &tail);
    let value = select(&lt(&a, &c(0.84375)), &small, &beyond_middle);
    select(&is_nan(x), x, &with_sign(&abs(&value), x))
}

/// The distribution function of the standard normal distribution, to an error that is absolute: it loses what is small to 1.
pub(super) fn norm_cdf(x: &Expr) -> Expr {
    let half = num(x, 0.5);
    fma(&half, &erf(&mul(x, &num(x, std::f64::consts::FRAC_1_SQRT_2))), &half)
}
