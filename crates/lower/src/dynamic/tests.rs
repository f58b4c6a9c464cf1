//! The rules on numbers, against extents worked out by hand.

use std::collections::HashMap;

use tilewright_dtype::DType;
use tilewright_graph::dim::Dim;
use tilewright_graph::op::*;
use tilewright_graph::types::{TensorType, Type};
use tilewright_graph::{Graph, Op, Provenance, ValueId, infer};
use tilewright_runtime::plan::Cmp;

use super::{Extents, SizeOp, extent};

/// Elements of the operands, by value, and how many were read.
struct Given(HashMap<ValueId, Vec<f64>>, usize);

impl Extents for Given {
    type Size = Option<i64>;
    type Error = String;

    fn constant(&mut self, value: i64) -> Option<i64> {
        Some(value)
    }

    fn dim(&mut self, dim: &Dim) -> Result<Option<i64>, String> {
        Ok(dim.as_const())
    }

    fn element(&mut self, value: ValueId, position: usize) -> Result<Option<i64>, String> {
        self.1 += 1;
        Ok(Some(self.0[&value][position] as i64))
    }

    fn scaled(&mut self, size: Option<i64>, value: ValueId, position: usize) -> Result<Option<i64>, String> {
        let factor = self.0[&value][position] as f32;
        Ok(size.map(|size| (size as f32 * factor).floor() as i64))
    }

    fn apply(&mut self, op: SizeOp, a: Option<i64>, b: Option<i64>) -> Option<i64> {
        op.apply(a?, b?)
    }

    fn require(&mut self, a: Option<i64>, cmp: Cmp, b: Option<i64>, message: &str) -> Result<(), String> {
        match (a, b) {
            (Some(a), Some(b)) if cmp.holds(a, b) => Ok(()),
            _ => Err(message.to_string()),
        }
    }

    fn gap(&self, reason: &str) -> String {
        reason.to_string()
    }
}

/// The extents of the first result of an operator on an f32 tensor of extents `x` and on vectors of data.
fn run(op: Op, x: &[i64], data: &[&[i64]]) -> Result<Vec<i64>, String> {
    run_counting(op, x, data).0
}

/// As well how many elements are read for that.
fn run_counting(op: Op, x: &[i64], data: &[&[i64]]) -> (Result<Vec<i64>, String>, usize) {
    let mut graph = Graph::new("test");
    let dims: Vec<Dim> = x.iter().map(|&n| Dim::new(n)).collect();
    let first = graph.add_input("x", Type::Tensor(TensorType::new(DType::F32, dims)));
    let mut inputs = vec![Some(first)];
    let mut given = HashMap::new();
    for (i, elements) in data.iter().enumerate() {
        // The window of a spectrum is of the signal's type; everything else that gives extents is of integers.
        let dtype = if matches!(op, Op::Stft(_)) && i == 1 { DType::F32 } else { DType::I64 };
        let ty = TensorType::new(dtype, vec![Dim::from(elements.len())]);
        let value = graph.add_input(&format!("data{i}"), Type::Tensor(ty));
        given.insert(value, elements.iter().map(|&n| n as f64).collect());
        inputs.push(Some(value));
    }
    let region = graph.main();
    let node = infer::append(&mut graph, region, op, inputs, Provenance::named("node")).unwrap();
    let output = graph.node(node).outputs[0];
    let dims = graph.dims(output).unwrap().to_vec();
    let mut given = Given(given, 0);
    let extents = dims
        .iter()
        .enumerate()
        .map(|(axis, dim)| match dim.as_const() {
            Some(extent) => Ok(extent),
            None => extent(&graph, node, 0, axis, &mut given).map(|size| size.unwrap()),
        })
        .collect();
    (extents, given.1)
}

fn check(op: Op, x: &[i64], data: &[&[i64]], expect: &[i64]) {
    let name = op.name();
    assert_eq!(run(op, x, data).as_deref(), Ok(expect), "{name} of {x:?} with {data:?}");
}

fn refuses(op: Op, x: &[i64], data: &[&[i64]], message: &str) {
    let error = run(op, x, data).unwrap_err();
    assert!(error.contains(message), "{error}");
}

#[test]
fn reductions_over_axes_that_are_data() {
    let op = |keep_dims, empty_is_noop| {
        Op::ReduceDynamic(ReduceDynamicAttrs { kind: ReduceKind::Sum, keep_dims, empty_is_noop })
    };
    check(op(true, false), &[2, 3, 4], &[&[1]], &[2, 1, 4]);
    check(op(true, false), &[2, 3, 4], &[&[-1, 0]], &[1, 3, 1]);
    check(op(false, false), &[2, 3, 4], &[&[1]], &[2, 4]);
    check(op(false, false), &[2, 3, 4], &[&[-1, 0]], &[3]);
    check(op(true, false), &[2, 3], &[&[]], &[1, 1]);
    check(op(true, true), &[2, 3], &[&[]], &[2, 3]);
    refuses(op(true, false), &[2, 3], &[&[2]], "ReduceDynamic `node`: an axis is out of range");
    refuses(op(false, false), &[2, 3, 4], &[&[1, -2]], "axes must not repeat");
}

