# SPDX-License-Identifier: Apache-2.0
"""Which rows of the table of operators a model meets: those of its nodes, in subgraphs and functions too, at the model's versions of
their domains; and which of the operators' attributes, optional inputs and outputs."""

import subprocess
from collections import defaultdict
from dataclasses import dataclass

import onnx
from onnx import defs
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

STANDARD = "ai.onnx"
NEVER = 10**6  # a version that no operator set has


@dataclass(frozen=True)
class Row:
    domain: str
    name: str
    since: int
    until: int  # 0: to the newest

    def __str__(self):
        return f"{self.domain} {self.name} {versions(self)}"


def versions(row):
    return f"{row.since} to {row.until}" if row.until else f"from {row.since}"


def read_rows(program):
    text = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    fields = [line.split("\t") for line in text.splitlines()]
    return [Row(domain, name, int(since), int(until)) for domain, name, since, until in fields]


def plain(domain):
    return domain or STANDARD


def nodes_of(graph):
    """The graph's nodes, those of subgraphs too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
                yield from nodes_of(body)


def versions_of(scope):
    return {plain(opset.domain): opset.version for opset in scope.opset_import}


def passing(cases, failures):
    """Folders of the standard's cases but for those that are known to fail."""
    folders = sorted(path.parent for path in cases.glob("*/*/model.onnx"))
    return [folder for folder in folders if str(folder.relative_to(cases)) not in failures]


class Meetings:
    def __init__(self):
        self.versions = defaultdict(set)  # (domain, operator) -> versions at which it ran
        self.parts = defaultdict(set)  # (domain, operator) -> names of attributes, ("input", k), ("output", k)

    def add_standard(self, cases, failures):
        for folder in passing(cases, failures):
            self.add_model(folder / "model.onnx")

    def add_model(self, path, refused=False):
        """A refused model meets attributes and inputs, which are not silently ignored, but no row."""
        model = onnx.load(path, load_external_data=False)
        functions = {(plain(f.domain), f.name) for f in model.functions}
        scopes = [(model.graph, versions_of(model)), *((f, versions_of(f)) for f in model.functions)]
        for scope, imported in scopes:
            for node in nodes_of(scope):
                key = plain(node.domain), node.op_type
                if key in functions or key[0] not in imported:
                    continue
                if not refused:
                    self.versions[key].add(imported[key[0]])
                self.parts[key] |= {a.name for a in node.attribute}
                self.parts[key] |= {("input", k) for k, name in enumerate(node.input) if name}
                self.parts[key] |= {("output", k) for k, name in enumerate(node.output) if name}

    def meets(self, row):
        return any(row.since <= v and (not row.until or v <= row.until) for v in self.versions[row.domain, row.name])


def unmet_versions(rows, meetings):
    """(domain, operator, version) of what the standard's versions tell apart, and no model meets."""
    changes, unmet = defaultdict(list), []
    for schema in defs.get_all_schemas_with_history():
        changes[plain(schema.domain), schema.name].append((schema.since_version, schema.deprecated))
    for row in rows:
        known = sorted(changes[row.domain, row.name])
        for (version, deprecated), (end, _) in zip(known, [*known[1:], (NEVER, False)]):
            first, last = max(version, row.since), min(end - 1, row.until or NEVER)
            if first <= last and not deprecated and not any(first <= v <= last for v in meetings.versions[row.domain, row.name]):
                unmet.append((row.domain, row.name, first))
    return unmet


def newest_schemas():
    """The newest of each operator of the standard, all of ai.onnx.ml, whose attributes come and go, and what ONNX Runtime adds."""
    everything = [*defs.get_all_schemas_with_history(), *get_all_operator_schema()]
    newest = {}
    for schema in everything:
        key = plain(schema.domain), schema.name
        newest[key] = max(newest.get(key, 0), schema.since_version)
    return [s for s in everything if s.domain or s.since_version == newest[STANDARD, s.name]]


def unmet_parts(rows, meetings):
    """Attributes, inputs and outputs of the table's operators that no case gives: one that no test meets may be silently ignored."""
    known, unmet = {(row.domain, row.name) for row in rows}, set()
    for schema in newest_schemas():
        key = plain(schema.domain), schema.name
        if key not in known:
            continue
        parts = [(name, f"attribute {name}") for name in schema.attributes]
        parts += [(("input", k), f"input {k} ({x.name})") for k, x in enumerate(schema.inputs)]
        parts += [(("output", k), f"output {k} ({x.name})") for k, x in enumerate(schema.outputs)]
        unmet |= {f"{key[0]} {key[1]}'s {told}" for part, told in parts if part not in meetings.parts[key]}
    return sorted(unmet)
