#!/usr/bin/env python3
"""Times operations on a device, each a model of its own, beside what the device's memory and its libraries give. Needs numpy; torch for the peers.

    python3 operations.py [--only OPERATION]... [--rounds N] [--seconds S]

Times are those of kernels, by the device's own clock, without the copies of inputs and outputs, in rounds: a process of
its own for ours, since the same kernel differs by a quarter from process to process, and before it the peer's turn, in
memory that it takes anew. An operation that memory bounds reads its inputs once and writes its output once: bytes by time
is set beside a copy by PyTorch that reads and writes as many (of copy). A product's time is set beside cuBLAS (of peer:
its time by ours, above 1 ours is faster), TF32 off. Each figure is the median over rounds, of ratios too.
Results are added to operations.jsonl as they come; a table ends the run.
"""
import argparse
import json
import statistics
import sys
from dataclasses import dataclass, field

import cases
from cases import Case, Failed, Place, Results

# Elements of the tensors: 64 MiB, so that a read and a written one do not lie in a second-level cache together.
SIDE = 4096
# Rows of the matrix beside few vectors: 128 MiB.
LARGE = 8192
RUNS = 20


@dataclass
class Operation:
    """A model of one node, or of a few. Inputs and constants are `float32` tensors of these shapes."""

    name: str
    op: str
    inputs: dict
    output: tuple
    constants: dict = field(default_factory=dict)
    integers: dict = field(default_factory=dict)
    attributes: dict = field(default_factory=dict)
    # Of a product, what its time is beside that of cuBLAS.
    product: tuple = None

    def case(self):
        """What is compiled and run."""
        return Case(self.name, self.name, {name: ("float", shape) for name, shape in self.inputs.items()})

    def bytes(self):
        """Bytes that it cannot do without."""
        count = 0
        for shape in [*self.inputs.values(), *self.constants.values(), self.output]:
            elements = 1
            for extent in shape:
                elements *= extent
            count += 4 * elements
        return count


def of(name, op, shape, output=None, **others):
    """An operation on a tensor `x`."""
    return Operation(f"op_{name}", op, {"x": shape}, output or shape, **others)


def vectors(rows):
    """A matrix beside so many vectors; they share the matrix's file."""
    constants = {"matrix": (SIDE, LARGE)}
    return of(f"product_{rows}", "MatMul", (rows, SIDE), (rows, LARGE), constants=constants)


def square(n):
    """A product of two matrices."""
    inputs = {"x": (n, n), "y": (n, n)}
    return Operation(f"op_square_{n}", "MatMul", inputs, (n, n), product=(n, n, n))


MATRIX = (SIDE, SIDE)
OPERATIONS = [
    of("relu", "Relu", MATRIX),
    Operation("op_add", "Add", {"x": MATRIX, "y": MATRIX}, MATRIX),
    of("gelu", "Gelu", MATRIX),
    of("softmax", "Softmax", MATRIX),
    of("softmax_short", "Softmax", (65536, 256)),
    of("softmax_columns", "Softmax", (64, 256, 1024), attributes={"axis": 1}),
    of("layer_norm", "LayerNormalization", MATRIX, constants={"scale": (SIDE,), "bias": (SIDE,)}),
    of("layer_norm_short", "LayerNormalization", (21504, 768), constants={"scale": (768,), "bias": (768,)}),
    of("instance_norm", "InstanceNormalization", (64, 64, 64, 64), constants={"scale": (64,), "bias": (64,)}),
    of("sum_rows", "ReduceSum", MATRIX, (SIDE,), integers={"axes": [1]}, attributes={"keepdims": 0}),
    of("sum_columns", "ReduceSum", MATRIX, (SIDE,), integers={"axes": [0]}, attributes={"keepdims": 0}),
    of("mean_middle", "ReduceMean", (64, 256, 1024), (64, 1024), integers={"axes": [1]}, attributes={"keepdims": 0}),
    of("mean_images", "GlobalAveragePool", (64, 256, 32, 32), (64, 256, 1, 1)),
    of("transpose", "Transpose", MATRIX, attributes={"perm": [1, 0]}),
    of("transpose_batch", "Transpose", (64, 256, 1024), (64, 1024, 256), attributes={"perm": [0, 2, 1]}),
    of("transpose_heads", "Transpose", (16, 1024, 16, 64), (16, 16, 1024, 64), attributes={"perm": [0, 2, 1, 3]}),
    of("transpose_images", "Transpose", (64, 64, 64, 64), attributes={"perm": [0, 2, 3, 1]}),
    *[vectors(rows) for rows in (1, 2, 4, 8, 16)],
    *[square(n) for n in (2048, 4096, 8192)],
]
# What runs of it take is the context of a process.
TINY = of("tiny", "Relu", (32,))


