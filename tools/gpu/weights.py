"""Makes the weights of the models in a pack again: numbers of the same mean and spread, by numpy and the tensor's name.

    python3 weights.py MODELS OUT [NAME ...]

Models in a pack name a file of weights beside them that is not there. weights.json tells of each such file which
tensors are in it: name, place, shape, mean, standard deviation, and whether all are positive, as variances must be.
"""
import hashlib
import json
import pathlib
import shutil
import sys

import numpy as np


def tensor(spec):
    """The numbers of one tensor."""
    count = int(np.prod(spec["shape"], dtype=np.int64))
    mean, spread = np.float32(spec["mean"]), np.float32(spec["std"])
    seed = int.from_bytes(hashlib.sha256(spec["name"].encode()).digest()[:8], "little")
    made = np.random.Generator(np.random.PCG64(seed)).standard_normal(count, dtype=np.float32)
    made *= spread
    made += mean
    if spec["positive"]:
        np.abs(made, out=made)
        np.maximum(made, np.float32(1e-3), out=made)
    return made


def make(models, name, out):
    """Puts a model and its weights into a folder, unless they are there; the model's path."""
    models, out = pathlib.Path(models), pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.onnx"
    about = json.loads((models / "weights.json").read_text())
    for file in about["files_of"].get(name, []):
        data = out / file
        specs = about["files"][file]
        size = specs[-1]["offset"] + specs[-1]["length"]
        if data.exists() and data.stat().st_size == size:
            continue
        unfinished = out / f"{file}.part"
        with open(unfinished, "wb") as stream:
            for spec in specs:
                stream.seek(spec["offset"])
                tensor(spec).tofile(stream)
        unfinished.replace(data)
    shutil.copyfile(models / f"{name}.onnx", path)
    return path


def main():
    """The command."""
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    models, out, *names = sys.argv[1:]
    for name in names or sorted(path.stem for path in pathlib.Path(models).glob("*.onnx")):
        print(make(models, name, out), flush=True)


if __name__ == "__main__":
    main()
