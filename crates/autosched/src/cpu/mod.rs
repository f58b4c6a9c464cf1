//! The rules for processors.
//!
//! A function that reduces rows and then uses the results on them is scheduled as a whole ([`rows`]). Of others, reductions come
//! first, because they take along what is computed on the way to them and from them: [`contraction`] (matrix products and convolutions),
//! [`window`] (depthwise convolutions and pooling), [`recurrence`] (blocks that take turns in time), [`reduction`]. Then [`transform`]
//! (several results from several elements) and [`elementwise`]. A rule that does not apply leaves the block to a more general one; what
//! none of them takes the planner leaves as plain loops.
//!
//! Each rule has a file with its strategy, `plan`, which makes one from a prepared function, and `apply`. They share register tiles
//! ([`tiled`], [`in_parts`]), [`sums`], [`prefetch`], [`padding`], [`tasks`] and [`groups`], the tasks of a step in a recurrence.

pub mod contraction;
pub mod elementwise;
pub mod groups;
mod in_parts;
pub mod padding;
pub mod prefetch;
pub(crate) mod price;
pub mod recurrence;
pub mod reduction;
pub mod rows;
mod squares;
mod strategy;
pub mod sums;
pub mod tasks;
pub mod tiled;
pub mod transform;
pub mod window;

use tilewright_te::Block;

use crate::rule::{Phase, Rule, RuleSet, WholeRule};
use crate::transforms::is_transform;
pub use strategy::Strategy;

/// The rules for processors.
pub const RULES: RuleSet<Strategy> = RuleSet {
    machine: "cpu",
    whole: &[WholeRule {
        name: "rows",
        plan: |context, chooser| Ok(Strategy::Rows(rows::plan(context, chooser)?)),
    }],
    phases: &[
        Phase {
            takes: Block::is_reduction,
            rules: &[
                Rule {
                    name: "contraction",
                    plan: |c, b, d| Ok(Strategy::Contraction(Box::new(contraction::plan(c, b, d)?))),
                },
                Rule {
                    name: "window",
                    plan: |c, b, d| Ok(Strategy::Window(Box::new(window::plan(c, b, d)?))),
                },
                Rule {
                    name: "recurrence",
                    plan: |c, b, d| Ok(Strategy::Recurrence(recurrence::plan(c, b, d)?)),
                },
                Rule {
                    name: "reduction",
                    plan: |c, b, d| Ok(Strategy::Reduction(reduction::plan(c, b, d)?)),
                },
            ],
        },
        Phase { takes: is_transform, rules: OF_ELEMENTS },
        Phase { takes: |_| true, rules: OF_ELEMENTS },
    ],
    open: price::OPEN,
    price: price::price,
};

const OF_ELEMENTS: &[Rule<Strategy>] = &[
    Rule { name: "transform", plan: |c, b, d| Ok(Strategy::Transform(transform::plan(c, b, d)?)) },
    Rule { name: "elementwise", plan: |c, b, d| Ok(Strategy::Elementwise(elementwise::plan(c, b, d)?)) },
];
