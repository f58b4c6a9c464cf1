//! Dimensions that become one, and that become two: results stay, and what does not allow it says why.

mod common;

use common::*;
use tilewright_dtype::DType;
use tilewright_te::schedule::{Schedule, ScheduleError};
use tilewright_te::{Expr, Func};

/// `y = max(x·w, 0)` with `x` of `batch` times `rows` rows.
fn batched_product(batch: i64, rows: i64) -> Func {
    batched_product_of(Func::new("batched_product"), batch.into(), rows.into())
}

/// The same in a function that has the sizes in the extents.
fn batched_product_of(mut f: Func, batch: Expr, rows: Expr) -> Func {
    let x = f.add_input("x", DType::F32, vec![batch.clone(), rows.clone(), Expr::int(5)]);
    let w = f.add_input("w", DType::F32, [5, 6].map(Expr::int).to_vec());
    let shape = vec![batch, rows, Expr::int(6)];
    let depth = vec![Expr::int(5)];
    let c = f.reduce("c", DType::F32, shape.clone(), depth, Expr::f32(0.0), |f, i, r, acc| {
        let row = f.load(x, vec![i[0].clone(), i[1].clone(), r[0].clone()]);
        Expr::fma(row, f.load(w, vec![r[0].clone(), i[2].clone()]), acc)
    });
    let y = f.compute("y", DType::F32, shape, |f, i| Expr::f32(0.0).max(f.load(c, i.to_vec())));
    f.promote_to_output(y);
    f
}

/// `y[k, p] = sum of x[k / 3 * 2 + c, p] w[k, c]`: four groups, which read two channels and write three.
fn grouped() -> Func {
    let mut f = Func::new("grouped");
    let x = f.add_input("x", DType::F32, [8, 7].map(Expr::int).to_vec());
    let w = f.add_input("w", DType::F32, [12, 2].map(Expr::int).to_vec());
    let (shape, depth) = ([12, 7].map(Expr::int).to_vec(), vec![Expr::int(2)]);
    let y = f.reduce("y", DType::F32, shape, depth, Expr::f32(0.0), |f, i, r, acc| {
        let channel = i[0].clone().floor_div(Expr::int(3)) * 2 + r[0].clone();
        let value = f.load(x, vec![channel, i[1].clone()]);
        Expr::fma(value, f.load(w, vec![i[0].clone(), r[0].clone()]), acc)
    });
    f.promote_to_output(y);
    f
}

fn shape(schedule: &Schedule, buffer: &str) -> Vec<Option<i64>> {
    let found = schedule.func().buffers.values().find(|b| b.name == buffer).expect("a buffer");
    found.shape.iter().map(Expr::as_int).collect()
}

fn refuses(result: Result<(), ScheduleError>, expect: &str) {
    assert_eq!(result.unwrap_err().to_string(), expect);
}

#[test]
fn batches_and_rows_become_one() {
    let func = batched_product(3, 4);
    let mut s = Schedule::new(func.clone());
    s.collapse_dims("y", 0).unwrap();
    for (buffer, extents) in [("x", [12, 5]), ("c", [12, 6]), ("y", [12, 6]), ("w", [5, 6])] {
        assert_eq!(shape(&s, buffer), extents.map(Some), "{buffer}\n{}", s.func());
    }
    assert_eq!(s.loop_names("c").unwrap(), ["c_i0", "c_i2", "c_r3"]);
    // Tiles cross the ends of what were rows.
    s.split("y_i0", &[None, Some(5)]).unwrap();
    assert_same_results(&func, &s.finish().unwrap(), 1);
}

#[test]
fn open_batches_and_rows_become_one() {
    let mut func = Func::new("open");
    let (batch, rows) = (func.add_size("batch", 0, 1 << 20), func.add_size("rows", 0, 1 << 20));
    let func = batched_product_of(func, batch.into(), rows.into());
    let mut s = Schedule::new(func.clone());
    s.collapse_dims("y", 0).unwrap();
    assert_eq!(shape(&s, "x"), [None, Some(5)], "{}", s.func());
    s.split("y_i0", &[None, Some(5)]).unwrap();
    let collapsed = s.finish().unwrap();
    for seed in 0..8 {
        assert_same_results(&func, &collapsed, seed);
    }
}

