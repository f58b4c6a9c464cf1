//! `cargo xtask conformance`: the ONNX backend suites, run through the command-line program as a user runs it.
//!
//! Every case is a process of its own, so that a crash or a hang is the outcome of one case and nothing more.
//! The suites are made from the onnx package by `tools/conformance.py`. The cases that pass are recorded in
//! `xtask/data/conformance-NAME.txt` of each code generator and kind of device; one of them that no longer passes is a regression.

mod baseline;
mod case;
mod compare;
mod report;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, ensure};

use crate::cargo::Cargo;
use crate::project::Verdict;
use crate::{boards, build, project, setup};
use baseline::Baseline;
pub(crate) use case::{Backend, Board};
use case::{Case, Runner, SUITES};
pub(crate) use report::Report;

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Code generator, if not the build's default
    #[arg(long)]
    codegen: Option<String>,
    /// Device to run on, if not the processor alone
    #[arg(long)]
    device: Option<String>,
    /// Machine to compile for, run under qemu: see `cargo xtask setup --boards`
    #[arg(long, conflicts_with_all = ["device", "bless"])]
    board: Option<String>,
    /// Only every N-th case of each suite
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
    /// Another `tilewright` program than the one of this tree
    #[arg(long)]
    program: Option<PathBuf>,
    /// Only this suite
    #[arg(long)]
    suite: Option<String>,
    /// Only cases whose SUITE/CASE contains this
    #[arg(long)]
    filter: Option<String>,
    /// Print the figures as one JSON object on the last line
    #[arg(long)]
    json: bool,
    /// Record the cases that pass as those that must
    #[arg(long)]
    bless: bool,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    let cargo = Cargo::detect();
    let codegen = args.codegen.as_deref().unwrap_or(cargo.default_codegen());
    let board = args.board.as_deref().map(boards::board).transpose()?;
    let backend = Backend { device: args.device.clone(), board, ..Backend::of(codegen) };
    let program = build::tilewright_or(args.program.as_deref(), &cargo)?;
    let report = check(program, &backend, args.every, |name| {
        args.suite.as_ref().is_none_or(|suite| name.split('/').next() == Some(suite))
            && args.filter.as_ref().is_none_or(|part| name.contains(part.as_str()))
    })?;
    print!("{report}");
    let path = Baseline::path(backend.name());
    let mut baseline = Baseline::load(&path)?;
    if args.bless {
        baseline.record(&report);
        baseline.save(&path)?;
        println!("recorded in {}", path.display());
    }
    let regressions = baseline.regressions(&report);
    for (case, outcome) in &regressions {
        println!("regression: {} passed before, now {}", case.name, outcome.label());
    }
    if args.json {
        println!("{}", report.json());
    }
    Ok(regressions.is_empty() && report.is_clean())
}

/// Runs every case and prints the table: the report, and how many cases passed before and are now refused as
/// unsupported (regressions to wrong or crashed are faults of the report already). Every `every`-th case of each suite, if that is not 1.
pub(crate) fn check_all(program: PathBuf, backend: &Backend, every: u32) -> anyhow::Result<(Report, usize)> {
    let report = check(program, backend, every, |_| true)?;
    print!("{report}");
    let regressions = Baseline::load(&Baseline::path(backend.name()))?.regressions(&report);
    for (case, outcome) in &regressions {
        println!("regression: {} passed before, now {}", case.name, outcome.label());
    }
    let refused = regressions.iter().filter(|(_, outcome)| !outcome.is_fault()).count();
    Ok((report, refused))
}

/// Runs the chosen cases, as many at once as there are processors, and keeps a line a case on disk.
fn check(
    program: PathBuf,
    backend: &Backend,
    every: u32,
    chosen: impl Fn(&str) -> bool,
) -> anyhow::Result<Report> {
    let suites = ensure_suites()?;
    let cases = load_cases(&suites, every, chosen)?;
    let outputs = project::target_dir().join("conformance-outputs").join(backend.folder());
    let runner = Runner { program, backend: backend.clone(), outputs };
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(cases.len())));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |n| n.get()) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = runner.run(case);
                    results
                        .lock()
                        .expect("no worker panics while it holds the lock")
                        .push((case.clone(), outcome));
                }
            });
        }
    });
    let report = Report::new(results.into_inner().expect("every worker has ended"));
    let file = project::target_dir().join(format!("conformance-{}.txt", backend.folder()));
    std::fs::write(&file, report.listing())?;
    println!("outcome of every case in {}", file.display());
    Ok(report)
}

/// The folder of the suites, made anew where the script or the onnx version has changed.
pub(crate) fn ensure_suites() -> anyhow::Result<PathBuf> {
    let dir = project::target_dir().join("conformance");
    let script = project::path("tools/conformance.py");
    let made_by = std::fs::read_to_string(&script)?
        + &std::fs::read_to_string(project::path("tools/requirements.txt"))?;
    let stamp = dir.join("made-by");
    if std::fs::read_to_string(&stamp).is_ok_and(|content| content == made_by) {
        return Ok(dir);
    }
    setup::ensure_venv()?;
    println!("Making the ONNX backend suites in {}", dir.display());
    std::fs::create_dir_all(&dir)?;
    project::run(project::command(project::venv_python()).arg(script).arg(&dir))?;
    std::fs::write(stamp, made_by)?;
    Ok(dir)
}

/// Of the chosen cases every `every`-th of each suite: whole networks, which take longest, are in one suite.
fn load_cases(suites: &Path, every: u32, chosen: impl Fn(&str) -> bool) -> anyhow::Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (suite, size) in SUITES {
        let dir = suites.join(suite);
        let entries = std::fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
        let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>()?;
        names.sort();
        // A suite that lost cases would hide their regressions.
        ensure!(names.len() == size, "{} holds {} cases, not {size}; remove it", dir.display(), names.len());
        let names = names.into_iter().map(|name| format!("{suite}/{}", name.to_string_lossy()));
        for name in names.filter(|name| chosen(name)).step_by(every as usize) {
            cases.push(Case::load(suites, name)?);
        }
    }
    Ok(cases)
}
