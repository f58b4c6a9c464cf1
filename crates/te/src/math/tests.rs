//! Accuracy of the expansions against `libm` in double precision, and of narrow floats against the
//! interpreter.

use std::sync::Mutex;

use tilewright_dtype::DType;

use crate::expr::{BinaryOp, Expr, UnaryOp};
use crate::func::{Func, Scope};
use crate::interp::{Mode, Program, TensorData, reference_binary, reference_unary};

use super::*;

/// `y[i] = value(x_0[i], x_1[i], ...)` for inputs of type `dtype`.
fn elementwise(n: usize, dtype: DType, arity: usize, value: impl FnOnce(&[Expr]) -> Expr) -> Func {
    let mut f = Func::new("f");
    let shape = || vec![Expr::int(n as i64)];
    let inputs: Vec<_> = (0..arity).map(|i| f.add_input(&format!("x{i}"), dtype, shape())).collect();
    let i = Expr::var(f.add_var("probe", crate::func::VarKind::Loop));
    let loads: Vec<Expr> = inputs.iter().map(|&x| f.load(x, vec![i.clone()])).collect();
    let value = value(&loads);
    let y = f.add_buffer("y", value.dtype(), shape(), Scope::Global);
    f.promote_to_output(y);
    let probe = i.as_var();
    f.compute_into(y, |_, at| value.substitute(&|v| (Some(v) == probe).then(|| at[0].clone())));
    f
}

fn run(func: &Func, inputs: &[&[u8]]) -> TensorData {
    Program::compile(func).unwrap().run(&[], inputs, Mode::Exact).unwrap().remove(0)
}

