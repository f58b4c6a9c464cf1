//! The error function in double precision (fdlibm's).

use super::build::*;
use super::double::exp;
use crate::expr::{BinaryOp, Expr};

/// On `[0, 0.84375]`: `erf(x) = x + x P(x^2) / Q(x^2)`.
#[rustfmt::skip]
const PP: [f64; 5] = [
    1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
    -5.77027029648944159157e-03, -2.37630166566501626084e-05,
];
#[rustfmt::skip]
const QQ: [f64; 6] = [
    1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02, 5.08130628187576562776e-03,
    1.32494738004321644526e-04, -3.96022827877536812320e-06,
];
/// On `[0.84375, 1.25]`: `erf(x) = ERX + P(x - 1) / Q(x - 1)`.
const ERX: f64 = 8.45062911510467529297e-01;
#[rustfmt::skip]
const PA: [f64; 7] = [
    -2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
    3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
    -2.16637559486879084300e-03,
];
#[rustfmt::skip]
const QA: [f64; 7] = [
    1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02,
    1.26171219808761642112e-01, 1.36370839120290507362e-02, 1.19844998467991074170e-02,
];
/// On `[1.25, 1/0.35]`: `1 - erf(x) = exp(-x^2 - 0.5625 + R(1/x^2) / S(1/x^2)) / x`.
#[rustfmt::skip]
const RA: [f64; 8] = [
    -9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e+01,
    -6.23753324503260060396e+01, -1.62396669462573470355e+02, -1.84605092906711035994e+02,
    -8.12874355063065934246e+01, -9.81432934416914548592e+00,
];
#[rustfmt::skip]
const SA: [f64; 9] = [
    1.0, 1.96512716674392571292e+01, 1.37657754143519042600e+02, 4.34565877475229228821e+02,
    6.45387271733267880336e+02, 4.29008140027567833386e+02, 1.08635005541779435134e+02,
    6.57024977031928170135e+00, -6.04244152148580987438e-02,
];
/// The same beyond `1/0.35`.
#[rustfmt::skip]
const RB: [f64; 7] = [
    -9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e+01,
    -1.60636384855821916062e+02, -6.37566443368389627722e+02, -1.02509513161107724954e+03,
    -4.83519191608651397019e+02,
];
#[rustfmt::skip]
const SB: [f64; 8] = [
    1.0, 3.03380607434824582924e+01, 3.25792512996573918826e+02, 1.53672958608443695994e+03,
    3.19985821950859553908e+03, 2.55305040643316442583e+03, 4.74528541206955367215e+02,
    -2.24409524465858183362e+01,
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
