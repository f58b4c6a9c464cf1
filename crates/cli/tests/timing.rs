//! Timings of machines: a file of one's own is part of the target, of the cache's keys and of the manifest.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Run, fail, folder, run, succeed};
use tilewright_driver::Machine;
use tilewright_driver::machine::{Timing, TimingFile};

/// The command in `dir`, with a cache there.
fn tilewright(dir: &Path, args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    let run = run(command.current_dir(dir).args(args).env("TILEWRIGHT_CACHE_DIR", dir.join("cache")));
    assert_eq!(run.code, Some(0), "tilewright {args:?}: {}", run.err);
    run
}

/// The target in an artifact's manifest, and how many of its functions came from the cache.
fn compile(dir: &Path, target: &str) -> (String, u64, u64) {
    let args =
        ["compile", "digits.onnx", "--codegen", "cranelift", "--target", target, "-o", "out.twm", "--json"];
    let report = tilewright(dir, &args).json();
    let described = tilewright(dir, &["inspect", "out.twm", "--json"]).json();
    let number = |key: &str| report[key].as_u64().expect("a number");
    (
        described["target"].as_str().expect("a target").to_string(),
        number("functions"),
        number("cached_functions"),
    )
}

#[test]
fn a_file_of_ones_own_is_part_of_target_cache_key_and_manifest() {
    let dir = folder();
    let dir = dir.path();
    let mut file = TimingFile::committed("zen3").unwrap().clone();
    fs::write(dir.join("same.toml"), file.text().unwrap()).unwrap();
    file.timing.core.fma_latency = 5;
    fs::write(dir.join("mine.toml"), file.text().unwrap()).unwrap();

    let (target, functions, cached) = compile(dir, "x86-64-v3;timing=zen3");
    assert!(target.contains(";timing=zen3;"), "{target}");
    assert_eq!(cached, 0);
    assert_eq!(compile(dir, "x86-64-v3;timing=zen3").2, functions);
    // What it is called is part of it, and so is what it says.
    for (path, digit) in [("same.toml", 4), ("mine.toml", 5)] {
        let (target, functions, cached) = compile(dir, &format!("x86-64-v3;timing={path}"));
        assert!(target.contains(&format!("core.fma_latency={digit}")), "{target}");
        assert_eq!(cached, 0, "{path}");
        assert_eq!(compile(dir, &format!("x86-64-v3;timing={path}")).2, functions);
        // The manifest has all that it takes to compile the same again, without the file.
        let (machine, _) = target.rsplit_once('@').expect("a code generator");
        fs::remove_file(dir.join(path)).unwrap();
        assert_eq!(compile(dir, machine), (target.clone(), functions, functions));
    }
}

#[test]
fn bad_files_are_usage_errors() {
    let dir = folder();
    let dir = dir.path();
    let good = TimingFile::committed("zen3").unwrap().text().unwrap();
    fs::write(dir.join("range.toml"), good.replace("cores = 16", "cores = 0")).unwrap();
    fs::write(dir.join("unknown.toml"), format!("{good}\n[timing.l4]\nways = 1\n")).unwrap();
    let check = |target: &str, parts: &[&str]| {
        fail(dir, &["compile", "digits.onnx", "--target", target, "-o", "out.twm"], 2, parts);
    };
    check("cpu;timing=range.toml", &["range.toml", "cores is 0, and must be from 1 to 65536"]);
    check("cpu;timing=unknown.toml", &["unknown.toml", "unknown field `l4`"]);
    check("cpu;timing=none.toml", &["none.toml", "No such file", "zen3"]);
}

#[test]
fn what_is_measured_serves_as_a_target() {
    let dir = folder();
    let dir = dir.path();
    succeed(dir, &["calibrate", "--passes", "1", "--fit-time", "0", "-o", "measured.toml"]);
    let timing = Timing::read(&dir.join("measured.toml")).unwrap();
    assert_ne!(timing.numbers, Machine::host().timing.numbers);
    let (target, ..) = compile(dir, "cpu;timing=measured.toml");
    assert!(target.contains(&timing.inline()), "{target}");
}

/// What was recorded is fitted on as it is: nothing that says otherwise is passed over.
#[test]
fn records_leave_no_choice_of_functions() {
    let dir = folder();
    for [option, value] in [["--fit-time", "1"], ["--seed", "2"], ["--record", "other.jsonl"]] {
        fail(
            dir.path(),
            &["calibrate", "--recorded", "pairs.jsonl", option, value],
            2,
            &["--recorded", option],
        );
    }
    let functions = ["calibrate", "--recorded", "pairs.jsonl", "--functions", "1", "1"];
    fail(dir.path(), &functions, 2, &["--recorded", "--functions"]);
}
