//! The state of an import: the graph under construction, what names stand for, and the faults found.

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use tilewright_graph::op::Op;
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{Graph, NodeId, Provenance, RegionId, ValueId, infer};

use super::attrs::Attrs;
use super::cx::Cx;
use super::error::{Fault, FaultKind, Reason, Result};
use super::options::ImportOptions;
use super::origin::Origins;
use crate::model::OnnxModel;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto};

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Binding {
    Value(ValueId),
    /// A constant that no node of the region holds yet.
    Tensor(Tensor),
    /// The result of a node that could not be converted.
    Faulty,
    /// An optional input of a function that the call leaves out.
    Absent,
}

/// The names that nodes of one graph, or of one expanded function, see.
#[derive(Clone)]
pub(super) struct Scope {
    pub(super) region: RegionId,
    pub(super) names: FxHashMap<String, Binding>,
    pub(super) opsets: Rc<[OperatorSetIdProto]>,
    /// Attributes of the function call that is being expanded.
    pub(super) attributes: Option<Rc<FxHashMap<String, AttributeProto>>>,
    /// Prefix of node names: the calls that lead here.
    pub(super) prefix: Rc<str>,
    /// Whether names of values go into the graph.
    pub(super) named: bool,
}

impl Scope {
    /// The scope of a subgraph that becomes a region of its own, in which nothing has a name yet.
    pub(super) fn inner(&self, region: RegionId, label: &str) -> Scope {
        Scope {
            region,
            names: FxHashMap::default(),
            opsets: self.opsets.clone(),
            attributes: self.attributes.clone(),
            prefix: format!("{label}/").into(),
            named: false,
        }
    }
}

pub(super) struct Importer<'m> {
    pub(super) model: &'m OnnxModel,
    pub(super) options: &'m ImportOptions,
    pub(super) graph: Graph,
    pub(super) faults: Vec<Fault>,
    /// What a partial import keeps beside the graph.
    pub(super) partial: Option<PartialState>,
    /// Each once, though bodies of loops are imported several times.
    pub(super) warnings: Vec<Fault>,
    pub(super) functions: FxHashMap<(String, String, String), &'m FunctionProto>,
    /// Values of one element whose rank is data.
    pub(super) singles: FxHashMap<ValueId, Single>,
    pub(super) n_nodes: usize,
    pub(super) call_depth: usize,
}

/// What a partial import keeps beside the graph.
#[derive(Debug, Default)]
pub(super) struct PartialState {
    pub(super) origins: Origins,
    /// Inputs that are no inputs of the model.
    pub(super) stand_ins: FxHashSet<ValueId>,
    /// Values that nodes use which are left out.
    pub(super) loose_ends: Vec<(String, ValueId)>,
}

/// A value of one element whose rank is data.
pub(super) struct Single {
    /// The element.
    pub(super) scalar: ValueId,
    /// The greatest rank.
    pub(super) rank: usize,
}

/// A node whose conversion needs the whole import: control flow, and operators with subgraphs.
pub(super) struct Site<'a> {
    pub(super) node: &'a NodeProto,
    /// Name of the nodes that it becomes.
    pub(super) label: &'a str,
    pub(super) inputs: Vec<Option<ValueId>>,
}

/// The results of such a node; `None` after faults, which are recorded.
pub(super) type Converted = Result<Option<Vec<ValueId>>>;

impl<'m> Importer<'m> {
    pub(super) fn fault(&mut self, kind: FaultKind, node: &str, reason: impl Into<String>) {
        self.faults.push(Fault::of_value(kind, node, reason.into()));
    }

    pub(super) fn warn(&mut self, kind: FaultKind, value: &str, reason: String) {
        self.note(Fault::of_value(kind, value, reason));
    }

    /// Keeps a warning, once.
    pub(super) fn note(&mut self, warning: Fault) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    pub(super) fn bind_initializers(&mut self, scope: &mut Scope, proto: &GraphProto) {
        for initializer in &proto.initializer {
            let name = initializer.name();
            if scope.named && self.options.runtime_initializers.contains(name) {
                continue;
            }
            let tensor = self.model.tensor(initializer).map_err(|error| error.to_string());
            self.bind_initializer(scope, name, tensor);
        }
        for initializer in &proto.sparse_initializer {
            let name = initializer.values.as_ref().map(|values| values.name()).unwrap_or_default();
            let tensor = self.model.sparse_tensor(initializer).map_err(|error| error.to_string());
            self.bind_initializer(scope, name, tensor);
        }
    }

    pub(super) fn bind_initializer(
        &mut self,
        scope: &mut Scope,
        name: &str,
        tensor: std::result::Result<Tensor, String>,
    ) {
        let binding = match tensor {
            Ok(tensor) => Binding::Tensor(tensor),
            Err(reason) => {
                self.fault(FaultKind::Malformed, name, reason);
                Binding::Faulty
            }
        };
        if name.is_empty() {
            self.fault(FaultKind::Malformed, "", "an initializer has no name");
        } else if scope.names.insert(name.to_owned(), binding).is_some() {
            self.fault(FaultKind::DuplicateName, name, "the initializer is defined twice");
        }
    }

    /// The value a name stands for, constants made into nodes; `Err` for names without value, `None` for
    /// names that are not bound.
    pub(super) fn value_of(
        &mut self,
        scope: &mut Scope,
        name: &str,
    ) -> Option<std::result::Result<ValueId, Binding>> {
        let tensor = match scope.names.get(name)? {
            Binding::Value(value) => return Some(Ok(*value)),
            Binding::Tensor(tensor) => tensor.clone(),
            other @ (Binding::Faulty | Binding::Absent) => return Some(Err(other.clone())),
        };
        let op = Op::Constant(tensor);
        let node = infer::append(&mut self.graph, scope.region, op, Vec::new(), Provenance::named(name));
        let value = node.ok().and_then(|node| self.graph.node(node).output());
        let Some(value) = value else { return Some(Err(Binding::Faulty)) };
        self.graph.set_name(value, name);
        scope.names.insert(name.to_owned(), Binding::Value(value));
        Some(Ok(value))
    }

    /// What the conversion of a single node sees.
    pub(super) fn cx<'a>(&'a mut self, scope: &Scope, site: Site<'a>, opset: i64) -> Cx<'a> {
        Cx {
            model: self.model,
            graph: &mut self.graph,
            region: scope.region,
            node: site.node,
            opset,
            inputs: site.inputs,
            attrs: Attrs::new(site.node),
            provenance: Provenance::named(site.label),
        }
    }

    /// Adds a node of the graph.
    pub(super) fn append(
        &mut self,
        region: RegionId,
        op: Op,
        inputs: Vec<Option<ValueId>>,
        label: &str,
    ) -> Result<NodeId> {
        let node = infer::append(&mut self.graph, region, op, inputs, Provenance::named(label));
        node.map_err(|error| Reason::ty(error.message))
    }

    /// Adds a node of the graph with one result, and gives that.
    pub(super) fn emit(
        &mut self,
        region: RegionId,
        op: Op,
        inputs: &[ValueId],
        label: &str,
    ) -> Result<ValueId> {
        let node = self.append(region, op, inputs.iter().copied().map(Some).collect(), label)?;
        self.graph.node(node).output().ok_or_else(|| Reason::arity("has no result"))
    }
}
