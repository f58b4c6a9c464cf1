//! The meaning of every operation on one element.
//!
//! The lane loops of the machine and the constant evaluator both call these functions, with the operation a
//! constant after inlining. Integers of every type are held in an `i64`: sign-extended if signed,
//! zero-extended if unsigned (`U64` as its bit pattern, hence the `unsigned` flags).

use tilewright_dtype::DType;
use tilewright_dtype::float_format::FloatFormat;

use crate::expr::{BinaryOp, CompareOp, UnaryOp};

/// `x op y` before wrapping to the type; `unsigned` is set for `U64`.
#[inline(always)]
pub(super) fn int_binary(op: BinaryOp, unsigned: bool, x: i64, y: i64) -> i64 {
    let (ux, uy) = (x as u64, y as u64);
    match op {
        BinaryOp::Add => x.wrapping_add(y),
        BinaryOp::Sub => x.wrapping_sub(y),
        BinaryOp::Mul => x.wrapping_mul(y),
        BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Rem | BinaryOp::FloorMod if unsigned => match op {
            BinaryOp::Div | BinaryOp::FloorDiv => ux.checked_div(uy).unwrap_or(0) as i64,
            _ => ux.checked_rem(uy).unwrap_or(ux) as i64,
        },
        BinaryOp::Div => {
            if y == 0 {
                0
            } else {
                x.wrapping_div(y)
            }
        }
        BinaryOp::Rem => {
            if y == 0 {
                x
            } else {
                x.wrapping_rem(y)
            }
        }
        BinaryOp::FloorDiv => {
            if y == 0 {
                return 0;
            }
            let quotient = x.wrapping_div(y);
            let inexact = x.wrapping_rem(y) != 0;
            if inexact && (x < 0) != (y < 0) { quotient - 1 } else { quotient }
        }
        BinaryOp::FloorMod => {
            if y == 0 {
                return x;
            }
            let rest = x.wrapping_rem(y);
            if rest != 0 && (x < 0) != (y < 0) { rest + y } else { rest }
        }
        BinaryOp::Min => {
            let less = if unsigned { ux < uy } else { x < y };
            if less { x } else { y }
        }
        BinaryOp::Max => {
            let greater = if unsigned { ux > uy } else { x > y };
            if greater { x } else { y }
        }
        BinaryOp::And => x & y,
        BinaryOp::Or => x | y,
        BinaryOp::Xor => x ^ y,
        BinaryOp::Shl => {
            if uy < 64 {
                x << y
            } else {
                0
            }
        }
        BinaryOp::Shr if unsigned => {
            if uy < 64 {
                (ux >> uy) as i64
            } else {
                0
            }
        }
        BinaryOp::Shr => x >> uy.min(63),
        BinaryOp::Pow | BinaryOp::Atan2 | BinaryOp::Fmod => 0,
    }
}

/// An operation of one integer or `Bool`, before wrapping to the type.
#[inline(always)]
pub(super) fn int_unary(op: UnaryOp, dtype: DType, x: i64) -> i64 {
    match op {
        UnaryOp::Neg => x.wrapping_neg(),
        UnaryOp::Abs if dtype.is_signed() => x.wrapping_abs(),
        UnaryOp::Not if dtype == DType::Bool => x ^ 1,
        UnaryOp::Not => !x,
        UnaryOp::Abs
        | UnaryOp::Sqrt
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Trunc
        | UnaryOp::Round
        | UnaryOp::IsNan
        | UnaryOp::Exp
        | UnaryOp::ExpFtz
        | UnaryOp::Exp2Ftz
        | UnaryOp::Log
        | UnaryOp::Tanh
        | UnaryOp::Erf
        | UnaryOp::NormCdf
        | UnaryOp::Sigmoid
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tan
        | UnaryOp::Asin
        | UnaryOp::Acos
        | UnaryOp::Atan
        | UnaryOp::Sinh
        | UnaryOp::Cosh
        | UnaryOp::Asinh
        | UnaryOp::Acosh
        | UnaryOp::Atanh
        | UnaryOp::Log1p
        | UnaryOp::Expm1 => x,
    }
}

/// Comparison of integers; `unsigned` is set for `U64`.
#[inline(always)]
pub(super) fn int_compare(op: CompareOp, unsigned: bool, x: i64, y: i64) -> bool {
    // Flipping the top bit maps the unsigned order to the signed one.
    let flip = if unsigned { i64::MIN } else { 0 };
    let (x, y) = (x ^ flip, y ^ flip);
    match op {
        CompareOp::Eq => x == y,
        CompareOp::Ne => x != y,
        CompareOp::Lt => x < y,
        CompareOp::Le => x <= y,
        CompareOp::Gt => x > y,
        CompareOp::Ge => x >= y,
    }
}

