//! `tilewright verify`: a compiled model against the interpreter, stored outputs, or another model.

use std::path::{Path, PathBuf};

use serde_json::json;
use tilewright::onnx::OnnxModel;
use tilewright::onnx::proto::ValueInfoProto;
use tilewright::run::compare::{Distance, Tolerance, compare};
use tilewright::run::noise::noise;
use tilewright::run::{Named, files};
use tilewright::runtime::Value;

use crate::device::DeviceArgs;
use crate::failure::{Exit, Failure};
use crate::model::{self, Engine, Source};
use crate::options::{CompileArgs, threads};
use crate::output;
use crate::progress::Progress;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model to verify; the weights of an artifact are held against their checksum too
    #[arg(value_name = "MODEL.onnx|MODEL.twm")]
    model: PathBuf,
    /// Inputs: an .npz, an .npy for one input, or a folder of input_J.pb [default: seeded noise, with 1 for an open batch]
    #[arg(long, value_name = "IN.npz|IN.npy|DIR")]
    inputs: Option<PathBuf>,
    /// What outputs must agree with: `reference` (the interpreter), an .npz, an .npy for one output, a
    /// folder of output_J.pb, or another model
    #[arg(long, value_name = "reference|OUT.npz|OUT.npy|DIR|MODEL", default_value = "reference")]
    against: PathBuf,
    /// Tolerance relative to each element
    #[arg(long, value_name = "R", default_value = "1e-3", value_parser = tolerance)]
    rtol: f64,
    /// Tolerance relative to the largest magnitude of the output
    #[arg(long, value_name = "A", default_value = "1e-4", value_parser = tolerance)]
    atol: f64,
    /// Times to run the model: each must give the same bits
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Threads [default: what the process may use]
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    options: CompileArgs,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let valid = text.parse().ok().filter(|t: &f64| t.is_finite() && *t >= 0.0);
    valid.ok_or_else(|| "not a number of at least 0".to_string())
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let source = Source::of(&args.model)?;
    let mut subject = Subject::new(&source, args)?;
    let specs = subject.ours.inputs();
    let inputs = match &args.inputs {
        Some(path) => files::read_inputs(path, &specs)?,
        None => noise(&specs)?,
    };
    let outputs = subject.ours.run(&inputs)?;
    if let Some(run) = first_other_run(&mut subject.ours, &inputs, &outputs, args.runs)? {
        let message = format!("{}: run {run} of {} gives other bits", args.model.display(), args.runs);
        return Err(Failure::new(Exit::Check, message));
    }
    let expected = expected(args, &mut subject, &inputs)?;
    let verdicts = judge(&expected, &outputs, args.tolerance())?;
    let agrees = verdicts.iter().all(|(_, verdict)| verdict.is_ok());
    // Outputs tell that something is wrong; the first intermediate tensor that differs tells where.
    let inner = match &source {
        Source::Onnx(path) if !agrees && args.is_against_reference() => {
            first_inner_difference(path, args, &inputs)
        }
        Source::Onnx(_) | Source::Artifact(_) => None,
    };
    report(args, &verdicts, inner.as_deref())?;
    if agrees {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Check,
        format!("{} does not agree with {}", args.model.display(), args.against.display()),
    ))
}

impl Args {
    fn tolerance(&self) -> Tolerance {
        Tolerance { relative: self.rtol, absolute: self.atol }
    }

    fn is_against_reference(&self) -> bool {
        self.against == Path::new("reference")
    }
}

/// The model under test, and the interpreter on the graph it was compiled from.
struct Subject {
    ours: Engine,
    reference: Option<Engine>,
}

impl Subject {
    fn new(source: &Source, args: &Args) -> Result<Subject, Failure> {
        match source {
            Source::Artifact(path) => {
                args.options.refuse(&format!("{} is compiled already", path.display()))?;
                let session = model::session(&model::load(path, true, &args.device)?, args.threads);
                Ok(Subject { ours: Engine::Compiled(Box::new(session)), reference: None })
            }
            Source::Onnx(path) if args.options.interpret() => {
                Ok(Subject { ours: Engine::interpreter(path, &args.options)?, reference: None })
            }
            Source::Onnx(path) => {
                let mut progress = Progress::new(&args.options.dump_after);
                let options = args.device.target_of(&args.options);
                Subject::of(model::compile(path, &options, &mut progress)?, args)
            }
        }
    }

    fn of(compiled: tilewright::Compiled, args: &Args) -> Result<Subject, Failure> {
        let model = model::load_bytes(&compiled.artifact.to_bytes()?, &args.model, &args.device)?;
        let ours = Engine::Compiled(Box::new(model::session(&model, args.threads)));
        Ok(Subject {
            ours,
            reference: Some(Engine::Interpreter { graph: Box::new(compiled.graph), seed: 0 }),
        })
    }
}

