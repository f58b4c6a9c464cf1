//! Products of matrices: `MatMul`, `Gemm`, `MatMulInteger`, `Einsum`.

use tilewright_dtype::DType;
use tilewright_graph::op::{EinsumAttrs, GemmAttrs, MatMulAttrs};
use tilewright_te::Expr;

use super::builder::{Builder, Operand, accumulator, real};
use super::{Algorithm, NoKernel, Results, strassen};

/// Indices into an operand of a batched product: its batch axes, broadcast to the result's, then `row` and
/// `column` of the last two axes (exchanged if `transposed`), of which a vector has one.
fn matrix_indices(
    operand: &Operand,
    batch: &[Expr],
    batch_shape: &[Expr],
    row: Expr,
    column: Expr,
) -> Vec<Expr> {
    let own = &operand.shape[..operand.rank() - 2];
    let skipped = batch.len() - own.len();
    let mut indices: Vec<Expr> = own
        .iter()
        .zip(batch[skipped..].iter().zip(&batch_shape[skipped..]))
        .map(|(extent, (index, result))| super::builder::broadcast_index(index, extent, result))
        .collect();
    indices.extend([row, column]);
    indices
}

/// How the operands of a product are laid over its axes `[batch.., m, n]` and the summed axis `k`.
struct Product {
    a: Operand,
    b: Operand,
    transpose_a: bool,
    transpose_b: bool,
}

impl Product {
    /// Extent of the summed axis.
    fn depth(&self) -> Expr {
        let rank = self.a.rank();
        let axis = if rank == 1 || !self.transpose_a { rank - 1 } else { rank - 2 };
        self.a.shape[axis].clone()
    }

    /// The factors at result indices `i` (of extents `shape`) and summation index `k`.
    fn factors(&self, i: &[Expr], shape: &[Expr], k: &Expr) -> (Expr, Expr) {
        let columns = usize::from(self.b.rank() > 1);
        let rows = usize::from(self.a.rank() > 1);
        let n_batch = i.len() - rows - columns;
        let (batch, batch_shape) = (&i[..n_batch], &shape[..n_batch]);
        let at = |operand: &Operand, transposed: bool, row: Expr, column: Expr| {
            let (row, column) = if transposed { (column, row) } else { (row, column) };
            operand.at(matrix_indices(operand, batch, batch_shape, row, column))
        };
        let a = if rows == 0 {
            self.a.at(vec![k.clone()])
        } else {
            at(&self.a, self.transpose_a, i[n_batch].clone(), k.clone())
        };
        let b = if columns == 0 {
            self.b.at(vec![k.clone()])
        } else {
            at(&self.b, self.transpose_b, k.clone(), i[n_batch + rows].clone())
        };
        (a, b)
    }
}

/// The product, in the type that sums are made in.
fn accumulate(b: &mut Builder, product: &Product, shape: &[Expr]) -> Result<Operand, NoKernel> {
    if b.algorithm() == Algorithm::Strassen {
        return by_strassen(b, product, shape);
    }
    let dtype = accumulator(product.a.dtype);
    Ok(b.reduce("matmul", dtype, shape, vec![product.depth()], Expr::zero(dtype), |i, k, acc| {
        let (x, y) = product.factors(i, shape, &k[0]);
        Expr::fma(x.cast(dtype), y.cast(dtype), acc)
    }))
}

/// The product of rows, of which there may be several axes, with a matrix, by products of quarters.
fn by_strassen(b: &mut Builder, product: &Product, shape: &[Expr]) -> Result<Operand, NoKernel> {
    let Some((n, rows)) = shape.split_last() else { return Err(b.no_kernel("a scalar has no quarters")) };
    let left = |rows: &[Expr], k: Expr| product.a.at([rows, &[k]].concat());
    let right = |w: &Operand, k: Expr, column: Expr| {
        w.at(if product.transpose_b { vec![column, k] } else { vec![k, column] })
    };
    let factors = strassen::Factors { rows, k: &product.depth(), n, left: &left, right: &right };
    let products = strassen::product(b, &factors, 1)?;
    Ok(b.compute("strassen_output", DType::F32, shape, |i| {
        let (rows, column) = i.split_at(i.len() - 1);
        products.at(rows, &column[0])
    }))
}

