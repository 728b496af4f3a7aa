#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients and 50 steps of loss beside what PyTorch has recorded (recorded.py, record.py): test_recorded.py BUILD. Needs numpy and onnxruntime.

A gradient may differ from the one in float64 by 1e-5 of its norm, or by four times what PyTorch's own changes in float32, whichever is more. A
loss may differ from the one in float64 by four times as much as rounding carries PyTorch's away from it by then, and by two units in the last place."""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from recorded import CASES, RECORDED, STEPS, Case

import engines  # of bench/training, which recorded finds

BUILD = Path(sys.argv[1])


def gradients_of(case, folder):
    """Of the first step: (the weight's name, in PyTorch's layout) by our session and by ONNX Runtime, on what `onnxfuse differentiate` writes."""
    model, step = folder / "model.onnx", folder / "step.onnx"
    model.write_bytes(case.graph.bytes())
    of = "--of=" + ",".join(case.graph.parameters)
    subprocess.run([BUILD / "onnxfuse", "differentiate", model, "-o", step, "--loss", "cross_entropy:y,labels", of], check=True, stdout=subprocess.DEVNULL)
    feed = {n: a[0] for n, a in case.data.items()}
    for name, array in feed.items():
        np.save(folder / f"{name}.npy", array)
    inputs = [f"--input={n}={folder}/{n}.npy" for n in feed]
    subprocess.run([BUILD / "onnxfuse", "run", step, *inputs, "--output-dir", folder / "out"], check=True, stdout=subprocess.DEVNULL)
    session = onnxruntime.InferenceSession(step)
    theirs = dict(zip([o.name for o in session.get_outputs()], session.run(None, feed)))
    for name in case.graph.parameters:
        for who, found in (("onnxfuse", np.load(folder / f"out/{name}_grad.npy")), ("ONNX Runtime", theirs[f"{name}_grad"])):
            yield who, name, found.T if name in case.graph.transposed else found


def losses_of(case):
    engine = engines.Onnxfuse(BUILD, 0)
    step = engine.open_training(case.graph.bytes(), case.policy(), [a[0].copy() for a in case.data.values()])
    found = []
    for i in range(STEPS):
        for array, data in zip(engine.arrays, case.data.values()):
            array[:] = data[i]
        found.append(step())
    engine.close()
    return np.array(found)


def test(name, folder):
    case, record = Case(name), dict(np.load(RECORDED / f"{name}.npz"))
    worst = 0.0
    for who, weight, found in gradients_of(case, folder):
        exact = record["exact." + weight].astype(np.float64)
        bound = max(1e-5 * np.linalg.norm(exact), 4 * record["rounding." + weight])
        error = np.linalg.norm(found - exact)
        worst = max(worst, error / bound)
        assert error <= bound, f"{name}: the gradient of {weight} by {who} differs by {error:.1e}, {bound:.1e} is allowed"
    found, loss = losses_of(case), record["loss"]
    share = np.abs(found - loss) / (4 * record["spread"] + 2 * np.spacing(loss.astype(np.float32)))
    step = int(share.argmax())
    assert share[step] <= 1, f"{name}: the loss of step {step + 1} is {found[step]:.8g}, PyTorch's {loss[step]:.8g}: {share[step]:.2g} of what is allowed"
    print(f"ok    {name}: gradients at {worst:.0%} of their bound, losses at {share[step]:.0%}")


for name in CASES:
    with tempfile.TemporaryDirectory() as folder:
        test(name, Path(folder))
