#!/usr/bin/env python3
"""A model in PyTorch that is timed on request: `bench.py` starts it and writes it a line with seconds for each round.

    python3 peers.py CASE IN.npz eager|compile|graphs|autotune [--device cuda]

Models are those of torchvision and transformers where these are installed, and else the same architectures written down
here, with weights of no meaning: times do not depend on them. It prints a line of JSON when it is ready, and one for
each round.
"""
import argparse
import json
import statistics
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MODES = {
    "eager": None,
    "compile": {},
    # Both with CUDA graphs; the second one times kernels to choose among them, which takes minutes.
    "graphs": {"mode": "reduce-overhead"},
    "autotune": {"mode": "max-autotune"},
}


class Product(nn.Module):
    """As the ONNX model of the same name."""

    def __init__(self, n):
        super().__init__()
        self.a = nn.Parameter(torch.randn(n, n))
        self.b = nn.Parameter(torch.randn(n, n))

    def forward(self, x):
        return torch.matmul(self.a * x, self.b).amax(1)


def conv(inputs, outputs, kernel, stride=1, groups=1, act=None):
    """A convolution with normalisation and activation."""
    pad = kernel // 2
    layers = [nn.Conv2d(inputs, outputs, kernel, stride, pad, groups=groups, bias=False), nn.BatchNorm2d(outputs)]
    return nn.Sequential(*layers, *([act] if act else []))


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        relu = nn.ReLU(inplace=True)
        self.body = nn.Sequential(
            conv(inputs, width, 1, act=relu), conv(width, width, 3, stride, act=relu), conv(width, 4 * width, 1)
        )
        same = stride == 1 and inputs == 4 * width
        self.skip = nn.Identity() if same else conv(inputs, 4 * width, 1, stride)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def resnet50():
    """ResNet-50 (He et al. 2015)."""
    layers = [conv(3, 64, 7, 2, act=nn.ReLU(inplace=True)), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, count, stride in [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]:
        for i in range(count):
            layers.append(Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Inverted(nn.Module):
    """A block of MobileNetV2."""

    def __init__(self, inputs, outputs, stride, expand):
        super().__init__()
        hidden = inputs * expand
        first = [conv(inputs, hidden, 1, act=nn.ReLU6(inplace=True))] if expand != 1 else []
        depthwise = conv(hidden, hidden, 3, stride, hidden, nn.ReLU6(inplace=True))
        self.body = nn.Sequential(*first, depthwise, conv(hidden, outputs, 1))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet_v2():
    """MobileNetV2 (Sandler et al. 2018)."""
    layers, inputs = [conv(3, 32, 3, 2, act=nn.ReLU6(inplace=True))], 32
    settings = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)]
    settings.append((6, 320, 1, 1))
    for expand, outputs, count, stride in settings:
        for i in range(count):
            layers.append(Inverted(inputs, outputs, stride if i == 0 else 1, expand))
            inputs = outputs
    layers += [conv(320, 1280, 1, act=nn.ReLU6(inplace=True)), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, 1000))


class Layer(nn.Module):
    """A transformer's layer of width 768 with 12 heads; BERT normalises after, GPT-2 before and looks back only."""

    def __init__(self, causal):
        super().__init__()
        self.causal = causal
        self.qkv, self.out = nn.Linear(768, 3 * 768), nn.Linear(768, 768)
        self.up, self.down = nn.Linear(768, 3072), nn.Linear(3072, 768)
        self.first, self.second = nn.LayerNorm(768), nn.LayerNorm(768)

    def attend(self, x, mask):
        batch, words, _ = x.shape
        qkv = self.qkv(x).view(batch, words, 3, 12, 64).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*qkv, attn_mask=mask, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, words, 768))

    def forward(self, x, mask=None):
        if self.causal:
            x = x + self.attend(self.first(x), mask)
            return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))
        x = self.first(x + self.attend(x, mask))
        return self.second(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """The base model of BERT (Devlin et al. 2018), without its pooler."""

    def __init__(self):
        super().__init__()
        self.words, self.places, self.kinds = (nn.Embedding(n, 768) for n in (30522, 512, 2))
        self.norm = nn.LayerNorm(768)
        self.layers = nn.ModuleList(Layer(causal=False) for _ in range(12))

    def forward(self, input_ids, attention_mask):
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.norm(self.words(input_ids) + self.places(places) + self.kinds(torch.zeros_like(input_ids)))
        mask = attention_mask.bool()[:, None, None, :]
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Gpt2(nn.Module):
    """The small model of GPT-2 (Radford et al. 2019), without its head."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50257, 768), nn.Embedding(1024, 768)
        self.layers = nn.ModuleList(Layer(causal=True) for _ in range(12))
        self.norm = nn.LayerNorm(768)

    def forward(self, input_ids):
        x = self.words(input_ids) + self.places(torch.arange(input_ids.shape[1], device=input_ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Hidden(nn.Module):
    """A model of transformers whose only output is the last hidden state."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, *inputs):
        names = ["input_ids", "attention_mask"]
        return self.model(**dict(zip(names, inputs)), use_cache=False).last_hidden_state


def from_package(case):
    """The model of the package that people take it from; nothing where that is not installed."""
    try:
        if case.startswith(("resnet50", "mobilenet_v2")):
            import torchvision.models

            build = torchvision.models.resnet50 if case.startswith("resnet50") else torchvision.models.mobilenet_v2
            return build(weights=None), "torchvision"
        if case.startswith(("bert", "gpt2")):
            import transformers

            if case.startswith("bert"):
                inner = transformers.BertModel(transformers.BertConfig(), add_pooling_layer=False)
            else:
                inner = transformers.GPT2Model(transformers.GPT2Config())
            return Hidden(inner), "transformers"
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return None


def model_of(case):
    """The model of a case, and where it is from."""
    if case.startswith("matmul_"):
        return Product(int(case.rpartition("_")[2])), "torch.matmul"
    own = {"resnet50": resnet50, "mobilenet_v2": mobilenet_v2, "bert": Bert, "gpt2": Gpt2}
    found = next((build for prefix, build in own.items() if case.startswith(prefix)), None)
    if found is None:
        raise ValueError(f"peer not present: no model for {case}")
    return from_package(case) or (found(), "written down in peers.py")


def timed(seconds, run, wait):
    """The median of the milliseconds of runs, and their number."""
    times, start = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        run()
        wait()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times), len(times)


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case")
    parser.add_argument("inputs")
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(0)
    on_gpu = options.device.startswith("cuda")
    device = options.device if on_gpu else "cpu"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    start = time.perf_counter()
    model, source = model_of(options.case)
    model = model.eval().to(device)
    if MODES[options.mode] is not None:
        model = torch.compile(model, **MODES[options.mode])
    with np.load(options.inputs) as arrays:
        host = [torch.from_numpy(arrays[name]) for name in arrays.files]

    def whole():
        return model(*(tensor.to(device) for tensor in host)).cpu()

    with torch.no_grad():
        resident = [tensor.to(device) for tensor in host]
        for _ in range(5):
            whole()
            model(*resident)
        wait()
        ready = {"source": source, "torch": torch.__version__, "ready_s": round(time.perf_counter() - start, 1)}
        print(json.dumps(ready), flush=True)
        for line in sys.stdin:
            median, runs = timed(float(line) / 2, whole, wait)
            on_device, _ = timed(float(line) / 2, lambda: model(*resident), wait)
            print(json.dumps({"median_ms": median, "resident_ms": on_device, "runs": runs}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"[:600]}), flush=True)
        raise
