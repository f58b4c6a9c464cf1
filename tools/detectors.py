#!/usr/bin/env python3
"""Exports torchvision's detectors with what ONNX Runtime answers: detectors.py OUT [NAME...]

    python3 -m venv target/venv-detectors
    target/venv-detectors/bin/pip install -r tools/requirements-detectors.txt
    target/venv-detectors/bin/python tools/detectors.py target/detectors

Writes OUT/NAME/model.onnx and OUT/NAME/test_data_set_0/{input,output}_J.pb. Names are those of `MODELS`, with `-open` for open
heights and widths and `-dynamo` for the exporter by `torch.export`. Weights are seeded noise; those of the heads are scaled until scores spread, so that
neither the scores nor the order of boxes depend on the last bits of sums.
"""
import pathlib
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from torchvision.models import detection

SEED = 0
# The exporters write opset 17 of what detectors need without fallbacks; dynamo starts at 18.
OPSET = {"torchscript": 17, "dynamo": 18}
SIDE = 320

MODELS = {
    "ssd300": lambda: detection.ssd300_vgg16(weights=None, weights_backbone=None),
    "ssdlite": lambda: detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None),
    "retinanet": lambda: detection.retinanet_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=SIDE, max_size=SIDE),
    "fcos": lambda: detection.fcos_resnet50_fpn(weights=None, weights_backbone=None, min_size=SIDE, max_size=SIDE),
    "faster_rcnn": lambda: detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None),
    "mask_rcnn": lambda: detection.maskrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=SIDE, max_size=SIDE),
    "keypoint_rcnn": lambda: detection.keypointrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=SIDE, max_size=SIDE),
}
# The mean norm of the weights of one output, for parts whose scores would tie or stay below all thresholds otherwise.
SPREAD = {"cls_logits": 4.0, "classification_head": 4.0, "bbox_ctrness": 4.0, "cls_score": 40.0}


def seeded(name):
    torch.manual_seed(SEED)
    model = MODELS[name]().eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            norm = next((norm for part, norm in SPREAD.items() if part in key), None)
            if norm is not None and parameter.dim() > 1:
                parameter.mul_(norm / parameter.flatten(1).norm(dim=1).mean())
    return model


def export(name, out):
    base, *flags = name.split("-")
    model = seeded(base)
    height, width = (300, 300) if base == "ssd300" else (SIDE, SIDE)
    image = torch.rand(3, height, width, generator=torch.Generator().manual_seed(SEED))
    folder = out / name
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    kind = "dynamo" if "dynamo" in flags else "torchscript"
    options = {}
    if "open" in flags:
        options["dynamic_axes"] = {"image": {1: "height", 2: "width"}}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, ([image],), str(path), input_names=["image"], opset_version=OPSET[kind],
                          dynamo=kind == "dynamo", **options)
    inputs = {"image": image.numpy()}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    answers = session.run(None, inputs)
    for index, array in enumerate(inputs.values()):
        (data / f"input_{index}.pb").write_bytes(numpy_helper.from_array(array, "image").SerializeToString())
    for index, (spec, array) in enumerate(zip(session.get_outputs(), answers)):
        (data / f"output_{index}.pb").write_bytes(numpy_helper.from_array(np.asarray(array), spec.name).SerializeToString())
    shapes = [list(np.asarray(a).shape) for a in answers]
    print(f"{name}: {len(onnx.load(str(path), load_external_data=False).graph.node)} nodes, results {shapes}", flush=True)


def main():
    out = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or list(MODELS):
        export(name, out)


if __name__ == "__main__":
    main()
