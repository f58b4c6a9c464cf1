//! Values that lie in others: concatenations and slices that need no copies, and those that do, compute the same.

#[path = "common/graphs.rs"]
mod graphs;

use graphs::compile_and_compare;
use tilewright_driver::runtime::plan::{Place, PlanOp, SizeDef};
use tilewright_driver::{Compiled, Options};

/// What a compiled model's plan consists of.
#[derive(Debug, PartialEq)]
struct Shape {
    calls: usize,
    copies: usize,
    /// Buffers that lie in others, not at their beginning.
    inside: usize,
}

/// Compiles a graph of `f32` inputs, compares it with the interpreter, and tells what its plan consists of.
fn check(text: &str) -> Shape {
    shape(&compile_and_compare(text, &Options::host(Options::best_codegen())))
}

fn shape(compiled: &Compiled) -> Shape {
    let plan = &compiled.artifact.levels[0].plan;
    let count = |is: &dyn Fn(&PlanOp) -> bool| plan.instrs.iter().filter(|instr| is(&instr.op)).count();
    let inside = |place: &Place| match place {
        Place::Alias { byte_offset, .. } => plan.sizes[byte_offset.index()] != SizeDef::Const(0),
        _ => false,
    };
    Shape {
        calls: count(&|op| matches!(op, PlanOp::Call { .. })),
        copies: count(&|op| matches!(op, PlanOp::Copy { .. })),
        inside: plan.buffers.iter().filter(|buffer| inside(&buffer.place)).count(),
    }
}

/// A graph of this body with inputs `x` and `y` of 32 channels, in which a pooling makes `a` of `x` and `b` of `y`, and one of the result.
fn images(body: &str, channels: usize) -> String {
    let pool = "Pool[kind=max, kernel=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], dilations=[1, 1]]";
    format!(
        "graph images {{
          region0(%x x: f32[1, 32, 6, 6], %y y: f32[1, 32, 6, 6], %w w: f32[32, 32, 1, 1]) {{
            %a: f32[1, 32, 6, 6] = Conv[strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1], group=1](%x, %w)
            %b: f32[1, 32, 6, 6] = Conv[strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1], group=1](%y, %w)
            {body}
            %r: f32[1, {channels}, 6, 6] = {pool}(%c)
            return %r as r
          }}
        }}"
    )
}

#[test]
fn convolutions_write_their_channels_of_a_concatenation() {
    let shape = check(&images("%c: f32[1, 64, 6, 6] = Concat[axis=1](%a, %b)", 64));
    assert_eq!((shape.copies, shape.inside), (0, 1), "{shape:?}");
    let whole = check(&images("%c: f32[1, 32, 6, 6] = Binary[add](%a, %b)", 32));
    assert!(shape.calls <= whole.calls + 1, "a call for the concatenation: {shape:?}, {whole:?}");
}

#[test]
fn concatenations_that_begin_alike_share_memory() {
    let body = "%d: f32[1, 64, 6, 6] = Concat[axis=1](%a, %b)
            %e: f32[1, 64, 6, 6] = Unary[exp](%d)
            %f: f32[1, 32, 6, 6] = Unary[tanh](%b)
            %c: f32[1, 160, 6, 6] = Concat[axis=1](%d, %f, %e)";
    let shape = check(&images(body, 160));
    assert_eq!(shape.copies, 0, "{shape:?}");
    assert!(shape.inside >= 3, "{shape:?}");
    let growing = "%d: f32[1, 64, 6, 6] = Concat[axis=1](%a, %b)
            %e: f32[1, 64, 6, 6] = Unary[exp](%d)
            %c: f32[1, 128, 6, 6] = Concat[axis=1](%a, %b, %e)";
    let shape = check(&images(growing, 128));
    assert_eq!((shape.copies, shape.inside), (0, 2), "{shape:?}");
}

