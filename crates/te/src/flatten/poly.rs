//! Index expressions as polynomials: sums of products of atoms, so that constant offsets and the
//! coefficient of the vector lane can be read off.

use std::collections::BTreeMap;

use crate::expr::{BinaryOp, Buffer, Expr, ExprKind, Var};
use crate::func::Func;

/// A sum of integer multiples of products of atoms; an atom is an expression that is no sum or product.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Poly {
    /// The additive constant.
    pub(super) constant: i64,
    /// Coefficient of each product; atoms are numbered by [`Atoms`] and sorted within a product.
    pub(super) terms: BTreeMap<Vec<u32>, i64>,
}

/// Numbers atoms in order of first occurrence, which keeps everything derived from polynomials deterministic.
#[derive(Default)]
pub(super) struct Atoms {
    exprs: Vec<Expr>,
    index: rustc_hash::FxHashMap<Expr, u32>,
}

impl Atoms {
    /// The expression of an atom.
    pub(super) fn expr(&self, atom: u32) -> &Expr {
        &self.exprs[atom as usize]
    }

    fn number(&mut self, expr: &Expr) -> u32 {
        if let Some(&n) = self.index.get(expr) {
            return n;
        }
        let n = self.exprs.len() as u32;
        self.exprs.push(expr.clone());
        self.index.insert(expr.clone(), n);
        n
    }

    /// The polynomial of an index expression.
    pub(super) fn poly(&mut self, expr: &Expr) -> Poly {
        match expr.kind() {
            ExprKind::Int(value) => Poly { constant: *value, terms: BTreeMap::new() },
            ExprKind::Binary(BinaryOp::Add, a, b) => self.poly(a).plus(&self.poly(b), 1),
            ExprKind::Binary(BinaryOp::Sub, a, b) => self.poly(a).plus(&self.poly(b), -1),
            ExprKind::Binary(BinaryOp::Mul, a, b) => self.poly(a).times(&self.poly(b)),
            _ => Poly { constant: 0, terms: BTreeMap::from([(vec![self.number(expr)], 1)]) },
        }
    }

    /// The row-major position of an access with `indices`, or with the one that has been joined of them.
    pub(super) fn position(&mut self, func: &Func, buffer: Buffer, indices: &[Expr]) -> Poly {
        let shape = &func.buffers[buffer].shape;
        if indices.len() < shape.len() {
            return indices.iter().fold(Poly::default(), |sum, index| sum.plus(&self.poly(index), 1));
        }
        let mut stride = Poly { constant: 1, terms: Default::default() };
        let mut sum = Poly::default();
        for (index, extent) in indices.iter().zip(shape).rev() {
            sum = sum.plus(&self.poly(index).times(&stride), 1);
            stride = stride.times(&self.poly(extent));
        }
        sum
    }

    /// Whether the atom mentions the variable.
    pub(super) fn uses(&self, atom: u32, var: Var) -> bool {
        self.expr(atom).uses(var)
    }
}

impl Poly {
    /// `self + scale * other`.
    pub(super) fn plus(mut self, other: &Poly, scale: i64) -> Poly {
        self.constant += scale * other.constant;
        for (product, coefficient) in &other.terms {
            let entry = self.terms.entry(product.clone()).or_insert(0);
            *entry += scale * coefficient;
            if *entry == 0 {
                self.terms.remove(product);
            }
        }
        self
    }

    /// The product of two polynomials, multiplied out.
    pub(super) fn times(&self, other: &Poly) -> Poly {
        let mut out = Poly::default();
        let monomials = |p: &Poly| -> Vec<(Vec<u32>, i64)> {
            let constant = (p.constant != 0).then(|| (Vec::new(), p.constant));
            constant.into_iter().chain(p.terms.iter().map(|(k, v)| (k.clone(), *v))).collect()
        };
        for (a, x) in monomials(self) {
            for (b, y) in monomials(other) {
                let mut product: Vec<u32> = a.iter().chain(&b).copied().collect();
                product.sort_unstable();
                let mut term = Poly::default();
                if product.is_empty() {
                    term.constant = x * y;
                } else {
                    term.terms.insert(product, x * y);
                }
                out = out.plus(&term, 1);
            }
        }
        out
    }

    /// Whether nothing but the constant is left.
    pub(super) fn is_constant(&self) -> bool {
        self.terms.is_empty()
    }
}
