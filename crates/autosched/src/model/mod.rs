//! The cost model: pure functions from extents and a target to costs, and candidates with them.
//!
//! [`machine`] has the numbers of machines, and nothing else has any. [`tile`], [`order`] and [`depth`] price what is around a
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
