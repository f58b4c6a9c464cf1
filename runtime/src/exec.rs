//! The executor: lays out memory for a set of input dims and steps through the instructions of a plan.
//!
//! What [`Plan::validate`](crate::plan::Plan::validate) proves is not checked again. Sizes are: every buffer is
//! located inside its memory before a kernel gets its address, once per set of input dims for early buffers, at
//! each use for late ones. Calls of host operators are in `host_call`.
#![allow(unsafe_code, reason = "passes addresses to kernels")]

mod host_call;

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use tilewright_dtype::DType;

use crate::error::{ExecFault, RunError};
use crate::memory::{AlignedBuf, OutOfMemory, dangling};
use crate::model::{Inner, KernelFn};
use crate::plan::{ALIGN, BufferId, HostId, Instr, Op, Place, SizeId, TextId};
use crate::pool::{Pool, TaskGrid};
use crate::sizes::Sizes;
use crate::tensor::byte_len;
use crate::value::Value;

pub use host_call::HostCall;

/// Watches a run, for profiles and for comparing intermediate tensors. `()` watches nothing and costs nothing.
pub trait Observer {
    /// Before an instruction; `index` is its place in [`Plan::instrs`](crate::plan::Plan::instrs).
    fn begin(&mut self, index: usize, instr: &Instr) {
        let _ = (index, instr);
    }

    /// After an instruction.
    fn end(&mut self, index: usize, instr: &Instr, state: &Inspect<'_>) {
        let _ = (index, instr, state);
    }
}

impl Observer for () {}

/// Buffers and sizes as they are between two instructions.
pub struct Inspect<'a> {
    model: &'a Inner,
    frame: &'a Frame,
}

impl Inspect<'_> {
    /// The bytes of a buffer; `None` while it has no memory.
    pub fn bytes(&self, id: BufferId) -> Option<&[u8]> {
        let spot = self.frame.spot(self.model, id).ok()?;
        // SAFETY: `spot` located the range inside initialised memory, which nothing writes between instructions.
        Some(unsafe { core::slice::from_raw_parts(spot.ptr, spot.bytes) })
    }

    /// The extents of a buffer; `None` while they are undefined.
    pub fn dims(&self, id: BufferId) -> Option<Vec<usize>> {
        let shape = &self.model.plan.buffers.get(id.index())?.shape;
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

/// A buffer in memory: `bytes` initialised bytes at `ptr`.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    pub(crate) ptr: *mut u8,
    pub(crate) bytes: usize,
}

/// A range within the memory of a root buffer.
#[derive(Clone, Copy)]
struct Extent {
    offset: usize,
    bytes: usize,
}

/// Memory of a root buffer: `room` initialised bytes at `ptr`, which is [`ALIGN`]ed.
#[derive(Clone, Copy)]
struct Base {
    ptr: *mut u8,
    room: usize,
}

const NO_MEMORY: Base = Base { ptr: dangling().as_ptr(), room: 0 };

/// The state of a session that instructions work on.
pub(crate) struct Frame {
    pub(crate) sizes: Sizes,
    pub(crate) memory_limit: u64,
    arena: AlignedBuf,
    /// Memory of outputs and dynamic buffers, by [`Facts::storage`](crate::model::Facts::storage).
    storage: Vec<AlignedBuf>,
    /// Memory of freed buffers.
    free: Vec<AlignedBuf>,
    /// Meaningful for root buffers.
    bases: Vec<Base>,
    /// Meaningful for early buffers; `None` where the sizes at hand do not fit.
    extents: Vec<Option<Extent>>,
    /// Host values; `None` before they are made.
    pub(crate) values: Vec<Option<Value>>,
    addresses: Vec<*mut u8>,
    size_args: Vec<i64>,
}

// SAFETY: the pointers are into memory that the frame owns, into the model's weights (immutable, shared), or into
// tensors of a run, which are only used while that run borrows them.
unsafe impl Send for Frame {}
// SAFETY: nothing is written through a shared reference.
unsafe impl Sync for Frame {}

