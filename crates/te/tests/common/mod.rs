//! Functions to schedule, random inputs, and comparison of results.

#![allow(dead_code, reason = "each test uses its part")]

#[path = "../../../../tools/random.rs"]
mod random;

pub(crate) use random::Random;
use tilewright_dtype::DType;
use tilewright_te::interp::{Mode, Program, TensorData};
use tilewright_te::{CompareOp, Expr, Func, IterKind, LoopKind, Scope, Stmt, Store, UnaryOp};

/// An extent of a test function.
#[derive(Clone, Copy)]
pub(crate) enum Dim {
    /// Known.
    Fixed(i64),
    /// A symbolic size from 1 to 20.
    Open,
}

impl Dim {
    fn of(self, func: &mut Func, name: &str) -> Expr {
        match self {
            Dim::Fixed(extent) => Expr::int(extent),
            Dim::Open => Expr::var(func.add_size(name, 1, 20)),
        }
    }
}

/// `C = A·B`, `E = C + bias`, `D = max(E, 0)`.
pub(crate) fn matmul_bias_relu(m: Dim, n: Dim, k: Dim) -> Func {
    let mut f = Func::new("matmul_bias_relu");
    let (m, n, k) = (m.of(&mut f, "m"), n.of(&mut f, "n"), k.of(&mut f, "k"));
    let a = f.add_input("A", DType::F32, vec![m.clone(), k.clone()]);
    let b = f.add_input("B", DType::F32, vec![k.clone(), n.clone()]);
    let bias = f.add_input("bias", DType::F32, vec![n.clone()]);
    let shape = vec![m, n];
    let c = f.reduce("C", DType::F32, shape.clone(), vec![k], Expr::f32(0.0), |f, i, r, acc| {
        let (x, y) =
            (f.load(a, vec![i[0].clone(), r[0].clone()]), f.load(b, vec![r[0].clone(), i[1].clone()]));
        Expr::fma(x, y, acc)
    });
    let e = f.compute("E", DType::F32, shape.clone(), |f, i| {
        f.load(c, i.to_vec()) + f.load(bias, vec![i[1].clone()])
    });
    let d = f.compute("D", DType::F32, shape, |f, i| Expr::f32(0.0).max(f.load(e, i.to_vec())));
    f.promote_to_output(d);
    f
}

/// Convolution of an NCHW image with `oc × ic × kernel × kernel` weights: `pad`, `conv`, `relu`.
pub(crate) fn conv2d(batch: i64, ic: i64, oc: i64, size: i64, kernel: i64, stride: i64, pad: i64) -> Func {
    let mut f = Func::new("conv2d");
    let int = Expr::int;
    let x = f.add_input("x", DType::F32, [batch, ic, size, size].map(int).to_vec());
    let w = f.add_input("w", DType::F32, [oc, ic, kernel, kernel].map(int).to_vec());
    let padded = size + 2 * pad;
    let p = f.compute("pad", DType::F32, [batch, ic, padded, padded].map(int).to_vec(), |f, i| {
        let (h, w) = (i[2].clone() - pad, i[3].clone() - pad);
        let inside = |e: &Expr| e.clone().ge(int(0)).and(e.clone().lt(int(size)));
        let value = f.load(x, vec![i[0].clone(), i[1].clone(), h.clone(), w.clone()]);
        Expr::select(inside(&h).and(inside(&w)), value, Expr::f32(0.0))
    });
    let out = (padded - kernel) / stride + 1;
    let shape = [batch, oc, out, out].map(int).to_vec();
    let window = [ic, kernel, kernel].map(int).to_vec();
    let c = f.reduce("conv", DType::F32, shape.clone(), window, Expr::f32(0.0), |f, i, r, acc| {
        let (h, v) = (i[2].clone() * stride + r[1].clone(), i[3].clone() * stride + r[2].clone());
        let value = f.load(p, vec![i[0].clone(), r[0].clone(), h, v]);
        let weight = f.load(w, vec![i[1].clone(), r[0].clone(), r[1].clone(), r[2].clone()]);
        Expr::fma(value, weight, acc)
    });
    let d = f.compute("relu", DType::F32, shape, |f, i| Expr::f32(0.0).max(f.load(c, i.to_vec())));
    f.promote_to_output(d);
    f
}

