//! Schedule primitives on whole functions: results stay those of the unscheduled function.

mod common;

use common::*;
use tilewright_dtype::DType;
use tilewright_te::schedule::{Padding, Piece, Prefetch, Primitive, Schedule};
use tilewright_te::{Expr, Func, IterKind, LoopKind, Scope, Stmt, Store};

/// Asserts that a finished schedule computes what the function computed, that its stored trace replays to the same
/// text, and that the text parses to the same function. Returns the finished function.
fn check(original: Func, schedule: Schedule) -> Func {
    let stored = serde_json::to_string(schedule.trace()).expect("serialise");
    let trace: Vec<Primitive> = serde_json::from_str(&stored).expect("deserialise");
    let replayed = Schedule::replay(original.clone(), &trace).expect("replay");
    assert_eq!(replayed.func().to_string(), schedule.func().to_string());
    let finished = schedule.finish().expect("finish");
    let text = finished.to_string();
    let parsed: Func = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(parsed.to_string(), text);
    assert_same_results(&original, &finished, 7);
    finished
}

fn register_tiled(func: Func, pad: bool) -> Func {
    let mut s = Schedule::new(func.clone());
    s.compute_inline("E").unwrap();
    if pad {
        s.pad_einsum("C", &[6, 32, 1]).unwrap();
    }
    s.set_scope("C", Scope::Register).unwrap();
    let tiles = s.tile(&["C_i0", "C_i1"], &[6, 32]).unwrap();
    let [i0, j0, i1, j1] = &tiles[..] else { panic!("{tiles:?}") };
    let j = s.split(j1, &[None, Some(16)]).unwrap();
    s.reorder(&[i0, j0, "C_r2", i1, &j[0], &j[1]]).unwrap();
    let e = s.reverse_compute_at("D", j0).unwrap_or_else(|e| panic!("{e}\n{}", s.func()));
    let ej = s.split(&e[1], &[None, Some(16)]).unwrap();
    s.vectorize(&ej[1]).unwrap();
    s.unroll(&ej[0]).unwrap();
    s.unroll(&e[0]).unwrap();
    s.vectorize(&j[1]).unwrap();
    s.unroll(&j[0]).unwrap();
    s.unroll(i1).unwrap();
    s.decompose_reduction("C", "C_r2").unwrap();
    let outer = s.fuse(&[i0, j0]).unwrap();
    s.parallel(&outer).unwrap();
    check(func, s)
}

#[test]
fn a_register_tiled_matmul_with_epilogue() {
    for (m, n, k) in [(12, 64, 8), (13, 40, 5), (7, 33, 1)] {
        for pad in [false, true] {
            let finished = register_tiled(matmul_bias_relu(Dim::Fixed(m), Dim::Fixed(n), Dim::Fixed(k)), pad);
            let tile = finished.buffers.values().find(|b| b.name == "C").unwrap();
            let shape: Vec<_> = tile.shape.iter().map(|e| e.as_int()).collect();
            assert_eq!(shape, [Some(6), Some(32)], "{finished}");
            assert!(matches!(&finished.body[..], [Stmt::Loop(l)] if l.kind == LoopKind::Parallel));
            if pad {
                let update = finished.block("C").unwrap();
                assert!(update.predicate.is_none(), "{finished}");
            }
        }
    }
}

#[test]
fn a_register_tiled_matmul_with_symbolic_rows() {
    let finished = register_tiled(matmul_bias_relu(Dim::Open, Dim::Fixed(64), Dim::Fixed(8)), true);
    let tile = finished.buffers.values().find(|b| b.name == "C").unwrap();
    assert_eq!(tile.shape[0].as_int(), Some(6), "{finished}");
    register_tiled(matmul_bias_relu(Dim::Open, Dim::Open, Dim::Open), true);
    register_tiled(matmul_bias_relu(Dim::Open, Dim::Open, Dim::Open), false);
    register_tiled(matmul_bias_relu(Dim::Fixed(1), Dim::Fixed(1), Dim::Fixed(1)), false);
}

