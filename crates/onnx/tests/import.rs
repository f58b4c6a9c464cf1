//! Import: what graphs become, and what is wrong with models that do not import.

use tilewright_graph::op::Op;
use tilewright_graph::tensor::Tensor;
use tilewright_graph::{Graph, Range, ValueId};
use tilewright_onnx::import::{DimOption, FaultKind, Partial, import_partial};
use tilewright_onnx::proto::*;
use tilewright_onnx::tensor::to_proto;
use tilewright_onnx::{ImportErrors, ImportOptions, OnnxModel, export, import, import_noting};

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

fn names(list: &str) -> Vec<String> {
    list.split_whitespace().map(|name| if name == "-" { String::new() } else { name.to_owned() }).collect()
}

/// A value `NAME:DIM,DIM` of 32-bit floats; a dim is a number, a name, or `?`.
fn value(spec: &str) -> ValueInfoProto {
    typed_value(spec, tensor_proto::DataType::Float)
}

fn typed_value(spec: &str, data_type: tensor_proto::DataType) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let (name, dims) = spec.split_once(':').unwrap();
    let dim = |dim: &str| {
        let value = match (dim, dim.parse()) {
            ("?", _) => None,
            (_, Ok(extent)) => Some(Value::DimValue(extent)),
            (name, Err(_)) => Some(Value::DimParam(name.to_owned())),
        };
        Dimension { value, denotation: None }
    };
    let dim = dims.split(',').filter(|dim| !dim.is_empty()).map(dim).collect();
    let tensor =
        type_proto::Tensor { elem_type: Some(data_type as i32), shape: Some(TensorShapeProto { dim }) };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), denotation: None };
    ValueInfoProto { name: text(name), r#type: Some(ty), ..ValueInfoProto::default() }
}

fn node(op_type: &str, input: &str, output: &str, attribute: Vec<AttributeProto>) -> NodeProto {
    let (input, output) = (names(input), names(output));
    NodeProto { op_type: text(op_type), input, output, attribute, ..NodeProto::default() }
}

fn attribute(name: &str, r#type: attribute_proto::AttributeType) -> AttributeProto {
    AttributeProto { name: text(name), r#type: Some(r#type as i32), ..AttributeProto::default() }
}

fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), ..attribute(name, attribute_proto::AttributeType::Int) }
}

fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { f: Some(value), ..attribute(name, attribute_proto::AttributeType::Float) }
}

fn subgraph(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(graph), ..attribute(name, attribute_proto::AttributeType::Graph) }
}

fn graph(inputs: &[&str], nodes: Vec<NodeProto>, outputs: &[&str]) -> GraphProto {
    GraphProto {
        name: text("g"),
        node: nodes,
        input: inputs.iter().map(|spec| value(spec)).collect(),
        output: outputs.iter().map(|spec| value(spec)).collect(),
        ..GraphProto::default()
    }
}

fn model(opset: i64, graph: GraphProto) -> ModelProto {
    let import = OperatorSetIdProto { domain: None, version: Some(opset) };
    ModelProto {
        ir_version: Some(10),
        graph: Some(graph),
        opset_import: vec![import],
        ..ModelProto::default()
    }
}

fn run_with(model: ModelProto, options: &ImportOptions) -> Result<Graph, ImportErrors> {
    import(&OnnxModel::from_proto(model).unwrap(), options)
}

fn run(model: ModelProto) -> Result<Graph, ImportErrors> {
    run_with(model, &ImportOptions::default())
}

/// The operators of the main region in order, and the types of the outputs.
fn summary(graph: &Graph) -> String {
    let region = graph.region(graph.main());
    let ops: Vec<&str> = region.nodes.iter().map(|&node| graph.node(node).op.name()).collect();
    let types: Vec<String> =
        graph.outputs().iter().map(|&value| graph.ty(value).display(&graph.symbols).to_string()).collect();
    format!("{} -> {}", ops.join(" "), types.join(" "))
}

fn check(opset: i64, graph: GraphProto, expect: &str) {
    assert_eq!(summary(&run(model(opset, graph)).unwrap()), expect);
}

