//! Prices of copies and prefetches of what a contraction streams.

use crate::decisions::Candidate;

/// Over how many tiles hints are spread where their number is open: those of a batch or sequence of a hundred or two.
pub(crate) const ASSUMED_TILES: i64 = 16;

/// How much more may be asked for than there is: a hint for what is there already costs a load's place and nothing else.
pub(crate) const EXCESS: f64 = 1.5;

/// Unless hints, which take the ports for loads, take no more than this part of the cycles: what they cost is then within noise.
pub(crate) const RARE: f64 = 0.03;

/// Panels from which on a copy of what the tile's rows read may pay: it is written and read once, about as much as two panels' reads,
/// and has to save a sixth of the others'.
const LEAST_PANELS: i64 = 12;

/// Whether what the tile's rows read is copied so that it lies together: where all of it falls into a few sets of the
/// caches otherwise, and so many panels use it that the copy is little beside them.
pub(crate) fn row_copies(jumps_in_one_set: bool, n_panels: i64) -> Vec<Candidate<bool>> {
    let candidate = |value: bool| {
        let features = vec![("rows.packed", f64::from(u8::from(value)))];
        Candidate { value, cost: 1.0, features }
    };
    match (n_panels >= LEAST_PANELS, jumps_in_one_set) {
        (true, true) => vec![candidate(true), candidate(false)],
        (true, false) => vec![candidate(false), candidate(true)],
        (false, _) => vec![candidate(false)],
    }
}

/// Whether a tile's steps ask for what later steps read of the panel. Weights come from L3 or from memory, and hardware
/// follows a stream only inside of a page, and not before it has begun. Hints for what is near cost more than they save.
pub(crate) fn prefetches(is_far: bool) -> Vec<Candidate<bool>> {
    let candidate = |value: bool| {
        let features = vec![("prefetch.panel", f64::from(u8::from(value)))];
        Candidate { value, cost: 1.0, features }
    };
    vec![candidate(is_far), candidate(!is_far)]
}
