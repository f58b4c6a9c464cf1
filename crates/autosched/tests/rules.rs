//! Rules on functions of each kind: the scheduled function computes what the unscheduled one does, and the
//! rule meant for it is the one that fits. What schedules look like is in `tests/schedules`.

#[path = "rules/compared.rs"]
mod compared;
#[path = "rules/functions.rs"]
mod functions;
#[path = "rules/gpu.rs"]
mod gpu;

use tilewright_autosched::{AutoscheduleError, Decisions, Scheduled, flatten_options, schedule};
use tilewright_dtype::DType;
use tilewright_machine::{CodegenKind, Target};
use tilewright_te::flatten::{FlattenOptions, flatten};
use tilewright_te::kernel::{Inst, KernelOp};
use tilewright_te::schedule::Piece;
use tilewright_te::{Expr, Func, IterKind, Layout, Scope, Store};

use compared::{check, check_candidates, check_candidates_for, compare, computation};
use functions::{blocked, conv, depthwise, ints, matmul, tiled_conv};

#[test]
fn matmul_with_constant_weights_is_packed_and_tiled() {
    check(&matmul(Some(28), 64, 40), &[false, true, true], &[], &[], "contraction");
}

#[test]
fn matmul_rows_and_columns_that_no_tile_divides() {
    check(&matmul(Some(13), 50, 7), &[false, true, true], &[], &[], "contraction");
}

#[test]
fn a_product_with_one_row_is_shared_out() {
    let func = matmul(Some(1), 1024, 40);
    check(&func, &[false, true, true], &[], &[], "contraction");
    let target = Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a known target");
    let scheduled = schedule(&computation(&func, &[false, true, true], &[]), &target, &Decisions::default())
        .expect("schedules");
    let options = flatten_options(&target);
    let kernels = flatten(&scheduled.func, &options).expect("flattens");
    assert!(kernels.iter().all(|k| k.kernel.grid.per_round.as_int() >= Some(8)), "{}", scheduled.func);
}

#[test]
fn matmul_of_an_open_number_of_rows() {
    for m in [1, 2, 13, 28] {
        check(&matmul(None, 64, 24), &[false, true, true], &[], &[m], "contraction");
    }
}

#[test]
fn of_open_rows_blocks_stay_while_panels_come_by() {
    let func = matmul(None, 96, 2048);
    let target = Target::parse("x86-64-v3", CodegenKind::Llvm).expect("a known target");
    let computation = computation(&func, &[false, true, true], &[]);
    let by_default = schedule(&computation, &target, &Decisions::default()).expect("schedules");
    let order = by_default.decisions.iter().find(|d| d.point == "product/order").expect("a choice");
    let blocks: Vec<_> = order.candidates.iter().filter(|c| c.value.starts_with("block-stays-")).collect();
    assert!(blocks.len() > 1, "{order:?}");
    for block in blocks {
        let mut decisions = Decisions::default();
        decisions.set(&order.point, &block.value);
        let scheduled = schedule(&computation, &target, &decisions).expect("as decided");
        // Less than a tile, parts of a block, and several blocks of which the last is cut off.
        for m in [3, 8, 75] {
            compare(&func, &[], &[m], &scheduled, &target);
        }
    }
}

#[test]
fn matmul_of_an_open_number_of_columns() {
    let mut func = Func::new("scores");
    let n: Expr = func.add_size("n", 1, 1 << 20).into();
    let (heads, depth) = (Expr::int(3), Expr::int(16));
    let q = func.add_input("q", DType::F32, vec![heads.clone(), n.clone(), depth.clone()]);
    let k = func.add_input("k", DType::F32, vec![heads.clone(), depth.clone(), n.clone()]);
    let shape = vec![heads, n.clone(), n];
    let scores = func.reduce("scores", DType::F32, shape, vec![depth], Expr::f32(0.0), |f, i, r, acc| {
        let x = f.load(q, vec![i[0].clone(), i[1].clone(), r[0].clone()]);
        let y = f.load(k, vec![i[0].clone(), r[0].clone(), i[2].clone()]);
        Expr::fma(x, y, acc)
    });
    func.promote_to_output(scores);
    for n in [1, 7, 70] {
        check(&func, &[false, false], &[], &[n], "contraction");
    }
}

