//! `cargo xtask test`: sets up, then runs every check and test of the project to the end, whatever fails on the
//! way, and closes with one line of counts.

use std::cell::OnceCell;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::cargo::{self, Cargo, KERNEL_PACKAGES, Packages};
use crate::conformance::Backend;
use crate::project::Verdict;
use crate::tally::Tally;
use crate::{boards, build, c_library, conformance, digits, firmware, models, project, setup, sizes, tidy};

/// Arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the step of this name, as the output heads it: `boards, llvm`
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
}

/// The task.
pub(crate) fn run(args: &Args) -> Verdict {
    // Asked for now: building the tests may put another file in its place.
    let itself = std::env::current_exe()?;
    println!("\n== setup");
    let begin = Instant::now();
    let complete = setup::run(&setup::Args::default())?;
    let setup_took = begin.elapsed();
    let cargo = Cargo::detect();
    let (first, beside) = (Step::in_turn(&cargo), Step::beside(&cargo));
    let mut run = Run { itself, complete, cargo, program: OnceCell::new(), tally: Tally::default() };
    match &args.only {
        Some(only) => {
            let steps: Vec<&Step> = first.iter().chain(&beside).collect();
            let step = steps.iter().find(|step| step.to_string() == *only);
            let names: Vec<String> = steps.iter().map(|step| format!("`{step}`")).collect();
            run.step(step.with_context(|| format!("no step is `{only}`; there are {}", names.join(", ")))?);
        }
        None => {
            let counts = if complete { Tally::of_check(true) } else { Tally::of_missing() };
            run.end("setup", setup_took, counts);
            first.iter().for_each(|step| run.step(step));
            run.beside(&beside);
        }
    }
    println!("\n{}", run.tally);
    Ok(run.tally.failed == 0)
}

/// A step of the task.
#[derive(Clone, Copy)]
enum Step {
    Rustfmt,
    Clippy,
    Tidy,
    Tests,
    Models,
    KernelTests,
    ThreadPool,
    Build,
    /// The example, by a code generator.
    Digits(&'static str),
    /// The ONNX suites, by a code generator.
    Suites(&'static str),
    /// Boards of a kind, by a code generator.
    Boards(&'static str, &'static boards::Kind),
    Servers,
    CLibraries,
    Firmware,
    OpenCl,
    Sizes,
}

impl Step {
    /// The steps that run one after the other.
    fn in_turn(cargo: &Cargo) -> Vec<Step> {
        use Step::{Build, Clippy, KernelTests, Models, Rustfmt, Tests, Tidy};
        let first = [Rustfmt, Clippy, Tidy, Tests, Models, KernelTests, Build];
        let by_codegen = cargo.codegens().iter().flat_map(|name| [Step::Digits(name), Step::Suites(name)]);
        first.into_iter().chain(by_codegen).collect()
    }

    /// The steps after them, which keep one processor busy (emulators, and builds that optimise all of a program at once) or wait: the
    /// longest first, but sizes after those that make what they are of.
    fn beside(cargo: &Cargo) -> Vec<Step> {
        let (by_default, by_others): (Vec<_>, Vec<_>) = boards::kinds_by(cargo.codegens())
            .into_iter()
            .partition(|(codegen, _)| *codegen == cargo.default_codegen());
        let boards = |kinds: Vec<_>| kinds.into_iter().map(|(codegen, kind)| Step::Boards(codegen, kind));
        let long = [Step::Firmware, Step::OpenCl, Step::CLibraries];
        let last = [Step::Sizes, Step::Servers, Step::ThreadPool];
        boards(by_default).chain(long).chain(boards(by_others)).chain(last).collect()
    }
}

/// What heads a step in the output.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Rustfmt => f.write_str("rustfmt"),
            Step::Clippy => f.write_str("clippy"),
            Step::Tidy => f.write_str("tidy"),
            Step::Tests => f.write_str("tests"),
            Step::Models => f.write_str("models"),
            Step::KernelTests => f.write_str("tests that run kernels"),
            Step::ThreadPool => f.write_str("thread pool in all interleavings"),
            Step::Build => f.write_str("build"),
            Step::Digits(codegen) => write!(f, "example digits, {codegen}"),
            Step::Suites(codegen) => write!(f, "ONNX suites, {codegen}"),
            Step::Boards(codegen, kind) => write!(f, "boards, {codegen}, {}", kind.name),
            Step::Servers => f.write_str("tuning on servers"),
            Step::CLibraries => f.write_str("C libraries"),
            Step::Firmware => f.write_str("firmware"),
            Step::OpenCl => f.write_str("ONNX suites, a tenth of them on an OpenCL device"),
            Step::Sizes => f.write_str("sizes"),
        }
    }
}

