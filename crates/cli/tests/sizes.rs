//! Sizes that nobody tunes for: empty, one, three, odd. One artifact with open extents takes all of them and agrees with
//! the interpreter, or refuses with an error of the data.

mod common;

use std::path::Path;

use common::{model, node, save, succeed, tilewright, value, with_lists};
use prost::Message;
use tilewright_driver::graph::Tensor;
use tilewright_driver::onnx::proto::attribute_proto::AttributeType;
use tilewright_driver::onnx::proto::{AttributeProto, ModelProto, NodeProto};
use tilewright_driver::onnx::tensor::to_proto;

/// A node with attributes that are integers.
fn with(mut node: NodeProto, attributes: &[(&str, i64)]) -> NodeProto {
    node.attribute.extend(attributes.iter().map(|(name, value)| AttributeProto {
        name: Some(name.to_string()),
        i: Some(*value),
        r#type: Some(AttributeType::Int as i32),
        ..AttributeProto::default()
    }));
    node
}

fn with_weights(mut model: ModelProto, weights: &[(&str, &[usize])]) -> ModelProto {
    for (name, dims) in weights {
        let tensor = Tensor::from_elements(dims, &numbers(dims.iter().product())).unwrap();
        model.graph.as_mut().unwrap().initializer.push(to_proto(&tensor, name));
    }
    model
}

/// Numbers between -1 and 1 that do not repeat soon.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 7919 % 2003) as f32 / 1001.5 - 1.0).collect()
}

/// Runs a model on inputs of each size and against the interpreter, by every code generator of the build.
fn check(model: &ModelProto, sizes: &[&[&[usize]]], refused: &[&[&[usize]]]) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    save(dir, "model.onnx", model);
    let run = |codegen: &str, inputs: &[&[usize]]| {
        write_inputs(&dir.join("in"), inputs);
        tilewright(dir, &["verify", "model.onnx", "--codegen", codegen, "--inputs", "in", "--threads", "2"])
    };
    let codegens = ["cranelift", "llvm"].into_iter().filter(|codegen| {
        let args = ["compile", "model.onnx", "--codegen", codegen];
        tilewright(dir, &args).code != Some(3)
    });
    for codegen in codegens {
        for inputs in sizes {
            let run = run(codegen, inputs);
            assert_eq!(run.code, Some(0), "{codegen}, {inputs:?}: {}{}", run.out, run.err);
        }
        for inputs in refused {
            let run = run(codegen, inputs);
            assert_eq!(run.code, Some(5), "{codegen}, {inputs:?}: {}{}", run.out, run.err);
        }
    }
}

fn write_inputs(folder: &Path, inputs: &[&[usize]]) {
    std::fs::create_dir_all(folder).unwrap();
    for (j, dims) in inputs.iter().enumerate() {
        let tensor = Tensor::from_elements(dims, &numbers(dims.iter().product())).unwrap();
        std::fs::write(folder.join(format!("input_{j}.pb")), to_proto(&tensor, "").encode_to_vec()).unwrap();
    }
}

#[test]
fn matrix_products() {
    let nodes = vec![
        node("MatMul", &["x", "y"], &["xy"]),
        node("Add", &["xy", "bias"], &["sum"]),
        node("Relu", &["sum"], &["z"]),
    ];
    let inputs = vec![value("x", &["b", "m", "k"]), value("y", &["k", "5"])];
    let product = model(17, nodes, inputs, vec![value("z", &["b", "m", "5"])]);
    check(
        &with_weights(product, &[("bias", &[5])]),
        &[
            &[&[3, 7, 9], &[9, 5]],
            &[&[1, 1, 1], &[1, 5]],
            &[&[0, 7, 9], &[9, 5]],
            &[&[3, 0, 9], &[9, 5]],
            &[&[3, 7, 0], &[0, 5]],
            &[&[5, 33, 65], &[65, 5]],
        ],
        &[&[&[3, 7, 9], &[8, 5]]],
    );
}

