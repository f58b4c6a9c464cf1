//! Why a primitive did not apply, and why a schedule has no result.

use crate::verify::Illegal;

/// A primitive that cannot be applied: what was asked, where, and why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{primitive} of `{place}`: {reason}")]
pub struct ScheduleError {
    /// The primitive.
    pub primitive: &'static str,
    /// The loop, block or buffer it was asked for.
    pub place: String,
    /// Why it does not apply.
    pub reason: String,
}

impl ScheduleError {
    /// An error of `primitive` at `place`.
    pub fn new(primitive: &'static str, place: &str, reason: impl Into<String>) -> ScheduleError {
        ScheduleError { primitive, place: place.to_string(), reason: reason.into() }
    }
}

/// Why a schedule has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FinishError {
    /// Local buffers cannot be made as small as what is live.
    #[error(transparent)]
    Refused(#[from] ScheduleError),
    /// A primitive broke a rule: its defect.
    #[error(transparent)]
    Illegal(#[from] Illegal),
}
