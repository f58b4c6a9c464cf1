//! Models that many threads run: sessions, what outputs are, and what stops a run.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use common::{Builder, demo_artifact, demo_plan, demo_weights};
use tilewright_dtype::DType;
use tilewright_host::{Distribution, HostOp, RandomAttrs, Registry};
use tilewright_run::{LoadOptions, Model};
use tilewright_runtime::plan::{Operand, PlanOp};
use tilewright_runtime::pool::{Pool, Serial, TaskGrid};
use tilewright_runtime::threads::available_threads;
use tilewright_runtime::{Bytes, Cancel, NoHostOps, RunError, Tensor, TensorView, Trust};

fn demo(options: &LoadOptions) -> Model {
    Model::of(demo_plan().model_with(&demo_weights(), Arc::new(NoHostOps)), options)
}

fn batch(rows: usize) -> Tensor {
    let x: Vec<f32> = (0..3 * rows).map(|i| i as f32).collect();
    Tensor::new(&[rows, 3], x).expect("a tensor")
}

/// Runs `y = 4 * x` and holds the outputs against it.
fn run(model: &Model, x: &Tensor) -> Result<tilewright_run::Outputs, RunError> {
    let outputs = model.run([("x", x)])?;
    let expect: Vec<f32> = x.to_vec::<f32>().expect("numbers").iter().map(|x| 4.0 * x).collect();
    assert_eq!(outputs.tensor("y"), Some(&Tensor::new(x.dims(), expect).expect("a tensor")));
    Ok(outputs)
}

#[test]
fn models_run_from_their_file() {
    let artifact = Bytes::new(demo_artifact());
    let model =
        Model::from_bytes(artifact, Trust::Origin, &LoadOptions::new().verify_weights(true).threads(1));
    let model = model.expect("a model");
    assert_eq!(format!("{model:?}"), "Model((x: f32[batch, 3]) -> (y: f32[?, 3], w: f32[3]))");
    let outputs = run(&model, &batch(2)).expect("a run");
    assert_eq!((outputs.len(), outputs.get(1).is_some(), outputs.get(2).is_some()), (2, true, false));
    assert!(outputs.by_name("z").is_none());
    assert_eq!(outputs.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["y", "w"]);
    let w = outputs.into_iter().find(|(name, _)| **name == *"w").expect("an output").1;
    assert_eq!(w.as_tensor().and_then(Tensor::as_slice::<f32>), Some(&[1.0, 2.0, 3.0][..]));
    let error = model.run([("z", TensorView::of(&[1], &[1f32]))]).expect_err("no such input");
    assert_eq!(error.to_string(), "the model has no input \"z\" (it has x); input \"x\" is missing");
}

#[test]
fn outputs_stay_and_their_memory_is_used_again() {
    let model = demo(&LoadOptions::new());
    let large = batch(20_000);
    let first = run(&model, &large).expect("a run");
    let place = |outputs: &tilewright_run::Outputs| outputs.tensor("y").expect("y").bytes().as_ptr().addr();
    let taken = place(&first);
    let second = run(&model, &large).expect("a run");
    assert_ne!(place(&second), taken);
    assert_eq!(first.tensor("y"), second.tensor("y"), "what was given is not written again");
    drop(first);
    assert_eq!(place(&run(&model, &large).expect("a run")), taken);
    let few = run(&model, &batch(6_000)).expect("a run");
    assert_ne!(place(&few), taken, "small outputs do not hold large memory");
}

/// Tells how many runs were in it at once at most.
#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Pool for Crowd {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, grid: TaskGrid, job: &(dyn Fn(i64, i64) + Sync)) {
        self.most.fetch_max(self.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::yield_now();
        Serial.run(grid, job);
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn threads_share_a_model_and_wait_where_sessions_are_few() {
    for sessions in [1, 2, 16] {
        let crowd = Arc::new(Crowd::default());
        let model = demo(&LoadOptions::new().pool(crowd.clone()).sessions(sessions));
        thread::scope(|scope| {
            for rows in 1..=6 {
                let (model, x) = (&model, batch(rows));
                scope.spawn(move || {
                    for _ in 0..200 {
                        run(model, &x).expect("a run");
                    }
                });
            }
        });
        let most = crowd.most.load(Ordering::SeqCst);
        assert!((1..=sessions).contains(&most), "{most} at once of {sessions}");
    }
}

/// Lets kernels begin when as many as the barrier counts are there.
struct AllAtOnce(Barrier);

impl Pool for AllAtOnce {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, grid: TaskGrid, job: &(dyn Fn(i64, i64) + Sync)) {
        self.0.wait();
        Serial.run(grid, job);
    }
}

