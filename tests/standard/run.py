#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lowered models written in the standard's operators again, and the gradients that `onnxfuse differentiate` writes.

    run.py BUILD CASES

BUILD holds onnxfuse and standard_models, CASES the standard's cases (scripts/write_cases.py). Each case is lowered, written, taken by
onnx.checker, and gives its recorded outputs again; those whose name falls into a sample do so in ONNX Runtime, too. Gradients are
compared between ONNX Runtime, onnxfuse and central differences."""
import collections
import os
import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from flow import FLOW, flow_model  # noqa: E402
from operators import OPERATORS  # noqa: E402
from run_cases import run_all  # noqa: E402

FLOAT, DOUBLE, INT64 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64
build, cases = Path(sys.argv[1]), Path(sys.argv[2])
rng = np.random.default_rng(7)
failed = []

# What cannot be written, and of how many cases: steps that are no single operator of the standard on what lowering leaves of their inputs
# (strings, other layouts), and random numbers.
REFUSED = {
    "ImageDecoder": 9, "LabelEncoder": 4, "MelWeightMatrix": 1, "NonMaxSuppression": 10, "RegexFullMatch": 3, "Squeeze": 2,
    "StringConcat": 5, "StringNormalizer": 12, "StringSplit": 6, "TfIdfVectorizer": 7, "TreeEnsemble": 2, "Unique": 7, "draws": 12,
}
NEWEST_OF_RUNTIME, SAMPLE = 26, 4  # one case in so many runs in ONNX Runtime


def fail(name, why):
    failed.append(name)
    print(f"FAIL  {name}: {why}", flush=True)


def session(path):
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


def recorded(path):
    tensor = TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def numbered(folder, kind):
    return sorted(folder.glob(f"{kind}_*.pb"), key=lambda path: int(path.stem.split("_")[1]))


# --- whole models -------------------------------------------------------------------------------------------------------------------
def runs_in_runtime(case, written):
    """Whether ONNX Runtime runs the written model where it runs the case, with the same results; None: it does not run the case."""
    if onnx.load(written / "model.onnx").opset_import[0].version > NEWEST_OF_RUNTIME:
        return None
    try:
        old = session(case / "model.onnx")
        data = case / "test_data_set_0"
        feeds = dict(zip([i.name for i in old.get_inputs()], map(recorded, numbered(data, "input"))))
        wanted = old.run(None, feeds)
    except Exception:  # whatever the runtime raises for what it has not
        return None
    try:
        found = session(written / "model.onnx").run(None, feeds)
    except Exception as error:
        return str(error)[:200]
    for x, y in zip(wanted, found):
        if not isinstance(x, np.ndarray):
            continue
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"{x.dtype}{x.shape} became {y.dtype}{y.shape}"
        exact = x.dtype.kind != "f"
        epsilon = 0 if exact else max(float(np.finfo(x.dtype).eps), 1e-7)
        if not (np.array_equal(x, y) if exact else np.allclose(x, y, rtol=1000 * epsilon, atol=100 * epsilon, equal_nan=True)):
            return "results differ"
    return True


def write_all(folder):
    found = sorted(path.parent for path in cases.rglob("model.onnx"))
    lines = []
    for case in found:
        target = folder / case.relative_to(cases)
        target.mkdir(parents=True)
        for file in case.iterdir():
            if file.name != "model.onnx":
                (target / file.name).symlink_to(file.resolve())
        lines.append(f"{case}/model.onnx\t{target}/model.onnx\n")
    done = subprocess.run([build / "standard_models"], input="".join(lines), capture_output=True, text=True)
    answers = done.stdout.splitlines()
    if done.returncode or len(answers) != len(found):
        fail(str(found[len(answers)]) if len(answers) < len(found) else "standard_models", f"ends with {done.returncode}: {done.stderr[-300:]}")
    return list(zip(found, [folder / case.relative_to(cases) for case in found], answers))


def test_cases(folder):
    refused, written, compared = collections.Counter(), [], 0
    for case, target, answer in write_all(folder):
        if answer == "written":
            written.append((case, target))
        elif answer.startswith("refused: "):
            named = re.search(r"(\w+) is not written in operators of the standard", answer)
            refused[named[1] if named else "draws" if "draws its random numbers" in answer else answer] += 1
    for case, target in written:
        try:
            onnx.checker.check_model(str(target / "model.onnx"), full_check=True)
        except Exception as error:
            fail(case.name, f"onnx.checker: {str(error)[:200]}")
        if zlib.crc32(case.name.encode()) % SAMPLE == 0 and (ran := runs_in_runtime(case, target)):
            compared += 1
            if ran is not True:
                fail(case.name, f"in ONNX Runtime: {ran}")
    results, problems = run_all([build / "onnxfuse", "test"], [str(target) for _, target in written], os.cpu_count())
    for problem in problems:
        fail("onnxfuse test", problem)
    for key, (outcome, message) in results.items():
        if outcome != "passes":
            fail(Path(key).name, f"{outcome}: {message}")
    if dict(refused) != REFUSED:
        fail("what is refused has changed", str(dict(sorted(refused.items()))))
    print(f"{len(written)} cases written, {compared} of them compared in ONNX Runtime, {sum(refused.values())} refused")


# --- gradients ----------------------------------------------------------------------------------------------------------------------
def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def model(nodes, inputs, outputs, weights, opset=17, dtype=np.float64):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    arrays = [numpy_helper.from_array(w.astype(dtype) if w.dtype == np.float64 else w, n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, kind, s) for n, s in inputs.items()],
                              [helper.make_tensor_value_info(n, kind, s) for n, s in outputs.items()], arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def normal(*shape):
    return rng.standard_normal(shape) * 0.5


def dense():
    nodes = [node("MatMul", "x w1", "a"), node("Add", "a b1", "b"), node("Tanh", "b", "c"),
             node("LayerNormalization", "c scale shift", "d"), node("Gemm", "d w2 b2", "logits", transB=1)]
    weights = dict(w1=normal(6, 8), b1=normal(8), scale=normal(8) + 1, shift=normal(8), w2=normal(5, 8), b2=normal(5))
    return model(nodes, dict(x=["n", 6]), dict(logits=["n", 5]), weights), dict(x=normal(4, 6), labels=np.array([0, 4, 2, 1])), "cross_entropy:logits,labels"


def convolutions():
    nodes = [node("Conv", "x w1 b1", "a", pads=[1, 1, 1, 1], strides=[2, 2]), node("Sigmoid", "a", "b"),
             node("Conv", "b w2", "c", group=4), node("GlobalAveragePool", "c", "d"), node("Flatten", "d", "y")]
    weights = dict(w1=normal(4, 3, 3, 3), b1=normal(4), w2=normal(4, 1, 2, 2))
    return model(nodes, dict(x=["n", 3, 7, "w"]), dict(y=["n", 4]), weights, opset=13, dtype=np.float32), dict(x=normal(2, 3, 7, 6), t=normal(2, 4)), "mse:y,t"


def pools():
    """Windows that overlap, padded, whose averages count what lies inside alone; sizes of which a run knows the batch."""
    nodes = [node("Conv", "x w1 b1", "a"), node("MaxPool", "a", "b", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
             node("AveragePool", "b", "c", kernel_shape=[3, 2], strides=[1, 2], pads=[1, 0, 1, 0]), node("Conv", "c w2", "d"),
             node("AveragePool", "d", "e", kernel_shape=[2, 2], pads=[0, 1, 1, 0], count_include_pad=1), node("Flatten", "e", "y")]
    weights = dict(w1=normal(4, 3, 3, 3), b1=normal(4), w2=normal(2, 4, 1, 1))
    return model(nodes, dict(x=["n", 3, 10, 9]), dict(y=["n", 20]), weights, opset=19, dtype=np.float32), dict(x=normal(2, 3, 10, 9), t=normal(2, 20)), "mse:y,t"


def resizes():
    """By scales and by sizes, up and down, in all modes; a side that a run knows."""
    modes = [dict(mode="linear"), dict(mode="nearest"), dict(mode="cubic", cubic_coeff_a=-0.5), dict(mode="linear", coordinate_transformation_mode="align_corners"),
             dict(mode="linear", antialias=1), dict(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")]
    by = ["a  twice", "a  less", "a   sizes"]
    nodes = [node("Constant", "", "twice", value_floats=[1, 1, 2, 1.5]), node("Constant", "", "less", value_floats=[1, 1, 0.6, 1]),
             node("Conv", "x w1", "a", pads=[1, 1, 1, 1])]
    for i, mode in enumerate(modes):
        nodes += [helper.make_node("Resize", by[i % 3].split(" "), [f"r{i}"], **mode), node("Tanh", f"r{i}", f"t{i}"),
                  node("ReduceSum", f"t{i} axes", f"s{i}", keepdims=0)]
    nodes += [node("Concat", " ".join(f"s{i}" for i in range(len(modes))), "y", axis=1)]
    weights = dict(w1=normal(3, 2, 3, 3), sizes=np.array([2, 3, 9, 4]), axes=np.array([2, 3]))
    return model(nodes, dict(x=[2, 2, 5, "w"]), dict(y=[2, 3 * len(modes)]), weights, opset=19, dtype=np.float32), dict(x=normal(2, 2, 5, 6), t=normal(2, 18)), "mse:y,t"


def attention():
    """One block of a transformer: heads of 4, softmax, residuals, GELU."""
    nodes = [node("LayerNormalization", "x s1 z1", "n1"), node("MatMul", "n1 wq", "q0"), node("MatMul", "n1 wk", "k0"), node("MatMul", "n1 wv", "v0")]
    for name in "qkv":
        nodes += [node("Reshape", f"{name}0 heads", f"{name}1"), node("Transpose", f"{name}1", name, perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3])]
    nodes += [node("MatMul", "q k", "s"), node("Mul", "s factor", "ss"), node("Softmax", "ss", "p"), node("MatMul", "p v", "o"),
              node("Transpose", "o", "o1", perm=[0, 2, 1, 3]), node("Reshape", "o1 joined", "o2"), node("MatMul", "o2 wo", "o3"),
              node("Add", "x o3", "r"), node("LayerNormalization", "r s2 z2", "n2"), node("MatMul", "n2 w1", "h"), node("Gelu", "h", "g"),
              node("MatMul", "g w2", "f"), node("Add", "r f", "y")]
    weights = dict(s1=normal(8) + 1, z1=normal(8), wq=normal(8, 8), wk=normal(8, 8), wv=normal(8, 8), wo=normal(8, 8), s2=normal(8) + 1, z2=normal(8),
                   w1=normal(8, 16), w2=normal(16, 8), heads=np.array([0, 0, 2, 4]), joined=np.array([0, 0, 8]), factor=np.array(0.5))
    return model(nodes, dict(x=["b", "t", 8]), dict(y=["b", "t", 8]), weights, opset=20, dtype=np.float32), dict(x=normal(2, 3, 8), t=normal(2, 3, 8)), "mse:y,t"


def differentiate(path, out, *flags, code=0):
    done = subprocess.run([build / "onnxfuse", "differentiate", path, "-o", out, *flags], capture_output=True, text=True)
    if done.returncode != code:
        fail(path.name, f"differentiate {' '.join(flags)} ends with {done.returncode}, not {code}: {done.stderr}")
    return done.stdout + done.stderr


def run_own(path, feeds, folder):
    command = [build / "onnxfuse", "run", path, "--output-dir", folder / "out"]
    for name, array in feeds.items():
        np.save(folder / f"in_{name}.npy", array)
        command += ["--input", f"{name}={folder / f'in_{name}.npy'}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        fail(path.name, f"run: {done.stderr}")
        return None
    return lambda name: np.load(folder / "out" / f"{name}.npy")


def with_weight(path, name, array):
    changed = onnx.load(path)
    for tensor in changed.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(array, name))
    return changed.SerializeToString()


def slope(path, loss, feeds, name, at, weight):
    """Of the loss, in ONNX Runtime: two central differences, from which the error's next term is taken out (Richardson)."""
    losses = []
    for step in (1, -1, 2, -2):
        moved = weight.copy()
        moved[at] += step * (1e-3 if weight.dtype == np.float64 else 5e-3)
        changed = onnxruntime.InferenceSession(with_weight(path, name, moved), providers=["CPUExecutionProvider"])
        losses.append((float(changed.run([loss], feeds)[0]), float(moved[at])))
    near, far = ((losses[i][0] - losses[i + 1][0]) / (losses[i][1] - losses[i + 1][1]) for i in (0, 2))
    return (4 * near - far) / 3


