//! What the rules for GPUs make of functions: the interpreter's bits, and no races.

use tilewright_target_suite::by_rules::{by_rules, functions};

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
