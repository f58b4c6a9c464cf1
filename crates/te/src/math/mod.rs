//! Expansion of intrinsics into primitive operations, so that the interpreter and every code generator
//! compute the same bits.
//!
//! Expansions are branch-free and without tables: arithmetic, fused multiply-add, comparisons, selects,
//! shifts and bit casts. They share sub-expressions heavily, so that whoever walks an expanded expression
//! must visit shared nodes once. Passes that inspect or rewrite expressions run before this one.
//!
//! `F16` and `BF16` intrinsics are computed in `F32` and rounded; [`narrow`](narrow_floats) removes those
//! types altogether. Accuracy is documented, with the measured errors, in `docs/numerics.md`.

mod build;
mod double;
mod erf;
mod fused;
mod narrow;
mod power;
mod single;
#[cfg(test)]
mod tests;
mod trigonometric;

use rustc_hash::FxHashMap;
use tilewright_dtype::DType;

use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp};
use crate::func::{Func, Stmt};

pub use fused::expand_fma;
pub use narrow::narrow_floats;

/// `op(x)` without intrinsics at the root; `x` is not expanded.
pub fn expand_unary(op: UnaryOp, x: Expr) -> Expr {
    match x.dtype() {
        DType::F64 => double_unary(op, &x).unwrap_or_else(|| Expr::unary(op, x)),
        DType::F32 => single_unary(op, &x).unwrap_or_else(|| Expr::unary(op, x)),
        dtype if dtype.is_float() && op.is_intrinsic() => expand_unary(op, x.cast(DType::F32)).cast(dtype),
        _ => Expr::unary(op, x),
    }
}

/// `op(x, y)` without intrinsics at the root; the operands are not expanded.
pub fn expand_binary(op: BinaryOp, x: Expr, y: Expr) -> Expr {
    let dtype = x.dtype();
    match dtype {
        DType::F64 | DType::F32 => match op {
            BinaryOp::Pow => power::pow(&x, &y),
            BinaryOp::Fmod => power::fmod(&x, &y),
            BinaryOp::Atan2 => {
                let wide = |e: Expr| e.cast(DType::F64);
                trigonometric::atan2(&wide(x), &wide(y)).cast(dtype)
            }
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
            | BinaryOp::Shr => Expr::binary(op, x, y),
        },
        _ if dtype.is_float() && op.is_intrinsic() => {
            expand_binary(op, x.cast(DType::F32), y.cast(DType::F32)).cast(dtype)
        }
        _ => Expr::binary(op, x, y),
    }
}

/// An `F32` intrinsic: in single precision where that pays, otherwise through double precision.
fn single_unary(op: UnaryOp, x: &Expr) -> Option<Expr> {
    match op {
        UnaryOp::Exp => Some(single::exp(x)),
        UnaryOp::ExpFtz => Some(single::exp_ftz(x)),
        UnaryOp::Exp2Ftz => Some(single::exp2_ftz(x)),
        UnaryOp::Log => Some(single::log(x)),
        UnaryOp::Tanh => Some(single::tanh(x)),
        UnaryOp::Erf => Some(single::erf(x)),
        UnaryOp::NormCdf => Some(single::norm_cdf(x)),
        UnaryOp::Sigmoid => Some(single::sigmoid(x)),
        _ => double_unary(op, &x.clone().cast(DType::F64)).map(|value| value.cast(DType::F32)),
    }
}

/// An `F64` intrinsic; `None` for operations that are not.
fn double_unary(op: UnaryOp, x: &Expr) -> Option<Expr> {
    Some(match op {
        UnaryOp::Exp => double::exp(x),
        UnaryOp::ExpFtz => double::exp_ftz(x),
        UnaryOp::Exp2Ftz => double::exp2_ftz(x),
        UnaryOp::Log => double::log(x),
        UnaryOp::Tanh => double::tanh(x),
        UnaryOp::Erf => erf::erf(x),
        UnaryOp::NormCdf => erf::norm_cdf(x),
        UnaryOp::Sigmoid => double::sigmoid(x),
        UnaryOp::Sin => trigonometric::sin(x),
        UnaryOp::Cos => trigonometric::cos(x),
        UnaryOp::Tan => trigonometric::tan(x),
        UnaryOp::Asin => trigonometric::asin(x),
        UnaryOp::Acos => trigonometric::acos(x),
        UnaryOp::Atan => trigonometric::atan(x),
        UnaryOp::Sinh => double::sinh(x),
        UnaryOp::Cosh => double::cosh(x),
        UnaryOp::Asinh => double::asinh(x),
        UnaryOp::Acosh => double::acosh(x),
        UnaryOp::Atanh => double::atanh(x),
        UnaryOp::Log1p => double::log1p(x),
        UnaryOp::Expm1 => double::expm1(x),
        UnaryOp::Neg
        | UnaryOp::Abs
        | UnaryOp::Not
        | UnaryOp::Sqrt
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Trunc
        | UnaryOp::Round
        | UnaryOp::IsNan => return None,
    })
}

/// Expands intrinsics, remembering what it has seen: equal sub-expressions stay shared across calls.
#[derive(Default)]
pub struct Expander {
    done: FxHashMap<Expr, Expr>,
}

impl Expander {
    /// `e` without intrinsics.
    pub fn expand(&mut self, e: &Expr) -> Expr {
        if let Some(done) = self.done.get(e) {
            return done.clone();
        }
        let inner = e.map_operands(|operand| self.expand(operand));
        let result = match inner.kind() {
            ExprKind::Unary(op, x) if op.is_intrinsic() => expand_unary(*op, x.clone()),
            ExprKind::Binary(op, x, y) if op.is_intrinsic() => expand_binary(*op, x.clone(), y.clone()),
            _ => inner,
        };
        self.done.insert(e.clone(), result.clone());
        result
    }
}

/// `e` without intrinsics.
pub fn expand(e: &Expr) -> Expr {
    Expander::default().expand(e)
}

/// Expands the intrinsics in every block of a function.
pub fn expand_func(func: &mut Func) {
    let mut expander = Expander::default();
    map_exprs(&mut func.body, &mut |e| expander.expand(e));
}

/// Replaces every expression inside blocks.
fn map_exprs(stmts: &mut [Stmt], map: &mut impl FnMut(&Expr) -> Expr) {
    for stmt in stmts {
        match stmt {
            Stmt::Loop(l) => map_exprs(&mut l.body, map),
            Stmt::Block(block) => block.map_exprs(&mut *map),
        }
    }
}
