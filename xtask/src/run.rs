//! `cargo xtask run MODEL ...`: build, then `tilewright run` with the same arguments.

use crate::build;
use crate::project::Verdict;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Arguments of `tilewright run`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<String>,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    build::then_run("run", &args.arguments)
}
