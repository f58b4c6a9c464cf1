//! `cargo xtask bench`: speed and answers against ONNX Runtime and OpenVINO, interleaved so that a machine
//! whose speed drifts still gives fair ratios.
//!
//! The raw output is kept in `benches/results`, headed by date, machine and commit: a figure without these
//! cannot be compared with anything.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, bail};

use crate::cargo::Cargo;
use crate::{Verdict, build, project};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Models to measure; all of target/models if none is named
    models: Vec<PathBuf>,
    /// Threads of every contestant
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Rounds; each runs every contestant once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds a contestant measures in one round
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Code generator, if not the build's default
    #[arg(long)]
    codegen: Option<String>,
    /// Another `tilewright` program than the one of this tree
    #[arg(long)]
    program: Option<PathBuf>,
    /// Further options of the comparison, such as `--dims batch=1,seq=384`
    #[arg(last = true)]
    options: Vec<String>,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    let script = project::path("../shared/bench/compare.py");
    if !script.exists() {
        bail!("{} is not there: the comparison with peers cannot run on this machine", script.display());
    }
    let python = project::venv_python();
    if project::output_of(project::command(&python).args(["-c", "import onnxruntime, openvino"])).is_none() {
        bail!("the peers are not installed; `cargo xtask setup --peers` installs them");
    }
    let models = if args.models.is_empty() { materialised_models()? } else { absolute(&args.models)? };
    let cargo = Cargo::detect();
    let program = build::tilewright_or(args.program.as_deref(), &cargo)?;
    let codegen = args.codegen.as_deref().unwrap_or(cargo.default_codegen());
    let ours = format!(
        "{} bench {{model}} --inputs {{inputs}} --outputs {{outputs}} --threads {{threads}} --seconds {{seconds}} \
         --codegen {codegen} --json",
        program.display()
    );

    let mut command = project::command(python);
    command.arg(script).arg("--ours").arg(ours);
    command.args(["--threads", &args.threads.to_string(), "--rounds", &args.rounds.to_string()]);
    command
        .args(["--seconds", &args.seconds.to_string()])
        .args(&args.options)
        .args(&models)
        .stdout(Stdio::piped());

    let mut record = heading(codegen);
    print!("{record}");
    let mut child = command.spawn().context("cannot start the comparison")?;
    let lines = BufReader::new(child.stdout.take().expect("piped above")).lines();
    for line in lines {
        let line = line?;
        println!("{line}");
        writeln!(record, "{line}")?;
    }
    let status = child.wait()?;
    keep(&record)?;
    Ok(status.success())
}

fn materialised_models() -> anyhow::Result<Vec<PathBuf>> {
    let dir = project::target_dir().join("models");
    let entries = std::fs::read_dir(&dir)
        .with_context(|| format!("{} is not there; `cargo xtask models` makes it", dir.display()))?;
    let mut models = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    models.retain(|path| path.extension().is_some_and(|extension| extension == "onnx"));
    models.sort();
    Ok(models)
}

/// The comparison runs in the repository's root, the user may stand elsewhere.
fn absolute(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    paths.iter().map(|path| path.canonicalize().with_context(|| path.display().to_string())).collect()
}

fn heading(codegen: &str) -> String {
    let ask = |program: &str, arguments: &[&str]| {
        project::output_of(project::command(program).args(arguments)).unwrap_or_else(|| "unknown".into())
    };
    // Earlier results are no change that could alter this one.
    let changes = ask("git", &["status", "--porcelain", "--", ".", ":!benches/results"]);
    let dirty = if changes.is_empty() { "" } else { ", with local changes" };
    format!(
        "== {}, {}, {}, commit {}{dirty}, {codegen}\n",
        ask("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
        ask("uname", &["-n"]),
        processor().unwrap_or_else(|| ask("uname", &["-m"])),
        ask("git", &["rev-parse", "--short=12", "HEAD"]),
    )
}

/// The processor's name and the number of its cores that this process may use.
fn processor() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1))?;
    let cores = std::thread::available_parallelism().ok()?;
    Some(format!("{name} ({cores} cores)"))
}

fn keep(record: &str) -> anyhow::Result<()> {
    let dir = project::path("benches/results");
    std::fs::create_dir_all(&dir)?;
    let file = dir.join("models.txt");
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    std::fs::write(&file, before + record + "\n")?;
    println!("kept in {}", file.display());
    Ok(())
}
