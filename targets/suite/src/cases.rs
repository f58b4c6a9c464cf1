//! The cases: every operation on every element type, and the shapes of programs.

mod data;
mod memory;
mod program;
mod scalar;

use crate::Case;
pub use data::{DTYPES, LANES};
pub(crate) use data::{pack, samples, serial};

/// Every case. Those with a binary64 fused multiply-add are left out where no instruction does it.
pub fn all(has_fma: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DTYPES {
        for lanes in LANES {
            cases.extend(scalar::cases(dtype, lanes, has_fma));
            cases.extend(memory::cases(dtype, lanes));
        }
    }
    cases.extend(program::cases());
    cases
}
