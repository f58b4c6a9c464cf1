"""What the checks and measurements on a GPU run: models, their inputs, and how the `tilewright` program compiles them.

A folder holds it all, a pack that was unpacked or one that a checkout made:

    tilewright          the program
    models/             models without their weights, and weights.json, which tells how to make them
    cache/              compiled functions, where the program has no LLVM
    kernels/            the suite of kernels, a file a target, with what they are to compute
    pack.json           targets, and the LLVM that made the functions
"""
import json
import os
import pathlib
import subprocess
import time
from dataclasses import dataclass, field

import numpy as np

import weights

HERE = pathlib.Path(__file__).resolve().parent



@dataclass
class Case:
    """A model with fixed extents."""

    name: str
    model: str
    shapes: dict
    dims: list = field(default_factory=list)

    def inputs(self):
        """Seeded inputs by name: noise, identifiers of words, ones, or a given number."""
        rng = np.random.default_rng(0)
        made = {}
        for name, (kind, shape) in self.shapes.items():
            if kind == "float":
                made[name] = rng.standard_normal(shape, dtype=np.float32)
            elif kind == "ids":
                made[name] = rng.integers(0, 1000, shape, dtype=np.int64)
            elif kind == "ones":
                made[name] = np.ones(shape, np.int64)
            else:
                made[name] = np.full(shape, kind, np.int64)
        return made


def image(name, model=None, batch=1, side=224):
    """A classifier of images."""
    return Case(name, model or name, {"input": ("float", (batch, 3, side, side))})


def bert(batch):
    """BERT on 128 words, whose extents are open in the model."""
    shape = (batch, 128)
    shapes = {"input_ids": ("ids", shape), "attention_mask": ("ones", shape)}
    return Case(f"bert_base_b{batch}", "bert_base_dyn", shapes, [f"batch={batch}", "seq=128"])


def product(n):
    """A product of two constant matrices, the first one times the input; the largest of each row comes back."""
    return Case(f"matmul_{n}", f"matmul_{n}", {"x": ("float", (1,))})


# One artifact for all extents.
BERT_OPEN = Case("bert_base_open", "bert_base_dyn", {})
GPT2 = Case("gpt2_s64", "gpt2_s64", {"input_ids": ("ids", (1, 64))})
SILERO = Case(
    "silero_vad",
    "silero_vad",
    {"input": ("float", (1, 576)), "state": ("float", (2, 1, 128)), "sr": (16000, ())},
)

# Parts of a check, the most important first.
CHECKS = [
    [image("squeezenet1_1"), image("resnet50"), image("mobilenet_v2"), bert(1), GPT2, product(2048)],
    [
        image("vit_b_16"),
        image("convnext_tiny"),
        image("densenet121"),
        image("efficientnet_b0"),
        image("inception_v3", side=299),
        SILERO,
    ],
]



@dataclass
class Suite:
    """The suite of kernels, as it is or under a tool of compute-sanitizer."""

    name: str
    tool: str = ""


SUITE = Suite("kernels")
SANITIZED = [Suite("memcheck", "memcheck"), Suite("racecheck", "racecheck")]

# Parts of a measurement.
BENCHES = [
    [product(2048), product(4096), product(8192), image("resnet50_b1", "resnet50")],
    [image("resnet50_b32", "resnet50_b32", 32), image("resnet50_b128", "resnet50_b128", 128)],
    [image("mobilenet_v2_b1", "mobilenet_v2"), GPT2],
    [bert(1), bert(32)],
]


def every_case():
    """Each case once, by what is compiled."""
    seen = {}
    for case in [BERT_OPEN, *(case for parts in (CHECKS, BENCHES) for part in parts for case in part)]:
        seen.setdefault((case.model, tuple(case.dims)), case)
    return list(seen.values())


class Failed(Exception):
    """A program that did not do what it was to; the text is the end of what it said."""


