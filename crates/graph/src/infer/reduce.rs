//! Type rules of reductions and of selections by data.

use tilewright_dtype::DType;

use super::context::{Context, InferError, ranked, unranked};
use crate::dim::Dim;
use crate::op::Op;
use crate::types::Type;

type Result<T> = std::result::Result<T, InferError>;

pub(super) fn types(cx: &mut Context<'_>) -> Result<Vec<Type>> {
    let dtype = cx.dtype(0)?;
    match cx.op {
        Op::Reduce(attrs) => {
            let Some(dims) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
            for &axis in &attrs.axes {
                cx.check_axis(axis, dims.len())?;
            }
            Ok(vec![ranked(dtype, without(dims, &attrs.axes, attrs.keep_dims))])
        }
        Op::ReduceDynamic(attrs) => {
            let Some(dims) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
            match cx.integers(1) {
                Some(axes) => {
                    let axes = reduced_axes(cx, &axes, dims.len(), attrs.empty_is_noop)?;
                    Ok(vec![ranked(dtype, without(dims, &axes, attrs.keep_dims))])
                }
                None if attrs.keep_dims => Ok(vec![ranked(dtype, cx.fresh_dims("reduced", dims.len()))]),
                None => match cx.vector_len(1)?.filter(|&count| count > 0) {
                    Some(count) if count <= dims.len() => {
                        Ok(vec![ranked(dtype, cx.fresh_dims("reduced", dims.len() - count))])
                    }
                    _ => Ok(vec![unranked(dtype)]),
                },
            }
        }
        Op::ArgReduce(attrs) => {
            let Some(dims) = cx.dims(0)? else { return Ok(vec![unranked(DType::I64)]) };
            cx.check_axis(attrs.axis, dims.len())?;
            Ok(vec![ranked(DType::I64, without(dims, &[attrs.axis], attrs.keep_dims))])
        }
        Op::Cumulative(attrs) => {
            if let (Some(axis), Some(dims)) = (attrs.axis, cx.dims(0)?) {
                cx.check_axis(axis, dims.len())?;
            }
            Ok(vec![cx.ty(0)?.clone()])
        }
        Op::TopK(attrs) => {
            let Some(dims) = cx.dims(0)? else { return Ok(vec![unranked(dtype), unranked(DType::I64)]) };
            cx.check_axis(attrs.axis, dims.len())?;
            let mut dims = dims.to_vec();
            dims[attrs.axis] = match (&attrs.k, cx.elements(1)) {
                (Some(k), _) => k.clone(),
                (None, Some([k])) => k.clone(),
                (None, _) => cx.fresh("k"),
            };
            Ok(vec![ranked(dtype, dims.clone()), ranked(DType::I64, dims)])
        }
        Op::NonZero => {
            let rank = match cx.dims(0)? {
                Some(dims) => Dim::from(dims.len().max(1)),
                None => cx.fresh("rank"),
            };
            let count = cx.fresh("nonzero");
            Ok(vec![ranked(DType::I64, vec![rank, count])])
        }
        Op::Unique(attrs) => {
            let count = cx.fresh("unique");
            let list = |count: &Dim| ranked(DType::I64, vec![count.clone()]);
            let (values, whole) = match (attrs.axis, cx.dims(0)?) {
                (None, Some(dims)) => (ranked(dtype, vec![count.clone()]), Dim::product(dims)),
                (Some(axis), Some(dims)) => {
                    cx.check_axis(axis, dims.len())?;
                    let mut unique = dims.to_vec();
                    unique[axis] = count.clone();
                    (ranked(dtype, unique), dims[axis].clone())
                }
                (None, None) => (ranked(dtype, vec![count.clone()]), cx.fresh("elements")),
                (Some(_), None) => (unranked(dtype), cx.fresh("elements")),
            };
            Ok(vec![values, list(&count), list(&whole), list(&count)])
        }
        Op::NonMaxSuppression(_) => {
            let count = cx.fresh("selected");
            Ok(vec![ranked(DType::I64, vec![count, Dim::new(3)])])
        }
        _ => {
            let Op::Compress(attrs) = cx.op else { return Err(cx.fail("has no type rule here")) };
            let count = cx.fresh("compressed");
            let Some(axis) = attrs.axis else { return Ok(vec![ranked(dtype, vec![count])]) };
            let Some(dims) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
            cx.check_axis(axis, dims.len())?;
            let mut dims = dims.to_vec();
            dims[axis] = count;
            Ok(vec![ranked(dtype, dims)])
        }
    }
}

fn without(dims: &[Dim], axes: &[usize], keep_dims: bool) -> Vec<Dim> {
    let reduced = |axis: usize| axes.contains(&axis);
    let kept = dims.iter().enumerate().filter(|(axis, _)| keep_dims || !reduced(*axis));
    kept.map(|(axis, dim)| if reduced(axis) { Dim::ONE } else { dim.clone() }).collect()
}

/// The axes an axes operand means: sorted and normalised; all or none for an empty list.
pub(crate) fn reduced_axes(
    cx: &Context<'_>,
    axes: &[i64],
    rank: usize,
    empty_is_noop: bool,
) -> Result<Vec<usize>> {
    if axes.is_empty() && !empty_is_noop {
        return Ok((0..rank).collect());
    }
    let mut axes = axes.iter().map(|&axis| cx.normalize_axis(axis, rank)).collect::<Result<Vec<usize>>>()?;
    axes.sort_unstable();
    axes.dedup();
    Ok(axes)
}