fn check_fault(opset: i64, graph: GraphProto, kind: FaultKind, expect: &str) {
    let errors = run(model(opset, graph)).unwrap_err();
    let [fault] = errors.faults.as_slice() else { panic!("expected one fault, got {errors}") };
    assert_eq!(fault.kind, kind, "{errors}");
    assert!(errors.to_string().contains(expect), "expected `{expect}` in `{errors}`");
}

#[test]
fn open_extents_are_symbols() {
    let relu = || graph(&["x:batch,?,3"], vec![node("Relu", "x", "y", vec![])], &["y:batch,?,3"]);
    check(17, relu(), "Unary -> f32[batch, \"x[1]\", 3]");
    let with = |name: &str, option| {
        let dims = [(name.to_owned(), option)].into();
        run_with(model(17, relu()), &ImportOptions { dims, ..ImportOptions::default() })
    };
    assert_eq!(summary(&with("batch", DimOption::Fixed(4)).unwrap()), "Unary -> f32[4, \"x[1]\", 3]");
    let range = Range { lo: 1, hi: Some(8), step: 1 };
    let ranged = with("x[1]", DimOption::Range(range)).unwrap();
    assert_eq!(ranged.symbols[ranged.symbols.find("x[1]").unwrap()].range, range);
    let empty = Range { lo: 9, hi: Some(8), step: 1 };
    let error = with("batch", DimOption::Range(empty)).unwrap_err().to_string();
    assert!(error.contains("the range of extent `batch` is empty"), "{error}");
    let error = with("seq", DimOption::Fixed(4)).unwrap_err().to_string();
    assert!(error.contains("the open ones are: `batch`, `x[1]`"), "{error}");
    let error = with("batch", DimOption::Fixed(-1)).unwrap_err().to_string();
    assert!(error.contains("extent `batch` cannot be -1"), "{error}");
}

#[test]
fn all_faults_come_at_once() {
    let nodes = vec![
        node("Frobnicate", "x", "a", vec![]),
        node("Relu", "a", "b", vec![]),
        NodeProto { domain: text("com.example"), ..node("Twist", "b", "c", vec![]) },
        node("Relu", "x", "d", vec![int("slope", 3)]),
        node("RMSNormalization", "x x", "e", vec![]),
        node("Concat", "c d e", "y", vec![int("axis", 0)]),
    ];
    let errors = run(model(17, graph(&["x:2"], nodes, &["y:6"]))).unwrap_err();
    assert!(errors.is_unsupported());
    let text = errors.to_string();
    for expect in [
        "for 4 reasons",
        "Frobnicate (opset 17) `a`: unknown operator",
        "com.example::Twist `c`: unknown operator of domain `com.example`",
        "Relu (opset 17) `d`: unknown attribute `slope`",
        "RMSNormalization (opset 17) `e`: the operator came with opset 23",
    ] {
        assert!(text.contains(expect), "expected `{expect}` in `{text}`");
    }
}

#[test]
fn a_partial_import_keeps_what_is_sound() {
    let nodes = vec![
        node("Exp", "x", "before", vec![]),
        NodeProto { domain: text("com.example"), ..node("Twist", "before", "declared undeclared", vec![]) },
        node("Relu", "declared", "y", vec![]),
        node("Relu", "undeclared", "lost", vec![]),
        node("Frobnicate", "lost", "z", vec![]),
    ];
    let mut graph = graph(&["x:n"], nodes, &["y:n", "z:n"]);
    graph.value_info = vec![value("declared:n")];
    let model = OnnxModel::from_proto(model(17, graph)).unwrap();
    let Partial { graph, faults, origins } = import_partial(&model, &ImportOptions::default());
    assert_eq!(summary(&graph), "Unary Unary -> f32[n] f32[n]");
    let names = |values: &[ValueId]| -> Vec<String> {
        values.iter().map(|&value| graph.value(value).name.as_deref().unwrap().to_owned()).collect()
    };
    assert_eq!(names(graph.inputs()), ["x", "declared", "z"]);
    assert_eq!(names(graph.outputs()), ["y", "before"]);
    let nodes: Vec<&str> = faults.iter().map(|fault| fault.node.as_str()).collect();
    assert_eq!(nodes, ["declared", "z"]);
    let twist = origins.find(["declared"], "").unwrap();
    assert_eq!((twist.domain.as_str(), twist.operator.as_str(), twist.opset), ("com.example", "Twist", 0));
    assert_eq!(origins.find(["y"], "Unary").unwrap().to_string(), "Relu (opset 17)");
}

