//! Fourier transforms against direct sums in double precision.

use std::f64::consts::TAU;

use tilewright_dtype::DType;
use tilewright_graph::Dim;
use tilewright_graph::op::{DftAttrs, Op, StftAttrs};
use tilewright_graph::symbol::{SymbolKind, SymbolTable};
use tilewright_graph::tensor::{Bytes, Tensor};
use tilewright_graph::types::TensorType;
use tilewright_te::Func;
use tilewright_te::interp::{Mode, Program, TensorData};

use super::super::fft::radices;
use super::super::{Context, define};
use super::{function, tensor};
use crate::dims::DimMap;

/// A row of complex numbers.
type Row = Vec<(f64, f64)>;

/// Numbers between -1 and 1 without a pattern, exact in any float of 8 bits of precision.
fn noise(n: usize) -> Vec<f32> {
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(state >> 25) / 64.0 - 1.0) as f32
    };
    (0..n).map(|_| next()).collect()
}

fn direct(row: &[(f64, f64)], n: usize, inverse: bool) -> Row {
    let element = |step: usize| row.get(step).copied().unwrap_or_default();
    let bin = |bin: usize| {
        let sum = (0..n).fold((0.0, 0.0), |(re, im), step| {
            let angle = TAU * ((bin * step) % n) as f64 / n as f64;
            let (sin, cos) = if inverse { angle.sin_cos() } else { (-angle).sin_cos() };
            let (x, y) = element(step);
            (re + x * cos - y * sin, im + x * sin + y * cos)
        });
        let scale = if inverse { n as f64 } else { 1.0 };
        (sum.0 / scale, sum.1 / scale)
    };
    (0..n).map(bin).collect()
}

/// The whole of a conjugate symmetric spectrum of `n` elements.
fn mirrored(half: &[(f64, f64)], n: usize) -> Row {
    let given = |step: usize| half.get(step).copied().unwrap_or_default();
    let element = |step: usize| match step {
        0 => (given(0).0, 0.0),
        step if 2 * step == n => (given(step).0, 0.0),
        step if 2 * step < n => given(step),
        step => (given(n - step).0, -given(n - step).1),
    };
    (0..n).map(element).collect()
}

/// Relative error of a transform in the Euclidean norm, in units of the rounding error `u` of the arithmetic and of
/// that of the result, to which the sum is rounded once more.
///
/// A pass of radix `p` is a product with a matrix of `p` by `p` numbers of modulus 1, in which an element sees
/// less than `p + 4` roundings (its products and sums, its twiddle, roundings of the constants): in norm at most
/// `(p + 4) sqrt(p) u` (Higham, Accuracy and Stability of Numerical Algorithms, sections 3.5 and 24.1). Scaling is
/// two more.
fn bound(n: usize, dtype: DType) -> f64 {
    let unit = |dtype: DType| {
        let bits = [(DType::F64, 53), (DType::F32, 24), (DType::F16, 11), (DType::BF16, 8)];
        2f64.powi(-bits.iter().find(|(of, _)| *of == dtype).unwrap().1)
    };
    let arithmetic = if dtype == DType::F64 { dtype } else { DType::F32 };
    let passes = |radices: Vec<i64>| radices.into_iter().map(|p| (p + 4) as f64 * (p as f64).sqrt());
    match radices(n as i64) {
        Some(radices) => (passes(radices).sum::<f64>() + 2.0) * unit(arithmetic) + unit(dtype),
        None => (n + 6) as f64 * (n as f64).sqrt() * unit(DType::F64) + unit(dtype),
    }
}

fn assert_close(got: &[(f64, f64)], want: &[(f64, f64)], bound: f64, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    let norm =
        |row: &mut dyn Iterator<Item = (f64, f64)>| row.map(|(x, y)| x * x + y * y).sum::<f64>().sqrt();
    let error = norm(&mut got.iter().zip(want).map(|(a, b)| (a.0 - b.0, a.1 - b.1)));
    let size = norm(&mut want.iter().copied());
    assert!(error <= bound * size, "{what}: error {error:e} of {size:e}, more than {bound:e} of it");
}

/// The numbers of the row along axis 1 of `[.., axis, inner, parts]` at `outer` and `inner`.
fn row(data: &[f64], dims: &[usize], outer: usize, inner: usize) -> Row {
    let [_, n, width, parts] = dims[..] else { panic!("rank 4") };
    let at = |step: usize, part: usize| data[((outer * n + step) * width + inner) * parts + part];
    (0..n).map(|step| (at(step, 0), if parts == 2 { at(step, 1) } else { 0.0 })).collect()
}