/// What reads rows by their batch and their number within keeps both variables: nothing is divided by an open extent.
#[test]
fn what_reads_open_rows_apart_keeps_its_variables() {
    let mut func = Func::new("turned");
    let (batch, rows) = (func.add_size("batch", 0, 1 << 20), func.add_size("rows", 0, 1 << 20));
    let mut func = batched_product_of(func, batch.into(), rows.into());
    let y = func.params.pop().expect("a result");
    let turned = vec![rows.into(), batch.into(), Expr::int(6)];
    let z = func.compute("z", DType::F32, turned, |f, i| {
        f.load(y, vec![i[1].clone(), i[0].clone(), i[2].clone()]) + Expr::f32(1.0)
    });
    func.promote_to_output(z);
    let mut s = Schedule::new(func.clone());
    s.collapse_dims("c", 0).unwrap();
    assert_eq!([shape(&s, "x"), shape(&s, "y")], [vec![None, Some(5)], vec![None, Some(6)]], "{}", s.func());
    assert_eq!(shape(&s, "z"), [None, None, Some(6)]);
    assert!(!s.func().to_string().contains("floordiv"), "{}", s.func());
    s.split("y_i0", &[None, Some(5)]).unwrap();
    let collapsed = s.finish().unwrap();
    for seed in 0..8 {
        assert_same_results(&func, &collapsed, seed);
    }
}

/// `y[h, c] = sum of x[h / 2, k] w[h % 2, k, c]`, the phases of a transposed convolution, of an open number of rows.
#[test]
fn open_dimensions_that_are_a_multiple_become_two() {
    let mut f = Func::new("phases");
    let rows: Expr = f.add_size("rows", 0, 1 << 20).into();
    let x = f.add_input("x", DType::F32, vec![rows.clone(), Expr::int(5)]);
    let w = f.add_input("w", DType::F32, [2, 5, 4].map(Expr::int).to_vec());
    let (shape_of_y, depth) = (vec![rows * 2, Expr::int(4)], vec![Expr::int(5)]);
    let y = f.reduce("y", DType::F32, shape_of_y, depth, Expr::f32(0.0), |f, i, r, acc| {
        let (row, phase) = (i[0].clone().floor_div(Expr::int(2)), i[0].clone().floor_mod(Expr::int(2)));
        let weight = f.load(w, vec![phase, r[0].clone(), i[1].clone()]);
        Expr::fma(f.load(x, vec![row, r[0].clone()]), weight, acc)
    });
    f.promote_to_output(y);
    let mut s = Schedule::new(f.clone());
    let refused = s.expand_dim("y", 0, 3).unwrap_err().to_string();
    assert_eq!(refused, "expand_dim of `y`: 3 does not divide dimension 0 of `y`");
    s.expand_dim("y", 0, 2).unwrap();
    assert_eq!(shape(&s, "y"), [None, Some(2), Some(4)], "{}", s.func());
    assert!(!s.func().to_string().contains("floor"), "{}", s.func());
    let expanded = s.finish().unwrap();
    for seed in 0..8 {
        assert_same_results(&f, &expanded, seed);
    }
}

/// The order of a block's variables does not matter, that of their loops does.
#[test]
fn loops_that_were_reordered_become_one() {
    let mut func = Func::new("reordered");
    let x = func.add_input("x", DType::F32, [5, 3, 4].map(Expr::int).to_vec());
    let w = func.add_input("w", DType::F32, [3, 4].map(Expr::int).to_vec());
    let depth = vec![Expr::int(4), Expr::int(3)];
    let y = func.reduce("y", DType::F32, vec![Expr::int(5)], depth, Expr::f32(0.0), |f, i, r, acc| {
        let at = [r[1].clone(), r[0].clone()];
        Expr::fma(f.load(x, [i, &at].concat()), f.load(w, at.to_vec()), acc)
    });
    func.promote_to_output(y);
    let mut s = Schedule::new(func.clone());
    let apart = "collapse_dims of `w`: the loops of `y_vr2` and the variable after it are apart";
    refuses(s.collapse_dims("w", 0), apart);
    s.reorder(&["y_r2", "y_r1"]).unwrap();
    s.collapse_dims("w", 0).unwrap();
    assert_eq!([shape(&s, "x"), shape(&s, "w")], [vec![Some(5), Some(12)], vec![Some(12)]], "{}", s.func());
    assert_same_results(&func, &s.finish().unwrap(), 3);
}

