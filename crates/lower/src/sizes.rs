//! Size slots of the plan: extents of the graph and of tensor expressions as arithmetic the runtime evaluates.

use rustc_hash::FxHashMap;
use tilewright_dtype::DType;
use tilewright_graph::dim::{Atom, Dim};
use tilewright_graph::ids::SymbolId;
use tilewright_runtime::plan::{SizeDef, SizeId};
use tilewright_te::{BinaryOp, Expr, ExprKind, Var};

/// The definition of a size from two others: a constructor such as `SizeDef::Add`.
pub type Binary = fn(SizeId, SizeId) -> SizeDef;

/// The plan's size slots under construction; equal definitions share a slot.
#[derive(Default)]
pub struct SizeTable {
    defs: Vec<SizeDef>,
    /// Whether the value of each slot is known only once instructions have run.
    late: Vec<bool>,
    slots: FxHashMap<SizeDef, SizeId>,
    symbols: FxHashMap<SymbolId, SizeId>,
    /// Symbols in the order in which they got values.
    bound: Vec<SymbolId>,
}

impl SizeTable {
    /// The slot of a constant.
    pub fn constant(&mut self, value: i64) -> SizeId {
        self.define(SizeDef::Const(value))
    }

    /// The slot of a definition that reads no other slot, or an existing one.
    pub fn define(&mut self, def: SizeDef) -> SizeId {
        if let Some(&slot) = self.slots.get(&def) {
            return slot;
        }
        let slot = self.fresh(def);
        self.slots.insert(def, slot);
        slot
    }

    /// A slot of its own that an instruction writes at run time.
    pub fn computed(&mut self) -> SizeId {
        self.fresh(SizeDef::Computed)
    }

    fn fresh(&mut self, def: SizeDef) -> SizeId {
        let slot = SizeId(self.defs.len() as u32);
        let late = match def {
            SizeDef::Computed => true,
            def => def.operands().is_some_and(|(a, b)| self.is_late(a) || self.is_late(b)),
        };
        self.defs.push(def);
        self.late.push(late);
        slot
    }

    /// Says which slot holds a symbol's value.
    pub fn bind(&mut self, symbol: SymbolId, slot: SizeId) {
        self.symbols.insert(symbol, slot);
        self.bound.push(symbol);
    }

    /// The symbols bound so far, in order.
    pub fn bound(&self) -> &[SymbolId] {
        &self.bound
    }

    /// The slot that holds a symbol's value, once bound.
    pub fn symbol(&self, symbol: SymbolId) -> Option<SizeId> {
        self.symbols.get(&symbol).copied()
    }

    /// The slot of a constant, if it is one.
    pub fn as_constant(&self, slot: SizeId) -> Option<i64> {
        match self.defs.get(slot.index()) {
            Some(SizeDef::Const(value)) => Some(*value),
            _ => None,
        }
    }

    /// Whether a slot's value is known only once instructions have run.
    pub fn is_late(&self, slot: SizeId) -> bool {
        self.late.get(slot.index()).copied().unwrap_or(false)
    }

    /// The slot of an extent.
    ///
    /// # Errors
    /// The symbol that is not bound.
    pub fn dim(&mut self, dim: &Dim) -> Result<SizeId, SymbolId> {
        let mut sum: Option<SizeId> = None;
        for summand in dim.summands() {
            let mut product: Option<SizeId> = None;
            for atom in summand.atoms {
                let factor = self.atom(atom)?;
                product = Some(product.map_or(factor, |p| self.binary(SizeDef::Mul, p, factor)));
            }
            let value = match product {
                None => self.constant(summand.coefficient),
                Some(p) if summand.coefficient == 1 => p,
                Some(p) => {
                    let coefficient = self.constant(summand.coefficient);
                    self.binary(SizeDef::Mul, p, coefficient)
                }
            };
            sum = Some(sum.map_or(value, |s| self.binary(SizeDef::Add, s, value)));
        }
        Ok(sum.unwrap_or_else(|| self.constant(0)))
    }

    fn atom(&mut self, atom: &Atom) -> Result<SizeId, SymbolId> {
        let (def, operands): (Binary, &(Dim, Dim)) = match atom {
            Atom::Symbol(symbol) => return self.symbol(*symbol).ok_or(*symbol),
            Atom::FloorDiv(operands) => (SizeDef::FloorDiv, operands),
            Atom::Mod(operands) => (SizeDef::Mod, operands),
            Atom::Min(operands) => (SizeDef::Min, operands),
            Atom::Max(operands) => (SizeDef::Max, operands),
        };
        let (a, b) = (self.dim(&operands.0)?, self.dim(&operands.1)?);
        Ok(self.binary(def, a, b))
    }

