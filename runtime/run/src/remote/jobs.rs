//! What a job is: requests, answers, and the functions between them, which a child process of the server calls.

use std::io;
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tilewright_rpc::FrameError;
use tilewright_rpc::worker::{self, Call, Failure, Reply};
use tilewright_runtime::threads::{ThreadPool, available_threads};

use super::values::{self, Sent};
use crate::bench::{Figures, Measured, bench};
use crate::exit::{self, Exit};
use crate::measure::{Bench, BlobFolder};
use crate::noise::{NoiseError, noise};
use crate::profile::{self, By, Report};
use crate::values::{Named, inputs};
use crate::{LoadError, LoadOptions, Model, RunError};

/// The kinds of jobs.
pub(super) const RUN: &str = "run";
pub(super) const BENCH: &str = "bench";
pub(super) const PROFILE: &str = "profile";
/// A measurement of schedules; its request and its answer are those of [`crate::measure`].
pub(super) const MEASURE: &str = "measure";

/// All of them.
pub(super) const KINDS: [&str; 4] = [RUN, BENCH, PROFILE, MEASURE];

/// How a model is loaded there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct How {
    /// Threads; those that the process may use where none are said.
    pub threads: Option<usize>,
    /// Most bytes for the values of a run.
    pub memory_limit: Option<u64>,
    /// What nodes without a seed of their own draw random numbers by.
    pub seed: u64,
    /// What runs the kernels, as the server names it; what there is code for where nothing is said.
    pub device: Option<String>,
}

impl How {
    /// For a caller with a pool, which gives it the threads.
    fn options_but_threads(&self) -> LoadOptions {
        let options = LoadOptions::new().seed(self.seed);
        self.memory_limit.map_or(options.clone(), |bytes| options.memory_limit(bytes))
    }

    fn options(&self) -> LoadOptions {
        let options = self.options_but_threads();
        self.threads.map_or(options.clone(), |threads| options.threads(threads))
    }
}

/// A run on inputs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunRequest {
    pub(super) how: How,
    pub(super) inputs: Vec<Sent>,
}

/// A measurement on sets of inputs; on noise where there are none.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BenchRequest {
    pub(super) how: How,
    pub(super) inputs: Vec<Vec<Sent>>,
    pub(super) sessions: usize,
    pub(super) seconds: f64,
    /// Whether the outputs of a run on the first inputs are wanted.
    pub(super) outputs: bool,
}

/// What a measurement comes to, and the outputs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BenchAnswer {
    pub(super) figures: Figures,
    pub(super) outputs: Vec<Sent>,
}

/// A profile on inputs, or on noise.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ProfileRequest {
    pub(super) how: How,
    pub(super) inputs: Option<Vec<Sent>>,
    pub(super) seconds: f64,
    pub(super) by: By,
}

/// Why a job fails: the exit code of a program that fails so, and what its user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFailure {
    /// The exit code.
    pub code: u8,
    /// What the user is told.
    pub message: String,
}

impl JobFailure {
    fn new(exit: Exit, message: impl ToString) -> JobFailure {
        JobFailure { code: exit as u8, message: message.to_string() }
    }
}

impl From<LoadError> for JobFailure {
    fn from(error: LoadError) -> JobFailure {
        JobFailure::new((&error).into(), error)
    }
}

impl From<RunError> for JobFailure {
    fn from(error: RunError) -> JobFailure {
        JobFailure::new((&error).into(), exit::message(&error))
    }
}

impl From<NoiseError> for JobFailure {
    fn from(error: NoiseError) -> JobFailure {
        JobFailure::new((&error).into(), format!("{error}: give --inputs"))
    }
}

impl From<io::Error> for JobFailure {
    fn from(error: io::Error) -> JobFailure {
        JobFailure::new(Exit::Io, format!("cannot read what was uploaded: {error}"))
    }
}

/// Loads an artifact file for a device, or for what it has code for.
type Load<'l> = &'l dyn Fn(&Path, LoadOptions, Option<&str>) -> Result<Model, JobFailure>;

/// Does the job that a server tells by standard input; `load` loads artifacts, on a device where one is named.
///
/// # Errors
/// When the server cannot be heard or told.
pub fn work(load: Load<'_>) -> Result<(), FrameError> {
    worker::work(|call| {
        let done = match call.kind.as_str() {
            RUN => run(call, load),
            BENCH => time(call, load),
            PROFILE => profile(call, load),
            MEASURE => measure(call),
            other => Err(JobFailure::new(Exit::Unsupported, format!("no jobs of the kind `{other}`"))),
        };
        done.map_err(|JobFailure { code, message }| Failure { code, message })
    })
}

