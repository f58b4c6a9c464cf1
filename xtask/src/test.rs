//! `cargo xtask test`: sets up, then runs every check and test of the project to the end, whatever fails on the
//! way, and closes with one line of counts.

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
    let mut steps = Steps { itself, only: args.only.as_deref(), tally: Tally::default(), n_run: 0 };
    let mut complete = false;
    steps.run("setup", || {
        complete = setup::run(&setup::Args::default())?;
        Ok(if complete { Tally::of_check(true) } else { Tally::of_missing() })
    });
    let complete = complete || (args.only.is_some() && setup::run(&setup::Args::default())?);
    let cargo = Cargo::detect();
    steps.run("rustfmt", || check(cargo::plain("fmt").args(["--all", "--check"])));
    steps.run("clippy", || {
        check(cargo.command("clippy", Packages::All).args(["--all-targets", "--", "--deny", "warnings"]))
    });
    steps.run("tidy", || tidy::run().map(Tally::of_check));
    steps.run("tests", || {
        cargo_test(cargo.command("test", Packages::AllBut(&KERNEL_PACKAGES)).arg("--no-fail-fast"))
    });
    steps.run("models", || match complete {
        true => {
            // Mutants are made of the suites' models.
            conformance::ensure_suites()?;
            models::copy_packaged().map(|()| Tally::of_check(true))
        }
        false => Ok(Tally::of_missing()),
    });
    steps.run("tests that run kernels", || {
        let mut command = cargo.command("test", Packages::These(&KERNEL_PACKAGES));
        cargo_test(command.args(["--release", "--no-fail-fast"]))
    });
    steps.run("thread pool in all interleavings", || cargo_test(&mut loom_tests()));
    let mut program = None;
    steps.run("build", || {
        program = Some(build::tilewright(&cargo)?);
        Ok(Tally::of_check(true))
    });
    if args.only.is_some() && program.is_none() && steps.n_run == 0 {
        program = Some(build::tilewright(&cargo)?);
    }
    if let Some(program) = program {
        with_program(&mut steps, &cargo, &program, complete);
    }
    anyhow::ensure!(steps.n_run > 0, "no step has that name");
    println!("\n{}", steps.tally);
    Ok(steps.tally.failed == 0)
}

/// The steps that the program takes part in.
fn with_program(steps: &mut Steps<'_>, cargo: &Cargo, program: &Path, complete: bool) {
    for codegen in cargo.codegens() {
        steps.run(&format!("example digits, {codegen}"), || {
            digits::check(program.to_path_buf(), codegen).map(Tally::of_check)
        });
        steps.run(&format!("ONNX suites, {codegen}"), || match complete {
            true => suites(program.to_path_buf(), &Backend::of(codegen), 1),
            false => Ok(Tally::of_missing()),
        });
    }
    if steps.only.is_none() {
        steps.run_beside(cargo);
    } else {
        for codegen in cargo.codegens() {
            steps.run(&boards_step(codegen), || match boards::missing() {
                None => check_boards(cargo, program, codegen, complete),
                Some(missing) => Ok(skipped(&missing)),
            });
        }
        steps.run(FIRMWARE, || match firmware::missing() {
            None => firmware::check(program),
            Some(missing) => Ok(skipped(&missing)),
        });
        steps.run(C_LIBRARIES, || c_library::check(program));
        steps.run(OPENCL, || match complete {
            true => {
                let device = Some("opencl".to_string());
                suites(program.to_path_buf(), &Backend { device, ..Backend::of(cargo.default_codegen()) }, 10)
            }
            false => Ok(Tally::of_missing()),
        });
        steps.run(SIZES, || sizes::check(program));
    }
}

const FIRMWARE: &str = "firmware";
const C_LIBRARIES: &str = "C libraries";
const SIZES: &str = "sizes";
const OPENCL: &str = "ONNX suites, a tenth of them on an OpenCL device";

fn boards_step(codegen: &str) -> String {
    format!("boards, {codegen}")
}

fn skipped(missing: &str) -> Tally {
    println!("skipped: {missing}");
    Tally { skipped: 1, ..Tally::default() }
}

/// The steps run so far.
struct Steps<'a> {
    /// This program.
    itself: PathBuf,
    only: Option<&'a str>,
    tally: Tally,
    n_run: usize,
}

impl Steps<'_> {
    /// Runs a step, unless another is wanted.
    fn run(&mut self, name: &str, outcome: impl FnOnce() -> anyhow::Result<Tally>) {
        if self.only.is_some_and(|only| only != name) {
            return;
        }
        println!("\n== {name}");
        let begin = Instant::now();
        let counts = outcome().unwrap_or_else(|error| {
            println!("error: {error:#}");
            Tally::of_check(false)
        });
        self.end(name, begin.elapsed(), counts);
    }

    fn end(&mut self, name: &str, took: Duration, counts: Tally) {
        let failed = if counts.failed > 0 { format!(", {} failed", counts.failed) } else { String::new() };
        println!("{name}: {:.0} s{failed}", took.as_secs_f64());
        self.tally.add(counts);
        self.n_run += 1;
    }

    /// Runs the steps that mostly keep one processor busy (emulators, and builds that optimise all of a program at once), two at a time:
    /// each is this task again, for that step alone.
    fn run_beside(&mut self, cargo: &Cargo) {
        // The longest first; sizes last, which are of builds that the others have made.
        let boards = cargo.codegens().iter().map(|codegen| boards_step(codegen));
        let others = [C_LIBRARIES, FIRMWARE, OPENCL, SIZES].map(String::from);
        let names: Vec<String> = boards.chain(others).collect();
        // Which more than one of the steps would make.
        boards::make_models();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                let begin = Instant::now();
                let counts = alone(&self.itself, name);
                done.push((name, begin.elapsed(), counts));
            }
            done
        };
        let done = std::thread::scope(|scope| {
            let beside = scope.spawn(work);
            let own = work();
            [beside.join().expect("the thread only counts"), own]
        });
        for (name, took, counts) in done.into_iter().flatten() {
            self.end(name, took, counts);
        }
    }
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

/// What boards must show, and on one of each instruction set cases of the ONNX suites, where these are here.
fn check_boards(cargo: &Cargo, program: &Path, codegen: &str, has_suites: bool) -> anyhow::Result<Tally> {
    let mut tally = boards::check(cargo, program, codegen)?;
    if !has_suites {
        tally.add(Tally::of_missing());
        return Ok(tally);
    }
    for machine in boards::with_models(codegen) {
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
