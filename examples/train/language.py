#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small GPT over bytes that has learnt nothing yet, and what it is to learn from.

    language.py OUT TEXT...       writes OUT/model.onnx and OUT/examples.npz: windows of the texts, and the byte behind each of their bytes
    language.py --say N MODEL [BEGINNING]     N bytes of a trained model, each drawn from what it says, with ONNX Runtime

Training needs none of this program:

    onnxfuse train OUT/model.onnx --data OUT/examples.npz --loss cross_entropy:logits,next -o trained.onnx

Needs numpy and onnx. The model is that of Radford et al., "Language Models are Unsupervised Multitask Learners", 2019: blocks of causal attention and
a GELU network, LayerNormalization before each."""

import argparse
import math
from pathlib import Path

import numpy as np

BYTES, LENGTH, WIDTH, HEADS, BLOCKS = 256, 64, 128, 4, 3


def model():
    from onnx import TensorProto, checker, helper, numpy_helper

    random, nodes, weights = np.random.default_rng(0), [], {}

    def weight(name, array):
        weights[name] = np.asarray(array)
        return name

    def normal(name, *shape):
        return weight(name, (0.02 * random.standard_normal(shape)).astype(np.float32))

    def node(kind, inputs, output, **attributes):
        outputs = [output] if isinstance(output, str) else output
        nodes.append(helper.make_node(kind, inputs, outputs, outputs[0], **attributes))
        return output

    def linear(x, name, n, m):
        product = node("MatMul", [x, normal(f"{name}.weight", n, m)], f"{name}.product")
        return node("Add", [product, weight(f"{name}.bias", np.zeros(m, np.float32))], f"{name}.out")

    def norm(x, name):
        scale, bias = weight(f"{name}.scale", np.ones(WIDTH, np.float32)), weight(f"{name}.bias", np.zeros(WIDTH, np.float32))
        return node("LayerNormalization", [x, scale, bias], f"{name}.out", axis=-1)

    def attention(x, name):
        parts = node("Split", [linear(x, f"{name}.qkv", WIDTH, 3 * WIDTH)], [f"{name}.{part}" for part in "qkv"], axis=-1, num_outputs=3)
        q, k, v = (node("Transpose", [node("Reshape", [part, "heads"], f"{part}.heads")], f"{part}.turned", perm=[0, 2, 1, 3]) for part in parts)
        turned = node("Transpose", [k], f"{k}.columns", perm=[0, 1, 3, 2])
        scores = node("Mul", [node("MatMul", [q, turned], f"{name}.product"), "scale"], f"{name}.scores")
        seen = node("Softmax", [node("Add", [scores, "mask"], f"{name}.masked")], f"{name}.seen", axis=-1)
        mixed = node("Transpose", [node("MatMul", [seen, v], f"{name}.mixed")], f"{name}.back", perm=[0, 2, 1, 3])
        return linear(node("Reshape", [mixed, "joined"], f"{name}.joined"), f"{name}.projection", WIDTH, WIDTH)

    weight("heads", np.array([0, 0, HEADS, WIDTH // HEADS]))
    weight("joined", np.array([0, 0, WIDTH]))
    weight("scale", np.float32(1 / math.sqrt(WIDTH / HEADS)))
    weight("mask", np.triu(np.full((LENGTH, LENGTH), -np.inf, np.float32), 1))
    weight("places", np.arange(LENGTH))
    tokens = node("Gather", [normal("token_embedding", BYTES, WIDTH), "bytes"], "tokens")
    x = node("Add", [tokens, node("Gather", [normal("place_embedding", LENGTH, WIDTH), "places"], "placed")], "embedded")
    for i in range(BLOCKS):
        x = node("Add", [x, attention(norm(x, f"block{i}.norm1"), f"block{i}.attention")], f"block{i}.half")
        wide = node("Gelu", [linear(norm(x, f"block{i}.norm2"), f"block{i}.up", WIDTH, 4 * WIDTH)], f"block{i}.wide")
        x = node("Add", [x, linear(wide, f"block{i}.down", 4 * WIDTH, WIDTH)], f"block{i}.out")
    node("MatMul", [norm(x, "norm"), normal("head.weight", WIDTH, BYTES)], "logits")
    graph = helper.make_graph(nodes, "language", [helper.make_tensor_value_info("bytes", TensorProto.INT64, ["batch", LENGTH])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", LENGTH, BYTES])],
                              [numpy_helper.from_array(array, name) for name, array in weights.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    checker.check_model(made, full_check=True)
    return made.SerializeToString()


def examples(texts):
    data = np.frombuffer(b"".join(Path(t).read_bytes() for t in texts), np.uint8).astype(np.int64)
    windows = np.lib.stride_tricks.sliding_window_view(data, LENGTH + 1)[:: LENGTH // 2]
    return {"bytes": windows[:, :-1], "next": windows[:, 1:]}


def say(path, beginning, count):
    import onnxruntime

    session, random, text = onnxruntime.InferenceSession(path), np.random.default_rng(), list(beginning.encode())
    for _ in range(count):
        seen = text[-LENGTH:]
        logits = session.run(None, {"bytes": [seen + [0] * (LENGTH - len(seen))]})[0][0, len(seen) - 1]
        chances = np.exp(1.5 * (logits - logits.max()).astype(np.float64))
        text.append(int(random.choice(BYTES, p=chances / chances.sum())))
    print(bytes(text).decode(errors="replace"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--say", type=int, metavar="N")
    parser.add_argument("out", metavar="OUT or MODEL")
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    options = parser.parse_args()
    if options.say:
        return say(options.out, (options.texts or ["The "])[0], options.say)
    if not options.texts:
        parser.error("texts are needed")
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model())
    np.savez(folder / "examples.npz", **examples(options.texts))


main()
