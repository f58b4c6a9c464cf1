//! Element types of tensors, shared by every layer from the ONNX importer to the runtime.
//!
//! The crate is `no_std` and depends on no other crate of the workspace: the runtime uses it on boards.
#![no_std]

#[cfg(feature = "numbers")]
extern crate alloc;

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

#[cfg(feature = "numbers")]
pub mod float_format;
#[cfg(feature = "numbers")]
pub mod numbers;

/// The type of one tensor element.
///
/// Sub-byte types (`I2`, `U2`, `I4`, `U4`, `F4E2M1`) name the value set; in memory every element of them
/// takes one byte of its own, so that all addressing stays linear. Importers unpack, exporters pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum DType {
    /// Truth value, one byte, 0 or 1.
    Bool = 0,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// 8-bit float, 4 exponent bits, finite only.
    F8E4M3FN,
    /// 8-bit float, 4 exponent bits, finite only, no negative zero.
    F8E4M3FNUZ,
    /// 8-bit float, 5 exponent bits.
    F8E5M2,
    /// 8-bit float, 5 exponent bits, finite only, no negative zero.
    F8E5M2FNUZ,
    /// 8-bit exponent without mantissa (scales of block formats).
    F8E8M0,
    /// 4-bit float, one element a byte in memory.
    F4E2M1,
    /// Signed 4-bit integer, one element a byte in memory.
    I4,
    /// Unsigned 4-bit integer, one element a byte in memory.
    U4,
    /// Signed 2-bit integer, one element a byte in memory.
    I2,
    /// Unsigned 2-bit integer, one element a byte in memory.
    U2,
    /// UTF-8 string; only host operators touch it, kernels never do.
    String,
}

/// What kind of number a [`DType`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Truth values.
    Bool,
    /// Signed integers.
    Int,
    /// Unsigned integers.
    UInt,
    /// Floating point of any format.
    Float,
    /// Strings.
    String,
}

impl DType {
    /// Every type, in discriminant order.
    #[rustfmt::skip]
    pub const ALL: [DType; 24] = [
        DType::Bool, DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64,
        DType::F16, DType::BF16, DType::F32, DType::F64, DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2,
        DType::F8E5M2FNUZ, DType::F8E8M0, DType::F4E2M1, DType::I4, DType::U4, DType::I2, DType::U2, DType::String,
    ];

    /// What kind of number the type holds.
    pub const fn kind(self) -> Kind {
        use DType::*;
        match self {
            Bool => Kind::Bool,
            I8 | I16 | I32 | I64 | I4 | I2 => Kind::Int,
            U8 | U16 | U32 | U64 | U4 | U2 => Kind::UInt,
            F16 | BF16 | F32 | F64 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 | F4E2M1 => {
                Kind::Float
            }
            String => Kind::String,
        }
    }

    /// Bytes of one element in memory; 0 for strings, which live outside tensors' flat storage.
    pub const fn bytes(self) -> usize {
        use DType::*;
        match self {
            I64 | U64 | F64 => 8,
            I32 | U32 | F32 => 4,
            I16 | U16 | F16 | BF16 => 2,
            Bool | I8 | U8 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ | F8E8M0 | F4E2M1 | I4 | U4 | I2
            | U2 => 1,
            String => 0,
        }
    }

    /// Significant bits of one element: what a packed file format would store.
    pub const fn bits(self) -> usize {
        use DType::*;
        match self {
            I4 | U4 | F4E2M1 => 4,
            I2 | U2 => 2,
            _ => self.bytes() * 8,
        }
    }

    /// Whether the type is a floating-point type of any width.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), Kind::Float)
    }

    /// Whether the type is a signed or unsigned integer.
    pub const fn is_integer(self) -> bool {
        matches!(self.kind(), Kind::Int | Kind::UInt)
    }

    /// Whether the type is a signed integer.
    pub const fn is_signed(self) -> bool {
        matches!(self.kind(), Kind::Int)
    }

    /// The type with the given discriminant, as stored in artifacts.
    pub fn from_u8(code: u8) -> Option<DType> {
        Self::ALL.get(code as usize).copied()
    }

    /// The name in text forms and messages (`f32`, `i64`, `bool`).
    pub const fn name(self) -> &'static str {
        use DType::*;
        match self {
            Bool => "bool",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            U8 => "u8",
            U16 => "u16",
            U32 => "u32",
            U64 => "u64",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
            F8E4M3FN => "f8e4m3fn",
            F8E4M3FNUZ => "f8e4m3fnuz",
            F8E5M2 => "f8e5m2",
            F8E5M2FNUZ => "f8e5m2fnuz",
            F8E8M0 => "f8e8m0",
            F4E2M1 => "f4e2m1",
            I4 => "i4",
            U4 => "u4",
            I2 => "i2",
            U2 => "u2",
            String => "string",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not the name of a [`DType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownDType;

impl fmt::Display for UnknownDType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown element type")
    }
}

impl core::error::Error for UnknownDType {}

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(name: &str) -> Result<DType, UnknownDType> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or(UnknownDType)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for (code, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, code);
            assert_eq!(DType::from_u8(code as u8), Some(dtype));
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        assert_eq!(DType::from_u8(24), None);
        assert_eq!("f31".parse::<DType>(), Err(UnknownDType));
    }
}
