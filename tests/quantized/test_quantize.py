#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `onnxfuse quantize` writes: models that onnx.checker and ONNX Runtime take, with results that are those of ONNX Runtime within a
step of quantization and close to the model's own; its table, its tolerance, its errors.

  python test_quantize.py PATH/TO/onnxfuse
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

program = sys.argv[1]
rng = np.random.default_rng(11)


def floats(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def model(nodes, shape, constants, opset=21, out=None):
    tensors = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph([helper.make_node(op, i.split(), o.split(), name=o, **a) for op, i, o, a in nodes], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * (out or len(shape)))], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def feed_forward(opset=21):
    w1 = floats(64, 96) / 8
    w1[:, 5] = 0  # a channel of nothing
    return model([("MatMul", "x w1", "p", {}), ("Add", "p b1", "q", {}), ("Tanh", "q", "r", {}), ("MatMul", "r w2", "y", {})], ["n", 7, 64],
                 {"w1": w1, "b1": floats(96), "w2": floats(96, 64) / 10}, opset), (3, 7, 64)


def gemms():
    return model([("Gemm", "x w1 b1", "p", {"transB": 1}), ("Relu", "p", "q", {}), ("Gemm", "q w2", "y", {"alpha": 0.5})], [None, 40],
                 {"w1": floats(50, 40) / 6, "b1": floats(50), "w2": floats(50, 33) / 7}), (5, 40)


def residual():
    """A block of a residual network: the input of the first convolution is added to the result of the second."""
    return model([("Conv", "x w0 b0", "a", {"pads": [1, 1, 1, 1]}), ("Relu", "a", "r", {}), ("Conv", "r w1 b1", "c", {"pads": [1, 1, 1, 1]}),
                  ("Relu", "c", "d", {}), ("Conv", "d w2 b2", "e", {}), ("Add", "e r", "f", {}), ("Relu", "f", "g", {}),
                  ("Conv", "g w3", "h", {"group": 16, "pads": [1, 1, 1, 1], "strides": [2, 2]}), ("GlobalAveragePool", "h", "y", {})],
                 [1, 3, 12, 12], {"w0": floats(16, 3, 3, 3) / 5, "b0": floats(16), "w1": floats(16, 16, 3, 3) / 12, "b1": floats(16),
                                  "w2": floats(16, 16, 1, 1) / 4, "b2": floats(16), "w3": floats(16, 1, 3, 3) / 3}, 13, 4), (1, 3, 12, 12)


def odd_blocks():
    return model([("MatMul", "x w", "p", {}), ("Gemm", "p v c", "y", {"transB": 1})], [None, 45],
                 {"w": floats(45, 31) / 6, "v": floats(20, 31) / 5, "c": floats(20)}), (4, 45)


def lookup():
    return model([("Cast", "x", "i", {"to": TensorProto.INT64}), ("Gather", "table i", "e", {}), ("MatMul", "e w", "y", {})], ["n", 5],
                 {"table": floats(20, 32), "w": floats(32, 24)}, out=3), None


def quantize(folder, *flags, code=0):
    done = subprocess.run([program, "quantize", str(folder / "m.onnx"), "-o", str(folder / "q.onnx"), *flags], capture_output=True, text=True)
    assert done.returncode == code, f"exit code {done.returncode}, not {code}: {done.stderr}"
    if code:
        assert not list(folder.glob("q.onnx*")), "a failure leaves a file"
        return done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if "--json" in flags else done.stdout


