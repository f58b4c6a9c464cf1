//! Simplification and proofs about index arithmetic.
//!
//! A [`Simplifier`] knows ranges of variables, symbolic ones included, and facts (guards known to hold). It
//! brings index expressions into a sum-of-products normal form ([`linear`]) and rewrites divisions,
//! remainders, minima, comparisons and selections by the table of rules in [`rules`], each of which consults
//! the bounds of [`bounds`]. Floats are never touched, apart from the indices of loads below them.
//!
//! Indices never overflow in a legal function, so range arguments are exact.

pub mod bounds;
pub mod budget;
pub mod linear;
pub mod rules;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;
use tilewright_dtype::DType;

use crate::expr::{BinaryOp, CompareOp, Expr, ExprKind, UnaryOp, Var};
use crate::func::{Func, VarKind};
pub use bounds::Interval;
pub use budget::Budget;
pub use linear::Linear;

/// Ranges and facts, and what follows from them.
#[derive(Default)]
pub struct Simplifier {
    ranges: FxHashMap<Var, Range>,
    /// Forms known to be at least 0.
    facts: Vec<Linear>,
    /// Expressions that are at least 1, each with how many facts it takes for that.
    positive: Vec<(Expr, usize)>,
    /// Whether extents are known to be at least 1; then quotients are multiplied out, which takes time.
    multiplies_out: bool,
    memo: RefCell<FxHashMap<Expr, Expr>>,
    /// Ranges of expressions, by the ranges of variables.
    intervals: RefCell<FxHashMap<Expr, Interval>>,
    depth: Cell<u32>,
    keeps_fixed: bool,
}

/// What is known of a variable.
struct Range {
    /// Least value, over variables bound before.
    min: Expr,
    /// Greatest value, over variables bound before.
    max: Expr,
    /// Both as constants.
    interval: Interval,
    /// Position among the variables with symbolic ranges; sizes have none.
    rank: Option<u32>,
}

/// Nesting of rewrites after which expressions are left as they are.
const MAX_NESTING: u32 = 64;

impl Simplifier {
    /// A simplifier that knows nothing of any variable.
    pub fn new() -> Simplifier {
        Simplifier::default()
    }

    /// The quotient of an extent and a divisor above 1 that divides it whatever the size variables are; nothing where it does not, or the
    /// extent is 0.
    pub fn exact_quotient(&self, extent: &Expr, divisor: i64) -> Option<Expr> {
        if divisor <= 1 || extent.as_int().is_some_and(|extent| extent <= 0) {
            return None;
        }
        let divisor = Expr::int(divisor);
        let remainder = self.simplify(&extent.clone().floor_mod(divisor.clone()));
        (remainder.as_int() == Some(0)).then(|| self.simplify(&extent.clone().floor_div(divisor)))
    }

    /// A simplifier that knows the function's symbolic sizes.
    pub fn for_sizes(func: &Func) -> Simplifier {
        let mut simplifier = Simplifier::new();
        for &var in &func.sizes {
            if let VarKind::Size { min, max, .. } = func.vars[var].kind {
                simplifier.bind_size(var, min, max);
            }
        }
        simplifier
    }

    /// Keeps variables of which there is only one value, instead of writing the value: later edits of the
    /// loop that binds such a variable must still find it.
    pub fn keep_fixed_variables(mut self) -> Simplifier {
        self.keeps_fixed = true;
        self
    }

    /// Binds a symbolic size to constants, inclusive.
    pub fn bind_size(&mut self, var: Var, min: i64, max: i64) {
        let interval = Interval { lo: min, hi: max };
        self.ranges.insert(var, Range { min: Expr::int(min), max: Expr::int(max), interval, rank: None });
        self.forget();
    }

    /// Whether the variable was bound by [`Simplifier::bind_range`].
    pub fn is_loop(&self, var: Var) -> bool {
        self.ranges.get(&var).is_some_and(|r| r.rank.is_some())
    }

    /// Binds a variable to `min .. min + extent` (exclusive), expressions over variables bound before.
    ///
    /// The range is taken to be non-empty: what is proven holds wherever the variable has a value.
    pub fn bind_range(&mut self, var: Var, min: impl Into<Expr>, extent: impl Into<Expr>) {
        let min = self.simplify(&min.into());
        let max = self.simplify(&(min.clone() + extent.into() - 1));
        let (low, high) = (self.interval(&min), self.interval(&max));
        let interval = Interval { lo: low.lo, hi: high.hi.max(low.lo) };
        let rank = Some(self.ranges.len() as u32);
        self.ranges.insert(var, Range { min, max, interval, rank });
        self.forget();
    }

