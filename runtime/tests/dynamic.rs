//! Sizes known only at run time, control flow, and host operators.

mod common;

use std::sync::Arc;

use common::{Builder, add, double};
use tilewright_dtype::DType;
use tilewright_runtime::plan::{BufferId, Operand, Place, PlanOp, SizeDef};
use tilewright_runtime::{
    HostCall, HostError, HostOps, Model, Room, RunError, SessionOptions, Tensor, TensorView, Value,
};

const NON_ZERO: u16 = 1;
const IN_PLACE: u16 = 2;
const FAIL: u16 = 3;

struct TestOps;

impl HostOps for TestOps {
    fn supports(&self, op: u16) -> bool {
        [NON_ZERO, IN_PLACE, FAIL].contains(&op)
    }

    fn call(&self, op: u16, call: &mut HostCall<'_>) -> Result<(), HostError> {
        let x = call.input(0)?;
        match op {
            NON_ZERO => {
                let values =
                    x.bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
                let found: Vec<i64> =
                    values.zip(0i64..).filter(|(value, _)| *value != 0.0).map(|(_, i)| i).collect();
                call.set_size(0, found.len() as i64)?;
                let y = call.output(0)?;
                assert_eq!((y.dtype, &y.dims[..]), (DType::I64, &[found.len()][..]));
                for (target, index) in y.bytes.chunks_exact_mut(8).zip(found) {
                    target.copy_from_slice(&index.to_le_bytes());
                }
                assert!(call.output(0).is_err(), "an output is taken once");
                assert!(call.set_size(0, 1).is_err(), "sizes come first");
                assert!(call.output(1).is_err() && call.input(1).is_err());
                Ok(())
            }
            IN_PLACE => call.output(0).map(|_| ()),
            _ => Err(HostError::from(format!("{} is not acceptable", x.bytes.len()))),
        }
    }
}

fn f32s(values: &[f32]) -> TensorView<'_> {
    let dims: &'static [usize] = Box::leak(Box::new([values.len()]));
    TensorView::of(dims, values)
}

#[test]
fn host_operators_decide_the_size_of_outputs() {
    let mut b = Builder::default();
    let n = b.size(SizeDef::InputDim { input: 0, axis: 0 });
    let x = b.input("x", DType::F32, &[n], &["n"]);
    let count = b.size(SizeDef::Computed);
    let y = b.output("y", DType::I64, &[count]);
    let (inputs, outputs) = (vec![Operand::Buffer(x)], vec![Operand::Buffer(y)]);
    let op = PlanOp::Host { op: NON_ZERO, attrs: vec![], inputs, outputs, sizes_out: vec![count] };
    b.op("/NonZero", op);
    let mut session = b.model_with(&[], Arc::new(TestOps)).session();
    for values in [&[0.0, 1.0, 2.0, 0.0][..], &[0.0], &[], &[1.0; 9], &[0.0, 1.0, 2.0, 0.0]] {
        let expect: Vec<i64> = (0..values.len() as i64).filter(|&i| values[i as usize] != 0.0).collect();
        let outputs = session.run(&[f32s(values)]).unwrap();
        assert_eq!(outputs.get(0).unwrap().to_vec::<i64>().unwrap(), expect);
        let owned = session.run_new(&[f32s(values)], &[], Room::new).unwrap();
        assert_eq!(owned[..], [Value::from(Tensor::new(&[expect.len()], &expect).unwrap())]);
    }
}

#[test]
fn owned_outputs_are_in_order_whichever_extents_are_known_before_the_run() {
    let mut b = Builder::default();
    let n = b.size(SizeDef::InputDim { input: 0, axis: 0 });
    let x = b.input("x", DType::F32, &[n], &["n"]);
    let count = b.size(SizeDef::Computed);
    let first = b.output("first", DType::F32, &[n]);
    let found = b.output("found", DType::I64, &[count]);
    let last = b.output("last", DType::F32, &[n]);
    let (inputs, outputs) = (vec![Operand::Buffer(x)], vec![Operand::Buffer(found)]);
    b.op("/First", PlanOp::Copy { from: x, to: first });
    b.op("/NonZero", PlanOp::Host { op: NON_ZERO, attrs: vec![], inputs, outputs, sizes_out: vec![count] });
    b.op("/Last", PlanOp::Copy { from: x, to: last });
    let mut session = b.model_with(&[], Arc::new(TestOps)).session();
    for (values, expect) in [(&[0.0, 1.0, 2.0][..], &[1i64, 2][..]), (&[3.0], &[0]), (&[], &[])] {
        let owned = session.run_new(&[f32s(values)], &[], Room::new).unwrap();
        let copy = Value::from(Tensor::new(&[values.len()], values).unwrap());
        let found = Value::from(Tensor::new(&[expect.len()], expect).unwrap());
        assert_eq!(owned[..], [copy.clone(), found, copy]);
    }
}