def ours(path, x, folder):
    np.save(folder / "x.npy", x)
    done = subprocess.run([program, "run", str(path), "--threads", "2", "--input", f"x={folder}/x.npy", "--output-dir", str(folder / "out")],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.load(folder / "out" / "y.npy")


def theirs(path, x, optimized=True):
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    if not optimized:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def relative(a, b):
    return float(np.sqrt(np.mean(np.square(a - b)) / np.mean(np.square(b))))


def count(path, op):
    return sum(n.op_type == op for n in onnx.load(path).graph.node)


def check(make, flags, most, folder, dtype=None):
    """The quantized model is near the model itself (relative error `most`), and ours near ONNX Runtime's: what is left is a level that
    a rounding apart has chosen, so rarely that nearly all elements are the same up to rounding."""
    proto, shape = make()
    onnx.save(proto, folder / "m.onnx")
    recorded = folder / "recorded"
    recorded.mkdir()
    inputs = [floats(*shape) if shape else rng.integers(0, 20, (3, 5)).astype(np.float32) for _ in range(4)]
    for i, x in enumerate(inputs):
        np.savez(recorded / f"{i}.npz", x=x)
    report = quantize(folder, *flags, "--inputs", str(recorded), "--json")
    onnx.checker.check_model(str(folder / "q.onnx"), full_check=True)
    assert report["samples"] == 4 and report["error_of"] == "output", report
    for layer in report["layers"]:
        assert layer["quantized"] and layer["bytes_after"] < layer["bytes_before"], layer
        assert 0 < layer["error"] < most and abs(-20 * np.log10(layer["error"]) - layer["sqnr_db"]) < 0.01, layer
    for x in inputs:
        got, want, plain = ours(folder / "q.onnx", x, folder), theirs(folder / "q.onnx", x, optimized=False), theirs(folder / "m.onnx", x)
        assert relative(got, plain) < most, f"{relative(got, plain)} from the model itself"
        # A level of an activation is at most 1/255 of its range: what one of them moves is far below what all of them together do.
        assert np.quantile(np.abs(got - want), 0.95) <= 1e-4 * np.abs(want).max() and relative(got, want) < most / 4, relative(got, want)
    assert dtype is None or dtype in {t.data_type for t in onnx.load(folder / "q.onnx").graph.initializer}
    return report


def recorded_of(folder, *arrays):
    (folder / "r").mkdir()
    for i, x in enumerate(arrays):
        np.savez(folder / "r" / f"{i}.npz", x=x)
    return str(folder / "r")


# --- cases ------------------------------------------------------------------------------------------------------------
def case_products_in_int8(folder):
    check(feed_forward, ["--int8"], 0.03, folder, TensorProto.INT8)
    assert count(folder / "q.onnx", "QuantizeLinear") == 2


def case_products_in_int8_of_an_old_operator_set(folder):
    report = check(lambda: feed_forward(11), ["--int8"], 0.03, folder)
    assert report["opset"] == 13


def case_gemms_in_int8(folder):
    check(gemms, ["--int8"], 0.03, folder)


def case_convolutions_in_int8(folder):
    check(residual, ["--int8"], 0.05, folder)
    q = onnx.load(folder / "q.onnx")
    adds = [n for n in q.graph.node if n.op_type == "Add"]
    made = {o: n.op_type for n in q.graph.node for o in n.output}
    assert [made[i] for i in adds[0].input] == ["DequantizeLinear"] * 2, "a residual sum reads the bytes that convolutions read"
    assert sum(t.data_type == TensorProto.INT32 for t in q.graph.initializer) == 3, "biases are integers"


def case_products_in_int8_by_entropy(folder):
    """Outliers are cut off: one element in thousands does not stretch the range."""
    proto, _ = feed_forward()
    onnx.save(proto, folder / "m.onnx")
    x = floats(40, 7, 64)
    x[3, 2, 1] = 60
    recorded = recorded_of(folder, x)
    errors = {}
    for name in "minmax", "entropy":
        quantize(folder, "--int8", "--inputs", recorded, "--calibration", name)
        plain = floats(5, 7, 64)
        errors[name] = relative(ours(folder / "q.onnx", plain, folder), theirs(folder / "m.onnx", plain))
    assert errors["entropy"] < errors["minmax"] / 2, errors


def case_products_in_int4(folder):
    check(feed_forward, ["--int4"], 0.2, folder, TensorProto.INT4)


def case_blocks_that_do_not_divide(folder):
    check(odd_blocks, ["--int4", "--block", "16"], 0.2, folder, TensorProto.INT4)


def case_weights_in_bf16(folder):
    check(lookup, ["--bf16"], 0.005, folder, TensorProto.BFLOAT16)


def case_weights_in_external_data(folder):
    check(feed_forward, ["--int4", "--external-data"], 0.2, folder)
    assert (folder / "q.onnx.data").exists()


def case_without_inputs_errors_are_of_weights(folder):
    proto, _ = feed_forward()
    onnx.save(proto, folder / "m.onnx")
    report = quantize(folder, "--int4", "--json")
    w = numpy_helper.to_array(proto.graph.initializer[2])  # w2, as the format says it
    blocks = w.reshape(-1, 32, w.shape[1])
    furthest = np.take_along_axis(blocks, np.abs(blocks).argmax(1, keepdims=True), 1)
    scale = furthest / np.float32(-8)
    stored = np.clip(np.rint(blocks / scale), -8, 7) * scale
    assert report["error_of"] == "weight"
    assert abs(report["layers"][1]["error"] - relative(stored, blocks)) < 1e-5, report


def case_the_tolerance_leaves_layers_alone(folder):
    proto, shape = feed_forward()
    onnx.save(proto, folder / "m.onnx")
    recorded = recorded_of(folder, floats(*shape))
    errors = sorted(l["error"] for l in quantize(folder, "--int8", "--inputs", recorded, "--json")["layers"])
    report = quantize(folder, "--int8", "--inputs", recorded, "--json", "--tolerance", str(sum(errors) / 2))
    assert sorted(l["quantized"] for l in report["layers"]) == [False, True], report
    assert count(folder / "q.onnx", "QuantizeLinear") == 1
    (folder / "q.onnx").unlink()
    message = quantize(folder, "--int8", "--inputs", recorded, "--tolerance", str(errors[0] / 2), code=1)
    assert "no layer stays within" in message, message


def case_the_table(folder):
    proto, shape = feed_forward()
    onnx.save(proto, folder / "m.onnx")
    text = quantize(folder, "--int8", "--inputs", recorded_of(folder, floats(*shape)))
    assert "24.6 ->       6.6 KB" in text and "2 of 2 layers in int8" in text and " dB " in text, text


def case_every_form_of_recorded_inputs(folder):
    """The same three inputs as folders of the standard's tests, as archives, as one array: the same model."""
    proto, shape = residual()
    onnx.save(proto, folder / "m.onnx")
    xs = [floats(*shape) for _ in range(3)]
    forms = [folder / n for n in ("sets", "archives", "array")]
    for form in forms:
        form.mkdir()
    for i, x in enumerate(xs):
        (forms[0] / f"test_data_set_{i}").mkdir()
        (forms[0] / f"test_data_set_{i}" / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
        np.savez(forms[1] / f"{i}.npz", x=x)
    np.save(forms[2] / "x.npy", np.concatenate(xs))
    made = []
    for form in [*forms, forms[1] / "1.npz"]:
        report = quantize(folder, "--int8", "--inputs", str(form), "--json")
        made.append((report["samples"], (folder / "q.onnx").read_bytes()))
    assert made[0] == made[1] == made[2] and made[0][0] == 3 and made[3][0] == 1 and made[3][1] != made[0][1]


def case_bad_use(folder):
    proto, shape = feed_forward()
    onnx.save(proto, folder / "m.onnx")
    recorded = recorded_of(folder, floats(*shape))
    wrong, empty = folder / "wrong.npz", folder / "empty"
    np.savez(wrong, x=floats(3, 7, 5))
    empty.mkdir()
    endless = folder / "endless.npz"
    np.savez(endless, x=np.full(shape, np.inf, np.float32))
    plain = model([("Relu", "x", "y", {})], [3], {})
    for flags, code, message in [
            ([], 2, "one of --int8, --int4, --bf16"),
            (["--int8", "--bf16"], 2, "one of --int8, --int4, --bf16"),
            (["--int8"], 2, "--int8 needs --inputs"),
            (["--int4", "--block", "24"], 2, "power of two"),
            (["--int8", "--inputs", recorded, "--block", "32"], 2, "--block is for --int4"),
            (["--bf16", "--calibration", "entropy"], 2, "--calibration is for --int8"),
            (["--int8", "--inputs", recorded, "--calibration", "best"], 2, "minmax or entropy"),
            (["--int8", "--inputs", str(empty)], 4, "holds neither"),
            (["--int8", "--inputs", str(folder / "none.npz")], 4, "none.npz"),
            (["--int8", "--inputs", str(folder / "m.onnx")], 4, "neither a folder nor a .npz"),
            (["--int8", "--inputs", str(wrong)], 4, '"x"'),
            (["--int8", "--inputs", str(endless)], 4, "is not finite")]:
        text = quantize(folder, *flags, code=code)
        assert message in text, (flags, text)
    onnx.save(plain, folder / "m.onnx")
    assert "nothing to quantize" in quantize(folder, "--bf16", code=3)
    (folder / "m.onnx").write_bytes(b"no model")
    quantize(folder, "--bf16", code=4)


failed = 0
cases = [(n, f) for n, f in list(globals().items()) if n.startswith("case_") and all(a in n for a in sys.argv[2:])]
for name, case in cases:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            case(Path(scratch))
        except Exception as error:  # noqa: BLE001
            failed += 1
            print(f"FAIL  {name[5:].replace('_', ' ')}: {error!r}")
print(f"{len(cases) - failed} passed, {failed} failed")
sys.exit(failed > 0)
