#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole quantized models beside ONNX Runtime: how many elements of each output are within one quantization step, and whether the same
class is best.

    quantized.py PROGRAM [--inputs N] [--size N] [--doubles] MODEL...      packages: onnx onnxruntime numpy

Inputs are MODEL's .npz (from the second set on their floats with noise, their integers in another order), or drawn: floats normal,
integers below 1000, the first axis 1 and others that the model leaves open --size. ONNX Runtime runs each model three times: as it is
written ("plain"), with its optimizations, which round elsewhere, and plain with the numbers of all its vectors (biases, weights of
normalizations) moved by at most one unit in the last place ("nudged"). What the last two differ in from the first is what roundings that
fall the other way do to the model: no engine that adds up in another order can be expected to be nearer. --doubles has a referee beside them:
the onnx package's evaluator with doubles for floats ("doubles"), to which an engine is no nearer than its roundings let it be. A step is the
scale of the DequantizeLinear that makes the output, else a 255th of the output's range."""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_dequantize_linear import DequantizeLinear_25


# By operator: which inputs are a weight and its zero point.
WEIGHTS = {"DequantizeLinear": (0, 2), "MatMulInteger": (1, 3), "ConvInteger": (1, 3), "QLinearMatMul": (3, 5), "QLinearConv": (3, 5),
           "DynamicQuantizeMatMul": (1, 3), "MatMulIntegerToFloat": (1, 5)}


def unsigned(path):
    """The model with its s8 weights, and their zero points, moved by 128 to u8: the same products, exactly. Without VNNI, ONNX Runtime's sums
    of u8 by s8 saturate at 16 bits, and its own way out (session.x64quantprecision) is an optimization, so the model as it is written keeps
    them wrong; sums of u8 by u8 are exact everywhere."""
    model = onnx.load(path)
    tensors, moved = {t.name: t for t in model.graph.initializer}, {}

    def move(name):
        if name not in moved:
            moved[name] = name + "_unsigned"
            array = (numpy_helper.to_array(tensors[name]).astype(np.int16) + 128).astype(np.uint8)
            model.graph.initializer.append(numpy_helper.from_array(array, moved[name]))
        return moved[name]

    for node in model.graph.node:
        weight, zero = WEIGHTS.get(node.op_type, (len(node.input), 0))
        if weight >= len(node.input) or node.input[weight] not in tensors or tensors[node.input[weight]].data_type != onnx.TensorProto.INT8:
            continue
        if zero >= len(node.input) or node.input[zero] not in tensors:
            sys.exit(f"{path}: the s8 weight of {node.op_type} {node.name} has no constant zero point")
        node.input[weight], node.input[zero] = move(node.input[weight]), move(node.input[zero])
    return model


def nudged(model):
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) != 1 or tensor.dims[0] < 32:
            continue
        array = numpy_helper.to_array(tensor)
        toward = np.float32(np.inf) * rng.choice(np.float32([-1, 1]), array.shape)
        moved = np.where((array == 0) | (rng.integers(0, 3, array.shape) == 0), array, np.nextafter(array, toward))
        tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    return model


def session(model, optimized):
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    level = onnxruntime.GraphOptimizationLevel
    settings.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])


class MatMulInteger(OpRun):
    """The package's own adds up integers without its library of products; doubles hold these sums exactly."""

    def _run(self, a, b, a_zero=0, b_zero=0):
        return (np.float64(a) - np.float64(a_zero)) @ (np.float64(b) - np.float64(b_zero)),


class DequantizeLinear(DequantizeLinear_25):
    """The package has none for models of older versions."""


def in_doubles(model):
    """The standard's own evaluator of the model, with doubles for floats: what roundings between quantizations leave alone."""
    widened = lambda t: t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float64), t.name))
    graph = model.graph
    tensors = [*graph.initializer, *(a.t for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.TENSOR)]
    for tensor in tensors:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            widened(tensor)
    for value in [*graph.input, *graph.output]:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for to in (a for n in graph.node if n.op_type == "Cast" for a in n.attribute if a.name == "to"):
        to.i = onnx.TensorProto.DOUBLE if to.i == onnx.TensorProto.FLOAT else to.i
    return ReferenceEvaluator(model, new_ops=[MatMulInteger, DequantizeLinear])


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
    """By output: the scale of the DequantizeLinear that makes it, or what it is a copy of."""
    graph = onnx.load(path).graph
    scales = {t.name: t for t in graph.initializer}
    made = {n.output[0]: n.input[1] for n in graph.node if n.op_type == "DequantizeLinear"}
    same = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "Identity"}
    made = [made.get(same.get(n, n)) for n in names]
    return [float(numpy_helper.to_array(scales[n])) if n in scales else None for n in made]


def compare(a, b, step):
    a, b = a.astype(np.float64), b.astype(np.float64)
    step = step or (b.max() - b.min()) / 255
    return np.mean(np.abs(a - b) <= 1.001 * step), np.mean(a.argmax(-1) == b.argmax(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--inputs", type=int, default=3)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--doubles", action="store_true")
    parser.add_argument("models", nargs="+", type=Path)
    args = parser.parse_args()
    pairs = [("ours", "plain"), ("ours", "optimized"), ("optimized", "plain"), ("nudged", "plain")]
    pairs += [("ours", "doubles"), ("plain", "doubles")] if args.doubles else []
    print(f"{'within a step / same best class':32s}" + "".join(f"{', '.join(pair):>19s}" for pair in pairs))
    short = 0.0
    for path in args.models:
        model = unsigned(path)
        plain, optimized = session(model, False), session(model, True)
        runners = {"plain": plain, "optimized": optimized, "nudged": session(nudged(model), False)}
        if args.doubles:
            runners["doubles"] = in_doubles(unsigned(path))
        names = [o.name for o in plain.get_outputs()]
        all_steps, rows = steps(path, names), {name: [] for name in names}
        for seed in range(args.inputs):
            feeds = draw(path, plain, seed, args.size)
            wide = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in feeds.items()}
            results = {who: runner.run(names, wide if who == "doubles" else feeds) for who, runner in runners.items()}
            with tempfile.TemporaryDirectory() as folder:
                results["ours"] = run(args.program, path, feeds, names, Path(folder))
            for at, (name, step) in enumerate(zip(names, all_steps)):
                rows[name].append([compare(results[a][at], results[b][at], step) for a, b in pairs])
        for name, row in rows.items():
            mean = np.mean(row, 0)
            short = max(short, min(mean[2][0], mean[3][0]) - max(mean[0][0], mean[1][0]))
            print(f"{(path.stem + ' ' + name)[:32]:32s}" + "".join(f"{100 * w:11.2f} {100 * c:6.1f} " for w, c in mean), flush=True)
    print(f"at worst {100 * short:.2f} % fewer within a step than of ONNX Runtime beside itself")


if __name__ == "__main__":
    sys.exit(main())
