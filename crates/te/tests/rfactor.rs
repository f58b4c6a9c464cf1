//! Reductions into partial results.

mod common;

use common::*;
use tilewright_dtype::DType;
use tilewright_te::expr::{BinaryOp, UnaryOp};
use tilewright_te::schedule::Schedule;
use tilewright_te::{Expr, Func};

#[test]
fn an_extremum_keeps_what_is_no_number_whatever_the_order() {
    let mut func = Func::new("largest");
    let x = func.add_input("x", DType::F32, vec![Expr::int(3), Expr::int(37)]);
    let (rows, steps) = (vec![Expr::int(3)], vec![Expr::int(37)]);
    let y = func.reduce("y", DType::F32, rows, steps, Expr::lowest(DType::F32), |f, i, r, acc| {
        let value = f.load(x, vec![i[0].clone(), r[0].clone()]);
        let is_nan = Expr::unary(UnaryOp::IsNan, acc.clone());
        Expr::select(is_nan, acc.clone(), Expr::binary(BinaryOp::Max, acc, value))
    });
    func.promote_to_output(y);
    let mut s = Schedule::new(func.clone());
    let row = s.split("y_r1", &[None, Some(8)]).unwrap();
    s.rfactor("y", &row[1]).unwrap();
    let finished = s.finish().unwrap();
    let mut values: Vec<f32> = (0..3 * 37).map(|n| ((n * 29) % 101) as f32).collect();
    (values[5], values[37 + 36]) = (f32::NAN, f32::NAN);
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let results = [&func, &finished].map(|func| run(func, &[], std::slice::from_ref(&bytes)).remove(0).bytes);
    assert_eq!(results[0], results[1]);
    let of_rows: Vec<f32> =
        results[1].chunks(4).map(|x| f32::from_le_bytes([x[0], x[1], x[2], x[3]])).collect();
    assert!(of_rows[0].is_nan() && of_rows[1].is_nan() && !of_rows[2].is_nan(), "{of_rows:?}");
}

/// The last of the lanes' steps is not known to be the last of both variables.
#[test]
fn steps_of_two_open_extents_are_dealt_out_as_one() {
    let mut func = Func::new("sums");
    let [rows, columns] = ["rows", "columns"].map(|name| Expr::var(func.add_size(name, 0, 1 << 20)));
    let x = func.add_input("x", DType::F32, vec![Expr::int(3), rows.clone(), columns.clone()]);
    let zero = Expr::zero(DType::F32);
    let y = func.reduce("y", DType::F32, vec![Expr::int(3)], vec![rows, columns], zero, |f, i, r, acc| {
        acc + f.load(x, vec![i[0].clone(), r[0].clone(), r[1].clone()])
    });
    func.promote_to_output(y);
    let mut s = Schedule::new(func.clone());
    let steps = s.fuse(&["y_r1", "y_r2"]).unwrap();
    let steps = s.split(&steps, &[None, Some(8)]).unwrap();
    s.rfactor("y", &steps[1]).unwrap();
    let finished = s.finish().unwrap();
    for (rows, columns) in [(1, 1), (5, 7), (8, 16), (33, 3)] {
        // Small integers have the same sum in any order.
        let values: Vec<u8> =
            (0..3 * rows * columns).flat_map(|n| ((n % 13) as f32 - 6.0).to_le_bytes()).collect();
        let results = [&func, &finished]
            .map(|func| run(func, &[rows, columns], std::slice::from_ref(&values)).remove(0).bytes);
        assert_eq!(results[0], results[1], "{rows} x {columns}");
    }
}
