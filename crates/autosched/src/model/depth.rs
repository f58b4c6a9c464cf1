//! The cost of cutting the steps of a contraction into blocks.
//!
//! The panels of a deep product, and what its rows read, do not stay in the caches for which the order of the loops means them.
//! Of a block of steps they do: partial sums are stored after it and loaded before the next. This is the outermost loop around
//! the kernel of Goto and van de Geijn ("Anatomy of High-Performance Matrix Multiplication", 2008). Each sum is the same as without.

use crate::decisions::{Candidate, sort_by_cost};
use crate::model::order::{Extents, PRECISION};

/// Steps that a block has at least: partial sums, a load and a store for each, are then under a fiftieth of the products.
const LEAST_STEPS: i64 = 128;

/// Blocks that are offered at most; more of fewer steps save no more than these.
const MOST_PARTS: i64 = 32;

/// Numbers of blocks that are offered: the best few, for search.
const MAX_CANDIDATES: usize = 3;

/// The part of the cycles that cutting has to save: less is within the error of the model.
const LEAST_GAIN: f64 = 0.08;

/// Numbers of blocks of steps, the best first; `chunks` is what can be shared out among them.
///
/// Cost is that of the best order of the loops around the tile.
pub(crate) fn depths(extents: &Extents, chunks: i64, order: impl Fn(&Extents) -> f64) -> Vec<Candidate<i64>> {
    let cost = |parts: i64| order(&Extents { parts, ..extents.clone() });
    let candidate = |parts: i64, cost: f64| {
        let features = vec![("depth.parts", (parts as f64).log2())];
        Candidate { value: parts, cost, features }
    };
    let whole = cost(1);
    let fits = |n: &i64| chunks % n == 0 && extents.depth / n >= LEAST_STEPS;
    let mut parts: Vec<_> =
        (2..=MOST_PARTS.min(chunks)).filter(fits).map(|n| candidate(n, cost(n))).collect();
    parts.retain(|part| part.cost < whole * (1.0 - LEAST_GAIN));
    sort_by_cost(&mut parts, PRECISION);
    parts.truncate(MAX_CANDIDATES);
    parts.push(candidate(1, whole));
    parts
}
