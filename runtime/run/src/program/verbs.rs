//! The verbs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tilewright_run::exit::Exit;
use tilewright_run::measure::MeasureError;
use tilewright_run::measure::files::answer_file;
use tilewright_run::noise::noise;
use tilewright_run::timing::{Summary, measure, peak_bytes};
use tilewright_run::{LoadOptions, Model, Named, Session, Trust, files, profile, summary, values};
use tilewright_runtime::threads::{ThreadPool, available_threads};

use crate::args::{BenchArgs, ModelArgs, ProfileArgs, RunArgs};
use crate::{Failure, print};

/// Loads an artifact. Its code runs with all that the process may do: who names it on the command line says that they trust it.
fn load(path: &Path, options: &LoadOptions) -> Result<Model, Failure> {
    Ok(Model::load_with(path, Trust::Origin, options)?)
}

fn inputs_or_noise(args: &ModelArgs, model: &Model) -> Result<Named, Failure> {
    match &args.inputs {
        Some(path) => Ok(files::read_inputs(path, model.inputs())?),
        None => Ok(noise(model.inputs())?),
    }
}

/// `run`: one run on the user's tensors.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let model = load(&args.of.model, &args.of.options().seed(args.seed))?;
    let inputs = match &args.of.inputs {
        Some(path) => files::read_inputs(path, model.inputs())?,
        None if model.inputs().is_empty() => Named::new(),
        None => {
            let list: String = model.inputs().iter().map(|spec| format!("\n  {spec}")).collect();
            return Err(Failure::usage(format!("give --inputs; the model's inputs are{list}")));
        }
    };
    let made = model.run(values::inputs(&inputs))?;
    let outputs: Named = made.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    match &args.outputs {
        Some(path) => Ok(files::write_outputs(path, &outputs)?),
        None => print(&outputs.iter().map(|(name, value)| summary::line(name, value)).collect::<String>()),
    }
}

/// `bench`: how long runs take.
pub(crate) fn bench(args: &BenchArgs) -> Result<(), Failure> {
    let start = Instant::now();
    let model = load(&args.of.model, &args.of.options())?;
    let mut sessions: Vec<Session> = (0..args.sessions).map(|_| model.session()).collect();
    let load = start.elapsed();
    let given = inputs_or_noise(&args.of, &model)?;
    let named = values::inputs(&given);
    let inputs = &model.inner().arrange(&named)?;
    let runs = sessions
        .iter_mut()
        .map(|session| move || session.run_values(inputs.tensors(), inputs.values()).map(drop));
    let Summary { median, least, p90, runs, runs_per_s } = measure(args.seconds, runs.collect())?.summary();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let memory = peak_bytes().map(|bytes| format!("  peak memory  {:.2} MiB\n", bytes as f64 / 1_048_576.0));
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
    let n_threads = args.of.threads.unwrap_or_else(available_threads);
    let pool = Arc::new(ThreadPool::new(n_threads));
    let model = load(&args.of.model, &args.of.options_but_threads().pool(pool))?;
    let given = inputs_or_noise(&args.of, &model)?;
    let named = values::inputs(&given);
    let inputs = model.inner().arrange(&named)?;
    let mut session = model.session();
    let profile = profile::measure(&mut session, &inputs, args.seconds)?;
    let rows = profile::rows(session.program(), &profile, None, args.by);
    print(&format!(
        "  run              {:.3} ms, mean of {} of {} runs\n  without profile  {:.3} ms median\n  threads          {n_threads}\n{}",
        profile.wall_ms,
        profile.used,
        profile.runs,
        profile.plain_ms,
        profile::text(&rows),
    ))
}

/// `measure`: answers a request of tuning. Its code runs with all that the process may do, as that of a model.
pub(crate) fn measure_request(path: &Path) -> Result<(), Failure> {
    let answer = answer_file(path)?;
    if let Err(MeasureError::Unavailable(why)) = &answer.result {
        return Err(Failure { exit: Exit::Unsupported, message: format!("{}: {why}", path.display()) });
    }
    let json =
        answer.to_bytes().map_err(|error| Failure { exit: Exit::Internal, message: error.to_string() })?;
    print(&(String::from_utf8_lossy(&json) + "\n"))
}
