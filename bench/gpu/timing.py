#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times patterns: onnxfuse, PyTorch eager, torch.compile, ONNX Runtime, and what the device itself can do.

    timing.py --device NAME --dtype float32|float16 [NAME...]     a JSON line a pattern
    timing.py --device NAME --machine                             one line: copy bandwidth, products

On cuda all of them work on the same memory of the device; elsewhere onnxfuse and ONNX Runtime run over the host's. Times are medians, in
milliseconds, of runs that wait for the device each; "queued" ones of many runs between two waits."""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import session
from pattern_models import PATTERNS, Model

SECONDS = 0.4  # of measuring, each
LEAST_RUNS = 5


def measure(run, wait=lambda: None):
    """Median of runs, each waited for."""
    run()
    run()
    wait()
    times, end = [], time.perf_counter() + SECONDS
    while len(times) < LEAST_RUNS or (time.perf_counter() < end and len(times) < 2000):
        begin = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - begin)
    return round(1000 * statistics.median(times), 5)


def measure_queued(torch, run, count=30):
    run()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    torch.cuda.synchronize()
    events[0].record()
    for _ in range(count):
        run()
    events[1].record()
    torch.cuda.synchronize()
    return round(events[0].elapsed_time(events[1]) / count, 5)


def attempt(result, key, action):
    try:
        result[key] = action()
    except Exception as problem:
        result[key] = None
        result.setdefault("problems", {})[key] = f"{type(problem).__name__}: {str(problem)[:300]}"


def find_torch(device):
    try:
        import torch
    except ImportError:
        return None
    if device == "cuda" and not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


# --- on the device's memory ----------------------------------------------------------------------------------------------
def time_on_cuda(lib, torch, model, path, result, compiles):
    inputs = [torch.from_numpy(a).cuda() for a in model.arrays().values()]
    weights = [torch.from_numpy(w).cuda() for w in model.weights]
    wait = torch.cuda.synchronize
    output = torch.empty(model.output_dims, dtype=inputs[0].dtype, device="cuda")

    def ours():
        begin = time.perf_counter()
        s = session.Session(lib, path, "cuda")
        result["onnxfuse_open_ms"] = round(1000 * (time.perf_counter() - begin), 1)
        values = [s.value(model.dtype, t.shape, t.data_ptr(), True) for t in inputs + [output]]
        wait()
        run = s.bind(values[:-1], values[-1:])
        begin = time.perf_counter()
        run()
        result["onnxfuse_first_ms"] = round(1000 * (time.perf_counter() - begin), 3)
        milliseconds = measure(run)
        attempt(result, "steps", lambda: [[e.get("name"), round(e.get("dur", 0) / 1000, 5)] for e in s.profile(run)["traceEvents"] if e.get("ph") == "X"])
        s.close()
        return milliseconds

    eager = lambda: model.pattern.torch(torch, inputs, weights)  # noqa: E731
    with torch.no_grad():
        attempt(result, "onnxfuse", ours)
        attempt(result, "torch", lambda: measure(eager, wait))
        attempt(result, "torch_queued", lambda: measure_queued(torch, eager))
        if not model.pattern.random and result.get("onnxfuse"):
            def error():
                expected = eager().float()
                return float((output.float() - expected).abs().max() / expected.abs().max())
            attempt(result, "difference", error)
        if compiles:
            def compiled():
                torch._dynamo.reset()
                fast = torch.compile(lambda i: model.pattern.torch(torch, i, weights))
                result["torch_compile_queued"] = measure_queued(torch, lambda: fast(inputs))
                return measure(lambda: fast(inputs), wait)
            attempt(result, "torch_compile", compiled)
    attempt(result, "onnxruntime", lambda: onnxruntime_on_cuda(torch, model, inputs, output))


def onnxruntime_on_cuda(torch, model, inputs, output):
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    provider = ("CUDAExecutionProvider", {"use_tf32": "0"})
    s = onnxruntime.InferenceSession(model.writer.bytes(), options, providers=[provider])
    if s.get_providers()[0] != "CUDAExecutionProvider":
        return None
    binding = s.io_binding()
    for name, t in zip(model.inputs, inputs):
        binding.bind_input(name, "cuda", 0, np.dtype(model.dtype), list(t.shape), t.data_ptr())
    binding.bind_output("y", "cuda", 0, np.dtype(model.dtype), list(output.shape), output.data_ptr())
    torch.cuda.synchronize()
    return measure(lambda: s.run_with_iobinding(binding), binding.synchronize_outputs)


# --- on the host's memory ------------------------------------------------------------------------------------------------
def time_on_host(lib, device, model, path, result):
    arrays = list(model.arrays().values())
    output = np.empty(model.output_dims, model.dtype)

    def ours():
        s = session.Session(lib, path, device)
        run = s.bind([s.array_value(a) for a in arrays], [s.array_value(output)])
        milliseconds = measure(run)
        s.close()
        return milliseconds

    def theirs():
        import onnxruntime

        s = onnxruntime.InferenceSession(model.writer.bytes(), providers=["CPUExecutionProvider"])
        feed = dict(zip(model.inputs, arrays))
        return measure(lambda: s.run(None, feed))

    attempt(result, "onnxfuse", ours)
    attempt(result, "onnxruntime", theirs)


# --- the machine ---------------------------------------------------------------------------------------------------------
def machine(torch):
    if not torch:
        return {"problems": "no torch with CUDA"}
    name = torch.cuda.get_device_properties(0).name
    result = {"gpu": name, "torch": torch.__version__, "memory_gb": round(torch.cuda.get_device_properties(0).total_memory / 1e9, 1)}
    a, b = (torch.empty(1 << 28, dtype=torch.float32, device="cuda") for _ in range(2))

    def copy():
        b.copy_(a)

    attempt(result, "copy_gb_s", lambda: round(2 * a.numel() * 4 / measure_queued(torch, copy) / 1e6, 1))
    n = 8192
    for label, dtype, tf32 in (("float32", torch.float32, False), ("tf32", torch.float32, True), ("float16", torch.float16, False),
                               ("bfloat16", torch.bfloat16, False)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        x, y = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
        z = torch.empty_like(x)
        attempt(result, f"gemm_{label}_tflops",
                lambda: round(2 * n**3 / measure_queued(torch, lambda: torch.matmul(x, y, out=z), 10) / 1e9, 1))
    torch.backends.cuda.matmul.allow_tf32 = False
    x = torch.zeros(1, device="cuda")
    attempt(result, "launch_ms", lambda: measure_queued(torch, lambda: x.add_(1), 200))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16"])
    parser.add_argument("--machine", action="store_true")
    parser.add_argument("--small", action="store_true", help="the sizes for checking")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--library", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    torch = find_torch(options.device)
    if options.machine:
        print(json.dumps(machine(torch)), flush=True)
        return
    lib = session.load(options.library)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.names or PATTERNS:
            model = Model(name, options.dtype, options.small)
            result = {"name": name, "dtype": options.dtype, "bytes": model.bytes_moved() if model.pattern.memory else 0, "flops": model.flops()}
            if options.device == "cuda" and torch:
                time_on_cuda(lib, torch, model, model.save(folder), result, options.compile)
            else:
                time_on_host(lib, options.device, model, model.save(folder), result)
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
