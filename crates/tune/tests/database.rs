//! Databases: merging is a union, and files lose nothing but what was being written.

mod common;

use std::io::Write;

use common::task;
use proptest::prelude::*;
use tilewright_autosched::Decisions;
use tilewright_tune::{Database, Entry, Finding, Journal, LeftOut, Lookup, TaskKey};

/// An entry of a function of that name.
fn entry(function: &str, finding: Finding, tile: &str, ratio: f64) -> Entry {
    let mut decisions = Decisions::default();
    decisions.set("product/tile", tile);
    Entry {
        task: TaskKey { function: function.to_string(), family: "x86-64-v4".to_string() },
        baseline: "0".to_string(),
        finding,
        decisions,
        ratio,
        baseline_ns: 100.0,
        compiler: "tilewright".to_string(),
    }
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let finding = prop_oneof![Just(Finding::Best), Just(Finding::Trial), Just(Finding::Failed)];
    let one = (0..3, finding, 1..4, 1..8).prop_map(|(function, finding, tile, ratio)| {
        // Of these seven, a reader of decimals that is only nearly exact gives back four as others.
        entry(&format!("f{function}"), finding, &format!("{tile}x2"), f64::from(ratio) / 11.0)
    });
    prop::collection::vec(one, 0..12)
}

fn database(entries: &[Entry]) -> Database {
    let mut database = Database::default();
    for entry in entries {
        database.insert(entry.clone());
    }
    database
}

fn merged(databases: &[&Database]) -> Database {
    let mut all = Database::default();
    for database in databases {
        all.merge(database);
    }
    all
}

proptest! {
    #[test]
    fn merging_is_idempotent_and_knows_no_order(a in entries(), b in entries(), c in entries()) {
        let (a, b, c) = (database(&a), database(&b), database(&c));
        prop_assert_eq!(merged(&[&a, &a]), a.clone());
        let all = merged(&[&a, &b, &c]);
        prop_assert_eq!(&merged(&[&c, &b, &a]), &all);
        prop_assert_eq!(&merged(&[&a, &merged(&[&b, &c])]), &all);
        let mut again = all.clone();
        prop_assert!(again.merge(&b).is_empty(), "what is there is not added again");
    }

    #[test]
    fn texts_read_back(a in entries()) {
        let a = database(&a);
        let text = a.to_text().expect("numbers");
        prop_assert_eq!(Database::parse(&text), (a.clone(), LeftOut::default()));
        let best = Database::parse_best(&text);
        prop_assert!(best.iter().all(|entry| entry.finding == Finding::Best));
        prop_assert_eq!(best.iter().count(), a.stats().best);
    }

    #[test]
    fn a_damaged_line_is_left_out(a in entries(), at in any::<prop::sample::Index>(), bit in 0..7u32) {
        let a = database(&a);
        let mut bytes = a.to_text().expect("numbers").into_bytes();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        let (read, left_out) = Database::parse(&String::from_utf8_lossy(&bytes));
        let known: Vec<&Entry> = a.iter().collect();
        prop_assert!(read.iter().all(|entry| known.contains(&entry)), "an entry that nobody wrote");
        // A damaged end of a line takes the line after it along.
        prop_assert!(read.iter().count() + 2 >= known.len() && left_out.damaged + left_out.outdated <= 2);
    }
}

#[test]
fn the_faster_of_two_about_the_same_stays() {
    let mut database = Database::default();
    assert!(database.insert(entry("f", Finding::Best, "4x2", 0.8)));
    assert!(!database.insert(entry("f", Finding::Best, "7x2", 0.9)));
    assert!(database.insert(entry("f", Finding::Best, "7x4", 0.7)));
    assert_eq!(database.stats().best, 1);
    let key = entry("f", Finding::Best, "", 1.0).task;
    let best = database.best(&key, "0").expect("an entry");
    assert_eq!(best.decisions.get("product/tile"), Some("7x4"));
    assert!(database.best(&key, "1").is_none(), "of another schedule of the rules");
}

