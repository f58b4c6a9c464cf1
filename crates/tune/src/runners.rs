//! Measurements on several machines at once.
//!
//! Schedules of a batch are compiled here, on some threads, and each machine takes the first that waits. A machine that is lost gives
//! its schedule back, and is asked again later, each time after a longer while. Results are told in the order of the jobs, whoever had
//! them first, and each once: a schedule that two machines measured, because one of them seemed to hang, counts by the first result.
//!
//! A candidate and the rules' own schedule are measured by turns on one machine, so quotients of their times compare across machines,
//! and times do not.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tilewright_autosched::Decisions;
use tilewright_run::Cancel;

use crate::measure::{Effort, Job, Measure, MeasureError, Measured, Take, Times};
pub use crate::queue::Patience;
use crate::queue::{Queue, Ticket};
use crate::task::Task;

/// A machine that measures.
pub trait Runner: Send + 'static {
    /// What it is asked.
    type Request: Send + Sync + 'static;

    /// What people call it.
    fn name(&self) -> String;

    /// Has it measure. A machine that answers [`MeasureError::Unavailable`] is not asked again.
    ///
    /// # Errors
    /// Where it is gone.
    fn measure(&mut self, request: &Self::Request) -> Result<Result<Times, MeasureError>, Lost>;

    /// Finds it again after it was lost.
    ///
    /// # Errors
    /// Where it is gone still.
    fn reconnect(&mut self) -> Result<(), Lost>;
}

/// A machine that is gone, and how that shows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Lost(pub String);

type Compile<T> = dyn Fn(&Job<'_>) -> Result<T, MeasureError> + Send + Sync;

/// Measures on several machines, each asked by a thread of its own.
pub struct Runners<R: Runner> {
    queue: Arc<Queue<R::Request>>,
    compile: Box<Compile<R::Request>>,
    jobs: usize,
    cancel: Cancel,
}

impl<R: Runner> Runners<R> {
    /// Measures on these machines, which are there, what `compile` makes of jobs, on `jobs` threads.
    pub fn new(
        runners: Vec<R>,
        patience: Patience,
        jobs: usize,
        compile: impl Fn(&Job<'_>) -> Result<R::Request, MeasureError> + Send + Sync + 'static,
    ) -> Runners<R> {
        let names = runners.iter().map(R::name).collect();
        let queue = Arc::new(Queue::new(names, patience));
        for (me, runner) in runners.into_iter().enumerate() {
            let queue = queue.clone();
            // It ends with the queue; a machine that hangs keeps no more than its thread.
            std::thread::spawn(move || serve(&queue, me, runner, patience));
        }
        Runners { queue, compile: Box::new(compile), jobs: jobs.max(1), cancel: Cancel::new() }
    }

    /// The same until it is asked to stop.
    #[must_use]
    pub fn until(mut self, cancel: Cancel) -> Runners<R> {
        self.cancel = cancel;
        self
    }

    /// What a machine is asked for a job. A panic is a defect of the compiler, and costs one schedule.
    fn compiled(&self, job: &Job<'_>) -> Result<R::Request, MeasureError> {
        let compiled = catch_unwind(AssertUnwindSafe(|| (self.compile)(job)));
        compiled.unwrap_or_else(|panic| {
            Err(MeasureError::Illegal(format!("the compiler panicked: {}", said(&*panic))))
        })
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Asks one machine for all that it takes of a queue.
fn serve<R: Runner>(queue: &Queue<R::Request>, me: usize, mut runner: R, patience: Patience) {
    while let Some(Ticket { request, place, batch }) = queue.next(me) {
        match runner.measure(&request) {
            Ok(Err(MeasureError::Unavailable(why))) => return queue.unfit(me, place, batch, why),
            Ok(result) => queue.done(me, place, batch, result),
            Err(Lost(why)) => {
                queue.lost(me, place, batch, why);
                let mut backoff = patience.backoff;
                while queue.pause(backoff) {
                    backoff = (2 * backoff).min(patience.longest);
                    match runner.reconnect() {
                        Ok(()) => {
                            queue.found(me);
                            break;
                        }
                        Err(Lost(why)) => queue.still_lost(me, why),
                    }
                }
            }
        }
    }
}

impl<R: Runner> Measure for Runners<R> {
    fn measure(&mut self, task: &Task, candidate: &Decisions, effort: Effort) -> Result<Times, MeasureError> {
        let job = Job { task, candidate: candidate.clone(), effort };
        let mut measured = Err(MeasureError::Cancelled);
        self.measure_batch(&[job], &mut |_, result| {
            measured = result;
            ControlFlow::Break(())
        });
        measured.map(|Measured { times, .. }| times)
    }

    fn measure_batch(&mut self, jobs: &[Job<'_>], take: &mut Take<'_>) {
        self.queue.begin(jobs.len());
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (this, next, stop) = (&*self, &next, &stop);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.min(jobs.len()) {
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(job) = jobs.get(place) else { break };
                        this.queue.offer(place, this.compiled(job));
                    }
                });
            }
            for place in 0..jobs.len() {
                if take(place, this.queue.wait(place, &this.cancel)).is_break() {
                    break;
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        self.queue.end();
    }
}

impl<R: Runner> Drop for Runners<R> {
    fn drop(&mut self) {
        self.queue.close();
    }
}
