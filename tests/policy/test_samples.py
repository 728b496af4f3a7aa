#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/policy.schema.json against tests/policy/samples.json: the schema is one, and it takes and refuses what the reader does.

The reader's side of the same table is tests/policy/test_samples.c. Rows with "reader_only" break a rule that a schema cannot state.
"""
import json
import pathlib
import sys

import jsonschema

root = pathlib.Path(__file__).resolve().parents[2]


def main():
    schema = json.loads((root / "docs/policy.schema.json").read_text())
    samples = json.loads((root / "tests/policy/samples.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    wrong = 0
    for sample in samples:
        errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(sample["policy"])]
        if sample.get("reader_only") or bool(errors) == ("error" in sample):
            continue
        wrong += 1
        print(f"{sample['name']}: {errors or 'the schema takes it, the reader does not: ' + sample['error']}")
    for path in sorted((root / "models").rglob("*.policy.json")) + sorted((root / "examples").rglob("*.policy.json")):
        for error in validator.iter_errors(json.loads(path.read_text())):
            wrong += 1
            print(f"{path.relative_to(root)}: {error.json_path}: {error.message}")
    print(f"{len(samples)} policies, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
