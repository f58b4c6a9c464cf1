//! Gathering, scattering and selection by data.

use tilewright_graph::op::{
    AxisAttrs, CacheMode, GatherNdAttrs, NonMaxSuppressionAttrs, OneHotAttrs, Op, OptionalAxisAttrs,
    ScatterElementsAttrs, ScatterNdAttrs, ScatterReduction, TensorScatterAttrs, UniqueAttrs,
};
use tilewright_graph::{DType, Dim, ValueId};

use super::cx::Cx;
use super::error::Result;

pub(super) fn gather(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.axis_attr(0, x)?;
    Ok(vec![cx.emit(Op::Gather(AxisAttrs { axis }), &[x, indices])?])
}

pub(super) fn gather_elements(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let axis = cx.axis_attr(0, x)?;
    Ok(vec![cx.emit(Op::GatherElements(AxisAttrs { axis }), &[x, indices])?])
}

pub(super) fn gather_nd(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let batch_dims = if cx.opset >= 12 { cx.size_attr("batch_dims", 0)? } else { 0 };
    Ok(vec![cx.emit(Op::GatherNd(GatherNdAttrs { batch_dims }), &[x, indices])?])
}

fn reduction(cx: &Cx<'_>) -> Result<ScatterReduction> {
    use ScatterReduction::{Add, Max, Min, Mul, None};
    match cx.opset {
        ..16 => Ok(None),
        16..18 => cx.keyword("reduction", "none", &[("none", None), ("add", Add), ("mul", Mul)]),
        _ => {
            let all = [("none", None), ("add", Add), ("mul", Mul), ("max", Max), ("min", Min)];
            cx.keyword("reduction", "none", &all)
        }
    }
}

pub(super) fn scatter_elements(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, indices, updates) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let attrs = ScatterElementsAttrs { axis: cx.axis_attr(0, x)?, reduction: reduction(cx)? };
    Ok(vec![cx.emit(Op::ScatterElements(attrs), &[x, indices, updates])?])
}

pub(super) fn scatter_nd(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, indices, updates) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let attrs = ScatterNdAttrs { reduction: reduction(cx)? };
    Ok(vec![cx.emit(Op::ScatterNd(attrs), &[x, indices, updates])?])
}

pub(super) fn tensor_scatter(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (past, update, positions) = (cx.input(0)?, cx.input(1)?, cx.opt(2));
    let modes = [("linear", CacheMode::Linear), ("circular", CacheMode::Circular)];
    let attrs =
        TensorScatterAttrs { axis: cx.axis_attr(-2, past)?, mode: cx.keyword("mode", "linear", &modes)? };
    Ok(vec![cx.emit_opt(Op::TensorScatter(attrs), vec![Some(past), Some(update), positions])?])
}

/// Indices and depth may be of any numeric type.
pub(super) fn one_hot(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (indices, depth, values) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let axis = cx.axis(cx.attrs.int("axis", -1)?, cx.rank(indices)? + 1)?;
    let indices = cx.cast(indices, DType::I64)?;
    let known = match (cx.graph.shape_value(depth), cx.known_scalar(depth)) {
        (Some([depth]), _) => Some(depth.clone()),
        (_, Some(depth)) => Some(Dim::from(depth as i64)),
        _ => None,
    };
    let operand = match known {
        Some(_) => None,
        None => {
            let depth = cx.cast(depth, DType::I64)?;
            Some(cx.reshape(depth, Vec::new())?)
        }
    };
    let attrs = OneHotAttrs { axis, depth: known };
    Ok(vec![cx.emit_opt(Op::OneHot(attrs), vec![Some(indices), Some(values), operand])?])
}

/// The `axis` attribute of operators that flatten without one.
fn optional_axis(cx: &Cx<'_>, x: ValueId) -> Result<Option<usize>> {
    cx.attrs.opt_int("axis")?.map(|axis| cx.axis(axis, cx.rank(x)?)).transpose()
}

pub(super) fn compress(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, condition) = (cx.input(0)?, cx.input(1)?);
    let attrs = OptionalAxisAttrs { axis: optional_axis(cx, x)? };
    Ok(vec![cx.emit(Op::Compress(attrs), &[x, condition])?])
}

pub(super) fn non_zero(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(vec![cx.emit(Op::NonZero, &[x])?])
}

pub(super) fn unique(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let attrs = UniqueAttrs { axis: optional_axis(cx, x)?, sorted: cx.attrs.flag("sorted", true)? };
    cx.emit_n(Op::Unique(attrs), vec![Some(x)], 4)
}

pub(super) fn non_max_suppression(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let center_point_box = cx.attrs.flag("center_point_box", false)?;
    let mut inputs = cx.inputs.clone();
    // The limits are scalars, or vectors of one element.
    for limit in inputs.iter_mut().skip(2).flatten() {
        *limit = cx.reshape(*limit, Vec::new())?;
    }
    Ok(vec![cx.emit_opt(Op::NonMaxSuppression(NonMaxSuppressionAttrs { center_point_box }), inputs)?])
}
