#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Optimizes models and compares them with what they were: results in ONNX Runtime, names, types, number of nodes.

    test_optimize.py PROGRAM REAL [CASES [--all]]

PROGRAM is onnxfuse, REAL the folder that scripts/real_models.py writes, CASES that of scripts/write_cases.py.
--all: each of the standard's cases in every version of CASE_OPSETS, some minutes; else in one of them."""
import concurrent.futures
import functools
import json
import math
import os
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, parser

sys.path.append(str(Path(__file__).resolve().parents[1] / "numeric"))
from rounding import Condition, assert_close, gamma  # noqa: E402

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
program, real = Path(sys.argv[1]), Path(sys.argv[2])
cases, every = Path(sys.argv[3]) if len(sys.argv) > 3 else None, "--all" in sys.argv[4:]
FAILING = {line.split()[0] for line in (Path(__file__).parents[1] / "conformance/expected_failures.txt").read_text().splitlines() if line[:1] not in "#"}
rng = numpy.random.default_rng(5)
# Terms of the longest sum; they end in probabilities.
REAL_TERMS = {"magika": 512, "minilm": 1536, "ocr_cls": 1000, "ocr_det": 1000, "ocr_rec": 1000, "silero_vad": 1000}
# Nodes that are left at most, subgraphs included.
REAL_NODES = {"magika": 72, "minilm": 227, "ocr_cls": 143, "ocr_det": 221, "ocr_rec": 278, "silero_vad": 298}


def optimize(path, out, *flags, code=0):
    done = subprocess.run([program, "optimize", path, "-o", out, "--json", *flags], capture_output=True, text=True)
    assert done.returncode == code, f"exit code {done.returncode}, not {code}: {done.stderr}"
    return json.loads(done.stdout.splitlines()[-1]) if code == 0 else done.stderr


def session(model):
    """Of a path or of bytes."""
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model if isinstance(model, bytes) else str(model), settings, providers=["CPUExecutionProvider"])


def interface(runner):
    """Of an output that declares no sizes, the runtime may find more in the new model."""
    return [(v.name, v.type, v.shape) for v in runner.get_inputs()], [(v.name, v.type) for v in runner.get_outputs()]


@functools.lru_cache(maxsize=2)
def condition(path, _changed):
    def run_of(model):
        runner = session(model.SerializeToString())
        return lambda feeds: runner.run(None, feeds)
    return Condition(onnx.load(path), run_of)


def compare(before, after, feeds, terms, **rest):
    """The results are the same up to rounding; terms: of the longest sum that may be computed in another order, 0: to the bit."""
    onnx.checker.check_model(str(after), full_check=True)
    old, new = session(before), session(after)
    assert interface(old) == interface(new), (interface(old), interface(new))
    wanted = condition(before, before.stat().st_mtime_ns).bounds(feeds, terms, **rest) if terms else (old.run(None, feeds), None)
    assert_close(new.run(None, feeds), *wanted)


def recorded(folder):
    tensor = TensorProto()
    result = []
    for file in sorted(folder.glob("input_*.pb"), key=lambda p: int(p.stem.split("_")[1])):
        tensor.ParseFromString(file.read_bytes())
        result.append(numpy_helper.to_array(tensor))
    return result


SMALL_TERMS = 32  # a convolution of 27 and what follows it


# --- small models, a rule each ----------------------------------------------------------------------------------------
def weights(**arrays):
    return [numpy_helper.from_array(numpy.asarray(a), n) for n, a in arrays.items()]


def floats(*shape):
    return rng.standard_normal(shape).astype(numpy.float32)


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), output.split(), **attributes)


