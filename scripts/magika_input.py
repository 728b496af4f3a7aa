#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the input of the model magika (models/models.json) from files, and the list of its labels.

    magika_input.py CONFIG --labels LABELS.txt --input BYTES.npy FILE...

The model sees a file as a row of beg_size + end_size numbers: the first bytes of its first block without the blanks before them,
then the last bytes of its last block without the blanks behind them. Where there are too few, the padding token stands: after the
first ones, before the last ones. CONFIG says how many, and what the classes are called."""

import argparse
import json
import struct
from pathlib import Path

BLANKS = b" \t\n\r\v\f"


def row(data, config):
    block, pad = config["block_size"], config["padding_token"]
    begin = list(data[:block].lstrip(BLANKS)[:config["beg_size"]])
    end = list(data[-block:].rstrip(BLANKS)[-config["end_size"]:])
    return begin + [pad] * (config["beg_size"] - len(begin)) + [pad] * (config["end_size"] - len(end)) + end


def write_npy(path, rows):
    """int32, two axes; the format is so plain that numpy is not needed for it."""
    text = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    data = b"".join(struct.pack(f"<{len(r)}i", *r) for r in rows)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--labels", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True)
    options = parser.parse_args()
    config = json.loads(options.config.read_text())
    options.labels.write_text("".join(label + "\n" for label in config["target_labels_space"]))
    write_npy(options.input, [row(file.read_bytes(), config) for file in options.files])


if __name__ == "__main__":
    main()