/// numpy's matmul.
pub(super) fn matmul(b: &mut Builder, attrs: &MatMulAttrs) -> Results {
    let (transpose_a, transpose_b) = (attrs.transpose_a, attrs.transpose_b);
    let product = Product { a: b.input(0)?, b: b.input(1)?, transpose_a, transpose_b };
    let shape = b.result_shape(0)?;
    let sum = accumulate(b, &product, &shape)?;
    Ok(vec![b.cast("cast", sum, product.a.dtype)])
}

/// `alpha op(A) op(B) + beta C`.
pub(super) fn gemm(b: &mut Builder, attrs: &GemmAttrs) -> Results {
    let (transpose_a, transpose_b) = (attrs.transpose_a, attrs.transpose_b);
    let product = Product { a: b.input(0)?, b: b.input(1)?, transpose_a, transpose_b };
    let addend = b.optional(2);
    let shape = b.result_shape(0)?;
    let sum = accumulate(b, &product, &shape)?;
    let dtype = product.a.dtype;
    let (alpha, beta) = (attrs.alpha.to_f64(), attrs.beta.to_f64());
    if alpha == 1.0 && addend.is_none() {
        return Ok(vec![b.cast("cast", sum, dtype)]);
    }
    // A factor that is no integer scales integer products in double precision.
    let fractional = !sum.dtype.is_float() && (alpha.fract() != 0.0 || beta.fract() != 0.0);
    let wide = if fractional { DType::F64 } else { sum.dtype };
    let scaled = |x: Expr, factor: f64| if factor == 1.0 { x } else { x * real(wide, factor) };
    Ok(vec![b.compute("bias", dtype, &shape, |i| {
        let product = scaled(sum.at(i.to_vec()).cast(wide), alpha);
        let value = match &addend {
            Some(c) => product + scaled(c.at_broadcast(i, &shape).cast(wide), beta),
            None => product,
        };
        value.cast(dtype)
    })])
}

/// The zero point of a factor as an `I32`: one for all, or one a row of A (column of B).
fn zero_point(zero: Option<&Operand>, line: Option<&Expr>) -> Expr {
    match (zero, line) {
        (None, _) => Expr::zero(DType::I32),
        (Some(zero), Some(line)) if zero.rank() == 1 && zero.shape[0].as_int() != Some(1) => {
            zero.at(vec![line.clone()]).cast(DType::I32)
        }
        (Some(zero), _) => zero.scalar().cast(DType::I32),
    }
}

/// Matmul of 8-bit integers less their zero points, in 32 bits.
pub(super) fn matmul_integer(b: &mut Builder) -> Results {
    let product = Product { a: b.input(0)?, b: b.input(1)?, transpose_a: false, transpose_b: false };
    let (a_zero, b_zero) = (b.optional(2), b.optional(3));
    if a_zero.as_ref().is_some_and(|zero| zero.rank() > 1)
        || b_zero.as_ref().is_some_and(|zero| zero.rank() > 1)
    {
        return Err(b.no_kernel("zero points of more than one axis"));
    }
    let shape = b.result_shape(0)?;
    let (rows, columns) = (product.a.rank() > 1, product.b.rank() > 1);
    let i32_zero = Expr::zero(DType::I32);
    let sum = b.reduce("matmul", DType::I32, &shape, vec![product.depth()], i32_zero, |i, k, acc| {
        let (x, y) = product.factors(i, &shape, &k[0]);
        let column = columns.then(|| &i[i.len() - 1]);
        let row = rows.then(|| &i[i.len() - 1 - usize::from(columns)]);
        let x = x.cast(DType::I32) - zero_point(a_zero.as_ref(), row);
        let y = y.cast(DType::I32) - zero_point(b_zero.as_ref(), column);
        acc + x * y
    });
    Ok(vec![sum])
}

