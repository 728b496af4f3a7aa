# SPDX-License-Identifier: Apache-2.0
"""Draws a model, node after node. Each node is run as soon as it is drawn (by ONNX Runtime, or the onnx package's evaluator where that does not
take it), so that sizes, ranges and types of all values are known when the next one is drawn. operators.py says how each operator is."""

import numpy as np
import onnx
from onnx import defs, helper

from engines import Refused
from judge import Chosen, asks
from model import Model, Source, is_float, is_text

NEWEST = defs.onnx_opset_version()
EXTENTS = [2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 33, 64, 70]
LARGEST = 20000  # elements of a value
DTYPES = [np.dtype(name) for name in "float32 float64 float16 int64 int32 int8 uint8 int16 uint16 uint32 uint64 bool".split()]
TEXT = np.dtype(object)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, -1e-45, 3e38, -3e38, 0.5, -2.5, 65504.0, 1e-7]
TEXTS = ["", "a", "B", "ab c", "é", "aB", "the", "1.5", "x,y"]


class Skip(Exception):
    """What was drawn cannot be had; something else is drawn."""


def fill(style, dtype):
    """(generator, shape) -> array."""
    dtype = np.dtype(dtype)

    def floats(rng, shape):
        if style == "grid":
            return (rng.integers(-12, 13, shape) / 4).astype(dtype)
        if style == "wide":
            return (rng.choice([-1, 1], shape) * 10.0 ** rng.uniform(-6, 3, shape)).astype(dtype)
        plain = rng.uniform(-2, 2, shape)
        if style == "special" and dtype != np.float16:
            plain = np.where(rng.integers(0, 3, shape) == 0, rng.choice(SPECIAL, shape), plain)
        with np.errstate(over="ignore"):
            return plain.astype(dtype)

    def integers(rng, shape):
        limits = np.iinfo(dtype)
        if style == "special":
            return np.where(rng.integers(0, 4, shape) == 0, rng.choice(np.array([limits.min, limits.max, 0, 1], dtype), shape),
                            rng.integers(0, 9, shape).astype(dtype))
        low = 0 if limits.min == 0 else -8
        return rng.integers(low, low + 17, shape).astype(dtype)

    if dtype == TEXT:
        return lambda rng, shape: rng.choice(TEXTS, shape).astype(object).reshape(shape)
    if dtype.kind == "b":
        return lambda rng, shape: rng.integers(0, 2, shape).astype(bool)
    return floats if dtype.kind == "f" else integers


def ranged(low, high):
    """A fill of floats in a range."""
    return lambda rng, shape, dtype: rng.uniform(low, high, shape).astype(dtype)