def compare_gradients(name, path, out, loss, feeds, weights, kind, folder):
    """In ONNX Runtime, in onnxfuse, and by differences; what the model itself gives stays as it was, to the bit."""
    runner, old, own = session(out), session(path), run_own(out, feeds, folder)
    found = dict(zip([o.name for o in runner.get_outputs()], runner.run(None, feeds)))
    tight, rough = (1e-9, 1e-6) if kind == np.float64 else (2e-5, 2e-3)
    for n, y in zip([o.name for o in old.get_outputs()], old.run(None, {i.name: feeds[i.name] for i in old.get_inputs()})):
        if y.tobytes() != found[n].tobytes():
            fail(name, f"the model's own output {n} has changed")
    if {n for n in found if n.endswith("_grad")} != {f"{w}_grad" for w in weights}:
        fail(name, f"gradients of {sorted(found)}")
    for n, weight in weights.items():
        gradient, largest = found[f"{n}_grad"], np.abs(found[f"{n}_grad"]).max()
        if own and not np.abs(own(f"{n}_grad") - gradient).max() <= tight * largest:
            fail(name, f"{n}: ONNX Runtime and onnxfuse differ by {np.abs(own(f'{n}_grad') - gradient).max()} of {largest}")
        at = np.unravel_index(np.argmax(np.abs(gradient)), gradient.shape)
        wanted = slope(out, loss, feeds, n, at, weight)
        if not abs(gradient[at] - wanted) <= rough * abs(wanted):
            fail(name, f"{n}{list(map(int, at))}: {gradient[at]}, by differences {wanted}")
    return {n for n in weights if np.any(found[f"{n}_grad"])}


