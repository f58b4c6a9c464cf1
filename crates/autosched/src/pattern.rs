//! What rules look for in a block: how its accesses move with its variables.

use tilewright_te::simplify::Simplifier;
use tilewright_te::{BinaryOp, Block, Buffer, Expr, ExprKind, Func, Iter, IterKind, UnaryOp, Var};

/// How far an access moves in flat memory when a variable grows by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// It does not move.
    Zero,
    /// By this many elements.
    Constant(i64),
    /// By a symbolic distance, or differently from place to place.
    Unknown,
}

/// An access of a block.
#[derive(Clone, Debug)]
pub struct AccessInfo {
    /// The buffer.
    pub buffer: Buffer,
    /// The indices, over the block's variables.
    pub indices: Vec<Expr>,
}

/// Every load of a block's stores (inits excluded).
pub fn loads(block: &Block) -> Vec<AccessInfo> {
    let mut out = Vec::new();
    for store in &block.body {
        let mut collect = |e: &Expr| {
            e.walk(&mut |x| {
                if let ExprKind::Load(buffer, indices) = x.kind() {
                    out.push(AccessInfo { buffer: *buffer, indices: indices.clone() });
                }
            });
        };
        collect(&store.value);
        store.indices.iter().for_each(&mut collect);
    }
    out
}

/// A simplifier that knows the sizes and the block's domain.
pub fn domain_simplifier(func: &Func, block: &Block) -> Simplifier {
    let mut simplifier = Simplifier::for_sizes(func);
    for iter in &block.iters {
        simplifier.bind_range(iter.var, Expr::int(0), iter.extent.clone());
    }
    simplifier
}

/// The flat element index of an access, row-major.
pub fn flat_index(func: &Func, access: &AccessInfo) -> Expr {
    let mut flat = Expr::int(0);
    for (index, extent) in access.indices.iter().zip(&func.buffers[access.buffer].shape) {
        flat = flat * extent.clone() + index.clone();
    }
    flat
}

/// The stride of an access in a variable.
pub fn stride(func: &Func, simplifier: &Simplifier, access: &AccessInfo, var: Var) -> Stride {
    if !access.indices.iter().any(|i| i.uses(var)) {
        return Stride::Zero;
    }
    let flat = flat_index(func, access);
    let next = flat.substitute_var(var, &(Expr::var(var) + 1));
    match simplifier.simplify(&(next - flat)).as_int() {
        Some(0) => Stride::Zero,
        Some(n) => Stride::Constant(n),
        None => Stride::Unknown,
    }
}

/// Whether an index is the variable itself, or 0 where that is its only value.
pub fn is_identity(index: &Expr, iter: &Iter) -> bool {
    index.as_var() == Some(iter.var) || (index.as_int() == Some(0) && iter.extent.as_int() == Some(1))
}

/// Whether an expression is cheap enough to be computed at each use.
pub fn is_cheap(expr: &Expr) -> bool {
    let is_root = |e: &Expr| matches!(e.kind(), ExprKind::Unary(UnaryOp::Sqrt, _));
    let is_quotient =
        |e: &Expr| matches!(e.kind(), ExprKind::Binary(BinaryOp::Div, ..)) && e.dtype().is_float();
    !expr.any(&mut |e| e.is_intrinsic() || is_root(e) || is_quotient(e))
}

/// The product of extents, if all are constants.
pub fn constant_product<'a>(extents: impl IntoIterator<Item = &'a Expr>) -> Option<i64> {
    extents.into_iter().try_fold(1i64, |n, e| n.checked_mul(e.as_int()?))
}

/// The block's variables of a kind with their positions.
pub fn iters_of(block: &Block, kind: IterKind) -> Vec<usize> {
    block.iters.iter().enumerate().filter(|(_, i)| i.kind == kind).map(|(n, _)| n).collect()
}