class Draw:
    def __init__(self, rng, rows, opset=None):
        self.rng, self.rows = rng, rows
        self.opset = opset or int(rng.choice([NEWEST, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7],
                                             p=np.array([2, 2, 2, 3, 5, 8, 10, 8, 8, 8, 8, 5, 5, 3, 10, 2, 3, 2, 2, 1, 1]) / 98))
        self.style = self.pick("plain", "plain", "plain", "plain", "grid", "grid", "wide", "special")
        extents = list(rng.choice(EXTENTS[:12] if self.chance(0.8) else EXTENTS, 4, replace=False))
        self.extents = [int(e) for e in extents]
        self.symbols = {size: f"s{k}" for k, size in enumerate(self.extents)}
        self.zeros = 0.1 if self.chance(0.1) else 0.0
        self.model = Model(self.opset)
        self.scope, self.count = [], 0
        self.main = DTYPES[0] if self.chance(0.75) else self.pick(*DTYPES)

    # --- choices ------------------------------------------------------------------------------------------------------
    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def chance(self, p):
        return bool(self.rng.random() < p)

    def below(self, n):
        return int(self.rng.integers(n))

    def extent(self):
        if self.chance(self.zeros):
            return 0
        return 1 if self.chance(0.15) else self.pick(*self.extents)

    def shape(self, rank=None):
        """A shape; rank: of what ranks."""
        low, high = rank if rank else (0, 4)
        if low == 0 and self.chance(0.9):
            low = 1
        while True:
            shape = tuple(self.extent() for _ in range(int(self.rng.integers(low, high + 1))))
            if np.prod(shape, dtype=np.int64) <= LARGEST // 4:
                return shape

    # --- values ---------------------------------------------------------------------------------------------------------
    def name(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def array(self, name):
        return self.model.values[name]

    def new(self, dtype, shape, how=None, exact=False, constant=None):
        """A value that no node makes. how: a fill other than the model's."""
        if np.prod(shape, dtype=float) > LARGEST:
            raise Skip
        how = how or fill(self.style, dtype)
        array = np.asarray(how(self.rng, shape))
        kind = "constant" if constant else "input" if constant is False else self.pick("input", "input", "input", "constant", "constant", "node")
        name = self.name({"input": "x", "constant": "w", "node": "c"}[kind])
        self.model.values[name] = array
        if kind == "node" and not is_text(array):
            self.emit(helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array)))
        else:
            sizes = () if exact else tuple(self.symbols.get(size) for size in shape)
            self.top.sources[name] = Source(array, how, sizes, kind != "input", exact)
        self.scope.append(name)
        return name

    def param(self, array, dynamic=0.08):
        """A parameter, mostly a constant."""
        name = self.new(array.dtype, array.shape, lambda rng, shape: array, exact=True, constant=not self.chance(dynamic))
        self.scope.remove(name)
        return name

    def find(self, dtype, where=lambda array: True, fresh=None):
        """One of the values of the type that there are, mostly one of the last; or what fresh() makes."""
        found = [name for name in self.scope if isinstance(self.array(name), np.ndarray) and self.array(name).dtype == dtype and where(self.array(name))]
        if found and (fresh is None or self.chance(0.85)):
            return found[-1 - min(int(self.rng.geometric(0.5)) - 1, len(found) - 1)]
        if fresh is None:
            raise Skip
        return fresh()

    # --- nodes ----------------------------------------------------------------------------------------------------------
    @property
    def top(self):
        return self.model

    def emit(self, node):
        self.model.nodes.append(node)

    def run(self, node):
        """The results of one node."""
        try:
            chosen = Chosen(node, self.opset, self.rows, False)
            if chosen.bodies:
                chosen.turns(self.model.values, None, asks(self.rows))
            return list(chosen(self.model.values).values())
        except Refused:
            raise Skip from None

    def add(self, op, inputs, attributes=None, outputs=1, needs=None):
        """A node, and what it gives; its outputs' names."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        made = [self.name("v") for _ in range(outputs)]
        node = helper.make_node(op, [name or "" for name in inputs], made, **(attributes or {}))
        arrays = [self.array(name) if name else None for name in inputs]
        if needs and not needs(arrays, node):
            raise Skip
        results = self.run(node)
        for name, result in zip(made, results):
            result = [np.asarray(item) for item in result] if isinstance(result, list) else result if result is None else np.asarray(result)
            if result is None or isinstance(result, np.ndarray) and (result.size > LARGEST or result.dtype.kind in "cV" and result.dtype.name != "bfloat16"):
                raise Skip
            if isinstance(result, list) and (not result or sum(item.size for item in result) > LARGEST):
                raise Skip
            if op.startswith("Reduce") and result.dtype != arrays[0].dtype:  # the reference evaluator widens small integers
                raise Skip
            if isinstance(result, np.ndarray) and result.dtype == np.float16 and not in_half(result, arrays):
                raise Skip
            self.model.values[name] = result
        self.emit(node)
        self.scope += made
        return made

    def finish(self):
        """The model, with outputs: what nobody reads, and some of the rest."""
        model = self.model
        read = set().union(*(set(node.input) for node in model.nodes)) if model.nodes else set()
        made = [name for node in model.nodes for name in node.output if name and node.op_type != "Constant"]
        model.outputs = [name for name in made if name not in read or self.chance(0.1)]
        model.outputs = [name for name in model.outputs if not isinstance(model.values[name], list) or model.values[name]]
        model.open_sizes = self.chance(0.6)
        model.threads = self.pick(1, 2)
        return model.pruned()


def in_half(result, arrays):
    """No number is near the end of f16's range, where what is stored on the way and what is not differ."""
    narrow = [a for a in [result, *arrays] if isinstance(a, np.ndarray) and is_float(a) and a.dtype == np.float16]
    return all(np.abs(a[~np.isnan(a)].astype(np.float32)).max(initial=0) < 3e4 for a in narrow)