/// Depthwise convolution without padding: `dw`, then `scale` by a factor for each channel.
pub(crate) fn depthwise(channels: i64, size: i64, kernel: i64, stride: i64) -> Func {
    let mut f = Func::new("depthwise");
    let int = Expr::int;
    let x = f.add_input("x", DType::F32, [channels, size, size].map(int).to_vec());
    let w = f.add_input("w", DType::F32, [channels, kernel, kernel].map(int).to_vec());
    let gain = f.add_input("gain", DType::F32, vec![int(channels)]);
    let out = (size - kernel) / stride + 1;
    let shape = [channels, out, out].map(int).to_vec();
    let window = [kernel, kernel].map(int).to_vec();
    let c = f.reduce("dw", DType::F32, shape.clone(), window, Expr::f32(0.0), |f, i, r, acc| {
        let at = |n: usize| i[n + 1].clone() * stride + r[n].clone();
        let value = f.load(x, vec![i[0].clone(), at(0), at(1)]);
        acc + value * f.load(w, vec![i[0].clone(), r[0].clone(), r[1].clone()])
    });
    let d = f
        .compute("scale", DType::F32, shape, |f, i| f.load(c, i.to_vec()) * f.load(gain, vec![i[0].clone()]));
    f.promote_to_output(d);
    f
}

/// Rows normalised by exponentials: `max`, `exp`, `sum`, `out`. (2 to the power would do as well.)
pub(crate) fn softmax(rows: i64, columns: i64) -> Func {
    let mut f = Func::new("softmax");
    let int = Expr::int;
    let x = f.add_input("x", DType::F32, vec![int(rows), int(columns)]);
    let row = vec![int(rows)];
    let lowest = Expr::lowest(DType::F32);
    let m = f.reduce("max", DType::F32, row.clone(), vec![int(columns)], lowest, |f, i, r, acc| {
        acc.max(f.load(x, vec![i[0].clone(), r[0].clone()]))
    });
    let e = f.compute("exp", DType::F32, vec![int(rows), int(columns)], |f, i| {
        Expr::unary(UnaryOp::Exp, f.load(x, i.to_vec()) - f.load(m, vec![i[0].clone()]))
    });
    let s = f.reduce("sum", DType::F32, row, vec![int(columns)], Expr::f32(0.0), |f, i, r, acc| {
        acc + f.load(e, vec![i[0].clone(), r[0].clone()])
    });
    let out = f.compute("out", DType::F32, vec![int(rows), int(columns)], |f, i| {
        f.load(e, i.to_vec()) / f.load(s, vec![i[0].clone()])
    });
    f.promote_to_output(out);
    f
}

/// Layer normalisation without scale: `mean`, `var`, `norm`.
pub(crate) fn layer_norm(rows: Dim, columns: i64) -> Func {
    let mut f = Func::new("layer_norm");
    let (rows, columns_expr) = (rows.of(&mut f, "rows"), Expr::int(columns));
    let x = f.add_input("x", DType::F32, vec![rows.clone(), columns_expr.clone()]);
    let scale = Expr::f32(1.0 / columns as f32);
    let row = vec![rows.clone()];
    let mean = f.reduce(
        "mean",
        DType::F32,
        row.clone(),
        vec![columns_expr.clone()],
        Expr::f32(0.0),
        |f, i, r, acc| acc + f.load(x, vec![i[0].clone(), r[0].clone()]) * scale.clone(),
    );
    let var = f.reduce("var", DType::F32, row, vec![columns_expr.clone()], Expr::f32(0.0), |f, i, r, acc| {
        let d = f.load(x, vec![i[0].clone(), r[0].clone()]) - f.load(mean, vec![i[0].clone()]);
        acc + d.clone() * d * scale.clone()
    });
    let out = f.compute("norm", DType::F32, vec![rows, columns_expr], |f, i| {
        let d = f.load(x, i.to_vec()) - f.load(mean, vec![i[0].clone()]);
        d / Expr::unary(UnaryOp::Sqrt, f.load(var, vec![i[0].clone()]) + Expr::f32(1e-5))
    });
    f.promote_to_output(out);
    f
}