class Peer:
    """PyTorch on the device, where it is."""

    def __init__(self, device):
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        self.torch, self.device, self.before = torch, device, None
        self.name = f"PyTorch {torch.__version__}, {torch.cuda.get_device_name(device)}"

    def time(self, run):
        """The median of the milliseconds of runs by events."""
        torch = self.torch
        for _ in range(3):
            run()
        times = []
        for _ in range(RUNS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)

    def copy(self, size):
        """GB/s of a copy that reads and writes so many bytes in all."""
        elements = (size // 8,)
        source, target = (self.torch.ones(elements, device=self.device) for _ in range(2))
        # What the turn before had stays until now, so that this one has other memory: some is slower by a quarter.
        self.before = (source, target)
        self.torch.cuda.empty_cache()
        return 2 * source.nbytes / self.time(lambda: target.copy_(source)) / 1e6

    def product(self, m, n, k):
        """Milliseconds of a product."""
        a, b = (self.torch.randn(shape, device=self.device) for shape in ((m, k), (k, n)))
        out = self.torch.empty((m, n), device=self.device)
        return self.time(lambda: self.torch.matmul(a, b, out=out))

    def turn(self, operation):
        """What an operation is set beside: milliseconds of its product, or GB/s of a copy."""
        try:
            if operation.product:
                return {"peer_ms": self.product(*operation.product)}
            return {"copy_gbps": self.copy(operation.bytes())}
        except RuntimeError as error:
            return {"peer_error": f"{type(error).__name__}: {error}"}


def measure(place, operation, peer, options):
    """The columns of an operation, its kernels, and what each round gave."""
    artifact, _ = place.for_device(operation.case(), options.device)
    rounds = []
    for _ in range(options.rounds):
        beside = peer.turn(operation) if peer else {}
        rounds.append({**beside, **one_round(place, artifact, options)})
    kernels = [said.pop("kernels") for said in rounds]

    def median(of):
        """The median over rounds; nothing where there is no peer."""
        values = [of(said) for said in rounds]
        return statistics.median(values) if None not in values else None

    def ratio(said):
        """Of the peer's time by ours."""
        return said["peer_ms"] / said["device_ms"] if "peer_ms" in said else None

    def of_copy(said):
        """Of the bytes that ours moves in a second by those of the copy."""
        return operation.bytes() / said["device_ms"] / 1e6 / said["copy_gbps"] if "copy_gbps" in said else None

    ms = median(lambda said: said["device_ms"])
    m, n, k = operation.product or (0, 0, 0)
    return {
        "device_ms": ms,
        "gbps": operation.bytes() / ms / 1e6,
        "copy": median(of_copy),
        "tflops": 2 * m * n * k / ms / 1e9 if operation.product else None,
        "peer_ms": median(lambda said: said.get("peer_ms")),
        "ratio": median(ratio),
        "kernels": kernels[0],
        "rounds": rounds,
    }


def one_round(place, artifact, options):
    """The milliseconds of an artifact's kernels, and what they are."""
    arguments = ["profile", artifact, "--device", options.device, "--by", "kernel", "--json"]
    code, said = place.run([*arguments, "--seconds", options.seconds], 120)
    if code:
        raise Failed(said["error"])
    kernels = [row for row in said["rows"] if row["device_ms"] > 0 and row["kernels"] != ["copy"]]
    return {
        "device_ms": sum(row["device_ms"] for row in kernels),
        "kernels": [[" ".join(row["kernels"]), " ".join(row["rules"]), row["device_ms"]] for row in kernels],
        "runs": said["runs"],
    }


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases.arguments(parser)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each operation [default: 3]")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds of each measurement [default: 0.3]")
    options = parser.parse_args()
    place = Place(options.pack, options.work, options.program)
    results = Results(options.results or place.work / "operations.jsonl")
    [chosen] = cases.chosen([OPERATIONS], options)
    peer = None
    try:
        peer = Peer(options.device)
        copy = peer.copy(8 * SIDE * SIDE)
        results.add(peer=peer.name, copy_gbps=copy)
        print(f"{peer.name}: a copy moves {copy:.0f} GB/s")
    except Exception as error:
        print(f"no peer: {type(error).__name__}: {error}")
        peer = None
    widths = {"gbps": (7, 0), "copy": (8, 2), "tflops": (8, 1), "peer_ms": (9, 4), "ratio": (8, 2)}
    print(f"{'operation':24} {'ms':>8} {'GB/s':>7} {'of copy':>8} {'TFLOP/s':>8} {'peer, ms':>9} {'of peer':>8}", flush=True)
    failed = False
    for operation in chosen:
        try:
            said = measure(place, operation, peer, options)
        except Failed as failure:
            results.add(operation=operation.name, error=str(failure))
            print(f"{operation.name:24} {str(failure).splitlines()[-1]}", flush=True)
            failed = True
            continue
        results.add(operation=operation.name, **said)
        cells = "".join(f" {cases.number(said[key], *widths[key])}" for key in widths)
        print(f"{operation.name:24} {said['device_ms']:8.4f}{cells}", flush=True)
    print(f"results are in {results.path}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
