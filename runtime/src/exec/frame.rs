//! The memory of a session as the instructions of a program see it: arena, buffers, sizes.
#![allow(unsafe_code, reason = "shares pointers between threads")]

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

#[cfg(feature = "devices")]
use super::graphs::Graphs;
use super::on_device::{DEVICES, DeviceBuf};
use super::storage::Storage;
use crate::cancel::Cancel;
use crate::device::{DeviceError, Stream};
use crate::error::{ExecFault, RunError};
use crate::host::Draw;
use crate::memory::{AlignedBuf, Allocator, dangling};
use crate::model::Program;
use crate::plan::{ALIGN, ArenaDef, BufferId, HostId, Place, SizeId, Space, TensorSpec};
use crate::sizes::Sizes;
use crate::tensor::byte_len;
use crate::value::Value;

/// A buffer in memory: `bytes` initialised bytes at `ptr`. On a device the pointer is an address there.
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
    pub(crate) cancel: Option<Cancel>,
    pub(crate) memory_limit: u64,
    /// Where memory of the host comes from, if not from Rust's allocator.
    allocator: Option<Arc<dyn Allocator>>,
    arena: AlignedBuf,
    device_arena: DeviceBuf,
    /// Memory of outputs and dynamic buffers, by [`Facts::storage`](crate::model::Facts::storage).
    storage: Vec<Storage>,
    /// Memory of freed buffers.
    free: Vec<Storage>,
    /// Work of the session on its device; none before the first run.
    pub(super) stream: Option<Box<dyn Stream>>,
    pub(super) under_way: UnderWay,
    /// What the stream has recorded of the program, for the memory as it is laid out.
    #[cfg(feature = "devices")]
    pub(super) graphs: Graphs,
    /// Inputs and outputs that lie on the device in this run, in place of the host.
    #[cfg(feature = "devices")]
    pub(super) away: Vec<BufferId>,
    /// Meaningful for root buffers.
    bases: Vec<Base>,
    /// Meaningful for early buffers; `None` where the sizes at hand do not fit.
    extents: Vec<Option<Extent>>,
    /// Host values; `None` before they are made.
    pub(crate) values: Vec<Option<Value>>,
    /// Arguments of the kernel that is called.
    pub(super) addresses: Vec<*mut u8>,
    pub(super) device_addresses: Vec<u64>,
    pub(super) size_args: Vec<i64>,
}

/// What a stream may still be at since the last wait.
#[derive(Clone, Copy, Default)]
pub(super) struct UnderWay {
    /// Anything at all.
    pub(super) any: bool,
    /// Reading of memory of the host.
    pub(super) uploads: bool,
    /// Writing of memory of the host.
    pub(super) downloads: bool,
}

// SAFETY: the pointers are into memory that the frame owns, into the model's weights (immutable, shared), or into
// tensors of a run, which are only used while that run borrows them.
unsafe impl Send for Frame {}
// SAFETY: nothing is written through a shared reference.
unsafe impl Sync for Frame {}

