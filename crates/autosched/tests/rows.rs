//! Functions of rows are one kernel, and compute what they did before.

use tilewright_autosched::{Decisions, flatten_options, schedule};
use tilewright_dtype::DType;
use tilewright_machine::{CodegenKind, Target};
use tilewright_te::flatten::{FlattenOptions, flatten};
use tilewright_te::interp::{Mode, Program};
use tilewright_te::{Computation, Expr, Func, UnaryOp, math};

/// `exp(x - max) / sum` over the dimensions from `n_rows` on.
fn softmax(shape: &[Expr], n_rows: usize, sizes: impl FnOnce(&mut Func)) -> Func {
    let mut func = Func::new("softmax");
    sizes(&mut func);
    let (rows, row) = shape.split_at(n_rows);
    let x = func.add_input("x", DType::F32, shape.to_vec());
    let max = func.reduce(
        "max",
        DType::F32,
        rows.to_vec(),
        row.to_vec(),
        Expr::lowest(DType::F32),
        |f, i, r, acc| acc.max(f.load(x, [i, r].concat())),
    );
    let exp = func.compute("exp", DType::F32, shape.to_vec(), |f, i| {
        Expr::unary(UnaryOp::Exp, f.load(x, i.to_vec()) - f.load(max, i[..n_rows].to_vec()))
    });
    let sum = func.reduce("sum", DType::F32, rows.to_vec(), row.to_vec(), Expr::f32(0.0), |f, i, r, acc| {
        acc + f.load(exp, [i, r].concat())
    });
    let out = func.compute("softmax", DType::F32, shape.to_vec(), |f, i| {
        f.load(exp, i.to_vec()) / f.load(sum, i[..n_rows].to_vec())
    });
    func.promote_to_output(out);
    func
}

/// `x - mean` over the last dimension, which statistics keep with one element.
fn centred(rows: i64, columns: i64) -> Func {
    let mut func = Func::new("centred");
    let (rows, columns) = (Expr::int(rows), Expr::int(columns));
    let shape = vec![rows.clone(), columns.clone()];
    let x = func.add_input("x", DType::F32, shape.clone());
    let kept = vec![rows, Expr::int(1)];
    let sum = func.reduce(
        "sum",
        DType::F32,
        kept.clone(),
        vec![columns.clone()],
        Expr::f32(0.0),
        |f, i, r, acc| acc + f.load(x, vec![i[0].clone(), r[0].clone()]),
    );
    let mean = func
        .compute("mean", DType::F32, kept, |f, i| f.load(sum, i.to_vec()) / columns.clone().cast(DType::F32));
    let out = func.compute("centred", DType::F32, shape, |f, i| {
        f.load(x, i.to_vec()) - f.load(mean, vec![i[0].clone(), Expr::int(0)])
    });
    func.promote_to_output(out);
    func
}

/// Schedules for several targets; the function must be one kernel of rows and give the same results.
fn check(func: &Func, sizes: &[i64], n_elements: usize) {
    let x: Vec<u8> =
        (0..n_elements).flat_map(|n| (((n * 7919) % 1013) as f32 / 50.0 - 10.0).to_le_bytes()).collect();
    let run = |func: &Func| -> Vec<f32> {
        let program = Program::compile(func).expect("compiles");
        let outputs = program.run(sizes, &[&x], Mode::Exact).unwrap_or_else(|e| panic!("{e}\n{func}"));
        outputs[0].bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
    };
    let expected = run(func);
    for (machine, codegen) in [
        ("x86-64-v4", CodegenKind::Llvm),
        ("x86-64-v3", CodegenKind::Llvm),
        ("x86-64-v3", CodegenKind::Cranelift),
    ] {
        let target = Target::parse(machine, codegen).expect("a known target");
        let computation = Computation::of(func.clone());
        let mut scheduled = schedule(&computation, &target, &Decisions::default()).expect("schedules");
        assert!(scheduled.rulings.iter().all(|r| r.rule == "rows"), "{:#?}", scheduled.rulings);
        math::expand_func(&mut scheduled.func);
        for (n, (got, expected)) in run(&scheduled.func).iter().zip(&expected).enumerate() {
            assert!(
                (got - expected).abs() <= 1e-5 * (1.0 + expected.abs()),
                "{machine}, {n}: {got}, {expected}"
            );
        }
        let options = flatten_options(&target);
        let kernels =
            flatten(&scheduled.func, &options).unwrap_or_else(|e| panic!("{e}\n{}", scheduled.func));
        assert_eq!(kernels.len(), 1, "{}", scheduled.func);
    }
}

