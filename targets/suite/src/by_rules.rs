//! Functions as the rules for GPUs schedule them: one for each rule, with extents that tiles and warps do not divide, and open ones.

use tilewright_autosched::{Decisions, Scheduled, schedule};
use tilewright_dtype::DType;
use tilewright_machine::Target;
use tilewright_te::math::expand_func;
use tilewright_te::{
    Block, Computation, Expr, Func, Iter, IterKind, Loop, Scope, Stmt, Store, UnaryOp, Var, VarKind,
};

use crate::scheduled::product_func;

fn extents(of: &[i64]) -> Vec<Expr> {
    of.iter().map(|&n| Expr::int(n)).collect()
}

/// The product of an open number of rows, and its epilogue.
fn open_product(columns: i64, steps: i64) -> Func {
    let mut f = Func::new("open_product");
    let rows = f.add_size("rows", 0, 1 << 20);
    let a = f.add_input("a", DType::F32, vec![Expr::var(rows), Expr::int(steps)]);
    let b = f.add_input("b", DType::F32, extents(&[steps, columns]));
    let shape = vec![Expr::var(rows), Expr::int(columns)];
    let c = f.reduce("c", DType::F32, shape.clone(), extents(&[steps]), Expr::f32(0.0), |f, i, r, acc| {
        let x = f.load(a, vec![i[0].clone(), r[0].clone()]);
        Expr::fma(x, f.load(b, vec![r[0].clone(), i[1].clone()]), acc)
    });
    let y = f.compute("y", DType::F32, shape, |f, i| f.load(c, i.to_vec()).max(Expr::f32(0.0)));
    f.promote_to_output(y);
    f
}

/// A convolution of 3 x 3 with padding.
pub fn convolution(channels: i64, results: i64, size: i64) -> Func {
    let mut f = Func::new("convolution");
    let x = f.add_input("x", DType::F32, extents(&[1, channels, size, size]));
    let w = f.add_input("w", DType::F32, extents(&[results, channels, 3, 3]));
    let pad = f.compute("pad", DType::F32, extents(&[1, channels, size + 2, size + 2]), |f, i| {
        let inside = |n: &Expr| n.clone().gt(Expr::int(0)).and(n.clone().lt(Expr::int(size + 1)));
        let place = vec![i[0].clone(), i[1].clone(), i[2].clone() - 1, i[3].clone() - 1];
        Expr::select(inside(&i[2]).and(inside(&i[3])), f.load(x, place), Expr::f32(0.0))
    });
    let (shape, window) = (extents(&[1, results, size, size]), extents(&[channels, 3, 3]));
    let y = f.reduce("y", DType::F32, shape, window, Expr::f32(0.0), |f, i, r, acc| {
        let place =
            vec![i[0].clone(), r[0].clone(), i[2].clone() + r[1].clone(), i[3].clone() + r[2].clone()];
        let weight = f.load(w, vec![i[1].clone(), r[0].clone(), r[1].clone(), r[2].clone()]);
        Expr::fma(f.load(pad, place), weight, acc)
    });
    f.promote_to_output(y);
    f
}

/// A convolution of three places, every other one, with padding, of images whose number and extent are open.
fn open_convolution(channels: i64, results: i64) -> Func {
    let mut f = Func::new("open_convolution");
    let images = Expr::var(f.add_size("images", 0, 1 << 20));
    let places = Expr::var(f.add_size("places", 0, 1 << 20));
    let x = f.add_input("x", DType::F32, vec![images.clone(), Expr::int(channels), places.clone()]);
    let w = f.add_input("w", DType::F32, extents(&[3, channels, results]));
    let padded = vec![images.clone(), Expr::int(channels), places.clone() + Expr::int(2)];
    let pad = f.compute("pad", DType::F32, padded, |f, i| {
        let inside = i[2].clone().gt(Expr::int(0)).and(i[2].clone().lt(places.clone() + 1));
        let place = vec![i[0].clone(), i[1].clone(), i[2].clone() - 1];
        Expr::select(inside, f.load(x, place), Expr::f32(0.0))
    });
    let shape = vec![images, Expr::int(results), (places.clone() + 1).floor_div(Expr::int(2))];
    let y = f.reduce("y", DType::F32, shape, extents(&[3, channels]), Expr::f32(0.0), |f, i, r, acc| {
        let place = vec![i[0].clone(), r[1].clone(), i[2].clone() * 2 + r[0].clone()];
        let weight = f.load(w, vec![r[0].clone(), r[1].clone(), i[1].clone()]);
        Expr::fma(f.load(pad, place), weight, acc)
    });
    f.promote_to_output(y);
    f
}

