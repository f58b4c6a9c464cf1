//! The memory of a session as the instructions of a program see it: arena, buffers, sizes.
#![allow(unsafe_code, reason = "shares pointers between threads")]

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::error::{ExecFault, RunError};
use crate::host::Draw;
use crate::memory::{AlignedBuf, OutOfMemory, dangling};
use crate::model::Program;
use crate::plan::{ALIGN, BufferId, HostId, Place, SizeId, TensorSpec};
use crate::sizes::Sizes;
use crate::tensor::byte_len;
use crate::value::Value;

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

/// The random numbers drawn so far.
#[derive(Default)]
pub(crate) struct Draws {
    pub(crate) seed: u64,
    counts: BTreeMap<u64, u64>,
}

impl Draws {
    /// Those of a session that has not run.
    pub(crate) fn of_seed(seed: u64) -> Draws {
        Draws { seed, counts: BTreeMap::new() }
    }

    /// The next call of a stream.
    pub(crate) fn next(&mut self, stream: u64) -> Draw {
        let count = self.counts.entry(stream).or_default();
        let draw = Draw { seed: self.seed, count: *count };
        *count = count.wrapping_add(1);
        draw
    }
}

/// The state of a session that instructions work on.
pub(crate) struct Frame {
    pub(crate) sizes: Sizes,
    /// Kept from run to run, and from program to program.
    pub(crate) draws: Draws,
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
    /// Arguments of the kernel that is called.
    pub(super) addresses: Vec<*mut u8>,
    pub(super) size_args: Vec<i64>,
}

// SAFETY: the pointers are into memory that the frame owns, into the model's weights (immutable, shared), or into
// tensors of a run, which are only used while that run borrows them.
unsafe impl Send for Frame {}
// SAFETY: nothing is written through a shared reference.
unsafe impl Sync for Frame {}

impl Frame {
    pub(crate) fn new(program: &Program, memory_limit: u64) -> Frame {
        let mut frame = Frame {
            sizes: Sizes::default(),
            draws: Draws::default(),
            memory_limit,
            arena: AlignedBuf::new(),
            storage: Vec::new(),
            free: Vec::new(),
            bases: Vec::new(),
            extents: Vec::new(),
            values: Vec::new(),
            addresses: Vec::new(),
            size_args: Vec::new(),
        };
        frame.become_of(program);
        frame
    }

    /// Makes this the frame of another program of the model, to be laid out next. The memory is that of before, so the
    /// programs of a model need together what the largest of them does.
    pub(crate) fn switch(&mut self, from: &Program, to: &Program) {
        let mut old = core::mem::take(&mut self.storage);
        self.become_of(to);
        // An output keeps its memory: what suits one run of it suits others best.
        for (from_spec, to_spec) in from.plan.outputs.iter().zip(&to.plan.outputs) {
            let place = |program: &Program, spec: &TensorSpec| program.facts.storage[spec.buffer.index()];
            if let (Some(from), Some(to)) = (place(from, from_spec), place(to, to_spec)) {
                self.storage[to] = core::mem::take(&mut old[from]);
            }
        }
        self.free.extend(old.into_iter().filter(|buf| buf.capacity() > 0));
    }