/// The first run whose outputs differ in any bit from those of the first one, of so many.
fn first_other_run(
    ours: &mut Engine,
    inputs: &Named,
    outputs: &Named,
    runs: u32,
) -> Result<Option<u32>, Failure> {
    for run in 2..=runs {
        if ours.run(inputs)? != *outputs {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

fn expected(args: &Args, subject: &mut Subject, inputs: &Named) -> Result<Named, Failure> {
    if args.is_against_reference() {
        let reference = subject.reference.as_mut().ok_or_else(|| {
            Failure::usage(
                "only an ONNX file that is compiled can be held against the interpreter: give --against",
            )
        })?;
        return reference.run(inputs);
    }
    let path = &args.against;
    let is_array = |path: &Path| path.extension().is_some_and(|ending| ending == "npz" || ending == "npy");
    if path.is_dir() || is_array(path) {
        return Ok(files::read_outputs(path, &subject.ours.outputs())?);
    }
    let other = Source::of(path)?;
    let options = match &other {
        Source::Onnx(_) => args.options.clone(),
        Source::Artifact(_) => CompileArgs::default(),
    };
    Engine::new(&other, &options, args.threads, &DeviceArgs::default())?.run(inputs)
}

/// The verdict on each output, in the model's order.
type Verdicts = Vec<(String, Result<Distance, String>)>;

/// Pairs outputs by name, or by position where the names are others.
fn judge(expected: &Named, ours: &Named, tolerance: Tolerance) -> Result<Verdicts, Failure> {
    let by_name = |name: &str| expected.iter().find(|(other, _)| other == name);
    let by_position = expected.len() == ours.len() && ours.iter().all(|(name, _)| by_name(name).is_none());
    let pair = |(j, (name, value)): (usize, &(String, Value))| {
        let reference = if by_position { expected.get(j) } else { by_name(name) };
        let Some((_, reference)) = reference else {
            return Err(Failure::data(format!("there is nothing to hold output {name:?} against")));
        };
        Ok((name.clone(), compare(reference, value, tolerance)))
    };
    ours.iter().enumerate().map(pair).collect()
}

/// Compiles the model once more with every intermediate tensor as an output; the first one, in the order of
/// execution, that differs from the interpreter's. Nothing where that model does not compile.
fn first_inner_difference(path: &Path, args: &Args, inputs: &Named) -> Option<String> {
    let mut model = OnnxModel::load(path).ok()?;
    let graph = model.proto.graph.as_mut()?;
    let names: Vec<String> =
        graph.node.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty()).cloned().collect();
    for name in &names {
        if !graph.output.iter().any(|output| output.name() == name) {
            graph.output.push(ValueInfoProto { name: Some(name.clone()), ..ValueInfoProto::default() });
        }
    }
    let compiled = tilewright::compile_model(&model, &args.options.options().ok()?, &mut ()).ok()?;
    let mut subject = Subject::of(compiled, args).ok()?;
    let ours = subject.ours.run(inputs).ok()?;
    let expected = subject.reference?.run(inputs).ok()?;
    let verdicts = judge(&expected, &ours, args.tolerance()).ok()?;
    names.iter().find_map(|name| {
        let (_, verdict) = verdicts.iter().find(|(other, _)| other == name)?;
        verdict.as_ref().err().map(|fault| format!("{name}: {fault}"))
    })
}

fn report(args: &Args, verdicts: &Verdicts, inner: Option<&str>) -> Result<(), Failure> {
    if args.json {
        let outputs: Vec<_> = verdicts
            .iter()
            .map(|(name, verdict)| match verdict {
                Ok(Distance { worst, scale }) => {
                    json!({"name": name, "agrees": true, "worst": worst, "scale": scale})
                }
                Err(fault) => json!({"name": name, "agrees": false, "fault": fault}),
            })
            .collect();
        let agrees = verdicts.iter().all(|(_, verdict)| verdict.is_ok());
        return output::print_json(&json!({"agrees": agrees, "outputs": outputs, "first_difference": inner}));
    }
    let mut text = String::new();
    for (name, verdict) in verdicts {
        text += &match verdict {
            Ok(Distance { worst, scale }) => {
                format!("{name}: agrees, worst difference {worst:.3e}, largest magnitude {scale:.3e}\n")
            }
            Err(fault) => format!("{name}: {fault}\n"),
        };
    }
    if let Some(inner) = inner {
        text += &format!("the first tensor that differs, with every tensor made an output, is {inner}\n");
    }
    output::print(&text)
}

#[cfg(test)]
mod tests {
    use tilewright::runtime::Tensor;

    use super::*;

    const TOLERANCE: Tolerance = Tolerance { relative: 1e-3, absolute: 1e-4 };

    fn named(tensors: &[(&str, f32)]) -> Named {
        tensors
            .iter()
            .map(|&(name, value)| (name.to_string(), Tensor::new(&[], [value]).unwrap().into()))
            .collect()
    }

    #[test]
    fn outputs_pair_by_name_else_by_position() {
        let ours = named(&[("a", 1.0), ("b", 2.0)]);
        let agree =
            |expected: &Named| judge(expected, &ours, TOLERANCE).unwrap().iter().all(|(_, v)| v.is_ok());
        assert!(agree(&named(&[("b", 2.0), ("a", 1.0), ("c", 3.0)])));
        assert!(agree(&named(&[("x", 1.0), ("y", 2.0)])));
        assert!(!agree(&named(&[("x", 2.0), ("y", 1.0)])));
        let failure = judge(&named(&[("a", 1.0)]), &ours, TOLERANCE).unwrap_err();
        assert_eq!(
            (failure.code, failure.message.as_str()),
            (5, "there is nothing to hold output \"b\" against")
        );
    }
}