/// Softmax of rows.
fn softmax(rows: i64, columns: i64) -> Func {
    let mut f = Func::new("softmax");
    let x = f.add_input("x", DType::F32, extents(&[rows, columns]));
    let at = |i: &[Expr], r: &[Expr]| vec![i[0].clone(), r[0].clone()];
    let lowest = Expr::lowest(DType::F32);
    let most = f.reduce("most", DType::F32, extents(&[rows]), extents(&[columns]), lowest, |f, i, r, acc| {
        acc.max(f.load(x, at(i, r)))
    });
    let shape = extents(&[rows, columns]);
    let exp = f.compute("exp", DType::F32, shape.clone(), |f, i| {
        Expr::unary(UnaryOp::Exp, f.load(x, i.to_vec()) - f.load(most, vec![i[0].clone()]))
    });
    let sum =
        f.reduce("sum", DType::F32, extents(&[rows]), extents(&[columns]), Expr::f32(0.0), |f, i, r, acc| {
            acc + f.load(exp, at(i, r))
        });
    let y =
        f.compute("y", DType::F32, shape, |f, i| f.load(exp, i.to_vec()) / f.load(sum, vec![i[0].clone()]));
    f.promote_to_output(y);
    f
}

/// `(x - mean) / deviation` along the second dimension, which is kept with one element where statistics are.
fn normalised_columns(batch: i64, steps: i64, columns: i64) -> Func {
    let mut f = Func::new("normalised_columns");
    let (shape, kept) = (extents(&[batch, steps, columns]), extents(&[batch, 1, columns]));
    let x = f.add_input("x", DType::F32, shape.clone());
    let at = |i: &[Expr], step: &Expr| vec![i[0].clone(), step.clone(), i[2].clone()];
    let over = extents(&[steps]);
    let n = Expr::f32(steps as f32);
    let sum = f.reduce("sum", DType::F32, kept.clone(), over.clone(), Expr::f32(0.0), |f, i, r, acc| {
        acc + f.load(x, at(i, &r[0]))
    });
    let mean = f.compute("mean", DType::F32, kept.clone(), |f, i| f.load(sum, i.to_vec()) / n.clone());
    let squares = f.reduce("squares", DType::F32, kept.clone(), over, Expr::f32(0.0), |f, i, r, acc| {
        let from_mean = f.load(x, at(i, &r[0])) - f.load(mean, at(i, &Expr::int(0)));
        Expr::fma(from_mean.clone(), from_mean, acc)
    });
    let deviation = f.compute("deviation", DType::F32, kept, |f, i| {
        Expr::unary(UnaryOp::Sqrt, f.load(squares, i.to_vec()) / n.clone() + Expr::f32(1e-5))
    });
    let y = f.compute("y", DType::F32, shape, |f, i| {
        let of_row = |buffer| f.load(buffer, at(i, &Expr::int(0)));
        (f.load(x, i.to_vec()) - of_row(mean)) / of_row(deviation)
    });
    f.promote_to_output(y);
    f
}

/// Softmax along the second dimension.
fn softmax_of_columns(batch: i64, steps: i64, columns: i64) -> Func {
    let mut f = Func::new("softmax_of_columns");
    let shape = extents(&[batch, steps, columns]);
    let x = f.add_input("x", DType::F32, shape.clone());
    let (results, over) = (extents(&[batch, columns]), extents(&[steps]));
    let at = |i: &[Expr], r: &[Expr]| vec![i[0].clone(), r[0].clone(), i[1].clone()];
    let of_row = |i: &[Expr]| vec![i[0].clone(), i[2].clone()];
    let lowest = Expr::lowest(DType::F32);
    let most = f.reduce("most", DType::F32, results.clone(), over.clone(), lowest, |f, i, r, acc| {
        acc.max(f.load(x, at(i, r)))
    });
    let exp = f.compute("exp", DType::F32, shape.clone(), |f, i| {
        Expr::unary(UnaryOp::Exp, f.load(x, i.to_vec()) - f.load(most, of_row(i)))
    });
    let sum = f
        .reduce("sum", DType::F32, results, over, Expr::f32(0.0), |f, i, r, acc| acc + f.load(exp, at(i, r)));
    let y = f.compute("y", DType::F32, shape, |f, i| f.load(exp, i.to_vec()) / f.load(sum, of_row(i)));
    f.promote_to_output(y);
    f
}

