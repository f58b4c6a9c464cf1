//! `tilewright tune`: a search for schedules that are faster than those the rules make, measured here, on servers, or elsewhere by rounds.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tilewright_driver::Options;
use tilewright_driver::search::{self, Found};
use tilewright_driver::tune::{
    Budget, Finding, Journal, Measure, MeasureError, Outcome, Round, Task, TaskOutcome, Watch,
};
use tilewright_driver::tuning::{
    InProcess, MakeRoundError, OnDevice, Requests, RoundOptions, Tasks, write_round,
};

use crate::failure::{Exit, Failure};
use crate::measure::{Limit, worker};
use crate::options::{CompileArgs, DEFAULT_SECONDS, seconds, threads};
use crate::output;
use crate::servers::{self, ServersArgs};
use crate::source::Source;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Models whose functions are tuned; one that occurs in several counts for all of them
    #[arg(value_name = "MODEL.onnx", required = true)]
    models: Vec<PathBuf>,
    /// Seconds to search [default: 180, or no limit where --trials is given]
    #[arg(long, value_name = "S", value_parser = seconds)]
    time: Option<f64>,
    /// Schedules to measure at most
    #[arg(long, value_name = "N")]
    trials: Option<usize>,
    /// Threads that measured kernels run on; one is quietest
    #[arg(long, value_name = "N", value_parser = threads, default_value = "1")]
    threads: usize,
    /// Seed of what is tried at random
    #[arg(long, value_name = "N", default_value = "0")]
    seed: u64,
    /// What functions for a device are measured on: `opencl:1` for another than the first of its kind [default: that of --target]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    #[command(flatten)]
    servers: ServersArgs,
    #[command(flatten)]
    limit: Limit,
    /// Measure nothing: write a round of schedules for `tilewright measure` into a new folder, --trials of them
    #[arg(long, value_name = "DIR", conflicts_with_all = ["time", "device"])]
    candidates_to: Option<PathBuf>,
    /// Record what `tilewright measure` found of a round first
    #[arg(long, value_name = "DIR")]
    measured: Option<PathBuf>,
    /// Print figures as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: CompileArgs,
}

/// Schedules of a round, unless told otherwise.
const ROUND: usize = 64;

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.options.interpret() {
        return Err(Failure::usage("--codegen interpreter makes no code: there is nothing to tune"));
    }
    if args.options.search_time().is_some() {
        return Err(Failure::usage(
            "--mode max-autotune is for verbs that compile; tune searches in any case",
        ));
    }
    let Some(database) = args.options.database_path() else {
        return Err(Failure::usage(match args.options.uses_no_records() {
            true => "tune is there to record what it finds: --no-database leaves it nothing to do",
            false => "there is no folder for records of tuning: name a file by --database",
        }));
    };
    let servers = args.servers.connect()?;
    let compile_args = match &servers {
        Some(servers) => servers::options_for(servers, &args.options)?,
        None => args.options.clone(),
    };
    let options = compile_args.options()?;
    let mut tasks = Tasks::default();
    for path in &args.models {
        if let Source::Artifact(path) = Source::of(path)? {
            return Err(Failure::usage(format!("{} is compiled already: tune its model", path.display())));
        }
        tasks.add_model(path, &options).map_err(|error| Failure::from(error).about(path))?;
    }
    if args.measured.is_some() || args.candidates_to.is_some() {
        return rounds(args, &tasks, &options, &database);
    }
    let default_time = if args.trials.is_some() { None } else { Some(DEFAULT_SECONDS) };
    let budget = Budget {
        time: args.time.or(default_time).map(Duration::from_secs_f64),
        trials: args.trials,
        seed: args.seed,
    };
    let start = Instant::now();
    let mut measure: Box<dyn Measure> = match servers {
        Some(servers) => Box::new(servers::measure(servers, &options, args.threads, args.limit.time())?),
        None => measure(&options, args.threads, args.device.as_deref(), args.limit)?,
    };
    let Found { outcome, .. } = search(&tasks, &mut *measure, Some(&database), budget)?;
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        output::print_json(&figures(&tasks, &outcome, &database, seconds))?;
    } else {
        output::print(&report(&tasks, &outcome, &database, seconds))?;
    }
    search::check(&outcome)?;
    Ok(())
}

