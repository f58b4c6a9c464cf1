//! Trigonometric functions and their inverses in double precision (kernels of fdlibm).
//!
//! Arguments are reduced by Cody and Waite's method with three 53-bit parts of pi/2. For `F32` operands the
//! first step is exact, and results are good to `|x| <= 2^50`; for `F64` to about `|x| <= 2^30`. Beyond that
//! results stay in range but lose accuracy, without bound in the end.

use super::build::*;
use super::double::ROUNDER;
use crate::expr::{BinaryOp, Expr};

const TWO_OVER_PI: f64 = std::f64::consts::FRAC_2_PI;
const PIO2: [f64; 3] = [std::f64::consts::FRAC_PI_2, 6.123233995736766e-17, -1.4973849048591698e-33];
const PI: [f64; 2] = [std::f64::consts::PI, 1.2246467991473532e-16];

#[rustfmt::skip]
const SIN: [f64; 6] = [
    -0.16666666666666632, 0.00833333333332249, -0.0001984126982985795,
    2.7557313707070068e-06, -2.5050760253406863e-08, 1.58969099521155e-10,
];
#[rustfmt::skip]
const COS: [f64; 6] = [
    0.0416666666666666, -0.001388888888887411, 2.480158728947673e-05,
    -2.7557314351390663e-07, 2.087572321298175e-09, -1.1359647557788195e-11,
];
#[rustfmt::skip]
const ATAN: [f64; 11] = [
    0.3333333333333293, -0.19999999999876483, 0.14285714272503466,
    -0.11111110405462356, 0.09090887133436507, -0.0769187620504483,
    0.06661073137387531, -0.058335701337905735, 0.049768779946159324,
    -0.036531572744216916, 0.016285820115365782,
];
#[rustfmt::skip]
const ASIN_P: [f64; 6] = [
    0.16666666666666666, -0.3255658186224009, 0.20121253213486293,
    -0.04005553450067941, 0.0007915349942898145, 3.479331075960212e-05,
];
#[rustfmt::skip]
const ASIN_Q: [f64; 5] = [
    1.0, -2.403394911734414, 2.0209457602335057, -0.6882839716054533,
    0.07703815055590194,
];

/// Sine and cosine of the reduced argument, and the number of quarter turns (its low bits matter).
struct Quarter {
    turns: Expr,
    sin: Expr,
    cos: Expr,
}

fn reduce(x: &Expr) -> Quarter {
    let shifted = fma(x, &num(x, TWO_OVER_PI), &num(x, ROUNDER));
    let n = sub(&shifted, &num(x, ROUNDER));
    // Exact: a multiple of the last place of pi/2 below 2 in magnitude.
    let first = fma(&n, &num(x, -PIO2[0]), x);
    let (p, p_low) = two_product(&n, &num(x, PIO2[1]));
    let (r, error) = two_sum(&first, &neg(&p));
    let tail = fma(&n, &num(x, -PIO2[2]), &sub(&error, &p_low));
    // Keeps results in range where the argument is too large to be reduced; infinity gives NaN below.
    let r = clamp(&r, -1.0, 1.0);
    let z = mul(&r, &r);
    let half_z = mul(&z, &num(x, 0.5));
    // sin(r + t) = r + (r^3 S(z) + t (1 - z/2)), cos(r + t) = (1 - z/2) + (z^2 C(z) - r t), where the
    // rounding of 1 - z/2 is carried along.
    let one = num(x, 1.0);
    let w = sub(&one, &half_z);
    let sin = add(&r, &fma(&mul(&z, &r), &polynomial(&z, &SIN), &mul(&tail, &w)));
    let lost = sub(&sub(&one, &w), &half_z);
    let high = fma(&mul(&z, &z), &polynomial(&z, &COS), &neg(&mul(&r, &tail)));
    let cos = add(&w, &add(&lost, &high));
    Quarter { turns: to_bits(&shifted), sin, cos }
}

fn has_bit(turns: &Expr, bit: i64) -> Expr {
    ne(&and(turns, &bits(turns, bit)), &bits(turns, 0))
}

fn negate_if(condition: &Expr, x: &Expr) -> Expr {
    select(condition, &neg(x), x)
}

/// `sin(x)`.
pub(super) fn sin(x: &Expr) -> Expr {
    let q = reduce(x);
    let value = select(&has_bit(&q.turns, 1), &q.cos, &q.sin);
    keep_zero(x, &negate_if(&has_bit(&q.turns, 2), &value))
}

/// `cos(x)`.
pub(super) fn cos(x: &Expr) -> Expr {
    let q = reduce(x);
    let value = select(&has_bit(&q.turns, 1), &q.sin, &q.cos);
    let negative = Expr::binary(BinaryOp::Xor, has_bit(&q.turns, 1), has_bit(&q.turns, 2));
    negate_if(&negative, &value)
}

/// `tan(x)`.
pub(super) fn tan(x: &Expr) -> Expr {
    let q = reduce(x);
    let odd = has_bit(&q.turns, 1);
    let value = div(&select(&odd, &neg(&q.cos), &q.sin), &select(&odd, &q.sin, &q.cos));
    keep_zero(x, &value)
}