def test_gradients(folder, name, case, several_feeds, loss, *flags):
    kind = helper.tensor_dtype_to_np_dtype(case.graph.input[0].type.tensor_type.elem_type)
    path, out = folder / f"{name}.onnx", folder / f"{name}_step.onnx"
    onnx.save(case, path)
    differentiate(path, out, *flags)
    onnx.checker.check_model(str(out), full_check=True)
    weights = {t.name: numpy_helper.to_array(t) for t in case.graph.initializer if t.data_type in (FLOAT, DOUBLE) and t.dims}
    met = set()
    for feeds in several_feeds:
        feeds = {n: a.astype(kind) if a.dtype.kind == "f" else a for n, a in feeds.items()}
        met |= compare_gradients(name, path, out, loss, feeds, weights, kind, folder)
    if met != set(weights):
        fail(name, f"of all gradients only those of {sorted(met)} are not zero")


def test_flow(folder):
    for name, (text, several_feeds) in FLOW.items():
        case = flow_model(text)
        test_gradients(folder, name, case, several_feeds, "y", "--loss", "y", *(flag for t in case.graph.initializer for flag in ("--of", t.name)))


def test_dropout(folder):
    """One draw, forward and backward: the gradient with respect to a factor is what was let through."""
    nodes = [node("Mul", "x f", "a"), node("Dropout", "a half yes", "d"), node("ReduceSum", "d", "y", keepdims=0)]
    case = model(nodes, dict(x=[64]), dict(d=[64], y=[]), dict(f=np.ones(64), half=np.array(0.5), yes=np.array(True)), dtype=np.float32)
    onnx.save(case, folder / "dropout.onnx")
    differentiate(folder / "dropout.onnx", folder / "dropout_step.onnx", "--of", "f")
    x = np.arange(1, 65, dtype=np.float32)
    kept, _, gradient = session(folder / "dropout_step.onnx").run(None, {"x": x})
    if not np.array_equal(kept, gradient) or not 0 < np.count_nonzero(kept) < 64:
        fail("dropout", f"{kept} but {gradient}")


