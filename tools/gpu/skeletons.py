"""Makes models without weights of full ones, for `weights.py` to make them whole again. Needs the package onnx.

    python3 skeletons.py MODELS OUT

Floats of more than 1 KiB go; integers, small constants, masks and what stands in nodes stay, for they may decide
shapes. Some models are written for other batches too, on the same weights; and products of matrices and single operations, which are no
model of anyone.
"""
import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from operations import OPERATIONS, TINY

# Bytes above which floats are left out.
SMALL = 1024
# In a file of weights tensors begin at multiples of this.
ALIGN = 4096
BATCHES = {"resnet50": [32, 128]}
PRODUCTS = [2048, 4096, 8192]


def place(tensor, spec, file):
    """Makes a tensor refer to its place in a file."""
    shape = spec["shape"]
    tensor.CopyFrom(TensorProto(name=spec["name"], data_type=TensorProto.FLOAT, dims=shape))
    tensor.data_location = TensorProto.EXTERNAL
    for key in ("offset", "length"):
        tensor.external_data.add(key=key, value=str(spec[key]))
    tensor.external_data.add(key="location", value=file)


def spec_of(name, shape, mean, std, positive, specs):
    """What weights.json tells of a tensor that comes after others."""
    end = specs[-1]["offset"] + specs[-1]["length"] if specs else 0
    length = 4 * int(np.prod(shape, dtype=np.int64))
    offset = -(-end // ALIGN) * ALIGN
    return {
        "name": name,
        "shape": list(shape),
        "offset": offset,
        "length": length,
        "mean": mean,
        "std": std,
        "positive": positive,
    }


def is_pattern(values):
    """Whether numbers mean something each, as those of a mask do: few different ones, or some that no weight has."""
    few = 16
    # Weights show soon that they differ, and large ones take long to sort.
    alike = len(np.unique(values.ravel()[: 1 << 12])) <= few and len(np.unique(values)) <= few
    return alike or not np.abs(values).max() < 1e6


def cut(model, file):
    """Takes the weights out of a model; what is to be known of them."""
    specs = []
    for tensor in model.graph.initializer:
        count = int(np.prod(list(tensor.dims), dtype=np.int64))
        if tensor.data_type != TensorProto.FLOAT or 4 * count <= SMALL:
            continue
        values = numpy_helper.to_array(tensor).astype(np.float64)
        if is_pattern(values):
            continue
        spread = float(values.std())
        positive = bool(values.min() >= 0)
        specs.append(
            spec_of(tensor.name, list(tensor.dims), float(values.mean()), spread, positive, specs)
        )
        place(tensor, specs[-1], file)
    return specs


def with_batch(model, batch):
    """The model for another number of inputs at a time; nothing in it may hold the number."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    constants = {tensor.name for tensor in other.graph.initializer}
    for value in other.graph.input:
        if value.name not in constants:
            value.type.tensor_type.shape.dim[0].dim_value = batch
    for value in other.graph.output:
        value.type.tensor_type.ClearField("shape")
    del other.graph.value_info[:]
    inferred = onnx.shape_inference.infer_shapes(other, strict_mode=True, data_prop=True)
    for value in inferred.graph.output:
        dims = value.type.tensor_type.shape.dim
        if not dims or dims[0].dim_value != batch:
            raise SystemExit(f"output {value.name} does not follow the batch")
    return other


def product(n, file):
    """rowwise maximum of (x A) B, with constants A and B: a product whose inputs and outputs are small."""
    specs = []
    for name in ("a", "b"):
        specs.append(spec_of(f"matmul_{n}.{name}", [n, n], 0.0, 1.0, False, specs))
    tensors = [TensorProto(), TensorProto()]
    for tensor, spec in zip(tensors, specs):
        place(tensor, spec, file)
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    a, b = (spec["name"] for spec in specs)
    nodes = [
        helper.make_node("Mul", [a, "x"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", b], ["product"]),
        helper.make_node("ReduceMax", ["product", "axes"], ["largest"], keepdims=0),
    ]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    outputs = [helper.make_tensor_value_info("largest", TensorProto.FLOAT, [n])]
    graph = helper.make_graph(nodes, f"matmul_{n}", values, outputs, [*tensors, axes])
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8), specs


def file_of(operation):
    """The file of an operation's constants: operations with the same ones share it."""
    return "-".join(f"{name}_{'x'.join(map(str, shape))}" for name, shape in operation.constants.items()) + ".data"


def single(operation):
    """The model of an operation, and what is to be known of its constants."""
    specs, tensors = [], []
    for name, shape in operation.constants.items():
        tensor, unique = TensorProto(), f"{file_of(operation)}.{name}"
        specs.append(spec_of(unique, shape, 0.0, 1.0, False, specs))
        place(tensor, specs[-1], file_of(operation))
        tensor.name = name
        tensors.append(tensor)
    integers = [helper.make_tensor(n, TensorProto.INT64, [len(v)], v) for n, v in operation.integers.items()]
    names = [*operation.inputs, *operation.constants, *operation.integers]
    node = helper.make_node(operation.op, names, ["out"], **operation.attributes)
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in operation.inputs.items()]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, operation.output)]
    graph = helper.make_graph([node], operation.name, inputs, outputs, [*tensors, *integers])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), specs


def main():
    """The command."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    models, out = map(pathlib.Path, sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    files, files_of = {}, {}

    def write(name, model, file, specs):
        (out / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))
        if specs:
            files[file], files_of[name] = specs, [file]

    for path in sorted(models.glob("*.onnx")):
        model, file = onnx.load(path), f"{path.stem}.data"
        specs = cut(model, file)
        write(path.stem, model, file, specs)
        for batch in BATCHES.get(path.stem, []):
            write(f"{path.stem}_b{batch}", with_batch(model, batch), file, specs)
    for n in PRODUCTS:
        model, specs = product(n, f"matmul_{n}.data")
        write(f"matmul_{n}", model, f"matmul_{n}.data", specs)
    for operation in [*OPERATIONS, TINY]:
        model, specs = single(operation)
        write(operation.name, model, file_of(operation), specs)
    (out / "weights.json").write_text(json.dumps({"files_of": files_of, "files": files}))


if __name__ == "__main__":
    main()