/// Searches for schedules of a model for some time. What is found is added to the user's records, unless none are to be used.
pub(crate) fn before_compiling(
    path: &Path,
    options: &Options,
    args: &CompileArgs,
    time: Duration,
) -> Result<Found, Failure> {
    let mut tasks = Tasks::default();
    tasks.add_model(path, options).map_err(|error| Failure::from(error).about(path))?;
    let budget = Budget { time: Some(time), trials: None, seed: 0 };
    let mut measure = measure(options, 1, None, Limit::default())?;
    let found = search(&tasks, &mut *measure, args.database_path().as_deref(), budget)?;
    search::check(&found.outcome)?;
    Ok(found)
}

/// What measures functions of a target: this process, and for a device another one.
fn measure(
    options: &Options,
    threads: usize,
    device: Option<&str>,
    limit: Limit,
) -> Result<Box<dyn Measure>, Failure> {
    match (options.target.device, device) {
        (None, None) => Ok(Box::new(search::on_host(options, threads)?)),
        (None, Some(_)) => Err(Failure::usage("--device is for a target that has one")),
        (Some(kind), device) => {
            let name = device.unwrap_or(kind.name());
            if name.split(':').next() != Some(kind.name()) {
                return Err(Failure::usage(format!("--device {name} does not run code for {kind}")));
            }
            search::check_machine(options)?;
            let host = InProcess::new(threads, options.jobs);
            Ok(Box::new(OnDevice::new(worker(name, limit)?, host, options.jobs)?))
        }
    }
}

/// Takes what was measured elsewhere into the records, and makes the next round, whichever is asked for.
fn rounds(args: &Args, tasks: &Tasks, options: &Options, database: &Path) -> Result<(), Failure> {
    let (mut known, left_out) = Journal::read(database)?;
    if left_out.any() {
        output::note(&format!("{}: {left_out} are left out\n", database.display()));
    }
    let (mut n_results, mut n_wrong, mut n_faster) = (0, 0, 0);
    if let Some(folder) = &args.measured {
        let round = Round::read(folder)?;
        let (results, damaged) = round.results(folder)?;
        if damaged > 0 {
            output::note(&format!("{}: {damaged} damaged results are left out\n", folder.display()));
        }
        n_results = results.len();
        n_wrong = results.iter().filter(|result| result.is_wrong).count();
        let mut journal = Journal::append_to(database)?;
        for entry in round.entries(&results) {
            let is_best = entry.finding == Finding::Best;
            if known.insert(entry.clone()) {
                n_faster += usize::from(is_best);
                journal.append(&entry)?;
            }
        }
    }
    // What a device's machine does beside it is another round's.
    let is_asked = |task: &&Task| task.target.device == options.target.device;
    let asked: Vec<Task> = tasks.tasks.iter().filter(is_asked).cloned().collect();
    let mut n_written = None;
    if let Some(folder) = &args.candidates_to {
        let n = args.trials.unwrap_or(ROUND);
        let requests = &Requests::new(args.threads, None);
        let how = RoundOptions { n, seed: args.seed, jobs: options.jobs, requests };
        let round = write_round(&asked, &mut known, &how, folder)?;
        n_written = Some(round.trials.len());
    }
    if args.json {
        output::print_json(&json!({
            "database": database.display().to_string(), "results": n_results, "faster": n_faster,
            "wrong": n_wrong, "candidates": n_written,
        }))?;
    } else {
        let taken = format!(
            "{n_results} results, {n_faster} of faster schedules; records in {}\n",
            database.display()
        );
        let written = n_written.map(|n| format!("{n} schedules to be measured\n")).unwrap_or_default();
        output::print(&(if args.measured.is_some() { taken } else { String::new() } + &written))?;
    }
    match n_wrong {
        0 => Ok(()),
        n => Err(Failure::new(
            Exit::Internal,
            format!("{n} schedules compute something else than the rules' own"),
        )),
    }
}

/// Searches under the eyes of a bar, and records what is found in a file if one is given.
fn search(
    tasks: &Tasks,
    measure: &mut dyn Measure,
    file: Option<&Path>,
    budget: Budget,
) -> Result<Found, Failure> {
    let mut bar = Bar::new();
    let found = search::run(&tasks.tasks, measure, file, budget, &mut bar);
    bar.finish();
    let found = found?;
    if let Some(path) = file.filter(|_| found.left_out.any()) {
        output::note(&format!("{}: {} are left out\n", path.display(), found.left_out));
    }
    Ok(found)
}

