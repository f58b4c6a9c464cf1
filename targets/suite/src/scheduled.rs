//! Functions scheduled for the threads of a GPU by primitives, as kernels: what rules for GPUs will make, in small.

use tilewright_dtype::DType;
use tilewright_machine::Gpu;
use tilewright_te::expr::Buffer;
use tilewright_te::flatten::{FlattenOptions, flatten};
use tilewright_te::kernel::Kernel;
use tilewright_te::math::expand_func;
use tilewright_te::schedule::{Padding, Piece, Schedule};
use tilewright_te::{Expr, Func, Scope, ThreadLevel};

fn finish(schedule: Schedule) -> Vec<Kernel> {
    let mut func = schedule.finish().expect("a schedule that is legal");
    expand_func(&mut func);
    let options = FlattenOptions { lanes: Some(Gpu::LANES), ..FlattenOptions::PLAIN };
    let kernels = flatten(&func, &options).unwrap_or_else(|error| panic!("{error}\n{func}"));
    kernels.into_iter().map(|flat| flat.kernel).collect()
}

/// `C = A * B`.
pub fn product_func(m: i64, n: i64, k: i64) -> Func {
    let mut f = Func::new("product");
    let a = f.add_input("A", DType::F32, vec![Expr::int(m), Expr::int(k)]);
    let b = f.add_input("B", DType::F32, vec![Expr::int(k), Expr::int(n)]);
    let shape = vec![Expr::int(m), Expr::int(n)];
    let c = f.reduce("C", DType::F32, shape, vec![Expr::int(k)], Expr::f32(0.0), |f, i, r, acc| {
        let (x, y) =
            (f.load(a, vec![i[0].clone(), r[0].clone()]), f.load(b, vec![r[0].clone(), i[1].clone()]));
        Expr::fma(x, y, acc)
    });
    f.promote_to_output(c);
    f
}

/// `C = A * B` by tiles of 128 x 128 of 8 warps, 8 x 8 in registers of each thread; both operands go through shared memory, 8 steps at a
/// time, that of A transposed.
///
/// # Panics
/// Where a primitive refuses: a defect.
pub fn product(m: i64, n: i64, k: i64) -> Vec<Kernel> {
    let mut s = Schedule::new(product_func(m, n, k));
    let store = s.cache_write("C", Scope::Register).expect("a cache");
    let [i, j] = <[String; 2]>::try_from(s.loop_names(&store).expect("loops")).expect("two");
    let i = s.split(&i, &[None, Some(4), Some(4), Some(8)]).expect("splits");
    let j = s.split(&j, &[None, Some(2), Some(8), Some(8)]).expect("splits");
    s.reorder(&[&i[0], &j[0], &i[1], &j[1], &i[2], &j[2], &i[3], &j[3]]).expect("an order");
    let task = s.fuse(&[&i[0], &j[0]]).expect("one loop");
    let warp = s.fuse(&[&i[1], &j[1]]).expect("one loop");
    let lane = s.fuse(&[&i[2], &j[2]]).expect("one loop");
    s.parallel(&task).expect("tasks");
    s.bind(&warp, ThreadLevel::Warp).expect("warps");
    s.bind(&lane, ThreadLevel::Lane).expect("lanes");
    s.unroll(&i[3]).expect("unrolls");
    s.vectorize(&j[3]).expect("vectors");

    let own = s.compute_at("C", &task).expect("inside");
    let i = s.split(&own[0], &[Some(4), Some(4), Some(8)]).expect("splits");
    let j = s.split(&own[1], &[Some(2), Some(8), Some(8)]).expect("splits");
    let k = s.split(&own[2], &[None, Some(8)]).expect("splits");
    s.reorder(&[&k[0], &i[0], &j[0], &i[1], &j[1], &k[1], &i[2], &j[2]]).expect("an order");
    let warp = s.fuse(&[&i[0], &j[0]]).expect("one loop");
    let lane = s.fuse(&[&i[1], &j[1]]).expect("one loop");
    s.bind(&warp, ThreadLevel::Warp).expect("warps");
    s.bind(&lane, ThreadLevel::Lane).expect("lanes");
    s.unroll(&k[1]).expect("unrolls");
    s.unroll(&i[2]).expect("unrolls");
    s.vectorize(&j[2]).expect("vectors");
    s.decompose_reduction("C", &k[0]).expect("parts");

    for operand in ["A", "B"] {
        let fetch = s.cache_read("C", operand, Scope::Shared).expect("a cache");
        if operand == "A" {
            let pieces = [1, 0].map(|dim| Piece { dim, factor: None });
            s.transform_layout("A_shared", &pieces, Padding::Zero).expect("transposed");
        }
        let loops = s.compute_at(&fetch, &k[0]).expect("inside");
        let all = s.fuse(&[&loops[0], &loops[1]]).expect("one loop");
        let threads = s.split(&all, &[None, Some(8), Some(32)]).expect("splits");
        s.bind(&threads[1], ThreadLevel::Warp).expect("warps");
        s.bind(&threads[2], ThreadLevel::Lane).expect("lanes");
    }
    finish(s)
}

/// Sums of the rows of `x`: each of 32 lanes has every 32nd element, then halves of the lanes add what the others have. Gives the buffer of
/// the sums, which is no output yet.
pub fn row_sums_func(rows: i64, columns: i64) -> (Func, Buffer) {
    let mut f = Func::new("row_sums");
    let x = f.add_input("x", DType::F32, vec![Expr::int(rows), Expr::int(columns)]);
    let shape = |lanes: i64| vec![Expr::int(rows), Expr::int(lanes)];
    let steps = vec![Expr::int(columns / 32)];
    let mut sums = f.reduce("s32", DType::F32, shape(32), steps, Expr::f32(0.0), |f, i, r, acc| {
        acc + f.load(x, vec![i[0].clone(), r[0].clone() * 32 + i[1].clone()])
    });
    for lanes in [16, 8, 4, 2, 1] {
        sums = f.compute(&format!("s{lanes}"), DType::F32, shape(lanes), |f, i| {
            let other = vec![i[0].clone(), i[1].clone() + lanes];
            f.load(sums, i.to_vec()) + f.load(sums, other)
        });
    }
    (f, sums)
}

/// Sums of rows, four rows a task, through shared memory and a tree of shuffles. There are a multiple of 4 rows and of 32 columns.
///
/// # Panics
/// Where a primitive refuses: a defect.
pub fn row_sums(rows: i64, columns: i64) -> Vec<Kernel> {
    let (mut f, sums) = row_sums_func(rows, columns);
    f.promote_to_output(sums);

    let mut s = Schedule::new(f);
    let y = s.loop_names("s1").expect("loops");
    let rows = s.split(&y[0], &[None, Some(4)]).expect("splits");
    s.parallel(&rows[0]).expect("tasks");
    s.bind(&rows[1], ThreadLevel::Warp).expect("warps");
    s.bind(&y[1], ThreadLevel::Lane).expect("lanes");
    for lanes in [2, 4, 8, 16, 32] {
        let name = format!("s{lanes}");
        // The first sums by shared memory, all others by shuffles.
        s.set_scope(&name, if lanes == 32 { Scope::Shared } else { Scope::Register }).expect("a scope");
        let loops = s.compute_at(&name, &rows[1]).expect("inside");
        let lane = s.fuse(&[&loops[0], &loops[1]]).expect("one loop");
        s.bind(&lane, ThreadLevel::Lane).expect("lanes");
        if lanes == 32 {
            s.decompose_reduction(&name, &loops[2]).expect("parts");
        }
    }
    finish(s)
}
