//! Products of matrices from fewer products of their quarters, at the cost of sums.
//!
//! With both factors cut into two by two quarters, seven products of sums of quarters take the place of the eight of the
//! definition: Strassen, "Gaussian elimination is not optimal", 1969. One level of it: the products are as the definition
//! has them. Sums of the right factor, a constant, are made at compile time. Of the forms with seven products this one has the
//! smallest error bound (Higham, "Accuracy and Stability of Numerical Algorithms", section 23.2.2).

use tilewright_dtype::DType;
use tilewright_graph::dim::Dim;
use tilewright_graph::types::TensorType;
use tilewright_te::Expr;

use super::NoKernel;
use super::builder::{Builder, Operand, digits_of, number_of};

/// Coefficients of the quarters `11, 12, 21, 22` of a matrix.
type Quarters = [i8; 4];

/// What each product multiplies, of the left factor and of the right.
const FACTORS: [(Quarters, Quarters); 7] = [
    ([1, 0, 0, 1], [1, 0, 0, 1]),
    ([0, 0, 1, 1], [1, 0, 0, 0]),
    ([1, 0, 0, 0], [0, 1, 0, -1]),
    ([0, 0, 0, 1], [-1, 0, 1, 0]),
    ([1, 1, 0, 0], [0, 0, 0, 1]),
    ([-1, 0, 1, 0], [1, 1, 0, 0]),
    ([0, 1, 0, -1], [0, 0, 1, 1]),
];

/// The products that each quarter of the result is a sum of, with their coefficients.
const SUMS: [[i8; 7]; 4] =
    [[1, 0, 0, 1, -1, 0, 1], [0, 0, 1, 0, 1, 0, 0], [0, 1, 0, 1, 0, 0, 0], [1, -1, 1, 0, 0, 1, 0]];

/// What divides the halves of axes: elements of the widest vectors.
const WHOLE_VECTORS: i64 = 16;

/// Whether `a[.., k]` times `b`, a matrix, can be computed so, if `b` is a constant: known extents, several rows, two equal halves of
/// the summed axis and of the columns in whole vectors.
pub(super) fn applies(a: &TensorType, b: &TensorType) -> bool {
    let extents = |ty: &TensorType| ty.shape.dims()?.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>();
    let (Some(a_extents), Some(b_extents)) = (extents(a), extents(b)) else { return false };
    let Some((_, rows)) = a_extents.split_last() else { return false };
    let has_halves = |&n: &i64| n > 0 && n % (2 * WHOLE_VECTORS) == 0;
    a.dtype == DType::F32
        && rows.iter().all(|&n| n > 0)
        && rows.iter().any(|&n| n > 1)
        && b_extents.len() == 2
        && b_extents.iter().all(has_halves)
}

/// The factors of a product.
pub(super) struct Factors<'a> {
    /// Extents of the axes of rows, counted as one.
    pub(super) rows: &'a [Expr],
    /// Extent of the summed axis.
    pub(super) k: &'a Expr,
    /// Number of columns.
    pub(super) n: &'a Expr,
    /// The element of the left factor at indices of rows and at one of the summed axis.
    pub(super) left: &'a dyn Fn(&[Expr], Expr) -> Expr,
    /// The element of the operand that is the right factor at an index of the summed axis and at a column.
    pub(super) right: &'a dyn Fn(&Operand, Expr, Expr) -> Expr,
}

/// Products of quarters.
pub(super) struct Product<'a> {
    products: Operand,
    rows: &'a [Expr],
    n_rows: Expr,
    half_n: Expr,
}

