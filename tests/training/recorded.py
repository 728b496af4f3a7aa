# SPDX-License-Identifier: Apache-2.0
"""Trainings whose gradients and losses PyTorch has recorded (record.py): each a model, its data and how it is trained. The record is
recorded/NAME.npz: "loss", 50 steps in float64; "spread", how far rounding to float32 carries the losses of each step away from these; "exact.W",
"rounding.W", the gradient of each weight before the first step, and the norm of what float32 changes of it."""

import math
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = Path(__file__).resolve().parent / "recorded"
sys.path.append(str(ROOT / "bench/training"))
from models import Graph, gelu  # noqa: E402

STEPS = 50
BATCH = 16


def random_labels(random, x, classes):
    """What a linear function of the examples says, so that there is something to learn."""
    flat = x.reshape(len(x), -1)
    return np.argmax(flat @ random.standard_normal((flat.shape[1], classes)), axis=1)


# --- two dense layers, LayerNormalization ----------------------------------------------------------------------------------------------
def dense(w):
    random, x = np.random.default_rng(21), w.input("x", [BATCH, 12])
    y = w.layer_norm(w.op("Relu", w.linear(x, "first", 12, 24)), "norm", 24)
    w.output(w.linear(y, "second", 24, 5), [BATCH, 5])
    data = random.standard_normal((STEPS, BATCH, 12), np.float32)
    return {"x": data, "labels": random_labels(random, data.reshape(-1, 12), 5).reshape(STEPS, BATCH)}


def torch_dense(t, p, x):
    f = t.nn.functional
    y = f.layer_norm(f.relu(f.linear(x, p["first.weight"], p["first.bias"])), (24,), p["norm.weight"], p["norm.bias"])
    return f.linear(y, p["second.weight"], p["second.bias"])


# --- convolutions: padded, strided, grouped; BatchNormalization; pools ------------------------------------------------------------------
CONVOLUTIONS = {"plain": (3, 8, 3, 1, 1), "strided": (8, 12, 3, 2, 1), "grouped": (12, 12, 3, 1, 4), "depthwise": (12, 12, 3, 1, 12), "point": (12, 16, 1, 1, 1)}


def pictures(w):
    random, x = np.random.default_rng(22), w.input("x", [BATCH, 3, 12, 12])
    for name, (channels, filters, size, stride, group) in CONVOLUTIONS.items():
        weight = w.random(name + ".weight", filters, channels // group, size, size, scale=1 / math.sqrt(size * size * channels / group))
        pads = [size // 2] * 4
        y = w.op("Conv", x, weight, w.random(name + ".bias", filters, scale=0.1), kernel_shape=[size, size], pads=pads, strides=[stride] * 2, group=group)
        x = w.op("Relu", y)
        if name == "plain":
            x = w.op("MaxPool", x, kernel_shape=[2, 2], strides=[1, 1])
        if name == "strided":
            scale = w.weight("norm.weight", 1 + 0.1 * w.rng.standard_normal(12, np.float32))
            statistics = w.const(np.zeros(12)), w.const(np.ones(12))
            x, *_ = w.op("BatchNormalization", x, scale, w.random("norm.bias", 12, scale=0.1), *statistics, outputs=3, training_mode=1)
    x = w.op("Flatten", w.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2]))
    w.output(w.linear(x, "head", 16 * 9, 4), [BATCH, 4])
    data = random.standard_normal((4, BATCH, 3, 12, 12), np.float32)[np.arange(STEPS) % 4]
    labels = random_labels(random, data[:4].reshape(4 * BATCH, -1), 4).reshape(4, BATCH)[np.arange(STEPS) % 4]
    return {"x": data, "labels": labels}


