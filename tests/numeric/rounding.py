# SPDX-License-Identifier: Apache-2.0
"""How far two runs of one model may be apart where nothing but rounding differs: from the number format, the longest sum and how the
model itself answers to small changes. rounding.h has it for single sums, and the source of gamma.

A sum of n products in any order is the exact sum of products whose factors are each changed by at most gamma(n), relative (Higham,
Accuracy and Stability of Numerical Algorithms, section 3.1: backward error). So what rounding may do to the results of a whole model is
found by changing weights and inputs by a known relative amount that is far above rounding, several times with random signs:

    |error of an element| <= gamma(n) / CHANGE * its change + ULPS u (|element| + ends_at)

The second term is of what comes after the last sum: a function of a library may be off by some units in the last place, and one whose
results end at a number by as much of that (a sigmoid may be computed as a half and something). Unless told, that is the largest
element, or 1. A narrow type is
computed in f32; each time that a value on the way is stored as one, its unit roundoff is lost beside gamma. Needs numpy alone."""
import copy

import numpy

DRAWS = 8  # so that an element stays where it is by chance less than once in a million times
CHANGE = 2.0**-12  # far above f32's rounding, far below what makes a model answer in another way
ULPS = 4
LEAST = 16  # elements of a weight that is changed: scales of a Resize, exponents and bounds stay


def unit(dtype):
    return numpy.finfo(dtype).eps / 2


def gamma(terms, dtype=numpy.float32):
    lost = min(terms, 8 * terms**0.5) * float(unit(dtype))
    return lost / (1 - lost)


def shaken(rng, array):
    """The array with each element changed by CHANGE, up or down; what is small or no float stays."""
    if array.dtype.kind != "f":
        return array
    signs = rng.integers(0, 2, array.shape, numpy.int8) * 2 - 1
    return (array * (1 + signs * array.dtype.type(CHANGE))).astype(array.dtype)


def shaken_model(rng, model):
    """An ONNX model with its weights changed."""
    from onnx import TensorProto, numpy_helper  # not there on every machine that compares

    def weights_of(graph):
        yield from graph.initializer
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.HasField("t"):
                    yield attribute.t
                for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    yield from weights_of(inner)

    other = copy.deepcopy(model)
    for tensor in weights_of(other.graph):
        if tensor.data_type == TensorProto.FLOAT and numpy.prod(tensor.dims) >= LEAST:
            tensor.CopyFrom(numpy_helper.from_array(shaken(rng, numpy_helper.to_array(tensor)), tensor.name))
    return other


class Condition:
    """What small changes do to a model in f32. run_of(model) opens it: a function from feeds to a list of arrays; shake(rng, model) gives it
    with other weights."""

    def __init__(self, model, run_of, shake=shaken_model, draws=DRAWS):
        self.rng = numpy.random.default_rng(11)
        self.plain, self.changed = run_of(model), [run_of(shake(self.rng, model)) for _ in range(draws)]

    def bounds(self, feeds, terms, stored=numpy.float32, stores=0, ends_at=None):
        """The results, and of each element how far another run may be from it; None of what is no float. terms: of the longest sum;
        stored: the type of the other run's values, which are stored so many times on the way to a result."""
        results, squares = self.plain(feeds), None
        for run in self.changed:
            found = run({name: shaken(self.rng, x) for name, x in feeds.items()})
            moved = [numpy.square(a.astype(float) - b) if a.dtype.kind == "f" else 0 for a, b in zip(found, results)]
            squares = [a + b for a, b in zip(squares, moved)] if squares else moved
        lost = 2 * gamma(terms) + (0 if stored == numpy.float32 else stores * unit(stored))  # neither run is exact
        return results, [lost / CHANGE * numpy.sqrt(s / len(self.changed)) + last_steps(y, stored, ends_at) if y.dtype.kind == "f" else None
                         for y, s in zip(results, squares)]


def last_steps(y, stored, ends_at):
    """Of what comes after the last sum, and of numbers that are too small for the type."""
    size = numpy.abs(y.astype(float))
    ends_at = min(1, size.max(initial=0)) if ends_at is None else ends_at
    narrow = unit(stored) * size + float(numpy.finfo(stored).smallest_subnormal) if stored != numpy.float32 else 0
    return 2 * ULPS * unit(numpy.float32) * (size + ends_at) + float(numpy.finfo(numpy.float32).tiny) + narrow


def assert_close(found, wanted, bounds=None):
    """Arrays are equal, floats within their bounds; without bounds all are equal."""
    assert len(found) == len(wanted), (len(found), len(wanted))
    for at, (a, b) in enumerate(zip(found, wanted)):
        a, b = numpy.asarray(a), numpy.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
        if bounds is None or bounds[at] is None:
            numpy.testing.assert_array_equal(a, b)
            continue
        off = times_bound(a, b, bounds[at])
        assert not off.size or off.max() <= 1, \
            f"output {at}, element {at_most(off)}: {a[at_most(off)]} and {b[at_most(off)]} are {off.max():.3g} times as far apart as rounding explains"


def at_most(off):
    return tuple(int(i) for i in numpy.unravel_index(off.argmax(), off.shape))


def times_bound(a, b, bound):
    """How far apart elements are, as a multiple of their bounds; infinity where one alone is not a number, or infinite."""
    with numpy.errstate(invalid="ignore"):
        off = numpy.abs(a.astype(float) - b.astype(float)) / bound
    return numpy.where((a == b) | (numpy.isnan(a) & numpy.isnan(b)), 0, numpy.nan_to_num(off, nan=numpy.inf, posinf=numpy.inf))
