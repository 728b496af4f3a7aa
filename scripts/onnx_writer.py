# SPDX-License-Identifier: Apache-2.0
"""Writes ONNX models and tensors with nothing but numpy: the few messages of onnx.proto that small models need, in protobuf's
wire format. For machines that have no onnx package."""

import struct

import numpy as np

TYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float16": 10, "float64": 11}


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def tensor(array, name=""):
    """A TensorProto."""
    array = np.asarray(array, order="C")
    dims = b"".join(number(1, d) for d in array.shape)
    return dims + number(2, TYPES[array.dtype.name]) + block(8, name) + block(9, array.tobytes())


def attribute(name, value):
    head = block(1, name)
    if isinstance(value, float):
        return head + varint(2 << 3 | 5) + struct.pack("<f", value) + number(20, 1)
    if isinstance(value, int):
        return head + number(3, value) + number(20, 2)
    if isinstance(value, str):
        return head + block(4, value) + number(20, 3)
    if isinstance(value, Writer):
        return head + block(6, value.graph()) + number(20, 5)
    if value and isinstance(value[0], str):
        return head + b"".join(block(9, v) for v in value) + number(20, 8)
    return head + b"".join(number(8, v) for v in value) + number(20, 7)


def value_info(name, dtype, dims):
    shape = b"".join(block(1, block(2, d) if isinstance(d, str) else number(1, d)) for d in dims)
    return block(1, name) + block(2, block(1, number(1, TYPES[dtype]) + block(2, shape)))


class Writer:
    """One graph; op() adds a node and gives the name of its output. A graph with a prefix of its own, before all its names, is an
    attribute of a node of another graph, whose values it may read."""

    def __init__(self, dtype="float32", seed=0, prefix=""):
        self.dtype, self.prefix = dtype, prefix
        self.domains = set()  # beside the standard's
        self.rng = np.random.default_rng(seed)
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []
        self.weights = {}  # name -> array
        self.shapes = {}  # input -> (dtype, dims)

    def input(self, name, dims, dtype=None):
        dtype = dtype or self.dtype
        self.inputs.append(value_info(name, dtype, dims))
        self.shapes[name] = (dtype, list(dims))
        return name

    def const(self, array, dtype=None):
        array = np.asarray(array, dtype=dtype or self.dtype)
        name = f"{self.prefix}w{len(self.weights)}"
        self.weights[name] = array
        self.initializers.append(tensor(array, name))
        return name

    def vector(self, n, base=0.0):
        return self.const(base + 0.1 * self.rng.standard_normal(n, dtype=np.float32))

    def matrix(self, *dims):
        return self.const(self.rng.standard_normal(dims, dtype=np.float32) / np.sqrt(dims[0] if len(dims) == 2 else np.prod(dims[1:])))

    def op(self, kind, *inputs, outputs=1, domain="", **attributes):
        names = [f"{self.prefix}v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.domains |= {domain} - {""}
        for value in attributes.values():
            self.domains |= value.domains if isinstance(value, Writer) else set()
        self.nodes.append(b"".join(block(1, i) for i in inputs) + b"".join(block(2, o) for o in names) + block(4, kind)
                          + b"".join(block(5, attribute(k, v)) for k, v in attributes.items()) + (block(7, domain) if domain else b""))
        return names[0] if outputs == 1 else names

    def output(self, value, dims, dtype=None):
        name = self.prefix + (f"y{len(self.outputs)}" if self.outputs else "y")
        self.nodes.append(block(1, value) + block(2, name) + block(4, "Identity"))
        self.outputs.append(value_info(name, dtype or self.dtype, dims))

    def graph(self):
        """A GraphProto."""
        graph = b"".join(block(1, n) for n in self.nodes) + block(2, self.prefix or "pattern")
        graph += b"".join(block(5, i) for i in self.initializers)
        return graph + b"".join(block(11, i) for i in self.inputs) + b"".join(block(12, o) for o in self.outputs)

    def bytes(self, opset=21):
        opsets = block(8, block(1, "") + number(2, opset)) + b"".join(block(8, block(1, d) + number(2, 1)) for d in sorted(self.domains))
        return number(1, 10) + block(2, "onnxfuse") + block(7, self.graph()) + opsets
