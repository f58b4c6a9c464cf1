//! Strategies are data, planning schedules nothing, and a set of rules for another kind of machine needs nothing of that for
//! processors. What strategies say is in `tests/schedules`.

mod made_up;

use std::collections::HashSet;

use tilewright_autosched::strategy::FuncStrategy;
use tilewright_autosched::{Decisions, Offer, Planned, Strategy, apply, offers, plan, planner};
use tilewright_dtype::DType;
use tilewright_machine::{CodegenKind, Target};
use tilewright_te::interp::{Mode, Program};
use tilewright_te::schedule::Primitive;
use tilewright_te::{Computation, Expr, Func};

/// `max(a b, 0)` with constant `b`.
fn product() -> Computation {
    let mut func = Func::new("f");
    let (m, n, k) = (Expr::int(28), Expr::int(64), Expr::int(40));
    let a = func.add_input("a", DType::F32, vec![m.clone(), k.clone()]);
    let b = func.add_input("b", DType::F32, vec![k.clone(), n.clone()]);
    let shape = vec![m, n];
    let product =
        func.reduce("product", DType::F32, shape.clone(), vec![k], Expr::f32(0.0), |f, i, r, acc| {
            let x = f.load(a, vec![i[0].clone(), r[0].clone()]);
            Expr::fma(x, f.load(b, vec![r[0].clone(), i[1].clone()]), acc)
        });
    let out = func.compute("out", DType::F32, shape, |f, i| f.load(product, i.to_vec()).max(Expr::f32(0.0)));
    func.promote_to_output(out);
    Computation { constant_inputs: vec![false, true], ..Computation::of(func) }
}

fn target() -> Target {
    Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a known target")
}

fn planned() -> Planned<Strategy> {
    plan(&product(), &target(), &Decisions::default()).expect("a plan")
}

#[test]
fn strategies_are_data() {
    let planned = planned();
    let text = serde_json::to_string(&planned.strategy).expect("a text");
    let back: FuncStrategy<Strategy> = serde_json::from_str(&text).expect("the strategy");
    assert_eq!(back, planned.strategy);
    // What comes back applies as what was planned.
    let computation = product();
    let [first, second] = [planned.strategy.clone(), back].map(|strategy| {
        let planned = Planned { strategy, ..planned.clone() };
        apply(planned, &computation).expect("applies").trace
    });
    assert_eq!(first, second);
    let offers = offers(&computation, &target(), f64::INFINITY).expect("offers");
    let different: HashSet<_> = offers.iter().map(|offer| offer.planned.strategy.clone()).collect();
    assert_eq!(different.len(), offers.len(), "each decision taken otherwise is another strategy");
}

#[test]
fn planning_schedules_nothing() {
    let computation = product();
    let planned = planned();
    assert_eq!(planned.prepared.func().to_string(), computation.func.to_string());
    assert!(planned.prepared.trace().is_empty());
    let trace = apply(planned, &computation).expect("applies").trace;
    assert!(trace.iter().any(|primitive| matches!(primitive, Primitive::ComputeAt(_))));
}

#[test]
fn offers_are_priced_by_what_they_differ_in() {
    let offers = offers(&product(), &target(), 1.2).expect("offers");
    let (default, others) = offers.split_first().expect("the default");
    assert!(default.decisions.is_empty() && default.cost == 1.0);
    assert!(!others.is_empty());
    for Offer { decisions, cost, .. } in others {
        assert_eq!(decisions.iter().count(), 1);
        assert!((1.0..=1.2).contains(cost), "{decisions}: {cost}");
    }
}

#[test]
fn another_kind_of_machine_has_rules_of_its_own() {
    let computation = product();
    let by = |decisions: &Decisions| planner::plan(&made_up::RULES, &computation, &target(), decisions);
    let planned = by(&Decisions::default()).expect("a plan");
    let text = planned.strategy.to_string();
    assert_eq!(text, "direct\n  wait product: f32[28, 64 | 40], 4 rows\n  copy out: f32[28, 64]\n");
    let mut decisions = Decisions::default();
    decisions.set("product/rows", "2");
    for planned in [planned, by(&decisions).expect("as decided")] {
        let scheduled = apply(planned, &computation).expect("applies");
        let inputs = [vec![1u8; 4 * 28 * 40], vec![2u8; 4 * 40 * 64]];
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let run = |func: &Func| {
            Program::compile(func).expect("compiles").run(&[], &inputs, Mode::Exact).expect("runs").remove(0)
        };
        assert_eq!(run(&computation.func).bytes, run(&scheduled.func).bytes, "{}", scheduled.func);
    }
}
