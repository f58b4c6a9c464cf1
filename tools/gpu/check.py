#!/usr/bin/env python3
"""Checks kernels on a device against the evaluator, and models against the same models on the processor. Needs numpy, and nothing else.

    python3 check.py [--part N] [--device cuda|opencl] [--only CASE]...

The first part runs the suite of kernels, each of which must have the evaluator's bits. Then come models: each is compiled for
the device and, by Cranelift, for the processor; it is run several times, each time with the tasks of its kernels in other
ranges, which must give the same bits, and its outputs are compared. Where compute-sanitizer is found, the last part runs the suite under its memcheck and racecheck. Results are added
to check.jsonl as they come; a table ends the run.
"""
import argparse
import json
import shutil
import sys
import time

import cases
from cases import Failed, Place, Results, Suite

# Runs of a model by kind of device. OpenCL's device may be a processor, on which a run takes seconds.
RUNS = {"cuda": 100, "opencl": 3}
SANITIZER = "compute-sanitizer"
FOUND_BY_SANITIZER = 99
UNSUPPORTED = 3


class Refused(Failed):
    """The device does not run such kernels, or is not there; the text is what the program said of that."""


def check(place, case, device, limit):
    """The result of one model."""
    start = time.monotonic()
    inputs = place.inputs(case)
    artifact, said = place.for_device(case, device)
    compiled = time.monotonic()
    reference = place.work / f"{case.name}.cpu.twm"
    place.compile(case, "cpu", reference, "cranelift")
    prepared = time.monotonic()
    verify = ["verify", artifact, "--device", device, "--inputs", inputs, "--against", reference]
    _, verdict = place.run([*verify, "--ranges", "--runs", RUNS[device.split(":")[0]], "--json"], limit)
    outputs = verdict.get("outputs", [])
    result = {
        "pass": bool(verdict.get("agrees")),
        "worst": max((output.get("worst", float("inf")) for output in outputs), default=None),
        "scale": max((output.get("scale", 0.0) for output in outputs), default=None),
        "functions": said["functions"],
        "cached_functions": said["cached_functions"],
        "compile_s": round(compiled - start, 2),
        "reference_s": round(prepared - compiled, 2),
        "verify_s": round(time.monotonic() - prepared, 2),
    }
    if not result["pass"]:
        faults = [f"{output['name']}: {output['fault']}" for output in outputs if "fault" in output]
        result["error"] = "; ".join(faults) or verdict.get("error", "")
        result["worst"] = None
    return result


def run_suite(place, file, device, tool, end):
    """Runs the kernels of a file until a time; what is run, and what is wrong. Raises Refused where none can be."""
    under = [SANITIZER, "--tool", tool, "--error-exitcode", str(FOUND_BY_SANITIZER)] if tool else []
    run, faults, first = 0, [], 0
    while True:
        arguments = ["kernels", file, "--device", device, "--first", first, "--json"]
        done = place.process(arguments, max(1, end - time.monotonic()), under)
        said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode == UNSUPPORTED and first == 0:
            raise Refused(done.stderr.strip()[-1500:])
        if not said or "kernels" not in said[-1]:
            raise Failed(done.stderr.strip()[-1500:] or f"exit code {done.returncode}")
        *wrong, last = said
        run += last["run"]
        faults += [f"{line['kernel']}: {line['fault']}" for line in wrong]
        if done.returncode == FOUND_BY_SANITIZER:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("=====")]
            faults.append(f"{tool}: " + "\n".join(lines)[:1500])
        # A kernel that cost the device ended the process; those behind it are run by another one.
        if last["lost_at"] is None or last["lost_at"] + 1 >= last["kernels"]:
            return run, faults
        first = last["lost_at"] + 1


def check_suite(place, suite, device, limit):
    """The result of the suite of kernels: that for the newest generation which the device runs."""
    kind = device.split(":")[0]
    files = sorted((place.pack / "kernels").glob(f"{kind}*.twk"), reverse=True)
    end = time.monotonic() + limit
    refusal = f"the pack has none for {kind}"
    for file in files:
        try:
            run, faults = run_suite(place, file, device, suite.tool, end)
        except Refused as refused:
            refusal = str(refused)
            continue
        result = {"pass": not faults, "modules": run, "file": file.name}
        return result if result["pass"] else {**result, "error": "; ".join(faults)[:4000]}
    raise Failed(f"no kernel was run: {refusal}")


def parts(device):
    """The parts, those first that say most."""
    sanitized = [cases.SANITIZED] if device.startswith("cuda") and shutil.which(SANITIZER) else []
    return [[cases.SUITE], *cases.CHECKS, *sanitized]


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases.arguments(parser)
    options = parser.parse_args()
    place = Place(options.pack, options.work, options.program)
    results = Results(options.results or place.work / "check.jsonl")
    for part in cases.chosen(parts(options.device), options):
        begin = time.monotonic()
        for case in part:
            start = time.monotonic()
            left = options.budget - (start - begin)
            if left <= 0:
                result = {"pass": False, "error": "not run: the time of the part is over"}
            else:
                try:
                    checks = check_suite if isinstance(case, Suite) else check
                    result = checks(place, case, options.device, max(60, left))
                except Failed as failure:
                    result = {"pass": False, "error": str(failure)}
            seconds = round(time.monotonic() - start, 2)
            results.add(check=case.name, device=options.device, seconds=seconds, **result)
            print(f"{case.name}: {'pass' if result['pass'] else result['error']}, {seconds:.1f} s", flush=True)
    print(f"\n{'check':18} {'':4} {'worst':>10} {'largest':>10} {'seconds':>8}")
    for line in results.lines:
        worst, scale = (f"{line[key]:.2e}" if line.get(key) is not None else "-" for key in ("worst", "scale"))
        verdict = "pass" if line["pass"] else "FAIL"
        print(f"{line['check']:18} {verdict:4} {worst:>10} {scale:>10} {line['seconds']:8.1f}")
    passed = sum(line["pass"] for line in results.lines)
    print(f"{passed} of {len(results.lines)} pass; results are in {results.path}")
    sys.exit(passed != len(results.lines))


if __name__ == "__main__":
    main()
