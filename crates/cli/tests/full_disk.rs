//! A full disk: outputs are not written, and neither the file nor a part of it is left; a cache that is full costs a warning.
//! Needs a file system of 64 KiB, and so a mount namespace of its own.
#![cfg_attr(not(target_os = "linux"), allow(dead_code))]

mod common;
#[path = "../../../tools/conditional_tests.rs"]
mod conditional;

use std::path::Path;
use std::process::{Command, ExitCode};

use common::{assert_refused, folder, image, run, writers};
use conditional::Conditional;

fn main() -> ExitCode {
    let lacking = lacks_file_system();
    let test = |name: &str, check: fn() -> Result<(), String>| Conditional::new(name, lacking.clone(), check);
    conditional::run([
        test("outputs_are_not_written", outputs_are_not_written),
        test("a_cache_costs_a_warning", a_cache_costs_a_warning),
    ])
}

/// A command in a folder whose folder `small` is a file system of 64 KiB with so many bytes taken. The last lines of its output are
/// the files that are left there: outside nobody sees the file system.
fn within(dir: &Path, taken: u32, words: &[String]) -> Command {
    let script = "mount -t tmpfs -o size=64k tmpfs small || exit 99\n\
                  head -c $1 /dev/zero > small/filler; shift\n\
                  \"$@\"; code=$?; rm small/filler; find small -type f; exit $code";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", &taken.to_string()]);
    command.current_dir(dir).args(words);
    command
}

/// Why there is no such file system, if so.
fn lacks_file_system() -> Option<String> {
    let dir = tempfile::tempdir().ok()?;
    std::fs::create_dir(dir.path().join("small")).ok()?;
    match within(dir.path(), 0, &["true".to_string()]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            Some(format!("no file system of our own: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
        Err(error) => Some(format!("no unshare: {error}")),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn outputs_are_not_written() -> Result<(), String> {
    let dir = folder();
    let dir = dir.path();
    std::fs::create_dir(dir.join("small")).unwrap();
    let check = |taken, writer: &[String], file: &str| {
        let command =
            [words(&[env!("CARGO_BIN_EXE_tilewright")]), writer.to_vec(), words(&[&format!("small/{file}")])];
        let output = within(dir, taken, &command.concat()).output().unwrap();
        assert_refused(&output, writer, "No space left");
        assert!(output.stdout.is_empty(), "left: {}", String::from_utf8_lossy(&output.stdout));
    };
    let writers = writers("digits.onnx", &image());
    // Full before the first byte.
    writers.iter().for_each(|writer| check(64 << 10, writer, "out.npz"));
    check(64 << 10, &writers[2], "folder");
    // Full on the way: an artifact takes 120 KiB.
    check(4 << 10, &writers[0], "out.npz");
    Ok(())
}

fn a_cache_costs_a_warning() -> Result<(), String> {
    let dir = folder();
    let dir = dir.path();
    std::fs::create_dir(dir.join("small")).unwrap();
    let compile = words(&[env!("CARGO_BIN_EXE_tilewright"), "compile", "digits.onnx", "-o", "out.twm"]);
    let artifact = |command: &mut Command| {
        let run = run(command);
        assert_eq!(run.code, Some(0), "{command:?}: {}", run.err);
        (std::fs::read(dir.join("out.twm")).unwrap(), run.err)
    };
    let (expected, _) =
        artifact(Command::new(&compile[0]).args(&compile[1..]).arg("--no-cache").current_dir(dir));
    // Full before the first entry, and on the way.
    for taken in [64 << 10, 56 << 10] {
        let (found, said) = artifact(within(dir, taken, &compile).env("TILEWRIGHT_CACHE_DIR", "small"));
        assert!(found == expected);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("warning: compiled code is not kept in "), "{said}");
        assert!(said.contains("No space left"), "{said}");
    }
    Ok(())
}
