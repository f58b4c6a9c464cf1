//! What nodes cost: arithmetic operations and memory traffic, as expressions over the graph's symbols.
//!
//! Counts follow from the definition of an operator, not from the algorithm that computes it, so they tell how fast a
//! kernel is in terms of what was asked for. A multiplication with an addition counts two; an elementary
//! function of one element counts one.

use crate::dim::Dim;
use crate::graph::{Graph, Node};
use crate::ids::ValueId;
use crate::op::{FusionClass, Op};

/// Elements of a tensor; `None` where the rank is not known, or it is no tensor.
pub fn elements(graph: &Graph, value: ValueId) -> Option<Dim> {
    graph.dims(value).map(Dim::product)
}

/// Arithmetic operations of a node on operands of the extents at hand. The bodies of control flow are not counted:
/// their nodes are. `None` where a rank that matters is not known.
pub fn flops(graph: &Graph, node: &Node) -> Option<Dim> {
    let output = || results(graph, node);
    let operand = |position: usize| elements(graph, node.input(position)?);
    let dims = |position: usize| graph.dims(node.input(position)?);
    let per_channel = |position: usize| dims(position).map(|dims| Dim::product(dims.iter().skip(1)));
    Some(match &node.op {
        Op::MatMul(attrs) => {
            let back = usize::from(attrs.transpose_a && dims(0)?.len() > 1);
            output()? * from_end(dims(0)?, back) * 2
        }
        Op::MatMulInteger => output()? * from_end(dims(0)?, 0) * 2,
        Op::Gemm(attrs) => output()? * from_end(dims(0)?, usize::from(attrs.transpose_a)) * 2,
        Op::Conv(_) | Op::ConvInteger(_) => output()? * per_channel(1)? * 2,
        Op::ConvTranspose(_) => operand(0)? * per_channel(1)? * 2,
        Op::Pool(attrs) => output()? * attrs.kernel.iter().product::<usize>() as i64,
        Op::Attention(_) => {
            let result = elements(graph, *node.outputs.first()?)?;
            (operand(0)? + result) * from_end(dims(1)?, 1) * 2
        }
        Op::Lstm(_) | Op::Gru(_) | Op::Rnn(_) => {
            Dim::product(dims(0)?.iter().take(2)) * (operand(1)? + operand(2)?) * 2
        }
        op => match op.fusion_class() {
            FusionClass::Elementwise | FusionClass::ComplexOut => output()?,
            FusionClass::Reduction
            | FusionClass::Window
            | FusionClass::Normalisation
            | FusionClass::Composite => operand(0)?,
            FusionClass::View
            | FusionClass::Movement
            | FusionClass::Injective
            | FusionClass::Parts
            | FusionClass::Opaque => Dim::ZERO,
        },
    })
}

/// Elements that a node must read of an operand: at most one an element of the result where elements are only
/// moved (a gather reads what it gathers, not the table), else all.
pub fn elements_read(graph: &Graph, node: &Node, position: usize) -> Option<Dim> {
    let all = elements(graph, node.input(position)?)?;
    match node.op.fusion_class().moves_elements() {
        true => Some(all.minimum(&results(graph, node)?)),
        false => Some(all),
    }
}

/// Elements of all results of a node.
fn results(graph: &Graph, node: &Node) -> Option<Dim> {
    node.outputs.iter().try_fold(Dim::ZERO, |sum, &value| Some(sum + elements(graph, value)?))
}

/// The extent of the last axis but `back`; 1 where there is none.
fn from_end(dims: &[Dim], back: usize) -> Dim {
    dims.iter().rev().nth(back).cloned().unwrap_or(Dim::ONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(nodes: &str, name: &str, expect: (&str, &str)) {
        let text = format!("graph g {{\n  sym n input 0..*:1\n  region0{nodes}\n}}\n");
        let graph = crate::text::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let ids = graph.live_nodes();
        let node = ids.into_iter().map(|id| graph.node(id)).find(|node| node.op.name() == name).unwrap();
        let show = |dim: Option<Dim>| dim.unwrap().display(&graph.symbols).to_string();
        let read = show(elements_read(&graph, node, 0));
        assert_eq!((&*show(flops(&graph, node)), &*read), expect, "{nodes}");
    }

    #[test]
    fn a_product_counts_two_for_each_term() {
        let nodes = "(%x: f32[n, 3], %w: f32[3, 4]) {
    %y: f32[n, 4] = MatMul[transpose_a=false, transpose_b=false](%x, %w)
    return %y as y
  }";
        check(nodes, "MatMul", ("24*n", "3*n"));
    }

    #[test]
    fn moved_elements_are_read_once_each() {
        let nodes = "(%x: f32[1000, 8], %i: i64[5]) {
    %y: f32[5, 8] = Gather[axis=0](%x, %i)
    return %y as y
  }";
        check(nodes, "Gather", ("0", "40"));
    }
}
