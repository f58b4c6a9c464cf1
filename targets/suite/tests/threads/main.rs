//! Functions scheduled for threads, by primitives: their kernels give the interpreter's bits, and each barrier is needed.

mod random;
mod rules;
mod running;

use running::{check_needed, compare, kernels};
use tilewright_dtype::DType;
use tilewright_target_suite::scheduled;
use tilewright_te::flatten::FlatKernel;
use tilewright_te::kernel::{Inst, KernelOp};
use tilewright_te::math::expand_func;
use tilewright_te::schedule::Schedule;
use tilewright_te::{Expr, Func, Scope, ThreadLevel};

const LANES: u32 = 32;

/// The kernels of a schedule, which must agree with the interpreter and have so many barriers, each of which is needed.
fn check(schedule: Schedule, barriers: usize) -> Vec<FlatKernel> {
    check_with_waits(schedule, [barriers, 0])
}

/// The same, with so many waits for copies.
fn check_with_waits(schedule: Schedule, [barriers, waits]: [usize; 2]) -> Vec<FlatKernel> {
    let mut func = schedule.finish().expect("finishes");
    expand_func(&mut func);
    let kernels = kernels(&func, LANES).unwrap_or_else(|error| panic!("{error}\n{func}"));
    for seed in 0..3 {
        let result = compare(&func, &kernels, seed);
        assert_eq!(result, Ok(()), "{func}\n{}", kernels[0].kernel);
    }
    assert_eq!(check_needed(&func, &kernels, 1), [barriers, waits], "{func}\n{}", kernels[0].kernel);
    kernels
}

fn count(insts: &[Inst], wanted: &impl Fn(&Inst) -> bool) -> usize {
    let inside = |inst: &Inst| match inst {
        Inst::Loop { body, .. } => count(body, wanted),
        Inst::If { then_body, else_body, .. } => count(then_body, wanted) + count(else_body, wanted),
        _ => 0,
    };
    insts.iter().map(|inst| usize::from(wanted(inst)) + inside(inst)).sum()
}

/// Tiles of 32 x 32 by 2 warps, 4 x 4 in registers of each thread; both operands go through shared memory, 8 steps at a time.
fn tiled_product(m: i64, n: i64, k: i64) -> Schedule {
    let mut s = Schedule::new(scheduled::product_func(m, n, k));
    let store = s.cache_write("C", Scope::Register).unwrap();
    let [i, j] = <[String; 2]>::try_from(s.loop_names(&store).unwrap()).unwrap();
    let i = s.split(&i, &[None, Some(2), Some(4), Some(4)]).unwrap();
    let j = s.split(&j, &[None, Some(8), Some(4)]).unwrap();
    s.reorder(&[&i[0], &j[0], &i[1], &i[2], &j[1], &i[3], &j[2]]).unwrap();
    let task = s.fuse(&[&i[0], &j[0]]).unwrap();
    let lane = s.fuse(&[&i[2], &j[1]]).unwrap();
    s.parallel(&task).unwrap();
    s.bind(&i[1], ThreadLevel::Warp).unwrap();
    s.bind(&lane, ThreadLevel::Lane).unwrap();
    s.unroll(&i[3]).unwrap();
    s.unroll(&j[2]).unwrap();

    let own = s.compute_at("C", &task).unwrap();
    let i = s.split(&own[0], &[Some(2), Some(4), Some(4)]).unwrap();
    let j = s.split(&own[1], &[Some(8), Some(4)]).unwrap();
    let k = s.split(&own[2], &[None, Some(8)]).unwrap();
    s.reorder(&[&k[0], &i[0], &i[1], &j[0], &k[1], &i[2], &j[1]]).unwrap();
    let lane = s.fuse(&[&i[1], &j[0]]).unwrap();
    s.bind(&i[0], ThreadLevel::Warp).unwrap();
    s.bind(&lane, ThreadLevel::Lane).unwrap();
    s.unroll(&i[2]).unwrap();
    s.unroll(&j[1]).unwrap();
    s.decompose_reduction("C", &k[0]).unwrap();

    for operand in ["A", "B"] {
        let fetch = s.cache_read("C", operand, Scope::Shared).unwrap();
        let loops = s.compute_at(&fetch, &k[0]).unwrap();
        let all = s.fuse(&[&loops[0], &loops[1]]).unwrap();
        let threads = s.split(&all, &[None, Some(2), Some(32)]).unwrap();
        s.bind(&threads[1], ThreadLevel::Warp).unwrap();
        s.bind(&threads[2], ThreadLevel::Lane).unwrap();
    }
    s
}

