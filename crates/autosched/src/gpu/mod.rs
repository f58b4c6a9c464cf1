//! The rules for GPUs.
//!
//! A task is a thread block. A function that reduces rows and then uses the results on them is one kernel ([`rows`]). Of others,
//! reductions come first: [`product`] (matrix products and convolutions, by tiles in registers and shared memory), [`reduction`] (few
//! results of many steps, by lanes), and [`elements`], which has a thread for each result and does for all the rest.

pub mod elements;
pub mod product;
pub mod reduction;
pub mod rows;
mod store;
mod strategy;
pub mod threads;
pub mod tile;
mod tree;

use tilewright_te::Block;

use crate::rule::{Phase, Rule, RuleSet, WholeRule};
pub use strategy::Strategy;

/// The rules for GPUs.
pub const RULES: RuleSet<Strategy> = RuleSet {
    machine: "gpu",
    whole: &[WholeRule { name: "rows", plan: |c, d| Ok(Strategy::Rows(rows::plan(c, d)?)) }],
    phases: &[
        Phase {
            takes: Block::is_reduction,
            rules: &[
                Rule {
                    name: "product",
                    plan: |c, b, d| Ok(Strategy::Product(Box::new(product::plan(c, b, d)?))),
                },
                Rule {
                    name: "reduction",
                    plan: |c, b, d| Ok(Strategy::Reduction(reduction::plan(c, b, d)?)),
                },
                ELEMENTS,
            ],
        },
        Phase { takes: |_| true, rules: &[ELEMENTS] },
    ],
    price: |_| None,
};

const ELEMENTS: Rule<Strategy> =
    Rule { name: "elements", plan: |c, b, d| Ok(Strategy::Elements(elements::plan(c, b, d)?)) };