fn request<R: DeserializeOwned>(call: &Call) -> Result<R, JobFailure> {
    let request = postcard::from_bytes(&call.request);
    request
        .map_err(|error| JobFailure::new(Exit::Internal, format!("a request that makes no sense: {error}")))
}

fn reply(answer: &impl Serialize, blobs: Vec<Vec<u8>>) -> Result<Reply, JobFailure> {
    let answer = postcard::to_allocvec(answer).map_err(|error| JobFailure::new(Exit::Internal, error))?;
    Ok(Reply { answer, blobs })
}

/// The artifact of a job, and the files of its values.
fn files(call: &Call) -> Result<(&Path, &[std::path::PathBuf]), JobFailure> {
    let (artifact, values) = call
        .blobs
        .split_first()
        .ok_or_else(|| JobFailure::new(Exit::Internal, "a job without an artifact"))?;
    Ok((artifact, values))
}

/// The values that belong to `sent`, of the files of a job.
fn read(sent: &[Sent], files: &mut std::slice::Iter<'_, std::path::PathBuf>) -> Result<Named, JobFailure> {
    let bytes = files.by_ref().take(sent.len()).map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
    values::decode(sent, bytes).map_err(|error| JobFailure::new(Exit::Data, error))
}

fn outputs_of(model: &Model, given: &Named) -> Result<(Vec<Sent>, Vec<Vec<u8>>), JobFailure> {
    let made = model.run(inputs(given))?;
    let outputs: Named = made.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    Ok(values::encode(&outputs))
}

fn run(call: &Call, load: Load<'_>) -> Result<Reply, JobFailure> {
    let RunRequest { how, inputs } = request(call)?;
    let (artifact, files) = files(call)?;
    let model = load(artifact, how.options(), how.device.as_deref())?;
    let given = read(&inputs, &mut files.iter())?;
    let (outputs, blobs) = outputs_of(&model, &given)?;
    reply(&outputs, blobs)
}

fn time(call: &Call, load: Load<'_>) -> Result<Reply, JobFailure> {
    let BenchRequest { how, inputs, sessions, seconds, outputs } = request(call)?;
    let (artifact, files) = files(call)?;
    let mut files = files.iter();
    let sets = |model: &Model| match &inputs[..] {
        [] => Ok(vec![noise(model.inputs())?]),
        sets => sets.iter().map(|sent| read(sent, &mut files)).collect(),
    };
    let load = || load(artifact, how.options(), how.device.as_deref());
    let Measured { figures, model, inputs } = bench(load, sets, sessions, seconds)?;
    let (outputs, blobs) = match inputs.first().filter(|_| outputs) {
        Some(first) => outputs_of(&model, first)?,
        None => (Vec::new(), Vec::new()),
    };
    reply(&BenchAnswer { figures, outputs }, blobs)
}

fn profile(call: &Call, load: Load<'_>) -> Result<Reply, JobFailure> {
    let ProfileRequest { how, inputs: sent, seconds, by } = request(call)?;
    let (artifact, files) = files(call)?;
    let threads = how.threads.unwrap_or_else(available_threads);
    let options = how.options_but_threads().pool(Arc::new(ThreadPool::new(threads)));
    let model = load(artifact, options, how.device.as_deref())?;
    let given = match &sent {
        Some(sent) => read(sent, &mut files.iter())?,
        None => noise(model.inputs())?,
    };
    let named = inputs(&given);
    let arranged = model.inner().arrange(&named)?;
    let mut session = model.session();
    let profile = profile::measure(&mut session, &arranged, seconds)?;
    reply(&Report::new(session.program(), &profile, None, by, threads), Vec::new())
}

/// The schedules of the request are the job's blobs, whose files have their digests as names.
fn measure(call: &Call) -> Result<Reply, JobFailure> {
    let folder = call.blobs.first().and_then(|file| file.parent()).unwrap_or(Path::new(""));
    let answer = Bench::default().answer(&call.request, &BlobFolder::new(folder));
    let answer = answer.map_err(|error| JobFailure::new(Exit::Data, error))?;
    let answer = answer.to_bytes().map_err(|error| JobFailure::new(Exit::Internal, error))?;
    Ok(Reply { answer, blobs: Vec::new() })
}
