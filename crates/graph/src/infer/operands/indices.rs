//! Indices, and the elements that go where they point.

use super::super::context::{Context, InferError};
use crate::dim::Dim;
use crate::op::GatherNdAttrs;

type Result<T> = std::result::Result<T, InferError>;

pub(super) fn gather(cx: &mut Context<'_>, axis: usize) -> Result<()> {
    let (Some(x), Some(indices)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    cx.check_axis(axis, x.len())?;
    not_from_nothing(cx, &x[axis], indices)
}

pub(super) fn gather_elements(cx: &mut Context<'_>, axis: usize) -> Result<()> {
    let (Some(x), Some(indices)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    within(cx, axis, x, indices)?;
    not_from_nothing(cx, &x[axis], indices)
}

pub(super) fn scatter_elements(cx: &mut Context<'_>, axis: usize) -> Result<()> {
    let (Some(x), Some(indices)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    within(cx, axis, x, indices)?;
    cx.check_extents(2, indices, "extents of indices and updates")?;
    not_into_nothing(cx, 2, x)
}

/// Indices along `axis` of `x` have no extent beyond its other ones.
fn within(cx: &mut Context<'_>, axis: usize, x: &[Dim], indices: &[Dim]) -> Result<()> {
    cx.check_axis(axis, x.len())?;
    cx.check_rank(1, indices, x.len())?;
    for other in (0..x.len()).filter(|&other| other != axis) {
        cx.check_at_most(&indices[other], &x[other], "extents of the indices")?;
    }
    Ok(())
}

pub(super) fn gather_nd(cx: &mut Context<'_>, attrs: &GatherNdAttrs) -> Result<()> {
    let (Some(x), Some(indices)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    cx.check_least_rank(0, x, attrs.batch_dims)?;
    cx.check_least_rank(1, indices, attrs.batch_dims + 1)?;
    for (a, b) in x.iter().zip(indices).take(attrs.batch_dims) {
        cx.unify(a, b, "batch extents of the operand and the indices")?;
    }
    let Some(width) = tuple_width(cx, indices)? else { return Ok(()) };
    cx.check_least_rank(0, x, attrs.batch_dims + width)?;
    for extent in &x[attrs.batch_dims..attrs.batch_dims + width] {
        not_from_nothing(cx, extent, &indices[..indices.len() - 1])?;
    }
    Ok(())
}

pub(super) fn scatter_nd(cx: &mut Context<'_>) -> Result<()> {
    let (Some(x), Some(indices)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    cx.check_least_rank(1, indices, 1)?;
    let Some(width) = tuple_width(cx, indices)? else { return Ok(()) };
    if width > x.len() {
        return Err(cx.fail(format!("indices of {width} entries reach deeper than {}", cx.show(x))));
    }
    let updates = [&indices[..indices.len() - 1], &x[width..]].concat();
    cx.check_extents(2, &updates, "extents of the updates and what they replace")?;
    not_into_nothing(cx, 2, x)
}

/// The number of entries of an index tuple: the last extent of the indices.
fn tuple_width(cx: &Context<'_>, indices: &[Dim]) -> Result<Option<usize>> {
    match indices.last().and_then(Dim::as_const) {
        Some(width) => match usize::try_from(width) {
            Ok(width) => Ok(Some(width)),
            Err(_) => Err(cx.fail("the last extent of the indices is negative")),
        },
        None => Ok(None),
    }
}

pub(super) fn tensor_scatter(cx: &mut Context<'_>, axis: usize) -> Result<()> {
    let (Some(past), Some(update)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(()) };
    cx.check_axis(axis, past.len())?;
    cx.check_rank(1, update, past.len())?;
    for other in (0..past.len()).filter(|&other| other != axis) {
        cx.unify(&past[other], &update[other], "extents of the cache and the update")?;
    }
    cx.check_at_most(&update[axis], &past[axis], "the update")?;
    cx.check_vector(2, past.first())
}

/// Indices that are there need an element to point to.
fn not_from_nothing(cx: &Context<'_>, extent: &Dim, indices: &[Dim]) -> Result<()> {
    if extent.is(0)
        && !indices.iter().any(|dim| dim.is(0))
        && indices.iter().all(|dim| dim.as_const().is_some())
    {
        return Err(cx.fail("indices point into an axis of extent 0"));
    }
    Ok(())
}

/// Elements that are there need a place to go.
pub(super) fn not_into_nothing(cx: &mut Context<'_>, elements: usize, into: &[Dim]) -> Result<()> {
    let Some(elements) = cx.dims(elements)? else { return Ok(()) };
    let some = Dim::product(elements).minimum(&Dim::ONE);
    into.iter().try_for_each(|dim| cx.check_at_most(&some, dim, "places for elements that are there"))
}
