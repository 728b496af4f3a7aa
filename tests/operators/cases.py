# SPDX-License-Identifier: Apache-2.0
"""How a case of an operator is told, and how it becomes a folder that `onnxfuse test` takes.

A case is a row: table("Operator", row("what it shows", [inputs], attribute=value...), ...). Inputs are told by shape and fill (f, i, b,
data, or entries of a map); None is an input left out; constant(...) makes an input an initializer. What must come out is computed by ONNX Runtime, or by
the formula that the row names (expect), on the model of that one node. Each case is written twice: with the inputs' sizes in the
model, and with sizes that are known at run time alone."""

import json
import zlib
from dataclasses import dataclass, field, replace

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

f16, f32, f64 = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
i8, u8, i32, i64 = np.dtype(np.int8), np.dtype(np.uint8), np.dtype(np.int32), np.dtype(np.int64)
MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
STANDARD_OPSET = 21  # beside operators of other domains
IR_VERSION = 10

# How far a float may be from what is expected, in units of f32's (f64's) distance between 1 and the next number: rtol relative to the
# number; atol for numbers near zero that are sums of larger ones. f16 is computed in f32 and rounded once, so that it is at most one
# f16 apart; where the operator's parts are stored as f16, each of those roundings adds to atol (half).
DEFAULT_RTOL, DEFAULT_ATOL = 8, 4
SPACING = {f16: 2.0**-23, f32: 2.0**-23, f64: 2.0**-52}
HALF_RTOL, HALF_ATOL, HALF_ROUNDING = 2.0**-10, 2.0**-24, 2.0**-11


# --- inputs ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Fill:
    """One input: its array is drawn from the generator of its case."""

    draw: object  # generator -> array
    constant: bool = False


def f(*shape, low=-2.0, high=2.0, dtype=f32):
    return Fill(lambda rng: rng.uniform(low, high, shape).astype(dtype))


def i(*shape, low=0, high=10, dtype=i64):
    """Integers, high excluded."""
    return Fill(lambda rng: rng.integers(low, high, shape).astype(dtype))


def factor(*shape, dtype):
    """Weights of a product. Signed ones by half their range: ONNX Runtime adds two products of u8 by i8 in 16 bits, which saturate, where the
    processor has no instructions for sums of four (AVX2 without VNNI)."""
    return i(*shape, low=-64, high=64, dtype=dtype) if dtype == i8 else i(*shape, low=0, high=256, dtype=dtype)


def b(*shape):
    return Fill(lambda rng: rng.integers(0, 2, shape).astype(bool))


def data(values, dtype=None):
    return Fill(lambda rng: np.asarray(values, dtype=dtype))


def drawn(draw):
    """An input of a form of its own: draw(generator) gives the array."""
    return Fill(draw)


@dataclass(frozen=True, eq=False)
class Map:
    """A map as a value: its keys, and its values beside them."""

    keys: np.ndarray
    values: np.ndarray
    dtype = np.dtype(object)  # of no case's float inputs
    ndim = 0

    def as_dict(self):
        return dict(zip(self.keys.tolist(), self.values.tolist()))


def entries(keys, values, key, value):
    """An input that is a map, of keys and values of these types."""
    return Fill(lambda rng: Map(np.array(keys, key), np.array(values, value)))


def constant(fill):
    return replace(fill, constant=True)


# --- cases ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Case:
    name: str
    inputs: list  # Fill or None
    attributes: dict
    op: str = ""
    domain: str = ""
    version: int = 1
    outputs: tuple = (0,)  # of the operator's outputs those that are asked for
    expect: object = None  # (case, inputs) -> list of arrays; None: ONNX Runtime
    types: tuple = ()  # of the outputs that are asked for, where ONNX Runtime does not find them itself
    rtol: float = DEFAULT_RTOL  # in units of the type's spacing
    atol: float = DEFAULT_ATOL
    half: float = 0  # roundings to f16 on the way, of numbers near 1
    refused: str = ""  # what the message says where the operator refuses the case
    sizes: tuple = ("said", "open")  # whether the model says the inputs' sizes, or leaves them to the run
    dtype: np.dtype = f32  # of the float inputs
    after: str = ""  # an operator that takes the first output, and whose output is compared instead
    judge: object = None  # outputs -> complaint or None; for outputs that are drawn
    arrays: list = field(default=None, compare=False)


OWN_FIELDS = {"outputs", "expect", "types", "rtol", "atol", "half", "refused", "after", "sizes", "judge", "domain", "version", "dtypes"}


