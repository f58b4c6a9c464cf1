//! What runs a model: its machine code, or the interpreter on its graph.

use std::sync::Arc;

use tilewright_graph::Graph;
use tilewright_run::{Model, Named, Spec};
use tilewright_runtime::Tensor;
use tilewright_te::interp::TensorData;

use crate::error::{CompileError, Error};
use crate::reference::Reference;
use crate::specs;
use crate::stack::on_own_stack;

/// A model ready to run, one way or the other. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Engine {
    /// Machine code.
    Compiled(Model),
    /// The interpreter on the simplified graph.
    Interpreter(Interpreter),
}

/// The interpreter on a graph: slow, and plain enough to tell whether machine code is right.
#[derive(Clone, Debug)]
pub struct Interpreter {
    graph: Arc<Graph>,
    seed: u64,
}

impl Interpreter {
    /// The interpreter on a simplified graph, as [`Compiled::graph`](crate::Compiled::graph) and
    /// [`load_graph`](crate::load_graph) have it. Nodes without a seed of their own draw random numbers by `seed`, as those of a
    /// session.
    pub fn new(graph: Graph, seed: u64) -> Interpreter {
        Interpreter { graph: Arc::new(graph), seed }
    }

    /// Runs the graph once on named inputs, in any order; the outputs in the model's order.
    ///
    /// # Errors
    /// All problems with the inputs at once, and what the interpreter does not run: values that are no tensors of numbers.
    pub fn run(&self, inputs: &Named) -> Result<Named, Error> {
        on_own_stack(|| {
            let mut reference = Reference::new(&self.graph)?;
            reference.set_seed(self.seed);
            reference.check()?;
            let named: Vec<_> =
                inputs.iter().map(|(name, value)| (name.as_str(), value.as_tensor())).collect();
            let inputs = reference.arrange(&named).map_err(tilewright_runtime::RunError::Inputs)?;
            let inputs: Vec<TensorData> = inputs.into_iter().map(data).collect();
            let outputs = reference.run(&inputs, &mut |_, _| {})?;
            let names = specs::outputs(&self.graph).into_iter().map(|spec| spec.name);
            names.zip(outputs).map(|(name, data)| Ok((name, tensor(data)?.into()))).collect()
        })
    }
}

/// A tensor as the interpreter holds it.
fn data(tensor: &Tensor) -> TensorData {
    TensorData {
        dtype: tensor.dtype(),
        shape: tensor.dims().iter().map(|&dim| dim as i64).collect(),
        bytes: tensor.bytes().to_vec(),
    }
}

fn tensor(data: TensorData) -> Result<Tensor, Error> {
    let dims = data.shape.iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    let dims = dims.map_err(|error| CompileError::internal("interpreter", error))?;
    Ok(Tensor::from_bytes(data.dtype, &dims, data.bytes)?)
}

impl Engine {
    /// The model's inputs, in order.
    pub fn inputs(&self) -> Vec<Spec> {
        match self {
            Engine::Compiled(model) => model.inputs().to_vec(),
            Engine::Interpreter(interpreter) => specs::inputs(&interpreter.graph),
        }
    }

    /// The model's outputs, in order.
    pub fn outputs(&self) -> Vec<Spec> {
        match self {
            Engine::Compiled(model) => model.outputs().to_vec(),
            Engine::Interpreter(interpreter) => specs::outputs(&interpreter.graph),
        }
    }

    /// Runs the model once on named inputs, in any order; the outputs in the model's order.
    ///
    /// # Errors
    /// As [`Model::run`] and [`Interpreter::run`].
    pub fn run(&self, inputs: &Named) -> Result<Named, Error> {
        match self {
            Engine::Compiled(model) => {
                let outputs = model.run(inputs.iter().map(|(name, value)| (name, value)))?;
                Ok(outputs.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
            }
            Engine::Interpreter(interpreter) => interpreter.run(inputs),
        }
    }
}
