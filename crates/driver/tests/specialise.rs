//! Bounds of open dimensions and programs specialised for some extents: the right one runs, and all of them share what
//! they can.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tilewright_driver::graph::Tensor;
use tilewright_driver::onnx::OnnxModel;
use tilewright_driver::onnx::proto::attribute_proto::AttributeType;
use tilewright_driver::onnx::proto::tensor_shape_proto::{Dimension, dimension};
use tilewright_driver::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};
use tilewright_driver::onnx::tensor::to_proto;
use tilewright_driver::reference::Reference;
use tilewright_driver::runtime::threads::ThreadPool;
use tilewright_driver::runtime::{Model, Session, SessionOptions, TensorView};
use tilewright_driver::{
    CodegenKind, CompileError, Compiled, DType, Options, TensorData, Trust, compile_model,
};

/// Features of the model's inputs.
const WIDTH: usize = 64;

fn node(op: &str, inputs: &[&str], output: &str, attributes: &[(&str, i64)]) -> NodeProto {
    let attribute = |&(name, i): &(&str, i64)| AttributeProto {
        name: Some(name.to_string()),
        i: Some(i),
        r#type: Some(AttributeType::Int as i32),
        ..AttributeProto::default()
    };
    NodeProto {
        name: Some(output.to_string()),
        op_type: Some(op.to_string()),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: vec![output.to_string()],
        attribute: attributes.iter().map(attribute).collect(),
        ..NodeProto::default()
    }
}

fn value(name: &str, dtype: DType, dims: &[&str]) -> ValueInfoProto {
    let dim = |dim: &&str| Dimension {
        value: Some(match dim.parse() {
            Ok(n) => dimension::Value::DimValue(n),
            Err(_) => dimension::Value::DimParam(dim.to_string()),
        }),
        ..Dimension::default()
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let elem_type = Some(if dtype == DType::String { 8 } else { 1 });
    let tensor = type_proto::Tensor { elem_type, shape: Some(shape) };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.to_string()), r#type: Some(ty), ..ValueInfoProto::default() }
}

/// Numbers between -1 and 1 that do not repeat soon.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i + seed) * 7919 % 2003) as f32 / 1001.5 - 1.0).collect()
}

