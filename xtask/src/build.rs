//! `cargo xtask build`: the command-line program, optimised, with every backend this machine has.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cargo::{Cargo, Packages};
use crate::project;
use crate::project::Verdict;

/// The task.
pub(crate) fn run() -> Verdict {
    let program = tilewright(&Cargo::detect())?;
    println!("{}", program.display());
    Ok(true)
}

/// Builds the `tilewright` program if need be and tells where it lies.
pub(crate) fn tilewright(cargo: &Cargo) -> anyhow::Result<PathBuf> {
    project::run(cargo.command("build", Packages::These(&["tilewright-cli"])).args(["--release", "--bins"]))?;
    Ok(project::target_dir().join("release").join(format!("tilewright{}", std::env::consts::EXE_SUFFIX)))
}

/// The program that the user names, or else the one built from this tree.
pub(crate) fn tilewright_or(program: Option<&Path>, cargo: &Cargo) -> anyhow::Result<PathBuf> {
    match program {
        Some(program) => program.canonicalize().with_context(|| program.display().to_string()),
        None => tilewright(cargo),
    }
}

/// Builds, then runs `tilewright VERB ARGUMENTS` in the folder where the user stands, so that paths mean what
/// they mean there.
pub(crate) fn then_run(verb: &str, arguments: &[String]) -> Verdict {
    let program = tilewright(&Cargo::detect())?;
    let status = std::process::Command::new(program).arg(verb).args(arguments).status()?;
    // The program's own exit codes tell users what was wrong; pass them on.
    match status.code() {
        Some(0) => Ok(true),
        Some(code) => std::process::exit(code),
        None => anyhow::bail!("tilewright {verb} was killed: {status}"),
    }
}
