#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole quantized models beside ONNX Runtime: how many elements of each output are within one quantization step, and whether the same
class is best.

    quantized.py PROGRAM [--inputs N] MODEL...      packages: onnx onnxruntime numpy

Inputs are MODEL's .npz (their floats with noise from the second set on), or drawn: floats normal, integers below 1000. ONNX Runtime runs each model twice: as it is written
("plain"), and with its optimizations, which round elsewhere. What these two differ in is what a rounding that falls the other way does
to the model, so the nearer of both is what counts. A step is the scale of the DequantizeLinear that makes the output, else a 255th of
the output's range."""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper


def session(path, optimized):
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    level = onnxruntime.GraphOptimizationLevel
    settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def draw(path, runner, seed):
    rng = np.random.default_rng(seed)
    if path.with_suffix(".npz").exists():
        feeds = dict(np.load(path.with_suffix(".npz")))
        noisy = lambda a: (a + 0.05 * a.std() * rng.standard_normal(a.shape)).astype(a.dtype) if seed and a.dtype == np.float32 else a
        return {name: noisy(array) for name, array in feeds.items()}
    feeds = {}
    for i in runner.get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in i.shape]
        feeds[i.name] = rng.standard_normal(shape, np.float32) if "float" in i.type else rng.integers(0, 1000, shape)
    return feeds


def run(program, path, feeds, names, folder):
    command = [program, "run", str(path), "--output-dir", str(folder)]
    for number, (name, array) in enumerate(feeds.items()):
        np.save(folder / f"in{number}.npy", array)
        command += ["--input", f"{name}={folder}/in{number}.npy"]
    subprocess.run(command, check=True, capture_output=True)
    return [np.load(folder / f"{name}.npy") for name in names]


def steps(path, names):
    """By output: the scale of the DequantizeLinear that makes it."""
    graph = onnx.load(path).graph
    scales = {t.name: t for t in graph.initializer}
    made = {n.output[0]: n.input[1] for n in graph.node if n.op_type == "DequantizeLinear"}
    return [float(numpy_helper.to_array(scales[made[n]])) if made.get(n) in scales else None for n in names]


def compare(a, b, step):
    a, b = a.astype(np.float64), b.astype(np.float64)
    step = step or (b.max() - b.min()) / 255
    return np.mean(np.abs(a - b) <= 1.001 * step), np.mean(a.argmax(-1) == b.argmax(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--inputs", type=int, default=3)
    parser.add_argument("models", nargs="+", type=Path)
    args = parser.parse_args()
    print(f"{'within a step / same best class':32s} {'ours, plain':>15s} {'ours, optimized':>16s} {'optimized, plain':>17s}")
    worst = 1.0
    for path in args.models:
        plain, optimized = session(path, False), session(path, True)
        names = [o.name for o in plain.get_outputs()]
        all_steps, rows = steps(path, names), {name: [] for name in names}
        for seed in range(args.inputs):
            feeds = draw(path, plain, seed)
            with tempfile.TemporaryDirectory() as folder:
                ours = run(args.program, path, feeds, names, Path(folder))
            for name, step, u, p, o in zip(names, all_steps, ours, plain.run(None, feeds), optimized.run(None, feeds)):
                rows[name].append([compare(u, p, step), compare(u, o, step), compare(o, p, step)])
        for name, row in rows.items():
            mean = np.mean(row, 0)
            worst = min(worst, max(mean[0][0], mean[1][0]))
            print(f"{(path.stem + ' ' + name)[:32]:32s} " + "  ".join(f"{100 * w:7.2f} {100 * c:6.1f} " for w, c in mean))
    print(f"at worst {100 * worst:.2f} % within a step of the nearer")


if __name__ == "__main__":
    sys.exit(main())
