//! The boards that qemu plays, and what a firmware says there.

use std::path::Path;

use anyhow::{Context, ensure};

use crate::project;

/// A board that qemu plays.
pub(super) struct Board {
    /// The core, as `--target` names it.
    pub(super) core: &'static str,
    /// The same with its floats in the words of zig's compiler of C.
    pub(super) zig: &'static str,
    /// qemu's name of it.
    pub(super) name: &'static str,
    /// Instructions for each tick of the core's counter, where an instruction takes a nanosecond (`-icount shift=0`).
    pub(super) tick: f64,
    /// Where a program in C lies: a file of `examples/cortex-m/c`.
    pub(super) script: &'static str,
    /// The core in Rust's words.
    pub(super) rust: &'static str,
}

pub(super) const BOARDS: &[Board] = &[
    Board {
        core: "cortex-m4",
        zig: "cortex_m4+vfp4d16sp",
        name: "mps2-an386",
        tick: 40.0,
        script: "board.ld",
        rust: "thumbv7em-none-eabihf",
    },
    Board {
        core: "cortex-m7",
        zig: "cortex_m7+fp_armv8d16sp",
        name: "mps2-an500",
        tick: 40.0,
        script: "board.ld",
        rust: "thumbv7em-none-eabihf",
    },
    Board {
        core: "cortex-m55",
        zig: "cortex_m55+fp_armv8d16sp",
        name: "mps3-an547",
        tick: 31.25,
        script: "mps3.ld",
        rust: "thumbv8m.main-none-eabihf",
    },
    Board {
        core: "cortex-m55+mve.fp",
        zig: "cortex_m55+fp_armv8d16sp",
        name: "mps3-an547",
        tick: 31.25,
        script: "mps3.ld",
        rust: "thumbv8m.main-none-eabihf",
    },
];

/// What plays a board.
pub(crate) const EMULATOR: &str = "qemu-system-arm";

/// Runs the firmware; gives what it says.
pub(super) fn play(board: &Board, firmware: &Path) -> anyhow::Result<String> {
    let mut play = project::command("timeout");
    play.args(["300", EMULATOR, "-M", board.name, "-nographic", "-monitor", "none", "-serial", "none"]);
    play.args(["-semihosting-config", "enable=on,target=native", "-icount", "shift=0", "-kernel"]);
    let played = play.arg(firmware).output().context("cannot start qemu")?;
    // Semihosting writes where messages go.
    let told =
        String::from_utf8_lossy(&played.stdout).into_owned() + &String::from_utf8_lossy(&played.stderr);
    ensure!(played.status.success(), "the firmware ends with {}: {}", played.status, told.trim());
    Ok(told)
}

/// The ticks of the longest run, of what a firmware says.
pub(super) fn ticks_a_run(told: &str) -> anyhow::Result<f64> {
    let ticks =
        told.lines().find_map(|line| line.strip_suffix(" ticks a run")?.rsplit(' ').next()?.parse().ok());
    ticks.with_context(|| format!("the firmware says {told:?}"))
}
