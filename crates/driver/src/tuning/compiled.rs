//! Functions as requests for measurements: what of a measurement needs a compiler.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tilewright_autosched::Decisions;
use tilewright_run::measure::request::VERSION;
use tilewright_run::measure::{BlobId, Check, Contents, Request, Schedule};
use tilewright_runtime::{Bytes, Cancel};
use tilewright_tune::{Effort, MeasureError, Task, TaskKey};

use super::probe::{Probe, input_data, padding_of};
use crate::autoschedule::schedule_kernels;
use crate::error::CompileError;

/// Bytes of other constants between two uses of one, at most: more than cores of a shared machine get of the last level of cache.
const FARTHEST: u64 = 128 << 20;

/// A request, with the bytes of all digests in it.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The request.
    pub request: Request,
    /// The bytes.
    pub blobs: BTreeMap<BlobId, Bytes>,
}

/// Makes requests of functions and schedules. The rules' own schedule of each function is compiled once.
#[derive(Default)]
pub struct Requests {
    threads: usize,
    shared_by: Option<usize>,
    references: Mutex<BTreeMap<TaskKey, Arc<Reference>>>,
}

/// The rules' own schedule of a task, as soon as it was needed.
type Reference = OnceLock<Result<Half, MeasureError>>;

/// The rules' own schedule, compiled.
struct Half {
    probe: Probe,
    schedule: Schedule,
    artifact: Bytes,
    /// What results are compared on, as soon as that was needed.
    inputs: OnceLock<Result<Inputs, MeasureError>>,
}

/// The inputs of a schedule, and the bytes of those that are no noise.
type Inputs = (Vec<Contents>, BTreeMap<BlobId, Bytes>);

fn failed(error: CompileError) -> MeasureError {
    MeasureError::Failed(error.to_string())
}

impl Requests {
    /// Requests to run kernels on `threads` threads.
    ///
    /// With one thread measurements are quietest. What tasks of uneven number would cost on `shared_by` threads, or on all of the machine
    /// that measures, is then added to the time.
    pub fn new(threads: usize, shared_by: Option<usize>) -> Requests {
        Requests { threads: threads.max(1), shared_by, ..Requests::default() }
    }

    /// The request to measure a schedule.
    ///
    /// # Errors
    /// Where it does not apply, or cannot be compiled.
    pub fn compile(
        &self,
        task: &Task,
        decisions: &Decisions,
        effort: Effort,
    ) -> Result<Compiled, MeasureError> {
        match decisions.is_empty() {
            true => self.request(task, None, effort),
            false => self.request(task, Some(&probe(task, decisions)?), effort),
        }
    }

    /// The request to measure a schedule that was compiled, or without one the rules' own beside itself.
    pub(super) fn request(
        &self,
        task: &Task,
        candidate: Option<&Probe>,
        effort: Effort,
    ) -> Result<Compiled, MeasureError> {
        let reference = self.reference(task);
        let reference = reference.get_or_init(|| Half::new(task)).as_ref().map_err(Clone::clone)?;
        let mut blobs = BTreeMap::from([(reference.schedule.artifact, reference.artifact.clone())]);
        let schedule = match candidate {
            Some(probe) => {
                let (schedule, artifact) = schedule(task, probe)?;
                blobs.insert(schedule.artifact, artifact);
                schedule
            }
            None => reference.schedule.clone(),
        };
        let check = match effort {
            Effort::Trial => None,
            Effort::Confirm => {
                Some(reference.check(task, candidate.unwrap_or(&reference.probe), &mut blobs)?)
            }
        };
        let request = Request {
            version: VERSION,
            name: task.computation.func.name.clone(),
            reference: reference.schedule.clone(),
            candidate: schedule,
            span: span(task, task.target.machine.caches.l2),
            threads: self.threads,
            shared_by: self.shared_by,
            effort,
            check,
        };
        Ok(Compiled { request, blobs })
    }

    /// The place of the rules' own schedule of a task.
    fn reference(&self, task: &Task) -> Arc<Reference> {
        // What is there is whole, whatever became of who held the lock.
        let mut references = self.references.lock().unwrap_or_else(PoisonError::into_inner);
        references.entry(task.key()).or_default().clone()
    }
}

impl Half {
    fn new(task: &Task) -> Result<Half, MeasureError> {
        let probe = probe(task, &Decisions::default())?;
        let (schedule, artifact) = schedule(task, &probe)?;
        Ok(Half { probe, schedule, artifact, inputs: OnceLock::new() })
    }

    /// What a candidate's results are held against the rules' on.
    fn check(
        &self,
        task: &Task,
        candidate: &Probe,
        blobs: &mut BTreeMap<BlobId, Bytes>,
    ) -> Result<Check, MeasureError> {
        let of_reference = self.inputs.get_or_init(|| inputs(task, &self.probe));
        let (reference, more) = of_reference.as_ref().map_err(Clone::clone)?;
        blobs.extend(more.iter().map(|(id, bytes)| (*id, bytes.clone())));
        let (candidate_inputs, more) = inputs(task, candidate)?;
        blobs.extend(more);
        let func = &task.computation.func;
        let padding =
            (0..func.params.len() - func.n_inputs).map(|n| padding_of(task, candidate.kernels(), n));
        let padding = padding.collect::<Result<_, _>>().map_err(failed)?;
        Ok(Check { reference: reference.clone(), candidate: candidate_inputs, padding })
    }
}

/// A schedule as requests name it, and its artifact.
fn schedule(task: &Task, probe: &Probe) -> Result<(Schedule, Bytes), MeasureError> {
    let artifact = probe.artifact(task).map_err(failed)?;
    let is_constant = |n| task.computation.constant_inputs.get(n) == Some(&true);
    let constants = (0..task.computation.func.n_inputs).map(is_constant).collect();
    Ok((Schedule { artifact: BlobId::of(&artifact), constants, work: probe.work() }, artifact))
}

/// Inputs for which all schedules compute the same.
fn inputs(task: &Task, probe: &Probe) -> Result<Inputs, MeasureError> {
    let (mut contents, mut blobs) = (Vec::new(), BTreeMap::new());
    for n in 0..task.computation.func.n_inputs {
        contents.push(match probe.kernels().packing.get(n).is_none_or(Vec::is_empty) {
            true => Contents::Noise(n as u64),
            false => {
                let bytes = input_data(task, probe.kernels(), n).map_err(failed)?;
                let id = BlobId::of(&bytes);
                blobs.insert(id, Bytes::new(bytes));
                Contents::Blob(id)
            }
        });
    }
    Ok((contents, blobs))
}

/// Compiles a schedule.
pub(super) fn probe(task: &Task, decisions: &Decisions) -> Result<Probe, MeasureError> {
    let kernels = schedule_kernels(&task.computation, &task.target, decisions.clone())
        .map_err(|e| MeasureError::Illegal(e.to_string()))?;
    Probe::new(task, kernels).map_err(failed)
}

/// Bytes of other constants between two uses of one: what a model has, but no fewer than no cache of so many bytes holds.
pub(super) fn span(task: &Task, cache: impl Into<u64>) -> u64 {
    let nearest = 2 * cache.into();
    task.constant_bytes.clamp(nearest, FARTHEST.max(nearest))
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