#[test]
fn a_convolution_with_its_padding_inlined_or_computed_per_tile() {
    for inlined in [true, false] {
        let func = conv2d(1, 3, 8, 7, 3, 1, 1);
        let mut s = Schedule::new(func.clone());
        if inlined {
            s.compute_inline("pad").unwrap();
        }
        s.set_scope("conv", Scope::Register).unwrap();
        let w = s.split("conv_i3", &[None, Some(4)]).unwrap();
        let c = s.split("conv_i1", &[None, Some(8)]).unwrap();
        s.reorder(&["conv_i0", &c[0], "conv_i2", &w[0], "conv_r4", "conv_r5", "conv_r6", &w[1], &c[1]])
            .unwrap();
        s.reverse_compute_at("relu", &w[0]).unwrap();
        if !inlined {
            s.compute_at("pad", "conv_i2").unwrap();
            s.set_scope("pad", Scope::Stack).unwrap();
        }
        s.vectorize(&c[1]).unwrap();
        s.unroll(&w[1]).unwrap();
        s.decompose_reduction("conv", "conv_r4").unwrap();
        let outer = s.fuse(&["conv_i0", &c[0], "conv_i2"]).unwrap();
        s.parallel(&outer).unwrap();
        let finished = check(func, s);
        let tile = finished.buffers.values().find(|b| b.name == "conv").unwrap();
        let shape: Vec<_> = tile.shape.iter().map(|e| e.as_int()).collect();
        assert_eq!(shape, [Some(1), Some(8), Some(1), Some(4)], "{finished}");
        if !inlined {
            let rows = finished.buffers.values().find(|b| b.name == "pad").unwrap();
            let shape: Vec<_> = rows.shape.iter().map(|e| e.as_int()).collect();
            assert_eq!(shape, [Some(1), Some(3), Some(3), Some(9)], "{finished}");
        }
    }
}

/// `back` stores at four constant indices: each of its iterations makes what four of its reader take.
#[test]
fn transforms_on_registers() {
    let func = transforms(6, 10, 24);
    let mut s = Schedule::new(func.clone());
    s.compute_inline("scaled").unwrap();
    let y = s.split("out_i0", &[None, Some(2)]).unwrap();
    let x = s.split("out_i1", &[None, Some(2)]).unwrap();
    let c = s.split("out_i2", &[None, Some(8)]).unwrap();
    s.reorder(&[&y[0], &c[0], &x[0], &y[1], &x[1], &c[1]]).unwrap();
    s.unroll(&y[1]).unwrap();
    s.unroll(&x[1]).unwrap();
    s.vectorize(&c[1]).unwrap();
    let loops = s.compute_at("back", &x[0]).unwrap_or_else(|e| panic!("{e}\n{}", s.func()));
    assert_eq!(loops, ["back_ax0", "back_ax1"]);
    s.vectorize("back_ax1").unwrap();
    s.set_scope("back", Scope::Register).unwrap();
    // The other transform a row of tiles at a time.
    s.compute_at("there", &c[0]).unwrap_or_else(|e| panic!("{e}\n{}", s.func()));
    s.vectorize("there_ax1").unwrap();
    s.set_scope("there", Scope::Stack).unwrap();
    let outer = s.fuse(&[&y[0], &c[0]]).unwrap();
    s.parallel(&outer).unwrap();
    let finished = check(func, s);
    for (name, tiles) in [("back", 1), ("there", 5)] {
        let buffer = finished.buffers.values().find(|b| b.name == name).unwrap();
        let shape: Vec<_> = buffer.shape.iter().map(|e| e.as_int()).collect();
        assert_eq!(shape, [Some(2), Some(2), Some(tiles), Some(8)], "{finished}");
    }
}

