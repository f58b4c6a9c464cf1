//! What the reference refuses.

use tilewright_graph::Graph;
use tilewright_lower::host::is_host_value;
use tilewright_lower::{Gap, LowerError, Program, Step};

use crate::error::CompileError;
use crate::gap::Stage;

/// Refuses programs with values that are no tensors of numbers, for which the interpreter has no place.
pub(super) fn check(graph: &Graph, program: &Program) -> Result<(), CompileError> {
    let reason = "the interpreter has only tensors of numbers";
    let mut gaps = Vec::new();
    for &value in graph.inputs().iter().chain(graph.outputs()) {
        if is_host_value(graph, value) {
            gaps.push(Gap::of_value(graph, value, reason));
        }
    }
    for step in program.regions.values().flatten() {
        let Step::Host { node, .. } = step else { continue };
        let data = graph.node(*node);
        let mut values = data.inputs.iter().flatten().chain(&data.outputs);
        if values.any(|&value| is_host_value(graph, value)) {
            gaps.push(Gap::of_node(graph, *node, reason));
        }
    }
    match gaps.is_empty() {
        true => Ok(()),
        false => Err(CompileError::of_lowering(Stage::Interpreter, LowerError::Unsupported(gaps))),
    }
}
