# SPDX-License-Identifier: Apache-2.0
"""The models that the server is tested with."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import onnx_writer  # noqa: E402

onnx_writer.TYPES.update(string=8, uint32=12, uint64=13, bfloat16=16)
ELEMENTS = {"BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "INT8": "int8", "INT16": "int16",
            "INT32": "int32", "INT64": "int64", "FP16": "float16", "FP32": "float32", "FP64": "float64", "BF16": "bfloat16", "BYTES": "string"}
WIDTH, SLOW_WIDTH = 8, 1024


def dense():
    """Rows that know nothing of each other: x [batch, 8] -> y [batch, 4], sum [batch]."""
    w = onnx_writer.Writer()
    x = w.input("x", ["batch", WIDTH])
    w.output(w.op("Tanh", w.op("MatMul", x, w.matrix(WIDTH, 4))), ["batch", 4])
    w.output(w.op("ReduceSum", x, w.const([1], "int64"), keepdims=0), ["batch"])
    return w


def words():
    """Rows of any length, and one input of integers: x [batch, length], scale [batch, 1] -> y."""
    w = onnx_writer.Writer()
    x, scale = w.input("x", ["batch", "length"]), w.input("scale", ["batch", 1], "int64")
    w.output(w.op("Mul", x, w.op("Cast", scale, to=1)), ["batch", "length"])
    return w


def gather():
    """Rows that may be wrong: an index beyond the table."""
    w = onnx_writer.Writer()
    x = w.input("x", ["batch", 2], "int64")
    w.output(w.op("Gather", w.matrix(16, 3), x), ["batch", 2, 3])
    return w


def fixed():
    w = onnx_writer.Writer()
    w.output(w.op("Neg", w.input("x", [2, 3])), [2, 3])
    return w


def slow():
    """n [1] -> y [n]: as slow as n is large."""
    w = onnx_writer.Writer()
    n = w.input("n", [1], "int64")
    value = w.op("Expand", w.vector(SLOW_WIDTH), w.op("Concat", n, w.const([SLOW_WIDTH], "int64"), axis=0))
    for _ in range(8):
        value = w.op("Tanh", w.op("MatMul", value, w.matrix(SLOW_WIDTH, SLOW_WIDTH)))
    w.output(w.op("ReduceMean", value, w.const([1], "int64"), keepdims=0), ["n"])
    return w


def echo(element):
    w = onnx_writer.Writer()
    w.output(w.op("Identity", w.input("x", ["batch", "n"], element)), ["batch", "n"], element)
    return w


def scalar():
    w = onnx_writer.Writer()
    w.output(w.op("Add", w.input("x", []), w.input("y0", [])), [])
    return w


def sequence():
    """What the protocol has no place for: a sequence."""
    w = onnx_writer.Writer()
    w.output(w.op("SplitToSequence", w.input("x", ["batch", 2])), [])
    return w


def classifier():
    """The end of a classifier that scikit-learn's exporter has written: a sequence of maps."""
    w = onnx_writer.Writer()
    w.output(w.op("ZipMap", w.input("x", ["batch", 2]), domain="ai.onnx.ml", classlabels_strings=["no", "yes"]), [])
    return w


def features():
    """A map from int64 to float32 as an input."""
    w = onnx_writer.Writer()
    block, number = onnx_writer.block, onnx_writer.number
    w.inputs.append(block(1, "x") + block(2, block(5, number(1, 7) + block(2, block(1, number(1, 1))))))
    w.output(w.op("DictVectorizer", "x", domain="ai.onnx.ml", int64_vocabulary=[1, 2]), [1, 2])
    return w


def write(folder):
    """name -> path"""
    folder.mkdir(parents=True, exist_ok=True)
    models = {"dense": dense(), "words": words(), "gather": gather(), "fixed": fixed(), "slow": slow(), "scalar": scalar(),
              "sequence": sequence(), "classifier": classifier(), "features": features()}
    models |= {f"echo_{datatype}": echo(element) for datatype, element in ELEMENTS.items()}
    paths = {}
    for name, writer in models.items():
        paths[name] = folder / f"{name}.onnx"
        paths[name].write_bytes(writer.bytes())
    return paths


def samples(datatype, rng):
    """Arrays [3, 4] with the least and the largest elements."""
    if datatype == "BYTES":
        array = np.empty((3, 4), np.object_)
        array.ravel()[:] = [b"", b"a", "\u00e9\u20ac\U0001f600".encode(), b'"\\\n\t', b"x" * 300] + [b"%d" % i for i in range(7)]
        return array
    if datatype == "BOOL":
        return rng.random((3, 4)) < 0.5
    kind = np.dtype(ELEMENTS[datatype]) if datatype != "BF16" else np.dtype(np.uint16)
    if datatype == "BF16":
        return (rng.standard_normal((3, 4)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    if kind.kind == "f":
        limits = np.finfo(kind)
        array = rng.standard_normal((3, 4)).astype(kind)
        array.ravel()[:4] = [limits.max, limits.min, limits.tiny, -0.0]
        return array
    limits = np.iinfo(kind)
    array = rng.integers(limits.min, limits.max, (3, 4), kind, endpoint=True)
    array.ravel()[:2] = [limits.min, limits.max]
    return array
