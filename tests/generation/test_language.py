#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language model with caches as inputs and outputs gives ONNX Runtime's greedy tokens, one for one: through the C API with caches that
grow in place, and through the execution provider with caches that ONNX Runtime hands from run to run, and that it binds as one memory
for past and present. The example that decodes gives the same tokens, whatever the pieces in which it reads a prompt; what it draws depends
on the seed alone.

    test_language.py BUILD [--layers N] [--steps N] [--seeds N...]"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

import language_model as language

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "bench/gpu"))
import session  # noqa: E402

PROMPT = 12
SEEDS = (0, 1, 2)  # of models and prompts
VARIED = 64  # so many different tokens at least, that a row is no short circle


def greedy(step, seed, batch, steps):
    """What step(ids, past), which gives the logits, is led to from the seed's prompt; the tokens and the least distance of a choice."""
    ids = prompt_of(seed, batch)
    past, tokens, apart = 0, [], np.inf
    for _ in range(steps):
        logits = step(ids, past)[:, -1]
        best = np.sort(logits, axis=-1)
        apart = min(apart, float((best[:, -1] - best[:, -2]).min()))
        past += ids.shape[1]
        ids = logits.argmax(-1)[:, None]
        tokens.append(ids[:, 0].tolist())
    return tokens, apart


def handed_on(opened, layers, batch):
    """Each run's caches are as long as what they hold, and the next one's inputs."""
    held = language.caches(layers, batch, 0)

    def step(ids, past):
        nonlocal held
        logits, *present = opened.run(None, {**language.feeds(ids, past), **held})
        held = dict(zip(held, present))
        return logits

    return step


def bound(opened, layers, batch, room):
    """One memory for past and present."""
    held = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in language.caches(layers, batch, room).items()}
    results = [x.name for x in opened.get_outputs()][1:]

    def step(ids, past):
        binding = opened.io_binding()
        binding.bind_output("logits")
        for name, x in language.feeds(ids, past).items():
            binding.bind_cpu_input(name, x)
        for (name, value), result in zip(held.items(), results):
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(result, value)
        opened.run_with_iobinding(binding)
        return binding.copy_outputs_to_cpu()[0]

    return step


def in_place(opened, layers, batch, room):
    """The same through the C API."""
    held = list(language.caches(layers, batch, room).values())
    values = [opened.array_value(x) for x in held]

    def step(ids, past):
        given = list(language.feeds(ids, past).values())
        logits = np.empty((*ids.shape, language.VOCABULARY), np.float32)
        own = [opened.array_value(x) for x in [*given, logits]]
        opened.bind([*own[:2], *values], [own[2], *values])()
        for value in own:
            opened.lib.onnxfuse_value_free(value)
        return logits

    return step


def provider(model):
    settings = onnxruntime.SessionOptions()
    devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name == "OnnxfuseExecutionProvider"]
    settings.add_provider_for_devices(devices, {"threads": "2"})
    return onnxruntime.InferenceSession(str(model), settings, enable_fallback=0)


def prompt_of(seed, batch):
    return np.random.default_rng(seed).integers(0, language.VOCABULARY, (batch, PROMPT))


