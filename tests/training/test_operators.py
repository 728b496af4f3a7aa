#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of every operator against central differences in f64.

    test_operators.py BUILD CASES OPERATORS [--match REGEX]

BUILD holds the library and operator_rows; CASES are the standard's cases (scripts/write_cases.py), OPERATORS those that tests/operators/run.py
has written; some stand here (OWN). Of a case's model in f64 the weighted sum of its results is differentiated with respect to all inputs of
floats, a little beside the case's own numbers, which often lie on kinks. Along random directions, input by input, this must be what
differences say, and in one case an operator so must the derivatives of the gradients. Where that cannot be, a table says why, and what it
says must be true. --match runs only the cases of which "OPERATOR NAME" matches, and leaves out what concerns all of them. Cases written
out as functions (_expanded) are left out: they are other operators of these, and so are networks (light)."""

import argparse
import concurrent.futures
import ctypes
import os
import re
import subprocess
import sys
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / "bench/gpu"), str(ROOT / "tests/operators")]
import session  # noqa: E402

FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
TRAINING = "ai.onnx.preview.training"


# --- the model in f64 ------------------------------------------------------------------------------------------------
def wide_tensor(tensor):
    if tensor.data_type == FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))


def wide_type(kind):
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        wide_type(getattr(kind, which).elem_type)
    elif which == "tensor_type" and kind.tensor_type.elem_type == FLOAT:
        kind.tensor_type.elem_type = DOUBLE


def wide_node(node):
    for a in node.attribute:
        if a.type == a.TENSOR:
            wide_tensor(a.t)
        elif a.type == a.GRAPH:
            wide_graph(a.g)
        elif a.name in ("to", "dtype") and a.i == FLOAT:
            a.i = DOUBLE
        elif a.name in ("value_float", "value_floats"):
            numbers = np.array(a.f if a.name == "value_float" else a.floats, np.float64)
            a.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(numbers)))


def wide_graph(graph):
    for value in [*graph.input, *graph.output, *graph.value_info]:
        wide_type(value.type)
    for tensor in graph.initializer:
        wide_tensor(tensor)
    for node in graph.node:
        wide_node(node)


def read(path, declared, kind):
    """An input as it is fed: an array, or the bytes of a message."""
    data = path.read_bytes()
    which = declared.WhichOneof("value")
    if which == "tensor_type":
        if declared.tensor_type.elem_type == TensorProto.STRING:
            return data
        array = numpy_helper.to_array(onnx.TensorProto.FromString(data))
        return wide(array) if kind == DOUBLE else array
    if which == "sequence_type" and declared.sequence_type.elem_type.WhichOneof("value") == "tensor_type":
        sequence = onnx.SequenceProto.FromString(data)
        for tensor in sequence.tensor_values:
            wide_tensor(tensor)
        return sequence.SerializeToString()
    if which != "optional_type":
        return data  # maps, which nothing is differentiated by
    optional = onnx.OptionalProto.FromString(data)
    wide_tensor(optional.tensor_value)
    for tensor in optional.sequence_value.tensor_values:
        wide_tensor(tensor)
    return optional.SerializeToString()


def wide(array):
    return array.astype(np.float64) if array.dtype == np.float32 else array


def of_type(value, kind):
    return value.type.WhichOneof("value") == "tensor_type" and value.type.tensor_type.elem_type == kind


@dataclass
class Case:
    folder: Path  # None: of OWN
    name: str
    operator: str
    again: bool = False  # the derivatives of the gradients, too
    feeds: list = field(default_factory=list)  # of the model's inputs, then of the weights
    numbers: dict = field(default_factory=dict)  # which of them are differentiated by: index -> name


def beside(array, rng, among, of):
    """Numbers a little beside the array's: where it has equal ones, which lie on kinks, they are apart; so are those of several inputs."""
    ramp = (rng.permutation(array.size) + among / of).reshape(array.shape) / max(array.size, 1)
    return array + 5e-3 * (1 + ramp)


def seed_of(case):
    return zlib.crc32(case.name.encode())


