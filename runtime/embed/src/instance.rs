//! A model in memory of the caller's: opened once, then run.
#![allow(unsafe_code, reason = "works in memory of the caller's")]

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::slice;
use core::sync::atomic::{AtomicBool, Ordering};

use tilewright_runtime::artifact::linked::{HEAD, LinkedFacts};
use tilewright_runtime::plan::{ALIGN, TensorSpec};
use tilewright_runtime::{Arena, Model, NoHostOps, SessionOptions, TensorView, byte_len};

use crate::calls::with_heap;
use crate::operands::{Inputs, Outputs, check};
use crate::status::Status;

/// An artifact that is linked into the program, and what the compiler says of it.
#[derive(Clone, Copy)]
pub struct Linked {
    /// The artifact, executable, from a boundary of pages on.
    pub artifact: &'static [u8],
    /// What the compiler says.
    pub facts: LinkedFacts,
}

/// What the memory of a model begins with. Its heap follows at [`HEAD`].
struct Instance {
    /// Its own address and a number: memory that was not opened has hardly that.
    mark: usize,
    is_busy: AtomicBool,
    heap: Arena,
    /// The workspace of the run that is under way.
    tensors: UnsafeCell<Arena>,
    /// All that it has is in the memory, so it ends with that.
    model: ManuallyDrop<Model>,
}

const _: () = assert!(size_of::<Instance>() as u64 <= HEAD && align_of::<Instance>() <= ALIGN);

/// Any number that memory is unlikely to have.
const MARK: usize = 0x7457_1d9b;

/// What an extent or a number of bytes is where only a run tells.
pub const UNKNOWN: u64 = u64::MAX;

/// Opens the model in `bytes` bytes of memory.
///
/// # Safety
/// The memory is the caller's and lasts until the model's last use; nobody uses it meanwhile. The artifact was written by the compiler for
/// this machine.
pub unsafe fn open(linked: Linked, memory: *mut u8, bytes: u64) -> Result<(), Status> {
    check(memory, ALIGN)?;
    let needed = linked.facts.model_bytes;
    let heap_bytes = usize::try_from(needed - HEAD).map_err(|_| Status::Memory)?;
    if bytes < needed {
        return Err(Status::Memory);
    }
    let instance = memory.cast::<Instance>();
    // SAFETY: aligned memory of the caller's for the whole of an instance. The model is there when the mark is.
    let (heap, room) = unsafe {
        (&raw mut (*instance).mark).write(0);
        (&raw mut (*instance).is_busy).write(AtomicBool::new(false));
        (&raw mut (*instance).heap).write(Arena::new());
        (&raw mut (*instance).tensors).write(UnsafeCell::new(Arena::new()));
        let start = memory.wrapping_add(HEAD as usize).cast::<MaybeUninit<u8>>();
        (&(*instance).heap, slice::from_raw_parts_mut(start, heap_bytes))
    };
    heap.give(room).map_err(|_| Status::Defect)?;
    // SAFETY: by the caller's word.
    let load = || unsafe { Model::linked(linked.artifact, Arc::new(NoHostOps)) }.map_err(Status::from);
    let model = with_heap(heap, load).ok_or(Status::Busy)??;
    // SAFETY: as above.
    unsafe {
        (&raw mut (*instance).model).write(ManuallyDrop::new(model));
        (&raw mut (*instance).mark).write(MARK ^ memory.addr());
    }
    Ok(())
}

/// Does some work with the model in the caller's memory, in which nobody else is at work.
///
/// # Safety
/// The memory, if it is that of a model, is as [`open`] left it.
unsafe fn with_model(
    memory: *mut u8,
    work: impl FnOnce(&'static Instance) -> Result<(), Status>,
) -> Result<(), Status> {
    check(memory, ALIGN)?;
    let instance = memory.cast::<Instance>();
    // SAFETY: the caller's memory.
    if unsafe { (&raw const (*instance).mark).read() } != MARK ^ memory.addr() {
        return Err(Status::Closed);
    }
    // SAFETY: opened. It lasts for the call, and what is made with the reference does not outlast that.
    let instance = unsafe { &*instance };
    if instance.is_busy.swap(true, Ordering::Acquire) {
        return Err(Status::Busy);
    }
    let done = with_heap(&instance.heap, || work(instance));
    instance.is_busy.store(false, Ordering::Release);
    done.unwrap_or(Err(Status::Busy))
}

/// Tells what a run on inputs of these extents takes and gives: bytes of workspace, and bytes and extents of the outputs.
///
/// # Safety
/// As [`run`], but for the elements, which are not looked at.
pub unsafe fn sizes(
    facts: LinkedFacts,
    memory: *mut u8,
    inputs: *const u8,
    outputs: *mut u8,
    workspace_bytes: *mut u64,
) -> Result<(), Status> {
    let rank = usize::try_from(facts.rank).map_err(|_| Status::Defect)?;
    check(workspace_bytes.cast(), align_of::<u64>())?;
    // SAFETY: by the caller's word.
    let (inputs, outputs) = unsafe { (Inputs::at(inputs, rank)?, Outputs::at(outputs, rank)?) };
    let tell = |instance: &'static Instance| {
        let model = &*instance.model;
        let forecast = model.forecast(&dims(model, inputs)?).ok_or(Status::Extents)?;
        let bytes = forecast.tensor_bytes().ok_or(Status::Extents)?;
        for (output, spec) in model.outputs().iter().enumerate() {
            let mut bytes = Some(spec.dtype.bytes() as u64);
            for axis in 0..spec.dims.len() {
                let extent = forecast.output_dim(output, axis);
                bytes = bytes.zip(extent).and_then(|(bytes, extent)| bytes.checked_mul(extent));
                outputs.set_extent(output, axis, extent.unwrap_or(UNKNOWN));
            }
            outputs.set_bytes(output, bytes.unwrap_or(UNKNOWN));
        }
        // SAFETY: neither null nor misaligned, and the caller's.
        unsafe { workspace_bytes.write(bytes) };
        Ok(())
    };
    // SAFETY: by the caller's word.
    unsafe { with_model(memory, tell) }
}