    fn become_of(&mut self, program: &Program) {
        let Program { plan, facts, .. } = program;
        self.storage.resize_with(facts.n_storage, AlignedBuf::new);
        // Once a program has run, a run of it allocates nothing.
        self.free.reserve(facts.n_storage);
        self.bases.clear();
        self.bases.resize(plan.buffers.len(), NO_MEMORY);
        self.extents.clear();
        self.extents.resize(plan.buffers.len(), None);
        self.values.clear();
        self.values.resize(plan.values.len(), None);
        self.addresses.clear();
        self.addresses.reserve(plan.kernels.iter().map(|kernel| kernel.params.len()).max().unwrap_or(0));
        self.size_args.clear();
        self.size_args.reserve(plan.kernels.iter().map(|kernel| kernel.n_sizes as usize).max().unwrap_or(0));
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

    fn check_limit(&mut self, released: usize, asked: u64) -> Result<(), RunError> {
        let limit = self.memory_limit;
        let bytes = |frame: &Frame| (frame.reserved() - released as u64).saturating_add(asked);
        if bytes(self) > limit {
            // What is kept for later must not stand in the way.
            self.free.clear();
        }
        let bytes = bytes(self);
        if bytes > limit { Err(RunError::Limit { bytes, limit }) } else { Ok(()) }
    }

    /// Lays out arena, blocks and early outputs for the sizes at hand. `bases` of inputs must be set.
    pub(crate) fn lay_out(&mut self, program: &Program) -> Result<(), RunError> {
        let plan = &program.plan;
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
                    ptr: program.weights.as_ptr().wrapping_add(offset as usize).cast_mut(),
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
                Place::Output(_) if !program.facts.late[i] => {
                    match self.count(def.size_bytes) {
                        Ok(bytes) => self.allocate(program, BufferId(i as u32), bytes, false)?,
                        Err(_) => self.bases[i] = NO_MEMORY,
                    }
                    self.bases[i]
                }
                Place::Input(_) | Place::Output(_) | Place::Dynamic | Place::Alias { .. } => self.bases[i],
            };
        }
        for i in 0..plan.buffers.len() {
            if !program.facts.late[i] {
                self.extents[i] = self.locate(program, BufferId(i as u32)).ok();
            }
        }
        Ok(())
    }

    /// Frees the late buffers of the last run, and gives early outputs their own memory back.
    pub(crate) fn reset_storage(&mut self, program: &Program) {
        for (i, storage) in program.facts.storage.iter().enumerate() {
            let Some(storage) = *storage else { continue };
            if program.facts.late[i] {
                self.release(program, BufferId(i as u32));
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
    pub(super) fn allocate(
        &mut self,
        program: &Program,
        id: BufferId,
        bytes: usize,
        keep: bool,
    ) -> Result<(), RunError> {
        let Some(index) = program.facts.storage[id.index()] else { return Ok(()) };
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

    pub(super) fn release(&mut self, program: &Program, id: BufferId) {
        let Some(index) = program.facts.storage[id.index()] else { return };
        let buf = core::mem::take(&mut self.storage[index]);
        if buf.capacity() > 0 {
            self.free.push(buf);
        }
        self.bases[id.index()] = NO_MEMORY;
    }

    /// Finds a buffer inside the memory of its root with the sizes at hand.
    fn locate(&self, program: &Program, id: BufferId) -> Result<Extent, ExecFault> {
        let buffers = &program.plan.buffers;
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
    pub(crate) fn spot(&self, program: &Program, id: BufferId) -> Result<Spot, ExecFault> {
        let early = if program.facts.late[id.index()] { None } else { self.extents[id.index()] };
        let extent = match early {
            Some(extent) => extent,
            None => self.locate(program, id)?,
        };
        let base = self.bases[program.facts.roots[id.index()].index()];
        Ok(Spot { ptr: base.ptr.wrapping_add(extent.offset), bytes: extent.bytes })
    }

    fn dims(&self, program: &Program, id: BufferId) -> Result<Vec<usize>, ExecFault> {
        program.plan.buffers[id.index()].shape.iter().map(|&size| self.count(size)).collect()
    }

    /// Bytes of the elements of a buffer, without padding; checked to be inside it.
    pub(super) fn dense(&self, program: &Program, id: BufferId) -> Result<(Vec<usize>, Spot), ExecFault> {
        let dims = self.dims(program, id)?;
        let spot = self.spot(program, id)?;
        match byte_len(program.plan.buffers[id.index()].dtype, &dims) {
            Some(bytes) if bytes <= spot.bytes => Ok((dims, Spot { ptr: spot.ptr, bytes })),
            _ => Err(ExecFault::Shape(id)),
        }
    }
}