def load(case, kind):
    """The model, its feeds, and results of the shapes that it will have."""
    rng = np.random.default_rng(seed_of(case))
    if not case.folder:
        model = parser.parse_model(OWN_HEAD + OWN[case.name])
        shape = lambda value: [d.dim_value for d in value.type.tensor_type.shape.dim]  # noqa: E731
        return model, [rng.uniform(-2, 2, shape(x)) for x in model.graph.input], [np.zeros(shape(y)) for y in model.graph.output]
    model = onnx.load(case.folder / "model.onnx")
    if kind == DOUBLE:
        wide_graph(model.graph)
        for function in model.functions:
            for node in function.node:
                wide_node(node)
    data, weights, feeds = case.folder / "test_data_set_0", {t.name: t for t in model.graph.initializer}, []
    for i, value in enumerate(model.graph.input):
        weight = weights.get(value.name)
        feeds.append(numpy_helper.to_array(weight) if weight else read(data / f"input_{i}.pb", value.type, kind))
        if weight:
            model.graph.initializer.remove(weight)
    recorded = [(data / f"output_{i}.pb").read_bytes() if of_type(y, kind) else None for i, y in enumerate(model.graph.output)]
    return model, feeds, [r if r is None else numpy_helper.to_array(onnx.TensorProto.FromString(r)) for r in recorded]


def prepared(case):
    """The model with its loss and gradients as results; None: nothing in it is a float."""
    kind, rng = FLOAT if case.operator in F32 else DOUBLE, np.random.default_rng(seed_of(case))
    model, case.feeds, results = load(case, kind)
    graph, case.numbers = model.graph, {}
    for i, value in enumerate(graph.input):
        if of_type(value, kind) and i not in (of_case(NOT_BY, case) or {}):
            case.numbers[i] = value.name
    for k, i in enumerate(case.numbers):
        x, drawn = case.feeds[i], of_case(DRAWN, case)
        case.feeds[i] = np.array(rng.uniform(*drawn, x.shape) if drawn else beside(x, rng, k, len(case.numbers)), x.dtype)
    results = [(y.name, recorded.shape) for y, recorded in zip(graph.output, results)
               if of_type(y, kind) and (of_case(DRAWN, case) or np.isfinite(recorded).all())]
    if not results or not any(case.feeds[i].size for i in case.numbers):
        return None

    def add(op, inputs, output, **attributes):
        graph.node.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def weighted(value, shape, label):
        """The sum of the value's elements, by weights that are a further input."""
        case.feeds.append(np.array(rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1], shape)))
        graph.input.append(helper.make_tensor_value_info("weights_" + label, DOUBLE, shape))
        value = add("Cast", [value], "wide_" + label, to=DOUBLE)
        return add("ReduceSum", [add("Mul", [value, "weights_" + label], "weighted_" + label)], "sum_" + label, keepdims=0)

    def gradients(y, label):
        names = list(case.numbers.values())
        graph.node.append(helper.make_node("Gradient", names, [f"{label}_{n}" for n in names], domain=TRAINING, xs=names, y=y))
        return [f"{label}_{n}" for n in names]

    loss = add("Sum", [weighted(y, shape, f"y{i}") for i, (y, shape) in enumerate(results)], "loss__")
    found = gradients(loss, "gradient")
    if case.again:
        parts = [weighted(g, case.feeds[i].shape, f"g{i}") for i, g in zip(case.numbers, found)]
        loss = add("Sum", parts, "slope__")
        found = gradients(loss, "second")
    del graph.output[:]
    for name in [loss, *(add("Cast", [g], f"result_{g}", to=DOUBLE) for g in found)]:
        graph.output.append(helper.make_tensor_value_info(name, DOUBLE, None))
    have = {o.domain for o in model.opset_import}
    if not have & {"", "ai.onnx"}:
        model.opset_import.append(helper.make_opsetid("", 21))
    if TRAINING not in have:
        model.opset_import.append(helper.make_opsetid(TRAINING, 1))
    return model


