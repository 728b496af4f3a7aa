#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/operators.md: the operators and the versions of them that run, as the table of operators has them.

    write_operators.py [--check] BUILD docs/operators.md

BUILD holds operator_rows. With --check nothing is written: the exit code says whether the file is what would be written."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HEAD = """<!-- Written by scripts/write_operators.py: not to be edited. -->
# Operators

What runs, by the version of its domain's operator set that a model imports. Versions that the standard does not tell apart are not
told apart here. Functions of a model are inlined, so that those of any domain run whose nodes do. What is not here can be added as a
[custom operator](extending.md). Opening a model names the first node that does not run.
"""
TITLES = {
    "ai.onnx": "The standard's", "ai.onnx.ml": "The standard's for machine learning", "ai.onnx.preview": "The standard's previews",
    "ai.onnx.preview.training": "The standard's for training", "com.microsoft": "ONNX Runtime's",
}


def spans(rows):
    """Version ranges, those that meet as one; 0: without an end."""
    made = []
    for since, until in sorted(rows):
        if made and made[-1][1] and made[-1][1] + 1 >= since:
            made[-1] = (made[-1][0], until and max(until, made[-1][1]))
        else:
            made.append((since, until))
    return ", ".join(f"{since} to {until}" if until else f"from {since}" for since, until in made)


def page(program):
    rows = defaultdict(lambda: defaultdict(list))
    for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines():
        domain, name, since, until = line.split("\t")
        rows[domain][name].append((int(since), int(until)))
    parts = [HEAD]
    for domain in sorted(rows, key=lambda d: (list(TITLES).index(d), d)):
        operators = sorted(rows[domain].items())
        parts.append(f"\n## {TITLES[domain]}: {domain}\n\n{len(operators)} operators.\n\n| operator | versions |\n|---|---|\n")
        parts += [f"| {name} | {spans(versions)} |\n" for name, versions in operators]
    return "".join(parts)


def main(build, path, check):
    text, path = page(Path(build) / "operator_rows"), Path(path)
    if not check:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        sys.exit(f"{path} is not what scripts/write_operators.py writes: run it anew")


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    main(*arguments, "--check" in sys.argv) if len(arguments) == 2 else sys.exit(__doc__)
