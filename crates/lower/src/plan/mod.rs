//! The execution plan: where every value lives and what runs in which order.
//!
//! The steps of a [`Program`] become plan instructions over buffers. What a buffer is depends on its value:
//! graph inputs and outputs are the caller's memory, constants lie in the weights, views alias, extents
//! known before the run go to the arena, the rest is allocated when its size is known. What no buffer can hold is a
//! host value.

mod buffers;
mod builder;
mod compiled;
mod control;
mod dynamic;
mod guards;
mod host;
mod loops;
mod memory_plan;
mod stored;
mod texts;
mod weights;

use tilewright_graph::Graph;
use tilewright_runtime::plan::KernelDef;

use crate::error::LowerError;
use crate::program::Program;
pub use builder::Planned;
pub use compiled::{CompiledFunc, CompiledKernel};
pub use weights::{Weight, Weights};

/// Looks for what no plan of a program can express, before there is code for its functions.
///
/// # Errors
/// As [`build`], but for contradictions that only a whole plan shows.
pub fn check(graph: &Graph, program: &Program) -> Result<(), LowerError> {
    let compiled: Vec<CompiledFunc> =
        program.funcs.iter().map(|lowered| CompiledFunc::without_code(&lowered.computation.func)).collect();
    builder::Builder::new(graph, program, &compiled, Vec::new(), &mut Weights::default())?.lay_out()
}

/// Makes the plan of a program and adds its constants to the weights.
///
/// # Errors
/// Control flow or extents that the plan cannot express, and internal contradictions.
pub fn build(
    graph: &Graph,
    program: &Program,
    compiled: &[CompiledFunc],
    kernels: Vec<KernelDef>,
    weights: &mut Weights,
) -> Result<Planned, LowerError> {
    builder::Builder::new(graph, program, compiled, kernels, weights)?.build()
}