class Node:
    """What a row of operators.py draws a node with: the operator's schema at the model's opset, and the types of this node."""

    def __init__(self, draw, op, schema):
        self.draw, self.op, self.schema, self.types = draw, op, schema, {}
        self.pick, self.chance, self.below, self.rng, self.opset = draw.pick, draw.chance, draw.below, draw.rng, draw.opset

    def allowed(self, text):
        for constraint in self.schema.type_constraints:
            if constraint.type_param_str == text:
                return set(constraint.allowed_type_strs)
        return {text}

    def dtype(self, k):
        """The type of an input: that of its type parameter, drawn once."""
        k = min(k, len(self.schema.inputs) - 1)
        text = self.schema.inputs[k].type_str
        if text not in self.types:
            allowed = self.allowed(text)
            fits = [dtype for dtype in DTYPES if type_text(dtype) in allowed]
            if "tensor(string)" in allowed and (not fits or self.chance(0.02)):
                fits = [TEXT]
            if not fits:
                raise Skip
            there = {self.draw.array(name).dtype for name in self.draw.scope if isinstance(self.draw.array(name), np.ndarray)} & set(fits)
            chosen = self.draw.main if self.draw.main in fits and self.chance(0.75) else None
            self.types[text] = chosen or (self.pick(*sorted(there, key=str)) if there and self.chance(0.6) else self.pick(*fits))
        return self.types[text]

    def takes(self, name):
        """Whether the operator has an attribute."""
        return name in self.schema.attributes

    def has_input(self, name):
        return any(formal.name == name for formal in self.schema.inputs)

    def attributes(self, **choices):
        """Of each attribute one of its choices; None: it is left out, as where the operator has none of that name."""
        chosen = {name: self.pick(*values) for name, values in choices.items() if self.takes(name)}
        return {name: value for name, value in chosen.items() if value is not None}

    def any(self, k=0, rank=None, where=lambda shape: True, how=None):
        """An input of any shape."""
        low, high = rank or (0, 9)
        dtype = self.dtype(k)

        def fresh():
            for _ in range(20):
                shape = self.draw.shape(rank)
                if where(shape):
                    return self.draw.new(dtype, shape, how and (lambda rng, s: how(rng, s, dtype)))
            raise Skip

        return self.draw.find(dtype, lambda a: low <= a.ndim <= high and where(a.shape), fresh)

    def shaped(self, k, shape, how=None, constant=None):
        """An input of this shape."""
        dtype, shape = self.dtype(k), tuple(int(s) for s in shape)
        fresh = lambda: self.draw.new(dtype, shape, how and (lambda rng, s: how(rng, s, dtype)), constant=constant)  # noqa: E731
        return fresh() if how else self.draw.find(dtype, lambda a: a.shape == shape, fresh)

    def beside(self, k, shape, grow=True):
        """An input that broadcasts with a shape; grow: axes of extent 1 of the shape may be repeated."""
        other = [self.draw.extent() if grow and s == 1 and self.chance(0.3) else 1 if self.chance(0.25) else s for s in shape]
        if self.chance(0.3):
            other = other[self.below(len(other) + 1):]
        elif grow and self.chance(0.1) and len(other) < 4:
            other = [self.draw.extent(), *other]
        dtype = self.dtype(k)

        def fits(array):
            if not grow and array.ndim > len(shape):
                return False
            return all(a == b or a == 1 or grow and b == 1 for a, b in zip(array.shape[::-1], shape[::-1]))

        if np.prod(np.broadcast_shapes(tuple(other), tuple(shape)), dtype=np.int64) > LARGEST:
            raise Skip
        return self.draw.find(dtype, fits, lambda: self.draw.new(dtype, tuple(other)))

    def param(self, values, dtype=np.int64, dynamic=0.08):
        return self.draw.param(np.asarray(values, dtype), dynamic)

    def shape(self, name):
        return self.draw.array(name).shape

    def axis(self, rank, extra=0):
        """An axis of a tensor, from either end."""
        if rank + extra == 0:
            raise Skip
        axis = self.below(rank + extra)
        return axis - rank - extra if self.chance(0.4) and self.opset >= 11 else axis

    def axes(self, rank, least=1, most=None):
        most = rank if most is None else most
        if rank < least:
            raise Skip
        count = int(self.rng.integers(least, most + 1))
        axes = sorted(int(a) for a in self.rng.choice(rank, count, replace=False))
        return [a - rank if self.chance(0.3) and self.opset >= 11 else a for a in axes]

    def told(self, name, values, inputs, attributes):
        """Hands parameters over as the input of that name where the operator has one, else as an attribute."""
        if self.has_input(name):
            inputs.append(self.param(values) if values is not None else None)
        elif values is not None:
            attributes[name] = values


def type_text(dtype):
    return {"float32": "tensor(float)", "float64": "tensor(double)", "object": "tensor(string)"}.get(dtype.name, f"tensor({dtype.name})")


def draw_model(rng, rows, only=None, tell=lambda phase: None):
    """A model of some nodes. rows: operators.ROWS; only: names of operators."""
    draw = Draw(rng, rows)
    draw.tell = tell
    names = [name for name in rows if not only or name in only]
    weights = np.array([rows[name].weight for name in names], float)
    wanted, tries = draw.pick(1, 1, 2, 3, 4, 6, 8, 10), 0
    if only:
        wanted = min(wanted, 3)
    done = 0
    while done < wanted and tries < 4 * wanted + 8:
        tries += 1
        done += draw_node(draw, rows, str(rng.choice(names, p=weights / weights.sum())))
    return draw.finish()


def draw_node(draw, rows, op):
    """Whether the operator could be drawn."""
    model, scope = draw.model, draw.scope
    kept = (len(model.nodes), set(model.sources), set(model.values), len(scope))
    try:
        schema = defs.get_schema(op, draw.opset, "")
    except defs.SchemaError:
        return False
    if schema.deprecated:
        return False
    row = rows[op]
    draw.tell(f"drawing {op}")
    try:
        node = Node(draw, op, schema)
        inputs, attributes, *rest = row.draw(node)
        draw.add(op, inputs, attributes, rest[0] if rest else max(schema.min_output, 1), row.needs)
        return True
    except Skip:
        del model.nodes[kept[0]:]
        del scope[kept[3]:]
        for there, before in ((model.sources, kept[1]), (model.values, kept[2])):
            for name in set(there) - before:
                del there[name]
        return False
