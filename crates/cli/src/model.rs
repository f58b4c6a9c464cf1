//! Models as the user names them: ONNX files, which are compiled, and artifacts, which are loaded.

use std::path::Path;
use std::sync::Arc;

use tilewright::graph::{Graph, Tensor, Type};
use tilewright::reference::{Reference, tensor_data};
use tilewright::runtime::isa::Isa;
use tilewright::runtime::plan::{Nesting, Plan, SizeDef, TensorSpec, ValueSpec};
use tilewright::runtime::threads::ThreadPool;
use tilewright::runtime::{self, Bytes, LoadError, Loader, Model, Session, SessionOptions, TensorView};
use tilewright::{Compiled, Machine, TensorData, Trust};

use crate::device::{CPU, DeviceArgs};
use crate::failure::Failure;
use crate::options::CompileArgs;
use crate::progress::Progress;
pub(crate) use crate::source::Source;
pub(crate) use crate::spec::{Extent, Spec};
use crate::value::{Named, Value};

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

/// The inputs of a plan, in the model's order.
pub(crate) fn plan_inputs(plan: &Plan) -> Vec<Spec> {
    in_order(plan_specs(plan, &plan.inputs), value_specs(plan, &plan.value_inputs))
}

/// The outputs of a plan, in the model's order.
pub(crate) fn plan_outputs(plan: &Plan) -> Vec<Spec> {
    in_order(plan_specs(plan, &plan.outputs), value_specs(plan, &plan.value_outputs))
}

/// Puts tensors and other values, these with their positions, into the model's order.
fn in_order<T>(tensors: Vec<T>, values: Vec<(u32, T)>) -> Vec<T> {
    let mut all = tensors;
    for (position, value) in values {
        all.insert((position as usize).min(all.len()), value);
    }
    all
}

fn value_specs(plan: &Plan, values: &[ValueSpec]) -> Vec<(u32, Spec)> {
    let extent = |dim: &Option<u64>| match dim.map(i64::try_from) {
        Some(Ok(n)) => Extent::Fixed(n),
        Some(Err(_)) | None => Extent::Open(String::new()),
    };
    let spec = |value: &ValueSpec| {
        let ty = &plan.values[value.value.index()];
        let dims = ty.dims.as_ref().map(|dims| dims.iter().map(extent).collect());
        let spec = Spec { name: value.name.clone(), nesting: ty.nesting.clone(), dtype: ty.dtype, dims };
        (value.position, spec)
    };
    values.iter().map(spec).collect()
}

fn plan_specs(plan: &Plan, tensors: &[TensorSpec]) -> Vec<Spec> {
    let extent = |dim: &tilewright::runtime::plan::DimSpec| match plan.sizes[dim.size.index()] {
        SizeDef::Const(n) => Extent::Fixed(n),
        _ => Extent::Open(dim.name.clone().unwrap_or_default()),
    };
    let spec = |tensor: &TensorSpec| Spec {
        name: tensor.name.clone(),
        nesting: Vec::new(),
        dtype: tensor.dtype,
        dims: Some(tensor.dims.iter().map(extent).collect()),
    };
    tensors.iter().map(spec).collect()
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
            Engine::Compiled(session) => plan_inputs(session.model().plan()),
            Engine::Interpreter { graph, .. } => graph_inputs(graph),
        }
    }

    /// The model's outputs.
    pub(crate) fn outputs(&self) -> Vec<Spec> {
        match self {
            Engine::Compiled(session) => plan_outputs(session.model().plan()),
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
                let outputs =
                    session.run_named(to_runtime(inputs)?.iter().map(|(name, value)| (name, value)))?;
                let tensors = outputs
                    .iter()
                    .map(|(name, view)| Ok((name.to_string(), Value::Tensor(tensor_of(&view)?))))
                    .collect::<Result<_, Failure>>()?;
                let values = outputs
                    .values()
                    .map(|(spec, value)| Ok((spec.position, (spec.name.clone(), Value::of_runtime(value)?))))
                    .collect::<Result<_, Failure>>()?;
                Ok(in_order(tensors, values))
            }
            Engine::Interpreter { graph, seed } => interpret(graph, *seed, inputs),
        }
    }
}

/// Named values as the runtime takes them, without a copy from here on.
pub(crate) fn to_runtime(inputs: &Named) -> Result<Vec<(String, runtime::Value)>, Failure> {
    inputs.iter().map(|(name, value)| Ok((name.clone(), value.to_runtime()?))).collect()
}

fn tensor_of(view: &TensorView<'_>) -> Result<Tensor, Failure> {
    Tensor::from_bytes(view.dtype, view.dims.to_vec(), view.bytes.to_vec().into()).map_err(Failure::data)
}

fn interpret(graph: &Graph, seed: u64, inputs: &Named) -> Result<Named, Failure> {
    let mut reference = Reference::new(graph)?;
    reference.set_seed(seed);
    reference.check()?;
    let named: Vec<_> = inputs.iter().map(|(name, value)| (name.as_str(), value.as_tensor())).collect();
    let data: Vec<TensorData> = reference.arrange(&named)?.into_iter().map(tensor_data).collect();
    let outputs = reference.run(&data, &mut |_, _| {})?;
    let names = graph_outputs(graph).into_iter().map(|spec| spec.name);
    let tensor = |data: TensorData| {
        let dims = data.shape.iter().map(|&dim| usize::try_from(dim)).collect::<Result<_, _>>();
        Tensor::from_bytes(data.dtype, dims.map_err(Failure::data)?, data.bytes.into()).map_err(Failure::data)
    };
    names.zip(outputs).map(|(name, data)| Ok((name, Value::Tensor(tensor(data)?)))).collect()
}

#[cfg(test)]
mod tests {
    use tilewright::DType;

    use super::*;

    fn spec(name: &str, dtype: DType, dims: &[&str]) -> Spec {
        let extent = |dim: &&str| dim.parse().map_or_else(|_| Extent::Open(dim.to_string()), Extent::Fixed);
        Spec { name: name.to_string(), nesting: vec![], dtype, dims: Some(dims.iter().map(extent).collect()) }
    }

    #[test]
    fn specs_print() {
        assert_eq!(spec("x", DType::F32, &["n", "2"]).to_string(), "x: f32[n, 2]");
        assert_eq!(spec("s", DType::Bool, &[]).to_string(), "s: bool[]");
        let nesting = vec![Nesting::Optional, Nesting::Sequence];
        let spec = Spec { name: "o".to_string(), nesting, dtype: DType::I64, dims: None };
        assert_eq!(spec.to_string(), "o: opt(seq(i64[*]))");
    }
}
