//! Operands whose extents decide no result: scalars, parameters, masks, indices, updates. Kernels read them at the indices that other
//! operands imply, so they must have what is read.
//!
//! Type rules that derive results from such an operand check it themselves.

mod attention;
mod indices;
mod windows;

use super::context::{Context, InferError};
use crate::dim::Dim;
use crate::op::{GemmAttrs, Op, StftAttrs};

type Result<T> = std::result::Result<T, InferError>;

/// Checks what the type rules leave open. Extents that are not known yet are compared when the model runs.
pub(super) fn check(cx: &mut Context<'_>) -> Result<()> {
    for position in scalars(cx.op) {
        cx.check_scalar(*position)?;
    }
    for position in lists(cx.op) {
        if cx.optional_dims(*position)?.is_some() {
            cx.vector_len(*position)?;
        }
    }
    if let Some((a, b)) = same_dtype(cx.op)
        && cx.input(b).is_some()
    {
        cx.check_same_dtype(a, b)?;
    }
    extents(cx)
}

/// Checks the extents of operands beside those that decide the result.
fn extents(cx: &mut Context<'_>) -> Result<()> {
    match cx.op {
        Op::QuantizeLinear(attrs) => quantised(cx, attrs.axis, attrs.block_size),
        Op::DequantizeLinear(attrs) => quantised(cx, attrs.axis, attrs.block_size),
        Op::MatMulInteger => zero_points(cx),
        Op::ConvInteger(_) => {
            let channels = cx.dims(1)?.and_then(|w| w.first().cloned());
            vector_or_scalar(cx, 3, channels.as_ref())
        }
        Op::ConvTranspose(attrs) => {
            let channels = cx.dims(1)?.and_then(|w| w.get(1)).map(|n| n * &Dim::from(attrs.group));
            cx.check_vector(2, channels.as_ref())
        }
        Op::DeformConv(attrs) => windows::deform_conv(cx, attrs),
        Op::CausalConv(_) => windows::causal_conv(cx),
        Op::Col2Im(attrs) => windows::col2im(cx, attrs),
        Op::MaxUnpool(attrs) => windows::max_unpool(cx, &attrs.dims),
        Op::MaxUnpoolDynamic(attrs) => windows::max_unpool_dynamic(cx, attrs.kernel.len()),
        Op::MaxRoiPool(_) => windows::max_roi_pool(cx),
        Op::RoiAlign(_) => windows::roi_align(cx),
        Op::LayerNorm(attrs) | Op::RmsNorm(attrs) => {
            let Some(dims) = cx.dims(0)? else { return Ok(()) };
            cx.check_axis(attrs.axis, dims.len())?;
            (1..cx.inputs.len()).try_for_each(|position| cx.check_broadcasts_to(position, dims))
        }
        Op::Gemm(attrs) => gemm(cx, attrs),
        Op::Attention(attrs) => attention::attention(cx, attrs),
        Op::LinearAttention(attrs) => attention::linear_attention(cx, attrs),
        Op::RotaryEmbedding(attrs) => attention::rotary(cx, attrs),
        Op::GatherElements(attrs) => indices::gather_elements(cx, attrs.axis),
        Op::Gather(attrs) => indices::gather(cx, attrs.axis),
        Op::GatherNd(attrs) => indices::gather_nd(cx, attrs),
        Op::ScatterElements(attrs) => indices::scatter_elements(cx, attrs.axis),
        Op::ScatterNd(_) => indices::scatter_nd(cx),
        Op::TensorScatter(attrs) => indices::tensor_scatter(cx, attrs.axis),
        Op::ReverseSequence(attrs) => {
            let Some(x) = cx.dims(0)? else { return Ok(()) };
            cx.check_axis(attrs.batch_axis, x.len())?;
            cx.check_axis(attrs.time_axis, x.len())?;
            cx.check_vector(1, Some(&x[attrs.batch_axis]))
        }
        Op::GridSample(_) => grid_sample(cx),
        Op::AffineGrid(_) => affine_grid(cx),
        Op::ResizeDynamic(attrs) => resize_dynamic(cx, attrs.axes.len()),
        Op::Resize(attrs) => {
            let Some(x) = cx.dims(0)? else { return Ok(()) };
            cx.check_len("dims", attrs.dims.len(), x.len())?;
            x.iter().zip(&attrs.dims).try_for_each(|(from, to)| nothing_from_nothing(cx, from, to))
        }
        Op::ReduceDynamic(_) => {
            let (Some(x), Some([axes])) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
            cx.check_at_most(axes, &Dim::from(x.len()), "the number of axes")
        }
        Op::SliceDynamic => {
            let Some([starts]) = cx.dims(1)? else { return cx.check_vector(1, None) };
            (2..5).try_for_each(|position| cx.check_vector(position, Some(starts)))
        }
        Op::Compress(_) | Op::CenterCropPad(_) => cx.check_vector(1, None),
        Op::OneHot(_) => cx.check_vector(1, Some(&Dim::new(2))),
        Op::NonMaxSuppression(_) => non_max_suppression(cx),
        Op::Dft(_) => {
            let Some(x) = cx.dims(0)? else { return Ok(()) };
            x.last().map_or(Ok(()), |parts| real_or_complex(cx, parts))
        }
        Op::Stft(attrs) => stft(cx, attrs),
        _ => Ok(()),
    }
}