fn run(func: &Func, sizes: &[i64], inputs: &[&Tensor]) -> TensorData {
    let bytes: Vec<&[u8]> = inputs.iter().map(|tensor| tensor.bytes().unwrap().as_slice()).collect();
    Program::compile(func).unwrap().run(sizes, &bytes, Mode::Exact).unwrap().swap_remove(0)
}

fn doubles(data: &TensorData) -> Vec<f64> {
    let dims = data.shape.iter().map(|&extent| extent as usize).collect();
    Tensor::from_bytes(data.dtype, dims, Bytes::new(data.bytes.clone())).unwrap().to_f64s().unwrap()
}

/// The tensor with elements of another type, which holds them exactly.
fn converted(x: &Tensor, to: DType) -> Tensor {
    let ty = TensorType::fixed(to, x.dims());
    let data = run(&function(&Op::cast(to), &[Some(x)], &[ty]).unwrap(), &[], &[x]);
    Tensor::from_bytes(to, x.dims().to_vec(), Bytes::new(data.bytes)).unwrap()
}

/// A transform along axis 1 of `[2, given, 3, parts]`.
#[derive(Clone, Copy, Debug)]
struct Case {
    given: usize,
    n: usize,
    parts: usize,
    inverse: bool,
    onesided: bool,
    dtype: DType,
}

impl Case {
    fn check(self) {
        let Case { given, n, parts, inverse, onesided, dtype } = self;
        let dims = [2, given, 3, parts];
        let x = converted(&tensor(&dims, &noise(dims.iter().product())), dtype);
        let bins = if onesided && !inverse { n / 2 + 1 } else { n };
        let result = [2, bins, 3, if onesided && inverse { 1 } else { 2 }];
        let op = Op::Dft(DftAttrs { axis: Some(1), inverse, onesided, length: Some(Dim::new(n as i64)) });
        let func = function(&op, &[Some(&x)], &[TensorType::fixed(dtype, &result)]).unwrap();
        let got = doubles(&run(&func, &[], &[&x]));
        let x = x.to_f64s().unwrap();
        for (outer, inner) in [(0, 0), (0, 2), (1, 1)] {
            let mut given = row(&x, &dims, outer, inner);
            if onesided && inverse {
                given = mirrored(&given, n);
            }
            let mut want = direct(&given, n, inverse);
            want.truncate(bins);
            if onesided && inverse {
                want.iter_mut().for_each(|value| value.1 = 0.0);
            }
            // Half a spectrum may hold less of the error's norm than of its own.
            let slack = if onesided { std::f64::consts::SQRT_2 } else { 1.0 };
            let got = row(&got, &result, outer, inner);
            assert_close(&got, &want, slack * bound(n, dtype), &format!("{self:?}"));
        }
    }
}

#[test]
fn passes_are_fours_then_a_two_in_front_then_odd() {
    let expect: [(i64, &[i64]); 9] = [
        (1, &[]),
        (2, &[2]),
        (8, &[2, 4]),
        (10, &[2, 5]),
        (16, &[4, 4]),
        (60, &[4, 3, 5]),
        (96, &[2, 4, 4, 3]),
        (100, &[4, 5, 5]),
        (169, &[13, 13]),
    ];
    for (n, expect) in expect {
        assert_eq!(radices(n).as_deref(), Some(expect), "{n}");
    }
    assert_eq!([0, -4, 17, 34].map(radices), [None, None, None, None]);
}

#[test]
fn transforms_of_every_kind_and_length() {
    for n in [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 17, 30, 34, 64, 77, 100] {
        for (inverse, onesided) in [(false, false), (false, true), (true, false), (true, true)] {
            for parts in [1, 2] {
                let given = if inverse && onesided { n / 2 + 1 } else { n };
                Case { given, n, parts, inverse, onesided, dtype: DType::F32 }.check();
            }
        }
    }
}

#[test]
fn rows_are_cut_or_continued_by_zeros() {
    for (given, n) in [(7, 12), (12, 7), (1, 6), (20, 17)] {
        for (inverse, onesided) in [(false, false), (true, false), (true, true)] {
            Case { given, n, parts: 2, inverse, onesided, dtype: DType::F32 }.check();
        }
    }
}

