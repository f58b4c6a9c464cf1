//! Searches for faster schedules of a model's functions: what measures them, where what is found is kept, and what of it is a defect.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tilewright_machine::Machine;
use tilewright_onnx::OnnxModel;
use tilewright_run::noise::noise;
use tilewright_run::timing::by_turns;
use tilewright_run::values;
use tilewright_runtime::{Cancel, Session};
use tilewright_tune::{
    Budget, Database, Entry, Journal, JournalError, LeftOut, Measure, Outcome, Task, Watch, tune,
};

use crate::artifact::Artifact;
use crate::compile::{Compiled, compile_model, timed};
use crate::error::{CompileError, Error, SearchError};
use crate::options::{CompileObserver, Options};
use crate::search_report::{SearchReport, WholeModel};
use crate::tuning::{InProcess, Tasks};

/// Seconds that a model runs for to tell which of two compilations is faster.
const COMPARE_SECONDS: f64 = 2.0;

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

/// Compiles a model by what a search found and without, and keeps what is faster here.
///
/// # Errors
/// As [`compile_model`]. That the model cannot be timed is no error.
pub(crate) fn compile_faster(
    model: &OnnxModel,
    options: &Options,
    found: &Found,
    observer: &mut dyn CompileObserver,
) -> Result<Compiled, CompileError> {
    let records = Arc::new(options.records.after(found.records.clone()));
    let by_found = compile_model(model, &Options { records, ..options.clone() }, observer)?;
    let by_default = compile_model(model, options, &mut ())?;
    let is_same = by_found.artifact.manifest.records == by_default.artifact.manifest.records;
    let whole = match is_same {
        true => WholeModel::Same,
        false => timed("compare", options, observer, |_| {
            let compared = against_default(&by_default.artifact, &by_found.artifact, &options.cancel);
            // What was stopped says nothing of the model.
            options.work().check()?;
            Ok(compared.unwrap_or_else(|error| WholeModel::Untimed(error.to_string())))
        })?,
    };
    observer.remark(&whole.to_string());
    let kept = if whole.keeps_found() { by_found } else { by_default };
    Ok(Compiled { search: Some(SearchReport { outcome: found.outcome.clone(), whole }), ..kept })
}

/// Runs the model as compiled both ways by turns, on seeded noise and all of the process's threads.
fn against_default(default: &Artifact, found: &Artifact, cancel: &Cancel) -> Result<WholeModel, Error> {
    let [default, found] = [default.load()?, found.load()?];
    let given = noise(default.inputs())?;
    let named = values::inputs(&given);
    let inputs = default.inner().arrange(&named)?;
    let [mut default, mut found] = [default.session(), found.session()];
    for session in [&mut default, &mut found] {
        session.set_cancel(Some(cancel.clone()));
    }
    let run = |session: &mut Session| session.run_values(inputs.tensors(), inputs.values()).map(drop);
    let turns = by_turns(COMPARE_SECONDS, || run(&mut default), || run(&mut found))?;
    let [default, found] = turns.medians();
    Ok(WholeModel::Timed { default, found, ratio: turns.ratio() })
}

/// Searches for schedules of a model's functions for some time, and keeps what is found in no file.
///
/// # Errors
/// As [`on_host`] and [`check`], and where the model cannot be compiled.
pub(crate) fn of_model(model: &OnnxModel, options: &Options, time: Duration) -> Result<Found, CompileError> {
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
    Ok(found)
}

/// Asks a search to stop.
struct Until<'a>(&'a Cancel);

impl Watch for Until<'_> {
    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A schedule that computes something else is a defect, and so is one that was offered and does not apply, even though no record of it
/// is made. A search that could not go on is no success either, though what it found counts.
///
/// # Errors
/// [`SearchError::Wrong`], [`SearchError::Illegal`] and [`SearchError::Unavailable`].
pub fn check(outcome: &Outcome) -> Result<(), SearchError> {
    if let Some(message) = outcome.wrong.first() {
        return Err(SearchError::Wrong(message.clone()));
    }
    if let Some(why) = &outcome.unavailable {
        return Err(SearchError::Unavailable(why.clone()));
    }
    match outcome.illegal.first() {
        None => Ok(()),
        Some(first) => Err(SearchError::Illegal { n: outcome.illegal.len(), first: first.clone() }),
    }
}
