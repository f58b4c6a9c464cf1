//! Measurements in this process: what is compiled here is measured here, by the same function that measures on other machines.

use std::collections::BTreeMap;

use tilewright_autosched::Decisions;
use tilewright_machine::Target;
use tilewright_run::measure::Bench;
use tilewright_runtime::Cancel;
use tilewright_tune::{Effort, Measure, MeasureError, Task, TaskKey, Times};

use super::compiled::{Requests, compile_all, probe};
use super::probe::Probe;

/// Measures on this machine, in this process.
pub struct InProcess {
    requests: Requests,
    bench: Bench,
    jobs: usize,
    cancel: Cancel,
    /// Candidates that are compiled and not measured yet.
    prepared: BTreeMap<(TaskKey, Decisions), Result<Probe, MeasureError>>,
}

impl InProcess {
    /// Runs kernels on `threads` threads, and compiles on `jobs`.
    ///
    /// With one thread measurements are quietest. What tasks of uneven number would cost on all the threads of the
    /// machine is then added to the time.
    pub fn new(threads: usize, jobs: usize) -> InProcess {
        InProcess::with(Requests::new(threads, None), jobs)
    }

    /// Measures on one thread, and tells times of one core: tasks of uneven number cost nothing there. Compiles on `jobs` threads.
    pub fn on_one_core(jobs: usize) -> InProcess {
        InProcess::with(Requests::new(1, Some(1)), jobs)
    }

    fn with(requests: Requests, jobs: usize) -> InProcess {
        let (bench, cancel, prepared) = (Bench::default(), Cancel::new(), BTreeMap::new());
        InProcess { requests, bench, jobs: jobs.max(1), cancel, prepared }
    }

    /// The same until it is asked to stop: then no function is compiled or run any more.
    #[must_use]
    pub fn until(self, cancel: Cancel) -> InProcess {
        InProcess { bench: Bench::until(cancel.clone()), cancel, ..self }
    }

    fn measure_probe(
        &mut self,
        task: &Task,
        candidate: Option<&Probe>,
        effort: Effort,
    ) -> Result<Times, MeasureError> {
        let compiled = self.requests.request(task, candidate, effort)?;
        self.bench.measure(&compiled.request, &compiled.blobs)
    }

    /// Times of what the rules do by default for a target that differs in its timing alone, beside what they do for the task's own.
    ///
    /// # Errors
    /// As [`Measure::measure`].
    pub fn measure_default(
        &mut self,
        task: &Task,
        target: &Target,
        effort: Effort,
    ) -> Result<Times, MeasureError> {
        let other = Task { target: target.clone(), ..task.clone() };
        let probe = probe(&other, &Decisions::default())?;
        self.measure_probe(task, Some(&probe), effort)
    }
}

impl Measure for InProcess {
    fn prepare(&mut self, task: &Task, candidates: &[Decisions]) {
        let key = task.key();
        let compiled = compile_all(self.jobs, &self.cancel, candidates, &|decisions| probe(task, decisions));
        let compiled = candidates.iter().cloned().zip(compiled);
        self.prepared = compiled.map(|(decisions, probe)| ((key.clone(), decisions), probe)).collect();
    }

    fn measure(&mut self, task: &Task, candidate: &Decisions, effort: Effort) -> Result<Times, MeasureError> {
        if candidate.is_empty() {
            return self.measure_probe(task, None, effort);
        }
        let prepared = self.prepared.remove(&(task.key(), candidate.clone()));
        let probe = prepared.unwrap_or_else(|| probe(task, candidate))?;
        self.measure_probe(task, Some(&probe), effort)
    }
}
