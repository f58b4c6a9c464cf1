"""Lays out ONNX's backend suite, and compares exported models with the results that come with it.

    agreement.py lay-out CASES            CASES/NAME/model.onnx and its test data
    agreement.py compare CASES EXPORTED   EXPORTED/NAME.onnx: one line for each that disagrees,
                                            then the number of those that agree

Models run in ONNX Runtime; where it cannot run the original either, in ONNX's reference evaluator.
"""
import pathlib
import shutil
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.backend.test import loader
from onnx.reference import ReferenceEvaluator

# Exported with a type that shape inference refuses: a loop-carried value is optional before the first trip only.
# And random draws, which agree with the expected ones, or with those of another run, by chance.
NOT_COMPARABLE = {"test_loop16_seq_none",
                  "test_bernoulli", "test_bernoulli_double", "test_bernoulli_double_expanded", "test_bernoulli_expanded",
                  "test_bernoulli_seed", "test_bernoulli_seed_expanded", "test_training_dropout",
                  "test_training_dropout_default", "test_training_dropout_default_mask", "test_training_dropout_mask"}


def lay_out(cases):
    for kind in ("node", "simple", "pytorch-operator", "pytorch-converted"):
        for case in loader.load_model_tests(kind=kind):
            folder = cases / case.name
            if case.model_dir is not None:
                shutil.copytree(case.model_dir, folder)
                continue
            folder.mkdir(parents=True)
            onnx.save(case.model, folder / "model.onnx")
            data = folder / "test_data_set_0"
            data.mkdir()
            inputs, outputs = case.data_sets[0]
            for stem, values, infos in (("input", inputs, case.model.graph.input), ("output", outputs, case.model.graph.output)):
                for position, (value, info) in enumerate(zip(values, infos)):
                    (data / f"{stem}_{position}.pb").write_bytes(encode(value, info).SerializeToString())


def encode(value, info):
    if not isinstance(value, (np.ndarray, list, np.generic)) and hasattr(value, "SerializeToString"):
        return value
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.from_list(value, info.name)
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name)
    return numpy_helper.from_array(np.asarray(value), info.name)


def decode(path, info):
    kind = info.type.WhichOneof("value")
    proto, convert = {
        "sequence_type": (onnx.SequenceProto(), numpy_helper.to_list),
        "optional_type": (onnx.OptionalProto(), numpy_helper.to_optional),
    }.get(kind, (onnx.TensorProto(), numpy_helper.to_array))
    proto.ParseFromString(path.read_bytes())
    return convert(proto)


def run_onnxruntime(path, feeds, outputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    return session.run(outputs, {name: value for name, value in feeds.items() if name in wanted})


def run_reference(path, feeds, outputs):
    evaluator = ReferenceEvaluator(onnx.load(path))
    wanted = set(evaluator.input_names)
    return evaluator.run(outputs, {name: value for name, value in feeds.items() if name in wanted})


def disagreement(expected, got):
    """What is wrong with a result, or None."""
    if isinstance(expected, list):
        if len(expected) != len(got):
            return f"{len(got)} elements instead of {len(expected)}"
        return next(filter(None, map(disagreement, expected, got)), None)
    if expected is None:
        return None
    expected, got = np.asarray(expected), np.asarray(got)
    if expected.shape != got.shape:
        return f"shape {got.shape} instead of {expected.shape}"
    if expected.dtype.kind in "OSU":
        return None if (expected.astype(str) == got.astype(str)).all() else "other strings"
    wide, other = expected.astype(np.float64), got.astype(np.float64)
    largest = np.abs(wide[np.isfinite(wide)]).max(initial=0)
    close = np.allclose(other, wide, rtol=1e-3, atol=1e-5 + 1e-4 * largest, equal_nan=True)
    return None if close else "other values"


def attempt(run, path, feeds, model, expected):
    try:
        got = run(path, feeds, [output.name for output in model.graph.output])
    except Exception as error:
        return str(error).replace("\n", " ")[:300]
    return next(filter(None, map(disagreement, expected, got)), None)


def compare(cases, exported):
    agreeing = 0
    for path in sorted(exported.glob("*.onnx")):
        folder = cases / path.stem
        original = folder / "model.onnx"
        model = onnx.load(original)
        # A type without shape cannot be declared to the checker, though ONNX allows it.
        if all(has_shape(output.type) for output in onnx.load(path).graph.output) and path.stem not in NOT_COMPARABLE:
            try:
                onnx.checker.check_model(path, full_check=True)
            except Exception as error:
                print(path.stem, "checker:", str(error).replace("\n", " ")[:300])
                continue
        constants = {tensor.name for tensor in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in constants]
        data = folder / "test_data_set_0"
        feeds = {value.name: decode(data / f"input_{i}.pb", value) for i, value in enumerate(inputs)}
        expected = [decode(data / f"output_{i}.pb", value) for i, value in enumerate(model.graph.output)]
        for run in (run_onnxruntime, run_reference):
            problem = attempt(run, path, feeds, model, expected)
            if problem is None:
                agreeing += 1
                break
            if attempt(run, original, feeds, model, expected) is None:
                if path.stem not in NOT_COMPARABLE:
                    print(path.stem, f"{run.__name__}:", problem)
                break
    print(agreeing)


def has_shape(ty):
    kind = ty.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return has_shape(getattr(ty, kind).elem_type)
    return ty.tensor_type.HasField("shape")


if __name__ == "__main__":
    onnxruntime.set_default_logger_severity(4)
    mode, *paths = sys.argv[1:]
    {"lay-out": lay_out, "compare": compare}[mode](*map(pathlib.Path, paths))
