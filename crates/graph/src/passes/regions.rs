//! Specialises bodies of control flow: constants move into them, branches that are always taken replace their `If`.
//!
//! Regions are closed, so weights reach a body as captures; inside they must be constants for folding, packing
//! and shape arithmetic to see them. (Tensors are shared, a constant in two regions is stored once.)

use rustc_hash::FxHashMap;

use crate::graph::{Graph, Provenance};
use crate::guard::Guard;
use crate::ids::{NodeId, RegionId, ValueId};
use crate::op::{FromDimsAttrs, Op};
use crate::pass::PassError;
use crate::symbol::SymbolKind;
use crate::types::Type;

/// Specialises every region, outer ones first.
pub fn regions(graph: &mut Graph) -> Result<bool, PassError> {
    let mut changed = false;
    for region in graph.live_regions() {
        changed |= inline_branches(graph, region);
        for node in graph.region(region).nodes.clone() {
            changed |= sink_constants(graph, node);
        }
    }
    Ok(changed)
}

/// First captured operand and first captured parameter of a node with regions.
pub(crate) fn first_capture(op: &Op) -> Option<(usize, usize)> {
    match op {
        Op::If(_) => Some((1, 0)),
        Op::Loop(attrs) => Some((2 + attrs.carried, 2 + attrs.carried)),
        Op::Scan(attrs) => {
            let first = attrs.states + attrs.input_axes.len();
            Some((first, first))
        }
        _ => None,
    }
}

/// Replaces captures of constants, and of extents that the inputs determine, by copies inside the regions.
fn sink_constants(graph: &mut Graph, node: NodeId) -> bool {
    let Some((first_input, first_param)) = first_capture(&graph.node(node).op) else { return false };
    let mut changed = false;
    for input in (first_input..graph.node(node).inputs.len()).rev() {
        let Some(source) = graph.node(node).inputs[input].and_then(|value| graph.producer(value)) else {
            continue;
        };
        let op = graph.node(source).op.clone();
        if !matches!(op, Op::Constant(_)) && !is_of_inputs(graph, &op) {
            continue;
        }
        let param = first_param + input - first_input;
        for region in op_regions(graph, node) {
            let Some(&value) = graph.region(region).params.get(param) else { continue };
            let copy = prepend(graph, region, op.clone(), source);
            graph.replace_uses_in(region, &FxHashMap::from_iter([(value, copy)]));
        }
        graph.remove_capture(node, input, param);
        changed = true;
    }
    changed
}

fn op_regions(graph: &Graph, node: NodeId) -> Vec<RegionId> {
    graph.node(node).op.regions()
}

/// Whether an operator gives extents that are the same everywhere: functions of the graph's inputs.
fn is_of_inputs(graph: &Graph, op: &Op) -> bool {
    match op {
        Op::FromDims(FromDimsAttrs { values, .. }) => values
            .iter()
            .flat_map(crate::Dim::symbols)
            .all(|symbol| graph.symbols[symbol].kind == SymbolKind::Input),
        _ => false,
    }
}

/// Copies a node without operands to the front of a region.
fn prepend(graph: &mut Graph, region: RegionId, op: Op, source: NodeId) -> ValueId {
    let data = graph.node(source);
    let types: Vec<Type> = data.outputs.iter().map(|&value| graph.ty(value).clone()).collect();
    let provenance: Provenance = data.provenance.clone();
    let original = data.outputs[0];
    let rest = graph.take_nodes(region);
    let node = graph.append_typed(region, op, Vec::new(), types, provenance);
    rest.into_iter().for_each(|node| graph.push_node(region, node));
    let value = graph.node(node).outputs[0];
    let elements = graph.shape_value(original).map(Into::into);
    graph.set_shape_value(value, elements);
    value
}

/// Puts the nodes of the branch taken in place of an `If` with a constant condition.
fn inline_branches(graph: &mut Graph, region: RegionId) -> bool {
    let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
    for node in graph.take_nodes(region) {
        let taken = match (&graph.node(node).op, graph.node(node).input(0)) {
            (Op::If(attrs), Some(condition)) => graph
                .constant(condition)
                .and_then(|tensor| tensor.as_splat())
                .map(|value| if value != 0.0 { attrs.then_region } else { attrs.else_region }),
            _ => None,
        };
        let Some(branch) = taken else {
            graph.push_node(region, node);
            continue;
        };
        let mut map: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        let captures = graph.node(node).inputs[1..].to_vec();
        let params = graph.region(branch).params.clone();
        map.extend(params.into_iter().zip(captures.into_iter().flatten()));
        for inner in graph.region(branch).nodes.clone() {
            let data = graph.node(inner).clone();
            let inputs = data
                .inputs
                .iter()
                .map(|value| value.map(|value| *map.get(&value).unwrap_or(&value)))
                .collect();
            let types = data.outputs.iter().map(|&value| graph.ty(value).clone()).collect();
            let copy = graph.append_typed(region, data.op, inputs, types, data.provenance);
            for (from, to) in data.outputs.into_iter().zip(graph.node(copy).outputs.clone()) {
                let elements = graph.shape_value(from).map(Into::into);
                graph.set_shape_value(to, elements);
                map.insert(from, to);
            }
        }
        graph
            .guards
            .iter_mut()
            .filter(|guard| guard.region == branch)
            .for_each(|guard| guard.region = region);
        Guard::merge(&mut graph.guards);
        let results = graph.region(branch).results.clone();
        for (from, to) in graph.node(node).outputs.clone().into_iter().zip(results) {
            replaced.insert(from, *map.get(&to).unwrap_or(&to));
        }
    }
    graph.replace_uses_in(region, &replaced);
    !replaced.is_empty()
}
