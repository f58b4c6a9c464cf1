//! The rules for processors.
//!
//! A function that reduces rows and then uses the results on them is scheduled as a whole ([`rows`]). Of others, reductions come
//! first, because they take along what is computed on the way to them and from them: [`contraction`] (matrix products and convolutions),
//! [`window`] (depthwise convolutions and pooling), [`recurrence`] (blocks that take turns in time), [`reduction`]. Then [`transform`]
//! (several results from several elements) and [`elementwise`]. A rule that does not apply leaves the block to a more general one, and
//! the most general, plain loops, always applies.
//!
//! Each rule has a file with its strategy, `plan`, which makes one from a prepared function, and `apply`. They share register tiles
//! ([`tiled`], [`in_parts`]), [`sums`], [`prefetch`], [`padding`] and [`tasks`].

pub mod contraction;
pub mod elementwise;
mod in_parts;
pub mod padding;
pub mod prefetch;
pub(crate) mod price;
pub mod recurrence;
pub mod reduction;
pub mod rows;
pub mod sums;
pub mod tasks;
pub mod tiled;
pub mod transform;
pub mod window;

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::Block;
use tilewright_te::schedule::{Schedule, ScheduleError};

use crate::layouts::Relayout;
use crate::rule::{self, Packing, Phase, Rule, RuleSet, WholeRule};
use crate::transforms::is_transform;

/// What is done to a group of blocks for a processor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// All blocks of a function, row by row.
    Rows(rows::Strategy),
    /// A matrix product or convolution.
    Contraction(Box<contraction::Strategy>),
    /// A depthwise convolution or pooling.
    Window(Box<window::Strategy>),
    /// A block that takes turns with others.
    Recurrence(recurrence::Strategy),
    /// A reduction to few results.
    Reduction(reduction::Strategy),
    /// A block with several results at once.
    Transform(transform::Strategy),
    /// A data-parallel block.
    Elementwise(elementwise::Strategy),
    /// Loops as computed.
    Plain {
        /// The block.
        block: String,
    },
}

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
    price: price::price,
};

const OF_ELEMENTS: &[Rule<Strategy>] = &[
    Rule { name: "transform", plan: |c, b, d| Ok(Strategy::Transform(transform::plan(c, b, d)?)) },
    Rule { name: "elementwise", plan: |c, b, d| Ok(Strategy::Elementwise(elementwise::plan(c, b, d)?)) },
];

impl rule::Strategy for Strategy {
    fn plain(block: &str) -> Strategy {
        Strategy::Plain { block: block.to_string() }
    }

    fn blocks(&self) -> Vec<String> {
        match self {
            Strategy::Rows(rows) => rows.blocks(),
            Strategy::Contraction(contraction) => contraction.blocks(),
            Strategy::Window(window) => window.blocks(),
            Strategy::Recurrence(recurrence) => vec![recurrence.block.clone()],
            Strategy::Reduction(reduction) => reduction.blocks(),
            Strategy::Transform(transform) => transform.blocks(),
            Strategy::Elementwise(elementwise) => vec![elementwise.block.clone()],
            Strategy::Plain { block } => vec![block.clone()],
        }
    }

    fn copies(&self) -> Vec<String> {
        match self {
            Strategy::Contraction(contraction) => contraction.copies(),
            Strategy::Rows(_)
            | Strategy::Window(_)
            | Strategy::Recurrence(_)
            | Strategy::Reduction(_)
            | Strategy::Transform(_)
            | Strategy::Elementwise(_)
            | Strategy::Plain { .. } => Vec::new(),
        }
    }

    fn packings(&self) -> Vec<&Packing> {
        match self {
            Strategy::Contraction(contraction) => contraction.packings(),
            Strategy::Window(window) => window.packings.iter().collect(),
            Strategy::Recurrence(recurrence) => recurrence.packings.iter().collect(),
            Strategy::Rows(_)
            | Strategy::Reduction(_)
            | Strategy::Transform(_)
            | Strategy::Elementwise(_)
            | Strategy::Plain { .. } => Vec::new(),
        }
    }

    fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError> {
        match self {
            Strategy::Contraction(contraction) => return contraction.apply(schedule),
            Strategy::Window(window) => return window.apply(schedule),
            Strategy::Rows(rows) => rows.apply(schedule)?,
            Strategy::Recurrence(recurrence) => recurrence.apply(schedule)?,
            Strategy::Reduction(reduction) => reduction.apply(schedule)?,
            Strategy::Transform(transform) => transform.apply(schedule)?,
            Strategy::Elementwise(elementwise) => elementwise.apply(schedule)?,
            Strategy::Plain { .. } => {}
        }
        Ok(Vec::new())
    }
}

/// The rule, then its strategy.
impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Rows(strategy) => write!(f, "rows {strategy}"),
            Strategy::Contraction(strategy) => write!(f, "contraction {strategy}"),
            Strategy::Window(strategy) => write!(f, "window {strategy}"),
            Strategy::Recurrence(strategy) => write!(f, "recurrence {strategy}"),
            Strategy::Reduction(strategy) => write!(f, "reduction {strategy}"),
            Strategy::Transform(strategy) => write!(f, "transform {strategy}"),
            Strategy::Elementwise(strategy) => write!(f, "elementwise {strategy}"),
            Strategy::Plain { block } => write!(f, "plain {block}"),
        }
    }
}
