#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Patterns at small sizes against ONNX Runtime on the processor.

    checks.py --device NAME

Prints a JSON line a pattern and type: {"name", "dtype", "error" (of the largest element), "status"}; ends with code 1 when some do not
agree."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

import session
from pattern_models import PATTERNS, Model

try:
    import torch
except ImportError:
    torch = None

TOLERANCE = {"float32": 2e-4, "float16": 2e-2}  # of the largest element; products sum thousands of terms


def reference(model, arrays):
    """In float32, from the same weights and inputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.writer.bytes(), options, providers=["CPUExecutionProvider"]).run(None, arrays)[0]


def check(lib, device, name, dtype, folder):
    model = Model(name, dtype, small=True)
    arrays = model.arrays()
    s = session.Session(lib, model.save(folder), device)
    got = s.run(list(arrays.values()), dtype, model.output_dims).astype(np.float64)
    s.close()
    if model.pattern.random:
        return {"error": None, "status": "runs" if np.isfinite(got).all() else "not finite"}
    expected = reference(model, arrays).astype(np.float64)
    error = float(np.abs(got - expected).max() / np.abs(expected).max())
    result = {"error": error, "status": "agrees" if error <= TOLERANCE[dtype] else "DIFFERS"}
    if torch and dtype == "float32":  # what timing.py takes for the same in PyTorch's words
        inputs, weights = [torch.from_numpy(a) for a in arrays.values()], [torch.from_numpy(w) for w in model.weights]
        theirs = model.pattern.torch(torch, inputs, weights).numpy().astype(np.float64)
        result["torch_error"] = float(np.abs(theirs - expected).max() / np.abs(expected).max())
        if result["torch_error"] > TOLERANCE[dtype]:
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