/// A run of the task.
struct Run {
    /// This program.
    itself: PathBuf,
    /// Whether all that `setup` installs is here.
    complete: bool,
    cargo: Cargo,
    /// The compiler's command line, built when it is first needed; nothing where it could not be.
    program: OnceCell<Option<PathBuf>>,
    tally: Tally,
}

impl Run {
    /// Runs a step.
    fn step(&mut self, step: &Step) {
        println!("\n== {step}");
        let begin = Instant::now();
        let counts = self.outcome(step).unwrap_or_else(|error| {
            println!("error: {error:#}");
            Tally::of_check(false)
        });
        self.end(&step.to_string(), begin.elapsed(), counts);
    }

    fn end(&mut self, name: &str, took: Duration, counts: Tally) {
        let failed = if counts.failed > 0 { format!(", {} failed", counts.failed) } else { String::new() };
        println!("{name}: {:.0} s{failed}", took.as_secs_f64());
        self.tally.add(counts);
    }

    /// What a step counts.
    fn outcome(&self, step: &Step) -> anyhow::Result<Tally> {
        let cargo = &self.cargo;
        match *step {
            Step::Rustfmt => check(cargo::plain("fmt").args(["--all", "--check"])),
            Step::Clippy => {
                let mut clippy = cargo.command("clippy", Packages::All);
                check(clippy.args(["--all-targets", "--", "--deny", "warnings"]))
            }
            Step::Tidy => tidy::run().map(Tally::of_check),
            Step::Tests => {
                let packages = Packages::AllBut(&KERNEL_PACKAGES);
                cargo_test(cargo.command("test", packages).arg("--no-fail-fast"))
            }
            Step::Models => self.if_complete(|| {
                // Mutants are made of the suites' models.
                conformance::ensure_suites()?;
                models::copy_packaged().map(|()| Tally::of_check(true))
            }),
            Step::KernelTests => {
                let mut test = cargo.command("test", Packages::These(&KERNEL_PACKAGES));
                cargo_test(test.args(["--release", "--no-fail-fast"]))
            }
            Step::ThreadPool => cargo_test(&mut loom_tests()),
            Step::Build => self.program().map(|_| Tally::of_check(true)),
            Step::Digits(codegen) => {
                digits::check(self.program()?.to_path_buf(), codegen).map(Tally::of_check)
            }
            Step::Suites(codegen) => {
                self.if_complete(|| suites(self.program()?.to_path_buf(), &Backend::of(codegen), 1))
            }
            Step::Boards(codegen, kind) => match kind.missing() {
                None => check_boards(cargo, self.program()?, codegen, kind, self.complete),
                Some(missing) => Ok(skipped(&missing)),
            },
            Step::Servers => match boards::missing() {
                None => boards::check_servers(self.program()?),
                Some(missing) => Ok(skipped(&missing)),
            },
            Step::CLibraries => c_library::check(self.program()?),
            Step::Firmware => match firmware::missing() {
                None => firmware::check(self.program()?),
                Some(missing) => Ok(skipped(&missing)),
            },
            Step::OpenCl => self.if_complete(|| {
                let device = Some("opencl".to_string());
                let backend = Backend { device, ..Backend::of(cargo.default_codegen()) };
                suites(self.program()?.to_path_buf(), &backend, 10)
            }),
            Step::Sizes => sizes::check(self.program()?),
        }
    }

    /// What a step counts that needs all that `setup` installs.
    fn if_complete(&self, outcome: impl FnOnce() -> anyhow::Result<Tally>) -> anyhow::Result<Tally> {
        if self.complete { outcome() } else { Ok(Tally::of_missing()) }
    }

    fn program(&self) -> anyhow::Result<&Path> {
        let build = || build::tilewright(&self.cargo).inspect_err(|error| println!("error: {error:#}")).ok();
        self.program.get_or_init(build).as_deref().context("the program is not built")
    }

    /// Runs steps three at a time, which keeps two processors busy: each is this task again, for that step alone.
    fn beside(&mut self, steps: &[Step]) {
        // Which more than one of the steps would make.
        boards::make_models();
        let next = AtomicUsize::new(0);
        let itself = self.itself.as_path();
        let work = || {
            let mut done = Vec::new();
            while let Some(step) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
                let begin = Instant::now();
                let name = step.to_string();
                let counts = alone(itself, &name);
                done.push((name, begin.elapsed(), counts));
            }
            done
        };
        let done = std::thread::scope(|scope| {
            let beside = [scope.spawn(work), scope.spawn(work)];
            let own = work();
            let beside = beside.into_iter().map(|thread| thread.join().expect("the thread only counts"));
            beside.chain([own]).collect::<Vec<_>>()
        });
        for (name, took, counts) in done.into_iter().flatten() {
            self.end(&name, took, counts);
        }
    }
}

