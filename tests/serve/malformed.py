# SPDX-License-Identifier: Apache-2.0
"""Requests that are wrong in some way: seeded mutations of right ones, of their request line, headers, JSON and sizes, sent as they are."""

import json
import random
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import client

CODES = ("200", "400", "404", "405", "408", "411", "413", "414", "415", "417", "431", "499", "501", "503", "505")
TEXTS = (b"", b"\0", b"\xff", b"%00", b"%", b"..", b"/", b"\r\n", b"\n", b":", b" ", b"\t", b"1e999", b"-1", b"0", b"4294967296", b"18446744073709551616",
         b"9" * 40, b"A" * 5000, b"[" * 2000, b"{" * 2000, b'"', b"\\u0000", b"\\ud800", b"null", b"true", b"{}", b"[]", b",", b"\xc0\x80", b"NaN")


def rightful(choose):
    """Path, headers and body of a right request."""
    rng = np.random.default_rng(choose.getrandbits(32))
    rows = choose.randint(1, 3)
    binary = choose.random() < 0.5
    name, inputs = choose.choice((
        ("dense", {"x": rng.standard_normal((rows, 8)).astype(np.float32)}),
        ("words", {"x": rng.standard_normal((rows, 5)).astype(np.float32), "scale": rng.integers(-5, 5, (rows, 1))}),
        ("echo_BYTES", {"x": np.array([[b"one", b"two"]] * rows, np.object_)}),
        ("echo_BOOL", {"x": rng.random((rows, 4)) < 0.5})))
    body, headers = client.request(inputs, binary=binary, id="7", outputs=[{"name": "y", "parameters": {"binary_data": binary}}])
    return f"/v2/models/{name}/infer", headers, body


def mutated(data, choose):
    """Some bytes changed, left out, repeated or put in."""
    data = bytearray(data)
    for _ in range(choose.choice((1, 1, 1, 2, 5))):
        at = choose.randrange(len(data) + 1)
        end = min(len(data), at + choose.choice((1, 1, 4, 16)))
        way = choose.randrange(5)
        if way == 0 and at < len(data):
            data[at] ^= 1 << choose.randrange(8)
        elif way == 1:
            del data[at:end]
        elif way == 2:
            data[at:at] = data[at:end] * choose.randint(1, 4)
        elif way == 3:
            data[at:end] = choose.choice(TEXTS)
        else:
            data[at:at] = choose.choice(TEXTS)
    return bytes(data)


def wrong_json(document, choose):
    """One value somewhere in the JSON is another, or gone."""
    places = []

    def walk(node):
        for key in (node if isinstance(node, dict) else range(len(node))):
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                walk(node[key])

    walk(document)
    node, key = choose.choice(places)
    value = choose.choice((None, True, -1, 0, 1, 2 ** 31, 2 ** 53 + 1, 2 ** 63, 1e300, 0.5, "", "x", "FP64", "BYTES", [], {}, [[]], [1, 2, 3], [[1], [2, 3]],
                           [2 ** 40, 2 ** 40], [0], "\0", "\ud83d\ude00", list(range(20))))
    if choose.random() < 0.2:
        del node[key]
    else:
        node[key] = value
    return json.dumps(document).encode()


def message(choose):
    path, headers, body = rightful(choose)
    line = f"POST {path} HTTP/1.1".encode()
    kind = choose.choice(("line", "headers", "json", "bytes", "sizes", "length", "all", "cut"))
    size = int(headers.get("Inference-Header-Content-Length", len(body)))
    if kind == "json":
        text = wrong_json(json.loads(body[:size]), choose)
        body, size = text + body[size:], len(text)
        if headers:
            headers["Inference-Header-Content-Length"] = str(size)
    elif kind == "bytes":
        body = mutated(body, choose)
    elif kind == "sizes":
        headers["Inference-Header-Content-Length"] = choose.choice(("", "0", "-1", "1", str(size - 1), str(size + 1), str(len(body)), str(len(body) + 1),
                                                                    str(2 ** 63), str(2 ** 64 - 1), str(2 ** 64), "abc", "1 2", "0x10"))
    elif kind == "length":
        headers["Content-Length"] = choose.choice(("", "0", "-1", str(len(body) - 1), str(len(body) + 1), str(2 ** 31), str(2 ** 63), str(2 ** 64), "x", "1,2"))
        if choose.random() < 0.3:
            headers["Transfer-Encoding"] = choose.choice(("chunked", "gzip", "chunked, chunked"))
    headers = {"Host": "a", "Content-Length": str(len(body)), **headers}
    head = b"".join(f"{k}: {v}\r\n".encode() for k, v in headers.items())
    if kind == "line":
        line = mutated(line, choose)
    elif kind == "headers":
        head = mutated(head, choose)
    whole = line + b"\r\n" + head + b"\r\n" + body
    if kind == "all":
        whole = mutated(whole, choose)
    elif kind == "cut":
        whole = whole[:choose.randrange(len(whole))]
    return whole


def check(answer, sent):
    """The status of the first answer; "none" where the connection was closed."""
    if not answer:
        return "none"
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(b"\r\n")[0].split(b" ", 2)
    assert words[0] in (b"HTTP/1.1", b"HTTP/1.0"), (answer[:200], sent)
    code = words[1].decode()
    if code == "100":
        return check(body, sent)
    assert code in CODES, (answer[:400], sent)
    if b"application/json" in head and b"\r\nContent-Length: " in head:
        size = int(head.split(b"\r\nContent-Length: ")[1].split(b"\r\n")[0])
        if len(body) >= size:  # the last answer of a connection may be cut when the client has broken it off
            document = json.loads(body[:size])
            assert code == "200" or document.get("error"), answer
    return code


def send(server, count, seed, clients=8):
    """status -> number"""
    def work(client_number):
        codes = {}
        for i in range(client_number, count, clients):
            sent = message(random.Random(f"{seed} {i}"))
            code = check(server.raw(sent), sent)
            codes[code] = codes.get(code, 0) + 1
        return codes

    total = {}
    with ThreadPoolExecutor(clients) as pool:
        for codes in pool.map(work, range(clients)):
            for code, number in codes.items():
                total[code] = total.get(code, 0) + number
    return total
