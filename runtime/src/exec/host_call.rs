//! Calls of host operators: operands, computed sizes, results.
#![allow(unsafe_code, reason = "lends buffers of the executor to host operators")]

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::frame::Spot;
use super::{Exec, Failure};
use crate::error::{ExecFault, RunError};
use crate::host::{Draw, HostArg, HostError, HostTensor, HostTensorMut};
use crate::plan::{BufferId, Operand, SizeId, TextId};
use crate::tensor::Tensor;
use crate::value::Value;

impl Exec<'_> {
    /// Runs a host operator of the model's registry.
    pub(super) fn host(
        &mut self,
        op: u16,
        attrs: &[u8],
        inputs: &[Operand],
        outputs: &[Operand],
        sizes_out: &[SizeId],
        provenance: TextId,
    ) -> Result<(), Failure> {
        let mut args = Vec::with_capacity(inputs.len());
        for &input in inputs {
            args.push(match input {
                Operand::Absent => HostArg::Absent,
                Operand::Value(id) => HostArg::Value(self.frame.value(id)?.clone()),
                Operand::Buffer(id) => {
                    let (dims, spot) = self.frame.dense(self.program, id)?;
                    // SAFETY: located and initialised; `HostCall::output` hands out only memory that overlaps no input.
                    let bytes = unsafe { core::slice::from_raw_parts(spot.ptr, spot.bytes) };
                    let dtype = self.program.plan.buffers[id.index()].dtype;
                    HostArg::Tensor(HostTensor { dtype, dims, bytes })
                }
            });
        }
        let program = self.program;
        let mut call = HostCall {
            exec: Exec { program, frame: &mut *self.frame, pool: self.pool },
            attrs,
            inputs: args,
            input_ids: inputs,
            outputs,
            sizes_out,
            taken: Vec::with_capacity(outputs.len()),
        };
        program.host.call(op, &mut call).map_err(|error| match error {
            HostError::Run(error) => Failure::Run(error),
            HostError::Message(message) => {
                Failure::Run(RunError::Host { message, nodes: program.plan.text(provenance).to_string() })
            }
        })
    }
}

/// One call of a host operator: its operands, and the way to its results.
pub struct HostCall<'a> {
    exec: Exec<'a>,
    attrs: &'a [u8],
    inputs: Vec<HostArg<'a>>,
    input_ids: &'a [Operand],
    outputs: &'a [Operand],
    sizes_out: &'a [SizeId],
    taken: Vec<(BufferId, Spot)>,
}

