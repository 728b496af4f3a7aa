#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole quantized models beside ONNX Runtime: how many elements of each output are within one quantization step, and whether the same
class is best.

    quantized.py PROGRAM [--inputs N] [--size N] MODEL...      packages: onnx onnxruntime numpy

Inputs are MODEL's .npz (from the second set on their floats with noise, their integers in another order), or drawn: floats normal,
integers below 1000, the first axis 1 and others that the model leaves open --size. ONNX Runtime runs each model three times: as it is
written ("plain"), with its optimizations, which round elsewhere, and plain with the numbers of all its vectors (biases, weights of
normalizations) moved by at most one unit in the last place ("nudged"). What the last two differ in from the first is what roundings that
fall the other way do to the model: no engine that adds up in another order can be expected to be nearer. A step is the scale of the
DequantizeLinear that makes the output, else a 255th of the output's range."""
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
    # Without VNNI its sums of u8 by s8 saturate at 16 bits by default: wrong results, and none to compare with.
    settings.add_session_config_entry("session.x64quantprecision", "1")
    level = onnxruntime.GraphOptimizationLevel
    settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def nudged(path, folder):
    rng = np.random.default_rng(0)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) != 1 or tensor.dims[0] < 32:
            continue
        array = numpy_helper.to_array(tensor)
        toward = np.float32(np.inf) * rng.choice(np.float32([-1, 1]), array.shape)
        moved = np.where((array == 0) | (rng.integers(0, 3, array.shape) == 0), array, np.nextafter(array, toward))
        tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    onnx.save(model, folder / "nudged.onnx")
    return session(folder / "nudged.onnx", False)


def draw(path, runner, seed, size):
    rng = np.random.default_rng(seed)
    if path.with_suffix(".npz").exists():
        feeds = dict(np.load(path.with_suffix(".npz")))
        noisy = lambda a: (a + 0.05 * a.std() * rng.standard_normal(a.shape)).astype(a.dtype)
        other = lambda a: noisy(a) if a.dtype == np.float32 else rng.permutation(a.ravel()).reshape(a.shape)
        return {name: other(array) if seed else array for name, array in feeds.items()}
    feeds = {}
    for i in runner.get_inputs():
        shape = [d if isinstance(d, int) else size if k else 1 for k, d in enumerate(i.shape)]
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
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("models", nargs="+", type=Path)
    args = parser.parse_args()
    print(f"{'within a step / same best class':32s} {'ours, plain':>15s} {'ours, optimized':>16s} {'optimized, plain':>17s} {'nudged, plain':>16s}")
    short = 0.0
    for path in args.models:
        with tempfile.TemporaryDirectory() as folder:
            plain, optimized, moved = session(path, False), session(path, True), nudged(path, Path(folder))
        names = [o.name for o in plain.get_outputs()]
        all_steps, rows = steps(path, names), {name: [] for name in names}
        for seed in range(args.inputs):
            feeds = draw(path, plain, seed, args.size)
            with tempfile.TemporaryDirectory() as folder:
                ours = run(args.program, path, feeds, names, Path(folder))
            theirs = (runner.run(None, feeds) for runner in (plain, optimized, moved))
            for name, step, u, p, o, m in zip(names, all_steps, ours, *theirs):
                rows[name].append([compare(u, p, step), compare(u, o, step), compare(o, p, step), compare(m, p, step)])
        for name, row in rows.items():
            mean = np.mean(row, 0)
            short = max(short, min(mean[2][0], mean[3][0]) - max(mean[0][0], mean[1][0]))
            print(f"{(path.stem + ' ' + name)[:32]:32s} " + "  ".join(f"{100 * w:7.2f} {100 * c:6.1f} " for w, c in mean))
    print(f"at worst {100 * short:.2f} % fewer within a step than of ONNX Runtime beside itself")


if __name__ == "__main__":
    sys.exit(main())
