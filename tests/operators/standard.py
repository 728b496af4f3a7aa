# SPDX-License-Identifier: Apache-2.0
"""Cases of the standard's operators beside those that the onnx package carries: rows of the table and attributes that those do not
meet, against ONNX Runtime, the package's own evaluator or a formula; and the operators that draw, whose results are judged."""

import math

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper

import formulas
from cases import b, by_reference, constant, data, drawn, f, f16, f32, f64, factor, i, i32, i64, i8, row, table, u8
from first import formula
from formulas import picked

SUMS = {"rtol": 64, "atol": 64}
NEW = {"version": 21}

# --- normalisation and reductions -------------------------------------------------------------------------------------
REDUCTIONS = ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSumSquare"]
NORMS = [
    *table("SimplifiedLayerNormalization",
           row("three axes", [f(2, 3, 8), f(8)]), row("a large epsilon", [f(2, 3, 8), f(8)], epsilon=0.5), row("the axis said", [f(2, 3, 8), f(8)], axis=-1),
           row("two axes", [f(5, 8), f(8)], stash_type=1), row("the deviation", [f(2, 3, 8), f(8)], outputs=(0, 1)), **NEW, **SUMS),
    *table("LayerNormalization", row("sums in f32", [f(2, 3, 8), f(8), f(8)], stash_type=1), version=17, dtypes=[f32, f16], half=4, **SUMS),
    *table("RMSNormalization", row("sums in f32", [f(2, 3, 8), f(8)], stash_type=1), version=23, expect=picked(formulas.rms_norm), dtypes=[f32, f16], half=4,
           **SUMS),
    *table("GroupNormalization", row("sums in f32", [f(2, 4, 3), f(4), f(4)], num_groups=2, stash_type=1), **NEW, **SUMS),
    *table("MeanVarianceNormalization",
           row("axes unsaid", [f(2, 3, 4, 5)]), row("other axes", [f(2, 3, 4, 5)], axes=[0, 2]), row("one axis", [f(2, 3, 4)], axes=[1]), version=13, **SUMS),
    *(case for op in REDUCTIONS for case in table(
        op, row("no axes reduce nothing", [f(2, 3, low=0.1), constant(data([], i64))], noop_with_empty_axes=1),
        row("no axes reduce all", [f(2, 3, low=0.1), constant(data([], i64))], noop_with_empty_axes=0),
        row("axes given", [f(2, 3, low=0.1), constant(data([0], i64))], noop_with_empty_axes=1, keepdims=0), version=18, **SUMS)),
]

# --- activations: what an attribute is when it is left out, to the last places ------------------------------------------
ALPHA, GAMMA = np.float64(1.67326319217681884765625), np.float64(1.05070102214813232421875)
DEFAULTS = {
    "Selu": (6, lambda x: GAMMA * np.where(x > 0, x, ALPHA * np.expm1(x))),
    "Elu": (6, lambda x: np.where(x < 0, np.expm1(x), x)),
    "Celu": (12, lambda x: np.maximum(0, x) + np.minimum(0, np.expm1(x))),
    "HardSigmoid": (6, lambda x: np.clip(np.float64(np.float32(0.2)) * x + 0.5, 0, 1)),
    "HardSwish": (14, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "LeakyRelu": (16, lambda x: np.where(x < 0, np.float64(np.float32(0.01)) * x, x)),
    "Mish": (18, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "Softplus": (1, lambda x: np.log1p(np.exp(x))),
    "Softsign": (1, lambda x: x / (1 + np.abs(x))),
    "ThresholdedRelu": (10, lambda x: np.where(x > 1, x, 0)),
    "Gelu": (20, lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))),
}
ACTIVATIONS = [case for op, (version, function) in DEFAULTS.items()
               for case in table(op, row("attributes left out", [f(3, 7)], expect=formula(function)), version=version)]

