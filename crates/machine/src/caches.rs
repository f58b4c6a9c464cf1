//! Sizes of caches.

use serde::{Deserialize, Serialize};

/// Data caches as one core sees them, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Caches {
    /// First level, per core.
    pub l1d: u64,
    /// Second level, per core.
    pub l2: u64,
    /// Third level, shared; 0 where there is none.
    pub l3: u64,
    /// One line.
    pub line: u64,
}
