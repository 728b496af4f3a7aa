#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times onnxfuse beside ONNX Runtime and OpenVINO on the same models and inputs, in alternating rounds of one run.

    peers.py FOLDER... [--onnxfuse PROGRAM] [--threads N] [--rounds N] [--seconds S]

FOLDER: a model.onnx with test_data_set_0, as scripts/real_models.py writes them. Each engine loads a model in a process of its own;
in each round each runs for --seconds, one after the other. Shown is the median over the rounds of the median run, in ms, and memory:
the process's peak, engine and model, beyond what it held before the engine was loaded. All engines read inputs that stay where they
are and write outputs into memory of the run before, so that what is timed is the model: ONNX Runtime through an IO binding, OpenVINO
through shared tensors, ours in its own program. The call itself goes through Python for the other two, which costs them a few
microseconds a run (the row "a call"); for models that take less than a millisecond that is to be kept in mind. Needs onnx, numpy,
onnxruntime and openvino; engines whose package is missing are left out."""
import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

PEERS = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def inputs_of(folder):
    import onnx
    from onnx import numpy_helper

    model = onnx.load(folder / "model.onnx", load_external_data=False)
    constants = {i.name for i in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in constants]
    feed = {}
    for position, name in enumerate(names):
        message = onnx.TensorProto()
        message.ParseFromString((folder / f"test_data_set_0/input_{position}.pb").read_bytes())
        feed[name] = numpy_helper.to_array(message)
    return feed


def open_onnxruntime(path, threads, feed):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    kept = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in feed.values()]
    for name, value in zip(feed, kept):
        binding.bind_ortvalue_input(name, value)
    names = [output.name for output in session.get_outputs()]
    for name in names:
        binding.bind_output(name)
    session.run_with_iobinding(binding)
    for name, value in zip(names, binding.get_outputs()):  # the next runs write into what this one has made
        if value.is_tensor() and value.data_type() != "tensor(string)":
            binding.bind_ortvalue_output(name, value)
            kept.append(value)
    return lambda: (kept, session.run_with_iobinding(binding))


def open_openvino(path, threads, feed):
    import openvino

    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(path, "CPU", config).create_infer_request()
    return lambda: request.infer(feed, share_inputs=True, share_outputs=True)


def peak_mb():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024


def worker(engine, folder, threads):
    """Answers each line "SECONDS" from standard input with the median of the runs, in ms."""
    feed = inputs_of(folder)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here: the engine's own library counts
    before = peak_mb()
    importlib.import_module(engine)
    run = {"onnxruntime": open_onnxruntime, "openvino": open_openvino}[engine](str(folder / "model.onnx"), threads, feed)
    for _ in range(3):
        run()
    print("ready", flush=True)
    for line in sys.stdin:
        times, end = [], time.perf_counter() + float(line)
        while not times or time.perf_counter() < end:
            begin = time.perf_counter()
            run()
            times.append((time.perf_counter() - begin) * 1e3)
        print(json.dumps([statistics.median(times), peak_mb() - before]), flush=True)


def ours(program, folder, feed, threads, seconds):
    given = [f"--input={name}={folder}/test_data_set_0/input_{position}.pb" for position, name in enumerate(feed)]
    done = subprocess.run([program, "bench", folder / "model.onnx", *given, f"--threads={threads}", f"--seconds={seconds}", "--json"],
                          check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return result["median_ms"], result["peak_rss_mb"]


def measure(options, folder, engines):
    feed, rows = inputs_of(folder), {engine: [] for engine in engines}
    processes = {engine: subprocess.Popen([sys.executable, __file__, "--worker", engine, folder, f"--threads={options.threads}"],
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for engine in engines[1:]}
    for engine in [e for e, process in processes.items() if not process.stdout.readline()]:
        processes.pop(engine).wait()  # it could not open the model, and has said why
    for _ in range(options.rounds):
        rows["onnxfuse"].append(ours(options.onnxfuse, folder, feed, options.threads, options.seconds))
        for engine, process in processes.items():
            print(options.seconds, file=process.stdin, flush=True)
            rows[engine].append(json.loads(process.stdout.readline()))
    for process in processes.values():
        process.stdin.close()
        process.wait()
    return {engine: [statistics.median(column) for column in zip(*row)] for engine, row in rows.items() if row}


def identity(folder):
    """A model of one sum of one element: what a call costs."""
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    made = folder / "a call"
    (made / "test_data_set_0").mkdir(parents=True)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "call", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), made / "model.onnx")
    tensor = numpy_helper.from_array(numpy.ones(1, numpy.float32), "x")
    (made / "test_data_set_0/input_0.pb").write_bytes(tensor.SerializeToString())
    return made


def circumstances(options, engines):
    """On what, when, of what, how."""
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=pathlib.Path(__file__).parent, stdout=subprocess.PIPE, text=True)
    versions = [f"{PEERS[engine]} {importlib.metadata.version(engine)}" for engine in engines[1:]]
    return ", ".join([f"{cpu}, {os.cpu_count()} processors", str(datetime.date.today()), f"onnxfuse {git.stdout.strip() or 'of no checkout'}", *versions,
                      f"--threads {options.threads} --rounds {options.rounds} --seconds {options.seconds:g}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--onnxfuse", default="build/onnxfuse")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker, options.folders[0], options.threads)
    engines = ["onnxfuse", *(engine for engine in PEERS if importlib.util.find_spec(engine))]
    print(circumstances(options, engines) + "\n", flush=True)
    titles = ["onnxfuse", *(PEERS[engine] for engine in engines[1:])]
    print("| ms a run (MB at most) | " + " | ".join(titles) + " |\n" + "| --- " * (len(titles) + 1) + "|", flush=True)
    calls = tempfile.TemporaryDirectory()
    for folder in [*options.folders, identity(pathlib.Path(calls.name))]:
        found = measure(options, folder, engines)
        print(f"| {folder.name} | " + " | ".join(f"{found[e][0]:.3g} ({found[e][1]:.0f})" if e in found else "fails" for e in engines) + " |", flush=True)


main()
