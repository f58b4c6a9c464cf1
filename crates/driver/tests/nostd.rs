//! A compiled network runs without std: the program of `runtime/tests/nostd` holds the digits network in its text
//! section, and its outputs are those of a session of this process.

use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright_driver::machine::{CodegenKind, Target};
use tilewright_driver::runtime::{Model, TensorView, Trust};
use tilewright_driver::{Options, compile};

/// The values that the program gives every input.
fn counting(dims: &[usize]) -> Vec<f32> {
    (0..dims.iter().product()).map(|i: usize| i as f32).collect()
}

/// Builds the program around an artifact and runs it; gives the bytes of the outputs.
fn run_without_std(artifact: &Path, features: &str, scratch: &Path) -> Vec<u8> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../runtime/tests/nostd");
    let build = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--manifest-path"])
        .arg(program.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(scratch.join("nostd"))
        .env("MODEL_TWM", artifact)
        .env("MODEL_FEATURES", features)
        .output()
        .expect("cargo runs");
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let run = Command::new(scratch.join("nostd/debug/nostd")).output().expect("the program runs");
    assert!(run.status.success(), "{:?}: {}", run.status, String::from_utf8_lossy(&run.stdout));
    run.stdout
}

#[test]
fn the_digits_network_runs_without_std() {
    // The least that the code generator makes code for.
    let machine = if cfg!(target_arch = "x86_64") { "x86-64-v2" } else { "aarch64" };
    let target = Target::parse(machine, CodegenKind::Cranelift).expect("a known machine");
    let network = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.onnx");
    let scratch = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let features: Vec<&str> = target.machine.features.iter().map(|f| f.name()).collect();
    let features = features.join(",");
    let options = Options::for_target(target);
    let compiled = compile(&network, &options, &mut ()).expect("compiles");
    let file = scratch.join("digits-nostd.twm");
    compiled.artifact.write(&file).expect("writes");

    let model =
        Model::from_bytes(compiled.artifact.to_bytes().expect("bytes"), Trust::Origin).expect("loads");
    let inputs: Vec<(Vec<usize>, Vec<f32>)> = model
        .inputs()
        .iter()
        .map(|spec| {
            let dims = spec.dims.iter().map(|dim| match model.plan().sizes[dim.size.index()] {
                tilewright_driver::runtime::plan::SizeDef::Const(extent) => extent as usize,
                _ => 2,
            });
            let dims: Vec<usize> = dims.collect();
            let values = counting(&dims);
            (dims, values)
        })
        .collect();
    let views: Vec<TensorView<'_>> =
        inputs.iter().map(|(dims, values)| TensorView::of(dims, values)).collect();
    let mut session = model.session();
    let outputs = session.run(&views).expect("runs");
    let expected: Vec<u8> = outputs.iter().flat_map(|(_, output)| output.bytes.to_vec()).collect();
    assert!(!expected.is_empty());
    assert_eq!(run_without_std(&file, &features, &scratch), expected);
}