def model(nodes, shape, constants=(), opset=21, output="y", output_type=FLOAT, output_rank=None):
    x = helper.make_tensor_value_info("x", FLOAT, shape)
    y = helper.make_tensor_value_info(output, output_type, [None] * len(shape) if output_rank is None else [None] * output_rank)
    graph = helper.make_graph(nodes, "g", [x], [y], list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


ROW = [
    node("ReduceMean", "x last", "mean"), node("Sub", "x mean", "d"), node("Pow", "d two", "dd"),
    node("ReduceMean", "dd last", "var"), node("Add", "var eps", "vare"), node("Sqrt", "vare", "root"),
    node("Div", "d root", "n"), node("Mul", "n scale", "s"), node("Add", "s bias", "y"),
]
CASES = {  # name: (model, shape of x, operators that are left)
    "shapes with named sizes become constants": (
        model([node("Shape", "x", "s"), node("Gather", "s zero", "b"), node("Unsqueeze", "b axis", "bu"),
               node("Concat", "bu rest", "t", axis=0), node("Reshape", "x t", "y")],
              ["n", 4, 6], weights(zero=numpy.int64(0), axis=[0], rest=[24]), output_rank=2), (3, 4, 6), ["Reshape"]),
    "constants are computed": (
        model([node("Mul", "a b", "c"), node("Add", "x c", "y")], [2, 3], weights(a=floats(2, 3), b=floats(3))),
        (2, 3), ["Add"]),
    "equal nodes become one": (
        model([node("Exp", "x", "a"), node("Exp", "x", "b"), node("Add", "a b", "y")], ["n"]), (5,), ["Exp", "Add"]),
    "what does nothing goes": (
        model([node("Identity", "x", "a"), node("Cast", "a", "b", to=FLOAT), node("Dropout", "b", "c"),
               node("Transpose", "c", "d", perm=[0, 1]), node("Concat", "d", "e", axis=0),
               node("Slice", "e zero most", "f"), node("Neg", "f", "y")], ["n", 4], weights(zero=[0], most=[2**40])),
        (3, 4), ["Neg"]),
    "transposes that cancel go": (
        model([node("Transpose", "x", "a", perm=[1, 2, 0]), node("Transpose", "a", "b", perm=[2, 0, 1]),
               node("Neg", "b", "y")], ["n", 2, 3]), (4, 2, 3), ["Neg"]),
    "transposes in a row become one": (
        model([node("Transpose", "x", "a", perm=[1, 2, 0]), node("Transpose", "a", "y", perm=[1, 2, 0])], ["n", 2, 3]),
        (4, 2, 3), ["Transpose"]),
    "reshapes in a row become one": (
        model([node("Unsqueeze", "x axis", "a"), node("Flatten", "a", "b"), node("Reshape", "b shape", "y")],
              ["n", 4, 6], weights(axis=[1], shape=[-1, 6, 4])), (3, 4, 6), ["Reshape"]),
    "batch normalisation, factor and bias go into a convolution": (
        model([node("Conv", "x w", "a"), node("BatchNormalization", "a g b m v", "c"), node("Mul", "c f", "d"),
               node("Add", "e d", "y")], ["n", 3, 8, 8],
              weights(w=floats(4, 3, 3, 3), g=floats(4), b=floats(4), m=floats(4), v=abs(floats(4)) + 1,
                      f=floats(4, 1, 1), e=floats(1, 4, 1, 1))), (2, 3, 8, 8), ["Conv"]),
    "a factor of another axis stays outside": (
        model([node("Conv", "x w", "a"), node("Mul", "a f", "y")], ["n", 3, 4, 4],
              weights(w=floats(4, 3, 1, 1), f=floats(4))), (2, 3, 4, 4), ["Conv", "Mul"]),
    "a padding goes into the convolution": (
        model([node("Pad", "x pads", "a"), node("Conv", "a w", "y", pads=[1, 0, 0, 1])], ["n", 3, 6, 6],
              weights(w=floats(4, 3, 3, 3), pads=[0, 0, 1, 2, 0, 0, 0, 1])), (2, 3, 6, 6), ["Conv"]),
    "a product and a sum become Gemm": (
        model([node("MatMul", "x w", "a"), node("Add", "b a", "c"), node("Mul", "c f", "y")], ["n", 5],
              weights(w=floats(5, 7), b=floats(7), f=floats(7))), (3, 5), ["Gemm"]),
    "a sum that makes the product larger stays": (
        model([node("MatMul", "x w", "a"), node("Add", "b a", "y")], [1, 5], weights(w=floats(5, 7), b=floats(4, 7))),
        (1, 5), ["MatMul", "Add"]),
    "layer normalisation": (
        model(ROW, ["n", 8], weights(last=[-1], two=numpy.float32(2), eps=numpy.float32(1e-5), scale=floats(8),
                                     bias=floats(8))), (3, 8), ["LayerNormalization"]),
    "layer normalisation of an old opset stays": (
        model([helper.make_node("ReduceMean", ["x"], [n.output[0]], axes=[-1]) if n.output[0] == "mean" else
               helper.make_node("ReduceMean", ["dd"], ["var"], axes=[-1]) if n.output[0] == "var" else n for n in ROW],
              ["n", 8], weights(two=numpy.float32(2), eps=numpy.float32(1e-5), scale=floats(8), bias=floats(8)),
              opset=13), (3, 8), [n.op_type for n in ROW]),
    "GELU by erf": (
        model([node("Div", "x r", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "x c", "d"),
               node("Mul", "d half", "y")], ["n"],
              weights(r=numpy.float32(2**0.5), one=numpy.float32(1), half=numpy.float32(0.5))), (9,), ["Gelu"]),
    "hard swish": (
        model([node("Add", "x three", "a"), node("Clip", "a zero six", "b"), node("Mul", "x b", "c"),
               node("Div", "c six", "y")], ["n"],
              weights(three=numpy.float32(3), zero=numpy.float32(0), six=numpy.float32(6))), (9,), ["HardSwish"]),
    "hard swish of an old opset": (
        model([node("Add", "x three", "a"), node("Clip", "a zero six", "b"), node("Mul", "x b", "c"),
               node("Div", "c six", "y")], ["n"],
              weights(three=numpy.float32(3), zero=numpy.float32(0), six=numpy.float32(6)), opset=13),
        (9,), ["HardSigmoid", "Mul"]),
    "a constant that is far larger than what it is made of stays computed": (
        model([node("ConstantOfShape", "big", "a"), node("Add", "x a", "y")], [1000000], weights(big=[1000000])),
        (1000000,), ["ConstantOfShape", "Add"]),
    "random numbers are drawn twice": (
        model([node("RandomNormalLike", "x", "a"), node("RandomNormalLike", "x", "b"), node("Sub", "a b", "c"),
               node("Mul", "c x", "d"), node("IsNaN", "d", "y")], [4], output_type=TensorProto.BOOL),
        (4,), ["RandomNormalLike", "RandomNormalLike", "Sub", "Mul", "IsNaN"]),
}


def test_case(folder, case, shape, left):
    onnx.save(case, folder / "in.onnx")
    optimize(folder / "in.onnx", folder / "out.onnx")
    found = [n.op_type for n in onnx.load(folder / "out.onnx").graph.node]
    assert found == left, f"left: {found}"
    compare(folder / "in.onnx", folder / "out.onnx", {"x": floats(*shape)}, SMALL_TERMS)


def test_real(folder, name):
    path = real / name / "model.onnx"
    report = optimize(path, folder / "out.onnx")
    assert report["nodes_after"] <= REAL_NODES[name], f"{report['nodes_after']} nodes are left"
    assert report["bytes_after"] <= report["bytes_before"] * 1.02 + 4096
    names = [v.name for v in session(path).get_inputs()]
    for data in sorted((real / name).glob("test_data_set_*")):
        compare(path, folder / "out.onnx", dict(zip(names, recorded(data))), REAL_TERMS[name], ends_at=1)


# --- operator sets ----------------------------------------------------------------------------------------------------
# The oldest version in which each model stands, and what is refused at the version before.
OLDEST_OPSETS = {"magika": (8, "Max"), "minilm": (10, "Slice"), "ocr_cls": (7, None), "ocr_det": (7, None), "ocr_rec": (7, None), "silero_vad": (11, "If")}
NEWEST_OF_RUNTIME = 26


def test_real_opsets(folder, name):
    path = real / name / "model.onnx"
    oldest, stands = OLDEST_OPSETS[name]
    data = sorted((real / name).glob("test_data_set_*"))[0]
    feeds = dict(zip([v.name for v in session(path).get_inputs()], recorded(data)))
    for opset in sorted({oldest, 13, 17, 21, NEWEST_OF_RUNTIME}):
        report = optimize(path, folder / "out.onnx", "--convert-opset", str(opset))
        assert report["opset"] == opset
        assert [v.version for v in onnx.load(folder / "out.onnx", load_external_data=False).opset_import if not v.domain] == [opset]
        compare(path, folder / "out.onnx", feeds, REAL_TERMS[name], ends_at=1)
    optimize(path, folder / "out.onnx", "--convert-opset", str(onnx.defs.onnx_opset_version()))
    onnx.checker.check_model(str(folder / "out.onnx"), full_check=True)
    if stands:
        message = optimize(path, folder / "out.onnx", "--convert-opset", str(oldest - 1), code=3)
        assert f"(the nearest is {oldest})" in message and stands in message, message


def attention(queries=4, keys=2, **attributes):
    inputs = [helper.make_tensor_value_info(n, FLOAT, [2, h, "s", 8]) for n, h in (("x", queries), ("k", keys), ("v", keys))]
    y = helper.make_tensor_value_info("y", FLOAT, [None] * 4)
    graph = helper.make_graph([node("Attention", "x k v", "y", **attributes)], "g", inputs, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


CONVERTED = {  # name: (model, shape of x, version, operators that are left)
    "axes become attributes": (
        model([node("Unsqueeze", "x axes", "a"), node("ReduceSum", "a axes", "b"), node("Squeeze", "b axes", "y")], ["n", 4, 4],
              weights(axes=[-1]), opset=21), (2, 4, 4), 9, None),
    "attributes become inputs": (
        model([node("ReduceMean", "x", "a", axes=[1]), node("Clip", "a", "b", min=-0.5, max=0.5), node("Pad", "b", "c", pads=[0, 0, 1, 1]),
               node("Slice", "c", "y", starts=[0], ends=[1], axes=[1])], ["n", 6], opset=7), (4, 6), 21,
        ["ReduceMean", "Clip", "Pad", "Slice"]),
    "a softmax of several axes": (
        model([node("Softmax", "x", "y", axis=1)], [2, 3, 4], opset=11), (2, 3, 4), 13, None),
    "a softmax of a middle axis": (
        model([node("Softmax", "x", "y", axis=1)], [2, 3, 4], opset=13), (2, 3, 4), 11, ["Transpose", "Softmax", "Transpose"]),
    "functions of the standard become formulas": (
        model([node("LayerNormalization", "x s b", "a"), node("Gelu", "a", "c", approximate="tanh"), node("HardSwish", "c", "d"),
               node("Mish", "d", "y")], ["n", 8], weights(s=floats(8), b=floats(8)), opset=21), (3, 8), 11, None),
    "an upsampling": (
        model([node("Upsample", "x f", "y", mode="nearest")], [1, 1, 3, 3],
              weights(f=numpy.array([1, 1, 2, 3], numpy.float32)), opset=9), (1, 1, 3, 3), 19, ["Resize"]),
    "and back": (
        model([helper.make_node("Resize", ["x", "", "f"], ["y"], mode="nearest")], [1, 1, 3, 3],
              weights(f=numpy.array([1, 1, 2, 3], numpy.float32)), opset=19), (1, 1, 3, 3), 9, ["Upsample"]),
    "attention of heads in groups": (attention(is_causal=1, softcap=2.0), (2, 4, 5, 8), 17, None),
}
REFUSED = {  # name: (model, version, the nearest that is named, words)
    "operators that no formula gives": (model([node("Erf", "x", "y")], ["n"]), 8, 9, "exists from version 9 on"),
    "types that were not allowed": (
        model([node("Cast", "x", "a", to=TensorProto.INT32), node("Relu", "a", "b"), node("Cast", "b", "y", to=FLOAT)], ["n"]), 13, 14, "int32"),
    "computed axes": (
        model([node("Shape", "x", "s"), node("Slice", "s zero one", "a"), node("ReduceMax", "x a", "y", keepdims=1)], ["n", "n"],
              weights(zero=[0], one=[1])), 17, 18, "axes"),
    "attributes without counterpart": (
        model([node("Transpose", "x", "t"), node("ArgMax", "t", "a", select_last_index=1), node("Cast", "a", "y", to=FLOAT)], ["n", "n"]), 11, 12,
        "select_last_index"),
}


def test_converted(folder, case, shape, opset, left):
    onnx.save(case, folder / "in.onnx")
    optimize(folder / "in.onnx", folder / "out.onnx", "--convert-opset", str(opset))
    written = onnx.load(folder / "out.onnx")
    assert written.opset_import[0].version == opset
    found = [n.op_type for n in written.graph.node]
    assert left is None or found == left, f"left: {found}"
    feeds = {v.name: floats(*(d.dim_value or shape[i] for i, d in enumerate(v.type.tensor_type.shape.dim))) for v in case.graph.input}
    compare(folder / "in.onnx", folder / "out.onnx", feeds, SMALL_TERMS)


def test_refused(folder, case, opset, nearest, words):
    onnx.save(case, folder / "in.onnx")
    message = optimize(folder / "in.onnx", folder / "out.onnx", "--convert-opset", str(opset), code=3)
    assert f"the nearest is {nearest})" in message and words in message, message
    optimize(folder / "in.onnx", folder / "out.onnx", "--convert-opset", str(nearest))


def test_maps(folder):
    """A classifier as scikit-learn's exporter writes it, and the types of maps that it declares."""
    domain = {"domain": "ai.onnx.ml"}
    nodes = [helper.make_node("DictVectorizer", ["d"], ["features"], string_vocabulary=["a", "b", "c"], **domain),
             helper.make_node("LinearClassifier", ["features"], ["label", "scores"], classlabels_ints=[0, 1], coefficients=[1.0, -0.5, 0.25, -1.0, 0.5, 2.0],
                              intercepts=[0.5, -0.5], post_transform="LOGISTIC", **domain),
             helper.make_node("Normalizer", ["scores"], ["shares"], norm="L1", **domain), helper.make_node("Cast", ["label"], ["chosen"], to=INT64),
             helper.make_node("ZipMap", ["shares"], ["probabilities"], classlabels_int64s=[0, 1], **domain)]
    mapping = [helper.make_map_type_proto(key, helper.make_tensor_type_proto(FLOAT, [])) for key in (onnx.TensorProto.STRING, INT64)]
    outputs = [helper.make_tensor_value_info("chosen", INT64, [None]), helper.make_value_info("probabilities", helper.make_sequence_type_proto(mapping[1]))]
    graph = helper.make_graph(nodes, "g", [helper.make_value_info("d", mapping[0])], outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8), folder / "in.onnx")
    for flags, left in ([], 4), (["--convert-opset", "21"], 4), (["--regions"], 4):
        report = optimize(folder / "in.onnx", folder / "out.onnx", *flags)
        assert (report["nodes_before"], report["nodes_after"]) == (5, left), report
        written = onnx.load(folder / "out.onnx")
        onnx.checker.check_model(written, full_check=True)
        assert [v.type for v in [*written.graph.input, *written.graph.output][::2]] == [v.type for v in [*graph.input, *graph.output][::2]]
        feeds = {"d": {"c": 0.5, "a": -2.0, "x": 3.0}}
        (chosen, maps), (wanted_chosen, wanted_maps) = (session(folder / name).run(None, feeds) for name in ("out.onnx", "in.onnx"))
        assert list(chosen) == list(wanted_chosen) and maps == wanted_maps, (maps, wanted_maps)


def test_subgraphs_and_functions(folder):
    """Each is of the model's version afterwards, though a function may have had another one."""
    branch = [helper.make_graph([helper.make_node("ReduceSum", ["x", "axis"], [n]), helper.make_node("Gelu", [n], [n + "y"])], n,
                                [], [helper.make_tensor_value_info(n + "y", FLOAT, [None, None])]) for n in ("a", "b")]
    inner = helper.make_function("own", "Twice", ["v"], ["w"], [helper.make_node("Clip", ["v"], ["c"], min=-3.0),
                                 helper.make_node("Add", ["c", "c"], ["w"])], [helper.make_opsetid("", 10)])
    case = model([node("ReduceMax", "x", "m", keepdims=0), node("Greater", "m zero", "c"),
                  helper.make_node("If", ["c"], ["z"], then_branch=branch[0], else_branch=branch[1]),
                  helper.make_node("Twice", ["z"], ["y"], domain="own")], ["n", 4], weights(zero=numpy.float32(0), axis=[1]), opset=20)
    case.functions.append(inner)
    case.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(case, folder / "in.onnx")
    for flags in ([], ["--convert-opset", "12"], ["--convert-opset", "21", "--regions"]):
        optimize(folder / "in.onnx", folder / "out.onnx", *flags)
        onnx.checker.check_model(str(folder / "out.onnx"), full_check=True)
        x = floats(3, 4)
        z = x.astype(float).sum(1, keepdims=True)
        z = z / 2 * (1 + numpy.vectorize(math.erf)(z / 2**0.5))
        # a sum of four, then a function that is at most 1.13 as steep and off by some units of its result, doubled
        bound = 2 * 1.13 * gamma(12) * numpy.abs(x.astype(float)).sum(1, keepdims=True)
        y = 2 * numpy.maximum(z, -3)
        assert_close([session(folder / "out.onnx").run(None, {"x": x})[0]], [y.astype(numpy.float32)], [bound + 2.0**-23 * numpy.abs(y)])


def test_function_called_twice(folder):
    """Its nodes, with names or without, stand twice in the model, and each has a name of its own: ONNX Runtime refuses two of one name."""
    inner = helper.make_function("own", "Wave", ["v"], ["w"], [helper.make_node("Neg", ["v"], ["c"], name="inner"), helper.make_node("Tanh", ["c"], ["w"])],
                                 [helper.make_opsetid("", 21)])
    calls = [helper.make_node("Wave", [a], [b], domain="own", name=name) for a, b, name in (("x", "a", "one"), ("a", "b", "two"), ("b", "y", ""))]
    case = model(calls, ["n", 4])
    case.functions.append(inner)
    case.opset_import.append(helper.make_opsetid("own", 1))
    onnx.save(case, folder / "in.onnx")
    x = floats(3, 4)
    y = -numpy.tanh(numpy.tanh(numpy.tanh(x.astype(float))))
    for flags in ([], ["--convert-opset", "13"], ["--regions"]):
        optimize(folder / "in.onnx", folder / "out.onnx", *flags)
        names = [n.name for n in onnx.load(folder / "out.onnx").graph.node]
        assert len(set(names)) == len(names), names
        # three functions of a slope of at most 1, each off by some units of a result of at most 1
        assert_close([session(folder / "out.onnx").run(None, {"x": x})[0]], [y.astype(numpy.float32)], [numpy.full(y.shape, 3 * 2.0**-22)])


def test_narrow_numbers_stay(folder):
    """However small a quantized weight is, and whatever moves it: other runtimes tell a product of narrow numbers by it."""
    constants = weights(w=rng.integers(-8, 8, (4, 4)).astype(numpy.int8), s=numpy.float32(0.5), b=rng.integers(-8, 8, 4).astype(numpy.int32), shape=[4])
    nodes = [node("DequantizeLinear", "w s", "d"), node("Transpose", "d", "t"), node("MatMul", "x t", "m"), node("DequantizeLinear", "b s", "e"),
             node("Reshape", "e shape", "r"), node("Add", "m r", "y")]
    onnx.save(model(nodes, ["n", 4], constants), folder / "in.onnx")
    optimize(folder / "in.onnx", folder / "out.onnx")
    left = [n.op_type for n in onnx.load(folder / "out.onnx").graph.node]
    assert left.count("DequantizeLinear") == 2, left


# Of how many cases a version is refused: of those that are written in it in turn, and of all.
CASE_OPSETS = (7, 9, 10, 11, 13, 17, 20, 22, 24, 28)
REFUSED_CASES = {7: 137, 9: 111, 10: 94, 11: 67, 13: 58, 17: 48, 20: 23, 22: 15, 24: 17, 28: 0}
REFUSED_OF_ALL = {7: 1260, 9: 1120, 10: 1045, 11: 794, 13: 556, 17: 464, 20: 209, 22: 160, 24: 130, 28: 1}


def convert_case(job):
    """The folder of the case in that version, or None when it is refused."""
    folder, case, opset = job
    target = folder / f"{case.name}_{opset}"
    target.mkdir()
    done = subprocess.run([program, "optimize", case / "model.onnx", "-o", target / "model.onnx", "--convert-opset", str(opset)],
                          capture_output=True, text=True)
    assert done.returncode in (0, 3), f"{case.name} to {opset}: {done.stderr}"
    if done.returncode:
        assert not list(target.iterdir()) and done.stderr, f"{case.name} to {opset}: refused, with a file or without a reason"
        target.rmdir()
        return None
    onnx.checker.check_model(str(target / "model.onnx"), full_check=True)
    for file in case.iterdir():
        if file.name != "model.onnx":
            (target / file.name).symlink_to(file.resolve())
    return target


def test_node_cases(folder):
    """The standard's cases in other versions give their recorded outputs, in onnxfuse itself: each in one version, in turn, or in all."""
    if not cases:
        return
    found = [case for case in sorted(path.parent for path in cases.glob("node/*/model.onnx"))
             if f"node/{case.name}" not in FAILING and sound(case / "model.onnx")]
    # a case's turn follows from its name alone, so that another case changes no other's
    jobs = [(folder, case, opset) for case in found for k, opset in enumerate(CASE_OPSETS)
            if every or zlib.crc32(case.name.encode()) % len(CASE_OPSETS) == k]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        targets = list(pool.map(convert_case, jobs))
    refused = {opset: sum(1 for job, target in zip(jobs, targets) if job[2] == opset and not target) for opset in CASE_OPSETS}
    written = [target for target in targets if target]
    for at in range(0, len(written), 200):
        done = subprocess.run([program, "test", *written[at:at + 200]], capture_output=True, text=True)
        wrong = [line for line in done.stdout.splitlines() + done.stderr.splitlines() if line.startswith("FAIL")]
        assert done.returncode == 0 and not wrong, "\n".join(wrong[:10]) or done.stderr[-300:]
    print(f"{len(found)} cases in other versions: {len(written)} converted, refused by version: {refused}")
    assert refused == (REFUSED_OF_ALL if every else REFUSED_CASES), "more or fewer are refused than are known to be"


def sound(path):
    try:
        onnx.checker.check_model(str(path), full_check=True)
        return True
    except Exception:
        return False


# --- regions ----------------------------------------------------------------------------------------------------------
def compare_regions(folder, path, feeds, *flags):
    """The written nodes are the same, so are the bits of the results."""
    optimize(path, folder / "plain.onnx", *flags)
    report = optimize(path, folder / "regions.onnx", "--regions", *flags)
    onnx.checker.check_model(str(folder / "regions.onnx"), full_check=True)
    plain, regions = session(folder / "plain.onnx"), session(folder / "regions.onnx")
    assert interface(plain) == interface(regions)
    for x, y in zip(plain.run(None, feeds), regions.run(None, feeds)):
        assert x.dtype == y.dtype and x.tobytes() == y.tobytes(), f"{path.name}: results differ"
    return report, onnx.load(folder / "regions.onnx", load_external_data=False)


def test_real_regions(folder, name):
    path = real / name / "model.onnx"
    data = sorted((real / name).glob("test_data_set_*"))[0]
    feeds = dict(zip([v.name for v in session(path).get_inputs()], recorded(data)))
    report, written = compare_regions(folder, path, feeds)
    assert report["regions"] > 0 and report["nodes_in_regions"] >= 2 * report["regions"]
    assert written.ir_version >= 8 and all(f.doc_string and f.domain == "onnxfuse.regions" for f in written.functions)
    again = optimize(folder / "regions.onnx", folder / "again.onnx")  # functions are inlined
    assert again["nodes_after"] <= again["nodes_before"] == report["nodes_after"]
    assert not onnx.load(folder / "again.onnx").functions
    case = folder / "case"
    case.mkdir()
    (case / "model.onnx").symlink_to(folder / "regions.onnx")
    (case / data.name).symlink_to(data.resolve())
    if (real / name / "data.json").exists():
        (case / "data.json").symlink_to((real / name / "data.json").resolve())
    done = subprocess.run([program, "test", case], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_patterns_regions(folder):
    subprocess.run([sys.executable, Path(__file__).parents[2] / "scripts/pattern_models.py", folder / "patterns", "--small"],
                   check=True, capture_output=True)
    models = sorted((folder / "patterns").glob("*.onnx"))
    assert models
    for path in models:
        if draws(onnx.load(path)):
            continue
        about = json.loads(path.with_suffix(".json").read_text())["inputs"]
        feeds = {n: rng.integers(0, v["high"], v["shape"]).astype(v["dtype"]) if "int" in v["dtype"] else floats(*v["shape"]).astype(v["dtype"])
                 for n, v in about.items()}
        compare_regions(folder, path, feeds)


def draws(model):
    return any(n.op_type.startswith("Random") or (n.op_type == "Dropout" and len(n.input) > 2) for n in model.graph.node)


def test_regions_shared(folder):
    """Equal regions are calls of one function; outer values come as inputs; a path outside parts a region."""
    case = model([node("MatMul", "x w", "a"), node("Add", "a b", "c"), node("Relu", "c", "d"), node("MatMul", "d w", "e"),
                  node("Add", "e b", "f"), node("Relu", "f", "g"), node("MatMul", "g g", "h"), node("Add", "h g", "y")], [4, 4],
                 weights(w=floats(4, 4), b=floats(4)))
    onnx.save(case, folder / "in.onnx")
    report, written = compare_regions(folder, folder / "in.onnx", {"x": floats(4, 4)})
    calls = [n.op_type for n in written.graph.node if n.domain]
    assert len(calls) > len(set(calls)) and report["regions"] == len(calls), calls
    names = {v.name for v in written.graph.initializer}
    assert names == {"w", "b"}


def test_regions_with_policy(folder):
    case = model([node("Exp", "x", "a"), node("Neg", "a", "b"), node("Abs", "b", "y")], ["n", 4])
    onnx.save(case, folder / "in.onnx")
    assert compare_regions(folder, folder / "in.onnx", {"x": floats(2, 4)})[0]["regions"] == 1
    (folder / "p.json").write_text('{"fusion": {"enable": false}}')
    assert optimize(folder / "in.onnx", folder / "out.onnx", "--regions", "--policy", folder / "p.json")["regions"] == 0


def test_regions_together(folder):
    """With other options: data outside, fixed shapes, a part of the model."""
    case = model([node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Exp", "b", "c"), node("Mul", "c b", "y")], ["n", 64],
                 weights(w=floats(64, 64)))
    onnx.save(case, folder / "in.onnx")
    x = {"x": floats(3, 64)}
    compare_regions(folder, folder / "in.onnx", x, "--external-data")
    compare_regions(folder, folder / "in.onnx", x, "--fix-shapes", "x=3x64", "--convert-opset", "13")
    compare_regions(folder, folder / "in.onnx", {"a": floats(3, 64)}, "--extract", "a:y", "--external-data")


# --- files --------------------------------------------------------------------------------------------------------------
def big(folder):
    case = model([node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Identity", "b", "y")], ["n", 64],
                 weights(w=floats(64, 64)))
    case.metadata_props.add(key="k", value="v")
    onnx.save(case, folder / "in.onnx")


def test_in_place(folder):
    big(folder)
    (folder / "before.onnx").write_bytes((folder / "in.onnx").read_bytes())
    optimize(folder / "in.onnx", folder / "in.onnx")
    compare(folder / "before.onnx", folder / "in.onnx", {"x": floats(2, 64)}, 0)
    assert sorted(f.name for f in folder.iterdir()) == ["before.onnx", "in.onnx"]
    assert onnx.load(folder / "in.onnx").metadata_props[0].value == "v"


def test_external_data(folder):
    big(folder)
    report = optimize(folder / "in.onnx", folder / "out.onnx", "--external-data")
    assert report["external_bytes"] >= 64 * 64 * 4 and report["bytes_after"] < 1024
    compare(folder / "in.onnx", folder / "out.onnx", {"x": floats(2, 64)}, 0)
    optimize(folder / "out.onnx", folder / "out.onnx", "--external-data")  # also as input, and over itself
    compare(folder / "in.onnx", folder / "out.onnx", {"x": floats(2, 64)}, 0)
    assert sorted(f.name for f in folder.iterdir()) == ["in.onnx", "out.onnx", "out.onnx.data"]
    assert "unread_data" not in report
    report = optimize(folder / "out.onnx", folder / "out.onnx")  # with its weights inside: what is left is told, and stays
    assert report["unread_data"] == str(folder / "out.onnx.data") and (folder / "out.onnx.data").exists()
    compare(folder / "in.onnx", folder / "out.onnx", {"x": floats(2, 64)}, 0)


def test_fixed_shapes(folder):
    big(folder)
    optimize(folder / "in.onnx", folder / "out.onnx", "--fix-shapes", "x=3x64")
    runner = session(folder / "out.onnx")
    assert runner.get_inputs()[0].shape == [3, 64]
    x = {"x": floats(3, 64)}
    numpy.testing.assert_array_equal(session(folder / "in.onnx").run(None, x)[0], runner.run(None, x)[0])


def test_extract(folder):
    big(folder)
    optimize(folder / "in.onnx", folder / "out.onnx", "--extract", "a:y")
    runner = session(folder / "out.onnx")
    assert [(v.name, v.shape) for v in runner.get_inputs()] == [("a", ["n", 64])]
    a = floats(3, 64)
    numpy.testing.assert_array_equal(runner.run(["y"], {"a": a})[0], numpy.maximum(a, 0))
    optimize(folder / "in.onnx", folder / "out.onnx", "--extract", "x:b,a")
    onnx.checker.check_model(str(folder / "out.onnx"), full_check=True)
    x = {"x": floats(2, 64)}
    b, a = session(folder / "out.onnx").run(["b", "a"], x)
    numpy.testing.assert_array_equal(b, session(folder / "in.onnx").run(None, x)[0])
    numpy.testing.assert_array_equal(b, numpy.maximum(a, 0))


def test_extract_at_what_nothing_reads(folder):
    text = """<ir_version: 8, opset_import: ["": 17]>
        g (float[n, 2] x) => (float[n, 2] y) { a = Relu(x) y = Neg(a) b = Exp(a) c, d = Split<axis = 1>(a) }"""
    onnx.save(parser.parse_model(text), folder / "in.onnx")
    x = floats(3, 2)
    for cut, feeds, expected in [("x:b", {"x": x}, [numpy.exp(numpy.maximum(x, 0))]), ("a:b,y", {"a": x}, [numpy.exp(x), -x]),
                                 ("a:d", {"a": x}, [x[:, 1:]]), ("x,b:a", {"x": x, "b": x}, [numpy.maximum(x, 0)])]:
        optimize(folder / "in.onnx", folder / "out.onnx", "--extract", cut)
        onnx.checker.check_model(str(folder / "out.onnx"), full_check=True)
        for a, b in zip(session(folder / "out.onnx").run(None, feeds), expected, strict=True):
            numpy.testing.assert_allclose(a, b, rtol=1e-6, err_msg=cut)


def test_extract_at_sequences_and_maps(folder):
    text = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>
        g (float[n, 2] x) => (float[m, 2] y, seq(map(string, float)) z) {
            s = SplitToSequence<axis = 0>(x)
            t = SequenceMap(s) <body = b (float[k, 2] a) => (float[k, 2] c) { c = Sin(a) }>
            o = Optional(t) p = OptionalGetElement(o)
            y = ConcatFromSequence<axis = 0>(p)
            z = ai.onnx.ml.ZipMap<classlabels_strings = ["a", "b"]>(x) }"""
    onnx.save(parser.parse_model(text), folder / "in.onnx")
    x = floats(3, 2)
    cuts = {"x:s": ({"x": x}, list(x[:, None])), "s:t": ({"s": list(x[:, None])}, list(numpy.sin(x[:, None]))),
            "t:y": ({"t": list(x[:, None])}, x), "x:o": ({"x": x}, list(numpy.sin(x[:, None]))),
            "x:z": ({"x": x}, [{"a": a, "b": b} for a, b in x.tolist()])}
    for cut, (feeds, expected) in cuts.items():
        optimize(folder / "in.onnx", folder / "out.onnx", "--extract", cut)
        onnx.checker.check_model(str(folder / "out.onnx"), full_check=True)
        found, = session(folder / "out.onnx").run(None, feeds)
        assert len(found) == len(expected), cut
        for a, b in zip(found, expected):
            if isinstance(b, dict):
                assert a == b, cut
            else:
                numpy.testing.assert_allclose(a, b, rtol=1e-6, err_msg=cut)


def test_errors(folder):
    big(folder)
    for flags, code, words in [
            (["--fix-shapes", "z=1x64"], 2, 'no input "z"'), (["--fix-shapes", "x=3"], 2, "2 axes"),
            (["--fix-shapes", "x=3x65"], 2, "axis 1 is 64"), (["--fix-shapes", "x=3xx64"], 2, "expected NAME="),
            (["--extract", "x:nothing"], 2, "expected INPUTS:OUTPUTS"), (["--extract", "x"], 2, "expected INPUTS:OUTPUTS"),
            (["--extract", ":y"], 2, 'input "x" is needed'), (["--extract", "x,x:y"], 2, "given twice"),
            (["--convert-opset", "6"], 2, "convert-opset"), (["--convert-opset", "99"], 2, "known are 7 to"),
            (["--regions", "--policy", folder / "none.json"], 4, "none.json"),
            (["--extract", "x:w"], 2, "is a constant"), (["--fix-shapes", "x"], 2, "expected NAME="), (["--fix-shapes", "x=-1x64"], 2, "expected NAME=")]:
        assert words in optimize(folder / "in.onnx", folder / "out.onnx", *flags, code=code), words
    (folder / "bad.onnx").write_bytes((folder / "in.onnx").read_bytes()[:500])
    optimize(folder / "bad.onnx", folder / "out.onnx", code=4)
    optimize(folder / "none.onnx", folder / "out.onnx", code=4)
    assert "none/out.onnx" in optimize(folder / "in.onnx", folder / "none/out.onnx", code=4)
    (folder / "taken").mkdir()  # the data could be written, the model cannot: neither is
    optimize(folder / "in.onnx", folder / "taken", "--external-data", code=4)
    left = sorted(f.name for f in folder.iterdir())
    assert left == ["bad.onnx", "in.onnx", "taken"], left
    (folder / "taken.data").write_text("as before")
    optimize(folder / "in.onnx", folder / "taken", "--external-data", code=4)
    left = sorted(f.name for f in folder.iterdir())
    assert left == ["bad.onnx", "in.onnx", "taken", "taken.data"] and (folder / "taken.data").read_text() == "as before", left


def main():
    failed, only = 0, os.environ.get("ONLY")  # a part of the names of the tests to run
    tests = [(name, test_case, case) for name, case in CASES.items()]
    tests += [(f"real model {name}", test_real, (name,)) for name in REAL_NODES]
    tests += [(f"real model {name} in other operator sets", test_real_opsets, (name,)) for name in REAL_NODES]
    tests += [(f"real model {name} with regions", test_real_regions, (name,)) for name in REAL_NODES]
    tests += [(f"converted: {name}", test_converted, case) for name, case in CONVERTED.items()]
    tests += [(f"refused: {name}", test_refused, case) for name, case in REFUSED.items()]
    tests += [(test.__name__, test, ()) for test in (
        test_maps, test_subgraphs_and_functions, test_function_called_twice, test_narrow_numbers_stay, test_node_cases, test_patterns_regions, test_regions_shared,
        test_regions_with_policy, test_regions_together)]
    tests += [(test.__name__, test, ()) for test in (test_in_place, test_external_data, test_fixed_shapes, test_extract, test_extract_at_what_nothing_reads, test_extract_at_sequences_and_maps, test_errors)]
    tests = [test for test in tests if not only or only in test[0]]
    for name, test, given in tests:
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(Path(folder), *given)
            except Exception as error:  # the next test may pass
                failed += 1
                print(f"FAIL {name}: {type(error).__name__}: {error}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
