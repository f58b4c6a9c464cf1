//! Memory of the caller's that a program without a system allocates from.
//!
//! Rust's collections end the program where memory is missing. So the heap of such a program has what
//! [`Needs`](crate::artifact::Needs) says, which is asked before anything is read of a model, and tensors have an arena of their own, from
//! which a session that gets too little returns an error:
//!
//! ```
//! use core::mem::MaybeUninit;
//! use tilewright_runtime::{Arena, ArenaError, artifact::Needs};
//!
//! // A program without a system says `#[global_allocator]` here.
//! static HEAP: Arena = Arena::new();
//! static TENSORS: Arena = Arena::new();
//!
//! fn give(needs: &Needs, memory: &'static mut [MaybeUninit<u8>]) -> Result<(), ArenaError> {
//!     let (heap, tensors) = needs.split(memory)?;
//!     HEAP.give(heap)?;
//!     TENSORS.give(tensors)
//! }
//! ```
#![allow(unsafe_code, reason = "hands out memory")]

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use linked_list_allocator::Heap;

use crate::memory::Allocator;
use crate::plan::ALIGN;

/// What sizes and addresses of all allocations are multiples of: so none is moved to be aligned, and the bytes that any sequence of them
/// takes are at most the sum of theirs. Holes of the list are of so many bytes at least.
pub(crate) const UNIT: usize = 2 * size_of::<usize>();

/// Memory that cannot be an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArenaError {
    /// Fewer bytes than the model needs.
    #[error("the model needs {needed} bytes of memory, it is given {given}")]
    TooSmall {
        /// Bytes needed.
        needed: u64,
        /// Bytes given.
        given: u64,
    },
    /// An address that tensors cannot have.
    #[error("memory at {address:#x}, which is not a multiple of {ALIGN}: align it so")]
    Misaligned {
        /// Where the memory is.
        address: usize,
    },
    /// An arena that has its memory.
    #[error("the arena has {bytes} bytes already")]
    Given {
        /// Bytes it has.
        bytes: usize,
    },
    /// An arena that somebody else is just being served by.
    #[error("the arena is at work: give it memory before anything is allocated from it")]
    Busy,
}

/// Memory that the caller gives once and that is then allocated from: by Rust's collections where it is the `#[global_allocator]`, or by
/// sessions as their [`Allocator`].
///
/// Allocations take the first hole that they fit in. There is no waiting: who asks while another thread or the code that an interrupt
/// stopped is just being served gets nothing, and what is freed then is lost.
pub struct Arena {
    is_busy: AtomicBool,
    heap: UnsafeCell<Heap>,
    high_water: AtomicUsize,
}

// SAFETY: the heap is only touched by who set `is_busy`.
unsafe impl Sync for Arena {}

impl Arena {
    /// One without memory: nothing can be allocated.
    pub const fn new() -> Arena {
        Arena {
            is_busy: AtomicBool::new(false),
            heap: UnsafeCell::new(Heap::empty()),
            high_water: AtomicUsize::new(0),
        }
    }

    /// Gives it memory.
    ///
    /// # Errors
    /// When it has some, this is not aligned to [`ALIGN`] bytes, or somebody else is just being served.
    pub fn give(&self, memory: &'static mut [MaybeUninit<u8>]) -> Result<(), ArenaError> {
        let address = memory.as_ptr().addr();
        if address % ALIGN != 0 {
            return Err(ArenaError::Misaligned { address });
        }
        let given = self.with(|heap| match heap.size() {
            0 => {
                // A list needs room for one hole.
                if memory.len() >= UNIT {
                    heap.init_from_slice(memory);
                }
                Ok(())
            }
            bytes => Err(ArenaError::Given { bytes }),
        });
        given.unwrap_or(Err(ArenaError::Busy))
    }

    /// Bytes it was given.
    pub fn size(&self) -> usize {
        self.with(|heap| heap.size()).unwrap_or(0)
    }

    /// Bytes that are allocated.
    pub fn used(&self) -> usize {
        self.with(|heap| heap.used()).unwrap_or(0)
    }

    /// Bytes up to the end of the highest allocation there ever was: with less memory, some allocation would have failed.
    pub fn high_water(&self) -> usize {
        self.high_water.load(Ordering::Relaxed)
    }

    /// Works on the heap; nothing where somebody does.
    fn with<T>(&self, work: impl FnOnce(&mut Heap) -> T) -> Option<T> {
        if self.is_busy.swap(true, Ordering::Acquire) {
            return None;
        }
        // SAFETY: nobody else is between the two lines that change `is_busy`.
        let done = work(unsafe { &mut *self.heap.get() });
        self.is_busy.store(false, Ordering::Release);
        Some(done)
    }

