# SPDX-License-Identifier: Apache-2.0
"""Cases of com.microsoft's operators: against ONNX Runtime, and formulas where it has none on the CPU."""

import numpy as np

import formulas
from cases import MICROSOFT, constant, data, f, f16, f32, factor, first_of, i, i32, i64, i8, row, table, u8, with_zeros
from formulas import picked

HALF = {"domain": MICROSOFT, "dtypes": [f32, f16]}
PLAIN = {"domain": MICROSOFT}
SAID, OPEN = ("said",), ("open",)
# Sums of products of some dozen numbers.
SUMS = {"rtol": 32, "atol": 32}



def bias_dropout(case, inputs):
    return picked(formulas.bias_dropout, *case.outputs)(case, inputs)


ACTIVATIONS = [
    *table("Gelu", row("a matrix", [f(3, 17)]), row("a scalar", [f()]), row("nothing", [f(0, 4)]), row("far out", [f(40, low=-30, high=30)]), **HALF),
    *table("QuickGelu", row("alpha as it is", [f(2, 3, 5)]), row("another alpha", [f(4, 9)], alpha=0.5), row("alpha 1", [f(9)], alpha=1.0),
           row("negative alpha", [f(9)], alpha=-1.5), **HALF),
    *table("FastGelu", row("without a bias", [f(2, 3, 8)]), row("with a bias", [f(2, 3, 8), f(8)]), row("two axes", [f(5, 7), f(7)]),
           row("far out", [f(40, low=-30, high=30)]), **HALF),
    *table("BiasGelu", row("three axes", [f(2, 3, 8), f(8)]), row("one axis", [f(6), f(6)]), row("nothing", [f(0, 6), f(6)]), **HALF),
    *table("BiasSplitGelu", row("three axes", [f(2, 3, 8), f(8)]), row("one half of one", [f(2, 3, 2), f(2)]),
           expect=picked(formulas.bias_split_gelu), half=1, **HALF),
    *table("BiasDropout",
           row("a bias", [f(3, 4), f(4)], outputs=(0, 1)),
           row("a bias and a residual", [f(2, 3, 4), f(4), f(2, 3, 4)], outputs=(0, 1)),
           row("a ratio, outside training", [f(3, 4), f(4), None, data(0.7, f32)], outputs=(0, 1), seed=3),
           row("training said to be off", [f(3, 4), f(4), None, data(0.7, f32), constant(data(False))], outputs=(0, 1)),
           row("the result alone", [f(3, 4), f(4)], outputs=(0,)),
           expect=bias_dropout, **PLAIN),
]

H = 8
NORMS = [
    *table("SkipLayerNormalization",
           row("gamma alone", [f(2, 3, H), f(2, 3, H), f(H)]),
           row("beta", [f(2, 3, H), f(2, 3, H), f(H), f(H)]),
           row("bias without beta", [f(2, 3, H), f(2, 3, H), f(H), None, f(H)]),
           row("beta and bias", [f(2, 3, H), f(2, 3, H), f(H), f(H), f(H)]),
           row("two axes", [f(5, H), f(5, H), f(H), f(H)]),
           row("skip of one batch", [f(2, 3, H), f(1, 3, H), f(H), f(H)]),
           row("skip without a batch", [f(2, 3, H), f(3, H), f(H), f(H)]),
           row("a large epsilon", [f(2, 3, H), f(2, 3, H), f(H), f(H)], epsilon=0.5),
           row("the sum as well", [f(2, 3, H), f(2, 3, H), f(H), f(H), f(H)], outputs=(0, 3)),
           row("a long row", [f(2, 1000), f(2, 1000), f(1000), f(1000)]),
           half=4, **HALF, **SUMS),
    *table("SkipLayerNormalization",
           row("mean and deviation", [f(2, 3, H), f(2, 3, H), f(H), f(H), f(H)], outputs=(0, 1, 2, 3),
               expect=picked(formulas.skip_norm(True), 0, 1, 2, 3)), **PLAIN, **SUMS),
    *table("SkipSimplifiedLayerNormalization",
           row("gamma alone", [f(2, 3, H), f(2, 3, H), f(H)]),
           row("a bias", [f(2, 3, H), f(2, 3, H), f(H), f(H)]),
           row("a large epsilon", [f(2, 3, H), f(2, 3, H), f(H)], epsilon=0.5),
           row("the sum as well", [f(2, 3, H), f(2, 3, H), f(H), f(H)], outputs=(0, 3)),
           row("two axes", [f(5, H), f(5, H), f(H)]),
           half=4, **HALF, **SUMS),
    *table("SkipSimplifiedLayerNormalization",
           row("the mean, which is none", [f(2, 3, H), f(2, 3, H), f(H)], outputs=(0, 1), refused="output 1"),
           row("the deviation", [f(2, 3, H), f(2, 3, H), f(H), f(H)], outputs=(0, 2, 3), expect=picked(formulas.skip_norm(False), 0, 2, 3)),
           **PLAIN, **SUMS),
    *table("SimplifiedLayerNormalization",
           row("three axes", [f(2, 3, H), f(H)]),
           row("a large epsilon", [f(2, 3, H), f(H)], epsilon=0.5),
           row("the axis said", [f(2, 3, H), f(H)], axis=-1),
           row("the axis said from the front", [f(2, 3, H), f(H)], axis=2, epsilon=1e-3),
           expect=picked(formulas.rms_norm), **HALF, **SUMS),
    *table("SimplifiedLayerNormalization",
           row("the deviation", [f(2, 3, H), f(H)], outputs=(0, 1), expect=picked(formulas.rms_norm, 0, 1)), **PLAIN, **SUMS),
    *table("EmbedLayerNormalization",
           row("words and positions", [i(2, 5, dtype=i32), None, f(10, H), f(6, H), None, f(H), f(H)], outputs=(0, 1)),
           row("segments", [i(2, 5, dtype=i32), i(2, 5, high=3, dtype=i32), f(10, H), f(6, H), f(3, H), f(H), f(H)], outputs=(0, 1)),
           row("a mask", [i(2, 5, dtype=i32), i(2, 5, high=3, dtype=i32), f(10, H), f(6, H), f(3, H), f(H), f(H), i(2, 5, high=2, dtype=i32)],
               outputs=(0, 1), mask_index_type=1),
           row("position ids", [i(2, 5, dtype=i32), None, f(10, H), f(6, H), None, f(H), f(H), None, i(2, 5, high=6, dtype=i32)], outputs=(0, 1)),
           row("position ids of one batch", [i(2, 5, dtype=i32), None, f(10, H), f(6, H), None, f(H), f(H), None, i(1, 5, high=6, dtype=i32)],
               outputs=(0, 1)),
           row("the sum as well", [i(2, 5, dtype=i32), i(2, 5, high=3, dtype=i32), f(10, H), f(6, H), f(3, H), f(H), f(H)], outputs=(0, 1, 2)),
           row("a large epsilon", [i(2, 5, dtype=i32), None, f(10, H), f(6, H), None, f(H), f(H)], outputs=(0, 1), epsilon=0.5),
           **PLAIN, **SUMS),
]

