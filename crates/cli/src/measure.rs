//! `tilewright measure`: times schedules that another machine has compiled, on a device of this one. No compiler is needed.

use std::io::{stdin, stdout};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tilewright_driver::devices;
use tilewright_driver::tune::{Round, RoundError};
use tilewright_driver::tuning::{Worker, WorkerError, measure_round, serve};

use crate::failure::{Exit, Failure};
use crate::options::seconds;
use crate::output;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Folder with the schedules, as `tilewright tune --candidates-to` wrote it; results are added to it as they come
    #[arg(value_name = "DIR", required_unless_present = "worker")]
    folder: Option<PathBuf>,
    /// What to measure on: `cuda` or `opencl`, or `cuda:1` for another one of its kind
    #[arg(long, value_name = "DEVICE")]
    device: String,
    #[command(flatten)]
    limit: Limit,
    /// Print figures as one JSON object
    #[arg(long)]
    json: bool,
    /// Measure what another process asks for
    #[arg(long, hide = true, conflicts_with = "folder")]
    worker: bool,
}

/// How long a schedule may take.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Seconds after which a schedule on a device counts as one that hangs
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    limit: f64,
}

impl Default for Limit {
    fn default() -> Limit {
        Limit { limit: 60.0 }
    }
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Some(folder) = args.folder.as_ref().filter(|_| !args.worker) else {
        let device = devices::open(&args.device)?;
        let served = serve(&*device, stdin().lock(), stdout().lock());
        return served.map_err(|error| Failure::new(Exit::Io, error));
    };
    // What is damaged is told before a process is started.
    let n_trials = Round::read(folder)?.trials.len();
    let mut worker = worker(&args.device, args.limit)?;
    worker.start()?;
    let mut watch =
        |trial: &tilewright_driver::tune::Trial, result: &tilewright_driver::tune::TrialResult, n: usize| {
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
    let round = measure_round(folder, &mut worker, &mut watch)?;
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
    Ok(Worker::new(command, Duration::from_secs_f64(limit.limit)))
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
