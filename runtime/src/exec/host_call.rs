//! Calls of host operators: operands, computed sizes, results.
#![allow(unsafe_code, reason = "lends buffers of the executor to host operators")]

use alloc::string::ToString;
use alloc::vec::Vec;

use super::{Exec, Failure, Spot};
use crate::error::{ExecFault, RunError};
use crate::host::{HostError, HostTensor, HostTensorMut};
use crate::plan::{BufferId, SizeId, TextId};

impl Exec<'_> {
    /// Runs a host operator of the model's registry.
    pub(super) fn host(
        &mut self,
        op: u16,
        attrs: &[u8],
        inputs: &[BufferId],
        outputs: &[BufferId],
        sizes_out: &[SizeId],
        provenance: TextId,
    ) -> Result<(), Failure> {
        let mut tensors = Vec::with_capacity(inputs.len());
        for &id in inputs {
            let (dims, spot) = self.frame.dense(self.model, id)?;
            // SAFETY: located and initialised; `HostCall::output` hands out only memory that overlaps no input.
            let bytes = unsafe { core::slice::from_raw_parts(spot.ptr, spot.bytes) };
            tensors.push(HostTensor { dtype: self.model.plan.buffers[id.index()].dtype, dims, bytes });
        }
        let model = self.model;
        let mut call = HostCall {
            exec: Exec { model, frame: &mut *self.frame, pool: self.pool },
            attrs,
            inputs: tensors,
            input_ids: inputs,
            outputs,
            sizes_out,
            taken: Vec::with_capacity(outputs.len()),
        };
        model.host.call(op, &mut call).map_err(|error| match error {
            HostError::Run(error) => Failure::Run(error),
            HostError::Message(message) => {
                Failure::Run(RunError::Host { message, nodes: model.plan.text(provenance).to_string() })
            }
        })
    }
}

/// One call of a host operator: its operands, and the way to its results.
pub struct HostCall<'a> {
    exec: Exec<'a>,
    attrs: &'a [u8],
    inputs: Vec<HostTensor<'a>>,
    input_ids: &'a [BufferId],
    outputs: &'a [BufferId],
    sizes_out: &'a [SizeId],
    taken: Vec<(BufferId, Spot)>,
}

impl<'a> HostCall<'a> {
    /// Attributes, in the operator's own encoding.
    pub fn attrs(&self) -> &'a [u8] {
        self.attrs
    }

    /// The operands.
    pub fn inputs(&self) -> &[HostTensor<'a>] {
        &self.inputs
    }

    /// Operand `index`, to be used while outputs are written.
    ///
    /// # Errors
    /// When there is no such operand.
    pub fn input(&self, index: usize) -> Result<HostTensor<'a>, HostError> {
        self.inputs.get(index).cloned().ok_or_else(|| HostError::from("too few operands"))
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

    /// Takes result `index`, once; allocates it if its size is late.
    ///
    /// # Errors
    /// When there is no such result, it was taken before, it overlaps another buffer of the call, or its size is
    /// undefined or there is no memory.
    pub fn output(&mut self, index: usize) -> Result<HostTensorMut<'a>, HostError> {
        let &id = self.outputs.get(index).ok_or_else(|| HostError::from("too many results"))?;
        self.take(id).map_err(|failure| HostError::Run(failure.into_error("")))
    }

    fn take(&mut self, id: BufferId) -> Result<HostTensorMut<'a>, Failure> {
        let model = self.exec.model;
        let roots = &model.facts.roots;
        let def = &model.plan.buffers[id.index()];
        let others = self.input_ids.iter().copied().chain(self.taken.iter().map(|&(taken, _)| taken));
        if model.facts.storage[id.index()].is_some() && model.facts.late[id.index()] {
            // A new allocation moves the bytes of everything with this root.
            if others.into_iter().any(|other| roots[other.index()] == id) {
                return Err(ExecFault::Overlap(id).into());
            }
            let bytes = self.exec.frame.count(def.size_bytes)?;
            self.exec.frame.allocate(model, id, bytes, false)?;
        }
        let (dims, spot) = self.exec.frame.dense(model, id)?;
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
        if self.inputs.iter().any(|input| overlaps(input.bytes)) || self.taken.iter().any(is_taken) {
            return Err(ExecFault::Overlap(id).into());
        }
        self.taken.push((id, spot));
        // SAFETY: located, initialised, not read only (validation), and disjoint from all that was handed out.
        let bytes = unsafe { core::slice::from_raw_parts_mut(spot.ptr, spot.bytes) };
        Ok(HostTensorMut { dtype: def.dtype, dims, bytes })
    }
}
