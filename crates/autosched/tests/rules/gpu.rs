//! The rules for GPUs: where products are cut into parts, and which have too few rows or columns for tiles.

use tilewright_autosched::{Decisions, Planned, Strategy, plan, schedule};
use tilewright_dtype::DType;
use tilewright_machine::{CodegenKind, Target};
use tilewright_te::{Expr, Func};

use crate::compared::{check_candidates_for, compare, computation};
use crate::functions::{conv, ints, matmul};

const MACHINE: &str = "sm_80/x86-64-v3";

fn planned(func: &Func, constants: &[bool]) -> Planned<Strategy> {
    let target = Target::parse(MACHINE, CodegenKind::Llvm).expect("a known target");
    plan(&computation(func, constants, &[]), &target, &Decisions::default()).expect("a plan")
}

/// Takes every decision otherwise and compares; gives what is done by default, and the choice points.
fn check(func: &Func, constants: &[bool]) -> (String, Vec<String>) {
    let points = check_candidates_for(MACHINE, func, constants, &[]);
    (planned(func, constants).strategy.to_string(), points)
}

#[test]
fn steps_of_few_tiles_are_cut() {
    for constants in [[false, false, true], [false, true, true]] {
        let (text, points) = check(&matmul(Some(40), 36, 1024), &constants);
        assert!(text.contains("16 parts by 2: product_rf: f32[40, 36, 16 | 64]"), "{text}");
        let of_parts = ["product_rf/tile", "product_rf/depth", "product_rf/stages"];
        assert_eq!(points, [&["product/parts"], &of_parts[..], &["product/threads"]].concat());
    }
}

/// A part of the channels has the whole window, in the same order; weights are stored so that what is fetched together lies together.
#[test]
fn channels_of_a_convolution_are_cut() {
    let (text, _) = check(&conv(128, 24, 6, 3, 1), &[false, true, true, false]);
    assert!(text.contains("parts by 4: conv_rf: f32[1, 24, 6, 6, "), "{text}");
    assert!(text.contains(", steps 6 7 5, "), "{text}");
    assert!(text.contains("constant w as b c d "), "{text}");
}

/// A loop over one channel is none over steps, and stands outside of threads.
#[test]
fn a_convolution_of_one_channel_is_a_product() {
    let (text, _) = check(&conv(1, 16, 8, 3, 1), &[false, true, true, false]);
    assert!(text.contains("product conv: f32[1, 16, 8, 8 | 1, 3, 3]"), "{text}");
}

#[test]
fn nothing_is_cut_where_that_gains_nothing() {
    let is_cut = |func: &Func| planned(func, &[false, true, true]).strategy.to_string().contains("parts");
    // Tiles for all multiprocessors, and few steps.
    for func in [matmul(Some(4096), 2048, 1024), matmul(Some(40), 36, 96), matmul(None, 36, 96)] {
        assert!(!is_cut(&func), "{func}");
    }
    assert!(is_cut(&matmul(Some(64), 256, 4096)));
    // An open number of rows is taken for some hundreds.
    assert!(is_cut(&matmul(None, 256, 1024)));
}

/// Each channel's windows of 7 x 7: its image is no matrix beside few vectors.
#[test]
fn windows_are_no_rows() {
    let mut func = Func::new("windows");
    let x = func.add_input("x", DType::F32, ints(&[96, 62, 62]));
    let w = func.add_input("w", DType::F32, ints(&[96, 7, 7]));
    let shape = ints(&[96, 56, 56]);
    let y = func.reduce("y", DType::F32, shape, ints(&[7, 7]), Expr::f32(0.0), |f, i, r, acc| {
        let place = vec![i[0].clone(), i[1].clone() + r[0].clone(), i[2].clone() + r[1].clone()];
        let weight = f.load(w, vec![i[0].clone(), r[0].clone(), r[1].clone()]);
        Expr::fma(f.load(x, place), weight, acc)
    });
    func.promote_to_output(y);
    let planned = planned(&func, &[false, true]);
    assert!(planned.rulings.iter().all(|ruling| ruling.rule != "skinny"), "{:?}", planned.rulings);
}

#[test]
fn few_rows_are_taken_together_by_warps() {
    let (text, _) = check(&matmul(Some(1), 300, 256), &[false, true, true]);
    assert!(text.contains("skinny product: f32[1, 300 | 256], "), "{text}");
    assert!(text.contains("rows 0, 1, 4 warps a task, 2 by 4 steps a lane, constant b as b a"), "{text}");
    let (text, _) = check(&matmul(Some(5), 131, 100), &[false, true, true]);
    assert!(text.contains("vectors 0, rows 1, 4 warps a task, constant b as b a"), "{text}");
    // Columns are consecutive: a thread each reads them better.
    let text = planned(&matmul(Some(1), 300, 256), &[false, false, true]).strategy.to_string();
    assert!(!text.contains("skinny"), "{text}");
}

