//! Sum-of-products normal form of index expressions.
//!
//! A [`Linear`] is `constant + Σ coefficient · product of atoms`, where an atom is any index expression that
//! is not itself a sum, difference or product. Coefficients wrap, as the expressions they stand for do, so
//! the normal form is exact; two expressions with the same normal form are equal everywhere.

use std::cmp::Ordering;

use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp, Var};
use crate::simplify::budget::Budget;

/// A product of atoms in the order of [`order`]; never empty in a [`Linear`].
pub type Monomial = Vec<Expr>;

/// Nodes of sums and products, shared ones counted for each use, that one normal form takes apart. Beyond, it would take time
/// exponential in the depth of sums that share their terms.
pub const MAX_NODES: u32 = 1 << 12;

/// Terms that a product may have: each factor of two terms would double them.
pub const MAX_TERMS: usize = 1 << 8;

/// `constant + Σ coefficient · monomial`, monomials distinct and in order, coefficients not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Linear {
    /// The monomials with their coefficients.
    pub terms: Vec<(Monomial, i64)>,
    /// The constant.
    pub constant: i64,
}

impl Linear {
    /// A constant.
    pub fn int(value: i64) -> Linear {
        Linear { terms: Vec::new(), constant: value }
    }

    /// One atom.
    pub fn atom(atom: Expr) -> Linear {
        Linear { terms: vec![(vec![atom], 1)], constant: 0 }
    }

    /// The normal form of an expression, taking sums, differences, negations and products apart.
    pub fn of(expr: &Expr) -> Linear {
        Linear::of_atoms(expr, &mut |atom| Linear::atom(atom.clone()))
    }

    /// The normal form of an expression in which each atom is replaced by what `atom` gives for it.
    ///
    /// Sums and products beyond [`MAX_NODES`] are atoms, and so are products of more than [`MAX_TERMS`] terms.
    pub fn of_atoms(expr: &Expr, atom: &mut impl FnMut(&Expr) -> Linear) -> Linear {
        Linear::within(expr, atom, &Budget::of(MAX_NODES))
    }

    fn within(expr: &Expr, atom: &mut impl FnMut(&Expr) -> Linear, budget: &Budget) -> Linear {
        if !budget.spend(1) {
            return expr.as_int().map_or_else(|| Linear::atom(expr.clone()), Linear::int);
        }
        match expr.kind() {
            ExprKind::Int(value) => Linear::int(*value),
            ExprKind::Unary(UnaryOp::Neg, a) => Linear::within(a, atom, budget).scale(-1),
            ExprKind::Binary(BinaryOp::Add, a, b) => {
                Linear::within(a, atom, budget).add(&Linear::within(b, atom, budget))
            }
            ExprKind::Binary(BinaryOp::Sub, a, b) => {
                Linear::within(a, atom, budget).sub(&Linear::within(b, atom, budget))
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                let (x, y) = (Linear::within(a, atom, budget), Linear::within(b, atom, budget));
                match x.terms.len() * y.terms.len() <= MAX_TERMS {
                    true => x.mul(&y),
                    false => Linear::atom(expr.clone()),
                }
            }
            ExprKind::Float(_)
            | ExprKind::Var(_)
            | ExprKind::Unary(..)
            | ExprKind::Binary(..)
            | ExprKind::Compare(..)
            | ExprKind::Select(..)
            | ExprKind::Cast(_)
            | ExprKind::Bitcast(_)
            | ExprKind::Fma(..)
            | ExprKind::Load(..) => atom(expr),
        }
    }

