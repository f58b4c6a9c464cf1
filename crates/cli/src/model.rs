//! Models as the user names them: ONNX files, which are compiled, and artifacts, which are loaded.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tilewright::graph::{Graph, Tensor, Type};
use tilewright::reference::{Reference, tensor_data};
use tilewright::runtime::artifact::MAGIC;
use tilewright::runtime::plan::{Plan, SizeDef, TensorSpec};
use tilewright::runtime::threads::ThreadPool;
use tilewright::runtime::{InputError, InputErrors, Loader, Model, Session, SessionOptions, TensorView};
use tilewright::{Compiled, DType, TensorData};

use crate::failure::{Exit, Failure};
use crate::options::CompileArgs;
use crate::progress::Progress;

/// A file the user named.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A model to compile.
    Onnx(PathBuf),
    /// A compiled one.
    Artifact(PathBuf),
}

impl Source {
    /// Tells the two apart by their first bytes; a damaged artifact by its name.
    pub(crate) fn of(path: &Path) -> Result<Source, Failure> {
        let fail = |error| Failure::read(path, &error);
        // A pipe would keep its reader waiting.
        if !std::fs::metadata(path).map_err(fail)?.is_file() {
            return Err(Failure::data(format!("{}: not a regular file", path.display())));
        }
        let mut start = Vec::new();
        let file = File::open(path).map_err(fail)?;
        file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(fail)?;
        let is_artifact = start == MAGIC || path.extension().is_some_and(|extension| extension == "twm");
        Ok(if is_artifact { Source::Artifact(path.into()) } else { Source::Onnx(path.into()) })
    }
}

/// Compiles a model under the eyes of `progress`.
pub(crate) fn compile(path: &Path, args: &CompileArgs, progress: &mut Progress) -> Result<Compiled, Failure> {
    let compiled = tilewright::compile(path, &args.options()?, progress);
    let finished = progress.finish();
    let compiled = compiled.map_err(|error| Failure::from(error).about(path))?;
    finished?;
    Ok(compiled)
}

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Its name.
    pub(crate) name: String,
    /// Element type.
    pub(crate) dtype: DType,
    /// Extents, outermost first.
    pub(crate) dims: Vec<Extent>,
}

/// One extent of an input or output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Known.
    Fixed(i64),
    /// Open, or computed from open ones; empty where it has no name.
    Open(String),
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}[", self.name, self.dtype)?;
        for (i, dim) in self.dims.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match dim {
                Extent::Fixed(n) => write!(f, "{n}")?,
                Extent::Open(name) if name.is_empty() => f.write_str("?")?,
                Extent::Open(name) => f.write_str(name)?,
            }
        }
        f.write_str("]")
    }
}

impl Spec {
    /// As a JSON object.
    pub(crate) fn json(&self) -> serde_json::Value {
        let dims: Vec<serde_json::Value> = self
            .dims
            .iter()
            .map(|dim| match dim {
                Extent::Fixed(n) => (*n).into(),
                Extent::Open(name) => name.as_str().into(),
            })
            .collect();
        serde_json::json!({"name": self.name, "dtype": self.dtype.name(), "dims": dims})
    }
}

/// The inputs or outputs of a plan.
pub(crate) fn plan_specs(plan: &Plan, tensors: &[TensorSpec]) -> Vec<Spec> {
    let spec = |tensor: &TensorSpec| Spec {
        name: tensor.name.clone(),
        dtype: tensor.dtype,
        dims: tensor
            .dims
            .iter()
            .map(|dim| match plan.sizes[dim.size.index()] {
                SizeDef::Const(n) => Extent::Fixed(n),
                _ => Extent::Open(dim.name.clone().unwrap_or_default()),
            })
            .collect(),
    };
    tensors.iter().map(spec).collect()
}

/// The inputs of a graph.
pub(crate) fn graph_inputs(graph: &Graph) -> Result<Vec<Spec>, Failure> {
    let names = graph
        .inputs()
        .iter()
        .map(|&value| graph.value(value).name.as_deref().unwrap_or_default().to_string());
    graph.inputs().iter().zip(names).map(|(&value, name)| graph_spec(graph, graph.ty(value), name)).collect()
}

/// The outputs of a graph.
pub(crate) fn graph_outputs(graph: &Graph) -> Result<Vec<Spec>, Failure> {
    let names = graph.region(graph.main()).result_names.iter().cloned();
    graph.outputs().iter().zip(names).map(|(&value, name)| graph_spec(graph, graph.ty(value), name)).collect()
}