#[test]
fn several_rows_are_taken_by_warps_that_fetch_together() {
    let (text, _) = check(&matmul(Some(9), 864, 512), &[false, true, true]);
    assert!(text.contains("4 warps a task of 2 rows, fetched in 3 stages, 4 steps a lane"), "{text}");
    let (_, points) = check(&matmul(Some(8), 1728, 512), &[false, true, true]);
    assert_eq!(points, ["product/team"]);
    // Few rows of the matrix, few steps, and more vectors than shared memory is for.
    for func in [matmul(Some(9), 432, 512), matmul(Some(9), 864, 256), matmul(Some(17), 864, 512)] {
        let text = planned(&func, &[false, true, true]).strategy.to_string();
        assert!(!text.contains("skinny"), "{text}");
    }
}

/// The rows of the matrix come between the variables of the vectors.
#[test]
fn several_rows_may_be_counted_by_several_variables() {
    for [outer, inner] in [[3, 4], [5, 2], [4, 2], [4, 3]] {
        let mut func = Func::new("vectors");
        let x = func.add_input("x", DType::F32, ints(&[outer, inner, 512]));
        let w = func.add_input("w", DType::F32, ints(&[512, 1728]));
        let shape = ints(&[outer, 1728, inner]);
        let y = func.reduce("y", DType::F32, shape, ints(&[512]), Expr::f32(0.0), |f, i, r, acc| {
            let vector = f.load(x, vec![i[0].clone(), i[2].clone(), r[0].clone()]);
            Expr::fma(vector, f.load(w, vec![r[0].clone(), i[1].clone()]), acc)
        });
        func.promote_to_output(y);
        let (text, _) = check(&func, &[false, true]);
        assert!(text.contains("vectors 0, 2, rows 1"), "{text}");
    }
}

/// `y[i] = x[i permuted] + b[i]`; an extent of 0 is open.
fn permuted(shape: &[i64], perm: &[usize]) -> Func {
    let mut func = Func::new("permuted");
    let extents: Vec<Expr> = shape
        .iter()
        .map(|&extent| match extent {
            0 => func.add_size("n", 1, 4096).into(),
            extent => Expr::int(extent),
        })
        .collect();
    let x = func.add_input("x", DType::F32, extents.clone());
    let result: Vec<Expr> = perm.iter().map(|&from| extents[from].clone()).collect();
    let b = func.add_input("b", DType::F32, result.clone());
    let y = func.compute("y", DType::F32, result, |f, i| {
        let of = |dim: usize| perm.iter().position(|&from| from == dim).map(|at| i[at].clone());
        f.load(x, (0..perm.len()).filter_map(of).collect()) + f.load(b, i.to_vec())
    });
    func.promote_to_output(y);
    func
}

#[test]
fn what_is_read_across_rows_goes_through_shared_memory() {
    let target = Target::parse(MACHINE, CodegenKind::Llvm).expect("a known target");
    for (shape, perm, goes) in [
        (&[64, 96][..], &[1, 0][..], true),
        (&[33, 70], &[1, 0], true),
        (&[3, 40, 5, 65], &[0, 2, 3, 1], true),
        (&[4, 37, 2, 33], &[0, 2, 3, 1], true),
        (&[0, 40, 64], &[0, 2, 1], true),
        // Open rows, short rows, and heads of attention, which keep their rows.
        (&[48, 0], &[1, 0], false),
        (&[2, 0, 3, 32], &[0, 2, 3, 1], false),
        (&[2, 50, 3, 32], &[0, 1, 3, 2], false),
        (&[2, 40, 3, 64], &[0, 2, 1, 3], false),
    ] {
        let func = permuted(shape, perm);
        let sizes: &[&[i64]] = if shape.contains(&0) { &[&[1], &[31], &[70]] } else { &[&[]] };
        let constants = [false, false];
        assert_eq!(planned(&func, &constants).strategy.to_string().contains("transpose y: "), goes, "{func}");
        let scheduled = schedule(&computation(&func, &constants, &[]), &target, &Decisions::default());
        let scheduled = scheduled.expect("schedules");
        sizes.iter().for_each(|sizes| compare(&func, &[], sizes, &scheduled, &target));
    }
}