fn ints(values: &[i64]) -> Vec<Expr> {
    values.iter().map(|&value| Expr::int(value)).collect()
}

#[test]
fn softmax_over_rows_that_vectors_divide_or_not() {
    for columns in [1, 3, 16, 128, 197] {
        check(&softmax(&ints(&[2, 70, columns]), 2, |_| {}), &[], 140 * columns as usize);
    }
}

#[test]
fn softmax_over_several_dimensions() {
    check(&softmax(&ints(&[40, 9, 23]), 1, |_| {}), &[], 40 * 9 * 23);
}

#[test]
fn softmax_over_rows_of_open_length() {
    for n in [1, 5, 64, 77] {
        let mut size = None;
        let mut scratch = Func::new("scratch");
        let n_expr: Expr = scratch.add_size("n", 1, 4096).into();
        let func = softmax(&[Expr::int(30), n_expr], 1, |f| size = Some(f.add_size("n", 1, 4096)));
        assert_eq!(size, scratch.sizes.first().copied());
        check(&func, &[n], 30 * n as usize);
    }
}

#[test]
fn statistics_that_keep_their_dimension() {
    check(&centred(50, 100), &[], 5000);
    check(&centred(1, 37), &[], 37);
}

/// Softmax down the columns of a square: by their extents, these could be rows.
#[test]
fn columns_of_a_square_are_no_rows() {
    let mut func = Func::new("softmax");
    let (shape, columns) = (ints(&[40, 40]), ints(&[40]));
    let x = func.add_input("x", DType::F32, shape.clone());
    let steps = columns.clone();
    let max =
        func.reduce("max", DType::F32, columns.clone(), steps, Expr::lowest(DType::F32), |f, i, r, acc| {
            acc.max(f.load(x, vec![r[0].clone(), i[0].clone()]))
        });
    let exp = func.compute("exp", DType::F32, shape.clone(), |f, i| {
        Expr::unary(UnaryOp::Exp, f.load(x, i.to_vec()) - f.load(max, vec![i[1].clone()]))
    });
    let sum = func.reduce("sum", DType::F32, columns.clone(), columns, Expr::f32(0.0), |f, i, r, acc| {
        acc + f.load(exp, vec![r[0].clone(), i[0].clone()])
    });
    let out = func.compute("softmax", DType::F32, shape, |f, i| {
        f.load(exp, i.to_vec()) / f.load(sum, vec![i[1].clone()])
    });
    func.promote_to_output(out);
    let input: Vec<u8> = (0..1600).flat_map(|n| (((n * 7919) % 1013) as f32 / 50.0).to_le_bytes()).collect();
    let run = |func: &Func| -> Vec<f32> {
        let program = Program::compile(func).expect("compiles");
        let outputs = program.run(&[], &[&input], Mode::Exact).unwrap_or_else(|e| panic!("{e}\n{func}"));
        outputs[0].bytes.chunks_exact(4).map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
    };
    let expected = run(&func);
    for machine in ["x86-64-v4", "sm_90/x86-64-v3"] {
        let target = Target::parse(machine, CodegenKind::Llvm).expect("a known target");
        let scheduled = schedule(&Computation::of(func.clone()), &target, &Decisions::default());
        let mut scheduled = scheduled.unwrap_or_else(|e| panic!("{machine}: {e}"));
        assert!(scheduled.rulings.iter().all(|r| r.rule != "rows"), "{:#?}", scheduled.rulings);
        math::expand_func(&mut scheduled.func);
        for (got, expected) in run(&scheduled.func).iter().zip(&expected) {
            assert!((got - expected).abs() <= 1e-5 * (1.0 + expected.abs()), "{machine}: {got}, {expected}");
        }
        let lanes = target.gpu.map(|_| 32);
        let options = FlattenOptions { lanes, ..flatten_options(&target) };
        flatten(&scheduled.func, &options).unwrap_or_else(|e| panic!("{machine}: {e}\n{}", scheduled.func));
    }
}

#[test]
fn few_long_rows_are_shared_out_in_pieces() {
    let target = Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a known target");
    let computation = Computation::of(centred(2, 1 << 20));
    let scheduled = schedule(&computation, &target, &Decisions::default()).expect("schedules");
    assert!(scheduled.rulings.iter().all(|r| r.rule != "rows"), "{:#?}", scheduled.rulings);
}
