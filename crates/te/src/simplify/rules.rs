//! The rewrite rules of the simplifier.
//!
//! A rule looks at one node whose operands are in normal form and returns an equal, simpler expression. The
//! tests run every rule over random expressions and compare values before and after.

use tilewright_dtype::DType;

use crate::expr::{BinaryOp, CompareOp, Expr, ExprKind, UnaryOp};
use crate::simplify::Simplifier;
use crate::simplify::linear::{Linear, gcd, order};

/// A named rewrite.
pub struct Rule {
    /// What the rule is called in tests and documents.
    pub name: &'static str,
    /// Returns an equal expression where the rule applies.
    pub apply: fn(&Simplifier, &Expr) -> Option<Expr>,
}

/// The table, tried in order. `c`, `a` are positive constants, `d` any positive expression.
#[rustfmt::skip]
pub const RULES: &[Rule] = &[
    Rule { name: "div: c·q + r  ->  q + r div c",                                  apply: div_multiples },
    Rule { name: "div: x in k·c .. (k+1)·c  ->  k",                                apply: div_by_bounds },
    Rule { name: "div: (a·x + k) div (a·c)  ->  (x + k div a) div c",              apply: div_common_factor },
    Rule { name: "div: (x div a + k) div c  ->  (x + a·k) div (a·c)",              apply: div_nested },
    Rule { name: "div: (a·x + y) div (a·c), y in 0..a  ->  x div c",               apply: div_remainder },
    Rule { name: "div: (d·q + r) div d  ->  q + r div d",                          apply: div_symbolic },
    Rule { name: "mod: c·q + r  ->  r mod c",                                      apply: mod_multiples },
    Rule { name: "mod: x in k·c .. (k+1)·c  ->  x - k·c",                          apply: mod_by_bounds },
    Rule { name: "mod: (a·x + k) mod (a·c)  ->  a·((x + k div a) mod c) + k mod a", apply: mod_common_factor },
    Rule { name: "mod: (k·(x mod a) + y) mod c, c | k·a  ->  (k·x + y) mod c",     apply: mod_nested },
    Rule { name: "mod: (a·x + y) mod (a·c), y in 0..a  ->  a·(x mod c) + y",       apply: mod_remainder },
    Rule { name: "mod: (d·q + r) mod d  ->  r mod d",                              apply: mod_symbolic },
    Rule { name: "truncating div and rem of non-negatives  ->  floor div and mod", apply: truncating },
    Rule { name: "min, max decided by bounds",                                     apply: extremum_by_bounds },
    Rule { name: "min(min(x, y), z) where min(x, z) is decided",                   apply: extremum_nested },
    Rule { name: "min, max in operand order",                                      apply: extremum_order },
    Rule { name: "comparison decided by bounds",                                   apply: compare_by_bounds },
    Rule { name: "comparison in normal form",                                      apply: compare_normal },
    Rule { name: "and, or, not of known or equal truth values",                    apply: logic },
    Rule { name: "select of a known condition or of equal sides",                  apply: select },
];

/// The operands of a floor division or remainder by a positive constant.
fn by_constant(op: BinaryOp, e: &Expr) -> Option<(Linear, i64)> {
    match e.kind() {
        ExprKind::Binary(o, x, d) if *o == op && e.dtype() == DType::I64 => {
            d.as_int().filter(|c| *c > 0).map(|c| (Linear::of(x), c))
        }
        _ => None,
    }
}

/// The operands of a floor division or remainder by a positive expression that is no constant: the dividend,
/// the divisor, and the dividend as `divisor · quotient + rest`.
fn by_symbol(s: &Simplifier, op: BinaryOp, e: &Expr) -> Option<(Expr, Linear, Linear)> {
    let ExprKind::Binary(o, x, d) = e.kind() else { return None };
    if *o != op || e.dtype() != DType::I64 || d.as_int().is_some() || s.interval(d).lo < 1 {
        return None;
    }
    let divisor = Linear::of(d);
    let (mut quotient, mut rest) = (Linear::int(0), Linear::of(x));
    if let ([(factors, coefficient)], 0) = (&divisor.terms[..], divisor.constant) {
        for (m, c) in rest.terms.clone() {
            let mut left = m.clone();
            let divisible = c % coefficient == 0
                && factors.iter().all(|f| match left.iter().position(|atom| atom == f) {
                    Some(at) => {
                        left.remove(at);
                        true
                    }
                    None => false,
                });
            if divisible {
                let term =
                    left.into_iter().fold(Linear::int(c / coefficient), |t, f| t.mul(&Linear::atom(f)));
                quotient = quotient.add(&term);
                rest.terms.retain(|t| t.0 != m);
            }
        }
    }
    Some((d.clone(), quotient, rest))
}