# --- running it ------------------------------------------------------------------------------------------------------
class Runner:
    def __init__(self, lib, model, case, threads=1):
        self.lib, self.handle, self.model, self.threads = lib, None, model.SerializeToString(), threads
        self.again = case.operator in RANDOM
        self.open()
        self.values = [self.value_of(feed, value) for feed, value in zip(case.feeds, model.graph.input)]
        self.inputs = (ctypes.c_void_p * len(self.values))(*self.values)
        self.count = len(model.graph.output)

    def open(self):
        if self.handle:
            self.lib.onnxfuse_session_close(self.handle)
        self.handle, options = ctypes.c_void_p(), session.Options(size=ctypes.sizeof(session.Options), device=b"cpu", threads=self.threads)
        self.check(self.lib.onnxfuse_session_open_memory(self.model, len(self.model), None, ctypes.byref(options), ctypes.byref(self.handle)))

    def check(self, status):
        if status:
            message = self.lib.onnxfuse_status_message(status).decode()
            self.lib.onnxfuse_status_free(status)
            raise RuntimeError(message)

    def value_of(self, feed, value):
        out = ctypes.c_void_p()
        if isinstance(feed, np.ndarray) and feed.dtype.name in session.NUMBERS and feed.flags.c_contiguous:
            dims = (ctypes.c_int64 * max(feed.ndim, 1))(*feed.shape)
            self.check(self.lib.onnxfuse_value_tensor(session.NUMBERS[feed.dtype.name], feed.ndim, dims, ctypes.c_void_p(feed.ctypes.data), ctypes.byref(out)))
            return out
        data = numpy_helper.from_array(feed).SerializeToString() if isinstance(feed, np.ndarray) else feed
        kind = ("tensor_type", "sequence_type", "optional_type").index(value.type.WhichOneof("value"))
        self.check(self.lib.onnxfuse_value_from_proto(kind, data, len(data), ctypes.byref(out), None))
        return out

    def run(self):
        """The results. A session draws other random numbers in its next run, a new one those of the first."""
        if self.again:
            self.open()
        outputs, arrays = (ctypes.c_void_p * self.count)(), []
        self.check(self.lib.onnxfuse_session_run(self.handle, self.inputs, outputs))
        for out in outputs:
            shape = tuple(self.lib.onnxfuse_value_dims(out)[: self.lib.onnxfuse_value_rank(out)])
            dtype = np.float64 if self.lib.onnxfuse_value_dtype(out) == session.NUMBERS["float64"] else np.float32
            data, count = ctypes.cast(self.lib.onnxfuse_value_data(out), ctypes.POINTER(ctypes.c_uint8)), int(np.prod(shape)) * dtype().itemsize
            arrays.append(np.ctypeslib.as_array(data, (count,)).view(dtype).reshape(shape).copy() if count else np.zeros(shape, dtype))
            self.lib.onnxfuse_value_free(out)
        return arrays

    def close(self):
        for value in self.values:
            self.lib.onnxfuse_value_free(value)
        self.lib.onnxfuse_session_close(self.handle)


def differences(runner, case):
    """What is wrong, or None."""
    rng = np.random.default_rng(seed_of(case) + 1)
    loss, *gradients = runner.run()
    step, bound = of_case(STEPS, case) or (STEP_F32 if case.operator in F32 or case.operator in ROUNDED else STEP)
    if not np.isfinite(loss):
        return f"the loss is {loss}"
    for (i, name), gradient in zip(case.numbers.items(), gradients):
        x, own = case.feeds[i], case.feeds[i].copy()
        if gradient.shape != x.shape:
            return f'by "{name}": the gradient has shape {gradient.shape}, not {x.shape}'
        for _ in range(DIRECTIONS if x.size else 0):
            v, losses = np.where(np.isfinite(own), rng.standard_normal(x.shape), 0), []
            for sign in (1, -1):
                np.copyto(x, own + sign * step * v, casting="same_kind")
                losses.append(float(runner.run()[0]))
            np.copyto(x, own)
            want, parts = (losses[0] - losses[1]) / (2 * step), gradient * v
            have, scale = float(parts.sum()), max(float(np.abs(parts).sum()), abs(want)) + 1e-3 * abs(loss) + 1e-3
            if not abs(want - have) <= bound * scale:
                return f'by "{name}": {have:.10g}, differences say {want:.10g} (a share of {abs(want - have) / scale:.1e})'
    return None


def judge(case):
    model = prepared(case)
    if not model:
        return NO_FLOAT
    runner = None
    try:
        runner = Runner(library, model, case)
        return differences(runner, case)
    except RuntimeError as error:
        return f"{'does not run' if runner else 'refused'}: {error}"
    finally:
        if runner:
            runner.close()


# --- what is compared how, and what not ------------------------------------------------------------------------------------
NO_FLOAT = "no float"
DIRECTIONS = 3
STEP, STEP_F32 = (1e-5, 1e-6), (5e-3, 1e-2)  # of differences in f64, and where numbers are rounded to f32: step, share that may differ
F32 = {"DynamicQuantizeLSTM", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "MatMulBnb4", "MatMulIntegerToFloat", "MatMulNBits", "QAttention",
       "QEmbedLayerNormalization", "QMoE"}  # take no f64
