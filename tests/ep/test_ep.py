#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs models in ONNX Runtime through the execution provider and compares with ONNX Runtime's own results.

    test_ep.py LIBRARY REAL [NAME...]

LIBRARY is libonnxfuse_ep.so, REAL the folder that scripts/real_models.py writes; with names, only the tests whose names begin with
one of them."""

import functools
import os
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.append(str(Path(__file__).resolve().parents[1] / "numeric"))
from rounding import Condition, assert_close  # noqa: E402

PROVIDER = "OnnxfuseExecutionProvider"
FLOAT = TensorProto.FLOAT
# Terms of the longest sum: of the inner sizes of products and convolutions, and the rows of normalizations. They end in probabilities.
REAL_MODELS = {"magika": 512, "minilm": 1536, "ocr_cls": 1000, "ocr_det": 1000, "ocr_rec": 1000, "silero_vad": 1000}
FEED_FORWARD = 64  # terms: a product of 16 and the bias, then a softmax of 32
real = library = None
devices = []


# --- sessions --------------------------------------------------------------------------------------------------------
def session(model, options=None, config=None):
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for key, value in (config or {}).items():
        settings.add_session_config_entry(key, value)
    settings.add_provider_for_devices(devices, {"threads": "2", **(options or {})})
    return onnxruntime.InferenceSession(source(model), settings, enable_fallback=0)


def plain(model):
    return onnxruntime.InferenceSession(source(model), providers=["CPUExecutionProvider"])


def source(model):
    return str(model) if isinstance(model, (str, Path)) else model.SerializeToString()


def parts(opened):
    """Counts of the nodes in the parts that the provider took, and all nodes' count."""
    groups = opened.get_provider_graph_assignment_info()
    ours = [len(group.get_nodes()) for group in groups if group.ep_name == PROVIDER]
    return ours, sum(len(group.get_nodes()) for group in groups)


def model(nodes, inputs, outputs, initializers=(), opset=18, domains=()):
    graph = helper.make_graph(nodes, "test", [value(*i) for i in inputs], [value(*o) for o in outputs], list(initializers))
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def value(name, dtype, shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def weights(name, *shape, seed=3):
    return numpy_helper.from_array(numpy.random.default_rng(seed).standard_normal(shape).astype(numpy.float32) / 8, name)


# A transposed convolution whose padding is an input: ONNX Runtime's own, and none of ours. With these it hands on images of one channel.
HANDS_ON = [numpy_helper.from_array(numpy.ones((1, 1, 1, 1), numpy.float32), "one"), numpy_helper.from_array(numpy.zeros(4, numpy.int64), "none")]


def not_supported(given, result):
    return helper.make_node("ConvTransposeWithDynamicPads", [given, "one", "none"], [result], domain="com.microsoft")


def expected(tested, feed, terms=0, **rest):
    """ONNX Runtime's own results, and what rounding explains of another runtime's; no terms: they are to be equal."""
    if not terms:
        return plain(tested).run(None, feed), None
    return condition(source(tested)).bounds(feed, terms, **rest)


@functools.lru_cache(maxsize=8)
def condition(written):
    tested = onnx.load(written) if isinstance(written, str) else onnx.load_from_string(written)

    def run_of(changed):
        opened = plain(changed)
        return lambda feed: opened.run(None, feed)
    return Condition(tested, run_of)


def same(tested, feeds, least=1.0, options=None, terms=0):
    """The provider takes at least this share of the nodes and gives ONNX Runtime's results; terms: of the longest sum."""
    opened = session(tested, options)
    ours, total = parts(opened)
    assert sum(ours) >= least * total, f"{ours} of {total} nodes"
    for feed in feeds:
        assert_close(opened.run(None, feed), *expected(tested, feed, terms))
    return opened


def fails(call, *words):
    try:
        call()
    except Exception as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
        return
    raise AssertionError("it did not fail")


def random(*shape, seed=7):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(numpy.float32)


# --- real models -----------------------------------------------------------------------------------------------------
def recorded(folder):
    for data in sorted(folder.glob("test_data_set_*")):
        tensors = [sorted(data.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1])) for kind in ("input", "output")]
        yield [[onnx.load_tensor(str(path)) for path in paths] for paths in tensors]


