#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""onnxfuse train from outside: a classifier learns and its model runs elsewhere, killed trainings go on with the same bits, what is wrong is said.

    test_train.py ONNXFUSE"""
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "tests/models/classifier/model.onnx"
LOSS = ["--loss", "cross_entropy:logits,labels"]
KILLS = 20
onnxfuse = sys.argv[1]


def examples(count, seed):
    r = np.random.default_rng(seed)
    x = r.standard_normal((count, 16), np.float32)
    truth = np.random.default_rng(99).standard_normal((16, 10))
    return x, np.argmax(np.tanh(2 * x) @ truth, 1)


def train(*arguments, code=0):
    done = subprocess.run([onnxfuse, "train", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}\n{done.stderr}"
    return done


def learns(folder):
    x, labels = examples(4000, 0)
    np.savez(folder / "data.npz", x=x, labels=labels)
    (folder / "arrays").mkdir()
    np.save(folder / "arrays/x.npy", x)
    np.save(folder / "arrays/labels.npy", labels)
    common = [MODEL, *LOSS, "--rate", 0.01, "--schedule", "cosine", "--steps", 1500, "--json"]
    report = json.loads(train(*common, "--data", folder / "data.npz", "-o", folder / "a.onnx").stdout.splitlines()[-1])
    assert report["steps"] == 1500 and report["batch"] == 32 and report["loss"] < 0.8, report
    train(*common, "--data", folder / "arrays", "-o", folder / "b.onnx")
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes(), "a folder and an archive train differently"
    onnx.checker.check_model(str(folder / "a.onnx"), full_check=True)
    x, labels = examples(1000, 1)
    scores = {name: onnxruntime.InferenceSession(path).run(None, {"x": x})[0] for name, path in (("before", MODEL), ("after", folder / "a.onnx"))}
    right = {name: float(np.mean(np.argmax(value, 1) == labels)) for name, value in scores.items()}
    assert right["before"] < 0.3 and right["after"] > 0.6, right
    names = [i.name for i in onnx.load(MODEL).graph.initializer]
    assert [i.name for i in onnx.load(folder / "a.onnx").graph.initializer] == names
    train(*common, "--data", folder / "data.npz", "--of", "w2", "--of", "b?", "-o", folder / "some.onnx")
    changed = {a.name for a, b in zip(onnx.load(MODEL).graph.initializer, onnx.load(folder / "some.onnx").graph.initializer) if a.raw_data != b.raw_data}
    assert changed == {"w2", "b1", "b2"}, changed
    (folder / "steps.json").write_text(json.dumps({"training": {"schedule": "linear", "steps": 30}}))
    for more, steps in ([], 30), (["--steps", 20], 20):
        policy = [MODEL, *LOSS, "--policy", folder / "steps.json", "--data", folder / "data.npz", "-o", folder / "few.onnx", "--json", *more]
        assert json.loads(train(*policy).stdout.splitlines()[-1])["steps"] == steps, more


def bodies(folder):
    """Weights that bodies of control flow read are trained, and are the model's when it is saved."""
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    info, wanted = h.make_tensor_value_info, np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    then = h.make_graph([h.make_node("MatMul", ["x", "w"], ["p"])], "then", [], [info("p", kind, ["n", 2])])
    other = h.make_graph([h.make_node("MatMul", ["x", "w"], ["z"]), h.make_node("Neg", ["z"], ["q"])], "else", [], [info("q", kind, ["n", 2])])
    nodes = [h.make_node("ReduceSum", ["x"], ["s"], keepdims=0), h.make_node("Cast", ["s"], ["t"], to=onnx.TensorProto.BOOL),
             h.make_node("If", ["t"], ["y"], then_branch=then, else_branch=other)]
    weight = onnx.numpy_helper.from_array(np.ones((3, 2), np.float32), "w")
    graph = h.make_graph(nodes, "bodies", [info("x", kind, ["n", 3])], [info("y", kind, ["n", 2])], [weight])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10), folder / "bodies.onnx")
    x = np.random.default_rng(1).standard_normal((400, 3), np.float32)
    np.savez(folder / "bodies.npz", x=x, target=x @ wanted)
    train(folder / "bodies.onnx", "--data", folder / "bodies.npz", "--loss", "mse:y,target", "--rate", 0.05, "--steps", 600, "-o", folder / "new.onnx")
    found = onnxruntime.InferenceSession(folder / "new.onnx").run(None, {"x": x[:4]})[0]
    assert np.allclose(found, x[:4] @ wanted, atol=1e-3), found

    # Weights that stand inside the bodies, of one name and of several types of bodies, come outside when the model is saved.
    own = [onnx.numpy_helper.from_array(np.full((3, 2), value, np.float32), "v") for value in (1, 2)]
    del then.node[0].input[1], other.node[0].input[1]
    then.node[0].input.append("v"), other.node[0].input.append("v")
    then.initializer.append(own[0]), other.initializer.append(own[1])
    nodes[-1] = h.make_node("If", ["t"], ["y"], then_branch=then, else_branch=other)
    kept = onnx.numpy_helper.from_array(np.full((2,), 0.25, np.float32), "kept")
    step = h.make_graph([h.make_node("MatMul", ["carried", "u"], ["m"]), h.make_node("Add", ["m", "kept"], ["k"]), h.make_node("Identity", ["go"], ["on"])], "step",
                        [info("i", onnx.TensorProto.INT64, []), info("go", onnx.TensorProto.BOOL, []), info("carried", kind, ["n", 2])],
                        [info("on", onnx.TensorProto.BOOL, []), info("k", kind, ["n", 2])], [onnx.numpy_helper.from_array(np.eye(2, dtype=np.float32), "u")])
    two = onnx.numpy_helper.from_array(np.array(2, np.int64), "two")
    graph = h.make_graph([*nodes, h.make_node("Loop", ["two", "", "y"], ["r"], body=step)], "bodies", [info("x", kind, ["n", 3])], [info("r", kind, ["n", 2])], [kept, two])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 21)], ir_version=10), folder / "inside.onnx")
    np.savez(folder / "inside.npz", x=x, target=np.float32(np.sign(x.sum())) * (x @ wanted))
    train(folder / "inside.onnx", "--data", folder / "inside.npz", "--loss", "mse:r,target", "--rate", 0.02, "--steps", 1500, "--of", "v*", "--of", "u", "-o", folder / "new.onnx")
    new = onnx.load(folder / "new.onnx")
    onnx.checker.check_model(new)
    values = {i.name: onnx.numpy_helper.to_array(i) for i in new.graph.initializer}
    assert {"v", "v.2", "u"} <= set(values), values.keys()
    before, after = (onnxruntime.InferenceSession(folder / name).run(None, {"x": x[:4]})[0] for name in ("inside.onnx", "new.onnx"))
    target = np.sign(x.sum()) * (x[:4] @ wanted)
    assert np.abs(after - target).max() < 0.1 * np.abs(before - target).max(), (before, after, target)


