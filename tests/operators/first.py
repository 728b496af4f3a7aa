# SPDX-License-Identifier: Apache-2.0
"""The standard's operators at versions that ONNX Runtime does not have, or whose attributes and inputs are other ones: against formulas,
and against ONNX Runtime at a version that means the same."""

from dataclasses import replace

import numpy as np
from onnx import TensorProto, helper

from cases import at_version, b, by_onnxruntime, constant, data, f, f32, i, i64, row, table

V1 = {"version": 1}
SUMS = {"rtol": 64, "atol": 64}


def formula(compute):
    """The formula of the inputs in f64, in the first input's type, or bool."""

    def expect(case, inputs):
        wide = [x.astype(np.float64) if x.dtype == f32 else x for x in inputs if x is not None]
        y = np.asarray(compute(*wide))
        return [y if y.dtype == bool else y.astype(inputs[0].dtype)]

    return expect


def otherwise(version, **attributes):
    """What ONNX Runtime gives at another version with other attributes; None leaves one out."""

    def expect(case, inputs):
        changed = {k: v for k, v in (case.attributes | attributes).items() if v is not None}
        return by_onnxruntime(replace(case, version=version, attributes=changed), inputs)

    return expect


# --- a number each ----------------------------------------------------------------------------------------------------
UNARY = {
    "Abs": np.abs, "Ceil": np.ceil, "Exp": np.exp, "Floor": np.floor, "Neg": np.negative, "Reciprocal": np.reciprocal, "Tanh": np.tanh,
    "Relu": lambda x: np.maximum(x, 0), "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Log": np.log, "Sqrt": np.sqrt,
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x), "LeakyRelu": lambda x: np.where(x < 0, np.float32(0.01) * x, x),
    "HardSigmoid": lambda x: np.clip(np.float32(0.2) * x + 0.5, 0, 1),
    "Selu": lambda x: np.float32(1.0507) * np.where(x > 0, x, np.float32(1.6732) * np.expm1(x)),
}
POSITIVE = ("Log", "Sqrt", "Reciprocal")
NUMBERS = [
    *(case for op, compute in UNARY.items() for case in table(
        op, row("as it was first", [f(3, 5, low=0.1 if op in POSITIVE else -2)]),
        row("with what it consumes", [f(3, 5, low=0.1 if op in POSITIVE else -2)], consumed_inputs=[0]), expect=formula(compute), **V1)),
    *table("Elu", row("alpha", [f(3, 5)], alpha=0.5, expect=formula(lambda x: np.where(x < 0, 0.5 * np.expm1(x), x))), **V1),
    *table("LeakyRelu", row("alpha", [f(3, 5)], alpha=0.25, expect=formula(lambda x: np.where(x < 0, 0.25 * x, x))), **V1),
    *table("HardSigmoid", row("alpha and beta", [f(3, 5)], alpha=0.5, beta=0.25, expect=formula(lambda x: np.clip(0.5 * x + 0.25, 0, 1))), **V1),
    *table("Selu", row("alpha and gamma", [f(3, 5)], alpha=2.0, gamma=3.0, expect=formula(lambda x: 3 * np.where(x > 0, x, 2 * np.expm1(x)))), **V1),
    *table("Clip", row("both bounds", [f(3, 5)], min=-0.5, max=1.0, expect=formula(lambda x: np.clip(x, -0.5, 1))),
           row("one bound", [f(3, 5)], min=-0.5, expect=formula(lambda x: np.maximum(x, -0.5))), row("no bound", [f(3, 5)], expect=formula(lambda x: x)), **V1),
    *table("PRelu", row("a slope a channel", [f(2, 3, 4, 5), f(3)], expect=formula(lambda x, s: np.where(x < 0, s.reshape(3, 1, 1) * x, x))),
           row("one slope", [f(2, 3, 4), f(1)], expect=formula(lambda x, s: np.where(x < 0, s * x, x))), **V1),
    *table("Cast", row("to a type by its name", [f(3, 4, low=0, high=50)], to="INT64", expect=lambda case, x: [x[0].astype(i64)]),
           row("to bool", [data([0.0, 0.5, -2.0], f32)], to="BOOL", expect=lambda case, x: [x[0] != 0]), **V1),
    *(case for op, compute in {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}.items() for case in table(
        op, row("three", [f(3, 4), f(3, 4), f(3, 4)], expect=formula(lambda x, y, z, compute=compute: compute(compute(x, y), z))),
        row("one", [f(3, 4)], expect=formula(lambda x: x)), **V1)),
    *table("Mean", row("three", [f(3, 4), f(3, 4), f(3, 4)], expect=formula(lambda x, y, z: (x + y + z) / 3)), row("one", [f(3, 4)], expect=formula(lambda x: x)), **V1),
]


