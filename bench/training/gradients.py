#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of whole models in f32 beside differences in f64.

    gradients.py BUILD MODEL... [--without PATTERN] [--directions N] [--threads N] [--moved SHARE]

A MODEL is a folder as `onnxfuse test` takes it (scripts/real_models.py), or NAME.onnx with NAME.json beside it (scripts/pattern_models.py). The
weighted sum of its results is differentiated with respect to all its weights at once, as it stands, in f32; the same model in f64 is run a
little before and behind the weights along random directions, in which each weight takes part in proportion to its size. What is printed
is the difference of the two derivatives, as a share of what a direction's derivative is by its root mean square. It ends with code 1
where a share is above 1e-3, or a model cannot be differentiated. Weights whose names match --without stay as they are. Inputs of floats
are moved a little first, by SHARE of their spread, at random: areas of one colour are many equal numbers, which all lie on the same side of a
kink in f64, and on the other in f32 where rounding takes them there."""

import argparse
import fnmatch
import json
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tests/training"))
import test_operators as operators  # noqa: E402

BOUND, STEP = 1e-3, 1e-9
NOT_WEIGHTS = {("Resize", 1), ("Resize", 2), ("Upsample", 1), ("Pad", 2)}


def load(path):
    """The model, and its inputs by name."""
    if path.is_dir():
        model, data = onnx.load(path / "model.onnx"), path / "test_data_set_0"
        given = [i for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer}]
        return model, {v.name: numpy_helper.to_array(onnx.TensorProto.FromString((data / f"input_{i}.pb").read_bytes())) for i, v in enumerate(given)}
    rng, feeds = np.random.default_rng(0), {}
    for name, about in json.loads(path.with_suffix(".json").read_text())["inputs"].items():
        dtype = np.dtype(about["dtype"])
        drawn = rng.standard_normal(about["shape"]) if dtype.kind == "f" else rng.integers(0, about.get("high", 2), about["shape"])
        feeds[name] = drawn.astype(dtype)
    return onnx.load(path), feeds


def graphs_of(graph):
    """The graph, and those of its control flow."""
    yield graph
    for body in [a.g for n in graph.node for a in n.attribute if a.type == a.GRAPH]:
        yield from graphs_of(body)


def weights_of(graph, without):
    """The constants of more than one float, as initializers of the outermost graph; those that say sizes and positions left out."""
    nodes = [n for g in graphs_of(graph) for n in g.node]
    left_out = {n.input[k] for n in nodes for op, k in NOT_WEIGHTS if n.op_type == op and k < len(n.input)}
    found = {}
    for g in graphs_of(graph):
        constants = [(n, n.attribute[0].t) for n in g.node if n.op_type == "Constant" and n.attribute[0].name == "value"]
        for holder, tensor in [(None, t) for t in list(g.initializer)] + constants:
            name = holder.output[0] if holder else tensor.name
            if tensor.data_type != TensorProto.FLOAT or name in left_out or np.prod(tensor.dims) < 2 or fnmatch.fnmatch(name, without):
                continue
            found[name] = numpy_helper.to_array(tensor)
            if holder:
                g.node.remove(holder)
            else:
                g.initializer.remove(tensor)
    graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in found.items())
    return found


def with_loss(model, kind, shapes):
    """Appends the sum of the results, weighted; the weights are inputs. Its name."""
    graph, parts = model.graph, []
    for i, (name, shape) in enumerate(shapes.items()):
        graph.input.append(helper.make_tensor_value_info(f"weights__{i}", kind, shape))
        graph.node.append(helper.make_node("Mul", [name, f"weights__{i}"], [f"weighted__{i}"]))
        graph.node.append(helper.make_node("ReduceSum", [f"weighted__{i}"], [f"sum__{i}"], keepdims=0))
        parts.append(f"sum__{i}")
    graph.node.append(helper.make_node("Sum", parts, ["loss__"]))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("loss__", kind, None))


def runner(library, model, feeds, threads):
    case = operators.Case(None, "model", "")
    case.feeds = [feeds[value.name] for value in model.graph.input]
    return operators.Runner(library, model, case, threads)


def results_of(library, model, feeds, threads):
    """The shapes of the results that are floats."""
    names = [o.name for o in model.graph.output if o.type.tensor_type.elem_type == TensorProto.FLOAT]
    keep = [o for o in model.graph.output if o.name in names]
    del model.graph.output[:]
    model.graph.output.extend(keep)
    r = runner(library, model, feeds, threads)
    arrays = r.run()
    r.close()
    return {n: a.shape for n, a in zip(names, arrays)}


def compare(library, path, without, directions, threads, moved):
    begin = time.time()
    model, feeds = load(path)
    weights, rng = weights_of(model.graph, without), np.random.default_rng(zlib.crc32(path.stem.encode()))
    if not weights:
        raise RuntimeError("it has no weights")
    feeds |= {n: (a + moved * a.std() * rng.standard_normal(a.shape)).astype(a.dtype) for n, a in feeds.items() if a.dtype.kind == "f"}
    inputs = [i for i in model.graph.input if i.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    shapes = results_of(library, onnx.ModelProto.FromString(model.SerializeToString()), feeds, threads)
    for i, shape in enumerate(shapes.values()):
        feeds[f"weights__{i}"] = rng.standard_normal(shape).astype(np.float32)

    step = onnx.ModelProto.FromString(model.SerializeToString())
    with_loss(step, TensorProto.FLOAT, shapes)
    names = list(weights)
    gradients = [f"gradient__{i}" for i in range(len(names))]
    step.graph.node.append(helper.make_node("Gradient", names, gradients, domain=operators.TRAINING, xs=names, y="loss__"))
    step.graph.output.extend(helper.make_tensor_value_info(g, TensorProto.FLOAT, None) for g in gradients)
    step.opset_import.append(helper.make_opsetid(operators.TRAINING, 1))
    r = runner(library, step, feeds, threads)
    loss, *found = r.run()
    r.close()
    del step

    operators.wide_graph(model.graph)
    for name, array in weights.items():
        model.graph.initializer.remove(next(t for t in model.graph.initializer if t.name == name))
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.DOUBLE, array.shape))
    with_loss(model, TensorProto.DOUBLE, shapes)
    feeds = {n: operators.wide(a) for n, a in feeds.items()} | {n: a.astype(np.float64) for n, a in weights.items()}
    r = runner(library, model, feeds, threads)
    exact = float(r.run()[0])
    sizes = {n: float(np.sqrt(np.mean(np.square(a, dtype=np.float64)))) for n, a in weights.items()}
    size = np.sqrt(sum(float(np.square(g, dtype=np.float64).sum()) * sizes[n] ** 2 for n, g in zip(names, found)))
    worst = 0.0
    for direction in range(directions):
        have, losses = 0.0, []
        for sign in (1, -1):
            for k, name in enumerate(names):
                v = np.random.default_rng([direction, k]).standard_normal(weights[name].shape) * sizes[name]
                if sign > 0:
                    have += float((v * found[k]).sum())
                np.copyto(feeds[name], weights[name] + sign * STEP * v)
            losses.append(float(r.run()[0]))
        worst = max(worst, abs(have - (losses[0] - losses[1]) / (2 * STEP)) / size)
    r.close()
    count = sum(a.size for a in weights.values())
    print(f"| {path.stem} | {len(model.graph.node)} | {len(names)} | {count / 1e6:.2f} | {abs(loss - exact) / abs(exact):.0e} | {worst:.0e} | {time.time() - begin:.0f} |", flush=True)
    return worst <= BOUND


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--without", default="")
    parser.add_argument("--directions", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--moved", type=float, default=0.01)
    options = parser.parse_args()
    operators.begin(options.build)
    print("| model | nodes | weights | million numbers | loss differs by | derivatives by | s |\n|---|---|---|---|---|---|---|", flush=True)
    good = True
    for path in options.models:
        try:
            good &= compare(operators.library, path, options.without, options.directions, options.threads, options.moved)
        except RuntimeError as error:
            print(f"| {path.stem} | {error} |", flush=True)
            good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
