//! Compiles an image classifier, runs it on an image, and prints the classes with the highest scores.
//!
//! `cargo run --release -p tilewright --example classify -- examples/digits/digits.onnx examples/digits/images/8`

use std::error::Error;
use std::path::Path;

use tilewright::{Compiler, Tensor, files, values};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, image] = &args[..] else { return Err("usage: classify MODEL.onnx IMAGE".into()) };
    for (class, probability) in classify(model.as_ref(), image.as_ref())?.iter().take(3) {
        println!("class {class}: {:.1} %", 100.0 * probability);
    }
    Ok(())
}

/// The classes of an image (an `.npy`, an `.npz`, or a folder with `input_0.pb`) with their probabilities, best first.
pub(crate) fn classify(model: &Path, image: &Path) -> Result<Vec<(usize, f32)>, Box<dyn Error>> {
    let model = Compiler::new().target("cpu")?.dim("batch", 1).compile(model)?.load()?;
    let inputs = files::read_inputs(image, model.inputs())?;
    let outputs = model.run(values::inputs(&inputs))?;
    let scores = outputs.tensor("scores").and_then(Tensor::as_slice::<f32>).ok_or("no scores of f32")?;
    let mut classes: Vec<(usize, f32)> = softmax(scores).into_iter().enumerate().collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(classes)
}

fn softmax(scores: &[f32]) -> Vec<f32> {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}
