//! The `tilewright` command: dispatch of verbs, exit codes, and the last resort for bugs.

mod bench;
mod cache;
mod calibrate;
mod compile;
mod database;
mod doctor;
mod failure;
mod inspect;
mod kernels;
mod library;
mod load;
mod machines;
mod measure;
mod model;
mod options;
mod output;
mod proc_files;
mod profile;
mod progress;
mod remote;
mod rpc;
mod run;
mod servers;
mod source;
mod targets;
mod tune;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use failure::{ERROR, Exit, Failure};

/// Compiling makes many small things on several threads: it takes 3 % less than with the C library's. Libraries choose none.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compiles neural networks to fast self-contained artifacts, and runs them.
#[derive(Parser)]
#[command(name = "tilewright", version, after_help = EXIT_CODES, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 success, 1 a check failed, 2 usage, 3 unsupported, 4 a limit, 5 invalid model, \
                          artifact or data,\n6 input/output, 70 a bug of tilewright.";

#[derive(clap::Subcommand)]
enum Verb {
    /// Compile an ONNX model to an artifact
    Compile(compile::Args),
    /// Run a model on tensors
    Run(run::Args),
    /// Measure speed and memory of a model
    Bench(bench::Args),
    /// Show where the time of a run goes, by nodes of the model
    Profile(profile::Args),
    /// Show what a model or an artifact is made of, and what is unsupported
    Inspect(inspect::Args),
    /// Hold a compiled model against the interpreter, stored outputs or another model
    Verify(verify::Args),
    /// Search for faster schedules of a model's functions, and record them
    Tune(tune::Args),
    /// Time schedules that another machine has compiled
    Measure(measure::Args),
    /// Run kernels of a file on a device, and hold their results against the file's
    Kernels(kernels::Args),
    /// Look after records of tuning
    Database(database::Args),
    /// List what this build can compile for
    Targets(targets::Args),
    /// Look at the machine and this build, and give advice
    Doctor(doctor::Args),
    /// Measure how fast this machine is, for the cost model of schedules
    Calibrate(calibrate::Args),
    /// Look at or clean up the compiled functions kept on disk
    Cache(cache::Args),
    /// Let other machines run models here, or see which do
    Rpc(rpc::Args),
}

/// Models nest deeply, and so do some of our recursions; the memory is taken only where used.
const STACK: usize = 256 << 20;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nobody can be told that nobody can be told.
            _ = error.print();
            return ExitCode::from(if error.use_stderr() { Exit::Usage as u8 } else { 0 });
        }
    };
    std::panic::set_hook(Box::new(|panic| {
        output::note(&format!("internal error: {panic}\n"));
    }));
    let worker = std::thread::Builder::new().stack_size(STACK).spawn(move || dispatch(&cli.verb));
    let result = match worker.map(std::thread::JoinHandle::join) {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => Err(Failure::new(
            Exit::Internal,
            "this is a bug of tilewright, not of your model: please report it with the lines above, the command and, \
             if you can, the model",
        )),
        Err(error) => Err(Failure::new(Exit::Limit, format!("cannot start a thread: {error}"))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::note(&format!("{ERROR}{}\n", failure.message));
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(verb: &Verb) -> Result<(), Failure> {
    match verb {
        Verb::Compile(args) => compile::run(args),
        Verb::Run(args) => run::run(args),
        Verb::Bench(args) => bench::run(args),
        Verb::Profile(args) => profile::run(args),
        Verb::Inspect(args) => inspect::run(args),
        Verb::Verify(args) => verify::run(args),
        Verb::Tune(args) => tune::run(args),
        Verb::Measure(args) => measure::run(args),
        Verb::Kernels(args) => kernels::run(args),
        Verb::Database(args) => database::run(args),
        Verb::Targets(args) => targets::run(args),
        Verb::Doctor(args) => doctor::run(args),
        Verb::Calibrate(args) => calibrate::run(args),
        Verb::Cache(args) => cache::run(args),
        Verb::Rpc(args) => rpc::run(args),
    }
}