class Place:
    """A pack with a folder for what is made of it."""

    def __init__(self, pack, work=None, program=None):
        self.pack = pathlib.Path(pack).resolve()
        self.work = pathlib.Path(work).resolve() if work else self.pack / "work"
        self.program = pathlib.Path(program or self.pack / "tilewright").resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.about = json.loads((self.pack / "pack.json").read_text())
        # Records of tuning would change schedules, and so which functions are wanted.
        self.environment = {**os.environ, "TILEWRIGHT_DATABASE": str(self.work / "no-records.jsonl")}
        if (self.pack / "cache").is_dir():
            self.environment["TILEWRIGHT_CACHE_DIR"] = str(self.pack / "cache")

    def process(self, arguments, limit, under=()):
        """Runs the program, by another one where that is given; how it ended, and what it said."""
        command = [*under, str(self.program), *map(str, arguments)]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=limit, env=self.environment)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end within {limit:.0f} s") from None

    def run(self, arguments, limit):
        """Runs the program; its exit code, and the object in the last line of its output."""
        done = self.process(arguments, limit)
        lines = done.stdout.strip().splitlines()
        try:
            value = json.loads(lines[-1])
        except (IndexError, ValueError):
            raise Failed(done.stderr.strip()[-1500:] or f"exit code {done.returncode}") from None
        if done.returncode:
            value["error"] = done.stderr.strip()[-1500:]
        return done.returncode, value

    def model(self, case):
        """The model with its weights."""
        return weights.make(self.pack / "models", case.model, self.work / "models")

    def inputs(self, case):
        """The inputs in a file."""
        path = self.work / f"{case.name}.npz"
        np.savez(path, **case.inputs())
        return path

    def targets(self, device):
        """What to compile for."""
        kind = device.split(":")[0]
        found = [target for target in self.about["targets"] if target.split(":")[0].split("/")[0] == kind]
        if not found:
            raise Failed(f"this pack is for {', '.join(self.about['targets'])}: none is for {kind}")
        return ",".join(found)

    def compile(self, case, target, out, codegen=None, limit=300, mode=None):
        """Compiles a case into a file; what the program says of it."""
        arguments = ["compile", self.model(case), "-o", out, "--target", target, "--json"]
        arguments += [word for dim in case.dims for word in ("--dim", dim)]
        if codegen:
            arguments += ["--codegen", codegen]
        if mode:
            arguments += ["--mode", mode]
        code, said = self.run(arguments, limit)
        if code:
            raise Failed(said["error"])
        return said

    def for_device(self, case, device, mode=None):
        """The case compiled for a device, in a mode of the compiler: the file, and what the program says of it."""
        suffix = f".{mode}" if mode else ""
        out = self.work / f"{case.name}{suffix}.{device.split(':')[0]}.twm"
        codegen = "llvm" if self.about.get("llvm") else None
        return out, self.compile(case, self.targets(device), out, codegen, mode=mode)


class Results:
    """Results as they come, a line each, so that a run that is cut loses none."""

    def __init__(self, path):
        self.path = path
        self.lines = []

    def add(self, **result):
        """Keeps a result."""
        result["at"] = round(time.time(), 1)
        self.lines.append(result)
        with open(self.path, "a") as file:
            print(json.dumps(result), file=file, flush=True)


def number(value, width, digits):
    """A number in a column, or a dash."""
    return f"{value:{width}.{digits}f}" if value is not None else f"{'-':>{width}}"


def arguments(parser):
    """What all scripts are told alike."""
    parser.add_argument("--part", type=int, help="this part only, from 1")
    parser.add_argument("--only", action="append", help="this case only; may be given again")
    parser.add_argument("--device", default="cuda", help="cuda, or opencl [default: cuda]")
    parser.add_argument("--budget", type=float, default=440, help="seconds after which a part begins no case")
    parser.add_argument("--pack", default=HERE, help="the pack [default: where this script is]")
    parser.add_argument("--work", help="where files are made [default: work in the pack]")
    parser.add_argument("--program", help="the tilewright program [default: that of the pack]")
    parser.add_argument("--results", help="file that results are added to [default: in the folder of files]")


def chosen(parts, options):
    """The parts asked for, each of the cases asked for."""
    if options.part is not None:
        if not 1 <= options.part <= len(parts):
            raise SystemExit(f"--part is from 1 to {len(parts)}")
        parts = parts[options.part - 1 : options.part]
    wanted = options.only or [case.name for part in parts for case in part]
    unknown = set(wanted) - {case.name for part in parts for case in part}
    if unknown:
        raise SystemExit(f"no case {', '.join(sorted(unknown))} here")
    return [[case for case in part if case.name in wanted] for part in parts]