def goes_on(folder):
    common = [MODEL, *LOSS, "--data", folder / "data.npz", "--rate", 0.01, "--batch", 48, "--steps", 3000, "--checkpoint-every", 40]
    begin = time.monotonic()
    train(*common, "-o", folder / "whole.onnx", "--checkpoint", folder / "whole.check")
    length = time.monotonic() - begin
    r = random.Random(5)
    for kill in range(KILLS):
        checkpoint, out = folder / f"{kill}.check", folder / f"{kill}.onnx"
        flags = [*map(str, common), "-o", str(out), "--checkpoint", str(checkpoint), "--resume"]
        program = subprocess.Popen([onnxfuse, "train", *flags], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(r.random() * length)
        program.send_signal(signal.SIGINT if kill % 4 == 3 else signal.SIGKILL)
        program.wait()
        if checkpoint.exists():
            onnx.checker.check_model(str(checkpoint))
        train(*flags)
        assert out.read_bytes() == (folder / "whole.onnx").read_bytes(), f"kill {kill}: other bits"


def stops(folder):
    """The first SIGINT or SIGTERM lets the step end and writes the checkpoint."""
    common = [onnxfuse, "train", str(MODEL), *LOSS, "--data", str(folder / "data.npz"), "--steps", "1000000", "-o", str(folder / "never.onnx"), "--log-every", "50"]
    for number in (signal.SIGINT, signal.SIGTERM):
        checkpoint = folder / f"stopped_{number}.check"
        program = subprocess.Popen([*common, "--checkpoint", str(checkpoint), "--checkpoint-every", "1000000"], stderr=subprocess.PIPE, text=True)
        program.stderr.readline()  # of step 50
        program.send_signal(number)
        told = program.stderr.read()
        assert program.wait() == -number, (program.returncode, told)
        steps = int(next(p.value for p in onnx.load(checkpoint).metadata_props if p.key == "onnxfuse.training.steps"))
        assert steps >= 50 and f"stopped after step {steps}, which {checkpoint} holds" in told, (steps, told)
        assert not (folder / "never.onnx").exists()


def optionals(folder):
    """Of a loop that carries an optional, empty at first, whose sizes the body alone declares: tanh(x w + b) of two iterations."""
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 3])
    optional = helper.make_optional_type_proto(tensor)
    there = helper.make_graph([helper.make_node("OptionalGetElement", ["v"], ["e"]), helper.make_node("Tanh", ["e"], ["f"])], "there", [], [helper.make_value_info("f", tensor)])
    empty = helper.make_graph([helper.make_node("Add", ["p", "b"], ["g"])], "empty", [], [helper.make_value_info("g", tensor)])
    body = helper.make_graph([
        helper.make_node("Identity", ["c"], ["d"]), helper.make_node("OptionalHasElement", ["v"], ["h"]),
        helper.make_node("If", ["h"], ["q"], then_branch=there, else_branch=empty), helper.make_node("Optional", ["q"], ["u"])],
        "body", [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("c", TensorProto.BOOL, []), helper.make_value_info("v", optional)],
        [helper.make_tensor_value_info("d", TensorProto.BOOL, []), helper.make_value_info("u", optional)])
    r = np.random.default_rng(3)
    x, w = r.standard_normal((64, 4), np.float32), r.standard_normal((4, 3), np.float32)
    graph = helper.make_graph([
        helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(np.int64(2))),
        helper.make_node("Optional", [], ["o"], type=tensor), helper.make_node("Loop", ["k", "", "o"], ["z"], body=body),
        helper.make_node("OptionalGetElement", ["z"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])], [helper.make_value_info("y", tensor)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.zeros(3, np.float32), "b")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, folder / "optional.onnx")
    labels = np.argmax(x @ np.linalg.qr(r.standard_normal((4, 3)))[0], 1)
    np.savez(folder / "optional.npz", x=x, labels=labels)
    common = [folder / "optional.onnx", "--loss", "cross_entropy:y,labels", "--rate", 0.05, "--steps", 300, "-o", folder / "trained.onnx"]
    train(*common, "--data", folder / "optional.npz")
    found, = onnxruntime.InferenceSession(folder / "trained.onnx").run(None, {"x": x})
    right = np.mean(np.argmax(found, 1) == labels)
    assert right > 0.8, right
    labels[11] = 7
    np.savez(folder / "optional.npz", x=x, labels=labels)
    done = train(*common, "--data", folder / "optional.npz", code=4)
    assert "has the label 7, and there are 3 classes, 0 to 2" in done.stderr, done.stderr


