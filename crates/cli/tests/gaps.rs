//! Every gap of a model is found at once, and the same ones by `inspect`, by `compile` and by the library.

mod common;

use common::{fail, model, node, save, succeed, value};
use serde_json::{Value, json};
use tilewright_driver::onnx::OnnxModel;
use tilewright_driver::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto, attribute_proto::AttributeType,
    type_proto,
};
use tilewright_driver::{CompileError, Gap, Options, Survey};

/// Element types as ONNX numbers them.
const F64: i32 = 11;
const STRING: i32 = 8;
const BOOL: i32 = 9;
const I64: i32 = 7;

/// The target that lacks what the model's last gap needs: fused multiply-add of 64-bit floats.
const TARGET: [&str; 4] = ["--target", "x86-64-v2", "--codegen", "cranelift"];

fn typed(name: &str, elem_type: i32, dims: &[&str]) -> ValueInfoProto {
    let mut info = value(name, dims);
    if let Some(type_proto::Value::TensorType(tensor)) = info.r#type.as_mut().and_then(|ty| ty.value.as_mut())
    {
        tensor.elem_type = Some(elem_type);
    }
    info
}

fn with(node: NodeProto, attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto { attribute, ..node }
}

fn int(name: &str, i: i64) -> AttributeProto {
    let kind = Some(AttributeType::Int as i32);
    AttributeProto { name: Some(name.into()), r#type: kind, i: Some(i), ..AttributeProto::default() }
}

fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    let kind = Some(AttributeType::Ints as i32);
    AttributeProto { name: Some(name.into()), r#type: kind, ints: ints.to_vec(), ..AttributeProto::default() }
}

fn string(name: &str, s: &str) -> AttributeProto {
    let (kind, s) = (Some(AttributeType::String as i32), Some(s.as_bytes().to_vec().into()));
    AttributeProto { name: Some(name.into()), r#type: kind, s, ..AttributeProto::default() }
}

fn body(name: &str, graph: GraphProto) -> AttributeProto {
    let kind = Some(AttributeType::Graph as i32);
    AttributeProto { name: Some(name.into()), r#type: kind, g: Some(graph), ..AttributeProto::default() }
}

/// A model with a gap in each stage, two in the import. Those of lowering and of the plan lie behind others.
fn five_gaps() -> ModelProto {
    let iteration = GraphProto {
        name: Some("iteration".into()),
        node: vec![node("Identity", &["go"], &["on"]), node("Identity", &["joined"], &["line"])],
        input: vec![typed("i", I64, &[]), typed("go", BOOL, &[])],
        output: vec![typed("on", BOOL, &[]), typed("line", STRING, &["4"])],
        ..GraphProto::default()
    };
    let nodes = vec![
        node("my.domain.Frobnicate", &["words"], &["odd"]),
        // Its padding depends on the extent `h`.
        with(
            node("AveragePool", &["image"], &["pooled"]),
            vec![string("auto_pad", "SAME_UPPER"), ints("kernel_shape", &[2, 2]), ints("strides", &[3, 3])],
        ),
        with(node("Concat", &["odd", "words"], &["joined"]), vec![int("axis", 0)]),
        with(node("Loop", &["n", ""], &["lines"]), vec![body("body", iteration)]),
        node("MatMul", &["matrix", "matrix"], &["square"]),
        node("Relu", &["pooled"], &["positive"]),
    ];
    let inputs = vec![
        typed("words", STRING, &["2"]),
        value("image", &["1", "1", "h", "4"]),
        typed("n", I64, &[]),
        typed("matrix", F64, &["8", "8"]),
    ];
    let outputs = vec![
        typed("lines", STRING, &["n_lines", "4"]),
        typed("square", F64, &["8", "8"]),
        value("positive", &["1", "1", "rows", "2"]),
    ];
    let mut model = model(17, nodes, inputs, outputs);
    if let Some(graph) = &mut model.graph {
        graph.value_info = vec![typed("odd", STRING, &["2"]), value("pooled", &["1", "1", "rows", "2"])];
    }
    model
}

fn as_json(gap: &Gap) -> Value {
    json!({
        "stage": gap.stage.name(), "operator": gap.operator, "domain": gap.domain, "opset": gap.opset,
        "node": gap.node, "reason": gap.reason, "hint": gap.hint,
    })
}

#[test]
fn one_report_of_five_gaps_in_five_places() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let proto = five_gaps();
    save(dir, "m.onnx", &proto);

    let report = succeed(dir, &[&["inspect", "m.onnx", "--json"], &TARGET[..]].concat()).json();
    assert_eq!(report["supported"], false);
    let listed = report["unsupported"].as_array().unwrap();
    let place = |gap: &Value| {
        let text = |key: &str| gap[key].as_str().unwrap().to_string();
        (text("stage"), text("domain"), text("operator"), gap["opset"].as_i64().unwrap(), text("node"))
    };
    let expected = [
        ("import", "my.domain", "Frobnicate", 0, "node_odd"),
        ("import", "", "AveragePool", 17, "node_pooled"),
        ("lower", "", "Concat", 17, "node_joined"),
        ("codegen", "", "MatMul", 17, "node_square"),
        ("plan", "", "Loop", 17, "node_lines"),
    ]
    .map(|(stage, domain, operator, opset, node)| {
        (stage.to_string(), domain.to_string(), operator.to_string(), opset, node.to_string())
    });
    assert_eq!(listed.iter().map(place).collect::<Vec<_>>(), expected, "{listed:#?}");

    let model = OnnxModel::from_proto(proto).unwrap();
    let options = Options::for_target("x86-64-v2@cranelift".parse().unwrap());
    let Survey { graph, gaps } = tilewright_driver::survey(&model, &options).unwrap();
    assert!(graph.is_none());
    assert_eq!(gaps.iter().map(as_json).collect::<Vec<_>>(), *listed);
    match tilewright_driver::compile_model(&model, &options, &mut ()) {
        Err(CompileError::Gaps(refused)) => assert_eq!(refused, gaps),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it compiles"),
    }

    let lines: Vec<String> = gaps.iter().map(Gap::to_string).collect();
    let said: Vec<&str> = lines.iter().map(String::as_str).chain(["m.onnx", "for 5 reasons"]).collect();
    fail(dir, &[&["compile", "m.onnx"], &TARGET[..]].concat(), 3, &said);
    let text = succeed(dir, &[&["inspect", "m.onnx"], &TARGET[..]].concat()).out;
    assert!(lines.iter().all(|line| text.contains(line)), "{text}");
}
