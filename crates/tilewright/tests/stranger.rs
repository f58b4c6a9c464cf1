//! A crate outside of this workspace uses the library: ten lines, `tilewright` as its one dependency.

use std::path::Path;
use std::process::Command;

/// What a stranger writes.
const PROGRAM: &str = r#"use tilewright::{Compiler, Error, Mode, Tensor};

fn main() -> Result<(), Error> {
    let path = std::env::args().nth(1).expect("the path of a model");
    let artifact = Compiler::new().target("cpu")?.dim("batch", 1).mode(Mode::Default).compile(path)?;
    let model = artifact.load()?;
    let image = Tensor::new(&[1, 1, 8, 8], [0.5f32; 64])?;
    let outputs = model.run([("image", &image)])?;
    println!("{:?}", outputs.tensor("scores").map(Tensor::dims));
    Ok(())
}
"#;

/// Its manifest. A build of its own, which is not optimised: what others have built of the library has other features.
fn manifest(library: &Path) -> String {
    format!(
        r#"[package]
name = "stranger"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
tilewright = {{ path = {library:?} }}

[profile.dev]
debug = false
incremental = false
"#
    )
}

#[test]
fn a_stranger_needs_ten_lines_and_one_dependency() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = library.join("../..");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stranger");
    std::fs::create_dir_all(folder.join("src")).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("a file");
    write("Cargo.toml", &manifest(library));
    write("src/main.rs", PROGRAM);
    std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("the workspace's lock file");
    let run = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline"])
        .arg("--manifest-path")
        .arg(folder.join("Cargo.toml"))
        .arg("--")
        .arg(root.join("examples/digits/digits.onnx"))
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .output()
        .expect("cargo runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(String::from_utf8_lossy(&run.stdout), "Some([1, 10])\n");
}