#[test]
fn host_operators_fail_with_the_nodes_they_come_from() {
    let check = |op: u16, expect: &str| {
        let mut b = Builder::default();
        let two = b.constant(2);
        let x = b.input("x", DType::F32, &[two], &[""]);
        let whole = b.buffer(DType::F32, &[two], Place::Arena { offset: 0 });
        b.plan.arena.bytes = 64;
        b.op("/Copy", PlanOp::Copy { from: x, to: whole });
        let whole = vec![Operand::Buffer(whole)];
        let (attrs, inputs) = (vec![], whole.clone());
        b.op("/Host", PlanOp::Host { op, attrs, inputs, outputs: whole, sizes_out: vec![] });
        let mut session = b.model_with(&[], Arc::new(TestOps)).session();
        assert_eq!(session.run(&[f32s(&[0.0, 0.0])]).map(|_| ()).unwrap_err().to_string(), expect);
    };
    check(FAIL, "/Host: 8 is not acceptable");
    check(IN_PLACE, ": buffer b1 overlaps another buffer of the operator");
}

#[test]
fn models_with_unknown_host_operators_are_refused() {
    let mut b = Builder::default();
    for op in [900, 3, 901, 900] {
        b.op("", PlanOp::Host { op, attrs: vec![], inputs: vec![], outputs: vec![], sizes_out: vec![] });
    }
    let kernels = tilewright_runtime::Kernels::new(vec![], None);
    let bytes = tilewright_runtime::Bytes::new(vec![]);
    #[allow(unsafe_code, reason = "a model without kernels")]
    // SAFETY: there are no kernels.
    let error = unsafe { Model::assemble(Default::default(), b.plan, kernels, bytes, Arc::new(TestOps)) }
        .unwrap_err();
    assert_eq!(error.to_string(), "host operators [900, 901] are not in the registry");
}

/// `y = x` repeated `times` (an `i64` input) over, by a loop that appends to a late output.
fn repeat() -> Model {
    let mut b = Builder::default();
    let n = b.size(SizeDef::InputDim { input: 0, axis: 0 });
    let x = b.input("x", DType::F32, &[n], &["n"]);
    let times = b.input("times", DType::I64, &[], &[]);
    let zero = b.constant(0);
    let one = b.constant(1);
    let four = b.constant(4);
    let [limit, i] = [(); 2].map(|()| b.size(SizeDef::Computed));
    let left = b.size(SizeDef::Sub(limit, i));
    let next = b.size(SizeDef::Add(i, one));
    let y = b.output("y", DType::F32, &[i, n]);
    let last = b.output("last", DType::I64, &[]);
    let before = b.size(SizeDef::Sub(i, one));
    let before = b.size(SizeDef::Mul(before, n));
    let before = b.size(SizeDef::Mul(before, four));
    let row = b.buffer(DType::F32, &[n], Place::Alias { buffer: y, byte_offset: before });
    b.op("loop", PlanOp::ReadSize { buffer: times, element: 0, slot: limit });
    b.op("loop", PlanOp::SetSize { slot: i, value: zero });
    b.op("loop", PlanOp::Alloc { buffer: y });
    let head = b.op("loop", PlanOp::BranchIfZero { slot: left, target: 8 });
    b.op("loop", PlanOp::SetSize { slot: i, value: next });
    b.op("loop", PlanOp::Grow { buffer: y });
    b.op("body", PlanOp::Copy { from: x, to: row });
    b.op("loop", PlanOp::Jump { target: head });
    b.op("loop", PlanOp::WriteSize { buffer: last, element: 0, value: i });
    b.model()
}

#[test]
fn loops_append_to_outputs() {
    let mut session = repeat().session();
    for times in [3i64, 0, 1, 200, 3] {
        let outputs = session.run(&[f32s(&[1.0, 2.0]), TensorView::of(&[], &[times])]).unwrap();
        let y = outputs.get(0).unwrap();
        assert_eq!(y.dims, [times as usize, 2]);
        assert_eq!(y.to_vec::<f32>().unwrap(), [1.0, 2.0].repeat(times as usize));
        assert_eq!(outputs.get(1).unwrap().to_vec::<i64>().unwrap(), [times]);
    }
    let memory = session.memory();
    session.run(&[f32s(&[1.0, 2.0]), TensorView::of(&[], &[100i64])]).unwrap();
    assert_eq!(session.memory(), memory, "memory is kept");
}