# --- windows ----------------------------------------------------------------------------------------------------------
WINDOWS = [
    *table("Col2Im",
           row("blocks that make up the image", [f(2, 18, 8), constant(data([4, 12])), constant(data([2, 3]))], strides=[2, 3]),
           row("blocks that leave a part of it", [f(2, 18, 8), constant(data([5, 12])), constant(data([2, 3]))], strides=[2, 3]),
           row("blocks of one axis", [f(1, 6, 4), constant(data([12])), constant(data([3]))], strides=[3]), version=18),
    *table("Gather",
           row("all of an axis, on a grid", [f(2, 12, 3), constant(data([[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]]))], axis=1),
           row("all of an axis, on a grid of three axes", [f(2, 12), constant(data([[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]))], axis=1),
           row("all of an axis, on a grid but for two", [f(2, 12, 3), constant(data([[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 11, 7]]))], axis=1),
           row("a grid that meets some twice", [f(12, 3), constant(data([[0, 2, 4, 6], [1, 3, 5, 7], [2, 4, 6, 8]]))], axis=0), version=13),
    *table("GlobalLpPool", *(row(f"p {p}", [f(2, 3, 4, 5)], p=p) for p in (1, 2, 3)), row("p unsaid", [f(2, 3, 4, 5)]), row("one spatial axis", [f(2, 3, 7)], p=2),
           version=2, **SUMS),
    *table("MaxRoiPool",
           row("whole sizes", [f(2, 3, 8, 8), data([[0, 0, 0, 7, 7], [1, 2, 1, 6, 5]], f32)], pooled_shape=[2, 2]),
           row("a scale", [f(2, 3, 8, 8), data([[0, 0, 0, 15, 15], [1, 4, 2, 12, 10]], f32)], pooled_shape=[3, 2], spatial_scale=0.5),
           row("smaller than the bins", [f(1, 2, 8, 8), data([[0, 1, 1, 2, 2]], f32)], pooled_shape=[4, 4], spatial_scale=1.0),
           row("outside", [f(1, 2, 8, 8), data([[0, 6, 6, 12, 12]], f32)], pooled_shape=[3, 3]), version=1),
    *table("LpPool",
           *(row(f"p {p}, sizes rounded {'up' if up else 'down'}", [f(1, 2, 7, 7)], kernel_shape=[3, 3], strides=[2, 3], ceil_mode=up, p=p) for p in (1, 2) for up in (0, 1)),
           version=18, **SUMS),
    *(case for op in ("MaxPool", "AveragePool", "LpPool") for case in table(
        op, *(row(f"{taps} x {taps} taps of {channels} channels", [f(2, channels, 13, 14)], kernel_shape=[taps, taps], strides=[2, 1], pads=[1] * 4)
              for taps, channels in ((3, 37), (8, 64), (9, 70))), version=18 if op == "LpPool" else 12, **SUMS)),
    *table("LpPool", row("p 3, of more taps than are held at once", [f(1, 5, 12, 12)], kernel_shape=[9, 9], p=3), version=18, **SUMS),
    *table("MaxUnpool",
           row("padding", [data([[[[1, 2], [3, 4]]]], f32), data([[[[0, 2], [6, 8]]]], i64)], kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1]), version=11),
    *table("Conv",
           row("patches", [f(2, 3, 16, 24), f(5, 3, 8, 8), f(5)], kernel_shape=[8, 8], strides=[8, 8]),
           row("patches without a bias, of other sizes down than along", [f(1, 1, 24, 32), f(4, 1, 12, 16)], kernel_shape=[12, 16], strides=[12, 16]),
           row("patches of a line", [f(2, 2, 256), f(3, 2, 64), f(3)], kernel_shape=[64], strides=[64]),
           row("patches of a space", [f(1, 2, 4, 8, 12), f(3, 2, 4, 4, 6), f(3)], kernel_shape=[4, 4, 6], strides=[4, 4, 6]),
           row("patches that leave lines out", [f(1, 3, 19, 16), f(5, 3, 8, 8), f(5)], kernel_shape=[8, 8], strides=[8, 8]),
           row("patches with padding", [f(1, 3, 14, 16), f(5, 3, 8, 8), f(5)], kernel_shape=[8, 8], strides=[8, 8], pads=[1, 0, 1, 0]),
           row("patches in groups", [f(1, 4, 16, 16), f(6, 2, 8, 8), f(6)], kernel_shape=[8, 8], strides=[8, 8], group=2), version=11, **SUMS),
    *table("ConvInteger",
           *(row(name, [i(2, 4, 7, 6, high=256, dtype=u8), i(4, channels, 3, 3, high=256, dtype=u8), data(12, u8), data(130, u8)], kernel_shape=[3, 3], **rest)
             for name, channels, rest in (("strides", 4, {"strides": [2, 1]}), ("dilations", 4, {"dilations": [2, 2]}), ("groups", 2, {"group": 2}),
                                          ("padding below", 4, {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
                                          ("padding above", 4, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}), ("valid", 4, {"auto_pad": "VALID"}))), version=10),
    *table("QLinearConv",
           *(row(name, [i(2, 4, 7, 6, high=256, dtype=u8), data(0.02, f32), data(120, u8), factor(4, channels, 3, 3, dtype=i8), data(0.01, f32), data(0, i8),
                        data(0.125, f32), data(100, u8), bias], kernel_shape=[3, 3], **rest)
             for name, channels, bias, rest in (
                 ("strides", 4, None, {"strides": [2, 1]}), ("dilations", 4, None, {"dilations": [2, 2]}), ("groups", 2, None, {"group": 2}),
                 ("pads", 4, None, {"pads": [1, 0, 2, 1]}), ("a bias", 4, i(4, low=-500, high=500, dtype=i32), {}),
                 ("padding below", 4, None, {"auto_pad": "SAME_LOWER", "strides": [2, 2]}), ("padding above", 4, None, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}))),
           version=10),
    *table("DeformConv",
           row("strides", [f(1, 2, 5, 5), f(3, 2, 2, 2), f(1, 8, 2, 2, low=-1, high=1)], kernel_shape=[2, 2], strides=[2, 2]),
           row("dilations", [f(1, 2, 5, 5), f(3, 2, 2, 2), f(1, 8, 3, 3, low=-1, high=1)], kernel_shape=[2, 2], dilations=[2, 2]),
           row("groups", [f(1, 4, 4, 4), f(4, 2, 2, 2), f(1, 8, 3, 3, low=-1, high=1), f(4)], kernel_shape=[2, 2], group=2),
           row("groups of both and a mask", [f(1, 4, 4, 4), f(4, 2, 2, 2), f(1, 16, 3, 3, low=-1, high=1), f(4), f(1, 8, 3, 3, low=0, high=1)], kernel_shape=[2, 2], group=2,
               offset_group=2), version=19, **SUMS),
]