#[test]
fn stores_at_different_variables_have_no_common_place() {
    let mut func = Func::new("both");
    let n = Expr::int(4);
    let x = func.add_input("x", DType::F32, vec![n.clone(), n.clone()]);
    let twice = func.add_buffer("twice", DType::F32, vec![Expr::int(2), n.clone(), n.clone()], Scope::Global);
    let domain = vec![(n.clone(), IterKind::Spatial); 2];
    func.define(twice, domain, |f, i| {
        let store = |indices: Vec<Expr>| Store { buffer: twice, indices, value: f.load(x, i.to_vec()) };
        let indices =
            [vec![Expr::int(0), i[0].clone(), i[1].clone()], vec![Expr::int(1), i[1].clone(), i[0].clone()]];
        (Vec::new(), indices.into_iter().map(store).collect())
    });
    let out = func.compute("out", DType::F32, vec![n.clone(), n], |f, i| {
        f.load(twice, [&[Expr::int(0)], i].concat()) + f.load(twice, [&[Expr::int(1)], i].concat())
    });
    func.promote_to_output(out);
    let mut s = Schedule::new(func);
    let error = s.compute_at("twice", "out_i0").unwrap_err().to_string();
    assert_eq!(error, "compute_at of `twice`: its stores have different indices");
}

#[test]
fn a_row_reduction_over_lanes() {
    let func = softmax(5, 37);
    let mut s = Schedule::new(func.clone());
    for block in ["max", "sum"] {
        let row = s.split(&format!("{block}_r1"), &[None, Some(8)]).unwrap();
        let rf = s.rfactor(block, &row[1]).unwrap();
        s.vectorize(&row[1]).unwrap();
        s.reverse_compute_at(block, s.loop_names(&rf).unwrap()[0].clone().as_str()).unwrap();
    }
    check(func, s);
}

#[test]
fn vectors_along_fused_rows() {
    // Vectors that begin in one row and end in the next, and a last vector that is cut off.
    for (rows, columns) in [(56, 56), (14, 14), (3, 5), (7, 2)] {
        let mut func = Func::new("scale");
        let shape = vec![Expr::int(rows), Expr::int(columns), Expr::int(1)];
        let x = func.add_input("x", DType::F32, shape.clone());
        let y = func.compute("y", DType::F32, shape, |f, i| f.load(x, i.to_vec()) * Expr::f32(2.0));
        func.promote_to_output(y);
        let mut s = Schedule::new(func.clone());
        let row = s.fuse(&["y_i0", "y_i1", "y_i2"]).unwrap();
        let parts = s.split(&row, &[None, Some(16)]).unwrap();
        s.vectorize(&parts[1]).unwrap_or_else(|e| panic!("{e}\n{}", s.func()));
        s.parallel(&parts[0]).unwrap_or_else(|e| panic!("{e}\n{}", s.func()));
        check(func, s);
    }
}

#[test]
fn a_single_iteration_around_open_ones_leaves_no_remainder() {
    let mut func = Func::new("scale");
    let rows = func.add_size("rows", 0, 1 << 20);
    let shape = vec![Expr::int(1), rows.into(), Expr::int(1)];
    let x = func.add_input("x", DType::F32, shape.clone());
    let y = func.compute("y", DType::F32, shape, |f, i| f.load(x, i.to_vec()) * Expr::f32(2.0));
    func.promote_to_output(y);
    let mut s = Schedule::new(func.clone());
    let row = s.fuse(&["y_i0", "y_i1", "y_i2"]).unwrap();
    assert!(!s.func().to_string().contains("floormod"), "{}", s.func());
    s.parallel(&row).unwrap();
    check(func, s);
}

#[test]
fn tasks_of_two_nested_loops() {
    let func = matmul_bias_relu(Dim::Open, Dim::Fixed(24), Dim::Fixed(10));
    let mut s = Schedule::new(func.clone());
    s.reverse_compute_inline("D").unwrap();
    s.compute_at("C", "E_i1").unwrap();
    s.reorder(&["E_i1", "E_i0"]).unwrap();
    s.parallel("E_i1").unwrap();
    s.parallel("E_i0").unwrap();
    let text = check(func, s).to_string();
    assert_eq!(text.matches(" parallel").count(), 2, "{text}");
}

#[test]
fn rounds_have_equal_numbers_of_tasks() {
    let triangle: Func = "func f(A: f32[8]) -> (B: f32[8, 8]) {
      for i in 0..8 {
        for j in 0..(i + 1) {
          block b(vi: spatial 8 = i, vj: spatial 8 = j) {
            B[vi, vj] = A[vj]
          }
        }
      }
    }"
    .parse()
    .unwrap();
    let mut s = Schedule::new(triangle);
    s.parallel("i").unwrap();
    let refused = s.parallel("j").unwrap_err().to_string();
    assert!(refused.contains("only an outermost loop"), "{refused}");
}