# --- pairs, which broadcast where it is said --------------------------------------------------------------------------
def pairs(op, compute, draw):
    along = formula(lambda x, y: compute(x, y.reshape(3, 1)))
    return table(op, row("equal shapes", [draw(2, 3, 4), draw(2, 3, 4)], expect=formula(compute)),
                 row("the last axes", [draw(2, 3, 4), draw(3, 4)], broadcast=1, expect=formula(compute)),
                 row("one number", [draw(2, 3, 4), draw(1)], broadcast=1, expect=formula(compute)),
                 row("from an axis", [draw(2, 3, 4), draw(3)], broadcast=1, axis=1, expect=along),
                 row("from the first axis", [draw(2, 3, 4), draw(2, 3)], broadcast=1, axis=0, expect=formula(lambda x, y: compute(x, y[..., None]))), **V1)


def apart(*shape):
    return f(*shape, low=0.5, high=2)


def small(*shape):
    return i(*shape, low=0, high=3)


PAIRS = [
    *pairs("Add", np.add, f), *pairs("Sub", np.subtract, f), *pairs("Mul", np.multiply, f), *pairs("Div", np.divide, apart), *pairs("Greater", np.greater, f),
    *pairs("Less", np.less, f), *pairs("And", np.logical_and, b), *pairs("Or", np.logical_or, b), *pairs("Xor", np.logical_xor, b), *pairs("Equal", np.equal, small),
]

# --- reductions, normalisation, products ------------------------------------------------------------------------------
REDUCTIONS = ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]
MATRICES = [
    *(case for op in REDUCTIONS for version in (1, 11, 13) for case in table(
        op, row("one axis", [f(2, 3, 4, low=0.1)], axes=[1]), row("two axes, not kept", [f(2, 3, 4, low=0.1)], axes=[0, 2], keepdims=0),
        row("all", [f(2, 3, 4, low=0.1)]), version=version, expect=at_version(max(version, 11)), **SUMS)),
    *table("BatchNormalization",
           row("a test", [f(2, 3, 4, 5), f(3), f(3), f(3), f(3, low=0.1)], is_test=1, consumed_inputs=[0, 0, 0, 1, 1], epsilon=1e-3,
               expect=otherwise(9, is_test=None, consumed_inputs=None)), **V1, **SUMS),
    *table("InstanceNormalization", row("two spatial axes", [f(2, 3, 4, 5), f(3), f(3)], consumed_inputs=[0], expect=otherwise(6, consumed_inputs=None)), **V1, **SUMS),
    *table("Gemm",
           row("a bias that broadcasts", [f(3, 4), f(4, 5), f(5)], broadcast=1, expect=otherwise(7, broadcast=None)),
           row("a bias of the result's shape", [f(4, 3), f(5, 4), f(3, 5)], transA=1, transB=1, alpha=0.5, beta=2.0, expect=at_version(7)), **V1, **SUMS),
]


def recurrent(op, version):
    rows = {"RNN": 1, "GRU": 3, "LSTM": 4}[op] * 2
    return table(op, row("all steps", [f(4, 3, 5), f(1, rows, 5), f(1, rows, 2), f(1, 2 * rows)], hidden_size=2, output_sequence=1, outputs=(0, 1),
                         expect=otherwise(7, output_sequence=None)), version=version, **SUMS)


MATRICES += [*recurrent("RNN", 1), *recurrent("GRU", 1), *recurrent("GRU", 3), *recurrent("LSTM", 1)]

