#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the standard's cases (write_cases.py): each must pass, but for those that a list says why they do not.

    run_cases.py BINARY CASES EXPECTED_FAILURES [--jobs N] [--device NAME] [--compiled] [--match REGEX]

EXPECTED_FAILURES has a line a case: KIND/CASE, how it ends ("differs" or "unsupported"), and why. A failure is a case that does not
pass and is not on the list, or ends otherwise than the list says; a case on the list that passes or is not there; and, list or not, a
crash, an answer that does not come, or any other code. Cases that --match leaves out are counted as skipped; those that need a plug-in
which the build was made without (no file beside BINARY) are named in lines that begin with "skipped: ".

Many cases share a process, as `onnxfuse test FOLDER...` takes them. Those of a process that does not end as it should are run again, one
a process, so that the one that is to blame is named. The verifiers are on (ONNXFUSE_VERIFY)."""

import argparse
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import sys
from pathlib import Path

OUTCOMES = {0: "passes", 1: "differs", 3: "unsupported"}
TIMEOUT = 120  # seconds a process may take for one case; another one adds a tenth
TOGETHER = 32


def tail(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def start(command, folders):
    """(exit code or None, standard output, standard error)"""
    limit = TIMEOUT * (1 + 0.1 * (len(folders) - 1))
    process = subprocess.Popen(command + folders + ["--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                               env={**os.environ, "ONNXFUSE_VERIFY": "1"})
    try:
        out, err = process.communicate(timeout=limit)
        return process.returncode, out, err
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, "", f"no answer in {limit:g} s"


def outcomes_of(command, folders):
    """{folder: (outcome, message)} of one process, or None where the process did not end as its own report says."""
    code, out, err = start(command, folders)
    try:
        report = json.loads(out.splitlines()[-1])["folders"]
    except (ValueError, IndexError, KeyError, TypeError):
        report = []
    if [entry["folder"] for entry in report] != folders or code != max(entry["code"] for entry in report):
        if len(folders) > 1:
            return None
        return {folders[0]: ("hangs", err) if code is None else (f"ends with code {code}", tail(err or out))}
    return {entry["folder"]: (OUTCOMES.get(entry["code"], f"ends with code {entry['code']}"), entry.get("message", "")) for entry in report}


def run_together(command, folders):
    """The outcomes, and what is wrong with the process that no case is alone."""
    found = outcomes_of(command, folders)
    if found:
        return found, []
    alone = {}
    for folder in folders:
        alone.update(outcomes_of(command, [folder]))
    blamed = any(outcome not in OUTCOMES.values() for outcome, _ in alone.values())
    return alone, [] if blamed else [f"FAIL  a process of {len(folders)} cases fails, though each alone does not: {' '.join(folders)}"]


def run_all(command, folders, jobs):
    """{folder: (outcome, message)}, and what is wrong with processes that no case is to blame for."""
    batches = [folders[at:at + TOGETHER] for at in range(0, len(folders), TOGETHER)]
    results, wrong = {}, []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for found, problems in pool.map(lambda batch: run_together(command, batch), batches):
            results.update(found)
            wrong += problems
    return results, wrong


def read_list(path):
    listed = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, outcome, why = line.split(maxsplit=2)
            if outcome not in ("differs", "unsupported") or name in listed:
                sys.exit(f"{path}: {line}")
            listed[name] = outcome
    return listed


def plugin_left_out(binary, result):
    """The plug-in for lack of which a case ended, where the build has none; None: it did not end for that."""
    named = re.search(r"\b(libonnxfuse-(?:image|regex)\.so) is (?:neither|not) in ", result[1] if result else "")
    return named[1] if named and not (Path(binary).resolve().parent / named[1]).exists() else None


def take_out_skipped(binary, results):
    """Takes what cannot run without a plug-in out of the results, and says so; gives the keys."""
    needs = {key: plugin for key, result in results.items() if (plugin := plugin_left_out(binary, result))}
    for plugin, count in sorted(collections.Counter(needs.values()).items()):
        print(f"skipped: {count} cases need {plugin}, which this build was made without")
    for key in needs:
        del results[key]
    return set(needs)


def judge(name, result, listed):
    """What is wrong, or None."""
    if result is None:
        return f"FAIL  {name} is on the list, and is not there"
    outcome, message = result
    wanted = listed.get(name, "passes")
    if outcome == wanted:
        return None
    if outcome == "passes":
        return f"FAIL  {name} passes: the list of those that do not is out of date"
    return f"FAIL  {name} {outcome}{f' (listed: {wanted})' if name in listed else ''}: {message[:300]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("cases", type=Path)
    parser.add_argument("expected_failures", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--device", help="as onnxfuse's flag; auto when left out")
    parser.add_argument("--compiled", action="store_true", help="through compiled models")
    parser.add_argument("--match", default="", help="only cases whose name matches this regular expression")
    options = parser.parse_args()

    every = sorted(str(path.parent.relative_to(options.cases)) for path in options.cases.glob("*/*/model.onnx"))
    names = [name for name in every if re.search(options.match, name)]
    if not names:
        sys.exit(f"no case in {options.cases} matches")
    listed = {name: outcome for name, outcome in read_list(options.expected_failures).items() if re.search(options.match, name)}
    command = [options.binary, "test"] + (["--device", options.device] if options.device else []) + (["--compiled"] if options.compiled else [])
    found, wrong = run_all(command, [str(options.cases / name) for name in names], options.jobs)
    results = {str(Path(folder).relative_to(options.cases)): result for folder, result in found.items()}
    left_out = take_out_skipped(options.binary, results)
    listed = {name: outcome for name, outcome in listed.items() if name not in left_out}
    judged = {name: judge(name, results.get(name), listed) for name in sorted(set(results) | set(listed))}
    wrong += [problem for problem in judged.values() if problem]
    print("\n".join(wrong) + "\n" if wrong else "", end="")
    print(", ".join(f"{outcome} {count}" for outcome, count in collections.Counter(outcome for outcome, _ in results.values()).most_common()))
    as_listed = sum(1 for name in listed if not judged[name])
    passed = sum(1 for outcome, _ in results.values() if outcome == "passes")
    print(f"{passed} passed, {as_listed} fail as the list says, {len(every) - len(names) + len(left_out)} skipped, {len(wrong)} failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
