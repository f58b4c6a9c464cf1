//! The strategies of all rules for processors.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};

use super::{contraction, elementwise, recurrence, reduction, rows, transform, window};
use crate::layouts::Relayout;
use crate::rule::{self, Packing};

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
            Strategy::Recurrence(recurrence) => return recurrence.apply(schedule),
            Strategy::Rows(rows) => rows.apply(schedule)?,
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