    /// Forgets what followed from the ranges so far.
    fn forget(&mut self) {
        self.memo.get_mut().clear();
        self.intervals.get_mut().clear();
    }

    /// Adds a condition known to hold; conjunctions are taken apart, other than index comparisons ignored.
    pub fn assume(&mut self, condition: &Expr) {
        match condition.kind() {
            ExprKind::Binary(BinaryOp::And, a, b) => {
                self.assume(a);
                self.assume(b);
            }
            ExprKind::Compare(op, a, b) if a.dtype() == DType::I64 => {
                let difference = self.linear(b).sub(&self.linear(a));
                let less_one = |l: Linear| l.add(&Linear::int(-1));
                match op {
                    CompareOp::Lt => self.facts.push(less_one(difference)),
                    CompareOp::Le => self.facts.push(difference),
                    CompareOp::Gt => self.facts.push(less_one(difference.scale(-1))),
                    CompareOp::Ge => self.facts.push(difference.scale(-1)),
                    CompareOp::Eq => {
                        self.facts.push(difference.scale(-1));
                        self.facts.push(difference);
                    }
                    CompareOp::Ne => {}
                }
                self.memo.borrow_mut().clear();
            }
            _ => {}
        }
    }

    /// Notes that an extent is at least 1, and so are its factors: where a loop runs, it has iterations.
    pub fn assume_positive(&mut self, extent: &Expr) {
        self.multiplies_out = true;
        match extent.kind() {
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                self.assume_positive(a);
                self.assume_positive(b);
            }
            ExprKind::Int(_) => {}
            _ => {
                self.assume_factors_positive(extent);
                // In whichever form it is met.
                for form in [extent.clone(), self.simplify(extent)] {
                    if !self.positive.iter().any(|(known, _)| *known == form) {
                        self.positive.push((form, self.facts.len()));
                    }
                }
            }
        }
        self.forget();
    }

    /// Notes what follows of a rounded quotient that is at least 1: a product that is all that makes it so is not 0.
    fn assume_factors_positive(&mut self, quotient: &Expr) {
        let ExprKind::Binary(BinaryOp::FloorDiv, x, d) = quotient.kind() else { return };
        let sum = self.linear(x);
        let ([(product, k)], Some(d)) = (&sum.terms[..], d.as_int()) else { return };
        if *k > 0 && sum.constant < d && product.iter().all(|factor| self.interval(factor).lo >= 0) {
            product.iter().for_each(|factor| self.assume_positive(factor));
        }
    }

    /// How many facts are known.
    pub fn n_facts(&self) -> usize {
        self.facts.len()
    }

    /// Forgets all facts but the first `n`, and what followed from the others.
    pub fn forget_facts(&mut self, n: usize) {
        self.facts.truncate(n);
        let n_positive = self.positive.len();
        self.positive.retain(|(_, n_facts)| *n_facts <= n);
        if self.positive.len() < n_positive {
            self.forget();
        }
        self.memo.borrow_mut().clear();
    }

    /// An equal expression in normal form; simplifying it again changes nothing.
    pub fn simplify(&self, expr: &Expr) -> Expr {
        if matches!(expr.kind(), ExprKind::Int(_) | ExprKind::Float(_)) {
            return expr.clone();
        }
        if let Some(known) = self.memo.borrow().get(expr) {
            return known.clone();
        }
        let result = if is_sum(expr) { self.linear(expr).to_expr() } else { self.simplify_atom(expr) };
        let mut memo = self.memo.borrow_mut();
        memo.insert(result.clone(), result.clone());
        memo.insert(expr.clone(), result.clone());
        result
    }

    /// Whether the condition is known to hold for all values in range.
    pub fn prove(&self, condition: &Expr) -> bool {
        self.simplify(condition).as_int() == Some(1)
    }

    /// Whether two index expressions are known to be equal.
    pub fn prove_equal(&self, a: &Expr, b: &Expr) -> bool {
        self.linear(&(a.clone() - b.clone())).as_int() == Some(0)
    }

    /// Whether `a <= b` is known.
    pub fn prove_le(&self, a: &Expr, b: &Expr) -> bool {
        self.is_non_negative(&self.linear(b).sub(&self.linear(a)))
    }

    /// Whether `a < b` is known.
    pub fn prove_lt(&self, a: &Expr, b: &Expr) -> bool {
        self.is_non_negative(&self.linear(b).sub(&self.linear(a)).add(&Linear::int(-1)))
    }

    /// Whether the form is known to be at least 0, by bounds or with the help of one fact: a whole number of times, so that a term
    /// of both goes away, or once. Where loops are known to run, quotients are also multiplied out.
    pub fn is_non_negative(&self, linear: &Linear) -> bool {
        let budget = Budget::of(bounds::MAX_STEPS);
        let at_least_zero = |l: &Linear| self.lower_bound_within(l, &budget).is_some_and(|b| b >= 0);
        let with = |linear: &Linear, fact: &Linear| {
            let times = fact.terms.iter().filter_map(|(monomial, k)| {
                let (_, own) = linear.terms.iter().find(|(other, _)| other == monomial)?;
                own.checked_rem(*k).filter(|&rest| rest == 0).map(|_| own / k).filter(|&times| times > 1)
            });
            let scaled = |times: i64| fact.checked_scale(times);
            std::iter::once(1).chain(times).filter_map(scaled).any(|fact| at_least_zero(&linear.sub(&fact)))
        };
        at_least_zero(linear)
            || self.facts.iter().any(|fact| with(linear, fact))
            || self.multiplies_out
                && self
                    .multiplied_out(linear)
                    .iter()
                    .any(|form| at_least_zero(form) || self.facts.iter().any(|fact| with(form, fact)))
    }

    /// Forms without one of a form's quotients or remainders that are at least 0 only where the form is: `d·(x floordiv d)` is between
    /// `x - (d - 1)` and `x`, and a whole number of `d` that is greater than `-d` is at least 0.
    fn multiplied_out(&self, linear: &Linear) -> Vec<Linear> {
        let divisor = linear.terms.iter().fold(0, |divisor, (_, k)| linear::gcd(divisor, *k)).max(1);
        let terms: Vec<(Vec<Expr>, i64)> =
            linear.terms.iter().map(|(m, k)| (m.clone(), k / divisor)).collect();
        let linear = Linear { terms, constant: linear.constant.div_euclid(divisor) };
        let multiplied = |(index, (monomial, k)): (usize, &(Vec<Expr>, i64))| {
            let [atom] = &monomial[..] else { return None };
            let ExprKind::Binary(op @ (BinaryOp::FloorDiv | BinaryOp::FloorMod), x, d) = atom.kind() else {
                return None;
            };
            if self.interval(d).lo < 1 {
                return None;
            }
            let mut rest = linear.clone();
            rest.terms.remove(index);
            let below = Linear::of(&(d.clone() - 1));
            if *op == BinaryOp::FloorMod {
                let end = if *k > 0 { Linear::int(0) } else { below };
                return Some(rest.add(&end.checked_scale(*k)?));
            }
            let quotient = if *k > 0 { Linear::of(x).sub(&below) } else { Linear::of(x) };
            Some(rest.mul(&Linear::of(d)).add(&quotient.checked_scale(*k)?).add(&below))
        };
        linear.terms.iter().enumerate().filter_map(multiplied).collect()
    }

    /// The sum-of-products normal form, atoms simplified, `(x floordiv n)·n + x floormod n` put together.
    pub fn linear(&self, expr: &Expr) -> Linear {
        let mut linear = Linear::of_atoms(expr, &mut |atom| Linear::of(&self.simplify_atom(atom)));
        while let Some(joined) = self.join_division(&linear) {
            linear = Linear::of_atoms(&joined.to_expr(), &mut |atom| Linear::of(&self.simplify_atom(atom)));
        }
        linear
    }

    /// [`Simplifier::simplify`] for sums and products of expressions in normal form: nothing is proven of these again, and only
    /// quotients and remainders are put together.
    pub fn join(&self, sum: &Expr) -> Expr {
        let mut linear = Linear::of(sum);
        let mut is_joined = false;
        while let Some(joined) = self.join_division(&linear) {
            linear = Linear::of(&joined.to_expr());
            is_joined = true;
        }
        if is_joined { self.simplify(&linear.to_expr()) } else { linear.to_expr() }
    }

    /// Simplifies a node that is no sum: operands first, then the rules until none applies.
    fn simplify_atom(&self, expr: &Expr) -> Expr {
        if let Some(known) = self.memo.borrow().get(expr) {
            return known.clone();
        }
        if let Some(var) = expr.as_var() {
            let fixed = self.ranges.get(&var).filter(|r| r.min == r.max && !self.keeps_fixed);
            return fixed.map_or_else(|| expr.clone(), |r| r.min.clone());
        }
        // Proofs about a node simplify what they derive from it: this must end.
        if self.depth.get() >= MAX_NESTING {
            return expr.clone();
        }
        self.depth.set(self.depth.get() + 1);
        let result = self.simplify_node(expr);
        self.depth.set(self.depth.get() - 1);
        result
    }

    fn simplify_node(&self, expr: &Expr) -> Expr {
        let node = expr.map_operands(|operand| self.simplify(operand));
        if !matches!(node.dtype(), DType::I64 | DType::Bool) && !matches!(node.kind(), ExprKind::Select(..)) {
            return node;
        }
        match rules::RULES.iter().find_map(|rule| (rule.apply)(self, &node).filter(|new| *new != node)) {
            Some(rewritten) => self.simplify(&rewritten),
            None => node,
        }
    }
}

