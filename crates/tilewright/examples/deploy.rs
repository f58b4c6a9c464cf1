//! Compiles a model into a file for machines without a compiler. There, `runtime/run/examples/infer.rs` loads and runs it.
//!
//! `cargo run --release -p tilewright --example deploy -- examples/digits/digits.onnx digits.twm`

use std::error::Error;
use std::path::Path;

use tilewright::{Compiler, Mode};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, artifact] = &args[..] else { return Err("usage: deploy MODEL.onnx ARTIFACT.twm".into()) };
    println!("{artifact}: {} bytes", deploy(model.as_ref(), artifact.as_ref())?);
    Ok(())
}

/// Compiles for the processors of two generations: the file has code for both, and the better is taken where it runs.
pub(crate) fn deploy(model: &Path, artifact: &Path) -> Result<u64, Box<dyn Error>> {
    let targets = if cfg!(target_arch = "aarch64") { "aarch64" } else { "x86-64-v2,x86-64-v3" };
    let compiler = Compiler::new().target(targets)?.dim("batch", 1..=512).mode(Mode::ReduceOverhead);
    Ok(compiler.compile(model)?.write(artifact)?)
}
