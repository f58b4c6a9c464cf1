//! Inputs and outputs that lie on the device in place of the host, where the plan has them.
//!
//! Such a buffer is *away* for one run: its address is one of the device, and every copy from or to it is one that the device makes, or
//! one from space to space where the plan has none. Nothing else may touch it ([`touched_by_host`]).
#![allow(unsafe_code, reason = "moves bytes between host and device")]

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ptr::without_provenance_mut;

use super::{Frame, ModelDevice};
use crate::device::{DeviceError, Stream};
use crate::plan::{BufferId, Plan, PlanOp, Space};

/// By buffer at the end of an alias chain: whether the host does anything with it but copy it.
pub(crate) fn touched_by_host(plan: &Plan, roots: &[BufferId]) -> Vec<bool> {
    let mut touched = vec![false; plan.buffers.len()];
    let mut touch = |id: &BufferId| touched[roots[id.index()].index()] = true;
    for instr in &plan.instrs {
        match &instr.op {
            PlanOp::Call { kernel, buffers, .. } => {
                if plan.kernels[kernel.index()].space == Space::Host {
                    buffers.iter().for_each(&mut touch);
                }
            }
            PlanOp::Host { inputs, outputs, .. } => {
                inputs.iter().chain(outputs).filter_map(|operand| operand.buffer()).for_each(|id| touch(&id));
            }
            PlanOp::Alloc { buffer }
            | PlanOp::Grow { buffer }
            | PlanOp::Free { buffer }
            | PlanOp::ReadSize { buffer, .. }
            | PlanOp::ScaleSize { buffer, .. }
            | PlanOp::WriteSize { buffer, .. } => touch(buffer),
            PlanOp::Copy { .. }
            | PlanOp::SetSize { .. }
            | PlanOp::ReadDim { .. }
            | PlanOp::CopyValue { .. }
            | PlanOp::Guard { .. }
            | PlanOp::BranchIfZero { .. }
            | PlanOp::Jump { .. } => {}
        }
    }
    touched
}

impl Frame {
    /// Ends what the last run had away.
    pub(crate) fn all_are_here(&mut self) {
        self.away.clear();
    }

    /// Whether a buffer at the end of an alias chain is away.
    pub(crate) fn is_away(&self, root: BufferId) -> bool {
        self.away.contains(&root)
    }

    /// Sets the memory of an input or output, which the host does not touch, to a caller's on the device.
    ///
    /// # Safety
    /// `address` is good for `room` bytes on the device until the run ends; for an output, exclusively.
    pub(crate) unsafe fn lend_away(&mut self, id: BufferId, address: u64, room: usize) {
        self.away.push(id);
        self.set_base(id, without_provenance_mut(address as usize), room);
    }

    /// Copies from the device to the host, and waits for it.
    ///
    /// # Safety
    /// `from` is good for as many bytes on the device.
    pub(crate) unsafe fn fetch(
        &mut self,
        device: &ModelDevice,
        from: u64,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        if to.is_empty() {
            return Ok(());
        }
        self.under_way.any = true;
        // SAFETY: both are there to the wait, which also ends what an error left under way.
        let asked = unsafe { self.open_stream(device)?.download(from, to.as_mut_ptr(), to.len()) };
        self.wait().and(asked)
    }

    /// Copies from the host to the device, and waits for it.
    ///
    /// # Safety
    /// `to` is good for as many bytes on the device, exclusively.
    pub(crate) unsafe fn send(
        &mut self,
        device: &ModelDevice,
        from: &[u8],
        to: u64,
    ) -> Result<(), DeviceError> {
        if from.is_empty() {
            return Ok(());
        }
        self.under_way.any = true;
        // SAFETY: as in `fetch`.
        let asked = unsafe { self.open_stream(device)?.upload(from.as_ptr(), to, from.len()) };
        self.wait().and(asked)
    }

    /// The session's stream, which is made where there is none yet.
    pub(super) fn open_stream(&mut self, device: &ModelDevice) -> Result<&mut Box<dyn Stream>, DeviceError> {
        Ok(match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(device.module.stream()?),
        })
    }
}
