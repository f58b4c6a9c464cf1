"""Makes models of one kind of layer each, whose speed is compared by itself: attention of some lengths, grouped convolutions.

usage: layers.py OUT [NAME...]
"""

import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
SEED = 0

# Positions of attention, of twelve heads of 64.
POSITIONS = (512, 1500, 4096)
HEADS, HEAD = 12, 64
# Channels of a group of convolutions.
GROUPS = (4, 8, 16, 32)
CHANNELS, SIDE, DEPTH = 256, 28, 4


class Builder:
    """Nodes and constants of a graph in the making."""

    def __init__(self):
        self.random = np.random.default_rng(SEED)
        self.nodes, self.constants = [], []

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def weights(self, shape, fan):
        return self.constant((self.random.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def add(self, op, inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def model(self, shape, result):
        value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        graph = helper.make_graph(self.nodes, "layer", [value("x")], [value("y")], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


def attention(positions):
    """Multi-head self-attention with its projections (Vaswani et al., 2017), as PyTorch exports it."""
    b, width = Builder(), HEADS * HEAD

    def projection(x):
        product = b.add("MatMul", [x, b.weights([width, width], width)])
        return b.add("Add", [product, b.weights([width], width)])

    def heads(x, order):
        shape = b.constant(np.array([1, positions, HEADS, HEAD], np.int64))
        return b.add("Transpose", [b.add("Reshape", [x, shape])], perm=order)

    query, key, value = (projection("x") for _ in range(3))
    scores = b.add("MatMul", [heads(query, [0, 2, 1, 3]), heads(key, [0, 2, 3, 1])])
    scaled = b.add("Div", [scores, b.constant(np.array(np.sqrt(HEAD), np.float32))])
    weighted = b.add("MatMul", [b.add("Softmax", [scaled], axis=-1), heads(value, [0, 2, 1, 3])])
    shape = b.constant(np.array([1, positions, width], np.int64))
    joined = b.add("Reshape", [b.add("Transpose", [weighted], perm=[0, 2, 1, 3]), shape])
    return b.model([1, positions, width], projection(joined))


def grouped(channels):
    """Grouped 3 x 3 convolutions one after the other, as in ResNeXt (Xie et al., 2017)."""
    b, x = Builder(), "x"
    for _ in range(DEPTH):
        weights = b.weights([CHANNELS, channels, 3, 3], 9 * channels)
        x = b.add("Conv", [x, weights], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=CHANNELS // channels)
        x = b.add("Relu", [x])
    return b.model([1, CHANNELS, SIDE, SIDE], x)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    models = {f"attention_{n}": (attention, n) for n in POSITIONS} | {f"grouped_{n}": (grouped, n) for n in GROUPS}
    names = sys.argv[2:] or list(models)
    if unknown := [name for name in names if name not in models]:
        sys.exit(f"no such models: {', '.join(unknown)}; there are {', '.join(models)}")
    for name in names:
        make, size = models[name]
        onnx.save(make(size), out / f"{name}.onnx")
        print(f"{name}: {(out / f'{name}.onnx').stat().st_size / 2**20:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
