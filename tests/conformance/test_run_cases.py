#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/run_cases.py, over a program that ends as the names of its cases say: what must be a failure is one, and is named.

    test_run_cases.py WORK"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

RUN_CASES = Path(__file__).parents[2] / "scripts/run_cases.py"

PROGRAM = """#!/usr/bin/env python3
import json, os, sys
if os.environ.get("ONNXFUSE_VERIFY") != "1":
    sys.exit(2)
folders, codes = [a for a in sys.argv[2:] if a != "--json"], []
for folder in folders:
    name = os.path.basename(folder)
    if "crash" in name or ("company" in name and len(folders) > 1):
        os.abort()
    codes.append(next((code for word, code in (("differ", 1), ("unsupported", 3), ("fault", 5)) if word in name), 0))
if "other_code" in folders[0]:
    sys.exit(4)
print(json.dumps({"folders": [{"folder": f, "code": c, "message": "why " + f} for f, c in zip(folders, codes)]}))
sys.exit(max(codes))
"""

# cases, lines of the list, what must be printed, exit code
ROWS = {
    "all pass": (["a", "b"], [], ["2 passed, 0 fail as the list says, 0 skipped, 0 failed"], 0),
    "a listed case may differ": (["a", "differ"], ["k/differ differs because"], ["1 passed, 1 fail as the list says, 0 skipped, 0 failed"], 0),
    "a case that is not listed may not": (["a", "differ"], [], ["FAIL  k/differ differs: why "], 1),
    "nor be unsupported": (["unsupported"], [], ["FAIL  k/unsupported unsupported: why "], 1),
    "nor end otherwise than listed": (["differ"], ["k/differ unsupported because"], ["FAIL  k/differ differs (listed: unsupported)"], 1),
    "a listed case that passes is a failure": (["a"], ["k/a differs because"], ["FAIL  k/a passes"], 1),
    "a listed case that is not there is one": (["a"], ["k/gone differs because"], ["FAIL  k/gone is on the list, and is not there"], 1),
    "a fault always is": (["fault"], [], ["FAIL  k/fault ends with code 5"], 1),
    "a fault is, though listed": (["a", "fault"], ["k/fault differs because"], ["FAIL  k/fault ends with code 5", "1 passed"], 1),
    "a crash is that case's": (["a", "b", "crash"], [], ["FAIL  k/crash ends with code -6", "2 passed", "1 failed"], 1),
    "a crash of cases together is seen": (["a", "company"], [], ["a process of 2 cases fails", "2 passed", "1 failed"], 1),
    "a code that the report does not have": (["other_code"], [], ["FAIL  k/other_code ends with code 4"], 1),
    "what is left out is counted": (["a", "b", "left"], [], ["2 passed, 0 fail as the list says, 1 skipped, 0 failed"], 0, "--match", "k/.$"),
}


def main():
    work = Path(sys.argv[1])
    failed = 0
    for name, (cases, lines, wanted, code, *flags) in ROWS.items():
        shutil.rmtree(work, ignore_errors=True)
        for case in cases:
            (work / "cases/k" / case).mkdir(parents=True)
            (work / "cases/k" / case / "model.onnx").touch()
        (work / "program").write_text(PROGRAM)
        os.chmod(work / "program", 0o755)
        (work / "list").write_text("# a comment\n" + "".join(line + "\n" for line in lines))
        command = [sys.executable, RUN_CASES, work / "program", work / "cases", work / "list", *flags]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != code or not all(text in done.stdout for text in wanted):
            failed += 1
            print(f"FAIL  {name}: code {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"{len(ROWS) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main() if len(sys.argv) == 2 else sys.exit(__doc__)