fn skipped(missing: &str) -> Tally {
    println!("skipped: {missing}");
    Tally { skipped: 1, ..Tally::default() }
}

/// Runs one step by this task again, which is `program`'s; its lines are headed by its name.
fn alone(program: &Path, name: &str) -> Tally {
    let run = || -> anyhow::Result<Tally> {
        let mut command = project::command(program);
        command.args(["test", "--only", name]).stdout(Stdio::piped());
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", project::describe(&command)))?;
        let mut last = String::new();
        for line in BufReader::new(child.stdout.take().expect("piped above")).lines() {
            let line = line?;
            println!("{name} | {line}");
            last = line;
        }
        child.wait()?;
        last.parse().with_context(|| format!("it ended with {last:?}"))
    };
    run().unwrap_or_else(|error| {
        println!("{name}: {error:#}");
        Tally::of_check(false)
    })
}

/// What boards of a kind must show, and on one of each instruction set cases of the ONNX suites, where these are here.
fn check_boards(
    cargo: &Cargo,
    program: &Path,
    codegen: &str,
    kind: &boards::Kind,
    has_suites: bool,
) -> anyhow::Result<Tally> {
    let mut tally = boards::check(cargo, program, codegen, kind)?;
    if !has_suites {
        tally.add(Tally::of_missing());
        return Ok(tally);
    }
    for machine in boards::with_models(codegen, kind) {
        // For the time that it takes: all run on x86-64 by both generators.
        let (is_default, is_first) = (codegen == cargo.default_codegen(), machine == "aarch64");
        if !is_default && !is_first {
            continue;
        }
        let board = Some(boards::board(machine)?);
        let backend = Backend { board, ..Backend::of(codegen) };
        let every = if is_default && is_first { 4 } else { 10 };
        tally.add(suites(program.to_path_buf(), &backend, every)?);
    }
    Ok(tally)
}

/// The tests of the thread pool under loom, which is built with another flag and so in a folder of its own.
fn loom_tests() -> Command {
    let mut command = cargo::plain("test");
    command.args(["--package", "tilewright-runtime", "--test", "loom", "--release", "--no-fail-fast"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", project::path("target/loom"));
    command
}

/// A command that is itself one check.
fn check(command: &mut Command) -> anyhow::Result<Tally> {
    let status = command.status().with_context(|| format!("cannot start {}", project::describe(command)))?;
    Ok(Tally::of_check(status.success()))
}

/// Every case of the suites is a test; one that we say is unsupported is skipped, unless it passed before.
fn suites(program: PathBuf, backend: &Backend, every: u32) -> anyhow::Result<Tally> {
    let (report, refused) = conformance::check_all(program, backend, every)?;
    let counts = report.counts();
    Ok(Tally {
        passed: counts.pass(),
        failed: counts.faults() + refused,
        skipped: counts.skipped() - refused,
    })
}

/// Runs `cargo test`, shows its output as it comes, and sums up its lines `test result: ...`.
fn cargo_test(command: &mut Command) -> anyhow::Result<Tally> {
    command.stdout(Stdio::piped());
    let mut child =
        command.spawn().with_context(|| format!("cannot start {}", project::describe(command)))?;
    let mut tally = Tally::default();
    for line in BufReader::new(child.stdout.take().expect("piped above")).lines() {
        let line = line?;
        println!("{line}");
        if let Some(counts) = test_result(&line) {
            tally.add(counts);
        }
    }
    let status = child.wait()?;
    // Tests that do not compile, or a test program that dies, leave no line of counts.
    if !status.success() && tally.failed == 0 {
        tally.failed = 1;
    }
    Ok(tally)
}

/// The counts of a line such as `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; ...`.
fn test_result(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |label: &str| {
        let item = counts.split(';').map(str::trim).find(|item| item.ends_with(label))?;
        item.split(' ').next()?.parse().ok()
    };
    Some(Tally { passed: count("passed")?, failed: count("failed")?, skipped: count("ignored")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_from_the_lines_of_cargo_test() {
        let line = "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s";
        assert_eq!(test_result(line), Some(Tally { passed: 5, failed: 2, skipped: 1 }));
        assert_eq!(test_result("running 5 tests"), None);
        assert_eq!(test_result("test result: gibberish"), None);
    }

    #[test]
    fn a_failure_without_counts_is_one_failure() {
        let tally = cargo_test(project::command("sh").args(["-c", "exit 101"])).unwrap();
        assert_eq!(tally, Tally { passed: 0, failed: 1, skipped: 0 });
        let script = "echo 'test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured'; exit 101";
        let tally = cargo_test(project::command("sh").args(["-c", script])).unwrap();
        assert_eq!(tally, Tally { passed: 1, failed: 2, skipped: 0 });
    }
}
