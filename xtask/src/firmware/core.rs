//! The firmware in Rust: the artifact in flash, run by the runtime's core in one static block of memory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::board::{BOARDS, Board, play, ticks_a_run};
use crate::{cross, project};

/// What the compiler says of the model.
struct Said {
    /// Bytes of memory that the core needs for it.
    memory: u64,
    /// Those of them that are not for tensors.
    heap: u64,
    /// Features of the core that its code uses.
    features: String,
}

/// Builds the firmware for a board and runs it: with what was said, with less memory, and with memory at another address.
pub(super) fn of_board(program: &Path, board: &Board) -> anyhow::Result<()> {
    let folder = project::target_dir().join(format!("firmware/{}", board.core));
    fs::create_dir_all(&folder)?;
    let artifact = folder.join("digits.twm");
    let said = compile(program, board, &artifact)?;
    let firmware = build(board, &artifact, &said, true)?;
    let told = play(board, &firmware)?;
    let number = |after: &str| {
        let word = told.split_once(after).and_then(|(_, rest)| rest.split([' ', ',', '\n']).next());
        word.and_then(|word| word.parse::<u64>().ok()).with_context(|| format!("the firmware says {told:?}"))
    };
    let (used, tensors) = (number("heap ")?, number("tensors ")?);
    let tensors_said = said.memory - said.heap;
    ensure!(tensors == tensors_said, "{tensors} bytes of tensors, and {tensors_said} were said");
    ensure!(used <= said.heap, "{used} bytes of heap, and {} were said", said.heap);
    println!(
        "{} ({}) in Rust: all held-out digits right; memory {} bytes, of its heap of {} at most {used} used; about {:.0} instructions a run",
        board.core,
        board.name,
        said.memory,
        said.heap,
        ticks_a_run(&told)? * board.tick
    );
    refuses(
        board,
        &artifact,
        &Said { memory: said.memory - 1, ..said },
        &format!("needs {} bytes of memory", said.memory),
    )
}

/// With other memory the firmware must end with an error that says what is wrong.
fn refuses(board: &Board, artifact: &Path, said: &Said, message: &str) -> anyhow::Result<()> {
    let firmware = build(board, artifact, said, true)?;
    let error = play(board, &firmware).err().context("less memory than is needed does")?;
    ensure!(error.to_string().contains(message), "less memory gives {error}, not {message:?}");
    Ok(())
}

fn compile(program: &Path, board: &Board, artifact: &Path) -> anyhow::Result<Said> {
    let mut compile = project::command(program);
    compile.arg("compile").arg(project::path("examples/digits/digits.onnx"));
    compile.args(["--no-cache", "--dim", "batch=1", "--target", board.core, "--json", "-o"]);
    let said = project::output_of(compile.arg(artifact)).context("the model does not compile")?;
    let said: serde_json::Value = serde_json::from_str(&said)?;
    let bytes = |key: &str| said[key].as_u64().with_context(|| format!("no `{key}`"));
    let target = said["target"].as_str().context("no `target`")?;
    let features = target.split([';', '@']).next().unwrap_or("").split('+').skip(1);
    Ok(Said {
        memory: bytes("memory_bytes")?,
        heap: bytes("memory_bytes")? - bytes("tensor_bytes")?,
        features: features.collect::<Vec<_>>().join(","),
    })
}

/// Bytes of the firmware for a core beside its model, with or without reports and what these need of the runtime.
pub(crate) fn bytes(program: &Path, core: &str, report: bool) -> anyhow::Result<u64> {
    let board =
        BOARDS.iter().find(|board| board.core == core).with_context(|| format!("no board has a {core}"))?;
    let folder = project::target_dir().join(format!("sizes/{core}"));
    fs::create_dir_all(&folder)?;
    let artifact = folder.join("digits.twm");
    let said = compile(program, board, &artifact)?;
    let firmware = build(board, &artifact, &said, report)?;
    let sections = project::output_of(project::command("llvm-size-22").arg("-A").arg(firmware));
    let sections = sections.context("llvm-size tells nothing")?;
    let rows = sections.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let in_flash = rows.filter(|row| matches!(row[..], [".vectors" | ".text" | ".data", ..]));
    let bytes: Option<Vec<u64>> = in_flash.map(|row| row.get(1)?.parse().ok()).collect();
    Ok(bytes.context("llvm-size tells no numbers")?.into_iter().sum())
}

fn build(board: &Board, artifact: &Path, said: &Said, report: bool) -> anyhow::Result<PathBuf> {
    let mut build = cross::bare("build", board.rust)?;
    build.arg("--quiet").args(["--release", "--manifest-path"]);
    build.arg(project::path("examples/cortex-m/rust/Cargo.toml"));
    if !report {
        build.arg("--no-default-features");
    }
    build.env("MODEL_TWM", artifact).env("MODEL_FEATURES", &said.features);
    build.env("MODEL_MEMORY", said.memory.to_string());
    for (name, file) in [("IMAGES", "input_0.pb"), ("LABELS", "labels.txt")] {
        build.env(name, project::path("examples/digits/held-out").join(file));
    }
    project::run(&mut build)?;
    let built = project::target_dir().join("cross").join(board.rust).join("release/digits-firmware");
    let firmware = artifact.with_extension("rust.elf");
    fs::copy(&built, &firmware).with_context(|| format!("the build left no {}", built.display()))?;
    Ok(firmware)
}
