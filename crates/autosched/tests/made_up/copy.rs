//! Elements, sixteen at a time.

use std::fmt;

use serde::{Deserialize, Serialize};
use tilewright_autosched::context::Context;
use tilewright_autosched::refusal::Refusal;
use tilewright_autosched::strategy::Domain;
use tilewright_te::Block;
use tilewright_te::schedule::{Schedule, ScheduleError};

/// Elements that the machine works on at a time.
const WIDTH: i64 = 16;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Strategy {
    pub(crate) block: String,
    domain: Domain,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.block, self.domain)
    }
}

pub(super) fn plan(context: &Context<'_>, block: &Block) -> Result<Strategy, Refusal> {
    let last = block.iters.last().and_then(|iter| iter.extent.as_int());
    match last.filter(|_| context.is_as_computed(block)) {
        Some(n) if n % WIDTH == 0 => {
            Ok(Strategy { block: block.name.clone(), domain: Domain::of(context.func, block) })
        }
        _ => Err(Refusal::new("copy", &block.name, "its last extent is no multiple of 16")),
    }
}

impl Strategy {
    pub(super) fn apply(&self, schedule: &mut Schedule) -> Result<(), ScheduleError> {
        let loops = schedule.loop_names(&self.block)?;
        let parts = schedule.split(&loops[loops.len() - 1], &[None, Some(WIDTH)])?;
        schedule.vectorize(&parts[1])
    }
}