#[test]
fn unknown_opsets_are_faults() {
    let one = || graph(&["x:2"], vec![node("Relu", "x", "y", vec![])], &["y:2"]);
    let errors = run(model(99, one())).unwrap_err();
    assert!(errors.to_string().contains("opset 99 is not known; the known ones are 1 to 28"), "{errors}");
    let nothing = ModelProto { opset_import: vec![], ..model(17, one()) };
    assert!(run(nothing).unwrap_err().to_string().contains("imports no operator set"));
}

#[test]
fn malformed_graphs_are_faults() {
    let cycle = vec![node("Relu", "b", "a", vec![]), node("Relu", "a", "b", vec![])];
    check_fault(17, graph(&["x:2"], cycle, &["b:2"]), FaultKind::Cycle, "2 nodes form a cycle: `a`, `b`");
    let dangling = vec![node("Add", "x ghost", "y", vec![])];
    check_fault(
        17,
        graph(&["x:2"], dangling, &["y:2"]),
        FaultKind::DanglingInput,
        "input `ghost` is never defined",
    );
    check_fault(
        17,
        graph(&["x:2"], vec![], &["y:2"]),
        FaultKind::DanglingInput,
        "`y`: the graph output is never",
    );
    let twice = vec![node("Relu", "x", "y", vec![]), node("Neg", "x", "y", vec![])];
    check_fault(
        17,
        graph(&["x:2"], twice, &["y:2"]),
        FaultKind::DuplicateName,
        "`y`: the name is defined twice",
    );
    let arity = vec![node("Relu", "x x", "y", vec![])];
    check_fault(17, graph(&["x:2"], arity, &["y:2"]), FaultKind::Arity, "has 2 inputs, but takes 1");
    let outputs = vec![node("Relu", "x", "y z", vec![])];
    check_fault(17, graph(&["x:2"], outputs, &["y:2"]), FaultKind::Arity, "has 2 outputs, but gives 1");
    let absent = vec![node("Add", "x -", "y", vec![])];
    check_fault(17, graph(&["x:2"], absent, &["y:2"]), FaultKind::Arity, "input 1 is missing");
    let mut declared = graph(&["x:2"], vec![node("Relu", "x", "y", vec![])], &[]);
    declared.output = vec![typed_value("y:2", tensor_proto::DataType::Int64)];
    check_fault(17, declared, FaultKind::Type, "declared as i64[2], but it is f32[2]");
    let shapes = vec![node("Add", "x z", "y", vec![])];
    check_fault(17, graph(&["x:2", "z:3"], shapes, &["y:3"]), FaultKind::Type, "do not broadcast");
    let axis = vec![node("Softmax", "x", "y", vec![int("axis", 5)])];
    check_fault(
        17,
        graph(&["x:2"], axis, &["y:2"]),
        FaultKind::Malformed,
        "axis 5 is out of range for rank 1",
    );
    let wrong = vec![node("Softmax", "x", "y", vec![float("axis", 0.0)])];
    check_fault(
        17,
        graph(&["x:2"], wrong, &["y:2"]),
        FaultKind::Malformed,
        "attribute `axis` is FLOAT, not INT",
    );
}

#[test]
fn nodes_may_come_in_any_order() {
    let nodes = vec![node("Neg", "a", "y", vec![]), node("Relu", "x", "a", vec![])];
    check(17, graph(&["x:2"], nodes, &["y:2"]), "Unary Unary -> f32[2]");
}

#[test]
fn meaning_depends_on_the_opset() {
    let softmax = || graph(&["x:2,3,4"], vec![node("Softmax", "x", "y", vec![int("axis", 1)])], &["y:2,3,4"]);
    check(11, softmax(), "Reshape Softmax Reshape -> f32[2, 3, 4]");
    check(13, softmax(), "Softmax -> f32[2, 3, 4]");
    let attributes = vec![int("broadcast", 1), int("axis", 1)];
    let add = graph(&["x:2,3,4", "b:3"], vec![node("Add", "x b", "y", attributes)], &["y:2,3,4"]);
    check(6, add.clone(), "Reshape Binary -> f32[2, 3, 4]");
    let errors = run(model(7, add)).unwrap_err().to_string();
    assert!(errors.contains("do not broadcast"), "{errors}");
    let clip = || graph(&["x:2"], vec![node("Clip", "x", "y", vec![float("max", 6.0)])], &["y:2"]);
    check(6, clip(), "Constant Clip -> f32[2]");
    check_fault(11, clip(), FaultKind::UnknownAttribute, "unknown attribute `max`");
    let upsample = vec![node("Upsample", "x s", "y", vec![])];
    check_fault(
        10,
        graph(&["x:1,1,2,2", "s:4"], upsample, &["y:1,1,4,4"]),
        FaultKind::UnknownOpset,
        "not in opset 10",
    );
}