#[test]
fn layouts_with_padding() {
    let func = conv2d(1, 3, 10, 6, 3, 1, 1);
    let mut s = Schedule::new(func.clone());
    let nchw8c = |dims: usize| -> Vec<Piece> {
        let open = (0..dims).map(|dim| Piece { dim, factor: None });
        open.chain([Piece { dim: 1, factor: Some(8) }]).collect()
    };
    s.transform_layout("conv", &nchw8c(4), Padding::Undefined).unwrap();
    s.transform_layout("pad", &nchw8c(4), Padding::Zero).unwrap();
    check(func, s);
}

#[test]
fn caches_of_what_is_read_and_written() {
    let func = matmul_bias_relu(Dim::Fixed(20), Dim::Fixed(24), Dim::Fixed(10));
    let mut s = Schedule::new(func.clone());
    let tiles = s.tile(&["C_i0", "C_i1"], &[8, 8]).unwrap();
    let pack = s.cache_read("C", "B", Scope::Stack).unwrap();
    s.compute_at(&pack, &tiles[1]).unwrap();
    let copy = s.cache_write("C", Scope::Stack).unwrap();
    s.reverse_compute_at(&copy, &tiles[1]).unwrap();
    s.reverse_compute_inline("D").unwrap();
    s.parallel(&tiles[0]).unwrap();
    let finished = check(func, s);
    let packed = finished.buffers.values().find(|b| b.name == "B_stack").unwrap();
    let shape: Vec<_> = packed.shape.iter().map(|e| e.as_int()).collect();
    assert_eq!(shape, [Some(10), Some(8)], "{finished}");
}

#[test]
fn partial_sums_between_blocks_of_steps() {
    let func = matmul_bias_relu(Dim::Fixed(20), Dim::Fixed(24), Dim::Fixed(10));
    let mut s = Schedule::new(func.clone());
    let rows = s.split("C_i0", &[None, Some(5)]).unwrap();
    let steps = s.split("C_r2", &[None, Some(4)]).unwrap();
    s.reorder(&[&steps[0], &rows[0], &steps[1], &rows[1]]).unwrap();
    let refused = s.clone().cache_inplace("C", &rows[0], Scope::Register).unwrap_err().to_string();
    assert_eq!(refused, "cache_inplace of `C`: it has a start of its own; decompose the reduction");
    s.decompose_reduction("C", &steps[0]).unwrap();
    let refused = s.clone().cache_inplace("C", "D_i0", Scope::Register).unwrap_err().to_string();
    assert_eq!(refused, "cache_inplace of `C`: loop `D_i0` is not around the block");
    // The last block of steps is cut off.
    let refused = s.clone().cache_inplace("C", &rows[0], Scope::Register).unwrap_err().to_string();
    assert_eq!(refused, "cache_inplace of `C`: it runs under a condition");
}

#[test]
fn partial_sums_lie_in_registers_for_a_block_of_steps() {
    let func = matmul_bias_relu(Dim::Fixed(20), Dim::Fixed(24), Dim::Fixed(12));
    let mut s = Schedule::new(func.clone());
    let rows = s.split("C_i0", &[None, Some(5)]).unwrap();
    let steps = s.split("C_r2", &[None, Some(4)]).unwrap();
    s.reorder(&[&steps[0], &rows[0], "C_i1", &steps[1], &rows[1]]).unwrap();
    s.unroll(&rows[1]).unwrap();
    s.decompose_reduction("C", &steps[0]).unwrap();
    let refused = s.clone().cache_inplace("C_init", &rows[0], Scope::Register).unwrap_err().to_string();
    assert_eq!(refused, format!("cache_inplace of `C_init`: loop `{}` is not around the block", rows[0]));
    let copies = s.cache_inplace("C", "C_i1", Scope::Register).unwrap();
    assert_eq!(copies, ["C_load", "C_store"]);
    let refused = s.clone().cache_inplace("C", &rows[0], Scope::Stack).unwrap_err().to_string();
    assert_eq!(refused, format!("cache_inplace of `C`: another block is inside `{}`", rows[0]));
    for copy in copies {
        let own = s.loop_names(&copy).unwrap();
        s.unroll(&own[3]).unwrap();
    }
    let finished = check(func, s);
    let kept = finished.buffers.values().find(|b| b.name == "C_register").unwrap();
    let shape: Vec<_> = kept.shape.iter().map(|e| e.as_int()).collect();
    assert_eq!(shape, [Some(5), Some(1)], "{finished}");
}

