//! Pooling.

use tilewright_graph::op::{
    BinaryOp, MaxPoolIndicesAttrs, MaxRoiPoolAttrs, MaxUnpoolAttrs, MaxUnpoolDynamicAttrs, Op, PoolAttrs,
    PoolKind, Real, ReduceKind, RoiAlignAttrs, RoiCoordinates, RoiMode, UnaryOp,
};
use tilewright_graph::{Dim, ValueId};

use super::attrs::missing;
use super::conv::{Window, lowest};
use super::cx::{Cx, size};
use super::error::{FaultKind, Reason, Result};

fn window(cx: &Cx<'_>, dilated: bool) -> Result<Window> {
    let kernel = cx.sizes_attr("kernel_shape")?.ok_or_else(|| missing("kernel_shape"))?;
    Window::read(cx, kernel, dilated)
}

fn pool_attrs(kind: PoolKind, window: Window, ceil_mode: bool) -> PoolAttrs {
    let Window { kernel, strides, dilations, pads, .. } = window;
    PoolAttrs { kind, kernel, strides, pads, dilations, ceil_mode, count_include_pad: false, p: 2 }
}

pub(super) fn max_pool(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let mut window = window(cx, cx.opset >= 10)?;
    let ceil_mode = cx.opset >= 10 && cx.attrs.flag("ceil_mode", false)?;
    let column_major = cx.opset >= 8 && cx.attrs.flag("storage_order", false)?;
    if !cx.wants(1) {
        let value = lowest(cx.dtype(x)?);
        let x = window.resolve(cx, x, Some(value))?;
        return Ok(vec![cx.emit(Op::Pool(pool_attrs(PoolKind::Max, window, ceil_mode)), &[x])?]);
    }
    let padded = window.resolve(cx, x, None)?;
    if padded != x {
        return Err(Reason::unsupported("indices of a pool whose `auto_pad` depends on an open extent"));
    }
    let Window { kernel, strides, dilations, pads, .. } = window;
    let attrs = MaxPoolIndicesAttrs { kernel, strides, pads, dilations, ceil_mode, column_major };
    cx.emit_n(Op::MaxPoolIndices(attrs), vec![Some(x)], 2)
}

pub(super) fn average_pool(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let mut window = window(cx, cx.opset >= 19)?;
    let ceil_mode = cx.opset >= 10 && cx.attrs.flag("ceil_mode", false)?;
    let count_include_pad = cx.opset >= 7 && cx.attrs.flag("count_include_pad", false)?;
    let padded = window.resolve(cx, x, None)?;
    if padded != x && !count_include_pad {
        return Err(Reason::unsupported("an average whose `auto_pad` depends on an open extent")
            .advise("fix the extent with --dim"));
    }
    let attrs = PoolAttrs { count_include_pad, ..pool_attrs(PoolKind::Average, window, ceil_mode) };
    Ok(vec![cx.emit(Op::Pool(attrs), &[padded])?])
}

/// `p`, which was a float in opset 1.
fn p_attr(cx: &Cx<'_>) -> Result<usize> {
    if cx.opset >= 2 {
        return cx.size_attr("p", 2);
    }
    match cx.attrs.float("p", 2.0)? {
        p if p >= 1.0 && p.fract() == 0.0 => Ok(p as usize),
        p => Err(Reason::unsupported(format!("`p` is {p}"))),
    }
}

pub(super) fn lp_pool(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let mut window = window(cx, cx.opset >= 18)?;
    let ceil_mode = cx.opset >= 18 && cx.attrs.flag("ceil_mode", false)?;
    let x = window.resolve(cx, x, Some(0.0))?;
    let attrs = PoolAttrs { p: p_attr(cx)?, ..pool_attrs(PoolKind::Lp, window, ceil_mode) };
    Ok(vec![cx.emit(Op::Pool(attrs), &[x])?])
}

fn spatial_axes(cx: &Cx<'_>, x: ValueId) -> Result<Vec<usize>> {
    match cx.rank(x)? {
        rank @ 2.. => Ok((2..rank).collect()),
        rank => Err(Reason::ty(format!("the operand has rank {rank}, not 3 or more"))),
    }
}

