//! Values stored in padded blocks of channels have room for the padding.

use tilewright_driver::graph::text;
use tilewright_driver::onnx::{OnnxModel, export};
use tilewright_driver::runtime::plan::{SizeDef, SizeId};
use tilewright_driver::{CodegenKind, Options, compile_model};

#[test]
fn a_buffer_holds_whole_blocks() {
    let graph = text::parse(
        "graph classifier {
          region0(%x x: f32[1, 8, 5, 5], %w w: f32[66, 8, 1, 1]) {
            %c: f32[1, 66, 5, 5] = Conv[strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1], group=1](%x, %w)
            %r: f32[1, 66, 5, 5] = Unary[relu](%c)
            %m: f32[1, 66, 1, 1] = Reduce[kind=mean, axes=[2, 3], keep_dims=true](%r)
            return %m as m
          }
        }",
    )
    .expect("a graph");
    let model = OnnxModel::from_proto(export(&graph).expect("an ONNX model")).expect("a model");
    // Vectors of four lanes on every machine: 66 channels are 17 of them.
    let compiled =
        compile_model(&model, &Options::host(CodegenKind::Cranelift), &mut ()).expect("an artifact");
    let plan = &compiled.artifact.levels[0].plan;
    let is = |size: SizeId, n: i64| plan.sizes[size.index()] == SizeDef::Const(n);
    let activations = plan
        .buffers
        .iter()
        .filter(|buffer| buffer.shape.len() == 4 && is(buffer.shape[1], 66) && is(buffer.shape[2], 5));
    let activations: Vec<_> = activations.collect();
    assert!(!activations.is_empty());
    let bytes = 4 * 68 * 5 * 5;
    assert!(activations.iter().all(|buffer| is(buffer.size_bytes, bytes)), "a buffer without the padding");
}
