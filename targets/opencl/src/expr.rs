//! Operations on one lane, as expressions.

use tilewright_dtype::{DType, Kind};
use tilewright_te::expr::{BinaryOp, CompareOp, UnaryOp};

use crate::types::{int, name, unsigned, wrapping};

/// A unary operation on a value of type `dtype`; nothing where it has no meaning.
pub(crate) fn unary(op: UnaryOp, dtype: DType, x: &str) -> Option<String> {
    let (ty, wide) = (name(dtype)?, wrapping(dtype));
    Some(match (op, dtype.kind()) {
        (UnaryOp::Neg, Kind::Float) => format!("-{x}"),
        (UnaryOp::Neg, Kind::Int | Kind::UInt) => format!("({ty})(({wide})0 - ({wide}){x})"),
        (UnaryOp::Abs, Kind::Float) => format!("fabs({x})"),
        (UnaryOp::Abs, Kind::Int) => format!("({ty})({x} < 0 ? ({wide})0 - ({wide}){x} : ({wide}){x})"),
        (UnaryOp::Abs, Kind::UInt) => x.to_owned(),
        (UnaryOp::Not, Kind::Bool) => format!("!{x}"),
        (UnaryOp::Not, Kind::Int | Kind::UInt) => format!("({ty})~{x}"),
        (UnaryOp::Sqrt, Kind::Float) => format!("sqrt({x})"),
        (UnaryOp::Floor, Kind::Float) => format!("floor({x})"),
        (UnaryOp::Ceil, Kind::Float) => format!("ceil({x})"),
        (UnaryOp::Trunc, Kind::Float) => format!("trunc({x})"),
        (UnaryOp::Round, Kind::Float) => format!("rint({x})"),
        (UnaryOp::IsNan, Kind::Float) => format!("({x} != {x})"),
        _ => return None,
    })
}

/// A binary operation on values of type `dtype`; nothing where it has no meaning.
pub(crate) fn binary(op: BinaryOp, dtype: DType, x: &str, y: &str) -> Option<String> {
    let (ty, wide) = (name(dtype)?, wrapping(dtype));
    let wraps = |sign: &str| format!("({ty})(({wide}){x} {sign} ({wide}){y})");
    let calls = |name: &str| format!("{name}_{ty}({x}, {y})");
    let bits = |sign: &str| format!("({ty})({x} {sign} {y})");
    Some(match (op, dtype.kind()) {
        (BinaryOp::Add, Kind::Float) => format!("{x} + {y}"),
        (BinaryOp::Sub, Kind::Float) => format!("{x} - {y}"),
        (BinaryOp::Mul, Kind::Float) => format!("{x} * {y}"),
        (BinaryOp::Div, Kind::Float) => format!("{x} / {y}"),
        (BinaryOp::Add, Kind::Int | Kind::UInt) => wraps("+"),
        (BinaryOp::Sub, Kind::Int | Kind::UInt) => wraps("-"),
        (BinaryOp::Mul, Kind::Int | Kind::UInt) => wraps("*"),
        (BinaryOp::And, Kind::Bool | Kind::Int | Kind::UInt) => bits("&"),
        (BinaryOp::Or, Kind::Bool | Kind::Int | Kind::UInt) => bits("|"),
        (BinaryOp::Xor, Kind::Bool | Kind::Int | Kind::UInt) => bits("^"),
        (BinaryOp::Div, Kind::Int | Kind::UInt) => calls("div"),
        (BinaryOp::Rem, Kind::Int | Kind::UInt) => calls("rem"),
        (BinaryOp::FloorDiv, Kind::Int | Kind::UInt) => calls("floordiv"),
        (BinaryOp::FloorMod, Kind::Int | Kind::UInt) => calls("floormod"),
        // The amount is an unsigned number of the type's width.
        (BinaryOp::Shl, Kind::Int | Kind::UInt) => format!("shl_{ty}({x}, ({}){y})", unsigned(dtype)),
        (BinaryOp::Shr, Kind::Int | Kind::UInt) => format!("shr_{ty}({x}, ({}){y})", unsigned(dtype)),
        (BinaryOp::Min, Kind::Bool | Kind::Int | Kind::UInt | Kind::Float) => {
            format!("({x} < {y} ? {x} : {y})")
        }
        (BinaryOp::Max, Kind::Bool | Kind::Int | Kind::UInt | Kind::Float) => {
            format!("({x} > {y} ? {x} : {y})")
        }
        _ => return None,
    })
}

/// A comparison; with a NaN only "not equal" holds.
pub(crate) fn compare(op: CompareOp, x: &str, y: &str) -> String {
    format!("({x} {} {y})", op.symbol())
}

/// The conversion of a value.
pub(crate) fn cast(from: DType, to: DType, x: &str) -> Option<String> {
    let ty = name(to)?;
    Some(match (from.kind(), to.kind()) {
        _ if from == to => x.to_owned(),
        (Kind::String, _) | (_, Kind::String) => return None,
        (_, Kind::Bool) => format!("({x} != 0)"),
        (Kind::Float, Kind::Int | Kind::UInt) => {
            format!("({x} != {x} ? {} : convert_{ty}_sat({x}))", int(to, 0))
        }
        (Kind::Bool, _) => format!("({ty}){x}"),
        (Kind::Int | Kind::UInt, Kind::Int | Kind::UInt) => format!("({ty}){x}"),
        (Kind::Int | Kind::UInt | Kind::Float, Kind::Float) => format!("convert_{ty}({x})"),
    })
}

/// The same bits as another type.
pub(crate) fn bitcast(from: DType, to: DType, x: &str) -> Option<String> {
    let ty = name(to)?;
    Some(match (from, to) {
        _ if from == to => x.to_owned(),
        (DType::Bool, _) => format!("({ty}){x}"),
        (_, DType::Bool) => format!("(bool)({x} & 1)"),
        _ => format!("as_{ty}({x})"),
    })
}
