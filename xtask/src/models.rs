//! `cargo xtask models`: the ten benchmark models, made from their skeletons with seeded weights.
//!
//! The skeletons do not lie in the repository but in a folder beside it; without them the task says so.

use anyhow::bail;

use crate::{Verdict, project};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Models to make; all if none is named
    names: Vec<String>,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    let script = project::path("../shared/models/materialize.py");
    if !script.exists() {
        bail!("{} is not there: the benchmark models cannot be made on this machine", script.display());
    }
    let python = project::venv_python();
    if !python.exists() {
        bail!("{} is not there; `cargo xtask setup` makes it", python.display());
    }
    let out = project::target_dir().join("models");
    project::run(project::command(python).arg(script).arg(&out).args(&args.names))?;
    Ok(true)
}
