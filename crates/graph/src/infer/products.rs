//! Type rules of matrix products and contractions.

use std::collections::BTreeMap;

use tilewright_dtype::DType;

use super::context::{Context, InferError, ranked, unranked};
use crate::dim::Dim;
use crate::op::Op;
use crate::types::Type;

pub(super) fn types(cx: &mut Context<'_>) -> Result<Vec<Type>, InferError> {
    match cx.op {
        Op::MatMul(attrs) => {
            let dtype = cx.check_same_dtype(0, 1)?;
            matmul(cx, dtype, attrs.transpose_a, attrs.transpose_b)
        }
        Op::MatMulInteger => matmul(cx, DType::I32, false, false),
        Op::Gemm(attrs) => gemm(cx, attrs.transpose_a, attrs.transpose_b),
        Op::Einsum(attrs) => einsum(cx, &attrs.equation),
        _ => {
            let dtype = cx.dtype(0)?;
            let Some(dims) = cx.dims(0)? else { return Ok(vec![unranked(dtype)]) };
            cx.check_least_rank(0, dims, 2)?;
            let (batch, matrix) = dims.split_at(dims.len() - 2);
            cx.unify(&matrix[0], &matrix[1], "rows and columns")?;
            Ok(vec![ranked(dtype, batch.to_vec())])
        }
    }
}

fn matmul(
    cx: &mut Context<'_>,
    dtype: DType,
    transpose_a: bool,
    transpose_b: bool,
) -> Result<Vec<Type>, InferError> {
    let (Some(a), Some(b)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(vec![unranked(dtype)]) };
    cx.check_least_rank(0, a, if transpose_a { 2 } else { 1 })?;
    cx.check_least_rank(1, b, if transpose_b { 2 } else { 1 })?;
    // A vector on the left is a row, on the right a column; its axis vanishes from the result.
    let (mut a_full, mut b_full) = (a.to_vec(), b.to_vec());
    if a.len() == 1 {
        a_full.insert(0, Dim::ONE);
    }
    if b.len() == 1 {
        b_full.push(Dim::ONE);
    }
    let (a_batch, a_matrix) = a_full.split_at(a_full.len() - 2);
    let (b_batch, b_matrix) = b_full.split_at(b_full.len() - 2);
    let (m, k) = (&a_matrix[usize::from(transpose_a)], &a_matrix[usize::from(!transpose_a)]);
    let (k_b, n) = (&b_matrix[usize::from(transpose_b)], &b_matrix[usize::from(!transpose_b)]);
    cx.unify(k, k_b, "summed extents")?;
    let mut dims = cx.broadcast(a_batch, b_batch)?;
    if a.len() > 1 {
        dims.push(m.clone());
    }
    if b.len() > 1 {
        dims.push(n.clone());
    }
    Ok(vec![ranked(dtype, dims)])
}

fn gemm(cx: &mut Context<'_>, transpose_a: bool, transpose_b: bool) -> Result<Vec<Type>, InferError> {
    let dtype = cx.check_same_dtype(0, 1)?;
    let (Some(a), Some(b)) = (cx.dims(0)?, cx.dims(1)?) else { return Ok(vec![unranked(dtype)]) };
    cx.check_rank(0, a, 2)?;
    cx.check_rank(1, b, 2)?;
    let (m, k) = (&a[usize::from(transpose_a)], &a[usize::from(!transpose_a)]);
    let (k_b, n) = (&b[usize::from(transpose_b)], &b[usize::from(!transpose_b)]);
    cx.unify(k, k_b, "summed extents")?;
    let dims = vec![m.clone(), n.clone()];
    if let Some(c) = cx.optional_dims(2)? {
        cx.check_same_dtype(0, 2)?;
        let merged = cx.broadcast(&dims, c)?;
        if merged.len() != 2 {
            return Err(cx.fail(format!("operand 2 does not broadcast to {}", cx.show(&dims))));
        }
    }
    Ok(vec![ranked(dtype, dims)])
}

fn einsum(cx: &mut Context<'_>, equation: &str) -> Result<Vec<Type>, InferError> {
    let dtype = cx.dtype(0)?;
    let Some((inputs, output)) = equation.split_once("->") else {
        return Err(cx.fail("the equation has no explicit output"));
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    if terms.len() != cx.inputs.len() {
        return Err(cx.fail(format!("{} subscripts for {} operands", terms.len(), cx.inputs.len())));
    }
    let mut extents: BTreeMap<char, Dim> = BTreeMap::new();
    let mut ellipsis: Vec<Dim> = Vec::new();
    for (position, term) in terms.into_iter().enumerate() {
        let Some(dims) = cx.dims(position)? else { return Ok(vec![unranked(dtype)]) };
        let (before, after) = term.split_once("...").unwrap_or((term, ""));
        let labels = before.chars().count() + after.chars().count();
        if labels > dims.len() || (labels < dims.len() && !term.contains("...")) {
            return Err(cx.fail(format!("subscripts `{term}` do not fit {}", cx.show(dims))));
        }
        let hidden = dims.len() - labels;
        let head = before.chars().count();
        ellipsis = cx.broadcast(&ellipsis, &dims[head..head + hidden])?;
        let labelled = dims[..head].iter().chain(&dims[head + hidden..]);
        for (label, dim) in before.chars().chain(after.chars()).zip(labelled) {
            let merged = match extents.get(&label).cloned() {
                Some(known) if dim.is(1) => known,
                Some(known) if !known.is(1) => cx.unify(&known, dim, "extents of one subscript")?,
                _ => dim.clone(),
            };
            extents.insert(label, merged);
        }
    }
    let (before, after) = output.split_once("...").unwrap_or((output, ""));
    let mut dims = Vec::new();
    for (part, with_ellipsis) in [(before, output.contains("...")), (after, false)] {
        for label in part.chars() {
            match extents.get(&label) {
                Some(dim) => dims.push(dim.clone()),
                None => return Err(cx.fail(format!("subscript `{label}` is only in the output"))),
            }
        }
        if with_ellipsis {
            dims.extend(ellipsis.iter().cloned());
        }
    }
    Ok(vec![ranked(dtype, dims)])
}
