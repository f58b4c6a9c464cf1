//! `Scan`, of opset 8 with a batch and of later ones without.

use tilewright_graph::op::{BinaryOp, IotaAttrs, Op, ReverseSequenceAttrs, ScanAttrs};
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{DType, RegionId, TensorType, Type, ValueId};

use super::attrs::{Attrs, missing};
use super::captures::{Capture, bind_captures, captures, operands};
use super::control::{finish, fixed_point};
use super::cx::size;
use super::error::{Reason, Result};
use super::importer::{Converted, Importer, Scope, Site};
use crate::proto::{GraphProto, ValueInfoProto};

/// What a scan runs over, and how.
struct Scanned<'a> {
    body: &'a GraphProto,
    states: usize,
    input_axes: Vec<i64>,
    input_reversed: Vec<bool>,
    output_axes: Vec<i64>,
    output_reversed: Vec<bool>,
    /// Whether the last scanned input says if a step is within its sequence.
    bounded: bool,
}

pub(super) fn scan_node(importer: &mut Importer<'_>, scope: &mut Scope, site: Site<'_>) -> Converted {
    let Site { node, label, inputs } = site;
    let attrs = Attrs::new(node);
    let (body, scanned, states, outputs) = counts(&attrs, inputs.len())?;
    let reversed = |ways: Vec<i64>| ways.into_iter().map(|way| way != 0).collect();
    let what = Scanned {
        body,
        states,
        input_axes: list(&attrs, "scan_input_axes", scanned)?,
        input_reversed: reversed(list(&attrs, "scan_input_directions", scanned)?),
        output_axes: list(&attrs, "scan_output_axes", outputs)?,
        output_reversed: reversed(list(&attrs, "scan_output_directions", outputs)?),
        bounded: false,
    };
    attrs.check_all_known()?;
    let Some(captures) = captures(importer, scope, &[body]) else { return Ok(None) };
    scan(importer, scope, &what, present(inputs)?, &captures, label)
}

/// Body, and the numbers of scanned inputs, states and scan outputs.
fn counts<'a>(attrs: &Attrs<'a>, inputs: usize) -> Result<(&'a GraphProto, usize, usize, usize)> {
    let body = attrs.graph("body")?;
    let scanned = attrs.opt_int("num_scan_inputs")?.ok_or_else(|| missing("num_scan_inputs"))?;
    let scanned = size("num_scan_inputs", scanned)?;
    let states = inputs.checked_sub(scanned).ok_or_else(|| Reason::arity("too few inputs"))?;
    let outputs = body.output.len().checked_sub(states);
    let outputs = outputs.ok_or_else(|| Reason::arity("the body has too few outputs"))?;
    Ok((body, scanned, states, outputs))
}

/// An attribute with an entry for each scanned value; all 0 if it is not there.
fn list(attrs: &Attrs<'_>, name: &str, len: usize) -> Result<Vec<i64>> {
    let values = attrs.ints(name)?.map_or(vec![0; len], <[i64]>::to_vec);
    let message = || Reason::malformed(format!("`{name}` has {} entries, not {len}", values.len()));
    if values.len() == len { Ok(values.clone()) } else { Err(message()) }
}

fn present(inputs: Vec<Option<ValueId>>) -> Result<Vec<ValueId>> {
    let missing = |index: usize| Reason::arity(format!("input {index} is missing"));
    inputs.into_iter().enumerate().map(|(index, input)| input.ok_or_else(|| missing(index))).collect()
}

fn scan(
    importer: &mut Importer<'_>,
    scope: &Scope,
    what: &Scanned<'_>,
    inputs: Vec<ValueId>,
    captures: &[Capture],
    label: &str,
) -> Converted {
    let states = what.states;
    let mut formals = Vec::new();
    let mut axes = Vec::new();
    for (index, &value) in inputs.iter().enumerate() {
        if index < states {
            formals.push(importer.graph.ty(value).clone());
            continue;
        }
        let (axis, ty) = without_axis(importer, value, what.input_axes[index - states])?;
        axes.push(axis);
        formals.push(ty);
    }
    let region = fixed_point(importer, scope, what.body, formals, captures, (0, 0, states), label)?;
    let Some(region) = region else { return Ok(None) };
    if what.bounded {
        bound(importer, region, states, inputs.len() - 1, label)?;
    }
    let results = importer.graph.region(region).results.clone();
    let mut stacked_axes = Vec::new();
    for (&axis, &value) in what.output_axes.iter().zip(&results[states..]) {
        let rank = match importer.graph.dims(value) {
            Some(dims) => dims.len() + 1,
            None if axis >= 0 => usize::MAX,
            None => return Err(Reason::unsupported("the rank of a scan output is not known")),
        };
        stacked_axes.push(axis_in(axis, rank)?);
    }
    let attrs = ScanAttrs {
        body: region,
        states,
        input_axes: axes,
        input_reversed: what.input_reversed.clone(),
        output_axes: stacked_axes,
        output_reversed: what.output_reversed.clone(),
    };
    let inputs = inputs.into_iter().map(Some).chain(operands(captures)).collect();
    finish(importer, scope, Op::Scan(attrs), inputs, label)
}

/// A scanned axis, and the type of the pieces.
fn without_axis(importer: &Importer<'_>, value: ValueId, axis: i64) -> Result<(usize, Type)> {
    let unranked = || Reason::unsupported("the rank of a scanned operand is not known");
    let tensor = importer.graph.tensor_type(value).ok_or_else(unranked)?;
    let mut dims = tensor.shape.dims().ok_or_else(unranked)?.to_vec();
    let axis = axis_in(axis, dims.len())?;
    dims.remove(axis);
    Ok((axis, Type::Tensor(TensorType::new(tensor.dtype, dims))))
}

