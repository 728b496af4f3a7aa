#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times whole models on a GPU: PyTorch, torch.compile with CUDA graphs, onnxfuse, all on the same memory of the device.

    models.py [NAME...] [--compile] [--seconds S]       a JSON line a model and type

The architectures are those of timm and transformers, with random weights, exported by torch.onnx.export. "difference" is the largest of an
output, as a share of the largest element. Times are medians, in milliseconds, of runs that wait for the device each. Needs torch with
CUDA, onnxscript, timm and transformers; a model whose package is missing says so."""

import argparse
import json
import tempfile
import time
from pathlib import Path

import session
from timing import measure


class Chosen:
    """One of a transformer's results by name, as a module."""

    def __new__(cls, torch, model, name):
        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, tokens):
                return self.model(tokens, return_dict=True)[name]
        return Module().eval()


def picture_model(torch, name, batch):
    import timm

    return timm.create_model(name, pretrained=False).eval(), [torch.randn(batch, 3, 224, 224)]


def bert(torch, batch, length):
    import transformers

    model = transformers.BertModel(transformers.BertConfig(attn_implementation="sdpa"))
    return Chosen(torch, model, "last_hidden_state"), [torch.randint(0, 30000, (batch, length))]


def gpt2(torch, batch, length):
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
    return Chosen(torch, model, "logits"), [torch.randint(0, 50000, (batch, length))]


def llama(torch, batch, length):
    import transformers

    config = transformers.LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                                      num_key_value_heads=4, vocab_size=32000, use_cache=False)
    return Chosen(torch, transformers.LlamaForCausalLM(config), "logits"), [torch.randint(0, 32000, (batch, length))]


MODELS = {
    "resnet50_1": lambda t: picture_model(t, "resnet50", 1),
    "resnet50_32": lambda t: picture_model(t, "resnet50", 32),
    "mobilenetv3_32": lambda t: picture_model(t, "mobilenetv3_large_100", 32),
    "vit_base_8": lambda t: picture_model(t, "vit_base_patch16_224", 8),
    "bert_base_1x128": lambda t: bert(t, 1, 128),
    "bert_base_32x128": lambda t: bert(t, 32, 128),
    "gpt2_4x512": lambda t: gpt2(t, 4, 512),
    "llama_2x512": lambda t: llama(t, 2, 512),
}


def time_ours(lib, torch, path, inputs, expected, result):
    names = {torch.float32: "float32", torch.float16: "float16", torch.int64: "int64"}
    begin = time.perf_counter()
    s = session.Session(lib, path, "cuda")
    result["open_ms"] = round(1000 * (time.perf_counter() - begin), 1)
    output = torch.empty_like(expected)
    values = [s.value(names[t.dtype], t.shape, t.data_ptr(), True) for t in inputs + [output]]
    run = s.bind(values[:-1], values[-1:])
    begin = time.perf_counter()
    run()
    result["first_ms"] = round(1000 * (time.perf_counter() - begin), 1)
    result["onnxfuse"] = measure(run)
    result["difference"] = float((output.float() - expected.float()).abs().max() / expected.float().abs().max())
    s.close()


def time_model(lib, torch, name, half, compiles, folder):
    result = {"name": name, "dtype": "float16" if half else "float32"}
    torch.manual_seed(0)
    model, inputs = MODELS[name](torch)
    model = model.cuda().half() if half else model.cuda()
    inputs = [(t.half() if half and t.is_floating_point() else t).cuda() for t in inputs]
    with torch.no_grad():
        expected = model(*inputs)
        result["torch"] = measure(lambda: model(*inputs), torch.cuda.synchronize)
        path = Path(folder) / f"{name}.onnx"
        torch.onnx.export(model, tuple(inputs), str(path), dynamo=True, verbose=False)
        time_ours(lib, torch, path, inputs, expected, result)
        if compiles:
            torch._dynamo.reset()
            fast = torch.compile(model, mode="reduce-overhead")
            result["torch_compile"] = measure(lambda: fast(*inputs), torch.cuda.synchronize)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--dtypes", default="float32,float16")
    parser.add_argument("--library", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    lib = session.load(options.library)
    for name in options.names or MODELS:
        for dtype in options.dtypes.split(","):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    result = time_model(lib, torch, name, dtype == "float16", options.compile, folder)
                except Exception as problem:  # each on its own
                    result = {"name": name, "dtype": dtype, "problem": f"{type(problem).__name__}: {str(problem)[:300]}"}
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
