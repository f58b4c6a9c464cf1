//! Control flow: subgraphs become closed regions, whose captures are operands and parameters.

use tilewright_graph::op::{BinaryOp, IfAttrs, LoopAttrs, Op, UnaryOp};
use tilewright_graph::{
    Comparison, DType, Dim, Guard, RegionId, Shape, SymbolKind, TensorType, Type, ValueId,
};

use super::attrs::Attrs;
use super::captures::{Capture, bind_captures, captures, operands};
use super::error::{FaultKind, Reason, Result};
use super::failing::failing_branch;
use super::importer::{Binding, Converted, Importer, Scope, Single, Site};
use super::names;
use crate::proto::GraphProto;

/// How often the types of loop-carried values may be widened before the import gives up.
const MAX_WIDENINGS: usize = 16;

/// Imports a subgraph into a region of its own. Parameters are `formals`, then the captured operands. `None` if
/// there were faults.
fn region(
    importer: &mut Importer<'_>,
    outer: &Scope,
    graph: &GraphProto,
    formals: &[Type],
    captures: &[Capture],
    label: &str,
) -> Result<Option<RegionId>> {
    if graph.input.len() != formals.len() {
        let message = format!("the subgraph has {} inputs, not {}", graph.input.len(), formals.len());
        return Err(Reason::arity(message));
    }
    let region = importer.graph.add_region();
    let (first_fault, first_guard) = (importer.faults.len(), importer.graph.guards.len());
    let mut inner = outer.inner(region, label);
    for (input, ty) in graph.input.iter().zip(formals) {
        let value = importer.graph.add_param(region, Some(input.name()), ty.clone());
        inner.names.insert(input.name().to_owned(), Binding::Value(value));
    }
    bind_captures(importer, &mut inner, captures);
    let results = subgraph_body(importer, &mut inner, graph);
    importer.graph.set_results(region, results);
    if importer.faults.len() > first_fault {
        importer.graph.guards.truncate(first_guard);
        return Ok(None);
    }
    Ok(Some(region))
}

pub(super) fn finish(
    importer: &mut Importer<'_>,
    scope: &Scope,
    op: Op,
    inputs: Vec<Option<ValueId>>,
    label: &str,
) -> Converted {
    let node = importer.append(scope.region, op, inputs, label)?;
    Ok(Some(importer.graph.node(node).outputs.clone()))
}

/// A condition that inference decides leaves one branch, which takes the place of the node. Branches whose
/// results differ in rank (exporters squeeze an axis if its extent is 1) cannot both be compiled; if it is an
/// extent that decides between them, it is taken to be equal to what it is compared with, under guard. A branch
/// whose operands do not fit, beside one whose operands do, fails when it is run.
pub(super) fn if_node(importer: &mut Importer<'_>, scope: &mut Scope, site: Site<'_>) -> Converted {
    let Site { node, label, inputs } = site;
    let attrs = Attrs::new(node);
    let (then_graph, else_graph) = (attrs.graph("then_branch")?, attrs.graph("else_branch")?);
    attrs.check_all_known()?;
    let condition = inputs[0].ok_or_else(|| Reason::arity("the condition is missing"))?;
    if let Some([known]) = importer.graph.shape_value(condition)
        && let Some(known) = known.as_const()
    {
        return inline(importer, scope, if known != 0 { then_graph } else { else_graph }, &[], label);
    }
    let Some(captures) = captures(importer, scope, &[then_graph, else_graph]) else { return Ok(None) };
    let (n_faults, n_guards) = (importer.faults.len(), importer.graph.guards.len());
    let then_region = region(importer, scope, then_graph, &[], &captures, label)?;
    let else_region = region(importer, scope, else_graph, &[], &captures, label)?;
    let same = match (then_region, else_region) {
        (Some(a), Some(b)) => ranks_agree(importer, a, b),
        _ => false,
    };
    if !same && let Some((left, right, is_then)) = compared_extents(importer, condition) {
        importer.faults.truncate(n_faults);
        importer.graph.guards.truncate(n_guards);
        let message = format!("If `{label}`: the rank of the results depends on the extent");
        let region = scope.region;
        importer.graph.add_guard(Guard { left, comparison: Comparison::Equal, right, region, message });
        return inline(importer, scope, if is_then { then_graph } else { else_graph }, &[], label);
    }
    let mut other = |sound| failing_branch(importer, scope, sound, n_faults, &captures, label);
    let regions = match (then_region, else_region) {
        (Some(a), Some(b)) => Some((a, b)),
        (Some(a), None) => other(a)?.map(|b| (a, b)),
        (None, Some(b)) => other(b)?.map(|a| (a, b)),
        (None, None) => None,
    };
    let Some((then_region, else_region)) = regions else { return Ok(None) };
    let singles = single_elements(importer, then_region, else_region, label)?;
    let inputs = inputs.into_iter().chain(operands(&captures)).collect();
    let op = Op::If(IfAttrs { then_region, else_region });
    let Some(mut results) = finish(importer, scope, op, inputs, label)? else { return Ok(None) };
    let scalars = results.split_off(results.len() - singles.len());
    for ((position, rank), scalar) in singles.into_iter().zip(scalars) {
        importer.singles.insert(results[position], Single { scalar, rank });
    }
    Ok(Some(results))
}

