//! Import of what a model has beside its faults, so that what comes after the import can look at the rest.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_graph::{Graph, Shape, TensorType, Type, ValueId};

use super::error::Fault;
use super::importer::{Binding, Importer, PartialState, Scope};
use super::names;
use super::options::ImportOptions;
use super::origin::Origins;
use crate::model::OnnxModel;
use crate::proto::{NodeProto, TypeProto};

/// What [`import_partial`] gives.
#[derive(Debug)]
pub struct Partial {
    /// The model without the nodes at fault. Their results are inputs where the model declares their types; else what
    /// depends on them is left out too. Values that only such nodes use are outputs.
    pub graph: Graph,
    /// All faults; what comes of a wrong declaration may be among them.
    pub faults: Vec<Fault>,
    /// The operators of the model's nodes.
    pub origins: Origins,
}

/// Imports a model whose import may fail.
pub fn import_partial(model: &OnnxModel, options: &ImportOptions) -> Partial {
    let mut importer = Importer::new(model, options);
    importer.partial = Some(PartialState::default());
    importer.run();
    let PartialState { origins, loose_ends, .. } = importer.partial.take().unwrap_or_default();
    let mut graph = importer.graph;
    let mut known: FxHashSet<ValueId> = graph.inputs().iter().chain(graph.outputs()).copied().collect();
    for (name, value) in loose_ends {
        if graph.constant(value).is_none() && known.insert(value) {
            graph.add_output(&name, value);
        }
    }
    Partial { graph, faults: importer.faults, origins }
}

impl Importer<'_> {
    /// In a partial import: puts inputs of their declared types in place of the results of a node that is left out, and
    /// notes what it uses.
    ///
    /// A region of control flow takes nothing from outside that its owner does not pass on, so there the owner is left out.
    pub(super) fn stand_in(
        &mut self,
        scope: &mut Scope,
        node: &NodeProto,
        declared: &FxHashMap<&str, &TypeProto>,
    ) {
        let is_faulty = |name: &&String| matches!(scope.names.get(*name), Some(Binding::Faulty));
        let faulty: Vec<String> = node.output.iter().filter(is_faulty).cloned().collect();
        if self.partial.is_none() || faulty.is_empty() || scope.region != self.graph.main() {
            return;
        }
        let mut loose_ends = Vec::new();
        names::for_each_use(node, &mut |name| {
            if let Some(Binding::Value(value)) = scope.names.get(name) {
                loose_ends.push((format!("{}{name}", scope.prefix), *value));
            }
        });
        let mut stand_ins = Vec::new();
        for output in faulty {
            let Some(ty) = declared.get(output.as_str()) else { continue };
            let name = format!("{}{output}", scope.prefix);
            let Ok(ty) = self.type_of_input(&name, ty, &mut BTreeSet::new()) else { continue };
            if matches!(ty, Type::Tensor(TensorType { shape: Shape::Unranked, .. })) {
                continue;
            }
            let value = self.graph.add_input(&name, ty);
            stand_ins.push(value);
            scope.names.insert(output, Binding::Value(value));
        }
        if let Some(partial) = &mut self.partial {
            partial.loose_ends.append(&mut loose_ends);
            partial.stand_ins.extend(stand_ins);
        }
    }

    /// Whether a value is an input in place of a result.
    pub(super) fn is_stand_in(&self, value: ValueId) -> bool {
        self.partial.as_ref().is_some_and(|partial| partial.stand_ins.contains(&value))
    }
}
