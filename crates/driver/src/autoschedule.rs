//! Functions of the program to kernels: plan, schedule, expand intrinsics, flatten.

use tilewright_autosched::{Decisions, Planned, Ruling, Scheduled, Strategy, all_cycles, apply, plan};
use tilewright_lower::LoweredFunc;
use tilewright_machine::{Gpu, Target};
use tilewright_te::flatten::{FlatKernel, FlattenError, FlattenOptions, Made, flatten, flatten_watched};
use tilewright_te::schedule::threads_as_loops;
use tilewright_te::verify::{self, Stage};
use tilewright_te::{Computation, Func, math};
use tilewright_tune::task::strategy_digest;
use tilewright_tune::{Lookup, TaskKey};

use crate::error::CompileError;
use crate::options::Options;

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
    /// Nanoseconds of the function on one core by the model; nothing where it has no price for all of it.
    pub estimate_ns: Option<u64>,
}

/// Schedules and flattens one function of a program: as is `settled`, if anything is, else as a record says, if there is
/// one, else by the rules alone.
pub fn to_kernels(
    lowered: &LoweredFunc,
    settled: &Decisions,
    target: &Target,
    options: &Options,
) -> Result<Kernels, CompileError> {
    let computation = &lowered.computation;
    if !settled.is_empty() {
        let kernels = schedule_kernels(computation, target, settled.clone())?;
        return Ok(Kernels { decisions: Decisions::default(), ..kernels });
    }
    let (planned, decisions) = by_records(computation, target, &options.records)?;
    finish(planned, computation, target, decisions)
}

/// Schedules as decided, and flattens; each step verifies what it makes of the function.
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
    let cycles = all_cycles(&planned, computation, target);
    let estimate_ns = cycles.map(|cycles| (cycles / target.machine.timing.numbers.clock_ghz).round() as u64);
    let scheduled = apply(planned, computation).map_err(|e| defect(computation, e))?;
    let Scheduled { func: mut scheduled, algorithm, packing, rulings, strategy, .. } = scheduled;
    math::expand_func(&mut scheduled);
    math::narrow_floats(&mut scheduled);
    let found = verify::check(&scheduled, Stage::Flattenable, "the expansion of intrinsics");
    CompileError::illegal("schedule", found.err().into_iter().collect())?;
    if target.gpu.is_some() && target.device.is_none() {
        threads_as_loops(&mut scheduled);
    }
    let kernels = flatten(&scheduled, &flatten_options(target)).map_err(flatten_error)?;
    Ok(Kernels { func: scheduled, kernels, packing, algorithm, rulings, strategy, decisions, estimate_ns })
}

/// What goes wrong between functions and kernels is a defect of the compiler.
pub(crate) fn flatten_error(error: FlattenError) -> CompileError {
    match error {
        FlattenError::Illegal(illegal) => CompileError::Illegal { step: "flatten", functions: vec![illegal] },
        FlattenError::Refused { .. } => CompileError::internal("flatten", error),
    }
}

fn flatten_options(target: &Target) -> FlattenOptions {
    match target.device {
        Some(_) => FlattenOptions { lanes: Some(Gpu::LANES), ..FlattenOptions::PLAIN },
        None => tilewright_autosched::flatten_options(target),
    }
}

/// What one of the passes between functions and kernels makes of a scheduled function, as text.
pub fn after_pass(func: &Func, pass: &str, target: &Target) -> String {
    let mut text = String::new();
    let mut watch = |name: &str, made: Made<'_, '_>| {
        if name == pass {
            text += &made.to_string();
        }
        Ok(())
    };
    match flatten_watched(func, &flatten_options(target), &mut watch) {
        Ok(_) => text,
        Err(e) => format!("{text}{e}\n"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_autosched::Decisions;
    use tilewright_dtype::DType;
    use tilewright_te::{Expr, Stmt};

    /// A product, whose schedule is then broken on purpose.
    #[test]
    fn a_pass_that_is_given_a_broken_schedule_is_named() {
        let mut func = Func::new("product");
        let extents = |n: i64, m: i64| vec![Expr::int(n), Expr::int(m)];
        let a = func.add_input("a", DType::F32, extents(32, 64));
        let b = func.add_input("b", DType::F32, extents(64, 48));
        let c = func.reduce(
            "c",
            DType::F32,
            extents(32, 48),
            vec![Expr::int(64)],
            Expr::f32(0.0),
            |f, i, r, c| {
                let left = f.load(a, vec![i[0].clone(), r[0].clone()]);
                Expr::fma(left, f.load(b, vec![r[0].clone(), i[1].clone()]), c)
            },
        );
        func.promote_to_output(c);
        let computation = Computation { constant_inputs: vec![false, true], ..Computation::of(func) };
        let target: Target = "x86-64-v3@cranelift".parse().unwrap();
        let mut scheduled =
            tilewright_autosched::schedule(&computation, &target, &Decisions::default()).unwrap();
        fn store_to_input(stmts: &mut [Stmt], input: tilewright_te::Buffer) {
            for stmt in stmts {
                match stmt {
                    Stmt::Loop(l) => store_to_input(&mut l.body, input),
                    Stmt::Block(block) => block.body.iter_mut().for_each(|store| store.buffer = input),
                }
            }
        }
        let input = scheduled.func.params[0];
        store_to_input(&mut scheduled.func.body, input);
        let flattened = flatten(&scheduled.func, &flatten_options(&target));
        let error = flatten_error(flattened.unwrap_err());
        assert_eq!(error.exit_code(), 70);
        let text = error.to_string();
        assert!(text.contains("`product` is illegal after pass `start_apart`"), "{text}");
    }
}
