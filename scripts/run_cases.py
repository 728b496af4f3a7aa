#!/usr/bin/env python3
"""Runs the standard's cases (write_cases.py) and compares what passes with a list of what must pass.

    run_cases.py BINARY CASES EXPECTED [--jobs N] [--update] [--device NAME] [--compiled] [--match REGEX]

EXPECTED names the cases that pass, one a line (KIND/CASE). A case on the list that does not pass is a failure; one that passes and is
not on it is reported. --update writes the list anew. Each case is a process of its own, so that none can harm another."""

import argparse
import collections
import concurrent.futures
import re
import subprocess
import sys
from pathlib import Path

OUTCOMES = {0: "passes", 1: "differs", 3: "is not supported"}
TIMEOUT = 120


def run(binary, folder, device, compiled):
    command = [binary, "test", folder] + (["--device", device] if device else []) + (["--compiled"] if compiled else [])
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return "hangs", f"no answer in {TIMEOUT} s"
    lines = (done.stderr or done.stdout).strip().splitlines()
    return OUTCOMES.get(done.returncode, f"ends with code {done.returncode}"), lines[-1] if lines else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("cases", type=Path)
    parser.add_argument("expected", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--device", help="as onnxfuse's flag; auto when left out")
    parser.add_argument("--compiled", action="store_true", help="through compiled models")
    parser.add_argument("--match", default="", help="only cases whose name matches this regular expression")
    options = parser.parse_args()

    folders = sorted(path.parent for path in options.cases.glob("*/*/model.onnx"))
    folders = [folder for folder in folders if re.search(options.match, str(folder.relative_to(options.cases)))]
    names = [str(folder.relative_to(options.cases)) for folder in folders]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = dict(zip(names, pool.map(lambda folder: run(options.binary, folder, options.device, options.compiled), folders)))

    passing = {name for name, (outcome, _) in results.items() if outcome == "passes"}
    if options.update:
        options.expected.write_text("".join(name + "\n" for name in sorted(passing)))
    expected = {name for name in options.expected.read_text().split() if re.search(options.match, name)}
    failures = sorted(expected - passing)
    for name in failures:
        print(f"FAIL  {name} {results[name][0]}: {results[name][1][:300]}" if name in results else f"FAIL  {name} is not there")
    for name in sorted(passing - expected):
        print(f"new   {name} passes and is not on the list")
    print(", ".join(f"{outcome} {count}" for outcome, count in collections.Counter(o for o, _ in results.values()).most_common()))
    print(f"{len(expected) - len(failures)} passed, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
