#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of the operators that the standard's cases do not meet, and names each row of the table of operators, and each
version, attribute, input and output of an operator, that neither meets.

    run.py BUILD CASES OUT [--jobs N] [--match REGEX]

BUILD holds onnxfuse and operator_rows, CASES the standard's cases (scripts/write_cases.py), OUT takes our own. --match runs only the
cases whose folder matches, and leaves the enumeration out."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import contributed
import first
import generation
import microsoft
import ml
import standard
from cases import f32, slug, write
from meets import Meetings, passing, read_rows, unmet_parts, unmet_versions
from versions import derive

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from run_cases import TIMEOUT, read_list, run_all, take_out_skipped  # noqa: E402

INVALID = "ends with code 4"
EXPECTED_FAILURES = ROOT / "tests" / "conformance" / "expected_failures.txt"


def write_all(cases, out, match):
    """[(case, folder)], what cannot be written, and how many cases do not match."""
    shutil.rmtree(out, ignore_errors=True)
    written, problems, names, skipped = [], [], set(), 0
    for case in cases:
        name = slug(case)
        if name in names:
            problems.append(f"{name}: another case has this name")
        names.add(name)
        if not re.search(match, name):
            skipped += 1
            continue
        try:
            written += [(case, folder) for folder in write(case, out / name)]
        except Exception as error:  # whatever the package that computes what is expected raises
            problems.append(f"{name}: what is expected cannot be computed: {type(error).__name__}: {str(error)[:300]}")
    return written, problems, skipped


def complaint(case, outcome, message):
    """What is wrong with how a case ended; None: nothing."""
    if not case.refused:
        return None if outcome == "passes" else f"{outcome}: {message}"
    if outcome in ("unsupported", INVALID) and case.refused in message:
        return None
    return f'should be refused with "{case.refused}", but {outcome}: {message}'


def judge_drawn(binary, case, folder):
    """Runs the model once and has the case judge what was drawn."""
    with tempfile.TemporaryDirectory() as out:
        command = [binary, "run", folder / "model.onnx", "--output-dir", out]
        given = [k for k, array in enumerate(case.arrays) if array is not None and not case.inputs[k].constant]
        for at, k in enumerate(given):
            command += ["--input", f"x{k}={folder / 'test_data_set_0' / f'input_{at}.pb'}"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT)
        if done.returncode:
            return f"ends with code {done.returncode}: {done.stderr.strip()[-300:]}"
        return case.judge([np.load(Path(out, f"y{k}.npy")) for k in case.outputs])


def in_half_precision(binary, written, jobs):
    """Cases of f32 whose node a rule may turn to f16: each runs, and gives results of its own types."""
    folders = {str(folder): case for case, folder in written if case.dtype == f32 and not case.refused and not case.judge and "-open" not in folder.name}
    results, problems = run_all([binary, "test", "--precision", "f16"], list(folders), jobs)
    for folder, (outcome, message) in results.items():
        if outcome not in ("passes", "differs") or re.search(r"got \w+\[", message):
            problems.append(f"{slug(folders[folder])} in f16: {outcome}: {message}")
    return problems


def enumerate_rows(build, cases, written, out):
    """Folders of cases at versions that no other case meets, and what then is met by none."""
    rows, meetings, failures = read_rows(build / "operator_rows"), Meetings(), read_list(EXPECTED_FAILURES)
    meetings.add_standard(cases, failures)
    for case, folder in written:
        meetings.add_model(folder / "model.onnx", refused=bool(case.refused))
    own = [folder for case, folder in written if not case.refused and not case.judge]
    derived = derive(unmet_versions(rows, meetings), passing(cases, failures) + own, out)
    for folder in derived:
        meetings.add_model(folder / "model.onnx")
    versions = [f"{domain} {name}'s version {version}" for domain, name, version in unmet_versions(rows, meetings)]
    found = [str(row) for row in rows if not meetings.meets(row)] + versions + unmet_parts(rows, meetings)
    print(f"{len(rows)} rows of operators; rows, versions, attributes, inputs and outputs that no test meets: {len(found)}")
    return derived, [f"no test meets {name}" for name in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--match", default="")
    options = parser.parse_args()
    binary = options.build / "onnxfuse"

    cases = [*microsoft.CASES, *contributed.CASES, *ml.CASES, *standard.CASES, *first.CASES, *generation.CASES]
    written, wrong, skipped = write_all(cases, options.out, options.match)
    derived, missing = ([], []) if options.match else enumerate_rows(options.build, options.cases, written, options.out)
    results, problems = run_all([binary, "test"], [str(folder) for folder in [folder for _, folder in written] + derived], options.jobs)
    wrong += problems + missing
    left_out = take_out_skipped(binary, results)
    derived = [folder for folder in derived if str(folder) not in left_out]
    written = [(case, folder) for case, folder in written if str(folder) not in left_out]
    failed = [f"{folder.relative_to(options.out)}: {': '.join(results[str(folder)])}" for folder in derived if results[str(folder)][0] != "passes"]
    for case, folder in written:
        found = complaint(case, *results[str(folder)])
        if not found and case.judge:
            found = judge_drawn(binary, case, folder)
        if found:
            failed.append(f"{folder.relative_to(options.out)}: {found}")
    wrong += failed + in_half_precision(binary, written, options.jobs)
    for problem in wrong:
        print(f"FAIL  {problem}")
    print(f"{len(written) + len(derived) - len(failed)} passed, {len(wrong)} failed, {skipped + len(left_out)} skipped")
    sys.exit(1 if wrong or not written else 0)


if __name__ == "__main__":
    main()