impl Frame {
    pub(crate) fn new(model: &Inner, memory_limit: u64) -> Frame {
        let n_buffers = model.plan.buffers.len();
        let n_storage = model.facts.n_storage;
        let n_args = model.plan.kernels.iter().map(|kernel| kernel.params.len()).max().unwrap_or(0);
        let n_sizes = model.plan.kernels.iter().map(|kernel| kernel.n_sizes as usize).max().unwrap_or(0);
        Frame {
            sizes: Sizes::default(),
            memory_limit,
            arena: AlignedBuf::new(),
            storage: (0..n_storage).map(|_| AlignedBuf::new()).collect(),
            free: Vec::with_capacity(n_storage),
            bases: vec![NO_MEMORY; n_buffers],
            extents: vec![None; n_buffers],
            values: vec![None; model.plan.values.len()],
            addresses: Vec::with_capacity(n_args),
            size_args: Vec::with_capacity(n_sizes),
        }
    }

    pub(crate) fn size(&self, id: SizeId) -> Result<i64, ExecFault> {
        self.sizes.get(id).ok_or(ExecFault::Undefined(id))
    }

    pub(crate) fn count(&self, id: SizeId) -> Result<usize, ExecFault> {
        usize::try_from(self.size(id)?).map_err(|_| ExecFault::Negative(id))
    }

    pub(crate) fn value(&self, id: HostId) -> Result<&Value, ExecFault> {
        self.values[id.index()].as_ref().ok_or(ExecFault::NoValue(id))
    }

    /// Bytes the session holds; what the memory limit is about.
    pub(crate) fn reserved(&self) -> u64 {
        let owned = self.storage.iter().chain(&self.free).map(|buf| buf.capacity() as u64);
        owned.fold(self.arena.capacity() as u64, u64::saturating_add)
    }

    fn check_limit(&self, released: usize, asked: u64) -> Result<(), RunError> {
        let bytes = (self.reserved() - released as u64).saturating_add(asked);
        let limit = self.memory_limit;
        if bytes > limit { Err(RunError::Limit { bytes, limit }) } else { Ok(()) }
    }

