//! The compiler as a value: what to compile for and how is said step by step, and then models go in and artifacts come out.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tilewright_graph::Graph;
use tilewright_graph::pass::{Pass, UserPass};
use tilewright_machine::{CodegenKind, Target};
use tilewright_onnx::{OnnxModel, export};
use tilewright_runtime::Cancel;
use tilewright_tune::{JournalError, Lookup, shipped};

use crate::artifact::Artifact;
use crate::cache::Cache;
use crate::compile::{Compiled, compile_any, compile_model, graph_of, timed};
use crate::devices;
use crate::error::CompileError;
use crate::library::{self, Library};
use crate::options::{CompileObserver, DimOption, Numerics, Options};
use crate::records;
use crate::search::{self, Found};
use crate::stack::on_own_stack;

/// Compiles models: options with the defaults of the command line, each with a method of its name.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tilewright_driver::{Compiler, Mode};
///
/// let artifact = Compiler::new().target("cpu")?.dim("batch", 1).mode(Mode::Default).compile("model.onnx")?;
/// artifact.write("model.twm")?;
/// # Ok(())
/// # }
/// ```
///
/// It reads and writes no file that it is not told of: functions are compiled afresh unless there is a [`cache`](Compiler::cache),
/// and scheduled by the records of tuning that come with the crate unless others are [given](Compiler::records).
#[derive(Clone, Debug)]
pub struct Compiler {
    mode: Mode,
    options: Options,
    found: Option<Found>,
}

/// What to optimise for, and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Good code quickly.
    #[default]
    Default,
    /// Least time between kernels, and between runs that follow one another soon: threads wait awake, and GPUs are given graphs.
    ReduceOverhead,
    /// A search for the fastest schedules first, measured on this machine. The model is compiled by what is found where that makes all
    /// of it faster: [`Compiled::search`] tells.
    MaxAutotune {
        /// How long to search.
        time: Duration,
    },
}

impl Mode {
    /// How long a search takes unless told otherwise.
    pub const SEARCH: Duration = Duration::from_secs(180);
}

impl FromStr for Mode {
    type Err = CompileError;

    fn from_str(name: &str) -> Result<Mode, CompileError> {
        match name {
            "default" => Ok(Mode::Default),
            "reduce-overhead" => Ok(Mode::ReduceOverhead),
            "max-autotune" => Ok(Mode::MaxAutotune { time: Mode::SEARCH }),
            _ => Err(CompileError::Option(format!(
                "unknown mode `{name}`: default, reduce-overhead or max-autotune"
            ))),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Default => "default",
            Mode::ReduceOverhead => "reduce-overhead",
            Mode::MaxAutotune { .. } => "max-autotune",
        })
    }
}

/// The extents that an open dimension may have: one, or all of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    lo: i64,
    hi: i64,
    step: Option<i64>,
}

impl Extents {
    /// Programs are specialised for the multiples of `step` in the range, which are faster than that for all extents.
    #[must_use]
    pub fn step(self, step: i64) -> Extents {
        Extents { step: Some(step), ..self }
    }
}

impl From<i64> for Extents {
    fn from(extent: i64) -> Extents {
        Extents { lo: extent, hi: extent, step: None }
    }
}

impl From<i32> for Extents {
    fn from(extent: i32) -> Extents {
        Extents::from(i64::from(extent))
    }
}

impl From<RangeInclusive<i64>> for Extents {
    fn from(range: RangeInclusive<i64>) -> Extents {
        Extents { lo: *range.start(), hi: *range.end(), step: None }
    }
}

/// A model to compile.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Source {
    /// An ONNX file, with its external data beside it.
    Path(PathBuf),
    /// The bytes of an ONNX model.
    Bytes(Vec<u8>),
    /// A decoded ONNX model.
    Onnx(Box<OnnxModel>),
    /// A graph of the compiler's own operators, which it takes by their ONNX form.
    Graph(Box<Graph>),
}

impl From<&str> for Source {
    fn from(path: &str) -> Source {
        Source::Path(path.into())
    }
}

