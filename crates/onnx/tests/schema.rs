//! The committed schema code is what `proto/*.proto` gives.

use std::path::Path;
use std::{env, fs, process};

const MARKER: &str =
    "// @generated from proto/onnx-ml.proto and proto/onnx-data.proto; see proto/README.md.\n";

#[test]
fn generated_code_is_current() {
    if process::Command::new(env::var("PROTOC").unwrap_or("protoc".into())).arg("--version").output().is_err()
    {
        eprintln!("skipped: no protoc (Debian: apt install protobuf-compiler)");
        return;
    }
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
}
