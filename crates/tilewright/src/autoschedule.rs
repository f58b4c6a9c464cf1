//! Functions of the program to kernels: schedule, expand intrinsics, flatten.

use tilewright_autosched::{Decisions, Ruling, Scheduled};
use tilewright_lower::LoweredFunc;
use tilewright_machine::Target;
use tilewright_te::flatten::{FlatKernel, FlattenOptions, flatten};
use tilewright_te::{Func, math};

use crate::error::CompileError;

/// A function ready for code generation.
pub struct Kernels {
    /// The scheduled function, intrinsics expanded.
    pub func: Func,
    /// Its kernels, in order.
    pub kernels: Vec<FlatKernel>,
    /// How constant inputs are laid out anew, by input.
    pub packing: Vec<Option<Func>>,
    /// How each block was scheduled, for dumps.
    pub rulings: Vec<Ruling>,
}

/// Schedules and flattens one function.
///
/// # Errors
/// Functions that cannot be scheduled or flattened: defects, or decisions that do not fit the function.
pub fn to_kernels(
    lowered: &LoweredFunc,
    target: &Target,
    decisions: &Decisions,
) -> Result<Kernels, CompileError> {
    let LoweredFunc { func, constant_inputs, layouts, .. } = lowered;
    let Scheduled { func, packing, rulings, .. } =
        tilewright_autosched::schedule(func, constant_inputs, layouts, target, decisions)
            .map_err(|e| CompileError::internal("schedule", format!("{}: {e}", lowered.func.name)))?;
    let mut func = func;
    math::expand_func(&mut func);
    math::narrow_floats(&mut func);
    let options = FlattenOptions { masked_access: target.masked_access(), buffer_align: 64 };
    let kernels = flatten(&func, &options).map_err(|e| CompileError::internal("flatten", e))?;
    Ok(Kernels { func, kernels, packing, rulings })
}
