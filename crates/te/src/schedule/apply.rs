//! What a primitive is.

use crate::func::Func;
use crate::schedule::ScheduleError;

/// What every primitive offers: a name, the place it speaks of, and its effect.
pub(crate) trait Apply {
    /// The name in traces and errors.
    const NAME: &'static str;

    /// Edits the function; returns the names of the loops or blocks it made, outermost or first first.
    ///
    /// May leave a partial edit behind where it fails: [`Schedule::apply`](crate::schedule::Schedule::apply) works on a copy.
    fn apply(&self, func: &mut Func) -> Result<Vec<String>, ScheduleError>;
}