/// Results of one element that the branches give with different ranks, and the greater of these: a further result
/// gives each as a scalar, for operators whose result has the same rank with either.
fn single_elements(
    importer: &mut Importer<'_>,
    then_region: RegionId,
    else_region: RegionId,
    label: &str,
) -> Result<Vec<(usize, usize)>> {
    let rank = |importer: &Importer<'_>, value: ValueId| {
        let dims = importer.graph.dims(value)?;
        dims.iter().all(|dim| dim.is(1)).then_some(dims.len())
    };
    let results = [then_region, else_region].map(|region| importer.graph.region(region).results.clone());
    let mut singles = Vec::new();
    for (position, (&a, &b)) in results[0].iter().zip(&results[1]).enumerate() {
        if let (Some(a), Some(b)) = (rank(importer, a), rank(importer, b))
            && a != b
        {
            singles.push((position, a.max(b)));
        }
    }
    for (region, results) in [then_region, else_region].into_iter().zip(results) {
        let mut all = results.clone();
        for &(position, _) in &singles {
            all.push(importer.emit(region, Op::reshape(Vec::new()), &[results[position]], label)?);
        }
        importer.graph.set_results(region, all);
    }
    Ok(singles)
}

fn ranks_agree(importer: &Importer<'_>, a: RegionId, b: RegionId) -> bool {
    let rank = |&value: &ValueId| importer.graph.tensor_type(value).map(|tensor| tensor.shape.rank());
    let (a, b) = (&importer.graph.region(a).results, &importer.graph.region(b).results);
    a.iter().map(rank).eq(b.iter().map(rank))
}

/// The two extents whose equality a condition is, and whether they are equal where the condition holds.
fn compared_extents(importer: &Importer<'_>, condition: ValueId) -> Option<(Dim, Dim, bool)> {
    let (mut value, mut holds) = (condition, true);
    loop {
        let node = importer.graph.node(importer.graph.producer(value)?);
        match &node.op {
            Op::Identity | Op::Cast(_) | Op::Reshape(_) => value = node.input(0)?,
            Op::Unary(UnaryOp::Not) => {
                value = node.input(0)?;
                holds = !holds;
            }
            Op::Binary(BinaryOp::Equal) => {
                let single = |position| match importer.graph.shape_value(node.input(position)?) {
                    Some([dim]) => Some(dim.clone()),
                    _ => None,
                };
                return Some((single(0)?, single(1)?, holds));
            }
            _ => return None,
        }
    }
}

/// Imports a subgraph in the place of its node, with its inputs bound to `operands`.
pub(super) fn inline(
    importer: &mut Importer<'_>,
    scope: &Scope,
    graph: &GraphProto,
    operands: &[ValueId],
    label: &str,
) -> Converted {
    if graph.input.len() != operands.len() {
        let message = format!("the subgraph has {} inputs, not {}", graph.input.len(), operands.len());
        return Err(Reason::arity(message));
    }
    let n_faults = importer.faults.len();
    let mut inner = Scope { prefix: format!("{label}/").into(), named: false, ..scope.clone() };
    for name in graph.node.iter().flat_map(|node| &node.output) {
        // A name of the subgraph hides one from outside.
        inner.names.remove(name);
    }
    for (input, &operand) in graph.input.iter().zip(operands) {
        inner.names.insert(input.name().to_owned(), Binding::Value(operand));
    }
    let results = subgraph_body(importer, &mut inner, graph);
    Ok((importer.faults.len() == n_faults).then_some(results))
}

/// Imports the nodes of a subgraph whose parameters and captures are bound, and gives its results.
fn subgraph_body(importer: &mut Importer<'_>, inner: &mut Scope, graph: &GraphProto) -> Vec<ValueId> {
    for initializer in &graph.initializer {
        inner.names.remove(initializer.name());
    }
    importer.bind_initializers(inner, graph);
    let declared = names::declared_types(graph.value_info.iter());
    importer.import_nodes(inner, &graph.node, declared);
    let mut results = Vec::with_capacity(graph.output.len());
    for output in &graph.output {
        match importer.value_of(inner, output.name()) {
            Some(Ok(value)) => results.push(value),
            Some(Err(_)) => {}
            None => {
                importer.fault(
                    FaultKind::DanglingInput,
                    output.name(),
                    "the subgraph's output is never defined",
                );
            }
        }
    }
    results
}

