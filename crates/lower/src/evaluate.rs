//! Operators on constants: definition, then interpreter. What constant folding calls.

use tilewright_graph::passes::Evaluate;
use tilewright_graph::{Bytes, Op, SymbolTable, Tensor, TensorType};
use tilewright_te::Func;
use tilewright_te::interp::{Mode, Program};
use tilewright_te::relayout::Relayout;

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
        let program = Program::compile(&func).map_err(|e| e.to_string())?;
        let results = program.run(&[], &bytes, Mode::Exact).map_err(|e| e.to_string())?;
        results
            .into_iter()
            .map(|data| {
                let dims = data.shape.iter().map(|&d| d as usize).collect();
                Tensor::from_bytes(data.dtype, dims, Bytes::new(data.bytes)).map_err(|e| e.to_string())
            })
            .collect()
    }
}

/// Runs packing functions on a constant, each on what the one before gave: the bytes of the last one's output. Functions
/// that only move elements, as nearly all do, run without the interpreter.
///
/// # Errors
/// The interpreter's message.
pub fn pack(packing: &[Func], tensor: &Tensor) -> Result<Vec<u8>, String> {
    let bytes = tensor.bytes().ok_or("strings cannot be packed")?;
    let Some((first, others)) = packing.split_first() else { return Ok(bytes.as_slice().to_vec()) };
    others.iter().try_fold(pack_once(first, bytes.as_slice())?, |bytes, func| pack_once(func, &bytes))
}

fn pack_once(packing: &Func, bytes: &[u8]) -> Result<Vec<u8>, String> {
    if let Some(packed) = Relayout::of(packing).and_then(|relayout| relayout.run(bytes)) {
        return Ok(packed);
    }
    let program = Program::compile(packing).map_err(|e| e.to_string())?;
    let mut results = program.run(&[], &[bytes], Mode::Exact).map_err(|e| e.to_string())?;
    if results.len() != 1 {
        return Err(format!("a packing function gives one output, not {}", results.len()));
    }
    Ok(results.remove(0).bytes)
}
