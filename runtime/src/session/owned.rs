//! Runs whose outputs are the caller's to keep.
#![allow(unsafe_code, reason = "lends memory for outputs to the executor")]

use alloc::vec::Vec;

use super::{Outputs, Placed, Session};
use crate::error::{ExecFault, RunError};
use crate::memory::{AlignedBuf, OutOfMemory};
use crate::tensor::{Tensor, TensorView};
use crate::value::Value;

/// Outputs of a run that do not lie in the session, in the model's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedOutputs {
    /// Those that are tensors.
    pub tensors: Vec<Tensor>,
    /// Those that are not.
    pub values: Vec<Value>,
}

impl Session {
    /// Runs the model on its inputs that are tensors and those that are not, and gives outputs that outlive the next run.
    ///
    /// Their memory comes from `room`, which is asked for a number of bytes an output and may give more, holding
    /// anything: [`AlignedBuf::zeroed`], or memory of earlier outputs. The run writes outputs there where their extents
    /// follow from the inputs'; others are copied.
    ///
    /// # Errors
    /// As [`Session::run`]; also when `room` has no memory.
    pub fn run_new(
        &mut self,
        tensors: &[TensorView<'_>],
        values: &[Value],
        mut room: impl FnMut(usize) -> Result<AlignedBuf, OutOfMemory>,
    ) -> Result<OwnedOutputs, RunError> {
        let errors = self.too_many("inputs", tensors.len(), self.model.inputs().len());
        self.start(|i| tensors.get(i).copied().map(Placed::Host), values, errors)?;
        let program = &*self.program;
        let outputs = &program.plan.outputs;
        let mut memory: Vec<Option<AlignedBuf>> = Vec::with_capacity(outputs.len());
        for spec in outputs {
            let spot = self.frame.spot(program, spec.buffer).ok();
            let Some(spot) = spot.filter(|_| !program.facts.late[spec.buffer.index()]) else {
                memory.push(None);
                continue;
            };
            let mut buffer = room(spot.bytes)?;
            buffer.reset(spot.bytes)?;
            // SAFETY: aligned, initialised, and not touched here before the run ends.
            unsafe { self.frame.lend(spec.buffer, buffer.as_mut_ptr(), spot.bytes) };
            memory.push(Some(buffer));
        }
        self.finish(&mut ())?;
        let results = Outputs { session: self };
        let outputs = &self.program.plan.outputs;
        let mut tensors = Vec::with_capacity(outputs.len());
        for (i, (spec, lent)) in outputs.iter().zip(memory).enumerate() {
            let view = results.view(i);
            let mut buffer = match lent {
                Some(lent) => lent,
                None => room(view.bytes.len())?,
            };
            buffer.reset(view.bytes.len())?;
            if view.bytes.as_ptr() != buffer.as_ptr() {
                buffer.copy_from_slice(view.bytes);
            }
            let fault = |_| RunError::Plan { fault: ExecFault::Shape(spec.buffer), nodes: spec.name.clone() };
            tensors.push(Tensor::from_buf(view.dtype, view.dims, buffer).map_err(fault)?);
        }
        let values = results.values().map(|(_, value)| value.clone()).collect();
        Ok(OwnedOutputs { tensors, values })
    }
}
