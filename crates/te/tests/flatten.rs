//! Flattening: what loops, vectors and registers become.

use std::collections::HashSet;

use tilewright_dtype::DType;
use tilewright_te::flatten::{FlatKernel, FlattenOptions, Made, flatten, flatten_watched};
use tilewright_te::kernel::{Inst, KernelOp, Value};
use tilewright_te::schedule::Schedule;
use tilewright_te::{BinaryOp, Expr, Func, LoopKind, Scope, Stmt};

const OPTIONS: FlattenOptions = FlattenOptions { masked_access: Some(1), ..FlattenOptions::PLAIN };

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
    let mut check = |pass: &'static str, made: Made<'_, '_>| {
        assert_eq!(made.verify(), Ok(()), "after {pass}:\n{made}");
        Ok(())
    };
    let kernels = flatten_watched(func, &OPTIONS, &mut check).expect("flattens");
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
fn of_two_parallel_loops_the_inner_ones_iterations_are_the_tasks_of_a_round() {
    let mut func = matmul(4, 16, 8);
    set_kinds(&mut func, &[LoopKind::Parallel, LoopKind::Parallel, LoopKind::Serial]);
    let text = kernel_text(&func);
    assert!(text.contains("tasks 4 rounds of 16 task %0"), "{text}");
    assert!(text.contains("floordiv") && text.contains("floormod"), "{text}");
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

/// The operations that stand in a loop and use nothing defined in it; loads and what is in branches aside.
fn invariants(insts: &[Inst], in_loop: Option<&HashSet<Value>>) -> Vec<Value> {
    let mut defined = in_loop.cloned();
    let mut found = Vec::new();
    for inst in insts {
        match inst {
            Inst::Let { result, op } => {
                let Some(defined) = &mut defined else { continue };
                let mut changes =
                    matches!(op, KernelOp::Load { .. } | KernelOp::Gather { .. } | KernelOp::Shuffle { .. });
                op.for_each_operand(|operand| changes |= defined.contains(&operand));
                defined.insert(*result);
                found.extend((!changes).then_some(*result));
            }
            Inst::Store { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::Barrier
            | Inst::CopyAsync { .. }
            | Inst::CommitCopies
            | Inst::WaitCopies { .. } => {}
            Inst::Loop { var, carried, body, .. } => {
                let inside = std::iter::once(*var).chain(carried.iter().map(|c| c.param)).collect();
                found.extend(invariants(body, Some(&inside)));
                defined.iter_mut().for_each(|d| d.extend(carried.iter().map(|c| c.result)));
            }
            Inst::If { joins, .. } => {
                defined.iter_mut().for_each(|d| d.extend(joins.iter().map(|j| j.result)));
            }
        }
    }
    found
}

#[test]
fn what_does_not_change_in_a_loop_stands_outside() {
    for kinds in [[LoopKind::Serial, LoopKind::Serial], [LoopKind::Parallel, LoopKind::Vectorized]] {
        let mut func = matmul(4, 16, 8);
        set_kinds(&mut func, &kinds);
        for FlatKernel { kernel, .. } in flatten(&func, &OPTIONS).expect("flattens") {
            assert_eq!(invariants(&kernel.body, None), [], "{kernel}");
        }
    }
}

/// Whether a list of instructions, branches aside, has an operation.
fn outside_branches(insts: &[Inst], wanted: &impl Fn(&KernelOp) -> bool) -> bool {
    insts.iter().any(|inst| match inst {
        Inst::Let { op, .. } => wanted(op),
        Inst::Loop { body, .. } => outside_branches(body, wanted),
        Inst::Store { .. }
        | Inst::Scatter { .. }
        | Inst::Prefetch { .. }
        | Inst::Barrier
        | Inst::CopyAsync { .. }
        | Inst::CommitCopies
        | Inst::WaitCopies { .. }
        | Inst::If { .. } => false,
    })
}

#[test]
fn loads_and_divisions_stay_under_their_branch() {
    let mut func = Func::new("guarded");
    let n: Expr = func.add_size("n", 1, 1 << 20).into();
    let a = func.add_input("a", DType::F32, vec![Expr::int(3)]);
    // Neither the condition nor what it guards changes in the inner loop.
    let out = func.compute("out", DType::F32, vec![Expr::int(4), Expr::int(8)], |f, i| {
        f.load(a, vec![(i[0].clone() * n.clone()).floor_div(n.clone() + 1)])
    });
    func.promote_to_output(out);
    let Some(Stmt::Loop(rows)) = func.body.first_mut() else { panic!("a loop") };
    let row = rows.var;
    let Some(Stmt::Loop(columns)) = rows.body.first_mut() else { panic!("a loop") };
    let Some(Stmt::Block(block)) = columns.body.first_mut() else { panic!("a block") };
    block.predicate = Some(Expr::from(row).lt(Expr::int(3)));
    let kernel = flatten(&func, &OPTIONS).expect("flattens").remove(0).kernel;
    assert_eq!(kernel.verify(), Ok(()), "{kernel}");
    let loads = |op: &KernelOp| matches!(op, KernelOp::Load { .. });
    let divides = |op: &KernelOp| matches!(op, KernelOp::Binary(BinaryOp::FloorDiv, ..));
    assert!(kernel.to_string().contains("floordiv") && kernel.to_string().contains("= a["), "{kernel}");
    assert!(!outside_branches(&kernel.body, &loads), "{kernel}");
    assert!(!outside_branches(&kernel.body, &divides), "{kernel}");
}

#[test]
fn a_condition_of_all_blocks_in_a_loop_is_one_branch_around_them() {
    let mut s = Schedule::new(matmul(7, 16, 8));
    s.decompose_reduction("out", "out_r2").expect("decomposes");
    // The last of three times three rows are two too many.
    s.split("out_i0", &[None, Some(3)]).expect("splits");
    let kernel = flatten(&s.finish().expect("finishes"), &OPTIONS).expect("flattens").remove(0).kernel;
    assert_eq!(kernel.verify(), Ok(()), "{kernel}");
    let text = kernel.to_string();
    assert_eq!(text.matches("if ").count(), 1, "{text}");
    let multiplies = |op: &KernelOp| matches!(op, KernelOp::Fma(..));
    assert!(text.contains(" fma ") && !outside_branches(&kernel.body, &multiplies), "{text}");
}

/// Instructions of loops that start loops no more, with how many branches are around each of them.
fn innermost_loops(insts: &[Inst], n_branches: usize, found: &mut Vec<(usize, Vec<Inst>)>) {
    for inst in insts {
        match inst {
            Inst::Loop { body, .. }
                if body.iter().any(|i| matches!(i, Inst::Loop { .. } | Inst::If { .. })) =>
            {
                innermost_loops(body, n_branches, found);
            }
            Inst::Loop { body, .. } => found.push((n_branches, body.clone())),
            Inst::If { then_body, else_body, .. } => {
                innermost_loops(then_body, n_branches + 1, found);
                innermost_loops(else_body, n_branches + 1, found);
            }
            Inst::Let { .. }
            | Inst::Store { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::Barrier
            | Inst::CopyAsync { .. }
            | Inst::CommitCopies
            | Inst::WaitCopies { .. } => {}
        }
    }
}

/// A product in tiles of three rows, of which there are `rows`: the steps of a tile, by how many branches are around them.
fn steps_of_tiles(rows: i64) -> (String, Vec<(usize, Vec<Inst>)>) {
    let mut s = Schedule::new(matmul(rows, 16, 8));
    let store = s.cache_write("out", Scope::Register).expect("caches");
    s.pad_einsum("out", &[3, 1, 1]).expect("pads");
    let loops = s.loop_names(&store).expect("has loops");
    let split = s.split(&loops[0], &[None, Some(3)]).expect("splits");
    s.unroll(&split[1]).expect("unrolls");
    s.vectorize(&loops[1]).expect("vectorizes");
    let inner = s.compute_at("out", &split[0]).expect("moves");
    s.reorder(&[&inner[2], &inner[0], &inner[1]]).expect("reorders");
    s.unroll(&inner[0]).expect("unrolls");
    s.vectorize(&inner[1]).expect("vectorizes");
    s.decompose_reduction("out", &inner[2]).expect("decomposes");
    let kernel = flatten(&s.finish().expect("finishes"), &OPTIONS).expect("flattens").remove(0).kernel;
    assert_eq!(kernel.verify(), Ok(()), "{kernel}");
    let mut found = Vec::new();
    innermost_loops(&kernel.body, 0, &mut found);
    (kernel.to_string(), found)
}

/// Of seven rows in tiles of three two are past the end; the last tile, and no other, loads what is clamped, and computes its one row alone.
#[test]
fn rows_of_whole_tiles_are_a_constant_distance_apart() {
    let (text, steps) = steps_of_tiles(7);
    let [(1, whole), (1, edge)] = &steps[..] else { panic!("{} loops over steps:\n{text}", steps.len()) };
    // One address for all rows, and the one of the step: what is added to it is a constant of the load.
    let indices = |insts: &[Inst]| {
        let loads = insts.iter().filter_map(|inst| match inst {
            Inst::Let { op: KernelOp::Load { index, .. }, .. } => Some(*index),
            _ => None,
        });
        loads.collect::<HashSet<Value>>().len()
    };
    let products = |insts: &[Inst]| {
        let is_product = |inst: &&Inst| matches!(inst, Inst::Let { op: KernelOp::Fma(..), .. });
        insts.iter().filter(is_product).count()
    };
    assert_eq!((indices(whole), indices(edge)), (2, 2), "{text}");
    assert_eq!((products(whole), products(edge)), (3, 1), "{text}");
    let (text, steps) = steps_of_tiles(9);
    let [(0, only)] = &steps[..] else { panic!("{} loops over steps:\n{text}", steps.len()) };
    assert_eq!(indices(only), 2, "{text}");
}

/// Each step of a long division reads the remainder in its condition and in both of its results.
#[test]
fn steps_that_share_a_remainder_are_computed_once_in_masked_vectors() {
    const STEPS: usize = 40;
    let mut func = Func::new("steps");
    let x = func.add_input("x", DType::F32, vec![Expr::int(20)]);
    let y = func.compute("y", DType::F32, vec![Expr::int(20)], |f, i| {
        (0..STEPS).fold(f.load(x, i.to_vec()), |rest, n| {
            let step = Expr::f32(n as f32);
            Expr::select(rest.clone().gt(step.clone()), rest.clone() - step, rest)
        })
    });
    func.promote_to_output(y);
    let mut s = Schedule::new(func);
    let parts = s.split("y_i0", &[None, Some(8)]).expect("splits");
    s.vectorize(&parts[1]).expect("vectorizes");
    let text = kernel_text(&s.finish().expect("finishes"));
    assert!(text.contains(" where "), "{text}");
    // Of a full vector and of a masked one.
    assert!(text.matches(" sub ").count() <= 2 * STEPS, "{text}");
}
