//! Validation of plans: every fault is found and named with its place.

mod common;

use common::{Builder, demo_plan, double};
use tilewright_dtype::DType;
use tilewright_runtime::plan::{
    BufferId, Cmp, HostId, KernelId, MAX_NESTING, Nesting, Op, Operand, Place, Plan, SizeBounds, SizeDef,
    SizeId, TextId, ValueSpec, ValueType,
};

fn check(edit: impl FnOnce(&mut Plan), expect: &[&str]) {
    let mut plan = demo_plan().plan;
    edit(&mut plan);
    let errors = plan.validate().expect_err("faults").iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(errors, expect);
}

fn check_op(op: Op, expect: &[&str]) {
    check(|plan| plan.instrs[0].op = op, expect);
}

#[test]
fn the_plan_of_the_tests_is_sound() {
    assert_eq!(demo_plan().plan.validate(), Ok(()));
    assert_eq!(Plan::default().validate(), Ok(()));
}

#[test]
fn plans_print() {
    let text = demo_plan().plan.to_string();
    let expect = "arena 0 bytes, weights 12 bytes
input \"x\": f32[batch = s0, s1] in b0
output \"y\": f32[s0, s1] in b2
output \"w\": f32[s1] in b4
s0 = dim 0 of \"x\"
s1 = 3
";
    assert!(text.starts_with(expect), "{text}");
    let expect = "block 0: s7 bytes
b0: f32[s0, s1], s4 bytes, input 0
b1: f32[s0, s1], s7 bytes, block 0
b2: f32[s0, s1], s10 bytes, output 0
b3: f32[s1], s12 bytes, weights at 0 (12 bytes)
b4: f32[s1], s14 bytes, output 1
k0: double(read align 4, write align 4; 0 sizes)
0: call double(b0, b1) tasks s16 x s15  // double
1: call double(b1, b2) tasks s17 x s15  // double
2: copy b3 to b4  // w
";
    assert!(text.ends_with(expect), "{text}");
}

#[test]
fn sizes() {
    check(
        |plan| plan.sizes[0] = SizeDef::InputDim { input: 0, axis: 2 },
        &["size 0: axis 2 of input 0 does not exist"],
    );
    check(
        |plan| plan.sizes[0] = SizeDef::InputDim { input: 9, axis: 0 },
        &["size 0: axis 0 of input 9 does not exist"],
    );
    let expect = ["size 1: operand s1 is not a lower slot", "size 1: operand s70 is not a lower slot"];
    check(|plan| plan.sizes[1] = SizeDef::Add(SizeId(1), SizeId(70)), &expect);
    check(|plan| plan.blocks[0] = SizeId(70), &["block 0: s70 does not exist"]);
    let bounds = |size, min, step| SizeBounds { size, name: "n".into(), min, max: Some(4), step };
    check(|plan| plan.bounds.push(bounds(SizeId(0), 5, 1)), &["bounds 0: bounds admit no value"]);
    check(|plan| plan.bounds.push(bounds(SizeId(0), 1, 0)), &["bounds 0: bounds admit no value"]);
    check(|plan| plan.bounds.push(bounds(SizeId(70), 1, 1)), &["bounds 0: s70 does not exist"]);
}

#[test]
fn late_sizes_are_refused_where_memory_is_laid_out() {
    let late = |plan: &mut Plan| plan.sizes[0] = SizeDef::Computed;
    let expect = [
        "block 0: s6 depends on a computed slot",
        "buffer 0: s4 depends on a computed slot",
        "buffer 1: s7 depends on a computed slot",
        "input 0: s0 depends on a computed slot",
    ];
    let mut plan = demo_plan().plan;
    late(&mut plan);
    let errors = plan.validate().expect_err("faults");
    assert_eq!(errors.len(), expect.len(), "{errors:?}");
    for (error, expect) in errors.iter().zip(expect) {
        let place = expect.split(':').next().unwrap();
        assert!(
            error.to_string().starts_with(place) && error.to_string().ends_with("depends on a computed slot")
        );
    }
}

#[test]
fn buffers() {
    check(|plan| plan.buffers[1].place = Place::Block(3), &["buffer 1: block 3 does not exist"]);
    check(
        |plan| plan.buffers[1].place = Place::Arena { offset: 32 },
        &["buffer 1: 32 is not aligned", "buffer 1: bytes 32..32 lie outside the arena of 0 bytes"],
    );
    check(|plan| plan.weight_bytes = 8, &["buffer 3: bytes 0..12 lie outside the weights of 8 bytes"]);
    let far = Place::Weight { offset: u64::MAX - 63, len: 64 };
    check(
        |plan| plan.buffers[3].place = far,
        &["buffer 3: bytes 18446744073709551552..18446744073709551615 lie outside the weights of 12 bytes"],
    );
    let alias = |to| Place::Alias { buffer: BufferId(to), byte_offset: SizeId(0) };
    check(|plan| plan.buffers[1].place = alias(1), &["buffer 1: alias of itself"]);
    check(|plan| plan.buffers[1].place = alias(9), &["buffer 1: b9 does not exist"]);
    check(
        |plan| {
            plan.buffers[1].place = alias(3);
            plan.buffers[3].place = alias(1);
        },
        &["buffer 1: alias of itself"],
    );
    check(
        |plan| plan.buffers[0].place = Place::Input(7),
        &["buffer 0: input 7 does not exist", "input 0: does not agree with its buffer b0"],
    );
    check(
        |plan| plan.buffers[1].place = Place::Output(1),
        &["buffer 1: is at the place of b4, and no alias of it"],
    );
    check(|plan| plan.outputs[0].dtype = DType::I32, &["output 0: does not agree with its buffer b2"]);
    check(|plan| plan.outputs[0].name = "w".into(), &["output 1: name \"w\" is used twice"]);
    check(|plan| plan.kernels[0].params[0].align = 48, &["kernel 0: 48 is not aligned"]);
}

