//! `tilewright run`: one run of a model on the user's tensors.

use std::path::PathBuf;

use serde_json::json;
use tilewright_driver::run::summary::{self, Summary};
use tilewright_driver::run::{Named, Spec, files, values};
use tilewright_driver::runtime::Value;

use crate::failure::Failure;
use crate::load::LoadArgs;
use crate::model::{self, Source};
use crate::options::CompileArgs;
use crate::output;
use crate::remote::{Opened, RemoteArgs};

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
    remote: RemoteArgs,
    #[command(flatten)]
    options: CompileArgs,
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let outputs = match args.remote.open(&args.model, &args.options, &args.load, args.seed)? {
        Some(Opened { mut remote, model, .. }) => remote.run(&model, &inputs(args, model.inputs())?)?,
        None => {
            let source = Source::of(&args.model)?;
            let engine = model::engine(&source, &args.options, &args.load, args.seed)?;
            engine.run(&inputs(args, &engine.inputs())?)?
        }
    };
    if let Some(path) = &args.outputs {
        files::write_outputs(path, &outputs)?;
    }
    if args.json {
        let summaries: Vec<_> = outputs.iter().map(|(name, value)| summary_json(name, value)).collect();
        output::print_json(&json!({"outputs": summaries}))
    } else if args.outputs.is_none() {
        output::print(&outputs.iter().map(|(name, value)| summary::line(name, value)).collect::<String>())
    } else {
        Ok(())
    }
}

/// The user's inputs.
fn inputs(args: &Args, specs: &[Spec]) -> Result<Named, Failure> {
    match &args.inputs {
        Some(path) => Ok(files::read_inputs(path, specs)?),
        None if specs.is_empty() => Ok(Vec::new()),
        None => {
            let list: String = specs.iter().map(|spec| format!("\n  {spec}")).collect();
            Err(Failure::usage(format!("give --inputs; the model's inputs are{list}")))
        }
    }
}

fn summary_json(name: &str, value: &Value) -> serde_json::Value {
    match value.as_tensor() {
        Some(tensor) => {
            let range = Summary::of(tensor).range;
            let (min, max, mean) = range.map_or((None, None, None), |(a, b, c)| (Some(a), Some(b), Some(c)));
            let (dtype, dims) = (tensor.dtype().name(), tensor.dims());
            json!({"name": name, "dtype": dtype, "dims": dims, "min": min, "max": max, "mean": mean})
        }
        None => json!({"name": name, "form": values::form(value)}),
    }
}
