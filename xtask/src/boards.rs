//! Models compiled for boards and run here, under qemu, by the program that [`cross`](crate::cross) builds.

mod models;
mod servers;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::c_library::{emitted, inside, on_boards};
use crate::cargo::{Cargo, KERNEL_PACKAGES, Packages};
use crate::conformance::Board;
use crate::cross::Program;
use crate::project::Verdict;
use crate::tally::Tally;
use crate::{build, cross, digits, project};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Code generator, if not the build's default
    #[arg(long)]
    codegen: Option<String>,
    /// Only this machine
    #[arg(long)]
    machine: Option<String>,
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
    let is_chosen = |machine: &Machine| args.machine.as_deref().is_none_or(|name| name == machine.name);
    let mut tally = check_some(&cargo, &program, codegen, is_chosen)?;
    let has_servers = args.machine.as_deref().is_none_or(|name| name == with_tools().name);
    if has_servers && codegen == cargo.default_codegen() {
        tally.add(check_servers(&program)?);
    }
    println!("{tally}");
    Ok(tally.failed == 0)
}

/// A kind of boards: what their programs are built for, and what runs these here.
pub(crate) struct Kind {
    /// An instruction set.
    pub(crate) name: &'static str,
    /// With musl a program needs no libraries.
    target: &'static str,
    /// The same in the words of zig's compiler of C. The C library is that of programs in Rust, since these are linked for the same processor and
    /// without names, too: zig compiles it for each.
    zig: &'static [&'static str],
    emulator: &'static str,
}

const AARCH64: Kind = Kind {
    name: "aarch64",
    target: "aarch64-unknown-linux-musl",
    zig: &["-target", "aarch64-linux-musl", "-s"],
    emulator: cross::EMULATORS[0],
};
const ARMV7: Kind = Kind {
    name: "armv7",
    target: "armv7-unknown-linux-musleabihf",
    zig: &["-target", "arm-linux-musleabihf", "-mcpu=generic+v7a+vfp3-d32+thumb2-neon", "-s"],
    emulator: cross::EMULATORS[1],
};
const RISCV64: Kind = Kind {
    name: "riscv64",
    target: "riscv64gc-unknown-linux-musl",
    zig: &["-target", "riscv64-linux-musl", "-mcpu=generic_rv64+m+a+f+d+c", "-s"],
    emulator: cross::EMULATORS[2],
};

/// A machine that models are compiled for.
struct Machine {
    name: &'static str,
    kind: &'static Kind,
    /// The cores that qemu plays: the first where a check takes one.
    cores: &'static [&'static str],
    /// Whether the code generators besides LLVM have code for it.
    by_all: bool,
    /// Whether the suite of code generators runs on it: not where the table has another machine of the same instructions. The description of a
    /// core gives models other schedules, and the suite's kernels the same code (`targets/suite/tests/objects.rs`).
    has_suite: bool,
    /// Whether what one machine is enough for is checked on it: the C library, and tuning on servers.
    has_tools: bool,
    /// A machine here that is described like it, with as many registers of as many bits and the same timing. Real models run on machines
    /// that have one.
    alike: Option<&'static str>,
}

/// In the order in which they are checked.
const MACHINES: &[Machine] = &[
    Machine {
        has_tools: true,
        alike: Some("x86-64-v3;timing=aarch64;vector=128;registers=32"),
        ..arm("aarch64", &["cortex-a53", "max"])
    },
    Machine { has_suite: false, ..arm("cortex-a53", &["cortex-a53"]) },
    Machine { has_suite: false, ..arm("cortex-a72", &["cortex-a72"]) },
    arm("cortex-a76", &["cortex-a76"]),
    Machine { has_suite: false, ..arm("neoverse-n1", &["neoverse-n1"]) },
    Machine {
        alike: Some("x86-64-v3;timing=cortex-a7;vector=32;registers=32"),
        ..arm32("cortex-a7", &["cortex-a7"])
    },
    arm32("cortex-a15", &["cortex-a15"]),
    Machine {
        name: "riscv64",
        kind: &RISCV64,
        cores: &["rv64"],
        by_all: true,
        has_suite: true,
        has_tools: false,
        alike: Some("x86-64-v3;timing=riscv64;vector=32;registers=32"),
    },
    Machine {
        name: "riscv64+v",
        kind: &RISCV64,
        cores: &["rv64,v=true,vlen=128,vext_spec=v1.0"],
        by_all: false,
        has_suite: true,
        has_tools: false,
        alike: Some("x86-64-v3;timing=riscv64;vector=128;registers=32"),
    },
];

