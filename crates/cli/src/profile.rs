//! `tilewright profile`: where the time of a run goes, in the user's names.

mod html;
mod table;
mod trace;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tilewright_driver::machine::Ceilings;
use tilewright_driver::machine::measure::ceilings::Level;
use tilewright_driver::run::noise::noise;
use tilewright_driver::run::profile::{self, OfDevice, Report, TracePool};
use tilewright_driver::run::{files, values};
use tilewright_driver::runtime::threads::{ThreadPool, available_threads};
use tilewright_driver::{LoadOptions, Model};

use crate::failure::{Exit, Failure};
use crate::load::LoadArgs;
use crate::model::{self, Source};
use crate::options::CompileArgs;
use crate::output;
use crate::progress::Progress;
use crate::remote::{Opened, RemoteArgs};
use table::By;

/// Arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Model to profile; an ONNX file is compiled first
    #[arg(value_name = "MODEL.onnx|MODEL.twm")]
    model: PathBuf,
    /// Inputs: an .npz, an .npy for one input, or a folder of input_J.pb [default: seeded noise, with 1 for an open batch]
    #[arg(long, value_name = "IN.npz|IN.npy|DIR")]
    inputs: Option<PathBuf>,
    /// Seconds to measure; at least five runs are, and as many without a profile to compare with
    #[arg(long, value_name = "S", default_value = "2", value_parser = crate::bench::seconds)]
    seconds: f64,
    /// What a row stands for
    #[arg(long, value_enum, default_value_t = By::Node)]
    by: By,
    /// Write one run as a Chrome trace, a track a thread: open it in Perfetto
    #[arg(long, value_name = "OUT.json", conflicts_with = "remote")]
    trace: Option<PathBuf>,
    /// Write a page with the graph coloured by time; it needs nothing else to be shown
    #[arg(long, value_name = "OUT.html", conflicts_with = "remote")]
    html: Option<PathBuf>,
    /// Print one JSON object with every row
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
    let (report, ceilings) = match args.remote.open(&args.model, &args.options, &args.load, 0)? {
        Some(Opened { mut remote, model, .. }) => {
            let read = |path| files::read_inputs(path, model.inputs());
            let inputs = args.inputs.as_ref().map(|path| read(path)).transpose()?;
            (remote.profile(&model, inputs.as_ref(), args.seconds, args.by.into())?, None)
        }
        None => {
            let (report, ceilings) = profile_here(args)?;
            (report, Some(ceilings))
        }
    };
    if args.json {
        return output::print_json(&json(&report, ceilings.as_ref()));
    }
    output::print(&(heading(&report, ceilings.as_ref()) + &profile::text(&report.rows)))
}

/// A profile on this machine, and what the machine can do at most.
fn profile_here(args: &Args) -> Result<(Report, Ceilings), Failure> {
    let n_threads = args.load.threads.unwrap_or_else(available_threads);
    let pool = Arc::new(TracePool::new(Arc::new(ThreadPool::new(n_threads))));
    let model = load(args, &args.load.options_but_threads()?.pool(pool.clone()))?;
    let mut session = model.session();
    let given = match &args.inputs {
        Some(path) => files::read_inputs(path, model.inputs())?,
        None => noise(model.inputs())?,
    };
    let named = values::inputs(&given);
    let inputs = model.inner().arrange(&named)?;

    let ceilings = Ceilings::measure(n_threads);
    let profile = profile::measure(&mut session, &inputs, args.seconds)?;
    if let Some(path) = &args.trace {
        let trace = profile::trace(&mut session, &inputs, &pool)?;
        output::write_file(path, trace::json(&session, &trace).to_string().as_bytes())?;
    }
    if let Some(path) = &args.html {
        let page = html::page(model.inner(), session.program(), &profile, &ceilings);
        output::write_file(path, page.as_bytes())?;
    }
    let least = |flops, bytes| ceilings.least_seconds(flops, bytes);
    let report = Report::new(session.program(), &profile, Some(&least), args.by.into(), n_threads);
    Ok((report, ceilings))
}

fn load(args: &Args, options: &LoadOptions) -> Result<Model, Failure> {
    match Source::of(&args.model)? {
        Source::Artifact(path) => {
            args.options.refuse(&format!("{} is compiled already", path.display()))?;
            model::load(&path, options)
        }
        Source::Onnx(_) if args.options.interpret() => {
            Err(Failure::new(Exit::Usage, "profiles are of compiled models: the interpreter has no kernels"))
        }
        Source::Onnx(path) => {
            let compilation = args.load.target_of(&args.options);
            let mut progress = Progress::new(&compilation.dump_after);
            let compiled = model::compile(&path, &compilation, &mut progress)?;
            model::load_compiled(&compiled.artifact, &path, options)
        }
    }
}

/// What holds for the whole run, for people.
fn heading(report: &Report, ceilings: Option<&Ceilings>) -> String {
    let row = |name: &str, value: String| (name.to_string(), value);
    let device = report.of_device.map(|OfDevice { kernels_ms, copies_ms }| {
        let rest = (report.wall_ms - kernels_ms - copies_ms).max(0.0);
        row(
            "device",
            format!("{kernels_ms:.3} ms in kernels, {copies_ms:.3} ms in copies, {rest:.3} ms of the run in neither"),
        )
    });
    let program = output::variant(&report.extents).map(|variant| row("program", format!("for {variant}")));
    let ceilings = ceilings.map(|ceilings| row("ceilings", ceilings_text(ceilings)));
    let rows = [
        row("run", format!("{:.3} ms, mean of {} of {} runs", report.wall_ms, report.used, report.runs)),
        row("instructions", format!("{:.3} ms of it", report.sum_ms)),
        row(
            "without profile",
            format!("{:.3} ms median; {:+.2} % with", report.plain_ms, 100.0 * report.overhead),
        ),
        row("threads", report.threads.to_string()),
    ];
    output::table(&rows.into_iter().chain(ceilings).chain(device).chain(program).collect::<Vec<_>>())
}

/// What the machine can do at most, for people.
pub(crate) fn ceilings_text(ceilings: &Ceilings) -> String {
    let level = |level: &Level| format!(", {} {:.0} GB/s", level.name, level.bytes_per_s / 1e9);
    format!("{:.0} GFLOP/s", ceilings.flops / 1e9) + &ceilings.levels.iter().map(level).collect::<String>()
}

/// What the machine can do at most, for other programs.
pub(crate) fn ceilings_json(ceilings: &Ceilings) -> Value {
    let level = |level: &Level| (level.name.to_lowercase(), json!(level.bytes_per_s / 1e9));
    let levels: serde_json::Map<String, Value> = ceilings.levels.iter().map(level).collect();
    json!({"threads": ceilings.threads, "gflops": ceilings.flops / 1e9, "gbps": levels})
}

/// Everything, for other programs.
fn json(report: &Report, ceilings: Option<&Ceilings>) -> Value {
    let device = report.of_device.map(
        |OfDevice { kernels_ms, copies_ms }| json!({ "kernels_ms": kernels_ms, "copies_ms": copies_ms }),
    );
    json!({
        "device": device,
        "wall_ms": report.wall_ms,
        "sum_ms": report.sum_ms,
        "plain_ms": report.plain_ms,
        "overhead": report.overhead,
        "variant": output::variant(&report.extents),
        "runs": report.runs,
        "threads": report.threads,
        "ceilings": ceilings.map(ceilings_json),
        "rows": report.rows.iter().map(table::json).collect::<Vec<_>>(),
    })
}
