//! `cargo xtask mutants`: models of the ONNX suites with one field changed, compiled and run.
//!
//! The test program `mutations` of `crates/driver` makes them and tries them, in processes that are started anew where one dies.
//! `cargo xtask test` tries the first few; this task as many as one likes.

use crate::cargo::{Cargo, Packages};
use crate::project::Verdict;
use crate::{conformance, project};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many mutants
    #[arg(long, default_value = "20000")]
    count: u64,
    /// Other numbers give other mutants
    #[arg(long, default_value = "1")]
    seed: u64,
}

/// The task: prints counts by outcome, and every panic, abort and hang.
pub(crate) fn run(args: &Args) -> Verdict {
    let suites = conformance::ensure_suites()?;
    let mut command = Cargo::detect().command("test", Packages::These(&["tilewright-driver"]));
    command.args(["--release", "--test", "mutations", "--", "--suites"]).arg(suites);
    command.args([args.count.to_string(), args.seed.to_string()]);
    println!("{}", project::describe(&command));
    Ok(command.status()?.success())
}
