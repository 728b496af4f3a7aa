# SPDX-License-Identifier: Apache-2.0
"""Older and newer versions of the standard's operators: cases of one node, taken at a version that no test meets, against ONNX Runtime
at that version."""

import json
from collections import defaultdict

import numpy as np
import onnx
import onnxruntime
from onnx import checker, helper, numpy_helper

from cases import session_options, tolerances_of
from meets import STANDARD, plain

CASES_EACH = 3
RTOL, ATOL, HALF = 64, 64, 4  # as in cases.py: whatever the operator is


def single_nodes(folders):
    """{(domain, operator): folders of models that are this one node}"""
    found = defaultdict(list)
    for folder in folders:
        graph = onnx.load(folder / "model.onnx", load_external_data=False).graph
        if len(graph.node) == 1 and (folder / "test_data_set_0").is_dir():
            found[plain(graph.node[0].domain), graph.node[0].op_type].append(folder)
    return found


def tensor_of(path):
    message = onnx.TensorProto()
    message.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(message)


def at_version(folder, domain, version):
    """The folder's model with the domain imported at this version, its inputs, and what ONNX Runtime makes of them."""
    model = onnx.load(folder / "model.onnx")
    for opset in model.opset_import:
        if plain(opset.domain) == domain:
            opset.version = version
    model.ir_version = helper.find_min_ir_version_for(model.opset_import, ignore_unknown=True)
    checker.check_model(model, full_check=True)
    files = [folder / "test_data_set_0" / f"input_{k}.pb" for k in range(len(model.graph.input))]
    session = onnxruntime.InferenceSession(model.SerializeToString(), session_options(), providers=["CPUExecutionProvider"])
    if not all(value.type.HasField("tensor_type") for value in [*model.graph.input, *model.graph.output]):
        raise ValueError("only tensors are compared here")
    results = session.run(None, {value.name: tensor_of(file) for value, file in zip(model.graph.input, files)})
    return model, files, results


def disagrees(folder):
    """Whether ONNX Runtime gives something else than the folder has recorded: then it is no judge of other versions either."""
    model = onnx.load(folder / "model.onnx")
    version = next(opset.version for opset in model.opset_import if plain(opset.domain) == STANDARD)
    try:
        _, _, results = at_version(folder, STANDARD, version)
    except Exception:  # it does not have the version
        return False
    recorded = [tensor_of(folder / "test_data_set_0" / f"output_{k}.pb") for k in range(len(results))]
    return not all(a.shape == b.shape and (np.allclose(a, b, 1e-3, 1e-5, equal_nan=True) if a.dtype.kind in "fiub" else np.array_equal(a, b)) for a, b in zip(results, recorded))


def derive(unmet, folders, out):
    """Writes cases of the versions (domain, operator, version) where ONNX Runtime has them; gives their folders."""
    sources, written = single_nodes(folders), []
    for domain, name, version in unmet:
        made = 0
        for source in sources[domain, name] if domain == STANDARD else []:
            try:
                model, inputs, results = at_version(source, domain, version)
                if disagrees(source):
                    continue
            except Exception:  # this version, or ONNX Runtime, does not take the case
                continue
            folder = out / "versions" / f"{name}-{version}" / source.name
            data_set = folder / "test_data_set_0"
            data_set.mkdir(parents=True, exist_ok=True)
            (folder / "model.onnx").write_bytes(model.SerializeToString())
            (folder / "data.json").write_text(json.dumps(tolerances_of(results, RTOL, ATOL, HALF)))
            for k, file in enumerate(inputs):
                (data_set / f"input_{k}.pb").write_bytes(file.read_bytes())
            for k, result in enumerate(results):
                (data_set / f"output_{k}.pb").write_bytes(numpy_helper.from_array(result, "").SerializeToString())
            written.append(folder)
            made += 1
            if made == CASES_EACH:
                break
    return written
