# SPDX-License-Identifier: Apache-2.0
"""What bench/training/run times: each as an ONNX model and as the same in PyTorch's own words.

A pattern gives y of inputs and vectors; a gradient of y is given, and those of all of them are asked for. A step is a whole training step
with Adam. Dropout's rate is a parameter, so that both sides can be compared without it."""

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))
from onnx_writer import Writer, tensor  # noqa: E402

ROWS, HIDDEN = [64, 128], 1024


class Graph(Writer):
    """A Writer whose weights have names, as a trained model's do, and stand for a parameter in PyTorch's layout."""

    def __init__(self, rate=0.0):
        super().__init__()
        self.rate, self.parameters = rate, {}  # name -> array as PyTorch holds it
        self.transposed = set()

    def weight(self, name, array, transposed=False):
        """transposed: PyTorch's Linear holds it as [out, in]; exporters write the product with [in, out]."""
        array = np.ascontiguousarray(array, np.float32)
        self.parameters[name] = np.ascontiguousarray(array.T) if transposed else array
        self.transposed |= {name} if transposed else set()
        self.initializers.append(tensor(array, name))
        return name

    def random(self, name, *dims, scale=1.0):
        return self.weight(name, scale * self.rng.standard_normal(dims, np.float32))

    def linear(self, x, name, n, m, bias=True):
        y = self.op("MatMul", x, self.weight(name + ".weight", self.rng.standard_normal((n, m), np.float32) / np.float32(np.sqrt(n)), True))
        return self.op("Add", y, self.random(name + ".bias", m, scale=0.1)) if bias else y

    def layer_norm(self, x, name, n):
        scale = self.weight(name + ".weight", 1 + 0.1 * self.rng.standard_normal(n, np.float32))
        return self.op("LayerNormalization", x, scale, self.random(name + ".bias", n, scale=0.1), axis=-1)

    def dropout(self, x):
        return self.op("Dropout", x, self.const(self.rate), self.const(True, "bool")) if self.rate else x

    def gradient(self, y, dims, dtype="float32"):
        """y and the gradients of all inputs, of the sum of y * dy."""
        xs = list(self.shapes)
        loss = self.op("ReduceSum", self.op("Mul", y, self.input("dy", dims)), keepdims=0)
        found = self.op("Gradient", *xs, outputs=len(xs), domain="ai.onnx.preview.training", xs=xs, y=loss)
        for value, shape in zip([y, *(found if len(xs) > 1 else [found])], [dims, *(self.shapes[x][1] for x in xs)]):
            self.output(value, shape)


# --- patterns: (inputs and the shape of y, ONNX, PyTorch) ---------------------------------------------------------------------
def gelu(w, x):
    e = w.op("Erf", w.op("Div", x, w.const(math.sqrt(2))))
    return w.op("Mul", w.op("Mul", x, w.op("Add", e, w.const(1))), w.const(0.5))


def residual(w, x, r, b):
    return w.op("Add", w.dropout(w.op("Add", x, b)), r)


def norm(w, y, scale, centred):
    d = w.op("Sub", y, w.op("ReduceMean", y, w.const([-1], "int64"))) if centred else y
    square = w.op("ReduceMean", w.op("Mul", d, d), w.const([-1], "int64"))
    return w.op("Mul", w.op("Div", d, w.op("Sqrt", w.op("Add", square, w.const(1e-12)))), scale)


def torch_norm(y, scale, centred):
    d = y - y.mean(-1, keepdim=True) if centred else y
    return scale * (d / ((d * d).mean(-1, keepdim=True) + 1e-12).sqrt())


