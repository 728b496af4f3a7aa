# SPDX-License-Identifier: Apache-2.0
"""What the standard leaves open, or what evaluators are known to make of it in several ways: conditions (arrays of the inputs, NodeProto) -> whether
there is one right result. Models that do not meet those of their operators are not drawn."""

import numpy as np
from onnx import helper

TEXT = np.dtype(object)


def attribute(node, name, default=None):
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def no_nan(arrays, node):
    """How NaN compares with numbers is said nowhere."""
    return not any(a is not None and a.dtype.kind == "f" and np.isnan(a).any() for a in arrays)


def finite(arrays, node):
    return all(a is None or a.dtype.kind != "f" or np.isfinite(a).all() for a in arrays)


def clips(arrays, node):
    """What a bound that is left out does to infinities: the standard's text has the type's ends for it, its function has none."""
    bounded = len(arrays) == 3 and all(a is not None for a in arrays)
    return no_nan(arrays, node) and (bounded or finite(arrays, node))


def moderate(arrays, node):
    """Sums of numbers near the end of the range depend on their order."""
    return all(a is None or a.dtype.kind != "f" or np.abs(a[np.isfinite(a)].astype(float)).max(initial=0) < 1e15 for a in arrays)


def multiplies(arrays, node):
    """Products that leave the range on the way depend on their order."""
    with np.errstate(all="ignore"):
        exponents = np.abs(np.log2(np.abs(arrays[0][arrays[0] != 0].astype(float))))
        return from_start(arrays, node) and no_nan(arrays, node) and bool(exponents.sum() < (120 if arrays[0].dtype != np.float16 else 12))


def equal_sizes(arrays, node):
    """ONNX Runtime lets empty tensors have any sizes, the standard does not."""
    axis = attribute(node, "axis")
    return len({(*a.shape[:axis % a.ndim], *a.shape[axis % a.ndim + 1:]) for a in arrays}) == 1


def no_text(arrays, node):
    """Which texts are nonzero is said nowhere."""
    return arrays[0].dtype.kind not in "OUS"


def two_points(arrays, node):
    """Corners that are aligned need two points; a matrix each image."""
    return arrays[0].shape[0] == arrays[1][0] and (not attribute(node, "align_corners", 0) or bool((arrays[1][2:] > 1).all()))


def axes_at_all(arrays, node):
    """Others give the coordinates of a number one row, as of a vector, where the standard has none."""
    return no_text(arrays, node) and arrays[0].ndim > 0


def from_start(arrays, node):
    """Of empty tensors there is no mean, and ONNX Runtime keeps axes that are counted from the end."""
    axes = arrays[1] if len(arrays) > 1 else attribute(node, "axes")
    return bool(arrays[0].size) or node.op_type != "ReduceMean" and (axes is None or np.min(axes, initial=0) >= 0)


def small(arrays, node):
    """Integers whose squares or exponentials leave the type."""
    return from_start(arrays, node) and moderate(arrays, node) and all(a is None or a.dtype.kind not in "iu" or np.abs(a.astype(float)).max(initial=0) < 11 for a in arrays[:1])


def letters(arrays, node):
    """A letter stands for one size: whether 1 is repeated is said nowhere."""
    sizes = {}
    for term, array in zip(attribute(node, "equation").decode().split("->")[0].split(","), arrays):
        term = term.strip()
        if "." not in term and any(sizes.setdefault(letter, size) != size for letter, size in zip(term, array.shape)):
            return False
    return True


def batches(arrays, node):
    """Some let empty ones have any sizes, or leave what was in memory where nothing is added up."""
    factors = [arrays[0], arrays[3 if node.op_type == "QLinearMatMul" else 1]]
    if node.op_type == "MatMulInteger" and 0 in factors[0].shape[-1:]:
        return False
    if "MatMul" in node.op_type and min(a.ndim for a in factors) > 2:
        try:
            np.broadcast_shapes(*(a.shape[:-2] for a in factors))
        except ValueError:
            return False
    return True


