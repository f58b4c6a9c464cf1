//! Sessions: inputs and their errors, shapes that change, outputs, threads.

mod common;

use std::sync::Arc;

use common::{Builder, demo_plan, demo_weights};
use tilewright_dtype::DType;
use tilewright_runtime::plan::{BufferId, Cmp, Instr, Place, PlanOp, SizeBounds, SizeDef};
use tilewright_runtime::pool::{Pool, Serial};
use tilewright_runtime::threads::ThreadPool;
use tilewright_runtime::{
    AlignedBuf, Input, Inspect, Model, NoHostOps, OutOfMemory, Room, RunError, RunObserver, Session,
    SessionOptions, Tensor, TensorView, TensorViewMut, Value,
};

fn demo() -> Model {
    demo_plan().model_with(&demo_weights(), Arc::new(NoHostOps))
}

fn options(pool: impl Pool + 'static) -> SessionOptions {
    SessionOptions { pool: Arc::new(pool), ..SessionOptions::default() }
}

fn check_error(session: &mut Session, inputs: &[TensorView<'_>], expect: &[&str]) {
    let message = match session.run(inputs) {
        Ok(_) => panic!("ran, but should fail with {expect:?}"),
        Err(error) => error.to_string(),
    };
    for part in expect {
        assert!(message.contains(part), "{message:?} does not contain {part:?}");
    }
}

#[test]
fn shapes_may_change_from_run_to_run() {
    let mut session = demo().session();
    for batch in [2usize, 5, 2, 0, 1, 5] {
        let x: Vec<f32> = (0..batch * 3).map(|i| i as f32).collect();
        let outputs = session.run(&[TensorView::of(&[batch, 3], &x)]).unwrap();
        let y = outputs.get(0).unwrap();
        assert_eq!(y.dims, [batch, 3]);
        assert_eq!(y.to_vec::<f32>().unwrap(), x.iter().map(|x| 4.0 * x).collect::<Vec<_>>());
        assert_eq!(outputs.by_name("w").unwrap().elements::<f32>().unwrap(), [1.0, 2.0, 3.0]);
        assert!(outputs.get(2).is_none() && outputs.by_name("z").is_none());
        assert_eq!(outputs.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["y", "w"]);
    }
}

#[test]
fn memory_stays_after_the_largest_shape() {
    let mut session = demo().session();
    let x = vec![0f32; 3000];
    session.run(&[TensorView::of(&[1000, 3], &x)]).unwrap();
    let largest = session.memory();
    session.run(&[TensorView::of(&[1, 3], &x[..3])]).unwrap();
    session.run(&[TensorView::of(&[999, 3], &x[..2997])]).unwrap();
    assert_eq!(session.memory(), largest);
}

#[test]
fn inputs_of_any_alignment_are_taken() {
    let mut session = demo().session();
    let bytes: Vec<u8> = [0u8; 4].into_iter().chain((0..3).flat_map(|i| (i as f32).to_le_bytes())).collect();
    for start in 1..=4 {
        let mut shifted = vec![0u8; start];
        shifted.extend_from_slice(&bytes[4..]);
        let x = TensorView::new(DType::F32, &[1, 3], &shifted[start..]);
        let outputs = session.run(&[x]).unwrap();
        assert_eq!(outputs.get(0).unwrap().to_vec::<f32>().unwrap(), [0.0, 4.0, 8.0]);
    }
}

#[test]
fn all_problems_with_inputs_are_told_at_once() {
    let mut b = Builder::default();
    let batch = b.size(SizeDef::InputDim { input: 0, axis: 0 });
    let three = b.constant(3);
    b.input("x", DType::F32, &[batch, three], &["batch", ""]);
    b.input("mask", DType::Bool, &[batch], &["batch"]);
    b.plan.bounds.push(SizeBounds { size: batch, name: "batch".into(), min: 2, max: Some(8), step: 2 });
    let mut session = b.model().session();
    let (x, mask) = ([0f32; 24], [0u8; 8]);
    let bools = |len: usize| TensorView::new(DType::Bool, if len == 2 { &[2] } else { &[4] }, &mask[..len]);

    check_error(&mut session, &[], &["input \"x\" is missing; input \"mask\" is missing"]);
    let extra = [TensorView::of(&[2, 3], &x[..6]), bools(2), bools(2)];
    check_error(&mut session, &extra, &["3 inputs given, the model has 2"]);
    let bad = [TensorView::of(&[2, 3], &[0i32; 6]), TensorView::new(DType::Bool, &[2, 1], &mask[..3])];
    let expect = [
        "\"x\": expected element type f32, got i32",
        "\"mask\": expected 1 axes, got 2",
        "\"mask\": type and extents need 2 bytes, got 3",
    ];
    check_error(&mut session, &bad, &expect);
    let bad = [TensorView::of(&[2, 4], &x[..8]), bools(4)];
    check_error(
        &mut session,
        &bad,
        &["\"x\": axis 1 must be 3, got 4", "\"mask\": axis 0 must be batch = 2, got 4"],
    );
    // Extents of an input of another type count, and those of one input say what those of others must be.
    let bad = [TensorView::of(&[3, 4], &[0i32; 12]), bools(4)];
    let expect = "\"x\": expected element type f32, got i32; \"x\": axis 1 must be 3, got 4; \
                  \"mask\": axis 0 must be batch = 3, got 4; \
                  \"x\": axis 0, batch is 3, but the model was compiled for 2 to 8 in steps of 2";
    check_error(&mut session, &bad, &[expect]);
    let huge = [TensorView::new(DType::F32, &[usize::MAX, 3], &[]), bools(2)];
    check_error(&mut session, &huge, &["type and extents need 18446744073709551615 bytes, got 0"]);
    let compiled = "but the model was compiled for 2 to 8 in steps of 2";
    for (batch, got) in [(3usize, "axis 0, batch is 3"), (10, "--dim batch=2..10"), (0, "--dim batch=0..8")] {
        let x = vec![0f32; batch * 3];
        let mask = vec![0u8; batch];
        let dims = [batch, 3];
        let inputs = [TensorView::of(&dims, &x), TensorView::new(DType::Bool, &dims[..1], &mask)];
        check_error(&mut session, &inputs, &[compiled, got]);
    }
    assert!(session.run(&[TensorView::of(&[2, 3], &x[..6]), bools(2)]).is_ok(), "usable after errors");
}

#[test]
fn inputs_may_come_by_name() {
    let mut session = demo().session();
    let x = TensorView::of(&[1, 3], &[1f32, 2.0, 3.0]);
    assert!(session.run_named([("x", x)]).is_ok());
    let error = |inputs: &[(&str, TensorView<'_>)], session: &mut Session| match session
        .run_named(inputs.iter().copied())
    {
        Ok(_) => panic!("ran"),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        error(&[("z", x)], &mut session),
        "the model has no input \"z\" (it has x); input \"x\" is missing"
    );
    assert_eq!(error(&[("x", x), ("x", x)], &mut session), "input \"x\" is given twice");
}

/// What is missing does not hide what is wrong with the rest.
#[test]
fn all_problems_with_named_inputs_are_told_at_once() {
    let mut b = Builder::default();
    let n = b.size(SizeDef::InputDim { input: 0, axis: 0 });
    let two = b.constant(2);
    b.input("x", DType::F32, &[n, two], &["n", ""]);
    b.input("y", DType::I64, &[n], &["n"]);
    b.input("z", DType::F32, &[], &[]);
    b.input("v", DType::F32, &[n], &["n"]);
    let model = b.model();
    let tensor = |dims: &[usize]| Tensor::zeros(DType::F32, dims).unwrap();
    let (x, few, many) = (tensor(&[3, 4]), Tensor::new(&[2], [1i32, 2]).unwrap(), tensor(&[5]));
    let words: Value = Tensor::from_strings(&[], vec!["a".into()]).unwrap().into();
    let list = Value::sequence(vec![]);
    let check = |inputs: &[(&str, Input<'_>)], expect: &[&str]| {
        let RunError::Inputs(errors) = model.arrange(inputs).unwrap_err() else { panic!() };
        assert_eq!(errors.0.iter().map(ToString::to_string).collect::<Vec<_>>(), expect);
    };
    let expect = [
        "the model has no input \"w\" (it has x, y, z, v)",
        "\"x\": axis 1 must be 2, got 4",
        "\"y\": expected element type i64, got i32",
        "\"y\": axis 0 must be n = 3, got 2",
        "input \"z\" is missing",
        "\"v\": axis 0 must be n = 3, got 5",
    ];
    check(&[("x", (&x).into()), ("y", (&few).into()), ("w", (&many).into()), ("v", (&many).into())], &expect);
    // Where the first input of an extent is missing, the next one gives it.
    let expect = [
        "\"x\": expected element type f32, got string",
        "\"y\": expected element type i64, got i32",
        "\"z\": expected a tensor of f32 with 0 axes, got a value of another type",
        "\"v\": axis 0 must be n = 2, got 5",
    ];
    let inputs = [("v", (&many).into()), ("z", (&list).into()), ("y", (&few).into()), ("x", (&words).into())];
    check(&inputs, &expect);
}

#[test]
fn outputs_may_be_written_to_memory_of_the_caller() {
    let mut session = demo().session();
    let x = TensorView::of(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    // One aligned, one not.
    #[repr(align(64))]
    struct Aligned([f32; 6]);
    let (mut y, mut w) = (Aligned([0.0; 6]), [0u8; 13]);
    let w_view = TensorViewMut::new(DType::F32, &[3], &mut w[1..]);
    session.run_into(&[x], &mut [TensorViewMut::of(&[2, 3], &mut y.0), w_view]).unwrap();
    assert_eq!(y.0, [4.0, 8.0, 12.0, 16.0, 20.0, 24.0]);
    assert_eq!(w[1..], demo_weights());
    // The next run does not write there.
    let zeros = [0f32; 6];
    session.run(&[TensorView::of(&[2, 3], &zeros)]).unwrap();
    assert_eq!(y.0[0], 4.0);

    let mut small = [0f32; 3];
    let error = session.run_into(&[x], &mut [TensorViewMut::of(&[1, 3], &mut small)]).unwrap_err();
    assert_eq!(error.to_string(), "input \"w\" is missing");
    let mut w = [0f32; 3];
    let views = &mut [TensorViewMut::of(&[1, 3], &mut small), TensorViewMut::of(&[3], &mut w)];
    let error = session.run_into(&[x], views).unwrap_err();
    assert_eq!(error.to_string(), "\"y\": axis 0 must be 2, got 1");
}

/// Kernels write to the memory given for outputs, whatever it holds, and those stay as they are.
#[test]
fn outputs_may_be_the_callers_to_keep() {
    let mut session = demo().session();
    let x = TensorView::of(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let first = session.run_new(&[x], &[], Room::new).unwrap();
    let [Value::Tensor(y), Value::Tensor(w)] = &first[..] else { panic!("two outputs") };
    assert_eq!((y.dims(), y.as_slice::<f32>()), (&[2, 3][..], Some(&[4.0, 8.0, 12.0, 16.0, 20.0, 24.0][..])));
    assert_eq!(w.as_slice::<f32>(), Some(&[1.0, 2.0, 3.0][..]));

    // Room of another size, with something in it.
    let mut spare: Vec<AlignedBuf> = (0..2).map(|_| AlignedBuf::copy_of(&[0xff; 100]).unwrap()).collect();
    let places: Vec<usize> = spare.iter_mut().rev().map(|buffer| buffer.as_mut_ptr().addr()).collect();
    let mut asked = vec![];
    let second = session.run_new(&[TensorView::of(&[1, 3], &[0f32, 0.0, 1.0])], &[], |bytes| {
        asked.push(bytes);
        Ok(spare.pop().unwrap().into())
    });
    let second = second.unwrap();
    let second: Vec<_> = second.iter().filter_map(Value::as_tensor).collect();
    assert_eq!(asked, [12, 12]);
    assert_eq!(*second[0], Tensor::new(&[1, 3], [0f32, 0.0, 4.0]).unwrap());
    assert_eq!(second[1], &**w);
    assert_eq!(second.iter().map(|tensor| tensor.bytes().as_ptr().addr()).collect::<Vec<_>>(), places);
    // What runs later, and without such memory, writes elsewhere.
    let zeros = [0f32; 6];
    session.run(&[TensorView::of(&[2, 3], &zeros)]).unwrap();
    assert_eq!((y.as_slice::<f32>().unwrap()[0], second[0].as_slice::<f32>().unwrap()[2]), (4.0, 4.0));

    let none = OutOfMemory { bytes: 24 };
    assert_eq!(session.run_new(&[x], &[], |_| Err(none)), Err(RunError::Memory(none)));
    assert_eq!(session.run_new(&[], &[], Room::new).unwrap_err().to_string(), "input \"x\" is missing");
    assert_eq!(session.run_new(&[x], &[], Room::new), Ok(first));
}

#[test]
fn guards_speak_before_the_sizes_they_protect() {
    let mut b = Builder::default();
    let seq = b.size(SizeDef::InputDim { input: 0, axis: 0 });
    b.input("x", DType::F32, &[seq], &["seq"]);
    let window = b.constant(8);
    let rest = b.size(SizeDef::Sub(seq, window));
    let y = b.output("y", DType::F32, &[rest]);
    let message = b.text("the sequence is shorter than the window");
    b.op("/conv/Slice", PlanOp::Guard { lhs: window, cmp: Cmp::Le, rhs: seq, message });
    let kernel = b.kernel("double", "rw", 0, common::double);
    b.call(kernel, &[BufferId(0), y], &[], rest);
    let mut session = b.model().session();
    let expect = ["the sequence is shorter than the window (needs 8 <= 5; /conv/Slice)"];
    check_error(&mut session, &[TensorView::of(&[5], &[0f32; 5])], &expect);
    assert_eq!(session.run(&[TensorView::of(&[10], &[1f32; 10])]).unwrap().get(0).unwrap().dims, [2]);
}

#[test]
fn results_do_not_depend_on_threads_or_on_who_else_runs() {
    let model = demo();
    let x: Vec<f32> = (0..3 * 1001).map(|i| (i as f32).sin()).collect();
    let input = TensorView::of(&[1001, 3], &x);
    let run = |pool: SessionOptions| {
        let mut session = model.session_with(pool);
        session.run(&[input]).unwrap().get(0).unwrap().bytes.to_vec()
    };
    let expect = run(options(Serial));
    for threads in [1, 2, 3, 7] {
        assert_eq!(run(options(ThreadPool::new(threads))), expect, "{threads} threads");
    }
    let shared: Arc<dyn Pool> = Arc::new(ThreadPool::new(3));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let options = SessionOptions { pool: shared.clone(), ..SessionOptions::default() };
                    assert_eq!(run(options), expect);
                }
            });
        }
    });
}

