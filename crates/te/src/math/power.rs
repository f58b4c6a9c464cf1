//! `pow` and `fmod`.

use super::build::*;
use super::double::{exp, exp_of_sum, log, split_exponent};
use crate::expr::Expr;
use tilewright_dtype::DType;

/// The upper 40 bits of ln 2 (products with exponents are exact) and the rest.
const LN2: [f64; 2] = [0.6931471805592082, 7.371002565167799e-13];
const TWO_THIRDS: [f64; 2] = [0.6666666666666666, 3.700743415417188e-17];

/// `(log((1+s)/(1-s)) / s - 2) / z - 2/3) / z` in `z = s^2`, for `1 + f` within `sqrt(2)` of 1.
#[rustfmt::skip]
const LOG: [f64; 9] = [
    0.4, 0.28571428571428564, 0.22222222222228596, 0.181818181796071, 0.15384615768415724, 0.133332959663038,
    0.11766837650840889, 0.10455778637260553, 0.10767386908006582,
];

/// `x^y` with the special cases of C's `pow`.
pub(super) fn pow(x: &Expr, y: &Expr) -> Expr {
    if let Some(simple) = y.as_float().and_then(|exponent| constant_power(x, exponent)) {
        return simple;
    }
    if x.dtype() == DType::F64 {
        return with_specials(x, y, &magnitude(&abs(x), y));
    }
    // In double precision y log|x| keeps 45 bits behind the point.
    let (a, wide) = (abs(x).cast(DType::F64), y.clone().cast(DType::F64));
    let value = exp(&mul(&wide, &log(&a))).cast(x.dtype());
    with_specials(x, y, &value)
}

/// Powers that are a rounding or two.
fn constant_power(x: &Expr, exponent: f64) -> Option<Expr> {
    if exponent == 1.0 {
        Some(x.clone())
    } else if exponent == 2.0 {
        Some(mul(x, x))
    } else if exponent == 3.0 {
        Some(mul(&mul(x, x), x))
    } else if exponent == -1.0 {
        Some(div(&num(x, 1.0), x))
    } else if exponent == 0.5 {
        // The root of -0 is -0 and that of -inf is NaN; the power 1/2 gives 0 and inf.
        let infinite = eq(x, &num(x, f64::NEG_INFINITY));
        Some(select(&infinite, &num(x, f64::INFINITY), &add(&sqrt(x), &num(x, 0.0))))
    } else {
        None
    }
}

/// `a^y` for positive finite `a`, by a logarithm with twice the precision; anything elsewhere.
fn magnitude(a: &Expr, y: &Expr) -> Expr {
    let one = num(a, 1.0);
    let (k, m) = split_exponent(a);
    let numerator = sub(&m, &one);
    let d = add(&m, &one);
    let d_low = sub(&m, &sub(&d, &one));
    let s = div(&numerator, &d);
    let rest = sub(&fma(&neg(&s), &d, &numerator), &mul(&s, &d_low));
    let s_low = div(&rest, &d);
    let (z, z_error) = two_product(&s, &s);
    let z_low = fma(&add(&s, &s), &s_low, &z_error);
    let t = polynomial(&z, &LOG);
    // log(m) = 2 s + s z (2/3 + z t), every product with its low part.
    let (p, p_error) = two_product(&z, &t);
    let p_low = fma(&z_low, &t, &p_error);
    let u = add(&num(a, TWO_THIRDS[0]), &p);
    let u_rounding = add(&sub(&num(a, TWO_THIRDS[0]), &u), &p);
    let u_low = add(&add(&u_rounding, &p_low), &num(a, TWO_THIRDS[1]));
    let (w, w_error) = two_product(&z, &s);
    let w_low = fma(&z, &s_low, &fma(&z_low, &s, &w_error));
    let (v, v_error) = two_product(&w, &u);
    let v_low = fma(&w, &u_low, &fma(&w_low, &u, &v_error));
    let k_high = mul(&k, &num(a, LN2[0]));
    let (sum, error) = two_sum(&k_high, &add(&s, &s));
    let (sum, error2) = two_sum(&sum, &v);
    let low = add(&add(&error, &error2), &fma(&k, &num(a, LN2[1]), &add(&add(&s_low, &s_low), &v_low)));
    let high = add(&sum, &low);
    let low = sub(&low, &sub(&high, &sum));
    let (product, product_error) = two_product(y, &high);
    let tail = fma(y, &low, &product_error);
    let tail = select(&lt(&abs(&product), &num(a, 1000.0)), &tail, &num(a, 0.0));
    exp_of_sum(&product, &tail)
}

/// The sign and the special cases of `x^y`, given `|x|^y` for ordinary operands.
fn with_specials(x: &Expr, y: &Expr, value: &Expr) -> Expr {
    let (zero, one, infinity) = (num(x, 0.0), num(x, 1.0), num(x, f64::INFINITY));
    let a = abs(x);
    let positive = gt(y, &zero);
    // 0 and infinity to a power of either sign.
    let at_zero = select(&positive, &zero, &infinity);
    let at_infinity = select(&positive, &infinity, &zero);
    let value = select(&eq(&a, &zero), &at_zero, value);
    let value = select(&eq(&a, &infinity), &at_infinity, &value);
    let value = select(&eq(&a, &one), &one, &value);
    let integral = eq(&trunc(y), y);
    let half = mul(y, &num(x, 0.5));
    let odd = and(&integral, &ne(&trunc(&half), &half));
    let negative = is_negative(x);
    let value = select(&and(&negative, &odd), &neg(&value), &value);
    // A negative finite base has no real power that is not integral.
    let undefined = and(&and(&lt(x, &zero), &lt(&a, &infinity)), &not(&integral));
    let value = select(&or(&undefined, &or(&is_nan(x), &is_nan(y))), &num(x, f64::NAN), &value);
    select(&or(&eq(y, &zero), &eq(x, &one)), &one, &value)
}

/// C's `fmod`, exact: long division in steps of 52 bits of the quotient.
///
/// `F32` operands are divided in double precision, and the steps cover every quotient. For `F64` they cover
/// quotients below 2^212 of divisors below 2^860; beyond that the result is NaN.
pub(super) fn fmod(x: &Expr, y: &Expr) -> Expr {
    let wide = |e: &Expr| e.clone().cast(DType::F64);
    let single = x.dtype() == DType::F32;
    let (a, b) = (wide(&abs(x)), wide(&abs(y)));
    let steps = if single { 6 } else { 4 };
    let mut rest = a.clone();
    for step in (0..steps).rev() {
        let divisor = mul(&b, &num(&b, f64::powi(2.0, 52 * step)));
        let quotient = trunc(&div(&rest, &divisor));
        let next = fma(&neg(&quotient), &divisor, &rest);
        // The quotient was rounded and may be one too large.
        let corrected = select(&lt(&next, &num(&b, 0.0)), &add(&next, &divisor), &next);
        rest = select(&lt(&rest, &divisor), &rest, &corrected);
    }
    let infinity = num(&b, f64::INFINITY);
    let defined = and(&lt(&a, &infinity), &and(&gt(&b, &num(&b, 0.0)), &lt(&rest, &b)));
    with_sign(&select(&defined, &rest, &num(&b, f64::NAN)).cast(x.dtype()), x)
}
