//! Schedule rules by pattern and the analytic model behind them.
//!
//! [`schedule`] takes a function as computed and returns it scheduled for a target. Blocks are inlined into
//! their consumers where that saves memory traffic without repeating work ([`inline`]). A function that reduces rows
//! and then uses the results on them is scheduled as a whole ([`rows`]); of others each block that remains is scheduled by the rule of its
//! pattern: [`contraction`] (matrix products and convolutions), [`window`] (depthwise convolutions and pooling),
//! [`reduction`], `recurrence` (blocks that take turns in time), [`transform`] (several results from several elements),
//! [`elementwise`]. [`order`] decides what stays in which cache around them; `panel` lays out and asks for what contractions stream; `tasks` decides which loops threads share. Every decision follows from extents, access patterns and the target's
//! description; a rule that does not apply leaves the block to a more general one, and the most general,
//! plain loops, always applies.
//!
//! Of several algorithms for a function the one that an analytic model finds fastest is taken. Where a rule could do
//! one of several right things it asks for a decision. [`Decisions`] found by measurement
//! take the place of what the model would do.

mod algorithm;
mod context;
pub mod contraction;
mod decisions;
mod depth;
mod dimensions;
pub mod elementwise;
pub mod inline;
pub mod order;
mod padding;
mod panel;
pub mod pattern;
mod recurrence;
pub mod reduction;
pub mod rows;
mod sums;
mod tasks;
pub mod tile;
pub mod transform;
pub mod window;

use std::fmt;

use tilewright_machine::Target;
use tilewright_te::computation::DIRECT;
use tilewright_te::schedule::{FinishError, Primitive, Schedule, ScheduleError};
use tilewright_te::verify::{self, Stage};
use tilewright_te::{Block, Computation, Func};

pub use context::Context;
pub use decisions::{AutoscheduleError, Candidate, Decision, Decisions};

/// A scheduled function.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// The function, ready for flattening.
    pub func: Func,
    /// Name of the algorithm.
    pub algorithm: String,
    /// For each input, what makes of the constant passed there the one that `func` reads: functions of one input and one
    /// output, one after the other.
    pub packing: Vec<Vec<Func>>,
    /// How each block was scheduled, in order.
    pub rulings: Vec<Ruling>,
    /// The primitives applied, for replay.
    pub trace: Vec<Primitive>,
    /// The decisions taken, in order, each with what else was offered.
    pub decisions: Vec<Decision>,
}

/// How a block was scheduled.
#[derive(Clone, Debug)]
pub struct Ruling {
    /// The block.
    pub block: String,
    /// The rule that scheduled it, alone or with the blocks next to it.
    pub rule: &'static str,
    /// Why the rules tried before did not.
    pub refused: Vec<ScheduleError>,
}

impl fmt::Display for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.block, self.rule)?;
        self.refused.iter().try_for_each(|reason| write!(f, "\n    not: {reason}"))
    }
}

/// Schedules a function for a target by rules, as decided where `decisions` say so.
///
/// # Errors
/// Where a decision cannot be followed: it was taken for another function, target or version of the rules. Where
/// not even plain loops can be made of the function, a defect.
pub fn schedule(
    computation: &Computation,
    target: &Target,
    decisions: &Decisions,
) -> Result<Scheduled, AutoscheduleError> {
    let (algorithm, mut schedule, mut context) = choose_algorithm(computation, target, decisions)?;
    let mut rulings = by_rows(&mut schedule, &mut context);
    let blocks = schedule.blocks();
    let is_reduction = |block: &String| schedule.func().block(block).is_some_and(Block::is_reduction);
    // Reductions come first: they take along what is computed on the way to them and from them. So do transforms.
    let (reductions, others): (Vec<String>, Vec<String>) = blocks.into_iter().partition(is_reduction);
    let is_transform = |block: &String| schedule.func().block(block).is_some_and(transform::is_transform);
    let (transforms, others): (Vec<String>, Vec<String>) = others.into_iter().partition(is_transform);
    for block in reductions.into_iter().chain(transforms).chain(others) {
        // A rule may have taken the block along with one before it.
        if schedule.func().block(&block).is_none() || rulings.iter().any(|r| r.block == block) {
            continue;
        }
        rulings.extend(schedule_block(&mut schedule, &mut context, &block));
    }
    context.apply_layouts(&mut schedule)?;
    let trace = schedule.trace().to_vec();
    let func = schedule.finish()?;
    if verify::BY_DEFAULT {
        verify::check(&func, Stage::Flattenable, "the rules").map_err(FinishError::from)?;
    }
    let variant = computation.variants.iter().find(|variant| variant.algorithm == algorithm);
    let prepared = |input: usize| variant.and_then(|variant| variant.prepare.get(input)?.clone());
    let layouts = std::mem::take(&mut context.packing).into_iter().enumerate();
    let packing = layouts.map(|(input, layout)| {
        let layout = layout.map(Schedule::finish).transpose()?;
        Ok(prepared(input).into_iter().chain(layout).collect())
    });
    let packing = packing.collect::<Result<_, AutoscheduleError>>()?;
    Ok(Scheduled { func, algorithm, packing, rulings, trace, decisions: context.finish()? })
}