BATCHED = [f(2, 1, 3, 4), f(5, 4, 6)]
PRODUCTS = [
    *table("FusedMatMul",
           row("a product", [f(3, 4), f(4, 5)]),
           row("alpha", [f(3, 4), f(4, 5)], alpha=-0.25),
           row("transA", [f(4, 3), f(4, 5)], transA=1),
           row("transB", [f(3, 4), f(5, 4)], transB=1, alpha=2.0),
           row("both transposed", [f(2, 4, 3), f(2, 5, 4)], transA=1, transB=1),
           row("batches that broadcast", BATCHED, alpha=0.5),
           row("batches, transB", [f(2, 3, 4), f(2, 5, 4)], transB=1),
           row("a vector before", [f(4), f(4, 5)]),
           row("a vector behind", [f(3, 4), f(4)]),
           row("no terms", [f(3, 0), f(0, 5)]),
           row("transBatchA", [f(4, 2, 3), f(2, 3, 5)], transBatchA=1),
           row("transBatchB", [f(2, 3, 4), f(4, 2, 5)], transBatchB=1),
           row("batches of both first", [f(4, 2, 3), f(3, 2, 5)], transBatchA=1, transBatchB=1),
           row("transBatchA and transA", [f(4, 2, 3), f(2, 4, 5)], transBatchA=1, transA=1),
           row("transBatchB and transB", [f(2, 3, 4), f(5, 2, 4)], transBatchB=1, transB=1),
           row("transBatchA of four axes", [f(4, 2, 3, 6), f(2, 3, 6, 5)], transBatchA=1),
           **PLAIN, **SUMS),
]


