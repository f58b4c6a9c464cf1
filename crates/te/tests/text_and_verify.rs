//! Golden texts of functions, errors of the parser, and violations the verifier reports.

mod common;

use common::*;
use tilewright_dtype::DType;
use tilewright_te::schedule::Schedule;
use tilewright_te::verify::{Stage, verify};
use tilewright_te::{Expr, Func, Scope};

/// Asserts that the text parses and prints as it is.
fn round_trip(text: &str) -> Func {
    let func: Func = text.parse().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(func.to_string(), text);
    func
}

#[test]
fn functions_print_and_parse() {
    round_trip(
        "\
func scaled(n: size 1..=64, m: size 0.. about 8, A: f32[n, m], p: i64[]) -> (B: f32[n, m], \"odd name\": u8[4]) {
  buffer T: f16[n, m] stack
  for i in 0..n parallel {
    for j in 0..floordiv((m + 15), 16) {
      for k in 0..16 vectorized {
        block T(vi: spatial n = i, vj: spatial m = ((j * 16) + k)) where (((j * 16) + k) < m) {
          T[vi, vj] = cast.f16((A[min(vi, p[]), vj] * f32(-1.5e-7)))
        }
      }
      for l in 0..16 unrolled {
        block B(vi_1: spatial n = i, vj_1: spatial m = ((j * 16) + l)) where (((j * 16) + l) < m) {
          B[vi_1, vj_1] = select((cast.f32(T[vi_1, vj_1]) > f32(-inf)), exp(cast.f32(T[vi_1, vj_1])), f32(NaN))
        }
      }
    }
  }
  for q in 0..4 {
    for r in 0..2 {
      block odd(vq: spatial 4 = q, vr: reduce 2 = r) {
        init \"odd name\"[vq] = u8(0)
        \"odd name\"[vq] = (\"odd name\"[vq] + cast.u8(bitcast.i32(f32(1.0))))
      }
    }
  }
}
",
    );
}

#[test]
fn definitions_print_as_loops_over_blocks() {
    let expect = "\
func softmax(x: f32[2, 3]) -> (out: f32[2, 3]) {
  buffer max: f32[2] global
  buffer exp: f32[2, 3] global
  buffer sum: f32[2] global
  for max_i0 in 0..2 {
    for max_r1 in 0..3 {
      block max(max_vi0: spatial 2 = max_i0, max_vr1: reduce 3 = max_r1) {
        init max[max_vi0] = f32(-inf)
        max[max_vi0] = max(max[max_vi0], x[max_vi0, max_vr1])
      }
    }
  }
  for exp_i0 in 0..2 {
    for exp_i1 in 0..3 {
      block exp(exp_vi0: spatial 2 = exp_i0, exp_vi1: spatial 3 = exp_i1) {
        exp[exp_vi0, exp_vi1] = exp((x[exp_vi0, exp_vi1] - max[exp_vi0]))
      }
    }
  }
  for sum_i0 in 0..2 {
    for sum_r1 in 0..3 {
      block sum(sum_vi0: spatial 2 = sum_i0, sum_vr1: reduce 3 = sum_r1) {
        init sum[sum_vi0] = f32(0.0)
        sum[sum_vi0] = (sum[sum_vi0] + exp[sum_vi0, sum_vr1])
      }
    }
  }
  for out_i0 in 0..2 {
    for out_i1 in 0..3 {
      block out(out_vi0: spatial 2 = out_i0, out_vi1: spatial 3 = out_i1) {
        out[out_vi0, out_vi1] = (exp[out_vi0, out_vi1] / sum[out_vi0])
      }
    }
  }
}
";
    assert_eq!(softmax(2, 3).to_string(), expect);
    assert!(verify(&round_trip(expect), Stage::Computed).is_empty());
}

#[test]
fn texts_that_are_no_functions_are_refused() {
    let check = |text: &str, expect: &str| assert_eq!(text.parse::<Func>().unwrap_err().to_string(), expect);
    check("", "line 1, column 1: expected `func`, found the end");
    check("func f(", "line 1, column 7: expected a name, found the end");
    check("func f(A: f99[2]) -> () {\n}", "line 1, column 11: `f99` is no element type");
    check(
        "func f() -> () {\n  for i in 0..4 sideways {\n",
        "line 2, column 17: `sideways` is no kind of loop",
    );
    check("func f() -> () {\n  for i in 0..j {\n  }\n}", "line 2, column 15: there is no variable `j`");
    check(
        "func f() -> (A: f32[1]) {\n  block b() {\n    A[0] = 1\n  }\n}",
        "line 3, column 12: a i64 is stored to `A`, which holds f32",
    );
    check(
        "func f() -> (A: f32[1]) {\n  block b() {\n    A[0] = (f32(1.0) + 1)\n  }\n}",
        "line 3, column 22: operands of `+` have types f32 and i64",
    );
    check("func f() -> (A: f32[@]) {\n}", "line 1, column 21: unexpected `@]) {`");
    let deep = format!("func f() -> (A: f32[{}1{}]) {{\n}}", "(".repeat(9000), ")".repeat(9000));
    check(&deep, "line 1, column 521: nested too deeply");
}