def products(arrays, node):
    if node.op_type == "MatMul" and 0 in arrays[0].shape[-1:] and min(a.ndim for a in arrays) == 1:
        return False  # ONNX Runtime leaves what was there before
    if not batches(arrays, node):
        return False
    if node.op_type == "Gemm" and arrays[0].shape[0 if attribute(node, "transA") else 1] != arrays[1].shape[1 if attribute(node, "transB") else 0]:
        return False
    return moderate(arrays, node) and all(a is None or a.dtype.kind not in "iu" or np.abs(a.astype(float)).max(initial=0) < 2**10 for a in arrays)


def reaches(arrays, node):
    """Conditions beyond the axis."""
    axis = attribute(node, "axis")
    return len(arrays[1]) <= (arrays[0].size if axis is None else arrays[0].shape[axis])


def labels(arrays, node):
    scores, classes = arrays[:2]
    return finite(arrays, node) and scores.shape[:1] + scores.shape[2:] == classes.shape


def covers(arrays, node):
    """SAME with a stride beyond the kernel has negative pads, which some take for none; and a kernel is to fit. Of no channels ONNX Runtime's
    convolution never ends."""
    if node.op_type.startswith("Conv") and 0 in arrays[1].shape:
        return False
    kernel = attribute(node, "kernel_shape") or arrays[1].shape[2:]
    strides, dilations = attribute(node, "strides") or [1] * len(kernel), attribute(node, "dilations") or [1] * len(kernel)
    kernel = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
    if attribute(node, "auto_pad", b"")[:4] == b"SAME":
        return all(s <= k for s, k in zip(strides, kernel))
    pads = attribute(node, "pads") or [0] * 2 * len(kernel)
    sizes = [size + a + b for size, a, b in zip(arrays[0].shape[2:], pads, pads[len(kernel):])]
    if any(size < d for size, d in zip(arrays[0].shape[2:], dilations)):
        return False  # a window may meet nothing but padding
    return node.op_type == "ConvTranspose" or all(k <= size for k, size in zip(kernel, sizes))


def level(arrays, node):
    """ONNX Runtime keeps a running sum, in which large squares leave errors beside small ones."""
    return finite(arrays, node) and bool((np.abs(arrays[0].astype(float)) < 8).all())


def bounded(arrays, node):
    """What gates lose of large states is not found by moving inputs."""
    return finite(arrays, node) and all(a is None or (np.abs(a.astype(float)) < 8).all() for a in arrays)


def floats(arrays, node):
    """Sums that a narrow integer does not hold."""
    return arrays[0].dtype.kind == "f"


def even(arrays, node):
    return arrays[0].shape[-1] % 2 == 0 and arrays[0].shape[-1] // 2 == arrays[1].shape[-1]


def no_peak(arrays, node):
    """Of an infinite number the share is infinity by infinity."""
    return not (arrays[0].dtype.kind == "f" and np.isinf(arrays[0]).any())


def enough(arrays, node):
    """As many elements as are asked for."""
    return no_nan(arrays, node) and (len(arrays) < 2 or int(arrays[1].item()) <= arrays[0].shape[attribute(node, "axis", -1)])


def masks(arrays, node):
    """Queries and keys are as long; keys are as many as values, and a mask as queries."""
    heads = [max(attribute(node, name, 1), 1) if arrays[0].ndim == 3 else 1 for name in ("q_num_heads", "kv_num_heads")]
    if arrays[0].shape[-1] * heads[1] != arrays[1].shape[-1] * heads[0] or arrays[1].shape[:-1] != arrays[2].shape[:-1]:
        return False
    return sums(arrays, node) and arrays[1].shape[-2] == arrays[2].shape[-2] and (len(arrays) < 4 or arrays[3] is None or arrays[3].shape[-2] == arrays[0].shape[-2])


