//! What is read across vectors is read by rows of squares: where these lie inside, nothing is gathered.

use tilewright_autosched::{Decisions, flatten_options, schedule};
use tilewright_dtype::DType;
use tilewright_machine::{CodegenKind, Target};
use tilewright_te::flatten::flatten;
use tilewright_te::interp::{Mode, Program};
use tilewright_te::kernel::{Inst, KernelOp};
use tilewright_te::schedule::Piece;
use tilewright_te::{Computation, Expr, Func};

/// Dimensions of `x` in the order of `perm`, and 1 added.
fn transposed(extents: &[i64], perm: &[usize]) -> Func {
    let mut func = Func::new("transposed");
    let shape: Vec<Expr> = extents.iter().map(|&n| Expr::int(n)).collect();
    let x = func.add_input("x", DType::F32, shape.clone());
    let to = perm.iter().map(|&dim| shape[dim].clone()).collect();
    let y = func.compute("y", DType::F32, to, |f, i| {
        let mut from = i.to_vec();
        perm.iter().zip(i).for_each(|(&dim, index)| from[dim] = index.clone());
        f.load(x, from) + Expr::f32(1.0)
    });
    func.promote_to_output(y);
    func
}

/// How many gathers there are, and how many vectors that are put together of elements.
fn count(insts: &[Inst]) -> (usize, usize) {
    let (mut gathers, mut columns) = (0, 0);
    for inst in insts {
        let inside = match inst {
            Inst::Let { op, .. } => {
                gathers += usize::from(matches!(op, KernelOp::Gather { .. }));
                columns += usize::from(matches!(op, KernelOp::Concat(_)));
                continue;
            }
            Inst::Loop { body, .. } => count(body),
            Inst::If { then_body, else_body, .. } => {
                let (then, otherwise) = (count(then_body), count(else_body));
                (then.0 + otherwise.0, then.1 + otherwise.1)
            }
            _ => continue,
        };
        (gathers, columns) = (gathers + inside.0, columns + inside.1);
    }
    (gathers, columns)
}

fn run(func: &Func, x: &[u8]) -> Vec<u8> {
    let program = Program::compile(func).expect("compiles");
    let outputs = program.run(&[], &[x], Mode::Exact).unwrap_or_else(|e| panic!("{e}\n{func}"));
    outputs[0].bytes.clone()
}

/// Numbers that count up.
fn counting(n: i64) -> Vec<u8> {
    (0..n).flat_map(|n| (n as f32).to_le_bytes()).collect()
}

/// The elements of an image, of which `block` channels lie together.
fn in_blocks(x: &[u8], extents: [i64; 4], block: i64) -> Vec<u8> {
    let [images, channels, height, width] = extents;
    let mut blocks = Vec::with_capacity(x.len());
    for image in 0..images {
        for outer in 0..channels / block {
            for position in 0..height * width {
                for channel in outer * block..(outer + 1) * block {
                    let at = 4 * ((image * channels + channel) * height * width + position) as usize;
                    blocks.extend_from_slice(&x[at..at + 4]);
                }
            }
        }
    }
    blocks
}

/// Schedules for a machine of eight lanes; gives the strategy and what [`count`] finds.
fn check(extents: &[i64], perm: &[usize]) -> (String, (usize, usize)) {
    let computation = Computation::of(transposed(extents, perm));
    let x = counting(extents.iter().product());
    check_computation(&computation, &x, &x)
}

/// As [`check`], of an image that comes in blocks of channels.
fn check_blocks(extents: [i64; 4], perm: &[usize], block: i64) -> (String, (usize, usize)) {
    let mut computation = Computation::of(transposed(&extents, perm));
    let mut pieces: Vec<Piece> = (0..4).map(|dim| Piece { dim, factor: None }).collect();
    pieces.push(Piece { dim: 1, factor: Some(block) });
    computation.layouts = vec![Some(pieces), None];
    let x = counting(extents.iter().product());
    check_computation(&computation, &x, &in_blocks(&x, extents, block))
}

/// Schedules a computation for a machine of eight lanes and holds its results, of `laid_out`, against what was computed of `x`.
fn check_computation(computation: &Computation, x: &[u8], laid_out: &[u8]) -> (String, (usize, usize)) {
    let target = Target::parse("x86-64-v3", CodegenKind::Llvm).expect("a known target");
    let scheduled = schedule(computation, &target, &Decisions::default()).expect("schedules");
    assert_eq!(run(&scheduled.func, laid_out), run(&computation.func, x), "{}", scheduled.func);
    let options = flatten_options(&target);
    let kernels = flatten(&scheduled.func, &options).expect("flattens");
    let strategy = scheduled.strategy;
    (strategy, count(&kernels[0].kernel.body))
}

#[test]
fn squares_that_tile_what_is_transposed_are_read_by_rows() {
    // A line of 64 bytes is two squares.
    let (strategy, counts) = check(&[64, 32], &[1, 0]);
    assert!(strategy.contains("16 at once of loop 0"), "{strategy}");
    assert_eq!(counts, (0, 16));
    let (strategy, counts) = check(&[2, 24, 5, 8], &[0, 2, 3, 1]);
    assert!(strategy.contains("8 at once of loop 2"), "{strategy}");
    assert_eq!(counts, (0, 8));
}

#[test]
fn rows_of_an_image_are_one_where_its_channels_are_apart() {
    let (strategy, counts) = check(&[1, 7, 8, 40], &[0, 3, 1, 2]);
    assert!(strategy.contains("rows of 2 in vectors of 8, 8 at once of loop 1"), "{strategy}");
    assert_eq!(counts, (0, 8));
}

#[test]
fn blocks_of_channels_are_squares_beside_positions() {
    let (strategy, counts) = check_blocks([1, 16, 3, 24], &[0, 1, 2, 3], 8);
    // Of two blocks.
    assert!(strategy.contains("16 at once of loop 1"), "{strategy}");
    assert_eq!(counts, (0, 16));
    // Of shorter blocks a square would take several.
    let (strategy, (_, columns)) = check_blocks([1, 16, 3, 24], &[0, 1, 2, 3], 4);
    assert!(!strategy.contains("at once") && columns == 0, "{strategy}");
}

#[test]
fn squares_beyond_the_end_are_gathered_under_guards() {
    let (_, (gathers, columns)) = check(&[21, 19], &[1, 0]);
    assert!(columns == 8 && gathers > 0, "{gathers} gathers, {columns} columns");
}

#[test]
fn too_few_rows_or_lanes_are_no_squares() {
    for (extents, perm) in [([64, 3], [1, 0]), ([5, 64], [1, 0])] {
        let (strategy, (_, columns)) = check(&extents, &perm);
        assert!(!strategy.contains("at once") && columns == 0, "{strategy}");
    }
}

#[test]
fn what_is_padded_is_no_square() {
    let mut func = Func::new("padded");
    let x = func.add_input("x", DType::F32, vec![Expr::int(32), Expr::int(30)]);
    let y = func.compute("y", DType::F32, vec![Expr::int(32), Expr::int(32)], |f, i| {
        let inside = i[0].clone().gt(Expr::int(0)).and(i[0].clone().lt(Expr::int(31)));
        Expr::select(inside, f.load(x, vec![i[1].clone(), i[0].clone() - 1]), Expr::f32(0.0))
    });
    func.promote_to_output(y);
    let target = Target::parse("x86-64-v3", CodegenKind::Llvm).expect("a known target");
    let scheduled = schedule(&Computation::of(func), &target, &Decisions::default()).expect("schedules");
    assert!(!scheduled.strategy.contains("at once"), "{}", scheduled.strategy);
}
