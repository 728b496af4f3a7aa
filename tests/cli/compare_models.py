# SPDX-License-Identifier: Apache-2.0
"""onnxfuse compare from outside: which node it names, and when it finds nothing.

    python compare_models.py ONNXFUSE FOLDER
"""
import json
import os
import re
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "scripts"))
import onnx_writer as onnx  # noqa: E402

PROGRAM, FOLDER = sys.argv[1:3]
failures = 0


def expect(condition, what, more=""):
    global failures
    if not condition:
        failures += 1
        print("FAIL  %s\n%s" % (what, more))


def path(name):
    return os.path.join(FOLDER, name)


def write(name, data):
    with open(path(name), "wb") as file:
        file.write(data)
    return path(name)


def compare(what, code, *arguments):
    """The JSON of a comparison that ends with this code, and its text."""
    made = subprocess.run([PROGRAM, "compare", *arguments, "--json"], capture_output=True, text=True)
    expect(made.returncode == code, "%s: exit code %d, expected %d" % (what, made.returncode, code), made.stdout + made.stderr)
    lines = made.stdout.splitlines()
    data = lines.pop() if lines and lines[-1].startswith("{") else "{}"
    return json.loads(data), "\n".join(lines), made.stderr


class Model(onnx.Writer):
    """Nodes and values with names."""

    def named(self, kind, output, *inputs, **attributes):
        self.nodes.append(b"".join(onnx.block(1, i) for i in inputs) + onnx.block(2, output) + onnx.block(3, "node_" + output) + onnx.block(4, kind)
                          + b"".join(onnx.block(5, onnx.attribute(k, v)) for k, v in attributes.items()))
        return output

    def result(self, value, dims):
        self.outputs.append(onnx.value_info(value, self.dtype, dims))


def perceptron(change=None, epsilon=1e-5, seed=1):
    """Three products with functions between; change: which weight is another."""
    m = Model(seed=seed)
    x, drawn = m.input("x", [4, 16]), []
    for k in range(3):
        weight = m.rng.standard_normal((16, 16), dtype=np.float32) / 4
        if change == k:
            weight[3, 5] += 1.5
        product = m.named("MatMul", "product%d" % k, x, m.const(weight))
        shifted = m.named("Add", "shifted%d" % k, product, m.vector(16))
        gate = m.named("Sigmoid", "gate%d" % k, shifted)
        gated = m.named("Mul", "gated%d" % k, shifted, gate)
        x = m.named("LayerNormalization", "normal%d" % k, gated, m.vector(16, 1.0), axis=-1, epsilon=epsilon)
        drawn.append(x)
    m.result(x, [4, 16])
    return m.bytes()


def convolutions(alpha=0.1):
    """Channels-last inside, so that what is stored has another layout than the model's values."""
    m = Model(seed=2)
    x = m.input("x", [1, 3, 8, 8])
    first = m.named("Conv", "first", x, m.matrix(6, 3, 3, 3), pads=[1, 1, 1, 1])
    leaky = m.named("LeakyRelu", "leaky", first, alpha=alpha)
    second = m.named("Conv", "second", leaky, m.matrix(5, 6, 3, 3), pads=[1, 1, 1, 1])
    root = m.named("Softplus", "root", second)
    mean = m.named("GlobalAveragePool", "mean", root)
    m.result(root, [1, 5, 8, 8])
    m.result(mean, [1, 5, 1, 1])
    return m.bytes()


def loop():
    """A value of a loop's body differs from the third iteration on."""
    body = Model(seed=3, prefix="in_")
    body.inputs += [onnx.value_info("in_i", "int64", []), onnx.value_info("in_go", "bool", []), onnx.value_info("in_s", "float32", [4])]
    body.named("Identity", "in_still", "in_go")
    body.named("Exp", "in_exp", "in_s")
    body.named("Log", "in_next", body.named("Add", "in_sum", "in_exp", "in_exp"))
    body.outputs += [onnx.value_info("in_still", "bool", []), onnx.value_info("in_next", "float32", [4])]
    m = Model(seed=3)
    x = m.input("x", [4])
    trips, true = m.const(np.array(5), "int64"), m.const(np.array(True), "bool")
    m.named("Loop", "end", trips, true, x, body=body)
    m.result("end", [4])
    return m.bytes()


