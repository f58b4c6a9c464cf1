//! Who measures.
//!
//! A measurement is a function of a task and candidates, and gives times: nothing of it depends on where or when
//! it is made, so it may be made in this process, in another, or on another machine. What it is and what it gives, machines without a
//! compiler know too (`tilewright-run`).

use std::ops::ControlFlow;

use tilewright_autosched::Decisions;
pub use tilewright_run::measure::{Effort, MeasureError, Times};

use crate::task::Task;

/// A schedule to be measured.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// The function.
    pub task: &'a Task,
    /// The schedule; without decisions the rules' own.
    pub candidate: Decisions,
    /// How long.
    pub effort: Effort,
}

/// Times, and where they were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The times.
    pub times: Times,
    /// The machine. Times of two machines cannot be compared; quotients of times of one can.
    pub machine: usize,
}

/// Takes the result of a job, by its place, and says whether those that are still to come are wanted.
pub type Take<'a> = dyn FnMut(usize, Result<Measured, MeasureError>) -> ControlFlow<()> + 'a;

/// Measures schedules.
pub trait Measure {
    /// These candidates will be measured next, one after the other: what can be done for all of them at once may be.
    fn prepare(&mut self, _task: &Task, _candidates: &[Decisions]) {}

    /// Times of a candidate, in runs alternating with runs of the rules' own schedule.
    ///
    /// # Errors
    /// Where there are no times, or no equal results.
    fn measure(&mut self, task: &Task, candidate: &Decisions, effort: Effort) -> Result<Times, MeasureError>;

    /// Measures schedules, and gives the results in the order of the jobs, each as soon as it and those before it are there, until they
    /// are not wanted any more. As it stands here, one after the other on one machine.
    fn measure_batch(&mut self, jobs: &[Job<'_>], take: &mut Take<'_>) {
        let mut place = 0;
        for group in jobs.chunk_by(|a, b| std::ptr::eq(a.task, b.task)) {
            // The rules' own schedule is there in any case.
            let candidates = group.iter().map(|job| job.candidate.clone()).filter(|c| !c.is_empty());
            let candidates: Vec<Decisions> = candidates.collect();
            if let Some(first) = group.first().filter(|_| !candidates.is_empty()) {
                self.prepare(first.task, &candidates);
            }
            for Job { task, candidate, effort } in group {
                let times = self.measure(task, candidate, *effort);
                let measured = times.map(|times| Measured { times, machine: 0 });
                if take(place, measured).is_break() {
                    return;
                }
                place += 1;
            }
        }
    }
}
