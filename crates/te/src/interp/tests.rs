//! Tests of the interpreter: every control path against values computed here, and the errors it reports.

use tilewright_dtype::{DType, float_format};

use crate::expr::{BinaryOp, Expr, UnaryOp, Var};
use crate::func::{Func, IterKind, LoopKind, Scope, Stmt, Store, VarKind};

use super::*;

fn constants(shape: &[i64]) -> Vec<Expr> {
    shape.iter().map(|&e| Expr::int(e)).collect()
}

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2654435761).max(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32 - 0.5
    };
    (0..n).map(|_| next()).collect()
}

fn run(func: &Func, sizes: &[i64], inputs: &[TensorData]) -> Result<Vec<TensorData>, InterpError> {
    let bytes: Vec<&[u8]> = inputs.iter().map(|t| t.bytes.as_slice()).collect();
    Program::compile(func)?.run(sizes, &bytes, Mode::Exact)
}

fn run_f32(func: &Func, sizes: &[i64], inputs: &[TensorData]) -> Vec<f32> {
    run(func, sizes, inputs).unwrap()[0].to_f32().unwrap()
}

/// `c[i, j] = sum over k of a[i, k] * b[k, j]`.
fn add_matmul(f: &mut Func, m: Expr, n: Expr, k: Expr) {
    let a = f.add_input("a", DType::F32, vec![m.clone(), k.clone()]);
    let b = f.add_input("b", DType::F32, vec![k.clone(), n.clone()]);
    let c = f.reduce("c", DType::F32, vec![m, n], vec![k], Expr::f32(0.0), |f, i, r, acc| {
        let x = f.load(a, vec![i[0].clone(), r[0].clone()]);
        let y = f.load(b, vec![r[0].clone(), i[1].clone()]);
        acc + x * y
    });
    f.promote_to_output(c);
}

fn matmul(m: Expr, n: Expr, k: Expr) -> Func {
    let mut f = Func::new("matmul");
    add_matmul(&mut f, m, n, k);
    f
}

fn matmul_reference(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            for l in 0..k {
                c[i * n + j] += a[i * k + l] * b[l * n + j];
            }
        }
    }
    c
}

#[test]
fn matmul_with_symbolic_extents_matches() {
    let mut f = Func::new("matmul");
    for name in ["m", "n", "k"] {
        f.add_size(name, 1, 1 << 20);
    }
    let [m, n, k] = [f.sizes[0], f.sizes[1], f.sizes[2]].map(Expr::var);
    add_matmul(&mut f, m, n, k);
    for (m, n, k) in [(1, 1, 1), (3, 5, 7), (2, 300, 4), (300, 1, 5)] {
        let (a, b) = (noise((m * k) as usize, 1), noise((k * n) as usize, 2));
        let inputs = [TensorData::from_f32(&[m, k], &a), TensorData::from_f32(&[k, n], &b)];
        let expect = matmul_reference(&a, &b, m as usize, n as usize, k as usize);
        assert_eq!(run_f32(&f, &[m, n, k], &inputs), expect, "{m} {n} {k}");
    }
}

#[test]
fn double_mode_holds_floats_as_f64() {
    let f = matmul(Expr::int(2), Expr::int(2), Expr::int(50));
    let (a, b) = (noise(100, 3), noise(100, 4));
    let program = Program::compile(&f).unwrap();
    let inputs = [TensorData::from_f32(&[2, 50], &a), TensorData::from_f32(&[50, 2], &b)];
    let bytes: Vec<&[u8]> = inputs.iter().map(|t| t.bytes.as_slice()).collect();
    let out = program.run(&[], &bytes, Mode::Double).unwrap()[0].to_f64().unwrap();
    let expect: f64 = (0..50).map(|k| a[k] as f64 * b[2 * k] as f64).sum();
    assert_eq!(out[0], expect);
}

