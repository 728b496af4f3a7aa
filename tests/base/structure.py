#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The sources as docs/architecture.md tells of them: includes make no circle between the folders of src, nor between files of several folders (the
sources of one module may share an inner header); no folder holds more than MOST files on one level. Each source file names its licence, and the
files of the project that the documentation speaks of are there. Run in the source folder."""
import collections
import pathlib
import re
import sys

MOST = 25
LICENCE = "SPDX-License-Identifier: Apache-2.0"


def circles(edges):
    """Strongly connected parts of more than one member (Tarjan, 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            part = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(part) > 1:
                found.append(sorted(part))

    for node in list(edges):
        if node not in index:
            visit(node)
    return found


def main():
    sys.setrecursionlimit(10000)
    root = pathlib.Path("src")
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.suffix in (".c", ".cc", ".h")}
    folders, headers, complaints = collections.defaultdict(set), collections.defaultdict(set), []
    for name, path in files.items():
        for other in re.findall(r'#include "([^"]+)"', path.read_text()):
            if other not in files or other == name:
                continue
            if pathlib.PurePath(other).parent != pathlib.PurePath(name).parent:
                folders[pathlib.PurePath(name).parent.as_posix()].add(pathlib.PurePath(other).parent.as_posix())
            if name.endswith(".h"):
                headers[name].add(other)
            elif other != name.rsplit(".", 1)[0] + ".h" and f"{name.rsplit('.', 1)[0]}.h" in files:
                headers[f"{name.rsplit('.', 1)[0]}.h"].add(other)
    complaints += [f"these folders include each other: {', '.join(part)}" for part in circles(folders)]
    complaints += [f"these files include each other: {', '.join(part)}" for part in circles(headers)
                   if len({pathlib.PurePath(name).parent for name in part}) > 1]
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        count = sum(path.is_file() for path in folder.iterdir())
        if count > MOST:
            complaints.append(f"{folder} holds {count} files on one level; {MOST} are the most")
    for top in ("src", "include", "tests", "bench", "examples", "scripts", "cmake"):
        for path in pathlib.Path(top).rglob("*"):
            if path.suffix in (".c", ".cc", ".cpp", ".h", ".py", ".sh", ".cmake") and LICENCE not in path.read_text()[:200]:
                complaints.append(f"{path} does not name its licence: {LICENCE}")
    for page in [pathlib.Path("README.md"), pathlib.Path("CONTRIBUTING.md"), *pathlib.Path("docs").glob("*.md")]:
        for name in re.findall(r"`((?:src|tests|bench|scripts|examples|cmake)/[a-z0-9_/.]+)`", page.read_text()):
            if not pathlib.Path(name).exists():
                complaints.append(f"{page} speaks of {name}, which is not there")
    print("\n".join(complaints) or f"{len(files)} files, no circle")
    return bool(complaints)


sys.exit(main())
