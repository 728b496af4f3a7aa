#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A decoder of seeded weights that generates text inside the model: greedy steps in a Loop, each of which reads the tokens so far,
keeps keys and values of all layers, and lets no n-gram come twice in a row.

    generation_model.py OUT.onnx [--layers 2] [--width 64] [--heads 4] [--vocabulary 100] [--positions 128] [--ngram 3]
                                 [--form operator|standard|none] [--task generate|forward] [--seed 0]

Inputs: prompt int64 [batch, length] of two tokens and more, steps int64 []; output: int64 [batch, length + steps]. With --task forward:
the scores float32 [batch, vocabulary] of the token after the prompt, and steps is not read. The norms are
T5's (root mean square), the positions GPT-2's (learned). --form says how repeated n-grams are kept out: the operator NGramRepeatBlock of
com.microsoft, the same told in operators of the standard, or not at all."""

import argparse
import pathlib

import numpy as np

from onnx_writer import Writer

LAST = np.iinfo(np.int64).max


class Decoder:
    """The weights, in the outer graph; bodies read them there."""

    def __init__(self, w, size):
        self.w, self.size = w, size
        width, inner = size.width, 4 * size.width
        self.embedding = w.const(0.5 * w.rng.standard_normal((size.vocabulary, width), dtype=np.float32))
        self.positions = w.const(0.5 * w.rng.standard_normal((size.positions, width), dtype=np.float32))
        self.layers = [{"norm": w.vector(width, 1.0), "qkv": w.matrix(width, 3 * width), "out": w.matrix(width, width),
                        "norm2": w.vector(width, 1.0), "up": w.matrix(width, inner), "down": w.matrix(inner, width)}
                       for _ in range(size.layers)]
        self.norm, self.head = w.vector(width, 1.0), w.matrix(width, size.vocabulary)
        self.ints = {}

    def int(self, *values, scalar=False):
        key = (values, scalar)
        if key not in self.ints:
            self.ints[key] = self.w.const(values[0] if scalar else list(values), "int64")
        return self.ints[key]

    def rms(self, g, x, scale):
        epsilon, two = self.float(1e-6), self.float(2.0)
        mean = g.op("ReduceMean", g.op("Pow", x, two), self.int(-1), keepdims=1)
        return g.op("Mul", scale, g.op("Div", x, g.op("Sqrt", g.op("Add", mean, epsilon))))

    def float(self, value):
        if value not in self.ints:
            self.ints[value] = self.w.const(value)
        return self.ints[value]

    def heads(self, g, x):
        heads, width = self.size.heads, self.size.width // self.size.heads
        return g.op("Transpose", g.op("Reshape", x, self.int(0, 0, heads, width)), perm=[0, 2, 1, 3])

    def attention(self, g, layer, x, past, mask):
        """x [batch, tokens, width], past (keys, values) or None -> the result, and keys and values of all tokens so far."""
        width = self.size.width
        parts = g.op("Split", g.op("MatMul", x, layer["qkv"]), self.int(width, width, width), outputs=3, axis=2)
        query, *now = [self.heads(g, part) for part in parts]
        keys, values = [g.op("Concat", a, b, axis=2) for a, b in zip(past, now)] if past else now
        scale = self.float(float((width // self.size.heads) ** -0.5))
        scores = g.op("Mul", g.op("MatMul", query, g.op("Transpose", keys, perm=[0, 1, 3, 2])), scale)
        if mask:
            scores = g.op("Add", scores, mask)
        read = g.op("MatMul", g.op("Softmax", scores, axis=-1), values)
        read = g.op("Reshape", g.op("Transpose", read, perm=[0, 2, 1, 3]), self.int(0, 0, width))
        return g.op("MatMul", read, layer["out"]), (keys, values)

    def run(self, g, ids, positions, pasts, mask=None):
        """ids [batch, tokens] -> the last norm's result, and the keys and values of each layer."""
        x = g.op("Add", g.op("Gather", self.embedding, ids), g.op("Gather", self.positions, positions))
        kept = []
        for layer, past in zip(self.layers, pasts):
            read, held = self.attention(g, layer, self.rms(g, x, layer["norm"]), past, mask)
            kept.append(held)
            x = g.op("Add", x, read)
            inner = g.op("Relu", g.op("MatMul", self.rms(g, x, layer["norm2"]), layer["up"]))
            x = g.op("Add", x, g.op("MatMul", inner, layer["down"]))
        return self.rms(g, x, self.norm), kept


def causal_mask(d, w, length):
    """[length, length]: 0 where a token may look, else -10000."""
    at = w.op("Range", d.int(0, scalar=True), length, d.int(1, scalar=True))
    seen = w.op("LessOrEqual", w.op("Unsqueeze", at, d.int(0)), w.op("Unsqueeze", at, d.int(1)))
    return w.op("Where", seen, d.float(0.0), d.float(-10000.0))


