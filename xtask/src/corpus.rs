//! `cargo xtask corpus`: measures the records of tuning that come with the compiler.
//!
//! The networks of `tools/corpus.py` are tuned on this machine, and the fastest schedules are added to
//! `crates/tune/data`. What is there for other families of machines stays. Records of schedules that the rules no longer
//! start from are of no use, so this is for after a change of rules.

use anyhow::{Context, bail};

use crate::cargo::Cargo;
use crate::project::Verdict;
use crate::{build, project};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds to measure each network; what earlier runs have measured counts
    #[arg(long, default_value = "180")]
    time: u64,
    /// Forget what was recorded for any machine
    #[arg(long)]
    afresh: bool,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    let python = project::venv_python();
    if !python.exists() {
        bail!("{} is not there; `cargo xtask setup` makes it", python.display());
    }
    let program = build::tilewright(&Cargo::detect())?;
    let folder = project::target_dir().join("corpus");
    project::run(project::command(&python).arg(project::path("tools/corpus.py")).arg(&folder))?;
    let mut models = Vec::new();
    for file in std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = file?.path();
        models.extend(path.extension().is_some_and(|extension| extension == "onnx").then_some(path));
    }
    models.sort();
    let shipped = project::path("crates/tune/data/x86-64.jsonl");
    let database = folder.join("tuning.jsonl");
    let tilewright = |verb: &[&str]| {
        let mut command = project::command(&program);
        command.args(verb).arg("--database").arg(&database);
        command
    };
    if !args.afresh {
        project::run(tilewright(&["database", "merge"]).arg(&shipped))?;
    }
    // One after the other: together, the networks with the most work would take all of the time.
    for model in &models {
        project::run(tilewright(&["tune"]).args(["--time", &args.time.to_string()]).arg(model))?;
    }
    project::run(tilewright(&["database", "export"]).arg("--output").arg(&shipped))?;
    Ok(true)
}
