//! Outputs that cannot be written: no such folder, a folder without permission (a full disk is in `full_disk.rs`). Each is a failure of
//! output, and neither the file nor a part of it is left.
#![cfg(target_os = "linux")]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use common::{NOBODY, assert_refused, digits, fail, files, folder, image, is_root, writers};

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
