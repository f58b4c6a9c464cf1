//! `set_scope`: where a buffer lives.

use serde::{Deserialize, Serialize};

use crate::expr::Buffer;
use crate::func::{Func, LoopKind, Scope};
use crate::schedule::{Apply, ScheduleError, bindings, tree};

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
        let before = conflicts(func, buffer);
        func.buffers[buffer].scope = self.scope;
        let row_align = func.buffers[buffer].row_align.take();
        func.buffers[buffer].row_align =
            row_align.filter(|_| matches!(self.scope, Scope::Shared | Scope::Stack));
        // What each task had for itself they would share now.
        if let Some((name, reason)) = conflicts(func, buffer).into_iter().find(|new| !before.contains(new)) {
            let reason = format!("`{name}` could no longer be what it is: {reason}");
            return Err(ScheduleError::new(Self::NAME, &self.buffer, reason));
        }
        Ok(Vec::new())
    }
}

/// The loops of tasks or lanes in which a buffer is written and whose iterations are in conflict, each with why.
fn conflicts(func: &Func, buffer: Buffer) -> Vec<(String, String)> {
    let mut paths: Vec<tree::Path> = Vec::new();
    for (path, _) in tree::blocks_with_paths(func).iter().filter(|(_, b)| tree::writes(b, buffer)) {
        paths.extend((1..path.len()).map(|depth| path[..depth].to_vec()));
    }
    paths.dedup();
    let conflict = |path: tree::Path| {
        let l = tree::loop_at(func, &path)?;
        let found = match l.kind {
            LoopKind::Serial | LoopKind::Unrolled => None,
            LoopKind::Parallel | LoopKind::Vectorized | LoopKind::Thread(_) => {
                bindings::conflict(func, &path, l.kind)
            }
        };
        found.map(|conflict| (func.vars[l.var].name.clone(), conflict.to_string()))
    };
    paths.into_iter().filter_map(conflict).collect()
}