fn is_zero(linear: &Linear) -> bool {
    linear.as_int() == Some(0)
}

/// `floor(x / c)` where it is the same for all values of `x`.
fn constant_quotient(s: &Simplifier, x: &Linear, c: i64) -> Option<i64> {
    let lo = s.lower_bound(x)?.div_euclid(c);
    let hi = s.lower_bound(&x.scale(-1))?.checked_neg()?.div_euclid(c);
    (lo == hi).then_some(lo)
}

fn div_multiples(_: &Simplifier, e: &Expr) -> Option<Expr> {
    let (x, c) = by_constant(BinaryOp::FloorDiv, e)?;
    let (quotient, rest) = x.split(c);
    (!is_zero(&quotient)).then(|| quotient.to_expr() + rest.to_expr().floor_div(Expr::int(c)))
}

fn div_by_bounds(s: &Simplifier, e: &Expr) -> Option<Expr> {
    let (x, c) = by_constant(BinaryOp::FloorDiv, e)?;
    constant_quotient(s, &x, c).map(Expr::int)
}

/// A form divided by a divisor of its coefficients, and the remainder of its constant.
fn divide_exactly(x: &Linear, divisor: i64) -> (Expr, i64) {
    let terms = x.terms.iter().map(|(m, c)| (m.clone(), c / divisor)).collect();
    let quotient = Linear { terms, constant: x.constant.div_euclid(divisor) };
    (quotient.to_expr(), x.constant.rem_euclid(divisor))
}

fn div_common_factor(_: &Simplifier, e: &Expr) -> Option<Expr> {
    let (x, c) = by_constant(BinaryOp::FloorDiv, e)?;
    let g = gcd(x.content(), c);
    (g > 1).then(|| divide_exactly(&x, g).0.floor_div(Expr::int(c / g)))
}

fn div_nested(_: &Simplifier, e: &Expr) -> Option<Expr> {
    let (x, c) = by_constant(BinaryOp::FloorDiv, e)?;
    let [(monomial, 1)] = &x.terms[..] else { return None };
    let [atom] = &monomial[..] else { return None };
    let (inner, a) = by_constant(BinaryOp::FloorDiv, atom)?;
    let shifted = inner.add(&Linear::int(x.constant.checked_mul(a)?));
    Some(shifted.to_expr().floor_div(Expr::int(a.checked_mul(c)?)))
}

/// `x` as `a·quotient + rest` with `a` dividing `c` and the rest in `0..a`, for some `a > 1`.
fn with_small_remainder(s: &Simplifier, x: &Linear, c: i64) -> Option<(i64, Linear, Linear)> {
    let mut factors: Vec<i64> = x.terms.iter().map(|(_, k)| gcd(*k, c)).filter(|a| *a > 1).collect();
    factors.sort_unstable_by(|a, b| b.cmp(a));
    factors.dedup();
    factors.into_iter().find_map(|a| {
        let (quotient, rest) = x.split(a);
        let exact = rest.terms.len() < x.terms.len() && constant_quotient(s, &rest, a) == Some(0);
        exact.then_some((a, quotient, rest))
    })
}

fn div_remainder(s: &Simplifier, e: &Expr) -> Option<Expr> {
    let (x, c) = by_constant(BinaryOp::FloorDiv, e)?;
    let (a, quotient, _) = with_small_remainder(s, &x, c)?;
    Some(quotient.to_expr().floor_div(Expr::int(c / a)))
}

fn div_symbolic(s: &Simplifier, e: &Expr) -> Option<Expr> {
    let (d, quotient, rest) = by_symbol(s, BinaryOp::FloorDiv, e)?;
    let divisor = Linear::of(&d);
    let below = |l: &Linear| s.is_non_negative(&divisor.sub(l).add(&Linear::int(-1)));
    if s.is_non_negative(&rest) && below(&rest) {
        return Some(quotient.to_expr());
    }
    let raised = rest.add(&divisor);
    if s.is_non_negative(&raised) && below(&raised) {
        return Some(quotient.to_expr() - 1);
    }
    (!is_zero(&quotient)).then(|| quotient.to_expr() + rest.to_expr().floor_div(d))
}

fn mod_multiples(_: &Simplifier, e: &Expr) -> Option<Expr> {
    let (x, c) = by_constant(BinaryOp::FloorMod, e)?;
    let (quotient, mut rest) = x.split(c);
    let reduced = rest.terms.iter().any(|t| t.1.unsigned_abs() > c.unsigned_abs());
    rest.terms.iter_mut().for_each(|t| t.1 %= c);
    (reduced || !is_zero(&quotient)).then(|| rest.to_expr().floor_mod(Expr::int(c)))
}

