//! What the reference refuses.

use tilewright_graph::{Graph, ValueId};
use tilewright_lower::host::is_host_value;
use tilewright_lower::{Gap, LowerError, Program, Step};

use crate::error::CompileError;

/// Refuses programs with values that are no tensors of numbers, for which the interpreter has no place.
pub(super) fn check(graph: &Graph, program: &Program) -> Result<(), CompileError> {
    let show = |&value: &ValueId| graph.ty(value).display(&graph.symbols).to_string();
    let reason = || "the interpreter has only tensors of numbers".to_string();
    let mut gaps = Vec::new();
    let outside = graph.inputs().iter().map(|value| ("Input", value));
    for (op, value) in outside.chain(graph.outputs().iter().map(|value| ("Output", value))) {
        if is_host_value(graph, *value) {
            let nodes = graph.value(*value).name.iter().map(ToString::to_string).collect();
            gaps.push(Gap { op, nodes, operands: vec![show(value)], reason: reason() });
        }
    }
    for step in program.regions.values().flatten() {
        let Step::Host { node, .. } = step else { continue };
        let data = graph.node(*node);
        let mut values = data.inputs.iter().flatten().chain(&data.outputs);
        if values.any(|&value| is_host_value(graph, value)) {
            let nodes = data.provenance.names().map(str::to_string).collect();
            let operands = data.inputs.iter().flatten().map(show).collect();
            gaps.push(Gap { op: data.op.name(), nodes, operands, reason: reason() });
        }
    }
    if gaps.is_empty() { Ok(()) } else { Err(LowerError::Unsupported(gaps).into()) }
}
