#!/usr/bin/env python3
"""Holds models that the compiler has simplified and written as ONNX against what they were: exported.py TILEWRIGHT MODEL.onnx...

Each is written by `tilewright compile MODEL --emit onnx`, checked in full by onnx.checker, and run by ONNX Runtime on the same seeded inputs
as the original. The outputs differ by the order of sums alone, since constants are folded and normalisations are part of convolutions.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

# Extents that inputs are given where the model leaves them open, by parts of their names, else OTHER.
OPEN = {"batch": 1, "height": 64, "width": 64}
OTHER = 16
# As `tilewright verify`: relative to an element, and to the largest of its output.
RELATIVE, ABSOLUTE = 1e-3, 1e-4
FLOATS = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
INTEGERS = {f"tensor({name})": np.dtype(name) for name in ("int64", "int32", "int16", "int8", "uint8")}


class NotComparable(Exception):
    """The original does not run on such inputs; its export passes the checker all the same."""


def session(path):
    options = onnxruntime.SessionOptions()
    # The model as it is written, not as ONNX Runtime would rewrite it.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def extent(dim):
    if isinstance(dim, int):
        return dim
    return next((n for part, n in OPEN.items() if part in str(dim)), OTHER)


def noise(inputs):
    """Floats of unit variance; integers of 0 and 1, which are places in any table."""
    random = np.random.default_rng(0)
    made = {}
    for spec in inputs:
        shape = [extent(dim) for dim in spec.shape]
        if spec.type in FLOATS:
            made[spec.name] = random.standard_normal(shape).astype(FLOATS[spec.type])
        elif spec.type in INTEGERS:
            made[spec.name] = random.integers(0, 2, shape).astype(INTEGERS[spec.type])
        elif spec.type == "tensor(bool)":
            made[spec.name] = np.ones(shape, bool)
        else:
            raise ValueError(f"no noise of type {spec.type} for input {spec.name}")
    return made


def difference(expected, got):
    """What differs between two outputs; nothing where they agree."""
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return f"{got.dtype} {got.shape} in place of {expected.dtype} {expected.shape}"
    if not np.issubdtype(expected.dtype, np.floating):
        n = np.count_nonzero(expected != got)
        return f"{n} of {expected.size} elements differ" if n else None
    if not expected.size:
        return None
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=0)
    close = np.isclose(got, expected, rtol=RELATIVE, atol=ABSOLUTE * scale, equal_nan=True)
    worst = np.abs(got.astype(np.float64) - expected)[~close].max(initial=0)
    return None if close.all() else f"{np.count_nonzero(~close)} of {close.size} elements differ, by {worst:.3g} at most"


def check(program, model, folder):
    """What is wrong with the exported model; nothing where all is well."""
    exported = folder / "exported.onnx"
    made = subprocess.run([program, "compile", model, "--emit", "onnx", "-o", exported], capture_output=True, text=True)
    if made.returncode != 0:
        return made.stderr.strip()
    onnx.checker.check_model(str(exported), full_check=True)
    before, after = session(model), session(exported)
    inputs = noise(before.get_inputs())
    names = [spec.name for spec in before.get_outputs()]
    if names != [spec.name for spec in after.get_outputs()]:
        return f"the outputs are {[spec.name for spec in after.get_outputs()]} in place of {names}"
    of_after = {spec.name for spec in after.get_inputs()}
    given = {name: value for name, value in inputs.items() if name in of_after}
    try:
        expected_outputs = before.run(names, inputs)
    except Exception as error:  # ONNX Runtime has many kinds.
        raise NotComparable(f"the original refuses the noise: {str(error)[:160]}") from error
    faults = [
        f"{name}: {fault}"
        for name, expected, got in zip(names, expected_outputs, after.run(names, given))
        if (fault := difference(expected, got))
    ]
    return "; ".join(faults) or None


def main():
    program, models = sys.argv[1], sys.argv[2:]
    n_wrong, n_skipped = 0, 0
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            try:
                fault = check(program, model, pathlib.Path(folder))
            except NotComparable as error:
                n_skipped += 1
                print(f"{pathlib.Path(model).stem:28} skipped: {error}", flush=True)
                continue
            except Exception as error:  # The checker and the runtime have many kinds.
                fault = f"{type(error).__name__}: {error}"
        n_wrong += fault is not None
        print(f"{pathlib.Path(model).stem:28} {fault or 'agrees'}", flush=True)
    n_same = len(models) - n_wrong - n_skipped
    print(f"{n_same} of {len(models)} models are the same once exported, {n_skipped} were skipped")
    sys.exit(n_wrong > 0)


if __name__ == "__main__":
    main()