/// Sums of rows.
fn sums(rows: i64, columns: i64) -> Func {
    let mut f = Func::new("sums");
    let x = f.add_input("x", DType::F32, extents(&[rows, columns]));
    let y =
        f.reduce("y", DType::F32, extents(&[rows]), extents(&[columns]), Expr::f32(0.0), |f, i, r, acc| {
            acc + f.load(x, vec![i[0].clone(), r[0].clone()])
        });
    f.promote_to_output(y);
    f
}

/// Sums of columns.
fn sums_of_columns(batch: i64, rows: i64, columns: i64) -> Func {
    let mut f = Func::new("sums_of_columns");
    let x = f.add_input("x", DType::F32, extents(&[batch, rows, columns]));
    let shape = extents(&[batch, columns]);
    let y = f.reduce("y", DType::F32, shape, extents(&[rows]), Expr::f32(0.0), |f, i, r, acc| {
        acc + f.load(x, vec![i[0].clone(), r[0].clone(), i[1].clone()])
    });
    f.promote_to_output(y);
    f
}

/// Rows become columns.
fn transposition(rows: i64, columns: i64) -> Func {
    let mut f = Func::new("transposition");
    let x = f.add_input("x", DType::F32, extents(&[rows, columns]));
    let y = f.compute("y", DType::F32, extents(&[columns, rows]), |f, i| {
        f.load(x, vec![i[1].clone(), i[0].clone()])
    });
    f.promote_to_output(y);
    f
}

/// The greatest of each 3 x 3.
fn pooling(channels: i64, size: i64) -> Func {
    let mut f = Func::new("pooling");
    let x = f.add_input("x", DType::F32, extents(&[channels, size + 2, size + 2]));
    let lowest = Expr::lowest(DType::F32);
    let shape = extents(&[channels, size, size]);
    let y = f.reduce("y", DType::F32, shape, extents(&[3, 3]), lowest, |f, i, r, acc| {
        acc.max(f.load(x, vec![i[0].clone(), i[1].clone() + r[0].clone(), i[2].clone() + r[1].clone()]))
    });
    f.promote_to_output(y);
    f
}

/// An element for each.
fn elements(rows: i64, columns: i64) -> Func {
    let mut f = Func::new("elements");
    let x = f.add_input("x", DType::F32, extents(&[rows, columns]));
    let y =
        f.compute("y", DType::F32, extents(&[rows, columns]), |f, i| f.load(x, i.to_vec()) * Expr::f32(2.0));
    f.promote_to_output(y);
    f
}

/// A block inside of loops `around`, which drive its first variables; `own` are the extents of its other ones.
fn turn(
    f: &mut Func,
    name: &str,
    around: &[(Var, i64, IterKind)],
    own: &[(i64, IterKind)],
    stores: impl FnOnce(&[Expr]) -> Vec<Store>,
) -> Stmt {
    let (mut iters, mut loops) = (Vec::new(), Vec::new());
    for &(counter, extent, kind) in around {
        let var = f.add_var(&format!("{name}_v"), VarKind::Iter);
        iters.push(Iter { var, extent: Expr::int(extent), kind, value: Expr::var(counter) });
    }
    for &(extent, kind) in own {
        let counter = f.add_var(&format!("{name}_i"), VarKind::Loop);
        let var = f.add_var(&format!("{name}_v"), VarKind::Iter);
        iters.push(Iter { var, extent: Expr::int(extent), kind, value: Expr::var(counter) });
        loops.push((counter, Expr::int(extent)));
    }
    let body = stores(&iters.iter().map(|iter| Expr::var(iter.var)).collect::<Vec<_>>());
    Block { name: name.to_string(), iters, predicate: None, init: Vec::new(), body }.in_loops(loops)
}