/// More threads than a model keeps places for: a thread that waited for another's session would wait for ever.
#[test]
fn without_a_limit_all_threads_run_at_once_and_sessions_are_used_again() {
    let threads = 8 * available_threads() + 1;
    let pool = Arc::new(AllAtOnce(Barrier::new(threads)));
    let model = demo(&LoadOptions::new().pool(pool.clone()));
    let loaded = Arc::strong_count(&pool);
    for _ in 0..3 {
        thread::scope(|scope| {
            for rows in 1..=threads {
                let (model, x) = (&model, batch(rows));
                scope.spawn(move || run(model, &x).expect("a run"));
            }
        });
        // Each session holds its pool.
        assert_eq!(Arc::strong_count(&pool) - loaded, threads);
    }
}

/// Meets another thread in its first kernel, twice.
struct Meeting {
    barrier: Barrier,
    met: AtomicBool,
}

impl Pool for Meeting {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, grid: TaskGrid, job: &(dyn Fn(i64, i64) + Sync)) {
        if !self.met.swap(true, Ordering::SeqCst) {
            self.barrier.wait();
            self.barrier.wait();
        }
        Serial.run(grid, job);
    }
}

#[test]
fn runs_are_cancelled_also_while_they_wait() {
    let meeting = Arc::new(Meeting { barrier: Barrier::new(2), met: AtomicBool::new(false) });
    let model = demo(&LoadOptions::new().pool(meeting.clone()).sessions(1));
    let (x, cancel) = (batch(2), Cancel::new());
    thread::scope(|scope| {
        let first = scope.spawn(|| model.run_cancellable([("x", &x)], &cancel).map(drop));
        // The first run is in its first kernel, and has the only session.
        meeting.barrier.wait();
        cancel.cancel();
        let second = model.run_cancellable([("x", &x)], &cancel).map(drop);
        assert_eq!(second, Err(RunError::Cancelled));
        meeting.barrier.wait();
        assert_eq!(first.join().expect("no panic"), Err(RunError::Cancelled));
    });
    run(&model, &x).expect("a run that nobody stops");
}

/// Panics in its first kernel.
struct Panicking(AtomicBool);

impl Pool for Panicking {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, grid: TaskGrid, job: &(dyn Fn(i64, i64) + Sync)) {
        assert!(self.0.swap(true, Ordering::SeqCst), "the first kernel");
        Serial.run(grid, job);
    }
}

#[test]
fn a_panic_takes_its_session_along_and_no_more() {
    let pool = Arc::new(Panicking(AtomicBool::new(false)));
    let model = demo(&LoadOptions::new().pool(pool).sessions(1));
    let x = batch(2);
    assert!(catch_unwind(AssertUnwindSafe(|| run(&model, &x))).is_err());
    run(&model, &x).expect("a run");
}

/// Whichever session a run gets, it draws the numbers that the first run of a session does.
#[test]
fn random_numbers_begin_anew_in_each_run() {
    let mut b = Builder::default();
    let n = b.constant(4);
    let y = b.output("y", DType::F32, &[n]);
    let (distribution, dtype) = (Distribution::Uniform, DType::F32);
    let op = HostOp::Random(RandomAttrs { distribution, a: 0.0, b: 1.0, seed: None, stream: 0, dtype });
    let (inputs, outputs) = (vec![], vec![Operand::Buffer(y)]);
    b.op("/Random", PlanOp::Host { op: op.code(), attrs: op.attrs(), inputs, outputs, sizes_out: vec![] });
    let inner = b.model_with(&[], Arc::new(Registry));
    let none = || std::iter::empty::<(&str, &Tensor)>();
    let drawn = |model: &Model| model.run(none()).expect("a run").tensor("y").expect("y").to_vec::<f32>();
    let model = Model::of(inner.clone(), &LoadOptions::new());
    let first = drawn(&model);
    assert_eq!(drawn(&model), first);
    assert_ne!(drawn(&Model::of(inner, &LoadOptions::new().seed(1))), first);
    let mut session = model.session();
    let mut next = || session.run(&[]).expect("a run").get(0).and_then(|y| y.to_vec::<f32>());
    assert_eq!(next(), first);
    assert_ne!(next(), first, "the streams of a session go on");
}
