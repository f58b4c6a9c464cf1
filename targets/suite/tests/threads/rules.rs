//! What the rules for GPUs make of functions: the interpreter's bits, and no races.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Whatever a search may decide. Of those that come to the same kernels one runs.
#[test]
fn other_decisions_have_the_interpreters_bits_too() {
    let mut points = std::collections::BTreeSet::new();
    let mut scheduled = Vec::new();
    for (_, func, is_constant) in functions() {
        // Of the fewest multiprocessors, so that small functions have tasks for them.
        for gpu in ["cuda:sm_86", "opencl:sm_86"] {
            scheduled.extend(otherwise(&func, gpu, is_constant));
        }
    }
    let mut seen = std::collections::HashSet::new();
    let mut distinct = Vec::new();
    for (decision, scheduled) in scheduled {
        let kernels =
            kernels(&scheduled, LANES).unwrap_or_else(|error| panic!("{decision}: {error}\n{scheduled}"));
        let point = decision.split_once('/').and_then(|(_, rest)| rest.split_once('='));
        points.extend(point.map(|(point, _)| point.to_string()));
        let text: String = kernels.iter().map(|flat| flat.kernel.to_string()).collect();
        if seen.insert(text) {
            distinct.push((decision, scheduled, kernels));
        }
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((decision, func, kernels)) = distinct.get(next.fetch_add(1, Ordering::Relaxed)) {
            assert_eq!(compare(func, kernels, 0), Ok(()), "{decision}\n{func}");
        }
    };
    std::thread::scope(|scope| {
        (0..std::thread::available_parallelism().map_or(1, NonZero::get))
            .for_each(|_| drop(scope.spawn(work)));
    });
    assert_eq!(
        points.into_iter().collect::<Vec<_>>(),
        ["depth", "group", "parts", "stages", "team", "threads", "tile", "warps"]
    );
}
