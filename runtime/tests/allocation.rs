//! A session allocates nothing while the dims of its inputs repeat. A binary of its own: it counts allocations, of
//! the caller's thread and the pool's, not of the test harness.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{demo_plan, demo_weights};
use tilewright_dtype::DType;
use tilewright_runtime::pool::{Pool, TaskGrid};
use tilewright_runtime::threads::ThreadPool;
use tilewright_runtime::{AlignedBuf, NoHostOps, SessionOptions, TensorView, TensorViewMut};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

#[allow(unsafe_code, reason = "an allocator")]
// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTED.get() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
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

#[test]
fn steady_state_allocates_nothing() {
    let model = demo_plan().model_with(&demo_weights(), Arc::new(NoHostOps));
    let pool = Arc::new(ThreadPool::new(2));
    pool.run(TaskGrid::flat(2), &|_, _| COUNTED.set(true));
    let options = SessionOptions { pool, ..SessionOptions::default() };
    let mut session = model.session_with(options);
    let x = vec![1f32; 3001];
    let (mut y, mut w) = (vec![0f32; 3000], [0f32; 3]);
    // Aligned for numbers only, so that the session keeps an aligned copy.
    let input = TensorView::of(&[1000, 3], &x[1..]);
    let outputs = &mut [TensorViewMut::of(&[1000, 3], &mut y), TensorViewMut::of(&[3], &mut w)];
    // Aligned as the session wants it: nothing is copied.
    let mut lent = [12_000, 12_000, 12].map(|bytes| AlignedBuf::zeroed(bytes).unwrap());
    let [aligned_x, aligned_y, aligned_w] = &mut lent;
    let aligned_input = TensorView::new(DType::F32, &[1000, 3], aligned_x);
    let aligned_outputs = &mut [
        TensorViewMut { dtype: DType::F32, dims: &[1000, 3], bytes: aligned_y },
        TensorViewMut { dtype: DType::F32, dims: &[3], bytes: aligned_w },
    ];
    session.run(&[input]).unwrap();
    session.run_into(&[input], outputs).unwrap();
    session.run_into(&[aligned_input], aligned_outputs).unwrap();

    let before = ALLOCATIONS.load(Ordering::Relaxed);
    assert!(before > 0, "counted so far: copy and outputs");
    for _ in 0..100 {
        assert_eq!(session.run(&[input]).unwrap().get(0).unwrap().bytes[..4], 4f32.to_le_bytes());
        session.run_into(&[input], outputs).unwrap();
        session.run_into(&[aligned_input], aligned_outputs).unwrap();
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
}
