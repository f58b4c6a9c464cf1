//! Models that are large in one way or another, or whose extents depend on one another: they compile, in steps that grow with
//! their nodes, and compute what the interpreter does.

#[path = "common/graphs.rs"]
mod graphs;

use std::fmt::Write;

use graphs::compile_and_compare;
use tilewright_driver::{Compiled, Options};

fn check(text: &str) -> Compiled {
    compile_and_compare(text, &Options::host(Options::best_codegen()))
}

/// `n` times `x = max(x, 0) + -x`.
fn diamonds(n: usize) -> String {
    let mut body = String::new();
    for i in 0..n {
        let _ = write!(
            body,
            "%a{i}: f32[64] = Unary[relu](%x{i})
             %b{i}: f32[64] = Unary[neg](%x{i})
             %x{}: f32[64] = Binary[add](%a{i}, %b{i})
            ",
            i + 1
        );
    }
    format!("graph diamonds {{\n region0(%x0 x: f32[64]) {{\n {body} return %x{n} as r\n }}\n}}")
}

#[test]
fn values_that_are_used_twice_again_and_again() {
    let compiled = check(&diamonds(60));
    assert!(compiled.functions <= 2, "{} functions", compiled.functions);
    check(&diamonds(200));
}

/// A concatenation of so many operands that it copies them one by one; some are empty.
#[test]
fn a_concatenation_of_many() {
    let mut inputs = String::from("%y y: f32[3, 7]");
    let (mut operands, mut extent) = (String::from("%y"), 7);
    for i in 0..40 {
        let _ = write!(inputs, ", %x{i} x{i}: f32[3, {}]", i % 5);
        let _ = write!(operands, ", %x{i}");
        extent += i % 5;
    }
    check(&format!(
        "graph many {{
          region0({inputs}) {{
            %c: f32[3, {extent}] = Concat[axis=1]({operands})
            %r: f32[3, {extent}] = Unary[relu](%c)
            return %r as r
          }}
        }}"
    ));
}

/// The padding and the result share arithmetic, and the result depends on what the padding gives: no kernel may compute both.
#[test]
fn what_gives_an_extent_is_computed_before_what_has_it() {
    check(
        "graph pads {
          sym p computed 0..*:1
          region0(%x x: f32[3, 5], %m m: f32[1]) {
            %abs: f32[1] = Unary[abs](%m)
            %ceil: f32[1] = Unary[ceil](%abs)
            %n: i64[1] = Cast[to=i64, saturate=true](%ceil)
            %z: i64[1] = Constant[i64[1]{0}]()
            %a: i64[1] = Binary[mul](%n, %n)
            %pads: i64[4] = Concat[axis=0](%z, %a, %z, %z)
            %padded: f32[3, p] = PadDynamic[mode=constant](%x, %pads)
            %d: i64[1] = FromDims[values=[p], dtype=i64]()
            %s: i64[1] = Binary[mul](%a, %d)
            %r: f32[1] = Cast[to=f32, saturate=true](%s)
            return %padded as padded, %r as r
          }
        }",
    );
}
