#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random models, ours against ONNX Runtime and the onnx package's evaluator.

    run.py LIBRARY [--seed N] [--count N] [--sure] [--only SEED-INDEX] [--operators A,B] [--out FOLDER] [--jobs N]

Models are numbered within a seed; `--only SEED-INDEX` draws that one again. A model that differs is made smaller and written to
OUT/SEED-INDEX with its inputs and what ONNX Runtime (or the evaluator) makes of them, as `onnxfuse test` takes it. known.txt lists differences
that are explained; with --sure others fail only where both evaluators agree and ours is off by many bounds, or does not take the model, hangs or
crashes, and are else printed as open. Processes take models in turn; one that crashes or does not answer is blamed by name and started again, and its model
written as it was drawn (`--write SEED-INDEX`)."""

import argparse
import collections
import json
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIMEOUT = 180  # seconds without a word from a process


def known_differences():
    """[(pattern, who, reason)] of known.txt."""
    rows = []
    for line in (HERE / "known.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            who, pattern, reason = (part.strip() for part in line.split(" | "))
            rows.append((re.compile(pattern), who, reason))
    return rows


# --- a process that judges --------------------------------------------------------------------------------------------------
def work(options):
    import judge
    import operators
    from engines import load

    library, rows = load(options.library), operators.ROWS

    def say(**what):
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()

    for line in sys.stdin:
        name = line.strip()

        def tell(phase):
            say(name=name, phase=phase)

        try:
            say(name=name, **judged(judge, library, rows, name, options, tell))
        except Exception:
            say(name=name, outcome={}, who="the tester", sure=True, text=traceback.format_exc()[-1500:].replace("\n", " "))


def drawn(rows, name, options, tell=lambda phase: None):
    import numpy as np

    from draw import draw_model

    rng = np.random.default_rng([int(part) for part in name.split("-")])
    tell("drawing")
    return rng, draw_model(rng, rows, options.operators and options.operators.split(","), tell)


def judged(judge, library, rows, name, options, tell):
    """What is to be said of one model."""
    from model import words as words_of

    rng, model = drawn(rows, name, options, tell)
    if not model.nodes or not model.outputs:
        return {"outcome": {"empty": 1}}
    tell("judging")
    try:
        one, sets = judge.Judge(model, rows), [model.feeds()]
    except judge.Refused:
        return {"outcome": {"nobody": 1}}
    for _ in range(2 if model.open_sizes else 0):
        other = judge.other_sizes(rng, model, rows, one)
        sets += [other] if other else []
    counts, failure = judge.differs(library, rows, model, sets, one, tell)
    said = {"outcome": counts, "words": sorted({word for node in model.nodes for word in words_of(node)})}
    if failure:
        tell("shrinking")
        small = judge.shrink(library, rows, failure, tell)
        who, sure = judge.verdict(small, rows)
        said |= {"who": who, "sure": sure, "text": f"{judge.describe(small.model)} // {small.message}"}
        if options.out:
            write(Path(options.out) / name, small.model, small.feeds, small.wanted)
    return said


def write(folder, model, feeds, wanted):
    """A case as `onnxfuse test` takes it."""
    from onnx import numpy_helper

    from model import is_text, text_tensor

    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.bytes())
    for role, values in (("input", [feeds[name] for name, source in model.sources.items() if not source.constant]), ("output", wanted or [])):
        for k, value in enumerate(values):
            proto = numpy_helper.from_list(value) if isinstance(value, list) else text_tensor(value, "") if is_text(value) else numpy_helper.from_array(value)
            (data / f"{role}_{k}.pb").write_bytes(proto.SerializeToString())


# --- the process that hands out ----------------------------------------------------------------------------------------------
class Worker:
    def __init__(self, command, log):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, bufsize=0)
        self.name, self.phase, self.heard, self.text = None, None, time.monotonic(), b""

    def give(self, name):
        self.name, self.phase, self.heard = name, "begin", time.monotonic()
        self.process.stdin.write(name.encode() + b"\n")

    def lines(self):
        """What has come; None: the process has ended."""
        more = os.read(self.process.stdout.fileno(), 1 << 16)
        self.heard = time.monotonic()
        *lines, self.text = (self.text + more).split(b"\n")
        return [json.loads(line) for line in lines] if more else None


def hunt(options, names, report):
    command = [sys.executable, __file__, str(options.library), "--worker"]
    command += ["--out", str(options.out)] if options.out else []
    command += ["--operators", options.operators] if options.operators else []
    with open(os.devnull if not options.verbose else "/dev/stderr", "w") as log:
        workers, names, end = [Worker(command, log) for _ in range(options.jobs)], iter(names), object()
        busy = []
        for worker in workers:
            name = next(names, None)
            if name is not None:
                worker.give(name)
                busy.append(worker)
        while busy:
            ready, _, _ = select.select([worker.process.stdout for worker in busy], [], [], 5)
            for worker in list(busy):
                done = None
                if worker.process.stdout in ready:
                    lines = worker.lines()
                    for said in lines or []:
                        worker.phase = said.get("phase", worker.phase)
                        done = said if "outcome" in said else None
                    if lines is None:
                        code = worker.process.wait()
                        done = {"name": worker.name, "outcome": {}, "who": "crash", "sure": True, "text": f"{signal_name(code)} while {worker.phase}"}
                elif time.monotonic() - worker.heard > TIMEOUT:
                    worker.process.kill()
                    worker.process.wait()
                    done = {"name": worker.name, "outcome": {}, "who": "hangs", "sure": True, "text": f"no answer in {TIMEOUT} s while {worker.phase}"}
                if not done:
                    continue
                report(done)
                busy.remove(worker)
                name = next(names, None)
                if worker.process.poll() is not None:
                    if name is None:
                        continue
                    worker = Worker(command, log)
                if name is None:
                    worker.process.stdin.close()
                    worker.process.wait()
                else:
                    worker.give(name)
                    busy.append(worker)


def signal_name(code):
    return signal.Signals(-code).name if code < 0 else f"exit {code}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400), help="of the day, unless said")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", help="SEED-INDEX of one model")
    parser.add_argument("--write", help="SEED-INDEX of one model, which is written to OUT as it is drawn")
    parser.add_argument("--operators", help="names, apart by commas: of these alone")
    parser.add_argument("--out", type=Path, help="takes what differs")
    parser.add_argument("--sure", action="store_true", help="what may be a matter of rounding, or of two evaluators, does not fail")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    if options.write:
        import operators

        model = drawn(operators.ROWS, options.write, options)[1]
        return write(options.out / options.write, model, model.feeds(), [model.values[name] for name in model.outputs])
    known, found, left, words = known_differences(), [], [], collections.Counter()
    totals, reasons = collections.Counter(), collections.Counter()
    names = [options.only] if options.only else [f"{options.seed}-{k}" for k in range(options.first, options.first + options.count)]

    def report(done):
        totals.update(done["outcome"])
        words.update(done.get("words", []))
        if "who" not in done:
            return
        line = f"{done['who']}: {done['text']}"
        reason = next((f"{who}: {why}" for pattern, who, why in known if pattern.search(line)), None)
        if done["who"] == "ONNX Runtime" and not reason:
            last = re.findall(r"(\w+)\([^;]*\) \{", done["text"].partition(" // ")[0])
            reason = f"ONNX Runtime: alone against ours and the reference evaluator in {last[-1] if last else '?'}"
        if reason:
            reasons[reason] += 1
            if options.verbose:
                print(f"known  {done['name']}  {line}")
        else:
            fails = done["sure"] or not options.sure
            (found if fails else left).append(done["name"])
            print(f"{'FAIL' if fails else 'open'}  {done['name']}  {line}")
            again = [sys.executable, __file__, str(options.library), *(["--operators", options.operators] if options.operators else [])]
            if options.out:
                if done["who"] in ("crash", "hangs"):
                    subprocess.run([*again, "--write", done["name"], "--out", str(options.out)], check=False)
                print(f"      in {options.out / done['name']}")
            print(f"      again: {shlex.join([*again, '--only', done['name'], '--out', 'differences'])}")
            sys.stdout.flush()

    if not options.only:
        print(f"seed {options.seed}")
    begin = time.monotonic()
    hunt(options, names, report)
    for reason, count in sorted(reasons.items()):
        print(f"{count:6}  {reason}")
    print(f"{len(names)} models with {len(words)} operators, {totals['equal'] + totals['within']} runs: {totals['within']} within the bounds of rounding; "
          f"{totals['nobody']} that no one else runs, {totals['empty']} empty; {sum(reasons.values())} explained, {len(found)} not, {len(left)} open; {time.monotonic() - begin:.0f} s")
    if options.verbose:
        print(words.most_common())
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