#[test]
fn initializers_are_constants_unless_overridden() {
    let tensor = tilewright_graph::Tensor::vector(&[1.0f32, 2.0]);
    let build = || GraphProto {
        initializer: vec![to_proto(&tensor, "w")],
        ..graph(&["x:2", "w:2"], vec![node("Add", "x w", "y", vec![])], &["y:2"])
    };
    let constant = run(model(8, build())).unwrap();
    assert_eq!((constant.inputs().len(), summary(&constant).as_str()), (1, "Constant Binary -> f32[2]"));
    let options = ImportOptions { runtime_initializers: ["w".to_owned()].into(), ..ImportOptions::default() };
    let overridden = run_with(model(8, build()), &options).unwrap();
    assert_eq!((overridden.inputs().len(), summary(&overridden).as_str()), (2, "Binary -> f32[2]"));
    let contradicting = GraphProto { input: vec![value("x:2"), value("w:3")], ..build() };
    check_fault(8, contradicting, FaultKind::Type, "which is not what the input of that name declares");
}

fn leaky(depth: usize) -> FunctionProto {
    let reference = AttributeProto { ref_attr_name: text("slope"), ..float("alpha", 0.0) };
    let inner = match depth {
        0 => node("LeakyRelu", "a", "b", vec![AttributeProto { f: None, ..reference }]),
        _ => NodeProto { domain: text("local"), ..node("Leaky", "a", "b", vec![]) },
    };
    FunctionProto {
        name: text("Leaky"),
        domain: text("local"),
        input: names("a"),
        output: names("b"),
        attribute_proto: vec![float("slope", 0.5)],
        node: vec![inner],
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        ..FunctionProto::default()
    }
}

#[test]
fn functions_expand_with_their_attributes() {
    let slope = |call: Vec<AttributeProto>| {
        let call = NodeProto { domain: text("local"), name: text("call"), ..node("Leaky", "x", "y", call) };
        let functions = vec![leaky(0)];
        let graph =
            run(ModelProto { functions, ..model(17, graph(&["x:2"], vec![call], &["y:2"])) }).unwrap();
        let node = graph.node(graph.region(graph.main()).nodes[0]);
        assert_eq!(node.provenance.names().collect::<Vec<_>>(), ["call/b"]);
        let Op::Activation(attrs) = &node.op else { panic!("{:?}", node.op) };
        attrs.alpha.0
    };
    assert_eq!((slope(vec![]), slope(vec![float("slope", 0.25)])), (0.5, 0.25));
    let call = NodeProto { domain: text("local"), ..node("Leaky", "x", "y", vec![]) };
    let endless =
        ModelProto { functions: vec![leaky(1)], ..model(17, graph(&["x:2"], vec![call], &["y:2"])) };
    let errors = run(endless).unwrap_err();
    assert!(errors.is_limit() && errors.to_string().contains("a function calls itself"), "{errors}");
}

#[test]
fn subgraphs_become_closed_regions() {
    let flag = typed_value("c:", tensor_proto::DataType::Bool);
    let then_branch = subgraph("then_branch", graph(&[], vec![node("Add", "x z", "t", vec![])], &["t:2"]));
    let else_branch = subgraph("else_branch", graph(&[], vec![node("Neg", "x", "e", vec![])], &["e:2"]));
    let nodes = vec![node("Relu", "x", "z", vec![]), node("If", "c", "y", vec![then_branch, else_branch])];
    let mut whole = graph(&["x:2"], nodes, &["y:2"]);
    whole.input.push(flag);
    let graph = run(model(17, whole)).unwrap();
    assert_eq!(summary(&graph), "Unary If -> f32[2]");
    let node = graph.node(graph.region(graph.main()).nodes[1]);
    let Op::If(attrs) = &node.op else { panic!("{:?}", node.op) };
    // The condition, then what the branches capture, in alphabetical order.
    let captured: Vec<_> =
        node.inputs[1..].iter().map(|value| graph.value(value.unwrap()).name.as_deref()).collect();
    assert_eq!(captured, [Some("x"), Some("z")]);
    assert_eq!(graph.region(attrs.then_region).params.len(), 2);
    assert_eq!(graph.region(attrs.else_region).params.len(), 2);
}

