#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the model ocr_rec (models/models.json), which reads a line of text, needs beside a picture.

    text_line.py labels MODEL LABELS.txt    the characters that it knows, one a line
    text_line.py read RESULT.json           the text that the last line of `onnxfuse run --labels LABELS.txt --json` stands for; - is
                                            standard input
    text_line.py draw PICTURE.png           makes models/line.png (needs Pillow 13; its built-in typeface, Aileron, is in the public
                                            domain, and so is the picture)

The model gives a score to each of its characters at each of many places from left to right. The text is the best character of
each place, with neighbours that are the same taken for one, and without the blank, which is best where no new character begins
(connectionist temporal classification)."""

import argparse
import json
import sys
from pathlib import Path

BLANK = "(blank)"
TEXT = "The quick brown fox jumps over 13 lazy dogs."


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """(number, content) of the length-delimited fields of a protobuf message; others are skipped."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 2:
            size, at = varint(data, at)
            yield key >> 3, data[at:at + size]
            at += size
        elif kind == 0:
            _, at = varint(data, at)
        else:
            at += {1: 8, 5: 4}[kind]


def write_labels(model, path):
    """The characters are the entry "character" of ModelProto.metadata_props (field 14: key 1, value 2), the blank before and a space
    behind them."""
    entries = (dict(fields(content)) for number, content in fields(memoryview(Path(model).read_bytes())) if number == 14)
    metadata = {bytes(entry[1]).decode(): bytes(entry[2]).decode() for entry in entries}
    if "character" not in metadata:
        sys.exit(f"{model} does not say which characters it knows")
    Path(path).write_text("".join(c + "\n" for c in (BLANK, *metadata["character"].split("\n"), " ")))


def read(path):
    result = json.loads((sys.stdin.read() if path == "-" else Path(path).read_text()).splitlines()[-1])
    best = [place[0]["label"] for output in result["outputs"] for place in output.get("best", [])]
    return "".join(c for c, before in zip(best, [BLANK, *best]) if c not in (before, BLANK))


def draw(path):
    from PIL import Image, ImageDraw, ImageFont
    font = ImageFont.load_default(size=40)
    left, top, right, bottom = font.getbbox(TEXT)
    image = Image.new("L", (right + 24, 64), 255)
    ImageDraw.Draw(image).text((12, (64 - (top + bottom)) / 2), TEXT, font=font, fill=20)
    image.quantize(16).save(path, optimize=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tasks = parser.add_subparsers(dest="task", required=True)
    labels = tasks.add_parser("labels")
    labels.add_argument("model")
    labels.add_argument("path")
    tasks.add_parser("read").add_argument("path")
    tasks.add_parser("draw").add_argument("path")
    options = parser.parse_args()
    if options.task == "labels":
        write_labels(options.model, options.path)
    elif options.task == "read":
        print(read(options.path))
    else:
        draw(options.path)


if __name__ == "__main__":
    main()
