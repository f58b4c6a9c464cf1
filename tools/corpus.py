#!/usr/bin/env python3
"""Writes the corpus that the shipped records of tuning are measured on, as ONNX files.

    target/venv/bin/python tools/corpus.py target/corpus [NAME...]

Well-known networks, none of which is a benchmark model of this project: their layers stand for the shapes that
people use. Weights are seeded noise, for only shapes count; batch norms are folded, as exporters do. Sources of the
shapes:

    resnet18, resnet34    He et al. 2015, arXiv:1512.03385, table 1
    vgg16                 Simonyan and Zisserman 2014, arXiv:1409.1556, table 1 D (without the classifier's first layer)
    mobilenet_v1          Howard et al. 2017, arXiv:1704.04861, table 1
    mobilenet_v3_large    Howard et al. 2019, arXiv:1905.02244, table 1
    mnasnet_a1            Tan et al. 2018, arXiv:1807.11626, figure 7
    deit_small            Touvron et al. 2020, arXiv:2012.12877, table 1
    distilbert            Sanh et al. 2019, arXiv:1910.01108 (6 layers of BERT base), at 128 tokens
"""
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18


class Network:
    """A graph that is written node by node."""

    def __init__(self, name):
        self.name, self.nodes, self.weights, self.count = name, [], [], 0
        self.random = np.random.default_rng(0)

    def add(self, op, *inputs, **attributes):
        self.count += 1
        output = f"v{self.count}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        array = self.random.standard_normal(shape, dtype=np.float32) * np.float32(0.05)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def scalar(self, number):
        return self.constant(np.array(number, np.float32))

    def shape(self, *extents):
        return self.constant(np.array(extents, np.int64))

    def conv(self, x, inputs, outputs, kernel, stride=1, groups=1):
        pad = kernel // 2
        return self.add("Conv", x, self.weight(outputs, inputs // groups, kernel, kernel), self.weight(outputs),
                        kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, group=groups)

    def relu(self, x):
        return self.add("Relu", x)

    def activation(self, x, kind):
        return self.relu(x) if kind == "relu" else self.add("HardSwish", x)

    def linear(self, x, inputs, outputs):
        return self.add("Add", self.add("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def norm(self, x, channels):
        return self.add("LayerNormalization", x, self.weight(channels), self.weight(channels), axis=-1, epsilon=1e-6)

    def gelu(self, x):
        erf = self.add("Erf", self.add("Div", x, self.scalar(2 ** 0.5)))
        one = self.add("Add", erf, self.scalar(1.0))
        return self.add("Mul", self.add("Mul", x, one), self.scalar(0.5))

    def classify(self, x, channels, classes=1000):
        pooled = self.add("Flatten", self.add("GlobalAveragePool", x))
        return self.add("Gemm", pooled, self.weight(classes, channels), self.weight(classes), transB=1)

    def save(self, folder, input_shape, output):
        graph = helper.make_graph(
            self.nodes, self.name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, input_shape)],
            [helper.make_empty_tensor_value_info(output)], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        onnx.save(onnx.shape_inference.infer_shapes(model), folder / f"{self.name}.onnx")


def resnet(name, blocks):
    net = Network(name)
    x = net.relu(net.conv("x", 3, 64, 7, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, n_blocks in enumerate(blocks):
        outputs = 64 << stage
        for block in range(n_blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            shortcut = x if channels == outputs else net.conv(x, channels, outputs, 1, stride)
            y = net.relu(net.conv(x, channels, outputs, 3, stride))
            x = net.relu(net.add("Add", net.conv(y, outputs, outputs, 3), shortcut))
            channels = outputs
    return net, [1, 3, 224, 224], net.classify(x, 512)


def vgg16():
    net, x, channels = Network("vgg16"), "x", 3
    for outputs, n_layers in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]:
        for _ in range(n_layers):
            x = net.relu(net.conv(x, channels, outputs, 3))
            channels = outputs
        x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return net, [1, 3, 224, 224], net.classify(x, 512, 4096)


def mobilenet_v1():
    net = Network("mobilenet_v1")
    x, channels = net.relu(net.conv("x", 3, 32, 3, 2)), 32
    layers = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for outputs, stride in layers:
        x = net.relu(net.conv(x, channels, channels, 3, stride, channels))
        x = net.relu(net.conv(x, channels, outputs, 1))
        channels = outputs
    return net, [1, 3, 224, 224], net.classify(x, 1024)


def inverted(net, x, channels, kernel, expanded, outputs, squeezed, kind, stride):
    """An inverted residual with squeeze-and-excitation to `squeezed` channels, 0 for none."""
    y = x if expanded == channels else net.activation(net.conv(x, channels, expanded, 1), kind)
    y = net.activation(net.conv(y, expanded, expanded, kernel, stride, expanded), kind)
    if squeezed:
        s = net.relu(net.conv(net.add("GlobalAveragePool", y), expanded, squeezed, 1))
        y = net.add("Mul", y, net.add("HardSigmoid", net.conv(s, squeezed, expanded, 1), alpha=1 / 6))
    y = net.conv(y, expanded, outputs, 1)
    return net.add("Add", y, x) if stride == 1 and channels == outputs else y


def mobilenet_v3_large():
    net = Network("mobilenet_v3_large")
    x, channels = net.activation(net.conv("x", 3, 16, 3, 2), "hard-swish"), 16
    for kernel, expanded, outputs, squeezed, kind, stride in [
            (3, 16, 16, 0, "relu", 1), (3, 64, 24, 0, "relu", 2), (3, 72, 24, 0, "relu", 1),
            (5, 72, 40, 24, "relu", 2), (5, 120, 40, 32, "relu", 1), (5, 120, 40, 32, "relu", 1),
            (3, 240, 80, 0, "hard-swish", 2), (3, 200, 80, 0, "hard-swish", 1), (3, 184, 80, 0, "hard-swish", 1),
            (3, 184, 80, 0, "hard-swish", 1), (3, 480, 112, 120, "hard-swish", 1), (3, 672, 112, 168, "hard-swish", 1),
            (5, 672, 160, 168, "hard-swish", 2), (5, 960, 160, 240, "hard-swish", 1), (5, 960, 160, 240, "hard-swish", 1)]:
        x = inverted(net, x, channels, kernel, expanded, outputs, squeezed, kind, stride)
        channels = outputs
    x = net.activation(net.conv(x, 160, 960, 1), "hard-swish")
    return net, [1, 3, 224, 224], net.classify(x, 960, 1280)


def mnasnet_a1():
    net = Network("mnasnet_a1")
    x = net.relu(net.conv("x", 3, 32, 3, 2))
    x, channels = net.conv(net.relu(net.conv(x, 32, 32, 3, 1, 32)), 32, 16, 1), 16
    for kernel, factor, outputs, squeeze, n_layers, stride in [
            (3, 6, 24, 0, 2, 2), (5, 3, 40, 4, 3, 2), (3, 6, 80, 0, 4, 2), (3, 6, 112, 4, 2, 1), (5, 6, 160, 4, 3, 2),
            (3, 6, 320, 0, 1, 1)]:
        for layer in range(n_layers):
            squeezed = channels // squeeze if squeeze else 0
            x = inverted(net, x, channels, kernel, channels * factor, outputs, squeezed, "relu", 1 if layer else stride)
            channels = outputs
    return net, [1, 3, 224, 224], net.classify(net.relu(net.conv(x, 320, 1280, 1)), 1280)


def attention(net, x, tokens, width, heads):
    depth = width // heads
    def split(y, order):
        y = net.add("Reshape", y, net.shape(1, tokens, heads, depth))
        return net.add("Transpose", y, perm=order)
    query = split(net.linear(x, width, width), [0, 2, 1, 3])
    key = split(net.linear(x, width, width), [0, 2, 3, 1])
    value = split(net.linear(x, width, width), [0, 2, 1, 3])
    scores = net.add("Div", net.add("MatMul", query, key), net.scalar(depth ** 0.5))
    mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), value)
    mixed = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
    return net.linear(net.add("Reshape", mixed, net.shape(1, tokens, width)), width, width)


def feed_forward(net, x, width):
    return net.linear(net.gelu(net.linear(x, width, 4 * width)), 4 * width, width)


def deit_small():
    net, width, tokens = Network("deit_small"), 384, 197
    x = net.add("Conv", "x", net.weight(width, 3, 16, 16), net.weight(width), kernel_shape=[16, 16], strides=[16, 16])
    x = net.add("Transpose", net.add("Reshape", x, net.shape(1, width, tokens - 1)), perm=[0, 2, 1])
    x = net.add("Concat", net.weight(1, 1, width), x, axis=1)
    x = net.add("Add", x, net.weight(1, tokens, width))
    for _ in range(12):
        x = net.add("Add", x, attention(net, net.norm(x, width), tokens, width, 6))
        x = net.add("Add", x, feed_forward(net, net.norm(x, width), width))
    return net, [1, 3, 224, 224], net.norm(x, width)


def distilbert():
    net, width, tokens = Network("distilbert"), 768, 128
    x = net.norm("x", width)
    for _ in range(6):
        x = net.norm(net.add("Add", x, attention(net, x, tokens, width, 12)), width)
        x = net.norm(net.add("Add", x, feed_forward(net, x, width)), width)
    return net, [1, tokens, width], x


NETWORKS = {
    "resnet18": lambda: resnet("resnet18", [2, 2, 2, 2]),
    "resnet34": lambda: resnet("resnet34", [3, 4, 6, 3]),
    "vgg16": vgg16,
    "mobilenet_v1": mobilenet_v1,
    "mobilenet_v3_large": mobilenet_v3_large,
    "mnasnet_a1": mnasnet_a1,
    "deit_small": deit_small,
    "distilbert": distilbert,
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or NETWORKS:
        net, shape, output = NETWORKS[name]()
        net.save(folder, shape, output)
        print(folder / f"{name}.onnx", len(net.nodes), "nodes")


if __name__ == "__main__":
    main()
