//! Loops that are threads of a task: what `bind` takes, and what lowering says of threads that cannot do what they should.

mod common;

use common::*;
use tilewright_te::flatten::{FlattenOptions, flatten};
use tilewright_te::schedule::Schedule;
use tilewright_te::{Func, Scope, ThreadLevel};

#[test]
fn threads_inside_of_tasks() {
    let mut s = Schedule::new(matmul_bias_relu(Dim::Fixed(8), Dim::Fixed(16), Dim::Fixed(6)));
    s.parallel("D_i0").unwrap();
    s.bind("D_i1", ThreadLevel::Lane).unwrap();
    s.split("E_i1", &[None, Some(4)]).unwrap();
    s.bind("E_i0", ThreadLevel::Warp).unwrap();
    s.bind("E_i1_1", ThreadLevel::Lane).unwrap();
    let text = s.func().to_string();
    assert_eq!((text.matches(" warp {").count(), text.matches(" lane {").count()), (1, 2), "{text}");
    assert_eq!(text.parse::<Func>().unwrap().to_string(), text);
    let refused = |s: &mut Schedule, name: &str, level| s.bind(name, level).unwrap_err().to_string();
    let (warp, lane) = (ThreadLevel::Warp, ThreadLevel::Lane);
    assert_eq!(
        refused(&mut s, "E_i1_0", lane),
        "bind of `E_i1_1`: it would be inside a loop of the same threads"
    );
    assert_eq!(
        refused(&mut s, "E_i1_0", warp),
        "bind of `E_i1_0`: it would be inside a loop of the same threads"
    );
    assert_eq!(refused(&mut s, "E_i0", warp), "bind of `E_i0`: the loop is already Thread(Warp)");
    assert_eq!(refused(&mut s, "C_r2", lane), "bind of `C_r2`: block `C` accumulates over it");
    assert_eq!(
        s.vectorize("E_i1_0").unwrap_err().to_string(),
        "vectorize of `E_i1_1`: it would be threads inside of vectors"
    );
    let finished = s.finish().unwrap();
    assert_same_results(&matmul_bias_relu(Dim::Fixed(8), Dim::Fixed(16), Dim::Fixed(6)), &finished, 7);
}

#[test]
fn what_cannot_be_threads() {
    let (warp, lane) = (ThreadLevel::Warp, ThreadLevel::Lane);
    let refused = |s: &mut Schedule, name: &str, level| s.bind(name, level).unwrap_err().to_string();
    let mut s = Schedule::new(matmul_bias_relu(Dim::Open, Dim::Fixed(2000), Dim::Fixed(6)));
    assert!(refused(&mut s, "D_i0", warp).ends_with("is not constant"), "{}", refused(&mut s, "D_i0", warp));
    assert_eq!(refused(&mut s, "D_i1", warp), "bind of `D_i1`: the extent 2000 exceeds 1024");
    // What a task has to itself its threads share: each would write all of it.
    let mut s = Schedule::new(matmul_bias_relu(Dim::Fixed(8), Dim::Fixed(16), Dim::Fixed(6)));
    s.set_scope("E", Scope::Shared).unwrap();
    s.compute_at("E", "D_i0").unwrap();
    s.bind("D_i0", lane).unwrap();
    let mut s = Schedule::new(matmul_bias_relu(Dim::Fixed(8), Dim::Fixed(16), Dim::Fixed(6)));
    s.set_scope("E", Scope::Shared).unwrap();
    let columns = s.split("D_i1", &[None, Some(4)]).unwrap();
    s.reorder(&[&columns[1], "D_i0", &columns[0]]).unwrap();
    s.compute_at("E", "D_i0").unwrap();
    let refused = s.bind(&columns[1], lane).map_err(|e| e.to_string());
    assert_eq!(
        refused,
        Err(format!("bind of `{}`: iterations write the same elements in block `E`", columns[1]))
    );
}

/// What lowering says of a task with these statements, over `x`, `y` and some temporaries.
fn refusal(buffers: &str, body: &str, lanes: Option<u32>) -> String {
    let text =
        format!("func f(x: f32[64]) -> (y: f32[64]) {{ {buffers} for t in 0..1 parallel {{ {body} }} }}");
    let func: Func = text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"));
    let options = FlattenOptions { lanes, ..FlattenOptions::PLAIN };
    flatten(&func, &options).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn lowering_says_what_threads_cannot_do() {
    let load = "for l in 0..32 lane { block a(i: spatial 32 = l) { r[i] = x[i] } }";
    let store =
        |index: &str| format!("for m in 0..32 lane {{ block b(j: spatial 32 = m) {{ y[j] = r[{index}] }} }}");
    let in_registers =
        |index: &str| refusal("buffer r: f32[32] register", &(load.to_string() + &store(index)), Some(32));
    let expect = |found: String, reason: &str| assert!(found.ends_with(reason), "{found}");
    expect(in_registers("(31 - j)"), "lanes read from others that are neither one lane nor all as far away");
    expect(
        refusal("buffer r: f32[32] stack", &(load.to_string() + &store("j")), Some(32)),
        "stack buffer `r` is used in several loops of threads, or outside of them too",
    );
    let plain = "for l in 0..32 lane { block a(i: spatial 32 = l) { y[i] = x[i] } }";
    expect(refusal("", plain, None), "loop `l` is bound to threads this target has not");
    expect(refusal("", plain, Some(16)), "loop `l` has more iterations than 16 lanes");
    let warps = "for w in 0..2 warp { for l in 0..16 lane { block a(h: spatial 2 = w, i: spatial 16 = l) { r[h, i] = x[((h * 16) + i)] } } } \
                 for v in 0..2 warp { for m in 0..16 lane { block b(g: spatial 2 = v, j: spatial 16 = m) { y[((g * 16) + j)] = r[(1 - g), j] } } }";
    expect(
        refusal("buffer r: f32[2, 16] register", warps, Some(16)),
        "an element is read that another warp holds",
    );
    let shared = "for k in 0..2 { for w in 0..2 warp { for l in 0..16 lane { block a(g: spatial 2 = w, i: spatial 16 = l) { s[g, i] = x[i] } } \
                  for m in 0..16 lane { block b(h: spatial 2 = w, j: spatial 16 = m) { y[((h * 16) + j)] = s[h, (15 - j)] } } } } \
                  for u in 0..3 warp { block c(p: spatial 3 = u) { y[(p + 40)] = f32(0.0) } }";
    expect(
        refusal("buffer s: f32[2, 16] shared", shared, Some(16)),
        "threads meet in `s` where not all of them arrive",
    );
}
