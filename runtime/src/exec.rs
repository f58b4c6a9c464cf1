//! The executor: lays out memory for a set of input dims and steps through the instructions of a plan.
//!
//! What [`Plan::validate`](crate::plan::Plan::validate) proves is not checked again. Sizes are: every buffer is
//! located inside its memory before a kernel gets its address, once per set of input dims for early buffers, at
//! each use for late ones: that is `frame`. Calls of host operators are in `host_call`.
#![allow(unsafe_code, reason = "passes addresses to kernels")]

#[cfg(feature = "devices")]
mod away;
mod frame;
#[cfg(feature = "devices")]
mod graphs;
mod host_call;
mod on_device;
mod storage;
mod timing;

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tilewright_dtype::DType;

use crate::cancel::Cancel;
use crate::device::{DeviceError, Launch as DeviceLaunch};
use crate::error::{ExecFault, RunError};
use crate::memory::{OutOfMemory, nothing};
use crate::model::{KernelCode, KernelFn, Program};
use crate::plan::{BufferId, HostId, Instr, PlanOp, SizeId, Space, TextId};
use crate::pool::{Pool, TaskGrid, run_tasks};
use crate::value::Value;

#[cfg(feature = "devices")]
pub(crate) use away::touched_by_host;
pub(crate) use frame::{Draws, Frame, Spot};
#[cfg(feature = "devices")]
pub(crate) use graphs::stretches;
pub use host_call::HostCall;
#[cfg(feature = "devices")]
pub(crate) use on_device::DeviceBuf;
pub(crate) use on_device::{DEVICES, ModelDevice};
use timing::Timing;

/// Watches a run, for profiles and for comparing intermediate tensors. `()` watches nothing and costs nothing.
pub trait RunObserver {
    /// Before an instruction; `index` is its place in [`Plan::instrs`](crate::plan::Plan::instrs).
    fn begin(&mut self, index: usize, instr: &Instr) {
        let _ = (index, instr);
    }

    /// Whether what an instruction gives a device to do is waited for before [`RunObserver::end`]: then times are the device's too, and
    /// a run takes longer.
    fn waits(&self) -> bool {
        false
    }

    /// Whether it wants to be told of each instruction, which is the default. Where not, stretches of a plan may run at once.
    fn watches(&self) -> bool {
        true
    }

    /// Whether the device's own times are asked for. They are told by [`RunObserver::device_time`], and nothing is waited for but what the
    /// run itself waits for, before [`RunObserver::begin`]. A device that has none is waited for as by [`RunObserver::waits`].
    fn times_device(&self) -> bool {
        false
    }

    /// How many nanoseconds the device took for an instruction, at the end of a run; once each time that it ran.
    fn device_time(&mut self, index: usize, nanoseconds: f64) {
        let _ = (index, nanoseconds);
    }

    /// After an instruction.
    fn end(&mut self, index: usize, instr: &Instr, state: &Inspect<'_>) {
        let _ = (index, instr, state);
    }
}

impl RunObserver for () {
    fn watches(&self) -> bool {
        false
    }
}

/// Buffers and sizes as they are between two instructions.
pub struct Inspect<'a> {
    program: &'a Program,
    frame: &'a Frame,
}

impl Inspect<'_> {
    /// The bytes of a buffer; `None` while it has no memory, and for those on a device.
    pub fn bytes(&self, id: BufferId) -> Option<&[u8]> {
        if self.program.plan.buffers.get(id.index())?.space == Space::Device || self.frame.under_way.downloads
        {
            return None;
        }
        let spot = self.frame.spot(self.program, id).ok()?;
        // SAFETY: `spot` located the range inside initialised memory, which nothing writes between instructions.
        Some(unsafe { core::slice::from_raw_parts(spot.ptr, spot.bytes) })
    }

    /// The extents of a buffer; `None` while they are undefined.
    pub fn dims(&self, id: BufferId) -> Option<Vec<usize>> {
        let shape = &self.program.plan.buffers.get(id.index())?.shape;
        shape.iter().map(|&size| usize::try_from(self.size(size)?).ok()).collect()
    }

    /// A host value; `None` while there is none.
    pub fn value(&self, id: HostId) -> Option<&Value> {
        self.frame.values.get(id.index())?.as_ref()
    }

    /// The value of a size slot; `None` while it is undefined.
    pub fn size(&self, id: SizeId) -> Option<i64> {
        self.frame.sizes.get(id)
    }
}

