//! Expansion of intrinsics into primitive operations.

use crate::expr::{BinaryOp, Expr, UnaryOp};

/// Whether expansions exist.
pub(crate) const READY: bool = false;

/// `op(x)` without intrinsics.
pub fn expand_unary(op: UnaryOp, x: Expr) -> Expr {
    Expr::unary(op, x)
}

/// `op(x, y)` without intrinsics.
pub fn expand_binary(op: BinaryOp, x: Expr, y: Expr) -> Expr {
    Expr::binary(op, x, y)
}
