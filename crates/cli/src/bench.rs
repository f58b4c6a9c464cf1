//! `tilewright bench`: how fast a model runs, loads and compiles, and how much memory it takes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tilewright_driver::run::bench::{self, Measured};
use tilewright_driver::run::noise::noise;
use tilewright_driver::run::timing::{Summary, for_people, measure, peak_bytes};
use tilewright_driver::run::{Named, Spec, files};
use tilewright_driver::{Engine, Model};

use crate::failure::{ERROR, Exit, Failure};
use crate::load::LoadArgs;
use crate::model::{self, Source};
use crate::options::{CompileArgs, threads};
use crate::output;
use crate::progress::Progress;
use crate::remote::{Opened, RemoteArgs};

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model to measure; an ONNX file is compiled first, and its artifact measured by a process of its own
    #[arg(value_name = "MODEL.onnx|MODEL.twm")]
    model: PathBuf,
    /// Inputs: an .npz, an .npy for one input, or a folder of input_J.pb; given again, runs take one after the other, from the
    /// first again behind the last [default: seeded noise, with 1 for an open batch]
    #[arg(long, value_name = "IN.npz|IN.npy|DIR")]
    inputs: Vec<PathBuf>,
    /// Where the outputs of one run, on the first inputs, go: an .npz, an .npy for one output, or a folder of output_J.pb
    #[arg(long, value_name = "OUT.npz|OUT.npy|DIR")]
    outputs: Option<PathBuf>,
    /// Sessions that run at once, each on a thread of its own, sharing the pool: for throughput, with --threads 1
    /// as many as there are cores
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads)]
    sessions: usize,
    /// Seconds to measure; at least five runs are
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds)]
    seconds: f64,
    /// Print figures as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(flatten)]
    options: CompileArgs,
}

/// Reads a number of seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let valid = text.parse().ok().filter(|s: &f64| (0.0..=86_400.0).contains(s));
    valid.ok_or_else(|| "not a number of seconds".to_string())
}

/// What was measured; the last line of the output.
#[derive(Debug, PartialEq)]
struct Figures {
    median_ms: f64,
    min_ms: f64,
    p90_ms: f64,
    runs: usize,
    runs_per_s: f64,
    compile_s: Option<f64>,
    load_s: f64,
    peak_mib: Option<f64>,
    artifact_mib: Option<f64>,
    /// The extents that the program which ran is specialised for; nothing where it is the one for all.
    variant: Option<String>,
}

impl Figures {
    fn json(&self) -> serde_json::Value {
        let Figures {
            median_ms,
            min_ms,
            p90_ms,
            runs,
            runs_per_s,
            compile_s,
            load_s,
            peak_mib,
            artifact_mib,
            variant,
        } = self;
        json!({
            "median_ms": median_ms, "min_ms": min_ms, "p90_ms": p90_ms, "runs": runs, "runs_per_s": runs_per_s,
            "compile_s": compile_s, "load_s": load_s, "peak_mib": peak_mib, "artifact_mib": artifact_mib,
            "variant": variant,
        })
    }

    /// Reads what another process printed.
    fn parse(line: &str) -> Option<Figures> {
        let object: serde_json::Value = serde_json::from_str(line).ok()?;
        let number = |key: &str| object.get(key)?.as_f64();
        Some(Figures {
            median_ms: number("median_ms")?,
            min_ms: number("min_ms")?,
            p90_ms: number("p90_ms")?,
            runs: usize::try_from(object.get("runs")?.as_u64()?).ok()?,
            runs_per_s: number("runs_per_s")?,
            compile_s: number("compile_s"),
            load_s: number("load_s")?,
            peak_mib: number("peak_mib"),
            artifact_mib: number("artifact_mib"),
            variant: object.get("variant").and_then(|name| name.as_str()).map(str::to_string),
        })
    }
}

/// The verb.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let figures = match args.remote.open(&args.model, &args.options, &args.load, 0)? {
        Some(opened) => measure_there(opened, args)?,
        None => measure_here(args)?,
    };
    match args.json {
        true => output::print_json(&figures.json()),
        false => output::print(&text(&figures)),
    }
}