fn onnx(nodes: Vec<NodeProto>, inputs: Vec<ValueInfoProto>, outputs: Vec<ValueInfoProto>) -> OnnxModel {
    let weight = |(seed, (name, dims)): (usize, (&str, &[usize]))| {
        to_proto(&Tensor::from_elements(dims, &numbers(dims.iter().product(), seed)).unwrap(), name)
    };
    let weights: [(&str, &[usize]); 4] =
        [("up", &[WIDTH, 256]), ("down", &[256, WIDTH]), ("scale", &[WIDTH]), ("head", &[WIDTH, 16])];
    let graph = GraphProto {
        name: Some("block".to_string()),
        node: nodes,
        input: inputs,
        output: outputs,
        initializer: weights.into_iter().enumerate().map(weight).collect(),
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { version: Some(17), ..OperatorSetIdProto::default() };
    let proto = ModelProto {
        ir_version: Some(8),
        graph: Some(graph),
        opset_import: vec![opset],
        ..ModelProto::default()
    };
    OnnxModel::from_proto(proto).unwrap()
}

/// A block of a transformer over `x`, and a head of the batch alone over `c`.
fn block() -> OnnxModel {
    let nodes = vec![
        node("LayerNormalization", &["x", "scale"], "normal", &[("axis", -1)]),
        node("MatMul", &["normal", "up"], "wide", &[]),
        node("Tanh", &["wide"], "active", &[]),
        node("MatMul", &["active", "down"], "narrow", &[]),
        node("Add", &["narrow", "x"], "sum", &[]),
        node("Softmax", &["sum"], "y", &[("axis", 1)]),
        node("MatMul", &["c", "head"], "scores", &[]),
        node("Relu", &["scores"], "z", &[]),
    ];
    onnx(
        nodes,
        vec![value("x", DType::F32, &["batch", "seq", "64"]), value("c", DType::F32, &["batch", "64"])],
        vec![value("y", DType::F32, &["batch", "seq", "64"]), value("z", DType::F32, &["batch", "16"])],
    )
}

fn options(codegen: CodegenKind, dims: &[&str]) -> Options {
    let dims = dims.iter().map(|dim| dim.parse().unwrap()).collect();
    Options { dims, ..Options::host(codegen) }
}

fn codegens() -> Vec<CodegenKind> {
    let mut all = vec![CodegenKind::Cranelift];
    all.extend(Some(Options::best_codegen()).filter(|best| *best != CodegenKind::Cranelift));
    all
}

fn compile(codegen: CodegenKind, dims: &[&str]) -> Compiled {
    compile_model(&block(), &options(codegen, dims), &mut ()).unwrap()
}

/// A model with the interpreter's outputs for each extents seen.
struct Subject {
    compiled: Compiled,
    model: Model,
    expected: HashMap<(usize, usize), Vec<Vec<f32>>>,
}

impl Subject {
    fn new(compiled: Compiled) -> Subject {
        let bytes = compiled.artifact.to_bytes().unwrap();
        let model = tilewright_driver::loader(Trust::Origin).from_bytes(bytes).unwrap();
        Subject { compiled, model, expected: HashMap::new() }
    }

    fn session(&self, threads: usize) -> Session {
        let pool = Arc::new(ThreadPool::new(threads));
        self.model.session_with(SessionOptions { pool, ..SessionOptions::default() })
    }

    /// Runs inputs of these extents and compares; the extents of the program that ran.
    fn run(&mut self, session: &mut Session, batch: usize, seq: usize) -> Vec<(String, u64)> {
        let dims: [&[usize]; 2] = [&[batch, seq, WIDTH], &[batch, WIDTH]];
        let inputs: Vec<Vec<f32>> = dims
            .iter()
            .enumerate()
            .map(|(i, dims)| numbers(dims.iter().product(), i + batch + seq))
            .collect();
        let graph = &self.compiled.graph;
        let expected = self.expected.entry((batch, seq)).or_insert_with(|| {
            let data = |(dims, values): (&&[usize], &Vec<f32>)| TensorData {
                dtype: DType::F32,
                shape: dims.iter().map(|&d| d as i64).collect(),
                bytes: values.iter().flat_map(|x| x.to_le_bytes()).collect(),
            };
            let data: Vec<TensorData> = dims.iter().zip(&inputs).map(data).collect();
            let outputs = Reference::new(graph).unwrap().run(&data, &mut |_, _| {}).unwrap();
            outputs.iter().map(|output| output.to_f32().unwrap()).collect()
        });
        let views: Vec<TensorView<'_>> =
            dims.iter().zip(&inputs).map(|(dims, x)| TensorView::of(dims, x)).collect();
        let outputs = session.run(&views).unwrap();
        for (n, expected) in expected.iter().enumerate() {
            let found = outputs.get(n).and_then(|view| view.to_vec::<f32>()).unwrap();
            assert_eq!(found.len(), expected.len(), "output {n} of {batch} x {seq}");
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-4 * (1.0 + b.abs());
            assert!(found.iter().zip(expected).all(close), "output {n} of {batch} x {seq}");
        }
        session.program().extents().to_vec()
    }
}

#[test]
fn programs_of_all_extents_compute_what_the_interpreter_does() {
    for codegen in codegens() {
        let mut subject = Subject::new(compile(codegen, &["batch=0..4", "seq=0..40:8"]));
        let extents: Vec<Vec<(String, u64)>> =
            subject.model.specialised().iter().map(|program| program.extents().to_vec()).collect();
        assert_eq!(extents, [8, 16, 24, 32, 40].map(|n| vec![("seq".to_string(), n)]));
        for threads in [1, 2] {
            let mut session = subject.session(threads);
            let sizes = [(1, 8), (3, 8), (1, 7), (3, 40), (0, 8), (2, 0), (0, 0), (3, 9), (4, 39), (3, 16)];
            for (batch, seq) in sizes {
                let ran = subject.run(&mut session, batch, seq);
                let is_special = seq > 0 && seq % 8 == 0;
                let expect: Vec<_> =
                    is_special.then(|| ("seq".to_string(), seq as u64)).into_iter().collect();
                assert_eq!(ran, expect, "{batch} x {seq}");
            }
        }
    }
}

/// What is compiled may rely on the bounds; at both of them, and where no tile is whole.
#[test]
fn bounds_alone_leave_one_program() {
    for codegen in codegens() {
        let mut subject = Subject::new(compile(codegen, &["batch=2..3", "seq=9..40"]));
        assert!(subject.model.specialised().is_empty());
        let mut session = subject.session(2);
        for (batch, seq) in [(2, 9), (3, 40), (2, 17), (3, 9), (2, 39)] {
            assert_eq!(subject.run(&mut session, batch, seq), []);
        }
    }
}

#[test]
fn several_dimensions_are_specialised_together() {
    let mut subject = Subject::new(compile(Options::best_codegen(), &["batch=1..3:1", "seq=1..20:10"]));
    assert_eq!(subject.model.specialised().len(), 6);
    let mut session = subject.session(1);
    let both = |batch, seq| vec![("batch".to_string(), batch), ("seq".to_string(), seq)];
    for (batch, seq, expect) in
        [(3, 20, both(3, 20)), (3, 19, vec![]), (1, 10, both(1, 10)), (3, 10, both(3, 10)), (2, 1, vec![])]
    {
        assert_eq!(subject.run(&mut session, batch, seq), expect, "{batch} x {seq}");
    }
    // An extent on which inputs disagree is told as that of the model, whichever program their first one fits.
    let (x, c) = (numbers(3 * 10 * WIDTH, 0), numbers(2 * WIDTH, 0));
    let inputs = [TensorView::of(&[3, 10, WIDTH], &x), TensorView::of(&[2, WIDTH], &c)];
    let error = session.run(&inputs).map(drop).unwrap_err().to_string();
    assert_eq!(error, "\"c\": axis 0 must be batch = 3, got 2");
}

#[test]
fn an_extent_outside_of_the_bounds_is_an_error_that_says_what_to_do() {
    let mut subject = Subject::new(compile(Options::best_codegen(), &["batch=1..4", "seq=2..40:20"]));
    let mut session = subject.session(1);
    for (batch, seq, said) in [
        (1, 41, &["\"x\": axis 1, seq is 41, but the model was compiled for 2 to 40", "--dim seq=2..41"][..]),
        (1, 1, &["seq is 1", "--dim seq=1..40"]),
        (5, 40, &["\"x\": axis 0, batch is 5, but the model was compiled for 1 to 4", "--dim batch=1..5"]),
        (0, 50, &["batch is 0", "seq is 50"]),
    ] {
        let (x, c) = (numbers(batch * seq * WIDTH, 0), numbers(batch * WIDTH, 0));
        let (of_x, of_c) = ([batch, seq, WIDTH], [batch, WIDTH]);
        let error = session.run(&[TensorView::of(&of_x, &x), TensorView::of(&of_c, &c)]).map(drop);
        let error = error.unwrap_err().to_string();
        assert!(said.iter().all(|said| error.contains(said)), "{error}");
    }
    assert_eq!(subject.run(&mut session, 1, 40), [("seq".to_string(), 40)], "usable after errors");
}

#[test]
fn programs_share_weights_and_code() {
    let codegen = Options::best_codegen();
    let open = compile(codegen, &["batch=1..4", "seq=1..320"]);
    let specialised = compile(codegen, &["batch=1..4", "seq=1..320:40"]);
    let bytes = |compiled: &Compiled| compiled.artifact.levels[0].plan.weight_bytes;
    // Eight programs more, and hardly a byte: they have settled on one form for each matrix.
    let (one, nine) = (bytes(&open), bytes(&specialised));
    assert!(one > 100_000 && nine <= one + one / 20, "{one} and {nine} bytes of weights");
    let image = &specialised.artifact.manifest.images[0];
    assert_eq!(image.specialised.len(), 8);
    // What depends on the batch alone is the same code in every program.
    let entries: Vec<HashSet<u64>> =
        image.programs().map(|program| program.entries.iter().copied().collect()).collect();
    let shared = entries.iter().skip(1).fold(entries[0].clone(), |all, some| &all & some);
    assert!(!shared.is_empty(), "{entries:?}");
    let calls: usize = image.programs().map(|program| program.entries.len()).sum();
    let different: HashSet<u64> = entries.into_iter().flatten().collect();
    assert!(different.len() + 8 <= calls, "{} of {calls} kernels", different.len());
    // The same bytes when compiled again.
    let again = compile(codegen, &["batch=1..4", "seq=1..320:40"]);
    assert!(specialised.artifact.to_bytes().unwrap()[..] == again.artifact.to_bytes().unwrap()[..]);
}

#[test]
fn memory_is_stable_whatever_extents_come() {
    let mut subject = Subject::new(compile(Options::best_codegen(), &["batch=0..3", "seq=0..48:6"]));
    let mut session = subject.session(2);
    let mut random = fastrand::Rng::with_seed(11);
    // Every program at its largest.
    for seq in (0..=48).rev().filter(|seq| seq % 6 == 0 || *seq == 47) {
        subject.run(&mut session, 3, seq);
    }
    let memory = session.memory();
    let mut ran = HashSet::new();
    for _ in 0..1000 {
        let (batch, seq) = (random.usize(0..=3), random.usize(0..=48));
        ran.insert(subject.run(&mut session, batch, seq));
        assert_eq!(session.memory(), memory, "{batch} x {seq}");
    }
    assert_eq!(ran.len(), 9, "all programs ran");
}

#[test]
fn levels_have_their_programs_each() {
    let mut options = options(CodegenKind::Cranelift, &["batch=1", "seq=1..16:8"]);
    options.target = "x86-64-v2@cranelift".parse().unwrap();
    options.more_targets = vec!["x86-64-v3@cranelift".parse().unwrap()];
    let compiled = compile_model(&block(), &options, &mut ()).unwrap();
    for (level, image) in compiled.artifact.levels.iter().zip(&compiled.artifact.manifest.images) {
        assert_eq!((level.specialised.len(), image.specialised.len()), (2, 2));
    }
    if cfg!(target_arch = "x86_64") {
        let mut subject = Subject::new(compiled);
        let mut session = subject.session(1);
        assert_eq!(subject.run(&mut session, 1, 16), [("seq".to_string(), 16)]);
        assert_eq!(subject.run(&mut session, 1, 15), []);
    }
}

#[test]
fn what_cannot_be_specialised_is_refused() {
    let refused = |model: &OnnxModel, dims: &[&str], code: u8, said: &[&str]| {
        let error: CompileError =
            compile_model(model, &options(CodegenKind::Cranelift, dims), &mut ()).map(drop).unwrap_err();
        let text = error.to_string();
        assert!(error.exit_code() == code && said.iter().all(|said| text.contains(said)), "{text}");
    };
    let model = block();
    refused(
        &model,
        &["seq=1..99:3"],
        4,
        &["33 programs would be specialised, 32 at most", "--dim seq=1..99:3 asks for 33"],
    );
    refused(&model, &["batch=1..8:1", "seq=1..64:8"], 4, &["64 programs", "--dim batch=1..8:1 asks for 8"]);
    refused(&model, &["sequence=1..8:4"], 2, &["`sequence`", "the open ones are: `batch`, `seq`"]);
    // A run has nothing to choose a program by where only strings have the extent.
    let words = onnx(
        vec![node("StringNormalizer", &["s"], "t", &[])],
        vec![value("s", DType::String, &["n"])],
        vec![value("t", DType::String, &["m"])],
    );
    refused(&words, &["n=1..8:4"], 2, &["--dim n=1..8:4", "leave the step out"]);
    // Extents that the model cannot have.
    let product = onnx(
        vec![node("MatMul", &["x", "up"], "y", &[])],
        vec![value("x", DType::F32, &["n", "k"])],
        vec![value("y", DType::F32, &["n", "256"])],
    );
    refused(&product, &["k=1..64:32"], 2, &["extents differ"]);
}