def test_failing_branch(folder):
    """What follows an If makes no sense for the results of one branch: it fails where it is taken, and there alone."""
    out, feeds = folder / "branch_fails_step.onnx", {"x": np.ones((1, 2))}
    np.save(folder / "in_x.npy", feeds["x"])
    done = subprocess.run([build / "onnxfuse", "run", out, "--input", f"x={folder / 'in_x.npy'}"], capture_output=True, text=True)
    if done.returncode != 4 or "branch would be taken" not in done.stderr:
        fail("branch_fails", f"onnxfuse ends with {done.returncode}: {done.stderr}")
    try:
        session(out).run(None, feeds)
        fail("branch_fails", "ONNX Runtime takes the branch")
    except onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument:
        pass


def by_kernels(path, y, names, feeds, folder):
    """Gradients as onnxfuse computes them for itself."""
    wanted = onnx.load(path)
    wanted.opset_import.append(helper.make_opsetid("ai.onnx.preview.training", 1))
    wanted.graph.node.append(helper.make_node("Gradient", names, [f"{n}_grad" for n in names], domain="ai.onnx.preview.training", xs=names, y=y))
    kind = wanted.graph.output[0].type.tensor_type.elem_type
    wanted.graph.output.extend(helper.make_tensor_value_info(f"{n}_grad", kind, None) for n in names)
    onnx.save(wanted, folder / f"{path.stem}_kernel.onnx")
    found = run_own(folder / f"{path.stem}_kernel.onnx", feeds, folder)
    return found and {n: found(f"{n}_grad") for n in names}