# --- signal -----------------------------------------------------------------------------------------------------------
COSINES = {"BlackmanWindow": (0.42, -0.5, 0.08), "HammingWindow": (25 / 46, -21 / 46), "HannWindow": (0.5, -0.5)}


def window(op):
    """The sum of cosines, whose coefficients ONNX Runtime rounds to f32."""

    def expect(case, inputs):
        size, attributes = int(inputs[0]), case.attributes
        angle = 2 * np.pi * np.arange(size) / (size if attributes["periodic"] else size - 1)
        y = sum(c * np.cos(k * angle) for k, c in enumerate(COSINES[op]))
        return [y.astype(helper.tensor_dtype_to_np_dtype(attributes["output_datatype"]))]

    return expect


SIGNAL = [
    *(case for op in ("BlackmanWindow", "HammingWindow", "HannWindow") for case in table(
        op, *(row(f"of type {dtype}, {'periodic' if periodic else 'symmetric'}", [constant(data(10, i64))], output_datatype=dtype, periodic=periodic)
              for dtype in (TensorProto.FLOAT, TensorProto.DOUBLE) for periodic in (0, 1)), version=17, atol=16, expect=window(op))),
    *table("MelWeightMatrix",
           *(row(f"of type {dtype}", [constant(data(4, i64)), constant(data(16, i64)), constant(data(8192, i64)), constant(data(0.0, f32)), constant(data(4000.0, f32))],
                 output_datatype=dtype) for dtype in (TensorProto.FLOAT, TensorProto.DOUBLE)), version=17, **SUMS),
    *table("DFT",
           row("shorter", [f(1, 8, 1), constant(data(6, i64))], axis=1), row("longer", [f(1, 8, 1), constant(data(11, i64))], axis=1),
           row("longer, complex", [f(1, 8, 2), constant(data(11, i64))], axis=1), row("one side", [f(1, 8, 1), constant(data(6, i64))], axis=1, onesided=1), version=17,
           **SUMS),
    *table("STFT",
           *(row(f"{'one side' if side else 'both sides'}", [f(1, 32, 1), constant(data(4, i64)), f(8), constant(data(8, i64))], onesided=side) for side in (0, 1)),
           version=17, **SUMS),
]

# --- recurrent --------------------------------------------------------------------------------------------------------
T, B, I, H = 4, 3, 5, 2
LENGTHS = data([4, 2, 3], i32)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {
    "Affine": (0.5, 0.1), "LeakyRelu": (0.2, None), "ThresholdedRelu": (0.3, None), "ScaledTanh": (0.7, 1.2), "HardSigmoid": (0.3, 0.4), "Elu": (0.5, None),
    "Softsign": (None, None), "Softplus": (None, None), "Relu": (None, None), "Sigmoid": (None, None), "Tanh": (None, None),
}