/// `atan(a)` for `a >= 0` or NaN, given as the quotient `y / x` of non-negative numbers, at least one not 0:
/// the value and its low part before the final sum.
fn atan_of_quotient(y: &Expr, x: &Expr) -> Expr {
    let c = |v: f64| num(x, v);
    let below = |limit: f64| lt(y, &mul(&c(limit), x));
    // Breakpoints and reductions of fdlibm: atan(t) = atan(b) + atan((t - b) / (1 + b t)), t = y/x.
    let steps = [(7.0 / 16.0, 0.0), (11.0 / 16.0, 0.5), (19.0 / 16.0, 1.0), (39.0 / 16.0, 1.5)];
    let (mut numerator, mut denominator) = (neg(x), y.clone());
    let (mut high, mut low) = (c(PIO2[0]), c(PIO2[1]));
    let parts = [
        (0.0, 0.0),
        (0.4636476090008061, 2.2698777452961687e-17),
        (std::f64::consts::FRAC_PI_4, 3.061616997868383e-17),
        (0.982793723247329, 1.3903311031230998e-17),
    ];
    for ((limit, b), (part_high, part_low)) in steps.into_iter().zip(parts).rev() {
        let inside = below(limit);
        numerator = select(&inside, &fma(&c(-b), x, y), &numerator);
        denominator = select(&inside, &fma(&c(b), y, x), &denominator);
        high = select(&inside, &c(part_high), &high);
        low = select(&inside, &c(part_low), &low);
    }
    let t = div(&numerator, &denominator);
    let z = mul(&t, &t);
    let correction = mul(&mul(&t, &z), &polynomial(&z, &ATAN));
    add(&high, &sub(&t, &sub(&correction, &low)))
}

/// `atan(x)`.
pub(super) fn atan(x: &Expr) -> Expr {
    // Beyond 2^60 the quotient is pi/2 to the last bit; the limit keeps infinity out of the division.
    let limited = num(x, 1152921504606846976.0).min(abs(x));
    let value = atan_of_quotient(&limited, &num(x, 1.0));
    keep_zero(x, &with_sign(&value, x))
}

/// `asin(x)` on `[0, 1/2]` as a factor: `x + x R`, with `R` of `x^2`.
fn asin_rational(z: &Expr) -> Expr {
    mul(z, &div(&polynomial(z, &ASIN_P), &polynomial(z, &ASIN_Q)))
}

/// `asin(x)`; NaN beyond 1.
pub(super) fn asin(x: &Expr) -> Expr {
    let a = abs(x);
    let small = lt(&a, &num(x, 0.5));
    let folded = mul(&sub(&num(x, 1.0), &a), &num(x, 0.5));
    let z = select(&small, &mul(&a, &a), &folded);
    let s = select(&small, &a, &sqrt(&folded));
    let value = fma(&s, &asin_rational(&z), &s);
    let complement = add(&fma(&num(x, -2.0), &value, &num(x, PIO2[0])), &num(x, PIO2[1]));
    keep_zero(x, &with_sign(&abs(&select(&small, &value, &complement)), x))
}

/// `acos(x)`; NaN beyond 1.
pub(super) fn acos(x: &Expr) -> Expr {
    let a = abs(x);
    let small = lt(&a, &num(x, 0.5));
    let folded = mul(&sub(&num(x, 1.0), &a), &num(x, 0.5));
    let z = select(&small, &mul(&a, &a), &folded);
    let s = select(&small, x, &sqrt(&folded));
    let value = fma(&s, &asin_rational(&z), &s);
    let middle = sub(&num(x, PIO2[0]), &sub(&value, &num(x, PIO2[1])));
    let right = add(&value, &value);
    let left = add(&fma(&num(x, -2.0), &value, &num(x, PI[0])), &num(x, PI[1]));
    select(&small, &middle, &select(&is_negative(x), &left, &right))
}

/// `atan2(y, x)`: the angle of the point `(x, y)`, signs of zeros as in C.
pub(super) fn atan2(y: &Expr, x: &Expr) -> Expr {
    let (zero, one, infinity) = (num(x, 0.0), num(x, 1.0), num(x, f64::INFINITY));
    let (ay, ax) = (abs(y), abs(x));
    // Two zeros or two infinities stand in a ratio of 0 and 1.
    let both_zero = and(&eq(&ay, &zero), &eq(&ax, &zero));
    let y_infinite = eq(&ay, &infinity);
    let x_infinite = eq(&ax, &infinity);
    let ay = select(&y_infinite, &one, &select(&x_infinite, &zero, &ay));
    let ax = select(
        &x_infinite,
        &one,
        &select(&or(&y_infinite, &both_zero), &select(&both_zero, &one, &zero), &ax),
    );
    // Scaling by a power of two keeps extreme operands away from overflow and underflow.
    let largest = ay.clone().max(ax.clone());
    let scale = select(
        &gt(&largest, &num(x, 1e150)),
        &num(x, f64::powi(2.0, -600)),
        &select(&lt(&largest, &num(x, 1e-150)), &num(x, f64::powi(2.0, 600)), &one),
    );
    let angle = atan_of_quotient(&mul(&ay, &scale), &mul(&ax, &scale));
    let reflected = add(&sub(&num(x, PI[0]), &angle), &num(x, PI[1]));
    let value = with_sign(&abs(&select(&is_negative(x), &reflected, &angle)), y);
    select(&or(&is_nan(x), &is_nan(y)), &num(x, f64::NAN), &value)
}
