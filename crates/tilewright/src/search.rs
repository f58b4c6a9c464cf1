//! Searches for faster schedules of a model's functions: what measures them, where what is found is kept, and what of it is a defect.

use std::path::Path;
use std::time::Duration;

use tilewright_machine::Machine;
use tilewright_onnx::OnnxModel;
use tilewright_runtime::Cancel;
use tilewright_tune::{
    Budget, Database, Entry, Journal, JournalError, LeftOut, Measure, Outcome, Task, Watch, tune,
};

use crate::error::{CompileError, SearchError};
use crate::options::Options;
use crate::tuning::{InProcess, Tasks};

/// What a search found.
#[derive(Clone, Debug)]
pub struct Found {
    /// How it went.
    pub outcome: Outcome,
    /// What is known now: the records of the file, and those of this search.
    pub records: Database,
    /// Lines of the file that say nothing.
    pub left_out: LeftOut,
}

/// What measures functions for a target's processor, in this process on `threads` threads.
///
/// # Errors
/// Where this machine does not run code for the target, or that has a device.
pub fn on_host(options: &Options, threads: usize) -> Result<InProcess, SearchError> {
    if let Some(device) = options.target.device {
        return Err(SearchError::Device(device));
    }
    check_machine(options)?;
    Ok(InProcess::new(threads, options.jobs).until(options.cancel.clone()))
}

/// Demands that this machine runs code for the target.
///
/// # Errors
/// [`SearchError::OtherMachine`].
pub fn check_machine(options: &Options) -> Result<(), SearchError> {
    let runs = Machine::host().runs_code_for(&options.target.machine);
    if runs { Ok(()) } else { Err(SearchError::OtherMachine) }
}

/// Searches for schedules of tasks. What a file of records says is known before, and what is found is added to it as it is found.
///
/// # Errors
/// Where the file cannot be read or written.
pub fn run(
    tasks: &[Task],
    measure: &mut dyn Measure,
    file: Option<&Path>,
    budget: Budget,
    watch: &mut dyn Watch,
) -> Result<Found, JournalError> {
    let (mut records, left_out) = file.map_or(Ok(Default::default()), Journal::read)?;
    let mut journal = file.map(Journal::append_to).transpose()?;
    let mut record = |entry: &Entry| journal.as_mut().map_or(Ok(()), |journal| journal.append(entry));
    let outcome = tune(tasks, measure, &mut records, &mut record, budget, watch)?;
    Ok(Found { outcome, records, left_out })
}

/// Searches for schedules of a model's functions for some time, and keeps what is found in no file.
///
/// # Errors
/// As [`on_host`] and [`check`], and where the model cannot be compiled.
pub(crate) fn of_model(
    model: &OnnxModel,
    options: &Options,
    time: Duration,
) -> Result<Database, CompileError> {
    let mut measure = on_host(options, 1)?;
    let mut tasks = Tasks::default();
    tasks.add(model, options)?;
    let budget = Budget { time: Some(time), trials: None, seed: 0 };
    let mut watch = Until(&options.cancel);
    let found = run(&tasks.tasks, &mut measure, None, budget, &mut watch).map_err(SearchError::from)?;
    if found.outcome.cancelled {
        return Err(CompileError::Cancelled);
    }
    check(&found.outcome)?;
    Ok(found.records)
}

/// Asks a search to stop.
struct Until<'a>(&'a Cancel);

impl Watch for Until<'_> {
    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A schedule that computes something else is a defect, and so is one that was offered and does not apply, even though no record of it
/// is made.
///
/// # Errors
/// [`SearchError::Wrong`] and [`SearchError::Illegal`].
pub fn check(outcome: &Outcome) -> Result<(), SearchError> {
    if let Some(message) = outcome.wrong.first() {
        return Err(SearchError::Wrong(message.clone()));
    }
    match outcome.illegal.first() {
        None => Ok(()),
        Some(first) => Err(SearchError::Illegal { n: outcome.illegal.len(), first: first.clone() }),
    }
}
