//! What a detector does with its boxes, compiled and compared with the interpreter: a part for each class whose length is data, joined,
//! sorted, suppressed, cut and padded.

use std::sync::Arc;

use tilewright_driver::graph::op::*;
use tilewright_driver::graph::tensor::{Element, Tensor};
use tilewright_driver::graph::{Graph, Provenance, TensorType, Type, ValueId, infer};
use tilewright_driver::onnx::{OnnxModel, export};
use tilewright_driver::reference::Reference;
use tilewright_driver::runtime::threads::ThreadPool;
use tilewright_driver::runtime::{SessionOptions, TensorView};
use tilewright_driver::{CodegenKind, DType, Options, TensorData, Trust, compile_model};

const BOXES: usize = 1500;

/// Numbers of classes: of few each element chooses among all parts, of many it finds its part.
const CLASSES: [usize; 2] = [5, 20];

/// Boxes that remain at most, of a class and of all.
const OF_CLASS: i64 = 40;
const OF_ALL: i64 = 60;

fn node(graph: &mut Graph, op: Op, inputs: &[ValueId]) -> Vec<ValueId> {
    let (region, inputs) = (graph.main(), inputs.iter().copied().map(Some).collect());
    let node = infer::append(graph, region, op, inputs, Provenance::default()).expect("operands that fit");
    graph.node(node).outputs.to_vec()
}

fn add(graph: &mut Graph, op: Op, inputs: &[ValueId]) -> ValueId {
    node(graph, op, inputs)[0]
}

fn scalar<T: Element>(graph: &mut Graph, value: T) -> ValueId {
    add(graph, Op::Constant(Tensor::scalar(value)), &[])
}

fn vector(graph: &mut Graph, values: &[i64]) -> ValueId {
    add(graph, Op::Constant(Tensor::vector(values)), &[])
}

fn reshape(graph: &mut Graph, x: ValueId, dims: &[i64]) -> ValueId {
    let dims = vector(graph, dims);
    add(graph, Op::ReshapeDynamic(ReshapeDynamicAttrs { allow_zero: false }), &[x, dims])
}

fn gather(graph: &mut Graph, x: ValueId, indices: ValueId) -> ValueId {
    add(graph, Op::Gather(AxisAttrs { axis: 0 }), &[x, indices])
}

/// The length of a vector, but no more than `most`.
fn at_most(graph: &mut Graph, x: ValueId, most: i64) -> ValueId {
    let len = add(graph, Op::Shape(ShapeAttrs { start: 0, end: 1 }), &[x]);
    let most = vector(graph, &[most]);
    add(graph, Op::Binary(BinaryOp::Min), &[len, most])
}

/// The best boxes of a class above a threshold: coordinates, scores, labels.
fn of_class(g: &mut Graph, class: usize, is_last: bool, [boxes, scores]: [ValueId; 2]) -> [ValueId; 3] {
    let row = scalar(g, class as i64);
    let scores = gather(g, scores, row);
    // Nothing of the last class is above.
    let threshold = scalar(g, if is_last { 2.0f32 } else { 0.9 });
    let above = add(g, Op::Binary(BinaryOp::Greater), &[scores, threshold]);
    let places = add(g, Op::NonZero, &[above]);
    let places = reshape(g, places, &[-1]);
    let kept = gather(g, scores, places);
    let k = at_most(g, kept, OF_CLASS);
    let top = TopKAttrs { axis: 0, largest: true, sorted: true, k: None };
    let [best, order] = node(g, Op::TopK(top), &[kept, k])[..] else { panic!("two results") };
    let places = gather(g, places, order);
    let count = add(g, Op::Shape(ShapeAttrs { start: 0, end: 1 }), &[best]);
    let labels = add(g, Op::ExpandDynamic, &[row, count]);
    [gather(g, boxes, places), best, labels]
}

