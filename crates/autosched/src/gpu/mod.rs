//! The rules for GPUs.
//!
//! A task is a thread block. A function that reduces rows and then uses the results on them is one kernel ([`rows`], or [`strided_rows`] where
//! a row's elements lie apart). Of others, reductions come first: [`skinny`] (products with a vector, or with few), [`product`] (matrix products
//! and convolutions, by tiles in registers and shared memory, in parts where tiles are few: [`split`]), [`turns`] (blocks in one loop over steps),
//! [`columns`] (few results of many steps, read along the results), [`reduction`] (the others, by lanes along the steps). Then come [`transpose`]
//! (what is read across the rows that are written), and [`elements`], which has a thread for each result and does for all the rest.

pub mod columns;
pub mod elements;
mod packing;
mod price;
pub mod product;
pub mod reduction;
pub mod rows;
pub mod skinny;
pub mod split;
mod store;
mod strategy;
pub mod strided_rows;
mod team;
pub mod threads;
pub mod tile;
pub mod transpose;
mod tree;
pub mod turns;

use tilewright_te::Block;

use crate::rule::{Phase, Rule, RuleSet, WholeRule};
pub use strategy::Strategy;

/// The rules for GPUs.
pub const RULES: RuleSet<Strategy> = RuleSet {
    machine: "gpu",
    whole: &[
        WholeRule { name: "rows", plan: |c, d| Ok(Strategy::Rows(rows::plan(c, d)?)) },
        WholeRule { name: "strided_rows", plan: |c, d| Ok(Strategy::StridedRows(strided_rows::plan(c, d)?)) },
    ],
    phases: &[
        Phase {
            takes: Block::is_reduction,
            rules: &[
                Rule { name: "skinny", plan: |c, b, d| Ok(Strategy::Skinny(skinny::plan(c, b, d)?)) },
                Rule { name: "product", plan: |c, b, d| Ok(split::plan(c, b, d)?.into()) },
                Rule { name: "turns", plan: |c, b, _| Ok(Strategy::Turns(turns::plan(c, b)?)) },
                Rule { name: "columns", plan: |c, b, d| Ok(Strategy::Columns(columns::plan(c, b, d)?)) },
                Rule {
                    name: "reduction",
                    plan: |c, b, d| Ok(Strategy::Reduction(reduction::plan(c, b, d)?)),
                },
                ELEMENTS,
            ],
        },
        Phase {
            takes: |_| true,
            rules: &[
                Rule { name: "transpose", plan: |c, b, _| Ok(Strategy::Transpose(transpose::plan(c, b)?)) },
                ELEMENTS,
            ],
        },
    ],
    open: price::OPEN,
    price: price::price,
};

const ELEMENTS: Rule<Strategy> =
    Rule { name: "elements", plan: |c, b, d| Ok(Strategy::Elements(elements::plan(c, b, d)?)) };
