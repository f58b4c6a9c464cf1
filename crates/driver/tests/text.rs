//! The kernels and the plan of a real model come back from their text.

use std::path::PathBuf;

use tilewright_driver::runtime::plan::{Plan, PlanOp, TextId};
use tilewright_driver::{CodegenKind, Options, Target, compile, kernels};
use tilewright_te::kernel::Kernel;

fn digits() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.onnx")
}

#[test]
fn kernels_of_the_example_come_back_from_text() {
    for machine in ["x86-64-v2", "x86-64-v4"] {
        let target = Target::parse(machine, CodegenKind::Cranelift).expect("a known machine");
        let kernels = kernels(&digits(), &Options::for_target(target), &mut ()).expect("it is lowered");
        assert!(!kernels.is_empty());
        for kernel in kernels {
            let text = kernel.to_string();
            let again: Kernel = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(again.to_string(), text);
            assert_eq!(again.verify(), Ok(()));
        }
    }
}

/// A plan whose texts are in alphabetical order, each once: their numbers are incidental.
fn sorted(plan: &Plan) -> Plan {
    let mut sorted = plan.clone();
    let used = plan.instrs.iter().flat_map(|instr| match &instr.op {
        PlanOp::Guard { message, .. } => vec![instr.provenance, *message],
        _ => vec![instr.provenance],
    });
    // What no instruction says is not printed.
    sorted.texts = used.map(|text| plan.texts[text.index()].clone()).collect();
    sorted.texts.sort();
    sorted.texts.dedup();
    let texts = sorted.texts.clone();
    let id = |old: TextId| TextId(texts.binary_search(&plan.texts[old.index()]).expect("it is there") as u32);
    for instr in &mut sorted.instrs {
        instr.provenance = id(instr.provenance);
        if let PlanOp::Guard { message, .. } = &mut instr.op {
            *message = id(*message);
        }
    }
    sorted
}

#[test]
fn the_plan_of_the_example_comes_back_from_text() {
    let target = Target::parse("x86-64-v3", CodegenKind::Cranelift).expect("a known machine");
    let compiled = compile(&digits(), &Options::for_target(target), &mut ()).expect("it compiles");
    let plan = &compiled.artifact.levels[0].plan;
    let text = plan.to_string();
    let again: Plan = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(again.to_string(), text);
    assert_eq!(again.validate(), Ok(()));
    assert_eq!(sorted(&again), sorted(plan));
}