/// Maximum over windows.
pub(crate) fn max_pool(channels: i64, size: i64, kernel: i64, stride: i64) -> Func {
    let mut f = Func::new("max_pool");
    let int = Expr::int;
    let x = f.add_input("x", DType::F32, [channels, size, size].map(int).to_vec());
    let out = (size - kernel) / stride + 1;
    let window = [kernel, kernel].map(int).to_vec();
    let lowest = Expr::lowest(DType::F32);
    let p = f.reduce(
        "pool",
        DType::F32,
        [channels, out, out].map(int).to_vec(),
        window,
        lowest,
        |f, i, r, acc| {
            let at = |n: usize| i[n + 1].clone() * stride + r[n].clone();
            acc.max(f.load(x, vec![i[0].clone(), at(0), at(1)]))
        },
    );
    f.promote_to_output(p);
    f
}

/// Rows of a table by clamped indices, doubled.
pub(crate) fn gather(rows: i64, columns: i64, count: i64) -> Func {
    let mut f = Func::new("gather");
    let int = Expr::int;
    let table = f.add_input("table", DType::F32, vec![int(rows), int(columns)]);
    let index = f.add_input("index", DType::I64, vec![int(count)]);
    let shape = vec![int(count), int(columns)];
    let g = f.compute("picked", DType::F32, shape.clone(), |f, i| {
        let at = f.load(index, vec![i[0].clone()]).max(int(0)).min(int(rows - 1));
        f.load(table, vec![at, i[1].clone()])
    });
    let d = f.compute("doubled", DType::F32, shape, |f, i| f.load(g, i.to_vec()) * Expr::f32(2.0));
    f.promote_to_output(d);
    f
}

/// What a row of a table has at the first positive element of each row, doubled: `position`, `picked`, `doubled`. The last element
/// counts as positive, so the position is in the table when all elements were looked at, and no sooner.
pub(crate) fn first_hits(rows: i64, columns: i64) -> Func {
    let mut f = Func::new("first_hits");
    let int = Expr::int;
    let x = f.add_input("x", DType::F32, vec![int(rows), int(columns)]);
    let table = f.add_input("table", DType::F32, vec![int(columns)]);
    let none = || Expr::highest(DType::I64);
    let position =
        f.reduce("position", DType::I64, vec![int(rows)], vec![int(columns)], none(), |f, i, r, acc| {
            let is_positive =
                Expr::compare(CompareOp::Gt, f.load(x, vec![i[0].clone(), r[0].clone()]), Expr::f32(0.0));
            let is_last = r[0].clone().equals(int(columns - 1));
            acc.min(Expr::select(is_last, r[0].clone(), Expr::select(is_positive, r[0].clone(), none())))
        });
    let picked = f.compute("picked", DType::F32, vec![int(rows)], |f, i| {
        let at = f.load(position, vec![i[0].clone()]);
        f.load(table, vec![at])
    });
    let doubled =
        f.compute("doubled", DType::F32, vec![int(rows)], |f, i| f.load(picked, i.to_vec()) * Expr::f32(2.0));
    f.promote_to_output(doubled);
    f
}

/// Rows less their sums, scaled by a factor for each column: `sum`, `centred`, `scaled`.
pub(crate) fn centred(rows: Dim, columns: i64) -> Func {
    let mut f = Func::new("centred");
    let (rows, columns) = (rows.of(&mut f, "rows"), Expr::int(columns));
    let x = f.add_input("x", DType::F32, vec![rows.clone(), columns.clone()]);
    let gain = f.add_input("gain", DType::F32, vec![columns.clone()]);
    let (row, all) = (vec![rows.clone()], vec![rows, columns.clone()]);
    let sum = f.reduce("sum", DType::F32, row, vec![columns], Expr::f32(0.0), |f, i, r, acc| {
        acc + f.load(x, vec![i[0].clone(), r[0].clone()])
    });
    let centred = f.compute("centred", DType::F32, all.clone(), |f, i| {
        f.load(x, i.to_vec()) - f.load(sum, vec![i[0].clone()])
    });
    let scaled = f.compute("scaled", DType::F32, all, |f, i| {
        f.load(centred, i.to_vec()) * f.load(gain, vec![i[1].clone()])
    });
    f.promote_to_output(scaled);
    f
}

