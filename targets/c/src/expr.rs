//! Operations on one lane, as expressions.
//!
//! Operands are variables or constants. A result is assigned to a variable of its type, which is the conversion that it may still
//! lack; where it has to wrap before that, it is cast.

use tilewright_dtype::{DType, Kind};
use tilewright_te::expr::{BinaryOp, CompareOp, UnaryOp};

use crate::types::{name, wrapping};

/// A unary operation on a value of type `dtype`; nothing where it has no meaning.
pub(crate) fn unary(op: UnaryOp, dtype: DType, x: &str) -> Option<String> {
    let (ty, wide) = (name(dtype)?, wrapping(dtype));
    let suffix = if dtype == DType::F32 { "f" } else { "" };
    let calls = |name: &str| format!("{name}{suffix}({x})");
    Some(match (op, dtype.kind()) {
        (UnaryOp::Neg, Kind::Float) => format!("-{x}"),
        (UnaryOp::Neg, Kind::Int | Kind::UInt) => format!("({ty})(0 - ({wide}){x})"),
        (UnaryOp::Abs, Kind::Float) => calls("fabs"),
        (UnaryOp::Abs, Kind::Int) => format!("({ty})({x} < 0 ? 0 - ({wide}){x} : ({wide}){x})"),
        (UnaryOp::Abs, Kind::UInt) => x.to_owned(),
        (UnaryOp::Not, Kind::Bool) => format!("!{x}"),
        (UnaryOp::Not, Kind::Int | Kind::UInt) => format!("({ty})~{x}"),
        (UnaryOp::Sqrt, Kind::Float) => calls("sqrt"),
        (UnaryOp::Floor, Kind::Float) => calls("floor"),
        (UnaryOp::Ceil, Kind::Float) => calls("ceil"),
        (UnaryOp::Trunc, Kind::Float) => calls("trunc"),
        (UnaryOp::Round, Kind::Float) => calls("rint"),
        (UnaryOp::IsNan, Kind::Float) => format!("{x} != {x}"),
        _ => return None,
    })
}

/// What is known of the operands of a binary operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// Neither the result nor what it is computed from overflows.
    pub(crate) fits: bool,
    /// The left operand is not negative.
    pub(crate) is_natural: bool,
    /// The operands that are constants.
    pub(crate) left: Option<i64>,
    /// See `left`.
    pub(crate) right: Option<i64>,
}

/// A binary operation on values of type `dtype`; nothing where it has no meaning.
pub(crate) fn binary(op: BinaryOp, dtype: DType, x: &str, y: &str, known: Known) -> Option<String> {
    let (ty, wide) = (name(dtype)?, wrapping(dtype));
    let plain = |sign: &str| format!("{x} {sign} {y}");
    let wraps = |sign: &str| match known.fits || matches!(dtype, DType::U32 | DType::U64) {
        true => plain(sign),
        false => format!("({ty})(({wide}){x} {sign} ({wide}){y})"),
    };
    let calls = |name: &str| format!("tw_{name}_{dtype}({x}, {y})");
    let shifts = |sign: &str, name: &str| match known.right {
        Some(0..64) if matches!(dtype, DType::U32 | DType::U64) => {
            let by = known.right.unwrap_or_default();
            if by < dtype.bits() as i64 { format!("{x} {sign} {by}") } else { calls(name) }
        }
        _ => calls(name),
    };
    // C's division rounds to zero, which is what floors where nothing is negative.
    let divides = known.is_natural && known.right.is_some_and(|y| y > 0);
    Some(match (op, dtype.kind()) {
        (BinaryOp::Add, Kind::Float) => plain("+"),
        (BinaryOp::Sub, Kind::Float) => plain("-"),
        (BinaryOp::Mul, Kind::Float) => plain("*"),
        (BinaryOp::Div, Kind::Float) => plain("/"),
        (BinaryOp::Add, Kind::Int | Kind::UInt) => wraps("+"),
        (BinaryOp::Sub, Kind::Int | Kind::UInt) => wraps("-"),
        (BinaryOp::Mul, Kind::Int | Kind::UInt) => wraps("*"),
        (BinaryOp::And, Kind::Bool | Kind::Int | Kind::UInt) => plain("&"),
        (BinaryOp::Or, Kind::Bool | Kind::Int | Kind::UInt) => plain("|"),
        (BinaryOp::Xor, Kind::Bool | Kind::Int | Kind::UInt) => plain("^"),
        (BinaryOp::Div | BinaryOp::FloorDiv, Kind::Int | Kind::UInt) if divides => plain("/"),
        (BinaryOp::Rem | BinaryOp::FloorMod, Kind::Int | Kind::UInt) if divides => plain("%"),
        (BinaryOp::Div, Kind::Int | Kind::UInt) => calls("div"),
        (BinaryOp::Rem, Kind::Int | Kind::UInt) => calls("rem"),
        (BinaryOp::FloorDiv, Kind::Int) => calls("floordiv"),
        (BinaryOp::FloorMod, Kind::Int) => calls("floormod"),
        (BinaryOp::FloorDiv, Kind::UInt) => calls("div"),
        (BinaryOp::FloorMod, Kind::UInt) => calls("rem"),
        (BinaryOp::Shl, Kind::Int | Kind::UInt) => shifts("<<", "shl"),
        (BinaryOp::Shr, Kind::Int | Kind::UInt) => shifts(">>", "shr"),
        (BinaryOp::Min | BinaryOp::Max, Kind::Bool | Kind::Int | Kind::UInt | Kind::Float) => {
            let (wins, sign) = if op == BinaryOp::Min { (CompareOp::Lt, "<") } else { (CompareOp::Gt, ">") };
            match settled(wins, dtype, [x, y], known) {
                Some(true) => x.to_owned(),
                Some(false) => y.to_owned(),
                None => format!("{x} {sign} {y} ? {x} : {y}"),
            }
        }
        _ => return None,
    })
}

