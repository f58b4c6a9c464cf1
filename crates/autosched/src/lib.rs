//! Schedule rules by pattern and the analytic model behind them.
//!
//! A function becomes scheduled in three steps. [`prepare`] inlines what only moves elements and brings variables and layouts into the
//! form that rules expect. [`plan`] asks the rules what they would do: each block gets a strategy from the rule of its pattern, chosen by an
//! analytic [`model`] from extents, access patterns and the target's description. [`apply`] does it. Strategies are data, and planning
//! schedules nothing, so what a function costs, how it wants its constants, and which of several algorithms suits it is known from
//! plans.
//!
//! Where a rule could do one of several right things it asks for a decision. [`Decisions`] found by measurement
//! take the place of what the model would do.
//!
//! [`cpu`] has the rules for processors, [`gpu`] those for GPUs: a [`RuleSet`] each, with strategies of its own.

mod algorithms;
mod any;
pub mod context;
pub mod cpu;
mod decisions;
pub mod gpu;
pub mod layouts;
mod loops;
mod model;
mod options;
mod packing;
pub mod pattern;
pub mod planner;
pub mod prepare;
pub mod refusal;
pub mod rule;
pub mod strategy;
mod transforms;
mod turns;

use std::collections::BTreeSet;

use tilewright_machine::Target;
use tilewright_te::Computation;

pub use algorithms::Algorithms;
pub use any::Strategy;
pub use decisions::{AutoscheduleError, Candidate, Chooser, Decision, Decisions};
pub use options::flatten_options;
pub use planner::{Form, Offer, Planned, Ruling, Scheduled, apply};
pub use rule::RuleSet;

/// Plans a function for a target by the rules for its machine, as decided where `decisions` say so.
///
/// # Errors
/// Where a decision cannot be followed: it was taken for another function, target or version of the rules.
pub fn plan(
    computation: &Computation,
    target: &Target,
    decisions: &Decisions,
) -> Result<Planned<Strategy>, AutoscheduleError> {
    match target.gpu {
        None => Ok(planner::plan(&cpu::RULES, computation, target, decisions)?.map(Strategy::Cpu)),
        Some(_) => Ok(planner::plan(&gpu::RULES, computation, target, decisions)?.map(Strategy::Gpu)),
    }
}

/// Cycles of a planned function on one core by the model, as far as strategies have a price; the plan may be one for another target that
/// differs in its timing alone. Nothing where no strategy has one.
pub fn cycles(planned: &Planned<Strategy>, computation: &Computation, target: &Target) -> Option<f64> {
    costs(planned, computation, target).into_iter().flatten().reduce(|a, b| a + b)
}

/// As [`cycles`], but nothing where a strategy has no price, or an extent is open.
pub fn all_cycles(planned: &Planned<Strategy>, computation: &Computation, target: &Target) -> Option<f64> {
    if !planned.prepared.func().sizes.is_empty() {
        return None;
    }
    let costs: Vec<f64> = costs(planned, computation, target).into_iter().collect::<Option<_>>()?;
    Some(costs.into_iter().sum())
}

/// The price of each strategy of a plan.
fn costs(planned: &Planned<Strategy>, computation: &Computation, target: &Target) -> Vec<Option<f64>> {
    let (func, layouts, taken) = (planned.prepared.func(), &planned.prepared.layouts, BTreeSet::new());
    let constant_inputs = &computation.constant_inputs;
    let context = context::Context { target, func, layouts, constant_inputs, taken: &taken };
    let cost = |strategy: &Strategy| match strategy {
        Strategy::Cpu(strategy) => cpu::price::cost(&context, strategy),
        Strategy::Gpu(_) => None,
    };
    planned.strategy.blocks.iter().map(cost).collect()
}

/// The algorithms of a function with their cost in cycles on one core by the model, the lowest first; none where it has a price for the
/// direct one at most. The target may differ in its timing from the one that they were prepared for.
pub fn algorithm_costs(algorithms: &Algorithms, target: &Target) -> Vec<(String, f64)> {
    let candidates = match target.gpu {
        None => algorithms.candidates(&cpu::RULES, target),
        Some(_) => algorithms.candidates(&gpu::RULES, target),
    };
    candidates.into_iter().map(|candidate| (candidate.value, candidate.cost)).collect()
}

/// What could be done to a function: what the rules do by default, then what differs from that in one decision and is at most `most`
/// times as dear by the model.
///
/// # Errors
/// As [`plan`].
pub fn offers(
    computation: &Computation,
    target: &Target,
    most: f64,
) -> Result<Vec<Offer<Strategy>>, AutoscheduleError> {
    let plan = |decisions: &Decisions| plan(computation, target, decisions);
    planner::offers(&plan, most)
}

/// Plans a function and schedules it as planned.
///
/// # Errors
/// As [`plan`]; and where a strategy does not apply, a defect.
pub fn schedule(
    computation: &Computation,
    target: &Target,
    decisions: &Decisions,
) -> Result<Scheduled, AutoscheduleError> {
    apply(plan(computation, target, decisions)?, computation)
}
