# SPDX-License-Identifier: Apache-2.0
"""What operators compute, in numpy and f64: for those that ONNX Runtime does not have on the CPU, or computes with less precision.
Each takes the inputs (None where left out) and the attributes, and gives all of the operator's outputs that it has."""

import math
from dataclasses import replace

import numpy as np

from cases import Fill, by_onnxruntime

erf = np.vectorize(math.erf, otypes=[np.float64])


def picked(formula, *outputs):
    """The formula's outputs of these numbers, floats in the first input's type."""

    def run(case, inputs):
        results = formula(inputs, case.attributes)
        like = next(x.dtype for x in inputs if x is not None and x.dtype.kind == "f")
        results = [r if r is None or r.dtype.kind != "f" else r.astype(like) for r in map(np.asarray, results)]
        return [results[k] for k in outputs or (0,)]

    return run


def given(inputs, index):
    return inputs[index] if index < len(inputs) else None


def wide(inputs):
    return [x.astype(np.float64) if x is not None and x.dtype.kind == "f" else x for x in inputs]


# --- scores of ai.onnx.ml ---------------------------------------------------------------------------------------------
def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_zero(x):
    """Scores of zero count as exp(-max) times zero: they stay zero."""
    most = x.max(-1, keepdims=True)
    e = np.where(x == 0, x * np.exp(-most), np.exp(x - most))
    return e / e.sum(-1, keepdims=True)


def probit(x):
    """sqrt(2) erfinv(2x - 1), with Winitzki's approximation of the inverse."""
    z = 2 * x - 1
    log, a = np.log1p(-z * z), 0.147
    v = 2 / (np.pi * a) + log / 2
    return math.sqrt(2) * np.sign(z) * np.sqrt(np.sqrt(v * v - log / a) - v)


POST = {"NONE": lambda x: x, "SOFTMAX": softmax, "LOGISTIC": lambda x: 1 / (1 + np.exp(-x)), "SOFTMAX_ZERO": softmax_zero, "PROBIT": probit}


# --- activations ------------------------------------------------------------------------------------------------------
def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def bias_split_gelu(inputs, attributes):
    x, bias = wide(inputs)
    first, second = np.split(x + bias, 2, axis=-1)
    return [first * gelu(second)]


def bias_dropout(inputs, attributes):
    """Outside training: data + bias + residual, and a mask of ones."""
    x, bias = wide(inputs)[:2]
    residual = given(inputs, 2)
    y = x + bias + (0 if residual is None else residual.astype(np.float64))
    return [y, np.ones(y.shape, bool)]


# --- normalisation ------------------------------------------------------------------------------------------------------
def normalized(x, gamma, beta, epsilon, centred):
    mean = x.mean(-1, keepdims=True) if centred else np.zeros(x.shape[:-1] + (1,))
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + epsilon)
    y = (x - mean) * inverse * gamma
    return y + (0 if beta is None else beta), mean, inverse


def skip_norm(centred):
    def formula(inputs, attributes):
        inputs = wide(inputs)
        beta, bias = (given(inputs, 3), given(inputs, 4)) if centred else (None, given(inputs, 3))
        total = inputs[0] + inputs[1] + (0 if bias is None else bias)
        y, mean, inverse = normalized(total, inputs[2], beta, attributes.get("epsilon", 1e-12), centred)
        return [y, mean, inverse, total]

    return formula


def rms_norm(inputs, attributes):
    x, gamma = wide(inputs)
    y, _, inverse = normalized(x, gamma, None, attributes.get("epsilon", 1e-5), False)
    return [y, inverse]


def embed_norm(inputs, attributes):
    """mask_index: how many tokens the mask keeps (0 without one)."""
    ids, segments, words, places, segment_words, gamma, beta = wide(inputs)[:7]
    mask, positions = given(inputs, 7), given(inputs, 8)
    positions = np.arange(ids.shape[1])[None] if positions is None else positions
    total = words[ids] + places[positions] + (0 if segments is None else segment_words[segments])
    y = normalized(total, gamma, beta, attributes.get("epsilon", 1e-12), True)[0]
    index = np.zeros(len(ids), np.int32) if mask is None else (mask == 1).sum(1).astype(np.int32)
    return [y, index, total]


# --- products -----------------------------------------------------------------------------------------------------------
def unpacked(values, bits, count):
    """The numbers of `bits` bits in the last axis of bytes, the lowest bits first."""
    single = np.unpackbits(values, axis=-1, bitorder="little")[..., :count * bits].reshape(*values.shape[:-1], count, bits)
    return single @ (1 << np.arange(bits))


