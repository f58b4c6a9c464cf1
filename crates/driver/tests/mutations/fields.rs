//! Every field of a model that can be wrong, one at a time.

use prost::bytes::Bytes;
use tilewright_driver::onnx::proto::tensor_shape_proto::{Dimension, dimension};
use tilewright_driver::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TensorShapeProto, TypeProto, type_proto,
};

use super::random::Random;

/// A place in a model, with what of it may change.
enum Field<'a> {
    /// A number that means something: an attribute, a version.
    Int(&'a mut i64),
    Float(&'a mut f32),
    Ints(&'a mut Vec<i64>),
    Floats(&'a mut Vec<f32>),
    /// A keyword.
    Text(&'a mut Bytes),
    Texts(&'a mut Vec<Bytes>),
    /// An element type or the type of an attribute, by its number.
    Code(&'a mut i32),
    /// The name of an operator.
    Operator(&'a mut Option<String>),
    Domain(&'a mut Option<String>),
    /// Names of values: operands, or results.
    Names(&'a mut Vec<String>),
    Name(&'a mut Option<String>),
    Attributes(&'a mut Vec<AttributeProto>),
    /// The extents of a value that is declared.
    Shape(&'a mut Option<TensorShapeProto>),
    Extent(&'a mut Option<dimension::Value>),
    /// Elements of a tensor, and its type.
    Raw(&'a mut Bytes, i32),
    Nodes(&'a mut Vec<NodeProto>),
}

/// Changes one field, chosen by `random`, and says which; `operators` are names to take for an operator's, and `values` for
/// a value's.
pub(crate) fn mutate(model: &mut ModelProto, random: &mut Random, operators: &[String]) -> String {
    let mut count = 0;
    visit(model, &mut |_, _| count += 1);
    let chosen = random.below(count);
    let values = names(model);
    let (mut place, mut what) = (0, String::new());
    visit(model, &mut |path, field| {
        if place == chosen {
            what = path.to_string();
            change(field, random, operators, &values);
        }
        place += 1;
    });
    what
}

/// The names of all values of the main graph.
fn names(model: &ModelProto) -> Vec<String> {
    let Some(graph) = &model.graph else { return Vec::new() };
    let mut names: Vec<String> = graph.node.iter().flat_map(|node| node.output.clone()).collect();
    names.extend(graph.input.iter().map(|value| value.name().to_string()));
    names.extend(graph.initializer.iter().map(|tensor| tensor.name().to_string()));
    names.extend(["".to_string(), "nobody".to_string()]);
    names
}

type Visitor<'v> = &'v mut dyn FnMut(&str, Field<'_>);

fn visit(model: &mut ModelProto, visitor: Visitor<'_>) {
    for import in &mut model.opset_import {
        if let Some(version) = &mut import.version {
            visitor("opset version", Field::Int(version));
        }
        visitor("opset domain", Field::Domain(&mut import.domain));
    }
    if let Some(version) = &mut model.ir_version {
        visitor("IR version", Field::Int(version));
    }
    if let Some(graph) = &mut model.graph {
        visit_graph(graph, "", visitor);
    }
    for function in &mut model.functions {
        let path = format!("function {}", function.name());
        visitor(&format!("{path}: inputs"), Field::Names(&mut function.input));
        visitor(&format!("{path}: outputs"), Field::Names(&mut function.output));
        visitor(&format!("{path}: nodes"), Field::Nodes(&mut function.node));
        function.node.iter_mut().for_each(|node| visit_node(node, &path, visitor));
    }
}

fn visit_graph(graph: &mut GraphProto, path: &str, visitor: Visitor<'_>) {
    let lists =
        [("input", &mut graph.input), ("output", &mut graph.output), ("value", &mut graph.value_info)];
    for (kind, list) in lists {
        for value in list {
            let path = format!("{path}{kind} {}", value.name());
            visitor(&format!("{path}: name"), Field::Name(&mut value.name));
            if let Some(ty) = &mut value.r#type {
                visit_type(ty, &path, visitor);
            }
        }
    }
    for tensor in &mut graph.initializer {
        let path = format!("{path}initializer {}", tensor.name());
        visit_tensor(tensor, &path, visitor);
    }
    visitor(&format!("{path}nodes"), Field::Nodes(&mut graph.node));
    for node in &mut graph.node {
        visit_node(node, path, visitor);
    }
}

fn visit_type(ty: &mut TypeProto, path: &str, visitor: Visitor<'_>) {
    match &mut ty.value {
        Some(type_proto::Value::TensorType(tensor)) => {
            if let Some(code) = &mut tensor.elem_type {
                visitor(&format!("{path}: element type"), Field::Code(code));
            }
            visitor(&format!("{path}: shape"), Field::Shape(&mut tensor.shape));
            for (axis, dim) in tensor.shape.iter_mut().flat_map(|shape| &mut shape.dim).enumerate() {
                visitor(&format!("{path}: axis {axis}"), Field::Extent(&mut dim.value));
            }
        }
        Some(type_proto::Value::SequenceType(sequence)) => {
            if let Some(inner) = &mut sequence.elem_type {
                visit_type(inner, path, visitor);
            }
        }
        Some(type_proto::Value::OptionalType(optional)) => {
            if let Some(inner) = &mut optional.elem_type {
                visit_type(inner, path, visitor);
            }
        }
        Some(_) | None => {}
    }
}

fn visit_tensor(tensor: &mut TensorProto, path: &str, visitor: Visitor<'_>) {
    visitor(&format!("{path}: dims"), Field::Ints(&mut tensor.dims));
    let data_type = tensor.data_type();
    if let Some(raw) = &mut tensor.raw_data {
        visitor(&format!("{path}: elements"), Field::Raw(raw, data_type));
    }
    if !tensor.int64_data.is_empty() {
        visitor(&format!("{path}: elements"), Field::Ints(&mut tensor.int64_data));
    }
    if !tensor.float_data.is_empty() {
        visitor(&format!("{path}: elements"), Field::Floats(&mut tensor.float_data));
    }
    if !tensor.string_data.is_empty() {
        visitor(&format!("{path}: elements"), Field::Texts(&mut tensor.string_data));
    }
    if let Some(code) = &mut tensor.data_type {
        visitor(&format!("{path}: element type"), Field::Code(code));
    }
}

fn visit_node(node: &mut NodeProto, path: &str, visitor: Visitor<'_>) {
    let path = format!("{path}{} ", node.op_type());
    visitor(&format!("{path}operator"), Field::Operator(&mut node.op_type));
    visitor(&format!("{path}domain"), Field::Domain(&mut node.domain));
    visitor(&format!("{path}inputs"), Field::Names(&mut node.input));
    visitor(&format!("{path}outputs"), Field::Names(&mut node.output));
    visitor(&format!("{path}attributes"), Field::Attributes(&mut node.attribute));
    for attribute in &mut node.attribute {
        let path = format!("{path}{}", attribute.name());
        visitor(&format!("{path}: name"), Field::Name(&mut attribute.name));
        if let Some(code) = &mut attribute.r#type {
            visitor(&format!("{path}: type"), Field::Code(code));
        }
        if let Some(value) = &mut attribute.i {
            visitor(&path, Field::Int(value));
        }
        if let Some(value) = &mut attribute.f {
            visitor(&path, Field::Float(value));
        }
        if let Some(value) = &mut attribute.s {
            visitor(&path, Field::Text(value));
        }
        if !attribute.ints.is_empty() {
            visitor(&path, Field::Ints(&mut attribute.ints));
        }
        if !attribute.floats.is_empty() {
            visitor(&path, Field::Floats(&mut attribute.floats));
        }
        if !attribute.strings.is_empty() {
            visitor(&path, Field::Texts(&mut attribute.strings));
        }
        if let Some(tensor) = &mut attribute.t {
            visit_tensor(tensor, &path, visitor);
        }
        if let Some(ty) = &mut attribute.tp {
            visit_type(ty, &path, visitor);
        }
        for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
            visit_graph(graph, &format!("{path}/"), visitor);
        }
    }
}

/// Keywords of some operator, and none.
const TEXTS: [&[u8]; 14] = [
    b"",
    b"SAME_UPPER",
    b"SAME_LOWER",
    b"VALID",
    b"NOTSET",
    b"reflect",
    b"edge",
    b"wrap",
    b"linear",
    b"cubic",
    b"tanh",
    b"ij,jk->ik",
    b"max",
    b"\xff\xfe",
];

const FLOATS: [f32; 8] = [0.0, -1.0, 1e-30, 2.5, f32::NAN, f32::INFINITY, f32::MAX, 1e10];

fn change(field: Field<'_>, random: &mut Random, operators: &[String], values: &[String]) {
    match field {
        Field::Int(value) => *value = other_int(*value, random),
        Field::Float(value) => *value = FLOATS[random.below(FLOATS.len())],
        Field::Ints(list) => change_ints(list, random),
        Field::Floats(list) => {
            let value = FLOATS[random.below(FLOATS.len())];
            change_list(list, random, value, |_, _| value);
        }
        Field::Text(text) => *text = Bytes::from_static(TEXTS[random.below(TEXTS.len())]),
        Field::Texts(list) => {
            let value = Bytes::from_static(TEXTS[random.below(TEXTS.len())]);
            change_list(list, random, value.clone(), |_, _| value.clone());
        }
        Field::Code(code) => *code = random.below(29) as i32 - 1,
        Field::Operator(name) => *name = operators.get(random.below(operators.len())).cloned(),
        Field::Domain(domain) => {
            let domains =
                [None, Some(""), Some("ai.onnx"), Some("ai.onnx.ml"), Some("com.microsoft"), Some("x")];
            *domain = domains[random.below(domains.len())].map(str::to_string);
        }
        Field::Names(list) => {
            let other = values.get(random.below(values.len())).cloned().unwrap_or_default();
            change_list(list, random, other.clone(), |_, _| other.clone());
        }
        Field::Name(name) => *name = values.get(random.below(values.len())).cloned(),
        Field::Attributes(list) => {
            let twin = list.get(random.below(list.len())).cloned();
            match (twin, random.below(2)) {
                (Some(twin), 0) => list.push(twin),
                (Some(_), _) => drop(list.swap_remove(random.below(list.len()))),
                (None, _) => {}
            }
        }
        Field::Shape(shape) => match (shape.as_mut(), random.below(4)) {
            (Some(shape), 0) => drop(shape.dim.pop()),
            (Some(shape), 1) => {
                let value = Some(dimension::Value::DimValue(random.edge()));
                shape.dim.push(Dimension { value, ..Dimension::default() });
            }
            (Some(shape), 2) => shape.dim.reverse(),
            (Some(_), _) => *shape = None,
            (None, _) => *shape = Some(TensorShapeProto::default()),
        },
        Field::Extent(value) => {
            *value = match (random.below(4), value.take()) {
                (0, _) => Some(dimension::Value::DimParam("open".to_string())),
                (1, Some(dimension::Value::DimValue(extent))) => {
                    Some(dimension::Value::DimValue(extent + random.below(3) as i64 - 1))
                }
                _ => Some(dimension::Value::DimValue(random.edge())),
            };
        }
        Field::Raw(raw, data_type) => change_elements(raw, data_type, random),
        Field::Nodes(list) => change_list(list, random, NodeProto::default(), |node, _| node.clone()),
    }
}

fn other_int(value: i64, random: &mut Random) -> i64 {
    match random.below(4) {
        0 => value.wrapping_add(1),
        1 => value.wrapping_sub(1),
        _ => random.edge(),
    }
}

fn change_ints(list: &mut Vec<i64>, random: &mut Random) {
    let extra = random.edge();
    change_list(list, random, extra, |value, random| other_int(*value, random));
}

/// Shortens, lengthens or permutes a list, or replaces an entry.
fn change_list<T: Clone>(
    list: &mut Vec<T>,
    random: &mut Random,
    extra: T,
    other: impl FnOnce(&T, &mut Random) -> T,
) {
    let (a, b) = (random.below(list.len()), random.below(list.len()));
    match random.below(8) {
        0 => drop(list.pop()),
        1 => list.push(extra),
        2 if !list.is_empty() => list.swap(a, b),
        3 if !list.is_empty() => list.push(list[a].clone()),
        4 if !list.is_empty() => drop(list.remove(a)),
        _ => {
            if let Some(entry) = list.get(a) {
                let entry = other(entry, random);
                list[a] = entry;
            }
        }
    }
}

/// Cuts the bytes off, or makes another number of one element.
fn change_elements(raw: &mut Bytes, data_type: i32, random: &mut Random) {
    let mut bytes = raw.to_vec();
    // By TensorProto.DataType: int64, int32.
    let width = match data_type {
        7 => 8,
        6 => 4,
        _ => 1,
    };
    if random.below(4) == 0 || bytes.len() < width {
        bytes.truncate(random.below(bytes.len() + 1));
    } else {
        let at = width * random.below(bytes.len() / width);
        bytes[at..at + width].copy_from_slice(&random.edge().to_le_bytes()[..width]);
    }
    *raw = bytes.into();
}
