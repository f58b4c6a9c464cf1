//! Bounds of extents.

use super::{Atom, Dim, checked_div_floor, div_floor};
use crate::symbol::SymbolTable;

type Bounds = (Option<i64>, Option<i64>);

impl Dim {
    /// Inclusive bounds of the value, from the bounds of the symbols; `None` where unbounded or overflowing.
    pub fn bounds(&self, symbols: &SymbolTable) -> (Option<i64>, Option<i64>) {
        let mut sum = (Some(self.constant), Some(self.constant));
        for term in &self.terms {
            let mut product = (Some(1), Some(1));
            for atom in &term.monomial.0 {
                product = multiply_bounds(product, atom_bounds(atom, symbols));
            }
            let scaled = multiply_bounds(product, (Some(term.coefficient), Some(term.coefficient)));
            let add = |a: Option<i64>, b: Option<i64>| a?.checked_add(b?);
            sum = (add(sum.0, scaled.0), add(sum.1, scaled.1));
        }
        sum
    }
}

fn atom_bounds(atom: &Atom, symbols: &SymbolTable) -> Bounds {
    match atom {
        Atom::Symbol(symbol) => {
            let range = &symbols[*symbol].range;
            (Some(range.lo), range.hi)
        }
        Atom::FloorDiv(pair) => {
            let ((lo, hi), divisor) = (pair.0.bounds(symbols), pair.1.bounds(symbols));
            match divisor.0 {
                Some(least) if least > 0 => {
                    let most = divisor.1;
                    let low = lo.and_then(|lo| {
                        if lo >= 0 { Some(most.map_or(0, |m| lo / m)) } else { checked_div_floor(lo, least) }
                    });
                    let high =
                        hi.map(|hi| if hi >= 0 { hi / least } else { most.map_or(-1, |m| div_floor(hi, m)) });
                    (low, high)
                }
                _ => (None, None),
            }
        }
        Atom::Mod(pair) => match pair.1.bounds(symbols) {
            (Some(least), most) if least > 0 => (Some(0), most.map(|most| most - 1)),
            _ => (None, None),
        },
        Atom::Min(pair) => {
            let (a, b) = (pair.0.bounds(symbols), pair.1.bounds(symbols));
            (a.0.zip(b.0).map(|(a, b)| a.min(b)), a.1.into_iter().chain(b.1).min())
        }
        Atom::Max(pair) => {
            let (a, b) = (pair.0.bounds(symbols), pair.1.bounds(symbols));
            (a.0.into_iter().chain(b.0).max(), a.1.zip(b.1).map(|(a, b)| a.max(b)))
        }
    }
}

fn multiply_bounds(a: Bounds, b: Bounds) -> Bounds {
    let product = |x: Option<i64>, y: Option<i64>| match (x, y) {
        (Some(0), _) | (_, Some(0)) => Some(0),
        (Some(x), Some(y)) => x.checked_mul(y),
        _ => None,
    };
    match (a.0, b.0) {
        (Some(x), Some(y)) if x >= 0 && y >= 0 => (product(a.0, b.0), product(a.1, b.1)),
        _ => {
            let corners = [product(a.0, b.0), product(a.0, b.1), product(a.1, b.0), product(a.1, b.1)];
            match corners.into_iter().collect::<Option<Vec<i64>>>() {
                Some(corners) if [a.0, a.1, b.0, b.1].iter().all(Option::is_some) => {
                    (corners.iter().min().copied(), corners.iter().max().copied())
                }
                // One side of a non-negative range times a negative constant keeps one bound.
                _ => match (a, b) {
                    ((Some(lo), hi), (Some(c), Some(d))) | ((Some(c), Some(d)), (Some(lo), hi))
                        if c == d && c < 0 =>
                    {
                        (hi.and_then(|hi| hi.checked_mul(c)), lo.checked_mul(c))
                    }
                    _ => (None, None),
                },
            }
        }
    }
}
