//! Runs that are asked to stop: what comes next does not run, and the session goes on.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use common::{Builder, demo_plan, demo_weights};
use tilewright_dtype::DType;
use tilewright_runtime::plan::{BufferId, PlanOp, SizeDef};
use tilewright_runtime::pool::{Pool, Serial, TaskGrid};
use tilewright_runtime::{
    Cancel, HostCall, HostError, HostOps, NoHostOps, RunError, SessionOptions, TensorView, TensorViewMut,
};

/// Counts the kernels that run, and makes a request during the first.
struct Cancelling {
    cancel: Cancel,
    kernels: AtomicUsize,
}

impl Pool for Cancelling {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, grid: TaskGrid, job: &(dyn Fn(i64, i64) + Sync)) {
        self.kernels.fetch_add(1, Ordering::Relaxed);
        self.cancel.cancel();
        Serial.run(grid, job);
    }
}

const X: TensorView<'_> = TensorView { dtype: DType::F32, dims: &[2, 3], bytes: &[0; 24] };

#[test]
fn the_kernel_after_the_request_does_not_run() {
    let pool = Arc::new(Cancelling { cancel: Cancel::new(), kernels: AtomicUsize::new(0) });
    let kernels = || pool.kernels.load(Ordering::Relaxed);
    let options = SessionOptions { pool: pool.clone(), ..SessionOptions::default() };
    let mut session = demo_plan().model_with(&demo_weights(), Arc::new(NoHostOps)).session_with(options);
    session.set_cancel(Some(pool.cancel.clone()));
    let (mut y, mut w) = ([7f32; 6], [7f32; 3]);
    let mut outputs = [TensorViewMut::of(&[2, 3], &mut y), TensorViewMut::of(&[3], &mut w)];
    assert_eq!(session.run_into(&[X], &mut outputs), Err(RunError::Cancelled));
    assert_eq!((y, w, kernels()), ([7.0; 6], [7.0; 3], 1));

    assert_eq!(session.run(&[X]).map(drop), Err(RunError::Cancelled));
    assert_eq!(kernels(), 1, "nothing runs after the request");
    session.set_cancel(Some(Cancel::new()));
    assert!(session.run(&[X]).is_ok(), "usable after it");
    session.set_cancel(None);
    let outputs = session.run(&[X]).expect("a run");
    assert_eq!(outputs.by_name("w").and_then(|w| w.to_vec::<f32>()), Some(vec![1.0, 2.0, 3.0]));
    assert_eq!(kernels(), 5);
}

/// An operator that makes a request.
struct Cancels(Cancel);

impl HostOps for Cancels {
    fn supports(&self, _op: u16) -> bool {
        true
    }

    fn call(&self, _op: u16, _call: &mut HostCall<'_>) -> Result<(), HostError> {
        self.0.cancel();
        Ok(())
    }
}

#[test]
fn host_operators_are_steps_like_others() {
    let mut b = Builder::default();
    let two = b.constant(2);
    b.input("x", DType::F32, &[two], &[""]);
    let y = b.output("y", DType::F32, &[two]);
    let host = || PlanOp::Host { op: 0, attrs: vec![], inputs: vec![], outputs: vec![], sizes_out: vec![] };
    b.op("cancel", host());
    let kernel = b.kernel("double", "rw", 0, common::double);
    b.call(kernel, &[BufferId(0), y], &[], two);
    let cancel = Cancel::new();
    let mut session = b.model_with(&[], Arc::new(Cancels(cancel.clone()))).session();
    let x = [TensorView::of(&[2], &[1f32, 2.0])];
    session.set_cancel(Some(cancel));
    assert_eq!(session.run(&x).map(drop), Err(RunError::Cancelled));
    session.set_cancel(None);
    let outputs = session.run(&x).expect("a run");
    assert_eq!(outputs.get(0).and_then(|y| y.to_vec::<f32>()), Some(vec![2.0, 4.0]));
}

/// The plan repeats its kernel for ever: only a request ends it.
#[test]
fn another_thread_may_stop_a_loop() {
    let mut b = Builder::default();
    let n = b.size(SizeDef::InputDim { input: 0, axis: 0 });
    b.input("x", DType::F32, &[n], &["n"]);
    let y = b.output("y", DType::F32, &[n]);
    let kernel = b.kernel("double", "rw", 0, common::double);
    b.call(kernel, &[BufferId(0), y], &[], n);
    b.op("loop", PlanOp::Jump { target: 0 });
    let (mut session, cancel) = (b.model().session(), Cancel::new());
    session.set_cancel(Some(cancel.clone()));
    let run = thread::spawn(move || session.run(&[TensorView::of(&[2], &[1f32, 2.0])]).map(drop));
    cancel.cancel();
    assert_eq!(run.join().expect("no panic"), Err(RunError::Cancelled));
}
