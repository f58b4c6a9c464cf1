//! Measurements in this process.
//!
//! A candidate is compiled as any function is and run on made-up data, its runs alternating with those of the rules'
//! own schedule, so that what slows the machine slows both. Constants come from as far away as in a model: between two runs of a
//! function as many other bytes are read as the constants of the model have. On one thread the time is the processor's for this
//! thread, so that other processes which take the processor away do not count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use tilewright_autosched::Decisions;
use tilewright_dtype::DType;
use tilewright_machine::Target;
use tilewright_runtime::pool::{Pool, Serial};
use tilewright_runtime::threads::{ThreadPool, available_threads};
use tilewright_runtime::{Cancel, Session, SessionOptions, TensorView, Trust};
use tilewright_te::verify;
use tilewright_tune::{Effort, Measure, MeasureError, Task, TaskKey, Times};

use super::noise::Ring;
use super::pairs::{agree, alternate, repeats};
use super::probe::{Data, Input, Probe};
use crate::autoschedule::schedule_kernels;

/// Bytes of other constants between two uses of one, at most: more than cores of a shared machine get of the last level of cache.
const FARTHEST: u64 = 128 << 20;

/// Measures on this machine, in this process.
pub struct InProcess {
    pool: Arc<dyn Pool>,
    /// Threads that work is shared out to in the end.
    threads: usize,
    jobs: usize,
    cancel: Cancel,
    baselines: BTreeMap<TaskKey, Baseline>,
    supply: Supply,
    /// Candidates that are compiled and not measured yet.
    prepared: BTreeMap<(TaskKey, Decisions), Result<Probe, MeasureError>>,
}

/// What functions that are measured read.
#[derive(Default)]
struct Supply {
    activations: Ring,
    constants: Ring,
}

/// A function that can be run.
struct Subject {
    session: Session,
    inputs: Vec<Input>,
    /// Bytes of constants that come between two uses of one.
    span: usize,
}

/// The rules' own schedule, compiled.
struct Baseline {
    probe: Probe,
    subject: Subject,
    repeat: usize,
    /// Outputs on data in place, as soon as they were needed.
    outputs: Option<Vec<Vec<u8>>>,
}

impl InProcess {
    /// Runs kernels on `threads` threads, and compiles on `jobs`.
    ///
    /// With one thread measurements are quietest. What tasks of uneven number would cost on all the threads of the
    /// machine is then added to the time.
    pub fn new(threads: usize, jobs: usize) -> InProcess {
        let pool: Arc<dyn Pool> = match threads {
            0 | 1 => Arc::new(Serial),
            _ => Arc::new(ThreadPool::new(threads)),
        };
        InProcess {
            pool,
            threads: available_threads(),
            jobs: jobs.max(1),
            cancel: Cancel::new(),
            baselines: BTreeMap::new(),
            supply: Supply::default(),
            prepared: BTreeMap::new(),
        }
    }

    /// Measures on one thread, and tells times of one core: tasks of uneven number cost nothing there. Compiles on `jobs` threads.
    pub fn on_one_core(jobs: usize) -> InProcess {
        InProcess { threads: 1, ..InProcess::new(1, jobs) }
    }

    /// The same until it is asked to stop: then no function is compiled or run any more.
    #[must_use]
    pub fn until(self, cancel: Cancel) -> InProcess {
        InProcess { cancel, ..self }
    }

    fn session(
        &self,
        task: &Task,
        probe: &Probe,
        data: Data,
        repeat: usize,
    ) -> Result<Session, MeasureError> {
        let bytes = probe.artifact(task, data, repeat).map_err(|e| MeasureError::Failed(e.to_string()))?;
        let model = crate::loader(Trust::Origin)
            .from_bytes(bytes)
            .map_err(|e| MeasureError::Failed(e.to_string()))?;
        Ok(model.session_with(SessionOptions { pool: self.pool.clone(), ..SessionOptions::default() }))
    }

