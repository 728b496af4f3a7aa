# SPDX-License-Identifier: Apache-2.0
"""A client of the KServe v2 protocol for tests: requests as bytes, answers as arrays; a server process; Prometheus' text format.
Python's own library and numpy."""

import http.client
import json
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import threading

import numpy as np

DATATYPES = {"BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "INT8": np.int8,
             "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
             "BF16": np.uint16, "BYTES": np.object_}


def datatype(array):
    if array.dtype == np.object_:
        return "BYTES"
    return next(name for name, kind in DATATYPES.items() if array.dtype == kind)


def to_bytes(array):
    if array.dtype != np.object_:
        return array.tobytes()
    return b"".join(struct.pack("<I", len(item)) + item for item in array.ravel())


def from_bytes(data, kind, shape):
    if kind != "BYTES":
        return np.frombuffer(data, DATATYPES[kind]).reshape(shape)
    items = []
    while data:
        size, = struct.unpack_from("<I", data)
        items.append(data[4:4 + size])
        data = data[4 + size:]
    array = np.empty(len(items), np.object_)
    array[:] = items
    return array.reshape(shape)


def request(inputs, binary=True, binary_outputs=None, nested=False, types=None, **members):
    """Body and headers of a request. types: datatypes that are not the arrays' own."""
    items, tail = [], b""
    for name, array in inputs.items():
        item = {"name": name, "shape": list(array.shape), "datatype": (types or {}).get(name, datatype(array))}
        if binary:
            data = to_bytes(array)
            item["parameters"] = {"binary_data_size": len(data)}
            tail += data
        else:
            plain = array if array.dtype != np.object_ else np.vectorize(bytes.decode, otypes=[object])(array)
            item["data"] = (plain if nested else plain.ravel()).tolist()
        items.append(item)
    body = {"inputs": items, **members}
    if (binary if binary_outputs is None else binary_outputs) and isinstance(members.get("parameters", {}), dict):
        body["parameters"] = {"binary_data_output": True, **members.get("parameters", {})}
    text = json.dumps(body).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(text))} if binary else {}
    return text + tail, headers


def outputs_of(headers, body):
    """name -> array, and the JSON."""
    size = int(headers.get("Inference-Header-Content-Length", len(body)))
    document, tail, arrays = json.loads(body[:size]), body[size:], {}
    for item in document["outputs"]:
        kind, shape = item["datatype"], item["shape"]
        if "data" in item:
            values = item["data"]
            if kind == "BYTES":
                array = np.empty(len(values), np.object_)
                array[:] = [value.encode() for value in values]
            else:
                array = np.array(values, np.float64 if kind in ("BF16", "FP16") else DATATYPES[kind])
            arrays[item["name"]] = array.reshape(shape)
        else:
            count = item["parameters"]["binary_data_size"]
            arrays[item["name"]], tail = from_bytes(tail[:count], kind, shape), tail[count:]
    assert not tail, "bytes are left behind the outputs"
    return arrays, document


class Server:
    """onnxfuse-serve on a port of its own choice."""

    running = set()  # processes that no test has ended

    def __init__(self, program, *arguments, environment=None, stack=None):
        self.log = b""
        self.process = subprocess.Popen([program, *map(str, arguments), "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env={**os.environ, **(environment or {})},
                                        preexec_fn=stack and (lambda: resource.setrlimit(resource.RLIMIT_STACK, (stack, stack))))
        self.running.add(self.process)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        line = self.process.stdout.readline().decode()
        found = re.fullmatch(r"listening on http://(\S+):(\d+)\n", line)
        if not found:
            self.process.wait()
            self.reader.join()
            raise RuntimeError(self.log.decode())
        self.port = int(found[2])

    def _read(self):
        for line in self.process.stderr:
            self.log += line

    @classmethod
    def kill_rest(cls):
        for process in cls.running:
            process.kill()
            process.wait()
        cls.running.clear()

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None, connection=None):
        """Status, headers, body."""
        own = connection or self.connect()
        own.request(method, path, body, headers or {})
        answer = own.getresponse()
        data = answer.read()
        if not connection:
            own.close()
        return answer.status, answer.headers, data

    def get(self, path):
        status, headers, body = self.call("GET", path)
        return status, json.loads(body) if headers["Content-Type"] == "application/json" else body.decode()

    def infer(self, model, inputs, connection=None, extra=None, **options):
        body, headers = request(inputs, **options)
        status, answer, data = self.call("POST", f"/v2/models/{model}/infer", body, {**headers, **(extra or {})}, connection)
        if status != 200:
            return status, json.loads(data)["error"]
        return outputs_of(answer, data)

    def raw(self, data, patience=0.03):
        """Sends these bytes and no more; all that comes back. Bytes that are no whole request are answered by nothing, so after a while
        the client says that it will send no more: not before, because a client that has closed its side counts as gone."""
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), patience) as s:
            try:
                s.sendall(data)
                try:
                    answer = s.recv(65536)
                except TimeoutError:
                    pass
                s.settimeout(60)
                s.shutdown(socket.SHUT_WR)
                while part := s.recv(65536):
                    answer += part
            except TimeoutError:
                raise
            except OSError:
                pass  # the server need not read what it has refused
        return answer

    def metrics(self):
        status, text = self.get("/metrics")
        assert status == 200
        return parse_metrics(text)

    def stop(self, signals=(signal.SIGTERM,)):
        """The exit code."""
        for each in signals:
            self.process.send_signal(each)
        code = self.process.wait(60)
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        return code


NAME, LABEL = r"[a-zA-Z_:][a-zA-Z0-9_:]*", r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL}(?:,{LABEL})*)?)\}})? (\S+)")


def parse_metrics(text):
    """{(name, ((label, value), ...)): number}, after checking the exposition format: each family stands together below its HELP and
    TYPE, no sample stands twice, counters end in _total, histograms are cumulative, and end in +Inf, their count."""
    assert text.endswith("\n")
    samples, types, family = {}, {}, None
    for line in text[:-1].split("\n"):
        if line.startswith("#"):
            _, word, name, rest = line.split(" ", 3)
            if word == "HELP":
                assert name not in types and rest, line
                family = name
                types[family] = None
            else:
                assert word == "TYPE" and name == family and types[family] is None, line
                assert rest in ("counter", "gauge", "histogram"), line
                assert (rest == "counter") == name.endswith("_total"), line
                types[family] = rest
            continue
        found = SAMPLE.fullmatch(line)
        assert found, f"no sample: {line}"
        name, labels, value = found.groups()
        labels = tuple(re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', labels or ""))
        suffixes = ("_bucket", "_sum", "_count") if types[family] == "histogram" else ("",)
        assert any(name == family + suffix for suffix in suffixes), f"{name} stands below {family}"
        assert (name, labels) not in samples, f"twice: {line}"
        assert types[family] == "gauge" or float(value) >= 0, line
        samples[name, labels] = float(value)
    for family in (name for name, kind in types.items() if kind == "histogram"):
        check_histogram(family, samples)
    return samples


def check_histogram(family, samples):
    series = {}
    for (name, labels), value in samples.items():
        if name == family + "_bucket":
            rest = tuple(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((float(dict(labels)["le"].replace("+Inf", "inf")), value))
    for labels, buckets in series.items():
        assert buckets == sorted(buckets) and [v for _, v in buckets] == sorted(v for _, v in buckets), (family, labels)
        assert buckets[-1] == (float("inf"), samples[family + "_count", labels]), (family, labels)
        assert (family + "_sum", labels) in samples