def row(name, inputs, **rest):
    """A case: keywords that are no field of Case are the operator's attributes."""
    return (name, inputs, {k: v for k, v in rest.items() if k not in OWN_FIELDS}, {k: v for k, v in rest.items() if k in OWN_FIELDS})


def table(op, *rows, **shared):
    """The cases of an operator; what is said beside the rows holds for all of them. dtypes: each case once with f32 inputs of these."""
    made = []
    for name, inputs, attributes, own in rows:
        own = {**shared, **own}
        for dtype in own.pop("dtypes", [f32]):
            label = f"{name}, {dtype}" if dtype != f32 else name
            case = Case(label, inputs, attributes, op, dtype=dtype, **own)
            rng = np.random.default_rng(zlib.crc32(f"{op} {name}".encode()))
            arrays = [fill and fill.draw(rng) for fill in inputs]
            arrays = [a.astype(dtype) if a is not None and a.dtype == f32 else a for a in arrays]
            made.append(replace(case, arrays=arrays))
    return made


def slug(case):
    safe = "".join(c if c.isalnum() else "_" for c in f"{case.name}")
    return f"{case.domain or 'ai.onnx'}/{case.op}-{case.version}/{safe}"


# --- models ---------------------------------------------------------------------------------------------------------
def model_of(case, arrays, results=None, open_sizes=False):
    """The model of the case's node; results gives its outputs' types, which ONNX Runtime finds itself."""
    names = [f"x{k}" if a is not None else "" for k, a in enumerate(arrays)]
    while names and not names[-1]:
        names.pop()
    outputs = [f"y{k}" if k in case.outputs else "" for k in range(max(case.outputs) + 1)]
    node = helper.make_node(case.op, names, outputs, domain=case.domain, **case.attributes)
    inputs, initializers = [], []
    for k, array in enumerate(arrays):
        if array is None:
            continue
        if case.inputs[k].constant:
            initializers.append(numpy_helper.from_array(array, f"x{k}"))
            continue
        sizes = [f"x{k}_{axis}" for axis in range(array.ndim)] if open_sizes else None
        inputs.append(helper.make_value_info(f"x{k}", type_of(array, sizes)))
    declared = []
    for at, k in enumerate(case.outputs):
        if results is None and case.types:
            declared.append(helper.make_tensor_value_info(f"y{k}", helper.np_dtype_to_tensor_dtype(np.dtype(case.types[at])), None))
        elif results is None:
            declared.append(helper.make_empty_tensor_value_info(f"y{k}"))
        else:
            result = results[at]
            sizes = [None] * result.ndim if open_sizes and not isinstance(result, list) else None
            kind = type_of(result, sizes)
            declared.append(helper.make_value_info(f"y{k}", kind) if kind else helper.make_empty_tensor_value_info(f"y{k}"))
    nodes = [node]
    if case.after:
        node.output[0] = "between"
        nodes.append(helper.make_node(case.after, ["between"], outputs[:1]))
    graph = helper.make_graph(nodes, "case", inputs, declared, initializers)
    opsets = [helper.make_opsetid("", case.version if not case.domain else STANDARD_OPSET)]
    if case.domain:
        opsets.append(helper.make_opsetid(case.domain, case.version))
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def type_of(value, sizes=None):
    """The TypeProto of an array (sizes: instead of its own), a map, or a list of maps; None of an empty list, which does not tell."""
    if isinstance(value, list):
        return helper.make_sequence_type_proto(type_of(value[0])) if value else None
    if isinstance(value, Map):
        return helper.make_map_type_proto(tensor_type(value.keys), helper.make_tensor_type_proto(tensor_type(value.values), None))
    return helper.make_tensor_type_proto(tensor_type(value), value.shape if sizes is None else sizes)


def proto_of(value):
    """What a test's folder holds of it."""
    if isinstance(value, list):
        return onnx.SequenceProto(elem_type=onnx.SequenceProto.MAP, map_values=[proto_of(item) for item in value])
    if not isinstance(value, Map):
        return numpy_helper.from_array(value, "")
    one_each = onnx.SequenceProto(elem_type=onnx.SequenceProto.TENSOR, tensor_values=[numpy_helper.from_array(v) for v in map(np.asarray, value.values)])
    proto = onnx.MapProto(key_type=tensor_type(value.keys), values=one_each)
    if proto.key_type == TensorProto.STRING:
        proto.string_keys.extend(key.encode() for key in value.keys)
    else:
        proto.keys.extend(value.keys.tolist())
    return proto


