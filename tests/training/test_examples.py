#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What examples/train shows: a model without any knowledge learns from this repository's documents. test_examples.py ONNXFUSE"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
UNIFORM = 5.55  # ln 256: the loss of knowing nothing. That of knowing how frequent each byte is is 3.3
STEPS, WANTED = 200, 3.0

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.executable, ROOT / "examples/train/language.py", folder, *sorted((ROOT / "docs").glob("*.md"))], check=True)
    flags = ["--loss", "cross_entropy:logits,next", "--optimizer", "adamw", "--rate", "0.003", "--clip-norm", "1", "--batch", "8", "--log-every", "20", "--json"]

    def train(steps, *more):
        done = subprocess.run([sys.argv[1], "train", f"{folder}/model.onnx", "--data", f"{folder}/examples.npz", "-o", f"{folder}/trained.onnx", "--steps", str(steps),
                               *flags, *more], check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout.splitlines()[-1])["loss"]  # the mean of the last 20 steps

    first = train(1)
    assert abs(first - UNIFORM) < 0.1, f"before it has learnt anything the loss is {first}"
    last = train(STEPS, "--schedule", "cosine", "--warmup-steps", "20")
    assert last < WANTED, f"after {STEPS} steps the loss is {last}"
    said = subprocess.run([sys.executable, ROOT / "examples/train/language.py", "--say", "40", f"{folder}/trained.onnx", "The graph"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    assert said.startswith("The graph") and len(said.encode()) >= 40, said
    print(f"ok    a language model: {first:.2f} -> {last:.2f} in {STEPS} steps")
