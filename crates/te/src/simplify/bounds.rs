//! Bounds of index expressions: constant intervals, and bounds by elimination of variables.
//!
//! Intervals are cheap and lose the relation between variables. [`Simplifier::lower_bound`] keeps it: it
//! works on the normal form, replaces the innermost variable by the end of its (symbolic) range that makes
//! the sum least, and goes on with what is left, so that `n - 1 - i` with `i` in `0..n` is found to be at
//! least 0. [`Simplifier::extreme`] gives bounds as expressions over chosen variables, from which regions of
//! buffers are inferred.

use crate::expr::{BinaryOp, Expr, ExprKind, UnaryOp, Var};
use crate::simplify::linear::Linear;
use crate::simplify::{Budget, Simplifier};

/// An inclusive range of values; the extreme `i64`s stand for "unbounded".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Least value.
    pub lo: i64,
    /// Greatest value.
    pub hi: i64,
}

/// How deep the elimination of variables goes before it gives up.
const MAX_DEPTH: u32 = 14;

/// Steps that one question about bounds may take: one for each term that elimination looks at, or atom that an extreme is made
/// of. Minima, maxima and selections make two questions of one, so a form with many of them would take exponentially many.
pub const MAX_STEPS: u32 = 1 << 12;

/// Forms with larger coefficients are not scaled: the products could wrap.
const MAX_COEFFICIENT: u64 = 1 << 40;

impl Interval {
    /// Every value.
    pub const ALL: Interval = Interval { lo: i64::MIN, hi: i64::MAX };

    /// One value.
    pub fn point(value: i64) -> Interval {
        Interval { lo: value, hi: value }
    }

    /// The sum's range.
    pub fn plus(self, other: Interval) -> Interval {
        let lo = if self.lo == i64::MIN || other.lo == i64::MIN {
            i64::MIN
        } else {
            self.lo.saturating_add(other.lo)
        };
        let hi = if self.hi == i64::MAX || other.hi == i64::MAX {
            i64::MAX
        } else {
            self.hi.saturating_add(other.hi)
        };
        Interval { lo, hi }
    }

    /// The product's range.
    pub fn times(self, other: Interval) -> Interval {
        let corners = [
            product(self.lo, other.lo),
            product(self.lo, other.hi),
            product(self.hi, other.lo),
            product(self.hi, other.hi),
        ];
        let (mut lo, mut hi) = (corners[0], corners[0]);
        for corner in corners {
            lo = lo.min(corner);
            hi = hi.max(corner);
        }
        Interval { lo, hi }
    }

    /// The smallest range that holds both.
    pub fn hull(self, other: Interval) -> Interval {
        Interval { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }
}

/// A product in which an unbounded factor stays unbounded, and 0 stays 0.
fn product(a: i64, b: i64) -> i64 {
    a.checked_mul(b).unwrap_or(if (a < 0) == (b < 0) { i64::MAX } else { i64::MIN })
}

/// An unbounded end stays unbounded.
fn div_end(value: i64, divisor: i64) -> i64 {
    if value == i64::MIN || value == i64::MAX { value } else { value.div_euclid(divisor) }
}

impl Simplifier {
    /// A range that holds every value of an `I64` expression.
    pub fn interval(&self, expr: &Expr) -> Interval {
        if let ExprKind::Int(_) | ExprKind::Var(_) | ExprKind::Load(..) = expr.kind() {
            return self.known_positive(expr, self.interval_node(expr));
        }
        if let Some(&known) = self.intervals.borrow().get(expr) {
            return known;
        }
        let interval = self.known_positive(expr, self.interval_node(expr));
        self.intervals.borrow_mut().insert(expr.clone(), interval);
        interval
    }

    /// The interval of an expression that may be known to be at least 1.
    fn known_positive(&self, expr: &Expr, interval: Interval) -> Interval {
        match self.positive.iter().any(|(known, _)| known == expr) {
            true => Interval { lo: interval.lo.max(1), ..interval },
            false => interval,
        }
    }

    fn interval_node(&self, expr: &Expr) -> Interval {
        match expr.kind() {
            ExprKind::Int(value) => Interval::point(*value),
            ExprKind::Var(var) => self.ranges.get(var).map_or(Interval::ALL, |r| r.interval),
            ExprKind::Unary(UnaryOp::Neg, a) => self.interval(a).times(Interval::point(-1)),
            ExprKind::Binary(op, a, b) => self.interval_binary(*op, a, b),
            ExprKind::Select(_, a, b) => self.interval(a).hull(self.interval(b)),
            ExprKind::Cast(a)
                if a.dtype().is_integer() && !a.dtype().is_signed() && a.dtype().bits() < 64 =>
            {
                Interval { lo: 0, hi: (1i64 << a.dtype().bits()) - 1 }
            }
            ExprKind::Float(_)
            | ExprKind::Unary(..)
            | ExprKind::Compare(..)
            | ExprKind::Cast(_)
            | ExprKind::Bitcast(_)
            | ExprKind::Fma(..)
            | ExprKind::Load(..) => Interval::ALL,
        }
    }

