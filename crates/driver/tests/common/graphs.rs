//! Graphs in the text form, compiled and compared with the interpreter.

use std::sync::Arc;

use tilewright_driver::graph::text;
use tilewright_driver::onnx::{OnnxModel, export};
use tilewright_driver::reference::Reference;
use tilewright_driver::runtime::threads::ThreadPool;
use tilewright_driver::runtime::{Model, SessionOptions, TensorView, Trust};
use tilewright_driver::{Compiled, Options, compile_model};
use tilewright_dtype::DType;
use tilewright_te::interp::TensorData;

/// Compiles a graph of `f32` inputs, and compares its outputs with the interpreter's on one thread and on two.
pub(crate) fn compile_and_compare(text: &str, options: &Options) -> Compiled {
    let graph = text::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let model = OnnxModel::from_proto(export(&graph).expect("an ONNX model")).expect("a model");
    let compiled = compile_model(&model, options, &mut ()).expect("an artifact");
    let mut random = fastrand::Rng::with_seed(7);
    let inputs: Vec<(Vec<usize>, Vec<f32>)> = graph
        .inputs()
        .iter()
        .map(|&input| {
            let extent = |d: &tilewright_driver::graph::dim::Dim| d.as_const().expect("an extent") as usize;
            let dims: Vec<usize> = graph.dims(input).expect("a tensor").iter().map(extent).collect();
            let n = dims.iter().product();
            (dims, (0..n).map(|_| random.f32() * 2.0 - 1.0).collect())
        })
        .collect();
    let data: Vec<TensorData> = inputs
        .iter()
        .map(|(dims, values)| TensorData {
            dtype: DType::F32,
            shape: dims.iter().map(|&d| d as i64).collect(),
            bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        })
        .collect();
    let expected = Reference::new(&graph).expect("a reference").run(&data, &mut |_, _| {}).expect("a run");
    let views: Vec<TensorView<'_>> = inputs.iter().map(|(dims, x)| TensorView::of(dims, x)).collect();
    let model =
        Model::from_bytes(compiled.artifact.to_bytes().expect("bytes"), Trust::Origin).expect("a model");
    for threads in [1, 2] {
        let pool = Arc::new(ThreadPool::new(threads));
        let mut session = model.session_with(SessionOptions { pool, ..SessionOptions::default() });
        let outputs = session.run(&views).expect("a run");
        for (n, expected) in expected.iter().enumerate() {
            let found = outputs.get(n).and_then(|view| view.to_vec::<f32>()).expect("an F32 output");
            let expected = expected.to_f32().expect("floats");
            assert_eq!(found.len(), expected.len(), "output {n}");
            for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(
                    (found - expected).abs() <= 1e-4 * (1.0 + expected.abs()),
                    "output {n}, element {i}\n{text}"
                );
            }
        }
    }
    compiled
}