/// The labels of one operand or of the result; an ellipsis becomes labels of its own.
fn labels(term: &str, rank: usize) -> Option<Vec<Label>> {
    let letters = term.replace("...", "").chars().count();
    let mut labels = Vec::with_capacity(rank);
    let mut rest = term;
    while let Some(c) = rest.chars().next() {
        if let Some(tail) = rest.strip_prefix("...") {
            let covered = rank.checked_sub(letters)?;
            labels.extend((0..covered).rev().map(Label::Ellipsis));
            rest = tail;
        } else {
            labels.push(Label::Letter(c));
            rest = &rest[c.len_utf8()..];
        }
    }
    (labels.len() == rank).then_some(labels)
}

/// An axis of an einsum; those of the ellipsis are counted from its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Letter(char),
    Ellipsis(usize),
}

/// Sum of products by subscripts.
pub(super) fn einsum(b: &mut Builder, attrs: &EinsumAttrs) -> Results {
    let operands = b.inputs();
    let shape = b.result_shape(0)?;
    let malformed = |b: &Builder| b.no_kernel(format!("malformed equation `{}`", attrs.equation));
    let (left, right) = attrs.equation.split_once("->").ok_or_else(|| malformed(b))?;
    let terms: Vec<&str> = left.split(',').collect();
    let subscripts: Option<Vec<Vec<Label>>> =
        terms.iter().zip(&operands).map(|(term, operand)| labels(term, operand.rank())).collect();
    let (Some(subscripts), Some(result)) = (subscripts, labels(right, shape.len())) else {
        return Err(malformed(b));
    };
    if terms.len() != operands.len() {
        return Err(malformed(b));
    }
    // The extent of a label is that of an axis that is not broadcast, if there is one.
    let mut summed: Vec<(Label, Expr)> = Vec::new();
    for (label, extent) in subscripts.iter().flatten().zip(operands.iter().flat_map(|operand| &operand.shape))
    {
        match summed.iter_mut().find(|(known, _)| known == label) {
            Some((_, known)) if known.as_int() == Some(1) => *known = extent.clone(),
            Some(_) => {}
            None if result.contains(label) => {}
            None => summed.push((*label, extent.clone())),
        }
    }
    let dtype = accumulator(operands[0].dtype);
    let extents = summed.iter().map(|(_, extent)| extent.clone()).collect();
    let factors = |i: &[Expr], r: &[Expr]| -> Vec<Expr> {
        let index_of = |label: &Label| match result.iter().position(|known| known == label) {
            Some(axis) => Some((i[axis].clone(), shape[axis].clone())),
            None => {
                let axis = summed.iter().position(|(known, _)| known == label)?;
                Some((r[axis].clone(), summed[axis].1.clone()))
            }
        };
        let factor = |(operand, subscript): (&Operand, &Vec<Label>)| {
            let at = subscript.iter().zip(&operand.shape).map(|(label, extent)| match index_of(label) {
                Some((index, full)) => super::builder::broadcast_index(&index, extent, &full),
                None => Expr::int(0),
            });
            operand.at(at.collect()).cast(dtype)
        };
        operands.iter().zip(&subscripts).map(factor).collect()
    };
    let value = if summed.is_empty() {
        b.compute("einsum", dtype, &shape, |i| {
            let product = factors(i, &[]).into_iter().reduce(|x, y| x * y);
            product.unwrap_or_else(|| Expr::int_of(dtype, 1))
        })
    } else {
        b.reduce("matmul", dtype, &shape, extents, Expr::zero(dtype), |i, r, acc| {
            let mut factors = factors(i, r).into_iter();
            let first = factors.next();
            match (first, factors.reduce(|x, y| x * y)) {
                (Some(x), Some(y)) => Expr::fma(x, y, acc),
                (Some(x), None) => acc + x,
                (None, _) => acc,
            }
        })
    };
    Ok(vec![b.cast("cast", value, operands[0].dtype)])
}