    fn interval_binary(&self, op: BinaryOp, a: &Expr, b: &Expr) -> Interval {
        let (x, y) = (self.interval(a), self.interval(b));
        match op {
            BinaryOp::Add => x.plus(y),
            BinaryOp::Sub => x.plus(y.times(Interval::point(-1))),
            BinaryOp::Mul => x.times(y),
            BinaryOp::Min => Interval { lo: x.lo.min(y.lo), hi: x.hi.min(y.hi) },
            BinaryOp::Max => Interval { lo: x.lo.max(y.lo), hi: x.hi.max(y.hi) },
            BinaryOp::FloorDiv if y.lo > 0 => {
                let corners =
                    [div_end(x.lo, y.lo), div_end(x.lo, y.hi), div_end(x.hi, y.lo), div_end(x.hi, y.hi)];
                Interval {
                    lo: corners.into_iter().fold(i64::MAX, i64::min),
                    hi: corners.into_iter().fold(i64::MIN, i64::max),
                }
            }
            BinaryOp::FloorMod if y.lo > 0 => {
                let hi = if y.hi == i64::MAX { i64::MAX } else { y.hi - 1 };
                Interval { lo: 0, hi: if x.lo >= 0 { hi.min(x.hi) } else { hi } }
            }
            BinaryOp::Div if y.lo > 0 && x.lo >= 0 => Interval { lo: 0, hi: x.hi },
            BinaryOp::Rem if y.lo > 0 && x.lo >= 0 => {
                Interval { lo: 0, hi: if y.hi == i64::MAX { x.hi } else { x.hi.min(y.hi - 1) } }
            }
            BinaryOp::And if x.lo >= 0 && y.lo >= 0 => Interval { lo: 0, hi: x.hi.min(y.hi) },
            BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::FloorDiv
            | BinaryOp::FloorMod
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Shl
            | BinaryOp::Shr
            | BinaryOp::Pow
            | BinaryOp::Atan2
            | BinaryOp::Fmod => Interval::ALL,
        }
    }

    /// The range of a normal form, term by term.
    fn interval_linear(&self, linear: &Linear) -> Interval {
        linear.terms.iter().fold(Interval::point(linear.constant), |sum, (m, c)| {
            let product = m.iter().fold(Interval::point(*c), |p, atom| p.times(self.interval(atom)));
            sum.plus(product)
        })
    }

    /// A constant that the form is never less than, the best that is found.
    pub fn lower_bound(&self, linear: &Linear) -> Option<i64> {
        self.lower_bound_within(linear, &Budget::of(MAX_STEPS))
    }

    /// As [`Simplifier::lower_bound`], the best that is found within a budget.
    pub fn lower_bound_within(&self, linear: &Linear, budget: &Budget) -> Option<i64> {
        self.bound_below(linear, 0, budget)
    }

    /// A constant that the expression never exceeds, the best that is found.
    pub fn upper_bound(&self, expr: &Expr) -> Option<i64> {
        self.lower_bound(&self.linear(expr).scale(-1)).and_then(i64::checked_neg)
    }

    fn bound_below(&self, linear: &Linear, depth: u32, budget: &Budget) -> Option<i64> {
        let direct = Some(self.interval_linear(linear).lo).filter(|lo| *lo != i64::MIN);
        let large = |c: i64| c.unsigned_abs() > MAX_COEFFICIENT;
        let too_large = large(linear.constant) || linear.terms.iter().any(|t| large(t.1));
        if linear.terms.is_empty() || depth >= MAX_DEPTH || too_large {
            return direct;
        }
        let affordable = budget.spend(linear.terms.len() as u32);
        direct.max(if affordable { self.bound_by_elimination(linear, depth, budget) } else { None })
    }