#[test]
fn illegal_requests_say_why() {
    let func = matmul_bias_relu(Dim::Open, Dim::Fixed(24), Dim::Fixed(10));
    let schedule = || Schedule::new(func.clone());
    let check = |result: Result<(), tilewright_te::schedule::ScheduleError>, expect: &str| {
        assert_eq!(result.unwrap_err().to_string(), expect);
    };
    check(schedule().unroll("nowhere"), "unroll of `nowhere`: there is no loop of that name");
    check(schedule().vectorize("C_r2"), "vectorize of `C_r2`: block `C` accumulates over it");
    check(
        schedule().parallel("C_r2"),
        "parallel of `C_r2`: only an outermost loop can be parallel, or the one alone inside it",
    );
    check(
        schedule().split("C_i1", &[Some(2), Some(8)]).map(drop),
        "split of `C_i1`: factors of product 16 do not cover the extent 24",
    );
    check(schedule().split("C_i1", &[None, Some(0)]).map(drop), "split of `C_i1`: factor 0 is not positive");
    check(
        schedule().fuse(&["C_i0", "C_r2"]).map(drop),
        "fuse of `C_i0, C_r2`: `C_r2` is not directly inside `C_i0`",
    );
    check(schedule().reorder(&["C_i0", "E_i0"]), "reorder of `C_i0, E_i0`: `C_i0` is not in the same nest");
    check(schedule().compute_inline("C"), "compute_inline of `C`: `C` is a reduction");
    check(schedule().compute_inline("D"), "compute_inline of `D`: its result is a parameter of the function");
    check(
        schedule().compute_at("C", "D_i0").map(drop),
        "compute_at of `C`: its consumer `E` is not inside `D_i0`",
    );
    check(
        schedule().reverse_compute_at("E", "C_r2").map(drop),
        "reverse_compute_at of `E`: `C` is still accumulating `C` over `C_r2`",
    );
    check(
        schedule().decompose_reduction("C", "D_i0").map(drop),
        "decompose_reduction of `C`: loop `D_i0` is not around the block",
    );
    check(
        schedule().compute_with("D_i0", "C_i0"),
        "compute_with of `D_i0`: it does not follow `C_i0` in the same loop",
    );
    check(schedule().set_scope("A", Scope::Stack), "set_scope of `A`: a parameter lives in global memory");
    check(
        schedule().pad_einsum("D", &[8, 8]),
        "pad_einsum of `D`: its result `D` is a parameter of the function; use cache_write",
    );
    check(
        schedule().transform_layout("C", &[Piece { dim: 0, factor: None }], Padding::Undefined),
        "transform_layout of `C`: dimension 1 has no piece",
    );
    let mut s = schedule();
    let before = s.func().to_string();
    assert!(s.tile(&["C_i0", "C_r2", "nowhere"], &[2, 2, 2]).is_err());
    assert_eq!(s.func().to_string(), before, "a failed primitive leaves the function alone");
}

