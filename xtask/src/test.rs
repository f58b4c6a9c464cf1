//! `cargo xtask test`: sets up, then runs every check and test of the project to the end, whatever fails on the
//! way, and closes with one line of counts.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;

use crate::cargo::{self, Cargo, Packages};
use crate::conformance::Backend;
use crate::project::Verdict;
use crate::tally::Tally;
use crate::{boards, build, c_library, conformance, digits, firmware, models, project, setup, sizes, tidy};

/// Packages whose tests run kernels, through the interpreter or compiled, which is too slow without optimisation; and what else depends on
/// the whole compiler, so that it is built once.
const KERNEL_PACKAGES: [&str; 12] = [
    "tilewright-te",
    "tilewright-cranelift",
    "tilewright-llvm",
    "tilewright-cuda",
    "tilewright-opencl",
    "tilewright-target-suite",
    "tilewright-driver",
    "tilewright",
    "tilewright-cli",
    "tilewright-capi-compiler",
    "tilewright-kernel-suite",
    "tilewright-benches",
];

/// The task.
pub(crate) fn run() -> Verdict {
    let mut tally = Tally::default();
    let mut step = |name: &str, outcome: &mut dyn FnMut() -> anyhow::Result<Tally>| {
        println!("\n== {name}");
        let begin = Instant::now();
        let counts = outcome().unwrap_or_else(|error| {
            println!("error: {error:#}");
            Tally::of_check(false)
        });
        let failed = if counts.failed > 0 { format!(", {} failed", counts.failed) } else { String::new() };
        println!("{name}: {:.0} s{failed}", begin.elapsed().as_secs_f64());
        tally.add(counts);
    };

    let mut complete = false;
    step("setup", &mut || {
        complete = setup::run(&setup::Args::default())?;
        Ok(if complete { Tally::of_check(true) } else { Tally::of_missing() })
    });
    let cargo = Cargo::detect();
    step("rustfmt", &mut || check(cargo::plain("fmt").args(["--all", "--check"])));
    step("clippy", &mut || {
        check(cargo.command("clippy", Packages::All).args(["--all-targets", "--", "--deny", "warnings"]))
    });
    step("tidy", &mut || tidy::run().map(Tally::of_check));
    step("tests", &mut || {
        cargo_test(cargo.command("test", Packages::AllBut(&KERNEL_PACKAGES)).arg("--no-fail-fast"))
    });
    step("models", &mut || match complete {
        true => {
            // Mutants are made of the suites' models.
            conformance::ensure_suites()?;
            models::copy_packaged().map(|()| Tally::of_check(true))
        }
        false => Ok(Tally::of_missing()),
    });
    step("tests that run kernels", &mut || {
        let mut command = cargo.command("test", Packages::These(&KERNEL_PACKAGES));
        cargo_test(command.args(["--release", "--no-fail-fast"]))
    });
    step("thread pool in all interleavings", &mut || cargo_test(&mut loom_tests()));
    let mut program = None;
    step("build", &mut || {
        program = Some(build::tilewright(&cargo)?);
        Ok(Tally::of_check(true))
    });
    if let Some(program) = program {
        for codegen in cargo.codegens() {
            step(&format!("example digits, {codegen}"), &mut || {
                digits::check(program.clone(), codegen).map(Tally::of_check)
            });
            step(&format!("ONNX suites, {codegen}"), &mut || {
                if complete {
                    suites(program.clone(), &Backend::of(codegen), 1)
                } else {
                    Ok(Tally::of_missing())
                }
            });
        }
        for codegen in cargo.codegens() {
            step(&format!("boards, {codegen}"), &mut || match boards::missing() {
                None => check_boards(&cargo, &program, codegen, complete),
                Some(missing) => {
                    println!("skipped: {missing}");
                    Ok(Tally { skipped: 1, ..Tally::default() })
                }
            });
        }
        step("firmware", &mut || match firmware::missing() {
            None => firmware::check(&program),
            Some(missing) => {
                println!("skipped: {missing}");
                Ok(Tally { skipped: 1, ..Tally::default() })
            }
        });
        step("C libraries", &mut || c_library::check(&program));
        step("sizes", &mut || sizes::check(&program));
        step("ONNX suites, a tenth of them on an OpenCL device", &mut || match complete {
            true => {
                let device = Some("opencl".to_string());
                suites(program.clone(), &Backend { device, ..Backend::of(cargo.default_codegen()) }, 10)
            }
            false => Ok(Tally::of_missing()),
        });
    }
    println!("\n{tally}");
    Ok(tally.failed == 0)
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
        tally.add(suites(program.to_path_buf(), &backend, if is_default && is_first { 1 } else { 10 })?);
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
