//! Linear algebra: determinants.

use tilewright_te::{Expr, UnaryOp};

use super::Results;
use super::builder::{Builder, Operand, accumulator, clamp};
use super::elementwise::apply;

/// Beyond this order the blocks of the elimination, one a column, would be too many.
const MAX_ORDER: i64 = 32;

/// Determinants of the last two axes, by Gaussian elimination with partial pivoting: a block finds the pivot row of
/// a column (`pivot`), the next one eliminates the column below it (`eliminate`).
pub(super) fn det(b: &mut Builder) -> Results {
    let x = b.input(0)?;
    let rank = x.rank();
    let order = x.shape[rank - 1].as_int();
    let Some(order) = order.filter(|&order| (1..=MAX_ORDER).contains(&order)) else {
        return Err(b.no_kernel(format!("matrices of constant order up to {MAX_ORDER} only")));
    };
    let dtype = accumulator(x.dtype);
    let batch = x.shape[..rank - 2].to_vec();
    let mut matrix = b.cast("wide", x.clone(), dtype);
    let mut det: Option<Operand> = None;
    for column in 0..order {
        let at = |i: &[Expr], row: Expr, column: Expr| [i, &[row, column]].concat();
        let n = batch.len();
        let here = Expr::int(column);
        let remaining = vec![Expr::int(order - column)];
        let init = [("pivot", here.clone()), ("size", Expr::int_of(dtype, -1))];
        let pivots = b.reduce_many(&init, &batch, remaining, |i, r, acc| {
            let row = r[0].clone() + column;
            let size = apply(UnaryOp::Abs, matrix.at(at(i, row.clone(), here.clone())));
            let better = size.clone().gt(acc[1].clone());
            vec![
                Expr::select(better.clone(), row, acc[0].clone()),
                Expr::select(better, size, acc[1].clone()),
            ]
        });
        let pivot = &pivots[0];
        let row_of = |i: &[Expr]| clamp(pivot.at(i.to_vec()), here.clone(), Expr::int(order - 1));
        let previous = det.clone();
        det = Some(b.compute("det", dtype, &batch, |i| {
            let row = row_of(i);
            let value = matrix.at(at(i, row.clone(), here.clone()));
            let signed = Expr::select(row.equals(here.clone()), value.clone(), -value);
            previous.map_or(signed.clone(), |previous| previous.at(i.to_vec()) * signed)
        }));
        if column + 1 == order {
            break;
        }
        let shape = [batch.clone(), vec![Expr::int(order), Expr::int(order)]].concat();
        let old = matrix.clone();
        matrix = b.compute("eliminate", dtype, &shape, |i| {
            let (batch, row, place) = (&i[..n], &i[n], &i[n + 1]);
            let pivot_row = row_of(batch);
            // Rows after the exchange of the pivot's with this column's.
            let taken = row.clone().equals(pivot_row.clone());
            let source = Expr::select(taken, here.clone(), row.clone());
            let pivot = old.at(at(batch, pivot_row.clone(), here.clone()));
            let factor = old.at(at(batch, source.clone(), here.clone())) / pivot.clone();
            let singular = pivot.equals(Expr::zero(dtype));
            let factor = Expr::select(singular, Expr::zero(dtype), factor);
            let subtracted = factor * old.at(at(batch, pivot_row, place.clone()));
            old.at(at(batch, source, place.clone())) - subtracted
        });
    }
    let result = det.unwrap_or(matrix);
    Ok(vec![b.cast("cast", result, x.dtype)])
}
