//! What subgraphs use from outside: constants, which each region has for itself, and values that its owner passes on.

use tilewright_graph::ValueId;
use tilewright_graph::tensor::Tensor;

use super::importer::{Binding, Importer, Scope};
use super::names;
use crate::proto::GraphProto;

/// A captured name: either a constant, which each region gets for itself, or an operand.
pub(super) enum Capture {
    Constant(String, Tensor),
    Operand(String, ValueId),
}

/// Splits the names that subgraphs use from outside. Names of faulty values give `None`.
pub(super) fn captures(
    importer: &mut Importer<'_>,
    scope: &mut Scope,
    graphs: &[&GraphProto],
) -> Option<Vec<Capture>> {
    let mut names: Vec<String> = graphs.iter().flat_map(|graph| names::captures(graph)).collect();
    names.sort();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        if let Some(Binding::Tensor(tensor)) = scope.names.get(&name) {
            found.push(Capture::Constant(name, tensor.clone()));
            continue;
        }
        let value = importer.value_of(scope, &name)?.ok()?;
        found.push(match importer.graph.constant(value) {
            Some(tensor) => Capture::Constant(name, tensor.clone()),
            None => Capture::Operand(name, value),
        });
    }
    Some(found)
}

pub(super) fn operands(captures: &[Capture]) -> impl Iterator<Item = Option<ValueId>> {
    captures.iter().filter_map(|capture| match capture {
        Capture::Operand(_, value) => Some(Some(*value)),
        Capture::Constant(..) => None,
    })
}

/// Adds a parameter for each captured operand to the scope's region, and binds the captured names.
pub(super) fn bind_captures(importer: &mut Importer<'_>, inner: &mut Scope, captures: &[Capture]) {
    for capture in captures {
        let (name, binding) = match capture {
            Capture::Constant(name, tensor) => (name, Binding::Tensor(tensor.clone())),
            Capture::Operand(name, outside) => {
                let ty = importer.graph.ty(*outside).clone();
                let elements = importer.graph.shape_value(*outside).map(std::sync::Arc::from);
                let value = importer.graph.add_param(inner.region, Some(name), ty);
                importer.graph.set_shape_value(value, elements);
                (name, Binding::Value(value))
            }
        };
        inner.names.entry(name.clone()).or_insert(binding);
    }
}