impl From<MakeRoundError> for Failure {
    fn from(error: MakeRoundError) -> Failure {
        match error {
            MakeRoundError::Round(error) => error.into(),
            MakeRoundError::Kernels(error) => error.into(),
            MakeRoundError::Request(error) => error.into(),
            MakeRoundError::Compile { error: MeasureError::Failed(_), .. } => {
                Failure::new(Exit::Unsupported, error)
            }
            MakeRoundError::Compile { .. } => Failure::new(Exit::Internal, error),
        }
    }
}

/// The search on a terminal: the part of the budget that is spent, the gain so far, and how long it will take.
struct Bar(Option<ProgressBar>);

impl Bar {
    /// Steps of the bar.
    const LENGTH: f64 = 1000.0;

    fn new() -> Bar {
        Bar(std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(Bar::LENGTH as u64);
            // The template is a constant; without it the default one serves.
            if let Ok(style) = ProgressStyle::with_template("tune [{bar:30}] {percent} % {eta} left, {msg}") {
                bar.set_style(style);
            }
            bar
        }))
    }

    fn finish(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

impl Watch for Bar {
    fn progress(&mut self, outcome: &Outcome, share: f64) {
        if let Some(bar) = &self.0 {
            bar.set_position((share.min(1.0) * Bar::LENGTH) as u64);
            bar.set_message(format!("{} trials, {:.3}x so far", outcome.trials, outcome.gain()));
        }
    }
}

fn row(tasks: &Tasks, n: usize, outcome: &TaskOutcome) -> serde_json::Value {
    json!({
        "name": tasks.tasks.get(n).map(|task| task.computation.func.name.as_str()),
        "function": outcome.key.function,
        "calls": outcome.calls,
        "baseline_us": outcome.baseline_ns / 1e3,
        "ratio": outcome.ratio,
        "trials": outcome.trials,
        "space": outcome.space,
        "decisions": outcome.decisions.to_string(),
    })
}

fn figures(tasks: &Tasks, outcome: &Outcome, database: &Path, seconds: f64) -> serde_json::Value {
    let left_out = tasks.left_out.iter().map(|(name, why)| json!({ "name": name, "why": why }));
    json!({
        "database": database.display().to_string(),
        "seconds": seconds,
        "trials": outcome.trials,
        "failed": outcome.failed,
        "illegal": outcome.illegal,
        "unmeasured": outcome.unmeasured,
        "exhausted": outcome.exhausted,
        "gain": outcome.gain(),
        "tasks": outcome.tasks.iter().enumerate().map(|(n, t)| row(tasks, n, t)).collect::<Vec<_>>(),
        "left_out": left_out.collect::<Vec<_>>(),
    })
}

fn report(tasks: &Tasks, outcome: &Outcome, database: &Path, seconds: f64) -> String {
    let mut rows: Vec<(f64, (String, String))> = outcome
        .tasks
        .iter()
        .enumerate()
        .map(|(n, t)| {
            let name = tasks.tasks.get(n).map_or("", |task| &task.computation.func.name);
            let time = t.baseline_ns / 1e3;
            let text = format!(
                "{:3} calls {time:10.1} us {:6.3}x {:4} trials  {}",
                t.calls,
                1.0 / t.ratio,
                t.trials,
                t.decisions
            );
            (f64::from(t.calls) * time, (name.to_string(), text))
        })
        .collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let rows: Vec<(String, String)> = rows.into_iter().map(|(_, row)| row).collect();
    let mut text = output::table(&rows);
    let why = if outcome.exhausted { ", nothing worth trying is left" } else { "" };
    // Writing to a string cannot fail.
    _ = writeln!(
        text,
        "{} functions, {} not tuned; {} trials, {} failed, {seconds:.0} s{why}",
        outcome.tasks.len(),
        tasks.left_out.len(),
        outcome.trials,
        outcome.failed
    );
    for why in &outcome.unmeasured {
        _ = writeln!(text, "  not measured: {}", why.lines().next().unwrap_or_default());
    }
    for (name, why) in &tasks.left_out {
        _ = writeln!(text, "  not tuned: {name}: {why}");
    }
    _ = writeln!(
        text,
        "{:.3}x the speed of the rules' own schedules; records in {}",
        outcome.gain(),
        database.display()
    );
    text
}
