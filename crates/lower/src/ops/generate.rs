//! Tensors made from extents and scalars: shapes, ranges, fills, diagonals.

use tilewright_dtype::DType;
use tilewright_graph::op::{EyeAttrs, FromDimsAttrs, ShapeAttrs};
use tilewright_te::Expr;

use super::Results;
use super::builder::{Builder, accumulator, product};

/// Element `index` of a list of scalars.
fn pick(values: &[Expr], index: &Expr, dtype: DType) -> Expr {
    let numbered = values.iter().enumerate().rev();
    let choices = numbered.map(|(n, value)| (n as i64, value.clone().cast(dtype)));
    choices
        .reduce(|(_, rest), (n, value)| (n, Expr::select(index.clone().equals(Expr::int(n)), value, rest)))
        .map_or_else(|| Expr::zero(dtype), |(_, value)| value)
}

/// A small integer tensor of extents.
pub(super) fn from_dims(b: &mut Builder, attrs: &FromDimsAttrs) -> Results {
    let values: Vec<Expr> = attrs.values.iter().map(|dim| b.dim(dim)).collect();
    let shape = b.result_shape(0)?;
    let index = |i: &[Expr]| i.first().cloned().unwrap_or(Expr::int(0));
    Ok(vec![b.compute("from_dims", attrs.dtype, &shape, |i| pick(&values, &index(i), attrs.dtype))])
}

/// Extents of the operand.
pub(super) fn shape(b: &mut Builder, attrs: &ShapeAttrs) -> Results {
    let x = b.input(0)?;
    let extents = x.shape.get(attrs.start..attrs.end.min(x.rank())).unwrap_or(&[]).to_vec();
    let shape = [Expr::int(extents.len() as i64)];
    Ok(vec![b.compute("shape", DType::I64, &shape, |i| pick(&extents, &i[0], DType::I64))])
}

/// Number of elements of the operand.
pub(super) fn size(b: &mut Builder) -> Results {
    let x = b.input(0)?;
    Ok(vec![b.compute("size", DType::I64, &[], |_| product(&x.shape))])
}

/// A tensor full of the scalar operand `value`.
pub(super) fn full(b: &mut Builder, value: usize) -> Results {
    let value = b.input(value)?;
    let shape = b.result_shape(0)?;
    Ok(vec![b.compute("full", value.dtype, &shape, |_| value.scalar())])
}

/// `start + i * step`, from the operands at the positions given.
pub(super) fn iota(b: &mut Builder, start: usize, step: usize) -> Results {
    let (start, step) = (b.input(start)?, b.input(step)?);
    let shape = b.result_shape(0)?;
    let dtype = b.result_dtype(0);
    let wide = accumulator(dtype);
    Ok(vec![b.compute("iota", dtype, &shape, |i| {
        let [start, step] = [&start, &step].map(|operand| operand.scalar().cast(wide));
        (start + i[0].clone().cast(wide) * step).cast(dtype)
    })])
}

/// Ones on a diagonal, else 0.
pub(super) fn eye(b: &mut Builder, attrs: &EyeAttrs) -> Results {
    let shape = b.result_shape(0)?;
    Ok(vec![b.compute("eye", attrs.dtype, &shape, |i| {
        let on_diagonal = (i[1].clone() - i[0].clone()).equals(Expr::int(attrs.diagonal));
        Expr::select(on_diagonal, Expr::int_of(attrs.dtype, 1), Expr::zero(attrs.dtype))
    })])
}
