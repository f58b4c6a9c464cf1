//! Conversions between element types, quantisation and dequantisation.

use tilewright_dtype::DType;
use tilewright_graph::op::{CastAttrs, DequantizeAttrs, QuantizeAttrs, RoundMode};
use tilewright_te::{BinaryOp, Expr, UnaryOp};

use super::Results;
use super::builder::{Builder, Operand, real};
use super::elementwise::apply;

/// A bit pattern as an 8-bit float.
fn pattern(dtype: DType, bits: i64) -> Expr {
    Expr::int_of(DType::U8, bits).bitcast(dtype)
}

/// What an unsaturated conversion makes of magnitudes that round past the greatest finite value: the first such
/// magnitude (or the last that does not, if `!inclusive`), and the positive and negative patterns.
struct Overflow {
    limit: f64,
    inclusive: bool,
    positive: i64,
    negative: i64,
}

/// Past the greatest finite value: NaN, or infinity where the format has one. ONNX `Cast`, table of float 8.
fn overflow(to: DType) -> Option<Overflow> {
    let row = |limit, inclusive, positive, negative| Some(Overflow { limit, inclusive, positive, negative });
    match to {
        // 448 has an even mantissa, so that the tie with what would come next goes to it.
        DType::F8E4M3FN => row(464.0, false, 0x7f, 0xff),
        DType::F8E4M3FNUZ => row(248.0, true, 0x80, 0x80),
        DType::F8E5M2 => row(61440.0, true, 0x7c, 0xfc),
        DType::F8E5M2FNUZ => row(61440.0, true, 0x80, 0x80),
        DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::I4 | DType::I2 => None,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::U4 | DType::U2 => None,
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::F8E8M0 | DType::F4E2M1 => None,
        DType::String => None,
    }
}

/// Conversion to `F8E8M0`: the exponent of the magnitude, rounded to a power of two.
fn to_exponent(x: Expr, round: RoundMode, saturate: bool) -> Expr {
    let bits = apply(UnaryOp::Abs, x.clone().cast(DType::F32)).bitcast(DType::U32);
    let constant = |value: i64| Expr::int_of(DType::U32, value);
    let exponent = Expr::binary(BinaryOp::Shr, bits.clone(), constant(23));
    let mantissa = bits.and(constant(0x7f_ffff));
    let up = match round {
        RoundMode::Down => Expr::bool(false),
        RoundMode::Up => mantissa.gt(constant(0)),
        RoundMode::Nearest => mantissa.ge(constant(0x40_0000)),
    };
    let rounded = exponent.clone() + up.cast(DType::U32);
    let bounded = if saturate { rounded.min(constant(254)) } else { rounded.min(constant(255)) };
    let not_a_number = apply(UnaryOp::IsNan, x.cast(DType::F32));
    Expr::select(not_a_number, constant(255), bounded).cast(DType::U8).bitcast(DType::F8E8M0)
}

/// Conversion to fewer than 8 bits: integers keep their low bits, as the wider integers they truncate to; NaN, which
/// `F4E2M1` lacks, becomes its negative zero.
fn to_narrow(x: Expr, to: DType) -> Expr {
    if !to.is_float() {
        return x.cast(DType::I32).cast(to);
    }
    let not_a_number = apply(UnaryOp::IsNan, x.clone().cast(DType::F32));
    Expr::select(not_a_number, pattern(to, 0x8), x.cast(to))
}

