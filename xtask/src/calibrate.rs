//! `cargo xtask calibrate`: build, then measure how fast this machine is, for the cost model.

use std::path::PathBuf;

use crate::cargo::Cargo;
use crate::project::Verdict;
use crate::{build, project};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File to write, for `--target 'cpu;timing=FILE'`; in crates/machine/data it becomes part of the compiler
    #[arg(short, long, value_name = "FILE", default_value = "target/timing.toml")]
    output: PathBuf,
    /// Arguments of `tilewright calibrate`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    let program = build::tilewright(&Cargo::detect())?;
    let mut command = project::command(&program);
    command.arg("calibrate").arg("--output").arg(project::path(&args.output)).args(&args.arguments);
    project::run(&mut command)?;
    Ok(true)
}
