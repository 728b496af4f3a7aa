# SPDX-License-Identifier: Apache-2.0
"""The engines of bench/training/run: each makes a function that runs a row once, and says what it keeps for the backward pass."""

import ctypes
import gc
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent / "gpu"))
import session  # noqa: E402
from models import Step  # noqa: E402


def text_of(ours, call):
    text = ctypes.c_char_p()
    ours.check(call(ctypes.byref(text)))
    return json.loads(text.value)


OURS = {"onnxfuse": {}, "memory_efficient": {"fusion": {"memory_efficient": True}}}  # policies


class Onnxfuse:
    """Forward, backward and the optimizer as one session."""

    def __init__(self, build, threads, policy=None):
        self.lib, self.threads, self.policy, self.training = session.load(build), threads, policy or {}, None
        for name in ("training_open", "training_step", "session_report_json", "session_roofline_json", "training_session", "training_tensor"):
            getattr(self.lib, "onnxfuse_" + name).restype = ctypes.c_void_p
        self.lib.onnxfuse_training_tensor_name.restype = ctypes.c_char_p
        self.lib.onnxfuse_training_close.argtypes = [ctypes.c_void_p]

    def open(self, model, optimizer="adam", rate=1e-3):
        self.model = model
        if isinstance(model, Step):
            wanted = {"loss": "cross_entropy:y,labels", "of": list(model.graph.parameters), "optimizer": optimizer, "rate": rate}
            return self.open_training(model.graph.bytes(), {"training": wanted}, model.arrays)
        s = session.Session(self.lib, self.write(model.graph.bytes()), "cpu", self.policy, self.threads)
        results = [s.value("float32", d, None, False) for d in model.result_shapes]  # in the library's memory, as PyTorch's are in its own
        self.results = [np.ctypeslib.as_array(ctypes.cast(self.lib.onnxfuse_value_data(v), ctypes.POINTER(ctypes.c_float)), d)
                        for v, d in zip(results, model.result_shapes)]
        self.values = [s.array_value(a) for a in model.arrays], results
        self.check, self.handle = s.check, s.handle
        return s.bind(*self.values)

    def write(self, model):
        """The file stays until the session is closed."""
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "model.onnx"
        path.write_bytes(model)
        return str(path)

    def open_training(self, model, policy, arrays):
        """A function that makes one step on what is in the arrays, and gives its loss."""
        options = session.Options(size=ctypes.sizeof(session.Options), device=b"cpu", threads=self.threads,
                                  policy_json=json.dumps({**self.policy, **policy}).encode())
        self.training, loss, self.arrays = ctypes.c_void_p(), ctypes.c_double(), arrays
        s = session.Session.__new__(session.Session)
        s.lib, self.check = self.lib, s.check
        s.check(self.lib.onnxfuse_training_open(self.write(model).encode(), ctypes.byref(options), ctypes.byref(self.training)))
        self.handle = ctypes.c_void_p(self.lib.onnxfuse_training_session(self.training))
        inputs = [s.array_value(a) for a in arrays]
        given = (ctypes.c_void_p * len(inputs))(*inputs)

        def step():
            s.check(self.lib.onnxfuse_training_step(self.training, given, None, ctypes.byref(loss)))
            return loss.value

        return step

    def weights(self):
        """As PyTorch lays them out."""
        found, graph = {}, self.model.graph
        for i in range(self.lib.onnxfuse_training_tensor_count(self.training)):
            name = self.lib.onnxfuse_training_tensor_name(self.training, i).decode()
            if name not in graph.parameters:  # a state of the optimizer or of a BatchNormalization
                continue
            shape = graph.parameters[name].T.shape if name in graph.transposed else graph.parameters[name].shape
            data = self.lib.onnxfuse_value_data(ctypes.c_void_p(self.lib.onnxfuse_training_tensor(self.training, i)))
            array = np.ctypeslib.as_array(ctypes.cast(data, ctypes.POINTER(ctypes.c_float)), shape).copy()
            found[name] = array.T if name in graph.transposed else array
        return found

    def close(self):
        if self.training:
            self.lib.onnxfuse_training_close(self.training)
        else:
            self.lib.onnxfuse_session_close(self.handle)
        self.results = self.values = self.training = self.folder = None

    def saved(self):
        """What steps of the backward pass read and no such step has made, once each: (all of it, the inputs among it). Weights, vectors and the
        gradient that is given are left out, as they are on the other side, and the caller's inputs that a step reads for both passes at once."""
        report = text_of(self, lambda out: self.lib.onnxfuse_session_report_json(self.handle, out))
        plan = report["plan"] if "plan" in report else report
        buffers = {b["buffer"]: b for b in plan["buffers"]}
        root = lambda n: buffers[buffers[n].get("root", n)]  # noqa: E731
        made, read = set(), {}
        for step in plan["steps"]:
            for b in map(root, filter(lambda n: n >= 0, step["inputs"])):
                once = step.get("forward") and b["storage"] == "input"
                if step.get("backward") and not once and b["buffer"] not in made:
                    read[b["buffer"]] = b
            if step.get("backward"):
                made |= {root(n)["buffer"] for n in step["outputs"] if n >= 0}
        weights = set(self.model.graph.parameters) | {"dy"}
        kept = [b for b in read.values() if b["storage"] != "constant" and b["name"] not in weights and "." not in b["name"] and len(b["shape"]) > 1]
        self.saved_names = {b["name"]: b["bytes"] for b in kept}
        return sum(b["bytes"] for b in kept), sum(b["bytes"] for b in kept if b["storage"] == "input")

    def bandwidth(self):
        """Bytes a second from and to memory, measured now."""
        inputs = (ctypes.c_void_p * len(self.values[0]))(*self.values[0])
        roofline = text_of(self, lambda out: self.lib.onnxfuse_session_roofline_json(self.handle, inputs, ctypes.c_bool(True), out))
        return roofline["machine"]["bandwidths"][-1]["copy"]