fn mod_by_bounds(s: &Simplifier, e: &Expr) -> Option<Expr> {
    let (x, c) = by_constant(BinaryOp::FloorMod, e)?;
    constant_quotient(s, &x, c).map(|k| x.add(&Linear::int(-k * c)).to_expr())
}

fn mod_common_factor(_: &Simplifier, e: &Expr) -> Option<Expr> {
    let (x, c) = by_constant(BinaryOp::FloorMod, e)?;
    let g = gcd(x.content(), c);
    (g > 1).then(|| {
        let (quotient, rest) = divide_exactly(&x, g);
        quotient.floor_mod(Expr::int(c / g)) * g + rest
    })
}

fn mod_nested(_: &Simplifier, e: &Expr) -> Option<Expr> {
    let (x, c) = by_constant(BinaryOp::FloorMod, e)?;
    x.terms.iter().enumerate().find_map(|(index, (m, k))| {
        let [atom] = &m[..] else { return None };
        let (inner, a) = by_constant(BinaryOp::FloorMod, atom)?;
        if k.checked_mul(a)? % c != 0 {
            return None;
        }
        let mut rest = x.clone();
        rest.terms.remove(index);
        Some(rest.add(&inner.scale(*k)).to_expr().floor_mod(Expr::int(c)))
    })
}

fn mod_remainder(s: &Simplifier, e: &Expr) -> Option<Expr> {
    let (x, c) = by_constant(BinaryOp::FloorMod, e)?;
    let (a, quotient, rest) = with_small_remainder(s, &x, c)?;
    Some(quotient.to_expr().floor_mod(Expr::int(c / a)) * a + rest.to_expr())
}

fn mod_symbolic(s: &Simplifier, e: &Expr) -> Option<Expr> {
    let (d, quotient, rest) = by_symbol(s, BinaryOp::FloorMod, e)?;
    let below = Linear::of(&d).sub(&rest).add(&Linear::int(-1));
    if s.is_non_negative(&rest) && s.is_non_negative(&below) {
        return Some(rest.to_expr());
    }
    (!is_zero(&quotient)).then(|| rest.to_expr().floor_mod(d))
}

fn truncating(s: &Simplifier, e: &Expr) -> Option<Expr> {
    let ExprKind::Binary(op @ (BinaryOp::Div | BinaryOp::Rem), x, d) = e.kind() else { return None };
    let applies = e.dtype() == DType::I64 && s.interval(d).lo > 0 && s.is_non_negative(&Linear::of(x));
    applies.then(|| {
        let (x, d) = (x.clone(), d.clone());
        if *op == BinaryOp::Div { x.floor_div(d) } else { x.floor_mod(d) }
    })
}

/// The operands of an index minimum or maximum.
fn extremum(e: &Expr) -> Option<(BinaryOp, &Expr, &Expr)> {
    match e.kind() {
        ExprKind::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) if e.dtype() == DType::I64 => {
            Some((*op, a, b))
        }
        _ => None,
    }
}

fn extremum_by_bounds(s: &Simplifier, e: &Expr) -> Option<Expr> {
    let (op, a, b) = extremum(e)?;
    let difference = Linear::of(b).sub(&Linear::of(a));
    let (least, greatest) = if s.is_non_negative(&difference) {
        (a, b)
    } else if s.is_non_negative(&difference.scale(-1)) {
        (b, a)
    } else {
        return None;
    };
    Some(if op == BinaryOp::Min { least.clone() } else { greatest.clone() })
}

fn extremum_nested(s: &Simplifier, e: &Expr) -> Option<Expr> {
    let (op, a, b) = extremum(e)?;
    for (nested, z) in [(a, b), (b, a)] {
        let Some((inner, x, y)) = extremum(nested) else { continue };
        if inner != op {
            continue;
        }
        for (x, y) in [(x, y), (y, x)] {
            if let Some(decided) = extremum_by_bounds(s, &Expr::binary(op, x.clone(), z.clone())) {
                return Some(Expr::binary(op, decided, y.clone()));
            }
        }
    }
    None
}

fn extremum_order(_: &Simplifier, e: &Expr) -> Option<Expr> {
    let (op, a, b) = extremum(e)?;
    order(a, b).is_gt().then(|| Expr::binary(op, b.clone(), a.clone()))
}

/// The operands of an index comparison.
fn comparison(e: &Expr) -> Option<(CompareOp, Linear)> {
    match e.kind() {
        ExprKind::Compare(op, a, b) if a.dtype() == DType::I64 => {
            Some((*op, Linear::of(b).sub(&Linear::of(a))))
        }
        _ => None,
    }
}

