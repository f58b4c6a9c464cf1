//! Import: from a decoded model to the graph IR.
//!
//! Nodes are converted in topological order, each by the function that `registry` has for its operator; types
//! are inferred at once, so that conversions see the ranks and constants before them. A fault does not end the
//! import: results of the faulty node count as unknown, what depends on them is only looked up, and all faults
//! come back together. Model-local functions are expanded where they are called. Initializers become constants
//! where they are used, even if they are listed as inputs.

mod attrs;
mod control;
mod cx;
mod declared;
mod error;
mod names;
mod registry;

mod attention;
mod conv;
mod elementwise;
mod flex_attention;
mod generate;
mod index;
mod linear;
mod loss;
mod norm;
mod pool;
mod quantize;
mod recurrent;
mod reduce;
mod resize;
mod scan;
mod sequence;
mod sequence_map;
mod shape;
mod signal;
mod training;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rustc_hash::FxHashMap;
use tilewright_graph::op::Op;
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{Graph, Provenance, Range, RegionId, ValueId, infer};

use crate::model::OnnxModel;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, MAX_OPSET, NodeProto, OperatorSetIdProto, TypeProto,
};
use attrs::Attrs;
use cx::Cx;
use declared::Contradiction;
pub use error::{Fault, FaultKind, ImportErrors};
use error::{Reason, Result};

/// Most nodes of an imported graph, functions expanded: nested functions could multiply without end.
pub const MAX_NODES: usize = 1 << 20;

/// Deepest nesting of function calls.
const MAX_CALL_DEPTH: usize = 64;

/// What the user says about an open extent of the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimOption {
    /// It always has this value.
    Fixed(i64),
    /// It stays open, within a range.
    Range(Range),
}

/// How to import.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Open extents by name; an extent without a name is called `INPUT[AXIS]`.
    pub dims: BTreeMap<String, DimOption>,
    /// Initializers that are also graph inputs and stay inputs, instead of becoming constants.
    pub runtime_initializers: BTreeSet<String>,
}

/// Imports a model. Node names become provenances, names of values are kept, and the metadata gets the
/// producer and the operator sets.
///
/// # Errors
/// Everything that keeps the model from being imported.
pub fn import(model: &OnnxModel, options: &ImportOptions) -> std::result::Result<Graph, ImportErrors> {
    import_noting(model, options, &mut Vec::new())
}

/// As [`import`]; what is odd about the model and does not keep it from being imported goes to `warnings`.
///
/// # Errors
/// As [`import`].
pub fn import_noting(
    model: &OnnxModel,
    options: &ImportOptions,
    warnings: &mut Vec<Fault>,
) -> std::result::Result<Graph, ImportErrors> {
    let proto = model.graph();
    let mut importer = Importer {
        model,
        options,
        graph: Graph::new(proto.name()),
        faults: Vec::new(),
        warnings: Vec::new(),
        functions: FxHashMap::default(),
        singles: FxHashMap::default(),
        n_nodes: 0,
        call_depth: 0,
    };
    importer.note_metadata();
    importer.check_opsets();
    importer.collect_functions();
    importer.import_main(proto);
    warnings.append(&mut importer.warnings);
    if importer.faults.is_empty() {
        Ok(importer.graph)
    } else {
        Err(ImportErrors { faults: importer.faults })
    }
}

/// What a name stands for.
#[derive(Clone, Debug)]
enum Binding {
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
struct Scope {
    region: RegionId,
    names: FxHashMap<String, Binding>,
    opsets: Rc<[OperatorSetIdProto]>,
    /// Attributes of the function call that is being expanded.
    attributes: Option<Rc<FxHashMap<String, AttributeProto>>>,
    /// Prefix of node names: the calls that lead here.
    prefix: Rc<str>,
    /// Whether names of values go into the graph.
    named: bool,
}

struct Importer<'m> {
    model: &'m OnnxModel,
    options: &'m ImportOptions,
    graph: Graph,
    faults: Vec<Fault>,
    /// Each once, though bodies of loops are imported several times.
    warnings: Vec<Fault>,
    functions: FxHashMap<(String, String, String), &'m FunctionProto>,
    /// Values of one element whose rank is data.
    singles: FxHashMap<ValueId, Single>,
    n_nodes: usize,
    call_depth: usize,
}

