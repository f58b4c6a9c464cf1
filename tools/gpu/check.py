#!/usr/bin/env python3
"""Checks models on a device against the same models on the processor. Needs numpy, and nothing else.

    python3 check.py [--part N] [--device cuda|opencl] [--only CASE]...

Each model is compiled for the device and, by Cranelift, for the processor. It is run 20 times, which must give the same
bits, and its outputs are compared. Results are added to check.jsonl as they come; a table ends the run.
"""
import argparse
import sys
import time

import cases
from cases import Failed, Place, Results

RUNS = 20


def check(place, case, device, limit):
    """The result of one case."""
    start = time.monotonic()
    inputs = place.inputs(case)
    artifact, said = place.for_device(case, device)
    compiled = time.monotonic()
    reference = place.work / f"{case.name}.cpu.twm"
    place.compile(case, "cpu", reference, "cranelift")
    prepared = time.monotonic()
    verify = ["verify", artifact, "--device", device, "--inputs", inputs, "--against", reference]
    _, verdict = place.run([*verify, "--runs", RUNS, "--json"], limit)
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


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases.arguments(parser)
    options = parser.parse_args()
    place = Place(options.pack, options.work, options.program)
    results = Results(options.results or place.work / "check.jsonl")
    for part in cases.chosen(cases.CHECKS, options):
        begin = time.monotonic()
        for case in part:
            start = time.monotonic()
            left = options.budget - (start - begin)
            if left <= 0:
                result = {"pass": False, "error": "not run: the time of the part is over"}
            else:
                try:
                    result = check(place, case, options.device, max(60, left))
                except Failed as failure:
                    result = {"pass": False, "error": str(failure)}
            seconds = round(time.monotonic() - start, 2)
            results.add(check=case.name, device=options.device, seconds=seconds, **result)
            print(f"{case.name}: {'pass' if result['pass'] else result['error']}, {seconds:.1f} s", flush=True)
    print(f"\n{'model':18} {'':4} {'worst':>10} {'largest':>10} {'seconds':>8}")
    for line in results.lines:
        worst, scale = (f"{line[key]:.2e}" if line.get(key) is not None else "-" for key in ("worst", "scale"))
        verdict = "pass" if line["pass"] else "FAIL"
        print(f"{line['check']:18} {verdict:4} {worst:>10} {scale:>10} {line['seconds']:8.1f}")
    passed = sum(line["pass"] for line in results.lines)
    print(f"{passed} of {len(results.lines)} pass; results are in {results.path}")
    sys.exit(passed != len(results.lines))


if __name__ == "__main__":
    main()