#[test]
fn padding_guards_skip_loads_out_of_bounds() {
    let mut f = Func::new("pad");
    let x = f.add_input("x", DType::F32, constants(&[10]));
    let y = f.add_output("y", DType::F32, constants(&[300]));
    f.compute_into(y, |f, i| {
        let at = i[0].clone() - 145;
        let inside = at.clone().ge(Expr::int(0)).and(at.clone().lt(Expr::int(10)));
        Expr::select(inside, f.load(x, vec![at]), Expr::f32(-1.0))
    });
    let data = noise(10, 5);
    let out = run_f32(&f, &[], &[TensorData::from_f32(&[10], &data)]);
    for (i, &value) in out.iter().enumerate() {
        let expect = if (145..155).contains(&i) { data[i - 145] } else { -1.0 };
        assert_eq!(value, expect, "element {i}");
    }
}

#[test]
fn transpose_and_gather_move_elements() {
    let mut f = Func::new("move");
    let x = f.add_input("x", DType::I32, constants(&[7, 150]));
    let at = f.add_input("at", DType::I64, constants(&[150]));
    let y = f.add_output("y", DType::I32, constants(&[150, 7]));
    f.compute_into(y, |f, i| {
        let row = f.load(at, vec![i[0].clone()]);
        f.load(x, vec![i[1].clone(), row])
    });
    let data: Vec<i32> = (0..1050).collect();
    let places: Vec<i64> = (0..150).map(|i| (i * 77) % 150).collect();
    let inputs = [TensorData::from_i32(&[7, 150], &data), TensorData::from_i64(&[150], &places)];
    let out = run(&f, &[], &inputs).unwrap()[0].to_i32().unwrap();
    for i in 0..150 {
        for j in 0..7 {
            assert_eq!(out[i * 7 + j], data[j * 150 + places[i] as usize]);
        }
    }
}

#[test]
fn a_scan_runs_in_order() {
    let mut f = Func::new("scan");
    let x = f.add_input("x", DType::I64, constants(&[200]));
    let y = f.add_output("y", DType::I64, constants(&[200]));
    f.compute_into(y, |f, i| {
        let before = f.load(y, vec![i[0].clone() - 1]);
        let sum = Expr::select(i[0].clone().gt(Expr::int(0)), before, Expr::int(0));
        sum + f.load(x, vec![i[0].clone()])
    });
    let data: Vec<i64> = (0..200).map(|i| i * i % 17).collect();
    let mut sum = 0;
    let expect: Vec<i64> = data
        .iter()
        .map(|x| {
            sum += x;
            sum
        })
        .collect();
    assert_eq!(run(&f, &[], &[TensorData::from_i64(&[200], &data)]).unwrap()[0].to_i64().unwrap(), expect);
}

#[test]
fn a_scatter_keeps_the_last_of_equal_places() {
    let mut f = Func::new("scatter");
    let at = f.add_input("at", DType::I64, constants(&[300]));
    let y = f.add_output("y", DType::I64, constants(&[4]));
    f.define(y, vec![(Expr::int(300), IterKind::Spatial)], |f, i| {
        let index = f.load(at, vec![i[0].clone()]);
        (vec![], vec![Store { buffer: y, indices: vec![index], value: i[0].clone() }])
    });
    let places: Vec<i64> = (0..300).map(|i| i % 4).collect();
    let out = run(&f, &[], &[TensorData::from_i64(&[300], &places)]).unwrap();
    assert_eq!(out[0].to_i64().unwrap(), [296, 297, 298, 299]);
}

#[test]
fn argmax_reduces_two_results() {
    let mut f = Func::new("argmax");
    let x = f.add_input("x", DType::F32, constants(&[150, 9]));
    let best = f.add_output("best", DType::F32, constants(&[150]));
    let place = f.add_output("place", DType::I64, constants(&[150]));
    let results = vec![
        crate::define::Reduced { buffer: place, init: Expr::int(0) },
        crate::define::Reduced { buffer: best, init: Expr::lowest(DType::F32) },
    ];
    f.reduce_many(results, constants(&[9]), |f, i, r, acc| {
        let value = f.load(x, vec![i[0].clone(), r[0].clone()]);
        let better = value.clone().gt(acc[1].clone());
        vec![
            Expr::select(better.clone(), r[0].clone(), acc[0].clone()),
            Expr::select(better, value, acc[1].clone()),
        ]
    });
    let data = noise(1350, 6);
    let out = run(&f, &[], &[TensorData::from_f32(&[150, 9], &data)]).unwrap();
    for (i, row) in data.chunks(9).enumerate() {
        let at = (0..9).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        assert_eq!(out[1].to_i64().unwrap()[i], at as i64);
        assert_eq!(out[0].to_f32().unwrap()[i], row[at]);
    }
}

