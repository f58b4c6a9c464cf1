//! Conversion of nodes, in topological order, and of calls of model-local functions.

use std::borrow::Cow;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use tilewright_graph::ValueId;
use tilewright_graph::graph::cycle_text;

use super::attrs::Attrs;
use super::declared::{self, Contradiction};
use super::error::{Fault, FaultKind, Reason, Result};
use super::importer::{Binding, Importer, Scope, Site};
use super::origin::Origin;
use super::{generate, names, registry};
use crate::proto::{AttributeProto, FunctionProto, NodeProto, TypeProto};

/// Most nodes of an imported graph, functions expanded: nested functions could multiply without end.
pub const MAX_NODES: usize = 1 << 20;

/// Deepest nesting of function calls.
const MAX_CALL_DEPTH: usize = 64;

impl Importer<'_> {
    /// Converts all nodes of a graph or function body into the scope's region.
    pub(super) fn import_nodes(
        &mut self,
        scope: &mut Scope,
        nodes: &[NodeProto],
        declared: FxHashMap<&str, &TypeProto>,
    ) {
        for index in self.order_nodes(scope, nodes) {
            self.import_node(scope, &nodes[index], index);
            self.stand_in(scope, &nodes[index], &declared);
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
        for cycle in &sorted.cycles {
            let labels: Vec<String> = cycle.iter().map(|&i| names::label(&nodes[i], i)).collect();
            self.fault(FaultKind::Cycle, &labels[0], cycle_text(labels.iter().map(String::as_str)));
        }
        for name in sorted.blocked.iter().flat_map(|&i| &nodes[i].output) {
            scope.names.insert(name.clone(), Binding::Faulty);
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
        let origin = Origin::of(proto, opset);
        if let Some(partial) = &mut self.partial {
            partial.origins.note(label, origin.clone());
        }
        let first = self.faults.len();
        match self.try_convert(scope, proto, label, opset) {
            Ok(results) => results,
            Err(reason) => {
                let Reason { kind, message, advice } = reason;
                let (node, advice) = (label.to_owned(), advice.to_owned());
                // Before the faults of nodes inside it, which it may be the consequence of.
                let fault = Fault { kind, origin, node, reason: message, advice };
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
                let results = convert(self, scope, Site { node: proto, label, inputs })?;
                let named = proto.output.iter().rposition(|name| !name.is_empty()).map_or(0, |last| last + 1);
                // What an earlier fault leaves without a value is no fault of its own.
                let complete = |results: &Vec<ValueId>| results.len() >= named || self.faults.is_empty();
                let Some(results) = results.filter(complete) else { return Ok(None) };
                return bindings(proto, results.into_iter().map(Binding::Value).collect()).map(Some);
            }
        };
        let mut cx = self.cx(scope, Site { node: proto, label, inputs }, opset);
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
