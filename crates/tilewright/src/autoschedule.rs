//! Functions of the program to kernels: plan, schedule, expand intrinsics, flatten.

use tilewright_autosched::cpu::Strategy;
use tilewright_autosched::{Decisions, Planned, Ruling, Scheduled, apply, plan};
use tilewright_lower::LoweredFunc;
use tilewright_machine::Target;
use tilewright_te::flatten::{FlatKernel, FlattenOptions, flatten};
use tilewright_te::{Computation, Func, math};
use tilewright_tune::task::strategy_digest;
use tilewright_tune::{Lookup, TaskKey};

use crate::error::CompileError;

/// A function ready for code generation.
pub struct Kernels {
    /// The scheduled function, intrinsics expanded.
    pub func: Func,
    /// Its kernels, in order.
    pub kernels: Vec<FlatKernel>,
    /// What is made of constant inputs at compile time, by input.
    pub packing: Vec<Vec<Func>>,
    /// The algorithm.
    pub algorithm: String,
    /// Which rule scheduled each block, for dumps.
    pub rulings: Vec<Ruling>,
    /// The strategy, for dumps.
    pub strategy: String,
    /// What a record decided.
    pub decisions: Decisions,
}

/// Schedules and flattens one function of a program: as is `settled`, if anything is, else as a record says, if there is
/// one, else by the rules alone.
pub fn to_kernels(
    lowered: &LoweredFunc,
    settled: &Decisions,
    target: &Target,
    records: &Lookup,
) -> Result<Kernels, CompileError> {
    let computation = &lowered.computation;
    if !settled.is_empty() {
        let kernels = schedule_kernels(computation, target, settled.clone())?;
        return Ok(Kernels { decisions: Decisions::default(), ..kernels });
    }
    let (planned, decisions) = by_records(computation, target, records)?;
    finish(planned, computation, target, decisions)
}

/// Schedules as decided, and flattens.
pub fn schedule_kernels(
    computation: &Computation,
    target: &Target,
    decisions: Decisions,
) -> Result<Kernels, CompileError> {
    let planned = planned(computation, target, &decisions)?;
    finish(planned, computation, target, decisions)
}

fn planned(
    computation: &Computation,
    target: &Target,
    decisions: &Decisions,
) -> Result<Planned<Strategy>, CompileError> {
    plan(computation, target, decisions).map_err(|e| defect(computation, e))
}

fn defect(computation: &Computation, error: impl std::fmt::Display) -> CompileError {
    CompileError::internal("schedule", format!("{}: {error}", computation.func.name))
}

/// Schedules as planned, and flattens.
fn finish(
    planned: Planned<Strategy>,
    computation: &Computation,
    target: &Target,
    decisions: Decisions,
) -> Result<Kernels, CompileError> {
    let scheduled = apply(planned, computation).map_err(|e| defect(computation, e))?;
    let Scheduled { func: mut scheduled, algorithm, packing, rulings, strategy, .. } = scheduled;
    math::expand_func(&mut scheduled);
    math::narrow_floats(&mut scheduled);
    let options = FlattenOptions { masked_access: target.masked_access(), buffer_align: 64 };
    let kernels = flatten(&scheduled, &options).map_err(|e| CompileError::internal("flatten", e))?;
    Ok(Kernels { func: scheduled, kernels, packing, algorithm, rulings, strategy, decisions })
}

/// The plan of the rules, or of the first record that holds for the function: one made beside the strategy that the rules still
/// have, and that can be followed. With the record's decisions.
fn by_records(
    computation: &Computation,
    target: &Target,
    records: &Lookup,
) -> Result<(Planned<Strategy>, Decisions), CompileError> {
    let by_rules = planned(computation, target, &Decisions::default())?;
    if records.is_empty() {
        return Ok((by_rules, Decisions::default()));
    }
    let baseline = strategy_digest(&by_rules.strategy);
    for entry in records.candidates(&TaskKey::new(computation, target)) {
        if entry.baseline == baseline
            && let Ok(planned) = plan(computation, target, &entry.decisions)
        {
            return Ok((planned, entry.decisions.clone()));
        }
    }
    Ok((by_rules, Decisions::default()))
}