# --- windows and sizes ------------------------------------------------------------------------------------------------
WINDOWS = [
    *table("LpPool", row("p as a float", [f(1, 2, 6, 6)], kernel_shape=[2, 2], strides=[2, 2], p=3.0, expect=otherwise(2, p=3)),
           row("p unsaid", [f(1, 2, 6, 6)], kernel_shape=[3, 3], expect=at_version(2)), **V1, **SUMS),
    *table("GlobalLpPool", row("p as a float", [f(1, 2, 6, 6)], p=3.0, expect=otherwise(2, p=3)), row("p unsaid", [f(1, 2, 6, 6)], expect=at_version(2)), **V1, **SUMS),
    *table("GlobalLpPool", row("p 3", [f(1, 2, 6, 6)], p=3), version=22, expect=at_version(2), **SUMS),
    *table("MaxRoiPool", row("two regions", [f(2, 3, 8, 8), data([[0, 0, 0, 7, 7], [1, 2, 1, 6, 5]], f32)], pooled_shape=[2, 2]), version=22, expect=at_version(1)),
    *table("Resize",
           *(row(f"{mode}, {'larger' if scale > 1 else 'smaller'}", [f(1, 2, 4, 6), constant(data([1, 1, scale, scale], f32))], mode=mode) for mode in ("nearest", "linear")
             for scale in (2.0, 0.5)), version=10, **SUMS),
    *table("Resize",
           *(row(f"{mode}, {how}", [f(1, 2, 4, 6), constant(data([], f32)), constant(data([1, 1, 1.5, 2], f32))], mode=mode, coordinate_transformation_mode=how)
             for mode in ("nearest", "linear", "cubic") for how in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")), version=11, **SUMS),
    *table("Upsample", *(row(mode, [f(1, 2, 3, 4)], mode=mode, scales=[1.0, 1.0, 2.0, 3.0]) for mode in ("nearest", "linear")), version=7, **SUMS),
    *table("Upsample",
           *(row(mode, [f(1, 2, 3, 4)], mode=mode, height_scale=2.0, width_scale=3.0,
                 expect=otherwise(7, mode=mode.replace("bi", ""), height_scale=None, width_scale=None, scales=[1.0, 1.0, 2.0, 3.0])) for mode in ("nearest", "bilinear")), **V1,
           **SUMS),
    *table("RoiAlign",
           *(row(f"{mode}, {samples} samples", [f(2, 3, 8, 8), data([[0.5, 1, 6, 7], [2, 2, 5, 4]], f32), data([0, 1], i64)], mode=mode, output_height=3, output_width=2,
                 sampling_ratio=samples, spatial_scale=0.75) for mode, samples in (("avg", 0), ("avg", 2), ("max", 1))), version=10, **SUMS),
]

# --- movement ---------------------------------------------------------------------------------------------------------
MOVEMENT = [
    *table("Concat", row("an axis unsaid is the second", [f(2, 3), f(2, 4)], expect=otherwise(4, axis=1)), row("an axis", [f(2, 3), f(1, 3)], axis=0, expect=at_version(4)), **V1),
    *table("Pad", *(row(mode, [f(3, 4)], paddings=[1, 0, 2, 1], mode=mode, value=1.5, expect=otherwise(2, paddings=None, pads=[1, 0, 2, 1]))
                    for mode in ("constant", "reflect", "edge")), **V1),
    *table("Reshape", row("a size kept, a size found", [f(2, 3, 4)], shape=[0, -1], expect=lambda case, x: [x[0].reshape(2, 12)]),
           row("with what it consumes", [f(2, 3, 4)], shape=[4, 6], consumed_inputs=[0], expect=lambda case, x: [x[0].reshape(4, 6)]), **V1),
    *table("Split", row("sizes", [f(2, 6)], axis=1, split=[2, 4], outputs=(0, 1), expect=lambda case, x: np.split(x[0], [2], 1)),
           row("equal parts", [f(2, 6)], axis=1, outputs=(0, 1), expect=lambda case, x: np.split(x[0], 2, 1)),
           row("sizes as an input", [f(2, 6), constant(data([2, 4], f32))], axis=1, outputs=(0, 1), expect=lambda case, x: np.split(x[0], [2], 1)), **V1),
    *table("Squeeze", row("axes", [f(1, 3, 1, 4)], axes=[0, 2]), row("an axis from the end", [f(1, 3, 1, 4)], axes=[-2]), row("all", [f(1, 3, 1, 4)], sizes=("said",)), version=11),
    *table("Tile", row("one axis", [f(2, 3), constant(data(3, f32)), constant(data(1, f32))], expect=lambda case, x: [np.tile(x[0], (1, 3))]), **V1),
    *table("TopK", row("the largest of an axis", [f(3, 6)], k=2, axis=0, outputs=(0, 1)), row("an axis unsaid is the last", [f(3, 6)], k=2, outputs=(0, 1)), **V1),
    *table("DepthToSpace", row("depth before columns", [f(2, 8, 3, 2)], blocksize=2, expect=at_version(11)), **V1),
    *table("Dropout", row("a test", [f(3, 4)], is_test=1, ratio=0.25, consumed_inputs=[0], expect=lambda case, x: x), **V1),
    *table("Optional", row("a tensor, taken out again", [f(3, 4)], after="OptionalGetElement", expect=lambda case, x: x), version=28),
]


# --- Loop -------------------------------------------------------------------------------------------------------------
def loop_body():
    """The state doubles, at most three times; gives all states."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("Add", ["state", "state"], ["next"]), helper.make_node("Identity", ["next"], ["kept"]),
             helper.make_node("Constant", [], ["last"], value=helper.make_tensor("last", TensorProto.INT64, [], [2])), helper.make_node("Equal", ["at", "last"], ["ends"]),
             helper.make_node("Not", ["ends"], ["more"])]
    return helper.make_graph(nodes, "body", [value("at", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("state", TensorProto.FLOAT, [2, 3])],
                             [value("more", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, [2, 3]), value("kept", TensorProto.FLOAT, [2, 3])])


def looped(case, inputs):
    most, go, state = int(inputs[0]), bool(inputs[1]), inputs[2]
    states = []
    while go and len(states) < most:
        state = state + state
        go = len(states) < 2
        states.append(state)
    return [state, np.array(states, f32).reshape(-1, 2, 3)]


LOOPS = [case for version in (1, 11, 19, 21, 23, 24) for case in table(
    "Loop", *(row(f"at most {most}{'' if go else ', not at all'}", [data(most, i64), data(go), f(2, 3)], outputs=(0, 1), body=loop_body())
              for most, go in ((2, True), (10, True), (0, True), (5, False))), version=version, expect=looped)]

CASES = [*NUMBERS, *PAIRS, *MATRICES, *WINDOWS, *MOVEMENT, *LOOPS]
