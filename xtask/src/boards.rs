//! Models compiled for boards and run here, under qemu, by the program that [`cross`](crate::cross) builds.

mod models;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cargo::{Cargo, Packages};
use crate::conformance::Board;
use crate::project::Verdict;
use crate::tally::Tally;
use crate::{build, cross, digits, project};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Code generator, if not the build's default
    #[arg(long)]
    codegen: Option<String>,
    /// Another `tilewright` program than the one of this tree
    #[arg(long)]
    program: Option<PathBuf>,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    if let Some(missing) = missing() {
        bail!("{missing}");
    }
    let cargo = Cargo::detect();
    let codegen = args.codegen.as_deref().unwrap_or(cargo.default_codegen());
    let program = build::tilewright_or(args.program.as_deref(), &cargo)?;
    let mut tally = check_digits(&program, codegen)?;
    tally.add(check_models(&program, codegen)?);
    tally.add(check_suite(&cargo, codegen)?);
    println!("{tally}");
    Ok(tally.failed == 0)
}

/// The machine that the program is built for: with musl it needs no libraries.
const TARGET: &str = "aarch64-unknown-linux-musl";

/// Machines that models are compiled for, and the cores that qemu plays: the first where a check takes one.
const MACHINES: [(&str, &[&str]); 5] = [
    ("aarch64", &["cortex-a53", "max"]),
    ("cortex-a53", &["cortex-a53"]),
    ("cortex-a72", &["cortex-a72"]),
    ("cortex-a76", &["cortex-a76"]),
    ("neoverse-n1", &["neoverse-n1"]),
];

/// Why nothing can be checked here; nothing where it can.
pub(crate) fn missing() -> Option<String> {
    if !project::have(cross::EMULATOR) {
        return Some(format!("no {}: run `cargo xtask setup --boards`", cross::EMULATOR));
    }
    cross::missing(TARGET)
}

/// What plays the part of a machine.
pub(crate) fn board(machine: &str) -> anyhow::Result<Board> {
    if let Some(missing) = missing() {
        bail!("{missing}");
    }
    let known = || MACHINES.map(|(name, _)| name).join(", ");
    let found = MACHINES.iter().find(|(name, _)| *name == machine);
    let core = found.and_then(|(_, cores)| cores.first());
    let core = core.with_context(|| format!("no board {machine}: there are {}", known()))?;
    Ok(Board { machine: machine.to_string(), runner: runner(core, &cross::build(TARGET, &cross::RUN)?) })
}

/// The words that run a program for boards on a core.
fn runner(core: &str, program: &Path) -> Vec<OsString> {
    vec![cross::EMULATOR.into(), "-cpu".into(), core.into(), program.into()]
}

/// What the example must show on each core, with one code generator: see [`digits::check_on`].
pub(crate) fn check_digits(program: &Path, codegen: &str) -> anyhow::Result<Tally> {
    let device_program = cross::build(TARGET, &cross::RUN)?;
    let mut tally = Tally::default();
    for (machine, cores) in MACHINES {
        for core in cores {
            println!("{machine} by {codegen}, on {core}");
            let holds = digits::check_on(program, codegen, machine, &runner(core, &device_program))?;
            tally.add(Tally::of_check(holds));
        }
    }
    Ok(tally)
}

/// What real models must show, with one code generator: see [`models::check`].
pub(crate) fn check_models(program: &Path, codegen: &str) -> anyhow::Result<Tally> {
    let (_, cores) = MACHINES[0];
    models::check(program, codegen, &runner(cores[0], &cross::build(TARGET, &cross::RUN)?))
}

/// The suite of code generators, which is one check on every core.
pub(crate) fn check_suite(cargo: &Cargo, codegen: &str) -> anyhow::Result<Tally> {
    let runner_program = cross::build(TARGET, &cross::SUITE_RUNNER)?;
    let mut tally = Tally::default();
    for (machine, cores) in MACHINES {
        for core in cores {
            let package = Packages::These(&["tilewright-target-suite"]);
            let mut run = cargo.command("run", package);
            run.args(["--release", "--example", "boards", "--", codegen, machine]);
            let status = run.args(runner(core, &runner_program)).status();
            let holds = status.context("cannot start cargo")?.success();
            tally.add(Tally::of_check(holds));
        }
    }
    Ok(tally)
}