#[test]
fn matmul_of_two_activations() {
    check(&matmul(Some(17), 48, 20), &[false, false, false], &[], &[], "contraction");
}

#[test]
fn convolution_on_blocked_layouts() {
    let layouts = [blocked(16), None, None, blocked(16)];
    check(&conv(32, 32, 14, 3, 1), &[false, true, true], &layouts, &[], "contraction");
    check(&conv(32, 64, 14, 3, 2), &[false, true, true], &layouts, &[], "contraction");
    check(&conv(32, 64, 7, 1, 1), &[false, true, true], &layouts, &[], "contraction");
}

/// Rounds and tasks of a round of the last kernel.
fn grid(func: &Func, layouts: &[Layout]) -> (i64, i64) {
    let target = Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a known target");
    let scheduled =
        schedule(&computation(func, &[false, true, true], layouts), &target, &Decisions::default())
            .expect("schedules");
    let options = flatten_options(&target);
    let kernels = flatten(&scheduled.func, &options).expect("flattens");
    let grid = &kernels.last().expect("a kernel").kernel.grid;
    (grid.rounds.as_int().expect("known"), grid.per_round.as_int().expect("known"))
}

#[test]
fn threads_share_rows_of_large_images_and_channels_of_small_ones() {
    let layouts = [blocked(16), None, None, blocked(16)];
    let (rounds, per_round) = grid(&conv(128, 256, 28, 1, 1), &layouts);
    assert!(rounds > 1 && per_round % 2 == 0, "rows: {rounds} rounds of {per_round}");
    let (rounds, per_round) = grid(&conv(512, 1024, 6, 1, 1), &layouts);
    assert!(rounds == 1 && per_round >= 16, "channels: {rounds} rounds of {per_round}");
}

#[test]
fn steps_of_a_recurrence_run_in_lanes() {
    let text = "func rnn(x: f32[5, 32], w: f32[32, 32]) -> (h: f32[5, 32]) {
          buffer g: f32[5, 32] global
          for a in 0..5 {
            for b in 0..32 {
              block start(va: spatial 5 = a, vb: spatial 32 = b) {
                g[va, vb] = x[va, vb]
              }
            }
          }
          for t in 0..5 {
            for i in 0..32 {
              for r in 0..32 {
                block recurrent(vi: spatial 32 = i, vt: reduce 5 = t, vr: reduce 32 = r) {
                  g[vt, vi] = fma(select((vt == 0), f32(0.0), h[max((vt - 1), 0), vr]), w[vi, vr], g[vt, vi])
                }
              }
            }
            for j in 0..32 {
              block hidden(vj: spatial 32 = j, vs: reduce 5 = t) {
                h[vs, vj] = max(g[vs, vj], f32(0.0))
              }
            }
          }
        }";
    let func: Func = text.parse().expect("a function");
    check(&func, &[false, true], &[], &[], "recurrence");
    // Weights that are no constants stay as they are: no lanes for their products.
    check(&func, &[false, false], &[], &[], "recurrence");
}