def torch_pictures(t, p, x):
    f = t.nn.functional
    for name, (_, _, size, stride, group) in CONVOLUTIONS.items():
        x = f.relu(f.conv2d(x, p[name + ".weight"], p[name + ".bias"], stride, size // 2, groups=group))
        if name == "plain":
            x = f.max_pool2d(x, 2, 1)
        if name == "strided":
            x = f.batch_norm(x, t.zeros(12), t.ones(12), p["norm.weight"], p["norm.bias"], True)
    return f.linear(f.avg_pool2d(x, 2).flatten(1), p["head.weight"], p["head.bias"])


# --- a transformer: embeddings, causal attention, softmax, GELU ---------------------------------------------------------------------------
TOKENS, WIDTH, LENGTH, HEADS, LAYERS = 40, 24, 12, 3, 2


def language(w):
    random, x = np.random.default_rng(23), w.input("ids", [BATCH, LENGTH], "int64")
    x = w.op("Add", w.op("Gather", w.random("tokens", TOKENS, WIDTH, scale=0.3), x),
             w.op("Gather", w.random("places", LENGTH, WIDTH, scale=0.3), w.const(np.arange(LENGTH), "int64")))
    mask = w.const(np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 1))
    split, joined = w.const([0, 0, HEADS, WIDTH // HEADS], "int64"), w.const([0, 0, WIDTH], "int64")
    for i in range(LAYERS):
        n = w.layer_norm(x, f"{i}.n1", WIDTH)
        three = w.op("Split", w.linear(n, f"{i}.qkv", WIDTH, 3 * WIDTH), outputs=3, axis=-1, num_outputs=3)
        q, k, v = (w.op("Transpose", w.op("Reshape", part, split), perm=[0, 2, 3, 1] if part is three[1] else [0, 2, 1, 3]) for part in three)
        scores = w.op("Add", w.op("Mul", w.op("MatMul", q, k), w.const(1 / math.sqrt(WIDTH // HEADS))), mask)
        a = w.op("Transpose", w.op("MatMul", w.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = w.op("Add", x, w.linear(w.op("Reshape", a, joined), f"{i}.proj", WIDTH, WIDTH))
        h = gelu(w, w.linear(w.layer_norm(x, f"{i}.n2", WIDTH), f"{i}.up", WIDTH, 2 * WIDTH))
        x = w.op("Add", x, w.linear(h, f"{i}.down", 2 * WIDTH, WIDTH))
    w.output(w.linear(w.layer_norm(x, "norm", WIDTH), "head", WIDTH, TOKENS, bias=False), [BATCH, LENGTH, TOKENS])
    ids = np.cumsum(random.integers(1, 4, (STEPS, BATCH, LENGTH + 1)), axis=-1) % TOKENS
    return {"ids": ids[..., :-1], "labels": ids[..., 1:]}


def torch_language(t, p, ids):
    f = t.nn.functional
    x = f.embedding(ids, p["tokens"]) + p["places"]

    def linear(x, name):
        return f.linear(x, p[name + ".weight"], p.get(name + ".bias"))

    def layer_norm(x, name):
        return f.layer_norm(x, (WIDTH,), p[name + ".weight"], p[name + ".bias"])

    for i in range(LAYERS):
        q, k, v = linear(layer_norm(x, f"{i}.n1"), f"{i}.qkv").view(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        a = f.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(a.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH), f"{i}.proj")
        x = x + linear(f.gelu(linear(layer_norm(x, f"{i}.n2"), f"{i}.up")), f"{i}.down")
    return linear(layer_norm(x, "norm"), "head")


# name -> (model, PyTorch's, section "training" of the policy)
CASES = {
    "dense": (dense, torch_dense, {"optimizer": "momentum", "rate": 0.1, "momentum": 0.9}),
    "pictures": (pictures, torch_pictures, {"optimizer": "momentum", "rate": 0.01, "momentum": 0.8, "weight_decay": 0.01}),
    "language": (language, torch_language, {"optimizer": "adamw", "rate": 0.01, "weight_decay": 0.1, "clip_norm": 1.0, "schedule": "cosine",
                                            "warmup_steps": 5, "steps": 60}),
    "adagrad": (dense, torch_dense, {"optimizer": "adagrad", "rate": 0.05}),
}


class Case:
    """graph: a models.Graph; data: name -> an array a step."""

    def __init__(self, name):
        build, self.torch, self.training = CASES[name]
        self.graph = Graph()
        self.data = build(self.graph)

    def policy(self):
        return {"training": {"loss": "cross_entropy:y,labels", "of": list(self.graph.parameters), **self.training}}