def recurrent(op, name, directions=1, lengths=None, state=False, peepholes=False, constants=False, **rest):
    rows = GATES[op] * H
    inputs = [f(T, B, I), f(directions, rows, I), f(directions, rows, H), f(directions, 2 * rows), lengths, f(directions, B, H) if state else None]
    if op == "LSTM":
        inputs += [f(directions, B, H) if state else None, f(directions, 3 * H) if peepholes else None]
    if constants:
        inputs[1:4] = map(constant, inputs[1:4])
    return row(name, inputs, hidden_size=H, outputs=rest.pop("outputs", (0, 1, 2) if op == "LSTM" else (0, 1)), **rest)


def activated(op, name, **rest):
    """A row whose last activation is this one, with its alpha and beta."""
    alpha, beta = FUNCTIONS[name]
    first = {"RNN": [], "GRU": ["Sigmoid"], "LSTM": ["Sigmoid", "Tanh"]}[op]
    if alpha is not None:
        rest["activation_alpha"] = [alpha]
    if beta is not None:
        rest["activation_beta"] = [beta]
    return recurrent(op, f"activation {name}", activations=[*first, name], **rest)


def recurrent_rows(op):
    rows = [activated(op, name) for name in FUNCTIONS]
    for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
        rows.append(recurrent(op, f"{direction}, lengths and a state", count, LENGTHS, True, direction=direction))
        rows.append(recurrent(op, f"{direction}, weights that are constants", count, constants=True, direction=direction))
    kinds = {"RNN": ["Relu", "Tanh"], "GRU": ["HardSigmoid", "Tanh", "Sigmoid", "Relu"], "LSTM": ["HardSigmoid", "Tanh", "Relu", "Sigmoid", "Relu", "Tanh"]}[op]
    rest = {"activation_alpha": [0.3], "activation_beta": [0.4]} if op != "RNN" else {}
    rows.append(recurrent(op, "activations of each direction", 2, direction="bidirectional", activations=kinds, **rest))
    rows.append(recurrent(op, "clip", clip=0.5))
    rows.append(recurrent(op, "clip, lengths and a state", 1, LENGTHS, True, clip=0.25))
    rows.append(recurrent(op, "the last state alone", outputs=(1,)))
    if op == "GRU":
        rows += [recurrent(op, "the reset after the product", linear_before_reset=1), recurrent(op, "the reset after the product, both ways", 2, LENGTHS, True,
                                                                                               linear_before_reset=1, direction="bidirectional")]
    if op == "LSTM":
        rows += [recurrent(op, "peepholes", peepholes=True), recurrent(op, "peepholes, lengths and a state", 2, LENGTHS, True, True, direction="bidirectional"),
                 recurrent(op, "forget is one less input", input_forget=1), recurrent(op, "forget is one less input, peepholes", peepholes=True, input_forget=1)]
    return rows


RECURRENT = [case for op in GATES for case in table(op, *recurrent_rows(op), version=14, rtol=128, atol=32)]

# --- constants, quantization, text ------------------------------------------------------------------------------------
def flex_attention(case, inputs):
    y, _ = formulas.attend(*formulas.wide(inputs), None)
    batch, heads, queries = inputs[0].shape[:3]
    return [y.reshape(batch, queries, heads, -1).transpose(0, 2, 1, 3).astype(inputs[0].dtype)]