class Torch:
    """eager; compile; exact: eager in float64."""

    def __init__(self, kind, threads):
        import torch

        self.torch, self.compiled, self.dtype = torch, kind == "compile", torch.float64 if kind == "exact" else torch.float32
        torch.set_num_threads(threads)
        torch.set_default_dtype(self.dtype)

    def open(self, model, optimizer="adam", rate=1e-3):
        t = self.torch
        t._dynamo.reset()
        self.model = model
        self.arrays = [self.tensor(a) for a in model.arrays]
        if isinstance(model, Step):
            return self.open_step(optimizer, rate)
        self.wanted = [a.requires_grad_() for a in self.arrays[: model.wanted]]
        self.forward = self.wrapped(lambda *a: model.torch(t, model.rate, *a))
        *given, dy = self.arrays

        def run():
            y = self.forward(*given)
            self.results = [y, *t.autograd.grad(y, self.wanted, dy)]

        return run

    def tensor(self, array):
        return self.torch.tensor(array, dtype=self.dtype if array.dtype == np.float32 else None)

    def wrapped(self, f):
        return self.torch.compile(f) if self.compiled else f

    def open_step(self, optimizer, rate):
        t, model = self.torch, self.model
        self.parameters = {n: t.nn.Parameter(self.tensor(a)) for n, a in model.graph.parameters.items()}
        every = list(self.parameters.values())
        made = t.optim.Adam(every, rate, fused=True) if optimizer == "adam" else t.optim.SGD(every, rate)
        self.forward = self.wrapped(lambda *a: model.torch(t, model.rate, self.parameters, *a))

        def step():
            made.zero_grad()
            loss = self.forward(*self.arrays)
            loss.backward()
            made.step()
            return loss.item()

        return step

    def weights(self):
        return {n: p.detach().numpy().copy() for n, p in self.parameters.items()}

    def saved(self):
        """What forward leaves for backward, vectors and weights left out."""
        t, total = self.torch, 0
        seen = {p.untyped_storage().data_ptr() for p in getattr(self, "parameters", {}).values()}
        seen |= {a.untyped_storage().data_ptr() for a in self.arrays if a.dim() == 1}
        inputs = {a.untyped_storage().data_ptr() for a in self.arrays}
        given = 0

        def pack(value):
            nonlocal total, given
            storage = value.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                total += storage.nbytes()
                given += storage.nbytes() * (storage.data_ptr() in inputs)
            return value

        with t.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            self.forward(*(self.arrays if isinstance(self.model, Step) else self.arrays[:-1]))
        return total, given

    def close(self):
        self.results = self.wanted = self.arrays = None


def memory_mb(field):
    for line in open("/proc/self/status"):
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024


def settled_mb():
    """What is held when all that was freed has gone back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return memory_mb("VmRSS")


def reset_peak():
    Path("/proc/self/clear_refs").write_text("5")


def first_ms(engine, model):
    """Opening and the first result."""
    begin = time.perf_counter()
    engine.open(model)()
    return (time.perf_counter() - begin) * 1e3
