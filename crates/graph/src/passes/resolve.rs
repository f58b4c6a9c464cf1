//! Turns operators with run-time operands into their plain form, as soon as the operands' values are known.
//!
//! `ReshapeDynamic(x, shape)` becomes `Reshape[dims=..](x)` when inference has followed the shape, a slice with
//! constant bounds becomes `Slice`, and so on; what computed the operands is then dead. A tensor of extents that
//! is still needed as data becomes `FromDims`.

use std::collections::BTreeSet;

use tilewright_dtype::DType;

use crate::dim::Dim;
use crate::graph::{Graph, Node};
use crate::ids::{NodeId, SymbolId, ValueId};
use crate::infer::slice_bounds;
use crate::op::*;
use crate::pass::PassError;
use crate::patch::{Patch, Rule, Source, View, rewrite};
use crate::symbol::SymbolKind;

/// Resolves what can be, by types inferred again.
pub fn resolve(graph: &mut Graph) -> Result<bool, PassError> {
    let refined = crate::infer::refine(graph);
    Ok(rewrite(graph, RULES, 4)? | refined)
}

const RULES: &[Rule] = &[
    Rule { name: "resolve_elements", apply: resolve_elements },
    Rule { name: "resolve_reshape", apply: resolve_reshape },
    Rule { name: "resolve_by_dims", apply: resolve_by_dims },
    Rule { name: "resolve_slice", apply: resolve_slice },
    Rule { name: "resolve_split", apply: resolve_split },
    Rule { name: "resolve_pad", apply: resolve_pad },
    Rule { name: "resolve_axes", apply: resolve_axes },
    Rule { name: "resolve_tile", apply: resolve_tile },
    Rule { name: "resolve_range", apply: resolve_range },
    Rule { name: "resolve_resize", apply: resolve_resize },
    Rule { name: "resolve_scalar_operand", apply: resolve_scalar_operand },
];

fn result_dims<'a>(view: &View<'a>, node: &Node) -> Option<&'a [Dim]> {
    view.graph.dims(node.output()?)
}

fn integers(view: &View<'_>, node: &Node, position: usize) -> Option<Vec<i64>> {
    view.graph.shape_value(node.input(position)?)?.iter().map(Dim::as_const).collect()
}

/// Whether every symbol in the extents is known before the node runs: bound by a graph input, or part of what
/// is known about the node's operands. (Else it is the node itself that computes it.)
fn are_known(view: &View<'_>, node: &Node, dims: &[Dim]) -> bool {
    let operands = node.inputs.iter().flatten();
    let of_operands: BTreeSet<SymbolId> = operands
        .flat_map(|&value| {
            let (dims, elements) = (view.graph.dims(value), view.graph.shape_value(value));
            [dims, elements].into_iter().flatten().flatten().flat_map(Dim::symbols)
        })
        .collect();
    dims.iter()
        .flat_map(Dim::symbols)
        .all(|symbol| view.graph.symbols[symbol].kind == SymbolKind::Input || of_operands.contains(&symbol))
}

/// Arithmetic on extents collapses to one node that holds the extents. Constants are left to constant folding.
fn resolve_elements(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let &[value] = node.outputs.as_slice() else { return None };
    if matches!(node.op, Op::FromDims(_) | Op::Constant(_)) {
        return None;
    }
    let ty = view.graph.tensor_type(value)?;
    let values = view.graph.shape_value(value)?;
    let rank = ty.shape.rank()?;
    if !matches!(ty.dtype, DType::I64 | DType::I32)
        || rank > 1
        || values.iter().all(|v| v.as_const().is_some())
    {
        return None;
    }
    let attrs = FromDimsAttrs { values: values.to_vec(), scalar: rank == 0, dtype: ty.dtype };
    Some(Patch::single(Op::FromDims(attrs), []))
}

fn resolve_reshape(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::ReshapeDynamic(_) = node.op else { return None };
    view.graph.shape_value(node.input(1)?)?;
    Some(Patch::single(Op::reshape(result_dims(view, node)?.to_vec()), [node.input(0)?]))
}

/// Operators whose plain form is their operand and the extents of the result.
fn resolve_by_dims(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let known =
        |position: usize| node.input(position).is_some_and(|value| view.graph.shape_value(value).is_some());
    let dims = || Some(result_dims(view, node)?.to_vec());
    match node.op {
        Op::ExpandDynamic if known(1) => {
            Some(Patch::single(Op::Expand(DimsAttrs { dims: dims()? }), [node.input(0)?]))
        }
        Op::FullDynamic if known(0) => {
            Some(Patch::single(Op::Full(DimsAttrs { dims: dims()? }), [node.input(1)?]))
        }
        _ => None,
    }
}