ROUNDED = {"RoiAlign", "MaxRoiPool", "DequantizeLinear", "GatherBlockQuantized", "LayerNormalization", "FeatureVectorizer", "LinearAttention", "LinearRegressor",
           "Normalizer", "Scaler"}
RANDOM = {"Bernoulli", "Dropout", "RandomNormalLike", "RandomUniformLike"}
# Inputs of floats that are not differentiated by: (pattern of "OPERATOR NAME").
NOT_BY = {
    r"^Resize ": {1, 2},  # the region and the scales decide where the result's elements lie, and how many there are
    r"^Upsample ": {1},
    r"^DynamicQuantizeMatMul ": {0},  # rounded to steps that its own range decides: what its result jumps by is no gradient
    r"^MatMulNBits .*rows_of_bytes": {0},  # likewise
    r"^RoiAlign ": {1},  # regions are taken as given (back_roi_align)
    r"^MaxRoiPool ": {1},  # regions are rounded to whole pixels, and their first number is that of an image
}
# Numbers from other ranges than the case's own: (pattern of "OPERATOR NAME") -> range.
DRAWN = {
    r"test_(atanh|acos|asin)$": (-0.8, 0.8),  # beside 1 the slope has no bound
    r"test_(cast|castlike)_\w+_to_(FLOAT|DOUBLE)$": (-2, 2),  # some have NaN and infinities
    r"test_acosh": (1.5, 3),
    r"test_operator_(pow|sqrt)$": (0.5, 2),  # roots of negative numbers
    r"test_mod_float_edge_cases": (0.5, 2),  # infinities
    r"^Normalizer .*_of_zeros": (0.5, 2),  # beside zero the slope has no bound
    r"^DynamicQuantizeLinear .*(equal_numbers|zeros)": (-2, 2),  # beside equal numbers another one becomes the largest
}
# (step, share that may differ)
STEPS = {
    r"^MaxPool ": (1e-7, 1e-4),  # of many numbers some are nearly equal
    r"^MaxRoiPool ": (1e-4, 3e-2),
    r"^(Hardmax|Bernoulli) ": (1e-9, 1e-4),
    r"softmax_in_f32": STEP_F32,
    r"^(QAttention|QEmbedLayerNormalization) ": (2e-4, 2e-2),  # in f32, not linear in scales of some thousandths
    r"^QMoE ": (4e-4, 1e-2),  # beside steps of some thousandths other experts are chosen
    r"^DynamicQuantizeLSTM .*functions": (5e-4, 1e-2),  # which have corners
    r"^QGemm ": (1e-2, 1e-5),  # linear in scales, which are rounded to f32
    r"^DynamicQuantizeLinear ": (1e-3, 0.1),
}
# What is not compared: (pattern of "OPERATOR NAME", what it must end with instead, why)
EXCEPT = [
    (r"^Unique .*(sorted|axis|some_twice)", "do not broadcast", "numbers that are equal become different; tests/autodiff/test_operators.c moves them together"),
    (r"^DFT .*test_dft(_axis|_inverse|_irfft|_rfft)?$", "along an axis known only at run time", "the axis is an input; where it is a constant, see there, too"),
    (r"^(Conv|FusedConv|NhwcConv) .*-open", "a kernel whose size is not known", "the weight's sizes are left to the run"),
    (r"^MelWeightMatrix ", "has no gradient", "bins of a filter bank, counted from whole numbers"),
    (r"^(TreeEnsemble\w*|LabelEncoder|OneHotEncoder) ", "has no gradient", "a table: it jumps, and is constant between"),
    (r"^(SVM\w*|LinearClassifier) ", "has no gradient", "trained by solvers of their own"),
    (r"^LinearRegressor .*(SOFTMAX_ZERO|PROBIT)", "has no gradient", "scores that jump at zero, or have no bound"),
    (r"^SequenceEmpty ", "has another type", "the type of the sequence's elements cannot be widened"),
    (r"^BeamSearch ", "is not declared as float32 or float16", "its scores are of tokens that are chosen, and its decoder takes no f64"),
]
# Operators none of whose cases has a float that they depend on, beside those of EXCEPT.
WITHOUT = """And ArgMax ArgMin BitCast BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow CastMap CategoryMapper ConcatFromSequence
    ConstantOfShape ConvInteger DictVectorizer Equal EyeLike Greater GreaterOrEqual GreedySearch HammingWindow HannWindow ImageDecoder IsInf IsNaN Less
    LessOrEqual MatMulInteger MatMulInteger16 Multinomial NhwcMaxPool NonMaxSuppression NonZero Not OptionalHasElement Or QLinearAdd
    QLinearAveragePool QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMatMul QLinearMul QLinearReduceMean
    QLinearSigmoid QLinearSoftmax QLinearWhere QuantizeLinear RandomNormal RandomUniform RegexFullMatch Sampling SequenceAt SequenceErase
    SequenceInsert SequenceLength Shape Size StringConcat StringNormalizer StringSplit TfIdfVectorizer Xor ZipMap""".split()