impl<'a> HostCall<'a> {
    /// Attributes, in the operator's own encoding.
    pub fn attrs(&self) -> &'a [u8] {
        self.attrs
    }

    /// The operands.
    pub fn inputs(&self) -> &[HostArg<'a>] {
        &self.inputs
    }

    /// Operand `index`, a tensor in a buffer, to be used while outputs are written.
    ///
    /// # Errors
    /// When there is no such operand.
    pub fn input(&self, index: usize) -> Result<HostTensor<'a>, HostError> {
        match self.inputs.get(index) {
            Some(HostArg::Tensor(tensor)) => Ok(tensor.clone()),
            Some(HostArg::Absent | HostArg::Value(_)) => {
                Err(HostError::from("an operand is not in a buffer"))
            }
            None => Err(HostError::from("too few operands")),
        }
    }

    /// What to draw random numbers by; counts as one call of the stream.
    pub fn draw(&mut self, stream: u64) -> Draw {
        self.exec.frame.draws.next(stream)
    }

    /// Number of results.
    pub fn n_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Sets computed size `index` of the instruction. All must be set before the first output is taken.
    ///
    /// # Errors
    /// When there is no such size, or outputs were taken already.
    pub fn set_size(&mut self, index: usize, value: i64) -> Result<(), HostError> {
        if !self.taken.is_empty() {
            return Err(HostError::from("sizes must be set before outputs are taken"));
        }
        let &slot = self.sizes_out.get(index).ok_or_else(|| HostError::from("too many sizes"))?;
        self.exec.set(slot, value);
        Ok(())
    }

    /// Takes result `index`, a buffer, once; allocates it if its size is late.
    ///
    /// # Errors
    /// When there is no such result, it was taken before, it overlaps another buffer of the call, or its size is
    /// undefined or there is no memory.
    pub fn output(&mut self, index: usize) -> Result<HostTensorMut<'a>, HostError> {
        let output = self.outputs.get(index).ok_or_else(|| HostError::from("too many results"))?;
        let id = output.buffer().ok_or_else(|| HostError::from("a result is not in a buffer"))?;
        self.take(id).map_err(|failure| HostError::Run(failure.into_error("")))
    }

    /// Gives all results. Those of buffers are tensors: their extents set the computed sizes of the instruction that
    /// are extents of the buffer, and must be what its other extents are.
    ///
    /// # Errors
    /// When the results are not of the kinds, types and extents that the plan has for them, and as
    /// [`HostCall::output`].
    pub fn give(&mut self, results: Vec<Value>) -> Result<(), HostError> {
        if results.len() != self.outputs.len() {
            return Err(HostError::Message(format!(
                "{} results, expected {}",
                results.len(),
                self.outputs.len()
            )));
        }
        for (&output, result) in self.outputs.iter().zip(&results) {
            if let Operand::Buffer(id) = output {
                self.set_extents(id, buffer_result(result)?)?;
            }
        }
        for (&output, result) in self.outputs.iter().zip(results) {
            match output {
                Operand::Absent => {}
                Operand::Value(id) => self.exec.frame.values[id.index()] = Some(result),
                Operand::Buffer(id) => {
                    let tensor = buffer_result(&result)?;
                    let taken = self.take(id).map_err(|failure| HostError::Run(failure.into_error("")))?;
                    if taken.dims != tensor.dims() || taken.bytes.len() != tensor.bytes().len() {
                        return Err(self.misfit(id, tensor));
                    }
                    taken.bytes.copy_from_slice(tensor.bytes());
                }
            }
        }
        Ok(())
    }

    fn set_extents(&mut self, id: BufferId, tensor: &Tensor) -> Result<(), HostError> {
        let program = self.exec.program;
        let def = &program.plan.buffers[id.index()];
        if def.dtype != tensor.dtype() || def.shape.len() != tensor.dims().len() {
            return Err(self.misfit(id, tensor));
        }
        for (&slot, &dim) in def.shape.iter().zip(tensor.dims()) {
            let dim = i64::try_from(dim).map_err(|_| HostError::from("an extent is too large"))?;
            if self.sizes_out.contains(&slot) {
                self.exec.set(slot, dim);
            } else if self.exec.frame.sizes.get(slot) != Some(dim) {
                return Err(self.misfit(id, tensor));
            }
        }
        Ok(())
    }

    /// What is said of a result that does not fit its buffer.
    fn misfit(&self, id: BufferId, tensor: &Tensor) -> HostError {
        let def = &self.exec.program.plan.buffers[id.index()];
        let dim = |slot: &SizeId| self.exec.frame.sizes.get(*slot).map_or("?".into(), |n| n.to_string());
        let expected = def.shape.iter().map(dim).collect::<Vec<_>>().join(", ");
        HostError::Message(format!(
            "the result is {}{:?}, but the model was compiled for {}[{expected}]",
            tensor.dtype(),
            tensor.dims(),
            def.dtype
        ))
    }

    fn take(&mut self, id: BufferId) -> Result<HostTensorMut<'a>, Failure> {
        let program = self.exec.program;
        let roots = &program.facts.roots;
        let def = &program.plan.buffers[id.index()];
        let inputs = self.input_ids.iter().filter_map(|input| input.buffer());
        let others = inputs.chain(self.taken.iter().map(|&(taken, _)| taken));
        if program.facts.storage[id.index()].is_some() && program.facts.late[id.index()] {
            // A new allocation moves the bytes of everything with this root.
            if others.into_iter().any(|other| roots[other.index()] == id) {
                return Err(ExecFault::Overlap(id).into());
            }
            let bytes = self.exec.frame.count(def.size_bytes)?;
            self.exec.frame.allocate(program, id, bytes, false)?;
        }
        let (dims, spot) = self.exec.frame.dense(program, id)?;
        let overlaps = |other: &[u8]| {
            let (start, other_start) = (spot.ptr.addr(), other.as_ptr().addr());
            spot.bytes > 0
                && !other.is_empty()
                && start < other_start + other.len()
                && other_start < start + spot.bytes
        };
        let is_taken = |&(taken, at): &(BufferId, Spot)| {
            // SAFETY: only the range is used; it was located when it was taken.
            taken == id || overlaps(unsafe { core::slice::from_raw_parts(at.ptr, at.bytes) })
        };
        let is_read = |input: &HostArg<'_>| match input {
            HostArg::Tensor(tensor) => overlaps(tensor.bytes),
            HostArg::Absent | HostArg::Value(_) => false,
        };
        if self.inputs.iter().any(is_read) || self.taken.iter().any(is_taken) {
            return Err(ExecFault::Overlap(id).into());
        }
        self.taken.push((id, spot));
        // SAFETY: located, initialised, not read only (validation), and disjoint from all that was handed out.
        let bytes = unsafe { core::slice::from_raw_parts_mut(spot.ptr, spot.bytes) };
        Ok(HostTensorMut { dtype: def.dtype, dims, bytes })
    }
}

/// A result that goes into a buffer.
fn buffer_result(value: &Value) -> Result<&Tensor, HostError> {
    match value {
        Value::Tensor(tensor) => Ok(tensor),
        Value::Sequence(_) | Value::Optional(_) => Err(HostError::from("a result must be a tensor")),
    }
}
