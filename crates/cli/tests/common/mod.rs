//! What the tests of the command share: running it, and making models that are wrong in one way.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use prost::Message;
use tempfile::TempDir;
use tilewright_driver::onnx::proto::attribute_proto::AttributeType;
use tilewright_driver::onnx::proto::tensor_shape_proto::{Dimension, dimension};
use tilewright_driver::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto, TypeProto,
    ValueInfoProto, type_proto,
};

/// Nobody, by the number that Linux gives it.
pub const NOBODY: u32 = 65_534;

/// Whether the tests run as root, which may write everywhere.
pub fn is_root() -> bool {
    Command::new("id").arg("-u").output().unwrap().stdout.trim_ascii() == b"0"
}

/// What a run of the command came to.
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    /// The last line of the output as JSON.
    pub fn json(&self) -> serde_json::Value {
        let line = self.out.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}{}", self.out, self.err))
    }
}

/// Runs the command in `dir`, with a cache that tests share.
pub fn tilewright(dir: &Path, args: &[&str]) -> Run {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    run(command.current_dir(dir).args(args).env("TILEWRIGHT_CACHE_DIR", cache))
}

/// Runs any command.
pub fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Run { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// A run that must succeed.
pub fn succeed(dir: &Path, args: &[&str]) -> Run {
    let run = tilewright(dir, args);
    assert_eq!(run.code, Some(0), "tilewright {args:?}: {}", run.err);
    run
}

/// A run that must fail with a code and a message that has every part, and write no file.
pub fn fail(dir: &Path, args: &[&str], code: i32, parts: &[&str]) {
    let before = files(dir);
    let run = tilewright(dir, args);
    assert_eq!(run.code, Some(code), "tilewright {args:?}: {}{}", run.out, run.err);
    for part in parts {
        assert!(run.err.contains(part), "tilewright {args:?} does not say {part:?} but: {}", run.err);
    }
    assert_eq!(files(dir), before, "tilewright {args:?} left a file");
}

/// The files of a folder, in order.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// A folder for one test, with the example model in it as `digits.onnx`.
pub fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(digits().join("digits.onnx"), dir.path().join("digits.onnx")).unwrap();
    dir
}

/// The example's folder.
pub fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits")
}

/// The path of one image's inputs, as an argument.
pub fn image() -> String {
    digits().join("images/3").display().to_string()
}

/// A node of the default domain, or of another as `DOMAIN.NAME`.
pub fn node(name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let (domain, op_type) = name.rsplit_once('.').unwrap_or(("", name));
    NodeProto {
        name: Some(format!("node_{}", outputs[0])),
        op_type: Some(op_type.to_string()),
        domain: Some(domain.to_string()),
        input: inputs.iter().map(ToString::to_string).collect(),
        output: outputs.iter().map(ToString::to_string).collect(),
        ..NodeProto::default()
    }
}

/// A node with attributes that are lists of integers.
pub fn with_lists(mut node: NodeProto, attributes: &[(&str, &[i64])]) -> NodeProto {
    node.attribute.extend(attributes.iter().map(|(name, values)| AttributeProto {
        name: Some(name.to_string()),
        ints: values.to_vec(),
        r#type: Some(AttributeType::Ints as i32),
        ..AttributeProto::default()
    }));
    node
}

/// A float32 input or output; extents are numbers or names.
pub fn value(name: &str, dims: &[&str]) -> ValueInfoProto {
    let dim = |dim: &&str| Dimension {
        value: Some(match dim.parse() {
            Ok(n) => dimension::Value::DimValue(n),
            Err(_) => dimension::Value::DimParam(dim.to_string()),
        }),
        ..Dimension::default()
    };
    let shape = TensorShapeProto { dim: dims.iter().map(dim).collect() };
    let tensor = type_proto::Tensor { elem_type: Some(1), shape: Some(shape) };
    let ty = TypeProto { value: Some(type_proto::Value::TensorType(tensor)), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.to_string()), r#type: Some(ty), ..ValueInfoProto::default() }
}

/// A sequence of such tensors as an input or output.
pub fn sequence(name: &str, dims: &[&str]) -> ValueInfoProto {
    let element = value(name, dims).r#type.map(Box::new);
    let ty = type_proto::Value::SequenceType(Box::new(type_proto::Sequence { elem_type: element }));
    let ty = TypeProto { value: Some(ty), ..TypeProto::default() };
    ValueInfoProto { name: Some(name.to_string()), r#type: Some(ty), ..ValueInfoProto::default() }
}

/// A model of nodes.
pub fn model(
    opset: i64,
    nodes: Vec<NodeProto>,
    inputs: Vec<ValueInfoProto>,
    outputs: Vec<ValueInfoProto>,
) -> ModelProto {
    let graph = GraphProto {
        name: Some("test".to_string()),
        node: nodes,
        input: inputs,
        output: outputs,
        ..GraphProto::default()
    };
    let opset = OperatorSetIdProto { domain: Some(String::new()), version: Some(opset) };
    ModelProto { ir_version: Some(8), opset_import: vec![opset], graph: Some(graph), ..ModelProto::default() }
}

/// Writes a model.
pub fn save(dir: &Path, name: &str, model: &ModelProto) {
    std::fs::write(dir.join(name), model.encode_to_vec()).unwrap();
}

/// What writes a file: the arguments up to its name.
pub fn writers(model: &str, inputs: &str) -> [Vec<String>; 4] {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    [
        words(&["compile", model, "-o"]),
        words(&["compile", model, "--emit", "loops", "-o"]),
        words(&["run", model, "--codegen", "cranelift", "--inputs", inputs, "--outputs"]),
        words(&["bench", model, "--seconds", "0.01", "--inputs", inputs, "--outputs"]),
    ]
}

/// A run that could not write what it made.
pub fn assert_refused(output: &Output, args: &[String], expected: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{args:?}: {said}");
    assert!(said.contains("cannot write") && said.contains(expected), "{args:?}: {said}");
}
