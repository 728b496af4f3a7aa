# SPDX-License-Identifier: Apache-2.0
"""Further cases of com.microsoft's operators: fused and quantized products and convolutions, pools, normalisations, movements; against
ONNX Runtime, and formulas where it has none on the CPU."""

from dataclasses import replace

import ml_dtypes
import numpy as np

import formulas
from cases import MICROSOFT, Fill, b, by_onnxruntime, constant, data, drawn, f, factor, f32, f64, i, i32, i64, i8, row, table, u8, with_zeros
from formulas import picked
from microsoft import HALF, OPEN, PLAIN, SAID, SUMS, level, scale

SIZED = {"domain": MICROSOFT, "sizes": SAID}


# --- products and convolutions ----------------------------------------------------------------------------------------
X, W = f(2, 3, 6, 5), f(4, 3, 3, 3)
ROUND = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def dynamic(name, a, weight, dtype=i8, columns=False, zero=True, bias=False, rows=None, **rest):
    many = weight[-1:] if columns else ()
    return row(name, [rows or f(*a), factor(*weight, dtype=dtype), scale(*many), level(*many, dtype=dtype) if zero else None, f(weight[-1]) if bias else None], **rest)


def gemm(name, a, weight, types=(u8, i8), columns=False, c=None, result=True, **rest):
    many = (columns,) if columns else ()
    return row(name, [level(*a, dtype=types[0]), scale(), level(dtype=types[0]), factor(*weight, dtype=types[1]), scale(*many), level(*many, dtype=types[1]),
                      i(*c, low=-2000, high=2000, dtype=i32) if c is not None else None, *([f(low=1, high=2), level(dtype=types[0])] if result else [])], **rest)


FUSED = [
    *table("FusedConv",
           row("no activation", [X, W], **ROUND),
           row("a bias", [X, W, f(4)], **ROUND),
           row("a residual", [X, W, f(4), f(2, 4, 6, 5)], **ROUND),
           row("Relu", [X, W, f(4)], activation="Relu", **ROUND),
           row("Relu and a residual", [X, W, f(4), f(2, 4, 6, 5)], activation="Relu", **ROUND),
           row("a residual without a bias", [X, W, None, f(2, 4, 6, 5)], activation="Relu", expect=formulas.fused_conv, **ROUND),
           row("Sigmoid", [X, W, f(4)], activation="Sigmoid", **ROUND),
           row("Tanh", [X, W, f(4)], activation="Tanh", **ROUND),
           row("LeakyRelu", [X, W, f(4)], activation="LeakyRelu", activation_params=[0.3], **ROUND),
           row("Clip", [X, W, f(4)], activation="Clip", activation_params=[-1.0, 2.5], **ROUND),
           row("HardSigmoid", [X, W, f(4)], activation="HardSigmoid", activation_params=[0.1, 0.4], **ROUND),
           row("groups and strides", [f(1, 4, 7, 7), f(6, 2, 3, 3), f(6)], activation="Relu", group=2, strides=[2, 2], dilations=[2, 1]),
           row("same", [X, W], activation="Relu", auto_pad="SAME_UPPER"), **PLAIN, **SUMS),
    *table("FusedConv", row("an unknown activation", [X, W], activation="Swoosh", refused="Swoosh"), **PLAIN),
    *table("FusedGemm",
           row("Relu", [f(3, 4), f(4, 5), f(5)], activation="Relu"),
           row("no C", [f(3, 4), f(4, 5)], activation="Relu"),
           row("LeakyRelu", [f(3, 4), f(4, 5), f(3, 5)], activation="LeakyRelu", activation_alpha=0.2),
           row("HardSigmoid", [f(3, 4), f(4, 5), f(5)], activation="HardSigmoid", activation_alpha=0.1, activation_beta=0.3),
           row("Selu", [f(3, 4), f(4, 5), f(5)], activation="Selu", activation_alpha=1.5, activation_gamma=1.1),
           row("Elu", [f(3, 4), f(4, 5), f(5)], activation="Elu", activation_alpha=0.7),
           row("Celu", [f(3, 4), f(4, 5), f(5)], activation="Celu", activation_alpha=0.7),
           row("ThresholdedRelu", [f(3, 4), f(4, 5), f(5)], activation="ThresholdedRelu", activation_alpha=0.7),
           row("Softplus", [f(3, 4), f(4, 5), f(5)], activation="Softplus"),
           row("Softsign", [f(3, 4), f(4, 5), f(5)], activation="Softsign"),
           row("Tanh", [f(3, 4), f(4, 5), f(5)], activation="Tanh"),
           row("Sigmoid of alpha, beta, transposed", [f(4, 3), f(5, 4), f(3, 1)], activation="Sigmoid", alpha=0.5, beta=2.0, transA=1, transB=1), **PLAIN, **SUMS),
    *table("TransposeMatMul",
           row("a product", [f(3, 4), f(4, 5)]),
           row("both transposed", [f(2, 4, 3), f(2, 5, 4)], transA=1, transB=1, alpha=-0.5), **PLAIN, **SUMS),
    *table("NhwcConv",
           row("a convolution", [f(2, 6, 5, 3), W, f(4)], expect=formulas.nhwc_conv, **ROUND),
           row("groups, strides, no bias", [f(1, 7, 7, 4), f(6, 2, 3, 3)], expect=formulas.nhwc_conv, group=2, strides=[2, 2], dilations=[2, 1]),
           row("same", [f(1, 7, 7, 3), W], expect=formulas.nhwc_conv, auto_pad="SAME_UPPER"), **PLAIN, **SUMS),
    *table("MatMulInteger16",
           row("a product", [i(3, 8, low=-3000, high=3000, dtype=np.int16), i(8, 5, low=-3000, high=3000, dtype=np.int16)]),
           row("batches", [i(2, 3, 8, low=-3000, high=3000, dtype=np.int16), i(8, 5, low=-3000, high=3000, dtype=np.int16)]), **PLAIN),
    *table("DynamicQuantizeMatMul",
           dynamic("a product", (3, 8), (8, 5)),
           dynamic("u8", (3, 8), (8, 5), dtype=u8),
           dynamic("no zero point", (3, 8), (8, 5), zero=False),
           dynamic("a scale a column", (3, 8), (8, 5), columns=True),
           dynamic("a bias", (3, 8), (8, 5), bias=True),
           dynamic("batches, a bias, a scale a column", (2, 3, 8), (8, 5), columns=True, bias=True),
           dynamic("one row", (1, 64), (64, 33), bias=True),
           dynamic("no rows", (0, 8), (8, 5), bias=True),
           dynamic("one column", (3, 8), (8, 1), columns=True),
           dynamic("no columns", (3, 8), (8, 0)),
           dynamic("nothing to add up", (3, 0), (0, 5), bias=True, expect=lambda case, x: [np.tile(x[4], (3, 1))]),
           dynamic("products of one", (3, 1), (1, 5), bias=True),
           dynamic("zeros", (3, 8), (8, 5), bias=True, rows=data(np.zeros((3, 8)), f32)),
           dynamic("equal numbers", (3, 8), (8, 5), rows=data(np.full((3, 8), -0.7), f32)),
           row("constant weights", [f(4, 16), constant(factor(16, 9, dtype=i8)), constant(scale(9)), constant(data(np.zeros(9), i8)), constant(f(9))]), **PLAIN, **SUMS),
    *table("QGemm",
           gemm("u8 and i8", (3, 8), (8, 5)),
           gemm("u8 and u8", (3, 8), (8, 5), types=(u8, u8)),
           gemm("i8 and i8", (3, 8), (8, 5), types=(i8, i8)),
           gemm("a scale a column", (3, 8), (8, 5), columns=5),
           gemm("C", (3, 8), (8, 5), c=(5,)),
           gemm("C of the whole result, alpha", (3, 8), (8, 5), c=(3, 5), alpha=0.5),
           gemm("transposed", (8, 3), (5, 8), columns=5, transA=1, transB=1),
           gemm("a float result", (3, 8), (8, 5), c=(5,), result=False),
           gemm("constant sizes of one", (1, 1), (1, 1)), **PLAIN, **SUMS),
]


