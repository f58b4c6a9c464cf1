//! Flattening: what loops, vectors and registers become.

use tilewright_dtype::DType;
use tilewright_te::flatten::{FlattenOptions, flatten};
use tilewright_te::{Expr, Func, LoopKind, Scope, Stmt};

const OPTIONS: FlattenOptions = FlattenOptions { masked_access: true, buffer_align: 64 };

/// `out[i, j] = sum over k of a[i, k] * b[k, j]`, as computed.
fn matmul(m: i64, n: i64, k: i64) -> Func {
    let mut func = Func::new("matmul");
    let (m, n, k) = (Expr::int(m), Expr::int(n), Expr::int(k));
    let a = func.add_input("a", DType::F32, vec![m.clone(), k.clone()]);
    let b = func.add_input("b", DType::F32, vec![k.clone(), n.clone()]);
    let out = func.reduce("out", DType::F32, vec![m, n], vec![k], Expr::f32(0.0), |f, i, r, acc| {
        let x = f.load(a, vec![i[0].clone(), r[0].clone()]);
        let y = f.load(b, vec![r[0].clone(), i[1].clone()]);
        Expr::fma(x, y, acc)
    });
    func.promote_to_output(out);
    func
}

/// Sets the kinds of the nested loops of the first statement, outermost first.
fn set_kinds(func: &mut Func, kinds: &[LoopKind]) {
    let mut stmts = &mut func.body;
    for kind in kinds {
        let Some(Stmt::Loop(l)) = stmts.first_mut() else { panic!("no loop left for {kind:?}") };
        l.kind = *kind;
        stmts = &mut l.body;
    }
}

fn kernel_text(func: &Func) -> String {
    let kernels = flatten(func, &OPTIONS).expect("flattens");
    for kernel in &kernels {
        assert_eq!(kernel.kernel.verify(), Ok(()), "{}", kernel.kernel);
    }
    kernels.iter().map(|k| k.kernel.to_string()).collect()
}

#[test]
fn parallel_loops_become_tasks_and_vectorized_loops_lanes() {
    let mut func = matmul(4, 16, 8);
    set_kinds(&mut func, &[LoopKind::Parallel, LoopKind::Vectorized, LoopKind::Serial]);
    let text = kernel_text(&func);
    assert!(text.contains("tasks 4 task %0"), "{text}");
    assert!(text.contains("f32x16 = fma"), "{text}");
    assert!(text.contains("for "), "{text}");
}

#[test]
fn registers_are_carried_by_the_loop_that_writes_them() {
    let mut func = Func::new("sum");
    let n = Expr::int(100);
    let x = func.add_input("x", DType::F32, vec![n.clone()]);
    let sum = func.reduce("sum", DType::F32, vec![], vec![n], Expr::f32(0.0), |f, _, r, acc| {
        acc + f.load(x, vec![r[0].clone()])
    });
    func.buffers[sum].scope = Scope::Register;
    let error = flatten(&func, &OPTIONS).expect_err("the sum is started inside the loop");
    assert!(error.to_string().contains("decompose the reduction"), "{error}");

    let Some(Stmt::Loop(l)) = func.body.first_mut() else { panic!("a loop") };
    let Some(Stmt::Block(block)) = l.body.first_mut() else { panic!("a block") };
    let init = std::mem::take(&mut block.init);
    let start = tilewright_te::Block {
        name: "start".into(),
        iters: vec![],
        predicate: None,
        init: vec![],
        body: init,
    };
    func.body.insert(0, Stmt::Block(Box::new(start)));
    let out = func.add_output("out", DType::F32, vec![]);
    func.compute_into(out, |f, _| f.load(sum, vec![]));
    let text = kernel_text(&func);
    assert!(text.contains("then"), "{text}");
    assert!(text.contains("out[%"), "{text}");
}

#[test]
fn two_vectorized_loops_are_an_error_that_names_the_loop() {
    let mut func = matmul(4, 16, 8);
    set_kinds(&mut func, &[LoopKind::Vectorized, LoopKind::Vectorized]);
    let error = flatten(&func, &OPTIONS).expect_err("nested vectors");
    assert!(error.to_string().contains("is inside another vectorized loop"), "{error}");
}
