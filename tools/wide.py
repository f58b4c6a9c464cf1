#!/usr/bin/env python3
"""Exports architectures of kinds that the ten benchmark models are not of: wide.py OUT [NAME...]

`cargo xtask models --set wide` makes the Python environment that this needs, and runs it.

Writes OUT/NAME.onnx. The list stands; nothing leaves it for being slow or wrong. Weights are seeded noise, scaled layer by layer so that
what each layer gives has unit variance: activations are then of a size that trained models have, and none is all zero.
"""
import pathlib
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn

OPSET = 17
SEED = 0


def image(side=224, batch=1):
    return {"image": torch.randn(batch, 3, side, side)}


def vision(name, side=224, **options):
    """A classifier of torchvision."""
    def make():
        import torchvision
        return torchvision.models.get_model(name, weights=None, **options), image(side), {}
    return make


def timm_model(name, side=224):
    def make():
        import timm
        return timm.create_model(name, pretrained=False, exportable=True), image(side), {}
    return make


class First(nn.Module):
    """What a model gives under one key, or first."""

    def __init__(self, model, key=0):
        super().__init__()
        self.model, self.key = model, key

    def forward(self, *inputs):
        return self.model(*inputs)[self.key]


OPEN_IMAGE = {"image": {0: "batch", 2: "height", 3: "width"}}


def segmentation(name, side, axes=None):
    def make():
        import torchvision
        model = torchvision.models.get_model(name, weights=None, weights_backbone=None)
        return First(model, "out"), image(side), axes or {}
    return make


class Detector(nn.Module):
    """A single-shot detector on a small backbone: boxes of three levels, decoded, and those that non-maximum suppression leaves."""

    def __init__(self, classes=20):
        super().__init__()
        import torchvision
        features = torchvision.models.mobilenet_v3_small(weights=None).features
        self.stages = nn.ModuleList([features[:4], features[4:9], features[9:]])
        self.heads = nn.ModuleList([nn.Conv2d(c, 3 * (4 + classes), 3, padding=1) for c in (24, 48, 576)])
        self.classes = classes

    def forward(self, image):
        import torchvision
        boxes, scores, x = [], [], image
        for stage, head in zip(self.stages, self.heads):
            x = stage(x)
            out = head(x)
            height, width = out.shape[2], out.shape[3]
            out = out.reshape(1, 3, 4 + self.classes, height, width).permute(0, 3, 4, 1, 2).reshape(-1, 4 + self.classes)
            ys = torch.arange(height).repeat_interleave(width * 3) / height
            xs = torch.arange(width).repeat_interleave(3).repeat(height) / width
            centre = torch.stack([xs, ys], 1) + out[:, :2].tanh() / height
            size = out[:, 2:4].sigmoid() / 4
            boxes.append(torch.cat([centre - size / 2, centre + size / 2], 1))
            scores.append(out[:, 4:].sigmoid())
        boxes, scores = torch.cat(boxes), torch.cat(scores)
        best, label = scores.max(1)
        kept = torchvision.ops.nms(boxes, best, 0.5)[:100]
        return boxes[kept], best[kept], label[kept]


class UNet(nn.Module):
    """A fully convolutional encoder and decoder (Ronneberger et al., 2015), with open batch, height and width."""

    def __init__(self, widths=(16, 32, 64, 128), bilinear=False):
        super().__init__()
        def double(a, b):
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(),
                                 nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
        self.down = nn.ModuleList([double(a, b) for a, b in zip((3,) + widths[:-1], widths)])
        self.up = nn.ModuleList()
        for b, a in zip(widths[:0:-1], widths[-2::-1]):
            up = (nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(b, a, 1)) if bilinear
                  else nn.ConvTranspose2d(b, a, 2, stride=2))
            self.up.append(nn.ModuleList([up, double(2 * a, a)]))
        self.out = nn.Conv2d(widths[0], 2, 1)

    def forward(self, image):
        x, kept = image, []
        for at, block in enumerate(self.down):
            x = block(x if at == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, block in self.up:
            x = block(torch.cat([up(x), kept.pop()], 1))
        return self.out(x)


class SuperResolution(nn.Module):
    """EDSR's residual blocks and a pixel shuffle (Lim et al., 2017)."""

    def __init__(self, width=48, blocks=8):
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.ModuleList([nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
                                                 nn.Conv2d(width, width, 3, padding=1)) for _ in range(blocks)])
        self.tail = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, image):
        x = self.head(image)
        for block in self.body:
            x = x + block(x)
        return self.tail(x)


