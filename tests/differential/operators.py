# SPDX-License-Identifier: Apache-2.0
"""How each operator's inputs and attributes are drawn: a row an operator. Types, and which attributes there are, come from the standard's
schema at the model's opset. `needs` keeps out what the standard leaves undefined, which is said beside it."""

from dataclasses import dataclass

import numpy as np
from onnx import TensorProto, helper

import control
from conditions import (
    adds_up, axes_at_all, batches, both, bounded, casts, clips, covers, divides, enough, equal_sizes, even, finite, floats, gather_size, gathers_rows, known_sums, labels,
    letters, level, masks, moderate, multiplies, near, no_integers, no_nan, no_peak, no_text, powers, products, quantizes, reaches, scaled, scattered, scatters,
    scatters_rows, shifts, small, some, starts_within, sums, tame, told_apart, told_ratios, two_points, whole_sizes, windows, within,
)
from draw import DTYPES, TEXT, Skip, ranged


@dataclass(frozen=True)
class Row:
    draw: object  # Node -> (inputs, attributes[, number of outputs])
    weight: float = 1
    needs: object = None  # (arrays of the inputs, NodeProto) -> whether the standard says what comes out
    reference: str = ""  # why the reference evaluator is not asked


# --- elementwise ----------------------------------------------------------------------------------------------------------
def unary(**choices):
    return lambda n: ([n.any()], n.attributes(**choices))


def binary(grow=True, **choices):
    def draw(n):
        a = n.any(0)
        b = n.beside(1, n.shape(a), grow)
        return ([b, a] if grow and n.dtype(0) == n.dtype(1) and n.chance(0.3) else [a, b]), n.attributes(**choices)

    return draw


def variadic(n):
    names = [n.any()]
    while len(names) < 4 and n.chance(0.6):
        shape = np.broadcast_shapes(*(n.shape(name) for name in names))
        names.append(n.beside(0, shape))
    return names, {}


def modulo(n):
    a = n.any()
    return [a, n.beside(1, n.shape(a))], {"fmod": 1} if n.dtype(0).kind == "f" or n.chance(0.3) else {}


def where(n):
    c = n.any(0)
    x = n.beside(1, n.shape(c))
    return [c, x, n.beside(2, np.broadcast_shapes(n.shape(c), n.shape(x)))], {}


def clip(n):
    x, inputs, attributes = n.any(), [], {}
    low, high = n.pick((None, 1), (0, None), (-1, 1), (0, 6), (None, None), (-0.5, 0.25))
    if n.dtype(0).kind == "u":
        low = low and max(low, 0)
    for name, value in (("min", low), ("max", high)):
        if n.has_input(name):
            inputs.append(None if value is None else n.param(value, n.dtype(0)))
        elif value is not None:
            attributes[name] = float(value)
    return [x, *inputs], attributes


def casting(n):
    choices = [d for d in DTYPES if d != n.dtype(0)]
    return [n.any()], {"to": helper.np_dtype_to_tensor_dtype(n.pick(*choices))}


def cast_like(n):
    return [n.any(0), n.any(1)], {}


def quantize(n):
    x = n.any()
    rank, shape = len(n.shape(x)), n.shape(x)
    axis = n.axis(rank) if rank and n.schema.attributes.get("axis") and n.chance(0.5) else None
    count = () if axis is None else (shape[axis],)
    if 0 in count:
        raise Skip
    n.types[n.schema.inputs[1].type_str] = n.dtype(0) if n.dtype(0).kind == "f" else np.dtype(np.float32)
    kind = n.pick(np.uint8, np.int8)
    inputs = [x, n.draw.param(n.rng.uniform(0.01, 0.2, count).astype(n.dtype(1)))]
    if n.chance(0.7) or kind == np.int8:
        inputs.append(n.param(n.rng.integers(*((0, 256) if kind == np.uint8 else (-128, 128)), count), kind))
    return inputs, {} if axis is None else {"axis": axis}


def dequantize(n):
    n.types[n.schema.inputs[0].type_str] = np.dtype(n.pick(np.uint8, np.int8))
    x = n.any()
    shape = n.shape(x)
    axis = n.axis(len(shape)) if shape and n.takes("axis") and n.chance(0.5) else None
    count = () if axis is None else (shape[axis],)
    inputs = [x, n.draw.param(n.rng.uniform(0.01, 0.2, count).astype(n.dtype(1)))]
    if n.chance(0.7):
        inputs.append(n.param(n.rng.integers(0, 100, count), n.dtype(0)))
    return inputs, {} if axis is None else {"axis": axis}


# --- along axes ---------------------------------------------------------------------------------------------------------
def reduction(n):
    x = n.any()
    rank = len(n.shape(x))
    axes = n.axes(rank) if rank and n.chance(0.8) else None
    inputs, attributes = [x], n.attributes(keepdims=(None, 0, 1), noop_with_empty_axes=(None, None, None, 0, 1))
    n.told("axes", axes, inputs, attributes)
    return inputs, attributes


def along(rank=1, **choices):
    """An operator with an axis attribute."""

    def draw(n):
        x = n.any(0, (rank, 9))
        attributes = n.attributes(**choices)
        told = n.chance(0.8)
        if n.takes("axis") and (told or n.schema.attributes["axis"].default_value.i >= len(n.shape(x))):  # 1, of a vector, before version 13
            attributes["axis"] = n.axis(len(n.shape(x)))
        return [x], attributes

    return draw


def cumulative(n):
    x = n.any(0, (1, 9))
    return [x, n.param(n.axis(len(n.shape(x))), n.dtype(1))], n.attributes(exclusive=(None, 0, 1), reverse=(None, 0, 1))


