#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what the documentation tells its readers to type: README.md and docs/*.md.

    run.py BUILD [DOC...]

A document is one shell, in a folder of its own in which the files that documents speak of stand ready (files.py), with the project's
folders beside them. Of its fenced blocks

    ```sh run            is run; a command that ends in failure is an error
    ```python run        likewise
    ```LANGUAGE file=F   is written to F
    ```output            must be what the block before it printed; "..." stands for any text
    ```sh needs=WHAT     is not run, because a test does not have WHAT: gpu, network, root or a checkout of its own

and a block of shell commands that is none of these is an error, so that no command stands there unproven."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NEEDS = {"gpu", "network", "root", "checkout"}
COMMANDS = r"\$ |onnxfuse(-serve)? |build/|curl |cc |cmake |python3? |pip |bench/|scripts/|tests/|examples/|wrk |\./|[A-Z_]+=\S+ onnxfuse"
# A build that a document asks for is the one that is tested.
PRELUDE = """set -euxo pipefail
cmake() {
  case "$*" in
    "-B build" | "-B build -G Ninja" | "--build build") ;;
    "--build build "*) shift 2; command cmake --build "$BUILD" "$@" ;;
    "--install build "*) shift 2; command cmake --install "$BUILD" "$@" ;;
    *) command cmake "$@" ;;
  esac
}
"""


def blocks_of(document):
    """(line, words after the fence, text) of each fenced block, and complaints about commands outside of them."""
    blocks, complaints, inside = [], [], None
    for number, line in enumerate(document.read_text().splitlines(), 1):
        if line.startswith("```"):
            if inside:
                blocks.append((inside[0], inside[1], "\n".join(inside[2]) + "\n"))
                inside = None
            else:
                inside = (number, line[3:].split(), [])
        elif inside:
            inside[2].append(line)
        elif re.match(r"    (" + COMMANDS + ")", line):
            complaints.append(f"{document.name}:{number}: a command outside of a block that is run")
    if inside:
        complaints.append(f"{document.name}:{inside[0]}: a block without an end")
    return blocks, complaints


def script_of(document, complaints):
    """The shell script that the document is, and what each block must have printed: [(line, text)]."""
    script, expected, count = PRELUDE, [], 0
    blocks, found = blocks_of(document)
    complaints += found
    for line, words, text in blocks:
        language, marks = (words[0] if words else ""), words[1:]
        file = next((m[5:] for m in marks if m.startswith("file=")), None)
        needs = next((m[6:] for m in marks if m.startswith("needs=")), None)
        if file:
            script += f"{{ set +x; }} 2>/dev/null; cat >{file} <<'END_OF_{count}'\n{text}END_OF_{count}\nset -x\n"
        elif "run" in marks:
            script += f"{{ echo '@@ {line}'; }} 2>/dev/null\n"
            script += text if language == "sh" else f"\"$PYTHON\" - <<'END_OF_{count}'\n{text}END_OF_{count}\n"
        elif language == "output":
            expected.append((line, text))
        elif needs and not set(needs.split(",")) <= NEEDS:
            complaints.append(f"{document.name}:{line}: needs={needs}; known are {', '.join(sorted(NEEDS))}")
        elif language in ("sh", "bash", "shell", "console") and not needs:
            complaints.append(f"{document.name}:{line}: a block of commands that is neither run nor says what it needs")
        count += "run" in marks
    return script, expected, count


def printed(log, line):
    """What the last block that began before `line` printed."""
    parts = re.split(r"^@@ (\d+)$", log, flags=re.M)
    text = ""
    for at in range(1, len(parts), 2):
        if int(parts[at]) < line:
            text = parts[at + 1]
    return text


def matches(expected, text):
    rows = [r"[\s\S]*?" if row.strip() == "..." else ".*?".join(map(re.escape, row.strip().split("..."))) for row in expected.strip().splitlines()]
    pattern = r"\s*".join(rows)
    return re.search(pattern, text) is not None


def run(document, build, work):
    complaints = []
    script, expected, count = script_of(document, complaints)
    if count and not complaints:
        folder, home = work / document.stem, work / (document.stem + "-home")
        home.mkdir()
        subprocess.run([sys.executable, ROOT / "tests/docs/files.py", folder], check=True)
        for entry in ROOT.iterdir():
            if entry.name not in ("build", ".git") and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
        (folder / "build").symlink_to(build)
        environment = dict(os.environ, PATH=f"{build}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", BUILD=str(build), PYTHON=sys.executable, HOME=str(home))
        for name in ("XDG_CACHE_HOME", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH", "LD_LIBRARY_PATH"):
            environment.pop(name, None)
        done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=600)
        if done.returncode:
            complaints.append(f"{document.name}: exit code {done.returncode}\n" + "\n".join(done.stdout.splitlines()[-25:]))
        else:
            quiet = "\n".join(row for row in done.stdout.splitlines() if not row.startswith("+"))
            complaints += [f"{document.name}:{line}: expected\n{text}printed\n{printed(quiet, line)}" for line, text in expected
                           if not matches(text, printed(quiet, line))]
    print("FAIL  " + "\n".join(complaints) if complaints else f"ok    {document.name}: {count} blocks run, {len(expected)} outputs compared", flush=True)
    return bool(complaints)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("documents", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    documents = options.documents or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    with tempfile.TemporaryDirectory() as work:
        failed = sum([run(document.resolve(), options.build.resolve(), pathlib.Path(work)) for document in documents])
    sys.exit(failed > 0)


main()
