//! Inputs and outputs of graphs, as their user sees them.

use tilewright_graph::{Dim, Graph, Type};
use tilewright_run::{Extent, Spec};
use tilewright_runtime::plan::Nesting;

/// The inputs of a graph, in order.
pub fn inputs(graph: &Graph) -> Vec<Spec> {
    let name = |value| graph.value(value).name.as_deref().unwrap_or_default().to_string();
    graph.inputs().iter().map(|&value| spec(graph, graph.ty(value), name(value))).collect()
}

/// The outputs of a graph, in order.
pub fn outputs(graph: &Graph) -> Vec<Spec> {
    let names = graph.region(graph.main()).result_names.iter().cloned();
    graph.outputs().iter().zip(names).map(|(&value, name)| spec(graph, graph.ty(value), name)).collect()
}

fn spec(graph: &Graph, mut ty: &Type, name: String) -> Spec {
    let mut nesting = Vec::new();
    let tensor = loop {
        let inner = match ty {
            Type::Tensor(tensor) => break tensor,
            Type::Sequence(inner) => (Nesting::Sequence, inner),
            Type::Optional(inner) => (Nesting::Optional, inner),
        };
        nesting.push(inner.0);
        ty = inner.1;
    };
    let extent = |dim: &Dim| match dim.as_const() {
        Some(n) => Extent::Fixed(n),
        None => Extent::Open(dim.display(&graph.symbols).to_string()),
    };
    let dims = tensor.shape.dims().map(|dims| dims.iter().map(extent).collect());
    Spec { name, nesting, dtype: tensor.dtype, dims }
}