    /// One step of elimination: the atom that constrains most is replaced by what bounds it.
    fn bound_by_elimination(&self, linear: &Linear, depth: u32, budget: &Budget) -> Option<i64> {
        let bound = |linear: &Linear| self.bound_below(linear, depth + 1, budget);
        let with = |index: usize, replacement: &Expr| {
            let mut rest = linear.clone();
            let (_, coefficient) = rest.terms.remove(index);
            rest.add(&Linear::of(replacement).scale(coefficient))
        };
        let single = |m: &[Expr]| (m.len() == 1).then(|| m[0].clone());
        // A value that may be either of two: both must be bounded. These come before free choices.
        for (index, (m, c)) in linear.terms.iter().enumerate() {
            let Some(atom) = single(m) else { continue };
            let sides = match atom.kind() {
                ExprKind::Binary(BinaryOp::Min, a, b) if *c > 0 => (a, b),
                ExprKind::Binary(BinaryOp::Max, a, b) if *c < 0 => (a, b),
                ExprKind::Select(_, a, b) => (a, b),
                _ => continue,
            };
            let a = bound(&with(index, sides.0))?;
            return Some(a.min(bound(&with(index, sides.1))?));
        }
        for (index, (m, c)) in linear.terms.iter().enumerate() {
            let Some(atom) = single(m) else { continue };
            let sides = match atom.kind() {
                ExprKind::Binary(BinaryOp::Min, a, b) if *c < 0 => (a, b),
                ExprKind::Binary(BinaryOp::Max, a, b) if *c > 0 => (a, b),
                _ => continue,
            };
            let a = bound(&with(index, sides.0));
            return a.max(bound(&with(index, sides.1)));
        }
        if let Some((index, position)) = self.innermost(linear, true) {
            return bound(&self.eliminate(linear, index, position)?);
        }
        for (index, (m, c)) in linear.terms.iter().enumerate() {
            let Some(atom) = single(m) else { continue };
            let ExprKind::Binary(op @ (BinaryOp::FloorDiv | BinaryOp::FloorMod), x, d) = atom.kind() else {
                continue;
            };
            if self.interval(d).lo <= 0 {
                continue;
            }
            if *op == BinaryOp::FloorMod {
                let end = if *c > 0 { Expr::int(0) } else { d.clone() - 1 };
                return bound(&with(index, &end));
            }
            if let Some(end) = self.end_of_quotient(linear, &atom, *c < 0, budget) {
                return bound(&with(index, &end));
            }
            if let Some(divisor) = d.as_int() {
                // x - (d - 1) <= d * (x floordiv d) <= x, so the whole form is bounded d-fold.
                let slack = if *c > 0 { Expr::int(divisor - 1) } else { Expr::int(0) };
                let mut rest = linear.clone();
                rest.terms.remove(index);
                let scaled = rest.scale(divisor).add(&Linear::of(&(x.clone() - slack)).scale(*c));
                return bound(&scaled).map(|b| ceil_div(b, divisor));
            }
            if let Some(end) = self.extreme_atom(&atom, *c < 0, &|v| self.is_loop(v), budget)
                && end != atom
            {
                return bound(&with(index, &end));
            }
        }
        let (index, position) = self.innermost(linear, false)?;
        bound(&self.eliminate(linear, index, position)?)
    }

    /// The end of the range of a variable's quotient, where nothing else in the form depends on the variable: what is lost in rounding
    /// is known then.
    fn end_of_quotient(&self, linear: &Linear, atom: &Expr, upper: bool, budget: &Budget) -> Option<Expr> {
        let ExprKind::Binary(BinaryOp::FloorDiv, x, _) = atom.kind() else { return None };
        let var = x.as_var().filter(|&var| self.is_loop(var))?;
        let atoms = linear.terms.iter().flat_map(|(monomial, _)| monomial);
        let is_apart = atoms.filter(|atom| atom.uses(var)).count() == 1;
        if is_apart { self.extreme_atom(atom, upper, &|v| v == var, budget) } else { None }
    }

    /// The form with one variable replaced by the end of its range that makes the term least.
    fn eliminate(&self, linear: &Linear, index: usize, position: usize) -> Option<Linear> {
        let mut rest = linear.clone();
        let (mut others, c) = rest.terms.remove(index);
        let range = &self.ranges[&others.remove(position).as_var()?];
        if others.iter().any(|atom| self.interval(atom).lo < 0) {
            return None;
        }
        let end = if c > 0 { &range.min } else { &range.max };
        let replaced = others.into_iter().fold(end.clone(), |product, atom| product * atom);
        Some(rest.add(&Linear::of(&replaced).scale(c)))
    }

    /// The term and factor holding the variable bound last, among those with symbolic ranges; with `apart`,
    /// only variables that no other atom depends on (a division is best bounded after its operands).
    fn innermost(&self, linear: &Linear, apart: bool) -> Option<(usize, usize)> {
        let inside = |var: Var| {
            let mut atoms = linear.terms.iter().flat_map(|(m, _)| m);
            atoms.any(|atom| atom.as_var().is_none() && atom.uses(var))
        };
        let mut best: Option<(u32, usize, usize)> = None;
        for (index, (m, _)) in linear.terms.iter().enumerate() {
            for (position, atom) in m.iter().enumerate() {
                let rank = atom.as_var().and_then(|v| self.ranges.get(&v)).and_then(|r| r.rank);
                if let Some(rank) = rank
                    && best.is_none_or(|b| rank > b.0)
                    && !(apart && atom.as_var().is_some_and(inside))
                {
                    best = Some((rank, index, position));
                }
            }
        }
        best.map(|(_, index, position)| (index, position))
    }