class StyleTransfer(nn.Module):
    """Reflected borders, instance normalization and nearest upsampling (Johnson et al., 2016)."""

    def __init__(self):
        super().__init__()
        def conv(a, b, k, s=1):
            return [nn.ReflectionPad2d(k // 2), nn.Conv2d(a, b, k, s), nn.InstanceNorm2d(b, affine=True)]
        layers = conv(3, 16, 9) + [nn.ReLU()] + conv(16, 32, 3, 2) + [nn.ReLU()] + conv(32, 64, 3, 2) + [nn.ReLU()]
        self.head = nn.Sequential(*layers)
        self.body = nn.ModuleList([nn.Sequential(*conv(64, 64, 3), nn.ReLU(), *conv(64, 64, 3)) for _ in range(4)])
        up = nn.Upsample(scale_factor=2)
        self.tail = nn.Sequential(up, *conv(64, 32, 3), nn.ReLU(), up, *conv(32, 16, 3), nn.ReLU(),
                                  nn.ReflectionPad2d(4), nn.Conv2d(16, 3, 9))

    def forward(self, image):
        x = self.head(image)
        for block in self.body:
            x = x + block(x)
        return self.tail(x)


class ConvTasNet(nn.Module):
    """Dilated depthwise convolutions over time that separate speakers (Luo and Mesgarani, 2019)."""

    def __init__(self, filters=256, width=128, hidden=256, blocks=6, speakers=2):
        super().__init__()
        self.encoder = nn.Conv1d(1, filters, 16, 8)
        self.norm, self.inner = nn.GroupNorm(1, filters), nn.Conv1d(filters, width, 1)
        self.blocks = nn.ModuleList()
        for at in range(2 * blocks):
            dilation = 2 ** (at % blocks)
            self.blocks.append(nn.Sequential(
                nn.Conv1d(width, hidden, 1), nn.PReLU(), nn.GroupNorm(1, hidden),
                nn.Conv1d(hidden, hidden, 3, padding=dilation, dilation=dilation, groups=hidden), nn.PReLU(),
                nn.GroupNorm(1, hidden), nn.Conv1d(hidden, width, 1)))
        self.masks = nn.Conv1d(width, filters * speakers, 1)
        self.decoder, self.speakers = nn.ConvTranspose1d(filters, 1, 16, 8), speakers

    def forward(self, wave):
        features = self.encoder(wave)
        x = self.inner(self.norm(features))
        for block in self.blocks:
            x = x + block(x)
        masks = self.masks(x).sigmoid().reshape(self.speakers, features.shape[1], features.shape[2])
        return self.decoder(masks * features)


class SpeechEncoder(nn.Module):
    """Whisper's encoder (Radford et al., 2022) in its smallest size: 3,000 frames, 1,500 positions."""

    def __init__(self, width=384, layers=4, heads=6, frames=3000):
        super().__init__()
        self.first, self.second = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, padding=1)
        self.positions = nn.Parameter(torch.randn(frames // 2, width))
        self.layers = nn.ModuleList([EncoderLayer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)

    def forward(self, mel):
        x = F.gelu(self.second(F.gelu(self.first(mel)))).transpose(1, 2) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class EncoderLayer(nn.Module):
    """Attention and two linear layers, normalized first."""

    def __init__(self, width, heads):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms, self.heads = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)]), heads

    def forward(self, x):
        batch, length, width = x.shape
        y = self.norms[0](x)
        q, k, v = (f(y).reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
                   for f in (self.q, self.k, self.v))
        scores = (q @ k.transpose(2, 3)) * (width // self.heads) ** -0.5
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.o(y)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Decoder(nn.Module):
    """A step of a small language model with rotary positions, grouped queries and a cache of keys and values."""

    def __init__(self, width=256, layers=4, heads=8, groups=2, words=2000):
        super().__init__()
        self.words, self.heads, self.groups = nn.Embedding(words, width), heads, groups
        self.size = width // heads
        self.layers = nn.ModuleList()
        for _ in range(layers):
            kv = groups * self.size
            self.layers.append(nn.ModuleDict({
                "q": nn.Linear(width, width, bias=False), "k": nn.Linear(width, kv, bias=False),
                "v": nn.Linear(width, kv, bias=False), "o": nn.Linear(width, width, bias=False),
                "gate": nn.Linear(width, 3 * width, bias=False), "up": nn.Linear(width, 3 * width, bias=False),
                "down": nn.Linear(3 * width, width, bias=False)}))
        self.norms = nn.ParameterList([torch.ones(width) for _ in range(2 * layers + 1)])
        self.out = nn.Linear(width, words, bias=False)

    def norm(self, x, at):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.norms[at]

    def turn(self, x, angles):
        a, b = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()

    def forward(self, ids, position, keys, values):
        x = self.words(ids)
        batch, length = ids.shape
        steps = 10000.0 ** (-torch.arange(0, self.size, 2) / self.size)
        angles = (position[:, None].float() * steps).repeat(1, 2)
        new_keys, new_values = [], []
        for at, layer in enumerate(self.layers):
            y = self.norm(x, 2 * at)
            split = lambda t, n: t.reshape(batch, length, n, self.size).transpose(1, 2)
            q, k, v = split(layer["q"](y), self.heads), split(layer["k"](y), self.groups), split(layer["v"](y), self.groups)
            q, k = self.turn(q, angles), self.turn(k, angles)
            k, v = torch.cat([keys[at], k], 2), torch.cat([values[at], v], 2)
            new_keys.append(k)
            new_values.append(v)
            times = self.heads // self.groups
            k, v = (t[:, :, None].expand(-1, -1, times, -1, -1).reshape(batch, self.heads, -1, self.size) for t in (k, v))
            scores = (q @ k.transpose(2, 3)) * self.size ** -0.5
            y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1)
            x = x + layer["o"](y)
            y = self.norm(x, 2 * at + 1)
            x = x + layer["down"](F.silu(layer["gate"](y)) * layer["up"](y))
        return self.out(self.norm(x, len(self.norms) - 1)), torch.stack(new_keys), torch.stack(new_values)


class LanguageModel(nn.Module):
    """Words, recurrent layers and scores of words, with open batch and length."""

    def __init__(self, kind=nn.LSTM, words=5000, width=256, hidden=256, layers=2):
        super().__init__()
        self.words, self.out = nn.Embedding(words, width), nn.Linear(hidden, words)
        self.layers = kind(width, hidden, layers, batch_first=True)

    def forward(self, ids):
        return self.out(self.layers(self.words(ids))[0])


class SpeechRecurrent(nn.Module):
    """Convolutions over time and frequency, and recurrent layers in both directions (Deep Speech 2; Amodei et al., 2016)."""

    def __init__(self, bands=80, width=192):
        super().__init__()
        self.convolutions = nn.Sequential(nn.Conv2d(1, 32, (11, 5), (2, 2), (5, 2)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20),
                                          nn.Conv2d(32, 32, (11, 5), (2, 1), (5, 2)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20))
        self.layers = nn.GRU(32 * bands // 4, width, 2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * width, 29)

    def forward(self, spectrum):
        x = self.convolutions(spectrum)
        x = x.permute(0, 3, 1, 2).flatten(2)
        return self.out(self.layers(x)[0]).log_softmax(-1)


def own(make, inputs, axes=None):
    return lambda: (make(), inputs(), axes or {})


def distilbert():
    from transformers import DistilBertConfig, DistilBertModel
    model = DistilBertModel(DistilBertConfig(n_layers=4, dim=384, hidden_dim=1536, n_heads=6, attn_implementation="eager"))
    ids, mask = torch.randint(0, 1000, (1, 128)), torch.ones(1, 128, dtype=torch.int64)
    axes = {"input_ids": {0: "batch", 1: "seq"}, "attention_mask": {0: "batch", 1: "seq"}}
    return First(model), {"input_ids": ids, "attention_mask": mask}, axes


def wav2vec2():
    from transformers import Wav2Vec2Config, Wav2Vec2Model
    config = Wav2Vec2Config(num_hidden_layers=3, hidden_size=384, intermediate_size=1536, num_attention_heads=6,
                            conv_dim=(256,) * 7, attn_implementation="eager")
    return First(Wav2Vec2Model(config)), {"wave": torch.randn(1, 16000)}, {}


def t5_encoder():
    from transformers import T5Config, T5EncoderModel
    config = T5Config(d_model=256, d_kv=32, d_ff=1024, num_layers=4, num_heads=8, vocab_size=4000)
    ids = torch.randint(0, 4000, (1, 96))
    return First(T5EncoderModel(config)), {"input_ids": ids}, {}


MODELS = {
    # Grouped and shuffled convolutions.
    "shufflenet_v2": vision("shufflenet_v2_x1_0"),
    "resnext50": vision("resnext50_32x4d"),
    "regnet_y_800mf": vision("regnet_y_800mf"),
    "regnet_x_1_6gf": vision("regnet_x_1_6gf"),
    "ghostnet": timm_model("ghostnet_100"),
    "mnasnet": vision("mnasnet1_0"),
    # Windowed and hybrid transformers, and their relatives.
    "swin_t": vision("swin_t"),
    "maxvit_t": vision("maxvit_t"),
    "mobilevit": timm_model("mobilevit_s", 256),
    "levit": timm_model("levit_128"),
    "poolformer": timm_model("poolformer_s12"),
    "gmlp": timm_model("gmlp_s16_224"),
    # Segmentation, detection, images from images.
    "lraspp": segmentation("lraspp_mobilenet_v3_large", 256),
    "deeplabv3": segmentation("deeplabv3_mobilenet_v3_large", 256),
    "detector": own(Detector, lambda: image(256)),
    "unet_open": own(UNet, lambda: image(128), OPEN_IMAGE),
    "unet_bilinear": own(lambda: UNet(bilinear=True), lambda: image(128)),
    "super_resolution_open": own(SuperResolution, lambda: image(96), OPEN_IMAGE),
    "style_transfer": own(StyleTransfer, lambda: image(160)),
    # Video.
    "r3d_18": lambda: (vision("r3d_18")()[0], {"clip": torch.randn(1, 3, 8, 112, 112)}, {}),
    "r2plus1d_18": lambda: (vision("r2plus1d_18")()[0], {"clip": torch.randn(1, 3, 8, 112, 112)}, {}),
    # Speech.
    "conv_tasnet": own(ConvTasNet, lambda: {"wave": torch.randn(1, 1, 8000)}),
    "wav2vec2": wav2vec2,
    "whisper_encoder": own(SpeechEncoder, lambda: {"mel": torch.randn(1, 80, 3000)}),
    "speech_gru": own(SpeechRecurrent, lambda: {"spectrum": torch.randn(1, 1, 80, 200)}),
    # Language.
    "decoder_step": own(Decoder, lambda: {
        "ids": torch.randint(0, 2000, (1, 1)), "position": torch.tensor([64]),
        "keys": torch.randn(4, 1, 2, 64, 32), "values": torch.randn(4, 1, 2, 64, 32)},
        {"keys": {3: "past"}, "values": {3: "past"}}),
    "lstm_words_open": own(LanguageModel, lambda: {"ids": torch.randint(0, 5000, (1, 64))}, {"ids": {0: "batch", 1: "seq"}}),
    "gru_words_open": own(lambda: LanguageModel(nn.GRU), lambda: {"ids": torch.randint(0, 5000, (1, 64))},
                          {"ids": {0: "batch", 1: "seq"}}),
    "distilbert_open": distilbert,
    "t5_encoder": t5_encoder,
}


def scale(model, inputs):
    """Gives what each layer computes unit variance, in the order in which they run."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.Linear)

    def unit(layer, _, out):
        spread = out.std()
        if spread > 0:
            weight = layer.weight
            weight.data.div_(spread)
            if layer.bias is not None:
                layer.bias.data.div_(spread)
            return out / spread
        return out

    layers = [module for module in model.modules() if isinstance(module, kinds)]
    # A layer that runs twice, or whose weight is computed from another, keeps what it has.
    plain = [layer for layer in layers if isinstance(layer._parameters.get("weight"), nn.Parameter)]
    hooks = [layer.register_forward_hook(unit) for layer in plain]
    model(*inputs)
    for hook in hooks:
        hook.remove()


def export(name, out):
    torch.manual_seed(SEED)
    model, inputs, axes = MODELS[name]()
    model.eval()
    path = out / f"{name}.onnx"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        scale(model, tuple(inputs.values()))
        torch.onnx.export(model, tuple(inputs.values()), str(path), input_names=list(inputs), opset_version=OPSET,
                          dynamic_axes=axes, dynamo=False)
    print(f"{name}: {path.stat().st_size / 2**20:.1f} MiB", flush=True)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in sys.argv[2:] or list(MODELS):
        try:
            export(name, out)
        except Exception as error:
            failed.append(name)
            print(f"{name}: {type(error).__name__}: {str(error)[:500]}", file=sys.stderr, flush=True)
    if failed:
        sys.exit(f"not exported: {', '.join(failed)}")


if __name__ == "__main__":
    main()