fn resolve_slice(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::SliceDynamic = node.op else { return None };
    let x = node.input(0)?;
    let dims = view.graph.dims(x)?;
    let result = result_dims(view, node)?;
    let starts = view.graph.shape_value(node.input(1)?)?;
    let ends = view.graph.shape_value(node.input(2)?)?;
    let listed =
        if node.input(3).is_some() { integers(view, node, 3)? } else { (0..starts.len() as i64).collect() };
    let steps = if node.input(4).is_some() { integers(view, node, 4)? } else { vec![1; listed.len()] };
    let mut attrs = SliceAttrs { axes: vec![], starts: vec![], steps: vec![], sizes: vec![] };
    for (index, axis) in listed.into_iter().enumerate() {
        let axis = usize::try_from(if axis < 0 { axis + dims.len() as i64 } else { axis }).ok()?;
        let step = *steps.get(index)?;
        let symbols = &view.graph.symbols;
        let bounds = slice_bounds(dims.get(axis)?, starts.get(index)?, ends.get(index)?, step, symbols)?;
        attrs.axes.push(axis);
        attrs.starts.push(bounds.start);
        attrs.steps.push(step);
        attrs.sizes.push(result.get(axis)?.clone());
    }
    Some(Patch::single(Op::Slice(attrs), [x]))
}

fn resolve_split(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::SplitDynamic(AxisAttrs { axis }) = node.op else { return None };
    let sizes = view.graph.shape_value(node.input(1)?)?.to_vec();
    if sizes.len() != node.outputs.len() {
        return None;
    }
    let mut patch = Patch::new();
    let count = sizes.len();
    patch.add(Op::Split(SplitAttrs { axis, sizes }), [Source::Old(node.input(0)?)]);
    Some((0..count).fold(patch, |patch, position| patch.replace(Source::New(0, position))))
}

fn resolve_pad(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::PadDynamic(PadDynamicAttrs { mode }) = node.op else { return None };
    let x = node.input(0)?;
    let rank = view.graph.dims(x)?.len();
    let pads = view.graph.shape_value(node.input(1)?)?;
    let axes = if node.input(3).is_some() { integers(view, node, 3)? } else { (0..rank as i64).collect() };
    let (mut before, mut after) = (vec![Dim::ZERO; rank], vec![Dim::ZERO; rank]);
    for (index, &axis) in axes.iter().enumerate() {
        let axis = usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok()?;
        *before.get_mut(axis)? = pads.get(index)?.clone();
        *after.get_mut(axis)? = pads.get(index + axes.len())?.clone();
    }
    let inputs = [Some(x), node.input(2)];
    Some(Patch::single(Op::Pad(PadAttrs { mode, before, after }), inputs.into_iter().flatten()))
}

/// Reductions and running sums over axes that have become known.
fn resolve_axes(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let x = node.input(0)?;
    let axis_of =
        |axis: i64, rank: usize| usize::try_from(if axis < 0 { axis + rank as i64 } else { axis }).ok();
    match &node.op {
        Op::ReduceDynamic(attrs) => {
            let rank = view.graph.dims(x)?.len();
            let mut axes: Vec<usize> = integers(view, node, 1)?
                .into_iter()
                .map(|axis| axis_of(axis, rank))
                .collect::<Option<_>>()?;
            axes.sort_unstable();
            axes.dedup();
            if axes.is_empty() && !attrs.empty_is_noop {
                axes = (0..rank).collect();
            }
            Some(Patch::single(Op::reduce(attrs.kind, axes, attrs.keep_dims), [x]))
        }
        Op::Cumulative(attrs) if attrs.axis.is_none() => {
            let rank = view.graph.dims(x)?.len();
            let &[axis] = integers(view, node, 1)?.as_slice() else { return None };
            let axis = Some(axis_of(axis, rank)?);
            Some(Patch::single(Op::Cumulative(CumulativeAttrs { axis, ..attrs.clone() }), [x]))
        }
        _ => None,
    }
}

fn resolve_tile(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::TileDynamic = node.op else { return None };
    let repeats = view.graph.shape_value(node.input(1)?)?.to_vec();
    Some(Patch::single(Op::Tile(TileAttrs { repeats }), [node.input(0)?]))
}

