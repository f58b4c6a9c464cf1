//! Rounds of tasks in order, and loops joined for them: recurrences whose units are tasks.

mod common;

use common::*;
use tilewright_te::flatten::{FlattenOptions, flatten};
use tilewright_te::kernel::Kernel;
use tilewright_te::schedule::Schedule;
use tilewright_te::{Func, Scope};

/// Asserts that a finished schedule computes what the function computed, without races. Returns the finished function.
fn check(original: &Func, schedule: Schedule) -> Func {
    let finished = schedule.finish().expect("finish");
    assert_same_results(original, &finished, 7);
    finished
}

/// Steps in order: sums over the last state, and the next state of each unit, which its own sum and `other` make.
fn recurrence(units: i64, other: &str) -> Func {
    let text = format!(
        "func rnn(steps: size 0..=9, x: f32[steps, {units}], w: f32[{units}, {units}]) -> (h: f32[steps, {units}]) {{
          buffer g: f32[steps, {units}] global
          for a in 0..steps {{
            for b in 0..{units} {{
              block start(va: spatial steps = a, vb: spatial {units} = b) {{
                g[va, vb] = x[va, vb]
              }}
            }}
          }}
          for t in 0..steps {{
            for i in 0..{units} {{
              for r in 0..{units} {{
                block sum(vi: spatial {units} = i, vt: reduce steps = t, vr: reduce {units} = r) {{
                  g[vt, vi] = fma(select((vt == 0), f32(0.0), h[(vt - 1), vr]), w[vi, vr], g[vt, vi])
                }}
              }}
            }}
            for j in 0..{units} {{
              block hidden(vj: spatial {units} = j, vs: reduce steps = t) {{
                h[vs, vj] = (max(g[vs, vj], f32(0.0)) + {other})
              }}
            }}
          }}
        }}"
    );
    text.parse().expect("a function")
}

#[test]
fn units_of_a_recurrence_are_tasks_of_rounds_in_order() {
    let func = recurrence(12, "f32(0.0)");
    let mut s = Schedule::new(func.clone());
    let sum = s.split("i", &[Some(3), None]).unwrap();
    let hidden = s.split("j", &[Some(3), None]).unwrap();
    s.compute_with(&hidden[0], &sum[0]).unwrap();
    s.parallel(&sum[0]).unwrap();
    let finished = check(&func, s);
    let kernels = flatten(&finished, &FlattenOptions::PLAIN);
    let kernel = kernels.expect("flattens").remove(1).kernel;
    assert!(kernel.grid.in_order && kernel.grid.per_round.as_int() == Some(3), "{kernel}");
    let text = kernel.to_string();
    assert!(text.contains(" rounds in order of 3"), "{text}");
    assert_eq!(text.parse::<Kernel>().expect("parses").to_string(), text);
}

#[test]
fn what_other_iterations_write_keeps_loops_apart() {
    let refused = |s: &mut Schedule, reason: &str| {
        let error = s.compute_with("j", "i").unwrap_err().to_string();
        assert_eq!(error, format!("compute_with of `j`: {reason}"));
    };
    // The next unit's sum, and a unit's sum of this step by way of the state.
    let meet = "different iterations of the two may meet in `g`";
    refused(&mut Schedule::new(recurrence(12, "g[vs, floormod((vj + 1), 12)]")), meet);
    let text = recurrence(12, "f32(0.0)").to_string().replace("h[(vt - 1), vr]", "h[vt, vr]");
    let meet = "different iterations of the two may meet in `h`";
    refused(&mut Schedule::new(text.parse().expect("a function")), meet);
    let mut s = Schedule::new(recurrence(12, "f32(0.0)"));
    s.split("i", &[None, Some(4)]).unwrap();
    let error = s.compute_with("j", "i_0").unwrap_err().to_string();
    assert_eq!(error, "compute_with of `j`: it has another number of iterations than `i_0`");
    let mut s = Schedule::new(recurrence(12, "f32(0.0)"));
    s.unroll("j").unwrap();
    refused(&mut s, "both must be serial, without pipeline or prefetches");
}

#[test]
fn what_a_task_has_for_itself_does_not_last_to_the_next_round() {
    let text = "func carry(x: f32[5, 8]) -> (y: f32[5, 8]) {
          buffer s: f32[5, 8] global
          for t in 0..5 {
            for j in 0..8 {
              block sum(vj: spatial 8 = j, vt: reduce 5 = t) {
                s[vt, vj] = (select((vt == 0), f32(0.0), s[(vt - 1), vj]) + x[vt, vj])
              }
              block out(uj: spatial 8 = j, ut: reduce 5 = t) {
                y[ut, uj] = s[ut, uj]
              }
            }
          }
        }";
    let func: Func = text.parse().expect("a function");
    let mut s = Schedule::new(func.clone());
    s.parallel("j").unwrap();
    let reason = "iterations of `j` could no longer be what they are";
    let error = s.set_scope("s", Scope::Stack).expect_err(reason).to_string();
    assert!(
        error.contains("local buffer `s` may carry values from one round of tasks to the next"),
        "{error}"
    );
    check(&func, s);
}