WIDE, NARROW = ROWS + [2 * HIDDEN], ROWS + [HIDDEN]
SCORES = [8, 12, 256, 256]
PATTERNS = {
    "bias_gelu_dropout": (
        {"x": WIDE, "b": WIDE[-1:]}, WIDE, lambda w, x, b: w.dropout(gelu(w, w.op("Add", x, b))),
        lambda t, p, x, b: t.nn.functional.dropout(t.nn.functional.gelu(x + b), p)),
    "bdaln_composite": (
        {"x": NARROW, "r": NARROW, "b": [HIDDEN], "w": [HIDDEN], "c": [HIDDEN]}, NARROW,
        lambda w, x, r, b, s, c: w.op("LayerNormalization", residual(w, x, r, b), s, c, axis=-1),
        lambda t, p, x, r, b, s, c: t.nn.functional.layer_norm(t.nn.functional.dropout(x + b, p) + r, (HIDDEN,), s, c)),
    "bdaln_primitive": (
        {"x": NARROW, "r": NARROW, "b": [HIDDEN], "w": [HIDDEN], "c": [HIDDEN]}, NARROW,
        lambda w, x, r, b, s, c: w.op("Add", norm(w, residual(w, x, r, b), s, True), c),
        lambda t, p, x, r, b, s, c: torch_norm(t.nn.functional.dropout(x + b, p) + r, s, True) + c),
    "rmsnorm_primitive": (
        {"x": NARROW, "r": NARROW, "b": [HIDDEN], "w": [HIDDEN]}, NARROW, lambda w, x, r, b, s: norm(w, residual(w, x, r, b), s, False),
        lambda t, p, x, r, b, s: torch_norm(t.nn.functional.dropout(x + b, p) + r, s, False)),
    "masked_softmax_dropout": (
        {"s": SCORES}, SCORES,
        lambda w, s: w.dropout(w.op("Softmax", w.op("Add", w.op("Mul", s, w.const(0.125)), w.input("m", [8, 1, 1, 256])), axis=-1)),
        lambda t, p, s, m: t.nn.functional.dropout(t.softmax(s * 0.125 + m, -1), p)),
}


class Pattern:
    """arrays: its inputs in the model's order, the gradient given for y last; the first `wanted` of them get one."""

    def __init__(self, name, rate):
        shapes, dims, build, self.torch = PATTERNS[name]
        self.graph, self.rate, self.wanted = Graph(rate), rate, len(shapes)
        y = build(self.graph, *(self.graph.input(n, d) for n, d in shapes.items()))
        given = {n: d for n, (_, d) in self.graph.shapes.items() if n not in shapes}
        inputs = self.graph.shapes
        self.graph.shapes = {n: inputs[n] for n in shapes}
        self.graph.gradient(y, dims)
        random = np.random.default_rng(7)
        self.arrays = [random.standard_normal(d, np.float32) for d in [*shapes.values(), *given.values(), dims]]
        if "m" in given:
            self.arrays[1][:] = np.where(self.arrays[1] < 1, 0, -1e4)
        self.result_shapes = [dims, *shapes.values()]
        self.bytes = 4 * sum(math.prod(d) for d in [*shapes.values(), *given.values(), dims, *self.result_shapes])


# --- whole steps --------------------------------------------------------------------------------------------------------------------
TOKENS, LAYERS, HEADS, WIDTH, LENGTH, BATCH = 2000, 4, 4, 256, 128, 8