#[test]
fn units_of_a_recurrence_are_tasks_where_none_needs_another_of_its_step() {
    let recurrence = |state: &str| -> Func {
        let text = format!(
            "func rnn(x: f32[5, 192], w: f32[192, 192]) -> (h: f32[5, 192]) {{
              buffer g: f32[5, 192] global
              for a in 0..5 {{
                for b in 0..192 {{
                  block start(va: spatial 5 = a, vb: spatial 192 = b) {{
                    g[va, vb] = x[va, vb]
                  }}
                }}
              }}
              for t in 0..5 {{
                for i in 0..192 {{
                  for r in 0..192 {{
                    block recurrent(vi: spatial 192 = i, vt: reduce 5 = t, vr: reduce 192 = r) {{
                      g[vt, vi] = fma(select((vt == 0), f32(0.0), h[(vt - 1), vr]), w[vi, vr], g[vt, vi])
                    }}
                  }}
                }}
                for j in 0..192 {{
                  block hidden(vj: spatial 192 = j, vs: reduce 5 = t) {{
                    h[vs, vj] = max({state}, f32(0.0))
                  }}
                }}
              }}
            }}"
        );
        text.parse().expect("a function")
    };
    for (state, n_groups) in [("g[vs, vj]", 3), ("(g[vs, vj] + g[vs, (191 - vj)])", 1)] {
        let func = recurrence(state);
        check(&func, &[false, true], &[], &[], "recurrence");
        let target = Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a known target");
        let computation = computation(&func, &[false, true], &[]);
        let scheduled = schedule(&computation, &target, &Decisions::default()).expect("schedules");
        let options = FlattenOptions::PLAIN;
        let kernels = flatten(&scheduled.func, &options).expect("flattens");
        let grid = &kernels.last().expect("a kernel").kernel.grid;
        let per_round = grid.per_round.as_int();
        assert_eq!((grid.in_order, per_round), (n_groups > 1, Some(n_groups)), "{}", scheduled.func);
    }
}

#[test]
fn convolution_of_few_channels_into_blocked_ones() {
    let layouts = [None, None, None, blocked(16)];
    check(&conv(3, 32, 15, 3, 2), &[false, true, true], &layouts, &[], "contraction");
}

#[test]
fn convolution_in_plain_layout() {
    check(&conv(3, 8, 16, 3, 1), &[false, true, true], &[], &[], "contraction");
}

#[test]
fn convolution_of_patches_into_plain_layout() {
    check(&conv(3, 32, 32, 4, 4), &[false, true, true], &[], &[], "contraction");
}

/// Multiply-adds of an iteration of the innermost loops that hold any, for each accumulator they carry.
fn steps_of_an_iteration(insts: &[Inst]) -> Vec<usize> {
    let mut found = Vec::new();
    for inst in insts {
        match inst {
            Inst::Let { .. }
            | Inst::Store { .. }
            | Inst::Scatter { .. }
            | Inst::Prefetch { .. }
            | Inst::Barrier
            | Inst::CopyAsync { .. }
            | Inst::CommitCopies
            | Inst::WaitCopies { .. } => {}
            Inst::If { then_body, else_body, .. } => {
                found.extend([then_body, else_body].into_iter().flat_map(|body| steps_of_an_iteration(body)));
            }
            Inst::Loop { carried, body, .. } => {
                let products =
                    body.iter().filter(|i| matches!(i, Inst::Let { op: KernelOp::Fma(..), .. })).count();
                found.extend((products > 0).then(|| products / carried.len()));
                found.extend(steps_of_an_iteration(body));
            }
        }
    }
    found
}

#[test]
fn steps_are_unrolled_where_each_would_copy_the_accumulators() {
    // Steps of an iteration without accumulators in place, and loops over them for each code generator: where rows end within a tile
    // its loop is there twice.
    let cases = [
        (matmul(Some(28), 64, 40), [None, None, None, None], 8, [2, 2, 2]),
        (matmul(Some(28), 64, 20), [None, None, None, None], 4, [2, 2, 2]),
        (conv(32, 32, 14, 3, 1), [blocked(4), None, None, blocked(4)], 4, [2, 2, 2]),
        (conv(3, 32, 15, 7, 2), [None, None, None, blocked(4)], 7, [1, 1, 1]),
    ];
    for (func, layouts, steps, n_loops) in cases {
        for (codegen, n_loops) in CodegenKind::ALL.into_iter().zip(n_loops) {
            let target = Target::parse("x86-64-v3", codegen).expect("a known target");
            let scheduled =
                schedule(&computation(&func, &[false, true, true], &layouts), &target, &Decisions::default())
                    .expect("schedules");
            let options = flatten_options(&target);
            let kernels = flatten(&scheduled.func, &options).expect("flattens");
            let found: Vec<usize> =
                kernels.iter().flat_map(|k| steps_of_an_iteration(&k.kernel.body)).collect();
            let expected = if target.codegen.carries_in_place { 1 } else { steps };
            assert_eq!(found, vec![expected; n_loops], "{target}\n{}", scheduled.func);
        }
        check(&func, &[false, true, true], &layouts, &[], "contraction");
    }
}