    /// A function that runs `repeat` times at once on what it is given.
    fn subject(&self, task: &Task, probe: &Probe, repeat: usize) -> Result<Subject, MeasureError> {
        let inputs = probe.inputs(task, repeat).map_err(|e| MeasureError::Failed(e.to_string()))?;
        let once: usize = inputs.iter().filter(|input| input.is_constant).map(Input::room).sum();
        let nearest = 2 * task.target.machine.caches.l2;
        let span = task.constant_bytes.clamp(nearest, FARTHEST.max(nearest)) as usize;
        let session = self.session(task, probe, Data::Given, repeat)?;
        Ok(Subject { session, inputs, span: span.max(once / repeat.max(1)) })
    }

    /// Compiles the rules' own schedule, once for each task.
    fn baseline(&self, supply: &mut Supply, task: &Task) -> Result<Baseline, MeasureError> {
        let probe = probe(task, &Decisions::default())?;
        let mut subject = self.subject(task, &probe, 1)?;
        let threads = self.pool.threads();
        let mut once = || run(&mut subject, supply, threads);
        once()?;
        let once = once()?.min(once()?);
        let repeat = repeats(once);
        if repeat > 1 {
            subject = self.subject(task, &probe, repeat)?;
        }
        Ok(Baseline { probe, subject, repeat, outputs: None })
    }

    fn measure_one(
        &self,
        supply: &mut Supply,
        task: &Task,
        baseline: &mut Baseline,
        probe: &Probe,
        effort: Effort,
    ) -> Result<Times, MeasureError> {
        let mut subject = self.subject(task, probe, baseline.repeat)?;
        let slowdown = match self.pool.threads() {
            1 => probe.imbalance(self.threads) / baseline.probe.imbalance(self.threads),
            _ => 1.0,
        };
        let (threads, repeat) = (self.pool.threads(), baseline.repeat);
        let run = |subject: &mut Subject| match self.cancel.is_cancelled() {
            true => Err(MeasureError::Cancelled),
            false => run(subject, supply, threads),
        };
        let mut times = alternate([&mut baseline.subject, &mut subject], run, repeat, effort)?;
        times.candidate.iter_mut().for_each(|time| *time *= slowdown);
        if effort == Effort::Confirm && times.is_faster() {
            self.check(task, baseline, probe)?;
        }
        Ok(times)
    }

    fn measure_probe(&mut self, task: &Task, probe: &Probe, effort: Effort) -> Result<Times, MeasureError> {
        let key = task.key();
        let mut supply = std::mem::take(&mut self.supply);
        let baseline = match self.baselines.remove(&key) {
            Some(baseline) => Ok(baseline),
            None => self.baseline(&mut supply, task),
        };
        let times = baseline.and_then(|mut baseline| {
            let times = self.measure_one(&mut supply, task, &mut baseline, probe, effort);
            self.baselines.insert(key, baseline);
            times
        });
        self.supply = supply;
        times
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
        self.measure_probe(task, &probe, effort)
    }

    /// Whether a candidate computes what the rules' own schedule does.
    fn check(&self, task: &Task, baseline: &mut Baseline, probe: &Probe) -> Result<(), MeasureError> {
        let outputs = |probe: &Probe| -> Result<Vec<(DType, Vec<u8>)>, MeasureError> {
            let mut session = self.session(task, probe, Data::InPlace, 1)?;
            let outputs = session.run(&[]).map_err(|e| MeasureError::Failed(e.to_string()))?;
            Ok(outputs.iter().map(|(_, view)| (view.dtype, view.bytes.to_vec())).collect())
        };
        let candidate = outputs(probe)?;
        if baseline.outputs.is_none() {
            let bytes = outputs(&baseline.probe)?.into_iter().map(|(_, bytes)| bytes);
            baseline.outputs = Some(bytes.collect());
        }
        let expected = baseline.outputs.as_deref().unwrap_or_default();
        for (n, ((dtype, got), expected)) in candidate.iter().zip(expected).enumerate() {
            let is_padding = probe.padding_of(task, n).map_err(|e| MeasureError::Failed(e.to_string()))?;
            if !agree(*dtype, got, expected, is_padding) {
                let name = &task.computation.func.name;
                return Err(MeasureError::Wrong(format!("{name} computes something else when tuned")));
            }
        }
        Ok(())
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
        let key = task.key();
        let prepared = self.prepared.remove(&(key.clone(), candidate.clone()));
        let probe = prepared.unwrap_or_else(|| probe(task, candidate))?;
        self.measure_probe(task, &probe, effort)
    }
}

