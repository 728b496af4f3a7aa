# SPDX-License-Identifier: Apache-2.0
"""The engines that run a model: ours through the C API, ONNX Runtime, and the onnx package's evaluator. Each is opened from bytes and is
then a function from feeds to a list of results; Refused says why it would not."""

import ctypes
import warnings

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

UNSUPPORTED = 3  # OnnxfuseCode


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class String(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]


class OutString(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("policy_file", ctypes.c_char_p), ("policy_json", ctypes.c_char_p), ("device", ctypes.c_char_p),
                ("threads", ctypes.c_int), ("progress", ctypes.c_void_p), ("progress_user", ctypes.c_void_p),
                ("external_data", ctypes.c_void_p), ("external_data_user", ctypes.c_void_p), ("thread_pool", ctypes.c_void_p), ("registry", ctypes.c_void_p),
                ("later", ctypes.c_void_p * 16)]  # what newer headers have: left zero


class Info(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("dtype", ctypes.c_int), ("rank", ctypes.c_int)]


POINTERS = ["status_message", "value_dims", "value_data", "value_item", "session_input", "session_output"]
STATUSES = ["session_open_memory", "session_run", "value_tensor", "value_sequence", "value_absent"]
TENSOR, SEQUENCE = 1, 2  # OnnxfuseKind


def load(library):
    found = ctypes.CDLL(str(library))
    for name in POINTERS + STATUSES:
        getattr(found, f"onnxfuse_{name}").restype = ctypes.c_void_p
    found.onnxfuse_session_input.restype = found.onnxfuse_session_output.restype = ctypes.POINTER(Info)
    found.onnxfuse_value_dims.restype = ctypes.POINTER(ctypes.c_int64)
    found.onnxfuse_value_bytes.restype = ctypes.c_size_t
    found.onnxfuse_value_count.restype = ctypes.c_int64
    found.onnxfuse_status_message.restype = ctypes.c_char_p
    return found


class Ours:
    """A session of libonnxfuse.so."""

    def __init__(self, library, model, threads=1):
        self.library, self.session = library, ctypes.c_void_p()
        options = Options(device=b"cpu", threads=threads)
        self.check(library.onnxfuse_session_open_memory(model, ctypes.c_size_t(len(model)), None, ctypes.byref(options), ctypes.byref(self.session)))
        count = library.onnxfuse_session_input_count(self.session)
        self.names = [library.onnxfuse_session_input(self.session, k).contents.name.decode() for k in range(count)]
        self.outputs = library.onnxfuse_session_output_count(self.session)

    def check(self, status):
        if not status:
            return
        status = ctypes.c_void_p(status)
        code, message = self.library.onnxfuse_status_code(status), self.library.onnxfuse_status_message(status).decode(errors="replace")
        self.library.onnxfuse_status_free(status)
        raise Refused(code, message)

    def close(self):
        self.library.onnxfuse_session_close(self.session)

    def value_of(self, given, kept):
        value = ctypes.c_void_p()
        if isinstance(given, list):
            items = (ctypes.c_void_p * len(given))(*[self.value_of(item, kept) for item in given])
            self.check(self.library.onnxfuse_value_sequence(items, len(given), ctypes.byref(value)))
            return value.value
        if given.dtype.kind in "OUS":
            texts = [str(text).encode() for text in given.ravel()]
            array = (String * max(len(texts), 1))(*[String(text, len(text)) for text in texts])
            kept += [texts, array]
            dtype, data = onnx.TensorProto.STRING, ctypes.cast(array, ctypes.c_void_p)
        else:
            array = np.ascontiguousarray(given).reshape(given.shape)
            array = array if array.size else np.zeros(1, array.dtype)
            kept.append(array)
            dtype, data = helper.np_dtype_to_tensor_dtype(given.dtype), array.ctypes.data_as(ctypes.c_void_p)
        dims = (ctypes.c_int64 * max(given.ndim, 1))(*given.shape)
        self.check(self.library.onnxfuse_value_tensor(dtype, given.ndim, dims, data, ctypes.byref(value)))
        return value.value

    def array_of(self, value):
        value, library = ctypes.c_void_p(value), self.library
        if library.onnxfuse_value_kind(value) == SEQUENCE:
            return [self.array_of(library.onnxfuse_value_item(value, k)) for k in range(library.onnxfuse_value_count(value))]
        if library.onnxfuse_value_kind(value) != TENSOR:
            return None
        shape = tuple(library.onnxfuse_value_dims(value)[k] for k in range(library.onnxfuse_value_rank(value)))
        dtype, data, size = library.onnxfuse_value_dtype(value), library.onnxfuse_value_data(value), library.onnxfuse_value_bytes(value)
        count = int(np.prod(shape, dtype=np.int64))
        if dtype == onnx.TensorProto.STRING:
            texts = ctypes.cast(data, ctypes.POINTER(OutString))
            return np.array([ctypes.string_at(texts[k].data, texts[k].size).decode() for k in range(count)], object).reshape(shape)
        return np.frombuffer(ctypes.string_at(data, size) if size else b"", helper.tensor_dtype_to_np_dtype(dtype), count).reshape(shape)

    def __call__(self, feeds):
        kept, library = [], self.library
        values = (ctypes.c_void_p * max(len(self.names), 1))(*[self.value_of(feeds[name], kept) for name in self.names])
        results = (ctypes.c_void_p * max(self.outputs, 1))()
        try:
            self.check(library.onnxfuse_session_run(self.session, values, results))
            return [self.array_of(results[k]) for k in range(self.outputs)]
        finally:
            for k in range(len(self.names)):
                library.onnxfuse_value_free(ctypes.c_void_p(values[k]))
            for k in range(self.outputs):
                library.onnxfuse_value_free(ctypes.c_void_p(results[k]))


class Runtime:
    """ONNX Runtime, without its optimizations: operators as they are told, one after the other."""

    def __init__(self, model):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.enable_mem_pattern = options.enable_cpu_mem_arena = False
        try:
            self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of many kinds, without a common one
            raise Refused(UNSUPPORTED, f"{type(error).__name__}: {error}") from error

    def __call__(self, feeds):
        try:
            return self.session.run(None, feeds)
        except Exception as error:
            raise Refused(4, f"{type(error).__name__}: {error}") from error


class Reference:
    """The onnx package's evaluator."""

    def __init__(self, model):
        try:
            self.session = ReferenceEvaluator(onnx.load_from_string(model))
        except Exception as error:
            raise Refused(UNSUPPORTED, f"{type(error).__name__}: {error}") from error

    def __call__(self, feeds):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                results = self.session.run(None, dict(feeds))
        except Exception as error:
            raise Refused(4, f"{type(error).__name__}: {error}") from error
        return [r if isinstance(r, list) or r is None else np.asarray(r) for r in results]