/// Asserts the violations of a function given as text.
fn violations(text: &str, stage: Stage, expect: &[&str]) {
    let func: Func = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let found: Vec<String> = verify(&func, stage).iter().map(|v| v.to_string()).collect();
    assert_eq!(found, expect, "{text}");
}

#[test]
fn every_violation_is_reported_with_its_place() {
    let text = "\
func f(n: size 1..=8, A: f32[n]) -> (B: f32[n], C: f32[]) {
  for i in 0..n vectorized {
    for j in 0..n parallel {
      block b(vi: spatial n = i) where (j < 2) {
        B[vi, 0] = A[]
        A[vi] = f32(0.0)
      }
    }
  }
  for k in 0..n parallel {
    block c(vk: reduce n = k) {
      init C[] = f32(0.0)
      C[] = (C[] + A[vk])
    }
  }
}
";
    violations(
        text,
        Stage::Scheduled,
        &[
            "loop i: is Vectorized but its extent is not constant",
            "loop j: is parallel but neither outermost nor alone inside an outermost loop of tasks or rounds",
            "loop j: is Parallel but iterations write the same elements in block `b`",
            "block b: 2 indices for `B` of rank 1",
            "block b: 0 indices for `A` of rank 1",
            "block b: stores to the input `A`",
            "loop k: is Parallel but block `c` accumulates over it",
        ],
    );
}

#[test]
fn flattening_demands_small_local_buffers_with_constant_register_indices() {
    let text = "\
func f(n: size 1..=8, A: f32[n]) -> (B: f32[n]) {
  buffer T: f32[n] register
  for i in 0..n parallel {
    block t(vi: spatial n = i) {
      T[vi] = A[vi]
    }
  }
  for j in 0..n parallel {
    block b(vj: spatial n = j) {
      B[vj] = T[vj]
    }
  }
}
";
    violations(text, Stage::Scheduled, &[]);
    violations(
        text,
        Stage::Flattenable,
        &[
            "block t: register `T` is indexed by the loop `i`",
            "block b: register `T` is indexed by the loop `j`",
        ],
    );
    let stack = text.replace(" register", " stack");
    violations(
        &stack,
        Stage::Flattenable,
        &[
            "buffer T: is in Stack memory but its shape is not constant",
            "buffer T: is local but used by several outermost statements",
        ],
    );
}

#[test]
fn finished_schedules_are_legal() {
    let mut s = Schedule::new(matmul_bias_relu(Dim::Open, Dim::Fixed(40), Dim::Fixed(8)));
    s.compute_inline("E").unwrap();
    s.pad_einsum("C", &[4, 16, 1]).unwrap();
    s.set_scope("C", Scope::Register).unwrap();
    let t = s.tile(&["C_i0", "C_i1"], &[4, 16]).unwrap();
    s.reorder(&[&t[0], &t[1], "C_r2", &t[2], &t[3]]).unwrap();
    let e = s.reverse_compute_at("D", &t[1]).unwrap();
    for unrolled in [&t[2], &e[0]] {
        s.unroll(unrolled).unwrap();
    }
    for vectorized in [&t[3], &e[1]] {
        s.vectorize(vectorized).unwrap();
    }
    s.decompose_reduction("C", "C_r2").unwrap();
    s.parallel(&t[0]).unwrap();
    assert_eq!(verify(s.func(), Stage::Scheduled), []);
    assert_eq!(verify(&s.finish().unwrap(), Stage::Flattenable), []);
}

/// Nothing is run of an empty domain, whatever its loops become; a sum over no axis is a reduction of one step.
#[test]
fn empty_domains_and_sums_over_no_axis_are_legal() {
    let mut func = Func::new("empty");
    let shape = vec![Expr::int(2), Expr::int(0), Expr::int(3)];
    let x = func.add_input("x", DType::F32, shape.clone());
    let y = func.compute("y", DType::F32, shape, |f, i| f.load(x, i.to_vec()));
    func.promote_to_output(y);
    let mut schedule = Schedule::new(func);
    let loops = schedule.loop_names("y").unwrap();
    schedule.fuse(&loops.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
    assert_eq!(verify(schedule.func(), Stage::Scheduled), []);

    let mut func = Func::new("sum");
    let x = func.add_input("x", DType::F32, vec![Expr::int(4)]);
    let sum =
        func.reduce("sum", DType::F32, vec![Expr::int(4)], Vec::new(), Expr::f32(0.0), |f, i, r, sum| {
            assert!(r.is_empty());
            sum + f.load(x, i.to_vec())
        });
    func.promote_to_output(sum);
    assert_eq!(verify(&func, Stage::Computed), []);
}
