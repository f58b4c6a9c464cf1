//! Operations on one lane, as bits.

use tilewright_dtype::{DType, Kind};
use tilewright_te::expr::{BinaryOp, CompareOp, UnaryOp, wrap};

/// The bits of an integer wrapped to the type.
pub fn from_int(dtype: DType, value: i128) -> u64 {
    if dtype == DType::Bool {
        return u64::from(value != 0);
    }
    let spare = 64 - dtype.bits();
    ((value as u64) << spare) >> spare
}

/// The bits of a float rounded to the type.
pub fn from_float(dtype: DType, value: f64) -> u64 {
    if dtype == DType::F32 { u64::from((value as f32).to_bits()) } else { value.to_bits() }
}

/// The integer value of bits.
fn to_int(dtype: DType, bits: u64) -> i128 {
    let extended = wrap(dtype, bits as i64);
    if dtype.is_signed() { i128::from(extended) } else { i128::from(extended as u64) }
}

/// The value of a float's bits; exact.
fn to_float(dtype: DType, bits: u64) -> f64 {
    if dtype == DType::F32 { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) }
}

/// Whether an element in memory is a NaN.
pub fn is_nan(dtype: DType, bytes: &[u8]) -> bool {
    to_float(dtype, element(bytes)).is_nan()
}

/// An element in memory for a message.
pub fn show(dtype: DType, bytes: &[u8]) -> String {
    let bits = element(bytes);
    if dtype.is_float() {
        format!("{:?} ({bits:#x})", to_float(dtype, bits))
    } else {
        to_int(dtype, bits).to_string()
    }
}

fn element(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

pub(super) fn unary(op: UnaryOp, dtype: DType, bits: u64) -> Result<u64, String> {
    let (x, n) = (to_float(dtype, bits), to_int(dtype, bits));
    let of_float = dtype.is_float();
    Ok(match op {
        UnaryOp::Neg if of_float => bits ^ 1 << (dtype.bits() - 1),
        UnaryOp::Abs if of_float => bits & !(1 << (dtype.bits() - 1)),
        UnaryOp::Neg => from_int(dtype, -n),
        UnaryOp::Abs => from_int(dtype, n.abs()),
        UnaryOp::Not if dtype == DType::Bool => 1 - bits,
        UnaryOp::Not => from_int(dtype, !n),
        // The root of a binary32 rounded twice is the root rounded once.
        UnaryOp::Sqrt => from_float(dtype, x.sqrt()),
        UnaryOp::Floor => from_float(dtype, x.floor()),
        UnaryOp::Ceil => from_float(dtype, x.ceil()),
        UnaryOp::Trunc => from_float(dtype, x.trunc()),
        UnaryOp::Round => from_float(dtype, x.round_ties_even()),
        UnaryOp::IsNan => u64::from(x.is_nan()),
        intrinsic => return Err(format!("{} was not expanded", intrinsic.name())),
    })
}

pub(super) fn binary(op: BinaryOp, dtype: DType, a: u64, b: u64) -> Result<u64, String> {
    match op {
        BinaryOp::Min => return Ok(if compare(CompareOp::Lt, dtype, a, b) { a } else { b }),
        BinaryOp::Max => return Ok(if compare(CompareOp::Gt, dtype, a, b) { a } else { b }),
        _ => {}
    }
    if dtype.is_float() {
        let (x, y) = (to_float(dtype, a), to_float(dtype, b));
        // Of two binary32 operands, the binary64 result rounds to the right binary32.
        let result = match op {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x * y,
            BinaryOp::Div => x / y,
            other => return Err(format!("{} of {dtype}", other.name())),
        };
        return Ok(from_float(dtype, result));
    }
    let (x, y) = (to_int(dtype, a), to_int(dtype, b));
    let width = dtype.bits() as i128;
    // The amount of a shift is unsigned.
    let by = i128::from(b);
    let floor = |x: i128, y: i128| x.div_euclid(y) - i128::from(y < 0 && x.rem_euclid(y) != 0);
    Ok(from_int(
        dtype,
        match op {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x.wrapping_mul(y),
            BinaryOp::Div => x.checked_div(y).unwrap_or(0),
            BinaryOp::Rem => x.checked_rem(y).unwrap_or(x),
            BinaryOp::FloorDiv => {
                if y == 0 {
                    0
                } else {
                    floor(x, y)
                }
            }
            BinaryOp::FloorMod => {
                if y == 0 {
                    x
                } else {
                    x - floor(x, y) * y
                }
            }
            BinaryOp::And => x & y,
            BinaryOp::Or => x | y,
            BinaryOp::Xor => x ^ y,
            BinaryOp::Shl => {
                if by < width {
                    x << by
                } else {
                    0
                }
            }
            BinaryOp::Shr => x >> by.min(100),
            other => return Err(format!("{} was not expanded", other.name())),
        },
    ))
}

pub(super) fn compare(op: CompareOp, dtype: DType, a: u64, b: u64) -> bool {
    let order = match dtype.is_float() {
        true => to_float(dtype, a).partial_cmp(&to_float(dtype, b)),
        false => Some(to_int(dtype, a).cmp(&to_int(dtype, b))),
    };
    match op {
        CompareOp::Eq => order.is_some_and(|order| order.is_eq()),
        CompareOp::Ne => order.is_none_or(|order| order.is_ne()),
        CompareOp::Lt => order.is_some_and(|order| order.is_lt()),
        CompareOp::Le => order.is_some_and(|order| order.is_le()),
        CompareOp::Gt => order.is_some_and(|order| order.is_gt()),
        CompareOp::Ge => order.is_some_and(|order| order.is_ge()),
    }
}

pub(super) fn cast(from: DType, to: DType, bits: u64) -> u64 {
    match (from.kind(), to.kind()) {
        (Kind::Float, Kind::Float) => from_float(to, to_float(from, bits)),
        (Kind::Float, Kind::Bool) => u64::from(to_float(from, bits) != 0.0),
        (Kind::Float, _) => {
            // Rust's conversions saturate and take NaN to 0, as kernels do; to 128 bits nothing is lost.
            let (low, high) = match to.is_signed() {
                true => (-(1i128 << (to.bits() - 1)), (1i128 << (to.bits() - 1)) - 1),
                false => (0, (1i128 << to.bits()) - 1),
            };
            from_int(to, (to_float(from, bits) as i128).clamp(low, high))
        }
        (_, Kind::Float) if to == DType::F32 => u64::from((to_int(from, bits) as f32).to_bits()),
        (_, Kind::Float) => (to_int(from, bits) as f64).to_bits(),
        (_, _) => from_int(to, to_int(from, bits)),
    }
}

pub(super) fn fma(dtype: DType, a: u64, b: u64, c: u64) -> Result<u64, String> {
    match dtype {
        DType::F32 => {
            let [a, b, c] = [a, b, c].map(|bits| f32::from_bits(bits as u32));
            Ok(u64::from(a.mul_add(b, c).to_bits()))
        }
        DType::F64 => {
            let [a, b, c] = [a, b, c].map(f64::from_bits);
            Ok(a.mul_add(b, c).to_bits())
        }
        other => Err(format!("fma of {other}")),
    }
}