    fn take(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.with(|heap| {
            let start = heap.allocate_first_fit(layout).ok()?;
            let end = start.addr().get() + layout.size() - heap.bottom().addr();
            self.high_water.fetch_max(end, Ordering::Relaxed);
            Some(start)
        })?
    }

    /// # Safety
    /// `start` is of [`Arena::take`] with this layout, and used no more.
    unsafe fn put_back(&self, start: NonNull<u8>, layout: Layout) {
        // SAFETY: by the caller's word.
        self.with(|heap| unsafe { heap.deallocate(start, layout) });
    }
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

/// A layout in whole units; nothing where it overflows.
fn in_units(size: usize, unit: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_next_multiple_of(unit)?, unit).ok()
}

// SAFETY: a heap hands out ranges that do not overlap, of the size and alignment asked for, of memory that lives for ever.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let layout = in_units(layout.size(), layout.align().max(UNIT));
        layout.and_then(|layout| self.take(layout)).map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if let (Some(start), Some(layout)) =
            (NonNull::new(start), in_units(layout.size(), layout.align().max(UNIT)))
        {
            // SAFETY: allocated with this layout, by the caller's word.
            unsafe { self.put_back(start, layout) }
        }
    }
}

impl Allocator for &'static Arena {
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        self.take(in_units(bytes, ALIGN)?)
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        if let Some(layout) = in_units(bytes, ALIGN) {
            // SAFETY: allocated with this layout, by the caller's word.
            unsafe { self.put_back(start, layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    #[repr(align(64))]
    struct Block([MaybeUninit<u8>; 1024]);

    fn memory() -> &'static mut [MaybeUninit<u8>] {
        &mut Box::leak(Box::new(Block([MaybeUninit::uninit(); 1024]))).0
    }

    fn arena() -> &'static Arena {
        let arena: &'static Arena = Box::leak(Box::new(Arena::new()));
        arena.give(memory()).unwrap();
        arena
    }

    #[test]
    fn memory_is_given_once_and_aligned() {
        let arena = Arena::new();
        assert_eq!(arena.take(in_units(1, UNIT).unwrap()), None, "nothing was given");
        let (_, odd) = memory().split_at_mut(UNIT);
        let address = odd.as_ptr().addr();
        assert_eq!(arena.give(odd), Err(ArenaError::Misaligned { address }));
        assert_eq!(arena.give(memory()), Ok(()));
        assert_eq!(arena.give(memory()), Err(ArenaError::Given { bytes: 1024 }));
    }

    #[test]
    fn tensors_are_aligned_and_the_last_byte_is_found() {
        let arena = arena();
        let taken: Vec<_> = core::iter::from_fn(|| (&arena).allocate(1)).collect();
        assert_eq!(taken.len(), 1024 / ALIGN);
        assert!(taken.iter().all(|start| start.addr().get() % ALIGN == 0));
        assert_eq!((arena.used(), arena.high_water()), (1024, 1024));
        // SAFETY: each is of this arena, with one byte.
        taken.into_iter().for_each(|start| unsafe { (&arena).free(start, 1) });
        assert_eq!(arena.used(), 0);
        assert!((&arena).allocate(1024).is_some(), "what was freed is one hole again");
        assert_eq!((&arena).allocate(usize::MAX), None);
    }

    #[test]
    fn a_sequence_takes_no_more_than_the_sum_of_its_bytes() {
        let arena = arena();
        let mut sum = 0;
        let mut kept = Vec::new();
        for (i, size) in [3, 40, 17, 64, 1, 90, 33, 8, 120, 5].into_iter().enumerate() {
            let layout = Layout::from_size_align(size, 1 << (i % 4)).unwrap();
            // SAFETY: no layout is empty.
            let start = NonNull::new(unsafe { arena.alloc(layout) }).unwrap();
            sum += size.next_multiple_of(UNIT);
            match i % 3 {
                // SAFETY: just allocated so.
                1 => unsafe { arena.dealloc(start.as_ptr(), layout) },
                _ => kept.push(start),
            }
            assert!(arena.high_water() <= sum, "{} of {sum}", arena.high_water());
        }
        assert!(arena.high_water() < sum, "holes are used again");
    }

    #[test]
    fn nobody_waits() {
        let arena = arena();
        let inner = arena.with(|_| (&arena).allocate(1));
        assert_eq!(inner, Some(None));
        assert!((&arena).allocate(1).is_some());
    }
}
