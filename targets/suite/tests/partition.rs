//! Loops that select between elements and padding compute the same in parts: kernels by the evaluator, against the interpreter.

use fastrand::Rng;
use tilewright_dtype::DType;
use tilewright_target_suite::eval;
use tilewright_te::flatten::{FlattenOptions, Made, flatten_watched};
use tilewright_te::interp::{Mode, Program, evaluate_index};
use tilewright_te::kernel::{Inst, Kernel, KernelOp};
use tilewright_te::schedule::Schedule;
use tilewright_te::{Expr, Func};

/// An image with a frame of a constant around: `before` and `behind` elements of each axis, less than none where elements are cut off.
/// Where `joined`, another image follows along the columns.
#[derive(Clone, Debug)]
struct Case {
    extents: [i64; 2],
    before: [i64; 2],
    behind: [i64; 2],
    /// Every so many elements, one is taken.
    step: i64,
    joined: bool,
    /// Whether the number of columns is a size.
    open: bool,
    /// Factors by which the columns are split; the innermost of the loops is a vector where `vector`.
    splits: Vec<i64>,
    vector: bool,
    /// Whether the loop over rows is inside.
    rows_inside: bool,
}

impl Case {
    fn random(random: &mut Rng) -> Case {
        let mut sides = || [random.i64(-1..4), random.i64(-1..4)];
        let (before, behind) = (sides(), sides());
        let factors = [2, 3, 4, 8];
        Case {
            extents: [random.i64(3..9), random.i64(3..40)],
            before,
            behind,
            step: random.i64(1..4),
            joined: random.bool(),
            open: random.bool(),
            splits: (0..random.usize(0..3)).map(|_| factors[random.usize(..factors.len())]).collect(),
            vector: random.bool(),
            rows_inside: random.bool(),
        }
    }

    fn func(&self) -> Func {
        let mut f = Func::new("padded");
        let [rows, columns] = self.extents;
        let width: Expr = if self.open { f.add_size("columns", 1, 64).into() } else { Expr::int(columns) };
        let x = f.add_input("x", DType::F32, vec![Expr::int(rows), width.clone()]);
        let y = f.add_input("y", DType::F32, vec![Expr::int(7)]);
        let framed = |n: usize, extent: Expr| {
            let all = extent + (self.before[n] + self.behind[n]);
            if self.step == 1 { all } else { all.floor_div(Expr::int(self.step)) + 1 }
        };
        let own = framed(1, width.clone());
        let all = if self.joined { own.clone() + 7 } else { own.clone() };
        let out = f.compute("out", DType::F32, vec![framed(0, Expr::int(rows)), all], |f, i| {
            let at = |n: usize| i[n].clone() * self.step - self.before[n];
            let inside = |e: Expr, extent: Expr| e.clone().ge(Expr::int(0)).and(e.lt(extent));
            let there = inside(at(0), Expr::int(rows)).and(inside(at(1), width.clone()));
            let value = Expr::select(there, f.load(x, vec![at(0), at(1)]), Expr::f32(-3.0));
            let next = || f.load(y, vec![i[1].clone() - own.clone()]);
            if self.joined { Expr::select(i[1].clone().lt(own.clone()), value, next()) } else { value }
        });
        f.promote_to_output(out);
        f
    }

    fn scheduled(&self) -> Func {
        let mut s = Schedule::new(self.func());
        let mut columns = vec!["out_i1".to_string()];
        for &factor in &self.splits {
            let outer = columns.remove(0);
            let parts = s.split(&outer, &[None, Some(factor)]).expect("splits");
            columns.splice(0..0, parts);
        }
        if let (true, [outer, _, ..]) = (self.rows_inside, &columns[..]) {
            s.reorder(&[outer, "out_i0"]).expect("reorders");
        }
        if let (true, [_, .., innermost]) = (self.vector, &columns[..]) {
            s.vectorize(innermost).expect("vectorizes");
        }
        s.finish().expect("finishes")
    }
}

fn bytes(n: i64, random: &mut Rng) -> Vec<u8> {
    (0..n.max(16)).flat_map(|_| random.f32().to_le_bytes()).collect()
}