fn resolve_range(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::RangeDynamic = node.op else { return None };
    let [len] = result_dims(view, node)? else { return None };
    if !are_known(view, node, std::slice::from_ref(len)) {
        return None;
    }
    Some(Patch::single(Op::Iota(IotaAttrs { len: len.clone() }), [node.input(0)?, node.input(2)?]))
}

fn resolve_resize(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let Op::ResizeDynamic(attrs) = &node.op else { return None };
    let reals = |position: usize| -> Option<Vec<Real>> {
        let values = view.graph.constant(node.input(position)?)?.to_f64s()?;
        Some(values.into_iter().map(|value| Real(value as f32)).collect())
    };
    let by_sizes = node.input(3).is_some();
    let mut attrs = attrs.clone();
    if by_sizes {
        view.graph.shape_value(node.input(3)?)?;
    } else {
        attrs.scales = reals(2)?;
    }
    if attrs.coordinates == CoordinateMode::TfCropAndResize {
        attrs.roi = reals(1)?;
    }
    attrs.dims = result_dims(view, node)?.to_vec();
    if !are_known(view, node, &attrs.dims) {
        return None;
    }
    if by_sizes
        && attrs.policy != AspectPolicy::Stretch
        && !attrs.dims.iter().all(|dim| dim.as_const().is_some())
    {
        return None;
    }
    Some(Patch::single(Op::Resize(attrs), [node.input(0)?]))
}

/// Operands that become an optional attribute: the count of `TopK`, the depth of `OneHot`, ...
fn resolve_scalar_operand(view: &View<'_>, id: NodeId) -> Option<Patch> {
    let node = view.graph.node(id);
    let scalar = |position: usize| match view.graph.shape_value(node.input(position)?)? {
        [value] => Some(value.clone()),
        _ => None,
    };
    let one = |op: Op, inputs: &[ValueId]| Some(Patch::single(op, inputs.iter().copied()));
    let x = node.input(0)?;
    match &node.op {
        Op::TopK(attrs) if attrs.k.is_none() => {
            let mut patch = Patch::new();
            let k = Some(scalar(1)?);
            patch.add(Op::TopK(TopKAttrs { k, ..attrs.clone() }), [Source::Old(x)]);
            Some(patch.replace(Source::New(0, 0)).replace(Source::New(0, 1)))
        }
        Op::OneHot(attrs) if attrs.depth.is_none() => {
            let depth = Some(scalar(2)?);
            one(Op::OneHot(OneHotAttrs { depth, axis: attrs.axis }), &[x, node.input(1)?])
        }
        Op::Trilu(attrs) if attrs.diagonal.is_none() => {
            let diagonal = if node.input(1).is_some() { scalar(1)?.as_const()? } else { 0 };
            one(Op::Trilu(TriluAttrs { diagonal: Some(diagonal), upper: attrs.upper }), &[x])
        }
        Op::Col2Im(attrs) if attrs.image.is_empty() => {
            let image = view.graph.shape_value(node.input(1)?)?.to_vec();
            let block: Option<Vec<usize>> =
                integers(view, node, 2)?.into_iter().map(|extent| usize::try_from(extent).ok()).collect();
            one(Op::Col2Im(Col2ImAttrs { image, block: block?, ..attrs.clone() }), &[x])
        }
        Op::Dft(attrs) if node.inputs.len() > 1 => {
            let rank = view.graph.dims(x)?.len() as i64;
            let axis = match attrs.axis {
                Some(axis) => axis,
                None => {
                    let axis = scalar(2)?.as_const()?;
                    usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?
                }
            };
            let length = if node.input(1).is_some() { Some(scalar(1)?) } else { attrs.length.clone() };
            one(Op::Dft(DftAttrs { axis: Some(axis), length, ..attrs.clone() }), &[x])
        }
        Op::Stft(attrs) if attrs.frame_step.is_none() => {
            let step = scalar(1)?.as_const()?;
            let length =
                if node.input(3).is_some() { Some(scalar(3)?.as_const()?) } else { attrs.frame_length };
            let mut patch = Patch::new();
            let op = Op::Stft(StftAttrs { frame_step: Some(step), frame_length: length, ..attrs.clone() });
            let inputs = vec![Some(Source::Old(x)), None, node.input(2).map(Source::Old)];
            let value = patch.add_sparse(op, inputs, None);
            Some(patch.replace(value))
        }
        _ => None,
    }
}