#[test]
fn reductions_along_and_across_memory() {
    let mut along = Func::new("along");
    let x = along.add_input("x", DType::F32, ints(&[40, 1024]));
    let out = along.reduce("out", DType::F32, ints(&[40]), ints(&[1024]), Expr::f32(0.0), |f, i, r, acc| {
        acc + f.load(x, vec![i[0].clone(), r[0].clone()])
    });
    along.promote_to_output(out);
    check(&along, &[false], &[], &[], "reduction");
    // Of no results nothing is shared out.
    let mut none = Func::new("none");
    let x = none.add_input("x", DType::F32, ints(&[2, 0, 1024]));
    let out = none.reduce("out", DType::F32, ints(&[2, 0]), ints(&[1024]), Expr::f32(0.0), |f, i, r, acc| {
        acc + f.load(x, vec![i[0].clone(), i[1].clone(), r[0].clone()])
    });
    none.promote_to_output(out);
    check(&none, &[false], &[], &[], "plain");
    let mut never = Func::new("never");
    let n: Expr = never.add_size("n", 0, 1 << 20).into();
    let x = never.add_input("x", DType::F32, vec![Expr::int(20), n.clone()]);
    let rest = (n.min(Expr::int(1000)) - 1000).max(Expr::int(0));
    let y = never.compute("y", DType::F32, vec![Expr::int(20), rest], |f, i| {
        f.load(x, vec![i[0].clone(), i[1].clone() + 1000])
    });
    never.promote_to_output(y);
    check(&never, &[false], &[], &[7], "plain");
    let mut cut = Func::new("cut");
    let n: Expr = cut.add_size("n", 1, 1 << 20).into();
    let x = cut.add_input("x", DType::F32, vec![Expr::int(40), n.clone()]);
    let out =
        cut.reduce("out", DType::F32, ints(&[40]), vec![n], Expr::lowest(DType::F32), |f, i, r, acc| {
            acc.max(f.load(x, vec![i[0].clone(), r[0].clone()]))
        });
    cut.promote_to_output(out);
    for n in [1, 15, 16, 37, 64] {
        check(&cut, &[false], &[], &[n], "reduction");
    }
    let mut across = Func::new("across");
    let x = across.add_input("x", DType::F32, ints(&[30, 512]));
    let out = across.reduce(
        "out",
        DType::F32,
        ints(&[512]),
        ints(&[30]),
        Expr::lowest(DType::F32),
        |f, i, r, acc| acc.max(f.load(x, vec![r[0].clone(), i[0].clone()])),
    );
    across.promote_to_output(out);
    check(&across, &[false], &[], &[], "window");
}