def language(w):
    """A GPT: embeddings of tokens and places, blocks of causal attention and GELU with LayerNormalization before each, a head."""
    random, x = np.random.default_rng(11), w.input("ids", [BATCH, LENGTH], "int64")
    x = w.op("Add", w.op("Gather", w.random("tokens", TOKENS, WIDTH, scale=0.1), x),
             w.op("Gather", w.random("places", LENGTH, WIDTH, scale=0.1), w.const(np.arange(LENGTH), "int64")))
    mask = w.const(np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 1))
    split, joined = w.const([0, 0, HEADS, WIDTH // HEADS], "int64"), w.const([0, 0, WIDTH], "int64")
    for i in range(LAYERS):
        n = w.layer_norm(x, f"{i}.n1", WIDTH)
        three = w.op("Split", w.linear(n, f"{i}.qkv", WIDTH, 3 * WIDTH), outputs=3, axis=-1, num_outputs=3)
        q, k, v = (w.op("Transpose", w.op("Reshape", part, split), perm=[0, 2, 3, 1] if part is three[1] else [0, 2, 1, 3]) for part in three)
        scores = w.op("Add", w.op("Mul", w.op("MatMul", q, k), w.const(1 / math.sqrt(WIDTH // HEADS))), mask)
        a = w.op("Transpose", w.op("MatMul", w.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = w.op("Add", x, w.dropout(w.linear(w.op("Reshape", a, joined), f"{i}.proj", WIDTH, WIDTH)))
        h = gelu(w, w.linear(w.layer_norm(x, f"{i}.n2", WIDTH), f"{i}.up", WIDTH, 4 * WIDTH))
        x = w.op("Add", x, w.dropout(w.linear(h, f"{i}.down", 4 * WIDTH, WIDTH)))
    w.output(w.linear(w.layer_norm(x, "norm", WIDTH), "head", WIDTH, TOKENS, bias=False), [BATCH, LENGTH, TOKENS])
    return [random.integers(0, TOKENS, (BATCH, LENGTH)), random.integers(0, TOKENS, (BATCH, LENGTH))]


def torch_language(t, rate, p, ids, labels):
    f = t.nn.functional
    x = f.embedding(ids, p["tokens"]) + f.embedding(t.arange(LENGTH), p["places"])

    def linear(x, name):
        return f.linear(x, p[name + ".weight"], p.get(name + ".bias"))

    def layer_norm(x, name):
        return f.layer_norm(x, (WIDTH,), p[name + ".weight"], p[name + ".bias"])

    for i in range(LAYERS):
        q, k, v = linear(layer_norm(x, f"{i}.n1"), f"{i}.qkv").view(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        a = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + f.dropout(linear(a.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH), f"{i}.proj"), rate)
        x = x + f.dropout(linear(f.gelu(linear(layer_norm(x, f"{i}.n2"), f"{i}.up")), f"{i}.down"), rate)
    return f.cross_entropy(linear(layer_norm(x, "norm"), "head").flatten(0, 1), labels.flatten())


def images(w):
    """A residual net of 3x3 convolutions on 32x32 pictures."""
    random, x = np.random.default_rng(12), w.input("x", [32, 3, 32, 32])

    def conv(x, name, channels):
        weight = w.random(name + ".weight", 32, channels, 3, 3, scale=1 / math.sqrt(9 * channels))
        return w.op("Conv", x, weight, w.random(name + ".bias", 32, scale=0.1), kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    x = w.op("Relu", conv(x, "first", 3))
    for i in range(6):
        y = conv(x, f"{i}.conv", 32)
        scale = w.weight(f"{i}.norm.weight", 1 + 0.1 * w.rng.standard_normal(32, np.float32))
        y = w.op("BatchNormalization", y, scale, w.random(f"{i}.norm.bias", 32, scale=0.1), w.const(np.zeros(32)), w.const(np.ones(32)))
        x = w.op("Add", x, w.op("Relu", y))
    x = w.op("Flatten", w.op("GlobalAveragePool", x))
    w.output(w.linear(x, "head", 32, 10), [32, 10])
    return [random.standard_normal((32, 3, 32, 32), np.float32), random.integers(0, 10, 32)]


def torch_images(t, rate, p, x, labels):
    f = t.nn.functional
    x = f.relu(f.conv2d(x, p["first.weight"], p["first.bias"], padding=1))
    for i in range(6):
        y = f.conv2d(x, p[f"{i}.conv.weight"], p[f"{i}.conv.bias"], padding=1)
        x = x + f.relu(f.batch_norm(y, t.zeros(32), t.ones(32), p[f"{i}.norm.weight"], p[f"{i}.norm.bias"], True))
    return f.cross_entropy(f.linear(x.mean((2, 3)), p["head.weight"], p["head.bias"]), labels)


STEPS = {"step_language": (language, torch_language), "step_images": (images, torch_images)}


class Step:
    def __init__(self, name, rate):
        build, self.torch = STEPS[name]
        self.graph, self.rate = Graph(rate), rate
        self.arrays = build(self.graph)
        self.bytes = 0


# --- the residual stream ---------------------------------------------------------------------------------------------------------------
class Stream:
    """x + tanh-attention, x + tanh-mlp, `layers` times; y, and the gradients of x and of the one weight."""

    def __init__(self, name, rate):
        self.layers = int(name.split("_")[1])
        self.graph = w = Graph()
        weight, x = w.input("w", [10, 10]), w.input("x", [10, 10])
        for _ in range(2 * self.layers):
            x = w.op("Add", w.op("MatMul", weight, w.op("Tanh", x)), x)
        w.gradient(x, [10, 10])
        random = np.random.default_rng(13)
        self.arrays = [0.1 * random.standard_normal((10, 10), np.float32) for _ in range(3)]
        self.rate, self.wanted, self.result_shapes, self.bytes = 0, 2, [[10, 10]] * 3, 0

    def torch(self, t, rate, w, x):
        for _ in range(2 * self.layers):
            x = w @ t.tanh(x) + x
        return x


def model(name, rate):
    return (Pattern if name in PATTERNS else Step if name in STEPS else Stream)(name, rate)


NAMES = [*PATTERNS, *STEPS, "stream_1", "stream_8", "stream_32", "stream_128"]
