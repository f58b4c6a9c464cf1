//! Removes nodes nobody uses, and captures, parameters and constants that regions do not need.

use rustc_hash::FxHashSet;

use crate::graph::Graph;
use crate::ids::{NodeId, RegionId, ValueId};
use crate::op::Effect;
use crate::pass::PassError;
use crate::passes::regions::first_capture;

/// Removes every node without effect whose results are all unused, transitively, in all regions, and captured
/// values a body does not use.
pub fn dead_code(graph: &mut Graph) -> Result<bool, PassError> {
    let mut changed = false;
    loop {
        let mut round = false;
        for region in graph.live_regions() {
            round |= sweep(graph, region);
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

fn sweep(graph: &mut Graph, region: RegionId) -> bool {
    let mut live: FxHashSet<ValueId> = graph.region(region).results.iter().copied().collect();
    let mut keep: FxHashSet<NodeId> = FxHashSet::default();
    for &node in graph.region(region).nodes.iter().rev() {
        let data = graph.node(node);
        if data.op.effect() == Effect::Unknown || data.outputs.iter().any(|value| live.contains(value)) {
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
