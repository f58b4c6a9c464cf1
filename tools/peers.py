#!/usr/bin/env python3
"""What `cargo xtask bench` needs of Python: inputs for a model, one measurement of a peer, the comparison of answers.

    peers.py inputs MODEL OUT.npz [--dim NAME=N]... [--shape INPUT=1x512]... [--value INPUT=16000]...
    peers.py run onnxruntime|openvino MODEL IN.npz OUT.npz --threads N --seconds S
    peers.py agree REFERENCE.npz ANSWER.npz

Each prints one JSON object as its last line. Inputs are seeded noise; integers are ids in 0..100, inputs named *mask*
are ones with a zero tail. Answers agree within 1e-3 |reference| + 1e-4 max |reference|.
"""
import argparse
import json
import resource
import statistics
import time

import numpy as np


def inputs(o):
    import onnx

    graph = onnx.load(o.model, load_external_data=False).graph
    dims, shapes, values = (dict(pair.split("=", 1) for pair in pairs) for pairs in (o.dim, o.shape, o.value))
    constants = {tensor.name for tensor in graph.initializer}
    rng = np.random.default_rng(0)
    feeds, named = {}, {}
    for spec in graph.input:
        if spec.name in constants:
            continue
        tensor = spec.type.tensor_type
        named |= {d.dim_param: int(dims.get(d.dim_param, 1)) for d in tensor.shape.dim if d.dim_param}
        shape = [d.dim_value if d.HasField("dim_value") else int(dims.get(d.dim_param, 1)) for d in tensor.shape.dim]
        if spec.name in shapes:
            shape = [int(extent) for extent in shapes[spec.name].split("x") if extent]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if spec.name in values:
            feeds[spec.name] = np.full(shape, float(values[spec.name]), dtype)
        elif dtype.kind not in "iu":
            feeds[spec.name] = rng.standard_normal(shape).astype(dtype)
        elif "mask" in spec.name:
            kept = max(1, shape[-1] * 7 // 8)
            feeds[spec.name] = np.broadcast_to(np.arange(shape[-1]) < kept, shape).astype(dtype)
        else:
            feeds[spec.name] = rng.integers(0, 100, shape).astype(dtype)
    np.savez(o.out, **feeds)
    shapes = {name: list(feed.shape) for name, feed in feeds.items()}
    return {"inputs": shapes, "dims": [f"{name}={extent}" for name, extent in named.items()]}


def onnxruntime(o, feeds):
    """A function that runs once, and one that gives the outputs."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = o.threads
    options.log_severity_level = 4
    session = ort.InferenceSession(o.model, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    binding = session.io_binding()
    for name, feed in feeds.items():
        binding.bind_cpu_input(name, feed)
    for name in names:
        binding.bind_output(name)
    return lambda: session.run_with_iobinding(binding), lambda: dict(zip(names, session.run(None, feeds)))


def openvino(o, feeds):
    """As `onnxruntime`."""
    import openvino as ov

    config = {"INFERENCE_NUM_THREADS": o.threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    model = ov.Core().compile_model(o.model, "CPU", config)
    request = model.create_infer_request()
    for name, feed in feeds.items():
        request.set_tensor(name, ov.Tensor(feed))
    return request.infer, lambda: {out.any_name: request.get_tensor(out).data.copy() for out in model.outputs}


def run(o):
    feeds = dict(np.load(o.inputs))
    # Importing a peer is no part of loading a model.
    __import__(o.peer)
    begin = time.perf_counter()
    step, outputs = {"onnxruntime": onnxruntime, "openvino": openvino}[o.peer](o, feeds)
    load = time.perf_counter() - begin
    step(), step()
    times, end = [], time.perf_counter() + o.seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    np.savez(o.outputs, **outputs())
    return {"median_ms": statistics.median(times), "min_ms": min(times), "load_s": load, "runs": len(times), "peak_mib": peak}


def disagreement(reference, answer):
    """None, or why the answer is not the reference."""
    if reference.shape != answer.shape or reference.dtype != answer.dtype:
        return f"{answer.dtype}{list(answer.shape)}, expected {reference.dtype}{list(reference.shape)}"
    if reference.dtype.kind not in "fc":
        return None if np.array_equal(reference, answer) else f"{(reference != answer).sum()} of {reference.size} differ"
    r, a = reference.astype(np.float64).ravel(), answer.astype(np.float64).ravel()
    finite = np.isfinite(r)
    if not np.array_equal(r[~finite], a[~finite], equal_nan=True):
        return "NaNs or infinities differ"
    r, a = r[finite], a[finite]
    if r.size == 0:
        return None
    off = ~(np.abs(r - a) <= 1e-3 * np.abs(r) + 1e-4 * np.abs(r).max())
    worst = f"worst {np.abs(r - a).max():.3g} (largest {np.abs(r).max():.3g})"
    return f"{off.sum()} of {r.size} off, {worst}" if off.any() else None


def agree(o):
    reference, answer = np.load(o.reference), np.load(o.answer)
    missing = [name for name in reference.files if name not in answer.files]
    if missing:
        return {"agrees": False, "why": f"no {', '.join(missing)}"}
    wrong = [f"{name}: {why}" for name in reference.files for why in [disagreement(reference[name], answer[name])] if why]
    return {"agrees": not wrong, "why": "; ".join(wrong)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("inputs")
    verb.set_defaults(call=inputs)
    verb.add_argument("model")
    verb.add_argument("out")
    for option in ("--dim", "--shape", "--value"):
        verb.add_argument(option, action="append", default=[])
    verb = verbs.add_parser("run")
    verb.set_defaults(call=run)
    verb.add_argument("peer", choices=("onnxruntime", "openvino"))
    for name in ("model", "inputs", "outputs"):
        verb.add_argument(name)
    verb.add_argument("--threads", type=int, required=True)
    verb.add_argument("--seconds", type=float, required=True)
    verb = verbs.add_parser("agree")
    verb.set_defaults(call=agree)
    verb.add_argument("reference")
    verb.add_argument("answer")
    o = parser.parse_args()
    print(json.dumps(o.call(o)))


if __name__ == "__main__":
    main()
