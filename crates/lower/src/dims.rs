//! Extents of the graph as extents of a function: each symbol becomes one size variable, or all that a function has of it, and so does what is
//! too long to be computed wherever it is used.

use rustc_hash::FxHashMap;
use tilewright_graph::dim::{Atom, Dim};
use tilewright_graph::ids::SymbolId;
use tilewright_graph::symbol::SymbolTable;
use tilewright_te::{BinaryOp, Expr, ExprKind, Func, Var};

/// Which size variable of a function stands for which extent of the graph.
#[derive(Clone, Debug, Default)]
pub struct DimMap {
    vars: FxHashMap<Dim, Var>,
    order: Vec<Dim>,
    /// By extents without their constants, those with a constant that are size variables.
    bases: FxHashMap<Dim, Dim>,
}

impl DimMap {
    /// An empty map, for a function without size variables.
    pub fn new() -> DimMap {
        DimMap::default()
    }

    /// A map for a function with these extents, its results' first.
    ///
    /// An extent that is computed of symbols is a size variable itself, if no other extent has one of these; those that differ by constants, as
    /// rows of an image before and after a convolution without padding do, are over one, the first of them. What is made of it, such as a
    /// number of tiles, has no constant beside it then. With one, products of such numbers would be sums of many terms, of which little is
    /// proven.
    pub fn of<'a>(extents: impl Iterator<Item = &'a Dim>) -> DimMap {
        let mut kinds: Vec<(Dim, &Dim)> = Vec::new();
        for dim in extents {
            let varying = without_constant(dim);
            if !varying.is(0) && kinds.iter().all(|(known, _)| *known != varying) {
                kinds.push((varying, dim));
            }
        }
        let is_alone = |varying: &Dim| {
            let own = varying.symbols();
            kinds.iter().all(|(other, _)| other == varying || own.is_disjoint(&other.symbols()))
        };
        let is_computed = |dim: &Dim| dim.as_symbol().is_none();
        let bases = kinds.iter().filter(|(varying, first)| is_computed(first) && is_alone(varying));
        let bases = bases.map(|(varying, first)| (varying.clone(), (*first).clone())).collect();
        DimMap { bases, ..DimMap::default() }
    }

    /// The extents in the order of the function's size variables that stand for them.
    pub fn sizes(&self) -> &[Dim] {
        &self.order
    }

    /// The size variable of a symbol, added to `func` on first use with the symbol's name and range.
    pub fn var(&mut self, func: &mut Func, symbols: &SymbolTable, symbol: SymbolId) -> Var {
        let range = symbols[symbol].range;
        let name = &symbols[symbol].name;
        self.size(func, Dim::symbol(symbol), name, range.lo, range.hi.unwrap_or(i64::MAX))
    }

    fn size(&mut self, func: &mut Func, dim: Dim, name: &str, lo: i64, hi: i64) -> Var {
        if let Some(&var) = self.vars.get(&dim) {
            return var;
        }
        let var = func.add_size(name, lo, hi);
        self.vars.insert(dim.clone(), var);
        self.order.push(dim);
        var
    }

    /// An extent over the function's size variables that is not negative, as a size variable of its own: the plan computes it
    /// once, not each kernel where it uses it. Constants and single variables stay what they are.
    pub fn named(&mut self, func: &mut Func, name: &str, extent: &Expr) -> Expr {
        let dim = match extent.kind() {
            ExprKind::Int(_) | ExprKind::Var(_) => return extent.clone(),
            _ => dim_of(func, &self.order, extent),
        };
        match dim {
            Some(dim) => Expr::var(self.size(func, dim, name, 0, i64::MAX)),
            None => extent.clone(),
        }
    }

    /// An extent over the function's size variables.
    pub fn expr(&mut self, func: &mut Func, symbols: &SymbolTable, dim: &Dim) -> Expr {
        let base = if self.bases.is_empty() { None } else { self.bases.get(&without_constant(dim)).cloned() };
        if let Some(base) = base
            && let Some(difference) = (dim - &base).as_const()
            && let Some(symbol) = base.symbols().into_iter().next()
        {
            let (lo, hi) = base.bounds(symbols);
            let (lo, hi) = (lo.unwrap_or(0).max(0), hi.unwrap_or(i64::MAX));
            let var = Expr::var(self.size(func, base, &symbols[symbol].name, lo, hi));
            return if difference == 0 { var } else { var + difference };
        }
        let mut sum = Expr::int(0);
        for summand in dim.summands() {
            let mut product = Expr::int(1);
            for atom in summand.atoms {
                product = product * self.atom(func, symbols, atom);
            }
            sum = if summand.coefficient < 0 && sum.as_int() != Some(0) {
                sum - product * summand.coefficient.saturating_neg()
            } else {
                sum + product * summand.coefficient
            };
        }
        sum
    }

    fn atom(&mut self, func: &mut Func, symbols: &SymbolTable, atom: &Atom) -> Expr {
        let mut pair = |(a, b): &(Dim, Dim)| (self.expr(func, symbols, a), self.expr(func, symbols, b));
        match atom {
            Atom::Symbol(symbol) => Expr::var(self.var(func, symbols, *symbol)),
            Atom::FloorDiv(operands) => {
                let (a, b) = pair(operands);
                a.floor_div(b)
            }
            Atom::Mod(operands) => {
                let (a, b) = pair(operands);
                a.floor_mod(b)
            }
            Atom::Min(operands) => {
                let (a, b) = pair(operands);
                a.min(b)
            }
            Atom::Max(operands) => {
                let (a, b) = pair(operands);
                a.max(b)
            }
        }
    }
}

