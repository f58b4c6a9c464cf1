//! Aligned memory and shared bytes.
#![allow(unsafe_code, reason = "owns raw allocations")]

use alloc::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use alloc::sync::Arc;
use core::fmt;
use core::ops::{Deref, DerefMut, Range};
use core::ptr::NonNull;

use crate::plan::ALIGN;

/// Memory could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("out of memory: {bytes} bytes asked for")]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub bytes: u64,
}

/// Where a program wants memory to come from, in place of Rust's allocator.
pub trait Allocator: Send + Sync {
    /// `bytes` bytes, at least one, from an address that is a multiple of [`ALIGN`]; nothing where there is no such memory. They may hold
    /// anything.
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>>;

    /// Takes back what [`allocate`](Allocator::allocate) gave.
    ///
    /// # Safety
    /// `start` is of this allocator, for `bytes` bytes, was not given back yet and is used no more.
    unsafe fn free(&self, start: NonNull<u8>, bytes: usize);
}

/// Zero-initialised bytes whose start is a multiple of [`ALIGN`].
///
/// The length may shrink and grow within the capacity without an allocation.
pub struct AlignedBuf {
    /// The aligned start, inside the allocation at `raw` of `capacity + ALIGN` bytes (none for capacity 0). Of an allocator of the
    /// program's own, both are the same, and there are `capacity` bytes.
    ptr: NonNull<u8>,
    raw: NonNull<u8>,
    len: usize,
    capacity: usize,
    allocator: Option<Arc<dyn Allocator>>,
}

// SAFETY: the buffer owns its memory, like a `Vec<u8>`.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads, like a `Vec<u8>`.
unsafe impl Sync for AlignedBuf {}

/// Bytes from which on zeroed memory is asked of the allocator, which may have pages that nobody used. Fewer are cleared here:
/// for zeroed memory glibc takes a lock, and not what this thread gave back (`calloc` has no part in its caches of threads).
const FRESH: usize = 64 << 10;

impl AlignedBuf {
    /// An empty buffer; allocates nothing.
    pub const fn new() -> AlignedBuf {
        AlignedBuf::of(None)
    }

    /// An empty buffer whose memory comes from an allocator, or from Rust's; allocates nothing.
    pub const fn of(allocator: Option<Arc<dyn Allocator>>) -> AlignedBuf {
        AlignedBuf { ptr: dangling(), raw: dangling(), len: 0, capacity: 0, allocator }
    }

    /// A buffer of `len` zero bytes.
    ///
    /// # Errors
    /// When the allocator has no such memory.
    pub fn zeroed(len: usize) -> Result<AlignedBuf, OutOfMemory> {
        if len == 0 {
            return Ok(AlignedBuf::new());
        }
        let error = OutOfMemory { bytes: len as u64 };
        let layout = Self::layout(len).ok_or(error)?;
        // SAFETY: the layout's size is not 0.
        let raw = unsafe { if len < FRESH { alloc(layout) } else { alloc_zeroed(layout) } };
        let raw = NonNull::new(raw).ok_or(error)?;
        // SAFETY: the layout has `ALIGN` bytes more than `len`, and the next aligned address is less than that away.
        let ptr = unsafe { raw.add(raw.addr().get().next_multiple_of(ALIGN) - raw.addr().get()) };
        if len < FRESH {
            // Not the whole allocation: LLVM would make zeroed memory of it.
            // SAFETY: as many bytes lie there.
            unsafe { ptr.write_bytes(0, len) };
        }
        Ok(AlignedBuf { ptr, raw, len, capacity: len, allocator: None })
    }

    /// A buffer of `len` zero bytes from an allocator, or from Rust's.
    ///
    /// # Errors
    /// When the allocator has no such memory, or what it gives is not aligned.
    pub fn zeroed_of(len: usize, allocator: Option<&Arc<dyn Allocator>>) -> Result<AlignedBuf, OutOfMemory> {
        let Some(own) = allocator.filter(|_| len > 0) else {
            let mut buf = AlignedBuf::zeroed(len)?;
            buf.allocator = allocator.cloned();
            return Ok(buf);
        };
        let error = OutOfMemory { bytes: len as u64 };
        if isize::try_from(len).is_err() {
            return Err(error);
        }
        let ptr = own.allocate(len).ok_or(error)?;
        if ptr.addr().get() % ALIGN != 0 {
            // SAFETY: just given, and used by nobody.
            unsafe { own.free(ptr, len) };
            return Err(error);
        }
        // SAFETY: the allocator gave `len` bytes.
        unsafe { ptr.write_bytes(0, len) };
        Ok(AlignedBuf { ptr, raw: ptr, len, capacity: len, allocator: Some(own.clone()) })
    }

