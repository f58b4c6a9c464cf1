//! Movement of elements: reshaping, transposing, slicing, joining, padding.

use tilewright_graph::op::{
    AxisAttrs, BinaryOp, CenterCropPadAttrs, CumulativeAttrs, CumulativeKind, IotaAttrs, Op, PadAttrs,
    PadDynamicAttrs, PadMode, ReverseSequenceAttrs, ScatterElementsAttrs, ScatterReduction, ShapeAttrs,
    SplitAttrs, TopKAttrs, TriluAttrs,
};
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{Comparison, DType, Dim, Guard, SymbolKind, ValueId};

use super::attrs::missing;
use super::cx::{Cx, size as checked_size};
use super::error::{Reason, Result};

/// The shape is an attribute before opset 5, an operand later.
pub(super) fn reshape(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    if cx.opset < 5 {
        let shape = cx.attrs.ints("shape")?.ok_or_else(|| missing("shape"))?;
        return Ok(vec![cx.reshape_ints(x, shape)?]);
    }
    let shape = cx.input(1)?;
    let allow_zero = cx.opset >= 14 && cx.attrs.flag("allowzero", false)?;
    Ok(vec![cx.reshape_dynamic(x, shape, allow_zero)?])
}

pub(super) fn flatten(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let dims = cx.ranked(x)?;
    let axis = match cx.attrs.int("axis", 1)? {
        axis if axis == dims.len() as i64 => dims.len(),
        axis => cx.axis(axis, dims.len())?,
    };
    Ok(vec![cx.reshape(x, vec![Dim::product(&dims[..axis]), Dim::product(&dims[axis..])])?])
}

/// The `axes` attribute (before opset 13) or operand 1.
enum Axes {
    Absent,
    Known(Vec<i64>),
    Dynamic(ValueId),
}

fn axes(cx: &Cx<'_>) -> Result<Axes> {
    if cx.opset < 13 {
        return Ok(cx.attrs.ints("axes")?.map_or(Axes::Absent, |axes| Axes::Known(axes.to_vec())));
    }
    let Some(axes) = cx.opt(1) else { return Ok(Axes::Absent) };
    Ok(cx.known_ints(axes).map_or(Axes::Dynamic(axes), Axes::Known))
}

pub(super) fn squeeze(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let dims = cx.ranked(x)?;
    let axes = match axes(cx)? {
        Axes::Known(axes) => cx.axes(&axes, dims.len())?,
        Axes::Dynamic(axes) => return Ok(vec![squeeze_dynamic(cx, x, axes)?]),
        Axes::Absent if dims.iter().any(|dim| is_open_input(cx, dim)) => {
            let reason =
                Reason::unsupported("without `axes`, the rank of the result depends on open extents");
            return Err(reason.advise("fix the extents with --dim, or export with axes"));
        }
        Axes::Absent => {
            dims.iter().filter(|dim| dim.as_const().is_none()).for_each(|dim| assume_several(cx, dim));
            (0..dims.len()).filter(|&axis| dims[axis].is(1)).collect()
        }
    };
    if let Some(&axis) = axes.iter().find(|&&axis| dims[axis].as_const().is_some_and(|extent| extent != 1)) {
        return Err(Reason::ty(format!("axis {axis} has an extent other than 1")));
    }
    let kept = (0..dims.len()).filter(|axis| !axes.contains(axis)).map(|axis| dims[axis].clone()).collect();
    Ok(vec![cx.reshape(x, kept)?])
}

/// Whether an extent is open and follows from those of the inputs, which the user can fix.
fn is_open_input(cx: &Cx<'_>, dim: &Dim) -> bool {
    let of_inputs = |symbol| cx.graph.symbols[symbol].kind == SymbolKind::Input;
    dim.as_const().is_none() && dim.symbols().into_iter().all(of_inputs)
}

