//! Memory that a session allocates for one buffer, in the space where the buffer lies.

use alloc::sync::Arc;

use super::on_device::{DEVICES, DeviceBuf};
use crate::memory::{AlignedBuf, Allocator, OutOfMemory};
use crate::plan::Space;

/// Memory of an output or a dynamic buffer.
pub(super) enum Storage {
    Host(AlignedBuf),
    Device(DeviceBuf),
}

impl Storage {
    /// None yet; that of the host will come from `allocator`.
    pub(super) fn new(space: Space, allocator: Option<&Arc<dyn Allocator>>) -> Storage {
        match space {
            Space::Device if DEVICES => Storage::Device(DeviceBuf::default()),
            Space::Device | Space::Host => Storage::Host(AlignedBuf::of(allocator.cloned())),
        }
    }

    pub(super) fn space(&self) -> Space {
        match self {
            Storage::Host(_) => Space::Host,
            Storage::Device(_) => Space::Device,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        match self {
            Storage::Host(buf) => buf.capacity(),
            Storage::Device(buf) => buf.capacity(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Storage::Host(buf) => buf.len(),
            Storage::Device(buf) => buf.len(),
        }
    }

    /// Makes it `len` bytes long, which it has room for.
    pub(super) fn set_len(&mut self, len: usize) -> Result<(), OutOfMemory> {
        match self {
            Storage::Host(buf) => buf.reset(len),
            Storage::Device(buf) => {
                buf.set_len(len);
                Ok(())
            }
        }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut u8 {
        match self {
            Storage::Host(buf) => buf.as_mut_ptr(),
            Storage::Device(buf) => buf.as_mut_ptr(),
        }
    }
}