def convolution(name, x, weight, types=(u8, i8), channels=False, bias=False, **rest):
    many = weight[:1] if channels else ()
    zero = data(np.zeros(many), types[1]) if types[1] == i8 else level(*many, dtype=types[1])
    return row(name, [level(*x, dtype=types[0]), scale(), level(dtype=types[0]), factor(*weight, dtype=types[1]), scale(*many), zero,
                      f(low=0.5, high=1), level(dtype=types[0]), i(weight[0], low=-3000, high=3000, dtype=i32) if bias else None], **rest)


def pool(name, x, dtype=u8, zeros=True, **rest):
    return row(name, [level(*x, dtype=dtype), scale(), level(dtype=dtype) if zeros else None, scale(), level(dtype=dtype) if zeros else None], **rest)


def softmax(name, shape, dtype=u8, zeros=True, **rest):
    return row(name, [level(*shape, dtype=dtype), scale(), level(dtype=dtype) if zeros else None, data(1 / 256, f32), data(np.iinfo(dtype).min, dtype)], **rest)


def chosen(name, shape, x, y, dtype=u8):
    return row(name, [b(*shape), level(*x, dtype=dtype), scale(), level(dtype=dtype), level(*y, dtype=dtype), scale(), level(dtype=dtype), scale(), level(dtype=dtype)])


