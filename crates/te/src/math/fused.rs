//! Fused multiply-add for machines without the instruction, with the same bits.
//!
//! Both forms round a wider intermediate to odd, which makes the final rounding as good as a single one
//! (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).

use rustc_hash::FxHashMap;
use tilewright_dtype::DType;

use super::build::*;
use super::map_exprs;
use crate::expr::{Expr, ExprKind};
use crate::func::Func;

/// Replaces every fused multiply-add in a function's blocks by sums and products that give the same result.
///
/// Runs last. For `F64` results are those of the instruction while no operand or product exceeds `2^990` in
/// magnitude and no product is smaller than `2^-960`, zero aside; `F32` has no such limit.
pub fn expand_fma(func: &mut Func) {
    let mut done = FxHashMap::default();
    map_exprs(&mut func.body, &mut |e| without_fma(e, &mut done));
}

fn without_fma(e: &Expr, done: &mut FxHashMap<Expr, Expr>) -> Expr {
    if let Some(known) = done.get(e) {
        return known.clone();
    }
    let inner = e.map_operands(|operand| without_fma(operand, done));
    let result = match inner.kind() {
        ExprKind::Fma(a, b, c) if e.dtype() == DType::F32 => single(a, b, c),
        ExprKind::Fma(a, b, c) if e.dtype() == DType::F64 => double(a, b, c),
        _ => inner,
    };
    done.insert(e.clone(), result.clone());
    result
}

/// Through `F64`, where the product is exact.
fn single(a: &Expr, b: &Expr, c: &Expr) -> Expr {
    let [a, b, c] = [a, b, c].map(|e| e.clone().cast(DType::F64));
    sum_to_odd(&mul(&a, &b), &c).cast(DType::F32)
}

/// `a + b`, rounded to the neighbour with an odd last bit where inexact.
fn sum_to_odd(a: &Expr, b: &Expr) -> Expr {
    let (sum, error) = two_sum(a, b);
    let zero = num(&sum, 0.0);
    let whole = to_bits(&sum);
    let int = |value: i64| bits(&whole, value);
    // Of an infinite or NaN sum the error is NaN, which is neither.
    let inexact = or(&lt(&error, &zero), &gt(&error, &zero));
    let even = eq(&and(&whole, &int(1)), &int(0));
    let outward = eq(&is_negative(&error), &is_negative(&sum));
    let step = select(&outward, &int(1), &int(-1));
    from_bits(&add(&whole, &select(&and(&inexact, &even), &step, &int(0))), &sum)
}

/// By Dekker's exact product and two exact sums.
fn double(a: &Expr, b: &Expr, c: &Expr) -> Expr {
    let halves = |x: &Expr| {
        let scaled = mul(x, &num(x, 134217729.0));
        let high = sub(&scaled, &sub(&scaled, x));
        let low = sub(x, &high);
        (high, low)
    };
    let ((ah, al), (bh, bl)) = (halves(a), halves(b));
    let product = mul(a, b);
    let inner = sub(&sub(&sub(&product, &mul(&ah, &bh)), &mul(&al, &bh)), &mul(&ah, &bl));
    let product_low = sub(&mul(&al, &bl), &inner);
    let (high, low) = two_sum(c, &product_low);
    let (sum, rest) = two_sum(&product, &high);
    let exact = add(&sum, &sum_to_odd(&rest, &low));
    // The error terms of infinities and NaN are NaN: the plain sum is right for those.
    let plain = add(&product, c);
    let finite = lt(&abs(&plain), &num(a, f64::INFINITY));
    // A zero sum keeps the sign that the plain sum gives it.
    let nonzero = ne(&exact, &num(a, 0.0));
    select(&and(&finite, &nonzero), &exact, &plain)
}
