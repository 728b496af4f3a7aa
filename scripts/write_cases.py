#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the ONNX standard's backend test cases, which the onnx package carries, as folders that `onnxfuse test` takes.

    write_cases.py OUT          OUT/KIND/CASE/{model.onnx, data.json, test_data_set_N/{input,output}_J.pb}

The node cases are made by the package's code; the others lie in it as files. The light models have recorded outputs alone: their
input is the ramp 0, 1/n, 2/n, ... that the package's own runner feeds them. Prints what could not be written."""

import json
import math
import shutil
import sys
import warnings
from pathlib import Path

import numpy
import onnx
from onnx import numpy_helper

warnings.filterwarnings("ignore")
from onnx.backend.test.loader import DATA_DIR, load_model_tests  # noqa: E402

TO_PROTO = {"sequence_type": numpy_helper.from_list, "optional_type": numpy_helper.from_optional}


def message(value, declared):
    """A recorded value as the message that its declared type asks for."""
    if isinstance(value, onnx.TensorProto):
        return value
    convert = TO_PROTO.get(declared.type.WhichOneof("value"))
    return convert(value, declared.name) if convert else numpy_helper.from_array(numpy.asarray(value), declared.name)


def write_values(folder, role, values, declared, problems):
    for position, (value, about) in enumerate(zip(values, declared)):
        path = folder / f"{role}_{position}.pb"
        try:
            path.write_bytes(message(value, about).SerializeToString())
        except Exception as error:  # the package records some values in ways that its own helpers refuse
            problems.append(f"{path}: {error}")


def write_node_case(case, out, problems):
    folder = out / "node" / case.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(case.model.SerializeToString())
    (folder / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))
    for number, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{number}"
        data.mkdir(exist_ok=True)
        write_values(data, "input", inputs, case.model.graph.input, problems)
        write_values(data, "output", outputs, case.model.graph.output, problems)


def write_light_model(path, out):
    data = out / "light" / path.stem / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, data.parent / "model.onnx")
    shutil.copy(path.with_name(path.stem + "_output_0.pb"), data / "output_0.pb")
    graph = onnx.load(path).graph
    weights = {tensor.name for tensor in graph.initializer}
    declared = next(value for value in graph.input if value.name not in weights)
    dims = [dim.dim_value or 1 for dim in declared.type.tensor_type.shape.dim]
    size = math.prod(dims)
    ramp = (numpy.arange(size).reshape(dims) / size).astype(numpy.float32)
    (data / "input_0.pb").write_bytes(numpy_helper.from_array(ramp, declared.name).SerializeToString())


def main():
    out, problems = Path(sys.argv[1]), []
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        shutil.copytree(Path(DATA_DIR, kind), out / kind, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py"))
    for case in load_model_tests(kind="node"):
        write_node_case(case, out, problems)
    for path in sorted(Path(DATA_DIR, "light").glob("*.onnx")):
        write_light_model(path, out)
    print(f"{sum(1 for _ in out.glob('*/*/model.onnx'))} cases written; left out: {len(problems)} values")
    for line in problems:
        print("left out:", line)


if __name__ == "__main__":
    main() if len(sys.argv) == 2 else sys.exit(__doc__)
