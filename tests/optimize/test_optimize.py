#!/usr/bin/env python3
"""Optimizes models and compares them with what they were: results in ONNX Runtime, names, types, number of nodes.

    test_optimize.py PROGRAM REAL

PROGRAM is onnxfuse, REAL the folder that scripts/real_models.py writes."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
program, real = Path(sys.argv[1]), Path(sys.argv[2])
rng = numpy.random.default_rng(5)
# Nodes that are left at most, subgraphs included.
REAL_NODES = {"magika": 72, "minilm": 227, "ocr_cls": 143, "ocr_det": 221, "ocr_rec": 278, "silero_vad": 287}


def optimize(path, out, *flags, code=0):
    done = subprocess.run([program, "optimize", path, "-o", out, "--json", *flags], capture_output=True, text=True)
    assert done.returncode == code, f"exit code {done.returncode}, not {code}: {done.stderr}"
    return json.loads(done.stdout.splitlines()[-1]) if code == 0 else done.stderr


def session(path):
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def interface(runner):
    """Of an output that declares no sizes, the runtime may find more in the new model."""
    return [(v.name, v.type, v.shape) for v in runner.get_inputs()], [(v.name, v.type) for v in runner.get_outputs()]


def compare(before, after, feeds, tolerance, least=1e-30):
    """least: outputs below it are rounding errors, as probabilities of nothing are."""
    onnx.checker.check_model(str(after), full_check=True)
    old, new = session(before), session(after)
    assert interface(old) == interface(new), (interface(old), interface(new))
    for x, y in zip(old.run(None, feeds), new.run(None, feeds)):
        assert x.dtype == y.dtype and x.shape == y.shape, (x.dtype, x.shape, y.dtype, y.shape)
        if x.dtype.kind == "f":
            numpy.testing.assert_allclose(x, y, rtol=tolerance, atol=max(least, tolerance * numpy.abs(x).max(initial=0)))
        else:
            numpy.testing.assert_array_equal(x, y)


def recorded(folder):
    tensor = TensorProto()
    result = []
    for file in sorted(folder.glob("input_*.pb"), key=lambda p: int(p.stem.split("_")[1])):
        tensor.ParseFromString(file.read_bytes())
        result.append(numpy_helper.to_array(tensor))
    return result


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
    compare(folder / "in.onnx", folder / "out.onnx", {"x": floats(*shape)}, 1e-5)


def test_real(folder, name):
    path = real / name / "model.onnx"
    report = optimize(path, folder / "out.onnx")
    assert report["nodes_after"] <= REAL_NODES[name], f"{report['nodes_after']} nodes are left"
    assert report["bytes_after"] <= report["bytes_before"] * 1.02 + 4096
    names = [v.name for v in session(path).get_inputs()]
    for data in sorted((real / name).glob("test_data_set_*")):
        compare(path, folder / "out.onnx", dict(zip(names, recorded(data))), 1e-4, 1e-6)


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


def test_errors(folder):
    big(folder)
    for flags, code, words in [
            (["--fix-shapes", "z=1x64"], 2, 'no input "z"'), (["--fix-shapes", "x=3"], 2, "2 axes"),
            (["--fix-shapes", "x=3x65"], 2, "axis 1 is 64"), (["--fix-shapes", "x=3xx64"], 2, "expected NAME="),
            (["--extract", "x:nothing"], 2, "expected INPUTS:OUTPUTS"), (["--extract", "x"], 2, "expected INPUTS:OUTPUTS"),
            (["--extract", ":y"], 2, 'input "x" is needed'), (["--extract", "x,x:y"], 2, "given twice"),
            (["--extract", "x:w"], 2, "is a constant"), (["--fix-shapes", "x"], 2, "expected NAME="), (["--fix-shapes", "x=-1x64"], 2, "expected NAME=")]:
        assert words in optimize(folder / "in.onnx", folder / "out.onnx", *flags, code=code), words
    (folder / "bad.onnx").write_bytes((folder / "in.onnx").read_bytes()[:500])
    optimize(folder / "bad.onnx", folder / "out.onnx", code=4)
    optimize(folder / "none.onnx", folder / "out.onnx", code=4)
    assert "none/out.onnx" in optimize(folder / "in.onnx", folder / "none/out.onnx", code=4)
    (folder / "taken").mkdir()
    optimize(folder / "in.onnx", folder / "taken", "--external-data", code=4)
    left = sorted(f.name for f in folder.iterdir())
    assert left == ["bad.onnx", "in.onnx", "taken", "taken.data"] or left == ["bad.onnx", "in.onnx", "taken"], left


def main():
    failed = 0
    tests = [(name, test_case, case) for name, case in CASES.items()]
    tests += [(f"real model {name}", test_real, (name,)) for name in REAL_NODES]
    tests += [(test.__name__, test, ()) for test in (test_in_place, test_external_data, test_fixed_shapes, test_extract, test_errors)]
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