# Operators whose gradient has none.
ONLY_ONCE = {
    "DeformConv": "DeformColumnsGradient has no gradient", "Det": "Cofactors has no gradient",
    "GridSample": "GridSampleGradient has no gradient",
    **dict.fromkeys(("DynamicQuantizeLSTM", "GRU", "LSTM", "RNN"), "RecurrentGradient has no gradient"),
}
OWN_HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
OWN = {
    "Trilu": "g (double[3, 4] x) => (double[3, 4] y) { y = Trilu<upper = 0>(x) }",
    "If": """g (double[3] k, double[3] x) => (double[3] y) {
        zero = Constant<value = double {0}>() sum = ReduceSum<keepdims = 0>(k) more = Greater(sum, zero)
        y = If(more) <then_branch = a () => (double[3] p) { p = Mul(x, x) }, else_branch = b () => (double[3] q) { q = Sin(x) }> }""",
    "Loop: a value that grows": """g (double[2] x) => (double[16] y) {
        n = Constant<value = int64 {3}>()
        y = Loop(n, "", x) <body = b (int64 i, bool c, double[k] v) => (bool d, double[l] u) { d = Identity(c) w = Mul(v, v) u = Concat<axis = 0>(v, w) }> }""",
    "If: gives a sequence": """g (double[3] k, double[3] x) => (double[3] y) {
        zero = Constant<value = double {0}>() sum = ReduceSum<keepdims = 0>(k) more = Greater(sum, zero) at = ArgMax<keepdims = 0>(k)
        s = If(more) <then_branch = a () => (seq(double[3]) p) { t = Mul(x, x) p = SequenceConstruct(x, t, t) },
            else_branch = b () => (seq(double[3]) q) { r = Sin(x) q = SequenceConstruct(r, x, r) }>
        y = SequenceAt(s, at) }""",
    "Loop": """g (double[2] x) => (double[2] y) {
        n = Constant<value = int64 {3}>()
        y = Loop(n, "", x) <body = b (int64 i, bool c, double[2] v) => (bool d, double[2] u) { d = Identity(c) w = Mul(v, x) u = Sin(w) }> }""",
    "SequenceMap": """g (double[4, 2] x, double[2] w, double[2] z) => (double[4, 2] y) {
        p = SplitToSequence<axis = 0>(x)
        s = SequenceMap(p, w) <body = b (double[1, 2] a, double[2] v) => (double[1, 2] c) { d = Mul(a, v) e = Sin(d) c = Mul(e, z) }>
        y = ConcatFromSequence<axis = 0>(s) }""",
    "Loop: carries a sequence": """g (double[2] x) => (double y) {
        n = Constant<value = int64 {3}>() empty = SequenceEmpty<dtype = 11>()
        s = Loop(n, "", empty) <body = b (int64 i, bool c, seq(double[2]) v) => (bool d, seq(double[2]) u) { d = Identity(c) w = Mul(x, x) u = SequenceInsert(v, w) }>
        a = ConcatFromSequence<axis = 0>(s) y = ReduceSum<keepdims = 0>(a) }""",
    "Loop: reads the last element of a sequence": """g (double[2] x) => (double[8] y) {
        n = Constant<value = int64 {3}>() last = Constant<value = int64 {-1}>() first = SequenceConstruct(x)
        s = Loop(n, "", first) <body = b (int64 i, bool c, seq(double[2]) v) => (bool d, seq(double[2]) u) {
            d = Identity(c) h = SequenceAt(v, last) w = Mul(h, x) t = Sin(w) u = SequenceInsert(v, t) }>
        y = ConcatFromSequence<axis = 0>(s) }""",
    "Loop: reads all of a sequence, changes it in a branch": """g (double[2] x) => (double[6] y) {
        n = Constant<value = int64 {4}>() two = Constant<value = int64 {2}>() first = SequenceConstruct(x)
        s = Loop(n, "", first) <body = b (int64 i, bool c, seq(double[2]) v) => (bool d, seq(double[2]) u) {
            d = Identity(c) more = Less(i, two) h = ConcatFromSequence<axis = 0>(v) m = ReduceMean<keepdims = 0>(h) w = Mul(m, x) t = Sin(w)
            u = If(more) <then_branch = p () => (seq(double[2]) q) { q = SequenceInsert(v, t) },
                else_branch = e () => (seq(double[2]) r) { z = Constant<value = int64 {0}>() o = SequenceErase(v) r = SequenceInsert(o, t, z) }> }>
        y = ConcatFromSequence<axis = 0>(s) }""",
    "Loop: takes elements of a sequence from outside": """g (double[4, 2] x) => (double[2] y) {
        n = Constant<value = int64 {4}>() start = Constant<value = double[2] {1, 1}>() p = SplitToSequence<axis = 0, keepdims = 0>(x)
        y = Loop(n, "", start) <body = b (int64 i, bool c, double[2] v) => (bool d, double[2] u) {
            d = Identity(c) a = SequenceAt(p, i) w = Mul(a, v) u = Add(w, a) }> }""",
    "Loop: of loops that carry a sequence": """g (double[2] x) => (double[10] y) {
        n = Constant<value = int64 {2}>() first = SequenceConstruct(x)
        s = Loop(n, "", first) <body = b (int64 i, bool c, seq(double[2]) v) => (bool d, seq(double[2]) u) {
            d = Identity(c)
            u = Loop(n, "", v) <body = e (int64 j, bool k, seq(double[2]) p) => (bool l, seq(double[2]) q) {
                l = Identity(k) h = SequenceAt(p, i) w = Mul(h, x) q = SequenceInsert(p, w) }> }>
        y = ConcatFromSequence<axis = 0>(s) }""",
    "Loop: carries an optional": """g (double[2] x) => (double[2] y) {
        n = Constant<value = int64 {3}>() first = Optional(x)
        s = Loop(n, "", first) <body = b (int64 i, bool c, optional(double[2]) v) => (bool d, optional(double[2]) u) {
            d = Identity(c) has = OptionalHasElement(v)
            w = If(has) <then_branch = p () => (double[2] q) { h = OptionalGetElement(v) q = Mul(h, x) },
                else_branch = e () => (double[2] r) { r = Sin(x) }>
            u = Optional(w) }>
        y = OptionalGetElement(s) }""",
    "Loop: carries an optional of a sequence": """g (double[2] x) => (double[8] y) {
        n = Constant<value = int64 {3}>() a = SequenceConstruct(x) first = Optional(a) last = Constant<value = int64 {-1}>()
        s = Loop(n, "", first) <body = b (int64 i, bool c, optional(seq(double[2])) v) => (bool d, optional(seq(double[2])) u) {
            d = Identity(c) h = OptionalGetElement(v) k = SequenceAt(h, last) w = Mul(k, x) t = Sin(w) r = SequenceInsert(h, t) u = Optional(r) }>
        z = OptionalGetElement(s) y = ConcatFromSequence<axis = 0>(z) }""",
}