/// Maxima, which have no rounding errors, over axes of images whose channels lie in blocks; open axes where there is no extent.
#[test]
fn long_reductions_of_blocked_channels_have_partial_results() {
    /// Extents of the axes, where they are known, values of the others, and how many blocks compute partial results.
    type Case = (Vec<Option<i64>>, Vec<i64>, usize);
    let open = |sizes: &[i64], n: usize| -> Case { (vec![None; sizes.len()], sizes.to_vec(), n) };
    let known = |extents: &[i64], n: usize| -> Case {
        (extents.iter().map(|&extent| Some(extent)).collect(), Vec::new(), n)
    };
    let cases = [
        known(&[7, 7], 0),
        known(&[30, 30], 1),
        known(&[9, 24, 24], 2),
        known(&[800], 1),
        // 7 * 157 and a prime number.
        known(&[1099], 1),
        known(&[1009], 0),
        // Rows of open images stay whole.
        open(&[3, 37], 1),
        open(&[1], 1),
        open(&[65], 1),
        open(&[1000], 1),
    ];
    let pieces = |rank: usize| -> Layout {
        let open = (0..rank).map(|dim| Piece { dim, factor: None });
        Some(open.chain([Piece { dim: 1, factor: Some(8) }]).collect())
    };
    for (axes, sizes, n_partial) in cases {
        let mut func = Func::new("maxima");
        let extent = |func: &mut Func, n: usize, axis: &Option<i64>| match axis {
            Some(extent) => Expr::int(*extent),
            None => func.add_size(&format!("n{n}"), 1, 1 << 20).into(),
        };
        let axes: Vec<Expr> = axes.iter().enumerate().map(|(n, axis)| extent(&mut func, n, axis)).collect();
        let x = func.add_input("x", DType::F32, [ints(&[2, 16]), axes.clone()].concat());
        let rank = 2 + axes.len();
        let out =
            func.reduce("out", DType::F32, ints(&[2, 16]), axes, Expr::lowest(DType::F32), |f, i, r, acc| {
                acc.max(f.load(x, [i, r].concat()))
            });
        func.promote_to_output(out);
        let layouts = [pieces(rank), None];
        check(&func, &[false], &layouts, &sizes, "window");
        let target = Target::parse("x86-64-v3", CodegenKind::Llvm).expect("a known target");
        let scheduled = schedule(&computation(&func, &[false], &layouts), &target, &Decisions::default());
        let Scheduled { rulings, .. } = scheduled.expect("schedules");
        let partial = rulings.iter().filter(|r| r.rule == "window" && r.block.ends_with("_rf")).count();
        assert_eq!(partial, n_partial, "{rulings:#?}");
    }
}

#[test]
fn pooling_on_blocked_layouts() {
    let mut func = Func::new("pool");
    let x = func.add_input("x", DType::F32, ints(&[1, 32, 15, 15]));
    let shape = ints(&[1, 32, 7, 7]);
    let out =
        func.reduce("out", DType::F32, shape, ints(&[3, 3]), Expr::lowest(DType::F32), |f, i, r, acc| {
            let y = i[2].clone() * 2 + r[0].clone();
            let z = i[3].clone() * 2 + r[1].clone();
            acc.max(f.load(x, vec![i[0].clone(), i[1].clone(), y, z]))
        });
    func.promote_to_output(out);
    check(&func, &[false], &[blocked(16), blocked(16)], &[], "window");
}

#[test]
fn depthwise_convolution_on_blocked_layouts() {
    let layouts = [blocked(16), None, None, blocked(16)];
    for (size, kernel, stride) in [(16, 3, 1), (15, 3, 2), (9, 5, 1), (15, 5, 2), (19, 3, 1)] {
        check(&depthwise(32, size, kernel, stride, 0), &[false, true, true], &layouts, &[], "window");
    }
}

#[test]
fn depthwise_convolution_pads_its_input_piece_by_piece() {
    let layouts = [blocked(16), None, None, blocked(16)];
    for (size, kernel, stride) in [(112, 3, 1), (56, 3, 2), (14, 5, 1), (15, 5, 2), (19, 3, 1), (7, 7, 1)] {
        let func = depthwise(32, size, kernel, stride, kernel / 2);
        check(&func, &[false, true, true], &layouts, &[], "window");
        let target = Target::parse("x86-64-v4", CodegenKind::Llvm).expect("a known target");
        let scheduled =
            schedule(&computation(&func, &[false, true, true], &layouts), &target, &Decisions::default())
                .expect("schedules");
        let padding = scheduled.rulings.iter().find(|r| r.block == "pad").expect("a ruling");
        assert_eq!(padding.rule, "window", "{}", scheduled.func);
    }
}

