#!/usr/bin/env python3
"""Lays the ONNX backend suites out as files: conformance.py OUT

Writes OUT/SUITE/CASE/model.onnx, test_data_set_N/{input,output}_J.pb and case.json for the suites node,
simple, light, pytorch-operator and pytorch-converted of the installed onnx package; needs no network.
input_J.pb belongs to the J-th graph input that is not an initializer.

case.json: rtol and atol as the suite sets them; operator: the one under test (node suite), or "whole model";
core: whether the case is within what a tensor compiler can be held to (plain tensors of common types);
comparable: false where the expected output is numpy's random stream; outputs: "tensor", "sequence" or "optional" each.
"""
import json
import os
import pathlib
import re
import shutil
import sys
import warnings

import numpy as np
import onnx
import onnx.backend.test as backend_test
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.runner import Runner

# Expected outputs of these replay numpy's own random generator, which no other system can.
RANDOM = {"test_bernoulli", "test_bernoulli_double", "test_bernoulli_double_expanded", "test_bernoulli_expanded",
          "test_bernoulli_seed", "test_bernoulli_seed_expanded", "test_training_dropout",
          "test_training_dropout_default", "test_training_dropout_default_mask", "test_training_dropout_mask"}

# Outside of core: domains and formats a tensor compiler is not about.
NOT_CORE_DOMAINS = {"ai.onnx.ml", "ai.onnx.preview.training"}
NOT_CORE_NAMES = re.compile(r"test_(image_decoder|flexattention(?!.*expanded))")
CORE_TYPES = {TensorProto.FLOAT, TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16,
              TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.DOUBLE,
              TensorProto.UINT32, TensorProto.UINT64, TensorProto.BFLOAT16}


def graphs(graph):
    """The graph and every sub-graph of it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from graphs(attribute.g)


def nodes(model):
    for graph in graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def kind(value_info):
    return (value_info.type.WhichOneof("value") or "tensor_type").removesuffix("_type")


def element_types(model):
    """Element types anywhere in the model, and the kinds of values that are not tensors."""
    for graph in graphs(model.graph):
        for value in [*graph.input, *graph.output, *graph.value_info]:
            yield value.type.tensor_type.elem_type if kind(value) == "tensor" else kind(value)
        for tensor in graph.initializer:
            yield tensor.data_type
    for node in nodes(model):
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield attribute.t.data_type
            elif node.op_type == "Cast" and attribute.name == "to":
                yield attribute.i
            elif node.op_type == "Constant" and attribute.type in (AttributeProto.STRING, AttributeProto.STRINGS):
                yield TensorProto.STRING


def is_core(name, model):
    types = {element for element in element_types(model) if element != TensorProto.UNDEFINED}
    domains = {node.domain for node in nodes(model)}
    return (name not in RANDOM and types <= CORE_TYPES and not domains & NOT_CORE_DOMAINS
            and not NOT_CORE_NAMES.match(name))


def operator(node):
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def serialised(value, value_info):
    if hasattr(value, "SerializeToString"):
        message = value
    elif kind(value_info) == "sequence":
        message = numpy_helper.from_list(value, value_info.name)
    elif kind(value_info) == "optional":
        message = numpy_helper.from_optional(value, value_info.name)
    else:
        message = numpy_helper.from_array(np.asarray(value), value_info.name)
    return message.SerializeToString(deterministic=True)


def write_case(directory, case, model, operator_name, core):
    record = {"rtol": case.rtol, "atol": case.atol, "operator": operator_name, "core": core,
              "comparable": case.name not in RANDOM, "outputs": [kind(value) for value in model.graph.output]}
    (directory / "case.json").write_text(json.dumps(record, sort_keys=True) + "\n")


def write_values(data_set, prefix, values, value_infos):
    for index, (value, value_info) in enumerate(zip(values, value_infos, strict=True)):
        (data_set / f"{prefix}_{index}.pb").write_bytes(serialised(value, value_info))


def node_suite(out):
    cases = loader.load_model_tests(kind="node")
    single = {case.name: operator(case.model.graph.node[0]) for case in cases}
    for case in cases:
        directory = out / case.name
        directory.mkdir(parents=True)
        (directory / "model.onnx").write_bytes(case.model.SerializeToString(deterministic=True))
        for number, (inputs, outputs) in enumerate(case.data_sets):
            data_set = directory / f"test_data_set_{number}"
            data_set.mkdir()
            write_values(data_set, "input", inputs, case.model.graph.input)
            write_values(data_set, "output", outputs, case.model.graph.output)
        # A function's expansion tests the operator that it expands.
        under_test = single.get(case.name.split("_expanded")[0], single[case.name])
        write_case(directory, case, case.model, under_test, is_core(case.name, case.model))


def file_suite(out, suite):
    for case in loader.load_model_tests(kind=suite):
        directory = out / case.name
        shutil.copytree(case.model_dir, directory, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
        write_case(directory, case, onnx.load(directory / "model.onnx"), "whole model", False)


def light_suite(out):
    """Old networks with constant weights; their input is the runner's own arithmetic sequence."""
    for case in loader.load_model_tests(kind="real"):
        source = pathlib.Path(backend_test.__file__).parent / "data" / "light" / os.path.basename(case.url)
        model = onnx.load(source)
        data_set = out / case.name / "test_data_set_0"
        data_set.mkdir(parents=True)
        shutil.copy(source, out / case.name / "model.onnx")
        initializers = {tensor.name for tensor in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in initializers]
        make = lambda value: Runner.generate_dummy_data(value, seed=0, name=case.model_name, random=False)
        write_values(data_set, "input", [make(value) for value in inputs], inputs)
        for index in range(len(model.graph.output)):
            shutil.copy(source.with_name(f"{source.stem}_output_{index}.pb"), data_set / f"output_{index}.pb")
        write_case(out / case.name, case, model, "whole model", False)


def main():
    warnings.filterwarnings("ignore", category=RuntimeWarning)  # expected outputs hold infinities and NaNs
    out = pathlib.Path(sys.argv[1])
    writers = {"node": node_suite, "light": light_suite}
    for suite in ("node", "simple", "light", "pytorch-operator", "pytorch-converted"):
        shutil.rmtree(out / suite, ignore_errors=True)
        if suite in writers:
            writers[suite](out / suite)
        else:
            file_suite(out / suite, suite)


if __name__ == "__main__":
    main()