impl Frame {
    pub(crate) fn new(program: &Program, memory_limit: u64, allocator: Option<Arc<dyn Allocator>>) -> Frame {
        let mut frame = Frame {
            sizes: Sizes::default(),
            draws: Draws::default(),
            cancel: None,
            memory_limit,
            arena: AlignedBuf::of(allocator.clone()),
            allocator,
            device_arena: DeviceBuf::default(),
            storage: Vec::new(),
            free: Vec::new(),
            stream: None,
            under_way: UnderWay::default(),
            #[cfg(feature = "devices")]
            graphs: Graphs::default(),
            #[cfg(feature = "devices")]
            away: Vec::new(),
            bases: Vec::new(),
            extents: Vec::new(),
            values: Vec::new(),
            addresses: Vec::new(),
            device_addresses: Vec::new(),
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
                self.storage[to] = core::mem::replace(&mut old[from], Storage::new(Space::Host, None));
            }
        }
        self.free.extend(old.into_iter().filter(|own| own.capacity() > 0));
    }

    fn become_of(&mut self, program: &Program) {
        let Program { plan, facts, .. } = program;
        self.storage.clear();
        let owners = plan.buffers.iter().zip(&facts.storage).filter(|(_, storage)| storage.is_some());
        let allocator = self.allocator.as_ref();
        self.storage.extend(owners.map(|(def, _)| Storage::new(def.space, allocator)));
        // Once a program has run, a run of it allocates nothing.
        self.free.reserve(facts.n_storage);
        self.bases.clear();
        self.bases.resize(plan.buffers.len(), NO_MEMORY);
        self.extents.clear();
        self.extents.resize(plan.buffers.len(), None);
        self.values.clear();
        self.values.resize(plan.values.len(), None);
        let most = |space: Space| {
            let params = plan.kernels.iter().filter(|kernel| kernel.space == space);
            params.map(|kernel| kernel.params.len()).max().unwrap_or(0)
        };
        self.addresses.clear();
        self.addresses.reserve(most(Space::Host));
        self.device_addresses.clear();
        if DEVICES {
            self.device_addresses.reserve(most(Space::Device));
        }
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
        let arenas = self.arena.capacity() as u64 + self.device_arena.capacity() as u64;
        owned.fold(arenas, u64::saturating_add)
    }

    /// Waits until nothing is under way on the device.
    pub(super) fn wait(&mut self) -> Result<(), DeviceError> {
        match &mut self.stream {
            Some(stream) if DEVICES && self.under_way.any => {
                self.under_way = UnderWay::default();
                stream.wait()
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_limit(&mut self, released: usize, asked: u64) -> Result<(), RunError> {
        let limit = self.memory_limit;
        let bytes = |frame: &Frame| (frame.reserved() - released as u64).saturating_add(asked);
        if bytes(self) > limit {
            // What is kept for later must not stand in the way.
            self.wait()?;
            self.free.clear();
        }
        let bytes = bytes(self);
        if bytes > limit { Err(RunError::Limit { bytes, limit }) } else { Ok(()) }
    }

    /// Lays out arena, blocks and early outputs for the sizes at hand. `bases` of inputs must be set.
    pub(crate) fn lay_out(&mut self, program: &Program) -> Result<(), RunError> {
        let plan = &program.plan;
        let (end, blocks) = self.blocks(&plan.arena)?;
        if end > self.arena.capacity() {
            self.check_limit(self.arena.capacity(), end as u64)?;
        }
        self.arena.reset(end)?;
        let device_blocks = self.lay_out_device(program)?;
        let (arena, device_arena) = (self.arena.as_mut_ptr(), self.device_arena.as_mut_ptr());
        for (i, def) in plan.buffers.iter().enumerate() {
            let (arena, blocks, weights) = match def.space {
                Space::Device if DEVICES => (device_arena, &device_blocks, program.device_weights()),
                Space::Device | Space::Host => (arena, &blocks, program.weights.as_ptr().cast_mut()),
            };
            // Ranges of weights, arena and blocks are inside: proved by validation, or laid out above.
            self.bases[i] = match def.place {
                Place::Weight { offset, len } => {
                    Base { ptr: weights.wrapping_add(offset as usize), room: len as usize }
                }
                Place::Arena { offset } => Base {
                    ptr: arena.wrapping_add(offset as usize),
                    room: (plan.arena_in(def.space).bytes - offset) as usize,
                },
                Place::Block(block) => {
                    let (start, bytes) = blocks[block as usize];
                    Base { ptr: arena.wrapping_add(start), room: bytes }
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

    /// Where an arena ends for the sizes at hand, and its blocks: start and bytes of each.
    fn blocks(&self, arena: &ArenaDef) -> Result<(usize, Vec<(usize, usize)>), RunError> {
        let too_large = RunError::Limit { bytes: u64::MAX, limit: self.memory_limit };
        let Ok(mut end) = usize::try_from(arena.bytes) else { return Err(too_large) };
        let mut blocks = Vec::with_capacity(arena.blocks.len());
        for &size in &arena.blocks {
            // A block whose size is undefined here serves only branches that are not taken, or fails at its use.
            let bytes = self.sizes.get(size).map_or(0, |bytes| bytes.max(0));
            let start = end.checked_next_multiple_of(ALIGN);
            let next =
                usize::try_from(bytes).ok().and_then(|bytes| Some((bytes, start?.checked_add(bytes)?)));
            let (Some(start), Some((bytes, next))) = (start, next) else { return Err(too_large) };
            blocks.push((start, bytes));
            end = next;
        }
        Ok((end, blocks))
    }

    /// Lays out the arena of the device, where there is one; gives its blocks.
    fn lay_out_device(&mut self, program: &Program) -> Result<Vec<(usize, usize)>, RunError> {
        let Some(device) = program.device() else { return Ok(Vec::new()) };
        if self.stream.is_none() {
            self.stream = Some(device.module.stream()?);
        }
        #[cfg(feature = "devices")]
        self.forget_graphs();
        let (end, blocks) = self.blocks(&program.plan.device_arena)?;
        let own = self.device_arena.capacity();
        if end > own {
            self.check_limit(own, end as u64)?;
            self.device_arena.replace(&device.module, end)?;
        }
        Ok(blocks)
    }

    /// Frees the late buffers of the last run, and gives early outputs their own memory back.
    pub(crate) fn reset_storage(&mut self, program: &Program) {
        for (i, storage) in program.facts.storage.iter().enumerate() {
            let Some(storage) = *storage else { continue };
            if program.facts.late[i] {
                self.release(program, BufferId(i as u32));
            } else {
                let own = &mut self.storage[storage];
                self.bases[i] = Base { ptr: own.as_mut_ptr(), room: own.len() };
            }
        }
    }

    /// Sets the memory of an input or output to a caller's.
    ///
    /// # Safety
    /// `ptr` is [`ALIGN`]ed and good for `room` initialised bytes until the run ends; for an output, exclusively.
    pub(crate) unsafe fn lend(&mut self, id: BufferId, ptr: *mut u8, room: usize) {
        debug_assert!(ptr.addr() % ALIGN == 0);
        self.set_base(id, ptr, room);
    }

    pub(super) fn set_base(&mut self, id: BufferId, ptr: *mut u8, room: usize) {
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
            self.take_spare(index, program.plan.buffers[id.index()].space, bytes);
        }
        let own = self.storage[index].capacity();
        if bytes > own {
            let capacity = if keep { bytes.max(own.saturating_add(own / 2)) } else { bytes };
            self.check_limit(if keep { 0 } else { own }, capacity as u64)?;
            match &mut self.storage[index] {
                Storage::Host(buf) if keep => buf.reserve(capacity)?,
                Storage::Host(buf) => buf.reset(capacity)?,
                Storage::Device(_) => self.replace_device(program, index, capacity, keep)?,
            }
        }
        let own = &mut self.storage[index];
        own.set_len(bytes)?;
        self.bases[id.index()] = Base { ptr: own.as_mut_ptr(), room: bytes };
        Ok(())
    }

    /// Gives a buffer other memory on the device; `keep` its bytes or not.
    fn replace_device(
        &mut self,
        program: &Program,
        index: usize,
        capacity: usize,
        keep: bool,
    ) -> Result<(), RunError> {
        let (Some(device), Storage::Device(old)) = (program.device(), &mut self.storage[index]) else {
            return Ok(());
        };
        let mut old = core::mem::take(old);
        let mut new = DeviceBuf::default();
        if keep && old.len() > 0 {
            new.replace(&device.module, capacity)?;
            if let Some(stream) = &mut self.stream {
                self.under_way.any = true;
                let [from, to] = [old.as_mut_ptr(), new.as_mut_ptr()].map(|ptr| ptr.addr() as u64);
                // SAFETY: both live until the wait below, and the new memory is larger.
                unsafe { stream.copy(from, to, old.len()) }?;
            }
            self.wait()?;
        } else {
            self.wait()?;
            core::mem::swap(&mut old, &mut new);
            new.replace(&device.module, capacity)?;
        }
        self.storage[index] = Storage::Device(new);
        Ok(())
    }

    /// Moves freed memory to a storage that has none: the smallest that fits, else the largest, which is then
    /// replaced. So there are never more allocations than storages, however sizes change.
    fn take_spare(&mut self, index: usize, space: Space, bytes: usize) {
        let capacity = |i: &usize| self.free[*i].capacity();
        let spares = || (0..self.free.len()).filter(|i| self.free[*i].space() == space);
        let fits = spares().filter(|i| capacity(i) >= bytes).min_by_key(capacity);
        if let Some(spare) = fits.or_else(|| spares().max_by_key(capacity)) {
            self.storage[index] = self.free.swap_remove(spare);
        }
    }

    pub(super) fn release(&mut self, program: &Program, id: BufferId) {
        let Some(index) = program.facts.storage[id.index()] else { return };
        let space = self.storage[index].space();
        let own = core::mem::replace(&mut self.storage[index], Storage::new(space, self.allocator.as_ref()));
        if own.capacity() > 0 {
            self.free.push(own);
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