/// `x` by one of two matrices, as the flag `c` says; only the first fits three columns.
fn by_one_of_two(second: NodeProto) -> ModelProto {
    let matrix = |rows: usize| Tensor::from_elements(&[rows, 4], &vec![1.0f32; rows * 4]).unwrap();
    let branch = |name: &str, node: NodeProto| subgraph(name, graph(&[], vec![node], &["b:?,4"]));
    let branches = vec![
        branch("then_branch", node("MatMul", "x w3", "b", vec![])),
        branch("else_branch", NodeProto { name: text("second"), ..second }),
    ];
    let mut whole = graph(&["x:rows,columns"], vec![node("If", "c", "y", branches)], &["y:?,4"]);
    whole.input.push(typed_value("c:", tensor_proto::DataType::Bool));
    whole.initializer = vec![to_proto(&matrix(3), "w3"), to_proto(&matrix(5), "w5")];
    model(17, whole)
}

#[test]
fn a_branch_that_does_not_fit_fails_when_it_runs() {
    let product = || node("MatMul", "x w5", "b", vec![]);
    let columns = |n: i64| ImportOptions {
        dims: [("columns".to_owned(), DimOption::Fixed(n))].into(),
        ..ImportOptions::default()
    };
    let model = OnnxModel::from_proto(by_one_of_two(product())).unwrap();
    let mut warnings = Vec::new();
    let graph = import_noting(&model, &columns(3), &mut warnings).unwrap();
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.node.ends_with("second") && warning.reason.contains("fails"), "{warning}");
    let failing: Vec<_> = graph.guards.iter().filter(|guard| guard.never_holds()).collect();
    let [guard] = &failing[..] else { panic!("{failing:?}") };
    let other = graph.region(graph.main()).nodes.iter().find_map(|&node| match &graph.node(node).op {
        Op::If(attrs) => Some(attrs.else_region),
        _ => None,
    });
    assert_eq!(Some(guard.region), other);
    let error = export(&graph).unwrap_err();
    assert!(error.reason.contains("fails in every run"), "{error}");

    // The other branch, as it happens; neither; and what is not known is no matter of extents.
    assert!(import(&model, &columns(5)).is_ok());
    let errors = import(&model, &columns(4)).unwrap_err();
    assert_eq!(errors.faults.len(), 2, "{errors}");
    let unknown = OnnxModel::from_proto(by_one_of_two(node("Quux", "x", "b", vec![]))).unwrap();
    assert!(import(&unknown, &columns(3)).unwrap_err().is_unsupported());
}

#[test]
fn loops_widen_what_they_grow() {
    let mut body = graph(&["i:", "c:", "a:?"], vec![], &["c2:", "b:?"]);
    body.input[0] = typed_value("i:", tensor_proto::DataType::Int64);
    body.input[1] = typed_value("c:", tensor_proto::DataType::Bool);
    body.output[0] = typed_value("c2:", tensor_proto::DataType::Bool);
    body.node = vec![node("Identity", "c", "c2", vec![]), node("Concat", "a x", "b", vec![int("axis", 0)])];
    let nodes = vec![node("Loop", "n - x", "y", vec![subgraph("body", body)])];
    let mut whole = graph(&["x:2"], nodes, &["y:?"]);
    whole.input.push(typed_value("n:", tensor_proto::DataType::Int64));
    let graph = run(model(17, whole)).unwrap();
    let ty = graph.ty(graph.outputs()[0]);
    let dims = ty.as_tensor().unwrap().shape.dims().unwrap();
    assert!(dims.len() == 1 && dims[0].as_const().is_none(), "{}", ty.display(&graph.symbols));
}