impl From<String> for Source {
    fn from(path: String) -> Source {
        Source::Path(path.into())
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Source {
        Source::Path(path.into())
    }
}

impl From<&PathBuf> for Source {
    fn from(path: &PathBuf) -> Source {
        Source::Path(path.clone())
    }
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Source {
        Source::Path(path)
    }
}

impl From<&[u8]> for Source {
    fn from(bytes: &[u8]) -> Source {
        Source::from(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Source {
    fn from(bytes: Vec<u8>) -> Source {
        Source::Bytes(bytes)
    }
}

impl From<OnnxModel> for Source {
    fn from(model: OnnxModel) -> Source {
        Source::Onnx(Box::new(model))
    }
}

impl From<Graph> for Source {
    fn from(graph: Graph) -> Source {
        Source::Graph(Box::new(graph))
    }
}

impl Source {
    /// The ONNX model.
    ///
    /// # Errors
    /// Where the file cannot be read, what is read is no model, or a node of a graph has no ONNX form.
    pub(crate) fn model(self) -> Result<OnnxModel, CompileError> {
        match self {
            Source::Path(path) => Ok(OnnxModel::load(path)?),
            Source::Bytes(bytes) => Ok(OnnxModel::from_bytes(bytes.into())?),
            Source::Onnx(model) => Ok(*model),
            Source::Graph(graph) => {
                let proto = export(&graph).map_err(|error| CompileError::Invalid(error.to_string()))?;
                Ok(OnnxModel::from_proto(proto)?)
            }
        }
    }
}

impl From<Options> for Compiler {
    /// A compiler by these options, in the default mode but for what they say of threads.
    fn from(options: Options) -> Compiler {
        let mode = if options.keep_awake { Mode::ReduceOverhead } else { Mode::Default };
        Compiler { mode, options, found: None }
    }
}

impl Default for Compiler {
    fn default() -> Compiler {
        Compiler::new()
    }
}

impl Compiler {
    /// A compiler for this machine's processor, by the best code generator of this build and the records of tuning that come with it.
    pub fn new() -> Compiler {
        let options = Options::host(Options::best_codegen());
        let records = Arc::new(Lookup::new([shipped::records().clone()]));
        Compiler::from(Options { records, ..options })
    }

    /// What to compile for: `cpu` for this machine's processor, `cuda` for its GPU, or a name that `tilewright targets` lists, as
    /// `x86-64-v3` or `cuda:sm_90`. Of several, with commas between, the artifact has code for each, and the best that a machine can run
    /// is taken there.
    ///
    /// # Errors
    /// Where a name is unknown, or one has the features of another one in the list.
    pub fn target(mut self, names: &str) -> Result<Compiler, CompileError> {
        let mut targets = targets(names, self.options.target.codegen.kind)?;
        self.options.target = targets.remove(0);
        self.options.more_targets = targets;
        Ok(self)
    }

    /// What makes the machine code, where that is not to be the best of this build. One that is not in this build takes the functions that
    /// are in the cache.
    #[must_use]
    pub fn codegen(mut self, codegen: CodegenKind) -> Compiler {
        for target in std::iter::once(&mut self.options.target).chain(&mut self.options.more_targets) {
            target.codegen = codegen.describe();
        }
        self
    }

    /// What to optimise for.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Compiler {
        let options = Options { keep_awake: mode == Mode::ReduceOverhead, ..self.options };
        Compiler { mode, options, ..self }
    }

    /// The extents that an open dimension may have; `INPUT[AXIS]` is the name of one without. Said again of a dimension, the last word
    /// counts.
    #[must_use]
    pub fn dim(mut self, name: &str, extents: impl Into<Extents>) -> Compiler {
        let Extents { lo, hi, step } = extents.into();
        self.options.dims.retain(|dim| dim.name != name);
        self.options.dims.push(DimOption { name: name.to_string(), lo, hi, step });
        self
    }

    /// Which reassociations and algorithms are allowed.
    #[must_use]
    pub fn numerics(mut self, numerics: Numerics) -> Compiler {
        self.options.numerics = numerics;
        self
    }

    /// Where compiled functions are kept and looked for.
    #[must_use]
    pub fn cache(mut self, cache: Cache) -> Compiler {
        self.options.cache = Some(cache);
        self
    }

    /// Schedules functions by the records of tuning in a file first, as `tilewright tune` writes it, then by those that come with the
    /// crate.
    ///
    /// # Errors
    /// Where the file is there and cannot be read.
    pub fn records(mut self, path: impl AsRef<Path>) -> Result<Compiler, JournalError> {
        self.options.records = Arc::new(records::lookup(Some(path.as_ref()))?);
        Ok(self)
    }

    /// Schedules functions by the rules alone, without records of tuning.
    #[must_use]
    pub fn without_records(mut self) -> Compiler {
        self.options.records = Arc::default();
        self
    }

    /// Compiles by what a search for the model's schedules found, if that makes the model faster here, else without. The mode
    /// [`Mode::MaxAutotune`] does both; this is for a search that was made otherwise, as on a device.
    #[must_use]
    pub fn found(mut self, found: Found) -> Compiler {
        self.found = Some(found);
        self
    }

    /// Threads that the compiler uses at most; the artifact does not depend on it.
    #[must_use]
    pub fn jobs(mut self, jobs: usize) -> Compiler {
        self.options.jobs = jobs.max(1);
        self
    }

    /// Switches graph passes off and on: `-sink,+raise`. Names are those of the pipeline, and of the user's passes; an unknown one is an
    /// error of the compilation, which lists them.
    #[must_use]
    pub fn select_passes(mut self, selection: &str) -> Compiler {
        self.options.passes.selection.push(selection.to_string());
        self
    }

    /// For how long graph passes begin. After that only those run that others rely on, once; the observer is warned of what was left out.
    #[must_use]
    pub fn pass_timeout(mut self, limit: Duration) -> Compiler {
        self.options.passes.limit = Some(limit);
        self
    }

    /// Runs a pass of one's own on the graph as imported, behind such passes that were given before. The graph that it leaves is verified.
    #[must_use]
    pub fn first_pass(mut self, pass: impl Pass + Send + Sync + 'static) -> Compiler {
        self.options.passes.first.push(UserPass::new(pass));
        self
    }

    /// Runs a pass of one's own on the simplified graph, behind such passes that were given before. The graph that it leaves is verified,
    /// and simplified again. Operators are the compiler's own there: fragments are raised, and extents known as far as they can be.
    #[must_use]
    pub fn last_pass(mut self, pass: impl Pass + Send + Sync + 'static) -> Compiler {
        self.options.passes.last.push(UserPass::new(pass));
        self
    }

    /// Asks compilations to stop, from any thread: they do as soon as the functions in work are done, and write nothing. So do writing and
    /// loading an [`Artifact`], whose weights are packed on the way.
    #[must_use]
    pub fn cancel(mut self, cancel: Cancel) -> Compiler {
        self.options.cancel = cancel;
        self
    }

    /// All that is said so far, but for the mode's search.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Compiles a model: a path, bytes, an [`OnnxModel`] or a [`Graph`].
    ///
    /// # Errors
    /// [`CompileError`], by whose fault it is: all that is wrong with a model or its dimensions at once.
    pub fn compile(&self, model: impl Into<Source>) -> Result<Artifact, CompileError> {
        self.compile_with(model, &mut ()).map(|compiled| compiled.artifact)
    }

    /// The graph of a model once all passes have run on it, its own and the user's: what [`export`] makes ONNX of.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn simplify(&self, model: impl Into<Source>) -> Result<Graph, CompileError> {
        let source = model.into();
        on_own_stack(move || graph_of(&self.load(source, &mut ())?, &self.options))
    }

    /// Compiles a model under the eyes of an observer; what the compiler knows of it comes with the artifact.
    ///
    /// # Errors
    /// As [`Compiler::compile`].
    pub fn compile_with(
        &self,
        model: impl Into<Source>,
        observer: &mut (dyn CompileObserver + Send),
    ) -> Result<Compiled, CompileError> {
        let source = model.into();
        on_own_stack(move || {
            let model = self.load(source, observer)?;
            self.compile_onnx(&model, observer)
        })
    }

    /// Compiles a model to a library for other people's builds, whose function is `NAME_run`.
    ///
    /// # Errors
    /// As [`Compiler::compile`] and [`Artifact::library`].
    pub fn library(&self, model: impl Into<Source>, name: &str) -> Result<Library, CompileError> {
        self.library_with(model, name, &mut ())
    }

    /// As [`Compiler::library`], under the eyes of an observer.
    ///
    /// # Errors
    /// As [`Compiler::library`].
    pub fn library_with(
        &self,
        model: impl Into<Source>,
        name: &str,
        observer: &mut (dyn CompileObserver + Send),
    ) -> Result<Library, CompileError> {
        library::check_name(name)?;
        let source = model.into();
        let is_text = !self.options.target.codegen.kind.makes_machine_code();
        let compiled = on_own_stack(move || {
            let model = self.load(source, observer)?;
            match is_text {
                true => compile_any(&model, &self.options, observer),
                false => self.compile_onnx(&model, observer),
            }
        });
        compiled?.artifact.library(name)
    }

    /// Reads a model, once what is said of dimensions makes sense.
    pub(crate) fn load(
        &self,
        source: Source,
        observer: &mut dyn CompileObserver,
    ) -> Result<OnnxModel, CompileError> {
        self.check_dims()?;
        timed("load", &self.options, observer, |_| source.model())
    }

    /// Compiles on the stack of the caller, as the mode says.
    pub(crate) fn compile_onnx(
        &self,
        model: &OnnxModel,
        observer: &mut dyn CompileObserver,
    ) -> Result<Compiled, CompileError> {
        match (&self.found, self.mode) {
            (Some(found), _) => search::compile_faster(model, &self.options, found, observer),
            (None, Mode::MaxAutotune { time }) => {
                let found = search::of_model(model, &self.options, time)?;
                search::compile_faster(model, &self.options, &found, observer)
            }
            (None, Mode::Default | Mode::ReduceOverhead) => compile_model(model, &self.options, observer),
        }
    }

    /// Everything that is wrong with what is said of dimensions.
    fn check_dims(&self) -> Result<(), CompileError> {
        let of = |dim: &DimOption| match &dim.problems()[..] {
            [] => None,
            problems => Some(format!("dimension `{dim}`: {}", problems.join("; "))),
        };
        let problems: Vec<String> = self.options.dims.iter().filter_map(of).collect();
        if problems.is_empty() { Ok(()) } else { Err(CompileError::Option(problems.join("\n"))) }
    }
}

/// The targets of a list with commas between; `cuda` alone is this machine's GPU.
///
/// # Errors
/// Where a name is unknown, or one has the features of another one.
fn targets(list: &str, codegen: CodegenKind) -> Result<Vec<Target>, CompileError> {
    let mut targets: Vec<Target> = Vec::new();
    for name in list.split(',').map(str::trim) {
        // In `cuda:sm_80,sm_90` the second is of the first one's kind.
        let before = targets.last().and_then(|target| target.device).filter(|_| name.starts_with("sm_"));
        let name = match (name, before) {
            ("cuda", _) => devices::cuda_gpu().map_or(name.to_string(), |gpu| format!("cuda:{gpu}")),
            (name, None) => name.to_string(),
            (name, Some(kind)) => format!("{kind}:{name}"),
        };
        let target = Target::parse(&name, codegen)?;
        // By the same features the loader could not choose.
        let machine = &target.machine;
        let is_same = |t: &Target| {
            (t.device, t.gpu, t.machine.arch) == (target.device, target.gpu, machine.arch)
                && t.machine.features == machine.features
        };
        if targets.iter().any(is_same) {
            let message = format!("target {name} has the features of another one in the list");
            return Err(CompileError::Option(message));
        }
        targets.push(target);
    }
    Ok(targets)
}
