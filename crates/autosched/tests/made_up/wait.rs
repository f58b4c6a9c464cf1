//! Results that wait in the machine's own memory until all steps are done.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_autosched::context::Context;
use tilewright_autosched::refusal::Refusal;
use tilewright_autosched::strategy::Domain;
use tilewright_autosched::{Candidate, Chooser};
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Block, Scope};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Strategy {
    pub(crate) block: String,
    /// The block that takes the results from the machine's memory.
    pub(crate) store: String,
    domain: Domain,
    /// Rows whose results wait together.
    rows: i64,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, {} rows", self.block, self.domain, self.rows)
    }
}

pub(super) fn plan(
    context: &Context<'_>,
    block: &Block,
    chooser: &mut Chooser<'_>,
) -> Result<Strategy, Refusal> {
    if !context.is_as_computed(block) || !context.func.is_sole_writer(block) {
        return Err(Refusal::new("wait", &block.name, "its results lie elsewhere"));
    }
    let candidate = |value: i64| Candidate { value, cost: 1.0 / value as f64, features: Vec::new() };
    let rows = chooser.decide(&block.name, "rows", &[candidate(4), candidate(2)])?;
    let store = context.new_block(&format!("{}_write", block.name));
    Ok(Strategy { block: block.name.clone(), store, domain: Domain::of(context.func, block), rows })
}

impl Strategy {
    pub(super) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let store = schedule.cache_write(&self.block, Scope::Stack)?;
        let rows = schedule.loop_names(&store)?.remove(0);
        let parts = schedule.split(&rows, &[None, Some(self.rows)])?;
        schedule.compute_at(&self.block, &parts[0]).map(drop)
    }
}