/// Instructions of loops that start no loops.
fn innermost_loops<'a>(insts: &'a [Inst], found: &mut Vec<&'a [Inst]>) {
    for inst in insts {
        match inst {
            Inst::Loop { body, .. } => {
                if !body.iter().any(|i| matches!(i, Inst::Loop { .. } | Inst::If { .. })) {
                    found.push(body);
                }
                innermost_loops(body, found);
            }
            Inst::If { then_body, else_body, .. } => {
                innermost_loops(then_body, found);
                innermost_loops(else_body, found);
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

fn kernels(func: &Func, masked_access: Option<u32>) -> Vec<Kernel> {
    let options = FlattenOptions { masked_access, ..FlattenOptions::PLAIN };
    let mut check = |pass: &'static str, made: Made<'_, '_>| {
        assert_eq!(made.verify(), Ok(()), "after {pass}:\n{made}");
        Ok(())
    };
    let kernels = flatten_watched(func, &options, &mut check).expect("flattens");
    kernels.into_iter().map(|flat| flat.kernel).collect()
}

#[test]
fn parts_of_loops_compute_what_the_whole_does() {
    let mut random = Rng::with_seed(7);
    for _ in 0..1500 {
        let case = Case::random(&mut random);
        let (func, scheduled) = (case.func(), case.scheduled());
        let sizes: Vec<i64> = func.sizes.iter().map(|_| case.extents[1]).collect();
        let size_of = |v| func.sizes.iter().position(|s| *s == v).map(|at| sizes[at]);
        let extents = func.buffers[func.params[2]].shape.iter().map(|e| evaluate_index(e, &size_of));
        let n_out: i64 = extents.map(|e| e.expect("an extent")).product();
        let n_in = case.extents[0] * case.extents[1];
        let inputs = [bytes(n_in, &mut random), bytes(7, &mut random)];
        let program = Program::compile(&func).expect("compiles");
        let exact = [&inputs[0][..4 * n_in as usize], &inputs[1][..28]];
        let expected = program.run(&sizes, &exact, Mode::Exact).expect("runs").remove(0);
        for masked_access in [None, Some(4)] {
            for kernel in kernels(&scheduled, masked_access) {
                let place = |name: &str| kernel.buffers.iter().position(|b| b.name == name);
                let mut buffers = vec![Vec::new(); kernel.buffers.len()];
                let contents = [
                    ("x", inputs[0].clone()),
                    ("y", inputs[1].clone()),
                    ("out", vec![0; 4 * n_out as usize]),
                ];
                for (name, content) in contents {
                    if let Some(n) = place(name) {
                        buffers[n] = content;
                    }
                }
                let ran = eval::run(&kernel, &mut buffers, &sizes, 0..1);
                assert_eq!(ran, Ok(()), "{case:?}\n{scheduled}\n{kernel}");
                let found = place("out").map(|n| &buffers[n]);
                assert_eq!(found, Some(&expected.bytes), "{case:?}\n{scheduled}\n{kernel}");
            }
        }
    }
}

/// A frame of one around rows of 30, in vectors of 8: the first and the last vector have elements of both.
#[test]
fn where_all_elements_are_there_none_is_asked_for() {
    let case = Case {
        extents: [6, 30],
        before: [1, 1],
        behind: [1, 1],
        step: 1,
        joined: false,
        open: false,
        splits: vec![8],
        vector: true,
        rows_inside: false,
    };
    let kernel = kernels(&case.scheduled(), Some(4)).remove(0);
    let mut loops = Vec::new();
    innermost_loops(&kernel.body, &mut loops);
    let asks = |inst: &&Inst| match inst {
        Inst::Let {
            op: KernelOp::Compare(..) | KernelOp::Select(..) | KernelOp::Load { mask: Some(_), .. },
            ..
        } => true,
        Inst::Store { mask, .. } => mask.is_some(),
        _ => false,
    };
    let loads = |inst: &&Inst| matches!(inst, Inst::Let { op: KernelOp::Load { .. }, .. });
    let counts: Vec<[usize; 2]> = loops
        .iter()
        .map(|insts| [insts.iter().filter(asks).count(), insts.iter().filter(loads).count()])
        .collect();
    // The rows above and below, which only store, and between them the two whole vectors of each other row.
    assert_eq!(counts.iter().filter(|c| **c == [0, 1]).count(), 1, "{kernel}");
    assert_eq!(counts.iter().filter(|c| **c == [0, 0]).count(), 2, "{kernel}");
    assert_eq!(counts.len(), 3, "{kernel}");
}