def nbits(name, n, k, block, bits, *, zeros=None, batch=(3,), bias=False, **rest):
    """A row of MatMulNBits: zeros is None, u8 (packed) or f32. given: the weights come with the run."""
    fixed = (lambda fill: fill) if rest.pop("given", False) else constant
    count = -(-k // block)
    zero_bytes = -(-count * bits // 8)
    zero_points = {None: None, u8: fixed(i(n * zero_bytes, high=256, dtype=u8)), f32: fixed(f(n * count, low=1, high=14))}[zeros]
    inputs = [f(*batch, k), fixed(i(n, count, -(-block * bits // 8), high=256, dtype=u8)), fixed(f(n * count, low=0.01, high=0.1)), zero_points,
              rest.pop("indices", None), constant(f(n)) if bias else None]
    return row(name, inputs, N=n, K=k, block_size=block, bits=bits, **rest)


QUANTIZED_PRODUCTS = [
    *table("MatMulNBits",
           nbits("4 bits", 16, 64, 32, 4),
           nbits("zero points", 16, 64, 32, 4, zeros=u8),
           nbits("zero points, an odd number of blocks", 7, 96, 32, 4, zeros=u8),
           nbits("zero points that are floats", 16, 64, 32, 4, zeros=f32),
           nbits("a last block that is cut", 5, 50, 16, 4, zeros=u8),
           nbits("blocks of 16", 8, 64, 16, 4),
           nbits("blocks of 128", 8, 256, 128, 4, zeros=u8),
           nbits("a bias", 16, 64, 32, 4, bias=True),
           nbits("two batches", 16, 64, 32, 4, batch=(2, 3), zeros=u8, bias=True),
           nbits("one row", 33, 64, 32, 4, batch=(1,), zeros=u8),
           nbits("no row", 8, 64, 32, 4, batch=(0,)),
           nbits("2 bits", 16, 64, 32, 2),
           nbits("2 bits, zero points, a last block that is cut", 9, 90, 16, 2, zeros=u8, bias=True),
           nbits("3 bits", 9, 96, 32, 3),
           nbits("3 bits, zero points", 9, 70, 64, 3, zeros=u8),
           nbits("many rows, zero points", 40, 96, 32, 4, batch=(30,), zeros=u8),
           nbits("8 bits", 16, 64, 32, 8),
           nbits("8 bits, zero points", 7, 96, 32, 8, zeros=u8),
           nbits("8 bits, a last block that is cut", 5, 50, 16, 8, zeros=u8, bias=True),
           nbits("one row, a last block that is cut", 33, 200, 64, 4, batch=(1,), bias=True),
           nbits("one row, 2 bits", 20, 96, 16, 2, batch=(1,), zeros=f32),
           nbits("accuracy of f32", 16, 64, 32, 4, accuracy_level=1),
           nbits("weights of the run", 16, 64, 32, 4, given=True),
           nbits("weights of the run, zero points, a last block that is cut", 5, 50, 16, 4, zeros=u8, given=True, bias=True),
           nbits("weights of the run, zero points that are floats", 16, 64, 32, 4, zeros=f32, given=True),
           nbits("weights of the run, 2 bits", 9, 90, 16, 2, zeros=u8, given=True),
           nbits("weights of the run, 3 bits, zero points", 9, 70, 64, 3, zeros=u8, given=True),
           nbits("weights of the run, 3 bits, many blocks", 9, 200, 16, 3, zeros=u8, given=True),
           nbits("weights of the run, 8 bits", 7, 96, 32, 8, zeros=u8, given=True),
           nbits("weights of the run, many blocks, two batches", 70, 512, 32, 4, zeros=u8, batch=(2, 3), given=True, bias=True),
           nbits("weights of the run, 2 bits, blocks of 128", 66, 512, 128, 2, zeros=u8, batch=(1,), given=True),
           nbits("weights of the run, 8 bits, many rows", 33, 96, 32, 8, zeros=u8, batch=(12,), given=True),
           nbits("an order of the depths that is the usual one", 16, 64, 32, 4, indices=constant(data(np.arange(64) // 32, i32))),
           nbits("an order of the depths", 16, 64, 32, 4, zeros=u8, indices=constant(data(np.arange(64) % 2, i32))),
           nbits("an order of the depths, 8 bits", 16, 70, 32, 8, indices=constant(data(np.arange(70) * 7 % 3, i32))),
           nbits("an order of the depths, all of the run", 16, 64, 32, 4, zeros=f32, indices=data(np.arange(64) * 5 % 2, i32), given=True),
           expect=picked(formulas.matmul_nbits), rtol=256, atol=256, **HALF),
    *table("MatMulNBits",
           nbits("rows of bytes", 40, 96, 32, 4, zeros=u8, batch=(30,), accuracy_level=4, bias=True),
           nbits("rows of bytes, few", 16, 64, 32, 4, accuracy_level=4),
           nbits("rows of bytes, one", 33, 100, 32, 4, zeros=u8, batch=(1,), accuracy_level=4, bias=True),
           nbits("rows of bytes, one, 8 bits", 33, 64, 32, 8, zeros=u8, batch=(1,), accuracy_level=4),
           nbits("rows of bytes, a last block that is cut", 70, 200, 64, 4, batch=(9,), accuracy_level=4),
           nbits("rows of bytes, 2 bits", 24, 96, 16, 2, zeros=u8, batch=(2, 7), accuracy_level=4),
           nbits("rows of bytes, 8 bits", 40, 96, 32, 8, batch=(30,), accuracy_level=4),
           nbits("rows of bytes, 8 bits, zero points, a last block that is cut", 33, 200, 64, 8, zeros=u8, batch=(9,), accuracy_level=4, bias=True),
           expect=picked(formulas.matmul_nbits_of_bytes), rtol=256, atol=256, **PLAIN),
    *table("MatMulNBits",
           nbits("as ONNX Runtime: 4 bits", 16, 64, 32, 4, zeros=u8, bias=True),
           nbits("as ONNX Runtime: 8 bits", 16, 64, 32, 8, zeros=u8),
           nbits("as ONNX Runtime: 2 bits", 16, 64, 32, 2, zeros=u8),
           nbits("as ONNX Runtime: blocks of 16, many rows", 24, 96, 16, 4, batch=(40,), zeros=u8),
           nbits("as ONNX Runtime: blocks of 256", 40, 1000, 256, 4, zeros=u8, batch=(2,)),
           nbits("as ONNX Runtime: weights of the run", 16, 64, 32, 4, zeros=u8, given=True),
           nbits("as ONNX Runtime: an order of the depths", 16, 64, 32, 4, indices=constant(data(np.arange(64) % 2, i32))),
           nbits("as ONNX Runtime: zero points that are floats", 16, 64, 32, 4, zeros=f32), **PLAIN, rtol=256, atol=256),
    *table("MatMulNBits",
           nbits("5 bits", 16, 64, 32, 5, refused="5 bits"),
           nbits("blocks of 24", 16, 64, 24, 4, refused="multiple of 16"),
           nbits("weights packed for another library", 16, 64, 32, 4, weight_prepacked=1, refused="weight_prepacked"), **PLAIN),
]


def level(*shape, dtype=u8):
    info = np.iinfo(dtype)
    return i(*shape, low=info.min, high=info.max + 1, dtype=dtype)


def scale(*shape):
    return f(*shape, low=0.01, high=0.05)


def pair(name, a, b, dtype=u8, **rest):
    return row(name, [level(*a, dtype=dtype), scale(), level(dtype=dtype), level(*b, dtype=dtype), scale(), level(dtype=dtype), scale(), level(dtype=dtype)],
               **rest)


def without(case, *indices):
    """The row without these inputs."""
    name, inputs, attributes, own = case
    return name, [None if k in indices else x for k, x in enumerate(inputs)], attributes, own


def concatenated(name, parts, dtype=u8, **rest):
    inputs = [scale(), level(dtype=dtype)]
    for part in parts:
        inputs += [level(*part, dtype=dtype), scale(), level(dtype=dtype)]
    return row(name, inputs, **rest)


def product(name, a, b, a_type=u8, b_type=i8, b_scale=(), zeros=(True, True), bias=False, **rest):
    return row(name, [level(*a, dtype=a_type), factor(*b, dtype=b_type), scale(), scale(*b_scale), level(dtype=a_type) if zeros[0] else None,
                      level(*b_scale, dtype=b_type) if zeros[1] else None, f(b[-1]) if bias else None], **rest)


QUANTIZED = [
    *table("QuantizeLinear",
           row("one scale", [f(3, 4), scale(), level()]),
           row("one scale, i8", [f(3, 4), scale(), level(dtype=i8)]),
           row("no zero point", [f(3, 4), scale()]),
           row("16 bits", [f(3, 4), scale(), level(dtype=np.uint16)]),
           row("16 bits with a sign", [f(3, 4), scale(), level(dtype=np.int16)]),
           row("per axis 0", [f(3, 4), scale(3), level(3)], axis=0),
           row("per axis 1", [f(2, 3, 4), scale(3), level(3)], axis=1),
           row("per last axis", [f(2, 3, 4), scale(4), level(4, dtype=i8)], axis=-1),
           row("out of range", [f(50, low=-100, high=100), data(0.125, f32), data(3, i8)]),
           row("halves go to even", [data(np.arange(-10, 11) / 2, f32), data(1, f32), data(100, u8)]), **PLAIN),
    *table("DequantizeLinear",
           row("one scale", [level(3, 4), scale(), level()]),
           row("one scale, i8", [level(3, 4, dtype=i8), scale(), level(dtype=i8)]),
           row("no zero point", [level(3, 4), scale()]),
           row("16 bits", [level(3, 4, dtype=np.uint16), scale(), level(dtype=np.uint16)]),
           row("16 bits with a sign", [level(3, 4, dtype=np.int16), scale(), level(dtype=np.int16)]),
           row("32 bits", [level(3, 4, dtype=i32), scale()]),
           row("per axis 0", [level(3, 4), scale(3), level(3)], axis=0),
           row("per axis 1", [level(2, 3, 4), scale(3), level(3)], axis=1),
           row("per last axis", [level(2, 3, 4, dtype=i8), scale(4), level(4, dtype=i8)], axis=-1), **PLAIN),
    *table("QLinearAdd", pair("equal shapes", (3, 4), (3, 4)), pair("i8", (3, 4), (3, 4), i8), pair("a row to each", (3, 4), (4,)),
           pair("a column to each", (3, 1), (1, 4), i8), pair("a scalar", (3, 4), ()), pair("many", (3, 111), (3, 111)),
           without(pair("no zero points", (3, 4), (3, 4), expect=with_zeros(2, 5, 7)), 2, 5, 7), **PLAIN),
    *table("QLinearMul", pair("equal shapes", (3, 4), (3, 4)), pair("i8", (3, 4), (3, 4), i8), pair("a row to each", (3, 4), (4,)),
           pair("a column to each", (3, 1), (1, 4), i8), pair("a scalar", (3, 4), ()), pair("many", (3, 111), (3, 111)),
           without(pair("no zero points", (3, 4), (3, 4), expect=with_zeros(2, 5, 7)), 2, 5, 7), **PLAIN),
    *table("QLinearSigmoid",
           row("all levels", [data(np.arange(256), u8), scale(), data(120, u8), data(1 / 256, f32), data(0, u8)]),
           row("all levels, i8", [data(np.arange(-128, 128), i8), scale(), data(3, i8), data(1 / 256, f32), data(-128, i8)]),
           row("no zero points", [level(3, 4), scale(), None, data(1 / 256, f32)], expect=with_zeros(2, 4)), **PLAIN),
    *table("QLinearLeakyRelu",
           row("all levels", [data(np.arange(256), u8), scale(), data(120, u8), scale(), data(100, u8)]),
           row("all levels, i8", [data(np.arange(-128, 128), i8), scale(), data(3, i8), scale(), data(-5, i8)], alpha=0.3),
           row("a steep slope", [data(np.arange(256), u8), scale(), data(120, u8), scale(), data(100, u8)], alpha=2.0),
           row("no zero points", [level(3, 4), scale(), None, scale()], expect=with_zeros(2, 4)), **PLAIN),
    *table("QLinearGlobalAveragePool",
           row("two spatial axes", [level(2, 3, 4, 5), scale(), level(), scale(), level()]),
           row("i8", [level(2, 3, 4, 5, dtype=i8), scale(), level(dtype=i8), scale(), level(dtype=i8)]),
           row("channels last", [level(2, 4, 5, 3), scale(), level(), scale(), level()], channels_last=1),
           row("channels first said", [level(2, 3, 4, 5), scale(), level(), scale(), level()], channels_last=0),
           row("one spatial axis", [level(2, 3, 7), scale(), level(), scale(), level()]),
           row("one element", [level(2, 3, 1, 1), scale(), level(), scale(), level()]), **PLAIN),
    *table("QLinearConcat",
           concatenated("two along axis 1", [(2, 3), (2, 4)], axis=1),
           concatenated("three along the last axis", [(2, 1), (2, 4), (2, 2)], axis=-1),
           concatenated("i8 along axis 0", [(2, 3), (1, 3)], i8, axis=0),
           concatenated("one part", [(2, 3)], axis=0), **PLAIN),
    *table("MatMulIntegerToFloat",
           product("a product", (3, 8), (8, 5)),
           product("i8 and i8", (3, 8), (8, 5), a_type=i8),
           product("u8 and u8", (3, 8), (8, 5), b_type=u8),
           product("no zero points", (3, 8), (8, 5), zeros=(False, False)),
           product("a's zero point alone", (3, 8), (8, 5), zeros=(True, False)),
           product("b's zero point alone", (3, 8), (8, 5), zeros=(False, True)),
           product("a scale a column", (3, 8), (8, 5), b_scale=(5,)),
           product("a bias", (3, 8), (8, 5), bias=True),
           product("batches, a bias", (2, 3, 8), (8, 5), bias=True, b_scale=(5,)),
           product("batches of both", (2, 3, 8), (2, 8, 5)), **PLAIN, **SUMS),
]

TEXT = [
    *table("NGramRepeatBlock",
           row("pairs", [i(3, 9, high=4), f(3, 6)], ngram_size=2),
           row("triples", [i(3, 30, high=3), f(3, 6)], ngram_size=3),
           row("no pair yet", [i(2, 1, high=4), f(2, 6)], ngram_size=2),
           row("longer than the row", [i(2, 3, high=4), f(2, 6)], ngram_size=5),
           row("four in a row of four", [i(2, 4, high=2), f(2, 6)], ngram_size=4), **PLAIN),
]

B, S, T, N, D = 2, 3, 5, 2, 4


def lengths(*values):
    return data(values, i32)


ROTARY = {"rtol": 32, "atol": 32}
ANGLES = [f(10, D // 2, low=-1, high=1), f(10, D // 2, low=-1, high=1)]
ATTENTIONS = [
    *table("RotaryEmbedding",
           row("heads in front", [f(B, N, S, D), i(B, S), *ANGLES]),
           row("one position", [f(B, N, S, D), data([4], i64), *ANGLES]),
           row("heads in the last axis", [f(B, S, N * D), i(B, S), *ANGLES], sizes=SAID),
           row("pairs side by side", [f(B, N, S, D), i(B, S), *ANGLES], interleaved=1),
           row("halves said", [f(B, N, S, D), i(B, S), *ANGLES], interleaved=0),
           row("a part of a head", [f(B, S, N * 6), i(B, S), *ANGLES], rotary_embedding_dim=4, num_heads=2),
           row("a part of a head, pairs", [f(B, S, N * 6), data([3], i64), *ANGLES], rotary_embedding_dim=4, num_heads=2, interleaved=1),
           row("a part of a head, heads in front", [f(B, N, S, 6), i(B, S), *ANGLES], rotary_embedding_dim=4, num_heads=2),
           row("a scale of one", [f(B, N, S, D), i(B, S), *ANGLES], scale=1.0),
           row("a scale, which is not used", [f(B, N, S, D), i(B, S), *ANGLES], scale=0.5),
           row("sequences packed into one", [f(1, N, 12, D), i(1, 12), *ANGLES], is_packed_batching=1),
           row("a lone sequence, not packed", [f(1, N, S, D), i(1, S), *ANGLES], is_packed_batching=0),
           **HALF, **ROTARY),
    *table("RotaryEmbedding",
           row("an open number of heads", [f(B, S, N * D), i(B, S), *ANGLES], sizes=OPEN, refused="number of heads"), **PLAIN),
]

IN, W = 6, 3 * N * D
ATTENTIONS += [
    *table("Attention",
           row("no mask", [f(B, S, IN), f(IN, W), f(W)], num_heads=N),
           row("no bias", [f(B, S, IN), f(IN, W)], num_heads=N, expect=picked(formulas.attention)),
           row("weights that are constants", [f(B, S, IN), constant(f(IN, W)), constant(f(W))], num_heads=N),
           row("a number of keys", [f(B, S, IN), f(IN, W), f(W), lengths(2, 3)], num_heads=N),
           row("ends and starts", [f(B, S, IN), f(IN, W), f(W), lengths(2, 3, 0, 1)], num_heads=N, sizes=SAID),
           row("lengths of keys, places of queries and keys", [f(B, S, IN), f(IN, W), f(W), lengths(2, 3, 0, 3, 6, 0, 3, 6)], num_heads=N, sizes=SAID),
           row("a mask of keys", [f(B, S, IN), f(IN, W), f(W), data([[1, 1, 0], [1, 0, 1]], i32)], num_heads=N),
           row("a mask of queries and keys", [f(B, S, IN), f(IN, W), f(W), i(B, S, S, high=2, dtype=i32)], num_heads=N),
           row("a value for the hidden", [f(B, S, IN), f(IN, W), f(W), data([[1, 1, 0], [1, 0, 1]], i32)], num_heads=N, mask_filter_value=-3.0),
           row("a scale", [f(B, S, IN), f(IN, W), f(W)], num_heads=N, scale=0.7),
           row("unidirectional", [f(B, S, IN), f(IN, W), f(W)], num_heads=N, unidirectional=1),
           row("unidirectional and a mask", [f(B, S, IN), f(IN, W), f(W), data([[1, 1, 0], [1, 0, 1]], i32)], num_heads=N, unidirectional=1),
           row("sizes of q, k and v", [f(B, S, IN), f(IN, 8 + 8 + 12), f(8 + 8 + 12)], num_heads=N, qkv_hidden_sizes=[8, 8, 12]),
           row("an addition to the scores", [f(B, S, IN), f(IN, W), f(W), None, None, f(B, N, S, S)], num_heads=N),
           row("an addition for all batches", [f(B, S, IN), f(IN, W), f(W), None, None, f(1, N, S, S)], num_heads=N),
           row("an addition for all heads", [f(B, S, IN), f(IN, W), f(W), None, None, f(B, 1, S, S)], num_heads=N),
           row("an addition and a mask", [f(B, S, IN), f(IN, W), f(W), lengths(2, 3), None, f(B, N, S, S)], num_heads=N),
           row("the new keys and values", [f(B, S, IN), f(IN, W), f(W)], num_heads=N, outputs=(0, 1)),
           row("a past", [f(B, S, IN), f(IN, W), f(W), None, f(2, B, N, T, D)], num_heads=N, outputs=(0, 1)),
           row("a past, unidirectional", [f(B, S, IN), f(IN, W), f(W), None, f(2, B, N, T, D)], num_heads=N, outputs=(0, 1), unidirectional=1),
           row("a past and a mask", [f(B, S, IN), f(IN, W), f(W), i(B, S + T, high=2, dtype=i32), f(2, B, N, T, D)], num_heads=N, outputs=(0, 1)),
           row("rotation said to be off", [f(B, S, IN), f(IN, W), f(W)], num_heads=N, do_rotary=0),
           row("one memory said to be off", [f(B, S, IN), f(IN, W), f(W)], num_heads=N, past_present_share_buffer=0),
           half=64, **HALF, **SUMS),
    *table("Attention",
           row("a rotation", [f(B, S, IN), f(IN, W), f(W)], num_heads=N, do_rotary=1, refused="do_rotary"),
           row("a rotation of a part", [f(B, S, IN), f(IN, W), f(W)], num_heads=N, do_rotary=1, rotary_embedding_dim=32, refused="do_rotary"),
           row("one memory for past and present", [f(B, S, IN), f(IN, W), f(W), None, f(2, B, N, T, D), None, lengths(2)], num_heads=N,
               past_present_share_buffer=1, refused="past_present_share_buffer"),
           row("a length of the past", [f(B, S, IN), f(IN, W), f(W), None, f(2, B, N, T, D), None, lengths(2)], num_heads=N, refused="input 6"), **PLAIN),
    *table("MultiHeadAttention",
           row("q, k and v", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D)], num_heads=N),
           row("v of another size", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * 6)], num_heads=N),
           row("a bias", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D), f(3 * N * D)], num_heads=N),
           row("a bias, v of another size", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * 6), f(2 * N * D + N * 6)], num_heads=N),
           row("a number of keys", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D), None, lengths(4, 2)], num_heads=N),
           row("a mask of keys", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D), None, i(B, T, high=2, dtype=i32)], num_heads=N),
           row("a mask of queries and keys", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D), None, i(B, S, T, high=2, dtype=i32)], num_heads=N),
           row("a value for the hidden", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D), None, i(B, T, high=2, dtype=i32)], num_heads=N,
               mask_filter_value=-2.0),
           row("a scale", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D)], num_heads=N, scale=0.3),
           row("unidirectional", [f(B, S, N * D), f(B, S, N * D), f(B, S, N * D)], num_heads=N, unidirectional=1),
           row("unidirectional said to be off", [f(B, S, N * D), f(B, S, N * D), f(B, S, N * D)], num_heads=N, unidirectional=0),
           row("an addition to the scores", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D), None, None, f(B, N, S, T)], num_heads=N),
           row("an addition for all", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D), None, None, f(1, 1, S, T)], num_heads=N),
           row("an addition and a mask", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D), None, i(B, T, high=2, dtype=i32), f(B, N, S, T)],
               num_heads=N),
           row("k and v with heads in front", [f(B, S, N * D), f(B, N, T, D), f(B, N, T, D)], num_heads=N),
           row("k and v with heads in front, q's bias", [f(B, S, N * D), f(B, N, T, D), f(B, N, T, D), f(3 * N * D)], num_heads=N),
           row("the new keys and values", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D)], num_heads=N, outputs=(0, 1, 2)),
           row("a past", [f(B, S, N * D), f(B, S, N * D), f(B, S, N * D), None, None, None, f(B, N, T, D), f(B, N, T, D)], num_heads=N,
               outputs=(0, 1, 2)),
           row("a past, unidirectional", [f(B, S, N * D), f(B, S, N * D), f(B, S, N * D), None, None, None, f(B, N, T, D), f(B, N, T, D)],
               num_heads=N, outputs=(0, 1, 2), unidirectional=1),
           row("a past, a bias and a mask", [f(B, S, N * D), f(B, S, N * D), f(B, S, N * D), f(3 * N * D), i(B, S + T, high=2, dtype=i32), None,
                                              f(B, N, T, D), f(B, N, T, D)], num_heads=N, outputs=(0, 1, 2)),
           row("the scores", [f(B, S, N * D), f(B, T, N * D), f(B, T, N * D)], num_heads=N, outputs=(0, 3), types=(f32, f32), dtypes=[f32]),
           half=4, **HALF, **SUMS),
    *table("MultiHeadAttention",
           row("packed", [f(B, S, N, 3, D)], num_heads=N),
           row("k and v packed", [f(B, S, N * D), f(B, T, N, 2, D)], num_heads=N),
           row("packed, a scale", [f(B, S, N, 3, D)], num_heads=N, scale=0.3),
           row("packed, a bias", [f(B, S, N, 3, D), None, None, f(3 * N * D)], num_heads=N),
           row("k and v packed, a bias", [f(B, S, N * D), f(B, T, N, 2, D), None, f(3 * N * D)], num_heads=N),
           expect=picked(formulas.multi_head), half=4, **HALF, **SUMS),
    *table("MultiHeadAttention",
           row("a past in memory of its own", [f(B, S, N * D), f(B, S, N * D), f(B, S, N * D), None, None, None, f(B, N, 8, D), f(B, N, 8, D),
                                               lengths(2)], num_heads=N, outputs=(0, 1, 2), refused="input 8"),
           row("beams", [f(B, S, N * D), f(B, S, N * D), f(B, S, N * D), None, None, None, f(B, N, 8, D), f(B, N, 8, D), lengths(2),
                         i(B, 1, 8, high=1, dtype=i32)], num_heads=N, outputs=(0, 1, 2), refused="input 8"),
           row("beams without a length", [f(B, S, N * D), f(B, S, N * D), f(B, S, N * D), None, None, None, f(B, N, 8, D), f(B, N, 8, D), None,
                                          i(B, 1, 8, high=1, dtype=i32)], num_heads=N, outputs=(0, 1, 2), refused="input 9"), **PLAIN),
]