def matmul_nbits(inputs, attributes):
    a, packed, scales = wide(inputs)[:3]
    zeros, bias = given(inputs, 3), given(inputs, 5)
    n, k, block, bits = attributes["N"], attributes["K"], attributes["block_size"], attributes.get("bits", 4)
    count = -(-k // block)
    levels = unpacked(packed.reshape(n, count, -1).astype(np.uint8), bits, block).astype(np.float64)
    if zeros is None:
        zeros = np.full((n, count), 2.0 ** (bits - 1))
    elif zeros.dtype == np.uint8:
        zeros = unpacked(zeros.reshape(n, -1), bits, count)
    groups = given(inputs, 4)
    groups = np.arange(k) // block if groups is None else groups
    weights = (levels.reshape(n, -1)[:, :k] - zeros.reshape(n, count)[:, groups]) * scales.reshape(n, count)[:, groups]
    y = a @ weights.T
    return [y + (0 if bias is None else bias)]


def matmul_nbits_of_bytes(inputs, attributes):
    """Where a model or a policy allows it, blocks of a row are whole numbers up to 127, with a scale each (docs/policy.md, `activations`)."""
    a = inputs[0].astype(np.float32)
    for first in range(0, a.shape[-1], attributes["block_size"]):
        block = a[..., first : first + attributes["block_size"]]
        most = np.abs(block).max(-1, keepdims=True)
        block[...] = np.rint(block * (np.float32(127) / most)) * (most / np.float32(127))
    return matmul_nbits([a, *inputs[1:]], attributes)


def of_rows(case_like):
    """An expectation of a case from a formula of (inputs, attributes)."""
    return lambda case, inputs: [y.astype(case.dtype) for y in case_like(inputs, case.attributes)]


def expert_weights(inputs, attributes, at, zeros):
    """f64 [experts, rows, columns] of a layer of QMoE."""
    bits, block, w, s, z = attributes["expert_weight_bits"], attributes.get("block_size", 0), inputs[at], inputs[at + 1].astype(np.float64), given(inputs, zeros)
    levels = unpacked(w, bits, w.shape[-1] * 8 // bits).astype(np.float64)
    s = s.reshape(*w.shape[:2], -1)
    if z is None:
        z = np.full(s.shape, 2.0 ** (bits - 1))
    elif block:
        z = unpacked(z, bits, s.shape[-1])
    else:
        z = unpacked(z, bits, w.shape[1])[..., None]
    parts = levels.reshape(*s.shape, -1)
    return ((parts - z[..., None]) * s[..., None]).reshape(levels.shape)


@of_rows
def experts(inputs, attributes):
    """MoE, and QMoE, which says how many bits its weights have; token by token."""
    narrow = "expert_weight_bits" in attributes
    at, kind = ([2, 5, 8], attributes.get("activation_type", "relu")) if narrow else ([2, 4, 6], attributes.get("activation_type", "relu"))
    weights = [None if given(inputs, k) is None else expert_weights(inputs, attributes, k, 11 + i) if narrow else inputs[k].astype(np.float64) for i, k in enumerate(at)]
    biases = [given(inputs, k + (2 if narrow else 1)) for k in at]
    x, rates = inputs[0].reshape(-1, inputs[0].shape[-1]).astype(np.float64), inputs[1].astype(np.float64)

    def layer(i, e, v):
        y = weights[i][e] @ v
        return y if biases[i] is None else y + biases[i][e]

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    functions = {"relu": lambda v: np.maximum(v, 0), "silu": lambda v: v * sigmoid(v), "identity": lambda v: v}
    y = np.zeros_like(x)
    for t, v in enumerate(x):
        best = np.argsort(-rates[t])[: attributes.get("k", 1)]
        shares = np.exp(rates[t] - rates[t].max())
        shares /= shares[best].sum() if narrow or attributes.get("normalize_routing_weights") else shares.sum()
        for e in best:
            h = layer(0, e, v)
            up = layer(2, e, v) if weights[2] is not None else None
            if kind == "swiglu" and up is None:
                h, up = (h[0::2], h[1::2]) if attributes["swiglu_fusion"] == 1 else np.split(h, 2)
            h = functions["silu" if kind == "swiglu" else kind](h) * (1 if up is None else up)
            y[t] += shares[e] * layer(1, e, h)
    return [y.reshape(inputs[0].shape)]


@of_rows
def gathered_blocks(inputs, attributes):
    table, indices, scales = inputs[:3]
    bits, block, axis = attributes["bits"], attributes["block_size"], attributes.get("quantize_axis", 1)
    levels = unpacked(table, bits, table.shape[-1] * 8 // bits).astype(np.float64)
    zeros = given(inputs, 3)
    zeros = np.full(scales.shape, 2.0 ** (bits - 1)) if zeros is None else unpacked(zeros, bits, scales.shape[-1]).astype(np.float64)

    def wide(a):
        return np.take(np.repeat(a, block, axis), range(levels.shape[axis]), axis)

    return [np.take((levels - wide(zeros)) * wide(scales.astype(np.float64)), indices, 0)]


# --- attention ----------------------------------------------------------------------------------------------------------
def heads_of(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def attend(q, k, v, scale, bias=0.0):
    scores = q @ k.swapaxes(-1, -2) * (scale or 1 / math.sqrt(q.shape[-1])) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    y = weights / weights.sum(-1, keepdims=True) @ v
    return y.transpose(0, 2, 1, 3).reshape(y.shape[0], y.shape[2], -1), scores


def multi_head(inputs, attributes):
    """MultiHeadAttention of packed inputs: [B, S, H, 3, D], or [B, S, H*D] and [B, T, H, 2, D]."""
    q, k, bias = wide(inputs)[0], given(wide(inputs), 1), given(wide(inputs), 3)
    heads = attributes["num_heads"]
    if q.ndim == 5:
        q, k, v = (q[:, :, :, part].transpose(0, 2, 1, 3) for part in range(3))
    else:
        q, k, v = heads_of(q, heads), *(k[:, :, :, part].transpose(0, 2, 1, 3) for part in range(2))
    if bias is not None:
        q, k, v = (x + b.reshape(1, heads, 1, -1) for x, b in zip((q, k, v), np.split(bias, 3)))
    y, scores = attend(q, k, v, attributes.get("scale"))
    return [y, k, v, scores]


def attention(inputs, attributes):
    """Attention of input, weights and bias."""
    x, weights, bias = (*wide(inputs), None)[:3]
    product = x @ weights + (0 if bias is None else bias)
    q, k, v = (heads_of(part, attributes["num_heads"]) for part in np.split(product, 3, axis=-1))
    return [attend(q, k, v, attributes.get("scale"))[0]]


def grouped_normed(case, inputs):
    """What ONNX Runtime gives for queries and keys whose heads were normalized before."""
    attributes = {k: v for k, v in case.attributes.items() if k != "qk_norm_epsilon"}
    inputs, weights = list(inputs[:11]), inputs[14:16]
    for k, weight in enumerate(weights):
        x = inputs[k].reshape(*inputs[k].shape[:2], -1, weight.size).astype(np.float64)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + case.attributes.get("qk_norm_epsilon", 1e-6)) * weight
        inputs[k] = x.astype(inputs[k].dtype).reshape(inputs[k].shape)
    return by_onnxruntime(replace(case, attributes=attributes, inputs=case.inputs[:11]), inputs)


# --- convolutions, groups of channels -------------------------------------------------------------------------------------
def conv(case, x, w, bias, names=("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")):
    """What ONNX Runtime's Conv gives with the case's attributes."""
    attributes = {k: v for k, v in case.attributes.items() if k in names}
    inputs = [x, w, *([] if bias is None else [bias])]
    plain = replace(case, op="Conv", domain="", version=11, attributes=attributes, inputs=[Fill(None)] * len(inputs))
    return by_onnxruntime(plain, inputs)[0]


def fused_conv(case, inputs):
    y = conv(case, inputs[0], inputs[1], given(inputs, 2)) + inputs[3]
    return [np.maximum(y, 0)]


def nhwc_conv(case, inputs):
    return [np.moveaxis(conv(case, np.moveaxis(inputs[0], -1, 1), inputs[1], given(inputs, 2)), 1, -1)]


def qlinear_reduce_mean(case, inputs):
    x, x_scale, x_zero, y_scale, y_zero = (*inputs, None, None)[:5]
    level = x.astype(np.float32) - (0 if x_zero is None else x_zero.astype(np.float32))
    y = (level * x_scale).mean(tuple(case.attributes["axes"]), keepdims=bool(case.attributes["keepdims"]))
    info = np.iinfo(x.dtype)
    return [np.clip(np.rint(y / y_scale) + (0 if y_zero is None else y_zero), info.min, info.max).astype(x.dtype)]


def group_norm(inputs, attributes):
    x, gamma, beta = wide(inputs)[:3]
    last = attributes.get("channels_last", 1)
    x = x if last else np.moveaxis(x, 1, -1)
    split = x.reshape(*x.shape[:-1], attributes["groups"], -1)
    axes = (*range(1, x.ndim - 1), x.ndim)
    y = (split - split.mean(axes, keepdims=True)) / np.sqrt(split.var(axes, keepdims=True) + attributes.get("epsilon", 1e-5))
    y = y.reshape(x.shape) * gamma + beta
    y = y / (1 + np.exp(-y)) if attributes["activation"] else y
    return [y if last else np.moveaxis(y, -1, 1)]


def skip_group_norm(inputs, attributes):
    x, gamma, beta, skip, bias = (*wide(inputs), None)[:5]
    last = attributes.get("channels_last", 1)
    total = x + (skip[:, None, None] if skip.ndim == 2 else skip)
    if bias is not None:
        total = total + (bias if last else bias[:, None, None])
    return [*group_norm([total, gamma, beta], attributes), total]
