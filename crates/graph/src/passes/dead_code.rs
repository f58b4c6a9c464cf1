//! Removes nodes nobody uses, and captures, parameters and constants that regions do not need.

use rustc_hash::FxHashSet;

use crate::dim::Dim;
use crate::graph::Graph;
use crate::ids::{NodeId, RegionId, ValueId};
use crate::op::Effect;
use crate::pass::PassError;
use crate::passes::regions::first_capture;

/// Removes every node without effect whose results are all unused, transitively, in all regions, and captured
/// values a body does not use. A node is used too where an extent of another depends on what it alone shows.
pub fn dead_code(graph: &mut Graph) -> Result<bool, PassError> {
    let mut changed = false;
    loop {
        let mut round = false;
        let defining = defining(graph);
        for region in graph.live_regions() {
            round |= sweep(graph, region, &defining);
        }
        for node in graph.live_nodes() {
            round |= drop_captures(graph, node);
        }
        if !round {
            return Ok(changed);
        }
        changed = true;
    }
}

/// The nodes that define an extent which another node has among its attributes or the extents of its results.
fn defining(graph: &Graph) -> FxHashSet<NodeId> {
    let definitions = graph.symbol_definitions();
    let mut defining = FxHashSet::default();
    if definitions.is_empty() {
        return defining;
    }
    for node in graph.live_nodes() {
        let data = graph.node(node);
        let mut symbols = Vec::new();
        data.op.clone().map_dims(&mut |dim| {
            symbols.extend(dim.symbols());
            dim.clone()
        });
        let results = data.outputs.iter().filter_map(|&value| graph.dims(value)).flatten();
        symbols.extend(results.flat_map(Dim::symbols));
        let definers = symbols.iter().filter_map(|symbol| graph.producer(definitions.get(symbol)?.0));
        defining.extend(definers.filter(|&definer| definer != node));
    }
    defining
}

fn sweep(graph: &mut Graph, region: RegionId, defining: &FxHashSet<NodeId>) -> bool {
    let mut live: FxHashSet<ValueId> = graph.region(region).results.iter().copied().collect();
    let mut keep: FxHashSet<NodeId> = FxHashSet::default();
    for &node in graph.region(region).nodes.iter().rev() {
        let data = graph.node(node);
        let is_used = data.outputs.iter().any(|value| live.contains(value)) || defining.contains(&node);
        if is_used || data.op.effect() == Effect::Unknown {
            keep.insert(node);
            live.extend(data.inputs.iter().flatten());
        }
    }
    let before = graph.region(region).nodes.len();
    graph.retain_nodes(region, |node| keep.contains(&node));
    keep.len() < before
}

/// Drops captures (trailing operands passed on unchanged) that no region of the node uses.
fn drop_captures(graph: &mut Graph, node: NodeId) -> bool {
    let Some((first_input, first_param)) = first_capture(&graph.node(node).op) else { return false };
    let regions = graph.node(node).op.regions();
    let mut used: FxHashSet<ValueId> = FxHashSet::default();
    for &region in &regions {
        let data = graph.region(region);
        used.extend(&data.results);
        data.nodes.iter().for_each(|&inner| used.extend(graph.node(inner).inputs.iter().flatten()));
    }
    let captures = graph.node(node).inputs.len().saturating_sub(first_input);
    let mut changed = false;
    for index in (0..captures).rev() {
        let param = first_param + index;
        let is_unused = |region: &RegionId| {
            graph.region(*region).params.get(param).is_some_and(|value| !used.contains(value))
        };
        if regions.iter().all(is_unused) {
            graph.remove_capture(node, first_input + index, param);
            changed = true;
        }
    }
    changed
}