/// A value of one element whose rank is data.
struct Single {
    /// The element.
    scalar: ValueId,
    /// The greatest rank.
    rank: usize,
}

impl<'m> Importer<'m> {
    fn fault(&mut self, kind: FaultKind, node: &str, reason: impl Into<String>) {
        self.faults.push(Fault::of_value(kind, node, reason.into()));
    }

    fn warn(&mut self, kind: FaultKind, value: &str, reason: String) {
        let warning = Fault::of_value(kind, value, reason);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn note_metadata(&mut self) {
        let proto = &self.model.proto;
        let mut note = |key: &str, value: String| {
            if !value.is_empty() {
                self.graph.metadata.insert(key.to_owned(), value);
            }
        };
        note("producer", format!("{} {}", proto.producer_name(), proto.producer_version()).trim().to_owned());
        note("ir_version", proto.ir_version().to_string());
        for import in &proto.opset_import {
            let domain = if import.domain().is_empty() { "ai.onnx" } else { import.domain() };
            note(&format!("opset.{domain}"), import.version().to_string());
        }
    }

    fn check_opsets(&mut self) {
        let imports = &self.model.proto.opset_import;
        let version = crate::model::opset(imports, "");
        if let Some(version) = version.filter(|version| !(1..=MAX_OPSET).contains(version)) {
            let reason = format!("opset {version} is not known; the known ones are 1 to {MAX_OPSET}");
            self.fault(FaultKind::UnknownOpset, "opset_import", reason);
        }
        if imports.is_empty() && self.model.proto.ir_version() >= 3 {
            self.fault(FaultKind::UnknownOpset, "opset_import", "the model imports no operator set");
        }
    }

    fn collect_functions(&mut self) {
        for function in &self.model.proto.functions {
            let key = names::operator_key(function.domain(), function.name(), function.overload());
            if self.functions.insert(key, function).is_some() {
                self.fault(FaultKind::DuplicateName, function.name(), "the function is defined twice");
            }
        }
    }

    fn import_main(&mut self, proto: &GraphProto) {
        let mut scope = Scope {
            region: self.graph.main(),
            names: FxHashMap::default(),
            opsets: self.model.proto.opset_import.clone().into(),
            attributes: None,
            prefix: Rc::from(""),
            named: true,
        };
        self.bind_initializers(&mut scope, proto);
        self.bind_inputs(&mut scope, proto);
        let declared = names::declared_types(proto.value_info.iter().chain(&proto.output));
        self.import_nodes(&mut scope, &proto.node, declared);
        for output in &proto.output {
            match self.value_of(&mut scope, output.name()) {
                Some(Ok(value)) => {
                    let value = self.declared_output(value, output.r#type.as_ref());
                    self.graph.add_output(output.name(), value);
                }
                Some(Err(_)) => {}
                None => {
                    self.fault(FaultKind::DanglingInput, output.name(), "the graph output is never defined")
                }
            }
        }
        if proto.output.is_empty() {
            self.fault(FaultKind::Malformed, proto.name(), "the graph has no outputs");
        }
    }

    fn bind_initializers(&mut self, scope: &mut Scope, proto: &GraphProto) {
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

    fn bind_initializer(
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

    fn bind_inputs(&mut self, scope: &mut Scope, proto: &GraphProto) {
        let mut unused: BTreeSet<&str> = self.options.dims.keys().map(String::as_str).collect();
        let mut seen = BTreeSet::new();
        for input in &proto.input {
            let name = input.name();
            if !seen.insert(name) || name.is_empty() {
                self.fault(FaultKind::DuplicateName, name, "the graph input is there twice, or has no name");
                continue;
            }
            let declared = self.input_type(input, &mut unused);
            if scope.names.contains_key(name) {
                self.check_initializer(scope, name, declared);
                continue;
            }
            let binding = match declared {
                Ok(ty) => Binding::Value(self.graph.add_input(name, ty)),
                Err(reason) => {
                    self.fault(reason.kind, name, reason.message);
                    Binding::Faulty
                }
            };
            scope.names.insert(name.to_owned(), binding);
        }
        let known: Vec<String> =
            self.graph.symbols.iter().map(|(_, symbol)| format!("`{}`", symbol.name)).collect();
        for name in unused {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let reason = format!("no open extent of the inputs has this name; the open ones are: {known}");
            self.fault(FaultKind::Option, name, reason);
        }
    }

    /// Converts all nodes of a graph or function body into the scope's region.
    fn import_nodes(
        &mut self,
        scope: &mut Scope,
        nodes: &[NodeProto],
        declared: FxHashMap<&str, &TypeProto>,
    ) {
        for index in self.order_nodes(scope, nodes) {
            self.import_node(scope, &nodes[index], index);
            for output in nodes[index].output.iter().filter(|name| !name.is_empty()) {
                if let (Some(ty), Some(Binding::Value(value))) =
                    (declared.get(output.as_str()), scope.names.get(output))
                    && let Err(contradiction) = declared::check(&mut self.graph, *value, ty)
                {
                    match contradiction {
                        Contradiction::Type(reason) => self.fault(FaultKind::Type, output, reason),
                        Contradiction::Shape(reason) => self.warn(FaultKind::Type, output, reason),
                    }
                }
            }
        }
    }

    /// The nodes in topological order. Faults: names defined twice, used but undefined, or in a circle; undefined
    /// names are bound as faulty.
    fn order_nodes(&mut self, scope: &mut Scope, nodes: &[NodeProto]) -> Vec<usize> {
        let sorted = names::sort(nodes, |name| scope.names.contains_key(name));
        for name in sorted.duplicates {
            self.fault(FaultKind::DuplicateName, &name, "the name is defined twice");
        }
        for (name, user) in sorted.dangling {
            let user = names::label(&nodes[user], user);
            self.fault(FaultKind::DanglingInput, &user, format!("input `{name}` is never defined"));
            scope.names.insert(name, Binding::Faulty);
        }
        if let Some(&first) = sorted.cyclic.first() {
            let names: Vec<String> =
                sorted.cyclic.iter().take(8).map(|&i| format!("`{}`", names::label(&nodes[i], i))).collect();
            let more = if sorted.cyclic.len() > 8 { " and others" } else { "" };
            let reason = format!("{} nodes form a cycle: {}{more}", sorted.cyclic.len(), names.join(", "));
            self.fault(FaultKind::Cycle, &names::label(&nodes[first], first), reason);
            for name in sorted.cyclic.iter().flat_map(|&i| &nodes[i].output) {
                scope.names.insert(name.clone(), Binding::Faulty);
            }
        }
        sorted.order
    }

    fn import_node(&mut self, scope: &mut Scope, proto: &NodeProto, index: usize) {
        let label = format!("{}{}", scope.prefix, names::label(proto, index));
        self.n_nodes += 1;
        let results = if self.n_nodes > MAX_NODES {
            if self.n_nodes == MAX_NODES + 1 {
                self.fault(FaultKind::Limit, &label, format!("the model has over {MAX_NODES} nodes"));
            }
            None
        } else {
            self.convert(scope, proto, &label)
        };
        for (position, name) in proto.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let binding = match &results {
                Some(results) => results[position].clone(),
                None => Binding::Faulty,
            };
            if let Binding::Value(value) = binding
                && scope.named
                && self.graph.value(value).name.is_none()
            {
                self.graph.set_name(value, name);
            }
            scope.names.insert(name.clone(), binding);
        }
    }

    /// What the outputs of a node are bound to; `None` after a fault, which is recorded.
    fn convert(&mut self, scope: &mut Scope, proto: &NodeProto, label: &str) -> Option<Vec<Binding>> {
        let opset = crate::model::opset(&scope.opsets, proto.domain()).unwrap_or(0);
        let (operator, first) = (names::operator_name(proto), self.faults.len());
        match self.try_convert(scope, proto, label, opset) {
            Ok(results) => results,
            Err(reason) => {
                let Reason { kind, message, advice } = reason;
                let (node, advice) = (label.to_owned(), advice.to_owned());
                // Before the faults of nodes inside it, which it may be the consequence of.
                let fault = Fault { kind, operator, opset, node, reason: message, advice };
                self.faults.insert(first, fault);
                None
            }
        }
    }

    /// `Ok(None)` if an operand is the result of a faulty node, or the faults inside are recorded already.
    fn try_convert(
        &mut self,
        scope: &mut Scope,
        proto: &NodeProto,
        label: &str,
        opset: i64,
    ) -> Result<Option<Vec<Binding>>> {
        let proto = &*resolve_references(proto, scope.attributes.as_deref())?;
        let key = names::operator_key(proto.domain(), proto.op_type(), proto.overload());
        if let Some(&function) = self.functions.get(&key) {
            return self.call(scope, function, proto, label);
        }
        let row = registry::find(proto, opset)?;
        let mut faulty = false;
        let mut inputs = Vec::with_capacity(proto.input.len());
        for name in &proto.input {
            match if name.is_empty() { Some(Err(Binding::Absent)) } else { self.value_of(scope, name) } {
                Some(Ok(value)) => inputs.push(Some(value)),
                Some(Err(Binding::Absent)) => inputs.push(None),
                Some(Err(_)) | None => faulty = true,
            }
        }
        if faulty {
            return Ok(None);
        }
        row.check_inputs(proto)?;
        self.take_scalars(proto, &mut inputs);
        let convert = match row.convert {
            registry::Convert::Node(convert) => convert,
            registry::Convert::Constant => {
                let attrs = Attrs::new(proto);
                let tensor = generate::constant(&attrs, self.model)?;
                attrs.check_all_known()?;
                return bindings(proto, vec![Binding::Tensor(tensor)]).map(Some);
            }
            registry::Convert::Control(convert) => {
                let results = convert(self, scope, proto, label, inputs)?;
                let named = proto.output.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
                // What an earlier fault leaves without a value is no fault of its own.
                let complete = |results: &Vec<ValueId>| results.len() >= named || self.faults.is_empty();
                let Some(results) = results.filter(complete) else { return Ok(None) };
                return bindings(proto, results.into_iter().map(Binding::Value).collect()).map(Some);
            }
        };
        let mut cx = Cx {
            model: self.model,
            graph: &mut self.graph,
            region: scope.region,
            node: proto,
            opset,
            inputs,
            attrs: Attrs::new(proto),
            provenance: Provenance::named(label),
        };
        let results = convert(&mut cx)?;
        if opset < 6 {
            // A hint about memory that old exporters wrote; it never changed a result.
            cx.attrs.accept("consumed_inputs");
        }
        cx.attrs.check_all_known()?;
        bindings(proto, results.into_iter().map(Binding::Value).collect()).map(Some)
    }

    /// Puts scalars in place of operands of one element whose rank is data, where the result is of the other operands'
    /// rank with any of them.
    fn take_scalars(&self, proto: &NodeProto, inputs: &mut [Option<ValueId>]) {
        let first = match proto.op_type() {
            "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Max" | "Min" | "Where" => 0,
            // The other operand only tells the type.
            "CastLike" => 1,
            _ => return,
        };
        let rank = |value: &Option<ValueId>| Some(self.graph.dims((*value)?)?.len());
        let most = inputs.iter().filter_map(rank).max().unwrap_or(0);
        for input in inputs.iter_mut().skip(first) {
            if let Some(single) = input.and_then(|value| self.singles.get(&value))
                && (single.rank <= most || first > 0)
            {
                *input = Some(single.scalar);
            }
        }
    }

    /// The value a name stands for, constants made into nodes; `Err` for names without value, `None` for
    /// names that are not bound.
    fn value_of(&mut self, scope: &mut Scope, name: &str) -> Option<std::result::Result<ValueId, Binding>> {
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

    /// Expands a call of a model-local function into the caller's region.
    fn call(
        &mut self,
        scope: &mut Scope,
        function: &FunctionProto,
        call: &NodeProto,
        label: &str,
    ) -> Result<Option<Vec<Binding>>> {
        if self.call_depth >= MAX_CALL_DEPTH {
            let message =
                format!("function calls nest deeper than {MAX_CALL_DEPTH}, or a function calls itself");
            return Err(Reason::new(FaultKind::Limit, message));
        }
        if call.input.len() > function.input.len() || call.output.len() > function.output.len() {
            return Err(Reason::arity("the call has more inputs or outputs than the function"));
        }
        let mut inner = Scope {
            region: scope.region,
            names: FxHashMap::default(),
            opsets: function.opset_import.clone().into(),
            attributes: Some(Rc::new(call_attributes(function, call)?)),
            prefix: format!("{label}/").into(),
            named: false,
        };
        for (position, formal) in function.input.iter().enumerate() {
            let actual = call.input.get(position).filter(|name| !name.is_empty());
            let binding = match actual {
                Some(name) => scope.names.get(name).cloned().unwrap_or(Binding::Faulty),
                None => Binding::Absent,
            };
            inner.names.insert(formal.clone(), binding);
        }
        self.call_depth += 1;
        self.import_nodes(&mut inner, &function.node, names::declared_types(&function.value_info));
        self.call_depth -= 1;
        let output = |name: &String| {
            let binding = inner.names.get(name).cloned();
            binding
                .ok_or_else(|| Reason::malformed(format!("the function never defines its output `{name}`")))
        };
        function.output.iter().take(call.output.len()).map(output).collect::<Result<_>>().map(Some)
    }
}

/// Results by position, as many as the node has outputs.
fn bindings(proto: &NodeProto, results: Vec<Binding>) -> Result<Vec<Binding>> {
    let named = proto.output.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
    if named > results.len() {
        return Err(Reason::arity(format!("has {named} outputs, but gives {}", results.len())));
    }
    let mut results = results;
    results.resize(proto.output.len().max(results.len()), Binding::Faulty);
    Ok(results)
}

/// The attributes of a call, with the function's defaults for those it leaves out.
fn call_attributes(function: &FunctionProto, call: &NodeProto) -> Result<FxHashMap<String, AttributeProto>> {
    let mut attributes = FxHashMap::default();
    for default in &function.attribute_proto {
        attributes.insert(default.name().to_owned(), default.clone());
    }
    for attribute in &call.attribute {
        let name = attribute.name();
        if !attributes.contains_key(name) && !function.attribute.iter().any(|known| known == name) {
            let message = format!("unknown attribute `{name}` of the function");
            return Err(Reason::new(FaultKind::UnknownAttribute, message));
        }
        attributes.insert(name.to_owned(), attribute.clone());
    }
    Ok(attributes)
}

/// The node with references to attributes of the enclosing function replaced by their values. An attribute that
/// refers to one that the call leaves out is left out too.
fn resolve_references<'n>(
    proto: &'n NodeProto,
    attributes: Option<&FxHashMap<String, AttributeProto>>,
) -> Result<Cow<'n, NodeProto>> {
    let is_reference = |attribute: &AttributeProto| !attribute.ref_attr_name().is_empty();
    if !proto.attribute.iter().any(is_reference) {
        return Ok(Cow::Borrowed(proto));
    }
    let Some(attributes) = attributes else {
        return Err(Reason::malformed("an attribute refers to a function's attribute, outside any function"));
    };
    let resolve = |attribute: &AttributeProto| {
        if !is_reference(attribute) {
            return Some(attribute.clone());
        }
        let value = attributes.get(attribute.ref_attr_name())?;
        Some(AttributeProto { name: attribute.name.clone(), ..value.clone() })
    };
    let attribute = proto.attribute.iter().filter_map(resolve).collect();
    Ok(Cow::Owned(NodeProto { attribute, ..proto.clone() }))
}
