//! Parts of a graph left out, so that the rest can be looked at by itself.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Graph, Use};
use crate::ids::{NodeId, RegionId, ValueId};

/// Leaves nodes out of a graph. Their results become inputs of the same types, and what they alone use becomes an output, so that
/// nothing else goes with them. A value that is left out takes along the node that makes it and those that use it. Of control
/// flow, the outermost node is left out for anything inside. Whether there was anything left to cut.
///
/// ```text
/// y = relu(x); z = odd(y); w = relu(z)        cut {odd}:  inputs x, z; y = relu(x); w = relu(z); outputs w, y
/// ```
pub fn cut(graph: &mut Graph, nodes: &[NodeId], values: &[ValueId]) -> bool {
    let main = graph.main();
    let mut left_out: FxHashSet<NodeId> = FxHashSet::default();
    let mut gone: FxHashSet<ValueId> = FxHashSet::default();
    left_out.extend(nodes.iter().filter_map(|&node| outermost(graph, graph.node(node).region, Some(node))));
    let uses = graph.uses();
    for &value in values {
        let region = graph.region_of(value);
        if region != main {
            left_out.extend(outermost(graph, region, None));
            continue;
        }
        gone.insert(value);
        left_out.extend(graph.producer(value));
        left_out.extend(uses[value].iter().filter_map(|one| match one {
            Use::Input(node, _) => Some(*node),
            Use::Result(..) => None,
        }));
    }
    let present: Vec<NodeId> =
        graph.region(main).nodes.iter().copied().filter(|node| left_out.contains(node)).collect();
    let has_input = graph.inputs().iter().any(|value| gone.contains(value));
    graph.drop_outputs(|value, producer| {
        gone.contains(&value) || producer.is_some_and(|node| left_out.contains(&node))
    });
    graph.drop_inputs(&gone);
    let mut outputs: FxHashSet<ValueId> = graph.outputs().iter().copied().collect();
    let mut replacements: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for &node in &present {
        let data = graph.node(node).clone();
        for value in data.inputs.into_iter().flatten() {
            let producer = graph.producer(value);
            let is_loose = producer.is_some_and(|made_by| !left_out.contains(&made_by));
            if is_loose && graph.constant(value).is_none() && outputs.insert(value) {
                graph.add_output(&value.to_string(), value);
            }
        }
        for value in data.outputs {
            let is_used = uses[value].iter().any(|one| match one {
                Use::Input(node, _) => !left_out.contains(node),
                Use::Result(..) => false,
            });
            if is_used && !gone.contains(&value) {
                let elements = graph.shape_value(value).map(std::sync::Arc::from);
                let input = graph.add_input(&value.to_string(), graph.ty(value).clone());
                graph.set_shape_value(input, elements);
                replacements.insert(value, input);
            }
        }
    }
    graph.replace_uses_in(main, &replacements);
    graph.retain_nodes(main, |node| !left_out.contains(&node));
    !present.is_empty() || has_input
}

/// The node of the main region that holds a region; of the main region itself, `node`.
fn outermost(graph: &Graph, region: RegionId, node: Option<NodeId>) -> Option<NodeId> {
    let (mut region, mut node) = (region, node);
    while region != graph.main() {
        let owner = graph.region(region).owner?;
        (region, node) = (graph.node(owner).region, Some(owner));
    }
    node
}
