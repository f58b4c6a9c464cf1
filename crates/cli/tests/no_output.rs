//! Outputs that cannot be written: no such folder, a folder without permission, a full disk. Each is a failure of
//! output, and neither the file nor a part of it is left.
#![cfg(target_os = "linux")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{NOBODY, digits, fail, files, folder, image, is_root};

/// What writes a file: the arguments up to its name.
fn writers(model: &str, inputs: &str) -> [Vec<String>; 4] {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    [
        words(&["compile", model, "-o"]),
        words(&["compile", model, "--emit", "loops", "-o"]),
        words(&["run", model, "--codegen", "cranelift", "--inputs", inputs, "--outputs"]),
        words(&["bench", model, "--seconds", "0.01", "--inputs", inputs, "--outputs"]),
    ]
}

#[test]
fn places_where_no_file_can_be() {
    let dir = folder();
    let dir = dir.path();
    for place in ["nowhere/out.npz", "/proc/out.npz", "digits.onnx/out.npz"] {
        for writer in writers("digits.onnx", &image()) {
            let args: Vec<&str> = writer.iter().map(String::as_str).chain([place]).collect();
            fail(dir, &args, 6, &[&format!("cannot write {place}")]);
        }
    }
    fail(dir, &["compile", "digits.onnx", "-o", "."], 6, &["cannot write"]);
    fail(
        dir,
        &["compile", "digits.onnx", "-o", "/dev/full"],
        6,
        &["cannot write /dev/full", "No space left"],
    );
}

/// Root may write everywhere, so as root the command runs as nobody.
#[test]
fn a_folder_without_permission() {
    let dir = folder();
    let dir = dir.path();
    let allow =
        |path: &Path, mode: u32| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let closed = dir.join("closed");
    std::fs::create_dir(&closed).unwrap();
    allow(dir, 0o755);
    allow(&dir.join("digits.onnx"), 0o644);
    allow(&closed, 0o555);
    // The program and the inputs may lie where nobody else may look.
    let program = dir.join("tilewright");
    std::fs::copy(env!("CARGO_BIN_EXE_tilewright"), &program).unwrap();
    let inputs = dir.join("in");
    std::fs::create_dir(&inputs).unwrap();
    std::fs::copy(digits().join("images/3/input_0.pb"), inputs.join("input_0.pb")).unwrap();
    let before = files(dir);
    for writer in writers("digits.onnx", "in") {
        let mut command = Command::new(&program);
        command.current_dir(dir).args(&writer).arg("closed/out.npz");
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        assert_refused(&output, &writer, "Permission denied");
    }
    assert_eq!(files(dir), before);
    assert!(files(&closed).is_empty());
    allow(&closed, 0o755);
}

/// A file system of 64 KiB, which needs a mount namespace: where the system gives none, nothing is tested.
#[test]
fn a_full_disk() {
    let dir = folder();
    let dir = dir.path();
    std::fs::create_dir(dir.join("small")).unwrap();
    // The listing tells what is left, from inside: outside nobody sees the file system.
    let script = "mount -t tmpfs -o size=64k tmpfs small || exit 99\n\
                  head -c $1 /dev/zero > small/filler; shift\n\
                  \"$@\"; code=$?; rm small/filler; ls -A small; exit $code";
    let within = |taken: u32, words: &[String]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", &taken.to_string()]);
        command.current_dir(dir).args(words).output()
    };
    match within(0, &["true".to_string()]) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            println!("skipped: no file system of our own: {}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        Err(error) => {
            println!("skipped: no unshare: {error}");
            return;
        }
    }
    let check = |taken, writer: &[String], file: &str| {
        let mut words = vec![env!("CARGO_BIN_EXE_tilewright").to_string()];
        words.extend(writer.iter().cloned());
        words.push(format!("small/{file}"));
        let output = within(taken, &words).unwrap();
        assert_refused(&output, writer, "No space left");
        assert!(output.stdout.is_empty(), "left: {}", String::from_utf8_lossy(&output.stdout));
    };
    let writers = writers("digits.onnx", &image());
    // Full before the first byte.
    writers.iter().for_each(|writer| check(64 << 10, writer, "out.npz"));
    check(64 << 10, &writers[2], "folder");
    // Full on the way: an artifact takes 120 KiB.
    check(4 << 10, &writers[0], "out.npz");
}

fn assert_refused(output: &Output, args: &[String], expected: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{args:?}: {said}");
    assert!(said.contains("cannot write") && said.contains(expected), "{args:?}: {said}");
}