    /// The allocation for `capacity` bytes. Not aligned by the allocator: common ones give zeroed pages for
    /// nothing, but only at their own alignment.
    fn layout(capacity: usize) -> Option<Layout> {
        Layout::from_size_align(capacity.checked_add(ALIGN)?, align_of::<u64>()).ok()
    }

    /// A copy of `bytes`.
    ///
    /// # Errors
    /// When the allocator has no such memory.
    pub fn copy_of(bytes: &[u8]) -> Result<AlignedBuf, OutOfMemory> {
        let mut buf = AlignedBuf::zeroed(bytes.len())?;
        buf.copy_from_slice(bytes);
        Ok(buf)
    }

    /// Bytes it can hold without a new allocation.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes it `len` bytes long. Within the capacity its bytes stay; else they are lost, and the memory is
    /// released before the new is asked for. Bytes never written are unspecified, but initialised.
    ///
    /// # Errors
    /// When the allocator has no such memory; the buffer is empty then.
    pub fn reset(&mut self, len: usize) -> Result<(), OutOfMemory> {
        if len > self.capacity {
            let allocator = self.allocator.clone();
            *self = AlignedBuf::of(allocator.clone());
            *self = AlignedBuf::zeroed_of(len, allocator.as_ref())?;
        }
        self.len = len;
        Ok(())
    }

    /// Makes room for `capacity` bytes and keeps the bytes it has.
    ///
    /// # Errors
    /// When the allocator has no such memory; the buffer is unchanged then.
    pub fn reserve(&mut self, capacity: usize) -> Result<(), OutOfMemory> {
        if capacity > self.capacity {
            let mut larger = AlignedBuf::zeroed_of(capacity, self.allocator.as_ref())?;
            larger[..self.len].copy_from_slice(self);
            larger.len = self.len;
            *self = larger;
        }
        Ok(())
    }

    /// The start; [`ALIGN`]ed and not null even when empty.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

/// Bytes to either side of [`nothing`].
const AROUND: usize = 256;

#[repr(align(64))]
struct Nothing([u8; 2 * AROUND]);

static NOTHING: Nothing = Nothing([0; 2 * AROUND]);

/// Where kernels find a buffer without elements. A choice may read what it does not take, at an index clamped into the buffer, so there
/// has to be a vector to read around the start; nothing is written.
pub(crate) const fn nothing() -> *mut u8 {
    (&raw const NOTHING.0).cast::<u8>().wrapping_add(AROUND).cast_mut()
}

/// A pointer for empty memory: aligned, not null, never read.
pub(crate) const fn dangling() -> NonNull<u8> {
    #[repr(align(64))]
    struct Aligned;
    const { assert!(align_of::<Aligned>() == ALIGN) };
    NonNull::<Aligned>::dangling().cast()
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        if let Some(own) = &self.allocator {
            // SAFETY: allocated there, with so many bytes.
            unsafe { own.free(self.raw, self.capacity) };
        } else if let Some(layout) = Self::layout(self.capacity) {
            // SAFETY: allocated with this layout.
            unsafe { dealloc(self.raw.as_ptr(), layout) }
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` bytes, all initialised (zeroed) at allocation.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is unique.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// As with other collections, the process ends where there is no memory; [`AlignedBuf::copy_of`] returns then.
impl Clone for AlignedBuf {
    fn clone(&self) -> AlignedBuf {
        match AlignedBuf::copy_of(self) {
            Ok(copy) => copy,
            Err(OutOfMemory { .. }) => handle_alloc_error(Layout::for_value::<[u8]>(self)),
        }
    }
}

impl PartialEq for AlignedBuf {
    fn eq(&self, other: &AlignedBuf) -> bool {
        **self == **other
    }
}

impl Default for AlignedBuf {
    fn default() -> AlignedBuf {
        AlignedBuf::new()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} of {} bytes)", self.len, self.capacity)
    }
}

/// A range of shared, immutable bytes: of a mapped file, of owned memory, or of a static.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl Bytes {
    /// All bytes of `owner`, whose `as_ref` must return the same slice at every call.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Bytes {
        let range = 0..owner.as_ref().len();
        Bytes { owner: Arc::new(owner), range }
    }

    /// A part of these bytes, sharing the owner; `None` if it is not inside.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        self.get(range.clone())?;
        let start = self.range.start;
        Some(Bytes { owner: self.owner.clone(), range: start + range.start..start + range.end })
    }

    /// The same bytes starting at a multiple of [`ALIGN`]: themselves, or a copy.
    ///
    /// # Errors
    /// When there is no memory for the copy.
    pub fn aligned(self) -> Result<Bytes, OutOfMemory> {
        if self.is_empty() || self.as_ptr().addr() % ALIGN == 0 {
            return Ok(self);
        }
        AlignedBuf::copy_of(&self).map(Bytes::new)
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or(&[])
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({} bytes)", self.len())
    }
}