fn graph_spec(graph: &Graph, ty: &Type, name: String) -> Result<Spec, Failure> {
    let dims = ty.as_tensor().and_then(|tensor| Some((tensor.dtype, tensor.shape.dims()?)));
    let Some((dtype, dims)) = dims else {
        let message = format!("{name:?} has type {}, which cannot be run yet", ty.display(&graph.symbols));
        return Err(Failure::new(Exit::Unsupported, message));
    };
    let extent = |dim: &tilewright::graph::Dim| match dim.as_const() {
        Some(n) => Extent::Fixed(n),
        None => Extent::Open(dim.display(&graph.symbols).to_string()),
    };
    Ok(Spec { name, dtype, dims: dims.iter().map(extent).collect() })
}

/// A pool of so many threads; without a number, of as many as the process may use.
pub(crate) fn session(model: &Model, threads: Option<usize>) -> Session {
    match threads {
        None => model.session(),
        Some(threads) => model.session_with(SessionOptions {
            pool: Arc::new(ThreadPool::new(threads)),
            ..SessionOptions::default()
        }),
    }
}

/// Loads an artifact file.
pub(crate) fn load(path: &Path, verify_weights: bool) -> Result<Model, Failure> {
    let model = Loader::new().verify_weights(verify_weights).load(path);
    model.map_err(|error| Failure::from(error).about(path))
}

/// A model ready to run, by machine code or by the interpreter.
pub(crate) enum Engine {
    /// Machine code.
    Compiled(Box<Session>),
    /// The interpreter on the simplified graph.
    Interpreter(Box<Graph>),
}

impl Engine {
    /// Loads or compiles what the user named.
    pub(crate) fn new(
        source: &Source,
        args: &CompileArgs,
        threads: Option<usize>,
    ) -> Result<Engine, Failure> {
        match source {
            Source::Artifact(path) => {
                args.refuse(&format!("{} is compiled already", path.display()))?;
                Ok(Engine::Compiled(Box::new(session(&load(path, false)?, threads))))
            }
            Source::Onnx(path) if args.interpret() => Engine::interpreter(path, args),
            Source::Onnx(path) => {
                let compiled = compile(path, args, &mut Progress::new(&args.dump_after))?;
                let bytes = compiled.artifact.to_bytes()?;
                drop(compiled);
                let model = Model::from_bytes(bytes).map_err(|error| Failure::from(error).about(path))?;
                Ok(Engine::Compiled(Box::new(session(&model, threads))))
            }
        }
    }

    /// The interpreter for an ONNX file.
    pub(crate) fn interpreter(path: &Path, args: &CompileArgs) -> Result<Engine, Failure> {
        let graph = tilewright::load_graph(path, &args.options()?);
        Ok(Engine::Interpreter(Box::new(graph.map_err(|error| Failure::from(error).about(path))?)))
    }

    /// The model's inputs.
    pub(crate) fn inputs(&self) -> Result<Vec<Spec>, Failure> {
        match self {
            Engine::Compiled(session) => Ok(plan_specs(session.model().plan(), session.model().inputs())),
            Engine::Interpreter(graph) => graph_inputs(graph),
        }
    }

    /// The model's outputs.
    pub(crate) fn outputs(&self) -> Result<Vec<Spec>, Failure> {
        match self {
            Engine::Compiled(session) => Ok(plan_specs(session.model().plan(), session.model().outputs())),
            Engine::Interpreter(graph) => graph_outputs(graph),
        }
    }

    /// Runs the model once on named inputs; the outputs in the model's order.
    pub(crate) fn run(&mut self, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, Failure> {
        match self {
            Engine::Compiled(session) => {
                let specs = plan_specs(session.model().plan(), session.model().inputs());
                let views: Vec<TensorView<'_>> =
                    check_inputs(&specs, inputs)?.into_iter().filter_map(view).collect();
                let outputs = session.run(&views)?;
                outputs.iter().map(|(name, view)| Ok((name.to_string(), tensor_of(&view)?))).collect()
            }
            Engine::Interpreter(graph) => interpret(graph, inputs),
        }
    }
}

/// A tensor as the runtime sees it; `None` for strings.
fn view(tensor: &Tensor) -> Option<TensorView<'_>> {
    Some(TensorView::new(tensor.dtype(), tensor.dims(), tensor.bytes()?.as_slice()))
}

fn tensor_of(view: &TensorView<'_>) -> Result<Tensor, Failure> {
    Tensor::from_bytes(view.dtype, view.dims.to_vec(), view.bytes.to_vec().into()).map_err(Failure::data)
}

