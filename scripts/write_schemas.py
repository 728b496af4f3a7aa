#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/optimize/schema_table.h: what each version of each operator of the ONNX standard takes, from the onnx package's schemas.

    write_schemas.py [--check] src/optimize/schema_table.h

With --check nothing is written: the exit code says whether the file is what would be written."""
import sys
from pathlib import Path

import onnx

OLDEST = 7  # operator set to which models are converted at the least
KINDS = {"tensor": 0, "seq": 1, "optional": 2, "optional-seq": 3}
NUMBERS = {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float16": 10,
    "double": 11, "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16, "float8e4m3fn": 17,
    "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20, "uint4": 21, "int4": 22, "float4e2m1": 23, "float8e8m0": 24,
    "uint2": 25, "int2": 26, "float6e2m3": 27, "float6e3m2": 28,
}
OPTIONS = {"Single": "ONE", "Optional": "MAYBE", "Variadic": "MANY"}
HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/* Written by scripts/write_schemas.py from the schemas of the onnx package %s: not to be edited. Read by schema.c,
 * which says what the columns are. */
#ifndef ONNXFUSE_OPTIMIZE_SCHEMA_TABLE_H
#define ONNXFUSE_OPTIMIZE_SCHEMA_TABLE_H
/* clang-format off */
"""


def name(enum):
    return str(enum).split(".")[-1]


class Pool:
    """Lists in one array, equal ones once."""

    def __init__(self):
        self.rows, self.places = [], {}

    def place(self, rows):
        rows = tuple(rows)
        if rows not in self.places:
            self.places[rows] = len(self.rows) if rows else 0
            self.rows += rows
        return f"{self.places[rows]}, {len(rows)}"


def masks(types):
    found = [0, 0, 0, 0]
    for text in types:
        kind = "tensor"
        if text.startswith("optional("):
            kind, text = "optional", text[9:-1]
        if text.startswith("seq("):
            kind, text = "optional-seq" if kind == "optional" else "seq", text[4:-1]
        if text.startswith("tensor("):
            found[KINDS[kind]] |= 1 << NUMBERS[text[7:-1]]
    return "{{%s}}" % ", ".join(hex(mask) for mask in found)


def default(attribute):
    if not attribute.default_value.name:
        return "NULL"
    value = onnx.helper.get_attribute_value(attribute.default_value)
    if isinstance(value, bytes):
        value = value.decode()
    return f'"{value}"' if isinstance(value, (int, float, str)) else "NULL"


def main():
    check, path = sys.argv[1] == "--check", Path(sys.argv[-1])
    types, values, attributes, schemas = {}, Pool(), Pool(), []

    def row(value, variables):
        variable = variables.index(value.type_str) if value.type_str in variables else -1
        place = types.setdefault(masks(value.types), len(types))
        option = OPTIONS[name(value.option)]
        if option == "MANY" and not value.is_homogeneous:
            option, variable = "MIXED", -1
        return f"{{{option}, {variable}, {place}}}"

    versions = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            versions.setdefault(schema.name, []).append(schema)
    for op in sorted(versions):
        ordered = sorted(versions[op], key=lambda schema: schema.since_version)
        newest = [s for s in ordered if s.since_version <= OLDEST][-1:]
        for schema in newest + [s for s in ordered if s.since_version > OLDEST]:
            variables = [t.type_param_str for t in schema.type_constraints]
            inputs = values.place(row(v, variables) for v in schema.inputs)
            outputs = values.place(row(v, variables) for v in schema.outputs)
            attrs = attributes.place(
                f'{{"{a.name}", IS_{name(a.type)}, {int(a.required)}, {default(a)}}}' for _, a in sorted(schema.attributes.items()))
            since = 1 if schema is ordered[0] and schema.since_version <= OLDEST else schema.since_version
            schemas.append(f'{{"{op}", {since}, {int(schema.deprecated)}, {schema.min_input}, {inputs}, {outputs}, {attrs}}}')
    text = HEAD % onnx.__version__
    text += f"enum {{ SCHEMA_NEWEST = {onnx.defs.onnx_opset_version()} }};\n\n"
    for title, rows in (("SchemaTypes schema_types", list(types)), ("SchemaValue schema_values", values.rows),
                        ("SchemaAttr schema_attrs", attributes.rows), ("Schema schemas", schemas)):
        text += f"static const {title}[] = {{\n" + "".join(f"    {row},\n" for row in rows) + "};\n\n"
    text += "#endif\n"
    if check:
        sys.exit(path.read_text() != text)
    path.write_text(text)


main()