# Operator, further inputs of "lens h0 c0 P", attributes. layout: of which ONNX Runtime has none.
RECURRENT = [
    ("RNN", "", dict()), ("GRU", "", dict(direction="reverse")), ("LSTM", "h0 c0", dict()),
    ("RNN", "lens h0", dict(direction="bidirectional", activations=["Affine", "ScaledTanh"], activation_alpha=[0.3, 0.7], activation_beta=[0.4, 0.6])),
    ("RNN", "", dict(activations=["Relu"], clip=0.3)), ("GRU", "lens h0", dict(direction="bidirectional")),
    ("GRU", "h0", dict(linear_before_reset=1, activations=["Sigmoid", "LeakyRelu"], activation_alpha=[0.1])),
    ("GRU", "lens", dict(linear_before_reset=1, layout=1, direction="reverse", clip=0.4)),
    ("LSTM", "lens h0 c0 P", dict(direction="bidirectional")), ("LSTM", "P", dict(input_forget=1)),
    ("LSTM", "lens h0 c0 P", dict(layout=1, activations=["HardSigmoid", "Softsign", "Elu"], activation_alpha=[0.3, 0.7], activation_beta=[0.4])),
    ("LSTM", "", dict(activations=["Sigmoid", "Softplus", "ThresholdedRelu"], activation_alpha=[0.2], clip=0.5)),
]


def recurrent_model(op, given, attributes, time=4, batch=3, size=2, hidden=3):
    gates, directions = {"RNN": 1, "GRU": 3, "LSTM": 4}[op], 2 if attributes.get("direction") == "bidirectional" else 1
    first, given = attributes.get("layout"), given.split()
    state = (batch, directions, hidden) if first else (directions, batch, hidden)
    weights = dict(W=normal(directions, gates * hidden, size), R=normal(directions, gates * hidden, hidden), B=normal(directions, 2 * gates * hidden))
    weights |= {n: normal(*state) for n in given if n in ("h0", "c0")} | {n: normal(directions, 3 * hidden) for n in given if n == "P"}
    lengths = {"lens": np.array([time, time - 2, 1], np.int32)} if "lens" in given else {}
    names = ["x", "W", "R", "B", *(n if n in given else "" for n in ("lens", "h0", "c0", "P"))]
    while not names[-1]:
        names.pop()
    outputs = ["Y", "Y_h", "Y_c"][:3 if op == "LSTM" else 2]
    nodes = [helper.make_node(op, names, outputs, hidden_size=hidden, **attributes)]
    for n in outputs:
        nodes += [node("Sin", n, f"{n}1"), node("ReduceSum", f"{n}1", f"{n}2", keepdims=0)]
    nodes.append(node("Sum", " ".join(f"{n}2" for n in outputs), "y"))
    return model(nodes, dict(x=["b", "t", size] if first else ["t", "b", size]), dict(y=[]), weights | lengths, opset=17, dtype=np.float32), \
        dict(x=normal(*((batch, time, size) if first else (time, batch, size))))


