//! Tuning: records survive any kill, and compilations use them.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{fail, folder, model, node, save, succeed, value};
use tilewright_driver::tune::{Database, Entry, Finding, Journal};

/// A product of two matrices: one function with a space of some hundred schedules.
fn product(dir: &Path) {
    let inputs = vec![value("a", &["96", "80"]), value("b", &["80", "256"])];
    let nodes = vec![node("MatMul", &["a", "b"], &["c"])];
    save(dir, "product.onnx", &model(17, nodes, inputs, vec![value("c", &["96", "256"])]));
}

fn records(dir: &Path) -> Database {
    Journal::read(&dir.join("t.jsonl")).unwrap().0
}

fn length(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("t.jsonl")).map_or(0, |metadata| metadata.len())
}

/// The measurements in a database, as lines. Those of the best schedules give way to faster ones.
fn measured(dir: &Path) -> BTreeSet<String> {
    let records = records(dir);
    let trials = records.iter().filter(|entry| entry.finding != Finding::Best);
    trials.map(|entry| entry.to_line().unwrap()).collect()
}

#[test]
fn a_search_that_is_killed_again_and_again_loses_nothing() {
    let dir = folder();
    let dir = dir.path();
    product(dir);
    let mut known = BTreeSet::new();
    for n in 0..20u64 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.current_dir(dir).args(["tune", "product.onnx", "--database", "t.jsonl", "--time", "60"]);
        let mut search = command.args(["--seed", &n.to_string()]).stdout(Stdio::null()).spawn().unwrap();
        // Each gets as far as the file, then a while that no other gets.
        let before = length(dir);
        while length(dir) == before && search.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(n * 7919 % 61 * 1000 + n));
        search.kill().unwrap();
        search.wait().unwrap();
        let now = measured(dir);
        assert!(now.is_superset(&known), "kill {n} lost a record");
        known = now;
    }
    assert!(!known.is_empty(), "nothing was measured");
    succeed(dir, &["tune", "product.onnx", "--database", "t.jsonl", "--trials", "5"]);
    assert!(measured(dir).is_superset(&known));
    let stats = succeed(dir, &["database", "stats", "--database", "t.jsonl", "--json"]).json();
    // Each kill cuts at most one line, and nothing known is measured again.
    assert!(stats["damaged"].as_u64() <= Some(20));
    let text = std::fs::read_to_string(dir.join("t.jsonl")).unwrap();
    let is_trial = |entry: &Entry| entry.finding == Finding::Trial;
    let lines = text.lines().filter_map(Entry::parse).filter(is_trial).count();
    assert_eq!(stats["trials"].as_u64(), Some(lines as u64));
}

#[test]
fn a_record_schedules_its_function_and_goes_into_the_bytes() {
    let dir = folder();
    let dir = dir.path();
    product(dir);
    let compile = |name: &str, options: &[&str]| {
        let args = [&["compile", "product.onnx", "-o", name, "--dump-after", "rules"], options].concat();
        let run = succeed(dir, &args);
        (std::fs::read(dir.join(name)).unwrap(), run.err.contains("by a record"))
    };
    let (by_rules, is_recorded) = compile("rules.twm", &["--no-database"]);
    assert!(!is_recorded);
    succeed(dir, &["tune", "product.onnx", "--database", "t.jsonl", "--trials", "3"]);
    // Whatever was fast: some schedule that is not the rules' own is said to be the best.
    let trials = records(dir);
    let mut best = trials.iter().find(|entry| entry.finding == Finding::Trial).unwrap().clone();
    best.finding = Finding::Best;
    best.ratio = 0.5;
    std::fs::remove_file(dir.join("t.jsonl")).unwrap();
    let (unused, is_recorded) = compile("unused.twm", &["--database", "t.jsonl"]);
    assert!(unused == by_rules && !is_recorded, "no records change nothing");
    Journal::append_to(&dir.join("t.jsonl")).unwrap().append(&best).unwrap();
    let (recorded, is_recorded) = compile("recorded.twm", &["--database", "t.jsonl"]);
    assert!(is_recorded && recorded != by_rules);
    assert!(compile("again.twm", &["--database", "t.jsonl"]).0 == recorded, "the same bytes again");
    assert!(compile("without.twm", &["--no-database"]).0 == by_rules);
    succeed(dir, &["verify", "product.onnx", "--database", "t.jsonl"]);

    // A record made beside another schedule of the rules says nothing.
    std::fs::remove_file(dir.join("t.jsonl")).unwrap();
    best.baseline = "0000000000000000".to_string();
    Journal::append_to(&dir.join("t.jsonl")).unwrap().append(&best).unwrap();
    let (stale, is_recorded) = compile("stale.twm", &["--database", "t.jsonl"]);
    assert!(stale == by_rules && !is_recorded);
}

