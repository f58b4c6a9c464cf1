//! `cargo xtask firmware`: builds the firmware of `examples/cortex-m` for each board and runs it here, under qemu.
//!
//! It must read all held-out digits right, and its model must take what `tilewright compile` said of it. There are three of them: in C with the
//! model as a library, of straight code and with a runtime inside, and in Rust with the model as an artifact and the runtime's core.

mod board;
pub(crate) mod core;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::cargo::Cargo;
use crate::project::Verdict;
use crate::tally::Tally;
use crate::{build, cross, embedded, project, sysroot};

pub(crate) use board::EMULATOR;
use board::{BOARDS, Board, play, ticks_a_run};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this core
    #[arg(long)]
    core: Option<String>,
    /// Another `tilewright` program than the one of this tree
    #[arg(long)]
    program: Option<PathBuf>,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    if let Some(missing) = missing() {
        anyhow::bail!("{missing}");
    }
    let program = build::tilewright_or(args.program.as_deref(), &Cargo::detect())?;
    let tally = check_some(&program, args.core.as_deref())?;
    println!("{tally}");
    Ok(tally.failed == 0)
}

/// Why nothing can be checked here; nothing where it can. Cortex-M has code by LLVM alone.
pub(crate) fn missing() -> Option<String> {
    if Cargo::detect().llvm.is_none() {
        return Some("no LLVM in this build, which makes the code for Cortex-M".to_string());
    }
    let tools = [EMULATOR, cross::BARE_LINKER, "llvm-nm-22", "llvm-size-22"];
    let tool = tools.into_iter().find(|tool| !project::have(tool)).map(str::to_string);
    let tool = tool.or_else(|| (!cross::has_c_compiler()).then(|| "zig".to_string()));
    let tool = tool.or_else(|| (!sysroot::has_source()).then(|| "source of Rust's library".to_string()));
    tool.map(|tool| format!("no {tool}: run `cargo xtask setup --boards`"))
}

/// Every board.
pub(crate) fn check(program: &Path) -> anyhow::Result<Tally> {
    check_some(program, None)
}

fn check_some(program: &Path, core: Option<&str>) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let boards = BOARDS.iter().filter(|board| core.is_none_or(|core| core == board.core));
    for board in boards {
        let checks =
            [("C", of_board as Check), ("C with a runtime inside", inside), ("Rust", core::of_board)];
        for (language, check) in checks {
            let outcome = check(program, board);
            if let Err(error) = &outcome {
                println!("{} in {language}: failed: {error:#}", board.core);
            }
            tally.add(Tally::of_check(outcome.is_ok()));
        }
    }
    ensure!(tally.passed + tally.failed > 0, "no such core: there are {}", names());
    Ok(tally)
}

/// Builds one firmware for a board and runs it.
type Check = fn(&Path, &Board) -> anyhow::Result<()>;

fn names() -> String {
    BOARDS.iter().map(|board| board.core).collect::<Vec<_>>().join(", ")
}

/// What the compiler says of the model, in bytes.
struct Said {
    code: u64,
    weights: u64,
    workspace: u64,
}

fn of_board(program: &Path, board: &Board) -> anyhow::Result<()> {
    let folder = project::target_dir().join(format!("firmware/{}", board.core));
    fs::create_dir_all(&folder)?;
    let library = folder.join("libdigits.a");
    let mut compile = project::command(program);
    compile.arg("compile").arg(project::path("examples/digits/digits.onnx"));
    compile.args(["--no-cache", "--dim", "batch=1", "--target", board.core, "--emit", "static"]);
    let said = project::output_of(compile.args(["--name", "digits", "--json", "-o"]).arg(&library));
    let said: serde_json::Value = serde_json::from_str(&said.context("the model does not compile")?)?;
    let bytes = |key: &str| said[key].as_u64().with_context(|| format!("no `{key}`"));
    let said = Said {
        code: bytes("code_bytes")?,
        weights: bytes("weight_bytes")?,
        workspace: bytes("workspace_bytes")?,
    };
    let firmware = folder.join("digits.elf");
    link(board, "digits.c", &library, &firmware)?;
    let ticks = ticks_a_run(&play(board, &firmware)?)?;
    takes_what_was_said(&library, &firmware, &said)?;
    println!(
        "{} ({}) in C: all held-out digits right; model in flash {} bytes, in RAM {}; about {:.0} instructions a run",
        board.core,
        board.name,
        said.code + said.weights,
        said.workspace,
        ticks * board.tick
    );
    Ok(())
}

