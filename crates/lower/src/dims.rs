//! Extents of the graph as extents of a function: each symbol becomes one size variable, or all that a function has of it, and so does what is
//! too long to be computed wherever it is used.

use rustc_hash::FxHashMap;
use tilewright_graph::dim::{Atom, Dim};
use tilewright_graph::ids::SymbolId;
use tilewright_graph::symbol::SymbolTable;
use tilewright_te::simplify::Simplifier;
use tilewright_te::{BinaryOp, Expr, ExprKind, Func, Var};

/// Which size variable of a function stands for which extent of the graph.
#[derive(Clone, Debug, Default)]
pub struct DimMap {
    vars: FxHashMap<Dim, Var>,
    order: Vec<Dim>,
    /// By extents without their constants, those that size variables are made of.
    solved: FxHashMap<Dim, Solved>,
}

/// What symbols count as in extents that are quotients of them: pixels of an image's side.
const TYPICAL_SIDE: i64 = 256;

/// The least that such extents count as, of symbols that are longer than the sides of images.
const LEAST_TYPICAL: i64 = 8;

/// An extent as a sum of size variables.
#[derive(Clone, Debug)]
struct Solved {
    extent: Dim,
    /// What the size variables stand for, with what they are multiplied with.
    sizes: Vec<(i64, Dim)>,
    constant: i64,
}

/// `floordiv(symbol + offset, by) + constant`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Quotient {
    symbol: SymbolId,
    offset: i64,
    by: i64,
    constant: i64,
}

impl DimMap {
    /// An empty map, for a function without size variables.
    pub fn new() -> DimMap {
        DimMap::default()
    }