/// Whether the node is taken apart by the normal form.
fn is_sum(expr: &Expr) -> bool {
    expr.dtype() == DType::I64
        && matches!(
            expr.kind(),
            ExprKind::Unary(UnaryOp::Neg, _)
                | ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, ..)
        )
}

impl Simplifier {
    /// `k·d·m·(x floordiv d) + k·m·(y floormod d)` as `k·m·x`, for one such pair. `y` is `x`, or, where `d` is a constant,
    /// differs from it by a multiple of `d`: remainders have had their multiples taken out. Where `x` is `u floordiv c`, the
    /// quotient is `u floordiv c·d`.
    fn join_division(&self, linear: &Linear) -> Option<Linear> {
        for (index, (monomial, coefficient)) in linear.terms.iter().enumerate() {
            for (position, atom) in monomial.iter().enumerate() {
                let ExprKind::Binary(BinaryOp::FloorMod, y, d) = atom.kind() else { continue };
                let mut others = Linear::int(*coefficient);
                for (i, other) in monomial.iter().enumerate() {
                    if i != position {
                        others = others.mul(&Linear::atom(other.clone()));
                    }
                }
                let atoms = linear.terms.iter().flat_map(|(monomial, _)| monomial);
                for quotient in atoms {
                    let divided = others.mul(&Linear::of(d)).mul(&Linear::atom(quotient.clone()));
                    let has_all =
                        divided.constant == 0 && divided.terms.iter().all(|t| linear.terms.contains(t));
                    if has_all && let Some(x) = self.divided_by(quotient, y, d) {
                        let mut rest = linear.clone();
                        rest.terms.remove(index);
                        return Some(rest.sub(&divided).add(&others.mul(&Linear::of(&x))));
                    }
                }
            }
        }
        None
    }

