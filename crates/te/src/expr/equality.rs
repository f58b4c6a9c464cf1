//! When expressions are equal: in structure, in time linear in their nodes.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::{Expr, ExprKind, ExprNode};

impl PartialEq for Expr {
    fn eq(&self, other: &Expr) -> bool {
        if self.same(other) || self.0.hash != other.0.hash {
            return self.same(other);
        }
        same_structure(self, other, &mut FxHashSet::default())
    }
}

/// Structural equality; a pair of shared nodes is compared once, so that expressions that share much take
/// time in their number of nodes and not in the number of paths.
fn same_structure(a: &Expr, b: &Expr, seen: &mut FxHashSet<(*const ExprNode, *const ExprNode)>) -> bool {
    if a.same(b) {
        return true;
    }
    if a.0.hash != b.0.hash || a.0.dtype != b.0.dtype {
        return false;
    }
    if a.is_leaf() || b.is_leaf() {
        return a.0.kind == b.0.kind;
    }
    if !seen.insert((Arc::as_ptr(&a.0), Arc::as_ptr(&b.0))) {
        // Compared before: unequal would have ended the comparison.
        return true;
    }
    match (a.kind(), b.kind()) {
        (ExprKind::Unary(f, x), ExprKind::Unary(g, y)) => f == g && same_structure(x, y, seen),
        (ExprKind::Cast(x), ExprKind::Cast(y)) | (ExprKind::Bitcast(x), ExprKind::Bitcast(y)) => {
            same_structure(x, y, seen)
        }
        (ExprKind::Binary(f, x, y), ExprKind::Binary(g, z, w)) => {
            f == g && same_structure(x, z, seen) && same_structure(y, w, seen)
        }
        (ExprKind::Compare(f, x, y), ExprKind::Compare(g, z, w)) => {
            f == g && same_structure(x, z, seen) && same_structure(y, w, seen)
        }
        (ExprKind::Select(x, y, z), ExprKind::Select(u, v, w))
        | (ExprKind::Fma(x, y, z), ExprKind::Fma(u, v, w)) => {
            same_structure(x, u, seen) && same_structure(y, v, seen) && same_structure(z, w, seen)
        }
        (ExprKind::Load(f, x), ExprKind::Load(g, y)) => {
            f == g && x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same_structure(x, y, seen))
        }
        // Nodes of different kinds; leaves are compared above.
        _ => false,
    }
}

impl Eq for Expr {}

impl Hash for Expr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}