/// A transposition between two elementwise blocks, the last one selecting by a comparison.
pub(crate) fn transpose(a: i64, b: i64, c: i64) -> Func {
    let mut f = Func::new("transpose");
    let int = Expr::int;
    let x = f.add_input("x", DType::F32, [a, b, c].map(int).to_vec());
    let n = f.compute("negated", DType::F32, [a, b, c].map(int).to_vec(), |f, i| -f.load(x, i.to_vec()));
    let t = f.compute("swapped", DType::F32, [c, a, b].map(int).to_vec(), |f, i| {
        f.load(n, vec![i[1].clone(), i[2].clone(), i[0].clone()])
    });
    let o = f.compute("chosen", DType::F32, [c, a, b].map(int).to_vec(), |f, i| {
        let v = f.load(t, i.to_vec());
        Expr::select(Expr::compare(CompareOp::Lt, v.clone(), Expr::f32(0.0)), v.clone() * Expr::f32(3.0), v)
    });
    f.promote_to_output(o);
    f
}

/// Sums and differences of 2 x 2 pixels, weighted, and back again: `there`, `scaled`, `back`, `out`. The blocks `there` and
/// `back` store four results each, at constant indices before their own.
pub(crate) fn transforms(rows: i64, columns: i64, channels: i64) -> Func {
    let mut f = Func::new("transforms");
    let int = Expr::int;
    let (down, across) = (rows / 2, columns / 2);
    let x = f.add_input("x", DType::F32, [2 * down, 2 * across, channels].map(int).to_vec());
    let w = f.add_input("w", DType::F32, [2, 2, channels].map(int).to_vec());
    let shape = [2, 2, down * across, channels].map(int).to_vec();
    let domain = || shape[2..].iter().map(|extent| (extent.clone(), IterKind::Spatial)).collect();
    let at = |n: i64, i: &[Expr]| [&[int(n / 2), int(n % 2)], i].concat();
    // Of four values in rows; its own inverse but for a factor of four.
    let combined = |v: [Expr; 4]| {
        let [a, b, c, d] = v;
        let (sum, difference) =
            (|x: &Expr, y: &Expr| x.clone() + y.clone(), |x: &Expr, y: &Expr| x.clone() - y.clone());
        let (ab, cd, a_b, c_d) = (sum(&a, &b), sum(&c, &d), difference(&a, &b), difference(&c, &d));
        [sum(&ab, &cd), sum(&a_b, &c_d), difference(&ab, &cd), difference(&a_b, &c_d)]
    };
    let stores = |buffer, i: &[Expr], values: [Expr; 4]| {
        let store = |(n, value)| Store { buffer, indices: at(n, i), value };
        (Vec::new(), (0..4).zip(values).map(store).collect())
    };
    let there = f.add_buffer("there", DType::F32, shape.clone(), Scope::Global);
    f.define(there, domain(), |f, i| {
        let pixel = |n: i64| {
            let (row, column) = (i[0].clone().floor_div(int(across)), i[0].clone().floor_mod(int(across)));
            f.load(x, vec![row * 2 + n / 2, column * 2 + n % 2, i[1].clone()])
        };
        stores(there, i, combined([0, 1, 2, 3].map(pixel)))
    });
    let scaled = f.compute("scaled", DType::F32, shape.clone(), |f, i| {
        f.load(there, i.to_vec()) * f.load(w, vec![i[0].clone(), i[1].clone(), i[3].clone()])
    });
    let back = f.add_buffer("back", DType::F32, shape.clone(), Scope::Global);
    f.define(back, domain(), |f, i| {
        stores(back, i, combined([0, 1, 2, 3].map(|n| f.load(scaled, at(n, i)))))
    });
    let out = f.compute("out", DType::F32, [2 * down, 2 * across, channels].map(int).to_vec(), |f, i| {
        let half = |n: usize| i[n].clone().floor_div(int(2));
        let within = |n: usize| i[n].clone().floor_mod(int(2));
        let value = f.load(back, vec![within(0), within(1), half(0) * across + half(1), i[2].clone()]);
        Expr::f32(0.0).max(value)
    });
    f.promote_to_output(out);
    f
}

