//! The core without std: a program with its own allocator and panic handler runs an artifact in place.

mod common;

use std::path::Path;
use std::process::Command;

use common::demo_artifact;

#[test]
fn a_program_without_std_runs_an_artifact() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nostd");
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let model = scratch.join("nostd.twm");
    std::fs::write(&model, &*demo_artifact()).unwrap();
    let build = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--manifest-path"])
        .arg(directory.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(scratch.join("nostd"))
        .env("MODEL_TWM", &model)
        .output()
        .unwrap();
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let run = Command::new(scratch.join("nostd/debug/nostd")).output().unwrap();
    assert!(run.status.success(), "{:?}: {}", run.status, String::from_utf8_lossy(&run.stdout));
    let values: Vec<f32> =
        run.stdout.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(values, [0.0, 4.0, 8.0, 12.0, 16.0, 20.0, 1.0, 2.0, 3.0]);
}