#[test]
fn reshapes_infer_and_keep_extents() {
    let op = |allow_zero| Op::ReshapeDynamic(ReshapeDynamicAttrs { allow_zero });
    check(op(false), &[2, 3, 4], &[&[4, -1]], &[4, 6]);
    check(op(false), &[2, 3, 4], &[&[0, 0, 4, 1]], &[2, 3, 4, 1]);
    check(op(false), &[2, 3, 4], &[&[0, -1]], &[2, 12]);
    check(op(true), &[0, 3], &[&[3, 0]], &[3, 0]);
    refuses(op(false), &[2, 3], &[&[-1, -1]], "more than one extent is -1");
    refuses(op(false), &[2, 3], &[&[4, 2]], "numbers of elements must be equal");
    refuses(op(false), &[2, 3], &[&[4, -1]], "numbers of elements must be equal");
}

#[test]
fn slices_clamp_as_onnx_says() {
    let check = |start: i64, end: i64, step: i64, expect: i64| {
        check(Op::SliceDynamic, &[10], &[&[start], &[end], &[0], &[step]], &[expect]);
    };
    check(2, 7, 1, 5);
    check(2, 7, 2, 3);
    check(-3, i64::MAX, 1, 3);
    check(i64::MIN, 4, 1, 4);
    check(8, 3, 1, 0);
    check(20, 30, 1, 0);
    check(-1, i64::MIN, -1, 10);
    check(7, 2, -2, 3);
    check(100, -100, -3, 4);
    check(2, 7, -1, 0);
    refuses(Op::SliceDynamic, &[10], &[&[0], &[5], &[0], &[0]], "a step must not be 0");
    refuses(Op::SliceDynamic, &[10], &[&[0], &[5], &[1]], "an axis is out of range");
}

#[test]
fn slices_apply_to_the_axes_listed() {
    check(Op::SliceDynamic, &[4, 5, 6], &[&[1, 0], &[3, 2], &[-1, 0]], &[2, 5, 2]);
    check(Op::SliceDynamic, &[4, 5, 6], &[&[1, 0], &[3, 2]], &[2, 2, 6]);
}

#[test]
fn movement() {
    check(Op::ExpandDynamic, &[3, 1], &[&[2, 1, 6]], &[2, 3, 6]);
    check(Op::ExpandDynamic, &[3, 4], &[&[1]], &[3, 4]);
    refuses(Op::ExpandDynamic, &[3], &[&[4]], "extents must broadcast");
    refuses(Op::ExpandDynamic, &[1, 3], &[&[2, 4]], "extents must broadcast");
    // Each open axis reads what it follows from, and no other.
    let (extents, reads) = run_counting(Op::ExpandDynamic, &[1; 8], &[&[2; 8]]);
    assert_eq!((extents.as_deref(), reads), (Ok(&[2; 8][..]), 8));
    check(Op::TileDynamic, &[2, 3], &[&[2, 0]], &[4, 0]);
    refuses(Op::TileDynamic, &[2], &[&[-1]], "a number of repeats must not be negative");
    let pad = Op::PadDynamic(PadDynamicAttrs { mode: PadMode::Constant });
    check(pad.clone(), &[2, 3], &[&[1, -1, 0, 2]], &[3, 4]);
    refuses(pad, &[2, 3], &[&[-2, 0, -1, 0]], "an extent must not be negative");
    check(Op::CenterCropPad(CenterCropPadAttrs { axes: vec![1] }), &[2, 9], &[&[4]], &[2, 4]);
}

#[test]
fn spectra_of_lengths_that_are_data() {
    let dft = |axis, onesided, inverse| Op::Dft(DftAttrs { axis, inverse, onesided, length: None });
    check(dft(Some(1), true, false), &[2, 9, 1], &[&[7]], &[2, 4, 2]);
    check(dft(Some(1), true, true), &[2, 9, 2], &[&[7]], &[2, 7, 1]);
    check(dft(None, true, false), &[6, 9, 1], &[&[4], &[0]], &[3, 9, 2]);
    let stft = |onesided| Op::Stft(StftAttrs { onesided, frame_step: None, frame_length: None });
    let window = [1; 8];
    check(stft(true), &[2, 40, 1], &[&[5], &window, &[8]], &[2, 7, 5, 2]);
    check(stft(false), &[2, 40, 1], &[&[5], &window, &[8]], &[2, 7, 8, 2]);
    refuses(stft(true), &[2, 40, 1], &[&[0], &window, &[8]], "the step between frames must be positive");
}