pub(super) fn global(cx: &mut Cx<'_>, kind: ReduceKind) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let axes = spatial_axes(cx, x)?;
    Ok(vec![cx.reduce(kind, x, &axes, true)?])
}

pub(super) fn global_lp(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let x = cx.input(0)?;
    let axes = spatial_axes(cx, x)?;
    let result = match p_attr(cx)? {
        1 => cx.reduce(ReduceKind::L1, x, &axes, true)?,
        2 => cx.reduce(ReduceKind::L2, x, &axes, true)?,
        p => {
            let magnitude = cx.unary(UnaryOp::Abs, x)?;
            let power = cx.binary_scalar(BinaryOp::Pow, magnitude, p as f64)?;
            let sum = cx.reduce(ReduceKind::Sum, power, &axes, true)?;
            cx.binary_scalar(BinaryOp::Pow, sum, 1.0 / p as f64)?
        }
    };
    Ok(vec![result])
}

pub(super) fn max_unpool(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, indices) = (cx.input(0)?, cx.input(1)?);
    let Window { kernel, strides, pads, .. } = window(cx, false)?;
    if let Some(shape) = cx.opt_non_empty(2) {
        let attrs = MaxUnpoolDynamicAttrs { kernel, strides, pads };
        return Ok(vec![cx.emit(Op::MaxUnpoolDynamic(attrs), &[x, indices, shape])?]);
    }
    let mut dims = cx.ranked(x)?;
    let spatial = kernel.len();
    if dims.len() != spatial + 2 {
        return Err(Reason::ty(format!("the operand must have rank {}", spatial + 2)));
    }
    for axis in 0..spatial {
        let inner = (dims[2 + axis].clone() - Dim::ONE) * Dim::from(strides[axis]);
        dims[2 + axis] = inner + Dim::from(kernel[axis] as i64 - pads[axis] - pads[spatial + axis]);
    }
    Ok(vec![cx.emit(Op::MaxUnpool(MaxUnpoolAttrs { dims }), &[x, indices])?])
}

pub(super) fn max_roi_pool(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, rois) = (cx.input(0)?, cx.input(1)?);
    let pooled = cx.sizes_attr("pooled_shape")?.ok_or_else(|| missing("pooled_shape"))?;
    let spatial_scale = Real(cx.attrs.float("spatial_scale", 1.0)?);
    Ok(vec![cx.emit(Op::MaxRoiPool(MaxRoiPoolAttrs { pooled, spatial_scale }), &[x, rois])?])
}

/// The most samples on an axis of a bin: each bin takes the square of it.
const MAX_SAMPLES: usize = 1024;

/// Before opset 16 coordinates were not shifted by half a pixel.
pub(super) fn roi_align(cx: &mut Cx<'_>) -> Result<Vec<ValueId>> {
    let (x, rois, batch) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let kinds =
        [("half_pixel", RoiCoordinates::HalfPixel), ("output_half_pixel", RoiCoordinates::OutputHalfPixel)];
    let coordinates = if cx.opset >= 16 {
        cx.keyword("coordinate_transformation_mode", "half_pixel", &kinds)?
    } else {
        RoiCoordinates::OutputHalfPixel
    };
    let sampling_ratio = size("sampling_ratio", cx.attrs.int("sampling_ratio", 0)?)?;
    if sampling_ratio > MAX_SAMPLES {
        let message = format!("`sampling_ratio` is {sampling_ratio}, more than {MAX_SAMPLES}");
        return Err(Reason::new(FaultKind::Limit, message));
    }
    let attrs = RoiAlignAttrs {
        mode: cx.keyword("mode", "avg", &[("avg", RoiMode::Average), ("max", RoiMode::Max)])?,
        coordinates,
        output_height: size("output_height", cx.attrs.int("output_height", 1)?)?,
        output_width: size("output_width", cx.attrs.int("output_width", 1)?)?,
        sampling_ratio,
        spatial_scale: Real(cx.attrs.float("spatial_scale", 1.0)?),
    };
    Ok(vec![cx.emit(Op::RoiAlign(attrs), &[x, rois, batch])?])
}