def main():
    os.makedirs(FOLDER, exist_ok=True)
    plain = write("plain.onnx", perceptron())
    same, text, _ = compare("a model against itself, not fused", 0, plain)
    expect(same.get("equal") and same["different"] == 0 and same["compared"] >= 3, "it is equal", text)
    again, _, _ = compare("a model against a copy", 0, plain, "--against", plain)
    expect(again.get("equal") and again["skipped"] == 0, "a copy stores the same values")

    for k in range(3):
        other = write("other.onnx", perceptron(change=k))
        found, text, _ = compare("another weight", 1, plain, "--against", other)
        first = found.get("first", {})
        expect(first.get("node", "").endswith(str(k)) and not first.get("output"), "weight %d: the first that differs is of layer %d" % (k, k), text)
        expect(all(state["state"] != "differs" for state in first.get("inputs", [{"state": "differs"}])), "its inputs still agree", text)
        expect("when_not_fused" not in found or found["when_not_fused"].get("node") == "node_product%d" % k, "within the step it is the product", text)
        expect(first.get("index") and first.get("got") and first.get("expected") and first.get("elements_different", 0) > 0, "the worst element", text)
        unfused = write("unfused.json", b'{"fusion": {"enable": false}}')
        found, text, _ = compare("another weight, not fused", 1, plain, "--against", other, "--policy", unfused)
        first = found.get("first", {})
        expect(first.get("node") == "node_product%d" % k and first.get("operator") == "MatMul", "the node itself", text)
        states = {i["value"]: i["state"] for i in first.get("inputs", [])}
        expect(states.get("normal%d" % (k - 1), "agrees") == "agrees", "what it reads agrees", text)

    epsilon = write("epsilon.onnx", perceptron(epsilon=0.5))
    found, text, _ = compare("another epsilon", 1, plain, "--against", epsilon)
    expect(found.get("first", {}).get("value") in ("normal0", "product1", "shifted1"), "the first value that shows it", text)
    expect(found.get("when_not_fused", {}).get("node", "node_normal0") == "node_normal0", "marked as not fused", text)

    images, leaky = write("images.onnx", convolutions()), write("leaky.onnx", convolutions(alpha=0.9))
    same, text, _ = compare("convolutions, not fused", 0, images)
    expect(same.get("equal") and any(row["value"] == "leaky" or row["value"] == "second" or row["value"] == "root" for row in same["largest"]), "values of another layout are compared", text)
    found, text, _ = compare("another slope", 1, images, "--against", leaky)
    expect(found.get("first", {}).get("value") == "leaky" and found["first"]["got_type"] == "float32[1, 6, 8, 8]", "in the model's layout", text)

    inside = write("loop.onnx", loop())
    same, text, _ = compare("a loop, not fused", 0, inside)
    expect(same.get("equal") and same["compared"] > 5, "loops are compared an iteration at a time", text)

    # recorded values: what `run` writes, and NAME.npy of all values
    x = np.random.default_rng(5).standard_normal((4, 16), dtype=np.float32)
    np.save(path("x.npy"), x)
    recorded = path("recorded")
    subprocess.run([PROGRAM, "run", plain, "--input", "x=" + path("x.npy"), "--output-dir", recorded], check=True, capture_output=True)
    np.save(os.path.join(recorded, "x.npy"), x)
    same, text, error = compare("recorded outputs", 0, plain, "--against", recorded)
    expect(same.get("compared", 0) >= 1 and "random numbers" not in error, "inputs of the folder are taken", text + error)
    value = np.load(os.path.join(recorded, "normal2.npy"))
    value[2, 7] = np.nan
    np.save(os.path.join(recorded, "normal2.npy"), value)
    found, text, _ = compare("a recorded value that is no number", 1, plain, "--against", recorded)
    expect(found.get("first", {}).get("index") == "[2, 7]" and found["first"]["expected"] == "nan" and found["first"]["elements_different"] == 1, "the element", text)
    classifier = os.path.join(os.path.dirname(__file__), "..", "models", "classifier")
    same, text, error = compare("a folder of the standard's layout", 0, os.path.join(classifier, "model.onnx"), "--against", classifier)
    expect(same.get("compared") == 1 or same.get("compared", 0) > 1, "its outputs are compared", text + error)

    same, text, _ = compare("two policies", 0, plain, "--policy", unfused + "," + write("empty.json", b"{}"))
    expect("policy" in same.get("got", "") and "unfused.json" in same.get("expected", ""), "who is compared with whom", text)
    if re.search("^opencl +(?!not available)", subprocess.run([PROGRAM, "devices"], capture_output=True, text=True).stdout, re.M):
        same, text, _ = compare("two devices", 0, images, "--device", "cpu,opencl", "--shape", "x=1x3x8x8")
        expect("opencl" in same.get("got", "") and "on cpu" in same.get("expected", ""), "who is compared with whom", text)
        compare("a device against the CPU, not fused", 0, plain, "--device", "opencl")
    else:
        print("skipped: two devices (there is no OpenCL)", file=sys.stderr)

    names = os.path.join(os.path.dirname(__file__), "..", "models", "names", "model.onnx")
    compare("random operators draw the same on both sides", 0, names, "--input", "words=text:a")
    compare("and with a seed", 0, names, "--input", "words=text:a", "--seed", "7")

    compare("a model that is not there", 4, path("nothing.onnx"))
    compare("another that is not there", 4, plain, "--against", path("nothing.onnx"))
    compare("two things at a time", 2, plain, "--against", plain, "--device", "cpu,cpu")
    compare("a folder without values", 4, plain, "--against", path("pages-of-nothing") if os.makedirs(path("pages-of-nothing"), exist_ok=True) else path("pages-of-nothing"))
    compare("models of other inputs", 2, plain, "--against", names, "--shape", "x=4x16")
    compare("a tolerance that is wide enough", 0, plain, "--against", epsilon, "--rtol", "100", "--atol", "100")
    if failures:
        sys.exit("%d failures" % failures)
    print("compare names the node")


main()
