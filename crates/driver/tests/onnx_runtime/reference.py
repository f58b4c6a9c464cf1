"""Runs a model by ONNX Runtime on inputs that lie in folders, and puts its outputs beside them.

    reference.py MODEL.onnx FOLDER...

A folder holds `inputs`, a line `NAME DTYPE DIM,DIM,... FILE` for each input with the file of its elements, relative to the
folder; a scalar's list of dims is `-`. The folder gets `outputs` and `output_J` in the same form, hence one folder's input may
be an earlier one's output. Where ONNX Runtime refuses the inputs, the folder gets its reason as `refused` instead.
"""
import pathlib
import sys

import numpy as np
import onnxruntime

options = onnxruntime.SessionOptions()
options.log_severity_level = 4
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
names = [output.name for output in session.get_outputs()]
for folder in map(pathlib.Path, sys.argv[2:]):
    feeds = {}
    for line in (folder / "inputs").read_text().splitlines():
        name, dtype, dims, file = line.split(" ")
        shape = [int(dim) for dim in dims.split(",")] if dims != "-" else []
        feeds[name] = np.fromfile(folder / file, dtype).reshape(shape)
    try:
        outputs = session.run(names, feeds)
    except Exception as error:
        (folder / "refused").write_text(str(error))
        continue
    lines = []
    for index, (name, output) in enumerate(zip(names, outputs)):
        output.tofile(folder / f"output_{index}")
        lines.append(f"{name} {output.dtype} {','.join(map(str, output.shape)) or '-'} output_{index}\n")
    (folder / "outputs").write_text("".join(lines))
