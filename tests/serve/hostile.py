#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server under hostile clients, and what well-behaved ones see of it.

    hostile.py PROGRAM FOLDER [--seconds N] [--clients N] [--seed N]

Hostile clients send malformed requests, a byte now and then, halves of requests, sides that are closed, bodies that never end and answers
that nobody reads; beside them some ask for what is right, all the time, and compare what comes. Prints the latency of these without and
beside the hostile ones (no line is drawn between good and bad), and fails where an answer is wrong, missing or an error of the server's own,
where connections or requests are left behind, or memory grows. FOLDER is for the models that are made."""

import argparse
import json
import random
import socket
import sys
import threading
import time
from pathlib import Path

import numpy as np

import malformed
import models
from client import Server, request

GOOD = 2  # well-behaved clients


class Scene:
    def __init__(self, server, seed):
        self.server, self.seed, self.failures, self.counts, self.end = server, seed, [], {}, 0

    def connect(self, window=None):
        s = socket.socket()
        if window:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        s.settimeout(20)
        s.connect(("127.0.0.1", self.server.port))
        return s


def whole(choose):
    path, headers, body = malformed.rightful(choose)
    head = "".join(f"{k}: {v}\r\n" for k, v in {"Host": "a", "Content-Length": str(len(body)), **headers}.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


# --- what hostile clients do: each once ------------------------------------------------------------------------------------------
def wrong_requests(scene, choose):
    sent = malformed.message(choose)
    assert malformed.check(scene.server.raw(sent), sent) != "500", sent


def bytes_now_and_then(scene, choose):
    message = whole(choose)
    with scene.connect() as s:
        for byte in message[:choose.randrange(1, 12)]:
            s.sendall(bytes([byte]))
            time.sleep(choose.uniform(0, 0.2))


def half_closed(scene, choose):
    message = whole(choose)
    with scene.connect() as s:
        s.sendall(message[:choose.randrange(len(message) + 1)])
        s.shutdown(socket.SHUT_WR)
        while s.recv(65536):
            pass


def gone(scene, choose):
    message = whole(choose)
    s = scene.connect()
    s.sendall(message[:choose.randrange(len(message) + 1)])
    if choose.random() < 0.5:  # a reset instead of an end
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    s.close()


def endless_body(scene, choose):
    with scene.connect() as s:
        s.sendall(b"POST /v2/models/dense/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(choose.randrange(200)):
            s.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")


def unread_answers(scene, choose):
    with scene.connect(4096) as s:
        s.sendall(whole(choose) * choose.randrange(1, 60))
        time.sleep(choose.uniform(0, 1))


def held_connections(scene, choose):
    held = [scene.connect() for _ in range(choose.randrange(1, 8))]
    for s in held:
        s.sendall(b"POST /v2/models/dense/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n{")
    time.sleep(choose.uniform(0, 1))
    for s in held:
        s.close()


WAYS = (wrong_requests, wrong_requests, wrong_requests, bytes_now_and_then, half_closed, gone, endless_body, unread_answers, held_connections)


def be_hostile(scene, number):
    choose, count = random.Random(f"{scene.seed} {number}"), 0
    while time.monotonic() < scene.end and not scene.failures:
        way = choose.choice(WAYS)
        try:
            way(scene, choose)
        except (OSError, TimeoutError):
            pass  # the server may leave who is like this
        except Exception as error:
            scene.failures.append(f"{way.__name__}: {error!r}")
        count += 1
        scene.counts[way.__name__] = scene.counts.get(way.__name__, 0) + 1


# --- what others see -------------------------------------------------------------------------------------------------------------
def be_good(scene, number, latencies):
    rng = np.random.default_rng([scene.seed, number])
    connection = scene.server.connect()
    while time.monotonic() < scene.end and not scene.failures:
        x = rng.standard_normal((int(rng.integers(1, 4)), 5)).astype(np.float32)
        scale = rng.integers(-9, 9, (len(x), 1))
        body, headers = request({"scale": scale, "x": x})
        begin = time.monotonic()
        try:
            status, answer, data = scene.server.call("POST", "/v2/models/words/infer", body, headers, connection)
        except Exception as error:
            scene.failures.append(f"a right request: {error!r}")
            return
        if status == 503 and b"as many requests as it can" in data:  # the hostile ones hold the memory for bodies: it is said, and asked again
            latencies.append((time.monotonic() - begin, False))
            time.sleep(0.05)
            continue
        latencies.append((time.monotonic() - begin, True))
        if status != 200 or not data.endswith((x * scale.astype(np.float32)).tobytes()):
            scene.failures.append(f"a right request: {status}, {data[:200]}")
        time.sleep(0.005)
    connection.close()


def watch(scene, seconds, hostile):
    latencies, scene.end = [], time.monotonic() + seconds
    threads = [threading.Thread(target=be_good, args=(scene, k, latencies)) for k in range(GOOD)]
    threads += [threading.Thread(target=be_hostile, args=(scene, k)) for k in range(hostile)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = sorted(seconds for seconds, good in latencies if good)
    refused = sum(not good for _, good in latencies)
    if taken:
        places = ", ".join(f"{name} {taken[min(int(len(taken) * share), len(taken) - 1)] * 1e3:.1f} ms" for name, share in
                           (("half within", 0.5), ("99 % within", 0.99), ("all within", 1)))
        print(f"{f'beside {hostile} hostile clients' if hostile else 'alone':28} {len(taken)} answers, {places}; {refused} refused for lack of room", flush=True)


def wait_for(what, condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return [f"{what} after {seconds} s"]
        time.sleep(0.05)
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400))
    options = parser.parse_args()
    paths = models.write(options.folder)
    names = ("dense", "words", "echo_BYTES", "echo_BOOL")
    server = Server(str(Path(options.program).resolve()), *(paths[name] for name in names), "--max-body-mb", "1", "--idle-seconds", "30", "--transfer-seconds", "20")
    scene = Scene(server, options.seed)
    print(f"seed {options.seed}")
    try:
        watch(scene, options.seconds / 6, 0)
        watch(scene, options.seconds / 6, options.clients)
        before = server.metrics()["process_resident_memory_bytes", ()]
        watch(scene, options.seconds * 4 / 6, options.clients)
        if server.process.poll() is None and not scene.failures:
            scene.failures += wait_for("connections are left", lambda: server.metrics()["onnxfuse_connections", ()] == 1)
            for name in names:
                scene.failures += wait_for(f"requests of {name} are left", lambda: server.metrics()["onnxfuse_inflight_requests", (("model", name),)] == 0)
            grown = server.metrics()["process_resident_memory_bytes", ()] - before
            print(f"memory: {grown / (1 << 20):+.1f} MiB")
            if grown > 64 << 20:
                scene.failures.append(f"memory grew by {grown:.0f} bytes")
            code = server.stop()
            if code:
                scene.failures.append(f"exit code {code}: {server.log.decode(errors='replace')[-1000:]}")
        elif server.process.poll() is not None:
            scene.failures.append(f"the server has ended: {server.process.poll()}, {server.log.decode(errors='replace')[-1000:]}")
    finally:
        Server.kill_rest()
    print(json.dumps(scene.counts))
    for failure in scene.failures[:10]:
        print("FAIL ", failure)
    sys.exit(bool(scene.failures))


main()