/// A recurrent layer of two directions: in each step the sums over the state before, then the state.
fn recurrence(steps: i64, rows: i64, size: i64) -> Func {
    let mut f = Func::new("recurrence");
    let x = f.add_input("x", DType::F32, extents(&[2, steps, rows, size]));
    let w = f.add_input("w", DType::F32, extents(&[2, size, size]));
    let shape = extents(&[2, steps, rows, size]);
    let gates = f.compute("gates", DType::F32, shape.clone(), |f, i| f.load(x, i.to_vec()));
    let state = f.add_buffer("state", DType::F32, shape.clone(), Scope::Global);
    let kept = f.add_buffer("kept", DType::F32, extents(&[2, rows, size]), Scope::Global);
    let (d, t) = (f.add_var("d", VarKind::Loop), f.add_var("t", VarKind::Loop));
    let around = [(d, 2, IterKind::Spatial), (t, steps, IterKind::Reduce)];
    let load = |buffer, indices: &[&Expr]| {
        Expr::load(DType::F32, buffer, indices.iter().map(|&e| e.clone()).collect())
    };
    let store = |buffer, indices: &[&Expr], value| Store {
        buffer,
        indices: indices.iter().map(|&e| e.clone()).collect(),
        value,
    };
    let (spatial, reduce) = (IterKind::Spatial, IterKind::Reduce);
    let own = [(rows, spatial), (size, spatial)];
    let keep = turn(&mut f, "keep", &around, &own, |i| {
        let before = load(state, &[&i[0], &(i[1].clone() - 1), &i[2], &i[3]]);
        let first = i[1].clone().equals(Expr::int(0));
        vec![store(kept, &[&i[0], &i[2], &i[3]], Expr::select(first, Expr::f32(0.5), before))]
    });
    let sums = turn(&mut f, "sums", &around, &[own[0], own[1], (size, reduce)], |i| {
        let at = [&i[0], &i[1], &i[2], &i[3]];
        let (before, weight) = (load(kept, &[&i[0], &i[2], &i[4]]), load(w, &[&i[0], &i[3], &i[4]]));
        vec![store(gates, &at, Expr::fma(before, weight, load(gates, &at)))]
    });
    let advance = turn(&mut f, "advance", &around, &own, |i| {
        let at = [&i[0], &i[1], &i[2], &i[3]];
        vec![store(state, &at, load(gates, &at) * Expr::f32(0.25))]
    });
    let steps_of = Stmt::Loop(Box::new(Loop::serial(t, Expr::int(steps), vec![keep, sums, advance])));
    f.body.push(Stmt::Loop(Box::new(Loop::serial(d, Expr::int(2), vec![steps_of]))));
    f.promote_to_output(state);
    f
}

/// Products of a batch of matrices, `B` with its rows along the steps or along the columns, and their epilogue.
pub fn products(batch: i64, [rows, columns, steps]: [i64; 3], transposed: bool) -> Func {
    let mut f = Func::new("products");
    let a = f.add_input("a", DType::F32, extents(&[batch, rows, steps]));
    let shape = if transposed { [batch, columns, steps] } else { [batch, steps, columns] };
    let b = f.add_input("b", DType::F32, extents(&shape));
    let bias = f.add_input("bias", DType::F32, extents(&[columns]));
    let shape = extents(&[batch, rows, columns]);
    let c = f.reduce("c", DType::F32, shape.clone(), extents(&[steps]), Expr::f32(0.0), |f, i, r, acc| {
        let x = f.load(a, vec![i[0].clone(), i[1].clone(), r[0].clone()]);
        let [outer, inner] = if transposed { [&i[2], &r[0]] } else { [&r[0], &i[2]] };
        Expr::fma(x, f.load(b, vec![i[0].clone(), outer.clone(), inner.clone()]), acc)
    });
    let y = f.compute("y", DType::F32, shape, |f, i| {
        (f.load(c, i.to_vec()) + f.load(bias, vec![i[2].clone()])).max(Expr::f32(0.0))
    });
    f.promote_to_output(y);
    f
}