/// The operands of an operator that have one element, where they are tensors.
fn scalars(op: &Op) -> &'static [usize] {
    match op {
        Op::Clip => &[1, 2],
        Op::ConvInteger(_) => &[2],
        Op::Cumulative(_) | Op::Trilu(_) | Op::TopK(_) | Op::SequenceAt | Op::SequenceErase => &[1],
        Op::Pad(_) => &[1],
        Op::PadDynamic(_) | Op::OneHot(_) | Op::SequenceInsert => &[2],
        Op::Full(_) | Op::If(_) => &[0],
        Op::FullDynamic => &[1],
        Op::Iota(_) | Op::Loop(_) => &[0, 1],
        Op::RangeDynamic => &[0, 1, 2],
        Op::MelWeightMatrix(_) => &[0, 1, 2, 3, 4],
        Op::NonMaxSuppression(_) => &[2, 3, 4],
        Op::Dft(_) => &[1, 2],
        Op::Stft(_) => &[1, 3],
        _ => &[],
    }
}

/// The operands of an operator that have an element an axis, or two.
fn lists(op: &Op) -> &'static [usize] {
    match op {
        Op::ReshapeDynamic(_)
        | Op::ExpandDynamic
        | Op::TileDynamic
        | Op::ReduceDynamic(_)
        | Op::CenterCropPad(_) => &[1],
        Op::SliceDynamic => &[1, 2, 3, 4],
        Op::PadDynamic(_) => &[1, 3],
        Op::FullDynamic => &[0],
        Op::MaxUnpoolDynamic(_) => &[2],
        Op::ResizeDynamic(_) => &[1, 2, 3],
        Op::Col2Im(_) => &[1, 2],
        Op::AffineGrid(_) => &[1],
        _ => &[],
    }
}

/// Two operands of an operator, of which the second may be absent, whose elements become those of one result.
fn same_dtype(op: &Op) -> Option<(usize, usize)> {
    match op {
        Op::Pad(_) | Op::ConvTranspose(_) => Some((0, 1)),
        Op::PadDynamic(_) => Some((0, 2)),
        Op::CausalConv(_) => Some((0, 3)),
        _ => None,
    }
}

/// A vector of the extent given, or one element.
fn vector_or_scalar(cx: &mut Context<'_>, position: usize, len: Option<&Dim>) -> Result<()> {
    match cx.optional_dims(position)? {
        None | Some([]) => Ok(()),
        Some([own]) if own.is(1) => Ok(()),
        Some(_) => cx.check_vector(position, len),
    }
}

/// Scales and zero points: one, one an index of the axis, or one a block along it.
fn quantised(cx: &mut Context<'_>, axis: usize, block_size: usize) -> Result<()> {
    let Some(x) = cx.dims(0)? else { return Ok(()) };
    for position in 1..3 {
        let Some(dims) = cx.optional_dims(position)? else { continue };
        if block_size == 0 || dims.len() != x.len() {
            let along = x.get(axis);
            if along.is_none() {
                cx.check_scalar(position)?;
            }
            vector_or_scalar(cx, position, along)?;
            continue;
        }
        cx.check_axis(axis, x.len())?;
        for (at, (own, dim)) in dims.iter().zip(x).enumerate() {
            let blocks = dim.ceil_div(&Dim::from(block_size));
            cx.unify(
                own,
                if at == axis { &blocks } else { dim },
                "extents of the parameters and the operand",
            )?;
        }
    }
    Ok(())
}

/// Zero points of a product of integers: one, one a row (of A) or column (of B), or such with an axis of 1.
fn zero_points(cx: &mut Context<'_>) -> Result<()> {
    for (position, axis_from_end) in [(2, 2), (3, 1)] {
        let (Some(x), Some(zero)) = (cx.dims(position - 2)?, cx.optional_dims(position)?) else { continue };
        match (zero, x.len().checked_sub(axis_from_end)) {
            ([] | [_], Some(axis)) => vector_or_scalar(cx, position, x.get(axis))?,
            _ => cx.check_scalar(position)?,
        }
    }
    Ok(())
}

