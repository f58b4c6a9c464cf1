//! Printing of expressions.

use std::fmt::{self, Write};

use crate::expr::{BinaryOp, Buffer, Expr, ExprKind, Var};
use tilewright_dtype::DType;

/// Where the printer takes names from.
pub trait Names {
    /// Writes a variable's name.
    fn var(&self, f: &mut dyn Write, var: Var) -> fmt::Result;
    /// Writes a buffer's name.
    fn buffer(&self, f: &mut dyn Write, buffer: Buffer) -> fmt::Result;
}

/// Names that are just the ids (`v3`, `b1`): for messages where no function is at hand.
pub struct IdNames;

impl Names for IdNames {
    fn var(&self, f: &mut dyn Write, var: Var) -> fmt::Result {
        write!(f, "{var}")
    }

    fn buffer(&self, f: &mut dyn Write, buffer: Buffer) -> fmt::Result {
        write!(f, "{buffer}")
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_expr(f, self, &IdNames)
    }
}

/// Writes an expression: infix operators fully parenthesised, everything else as `name(operands)`.
pub fn write_expr(f: &mut dyn Write, expr: &Expr, names: &dyn Names) -> fmt::Result {
    let dtype = expr.dtype();
    match expr.kind() {
        ExprKind::Int(value) => match dtype {
            DType::I64 => write!(f, "{value}"),
            DType::Bool => f.write_str(if *value != 0 { "true" } else { "false" }),
            _ => write!(f, "{dtype}({value})"),
        },
        ExprKind::Float(bits) => write!(f, "{dtype}({:?})", f64::from_bits(*bits)),
        ExprKind::Var(var) => names.var(f, *var),
        ExprKind::Unary(op, a) => call(f, op.name(), &[a], names),
        ExprKind::Binary(op, a, b) => match infix(*op) {
            Some(symbol) => {
                f.write_char('(')?;
                write_expr(f, a, names)?;
                write!(f, " {symbol} ")?;
                write_expr(f, b, names)?;
                f.write_char(')')
            }
            None => call(f, op.name(), &[a, b], names),
        },
        ExprKind::Compare(op, a, b) => {
            f.write_char('(')?;
            write_expr(f, a, names)?;
            write!(f, " {} ", op.symbol())?;
            write_expr(f, b, names)?;
            f.write_char(')')
        }
        ExprKind::Select(a, b, c) => call(f, "select", &[a, b, c], names),
        ExprKind::Cast(a) => call(f, &format!("cast.{dtype}"), &[a], names),
        ExprKind::Bitcast(a) => call(f, &format!("bitcast.{dtype}"), &[a], names),
        ExprKind::Fma(a, b, c) => call(f, "fma", &[a, b, c], names),
        ExprKind::Load(buffer, indices) => {
            names.buffer(f, *buffer)?;
            f.write_char('[')?;
            for (i, index) in indices.iter().enumerate() {
                if i > 0 {
                    f.write_str(", ")?;
                }
                write_expr(f, index, names)?;
            }
            f.write_char(']')
        }
    }
}

/// The infix symbol of an operator that has one.
fn infix(op: BinaryOp) -> Option<&'static str> {
    match op {
        BinaryOp::Add => Some("+"),
        BinaryOp::Sub => Some("-"),
        BinaryOp::Mul => Some("*"),
        BinaryOp::Div => Some("/"),
        BinaryOp::And => Some("&"),
        BinaryOp::Or => Some("|"),
        BinaryOp::Xor => Some("^"),
        BinaryOp::Rem
        | BinaryOp::FloorDiv
        | BinaryOp::FloorMod
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Pow
        | BinaryOp::Atan2
        | BinaryOp::Fmod => None,
    }
}

fn call(f: &mut dyn Write, name: &str, operands: &[&Expr], names: &dyn Names) -> fmt::Result {
    write!(f, "{name}(")?;
    for (i, operand) in operands.iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        write_expr(f, operand, names)?;
    }
    f.write_char(')')
}
