//! The strategies of all rules for GPUs.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_te::schedule::{Schedule, ScheduleError};

use super::{columns, elements, product, reduction, rows, skinny, split, strided_rows, transpose, turns};
use crate::layouts::Relayout;
use crate::rule::{self, Packing};

/// What is done to a group of blocks for a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// All blocks of a function, row by row.
    Rows(rows::Strategy),
    /// All blocks of a function, by rows whose elements lie apart.
    StridedRows(strided_rows::Strategy),
    /// A matrix product or convolution.
    Product(Box<product::Strategy>),
    /// A matrix product or convolution in parts.
    Split(Box<split::Strategy>),
    /// A matrix product of few rows or columns.
    Skinny(skinny::Strategy),
    /// A block that takes turns with others.
    Turns(turns::Strategy),
    /// Few results of many steps, read along the results.
    Columns(columns::Strategy),
    /// Few results of many steps, which lanes share.
    Reduction(reduction::Strategy),
    /// A block that reads across the rows that it writes.
    Transpose(transpose::Strategy),
    /// A thread for each result.
    Elements(elements::Strategy),
    /// Loops as computed.
    Plain {
        /// The block.
        block: String,
    },
}

impl From<split::Plan> for Strategy {
    fn from(plan: split::Plan) -> Strategy {
        match plan {
            split::Plan::Whole(product) => Strategy::Product(Box::new(product)),
            split::Plan::InParts(split) => Strategy::Split(Box::new(split)),
        }
    }
}

impl rule::Strategy for Strategy {
    fn plain(block: &str) -> Strategy {
        Strategy::Plain { block: block.to_string() }
    }

    fn blocks(&self) -> Vec<String> {
        match self {
            Strategy::Rows(rows) => rows.blocks(),
            Strategy::StridedRows(rows) => rows.blocks(),
            Strategy::Product(product) => product.blocks(),
            Strategy::Split(split) => split.blocks(),
            Strategy::Skinny(skinny) => skinny.blocks(),
            Strategy::Turns(turns) => vec![turns.block.clone()],
            Strategy::Columns(columns) => columns.blocks(),
            Strategy::Reduction(reduction) => reduction.blocks(),
            Strategy::Transpose(transpose) => vec![transpose.block.clone()],
            Strategy::Elements(elements) => elements.blocks(),
            Strategy::Plain { block } => vec![block.clone()],
        }
    }

    fn copies(&self) -> Vec<String> {
        match self {
            Strategy::Product(product) => product.copies(),
            Strategy::Split(split) => split.copies(),
            Strategy::Skinny(skinny) => skinny.copies(),
            Strategy::Columns(columns) => columns.copies(),
            Strategy::Reduction(reduction) => reduction.copies(),
            Strategy::Transpose(transpose) => vec![transpose.fetch.clone()],
            Strategy::Elements(elements) => elements.copies(),
            Strategy::Rows(_) | Strategy::StridedRows(_) | Strategy::Turns(_) | Strategy::Plain { .. } => {
                Vec::new()
            }
        }
    }

    fn packings(&self) -> Vec<&Packing> {
        match self {
            Strategy::Product(product) => product.packings.iter().collect(),
            Strategy::Split(split) => split.partial.packings.iter().collect(),
            Strategy::Skinny(skinny) => skinny.packing.iter().collect(),
            Strategy::Turns(turns) => turns.packings.iter().collect(),
            Strategy::Rows(_)
            | Strategy::StridedRows(_)
            | Strategy::Columns(_)
            | Strategy::Reduction(_)
            | Strategy::Transpose(_)
            | Strategy::Elements(_)
            | Strategy::Plain { .. } => Vec::new(),
        }
    }

    fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError> {
        match self {
            Strategy::Rows(rows) => rows.apply(schedule)?,
            Strategy::StridedRows(rows) => rows.apply(schedule)?,
            Strategy::Product(product) => return product.apply(schedule),
            Strategy::Split(split) => return split.apply(schedule),
            Strategy::Skinny(skinny) => skinny.apply(schedule)?,
            Strategy::Turns(turns) => turns.apply(schedule)?,
            Strategy::Columns(columns) => columns.apply(schedule)?,
            Strategy::Reduction(reduction) => reduction.apply(schedule)?,
            Strategy::Transpose(transpose) => transpose.apply(schedule)?,
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
            Strategy::StridedRows(strategy) => write!(f, "strided_rows {strategy}"),
            Strategy::Product(strategy) => write!(f, "product {strategy}"),
            Strategy::Split(strategy) => write!(f, "split {strategy}"),
            Strategy::Skinny(strategy) => write!(f, "skinny {strategy}"),
            Strategy::Turns(strategy) => write!(f, "turns {strategy}"),
            Strategy::Columns(strategy) => write!(f, "columns {strategy}"),
            Strategy::Reduction(strategy) => write!(f, "reduction {strategy}"),
            Strategy::Transpose(strategy) => write!(f, "transpose {strategy}"),
            Strategy::Elements(strategy) => write!(f, "elements {strategy}"),
            Strategy::Plain { block } => write!(f, "plain {block}"),
        }
    }
}