#[test]
fn hints_cover_the_next_panel_once() {
    // Panels of 8 columns and 40 steps, packed: 320 elements, 20 lines of 64 bytes, over 3 * 40 steps and over 2.
    let (m, n, k) = (12, 24, 40);
    for (rows, steps) in [(4, 40), (12, 20)] {
        let mut func = Func::new("matmul");
        let (em, en, ek) = (Expr::int(m), Expr::int(n), Expr::int(k));
        let a = func.add_input("a", DType::F32, vec![em.clone(), ek.clone()]);
        let b = func.add_input("b", DType::F32, vec![ek.clone(), en.clone()]);
        let out = func.reduce("c", DType::F32, vec![em, en], vec![ek], Expr::f32(0.0), |f, i, r, acc| {
            let x = f.load(a, vec![i[0].clone(), r[0].clone()]);
            let y = f.load(b, vec![r[0].clone(), i[1].clone()]);
            Expr::fma(x, y, acc)
        });
        func.promote_to_output(out);
        let mut s = Schedule::new(func);
        let piece = |dim, factor| Piece { dim, factor };
        s.transform_layout("b", &[piece(1, None), piece(0, None), piece(1, Some(8))], Padding::Zero).unwrap();
        let packed = s.func().clone();
        let mut s = Schedule::new(packed.clone());
        let tiles = s.tile(&["c_i1", "c_i0"], &[8, rows]).unwrap();
        let k = s.split("c_r2", &[None, Some(steps)]).unwrap();
        s.reorder(&[&tiles[0], &tiles[1], &k[0], &k[1], &tiles[3], &tiles[2]]).unwrap();
        // What the next panel has, a line a step.
        let hints = |loop_name: &String, around: &String, along: &[&str]| Prefetch {
            loop_name: loop_name.clone(),
            block: "c".into(),
            buffer: "b".into(),
            around: around.clone(),
            distance: 1,
            assumed: 1,
            line: 1,
            first_of: Vec::new(),
            along: along.iter().map(|name| name.to_string()).collect(),
        };
        s.prefetch(hints(&k[0], &tiles[0], &[&k[0], &k[1]])).unwrap();
        let refused = s.prefetch(hints(&tiles[0], &k[0], &[])).unwrap_err().to_string();
        assert!(refused.contains("is not around it"), "{refused}");
        let refused = s.prefetch(hints(&k[0], &tiles[0], &["nowhere"])).unwrap_err().to_string();
        assert!(refused.contains("`nowhere` is no loop"), "{refused}");
        assert!(s.split(&k[0], &[None, Some(1)]).is_err(), "a loop that prefetches is split");
        assert!(
            s.transform_layout("b", &[piece(0, None), piece(1, None), piece(2, None)], Padding::Zero)
                .is_err()
        );

        // The elements asked for during the first panel: of each step one.
        let mut asked = std::collections::BTreeSet::new();
        let text = s.func().to_string();
        let hints = text.matches(" prefetch b[").count();
        let l = find_loop(s.func(), &k[0]);
        for tile in 0..m / rows {
            for step in 0..40 / steps {
                for hint in &l.prefetches {
                    let value = |v| match s.func().vars[v].name.as_str() {
                        name if name == tiles[1] => Some(tile),
                        name if name == k[0] => Some(step),
                        _ => Some(0),
                    };
                    asked.insert(tilewright_te::interp::evaluate_index(&hint.element, &value).unwrap());
                }
            }
        }
        assert_eq!(hints, l.prefetches.len(), "{text}");
        // A line a step, one after the other; the last iteration may ask for a few of the panel after.
        let asked: Vec<i64> = asked.into_iter().collect();
        assert_eq!(asked, (0..asked.len() as i64).map(|n| 320 + 8 * n).collect::<Vec<_>>());
        assert!((40..40 + hints).contains(&asked.len()), "{} lines, {hints} at a time", asked.len());
        check(packed, s);
    }
}

/// What a lane computes for itself must not lie where another lane has its own.
#[test]
fn local_buffers_have_elements_for_every_lane() {
    let func = matmul_bias_relu(Dim::Fixed(5), Dim::Fixed(8), Dim::Fixed(6));
    for scope in [Scope::Stack, Scope::Register] {
        let mut s = Schedule::new(func.clone());
        s.compute_at("E", "D_i1").unwrap();
        s.set_scope("E", scope).unwrap();
        s.vectorize("D_i1").unwrap();
        let finished = s.clone().finish().unwrap();
        let e = finished.buffers.values().find(|b| b.name == "E").unwrap();
        assert_eq!(e.shape.iter().map(|extent| extent.as_int()).collect::<Vec<_>>(), [Some(1), Some(8)]);
        check(func.clone(), s);
    }
}

