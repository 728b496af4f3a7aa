#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generation inside the model gives ONNX Runtime's tokens, one for one, in every form of the model and with every mix of kernels;
the example generates the same.

    test_tokens.py BUILD"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
POLICIES = ["{}", '{"fusion": {"enable": false}}', '{"fusion": {"memory_efficient": true}}',
            '{"fusion": {"custom_kernels": ["FusedNoRepeatNGram"]}}',
            '{"fusion": {"memory_efficient": true, "custom_kernels": ["FusedRMSNorm", "FusedNoRepeatNGram"]}}',
            '{"kernel_fusion": {"enable": true, "memory_efficient_fusion": true, "custom_cuda_kernels": '
            '["FusedRMSNorm", "FusedNoRepeatNGram"]}}']
STEPS = 24


def repeats(row, size):
    grams = [tuple(row[i:i + size]) for i in range(len(row) - size + 1)]
    return len(grams) - len(set(grams))


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    wrong = count = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def expect(good, what):
            nonlocal wrong, count
            count += 1
            wrong += not good
            if not good:
                print(f"FAIL  {what}")

        example = folder / "generate"
        subprocess.run(["cc", ROOT / "examples/generate/generate.c", f"-I{ROOT}/include", f"-L{build}", "-lonnxfuse", "-o", example], check=True)
        prompt = np.random.default_rng(1).integers(0, 20, (5, 6))
        np.save(folder / "prompt.npy", prompt)
        np.save(folder / "steps.npy", np.array(STEPS))
        for form, ngram in [("operator", 3), ("operator", 1), ("standard", 2), ("standard", 3), ("standard", 4), ("none", 3)]:
            model = folder / "m.onnx"
            subprocess.run([sys.executable, ROOT / "scripts/generation_model.py", model, "--vocabulary", "60", "--form", form, "--ngram", str(ngram)],
                           check=True)
            session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
            expected = session.run(None, {"prompt": prompt, "steps": np.array(STEPS)})[0]
            for policy in POLICIES:
                (folder / "policy.json").write_text(policy)
                subprocess.run([build / "onnxfuse", "run", model, "--policy", folder / "policy.json", "--input", f"prompt={folder}/prompt.npy",
                                "--input", f"steps={folder}/steps.npy", "--output-dir", folder], check=True, stdout=subprocess.DEVNULL)
                expect(np.array_equal(np.load(folder / "y.npy"), expected), f"{form}, n-grams of {ngram}, {policy}")
            if form != "none":
                (folder / "policy.json").write_text(POLICIES[-1])
                plan = subprocess.run([build / "onnxfuse", "inspect", model, "--policy", folder / "policy.json", "--stage", "plan"], check=True,
                                      stdout=subprocess.PIPE, text=True).stdout
                expect("FusedNoRepeatNGram" in plan, f"{form}, n-grams of {ngram}: no step of the plan is FusedNoRepeatNGram")
            printed = subprocess.run([example, model, "--steps", str(STEPS), *map(str, prompt[0])], check=True, stdout=subprocess.PIPE,
                                     env=dict(os.environ, LD_LIBRARY_PATH=str(build)), text=True).stdout.split()
            expect([int(word) for word in printed] == expected[0].tolist(), f"{form}, n-grams of {ngram}: the example")
            before = repeats(expected[0][:6].tolist(), ngram)
            expect(form == "none" or ngram == 1 or repeats(expected[0].tolist(), ngram) <= before, f"{form}, n-grams of {ngram}: one comes twice")
    print(f"{count} checks, {wrong} failed")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
