//! Type rules of operators that make tensors from attributes or sizes.

use tilewright_dtype::DType;

use super::context::{Context, InferError, ranked, unranked};
use crate::dim::Dim;
use crate::op::Op;
use crate::types::Type;

type Result<T> = std::result::Result<T, InferError>;

pub(super) fn types(cx: &mut Context<'_>) -> Result<Vec<Type>> {
    let ty = match cx.op {
        Op::Constant(tensor) => Type::Tensor(tensor.tensor_type()),
        Op::FromDims(attrs) => {
            if attrs.scalar {
                cx.check_len("values", attrs.values.len(), 1)?;
            }
            let dims = if attrs.scalar { vec![] } else { vec![attrs.values.len().into()] };
            ranked(attrs.dtype, dims)
        }
        Op::Shape(attrs) => {
            let len = match cx.dims(0)? {
                Some(dims) if attrs.end > dims.len() || attrs.start > attrs.end => {
                    return Err(cx.fail(format!("axes {}..{} are out of range", attrs.start, attrs.end)));
                }
                _ => Dim::from(attrs.end.saturating_sub(attrs.start)),
            };
            ranked(DType::I64, vec![len])
        }
        Op::Size => ranked(DType::I64, vec![]),
        Op::Full(attrs) => ranked(cx.dtype(0)?, attrs.dims.clone()),
        Op::FullDynamic => {
            let dtype = cx.dtype(1)?;
            match (cx.elements(0), cx.vector_len(0)?) {
                (Some(dims), _) => ranked(dtype, dims.to_vec()),
                (None, Some(len)) => {
                    let shape = cx.partial_elements(0).unwrap_or_else(|| vec![None; len]);
                    ranked(
                        dtype,
                        shape.into_iter().map(|dim| dim.unwrap_or_else(|| cx.fresh("full"))).collect(),
                    )
                }
                (None, None) => unranked(dtype),
            }
        }
        Op::Iota(attrs) => ranked(cx.check_same_dtype(0, 1)?, vec![attrs.len.clone()]),
        Op::RangeDynamic => {
            cx.check_same_dtype(0, 1)?;
            let dtype = cx.check_same_dtype(0, 2)?;
            let len = match range_len(cx) {
                Some(len) => len,
                None => cx.fresh("range"),
            };
            ranked(dtype, vec![len])
        }
        Op::Eye(attrs) => {
            if attrs.dims.len() != 2 {
                return Err(
                    cx.fail(format!("a result of extents {}, which is no matrix", cx.show(&attrs.dims)))
                );
            }
            ranked(attrs.dtype, attrs.dims.clone())
        }
        Op::OneHot(attrs) => {
            let dtype = cx.dtype(1)?;
            let Some(indices) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
            cx.check_axis(attrs.axis, indices.len() + 1)?;
            let depth = match (&attrs.depth, cx.elements(2)) {
                (Some(depth), _) => depth.clone(),
                (None, Some([depth])) => depth.clone(),
                (None, _) => cx.fresh("depth"),
            };
            let mut dims = indices.to_vec();
            dims.insert(attrs.axis, depth);
            ranked(dtype, dims)
        }
        Op::Random(attrs) => ranked(attrs.dtype, attrs.dims.clone()),
        Op::Multinomial(attrs) => {
            let Some(rows) = cx.dims(0)? else { return Ok(vec![unranked(attrs.dtype)]) };
            cx.check_rank(0, rows, 2)?;
            ranked(attrs.dtype, vec![rows[0].clone(), attrs.sample_size.into()])
        }
        _ => {
            let Op::MelWeightMatrix(dtype) = cx.op else { return Err(cx.fail("has no type rule here")) };
            let scalar = |position: usize| match cx.elements(position) {
                Some([value]) => Some(value.clone()),
                _ => None,
            };
            let (bins, length) = (scalar(0), scalar(1));
            let spectrum = length.map(|length| &length.floor_div(&Dim::new(2)) + 1);
            let dims = vec![
                spectrum.unwrap_or_else(|| cx.fresh("spectrum")),
                bins.unwrap_or_else(|| cx.fresh("mel")),
            ];
            ranked(*dtype, dims)
        }
    };
    Ok(vec![ty])
}

/// `max(0, ceil((limit - start) / step))`, from extents or from constant reals.
pub(crate) fn range_len(cx: &Context<'_>) -> Option<Dim> {
    if let (Some([start]), Some([limit]), Some([step])) = (cx.elements(0), cx.elements(1), cx.elements(2)) {
        let step = step.as_const().filter(|&step| step != 0)?;
        let distance = if step > 0 { limit - start } else { start - limit };
        return Some(distance.ceil_div(&Dim::new(step.checked_abs()?)).maximum(&Dim::ZERO));
    }
    let scalar = |position: usize| cx.constant(position).and_then(crate::tensor::Tensor::as_scalar);
    let len = ((scalar(1)? - scalar(0)?) / scalar(2)?).ceil();
    len.is_finite().then(|| Dim::new(len.max(0.0) as i64))
}