/// Splits the innermost loop of the function's only nest by `factor`, with a predicate for the tail.
fn split_innermost(f: &mut Func, factor: i64, kind: LoopKind) {
    let outer = f.add_var("outer", VarKind::Loop);
    let inner = f.add_var("inner", VarKind::Loop);
    fn descend(stmt: &mut Stmt, outer: Var, inner: Var, factor: i64, kind: LoopKind) {
        let Stmt::Loop(l) = stmt else { panic!("no loop") };
        if matches!(l.body[0], Stmt::Loop(_)) {
            return descend(&mut l.body[0], outer, inner, factor, kind);
        }
        let value = Expr::var(outer) * factor + Expr::var(inner);
        let Stmt::Block(block) = &mut l.body[0] else { panic!("no block") };
        for iter in &mut block.iters {
            iter.value = iter.value.substitute_var(l.var, &value);
        }
        block.predicate = Some(value.lt(l.extent.clone()));
        let body = std::mem::take(&mut l.body);
        let inner_loop =
            crate::func::Loop { kind, ..crate::func::Loop::serial(inner, Expr::int(factor), body) };
        l.var = outer;
        l.extent = l.extent.clone().ceil_div(factor);
        l.body = vec![Stmt::Loop(Box::new(inner_loop))];
    }
    descend(&mut f.body[0], outer, inner, factor, kind);
}

#[test]
fn split_loops_with_predicates_keep_the_result() {
    for factor in [1, 8, 100] {
        let mut f = matmul(Expr::int(3), Expr::int(4), Expr::int(37));
        split_innermost(&mut f, factor, LoopKind::Serial);
        let (a, b) = (noise(3 * 37, 7), noise(37 * 4, 8));
        let inputs = [TensorData::from_f32(&[3, 37], &a), TensorData::from_f32(&[37, 4], &b)];
        assert_eq!(run_f32(&f, &[], &inputs), matmul_reference(&a, &b, 3, 4, 37), "factor {factor}");

        let mut g = Func::new("square");
        let x = g.add_input("x", DType::F32, constants(&[261]));
        let y = g.add_output("y", DType::F32, constants(&[261]));
        g.compute_into(y, |g, i| g.load(x, i.to_vec()) * g.load(x, i.to_vec()));
        split_innermost(&mut g, factor, LoopKind::Vectorized);
        let data = noise(261, 9);
        let expect: Vec<f32> = data.iter().map(|x| x * x).collect();
        assert_eq!(run_f32(&g, &[], &[TensorData::from_f32(&[261], &data)]), expect);
    }
}

#[test]
fn half_precision_rounds_after_every_operation() {
    for dtype in [DType::F16, DType::BF16] {
        let mut f = Func::new("sum");
        let x = f.add_input("x", dtype, constants(&[100]));
        let y = f.reduce("y", dtype, vec![], constants(&[100]), Expr::zero(dtype), |f, _, r, acc| {
            acc + f.load(x, r.to_vec())
        });
        f.promote_to_output(y);
        let one_tenth = float_format::FloatFormat::of(dtype).unwrap();
        let bytes: Vec<u8> = (0..100).flat_map(|_| one_tenth.encode(0.1).to_le_bytes()).collect();
        let out = run(&f, &[], &[TensorData { dtype, shape: vec![100], bytes }]).unwrap();
        let step = float_format::round_to(dtype, 0.1);
        let expect = (0..100).fold(0.0, |sum, _| float_format::round_to(dtype, sum + step));
        let bits = u16::from_le_bytes([out[0].bytes[0], out[0].bytes[1]]);
        assert_eq!(one_tenth.decode(bits), expect, "{dtype}");
    }
}

/// `y[0] = value`.
fn constant_func(value: Expr) -> Func {
    let mut f = Func::new("constant");
    let y = f.add_output("y", value.dtype(), vec![]);
    f.compute_into(y, |_, _| value);
    f
}

