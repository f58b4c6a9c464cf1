//! Schedule rules by pattern and the analytic model behind them.
//!
//! [`schedule`] takes a function as computed and returns it scheduled for a target. Blocks are inlined into
//! their consumers where that saves memory traffic without repeating work ([`inline`]); each block that
//! remains is scheduled by the rule of its pattern: [`contraction`] (matrix products and convolutions),
//! [`window`] (depthwise convolutions and pooling), [`reduction`], [`elementwise`]. Every decision follows from extents, access patterns and the target's
//! description; a rule that does not apply leaves the block to a more general one, and the most general,
//! plain loops, always applies.
//!
//! Where a rule could do one of several right things it asks for a decision. [`Decisions`] found by measurement
//! take the place of what the model would do.

mod context;
pub mod contraction;
mod decisions;
pub mod elementwise;
pub mod inline;
pub mod pattern;
pub mod reduction;
pub mod tile;
pub mod window;

use std::fmt;

use tilewright_machine::Target;
use tilewright_te::schedule::{Piece, Primitive, Schedule, ScheduleError};
use tilewright_te::{Block, Func};

pub use context::Context;
pub use decisions::{AutoscheduleError, Candidate, Decision, Decisions};

/// A scheduled function.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// The function, ready for flattening.
    pub func: Func,
    /// For each input, how a constant passed there is to be laid out anew: a function from the original
    /// tensor to the one that `func` reads.
    pub packing: Vec<Option<Func>>,
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

/// How an input or output of a function is laid out: `None` is row-major.
pub type Layout = Option<Vec<Piece>>;

/// Schedules a function for a target by rules, as decided where `decisions` say so.
///
/// # Errors
/// Where a decision cannot be followed: it was taken for another function, target or version of the rules. Where
/// not even plain loops can be made of the function, a defect.
pub fn schedule(
    func: &Func,
    constant_inputs: &[bool],
    layouts: &[Layout],
    target: &Target,
    decisions: &Decisions,
) -> Result<Scheduled, AutoscheduleError> {
    let mut schedule = Schedule::new(func.clone());
    let mut context = Context::new(func, constant_inputs, layouts, target, decisions);
    inline::inline_producers(&mut schedule)?;
    context.spread_layouts(&schedule);
    let mut rulings: Vec<Ruling> = Vec::new();
    let blocks = schedule.blocks();
    let is_reduction = |block: &String| schedule.func().block(block).is_some_and(Block::is_reduction);
    // Reductions come first: they take along what is computed on the way to them and from them.
    let (reductions, others): (Vec<String>, Vec<String>) = blocks.into_iter().partition(is_reduction);
    for block in reductions.into_iter().chain(others) {
        // A rule may have taken the block along with one before it.
        if schedule.func().block(&block).is_none() || rulings.iter().any(|r| r.block == block) {
            continue;
        }
        rulings.extend(schedule_block(&mut schedule, &mut context, &block));
    }
    context.apply_layouts(&mut schedule)?;
    let trace = schedule.trace().to_vec();
    let func = schedule.finish()?;
    let packing = std::mem::take(&mut context.packing);
    Ok(Scheduled { func, packing, rulings, trace, decisions: context.finish()? })
}

/// Applies the first rule that fits; gives a ruling for each block that it has scheduled.
fn schedule_block(schedule: &mut Schedule, context: &mut Context<'_>, block: &str) -> Vec<Ruling> {
    type Rule = fn(&mut Schedule, &mut Context<'_>, &str) -> Result<Vec<String>, ScheduleError>;
    let of_reductions: &[(&'static str, Rule)] = &[
        ("contraction", contraction::schedule),
        ("window", window::schedule),
        ("reduction", reduction::schedule),
    ];
    let of_elements: &[(&'static str, Rule)] = &[("elementwise", elementwise::schedule)];
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