def test_recurrent(folder):
    """Beside differences, which kinks spoil, what the gradient's kernel gives where onnxfuse computes it for itself."""
    for i, (op, given, attributes) in enumerate(RECURRENT):
        name = f"recurrent_{i}"
        case, feeds = recurrent_model(op, given, attributes)
        feeds = {n: a.astype(np.float32) for n, a in feeds.items()}
        weights = [t.name for t in case.graph.initializer if t.data_type == FLOAT]
        flags = ["--loss", "y", *(flag for n in weights for flag in ("--of", n))]
        if {"clip", "layout", "activations"}.isdisjoint(attributes):
            test_gradients(folder, name, case, [feeds], "y", *flags)
        path, out = folder / f"{name}.onnx", folder / f"{name}_step.onnx"
        onnx.save(case, path)
        differentiate(path, out, *flags)
        onnx.checker.check_model(str(out), full_check=True)
        by_kernel = by_kernels(path, "y", weights, feeds, folder)
        if attributes.get("layout"):
            written = run_own(out, feeds, folder)
            found = {n: written(f"{n}_grad") for n in weights}
        else:
            runner = session(out)
            found = dict(zip(weights, runner.run([f"{n}_grad" for n in weights], feeds)))
        for n in weights:
            largest = np.abs(by_kernel[n]).max()
            if not (largest > 0 and np.abs(found[n] - by_kernel[n]).max() <= 2e-5 * largest):
                fail(name, f"{op} {attributes}: {n} differs from the kernel's by {np.abs(found[n] - by_kernel[n]).max()} of {largest}")


def operator_model(row, dtype):
    """y: the sum of the sines of its results' elements. Axes that are as long in all runs are known."""
    op, *inputs = row.node.split()
    given = [n for n in inputs if n in row.feeds[0]]
    shapes = {n: [np.shape(f[n]) if isinstance(f[n], np.ndarray) else f[n] for f in row.feeds] for n in given}
    kinds = {n: INT64 if isinstance(row.feeds[0][n], np.ndarray) and row.feeds[0][n].dtype == np.int64 else helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for n in given}
    dims = {n: [sizes[0] if len(set(sizes)) == 1 and len(row.feeds) > 1 else f"{n}{i}" for i, sizes in enumerate(zip(*shapes[n]))] for n in given}
    nodes = [helper.make_node(op, [n if n != "-" else "" for n in inputs], [f"z{i}" for i in range(row.results)], **row.attributes)]
    for i in range(row.results):
        nodes += [node("Sin", f"z{i}", f"s{i}"), node("ReduceSum", f"s{i}", f"y{i}", keepdims=0)]
    nodes.append(node("Sum", " ".join(f"y{i}" for i in range(row.results)), "y"))
    case = model(nodes, {}, dict(y=[]), row.constants, row.opset, dtype)
    case.graph.input.extend(helper.make_tensor_value_info(n, kinds[n], dims[n]) for n in given)
    return case, row.of.split() or [n for n in given if kinds[n] != INT64]


def fed(row, feed, dtype):
    """Numbers, of which many lie outside of images."""
    return {n: (a if a.dtype == np.int64 else a.astype(dtype)) if isinstance(a, np.ndarray) else (rng.standard_normal(a) * 0.8).astype(dtype) for n, a in feed.items()
            if n in row.node.split()}


def difference(loss, feeds, name, direction):
    """The derivative along the direction, as slope() has it."""
    sums = [loss({**feeds, name: feeds[name] + step * 1e-4 * direction}) for step in (1, -1, 2, -2)]
    return (8 * (sums[0] - sums[1]) - (sums[2] - sums[3])) / 12e-4


def test_operators(folder):
    for name, row in OPERATORS.items():
        for dtype, letter, tight in ((np.float64, "d", 1e-9), (np.float32, "f", 3e-5)):
            if letter not in row.types:
                continue
            path, out = folder / f"{name}_{letter}.onnx", folder / f"{name}_{letter}_step.onnx"
            case, names = operator_model(row, dtype)
            onnx.save(case, path)
            differentiate(path, out, "--loss", "y", *(flag for n in names for flag in ("--of", n)))
            if not out.exists():
                continue
            onnx.checker.check_model(str(out), full_check=True)
            runner = session(out) if letter in row.runtime else None
            for feed in row.feeds:
                feeds = fed(row, feed, dtype)
                compare_operator(f"{name}_{letter}", path, out, runner, feeds, names, tight, folder)