#[test]
fn instructions() {
    let b = BufferId;
    let call = |kernel, buffers: &[BufferId], sizes: &[SizeId]| Op::Call {
        kernel: KernelId(kernel),
        buffers: buffers.to_vec(),
        sizes: sizes.to_vec(),
        rounds: SizeId(0),
        per_round: SizeId(0),
    };
    check_op(call(4, &[], &[]), &["instruction 0: k4 does not exist"]);
    check_op(
        call(0, &[b(0)], &[SizeId(0)]),
        &["instruction 0: kernel takes 2 buffers, given 1", "instruction 0: kernel takes 0 sizes, given 1"],
    );
    check_op(
        call(0, &[b(0), b(0)], &[]),
        &["instruction 0: b0 is written, but lies in an input or a weight"],
    );
    check_op(
        call(0, &[b(0), b(3)], &[]),
        &["instruction 0: b3 is written, but lies in an input or a weight"],
    );
    check_op(call(0, &[b(9), b(1)], &[]), &["instruction 0: b9 does not exist"]);
    check_op(Op::Alloc { buffer: b(2) }, &["instruction 0: b2 is not a buffer allocated at run time"]);
    check_op(Op::Free { buffer: b(1) }, &["instruction 0: b1 is not a buffer allocated at run time"]);
    check_op(
        Op::ReadSize { buffer: b(0), element: 0, slot: SizeId(0) },
        &["instruction 0: s0 is not a computed slot", "instruction 0: element type f32 is not allowed here"],
    );
    check_op(
        Op::ScaleSize { size: SizeId(0), buffer: b(0), element: 0, slot: SizeId(0) },
        &["instruction 0: s0 is not a computed slot"],
    );
    check_op(
        Op::WriteSize { buffer: b(1), element: 0, value: SizeId(0) },
        &["instruction 0: element type f32 is not allowed here"],
    );
    check_op(
        Op::SetSize { slot: SizeId(1), value: SizeId(0) },
        &["instruction 0: s1 is not a computed slot"],
    );
    check_op(
        Op::Copy { from: b(0), to: b(0) },
        &["instruction 0: b0 is written, but lies in an input or a weight"],
    );
    check_op(Op::Jump { target: 4 }, &["instruction 0: instruction 4 does not exist"]);
    let guard = Op::Guard { lhs: SizeId(0), cmp: Cmp::Ne, rhs: SizeId(0), message: TextId(9) };
    check_op(guard, &["instruction 0: t9 does not exist"]);
    let host = Op::Host {
        op: 0,
        attrs: vec![],
        inputs: vec![Operand::Buffer(b(8)), Operand::Absent, Operand::Value(HostId(3))],
        outputs: vec![Operand::Buffer(b(0)), Operand::Value(HostId(4))],
        sizes_out: vec![SizeId(0)],
    };
    check_op(
        host,
        &[
            "instruction 0: b8 does not exist",
            "instruction 0: h3 does not exist",
            "instruction 0: b0 is written, but lies in an input or a weight",
            "instruction 0: h4 does not exist",
            "instruction 0: s0 is not a computed slot",
        ],
    );
    check_op(
        Op::CopyValue { from: HostId(0), to: HostId(1) },
        &["instruction 0: h0 does not exist", "instruction 0: h1 does not exist"],
    );
    check_op(
        Op::ReadDim { value: HostId(0), axis: 0, slot: SizeId(0) },
        &["instruction 0: s0 is not a computed slot", "instruction 0: h0 does not exist"],
    );
    check(|plan| plan.instrs[2].provenance = TextId(50), &["instruction 2: t50 does not exist"]);
}

#[test]
fn host_values_are_checked() {
    let ty =
        |depth: usize| ValueType { nesting: vec![Nesting::Sequence; depth], dtype: DType::F32, dims: None };
    let spec = |name: &str, position, value| ValueSpec { name: name.into(), position, value: HostId(value) };
    check(|plan| plan.values = vec![ty(MAX_NESTING), ty(MAX_NESTING + 1)], &["value 1: nested 33 deep"]);
    check(
        |plan| {
            plan.values = vec![ty(1)];
            plan.value_outputs = vec![spec("v", 0, 0), spec("w", 0, 1), spec("v", 9, 0)];
        },
        &[
            "value output 2: name \"v\" is used twice",
            "value output 1: name \"w\" is used twice",
            "value output 1: h1 does not exist",
            "value output 1: position 0 is out of order",
            "value output 2: position 9 is out of order",
        ],
    );
}

#[test]
fn aliases_of_read_only_buffers_are_read_only() {
    let mut b = Builder::default();
    let one = b.constant(1);
    let zero = b.constant(0);
    let x = b.input("x", DType::F32, &[one], &[""]);
    let alias = b.buffer(DType::F32, &[one], Place::Alias { buffer: x, byte_offset: zero });
    let kernel = b.kernel("double", "rw", 0, double);
    b.call(kernel, &[x, alias], &[], one);
    let errors = b.plan.validate().expect_err("a fault");
    assert_eq!(errors[0].to_string(), "instruction 0: b1 is written, but lies in an input or a weight");
}