/// Takes an extent that is data to be no 1, under guard: the rank of the result must be known.
fn assume_several(cx: &mut Cx<'_>, dim: &Dim) {
    let names = cx.provenance.names().collect::<Vec<_>>().join("+");
    let message =
        format!("Squeeze `{names}`: without axes, an extent that follows from data must be above 1");
    let (left, comparison, region) = (Dim::new(2), Comparison::AtMost, cx.region);
    cx.graph.add_guard(Guard { left, comparison, right: dim.clone(), region, message });
}

pub(super) fn unsqueeze(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let axes = match axes(cx)? {
        Axes::Known(axes) => axes,
        Axes::Dynamic(axes) => return Ok(vec![unsqueeze_dynamic(cx, x, axes)?]),
        Axes::Absent => return Err(missing("axes")),
    };
    let mut rest = cx.ranked(x)?.into_iter();
    let rank = rest.len() + axes.len();
    let axes = cx.axes(&axes, rank)?;
    let dim = |axis| if axes.contains(&axis) { Dim::ONE } else { rest.next().unwrap_or(Dim::ONE) };
    let dims = (0..rank).map(dim).collect();
    Ok(vec![cx.reshape(x, dims)?])
}

/// The most axes that a run-time operand may list.
const MAX_AXES: i64 = 1024;

/// The number of axes that a run-time operand lists.
fn axis_count(cx: &Cx<'_>, axes: ValueId) -> Result<usize> {
    match cx.ranked(axes)?.as_slice() {
        [] => Ok(1),
        [count] => match count.as_const() {
            Some(count @ 0..=MAX_AXES) => Ok(count as usize),
            _ => Err(Reason::unsupported("the number of axes is not known, or too large")),
        },
        _ => Err(Reason::ty("the axes are not a vector")),
    }
}

/// Ones at the positions in `axes` (which may be negative) of a vector of `len`, else zeros.
fn axis_mask(cx: &mut Cx<'_>, axes: ValueId, len: usize) -> Result<(ValueId, usize)> {
    let count = axis_count(cx, axes)?;
    let len = len + count;
    let axes = cx.cast(axes, DType::I64)?;
    let axes = cx.reshape(axes, vec![Dim::from(count)])?;
    let zeros = cx.ints(&vec![0; len])?;
    let ones = cx.ints(&vec![1; count])?;
    let attrs = ScatterElementsAttrs { axis: 0, reduction: ScatterReduction::None };
    Ok((cx.emit(Op::ScatterElements(attrs), &[zeros, axes, ones])?, count))
}

/// The result's extents are gathered at run time: the k-th kept position takes the operand's k-th extent.
fn unsqueeze_dynamic(cx: &mut Cx<'_>, x: ValueId, axes: ValueId) -> Result<ValueId> {
    let rank = cx.rank(x)?;
    let (mask, count) = axis_mask(cx, axes, rank)?;
    if rank == 0 {
        return cx.reshape(x, vec![Dim::ONE; count]);
    }
    let one = cx.scalar(DType::I64, 1.0)?;
    let kept = cx.binary(BinaryOp::Sub, one, mask)?;
    // The number of kept positions before each one; below the rank, as the last kept one counts the others.
    let attrs = CumulativeAttrs { kind: CumulativeKind::Sum, axis: Some(0), exclusive: true, reverse: false };
    let source = cx.emit(Op::Cumulative(attrs), &[kept])?;
    let source = cx.binary_scalar(BinaryOp::Min, source, rank as f64 - 1.0)?;
    let extents = cx.emit(Op::Shape(ShapeAttrs { start: 0, end: rank }), &[x])?;
    let extents = cx.emit(Op::Gather(AxisAttrs { axis: 0 }), &[extents, source])?;
    let zero = cx.scalar(DType::I64, 0.0)?;
    let inserted = cx.binary(BinaryOp::Greater, mask, zero)?;
    let shape = cx.select(inserted, one, extents)?;
    cx.reshape_dynamic(x, shape, true)
}