SPARSE = helper.make_sparse_tensor(numpy_helper.from_array(np.array([1.5, -2.0], f32), "values"), numpy_helper.from_array(np.array([1, 5], i64)), [2, 3])
OTHERS = [
    *table("Constant",
           row("floats", [], value_floats=[0.5, -1.0]), row("a string", [], value_string="text"), row("strings", [], value_strings=["a", "", "longer"]),
           row("sparse", [], sparse_value=SPARSE, expect=lambda case, inputs: [np.array([[0, 1.5, 0], [0, 0, -2]], f32)]), version=13),
    *table("QuantizeLinear",
           *(row(f"to float8, {'saturated' if saturate else 'not saturated'}", [f(5, 40, low=-600, high=600), data(1.0, f32), data(0, ml_dtypes.float8_e4m3fn)], saturate=saturate,
                 expect=by_reference) for saturate in (0, 1)),
           row("divided in f32", [f(3, 4), data(0.0625, f16)], precision=TensorProto.FLOAT, output_dtype=TensorProto.INT8,
               expect=lambda case, x: [np.clip(np.rint(x[0] / f32.type(x[1])), -128, 127).astype(i8)]), version=23),
    *table("DynamicQuantizeLinear",
           row("a scalar", [f()]), row("one number below 0", [data([[-5]], f32)]), row("one number above 0", [data([5], f32)]),
           row("no numbers", [f(3, 0)]), row("equal numbers", [data([2.5] * 12, f32)]), row("equal numbers below 0", [data([-2.5] * 12, f32)]),
           row("zeros", [data([0.0, -0.0, 0.0], f32)]), row("halves go to even", [data([-1, 0, 0.5, 1.5, 2.5, -0.5, 254], f32)]),
           row("a zero point at a half", [data([-126.5, 128.5, 0.5, 1.5], f32)]), row("the largest range", [data([3.4e38, -1e30, 1], f32)]),
           row("infinity", [data([1, np.inf, -2], f32)]),
           row("a range too small for a scale", [data([1e-45, 0, -1e-45], f32)], expect=lambda case, x: [np.zeros(3, u8), f32.type(1), u8.type(0)]),
           version=11, outputs=(0, 1, 2), rtol=0, atol=0),
    *table("DynamicQuantizeLinear", row("NaN shows in the scale", [data([1, np.nan, -2], f32)], expect=lambda case, x: [f32.type(np.nan)]), version=11, outputs=(1,),
           types=(f32,)),
    *table("DequantizeLinear",
           row("to f16", [i(3, 4, high=256, dtype=u8), data(0.0625, f32), data(3, u8)], output_dtype=TensorProto.FLOAT16,
               expect=lambda case, x: [((x[0].astype(f32) - 3) * x[1]).astype(f16)]), version=23),
    *table("StringNormalizer",
           row("a language", [data(["Monday", "tuesday", "x"], object)], case_change_action="UPPER", is_case_sensitive=1, stopwords=["x"], locale="en_US",
               expect=lambda case, inputs: [np.array(["MONDAY", "TUESDAY"], object)]), version=10),
    *table("TfIdfVectorizer",
           *(row(f"{mode} of words", [data([["a", "b", "a", "c", "b"], ["b", "b", "c", "a", "d"]], object)], mode=mode, max_gram_length=2, min_gram_length=1, max_skip_count=1,
                 ngram_counts=[0, 3], ngram_indexes=[0, 2, 1, 3, 4], pool_strings=["a", "b", "c", "a", "b", "b", "c"], **rest)
             for mode, rest in (("TF", {}), ("IDF", {"weights": [0.5, 2.0, 3.0, 4.0, 0.25]}), ("TFIDF", {"weights": [0.5, 2.0, 3.0, 4.0, 0.25]}))),
           row("TFIDF of numbers", [i(2, 9, high=4)], mode="TFIDF", max_gram_length=2, min_gram_length=1, max_skip_count=0, ngram_counts=[0, 3], ngram_indexes=[0, 2, 1, 3, 4],
               pool_int64s=[0, 1, 2, 0, 1, 1, 2], weights=[0.5, 2.0, 3.0, 4.0, 0.25]), version=9),
    *table("TensorScatter",
           *(row(f"axis {axis}, {mode}", [f(2, 3, 6, 4), f(2, 3, 2, 4) if axis == -2 else f(2, 3, 6, 2), data([1, 2], i64)], axis=axis, mode=mode)
             for axis in (-2, 3) for mode in ("linear", "circular")), version=24, expect=by_reference),
    *table("Range",
           row("steps in f32", [data(1, f32), data(5, f32), data(0.5, f32)], stash_type=1, expect=lambda case, x: [np.arange(1, 5, 0.5, f32)]), version=27),
    *table("CastLike",
           row("to f16", [f(3, 4), data(0, f16)], round_mode="up", expect=lambda case, x: [x[0].astype(f16)]), version=25),
    *table("LinearAttention",
           row("pieces of 2", [f(2, 5, 8), f(2, 5, 8), f(2, 5, 8), None, f(2, 5, 8, low=-1, high=0), f(2, 5, 2, low=0, high=1)], chunk_size=2, q_num_heads=2, kv_num_heads=2,
               outputs=(0, 1), expect=by_reference), version=27, **SUMS),
    *table("FlexAttention",
           *(row(f"softmax in {name}", [f(2, 2, 4, 8), f(2, 2, 6, 8), f(2, 2, 6, 8)], softmax_precision=kind, sizes=("said",), expect=flex_attention)
             for name, kind in (("f32", TensorProto.FLOAT), ("f64", TensorProto.DOUBLE))), domain="ai.onnx.preview", **SUMS),
    *table("Adam",
           row("a norm after the step", [data(0.1, f32), data(3, i64), f(5), f(5), f(5), f(5, low=0)], norm_coefficient=0.01, norm_coefficient_post=0.2, outputs=(0, 1, 2),
               expect=lambda case, inputs: [y.astype(f32) for y in by_reference(case, inputs)]), domain="ai.onnx.preview.training", **SUMS),
    *table("Gradient",
           row("of what x itself is", [f(3, 4), f(3, 4)], xs=["x0"], zs=["x1"], y="x0", expect=lambda case, inputs: [np.ones((3, 4), f32)]),
           domain="ai.onnx.preview.training"),
]