def test_real_models():
    """The provider takes each of them whole, as one part, and gives the recorded results."""
    folders = sorted(path for path in real.iterdir() if (path / "model.onnx").exists())
    assert {folder.name for folder in folders} == REAL_MODELS.keys()
    for folder in folders:
        opened = session(folder / "model.onnx")
        ours, total = parts(opened)
        print(f"    {folder.name}: {sum(ours)} of {total} nodes in {len(ours)} parts")
        assert ours == [total], f"{folder.name}: parts of {ours} nodes of {total}"
        for inputs, outputs in recorded(folder):
            feed = {tensor.name: numpy_helper.to_array(tensor) for tensor in inputs}
            found = opened.run([tensor.name for tensor in outputs], feed)
            names = [output.name for output in opened.get_outputs()]
            bounds = dict(zip(names, expected(folder / "model.onnx", feed, REAL_MODELS[folder.name], ends_at=1)[1]))
            assert_close(found, [numpy_helper.to_array(tensor) for tensor in outputs], [bounds[tensor.name] for tensor in outputs])


# --- small models ----------------------------------------------------------------------------------------------------
def feed_forward(rows="n", width=16):
    return model([helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["a"]),
                  helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Softmax", ["r"], ["y"], axis=-1)],
                 [("x", FLOAT, [rows, width])], [("y", FLOAT, [rows, 32])], [weights("w", width, 32), weights("b", 32)])


def test_dynamic_shapes():
    same(feed_forward(), [{"x": random(rows, 16)} for rows in (1, 7, 64, 7, 3, 0)], terms=FEED_FORWARD)


def test_shapes_that_follow_from_the_data():
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["where"]),
             helper.make_node("Concat", ["r", "r"], ["twice"], axis=0)]
    tested = model(nodes, [("x", FLOAT, ["a", "b"])], [("where", TensorProto.INT64, [2, None]), ("twice", FLOAT, [None, None])])
    same(tested, [{"x": random(rows, 5, seed=rows)} for rows in (1, 4, 9)])


def test_outputs_in_given_memory():
    opened = session(feed_forward())
    x, y = random(5, 16), numpy.full((5, 32), -1, numpy.float32)
    binding = opened.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, numpy.float32, y.shape, y.ctypes.data)
    opened.run_with_iobinding(binding)
    assert_close([y], *expected(feed_forward(), {"x": x}, FEED_FORWARD))


def test_types():
    nodes = [helper.make_node("Cast", ["i"], ["f"], to=FLOAT), helper.make_node("Add", ["f", "s"], ["sum"]),
             helper.make_node("Greater", ["sum", "s"], ["greater"]), helper.make_node("Not", ["greater"], ["y"]),
             helper.make_node("Cast", ["sum"], ["half"], to=TensorProto.FLOAT16)]
    tested = model(nodes, [("i", TensorProto.INT64, ["n"]), ("s", FLOAT, [])],
                   [("y", TensorProto.BOOL, ["n"]), ("half", TensorProto.FLOAT16, ["n"])])
    same(tested, [{"i": numpy.arange(-3, 6), "s": numpy.array(0.5, numpy.float32)}])


def test_strings():
    nodes = [helper.make_node("StringConcat", ["a", "b"], ["joined"])]
    tested = model(nodes, [("a", TensorProto.STRING, ["n"]), ("b", TensorProto.STRING, [1])],
                   [("joined", TensorProto.STRING, ["n"])], opset=20)
    same(tested, [{"a": numpy.array(["", "x", "größer"], object), "b": numpy.array(["-ß"], object)}])


def branches(mixed=False):
    def body(name, nodes, output):
        return helper.make_graph(nodes, name, [], [value(output, FLOAT, None)], [weights(f"{name}_w", 4)])
    then = body("then", [helper.make_node("Mul", ["x", "then_w"], ["t0"]),
                         not_supported("t0", "t") if mixed else helper.make_node("Tanh", ["t0"], ["t"])], "t")
    other = body("other", [helper.make_node("Add", ["x", "shared"], ["e0"]), helper.make_node("Mul", ["e0", "other_w"], ["e"])], "e")
    nodes = [helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0), helper.make_node("Greater", ["sum", "zero"], ["c"]),
             helper.make_node("If", ["c"], ["i"], then_branch=then, else_branch=other), helper.make_node("Exp", ["i"], ["y"])]
    return model(nodes, [("x", FLOAT, ["n", 1, 1, 4])], [("y", FLOAT, None)],
                 [weights("shared", 4), numpy_helper.from_array(numpy.float32(0), "zero"), *HANDS_ON], domains=["com.microsoft"])