#[test]
fn tiled_products() {
    let kernels = check(tiled_product(64, 64, 24), 2);
    let kernel = &kernels[0].kernel;
    assert_eq!((kernel.threads.warps, kernel.threads.lanes, kernel.shared.len()), (2, 32, 2), "{kernel}");
    let products = count(&kernel.body, &|i| matches!(i, Inst::Let { op: KernelOp::Fma(..), .. }));
    assert_eq!(products, 16, "{kernel}");
}

#[test]
fn tiled_products_of_odd_extents() {
    check(tiled_product(45, 39, 21), 2);
}

#[test]
fn pipelined_products() {
    for (stages, extents) in
        [(2, (64, 64, 40)), (3, (33, 40, 57)), (4, (45, 39, 37)), (4, (33, 64, 9)), (8, (32, 32, 21))]
    {
        let (m, n, k) = extents;
        let mut s = tiled_product(m, n, k);
        let steps = s.loop_names("C").unwrap()[1].clone();
        s.pipeline(&steps, stages).unwrap();
        // The loop waits once, for the thread's own copies and then for the other threads.
        let kernels = check_with_waits(s, [1, 1]);
        let kernel = &kernels[0].kernel;
        let copies = count(&kernel.body, &|i| matches!(i, Inst::CopyAsync { .. }));
        let ahead = (stages as usize - 1).min((k as usize).div_ceil(8));
        assert_eq!(copies, 2 * (ahead + 1), "{kernel}");
        let array = |name: &str| kernel.shared.iter().find(|array| array.name == name).map(|a| a.len);
        assert_eq!(array("A_shared"), Some(u64::from(stages) * 32 * 8), "{kernel}");
    }
}

/// Rows over their sums.
fn rows_over_sums(rows: i64, columns: i64) -> Func {
    let (mut f, sums) = scheduled::row_sums_func(rows, columns);
    let x = f.params[0];
    let shape = vec![Expr::int(rows), Expr::int(columns)];
    let y = f.compute("y", DType::F32, shape, |f, i| {
        f.load(x, i.to_vec()) / f.load(sums, vec![i[0].clone(), Expr::int(0)])
    });
    f.promote_to_output(y);
    f
}

#[test]
fn sums_in_trees_of_shuffles() {
    let mut s = Schedule::new(rows_over_sums(10, 96));
    let y = s.loop_names("y").unwrap();
    let rows = s.split(&y[0], &[None, Some(4)]).unwrap();
    let columns = s.split(&y[1], &[None, Some(32)]).unwrap();
    s.parallel(&rows[0]).unwrap();
    s.bind(&rows[1], ThreadLevel::Warp).unwrap();
    s.reorder(&[&columns[1], &columns[0]]).unwrap();
    s.bind(&columns[1], ThreadLevel::Lane).unwrap();
    for lanes in [1, 2, 4, 8, 16, 32] {
        let name = format!("s{lanes}");
        s.set_scope(&name, Scope::Register).unwrap();
        let loops = s.compute_at(&name, &rows[1]).unwrap();
        let lane = s.fuse(&[&loops[0], &loops[1]]).unwrap();
        s.bind(&lane, ThreadLevel::Lane).unwrap();
        if lanes == 32 {
            s.decompose_reduction(&name, &loops[2]).unwrap();
        }
    }
    let kernels = check(s, 0);
    let kernel = &kernels[0].kernel;
    let shuffles = count(&kernel.body, &|i| matches!(i, Inst::Let { op: KernelOp::Shuffle { .. }, .. }));
    // Five to add, and one to hand the sum to all lanes.
    assert_eq!((shuffles, kernel.shared.len()), (6, 0), "{kernel}");
}

