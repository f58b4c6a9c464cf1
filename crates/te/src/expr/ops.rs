//! The operations of expressions, and their names in text forms.

use serde::{Deserialize, Serialize};

/// Operations of one operand.
///
/// Those from [`UnaryOp::Exp`] on are *intrinsics*: `crate::math` expands them into the operations before
/// them, so that every code generator and the interpreter compute the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnaryOp {
    /// Negation; flips the sign bit of a float.
    Neg,
    /// Absolute value; clears the sign bit of a float.
    Abs,
    /// Logical not of a `Bool`, bitwise complement of an integer.
    Not,
    /// Correctly rounded square root of an `F32` or `F64`.
    Sqrt,
    /// Round toward minus infinity.
    Floor,
    /// Round toward plus infinity.
    Ceil,
    /// Round toward zero.
    Trunc,
    /// Round to nearest, ties to even.
    Round,
    /// Whether a float is NaN; gives `Bool`.
    IsNan,
    /// Intrinsic: e to the operand.
    Exp,
    /// Intrinsic: e to an operand of at most 0, with subnormal results flushed to 0. A positive operand may give anything.
    ExpFtz,
    /// Intrinsic: 2 to an operand of at most 0, in `F32` 0 below 2^-126.5. A positive operand may give anything.
    Exp2Ftz,
    /// Intrinsic: natural logarithm.
    Log,
    /// Intrinsic: hyperbolic tangent.
    Tanh,
    /// Intrinsic: error function.
    Erf,
    /// Intrinsic: distribution function of the standard normal distribution, `(1 + erf(x / sqrt(2))) / 2`.
    NormCdf,
    /// Intrinsic: logistic function `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Intrinsic: sine.
    Sin,
    /// Intrinsic: cosine.
    Cos,
    /// Intrinsic: tangent.
    Tan,
    /// Intrinsic: inverse sine.
    Asin,
    /// Intrinsic: inverse cosine.
    Acos,
    /// Intrinsic: inverse tangent.
    Atan,
    /// Intrinsic: hyperbolic sine.
    Sinh,
    /// Intrinsic: hyperbolic cosine.
    Cosh,
    /// Intrinsic: inverse hyperbolic sine.
    Asinh,
    /// Intrinsic: inverse hyperbolic cosine.
    Acosh,
    /// Intrinsic: inverse hyperbolic tangent.
    Atanh,
    /// Intrinsic: `log(1 + x)` without loss near zero.
    Log1p,
    /// Intrinsic: `exp(x) - 1` without loss near zero.
    Expm1,
}

/// Operations of two operands; see the module's documentation for edge cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum BinaryOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient: IEEE for floats, truncating for integers.
    Div,
    /// Remainder of truncating integer division (sign of the dividend).
    Rem,
    /// Integer quotient rounded toward minus infinity.
    FloorDiv,
    /// Integer remainder with the divisor's sign.
    FloorMod,
    /// Lesser operand, the second if unordered.
    Min,
    /// Greater operand, the second if unordered.
    Max,
    /// Bitwise or logical and.
    And,
    /// Bitwise or logical or.
    Or,
    /// Bitwise or logical exclusive or.
    Xor,
    /// Left shift of an integer.
    Shl,
    /// Right shift of an integer, arithmetic if signed.
    Shr,
    /// Intrinsic: first operand to the power of the second, floats.
    Pow,
    /// Intrinsic: angle of the point (second, first), floats.
    Atan2,
    /// Intrinsic: remainder with the dividend's sign of a float division (C `fmod`).
    Fmod,
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CompareOp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

impl UnaryOp {
    /// Every operation.
    #[rustfmt::skip]
    pub const ALL: [UnaryOp; 30] = [
        UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Not, UnaryOp::Sqrt, UnaryOp::Floor, UnaryOp::Ceil, UnaryOp::Trunc, UnaryOp::Round,
        UnaryOp::IsNan, UnaryOp::Exp, UnaryOp::ExpFtz, UnaryOp::Exp2Ftz, UnaryOp::Log, UnaryOp::Tanh, UnaryOp::Erf, UnaryOp::NormCdf, UnaryOp::Sigmoid, UnaryOp::Sin,
        UnaryOp::Cos, UnaryOp::Tan, UnaryOp::Asin, UnaryOp::Acos, UnaryOp::Atan, UnaryOp::Sinh, UnaryOp::Cosh, UnaryOp::Asinh,
        UnaryOp::Acosh, UnaryOp::Atanh, UnaryOp::Log1p, UnaryOp::Expm1,
    ];

    /// The name in text forms.
    pub const fn name(self) -> &'static str {
        use UnaryOp::*;
        match self {
            Neg => "neg",
            Abs => "abs",
            Not => "not",
            Sqrt => "sqrt",
            Floor => "floor",
            Ceil => "ceil",
            Trunc => "trunc",
            Round => "round",
            IsNan => "is_nan",
            Exp => "exp",
            ExpFtz => "exp_ftz",
            Exp2Ftz => "exp2_ftz",
            Log => "log",
            Tanh => "tanh",
            Erf => "erf",
            NormCdf => "norm_cdf",
            Sigmoid => "sigmoid",
            Sin => "sin",
            Cos => "cos",
            Tan => "tan",
            Asin => "asin",
            Acos => "acos",
            Atan => "atan",
            Sinh => "sinh",
            Cosh => "cosh",
            Asinh => "asinh",
            Acosh => "acosh",
            Atanh => "atanh",
            Log1p => "log1p",
            Expm1 => "expm1",
        }
    }

    /// Whether `crate::math` must expand the operation before a code generator sees it.
    pub const fn is_intrinsic(self) -> bool {
        self as u8 >= UnaryOp::Exp as u8
    }
}

impl BinaryOp {
    /// Every operation.
    #[rustfmt::skip]
    pub const ALL: [BinaryOp; 17] = [
        BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Div, BinaryOp::Rem, BinaryOp::FloorDiv, BinaryOp::FloorMod,
        BinaryOp::Min, BinaryOp::Max, BinaryOp::And, BinaryOp::Or, BinaryOp::Xor, BinaryOp::Shl, BinaryOp::Shr,
        BinaryOp::Pow, BinaryOp::Atan2, BinaryOp::Fmod,
    ];

    /// The name in text forms (infix operators have a symbol as well, see the printer).
    pub const fn name(self) -> &'static str {
        use BinaryOp::*;
        match self {
            Add => "add",
            Sub => "sub",
            Mul => "mul",
            Div => "div",
            Rem => "rem",
            FloorDiv => "floordiv",
            FloorMod => "floormod",
            Min => "min",
            Max => "max",
            And => "and",
            Or => "or",
            Xor => "xor",
            Shl => "shl",
            Shr => "shr",
            Pow => "pow",
            Atan2 => "atan2",
            Fmod => "fmod",
        }
    }

    /// Whether `crate::math` must expand the operation before a code generator sees it.
    pub const fn is_intrinsic(self) -> bool {
        matches!(self, BinaryOp::Pow | BinaryOp::Atan2 | BinaryOp::Fmod)
    }
}

impl CompareOp {
    /// Every comparison.
    #[rustfmt::skip]
    pub const ALL: [CompareOp; 6] =
        [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge];

    /// The infix symbol in text forms.
    pub const fn symbol(self) -> &'static str {
        match self {
            CompareOp::Eq => "==",
            CompareOp::Ne => "!=",
            CompareOp::Lt => "<",
            CompareOp::Le => "<=",
            CompareOp::Gt => ">",
            CompareOp::Ge => ">=",
        }
    }
}