#[test]
fn the_first_database_with_an_entry_is_asked_first() {
    let mine = database(&[entry("f", Finding::Best, "4x2", 0.9), entry("f", Finding::Trial, "8x2", 0.5)]);
    let shipped = database(&[entry("f", Finding::Best, "7x2", 0.8), entry("g", Finding::Best, "7x4", 0.8)]);
    let lookup = Lookup::new([mine, shipped]);
    let tiles = |function: &str| -> Vec<String> {
        let key = entry(function, Finding::Best, "", 1.0).task;
        let tile = |entry: &Entry| entry.decisions.get("product/tile").unwrap_or_default().to_string();
        lookup.candidates(&key).map(tile).collect()
    };
    assert_eq!(tiles("f"), ["4x2", "7x2"]);
    assert_eq!(tiles("g"), ["7x4"]);
    assert!(tiles("h").is_empty());
}

#[test]
fn a_file_cut_short_anywhere_loses_the_last_line_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("new").join("tuning.jsonl");
    assert_eq!(
        Journal::read(&path).expect("no file is an empty one"),
        (Database::default(), LeftOut::default())
    );
    let mut journal = Journal::append_to(&path).expect("a file");
    let known = ["4x2", "7x2", "8x2"].map(|tile| entry("f", Finding::Trial, tile, 0.9));
    for entry in &known {
        journal.append(entry).expect("written");
    }
    let whole = std::fs::read(&path).expect("readable");
    let ends: Vec<usize> = (0..whole.len()).filter(|&n| whole[n] == b'\n').collect();
    let late = entry("f", Finding::Best, "14x2", 0.8);
    for cut in 0..whole.len() {
        std::fs::write(&path, &whole[..cut]).expect("written");
        let mut journal = Journal::append_to(&path).expect("a file");
        journal.append(&late).expect("written");
        let (read, _) = Journal::read(&path).expect("readable");
        // A line that lacks nothing but its end is whole.
        let n_whole = ends.iter().filter(|&&end| end <= cut).count();
        let expected: Vec<&Entry> = known[..n_whole].iter().chain([&late]).collect();
        assert_eq!(read.iter().count(), expected.len(), "cut at {cut}");
        assert!(expected.iter().all(|entry| read.iter().any(|e| e == *entry)), "cut at {cut}");
    }
}

#[test]
fn what_is_no_text_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tuning.jsonl");
    let mut file = std::fs::File::create(&path).expect("a file");
    file.write_all(b"\xff\xfe\x00\n{}\n[1]\n").expect("written");
    Journal::append_to(&path)
        .expect("a file")
        .append(&entry("f", Finding::Best, "4x2", 0.5))
        .expect("written");
    let (read, left_out) = Journal::read(&path).expect("readable");
    assert_eq!((read.iter().count(), left_out), (1, LeftOut { damaged: 3, outdated: 0 }));
    assert_eq!(Journal::read_best(&path).expect("readable"), read);
}

/// Lines that say no version are of the first one.
#[test]
fn lines_of_another_version_are_told_from_damaged_ones() {
    let line = entry("f", Finding::Best, "4x2", 0.5).to_line().expect("numbers");
    let older = line.replacen("\"v\":2,", "", 1);
    assert_ne!(older, line);
    let newer = line.replacen("\"v\":2,", "\"v\":3,", 1);
    let damaged = older.replace("4x2", "4x3");
    let (read, left_out) = Database::parse(&[&*older, &newer, &line, &damaged].join("\n"));
    assert_eq!((read.iter().count(), left_out), (1, LeftOut { damaged: 1, outdated: 2 }));
    assert_eq!(left_out.to_string(), "1 damaged lines and 2 of another version");
    assert_eq!(Database::parse_best(&older), Database::default());
}

#[test]
fn keys_know_functions_and_targets_but_no_names() {
    let key = task("f0_gemm", 64).key();
    assert_eq!(task("f7_gemm", 64).key(), key);
    assert_ne!(task("f0_gemm", 65).key(), key);
    let mut other = task("f0_gemm", 64);
    other.computation.constant_inputs = vec![false, false];
    assert_ne!(other.key(), key);
    other = task("f0_gemm", 64);
    other.target = "x86-64-v3@llvm".parse().expect("a target");
    assert_eq!(other.key().function, key.function);
    assert_ne!(other.key().family, key.family);
}