# --- Scan -------------------------------------------------------------------------------------------------------------
def scan_body(shape):
    """A running sum: state' = state + x, y = state' * 2."""
    value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    nodes = [helper.make_node("Add", ["state", "x"], ["sum"]), helper.make_node("Identity", ["sum"], ["next"]), helper.make_node("Add", ["sum", "sum"], ["y"])]
    return helper.make_graph(nodes, "body", [value("state"), value("x")], [value("next"), value("y")])


def scanned(name, axis=0, back=0, out_axis=0, out_back=0):
    shape = [3, 2]
    shape.insert(axis, 5)
    return row(name, [f(3, 2), f(*shape)], outputs=(0, 1), body=scan_body([3, 2]), num_scan_inputs=1, scan_input_axes=[axis], scan_input_directions=[back],
               scan_output_axes=[out_axis], scan_output_directions=[out_back])


SCANS = table("Scan", scanned("first axes"), scanned("a later input axis", axis=1), scanned("the last axes", axis=2, out_axis=2), scanned("backwards", back=1),
              scanned("written backwards", out_back=1), scanned("all of it", 1, 1, 2, 1), scanned("a negative output axis", out_axis=-1), version=11, atol=16)



def in_batch(name, lengths, batch=3, back=0, **rest):
    """Scan-8, whose sequences end at different places."""
    return row(name, [data(lengths, i64), f(batch, 2), f(batch, 5, 2), f(batch, 5, 2)], outputs=(0, 1), body=scan_body_of_two([2]), num_scan_inputs=2,
               directions=[back, 0], **rest)


def running_sums(case, inputs):
    """ONNX Runtime takes no length of 0."""
    lengths, state, x, z = inputs
    state, y = state.copy(), np.zeros_like(x)
    for k, length in enumerate(lengths):
        for t in range(length):
            state[k] += x[k, t]
            y[k, t] = state[k] + z[k, t]
    return [state, y]


def scan_body_of_two(shape):
    body = scan_body(shape)
    body.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, shape))
    body.node[2].input[1] = "z"  # y = sum + z
    return body


SCANS += table("Scan", in_batch("sequences of a batch that end early", [5, 2, 3]), in_batch("backwards from their ends", [4, 1, 5], back=1),
               in_batch("a sequence of nothing", [0, 5, 0], expect=running_sums, sizes=("said",)), in_batch("sequences that are all short", [2, 2, 2]), version=8, atol=16)

# --- LRN --------------------------------------------------------------------------------------------------------------
# Windows that are added element by element, windows of powers of two put together, and windows that reach beyond all channels.
def lrn(case, inputs):
    """ONNX Runtime takes odd windows alone, and four axes."""
    x, a = inputs[0].astype(f64), case.attributes
    before, after = (a["size"] - 1) // 2, a["size"] // 2
    sums = [np.square(x[:, max(0, c - before) : c + after + 1]).sum(1) for c in range(x.shape[1])]
    sums = np.stack(sums, 1) if sums else np.zeros_like(x)
    return [(x / (a["bias"] + a["alpha"] / a["size"] * sums) ** a["beta"]).astype(f32)]


SCANS += table("LRN", *(row(f"a window of {size} over {channels} channels", [f(2, channels, 3)], size=size, alpha=0.5, beta=0.6, bias=1.5, expect=lrn)
                        for size, channels in ((1, 4), (2, 5), (5, 5), (16, 40), (17, 40), (24, 40), (63, 40), (64, 100), (600, 700), (1001, 30), (3, 0))),
               version=13, **SUMS)

