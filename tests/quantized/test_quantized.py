#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantized models as exporters write them, in every form that a product of dequantized tensors may have.

  python test_quantized.py PATH/TO/onnxfuse [--seed N] [--count N]

Each model dequantizes two tensors and multiplies them (MatMul, Gemm, Conv); about half quantize the result again. Signs, scales, zero
points, their places (constants or inputs), shapes, windows and groups are drawn. What is expected is computed in float64 by the onnx
package's evaluator: a float result may be off by what rounding does to its sum, a quantized one by a step beside a tie.
"""
import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

RANGES = {np.uint8: (0, 255), np.int8: (-128, 127)}


class Draw:
    """One model: its nodes, inputs and constants."""

    def __init__(self, seed):
        self.rng, self.nodes, self.inputs, self.constants, self.feeds = np.random.default_rng(seed), [], [], {}, {}

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def place(self, name, array, constant):
        if constant:
            self.constants[name] = array
        else:
            self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
            self.feeds[name] = array

    def bytes(self, shape):
        dtype = self.pick(np.uint8, np.int8)
        low, high = RANGES[dtype]
        ends = self.rng.integers(4) == 0
        return self.rng.choice([low, high], shape).astype(dtype) if ends else self.rng.integers(low, high + 1, shape).astype(dtype)

    def dequantized(self, name, array, axis, constant):
        """Adds DequantizeLinear of the array, with a scale for all or one an index of axis; the tensor in float64."""
        vector = axis is not None and self.rng.integers(2)
        count = (array.shape[axis],) if vector else self.pick((), (), (1,))
        scale = self.rng.uniform(0.001, 0.1, count).astype(np.float32)
        low, high = RANGES[array.dtype.type]
        zero = self.pick(None, np.zeros(count, array.dtype), np.full(count, (low + high + 1) // 2, array.dtype),
                         self.rng.integers(low, high + 1, count).astype(array.dtype))
        self.place(name, array, constant)
        inputs = [name, f"{name}_scale"]
        fixed = constant or self.rng.integers(4) > 0
        self.place(inputs[1], scale, fixed)
        if zero is not None:
            inputs.append(f"{name}_zero")
            self.place(inputs[2], zero, fixed)
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}_float"], **({"axis": axis} if vector else {})))
        across = [1] * array.ndim
        if vector:
            across[axis] = -1
        z = 0 if zero is None else zero.astype(np.float64)
        reshaped = (lambda v: np.reshape(v, across)) if vector else (lambda v: np.reshape(v, ()))
        return (array.astype(np.float64) - (reshaped(z) if zero is not None else 0)) * reshaped(scale.astype(np.float64))


def matmul(d):
    m, k, n = (int(d.pick(1, 2, 3, 5, 17, 33, 70)) for _ in range(3))
    lead, other = d.pick(((), ()), ((2,), ()), ((2, 3), ()), ((2,), (2,)), ((2, 3), (3,)))
    x, w = d.bytes((*lead, m, k)), d.bytes((*other, k, n))
    constant = bool(d.rng.integers(3))
    a, b = d.dequantized("x", x, d.pick(None, None, None, *range(x.ndim)), False), d.dequantized("w", w, w.ndim - 1, constant)
    d.nodes.append(helper.make_node("MatMul", ["x_float", "w_float"], ["y"]))
    return a @ b, np.abs(a) @ np.abs(b)


def gemm(d):
    m, k, n = (int(d.pick(1, 2, 3, 5, 17, 33, 70)) for _ in range(3))
    ta, tb = int(d.rng.integers(2)), int(d.rng.integers(2))
    alpha, beta = d.pick(1.0, 0.5), d.pick(1.0, 2.0)
    x, w = d.bytes((k, m) if ta else (m, k)), d.bytes((n, k) if tb else (k, n))
    a, b = d.dequantized("x", x, d.pick(None, None, None, *range(x.ndim)), False), d.dequantized("w", w, 0 if tb else 1, bool(d.rng.integers(3)))
    c = d.rng.standard_normal(n).astype(np.float32)
    d.place("c", c, True)
    d.nodes.append(helper.make_node("Gemm", ["x_float", "w_float", "c"], ["y"], transA=ta, transB=tb, alpha=alpha, beta=beta))
    a, b = a.T if ta else a, b.T if tb else b
    return alpha * (a @ b) + beta * c, alpha * (np.abs(a) @ np.abs(b)) + np.abs(beta * c)


def conv(d):
    spatial = int(d.pick(1, 2, 2, 2, 3))
    group, inputs, outputs = d.pick((1, 3, 5), (1, 4, 16), (1, 8, 33), (1, 16, 70), (2, 4, 6), (3, 8, 9), (6, 1, 6), (2, 3, 4))
    kernel = [int(d.rng.integers(1, 4)) for _ in range(spatial)]
    size = [k + 2 + int(d.rng.integers(7)) for k in kernel]
    attrs = {"group": group, "kernel_shape": kernel, "strides": [int(d.rng.integers(1, 3)) for _ in kernel]}
    if d.rng.integers(3):
        attrs["pads"] = [int(d.rng.integers(k)) for k in kernel * 2]
        attrs["dilations"] = [int(d.rng.integers(1, 3)) if k < 3 else 1 for k in kernel]
    else:
        attrs["auto_pad"] = d.pick("SAME_UPPER", "SAME_LOWER", "VALID")
    x, w = d.bytes((2, inputs * group, *size)), d.bytes((outputs // group * group, inputs, *kernel))
    a, b = d.dequantized("x", x, d.pick(None, None, None, *range(x.ndim)), False), d.dequantized("w", w, 0, d.rng.integers(5) > 0)
    names, c = ["x_float", "w_float"], np.zeros(w.shape[0])
    if d.rng.integers(2):
        c = d.rng.integers(-1000, 1000, w.shape[0]).astype(np.int32)
        d.place("c", c, True)
        d.place("c_scale", np.float32(0.01), True)
        d.nodes.append(helper.make_node("DequantizeLinear", ["c", "c_scale"], ["c_float"]))
        names.append("c_float")
        c = c * np.float64(np.float32(0.01))
    d.nodes.append(helper.make_node("Conv", names, ["y"], **attrs))

    def exact(p, q, r):
        f64 = lambda n, v: helper.make_tensor_value_info(n, TensorProto.DOUBLE, v.shape)
        graph = helper.make_graph([helper.make_node("Conv", ["p", "q", "r"], ["s"], **attrs)], "g", [f64("p", p), f64("q", q), f64("r", r)],
                                  [helper.make_tensor_value_info("s", TensorProto.DOUBLE, None)])
        return ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])).run(None, {"p": p, "q": q, "r": r})[0]

    return exact(a, b, np.float64(c)), exact(np.abs(a), np.abs(b), np.abs(np.float64(c)))


def run(d, rank, program, folder):
    """The result of the product, or of the quantization behind it."""
    last = d.nodes[-1].output[0]
    dtype = TensorProto.FLOAT if last == "y" else helper.np_dtype_to_tensor_dtype(np.dtype(d.constants["q_zero"].dtype))
    graph = helper.make_graph(d.nodes, "g", d.inputs, [helper.make_tensor_value_info(last, dtype, [None] * rank)],
                              [numpy_helper.from_array(np.asarray(v), k) for k, v in d.constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "m.onnx")
    command = [program, "run", str(folder / "m.onnx"), "--output-dir", str(folder), "--threads", "2"]
    for name, array in d.feeds.items():
        np.save(folder / f"in_{name}.npy", array)
        command += ["--input", f"{name}={folder}/in_{name}.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr
    return np.load(folder / f"{last}.npy"), None


def check(form, seed, program, folder):
    """What is wrong with the model of this form and seed; None: nothing."""
    d = Draw(seed)
    exact, size = form(d)
    rounding = 2.0**-20 * size + 1e-30  # some eight roundings in float32 of what is added up
    if d.rng.integers(2):
        dtype = d.pick(np.uint8, np.int8)
        low, high = RANGES[dtype]
        scale, zero = np.float32(np.abs(exact).max() / 100 + 1e-3), dtype((low + high + 1) // 2)
        d.place("q_scale", scale, True)
        d.place("q_zero", zero, True)
        d.nodes.append(helper.make_node("QuantizeLinear", ["y", "q_scale", "q_zero"], ["q"]))
        steps = exact / np.float64(scale)
        got, error = run(d, exact.ndim, program, folder)
        if error:
            return error
        least, most = (np.clip(np.round(steps + e) + int(zero), low, high) for e in (-rounding / scale - 1e-6 * np.abs(steps), rounding / scale + 1e-6 * np.abs(steps)))
        wrong = (got < least) | (got > most)
    else:
        got, error = run(d, exact.ndim, program, folder)
        if error:
            return error
        if got.shape != exact.shape:
            return f"the shape is {got.shape}, not {exact.shape}"
        wrong = ~(np.abs(got - exact) <= rounding + 1e-6 * np.abs(exact))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {wrong.size} elements are wrong, at {at}: {got[at]}, exact {exact[at]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=80)
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for form in (matmul, gemm, conv):
            for seed in range(args.seed, args.seed + args.count):
                error = check(form, seed, args.program, Path(folder))
                if error:
                    failed += 1
                    print(f"FAIL  {form.__name__}, seed {seed}: {error}")
            print(f"      {form.__name__}: {args.count} models")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