#[test]
fn every_output_of_a_shared_weight_is_one_constant() {
    let tensor = tilewright_graph::Tensor::vector(&[1.0f32, 2.0]);
    let nodes = vec![
        node("Identity", "w", "v", vec![]),
        node("Add", "x w", "a", vec![]),
        node("Add", "a v", "y", vec![]),
    ];
    let shared = GraphProto { initializer: vec![to_proto(&tensor, "w")], ..graph(&["x:2"], nodes, &["y:2"]) };
    check(17, shared, "Constant Binary Binary -> f32[2]");
}

/// Seeded mutations of models with control flow, functions and shape operands: an error or a graph, never a panic.
#[test]
fn mutations_never_panic() {
    let body = GraphProto {
        input: vec![
            typed_value("i:", tensor_proto::DataType::Int64),
            typed_value("c:", tensor_proto::DataType::Bool),
            value("a:?"),
        ],
        output: vec![typed_value("c:", tensor_proto::DataType::Bool), value("b:?")],
        ..graph(&[], vec![node("Concat", "a x", "b", vec![int("axis", 0)])], &[])
    };
    let call = NodeProto { domain: text("local"), ..node("Leaky", "x", "z", vec![float("slope", 0.25)]) };
    let nodes = vec![
        call,
        node("Loop", "n - z", "r", vec![subgraph("body", body)]),
        node("Unsqueeze", "r axes", "u", vec![]),
        node("ReduceSum", "u axes", "s", vec![]),
        node("Reshape", "s shape", "y", vec![]),
    ];
    let mut whole = graph(&["x:2"], nodes, &["y:?,?"]);
    whole.input.push(typed_value("n:", tensor_proto::DataType::Int64));
    whole.input.push(typed_value("axes:1", tensor_proto::DataType::Int64));
    whole.input.push(typed_value("shape:2", tensor_proto::DataType::Int64));
    let whole = ModelProto { functions: vec![leaky(0)], ..model(17, whole) };
    assert!(run(whole.clone()).is_ok());
    let bytes = prost::Message::encode_to_vec(&whole);
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..5_000 {
        let mut mutant = bytes.clone();
        for _ in 0..1 + random() % 3 {
            let at = random() % mutant.len();
            mutant[at] = if random() % 2 == 0 { random() as u8 } else { mutant[at] ^ (1 << (random() % 8)) };
        }
        if let Ok(model) = OnnxModel::from_bytes(mutant.into())
            && let Ok(graph) = import(&model, &ImportOptions::default())
        {
            drop(tilewright_onnx::export(&graph));
        }
    }
}

/// Exporters leave wrong shapes of results behind; the element type is another matter.
#[test]
fn declared_shapes_that_are_wrong_are_warnings() {
    let nodes = vec![node("Relu", "x", "a", vec![]), node("Flatten", "a", "y", vec![])];
    let mut wrong = graph(&["x:2,3,4"], nodes, &["y:2,13"]);
    wrong.value_info = vec![value("a:5,1")];
    let model = OnnxModel::from_proto(model(17, wrong)).unwrap();
    let mut warnings = Vec::new();
    let imported = import_noting(&model, &ImportOptions::default(), &mut warnings).unwrap();
    assert_eq!(summary(&imported), "Unary Reshape -> f32[2, 12]");
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "`a`: declared as f32[5, 1], but it is f32[2, 3, 4], which holds",
            "`y`: declared as f32[2, 13], but it is f32[2, 12], which holds",
        ]
    );
}

/// A node of one of the preview domains, whose version 1 the model imports.
fn preview(domain: &str, node: NodeProto, inputs: &[&str], outputs: &[&str]) -> ModelProto {
    let node = NodeProto { domain: text(domain), ..node };
    let mut model = model(26, graph(inputs, vec![node], outputs));
    model.opset_import.push(OperatorSetIdProto { domain: text(domain), version: Some(1) });
    model
}

