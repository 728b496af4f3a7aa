#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Patterns at small sizes against ONNX Runtime on the processor.

    checks.py --device NAME

Prints a JSON line a pattern and type: {"name", "dtype", "error" (as a share of the largest element), "of_bound" (the most that an element is
off, as a share of what rounding explains: tests/numeric/rounding.py), "status"}; ends with code 1 when some do not agree."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import session
from onnx_writer import tensor
from pattern_models import PATTERNS, Model

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests/numeric"))  # when run out of the source tree
from rounding import LEAST, Condition, shaken, times_bound  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

# Terms of the longest sum, and how often a value is rounded to float16 on its way to the result, where no steps are fused.
TERMS = {"long_softmax": 20000, "encoder_layer": 3072}
STORES = {"encoder_layer": 12, "chain20": 20}
MOST_TERMS, MOST_STORES = 1024, 6


def shaken_writer(rng, weights):
    return {name: shaken(rng, array) if array.size >= LEAST else array for name, array in weights.items()}


def condition_of(name, weights):
    """In float32, from the same weights."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3

    def run_of(changed):
        writer = Model(name, "float32", small=True).writer
        writer.initializers = [tensor(array, at) for at, array in changed.items()]
        opened = onnxruntime.InferenceSession(writer.bytes(), options, providers=["CPUExecutionProvider"])
        return lambda feeds: opened.run(None, feeds)
    return Condition(weights, run_of, shaken_writer)


def widened(array):
    return array.astype(np.float32) if array.dtype == np.float16 else array


def check(lib, device, name, dtype, folder):
    model = Model(name, dtype, small=True)
    arrays = model.arrays()
    s = session.Session(lib, model.save(folder), device)
    got = s.run(list(arrays.values()), dtype, model.output_dims).astype(np.float64)
    s.close()
    if model.pattern.random:
        return {"error": None, "status": "runs" if np.isfinite(got).all() else "not finite"}
    condition = condition_of(name, {at: widened(array) for at, array in model.writer.weights.items()})
    (expected,), (bound,) = condition.bounds({at: widened(array) for at, array in arrays.items()}, TERMS.get(name, MOST_TERMS), np.dtype(dtype).type,
                                             STORES.get(name, MOST_STORES))
    of_bound = float(times_bound(got, expected, bound).max())
    result = {"error": float(np.abs(got - expected).max() / np.abs(expected).max()), "of_bound": of_bound, "status": "agrees" if of_bound <= 1 else "DIFFERS"}
    if torch and dtype == "float32":  # what timing.py takes for the same in PyTorch's words
        inputs, weights = [torch.from_numpy(a) for a in arrays.values()], [torch.from_numpy(w) for w in model.weights]
        theirs = model.pattern.torch(torch, inputs, weights).numpy()
        result["torch_of_bound"] = float(times_bound(theirs, expected, bound).max())
        if not result["torch_of_bound"] <= 1:
            result["status"] = "PyTorch's form DIFFERS"
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--library", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    lib, bad = session.load(options.library), 0
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("float32", "float16"):
            for name in PATTERNS:
                try:
                    result = check(lib, options.device, name, dtype, folder)
                except Exception as problem:  # each on its own
                    result = {"error": None, "status": f"FAILS: {problem}"}
                bad += result["status"] not in ("agrees", "runs")
                print(json.dumps({"name": name, "dtype": dtype, **result}), flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
