# SPDX-License-Identifier: Apache-2.0
"""all-MiniLM-L6-v2 (a BERT of six layers) as an ONNX model, from its safetensors file: token ids to unit vectors, one a sentence.

Written with the standard's composite operators (LayerNormalization, Gelu, Softmax, opset 20)."""

import json
import struct

import numpy
from onnx import TensorProto, helper, numpy_helper

LAYERS, HEADS, WIDTH, EPSILON = 6, 12, 384, 1e-12


def read_safetensors(path):
    """{name: array}. The file is a length, a JSON table of types, shapes and byte ranges, and the bytes."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    table = json.loads(data[8:8 + length])
    table.pop("__metadata__", None)
    kinds = {"F32": numpy.float32, "F16": numpy.float16, "I64": numpy.int64}
    return {name: numpy.frombuffer(data, kinds[about["dtype"]], offset=8 + length + about["data_offsets"][0],
                                   count=int(numpy.prod(about["shape"]))).reshape(about["shape"])
            for name, about in table.items()}


class Network:
    """Nodes under construction; a value is its name."""

    def __init__(self, weights):
        self.weights, self.nodes, self.initializers, self.known = weights, [], [], set()

    def constant(self, name, array):
        if name not in self.known:
            self.known.add(name)
            self.initializers.append(numpy_helper.from_array(numpy.ascontiguousarray(array), name))
        return name

    def ints(self, *values):
        return self.constant("ints_" + "_".join(map(str, values)), numpy.array(values, numpy.int64))

    def real(self, value):
        return self.constant(f"real_{value}", numpy.float32(value))

    def weight(self, name, transposed=False):
        array = self.weights[name].astype(numpy.float32)
        return self.constant(name, array.T if transposed else array)

    def node(self, operator, *inputs, **attributes):
        output = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def dense(self, x, name):
        return self.node("Add", self.node("MatMul", x, self.weight(f"{name}.weight", True)), self.weight(f"{name}.bias"))

    def layer_norm(self, x, name):
        return self.node("LayerNormalization", x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), axis=-1,
                         epsilon=EPSILON)


def embed(net):
    length = net.node("Shape", "input_ids", start=1, end=2)
    places = net.node("Slice", net.weight("embeddings.position_embeddings.weight"), net.ints(0), length, net.ints(0))
    words = net.node("Gather", net.weight("embeddings.word_embeddings.weight"), "input_ids")
    kinds = net.node("Gather", net.weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
    return net.layer_norm(net.node("Add", net.node("Add", words, kinds), places), "embeddings.LayerNorm")


def attend(net, x, bias, name):
    def heads(part):
        y = net.node("Reshape", net.dense(x, f"{name}.self.{part}"), net.ints(0, 0, HEADS, WIDTH // HEADS))
        return net.node("Transpose", y, perm=[0, 2, 3, 1] if part == "key" else [0, 2, 1, 3])

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = net.node("Mul", net.node("MatMul", query, key), net.real(float((WIDTH / HEADS) ** -0.5)))
    shares = net.node("Softmax", net.node("Add", scores, bias), axis=-1)
    mixed = net.node("Transpose", net.node("MatMul", shares, value), perm=[0, 2, 1, 3])
    joined = net.dense(net.node("Reshape", mixed, net.ints(0, 0, WIDTH)), f"{name}.output.dense")
    return net.layer_norm(net.node("Add", joined, x), f"{name}.output.LayerNorm")


def feed_forward(net, x, name):
    wide = net.node("Gelu", net.dense(x, f"{name}.intermediate.dense"))
    return net.layer_norm(net.node("Add", net.dense(wide, f"{name}.output.dense"), x), f"{name}.output.LayerNorm")


def pool(net, x, mask):
    """The mean over the real tokens, at length one."""
    column = net.node("Unsqueeze", mask, net.ints(2))
    total = net.node("ReduceSum", net.node("Mul", x, column), net.ints(1), keepdims=0)
    mean = net.node("Div", total, net.node("ReduceSum", column, net.ints(1), keepdims=0))
    net.nodes.append(helper.make_node("LpNormalization", [mean], ["embedding"], axis=-1, p=2))


def make_model(path):
    net = Network(read_safetensors(path))
    mask = net.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = net.node("Mul", net.node("Sub", net.real(1), mask), net.real(-10000))
    bias = net.node("Unsqueeze", hidden, net.ints(1, 2))
    x = embed(net)
    for layer in range(LAYERS):
        x = attend(net, x, bias, f"encoder.layer.{layer}.attention")
        x = feed_forward(net, x, f"encoder.layer.{layer}")
    pool(net, x, mask)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
              for name in ("input_ids", "attention_mask", "token_type_ids")]
    outputs = [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", WIDTH])]
    graph = helper.make_graph(net.nodes, "minilm", inputs, outputs, net.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
