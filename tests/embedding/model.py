#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes two models: model.py WIDE EXPRESSION. The first one's weights are much larger than what a request needs; the second matches
strings [n] with a regular expression, and needs no compiler. Needs numpy alone."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "scripts"))
from onnx_writer import Writer  # noqa: E402

WIDTH, LAYERS = 2048, 4
writer = Writer()
value = writer.input("x", ["batch", WIDTH])
for _ in range(LAYERS):
    value = writer.op("Relu", writer.op("MatMul", value, writer.matrix(WIDTH, WIDTH)))
    value = writer.op("Softmax", value, axis=-1)
writer.output(value, ["batch", WIDTH])
Path(sys.argv[1]).write_bytes(writer.bytes())

writer = Writer()
matches = writer.op("RegexFullMatch", writer.input("s", ["n"], "string"), pattern=r"\p{Lu}\w*")
writer.output(matches, ["n"], "bool")
Path(sys.argv[2]).write_bytes(writer.bytes())
