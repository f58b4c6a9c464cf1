//! Operands of windows: offsets, masks, indices, regions.

use super::super::context::{Context, InferError};
use super::super::windows;
use super::indices::not_into_nothing;
use crate::dim::Dim;
use crate::op::{Col2ImAttrs, DeformConvAttrs};

type Result<T> = std::result::Result<T, InferError>;

/// Parameters have an entry a spatial axis.
pub(super) fn col2im(cx: &mut Context<'_>, attrs: &Col2ImAttrs) -> Result<()> {
    let spatial = attrs.strides.len();
    cx.check_len("dilations", attrs.dilations.len(), spatial)?;
    cx.check_len("pads", attrs.pads.len(), 2 * spatial)?;
    for (position, given) in [(1, attrs.image.len()), (2, attrs.block.len())] {
        if given == 0 {
            cx.check_vector(position, Some(&Dim::from(spatial)))?;
        } else {
            cx.check_len("image or block", given, spatial)?;
        }
    }
    col2im_extents(cx, attrs)
}

/// Columns are the positions of the block in the padded image, rows its elements of all channels.
fn col2im_extents(cx: &mut Context<'_>, attrs: &Col2ImAttrs) -> Result<()> {
    let (Some([_, rows, columns]), false, false) =
        (cx.dims(0)?, attrs.image.is_empty(), attrs.block.is_empty())
    else {
        return Ok(());
    };
    let positions = windows::col2im_positions(cx, attrs)?;
    cx.unify(columns, &Dim::product(&positions), "columns and positions of the block")?;
    let elements = Dim::product(&attrs.block.iter().map(|&extent| Dim::from(extent)).collect::<Vec<_>>());
    cx.unify(&(&rows.floor_div(&elements) * &elements), rows, "elements of blocks and rows").map(drop)
}

pub(super) fn deform_conv(cx: &mut Context<'_>, attrs: &DeformConvAttrs) -> Result<()> {
    let (Some(x), Some(w), Some(offset)) = (cx.dims(0)?, cx.dims(1)?, cx.dims(2)?) else { return Ok(()) };
    cx.check_rank(1, w, x.len())?;
    cx.check_least_rank(0, x, 3)?;
    cx.check_rank(2, offset, x.len())?;
    let group = Dim::from(attrs.offset_group);
    let divides = attrs.offset_group > 0
        && x[1].as_const().is_none_or(|channels| channels % attrs.offset_group as i64 == 0);
    if !divides {
        return Err(cx.fail(format!("{} offset groups do not divide the channels", attrs.offset_group)));
    }
    let elements = &Dim::product(&w[2..]) * &group;
    cx.unify(&x[0], &offset[0], "batch extents of the operand and the offsets")?;
    cx.unify(&offset[1], &(&elements * &Dim::from(x.len() - 2)), "offsets of a window")?;
    if let Some(mask) = cx.optional_dims(4)? {
        cx.check_rank(4, mask, x.len())?;
        cx.unify(&x[0], &mask[0], "batch extents of the operand and the mask")?;
        cx.unify(&mask[1], &elements, "mask elements of a window")?;
    }
    // Offsets and masks are read at every position of the result.
    let positions = windows::conv_positions(cx, attrs, x, w)?;
    for (axis, extent) in positions.iter().enumerate() {
        for operand in [2, 4] {
            if let Some(dims) = cx.optional_dims(operand)? {
                cx.unify(&dims[2 + axis], extent, "extents of the offsets or the mask and the result")?;
            }
        }
    }
    Ok(())
}

pub(super) fn causal_conv(cx: &mut Context<'_>) -> Result<()> {
    let (Some(x), Some(w)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    cx.check_rank(0, x, 3)?;
    cx.check_rank(1, w, 3)?;
    cx.unify(&x[1], &w[0], "channels of the operand and the weight")?;
    cx.unify(&w[1], &Dim::ONE, "channels a group and one")?;
    cx.check_vector(2, Some(&x[1]))?;
    cx.check_extents(3, &[x[0].clone(), x[1].clone(), &w[2] - 1], "extents of the past state")
}

pub(super) fn max_unpool(cx: &mut Context<'_>, to: &[Dim]) -> Result<()> {
    let Some(x) = cx.dims(0)? else { return Ok(()) };
    cx.check_extents(1, x, "extents of values and indices")?;
    not_into_nothing(cx, 0, to)
}

pub(super) fn max_unpool_dynamic(cx: &mut Context<'_>, n_axes: usize) -> Result<()> {
    let Some(x) = cx.dims(0)? else { return Ok(()) };
    cx.check_rank(0, x, n_axes + 2)?;
    cx.check_vector(2, Some(&Dim::from(x.len())))?;
    cx.check_extents(1, x, "extents of values and indices")
}

pub(super) fn max_roi_pool(cx: &mut Context<'_>) -> Result<()> {
    let Some([_, columns]) = cx.dims(1)? else { return Ok(()) };
    cx.unify(columns, &Dim::new(5), "entries of a region").map(drop)
}

pub(super) fn roi_align(cx: &mut Context<'_>) -> Result<()> {
    let Some([rois, columns]) = cx.dims(1)? else { return Ok(()) };
    cx.unify(columns, &Dim::new(4), "entries of a region")?;
    cx.check_vector(2, Some(rois))
}
