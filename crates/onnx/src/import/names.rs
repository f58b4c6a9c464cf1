//! Names: of nodes in messages, of operators, and the order and captures that follow from the names nodes use.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_graph::order::topological_order;

use crate::proto::{GraphProto, NodeProto, TypeProto, ValueInfoProto};

/// How messages call a node: its name, or its first output, or its position.
pub(crate) fn label(node: &NodeProto, index: usize) -> String {
    let output = node.output.iter().find(|name| !name.is_empty());
    match (node.name(), output) {
        ("", Some(output)) => output.clone(),
        ("", None) => format!("{}#{index}", node.op_type()),
        (name, _) => name.to_owned(),
    }
}

/// The domain of a node's operator; the default one has two names, of which this is the empty one.
pub(crate) fn domain(node: &NodeProto) -> &str {
    match node.domain() {
        "ai.onnx" => "",
        domain => domain,
    }
}

/// What identifies an operator or function.
pub(crate) fn operator_key(domain: &str, name: &str, overload: &str) -> (String, String, String) {
    let domain = if domain == "ai.onnx" { "" } else { domain };
    (domain.to_owned(), name.to_owned(), overload.to_owned())
}

/// The types declared for values, by name.
pub(crate) fn declared_types<'a>(
    infos: impl IntoIterator<Item = &'a ValueInfoProto>,
) -> FxHashMap<&'a str, &'a TypeProto> {
    infos.into_iter().filter_map(|info| Some((info.name(), info.r#type.as_ref()?))).collect()
}

/// The subgraphs among a node's attributes.
fn subgraphs(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
}

/// Calls `visit` with every name that a node uses: its inputs, and what its subgraphs use from outside.
pub(crate) fn for_each_use(node: &NodeProto, visit: &mut dyn FnMut(&str)) {
    node.input.iter().filter(|name| !name.is_empty()).for_each(|name| visit(name));
    for graph in subgraphs(node) {
        captures(graph).iter().for_each(|name| visit(name));
    }
}

/// The names a subgraph uses but does not define, in alphabetical order.
pub(crate) fn captures(graph: &GraphProto) -> BTreeSet<String> {
    let mut defined: FxHashSet<&str> = FxHashSet::default();
    defined.extend(graph.input.iter().map(|input| input.name()));
    defined.extend(graph.initializer.iter().map(|tensor| tensor.name()));
    defined.extend(graph.sparse_initializer.iter().filter_map(|s| Some(s.values.as_ref()?.name())));
    defined.extend(graph.node.iter().flat_map(|node| node.output.iter().map(String::as_str)));
    let mut captured = BTreeSet::new();
    let mut visit = |name: &str| {
        if !defined.contains(name) {
            captured.insert(name.to_owned());
        }
    };
    graph.node.iter().for_each(|node| for_each_use(node, &mut visit));
    graph.output.iter().for_each(|output| visit(output.name()));
    captured
}

/// What [`sort`] finds.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// The nodes that can run, in topological order; the present order where it is one.
    pub(crate) order: Vec<usize>,
    /// Names that two nodes define.
    pub(crate) duplicates: Vec<String>,
    /// Names that nothing defines, with the first node that uses each.
    pub(crate) dangling: Vec<(String, usize)>,
    /// Nodes that depend on one another.
    pub(crate) cycles: Vec<Vec<usize>>,
    /// Nodes on or behind a cycle.
    pub(crate) blocked: Vec<usize>,
}

/// Sorts nodes by the names they define and use; `known` answers for names from outside.
pub(crate) fn sort(nodes: &[NodeProto], known: impl Fn(&str) -> bool) -> Sorted {
    let mut sorted = Sorted::default();
    let mut producers: FxHashMap<&str, usize> = FxHashMap::default();
    for (index, node) in nodes.iter().enumerate() {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            if known(name) || producers.insert(name, index).is_some() {
                sorted.duplicates.push(name.clone());
            }
        }
    }
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut undefined: FxHashSet<String> = FxHashSet::default();
    for (index, node) in nodes.iter().enumerate() {
        for_each_use(node, &mut |name| {
            if known(name) {
            } else if let Some(&producer) = producers.get(name) {
                users[producer].push(index);
            } else if undefined.insert(name.to_owned()) {
                sorted.dangling.push((name.to_owned(), index));
            }
        });
    }
    let order = topological_order(&users, |index| index);
    (sorted.order, sorted.cycles, sorted.blocked) = (order.sorted, order.cycles, order.blocked);
    sorted
}
