//! `SequenceMap`: a loop that collects what its body makes of each element.

use tilewright_graph::op::Op;
use tilewright_graph::{Dim, Shape, SymbolKind, TensorType, Type};

use super::attrs::Attrs;
use super::control::loop_node;
use super::declared;
use super::error::{Reason, Result};
use super::importer::{Binding, Converted, Importer, Scope, Site};
use crate::proto::{AttributeProto, GraphProto, NodeProto, ValueInfoProto, attribute_proto};

/// Names inside the loop that no model has.
fn name(what: &str, index: usize) -> String {
    format!("\0{what}{index}")
}

pub(super) fn sequence_map(importer: &mut Importer<'_>, scope: &mut Scope, site: Site<'_>) -> Converted {
    let Site { node, label, inputs } = site;
    let attrs = Attrs::new(node);
    let body = attrs.graph("body")?;
    attrs.check_all_known()?;
    if body.input.len() != inputs.len() {
        let message = format!("the body has {} inputs, not {}", body.input.len(), inputs.len());
        return Err(Reason::arity(message));
    }
    // What the body is given, and what has the names of its inputs inside the loop.
    let mut scope = scope.clone();
    let mut nodes = Vec::new();
    for (i, (input, formal)) in inputs.iter().zip(&body.input).enumerate() {
        let value = input.ok_or_else(|| Reason::arity(format!("input {i} is missing")))?;
        scope.names.insert(name("input", i), Binding::Value(value));
        nodes.push(match importer.graph.ty(value) {
            Type::Sequence(_) => {
                call("SequenceAt", &[&name("input", i), &name("iteration", 0)], formal.name())
            }
            Type::Tensor(_) | Type::Optional(_) if i > 0 => {
                call("Identity", &[&name("input", i)], formal.name())
            }
            Type::Tensor(_) | Type::Optional(_) => return Err(Reason::ty("the first input is no sequence")),
        });
    }
    nodes.extend(body.node.iter().cloned());
    let Some(&Some(first)) = inputs.first() else { return Err(Reason::arity("the sequence is missing")) };
    let mut loop_inputs = vec![Some(importer.emit(scope.region, Op::SequenceLength, &[first], label)?), None];
    let (mut formals, mut results) = (vec![named(name("iteration", 0)), named(name("condition", 0))], vec![]);
    results.push(named(name("condition", 0)));
    for (j, output) in body.output.iter().enumerate() {
        let empty = Op::SequenceEmpty(collected(importer, output)?);
        loop_inputs.push(Some(importer.emit(scope.region, empty, &[], label)?));
        nodes.push(call("SequenceInsert", &[&name("collected", j), output.name()], &name("extended", j)));
        formals.push(named(name("collected", j)));
        results.push(named(name("extended", j)));
    }
    let graph = GraphProto { node: nodes, input: formals, output: results, ..body.clone() };
    let attribute = AttributeProto {
        name: Some("body".to_owned()),
        r#type: Some(attribute_proto::AttributeType::Graph as i32),
        g: Some(graph),
        ..AttributeProto::default()
    };
    let node = NodeProto { attribute: vec![attribute], ..NodeProto::default() };
    loop_node(importer, &mut scope, Site { node: &node, label, inputs: loop_inputs })
}

/// The type of the elements of a result, by the declaration of the body's output.
fn collected(importer: &mut Importer<'_>, output: &ValueInfoProto) -> Result<Type> {
    let message = || Reason::malformed(format!("output `{}` of the body has no type", output.name()));
    let ty = output.r#type.as_ref().ok_or_else(message)?;
    let symbols = &mut importer.graph.symbols;
    // Elements may differ in extents: what is declared once is another number each time.
    match declared::inner_type(ty)? {
        Type::Tensor(TensorType { dtype, shape: Shape::Ranked(dims) }) => {
            let renew = |_: Dim| Dim::symbol(symbols.fresh("collected", SymbolKind::Computed));
            Ok(Type::Tensor(TensorType::new(dtype, dims.into_iter().map(renew).collect())))
        }
        ty @ Type::Tensor(TensorType { shape: Shape::Unranked, .. }) => Ok(ty),
        Type::Sequence(_) | Type::Optional(_) => Err(Reason::ty("only tensors are collected")),
    }
}

fn call(operator: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: Some(operator.to_owned()),
        input: inputs.iter().map(|&name| name.to_owned()).collect(),
        output: vec![output.to_owned()],
        ..NodeProto::default()
    }
}

fn named(name: String) -> ValueInfoProto {
    ValueInfoProto { name: Some(name), ..ValueInfoProto::default() }
}