#[test]
fn depthwise_convolution_in_plain_layout() {
    check(&depthwise(5, 18, 3, 1, 0), &[false, true, true], &[], &[], "window");
}

/// The rule that scheduled a block, and the memory that its result is in.
fn rule_and_scope(scheduled: &Scheduled, block: &str) -> (&'static str, Scope) {
    let ruling = scheduled.rulings.iter().find(|r| r.block == block).expect("a ruling");
    let buffer = scheduled.func.buffers.values().find(|data| data.name == block).expect("a buffer");
    (ruling.rule, buffer.scope)
}

#[test]
fn transforms_stay_in_registers_with_what_is_around_them() {
    let constants = [false, true, true];
    for (machine, codegen) in [("x86-64-v4", CodegenKind::Llvm), ("x86-64-v3", CodegenKind::Cranelift)] {
        let target = Target::parse(machine, codegen).expect("a known target");
        let lanes = i64::from(target.lanes(4));
        for (channels, filters, size) in
            [(2 * lanes, 3 * lanes, 14), (lanes, lanes, 6), (lanes / 2, lanes, 28)]
        {
            // Channels of less than a vector lie in halves of one, if those are worth it.
            let of_image = if channels < 4 { None } else { blocked(lanes.min(channels)) };
            let layouts = [of_image, None, None, blocked(lanes)];
            let func = tiled_conv(channels, filters, size);
            let computation = computation(&func, &constants, &layouts);
            let scheduled = schedule(&computation, &target, &Decisions::default()).expect("schedules");
            compare(&func, &layouts, &[], &scheduled, &target);
            let of = |block| rule_and_scope(&scheduled, block);
            assert_eq!(of("untiled"), ("transform", Scope::Register), "{}", scheduled.func);
            assert_eq!(of("out"), ("transform", Scope::Global), "{}", scheduled.func);
            if channels >= 4 {
                // The padded image piece by piece, in the cache.
                assert_eq!(of("pad"), ("transform", Scope::Stack), "{}", scheduled.func);
                assert_eq!(of("tiles"), ("transform", Scope::Global), "{}", scheduled.func);
            }
        }
    }
}

#[test]
fn row_major_results_of_transforms_are_copied_out_of_vectors() {
    for (machine, codegen) in [("x86-64-v4", CodegenKind::Llvm), ("x86-64-v3", CodegenKind::Cranelift)] {
        let target = Target::parse(machine, codegen).expect("a known target");
        for (layouts, size) in [([None, None, None, None], 6), ([blocked(8), None, None, None], 14)] {
            let func = tiled_conv(16, 48, size);
            let computation = computation(&func, &[false, true, true], &layouts);
            let scheduled = schedule(&computation, &target, &Decisions::default()).expect("schedules");
            compare(&func, &layouts, &[], &scheduled, &target);
            let of = |block| rule_and_scope(&scheduled, block);
            assert_eq!(of("untiled"), ("transform", Scope::Register), "{}", scheduled.func);
            let vectors = scheduled.func.buffers.values().find(|data| data.name == "out_global");
            let lanes = i64::from(target.lanes(4));
            let shape = ints(&[1, 48 / lanes, size, size, lanes]);
            assert_eq!(vectors.expect("a buffer").shape, shape, "{}", scheduled.func);
        }
    }
}

