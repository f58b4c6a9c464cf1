//! `cargo xtask exported`: models that `tilewright compile --emit onnx` has written, by `onnx.checker` and in ONNX Runtime.
//!
//! Those that `cargo xtask models` has made, of all its sets, unless others are named.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cargo::Cargo;
use crate::project::Verdict;
use crate::{build, project};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Models, as files; those in target/models and target/models/wide if none is named
    models: Vec<PathBuf>,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    let python = project::venv_python();
    if !python.exists() {
        bail!("{} is not there; `cargo xtask setup` makes it", python.display());
    }
    let mut models = args.models.clone();
    if models.is_empty() {
        let folder = project::target_dir().join("models");
        models.extend(models_in(&folder)?);
        models.extend(models_in(&folder.join("wide"))?);
    }
    if models.is_empty() {
        bail!("no models in target/models; `cargo xtask models` puts them there");
    }
    let program = build::tilewright(&Cargo::detect())?;
    let mut check = project::command(&python);
    check.arg(project::path("tools/exported.py")).arg(program).args(&models);
    project::run(&mut check)?;
    Ok(true)
}

/// The ONNX files of a folder, in order; none where it is not there.
fn models_in(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    let mut models: Vec<PathBuf> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "onnx")).collect();
    models.sort();
    Ok(models)
}