/// Runs the model.
///
/// # Safety
/// The memory is a model's that [`open`] opened, or holds anything else. There are structs of all inputs and outputs at the addresses given,
/// which lead to as many elements as the extents of inputs say, and to memory for as many bytes as outputs have room for. Outputs, workspace
/// and model overlap nothing else of these.
pub unsafe fn run(
    facts: LinkedFacts,
    memory: *mut u8,
    inputs: *const u8,
    outputs: *mut u8,
    workspace: *mut u8,
    workspace_bytes: u64,
) -> Result<(), Status> {
    let rank = usize::try_from(facts.rank).map_err(|_| Status::Defect)?;
    check(workspace, ALIGN)?;
    let workspace_bytes = usize::try_from(workspace_bytes).map_err(|_| Status::Memory)?;
    // SAFETY: by the caller's word.
    let (inputs, outputs, workspace) = unsafe {
        let room = slice::from_raw_parts_mut(workspace.cast::<MaybeUninit<u8>>(), workspace_bytes);
        (Inputs::at(inputs, rank)?, Outputs::at(outputs, rank)?, room)
    };
    // SAFETY: by the caller's word. Of calls with this memory only this one is at work, and the session that allocates in the workspace ends
    // with it.
    unsafe {
        with_model(memory, |instance| {
            instance.tensors.get().write(Arena::new());
            let tensors: &'static Arena = &*instance.tensors.get();
            tensors.give(workspace).map_err(|_| Status::Defect)?;
            run_in(&instance.model, tensors, inputs, outputs)
        })
    }
}

fn run_in(model: &Model, tensors: &'static Arena, inputs: Inputs, outputs: Outputs) -> Result<(), Status> {
    let dims = dims(model, inputs)?;
    let mut views = Vec::with_capacity(model.inputs().len());
    let mut rest = &dims[..];
    for (input, spec) in model.inputs().iter().enumerate() {
        let (own, others) = rest.split_at(spec.dims.len());
        rest = others;
        let data = inputs.data(input);
        check(data, ALIGN)?;
        let bytes = byte_len(spec.dtype, own).filter(|&bytes| isize::try_from(bytes).is_ok());
        // SAFETY: as many elements, by the word of `run`'s caller.
        let bytes = unsafe { slice::from_raw_parts(data, bytes.ok_or(Status::Extents)?) };
        views.push(TensorView::new(spec.dtype, own, bytes));
    }
    for output in 0..model.outputs().len() {
        check(outputs.room(output).0, 1)?;
    }
    let options = SessionOptions { allocator: Some(Arc::new(tensors)), ..SessionOptions::default() };
    let mut session = model.session_with(options);
    let results = session.run(&views)?;
    let mut fits = true;
    for (output, (_, result)) in results.iter().enumerate() {
        let (to, room) = outputs.room(output);
        let bytes = result.bytes.len() as u64;
        outputs.set_bytes(output, bytes);
        for (axis, &extent) in result.dims.iter().enumerate() {
            outputs.set_extent(output, axis, extent as u64);
        }
        fits &= bytes <= room;
        if bytes <= room {
            // SAFETY: room of the caller's for as many bytes, which overlaps no memory of the session.
            unsafe { to.copy_from_nonoverlapping(result.bytes.as_ptr(), result.bytes.len()) };
        }
    }
    if fits { Ok(()) } else { Err(Status::Room) }
}

/// The extents of all inputs, one after the other.
fn dims(model: &Model, inputs: Inputs) -> Result<Vec<usize>, Status> {
    let specs = model.inputs();
    let mut dims = Vec::with_capacity(specs.iter().map(|spec: &TensorSpec| spec.dims.len()).sum());
    for (input, spec) in specs.iter().enumerate() {
        for axis in 0..spec.dims.len() {
            dims.push(usize::try_from(inputs.extent(input, axis)).map_err(|_| Status::Extents)?);
        }
    }
    Ok(dims)
}