fn interpret(graph: &Graph, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, Failure> {
    let specs = graph_inputs(graph)?;
    let ordered = check_inputs(&specs, inputs)?;
    let data: Vec<TensorData> = ordered.into_iter().map(tensor_data).collect();
    let outputs = Reference::new(graph)?.run(&data, &mut |_, _| {})?;
    let names = graph_outputs(graph)?.into_iter().map(|spec| spec.name);
    let tensor = |data: TensorData| {
        let dims = data.shape.iter().map(|&dim| usize::try_from(dim)).collect::<Result<_, _>>();
        Tensor::from_bytes(data.dtype, dims.map_err(Failure::data)?, data.bytes.into()).map_err(Failure::data)
    };
    names.zip(outputs).map(|(name, data)| Ok((name, tensor(data)?))).collect()
}

/// Holds inputs against what a model wants and tells every problem at once; the tensors in the model's order.
pub(crate) fn check_inputs<'t>(
    specs: &[Spec],
    inputs: &'t [(String, Tensor)],
) -> Result<Vec<&'t Tensor>, Failure> {
    let mut errors = Vec::new();
    for (name, _) in inputs {
        if !specs.iter().any(|spec| spec.name == *name) {
            let known: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
            errors.push(InputError::Unknown { name: name.clone(), known: known.join(", ") });
        }
    }
    let mut ordered = Vec::with_capacity(specs.len());
    let mut open: Vec<(&str, usize)> = Vec::new();
    for spec in specs {
        let name = || spec.name.clone();
        let Some((_, tensor)) = inputs.iter().find(|(name, _)| *name == spec.name) else {
            errors.push(InputError::Missing { name: name() });
            continue;
        };
        if tensor.dtype() != spec.dtype {
            errors.push(InputError::DType { name: name(), expected: spec.dtype, got: tensor.dtype() });
        }
        if tensor.dims().len() != spec.dims.len() {
            let (expected, got) = (spec.dims.len(), tensor.dims().len());
            errors.push(InputError::Rank { name: name(), expected, got });
        }
        for (axis, (dim, &got)) in spec.dims.iter().zip(tensor.dims()).enumerate() {
            let (symbol, expected) = match dim {
                Extent::Fixed(n) => (None, *n),
                Extent::Open(symbol) if symbol.is_empty() => continue,
                Extent::Open(symbol) => match open.iter().find(|(known, _)| known == symbol) {
                    Some(&(_, value)) => (Some(symbol.clone()), value as i64),
                    None => {
                        open.push((symbol, got));
                        continue;
                    }
                },
            };
            if i64::try_from(got) != Ok(expected) {
                errors.push(InputError::Dim { name: name(), axis, symbol, expected: Some(expected), got });
            }
        }
        ordered.push(tensor);
    }
    if errors.is_empty() { Ok(ordered) } else { Err(InputErrors(errors).into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, dtype: DType, dims: &[&str]) -> Spec {
        let extent = |dim: &&str| dim.parse().map_or_else(|_| Extent::Open(dim.to_string()), Extent::Fixed);
        Spec { name: name.to_string(), dtype, dims: dims.iter().map(extent).collect() }
    }

    #[test]
    fn every_problem_with_inputs_is_told_at_once() {
        let specs =
            [spec("x", DType::F32, &["n", "2"]), spec("y", DType::I64, &["n"]), spec("z", DType::F32, &[])];
        let x = Tensor::from_elements(&[3, 4], &[0f32; 12]).unwrap();
        let inputs = [
            ("x".to_string(), x),
            ("y".to_string(), Tensor::vector(&[1i32, 2])),
            ("w".to_string(), Tensor::scalar(1f32)),
        ];
        let failure = check_inputs(&specs, &inputs).unwrap_err();
        assert_eq!(failure.code, 5);
        let expected = "the inputs do not fit the model:\n  the model has no input \"w\" (it has x, y, z)\n  \
                        \"x\": axis 1 must be 2, got 4\n  \"y\": expected element type i64, got i32\n  \
                        \"y\": axis 0 must be n = 3, got 2\n  input \"z\" is missing";
        assert_eq!(failure.message, expected);
    }

    #[test]
    fn specs_print() {
        assert_eq!(spec("x", DType::F32, &["n", "2"]).to_string(), "x: f32[n, 2]");
        assert_eq!(spec("s", DType::Bool, &[]).to_string(), "s: bool[]");
    }
}