# --- what is drawn ----------------------------------------------------------------------------------------------------
DEVIATIONS = 6  # a fair draw is further from its mean once in 5e8 runs; the draws are the same in each run


def far(what, mean, expected, deviation, count):
    bound = DEVIATIONS * deviation / math.sqrt(count)
    return None if abs(mean - expected) <= bound else f"{what} is {mean:.6f}, expected {expected:.6f} within {bound:.6f}"


def uniform(low, high, dtype, shape):
    """Mean, variance, range, and the shares of eight parts."""

    def judge(outputs):
        (y,), count = outputs, math.prod(shape)
        if y.dtype != dtype or y.shape != tuple(shape):
            return f"{y.dtype}{list(y.shape)}, expected {np.dtype(dtype)}{list(shape)}"
        z = (y.astype(f64) - low) / (high - low)
        if z.min() < 0 or z.max() > 1 or len(np.unique(y)) < min(count, 500) // 2:
            return "out of range, or few different numbers"
        shares = np.histogram(z, 8, (0, 1))[0] / count
        return (far("the mean", z.mean(), 0.5, math.sqrt(1 / 12), count) or far("the mean square", (z**2).mean(), 1 / 3, math.sqrt(4 / 45), count)
                or next(filter(None, (far("a share", share, 1 / 8, math.sqrt(7) / 8, count) for share in shares)), None)
                or far("the product of neighbours", ((z[..., 1:] - 0.5) * (z[..., :-1] - 0.5)).mean(), 0, 1 / 12, z[..., 1:].size))

    return judge


def normal(mean, scale, dtype, shape):
    def judge(outputs):
        (y,), count = outputs, math.prod(shape)
        if y.dtype != dtype or y.shape != tuple(shape):
            return f"{y.dtype}{list(y.shape)}, expected {np.dtype(dtype)}{list(shape)}"
        z = (y.astype(f64) - mean) / scale
        inside = 0.6826894921370859  # between -1 and 1
        return (far("the mean", z.mean(), 0, 1, count) or far("the variance", (z**2).mean(), 1, math.sqrt(2), count)
                or far("the third moment", (z**3).mean(), 0, math.sqrt(15), count) or far("the fourth moment", (z**4).mean(), 3, math.sqrt(96), count)
                or far("the share inside", (abs(z) < 1).mean(), inside, math.sqrt(inside * (1 - inside)), count)
                or far("the product of neighbours", (z[..., 1:] * z[..., :-1]).mean(), 0, 1, z[..., 1:].size))

    return judge


def multinomial(weights, dtype, samples):
    """The share of each class in each row."""
    shares = np.array(weights) / np.sum(weights, 1, keepdims=True)

    def judge(outputs):
        (y,) = outputs
        if y.dtype != dtype or y.shape != (len(weights), samples):
            return f"{y.dtype}{list(y.shape)}"
        for at, row_shares in enumerate(shares):
            for k, share in enumerate(row_shares):
                found = far(f"the share of class {k} in row {at}", (y[at] == k).mean(), share, math.sqrt(share * (1 - share)), samples)
                if found:
                    return found
        return None

    return judge


def dropped(ratio, scaled=True):
    """x is all ones: 1 / (1 - ratio) where it is kept, else 0; the mask, if given, says which."""

    def judge(outputs):
        y, kept = outputs[0], outputs[0] != 0
        if not np.allclose(y[kept], 1 / (1 - ratio), rtol=1e-6):
            return "what is kept is not scaled by 1 / (1 - ratio)"
        if len(outputs) > 1 and not np.array_equal(outputs[1].astype(bool), kept):
            return "the mask is not that of the result"
        return far("the share kept", kept.mean(), 1 - ratio, math.sqrt(ratio * (1 - ratio)), y.size)

    return judge


def said(values):
    """Drawn outputs are not compared, but their types and shapes are."""
    return lambda case, inputs: values


