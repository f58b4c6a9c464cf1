//! Loads a compiled model and runs it on tensors from files: a program without a compiler, whose one dependency is `tilewright-run`.
//!
//! `cargo run --release -p tilewright-run --example infer -- digits.twm examples/digits/images/8 scores.npz`

use std::error::Error;
use std::path::Path;

use tilewright_run::{Model, Trust, files, values};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [artifact, inputs, outputs] = &args[..] else {
        return Err("usage: infer ARTIFACT.twm INPUTS OUTPUTS".into());
    };
    infer(artifact.as_ref(), inputs.as_ref(), outputs.as_ref())
}

/// Reads inputs from an `.npz`, an `.npy` or a folder with `input_0.pb`, and writes outputs where the path says.
pub(crate) fn infer(artifact: &Path, inputs: &Path, outputs: &Path) -> Result<(), Box<dyn Error>> {
    // Loading executes the file's code: it must be one of ours.
    let model = Model::load(artifact, Trust::Origin)?;
    println!("{model:?}");
    let inputs = files::read_inputs(inputs, model.inputs())?;
    let made = model.run(values::inputs(&inputs))?;
    let made = made.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    files::write_outputs(outputs, &made)?;
    Ok(())
}
