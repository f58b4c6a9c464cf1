//! Host operators as the runtime runs them: a plan built by hand, without a compiler.
#![allow(unsafe_code, reason = "a model is assembled without kernels")]

use std::sync::Arc;

use tilewright_dtype::DType;
use tilewright_host::{HostOp, Registry};
use tilewright_runtime::artifact::Manifest;
use tilewright_runtime::plan::{
    BufferDef, BufferId, DimSpec, HostId, Instr, Nesting, Operand, Place, Plan, PlanOp, SizeDef, SizeId,
    Space, TensorSpec, TextId, ValueSpec, ValueType,
};
use tilewright_runtime::{Bytes, Kernels, Model, Room, RunError, Tensor, TensorView, Value};

/// Buffer and spec of a tensor of F32 with the given extents.
fn tensor(plan: &mut Plan, name: &str, shape: Vec<SizeId>, place: Place) -> (BufferId, TensorSpec) {
    plan.sizes.push(SizeDef::Const(4));
    let mut size_bytes = SizeId(plan.sizes.len() as u32 - 1);
    for &dim in &shape {
        plan.sizes.push(SizeDef::Mul(size_bytes, dim));
        size_bytes = SizeId(plan.sizes.len() as u32 - 1);
    }
    let buffer = BufferId(plan.buffers.len() as u32);
    let dims = shape.iter().map(|&size| DimSpec { name: None, size }).collect();
    plan.buffers.push(BufferDef { dtype: DType::F32, size_bytes, shape, space: Space::Host, place });
    (buffer, TensorSpec { name: name.into(), dtype: DType::F32, dims, buffer })
}

fn host(op: &HostOp, inputs: Vec<Operand>, outputs: Vec<Operand>, sizes_out: Vec<SizeId>) -> Instr {
    let op = PlanOp::Host { op: op.code(), attrs: op.attrs(), inputs, outputs, sizes_out };
    Instr { op, provenance: TextId(0) }
}

/// `(s: seq(f32[?]), x: f32[2]) -> (t: seq(f32[?]), y: f32[n])`: t is s with x in front, y the last of t. With
/// `n` given, y has that extent in the plan; else the operator sets it.
fn model(n: Option<i64>) -> Model {
    let mut plan = Plan { texts: vec!["/At".into()], ..Plan::default() };
    plan.sizes = vec![SizeDef::Const(2), n.map_or(SizeDef::Computed, SizeDef::Const), SizeDef::Const(0)];
    let (x, x_spec) = tensor(&mut plan, "x", vec![SizeId(0)], Place::Input(0));
    let (y, y_spec) = tensor(&mut plan, "y", vec![SizeId(1)], Place::Output(0));
    let (zero, _) = tensor(&mut plan, "", vec![], Place::Arena { offset: 0 });
    plan.buffers[zero.index()].dtype = DType::I32;
    plan.arena.bytes = 64;
    let ty = ValueType { nesting: vec![Nesting::Sequence], dtype: DType::F32, dims: Some(vec![None]) };
    plan.values = vec![ty.clone(), ty];
    let [s, t] = [HostId(0), HostId(1)];
    plan.inputs = vec![x_spec];
    plan.outputs = vec![y_spec];
    plan.value_inputs = vec![ValueSpec { name: "s".into(), position: 0, value: s }];
    plan.value_outputs = vec![ValueSpec { name: "t".into(), position: 0, value: t }];
    let sizes_out = if n.is_none() { vec![SizeId(1)] } else { vec![] };
    let position = PlanOp::WriteSize { buffer: zero, element: 0, value: SizeId(2) };
    plan.instrs = vec![
        Instr { op: position, provenance: TextId(0) },
        host(
            &HostOp::SequenceInsert,
            vec![Operand::Value(s), Operand::Buffer(x), Operand::Buffer(zero)],
            vec![Operand::Value(t)],
            vec![],
        ),
        host(
            &HostOp::SequenceErase,
            vec![Operand::Value(t), Operand::Buffer(zero)],
            vec![Operand::Value(s)],
            vec![],
        ),
        host(
            &HostOp::SequenceAt,
            vec![Operand::Value(s), Operand::Buffer(zero)],
            vec![Operand::Buffer(y)],
            sizes_out,
        ),
    ];
    let (kernels, weights) = (Kernels::new(vec![], None), Bytes::new(vec![]));
    // SAFETY: there are no kernels.
    unsafe { Model::assemble(Manifest::default(), plan, kernels, weights, Arc::new(Registry)) }
        .expect("a sound model")
}

