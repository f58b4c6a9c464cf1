//! Large graphs: what passes do grows with nodes and edges, and ends. Steps are counted, time is not measured.

use tilewright_dtype::DType;
use tilewright_graph::dim::Dim;
use tilewright_graph::op::{AxisAttrs, BinaryOp, UnaryOp};
use tilewright_graph::passes::fuse::{FusionPlan, MAX_FOLLOWED, MAX_OPERATIONS, fuse, fuse_counting};
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

/// `n` readers of one value, each of which adds a value of its own.
fn fan(n: usize) -> Graph {
    let mut graph = Graph::new("fan");
    let (x, y) = (input(&mut graph, "x"), input(&mut graph, "y"));
    let first = append(&mut graph, Op::Unary(UnaryOp::Relu), &[x]);
    for reader in 0..n {
        let view = append(&mut graph, Op::reshape(vec![Dim::new(64)]), &[y]);
        let sum = append(&mut graph, Op::Binary(BinaryOp::Add), &[first, view]);
        graph.add_output(&format!("y{reader}"), sum);
    }
    graph
}

/// `n` times a value that is read twice, once through a view, and both joined.
fn diamonds(n: usize) -> Graph {
    let mut graph = Graph::new("diamonds");
    let mut x = input(&mut graph, "x");
    for _ in 0..n {
        let left = append(&mut graph, Op::Unary(UnaryOp::Relu), &[x]);
        let right = append(&mut graph, Op::reshape(vec![Dim::new(64)]), &[left]);
        x = append(&mut graph, Op::Binary(BinaryOp::Add), &[left, right]);
    }
    graph.add_output("x", x);
    graph
}

/// Two chains of `n` nodes, each of which reads the nodes before it in both.
fn ladder(n: usize) -> Graph {
    let mut graph = Graph::new("ladder");
    let (mut a, mut b) = (input(&mut graph, "a"), input(&mut graph, "b"));
    for _ in 0..n {
        let next = append(&mut graph, Op::Binary(BinaryOp::Add), &[a, b]);
        let view = append(&mut graph, Op::reshape(vec![Dim::new(64)]), &[a]);
        (a, b) = (next, append(&mut graph, Op::Binary(BinaryOp::Mul), &[view, b]));
    }
    graph.add_output("a", a);
    graph.add_output("b", b);
    graph
}

/// `n` nodes that each read a value from the beginning and the end of a long way from it, which they are no part of.
fn detour(n: usize) -> Graph {
    let mut graph = Graph::new("detour");
    let x = input(&mut graph, "x");
    let first = append(&mut graph, Op::Unary(UnaryOp::Relu), &[x]);
    let mut way = first;
    for reader in 0..n {
        way = append(&mut graph, Op::reshape(vec![Dim::new(64)]), &[way]);
        let sum = append(&mut graph, Op::Binary(BinaryOp::Add), &[way, first]);
        graph.add_output(&format!("y{reader}"), sum);
    }
    graph
}

fn followed(graph: &Graph) -> usize {
    fuse_counting(graph, graph.main()).1
}

/// Searches look at a few groups for each node.
#[test]
fn fusion_is_linear_in_nodes() {
    let families =
        [("chain", chain as fn(usize) -> Graph, 16_000), ("long way", long_way, 8_000), ("fan", fan, 8_000)];
    let more = [("diamonds", diamonds as fn(usize) -> Graph, 5_000), ("ladder", ladder, 5_000)];
    for (name, family, n) in families.into_iter().chain(more) {
        let (half, whole) = (followed(&family(n / 2)), followed(&family(n)));
        assert!(whole <= 4 * n && whole <= 2 * half + 8, "{name}: {half} and {whole} groups of {n} nodes");
    }
}

/// Where a search would take too long, the nodes stay apart.
#[test]
fn searches_for_cycles_end() {
    let n = MAX_FOLLOWED + 500;
    let (short, long) = (detour(n - 100), detour(n));
    assert!(followed(&long) > MAX_FOLLOWED * MAX_FOLLOWED / 2, "the budget is not reached");
    assert_eq!(followed(&long) - followed(&short), 100 * MAX_FOLLOWED);
    assert_eq!(sizes(&fuse(&long, long.main())), vec![1; 2 * n + 1]);
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