/// An extent less its constant.
fn without_constant(dim: &Dim) -> Dim {
    let constants = dim.summands().filter(|summand| summand.atoms.is_empty());
    dim - &Dim::new(constants.map(|summand| summand.coefficient).sum())
}

/// An extent of a function whose size variables stand for `sizes`; `None` where it is no arithmetic on sizes.
pub(crate) fn dim_of(func: &Func, sizes: &[Dim], extent: &Expr) -> Option<Dim> {
    match extent.kind() {
        ExprKind::Int(n) => Some(Dim::new(*n)),
        ExprKind::Var(var) => sizes.get(func.sizes.iter().position(|size| size == var)?).cloned(),
        ExprKind::Binary(op, a, b) => {
            let (a, b) = (dim_of(func, sizes, a)?, dim_of(func, sizes, b)?);
            match op {
                BinaryOp::Add => Some(&a + &b),
                BinaryOp::Sub => Some(&a - &b),
                BinaryOp::Mul => Some(&a * &b),
                BinaryOp::FloorDiv => Some(a.floor_div(&b)),
                BinaryOp::FloorMod => Some(a.modulo(&b)),
                BinaryOp::Min => Some(a.minimum(&b)),
                BinaryOp::Max => Some(a.maximum(&b)),
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_graph::symbol::SymbolKind;

    #[test]
    fn one_size_variable_a_symbol_in_order_of_first_use() {
        let mut symbols = SymbolTable::default();
        let batch = symbols.intern("batch", SymbolKind::Input);
        let seq = symbols.intern("seq", SymbolKind::Input);
        let (mut func, mut dims) = (Func::new("f"), DimMap::new());

        let half = &Dim::symbol(seq).floor_div(&Dim::new(2)) - &Dim::ONE;
        let expr = dims.expr(&mut func, &symbols, &half);
        let s = Expr::var(func.sizes[0]);
        assert_eq!(expr, s.clone().floor_div(Expr::int(2)) - 1);

        let product = dims.expr(&mut func, &symbols, &(&Dim::symbol(batch) * &Dim::symbol(seq)));
        assert_eq!(product, Expr::var(func.sizes[1]) * s);
        assert_eq!(dims.sizes(), [seq, batch].map(Dim::symbol));
        assert_eq!(func.vars[func.sizes[1]].name, "batch");

        let sum = dims.named(&mut func, "start", &(product + 1));
        assert_eq!(sum, Expr::var(func.sizes[2]));
        let extent = &(&Dim::symbol(batch) * &Dim::symbol(seq)) + &Dim::ONE;
        assert_eq!(dims.sizes()[2], extent);
        // What stands for it already is taken.
        let again = dims.expr(&mut func, &symbols, &extent);
        assert_eq!(dims.named(&mut func, "other", &again), sum);
        assert_eq!(dims.sizes().len(), 3);
    }

    #[test]
    fn extents_that_differ_by_constants_are_over_one_size_variable() {
        let mut symbols = SymbolTable::default();
        let [height, width] =
            ["height", "width"].map(|name| Dim::symbol(symbols.intern(name, SymbolKind::Input)));
        let minus = |dim: &Dim, n: i64| dim - &Dim::new(n);
        let half = (&width + &Dim::ONE).floor_div(&Dim::new(2));
        let extents = [minus(&height, 4), minus(&half, 3), minus(&height, 2), minus(&half, 1)];
        let (mut func, mut dims) = (Func::new("f"), DimMap::of(extents.iter()));
        let found = extents.each_ref().map(|dim| dims.expr(&mut func, &symbols, dim));
        let [rows, columns] = [0, 1].map(|n| Expr::var(func.sizes[n]));
        assert_eq!(found, [rows.clone(), columns.clone(), rows + 2, columns + 2]);
        assert_eq!(dims.sizes(), &extents[..2]);

        // A window with strides has rows that differ by more.
        let extents = [minus(&height.floor_div(&Dim::new(2)), 1), height];
        let (mut func, mut dims) = (Func::new("f"), DimMap::of(extents.iter()));
        let found = extents.each_ref().map(|dim| dims.expr(&mut func, &symbols, dim));
        let rows = Expr::var(func.sizes[0]);
        assert_eq!(found, [rows.clone().floor_div(Expr::int(2)) - 1, rows]);
    }
}
