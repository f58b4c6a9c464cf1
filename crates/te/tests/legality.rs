//! What random schedules once made wrong: conditions that a block loses, iterations that begin to race, parts that are not there yet.

mod common;

use common::*;
use tilewright_te::schedule::{Prefetch, Schedule};
use tilewright_te::{Func, Scope};

/// Demands that a schedule still computes what the function does, and hands over its text.
fn holds(original: &Func, schedule: &Schedule) -> String {
    assert_same_results(original, schedule.func(), 7);
    schedule.func().to_string()
}

/// The line of a function's text that says what a block is.
fn block_line<'a>(text: &'a str, name: &str) -> &'a str {
    let start = format!("block {name}(");
    text.lines().find(|line| line.trim_start().starts_with(&start)).expect("a block")
}

#[test]
fn a_consumer_runs_only_where_its_producer_does() {
    let func = conv2d(1, 2, 5, 6, 3, 1, 1);
    let mut s = Schedule::new(func.clone());
    s.split("conv_i0", &[Some(4), None]).unwrap();
    s.fuse(&["conv_i0_0", "conv_i0_1", "conv_i1"]).unwrap();
    s.reverse_compute_at("relu", "conv_i3").unwrap();
    let text = holds(&func, &s);
    // The dimension has one element, which does not tell the four iterations apart; its producer runs in one of them.
    let guard = "(floordiv(conv_i0_0_conv_i0_1_conv_i1, 5) < 1)";
    assert!(block_line(&text, "conv").contains(guard), "{text}");
    assert!(block_line(&text, "relu").contains(guard), "{text}");
}

#[test]
fn lanes_that_move_out_of_loops_still_write_different_elements() {
    // Lane 2 of one step would be lane 0 of the next.
    let func = matmul_bias_relu(Dim::Fixed(9), Dim::Fixed(16), Dim::Fixed(6));
    let mut s = Schedule::new(func.clone());
    s.split_iter("E", 1, 2).unwrap();
    let parts = s.split("E_i1_1", &[None, Some(16)]).unwrap();
    s.vectorize(&parts[1]).unwrap();
    s.compute_at("C", &parts[1]).unwrap();
    holds(&func, &s);
    let refused = s.reorder(&["E_i0", &parts[1], "E_i1"]).unwrap_err().to_string();
    assert!(refused.contains("iterations write the same elements in block `C`"), "{refused}");
}

#[test]
fn what_ends_a_collapse_runs_through_the_same_dimensions() {
    let func = transforms(6, 8, 12);
    let mut s = Schedule::new(func.clone());
    let copy = s.cache_write("out", Scope::Shared).unwrap();
    s.pad_einsum("out", &[8, 5, 3]).unwrap();
    let refused = s.collapse_dims_within("out_shared", 0, &[copy]).unwrap_err().to_string();
    assert!(refused.contains("block `out_write` does not run through all of `out_shared`"), "{refused}");
    holds(&func, &s);
}

#[test]
fn a_start_of_its_own_runs_under_the_conditions_of_its_steps() {
    // The reduction runs in the first of two iterations around; so has its start to.
    let func = depthwise(6, 7, 3, 1);
    let mut s = Schedule::new(func.clone());
    let parts = s.split("scale_i2", &[None, Some(8)]).unwrap();
    s.compute_at("dw", &parts[1]).unwrap();
    let copy = s.cache_write("scale", Scope::Shared).unwrap();
    s.compute_inline("scale").unwrap();
    assert!(s.func().block(&copy).is_some());
    let outer = s.split(&parts[0], &[Some(2), None]).unwrap();
    s.decompose_reduction("dw", &parts[1]).unwrap();
    let text = holds(&func, &s);
    assert!(block_line(&text, "dw_init").contains(&format!("({}", outer[0])), "{text}");
}

#[test]
fn all_that_a_block_reads_is_there_where_it_moves() {
    let func = centred(Dim::Fixed(5), 6);
    let mut s = Schedule::new(func.clone());
    s.compute_inline("centred").unwrap();
    let copy = s.cache_read("scaled", "x", Scope::Stack).unwrap();
    let columns = s.loop_names(&copy).unwrap().pop().expect("a loop");
    s.reverse_compute_at("scaled", &columns).unwrap();
    s.compute_at("sum", &columns).unwrap();
    let refused = s.reverse_compute_at("scaled", "sum_ax0").unwrap_err().to_string();
    assert!(refused.contains("`x_read` has not made all of `x_stack` by then"), "{refused}");
    holds(&func, &s);
}

#[test]
fn loops_that_hints_speak_of_do_not_become_one() {
    let func = transforms(6, 8, 12);
    let mut s = Schedule::new(func.clone());
    s.prefetch(Prefetch {
        loop_name: "out_i2".into(),
        block: "out".into(),
        buffer: "back".into(),
        around: "out_i1".into(),
        distance: 3,
        assumed: 4,
        along: vec!["out_i2".into()],
        first_of: Vec::new(),
        line: 16,
    })
    .unwrap();
    let refused = s.collapse_dims("out", 0).unwrap_err().to_string();
    assert!(refused.contains("a loop inside of `out_i0` prefetches"), "{refused}");
    holds(&func, &s);
}

/// The copy makes two rows in each iteration, of which the consumer takes one; the sum of the other is not there yet.
#[test]
fn a_consumer_does_not_become_part_of_a_producer_that_runs_ahead() {
    let func: Func = "func centre(x: f32[8, 6]) -> (y: f32[8, 6]) {
      buffer sum: f32[8] global
      buffer copy: f32[8, 6] global
      for i in 0..8 {
        for r in 0..6 {
          block sum(si: spatial 8 = i, sr: reduce 6 = r) {
            init sum[si] = f32(0.0)
            sum[si] = (sum[si] + x[si, sr])
          }
        }
        for a in 0..2 {
          for b in 0..6 {
            block copy(va: spatial 8 = (i + a), vb: spatial 6 = b) where ((i + a) < 8) {
              copy[va, vb] = x[va, vb]
            }
          }
        }
        for j in 0..6 {
          block y(vi: spatial 8 = i, vj: spatial 6 = j) {
            y[vi, vj] = (copy[vi, vj] - sum[vi])
          }
        }
      }
    }"
    .parse()
    .unwrap();
    let refused = Schedule::new(func).reverse_compute_inline("y").unwrap_err().to_string();
    assert_eq!(
        refused,
        "reverse_compute_inline of `y`: it also reads `sum`, which is computed in a loop around both"
    );
}