#[test]
fn the_arithmetic_has_the_precision_of_the_type() {
    for dtype in [DType::F64, DType::F16, DType::BF16] {
        for n in [12, 26, 34, 45] {
            Case { given: n, n, parts: 2, inverse: false, onesided: false, dtype }.check();
            Case { given: n, n, parts: 1, inverse: true, onesided: false, dtype }.check();
        }
    }
}

#[test]
fn an_axis_that_is_data() {
    let x = tensor(&[2, 6, 5, 2], &noise(120));
    let types = TensorType::new(DType::F32, vec![Dim::new(1)]);
    for (axis, inverse) in [(0i64, false), (1, true), (2, false), (-2, false), (-3, true)] {
        let mut symbols = SymbolTable::default();
        let (mut func, mut dims) = (Func::new("f"), DimMap::new());
        let extents: Vec<Dim> =
            ["a", "b", "c"].map(|name| Dim::symbol(symbols.intern(name, SymbolKind::Computed))).to_vec();
        let shape = x.dims().iter().map(|&extent| (extent as i64).into()).collect();
        let operand = func.add_input("x", DType::F32, shape);
        let place = func.add_input("axis", DType::I64, Vec::new());
        let ty = TensorType::new(types.dtype, [extents, vec![Dim::new(2)]].concat());
        let mut ctx = Context::new(&symbols, &mut dims);
        let op = Op::Dft(DftAttrs { axis: None, inverse, onesided: false, length: None });
        let results = define(&mut func, &mut ctx, &op, &[Some(operand), None, Some(place)], &[&ty]).unwrap();
        func.promote_to_output(results[0]);
        let result = run(&func, &[2, 6, 5], &[&x, &Tensor::scalar(axis)]);
        assert_eq!(result.shape, [2, 6, 5, 2]);

        // The same tensor with the axis in the middle.
        let axis = if axis < 0 { axis + 4 } else { axis } as usize;
        let dims =
            [x.dims()[..axis].iter().product(), x.dims()[axis], x.dims()[axis + 1..3].iter().product(), 2];
        let (got, x) = (doubles(&result), x.to_f64s().unwrap());
        let want = direct(&row(&x, &dims, 0, 0), dims[1], inverse);
        assert_close(&row(&got, &dims, 0, 0), &want, bound(dims[1], DType::F32), "a run-time axis");
        let last = (dims[0] - 1, dims[2] - 1);
        let want = direct(&row(&x, &dims, last.0, last.1), dims[1], inverse);
        assert_close(&row(&got, &dims, last.0, last.1), &want, bound(dims[1], DType::F32), "a run-time axis");
    }
}

#[test]
fn frames_with_and_without_a_window() {
    for (length, parts, windowed, onesided) in
        [(8usize, 1, true, true), (8, 1, false, true), (12, 2, true, false), (17, 1, true, true)]
    {
        let (samples, step) = (40, 5);
        let (frames, bins) = ((samples - length) / step + 1, if onesided { length / 2 + 1 } else { length });
        let x = tensor(&[2, samples, parts], &noise(2 * samples * parts));
        let window = tensor(&[length], &noise(length));
        let op = Op::Stft(StftAttrs {
            onesided,
            frame_step: Some(step as i64),
            frame_length: (!windowed).then_some(length as i64),
        });
        let operands = [Some(&x), None, windowed.then_some(&window)];
        let ty = TensorType::fixed(DType::F32, &[2, frames, bins, 2]);
        let func = function(&op, &operands, &[ty]).unwrap();
        let inputs: Vec<&Tensor> = operands.into_iter().flatten().collect();
        let got = doubles(&run(&func, &[], &inputs));
        let (x, window) = (x.to_f64s().unwrap(), window.to_f64s().unwrap());
        for (batch, frame) in [(0, 0), (0, frames - 1), (1, 1)] {
            let element = |n: usize| {
                let at = |part: usize| x[(batch * samples + frame * step + n) * parts + part];
                let weight = if windowed { window[n] } else { 1.0 };
                (weight * at(0), if parts == 2 { weight * at(1) } else { 0.0 })
            };
            let mut want = direct(&(0..length).map(element).collect::<Row>(), length, false);
            want.truncate(bins);
            let got = row(&got, &[2 * frames, bins, 1, 2], batch * frames + frame, 0);
            let slack = if onesided { std::f64::consts::SQRT_2 } else { 1.0 };
            assert_close(&got, &want, slack * bound(length, DType::F32), &format!("{length} {parts}"));
        }
    }
}
