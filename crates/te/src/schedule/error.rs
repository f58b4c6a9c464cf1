//! Why a primitive did not apply.

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
