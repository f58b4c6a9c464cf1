//! `tilewright measure`: times schedules that another machine has compiled, on this one or a device of it. No compiler is needed.

use std::io::{stdin, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tilewright_driver::devices;
use tilewright_driver::run::measure::MeasureError;
use tilewright_driver::run::measure::files::{FileError, answer_file};
use tilewright_driver::tune::{Round, RoundError, Trial, TrialResult};
use tilewright_driver::tuning::{MeasureRoundError, Worker, WorkerError, is_of_device, measure_round, serve};

use crate::failure::{Exit, Failure};
use crate::options::seconds;
use crate::output;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with a round of schedules, as `tilewright tune --candidates-to` wrote it: results are added to it as they come. Or the file
    /// of one request, with the artifacts it names beside it: the answer is printed, as JSON, with the digest of the request
    #[arg(value_name = "DIR|REQUEST.json", required_unless_present = "worker")]
    what: Option<PathBuf>,
    /// What to measure on, where the schedules are for a device: `cuda` or `opencl`, or `cuda:1` for another one of its kind
    #[arg(long, value_name = "DEVICE", required_if_eq("worker", "true"))]
    device: Option<String>,
    #[command(flatten)]
    limit: Limit,
    /// Print figures as one JSON object
    #[arg(long)]
    json: bool,
    /// Measure what another process asks for
    #[arg(long, hide = true, conflicts_with = "what")]
    worker: bool,
}

/// How long a schedule may take.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Seconds after which a schedule on a device counts as one that hangs
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    limit: f64,
}

impl Limit {
    /// As a time.
    pub(crate) fn time(self) -> Duration {
        Duration::from_secs_f64(self.limit)
    }
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { limit: 60.0 }
    }
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match (&args.what, &args.device) {
        (None, Some(device)) => {
            let device = devices::open(device)?;
            let served = serve(&*device, stdin().lock(), stdout().lock());
            served.map_err(|error| Failure::new(Exit::Io, error))
        }
        (None, None) => Err(Failure::usage("--worker is for a device: name it by --device")),
        (Some(folder), _) if !folder.is_file() => round(folder, args),
        (Some(_), Some(_)) => {
            Err(Failure::usage("--device is for a round of schedules: a request is for a processor"))
        }
        (Some(request), None) => answer(request),
    }
}

/// Answers one request.
fn answer(path: &Path) -> Result<(), Failure> {
    let answer = answer_file(path)?;
    if let Err(MeasureError::Unavailable(why)) = &answer.result {
        return Err(Failure::new(Exit::Unsupported, why).about(path));
    }
    let json = serde_json::to_value(&answer);
    output::print_json(&json.map_err(|error| Failure::new(Exit::Internal, error))?)
}

/// Measures what of a round is not measured yet.
fn round(folder: &Path, args: &Args) -> Result<(), Failure> {
    // What is damaged is told before a process is started.
    let round = Round::read(folder)?;
    let n_trials = round.trials.len();
    let mut worker = match &args.device {
        Some(_) if !is_of_device(&round) => {
            let target = round.target;
            return Err(Failure::usage(format!(
                "the schedules are for {target}, which has no device: leave --device out"
            )));
        }
        Some(device) => Some(worker(device, args.limit)?),
        None => None,
    };
    worker.as_mut().map_or(Ok(()), Worker::start)?;
    let mut watch = |trial: &Trial, result: &TrialResult, n: usize| {
        if args.json {
            return;
        }
        let what = match (&result.times, &result.error) {
            (Some(times), _) => format!("{:.3}x", 1.0 / times.ratio()),
            (None, Some(error)) => error.lines().next().unwrap_or_default().to_string(),
            (None, None) => String::new(),
        };
        output::note(&format!("{n} of {n_trials}: {} {}: {what}\n", trial.name, trial.decisions));
    };
    let round = measure_round(folder, worker.as_mut(), &mut watch)?;
    let (results, damaged) = round.results(folder)?;
    let failed = results.iter().filter(|result| result.error.is_some()).count();
    let faster =
        results.iter().filter(|r| r.confirmed.as_ref().is_some_and(|times| times.is_faster())).count();
    if args.json {
        let figures =
            json!({ "trials": n_trials, "measured": results.len(), "failed": failed, "faster": faster });
        return output::print_json(&figures);
    }
    let lines = if damaged > 0 { format!("; {damaged} damaged lines are left out") } else { String::new() };
    output::print(&format!(
        "{} of {n_trials} schedules are measured: {faster} are faster than the rules' own, {failed} failed{lines}\n",
        results.len()
    ))
}

/// A process of this program that measures on a device.
pub(crate) fn worker(device: &str, limit: Limit) -> Result<Worker, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(Exit::Internal, format!("the measuring process: {error}")))?;
    let device = device.to_string();
    let command = move || {
        let mut command = Command::new(&program);
        command.args(["measure", "--worker", "--device", &device]);
        command
    };
    Ok(Worker::new(command, limit.time()))
}

impl From<RoundError> for Failure {
    fn from(error: RoundError) -> Failure {
        let exit = match &error {
            RoundError::Read { .. } | RoundError::Write { .. } => Exit::Io,
            RoundError::Taken { .. } => Exit::Usage,
            RoundError::Foreign { .. } | RoundError::Damaged { .. } => Exit::Data,
        };
        Failure::new(exit, error)
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Failure {
        Failure::new((&error).into(), error)
    }
}

impl From<MeasureRoundError> for Failure {
    fn from(error: MeasureRoundError) -> Failure {
        match error {
            MeasureRoundError::Round(error) => error.into(),
            MeasureRoundError::NoDevice { .. } => Failure::usage(error),
            MeasureRoundError::Unavailable(_) => Failure::new(Exit::Unsupported, error),
        }
    }
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Failure {
        let exit = match &error {
            WorkerError::Start(_) => Exit::Unsupported,
            WorkerError::Died(_) | WorkerError::Hung { .. } => Exit::Io,
            WorkerError::Cancelled => Exit::Cancelled,
        };
        let message = error.to_string();
        Failure::new(exit, message.trim_start_matches(crate::failure::ERROR))
    }
}
