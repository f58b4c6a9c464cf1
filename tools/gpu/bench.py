#!/usr/bin/env python3
"""Times models on a device beside PyTorch on the same machine, in turns. Needs numpy; torch for the peers.

    python3 bench.py [--part N] [--rounds N] [--seconds S] [--only CASE]... [--peers eager,compile,graphs,autotune]

A time is that of a whole run: inputs go from the host's memory to the device and outputs come back, for ours and for
peers. Of peers, the time with inputs that lie on the device is told too (resident). Ours is timed twice: with a launch
for each kernel, and as a graph (--mode reduce-overhead). Each case is measured in rounds, ours, then each peer; the
figure is the median over rounds of medians. kernels is the sum of our kernels' times, by the device's clock. ratio is the
peer's time by that of our graph: above 1, ours is faster.
TF32 is off everywhere.
Results are added to bench.jsonl as they come; a table ends the run.
"""
import argparse
import json
import pathlib
import queue
import statistics
import subprocess
import sys
import threading
import time

import cases
from cases import Failed, Place, Results

PEERS = ["eager", "compile", "graphs", "autotune"]
# What is timed of ours, and the mode of the compiler.
OURS = {"launches": None, "graph": "reduce-overhead"}


class Peer:
    """A process that has a model of a peer ready and times it when it is asked."""

    def __init__(self, name, case, inputs, device, python, limit, log):
        self.name = name
        self.answers = queue.Queue()
        script = pathlib.Path(__file__).resolve().parent / "peers.py"
        command = [python, script, case.name, inputs, name, "--device", device]
        self.log = open(log, "w")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        threading.Thread(target=self.read, daemon=True).start()
        self.ready = self.answer(limit)

    def read(self):
        """Takes what the process says, until it ends."""
        for line in self.process.stdout:
            if line.startswith("{"):
                self.answers.put(json.loads(line))
        self.answers.put(None)

    def answer(self, limit):
        """The next answer of the process, which is stopped where it gives none in time."""
        try:
            said = self.answers.get(timeout=limit)
        except queue.Empty:
            self.stop()
            raise Failed(f"no answer within {limit:.0f} s") from None
        if said is None or "error" in said:
            self.stop()
            words = pathlib.Path(self.log.name).read_text().strip()
            raise Failed(said["error"] if said else words[-600:] or "ended without a word")
        return said

    def measure(self, seconds, limit):
        """Times of one round."""
        try:
            print(seconds, file=self.process.stdin, flush=True)
        except OSError as error:
            raise Failed(str(error)) from None
        return self.answer(limit)

    def stop(self):
        """Ends the process."""
        self.process.kill()
        self.process.wait()
        self.log.close()


