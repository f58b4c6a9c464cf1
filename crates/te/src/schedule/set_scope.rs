//! `set_scope`: where a buffer lives.

use serde::{Deserialize, Serialize};

use crate::func::{Func, Scope};
use crate::schedule::{Apply, ScheduleError, tree};

/// Moves a temporary to a scope. [`crate::schedule::compact`] later shrinks it to what is live at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetScope {
    /// The buffer.
    pub buffer: String,
    /// Where it shall live.
    pub scope: Scope,
}

impl Apply for SetScope {
    const NAME: &'static str = "set_scope";

    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError> {
        let buffer = tree::find_buffer(func, Self::NAME, &self.buffer)?;
        if func.params.contains(&buffer) {
            return Err(ScheduleError::new(Self::NAME, &self.buffer, "a parameter lives in global memory"));
        }
        func.buffers[buffer].scope = self.scope;
        Ok(Vec::new())
    }
}
