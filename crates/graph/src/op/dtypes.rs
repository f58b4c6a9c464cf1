//! Sets of element types, of which each row of the operator table has one an operand.
//!
//! They are ONNX's, of all its versions together. Operators that only move elements take any type, also where ONNX names fewer.

use std::fmt;
use std::ops::{BitAnd, BitOr};

use tilewright_dtype::DType;

use super::kinds::{ActivationKind, BinaryOp, PoolKind, ReduceKind, ScatterReduction, UnaryOp};

/// A set of element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DTypeSet(u32);

impl DTypeSet {
    /// The set of these types.
    pub const fn of(dtypes: &[DType]) -> DTypeSet {
        let (mut bits, mut n) = (0, 0);
        while n < dtypes.len() {
            bits |= 1 << dtypes[n] as u32;
            n += 1;
        }
        DTypeSet(bits)
    }

    /// The types of either set.
    pub const fn or(self, other: DTypeSet) -> DTypeSet {
        DTypeSet(self.0 | other.0)
    }

    /// Whether a type is in the set.
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 & 1 << dtype as u32 != 0
    }
}

impl BitAnd for DTypeSet {
    type Output = DTypeSet;

    fn bitand(self, other: DTypeSet) -> DTypeSet {
        DTypeSet(self.0 & other.0)
    }
}

impl BitOr for DTypeSet {
    type Output = DTypeSet;

    fn bitor(self, other: DTypeSet) -> DTypeSet {
        self.or(other)
    }
}

impl fmt::Display for DTypeSet {
    /// The names, with commas between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = DType::ALL.iter().filter(|dtype| self.contains(**dtype)).map(|dtype| dtype.name());
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}

/// Every type.
pub(super) const ANY: DTypeSet = DTypeSet::of(&DType::ALL);
/// Floats that ONNX computes with.
pub(super) const FLOAT: DTypeSet = DTypeSet::of(&[DType::F16, DType::BF16, DType::F32, DType::F64]);
pub(super) const F32: DTypeSet = DTypeSet::of(&[DType::F32]);
/// The 8-bit floats with a mantissa.
const FLOAT8: DTypeSet =
    DTypeSet::of(&[DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ]);
const SIGNED: DTypeSet = DTypeSet::of(&[DType::I8, DType::I16, DType::I32, DType::I64]);
const UNSIGNED: DTypeSet = DTypeSet::of(&[DType::U8, DType::U16, DType::U32, DType::U64]);
/// Integers of 8 bits and more.
const INTEGER: DTypeSet = SIGNED.or(UNSIGNED);
/// Numbers that ONNX computes with.
pub(super) const NUMBER: DTypeSet = FLOAT.or(INTEGER);
/// Floats, and integers that products and sums are made of.
pub(super) const WIDE: DTypeSet = FLOAT.or(DTypeSet::of(&[DType::I32, DType::I64, DType::U32, DType::U64]));
pub(super) const BOOL: DTypeSet = DTypeSet::of(&[DType::Bool]);
pub(super) const NUMBER_OR_BOOL: DTypeSet = NUMBER.or(BOOL);
pub(super) const STRING: DTypeSet = DTypeSet::of(&[DType::String]);
/// What counts, addresses and gives extents.
pub(super) const INDEX: DTypeSet = DTypeSet::of(&[DType::I32, DType::I64]);
pub(super) const I32: DTypeSet = DTypeSet::of(&[DType::I32]);
pub(super) const BYTE: DTypeSet = DTypeSet::of(&[DType::I8, DType::U8]);
pub(super) const FLOAT_OR_BYTE: DTypeSet = FLOAT.or(BYTE);
/// What is quantised, and what with.
pub(super) const REAL: DTypeSet = FLOAT.or(I32);
pub(super) const SCALE: DTypeSet = REAL.or(DTypeSet::of(&[DType::F8E8M0]));
/// What quantisation gives.
pub(super) const QUANTISED: DTypeSet = FLOAT8.or(DTypeSet::of(&[
    DType::F4E2M1,
    DType::I4,
    DType::U4,
    DType::I2,
    DType::U2,
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
]));
pub(super) const STRING_OR_INDEX: DTypeSet = STRING.or(INDEX);

impl UnaryOp {
    /// The element types the function is defined on.
    pub fn dtypes(self) -> DTypeSet {
        use UnaryOp::*;
        match self {
            Not => BOOL,
            BitwiseNot => INTEGER,
            // Erf of integers is of old opsets.
            Abs | Sign | Erf => NUMBER,
            Neg | Relu => FLOAT | SIGNED,
            IsNan | IsInf | IsPosInf | IsNegInf => FLOAT | FLOAT8,
            Exp | Log | Sqrt | Reciprocal | Floor | Ceil | Round | Sin | Cos | Tan | Asin | Acos | Atan
            | Sinh | Cosh | Tanh | Asinh | Acosh | Atanh | Sigmoid | Softplus | Softsign | Gelu
            | GeluTanh | HardSwish | Mish => FLOAT,
        }
    }
}

impl ActivationKind {
    /// The element types the activation is defined on.
    pub fn dtypes(self) -> DTypeSet {
        use ActivationKind::*;
        match self {
            Shrink => NUMBER,
            LeakyRelu | Elu | Selu | Celu | HardSigmoid | ThresholdedRelu | Swish => FLOAT,
        }
    }
}

impl BinaryOp {
    /// The element types the function is defined on.
    pub fn dtypes(self) -> DTypeSet {
        use BinaryOp::*;
        match self {
            And | Or | Xor => BOOL,
            BitwiseAnd | BitwiseOr | BitwiseXor | ShiftLeft | ShiftRight => INTEGER,
            Add | Sub | Mul | Div | Pow | Mod | Fmod | Min | Max | Less | LessEqual | Greater
            | GreaterEqual => NUMBER,
            Equal => NUMBER_OR_BOOL | STRING,
        }
    }
}

impl ReduceKind {
    /// The element types that can be reduced so.
    pub fn dtypes(self) -> DTypeSet {
        use ReduceKind::*;
        match self {
            Max | Min => NUMBER_OR_BOOL,
            Sum | Mean | Prod | SumSquare | L1 | L2 | LogSum | LogSumExp => NUMBER,
        }
    }
}

impl PoolKind {
    /// The element types of windows.
    pub fn dtypes(self) -> DTypeSet {
        match self {
            PoolKind::Max => FLOAT_OR_BYTE,
            PoolKind::Average | PoolKind::Lp => FLOAT,
        }
    }
}

impl ScatterReduction {
    /// The element types that can be combined so.
    pub fn dtypes(self) -> DTypeSet {
        match self {
            ScatterReduction::None => ANY,
            ScatterReduction::Add | ScatterReduction::Mul | ScatterReduction::Max | ScatterReduction::Min => {
                NUMBER_OR_BOOL
            }
        }
    }
}
