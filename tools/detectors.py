#!/usr/bin/env python3
"""Exports torchvision's detectors with what ONNX Runtime answers: detectors.py OUT [NAME...]

`cargo xtask models --detectors` makes the Python environment that this needs, and runs it.

Writes OUT/NAME/model.onnx and OUT/NAME/test_data_set_0/{input,output}_J.pb. Names are those of `MODELS`, with `-open` for open
heights and widths and `-dynamo` for the exporter by `torch.export`.

Weights are seeded noise. Outputs of some layers are then given a mean and a spread, channel by channel, so that scores are neither
all alike nor all 1. Which boxes remain and their order must not depend on the last bits of sums: a seed is taken where single and
double precision find the same boxes, and neighbouring scores differ by several times as much as they do between the two.
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

SEEDS = range(50)
# Two scores may move towards each other.
MARGIN = 3.0
# Of fewer places all channels are spread together.
FEW = 4
# The exporters write opset 17 of what detectors need without fallbacks; dynamo starts at 18.
OPSET = {"torchscript": 17, "dynamo": 18}
SIDE = 320

MODELS = {
    "ssd300": lambda: detection.ssd300_vgg16(weights=None, weights_backbone=None),
    "ssdlite": lambda: detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None),
    # Of 300 boxes, which it would give, two always have almost the same score.
    "retinanet": lambda: detection.retinanet_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=SIDE, max_size=SIDE, detections_per_img=100),
    "fcos": lambda: detection.fcos_resnet50_fpn(weights=None, weights_backbone=None, min_size=SIDE, max_size=SIDE),
    "faster_rcnn": lambda: detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None),
    "mask_rcnn": lambda: detection.maskrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=SIDE, max_size=SIDE),
    "keypoint_rcnn": lambda: detection.keypointrcnn_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=SIDE, max_size=SIDE),
}
# Layers by parts of their names, in the order in which they depend on each other, with the mean and the standard deviation that
# their outputs get.
LAYERS = [
    ("fpn.layer_blocks", 0.0, 1.0),
    ("rpn.head.conv", 0.0, 1.0),
    ("rpn.head.cls_logits", 0.0, 1.0),
    ("rpn.head.bbox_pred", 0.0, 0.2),
    ("box_head.fc", 0.0, 1.0),
    ("box_predictor.cls_score", 0.0, 1.5),
    ("box_predictor.bbox_pred", 0.0, 0.5),
    ("mask_fcn_logits", 0.0, 2.0),
    ("kps_score_lowres", 0.0, 2.0),
    ("classification_head.conv", 0.0, 1.0),
    ("classification_head.cls_logits", -6.0, 1.2),
    ("classification_head.module_list", 0.0, 1.5),
    ("regression_head.conv", 0.0, 1.0),
    ("bbox_ctrness", 0.0, 1.0),
    ("regression_head.bbox_reg", 0.0, 0.3),
    ("regression_head.module_list", 0.0, 0.3),
]


def image_of(name, seed):
    """Noise of several scales between 0 and 1."""
    size = (300, 300) if name == "ssd300" else (SIDE, SIDE)
    noise = torch.Generator().manual_seed(seed)
    image = torch.zeros(1, 3, *size)
    for cells in (4, 16, 64, size[0]):
        part = torch.rand(1, 3, cells, cells, generator=noise)
        image += torch.nn.functional.interpolate(part, size, mode="bilinear") / 4
    return image[0]


def spread(model, image):
    """Gives every channel of some layers' outputs its mean and standard deviation, over all places and levels."""
    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, kinds)]
    for part, mean, deviation in LAYERS:
        for layer in [module for name, module in layers if part in name]:
            outputs = []
            hook = layer.register_forward_hook(lambda _, __, out: outputs.append(out.transpose(0, 1).flatten(1)))
            model([image])
            hook.remove()
            outputs = torch.cat(outputs, 1)
            if outputs.shape[1] < FEW:
                outputs = outputs.reshape(1, -1).expand(len(outputs), -1)
            scale = deviation / outputs.std(1)
            axis = 1 if isinstance(layer, torch.nn.ConvTranspose2d) else 0
            layer.weight.mul_(scale.view([-1 if at == axis else 1 for at in range(layer.weight.dim())]))
            if layer.bias is not None:
                layer.bias.copy_(mean + scale * (layer.bias - outputs.mean(1)))


def margin(model, image):
    """By how much neighbouring scores differ, over the difference that single precision makes; 0 where it finds other boxes."""
    (single,) = model([image])
    (double,) = model.double()([image.double()])
    model.float()
    count = len(single["scores"])
    if count < 20 or len(double["scores"]) != count or not torch.equal(single["labels"], double["labels"]):
        return 0.0
    if not torch.allclose(single["boxes"].double(), double["boxes"], rtol=1e-3, atol=1e-2):
        return 0.0
    gaps = -single["scores"].sort(descending=True).values.double().diff()
    error = (single["scores"].double() - double["scores"]).abs().max().clamp(min=1e-9)
    return (gaps.min() / error).item()


def seeded(name):
    """A model and an image whose answer does not depend on rounding."""
    for seed in SEEDS:
        torch.manual_seed(seed)
        model, image = MODELS[name]().eval(), image_of(name, seed)
        with torch.no_grad():
            spread(model, image)
            found = margin(model, image)
        print(f"{name}: seed {seed}, margin {found:.1f}", flush=True)
        if found > MARGIN:
            return model, image
    sys.exit(f"{name}: no seed gives scores that are far enough apart")


def export(name, out):
    base, *flags = name.split("-")
    model, image = seeded(base)
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
