//! What plans ask before there is a schedule agrees with what schedules do.

use tilewright_dtype::DType;
use tilewright_te::schedule::{Digit, Schedule, footprint};
use tilewright_te::{Expr, Func, IterKind, Stmt, Store};

/// Sums of windows of three elements, `stride` apart, of a padded row.
fn windows(n: i64, stride: i64) -> Func {
    let mut func = Func::new("windows");
    let width = (n - 1) * stride + 3;
    let x = func.add_input("x", DType::F32, vec![Expr::int(width - 2)]);
    let pad = func.compute("pad", DType::F32, vec![Expr::int(width)], |f, i| {
        let at = i[0].clone() - 1;
        let inside = at.clone().ge(Expr::int(0)).and(at.clone().lt(Expr::int(width - 2)));
        Expr::select(inside, f.load(x, vec![at]), Expr::f32(0.0))
    });
    let (extents, steps) = (vec![Expr::int(n)], vec![Expr::int(3)]);
    let sum = func.reduce("sum", DType::F32, extents, steps, Expr::f32(0.0), |f, i, r, acc| {
        acc + f.load(pad, vec![i[0].clone() * stride + r[0].clone()])
    });
    func.promote_to_output(sum);
    func
}

#[test]
fn footprints_are_what_compute_at_computes() {
    for (n, stride) in [(24, 1), (24, 2), (20, 3)] {
        let func = windows(n, stride);
        let sum = func.block("sum").expect("a block");
        let pad = func.block("pad").expect("a block").body[0].buffer;
        for inside in [1, 2, 4, n] {
            let digit = |extent: i64, inside: bool| Digit { extent: Expr::int(extent), inside };
            let digits = [vec![digit(n / inside, false), digit(inside, true)], vec![digit(3, true)]];
            let planned = footprint(&func, sum, pad, &digits).expect("it reads the buffer");
            let mut schedule = Schedule::new(func.clone());
            let loops = schedule.loop_names("sum").expect("loops");
            let parts = schedule.split(&loops[0], &[None, Some(inside)]).expect("splits");
            let made = schedule.compute_at("pad", &parts[0]).expect("moves");
            assert_eq!(planned[0].as_int(), schedule.extent(&made[0]), "{n} by {inside}, stride {stride}");
        }
    }
}

#[test]
fn lanes_that_may_write_the_same_are_told() {
    let mut func = Func::new("rows");
    let shape: Vec<Expr> = [256, 48, 5, 5].map(Expr::int).to_vec();
    let x = func.add_input("x", DType::F32, shape.clone());
    let y = func.compute("y", DType::F32, shape, |f, i| f.load(x, i.to_vec()));
    func.promote_to_output(y);
    assert!(func.may_vectorize("y", 2, &[None, Some(8)]));
    // Lanes of one loop of all four, in pieces that divide no extent: apart, but beyond what can be shown.
    assert!(!func.may_vectorize("y", 4, &[None, Some(960), Some(8)]));
    assert!(!func.may_vectorize("z", 1, &[None, Some(8)]));
}

#[test]
fn threads_share_what_writes_apart() {
    let mut schedule = Schedule::new(windows(24, 1));
    let loops = schedule.loop_names("sum").expect("loops");
    assert!(schedule.may_share(&[&loops[..1]]));
    assert!(!schedule.may_share(&[&loops]), "steps accumulate");
    let parts = schedule.split(&loops[0], &[None, Some(4)]).expect("splits");
    assert!(schedule.may_share(&[&parts[..1], &parts[1..]]), "rounds, and what is shared in each");
    assert!(!schedule.may_share(&[&parts[1..]]), "not the outermost");
    // A query changes nothing.
    assert_eq!(schedule.trace().len(), 1);
}

#[test]
fn a_buffer_is_whole_where_one_block_writes_all_of_it() {
    let mut func = Func::new("halves");
    let x = func.add_input("x", DType::F32, vec![Expr::int(8)]);
    let y = func.add_output("y", DType::F32, vec![Expr::int(2), Expr::int(8)]);
    let store = |half: i64, i: &[Expr], value: Expr| Store {
        buffer: y,
        indices: vec![Expr::int(half), i[0].clone()],
        value,
    };
    func.define(y, vec![(Expr::int(8), IterKind::Spatial)], |f, i| {
        let value = f.load(x, i.to_vec());
        (Vec::new(), vec![store(0, i, value.clone()), store(1, i, value)])
    });
    assert!(func.is_whole(x) && !func.is_whole(y));
    let writer = func.blocks()[0].clone();
    assert!(func.is_sole_writer(&writer));
    func.body.push(Stmt::Block(Box::new(tilewright_te::Block { name: "other".into(), ..writer.clone() })));
    assert!(!func.is_sole_writer(&writer));
}
