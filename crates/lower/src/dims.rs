//! Extents of the graph as extents of a function: each symbol becomes one size variable.

use rustc_hash::FxHashMap;
use tilewright_graph::dim::{Atom, Dim};
use tilewright_graph::ids::SymbolId;
use tilewright_graph::symbol::SymbolTable;
use tilewright_te::{Expr, Func, Var};

/// Which size variable of a function stands for which symbol of the graph.
#[derive(Clone, Debug, Default)]
pub struct DimMap {
    vars: FxHashMap<SymbolId, Var>,
    order: Vec<SymbolId>,
}

impl DimMap {
    /// An empty map, for a function without size variables.
    pub fn new() -> DimMap {
        DimMap::default()
    }

    /// The symbols in the order of the function's size variables that stand for them.
    pub fn symbols(&self) -> &[SymbolId] {
        &self.order
    }

    /// The size variable of a symbol, added to `func` on first use with the symbol's name and range.
    pub fn var(&mut self, func: &mut Func, symbols: &SymbolTable, symbol: SymbolId) -> Var {
        if let Some(&var) = self.vars.get(&symbol) {
            return var;
        }
        let range = symbols[symbol].range;
        let var = func.add_size(&symbols[symbol].name, range.lo, range.hi.unwrap_or(i64::MAX));
        self.vars.insert(symbol, var);
        self.order.push(symbol);
        var
    }

    /// An extent over the function's size variables.
    pub fn expr(&mut self, func: &mut Func, symbols: &SymbolTable, dim: &Dim) -> Expr {
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
        assert_eq!(dims.symbols(), [seq, batch]);
        assert_eq!(func.vars[func.sizes[1]].name, "batch");
    }
}
