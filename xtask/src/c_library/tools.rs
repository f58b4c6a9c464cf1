//! What checks of C libraries work with: compilers' warnings, ways to find errors of memory, and counting.

use std::path::PathBuf;

use crate::project;
use crate::tally::Tally;

/// Runs a check, unless something is missing, and counts it.
pub(super) fn count(
    tally: &mut Tally,
    name: &str,
    missing: Option<String>,
    run: impl FnOnce() -> anyhow::Result<()>,
) {
    if let Some(missing) = missing {
        println!("{name}: skipped: {missing}");
        tally.skipped += 1;
        return;
    }
    let outcome = run();
    if let Err(error) = &outcome {
        println!("{name}: failed: {error:#}");
    }
    tally.add(Tally::of_check(outcome.is_ok()));
}

/// Standards that headers are clean by, in C and in C++.
pub(super) const C: &[&str] = &["c99", "c11"];
pub(super) const CPP: &[&str] = &["c++11", "c++14", "c++17", "c++20"];

/// Warnings, each an error, in both languages; and those of one.
#[rustfmt::skip]
pub(super) const WARNINGS: &[&str] = &[
    "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wundef", "-Wcast-align", "-Wcast-qual",
    "-Wwrite-strings", "-Wmissing-declarations", "-Werror",
];
pub(super) const C_WARNINGS: &[&str] =
    &["-Wstrict-prototypes", "-Wmissing-prototypes", "-Wold-style-definition"];
pub(super) const CPP_WARNINGS: &[&str] =
    &["-Wold-style-cast", "-Wzero-as-null-pointer-constant", "-Wnon-virtual-dtor"];

/// How programs are built that run here.
pub(super) const HERE: &[&str] = &["-g", "-O1"];

/// Ways to run a program that finds errors of memory.
pub(super) const VALGRIND: &[&str] = &[
    "valgrind",
    "--quiet",
    "--error-exitcode=9",
    // Threads take turns; else one that spins keeps the others from work.
    "--fair-sched=yes",
    "--leak-check=full",
    "--show-leak-kinds=definite,indirect",
    "--errors-for-leak-kinds=definite,indirect",
];
pub(super) const SANITIZERS: &str = "-fsanitize=address,undefined";

/// For programs that run a model again and again: valgrind runs it fifty times slower.
pub(super) const FEW_ROUNDS: &str = "-DROUNDS=2";

/// Why a program is not there; nothing where it is.
pub(super) fn missing(program: &str) -> Option<String> {
    (!project::have(program)).then(|| format!("no {program}"))
}

/// The digits that the example was not trained on.
pub(super) fn held_out() -> PathBuf {
    project::path("examples/digits/held-out/input_0.pb")
}
