//! Convolutions as products: copies of what they read by their own variables, rows and columns counted as one.

mod common;

use common::*;
use tilewright_te::schedule::{Schedule, ScheduleError, threads_as_loops};
use tilewright_te::{Func, Scope, ThreadLevel};

fn refused<T: std::fmt::Debug>(result: Result<T, ScheduleError>) -> String {
    result.expect_err("an error").to_string()
}

/// The convolution with both operands copied: variables are batch, channels of results, rows, columns, then the steps.
fn copied() -> (Func, Schedule) {
    let func = conv2d(1, 2, 5, 6, 3, 1, 1);
    let mut s = Schedule::new(func.clone());
    assert_eq!(s.reindex("conv", "pad", &[0, 4, 5, 6, 2, 3], Scope::Global), Ok("pad_read".to_string()));
    assert_eq!(s.reindex("conv", "w", &[4, 5, 6, 1], Scope::Global), Ok("w_read".to_string()));
    (func, s)
}

#[test]
fn windows_are_copied_by_the_variables_that_read_them() {
    let (func, mut s) = copied();
    assert_eq!(s.block_info("conv").expect("a block").reads, ["pad_global", "w_global", "conv"]);
    s.compute_inline("pad").expect("inlined");
    assert_same_results(&func, &s.finish().expect("finishes"), 1);
}

#[test]
fn what_is_collapsed_ends_where_it_is_said_to() {
    let (func, mut s) = copied();
    let ends = ["relu", "pad_read", "w_read"].map(str::to_string);
    // Of the three variables of steps the last two become one, then all.
    for _ in 0..2 {
        let rank = s.block_info("conv").expect("a block").iters.len();
        s.collapse_dims_within("pad_global", rank - 5, &ends).expect("steps");
    }
    s.collapse_dims_within("conv", 2, &ends).expect("columns");
    let extents: Vec<Option<i64>> =
        s.block_info("conv").expect("a block").iters.iter().map(|(_, extent)| extent.as_int()).collect();
    assert_eq!(extents, [1, 5, 36, 18].map(Some));
    // The block at which it ends counts rows and columns as one, too; its own result keeps its dimensions.
    let output = s.func().params.last().map(|&output| s.func().buffers[output].shape.len());
    assert_eq!((s.block_info("relu").expect("a block").iters.len(), output), (3, Some(4)));
    assert_same_results(&func, &s.finish().expect("finishes"), 2);
}

#[test]
fn what_cannot_be_copied_by_variables() {
    let mut s = Schedule::new(conv2d(1, 2, 5, 6, 3, 1, 1));
    assert_eq!(
        refused(s.reindex("conv", "pad", &[0, 2, 3], Scope::Global)),
        "reindex of `conv`: the block reads `pad` by its variables [0, 2, 3, 4, 5, 6], not [0, 2, 3]"
    );
    assert_eq!(
        refused(s.reindex("relu", "w", &[0], Scope::Global)),
        "reindex of `relu`: the block does not read `w`"
    );
    // Padding reads outside of the input, and throws that away.
    assert_eq!(
        refused(s.reindex("pad", "x", &[0, 1, 2, 3], Scope::Global)),
        "reindex of `pad`: it cannot be shown that all loads are inside of `x`"
    );
    let mut s = Schedule::new(gather(10, 12, 7));
    let read = refused(s.reindex("picked", "table", &[0, 1], Scope::Global));
    assert!(read.ends_with("where the block reads `table` depends on data"), "{read}");
}

#[test]
fn threads_as_loops_compute_the_same() {
    let func = softmax(4, 19);
    let mut s = Schedule::new(func.clone());
    let last = s.blocks().pop().expect("a block");
    let loops = s.loop_names(&last).expect("loops");
    s.parallel(&loops[0]).expect("tasks");
    let parts = s.split(&loops[1], &[None, Some(8)]).expect("splits");
    s.bind(&parts[1], ThreadLevel::Lane).expect("lanes");
    let mut finished = s.finish().expect("finishes");
    assert!(finished.to_string().contains(" lane {"));
    threads_as_loops(&mut finished);
    assert!(!finished.to_string().contains(" lane {"), "{finished}");
    assert_same_results(&func, &finished, 3);
}
