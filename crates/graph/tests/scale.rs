//! Large graphs: what passes do grows with nodes and edges, and ends. Steps are counted, time is not measured.

use tilewright_dtype::DType;
use tilewright_graph::dim::Dim;
use tilewright_graph::op::{AxisAttrs, BinaryOp, UnaryOp};
use tilewright_graph::passes::fuse::{FusionPlan, MAX_OPERATIONS, fuse, fuse_counting};
use tilewright_graph::symbol::SymbolKind;
use tilewright_graph::types::{TensorType, Type};
use tilewright_graph::{Graph, Op, Provenance, ValueId, infer};

fn append(graph: &mut Graph, op: Op, inputs: &[ValueId]) -> ValueId {
    let region = graph.main();
    let inputs = inputs.iter().map(|&value| Some(value)).collect();
    let node = infer::append(graph, region, op, inputs, Provenance::default()).unwrap();
    graph.node(node).outputs[0]
}

fn input(graph: &mut Graph, name: &str) -> ValueId {
    graph.add_input(name, Type::Tensor(TensorType::new(DType::F32, vec![Dim::new(64)])))
}

/// `n` elementwise nodes, one behind the other.
fn chain(n: usize) -> Graph {
    let mut graph = Graph::new("chain");
    let (mut x, y) = (input(&mut graph, "x"), input(&mut graph, "y"));
    for _ in 0..n {
        x = append(&mut graph, Op::Binary(BinaryOp::Add), &[x, y]);
    }
    graph.add_output("x", x);
    graph
}

/// `n` nodes that each read a value from the beginning and the result of the one before.
fn long_way(n: usize) -> Graph {
    let mut graph = Graph::new("long_way");
    let start = input(&mut graph, "x");
    let first = append(&mut graph, Op::Unary(UnaryOp::Relu), &[start]);
    let mut x = first;
    for _ in 0..n {
        let view = append(&mut graph, Op::reshape(vec![Dim::new(64)]), &[x]);
        x = append(&mut graph, Op::Binary(BinaryOp::Add), &[view, first]);
    }
    graph.add_output("x", x);
    graph
}

fn sizes(plan: &FusionPlan) -> Vec<usize> {
    plan.groups.iter().map(|group| group.nodes.len()).collect()
}

#[test]
fn groups_end_where_going_on_saves_little() {
    let sizes_of = |n| sizes(&fuse(&chain(n), chain(n).main()));
    assert_eq!(sizes_of(MAX_OPERATIONS as usize), [MAX_OPERATIONS as usize]);
    let cut = sizes_of(10 * MAX_OPERATIONS as usize);
    assert_eq!(cut, vec![MAX_OPERATIONS as usize; 10]);
}

#[test]
fn fusion_follows_as_many_uses_as_there_are() {
    let followed = |n| {
        let graph = chain(n);
        fuse_counting(&graph, graph.main()).1
    };
    // Each whole group but the first takes as much as any other.
    let [first, half, all] = [1, 31, 61].map(|groups| followed(groups * MAX_OPERATIONS as usize));
    assert_eq!(all - half, half - first);
    // Every node would like to join the first one, and a cycle through all others is in the way.
    let followed = |n| {
        let graph = long_way(n);
        fuse_counting(&graph, graph.main()).1
    };
    let (half, whole) = (followed(8_000), followed(16_000));
    assert!(half > 8_000 * 1_000, "the case shows nothing: {half}");
    assert!(whole - half <= 8_000 * 4_100, "{half} and {whole}");
}

/// Slices of concatenations of slices: written out, each extent would be twice as long as the one before.
#[test]
fn extents_that_get_too_long_get_a_name_of_their_own() {
    let mut graph = Graph::new("slices");
    let n = graph.symbols.intern("n", SymbolKind::Input);
    let ty = TensorType::new(DType::F32, vec![Dim::symbol(n)]);
    let first = graph.add_input("x", Type::Tensor(ty));
    let vector = |graph: &mut Graph, n: i64| {
        let region = graph.main();
        let tensor = tilewright_graph::Tensor::from_elements(&[1], &[n]).unwrap();
        graph.append_constant(region, tensor, Provenance::default())
    };
    let (from, to) = (vector(&mut graph, 1), vector(&mut graph, -1));
    let mut x = first;
    for _ in 0..200 {
        let joined = append(&mut graph, Op::Concat(AxisAttrs { axis: 0 }), &[x, first]);
        x = append(&mut graph, Op::SliceDynamic, &[joined, from, to]);
        assert!(graph.dims(x).unwrap()[0].n_leaves() <= 64);
    }
}

/// Minima against maxima: either side may be taken apart first, in as many orders as there are paths on a grid.
#[test]
fn comparisons_of_extents_end() {
    let mut graph = Graph::new("symbols");
    let mut symbol = |i: usize| Dim::symbol(graph.symbols.intern(&format!("s{i}"), SymbolKind::Input));
    let low = (0..40).map(&mut symbol).reduce(|a, b| (a + 1).minimum(&(b * 2))).unwrap();
    let high = (40..80).map(&mut symbol).reduce(|a, b| (a + 1).maximum(&(b * 2))).unwrap();
    assert!(!low.is_at_most(&high), "nothing says so");
    assert!(low.minimum(&low) == low);
}