def compare_operator(name, path, out, runner, feeds, names, tight, folder):
    kernels, own = by_kernels(path, "y", names, feeds, folder), run_own(out, feeds, folder)
    if not kernels or not own:
        return
    results = {"onnxfuse": {n: own(f"{n}_grad") for n in names}}
    if runner:
        results["ONNX Runtime"] = dict(zip(names, runner.run([f"{n}_grad" for n in names], feeds)))
    for where, found in results.items():
        for n in names:
            largest = np.abs(kernels[n]).max(initial=1e-3)  # what cancels leaves what its parts, of some tenths, were rounded by
            if found[n].shape != feeds[n].shape or not np.all(np.abs(found[n] - kernels[n]) <= tight * largest):
                fail(name, f"{n} {feeds[n].shape} in {where} differs from the kernel's {kernels[n].shape} by {np.abs(found[n] - kernels[n]).max(initial=0)} of {largest}")
    if feeds[names[0]].dtype == np.float32:
        return
    loss = (lambda values: float(runner.run(["y"], values)[0])) if runner else (lambda values: float(run_own(path, values, folder)("y")))
    for n in names:
        direction = rng.standard_normal(feeds[n].shape)
        parts, wanted = results["onnxfuse"][n] * direction, difference(loss, feeds, n, direction)
        if not abs(parts.sum() - wanted) <= 1e-6 * (np.abs(parts).sum() + 1e-3):
            fail(name, f"along a direction of {n} {feeds[n].shape}: {parts.sum()}, by differences {wanted}")


def test_forward_once(folder):
    """What the gradient of a loop needs of its steps is kept by the loop of the model, which is not run twice."""
    for name in ("loop_for", "loop_grows", "sequence_carried", "scan_axes"):
        step = onnx.load(folder / f"{name}_step.onnx")
        outputs = [o for n in flow_model(FLOW[name][0]).graph.node if n.op_type in ("Loop", "Scan") for o in n.output]
        makers = [n for n in step.graph.node if set(n.output) & set(outputs)]
        if len(makers) != 1 or len(makers[0].output) <= len(outputs):
            fail(name, f"{outputs} are made by {[(n.name, list(n.output)) for n in makers]}")


# What is drawn in steps is drawn once: the results are products of x, factors and what was drawn.
HEAD = "half = Constant<value = double {0.5}>() yes = Constant<value = bool {1}>()"
DRAWN = {
    "drops_in_loop": """g (double[n] x, int64 m) => (double[n] z, double y) {
        %s z = Loop(m, "", x) <body = b (int64 i, bool c, double[k] a) => (bool d, double[k] e) { d = Identity(c) p = Mul(a, w) e = Dropout(p, half, yes) }>
        y = ReduceSum<keepdims = 0>(z) }""",
    "drops_in_scan": """g (double[64] x, int64 m) => (double[64] z, double y) {
        %s one = Constant<value = int64[1] {1}>() long = Reshape(m, one) f0 = Cast<to = 11>(one) f = Expand(f0, long)
        z = Scan(x, f) <num_scan_inputs = 1, body = b (double[64] a, double s) => (double[64] e) { p = Mul(a, w) q = Mul(p, s) e = Dropout(q, half, yes) }>
        y = ReduceSum<keepdims = 0>(z) }""",
    "noise_in_loop": """g (double[n] x, int64 m) => (double[n] z, double y, double[m, n] r) {
        %s z, r = Loop(m, "", x) <body = b (int64 i, bool c, double[k] a) => (bool d, double[k] e, double[k] u) {
            d = Identity(c) u = RandomNormalLike(a) f = Add(w, u) e = Mul(a, f) }>
        y = ReduceSum<keepdims = 0>(z) }""",
}


def test_drawn(folder):
    w = np.linspace(1, 2, 64)
    for name, text in DRAWN.items():
        path, out = folder / f"{name}.onnx", folder / f"{name}_step.onnx"
        case = flow_model(text % HEAD)
        case.graph.initializer.append(numpy_helper.from_array(w, "w"))
        onnx.save(case, path)
        differentiate(path, out, "--loss", "y", "--of", "w")
        if not out.exists():
            continue
        onnx.checker.check_model(str(out), full_check=True)
        for steps in (2, 1) if "scan" in name else (2, 0):
            feeds = {"x": np.arange(1.0, 65), "m": np.array(steps)}
            own, runner = run_own(out, feeds, folder), session(out)
            found = {"ONNX Runtime": dict(zip([o.name for o in runner.get_outputs()], runner.run(None, feeds)))}
            if own:
                found["onnxfuse"] = {n: own(n) for n in found["ONNX Runtime"]}
            for where, f in found.items():
                wanted = steps * f["z"] / w if "r" not in f else sum((f["z"] / (w + r) for r in f["r"]), np.zeros(64))
                some = np.count_nonzero(f["z"])
                if not np.allclose(f["w_grad"], wanted, rtol=1e-9, atol=0) or not 0 < some <= (64 if "noise" in name or not steps else 63):
                    fail(name, f"{steps} steps in {where}: {f['w_grad']}, not {wanted}")


