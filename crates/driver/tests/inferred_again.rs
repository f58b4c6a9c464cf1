//! Networks whose padding is computed from `Shape`: types are inferred again behind what becomes known.

use std::sync::Arc;

use tilewright_driver::DType;
use tilewright_driver::graph::op::*;
use tilewright_driver::graph::tensor::Tensor;
use tilewright_driver::graph::{Graph, Provenance, SymbolKind, TensorType, Type, ValueId, infer, passes};
use tilewright_lower::evaluate::Interpret;

fn add(graph: &mut Graph, op: Op, inputs: &[ValueId]) -> ValueId {
    let (region, inputs) = (graph.main(), inputs.iter().copied().map(Some).collect());
    let node = infer::append(graph, region, op, inputs, Provenance::default()).expect("operands that fit");
    graph.node(node).output().expect("a result")
}

fn constant(graph: &mut Graph, tensor: Tensor) -> ValueId {
    add(graph, Op::Constant(tensor), &[])
}

/// Convolutions, each of which pads its operand to even extents first. Floats are in the arithmetic, so that it is
/// not followed symbolically.
fn network(layers: usize) -> Graph {
    let mut graph = Graph::new("padded");
    let dims = [1i64, 2, 37, 41].map(Into::into).to_vec();
    let mut x = graph.add_input("x", Type::Tensor(TensorType::new(DType::F32, dims)));
    for _ in 0..layers {
        let g = &mut graph;
        let shape = add(g, Op::Shape(ShapeAttrs { start: 0, end: 4 }), &[x]);
        let axes = constant(g, Tensor::vector(&[2i64, 3]));
        let extents = add(g, Op::Gather(AxisAttrs { axis: 0 }), &[shape, axes]);
        let reals = add(g, Op::cast(DType::F32), &[extents]);
        let two = constant(g, Tensor::scalar(2.0f32));
        let halves = add(g, Op::Binary(BinaryOp::Div), &[reals, two]);
        let halves = add(g, Op::Unary(UnaryOp::Ceil), &[halves]);
        let even = add(g, Op::Binary(BinaryOp::Mul), &[halves, two]);
        let even = add(g, Op::cast(DType::I64), &[even]);
        let after = add(g, Op::Binary(BinaryOp::Sub), &[even, extents]);
        let zeros = constant(g, Tensor::vector(&[0i64; 6]));
        let pads = add(g, Op::Concat(AxisAttrs { axis: 0 }), &[zeros, after]);
        let padded = add(g, Op::PadDynamic(PadDynamicAttrs { mode: PadMode::Constant }), &[x, pads]);
        let weight = Tensor::from_elements(&[2, 2, 2, 2], &[0.25f32; 16]).expect("as many elements");
        let weight = constant(g, weight);
        let attrs = ConvAttrs { strides: vec![1, 1], pads: vec![0; 4], dilations: vec![1, 1], group: 1 };
        x = add(g, Op::Conv(attrs), &[padded, weight]);
    }
    graph.add_output("y", x);
    graph
}

/// Simplifies; how often folding ran.
fn simplify(graph: &mut Graph) -> usize {
    let mut passes = passes::simplify(Arc::new(Interpret));
    passes.run(graph).expect("a simpler graph");
    let timing = passes.timings().iter().find(|timing| timing.name == "constant_folding");
    timing.expect("a pass").runs
}

/// Extents that floats tell, and that contradict the operand, are an error of the model.
#[test]
fn operands_that_turn_out_not_to_fit_are_told() {
    let mut graph = Graph::new("contradiction");
    let g = &mut graph;
    let x = g.add_input("x", Type::Tensor(TensorType::new(DType::F32, vec![8i64.into()])));
    let half = constant(g, Tensor::vector(&[4.5f32]));
    let extent = add(g, Op::Unary(UnaryOp::Floor), &[half]);
    let extent = add(g, Op::cast(DType::I64), &[extent]);
    let y = add(g, Op::ReshapeDynamic(ReshapeDynamicAttrs { allow_zero: false }), &[x, extent]);
    g.add_output("y", y);
    let mut passes = passes::simplify(Arc::new(Interpret));
    let error = passes.run(&mut graph).expect_err("8 elements are not 4").to_string();
    assert!(error.contains("numbers of elements differ: 8 and 4"), "{error}");
}

#[test]
fn padding_by_shapes_leaves_no_extent_open() {
    let mut graph = network(5);
    simplify(&mut graph);
    for node in graph.live_nodes() {
        let data = graph.node(node);
        assert!(!matches!(data.op, Op::PadDynamic(_)), "all padding is known");
        for &value in &data.outputs {
            let dims = graph.dims(value).expect("a tensor");
            assert!(
                dims.iter().all(|dim| dim.as_const().is_some()),
                "{}",
                graph.ty(value).display(&graph.symbols)
            );
        }
    }
    // 37 and 41 become 38 and 42 before the first, 37 and 41 behind it.
    let y = graph.ty(graph.outputs()[0]).display(&graph.symbols).to_string();
    assert_eq!(y, "f32[1, 2, 37, 41]");
    assert!(graph.guards.is_empty());
}

#[test]
fn the_number_of_rounds_does_not_grow_with_the_chain() {
    let runs = [3, 12, 60].map(|layers| simplify(&mut network(layers)));
    assert_eq!(runs, [runs[0]; 3]);
}

/// What a node defines under guard only is not taken for known elsewhere.
#[test]
fn guarded_extents_keep_their_guards() {
    let mut graph = Graph::new("guarded");
    let symbol = graph.symbols.intern("n", SymbolKind::Input);
    let dims = vec![tilewright_driver::graph::Dim::symbol(symbol)];
    let x = graph.add_input("x", Type::Tensor(TensorType::new(DType::F32, dims)));
    let g = &mut graph;
    let found = add(g, Op::NonZero, &[x]);
    let four = constant(g, Tensor::vector(&[2.0f32]));
    let four = add(g, Op::Binary(BinaryOp::Mul), &[four, four]);
    let four = add(g, Op::cast(DType::I64), &[four]);
    let one = constant(g, Tensor::scalar(1i64));
    let full = add(g, Op::FullDynamic, &[four, one]);
    let sum = add(g, Op::Binary(BinaryOp::Add), &[found, full]);
    graph.add_output("y", sum);
    simplify(&mut graph);
    let y = graph.ty(graph.outputs()[0]).display(&graph.symbols).to_string();
    assert_eq!(y, "i64[1, 4]");
    let guards: Vec<String> =
        graph.guards.iter().map(|guard| guard.display(&graph.symbols).to_string()).collect();
    assert_eq!(guards, ["nonzero == 4"]);
}