/// Widens the type of a carried value so that it covers what the body makes of it: extents that change become
/// open. Gives whether the type changed.
fn widen(importer: &mut Importer<'_>, carried: &mut Type, result: &Type) -> Result<bool> {
    match (&mut *carried, result) {
        (before, after) if before == after => Ok(false),
        (Type::Tensor(before), Type::Tensor(after)) if before.dtype == after.dtype => {
            Ok(widen_tensor(importer, before, after))
        }
        (Type::Sequence(before), Type::Sequence(after)) | (Type::Optional(before), Type::Optional(after)) => {
            widen(importer, before, after)
        }
        // A value is an optional that holds it.
        (Type::Optional(before), after @ (Type::Tensor(_) | Type::Sequence(_))) => {
            widen(importer, before, after)
        }
        (before @ (Type::Tensor(_) | Type::Sequence(_)), Type::Optional(after)) => {
            widen(importer, before, after)?;
            *carried = Type::Optional(Box::new(carried.clone()));
            Ok(true)
        }
        (Type::Tensor(_) | Type::Sequence(_), Type::Tensor(_) | Type::Sequence(_)) => {
            let symbols = &importer.graph.symbols;
            let (a, b) = (carried.display(symbols).to_string(), result.display(symbols).to_string());
            Err(Reason::ty(format!("a carried value is {a} before and {b} after an iteration")))
        }
    }
}

fn widen_tensor(importer: &mut Importer<'_>, before: &mut TensorType, after: &TensorType) -> bool {
    let symbols = &mut importer.graph.symbols;
    let (Shape::Ranked(old), Shape::Ranked(new)) = (&mut before.shape, &after.shape) else {
        let changed = before.shape != Shape::Unranked;
        before.shape = Shape::Unranked;
        return changed;
    };
    if old.len() != new.len() {
        before.shape = Shape::Unranked;
        return true;
    }
    let mut changed = false;
    for (old, new) in old.iter_mut().zip(new) {
        // An extent that is open already, on account of the loop, covers whatever comes.
        let is_open = old.as_symbol().is_some_and(|symbol| symbols[symbol].kind == SymbolKind::Computed);
        if old != new && !is_open {
            *old = Dim::symbol(symbols.fresh("carried", SymbolKind::Computed));
            changed = true;
        }
    }
    changed
}

/// Imports a body until the types of its carried values cover what it gives back. The first `carried` results
/// behind `skip` go with the parameters behind `skip_formals`.
pub(super) fn fixed_point(
    importer: &mut Importer<'_>,
    scope: &Scope,
    body: &GraphProto,
    mut formals: Vec<Type>,
    captures: &[Capture],
    carried: (usize, usize, usize),
    label: &str,
) -> Result<Option<RegionId>> {
    let (first_formal, first_result, count) = carried;
    for _ in 0..MAX_WIDENINGS {
        let (n_faults, n_guards) = (importer.faults.len(), importer.graph.guards.len());
        let Some(region) = region(importer, scope, body, &formals, captures, label)? else { return Ok(None) };
        let results = importer.graph.region(region).results.clone();
        if results.len() < first_result + count {
            return Err(Reason::arity(format!("the body has {} outputs", results.len())));
        }
        let mut changed = false;
        for index in 0..count {
            let result = importer.graph.ty(results[first_result + index]).clone();
            changed |= widen(importer, &mut formals[first_formal + index], &result)?;
        }
        if !changed {
            return Ok(Some(region));
        }
        importer.faults.truncate(n_faults);
        importer.graph.guards.truncate(n_guards);
    }
    Err(Reason::new(FaultKind::Limit, "the types of carried values do not settle"))
}

pub(super) fn loop_node(importer: &mut Importer<'_>, scope: &mut Scope, site: Site<'_>) -> Converted {
    let Site { node, label, inputs } = site;
    let attrs = Attrs::new(node);
    let body = attrs.graph("body")?;
    attrs.check_all_known()?;
    let Some(captures) = captures(importer, scope, &[body]) else { return Ok(None) };
    let carried = inputs.len() - 2;
    let scalar = |dtype| Type::Tensor(TensorType { dtype, shape: Shape::scalar() });
    let mut formals = vec![scalar(DType::I64), scalar(DType::Bool)];
    for input in &inputs[2..] {
        let value = input.ok_or_else(|| Reason::arity("a carried value is missing"))?;
        formals.push(importer.graph.ty(value).clone());
    }
    let region = fixed_point(importer, scope, body, formals, &captures, (2, 1, carried), label)?;
    let Some(region) = region else { return Ok(None) };
    let inputs = inputs.into_iter().chain(operands(&captures)).collect();
    finish(importer, scope, Op::Loop(LoopAttrs { body: region, carried }), inputs, label)
}
