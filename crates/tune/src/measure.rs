//! Who measures.
//!
//! A measurement is a function of a task and candidates, and gives times: nothing of it depends on where or when
//! it is made, so it may be made in this process, in another, or on another machine. What it is and what it gives, machines without a
//! compiler know too (`tilewright-run`).

use tilewright_autosched::Decisions;
pub use tilewright_run::measure::{Effort, MeasureError, Times};

use crate::task::Task;

/// Measures schedules.
pub trait Measure {
    /// These candidates will be measured next, one after the other: what can be done for all of them at once may be.
    fn prepare(&mut self, _task: &Task, _candidates: &[Decisions]) {}

    /// Times of a candidate, in runs alternating with runs of the rules' own schedule.
    ///
    /// # Errors
    /// Where there are no times, or no equal results.
    fn measure(&mut self, task: &Task, candidate: &Decisions, effort: Effort) -> Result<Times, MeasureError>;
}
