//! Rounds of schedules that another machine measures, as folders: what is in them, and the measurement there.
//!
//! A schedule for a device is a file of kernels beside one with the rules' own; one for a processor is a request, whose artifacts lie
//! beside it under their digests.

use std::collections::BTreeMap;
use std::path::Path;

use tilewright_autosched::Decisions;
use tilewright_run::measure::files::{FileError, read_request, write_request};
use tilewright_run::measure::{Bench, BlobFolder, Request};
use tilewright_runtime::Cancel;
use tilewright_tune::space::Point;
use tilewright_tune::{
    Database, Effort, MeasureError, Round, RoundError, Task, Times, Trial, TrialResult, propose,
};

use super::bench::Request as OfDevice;
use super::compiled::{Requests, compile_all, span};
use super::on_device::{ask, entry, far};
use super::worker::Worker;
use crate::kernel_file::{self, KernelFileError};

/// A round that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum MakeRoundError {
    /// Its folder.
    #[error(transparent)]
    Round(#[from] RoundError),
    /// A file of kernels.
    #[error(transparent)]
    Kernels(#[from] KernelFileError),
    /// A file of a request.
    #[error(transparent)]
    Request(#[from] FileError),
    /// A function that does not compile.
    #[error("{name}: {error}")]
    Compile {
        /// The function.
        name: String,
        /// Why.
        error: MeasureError,
    },
}

/// How the name of a file with a request ends. Names of files with kernels do not.
const OF_REQUEST: &str = ".json";

/// What a round is made of.
pub struct RoundOptions<'a> {
    /// Schedules, at most.
    pub n: usize,
    /// Seed of what is taken at random.
    pub seed: u64,
    /// Threads that compile.
    pub jobs: usize,
    /// Makes requests for processors.
    pub requests: &'a Requests,
}

/// Writes a round of schedules to be measured elsewhere, as they follow from what is known.
///
/// # Errors
/// Where files cannot be written, or the rules' own schedule of a function does not compile.
pub fn write_round(
    tasks: &[Task],
    known: &mut Database,
    options: &RoundOptions<'_>,
    folder: &Path,
) -> Result<Round, MakeRoundError> {
    if Round::is_in(folder) {
        return Err(RoundError::Taken { folder: folder.to_path_buf() }.into());
    }
    let written = |error| RoundError::Write { path: folder.to_path_buf(), error };
    std::fs::create_dir_all(folder).map_err(written)?;
    let mut round = Round::default();
    let mut of_tasks: BTreeMap<usize, Vec<Point>> = BTreeMap::new();
    for (task, point) in propose(tasks, known, options.n, options.seed) {
        of_tasks.entry(task).or_default().push(point);
    }
    for (index, points) in of_tasks {
        let task = &tasks[index];
        let decisions: Vec<Decisions> = points.into_iter().map(|point| point.decisions).collect();
        let name = task.computation.func.name.clone();
        let rules = Point::of(task, &Decisions::default());
        let rules = rules.map_err(|error| MeasureError::Illegal(error.to_string()));
        let baseline = rules.map_err(|error| MakeRoundError::Compile { name: name.clone(), error })?.digest;
        round.target = task.target.to_string();
        let files = match task.target.device {
            Some(_) => kernels(task, &decisions, round.trials.len(), options, folder)?,
            None => requests(task, &decisions, round.trials.len(), options, folder)?,
        };
        round.trials.extend(files.into_iter().map(|files| Trial {
            task: task.key(),
            name: name.clone(),
            baseline: baseline.clone(),
            decisions: files.decisions,
            candidate: files.candidate,
            reference: files.reference,
            far: files.far,
        }));
    }
    round.write(folder)?;
    Ok(round)
}

/// A schedule that is in a folder, by names of files.
struct Files {
    decisions: Decisions,
    candidate: String,
    reference: String,
    far: u64,
}

/// The candidates that compiled. One may be too large for a limit: others are not.
fn those_compiled<T>(
    task: &Task,
    decisions: &[Decisions],
    compiled: Vec<Result<T, MeasureError>>,
) -> Result<Vec<(Decisions, T)>, MakeRoundError> {
    let mut those = Vec::new();
    for (decisions, compiled) in decisions.iter().zip(compiled) {
        match compiled {
            Ok(compiled) => those.push((decisions.clone(), compiled)),
            Err(
                error @ (MeasureError::Illegal(_) | MeasureError::Cancelled | MeasureError::Unavailable(_)),
            ) => {
                return Err(MakeRoundError::Compile { name: task.computation.func.name.clone(), error });
            }
            Err(MeasureError::Failed(_) | MeasureError::Wrong(_)) => {}
        }
    }
    Ok(those)
}

/// Writes files of kernels, the first with the number `first`.
fn kernels(
    task: &Task,
    decisions: &[Decisions],
    first: usize,
    options: &RoundOptions<'_>,
    folder: &Path,
) -> Result<Vec<Files>, MakeRoundError> {
    let failed = |error| MakeRoundError::Compile { name: task.computation.func.name.clone(), error };
    let reference = format!("rules-{}.twk", task.key().function);
    let of_rules = entry(task, &Decisions::default()).map_err(failed)?;
    kernel_file::write(&folder.join(&reference), &[of_rules])?;
    let compiled = compile_all(options.jobs, &Cancel::new(), decisions, &|decisions| entry(task, decisions));
    let mut files = Vec::new();
    for (n, (decisions, compiled)) in those_compiled(task, decisions, compiled)?.into_iter().enumerate() {
        let candidate = format!("{}.twk", first + n);
        kernel_file::write(&folder.join(&candidate), &[compiled])?;
        files.push(Files { decisions, candidate, reference: reference.clone(), far: far(task) });
    }
    Ok(files)
}

/// Writes requests, the first with the number `first`.
fn requests(
    task: &Task,
    decisions: &[Decisions],
    first: usize,
    options: &RoundOptions<'_>,
    folder: &Path,
) -> Result<Vec<Files>, MakeRoundError> {
    let compile = |decisions: &Decisions| options.requests.compile(task, decisions, Effort::Confirm);
    let compiled = compile_all(options.jobs, &Cancel::new(), decisions, &compile);
    let mut files = Vec::new();
    for (n, (decisions, compiled)) in those_compiled(task, decisions, compiled)?.into_iter().enumerate() {
        let candidate = format!("{}{OF_REQUEST}", first + n);
        write_request(&folder.join(&candidate), &compiled.request, &compiled.blobs)?;
        let reference = compiled.request.reference.artifact.to_string();
        let far = span(task, task.target.machine.caches.l2);
        files.push(Files { decisions, candidate, reference, far });
    }
    Ok(files)
}

/// Whether what a round has is measured on a device.
pub fn is_of_device(round: &Round) -> bool {
    !round.trials.iter().all(|trial| trial.candidate.ends_with(OF_REQUEST))
}

/// Measures what of a round is not measured yet, by a process where it is of a device, else in this one; `watch` hears of each
/// result, and of how many there are then.
///
/// # Errors
/// Where results cannot be written, the round not be read, or nothing of it be measured here.
pub fn measure_round(
    folder: &Path,
    mut worker: Option<&mut Worker>,
    watch: &mut dyn FnMut(&Trial, &TrialResult, usize),
) -> Result<Round, MeasureRoundError> {
    let round = Round::read(folder)?;
    let (known, _) = round.results(folder)?;
    let mut n_known = known.len();
    let mut bench = Bench::default();
    for (n, trial) in round.trials.iter().enumerate() {
        if known.iter().any(|result| result.trial == n) {
            continue;
        }
        let candidate = folder.join(&trial.candidate);
        let measured = match (trial.candidate.ends_with(OF_REQUEST), &mut worker) {
            (true, _) => measure_request(&mut bench, &candidate, folder),
            (false, Some(worker)) => {
                let reference = folder.join(&trial.reference);
                ask(worker, &OfDevice { reference, candidate, far: trial.far, effort: None })
            }
            (false, None) => return Err(MeasureRoundError::NoDevice { target: round.target.clone() }),
        };
        if let Err(MeasureError::Unavailable(why)) = measured {
            return Err(MeasureRoundError::Unavailable(why));
        }
        let result = TrialResult::new(n, measured);
        round.append(folder, &result)?;
        n_known += 1;
        watch(trial, &result, n_known);
    }
    Ok(round)
}

/// A round that cannot be measured here.
#[derive(Debug, thiserror::Error)]
pub enum MeasureRoundError {
    /// Its folder.
    #[error(transparent)]
    Round(#[from] RoundError),
    /// It is for a device, and none was named.
    #[error("the schedules are for {target}: name a device by --device")]
    NoDevice {
        /// What they are for.
        target: String,
    },
    /// This machine cannot measure it.
    #[error("{0}")]
    Unavailable(String),
}

/// Times of a short measurement, and where that is promising of a long one.
fn measure_request(
    bench: &mut Bench,
    path: &Path,
    folder: &Path,
) -> Result<(Times, Option<Times>), MeasureError> {
    // A damaged file is one schedule that failed.
    let confirm = read_request(path).map_err(|error| MeasureError::Failed(error.to_string()))?;
    let blobs = BlobFolder::new(folder);
    let trial = Request { effort: Effort::Trial, check: None, ..confirm.clone() };
    let times = bench.measure(&trial, &blobs)?;
    match times.is_faster() {
        true => Ok((times, Some(bench.measure(&confirm, &blobs)?))),
        false => Ok((times, None)),
    }
}
