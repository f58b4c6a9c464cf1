//! Rules for a machine that does not exist: sixteen wide, with a memory of its own for results that wait, and nothing else that
//! processors have. They stand beside those for processors and know none of them.

mod copy;
mod wait;

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_autosched::layouts::Relayout;
use tilewright_autosched::rule::{self, Packing, Phase, Rule, RuleSet};
use tilewright_te::schedule::{Schedule, ScheduleError};

/// What is done to a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Strategy {
    /// Results wait in the machine's own memory until all steps are done.
    Wait(wait::Strategy),
    /// Elements go sixteen at a time.
    Copy(copy::Strategy),
    /// Loops as computed.
    Plain(String),
}

/// The rules of the machine.
pub(crate) const RULES: RuleSet<Strategy> = RuleSet {
    machine: "made-up",
    whole: &[],
    phases: &[
        Phase {
            takes: |block| block.is_reduction(),
            rules: &[Rule { name: "wait", plan: |c, b, d| Ok(Strategy::Wait(wait::plan(c, b, d)?)) }],
        },
        Phase {
            takes: |_| true,
            rules: &[Rule { name: "copy", plan: |c, b, _| Ok(Strategy::Copy(copy::plan(c, b)?)) }],
        },
    ],
    // It has one algorithm for everything.
    open: 1,
    price: |_, _| None,
};

impl rule::Strategy for Strategy {
    fn plain(block: &str) -> Strategy {
        Strategy::Plain(block.to_string())
    }

    fn blocks(&self) -> Vec<String> {
        match self {
            Strategy::Wait(wait) => vec![wait.block.clone(), wait.store.clone()],
            Strategy::Copy(copy) => vec![copy.block.clone()],
            Strategy::Plain(block) => vec![block.clone()],
        }
    }

    fn copies(&self) -> Vec<String> {
        Vec::new()
    }

    fn packings(&self) -> Vec<&Packing> {
        Vec::new()
    }

    fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError> {
        match self {
            Strategy::Wait(wait) => wait.apply(schedule)?,
            Strategy::Copy(copy) => copy.apply(schedule)?,
            Strategy::Plain(_) => {}
        }
        Ok(Vec::new())
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Wait(wait) => write!(f, "wait {wait}"),
            Strategy::Copy(copy) => write!(f, "copy {copy}"),
            Strategy::Plain(block) => write!(f, "plain {block}"),
        }
    }
}
