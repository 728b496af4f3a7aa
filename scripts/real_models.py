#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lays the pinned real models (models/models.json) out as folders that `onnxfuse test` takes.

    real_models.py OUT [NAME...]

The inputs are made here: files of this project, sounds, pictures with strokes, token ids; where a model takes any size, several
sizes. The expected outputs are ONNX Runtime's."""

import shutil
import sys
from pathlib import Path

import numpy
import onnxruntime
from onnx import numpy_helper

import fetch_model
import magika_input
import minilm


def files_as_bytes(folder):
    config = magika_input.json.loads((folder / "config.json").read_text())

    def rows(*names):
        return numpy.array([magika_input.row((fetch_model.ROOT / name).read_bytes(), config) for name in names], numpy.int32)

    yield {"bytes": rows("README.md")}
    yield {"bytes": rows("CMakeLists.txt", "src/cli/value/npy.c", "scripts/minilm.py", "models/models.json", ".clang-format")}


def sounds(_):
    random = numpy.random.default_rng(11)
    for rate, samples in ((16000, 576), (8000, 288)):
        time = numpy.arange(samples) / rate
        voice = sum(numpy.sin(2 * numpy.pi * 140 * harmonic * time) / harmonic for harmonic in range(1, 9))
        yield {"input": (0.2 * voice[None]).astype(numpy.float32),
               "state": (0.1 * random.standard_normal((2, 1, 128))).astype(numpy.float32),
               "sr": numpy.array(rate, numpy.int64)}


def picture(height, width, seed):
    """Dark strokes on a bright, uneven ground, three channels, -1..1."""
    random = numpy.random.default_rng(seed)
    ground = 0.8 + 0.1 * numpy.sin(numpy.arange(width) / 37)[None, :] + 0.02 * random.standard_normal((height, width))
    for left in range(4, width - 6, 11):
        top, length = random.integers(0, height // 2), random.integers(height // 8, height // 2)
        ground[top:top + length, left:left + 2] = -0.9
        ground[top:top + 2, left:left + 6] = -0.9
    return numpy.broadcast_to(ground, (3, height, width)).astype(numpy.float32)


def pictures(*shapes):
    def make(_):
        for batch, height, width in shapes:
            yield {"x": numpy.stack([picture(height, width, seed) for seed in range(batch)])}
    return make


def sentences(_):
    random = numpy.random.default_rng(5)
    for batch, length in ((1, 128), (4, 40), (3, 7)):
        mask = (numpy.arange(length) < random.integers(3, length + 1, (batch, 1))).astype(numpy.int64)
        ids = random.integers(1000, 30000, (batch, length)) * mask
        ids[:, 0] = 101
        yield {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}


INPUTS = {
    "magika": files_as_bytes,
    "silero_vad": sounds,
    "ocr_det": pictures((1, 320, 480), (1, 192, 640)),
    "ocr_rec": pictures((1, 48, 320), (3, 48, 200)),
    "ocr_cls": pictures((1, 48, 192), (6, 48, 192)),
    "minilm": sentences,
}


def write(name, out):
    source, folder = fetch_model.fetch(name), out / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = minilm.make_model(source / "model.safetensors").SerializeToString() if name == "minilm" else None
    (folder / "model.onnx").write_bytes(made or (source / "model.onnx").read_bytes())
    (folder / "data.json").write_text('{"rtol": 1e-3, "atol": 2e-5}')
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    count = 0
    for number, feed in enumerate(INPUTS[name](source)):
        data = folder / f"test_data_set_{number}"
        data.mkdir()
        for role, declared, values in (("input", session.get_inputs(), [feed[i.name] for i in session.get_inputs()]),
                                       ("output", session.get_outputs(), session.run(None, feed))):
            for position, (about, value) in enumerate(zip(declared, values)):
                (data / f"{role}_{position}.pb").write_bytes(numpy_helper.from_array(value, about.name).SerializeToString())
        count += 1
    print(f"{name}: {count} data sets", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    for model in sys.argv[2:] or INPUTS:
        write(model, Path(sys.argv[1]))