/// What a comparison of integers gives whatever they are, of a value with itself or with an end of its type: compilers warn of those.
fn settled(op: CompareOp, dtype: DType, [x, y]: [&str; 2], known: Known) -> Option<bool> {
    if dtype.is_float() {
        return None;
    }
    if x == y {
        return Some(matches!(op, CompareOp::Eq | CompareOp::Le | CompareOp::Ge));
    }
    let (least, greatest) = match (dtype, dtype.is_signed()) {
        (DType::Bool, _) => (0, 1),
        (_, true) => (i64::MIN >> (64 - dtype.bits()), i64::MAX >> (64 - dtype.bits())),
        // Of 64 bits the constant with the bits of the greatest is -1.
        (_, false) => (0, (u64::MAX >> (64 - dtype.bits())) as i64),
    };
    let is_left = |end: i64| known.left == Some(end);
    let is_right = |end: i64| known.right == Some(end);
    match op {
        CompareOp::Lt if is_right(least) || is_left(greatest) => Some(false),
        CompareOp::Gt if is_right(greatest) || is_left(least) => Some(false),
        CompareOp::Le if is_right(greatest) || is_left(least) => Some(true),
        CompareOp::Ge if is_right(least) || is_left(greatest) => Some(true),
        _ => None,
    }
}

/// A comparison; with a NaN only "not equal" holds.
pub(crate) fn compare(op: CompareOp, dtype: DType, [x, y]: [&str; 2], known: Known) -> String {
    if let Some(settled) = settled(op, dtype, [x, y], known) {
        return u8::from(settled).to_string();
    }
    format!("{x} {} {y}", op.symbol())
}

/// The conversion of a value.
pub(crate) fn cast(from: DType, to: DType, x: &str) -> Option<String> {
    let ty = name(to)?;
    Some(match (from.kind(), to.kind()) {
        _ if from == to => x.to_owned(),
        (Kind::String, _) | (_, Kind::String) => return None,
        (_, Kind::Bool) => format!("{x} != 0"),
        (Kind::Float, Kind::Int | Kind::UInt) => format!("tw_{to}_of_{from}({x})"),
        (Kind::Bool | Kind::Int | Kind::UInt | Kind::Float, _) => format!("({ty}){x}"),
    })
}

/// The same bits as another type.
pub(crate) fn bitcast(from: DType, to: DType, x: &str) -> Option<String> {
    let ty = name(to)?;
    let bits = |dtype: DType| if dtype.bits() == 64 { "uint64_t" } else { "uint32_t" };
    Some(match (from, to) {
        _ if from == to => x.to_owned(),
        (_, DType::Bool) => format!("{x} & 1"),
        _ if from.is_float() && to.is_float() => return None,
        _ if to.is_float() => format!("tw_{to}_of_bits(({}){x})", bits(from)),
        _ if from.is_float() => format!("({ty})tw_bits_of_{from}({x})"),
        _ => format!("({ty}){x}"),
    })
}