/// The kept positions in order are those of the largest `kept * (rank - position)`.
fn squeeze_dynamic(cx: &mut Cx<'_>, x: ValueId, axes: ValueId) -> Result<ValueId> {
    let rank = cx.rank(x)?;
    let kept = rank.checked_sub(axis_count(cx, axes)?);
    let kept = kept.ok_or_else(|| Reason::malformed("there are more axes than the operand has"))?;
    if kept == 0 {
        return cx.reshape(x, Vec::new());
    }
    let (mask, _) = axis_mask(cx, axes, kept)?;
    let one = cx.scalar(DType::I64, 1.0)?;
    let flags = cx.binary(BinaryOp::Sub, one, mask)?;
    let weights = cx.ints(&(1..=rank as i64).rev().collect::<Vec<_>>())?;
    let weights = cx.binary(BinaryOp::Mul, flags, weights)?;
    let attrs = TopKAttrs { axis: 0, largest: true, sorted: true, k: Some(Dim::from(kept)) };
    let positions = cx.emit_n(Op::TopK(attrs), vec![Some(weights)], 2)?[1];
    let extents = cx.emit(Op::Shape(ShapeAttrs { start: 0, end: rank }), &[x])?;
    let shape = cx.emit(Op::Gather(AxisAttrs { axis: 0 }), &[extents, positions])?;
    cx.reshape_dynamic(x, shape, true)
}

pub(super) fn transpose(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let rank = cx.rank(x)?;
    let perm = match cx.attrs.ints("perm")? {
        Some(perm) => perm.iter().map(|&axis| cx.axis(axis, rank)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).rev().collect(),
    };
    Ok(vec![cx.transpose(x, &perm)?])
}

pub(super) fn expand(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, shape) = (cx.input(0)?, cx.input(1)?);
    Ok(vec![cx.emit(Op::ExpandDynamic, &[x, shape])?])
}

pub(super) fn concat(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let axis = if cx.opset < 4 { cx.attrs.int("axis", 1)? } else { cx.required_int("axis")? };
    let axis = cx.axis(axis, cx.rank(cx.input(0)?)?)?;
    let inputs = cx.inputs.clone();
    Ok(vec![cx.emit_opt(Op::Concat(AxisAttrs { axis }), inputs)?])
}

/// Sizes are an attribute before opset 13, an operand later; without them the parts are equal, but for a
/// smaller last one from opset 18 on.
pub(super) fn split(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let axis = cx.axis_attr(0, x)?;
    let n_outputs = cx.node.output.len();
    let attribute = if cx.opset < 13 { cx.attrs.ints("split")?.map(<[i64]>::to_vec) } else { None };
    let operand = if cx.opset < 13 { None } else { cx.opt(1) };
    if let Some(count) = cx.attrs.opt_int("num_outputs")?.filter(|_| cx.opset >= 18)
        && checked_size("num_outputs", count)? != n_outputs
    {
        return Err(Reason::arity(format!("`num_outputs` is {count}, but there are {n_outputs} outputs")));
    }
    let sizes: Vec<Dim> = match (attribute, operand) {
        (Some(sizes), _) => sizes.into_iter().map(Dim::from).collect(),
        (None, Some(operand)) => match cx.graph.shape_value(operand) {
            Some(sizes) => sizes.to_vec(),
            None => {
                return cx.emit_n(
                    Op::SplitDynamic(AxisAttrs { axis }),
                    vec![Some(x), Some(operand)],
                    n_outputs,
                );
            }
        },
        (None, None) => {
            let extent = cx.ranked(x)?[axis].clone();
            let part = extent.ceil_div(&Dim::from(n_outputs));
            let mut sizes = vec![part.clone(); n_outputs];
            if let Some(last) = sizes.last_mut() {
                *last = extent - part * Dim::from(n_outputs - 1);
            }
            sizes
        }
    };
    if sizes.len() != n_outputs {
        return Err(Reason::arity(format!("{} sizes are given for {n_outputs} outputs", sizes.len())));
    }
    cx.emit_n(Op::Split(SplitAttrs { axis, sizes }), vec![Some(x)], n_outputs)
}