    /// A map for a function with these extents, its results' first.
    ///
    /// Products of sums, of which little is proven, would come of extents with constants: so an extent that is computed of symbols is a size
    /// variable itself, if no other extent has one of these. Those that differ by constants, as rows of an image before and after a
    /// convolution without padding do, are over one, the first of them. Where the one before is divided, by strides, that is as many times
    /// the one behind as the stride says, and what is left.
    pub fn of<'a>(extents: impl Iterator<Item = &'a Dim>) -> DimMap {
        let mut kinds: Vec<(Dim, &Dim)> = Vec::new();
        for dim in extents {
            let varying = without_constant(dim);
            if !varying.is(0) && kinds.iter().all(|(known, _)| *known != varying) {
                kinds.push((varying, dim));
            }
        }
        let mut solved = FxHashMap::default();
        for (n, (varying, first)) in kinds.iter().enumerate() {
            let own = varying.symbols();
            let shares = |(_, (other, _)): &(usize, &(Dim, &Dim))| !own.is_disjoint(&other.symbols());
            let mut others = kinds.iter().enumerate().filter(|(other, _)| *other != n).filter(shares);
            match (others.next(), others.next()) {
                (None, _) if first.as_symbol().is_none() => {
                    solved.insert(varying.clone(), Solved::itself(first));
                }
                (Some((_, (behind, behind_first))), None) => {
                    let is_sum = varying != *first || behind != *behind_first;
                    if let Some(before) = Solved::of_strides(first, behind_first).filter(|_| is_sum) {
                        solved.insert(varying.clone(), before);
                        solved.insert(behind.clone(), Solved::itself(behind_first));
                    }
                }
                _ => {}
            }
        }
        DimMap { solved, ..DimMap::default() }
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
            Some(dim) => {
                let size = self.size(func, dim, name, 0, i64::MAX);
                let of_sizes = extent.substitute(&|var| func.typical(var).map(Expr::int));
                func.set_typical(size, Simplifier::new().simplify(&of_sizes).as_int());
                Expr::var(size)
            }
            None => extent.clone(),
        }
    }

    /// An extent over the function's size variables.
    pub fn expr(&mut self, func: &mut Func, symbols: &SymbolTable, dim: &Dim) -> Expr {
        if !self.solved.is_empty()
            && let Some(solved) = self.solved.get(&without_constant(dim)).cloned()
            && let Some(difference) = (dim - &solved.extent).as_const()
        {
            return self.solution(func, symbols, &solved, difference);
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

    /// An extent, plus `difference`, over its size variables.
    fn solution(&mut self, func: &mut Func, symbols: &SymbolTable, solved: &Solved, difference: i64) -> Expr {
        let mut sum = Expr::int(0);
        for (times, dim) in &solved.sizes {
            let (lo, hi) = dim.bounds(symbols);
            let (lo, hi) = (lo.unwrap_or(0).max(0), hi.unwrap_or(i64::MAX));
            let name = dim.symbols().into_iter().next().map_or("size", |symbol| &symbols[symbol].name);
            let size = self.size(func, dim.clone(), name, lo, hi);
            func.set_typical(size, typical(symbols, dim));
            let size = Expr::var(size);
            let product = if *times == 1 { size } else { size * *times };
            sum = if sum.as_int() == Some(0) { product } else { sum + product };
        }
        let constant = solved.constant + difference;
        if constant == 0 { sum } else { sum + constant }
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

impl Solved {
    /// An extent that is a size variable.
    fn itself(extent: &Dim) -> Solved {
        Solved { extent: extent.clone(), sizes: vec![(1, extent.clone())], constant: 0 }
    }

    /// The extent before a window with strides as a sum of the one behind, times the stride, and what the division leaves.
    fn of_strides(before: &Dim, behind: &Dim) -> Option<Solved> {
        let [b, c] = [Quotient::of(before)?, Quotient::of(behind)?];
        if b.symbol != c.symbol || c.by == b.by || c.by % b.by != 0 || (c.offset - b.offset) % b.by != 0 {
            return None;
        }
        // behind = floordiv(before + shift, stride) + c.constant
        let (stride, shift) = (c.by / b.by, (c.offset - b.offset) / b.by - b.constant);
        let rest = (before + &Dim::new(shift)).modulo(&Dim::new(stride));
        Some(Solved {
            extent: before.clone(),
            sizes: vec![(stride, behind.clone()), (1, rest)],
            constant: -stride * c.constant - shift,
        })
    }
}

impl Quotient {
    /// The symbol, its quotient, or one of the two and a constant that an extent is.
    fn of(dim: &Dim) -> Option<Quotient> {
        let (mut varying, mut constant) = (None, 0);
        for summand in dim.summands() {
            match (summand.atoms, summand.coefficient, &varying) {
                ([], n, _) => constant = n,
                ([atom], 1, None) => varying = Some(atom),
                _ => return None,
            }
        }
        match varying? {
            Atom::Symbol(symbol) => Some(Quotient { symbol: *symbol, offset: 0, by: 1, constant }),
            Atom::FloorDiv(operands) => {
                let (dividend, divisor) = &**operands;
                let of = Quotient::of(dividend).filter(|of| of.by == 1)?;
                let by = divisor.as_const().filter(|&by| by > 1)?;
                Some(Quotient { symbol: of.symbol, offset: of.constant, by, constant })
            }
            _ => None,
        }
    }
}

/// A value of an extent that is a quotient of symbols: that of an image's side after strides.
fn typical(symbols: &SymbolTable, dim: &Dim) -> Option<i64> {
    let is_quotient = |atom: &Atom| matches!(atom, Atom::FloorDiv(_) | Atom::Mod(_));
    if !dim.summands().any(|summand| summand.atoms.iter().any(is_quotient)) {
        return None;
    }
    let side = |symbol: SymbolId| {
        let range = symbols[symbol].range;
        Some(TYPICAL_SIDE.clamp(range.lo, range.hi.unwrap_or(i64::MAX).max(range.lo)))
    };
    let value = dim.evaluate(&side)?;
    let (lo, hi) = dim.bounds(symbols);
    Some(value.max(LEAST_TYPICAL).min(hi.unwrap_or(i64::MAX)).max(lo.unwrap_or(0)))
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
    use tilewright_graph::symbol::{Range, SymbolKind};
    use tilewright_te::VarKind;

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
    fn extents_after_strides_count_as_those_of_images() {
        let mut symbols = SymbolTable::default();
        let [height, width] = ["height", "width"].map(|name| symbols.intern(name, SymbolKind::Input));
        symbols.set_range(width, Range { lo: 33, hi: Some(40), step: 1 });
        let [by_eight, by_16] = [(height, 8), (width, 16)].map(|(symbol, by)| {
            let side = Dim::symbol(symbol);
            (&side + &Dim::new(by - 1)).floor_div(&Dim::new(by))
        });
        let extents = [by_eight, by_16, Dim::symbol(height)];
        let (mut func, mut dims) = (Func::new("f"), DimMap::of(extents[..2].iter()));
        let sides = [0, 1].map(|n| dims.expr(&mut func, &symbols, &extents[n]));
        let tiles = dims.named(&mut func, "tiles", &(sides[0].clone().ceil_div(4) * sides[1].clone()));
        assert_eq!(tiles, Expr::var(func.sizes[2]));
        // 256 / 8; 40 / 16, and no more; tiles of these.
        let typical = |func: &Func| func.sizes.iter().map(|&size| func.typical(size)).collect::<Vec<_>>();
        assert_eq!(typical(&func), [Some(32), Some(3), Some(24)]);
        // Nothing is known of a symbol itself.
        let (mut func, mut dims) = (Func::new("f"), DimMap::of(extents[2..].iter()));
        dims.expr(&mut func, &symbols, &extents[2]);
        assert_eq!(typical(&func), [None]);
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

        // A window with strides and padding.
        let extents = [height.floor_div(&Dim::new(2)), height];
        let (mut func, mut dims) = (Func::new("f"), DimMap::of(extents.iter()));
        let found = extents.each_ref().map(|dim| dims.expr(&mut func, &symbols, dim));
        let rows = Expr::var(func.sizes[0]);
        assert_eq!(found, [rows.clone().floor_div(Expr::int(2)), rows]);
    }

    /// Rows before windows with strides that have no padding, over those behind and what the division leaves: the same number, whatever
    /// the symbol stands for.
    #[test]
    fn extents_before_strides_are_over_those_behind() {
        let mut symbols = SymbolTable::default();
        let id = symbols.intern("height", SymbolKind::Input);
        let height = Dim::symbol(id);
        let plus = |dim: &Dim, n: i64| dim + &Dim::new(n);
        let behind = |before: &Dim, window: i64, stride: i64| {
            plus(&plus(before, -window).floor_div(&Dim::new(stride)), 1)
        };
        let first = behind(&height, 3, 2);
        for before in [height.clone(), first.clone(), plus(&first, -2), behind(&first, 5, 3)] {
            for (window, stride) in [(3, 2), (5, 3), (7, 5)] {
                let extents = [behind(&before, window, stride), before.clone(), plus(&before, 2)];
                let (mut func, mut dims) = (Func::new("f"), DimMap::of(extents.iter()));
                let [own, ..] = extents.each_ref().map(|dim| {
                    let expr = dims.expr(&mut func, &symbols, dim);
                    let again = dim_of(&func, dims.sizes(), &expr).expect("arithmetic on sizes");
                    for n in 20..60 {
                        let at = |dim: &Dim| dim.evaluate(&|symbol| (symbol == id).then_some(n));
                        assert_eq!(at(dim), at(&again), "{dim:?} at {n}");
                    }
                    expr
                });
                assert_eq!(own, Expr::var(func.sizes[0]));
                assert_eq!(func.sizes.len(), 2);
                let rest = &func.vars[func.sizes[1]];
                assert!(
                    matches!(rest.kind, VarKind::Size { min: 0, max, .. } if max == stride - 1),
                    "{rest:?}"
                );
            }
        }
    }
}
