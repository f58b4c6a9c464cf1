//! Models as the user names them: ONNX files, which are compiled, and artifacts, which are loaded.

use std::path::Path;
use std::sync::Arc;

use tilewright::graph::{Graph, Type};
use tilewright::reference::Reference;
use tilewright::run::{Extent, Named, Spec, spec, values};
use tilewright::runtime::isa::Isa;
use tilewright::runtime::plan::Nesting;
use tilewright::runtime::threads::ThreadPool;
use tilewright::runtime::{Bytes, LoadError, Loader, Model, Session, SessionOptions, Tensor};
use tilewright::{Compiled, Machine, TensorData, Trust};

use crate::device::{CPU, DeviceArgs};
use crate::failure::Failure;
use crate::options::CompileArgs;
use crate::progress::Progress;
pub(crate) use crate::source::Source;

/// Compiles a model under the eyes of `progress`.
pub(crate) fn compile(path: &Path, args: &CompileArgs, progress: &mut Progress) -> Result<Compiled, Failure> {
    let mut options = args.options()?;
    if let Some(time) = args.search_time() {
        options.records = Arc::new(crate::tune::before_compiling(path, &options, args, time)?);
    }
    let compiled = tilewright::compile(path, &options, progress);
    let finished = progress.finish();
    let compiled = compiled.map_err(|error| Failure::from(error).about(path))?;
    finished?;
    Ok(compiled)
}

/// The inputs of a graph.
pub(crate) fn graph_inputs(graph: &Graph) -> Vec<Spec> {
    let names = graph
        .inputs()
        .iter()
        .map(|&value| graph.value(value).name.as_deref().unwrap_or_default().to_string());
    graph.inputs().iter().zip(names).map(|(&value, name)| graph_spec(graph, graph.ty(value), name)).collect()
}

/// The outputs of a graph.
pub(crate) fn graph_outputs(graph: &Graph) -> Vec<Spec> {
    let names = graph.region(graph.main()).result_names.iter().cloned();
    graph.outputs().iter().zip(names).map(|(&value, name)| graph_spec(graph, graph.ty(value), name)).collect()
}

fn graph_spec(graph: &Graph, mut ty: &Type, name: String) -> Spec {
    let mut nesting = Vec::new();
    let tensor = loop {
        let inner = match ty {
            Type::Tensor(tensor) => break tensor,
            Type::Sequence(inner) => (Nesting::Sequence, inner),
            Type::Optional(inner) => (Nesting::Optional, inner),
        };
        nesting.push(inner.0);
        ty = inner.1;
    };
    let extent = |dim: &tilewright::graph::Dim| match dim.as_const() {
        Some(n) => Extent::Fixed(n),
        None => Extent::Open(dim.display(&graph.symbols).to_string()),
    };
    let dims = tensor.shape.dims().map(|dims| dims.iter().map(extent).collect());
    Spec { name, nesting, dtype: tensor.dtype, dims }
}

/// A session on a pool of so many threads; without a number, of as many as the process may use.
pub(crate) fn session(model: &Model, threads: Option<usize>) -> Session {
    model.session_with(options(threads))
}

/// Sessions that share such a pool.
pub(crate) fn sessions(model: &Model, threads: Option<usize>, n: usize) -> Vec<Session> {
    let options = options(threads);
    (0..n).map(|_| model.session_with(options.clone())).collect()
}

fn options(threads: Option<usize>) -> SessionOptions {
    match threads {
        None => SessionOptions::default(),
        Some(threads) => {
            SessionOptions { pool: Arc::new(ThreadPool::new(threads)), ..SessionOptions::default() }
        }
    }
}

/// Variable that names a machine, as `--target` does: models are loaded as if this machine had no more.
const ISA: &str = "TILEWRIGHT_ISA";

/// The instruction set to load for.
pub(crate) fn isa() -> Result<Isa, Failure> {
    let native = Isa::native();
    let Some(name) = std::env::var_os(ISA).filter(|name| !name.is_empty()) else { return Ok(native) };
    let machine: Result<Machine, _> = name.to_string_lossy().parse();
    let machine = machine.map_err(|error| Failure::usage(format!("{ISA}: {error}")))?;
    Ok(native.common(&tilewright::isa(&machine)))
}

/// Loads for the machine that [`ISA`] names, else for this one.
fn loader() -> Result<Loader, Failure> {
    // Who names a model to the command would run it as they would the command.
    Ok(tilewright::loader(Trust::Origin).as_if_on(&isa()?))
}

/// Loads an artifact for the device that was asked for, else for that which it has code for.
fn load_with(
    device: &DeviceArgs,
    loader: Loader,
    load: impl Fn(&Loader) -> Result<Model, LoadError>,
) -> Result<Model, Failure> {
    let open = |name: &str| Ok::<_, Failure>(loader.clone().device(tilewright::devices::open(name)?));
    let asked = match device.name() {
        Some(CPU) => loader.clone().on_host(),
        Some(name) => open(name)?,
        None => loader.clone(),
    };
    match load(&asked) {
        Err(LoadError::NeedsDevice(kind)) if device.name().is_none() => Ok(load(&open(&kind)?)?),
        loaded => Ok(loaded?),
    }
}