/// Bounds are attributes before opset 10, operands later.
pub(super) fn slice(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    if cx.opset >= 10 {
        cx.input(2)?;
        let inputs = cx.inputs.clone();
        return Ok(vec![cx.emit_opt(Op::SliceDynamic, inputs)?]);
    }
    let starts = cx.attrs.ints("starts")?.ok_or_else(|| missing("starts"))?;
    let ends = cx.attrs.ints("ends")?.ok_or_else(|| missing("ends"))?;
    let axes = cx.attrs.ints("axes")?;
    let (starts, ends) = (cx.ints(starts)?, cx.ints(ends)?);
    let axes = axes.map(|axes| cx.ints(axes)).transpose()?;
    Ok(vec![cx.emit_opt(Op::SliceDynamic, vec![Some(x), Some(starts), Some(ends), axes])?])
}

/// Amounts are an attribute before opset 11 (called `paddings` in opset 1), an operand later.
pub(super) fn pad(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let modes = [
        ("constant", PadMode::Constant),
        ("edge", PadMode::Edge),
        ("reflect", PadMode::Reflect),
        ("wrap", PadMode::Wrap),
    ];
    let mode = cx.keyword("mode", "constant", &modes)?;
    if cx.opset >= 11 {
        cx.input(1)?;
        let mut inputs = cx.inputs.clone();
        if let Some(value) = cx.opt_non_empty(2) {
            inputs[2] = Some(cx.reshape(value, Vec::new())?);
        } else if let Some(value) = inputs.get_mut(2) {
            *value = None;
        }
        return Ok(vec![cx.emit_opt(Op::PadDynamic(PadDynamicAttrs { mode }), inputs)?]);
    }
    let name = if cx.opset < 2 { "paddings" } else { "pads" };
    let pads = cx.attrs.ints(name)?.ok_or_else(|| missing(name))?;
    let value = f64::from(cx.attrs.float("value", 0.0)?);
    let rank = cx.rank(x)?;
    if pads.len() != 2 * rank {
        return Err(Reason::malformed(format!("`{name}` has {} entries for rank {rank}", pads.len())));
    }
    let side = |pads: &[i64]| pads.iter().map(|&pad| Dim::from(pad)).collect::<Vec<_>>();
    let attrs = PadAttrs { mode, before: side(&pads[..rank]), after: side(&pads[rank..]) };
    let value = if value == 0.0 { None } else { Some(cx.scalar_like(x, value)?) };
    Ok(vec![cx.emit_opt(Op::Pad(attrs), vec![Some(x), value])?])
}

/// Opset 1 tiles a single axis, which is an operand too.
pub(super) fn tile(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, mut repeats) = (cx.input(0)?, cx.input(1)?);
    if cx.opset < 6 {
        let axis = cx.input(2)?;
        let known = (cx.known_scalar(repeats), cx.known_scalar(axis));
        let (Some(count), Some(axis)) = known else {
            return Err(Reason::unsupported("the axis or count of copies is not constant"));
        };
        let rank = cx.rank(x)?;
        let mut counts = vec![1; rank];
        counts[cx.axis(axis as i64, rank)?] = count as i64;
        repeats = cx.ints(&counts)?;
    }
    Ok(vec![cx.emit(Op::TileDynamic, &[x, repeats])?])
}

pub(super) fn shape(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let rank = cx.rank(x)? as i64;
    let clamp =
        |bound: i64| (if bound < 0 { bound.saturating_add(rank) } else { bound }).clamp(0, rank) as usize;
    let (start, end) = if cx.opset >= 15 {
        (clamp(cx.attrs.int("start", 0)?), clamp(cx.attrs.int("end", rank)?))
    } else {
        (0, rank as usize)
    };
    if end <= start {
        return Ok(vec![cx.constant(Tensor::vector::<i64>(&[]))?]);
    }
    Ok(vec![cx.emit(Op::Shape(ShapeAttrs { start, end }), &[x])?])
}

pub(super) fn size(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(vec![cx.emit(Op::Size, &[x])?])
}

