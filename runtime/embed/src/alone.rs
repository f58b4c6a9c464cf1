//! What makes the crate a library by itself: its functions for C, Rust's allocator, and what becomes of a defect.
#![allow(unsafe_code, reason = "the border to C")]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::slice;

use tilewright_runtime::artifact::linked::LinkedFacts;

use crate::calls::heap;
use crate::instance::{self, Linked};
use crate::status::Status;

unsafe extern "C" {
    /// The first byte of the artifact, which the compiler adds to this object.
    #[link_name = "tilewright_embed_artifact"]
    static ARTIFACT: u8;
    #[link_name = "tilewright_embed_facts"]
    static FACTS: LinkedFacts;
}

fn facts() -> LinkedFacts {
    // SAFETY: the compiler has written it.
    unsafe { FACTS }
}

fn linked() -> Linked {
    let facts = facts();
    // SAFETY: as many bytes, which the compiler has written. What is in a program can be addressed.
    let artifact = unsafe { slice::from_raw_parts(&raw const ARTIFACT, facts.artifact_bytes as usize) };
    Linked { artifact, facts }
}

fn status(done: Result<(), Status>) -> i32 {
    done.err().unwrap_or(Status::Done) as i32
}

/// # Safety
/// As [`instance::open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tilewright_embed_open(memory: *mut u8, bytes: u64) -> i32 {
    // SAFETY: by the caller's word, and the compiler linked the artifact.
    status(unsafe { instance::open(linked(), memory, bytes) })
}

/// # Safety
/// As [`instance::sizes`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tilewright_embed_sizes(
    memory: *mut u8,
    inputs: *const u8,
    outputs: *mut u8,
    workspace_bytes: *mut u64,
) -> i32 {
    // SAFETY: by the caller's word.
    status(unsafe { instance::sizes(facts(), memory, inputs, outputs, workspace_bytes) })
}

/// # Safety
/// As [`instance::run`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn tilewright_embed_run(
    memory: *mut u8,
    inputs: *const u8,
    outputs: *mut u8,
    workspace: *mut u8,
    workspace_bytes: u64,
) -> i32 {
    // SAFETY: by the caller's word.
    status(unsafe { instance::run(facts(), memory, inputs, outputs, workspace, workspace_bytes) })
}

/// Rust's allocator: the heap of the call that asks.
struct Heaps;

#[global_allocator]
static HEAPS: Heaps = Heaps;

// SAFETY: an arena is one; what a call allocates it gives back, or leaves in the memory of its model.
unsafe impl GlobalAlloc for Heaps {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's word.
        heap().map_or(core::ptr::null_mut(), |heap| unsafe { heap.alloc(layout) })
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if let Some(heap) = heap() {
            // SAFETY: by the caller's word; each call frees what its own heap gave.
            unsafe { heap.dealloc(start, layout) }
        }
    }
}

/// A defect has nobody to tell: the program stands still where a debugger finds it.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// The compiled `alloc` of a toolchain refers to unwinding, which `panic = "abort"` never does.
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// See [`rust_eh_personality`].
#[cfg(not(target_os = "none"))]
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() {}
