//! Attribute structs of the operators. Axes are normalised: non-negative and below the rank.

mod arranging;
mod computing;

pub use arranging::*;
pub use computing::*;
