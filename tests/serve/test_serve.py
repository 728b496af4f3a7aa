#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves models with onnxfuse-serve and asks it everything, rightly and wrongly.

    test_serve.py PROGRAM FOLDER [--malformed N] [--sanitized] [NAME...]

PROGRAM is onnxfuse-serve, FOLDER is for the models that are made; with names, only the tests whose names begin with one of them."""

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import malformed
import models
from client import Server, from_bytes, outputs_of, request, to_bytes

program, paths, options = None, {}, None


def serve(*names, arguments=(), stack=None):
    return Server(program, *(paths[name] for name in names), *arguments, stack=stack)


def rows(count, seed=0, width=models.WIDTH):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and (a.tobytes() == b.tobytes() if a.dtype != np.object_ else (a == b).all())


def expect(found, code, *words):
    status, message = found
    assert status == code and all(word in message for word in words), f"{code} with {words} expected, found {found}"


def ends(server, code=0, signals=(signal.SIGTERM,)):
    found = server.stop(signals)
    assert found == code, f"exit code {found}: {server.log.decode()}"


# --- endpoints -------------------------------------------------------------------------------------------------------
def endpoints():
    server = serve("dense", "fixed")
    status, about = server.get("/v2")
    assert status == 200 and about["name"] == "onnxfuse" and "binary_tensor_data" in about["extensions"] and about["version"]
    assert server.get("/v2/health/live") == (200, {"live": True})
    assert server.get("/v2/health/ready") == (200, {"ready": True})
    for prefix in ("/v2/models/dense", "/v2/models/dense/versions/1"):
        status, meta = server.get(prefix)
        assert status == 200 and meta == {
            "name": "dense", "versions": ["1"], "platform": "onnx_onnxfuse",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 8]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}, {"name": "y1", "datatype": "FP32", "shape": [-1]}]}, meta
        assert server.get(prefix + "/ready") == (200, {"name": "dense", "ready": True})
        body, headers = request({"x": rows(1)})
        assert server.call("POST", prefix + "/infer", body, headers)[0] == 200
    for path in ("/", "/v1", "/v2/models", "/v2/models/", "/v2/models/none", "/v2/models/dense/versions/2/ready", "/v2/models/dense/infer/x",
                 "/v2/models/dense/versions/", "/v2/models/dense%00", "/v2/models/dense%00/ready", "/v2/health", "/v2/models/none/infer"):
        status, headers, body = server.call("GET", path)
        assert status == 404 and json.loads(body)["error"] and headers["Content-Type"] == "application/json", (path, status)
    for method, path, allow in (("POST", "/v2", "GET, HEAD"), ("DELETE", "/v2/models/dense", "GET, HEAD"), ("PUT", "/metrics", "GET, HEAD"),
                                ("GET", "/v2/models/dense/infer", "POST"), ("DELETE", "/v2/models/dense/infer", "POST")):
        status, headers, body = server.call(method, path)
        assert status == 405 and json.loads(body)["error"], (method, path, status)
        assert headers["Allow"] == allow, (method, path, headers["Allow"])
    assert server.get("/v2/models/d%65n%73e/ready")[0] == 200
    status, headers, body = server.call("HEAD", "/v2/health/live")
    assert status == 200 and body == b""
    connection = server.connect()
    connection.connect()
    kept = connection.sock
    for _ in range(50):  # one connection for all
        assert server.call("GET", "/v2/health/ready", connection=connection)[0] == 200
        assert connection.sock is kept, "the server has closed a connection that it may keep"
        assert "y" in server.infer("dense", {"x": rows(1)}, connection)[0]
    connection.close()
    ends(server)


def names_of_models():
    server = Server(program, f"a={paths['fixed']}", f"b={paths['fixed']}")
    assert server.get("/v2/models/a/ready")[0] == 200 and server.get("/v2/models/b/ready")[0] == 200
    ends(server)
    for arguments, word in (((paths["fixed"], paths["fixed"]), "name"), (("nowhere.onnx",), "nowhere.onnx"), ((f"={paths['fixed']}",), "name"),
                            ((paths["fixed"], "--max-batch", "0"), "--max-batch"), ((paths["fixed"], "--log", "loud"), "--log"),
                            ((paths["fixed"], "--device", "abacus"), "abacus"), ((paths["fixed"], "--host", "no.such.host.invalid"), "--host")):
        try:
            Server(program, *arguments)
            raise AssertionError(f"{arguments} are taken")
        except RuntimeError as error:
            assert word in str(error), error


# --- tensors ---------------------------------------------------------------------------------------------------------
def datatypes():
    rng = np.random.default_rng(1)
    server = serve(*(f"echo_{datatype}" for datatype in models.ELEMENTS))
    for datatype in models.ELEMENTS:
        x = models.samples(datatype, rng)
        forced = {"x": datatype}
        arrays, document = server.infer(f"echo_{datatype}", {"x": x}, types=forced)
        assert equal(arrays["y"], x) and document["outputs"][0]["datatype"] == datatype, (datatype, arrays, x)
        arrays, _ = server.infer(f"echo_{datatype}", {"x": x[:, :0]}, types=forced)
        assert arrays["y"].shape == (3, 0)
        if datatype in ("FP16", "BF16"):
            expect(server.infer(f"echo_{datatype}", {"x": x}, types=forced, binary=False), 400, "binary")
            arrays, _ = server.infer(f"echo_{datatype}", {"x": x}, types=forced, binary_outputs=False)
            found = arrays["y"].astype(np.float16 if datatype == "FP16" else np.float32)
            assert (found == (x if datatype == "FP16" else (x.astype(np.uint32) << 16).view(np.float32))).all(), datatype
            continue
        for nested in (False, True):
            arrays, _ = server.infer(f"echo_{datatype}", {"x": x}, binary=False, nested=nested)
            assert equal(arrays["y"], x), (datatype, nested, arrays["y"], x)
            arrays, _ = server.infer(f"echo_{datatype}", {"x": x}, binary=False, nested=nested, binary_outputs=True)
            assert equal(arrays["y"], x), (datatype, nested)
    ends(server)


def json_numbers():
    server = serve("echo_FP32", "echo_FP64", "echo_INT64", "echo_UINT8", "echo_BOOL", "echo_BYTES", "scalar")

    def ask(datatype, data, shape=(1, 1)):
        body = '{"inputs":[{"name":"x","datatype":"%s","shape":%s,"data":%s}]}' % (datatype, list(shape), data)
        status, headers, answer = server.call("POST", f"/v2/models/echo_{datatype}/infer", body)
        return outputs_of(headers, answer)[0]["y"].ravel().tolist() if status == 200 else (status, json.loads(answer)["error"])

    for text in ("0", "-0", "1", "0.1", "-2.5e-3", "1E5", "16777217", "3.4028235e38", "1e-45", "1.1754943e-38", "0.1" + "0" * 400, "1" + "0" * 30,
                 "9007199254740993", "1e22", "1e23", "123456789012345678901234567890e-20", "16777216.999999999", "0.000000000000000000000000000001"):
        assert ask("FP32", f"[{text}]") == [float(np.float32(text))], text
    for text in ("0.1", "1e308", "1.7976931348623157e308", "5e-324", "2.2250738585072011e-308", "9007199254740993", "1e23", "1" + "0" * 300,
                 "0." + "0" * 300 + "1", "123456789.123456789e-5"):
        assert ask("FP64", f"[{text}]") == [float(text)], text
    for text in ("9223372036854775807", "-9223372036854775808", "9007199254740993"):
        assert ask("INT64", f"[{text}]") == [int(text)], text
    for datatype, text in (("FP32", "1e39"), ("FP64", "1e309"), ("FP32", "01"), ("FP32", "1."), ("FP32", ".5"), ("FP32", "+1"), ("FP32", "NaN"),
                           ("FP32", "Infinity"), ("FP32", "0x10"), ("FP32", '"1"'), ("FP32", "null"), ("FP32", "1e"), ("FP32", "true"), ("FP32", "-"),
                           ("INT64", "9223372036854775808"), ("INT64", "1.0"), ("INT64", "1e3"), ("UINT8", "256"), ("UINT8", "-1"), ("BOOL", "1"),
                           ("BOOL", "tru"), ("BYTES", "1"), ("BYTES", '"\\ud800"'), ("BYTES", '"\\x"'), ("BYTES", '"\\udc00\\ud800"'),
                           ("BYTES", '"\t"')):
        expect(ask(datatype, f"[{text}]"), 400, "element")
    assert ask("BYTES", '["a\\u00e9\\ud83d\\ude00\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000"]') == ['a\u00e9\U0001f600"\\/\b\f\n\r\t\0'.encode()]
    for shape, data in (((1, 2), "[1]"), ((1, 1), "[1,2]"), ((2, 2), "[[1,2],[3]]"), ((2, 2), "[[1,2,3],[4]]"), ((2, 2), "[[1,2],3,4]"),
                        ((2, 2), "[[[1,2],[3,4]]]"), ((2, 2), "[[1,2],[3,4],[]]"), ((1, 1), "[]"), ((1, 1), "[1,]"), ((1, 1), "[,1]"),
                        ((1 << 40, 1 << 40), "[1]"), ((1 << 31, 1), "[1]"), ((1, 1), "1"), ((1, 1), '{"a":1}')):
        expect(ask("FP32", data, shape), 400)
    assert ask("FP32", " [ [ 1 , 2 ] ,\n[ 3\t,4 ] ] ", (2, 2)) == [1, 2, 3, 4]
    one = np.array(1.5, np.float32)
    assert server.infer("scalar", {"x": one, "y0": one})[0]["y"] == 3 and server.infer("scalar", {"x": one, "y0": one}, binary=False)[0]["y"] == 3
    ends(server)


def outputs_and_members():
    server = serve("dense")
    x = rows(2)
    everything, document = server.infer("dense", {"x": x}, id="request 7 \u00e9")
    assert document["id"] == "request 7 \u00e9" and document["model_name"] == "dense" and document["model_version"] == "1"
    assert list(everything) == ["y", "y1"]
    asked = [{"name": "y1", "parameters": {"binary_data": True}}, {"name": "y"}]
    arrays, document = server.infer("dense", {"x": x}, binary=False, outputs=asked)
    assert [("data" in item) for item in document["outputs"]] == [False, True] and list(arrays) == ["y1", "y"]
    assert equal(arrays["y1"], everything["y1"]) and np.array_equal(arrays["y"], everything["y"])
    asked = [{"name": "y1", "parameters": {"binary_data": False}}]
    arrays, document = server.infer("dense", {"x": x}, outputs=asked)
    assert "data" in document["outputs"][0] and list(arrays) == ["y1"]
    for members, word in (({"outputs": [{"name": "z"}]}, "no output"), ({"outputs": [{"name": "y"}, {"name": "y"}]}, "twice"), ({"outputs": "y"}, "array"),
                          ({"outputs": [{}]}, "name"), ({"id": 7}, "string"), ({"parameters": []}, "object"),
                          ({"parameters": {"sequence_id": 1}}, "sequence_id"), ({"parameters": {"binary_data_output": 1}}, "true or false"),
                          ({"outputs": [{"name": "y", "parameters": {"classification": 3}}]}, "classification"),
                          ({"parameters": {"timeout": -1}}, "timeout")):
        expect(server.infer("dense", {"x": x}, **members), 400, word)
    expect(server.infer("dense", {"z": x}), 400, "no input", "z")
    expect(server.infer("dense", {}), 400, "lacks", "x")
    expect(server.infer("dense", {"x": x.astype(np.float64)}), 400, "FP64", "FP32")
    # What is wrong is the datatype, not that the data does not fit the wrong one.
    for datatype, data in (("INT64", "[0.5]"), ("FP64", '["one"]'), ("float32", "[1]"), ("BYTES", "[1]"), ("FP32 ", "[1]")):
        body = '{"inputs":[{"name":"x","datatype":"%s","shape":[1,8],"data":%s}]}' % (datatype, data)
        status, _, answer = server.call("POST", "/v2/models/dense/infer", body)
        message = f'input "x": its datatype is "{datatype}", the model takes FP32'
        assert status == 400 and json.loads(answer)["error"] == message, (datatype, status, answer)
    expect(server.infer("dense", {"x": x[:, :7]}), 400, "[2, 7]", "[batch, 8]")
    expect(server.infer("dense", {"x": x.ravel()}), 400, "[16]")
    arrays, document = server.infer("dense", {"x": x}, parameters={"anything": "else"}, unknown=[1, 2])
    assert equal(arrays["y"], everything["y"])
    ends(server)


def binary_bodies():
    server = serve("dense", "echo_BYTES", "echo_BOOL", "words")
    x = rows(2)
    wanted, _ = server.infer("dense", {"x": x})
    infer = "/v2/models/dense/infer"
    body, headers = request({"x": x})
    for change, code in (({"Inference-Header-Content-Length": "7"}, 400), ({"Inference-Header-Content-Length": "-1"}, 400),
                         ({"Inference-Header-Content-Length": "1000000"}, 400), ({"Inference-Header-Content-Length": "999999999999999999999"}, 400),
                         ({"Inference-Header-Content-Length": ""}, 400), ({"Content-Encoding": "gzip"}, 415), ({"Content-Encoding": "identity"}, 200)):
        assert server.call("POST", infer, body, {**headers, **change})[0] == code, change
    assert server.call("POST", infer, body + b"x", headers)[0] == 400
    assert server.call("POST", infer, body[:-1], headers)[0] == 400
    assert server.call("POST", infer, b"")[0] == 400
    status, answer, data = server.call("POST", infer, x.tobytes(), {"Inference-Header-Content-Length": "0"})
    assert status == 400, data  # two rows: the first dim counts as 1
    status, answer, data = server.call("POST", infer, x[:1].tobytes(), {"Inference-Header-Content-Length": "0"})
    arrays, _ = outputs_of(answer, data)
    assert np.allclose(arrays["y"], wanted["y"][:1], atol=1e-6)
    for padding in range(9):  # the JSON is of any length, so the data would begin anywhere
        arrays, _ = server.infer("dense", {"x": x}, id="x" * padding)
        assert equal(arrays["y"], wanted["y"])

    def chunks():
        for i in range(0, len(body), 7):
            yield body[i:i + 7]

    status, answer, data = server.call("POST", infer, chunks(), headers)  # Python sends it chunked
    assert status == 200 and equal(outputs_of(answer, data)[0]["y"], wanted["y"])
    whole = b"".join((f"POST {infer} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n".encode(),
                      "".join(f"{k}: {v}\r\n" for k, v in headers.items()).encode(), b"\r\n", body))
    with socket.create_connection(("127.0.0.1", server.port), 60) as s:  # several at once on one connection
        s.sendall(whole * 5)
        answer = b""
        while answer.count(b"HTTP/1.1 200 OK") < 5 or not answer.endswith(wanted["y1"].tobytes()):
            answer += s.recv(65536)
    strings = np.array([[b"ab", b""]], np.object_)
    for data in (to_bytes(strings)[:-1], to_bytes(strings) + b"\0", to_bytes(strings)[:5], b"\xff" * 10):
        text = json.dumps({"inputs": [{"name": "x", "shape": [1, 2], "datatype": "BYTES", "parameters": {"binary_data_size": len(data)}}]}).encode()
        status, _, answer = server.call("POST", "/v2/models/echo_BYTES/infer", text + data, {"Inference-Header-Content-Length": str(len(text))})
        assert status == 400, answer
    invalid = np.array([[b"\xff\xfe"]], np.object_)
    assert server.infer("echo_BYTES", {"x": invalid})[0]["y"][0, 0] == b"\xff\xfe"
    expect(server.infer("echo_BYTES", {"x": invalid}, binary_outputs=False), 400, "UTF-8", "binary")
    expect(server.infer("echo_BOOL", {"x": np.array([[2]], np.uint8)}, types={"x": "BOOL"}), 400, "BOOL")
    expect(server.infer("words", {"x": np.array([[np.inf]], np.float32), "scale": np.array([[1]])}, binary_outputs=False), 400, "finite")
    ends(server)


# --- batching --------------------------------------------------------------------------------------------------------
def batching():
    """Many clients at once, rows of several lengths: results as alone, and runs of more than one request."""
    server = serve("dense", "words", arguments=("--max-batch", "16", "--batch-delay-ms", "20"))
    lengths = (3, 5, 64)

    def ask(seed):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 5))
        connection, good = server.connect(), 0
        for _ in range(12):
            x = rng.standard_normal((count, models.WIDTH)).astype(np.float32)
            got, _ = server.infer("dense", {"x": x}, connection, binary=bool(rng.integers(2)), binary_outputs=True)
            good += got["y1"].shape == (count,) and np.allclose(got["y1"], x.sum(1), rtol=0, atol=1e-5)  # 8 terms, of some 10 together
            x = rng.standard_normal((count, int(rng.choice(lengths)))).astype(np.float32)
            scale = rng.integers(-9, 9, (count, 1))
            got, _ = server.infer("words", {"scale": scale, "x": x}, connection)
            good += equal(got["y"], x * scale.astype(np.float32))
        connection.close()
        return good

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(ask, range(24))) == [24] * 24
    metrics = server.metrics()
    for name in ("dense", "words"):
        model = ("model", name)
        runs = metrics["onnxfuse_batch_rows_count", (model,)]
        assert runs < 288 and metrics["onnxfuse_session_runs_total", (model,)] == runs, f"{name}: nothing was put together"
        assert metrics["onnxfuse_batch_rows_bucket", (model, ("le", "16"))] == runs, "a run of more rows than are allowed"
        assert metrics["onnxfuse_requests_total", (model, ("code", "200"))] == 288
        assert metrics["onnxfuse_queue_duration_seconds_count", (model,)] == 288
        assert metrics["onnxfuse_queue_length", (model,)] == 0
    x = rows(40)  # more rows than a batch has
    assert server.infer("dense", {"x": x})[0]["y"].shape == (40, 4) and server.infer("dense", {"x": x[:0]})[0]["y"].shape == (0, 4)
    ends(server)


def one_wrong_request_beside_others():
    server = serve("gather", arguments=("--batch-delay-ms", "50"))
    right, wrong = np.array([[1, 2]]), np.array([[1, 99]])
    wanted = server.infer("gather", {"x": right})[0]["y"]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(4):
            found = list(pool.map(lambda x: server.infer("gather", {"x": x}), [right, wrong] * 4))
            for i, answer in enumerate(found):
                if i % 2:
                    expect(answer, 400, "99")
                else:
                    assert equal(answer[0]["y"], wanted), answer
    ends(server)


def without_batching():
    server = serve("dense", "fixed", arguments=("--max-batch", "1"))
    with ThreadPoolExecutor(8) as pool:
        assert all("y" in answer[0] for answer in pool.map(lambda seed: server.infer("dense", {"x": rows(1, seed)}), range(64)))
    metrics = server.metrics()
    assert metrics["onnxfuse_batch_rows_count", (("model", "dense"),)] == 64
    assert b"one by one" in server.log
    ends(server)


# --- limits ----------------------------------------------------------------------------------------------------------
def sized_bodies():
    server = serve("dense", arguments=("--max-body-mb", "1", "--idle-seconds", "2"))
    head = b"POST /v2/models/dense/infer HTTP/1.1\r\nHost: a\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 20) as s:  # nothing of the body is sent: who waits for it closes without an answer
        s.sendall(head + b"Content-Length: 1048577\r\n\r\n")
        answer = s.recv(4096)
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    part = b"10000\r\n" + b" " * 65536 + b"\r\n"
    assert server.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + part * 17 + b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")
    answer = server.raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + part * 200)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413 "), answer
    assert server.raw(b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 100000 + b"\r\n\r\n").startswith(b"HTTP/1.1 4")
    with socket.create_connection(("127.0.0.1", server.port), 20) as s:  # no traffic: closed
        s.sendall(head + b"Content-Length: 100\r\n\r\nabc")
        answer = s.recv(4096)
    assert answer == b"", answer
    assert server.infer("dense", {"x": rows(1)})[0]["y"].shape == (1, 4)
    wait_for(lambda: server.metrics()["onnxfuse_inflight_requests", (("model", "dense"),)] == 0)
    ends(server)


def bodies_together():
    """Bodies on their way take as much memory as 16 of the largest; the next one is refused until one of them is gone."""
    server = serve("dense", arguments=("--max-body-mb", "1"))
    head = b"POST /v2/models/dense/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    held, model = [], (("model", "dense"),)
    for count in range(1, 17):
        held.append(socket.create_connection(("127.0.0.1", server.port)))
        held[-1].sendall(head % (1 << 20) + b"{")
        wait_for(lambda: server.metrics()["onnxfuse_inflight_requests", model] == count)
    for _ in range(2):
        expect(server.infer("dense", {"x": rows(1)}), 503, "as many requests as it can")
        wait_for(lambda: server.metrics()["onnxfuse_inflight_requests", model] == 16)
    held.pop().close()
    wait_for(lambda: server.metrics()["onnxfuse_inflight_requests", model] == 15)
    for _ in range(3):
        assert "y" in server.infer("dense", {"x": rows(1)})[0]
    for s in held:
        s.close()
    ends(server)


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def in_background(function, *arguments, **named):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments, **named)))
    thread.start()
    thread.results = results
    return thread


LONG = np.array([200000], np.int64)  # for minutes


def full_queue():
    server = serve("slow", "dense", arguments=("--queue", "2", "--runs", "1", "--timeout-ms", "3000"))
    model = (("model", "slow"),)
    threads = [in_background(server.infer, "slow", {"n": LONG})]
    wait_for(lambda: server.metrics()["onnxfuse_session_runs_total", model] == 1)
    threads += [in_background(server.infer, "slow", {"n": LONG}) for _ in range(2)]
    wait_for(lambda: server.metrics()["onnxfuse_queue_length", model] == 2)
    body, headers = request({"n": LONG})
    status, answer, data = server.call("POST", "/v2/models/slow/infer", body, headers)
    assert status == 503 and answer["Retry-After"] == "1" and "full" in json.loads(data)["error"], (status, data)
    for thread in threads:
        thread.join()
        expect(thread.results[0], 504)
    assert server.metrics()["onnxfuse_requests_total", model + (("code", "503"),)] == 1
    assert "y" in server.infer("slow", {"n": np.array([2])})[0]
    ends(server)


def deadlines():
    server = serve("slow", arguments=("--drain-seconds", "0.3"))
    last = in_background(server.infer, "slow", {"n": LONG}, extra={"Onnxfuse-Timeout-Ms": "600000"})
    wait_for(lambda: server.metrics()["onnxfuse_session_runs_total", (("model", "slow"),)] == 1)
    expect(server.infer("slow", {"n": LONG}, extra={"Onnxfuse-Timeout-Ms": "100"}), 504)
    expect(server.infer("slow", {"n": LONG}, parameters={"timeout": 100000}), 504)
    assert last.is_alive(), "the run that begins first and has the most time is over before those that have less"
    expect(server.infer("slow", {"n": LONG}, extra={"Onnxfuse-Timeout-Ms": "soon"}), 400, "Onnxfuse-Timeout-Ms")
    assert "y" in server.infer("slow", {"n": np.array([2])}, extra={"Onnxfuse-Timeout-Ms": "60000"})[0]
    ends(server)
    last.join()


def clients_that_leave():
    server = serve("slow", "dense", arguments=("--timeout-ms", "3000", "--runs", "1", "--idle-seconds", "3"))
    body, headers = request({"n": LONG})
    head = "POST /v2/models/slow/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % len(body)
    message = (head + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n").encode() + body
    model = (("model", "slow"),)
    sockets = []
    for count in range(1, 6):
        sockets.append(socket.create_connection(("127.0.0.1", server.port)))
        sockets[-1].sendall(message)
        wait_for(lambda: server.metrics()["onnxfuse_inflight_requests", model] == count)
    for s in sockets:
        s.close()
    wait_for(lambda: server.metrics()["onnxfuse_inflight_requests", model] == 0)
    assert server.metrics()["onnxfuse_session_runs_total", model] < 5, "runs that nobody waits for"
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(message[:-4])  # in the middle of a body
    wait_for(lambda: server.metrics()["onnxfuse_inflight_requests", model] == 0)
    assert "y" in server.infer("dense", {"x": rows(1)})[0]
    wait_for(lambda: server.metrics()["onnxfuse_connections", ()] == 1)
    ends(server)


def until_closed(s, act, most=1):
    """Calls act() and reads, at most so many bytes, again and again until the server has closed the connection."""
    s.settimeout(0.05)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            act()
            if not s.recv(most):
                return
            time.sleep(0.05)
        except TimeoutError:
            pass
        except OSError:
            return
    raise AssertionError("a slow client is never left")


def slow_clients():
    """Who sends or reads a byte now and then is left, and others are served meanwhile."""
    server = serve("dense", "echo_UINT8", arguments=("--transfer-seconds", "2", "--transfer-kb", "1000", "--idle-seconds", "4"))
    body, headers = request({"x": np.zeros((1, 8 << 20), np.uint8)})
    head = "POST /v2/models/echo_UINT8/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % len(body)
    head = (head + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n").encode()

    def client(message, at_once, small_window=False):
        s = socket.socket()
        if small_window:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(60)
        s.connect(("127.0.0.1", server.port))
        s.sendall(message[:at_once])
        rest = iter(message[at_once:])
        until_closed(s, (lambda: None) if small_window else lambda: s.send(bytes([next(rest)])), 2048)
        s.close()

    threads = [in_background(client, *arguments) for arguments in ((head, 10), (head + body, len(head) + 100), (head + body, len(head + body), True))]
    x = rows(2)
    wanted, served = server.infer("dense", {"x": x})[0]["y"], 0
    while any(thread.is_alive() for thread in threads):
        assert equal(server.infer("dense", {"x": x})[0]["y"], wanted)
        served += 1
        time.sleep(0.02)
    assert all(thread.results for thread in threads) and served
    wait_for(lambda: server.metrics()["onnxfuse_connections", ()] == 1)
    samples = server.metrics()
    assert samples["onnxfuse_slow_connections_total", ()] == 3
    assert samples["onnxfuse_inflight_requests", (("model", "echo_UINT8"),)] == 0
    arrays, _ = server.infer("echo_UINT8", {"x": np.ones((1, 8 << 20), np.uint8)})
    assert arrays["y"].all() and server.metrics()["onnxfuse_slow_connections_total", ()] == 3
    ends(server)


def connections_of_an_address():
    server = serve("dense", arguments=("--connections-per-address", "2"))
    held = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    for s in held:
        s.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 200")
    with socket.create_connection(("127.0.0.1", server.port)) as third:
        until_closed(third, lambda: third.send(b"G"))
    held.pop().close()

    def is_live():
        try:
            return server.get("/v2/health/live") == (200, {"live": True})
        except OSError:
            return False
    wait_for(is_live)
    ends(server)


def what_is_no_tensor():
    """Models of sequences and maps are refused, and the message names the value."""
    for name, value in (("sequence", "y"), ("classifier", "y"), ("features", "x")):
        try:
            serve("dense", name)
        except RuntimeError as error:
            assert f'model {name} cannot be served: "{value}" is no tensor' in str(error), error
        else:
            raise AssertionError(f"{name} is served")


def many_shapes():
    """Requests of many shapes wait together, some of them for less time than there is; each gets what it asked for."""
    server = serve("slow", "words", arguments=("--runs", "1", "--max-batch", "4"))
    model = (("model", "words"),)
    last = in_background(server.infer, "slow", {"n": LONG}, extra={"Onnxfuse-Timeout-Ms": "4000"})
    wait_for(lambda: server.metrics()["onnxfuse_session_runs_total", (("model", "slow"),)] == 1)
    rng = np.random.default_rng(5)
    asked = [(rows(int(rng.integers(1, 4)), seed, int(rng.integers(1, 30))), seed % 5 == 0) for seed in range(120)]

    def ask(x, hurried):
        extra = {"Onnxfuse-Timeout-Ms": "1000"} if hurried else {}
        return server.infer("words", {"x": x, "scale": np.full((len(x), 1), 3)}, extra=extra)

    threads = [in_background(ask, x, hurried) for x, hurried in asked]
    wait_for(lambda: server.metrics()["onnxfuse_queue_length", model] == 96 or not last.is_alive())
    for thread, (x, hurried) in zip(threads, asked):
        thread.join()
        if isinstance(thread.results[0][0], int):
            assert hurried, thread.results[0]
            expect(thread.results[0], 504)
        else:
            assert equal(thread.results[0][0]["y"], x * 3)
    last.join()
    assert server.metrics()["onnxfuse_queue_length", model] == 0
    assert server.metrics()["onnxfuse_batch_rows_bucket", model + (("le", "4"),)] == server.metrics()["onnxfuse_batch_rows_count", model]
    ends(server)


def draining():
    """Ready goes false, what runs ends, new requests are refused, exit code 0."""
    server = serve("slow", "dense")
    connection = server.connect()
    assert server.call("GET", "/v2/health/ready", connection=connection)[0] == 200
    model = (("model", "slow"),)
    thread = in_background(server.infer, "slow", {"n": LONG}, extra={"Onnxfuse-Timeout-Ms": "2000"})
    wait_for(lambda: server.metrics()["onnxfuse_session_runs_total", model] == 1)
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: server.get("/v2/health/ready") == (503, {"ready": False}))
    assert server.get("/v2/health/live") == (200, {"live": True})
    expect(server.infer("dense", {"x": rows(1)}), 503, "shutting down")
    assert server.metrics()["onnxfuse_ready", ()] == 0
    thread.join()
    expect(thread.results[0], 504)
    assert server.process.wait(30) == 0
    connection.close()

    for signals, code in (((signal.SIGINT,), 0), ((signal.SIGTERM, signal.SIGTERM), 1)):
        server = serve("slow", arguments=("--drain-seconds", "0.3"))
        text = request({"n": LONG}, binary=False)[0]
        message = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)
        thread = in_background(server.raw, message, patience=60)
        wait_for(lambda: server.metrics()["onnxfuse_session_runs_total", model] == 1)
        server.process.send_signal(signals[0])
        if len(signals) > 1:
            wait_for(lambda: b"draining" in server.log)
            server.process.send_signal(signals[1])
        assert server.process.wait(30) == code, server.log
        thread.join()
        assert code or thread.results[0].startswith(b"HTTP/1.1 503"), thread.results


def threads_of(server):
    """(state, how often it was switched to) of each thread."""
    found = []
    for path in Path(f"/proc/{server.process.pid}/task").iterdir():
        fields = dict(line.split(":", 1) for line in (path / "status").read_text().splitlines())
        found.append((fields["State"].split()[0], int(fields["voluntary_ctxt_switches"]) + int(fields["nonvoluntary_ctxt_switches"])))
    return found


def idle():
    """No processor time goes by while nothing is asked, connections being open."""
    server = serve("dense", arguments=("--batch-delay-ms", "5"))
    connections = [server.connect() for _ in range(8)]
    for connection in connections:
        assert "y" in server.infer("dense", {"x": rows(1)}, connection)[0]
    wait_for(lambda: set(state for state, _ in threads_of(server)) == {"S"})
    for _ in range(5):  # on a busy machine some come to rest later
        before = sum(switches for _, switches in threads_of(server))
        time.sleep(2)
        woken = sum(switches for _, switches in threads_of(server)) - before
        if not woken:
            break
    assert woken == 0, f"threads were woken {woken} times in 2 s"
    ends(server)


def memory():
    """What large requests took is given back when nothing is asked, and the next one works."""
    if options.sanitized:
        print("skipped: a sanitizer keeps freed memory")
        return
    server = serve("slow", arguments=("--idle-seconds", "1"))
    for _ in range(2):
        server.infer("slow", {"n": np.array([3000])})
    held = server.metrics()["process_resident_memory_bytes", ()]
    wait_for(lambda: server.metrics()["process_resident_memory_bytes", ()] < held - 3000 * models.SLOW_WIDTH * 4)
    assert "y" in server.infer("slow", {"n": np.array([2])})[0]
    ends(server)


def metrics():
    server = serve("dense")
    for _ in range(3):
        server.infer("dense", {"x": rows(4)})
    server.infer("dense", {"z": rows(4)})
    server.get("/nowhere")
    samples = server.metrics()
    model = (("model", "dense"),)
    assert samples["onnxfuse_requests_total", model + (("code", "200"),)] == 3
    assert samples["onnxfuse_requests_total", model + (("code", "400"),)] == 1
    assert samples["onnxfuse_requests_total", (("model", ""), ("code", "404"))] == 1
    assert samples["onnxfuse_batch_rows_sum", model] == 12 and samples["onnxfuse_batch_rows_bucket", model + (("le", "4"),)] == 3
    assert samples["onnxfuse_compute_duration_seconds_count", model] == 3 and samples["onnxfuse_request_duration_seconds_count", model] == 4
    assert 0 < samples["onnxfuse_compute_duration_seconds_sum", model] <= samples["onnxfuse_request_duration_seconds_sum", model]
    assert samples["onnxfuse_session_memory_bytes", model] >= 0 and samples["process_resident_memory_bytes", ()] > 1e6
    assert abs(samples["process_start_time_seconds", ()] - time.time()) < 600
    assert samples["onnxfuse_received_bytes_total", model] > 4 * 128 and samples["onnxfuse_sent_bytes_total", model] > 0
    status, headers, _ = server.call("GET", "/metrics")
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    ends(server)


# --- malformed requests ----------------------------------------------------------------------------------------------
def malformed_requests():
    server = serve("dense", "words", "echo_BYTES", "echo_BOOL", arguments=("--idle-seconds", "5", "--max-body-mb", "4"))
    x = rows(3)
    wanted = server.infer("dense", {"x": x})[0]["y"]
    resident, count = [], options.malformed
    codes = {}
    for part in range(2):
        for code, number in malformed.send(server, count // 2, seed=part).items():
            codes[code] = codes.get(code, 0) + number
        assert equal(server.infer("dense", {"x": x})[0]["y"], wanted)
        resident.append(server.metrics()["process_resident_memory_bytes", ()])
    print(f"    {count} requests: " + ", ".join(f"{number} {code}" for code, number in sorted(codes.items())))
    assert not codes.get("500"), "an error of the server's own"
    # Freed memory that the C library keeps differs by some MiB from run to run.
    assert resident[1] < resident[0] + (32 << 20), f"memory grew from {resident[0]:.0f} to {resident[1]:.0f} bytes"
    wait_for(lambda: server.metrics()["onnxfuse_connections", ()] == 1)
    for name in ("dense", "words", "echo_BYTES", "echo_BOOL"):
        assert server.metrics()["onnxfuse_inflight_requests", (("model", name),)] == 0
    ends(server)


def deep_requests():
    """JSON that nests 100,000 deep, on stacks of 256 KB."""
    server = serve("dense", stack=1 << 20 if options.sanitized else 256 << 10)
    x, deep = rows(1), 100_000
    item = '{"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": %s}]}'
    for text in ("[" * deep, "[" * deep + "]" * deep, '{"inputs":' * deep, '{"inputs":[' * deep + "]}" * deep,
                 item % ("[" * deep + "]" * deep), item % ("[" * deep), '{"id": "1", "parameters": ' + '{"a":' * deep + "1" + "}" * (deep + 1)):
        status, _, data = server.call("POST", "/v2/models/dense/infer", text.encode(), {"Content-Type": "application/json"})
        assert status == 400 and json.loads(data)["error"], (text[:80], status, data)
    assert server.infer("dense", {"x": x})[0]["y"].shape[0] == 1
    ends(server)


TESTS = (endpoints, names_of_models, what_is_no_tensor, datatypes, json_numbers, outputs_and_members, binary_bodies, batching, one_wrong_request_beside_others,
         without_batching, sized_bodies, bodies_together, full_queue, deadlines, clients_that_leave, slow_clients, connections_of_an_address, many_shapes,
         draining, idle, memory, metrics, malformed_requests, deep_requests)


def main():
    global program, paths, options
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--malformed", type=int, default=10000)
    parser.add_argument("--sanitized", action="store_true", help="the program was built with a sanitizer")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    paths = models.write(options.folder)
    failed = 0
    for test in TESTS:
        if options.names and not any(test.__name__.startswith(name) for name in options.names):
            continue
        begin = time.monotonic()
        try:
            test()
            print(f"ok    {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAIL  {test.__name__}", flush=True)
        Server.kill_rest()
    sys.exit(failed > 0)


main()
