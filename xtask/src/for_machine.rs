//! `cargo xtask cross TARGET`: builds for a machine what runs models there without a compiler: `tilewright-run`, and the runtime that models'
//! libraries have inside.

use anyhow::Context;

use crate::project::Verdict;
use crate::{cross, embedded};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Machine and system in Rust's words, as aarch64-unknown-linux-musl, whose programs need no libraries; this machine if none is named
    target: Option<String>,
    /// The runtime for models' libraries alone
    #[arg(long)]
    embedded: bool,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    let target =
        args.target.clone().or_else(cross::host).context("rustc does not tell its host: name a target")?;
    let object = embedded::build(&target)?;
    println!("{}: {} KiB", object.display(), std::fs::metadata(&object)?.len() / 1024);
    // Without a system there are no programs.
    if args.embedded || target.contains("-none-") {
        return Ok(true);
    }
    let program = cross::build(&target, &cross::RUN)?;
    let bytes = std::fs::metadata(&program)?.len();
    println!("{}: {} KiB", program.display(), bytes / 1024);
    Ok(true)
}
