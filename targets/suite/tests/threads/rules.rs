//! What the rules for GPUs make of functions: the interpreter's bits, and no races.

use tilewright_target_suite::by_rules::{by_rules, functions, otherwise};

use super::LANES;
use super::running::{compare, kernels};

#[test]
fn schedules_by_rules_have_the_interpreters_bits() {
    for (rule, func, is_constant) in functions() {
        let (scheduled, rules) = by_rules(&func, "sm_80", is_constant);
        assert!(rules.contains(&rule) && !rules.contains(&"plain"), "{}: {rules:?}", func.name);
        let kernels = kernels(&scheduled, LANES).unwrap_or_else(|error| panic!("{error}\n{scheduled}"));
        for seed in 0..2 {
            assert_eq!(compare(&scheduled, &kernels, seed), Ok(()), "{scheduled}\n{}", kernels[0].kernel);
        }
    }
}

/// Whatever a search may decide.
#[test]
fn other_decisions_have_the_interpreters_bits_too() {
    let mut points = std::collections::BTreeSet::new();
    for (_, func, is_constant) in functions() {
        // Of the fewest multiprocessors, so that small functions have tasks for them.
        for gpu in ["cuda:sm_86", "opencl:sm_86"] {
            for (decision, scheduled) in otherwise(&func, gpu, is_constant) {
                let kernels = kernels(&scheduled, LANES)
                    .unwrap_or_else(|error| panic!("{decision}: {error}\n{scheduled}"));
                assert_eq!(compare(&scheduled, &kernels, 0), Ok(()), "{decision}\n{scheduled}");
                let point = decision.split_once('/').and_then(|(_, rest)| rest.split_once('='));
                points.extend(point.map(|(point, _)| point.to_string()));
            }
        }
    }
    assert_eq!(
        points.into_iter().collect::<Vec<_>>(),
        ["depth", "group", "parts", "stages", "team", "threads", "tile", "warps"]
    );
}