/// Decides on the algorithm, inlines producers and chooses the layouts that follow from those of the parameters.
fn choose_algorithm<'a>(
    computation: &'a Computation,
    target: &'a Target,
    decisions: &'a Decisions,
) -> Result<(String, Schedule, Context<'a>), AutoscheduleError> {
    let ready = |func: &Func| -> Result<(Schedule, Context<'a>), ScheduleError> {
        let mut schedule = Schedule::new(func.clone());
        let mut context = Context::new(func, computation, target, decisions);
        inline::inline_producers(&mut schedule)?;
        context.spread_layouts(&schedule);
        transform::choose_layouts(&schedule, &mut context);
        dimensions::expand_quotients(&mut schedule, &mut context);
        dimensions::collapse_rows(&mut schedule, &mut context);
        Ok((schedule, context))
    };
    let (schedule, mut context) = ready(&computation.func)?;
    let mut variants = Vec::new();
    let mut candidates = Vec::new();
    let candidate = |algorithm: &str, cost: f64| {
        let features = vec![("algorithm.cost", cost.log2())];
        Candidate { value: algorithm.to_string(), cost, features }
    };
    if !computation.variants.is_empty() {
        // What the model cannot tell is not among what there are good rules for.
        let cost = algorithm::cycles(&schedule, &context).unwrap_or(f64::INFINITY);
        candidates.push(candidate(DIRECT, cost));
        for variant in &computation.variants {
            let ready = ready(&variant.func)?;
            if let Some(cost) = algorithm::cycles(&ready.0, &ready.1) {
                // What it adds to constants has to be worth its way from memory, and its place there.
                let of = |func: &Func| algorithm::constant_bytes(func, &computation.constant_inputs);
                let added = of(&variant.func) - of(&computation.func);
                let cost = cost + added.max(0.0) / algorithm::FAR;
                candidates.push(candidate(&variant.algorithm, cost));
                variants.push((&variant.algorithm, ready));
            }
        }
    }
    if variants.is_empty() {
        return Ok((DIRECT.to_string(), schedule, context));
    }
    candidates.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let chosen = context.decide("function", "algorithm", &candidates)?;
    match variants.into_iter().find(|(algorithm, _)| **algorithm == chosen) {
        Some((_, (schedule, of_variant))) => Ok((chosen, schedule, of_variant.with_decisions_of(context))),
        None => Ok((chosen, schedule, context)),
    }
}

/// Schedules a function of rows as a whole, if it is one.
fn by_rows(schedule: &mut Schedule, context: &mut Context<'_>) -> Vec<Ruling> {
    let (saved, saved_context) = (schedule.clone(), context.clone());
    match rows::schedule(schedule, context) {
        Ok(blocks) => {
            let ruling = |block| Ruling { block, rule: "rows", refused: Vec::new() };
            blocks.into_iter().map(ruling).collect()
        }
        Err(_) => {
            *schedule = saved;
            *context = saved_context;
            Vec::new()
        }
    }
}

/// Applies the first rule that fits; gives a ruling for each block that it has scheduled.
fn schedule_block(schedule: &mut Schedule, context: &mut Context<'_>, block: &str) -> Vec<Ruling> {
    type Rule = fn(&mut Schedule, &mut Context<'_>, &str) -> Result<Vec<String>, ScheduleError>;
    let of_reductions: &[(&'static str, Rule)] = &[
        ("contraction", contraction::schedule),
        ("window", window::schedule),
        ("recurrence", recurrence::schedule),
        ("reduction", reduction::schedule),
    ];
    let of_elements: &[(&'static str, Rule)] =
        &[("transform", transform::schedule), ("elementwise", elementwise::schedule)];
    let is_reduction = schedule.func().block(block).is_some_and(Block::is_reduction);
    let mut refused = Vec::new();
    for &(rule, apply) in if is_reduction { of_reductions } else { of_elements } {
        let (saved, saved_context) = (schedule.clone(), context.clone());
        match apply(schedule, context, block) {
            Ok(blocks) => {
                let ruling = |block| Ruling { block, rule, refused: refused.clone() };
                return blocks.into_iter().map(ruling).collect();
            }
            Err(reason) => {
                // A rule that does not fit, or fits only at first sight, leaves no trace.
                *schedule = saved;
                *context = saved_context;
                refused.push(reason);
            }
        }
    }
    vec![Ruling { block: block.to_string(), rule: "plain", refused }]
}