fn axis_in(axis: i64, rank: usize) -> Result<usize> {
    let normal = if axis < 0 { axis.saturating_add(i64::try_from(rank).unwrap_or(i64::MAX)) } else { axis };
    let inside = usize::try_from(normal).ok().filter(|&normal| normal < rank);
    inside.ok_or_else(|| Reason::malformed(format!("axis {axis} is out of range")))
}

/// Name of the body's input that says whether a step is within its sequence; no model has it.
const ACTIVE: &str = "\0active";

/// `Scan` of opset 8: a scan over the batch, in the body of which a scan over time runs. Where lengths are given,
/// steps past a sequence's end keep the states and give zeros, and backwards is from that end, as in ONNX Runtime.
pub(super) fn batched_scan(importer: &mut Importer<'_>, scope: &mut Scope, site: Site<'_>) -> Converted {
    let Site { node, label, mut inputs } = site;
    let attrs = Attrs::new(node);
    let lengths = inputs.remove(0);
    let mut inputs = present(inputs)?;
    let (body, scanned, states, outputs) = counts(&attrs, inputs.len())?;
    let mut reversed: Vec<bool> =
        list(&attrs, "directions", scanned)?.into_iter().map(|way| way != 0).collect();
    attrs.check_all_known()?;
    if scanned == 0 {
        return Err(Reason::arity("a batch needs a scanned input"));
    }
    if let Some(lengths) = lengths.filter(|_| reversed.contains(&true)) {
        let lengths = importer.emit(scope.region, Op::cast(DType::I64), &[lengths], label)?;
        for (input, reversed) in inputs[states..].iter_mut().zip(&mut reversed) {
            if std::mem::take(reversed) {
                let op = Op::ReverseSequence(ReverseSequenceAttrs { batch_axis: 0, time_axis: 1 });
                *input = importer.emit(scope.region, op, &[*input, lengths], label)?;
            }
        }
    }
    let Some(outside) = captures(importer, scope, &[body]) else { return Ok(None) };
    // The body of the outer scan: one sequence.
    let region = importer.graph.add_region();
    let mut inner = Scope { region, names: Default::default(), named: false, ..scope.clone() };
    let mut entries = Vec::new();
    for &value in inputs.iter().chain(&lengths) {
        let (_, ty) = without_axis(importer, value, 0)?;
        entries.push(importer.graph.add_param(region, None, ty));
    }
    bind_captures(importer, &mut inner, &outside);
    let mut what = Scanned {
        body,
        states,
        input_axes: vec![0; scanned],
        input_reversed: reversed,
        output_axes: vec![0; outputs],
        output_reversed: vec![false; outputs],
        bounded: lengths.is_some(),
    };
    let mut bounded = body.clone();
    if lengths.is_some() {
        bounded.input.push(ValueInfoProto { name: Some(ACTIVE.to_owned()), ..ValueInfoProto::default() });
        let length = entries.pop().ok_or_else(|| Reason::arity("too few inputs"))?;
        entries.push(active_steps(importer, region, entries[states], length, label)?);
        what.input_axes.push(0);
        what.input_reversed.push(false);
        what.body = &bounded;
    }
    let Some(inside) = captures(importer, &mut inner, &[body]) else { return Ok(None) };
    let Some(results) = scan(importer, &inner, &what, entries, &inside, label)? else { return Ok(None) };
    importer.graph.set_results(region, results.clone());
    let count = inputs.len() + usize::from(lengths.is_some());
    let attrs = ScanAttrs {
        body: region,
        states: 0,
        input_axes: vec![0; count],
        input_reversed: vec![false; count],
        output_axes: vec![0; results.len()],
        output_reversed: vec![false; results.len()],
    };
    let all = inputs.into_iter().chain(lengths).map(Some).chain(operands(&outside)).collect();
    finish(importer, scope, Op::Scan(attrs), all, label)
}

/// Whether each step of a sequence, which runs along axis 0 of `sequence`, is before its length.
fn active_steps(
    importer: &mut Importer<'_>,
    region: RegionId,
    sequence: ValueId,
    length: ValueId,
    label: &str,
) -> Result<ValueId> {
    let len = importer.graph.dims(sequence).and_then(|dims| dims.first().cloned());
    let len = len.ok_or_else(|| Reason::ty("a scanned operand has no axis for time"))?;
    let mut emit = |op: Op, inputs: &[ValueId]| importer.emit(region, op, inputs, label);
    let zero = emit(Op::Constant(Tensor::scalar(0i64)), &[])?;
    let one = emit(Op::Constant(Tensor::scalar(1i64)), &[])?;
    let steps = emit(Op::Iota(IotaAttrs { len }), &[zero, one])?;
    let length = emit(Op::cast(DType::I64), &[length])?;
    emit(Op::Binary(BinaryOp::Less), &[steps, length])
}

/// Lets the results of a body be what they were, or zeros, at steps that are not active.
fn bound(
    importer: &mut Importer<'_>,
    region: RegionId,
    states: usize,
    active: usize,
    label: &str,
) -> Result<()> {
    let params = importer.graph.region(region).params.clone();
    let mut results = importer.graph.region(region).results.clone();
    for (position, result) in results.iter_mut().enumerate() {
        let idle = if position < states {
            params[position]
        } else {
            let dtype = importer.graph.tensor_type(*result).map(|tensor| tensor.dtype);
            let zero = dtype.and_then(|dtype| Tensor::scalar_of(dtype, 0.0));
            let zero =
                zero.ok_or_else(|| Reason::unsupported("scan outputs with lengths must be numbers"))?;
            importer.emit(region, Op::Constant(zero), &[], label)?
        };
        *result = importer.emit(region, Op::Where, &[params[active], *result, idle], label)?;
    }
    importer.graph.set_results(region, results);
    Ok(())
}