/// The functions as computed, each with the rule that takes it and whether its second input is a constant.
pub fn functions() -> Vec<(&'static str, Func, bool)> {
    let variable = [
        ("product", product_func(100, 70, 27)),
        ("product", open_product(72, 24)),
        ("product", convolution(5, 24, 9)),
        ("product", open_convolution(64, 64)),
        ("rows", softmax(6, 100)),
        ("rows", softmax(3, 2100)),
        ("reduction", sums(7, 300)),
        ("rows", softmax(3, 2304)),
        // What a thread makes of a row stays in its registers: of a warp, of a task.
        ("rows", softmax(6, 768)),
        ("rows", softmax(2, 4096)),
        // Rows whose elements lie apart: of a thread, and of the warps of a task; along all of the results, and with columns left over.
        ("strided_rows", softmax_of_columns(3, 21, 50)),
        ("strided_rows", softmax_of_columns(2, 48, 70)),
        ("strided_rows", normalised_columns(1, 100, 64)),
        ("strided_rows", normalised_columns(2, 64, 33)),
        ("columns", sums_of_columns(2, 48, 600)),
        ("columns", sums_of_columns(1, 49, 1056)),
        ("transpose", transposition(40, 70)),
        ("reduction", sums(3, 5000)),
        ("reduction", sums(3, 5120)),
        // Sums one by one, in a tile of a thread's, and where warps do not divide results.
        ("turns", recurrence(3, 1, 64)),
        ("turns", recurrence(3, 8, 96)),
        ("turns", recurrence(2, 3, 50)),
        ("elements", pooling(5, 13)),
        ("elements", elements(33, 28)),
        // In parts: steps enough, and few tiles.
        ("product", product_func(20, 18, 512)),
        ("product", products(2, [9, 17, 512], false)),
        ("product", products(1, [10, 33, 720], true)),
        ("product", convolution(64, 12, 5)),
        // Beside few vectors.
        ("skinny", products(1, [1, 200, 512], true)),
        ("skinny", products(3, [5, 37, 130], true)),
        ("skinny", products(1, [150, 3, 256], false)),
        ("skinny", products(2, [2, 10, 64], true)),
        // Several vectors, by warps together.
        ("skinny", products(3, [9, 448, 512], true)),
    ];
    let constant = [
        ("product", product_func(20, 18, 512)),
        ("product", convolution(64, 12, 5)),
        ("skinny", product_func(1, 260, 256)),
        ("skinny", product_func(4, 101, 96)),
        ("skinny", convolution(64, 40, 1)),
    ];
    let variable = variable.into_iter().map(|(rule, func)| (rule, func, false));
    variable.chain(constant.into_iter().map(|(rule, func)| (rule, func, true))).collect()
}

/// A function as the rules for a GPU schedule it, elementary functions expanded; and the names of the rules. Its second input may be a
/// constant, which they lay out as they like.
///
/// # Panics
/// Where the rules make a schedule that does not apply: a defect.
pub fn by_rules(func: &Func, gpu: &str, is_constant: bool) -> (Func, Vec<&'static str>) {
    let scheduled = decided(func, gpu, is_constant, &Decisions::default());
    let mut func = scheduled.func;
    expand_func(&mut func);
    (func, scheduled.rulings.iter().map(|ruling| ruling.rule).collect())
}

/// The function in every other way that the rules offer and that differs in one decision, with what is decided.
///
/// # Panics
/// As [`by_rules`].
pub fn otherwise(func: &Func, gpu: &str, is_constant: bool) -> Vec<(String, Func)> {
    let mut others = Vec::new();
    for decision in decided(func, gpu, is_constant, &Decisions::default()).decisions {
        for candidate in decision.candidates.iter().skip(1) {
            let mut decisions = Decisions::default();
            decisions.set(&decision.point, &candidate.value);
            let mut other = decided(func, gpu, is_constant, &decisions).func;
            expand_func(&mut other);
            others.push((decisions.to_string(), other));
        }
    }
    others
}

fn decided(func: &Func, gpu: &str, is_constant: bool, decisions: &Decisions) -> Scheduled {
    let target: Target = format!("{gpu}/x86-64-v3@llvm").parse().expect("a target");
    let computation =
        Computation { constant_inputs: vec![false, is_constant], ..Computation::of(func.clone()) };
    schedule(&computation, &target, decisions)
        .unwrap_or_else(|error| panic!("{}, {decisions}: {error}", func.name))
}
