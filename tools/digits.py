#!/usr/bin/env python3
"""Trains the example network on scikit-learn's handwritten digits and writes examples/digits.

    python3 -m venv target/venv-train
    target/venv-train/bin/pip install -r tools/requirements-train.txt
    target/venv-train/bin/python tools/digits.py

Writes digits.onnx (the PyTorch export), images/D/input_0.pb (one held-out image of each digit), and
held-out/ (input_0.pb: all held-out images, output_0.pb: ONNX Runtime's scores of them, labels.txt).
The seed and the split are fixed; a network below 97 % on the held-out digits is not written.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

OUT = pathlib.Path(__file__).resolve().parent.parent / "examples" / "digits"
SEED, EPOCHS, BATCH, OPSET = 0, 60, 64, 18


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(y)))


class Digits(nn.Module):
    """8x8 images, N x 1 x 8 x 8 with ink from 0 to 1, to scores of ten classes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.block1 = Residual(16)
        self.pool = nn.MaxPool2d(2)
        self.widen = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.block2 = Residual(32)
        self.average = nn.AdaptiveAvgPool2d(1)
        self.classify = nn.Linear(32, 10)

    def forward(self, image):
        x = self.block1(self.stem(image))
        x = self.block2(self.widen(self.pool(x)))
        return self.classify(torch.flatten(self.average(x), 1))


def train(net, images, labels):
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps)
    net.train()
    for _ in range(EPOCHS):
        order = torch.randperm(len(images))[: len(images) // BATCH * BATCH]
        for batch in order.split(BATCH):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images[batch]), labels[batch]).backward()
            optimiser.step()
            schedule.step()
    net.eval()


def write_tensor(path, name, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(numpy_helper.from_array(array, name).SerializeToString(deterministic=True))


def main():
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    split = train_test_split(images, digits.target, test_size=0.25, random_state=SEED, stratify=digits.target)
    x_train, x_held, y_train, y_held = split
    net = Digits()
    train(net, torch.from_numpy(x_train), torch.from_numpy(y_train))

    OUT.mkdir(parents=True, exist_ok=True)
    model_path = OUT / "digits.onnx"
    # The classic exporter in preserving mode keeps BatchNormalization nodes, as most models in the wild have.
    torch.onnx.export(net, (torch.zeros(1, 1, 8, 8),), str(model_path), dynamo=False, opset_version=OPSET,
                      input_names=["image"], output_names=["scores"], training=torch.onnx.TrainingMode.PRESERVE,
                      do_constant_folding=False, dynamic_axes={"image": {0: "batch"}, "scores": {0: "batch"}})
    onnx.checker.check_model(str(model_path), full_check=True)

    session = onnxruntime.InferenceSession(str(model_path), providers=["CPUExecutionProvider"])
    scores = session.run(None, {"image": x_held})[0]
    right = int((scores.argmax(1) == y_held).sum())
    print(f"{right} of {len(y_held)} held-out digits right, {model_path.stat().st_size / 1024:.0f} KiB")
    if right < 0.97 * len(y_held):
        sys.exit("the network learned too little")

    write_tensor(OUT / "held-out" / "input_0.pb", "image", x_held)
    write_tensor(OUT / "held-out" / "output_0.pb", "scores", scores)
    (OUT / "held-out" / "labels.txt").write_text("\n".join(map(str, y_held)) + "\n")
    for digit in range(10):
        first = int(np.flatnonzero((y_held == digit) & (scores.argmax(1) == digit))[0])
        write_tensor(OUT / "images" / str(digit) / "input_0.pb", "image", x_held[first : first + 1])


if __name__ == "__main__":
    main()
