//! Functions of the program to kernels: schedule, expand intrinsics, flatten.

use std::cell::OnceCell;

use tilewright_autosched::{Decisions, Ruling, Scheduled, schedule};
use tilewright_lower::LoweredFunc;
use tilewright_machine::Target;
use tilewright_te::flatten::{FlatKernel, FlattenOptions, Made, flatten, flatten_watched};
use tilewright_te::schedule::check_finished;
use tilewright_te::verify::{self, Illegal, Stage};
use tilewright_te::{Computation, Func, math};
use tilewright_tune::task::schedule_digest;
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
    /// How each block was scheduled, for dumps.
    pub rulings: Vec<Ruling>,
    /// What a record decided.
    pub decisions: Decisions,
}

/// Schedules and flattens one function of a program: as is `settled`, if anything is, else as a record says, if there is
/// one, else by the rules alone.
pub fn to_kernels(
    lowered: &LoweredFunc,
    settled: &Decisions,
    target: &Target,
    options: &Options,
) -> Result<Kernels, CompileError> {
    if !settled.is_empty() {
        let kernels = schedule_kernels(&lowered.computation, target, settled.clone(), options.verify_passes)?;
        return Ok(Kernels { decisions: Decisions::default(), ..kernels });
    }
    let decisions = recorded(&lowered.computation, target, &options.records);
    schedule_kernels(&lowered.computation, target, decisions, options.verify_passes)
}

/// Schedules as decided, and flattens; verifies what each step makes of the function where that is asked for.
pub fn schedule_kernels(
    computation: &Computation,
    target: &Target,
    decisions: Decisions,
    verifies: bool,
) -> Result<Kernels, CompileError> {
    let name = &computation.func.name;
    let scheduled = schedule(computation, target, &decisions)
        .map_err(|e| CompileError::internal("schedule", format!("{name}: {e}")))?;
    if verifies {
        CompileError::illegal("schedule", illegal_schedules(computation, &scheduled))?;
    }
    let Scheduled { func: mut scheduled, algorithm, packing, rulings, .. } = scheduled;
    math::expand_func(&mut scheduled);
    math::narrow_floats(&mut scheduled);
    if verifies {
        let found = verify::check(&scheduled, Stage::Flattenable, "the expansion of intrinsics");
        CompileError::illegal("schedule", found.err().into_iter().collect())?;
    }
    let kernels =
        flatten(&scheduled, &flatten_options(target)).map_err(|e| CompileError::internal("flatten", e))?;
    Ok(Kernels { func: scheduled, kernels, packing, algorithm, rulings, decisions })
}

/// What is illegal of a schedule and of the functions that pack constants for it.
fn illegal_schedules(computation: &Computation, scheduled: &Scheduled) -> Vec<Illegal> {
    let Scheduled { func, algorithm, packing, trace, .. } = scheduled;
    let variant = computation.variants.iter().find(|variant| variant.algorithm == *algorithm);
    let original = variant.map_or(&computation.func, |variant| &variant.func);
    let packing =
        packing.iter().flatten().map(|func| verify::check(func, Stage::Flattenable, "its relayout"));
    let found = packing.chain([check_finished(original, trace, func, Stage::Flattenable)]);
    found.filter_map(Result::err).collect()
}

fn flatten_options(target: &Target) -> FlattenOptions {
    FlattenOptions { masked_access: target.masked_access(), buffer_align: 64 }
}

/// What one of the passes between functions and kernels makes of a scheduled function, as text.
pub fn after_pass(func: &Func, pass: &str, target: &Target) -> String {
    let mut text = String::new();
    let mut watch = |name: &str, made: Made<'_>| {
        if name == pass {
            text += &made.to_string();
        }
    };
    match flatten_watched(func, &flatten_options(target), &mut watch) {
        Ok(_) => text,
        Err(e) => format!("{text}{e}\n"),
    }
}

/// The decisions of the first record that holds for the function: one made beside the schedule that the rules still
/// make, and that can be followed.
fn recorded(computation: &Computation, target: &Target, records: &Lookup) -> Decisions {
    if records.is_empty() {
        return Decisions::default();
    }
    let by = |decisions: &Decisions| {
        schedule(computation, target, decisions).ok().map(|s| schedule_digest(&s.trace))
    };
    let key = TaskKey::new(computation, target);
    let baseline = OnceCell::new();
    let holds = |baseline_then: &str| {
        let now = baseline.get_or_init(|| by(&Decisions::default()));
        now.as_deref() == Some(baseline_then)
    };
    let mut candidates = records.candidates(&key);
    let found = candidates.find(|entry| holds(&entry.baseline) && by(&entry.decisions).is_some());
    found.map(|entry| entry.decisions.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_autosched::Decisions;
    use tilewright_dtype::DType;
    use tilewright_te::{Expr, Stmt};

    /// A product with a constant, whose schedule and relayout are then broken on purpose.
    #[test]
    fn broken_schedules_and_relayouts_are_defects_that_are_all_named() {
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
        let mut scheduled = schedule(&computation, &target, &Decisions::default()).unwrap();
        assert_eq!(illegal_schedules(&computation, &scheduled), []);
        fn store_to_input(stmts: &mut [Stmt], input: tilewright_te::Buffer) {
            for stmt in stmts {
                match stmt {
                    Stmt::Loop(l) => store_to_input(&mut l.body, input),
                    Stmt::Block(block) => block.body.iter_mut().for_each(|store| store.buffer = input),
                }
            }
        }
        let packing = &mut scheduled.packing[1][0];
        for func in [&mut scheduled.func, packing] {
            let input = func.params[0];
            store_to_input(&mut func.body, input);
        }
        let error =
            CompileError::illegal("schedule", illegal_schedules(&computation, &scheduled)).unwrap_err();
        assert_eq!(error.exit_code(), 70);
        let text = error.to_string();
        for part in
            ["`pack` is illegal after its relayout", "`product` is illegal after", "stores to the input"]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}
