//! Graph operators to tensor expressions, fused groups to functions, memory and execution plan.
//!
//! Reading order: [`dims`] (extents), [`ops`] (the meaning of operators), [`program`] (fused groups to
//! functions), [`tables`], [`parts`] (values that lie in others), `placement` (what runs on a device), [`sizes`], [`dynamic`] (extents that are data), [`host`] (what runs on the
//! host), [`memory`], [`plan`] (the execution plan), [`work`] (what profiles say of steps).

pub mod dims;
pub mod dynamic;
pub mod error;
pub mod evaluate;
pub mod host;
pub mod memory;
pub mod ops;
pub mod parts;
mod placement;
pub mod plan;
pub mod program;
pub mod sizes;
pub mod tables;
pub mod work;

pub use error::{Anchor, Gap, LowerError};
pub use plan::{CompiledFunc, CompiledKernel, Planned, Weight};
pub use program::{LowerOptions, LoweredFunc, Program, Step, lower};