# GroupQueryAttention: G heads share each of K heads of keys. The rotation needs heads of a multiple of 16.
K, G, E = 2, 2, 16
TURNS = [f(16, E // 2, low=-1, high=1), f(16, E // 2, low=-1, high=1)]


def grouped(name, tokens=S, past=0, total=None, batch=B, packed=False, angles=False, positions=None, addition=None, more=(), **rest):
    """seqlens_k is one less than the number of keys; `total` keys a sequence in a past of `past` rows."""
    total = total or [tokens + past] * batch
    q = [f(batch, tokens, (K * G + 2 * K) * E), None, None] if packed else [f(batch, tokens, K * G * E), *[f(batch, tokens, K * E)] * 2]
    inputs = [*q, *([f(batch, K, past, E)] * 2), lengths(*(n - 1 for n in total)), data(max(total), i32), *(TURNS if angles else [None, None]), positions,
              addition, *more]
    return row(name, inputs, num_heads=K * G, kv_num_heads=K, outputs=rest.pop("outputs", (0, 1, 2)), **rest)


ATTENTIONS += [
    *table("GroupQueryAttention",
           grouped("a prompt"),
           grouped("a prompt, packed", packed=True),
           grouped("a prompt of one batch", batch=1, tokens=6),
           grouped("a token after a past", tokens=1, past=T),
           grouped("a token after a past, packed", tokens=1, past=T, packed=True),
           grouped("tokens after a past", batch=1, tokens=3, past=T),
           grouped("a rotation", angles=True, do_rotary=1),
           grouped("a rotation after a past", tokens=1, past=T, angles=True, do_rotary=1),
           grouped("a rotation of pairs", angles=True, do_rotary=1, rotary_interleaved=1),
           grouped("a rotation at given positions", angles=True, do_rotary=1, positions=data([[3, 4, 5]] * B, i64)),
           grouped("a rotation at given positions after a past", tokens=1, past=T, angles=True, do_rotary=1, positions=data([[7], [2]], i64)),
           grouped("a rotation, packed", angles=True, do_rotary=1, packed=True),
           grouped("a window", tokens=6, local_window_size=2),
           grouped("a window after a past", tokens=1, past=T, local_window_size=3),
           grouped("a window wider than all", local_window_size=100),
           grouped("a cap of the scores", softcap=2.0),
           grouped("a scale", scale=0.1),
           grouped("an addition to the scores", addition=f(B, K * G, S, S)),
           grouped("an addition for all", addition=f(1, 1, S, S)),
           grouped("an addition after a past", tokens=1, past=T, addition=f(B, 1, 1, T + 1)),
           grouped("smooth softmax said to be off", smooth_softmax=0),
           grouped("causal said", causal=1),
           grouped("one after pasts of different lengths", tokens=1, past=T, total=[6, 3], outputs=(0,), expect=first_of(0, 1, 2)),
           grouped("a rotation after pasts of different lengths", tokens=1, past=T, total=[6, 3], outputs=(0,), expect=first_of(0, 1, 2), angles=True, do_rotary=1),
           grouped("smooth softmax", smooth_softmax=1),
           grouped("smooth softmax after a past, a window", tokens=1, past=T, smooth_softmax=1, local_window_size=3),
           grouped("sinks", more=[f(K * G)]),
           grouped("sinks, a cap, smooth softmax said", more=[f(K * G)], smooth_softmax=1, softcap=2.0),
           grouped("sinks after pasts of different lengths", tokens=1, past=T, total=[6, 3], more=[f(K * G)], outputs=(0,), expect=first_of(0, 1, 2)),
           grouped("queries and keys that are normalized", more=[None, None, None, f(E), f(E)], qk_norm_epsilon=0.1, expect=formulas.grouped_normed),
           grouped("queries and keys that are normalized and turned", more=[None, None, None, f(E), f(E)], angles=True, do_rotary=1, tokens=1, past=T,
                   expect=formulas.grouped_normed),
           grouped("types of the cache said to be those of the inputs", k_quant_type="NONE", v_quant_type="NONE", kv_cache_bit_width=0),
           half=4, **HALF, **SUMS),
    *table("GroupQueryAttention",
           grouped("a quantized cache", k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR", kv_cache_bit_width=8, refused="k_quant_type"),
           grouped("scales of a quantized cache", more=[None, f(), f()], refused="scales of a quantized cache"),
           grouped("the scores", outputs=(0, 1, 2), qk_output=1, refused="qk_output"),
           grouped("the scores, not said which", outputs=(0, 1, 2, 3), refused="output 3"),
           grouped("not causal", causal=0, refused="causal"),
           grouped("a cache that slides", local_window_size=2, sliding_window_cache=1, refused="sliding_window_cache"), **PLAIN),
]

CASES = [*ACTIVATIONS, *NORMS, *PRODUCTS, *QUANTIZED_PRODUCTS, *QUANTIZED, *TEXT, *ATTENTIONS]