#[test]
fn what_does_not_become_one_says_why() {
    let product = || Schedule::new(batched_product(3, 4));
    refuses(product().collapse_dims("y", 2), "collapse_dims of `y`: `y` has no dimensions 2 and 3");
    refuses(
        product().collapse_dims("x", 1),
        "collapse_dims of `x`: block `c` reduces over one of the two variables",
    );
    refuses(
        product().collapse_dims("w", 0),
        "collapse_dims of `w`: block `c` reduces over one of the two variables",
    );
    let mut split = product();
    split.split("c_i0", &[None, Some(3)]).unwrap();
    refuses(split.collapse_dims("y", 0), "collapse_dims of `y`: the loops of block `c` are not as computed");
    let mut apart = product();
    apart.reorder(&["c_i0", "c_i2", "c_i1"]).unwrap();
    refuses(
        apart.collapse_dims("y", 0),
        "collapse_dims of `y`: the loops of `c_vi0` and the variable after it are apart",
    );
    let mut padded = Schedule::new(conv2d(1, 2, 3, 5, 3, 1, 1));
    refuses(
        padded.collapse_dims("pad", 2),
        "collapse_dims of `pad`: block `conv` indexes by more than plain variables",
    );
    refuses(
        padded.collapse_dims("relu", 2),
        "collapse_dims of `relu`: block `conv` uses one of the variables by itself",
    );
}

/// `y[k, p, q] = sum of w[k, c] * every[c, p, q]` with every second row and third column of an image.
fn strided(rows: i64, columns: i64) -> Func {
    let mut f = Func::new("strided");
    let x = f.add_input("x", DType::F32, [2, 2 * rows, 3 * columns].map(Expr::int).to_vec());
    let w = f.add_input("w", DType::F32, [4, 2].map(Expr::int).to_vec());
    let shape = [2, rows, columns].map(Expr::int).to_vec();
    let every = f.compute("every", DType::F32, shape, |f, i| {
        f.load(x, vec![i[0].clone(), i[1].clone() * 2, i[2].clone() * 3 + 1])
    });
    let (shape, depth) = ([4, rows, columns].map(Expr::int).to_vec(), vec![Expr::int(2)]);
    let y = f.reduce("y", DType::F32, shape, depth, Expr::f32(0.0), |f, i, r, acc| {
        let image = f.load(every, vec![r[0].clone(), i[1].clone(), i[2].clone()]);
        Expr::fma(image, f.load(w, vec![i[0].clone(), r[0].clone()]), acc)
    });
    f.promote_to_output(y);
    f
}

#[test]
fn what_writes_them_counts_by_quotient_and_remainder() {
    for (rows, columns) in [(3, 4), (1, 5), (4, 1)] {
        let func = strided(rows, columns);
        let mut s = Schedule::new(func.clone());
        s.collapse_dims("y", 1).unwrap();
        for (buffer, channels) in [("every", 2), ("y", 4)] {
            assert_eq!(shape(&s, buffer), [channels, rows * columns].map(Some), "{}", s.func());
        }
        assert_eq!(s.loop_names("every").unwrap().len(), 2, "{}", s.func());
        assert_same_results(&func, &s.finish().unwrap(), 3);
    }
}

/// Three products with halves of rows and columns, and `y` as sums and differences of them, whose rows are
/// counted through both axes.
fn sums_of_halves(rows: [i64; 2]) -> Func {
    let mut f = Func::new("sums_of_halves");
    let n_rows = rows[0] * rows[1];
    let half = (n_rows + 1) / 2;
    let x = f.add_input("x", DType::F32, [3, half, 5].map(Expr::int).to_vec());
    let w = f.add_input("w", DType::F32, [3, 5, 4].map(Expr::int).to_vec());
    let shape = [3, half, 4].map(Expr::int).to_vec();
    let p = f.reduce("p", DType::F32, shape, vec![Expr::int(5)], Expr::f32(0.0), |f, i, r, acc| {
        let left = f.load(x, vec![i[0].clone(), i[1].clone(), r[0].clone()]);
        Expr::fma(left, f.load(w, vec![i[0].clone(), r[0].clone(), i[2].clone()]), acc)
    });
    let shape = [rows[0], rows[1], 8].map(Expr::int).to_vec();
    let y = f.compute("y", DType::F32, shape, |f, i| {
        let number = i[0].clone() * rows[1] + i[1].clone();
        let by = |n: i64| Expr::int(n);
        let (second, row) = match n_rows % 2 {
            0 => (number.clone().floor_div(by(half)), number.floor_mod(by(half))),
            _ => (number.clone().floor_mod(by(2)), number.floor_div(by(2))),
        };
        let column = i[2].clone().floor_mod(by(4));
        let [a, b, c] = [0, 1, 2].map(|n| f.load(p, vec![by(n), row.clone(), column.clone()]));
        let right = i[2].clone().floor_div(by(4)).equals(by(1));
        let upper = Expr::select(right.clone(), a.clone() + b.clone(), a.clone() - c.clone());
        Expr::select(second.equals(by(0)), upper, Expr::select(right, b + c, a))
    });
    f.promote_to_output(y);
    f
}