impl Random {
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        if items.is_empty() { None } else { Some(&items[self.below(items.len())]) }
    }
}

/// Random values for the sizes of a function.
pub(crate) fn random_sizes(func: &Func, random: &mut Random) -> Vec<i64> {
    func.sizes.iter().map(|_| 1 + random.below(20) as i64).collect()
}

/// Random inputs: floats in -1..1, integers from -2 to 11.
pub(crate) fn random_inputs(func: &Func, sizes: &[i64], random: &mut Random) -> Vec<Vec<u8>> {
    let inputs = func.params[..func.n_inputs].iter().map(|&p| &func.buffers[p]);
    inputs
        .map(|data| {
            let size_of = |v| func.sizes.iter().position(|s| *s == v).map(|at| sizes[at]);
            let extents =
                data.shape.iter().map(|e| tilewright_te::interp::evaluate_index(e, &size_of).unwrap());
            let len: i64 = extents.product();
            let element = |random: &mut Random| match data.dtype {
                DType::F32 => {
                    ((random.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).to_le_bytes().to_vec()
                }
                DType::I64 => (random.below(14) as i64 - 2).to_le_bytes().to_vec(),
                other => panic!("no inputs of type {other}"),
            };
            (0..len).flat_map(|_| element(random)).collect()
        })
        .collect()
}

/// Runs a function.
pub(crate) fn run(func: &Func, sizes: &[i64], inputs: &[Vec<u8>]) -> Vec<TensorData> {
    let inputs: Vec<&[u8]> = inputs.iter().map(|i| &i[..]).collect();
    let program = Program::compile(func).unwrap_or_else(|e| panic!("{e}\n{func}"));
    program.run(sizes, &inputs, Mode::Exact).unwrap_or_else(|e| panic!("{e}\nat sizes {sizes:?}\n{func}"))
}

/// Runs a function; where it has loops of tasks or lanes, no two of these may race.
pub(crate) fn run_watched(func: &Func, sizes: &[i64], inputs: &[Vec<u8>]) -> Vec<TensorData> {
    fn is_serial(stmts: &[Stmt]) -> bool {
        stmts.iter().all(|stmt| match stmt {
            Stmt::Loop(l) => matches!(l.kind, LoopKind::Serial | LoopKind::Unrolled) && is_serial(&l.body),
            Stmt::Block(_) => true,
        })
    }
    if is_serial(&func.body) {
        return run(func, sizes, inputs);
    }
    let inputs: Vec<&[u8]> = inputs.iter().map(|i| &i[..]).collect();
    let program = Program::compile(func).unwrap_or_else(|e| panic!("{e}\n{func}"));
    program.watch(sizes, &inputs).unwrap_or_else(|e| panic!("{e}\nat sizes {sizes:?}\n{func}"))
}

/// Asserts that two functions compute the same, up to rounding of reassociated sums.
pub(crate) fn assert_same_results(original: &Func, scheduled: &Func, seed: u64) {
    let mut random = Random(seed);
    let sizes = random_sizes(original, &mut random);
    let inputs = random_inputs(original, &sizes, &mut random);
    let (expected, found) = (run(original, &sizes, &inputs), run_watched(scheduled, &sizes, &inputs));
    assert_eq!(expected.len(), found.len());
    for (x, y) in expected.iter().zip(&found) {
        // Of the same elements in the same order: dimensions may have become one, or two.
        assert_eq!(x.shape.iter().product::<i64>(), y.shape.iter().product::<i64>());
        let (x, y) = (x.f32s(), y.f32s());
        for (n, (a, b)) in x.iter().zip(&y).enumerate() {
            assert!((a - b).abs() <= 1e-5 * a.abs().max(1.0), "element {n}: {a} became {b}\n{scheduled}");
        }
    }
}

trait Floats {
    fn f32s(&self) -> Vec<f32>;
}

impl Floats for TensorData {
    fn f32s(&self) -> Vec<f32> {
        self.bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
    }
}