#[test]
fn integers_wrap_and_divide_as_defined() {
    let check = |op: BinaryOp, dtype: DType, x: i64, y: i64, expect: i64| {
        // Opaque operands: constants of the index type would fold when built.
        let operand = |v: i64| Expr::new(dtype, crate::expr::ExprKind::Int(crate::expr::wrap(dtype, v)));
        let e = Expr::new(dtype, crate::expr::ExprKind::Binary(op, operand(x), operand(y)));
        let none = |_: Var| None;
        let evaluated = evaluate_expr(&e, &none, &|_, _| None).unwrap().as_int();
        assert_eq!(evaluated, crate::expr::wrap(dtype, expect), "{x} {} {y} as {dtype}", op.name());
        let out = run(&constant_func(e), &[], &[]).unwrap();
        let mut bytes = [0u8; 8];
        bytes[..dtype.bytes()].copy_from_slice(&out[0].bytes);
        let ran = crate::expr::wrap(dtype, i64::from_le_bytes(bytes));
        assert_eq!(ran, crate::expr::wrap(dtype, expect), "{x} {} {y} as {dtype} by a program", op.name());
    };
    use BinaryOp::*;
    check(Add, DType::I8, 127, 1, -128);
    check(Mul, DType::U8, 16, 17, 16);
    check(Div, DType::I32, -7, 2, -3);
    check(Rem, DType::I32, -7, 2, -1);
    check(FloorDiv, DType::I32, -7, 2, -4);
    check(FloorMod, DType::I32, -7, 2, 1);
    check(FloorMod, DType::I64, 7, -2, -1);
    check(Div, DType::I64, 5, 0, 0);
    check(FloorDiv, DType::U16, 5, 0, 0);
    check(Rem, DType::I64, 5, 0, 5);
    check(FloorMod, DType::I64, -5, 0, -5);
    check(Div, DType::I32, i32::MIN as i64, -1, i32::MIN as i64);
    check(Div, DType::I64, i64::MIN, -1, i64::MIN);
    check(Div, DType::U64, -1, 2, i64::MAX);
    check(Max, DType::U64, -1, 1, -1);
    check(Shl, DType::I32, 1, 32, 0);
    check(Shl, DType::I64, 1, 64, 0);
    check(Shr, DType::I8, -128, 9, -1);
    check(Shr, DType::U8, 128, 9, 0);
    check(Shr, DType::U64, -1, 60, 15);
    check(Sub, DType::U32, 0, 1, u32::MAX as i64);
}

#[test]
fn casts_saturate_and_wrap() {
    let check = |from: Expr, dtype: DType, expect: i64| {
        let e = from.clone().cast(dtype);
        let evaluated = evaluate_expr(&e, &|_| None, &|_, _| None).unwrap().as_int();
        assert_eq!(evaluated, expect, "{from:?} to {dtype}");
        let out = run(&constant_func(e.cast(DType::I64)), &[], &[]).unwrap();
        assert_eq!(out[0].to_i64().unwrap(), [expect], "{from:?} to {dtype} by a program");
    };
    check(Expr::f32(300.7), DType::U8, 255);
    check(Expr::f32(-3.9), DType::U8, 0);
    check(Expr::f32(-3.9), DType::I8, -3);
    check(Expr::f32(f32::NAN), DType::I32, 0);
    check(Expr::f32(f32::INFINITY), DType::I64, i64::MAX);
    check(Expr::f32(-1.0), DType::U64, 0);
    check(Expr::f32(1e30), DType::I4, 7);
    check(Expr::f32(0.5), DType::Bool, 1);
    check(Expr::int(300), DType::U8, 44);
    check(Expr::int(200), DType::I8, -56);
    check(Expr::int(256), DType::Bool, 1);
}

#[test]
fn minimum_and_maximum_take_the_second_operand_of_nan() {
    let nan = || Expr::f32(f32::NAN);
    let check = |e: Expr, expect: f64| {
        let value = evaluate_expr(&e, &|_| None, &|_, _| None).unwrap();
        assert!(value.same_bits(Scalar::Float(expect)), "{e:?} is {value:?}");
    };
    check(nan().min(Expr::f32(1.0)), 1.0);
    check(Expr::f32(1.0).max(nan()), f64::NAN);
    check(Expr::f32(0.0).min(Expr::f32(-0.0)), -0.0);
    check(Expr::f32(-0.0).min(Expr::f32(0.0)), 0.0);
    check(Expr::unary(UnaryOp::Round, Expr::f32(2.5)), 2.0);
}

