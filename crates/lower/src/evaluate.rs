//! Operators on constants: definition, then interpreter. What constant folding calls.

use tilewright_graph::passes::Evaluate;
use tilewright_graph::{Bytes, Op, SymbolTable, Tensor, TensorType};
use tilewright_te::interp::{Mode, Program, TensorData};
use tilewright_te::relayout::Relayout;
use tilewright_te::{Block, Func};

use crate::dims::DimMap;
use crate::ops;

/// Evaluates operators by interpreting their definitions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interpret;

impl Evaluate for Interpret {
    fn evaluate(
        &self,
        op: &Op,
        inputs: &[Option<&Tensor>],
        outputs: &[TensorType],
    ) -> Result<Vec<Tensor>, String> {
        Application::of(op, inputs, outputs)?.interpret()
    }
}

/// An operator applied to constants.
pub struct Application<'a> {
    /// The operator's definition, unscheduled; extents are constants.
    pub func: Func,
    /// The elements of the function's inputs.
    pub inputs: Vec<&'a [u8]>,
}

impl<'a> Application<'a> {
    /// Defines the results of `op` on `inputs`, whose types are `outputs`.
    ///
    /// # Errors
    /// The operator has no definition, or an operand has no bytes.
    pub fn of(
        op: &Op,
        inputs: &[Option<&'a Tensor>],
        outputs: &[TensorType],
    ) -> Result<Application<'a>, String> {
        let mut func = Func::new("fold");
        let symbols = SymbolTable::default();
        let mut dims = DimMap::new();
        let mut operands = Vec::new();
        let mut bytes = Vec::new();
        for (i, tensor) in inputs.iter().enumerate() {
            operands.push(match tensor {
                None => None,
                Some(tensor) => {
                    bytes.push(
                        tensor.bytes().ok_or("a string tensor has no elements to compute with")?.as_slice(),
                    );
                    let shape = tensor.dims().iter().map(|&d| (d as i64).into()).collect();
                    Some(func.add_input(&format!("in{i}"), tensor.dtype(), shape))
                }
            });
        }
        let output_types: Vec<&TensorType> = outputs.iter().collect();
        let mut context = ops::Context::new(&symbols, &mut dims);
        let results =
            ops::define(&mut func, &mut context, op, &operands, &output_types).map_err(|e| e.to_string())?;
        for result in results {
            func.promote_to_output(result);
        }
        Ok(Application { func, inputs: bytes })
    }

    /// Nodes of expressions that a run evaluates, saturating; an intrinsic counts as one.
    pub fn operations(&self) -> u64 {
        operations(&self.func)
    }

    /// The results, by the interpreter.
    ///
    /// # Errors
    /// The interpreter's message.
    pub fn interpret(&self) -> Result<Vec<Tensor>, String> {
        let program = Program::compile(&self.func).map_err(|e| e.to_string())?;
        let results = program.run(&[], &self.inputs, Mode::Exact).map_err(|e| e.to_string())?;
        let tensor = |data: TensorData| {
            let dims = data.shape.iter().map(|&d| d as usize).collect();
            Tensor::from_bytes(data.dtype, dims, Bytes::new(data.bytes)).map_err(|e| e.to_string())
        };
        results.into_iter().map(tensor).collect()
    }
}

/// Nodes of expressions that a function of constant extents evaluates, saturating; one that several stores of a block share counts once,
/// and so does an intrinsic.
pub fn operations(func: &Func) -> u64 {
    let of_block = |block: &Block| {
        let mut nodes = 0u64;
        block.for_each_node(|_| nodes += 1);
        let extents = block.iters.iter().map(|iter| iter.extent.as_int().unwrap_or(1).max(0) as u64);
        extents.fold(nodes, u64::saturating_mul)
    };
    func.blocks().into_iter().map(of_block).fold(0, u64::saturating_add)
}

/// Runs packing functions on a constant, each on what the one before gave: the bytes of the last one's output. Functions
/// that only move elements, as nearly all do, run without the interpreter.
///
/// # Errors
/// The interpreter's message.
pub fn pack(packing: &[Func], tensor: &Tensor) -> Result<Vec<u8>, String> {
    let mut packed = Vec::new();
    pack_by(packing, tensor, &mut packed, &|func, bytes, then| then(&interpret(func, bytes)?))?;
    Ok(packed)
}

/// Runs a packing function on the bytes of its input, and its last argument on those of the result, which need not outlive the call.
pub type Compute<'a> =
    &'a dyn Fn(&Func, &[u8], &mut dyn FnMut(&[u8]) -> Result<(), String>) -> Result<(), String>;

/// [`pack`] in place of what `packed` holds, where `compute` runs the functions that do more than move elements.
///
/// # Errors
/// What `compute` says.
pub fn pack_by(
    packing: &[Func],
    tensor: &Tensor,
    packed: &mut Vec<u8>,
    compute: Compute<'_>,
) -> Result<(), String> {
    run_all(packing, tensor.bytes().ok_or("strings cannot be packed")?.as_slice(), packed, compute)
}

fn run_all(packing: &[Func], bytes: &[u8], packed: &mut Vec<u8>, compute: Compute<'_>) -> Result<(), String> {
    let Some((func, others)) = packing.split_first() else {
        packed.clear();
        packed.extend_from_slice(bytes);
        return Ok(());
    };
    let moved = Relayout::of(func).is_some_and(|relayout| relayout.run(bytes, packed));
    match (moved, others.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => run_all(others, &std::mem::take(packed), packed, compute),
        (false, _) => compute(func, bytes, &mut |result| run_all(others, result, packed, compute)),
    }
}

/// Runs one packing function by the interpreter.
///
/// # Errors
/// The interpreter's message.
pub fn interpret(packing: &Func, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let program = Program::compile(packing).map_err(|e| e.to_string())?;
    let mut results = program.run(&[], &[bytes], Mode::Exact).map_err(|e| e.to_string())?;
    if results.len() != 1 {
        return Err(format!("a packing function gives one output, not {}", results.len()));
    }
    Ok(results.remove(0).bytes)
}