# By constants of the model that bodies read, bodies in bodies too: the sum of w squared, times the sum of k, where that is above 0.
CAPTURED = """<ir_version: 10, opset_import: ["": 21, "ai.onnx.preview.training": 1]>
    g (double[3] k) => (double y, double[3] gradient) <double[3] w = {7, 8, 9}> {
        zero = Constant<value = double {0}>() sum = ReduceSum<keepdims = 0>(k) more = Greater(sum, zero)
        a = If(more) <then_branch = t () => (double[3] p) {
            q = If(more) <then_branch = u () => (double[3] r) { r = Mul(w, sum) }, else_branch = v () => (double[3] o) { o = Sin(w) }>
            p = Mul(q, w) }, else_branch = e () => (double[3] n) { n = Neg(w) }>
        y = ReduceSum<keepdims = 0>(a)
        gradient = ai.onnx.preview.training.Gradient<xs = ["w"], y = "y">(w) }"""

library = None


def of_case(table, case):
    """The entry whose pattern the case's name matches."""
    return next((value for pattern, value in table.items() if re.search(pattern, f"{case.operator} {case.name}")), None)


def begin(build):
    global library
    os.environ["ONNXFUSE_VERIFY"] = "1"
    library = session.load(build)
    library.onnxfuse_value_dtype.argtypes = [ctypes.c_void_p]
    library.onnxfuse_session_open_memory.restype = ctypes.c_void_p
    library.onnxfuse_value_from_proto.restype = ctypes.c_void_p