    /// `x`, if the atom is `x floordiv d` in one of its forms and `x` has the same remainder by `d` as `y`.
    fn divided_by(&self, quotient: &Expr, y: &Expr, d: &Expr) -> Option<Expr> {
        let ExprKind::Binary(BinaryOp::FloorDiv, x, by) = quotient.kind() else { return None };
        if by == d && is_congruent(x, y, d) {
            return Some(x.clone());
        }
        if let (ExprKind::Binary(BinaryOp::FloorDiv, u, c), Some(d)) = (y.kind(), d.as_int()) {
            let whole = c.as_int()?.checked_mul(d)?;
            let is_nested = c.as_int()? > 0 && by.as_int() == Some(whole) && is_congruent(x, u, by);
            return is_nested.then(|| x.clone().floor_div(c.clone()));
        }
        // Of an open extent: whatever form `u floordiv c` has got.
        let c = exact_factor(by, d)?;
        let is_rounded_twice = self.interval(d).lo >= 0 && self.interval(&c).lo > 0;
        (is_rounded_twice && self.simplify(&x.clone().floor_div(c)) == *y).then(|| y.clone())
    }
}

/// `product / factor`, where the one is seen to be a product of atoms times the other, which is no constant.
fn exact_factor(product: &Expr, factor: &Expr) -> Option<Expr> {
    let (product, factor) = (Linear::of(product), Linear::of(factor));
    let ((atoms, k), (own, l)) = (product.terms.first()?, factor.terms.first()?);
    let mut left = atoms.clone();
    for atom in own {
        left.remove(left.iter().position(|other| other == atom)?);
    }
    let quotient = k.checked_div(*l).filter(|quotient| quotient * l == *k)?;
    let quotient =
        left.into_iter().fold(Linear::int(quotient), |product, atom| product.mul(&Linear::atom(atom)));
    (factor.mul(&quotient) == product).then(|| quotient.to_expr())
}

/// Whether `x` and `y` are seen to have the same remainder by `d`.
fn is_congruent(x: &Expr, y: &Expr, d: &Expr) -> bool {
    if x == y {
        return true;
    }
    let Some(d) = d.as_int().filter(|&d| d > 0) else { return false };
    let difference = Linear::of(x).sub(&Linear::of(y));
    difference.constant % d == 0 && difference.terms.iter().all(|(_, k)| k % d == 0)
}