def told_apart(arrays, node):
    """Floats that are almost equal are so by rounding; those that are quarters may be meant."""
    a, b = np.broadcast_arrays(*arrays)
    if a.dtype.kind != "f":
        return True
    a, b = a[np.isfinite(a) & np.isfinite(b)].astype(float), b[np.isfinite(a) & np.isfinite(b)].astype(float)
    near = np.abs(a - b) <= 1e-4 * np.abs(a)
    return bool((~near | (a == b) & (a * 4 == np.trunc(a * 4))).all())


def starts_within(arrays, node):
    """Backwards from before the first element, ONNX Runtime has the first one."""
    if len(arrays) < 5:
        return True
    data, starts, _, axes, steps = arrays
    return all(step > 0 or start >= -data.shape[axis] for start, axis, step in zip(starts, axes, steps))


def near(arrays, node):
    """Beside its poles a function has any value."""
    return arrays[0].dtype.kind != "f" or not (np.abs(arrays[0].astype(float)) > 100).any()


def adds_up(arrays, node):
    return len(arrays) < 2 or arrays[1].ndim == 0 or int(arrays[1].sum()) == arrays[0].shape[attribute(node, "axis", 0)]


def no_integers(arrays, node):
    """What the logarithm of integers is rounded to."""
    return small(arrays, node) and arrays[0].dtype.kind == "f"


def tame(arrays, node):
    """How integers between two are rounded is said nowhere."""
    if not no_text(arrays, node) or not finite(arrays, node) or (np.abs(arrays[0].astype(float)) >= 2**20).any():
        return False
    return arrays[0].dtype.kind == "f" or attribute(node, "mode", b"nearest") == b"nearest"


def whole_sizes(arrays, node):
    """Where corners are aligned, what a scale makes no whole size of is said in two ways."""
    scales = next((a for a in arrays[1:] if a is not None and a.dtype.kind == "f" and a.size), None)
    if scales is None or attribute(node, "coordinate_transformation_mode", b"") != b"align_corners":
        return True
    sizes = np.array(arrays[0].shape) * scales
    return bool((sizes == np.trunc(sizes)).all())


def told_ratios(arrays, node):
    """Where nearest is between two, a ratio that floats do not hold falls either way."""
    sizes = arrays[3] if len(arrays) > 3 else None
    if sizes is None or not sizes.size or attribute(node, "mode", b"nearest") != b"nearest":
        return True
    shape = np.array(arrays[0].shape)
    by = shape // np.gcd(shape, sizes)
    return bool((by & (by - 1) == 0).all())


def scattered(arrays, node):
    """Products on which several updates fall: as those of `multiplies`, element by element."""
    if attribute(node, "reduction") != b"mul":
        return True
    data, at, updates = arrays
    with np.errstate(all="ignore"):
        exponents = [np.where(a != 0, np.abs(np.log2(np.abs(a.astype(float)))), 0) for a in (data, updates)]
    if node.op_type == "ScatterND":
        places = tuple(np.moveaxis(at, -1, 0))
    else:
        places = list(np.indices(at.shape))
        places[attribute(node, "axis", 0)] = at
    np.add.at(exponents[0], tuple(places), exponents[1])
    return bool((exponents[0] < (120 if data.dtype != np.float16 else 12)).all())


def known_sums(arrays, node):
    """What the sum of two bools is."""
    return arrays[0].dtype.kind in "fiu" or (attribute(node, "reduction") or b"none") == b"none"


def divides(arrays, node):
    """Integers by 0, and the least one by -1, are undefined."""
    a, b = arrays[:2]
    return b.dtype.kind == "f" or bool((b != 0).all() and not (b.dtype.kind == "i" and (a == np.iinfo(a.dtype).min).any() and (b == -1).any()))


def shifts(arrays, node):
    """Shifting by a type's bits or more is undefined."""
    return bool((arrays[1] < arrays[1].dtype.itemsize * 8).all())