/// Where a consumer's iterations are guarded, what they would read is not asked for outside of the guard.
#[test]
fn nothing_is_computed_at_a_place_that_depends_on_data() {
    let mut s = Schedule::new(gather(10, 12, 7));
    let read = s.cache_read("picked", "table", Scope::Stack).unwrap();
    let parts = s.split("picked_i0", &[None, Some(4)]).unwrap();
    let refused = s.compute_at(&read, &parts[1]).unwrap_err().to_string();
    assert!(refused.contains("what its consumer `picked` reads of it depends on data"), "{refused}");
    check(gather(10, 12, 7), s);
}

/// A loop of tasks inside another one stays alone there.
#[test]
fn nothing_is_put_beside_an_inner_loop_of_tasks() {
    let func = matmul_bias_relu(Dim::Fixed(5), Dim::Fixed(8), Dim::Fixed(6));
    let mut s = Schedule::new(func.clone());
    s.parallel("D_i0").unwrap();
    s.parallel("D_i1").unwrap();
    let refused = s.compute_at("E", "D_i0").unwrap_err().to_string();
    assert!(refused.contains("`D_i1`: it would be neither outermost nor alone"), "{refused}");
    s.compute_at("E", "D_i1").unwrap();
    check(func, s);
}

/// A variable that is a part of an index ends before the elements do: what is beyond its end is computed elsewhere.
#[test]
fn what_a_guard_leaves_out_of_a_part_of_an_index_is_not_computed() {
    let func = matmul_bias_relu(Dim::Fixed(9), Dim::Fixed(8), Dim::Fixed(6));
    for (factor, fits) in [(3, true), (4, false)] {
        let mut s = Schedule::new(func.clone());
        let parts = s.split_iter("E", 0, 3).unwrap();
        let inner = s.split(&parts[1], &[None, Some(factor)]).unwrap();
        let result = s.reverse_compute_at("D", &inner[0]);
        assert_eq!(result.is_ok(), fits, "{result:?}");
        check(func.clone(), s);
    }
}

fn find_loop<'a>(func: &'a Func, name: &str) -> &'a tilewright_te::Loop {
    fn find<'a>(func: &Func, stmts: &'a [Stmt], name: &str) -> Option<&'a tilewright_te::Loop> {
        stmts.iter().find_map(|s| match s {
            Stmt::Loop(l) if func.vars[l.var].name == name => Some(&**l),
            Stmt::Loop(l) => find(func, &l.body, name),
            Stmt::Block(_) => None,
        })
    }
    find(func, &func.body, name).expect("a loop of that name")
}

/// `x[k + 1] = max(x[k], 0) + -x[k]`, `depth` times: as a tree, the last has 2^depth loads.
fn diamonds(depth: usize) -> Func {
    let mut func = Func::new("f");
    let mut x = func.add_input("x", DType::F32, vec![Expr::int(64)]);
    for _ in 0..depth {
        let relu = func.compute("relu", DType::F32, vec![Expr::int(64)], |f, i| {
            f.load(x, i.to_vec()).max(Expr::f32(0.0))
        });
        let neg = func.compute("neg", DType::F32, vec![Expr::int(64)], |f, i| -f.load(x, i.to_vec()));
        x = func.compute("sum", DType::F32, vec![Expr::int(64)], |f, i| {
            f.load(relu, i.to_vec()) + f.load(neg, i.to_vec())
        });
    }
    func.promote_to_output(x);
    func
}

/// What is inlined twice is one node; where its text would be too long all the same, it keeps its memory.
#[test]
fn what_is_inlined_several_times_is_shared() {
    let func = diamonds(40);
    let mut s = Schedule::new(func.clone());
    let mut refused = 0;
    for block in s.blocks() {
        refused += usize::from(s.compute_inline(&block).is_err());
    }
    let (mut nodes, mut largest) = (0, 0);
    for block in s.func().blocks() {
        block.body[0].value.walk(&mut |_| nodes += 1);
        largest = largest.max(block.body[0].value.n_nodes());
    }
    assert!(largest <= 1 << 16, "{largest} nodes as a tree");
    // Parts are shared from 1,024 nodes on.
    assert!(nodes <= (refused + 1) << 10, "{nodes} nodes in {} blocks", refused + 1);
    assert!((2..8).contains(&refused), "{refused} of 40 diamonds keep memory");
    let mut shallow = Schedule::new(diamonds(6));
    for block in shallow.blocks().iter().filter(|block| *block != "sum_5") {
        shallow.compute_inline(block).unwrap();
    }
    check(diamonds(6), shallow);
}

