//! The verbs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tilewright_run::bench::{Figures, bench as measure};
use tilewright_run::exit::Exit;
use tilewright_run::measure::MeasureError;
use tilewright_run::measure::files::answer_file;
use tilewright_run::noise::noise;
use tilewright_run::profile::Report;
use tilewright_run::timing::Summary;
use tilewright_run::{LoadOptions, Model, Named, Spec, Trust, files, profile, summary, values};
use tilewright_runtime::threads::{ThreadPool, available_threads};

use crate::args::{BenchArgs, ModelArgs, ProfileArgs, RunArgs};
use crate::remote::open;
use crate::{Failure, print};

/// Loads an artifact. Its code runs with all that the process may do: who names it on the command line says that they trust it.
fn load(path: &Path, options: &LoadOptions) -> Result<Model, Failure> {
    Ok(Model::load_with(path, Trust::Origin, options)?)
}

/// The user's inputs, if there are any.
fn given(args: &ModelArgs, specs: &[Spec]) -> Result<Option<Named>, Failure> {
    Ok(args.inputs.as_ref().map(|path| files::read_inputs(path, specs)).transpose()?)
}

fn inputs_or_noise(args: &ModelArgs, model: &Model) -> Result<Named, Failure> {
    match given(args, model.inputs())? {
        Some(inputs) => Ok(inputs),
        None => Ok(noise(model.inputs())?),
    }
}

fn inputs(args: &ModelArgs, specs: &[Spec]) -> Result<Named, Failure> {
    match given(args, specs)? {
        Some(inputs) => Ok(inputs),
        None if specs.is_empty() => Ok(Named::new()),
        None => {
            let list: String = specs.iter().map(|spec| format!("\n  {spec}")).collect();
            Err(Failure::usage(format!("give --inputs; the model's inputs are{list}")))
        }
    }
}

/// `run`: one run on the user's tensors.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let outputs: Named = match &args.of.remote {
        Some(access) => {
            let (mut remote, model) = open(access, args.of.how(args.seed), &args.of.model)?;
            remote.run(&model, &inputs(&args.of, model.inputs())?)?
        }
        None => {
            let model = load(&args.of.model, &args.of.options().seed(args.seed))?;
            let inputs = inputs(&args.of, model.inputs())?;
            let made = model.run(values::inputs(&inputs))?;
            made.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
        }
    };
    match &args.outputs {
        Some(path) => Ok(files::write_outputs(path, &outputs)?),
        None => print(&outputs.iter().map(|(name, value)| summary::line(name, value)).collect::<String>()),
    }
}

/// `bench`: how long runs take.
pub(crate) fn bench(args: &BenchArgs) -> Result<(), Failure> {
    let figures = match &args.of.remote {
        Some(access) => {
            let (mut remote, model) = open(access, args.of.how(0), &args.of.model)?;
            let sets: Vec<Named> = given(&args.of, model.inputs())?.into_iter().collect();
            remote.bench(&model, &sets, args.sessions, args.seconds, false)?.0
        }
        None => {
            let load = || load(&args.of.model, &args.of.options());
            let inputs = |model: &Model| Ok(vec![inputs_or_noise(&args.of, model)?]);
            measure(load, inputs, args.sessions, args.seconds)?.figures
        }
    };
    let Figures { times: Summary { median, least, p90, runs, runs_per_s }, load, peak_bytes, .. } = figures;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let memory = peak_bytes.map(|bytes| format!("  peak memory  {:.2} MiB\n", bytes as f64 / 1_048_576.0));
    print(&format!(
        "  median       {:.3} ms\n  least        {:.3} ms\n  90 % within  {:.3} ms\n  runs         {runs}, {runs_per_s:.2} a second\n  load         {:.3} ms\n{}",
        ms(median),
        ms(least),
        ms(p90),
        ms(load),
        memory.unwrap_or_default(),
    ))
}

/// `profile`: where the time of a run goes. How far from this machine's limits that is, only the compiler's `profile` tells.
pub(crate) fn profile(args: &ProfileArgs) -> Result<(), Failure> {
    let report = match &args.of.remote {
        Some(access) => {
            let (mut remote, model) = open(access, args.of.how(0), &args.of.model)?;
            let inputs = given(&args.of, model.inputs())?;
            remote.profile(&model, inputs.as_ref(), args.seconds, args.by)?
        }
        None => profile_here(args)?,
    };
    print(&format!(
        "  run              {:.3} ms, mean of {} of {} runs\n  without profile  {:.3} ms median\n  threads          {}\n{}",
        report.wall_ms,
        report.used,
        report.runs,
        report.plain_ms,
        report.threads,
        profile::text(&report.rows),
    ))
}

fn profile_here(args: &ProfileArgs) -> Result<Report, Failure> {
    let n_threads = args.of.threads.unwrap_or_else(available_threads);
    let pool = Arc::new(ThreadPool::new(n_threads));
    let model = load(&args.of.model, &args.of.options_but_threads().pool(pool))?;
    let given = inputs_or_noise(&args.of, &model)?;
    let named = values::inputs(&given);
    let inputs = model.inner().arrange(&named)?;
    let mut session = model.session();
    let profile = profile::measure(&mut session, &inputs, args.seconds)?;
    Ok(Report::new(session.program(), &profile, None, args.by, n_threads))
}

/// `measure`: answers a request of tuning. Its code runs with all that the process may do, as that of a model.
pub(crate) fn measure_request(path: &Path) -> Result<(), Failure> {
    let answer = answer_file(path)?;
    if let Err(MeasureError::Unavailable(why)) = &answer.result {
        return Err(Failure { code: Exit::Unsupported as u8, message: format!("{}: {why}", path.display()) });
    }
    let json = answer
        .to_bytes()
        .map_err(|error| Failure { code: Exit::Internal as u8, message: error.to_string() })?;
    print(&(String::from_utf8_lossy(&json) + "\n"))
}