def slice_columns(d, g, ids, start, end):
    return g.op("Slice", ids, d.int(start), d.int(end), d.int(1))


def block_repeats(d, g, ids, scores, size, form):
    """Scores with minus infinity at every token that would end an n-gram for the second time."""
    if form == "none":
        return scores
    if form == "operator":
        return g.op("NGramRepeatBlock", ids, scores, domain="com.microsoft", ngram_size=size)
    before = size - 1
    same = None
    for k in range(before):
        window = slice_columns(d, g, ids, k, k - before)
        last = slice_columns(d, g, ids, k - before, k - before + 1 if k < before - 1 else LAST)
        equal = g.op("Equal", window, last)
        same = g.op("And", same, equal) if same else equal
    token = slice_columns(d, g, ids, before, LAST)
    banned = g.op("Where", same, d.float(-np.inf), d.float(np.inf))
    return g.op("ScatterElements", scores, token, banned, axis=1, reduction="min")


def loop_body(d, size):
    heads, width = size.heads, size.width // size.heads
    g = Writer(prefix="step_")
    g.input("i", [], "int64")
    condition = g.input("go", [], "bool")
    ids, token = g.input("ids", ["batch", "tokens"], "int64"), g.input("token", ["batch", 1], "int64")
    shape = ["batch", heads, "past", width]
    pasts = [(g.input(f"keys{i}", shape), g.input(f"values{i}", shape)) for i in range(size.layers)]
    at = g.op("Sub", g.op("Slice", g.op("Shape", ids), d.int(1), d.int(2)), d.int(1))
    x, kept = d.run(g, token, at, pasts)
    scores = g.op("MatMul", g.op("Squeeze", x, d.int(1)), d.head)
    scores = block_repeats(d, g, ids, scores, size.ngram, size.form)
    token = g.op("ArgMax", scores, axis=1, keepdims=1)
    g.output(condition, [], "bool")
    g.output(g.op("Concat", ids, token, axis=1), ["batch", "more"], "int64")
    g.output(token, ["batch", 1], "int64")
    for pair in kept:
        for value in pair:
            g.output(value, ["batch", heads, "grown", width])
    return g


def generation_model(size):
    w = Writer(seed=size.seed)
    prompt, steps = w.input("prompt", ["batch", "length"], "int64"), w.input("steps", [], "int64")
    d = Decoder(w, size)
    first, last = slice_columns(d, w, prompt, 0, -1), slice_columns(d, w, prompt, -1, LAST)
    length = w.op("Squeeze", w.op("Slice", w.op("Shape", first), d.int(1), d.int(2)), d.int(0))
    positions = w.op("Range", d.int(0, scalar=True), length, d.int(1, scalar=True))
    _, kept = d.run(w, first, positions, [None] * size.layers, causal_mask(d, w, length))
    carried = [prompt, last, *(value for pair in kept for value in pair)]
    body = loop_body(d, size)
    results = w.op("Loop", steps, "", *carried, outputs=len(carried), body=body)
    w.output(results[0], ["batch", "total"], "int64")
    return w.bytes(18)


def forward_model(size):
    w = Writer(seed=size.seed)
    prompt = w.input("prompt", ["batch", "length"], "int64")
    w.input("steps", [], "int64")
    d = Decoder(w, size)
    length = w.op("Squeeze", w.op("Slice", w.op("Shape", prompt), d.int(1), d.int(2)), d.int(0))
    positions = w.op("Range", d.int(0, scalar=True), length, d.int(1, scalar=True))
    x, _ = d.run(w, prompt, positions, [None] * size.layers, causal_mask(d, w, length))
    last = w.op("Squeeze", slice_columns(d, w, x, -1, LAST), d.int(1))
    w.output(w.op("MatMul", last, d.head), ["batch", size.vocabulary])
    return w.bytes(18)


def sizes(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    for name, value in {"layers": 2, "width": 64, "heads": 4, "vocabulary": 100, "positions": 128, "ngram": 3, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--form", choices=["operator", "standard", "none"], default="operator")
    parser.add_argument("--task", choices=["generate", "forward"], default="generate")
    size = parser.parse_args(arguments)
    if size.ngram < 2 and size.form == "standard":
        parser.error("n-grams of one token are not told in operators of the standard")
    if size.width % size.heads:
        parser.error("heads do not divide the width")
    return size


if __name__ == "__main__":
    size = sizes()
    size.out.write_bytes(generation_model(size) if size.task == "generate" else forward_model(size))