#[test]
fn what_counts_both_becomes_one_with_them() {
    let func = sums_of_halves([2, 3]);
    let mut s = Schedule::new(func.clone());
    s.collapse_dims("y", 0).unwrap();
    assert_eq!(shape(&s, "y"), [6, 8].map(Some), "{}", s.func());
    assert!(!s.func().to_string().contains("* 3"), "{}", s.func());
    assert_same_results(&func, &s.finish().unwrap(), 4);
}

#[test]
fn halves_are_variables_of_their_own_and_computed_under_their_products() {
    for rows in [[2, 3], [1, 7]] {
        let func = sums_of_halves(rows);
        let mut s = Schedule::new(func.clone());
        s.collapse_dims("y", 0).unwrap();
        assert_eq!(s.split_iter("y", 1, 4).unwrap(), ["y_i2", "y_i2_1"]);
        if rows[0] * rows[1] % 2 == 0 {
            assert_eq!(s.split_iter("y", 0, 3).unwrap(), ["y_i0", "y_i0_1"]);
        }
        let p = s.split("p_i1", &[None, Some(2)]).unwrap();
        s.reorder(&[&p[0], "p_i0"]).unwrap();
        let made = s.reverse_compute_at("y", &p[0]).unwrap();
        assert_eq!(s.loop_names("y").unwrap()[0], p[0], "{}", s.func());
        assert_eq!(made.len(), if rows[0] == 2 { 4 } else { 3 });
        assert_same_results(&func, &s.finish().unwrap(), 5);
    }
}

#[test]
fn what_is_not_split_says_why() {
    let product = || Schedule::new(batched_product(3, 4));
    let refused = |result: Result<Vec<String>, ScheduleError>, expect| refuses(result.map(drop), expect);
    refused(product().split_iter("y", 3, 2), "split_iter of `y`: it has no variable 3");
    refused(product().split_iter("y", 1, 3), "split_iter of `y`: 3 does not divide variable 1");
    refused(product().split_iter("z", 1, 2), "split_iter of `z`: there is no block of that name");
    let mut split = product();
    split.split("y_i1", &[None, Some(2)]).unwrap();
    refused(split.split_iter("y", 1, 2), "split_iter of `y`: the loops of block `y` are not as computed");
}

#[test]
fn groups_get_a_dimension() {
    let func = grouped();
    let mut s = Schedule::new(func.clone());
    s.expand_dim("y", 0, 3).unwrap();
    s.expand_dim("x", 0, 2).unwrap();
    for (buffer, extents) in [("x", [4, 2, 7]), ("y", [4, 3, 7])] {
        assert_eq!(shape(&s, buffer), extents.map(Some), "{buffer}\n{}", s.func());
    }
    assert_eq!(shape(&s, "w"), [4, 3, 2].map(Some));
    let text = s.func().to_string();
    assert!(!text.contains("floordiv"), "{text}");
    assert_same_results(&func, &s.clone().finish().unwrap(), 2);
    // A group alone indexes what it reads.
    s.collapse_dims("y", 0).unwrap_err();
    // There and back.
    let mut product = Schedule::new(batched_product(3, 4));
    product.expand_dim("y", 1, 2).unwrap();
    assert_eq!(shape(&product, "x"), [3, 2, 2, 5].map(Some));
    product.collapse_dims("y", 1).unwrap();
    assert_eq!(shape(&product, "y"), [3, 4, 6].map(Some));
    assert_same_results(&batched_product(3, 4), &product.finish().unwrap(), 3);
}

#[test]
fn what_does_not_become_two_says_why() {
    let product = || Schedule::new(batched_product(3, 4));
    refuses(product().expand_dim("y", 3, 2), "expand_dim of `y`: `y` has no dimension 3");
    refuses(product().expand_dim("y", 1, 3), "expand_dim of `y`: 3 does not divide dimension 1 of `y`");
    refuses(product().expand_dim("y", 1, 1), "expand_dim of `y`: 1 does not divide dimension 1 of `y`");
    let mut split = product();
    split.split("c_i1", &[None, Some(2)]).unwrap();
    refuses(split.expand_dim("y", 1, 2), "expand_dim of `y`: the loops of block `c` are not as computed");
    // A square that is added to its transpose would have both dimensions expand.
    let mut f = Func::new("square");
    let x = f.add_input("x", DType::F32, vec![Expr::int(4), Expr::int(4)]);
    let y = f.compute("y", DType::F32, vec![Expr::int(4), Expr::int(4)], |f, i| {
        f.load(x, i.to_vec()) + f.load(x, vec![i[1].clone(), i[0].clone()])
    });
    f.promote_to_output(y);
    refuses(
        Schedule::new(f).expand_dim("y", 0, 2),
        "expand_dim of `y`: dimensions 0 and 1 of `x` would both expand",
    );
}