/// Conversion of one value.
fn converted(x: Expr, to: DType, saturate: bool, round: Option<RoundMode>) -> Expr {
    if to == DType::F8E8M0 && x.dtype() != to {
        return to_exponent(x, round.unwrap_or(RoundMode::Nearest), saturate);
    }
    if x.dtype().is_float() && to.bits() < 8 {
        return to_narrow(x, to);
    }
    match overflow(to) {
        Some(over) if !saturate && x.dtype() != to => {
            let wide = x.cast(DType::F32);
            let size = apply(UnaryOp::Abs, wide.clone());
            let limit = Expr::float_of(DType::F32, over.limit);
            let beyond = if over.inclusive { size.ge(limit) } else { size.gt(limit) };
            let negative = wide.clone().lt(Expr::zero(DType::F32));
            let special = Expr::select(negative, pattern(to, over.negative), pattern(to, over.positive));
            Expr::select(beyond, special, wide.cast(to))
        }
        Some(_) | None => x.cast(to),
    }
}

/// Conversion of values.
pub(super) fn cast(b: &mut Builder, attrs: &CastAttrs) -> Results {
    let x = b.input(0)?;
    Ok(vec![b.compute("cast", attrs.to, &x.shape, |i| {
        converted(x.at(i.to_vec()), attrs.to, attrs.saturate, attrs.round)
    })])
}

/// The scale or zero point of element `i`: one for all, one an index of `axis`, or one a block along it.
fn parameter(operand: &Operand, i: &[Expr], axis: usize, block_size: usize) -> Expr {
    if block_size > 0 && operand.rank() == i.len() {
        let mut at = i.to_vec();
        at[axis] = i[axis].clone().floor_div(Expr::int(block_size as i64));
        return operand.at(at);
    }
    match operand.shape.as_slice() {
        [extent] if extent.as_int() != Some(1) && axis < i.len() => operand.at(vec![i[axis].clone()]),
        _ => operand.scalar(),
    }
}

/// `saturate(round(x / scale) + zero_point)`, ties to even.
pub(super) fn quantize(b: &mut Builder, attrs: &QuantizeAttrs) -> Results {
    let (x, scale, zero) = (b.input(0)?, b.input(1)?, b.optional(2));
    let to = attrs.to;
    // Scales of 8 bits are powers of two, exact in any wider type.
    let own = if scale.dtype.bytes() == 1 { DType::F32 } else { scale.dtype };
    let precision = attrs.precision.unwrap_or(own);
    Ok(vec![b.compute("quantize", to, &x.shape, |i| {
        let scale = parameter(&scale, i, attrs.axis, attrs.block_size).cast(precision);
        let quotient = (x.at(i.to_vec()).cast(precision) / scale).cast(DType::F32);
        if to.is_float() {
            return converted(quotient, to, attrs.saturate, None);
        }
        let rounded = apply(UnaryOp::Round, quotient);
        let shifted = match &zero {
            Some(zero) => rounded + parameter(zero, i, attrs.axis, attrs.block_size).cast(DType::F32),
            None => rounded,
        };
        let bits = to.bits() as i32;
        let (low, high) = if to.is_signed() {
            (-(2f64.powi(bits - 1)), 2f64.powi(bits - 1) - 1.0)
        } else {
            (0.0, 2f64.powi(bits) - 1.0)
        };
        let bound = |value| real(DType::F32, value);
        bound(low).max(bound(high).min(shifted)).cast(to)
    })])
}

/// `(x - zero_point) * scale`.
pub(super) fn dequantize(b: &mut Builder, attrs: &DequantizeAttrs) -> Results {
    let (x, scale, zero) = (b.input(0)?, b.input(1)?, b.optional(2));
    // Differences of integers are exact in 32 bits; floats have no zero point but 0.
    let wide = if x.dtype.is_float() { DType::F32 } else { DType::I32 };
    Ok(vec![b.compute("dequantize", attrs.to, &x.shape, |i| {
        let value = x.at(i.to_vec()).cast(wide);
        let centred = match &zero {
            Some(zero) => value - parameter(zero, i, attrs.axis, attrs.block_size).cast(wide),
            None => value,
        };
        let scale = parameter(&scale, i, attrs.axis, attrs.block_size).cast(DType::F32);
        (centred.cast(DType::F32) * scale).cast(attrs.to)
    })])
}