    /// Lays out arena, blocks and early outputs for the sizes at hand. `bases` of inputs must be set.
    pub(crate) fn lay_out(&mut self, model: &Inner) -> Result<(), RunError> {
        let plan = &model.plan;
        let mut end = plan.arena_bytes;
        let mut blocks: Vec<(u64, u64)> = Vec::with_capacity(plan.blocks.len());
        for &size in &plan.blocks {
            // A block whose size is undefined here serves only branches that are not taken, or fails at its use.
            let bytes = self.sizes.get(size).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0);
            let start = end.checked_next_multiple_of(ALIGN as u64);
            let next = start.and_then(|start| start.checked_add(bytes));
            let (Some(start), Some(next)) = (start, next) else {
                return Err(RunError::Limit { bytes: u64::MAX, limit: self.memory_limit });
            };
            blocks.push((start, bytes));
            end = next;
        }
        if end > self.arena.capacity() as u64 {
            self.check_limit(self.arena.capacity(), end)?;
        }
        self.arena.reset(usize::try_from(end).map_err(|_| OutOfMemory { bytes: end })?)?;
        let arena = self.arena.as_mut_ptr();
        for (i, def) in plan.buffers.iter().enumerate() {
            // Ranges of weights, arena and blocks are inside: proved by validation, or laid out above.
            self.bases[i] = match def.place {
                Place::Weight { offset, len } => Base {
                    ptr: model.weights.as_ptr().wrapping_add(offset as usize).cast_mut(),
                    room: len as usize,
                },
                Place::Arena { offset } => Base {
                    ptr: arena.wrapping_add(offset as usize),
                    room: (plan.arena_bytes - offset) as usize,
                },
                Place::Block(block) => {
                    let (start, bytes) = blocks[block as usize];
                    Base { ptr: arena.wrapping_add(start as usize), room: bytes as usize }
                }
                Place::Output(_) if !model.facts.late[i] => {
                    match self.count(def.size_bytes) {
                        Ok(bytes) => self.allocate(model, BufferId(i as u32), bytes, false)?,
                        Err(_) => self.bases[i] = NO_MEMORY,
                    }
                    self.bases[i]
                }
                Place::Input(_) | Place::Output(_) | Place::Dynamic | Place::Alias { .. } => self.bases[i],
            };
        }
        for i in 0..plan.buffers.len() {
            if !model.facts.late[i] {
                self.extents[i] = self.locate(model, BufferId(i as u32)).ok();
            }
        }
        Ok(())
    }

    /// Frees the late buffers of the last run, and gives early outputs their own memory back.
    pub(crate) fn reset_storage(&mut self, model: &Inner) {
        for (i, storage) in model.facts.storage.iter().enumerate() {
            let Some(storage) = *storage else { continue };
            if model.facts.late[i] {
                self.release(model, BufferId(i as u32));
            } else {
                let buf = &mut self.storage[storage];
                self.bases[i] = Base { ptr: buf.as_mut_ptr(), room: buf.len() };
            }
        }
    }

    /// Sets the memory of an input or output to a caller's.
    ///
    /// # Safety
    /// `ptr` is [`ALIGN`]ed and good for `room` initialised bytes until the run ends; for an output, exclusively.
    pub(crate) unsafe fn lend(&mut self, id: BufferId, ptr: *mut u8, room: usize) {
        debug_assert!(ptr.addr() % ALIGN == 0);
        self.bases[id.index()] = if room == 0 { NO_MEMORY } else { Base { ptr, room } };
    }

    /// Gives a dynamic buffer or output memory of its own; `keep` its bytes or not.
    fn allocate(&mut self, model: &Inner, id: BufferId, bytes: usize, keep: bool) -> Result<(), RunError> {
        let Some(index) = model.facts.storage[id.index()] else { return Ok(()) };
        if self.storage[index].capacity() == 0 {
            self.take_spare(index, bytes);
        }
        let own = self.storage[index].capacity();
        if bytes > own {
            let capacity = if keep { bytes.max(own.saturating_add(own / 2)) } else { bytes };
            self.check_limit(if keep { 0 } else { own }, capacity as u64)?;
            let buf = &mut self.storage[index];
            if keep { buf.reserve(capacity)? } else { buf.reset(capacity)? }
        }
        let buf = &mut self.storage[index];
        buf.reset(bytes)?;
        self.bases[id.index()] = Base { ptr: buf.as_mut_ptr(), room: bytes };
        Ok(())
    }

    /// Moves freed memory to a storage that has none: the smallest that fits, else the largest, which is then
    /// replaced. So there are never more allocations than storages, however sizes change.
    fn take_spare(&mut self, index: usize, bytes: usize) {
        let capacity = |i: &usize| self.free[*i].capacity();
        let fits = (0..self.free.len()).filter(|i| capacity(i) >= bytes).min_by_key(capacity);
        if let Some(spare) = fits.or_else(|| (0..self.free.len()).max_by_key(capacity)) {
            self.storage[index] = self.free.swap_remove(spare);
        }
    }

    fn release(&mut self, model: &Inner, id: BufferId) {
        let Some(index) = model.facts.storage[id.index()] else { return };
        let buf = core::mem::take(&mut self.storage[index]);
        if buf.capacity() > 0 {
            self.free.push(buf);
        }
        self.bases[id.index()] = NO_MEMORY;
    }

    /// Finds a buffer inside the memory of its root with the sizes at hand.
    fn locate(&self, model: &Inner, id: BufferId) -> Result<Extent, ExecFault> {
        let buffers = &model.plan.buffers;
        let bytes = self.count(buffers[id.index()].size_bytes)?;
        let within = |offset: usize, room: usize| match offset.checked_add(bytes) {
            Some(end) if end <= room => Ok(()),
            _ => Err(ExecFault::Exceeds(id)),
        };
        let mut offset = 0usize;
        let mut at = id;
        while let Place::Alias { buffer, byte_offset } = buffers[at.index()].place {
            offset = offset.checked_add(self.count(byte_offset)?).ok_or(ExecFault::Exceeds(id))?;
            within(offset, self.count(buffers[buffer.index()].size_bytes)?)?;
            at = buffer;
        }
        within(offset, self.bases[at.index()].room)?;
        Ok(Extent { offset, bytes })
    }

    /// The memory of a buffer.
    pub(crate) fn spot(&self, model: &Inner, id: BufferId) -> Result<Spot, ExecFault> {
        let early = if model.facts.late[id.index()] { None } else { self.extents[id.index()] };
        let extent = match early {
            Some(extent) => extent,
            None => self.locate(model, id)?,
        };
        let base = self.bases[model.facts.roots[id.index()].index()];
        Ok(Spot { ptr: base.ptr.wrapping_add(extent.offset), bytes: extent.bytes })
    }

    fn dims(&self, model: &Inner, id: BufferId) -> Result<Vec<usize>, ExecFault> {
        model.plan.buffers[id.index()].shape.iter().map(|&size| self.count(size)).collect()
    }

    /// Bytes of the elements of a buffer, without padding; checked to be inside it.
    fn dense(&self, model: &Inner, id: BufferId) -> Result<(Vec<usize>, Spot), ExecFault> {
        let dims = self.dims(model, id)?;
        let spot = self.spot(model, id)?;
        match byte_len(model.plan.buffers[id.index()].dtype, &dims) {
            Some(bytes) if bytes <= spot.bytes => Ok((dims, Spot { ptr: spot.ptr, bytes })),
            _ => Err(ExecFault::Shape(id)),
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
    pub(crate) model: &'a Inner,
    pub(crate) frame: &'a mut Frame,
    pub(crate) pool: &'a dyn Pool,
}

impl Exec<'_> {
    /// Checks the guards at the head of the list.
    pub(crate) fn head_guards(&mut self) -> Result<(), RunError> {
        let model = self.model;
        for instr in &model.plan.instrs[..model.facts.n_head_guards] {
            self.step(instr).map_err(|failure| self.name(failure, instr.provenance))?;
        }
        Ok(())
    }

    /// Runs all instructions.
    pub(crate) fn run<O: Observer + ?Sized>(&mut self, observer: &mut O) -> Result<(), RunError> {
        let model = self.model;
        let mut index = 0;
        while let Some(instr) = model.plan.instrs.get(index) {
            observer.begin(index, instr);
            let jump = self.step(instr).map_err(|failure| self.name(failure, instr.provenance))?;
            observer.end(index, instr, &Inspect { model, frame: self.frame });
            index = jump.map_or(index + 1, |target| target as usize);
        }
        Ok(())
    }

    fn name(&self, failure: Failure, provenance: TextId) -> RunError {
        failure.into_error(self.model.plan.text(provenance))
    }

    /// Executes one instruction; returns where to jump.
    fn step(&mut self, instr: &Instr) -> Result<Option<u32>, Failure> {
        match &instr.op {
            Op::Call { kernel, buffers, sizes, rounds, per_round } => {
                self.call(kernel.index(), buffers, sizes, (*rounds, *per_round))?
            }
            Op::Host { op, attrs, inputs, outputs, sizes_out } => {
                self.host(*op, attrs, inputs, outputs, sizes_out, instr.provenance)?;
            }
            Op::Alloc { buffer } => {
                let bytes = self.frame.count(self.model.plan.buffers[buffer.index()].size_bytes)?;
                self.frame.allocate(self.model, *buffer, bytes, false)?;
            }
            Op::Grow { buffer } => {
                let bytes = self.frame.count(self.model.plan.buffers[buffer.index()].size_bytes)?;
                self.frame.allocate(self.model, *buffer, bytes, true)?;
            }
            Op::Free { buffer } => self.frame.release(self.model, *buffer),
            Op::ReadSize { buffer, element, slot } => {
                let value = self.read_element(*buffer, *element)?.ok_or(ExecFault::Undefined(*slot))?;
                self.set(*slot, value);
            }
            Op::ScaleSize { size, buffer, element, slot } => {
                let size = self.frame.size(*size)?;
                let factor = self.read_f32(*buffer, *element)?;
                let value = floor(size as f32 * factor).ok_or(ExecFault::Undefined(*slot))?;
                self.set(*slot, value);
            }
            Op::WriteSize { buffer, element, value } => {
                let number = self.frame.size(*value)?;
                self.write_element(*buffer, *element, number)?;
            }
            Op::SetSize { slot, value } => {
                let value = self.frame.size(*value)?;
                self.set(*slot, value);
            }
            Op::ReadDim { value, axis, slot } => {
                let extent = match self.frame.value(*value)? {
                    Value::Tensor(tensor) => tensor.dims().get(*axis as usize).copied(),
                    Value::Sequence(_) | Value::Optional(_) => None,
                };
                let extent = extent.and_then(|extent| i64::try_from(extent).ok());
                self.set(*slot, extent.ok_or(ExecFault::NoExtent(*value, *axis))?);
            }
            Op::CopyValue { from, to } => {
                let value = self.frame.value(*from)?.clone();
                self.frame.values[to.index()] = Some(value);
            }
            Op::Copy { from, to } => {
                let (source, target) =
                    (self.frame.spot(self.model, *from)?, self.frame.spot(self.model, *to)?);
                if source.bytes != target.bytes {
                    return Err(ExecFault::CopySize(*from, *to).into());
                }
                // SAFETY: both ranges were located inside memory of the run, and validation proved that the
                // target is not read only; they may overlap.
                unsafe { core::ptr::copy(source.ptr, target.ptr, source.bytes) }
            }
            Op::Guard { lhs, cmp, rhs, message } => {
                let (lhs, rhs) = (self.frame.size(*lhs)?, self.frame.size(*rhs)?);
                if !cmp.holds(lhs, rhs) {
                    let text = |id: TextId| -> String { self.model.plan.text(id).to_string() };
                    let (message, nodes) = (text(*message), text(instr.provenance));
                    return Err(RunError::Guard { message, lhs, cmp: *cmp, rhs, nodes }.into());
                }
            }
            Op::BranchIfZero { slot, target } => {
                return Ok((self.frame.size(*slot)? == 0).then_some(*target));
            }
            Op::Jump { target } => return Ok(Some(*target)),
        }
        Ok(None)
    }

    fn set(&mut self, slot: SizeId, value: i64) {
        self.frame.sizes.set(&self.model.plan.sizes, &self.model.facts.late_sizes, slot, value);
    }

    fn call(
        &mut self,
        kernel: usize,
        buffers: &[BufferId],
        sizes: &[SizeId],
        (rounds, per_round): (SizeId, SizeId),
    ) -> Result<(), Failure> {
        let count = |id: SizeId| {
            let value = self.frame.size(id)?;
            if value < 0 { Err(ExecFault::Negative(id)) } else { Ok(value) }
        };
        let grid = TaskGrid::new(count(rounds)?, count(per_round)?).ok_or(ExecFault::Undefined(per_round))?;
        if grid.tasks() == 0 {
            return Ok(());
        }
        self.frame.addresses.clear();
        for (&id, param) in buffers.iter().zip(&self.model.plan.kernels[kernel].params) {
            let spot = self.frame.spot(self.model, id)?;
            if spot.ptr.addr() & (param.align as usize - 1) != 0 {
                return Err(ExecFault::Misaligned(id).into());
            }
            self.frame.addresses.push(spot.ptr);
        }
        self.frame.size_args.clear();
        for &id in sizes {
            let size = self.frame.size(id)?;
            self.frame.size_args.push(size);
        }
        let launch = Launch {
            kernel: self.model.kernel(kernel),
            buffers: self.frame.addresses.as_ptr(),
            sizes: self.frame.size_args.as_ptr(),
        };
        if grid.tasks() == 1 {
            launch.run(0, 1);
        } else {
            self.pool.run(grid, &|begin, end| launch.run(begin, end));
        }
        Ok(())
    }

    /// The bytes of element `element`, checked to be inside the buffer.
    fn element(&self, id: BufferId, element: u32) -> Result<*mut u8, ExecFault> {
        let spot = self.frame.spot(self.model, id)?;
        let size = self.model.plan.buffers[id.index()].dtype.bytes();
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
            match self.model.plan.buffers[id.index()].dtype {
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
            if self.model.plan.buffers[id.index()].dtype == DType::I64 {
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