#[test]
fn reports_what_it_reads_out_of_bounds() {
    let mut f = Func::new("shift");
    let x = f.add_input("x", DType::F32, constants(&[200]));
    let y = f.add_output("y", DType::F32, constants(&[200]));
    f.compute_into(y, |f, i| f.load(x, vec![i[0].clone() + 1]));
    let error = run(&f, &[], &[TensorData::from_f32(&[200], &noise(200, 1))]).unwrap_err();
    assert_eq!(error.to_string(), "block y: x[200] is outside of its shape [200]");
}

#[test]
fn reports_reads_before_writes_and_missing_writes() {
    let mut f = Func::new("early");
    let t = f.add_buffer("t", DType::F32, constants(&[4, 4]), Scope::Global);
    let y = f.add_output("y", DType::F32, constants(&[4]));
    f.define(t, vec![(Expr::int(3), IterKind::Spatial)], |_, i| {
        (vec![], vec![Store { buffer: t, indices: vec![Expr::int(2), i[0].clone()], value: Expr::f32(1.0) }])
    });
    f.compute_into(y, |f, i| f.load(t, vec![Expr::int(2), i[0].clone()]));
    let error = run(&f, &[], &[]).unwrap_err();
    assert_eq!(error.to_string(), "block y: t[2, 3] is read before it is written");

    f.body.truncate(1);
    assert_eq!(run(&f, &[], &[]).unwrap_err().to_string(), "output y[0] is never written");
}

#[test]
fn a_task_does_not_see_another_tasks_stack() {
    let mut f = Func::new("tasks");
    let t = f.add_buffer("t", DType::F32, constants(&[1]), Scope::Stack);
    let y = f.add_output("y", DType::F32, constants(&[4]));
    f.define(y, vec![(Expr::int(4), IterKind::Spatial)], |f, i| {
        let put = Store { buffer: t, indices: vec![Expr::int(0)], value: Expr::f32(1.0) };
        let get = Store { buffer: y, indices: i.to_vec(), value: f.load(t, vec![Expr::int(0)]) };
        (vec![], vec![put, get])
    });
    let Stmt::Loop(l) = &mut f.body[0] else { panic!("no loop") };
    l.kind = LoopKind::Parallel;
    assert_eq!(run_f32(&f, &[], &[]), [1.0; 4]);

    // Without the first store but for task 0, the others must fail.
    let Stmt::Loop(l) = &mut f.body[0] else { panic!("no loop") };
    let var = Expr::var(l.var);
    let Stmt::Block(block) = &mut l.body[0] else { panic!("no block") };
    let get = block.body.pop().unwrap();
    let mut second = block.clone();
    second.name = "get".to_string();
    second.body = vec![get];
    block.predicate = Some(var.equals(Expr::int(0)));
    l.body.push(Stmt::Block(second));
    let error = run(&f, &[], &[]).unwrap_err();
    assert_eq!(error.to_string(), "block get: t[0] is read before it is written");
}

#[test]
fn wrong_arguments_are_errors() {
    let f = matmul(Expr::int(2), Expr::int(2), Expr::int(2));
    let program = Program::compile(&f).unwrap();
    let message =
        |sizes: &[i64], inputs: &[&[u8]]| program.run(sizes, inputs, Mode::Exact).unwrap_err().to_string();
    assert_eq!(message(&[], &[&[0; 16]]), "1 inputs given, 2 expected");
    assert_eq!(message(&[1], &[&[0; 16], &[0; 16]]), "1 sizes given, 0 expected");
    assert_eq!(message(&[], &[&[0; 16], &[0; 8]]), "input b has 8 bytes, its shape [2, 2] needs 16");
}