/// What a copy of a result writes back in each step of the reduction is complete after the last one only.
#[test]
fn nothing_reads_what_is_written_back_before_the_reduction_ends() {
    let mut s = Schedule::new(first_hits(5, 9));
    s.decompose_reduction("position", "position_r1").unwrap();
    s.cache_inplace("position", "position_r1", Scope::Global).unwrap();
    let refused = s.reverse_compute_at("picked", "position_r1").unwrap_err().to_string();
    assert!(
        refused.contains("`position_store` is still accumulating `position` over `position_r1`"),
        "{refused}"
    );
    s.reverse_compute_at("picked", "position_i0").unwrap();
    check(first_hits(5, 9), s);
}

/// What is computed of a domain in an iteration of a consumer may be no multiple of what its variable is.
#[test]
fn a_variable_of_which_loops_take_a_part_stays_whole() {
    let func = || conv2d(1, 2, 5, 6, 3, 1, 1);
    let mut s = Schedule::new(func());
    s.pad_einsum("pad", &[1, 1, 1, 5]).unwrap();
    s.compute_at("pad", "conv_i2").unwrap();
    let refused = s.split_iter("pad", 3, 5).unwrap_err().to_string();
    assert!(refused.contains("the loops of block `pad` are not as computed"), "{refused}");
    check(func(), s);
}

/// What tasks have for themselves is read by none but them.
#[test]
fn what_is_local_to_tasks_stays_with_its_readers() {
    let mut s = Schedule::new(transforms(6, 8, 12));
    s.set_scope("there", Scope::Stack).unwrap();
    s.compute_at("there", "scaled_i2").unwrap();
    s.parallel("scaled_i0").unwrap();
    let refused = s.compute_inline("scaled").unwrap_err().to_string();
    assert!(refused.contains("it reads `there`, which each task of `scaled_i0` has for itself"), "{refused}");
    check(transforms(6, 8, 12), s);
}

/// What each task would have for itself all of them share where something else uses it, or as soon as it is global.
#[test]
fn tasks_share_what_is_global_or_used_elsewhere() {
    let mut s = Schedule::new(softmax(4, 19));
    s.set_scope("sum", Scope::Stack).unwrap();
    s.reorder(&["out_i1", "out_i0"]).unwrap();
    s.compute_at("sum", "out_i1").unwrap();
    s.parallel("out_i1").unwrap();
    let refused = s.set_scope("sum", Scope::Global).unwrap_err().to_string();
    assert!(
        refused.contains("`out_i1` could no longer be what it is: iterations write the same"),
        "{refused}"
    );
    check(softmax(4, 19), s);

    let func = || centred(Dim::Fixed(5), 9);
    let mut s = Schedule::new(func());
    s.set_scope("sum", Scope::Stack).unwrap();
    s.reorder(&["centred_i1", "centred_i0"]).unwrap();
    s.compute_at("sum", "centred_i0").unwrap();
    s.compute_inline("centred").unwrap();
    let refused = s.parallel("centred_i1").unwrap_err().to_string();
    assert!(refused.contains("iterations write the same elements in block `sum`"), "{refused}");
    check(func(), s);
}

/// What padding added and nobody needed is not there to be copied.
#[test]
fn a_copy_reads_no_element_that_is_never_written() {
    let func = || centred(Dim::Fixed(5), 9);
    let mut s = Schedule::new(func());
    s.pad_einsum("centred", &[16, 1]).unwrap();
    s.pad_einsum("sum", &[2, 1]).unwrap();
    s.compute_at("sum", "centred_i0").unwrap();
    s.compute_inline("centred").unwrap();
    s.split("sum_ax0", &[None, Some(4)]).unwrap();
    let refused = s.cache_write("sum", Scope::Global).unwrap_err().to_string();
    assert!(refused.contains("it does not write every element of its result"), "{refused}");
    check(func(), s);
}
