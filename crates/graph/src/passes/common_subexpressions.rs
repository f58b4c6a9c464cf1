//! Merges nodes that compute the same: equal operators on equal operands.

use rustc_hash::FxHashMap;

use crate::dim::Dim;
use crate::graph::{Graph, Provenance};
use crate::ids::{NodeId, SymbolId, ValueId};
use crate::op::{BinaryOp, Effect, Op};
use crate::pass::PassError;

/// What the extents that only replaced values define are now: each node that a model has twice has made symbols of its own.
fn symbols_of_replaced(graph: &Graph, replaced: &FxHashMap<ValueId, ValueId>) -> FxHashMap<SymbolId, Dim> {
    let mut symbols = FxHashMap::default();
    for (symbol, (value, axis)) in graph.symbol_definitions() {
        let target = replaced.get(&value).and_then(|&to| graph.dims(to)?.get(axis));
        if let Some(dim) = target.filter(|dim| dim.as_symbol() != Some(symbol)) {
            symbols.insert(symbol, dim.clone());
        }
    }
    symbols
}

/// Replaces every pure node by an earlier equal one of its region. Operands of commutative operators compare in
/// any order.
#[expect(
    clippy::mutable_key_type,
    reason = "the cell in a tensor caches its hash, a function of the content"
)]
pub fn common_subexpressions(graph: &mut Graph) -> Result<bool, PassError> {
    let mut changed = false;
    for region in graph.live_regions() {
        let mut first: FxHashMap<(Op, Vec<Option<ValueId>>, usize), NodeId> = FxHashMap::default();
        let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        // Nodes that stand for several, with all of those.
        let mut origins: FxHashMap<NodeId, Vec<NodeId>> = FxHashMap::default();
        for node in graph.region(region).nodes.clone() {
            let data = graph.node(node);
            if data.op.effect() != Effect::Pure || !data.op.regions().is_empty() {
                continue;
            }
            let resolve =
                |value: &Option<ValueId>| value.map(|value| *replaced.get(&value).unwrap_or(&value));
            let mut inputs: Vec<Option<ValueId>> = data.inputs.iter().map(resolve).collect();
            if matches!(data.op, Op::Binary(op) if BinaryOp::is_commutative(op)) {
                inputs.sort();
            }
            let key = (data.op.clone(), inputs, data.outputs.len());
            match first.get(&key) {
                None => {
                    first.insert(key, node);
                }
                Some(&earlier) => {
                    let pairs = graph.node(node).outputs.iter().zip(&graph.node(earlier).outputs);
                    replaced.extend(pairs.map(|(&from, &to)| (from, to)));
                    if !matches!(graph.node(earlier).op, Op::Constant(_)) {
                        origins.entry(earlier).or_insert_with(|| vec![earlier]).push(node);
                    }
                }
            }
        }
        for (earlier, nodes) in origins {
            let provenance = Provenance::merge(nodes.iter().map(|&node| &graph.node(node).provenance));
            graph.set_provenance(earlier, provenance);
        }
        if !replaced.is_empty() {
            let symbols = symbols_of_replaced(graph, &replaced);
            if !symbols.is_empty() {
                graph.replace_symbols(&symbols);
            }
            graph.replace_uses(&replaced);
            graph.retain_nodes_defining_none_of(region, &replaced);
            changed = true;
        }
    }
    Ok(changed)
}