/// Of two lanes with halves of two sums each adds up one: it keeps its half of that one, and gets the other lane's.
#[test]
fn lanes_share_sums() {
    let mut f = Func::new("halves");
    let x = f.add_input("x", DType::F32, vec![Expr::int(4), Expr::int(32)]);
    let twice = f.compute("twice", DType::F32, vec![Expr::int(4), Expr::int(32)], |f, i| {
        f.load(x, i.to_vec()) * Expr::f32(2.0)
    });
    let y = f.compute("y", DType::F32, vec![Expr::int(4), Expr::int(16)], |f, i| {
        let part = |at: Expr| f.load(twice, vec![i[0].clone(), at]);
        part(i[1].clone()) + part(i[1].clone() + 16)
    });
    f.promote_to_output(y);
    let mut s = Schedule::new(f);
    let y = s.loop_names("y").unwrap();
    let rows = s.split(&y[0], &[None, Some(2), Some(1)]).unwrap();
    s.parallel(&rows[0]).unwrap();
    let lane = s.fuse(&[&rows[1], &rows[2], &y[1]]).unwrap();
    s.set_scope("twice", Scope::Register).unwrap();
    let parts = s.compute_at("twice", &rows[0]).unwrap();
    s.bind(&lane, ThreadLevel::Lane).unwrap();
    s.unroll(&parts[0]).unwrap();
    s.bind(&parts[1], ThreadLevel::Lane).unwrap();
    let kernels = check(s, 0);
    let kernel = &kernels[0].kernel;
    let number = |of: &dyn Fn(&KernelOp) -> bool| {
        count(&kernel.body, &|i| matches!(i, Inst::Let { op, .. } if of(op)))
    };
    let shuffles = number(&|op| matches!(op, KernelOp::Shuffle { .. }));
    let choices = number(&|op| matches!(op, KernelOp::Select(..)));
    assert_eq!((shuffles, choices, kernel.shared.len()), (2, 2, 0), "{kernel}");
}

#[test]
fn a_transposition_through_shared_memory() {
    for [rows, columns] in [[64, 96], [37, 50]] {
        let mut f = Func::new("transposed");
        let x = f.add_input("x", DType::F32, vec![Expr::int(rows), Expr::int(columns)]);
        let y = f.compute("y", DType::F32, vec![Expr::int(columns), Expr::int(rows)], |f, i| {
            f.load(x, vec![i[1].clone(), i[0].clone()])
        });
        f.promote_to_output(y);
        let mut s = Schedule::new(f);
        let loops = s.loop_names("y").unwrap();
        let tile = s.tile(&[&loops[0], &loops[1]], &[32, 32]).unwrap();
        let task = s.fuse(&[&tile[0], &tile[1]]).unwrap();
        s.parallel(&task).unwrap();
        let fetch = s.cache_read("y", "x", Scope::Shared).unwrap();
        let fetched = s.compute_at(&fetch, &task).unwrap();
        for [row, column] in [[&tile[2], &tile[3]], [&fetched[0], &fetched[1]]] {
            let rows = s.split(row, &[None, Some(4)]).unwrap();
            s.bind(&rows[1], ThreadLevel::Warp).unwrap();
            s.bind(column, ThreadLevel::Lane).unwrap();
        }
        check(s, 1);
    }
}

#[test]
fn elements_of_an_open_number() {
    let mut f = Func::new("relu");
    let n: Expr = f.add_size("n", 1, 1 << 20).into();
    let x = f.add_input("x", DType::F32, vec![n.clone() * 37]);
    let y = f.compute("y", DType::F32, vec![n * 37], |f, i| f.load(x, i.to_vec()).max(Expr::f32(0.0)));
    f.promote_to_output(y);
    let mut s = Schedule::new(f);
    let loops = s.loop_names("y").unwrap();
    let split = s.split(&loops[0], &[None, Some(2), Some(32), Some(4)]).unwrap();
    s.parallel(&split[0]).unwrap();
    s.bind(&split[1], ThreadLevel::Warp).unwrap();
    s.bind(&split[2], ThreadLevel::Lane).unwrap();
    s.vectorize(&split[3]).unwrap();
    check(s, 0);
}
