//! The cost model: pure functions from extents and a target to costs, and candidates with them.
//!
//! [`machine`] has what the model knows of the target's machine, all of it from its [`Timing`](tilewright_machine::Timing). Numbers elsewhere
//! hold on every machine, and say why. [`tile`], [`order`] and [`depth`] price what is around a
//! contraction's products; [`prefetch`], [`piece`], [`sums`] and [`tasks`] what is decided beside. They use each other in this order: a
//! depth is priced by its best order, an order by its tile.

pub(crate) mod depth;
pub(crate) mod machine;
pub(crate) mod order;
pub(crate) mod piece;
pub(crate) mod prefetch;
pub(crate) mod sums;
pub(crate) mod tasks;
pub(crate) mod tile;