#[test]
fn a_loop_that_grows_without_end_meets_the_limit() {
    let options = SessionOptions { memory_limit: 1 << 16, ..SessionOptions::default() };
    let mut session = repeat().session_with(options);
    let error = session.run(&[f32s(&[1.0]), TensorView::of(&[], &[i64::MAX])]).map(|_| ()).unwrap_err();
    assert!(matches!(error, RunError::Limit { limit: 65536, .. }), "{error}");
    assert!(session.run(&[f32s(&[1.0]), TensorView::of(&[], &[5i64])]).is_ok(), "usable after errors");
}

#[test]
fn freed_memory_serves_the_next_allocation() {
    let mut b = Builder::default();
    let n = b.size(SizeDef::InputDim { input: 0, axis: 0 });
    let x = b.input("x", DType::F32, &[n], &["n"]);
    let one = b.constant(1);
    let count = b.size(SizeDef::Computed);
    let [first, second] = [(); 2].map(|()| b.buffer(DType::F32, &[count], Place::Dynamic));
    let y = b.output("y", DType::F32, &[n]);
    let kernel = b.kernel("double", "rw", 0, double);
    let sum = b.kernel("add", "rrw", 1, add);
    b.op("", PlanOp::SetSize { slot: count, value: n });
    b.op("", PlanOp::Alloc { buffer: first });
    b.call(kernel, &[x, first], &[], count);
    b.op("", PlanOp::Free { buffer: first });
    b.op("", PlanOp::Alloc { buffer: second });
    b.call(kernel, &[x, second], &[], count);
    b.call(sum, &[x, second, y], &[count], one);
    let model = b.model();
    let mut session = model.session();
    let values = vec![1.5f32; 1000];
    for _ in 0..3 {
        let outputs = session.run(&[f32s(&values)]).unwrap();
        assert_eq!(outputs.get(0).unwrap().to_vec::<f32>().unwrap(), vec![4.5; 1000]);
    }
    assert_eq!(session.memory(), 2 * 4000, "one run-time buffer and the output");
    for len in 1001..1100 {
        session.run(&[f32s(&vec![0.0; len])]).unwrap();
    }
    assert_eq!(session.memory(), 2 * 4 * 1099, "smaller memory is not hoarded");
}

#[test]
fn uses_outside_memory_are_errors() {
    let check = |build: fn(&mut Builder), expect: &str| {
        let mut b = Builder::default();
        let two = b.constant(2);
        b.input("x", DType::F32, &[two], &[""]);
        build(&mut b);
        let error = b.model().session().run(&[f32s(&[5.0, 6.0])]).map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), expect);
    };
    check(
        |b| {
            // The second half of `x` and one element more.
            let (two, four) = (b.constant(2), b.constant(4));
            let tail = b.buffer(DType::F32, &[two], Place::Alias { buffer: BufferId(0), byte_offset: four });
            let y = b.output("y", DType::F32, &[two]);
            b.op("/Slice", PlanOp::Copy { from: tail, to: y });
        },
        "/Slice: buffer b1 exceeds its memory",
    );
    check(
        |b| {
            let one = b.constant(1);
            let y = b.output("y", DType::F32, &[one]);
            b.op("/Copy", PlanOp::Copy { from: BufferId(0), to: y });
        },
        "/Copy: copy of b0 to b1, which differs in size",
    );
    check(
        |b| {
            let slot = b.size(SizeDef::Computed);
            b.op("/Branch", PlanOp::BranchIfZero { slot, target: 0 });
        },
        "/Branch: size s3 is undefined",
    );
    check(
        |b| {
            let count = b.size(SizeDef::Computed);
            let two = b.constant(2);
            let y = b.output("y", DType::F32, &[count]);
            b.op("/Set", PlanOp::SetSize { slot: count, value: two });
            b.op("/Use", PlanOp::Copy { from: BufferId(0), to: y });
        },
        "/Use: buffer b1 exceeds its memory",
    );
    check(
        |b| {
            let (one, two) = (b.constant(1), b.constant(2));
            let kernel = b.kernel("double", "rw", 0, double);
            let shifted = b.buffer(DType::U8, &[two], Place::Alias { buffer: BufferId(0), byte_offset: one });
            let y = b.output("y", DType::F32, &[two]);
            b.call(kernel, &[shifted, y], &[], one);
        },
        "double: buffer b1 is not aligned as its kernel assumes",
    );
}