/// Loads an artifact file.
pub(crate) fn load(path: &Path, verify_weights: bool, device: &DeviceArgs) -> Result<Model, Failure> {
    let model = load_with(device, loader()?.verify_weights(verify_weights), |loader| loader.load(path));
    model.map_err(|failure| failure.about(path))
}

/// Loads what was compiled in memory.
pub(crate) fn load_bytes(bytes: &Bytes, path: &Path, device: &DeviceArgs) -> Result<Model, Failure> {
    let model = load_with(device, loader()?, |loader| loader.from_bytes(bytes.clone()));
    model.map_err(|failure| failure.about(path))
}

/// A model ready to run, by machine code or by the interpreter.
pub(crate) enum Engine {
    /// Machine code.
    Compiled(Box<Session>),
    /// The interpreter on the simplified graph.
    Interpreter {
        /// The graph.
        graph: Box<Graph>,
        /// What random numbers are drawn by.
        seed: u64,
    },
}

impl Engine {
    /// Loads or compiles what the user named.
    pub(crate) fn new(
        source: &Source,
        args: &CompileArgs,
        threads: Option<usize>,
        device: &DeviceArgs,
    ) -> Result<Engine, Failure> {
        match source {
            Source::Artifact(path) => {
                args.refuse(&format!("{} is compiled already", path.display()))?;
                Ok(Engine::Compiled(Box::new(session(&load(path, false, device)?, threads))))
            }
            Source::Onnx(path) if args.interpret() => Engine::interpreter(path, args),
            Source::Onnx(path) => {
                let args = device.target_of(args);
                let compiled = compile(path, &args, &mut Progress::new(&args.dump_after))?;
                let bytes = compiled.artifact.to_bytes()?;
                drop(compiled);
                let model = load_bytes(&bytes, path, device)?;
                Ok(Engine::Compiled(Box::new(session(&model, threads))))
            }
        }
    }

    /// The interpreter for an ONNX file.
    pub(crate) fn interpreter(path: &Path, args: &CompileArgs) -> Result<Engine, Failure> {
        let graph = tilewright::load_graph(path, &args.options()?);
        let graph = graph.map_err(|error| Failure::from(error).about(path))?;
        Ok(Engine::Interpreter { graph: Box::new(graph), seed: 0 })
    }

    /// The model's inputs.
    pub(crate) fn inputs(&self) -> Vec<Spec> {
        match self {
            Engine::Compiled(session) => spec::inputs(session.model().plan()),
            Engine::Interpreter { graph, .. } => graph_inputs(graph),
        }
    }

    /// The model's outputs.
    pub(crate) fn outputs(&self) -> Vec<Spec> {
        match self {
            Engine::Compiled(session) => spec::outputs(session.model().plan()),
            Engine::Interpreter { graph, .. } => graph_outputs(graph),
        }
    }

    /// Sets what random numbers are drawn by.
    pub(crate) fn set_seed(&mut self, new: u64) {
        match self {
            Engine::Compiled(session) => session.set_seed(new),
            Engine::Interpreter { seed, .. } => *seed = new,
        }
    }

    /// Runs the model once on named inputs; the outputs in the model's order.
    pub(crate) fn run(&mut self, inputs: &Named) -> Result<Named, Failure> {
        match self {
            Engine::Compiled(session) => {
                let outputs = session.run_named(values::inputs(inputs))?;
                Ok(values::owned(&outputs)?)
            }
            Engine::Interpreter { graph, seed } => interpret(graph, *seed, inputs),
        }
    }
}

fn interpret(graph: &Graph, seed: u64, inputs: &Named) -> Result<Named, Failure> {
    let mut reference = Reference::new(graph)?;
    reference.set_seed(seed);
    reference.check()?;
    let named: Vec<_> = inputs.iter().map(|(name, value)| (name.as_str(), value.as_tensor())).collect();
    let data = |tensor: &Tensor| TensorData {
        dtype: tensor.dtype(),
        shape: tensor.dims().iter().map(|&dim| dim as i64).collect(),
        bytes: tensor.bytes().to_vec(),
    };
    let data: Vec<TensorData> = reference.arrange(&named)?.into_iter().map(data).collect();
    let outputs = reference.run(&data, &mut |_, _| {})?;
    let names = graph_outputs(graph).into_iter().map(|spec| spec.name);
    let tensor = |data: TensorData| {
        let dims = data.shape.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
        Ok::<_, Failure>(Tensor::from_bytes(data.dtype, &dims.map_err(Failure::data)?, data.bytes)?)
    };
    names.zip(outputs).map(|(name, data)| Ok((name, tensor(data)?.into()))).collect()
}
