#!/usr/bin/env python3
"""Weighs models on an NVIDIA GPU that nothing else uses: the memory that nvidia-smi tells while they run. Needs numpy and nvidia-smi; torch for the peer.

    python3 memory.py [--only CASE]... [--seconds S]

The context is what a process takes whose model has one kernel and next to no data. Of a model there is told what it takes beside that with one
session (one), what it has to (weights and arena, from the artifact), what a second session adds (second), and what torch.compile takes
for the same model beside its own context (peer). Last, one session of bert_base_dyn runs on many different extents by turns,
and is told after each round of them: from the first round on it must not grow.
Results are added to memory.jsonl as they come; a table ends the run.
"""
import argparse
import json
import subprocess
import sys
import threading
import time

import numpy as np

import cases
from cases import Failed, Place, Results
from operations import TINY

MIB = 2**20
CASES = [cases.image("resnet50_b1", "resnet50"), cases.bert(1), cases.image("mobilenet_v2_b1", "mobilenet_v2"), cases.GPT2]
# What a model may take beside weights, arena and context.
ALLOWED = 64
# What of a growth is that of nvidia-smi's unit and of the driver's own pools.
GRAIN = 4
EXTENTS = 1000
ROUNDS = 3


class Meter:
    """The used memory of the device in MiB, every 50 ms."""

    def __init__(self):
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-lms", "50"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.samples = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        """Takes what nvidia-smi says, until it ends."""
        for line in self.process.stdout:
            if line.strip().isdigit():
                self.samples.append((time.monotonic(), int(line)))

    def between(self, begin, end):
        """The samples of a time."""
        return [used for at, used in self.samples if begin <= at <= end]

    def during(self, run):
        """What is used while something runs, beside what is used before; and what the run gives."""
        time.sleep(0.3)
        before = self.between(time.monotonic() - 0.25, time.monotonic())
        begin = time.monotonic()
        given = run()
        samples = self.between(begin, time.monotonic())
        if not before or not samples:
            raise Failed("nvidia-smi says nothing")
        return max(samples) - min(before), given


def run_ours(place, artifact, inputs, sessions, seconds):
    """Runs a model for some seconds."""
    arguments = ["bench", artifact, "--device", "cuda", "--json", "--sessions", sessions, "--seconds", seconds]
    arguments += [word for path in inputs for word in ("--inputs", path)]
    code, said = place.run(arguments, 60 + 10 * seconds)
    if code:
        raise Failed(said["error"])
    return said


def run_peer(place, case, inputs, seconds):
    """Has PyTorch compile a model and run it."""
    command = [sys.executable, cases.HERE / "peers.py", case.name, inputs, "compile", "--device", "cuda"]
    done = subprocess.run(command, input=f"{seconds}\n", capture_output=True, text=True, timeout=200)
    if done.returncode:
        raise Failed(done.stdout.strip()[-300:] or done.stderr.strip()[-300:])


def needed(place, artifact):
    """MiB of weights and arena."""
    _, about = place.run(["inspect", artifact, "--json"], 60)
    return (about["weight_bytes"] + about["levels"][0]["device"]["arena_bytes"]) / MIB


def weigh(meter, place, case, context, peer_context, options):
    """The line of a model."""
    inputs = place.inputs(case)
    artifact, _ = place.for_device(case, "cuda")
    # The driver makes machine code at the first run, and that takes memory of its own.
    run_ours(place, artifact, [inputs], 1, 0)
    one, two = (meter.during(lambda n=n: run_ours(place, artifact, [inputs], n, options.seconds))[0] for n in (1, 2))
    line = {"one": one - context, "needed": needed(place, artifact), "second": two - one, "peer": None}
    if peer_context is not None:
        line["peer"] = meter.during(lambda: run_peer(place, case, inputs, options.seconds))[0] - peer_context
    line["pass"] = line["one"] <= line["needed"] + ALLOWED and (line["peer"] is None or line["one"] <= line["peer"])
    return line


def run_extents(meter, place, options):
    """The memory after each round of different extents."""
    rng = np.random.default_rng(0)
    folder = place.work / "extents"
    folder.mkdir(exist_ok=True)
    paths = []
    for n in range(EXTENTS):
        shape = (int(rng.integers(1, 9)), int(rng.integers(1, 129)))
        path = folder / f"{n}.npz"
        np.savez(path, input_ids=rng.integers(0, 1000, shape), attention_mask=np.ones(shape, np.int64))
        paths.append(path)
    artifact, _ = place.for_device(cases.BERT_OPEN, "cuda")
    said = run_ours(place, artifact, paths, 1, options.seconds)
    once = EXTENTS / said["runs_per_s"]
    said = run_ours(place, artifact, paths, 1, ROUNDS * once + 1)
    # The last so many runs of a round's length end when the process does.
    end = time.monotonic()
    rounds = [max(meter.between(end - (n + 1) * once, end - n * once)) for n in reversed(range(ROUNDS))]
    return {"rounds": rounds, "runs": said["runs"], "pass": rounds[-1] <= rounds[0] + GRAIN and said["runs"] > EXTENTS * ROUNDS}


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases.arguments(parser)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each run [default: 2]")
    parser.add_argument("--no-peer", action="store_true", help="weigh ours alone")
    options = parser.parse_args()
    place = Place(options.pack, options.work, options.program)
    results = Results(options.results or place.work / "memory.jsonl")
    [chosen] = cases.chosen([CASES], options)
    meter = Meter()
    artifact, _ = place.for_device(TINY.case(), "cuda")
    run_ours(place, artifact, [], 1, 0)
    context, _ = meter.during(lambda: run_ours(place, artifact, [], 1, options.seconds))
    alone = "import torch; x = torch.ones(32, device='cuda'); torch.cuda.synchronize(); import time; time.sleep(1)"
    peer_context = None
    if not options.no_peer:
        run = lambda: subprocess.run([sys.executable, "-c", alone], capture_output=True)
        used, done = meter.during(run)
        peer_context = used if done.returncode == 0 else None
    results.add(context=context, peer_context=peer_context)
    print(f"contexts: ours {context} MiB, PyTorch's {peer_context} MiB")
    print(f"{'case, MiB':18} {'needed':>8} {'one':>6} {'second':>7} {'peer':>6}")
    passed = True
    for case in chosen:
        try:
            line = weigh(meter, place, case, context, peer_context, options)
        except Failed as failure:
            line = {"pass": False, "error": str(failure)}
            print(f"{case.name:18} {str(failure).splitlines()[-1]}", flush=True)
        else:
            shown = [cases.number(line[key], width, digits) for key, width, digits in
                     (("needed", 8, 1), ("one", 6, 0), ("second", 7, 0), ("peer", 6, 0))]
            print(f"{case.name:18} {' '.join(shown)}", flush=True)
        results.add(memory=case.name, **line)
        passed &= line["pass"]
    try:
        line = run_extents(meter, place, options)
    except Failed as failure:
        line = {"pass": False, "error": str(failure)}
    results.add(extents=EXTENTS, **line)
    print(f"{EXTENTS} extents of bert_base_dyn: {json.dumps(line)}")
    print(f"results are in {results.path}")
    sys.exit(not (passed and line["pass"]))


if __name__ == "__main__":
    main()