def powers(arrays, node):
    """Integers to negative powers, and results that an integer type does not hold, are undefined; of negative numbers, powers that are not whole."""
    a, b = arrays
    if a.dtype.kind == "f":
        return bool((a >= 0).all() or (b == np.trunc(b)).all())
    with np.errstate(all="ignore"):
        result = np.power(a.astype(np.float64), b.astype(np.float64))
    return bool((b >= 0).all() and (np.abs(result) < min(2.0**24, np.iinfo(a.dtype).max)).all() and (a.dtype.kind == "i" or (result >= 0).all()))


def casts(arrays, node):
    """A float that the integer type does not hold is undefined, a text that is no number, and how many digits a number has as a text."""
    to = attribute(node, "to")
    to = helper.tensor_dtype_to_np_dtype(to) if to else arrays[1].dtype
    a = arrays[0]
    if a.dtype.kind in "OUS":
        return to == TEXT
    if to == TEXT:
        return a.dtype.kind != "f"
    if a.dtype.kind == "f" and to.kind in "iu":
        limits = np.iinfo(to)
        return bool(np.isfinite(a).all() and (np.trunc(a.astype(float)) >= limits.min).all() and (np.trunc(a.astype(float)) <= min(limits.max, 2**62)).all())
    return to != np.float16 or finite(arrays, node) and bool((np.abs(a.astype(float)) < 3e4).all())


def within(axis_of):
    """Indices are in range, which is checked by some, clipped by others."""

    def check(arrays, node):
        sizes = axis_of(arrays, node)
        return bool((arrays[1] < sizes).all() and (arrays[1] >= -sizes).all())

    return check


def gather_size(arrays, node):
    return arrays[0].shape[attribute(node, "axis", 0)]


def scatters(arrays, node):
    """Without a reduction, indices that meet leave open who is last."""
    if not within(gather_size)(arrays, node) or arrays[1].shape != arrays[2].shape:
        return False
    if (attribute(node, "reduction") or b"none") != b"none":
        return no_nan(arrays, node)
    data, indices = arrays[:2]
    axis = attribute(node, "axis", 0) % data.ndim
    indices = np.sort(np.where(indices < 0, indices + data.shape[axis], indices), axis)
    return bool((np.diff(indices, axis=axis) != 0).all())


def scatters_rows(arrays, node):
    data, indices = arrays[:2]
    depth = indices.shape[-1]
    sizes = np.array(data.shape[:depth])
    if arrays[2].shape != indices.shape[:-1] + data.shape[depth:]:
        return False
    if not ((indices < sizes).all() and (indices >= -sizes).all()):
        return False
    if (attribute(node, "reduction") or b"none") != b"none":
        return no_nan(arrays, node)
    rows = np.where(indices < 0, indices + sizes, indices).reshape(-1, depth)
    return len(np.unique(rows, axis=0)) == len(rows)


def gathers_rows(arrays, node):
    """ONNX Runtime does not look whether batches are equally many, and reads on behind the data."""
    batch = attribute(node, "batch_dims", 0)
    if arrays[0].shape[:batch] != arrays[1].shape[:batch]:
        return False
    sizes = np.array(arrays[0].shape[attribute(node, "batch_dims", 0):][:arrays[1].shape[-1]])
    return bool((arrays[1] < sizes).all() and (arrays[1] >= -sizes).all())


def scaled(arrays, node):
    """A scale for all, or one an index of the axis."""
    return arrays[1].ndim == 0 or arrays[0].shape[attribute(node, "axis", 1)] == arrays[1].size


def quantizes(arrays, node):
    """Only finite numbers, with scales above 0."""
    return scaled(arrays, node) and finite(arrays, node) and bool((arrays[1] > 0).all() and (np.abs(arrays[0].astype(float)) < 1e6).all())


def some(arrays, node):
    """Of nothing there is no extreme, mean or share."""
    return all(a is None or a.size for a in arrays)


def both(*checks):
    return lambda arrays, node: all(check(arrays, node) for check in checks)


sums = both(finite, moderate)  # padding is multiplied by some and left out by others
windows = both(sums, covers)
