# SPDX-License-Identifier: Apache-2.0
"""A small language model as exporters for ONNX Runtime write it: weights of 4 bits (MatMulNBits), grouped attention with rotation over
caches that are inputs and outputs, normalisation with the residual, a gated network. Its weights are drawn from a seed; every token
depends on those before it, and logits lie far enough apart that rounding does not choose the token."""

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

VOCABULARY, HEADS, KV_HEADS, SIZE, BLOCK = 500, 4, 2, 32, 32
HIDDEN = HEADS * SIZE
MICROSOFT = {"MatMulNBits", "GroupQueryAttention", "SkipSimplifiedLayerNormalization"}


class Builder:
    def __init__(self, seed, room):
        self.rng, self.nodes, self.weights, self.room = np.random.default_rng(seed), [], [], room

    def constant(self, name, array):
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def op(self, kind, inputs, outputs, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, outputs, domain="com.microsoft" if kind in MICROSOFT else "", **attributes))
        return outputs[0]

    def linear(self, x, inputs, outputs, name):
        levels = self.rng.integers(0, 256, (outputs, inputs // BLOCK, BLOCK // 2), dtype=np.uint8)
        scales = (self.rng.random(outputs * inputs // BLOCK, dtype=np.float32) + 0.5) / (4.6 * np.sqrt(inputs))
        parts = [x, self.constant(name + ".levels", levels), self.constant(name + ".scales", scales.astype(np.float32))]
        return self.op("MatMulNBits", parts, [name], K=inputs, N=outputs, bits=4, block_size=BLOCK)

    def gamma(self, name):
        return self.constant(name, (1 + 0.1 * self.rng.standard_normal(HIDDEN)).astype(np.float32))

    def skip_norm(self, x, skip, name):
        self.op("SkipSimplifiedLayerNormalization", [x, skip, self.gamma(name + ".gamma")], [name, "", "", name + ".sum"], epsilon=1e-5)
        return name, name + ".sum"


def build(layers, room, seed=0):
    """The model; its caches have room for so many tokens where past and present are one memory."""
    b = Builder(seed, room)
    inputs = [helper.make_tensor_value_info("input_ids", T.INT64, ["batch", "sequence"]),
              helper.make_tensor_value_info("attention_mask", T.INT64, ["batch", "total"])]
    outputs = [helper.make_tensor_value_info("logits", T.FLOAT, ["batch", "sequence", VOCABULARY])]
    one = b.constant("one", np.array([1], np.int64))
    total = b.op("Gather", [b.op("Shape", ["attention_mask"], ["mask_shape"]), b.constant("axis", np.array(1, np.int64))], ["total64"], axis=0)
    total = b.op("Cast", [total], ["total_length"], to=T.INT32)
    last = b.op("Sub", [b.op("ReduceSum", ["attention_mask", one], ["lengths"], keepdims=0), one], ["last64"])
    last = b.op("Cast", [last], ["last"], to=T.INT32)
    angles = np.outer(np.arange(room), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE))
    turns = [b.constant("cos", np.cos(angles).astype(np.float32)), b.constant("sin", np.sin(angles).astype(np.float32))]
    words = b.constant("words", 0.5 * b.rng.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32))
    x = b.op("Gather", [words, "input_ids"], ["x"])
    h = b.op("SimplifiedLayerNormalization", [x, b.gamma("norm.gamma")], ["h"], axis=-1, epsilon=1e-5, stash_type=1)
    for i in range(layers):
        at = f"layer{i}"
        for part in ("key", "value"):
            inputs.append(helper.make_tensor_value_info(f"past_key_values.{i}.{part}", T.FLOAT, ["batch", KV_HEADS, "past", SIZE]))
            outputs.append(helper.make_tensor_value_info(f"present.{i}.{part}", T.FLOAT, ["batch", KV_HEADS, "present", SIZE]))
        q, k, v = (b.linear(h, HIDDEN, n * SIZE, f"{at}.{part}") for part, n in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)))
        past = [f"past_key_values.{i}.key", f"past_key_values.{i}.value"]
        seen = b.op("GroupQueryAttention", [q, k, v, *past, last, total, *turns], [f"{at}.attention", f"present.{i}.key", f"present.{i}.value"],
                    num_heads=HEADS, kv_num_heads=KV_HEADS, do_rotary=1)
        h, x = b.skip_norm(x, b.linear(seen, HIDDEN, HIDDEN, f"{at}.o"), f"{at}.n")
        gate, up = b.linear(h, HIDDEN, 2 * HIDDEN, f"{at}.gate"), b.linear(h, HIDDEN, 2 * HIDDEN, f"{at}.up")
        silu = b.op("Mul", [gate, b.op("Sigmoid", [gate], [f"{at}.sigmoid"])], [f"{at}.silu"])
        down = b.linear(b.op("Mul", [silu, up], [f"{at}.gated"]), 2 * HIDDEN, HIDDEN, f"{at}.down")
        h, x = b.skip_norm(x, down, f"{at}.m")
    b.op("Identity", [b.linear(h, HIDDEN, VOCABULARY, "head")], ["logits"])
    graph = helper.make_graph(b.nodes, "language", inputs, outputs, b.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)


def feeds(ids, past):
    """Inputs but for the caches: tokens [batch, n] behind `past` others."""
    return {"input_ids": np.asarray(ids, np.int64), "attention_mask": np.ones((len(ids), past + len(ids[0])), np.int64)}


def caches(layers, batch, length):
    return {f"past_key_values.{i}.{part}": np.zeros((batch, KV_HEADS, length, SIZE), np.float32) for i in range(layers) for part in ("key", "value")}
