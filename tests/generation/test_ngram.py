#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NGramRepeatBlock on random rows against ONNX Runtime, in primitives and as the fused kernel; a token that is no index of the scores
ends the run.

    test_ngram.py ONNXFUSE"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from onnx_writer import Writer  # noqa: E402

POLICIES = {"primitives": "{}", "kernel": '{"fusion": {"custom_kernels": ["FusedNoRepeatNGram"]}}'}
SIZES = [1, 2, 3, 5]
SHAPES = [(1, 1, 8), (2, 2, 8), (3, 3, 8), (2, 4, 8), (4, 30, 6), (3, 5, 40), (7, 64, 300)]  # batch, sequence, vocabulary


def model(size, shape):
    """shape None: every size is known only when the model runs."""
    w = Writer()
    batch, sequence, vocabulary = shape or ("batch", "sequence", "vocabulary")
    ids, scores = w.input("ids", [batch, sequence], "int64"), w.input("scores", [batch, vocabulary])
    w.output(w.op("NGramRepeatBlock", ids, scores, domain="com.microsoft", ngram_size=size), [batch, vocabulary])
    return w.bytes(17)


def run(program, folder, path, policy, inputs):
    (folder / "policy.json").write_text(policy)
    for name, array in inputs.items():
        np.save(folder / f"{name}.npy", array)
    subprocess.run([program, "run", path, "--policy", folder / "policy.json", "--output-dir", folder / "out",
                    *(part for name in inputs for part in ("--input", f"{name}={folder}/{name}.npy"))],
                   check=True, capture_output=True)
    return np.load(folder / "out/y.npy")


def is_refused(program, folder, policy, token):
    """A token that would end an n-gram again, and is out of range."""
    (folder / "m.onnx").write_bytes(model(2, None))
    inputs = {"ids": np.array([[1, token, 2, 1]]), "scores": np.zeros((1, 8), np.float32)}
    try:
        run(program, folder, folder / "m.onnx", policy, inputs)
    except subprocess.CalledProcessError as error:
        return error.returncode == 4
    return False


def main():
    program = sys.argv[1]
    rng = np.random.default_rng(0)
    wrong = count = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for size in SIZES:
            for shape in SHAPES:
                batch, sequence, vocabulary = shape
                scores = rng.standard_normal((batch, vocabulary), dtype=np.float32)
                scores[rng.random(scores.shape) < 0.05] = np.nan
                inputs = {"ids": rng.integers(0, min(vocabulary, 5), (batch, sequence)), "scores": scores}
                known = SHAPES.index(shape) % 2 == 0
                data = model(size, shape if known else None)
                (folder / "m.onnx").write_bytes(data)
                expected = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, inputs)[0]
                for policy, text in POLICIES.items():
                    got = run(program, folder, folder / "m.onnx", text, inputs)
                    count += 1
                    if not np.array_equal(got, expected, equal_nan=True):
                        wrong += 1
                        print(f"n-grams of {size}, {shape}, {'known' if known else 'dynamic'} sizes, {policy}: differs from ONNX Runtime")
        for policy, text in POLICIES.items():
            for token in (8, -1, -(2**63)):
                count += 1
                if not is_refused(program, folder, text, token):
                    wrong += 1
                    print(f"token {token}, {policy}: is not refused")
    print(f"{count} runs, {wrong} differ")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