#[test]
fn records_that_cannot_be_read_are_a_failure_only_where_they_are_named() {
    let dir = folder();
    let dir = dir.path();
    product(dir);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    // A folder is no file of records.
    command.current_dir(dir).args(["compile", "product.onnx"]).env("TILEWRIGHT_DATABASE", dir);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("without your records"));
    fail(dir, &["compile", "product.onnx", "-o", "b.twm", "--database", "."], 6, &["cannot read ."]);
    fail(dir, &["tune", "product.onnx", "--database", "."], 6, &["cannot read ."]);
}

#[test]
fn databases_merge_prune_and_export() {
    let dir = folder();
    let dir = dir.path();
    product(dir);
    let verb = |args: &[&str]| succeed(dir, &[&["database"], args, &["--json"]].concat()).json();
    succeed(dir, &["tune", "product.onnx", "--database", "t.jsonl", "--trials", "4"]);
    let trials = records(dir);
    let mut best = trials.iter().find(|entry| entry.finding == Finding::Trial).unwrap().clone();
    best.finding = Finding::Best;
    Journal::append_to(&dir.join("t.jsonl")).unwrap().append(&best).unwrap();
    let n = records(dir).iter().count();
    assert_eq!(verb(&["merge", "t.jsonl", "--database", "all.jsonl"])["added"], n);
    assert_eq!(verb(&["merge", "t.jsonl", "--database", "all.jsonl"])["added"], 0);
    succeed(dir, &["database", "export", "--database", "all.jsonl", "-o", "best.jsonl"]);
    let pruned = verb(&["prune", "--database", "all.jsonl"]);
    assert_eq!((pruned["kept"].as_u64(), pruned["dropped"].as_u64()), (Some(1), Some(n as u64 - 1)));
    let text = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    assert_eq!(text("best.jsonl"), text("all.jsonl"));
    fail(dir, &["database", "stats", "--database", "none.jsonl"], 6, &["none.jsonl"]);
    fail(dir, &["database", "merge", "none.jsonl", "--database", "new.jsonl"], 6, &["none.jsonl"]);
}

#[test]
fn max_autotune_searches_then_compiles() {
    let dir = folder();
    let dir = dir.path();
    product(dir);
    let tuned = ["--mode", "max-autotune", "--tune-time", "1", "--database", "t.jsonl"];
    let run = succeed(dir, &[&["compile", "product.onnx", "--json"][..], &tuned].concat());
    // Whatever is faster is kept, and both times are told.
    assert!(run.err.contains("the search found"), "{}", run.err);
    assert!(run.json()["gain"].as_f64() >= Some(1.0), "{}", run.out);
    assert!(records(dir).stats().trials > 0);
    fail(dir, &["compile", "product.onnx", "--tune-time", "1"], 2, &["--mode max-autotune"]);
    fail(dir, &["tune", "product.onnx", "--no-database"], 2, &["--no-database"]);
    fail(dir, &["tune", "product.twm"], 2, &["compiled already"]);
}