def test_control_flow():
    same(branches(), [{"x": numpy.abs(random(3, 1, 1, 4))}, {"x": -numpy.abs(random(5, 1, 1, 4))}], terms=4)


def test_parts_inside_control_flow():
    """Where a body holds something that is not supported, the rest of it is taken all the same."""
    opened = same(branches(mixed=True), [{"x": numpy.abs(random(3, 1, 1, 4))}, {"x": -numpy.abs(random(5, 1, 1, 4))}], least=0.7, terms=4)
    assert sum(parts(opened)[0]) == 6, parts(opened)


def test_loops():
    trip = helper.make_graph([helper.make_node("Add", ["v", "x"], ["v2"]), helper.make_node("Identity", ["go"], ["go2"]),
                              helper.make_node("ReduceMax", ["v2"], ["m"], keepdims=0)], "trip",
                             [value("k", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("v", FLOAT, ["n"])],
                             [value("go2", TensorProto.BOOL, []), value("v2", FLOAT, ["n"]), value("m", FLOAT, [])])
    tested = model([helper.make_node("Loop", ["times", "", "x"], ["last", "all"], body=trip)],
                   [("times", TensorProto.INT64, []), ("x", FLOAT, ["n"])], [("last", FLOAT, ["n"]), ("all", FLOAT, [None])])
    same(tested, [{"times": numpy.array(times), "x": random(6)} for times in (1, 5, 0)])


def test_nodes_that_are_not_supported_stay():
    """What is around it is taken in two parts."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             not_supported("r", "s"), helper.make_node("Exp", ["s"], ["e"]),
             helper.make_node("Add", ["e", "h"], ["y"])]
    tested = model(nodes, [("x", FLOAT, ["n", 1, "m", 8])], [("y", FLOAT, None)], [weights("w", 8, 8), *HANDS_ON], domains=["com.microsoft"])
    opened = same(tested, [{"x": random(4, 1, 2, 8)}], least=0.6, terms=8)
    ours, total = parts(opened)
    assert sorted(ours) == [2, 2] and total == 5, (ours, total)


def test_nodes_that_cannot_be_lowered_stay():
    """There is an operator, but this use of it is not supported: sequences cannot leave a part either."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("SplitToSequence", ["r"], ["parts"], axis=0)]
    graph = helper.make_graph(nodes, "test", [value("x", FLOAT, ["n", 4])],
                              [helper.make_tensor_sequence_value_info("parts", FLOAT, None)])
    tested = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    opened = session(tested)
    ours, _ = parts(opened)
    assert ours == [1], ours
    x = random(3, 4)
    assert_close(opened.run(None, {"x": x})[0], plain(tested).run(None, {"x": x})[0])


def test_maps_are_left_to_onnxruntime():
    """A classifier as scikit-learn's exporter writes it: its scores are taken, the maps that it gives are not."""
    nodes = [helper.make_node("LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", classlabels_strings=["a", "b"],
                              coefficients=[1.0, -1.0, 0.5, -0.5, 0.25, 2.0, -1.0, 1.0], intercepts=[0.5, -0.5], post_transform="SOFTMAX"),
             helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", classlabels_strings=["b", "a"])]
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(FLOAT, [])))
    graph = helper.make_graph(nodes, "test", [value("x", FLOAT, ["n", 4])],
                              [value("label", TensorProto.STRING, ["n"]), helper.make_value_info("probabilities", kind)])
    tested = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8)
    opened = session(tested)
    ours, total = parts(opened)
    assert sorted(ours) == [1] and total == 2, (ours, total)
    x = random(3, 4)
    (labels, maps), (own_labels, own_maps) = opened.run(None, {"x": x}), plain(tested).run(None, {"x": x})
    assert list(labels) == list(own_labels)
    for got, wanted in zip(maps, own_maps, strict=True):
        assert got.keys() == wanted.keys()
        numpy.testing.assert_allclose([got[key] for key in wanted], list(wanted.values()), rtol=1e-6)


