# SPDX-License-Identifier: Apache-2.0
"""If, Loop and Scan: bodies are drawn as models are, in a scope of their own over what the nodes around them have."""

import numpy as np
from onnx import helper

from draw import Draw, Skip, draw_node
from model import Model, tensor_dtype

INSIDE = ("Abs Neg Relu Sigmoid Tanh Exp Add Sub Mul Div Where Max Sum Softmax ReduceSum ReduceMean MatMul Gemm Transpose Reshape Concat Slice Cast Equal Less "
          "Clip Gather Unsqueeze Expand Identity Erf").split()


AGAIN = [op for op in INSIDE if op not in ("Div", "Cast")]  # in a loop: what comes later may be 0, or out of an integer's range


class Inner(Draw):
    """A body. Constants that are drawn in it are initializers or inputs of the model around it, or its own nodes."""

    def __init__(self, outer):
        self.__dict__.update(outer.__dict__)
        self.outer, self.model = outer, Model(outer.opset, outer.top.sources, [], [], outer.model.values)
        self.scope = list(outer.scope)

    @property
    def top(self):
        return self.outer.top

    def body(self, count, words=AGAIN):
        for _ in range(count * 3):
            if count and draw_node(self, self.rows, self.pick(*words)):
                count -= 1
        self.outer.count = self.count

    def keep(self, name):
        """Has a value made inside, so that it can be an output."""
        if any(name in node.output for node in self.model.nodes):
            return name
        same = self.name("v")
        self.emit(helper.make_node("Identity", [name], [same]))
        self.model.values[same] = self.array(name)
        return same

    def of_type(self, dtype, shape):
        """A value of this type and shape: one that is there, or what it takes to make one of it."""
        made = {name for node in self.model.nodes for name in node.output}
        found = [name for name in self.scope if isinstance(self.array(name), np.ndarray) and self.array(name).dtype == dtype and self.array(name).shape == shape]
        inside = [name for name in found if name in made]
        if inside or found:
            return self.keep((inside or found)[-1])
        return self.keep(self.new(dtype, shape))


def graph_of(inner, name, inputs, outputs):
    ends = [helper.make_tensor_value_info(n, tensor_dtype(inner.array(n)), None) for n in outputs]
    return helper.make_graph(inner.model.nodes, name, inputs, ends)


def branches(n):
    draw = n.draw
    if not draw.scope:
        raise Skip
    one = Inner(draw)
    one.body(1 + n.below(3), INSIDE)
    result = one.keep(one.scope[-1])
    value = one.array(result)
    if not isinstance(value, np.ndarray):
        raise Skip
    draw.count = one.count
    two = Inner(draw)
    two.body(n.below(3), INSIDE)
    other = two.of_type(value.dtype, value.shape)
    draw.count = two.count
    condition = draw.find(np.dtype(bool), lambda a: a.size == 1, lambda: draw.new(np.dtype(bool), n.pick((), (1,)), constant=n.chance(0.2)))
    return [condition], {"then_branch": graph_of(one, "then", [], [result]), "else_branch": graph_of(two, "else", [], [other])}, 1


def entering(inner, names, arrays):
    """Inputs of a body."""
    for name, array in zip(names, arrays):
        inner.model.values[name] = array
        inner.scope.append(name)
    return [helper.make_tensor_value_info(name, tensor_dtype(array), None if array.ndim else ()) for name, array in zip(names, arrays)]


def carried(n, count):
    names = [name for name in n.draw.scope if isinstance(n.draw.array(name), np.ndarray) and n.draw.array(name).dtype.kind in "fi"]
    if not names:
        names = [n.draw.new(np.dtype(np.float32), n.draw.shape())]
    return [n.pick(*names[-4:]) for _ in range(count)]


def loop(n):
    draw = n.draw
    starts = carried(n, n.pick(1, 1, 2))
    inner = Inner(draw)
    inside = [inner.name("b") for _ in range(len(starts) + 2)]
    inputs = entering(inner, inside, [np.array(0), np.array(True), *(draw.array(name) for name in starts)])
    inner.body(1 + n.below(3))
    going = inside[1] if n.chance(0.7) else inner.of_type(np.dtype(bool), ())
    ends = [inner.keep(going)]
    for name in starts:
        ends.append(inner.of_type(draw.array(name).dtype, draw.array(name).shape))
    scans = []
    if n.chance(0.5):
        last = inner.scope[-1]
        if isinstance(inner.array(last), np.ndarray):
            scans = [inner.keep(last)]
    if len(set(ends)) != len(ends):
        raise Skip
    draw.count = inner.count
    trips = n.param(n.pick(0, 1, 2, 3, 5) if not scans else n.pick(1, 2, 3, 5), dynamic=0.5)
    condition = n.param(True, np.bool_, 0.3) if n.chance(0.5) else None
    return [trips, condition, *starts], {"body": graph_of(inner, "body", inputs, ends + scans)}, len(starts) + len(scans)


def scan(n):
    draw = n.draw
    if n.opset < 9:
        raise Skip
    sources = [name for name in draw.scope if isinstance(draw.array(name), np.ndarray) and draw.array(name).ndim and draw.array(name).shape[0] and draw.array(name).dtype.kind in "fi"]
    if not sources:
        raise Skip
    rows, starts = n.pick(*sources[-4:]), carried(n, n.pick(0, 1, 1))
    inner = Inner(draw)
    inside = [inner.name("b") for _ in range(len(starts) + 1)]
    inputs = entering(inner, inside, [*(draw.array(name) for name in starts), draw.array(rows)[0]])
    inner.body(1 + n.below(3))
    ends = [inner.of_type(draw.array(name).dtype, draw.array(name).shape) for name in starts]
    last = inner.scope[-1]
    if not isinstance(inner.array(last), np.ndarray):
        raise Skip
    ends.append(inner.keep(last) if last not in ends else inner.of_type(inner.array(last).dtype, inner.array(last).shape))
    if len(set(ends)) != len(ends):
        raise Skip
    draw.count = inner.count
    directions = {"scan_input_directions": [n.below(2)], "scan_output_directions": [n.below(2)]} if n.chance(0.4) else {}
    return [*starts, rows], {"num_scan_inputs": 1, "body": graph_of(inner, "body", inputs, ends), **directions}, len(ends)
