#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What opening a large model costs, in seconds and megabytes: chains of 100,000 nodes, 1,000 subgraphs, and gradients.

    bench/growth.py [--library build/libonnxfuse.so] [--nodes 100000] [--keep FOLDER] [CASE ...]

Each model is opened twice by a process of its own: the first time fills the kernel cache, the second is what is
reported. `MB` is the most memory that the process held, Python's own (about 10 MB) included. `--halves` also opens the
models of half the size: what grows with the square of the nodes takes four times as long. Needs Python's onnx, for making
the models alone.
"""
import argparse, ctypes, json, os, resource, subprocess, sys, tempfile, time


def relu(n):
    """One operator, n times."""
    return pointwise(n, ["Relu"])


def mixed(n):
    """Pointwise operators of several kinds."""
    return pointwise(n, ["Relu", "Sigmoid", "Neg", "Tanh", "Abs", "Sqrt", "Softplus", "Sin", "Floor", "Erf"])


def pointwise(n, ops):
    from onnx import TensorProto, helper
    nodes = [helper.make_node(ops[i % len(ops)], [f"t{i}"], [f"t{i + 1}"]) for i in range(n)]
    return graph(nodes, [("t0", TensorProto.FLOAT, ["n"])], [(f"t{n}", TensorProto.FLOAT, ["n"])])


def residual(n):
    """x = x + f(x): values that two nodes read."""
    from onnx import TensorProto, helper
    nodes = []
    for i in range(n // 2):
        nodes += [helper.make_node("Tanh", [f"t{i}"], [f"u{i}"]), helper.make_node("Add", [f"t{i}", f"u{i}"], [f"t{i + 1}"])]
    return graph(nodes, [("t0", TensorProto.FLOAT, ["n"])], [(f"t{n // 2}", TensorProto.FLOAT, ["n"])])


def wide(n):
    """One value that n nodes read, and one that is made of them all."""
    from onnx import TensorProto, helper
    ops = ["Relu", "Sigmoid", "Neg", "Tanh", "Abs"]
    nodes = [helper.make_node(ops[i % len(ops)], ["x"], [f"t{i}"]) for i in range(n - 1)]
    nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(n - 1)], ["y"]))
    return graph(nodes, [("x", TensorProto.FLOAT, ["n"])], [("y", TensorProto.FLOAT, ["n"])])


def outputs(n):
    """Every value is an output of the model."""
    from onnx import TensorProto, helper
    nodes = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(n)]
    return graph(nodes, [("t0", TensorProto.FLOAT, ["n"])], [(f"t{i + 1}", TensorProto.FLOAT, ["n"]) for i in range(n)])


def concat(n):
    """A shape that is joined piece by piece out of numbers known only at run time; its last element is a size."""
    from onnx import TensorProto, helper
    nodes = [helper.make_node("Concat", [f"c{i}", "k"], [f"c{i + 1}"], axis=0) for i in range(n)]
    nodes += [helper.make_node("Slice", [f"c{n}", "from", "to"], ["shape"]), helper.make_node("Reshape", ["x", "shape"], ["y"])]
    return graph(nodes, [("x", TensorProto.FLOAT, ["n"]), ("c0", TensorProto.INT64, [1]), ("k", TensorProto.INT64, [1])],
                 [("y", TensorProto.FLOAT, [None])], {"from": [n], "to": [n + 1]})


def empty_concat(n):
    """The same with pieces that hold nothing: the shape stays short while the chain grows."""
    from onnx import TensorProto, helper
    nodes = [helper.make_node("Concat", [f"c{i}", "none"], [f"c{i + 1}"], axis=0) for i in range(n)]
    nodes.append(helper.make_node("Reshape", ["x", f"c{n}"], ["y"]))
    return graph(nodes, [("x", TensorProto.FLOAT, ["n"]), ("c0", TensorProto.INT64, [1])],
                 [("y", TensorProto.FLOAT, [None])], {"none": []})


def shapes(n):
    """Shape, Gather, Concat, Reshape, as exporters write them."""
    from onnx import TensorProto, helper
    nodes = []
    for i in range(n // 4):
        nodes += [helper.make_node("Shape", [f"t{i}"], [f"s{i}"]), helper.make_node("Gather", [f"s{i}", "zero"], [f"g{i}"]),
                  helper.make_node("Concat", [f"g{i}", "four" if i % 2 else "two", "rest"], [f"c{i}"], axis=0),
                  helper.make_node("Reshape", [f"t{i}", f"c{i}"], [f"t{i + 1}"])]
    return graph(nodes, [("t0", TensorProto.FLOAT, ["n", 4, 2])], [(f"t{n // 4}", TensorProto.FLOAT, ["n", None, None])],
                 {"zero": [0], "four": [4], "two": [2], "rest": [-1]})


def ifs(n):
    """1,000 If's, no two with the same branches: each adds weights of its own."""
    from onnx import TensorProto, helper
    count, nodes = 1000, []
    each = n // count // 2
    for i in range(count):
        branches = []
        for b in range(2):
            body = [helper.make_node(["Relu", "Tanh", "Sin", "Abs"][(k + b) % 4],
                                     [f"t{i}" if k == 0 else f"b{i}_{b}_{k}"], [f"b{i}_{b}_{k + 1}"])
                    for k in range(each - 1 - (i % 2))]
            last = len(body)
            body.append(helper.make_node("Add", [f"b{i}_{b}_{last}", f"w{i}"], [f"r{i}_{b}"]))
            branches.append(helper.make_graph(body, f"branch{b}", [], [helper.make_tensor_value_info(f"r{i}_{b}", TensorProto.FLOAT, None)]))
        nodes.append(helper.make_node("If", ["c"], [f"t{i + 1}"], then_branch=branches[0], else_branch=branches[1]))
    weights = {f"w{i}": [float(i), 1.0] for i in range(count)}
    return graph(nodes, [("t0", TensorProto.FLOAT, ["n", 2]), ("c", TensorProto.BOOL, [])],
                 [(f"t{count}", TensorProto.FLOAT, ["n", 2])], weights)


