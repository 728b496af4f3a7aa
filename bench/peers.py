#!/usr/bin/env python3
"""Times onnxfuse beside ONNX Runtime and OpenVINO on the same models and inputs, in alternating rounds of one run.

    peers.py FOLDER... [--onnxfuse PROGRAM] [--threads N] [--rounds N] [--seconds S]

FOLDER: a model.onnx with test_data_set_0, as scripts/real_models.py writes them. Each engine loads a model in a process of its own;
in each round each runs for --seconds, one after the other. Shown is the median over the rounds of the median run, in ms, and memory:
the growth of the process's peak over what it held before opening the model. Needs onnx, numpy, onnxruntime and openvino; engines whose
package is missing are left out."""
import argparse
import importlib.util
import json
import pathlib
import statistics
import subprocess
import sys
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


def open_onnxruntime(path, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def open_openvino(path, threads):
    import openvino

    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(path, "CPU", config).create_infer_request()
    return lambda feed: request.infer(feed, share_inputs=True, share_outputs=True)


def peak_mb():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024


def worker(engine, folder, threads):
    """Answers each line "SECONDS" from standard input with the median of the runs, in ms."""
    feed = inputs_of(folder)
    importlib.import_module(engine)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = peak_mb()
    run = {"onnxruntime": open_onnxruntime, "openvino": open_openvino}[engine](str(folder / "model.onnx"), threads)
    for _ in range(3):
        run(feed)
    print("ready", flush=True)
    for line in sys.stdin:
        times, end = [], time.perf_counter() + float(line)
        while not times or time.perf_counter() < end:
            begin = time.perf_counter()
            run(feed)
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
    titles = ["onnxfuse", *(PEERS[engine] for engine in engines[1:])]
    print("| ms a run (MB at most) | " + " | ".join(titles) + " |\n" + "| --- " * (len(titles) + 1) + "|", flush=True)
    for folder in options.folders:
        found = measure(options, folder, engines)
        print(f"| {folder.name} | " + " | ".join(f"{found[e][0]:.3g} ({found[e][1]:.0f})" if e in found else "fails" for e in engines) + " |", flush=True)


main()
