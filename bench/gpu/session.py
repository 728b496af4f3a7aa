# SPDX-License-Identifier: Apache-2.0
"""libonnxfuse through ctypes: sessions over numpy arrays, or over device memory by its address."""

import ctypes
import json
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "scripts"))  # pattern_models, when run out of the source tree

NUMBERS = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11}


class Options(ctypes.Structure):  # OnnxfuseOptions
    _fields_ = [("size", ctypes.c_size_t), ("policy_file", ctypes.c_char_p), ("policy_json", ctypes.c_char_p), ("device", ctypes.c_char_p),
                ("threads", ctypes.c_int), ("progress", ctypes.c_void_p), ("progress_user", ctypes.c_void_p), ("external_data", ctypes.c_void_p),
                ("external_data_user", ctypes.c_void_p), ("thread_pool", ctypes.c_void_p),
                ("registry", ctypes.c_void_p), ("precision", ctypes.c_char_p), ("overrides", ctypes.c_char_p)]


def load(folder):
    """The library in this folder or in its bin."""
    folder = Path(folder)
    path = next(p for p in (folder / "bin/libonnxfuse.so.0", folder / "libonnxfuse.so.0") if p.exists())
    lib = ctypes.CDLL(str(path))
    lib.onnxfuse_status_message.restype = ctypes.c_char_p
    lib.onnxfuse_session_device_name.restype = ctypes.c_char_p
    lib.onnxfuse_value_dims.restype = ctypes.POINTER(ctypes.c_int64)
    for name in ("session_open", "session_run", "value_tensor", "value_tensor_on_device", "session_profile_json"):
        getattr(lib, "onnxfuse_" + name).restype = ctypes.c_void_p
    lib.onnxfuse_value_data.restype = ctypes.c_void_p
    for name in ("status_message", "status_free", "value_free", "value_data", "value_rank", "value_dims", "session_close", "session_device_name",
                 "free"):
        getattr(lib, "onnxfuse_" + name).argtypes = [ctypes.c_void_p]
    lib.onnxfuse_session_profile.argtypes = [ctypes.c_void_p, ctypes.c_bool]
    return lib


class Session:
    def __init__(self, lib, path, device, policy=None, threads=0):
        self.lib, self.handle = lib, ctypes.c_void_p()
        options = Options(size=ctypes.sizeof(Options), device=device.encode(), threads=threads,
                          policy_json=json.dumps(policy).encode() if policy else None)
        self.check(lib.onnxfuse_session_open(str(path).encode(), ctypes.byref(options), ctypes.byref(self.handle)))
        self.device = lib.onnxfuse_session_device_name(self.handle).decode()

    def check(self, status):
        if status:
            message = self.lib.onnxfuse_status_message(status).decode()
            self.lib.onnxfuse_status_free(status)
            raise RuntimeError(message)

    def value(self, dtype, shape, address, on_device):
        """The memory must outlive the value."""
        dims, out = (ctypes.c_int64 * max(len(shape), 1))(*shape), ctypes.c_void_p()
        make = self.lib.onnxfuse_value_tensor_on_device if on_device else self.lib.onnxfuse_value_tensor
        self.check(make(NUMBERS[dtype], len(shape), dims, ctypes.c_void_p(address), ctypes.byref(out)))
        return out

    def array_value(self, array):
        return self.value(array.dtype.name, array.shape, array.ctypes.data, False)

    def bind(self, inputs, outputs):
        """Values in the model's order; gives a function that runs once."""
        values = (ctypes.c_void_p * len(inputs))(*inputs), (ctypes.c_void_p * len(outputs))(*outputs)

        def run():
            self.check(self.lib.onnxfuse_session_run(self.handle, *values))

        return run

    def run(self, arrays, output_dtype, output_shape):
        """numpy in, numpy out; one output."""
        arrays = [np.ascontiguousarray(a) for a in arrays]
        result = np.empty(output_shape, output_dtype)
        values = [self.array_value(a) for a in arrays] + [self.array_value(result)]
        try:
            self.bind(values[:-1], values[-1:])()
        finally:
            for v in values:
                self.lib.onnxfuse_value_free(v)
        return result

    def profile(self, run):
        """Chrome trace events of one run."""
        text = ctypes.c_char_p()
        self.lib.onnxfuse_session_profile(self.handle, True)
        run()
        self.check(self.lib.onnxfuse_session_profile_json(self.handle, ctypes.byref(text)))
        self.lib.onnxfuse_session_profile(self.handle, False)
        return json.loads(text.value)

    def close(self):
        self.lib.onnxfuse_session_close(self.handle)