class Measurement:
    """One case on the way to its result."""

    def __init__(self, place, case, options, results, end):
        self.place, self.case, self.options, self.results, self.end = place, case, options, results, end
        self.rounds = {}
        self.facts = {}
        self.peers = []

    def fail(self, contestant, error):
        """Keeps why there is no time."""
        self.facts.setdefault("failures", {})[contestant] = error
        self.results.add(bench=self.case.name, contestant=contestant, error=error)
        print(f"{self.case.name}: {contestant}: {error.splitlines()[-1] if error else 'failed'}", flush=True)

    def add(self, contestant, times):
        """Keeps the times of a round."""
        self.rounds.setdefault(contestant, []).append(times)
        self.results.add(bench=self.case.name, contestant=contestant, **times)

    def left(self):
        """Seconds that the part has left."""
        return self.end - time.monotonic()

    def start_peers(self, inputs):
        """Starts every peer that can be had; one after the other, for some choose their kernels by timing them."""
        for name in self.options.peers.split(",") if self.options.peers else []:
            if self.left() < 20:
                self.fail(name, "not run: the time of the part is over")
                continue
            limit = min(self.options.peer_limit, self.left())
            log = self.place.work / f"{self.case.name}.{name}.log"
            try:
                peer = Peer(name, self.case, inputs, self.options.device, self.options.python, limit, log)
                self.facts[name] = peer.ready
                self.peers.append(peer)
            except Failed as failure:
                self.fail(name, str(failure))

    def ours(self, artifact, inputs):
        """A round of ours."""
        options = self.options
        command = ["bench", artifact, "--device", options.device, "--inputs", inputs, "--json"]
        code, said = self.place.run([*command, "--seconds", options.seconds], max(60, self.left()))
        if code:
            raise Failed(said["error"])
        return said

    def kernels(self, artifact, inputs):
        """The milliseconds that the kernels of a run take."""
        options = self.options
        command = ["profile", artifact, "--device", options.device, "--inputs", inputs, "--by", "kernel", "--json"]
        code, said = self.place.run([*command, "--seconds", options.seconds], max(60, self.left()))
        if code:
            raise Failed(said["error"])
        return sum(row["device_ms"] for row in said["rows"])

    def run(self):
        """All rounds."""
        inputs = self.place.inputs(self.case)
        artifacts = {}
        for name, mode in OURS.items():
            try:
                artifact, said = self.place.for_device(self.case, self.options.device, mode)
                self.facts["functions"] = [said["functions"], said["cached_functions"]]
                # Before the peers take memory and time; the driver keeps the code that it makes now.
                self.ours(artifact, inputs)
                artifacts[name] = artifact
                if mode is None:
                    self.facts["kernels_ms"] = self.kernels(artifact, inputs)
            except Failed as failure:
                self.fail(name, str(failure))
        self.start_peers(inputs)
        for number in range(self.options.rounds):
            if number and self.left() < 10:
                break
            for name, artifact in list(artifacts.items()):
                try:
                    self.add(name, self.ours(artifact, inputs))
                except Failed as failure:
                    self.fail(name, str(failure))
                    del artifacts[name]
            for peer in list(self.peers):
                try:
                    self.add(peer.name, peer.measure(self.options.seconds, 60 + 10 * self.options.seconds))
                except Failed as failure:
                    self.fail(peer.name, str(failure))
                    self.peers.remove(peer)
        for peer in self.peers:
            peer.stop()

    def row(self):
        """The result of the case."""

        def median(contestant, key):
            times = [times[key] for times in self.rounds.get(contestant, []) if key in times]
            return statistics.median(times) if times else None

        row = {"case": self.case.name, **{f"{name}_ms": median(name, "median_ms") for name in OURS}}
        for name in PEERS:
            row[f"{name}_ms"] = median(name, "median_ms")
            row[f"{name}_resident_ms"] = median(name, "resident_ms")
            both = row["graph_ms"] and row[f"{name}_ms"]
            row[f"{name}_ratio"] = row[f"{name}_ms"] / row["graph_ms"] if both else None
        return {**row, "rounds": len(self.rounds.get("graph", [])), **self.facts}


def table(rows):
    """The rows for people."""
    head = "".join(f" {name:>10} {'resident':>9} {'ratio':>6}" for name in PEERS)
    own = "".join(f" {name:>10}" for name in OURS) + f" {'kernels':>8}"
    lines = [f"{'case, ms':18}{own}{head}"]
    for row in rows:
        line = f"{row['case']:18}" + "".join(f" {cases.number(row[f'{name}_ms'], 10, 3)}" for name in OURS)
        line += f" {cases.number(row.get('kernels_ms'), 8, 3)}"
        for name in PEERS:
            line += f" {cases.number(row[f'{name}_ms'], 10, 3)} {cases.number(row[f'{name}_resident_ms'], 9, 3)}"
            line += f" {cases.number(row[f'{name}_ratio'], 6, 2)}"
        lines.append(line)
        lines += [f"    no {who}: {why.splitlines()[-1]}" for who, why in row.get("failures", {}).items() if why]
    return "\n".join(lines)


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases.arguments(parser)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each case [default: 3]")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of each measurement [default: 1]")
    parser.add_argument("--peers", default=",".join(PEERS), help="peers, with commas between [default: all]")
    parser.add_argument("--python", default=sys.executable, help="Python that has torch [default: this one]")
    parser.add_argument("--peer-limit", type=float, default=150, help="seconds a peer may take to get ready")
    options = parser.parse_args()
    place = Place(options.pack, options.work, options.program)
    results = Results(options.results or place.work / "bench.jsonl")
    rows = []
    for part in cases.chosen(cases.BENCHES, options):
        end = time.monotonic() + options.budget
        for case in part:
            if time.monotonic() > end:
                rows.append({"case": case.name, "failures": {"all": "the time is over"}})
                rows[-1].update({f"{name}_ms": None for name in OURS})
                rows[-1].update({f"{name}{key}": None for name in PEERS for key in ("_ms", "_resident_ms", "_ratio")})
                continue
            measurement = Measurement(place, case, options, results, end)
            measurement.run()
            rows.append(measurement.row())
            results.add(result=rows[-1])
            print(table(rows[-1:]), flush=True)
    print("\n" + table(rows))
    print(f"results are in {results.path}")
    sys.exit(any(row[f"{name}_ms"] is None for row in rows for name in OURS))


if __name__ == "__main__":
    main()