def sums(folder):
    """A step of 4 batches of 12 is one of a batch of 48, but for rounding."""
    common = [MODEL, *LOSS, "--data", folder / "data.npz", "--optimizer", "sgd", "--rate", 0.1, "--steps", 20]
    train(*common, "--batch", 48, "-o", folder / "large.onnx")
    train(*common, "--batch", 12, "--accumulation", 4, "-o", folder / "parts.onnx")
    a, b = ([onnx.numpy_helper.to_array(i) for i in onnx.load(folder / name).graph.initializer] for name in ("large.onnx", "parts.onnx"))
    assert all(np.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in zip(a, b)), "batches in parts train differently"


def says(folder):
    data = ["--data", folder / "data.npz", "-o", folder / "never.onnx"]
    x, labels = examples(100, 0)
    for name, wrong, where in (("below", -1, 7), ("above", 10, 11), ("ignored", -100, slice(None))):
        changed = labels.copy()
        changed[where] = wrong
        np.savez(folder / f"{name}.npz", x=x, labels=changed)
    copy = folder / "model.onnx"
    copy.write_bytes(MODEL.read_bytes())
    rows = [
        ([MODEL, *data], 2, "\"scores\" is no single number"),
        ([MODEL, "-o", "x.onnx"], 2, "train needs --data"),
        ([MODEL, "--data", folder / "data.npz"], 2, "train needs --output"),
        ([MODEL, *LOSS, *data, "--resume"], 2, "--resume needs --checkpoint"),
        ([MODEL, *LOSS, *data, "--optimizer", "lion"], 4, "command line: training.optimizer: there is no \"lion\""),
        ([MODEL, *LOSS, *data, "--precision", "int8"], 4, "command line: training.precision: there is no \"int8\""),
        ([MODEL, *LOSS, *data, "--schedule", "linear", "--steps", 3, "--warmup-steps", 3], 2, "command line: training.schedule: the rate falls"),
        ([MODEL, *LOSS, *data, "--batch", 5000], 2, "a batch of 5000 is more than the 4000 examples"),
        ([MODEL, "--loss", "mse:scores,truth", *data], 4, "training data for \"truth\""),
        ([MODEL, *LOSS, *data, "--of", "nothing*"], 2, "command line: training.of: no weight that the loss depends on is called \"nothing*\""),
        ([MODEL, *LOSS, *data, "--checkpoint", copy, "--resume"], 4, "is no checkpoint of a training"),
        ([folder / "missing.onnx", *LOSS, *data], 4, "missing.onnx"),
        ([copy, *LOSS, *data, "--checkpoint", folder / "../" / folder.name / "model.onnx"], 2, "is the file of the model"),
        ([MODEL, *LOSS, *data, "--checkpoint", folder / "never.onnx"], 2, "is the file of the output"),
        ([MODEL, *LOSS, *data, "--checkpoint", folder / "data.npz"], 2, "is the file of the examples"),
        ([MODEL, *LOSS, "--data", folder / "data.npz", "-o", folder / "data.npz"], 2, "is the file of the examples"),
        ([MODEL, *LOSS, "--data", folder / "data.npz", "-o", folder / "none/never.onnx", "--log-every", 1], 4, "cannot be written"),
        ([MODEL, *LOSS, *data, "--checkpoint", folder / "none/never.ckpt", "--log-every", 1], 4, "cannot be written"),
        ([MODEL, *LOSS, "--data", folder / "below.npz", "-o", folder / "never.onnx"], 4, "\"labels\": example 7 has the label -1; of 10 classes"),
        ([MODEL, *LOSS, "--data", folder / "above.npz", "-o", folder / "never.onnx"], 4,
         "\"labels\": example 11 has the label 10; of 10 classes labels are 0 to 9, or -100"),
        ([MODEL, *LOSS, "--data", folder / "ignored.npz", "-o", folder / "never.onnx"], 5, "step 1 is not a number: the examples"),
        ([MODEL, *LOSS, *data, "--rate", 1e6, "--optimizer", "sgd", "--steps", 2000], 5, "a lower rate"),
    ]
    for arguments, code, message in rows:
        done = train(*arguments, code=code)
        assert message in done.stderr, f"{arguments}: {done.stderr}"
        assert not (folder / "never.onnx").exists(), arguments
        assert code != 4 or "loss" not in done.stderr, f"{arguments}: found out after a step: {done.stderr}"
    assert copy.read_bytes() == MODEL.read_bytes()
    train(MODEL, *LOSS, *data, "--checkpoint", folder / "done.ckpt", "--steps", 3)
    done = train(MODEL, *LOSS, *data, "--checkpoint", folder / "done.ckpt", "--steps", 3, "--resume")
    assert "3 steps were made before, none was left" in done.stdout, done.stdout
    beside = folder / "model.policy.json"
    beside.write_text('{"training": {"loss": "cross_entropy:logits,labels"')
    assert f"{beside}: line 1: not valid JSON" in train(copy, *data, "--steps", 3, code=4).stderr
    beside.write_text('{"training": {"loss": "cross_entropy:logits,labels", "optimizer": "lion"}}')
    for flags in ([], ["--precision", "bf16"], ["--rate", 0.1]):
        done = train(copy, *data, "--steps", 3, *flags, code=4)
        assert f"{beside}: training.optimizer: there is no \"lion\"" in done.stderr, f"{flags}: {done.stderr}"
    beside.write_text('{"training": {"loss": "cross_entropy:logits,labels", "optimizer": "adam"}, "rules": [{"match": {"name": "none"}, "device": "cpu"}]}')
    done = train(copy, *data, "--steps", 3, "--precision", "bf16", code=4)
    assert f"{beside}: rules[0].match: no node" in done.stderr, done.stderr
    beside.write_text('{"training": {"loss": "cross_entropy:logits,labels", "optimizer": "adam"}}')
    train(copy, *data, "--steps", 3, "--optimizer", "sgd")
    beside.unlink()
    np.savez(folder / "odd.npz", x=examples(10, 0)[0], labels=np.zeros(9, np.int64))
    done = train(MODEL, *LOSS, "--data", folder / "odd.npz", "-o", folder / "never.onnx", code=4)
    assert "9 examples of \"labels\", 10 of others" in done.stderr, done.stderr


with tempfile.TemporaryDirectory() as name:
    for test in (learns, bodies, optionals, sums, stops, goes_on, says):
        test(pathlib.Path(name))
        print("ok   ", test.__name__)