    /// The slot of an operation on two slots; folds constants.
    pub fn binary(&mut self, def: Binary, a: SizeId, b: SizeId) -> SizeId {
        let def = def(a, b);
        let folded = match (self.as_constant(a), self.as_constant(b)) {
            (Some(x), Some(y)) => match def {
                SizeDef::Add(..) => x.checked_add(y),
                SizeDef::Sub(..) => x.checked_sub(y),
                SizeDef::Mul(..) => x.checked_mul(y),
                SizeDef::FloorDiv(..) => (y > 0).then(|| x.div_euclid(y)),
                SizeDef::CeilDiv(..) => (y > 0).then(|| -(-x).div_euclid(y)),
                SizeDef::Mod(..) => (y > 0).then(|| x.rem_euclid(y)),
                SizeDef::Min(..) => Some(x.min(y)),
                SizeDef::Max(..) => Some(x.max(y)),
                SizeDef::Const(_) | SizeDef::InputDim { .. } | SizeDef::Computed => None,
            },
            (None, Some(1)) if matches!(def, SizeDef::Mul(..) | SizeDef::FloorDiv(..)) => return a,
            (Some(1), None) if matches!(def, SizeDef::Mul(..)) => return b,
            (_, Some(0)) | (Some(0), _) if matches!(def, SizeDef::Mul(..)) => Some(0),
            (Some(0), None) if matches!(def, SizeDef::Add(..)) => return b,
            (None, Some(0)) if matches!(def, SizeDef::Add(..) | SizeDef::Sub(..)) => return a,
            _ => None,
        };
        match folded {
            Some(value) => self.constant(value),
            None => self.define(def),
        }
    }

    /// The slot of an extent of a function; `var` gives the slots of its size variables.
    ///
    /// `None` where the expression is no arithmetic on sizes.
    pub fn expr(&mut self, expr: &Expr, var: &dyn Fn(Var) -> Option<SizeId>) -> Option<SizeId> {
        match expr.kind() {
            ExprKind::Int(value) => Some(self.constant(*value)),
            ExprKind::Var(v) => var(*v),
            ExprKind::Binary(op, a, b) => {
                let def: Binary = match op {
                    BinaryOp::Add => SizeDef::Add,
                    BinaryOp::Sub => SizeDef::Sub,
                    BinaryOp::Mul => SizeDef::Mul,
                    BinaryOp::FloorDiv => SizeDef::FloorDiv,
                    BinaryOp::FloorMod => SizeDef::Mod,
                    BinaryOp::Min => SizeDef::Min,
                    BinaryOp::Max => SizeDef::Max,
                    BinaryOp::Div
                    | BinaryOp::Rem
                    | BinaryOp::And
                    | BinaryOp::Or
                    | BinaryOp::Xor
                    | BinaryOp::Shl
                    | BinaryOp::Shr
                    | BinaryOp::Pow
                    | BinaryOp::Atan2
                    | BinaryOp::Fmod => return None,
                };
                let (a, b) = (self.expr(a, var)?, self.expr(b, var)?);
                Some(self.binary(def, a, b))
            }
            ExprKind::Float(_)
            | ExprKind::Unary(..)
            | ExprKind::Compare(..)
            | ExprKind::Select(..)
            | ExprKind::Cast(_)
            | ExprKind::Bitcast(_)
            | ExprKind::Fma(..)
            | ExprKind::Load(..) => None,
        }
    }

    /// The slot of the bytes of a tensor.
    pub fn bytes(&mut self, shape: &[SizeId], element_bytes: usize) -> SizeId {
        let mut bytes = self.constant(element_bytes as i64);
        for &extent in shape {
            bytes = self.binary(SizeDef::Mul, bytes, extent);
        }
        bytes
    }

    /// The finished definitions.
    pub fn into_defs(self) -> Vec<SizeDef> {
        self.defs
    }
}

/// Bytes of one element in memory, at least 1 so that strings fail elsewhere and not by zero.
pub(crate) fn element_bytes(dtype: DType) -> usize {
    dtype.bytes().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of 100 sizes has the one before twice: as many paths as 2^100 lead to the first.
    #[test]
    fn whether_a_size_is_late_is_known_when_it_is_defined() {
        let mut sizes = SizeTable::default();
        let known = sizes.define(SizeDef::InputDim { input: 0, axis: 0 });
        let late = sizes.computed();
        let mut double = |from: SizeId| (0..100).fold(from, |n, _| sizes.binary(SizeDef::Add, n, n));
        let (of_known, of_late) = (double(known), double(late));
        assert!(!sizes.is_late(of_known) && sizes.is_late(of_late));
        let both = sizes.binary(SizeDef::Max, of_known, of_late);
        assert!(sizes.is_late(both));
    }
}