/// A failure inside an instruction; [`Exec::name`] adds the nodes.
pub(crate) enum Failure {
    Fault(ExecFault),
    Run(RunError),
}

impl From<ExecFault> for Failure {
    fn from(fault: ExecFault) -> Failure {
        Failure::Fault(fault)
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Failure {
        Failure::Run(error)
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Failure {
        Failure::Run(RunError::Device(error))
    }
}

impl From<OutOfMemory> for Failure {
    fn from(error: OutOfMemory) -> Failure {
        Failure::Run(RunError::Memory(error))
    }
}

impl Failure {
    pub(crate) fn into_error(self, nodes: &str) -> RunError {
        match self {
            Failure::Run(error) => error,
            Failure::Fault(fault) => RunError::Plan { fault, nodes: nodes.to_string() },
        }
    }
}

/// What a parallel call hands to the threads.
struct Launch {
    kernel: KernelFn,
    buffers: *const *mut u8,
    sizes: *const i64,
}

// SAFETY: kernels only read the two arrays, and the tasks of a kernel may run at the same time.
unsafe impl Sync for Launch {}

impl Launch {
    fn run(&self, begin: i64, end: i64) {
        // SAFETY: `Exec::call` located every buffer; that kernels keep to them is the contract of `Model::assemble`.
        unsafe { (self.kernel)(self.buffers, self.sizes, begin, end) }
    }
}

/// One run of a plan on a frame.
pub(crate) struct Exec<'a> {
    pub(crate) program: &'a Program,
    pub(crate) frame: &'a mut Frame,
    pub(crate) pool: &'a dyn Pool,
}

impl Exec<'_> {
    /// Checks the guards at the head of the list.
    pub(crate) fn head_guards(&mut self) -> Result<(), RunError> {
        let program = self.program;
        for instr in &program.plan.instrs[..program.facts.n_head_guards] {
            self.step(instr).map_err(|failure| self.name(failure, instr.provenance))?;
        }
        Ok(())
    }

    /// Runs all instructions, and waits for what they gave the device to do.
    pub(crate) fn run<O: RunObserver + ?Sized>(&mut self, observer: &mut O) -> Result<(), RunError> {
        let wanted = DEVICES && observer.times_device();
        let mut timing = if wanted { Timing::start(&mut self.frame.stream)? } else { None };
        let run = self.instructions(observer, timing.as_mut());
        // Memory of this run may go or be read after it, also where it failed.
        let waited = self.frame.wait().map_err(RunError::Device);
        let times = timing.map(|timing| timing.finish(&mut self.frame.stream));
        let run = run.and(waited);
        #[cfg(feature = "devices")]
        self.frame.graphs.after_run(run.is_ok());
        run?;
        if let Some(times) = times.filter(|_| DEVICES) {
            times?.into_iter().for_each(|(index, nanoseconds)| observer.device_time(index, nanoseconds));
        }
        Ok(())
    }