/// The products of quarters of factors, of which operand `right` is the right one.
///
/// Blocks: `strassen_right` (at compile time), `strassen_left` and `strassen_product`. Of an even number of rows the quarters of the
/// left factor have half, the first or the last; of an odd number every other row, and the last takes part twice.
///
/// # Errors
/// Where the right factor is no input of the function, or an axis has no equal halves.
pub(super) fn product<'a>(
    b: &mut Builder,
    factors: &Factors<'a>,
    right: usize,
) -> Result<Product<'a>, NoKernel> {
    if !is_even(factors.n) || !is_even(factors.k) {
        return Err(b.no_kernel("its axes have no equal halves"));
    }
    let half = |extent: &Expr| extent.clone().floor_div(Expr::int(2));
    let (half_n, half_k) = (half(factors.n), half(factors.k));
    let n_rows = factors.rows.iter().cloned().reduce(|n, extent| n * extent).unwrap_or(Expr::int(1));
    let n_products = Expr::int(FACTORS.len() as i64);

    let shape_r = [n_products.clone(), half_k.clone(), half_n.clone()];
    let rights = b.prepare(right, "strassen_right", DType::F32, &shape_r, 1, |w, r, i| {
        let quarter = |q: usize| {
            let (row, column) = (within(&i[0], q / 2, &half_k), within(&i[1], q % 2, &half_n));
            // In double precision: it is done once.
            (factors.right)(w, row, column).cast(DType::F64)
        };
        let quarters: Vec<Expr> = (0..4).map(quarter).collect();
        let made = |(p, (_, right)): (usize, &(Quarters, Quarters))| {
            let value = sum(right, &quarters).cast(DType::F32);
            r.store(vec![Expr::int(p as i64), i[0].clone(), i[1].clone()], value)
        };
        FACTORS.iter().enumerate().map(made).collect()
    })?;

    let half_rows = n_rows.clone().ceil_div(2);
    let shape_l = [n_products.clone(), half_rows.clone(), half_k.clone()];
    let lefts = b.temporary("strassen_left", DType::F32, &shape_l);
    b.update(&lefts, &shape_l[1..], &[], |i, _| {
        let quarter = |q: usize| {
            let number = match (is_even(&n_rows), q / 2) {
                (true, half) => within(&i[0], half, &half_rows),
                (false, 0) => i[0].clone() * 2,
                (false, _) => (i[0].clone() * 2 + 1).min(n_rows.clone() - 1),
            };
            // What counts the first axis is below its extent.
            let rows = digits_of(&number, &factors.rows[1..]);
            (factors.left)(&rows, within(&i[1], q % 2, &half_k))
        };
        let quarters: Vec<Expr> = (0..4).map(quarter).collect();
        let made = |(p, (left, _)): (usize, &(Quarters, Quarters))| {
            lefts.store([&[Expr::int(p as i64)], i].concat(), sum(left, &quarters))
        };
        FACTORS.iter().enumerate().map(made).collect()
    });

    let shape_p = [n_products, half_rows, half_n.clone()];
    let zero = Expr::zero(DType::F32);
    let products = b.reduce("strassen_product", DType::F32, &shape_p, vec![half_k], zero, |i, r, acc| {
        let left = lefts.at(vec![i[0].clone(), i[1].clone(), r[0].clone()]);
        let right = rights.at(vec![i[0].clone(), r[0].clone(), i[2].clone()]);
        Expr::fma(left, right, acc)
    });
    Ok(Product { products, rows: factors.rows, n_rows, half_n })
}

impl Product<'_> {
    /// The element of the product at indices of rows and at a column.
    pub(super) fn at(&self, rows: &[Expr], column: &Expr) -> Expr {
        let number = number_of(rows[0].clone(), &rows[1..], &self.rows[1..]);
        let (half, within) = match is_even(&self.n_rows) {
            true => {
                let half_rows = self.n_rows.clone().floor_div(Expr::int(2));
                (number.clone().floor_div(half_rows.clone()), number.floor_mod(half_rows))
            }
            false => (number.clone().floor_mod(Expr::int(2)), number.floor_div(Expr::int(2))),
        };
        let place = [within, column.clone().floor_mod(self.half_n.clone())];
        let product = |p: usize| self.products.at([&[Expr::int(p as i64)], &place[..]].concat());
        let values: Vec<Expr> = (0..FACTORS.len()).map(product).collect();
        let [q11, q12, q21, q22] = SUMS.map(|coefficients| sum(&coefficients, &values));
        let upper = half.equals(Expr::int(0));
        let left = column.clone().floor_div(self.half_n.clone()).equals(Expr::int(0));
        Expr::select(upper, Expr::select(left.clone(), q11, q12), Expr::select(left, q21, q22))
    }
}

fn is_even(n: &Expr) -> bool {
    n.as_int().is_some_and(|n| n % 2 == 0)
}

/// An index of the first or second half, each of `extent` elements.
fn within(index: &Expr, half: usize, extent: &Expr) -> Expr {
    match half {
        0 => index.clone(),
        _ => index.clone() + extent.clone(),
    }
}

/// The sum of what has coefficient 1, less what has -1.
fn sum(coefficients: &[i8], x: &[Expr]) -> Expr {
    let of = |sign: i8| coefficients.iter().zip(x).filter(move |(c, _)| **c == sign).map(|(_, x)| x.clone());
    let added = of(1).reduce(|sum, x| sum + x).unwrap_or_else(|| Expr::zero(x[0].dtype()));
    of(-1).fold(added, |sum, x| sum - x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_quarters_sum_to_the_product() {
        let (a, b) = ([2.0, -3.0, 5.0, 7.0], [11.0, 13.0, -17.0, 19.0]);
        let value = |c: &[i8], x: &[f64]| c.iter().zip(x).map(|(&c, x)| f64::from(c) * x).sum::<f64>();
        let products = FACTORS.map(|(left, right)| value(&left, &a) * value(&right, &b));
        for (q, coefficients) in SUMS.iter().enumerate() {
            let expected: f64 = (0..2).map(|k| a[q / 2 * 2 + k] * b[k * 2 + q % 2]).sum();
            assert_eq!(value(coefficients, &products), expected, "quarter {q}");
        }
    }
}