def top(n):
    x = n.any(0, (1, 9))
    axis = n.axis(len(n.shape(x)))
    k = n.below(n.shape(x)[axis] + 1)
    inputs, attributes = [x], {"axis": axis, **n.attributes(largest=(None, 0, 1), sorted=(None, 1))}
    if n.has_input("K"):
        inputs.append(n.param([k]))
    else:
        attributes["k"] = k
    return inputs, attributes, 2


# --- shapes ------------------------------------------------------------------------------------------------------------
def reshape(n):
    x = n.any()
    shape = list(n.shape(x))
    target = []
    while shape:
        take = 1 + n.below(min(3, len(shape)))
        target.append(int(np.prod(shape[:take])))
        shape = shape[take:]
        if n.chance(0.15):
            target.append(1)
    for at, size in enumerate(target):
        if size > 1 and n.chance(0.2):
            half = next((d for d in (2, 3, 4, 5) if size % d == 0), 1)
            target[at:at + 1] = [half, size // half]
            break
    if n.chance(0.1):
        n.rng.shuffle(target)
    target = [int(size) for size in target]
    if 0 in target:
        return [x, n.param(target)], n.attributes(allowzero=(1,)) if n.takes("allowzero") else {}
    if target and n.chance(0.5):
        target[n.below(len(target))] = -1
    for at, size in enumerate(n.shape(x)[:len(target)]):
        if target[at] == size and n.chance(0.3):
            target[at] = 0
    return [x, n.param(target)], {}


def squeeze(n):
    x = n.any(0, (1, 9), lambda shape: 1 in shape)
    ones = [k for k, size in enumerate(n.shape(x)) if size == 1]
    fixed = x in n.draw.top.sources  # of others the rank may not be known when a model is opened
    axes = None if fixed and n.chance(0.3) else [int(a) for a in n.rng.choice(ones, 1 + n.below(len(ones)), replace=False)]
    axes = axes and [a - len(n.shape(x)) if n.chance(0.3) and n.opset >= 11 else a for a in axes]
    inputs, attributes = [x], {}
    n.told("axes", axes, inputs, attributes)
    return inputs, attributes


def unsqueeze(n):
    x = n.any(0, (0, 4))
    count = 1 + n.below(2)
    rank = len(n.shape(x)) + count
    axes = sorted(int(a) for a in n.rng.choice(rank, count, replace=False))
    axes = [a - rank if n.chance(0.3) and n.opset >= 11 else a for a in axes]
    inputs, attributes = [x], {}
    n.told("axes", axes, inputs, attributes)
    return inputs, attributes


def transpose(n):
    x = n.any()
    rank = len(n.shape(x))
    return [x], {} if n.chance(0.2) or not rank else {"perm": [int(a) for a in n.rng.permutation(rank)]}


def concat(n):
    x = n.any(0, (1, 9))
    shape, axis = n.shape(x), n.axis(len(n.shape(x)))
    names = [x]
    for _ in range(1 + n.below(3)):
        other = list(shape)
        if n.chance(0.5):
            other[axis] = n.draw.extent()
        names.append(n.shaped(0, other))
    return [names[k] for k in n.rng.permutation(len(names))], {"axis": axis}


def split(n):
    x = n.any(0, (1, 9))
    axis = n.axis(len(n.shape(x)))
    size, parts = n.shape(x)[axis], 2 + n.below(2)
    cuts = np.sort(n.rng.integers(0, size + 1, parts - 1))
    sizes = [int(s) for s in np.diff([0, *cuts, size])]
    inputs, attributes = [x], {"axis": axis}
    if n.chance(0.4):
        if n.takes("num_outputs"):
            parts = min(parts, size)
            attributes["num_outputs"] = parts
        elif size % parts:
            raise Skip
        if not parts or -(-size // parts) * (parts - 1) > size:
            raise Skip
    else:
        n.told("split", sizes, inputs, attributes)
    return inputs, attributes, parts


def slices(n):
    x = n.any(0, (1, 9))
    rank = len(n.shape(x))
    axes = n.axes(rank)
    starts, ends, steps = [], [], []
    for axis in axes:
        size = n.shape(x)[axis]
        a, b = (int(k) for k in n.rng.integers(-size - 2, size + 3, 2))
        step = n.pick(1, 1, 1, 2, 3, -1, -2) if n.opset >= 10 else 1
        if step == 1 and n.chance(0.5):
            a, b = n.pick((0, max(size - 1, 0)), (1, size), (1, 2**31), (-1, 2**62), (0, size), (size // 2, size))
        elif step == -1 and n.chance(0.5):
            a, b = -1, -2**40
        starts, ends, steps = starts + [a], ends + [b], steps + [step]
    if n.opset < 10:
        return [x], {"starts": starts, "ends": ends, "axes": axes}
    dtype, inputs = np.int64, [x]
    inputs += [n.param(starts, dtype), n.param(ends, dtype)]
    if axes != list(range(rank)) or n.chance(0.5) or steps != [1] * len(steps):
        inputs.append(n.param(axes, dtype))
        if steps != [1] * len(steps) or n.chance(0.3):
            inputs.append(n.param(steps, dtype))
    return inputs, {}


def pad(n):
    x = n.any(0, (1, 9))
    shape = n.shape(x)
    mode = n.pick("constant", "constant", "reflect", "edge", *(["wrap"] if n.opset >= 19 else []))
    if mode != "constant" and 0 in shape:
        raise Skip
    pads = []
    for size in shape * 2:
        most = 3 if mode in ("constant", "edge") else max(min(3, size - 1), 0)
        pads.append(n.below(most + 1) if n.chance(0.6) else -1 if mode == "constant" and size > 3 and n.chance(0.1) else 0)
    inputs, attributes = [x], {"mode": mode}
    n.told("pads", pads, inputs, attributes)
    if mode == "constant" and n.chance(0.5):
        if n.has_input("constant_value"):
            inputs.append(n.param("fill" if n.dtype(0) == TEXT else n.pick(1, 0, 3), n.dtype(0)))
        else:
            attributes["value"] = 1.5
    return inputs, attributes


def expand(n):
    x = n.any()
    target = [n.draw.extent() if size == 1 else n.pick(1, size) for size in n.shape(x)]
    if n.chance(0.3):
        target = [n.draw.extent(), *target]
    return [x, n.param(target)], {}


def tile(n):
    x = n.any(0, (1, 9))
    return [x, n.param([n.pick(1, 1, 2, 3, *([0] if n.chance(0.05) else [])) for _ in n.shape(x)])], {}


def shape_of(n):
    return [n.any()], n.attributes(start=(None, 0, 1, -1, -2), end=(None, 1, 2, -1))


def indices(n, k, shape, size):
    if not size:
        raise Skip
    low = -size if n.chance(0.3) and n.opset >= 11 else 0
    dtype = n.dtype(k)
    return n.draw.new(dtype, tuple(shape), lambda rng, s: rng.integers(low, size, s).astype(dtype), exact=True)


def gather(n):
    x = n.any(0, (1, 9))
    axis = n.axis(len(n.shape(x)))
    shape = n.draw.shape((0, 2))
    return [x, indices(n, 1, shape, n.shape(x)[axis])], {"axis": axis} if axis or n.chance(0.5) else {}


def gather_elements(n):
    x = n.any(0, (1, 9))
    axis = n.axis(len(n.shape(x)))
    shape = [1 + n.below(size) if size else 0 for size in n.shape(x)]
    shape[axis] = n.draw.extent()
    return [x, indices(n, 1, shape, n.shape(x)[axis])], {"axis": axis}


def gather_rows(n):
    x = n.any(0, (1, 9), lambda shape: 0 not in shape)
    shape = n.shape(x)
    batch = n.below(len(shape)) if n.takes("batch_dims") and n.chance(0.3) else 0
    depth = 1 + n.below(len(shape) - batch)
    lead = [*shape[:batch], *n.draw.shape((0, 2))]
    sizes = shape[batch:batch + depth]
    dtype = n.dtype(1)
    at = n.draw.new(dtype, (*lead, depth), lambda rng, s: rng.integers(0, np.array(sizes), s).astype(dtype), exact=True)
    return [x, at], {"batch_dims": batch} if batch else {}


def scatter_elements(n):
    x = n.any(0, (1, 9), lambda shape: 0 not in shape)
    shape, axis = n.shape(x), n.axis(len(n.shape(x)))
    inner = [1 + n.below(size) for size in shape]
    reduction = n.pick(None, "none", "add", "mul", "max", "min") if n.takes("reduction") else None
    if reduction in ("max", "min") and n.opset < 18:
        reduction = "add"
    size, dtype = shape[axis], n.dtype(1)
    if reduction in (None, "none"):
        order = lambda rng, s: np.argsort(rng.random([*s[:axis % len(s)], size, *s[axis % len(s) + 1:]]), axis)  # noqa: E731
        how = lambda rng, s: np.take(order(rng, s), range(s[axis]), axis).astype(dtype)  # noqa: E731
    else:
        how = lambda rng, s: rng.integers(0, size, s).astype(dtype)  # noqa: E731
    at = n.draw.new(dtype, tuple(inner), how, exact=True)
    return [x, at, n.shaped(2, inner)], {"axis": axis, **({"reduction": reduction} if reduction else {})}


def scatter_rows(n):
    x = n.any(0, (1, 9), lambda shape: 0 not in shape)
    shape = n.shape(x)
    depth = 1 + n.below(len(shape))
    reduction = n.pick(None, "none", "add", "mul", "max", "min") if n.takes("reduction") else None
    if reduction in ("max", "min") and n.opset < 18:
        reduction = "add"
    count = int(np.prod(shape[:depth]))
    rows = 1 + n.below(min(count, 6))
    drawn = n.rng.choice(count, rows, replace=reduction not in (None, "none"))
    at = n.draw.param(np.stack(np.unravel_index(drawn, shape[:depth]), -1).astype(np.int64), 0.5)
    return [x, at, n.shaped(2, (rows, *shape[depth:]))], {"reduction": reduction} if reduction else {}


def depth_space(n):
    block = n.pick(2, 3)
    if n.op == "DepthToSpace":
        x = n.shaped(0, (n.draw.extent(), block * block * (1 + n.below(3)), n.draw.extent(), n.draw.extent()))
        return [x], {"blocksize": block, **n.attributes(mode=(None, "DCR", "CRD"))}
    return [n.shaped(0, (n.draw.extent(), 1 + n.below(3), block * (1 + n.below(3)), block * (1 + n.below(3))))], {"blocksize": block}


def trilu(n):
    x = n.any(0, (2, 9))
    return [x, *([n.param(n.below(7) - 3)] if n.chance(0.6) else [])], n.attributes(upper=(None, 0, 1))


def eye_like(n):
    return [n.any(0, (2, 2))], {**n.attributes(k=(None, 1, -2, 0)), "dtype": helper.np_dtype_to_tensor_dtype(n.pick(*DTYPES[:5]))}


def constant_of_shape(n):
    value = n.pick(None, np.array([1.5], np.float32), np.array([7], np.int64), np.array([True]), np.array([-1], np.int32))
    shape = n.param(n.draw.shape(), dynamic=0.2)
    return [shape], {} if value is None else {"value": helper.make_tensor("", helper.np_dtype_to_tensor_dtype(value.dtype), [1], value)}


def range_of(n):
    start, limit, step = n.pick((0, 5, 1), (3, -4, -2), (1, 1, 1), (0, 7, 3), (5, 0, 1), (-2, 9, 2))
    if n.dtype(0).kind == "u":
        start, limit, step = 0, 6, 1
    return [n.param(v, n.dtype(0)) for v in (start, limit, step)], {}


def one_hot(n):
    depth = 2 + n.below(6)
    dtype = n.dtype(0)
    at = n.draw.new(dtype, n.draw.shape((0, 3)), lambda rng, s: rng.integers(0 if dtype.kind == "u" else -depth, depth, s).astype(dtype), exact=True)
    rank = len(n.shape(at)) + 1
    return [at, n.param(n.pick(depth, [depth]), n.dtype(1)), n.shaped(2, (2,))], {"axis": n.axis(rank)} if n.chance(0.7) else {}


def compress(n):
    x = n.any(0, (1, 9))
    axis = n.axis(len(n.shape(x))) if n.chance(0.7) else None
    size = n.shape(x)[axis] if axis is not None else int(np.prod(n.shape(x)))
    if not size:
        raise Skip
    return [x, n.shaped(1, (1 + n.below(size),))], {} if axis is None else {"axis": axis}


def unique(n):
    x = n.any(0, (1, 9))
    attributes = n.attributes(sorted=(None, 1, 0))
    if n.chance(0.5):
        attributes["axis"] = n.axis(len(n.shape(x)))
    return [x], attributes, n.pick(1, 2, 4)


def reverse_sequence(n):
    x = n.any(0, (2, 9), lambda shape: 0 not in shape)
    batch, time = n.pick((0, 1), (1, 0))
    lengths = n.draw.new(np.int64, (n.shape(x)[batch],), lambda rng, s, most=n.shape(x)[time]: rng.integers(0 if n.opset > 10 else 1, most + 1, s), exact=True)
    return [x, lengths], {"batch_axis": batch, "time_axis": time}


def center(n):
    x = n.any(0, (1, 9))
    axes = n.axes(len(n.shape(x)))
    return [x, n.param([n.draw.extent() for _ in axes])], {"axes": axes}


# --- products, windows ---------------------------------------------------------------------------------------------------
def matmul(n):
    a = n.any(0, (1, 9))
    shape = n.shape(a)
    lead = [n.pick(1, size, size) for size in shape[:-2]]
    if len(shape) > 2 and n.chance(0.4):
        lead = lead[n.below(len(lead) + 1):]
    other = n.pick((shape[-1],), (*lead, shape[-1], n.draw.extent()), (*lead, shape[-1], n.draw.extent()), (*lead, shape[-1], n.draw.extent()))
    return [a, n.shaped(1, other)], {}


def matmul_integer(n):
    (a, b), _ = matmul(n)
    zero = [n.param(n.below(100), n.dtype(0))] if n.chance(0.5) else [None]
    if n.chance(0.5):
        columns = n.shape(b)[-1:] if len(n.shape(b)) == 2 and n.chance(0.5) else ()
        zero.append(n.param(n.rng.integers(0, 100, columns), n.dtype(1)))
    return [a, b, *zero], {}


def qlinear_matmul(n):
    (a, b), _ = matmul(n)
    scale = lambda k: n.param(n.rng.uniform(0.01, 0.1), n.dtype(k))  # noqa: E731
    zero = lambda k: n.param(n.below(100), n.dtype(k))  # noqa: E731
    return [a, scale(1), zero(2), *([b, scale(4), zero(5), scale(6), zero(7)])], {}


def gemm(n):
    a = n.any(0, (2, 2))
    t = n.below(2)
    m, k = n.shape(a)[::-1] if t else n.shape(a)
    u, columns = n.below(2), n.draw.extent()
    inputs = [a, n.shaped(1, (columns, k) if u else (k, columns))]
    if n.opset < 11 or n.chance(0.7):
        inputs.append(n.shaped(2, n.pick((m, columns), (columns,), (m, 1), (1, columns), (), (1,))))
    whole = n.dtype(0).kind != "f"
    return inputs, {"transA": t, "transB": u, **({} if whole else n.attributes(alpha=(None, 0.5, 2.0), beta=(None, 0.25, 0.0, 1.0)))}


def einsum(n):
    x = n.any(0, (1, 4))
    letters = "abcd"[:len(n.shape(x))]
    sizes = dict(zip(letters, n.shape(x)))
    other = "".join(c for c in letters if n.chance(0.6))
    if n.chance(0.6):
        other, sizes["e"] = other + "e", n.draw.extent()
    other = "".join(n.rng.permutation(list(other))) if other else letters[0]
    result = [c for c in sorted(set(letters + other)) if n.chance(0.6)]
    result = "".join(n.rng.permutation(result)) if result else ""
    return [x, n.shaped(0, [sizes[c] for c in other])], {"equation": f"{letters},{other}->{result}"}


def spatial(n, k=0, channels=None, least=1):
    """An image, and its number of spatial axes."""
    rank = n.pick(1, 2, 2, 2, 3)
    sizes = [max(n.draw.extent(), least) for _ in range(rank)]
    sizes = [min(size, 12) for size in sizes] if rank > 1 else sizes
    x = n.any(k, (rank + 2, rank + 2), lambda shape: (channels is None or shape[1] == channels) and min(shape) >= least and max(shape) < 40) if n.chance(0.5) else \
        n.shaped(k, (n.pick(1, 2, 3), channels or n.pick(1, 2, 3, 4, 6, 8, 16), *sizes))
    return x, rank


def window(n, rank, shape, dilated=True):
    attributes = {"kernel_shape": [1 + n.below(min(4, max(size, 1) + 1)) for size in shape]}
    if n.chance(0.5):
        attributes["strides"] = [1 + n.below(3) for _ in range(rank)]
    if dilated and n.takes("dilations") and n.chance(0.25):
        attributes["dilations"] = [1 + n.below(2) for _ in range(rank)]
    way = n.pick("pads", "pads", "none", "SAME_UPPER", "SAME_LOWER", "VALID")
    if way == "pads":
        attributes["pads"] = [n.below(min(k, 3)) for k in attributes["kernel_shape"] * 2]
    elif way != "none":
        attributes["auto_pad"] = way
        if way != "VALID":
            attributes.pop("dilations", None)
    return attributes


def conv(n):
    x, rank = spatial(n)
    shape = n.shape(x)
    channels, attributes = shape[1], window(n, rank, shape[2:])
    groups = n.pick(1, 1, 1, channels, *(g for g in (2, 3, 4) if channels % g == 0))
    if not groups:
        raise Skip
    if groups > 1:
        attributes["group"] = groups
    kernel = attributes["kernel_shape"]
    if n.op == "ConvTranspose":
        per = n.pick(1, 2, 3)
        filters, w = per * groups, n.shaped(1, (channels, per, *kernel), constant=None)
        if "pads" in attributes and n.chance(0.2) and "strides" in attributes:
            attributes["output_padding"] = [n.below(s) for s in attributes["strides"]]
    else:
        filters = groups * n.pick(1, 2, 3, 4, 8)
        w = n.shaped(1, (filters, channels // groups, *kernel))
    if n.chance(0.3):
        attributes.pop("kernel_shape")
    if n.op == "ConvInteger":
        return [x, w, *([n.param(n.below(100), n.dtype(0))] if n.chance(0.5) else [])], attributes
    return [x, w, *([n.shaped(2, (filters,))] if n.chance(0.5) else [])], attributes


def pool(outputs=1):
    def draw(n):
        x, rank = spatial(n)
        attributes = window(n, rank, n.shape(x)[2:])
        attributes.update(n.attributes(ceil_mode=(None, None, 0, 1), count_include_pad=(None, 0, 1), p=(None, 1, 2, 3), storage_order=(None, 0, 0, 1)))
        if attributes.get("auto_pad", "").startswith("SAME"):
            attributes.pop("ceil_mode", None)
        return [x], attributes, n.pick(1, outputs)

    return draw


def channels_first(**choices):
    return lambda n: ([spatial(n)[0]], n.attributes(**choices))


def per_channel(count, groups=False, **choices):
    """Norms over an image with vectors of its channels."""

    def draw(n):
        x, _ = spatial(n)
        channels, attributes = n.shape(x)[1], n.attributes(**choices)
        if groups:
            attributes["num_groups"] = n.pick(*(g for g in (1, 2, 3, 4) if channels and channels % g == 0), 1)
        length = attributes["num_groups"] if groups and n.opset < 21 else channels
        hows = [None, None, None, ranged(0.1, 2)]
        return [x, *(n.shaped(k + 1, (length,), hows[k]) for k in range(count))], attributes

    return draw


def layer_norm(count):
    def draw(n):
        x = n.any(0, (1, 9))
        axis = n.axis(len(n.shape(x)))
        shape = n.shape(x)[axis % len(n.shape(x)):]
        inputs = [x, n.shaped(1, shape), *([n.shaped(2, shape)] if count > 1 and n.chance(0.6) else [])]
        return inputs, {"axis": axis, **n.attributes(epsilon=(None, 1e-3, 0.1))}

    return draw


def resize(n):
    x, rank = spatial(n, least=1)
    shape = n.shape(x)
    attributes = n.attributes(mode=("nearest", "linear", "cubic"))
    if n.opset >= 11:
        attributes.update(n.attributes(coordinate_transformation_mode=(None, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"),
                                       nearest_mode=(None, "round_prefer_floor", "floor", "ceil", "round_prefer_ceil")))
    if attributes["mode"] == "cubic" and rank != 2:
        attributes["mode"] = "linear"
    scales = [1.0, 1.0, *(n.pick(0.5, 1.0, 2.0, 1.5, 4.0, 0.75) for _ in range(rank))]
    if any(int(size * scale) < 1 for size, scale in zip(shape, scales)):
        raise Skip
    if n.opset < 11:
        return [x, n.param(scales, np.float32)], {k: v for k, v in attributes.items() if v != "cubic"}
    empty = None if n.opset >= 13 else n.param([], n.dtype(1))
    if n.chance(0.5):
        return [x, empty, n.param(scales, np.float32)], attributes
    # where nearest is between two, only ratios that floats hold are told apart
    sizes = [*shape[:2], *(size * n.pick(1, 2, 4) if attributes["mode"] == "nearest" else 1 + n.below(9) for size in shape[2:])]
    return [x, empty, None if n.opset >= 13 else n.param([], np.float32), n.param(sizes)], attributes


def grid_sample(n):
    x = n.shaped(0, (2, n.pick(1, 3), *(2 + n.below(6) for _ in range(2))))
    grid = n.shaped(1, (2, 1 + n.below(5), 1 + n.below(5), 2), ranged(-1.3, 1.3))
    modes = ("bilinear", "nearest", "bicubic") if n.opset < 20 else ("linear", "nearest", "cubic")
    return [x, grid], n.attributes(mode=(None, *modes), padding_mode=(None, "zeros", "border", "reflection"), align_corners=(None, 0, 1))


def affine_grid(n):
    size = [2, n.pick(1, 3), *(1 + n.below(6) for _ in range(n.pick(2, 3)))]
    rank = len(size) - 2
    return [n.shaped(0, (2, rank, rank + 1)), n.param(size)], n.attributes(align_corners=(None, 0, 1))


def col2im(n):
    image, block = [3 + n.below(4), 3 + n.below(4)], [1 + n.below(3), 1 + n.below(3)]
    count = int(np.prod([i - b + 1 for i, b in zip(image, block)]))
    return [n.shaped(0, (n.pick(1, 2), n.pick(1, 2) * block[0] * block[1], count)), n.param(image), n.param(block)], {}


# --- larger ones ----------------------------------------------------------------------------------------------------------
def recurrent(gates):
    def draw(n):
        time, batch, width, hidden = 1 + n.below(4), n.pick(1, 2, 3), n.pick(1, 3, 5), n.pick(1, 2, 4, 8)
        direction = n.pick("forward", "reverse", "bidirectional")
        d = 2 if direction == "bidirectional" else 1
        inputs = [n.shaped(0, (time, batch, width)), n.shaped(1, (d, gates * hidden, width)), n.shaped(2, (d, gates * hidden, hidden)),
                  n.shaped(3, (d, 2 * gates * hidden)) if n.chance(0.6) else None,
                  n.param(n.rng.integers(1, time + 1, batch), np.int32) if n.chance(0.4) else None,
                  n.shaped(5, (d, batch, hidden)) if n.chance(0.5) else None]
        if gates == 4:
            inputs += [n.shaped(6, (d, batch, hidden)) if n.chance(0.5) else None, n.shaped(7, (d, 3 * hidden)) if n.chance(0.3) else None]
        return inputs, {"hidden_size": hidden, "direction": direction, **n.attributes(linear_before_reset=(None, 0, 1))}, n.pick(1, 2, 3) if gates == 4 else n.pick(1, 2)

    return draw


def attention(n):
    batch, heads, length, keys, size, value = n.pick(1, 2), n.pick(1, 2, 4), n.pick(1, 3, 5, 8), n.pick(1, 4, 7, 16), n.pick(2, 4, 8), n.pick(2, 4, 8)
    shared = n.pick(*(h for h in (1, 2, 4) if heads % h == 0))
    if n.chance(0.3):
        shape = lambda length, heads, size: (batch, length, heads * size)  # noqa: E731
        attributes = {"q_num_heads": heads, "kv_num_heads": shared}
    else:
        shape = lambda length, heads, size: (batch, heads, length, size)  # noqa: E731
        attributes = {}
    n.types[n.schema.inputs[2].type_str] = n.dtype(0)
    inputs = [n.shaped(0, shape(length, heads, size)), n.shaped(1, shape(keys, shared, size)), n.shaped(2, shape(keys, shared, value))]
    if n.chance(0.4):
        n.types[n.schema.inputs[3].type_str] = n.pick(np.dtype(bool), n.dtype(0))
        inputs.append(n.shaped(3, n.pick((length, keys), (batch, 1, length, keys), (batch, heads, length, keys))))
    return inputs, {**attributes, **n.attributes(is_causal=(None, 0, 1), scale=(None, 0.5), softcap=(None, None, 2.0))}


def rotary(n):
    batch, heads, length, size = n.pick(1, 2), n.pick(1, 3), n.pick(1, 4), n.pick(2, 4, 8)
    return [n.shaped(0, (batch, heads, length, size)), n.shaped(1, (batch, length, size // 2)), n.shaped(2, (batch, length, size // 2))], \
        n.attributes(interleaved=(None, 0, 1))


def class_loss(n):
    batch, classes, rest = n.pick(1, 3), n.pick(2, 4, 5), n.pick((), (3,), (2, 3))
    dtype = n.dtype(1)
    target = n.draw.new(dtype, (batch, *rest), lambda rng, s: rng.integers(0, classes, s).astype(dtype), exact=True)
    weight = [n.shaped(2, (classes,), ranged(0.1, 2))] if n.chance(0.4) else []
    return [n.shaped(0, (batch, classes, *rest)), target, *weight], n.attributes(reduction=(None, "none", "sum", "mean"), ignore_index=(None, 1))


def dft(n):
    x = n.shaped(0, (n.pick(1, 2), 1 + n.below(9), n.pick(1, 2)))
    attributes = n.attributes(inverse=(None, 0, 1))
    if n.shape(x)[-1] == 1:
        attributes.update(n.attributes(onesided=(None, 0, 1)))
        if attributes.get("onesided"):
            attributes.pop("inverse", None)
    return ([x, None, n.param(1)], attributes) if n.opset >= 20 else ([x], {**attributes, "axis": 1})


def signal_window(n):
    return [n.param(3 + n.below(12), n.dtype(0))], {**n.attributes(periodic=(None, 0, 1)), "output_datatype": n.pick(TensorProto.FLOAT, TensorProto.DOUBLE)}


def rois(n):
    x = n.shaped(0, (2, n.pick(1, 3), 4 + n.below(5), 4 + n.below(5)))
    count = n.pick(1, 2, 3)
    corner = n.rng.uniform(0, 3, (count, 2))
    boxes = np.concatenate([corner, corner + n.rng.uniform(0.5, 4, (count, 2))], 1).astype(n.dtype(1))
    return [x, n.draw.param(boxes, 0.5), n.param(n.rng.integers(0, 2, count))], {
        "output_height": 1 + n.below(3), "output_width": 1 + n.below(3), "sampling_ratio": n.below(3), "spatial_scale": n.pick(1.0, 0.5),
        **n.attributes(mode=(None, "avg", "max"), coordinate_transformation_mode=(None, "half_pixel", "output_half_pixel"))}


def suppression(n):
    count, classes = n.pick(1, 4, 9), n.pick(1, 2)
    corner = n.rng.uniform(0, 5, (1, count, 2))
    boxes = n.draw.param(np.concatenate([corner, corner + n.rng.uniform(0.5, 4, (1, count, 2))], 2).astype(np.float32), 0.5)
    scores = n.draw.param(n.rng.permutation(np.linspace(0.05, 0.95, classes * count)).reshape(1, classes, count).astype(np.float32), 0.5)
    return [boxes, scores, n.param([n.pick(1, 3)]), n.param([n.pick(0.3, 0.5)], np.float32), *([n.param([0.2], np.float32)] if n.chance(0.4) else [])], \
        n.attributes(center_point_box=(None, 0, 1))


def sequence_of(n):
    x = n.any(0)
    return [x, *(n.shaped(0, n.shape(x)) for _ in range(n.below(3)))], {}


def split_sequence(n):
    x = n.any(0, (1, 9), lambda shape: 0 not in shape)
    axis = n.axis(len(n.shape(x)))
    size = n.shape(x)[axis]
    if n.chance(0.3):
        return [x], {"axis": axis, **n.attributes(keepdims=(None, 0, 1))}
    cut = n.below(size)
    return [x, n.param(n.pick(1 + n.below(size), [cut, size - cut] if cut else [size]))], {"axis": axis}


def of_sequence(at=False, **choices):
    def draw(n):
        found = [name for name in n.draw.scope if isinstance(n.draw.array(name), list)]
        if not found:
            raise Skip
        name = n.pick(*found)
        count = len(n.draw.array(name))
        inputs, attributes = [name], n.attributes(**choices)
        if n.op == "SequenceInsert":
            first = n.draw.array(name)[0]
            inputs.append(n.draw.find(first.dtype, fresh=lambda: n.draw.new(first.dtype, first.shape)))
        if at:
            inputs.append(n.param(n.below(count) - (count if n.chance(0.3) else 0)))
        if n.op == "ConcatFromSequence":
            first = n.draw.array(name)[0]
            attributes["axis"] = n.below(first.ndim + attributes.get("new_axis", 0)) if first.ndim + attributes.get("new_axis", 0) else 0
        return inputs, attributes

    return draw


# --- the table --------------------------------------------------------------------------------------------------------------
ELEMENTWISE = ("Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Exp Floor HardSwish Identity IsNaN Log Mish Neg Not Reciprocal Relu Round Sigmoid "
               "Sign Sin Sinh Softplus Softsign Sqrt Tanh BitwiseNot Size")
BINARY = "Add Sub Mul And Or Xor Greater Less GreaterOrEqual LessOrEqual BitwiseAnd BitwiseOr BitwiseXor"
REDUCTIONS = "ReduceL1 ReduceL2 ReduceMean ReduceSum ReduceSumSquare"

ROWS = {
    **{op: Row(unary()) for op in ELEMENTWISE.split()},
    **{op: Row(binary(), 2 if op in ("Add", "Mul", "Sub") else 1) for op in BINARY.split()},
    **{op: Row(reduction, needs=small) for op in REDUCTIONS.split()},
    **{op: Row(reduction, needs=no_integers) for op in ("ReduceLogSum", "ReduceLogSumExp")},
    "ReduceProd": Row(reduction, needs=multiplies),
    "ReduceMax": Row(reduction, needs=both(no_nan, some)),
    "ReduceMin": Row(reduction, needs=both(no_nan, some)),
    "Erf": Row(unary(), reference="computes in f32"),
    "Equal": Row(binary(), 1, told_apart),
    "Tan": Row(unary(), needs=near),
    "Elu": Row(unary(alpha=(None, 0.5, 2.0))),
    "Celu": Row(unary(alpha=(None, 0.5, 2.0))),
    "Selu": Row(unary(alpha=(None, 0.5), gamma=(None, 2.0))),
    "LeakyRelu": Row(unary(alpha=(None, 0.2, -1.0))),
    "ThresholdedRelu": Row(unary(alpha=(None, 0.5, -0.5))),
    "HardSigmoid": Row(unary(alpha=(None, 0.3), beta=(None, 0.4))),
    "Gelu": Row(unary(approximate=(None, "none", "tanh"))),
    "Swish": Row(unary(alpha=(None, 0.5))),
    "Shrink": Row(unary(bias=(None, 0.5), lambd=(None, 1.0)), needs=small),
    "IsInf": Row(unary(detect_negative=(None, 0), detect_positive=(None, 0))),
    "Div": Row(binary(), 1.5, divides),
    "Pow": Row(binary(), 1, powers),
    "Mod": Row(modulo, 1, divides),
    "BitShift": Row(binary(direction=("LEFT", "RIGHT")), 1, shifts),
    "PRelu": Row(binary(grow=False)),
    "Where": Row(where, 1.5),
    "Clip": Row(clip, needs=clips),
    "Cast": Row(casting, 2, casts),
    "CastLike": Row(cast_like, 1, casts),
    "Max": Row(variadic, needs=no_nan),
    "Min": Row(variadic, needs=no_nan),
    "Sum": Row(variadic),
    "Mean": Row(variadic),
    "Dropout": Row(unary(), 0.5),
    "QuantizeLinear": Row(quantize, 1, quantizes),
    "DequantizeLinear": Row(dequantize, needs=scaled),
    "DynamicQuantizeLinear": Row(lambda n: ([n.any()], {}, 3), 1, both(finite, some)),
    "ArgMax": Row(along(keepdims=(None, 0, 1), select_last_index=(None, 0, 1)), needs=both(no_nan, some)),
    "ArgMin": Row(along(keepdims=(None, 0, 1), select_last_index=(None, 0, 1)), needs=both(no_nan, some)),
    "Softmax": Row(along(), 1.5, no_peak),
    "LogSoftmax": Row(along(), needs=no_peak),
    "Hardmax": Row(along(), needs=both(no_nan, some)),
    "LpNormalization": Row(along(p=(None, 1, 2))),
    "CumSum": Row(cumulative, needs=moderate),
    "CumProd": Row(cumulative, needs=multiplies),
    "TopK": Row(top, needs=enough),
    "Reshape": Row(reshape, 2),
    "Flatten": Row(along()),
    "Squeeze": Row(squeeze),
    "Unsqueeze": Row(unsqueeze),
    "Transpose": Row(transpose, 2),
    "Concat": Row(concat, 1.5, equal_sizes),
    "Split": Row(split),
    "Slice": Row(slices, 2, starts_within),
    "Pad": Row(pad, needs=no_text),
    "Expand": Row(expand),
    "Tile": Row(tile),
    "Shape": Row(shape_of),
    "Gather": Row(gather, 1.5, within(gather_size)),
    "GatherElements": Row(gather_elements, 1, within(gather_size)),
    "GatherND": Row(gather_rows, 1, gathers_rows),
    "ScatterElements": Row(scatter_elements, 1, both(scatters, known_sums, scattered)),
    "ScatterND": Row(scatter_rows, 1, both(scatters_rows, known_sums, scattered)),
    "DepthToSpace": Row(depth_space),
    "SpaceToDepth": Row(depth_space),
    "Trilu": Row(trilu, needs=no_text),
    "EyeLike": Row(eye_like),
    "ConstantOfShape": Row(constant_of_shape),
    "Range": Row(range_of),
    "OneHot": Row(one_hot, needs=finite),
    "Compress": Row(compress, 1, reaches),
    "NonZero": Row(unary(), needs=axes_at_all),
    "Unique": Row(unique, 1, both(no_nan, some), reference="sorts where one result is asked for"),
    "ReverseSequence": Row(reverse_sequence),
    "CenterCropPad": Row(center, needs=no_text),
    "MatMul": Row(matmul, 3, products),
    "Gemm": Row(gemm, 2, products),
    "Einsum": Row(einsum, 1, both(products, some, letters)),
    "MatMulInteger": Row(matmul_integer, needs=batches),
    "QLinearMatMul": Row(qlinear_matmul, needs=batches, reference="wraps where it is to saturate"),
    "Conv": Row(conv, 3, windows),
    "ConvTranspose": Row(conv, 1, windows, "gives all groups the first one's bias"),
    "ConvInteger": Row(conv, 1, covers),
    "MaxPool": Row(pool(2), needs=both(no_nan, covers), reference="counts places from the first channel on"),
    "AveragePool": Row(pool(), needs=both(moderate, covers), reference="leaves NaN out; dilated windows that hang over begin elsewhere"),
    "LpPool": Row(pool(), needs=both(moderate, covers), reference="has windows at the end that are too large"),
    "GlobalAveragePool": Row(channels_first(), needs=both(some, moderate)),
    "GlobalMaxPool": Row(channels_first(), needs=both(no_nan, some), reference="takes two axes, whatever there are"),
    "GlobalLpPool": Row(channels_first(p=(None, 1, 2)), needs=moderate),
    "LRN": Row(channels_first(size=(1, 3, 5), alpha=(None, 0.1), beta=(None, 0.5), bias=(None, 2.0)), needs=level, reference="sums too few channels"),
    "MeanVarianceNormalization": Row(lambda n: ([n.any(0, (4, 4))], {}), needs=both(sums, some)),
    "BatchNormalization": Row(per_channel(4, epsilon=(None, 1e-3)), 1.5, sums),
    "InstanceNormalization": Row(per_channel(2, epsilon=(None, 1e-3)), needs=both(some, sums)),
    "GroupNormalization": Row(per_channel(2, True, epsilon=(None, 1e-3)), needs=both(some, sums)),
    "LayerNormalization": Row(layer_norm(2), 1.5, both(some, sums)),
    "RMSNormalization": Row(layer_norm(1), 1, both(some, sums)),
    "Resize": Row(resize, needs=both(some, tame, whole_sizes, told_ratios)),
    "GridSample": Row(grid_sample, 1, both(finite, moderate), reference="has 0 for integers between two"),
    "AffineGrid": Row(affine_grid, needs=two_points),
    "Col2Im": Row(col2im, 1, both(sums, floats)),
    "RNN": Row(recurrent(1), 0.5, bounded, "knows no lengths"),
    "GRU": Row(recurrent(3), 0.5, bounded, "knows no lengths"),
    "LSTM": Row(recurrent(4), 0.5, bounded, "knows no lengths"),
    "Attention": Row(attention, 1, masks),
    "RotaryEmbedding": Row(rotary, needs=even),
    "NegativeLogLikelihoodLoss": Row(class_loss, 0.5, labels),
    "SoftmaxCrossEntropyLoss": Row(class_loss, 0.5, labels),
    "DFT": Row(dft, 0.5, sums),
    "HannWindow": Row(signal_window, 0.3),
    "HammingWindow": Row(signal_window, 0.3),
    "BlackmanWindow": Row(signal_window, 0.3),
    "RoiAlign": Row(rois, 0.5, both(finite, some)),
    "NonMaxSuppression": Row(suppression, 0.5),
    "SequenceConstruct": Row(sequence_of, 0.5),
    "SplitToSequence": Row(split_sequence, 0.5, adds_up),
    "SequenceAt": Row(of_sequence(True), 0.7),
    "SequenceLength": Row(of_sequence(), 0.5),
    "SequenceErase": Row(of_sequence(True), 0.5),
    "SequenceInsert": Row(of_sequence(True), 0.5),
    "ConcatFromSequence": Row(of_sequence(new_axis=(None, 0, 1)), 0.7),
    "If": Row(control.branches, 2),
    "Loop": Row(control.loop, 2, reference="joins what is to be stacked"),
    "Scan": Row(control.scan, 1.5),
}
