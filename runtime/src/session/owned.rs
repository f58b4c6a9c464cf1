//! Runs whose outputs are the caller's to keep.
#![allow(unsafe_code, reason = "lends memory for outputs to the executor")]

use alloc::sync::Arc;

use super::{Outputs, Placed, Session, output_spot};
use crate::error::{ExecFault, RunError};
use crate::memory::{AlignedBuf, OutOfMemory};
use crate::model::Program;
use crate::plan::TensorSpec;
use crate::tensor::{Reuse, Tensor, TensorView, byte_len};
use crate::value::{Value, Values};

/// Memory for an output.
pub struct Room {
    /// Bytes, holding anything.
    pub buffer: AlignedBuf,
    /// Who takes them when the output is dropped.
    pub reuse: Option<Arc<dyn Reuse>>,
}

impl From<AlignedBuf> for Room {
    fn from(buffer: AlignedBuf) -> Room {
        Room { buffer, reuse: None }
    }
}

impl Room {
    /// Memory from the allocator, which goes back there.
    ///
    /// # Errors
    /// When it has no such memory.
    pub fn new(bytes: usize) -> Result<Room, OutOfMemory> {
        AlignedBuf::zeroed(bytes).map(Room::from)
    }
}

impl Session {
    /// Runs the model on its inputs that are tensors and those that are not, and gives outputs that outlive the next run, in the
    /// model's order.
    ///
    /// Their memory comes from `room`, which is asked for a number of bytes an output and may give more: [`Room::new`], or
    /// memory of earlier outputs. The run writes outputs there where their extents follow from the inputs'; others are
    /// copied.
    ///
    /// # Errors
    /// As [`Session::run`]; also when `room` has no memory.
    pub fn run_new(
        &mut self,
        tensors: &[TensorView<'_>],
        values: &[Value],
        mut room: impl FnMut(usize) -> Result<Room, OutOfMemory>,
    ) -> Result<Values, RunError> {
        self.run_in_room(tensors, values, &mut room)
    }

    /// [`Session::run_new`], of which there is one copy whoever gives room.
    fn run_in_room(
        &mut self,
        tensors: &[TensorView<'_>],
        values: &[Value],
        room: &mut dyn FnMut(usize) -> Result<Room, OutOfMemory>,
    ) -> Result<Values, RunError> {
        let errors = self.too_many("inputs", tensors.len(), self.model.inputs().len());
        self.start(&|i| tensors.get(i).copied().map(Placed::Host), values, errors)?;
        let Session { program, frame, output_dims, .. } = self;
        let Program { plan, facts, .. } = &**program;
        let mut made = Values::with_capacity(plan.outputs.len() + plan.value_outputs.len());
        for (i, spec) in plan.outputs.iter().enumerate().filter(|&(i, _)| !facts.late_outputs[i]) {
            let bytes = match output_spot(program, frame, spec, &mut output_dims[i]) {
                Ok(spot) => spot.bytes,
                Err(fault) => {
                    let error = RunError::Plan { fault, nodes: spec.name.clone() };
                    // It fails as well, perhaps at what the extents follow from: that says more.
                    return self.finish(&mut ()).and(Err(error));
                }
            };
            let Room { mut buffer, reuse } = room(bytes)?;
            buffer.reset(bytes)?;
            // SAFETY: aligned, initialised, and not touched here before the run ends.
            unsafe { frame.lend(spec.buffer, buffer.as_mut_ptr(), bytes) };
            made.push(tensor(spec, &output_dims[i], buffer, reuse)?);
        }
        self.finish(&mut ())?;
        let results = Outputs { session: self };
        let Program { plan, facts, .. } = &*self.program;
        for (i, spec) in plan.outputs.iter().enumerate() {
            let view = results.view(i);
            if facts.late_outputs[i] {
                let Room { mut buffer, reuse } = room(view.bytes.len())?;
                buffer.reset(view.bytes.len())?;
                buffer.copy_from_slice(view.bytes);
                made.insert(i, tensor(spec, view.dims, buffer, reuse)?);
            } else if let Value::Tensor(tensor) = &mut made[i] {
                // The run may have had it elsewhere.
                let is_elsewhere = tensor.bytes().as_ptr() != view.bytes.as_ptr();
                if let Some(tensor) = Arc::get_mut(tensor).filter(|_| is_elsewhere) {
                    tensor.bytes_mut().copy_from_slice(view.bytes);
                }
            }
        }
        for (spec, value) in results.values() {
            // Plans are validated: positions ascend, and none is beyond what there is.
            made.insert(spec.position as usize, value.clone());
        }
        Ok(made)
    }
}

/// An output in memory of its own, of which it may need less.
fn tensor(
    spec: &TensorSpec,
    dims: &[usize],
    mut buffer: AlignedBuf,
    reuse: Option<Arc<dyn Reuse>>,
) -> Result<Value, RunError> {
    let fault = || RunError::Plan { fault: ExecFault::Shape(spec.buffer), nodes: spec.name.clone() };
    buffer.reset(byte_len(spec.dtype, dims).ok_or_else(fault)?)?;
    Ok(Value::Tensor(Arc::new(Tensor::of_numbers(spec.dtype, dims, buffer, reuse))))
}