def tensor_type(array):
    return TensorProto.STRING if array.dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(array.dtype)


# --- what must come out -----------------------------------------------------------------------------------------------
def session_options():
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return options


def by_onnxruntime(case, arrays):
    model = model_of(case, arrays)
    session = onnxruntime.InferenceSession(model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"])
    feeds = {f"x{k}": a for k, a in enumerate(arrays) if a is not None and not case.inputs[k].constant}
    return session.run(None, {name: a.as_dict() if isinstance(a, Map) else a for name, a in feeds.items()})


def with_zeros(*indices):
    """What ONNX Runtime gives where these inputs, which it needs, are zero."""

    def expect(case, inputs):
        first = inputs[0].dtype
        inputs = [np.zeros((), first) if k in indices else x for k, x in enumerate(inputs + [None] * (max(indices) + 1 - len(inputs)))]
        return by_onnxruntime(replace(case, inputs=[Fill(None)] * len(inputs)), inputs)

    return expect


def first_of(*outputs):
    """ONNX Runtime's results where it must be asked for all of these outputs, and the others of them are not to be compared."""

    def expect(case, inputs):
        return by_onnxruntime(replace(case, outputs=outputs), inputs)[: len(case.outputs)]

    return expect


def given_as(dtype):
    """What ONNX Runtime gives for the first input in this type, where it does not take the case's."""
    return lambda case, inputs: by_onnxruntime(case, [inputs[0].astype(dtype), *inputs[1:]])


def at_version(version):
    """What ONNX Runtime gives at another version, which means the same, where it does not have the case's."""
    return lambda case, inputs: by_onnxruntime(replace(case, version=version), inputs)


def by_reference(case, inputs):
    """What the onnx package's own evaluator gives."""
    feeds = {f"x{k}": a for k, a in enumerate(inputs) if a is not None and not case.inputs[k].constant}
    return ReferenceEvaluator(model_of(case, inputs)).run(None, feeds)


def maps_of(dictionaries):
    """ONNX Runtime's sequence of maps, whose values are f32."""
    return [Map(np.array(list(d), object if isinstance(next(iter(d)), str) else i64), np.array(list(d.values()), f32)) for d in dictionaries]


def expected(case):
    """The outputs that are asked for. f16 is computed in f32 and rounded once."""
    arrays = [a.astype(f32) if case.dtype == f16 and a is not None and a.dtype == f16 else a for a in case.arrays]
    if case.expect:
        results = case.expect(case, arrays)
    else:
        results = by_onnxruntime(case, arrays)
    results = [maps_of(r) if isinstance(r, list) else np.asarray(r) for r in results]
    if case.dtype == f16:
        results = [r.astype(f16) if isinstance(r, np.ndarray) and r.dtype == f32 else r for r in results]
    return results


# --- folders ----------------------------------------------------------------------------------------------------------
def tolerances_of(results, rtol, atol, half):
    dtypes = [r.dtype for r in results if isinstance(r, np.ndarray)]
    spacing = max((SPACING.get(dtype, 0) for dtype in dtypes), default=0)
    rtol, atol = rtol * spacing, atol * spacing
    if f16 in dtypes:
        rtol, atol = rtol + HALF_RTOL, atol + HALF_ATOL + half * HALF_ROUNDING
    return {"rtol": rtol, "atol": atol}


def write(case, folder):
    """Writes the case's folders; gives them."""
    results = [np.zeros(0, f32)] * len(case.outputs) if case.refused else expected(case)
    folders = []
    for sizes in case.sizes[:1] if case.refused else case.sizes:
        open_sizes = sizes == "open"
        at = folder.with_name(folder.name + "-open") if open_sizes else folder
        data_set = at / "test_data_set_0"
        data_set.mkdir(parents=True, exist_ok=True)
        declared = None if case.refused else results
        (at / "model.onnx").write_bytes(model_of(case, case.arrays, declared, open_sizes).SerializeToString())
        (at / "data.json").write_text(json.dumps(tolerances_of(results, case.rtol, case.atol, case.half)))
        given = [a for k, a in enumerate(case.arrays) if a is not None and not case.inputs[k].constant]
        for role, values in (("input", given), ("output", results)):
            for k, value in enumerate(values):
                (data_set / f"{role}_{k}.pb").write_bytes(proto_of(value).SerializeToString())
        folders.append(at)
    return folders