def ifs_distinct(n):
    """1,000 If's, whose branches are 2,000 kernels of which no two are the same: each multiplies by a constant of its own."""
    from onnx import TensorProto, helper
    count, nodes = 1000, []
    each = n // count // 2
    for i in range(count):
        branches = []
        for b in range(2):
            factor = helper.make_tensor("k", TensorProto.FLOAT, [], [1 + (2 * i + b) / 4096])
            body = [helper.make_node("Constant", [], [f"k{i}_{b}"], value=factor),
                    helper.make_node("Mul", [f"t{i}", f"k{i}_{b}"], [f"b{i}_{b}_0"])]
            body += [helper.make_node(["Relu", "Tanh", "Sin", "Abs"][k % 4], [f"b{i}_{b}_{k}"], [f"b{i}_{b}_{k + 1}"])
                     for k in range(each - 2)]
            branches.append(helper.make_graph(body, f"branch{b}", [], [helper.make_tensor_value_info(f"b{i}_{b}_{each - 2}", TensorProto.FLOAT, None)]))
        nodes.append(helper.make_node("If", ["c"], [f"t{i + 1}"], then_branch=branches[0], else_branch=branches[1]))
    return graph(nodes, [("t0", TensorProto.FLOAT, ["n", 2]), ("c", TensorProto.BOOL, [])],
                 [(f"t{count}", TensorProto.FLOAT, ["n", 2])])