/// Sums of halves of rows, as Strassen's algorithm multiplies them.
#[test]
fn results_of_a_transform_of_rows_lie_next_to_each_other() {
    let mut func = Func::new("sums_of_halves");
    let [rows, half, columns] = [30, 32, 64];
    let x = func.add_input("x", DType::F32, ints(&[rows, 2 * half]));
    let w = func.add_input("w", DType::F32, ints(&[3, half, columns]));
    let sums = func.add_buffer("sums", DType::F32, ints(&[3, rows, half]), Scope::Global);
    let domain = ints(&[rows, half]).into_iter().map(|e| (e, IterKind::Spatial)).collect();
    func.define(sums, domain, |f, i| {
        let [left, right] = [0, half].map(|n| f.load(x, vec![i[0].clone(), i[1].clone() + n]));
        let values = [left.clone() + right.clone(), left.clone() - right, left];
        let store = |(n, value)| {
            let indices = [&[Expr::int(n as i64)], i].concat();
            Store { buffer: sums, indices, value }
        };
        (Vec::new(), values.into_iter().enumerate().map(store).collect())
    });
    let (shape, zero) = (ints(&[3, rows, columns]), Expr::f32(0.0));
    let product = func.reduce("product", DType::F32, shape, ints(&[half]), zero, |f, i, r, acc| {
        let value = f.load(sums, [&i[..2], r].concat());
        Expr::fma(value, f.load(w, [&i[..1], r, &i[2..]].concat()), acc)
    });
    func.promote_to_output(product);
    for (machine, codegen) in [("x86-64-v4", CodegenKind::Llvm), ("x86-64-v3", CodegenKind::Cranelift)] {
        let target = Target::parse(machine, codegen).expect("a known target");
        let computation = computation(&func, &[false, true], &[]);
        let scheduled = schedule(&computation, &target, &Decisions::default()).expect("schedules");
        compare(&func, &[], &[], &scheduled, &target);
        assert_eq!(rule_and_scope(&scheduled, "sums").0, "transform", "{}", scheduled.func);
        let sums = scheduled.func.buffers.values().find(|data| data.name == "sums").expect("a buffer");
        // Two lines of results, and one that nothing lies in.
        let (lanes, line) = (i64::from(target.lanes(4)), target.machine.caches.line as i64 / 4);
        assert_eq!(half, 2 * line);
        assert_eq!(sums.shape, ints(&[rows, 3, 1, (half + line) / lanes, lanes]), "{}", scheduled.func);
    }
    // A line that is shorter than an element says nothing of rows.
    let target: Target = "x86-64-v4;line=2@llvm".parse().expect("a target");
    let scheduled = schedule(&computation(&func, &[false, true], &[]), &target, &Decisions::default());
    let scheduled = scheduled.expect("schedules").func;
    let sums = scheduled.buffers.values().find(|data| data.name == "sums").expect("a buffer");
    assert_eq!(sums.shape, ints(&[rows, 3, half / 16, 16]), "{scheduled}");
}

#[test]
fn transforms_without_vectors_are_left_to_general_rules() {
    let constants = [false, true, true];
    let refused = |func: &Func, layouts: &[Layout], target: &Target, expected: &[(&str, &str)]| {
        let computation = computation(func, &constants, layouts);
        let scheduled = schedule(&computation, target, &Decisions::default()).expect("schedules");
        for (block, reason) in expected {
            let ruling = scheduled.rulings.iter().find(|r| r.block == *block).expect("a ruling");
            assert_eq!(ruling.rule, "elementwise", "{ruling}\n{}", scheduled.func);
            assert!(ruling.refused.iter().any(|refused| refused.reason == *reason), "{ruling}");
        }
        scheduled
    };
    let (none, no_whole) = ("its results are in no vectors", "what reads it stores no whole vectors");
    for (machine, codegen) in [("x86-64-v4", CodegenKind::Llvm), ("x86-64-v3", CodegenKind::Cranelift)] {
        let target = Target::parse(machine, codegen).expect("a known target");
        // Channels that no vector divides.
        let func = tiled_conv(6, 10, 6);
        let scheduled = refused(&func, &[], &target, &[("tiles", none), ("untiled", no_whole)]);
        compare(&func, &[], &[], &scheduled, &target);
        // Results of which the last vector is cut off. What it holds beyond them is not written, and not compared.
        let func = tiled_conv(16, 31, 6);
        let scheduled = refused(&func, &[None, None, None, blocked(16)], &target, &[("untiled", no_whole)]);
        let options = flatten_options(&target);
        flatten(&scheduled.func, &options).unwrap_or_else(|e| panic!("{e}\n{}", scheduled.func));
    }
    // Results in longer vectors than the machine has.
    let target = Target::parse("x86-64-v3", CodegenKind::Cranelift).expect("a known target");
    let layouts = [blocked(4), None, None, blocked(16)];
    let func = tiled_conv(8, 32, 6);
    let expected = [("untiled", "it is not in the vectors of what reads it")];
    let scheduled = refused(&func, &layouts, &target, &expected);
    compare(&func, &layouts, &[], &scheduled, &target);
}

