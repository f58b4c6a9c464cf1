//! The cost of padding a window's input piece by piece.
//!
//! A piece serves the rows of several results; what pieces have in common, the rows at the end of a window, is copied for each of them.
//! So large pieces copy less, and small ones stay in L1.

use tilewright_machine::Target;

use crate::decisions::Candidate;
use crate::model::machine::{copy_cycles, l1_room, numbers};

/// Whether a piece of so many bytes stays in L1 beside what else is used.
pub(crate) fn stays_in_l1(target: &Target, bytes: i64) -> bool {
    // What reads it needs as much room for itself.
    1.5 * bytes as f64 <= l1_room(target)
}

/// Cycles of the copy of a piece of so many bytes.
pub(crate) fn piece_cycles(target: &Target, bytes: i64, stays_in_l1: bool) -> f64 {
    let level = (!stays_in_l1).then(|| &numbers(target).l2);
    bytes as f64 / f64::from(target.vector_bits() / 8) * copy_cycles(target, level)
}

/// Pieces of some iterations each, given with the bytes that a piece has; the best first, of equals the largest.
///
/// Cost is cycles of the copy of an iteration, those beyond L1 dearer.
pub(crate) fn pieces(target: &Target, sizes: &[(i64, i64)]) -> Vec<Candidate<i64>> {
    let candidate = |&(iterations, bytes): &(i64, i64)| {
        let stays = stays_in_l1(target, bytes);
        let copied = bytes as f64 / iterations as f64;
        let features =
            vec![("piece.copied", copied.log2()), ("piece.first-level", f64::from(u8::from(stays)))];
        let cost = piece_cycles(target, bytes, stays) / iterations as f64;
        Candidate { value: iterations, cost, features }
    };
    let mut candidates: Vec<_> = sizes.iter().map(candidate).collect();
    candidates.sort_by(|a, b| a.cost.total_cmp(&b.cost).then(b.value.cmp(&a.value)));
    candidates
}
