//! The strategies of all rules for GPUs.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};

use super::{elements, product, reduction, rows, turns};
use crate::layouts::Relayout;
use crate::rule::{self, Packing};

/// What is done to a group of blocks for a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// All blocks of a function, row by row.
    Rows(rows::Strategy),
    /// A matrix product or convolution.
    Product(Box<product::Strategy>),
    /// A block that takes turns with others.
    Turns(turns::Strategy),
    /// Few results of many steps.
    Reduction(reduction::Strategy),
    /// A thread for each result.
    Elements(elements::Strategy),
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
            Strategy::Product(product) => product.blocks(),
            Strategy::Turns(turns) => vec![turns.block.clone()],
            Strategy::Reduction(reduction) => reduction.blocks(),
            Strategy::Elements(elements) => elements.blocks(),
            Strategy::Plain { block } => vec![block.clone()],
        }
    }

    fn copies(&self) -> Vec<String> {
        match self {
            Strategy::Product(product) => product.copies(),
            Strategy::Reduction(reduction) => reduction.copies(),
            Strategy::Elements(elements) => elements.copies(),
            Strategy::Rows(_) | Strategy::Turns(_) | Strategy::Plain { .. } => Vec::new(),
        }
    }

    fn packings(&self) -> Vec<&Packing> {
        match self {
            Strategy::Product(product) => product.packings.iter().collect(),
            Strategy::Turns(turns) => turns.packings.iter().collect(),
            Strategy::Rows(_) | Strategy::Reduction(_) | Strategy::Elements(_) | Strategy::Plain { .. } => {
                Vec::new()
            }
        }
    }

    fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError> {
        match self {
            Strategy::Rows(rows) => rows.apply(schedule)?,
            Strategy::Product(product) => return product.apply(schedule),
            Strategy::Turns(turns) => turns.apply(schedule)?,
            Strategy::Reduction(reduction) => reduction.apply(schedule)?,
            Strategy::Elements(elements) => elements.apply(schedule)?,
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
            Strategy::Product(strategy) => write!(f, "product {strategy}"),
            Strategy::Turns(strategy) => write!(f, "turns {strategy}"),
            Strategy::Reduction(strategy) => write!(f, "reduction {strategy}"),
            Strategy::Elements(strategy) => write!(f, "elements {strategy}"),
            Strategy::Plain { block } => write!(f, "plain {block}"),
        }
    }
}
