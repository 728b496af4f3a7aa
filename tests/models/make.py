#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the small models beside this file, which tests open. Each has a folder laid out as a backend test, with outputs that numpy
computes here.

    make.py          (needs onnx and numpy)"""

import shutil
from pathlib import Path

import numpy
from onnx import TensorProto, checker, helper, numpy_helper

HERE = Path(__file__).resolve().parent
FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def write(name, graph, data_sets):
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("example.test", 1)], ir_version=8)
    checker.check_model(model, full_check=True)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for number, (inputs, outputs) in enumerate(data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        for role, declared, values in (("input", graph.input, inputs), ("output", graph.output, outputs)):
            for position, (about, value) in enumerate(zip(declared, values)):
                (data / f"{role}_{position}.pb").write_bytes(numpy_helper.from_array(value, about.name).SerializeToString())


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def classifier():
    """Two dense layers with a residual, a layer norm and a softmax over 10 classes; any batch."""
    random = numpy.random.default_rng(3)
    weights = {name: (random.standard_normal(shape) / numpy.sqrt(shape[0])).astype(numpy.float32)
               for name, shape in (("w1", (16, 16)), ("b1", (16,)), ("scale", (16,)), ("shift", (16,)), ("w2", (16, 10)), ("b2", (10,)))}
    node = helper.make_node
    nodes = [node("MatMul", ["x", "w1"], ["product"], "dense_1"), node("Add", ["product", "b1"], ["sum"]),
             node("Relu", ["sum"], ["active"]), node("Add", ["active", "x"], ["residual"]),
             node("LayerNormalization", ["residual", "scale", "shift"], ["normal"], "norm", axis=-1),
             node("Gemm", ["normal", "w2", "b2"], ["logits"], "dense_2"), node("Softmax", ["logits"], ["scores"], axis=-1)]
    graph = helper.make_graph(nodes, "classifier", [helper.make_tensor_value_info("x", FLOAT, ["batch", 16])],
                              [helper.make_tensor_value_info("scores", FLOAT, ["batch", 10])],
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])

    def run(x):
        y = numpy.maximum(x @ weights["w1"] + weights["b1"], 0) + x
        y = (y - y.mean(-1, keepdims=True)) / numpy.sqrt(y.var(-1, keepdims=True) + 1e-5) * weights["scale"] + weights["shift"]
        return softmax(y @ weights["w2"] + weights["b2"])

    inputs = [random.standard_normal((batch, 16)).astype(numpy.float32) for batch in (1, 5, 64)]
    write("classifier", graph, [([x], [run(x)]) for x in inputs])


def loop():
    """state = state * 0.5 + x, `steps` times."""
    node = helper.make_node
    body = helper.make_graph(
        [node("Mul", ["state", "half"], ["less"]), node("Add", ["less", "x"], ["next"]), node("Identity", ["going"], ["goes_on"])],
        "body", [helper.make_tensor_value_info("step", INT64, []), helper.make_tensor_value_info("going", TensorProto.BOOL, []),
                 helper.make_tensor_value_info("state", FLOAT, ["n"])],
        [helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []), helper.make_tensor_value_info("next", FLOAT, ["n"])])
    graph = helper.make_graph(
        [node("Loop", ["steps", "", "x"], ["last"], "repeat", body=body)], "loop",
        [helper.make_tensor_value_info("x", FLOAT, ["n"]), helper.make_tensor_value_info("steps", INT64, [])],
        [helper.make_tensor_value_info("last", FLOAT, ["n"])], [numpy_helper.from_array(numpy.float32(0.5), "half")])

    def run(x, steps):
        state = x
        for _ in range(steps):
            state = state * numpy.float32(0.5) + x
        return state

    cases = [(numpy.linspace(-2, 3, size, dtype=numpy.float32), steps) for size, steps in ((4, 3), (9, 0), (1, 20))]
    write("loop", graph, [([x, numpy.array(steps, numpy.int64)], [run(x, steps)]) for x, steps in cases])


def names():
    """Strings, an output's name with a slash, and a random output."""
    node = helper.make_node
    graph = helper.make_graph(
        [node("Identity", ["words"], ["the/words"]), node("RandomNormalLike", ["x"], ["noise"]), node("Shape", ["x"], ["sizes"])],
        "names", [helper.make_tensor_value_info("words", STRING, ["n"]), helper.make_tensor_value_info("x", FLOAT, [2, 3])],
        [helper.make_tensor_value_info("the/words", STRING, ["n"]), helper.make_tensor_value_info("noise", FLOAT, [2, 3]),
         helper.make_tensor_value_info("sizes", INT64, [2])])
    words = numpy.array(["one", "zwölf", ""], object)
    x = numpy.zeros((2, 3), numpy.float32)
    write("names", graph, [([words, x], [words, x, numpy.array([2, 3], numpy.int64)])])


def unsupported():
    """An operator of a domain that nobody knows."""
    graph = helper.make_graph([helper.make_node("Frobnicate", ["x"], ["y"], "the_node", domain="example.test")], "unsupported",
                              [helper.make_tensor_value_info("x", FLOAT, [2])], [helper.make_tensor_value_info("y", FLOAT, [2])])
    x = numpy.zeros(2, numpy.float32)
    write("unsupported", graph, [([x], [x])])


def sizes():
    """Inputs whose sizes are free in all ways: names that are no identifiers, no name, within a sequence; and a picture's."""
    node, info = helper.make_node, helper.make_tensor_value_info
    items = helper.make_tensor_sequence_value_info("items", FLOAT, ["any"])
    nodes = [node("Add", ["a", "b"], ["sum"]), node("Cast", ["ids"], ["marks"], to=FLOAT), node("Mul", ["b", "marks"], ["marked"]),
             node("SequenceAt", ["items", "zero"], ["item"]), node("Identity", ["picture"], ["pixels"]),
             node("Neg", ["odd"], ["odder"])]
    graph = helper.make_graph(
        nodes, "sizes",
        [info("a", FLOAT, ["rows.0", None]), info("b", FLOAT, ["rows.0", "width"]), info("ids", INT64, ["width"]), items,
         info("odd", FLOAT, ['h"ö\\']),
         info("picture", FLOAT, [1, 3, "height", 4])],
        [info("sum", FLOAT, ["rows.0", None]), info("marked", FLOAT, ["rows.0", "width"]), info("item", FLOAT, [None]),
         info("pixels", FLOAT, [1, 3, "height", 4]), info("odder", FLOAT, ['h"ö\\'])],
        [numpy_helper.from_array(numpy.int64(0), "zero")])
    write("sizes", graph, [])


if __name__ == "__main__":
    sizes()
    unsupported()
    classifier()
    loop()
    names()
