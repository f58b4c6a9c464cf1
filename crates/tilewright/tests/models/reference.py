"""Runs a model by ONNX Runtime on inputs that lie in folders, and puts its outputs beside them.

    reference.py MODEL.onnx FOLDER...

A folder holds `inputs`, a line `NAME DTYPE DIM,DIM,...` for each input, and their elements as `input_J`; it gets
`outputs` and `output_J` in the same form.
"""
import pathlib
import sys

import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
for folder in map(pathlib.Path, sys.argv[2:]):
    feeds = {}
    for index, line in enumerate((folder / "inputs").read_text().splitlines()):
        name, dtype, dims = line.split(" ")
        shape = [int(dim) for dim in dims.split(",")]
        feeds[name] = np.fromfile(folder / f"input_{index}", dtype).reshape(shape)
    lines = []
    for index, (name, output) in enumerate(zip(names, session.run(names, feeds))):
        output.tofile(folder / f"output_{index}")
        lines.append(f"{name} {output.dtype} {','.join(map(str, output.shape))}\n")
    (folder / "outputs").write_text("".join(lines))