    fn instructions<O: RunObserver + ?Sized>(
        &mut self,
        observer: &mut O,
        mut timing: Option<&mut Timing>,
    ) -> Result<(), RunError> {
        let program = self.program;
        let waits = observer.waits() || (DEVICES && observer.times_device() && timing.is_none());
        let mut index = 0;
        while let Some(instr) = program.plan.instrs.get(index) {
            if self.frame.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                return Err(RunError::Cancelled);
            }
            #[cfg(feature = "devices")]
            if let Some(next) = self.stretch(index, observer.watches())? {
                index = next;
                continue;
            }
            let timing = timing.as_deref_mut().filter(|_| DEVICES);
            if timing.is_some() && self.must_wait(&instr.op) {
                self.frame.wait().map_err(|error| self.name(error.into(), instr.provenance))?;
            }
            observer.begin(index, instr);
            let step = match timing.filter(|_| self.gives_device_work(&instr.op)) {
                Some(timing) => self.timed_step(index, instr, timing),
                None => self.step(instr),
            };
            let jump = step.map_err(|failure| self.name(failure, instr.provenance))?;
            if waits {
                self.frame.wait().map_err(|error| self.name(error.into(), instr.provenance))?;
            }
            observer.end(index, instr, &Inspect { program, frame: self.frame });
            index = jump.map_or(index + 1, |target| target as usize);
        }
        Ok(())
    }

    /// Executes an instruction between two marks of the stream.
    fn timed_step(
        &mut self,
        index: usize,
        instr: &Instr,
        timing: &mut Timing,
    ) -> Result<Option<u32>, Failure> {
        // It may turn out to have nothing to do, and its marks are waited for all the same.
        self.frame.under_way.any = true;
        let begin = Timing::mark(&mut self.frame.stream)?;
        let jump = self.step(instr)?;
        timing.add(index, begin, Timing::mark(&mut self.frame.stream)?);
        Ok(jump)
    }

    fn name(&self, failure: Failure, provenance: TextId) -> RunError {
        failure.into_error(self.program.plan.text(provenance))
    }

    /// Executes one instruction; returns where to jump.
    fn step(&mut self, instr: &Instr) -> Result<Option<u32>, Failure> {
        if self.must_wait(&instr.op) {
            self.frame.wait()?;
        }
        match &instr.op {
            PlanOp::Call { kernel, buffers, sizes, rounds, per_round, in_order } => {
                self.call(kernel.index(), buffers, sizes, (*rounds, *per_round), *in_order)?
            }
            PlanOp::Host { op, attrs, inputs, outputs, sizes_out } => {
                // Without these no model is loaded that has one.
                if cfg!(feature = "host-operators") {
                    self.host(*op, attrs, inputs, outputs, sizes_out, instr.provenance)?;
                }
            }
            PlanOp::Alloc { buffer } => {
                let bytes = self.frame.count(self.program.plan.buffers[buffer.index()].size_bytes)?;
                self.frame.allocate(self.program, *buffer, bytes, false)?;
            }
            PlanOp::Grow { buffer } => {
                let bytes = self.frame.count(self.program.plan.buffers[buffer.index()].size_bytes)?;
                self.frame.allocate(self.program, *buffer, bytes, true)?;
            }
            PlanOp::Free { buffer } => self.frame.release(self.program, *buffer),
            PlanOp::ReadSize { buffer, element, slot } => {
                let value = self.read_element(*buffer, *element)?.ok_or(ExecFault::Undefined(*slot))?;
                self.set(*slot, value);
            }
            PlanOp::ScaleSize { size, buffer, element, slot } => {
                let size = self.frame.size(*size)?;
                let factor = self.read_f32(*buffer, *element)?;
                let value = floor(size as f32 * factor).ok_or(ExecFault::Undefined(*slot))?;
                self.set(*slot, value);
            }
            PlanOp::WriteSize { buffer, element, value } => {
                let number = self.frame.size(*value)?;
                self.write_element(*buffer, *element, number)?;
            }
            PlanOp::SetSize { slot, value } => {
                let value = self.frame.size(*value)?;
                self.set(*slot, value);
            }
            PlanOp::ReadDim { value, axis, slot } => {
                let extent = match self.frame.value(*value)? {
                    Value::Tensor(tensor) => tensor.dims().get(*axis as usize).copied(),
                    Value::Sequence(_) | Value::Optional(_) => None,
                };
                let extent = extent.and_then(|extent| i64::try_from(extent).ok());
                self.set(*slot, extent.ok_or(ExecFault::NoExtent(*value, *axis))?);
            }
            PlanOp::CopyValue { from, to } => {
                let value = self.frame.value(*from)?.clone();
                self.frame.values[to.index()] = Some(value);
            }
            PlanOp::Copy { from, to } => self.copy(*from, *to)?,
            PlanOp::Guard { lhs, cmp, rhs, message } => {
                let (lhs, rhs) = (self.frame.size(*lhs)?, self.frame.size(*rhs)?);
                if !cmp.holds(lhs, rhs) {
                    let text = |id: TextId| -> String { self.program.plan.text(id).to_string() };
                    let (message, nodes) = (text(*message), text(instr.provenance));
                    return Err(RunError::Guard { message, lhs, cmp: *cmp, rhs, nodes }.into());
                }
            }
            PlanOp::BranchIfZero { slot, target } => {
                return Ok((self.frame.size(*slot)? == 0).then_some(*target));
            }
            PlanOp::Jump { target } => return Ok(Some(*target)),
        }
        Ok(None)
    }

    /// Where a buffer lies in this run.
    fn space(&self, id: BufferId) -> Space {
        #[cfg(feature = "devices")]
        if self.frame.is_away(self.program.facts.roots[id.index()]) {
            return Space::Device;
        }
        self.program.plan.buffers[id.index()].space
    }

    /// Whether an instruction is done by the device.
    fn gives_device_work(&self, op: &PlanOp) -> bool {
        match op {
            PlanOp::Call { kernel, .. } => self.program.plan.kernels[kernel.index()].space == Space::Device,
            PlanOp::Copy { from, to } => [from, to].into_iter().any(|id| self.space(*id) == Space::Device),
            PlanOp::Host { .. }
            | PlanOp::Alloc { .. }
            | PlanOp::Grow { .. }
            | PlanOp::Free { .. }
            | PlanOp::ReadSize { .. }
            | PlanOp::ScaleSize { .. }
            | PlanOp::WriteSize { .. }
            | PlanOp::SetSize { .. }
            | PlanOp::ReadDim { .. }
            | PlanOp::CopyValue { .. }
            | PlanOp::Guard { .. }
            | PlanOp::BranchIfZero { .. }
            | PlanOp::Jump { .. } => false,
        }
    }

    /// Whether an instruction touches memory of the host that the device may still read or write.
    fn must_wait(&self, op: &PlanOp) -> bool {
        let under_way = self.frame.under_way;
        if !DEVICES || !(under_way.uploads || under_way.downloads) {
            return false;
        }
        match op {
            PlanOp::Call { kernel, .. } => self.program.plan.kernels[kernel.index()].space == Space::Host,
            PlanOp::Host { .. }
            | PlanOp::ReadSize { .. }
            | PlanOp::ScaleSize { .. }
            | PlanOp::WriteSize { .. } => true,
            PlanOp::Alloc { buffer } | PlanOp::Grow { buffer } | PlanOp::Free { buffer } => {
                self.space(*buffer) == Space::Host
            }
            PlanOp::Copy { from, to } => match (self.space(*from), self.space(*to)) {
                (Space::Host, Space::Host) => true,
                // A driver may read the source when it is asked, before what comes first is done.
                (Space::Host, Space::Device) => under_way.downloads,
                (Space::Device, Space::Host | Space::Device) => false,
            },
            PlanOp::SetSize { .. }
            | PlanOp::ReadDim { .. }
            | PlanOp::CopyValue { .. }
            | PlanOp::Guard { .. }
            | PlanOp::BranchIfZero { .. }
            | PlanOp::Jump { .. } => false,
        }
    }

    fn copy(&mut self, from: BufferId, to: BufferId) -> Result<(), Failure> {
        let (source, target) = (self.frame.spot(self.program, from)?, self.frame.spot(self.program, to)?);
        if source.bytes != target.bytes {
            return Err(ExecFault::CopySize(from, to).into());
        }
        let spaces = (self.space(from), self.space(to));
        if spaces == (Space::Host, Space::Host) {
            // SAFETY: both ranges were located inside memory of the run, and validation proved that the
            // target is not read only; they may overlap.
            unsafe { core::ptr::copy(source.ptr, target.ptr, source.bytes) }
            return Ok(());
        }
        let stream = self.frame.stream.as_mut();
        let Some(stream) = stream.filter(|_| DEVICES && source.bytes > 0) else { return Ok(()) };
        let under_way = &mut self.frame.under_way;
        under_way.any = true;
        let address = |ptr: *mut u8| ptr.addr() as u64;
        // SAFETY: as above, and the memory of a run stays until its stream has been waited for: `must_wait`, `Frame::wait`.
        unsafe {
            match spaces {
                (Space::Host, _) => {
                    under_way.uploads = true;
                    stream.upload(source.ptr, address(target.ptr), source.bytes)?;
                }
                (Space::Device, Space::Host) => {
                    under_way.downloads = true;
                    stream.download(address(source.ptr), target.ptr, source.bytes)?;
                }
                (Space::Device, Space::Device) => {
                    stream.copy(address(source.ptr), address(target.ptr), source.bytes)?;
                }
            }
        }
        Ok(())
    }

    fn set(&mut self, slot: SizeId, value: i64) {
        self.frame.sizes.set(&self.program.plan.sizes, &self.program.facts.late_sizes, slot, value);
    }

    fn call(
        &mut self,
        kernel: usize,
        buffers: &[BufferId],
        sizes: &[SizeId],
        (rounds, per_round): (SizeId, SizeId),
        in_order: bool,
    ) -> Result<(), Failure> {
        let count = |id: SizeId| {
            let value = self.frame.size(id)?;
            if value < 0 { Err(ExecFault::Negative(id)) } else { Ok(value) }
        };
        let grid = TaskGrid::new(count(rounds)?, count(per_round)?).ok_or(ExecFault::Undefined(per_round))?;
        if grid.tasks() == 0 {
            return Ok(());
        }
        let code = self.program.kernel(kernel);
        self.frame.addresses.clear();
        self.frame.device_addresses.clear();
        for (&id, param) in buffers.iter().zip(&self.program.plan.kernels[kernel].params) {
            let spot = self.frame.spot(self.program, id)?;
            if spot.ptr.addr() & (param.align as usize - 1) != 0 {
                return Err(ExecFault::Misaligned(id).into());
            }
            match (code, self.program.device()) {
                (KernelCode::Device(_), Some(device)) => {
                    let address = if spot.bytes == 0 { device.nothing() } else { spot.ptr.addr() as u64 };
                    self.frame.device_addresses.push(address);
                }
                (KernelCode::Device(_), None) | (KernelCode::Host(_), _) => {
                    self.frame.addresses.push(if spot.bytes == 0 { nothing() } else { spot.ptr });
                }
            }
        }
        self.frame.size_args.clear();
        for &id in sizes {
            let size = self.frame.size(id)?;
            self.frame.size_args.push(size);
        }
        let kernel = match code {
            KernelCode::Host(kernel) => kernel,
            KernelCode::Device(index) => return self.launch(index, grid.tasks()),
        };
        let launch =
            Launch { kernel, buffers: self.frame.addresses.as_ptr(), sizes: self.frame.size_args.as_ptr() };
        run_tasks(self.pool, grid, in_order, &|begin, end| launch.run(begin, end));
        Ok(())
    }

    /// Runs all tasks of a kernel on the device, with the arguments in the frame.
    fn launch(&mut self, kernel: usize, tasks: i64) -> Result<(), Failure> {
        let Some(stream) = self.frame.stream.as_mut().filter(|_| DEVICES) else { return Ok(()) };
        self.frame.under_way.any = true;
        let (buffers, sizes) = (&self.frame.device_addresses[..], &self.frame.size_args[..]);
        // SAFETY: `call` located every buffer, whose memory stays until the stream has been waited for; that kernels keep to them is
        // the contract of `Model::of_programs`.
        unsafe { stream.launch(&DeviceLaunch { kernel, buffers, sizes, first: 0, tasks }) }?;
        Ok(())
    }

    /// The bytes of element `element`, checked to be inside the buffer.
    fn element(&self, id: BufferId, element: u32) -> Result<*mut u8, ExecFault> {
        let spot = self.frame.spot(self.program, id)?;
        let size = self.program.plan.buffers[id.index()].dtype.bytes();
        let offset = size.checked_mul(element as usize);
        match offset.and_then(|offset| Some((offset, offset.checked_add(size)?))) {
            Some((offset, end)) if end <= spot.bytes => Ok(spot.ptr.wrapping_add(offset)),
            _ => Err(ExecFault::Element(id, element)),
        }
    }

    /// `None` if the value does not fit an `i64`.
    fn read_element(&self, id: BufferId, element: u32) -> Result<Option<i64>, ExecFault> {
        let ptr = self.element(id, element)?;
        // SAFETY: `element` checked that the bytes of one element are inside the buffer; aliases may be unaligned.
        let value = unsafe {
            match self.program.plan.buffers[id.index()].dtype {
                DType::Bool | DType::U8 | DType::U4 | DType::U2 => Some(i64::from(*ptr)),
                DType::I8 | DType::I4 | DType::I2 => Some(i64::from(*ptr.cast::<i8>())),
                DType::I16 => Some(i64::from(ptr.cast::<i16>().read_unaligned())),
                DType::I32 => Some(i64::from(ptr.cast::<i32>().read_unaligned())),
                DType::I64 => Some(ptr.cast::<i64>().read_unaligned()),
                DType::U16 => Some(i64::from(ptr.cast::<u16>().read_unaligned())),
                DType::U32 => Some(i64::from(ptr.cast::<u32>().read_unaligned())),
                DType::U64 => i64::try_from(ptr.cast::<u64>().read_unaligned()).ok(),
                DType::F16
                | DType::BF16
                | DType::F32
                | DType::F64
                | DType::F8E4M3FN
                | DType::F8E4M3FNUZ
                | DType::F8E5M2
                | DType::F8E5M2FNUZ
                | DType::F8E8M0
                | DType::F4E2M1
                | DType::String => None,
            }
        };
        Ok(value)
    }

    fn read_f32(&self, id: BufferId, element: u32) -> Result<f32, ExecFault> {
        let ptr = self.element(id, element)?;
        // SAFETY: as in `read_element`; validation proved that the elements are `f32`.
        Ok(unsafe { ptr.cast::<f32>().read_unaligned() })
    }

    fn write_element(&mut self, id: BufferId, element: u32, value: i64) -> Result<(), ExecFault> {
        let ptr = self.element(id, element)?;
        // SAFETY: as in `read_element`; validation proved that the buffer is not read only and is `i64` or `i32`.
        unsafe {
            if self.program.plan.buffers[id.index()].dtype == DType::I64 {
                ptr.cast::<i64>().write_unaligned(value);
            } else {
                let value = i32::try_from(value).map_err(|_| ExecFault::Element(id, element))?;
                ptr.cast::<i32>().write_unaligned(value);
            }
        }
        Ok(())
    }
}

/// The number rounded towards minus infinity, if it is an `i64`.
fn floor(number: f32) -> Option<i64> {
    // 2^63 and what is beyond, infinities and NaN have none.
    if !(-9.223_372e18..9.223_372e18).contains(&number) {
        return None;
    }
    let truncated = number as i64;
    Some(if truncated as f32 > number { truncated - 1 } else { truncated })
}

#[cfg(test)]
mod tests {
    use super::floor;

    #[test]
    fn numbers_round_down_to_sizes() {
        let check = |number: f32, expect: Option<i64>| assert_eq!(floor(number), expect, "{number}");
        check(2.75, Some(2));
        check(-2.25, Some(-3));
        check(-3.0, Some(-3));
        check(f32::NAN, None);
        check(f32::INFINITY, None);
        check(-1e30, None);
    }
}