fn bytes_f32(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn bytes_f64(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Error in units in the last place of the `F32` nearest to the exact value; 0 for equal infinities or NaN.
fn ulps_f32(got: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if got.is_nan() || exact.is_nan() || rounded.is_infinite() || got.is_infinite() {
        let same = (got.is_nan() && exact.is_nan()) || got == rounded;
        return if same { 0.0 } else { f64::INFINITY };
    }
    let exponent = (rounded.abs().max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 127;
    (got as f64 - exact).abs() / f64::powi(2.0, exponent - 23)
}

fn ulps_f64(got: f64, exact: f64) -> f64 {
    if got.is_nan() || exact.is_nan() || exact.is_infinite() || got.is_infinite() {
        let same = (got.is_nan() && exact.is_nan()) || got == exact;
        return if same { 0.0 } else { f64::INFINITY };
    }
    let unit = exact.abs().max(f64::MIN_POSITIVE).next_up() - exact.abs().max(f64::MIN_POSITIVE);
    (got - exact).abs() / unit
}

const SPECIAL: [f64; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1e-45,
    -1e-45,
    1e-39,
    -1e-39,
    1.1754944e-38,
    88.72284,
    3.4028235e38,
    -3.4028235e38,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    -103.9,
];

fn worst<T: Copy>(inputs: &[T], errors: impl Iterator<Item = f64>) -> (f64, T) {
    let mut worst = (0.0, inputs[0]);
    for (&x, error) in inputs.iter().zip(errors) {
        if error > worst.0 {
            worst = (error, x);
        }
    }
    worst
}

/// The least `F32` whose exponential is a normal number.
const LN_MIN_POSITIVE: f32 = -87.336_54;

/// The worst error in ulp over every `stride`-th `F32`, and special values.
fn worst_f32(op: UnaryOp, stride: usize, limit: f64) -> (f64, f32) {
    let bits = (0..=u32::MAX).step_by(stride).map(f32::from_bits);
    let mut xs: Vec<f32> = bits.chain(SPECIAL.iter().map(|&x| x as f32)).collect();
    // Zeros of the logarithms and of the inverses' complements deserve a closer look.
    xs.extend((0..20000).map(|i| f32::from_bits(0x3f800000 - 10000 + i)));
    // So does the place where exponentials become subnormal.
    xs.extend((0..20000).map(|i| f32::from_bits(LN_MIN_POSITIVE.to_bits() - 10000 + i)));
    xs.extend((0..20000).map(|i| f32::from_bits((-126.5f32).to_bits() - 10000 + i)));
    xs.retain(|&x| !matches!(op, UnaryOp::ExpFtz | UnaryOp::Exp2Ftz) || x <= 0.0 || x.is_nan());
    xs.retain(|x| x.is_nan() || x.abs() as f64 <= limit || x.is_infinite() && limit == f64::INFINITY);
    let func = elementwise(xs.len(), DType::F32, 1, |x| Expr::unary(op, x[0].clone()));
    let got = run(&func, &[&bytes_f32(&xs)]).to_f32().unwrap();
    for (&x, &y) in xs.iter().zip(&got) {
        let exact = reference_unary(op, x as f64);
        let zero = x == 0.0 && exact == 0.0;
        assert!(!zero || y.is_sign_negative() == exact.is_sign_negative(), "{}({x:?}) = {y:?}", op.name());
    }
    let expected = |x: f32| match op {
        // Documented: subnormal results are 0.
        UnaryOp::Sigmoid | UnaryOp::ExpFtz if x < LN_MIN_POSITIVE => 0.0,
        UnaryOp::Exp2Ftz if x <= -126.5 => 0.0,
        _ => reference_unary(op, x as f64),
    };
    worst(&xs, xs.iter().zip(&got).map(|(&x, &y)| ulps_f32(y, expected(x))))
}

/// Bounds in ulp for `F32`, and the greatest operand up to which they hold.
#[rustfmt::skip]
const SINGLE: [(UnaryOp, f64, f64); 20] = [
    (UnaryOp::Exp, 1.5, f64::INFINITY), (UnaryOp::ExpFtz, 1.5, f64::INFINITY), (UnaryOp::Exp2Ftz, 2.5, f64::INFINITY), (UnaryOp::Log, 1.5, f64::INFINITY), (UnaryOp::Tanh, 2.0, f64::INFINITY),
    (UnaryOp::Erf, 2.0, f64::INFINITY), (UnaryOp::Sigmoid, 3.0, f64::INFINITY), (UnaryOp::Sin, 0.51, 1e15),
    (UnaryOp::Cos, 0.51, 1e15), (UnaryOp::Tan, 0.51, 1e15), (UnaryOp::Asin, 0.51, f64::INFINITY),
    (UnaryOp::Acos, 0.51, f64::INFINITY), (UnaryOp::Atan, 0.51, f64::INFINITY),
    (UnaryOp::Sinh, 0.51, f64::INFINITY), (UnaryOp::Cosh, 0.51, f64::INFINITY),
    (UnaryOp::Asinh, 0.51, f64::INFINITY), (UnaryOp::Acosh, 0.51, f64::INFINITY),
    (UnaryOp::Atanh, 0.51, f64::INFINITY), (UnaryOp::Log1p, 0.51, f64::INFINITY),
    (UnaryOp::Expm1, 0.51, f64::INFINITY),
];

#[test]
fn single_precision_errors_stay_within_bounds() {
    let failures = Mutex::new(Vec::new());
    for (op, bound, limit) in SINGLE {
        let (error, at) = worst_f32(op, 9973, limit);
        println!("{:8} {error:.3} ulp at {at:?}", op.name());
        if error > bound {
            failures.lock().unwrap().push(format!("{}: {error} ulp at {at:?}", op.name()));
        }
    }
    assert_eq!(failures.into_inner().unwrap(), Vec::<String>::new());
}

/// Its errors are of what it is part of: a sum with 1, or a product with the operand.
#[test]
fn shares_of_the_normal_distribution_stay_within_bounds() {
    let xs: Vec<f32> = (0..=u32::MAX).step_by(9973).map(f32::from_bits).collect();
    let func = elementwise(xs.len(), DType::F32, 1, |x| Expr::unary(UnaryOp::NormCdf, x[0].clone()));
    let bytes: Vec<u8> = xs.iter().flat_map(|x| x.to_le_bytes()).collect();
    let got = run(&func, &[&bytes]).to_f32().unwrap();
    let (mut absolute, mut relative) = (0.0f64, 0.0f64);
    for (&x, &found) in xs.iter().zip(&got) {
        let expected = reference_unary(UnaryOp::NormCdf, f64::from(x));
        assert_eq!(x.is_nan(), found.is_nan(), "{x}: {found}");
        if !x.is_nan() {
            assert!((0.0..=1.0).contains(&found), "{x}: {found}");
            let error = (f64::from(found) - expected).abs();
            absolute = absolute.max(error);
            relative = relative.max(if x > -6.0 { error / expected } else { 0.0 });
        }
    }
    let xs = doubles(30000);
    let func = elementwise(xs.len(), DType::F64, 1, |x| Expr::unary(UnaryOp::NormCdf, x[0].clone()));
    let got = run(&func, &[&bytes_f64(&xs)]).to_f64().unwrap();
    let pairs = xs.iter().zip(&got).filter(|(x, _)| !x.is_nan());
    let double =
        pairs.map(|(&x, found)| (found - reference_unary(UnaryOp::NormCdf, x)).abs()).fold(0.0, f64::max);
    println!("norm_cdf: {absolute:.2e}, of it {relative:.2e}; {double:.2e}");
    assert!(double < 3e-16, "{double:.2e}");
    assert!(absolute < 1.8e-7 && relative < 2e-5, "{absolute:.2e}, of it {relative:.2e}");
}

/// Bounds in ulp for `F64` (against a reference that is itself within 1 ulp), with the greatest operand.
#[rustfmt::skip]
const DOUBLE: [(UnaryOp, f64, f64); 18] = [
    (UnaryOp::Exp, 2.0, 1e300), (UnaryOp::Log, 2.0, 1e300), (UnaryOp::Tanh, 4.0, 1e300), (UnaryOp::Erf, 2.0, 1e300),
    (UnaryOp::Sigmoid, 4.0, 1e300), (UnaryOp::Sin, 2.0, 1e9), (UnaryOp::Cos, 2.0, 1e9), (UnaryOp::Tan, 4.0, 1e9),
    (UnaryOp::Asin, 3.0, 1e300), (UnaryOp::Acos, 3.0, 1e300), (UnaryOp::Atan, 2.0, 1e300),
    (UnaryOp::Sinh, 4.0, 1e300), (UnaryOp::Cosh, 4.0, 1e300), (UnaryOp::Asinh, 4.0, 1e300),
    (UnaryOp::Acosh, 4.0, 1e300), (UnaryOp::Atanh, 4.0, 1e300), (UnaryOp::Log1p, 3.0, 1e300),
    (UnaryOp::Expm1, 3.0, 1e300),
];

fn doubles(n: usize) -> Vec<f64> {
    let mut state = 0x9e3779b97f4a7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut xs: Vec<f64> = SPECIAL.to_vec();
    for _ in 0..n {
        let r = next();
        let unit = (next() >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        xs.push(f64::from_bits(r));
        xs.push(unit * f64::powi(2.0, (r % 24) as i32 - 12));
        xs.push(unit * 1500.0);
        xs.push(1.0 + unit * 0.5);
    }
    xs
}

/// What a softmax computes for every element.
#[test]
fn flushed_exponentials_take_half_the_operations_and_meet_no_subnormal_value() {
    let x = Expr::load(DType::F32, Func::new("f").add_input("x", DType::F32, vec![]), vec![]);
    let operations = |op: UnaryOp| {
        let mut seen = rustc_hash::FxHashSet::default();
        let mut pending = vec![expand_unary(op, x.clone())];
        while let Some(e) = pending.pop() {
            e.for_each_operand(|operand| {
                if seen.insert(operand.clone()) {
                    pending.push(operand.clone());
                }
            });
        }
        let is_operation = |e: &&Expr| {
            !matches!(
                e.kind(),
                ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Load(..) | ExprKind::Bitcast(_)
            )
        };
        // The root itself has not been an operand.
        1 + seen.iter().filter(is_operation).count()
    };
    let counted = [UnaryOp::Exp, UnaryOp::ExpFtz, UnaryOp::Exp2Ftz].map(operations);
    assert_eq!(counted, [32, 16, 11]);
    let xs: Vec<f32> = (0..=u32::MAX).step_by(9973).map(f32::from_bits).filter(|x| *x <= 0.0).collect();
    let func = elementwise(xs.len(), DType::F32, 1, |x| Expr::unary(UnaryOp::ExpFtz, x[0].clone()));
    let got = run(&func, &[&bytes_f32(&xs)]).to_f32().unwrap();
    assert!(got.iter().all(|y| !y.is_subnormal()));
    let xs: Vec<f64> = doubles(30000).into_iter().filter(|x| *x <= 0.0).collect();
    for op in [UnaryOp::ExpFtz, UnaryOp::Exp2Ftz] {
        let func = elementwise(xs.len(), DType::F64, 1, |x| Expr::unary(op, x[0].clone()));
        for (&x, &y) in xs.iter().zip(&run(&func, &[&bytes_f64(&xs)]).to_f64().unwrap()) {
            let exact = reference_unary(op, x);
            let exact = if exact.is_subnormal() { 0.0 } else { exact };
            assert!(ulps_f64(y, exact) <= 2.0, "{}({x:?}): {y:?}", op.name());
        }
    }
}

#[test]
fn double_precision_errors_stay_within_bounds() {
    let mut failures = Vec::new();
    for (op, bound, limit) in DOUBLE {
        let mut xs = doubles(30000);
        xs.retain(|x| x.is_nan() || x.abs() <= limit || x.is_infinite());
        let func = elementwise(xs.len(), DType::F64, 1, |x| Expr::unary(op, x[0].clone()));
        let got = run(&func, &[&bytes_f64(&xs)]).to_f64().unwrap();
        let (error, at) = worst(&xs, xs.iter().zip(&got).map(|(&x, &y)| ulps_f64(y, reference_unary(op, x))));
        println!("{:8} {error:.3} ulp at {at:?}", op.name());
        if error > bound {
            failures.push(format!("{}: {error} ulp at {at:?}", op.name()));
        }
    }
    assert_eq!(failures, Vec::<String>::new());
}

/// Pairs of all special values, and of values of assorted magnitudes.
fn pairs(n: usize) -> (Vec<f64>, Vec<f64>) {
    let mut special = SPECIAL.to_vec();
    special.extend([4.0, 5.0, -4.5, 16777217.0, 1e9, -7.0, 1.0000001, 0.9999999]);
    let crossed = special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y)));
    let xs = doubles(n);
    let random = xs.windows(6).map(|w| (w[0], w[5])).chain(xs.windows(7).map(|w| (w[1].abs(), w[6])));
    crossed.chain(random).unzip()
}

fn worst_binary(op: BinaryOp, dtype: DType) -> (f64, (f64, f64)) {
    let (mut xs, mut ys) = pairs(20000);
    if dtype == DType::F32 {
        xs.iter_mut().chain(&mut ys).for_each(|x| *x = *x as f32 as f64);
    } else if op == BinaryOp::Fmod {
        // Within the documented range.
        for (x, y) in xs.iter().zip(&mut ys) {
            if x.is_finite() && y.abs() < 1e240 && (x / *y).abs() > 1e60 {
                *y = *x / 12345.678;
            }
        }
    }
    let func = elementwise(xs.len(), dtype, 2, |x| Expr::binary(op, x[0].clone(), x[1].clone()));
    let operands: Vec<(f64, f64)> = xs.iter().copied().zip(ys.iter().copied()).collect();
    let exact = |&(x, y): &(f64, f64)| reference_binary(op, x, y);
    let same_sign = |a: f64, b: f64| a.is_nan() || a.is_sign_negative() == b.is_sign_negative();
    let check = |sign: bool, error: f64| if sign { error } else { f64::INFINITY };
    if dtype == DType::F32 {
        let single = |v: &[f64]| bytes_f32(&v.iter().map(|&x| x as f32).collect::<Vec<_>>());
        let got = run(&func, &[&single(&xs), &single(&ys)]).to_f32().unwrap();
        let errors = operands
            .iter()
            .zip(&got)
            .map(|(o, &y)| check(same_sign(exact(o), y as f64), ulps_f32(y, exact(o))));
        worst(&operands, errors)
    } else {
        let got = run(&func, &[&bytes_f64(&xs), &bytes_f64(&ys)]).to_f64().unwrap();
        let errors =
            operands.iter().zip(&got).map(|(o, &y)| check(same_sign(exact(o), y), ulps_f64(y, exact(o))));
        worst(&operands, errors)
    }
}

#[test]
fn binary_functions_stay_within_bounds() {
    let mut failures = Vec::new();
    let cases = [
        (BinaryOp::Pow, DType::F32, 0.51),
        (BinaryOp::Pow, DType::F64, 2.0),
        (BinaryOp::Atan2, DType::F32, 0.51),
        (BinaryOp::Atan2, DType::F64, 3.0),
        (BinaryOp::Fmod, DType::F32, 0.0),
        (BinaryOp::Fmod, DType::F64, 0.0),
    ];
    for (op, dtype, bound) in cases {
        let (error, at) = worst_binary(op, dtype);
        println!("{:5} {dtype} {error:.3} ulp at {at:?}", op.name());
        if error > bound {
            failures.push(format!("{} {dtype}: {error} ulp at {at:?}", op.name()));
        }
    }
    assert_eq!(failures, Vec::<String>::new());
}

#[test]
fn constant_powers_agree_with_general_ones() {
    for exponent in [1.0, 2.0, 3.0, -1.0, 0.5] {
        let xs: Vec<f32> =
            SPECIAL.iter().map(|&x| x as f32).chain((0..200).map(|i| i as f32 * 0.37)).collect();
        let power = |x: &[Expr]| Expr::binary(BinaryOp::Pow, x[0].clone(), Expr::f32(exponent));
        let func = elementwise(xs.len(), DType::F32, 1, power);
        let got = run(&func, &[&bytes_f32(&xs)]).to_f32().unwrap();
        for (&x, &y) in xs.iter().zip(&got) {
            let error = ulps_f32(y, libm::pow(x as f64, exponent as f64));
            // A cube is rounded twice.
            assert!(error <= 1.2, "{x:?} to the {exponent} is {y:?}, off by {error}");
        }
    }
}

#[test]
fn no_intrinsic_is_left_and_sharing_survives() {
    let x = Expr::unary(UnaryOp::Tanh, Expr::unary(UnaryOp::Exp, Expr::f32(0.5)));
    let e = expand(&Expr::binary(BinaryOp::Pow, x.clone(), x));
    let mut seen = rustc_hash::FxHashSet::default();
    fn visit(e: &Expr, seen: &mut rustc_hash::FxHashSet<Expr>) {
        if seen.insert(e.clone()) {
            assert!(!e.is_intrinsic(), "{e:?}");
            e.for_each_operand(|operand| visit(operand, seen));
        }
    }
    visit(&e, &mut seen);
    assert!(seen.len() < 400, "{} distinct nodes", seen.len());
}

const NARROW: [DType; 8] = [
    DType::F16,
    DType::BF16,
    DType::F8E4M3FN,
    DType::F8E4M3FNUZ,
    DType::F8E5M2,
    DType::F8E5M2FNUZ,
    DType::F8E8M0,
    DType::F4E2M1,
];

/// Runs `func` as it is and without narrow floats, on every pair of patterns of the type.
fn check_narrow(name: &str, dtype: DType, value: impl FnOnce(&[Expr]) -> Expr) {
    let size = dtype.bytes();
    let codes: Vec<(u16, u16)> = if size == 2 {
        (0..=u16::MAX).map(|a| (a, a.wrapping_mul(40503).rotate_left(5))).collect()
    } else {
        let n = 1u16 << dtype.bits();
        (0..n).flat_map(|a| (0..n).map(move |b| (a, b))).collect()
    };
    let side = |pick: fn(&(u16, u16)) -> u16| -> Vec<u8> {
        codes.iter().flat_map(|c| pick(c).to_le_bytes()[..size].to_vec()).collect()
    };
    let (a, b) = (side(|c| c.0), side(|c| c.1));
    let func = elementwise(codes.len(), dtype, 2, value);
    let mut narrowed = func.clone();
    expand_func(&mut narrowed);
    narrow_floats(&mut narrowed);
    let expect = run(&func, &[&a, &b]);
    let got = run(&narrowed, &[&a, &b]);
    assert_eq!(got.bytes.len(), expect.bytes.len());
    let width = expect.dtype.bytes();
    let format = tilewright_dtype::float_format::FloatFormat::of(expect.dtype);
    for (i, (x, y)) in expect.bytes.chunks(width).zip(got.bytes.chunks(width)).enumerate() {
        let nan = |bytes: &[u8]| {
            let code = u16::from_le_bytes([bytes[0], *bytes.get(1).unwrap_or(&0)]);
            format.is_some_and(|f| f.decode(code).is_nan())
        };
        assert!(x == y || (nan(x) && nan(y)), "{name} {dtype} of {:x?}: {y:x?}, not {x:x?}", codes[i]);
    }
}

#[test]
fn narrow_arithmetic_equals_the_interpreters() {
    for dtype in NARROW {
        check_narrow("sum", dtype, |x| x[0].clone() + x[1].clone());
        check_narrow("product", dtype, |x| x[0].clone() * x[1].clone());
        check_narrow("quotient", dtype, |x| x[0].clone() / x[1].clone());
        check_narrow("fma", dtype, |x| Expr::fma(x[0].clone(), x[1].clone(), x[0].clone()) - x[1].clone());
        check_narrow("max", dtype, |x| x[0].clone().max(-x[1].clone()));
        check_narrow("root", dtype, |x| Expr::unary(UnaryOp::Sqrt, x[0].clone()));
        check_narrow("integer", dtype, |x| x[0].clone().cast(DType::I32));
        check_narrow("comparison", dtype, |x| x[0].clone().lt(x[1].clone()));
        let storage = if dtype.bytes() == 2 { DType::U16 } else { DType::U8 };
        check_narrow("bits", dtype, |x| (x[0].clone() * x[1].clone()).bitcast(storage).bitcast(dtype));
        check_narrow("wider", dtype, |x| {
            let wide = x[0].clone().cast(DType::F64) * x[1].clone().cast(DType::F64);
            (wide / Expr::float_of(DType::F64, 3.0)).cast(dtype)
        });
    }
    check_narrow("tanh", DType::F16, |x| Expr::unary(UnaryOp::Tanh, x[0].clone()) * x[1].clone());
}

#[test]
fn narrow_conversions_round_ties_and_saturate() {
    for dtype in NARROW {
        let patterns = (0..=u32::MAX).step_by(9949).map(f32::from_bits);
        // Ties of every format, and their neighbours.
        let ties = (0..=u16::MAX).flat_map(|b| {
            let x = (b as u32) << 16 | 0x8000;
            [x, x - 1, x + 1, (b as u32) << 16 | 0x1000].map(f32::from_bits)
        });
        let xs: Vec<f32> = patterns.chain(ties).chain(SPECIAL.iter().map(|&x| x as f32)).collect();
        let func = elementwise(xs.len(), DType::F32, 1, |x| x[0].clone().cast(dtype));
        let mut narrowed = func.clone();
        narrow_floats(&mut narrowed);
        let (expect, got) = (run(&func, &[&bytes_f32(&xs)]), run(&narrowed, &[&bytes_f32(&xs)]));
        let width = dtype.bytes();
        let format = tilewright_dtype::float_format::FloatFormat::of(dtype).unwrap();
        for (i, (a, b)) in expect.bytes.chunks(width).zip(got.bytes.chunks(width)).enumerate() {
            let nan = |c: &[u8]| format.decode(u16::from_le_bytes([c[0], *c.get(1).unwrap_or(&0)])).is_nan();
            assert!(a == b || (nan(a) && nan(b)), "{:?} to {dtype}: {b:x?}, not {a:x?}", xs[i]);
        }
    }
}

/// Triples with much cancellation: products next to the negated third operand.
fn triples(n: usize, limit: f64) -> [Vec<f64>; 3] {
    let xs: Vec<f64> =
        doubles(n).into_iter().filter(|x| x.is_nan() || x.is_infinite() || x.abs() < limit).collect();
    let mut out = [Vec::new(), Vec::new(), Vec::new()];
    for w in xs.windows(9) {
        let near = (w[0] * w[4]) as f32 as f64;
        for c in [w[8], -(w[0] * w[4]), near, -near, near * 1e-17, w[0] * w[4] * 1.1e-8] {
            out[0].push(w[0]);
            out[1].push(w[4]);
            out[2].push(c);
        }
    }
    out
}

#[test]
fn emulated_fma_has_the_bits_of_the_instruction() {
    let [a, b, c] = triples(20000, f64::INFINITY).map(|v| v.iter().map(|&x| x as f32).collect::<Vec<f32>>());
    let mut f = elementwise(a.len(), DType::F32, 3, |x| Expr::fma(x[0].clone(), x[1].clone(), x[2].clone()));
    expand_fma(&mut f);
    let got = run(&f, &[&bytes_f32(&a), &bytes_f32(&b), &bytes_f32(&c)]).to_f32().unwrap();
    for i in 0..a.len() {
        let expect = a[i].mul_add(b[i], c[i]);
        let same = got[i].to_bits() == expect.to_bits() || (got[i].is_nan() && expect.is_nan());
        assert!(same, "fma({:?}, {:?}, {:?}) = {:?}, not {expect:?}", a[i], b[i], c[i], got[i]);
    }
    let in_range = |x: &f64| !x.is_finite() || *x == 0.0 || (1e-100..1e100).contains(&x.abs());
    let [a, b, c] = triples(20000, 1e100);
    let rows: Vec<usize> = (0..a.len()).filter(|&i| [a[i], b[i], c[i]].iter().all(in_range)).collect();
    let [a, b, c] = [a, b, c].map(|v| rows.iter().map(|&i| v[i]).collect::<Vec<f64>>());
    let mut f = elementwise(a.len(), DType::F64, 3, |x| Expr::fma(x[0].clone(), x[1].clone(), x[2].clone()));
    expand_fma(&mut f);
    let got = run(&f, &[&bytes_f64(&a), &bytes_f64(&b), &bytes_f64(&c)]).to_f64().unwrap();
    for i in 0..a.len() {
        let expect = a[i].mul_add(b[i], c[i]);
        let same = got[i].to_bits() == expect.to_bits() || (got[i].is_nan() && expect.is_nan());
        assert!(same, "fma({:?}, {:?}, {:?}) = {:?}, not {expect:?}", a[i], b[i], c[i], got[i]);
    }
}
