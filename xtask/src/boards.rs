//! Models compiled for boards and run here, under qemu, by the program that [`cross`](crate::cross) builds.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, bail};

use crate::conformance::Board;
use crate::{cross, digits, project};

/// The emulator of 64-bit ARM.
pub(crate) const EMULATOR: &str = "qemu-aarch64-static";

/// The machine that the program is built for: with musl it needs no libraries.
const TARGET: &str = "aarch64-unknown-linux-musl";

/// Machines that models are compiled for, and the cores that qemu plays: the first where a check takes one.
const MACHINES: [(&str, &[&str]); 3] =
    [("aarch64", &["cortex-a53", "max"]), ("cortex-a72", &["cortex-a72"]), ("cortex-a76", &["cortex-a76"])];

/// Why nothing can be checked here; nothing where it can.
pub(crate) fn missing() -> Option<String> {
    if !project::have(EMULATOR) {
        return Some(format!("no {EMULATOR}: run `cargo xtask setup --boards`"));
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
    Ok(Board { machine: machine.to_string(), runner: runner(core, &cross::build(TARGET)?) })
}

/// The words that run a program for boards on a core.
fn runner(core: &str, program: &Path) -> Vec<OsString> {
    vec![EMULATOR.into(), "-cpu".into(), core.into(), program.into()]
}

/// What the example must show on each core, with one code generator: see [`digits::check_on`]. Gives how many checks that were, and how
/// many of them failed.
pub(crate) fn check_digits(program: &Path, codegen: &str) -> anyhow::Result<(usize, usize)> {
    let device_program = cross::build(TARGET)?;
    let (mut all, mut failed) = (0, 0);
    for (machine, cores) in MACHINES {
        for core in cores {
            println!("{machine} by {codegen}, on {core}");
            let holds = digits::check_on(program, codegen, machine, &runner(core, &device_program))?;
            (all, failed) = (all + 1, failed + usize::from(!holds));
        }
    }
    Ok((all, failed))
}
