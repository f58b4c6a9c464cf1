//! What a step is asked to compute, for profiles: operators, operations and bytes.

use tilewright_dtype::DType;
use tilewright_graph::dim::Dim;
use tilewright_graph::{Graph, NodeId, Op, ValueId, cost};

use crate::sizes::element_bytes;

/// What one step computes, by the definitions of its operators.
#[derive(Clone, Debug)]
pub struct Work {
    /// The operator that decides the schedule, then the others in order.
    pub operators: Vec<String>,
    /// Arithmetic operations of all nodes; `None` where extents are not known to the graph.
    pub flops: Option<Dim>,
    /// Bytes that must be read and written when what is between the nodes stays in registers.
    pub bytes: Option<Dim>,
}

impl Work {
    /// The work of nodes that are computed together: `inputs` come from outside, `outputs` go there.
    pub fn of(
        graph: &Graph,
        anchor: NodeId,
        nodes: &[NodeId],
        inputs: &[ValueId],
        outputs: &[ValueId],
    ) -> Work {
        let others = nodes.iter().filter(|&&node| node != anchor);
        let operators = std::iter::once(&anchor).chain(others).map(|&node| label(&graph.node(node).op));
        let flops = nodes.iter().map(|&node| cost::flops(graph, graph.node(node)));
        let reads = inputs.iter().map(|&value| read(graph, nodes, value));
        let writes = outputs.iter().map(|&value| Some(cost::elements(graph, value)? * width(graph, value)));
        Work { operators: operators.collect(), flops: sum(flops), bytes: sum(reads.chain(writes)) }
    }
}

fn sum(mut dims: impl Iterator<Item = Option<Dim>>) -> Option<Dim> {
    dims.try_fold(Dim::ZERO, |sum, dim| Some(sum + dim?))
}

/// Bytes read of a value from outside: as many as the node does that reads most of it.
fn read(graph: &Graph, nodes: &[NodeId], value: ValueId) -> Option<Dim> {
    let mut most = Dim::ZERO;
    for node in nodes.iter().map(|&node| graph.node(node)) {
        for (position, _) in node.inputs.iter().enumerate().filter(|(_, input)| **input == Some(value)) {
            most = most.maximum(&cost::elements_read(graph, node, position)?);
        }
    }
    Some(most * width(graph, value))
}

/// Bytes of one element.
fn width(graph: &Graph, value: ValueId) -> i64 {
    element_bytes(graph.tensor_type(value).map_or(DType::Bool, |ty| ty.dtype)) as i64
}

/// The operator's name; of scalar functions, that of the function.
fn label(op: &Op) -> String {
    match op {
        Op::Unary(function) => function.to_string(),
        Op::Binary(function) => function.to_string(),
        op => op.name().to_string(),
    }
}
