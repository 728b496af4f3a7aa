#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole int8 models agree with ONNX Runtime and with the standard, where roundings do not pile up over many layers.

  python test_agreement.py PATH/TO/onnxfuse [--seed N] [--inputs N]

Small networks of random weights are quantized by ONNX Runtime's quantizer, statically (QuantizeLinear and DequantizeLinear around each
layer, weights a channel) and dynamically (MatMulInteger). Of all outputs 99.9 % must be within one quantization step of what ONNX Runtime
without optimizations and with exact sums gives, and of the same model with doubles for floats, and the best class must be the same or within a step
of the best. What ONNX Runtime gives as users run it is printed, not judged: its optimizations round elsewhere, and without VNNI its sums
of u8 by s8 saturate. bench/quantized.py, whose comparison this is, has models of many layers.
"""
import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
import quantized

LEAST_SHARE = 0.999


# ---- networks ----


class Network:
    def __init__(self, rng, shape):
        self.rng, self.shape, self.nodes, self.weights = rng, shape, [], {}

    def weight(self, *shape, deviation=None):
        name = f"w{len(self.weights)}"
        deviation = 1 / np.sqrt(np.prod(shape[1:])) if deviation is None else deviation
        self.weights[name] = (self.rng.standard_normal(shape) * deviation).astype(np.float32)
        return name

    def add(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"{op}{len(self.nodes)}", **attributes))
        return name

    def conv(self, x, inputs, outputs, kernel, stride=1):
        return self.add("Conv", x, self.weight(outputs, inputs, kernel, kernel), self.weight(outputs, deviation=0.1), kernel_shape=[kernel] * 2,
                        strides=[stride] * 2, pads=[kernel // 2] * 4)

    def linear(self, x, inputs, outputs):
        product = self.add("MatMul", x, self.weight(inputs, outputs, deviation=1 / np.sqrt(inputs)))
        return self.add("Add", product, self.weight(outputs, deviation=0.1))

    def heads(self, x, heads, perm):
        batch, rows, width = self.shape
        self.weights["heads"] = np.array([batch, rows, heads, width // heads])
        return self.add("Transpose", self.add("Reshape", x, "heads"), perm=perm)

    def model(self, y, shape):
        graph = helper.make_graph(self.nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
                                  [helper.make_tensor_value_info(y, TensorProto.FLOAT, shape)],
                                  [numpy_helper.from_array(w, name) for name, w in self.weights.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def convolutions(rng):
    n = Network(rng, [8, 3, 40, 40])
    y = n.add("Relu", n.conv("x", 3, 32, 7, 2))
    for stride in (1, 2):
        block = n.add("Relu", n.conv(y, 32, 16, 1))
        block = n.add("Relu", n.conv(block, 16, 16, 3, stride))
        beside = y if stride == 1 else n.conv(y, 32, 32, 1, stride)
        y = n.add("Relu", n.add("Add", n.conv(block, 16, 32, 1), beside))
    y = n.add("Flatten", n.add("GlobalAveragePool", y))
    return n.model(n.add("Gemm", y, n.weight(32, 100), n.weight(100)), [8, 100])


def feed_forward(rng):
    n = Network(rng, [1, 60, 96])
    y = n.linear("x", 96, 384)
    n.weights.update(root=np.float32(np.sqrt(2)), one=np.float32(1), half=np.float32(0.5))
    y = n.add("Mul", n.add("Mul", y, n.add("Add", n.add("Erf", n.add("Div", y, "root")), "one")), "half")
    return n.model(n.add("Add", n.linear(y, 384, 96), "x"), [1, 60, 96])


def attention(rng):
    n = Network(rng, [1, 40, 64])
    q, k, v = (n.linear("x", 64, 64) for _ in range(3))
    q, k, v = n.heads(q, 4, [0, 2, 1, 3]), n.heads(k, 4, [0, 2, 3, 1]), n.heads(v, 4, [0, 2, 1, 3])
    n.weights.update(scale=np.float32(0.25), joined=np.array(n.shape))
    y = n.add("MatMul", n.add("Softmax", n.add("Mul", n.add("MatMul", q, k), "scale"), axis=-1), v)
    return n.model(n.linear(n.add("Reshape", n.add("Transpose", y, perm=[0, 2, 1, 3]), "joined"), 64, 64), [1, 40, 64])


# ---- the comparison ----


class Inputs(CalibrationDataReader):
    def __init__(self, arrays):
        self.left = iter(arrays)

    def get_next(self):
        x = next(self.left, None)
        return None if x is None else {"x": x}


def quantize(model, how, arrays, folder):
    onnx.save(model, folder / "float.onnx")
    path = folder / "int8.onnx"
    if how == "static":
        quantize_static(folder / "float.onnx", path, Inputs(arrays), quant_format=QuantFormat.QDQ, per_channel=True, activation_type=QuantType.QUInt8,
                        weight_type=QuantType.QInt8)
    else:
        quantize_dynamic(folder / "float.onnx", path, weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"])
    return path


def as_users_run(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def best_is_wrong(y, wanted, step):
    """By row: what is best in y is more than a step below the best of `wanted`."""
    step = step or (wanted.max() - wanted.min()) / 255
    return wanted.max(-1) - np.take_along_axis(wanted, y.argmax(-1)[..., None], -1)[..., 0] > 1.001 * step


def check(network, how, args):
    rng = np.random.default_rng(args.seed)
    shares, wrong = [], 0
    with tempfile.TemporaryDirectory() as name:
        model = network(rng)
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        arrays = [rng.standard_normal(shape).astype(np.float32) for _ in range(args.inputs)]
        path = quantize(model, how, arrays[:2], Path(name))
        names = [model.graph.output[0].name]
        plain, doubles, users = quantized.session(quantized.unsigned(path), False), quantized.in_doubles(quantized.unsigned(path)), as_users_run(path)
        step = quantized.steps(path, names)[0]
        for x in arrays:
            ours = quantized.run(args.program, path, {"x": x}, names, Path(name))[0]
            wanted = [plain.run(names, {"x": x})[0], doubles.run(names, {"x": x.astype(np.float64)})[0]]
            shares.append([quantized.compare(y, w, step)[0] for y, w in [(ours, wanted[0]), (ours, wanted[1]), (users.run(names, {"x": x})[0], wanted[1])]])
            wrong += sum(int(best_is_wrong(ours, w, step).sum()) for w in wanted)
    to_plain, to_doubles, users_share = np.mean(shares, 0)
    print(f"      {network.__name__}, {how}: within a step of ONNX Runtime with exact sums {100 * to_plain:.2f} %, of doubles {100 * to_doubles:.2f} %; "
          f"ONNX Runtime as it is, of doubles, {100 * users_share:.2f} %")
    if min(to_plain, to_doubles) >= LEAST_SHARE and not wrong:
        return False
    print(f"FAIL  {network.__name__}, {how}, seed {args.seed}: less than {100 * LEAST_SHARE} %, or the best class differs ({wrong} times)")
    return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=4)
    args = parser.parse_args()
    failed = [check(network, how, args) for network in (convolutions, feed_forward, attention) for how in ("static", "dynamic")]
    sys.exit(any(failed))


if __name__ == "__main__":
    main()