/// Compiles candidates, several at a time, until it is asked to stop.
pub(super) fn compile_all<T: Send>(
    jobs: usize,
    cancel: &Cancel,
    candidates: &[Decisions],
    compile: &(dyn Fn(&Decisions) -> Result<T, MeasureError> + Sync),
) -> Vec<Result<T, MeasureError>> {
    let slots: Vec<Mutex<Option<Result<T, MeasureError>>>> =
        candidates.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(candidates.len()) {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let (Some(decisions), Some(slot)) = (candidates.get(n), slots.get(n)) else { break };
                    let compiled = match cancel.is_cancelled() {
                        true => Err(MeasureError::Cancelled),
                        false => compile(decisions),
                    };
                    if let Ok(mut slot) = slot.lock() {
                        *slot = Some(compiled);
                    }
                }
            });
        }
    });
    let stopped = || MeasureError::Failed("a thread that compiles has stopped".to_string());
    let result = |slot: Mutex<Option<_>>| slot.into_inner().ok().flatten().ok_or_else(stopped)?;
    slots.into_iter().map(result).collect()
}

fn probe(task: &Task, decisions: &Decisions) -> Result<Probe, MeasureError> {
    let kernels = schedule_kernels(&task.computation, &task.target, decisions.clone(), verify::BY_DEFAULT)
        .map_err(|e| MeasureError::Illegal(e.to_string()))?;
    Probe::new(task, kernels).map_err(|e| MeasureError::Failed(e.to_string()))
}

/// The clock of a run.
#[derive(Clone, Copy)]
enum Clock {
    /// What passes.
    Wall(Instant),
    /// What the processor spends on this thread.
    Thread(Duration),
}

impl Clock {
    /// A clock for work on so many threads.
    fn start(threads: usize) -> Clock {
        if threads > 1 { Clock::Wall(Instant::now()) } else { Clock::Thread(Clock::of_thread()) }
    }

    fn elapsed(self) -> Duration {
        match self {
            Clock::Wall(start) => start.elapsed(),
            Clock::Thread(start) => Clock::of_thread().saturating_sub(start),
        }
    }

    fn of_thread() -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        // The clock starts at 0 and its nanoseconds are below a second.
        Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
    }
}

/// The time of a run, on activations that are near and constants that are far away.
fn run(subject: &mut Subject, supply: &mut Supply, threads: usize) -> Result<Duration, MeasureError> {
    let Subject { session, inputs, span } = subject;
    let near: usize = inputs.iter().filter(|input| !input.is_constant).map(Input::room).sum();
    supply.activations.grow(near);
    supply.activations.rewind();
    supply.constants.grow(*span);
    let take = |input: &Input| match input.is_constant {
        true => supply.constants.take(input.bytes(), *span),
        false => supply.activations.take(input.bytes(), near),
    };
    let places: Vec<_> = inputs.iter().map(take).collect();
    let bytes = inputs.iter().zip(&places).map(|(input, place)| match input.is_constant {
        true => supply.constants.piece(place),
        false => supply.activations.piece(place),
    });
    let views: Vec<_> = inputs
        .iter()
        .zip(bytes)
        .map(|(input, bytes)| TensorView::new(DType::F32, &input.dims, bytes))
        .collect();
    let clock = Clock::start(threads);
    session.run(&views).map_err(|e| MeasureError::Failed(e.to_string()))?;
    Ok(clock.elapsed())
}
