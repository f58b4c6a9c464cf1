//! Narrow float formats: encoding with round-to-nearest-even and decoding, by integer arithmetic.
//!
//! Conversion into an 8- or 4-bit format saturates to the greatest finite value, infinities included (the
//! ONNX `Cast` default); into `F16` and `BF16` it overflows to infinity. NaN stays NaN where the format has
//! one and becomes the greatest value of its sign in `F4E2M1`. Zero and negative values become the least
//! value of `F8E8M0`, which has neither.

use crate::DType;

/// Layout of a float format of at most 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// Whether the top bit is a sign.
    pub signed: bool,
    /// Bits of the stored mantissa.
    pub mantissa_bits: u32,
    /// Exponent bias.
    pub bias: i32,
    /// Bits of the greatest finite value, without sign.
    pub max_finite: u16,
    /// Bits that values above `max_finite` get, without sign.
    pub overflow: u16,
    /// Bits of the NaN that conversions produce, without sign.
    pub nan: u16,
    /// Whether the only NaN is the pattern of negative zero.
    pub nan_is_negative_zero: bool,
    /// Total bits.
    pub bits: u32,
}

impl FloatFormat {
    /// The format of a narrow float type; `None` for `F32`, `F64` and types that are not floats.
    #[rustfmt::skip]
    pub const fn of(dtype: DType) -> Option<FloatFormat> {
        const fn format(bits: u32, mantissa_bits: u32, bias: i32, max_finite: u16, overflow: u16, nan: u16) -> FloatFormat {
            FloatFormat {
                signed: true, mantissa_bits, bias, max_finite, overflow, nan, nan_is_negative_zero: false, bits,
            }
        }
        Some(match dtype {
            DType::F16 => format(16, 10, 15, 0x7bff, 0x7c00, 0x7e00),
            DType::BF16 => format(16, 7, 127, 0x7f7f, 0x7f80, 0x7fc0),
            DType::F8E4M3FN => format(8, 3, 7, 0x7e, 0x7e, 0x7f),
            DType::F8E4M3FNUZ => FloatFormat { nan_is_negative_zero: true, ..format(8, 3, 8, 0x7f, 0x7f, 0x80) },
            DType::F8E5M2 => format(8, 2, 15, 0x7b, 0x7b, 0x7e),
            DType::F8E5M2FNUZ => FloatFormat { nan_is_negative_zero: true, ..format(8, 2, 16, 0x7f, 0x7f, 0x80) },
            DType::F4E2M1 => format(4, 1, 1, 0x7, 0x7, 0x7),
            DType::F8E8M0 => FloatFormat { signed: false, ..format(8, 0, 127, 0xfe, 0xfe, 0xff) },
            DType::Bool | DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::U8 | DType::U16 | DType::U32
            | DType::U64 | DType::F32 | DType::F64 | DType::I4 | DType::U4 | DType::I2 | DType::U2
            | DType::String => return None,
        })
    }

    /// The bits of the value nearest to `value`, ties to even.
    pub fn encode(self, value: f64) -> u16 {
        let sign = if self.signed { ((value.to_bits() >> 63) as u16) << (self.bits - 1) } else { 0 };
        if value.is_nan() {
            return if self.nan_is_negative_zero { self.nan } else { self.nan | sign };
        }
        if !self.signed {
            return self.encode_power_of_two(value);
        }
        let magnitude = value.abs();
        // The spacing of the format around the value: that of its binade, or of the subnormals.
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - self.bias);
        let code = if exponent + self.bias > 1 << (self.bits - 1 - self.mantissa_bits) {
            self.overflow
        } else {
            // Exact: scaling by a power of two; at most 12 bits remain before the point.
            let scaled = magnitude * power_of_two(self.mantissa_bits as i32 - exponent);
            let steps = round_ties_even(scaled) as i64;
            let code = steps + (((exponent + self.bias - 1) as i64) << self.mantissa_bits);
            if code > self.max_finite as i64 { self.overflow } else { code as u16 }
        };
        if self.nan_is_negative_zero && code == 0 { 0 } else { code | sign }
    }

    /// `F8E8M0`: the nearest power of two, ties to the even exponent code.
    fn encode_power_of_two(self, value: f64) -> u16 {
        if value <= 0.0 {
            return 0;
        }
        let bits = value.to_bits();
        let (mut code, fraction) = ((bits >> 52) as i32 - 1023 + self.bias, bits & ((1 << 52) - 1));
        let half = 1 << 51;
        if fraction > half || (fraction == half && code & 1 == 1) {
            code += 1;
        }
        code.clamp(0, self.max_finite as i32) as u16
    }

    /// The value of a bit pattern; exact.
    pub fn decode(self, code: u16) -> f64 {
        if !self.signed {
            return if code == self.nan { f64::NAN } else { power_of_two(code as i32 - self.bias) };
        }
        let sign_bit = 1u16 << (self.bits - 1);
        if self.nan_is_negative_zero && code == sign_bit {
            return f64::NAN;
        }
        let magnitude = code & (sign_bit - 1);
        let has_infinity = self.bits == 16 || (self.mantissa_bits == 2 && !self.nan_is_negative_zero);
        let value = if has_infinity && magnitude > self.max_finite {
            if magnitude == self.max_finite + 1 { f64::INFINITY } else { f64::NAN }
        } else if !self.nan_is_negative_zero && magnitude > self.max_finite {
            f64::NAN
        } else {
            let fraction = (magnitude & ((1 << self.mantissa_bits) - 1)) as f64;
            let exponent = (magnitude >> self.mantissa_bits) as i32;
            let leading = if exponent == 0 { 0.0 } else { (1u32 << self.mantissa_bits) as f64 };
            (leading + fraction) * power_of_two(exponent.max(1) - self.bias - self.mantissa_bits as i32)
        };
        if code & sign_bit != 0 { -value } else { value }
    }
}

/// The nearest integer of a value from 0 to 2^51, ties to even. `core` has no such function.
fn round_ties_even(value: f64) -> f64 {
    // From 2^52 on doubles are integers, and the addition rounds to nearest even.
    const SHIFT: f64 = (1u64 << 52) as f64;
    value + SHIFT - SHIFT
}

/// `2^exponent` for exponents of normal `f64` values.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// Rounds a value to the nearest one of a float type; the identity for `F64`.
pub fn round_to(dtype: DType, value: f64) -> f64 {
    match FloatFormat::of(dtype) {
        Some(format) => format.decode(format.encode(value)),
        None if dtype == DType::F32 => value as f32 as f64,
        None => value,
    }
}
