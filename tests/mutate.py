#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged models and inputs, made from a folder of ONNX backend-test cases, to see that a program refuses them cleanly.

    mutate.py CASES --out DIR [--seed N] [--count N]                  write mutated case folders
    mutate.py CASES --out DIR --run BINARY [--jobs N] [...]           run `BINARY test FOLDER` on each, keep what fails

A case is a folder with model.onnx and test_data_set_*/{input,output}_*.pb. Each mutated case gets one to three mutations: of bytes
(the file may not parse any more), of fields (it parses, and lies) or of a recorded input. The same seed gives the same cases.

With --run a case fails when the program ends with another exit code than 0 to 4, by a signal, with a sanitizer's report, after
--timeout seconds, or having held more than --memory MiB (peak resident size: a limit on address space would not work with
AddressSanitizer). Code 5 is for errors of our own, and the verifiers between the passes are on (ONNXFUSE_VERIFY); it is accepted for "out
of memory" alone, since a mutant may ask for any size. Failing cases stay in DIR with the program's output beside them (output.txt); the others are deleted.
Exit code: 0 when nothing failed, else 1."""

import argparse
import collections
import concurrent.futures
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

SANITIZER_EXIT = 99
SANITIZER_REPORT = re.compile(rb"ERROR: \w+Sanitizer|WARNING: \w+Sanitizer|runtime error:")
ALLOWED_EXITS = {0, 1, 2, 3, 4}
FAULT_EXIT, FAULT_OF_THE_MACHINE = 5, b"out of memory"
NUMBERS = [0, 1, -1, 2, -2, 3, 7, 15, 16, 17, 64, 255, 256, 4096, 65536, 1 << 24, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 32,
           (1 << 62), (1 << 63) - 1, -(1 << 63)]
FLOATS = [0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, -1e38, float("inf"), float("-inf"), float("nan")]
ESCAPES = ["/etc/passwd", "../../../../etc/passwd", "..", ".", "", "model.onnx", "no/such/file", "a" * 5000, "./..//../x"]
LARGEST_MODEL = 256 << 10  # bytes; larger ones only cost time


# ---- what a mutation works on ----

class Case:
    """The files of a case: model bytes, and the inputs' bytes by path. A field mutation parses the model on demand."""

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "model.onnx"), "rb") as file:
            self.model_bytes = file.read()
        self.model = None
        self.files = {}
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.relpath(os.path.join(root, name), folder)
                if path != "model.onnx":
                    with open(os.path.join(root, name), "rb") as file:
                        self.files[path] = file.read()

    def parsed(self):
        if self.model is None:
            self.model = onnx.ModelProto.FromString(self.model_bytes)
        return self.model

    def flush(self):
        if self.model is not None:
            self.model_bytes = self.model.SerializeToString()
            self.model = None

    def inputs(self):
        return sorted(path for path in self.files if os.path.basename(path).startswith("input_"))

    def write(self, folder):
        self.flush()
        for path, data in list(self.files.items()) + [("model.onnx", self.model_bytes)]:
            target = os.path.join(folder, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(data)


def graphs(graph):
    """The graph and all nested ones."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                yield from graphs(inner)


def pick_graph(case, rng):
    return rng.choice(list(graphs(case.parsed().graph)))


def pick_node(case, rng):
    nodes = [node for graph in graphs(case.parsed().graph) for node in graph.node]
    nodes += [node for function in case.parsed().functions for node in function.node]
    return rng.choice(nodes) if nodes else None


def pick_tensor(case, rng):
    """An initializer or a tensor attribute."""
    found = []
    for graph in graphs(case.parsed().graph):
        found += graph.initializer
        found += [sparse.indices for sparse in graph.sparse_initializer] + [sparse.values for sparse in graph.sparse_initializer]
        found += [attribute.t for node in graph.node for attribute in node.attribute if attribute.HasField("t")]
    return rng.choice(found) if found else None


def pick_type(case, rng):
    graph = pick_graph(case, rng)
    found = [info.type for info in list(graph.input) + list(graph.output) + list(graph.value_info)]
    return rng.choice(found) if found else None


def names_of(case):
    names = {""}
    for graph in graphs(case.parsed().graph):
        names.update(info.name for info in list(graph.input) + list(graph.output))
        names.update(tensor.name for tensor in graph.initializer)
        names.update(name for node in graph.node for name in list(node.input) + list(node.output))
    return sorted(names) + ["no_such_value"]


# ---- mutations of bytes ----

def flip(data, rng):
    data = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def truncate(data, rng):
    return data[:rng.randrange(len(data))]


def splice(data, rng):
    a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[a:b] + data[at + rng.randint(0, b - a):]


def stamp(data, rng):
    """Overwrites with numbers that are edges as varints or fixed sizes."""
    at = rng.randrange(len(data))
    edge = rng.choice([b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\x80" * 12, b"\x00" * 8, b"\x7f", b"\xff" * 4])
    return data[:at] + edge + data[at + rng.choice([0, 1, len(edge)]):]


BYTE_MUTATIONS = [flip, truncate, splice, stamp]


def on_model_bytes(mutation):
    def mutate(case, rng):
        case.flush()
        if not case.model_bytes:
            return False
        case.model_bytes = mutation(case.model_bytes, rng)
        return True
    mutate.__name__ = "model_" + mutation.__name__
    return mutate


# ---- mutations of fields ----

def tensor_dims(case, rng):
    tensor = pick_tensor(case, rng)
    if tensor is None:
        return False
    if tensor.dims and rng.random() < 0.6:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
    elif tensor.dims and rng.random() < 0.5:
        del tensor.dims[rng.randrange(len(tensor.dims))]
    else:
        tensor.dims.extend([rng.choice([1, 1, 0, 2, 1 << 40])] * rng.choice([1, 20]))
    return True


def tensor_type(case, rng):
    tensor = pick_tensor(case, rng)
    if tensor is None:
        return False
    tensor.data_type = rng.choice(list(range(30)) + [-1, 1 << 20])
    return True


def tensor_values(case, rng):
    """Other values of the same shape: indices out of range, huge target shapes, negative sizes."""
    tensor = pick_tensor(case, rng)
    return tensor is not None and change_values(tensor, rng)


def change_values(tensor, rng):
    width = {TensorProto.INT64: 8, TensorProto.INT32: 4, TensorProto.FLOAT: 4, TensorProto.DOUBLE: 8}.get(tensor.data_type)
    if tensor.raw_data and width:
        data = bytearray(tensor.raw_data)
        at = rng.randrange(len(data) // width) * width if len(data) >= width else 0
        value = rng.choice(NUMBERS) & ((1 << 8 * width) - 1)
        data[at:at + width] = value.to_bytes(width, "little")[:len(data) - at]
        tensor.raw_data = bytes(data)
        return True
    for name, values in (("int64_data", NUMBERS), ("int32_data", [n for n in NUMBERS if abs(n) < 1 << 31]),
                         ("float_data", FLOATS), ("double_data", FLOATS)):
        items = getattr(tensor, name)
        if items:
            items[rng.randrange(len(items))] = rng.choice(values)
            return True
    if tensor.string_data:
        tensor.string_data[0] = rng.choice([b"", b"\x00\xff", b"x" * 10000])
        return True
    return False


def tensor_external(case, rng):
    tensor = pick_tensor(case, rng)
    if tensor is None:
        return False
    for field in ("raw_data", "float_data", "int64_data"):
        tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", rng.choice(ESCAPES)), ("offset", str(rng.choice(NUMBERS))),
                       ("length", str(rng.choice(NUMBERS)))):
        if rng.random() < 0.8:
            tensor.external_data.add(key=key, value=value)
    return True


def declared_type(case, rng):
    declared = pick_type(case, rng)
    if declared is None:
        return False
    tensor = declared.tensor_type
    choice = rng.randrange(5)
    if choice == 0:
        tensor.elem_type = rng.choice(list(range(28)) + [-5, 1 << 30])
    elif choice == 1 and tensor.shape.dim:
        dim = rng.choice(tensor.shape.dim)
        dim.dim_value = rng.choice(NUMBERS)
    elif choice == 2 and tensor.shape.dim:
        rng.choice(tensor.shape.dim).dim_param = rng.choice(["N", "", "2*N", "\"(", "min(a,b)", "N" * 3000])
    elif choice == 3:
        tensor.shape.dim.add().dim_value = rng.choice(NUMBERS)
    else:
        declared.CopyFrom(rng.choice([onnx.TypeProto(),
                                      helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None)),
                                      helper.make_optional_type_proto(helper.make_tensor_type_proto(7, [2])),
                                      helper.make_sparse_tensor_type_proto(1, [2]),
                                      helper.make_map_type_proto(7, helper.make_tensor_type_proto(1, None))]))
    return True


def attribute_value(case, rng):
    node = pick_node(case, rng)
    if node is None or not node.attribute:
        return False
    attribute = rng.choice(node.attribute)
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i = rng.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = rng.choice([b"", b"\x00", b"NOTSET", b"SAME_UPPER", b"linear", b"x" * 9999])
    elif attribute.ints and rng.random() < 0.6:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS)
    elif attribute.type == onnx.AttributeProto.INTS:
        attribute.ints.extend([rng.choice(NUMBERS)] * rng.choice([1, 1, 2, 40]))
    elif attribute.floats:
        attribute.floats[rng.randrange(len(attribute.floats))] = rng.choice(FLOATS)
    else:
        return False
    return True


def attribute_kind(case, rng):
    node = pick_node(case, rng)
    if node is None or not node.attribute:
        return False
    attribute = rng.choice(node.attribute)
    choice = rng.randrange(5)
    if choice == 0:
        attribute.type = rng.randrange(15)
    elif choice == 1:
        attribute.CopyFrom(helper.make_attribute(attribute.name, rng.choice([1, 1.5, "text", [1, 2], [0.5], ["a"],
                                                                             helper.make_tensor("t", 1, [1], [1.0])])))
    elif choice == 2:
        attribute.name = rng.choice(["", "axis", "axes", "value", "body", "to", "shape", "no_such"])
    elif choice == 3:
        attribute.ref_attr_name = "somewhere"
    else:
        node.attribute.remove(attribute)
    return True


def attribute_added(case, rng):
    node = pick_node(case, rng)
    if node is None:
        return False
    name = rng.choice(["axis", "axes", "perm", "to", "group", "strides", "pads", "dilations", "kernel_shape", "keepdims", "mode",
                       "num_outputs", "blocksize", "block_size", "equation", "hidden_size", "direction", "body", "value"])
    node.attribute.append(helper.make_attribute(name, rng.choice([rng.choice(NUMBERS), [rng.choice(NUMBERS)] * 3, "text", 0.5])))
    return True


def node_edges(case, rng):
    node = pick_node(case, rng)
    if node is None:
        return False
    choice, names = rng.randrange(7), names_of(case)
    edges = node.input if rng.random() < 0.75 else node.output
    if choice <= 1 and edges:
        edges[rng.randrange(len(edges))] = rng.choice(names)
    elif choice == 2 and edges:
        edges.pop(rng.randrange(len(edges)))
    elif choice == 3:
        edges.extend([rng.choice(names)] * rng.choice([1, 1, 50]))
    elif choice == 4 and node.input and node.output:
        node.input[rng.randrange(len(node.input))] = node.output[0]  # a cycle of one
    elif choice == 5 and len(node.input) > 1:
        node.input[0], node.input[-1] = node.input[-1], node.input[0]
    else:
        del edges[:]
    return True


def node_operator(case, rng):
    node = pick_node(case, rng)
    if node is None:
        return False
    choice = rng.randrange(4)
    if choice == 0:
        node.domain = rng.choice(["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "no.such"])
    elif choice == 1:
        node.op_type = rng.choice(["", "NoSuchOperator", "Constant"])
    else:
        node.op_type = rng.choice(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))
    return True


def graph_nodes(case, rng):
    graph = pick_graph(case, rng)
    if not graph.node:
        return False
    choice = rng.randrange(4)
    if choice == 0:
        graph.node.pop(rng.randrange(len(graph.node)))
    elif choice == 1:
        graph.node.add().CopyFrom(rng.choice(graph.node))  # its outputs are defined twice
    elif choice == 2:
        nodes = list(graph.node)
        rng.shuffle(nodes)
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
    elif graph.node[0].input and graph.node[-1].output:
        graph.node[0].input[0] = graph.node[-1].output[0]  # a cycle through the graph
    return True


def graph_interface(case, rng):
    graph, names = pick_graph(case, rng), names_of(case)
    choice = rng.randrange(5)
    infos = graph.input if rng.random() < 0.5 else graph.output
    if choice == 0 and infos:
        infos[rng.randrange(len(infos))].name = rng.choice(names)
    elif choice == 1 and infos:
        infos.pop()
    elif choice == 2:
        infos.append(helper.make_tensor_value_info(rng.choice(names), rng.randrange(28), [2, None, "K"]))
    elif choice == 3 and graph.initializer:
        graph.initializer.add().CopyFrom(graph.initializer[0])
    elif graph.initializer:
        graph.initializer[0].name = rng.choice(names)
    return True


def model_versions(case, rng):
    model = case.parsed()
    if rng.random() < 0.4 or not model.opset_import:
        model.ir_version = rng.choice([0, 1, 2, 3, 4, 10, 99, -1, (1 << 63) - 1])
    elif rng.random() < 0.3:
        del model.opset_import[:]
    else:
        rng.choice(model.opset_import).version = rng.choice(list(range(30)) + [-1, 1 << 31, 1 << 40])
    return True


def field(number, payload):
    """One length-delimited field on the wire."""
    size, length = len(payload), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + payload


def deep_nesting(case, rng):
    """Branches or loops inside each other, deeper than protobuf's own writer would go: put together as bytes."""
    names, model = names_of(case), case.parsed()
    inner = b""
    for _ in range(rng.choice([2, 5, 20, 31, 33, 60, 300, 5000])):
        attribute = field(1, rng.choice([b"body", b"then_branch", b"else_branch"])) + b"\xa0\x01\x05" + field(6, inner)
        node = field(4, rng.choice([b"If", b"Loop", b"Scan", b"SequenceMap", b"NoSuch"])) + field(2, b"deep")
        node += b"".join(field(1, rng.choice(names).encode()) for _ in range(rng.randrange(3)))
        inner = field(1, node + field(5, attribute)) + field(12, field(1, b"deep"))
    graph = model.graph.SerializeToString() + inner
    model.ClearField("graph")
    case.flush()
    case.model_bytes += field(7, graph)
    return True


def functions(case, rng):
    """Functions that call themselves, each other, or grow without bound."""
    model = case.parsed()
    count = rng.choice([1, 2, 3, 40])
    for i in range(count):
        function = model.functions.add(name=f"F{i}", domain="mutated", input=["a"], output=["o"])
        called = rng.choice([f"F{i + 1}", f"F{(i + 1) % count}", "Neg"])
        domain = "" if called == "Neg" else "mutated"
        function.node.add(op_type=called, domain=domain, input=["a"], output=["t"])
        function.node.add(op_type=called, domain=domain, input=["t"], output=["o"])
    model.opset_import.add(domain="mutated", version=1)
    names = names_of(case)
    model.graph.node.add(op_type="F0", domain="mutated", input=[rng.choice(names)], output=["mutated_output"])
    return True


# ---- mutations of recorded inputs ----

def input_bytes(case, rng):
    paths = case.inputs()
    if not paths:
        return False
    path = rng.choice(paths)
    if case.files[path]:
        case.files[path] = rng.choice(BYTE_MUTATIONS)(case.files[path], rng)
    return True


def input_tensor(case, rng):
    paths = case.inputs()
    if not paths:
        return False
    path, tensor = rng.choice(paths), TensorProto()
    try:
        tensor.ParseFromString(case.files[path])
    except Exception:
        return False
    choice = rng.randrange(4)
    if choice == 0 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
    elif choice == 1:
        tensor.data_type = rng.randrange(30)
    elif choice == 2:
        tensor = helper.make_tensor(tensor.name, TensorProto.FLOAT, [0, 3], [])
    elif not change_values(tensor, rng):
        return False
    case.files[path] = tensor.SerializeToString()
    return True


def input_missing(case, rng):
    paths = case.inputs()
    if not paths:
        return False
    path = rng.choice(paths)
    if rng.random() < 0.5:
        del case.files[path]
    else:
        case.files[path] = case.files[rng.choice(paths)]
    return True


FIELD_MUTATIONS = [tensor_dims, tensor_type, tensor_values, tensor_external, declared_type, attribute_value, attribute_kind,
                   attribute_added, node_edges, node_operator, graph_nodes, graph_interface, model_versions, deep_nesting, functions]
INPUT_MUTATIONS = [input_bytes, input_tensor, input_missing]
MODEL_BYTE_MUTATIONS = [on_model_bytes(mutation) for mutation in BYTE_MUTATIONS]


def mutate(case, rng):
    """Field and input mutations first: after one of bytes the model may not parse. Returns the names of those that took hold."""
    done = []
    for _ in range(100):
        wanted = rng.choice([1, 1, 2, 3])
        pool = rng.choices([FIELD_MUTATIONS, INPUT_MUTATIONS, MODEL_BYTE_MUTATIONS], weights=[7, 2, 2], k=wanted)
        chosen = [rng.choice(mutations) for mutations in pool]
        for mutation in sorted(chosen, key=lambda m: m in MODEL_BYTE_MUTATIONS):
            try:
                if mutation(case, rng):
                    done.append(mutation.__name__)
            except (ValueError, TypeError, OverflowError, DecodeError):
                continue  # a number that the field's type cannot hold; a model that does not parse any more
        if done:
            return done
    return done


# ---- running ----

def peak_while_running(process, timeout, most_kib):
    """Waits; kills what runs too long or grows far beyond the limit. Returns (status, peak KiB, reason or None)."""
    start, pause, reason = time.monotonic(), 0.001, None
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            return status, usage.ru_maxrss, reason
        if reason is None:
            if time.monotonic() - start > timeout:
                reason = f"ran longer than {timeout} s"
            elif resident_kib(process.pid) > 2 * most_kib:
                reason = "took far too much memory"
            if reason:
                os.kill(process.pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)


def resident_kib(pid):
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * (os.sysconf("SC_PAGESIZE") // 1024)
    except (OSError, IndexError):
        return 0


LEAK_CHECKER_CRASHED = b"LeakSanitizer has encountered a fatal error"
LEAK_CHECKER_TRIES = 3


def run(binary, folder, timeout, memory_mib):
    """Returns (exit code or None, what is wrong or None). The leak checker itself crashes on about one run in 250 (it stops all threads and
    reads their memory): such a run says nothing and is done again, the last time without looking for leaks."""
    for attempt in range(LEAK_CHECKER_TRIES + 1):
        result = run_once(binary, folder, timeout, memory_mib, attempt < LEAK_CHECKER_TRIES)
        with open(os.path.join(folder, "output.txt"), "rb") as file:
            if LEAK_CHECKER_CRASHED not in file.read(1 << 20):
                break
    return result


def run_once(binary, folder, timeout, memory_mib, leaks):
    environment = {**os.environ, "ONNXFUSE_VERIFY": "1"}
    if not leaks:
        environment["ASAN_OPTIONS"] = f"{environment.get('ASAN_OPTIONS', '')}:detect_leaks=0".lstrip(":")
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS"):
        environment[name] = f"{environment.get(name, '')}:exitcode={SANITIZER_EXIT}".lstrip(":")
    path = os.path.join(folder, "output.txt")
    with open(path, "wb") as output:
        process = subprocess.Popen([binary, "test", folder], stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
        status, peak, reason = peak_while_running(process, timeout, memory_mib * 1024)
        process.returncode = 0  # waited for above
    with open(path, "rb") as file:
        output = file.read(1 << 20)
    if reason:
        return None, reason
    if os.WIFSIGNALED(status):
        return None, f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    code = os.WEXITSTATUS(status)
    report = SANITIZER_REPORT.search(output)
    if report:
        return code, f"sanitizer: {report.group().decode()}"
    if code not in ALLOWED_EXITS and not (code == FAULT_EXIT and FAULT_OF_THE_MACHINE in output):
        return code, f"exit code {code}"
    if peak > memory_mib * 1024:
        return code, f"held {peak // 1024} MiB"
    return code, None


def find_cases(folder):
    found = []
    for root, names, files in os.walk(folder):
        names.sort()
        if "model.onnx" in files and os.path.getsize(os.path.join(root, "model.onnx")) <= LARGEST_MODEL:
            found.append(root)
    return found


def make_case(sources, seed, index, out):
    rng = random.Random(f"{seed}/{index}")
    source = rng.choice(sources)
    case = Case(source)
    done = mutate(case, rng)
    folder = os.path.join(out, f"{index:06d}_{os.path.basename(source)}")
    case.write(folder)
    with open(os.path.join(folder, "mutation.txt"), "w") as file:
        file.write(f"seed {seed} case {index} of {source}: {' '.join(done)}\n")
    return folder, done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", help="folder of backend-test cases, searched at any depth")
    parser.add_argument("--out", required=True, help="where the mutated folders are written")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to make one again")
    parser.add_argument("--run", metavar="BINARY")
    parser.add_argument("--timeout", type=float, default=10, help="seconds a case (default 10)")
    parser.add_argument("--memory", type=int, default=1024, help="MiB a case (default 1024)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the cases that pass as well")
    options = parser.parse_args()

    sources = find_cases(options.cases)
    if not sources:
        sys.exit(f"{options.cases}: no folder with a model.onnx")

    def one(index):
        folder, done = make_case(sources, options.seed, index, options.out)
        if not options.run:
            return folder, done, None, None
        code, wrong = run(options.run, folder, options.timeout, options.memory)
        if not wrong and not options.keep:
            shutil.rmtree(folder)
        return folder, done, code, wrong

    codes, mutations, failures = collections.Counter(), collections.Counter(), []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for folder, done, code, wrong in pool.map(one, range(options.first, options.first + options.count)):
            codes[code] += 1
            mutations.update(done)
            if wrong:
                failures.append((folder, done, wrong))
                print(f"FAIL {folder}: {wrong} ({' '.join(done)})", flush=True)

    print(f"{options.count} cases from {len(sources)}; mutations: " + ", ".join(f"{k} {n}" for k, n in mutations.most_common()))
    if options.run:
        print("exit codes: " + ", ".join(f"{code}: {n}" for code, n in sorted(codes.items(), key=str)))
        print(f"{len(failures)} failed" + (f", kept in {options.out}" if failures else ""))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