def cases_of(folders, match):
    found = [Case(None, name, name.split(":")[0]) for name in OWN]
    for root in folders:
        for path in sorted(root.glob("**/model.onnx")):
            name = str(path.parent.relative_to(root))
            if "_expanded" not in name and not name.startswith("light/"):
                nodes = onnx.load(path, load_external_data=False).graph.node
                found.append(Case(path.parent, name, nodes[0].op_type if nodes else ""))
    return [c for c in found if re.search(match, f"{c.operator} {c.name}")]


def captured():
    """What is wrong with CAPTURED, or None."""
    case = Case(None, "captured", "")
    case.feeds = [np.array([1.0, -3.0, 5.0])]
    runner = Runner(library, parser.parse_model(CAPTURED), case)
    found = runner.run()[1]
    runner.close()
    return None if np.allclose(found, [42, 48, 54]) else f"a constant in bodies: {found}"


def complaint(case, result):
    """What is wrong with how a case ended; None: nothing."""
    expected = next((text for pattern, text, _ in EXCEPT if re.search(pattern, f"{case.operator} {case.name}")), None)
    if expected:
        return None if result and (expected in result or result == NO_FLOAT) else f'should end with "{expected}", but: {result or "passes"}'
    return None if result == NO_FLOAT else result


def sample(cases, results):
    """Of each operator the smallest case that has been compared."""
    best = {}
    for case, result in zip(cases, results):
        rough = case.operator in F32 | ROUNDED | RANDOM or of_case(STEPS, case)
        if not result and not rough and not case.name.endswith("-open"):
            size = (case.folder / "model.onnx").stat().st_size + sum(p.stat().st_size for p in case.folder.glob("*/input_*")) if case.folder else 0
            best[case.operator] = min(best.get(case.operator, (size + 1, "", case)), (size, case.name, case))
    return [Case(case.folder, case.name, case.operator, True) for _, _, case in best.values()]


def unmet(build, cases, results):
    """Operators of which no case has been compared, and no table says why; and the reverse."""
    told = subprocess.run([build / "operator_rows"], check=True, capture_output=True, text=True).stdout
    rows, compared = {line.split("\t")[1] for line in told.splitlines()}, {c.operator for c, r in zip(cases, results) if not r}
    known = {operator for operator in rows if any(re.search(pattern, f"{operator} ") for pattern, _, _ in EXCEPT)}
    known |= {case.operator for case in cases if any(re.search(pattern, f"{case.operator} {case.name}") for pattern, _, _ in EXCEPT)}
    known |= {"Gradient", "Variable"}  # what is tested
    yield from (f"{name}: no gradient of it is compared" for name in sorted(rows - compared - known - set(WITHOUT)))
    yield from (f"{name}: its gradient is compared, or there is none such; it stands in WITHOUT" for name in WITHOUT if name in compared or name not in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--match", default="")
    options = parser.parse_args()
    cases = cases_of(options.folders, options.match)
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), initializer=begin, initargs=(options.build,)) as pool:
        results = list(pool.map(judge, cases, chunksize=8))
        wrong = [problem] if (problem := pool.submit(captured).result()) else []
        again = sample(cases, results)
        seconds = list(pool.map(judge, again))
    wrong += [f"{case.operator} {case.name}: {found}" for case, result in zip(cases, results) if (found := complaint(case, result))]
    for case, result in zip(again, seconds):
        expected = ONLY_ONCE.get(case.operator)
        if expected and expected not in (result or "") or result and not expected:
            wrong.append(f"{case.operator} {case.name}, derivatives of its gradient: {result or 'passes'}")
    if not options.match:
        wrong += unmet(options.build, cases, results)
    for problem in wrong:
        print(f"FAIL  {problem}")
    compared = [case.operator for case, result in zip(cases, results) if not result]
    print(f"gradients of {len(set(compared))} operators in {len(compared)} cases, second derivatives of {sum(not r for r in seconds)}; {len(wrong)} failed")
    sys.exit(1 if wrong or not compared else 0)


if __name__ == "__main__":
    main()
