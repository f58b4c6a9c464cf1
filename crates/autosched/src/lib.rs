//! Schedule rules by pattern and the analytic model behind them.
//!
//! [`schedule`] takes a function as computed and returns it scheduled for a target. Blocks are inlined into
//! their consumers where that saves memory traffic without repeating work ([`inline`]); each block that
//! remains is scheduled by the rule of its pattern: [`contraction`] (matrix products and convolutions),
//! [`reduction`], [`elementwise`]. Every decision follows from extents, access patterns and the target's
//! description; a rule that does not apply leaves the block to a more general one, and the most general,
//! plain loops, always applies.

mod context;
pub mod contraction;
pub mod elementwise;
pub mod inline;
pub mod pattern;
pub mod reduction;

use tilewright_machine::Target;
use tilewright_te::Func;
use tilewright_te::schedule::{Piece, Primitive, Schedule, ScheduleError};

pub use context::Context;

/// A scheduled function.
#[derive(Clone, Debug)]
pub struct Scheduled {
    /// The function, ready for flattening.
    pub func: Func,
    /// For each input, how a constant passed there is to be laid out anew: a function from the original
    /// tensor to the one that `func` reads.
    pub packing: Vec<Option<Func>>,
    /// The rule that scheduled each block, in order.
    pub rules: Vec<(String, &'static str)>,
    /// The primitives applied, for replay.
    pub trace: Vec<Primitive>,
}

/// How an input or output of a function is laid out: `None` is row-major.
pub type Layout = Option<Vec<Piece>>;

/// Schedules a function for a target by rules.
///
/// # Errors
/// Where not even plain loops can be made of the function, a defect.
pub fn schedule(
    func: &Func,
    constant_inputs: &[bool],
    layouts: &[Layout],
    target: &Target,
) -> Result<Scheduled, ScheduleError> {
    let mut schedule = Schedule::new(func.clone());
    let mut context = Context::new(func, constant_inputs, layouts, target);
    inline::inline_producers(&mut schedule)?;
    context.spread_layouts(&schedule);
    let mut rules = Vec::new();
    for block in schedule.blocks() {
        // A rule may have taken the block along with one before it.
        if schedule.func().block(&block).is_none() || rules.iter().any(|(b, _)| *b == block) {
            continue;
        }
        for (rule, taken) in schedule_block(&mut schedule, &mut context, &block) {
            rules.push((taken, rule));
        }
    }
    context.apply_layouts(&mut schedule)?;
    let trace = schedule.trace().to_vec();
    let func = schedule.finish()?;
    Ok(Scheduled { func, packing: context.packing, rules, trace })
}

/// Applies the first rule that fits; gives the rule with the blocks it has scheduled.
fn schedule_block(
    schedule: &mut Schedule,
    context: &mut Context<'_>,
    block: &str,
) -> Vec<(&'static str, String)> {
    type Rule = fn(&mut Schedule, &mut Context<'_>, &str) -> Result<Vec<String>, ScheduleError>;
    let rules: [(&'static str, Rule); 3] = [
        ("contraction", contraction::schedule),
        ("reduction", reduction::schedule),
        ("elementwise", elementwise::schedule),
    ];
    for (name, rule) in rules {
        let (saved, saved_context) = (schedule.clone(), context.clone());
        match rule(schedule, context, block) {
            Ok(blocks) => return blocks.into_iter().map(|b| (name, b)).collect(),
            Err(_) => {
                // A rule that does not fit, or fits only at first sight, leaves no trace.
                *schedule = saved;
                *context = saved_context;
            }
        }
    }
    vec![("plain", block.to_string())]
}