def example_checks(build, folder, model, prompts, steps):
    """What the example generates behind each prompt, and complaints about what it draws."""
    example = folder / "decode"
    subprocess.run(["cc", ROOT / "examples/generate/decode.c", f"-I{ROOT}/include", f"-L{build}", "-lonnxfuse", "-lm", "-o", example], check=True)

    def decode(prompts, *options, steps=steps):
        given = [",".join(map(str, p)) if isinstance(p, list) else p for p in prompts]
        ran = subprocess.run([example, model, "--room", str(PROMPT + steps), "--steps", str(steps), "--threads", "2", *options, *given],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ, LD_LIBRARY_PATH=str(build)))
        return ran.stdout if ran.returncode == 0 else ran.stderr

    def rows(*given, **how):
        return [[int(word) for word in line.split()] for line in decode(*given, **how).decode().splitlines()]

    complaints, few = [], 24
    greedy_rows = rows(prompts)
    for options in (("--piece", "5"), ("--temperature", "0.7", "--top-k", "1"), ("--temperature", "0.7", "--top-p", "0.000001")):
        if rows(prompts, *options) != greedy_rows:
            complaints.append(f"{options} is not what the most probable tokens are")
    drawn = {seed: rows([prompts[0]] * 2, "--temperature", "2", "--seed", seed, steps=few) for seed in ("1", "2")}
    if rows([prompts[0]] * 2, "--temperature", "2", "--seed", "1", steps=few) != drawn["1"]:
        complaints.append("one seed draws twice differently")
    if drawn["1"] == drawn["2"] or drawn["1"][0] == drawn["1"][1]:
        complaints.append("two seeds, or two requests, draw the same")
    top = rows([prompts[0]], "--temperature", "100", "--top-k", "2", steps=1)[0][-1]
    seen = {rows([prompts[0]], "--temperature", "100", "--top-k", "2", "--seed", str(seed), steps=1)[0][-1] for seed in range(12)}
    if len(seen | {top}) != 2:
        complaints.append(f"{len(seen | {top})} different tokens are drawn of the two most probable ones")
    if rows([prompts[0]], "--stop", str(greedy_rows[0][len(prompts[0]) + 3]), steps=few)[0] != greedy_rows[0][:len(prompts[0]) + 4]:
        complaints.append("a token that stops does not")
    text = "ab c"
    if decode([text], "--text", steps=few)[:-1] != bytes(t % 256 for t in rows([list(text.encode())], steps=few)[0]):
        complaints.append("text is not its bytes")
    for wrong, said in ((("--top-p", "2"), b"out of range"), (("--what", "2"), b"unknown option"), (("--past", "nothing.*"), b"nothing")):
        if said not in decode(prompts, *wrong):
            complaints.append(f"{wrong} is not said to be wrong")
    return [row[len(prompt):] for row, prompt in zip(greedy_rows, prompts)], complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    for name, number in (("layers", 2), ("steps", 256)):
        parser.add_argument("--" + name, type=int, default=number)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    options = parser.parse_args()
    build, layers, room, wrong, count = options.build.resolve(), options.layers, PROMPT + options.steps, 0, 0
    onnxruntime.register_execution_provider_library("onnxfuse", str(build / "libonnxfuse_ep.so"))
    with tempfile.TemporaryDirectory() as name:
        for nth, seed in enumerate(options.seeds):
            model, batch = pathlib.Path(name, f"{seed}.onnx"), 1 + nth % 2
            onnx.save(language.build(layers, room, seed), model)
            theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
            ours, through = session.Session(session.load(build), model, "cpu", threads=2), provider(model)
            expected, apart = greedy(handed_on(theirs, layers, batch), seed, batch, options.steps)
            ways = {"the C API, caches in place": in_place(ours, layers, batch, room), "the provider, caches handed on": handed_on(through, layers, batch),
                    "the provider, caches bound as one memory": bound(through, layers, batch, room)}
            for way, step in ways.items():
                tokens, _ = greedy(step, seed, batch, options.steps)
                count += 1
                if tokens != expected:
                    at = next(i for i, (a, b) in enumerate(zip(tokens, expected)) if a != b)
                    wrong += 1
                    print(f"FAIL  seed {seed}, {way}: token {at} is {tokens[at]}, not {expected[at]} (least distance of a choice {apart:.2e})")
            if nth == 0:
                prompt = prompt_of(seed, batch)[0].tolist()
                (whole, _), complaints = example_checks(build, pathlib.Path(name), model, [prompt, prompt[:5]], options.steps)
                count += 1
                if [[t] for t in whole] != expected:
                    complaints.append("the most probable tokens are not ONNX Runtime's")
                wrong += len(complaints)
                for complaint in complaints:
                    print(f"FAIL  the example: {complaint}")
            different = len({tuple(t) for t in expected})
            if different < min(options.steps // 4, VARIED):
                wrong += 1
                print(f"FAIL  seed {seed}: only {different} different tokens; a test of little")
            print(f"seed {seed}: {len(expected)} tokens a sequence, batch {batch}, {different} different; choices at least {apart:.2e} apart")
            ours.close()
    print(f"{count} rows of tokens, {wrong} failed")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
