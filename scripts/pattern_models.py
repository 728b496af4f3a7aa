#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the patterns that fusion is for, as exporters write them: in primitive operators, with seeded weights.

    pattern_models.py OUT [NAME...] [--dtype float32|float16] [--small] [--list]

OUT/NAME.onnx has symbols for its sizes; OUT/NAME.json tells {"sizes": {symbol: value}, "inputs": {name: {"dtype", "shape"}}, "bytes": what
a run must move at least, "flops": of its products}: the sizes to time it at, or with --small those to check it at. Needs numpy alone."""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from onnx_writer import Writer  # noqa: E402

PATTERNS = {}  # name -> Pattern


class Pattern:
    """build(writer) adds the nodes and gives (output, its dims). torch(t, inputs, weights) is the same in PyTorch's own words: t is the
    torch module, inputs and weights lists in the order in which build makes them. random: draws, so results are not compared."""

    def __init__(self, build, torch, sizes, small, flops, memory, random, seed):
        self.build, self.torch, self.sizes, self.small, self.flops, self.memory = build, torch, sizes, small, flops, memory
        self.random, self.seed = random, seed


def pattern(name, sizes, small, torch, flops=None, memory=True, random=False):
    def register(build):
        PATTERNS[name] = Pattern(build, torch, sizes, small, flops, memory, random, len(PATTERNS))
        return build
    return register


# --- pieces in primitive operators ------------------------------------------------------------------------------------
def layer_norm(w, x, n, epsilon=1e-5):
    axes = w.const([-1], "int64")
    d = w.op("Sub", x, w.op("ReduceMean", x, axes))
    variance = w.op("ReduceMean", w.op("Mul", d, d), axes)
    y = w.op("Div", d, w.op("Sqrt", w.op("Add", variance, w.const(epsilon))))
    return w.op("Add", w.op("Mul", y, w.vector(n, 1.0)), w.vector(n))


def rms_norm(w, x, n, epsilon=1e-5):
    square = w.op("ReduceMean", w.op("Mul", x, x), w.const([-1], "int64"))
    y = w.op("Mul", x, w.op("Reciprocal", w.op("Sqrt", w.op("Add", square, w.const(epsilon)))))
    return w.op("Mul", y, w.vector(n, 1.0))


def gelu_erf(w, x):
    e = w.op("Erf", w.op("Div", x, w.const(math.sqrt(2))))
    return w.op("Mul", w.op("Mul", x, w.op("Add", e, w.const(1))), w.const(0.5))


def gelu_tanh(w, x):
    inner = w.op("Add", x, w.op("Mul", w.op("Mul", x, w.op("Mul", x, x)), w.const(0.044715)))
    t = w.op("Tanh", w.op("Mul", inner, w.const(math.sqrt(2 / math.pi))))
    return w.op("Mul", w.op("Mul", x, w.op("Add", t, w.const(1))), w.const(0.5))


def dropout(w, x, rate=0.1):
    return w.op("Dropout", x, w.const(rate, "float32"), w.const(True, "bool"))


def torch_rms(t, x, scale, epsilon=1e-5):
    return x * t.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * scale


def torch_attention(t, q, k, v):
    return t.nn.functional.scaled_dot_product_attention(q, k, v)


ROWS, SMALL_ROWS = {"b": 64, "s": 512}, {"b": 4, "s": 16}
SQUARE, SMALL_SQUARE = {"n": 8192, "m": 8192}, {"n": 512, "m": 1024}


# --- rows: one pass over memory ---------------------------------------------------------------------------------------------
def two_rows(w, n=1024):
    return w.input("x", ["b", "s", n]), w.input("r", ["b", "s", n])


@pattern("bias_add_layernorm", ROWS, SMALL_ROWS,
         lambda t, i, w: t.nn.functional.layer_norm(i[0] + w[0] + i[1], (1024,), w[3], w[4], 1e-5))
def _(w):
    x, r = two_rows(w)
    return layer_norm(w, w.op("Add", w.op("Add", x, w.vector(1024)), r), 1024), ["b", "s", 1024]


@pattern("bias_dropout_add_layernorm", ROWS, SMALL_ROWS,
         lambda t, i, w: t.nn.functional.layer_norm(t.nn.functional.dropout(i[0] + w[0], 0.1, True) + i[1], (1024,), w[5], w[6], 1e-5), random=True)
def _(w):
    x, r = two_rows(w)
    return layer_norm(w, w.op("Add", dropout(w, w.op("Add", x, w.vector(1024))), r), 1024), ["b", "s", 1024]


@pattern("bias_add_rmsnorm", ROWS, SMALL_ROWS, lambda t, i, w: torch_rms(t, i[0] + w[0] + i[1], w[3]))
def _(w):
    x, r = two_rows(w)
    return rms_norm(w, w.op("Add", w.op("Add", x, w.vector(1024)), r), 1024), ["b", "s", 1024]


@pattern("masked_softmax", {"b": 16, "q": 512, "k": 512}, {"b": 2, "q": 32, "k": 64},
         lambda t, i, w: t.softmax(i[0] * 0.125 + i[1], -1))
def _(w):
    scores, mask = w.input("scores", ["b", 12, "q", "k"]), w.input("mask", ["b", 1, 1, "k"])
    return w.op("Softmax", w.op("Add", w.op("Mul", scores, w.const(0.125)), mask), axis=-1), ["b", 12, "q", "k"]


@pattern("long_softmax", {"n": 256, "m": 131072}, {"n": 2, "m": 20000}, lambda t, i, w: t.softmax(i[0], -1))
def _(w):
    return w.op("Softmax", w.input("x", ["n", "m"]), axis=-1), ["n", "m"]


# --- elementwise -------------------------------------------------------------------------------------------------------------
def biased(w, n=4096):
    return w.op("Add", w.input("x", ["b", "s", n]), w.vector(n)), ["b", "s", n]


@pattern("bias_gelu_erf", ROWS, SMALL_ROWS, lambda t, i, w: t.nn.functional.gelu(i[0] + w[0]))
def _(w):
    x, dims = biased(w)
    return gelu_erf(w, x), dims


@pattern("bias_gelu_tanh", ROWS, SMALL_ROWS, lambda t, i, w: t.nn.functional.gelu(i[0] + w[0], approximate="tanh"))
def _(w):
    x, dims = biased(w)
    return gelu_tanh(w, x), dims


@pattern("bias_swish", ROWS, SMALL_ROWS, lambda t, i, w: t.nn.functional.silu(i[0] + w[0]))
def _(w):
    x, dims = biased(w)
    return w.op("Mul", x, w.op("Sigmoid", x)), dims


@pattern("bias_relu2", ROWS, SMALL_ROWS, lambda t, i, w: t.relu(i[0] + w[0]).square())
def _(w):
    x, dims = biased(w)
    y = w.op("Relu", x)
    return w.op("Mul", y, y), dims


@pattern("bias_gelu_dropout", ROWS, SMALL_ROWS, lambda t, i, w: t.nn.functional.dropout(t.nn.functional.gelu(i[0] + w[0]), 0.1, True), random=True)
def _(w):
    x, dims = biased(w)
    return dropout(w, gelu_erf(w, x)), dims


@pattern("swiglu", ROWS, SMALL_ROWS, lambda t, i, w: t.nn.functional.silu(i[0]) * i[1])
def _(w):
    g, u = two_rows(w, 4096)
    return w.op("Mul", w.op("Mul", g, w.op("Sigmoid", g)), u), ["b", "s", 4096]


CHAIN = ["Mul", "Add", "Tanh", "Sub", "Abs", "Sqrt", "Add", "Neg", "Exp", "Mul", "Add", "Log", "Max", "Mul", "Sigmoid", "Sub", "Mul", "Relu", "Add",
         "Reciprocal"]
UNARY = {"Tanh", "Abs", "Sqrt", "Neg", "Exp", "Log", "Sigmoid", "Relu", "Reciprocal"}


def torch_chain(t, inputs, weights):
    y, weights = inputs[0], iter(weights)
    for kind in CHAIN:
        f = {"Max": t.maximum}.get(kind) or getattr(t, kind.lower())
        y = f(y) if kind in UNARY else f(y, next(weights))
    return y


@pattern("chain20", SQUARE, SMALL_SQUARE, torch_chain)
def _(w):
    y = w.input("x", ["n", "m"])
    for i, kind in enumerate(CHAIN):
        y = w.op(kind, y) if kind in UNARY else w.op(kind, y, w.const(-3 if kind == "Max" else 0.1 + 0.02 * i))
    return y, ["n", "m"]


# --- reductions and moves ------------------------------------------------------------------------------------------------------
def reduction(w, axis):
    x, z = w.input("x", ["n", "m"]), w.input("z", ["n", "m"])
    return w.op("ReduceSum", w.op("Mul", x, w.op("Sigmoid", z)), w.const([axis], "int64"), keepdims=0), ["m" if axis == 0 else "n"]


@pattern("reduce_rows", SQUARE, SMALL_SQUARE, lambda t, i, w: (i[0] * t.sigmoid(i[1])).sum(1))
def _(w):
    return reduction(w, 1)


@pattern("reduce_columns", SQUARE, SMALL_SQUARE, lambda t, i, w: (i[0] * t.sigmoid(i[1])).sum(0))
def _(w):
    return reduction(w, 0)


@pattern("transpose_add", SQUARE, SMALL_SQUARE, lambda t, i, w: t.relu(i[0] + i[1].t()))
def _(w):
    x, z = w.input("x", ["n", "m"]), w.input("z", ["m", "n"])
    return w.op("Relu", w.op("Add", x, w.op("Transpose", z, perm=[1, 0]))), ["n", "m"]


# --- products --------------------------------------------------------------------------------------------------------------------
@pattern("linear_bias_gelu", ROWS, SMALL_ROWS, lambda t, i, w: t.nn.functional.gelu(t.nn.functional.linear(i[0], w[0].t(), w[1]), approximate="tanh"),
         flops=lambda s: 2 * s["b"] * s["s"] * 1024 * 4096, memory=False)
def _(w):
    x = w.input("x", ["b", "s", 1024])
    return gelu_tanh(w, w.op("Add", w.op("MatMul", x, w.matrix(1024, 4096)), w.vector(4096))), ["b", "s", 4096]


@pattern("attention", {"b": 16, "s": 1024}, {"b": 2, "s": 64}, lambda t, i, w: torch_attention(t, *i),
         flops=lambda s: 4 * s["b"] * 12 * s["s"] ** 2 * 64, memory=False)
def _(w):
    q, k, v = (w.input(name, ["b", 12, "s", 64]) for name in "qkv")
    scores = w.op("MatMul", w.op("Mul", q, w.const(0.125)), w.op("Transpose", k, perm=[0, 1, 3, 2]))
    return w.op("MatMul", w.op("Softmax", scores, axis=-1), v), ["b", 12, "s", 64]


@pattern("conv_bias_relu", {"b": 32, "h": 56}, {"b": 2, "h": 14}, lambda t, i, w: t.relu(t.nn.functional.conv2d(i[0], w[0], w[1], padding=1)),
         flops=lambda s: 2 * s["b"] * s["h"] ** 2 * 64 * 64 * 9, memory=False)
def _(w):
    x = w.input("x", ["b", 64, "h", "h"])
    y = w.op("Conv", x, w.matrix(64, 64, 3, 3), w.vector(64), kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return w.op("Relu", y), ["b", 64, "h", "h"]


def torch_encoder(t, i, w):
    f, x = t.nn.functional, i[0]
    b, s, _ = x.shape
    q, k, v = (f.linear(x, w[2 * n].t(), w[2 * n + 1]).view(b, s, 12, 64).transpose(1, 2) for n in range(3))
    a = torch_attention(t, q, k, v).transpose(1, 2).reshape(b, s, 768)
    x = f.layer_norm(f.linear(a, w[9].t(), w[10]) + x, (768,), w[13], w[14], 1e-5)
    h = f.gelu(f.linear(x, w[15].t(), w[16]))
    return f.layer_norm(f.linear(h, w[20].t(), w[21]) + x, (768,), w[24], w[25], 1e-5)


@pattern("encoder_layer", {"b": 16, "s": 512}, {"b": 2, "s": 32}, torch_encoder,
         flops=lambda s: s["b"] * s["s"] * (24 * 768 * 768 + 4 * s["s"] * 768), memory=False)
def _(w):
    x = w.input("x", ["b", "s", 768])

    def linear(v, n, m):
        return w.op("Add", w.op("MatMul", v, w.matrix(n, m)), w.vector(m))

    projected = [linear(x, 768, 768) for _ in range(3)]
    shape = w.const([0, -1, 12, 64], "int64")
    q, k, v = (w.op("Transpose", w.op("Reshape", p, shape), perm=[0, 2, 1, 3]) for p in projected)
    scores = w.op("MatMul", w.op("Mul", q, w.const(0.125)), w.op("Transpose", k, perm=[0, 1, 3, 2]))
    a = w.op("Transpose", w.op("MatMul", w.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    x = layer_norm(w, w.op("Add", linear(w.op("Reshape", a, w.const([0, -1, 768], "int64")), 768, 768), x), 768)
    h = gelu_erf(w, linear(x, 768, 3072))
    return layer_norm(w, w.op("Add", linear(h, 3072, 768), x), 768), ["b", "s", 768]


# --- writing -------------------------------------------------------------------------------------------------------------------
class Model:
    """A pattern of a type: its bytes, and its inputs and weights as arrays."""

    def __init__(self, name, dtype="float32", small=False):
        self.name, self.pattern = name, PATTERNS[name]
        self.sizes = self.pattern.small if small else self.pattern.sizes
        self.writer = Writer(dtype, self.pattern.seed)
        result, dims = self.pattern.build(self.writer)
        self.writer.output(result, dims)
        self.dtype, self.output_dims = dtype, self.resolve(dims)
        self.inputs = {n: {"dtype": t, "shape": self.resolve(d)} for n, (t, d) in self.writer.shapes.items()}
        self.weights = list(self.writer.weights.values())

    def resolve(self, dims):
        return [self.sizes.get(d, d) for d in dims]

    def bytes_moved(self):
        """Large inputs and the output, each once."""
        shapes = [i["shape"] for i in self.inputs.values()] + [self.output_dims]
        return sum(math.prod(s) for s in shapes) * np.dtype(self.dtype).itemsize

    def flops(self):
        return self.pattern.flops(self.sizes) if self.pattern.flops else 0

    def arrays(self):
        rng = np.random.default_rng(1000 + self.pattern.seed)
        return {n: rng.standard_normal(i["shape"], dtype=np.float32).astype(i["dtype"]) for n, i in self.inputs.items()}

    def save(self, folder):
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.onnx"
        path.write_bytes(self.writer.bytes())
        about = {"sizes": self.sizes, "inputs": self.inputs, "bytes": self.bytes_moved(), "flops": self.flops()}
        path.with_suffix(".json").write_text(json.dumps(about, indent=1))
        return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(PATTERNS))
        return
    if not options.out:
        parser.error("OUT is needed")
    for name in options.names or PATTERNS:
        Model(name, options.dtype, options.small).save(options.out)


if __name__ == "__main__":
    main()