    /// The least (or, with `upper`, the greatest) value of an index expression over all values of the
    /// variables that `eliminate` names, as a simplified expression without them. It is attained or beyond
    /// what is attained (never inside the true range); `None` where nothing is known.
    pub fn extreme(&self, expr: &Expr, upper: bool, eliminate: &dyn Fn(Var) -> bool) -> Option<Expr> {
        self.extreme_within(expr, upper, eliminate, &Budget::of(MAX_STEPS))
    }

    /// As [`Simplifier::extreme`]; nothing where that takes more than a budget.
    pub fn extreme_within(
        &self,
        expr: &Expr,
        upper: bool,
        eliminate: &dyn Fn(Var) -> bool,
        budget: &Budget,
    ) -> Option<Expr> {
        let mut sum = Linear::int(0);
        let linear = self.linear(expr);
        sum.constant = linear.constant;
        for (m, c) in &linear.terms {
            let toward = upper == (*c > 0);
            let mut product = Linear::int(*c);
            for atom in m {
                if m.len() > 1 && atom.any(&mut |e| e.as_var().is_some_and(eliminate)) {
                    let signs_known = m.iter().all(|a| self.interval(a).lo >= 0);
                    if !signs_known {
                        return None;
                    }
                }
                product = product.mul(&Linear::of(&self.extreme_atom(atom, toward, eliminate, budget)?));
            }
            sum = sum.add(&product);
        }
        Some(self.simplify(&sum.to_expr()))
    }

    fn extreme_atom(
        &self,
        atom: &Expr,
        upper: bool,
        eliminate: &dyn Fn(Var) -> bool,
        budget: &Budget,
    ) -> Option<Expr> {
        if !budget.spend(1) {
            return None;
        }
        let extreme = |e: &Expr, upper: bool| self.extreme_within(e, upper, eliminate, budget);
        if !atom.any(&mut |e| e.as_var().is_some_and(eliminate)) {
            return Some(atom.clone());
        }
        let free = |e: &Expr| !e.any(&mut |e| e.as_var().is_some_and(eliminate));
        match atom.kind() {
            ExprKind::Var(var) => {
                let range = self.ranges.get(var)?;
                extreme(if upper { &range.max } else { &range.min }, upper)
            }
            ExprKind::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => {
                let (a, b) = (extreme(a, upper), extreme(b, upper));
                match (a, b) {
                    (Some(a), Some(b)) => Some(self.simplify(&Expr::binary(*op, a, b))),
                    // An upper bound of one side bounds a minimum, a lower bound of one side a maximum.
                    (a, b) if upper == (*op == BinaryOp::Min) => a.or(b),
                    _ => None,
                }
            }
            ExprKind::Binary(BinaryOp::FloorDiv, x, d) if free(d) && self.interval(d).lo > 0 => {
                Some(self.simplify(&extreme(x, upper)?.floor_div(d.clone())))
            }
            ExprKind::Binary(BinaryOp::FloorMod, x, d) if free(d) && self.interval(d).lo > 0 => {
                let ends = extreme(x, false).zip(extreme(x, true));
                if let Some((lo, hi)) = &ends {
                    let row = |e: &Expr| self.simplify(&e.clone().floor_div(d.clone()));
                    if row(lo) == row(hi) {
                        let end = if upper { hi } else { lo };
                        return Some(self.simplify(&end.clone().floor_mod(d.clone())));
                    }
                }
                match ends {
                    _ if !upper => Some(Expr::int(0)),
                    Some((lo, hi)) if self.interval(&lo).lo >= 0 => {
                        Some(self.simplify(&hi.min(d.clone() - 1)))
                    }
                    _ => Some(self.simplify(&(d.clone() - 1))),
                }
            }
            ExprKind::Select(_, a, b) => {
                let (a, b) = (extreme(a, upper)?, extreme(b, upper)?);
                Some(self.simplify(&if upper { a.max(b) } else { a.min(b) }))
            }
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Unary(..)
            | ExprKind::Binary(..)
            | ExprKind::Compare(..)
            | ExprKind::Cast(_)
            | ExprKind::Bitcast(_)
            | ExprKind::Fma(..)
            | ExprKind::Load(..) => None,
        }
    }
}

/// Quotient rounded toward plus infinity.
fn ceil_div(value: i64, divisor: i64) -> i64 {
    value.div_euclid(divisor) + (value.rem_euclid(divisor) != 0) as i64
}
