//! Symbolic extents: integer expressions in a normal form that decides the equalities shapes need.
//!
//! A [`Dim`] is a polynomial with `i64` coefficients over *atoms*: symbols and the non-polynomial operations
//! (floor division, modulo, minimum, maximum) applied to normal forms. Monomials are kept sorted, so two
//! extents are equal as polynomials exactly when their normal forms are structurally equal.
//!
//! Every symbol stands for a non-negative integer, and `floor_div`/`modulo` are only built with divisors that
//! are positive wherever the result is used; simplifications rely on both. Coefficient arithmetic saturates:
//! extents near `i64::MAX` are rejected by size checks long before the saturated value could be mistaken for
//! a real one.

mod bounds;
mod display;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Add, Mul, Neg, Sub};

use crate::ids::SymbolId;
use crate::symbol::SymbolTable;

/// Comparisons that one question about minima and maxima may take: each of the two asks two more.
const MAX_COMPARISONS: u32 = 1 << 8;

/// Symbols and constants of the longest extent that inference derives where it could leave one open instead.
pub const MAX_LEAVES: usize = 64;

/// Terms of the longest sum that inference derives where it could leave the extent open instead.
pub const MAX_TERMS: usize = 1 << 9;

/// Terms that the quotient of an exact division may have.
const MAX_QUOTIENT: usize = 1 << 8;

/// An integer expression over symbols, in normal form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dim {
    constant: i64,
    /// Sorted by monomial; no zero coefficient, no empty monomial.
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Term {
    monomial: Monomial,
    coefficient: i64,
}

/// A product of atoms, sorted; a power is a repetition. Ordered by degree, then lexicographically, which is an
/// admissible monomial order (multiplication preserves it), as exact division needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Monomial(Vec<Atom>);

impl PartialOrd for Monomial {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Monomial {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0))
    }
}

impl Monomial {
    fn times(&self, other: &Monomial) -> Monomial {
        let mut atoms = [self.0.as_slice(), other.0.as_slice()].concat();
        atoms.sort();
        Monomial(atoms)
    }

    fn divided_by(&self, other: &Monomial) -> Option<Monomial> {
        let mut rest = self.0.clone();
        for atom in &other.0 {
            rest.remove(rest.iter().position(|candidate| candidate == atom)?);
        }
        Some(Monomial(rest))
    }
}

/// An indivisible factor of a [`Dim`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// A symbol.
    Symbol(SymbolId),
    /// Quotient rounded towards minus infinity.
    FloorDiv(Box<(Dim, Dim)>),
    /// Remainder with the sign of the divisor.
    Mod(Box<(Dim, Dim)>),
    /// The smaller of two extents; operands sorted.
    Min(Box<(Dim, Dim)>),
    /// The larger of two extents; operands sorted.
    Max(Box<(Dim, Dim)>),
}

/// One summand of a [`Dim`], as seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct Summand<'a> {
    /// Integer factor, never 0.
    pub coefficient: i64,
    /// The other factors; empty for the constant summand.
    pub atoms: &'a [Atom],
}

impl Dim {
    /// The extent 0.
    pub const ZERO: Dim = Dim::new(0);
    /// The extent 1.
    pub const ONE: Dim = Dim::new(1);

    /// A known extent.
    pub const fn new(value: i64) -> Dim {
        Dim { constant: value, terms: Vec::new() }
    }

    /// A symbol as an extent.
    pub fn symbol(symbol: SymbolId) -> Dim {
        Dim::from_atom(Atom::Symbol(symbol))
    }

    fn from_atom(atom: Atom) -> Dim {
        Dim { constant: 0, terms: vec![Term { monomial: Monomial(vec![atom]), coefficient: 1 }] }
    }

    fn from_map(map: BTreeMap<Monomial, i64>) -> Dim {
        let mut dim = Dim::ZERO;
        for (monomial, coefficient) in map {
            if monomial.0.is_empty() {
                dim.constant = coefficient;
            } else if coefficient != 0 {
                dim.terms.push(Term { monomial, coefficient });
            }
        }
        dim
    }