MANY = [40, 500]
WEIGHTS = [[0.1, 0.2, 0.3, 0.4], [0.7, 0.0, 0.25, 0.05]]
ONES = data(np.ones(MANY), f32)
DRAWN = [
    *(case for version in (1, 22) for case in table(
           "RandomUniform",
           row("the range unsaid", [], shape=MANY, judge=uniform(0, 1, f32, MANY), expect=said([np.zeros(MANY, f32)])),
           row("another range", [], shape=MANY, low=-3.0, high=5.0, judge=uniform(-3, 5, f32, MANY), expect=said([np.zeros(MANY, f32)])),
           row("a seed", [], shape=MANY, seed=7.0, judge=uniform(0, 1, f32, MANY), expect=said([np.zeros(MANY, f32)])),
           row("f64", [], shape=MANY, dtype=TensorProto.DOUBLE, judge=uniform(0, 1, f64, MANY), expect=said([np.zeros(MANY, f64)])),
           row("f16", [], shape=MANY, dtype=TensorProto.FLOAT16, judge=uniform(0, 1, f16, MANY), expect=said([np.zeros(MANY, f16)])), version=version)),
    *(case for version in (1, 22) for case in table(
           "RandomUniformLike",
           row("the range unsaid", [ONES], judge=uniform(0, 1, f32, MANY), expect=said([np.zeros(MANY, f32)])),
           row("another range", [ONES], low=2.0, high=3.0, seed=1.0, judge=uniform(2, 3, f32, MANY), expect=said([np.zeros(MANY, f32)])),
           row("f64 like f32", [ONES], dtype=TensorProto.DOUBLE, judge=uniform(0, 1, f64, MANY), expect=said([np.zeros(MANY, f64)])), version=version)),
    *(case for version in (1, 22) for case in table(
           "RandomNormal",
           row("mean and scale unsaid", [], shape=MANY, judge=normal(0, 1, f32, MANY), expect=said([np.zeros(MANY, f32)])),
           row("another mean and scale", [], shape=MANY, mean=-2.0, scale=0.25, judge=normal(-2, 0.25, f32, MANY), expect=said([np.zeros(MANY, f32)])),
           row("a seed", [], shape=MANY, seed=7.0, judge=normal(0, 1, f32, MANY), expect=said([np.zeros(MANY, f32)])),
           row("f64", [], shape=MANY, dtype=TensorProto.DOUBLE, judge=normal(0, 1, f64, MANY), expect=said([np.zeros(MANY, f64)])), version=version)),
    *(case for version in (1, 22) for case in table(
           "RandomNormalLike",
           row("mean and scale unsaid", [ONES], judge=normal(0, 1, f32, MANY), expect=said([np.zeros(MANY, f32)])),
           row("another mean and scale", [ONES], mean=3.0, scale=2.0, seed=2.0, judge=normal(3, 2, f32, MANY), expect=said([np.zeros(MANY, f32)])),
           row("f64 like f32", [ONES], dtype=TensorProto.DOUBLE, judge=normal(0, 1, f64, MANY), expect=said([np.zeros(MANY, f64)])), version=version)),
    *(case for version in (7, 22) for case in table(
           "Multinomial",
           *(row(f"{kind}, a seed {'said' if rest else 'unsaid'}", [data(np.log(np.maximum(WEIGHTS, 1e-30)), f32)], sample_size=4000, dtype=onnx_type, judge=multinomial(WEIGHTS, kind, 4000),
                 expect=said([np.zeros((2, 4000), kind)]), **rest) for kind, onnx_type in ((i32, TensorProto.INT32), (i64, TensorProto.INT64))
             for rest in ({}, {"seed": 5.0})), version=version)),
    *table("Bernoulli",
           row("a share", [data(np.full(MANY, 0.3), f32)], seed=3.0, judge=lambda y: far("the share", y[0].mean(), 0.3, math.sqrt(0.21), y[0].size),
               expect=said([np.zeros(MANY, f32)])), version=15),
    *table("Dropout",
           row("training", [ONES, constant(data(0.25, f32)), constant(data(True))], outputs=(0, 1), judge=dropped(0.25), expect=said([np.zeros(MANY, f32), np.zeros(MANY, bool)])),
           row("training, known when it runs", [ONES, data(0.25, f32), data(True)], outputs=(0, 1), seed=3, judge=dropped(0.25),
               expect=said([np.zeros(MANY, f32), np.zeros(MANY, bool)])), version=13),
    *table("Dropout",
           row("training", [ONES], ratio=0.25, judge=dropped(0.25), expect=said([np.zeros(MANY, f32)])),
           row("a test", [f(3, 4)], is_test=1, ratio=0.25, expect=lambda case, inputs: inputs), version=6),
]

CASES = [*NORMS, *ACTIVATIONS, *WINDOWS, *SIGNAL, *RECURRENT, *OTHERS, *SCANS, *DRAWN]