/// The model with an open batch.
fn inside(program: &Path, board: &Board) -> anyhow::Result<()> {
    // The code of all these cores is Thumb, with floats in registers.
    embedded::build("thumbv7em-none-eabihf")?;
    let folder = project::target_dir().join(format!("firmware/{}-inside", board.core));
    fs::create_dir_all(&folder)?;
    let library = folder.join("libdigits.a");
    let mut compile = project::command(program);
    compile.env("TILEWRIGHT_RUNTIMES", project::target_dir().join("runtimes"));
    compile.arg("compile").arg(project::path("examples/digits/digits.onnx"));
    compile.args(["--no-cache", "--dim", "batch=1..8", "--target", board.core, "--emit", "static"]);
    let said = project::output_of(compile.args(["--name", "digits", "-o"]).arg(&library));
    said.context("the model does not compile")?;
    let firmware = folder.join("batches.elf");
    link(board, "batches.c", &library, &firmware)?;
    let told = play(board, &firmware)?;
    println!("{} ({}) in C with a runtime inside: {}", board.core, board.name, told.trim());
    Ok(())
}

fn link(board: &Board, source: &str, library: &Path, firmware: &Path) -> anyhow::Result<()> {
    let folder = library.parent().context("the library is in a folder")?;
    let sources = project::path("examples/cortex-m/c");
    let mcpu = format!("-mcpu={}", board.zig);
    let words = cross::c_compiler(&["-target", "thumb-freestanding-eabihf", &mcpu]);
    let (first, rest) = words.split_first().context("no compiler")?;
    let mut compile = project::command(first);
    compile.args(rest).args(["-std=c11", "-g", "-ffreestanding"]);
    compile.args(["-fno-builtin", "-nostdlib", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    compile.arg("-I").arg(folder).arg("-I").arg(&sources);
    for (name, file) in [("IMAGES", "input_0.pb"), ("LABELS", "labels.txt")] {
        let path = project::path("examples/digits/held-out").join(file);
        compile.arg(format!("-D{name}=\"{}\"", path.display()));
    }
    compile.arg(sources.join("start.c")).arg(sources.join(source)).arg(library);
    compile
        .args(["-Wl,-e,reset", "-Wl,--gc-sections"])
        .arg(format!("-Wl,-T,{}", sources.join(board.script).display()));
    project::run(compile.arg("-o").arg(firmware))
}

/// Code and weights are the model's sections of flash, and the workspace is as large as the header says.
fn takes_what_was_said(library: &Path, firmware: &Path, said: &Said) -> anyhow::Result<()> {
    let sections = project::output_of(project::command("llvm-size-22").arg("-A").arg(library));
    let sections = sections.context("llvm-size tells nothing")?;
    let section = |name: &str| {
        let line = sections.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
    };
    let found = [section(".text.digits_run"), section(".rodata.digits_run")];
    ensure!(
        found == [Some(said.code), Some(said.weights)],
        "sections of {found:?} bytes are not as was said"
    );
    let symbols = project::output_of(project::command("llvm-nm-22").arg("-S").arg(firmware));
    let symbols = symbols.context("llvm-nm tells nothing")?;
    let workspace = symbols.lines().find(|line| line.ends_with(" workspace"));
    let workspace = workspace.and_then(|line| u64::from_str_radix(line.split(' ').nth(1)?, 16).ok());
    ensure!(workspace == Some(said.workspace), "a workspace of {workspace:?} bytes is not as was said");
    Ok(())
}