/// Measures on another machine.
fn measure_there(opened: Opened, args: &Args) -> Result<Figures, Failure> {
    let Opened { mut remote, model, compile_s } = opened;
    let read = |path| files::read_inputs(path, model.inputs());
    let inputs = args.inputs.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let (sessions, seconds, wants_outputs) = (args.sessions, args.seconds, args.outputs.is_some());
    let (figures, outputs) = remote.bench(&model, &inputs, sessions, seconds, wants_outputs)?;
    if let Some(path) = &args.outputs {
        files::write_outputs(path, &outputs)?;
    }
    Ok(Figures { compile_s, artifact_mib: Some(model.bytes() as f64 / MIB), ..figures.into() })
}

/// Measures on this machine.
fn measure_here(args: &Args) -> Result<Figures, Failure> {
    Ok(match Source::of(&args.model)? {
        Source::Artifact(path) => {
            args.options.refuse(&format!("{} is compiled already", path.display()))?;
            measure_artifact(&path, args)?
        }
        Source::Onnx(_) if args.options.interpret() && args.sessions > 1 => {
            return Err(Failure::usage(
                "--sessions is for compiled models: the interpreter runs one at a time",
            ));
        }
        Source::Onnx(path) if args.options.interpret() => measure_interpreter(&path, args)?,
        Source::Onnx(path) => {
            let mut progress = Progress::new(&args.options.dump_after);
            let options = args.load.target_of(&args.options);
            let compiled = model::compile(&path, &options, &mut progress)?;
            let folder =
                tempfile::tempdir().map_err(|error| Failure::write(&std::env::temp_dir(), &error))?;
            let artifact = folder.path().join("model.twm");
            compiled.artifact.write(&artifact)?;
            let compile_s = progress.elapsed().as_secs_f64();
            // What compiling took of memory and threads must not show in the figures of running.
            drop(compiled);
            Figures { compile_s: Some(compile_s), ..measure_elsewhere(&artifact, args)? }
        }
    })
}

fn text(figures: &Figures) -> String {
    let time = |ms: f64| for_people(Duration::from_secs_f64(ms / 1e3));
    let mut rows = vec![
        ("median".to_string(), time(figures.median_ms)),
        ("least".to_string(), time(figures.min_ms)),
        ("90 % within".to_string(), time(figures.p90_ms)),
        ("runs".to_string(), format!("{}, {:.2} a second", figures.runs, figures.runs_per_s)),
        ("load".to_string(), time(figures.load_s * 1e3)),
    ];
    let mut optional = |name: &str, value: Option<f64>, unit: &str| {
        if let Some(value) = value {
            rows.push((name.to_string(), format!("{value:.2} {unit}")));
        }
    };
    optional("compile", figures.compile_s, "s");
    optional("peak memory", figures.peak_mib, "MiB");
    optional("artifact", figures.artifact_mib, "MiB");
    if let Some(variant) = &figures.variant {
        rows.push(("program".to_string(), format!("for {variant}")));
    }
    output::table(&rows)
}