#[test]
fn the_memory_limit_is_kept() {
    let limited = SessionOptions { memory_limit: 4096, ..SessionOptions::default() };
    let mut session = demo().session_with(limited);
    let x = vec![0f32; 30_000];
    assert!(session.run(&[TensorView::of(&[10, 3], &x[..30])]).is_ok());
    check_error(&mut session, &[TensorView::of(&[10_000, 3], &x)], &["bytes, the limit is 4096"]);
    assert!(session.memory() <= 4096);
    assert!(session.run(&[TensorView::of(&[10, 3], &x[..30])]).is_ok());
}

#[test]
fn sizes_that_overflow_are_errors_where_they_are_used() {
    let mut b = Builder::default();
    let n = b.size(SizeDef::InputDim { input: 0, axis: 0 });
    b.input("x", DType::F32, &[n], &["n"]);
    let huge = b.constant(i64::MAX / 2);
    let square = b.size(SizeDef::Mul(n, huge));
    let y = b.output("y", DType::F32, &[n]);
    let temporary = b.buffer(DType::U8, &[square], Place::Block(0));
    b.plan.arena.blocks.push(square);
    let kernel = b.kernel("double", "rw", 0, common::double);
    let skip = b.op("", PlanOp::BranchIfZero { slot: n, target: 2 });
    b.call(kernel, &[temporary, y], &[], n);
    assert_eq!(skip, 0);
    let mut session = b.model().session();
    let error = session.run(&[TensorView::of(&[3], &[0f32; 3])]).map(|_| ()).unwrap_err();
    assert!(matches!(error, RunError::Plan { .. }), "{error}");
    assert!(error.to_string().starts_with("double: size s"), "{error}");
    assert!(session.run(&[TensorView::of::<f32>(&[0], &[])]).is_ok(), "not used, no error");
    // Defined, but more than any machine has.
    let error = session.run(&[TensorView::of(&[1], &[0f32])]).map(|_| ()).unwrap_err();
    assert!(matches!(error, RunError::Memory(_)), "{error}");
}

#[test]
fn observers_see_every_instruction_and_the_buffers_between() {
    #[derive(Default)]
    struct Trace(Vec<String>);
    impl RunObserver for Trace {
        fn begin(&mut self, index: usize, _instr: &Instr) {
            self.0.push(format!("begin {index}"));
        }

        fn end(&mut self, index: usize, _instr: &Instr, state: &Inspect<'_>) {
            let temporary = BufferId(1);
            let first = f32::from_le_bytes(state.bytes(temporary).unwrap()[..4].try_into().unwrap());
            self.0.push(format!("end {index}: {:?} starts with {first}", state.dims(temporary).unwrap()));
        }
    }
    let mut trace = Trace::default();
    demo().session().run_observed(&[TensorView::of(&[1, 3], &[1f32; 3])], &[], &mut trace).unwrap();
    assert_eq!(trace.0[..2], ["begin 0", "end 0: [1, 3] starts with 2"]);
    assert_eq!(trace.0.len(), 6);
}