#[test]
fn narrow_floats_decode_what_they_encode() {
    for dtype in DType::ALL {
        let Some(format) = float_format::FloatFormat::of(dtype) else { continue };
        let mut finite = Vec::new();
        for code in 0..1u32 << format.bits {
            let value = format.decode(code as u16);
            if value.is_nan() {
                assert!(format.decode(format.encode(value)).is_nan(), "{dtype} {code:#x}");
            } else if value.is_infinite() {
                assert_eq!(
                    format.encode(value),
                    if format.bits == 16 { code as u16 } else { format.max_finite | (code as u16 & 0x80) }
                );
            } else {
                assert_eq!(format.encode(value) as u32, code, "{dtype} {code:#x} = {value}");
                finite.push(value);
            }
        }
        finite.sort_by(f64::total_cmp);
        // Between neighbours the nearer wins, and the even code a tie.
        for pair in finite.windows(2).filter(|p| p[0] != p[1]) {
            let middle = pair[0] + (pair[1] - pair[0]) / 2.0;
            let tie = format.encode(middle);
            assert!(tie & 1 == 0 && pair.contains(&format.decode(tie)), "{dtype} tie at {middle}");
            assert_eq!(float_format::round_to(dtype, middle.next_up()), pair[1], "{dtype} above {middle}");
            assert_eq!(float_format::round_to(dtype, middle.next_down()), pair[0], "{dtype} below {middle}");
        }
    }
}

#[test]
fn reductions_of_everything_keep_their_order() {
    let data = noise(1000, 11);
    let check = |step: fn(Expr, Expr) -> Expr, init: f32, scalar: fn(f32, f32) -> f32| {
        let mut f = Func::new("all");
        let x = f.add_input("x", DType::F32, constants(&[1000]));
        let y = f.reduce("y", DType::F32, vec![], constants(&[1000]), Expr::f32(init), |f, _, r, acc| {
            step(acc, f.load(x, r.to_vec()))
        });
        f.promote_to_output(y);
        let expect = data.iter().fold(init, |acc, &x| scalar(acc, x));
        assert_eq!(run_f32(&f, &[], &[TensorData::from_f32(&[1000], &data)]), [expect]);
        // A split reduction folds its inner loop.
        split_innermost(&mut f, 40, LoopKind::Serial);
        let Stmt::Loop(outer) = &mut f.body[0] else { panic!("no loop") };
        let Stmt::Loop(inner) = &mut outer.body[0] else { panic!("no inner loop") };
        let Stmt::Block(block) = &mut inner.body[0] else { panic!("no block") };
        block.predicate = None;
        assert_eq!(run_f32(&f, &[], &[TensorData::from_f32(&[1000], &data)]), [expect], "split");
    };
    check(|acc, x| acc + x, 0.5, |acc, x| acc + x);
    check(|acc, x| x - acc, 0.5, |acc, x| x - acc);
    check(|acc, x| acc.max(x), f32::NEG_INFINITY, |acc, x| if acc > x { acc } else { x });
    check(|acc, x| Expr::fma(x.clone(), x, acc), 0.0, |acc, x| x.mul_add(x, acc));
    check(|acc, x| acc * (x.clone() + x), 1.0, |acc, x| acc * (x + x));
}

#[test]
fn masks_with_holes_load_only_what_they_cover() {
    let mut f = Func::new("holes");
    let x = f.add_input("x", DType::F32, constants(&[100]));
    let y = f.add_output("y", DType::F32, constants(&[400]));
    f.compute_into(y, |f, i| {
        let even = i[0].clone().floor_mod(Expr::int(2)).equals(Expr::int(0));
        let inside = i[0].clone().ge(Expr::int(30)).and(i[0].clone().lt(Expr::int(130)));
        Expr::select(even.and(inside), f.load(x, vec![i[0].clone() - 30]), Expr::f32(9.0))
    });
    let data = noise(100, 12);
    let out = run_f32(&f, &[], &[TensorData::from_f32(&[100], &data)]);
    for (i, &value) in out.iter().enumerate() {
        let covered = i % 2 == 0 && (30..130).contains(&i);
        assert_eq!(value, if covered { data[i - 30] } else { 9.0 }, "element {i}");
    }
}

