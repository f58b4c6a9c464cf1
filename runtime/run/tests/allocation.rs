//! What a run of a model asks the allocator for, and how many sessions runs make. A binary of its own: it counts allocations, of
//! its own thread and not of the test harness.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Arc, Barrier};
use std::thread;

use common::{demo_plan, demo_weights};
use tilewright_run::{LoadOptions, Model, Tensor};
use tilewright_runtime::NoHostOps;
use tilewright_runtime::pool::Serial;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static LARGE: Cell<usize> = const { Cell::new(0) };
}

/// Bytes of what is counted as large.
const IS_LARGE: usize = 64 << 10;

#[allow(unsafe_code, reason = "an allocator")]
// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LARGE.set(LARGE.get() + usize::from(layout.size() >= IS_LARGE));
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

fn demo(options: &LoadOptions) -> Model {
    Model::of(demo_plan().model_with(&demo_weights(), Arc::new(NoHostOps)), options)
}

fn batch(rows: usize) -> Tensor {
    Tensor::new(&[rows, 3], vec![1f32; 3 * rows]).expect("a tensor")
}

/// Allocations of a run and of dropping its outputs: all, and those that are large.
fn counted(model: &Model, x: &Tensor) -> (usize, usize) {
    let before = (ALLOCATIONS.get(), LARGE.get());
    drop(model.run([("x", x)]).expect("a run"));
    (ALLOCATIONS.get() - before.0, LARGE.get() - before.1)
}

/// Of each output its elements, and what shares it.
#[test]
fn a_run_asks_for_a_few_small_pieces_of_memory() {
    const MOST: usize = 2 * 2;
    let model = demo(&LoadOptions::new().pool(Arc::new(Serial)));
    for rows in [2, 100_000] {
        let x = batch(rows);
        counted(&model, &x);
        for _ in 0..10 {
            let (all, large) = counted(&model, &x);
            assert!(all <= MOST && large == 0, "{all} allocations, {large} of them large, of {rows} rows");
        }
    }
}

#[test]
fn sessions_are_made_for_runs_at_once_and_used_again() {
    // Each session holds its pool.
    let pool = Arc::new(Serial);
    let model = demo(&LoadOptions::new().pool(pool.clone()).sessions(16));
    let loaded = Arc::strong_count(&pool);
    let sessions = || Arc::strong_count(&pool) - loaded;
    let x = batch(2);
    assert_eq!(sessions(), 0, "made when they are needed");
    for _ in 0..10 {
        counted(&model, &x);
    }
    assert_eq!(sessions(), 1);
    // A thread that comes later takes the session that is there.
    thread::scope(|scope| {
        scope.spawn(|| counted(&model, &x));
    });
    assert_eq!(sessions(), 1);
    let start = Barrier::new(8);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..500 {
                    counted(&model, &x);
                }
            });
        }
    });
    assert!((1..=8).contains(&sessions()), "{} sessions of 8 threads", sessions());
}