/// Measures an artifact in a fresh process of this program.
fn measure_elsewhere(artifact: &Path, args: &Args) -> Result<Figures, Failure> {
    let broken = |message: String| Failure::new(Exit::Internal, format!("the measuring process: {message}"));
    let program = std::env::current_exe().map_err(|error| broken(error.to_string()))?;
    let mut command = Command::new(program);
    command.arg("bench").arg(artifact).arg("--json").args(["--seconds", &args.seconds.to_string()]);
    command.args(["--sessions", &args.sessions.to_string()]);
    for inputs in &args.inputs {
        command.arg("--inputs").arg(inputs);
    }
    if let Some(outputs) = &args.outputs {
        command.arg("--outputs").arg(outputs);
    }
    let LoadArgs { threads, memory_limit, device } = &args.load;
    if let Some(device) = device {
        command.args(["--device", device]);
    }
    if let Some(threads) = threads {
        command.args(["--threads", &threads.to_string()]);
    }
    if let Some(bytes) = memory_limit {
        command.args(["--memory-limit", &bytes.to_string()]);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let child = child.map_err(|error| broken(error.to_string()))?;
    let messages = String::from_utf8_lossy(&child.stderr);
    match child.status.code() {
        Some(0) => {
            output::note(&messages);
            let text = String::from_utf8_lossy(&child.stdout);
            let figures = text.lines().last().and_then(Figures::parse);
            figures.ok_or_else(|| broken(format!("said {text:?}")))
        }
        Some(code) => {
            // The user knows the model by its own name, not by that of a temporary file.
            let (temporary, model) = (artifact.display().to_string(), args.model.display().to_string());
            let message = messages.trim().trim_start_matches(ERROR).replace(&temporary, &model);
            Err(Failure { code: u8::try_from(code).unwrap_or(Exit::Internal as u8), message })
        }
        None => Err(broken(format!("{}: {messages}", child.status))),
    }
}

/// Loads an artifact and measures it in this process.
fn measure_artifact(path: &Path, args: &Args) -> Result<Figures, Failure> {
    let bytes = std::fs::metadata(path).map_err(|error| Failure::read(path, &error))?.len();
    let load = || model::load(path, &args.load.options()?);
    let inputs = |model: &Model| read_or_noise(args, model.inputs());
    let Measured { figures, model, inputs } = bench::bench(load, inputs, args.sessions, args.seconds)?;
    if let Some((path, first)) = args.outputs.as_ref().zip(inputs.first()) {
        files::write_outputs(path, &Engine::Compiled(model).run(first)?)?;
    }
    Ok(Figures { artifact_mib: Some(bytes as f64 / MIB), ..figures.into() })
}

fn measure_interpreter(path: &Path, args: &Args) -> Result<Figures, Failure> {
    let start = Instant::now();
    let engine = model::interpreter(path, &args.options, &args.load, 0)?;
    let load = start.elapsed();
    let inputs = read_or_noise(args, &engine.inputs())?;
    let mut turns = inputs.iter().cycle();
    let run = || turns.next().map_or(Ok(()), |inputs| engine.run(inputs).map(drop).map_err(Failure::from));
    let times = measure(args.seconds, vec![run])?.summary();
    let figures = bench::Figures { times, load, peak_bytes: peak_bytes(), extents: Vec::new() };
    if let Some((path, first)) = args.outputs.as_ref().zip(inputs.first()) {
        files::write_outputs(path, &engine.run(first)?)?;
    }
    Ok(figures.into())
}

/// Inputs of runs, which take them by turns: at least one.
fn read_or_noise(args: &Args, specs: &[Spec]) -> Result<Vec<Named>, Failure> {
    match &args.inputs[..] {
        [] => Ok(vec![noise(specs)?]),
        paths => Ok(paths.iter().map(|path| files::read_inputs(path, specs)).collect::<Result<_, _>>()?),
    }
}

impl From<bench::Figures> for Figures {
    fn from(figures: bench::Figures) -> Figures {
        let bench::Figures { times, load, peak_bytes, extents } = figures;
        let Summary { median, least, p90, runs, runs_per_s } = times;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Figures {
            median_ms: ms(median),
            min_ms: ms(least),
            p90_ms: ms(p90),
            runs,
            runs_per_s,
            compile_s: None,
            load_s: load.as_secs_f64(),
            peak_mib: peak_bytes.map(|bytes| bytes as f64 / MIB),
            artifact_mib: None,
            variant: output::variant(&extents),
        }
    }
}

const MIB: f64 = (1 << 20) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_survive_the_way_between_processes() {
        let times = measure(0.0, vec![|| Ok::<_, Failure>(())]).unwrap().summary();
        let extents = vec![("seq".to_string(), 128)];
        let of_run = bench::Figures { times, load: Duration::ZERO, peak_bytes: Some(13_107_200), extents };
        let figures = Figures::from(of_run);
        assert_eq!((figures.peak_mib, figures.variant.as_deref()), (Some(12.5), Some("seq = 128")));
        assert_eq!(Figures::parse(&figures.json().to_string()), Some(figures));
        assert_eq!(Figures::parse("{}"), None);
    }

    #[test]
    fn seconds_are_a_sensible_number() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        for text in ["-1", "nan", "inf", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