#[test]
fn optimisers_want_whole_groups_of_tensors() {
    let check = |input: &str, attributes: Vec<AttributeProto>, expect: &str| {
        let node = node("Momentum", input, "p q", attributes);
        let inputs = ["r:", "t:", "a:2", "b:2", "c:2", "d:2"];
        let model = preview("ai.onnx.preview.training", node, &inputs, &["p:2", "q:2"]);
        let found = run(model).map(|graph| summary(&graph)).map_err(|errors| errors.faults[0].reason.clone());
        assert!(found.as_ref().is_err_and(|reason| reason.contains(expect)), "{found:?}");
    };
    check("r t a b c", vec![], "attribute `alpha` is missing");
    let attributes = || vec![float("alpha", 0.9), float("beta", 0.9), float("norm_coefficient", 0.0)];
    check("r t a b c", attributes(), "`mode` is ``; known are standard, nesterov");
    let mode = AttributeProto {
        s: Some("standard".as_bytes().to_vec().into()),
        ..attribute("mode", attribute_proto::AttributeType::String)
    };
    let attributes = || [attributes(), vec![mode.clone()]].concat();
    check("r t a b c d", attributes(), "has 4 tensors, but each optimised one comes with 3");
    check("r t a", attributes(), "has 1 tensors, but each optimised one comes with 3");
}

#[test]
fn query_heads_are_whole_groups() {
    let check = |q: &str, expect: Result<&str, &str>| {
        let node = node("FlexAttention", "q k v", "y", vec![]);
        let inputs = [q, "k:b,2,5,8", "v:b,2,5,6"];
        let found = run(preview("ai.onnx.preview", node, &inputs, &["y:?,?,?,?"]));
        let found = found.map(|graph| summary(&graph)).map_err(|errors| errors.faults[0].reason.clone());
        let found = found.as_ref().map(|ops| ops.rsplit(" -> ").next().unwrap()).map_err(String::as_str);
        assert_eq!(found, expect);
    };
    check("q:b,6,n,8", Ok("f32[b, 6, n, 6]"));
    check("q:b,2,n,8", Ok("f32[b, 2, n, 6]"));
    check("q:b,3,n,8", Err("the number of query heads must be a multiple of that of keys and values"));
    check("q:b,n,8", Err("the operands must have rank 4"));
}

/// The length is that of ONNX Runtime, which divides in double precision.
#[test]
fn ranges_of_constant_floats_have_a_known_length() {
    let check = |start: f32, limit: f32, delta: f32, expect: &str| {
        let mut ranged = graph(&["x:1"], vec![node("Range", "s l d", "r", vec![])], &["r:?"]);
        let values = [("s", start), ("l", limit), ("d", delta)];
        let tensor = |(name, value)| to_proto(&Tensor::scalar(value), name);
        ranged.initializer = values.into_iter().map(tensor).collect();
        let found =
            run(model(17, ranged)).map(|graph| summary(&graph)).map_err(|e| e.faults[0].reason.clone());
        let found = found.as_ref().map(|ops| ops.rsplit(" -> ").next().unwrap()).map_err(String::as_str);
        let expect = if expect.starts_with("f32") { Ok(expect) } else { Err(expect) };
        assert_eq!(found, expect, "{start}, {limit}, {delta}");
    };
    check(0.0, 0.3, 0.1, "f32[4]");
    check(0.0, 1.0, 0.1, "f32[10]");
    check(1.0, 0.0, -0.25, "f32[4]");
    check(1.0, 2.0, -0.25, "f32[0]");
    check(0.0, 1.0, 0.0, "the number of elements would be inf");
}

#[test]
fn a_scan_with_a_batch_is_two() {
    let step = |name: &str| {
        let nodes = vec![node("Add", "s e", "t", vec![]), node("Identity", "t", "o", vec![])];
        subgraph(name, graph(&["s:2", "e:2"], nodes, &["t:2", "o:2"]))
    };
    let check = |inputs: &[&str], input: &str, expect: &str| {
        let attributes = vec![step("body"), int("num_scan_inputs", 1)];
        let mut scanned = graph(inputs, vec![node("Scan", input, "y z", attributes)], &["y:?,?", "z:?,?,?"]);
        if let Some(lengths) = scanned.input.iter_mut().find(|input| input.name() == "lengths") {
            *lengths = typed_value("lengths:b", tensor_proto::DataType::Int64);
        }
        assert_eq!(summary(&run(model(8, scanned)).unwrap()), expect);
    };
    check(&["i:b,2", "x:b,n,2"], "- i x", "Scan -> f32[b, 2] f32[b, n, 2]");
    check(&["lengths:b", "i:b,2", "x:b,n,2"], "lengths i x", "Scan -> f32[b, 2] f32[b, n, 2]");
}
