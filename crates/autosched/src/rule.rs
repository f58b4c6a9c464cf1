//! What a rule is: a plan that offers a strategy for a block, and strategies that apply themselves.
//!
//! A [`RuleSet`] is the table of the rules for one kind of machine; [`cpu`](crate::cpu) has that of processors. A plan is a pure
//! function: it sees a prepared function and says what it would do, or why it does not take the block. Nothing is scheduled until a
//! strategy is chosen for every block.

use std::fmt::{self, Debug, Display};
use std::hash::Hash;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Func};

use crate::context::Context;
use crate::decisions::Chooser;
use crate::layouts::Relayout;
use crate::refusal::Refusal;

/// What is done to a block, or to a group of blocks that are scheduled together. It is data: printed, compared, hashed, kept.
pub trait Strategy:
    Clone + Debug + Display + PartialEq + Eq + Hash + Serialize + DeserializeOwned + Send + Sync
{
    /// What is done to a block that no rule takes.
    fn plain(block: &str) -> Self;

    /// The blocks that it schedules: those that are taken, and those that it makes of them.
    fn blocks(&self) -> Vec<String>;

    /// The blocks that it makes besides those: copies of what they read.
    fn copies(&self) -> Vec<String>;

    /// The constant inputs that it wants in another layout.
    fn packings(&self) -> Vec<&Packing>;

    /// Schedules the blocks. Gives layouts of temporaries, which accesses are brought into when all blocks are scheduled.
    ///
    /// # Errors
    /// A primitive that fails is a defect: a strategy that was offered applies.
    fn apply(&self, schedule: &mut Schedule) -> Result<Vec<Relayout>, ScheduleError>;
}

/// A constant that is laid out at compile time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, serde::Deserialize)]
pub struct Packing {
    /// Which input it is.
    pub input: usize,
    /// Its layout.
    pub relayout: Relayout,
    /// Whether accesses are brought into the layout with the strategy, or else when all blocks are scheduled.
    pub at_once: bool,
}

impl Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(&self.relayout, f)
    }
}

/// A rule for single blocks, and what they take along.
#[derive(Debug)]
pub struct Rule<S> {
    /// Its name in dumps and manifests.
    pub name: &'static str,
    /// Says what it would do with a block.
    pub plan: fn(&Context<'_>, &Block, &mut Chooser<'_>) -> Result<S, Refusal>,
}

/// A rule that takes a function as a whole.
#[derive(Debug)]
pub struct WholeRule<S> {
    /// Its name in dumps and manifests.
    pub name: &'static str,
    /// Says what it would do with the function.
    pub plan: fn(&Context<'_>, &mut Chooser<'_>) -> Result<S, Refusal>,
}

/// Blocks that are planned after one another, each by the first rule that takes it.
#[derive(Debug)]
pub struct Phase<S: 'static> {
    /// Whether a block belongs here, if to no phase before.
    pub takes: fn(&Block) -> bool,
    /// The rules, from special to general.
    pub rules: &'static [Rule<S>],
}

/// The rules for a kind of machine.
#[derive(Debug)]
pub struct RuleSet<S: 'static> {
    /// The kind of machine.
    pub machine: &'static str,
    /// Rules for whole functions, which are asked first.
    pub whole: &'static [WholeRule<S>],
    /// Rules for blocks.
    pub phases: &'static [Phase<S>],
    /// What is taken for an open extent where an algorithm is chosen.
    pub open: i64,
    /// What a function takes, by which its algorithm is chosen, given it with known extents too; nothing where the rules have no good strategy
    /// for it.
    pub price: fn(&Context<'_>, &Func) -> Option<f64>,
}