fn floats(values: &[f32]) -> Value {
    Tensor::new(&[values.len()], values).expect("as many elements").into()
}

const X: TensorView<'_> = TensorView { dtype: DType::F32, dims: &[2], bytes: &[0; 8] };

#[test]
fn values_go_in_and_out_and_extents_follow_from_them() {
    let mut session = model(None).session();
    for first in [&[1.0, 2.0, 3.0][..], &[], &[4.0; 9], &[5.0]] {
        let outputs = session.run_values(&[X], &[Value::sequence(vec![floats(first)])]).expect("a run");
        assert_eq!(outputs.get(0).and_then(|y| y.to_vec::<f32>()).as_deref(), Some(first));
        let values: Vec<_> =
            outputs.values().map(|(spec, value)| (spec.name.as_str(), value.clone())).collect();
        let t = Value::sequence(vec![floats(&[0.0, 0.0]), floats(first)]);
        assert_eq!(values, [("t", t.clone())]);
        let owned = session.run_new(&[X], &[Value::sequence(vec![floats(first)])], Room::new);
        let y = Tensor::new(&[first.len()], first).expect("as many elements");
        assert_eq!(owned.as_deref(), Ok(&[t, y.into()][..]));
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let check = |n: Option<i64>, values: &[Value], expect: &str| {
        let error = model(n).session().run_values(&[X], values).map(|_| ()).expect_err("a fault");
        assert_eq!(error.to_string(), expect);
        error
    };
    let one = Value::sequence(vec![floats(&[1.0])]);
    check(None, &[], "input \"s\" is missing");
    check(None, &[floats(&[1.0])], "\"s\": expected seq(f32[?]), got a value of another type");
    check(None, &[one.clone(), one.clone()], "2 values given, the model has 1");
    let named = |inputs: [(&str, TensorView<'_>); 2]| {
        model(None).session().run_named(inputs).map(drop).expect_err("a fault").to_string()
    };
    let (numbers, few) = (TensorView::of(&[1], &[1f32]), TensorView::new(DType::F32, &[2], &[0; 4]));
    let other = "\"s\": expected seq(f32[?]), got a value of another type";
    assert_eq!(named([("s", numbers), ("x", X)]), other);
    assert_eq!(named([("x", X), ("s", few)]), "\"s\": f32[2] needs 8 bytes, got 4");
    assert_eq!(named([("x", numbers), ("s", numbers)]), format!("\"x\": axis 0 must be 2, got 1; {other}"));
    let error =
        check(None, &[Value::sequence(vec![])], "/At: position 0 is out of range for a sequence of 0");
    assert!(matches!(error, RunError::Host { .. }));
    let misfit = "/At: the result is f32[1], but the model was compiled for f32[3]";
    check(Some(3), &[one], misfit);
}

#[test]
fn attributes_that_are_no_operators_are_an_error() {
    let mut plan = model(None).plan().clone();
    if let PlanOp::Host { op, attrs, .. } = &mut plan.instrs[3].op {
        (*op, *attrs) = (HostOp::RegexFullMatch(String::new()).code(), vec![9]);
    }
    let (kernels, weights) = (Kernels::new(vec![], None), Bytes::new(vec![]));
    // SAFETY: there are no kernels.
    let model = unsafe { Model::assemble(Manifest::default(), plan, kernels, weights, Arc::new(Registry)) };
    let mut session = model.expect("a sound model").session();
    let error = session.run_values(&[X], &[Value::sequence(vec![])]).map(|_| ()).expect_err("a fault");
    assert_eq!(error.to_string(), "/At: not the attributes of RegexFullMatch");
}
