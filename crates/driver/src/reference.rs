//! The reference: a program's functions run by the interpreter, unscheduled. What `verify` compares with.

mod check;
mod dynamic;
mod host;
mod inputs;
mod loops;

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tilewright_graph::dim::Dim;
use tilewright_graph::{Bytes, Graph, Op, RegionId, SymbolId, Tensor, ValueId};
use tilewright_lower::{LowerOptions, Program, Step};
use tilewright_runtime::{self as runtime, InputErrors};
use tilewright_te::interp::{self, Mode, TensorData};

use crate::error::CompileError;
use crate::gap::Stage;

/// A graph lowered for the interpreter.
pub struct Reference<'a> {
    graph: &'a Graph,
    program: Program,
    funcs: Vec<interp::Program>,
    /// Which result and axis first shows each symbol that is no extent of an input.
    definitions: BTreeMap<SymbolId, (ValueId, usize)>,
    seed: u64,
}

/// Values and extents known while running.
#[derive(Default)]
struct State {
    values: FxHashMap<ValueId, TensorData>,
    symbols: FxHashMap<SymbolId, i64>,
    /// How often each stream of random numbers was drawn from.
    draws: FxHashMap<u64, u64>,
}

impl<'a> Reference<'a> {
    /// Lowers a graph and compiles its functions to bytecode.
    ///
    /// # Errors
    /// What lowering refuses.
    pub fn new(graph: &'a Graph) -> Result<Reference<'a>, CompileError> {
        let program = tilewright_lower::lower(graph, LowerOptions::default())
            .map_err(|error| CompileError::of_lowering(Stage::Lower, error))?;
        let compile = |f: &tilewright_lower::LoweredFunc| {
            interp::Program::compile(&f.computation.func)
                .map_err(|e| CompileError::internal("interpreter", e))
        };
        let funcs = program.funcs.iter().map(compile).collect::<Result<_, _>>()?;
        Ok(Reference { graph, program, funcs, definitions: graph.symbol_definitions(), seed: 0 })
    }

    /// Sets what nodes without a seed of their own draw random numbers by, as that of a session.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// Refuses models with values that are no tensors of numbers.
    ///
    /// # Errors
    /// Every such input, output and node.
    pub fn check(&self) -> Result<(), CompileError> {
        check::check(self.graph, &self.program)
    }

    /// Puts named inputs into the model's order; one that is no tensor is `None`.
    ///
    /// # Errors
    /// Every problem with the inputs at once.
    pub fn arrange<'t>(
        &self,
        named: &[(&str, Option<&'t runtime::Tensor>)],
    ) -> Result<Vec<&'t runtime::Tensor>, InputErrors> {
        inputs::arrange(self.graph, named)
    }

    /// Runs the model on its inputs, in order, which must fit; the outputs in order, and every intermediate value that
    /// exists on the way is shown to `inspect`.
    ///
    /// # Errors
    /// As [`Reference::check`], and what the interpreter finds.
    pub fn run(
        &self,
        inputs: &[TensorData],
        inspect: &mut dyn FnMut(ValueId, &TensorData),
    ) -> Result<Vec<TensorData>, CompileError> {
        self.check()?;
        let mut state = State::default();
        for (&value, data) in self.graph.inputs().iter().zip(inputs) {
            for (dim, &extent) in self.graph.dims(value).unwrap_or_default().iter().zip(&data.shape) {
                if let Some(symbol) = dim.as_symbol() {
                    state.symbols.entry(symbol).or_insert(extent);
                }
            }
            state.values.insert(value, data.clone());
        }
        self.region(self.graph.main(), &mut state, inspect)?;
        self.graph.outputs().iter().map(|&v| self.value(&state, v)).collect()
    }

    fn value(&self, state: &State, value: ValueId) -> Result<TensorData, CompileError> {
        if let Some(data) = state.values.get(&value) {
            return Ok(data.clone());
        }
        match self.graph.constant(value) {
            Some(tensor) => Ok(tensor_data(tensor)),
            None => Err(CompileError::internal("interpreter", format!("{value} has no value"))),
        }
    }

    /// The values of extents; symbols that are data are defined on the way.
    fn extents(&self, state: &mut State, dims: &[Dim]) -> Result<Vec<i64>, CompileError> {
        let mut values = Vec::with_capacity(dims.len());
        for dim in dims {
            for symbol in dim.symbols() {
                self.define_symbol(state, symbol)?;
            }
            let known = |s| state.symbols.get(&s).copied();
            let value = dim.evaluate(&known);
            let unknown = || CompileError::internal("interpreter", "an extent is not known");
            values.push(value.ok_or_else(unknown)?);
        }
        Ok(values)
    }

    fn region(
        &self,
        region: RegionId,
        state: &mut State,
        inspect: &mut dyn FnMut(ValueId, &TensorData),
    ) -> Result<(), CompileError> {
        self.check_guards(region, state)?;
        let steps = self.program.regions.get(&region).map(Vec::as_slice).unwrap_or_default();
        for step in steps {
            let made = match step {
                Step::Call { func, inputs, outputs, sizes, .. } => {
                    let operands =
                        inputs.iter().map(|&v| self.value(state, v)).collect::<Result<Vec<_>, _>>()?;
                    let tables = self.program.funcs[*func].tables.iter().filter_map(Tensor::bytes);
                    let bytes: Vec<&[u8]> = operands
                        .iter()
                        .map(|d| d.bytes.as_slice())
                        .chain(tables.map(Bytes::as_slice))
                        .collect();
                    let sizes = self.extents(state, sizes)?;
                    let results = self.funcs[*func]
                        .run(&sizes, &bytes, Mode::Exact)
                        .map_err(|e| CompileError::internal("interpreter", e))?;
                    outputs.iter().copied().zip(results).collect()
                }
                Step::View { input, output, .. } => {
                    let mut data = self.value(state, *input)?;
                    data.shape = self.extents(state, self.graph.dims(*output).unwrap_or_default())?;
                    vec![(*output, data)]
                }
                Step::Part { .. } => {
                    return Err(CompileError::internal("interpreter", "values lie in others"));
                }
                Step::Extents { output, .. } => vec![(*output, self.extents_tensor(state, *output)?)],
                Step::Host { node, op, .. } => self.host(*node, op, state)?,
                Step::Control { node } => self.control(*node, state, inspect)?,
            };
            for (value, data) in made {
                inspect(value, &data);
                self.bind(state, value, &data);
                state.values.insert(value, data);
            }
        }
        self.check_guards(region, state)
    }

    /// Holds a region's assumptions against the extents that are known.
    fn check_guards(&self, region: RegionId, state: &State) -> Result<(), CompileError> {
        let known = |symbol| state.symbols.get(&symbol).copied();
        for guard in self.graph.guards.iter().filter(|guard| guard.region == region) {
            let sides = guard.left.evaluate(&known).zip(guard.right.evaluate(&known));
            if sides.is_some_and(|(left, right)| !guard.comparison.holds(left, right)) {
                return Err(CompileError::Invalid(format!("for these inputs: {}", guard.message)));
            }
        }
        Ok(())
    }

    /// A tensor's extents give the symbols it is the first to show.
    fn bind(&self, state: &mut State, value: ValueId, data: &TensorData) {
        for (dim, &extent) in self.graph.dims(value).unwrap_or_default().iter().zip(&data.shape) {
            if let Some(symbol) = dim.as_symbol() {
                state.symbols.entry(symbol).or_insert(extent);
            }
        }
    }

    fn extents_tensor(&self, state: &mut State, output: ValueId) -> Result<TensorData, CompileError> {
        let missing = || CompileError::internal("interpreter", "extents of nothing");
        let node = self.graph.node(self.graph.producer(output).ok_or_else(missing)?);
        let input_dims = node.input(0).and_then(|v| self.graph.dims(v)).unwrap_or_default();
        let dims: Vec<Dim> = match &node.op {
            Op::FromDims(attrs) => attrs.values.clone(),
            Op::Shape(attrs) => input_dims[attrs.start..attrs.end.min(input_dims.len())].to_vec(),
            Op::Size => vec![Dim::product(input_dims)],
            op => {
                return Err(CompileError::internal("interpreter", format!("{} holds no extents", op.name())));
            }
        };
        let values = self.extents(state, &dims)?;
        let ty = self.graph.tensor_type(output).ok_or_else(missing)?;
        let bytes = match ty.dtype {
            tilewright_dtype::DType::I32 => values.iter().flat_map(|&v| (v as i32).to_le_bytes()).collect(),
            _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        let shape = self.extents(state, ty.shape.dims().unwrap_or_default())?;
        Ok(TensorData { dtype: ty.dtype, shape, bytes })
    }

    fn control(
        &self,
        node: tilewright_graph::NodeId,
        state: &mut State,
        inspect: &mut dyn FnMut(ValueId, &TensorData),
    ) -> Result<Vec<(ValueId, TensorData)>, CompileError> {
        let data = self.graph.node(node);
        match &data.op {
            Op::If(attrs) => {
                let missing = || CompileError::internal("interpreter", "an If without a condition");
                let condition = self.value(state, data.input(0).ok_or_else(missing)?)?;
                let taken = condition.bytes.first().is_some_and(|&b| b != 0);
                let region = if taken { attrs.then_region } else { attrs.else_region };
                for (&param, value) in self.graph.region(region).params.iter().zip(data.inputs.iter().skip(1))
                {
                    if let Some(value) = value {
                        let captured = self.value(state, *value)?;
                        state.values.insert(param, captured);
                    }
                }
                self.region(region, state, inspect)?;
                let results = self.graph.region(region).results.clone();
                data.outputs.iter().zip(results).map(|(&o, r)| Ok((o, self.value(state, r)?))).collect()
            }
            Op::Loop(attrs) => self.loop_node(node, attrs, state, inspect),
            Op::Scan(attrs) => self.scan_node(node, attrs, state, inspect),
            op => Err(CompileError::internal("interpreter", format!("{} is no control flow", op.name()))),
        }
    }
}

/// A constant as the interpreter holds tensors.
fn tensor_data(tensor: &Tensor) -> TensorData {
    TensorData {
        dtype: tensor.dtype(),
        shape: tensor.dims().iter().map(|&d| d as i64).collect(),
        bytes: tensor.bytes().map(|b| b.as_slice().to_vec()).unwrap_or_default(),
    }
}