QUANTIZED = [
    *table("QLinearConv",
           convolution("channels first", (2, 3, 6, 5), (4, 3, 3, 3), **ROUND),
           convolution("channels last", (2, 6, 5, 3), (4, 3, 3, 3), channels_last=1, **ROUND),
           convolution("channels last, a scale a channel, a bias", (2, 6, 5, 3), (4, 3, 3, 3), channels=True, bias=True, channels_last=1, **ROUND),
           convolution("i8", (1, 3, 6, 5), (4, 3, 3, 3), types=(i8, i8), bias=True, **ROUND),
           convolution("u8 weights", (1, 6, 5, 3), (4, 3, 3, 3), types=(u8, u8), channels_last=1, **ROUND),
           convolution("groups, strides, dilations", (1, 7, 7, 4), (6, 2, 3, 3), channels_last=1, group=2, strides=[2, 2], dilations=[2, 1]),
           convolution("depthwise", (1, 7, 7, 4), (4, 1, 3, 3), channels_last=1, group=4),
           convolution("same", (1, 3, 6, 5), (4, 3, 3, 3), auto_pad="SAME_LOWER"), **PLAIN),
    *table("QLinearAveragePool",
           pool("a window of two", (2, 3, 6, 5), kernel_shape=[2, 2]),
           pool("pads", (2, 3, 6, 5), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
           pool("pads that count", (2, 3, 6, 5), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
           pool("strides, ceil", (2, 3, 6, 5), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
           pool("same", (1, 3, 6, 5), kernel_shape=[2, 2], auto_pad="SAME_UPPER"),
           pool("channels last", (2, 6, 5, 3), kernel_shape=[2, 2], channels_last=1),
           pool("i8", (2, 3, 6, 5), dtype=i8, kernel_shape=[2, 2]),
           pool("one axis", (2, 3, 9), kernel_shape=[3]),
           pool("no zero points", (2, 3, 6, 5), zeros=False, kernel_shape=[2, 2], expect=with_zeros(2, 4)), **PLAIN),
    *table("QLinearSoftmax",
           softmax("the last axis", (3, 17), opset=13),
           softmax("an axis between", (2, 5, 3), opset=13, axis=1),
           softmax("all axes from the second on", (2, 3, 4), opset=12, axis=1),
           softmax("i8", (3, 17), dtype=i8, opset=13, axis=-1),
           # 1 is beyond the largest level, which ONNX Runtime takes where one of many elements has it all, but not here: it gives 0.
           softmax("an axis of one", (2, 1, 4), opset=13, axis=1, expect=lambda case, x: [np.full_like(x[0], 255)]), **PLAIN),
    *table("QLinearWhere", chosen("equal shapes", (3, 4), (3, 4), (3, 4)), chosen("i8", (3, 4), (3, 4), (3, 4), i8), chosen("a row and a column", (3, 4), (4,), (3, 1)),
           chosen("a condition for all", (1,), (3, 4), (3, 4)), **PLAIN),
    *table("QLinearReduceMean",
           row("an axis", [level(3, 4, 5), scale(), level(), scale(), level()], axes=[1], keepdims=1),
           row("axes dropped", [level(3, 4, 5), scale(), level(), scale(), level()], axes=[0, -1], keepdims=0),
           row("no zero points", [level(3, 4, 5, dtype=i8), scale(), None, scale()], axes=[2], keepdims=1),
           expect=formulas.qlinear_reduce_mean, **PLAIN),
    *table("NhwcMaxPool",
           row("a window", [level(2, 6, 5, 3)], kernel_shape=[2, 2]),
           row("i8, pads, strides", [level(2, 6, 5, 3, dtype=i8)], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
           row("dilations, ceil", [level(1, 8, 8, 2)], kernel_shape=[2, 2], dilations=[2, 2], strides=[2, 2], ceil_mode=1),
           row("same", [level(1, 7, 7, 2)], kernel_shape=[2, 2], auto_pad="SAME_UPPER"), **PLAIN),
]

B, S, T, N, D, IN = 2, 3, 4, 2, 4, 6
WIDE = 3 * N * D


def small(*shape):
    """Scales with which scores are some units."""
    return f(*shape, low=0.002, high=0.01)


def projected(name, *more, x_type=u8, w_type=i8, columns=False, **rest):
    many = (WIDE,) if columns else ()
    more = list(more) + [None] * (3 - len(more))
    mask, past = more[0], more[1]
    zero = data(np.zeros(many), i8) if w_type == i8 else level(*many, dtype=w_type)
    zeros = rest.pop("zeros", True)
    return row(name, [level(B, S, IN, dtype=x_type), factor(IN, WIDE, dtype=w_type), f(WIDE), small(), f(*many, low=0.004, high=0.02), mask, level(dtype=x_type) if zeros else None,
                      zero if zeros else None, past], num_heads=N, **rest)


def tables(*indices):
    """Tables of embeddings with their scales and zero points; without those of these numbers."""
    shapes = [(10, 8), (6, 8), (3, 8), (8,), (8,)]
    given = [None if k in indices else shape for k, shape in enumerate(shapes)]
    return [[s and level(*s) for s in given], [s and scale() for s in given], [s and level() for s in given]]


def embedded(name, segments=True, mask=None, outputs=(0, 1), **rest):
    levels, scales, zeros = tables(*([] if segments else [2]))
    ids = [i(2, 5, dtype=i32), i(2, 5, high=3, dtype=i32) if segments else None]
    return row(name, [*ids, *levels, mask, *scales, *zeros], outputs=outputs, **rest)


ATTENTIONS = [
    *table("QAttention",
           projected("no mask"),
           projected("u8 weights", w_type=u8),
           projected("a scale a column", columns=True),
           projected("no zero points", w_type=u8, zeros=False, expect=with_zeros(6, 7)),
           projected("a number of keys", data([2, 3], i32)),
           projected("a mask of keys", data([[1, 1, 0], [1, 0, 1]], i32)),
           projected("a value for the hidden", data([[1, 1, 0], [1, 0, 1]], i32), mask_filter_value=-3.0),
           projected("a scale", scale=0.7),
           projected("unidirectional", unidirectional=1),
           projected("the new keys and values", outputs=(0, 1)),
           projected("a past", None, f(2, B, N, T, D), outputs=(0, 1), unidirectional=1),
           projected("rotation and one memory said to be off", do_rotary=0, past_present_share_buffer=0),
           **PLAIN, **SUMS),
    *table("QAttention", projected("a rotation", do_rotary=1, refused="do_rotary"),
           projected("one memory", None, f(2, B, N, T, D), past_present_share_buffer=1, refused="past_present_share_buffer"), **PLAIN),
    *table("QEmbedLayerNormalization",
           embedded("segments"),
           embedded("no segments", segments=False),
           embedded("a mask", mask=i(2, 5, high=2, dtype=i32)),
           embedded("a large epsilon", epsilon=0.5), **PLAIN, **SUMS),
]

# --- normalisation, activation ----------------------------------------------------------------------------------------
GROUPS = {"groups": 2, "activation": 0}
NORMS = [
    *table("GroupNorm",
           row("channels last", [f(2, 3, 4, 6), f(6), f(6)], **GROUPS),
           row("SiLU", [f(2, 3, 4, 6), f(6), f(6)], groups=3, activation=1),
           row("channels first", [f(2, 6, 3, 4), f(6), f(6)], channels_last=0, **GROUPS),
           row("a large epsilon", [f(2, 3, 4, 6), f(6), f(6)], epsilon=0.5, channels_last=1, **GROUPS),
           expect=picked(formulas.group_norm), half=8, **HALF, **SUMS),
    *table("SkipGroupNorm",
           row("a skip", [f(2, 3, 4, 6), f(6), f(6), f(2, 3, 4, 6)], outputs=(0, 1), **GROUPS),
           row("a skip for all places", [f(2, 3, 4, 6), f(6), f(6), f(2, 1, 1, 6)], outputs=(0, 1), **GROUPS),
           row("a skip of two axes, a bias", [f(2, 3, 4, 6), f(6), f(6), f(2, 6), f(6)], outputs=(0, 1), sizes=SAID, groups=3, activation=1, epsilon=1e-3),
           row("channels first", [f(2, 6, 3, 4), f(6), f(6), f(2, 6, 3, 4), f(6)], outputs=(0, 1), channels_last=0, **GROUPS),
           expect=picked(formulas.skip_group_norm, 0, 1), half=8, **HALF, **SUMS),
    *table("BiasAdd", row("three axes", [f(2, 3, 4), f(4), f(2, 3, 4)], expect=lambda case, x: [x[0] + x[1] + x[2]]), **PLAIN),
    *table("GatedAdd", row("a gate a row", [f(2, 3, 4), f(2, 3, 4), f(2, 3, 1)]), row("nothing", [f(0, 4), f(0, 4), f(0, 1)]), half=2, **HALF),
    *table("ScaledSiLU", row("as it is", [f(3, 7)]), row("alpha", [f(3, 7)], alpha=0.5), row("a scale that is given", [f(3, 7), data(1.5, f32)], alpha=0.5),
           row("nothing", [f(0, 7)]), half=8, **HALF),
    *table("GatedRMSNorm", row("SiLU", [f(2, 3, 8), f(8), f(2, 3, 8)]), row("heads in the last axis", [f(2, 3, 8), f(4), f(2, 3, 8)], activation="swish"),
           row("sigmoid", [f(2, 3, 8), f(8), f(2, 3, 8)], activation="sigmoid", epsilon=0.1),
           row("numbers beside epsilon", [f(2, 3, 8, low=-0.01, high=0.01), f(8), f(2, 3, 8)]), half=2, **HALF, **SUMS),
    *table("GatedRMSNorm", row("another function", [f(2, 8), f(8), f(2, 8)], activation="tanh", refused="tanh"), **PLAIN),
    *table("BranchwiseRMSNorm", row("grouped", [f(2, 3, 4, 8)]), row("a scale a branch", [f(2, 3, 4, 8), f(4, 8)]), row("one scale", [f(2, 3, 4, 8), f(8)], sizes=SAID),
           row("a flat scale", [f(2, 3, 4, 8), f(32)], sizes=SAID), row("flat", [f(2, 3, 32), f(32)], num_branches=4, epsilon=0.1),
           row("numbers beside epsilon", [f(2, 3, 4, 8, low=-0.01, high=0.01)]),
           half=2, **HALF, **SUMS),
]


# --- movement ----------------------------------------------------------------------------------------------------------
def invertible(*shape, dtype=f32):
    n = shape[-1]
    return data((np.random.default_rng(n).uniform(-1, 1, shape) + 2 * n * np.eye(n)).astype(dtype))


MOVEMENTS = [
    *table("Inverse", row("a matrix", [invertible(4, 4)]), row("batches", [invertible(2, 3, 5, 5)]), row("one element", [data([[4.0]], f32)]),
           row("rows that change places", [data([[0, 2, 0], [1, 0, 0], [0, 0, 4]], f32)]), row("f64", [invertible(3, 3, dtype=f64)]), row("no matrix", [f(0, 3, 3)]),
           row("a large one", [invertible(40, 40)]), rtol=64, atol=16, **PLAIN),
    *table("CDist", row("squares", [f(4, 7), f(5, 7)]), row("said", [f(4, 7), f(5, 7)], metric="sqeuclidean"), row("roots", [f(4, 7), f(5, 7)], metric="euclidean"),
           row("f64", [f(4, 7, dtype=f64), f(5, 7, dtype=f64)], metric="euclidean"), row("one point", [f(1, 3), f(1, 3)]), rtol=64, atol=64, **PLAIN),
    *table("CDist", row("another metric", [f(4, 7), f(5, 7)], metric="cosine", refused="cosine"), **PLAIN),
    *table("Trilu", row("upper", [f(4, 5)]), row("lower", [f(2, 4, 5)], upper=0), row("k", [f(4, 5), data(1, i64)]), row("lower, negative k", [i(4, 5), data(-1, i64)], upper=0), **PLAIN),
    *table("ExpandDims", row("the first", [f(3, 4), constant(data(0, i32))]), row("between", [i(3, 4), constant(data(1, i32))]), row("the last", [f(3, 4), constant(data(-1, i32))]),
           row("of a scalar", [f(), constant(data(0, i32))]), **PLAIN),
    *table("ExpandDims", row("an axis at run time", [f(3, 4), data(0, i32)], refused="axis"), **PLAIN),
    *table("GatherND", row("rows", [f(4, 5), data([[1], [3]], i64)]), row("elements", [f(4, 5), data([[1, 2], [3, 0]], i64)]), row("i32 indices", [i(4, 5), data([[1], [-1]], i32)]), **SIZED),
    *table("GridSample",
           row("bilinear", [f(2, 3, 4, 5), f(2, 6, 7, 2, low=-1.2, high=1.2)], mode="bilinear"),
           row("nearest, border", [f(2, 3, 4, 5), f(2, 6, 7, 2, low=-1.2, high=1.2)], mode="nearest", padding_mode="border"),
           row("bicubic, reflection, aligned", [f(1, 2, 4, 5), f(1, 6, 7, 2, low=-1.2, high=1.2)], mode="bicubic", padding_mode="reflection", align_corners=1),
           row("as it is", [f(1, 2, 4, 5), f(1, 3, 3, 2, low=-1.2, high=1.2)]), rtol=64, atol=64, **PLAIN),
    *table("Range", row("floats", [data(1.0, f32), data(7.5, f32), data(1.5, f32)]), row("no step", [data(2, i64), data(9, i64)]), row("down", [data(9, i32), data(2, i32), data(-3, i32)]),
           row("vectors of one", [data([2], i64), data([9], i64), data([2], i64)]), row("none", [data(5, i64), data(2, i64)]), **PLAIN),
    *table("Pad", row("zeros", [f(2, 3), data([0, 1, 2, 0], i64)]), row("a value", [f(2, 3), data([0, 1, 2, 0], i64), data(1.5, f32)], mode="constant"),
           row("a value in a vector", [f(2, 3), data([0, 1, 2, 0], i64), data([1.5], f32)]),
           row("pads in a row", [f(2, 3), data([[0, 1, 2, 0]], i64)]), row("reflect", [f(4, 5), data([1, 2, 2, 1], i64)], mode="reflect"), row("edge", [f(4, 5), data([1, 2, 2, 1], i64)], mode="edge"),
           row("negative", [f(4, 5), data([-1, 0, 0, -2], i64)]), **PLAIN),
    *table("SampleOp", row("as it is", [f(3, 4)]), **PLAIN),
    *table("UnfoldTensor", row("the last axis", [f(3, 9)], size=3), row("steps", [f(3, 9)], size=4, step=2, dim=1), row("the first axis", [i(7, 3)], size=2, dim=0, step=3),
           row("an axis between", [f(2, 6, 3)], size=2, dim=-2), row("all of it", [f(2, 5)], size=5), **PLAIN),
    *table("UnfoldTensor", row("slices that are too long", [f(2, 5)], size=6, refused="slices of 6 of an axis of 5"), row("no slices", [f(2, 5)], size=0, refused="slices of 0"), **PLAIN),
    *table("UnfoldTensor", row("slices too long for what a run brings", [f(2, 5)], size=9, refused="negative size", sizes=OPEN), row("slices of one more", [f(2, 5)], size=6, step=4, refused="negative size", sizes=OPEN), **PLAIN),
    *table("Unique", row("some twice", [data([2, 1, 1, 3, 4, 3], f32)], outputs=(0, 1, 2)), row("none", [f(0)], outputs=(0, 1, 2)), row("all", [data([3, 3, 3], f32)], outputs=(0, 1, 2)), **PLAIN),
]

# --- experts and tables of narrow numbers -----------------------------------------------------------------------------
T, EXPERTS, HIDDEN, INNER = 7, 4, 32, 48


def rated(tokens, *shifts):
    """What the router makes of the tokens; shifts: of the experts' rates, which else are from -2 to 2."""
    return drawn(lambda rng: (rng.uniform(-2, 2, (tokens, EXPERTS)) + (shifts or 0)).astype(f32))


ONE_FOR_ALL, TWO_FOR_ALL, ONE_RATED = (0, 9, 0, 0), (0, -20, 9, -20), (-np.inf, 0, -np.inf, -np.inf)


def experts(name, fused=1, tokens=(T,), bias=True, third=False, fixed=False, shifts=(), **rest):
    """MoE: fused 2 has gates and what they gate in one layer. fixed: the weights stand in the model."""
    given = constant if fixed else (lambda fill: fill)

    def layer(rows, columns):
        return [given(f(EXPERTS, rows, columns, low=-0.5, high=0.5)), given(f(EXPERTS, rows)) if bias else None]

    return row(name, [f(*tokens, HIDDEN), rated(int(np.prod(tokens)), *shifts), *layer(fused * INNER, HIDDEN), *layer(HIDDEN, INNER), *(layer(INNER, HIDDEN) if third else [])], **rest)


def narrow_experts(name, bits=4, block=16, fused=1, zeros=False, given=False, bias=False, third=False, tokens=T, shifts=(), **rest):
    """QMoE; block 0: a scale a row. given: the weights come with the run."""
    fixed = (lambda fill: fill) if given else constant

    def layer(rows, columns):
        blocks = (columns // block,) if block else ()
        zero = (EXPERTS, rows, -(-columns // block * bits // 8)) if block else (EXPERTS, rows * bits // 8)
        return (fixed(i(EXPERTS, rows, columns * bits // 8, high=256, dtype=u8)), fixed(f(EXPERTS, rows, *blocks, low=0.5 / 2**bits, high=1 / 2**bits)),
                fixed(f(EXPERTS, rows)) if bias else None, fixed(i(*zero, high=256, dtype=u8)) if zeros else None)

    layers = [layer(fused * INNER, HIDDEN), layer(HIDDEN, INNER), layer(INNER, HIDDEN) if third else [None] * 4]
    sizes = {"block_size": block} if block else {}
    return row(name, [f(tokens, HIDDEN), rated(tokens, *shifts), *[part for parts in layers for part in parts[:3]], *[parts[3] for parts in layers]], expert_weight_bits=bits, **sizes, **rest)


def table_of_blocks(name, bits, block, shape=(6, 48), indices=(2, 3), zeros=False, given=False, wide=f32, **rest):
    fixed = (lambda fill: fill) if given else constant
    blocks = -(-shape[-1] // block)
    return row(name, [fixed(i(*shape[:-1], shape[-1] * bits // 8, high=256, dtype=u8)), i(*indices, low=-shape[0], high=shape[0]), fixed(f(*shape[:-1], blocks, low=0.01, high=0.1)),
                      fixed(i(*shape[:-1], -(-blocks * bits // 8), high=256, dtype=u8)) if zeros else None], bits=rest.pop("said", bits), block_size=block, **rest)


def narrow(low, high, *shape, dtype):
    return drawn(lambda rng: rng.integers(low, high, shape).astype(dtype))


def lstm_of_bytes(name, directions=1, dtype=u8, columns=False, middle=False, more=(), **rest):
    size, hidden, batch, steps = 6, 5, 2, 4
    many = (4 * hidden,) if columns else ()
    def weights(rows):
        return constant(level(directions, rows, 4 * hidden, dtype=dtype))
    def scales():
        zeros = data(np.zeros((directions, *many)), dtype) if middle else level(directions, *many, dtype=dtype)
        return [constant(f(directions, *many, low=0.002, high=0.006)), constant(zeros)]
    fills = {"bias": f(directions, 8 * hidden), "lengths": data([4, 3], i32), "h": f(directions, batch, hidden), "c": f(directions, batch, hidden), "holes": f(directions, 3 * hidden)}
    return row(name, [f(steps, batch, size), weights(size), weights(hidden), *[fills[k] if k in more else None for k in fills], *scales(), *scales()], hidden_size=hidden,
               outputs=(0, 1, 2), **rest)


def lstm_of_numbers(case, arrays):
    """ONNX Runtime's LSTM with the weights that the bytes stand for: what the operator rounds to bytes beside them is not rounded here."""
    def wide(w, s, z):
        s, z = (x.reshape(x.shape[0], 1, -1).astype(np.float64) for x in (s, z))
        return ((w - z) * s).astype(f32).transpose(0, 2, 1).copy()

    arrays = [arrays[0], wide(arrays[1], *arrays[8:10]), wide(arrays[2], *arrays[10:12]), *arrays[3:8]]
    return by_onnxruntime(replace(case, op="LSTM", domain="", version=14, inputs=[Fill(None)] * len(arrays)), arrays)


def bnb4(name, n, k, block, kind, batch=(5,), **rest):
    return row(name, [f(*batch, k), constant(i((n * k + 1) // 2, high=256, dtype=u8)), constant(f(-(-n * k // block), low=0.1, high=1))], N=n, K=k, block_size=block, quant_type=kind, **rest)


STREAMS = [
    *table("LinearAttentionGate", row("both", [f(2, 3, 4), f(4), f(4), f(2, 3, 4)], outputs=(0, 1)), row("decay alone", [f(2, 3, 4, low=-30, high=30), f(4), f(4)]), half=2, **PLAIN),
    *table("LinearAttentionGate", row("beta without b", [f(2, 3, 4), f(4), f(4)], outputs=(0, 1), refused="without b"), **PLAIN),
    *table("HyperConnectionPreMix", row("a weight a stream", [f(2, 3, 4, 8), f(2, 3, 4)], reduction_scale=0.5), row("with an axis", [f(2, 3, 4, 8), f(2, 3, 4, 1)]), row("a weight an element", [f(2, 3, 4, 8), f(2, 3, 4, 8)]),
           row("flat", [f(2, 3, 32), f(2, 3, 4)], num_branches=4), row("flat weights", [f(2, 3, 32), f(2, 3, 32)], num_branches=4, sizes=SAID), **PLAIN, **SUMS),
    *table("HyperConnectionPostMix", row("streams as they are", [f(2, 3, 4, 8), f(2, 3, 8), f(2, 3, 4)]), row("mixed", [f(2, 3, 4, 8), f(2, 3, 8), f(2, 3, 4, 1), f(2, 3, 4, 4)]),
           row("a weight an element", [f(2, 3, 4, 8), f(2, 3, 8), f(2, 3, 4, 8), f(2, 3, 4, 4)]), row("flat", [f(2, 3, 32), f(2, 3, 8), f(2, 3, 4), f(2, 3, 4, 4)], num_branches=4), **PLAIN, **SUMS),
    *table("HyperConnectionPreMix", row("weights of other axes", [f(2, 3, 4, 8), f(4)], refused="weights of 1 axes"), **PLAIN),
    *table("EngramGate", row("both", [f(2, 3, 4, 8), f(2, 3, 4, 8), f(2, 3, 8), f(4, 8), f(4, 8), f(4, 8)], outputs=(0, 1), sizes=SAID),
           row("the gated value alone", [f(2, 3, 4, 8), f(2, 3, 4, 8), f(2, 3, 8), f(4, 8), f(4, 8)], epsilon=0.1, sizes=SAID), **PLAIN, **SUMS),
    *table("EngramGate", row("a size of the run", [f(2, 3, 4, 8), f(2, 3, 4, 8), f(2, 3, 8), f(4, 8), f(4, 8)], sizes=OPEN, refused="known only at run time"), **PLAIN),
]


EXPERTS_AND_TABLES = [
    *table("MatMulBnb4", bnb4("NF4", 6, 32, 16, 1), bnb4("FP4", 6, 32, 16, 0), bnb4("blocks across columns", 3, 40, 16, 1, training_mode=0), bnb4("FP4, batches, an odd number of weights", 3, 35, 64, 0, batch=(2, 3)), rtol=64, atol=64, **PLAIN),
    *table("MatMulBnb4", bnb4("not turned", 6, 32, 16, 1, transB=0, refused="transB"), bnb4("another table", 6, 32, 16, 2, refused="quant_type 2"), **PLAIN),
    *table("MatMulBnb4", row("weights of the run", [f(2, 32), i(64, high=256, dtype=u8), f(8)], N=4, K=32, block_size=16, quant_type=1, refused="come with a run"), **PLAIN),
    *table("MoE", experts("one expert a token, relu"), experts("two, silu", k=2, activation_type="silu"), experts("two, gelu, weights that add up to 1", k=2, activation_type="gelu", normalize_routing_weights=1),
           experts("all", k=EXPERTS, activation_type="identity"), experts("no biases, three axes", tokens=(2, 3), k=2, bias=False, activation_type="relu"),
           experts("swiglu", fused=2, k=2, activation_type="swiglu", swiglu_fusion=1, normalize_routing_weights=1),
           experts("swiglu with bounds", fused=2, k=2, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.7, activation_beta=1.0, swiglu_limit=0.5),
           experts("weights of the model", fixed=True, k=2, activation_type="gelu"), experts("one token", tokens=(1,), fixed=True, k=2), experts("one token, one expert", tokens=(1,), activation_type="silu"),
           experts("one expert has all tokens", shifts=ONE_FOR_ALL, fixed=True), experts("one expert has a row of each token", shifts=ONE_FOR_ALL, k=2, normalize_routing_weights=1),
           experts("two experts have all tokens", shifts=TWO_FOR_ALL, fixed=True, k=2), experts("many tokens", tokens=(90,), fixed=True, k=2, activation_type="silu"),
           experts("two where one is rated", shifts=ONE_RATED, k=2, normalize_routing_weights=1), experts("two where one is rated, weights as they are", shifts=ONE_RATED, fixed=True, k=2),
           rtol=256, atol=256, **PLAIN),
    *table("MoE", experts("gates and then what they gate", fused=2, k=2, activation_type="swiglu", swiglu_fusion=2), experts("a layer of what is gated", third=True, k=2, activation_type="silu"),
           experts("swiglu of two layers", third=True, k=2, activation_type="swiglu"), expect=formulas.experts, rtol=256, atol=256, **PLAIN),
    *table("MoE", experts("an unknown activation", activation_type="mish", refused="mish"), experts("a sparse mixer", use_sparse_mixer=1, refused="use_sparse_mixer"),
           experts("more experts than there are", k=EXPERTS + 1, refused="k = 5 of 4"), experts("swiglu of one layer", activation_type="swiglu", refused="swiglu_fusion"),
           experts("a clamp behind the activation", swiglu_limit_after_activation=1, refused="swiglu_limit_after_activation"), **PLAIN),
    *table("QMoE", narrow_experts("4 bits in blocks"), narrow_experts("zero points", zeros=True, k=2, activation_type="silu"), narrow_experts("biases, weights that add up to 1", bias=True, k=2, normalize_routing_weights=1),
           narrow_experts("a scale a row", block=0, k=2), narrow_experts("a scale and a zero point a row", block=0, zeros=True, k=2, activation_type="gelu"),
           narrow_experts("2 bits", bits=2, zeros=True, k=2), narrow_experts("8 bits, a scale a row", bits=8, block=0, k=2), narrow_experts("8 bits, a zero point a row", bits=8, block=0, zeros=True),
           narrow_experts("swiglu", fused=2, k=2, activation_type="swiglu", swiglu_fusion=1, activation_alpha=1.7, activation_beta=1.0, swiglu_limit=0.5),
           narrow_experts("one token", tokens=1, k=2, bias=True), narrow_experts("one token, one expert", tokens=1, zeros=True), narrow_experts("one expert has all tokens", shifts=ONE_FOR_ALL, bias=True),
           narrow_experts("many tokens", tokens=90, k=2, bias=True, activation_type="silu"), narrow_experts("many tokens, all experts", tokens=40, k=EXPERTS, bits=8, block=0),
           narrow_experts("two where one is rated", shifts=ONE_RATED, k=2), rtol=256, atol=256, **PLAIN),
    *table("QMoE", narrow_experts("8 bits in blocks", bits=8, zeros=True, k=2), narrow_experts("weights of the run", given=True, sizes=SAID, zeros=True, k=2), narrow_experts("weights of the run, a scale a row", given=True, sizes=SAID, block=0, zeros=True, k=2),
           narrow_experts("a layer of what is gated", third=True, bias=True, k=2, zeros=True, activation_type="silu"), narrow_experts("gates and then what they gate", fused=2, k=2, activation_type="swiglu", swiglu_fusion=2),
           narrow_experts("bits that each layer says", fc1_expert_weight_bits=4, fc2_expert_weight_bits=4, fc3_expert_weight_bits=4), narrow_experts("accuracy and packing as they are", accuracy_level=0, weights_prepacked=0),
           expect=formulas.experts, rtol=256, atol=256, **PLAIN),
    *table("QMoE", *[row(f"input {k}, which is not followed", [f(T, HIDDEN), f(T, EXPERTS), *[None] * (k - 2), f(T, EXPERTS)], refused=f"input {k}") for k in range(14, 21)],
           narrow_experts("a sparse mixer", use_sparse_mixer=1, refused="use_sparse_mixer"), narrow_experts("floats of 8 bits", quant_type="fp8", refused="quant_type"), narrow_experts("weights packed for another library", weights_prepacked=1, refused="packed for another"),
           narrow_experts("3 bits", fc1_expert_weight_bits=3, refused="3 bits"), narrow_experts("blocks that do not fit", block=20, refused="no multiple"), **PLAIN),
    *table("GatherBlockQuantized", table_of_blocks("4 bits", 4, 16), table_of_blocks("4 bits, zero points", 4, 16, zeros=True), table_of_blocks("a last block that is cut", 4, 16, shape=(6, 40), zeros=True),
           table_of_blocks("2 bits", 2, 16, zeros=True), table_of_blocks("8 bits", 8, 32, shape=(5, 64)), table_of_blocks("8 bits, zero points", 8, 16, zeros=True), table_of_blocks("three axes", 4, 16, shape=(4, 3, 32), zeros=True, quantize_axis=2),
           row("numbers of 4 bits", [constant(narrow(-8, 8, 6, 40, dtype=ml_dtypes.int4)), i(2, 3, high=6), constant(f(6, 3)), constant(narrow(-8, 8, 6, 3, dtype=ml_dtypes.int4))], block_size=16),
           row("numbers of 4 bits without a sign", [constant(narrow(0, 16, 6, 40, dtype=ml_dtypes.uint4)), i(2, 3, high=6, dtype=i32), constant(f(6, 3))], block_size=16),
           row("elements along the blocks", [constant(narrow(0, 16, 3, 40, dtype=ml_dtypes.uint4)), i(5, low=-40, high=40), constant(f(3, 3)), constant(narrow(0, 16, 3, 3, dtype=ml_dtypes.uint4))], block_size=16, gather_axis=1),
           table_of_blocks("one row", 4, 16, indices=(1,)), table_of_blocks("axes from behind", 4, 16, gather_axis=-2, quantize_axis=-1), **PLAIN, **SUMS),
    *table("GatherBlockQuantized", table_of_blocks("a table of the run", 4, 16, given=True, zeros=True), row("blocks along the rows that are taken", [constant(level(40, 3)), i(2, 3, low=-40, high=40), constant(f(3, 3))], bits=8, block_size=16, quantize_axis=0),
           expect=formulas.gathered_blocks, sizes=SAID, **PLAIN, **SUMS),
    *table("GatherBlockQuantized", table_of_blocks("5 bits", 8, 16, said=5, refused="5 bits"), table_of_blocks("blocks of 24", 8, 24, refused="block_size 24"),
           table_of_blocks("packed rows that are taken apart", 4, 16, gather_axis=1, quantize_axis=0, refused="packed"), **PLAIN),
    *table("DynamicQuantizeLSTM", lstm_of_bytes("as it is"), lstm_of_bytes("signed, a scale a column", dtype=i8, columns=True), lstm_of_bytes("two directions, all inputs", directions=2, more=("bias", "lengths", "h", "c", "holes"), direction="bidirectional"),
           lstm_of_bytes("backwards, other functions", more=("bias",), direction="reverse", activations=["Sigmoid", "Relu", "Tanh"], clip=2.0),
           lstm_of_bytes("functions with numbers, coupled gates", activations=["HardSigmoid", "LeakyRelu", "Tanh"], activation_alpha=[0.3, 0.2], activation_beta=[0.4], input_forget=1), expect=lstm_of_numbers, rtol=64, atol=64, **PLAIN),
    # ONNX Runtime rounds x and, step by step, h to bytes: of x in -2..2 a step is 1/64.
    *table("DynamicQuantizeLSTM", lstm_of_bytes("near ONNX Runtime", dtype=i8, columns=True, middle=True, more=("bias",)), atol=2**17, **PLAIN),
]

CASES = [*FUSED, *QUANTIZED, *ATTENTIONS, *NORMS, *MOVEMENTS, *STREAMS, *EXPERTS_AND_TABLES]