#[test]
fn an_operand_that_comes_twice_is_there_twice() {
    check(&images("%c: f32[1, 96, 6, 6] = Concat[axis=1](%a, %b, %a)", 96));
    let body = "%d: f32[1, 32, 6, 6] = Binary[mul](%a, %b)
            %c: f32[1, 64, 6, 6] = Concat[axis=1](%d, %d)";
    check(&images(body, 64));
    let body = "%d: f32[1, 64, 6, 6] = Concat[axis=1](%a, %b)
            %c: f32[1, 128, 6, 6] = Concat[axis=1](%d, %d)";
    check(&images(body, 128));
    let body = "%d: f32[1, 64, 6, 6] = Concat[axis=1](%a, %b)
            %e: f32[1, 64, 6, 6] = Concat[axis=1](%b, %a)
            %c: f32[1, 64, 6, 6] = Binary[sub](%d, %e)";
    check(&images(body, 64));
}

#[test]
fn other_axes_and_odd_channels_are_copied() {
    check(
        &images("%c: f32[1, 32, 12, 6] = Concat[axis=2](%a, %b)", 32)
            .replace("32, 6, 6] = Pool", "32, 12, 6] = Pool"),
    );
    let body = "%s: f32[1, 5, 6, 6] = Slice[axes=[1], starts=[3], steps=[1], sizes=[5]](%b)
            %c: f32[1, 37, 6, 6] = Concat[axis=1](%s, %a)";
    check(&images(body, 37));
}

/// A graph of this body with an input `x` of 8 x 16 elements, and its result `r`.
fn rows(body: &str, results: &str) -> String {
    format!("graph rows {{ region0(%x x: f32[8, 16], %y y: f32[1, 16]) {{ {body} return {results} }} }}")
}

#[test]
fn slices_and_splits_are_read_where_they_are() {
    let body = "%e: f32[8, 16] = Softmax[axis=1](%x)
            %s: f32[3, 16] = Slice[axes=[0], starts=[4], steps=[1], sizes=[3]](%e)
            %t: f32[3, 16] = Softmax[axis=1](%s)
            %z: f32[3, 16] = Softmax[axis=0](%s)
            %u: f32[2, 16], %v: f32[6, 16] = Split[axis=0, sizes=[2, 6]](%e)
            %p: f32[2, 16] = Softmax[axis=1](%u)
            %q: f32[6, 16] = Softmax[axis=1](%v)";
    let shape = check(&rows(body, "%t as t, %z as z, %p as p, %q as q"));
    assert_eq!(shape, Shape { calls: 5, copies: 0, inside: 2 });
    // Backwards, of every second row, of columns: not one piece of memory.
    for slice in [
        "f32[4, 16] = Slice[axes=[0], starts=[0], steps=[2], sizes=[4]]",
        "f32[8, 16] = Slice[axes=[0], starts=[7], steps=[-1], sizes=[8]]",
        "f32[8, 4] = Slice[axes=[1], starts=[4], steps=[1], sizes=[4]]",
    ] {
        let ty = slice.split(" = ").next().expect("a type");
        let body =
            format!("%e: f32[8, 16] = Softmax[axis=1](%x) %s: {slice}(%e) %t: {ty} = Softmax[axis=1](%s)");
        assert_eq!(check(&rows(&body, "%t as t")).inside, 0, "{slice}");
    }
}

#[test]
fn what_leaves_the_model_is_memory_of_its_own() {
    let body = "%e: f32[8, 16] = Softmax[axis=1](%x)
            %s: f32[3, 16] = Slice[axes=[0], starts=[4], steps=[1], sizes=[3]](%e)
            %c: f32[11, 16] = Concat[axis=0](%e, %s)
            %d: f32[19, 16] = Concat[axis=0](%c, %e)
            %t: f32[19, 16] = Softmax[axis=1](%d)";
    check(&rows(body, "%t as t, %s as s, %e as e, %c as c"));
    let body = "%e: f32[8, 16] = Softmax[axis=1](%x) %c: f32[9, 16] = Concat[axis=0](%y, %e)
            %t: f32[9, 16] = Softmax[axis=1](%c)";
    // A short operand that no function computes is copied.
    let shape = check(&rows(body, "%t as t"));
    assert_eq!((shape.copies, shape.inside), (1, 1), "{shape:?}");
}
