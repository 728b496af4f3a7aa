#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The files that the documentation speaks of, of a kind that its readers have: files.py FOLDER. Needs numpy and onnx.

    model.onnx    an image classifier: x float32 [batch, 3, height, width] -> scores [batch, 4]; any size, from 1 x 1 on
    other.onnx    the same with one weight changed
    examples.npz  64 examples to train model.onnx on: x, target
    small.onnx    a product, a bias, a ReLU and a normalisation: x float32 [n, 8] -> y [n, 16]
    decoder.onnx  a language model with caches, their names as exporters give them; byte tokens among its vocabulary
    picture.npy   [1, 3, 224, 224]
    picture.png   a picture of another size
    names.txt     a line a class
    folder        the classifier of tests/models, with recorded inputs and outputs"""
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests/generation")]
import language_model  # noqa: E402
import numpy as np  # noqa: E402
from onnx_writer import Writer  # noqa: E402


def classifier(change=0.0):
    w = Writer(seed=1)
    x = w.input("x", ["batch", 3, "height", "width"])
    kernel = w.rng.standard_normal((8, 3, 16, 16)).astype(np.float32) / 16
    kernel[0, 0, 0, 0] += change
    y = w.op("Relu", w.op("Conv", x, w.const(kernel), strides=[16, 16], pads=[8, 8, 8, 8]))
    y = w.op("Flatten", w.op("GlobalAveragePool", y))
    y = w.op("MatMul", y, w.matrix(8, 4))
    w.output(w.op("Softmax", y, axis=-1), ["batch", 4])
    return w.bytes()


def small():
    """With names as a person would give them, since the documentation shows them."""
    from onnx import TensorProto, helper, numpy_helper

    constants = {"w": np.random.default_rng(0).standard_normal((8, 16)), "b": np.zeros(16), "scale": np.ones(16)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"], name="product"), helper.make_node("Add", ["p", "b"], ["q"], name="bias"),
             helper.make_node("Relu", ["q"], ["r"], name="relu"), helper.make_node("LayerNormalization", ["r", "scale"], ["y"], name="norm", axis=-1)]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size])] for name, size in (("x", 8), ("y", 16)))
    graph = helper.make_graph(nodes, "small", inputs, outputs, [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(classifier())
    (folder / "small.onnx").write_bytes(small())
    (folder / "decoder.onnx").write_bytes(language_model.build(layers=2, room=64).SerializeToString())
    (folder / "other.onnx").write_bytes(classifier(1.0))
    np.save(folder / "picture.npy", np.random.default_rng(2).random((1, 3, 224, 224), np.float32))
    shutil.copy(ROOT / "models/line.png", folder / "picture.png")
    random = np.random.default_rng(3)
    np.savez(folder / "examples.npz", x=random.random((64, 3, 32, 32), np.float32), target=np.eye(4, dtype=np.float32)[random.integers(0, 4, 64)])
    (folder / "names.txt").write_text("cat\ndog\nbird\nfish\n")
    shutil.copytree(ROOT / "tests/models/classifier", folder / "folder")


main()