#[test]
fn whatever_is_decided_computes_the_same() {
    let layouts = [blocked(8), None, None, blocked(8)];
    let points = check_candidates(&conv(16, 32, 10, 3, 1), &[false, true, true], &layouts);
    assert_eq!(points[..5], ["conv/tile", "conv/steps", "conv/depth", "conv/order", "conv/prefetch"]);
    check_candidates(&matmul(Some(29), 96, 12), &[false, true, true], &[]);
    let points = check_candidates(&depthwise(16, 20, 3, 1, 1), &[false, true, true], &layouts);
    assert_eq!(points[..3], ["conv/tile", "conv/unroll", "conv/order"]);
    let points = check_candidates(&tiled_conv(8, 16, 24), &[false, true, true], &layouts);
    assert!(
        ["tiles/grain", "untiled/grain"].iter().all(|point| points.iter().any(|p| p == point)),
        "{points:?}"
    );
}

/// Small caches stand for deep products, which would take long here.
#[test]
fn steps_are_cut_into_blocks_where_caches_are_too_small() {
    // Lines from beyond the second level are dear there, and 12 ways of the first have 1 KiB each.
    const SMALL: &str = "x86-64-v3;timing=sapphire-rapids;l1d=12288;l2=32768";
    // Rows of 8192 bytes fall into one set of the first level each.
    let product = matmul(Some(26), 200, 2048);
    let points = check_candidates_for(SMALL, &product, &[false, true, true], &[]);
    assert!(points.iter().any(|point| point == "product/pack-rows"), "{points:?}");
    let layouts = [blocked(8), None, None, blocked(8)];
    let windows = conv(64, 48, 9, 3, 1);
    check_candidates_for(SMALL, &windows, &[false, true, true], &layouts);
}

#[test]
fn decisions_of_another_function_are_errors() {
    let target = Target::parse("x86-64-v3", CodegenKind::Llvm).expect("a known target");
    let decided = |point: &str, value: &str| {
        let mut decisions = Decisions::default();
        decisions.set(point, value);
        schedule(&computation(&matmul(Some(28), 64, 40), &[false, true, true], &[]), &target, &decisions)
            .map(drop)
    };
    assert_eq!(decided("product/tile", "4x2"), Ok(()));
    let error = decided("product/tile", "4x200").expect_err("no such tile");
    assert!(
        matches!(&error, AutoscheduleError::NotOffered { point, .. } if point == "product/tile"),
        "{error}"
    );
    let error = decided("conv/tile", "4x2").expect_err("no such block");
    assert_eq!(error, AutoscheduleError::NotAsked { point: "conv/tile".to_string() });
}

#[test]
fn elementwise_chains_become_one_block() {
    let mut func = Func::new("chain");
    let shape = ints(&[3, 50, 70]);
    let x = func.add_input("x", DType::F32, shape.clone());
    let b = func.add_input("b", DType::F32, ints(&[50, 1]));
    let y = func.compute("y", DType::F32, shape.clone(), |f, i| {
        f.load(x, i.to_vec()) * f.load(b, vec![i[1].clone(), Expr::int(0)])
    });
    let out = func.compute("out", DType::F32, shape, |f, i| Expr::f32(0.0).max(f.load(y, i.to_vec())));
    func.promote_to_output(out);
    check(&func, &[false, true], &[], &[], "elementwise");
}