    fn to_map(&self) -> BTreeMap<Monomial, i64> {
        let mut map: BTreeMap<Monomial, i64> =
            self.terms.iter().map(|term| (term.monomial.clone(), term.coefficient)).collect();
        if self.constant != 0 {
            map.insert(Monomial::default(), self.constant);
        }
        map
    }

    /// The value, where no symbol is involved.
    pub fn as_const(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The symbol, where the extent is exactly one symbol.
    pub fn as_symbol(&self) -> Option<SymbolId> {
        match (self.constant, self.terms.as_slice()) {
            (0, [Term { monomial: Monomial(atoms), coefficient: 1 }]) => match atoms.as_slice() {
                [Atom::Symbol(symbol)] => Some(*symbol),
                _ => None,
            },
            _ => None,
        }
    }

    fn as_atom(&self) -> Option<&Atom> {
        match (self.constant, self.terms.as_slice()) {
            (0, [Term { monomial: Monomial(atoms), coefficient: 1 }]) if atoms.len() == 1 => atoms.first(),
            _ => None,
        }
    }

    /// Whether the extent is the constant `value`.
    pub fn is(&self, value: i64) -> bool {
        self.as_const() == Some(value)
    }

    /// The summands: symbolic ones in normal-form order, then the constant if it is not 0.
    pub fn summands(&self) -> impl Iterator<Item = Summand<'_>> {
        self.terms
            .iter()
            .map(|term| Summand { coefficient: term.coefficient, atoms: &term.monomial.0 })
            .chain((self.constant != 0).then_some(Summand { coefficient: self.constant, atoms: &[] }))
    }