    /// The constant value, if there are no terms.
    pub fn as_int(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// Sum.
    pub fn add(&self, other: &Linear) -> Linear {
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut a, mut b) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some(x), Some(y)) => order_monomials(&x.0, &y.0),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            match next {
                Ordering::Less => terms.extend(a.next().cloned()),
                Ordering::Greater => terms.extend(b.next().cloned()),
                Ordering::Equal => {
                    if let (Some(x), Some(y)) = (a.next(), b.next()) {
                        let sum = x.1.wrapping_add(y.1);
                        if sum != 0 {
                            terms.push((x.0.clone(), sum));
                        }
                    }
                }
            }
        }
        Linear { terms, constant: self.constant.wrapping_add(other.constant) }
    }

    /// Difference.
    pub fn sub(&self, other: &Linear) -> Linear {
        self.add(&other.scale(-1))
    }

    /// Product with a constant.
    pub fn scale(&self, factor: i64) -> Linear {
        let scaled = self.terms.iter().map(|(m, c)| (m.clone(), c.wrapping_mul(factor)));
        Linear { terms: scaled.filter(|t| t.1 != 0).collect(), constant: self.constant.wrapping_mul(factor) }
    }

    /// Product with a constant, `None` where a coefficient is too large.
    pub fn checked_scale(&self, factor: i64) -> Option<Linear> {
        let scaled = |(m, c): &(Monomial, i64)| c.checked_mul(factor).map(|c| (m.clone(), c));
        let terms = self.terms.iter().map(scaled).collect::<Option<Vec<_>>>()?;
        let constant = self.constant.checked_mul(factor)?;
        Some(Linear { terms: terms.into_iter().filter(|t| t.1 != 0).collect(), constant })
    }

    /// Product.
    pub fn mul(&self, other: &Linear) -> Linear {
        if let Some(value) = self.as_int() {
            return other.scale(value);
        }
        let mut sum = self.scale(other.constant);
        for (m, c) in &other.terms {
            sum = sum.add(&self.mul_monomial(m, *c));
        }
        sum
    }

    /// Product with one term.
    fn mul_monomial(&self, monomial: &Monomial, coefficient: i64) -> Linear {
        let mut terms: Vec<(Monomial, i64)> = Vec::with_capacity(self.terms.len() + 1);
        for (m, c) in &self.terms {
            let mut product: Monomial = m.iter().chain(monomial).cloned().collect();
            product.sort_by(order);
            terms.push((product, c.wrapping_mul(coefficient)));
        }
        terms.push((monomial.clone(), self.constant.wrapping_mul(coefficient)));
        terms.retain(|t| t.1 != 0);
        terms.sort_by(|a, b| order_monomials(&a.0, &b.0));
        Linear { terms, constant: 0 }
    }

    /// The terms (and constant) divisible by `divisor`, divided, and the rest: `self = divisor·q + r`, with
    /// the constant of `r` in `0..divisor`.
    pub fn split(&self, divisor: i64) -> (Linear, Linear) {
        let mut quotient = Linear::int(self.constant.div_euclid(divisor));
        let mut rest = Linear::int(self.constant.rem_euclid(divisor));
        for (m, c) in &self.terms {
            if c % divisor == 0 {
                quotient.terms.push((m.clone(), c / divisor));
            } else {
                rest.terms.push((m.clone(), *c));
            }
        }
        (quotient, rest)
    }

    /// The greatest common divisor of the coefficients, without the constant; 0 if there are none.
    pub fn content(&self) -> i64 {
        self.terms.iter().fold(0, |g, (_, c)| gcd(g, *c))
    }

    /// The coefficient of a variable that occurs in no other atom or product, with the rest; `None` where it
    /// occurs otherwise.
    pub fn affine_in(&self, var: Var) -> Option<(i64, Linear)> {
        let mut coefficient = 0;
        let mut rest = Linear::int(self.constant);
        for (m, c) in &self.terms {
            if m.len() == 1 && m[0].as_var() == Some(var) {
                coefficient = *c;
            } else if m.iter().any(|atom| atom.uses(var)) {
                return None;
            } else {
                rest.terms.push((m.clone(), *c));
            }
        }
        Some((coefficient, rest))
    }

    /// The expression, a function of the normal form alone.
    pub fn to_expr(&self) -> Expr {
        let mut sum: Option<Expr> = None;
        let positive = self.terms.iter().filter(|t| t.1 > 0);
        for (m, c) in positive {
            let term = scaled(m, *c);
            sum = Some(match sum {
                None => term,
                Some(sum) => sum + term,
            });
        }
        let mut constant = self.constant;
        for (m, c) in self.terms.iter().filter(|t| t.1 < 0) {
            sum = Some(match sum {
                Some(sum) => sum - scaled(m, c.wrapping_neg()),
                None if constant != 0 => {
                    Expr::int(std::mem::take(&mut constant)) - scaled(m, c.wrapping_neg())
                }
                None => scaled(m, *c),
            });
        }
        match sum {
            None => Expr::int(constant),
            Some(sum) if constant == 0 => sum,
            Some(sum) if constant < 0 && constant != i64::MIN => sum - Expr::int(-constant),
            Some(sum) => sum + Expr::int(constant),
        }
    }
}

/// `product · coefficient`.
fn scaled(monomial: &Monomial, coefficient: i64) -> Expr {
    let product = monomial.iter().cloned().reduce(|a, b| a * b).unwrap_or_else(|| Expr::int(1));
    if coefficient == 1 { product } else { product * Expr::int(coefficient) }
}

/// Greatest common divisor of the magnitudes.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}

/// A total order of products: by number of atoms, then atom by atom.
fn order_monomials(a: &Monomial, b: &Monomial) -> Ordering {
    let by_atoms = || a.iter().zip(b).map(|(x, y)| order(x, y)).find(|o| o.is_ne());
    by_atoms().unwrap_or(Ordering::Equal).then(a.len().cmp(&b.len()))
}

/// A total structural order of expressions, the same in every run.
pub fn order(a: &Expr, b: &Expr) -> Ordering {
    if a.same(b) {
        return Ordering::Equal;
    }
    rank(a).cmp(&rank(b)).then_with(|| {
        let (mut xs, mut ys) = (Vec::new(), Vec::new());
        a.for_each_operand(|x| xs.push(x.clone()));
        b.for_each_operand(|y| ys.push(y.clone()));
        // Equality looks at shared nodes once; only the first operands that differ are gone into.
        let differing = xs.iter().zip(&ys).find(|(x, y)| x != y);
        differing.map_or(Ordering::Equal, |(x, y)| order(x, y)).then(xs.len().cmp(&ys.len()))
    })
}

/// What a node is, without its operands.
fn rank(e: &Expr) -> (u8, i64, u8) {
    let dtype = e.dtype() as u8;
    match e.kind() {
        ExprKind::Var(v) => (0, v.as_u32() as i64, dtype),
        ExprKind::Int(v) => (1, *v, dtype),
        ExprKind::Float(v) => (2, *v as i64, dtype),
        ExprKind::Unary(op, _) => (3, *op as i64, dtype),
        ExprKind::Binary(op, ..) => (4, *op as i64, dtype),
        ExprKind::Compare(op, ..) => (5, *op as i64, dtype),
        ExprKind::Select(..) => (6, 0, dtype),
        ExprKind::Cast(_) => (7, 0, dtype),
        ExprKind::Bitcast(_) => (8, 0, dtype),
        ExprKind::Fma(..) => (9, 0, dtype),
        ExprKind::Load(buffer, _) => (10, buffer.as_u32() as i64, dtype),
    }
}
