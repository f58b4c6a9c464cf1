//! What running a graph takes: operations and memory, before fusion.

use std::collections::HashMap;

use tilewright_graph::{Dim, Graph, Op, ValueId};

/// Totals over a graph. Open extents count as 1; the bodies of loops and branches count once.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Nodes other than constants.
    pub nodes: usize,
    /// Arithmetic operations; a multiplication with an addition is two.
    pub flops: f64,
    /// Bytes of constants.
    pub weight_bytes: u64,
    /// Most bytes of intermediate values that live at the same time, nodes run one after another.
    pub activation_bytes: u64,
    /// Names of the open extents of the inputs.
    pub open: Vec<String>,
}

/// The cost of a graph.
pub fn of(graph: &Graph) -> Cost {
    let mut cost =
        Cost { nodes: 0, flops: 0.0, weight_bytes: 0, activation_bytes: 0, open: open_extents(graph) };
    for id in graph.live_nodes() {
        let node = graph.node(id);
        match &node.op {
            Op::Constant(tensor) => {
                cost.weight_bytes += tensor.bytes().map_or(0, |bytes| bytes.as_slice().len() as u64);
            }
            _ => {
                cost.nodes += 1;
                let flops = tilewright_graph::cost::flops(graph, node);
                cost.flops += flops.map_or(0.0, |flops| at_ones(&flops));
            }
        }
    }
    cost.activation_bytes = peak(graph);
    cost
}

fn open_extents(graph: &Graph) -> Vec<String> {
    let mut names = Vec::new();
    for dim in graph.inputs().iter().filter_map(|&value| graph.dims(value)).flatten() {
        for symbol in dim.symbols() {
            let name = &graph.symbols[symbol].name;
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names
}

/// The value of an expression where every open extent is 1.
fn at_ones(dim: &Dim) -> f64 {
    dim.evaluate(&|_| Some(1)).unwrap_or(1).max(0) as f64
}

fn elements(graph: &Graph, value: ValueId) -> f64 {
    graph.dims(value).map_or(0.0, |dims| dims.iter().map(at_ones).product())
}

/// The peak of live intermediate values of the main graph, in the order of its nodes.
fn peak(graph: &Graph) -> u64 {
    let main = graph.region(graph.main());
    let mut last_use: HashMap<ValueId, usize> = HashMap::new();
    for (at, &id) in main.nodes.iter().enumerate() {
        for &value in graph.node(id).inputs.iter().flatten() {
            last_use.insert(value, at);
        }
    }
    for &value in &main.results {
        last_use.insert(value, main.nodes.len());
    }
    let bytes = |value: ValueId| {
        let element = graph.tensor_type(value).map_or(0, |ty| ty.dtype.bytes());
        (elements(graph, value) * element as f64) as u64
    };
    let (mut live, mut peak) = (0u64, 0u64);
    let mut ends: HashMap<usize, u64> = HashMap::new();
    for (at, &id) in main.nodes.iter().enumerate() {
        let node = graph.node(id);
        if matches!(node.op, Op::Constant(_)) {
            continue;
        }
        for &value in &node.outputs {
            let size = bytes(value);
            live += size;
            *ends.entry(last_use.get(&value).copied().unwrap_or(at)).or_default() += size;
        }
        peak = peak.max(live);
        live -= ends.remove(&at).unwrap_or(0);
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(nodes: &str) -> Cost {
        let text = format!("graph g {{\n  sym n input 0..*:1\n  region0{nodes}\n}}\n");
        of(&tilewright_graph::text::parse(&text).unwrap_or_else(|error| panic!("{error}")))
    }

    #[test]
    fn products_count_two_and_other_elements_one() {
        let cost = cost(
            "(%x: f32[n, 3], %w: f32[3, 4]) {
    %half: f32[] = Constant[f32[]{0.5}]()
    %y: f32[n, 4] = MatMul[transpose_a=false, transpose_b=false](%x, %w)
    %z: f32[n, 4] = Binary[mul](%y, %half)
    %t: f32[4, n] = Transpose[perm=[1, 0]](%z)
    return %t as t
  }",
        );
        assert_eq!(cost.flops, 24.0 + 4.0);
        assert_eq!((cost.nodes, cost.weight_bytes), (3, 4));
        assert_eq!(cost.activation_bytes, 32);
        assert_eq!(cost.open, ["n"]);
    }

    #[test]
    fn values_that_are_used_late_live_long() {
        let cost = cost(
            "(%x: f32[4]) {
    %a: f32[4] = Unary[relu](%x)
    %b: f32[4] = Unary[exp](%a)
    %c: f32[4] = Unary[neg](%b)
    %d: f32[4] = Binary[add](%a, %c)
    return %d as d
  }",
        );
        assert_eq!(cost.activation_bytes, 3 * 16);
    }
}