    /// The product of extents; 1 for none.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
        dims.into_iter().fold(Dim::ONE, |product, dim| &product * dim)
    }

    fn leading(&self) -> (Monomial, i64) {
        match self.terms.last() {
            Some(term) => (term.monomial.clone(), term.coefficient),
            None => (Monomial::default(), self.constant),
        }
    }

    fn is_zero(&self) -> bool {
        self.constant == 0 && self.terms.is_empty()
    }

    /// The quotient if `divisor` divides the polynomial exactly (multivariate division by leading terms).
    pub fn div_exact(&self, divisor: &Dim) -> Option<Dim> {
        if divisor.is_zero() {
            return None;
        }
        let (lead, lead_coefficient) = divisor.leading();
        let mut rest = self.clone();
        let mut quotient = Dim::ZERO;
        while !rest.is_zero() {
            let (monomial, coefficient) = rest.leading();
            let monomial = monomial.divided_by(&lead)?;
            if coefficient.checked_rem(lead_coefficient)? != 0 {
                return None;
            }
            let map = BTreeMap::from([(monomial, coefficient.checked_div(lead_coefficient)?)]);
            let step = Dim::from_map(map);
            let next = &rest - &(&step * divisor);
            // A saturated coefficient would keep the leading term in place for ever.
            if next.leading() == rest.leading() || quotient.terms.len() >= MAX_QUOTIENT {
                return None;
            }
            quotient = &quotient + &step;
            rest = next;
        }
        Some(quotient)
    }

    /// Splits off the summands that `divisor` divides: `self = divisor * quotient + rest`.
    fn split_divisible(&self, divisor: &Dim) -> (Dim, Dim) {
        let (mut quotient, mut rest) = (Dim::ZERO, Dim::ZERO);
        for (monomial, coefficient) in self.to_map() {
            let constant_part = divisor.as_const().filter(|&d| d > 0);
            let (whole, left) = match constant_part {
                Some(d) if monomial.0.is_empty() => {
                    (coefficient.div_euclid(d) * d, coefficient.rem_euclid(d))
                }
                _ => (coefficient, 0),
            };
            let summand = Dim::from_map(BTreeMap::from([(monomial.clone(), whole)]));
            match summand.div_exact(divisor) {
                Some(part) => {
                    quotient = &quotient + &part;
                    rest = &rest + &Dim::from_map(BTreeMap::from([(monomial, left)]));
                }
                None => rest = &rest + &Dim::from_map(BTreeMap::from([(monomial, coefficient)])),
            }
        }
        (quotient, rest)
    }

    /// `self / divisor` rounded towards minus infinity. A zero divisor gives 0 (such shapes are empty).
    pub fn floor_div(&self, divisor: &Dim) -> Dim {
        if divisor.is_zero() {
            return Dim::ZERO;
        }
        if let (Some(a), Some(b)) = (self.as_const(), divisor.as_const()) {
            return Dim::new(
                a.checked_div_euclid(b).map_or(i64::MAX, |q| if b < 0 { div_floor(a, b) } else { q }),
            );
        }
        if let Some(quotient) = self.div_exact(divisor) {
            return quotient;
        }
        let (whole, rest) = self.split_divisible(divisor);
        if let (Some(rest), Some(divisor)) = (rest.as_const(), divisor.as_const()) {
            return &whole + &Dim::new(div_floor(rest, divisor));
        }
        // (x / a + c) / b = (x + c * a) / (a * b)
        if let [Term { monomial: Monomial(atoms), coefficient: 1 }] = rest.terms.as_slice()
            && let [Atom::FloorDiv(inner)] = atoms.as_slice()
        {
            let shifted = &inner.0 + &(&inner.1 * &Dim::new(rest.constant));
            return &whole + &shifted.floor_div(&(&inner.1 * divisor));
        }
        &whole + &Dim::from_atom(Atom::FloorDiv(Box::new((rest, divisor.clone()))))
    }

    /// `self / divisor` rounded towards plus infinity.
    pub fn ceil_div(&self, divisor: &Dim) -> Dim {
        if let Some(quotient) = self.div_exact(divisor) {
            return quotient;
        }
        (&(self + divisor) - &Dim::ONE).floor_div(divisor)
    }

    /// `self - divisor * floor_div(self, divisor)`.
    pub fn modulo(&self, divisor: &Dim) -> Dim {
        if divisor.is_zero() {
            return Dim::ZERO;
        }
        let (_, rest) = self.split_divisible(divisor);
        match (rest.as_const(), divisor.as_const()) {
            (Some(rest), Some(divisor)) => Dim::new(rest - divisor * div_floor(rest, divisor)),
            _ if rest.is_zero() || self.div_exact(divisor).is_some() => Dim::ZERO,
            _ => Dim::from_atom(Atom::Mod(Box::new((rest, divisor.clone())))),
        }
    }

    /// Whether the value is at least 0 for every assignment of non-negative symbols; `false` means unknown.
    pub fn is_non_negative(&self) -> bool {
        self.constant >= 0
            && self.terms.iter().all(|term| {
                term.coefficient >= 0
                    && term.monomial.0.iter().all(|atom| match atom {
                        Atom::Symbol(_) => true,
                        Atom::FloorDiv(pair) => pair.0.is_non_negative() && pair.1.is_non_negative(),
                        Atom::Mod(pair) => pair.1.is_non_negative(),
                        Atom::Min(pair) => pair.0.is_non_negative() && pair.1.is_non_negative(),
                        Atom::Max(pair) => pair.0.is_non_negative() || pair.1.is_non_negative(),
                    })
            })
    }

    /// Whether `self <= other` for every assignment; `false` means unknown.
    pub fn is_at_most(&self, other: &Dim) -> bool {
        self.is_at_most_within(other, &mut { MAX_COMPARISONS })
    }

    /// As [`Dim::is_at_most`], with so many comparisons at most.
    fn is_at_most_within(&self, other: &Dim, left: &mut u32) -> bool {
        let Some(fewer) = left.checked_sub(1) else { return false };
        *left = fewer;
        if (other - self).is_non_negative() {
            return true;
        }
        if let Some(Atom::Max(pair)) = other.as_atom()
            && (self.is_at_most_within(&pair.0, left) || self.is_at_most_within(&pair.1, left))
        {
            return true;
        }
        match self.as_atom() {
            Some(Atom::Min(pair)) => {
                pair.0.is_at_most_within(other, left) || pair.1.is_at_most_within(other, left)
            }
            _ => false,
        }
    }

    /// Symbols and constants that the extent is written with: its size as text.
    pub fn n_leaves(&self) -> usize {
        let of_atom = |atom: &Atom| match atom {
            Atom::Symbol(_) => 1,
            Atom::FloorDiv(pair) | Atom::Mod(pair) | Atom::Min(pair) | Atom::Max(pair) => {
                pair.0.n_leaves() + pair.1.n_leaves()
            }
        };
        let atoms = self.terms.iter().flat_map(|term| &term.monomial.0);
        usize::from(self.constant != 0 || self.terms.is_empty()) + atoms.map(of_atom).sum::<usize>()
    }

    /// Whether the extent is short enough to be worked with. Slices of slices and sums of many would double and add up without end;
    /// what is longer is better called by a name of its own.
    pub fn is_short(&self) -> bool {
        self.n_leaves() <= MAX_LEAVES
    }

    /// Whether the extent, a sum of as many, is short enough to be worked with; sums grow by one operand at a time.
    pub fn is_short_sum(&self) -> bool {
        self.terms.len() <= MAX_TERMS
    }

    /// The smaller of two extents.
    pub fn minimum(&self, other: &Dim) -> Dim {
        if self.is_at_most(other) {
            return self.clone();
        }
        if other.is_at_most(self) {
            return other.clone();
        }
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        Dim::from_atom(Atom::Min(Box::new((a.clone(), b.clone()))))
    }

    /// The smaller of two extents, by what is known of the values that symbols take.
    pub fn minimum_within(&self, other: &Dim, symbols: &SymbolTable) -> Dim {
        match (other - self).bounds(symbols) {
            (Some(least), _) if least >= 0 => self.clone(),
            (_, Some(most)) if most <= 0 => other.clone(),
            _ => self.minimum(other),
        }
    }

    /// The larger of two extents.
    pub fn maximum(&self, other: &Dim) -> Dim {
        if self.is_at_most(other) {
            return other.clone();
        }
        if other.is_at_most(self) {
            return self.clone();
        }
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        Dim::from_atom(Atom::Max(Box::new((a.clone(), b.clone()))))
    }

    /// Replaces symbols for which `replacement` answers, and renormalises.
    pub fn substitute(&self, replacement: &dyn Fn(SymbolId) -> Option<Dim>) -> Dim {
        let mut sum = Dim::new(self.constant);
        for term in &self.terms {
            let mut product = Dim::new(term.coefficient);
            for atom in &term.monomial.0 {
                let factor = match atom {
                    Atom::Symbol(symbol) => replacement(*symbol).unwrap_or_else(|| Dim::symbol(*symbol)),
                    Atom::FloorDiv(p) => p.0.substitute(replacement).floor_div(&p.1.substitute(replacement)),
                    Atom::Mod(p) => p.0.substitute(replacement).modulo(&p.1.substitute(replacement)),
                    Atom::Min(p) => p.0.substitute(replacement).minimum(&p.1.substitute(replacement)),
                    Atom::Max(p) => p.0.substitute(replacement).maximum(&p.1.substitute(replacement)),
                };
                product = &product * &factor;
            }
            sum = &sum + &product;
        }
        sum
    }

    /// The value under an assignment; `None` if a symbol is not assigned, a divisor is 0, or it overflows.
    pub fn evaluate(&self, assignment: &dyn Fn(SymbolId) -> Option<i64>) -> Option<i64> {
        let mut sum = self.constant;
        for term in &self.terms {
            let mut product = term.coefficient;
            for atom in &term.monomial.0 {
                let factor = match atom {
                    Atom::Symbol(symbol) => assignment(*symbol)?,
                    Atom::FloorDiv(p) => {
                        checked_div_floor(p.0.evaluate(assignment)?, p.1.evaluate(assignment)?)?
                    }
                    Atom::Mod(p) => {
                        let (a, b) = (p.0.evaluate(assignment)?, p.1.evaluate(assignment)?);
                        a.checked_sub(b.checked_mul(checked_div_floor(a, b)?)?)?
                    }
                    Atom::Min(p) => p.0.evaluate(assignment)?.min(p.1.evaluate(assignment)?),
                    Atom::Max(p) => p.0.evaluate(assignment)?.max(p.1.evaluate(assignment)?),
                };
                product = product.checked_mul(factor)?;
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }

    /// Every symbol the extent mentions, also inside divisions, minima and maxima.
    pub fn symbols(&self) -> BTreeSet<SymbolId> {
        let mut symbols = BTreeSet::new();
        self.collect_symbols(&mut symbols);
        symbols
    }

    fn collect_symbols(&self, symbols: &mut BTreeSet<SymbolId>) {
        for atom in self.terms.iter().flat_map(|term| &term.monomial.0) {
            match atom {
                Atom::Symbol(symbol) => {
                    symbols.insert(*symbol);
                }
                Atom::FloorDiv(pair) | Atom::Mod(pair) | Atom::Min(pair) | Atom::Max(pair) => {
                    pair.0.collect_symbols(symbols);
                    pair.1.collect_symbols(symbols);
                }
            }
        }
    }
}

fn div_floor(a: i64, b: i64) -> i64 {
    checked_div_floor(a, b).unwrap_or(0)
}

fn checked_div_floor(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

impl From<i64> for Dim {
    fn from(value: i64) -> Dim {
        Dim::new(value)
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Dim {
        Dim::new(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl Add for &Dim {
    type Output = Dim;

    fn add(self, other: &Dim) -> Dim {
        if self.terms.is_empty() || other.terms.is_empty() {
            let terms = if self.terms.is_empty() { &other.terms } else { &self.terms };
            return Dim { constant: self.constant.saturating_add(other.constant), terms: terms.clone() };
        }
        let mut map = self.to_map();
        for (monomial, coefficient) in other.to_map() {
            let entry = map.entry(monomial).or_insert(0);
            *entry = entry.saturating_add(coefficient);
        }
        Dim::from_map(map)
    }
}

impl Neg for &Dim {
    type Output = Dim;

    fn neg(self) -> Dim {
        self * &Dim::new(-1)
    }
}

impl Sub for &Dim {
    type Output = Dim;

    fn sub(self, other: &Dim) -> Dim {
        self + &-other
    }
}

impl Mul for &Dim {
    type Output = Dim;

    fn mul(self, other: &Dim) -> Dim {
        if let (Some(a), Some(b)) = (self.as_const(), other.as_const()) {
            return Dim::new(a.saturating_mul(b));
        }
        let mut map: BTreeMap<Monomial, i64> = BTreeMap::new();
        for (left, a) in self.to_map() {
            for (right, b) in other.to_map() {
                let entry = map.entry(left.times(&right)).or_insert(0);
                *entry = entry.saturating_add(a.saturating_mul(b));
            }
        }
        Dim::from_map(map)
    }
}

macro_rules! owned_operators {
    ($($operator:ident $method:ident),*) => { $(
        impl $operator for Dim {
            type Output = Dim;
            fn $method(self, other: Dim) -> Dim { (&self).$method(&other) }
        }
        impl $operator<i64> for &Dim {
            type Output = Dim;
            fn $method(self, other: i64) -> Dim { self.$method(&Dim::new(other)) }
        }
        impl $operator<i64> for Dim {
            type Output = Dim;
            fn $method(self, other: i64) -> Dim { (&self).$method(&Dim::new(other)) }
        }
    )* };
}
owned_operators!(Add add, Sub sub, Mul mul);