def test_large_weights_and_external_files():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        tested = model([helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])],
                       [("x", FLOAT, ["n", 512])], [("y", FLOAT, ["n", 700])], [weights("w", 512, 700), weights("b", 700)])
        same(tested, [{"x": random(3, 512)}], terms=512)
        onnx.save(tested, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
        same(path, [{"x": random(3, 512)}], terms=512)


# --- threads ---------------------------------------------------------------------------------------------------------
def test_one_session_from_several_threads():
    opened, errors = session(feed_forward()), []
    feeds = [[{"x": random(1 + (number * 7 + turn) % 40, 16, seed=number * 100 + turn)} for turn in range(50)] for number in range(4)]
    wanted = [[expected(feed_forward(), feed, FEED_FORWARD) for feed in of_thread] for of_thread in feeds]

    def work(number):
        try:
            for feed, results in zip(feeds[number], wanted[number]):
                assert_close(opened.run(None, feed), *results)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


# --- options ---------------------------------------------------------------------------------------------------------
def test_options():
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "policy.json"
        policy.write_text('{"fusion": {"enable": false}, "threads": 1}')
        for options in ({"cache.enable": "False"}, {"cache.directory": folder, "cache.max_megabytes": "16"},
                        {"fusion.enable": "false", "seed": "4", "device": "cpu"}, {"policy_file": str(policy)},
                        {"policy": '{"cache": {"directory": "%s"}}' % folder, "threads": "1"}, {"cache": '{"enable": false}'}):
            same(feed_forward(), [{"x": random(3, 16)}], options=options, terms=FEED_FORWARD)


def test_wrong_options():
    def opening(**options):
        return lambda: session(feed_forward(), {key.replace("__", "."): value for key, value in options.items()})
    fails(opening(fusion__enble="1"), "onnxfuse", "fusion.enble")
    fails(opening(threads="many"), "onnxfuse", "threads")
    fails(opening(nonsense="1"), "onnxfuse", "nonsense")
    fails(opening(device="abacus"), "onnxfuse", "abacus")
    fails(opening(policy_file="/nowhere/policy.json"), "onnxfuse", "/nowhere/policy.json")
    fails(opening(policy="{", threads="1"), "onnxfuse")
    fails(opening(policy="{}", cache__enable="true"), "cache.enable", "policy")
    fails(opening(log="loud"), "log", "loud")


def test_wrong_inputs_fail_cleanly():
    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    tested = model(nodes, [("a", FLOAT, ["n"]), ("b", FLOAT, ["m"])], [("y", FLOAT, [None])])
    opened = session(tested)
    fails(lambda: opened.run(None, {"a": random(3), "b": random(4)}), "onnxfuse")
    assert_close(opened.run(None, {"a": random(3), "b": random(1)}), [random(3) + random(1)])


# --- compiled models -------------------------------------------------------------------------------------------------
def compile_model(tested, folder, embed):
    path = Path(folder) / "compiled.onnx"
    session(tested, config={"ep.context_enable": "1", "ep.context_file_path": str(path), "ep.context_embed_mode": embed})
    return path


def contexts(path):
    return [node for node in onnx.load(path).graph.node if node.op_type == "EPContext"]


def test_compiled_models():
    feed = {"x": random(6, 16)}
    for embed in "01":
        with tempfile.TemporaryDirectory() as folder:
            source_path = Path(folder) / "model.onnx"
            onnx.save(feed_forward(), source_path)
            path = compile_model(source_path, folder, embed)
            assert len(contexts(path)) == 1
            source_path.unlink()
            opened = session(path)
            assert parts(opened) == ([1], 1)
            wanted = expected(feed_forward(), feed, FEED_FORWARD)
            assert_close(opened.run(None, feed), *wanted)
            moved = Path(folder) / "elsewhere"
            moved.mkdir()
            for file in [*Path(folder).glob("*.onnx"), *Path(folder).glob("*.ofx")]:
                file.rename(moved / file.name)
            assert_close(session(moved / path.name).run(None, feed), *wanted)


COMPILING = """
import sys, onnxruntime
library, model, out = sys.argv[1:]
onnxruntime.register_execution_provider_library("onnxfuse", library)
devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == "OnnxfuseExecutionProvider"]
settings = onnxruntime.SessionOptions()
if out:
    settings.add_session_config_entry("ep.context_enable", "1")
    settings.add_session_config_entry("ep.context_file_path", out)
settings.add_provider_for_devices(devices, {"cache.enable": "false"})
opened = onnxruntime.InferenceSession(model, settings, enable_fallback=0)
del opened
onnxruntime.unregister_execution_provider_library("onnxfuse")
"""


def test_parts_are_compiled_once():
    """As often as a plan is made of a model, the log tells what partition has made of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(feed_forward(), path)
        for out in ("", str(Path(folder) / "compiled.onnx")):
            done = subprocess.run([sys.executable, "-c", COMPILING, library, path, out], capture_output=True, text=True,
                                  env={**os.environ, "ONNXFUSE_DEBUG": "1"})
            assert done.returncode == 0, done.stderr
            plans = [line for line in done.stderr.splitlines() if line.startswith("onnxfuse: partition:") and "became 0 steps" not in line]  # those are constants
            assert len(plans) == 1, done.stderr
        close_to = expected(feed_forward(), {"x": random(3, 16)}, FEED_FORWARD)
        assert_close(session(Path(folder) / "compiled.onnx").run(None, {"x": random(3, 16)}), *close_to)


def test_compiled_models_with_other_nodes():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), not_supported("h", "s"),
             helper.make_node("Exp", ["s"], ["y"])]
    tested = model(nodes, [("x", FLOAT, ["n", 1, "m", 8])], [("y", FLOAT, None)], [weights("w", 8, 8), *HANDS_ON], domains=["com.microsoft"])
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "model.onnx"
        onnx.save(tested, original)
        path = compile_model(original, folder, "0")
        assert len(contexts(path)) == 2
        assert_close(session(path).run(None, {"x": random(3, 1, 2, 8)}), *expected(tested, {"x": random(3, 1, 2, 8)}, terms=8))


def test_compiled_models_by_the_compile_interface():
    with tempfile.TemporaryDirectory() as folder:
        original, path = Path(folder) / "model.onnx", Path(folder) / "out.onnx"
        onnx.save(feed_forward(), original)
        settings = onnxruntime.SessionOptions()
        settings.add_provider_for_devices(devices, {})
        onnxruntime.ModelCompiler(settings, str(original), embed_compiled_data_into_model=True).compile_to_file(str(path))
        assert_close(session(path).run(None, {"x": random(2, 16)}), *expected(original, {"x": random(2, 16)}, FEED_FORWARD))


def test_compiled_models_of_before_hold_onnx():
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "model.onnx"
        onnx.save(feed_forward(), original)
        path = compile_model(original, folder, "1")
        older = onnx.load(path)
        attributes = {a.name: a for a in older.graph.node[0].attribute}
        payload = onnx.load(original)
        node = older.graph.node[0]
        for kind in ("input", "output"):  # the part's own are called as the node's
            for value, name in zip(getattr(payload.graph, kind), getattr(node, kind)):
                assert value.name == name
        attributes["ep_cache_context"].s = payload.SerializeToString()
        attributes["ep_sdk_version"].s = b"onnxfuse 0.1.0"
        node.attribute.remove(attributes["notes"])
        onnx.save(older, path)
        assert_close(session(path).run(None, {"x": random(2, 16)}), *expected(original, {"x": random(2, 16)}, FEED_FORWARD))


def test_damaged_compiled_models_are_refused():
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / "model.onnx"
        onnx.save(feed_forward(), original)
        path = compile_model(original, folder, "0")
        file = Path(folder) / contexts(path)[0].attribute[[a.name for a in contexts(path)[0].attribute].index("ep_cache_context")].s.decode()
        assert file.suffix == ".ofx" and file.read_bytes()[:4] == b"\x93OFX"
        for at, message in [(100, "not what was written"), (4100, "damaged")]:  # of the header; of a section
            data = bytearray(file.read_bytes())
            data[at] ^= 1
            file.write_bytes(data)
            fails(lambda: session(path), "onnxfuse", message)
            data[at] ^= 1
            file.write_bytes(data)
        session(path)
        file.unlink()
        fails(lambda: session(path), "onnxfuse", file.name)


def main():
    global real, library, devices
    library, real = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    onnxruntime.register_execution_provider_library("onnxfuse", str(library))
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
    assert devices and devices[0].ep_vendor == "onnxfuse", devices
    onnxruntime.set_default_logger_severity(4)  # errors are expected here
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_")]
    if sys.argv[3:]:
        tests = [(name, test) for name, test in tests if name.startswith(tuple(sys.argv[3:]))]
    failed = 0
    for name, test in tests:
        try:
            test()
            print(f"ok    {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {name}")
            traceback.print_exc(limit=-4, file=sys.stdout)
    onnxruntime.unregister_execution_provider_library("onnxfuse")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
