#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the library's ABI with the one that is written down in scripts/abi/onnxfuse.abi: exported symbols with their
types, sizes and offsets of public structures, values of enumerations.

    abi.py LIBRARY             0: as written down; 1: not, and says what differs and what that means
    abi.py LIBRARY --update    writes it down anew

The header is read by clang, the symbols by nm."""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADER = ROOT / "include/onnxfuse.h"
RECORD = pathlib.Path(__file__).with_name("onnxfuse.abi")
# A program passes the first one's size, and gets the second by pointer alone.
HANDED_OUT_WITH_A_SIZE = {"struct OnnxfuseStats", "struct OnnxfuseValueInfo"}
NAMES = re.compile(r"onnxfuse_|Onnxfuse|ONNXFUSE_")


def output_of(*command):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def clang(*flags):
    return output_of("clang", "-x", "c", "-std=c17", "-fsyntax-only", *flags, HEADER)


def without_place(text):
    """An unnamed structure is told by its line in the header, which may move."""
    return re.sub(r"\(unnamed (struct )?at [^)]*\)", "(unnamed)", text)


def value_of(constant):
    for inner in constant.get("inner", []):
        if "value" in inner:
            return int(inner["value"])
    return None


def declarations():
    """Lines for functions, enumerations and handles."""
    tree = json.loads(clang("-Xclang", "-ast-dump=json"))
    for node in tree["inner"]:
        name = node.get("name", "")
        if node["kind"] == "FunctionDecl" and NAMES.match(name):
            yield f"function {name}: {node['type']['qualType']}"
        elif node["kind"] == "TypedefDecl" and NAMES.match(name) and "Detail" in node["type"]["qualType"]:
            yield f"type {name}: {node['type']['qualType']}"
        elif node["kind"] == "EnumDecl":
            value = -1
            for constant in node["inner"]:
                given = value_of(constant)
                value = value + 1 if given is None else given
                if NAMES.match(constant["name"]):
                    yield f"enum {name or '(unnamed)'}: {constant['name']} = {value}"


def layouts():
    """A line for each structure, and one for each of its members."""
    for part in clang("-Xclang", "-fdump-record-layouts-complete").split("*** Dumping AST Record Layout"):
        lines = without_place(part).strip().splitlines()
        name = lines[0].partition("|")[2].strip() if lines else ""
        if not re.match(r"struct Onnxfuse\w+$", name):
            continue
        size = re.search(r"\[sizeof=(\d+), align=(\d+)", part)
        yield f"{name}: size {size[1]}, alignment {size[2]}"
        for line in lines[1:]:
            offset, _, member = line.partition("|")
            if offset.strip().isdigit():
                indent = (len(member) - len(member.lstrip())) // 2 - 1
                yield f"{name}: {'. ' * indent}{member.strip()} at {offset.strip()}"


def symbols(library):
    for line in output_of("nm", "-D", "--defined-only", library).splitlines():
        kind, symbol = line.split()[-2:]
        if kind != "A":  # the version node itself
            yield symbol.partition("@")[0], symbol


def abi_of(library):
    exported = dict(symbols(library))
    lines = sorted(declarations()) + list(layouts())
    declared = {line.split()[1].rstrip(":") for line in lines if line.startswith("function ")}
    for name in sorted(exported.keys() - declared):
        raise SystemExit(f"abi: {name} is exported, and is not in onnxfuse.h")
    for name in sorted(declared - exported.keys()):
        raise SystemExit(f"abi: {name} is in onnxfuse.h, and is not exported (is ONNXFUSE_API missing?)")
    return [f"symbol {exported[name]}" for name in sorted(exported)] + lines


def compare(written, found):
    """Structures that tell their size may grow at the end; all else that goes or changes breaks programs."""
    gone = [line for line in written if line not in found]
    new = [line for line in found if line not in written]
    broken = []
    for line in gone:
        grown = re.match(r"(struct \w+): size (\d+)", line)
        may_grow = grown and (f"{grown[1]}: size_t size at 0" in written or grown[1] in HANDED_OUT_WITH_A_SIZE)
        larger = may_grow and any(
            n.startswith(grown[1] + ": size ") and int(n.split()[3].rstrip(",")) > int(grown[2]) for n in new)
        if not larger:
            broken.append(line)
    for line in gone:
        print(("- " if line in broken else "grows: ") + line)
    for line in new:
        print("+ " + line)
    if broken:
        print("abi: programs that were built with the released header break. Keep what is marked -, or raise the SONAME:\n"
              "SOVERSION in CMakeLists.txt, the node in packaging/exports.map, docs/c-api.md. Then: scripts/abi/abi.py --update.")
    elif gone or new:
        print("abi: compatible. Write it down: scripts/abi/abi.py LIBRARY --update, and commit scripts/abi/onnxfuse.abi.")
    return not (gone or new)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    found = abi_of(args.library)
    if args.update:
        RECORD.write_text("\n".join(found) + "\n")
        return 0
    if compare(RECORD.read_text().splitlines(), found):
        print(f"{len(found)} facts of the ABI are as written down")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