/// Block elements come from the outer channels (`DCR`) or the inner ones (`CRD`).
pub(super) fn depth_to_space(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let (n, c, h, w) = image_dims(cx, x)?;
    let block = block_size(cx)?;
    let column_row = cx.opset >= 11 && cx.keyword("mode", "DCR", &[("DCR", false), ("CRD", true)])?;
    let depth = c.floor_div(&(block.clone() * block.clone()));
    let (split, perm) = if column_row {
        (
            vec![n.clone(), depth.clone(), block.clone(), block.clone(), h.clone(), w.clone()],
            [0, 1, 4, 2, 5, 3],
        )
    } else {
        (
            vec![n.clone(), block.clone(), block.clone(), depth.clone(), h.clone(), w.clone()],
            [0, 3, 4, 1, 5, 2],
        )
    };
    let blocks = cx.reshape(x, split)?;
    let blocks = cx.transpose(blocks, &perm)?;
    Ok(vec![cx.reshape(blocks, vec![n, depth, h * block.clone(), w * block])?])
}

pub(super) fn space_to_depth(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let (n, c, h, w) = image_dims(cx, x)?;
    let block = block_size(cx)?;
    let column_row = cx.opset >= 28 && cx.keyword("mode", "DCR", &[("DCR", false), ("CRD", true)])?;
    let (rows, columns) = (h.floor_div(&block), w.floor_div(&block));
    let split = vec![n.clone(), c.clone(), rows.clone(), block.clone(), columns.clone(), block.clone()];
    let blocks = cx.reshape(x, split)?;
    let perm = if column_row { [0, 1, 3, 5, 2, 4] } else { [0, 3, 5, 1, 2, 4] };
    let blocks = cx.transpose(blocks, &perm)?;
    Ok(vec![cx.reshape(blocks, vec![n, c * block.clone() * block, rows, columns])?])
}

fn image_dims(cx: &Cx<'_>, x: ValueId) -> Result<(Dim, Dim, Dim, Dim)> {
    match cx.ranked(x)?.as_slice() {
        [n, c, h, w] => Ok((n.clone(), c.clone(), h.clone(), w.clone())),
        dims => Err(Reason::ty(format!("the operand has rank {}, not 4", dims.len()))),
    }
}

fn block_size(cx: &Cx<'_>) -> Result<Dim> {
    match cx.size_attr("blocksize", 0)? {
        0 => Err(Reason::malformed("`blocksize` is missing or 0")),
        block => Ok(Dim::from(block)),
    }
}

pub(super) fn trilu(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, k) = (cx.input(0)?, cx.opt(1));
    let upper = cx.attrs.flag("upper", true)?;
    let known = match k {
        None => Some(0),
        Some(k) => cx.known_ints(k).and_then(|k| k.first().copied()),
    };
    let operand = k.filter(|_| known.is_none());
    Ok(vec![cx.emit_opt(Op::Trilu(TriluAttrs { upper, diagonal: known }), vec![Some(x), operand])?])
}

pub(super) fn center_crop_pad(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, shape) = (cx.input(0)?, cx.input(1)?);
    let rank = cx.rank(x)?;
    let axes = match cx.attrs.ints("axes")? {
        Some(axes) => axes.iter().map(|&axis| cx.axis(axis, rank)).collect::<Result<Vec<_>>>()?,
        None => (0..rank).collect(),
    };
    Ok(vec![cx.emit(Op::CenterCropPad(CenterCropPadAttrs { axes }), &[x, shape])?])
}

pub(super) fn reverse_sequence(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, lengths) = (cx.input(0)?, cx.input(1)?);
    let rank = cx.rank(x)?;
    let batch_axis = cx.axis(cx.attrs.int("batch_axis", 1)?, rank)?;
    let time_axis = cx.axis(cx.attrs.int("time_axis", 0)?, rank)?;
    let attrs = ReverseSequenceAttrs { batch_axis, time_axis };
    Ok(vec![cx.emit(Op::ReverseSequence(attrs), &[x, lengths])?])
}

/// `0, 1, ..` along an extent, `i64`.
pub(super) fn positions(cx: &mut Cx<'_>, len: Dim) -> Result<ValueId> {
    let (zero, one) = (cx.scalar(DType::I64, 0.0)?, cx.scalar(DType::I64, 1.0)?);
    cx.emit(Op::Iota(IotaAttrs { len }), &[zero, one])
}