const fn arm(name: &'static str, cores: &'static [&'static str]) -> Machine {
    Machine { name, kind: &AARCH64, cores, by_all: true, has_suite: true, has_tools: false, alike: None }
}

const fn arm32(name: &'static str, cores: &'static [&'static str]) -> Machine {
    Machine { name, kind: &ARMV7, cores, by_all: false, has_suite: true, has_tools: false, alike: None }
}

impl Kind {
    /// Why nothing can be checked on such boards here; nothing where it can.
    pub(crate) fn missing(&self) -> Option<String> {
        if !project::have(self.emulator) {
            return Some(format!("no {}: run `cargo xtask setup --boards`", self.emulator));
        }
        cross::missing(self.target)
    }
}

impl Machine {
    /// The words that run a program for boards on a core.
    fn runner(&self, core: &str, program: &Program) -> anyhow::Result<Vec<OsString>> {
        let program = cross::build(self.kind.target, program)?;
        Ok(vec![self.kind.emulator.into(), "-cpu".into(), core.into(), program.into()])
    }

    fn is(&self, kind: &Kind) -> bool {
        self.kind.name == kind.name
    }

    fn has_code_by(&self, codegen: &str) -> bool {
        self.by_all || codegen == "llvm"
    }
}

/// Why nothing can be checked here; nothing where it can.
pub(crate) fn missing() -> Option<String> {
    MACHINES.iter().find_map(|machine| machine.kind.missing())
}

/// The machine for what is checked on one.
fn with_tools() -> &'static Machine {
    MACHINES.iter().find(|machine| machine.has_tools).expect("the table has one")
}

/// What plays the part of a machine.
pub(crate) fn board(machine: &str) -> anyhow::Result<Board> {
    let found = MACHINES.iter().find(|found| found.name == machine);
    let known = || MACHINES.iter().map(|machine| machine.name).collect::<Vec<_>>().join(", ");
    let found = found.with_context(|| format!("no board {machine}: there are {}", known()))?;
    if let Some(missing) = found.kind.missing() {
        bail!("{missing}");
    }
    let core = found.cores.first().context("a machine without a core")?;
    Ok(Board { machine: machine.to_string(), runner: found.runner(core, &cross::RUN)? })
}

/// Kinds of boards, and the code generators that have code for some of each: what takes longest first.
pub(crate) fn kinds_by(codegens: &[&'static str]) -> Vec<(&'static str, &'static Kind)> {
    let of = |codegen: &'static str| {
        let has_code =
            |kind: &&Kind| MACHINES.iter().any(|found| found.is(kind) && found.has_code_by(codegen));
        [&RISCV64, &AARCH64, &ARMV7].into_iter().filter(has_code).map(move |kind| (codegen, kind))
    };
    codegens.iter().flat_map(|codegen| of(codegen)).collect()
}

/// Machines of a kind that real models run on, for the ONNX suites.
pub(crate) fn with_models(codegen: &str, kind: &Kind) -> impl Iterator<Item = &'static str> {
    let machines = MACHINES.iter().filter(move |machine| machine.is(kind) && machine.has_code_by(codegen));
    machines.filter(|machine| machine.alike.is_some()).map(|machine| machine.name)
}

/// What all machines of a kind must show, with one code generator: the example ([`digits::check_on`]) on every core, the suite of code
/// generators on those of other instructions, real models ([`models::check`]) and libraries on one core each. On one machine the C library
/// ([`on_boards::check_on`]).
pub(crate) fn check(cargo: &Cargo, program: &Path, codegen: &str, kind: &Kind) -> anyhow::Result<Tally> {
    check_some(cargo, program, codegen, |machine| machine.is(kind))
}

/// The same of some machines.
fn check_some(
    cargo: &Cargo,
    program: &Path,
    codegen: &str,
    is_chosen: impl Fn(&Machine) -> bool,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for machine in MACHINES.iter().filter(|found| is_chosen(found) && found.has_code_by(codegen)) {
        for core in machine.cores {
            println!("{} by {codegen}, on {core}", machine.name);
            let runner = machine.runner(core, &cross::RUN)?;
            tally.add(Tally::of_check(digits::check_on(program, codegen, machine.name, &runner)?));
        }
        if machine.has_suite {
            tally.add(Tally::of_check(check_suite(cargo, codegen, machine)?));
        }
        if let (Some(alike), Some(core)) = (machine.alike, machine.cores.first()) {
            let runner = machine.runner(core, &cross::RUN)?;
            let real = models::Machine { name: machine.name, alike, runner: &runner };
            tally.add(models::check(program, codegen, &real)?);
            let emulator = vec![machine.kind.emulator.into(), "-cpu".into(), core.into()];
            let compiler = cross::c_compiler(machine.kind.zig);
            let board = emitted::Board { compiler, emulator, runner };
            tally.add(emitted::check_on(program, codegen, machine.name, &board));
            tally.add(inside::check_on(program, codegen, machine.name, machine.kind.target, &board));
            if machine.has_tools && codegen == cargo.default_codegen() {
                tally.add(on_boards::check_on(program, machine.name, machine.kind.target, &board)?);
            }
        }
    }
    Ok(tally)
}

/// What tuning on servers must show, on one machine: which code they measure says nothing of the servers.
pub(crate) fn check_servers(program: &Path) -> anyhow::Result<Tally> {
    let machine = with_tools();
    let server = cross::build(machine.kind.target, &cross::RUN)?;
    servers::check(program, &server, machine.name)
}

/// Makes the models of the checks, where they can be made.
pub(crate) fn make_models() {
    models::make();
}

/// The suite on all cores of a machine: its cases are compiled once.
fn check_suite(cargo: &Cargo, codegen: &str, machine: &Machine) -> Verdict {
    let mut build = cargo.command("build", Packages::These(&KERNEL_PACKAGES));
    project::run(build.args(["--release", "--example", "boards"]))?;
    let mut suite = project::command(project::target_dir().join("release/examples/boards"));
    suite.args([codegen, machine.name]);
    for core in machine.cores {
        suite.arg("--").args(machine.runner(core, &cross::SUITE_RUNNER)?);
    }
    Ok(suite.status().context("cannot start the suite")?.success())
}
