//! A branch that no run can take, since the known extents do not fit its operands: runs that take it fail, and others do not.

use tilewright_driver::graph::text;
use tilewright_driver::onnx::{OnnxModel, export};
use tilewright_driver::reference::Reference;
use tilewright_driver::runtime::{RunError, TensorView};
use tilewright_driver::{
    CodegenKind, CompileError, DType, DimOption, Options, TensorData, Trust, compile_model, loader,
};

/// By one of two matrices, as the first input says.
const GRAPH: &str = "graph choose {
  sym n input 0..*:1
  region0(%c c: bool[], %x x: f32[2, n], %v v: f32[3, 2], %w w: f32[5, 2]) {
    %y: f32[2, 2] = If[then_region=region1, else_region=region2](%c, %x, %v, %w)
    return %y as y
  }
  region1(%a: f32[2, n], %b: f32[3, 2], %d: f32[5, 2]) {
    %p: f32[2, 2] = MatMul[](%a, %b) @ \"first\"
    return %p
  }
  region2(%e: f32[2, n], %f: f32[3, 2], %g: f32[5, 2]) {
    %q: f32[2, 2] = MatMul[](%e, %g) @ \"second\"
    return %q
  }
}";

fn model() -> OnnxModel {
    let graph = text::parse(GRAPH).expect("a graph");
    OnnxModel::from_proto(export(&graph).expect("an ONNX model")).expect("a model")
}

/// With three columns, which fit the first matrix.
fn options() -> Options {
    let mut options = Options::host(CodegenKind::Cranelift);
    options.dims.push(DimOption { name: "n".to_string(), lo: 3, hi: 3, step: None });
    options
}

const X: [f32; 6] = [1.0, 2.0, -3.0, 0.5, 0.0, 1.0];
const FIRST: [f32; 6] = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0];
const PRODUCT: [f32; 4] = [-2.0, -1.0, 1.5, 1.0];

#[test]
fn a_run_that_takes_the_branch_fails() {
    let compiled = compile_model(&model(), &options(), &mut ()).expect("an artifact");
    let bytes = compiled.artifact.to_bytes().expect("bytes");
    let mut session = loader(Trust::Origin).from_bytes(bytes).expect("a model").session();
    let second = [0.0f32; 10];
    for _ in 0..2 {
        let mut run = |taken: bool| -> Result<Vec<f32>, RunError> {
            let inputs = [
                TensorView::of(&[], std::slice::from_ref(&taken)),
                TensorView::of(&[2, 3], &X),
                TensorView::of(&[3, 2], &FIRST),
                TensorView::of(&[5, 2], &second),
            ];
            let outputs = session.run(&inputs)?;
            Ok(outputs.get(0).expect("an output").to_vec::<f32>().expect("floats"))
        };
        assert_eq!(run(true), Ok(PRODUCT.to_vec()));
        let error = run(false).expect_err("a run that fails");
        assert!(matches!(&error, RunError::Guard { message, .. } if message.contains("second")), "{error}");
    }
}

#[test]
fn the_interpreter_fails_likewise() {
    let compiled = compile_model(&model(), &options(), &mut ()).expect("an artifact");
    let reference = Reference::new(&compiled.graph).expect("a program");
    let floats = |shape: &[i64], values: &[f32]| {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        TensorData { dtype: DType::F32, shape: shape.to_vec(), bytes }
    };
    let run = |taken: u8| {
        let condition = TensorData { dtype: DType::Bool, shape: vec![], bytes: vec![taken] };
        let inputs = [condition, floats(&[2, 3], &X), floats(&[3, 2], &FIRST), floats(&[5, 2], &[0.0; 10])];
        reference.run(&inputs, &mut |_, _| {})
    };
    assert_eq!(run(1).expect("a run"), [floats(&[2, 2], &PRODUCT)]);
    let error = run(0).expect_err("a run that fails");
    assert!(matches!(&error, CompileError::Invalid(message) if message.contains("second")), "{error}");
}
