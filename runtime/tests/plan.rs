//! Validation of plans: every fault is found and named with its place. Most of it is in `tests/filetests`.

mod common;

use common::demo_plan;
use tilewright_dtype::DType;
use tilewright_runtime::plan::{HostId, MAX_NESTING, Nesting, Plan, TextId, ValueSpec, ValueType};

fn check(edit: impl FnOnce(&mut Plan), expect: &[&str]) {
    let mut plan = demo_plan().plan;
    edit(&mut plan);
    let errors = plan.validate().expect_err("faults").iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(errors, expect);
}

#[test]
fn the_plan_of_the_tests_is_sound() {
    assert_eq!(demo_plan().plan.validate(), Ok(()));
    assert_eq!(Plan::default().validate(), Ok(()));
}

#[test]
fn names_are_used_once() {
    check(|plan| plan.outputs[0].name = "w".into(), &["output 1: name \"w\" is used twice"]);
}

/// What a plan prints parses to the same plan; texts are numbered by first use then, and each is there once.
#[test]
fn plans_come_back_from_text() {
    let mut plan = demo_plan().plan;
    let again: Plan = plan.to_string().parse().expect("it parses");
    assert_eq!(again.to_string(), plan.to_string());
    for instr in &mut plan.instrs {
        let text = plan.texts[instr.provenance.index()].clone();
        let place = again.texts.iter().position(|known| *known == text).expect("the text is there");
        instr.provenance = TextId(place as u32);
    }
    plan.texts.clone_from(&again.texts);
    assert_eq!(again, plan);
}

#[test]
fn host_values_are_checked() {
    let ty =
        |depth: usize| ValueType { nesting: vec![Nesting::Sequence; depth], dtype: DType::F32, dims: None };
    let spec = |name: &str, position, value| ValueSpec { name: name.into(), position, value: HostId(value) };
    check(|plan| plan.values = vec![ty(MAX_NESTING), ty(MAX_NESTING + 1)], &["value 1: nested 33 deep"]);
    check(
        |plan| {
            plan.values = vec![ty(1)];
            plan.value_outputs = vec![spec("v", 0, 0), spec("w", 0, 1), spec("v", 9, 0)];
        },
        &[
            "value output 2: name \"v\" is used twice",
            "value output 1: name \"w\" is used twice",
            "value output 1: h1 does not exist",
            "value output 1: position 0 is out of order",
            "value output 2: position 9 is out of order",
        ],
    );
}
