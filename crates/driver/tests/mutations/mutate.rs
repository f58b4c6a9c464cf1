//! Changes bytes or fields of a model, the same for the same round.

use std::ops::Range;

use prost::Message;
use prost::bytes::Bytes;
use tilewright_driver::onnx::proto::tensor_shape_proto::dimension::Value;
use tilewright_driver::onnx::proto::type_proto;
use tilewright_driver::onnx::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto,
};

use super::random::Random;

/// Tensors of at least so many bytes are weights: what changes inside them changes no more than numbers.
const WEIGHTS: usize = 64;

/// A model to be mutated.
pub(crate) struct Mutator {
    bytes: Vec<u8>,
    proto: ModelProto,
    /// What lies between the weights.
    structure: Vec<Range<usize>>,
}

impl Mutator {
    pub(crate) fn new(bytes: Vec<u8>) -> Mutator {
        // Decoded byte fields are slices of this memory: where they lie tells where the weights are in the file.
        let shared = Bytes::from(bytes.clone());
        let base = shared.as_ptr().addr();
        let proto = ModelProto::decode(shared.clone()).expect("a real model");
        let mut weights = Vec::new();
        if let Some(graph) = &proto.graph {
            collect_weights(graph, base, &mut weights);
        }
        weights.sort_by_key(|range| range.start);
        let mut structure = Vec::new();
        let mut at = 0;
        for weight in weights {
            structure.push(at..weight.start);
            at = weight.end;
        }
        structure.push(at..bytes.len());
        Mutator { bytes, proto, structure }
    }

