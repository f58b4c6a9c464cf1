//! `tilewright verify`: a compiled model against the interpreter, stored outputs, or another model.

use std::path::{Path, PathBuf};

use serde_json::json;
use tilewright_driver::run::compare::{Distance, Tolerance};
use tilewright_driver::{Engine, LoadOptions, Verdict, Verification, VerifyOptions};

use crate::failure::{Exit, Failure};
use crate::load::LoadArgs;
use crate::model::{self, Source};
use crate::options::CompileArgs;
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
    /// Cut the tasks of each kernel into ranges at random places, others in each run, which must not change a bit. Needs
    /// --device
    #[arg(long, requires = "device")]
    ranges: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    options: CompileArgs,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let valid = text.parse().ok().filter(|t: &f64| t.is_finite() && *t >= 0.0);
    valid.ok_or_else(|| "not a number of at least 0".to_string())
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let found = match Source::of(&args.model)? {
        Source::Artifact(path) => of_artifact(&path, args)?,
        Source::Onnx(path) => of_onnx(&path, args)?,
    };
    if let Some(run) = found.other_run {
        let message = format!("{}: run {run} of {} gives other bits", args.model.display(), args.runs);
        return Err(Failure::new(Exit::Check, message));
    }
    report(args, &found)?;
    if found.agrees() {
        return Ok(());
    }
    let message = format!("{} does not agree with {}", args.model.display(), args.against.display());
    Err(Failure::new(Exit::Check, message))
}

fn of_artifact(path: &Path, args: &Args) -> Result<Verification, Failure> {
    args.options.refuse(&format!("{} is compiled already", path.display()))?;
    if args.is_against_reference() {
        return Err(no_reference());
    }
    let model = model::load(path, &args.load_options()?.verify_weights(true))?;
    Ok(args.verify_options()?.verify(&Engine::Compiled(model))?)
}

fn of_onnx(path: &Path, args: &Args) -> Result<Verification, Failure> {
    if args.options.interpret() {
        if args.is_against_reference() {
            return Err(no_reference());
        }
        let engine = model::interpreter(path, &args.options, &args.load, 0)?;
        return Ok(args.verify_options()?.verify(&engine)?);
    }
    let compilation = args.load.target_of(&args.options);
    let options = args.verify_options()?.load(args.load_options()?);
    let mut progress = Progress::new(&compilation.dump_after);
    let found = model::compiler(path, &compilation)?.verify_with(path, &options, &mut progress);
    let finished = progress.finish();
    let found = found.map_err(|error| model::of_model(error, path))?;
    finished?;
    Ok(found)
}

fn no_reference() -> Failure {
    Failure::usage("only an ONNX file that is compiled can be held against the interpreter: give --against")
}

impl Args {
    fn is_against_reference(&self) -> bool {
        self.against == Path::new("reference")
    }

    /// How the model is loaded.
    fn load_options(&self) -> Result<LoadOptions, Failure> {
        let options = self.load.options()?;
        if self.ranges && !options.is_for_device() {
            return Err(Failure::usage("--ranges is for kernels on a device: give another --device"));
        }
        Ok(if self.ranges { options.in_ranges(0) } else { options })
    }

    /// Everything but how the model is loaded.
    fn verify_options(&self) -> Result<VerifyOptions, Failure> {
        let tolerance = Tolerance { relative: self.rtol, absolute: self.atol };
        let options = VerifyOptions::new().tolerance(tolerance).runs(self.runs);
        let options = match &self.inputs {
            Some(path) => options.inputs_from(path),
            None => options,
        };
        if self.is_against_reference() {
            return Ok(options);
        }
        let path = &self.against;
        if path.is_dir() || path.extension().is_some_and(|ending| ending == "npz" || ending == "npy") {
            return Ok(options.against_files(path));
        }
        let other = Source::of(path)?;
        let compilation = match &other {
            Source::Onnx(_) => self.options.clone(),
            Source::Artifact(_) => CompileArgs::default(),
        };
        let load = LoadArgs { threads: self.load.threads, ..LoadArgs::default() };
        Ok(options.against_model(model::engine(&other, &compilation, &load, 0)?))
    }
}

fn report(args: &Args, found: &Verification) -> Result<(), Failure> {
    // The fault and the name in one, as both forms have it.
    let fault = |verdict: &Verdict| Some(format!("{}: {}", verdict.name, verdict.result.as_ref().err()?));
    let inner = found.first_difference.as_ref().and_then(fault);
    if args.json {
        let output = |Verdict { name, result }: &Verdict| match result {
            Ok(Distance { worst, scale }) => {
                json!({"name": name, "agrees": true, "worst": worst, "scale": scale})
            }
            Err(fault) => json!({"name": name, "agrees": false, "fault": fault}),
        };
        let outputs: Vec<_> = found.outputs.iter().map(output).collect();
        return output::print_json(
            &json!({"agrees": found.agrees(), "outputs": outputs, "first_difference": inner}),
        );
    }
    let line = |Verdict { name, result }: &Verdict| match result {
        Ok(Distance { worst, scale }) => {
            format!("{name}: agrees, worst difference {worst:.3e}, largest magnitude {scale:.3e}\n")
        }
        Err(fault) => format!("{name}: {fault}\n"),
    };
    let mut text: String = found.outputs.iter().map(line).collect();
    if let Some(inner) = inner {
        text += &format!("the first tensor that differs, with every tensor made an output, is {inner}\n");
    }
    output::print(&text)
}