fn compare_by_bounds(s: &Simplifier, e: &Expr) -> Option<Expr> {
    let (op, difference) = comparison(e)?;
    let not_negative = |l: &Linear| s.is_non_negative(l);
    let positive = |l: &Linear| s.is_non_negative(&l.add(&Linear::int(-1)));
    let opposite = difference.scale(-1);
    let holds = match op {
        CompareOp::Lt if positive(&difference) => true,
        CompareOp::Lt if not_negative(&opposite) => false,
        CompareOp::Le if not_negative(&difference) => true,
        CompareOp::Le if positive(&opposite) => false,
        CompareOp::Gt if positive(&opposite) => true,
        CompareOp::Gt if not_negative(&difference) => false,
        CompareOp::Ge if not_negative(&opposite) => true,
        CompareOp::Ge if positive(&difference) => false,
        CompareOp::Eq | CompareOp::Ne => {
            let content = difference.content();
            let never = positive(&difference)
                || positive(&opposite)
                || (content > 1 && difference.constant % content != 0);
            match difference.as_int() {
                Some(0) => op == CompareOp::Eq,
                _ if never => op == CompareOp::Ne,
                _ => return None,
            }
        }
        CompareOp::Lt | CompareOp::Le | CompareOp::Gt | CompareOp::Ge => return None,
    };
    Some(Expr::bool(holds))
}

/// `<`, `==` and `!=` with coefficients without common factor and every term on the side where it is positive.
fn compare_normal(_: &Simplifier, e: &Expr) -> Option<Expr> {
    let (op, mut difference) = comparison(e)?;
    let op = match op {
        CompareOp::Lt => CompareOp::Lt,
        CompareOp::Le => {
            difference.constant = difference.constant.checked_add(1)?;
            CompareOp::Lt
        }
        CompareOp::Gt => {
            difference = difference.scale(-1);
            CompareOp::Lt
        }
        CompareOp::Ge => {
            difference = difference.scale(-1);
            difference.constant = difference.constant.checked_add(1)?;
            CompareOp::Lt
        }
        CompareOp::Eq | CompareOp::Ne => {
            if difference.terms.first().is_some_and(|t| t.1 < 0) {
                difference = difference.scale(-1);
            }
            op
        }
    };
    let content = difference.content();
    if content > 1 && (op == CompareOp::Lt || difference.constant % content == 0) {
        difference.terms.iter_mut().for_each(|t| t.1 /= content);
        difference.constant = if op == CompareOp::Lt {
            // content·t + k > 0 means t > -k / content, so t + ceil(k / content) > 0.
            -difference.constant.checked_neg()?.div_euclid(content)
        } else {
            difference.constant / content
        };
    }
    let side = |sign: i64| {
        let terms = difference.terms.iter().filter(|t| t.1.signum() == sign);
        let constant = if difference.constant.signum() == sign { difference.constant } else { 0 };
        Linear { terms: terms.cloned().collect(), constant }.scale(sign).to_expr()
    };
    Some(Expr::compare(op, side(-1), side(1)))
}

fn logic(_: &Simplifier, e: &Expr) -> Option<Expr> {
    if e.dtype() != DType::Bool {
        return None;
    }
    match e.kind() {
        ExprKind::Binary(BinaryOp::And | BinaryOp::Or, a, b) if a == b => Some(a.clone()),
        ExprKind::Binary(BinaryOp::And, a, b) => Some(a.clone().and(b.clone())),
        ExprKind::Binary(BinaryOp::Or, a, b) => Some(a.clone().or(b.clone())),
        ExprKind::Unary(UnaryOp::Not, a) => match a.kind() {
            ExprKind::Int(value) => Some(Expr::bool(*value == 0)),
            ExprKind::Unary(UnaryOp::Not, inner) => Some(inner.clone()),
            ExprKind::Compare(op, x, y) if x.dtype() == DType::I64 => {
                let inverse = match op {
                    CompareOp::Eq => CompareOp::Ne,
                    CompareOp::Ne => CompareOp::Eq,
                    CompareOp::Lt => CompareOp::Ge,
                    CompareOp::Le => CompareOp::Gt,
                    CompareOp::Gt => CompareOp::Le,
                    CompareOp::Ge => CompareOp::Lt,
                };
                Some(Expr::compare(inverse, x.clone(), y.clone()))
            }
            _ => None,
        },
        _ => None,
    }
}

fn select(_: &Simplifier, e: &Expr) -> Option<Expr> {
    match e.kind() {
        ExprKind::Select(condition, a, b) => match condition.as_int() {
            Some(0) => Some(b.clone()),
            Some(_) => Some(a.clone()),
            None => (a == b).then(|| a.clone()),
        },
        _ => None,
    }
}
