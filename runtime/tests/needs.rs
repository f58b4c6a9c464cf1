//! What an artifact says of the heap that it needs, against what loading and a session allocate. A binary of its own: it counts bytes.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use common::{DOUBLE, demo_manifest, demo_plan, demo_plan_for, demo_weights, one_kernel};
use tilewright_runtime::artifact::{Contents, Level, Needs};
use tilewright_runtime::isa::Isa;
use tilewright_runtime::plan::{Plan, SizeDef};
use tilewright_runtime::pool::Serial;
use tilewright_runtime::{AlignedBuf, Model, NoHostOps, RunError, SessionOptions, TensorView};

/// As [`Arena`](tilewright_runtime::Arena) rounds.
const UNIT: usize = 2 * size_of::<usize>();

struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

#[allow(unsafe_code, reason = "an allocator")]
// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + layout.size().next_multiple_of(UNIT));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An artifact of one level.
fn artifact(plan: &Plan, specialised: &[Plan]) -> &'static AlignedBuf {
    let (mut manifest, weights) = (demo_manifest(), demo_weights());
    manifest.images[0].specialised = specialised.iter().map(|_| one_kernel()).collect();
    let levels = [Level { plan, specialised, image: DOUBLE, device_code: None }];
    let contents = Contents { manifest: &manifest, levels: &levels, weights: &[weights] };
    Box::leak(Box::new(contents.to_bytes().unwrap()))
}

/// Allocates all that loading, a session and refused inputs take, and counts it.
#[allow(unsafe_code, reason = "loads in place")]
fn allocated(bytes: &'static [u8]) -> usize {
    let before = ALLOCATED.get();
    let isa = Isa { arch: std::env::consts::ARCH.into(), features: Vec::new() };
    // SAFETY: no kernel is called.
    let model = unsafe { Model::in_place(bytes, &isa, Arc::new(NoHostOps)) }.unwrap();
    let options = SessionOptions { pool: Arc::new(Serial), memory_limit: u64::MAX, allocator: None };
    let mut session = model.session_with(options);
    let wrong = session.run(&[TensorView::of(&[2, 2], &[0f32; 4])]);
    assert!(matches!(wrong, Err(RunError::Inputs(_))));
    ALLOCATED.get() - before
}

#[test]
fn the_heap_suffices_and_is_not_twice_too_large() {
    let open = demo_plan().plan;
    let fixed = |n| demo_plan_for(SizeDef::Const(n)).plan;
    let cases: [(&Plan, &[Plan]); 3] =
        [(&fixed(4), &[]), (&open, &[]), (&open, &[fixed(1), fixed(2), fixed(4)])];
    for (i, (plan, specialised)) in cases.into_iter().enumerate() {
        let bytes = artifact(plan, specialised);
        let (needs, took) = (Needs::of(bytes).unwrap(), allocated(bytes) as u64);
        assert!(took <= needs.heap, "case {i}: {took} bytes were allocated, said were {}", needs.heap);
        assert!(needs.heap <= 2 * took, "case {i}: {took} bytes were allocated, said were {}", needs.heap);
    }
}

#[test]
fn tensors_are_known_where_extents_are() {
    let fixed = demo_plan_for(SizeDef::Const(11)).plan;
    // The block between the kernels and one output of 132 bytes, the other output of 12.
    assert_eq!(Needs::of(artifact(&fixed, &[])).unwrap().tensors, Some(192 + 192 + 64));
    let open = demo_plan().plan;
    assert_eq!(Needs::of(artifact(&open, &[])).unwrap().tensors, None);
    assert_eq!(Needs::of(artifact(&fixed, std::slice::from_ref(&fixed))).unwrap().tensors, None);
}

#[test]
fn less_memory_or_at_another_address_is_an_error_with_what_is_needed() {
    use tilewright_runtime::ArenaError;
    let needs = Needs::of(artifact(&demo_plan_for(SizeDef::Const(4)).plan, &[])).unwrap();
    let mut memory = AlignedBuf::zeroed(needs.total() as usize + 64).unwrap();
    let room = memory.as_mut_ptr().cast::<std::mem::MaybeUninit<u8>>();
    #[allow(unsafe_code, reason = "memory as of a board")]
    // SAFETY: the buffer's bytes, which are borrowed once.
    let memory = unsafe { std::slice::from_raw_parts_mut(room, needs.total() as usize + 64) };
    let (heap, tensors) = needs.split(&mut memory[..needs.total() as usize]).unwrap();
    assert!(heap.len() as u64 >= needs.heap && tensors.len() as u64 == needs.tensors.unwrap());
    let given = needs.total() - 1;
    assert_eq!(
        needs.split(&mut memory[..given as usize]).unwrap_err(),
        ArenaError::TooSmall { needed: needs.total(), given }
    );
    let address = memory[8..].as_ptr().addr();
    assert_eq!(needs.split(&mut memory[8..]).unwrap_err(), ArenaError::Misaligned { address });
}