# A branch or an inner loop that draws, which its gradient would have to draw again, a state of which each step has another size, and an axis that is an input.
DROPS = """g (double[2] x, bool c) => (double y) <double[2] w = {1, 2}> {
    half = Constant<value = double {0.5}>() yes = Constant<value = bool {1}>()
    z = If(c) <then_branch = b () => (double[2] e) { p = Mul(x, w) e = Dropout(p, half, yes) }, else_branch = f () => (double[2] k) { k = Mul(x, w) }>
    y = ReduceSum<keepdims = 0>(z) }"""
DROPS_WITHIN = """g (double[2] x, int64 m) => (double y) <double[2] w = {1, 2}> {
    half = Constant<value = double {0.5}>() yes = Constant<value = bool {1}>()
    z = Loop(m, "", x) <body = b (int64 i, bool c, double[2] a) => (bool d, double[2] e) { d = Identity(c)
        e = Loop(m, "", a) <body = b2 (int64 i2, bool c2, double[2] a2) => (bool d2, double[2] e2) { d2 = Identity(c2) p = Mul(a2, w) e2 = Dropout(p, half, yes) }> }>
    y = ReduceSum<keepdims = 0>(z) }"""
TURNS = """g (double[3, 4, 2] x, int64 axis) => (double y) <double[1] w = {0.5}> { p = Mul(x, w) z = DFT(p, , axis) s = Sin(z) y = ReduceSum<keepdims = 0>(s) }"""
GROWS = """g (double[n, 2] x, double[k] s) => (double y) <double[2] w = {1, 2}> {
    z = Scan(s, x) <num_scan_inputs = 1, body = b (double[i] a, double[2] u) => (double[j] e) { p = ReduceProd<keepdims = 1>(a) q = Mul(p, w) e = Concat<axis = 0>(a, q) }>
    y = ReduceSum<keepdims = 0>(z) }"""


def test_refusals(folder):
    path, out = ROOT / "tests/models/classifier/model.onnx", folder / "out.onnx"
    for flags, code, words in (([], 2, '"scores" f32[batch, 10]'), (["--loss", "nothing"], 2, "nothing"),
                               (["--loss", "cross_entropy:scores,labels", "--of", "nothing"], 2, "nothing")):
        said = differentiate(path, out, *flags, code=code)
        if words not in said or out.exists():
            fail(f"differentiate {' '.join(flags)}", said)
    for text, name, words in ((DROPS, "If", "random numbers"), (DROPS_WITHIN, "Loop", "random numbers"), (GROWS, "Scan", "carry a sequence"), (TURNS, "DFT", "known only at run time")):
        onnx.save(flow_model(text), folder / "refused.onnx")
        said = differentiate(folder / "refused.onnx", out, "--loss", "y", "--of", "w", code=3)
        if f'node "{name}' not in said or words not in said or out.exists():
            fail("a gradient that is refused", said)
    onnx.save(model([node("RandomNormalLike", "x", "n"), node("Mul", "x w", "a"), node("Add", "a n", "b"), node("ReduceSum", "b", "y", keepdims=0)],
                    dict(x=[4]), dict(y=[]), dict(w=np.ones(4)), dtype=np.float32), folder / "draws.onnx")
    differentiate(folder / "draws.onnx", out, "--of", "w")  # the draw is the model's own
    if out.exists() and [n.op_type for n in onnx.load(out).graph.node].count("RandomNormalLike") != 1:
        fail("draws", "the draw is not drawn once")


with tempfile.TemporaryDirectory() as scratch:
    scratch = Path(scratch)
    test_cases(scratch / "cases")
    for name, made in (("dense", dense), ("convolutions", convolutions), ("pools", pools), ("resizes", resizes), ("attention", attention)):
        case, feeds, loss = made()
        test_gradients(scratch, name, case, [feeds], "loss", "--loss", loss)
    test_flow(scratch)
    test_forward_once(scratch)
    test_failing_branch(scratch)
    test_recurrent(scratch)
    test_operators(scratch)
    test_dropout(scratch)
    test_drawn(scratch)
    test_refusals(scratch)
sys.exit(1 if failed else 0)