#[test]
fn convolutions_and_pooling() {
    let nodes = vec![
        with_lists(node("Conv", &["x", "w", "b"], &["c"]), &[("strides", &[2, 2]), ("pads", &[1, 1, 1, 1])]),
        node("Relu", &["c"], &["r"]),
        with_lists(node("MaxPool", &["r"], &["p"]), &[("kernel_shape", &[3, 3]), ("pads", &[1, 1, 1, 1])]),
        node("GlobalAveragePool", &["p"], &["g"]),
        with(node("Flatten", &["g"], &["f"]), &[("axis", 1)]),
        with(node("Gemm", &["f", "v"], &["y"]), &[("transB", 1)]),
    ];
    let outputs = vec![value("p", &["n", "6", "oh", "ow"]), value("y", &["n", "7"])];
    let network = model(17, nodes, vec![value("x", &["n", "3", "h", "w"])], outputs);
    check(
        &with_weights(network, &[("w", &[6, 3, 3, 3]), ("b", &[6]), ("v", &[7, 6])]),
        &[&[&[3, 3, 9, 7]], &[&[1, 3, 1, 1]], &[&[0, 3, 9, 7]], &[&[2, 3, 31, 33]], &[&[3, 3, 1, 13]]],
        &[&[&[1, 4, 9, 7]], &[&[1, 3, 9]]],
    );
}

#[test]
fn normalisations_and_reductions() {
    let nodes = vec![
        with(node("LayerNormalization", &["x", "scale", "shift"], &["l"]), &[("axis", -1)]),
        with(node("Softmax", &["l"], &["s"]), &[("axis", 1)]),
        with(with_lists(node("ReduceMax", &["s"], &["m"]), &[("axes", &[0, 2])]), &[("keepdims", 0)]),
    ];
    let outputs = vec![value("s", &["b", "n", "9"]), value("m", &["n"])];
    let network = model(17, nodes, vec![value("x", &["b", "n", "9"])], outputs);
    check(
        &with_weights(network, &[("scale", &[9]), ("shift", &[9])]),
        &[&[&[3, 5, 9]], &[&[1, 1, 9]], &[&[3, 0, 9]], &[&[2, 67, 9]]],
        &[&[&[3, 5, 8]]],
    );
}

/// What a reduction over nothing gives is its start, not what the memory held before.
#[test]
fn reductions_over_nothing() {
    for (op, axis, expected) in [
        ("ReduceSum", 1, 0.0f32),
        ("ReduceSum", 2, 0.0),
        ("ReduceProd", 1, 1.0),
        ("ReduceMax", 2, f32::NEG_INFINITY),
        ("ReduceMin", 1, f32::INFINITY),
        ("ReduceL2", 2, 0.0),
    ] {
        let reduce =
            with(with_lists(node(op, &["x"], &["y"]), &[("axes", &[axis as i64])]), &[("keepdims", 0)]);
        let mut dims = ["4", "64", "64"];
        dims[axis] = "n";
        let network = model(11, vec![reduce], vec![value("x", &dims)], vec![value("y", &["4", "64"])]);
        let (mut empty, mut some) = ([4, 64, 64], [4, 64, 64]);
        (empty[axis], some[axis]) = (0, 3);
        check(&network, &[&[&some], &[&empty]], &[]);
        // The interpreter and what is compiled are not wrong together.
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), "model.onnx", &network);
        write_inputs(&dir.path().join("in"), &[&empty]);
        let start = Tensor::from_elements(&[4, 64], &[expected; 256]).unwrap();
        std::fs::create_dir(dir.path().join("out")).unwrap();
        std::fs::write(dir.path().join("out/output_0.pb"), to_proto(&start, "y").encode_to_vec()).unwrap();
        succeed(dir.path(), &["verify", "model.onnx", "--inputs", "in", "--against", "out"]);
    }
}

#[test]
fn movements() {
    let nodes = vec![
        with_lists(node("Transpose", &["x"], &["t"]), &[("perm", &[1, 0])]),
        with(node("Concat", &["t", "t", "y"], &["c"]), &[("axis", 0)]),
        node("Exp", &["c"], &["e"]),
        node("Slice", &["e", "starts", "ends"], &["z"]),
    ];
    let inputs = vec![value("x", &["a", "b"]), value("y", &["d", "a"])];
    let mut network = model(17, nodes, inputs, vec![value("e", &["s", "a"]), value("z", &["r", "a"])]);
    let bounds = [("starts", 1i64), ("ends", -1)];
    let bounds = bounds.map(|(name, at)| to_proto(&Tensor::vector(&[at]), name));
    network.graph.as_mut().unwrap().initializer.extend(bounds);
    check(
        &network,
        &[
            &[&[3, 5], &[7, 3]],
            &[&[1, 1], &[1, 1]],
            &[&[0, 5], &[2, 0]],
            &[&[3, 0], &[1, 3]],
            &[&[3, 0], &[0, 3]],
        ],
        &[&[&[3, 5], &[7, 4]]],
    );
}