    /// The bytes of the model after mutation `round`.
    pub(crate) fn mutate(&self, round: u64) -> Vec<u8> {
        let mut random = Random(round.wrapping_mul(0x2545_f491_4f6c_dd1d));
        if round.is_multiple_of(2) {
            return self.mutate_field(&mut random);
        }
        let mut bytes = self.bytes.clone();
        match random.below(7) {
            0 | 1 => {
                for _ in 0..=random.below(4) {
                    bytes[self.place(&mut random)] ^= 1 << random.below(8);
                }
            }
            2 => {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            3 => bytes.truncate(random.below(self.bytes.len())),
            4 => self.run(&mut random, |bytes, run, _| bytes[run].fill(0), &mut bytes),
            5 => self.run(
                &mut random,
                |bytes, run, random| bytes[run].iter_mut().for_each(|byte| *byte = random.next() as u8),
                &mut bytes,
            ),
            _ => {
                // Two runs change places.
                let (a, b, len) = (self.place(&mut random), self.place(&mut random), 1 + random.below(32));
                let len = len.min(a.abs_diff(b)).min(bytes.len() - a.max(b));
                for offset in 0..len {
                    bytes.swap(a + offset, b + offset);
                }
            }
        }
        bytes
    }

    /// A place outside of the weights.
    fn place(&self, random: &mut Random) -> usize {
        let mut at = random.below(self.structure.iter().map(Range::len).sum());
        for range in &self.structure {
            if at < range.len() {
                return range.start + at;
            }
            at -= range.len();
        }
        0
    }

    /// Changes a short run of bytes outside of the weights.
    fn run(
        &self,
        random: &mut Random,
        change: impl Fn(&mut [u8], Range<usize>, &mut Random),
        bytes: &mut [u8],
    ) {
        let start = self.place(random);
        let end = (start + 1 + random.below(16)).min(bytes.len());
        change(bytes, start..end, random);
    }

    /// Changes a field or two: what a byte seldom hits without breaking the whole message.
    fn mutate_field(&self, random: &mut Random) -> Vec<u8> {
        let mut proto = self.proto.clone();
        for _ in 0..=random.below(2) {
            let Some(graph) = &mut proto.graph else { break };
            let mut nth = random.below(count_graphs(graph));
            let Some(graph) = nth_graph(graph, &mut nth) else { break };
            match random.below(12) {
                0 => {
                    if let Some(opset) = random.pick(&mut proto.opset_import) {
                        opset.version = Some(1 + random.below(30) as i64);
                    }
                }
                1 => mutate_value(graph, random),
                2 => {
                    if let Some(tensor) = random.pick(&mut graph.initializer) {
                        mutate_tensor(tensor, random);
                    }
                }
                3 => {
                    let (a, b) = (random.below(graph.node.len()), random.below(graph.node.len()));
                    if a != b {
                        graph.node.swap(a, b);
                    }
                }
                4 => {
                    let other =
                        graph.node.get(random.below(graph.node.len())).and_then(|n| n.op_type.clone());
                    if let Some(node) = random.pick(&mut graph.node) {
                        node.op_type = other;
                    }
                }
                5..=7 => mutate_inputs(graph, random),
                _ => {
                    if let Some(node) = random.pick(&mut graph.node) {
                        mutate_attribute(node, random);
                    }
                }
            }
        }
        proto.encode_to_vec()
    }
}

/// A declared input, output or value gets another type or extent.
fn mutate_value(graph: &mut GraphProto, random: &mut Random) {
    let list: &mut [ValueInfoProto] = match random.below(3) {
        0 => &mut graph.input,
        1 => &mut graph.output,
        _ => &mut graph.value_info,
    };
    let Some(info) = random.pick(list) else { return };
    let Some(type_proto::Value::TensorType(tensor)) = info.r#type.as_mut().and_then(|ty| ty.value.as_mut())
    else {
        return;
    };
    match (random.below(4), &mut tensor.shape) {
        (0, _) => tensor.elem_type = Some(random.below(24) as i32),
        (1, shape) => *shape = None,
        (2, Some(shape)) => drop(shape.dim.pop()),
        (_, Some(shape)) => {
            if let Some(dim) = random.pick(&mut shape.dim) {
                dim.value = match random.below(3) {
                    0 => Some(Value::DimParam("open".to_string())),
                    1 => None,
                    _ => Some(Value::DimValue(random.edge())),
                };
            }
        }
        (_, None) => {}
    }
}

/// A node's operand becomes another value, goes, or comes.
fn mutate_inputs(graph: &mut GraphProto, random: &mut Random) {
    let mut names: Vec<String> = graph.node.iter().flat_map(|node| node.output.clone()).collect();
    names.extend(graph.initializer.iter().map(|tensor| tensor.name().to_string()));
    names.push(String::new());
    let other = names.swap_remove(random.below(names.len()));
    let Some(node) = random.pick(&mut graph.node) else { return };
    let place = random.below(node.input.len());
    match random.below(6) {
        0 => drop(node.input.pop()),
        1 => node.input.push(other),
        2 => drop(node.output.pop()),
        _ => {
            if let Some(input) = node.input.get_mut(place) {
                *input = other;
            }
        }
    }
}

fn mutate_attribute(node: &mut NodeProto, random: &mut Random) {
    if random.below(8) == 0 && !node.attribute.is_empty() {
        node.attribute.swap_remove(random.below(node.attribute.len()));
        return;
    }
    let Some(attribute) = random.pick(&mut node.attribute) else { return };
    let AttributeProto { f, i, s, t, floats, ints, strings, .. } = attribute;
    if let Some(i) = i {
        *i = random.edge();
    }
    if let Some(f) = f {
        *f = [0.0, -1.0, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE, f32::MAX][random.below(6)];
    }
    if s.is_some() {
        *s = Some(Bytes::from_static(
            [b"".as_slice(), b"SAME_UPPER", b"reflect", b"\xff\xfe"][random.below(4)],
        ));
    }
    if let Some(t) = t {
        mutate_tensor(t, random);
    }
    match random.below(4) {
        0 => drop((floats.pop(), ints.pop(), strings.pop())),
        1 => ints.push(random.edge()),
        _ => {
            if let Some(value) = random.pick(ints) {
                *value = random.edge();
            }
        }
    }
}

fn mutate_tensor(tensor: &mut TensorProto, random: &mut Random) {
    match random.below(5) {
        0 => tensor.data_type = Some(random.below(24) as i32),
        1 => drop(tensor.dims.pop()),
        2 => tensor.dims.push([0, 1][random.below(2)]),
        3 => tensor.dims.reverse(),
        _ => {
            // Small integers are shapes, axes and indices.
            let elements = tensor.raw_data.as_ref().filter(|_| tensor.data_type == Some(7));
            let place = elements.map(|raw| 8 * random.below(raw.len() / 8));
            match (elements.map(|raw| raw.to_vec()), place) {
                (Some(mut raw), Some(place)) if raw.len() >= 8 => {
                    raw[place..place + 8].copy_from_slice(&random.edge().to_le_bytes());
                    tensor.raw_data = Some(raw.into());
                }
                _ => {
                    if let Some(dim) = random.pick(&mut tensor.dims) {
                        *dim = random.edge();
                    }
                }
            }
        }
    }
}

fn collect_weights(graph: &GraphProto, base: usize, weights: &mut Vec<Range<usize>>) {
    let mut add = |tensor: &TensorProto| {
        if let Some(raw) = tensor.raw_data.as_ref().filter(|raw| raw.len() >= WEIGHTS) {
            let start = raw.as_ptr().addr() - base;
            weights.push(start..start + raw.len());
        }
    };
    graph.initializer.iter().for_each(&mut add);
    let attributes = || graph.node.iter().flat_map(|node| &node.attribute);
    attributes().filter_map(|attribute| attribute.t.as_ref()).for_each(&mut add);
    for graph in attributes().filter_map(|attribute| attribute.g.as_ref()) {
        collect_weights(graph, base, weights);
    }
}

/// The graph and all inside it.
fn count_graphs(graph: &GraphProto) -> usize {
    let inner =
        graph.node.iter().flat_map(|node| &node.attribute).filter_map(|attribute| attribute.g.as_ref());
    1 + inner.map(count_graphs).sum::<usize>()
}

fn nth_graph<'a>(graph: &'a mut GraphProto, nth: &mut usize) -> Option<&'a mut GraphProto> {
    if *nth == 0 {
        return Some(graph);
    }
    *nth -= 1;
    let inner = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
    inner.filter_map(|attribute| attribute.g.as_mut()).find_map(|graph| nth_graph(graph, nth))
}
