//! Golden files: what goes in, a line `----`, and what comes of it. `BLESS=1` rewrites what comes of it.

use std::fmt::Write;
use std::path::Path;

/// Compares each file of a folder, in order of their names, with what `replay` gives for it now: it gets what stands before the
/// line `----` and what stands behind it. At least `least` files must be there.
pub(crate) fn check(folder: &str, least: usize, replay: impl Fn(&str, &str) -> String) {
    let bless = std::env::var_os("BLESS").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let files = std::fs::read_dir(folder).expect("the folder").map(|file| file.expect("a file").path());
    let mut files: Vec<_> = files.collect();
    files.sort();
    assert!(files.len() >= least, "{} files", files.len());
    let mut failures = String::new();
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a text");
        let (input, expected) = text.split_once("----\n").expect("a line ----");
        let found = replay(input, expected);
        if bless {
            std::fs::write(&path, format!("{input}----\n{found}")).expect("the file is written");
        } else if found != expected {
            let name = path.file_name().expect("a name").to_string_lossy();
            writeln!(failures, "{name} (BLESS=1 rewrites it):").expect("a string");
            failures += &difference(expected, &found);
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Lines that were expected and are not there, and the other way round.
fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<_>, Vec<_>) = (expected.lines().collect(), found.lines().collect());
    let same = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let tail =
        expected[same..].iter().rev().zip(found[same..].iter().rev()).take_while(|(a, b)| a == b).count();
    let lines = |sign: &str, all: &[&str]| {
        all[same..all.len() - tail].iter().map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    format!("  after line {same} of what was expected\n{}{}", lines("-", &expected), lines("+", &found))
}
