//! The committed schema code is what `proto/*.proto` gives.

#[path = "../../../tools/conditional_tests.rs"]
mod conditional;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, process};

use conditional::Conditional;

const MARKER: &str =
    "// @generated from proto/onnx-ml.proto and proto/onnx-data.proto; see proto/README.md.\n";

fn main() -> ExitCode {
    let compiler = env::var("PROTOC").unwrap_or("protoc".into());
    let is_missing = process::Command::new(compiler).arg("--version").output().is_err();
    let lacking = is_missing.then(|| "no protoc (Debian: apt install protobuf-compiler)".to_string());
    conditional::run([Conditional::new("generated_code_is_current", lacking, generated_code_is_current)])
}

fn generated_code_is_current() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().unwrap();
    let mut config = prost_build::Config::new();
    // Upstream's comments are not Rust doc markup (indented lists would become doc tests).
    config.bytes(["."]).disable_comments(["."]).out_dir(out.path());
    config.compile_protos(&[root.join("proto/onnx-data.proto")], &[root.join("proto")]).unwrap();
    let expect = MARKER.to_owned() + &fs::read_to_string(out.path().join("onnx.rs")).unwrap();
    let committed = root.join("src/proto/generated.rs");
    if env::var_os("BLESS").is_some() {
        fs::write(&committed, &expect).unwrap();
    }
    let got = fs::read_to_string(&committed).unwrap_or_default();
    assert!(got == expect, "{} is stale: run this test with BLESS=1", committed.display());
    Ok(())
}