macro_rules! float_operations {
    ($float:ty, $binary:ident, $unary:ident, $compare:ident) => {
        /// `x op y`; intrinsics by the reference in double precision.
        #[inline(always)]
        pub(super) fn $binary(op: BinaryOp, x: $float, y: $float) -> $float {
            match op {
                BinaryOp::Add => x + y,
                BinaryOp::Sub => x - y,
                BinaryOp::Mul => x * y,
                BinaryOp::Div => x / y,
                BinaryOp::Min => {
                    if x < y {
                        x
                    } else {
                        y
                    }
                }
                BinaryOp::Max => {
                    if x > y {
                        x
                    } else {
                        y
                    }
                }
                BinaryOp::Pow
                | BinaryOp::Atan2
                | BinaryOp::Fmod
                | BinaryOp::Rem
                | BinaryOp::FloorDiv
                | BinaryOp::FloorMod
                | BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Xor
                | BinaryOp::Shl
                | BinaryOp::Shr => reference_binary(op, x as f64, y as f64) as $float,
            }
        }

        /// An operation of one float; intrinsics by the reference in double precision.
        #[inline(always)]
        pub(super) fn $unary(op: UnaryOp, x: $float) -> $float {
            match op {
                UnaryOp::Neg => -x,
                UnaryOp::Abs => x.abs(),
                UnaryOp::Sqrt => x.sqrt(),
                UnaryOp::Floor => x.floor(),
                UnaryOp::Ceil => x.ceil(),
                UnaryOp::Trunc => x.trunc(),
                UnaryOp::Round => x.round_ties_even(),
                _ => reference_unary(op, x as f64) as $float,
            }
        }

        /// IEEE comparison.
        #[inline(always)]
        pub(super) fn $compare(op: CompareOp, x: $float, y: $float) -> bool {
            match op {
                CompareOp::Eq => x == y,
                CompareOp::Ne => x != y,
                CompareOp::Lt => x < y,
                CompareOp::Le => x <= y,
                CompareOp::Gt => x > y,
                CompareOp::Ge => x >= y,
            }
        }
    };
}
float_operations!(f32, f32_binary, f32_unary, f32_compare);
float_operations!(f64, f64_binary, f64_unary, f64_compare);

/// Intrinsics of one operand in double precision, by `libm`: what [`crate::math`] is measured against and
/// what the interpreter's double mode computes. NaN for operations that are not intrinsics.
pub fn reference_unary(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Exp | UnaryOp::ExpFtz => libm::exp(x),
        UnaryOp::Exp2Ftz => libm::exp2(x),
        UnaryOp::Log => libm::log(x),
        UnaryOp::Tanh => libm::tanh(x),
        UnaryOp::Erf => libm::erf(x),
        UnaryOp::NormCdf => 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        UnaryOp::Sigmoid if x < 0.0 => {
            // The other form would lose subnormal results to an overflowing exponential.
            let e = libm::exp(x);
            e / (1.0 + e)
        }
        UnaryOp::Sigmoid => 1.0 / (1.0 + libm::exp(-x)),
        UnaryOp::Sin => libm::sin(x),
        UnaryOp::Cos => libm::cos(x),
        UnaryOp::Tan => libm::tan(x),
        UnaryOp::Asin => libm::asin(x),
        UnaryOp::Acos => libm::acos(x),
        UnaryOp::Atan => libm::atan(x),
        UnaryOp::Sinh => libm::sinh(x),
        UnaryOp::Cosh => libm::cosh(x),
        UnaryOp::Asinh => libm::asinh(x),
        // libm's acosh is not NaN for large negative operands.
        UnaryOp::Acosh if x < 1.0 => f64::NAN,
        UnaryOp::Acosh => libm::acosh(x),
        UnaryOp::Atanh => libm::atanh(x),
        UnaryOp::Log1p => libm::log1p(x),
        UnaryOp::Expm1 => libm::expm1(x),
        UnaryOp::Neg
        | UnaryOp::Abs
        | UnaryOp::Not
        | UnaryOp::Sqrt
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Trunc
        | UnaryOp::Round
        | UnaryOp::IsNan => f64::NAN,
    }
}

/// Intrinsics of two operands in double precision; NaN for operations that are not intrinsics.
pub fn reference_binary(op: BinaryOp, x: f64, y: f64) -> f64 {
    match op {
        BinaryOp::Pow => libm::pow(x, y),
        BinaryOp::Atan2 => libm::atan2(x, y),
        BinaryOp::Fmod => libm::fmod(x, y),
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::FloorDiv
        | BinaryOp::FloorMod
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr => f64::NAN,
    }
}

/// `Cast` of a float to an integer type or `Bool`: truncates, saturates, NaN gives 0.
#[inline(always)]
pub(super) fn float_to_int(dtype: DType, x: f64) -> i64 {
    match dtype {
        DType::Bool => (x != 0.0) as i64,
        DType::U64 => x as u64 as i64,
        DType::I64 => x as i64,
        _ if dtype.is_signed() => {
            let limit = 1i64 << (dtype.bits() - 1);
            (x as i64).clamp(-limit, limit - 1)
        }
        _ => (x as i64).clamp(0, (1i64 << dtype.bits().min(62)) - 1),
    }
}

/// `x * y + z` rounded once.
#[inline(always)]
pub(super) fn f32_fma(x: f32, y: f32, z: f32) -> f32 {
    x.mul_add(y, z)
}

/// The bits of a value of a float type, rounded to the type first, zero-extended.
pub(super) fn to_bits(dtype: DType, x: f64) -> i64 {
    match FloatFormat::of(dtype) {
        Some(format) => format.encode(x) as i64,
        None if dtype == DType::F32 => (x as f32).to_bits() as i64,
        None => x.to_bits() as i64,
    }
}

/// The value of a float type with these bits.
pub(super) fn from_bits(dtype: DType, bits: i64) -> f64 {
    match FloatFormat::of(dtype) {
        Some(format) => format.decode(bits as u16),
        None if dtype == DType::F32 => f32::from_bits(bits as u32) as f64,
        None => f64::from_bits(bits as u64),
    }
}