def trained(n):
    """x + tanh-attention, x + tanh-mlp, six nodes a layer, and the gradients of x and of the weight that all layers share."""
    from onnx import TensorProto, helper
    nodes, count = [], n // 6 * 2
    for i in range(count):
        nodes += [helper.make_node("Tanh", [f"t{i}"], [f"a{i}"]), helper.make_node("MatMul", ["w", f"a{i}"], [f"b{i}"]),
                  helper.make_node("Add", [f"b{i}", f"t{i}"], [f"t{i + 1}"])]
    nodes += [helper.make_node("ReduceSumSquare", [f"t{count}"], ["loss"], keepdims=0),
              helper.make_node("Gradient", ["w", "t0"], ["dw", "dx"], domain=TRAINING, xs=["w", "t0"], y="loss")]
    matrix = lambda name: (name, TensorProto.FLOAT, [10, 10])  # noqa: E731
    return graph(nodes, [matrix("w"), matrix("t0")], [("loss", TensorProto.FLOAT, []), matrix("dw"), matrix("dx")])


TRAINING = "ai.onnx.preview.training"
CASES = {f.__name__: f for f in (relu, mixed, residual, wide, outputs, concat, empty_concat, shapes, ifs, ifs_distinct, trained)}


def graph(nodes, inputs, results, constants={}):
    import numpy as np
    from onnx import helper, numpy_helper
    tensors = [numpy_helper.from_array(np.array(v, dtype=np.float32 if v and isinstance(v[0], float) else np.int64), k)
               for k, v in constants.items()]
    made = helper.make_graph(nodes, "growth", [helper.make_tensor_value_info(*i) for i in inputs],
                             [helper.make_tensor_value_info(*o) for o in results], tensors)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(TRAINING, 1)], ir_version=9)


def open_model(library, path):
    """In a process of its own."""
    lib = ctypes.CDLL(library)
    lib.onnxfuse_status_message.restype = ctypes.c_char_p
    lib.onnxfuse_session_open.restype = ctypes.c_void_p
    lib.onnxfuse_status_message.argtypes = [ctypes.c_void_p]
    session = ctypes.c_void_p()
    before, cpu = time.monotonic(), time.process_time()
    status = lib.onnxfuse_session_open(path.encode(), None, ctypes.byref(session))
    after = time.monotonic()
    if status:
        sys.exit(lib.onnxfuse_status_message(status).decode())
    print(json.dumps({"seconds": after - before, "cpu": time.process_time() - cpu,
                      "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def measure(library, path):
    for _ in range(2):
        result = subprocess.run([sys.executable, __file__, "--open", path, "--library", library], capture_output=True, text=True)
        if result.returncode:
            return result.stderr.strip().splitlines()[-1] if result.stderr.strip() else f"exit code {result.returncode}"
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--library", default=os.path.join(os.path.dirname(__file__), "..", "build", "libonnxfuse.so"))
    parser.add_argument("--nodes", type=int, default=100000)
    parser.add_argument("--halves", action="store_true")
    parser.add_argument("--keep", help="where the models are made, and found again the next time")
    parser.add_argument("--open", help=argparse.SUPPRESS)
    options = parser.parse_args()
    library = os.path.abspath(options.library)
    if options.open:
        return open_model(library, options.open)
    for case in options.cases:
        if case not in CASES:
            parser.error(f"no case {case}: {', '.join(CASES)}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or scratch
        os.makedirs(folder, exist_ok=True)
        print(f"{'case':14}{'nodes':>8}{'seconds':>9}{'cpu':>8}{'MB':>8}")
        for case in options.cases or CASES:
            for nodes in ([options.nodes // 2] if options.halves else []) + [options.nodes]:
                path = os.path.join(folder, f"{case}-{nodes}.onnx")
                if not os.path.exists(path):
                    with open(path, "wb") as file:
                        file.write(CASES[case](nodes).SerializeToString())
                m = measure(library, path)
                print(f"{case:14}{nodes:8}" + (f"{m['seconds']:9.2f}{m['cpu']:8.2f}{m['megabytes']:8.0f}" if isinstance(m, dict) else f"  {m}"), flush=True)


if __name__ == "__main__":
    main()