/// Boxes `[boxes, 4]` and scores `[classes, boxes]` to the boxes that remain.
fn detector(classes: usize) -> Graph {
    let mut graph = Graph::new("post_processing");
    let g = &mut graph;
    let float = |dims: &[usize]| {
        Type::Tensor(TensorType::new(DType::F32, dims.iter().map(|&n| (n as i64).into()).collect()))
    };
    let boxes = g.add_input("boxes", float(&[BOXES, 4]));
    let scores = g.add_input("scores", float(&[classes, BOXES]));
    let zero = scalar(g, 0.0f32);
    let outside = add(g, Op::Binary(BinaryOp::Less), &[boxes, zero]);
    let boxes = add(g, Op::Where, &[outside, zero, boxes]);
    let parts: Vec<[ValueId; 3]> =
        (0..classes).map(|class| of_class(g, class, class + 1 == classes, [boxes, scores])).collect();
    let [boxes, scores, labels] = [0, 1, 2].map(|n| {
        let parts: Vec<ValueId> = parts.iter().map(|part| part[n]).collect();
        add(g, Op::Concat(AxisAttrs { axis: 0 }), &parts)
    });
    // Boxes of different classes lie far from each other, so that they do not suppress one another.
    let (far, of_label) = (scalar(g, 1000.0f32), add(g, Op::cast(DType::F32), &[labels]));
    let shift = add(g, Op::Binary(BinaryOp::Mul), &[of_label, far]);
    let shift = reshape(g, shift, &[-1, 1]);
    let apart = add(g, Op::Binary(BinaryOp::Add), &[boxes, shift]);
    let (apart, alone) = (reshape(g, apart, &[1, -1, 4]), reshape(g, scores, &[1, 1, -1]));
    let (most, overlap) = (scalar(g, 1000i64), scalar(g, 0.3f32));
    let nms = Op::NonMaxSuppression(NonMaxSuppressionAttrs { center_point_box: false });
    let selected = add(g, nms, &[apart, alone, most, overlap]);
    let column = scalar(g, 2i64);
    let kept = add(g, Op::Gather(AxisAttrs { axis: 1 }), &[selected, column]);
    let (start, end) = (vector(g, &[0]), at_most(g, kept, OF_ALL));
    let kept = add(g, Op::SliceDynamic, &[kept, start, end]);
    let results = [boxes, scores, labels].map(|x| gather(g, x, kept));
    let (none, all) = (vector(g, &[0]), vector(g, &[OF_ALL + 5]));
    let missing = add(g, Op::Binary(BinaryOp::Sub), &[all, end]);
    let pads = add(g, Op::Concat(AxisAttrs { axis: 0 }), &[none, missing]);
    let pad = Op::PadDynamic(PadDynamicAttrs { mode: PadMode::Constant });
    let padded = add(g, pad, &[results[1], pads]);
    for (name, value) in ["boxes_kept", "scores_kept", "labels_kept"].into_iter().zip(results) {
        g.add_output(name, value);
    }
    g.add_output("padded", padded);
    graph
}

#[test]
fn boxes_that_remain_are_those_of_the_interpreter() {
    CLASSES.into_iter().for_each(check);
}

fn check(classes: usize) {
    let graph = detector(classes);
    let mut random = fastrand::Rng::with_seed(3);
    let corners = (0..BOXES).flat_map(|_| {
        let [x, y, width, height] = [90.0, 90.0, 20.0, 20.0].map(|most| random.f32() * most - 1.0);
        [x, y, x + width + 2.0, y + height + 2.0]
    });
    let boxes: Vec<f32> = corners.collect();
    // A class has as many candidates as its number says: fewer and more than remain of it.
    let score = |n: usize| random.f32().powf(0.2 + 10.0 / (1 + n / BOXES) as f32);
    let scores: Vec<f32> = (0..classes * BOXES).map(score).collect();
    let data = |dims: [usize; 2], values: &[f32]| TensorData {
        dtype: DType::F32,
        shape: dims.map(|n| n as i64).to_vec(),
        bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
    };
    let inputs = [data([BOXES, 4], &boxes), data([classes, BOXES], &scores)];
    let expected = Reference::new(&graph).expect("a reference").run(&inputs, &mut |_, _| {}).expect("a run");
    assert_eq!(expected[0].shape, [OF_ALL, 4], "boxes were left out");

    let model = OnnxModel::from_proto(export(&graph).expect("an ONNX model")).expect("a model");
    let codegens = [CodegenKind::Cranelift, Options::best_codegen()];
    for codegen in codegens {
        let compiled = compile_model(&model, &Options::host(codegen), &mut ()).expect("an artifact");
        let loaded =
            tilewright_driver::loader(Trust::Origin).from_bytes(compiled.artifact.to_bytes().expect("bytes"));
        let loaded = loaded.expect("a model");
        for threads in [1, 2] {
            let pool = Arc::new(ThreadPool::new(threads));
            let mut session = loaded.session_with(SessionOptions { pool, ..SessionOptions::default() });
            let dims = [[BOXES, 4], [classes, BOXES]];
            let views = [TensorView::of(&dims[0], &boxes), TensorView::of(&dims[1], &scores)];
            let outputs = session.run(&views).expect("a run");
            for ((name, found), expected) in outputs.iter().zip(&expected) {
                let dims: Vec<i64> = found.dims.iter().map(|&n| n as i64).collect();
                assert_eq!((found.dtype, dims), (expected.dtype, expected.shape.clone()), "{name}");
                assert!(
                    found.bytes == expected.bytes,
                    "{name} of {classes} classes, {} on {threads} threads",
                    codegen.name()
                );
            }
        }
    }
}
