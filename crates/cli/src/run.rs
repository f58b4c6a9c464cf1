//! `tilewright run`: one run of a model on the user's tensors.

use std::path::PathBuf;

use serde_json::json;
use tilewright_driver::run::{files, values};
use tilewright_driver::runtime::{Tensor, Value};

use crate::failure::Failure;
use crate::load::LoadArgs;
use crate::model::{self, Source};
use crate::options::CompileArgs;
use crate::output;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model to run; an ONNX file is compiled first, in memory
    #[arg(value_name = "MODEL.onnx|MODEL.twm")]
    model: PathBuf,
    /// Inputs: an .npz with the model's names, an .npy for one input, or a folder of input_J.pb (ONNX TensorProtos,
    /// SequenceProtos, OptionalProtos)
    #[arg(long, value_name = "IN.npz|IN.npy|DIR")]
    inputs: Option<PathBuf>,
    /// Where outputs go: an .npz, an .npy for one output, or a folder of output_J.pb; a summary is printed if not given
    #[arg(long, value_name = "OUT.npz|OUT.npy|DIR")]
    outputs: Option<PathBuf>,
    /// What nodes without a seed of their own draw random numbers by
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print the summary of the outputs as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    options: CompileArgs,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let source = Source::of(&args.model)?;
    let engine = model::engine(&source, &args.options, &args.load, args.seed)?;
    let specs = engine.inputs();
    let inputs = match &args.inputs {
        Some(path) => files::read_inputs(path, &specs)?,
        None if specs.is_empty() => Vec::new(),
        None => {
            let list: String = specs.iter().map(|spec| format!("\n  {spec}")).collect();
            return Err(Failure::usage(format!("give --inputs; the model's inputs are{list}")));
        }
    };
    let outputs = engine.run(&inputs)?;
    if let Some(path) = &args.outputs {
        files::write_outputs(path, &outputs)?;
    }
    if args.json {
        let summaries: Vec<_> = outputs.iter().map(|(name, value)| summary_json(name, value)).collect();
        output::print_json(&json!({"outputs": summaries}))
    } else if args.outputs.is_none() {
        let lines = outputs.iter().map(|(name, value)| match value.as_tensor() {
            Some(tensor) => Summary::of(tensor).line(name, tensor),
            None => format!("{name}: {}\n", values::form(value)),
        });
        output::print(&lines.collect::<String>())
    } else {
        Ok(())
    }
}

fn summary_json(name: &str, value: &Value) -> serde_json::Value {
    match value.as_tensor() {
        Some(tensor) => Summary::of(tensor).json(name, tensor),
        None => json!({"name": name, "form": values::form(value)}),
    }
}

/// What is said of a tensor that is not written anywhere.
struct Summary {
    /// Least, greatest and mean element, where there are any.
    range: Option<(f64, f64, f64)>,
    /// The first elements.
    first: Vec<f64>,
    /// How many elements there are.
    n: usize,
}

impl Summary {
    const SHOWN: usize = 6;

    fn of(tensor: &Tensor) -> Summary {
        let values = values::to_f64s(tensor).unwrap_or_default();
        let first = values.iter().copied().take(Summary::SHOWN).collect();
        let range = (!values.is_empty()).then(|| {
            let min = values.iter().copied().fold(f64::INFINITY, f64::min);
            let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (min, max, values.iter().sum::<f64>() / values.len() as f64)
        });
        Summary { range, first, n: values.len() }
    }

    fn line(&self, name: &str, tensor: &Tensor) -> String {
        let mut line = format!("{name}: {}", values::tensor_form(tensor));
        if let Some((min, max, mean)) = self.range {
            let first: Vec<String> = self.first.iter().map(|value| format!("{value:.5}")).collect();
            let more = if self.n > Summary::SHOWN { ", ..." } else { "" };
            line += &format!(" min {min:.5} max {max:.5} mean {mean:.5}: {}{more}", first.join(", "));
        }
        line + "\n"
    }

    fn json(&self, name: &str, tensor: &Tensor) -> serde_json::Value {
        let (min, max, mean) = self.range.map_or((None, None, None), |(a, b, c)| (Some(a), Some(b), Some(c)));
        json!({"name": name, "dtype": tensor.dtype().name(), "dims": tensor.dims(), "min": min, "max": max, "mean": mean})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_summed_up_in_a_line() {
        let tensor = Tensor::new(&[3], [1.0f32, 2.0, 6.0]).unwrap();
        let line = Summary::of(&tensor).line("y", &tensor);
        assert_eq!(line, "y: f32[3] min 1.00000 max 6.00000 mean 3.00000: 1.00000, 2.00000, 6.00000\n");
        let empty = Tensor::new::<f32>(&[0], []).unwrap();
        assert_eq!(Summary::of(&empty).line("y", &empty), "y: f32[0]\n");
    }
}