/// `y[(i * step) mod n] = x[i]` with the loop over `i` of a kind; then `z = y`.
fn scattered(kind: LoopKind, n: i64, step: i64) -> Func {
    let mut f = Func::new("scattered");
    let x = f.add_input("x", DType::F32, constants(&[n]));
    let y = f.add_buffer("y", DType::F32, constants(&[n]), Scope::Global);
    f.define(y, vec![(Expr::int(n), IterKind::Spatial)], |f, i| {
        let at = (i[0].clone() * step).floor_mod(Expr::int(n));
        (Vec::new(), vec![Store { buffer: y, indices: vec![at], value: f.load(x, i.to_vec()) }])
    });
    let Some(Stmt::Loop(l)) = f.body.last_mut() else { panic!("no loop") };
    l.kind = kind;
    f.promote_to_output(y);
    f
}

fn watch(f: &Func, inputs: &[TensorData]) -> Result<Vec<TensorData>, InterpError> {
    let bytes: Vec<&[u8]> = inputs.iter().map(|t| t.bytes.as_slice()).collect();
    Program::compile(f)?.watch(&[], &bytes)
}

#[test]
fn tasks_and_lanes_that_write_one_element_are_caught() {
    let x = TensorData::from_f32(&[6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for kind in [LoopKind::Parallel, LoopKind::Vectorized] {
        // A permutation, which nothing proves from the index.
        let found = watch(&scattered(kind, 6, 5), std::slice::from_ref(&x)).unwrap();
        assert_eq!(found[0].to_f32().unwrap(), [1.0, 6.0, 5.0, 4.0, 3.0, 2.0]);
        let error = watch(&scattered(kind, 6, 4), std::slice::from_ref(&x)).unwrap_err();
        let block = "block y writes it at y_i0";
        assert_eq!(error.to_string(), format!("y[0] is raced for: {block} = 0, and {block} = 3"));
    }
    let error = watch(&scattered(LoopKind::Serial, 6, 4), &[x]).unwrap_err();
    assert_eq!(error, InterpError::OutputNotWritten { buffer: "y".into(), indices: vec![1] });
}

/// Tasks that read what another one writes, before or after it: `t[i] = y[i + shift]`, then `y[i] = t[i]`.
#[test]
fn tasks_that_read_what_another_writes_are_caught() {
    let x = TensorData::from_f32(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let neighbours = |shift: i64, kind: LoopKind| {
        let mut f = Func::new("neighbours");
        let input = f.add_input("x", DType::F32, constants(&[4]));
        let y = f.compute("y", DType::F32, constants(&[4]), |f, i| f.load(input, i.to_vec()));
        let t = f.compute("t", DType::F32, constants(&[4]), |f, i| {
            f.load(y, vec![(i[0].clone() + shift).floor_mod(Expr::int(4))])
        });
        f.define(y, vec![(Expr::int(4), IterKind::Spatial)], |f, i| {
            (Vec::new(), vec![Store { buffer: y, indices: i.to_vec(), value: f.load(t, i.to_vec()) }])
        });
        // Both blocks in one loop.
        let (Some(Stmt::Loop(last)), Some(Stmt::Loop(first))) = (f.body.pop(), f.body.last_mut()) else {
            panic!("no loops")
        };
        let mut body = last.body;
        for stmt in &mut body {
            let Stmt::Block(block) = stmt else { panic!("no block") };
            block
                .iters
                .iter_mut()
                .for_each(|i| i.value = i.value.substitute_var(last.var, &Expr::var(first.var)));
        }
        first.body.extend(body);
        first.kind = kind;
        f.promote_to_output(y);
        f
    };
    let run = |shift, kind| watch(&neighbours(shift, kind), std::slice::from_ref(&x));
    assert!(run(1, LoopKind::Serial).is_ok());
    assert!(run(0, LoopKind::Parallel).is_ok());
    for (shift, expect) in [
        (1, "y[1] is raced for: block t reads it at t_i0 = 0, and block y_1 writes it at t_i0 = 1"),
        (3, "y[0] is raced for: block y_1 writes it at t_i0 = 0, and block t reads it at t_i0 = 1"),
    ] {
        for kind in [LoopKind::Parallel, LoopKind::Vectorized] {
            assert_eq!(run(shift, kind).unwrap_err().to_string(), expect);
        }
    }
}
