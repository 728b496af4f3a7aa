# SPDX-License-Identifier: Apache-2.0
"""A model while it is drawn, judged and made smaller: nodes, and what is known of each value. It becomes bytes in three ways: as it is
run by us; with all values as outputs; and with an input beside each float value that is added to it (what rounding may do)."""

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

OLDER = 21
NEUTRAL = -0.0  # x + -0 is x, for both zeros
FLOATS = "float16 bfloat16 float32 float64".split()


def is_float(value):
    return isinstance(value, np.ndarray) and value.dtype.name in FLOATS


def is_text(array):
    return array.dtype.kind in "OUS"


def tensor_dtype(array):
    return TensorProto.STRING if is_text(array) else helper.np_dtype_to_tensor_dtype(array.dtype)


@dataclass
class Source:
    """A value that no node makes."""

    array: object  # of the first sizes; a list: a sequence
    fill: object = None  # (generator, shape) -> array of other sizes; None: it has none
    sizes: tuple = ()  # names of sizes, or None where an axis has a fixed one
    constant: bool = False  # an initializer, else an input
    exact: bool = False  # a parameter (axes, bounds): rounding does not reach it


@dataclass
class Model:
    opset: int
    sources: dict = field(default_factory=dict)  # name -> Source
    nodes: list = field(default_factory=list)  # NodeProto
    outputs: list = field(default_factory=list)
    values: dict = field(default_factory=dict)  # name -> array or list, of the first sizes: all values outside of subgraphs
    open_sizes: bool = False  # inputs have names of sizes
    threads: int = 1

    def with_(self, **changes):
        return replace(self, **changes)

    def pruned(self):
        """Without what no output needs."""
        wanted, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if wanted & set(node.output):
                kept.append(node)
                wanted |= reads(node)
        return self.with_(nodes=kept[::-1], sources={name: source for name, source in self.sources.items() if name in wanted})

    def bytes(self):
        declared, initializers = [], []
        for name, source in self.sources.items():
            if source.constant:
                initializers.append(numpy_helper.from_array(source.array, name) if not is_text(source.array) else text_tensor(source.array, name))
                continue
            sizes = None if isinstance(source.array, list) else source.array.shape
            if self.open_sizes and sizes:
                sizes = [symbol or size for symbol, size in zip(source.sizes or [None] * len(sizes), sizes)]
            declared.append(info_of(name, source.array, sizes))
        ends = [info_of(name, self.values[name], None) for name in self.outputs]
        return serialized(self.nodes, declared, ends, initializers, self.opset)

    def feeds(self):
        return {name: source.array for name, source in self.sources.items() if not source.constant}


@cache
def means_as_before(op, opset):
    try:
        new, old = defs.get_schema(op, opset, ""), defs.get_schema(op, OLDER, "")
    except defs.SchemaError:
        return False
    return set(new.attributes) == set(old.attributes) and [i.name for i in new.inputs] == [i.name for i in old.inputs]


def serialized(nodes, inputs, outputs, initializers, opset):
    graph = helper.make_graph(nodes, "drawn", inputs, outputs, initializers)
    ir = 13 if opset > 25 else 11 if opset > 22 else 10 if opset > 20 else 8
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir).SerializeToString()


def info_of(name, value, sizes):
    """What a graph says of an input or output; sizes None: no shape."""
    if isinstance(value, list):
        return helper.make_tensor_sequence_value_info(name, tensor_dtype(value[0]) if value else TensorProto.FLOAT, None)
    return helper.make_tensor_value_info(name, tensor_dtype(value), sizes)


def of_node(node, opset, feeds):
    """A model of one node, which leaves the types of its results to the engine."""
    inputs = [info_of(name, value, None if isinstance(value, list) or value.ndim else ()) for name, value in feeds.items()]
    return serialized([node], inputs, [helper.make_empty_tensor_value_info(name) for name in node.output if name], [], opset)


def older(node, opset):
    """The version that ONNX Runtime has all of, where the standard has added nothing but types to the operators since; else this one."""
    return OLDER if opset > OLDER and all(means_as_before(word, opset) for word in words(node)) else opset


def text_tensor(array, name):
    return helper.make_tensor(name, TensorProto.STRING, array.shape, [str(text).encode() for text in array.ravel()])


def graphs_of(node):
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g


def reads(node):
    """What a node reads, with what its subgraphs take from outside."""
    found = set(filter(None, node.input))
    for graph in graphs_of(node):
        inside = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        for inner in graph.node:
            found |= reads(inner) - inside
            inside |= set(inner.output)
        found |= {value.name for value in graph.output} - inside
    return found


def words(node):
    """Names of the operators of a node and of its subgraphs."""
    inner = [word for graph in graphs_of(node) for n in graph.node for word in words(n)]
    return [node.op_type, *inner]
