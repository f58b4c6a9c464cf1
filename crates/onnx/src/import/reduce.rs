//! Reductions, running reductions and top-k.

use tilewright_graph::op::{
    ArgReduceAttrs, CumulativeAttrs, CumulativeKind, Extreme, Op, ReduceDynamicAttrs, ReduceKind, TopKAttrs,
};
use tilewright_graph::{DType, Dim, ValueId};

use super::cx::Cx;
use super::error::Result;

/// Axes are an attribute before opset 18 (13 for sums), an operand later.
pub(super) fn reduce(cx: &mut Cx<'_>, kind: ReduceKind) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let keep_dims = cx.attrs.flag("keepdims", true)?;
    let by_operand = cx.opset >= if kind == ReduceKind::Sum { 13 } else { 18 };
    let (axes, empty_is_noop) = if by_operand {
        let empty_is_noop = cx.attrs.flag("noop_with_empty_axes", false)?;
        match cx.opt(1) {
            Some(axes) => match cx.known_ints(axes) {
                Some(axes) => (axes, empty_is_noop),
                None => {
                    let op = Op::ReduceDynamic(ReduceDynamicAttrs { kind, keep_dims, empty_is_noop });
                    return Ok(vec![cx.emit(op, &[x, axes])?]);
                }
            },
            None => (Vec::new(), empty_is_noop),
        }
    } else {
        (cx.attrs.ints("axes")?.unwrap_or_default().to_vec(), false)
    };
    let rank = cx.rank(x)?;
    let axes = if axes.is_empty() && !empty_is_noop { (0..rank).collect() } else { cx.axes(&axes, rank)? };
    Ok(vec![cx.reduce(kind, x, &axes, keep_dims)?])
}

pub(super) fn arg_reduce(cx: &mut Cx<'_>, extreme: Extreme) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let attrs = ArgReduceAttrs {
        extreme,
        axis: cx.axis_attr(0, x)?,
        keep_dims: cx.attrs.flag("keepdims", true)?,
        select_last: cx.opset >= 12 && cx.attrs.flag("select_last_index", false)?,
    };
    Ok(vec![cx.emit(Op::ArgReduce(attrs), &[x])?])
}

pub(super) fn cumulative(cx: &mut Cx<'_>, kind: CumulativeKind) -> Result<Vec<ValueId>> {
    let (x, axis) = (cx.input(0)?, cx.input(1)?);
    let (exclusive, reverse) = (cx.attrs.flag("exclusive", false)?, cx.attrs.flag("reverse", false)?);
    let known = match cx.known_ints(axis).as_deref() {
        Some(&[known]) => Some(cx.axis(known, cx.rank(x)?)?),
        _ => None,
    };
    let operand = known.is_none().then_some(axis);
    let attrs = CumulativeAttrs { kind, axis: known, exclusive, reverse };
    Ok(vec![cx.emit_opt(Op::Cumulative(attrs), vec![Some(x), operand])?])
}

/// k is an attribute in opset 1, an operand later; before opset 11 results are the largest ones, in order.
pub(super) fn top_k(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let axis = cx.axis_attr(-1, x)?;
    let (largest, sorted) = if cx.opset >= 11 {
        (cx.attrs.flag("largest", true)?, cx.attrs.flag("sorted", true)?)
    } else {
        (true, true)
    };
    let (k, operand) = if cx.opset < 10 {
        (Some(Dim::from(cx.size_attr("k", 1)?)), None)
    } else {
        let operand = cx.input(1)?;
        match cx.graph.shape_value(operand) {
            Some([k]) => (Some(k.clone()), None),
            _ => (None, Some(cx.cast(operand, DType::I64)?)),
        }
    };
    let attrs = TopKAttrs { axis, largest, sorted, k };
    let inputs = [Some(x), operand].into_iter().collect();
    cx.emit_n(Op::TopK(attrs), inputs, 2)
}
