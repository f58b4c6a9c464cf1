//! Functions of each kind.

use tilewright_dtype::DType;
use tilewright_te::schedule::Piece;
use tilewright_te::{Expr, Func, IterKind, Layout, Scope, Store};

pub(crate) fn ints(values: &[i64]) -> Vec<Expr> {
    values.iter().map(|&v| Expr::int(v)).collect()
}

/// `relu(a b + c)` with `m` rows, symbolic where `m` is `None`.
pub(crate) fn matmul(m: Option<i64>, n: i64, k: i64) -> Func {
    let mut func = Func::new("matmul");
    let m = match m {
        Some(m) => Expr::int(m),
        None => func.add_size("m", 1, 1 << 20).into(),
    };
    let (n, k) = (Expr::int(n), Expr::int(k));
    let a = func.add_input("a", DType::F32, vec![m.clone(), k.clone()]);
    let b = func.add_input("b", DType::F32, vec![k.clone(), n.clone()]);
    let c = func.add_input("c", DType::F32, vec![n.clone()]);
    let product = func.reduce(
        "product",
        DType::F32,
        vec![m.clone(), n.clone()],
        vec![k],
        Expr::f32(0.0),
        |f, i, r, acc| {
            let x = f.load(a, vec![i[0].clone(), r[0].clone()]);
            let y = f.load(b, vec![r[0].clone(), i[1].clone()]);
            Expr::fma(x, y, acc)
        },
    );
    let sum = func.compute("sum", DType::F32, vec![m.clone(), n.clone()], |f, i| {
        f.load(product, i.to_vec()) + f.load(c, vec![i[1].clone()])
    });
    let out = func.compute("out", DType::F32, vec![m, n], |f, i| Expr::f32(0.0).max(f.load(sum, i.to_vec())));
    func.promote_to_output(out);
    func
}

/// An image with zeros around it; the image itself without padding.
pub(crate) fn padded(
    func: &mut Func,
    x: tilewright_te::Buffer,
    shape: [i64; 4],
    pad: i64,
) -> tilewright_te::Buffer {
    if pad == 0 {
        return x;
    }
    let [batch, channels, height, width] = shape;
    func.compute("pad", DType::F32, ints(&[batch, channels, height + 2 * pad, width + 2 * pad]), |f, i| {
        let (y, z) = (i[2].clone() - pad, i[3].clone() - pad);
        let inside = y.clone().ge(Expr::int(0)).and(y.clone().lt(Expr::int(height)));
        let inside = inside.and(z.clone().ge(Expr::int(0))).and(z.clone().lt(Expr::int(width)));
        Expr::select(inside, f.load(x, vec![i[0].clone(), i[1].clone(), y, z]), Expr::f32(0.0))
    })
}

/// A 3x3 convolution with padding 1, bias and residual.
pub(crate) fn conv(channels: i64, filters: i64, size: i64, kernel: i64, stride: i64) -> Func {
    let mut func = Func::new("conv");
    let pad = kernel / 2;
    let out_size = (size + 2 * pad - kernel) / stride + 1;
    let x = func.add_input("x", DType::F32, ints(&[1, channels, size, size]));
    let w = func.add_input("w", DType::F32, ints(&[filters, channels, kernel, kernel]));
    let b = func.add_input("b", DType::F32, ints(&[filters]));
    let padded = padded(&mut func, x, [1, channels, size, size], pad);
    let shape = ints(&[1, filters, out_size, out_size]);
    let reduce = ints(&[channels, kernel, kernel]);
    let conv = func.reduce("conv", DType::F32, shape.clone(), reduce, Expr::f32(0.0), |f, i, r, acc| {
        let y = i[2].clone() * stride + r[1].clone();
        let z = i[3].clone() * stride + r[2].clone();
        let value = f.load(padded, vec![i[0].clone(), r[0].clone(), y, z]);
        let weight = f.load(w, vec![i[1].clone(), r[0].clone(), r[1].clone(), r[2].clone()]);
        Expr::fma(value, weight, acc)
    });
    let out = func.compute("out", DType::F32, shape, |f, i| {
        Expr::f32(0.0).max(f.load(conv, i.to_vec()) + f.load(b, vec![i[1].clone()]))
    });
    func.promote_to_output(out);
    func
}

/// `[a, b, c, d]` along both axes of four by four values in rows, by the sums and differences that `along` makes of a row.
pub(crate) fn both_axes(values: Vec<Expr>, along: impl Fn(&[Expr]) -> Vec<Expr>) -> Vec<Expr> {
    let column = |n: usize| along(&values[n..].iter().step_by(4).cloned().collect::<Vec<_>>());
    let columns: Vec<Vec<Expr>> = (0..4).map(column).collect();
    let row = |n: usize| along(&columns.iter().map(|column| column[n].clone()).collect::<Vec<_>>());
    (0..columns[0].len()).flat_map(row).collect()
}

