//! Memory of sessions and outputs comes from the program's allocator, and goes back there.
#![allow(unsafe_code, reason = "is an allocator")]

#[path = "../../tests/common/mod.rs"]
mod common;

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{demo_plan, demo_weights};
use tilewright_run::{LoadOptions, Model, Tensor};
use tilewright_runtime::plan::ALIGN;
use tilewright_runtime::{AlignedBuf, Allocator, NoHostOps, OutOfMemory, RunError};

/// Counts what it gives, and gives so many at most.
struct Counting {
    alive: AtomicUsize,
    left: AtomicUsize,
}

fn counting(left: usize) -> Arc<Counting> {
    Arc::new(Counting { alive: AtomicUsize::new(0), left: AtomicUsize::new(left) })
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN).expect("small")
}

impl Allocator for Counting {
    fn allocate(&self, bytes: usize) -> Option<NonNull<u8>> {
        let take = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        self.alive.fetch_add(1, Ordering::Relaxed);
        // SAFETY: nobody asks for nothing.
        let start = NonNull::new(unsafe { alloc(layout(bytes)) })?;
        // SAFETY: so many bytes.
        unsafe { start.write_bytes(0xa5, bytes) };
        Some(start)
    }

    unsafe fn free(&self, start: NonNull<u8>, bytes: usize) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: from above, by the caller's word.
        unsafe { dealloc(start.as_ptr(), layout(bytes)) };
    }
}

#[test]
fn buffers_are_zeroed_keep_their_allocator_and_give_back() {
    let own = counting(3);
    let allocator: Arc<dyn Allocator> = own.clone();
    let mut buf = AlignedBuf::zeroed_of(100, Some(&allocator)).unwrap();
    assert!(buf.iter().all(|&byte| byte == 0));
    buf.fill(1);
    buf.reserve(1000).unwrap();
    assert_eq!((buf.len(), &buf[..3], own.alive.load(Ordering::Relaxed)), (100, &[1u8, 1, 1][..], 1));
    buf.reset(2000).unwrap();
    assert_eq!((buf.len(), own.alive.load(Ordering::Relaxed)), (2000, 1));
    assert_eq!(buf.reset(3000), Err(OutOfMemory { bytes: 3000 }));
    assert_eq!((buf.len(), own.alive.load(Ordering::Relaxed)), (0, 0));
    // Of none, and of nothing.
    assert_eq!(AlignedBuf::zeroed_of(8, None).unwrap().len(), 8);
    assert!(AlignedBuf::zeroed_of(0, Some(&allocator)).unwrap().is_empty());
}

#[test]
fn models_run_in_memory_of_the_program() {
    let own = counting(usize::MAX);
    let model = demo_plan().model_with(&demo_weights(), Arc::new(NoHostOps));
    let model = Model::of(model, &LoadOptions::new().allocator(own.clone()));
    let input = Tensor::new(&[5, 3], [0.5f32; 15]).unwrap();
    let outputs = model.run([("x", &input)]).unwrap();
    assert!(own.alive.load(Ordering::Relaxed) >= outputs.len());
    drop(model);
    assert_eq!(own.alive.load(Ordering::Relaxed), outputs.len());
    assert_eq!(outputs.tensor("y").and_then(|y| y.view()?.to_vec::<f32>()), Some(vec![2.0; 15]));
    drop(outputs);
    assert_eq!(own.alive.load(Ordering::Relaxed), 0);

    own.left.store(0, Ordering::Relaxed);
    let model = demo_plan().model_with(&demo_weights(), Arc::new(NoHostOps));
    let model = Model::of(model, &LoadOptions::new().allocator(own.clone()));
    assert!(matches!(model.run([("x", &input)]), Err(RunError::Memory(_))));
}