fn gemm(cx: &mut Context<'_>, attrs: &GemmAttrs) -> Result<()> {
    let (Some([a0, a1]), Some([b0, b1])) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    let rows = if attrs.transpose_a { a1 } else { a0 };
    let columns = if attrs.transpose_b { b0 } else { b1 };
    cx.check_broadcasts_to(2, &[rows.clone(), columns.clone()])
}

fn grid_sample(cx: &mut Context<'_>) -> Result<()> {
    let (Some(x), Some(grid)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    cx.check_least_rank(0, x, 3)?;
    cx.check_rank(1, grid, x.len())?;
    cx.unify(&x[0], &grid[0], "batch extents of the image and the grid")?;
    cx.unify(&grid[x.len() - 1], &Dim::from(x.len() - 2), "coordinates of a place").map(drop)
}

/// Regions, scales and sizes of the resized axes. Empty scales and sizes count as absent.
fn resize_dynamic(cx: &mut Context<'_>, n_axes: usize) -> Result<()> {
    for position in 2..4 {
        if cx.optional_dims(position)?.is_some_and(|dims| !matches!(dims, [len] if len.is(0))) {
            cx.check_vector(position, Some(&Dim::from(n_axes)))?;
        }
    }
    cx.check_vector(1, None)
}

fn non_max_suppression(cx: &mut Context<'_>) -> Result<()> {
    let (Some(boxes), Some(scores)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    cx.check_rank(0, boxes, 3)?;
    cx.check_rank(1, scores, 3)?;
    cx.unify(&boxes[0], &scores[0], "batch extents of boxes and scores")?;
    cx.unify(&boxes[1], &scores[2], "numbers of boxes and scores")?;
    cx.unify(&boxes[2], &Dim::new(4), "entries of a box").map(drop)
}

fn affine_grid(cx: &mut Context<'_>) -> Result<()> {
    let Some(theta) = cx.dims(0)? else { return Ok(()) };
    cx.check_rank(0, theta, 3)?;
    let spatial = match (cx.elements(1), cx.vector_len(1)?) {
        (Some(size), _) => {
            if let Some(batch) = size.first().cloned() {
                cx.unify(&theta[0], &batch, "batch extents of the maps and the grid")?;
            }
            size.len()
        }
        (None, Some(len)) => len,
        (None, None) => return Ok(()),
    };
    let spatial = Dim::from(spatial.saturating_sub(2));
    cx.unify(&theta[1], &spatial, "rows of a map and spatial axes")?;
    cx.unify(&theta[2], &(&spatial + 1), "columns of a map and spatial axes").map(drop)
}

/// Parts of a number: its real one, or both.
fn real_or_complex(cx: &mut Context<'_>, parts: &Dim) -> Result<()> {
    cx.check_at_most(&Dim::ONE, parts, "the extent of real and imaginary parts")?;
    cx.check_at_most(parts, &Dim::new(2), "the extent of real and imaginary parts")
}

fn stft(cx: &mut Context<'_>, attrs: &StftAttrs) -> Result<()> {
    let Some(x) = cx.dims(0)? else { return Ok(()) };
    let samples = match x {
        [_, samples] => samples,
        [_, samples, parts] => {
            real_or_complex(cx, parts)?;
            samples
        }
        _ => return Err(cx.fail(format!("operand 0 must have rank 2 or 3, not {}", cx.show(x)))),
    };
    let length = match (attrs.frame_length, cx.elements(3)) {
        (Some(length), _) => Some(Dim::new(length)),
        (None, Some([length])) => Some(length.clone()),
        (None, _) => None,
    };
    cx.check_vector(2, length.as_ref())?;
    let window = cx.optional_dims(2)?.and_then(|dims| dims.first().cloned());
    match length.or(window) {
        Some(length) => {
            cx.check_at_most(&Dim::ONE, &length, "the length of a frame")?;
            cx.check_at_most(&length, samples, "the samples of a frame")
        }
        None => Ok(()),
    }
}

/// An extent that is there is made of elements.
pub(super) fn nothing_from_nothing(cx: &mut Context<'_>, from: &Dim, to: &Dim) -> Result<()> {
    if from == to || to.as_const().is_none_or(|to| to <= 0) {
        return Ok(());
    }
    cx.check_at_most(&Dim::ONE, from, "an element to be resized")
}