/// A convolution with padding 1 by tiles of 2 x 2 outputs, with bias and rectifier: `pad`, `tiles`, `product`, `untiled`, `out`.
pub(crate) fn tiled_conv(channels: i64, filters: i64, size: i64) -> Func {
    let mut func = Func::new("tiled_conv");
    let across = size / 2;
    let n_tiles = across * across;
    let x = func.add_input("x", DType::F32, ints(&[1, channels, size, size]));
    let u = func.add_input("u", DType::F32, ints(&[4, 4, channels, filters]));
    let b = func.add_input("b", DType::F32, ints(&[filters]));
    let pad = padded(&mut func, x, [1, channels, size, size], 1);
    let domain = |extents: [i64; 2]| ints(&extents).into_iter().map(|e| (e, IterKind::Spatial)).collect();
    let at = |n: usize, side: usize, i: &[Expr]| [&ints(&[(n / side) as i64, (n % side) as i64]), i].concat();
    let tiles = func.add_buffer("tiles", DType::F32, ints(&[4, 4, n_tiles, channels]), Scope::Global);
    func.define(tiles, domain([n_tiles, channels]), |f, i| {
        let (row, column) = (i[0].clone().floor_div(across.into()), i[0].clone().floor_mod(across.into()));
        let pixel = |n: i64| {
            f.load(pad, vec![Expr::int(0), i[1].clone(), row.clone() * 2 + n / 4, column.clone() * 2 + n % 4])
        };
        let values = both_axes((0..16).map(pixel).collect(), |d| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|n| d[n].clone());
            vec![a - c.clone(), b.clone() + c.clone(), c - b.clone(), d - b]
        });
        let store = |(n, value)| Store { buffer: tiles, indices: at(n, 4, i), value };
        (Vec::new(), values.into_iter().enumerate().map(store).collect())
    });
    let (shape, zero) = (ints(&[4, 4, n_tiles, filters]), Expr::f32(0.0));
    let product = func.reduce("product", DType::F32, shape, ints(&[channels]), zero, |f, i, r, acc| {
        let value = f.load(tiles, [&i[..3], r].concat());
        Expr::fma(value, f.load(u, [&i[..2], r, &i[3..]].concat()), acc)
    });
    let untiled = func.add_buffer("untiled", DType::F32, ints(&[2, 2, n_tiles, filters]), Scope::Global);
    func.define(untiled, domain([n_tiles, filters]), |f, i| {
        let values = both_axes((0..16).map(|n| f.load(product, at(n, 4, i))).collect(), |x| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|n| x[n].clone());
            vec![a + b.clone() + c.clone(), b - c + d]
        });
        let store = |(n, value)| Store { buffer: untiled, indices: at(n, 2, i), value };
        (Vec::new(), values.into_iter().enumerate().map(store).collect())
    });
    let out = func.compute("out", DType::F32, ints(&[1, filters, size, size]), |f, i| {
        let half = |n: usize| i[n].clone().floor_div(2.into());
        let within = |n: usize| i[n].clone().floor_mod(2.into());
        let value = f.load(untiled, vec![within(2), within(3), half(2) * across + half(3), i[1].clone()]);
        Expr::f32(0.0).max(value + f.load(b, vec![i[1].clone()]))
    });
    func.promote_to_output(out);
    func
}

pub(crate) fn blocked(factor: i64) -> Layout {
    let open = |dim| Piece { dim, factor: None };
    Some(vec![open(0), open(1), open(2), open(3), Piece { dim: 1, factor: Some(factor) }])
}

/// A depthwise convolution with padding, bias and an activation.
pub(crate) fn depthwise(channels: i64, size: i64, kernel: i64, stride: i64, pad: i64) -> Func {
    let mut func = Func::new("depthwise");
    let out_size = (size + 2 * pad - kernel) / stride + 1;
    let x = func.add_input("x", DType::F32, ints(&[1, channels, size, size]));
    let w = func.add_input("w", DType::F32, ints(&[channels, 1, kernel, kernel]));
    let b = func.add_input("b", DType::F32, ints(&[channels]));
    let padded = padded(&mut func, x, [1, channels, size, size], pad);
    let shape = ints(&[1, channels, out_size, out_size]);
    let reduce = ints(&[1, kernel, kernel]);
    let conv = func.reduce("conv", DType::F32, shape.clone(), reduce, Expr::f32(0.0), |f, i, r, acc| {
        let y = i[2].clone() * stride + r[1].clone();
        let z = i[3].clone() * stride + r[2].clone();
        let value = f.load(padded, vec![i[0].clone(), i[1].clone() + r[0].clone(), y, z]);
        let weight = f.load(w, vec![i[1].clone(), r[0].clone(), r[1].clone(), r[2].clone()]);
        Expr::fma(value, weight, acc)
    });
    let out = func.compute("out", DType::F32, shape, |f, i| {
        Expr::f32(0.0).max(f.load(conv, i.to_vec()) + f.load(b, vec![i[1].clone()]))
    });
    func.promote_to_output(out);
    func
}
