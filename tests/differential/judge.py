# SPDX-License-Identifier: Apache-2.0
"""Whether our results are those of a model.

ONNX Runtime says what comes out, the onnx package's evaluator where it cannot. Numbers may differ by what rounding explains: each float on the
way is moved by as much as rounding may move it (tests/numeric/rounding.py has the formula), up or down, several times; four times the root
of the mean square of what that does to an element, and some last places, are its bound. So a comparison or a rounding that is at its edge may
fall either way, and nothing else may. Where a model differs, the smallest part that does is found (shrink), and the other evaluator asked."""

import sys
from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper

from engines import Ours, Reference, Refused, Runtime
from model import NEUTRAL, Source, graphs_of, is_float, is_text, of_node, older, reads, words

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "numeric"))
from rounding import ULPS, gamma, unit  # noqa: E402

DRAWS, DEVIATIONS = (8, 56, 400), 4  # more of them where fewer explain nothing
SURE = 16  # as many bounds are no matter of rounding, in whatever model
SPREAD = 3**0.5  # of a uniform number whose mean square is 1


def moved(rng, array, terms, op="", first=None):
    """A float after what rounding may have done to it: a node may be of two sums, and neither run is exact. op: a function of a library
    is also off by some places of the number that results end at, a transform by those of the largest, and what is weighed by a share, which
    ends at 1, by those of what that weighs: its input (first), or states and functions that end at 1."""
    wide = np.float64 if array.dtype == np.float64 else np.float32
    amount = 4 * gamma(max(terms, 1), wide) + 2 * float(unit(array.dtype))
    with np.errstate(all="ignore"):
        size = np.abs(array.astype(np.float64))
        largest = size[np.isfinite(size)].max(initial=0)
        if op in SHARES:
            ends_at = np.abs(first.astype(np.float64))
        else:
            ends_at = 0 if op in PLAIN else 2 * largest if op == "DFT" else max(1, largest) if op in GATED else min(1, largest)
        size = size * amount + 2 * ULPS * float(unit(wide)) * ends_at + np.where(array != 0, float(np.finfo(array.dtype).smallest_subnormal), 0)
        move = np.where(np.isfinite(size), size * rng.uniform(-SPREAD, SPREAD, array.shape), NEUTRAL)
        move = np.where((np.abs(array) < size) & (rng.integers(0, 4, array.shape) == 0), -array.astype(np.float64), move)  # it may be just 0
        result = array + np.where(move == 0, NEUTRAL, move).astype(array.dtype)
        return np.where((result == 0) & (size > 0), rng.choice([array.dtype.type(0), array.dtype.type(-0.0)], array.shape), result)


def last_steps(y, wide=np.float64):
    """Of what comes after the last sum; as rounding.last_steps, for every type and infinities. wide: what f64 may have been computed in."""
    size = np.abs(np.where(np.isfinite(y), y, 0).astype(np.float64))
    wide = wide if y.dtype == np.float64 else np.float32
    ends_at = min(1, size.max(initial=0))
    info = np.finfo(y.dtype)
    narrow = 2 * float(unit(y.dtype)) * size + float(info.smallest_subnormal) if y.dtype.itemsize < 4 else 0
    return 2 * ULPS * float(unit(wide)) * (size + ends_at) + float(np.finfo(wide).tiny) + narrow


def same_kind(a, b):
    """Whether two results are of one type and shape."""
    if isinstance(a, list) or isinstance(b, list):
        return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(map(same_kind, a, b))
    return (a.dtype == b.dtype or is_text(a) and is_text(b)) and a.shape == b.shape


def flat(results):
    for result in results:
        yield from flat(result) if isinstance(result, list) else [result]


class Judge:
    """Runs the model node by node, each by the first engine that takes it, and can move what is between them. rows: operators.ROWS;
    reference: the evaluator is asked first."""

    def __init__(self, model, rows, reference=False):
        self.model, self.engines = model, [Chosen(node, model.opset, rows, reference) for node in model.nodes]
        self.names = list(model.outputs)
        self.values = self.values_of(model.feeds())

    def alone(self):
        """Whether only one of the evaluators runs the model."""
        return all(engine.kinds == {Reference} for engine in self.engines)

    def values_of(self, feeds, move=None, look=None):
        """{name: value} of all nodes. move: (array, who made it, the first that it is made of) -> what it may be instead. look: sees each node before it is run, those of
        bodies in each turn."""
        known = {name: source.array for name, source in self.model.sources.items()} | feeds
        if move:
            for name, source in self.model.sources.items():
                if not source.exact and is_float(known[name]):
                    known[name] = move(known[name], "Constant", None)
        walk(self.engines, known, move, look)
        return known

    def wanted(self, values):
        return [values[name] for name in self.names]

    def bounds(self, feeds, values, draws):
        """Of each element of the outputs, how far another run may be from it; None: it may be of another shape, or fail."""
        rng, wanted = np.random.default_rng(7), self.wanted(values)
        coarse = np.float32 if any(is_float(x) and x.dtype != np.float64 for x in flat(values.values())) else np.float64
        terms = max((array.size for array in flat(values.values())), default=1)
        squares = [np.zeros(y.shape) for y in flat(wanted)]
        for _ in range(draws):
            try:
                with np.errstate(all="ignore"):
                    found = self.wanted(self.values_of(feeds, lambda x, op, first: moved(rng, x, terms, op, first)))
            except Refused:
                return None
            if not all(map(same_kind, found, wanted)):
                return None
            for at, (a, b) in enumerate(zip(flat(found), flat(wanted))):
                squares[at] += distance(a, b) ** 2
        return [DEVIATIONS * np.sqrt(s / draws) + (last_steps(y, coarse) if is_float(y) else 0) for s, y in zip(squares, flat(wanted))]


def walk(engines, known, move=None, look=None):
    """Runs nodes; known has what they read, and then what they make. A body whose nodes are moved or seen is run turn by turn as well."""
    for engine in engines:
        node = engine.node
        if look:
            look(node, known)
        results = engine.turns(known, move, look) if engine.bodies and (move or look) else None
        moves = move and not results and node.op_type not in EXACT
        for name, result in (results if results and move else engine(known)).items():
            known[name] = move(result, node.op_type, known.get(node.input[0]) if node.input else None) if moves and is_float(result) else result


# Operators that are no functions of a library, those that weigh by a share, and those that only move elements.
PLAIN = set("""Add Sub Mul Div Sum Neg Abs Max Min Relu Where Clip Sqrt Reciprocal MatMul Gemm Conv ReduceSum Round Floor Ceil Cast Pad Tile GatherElements GatherND
               ScatterElements ScatterND LeakyRelu PRelu MaxPool TopK Constant""".split())
SHARES = set("Gelu HardSwish Swish Mish".split())
GATED = set("RNN GRU LSTM Sigmoid".split())
EXACT = set("Identity Reshape Transpose Squeeze Unsqueeze Slice Split Concat Gather Expand Flatten".split())


class Chosen:
    """One node, run by what takes it: ONNX Runtime; at an older version that means the same; the reference evaluator, unless it is known to be
    wrong (Row.reference). Opened when the types that come are known."""

    def __init__(self, node, opset, rows, reference):
        self.node, self.opset, self.run, self.names = node, opset, None, sorted(reads(node))
        self.bodies = {a.name: (a.g, [Chosen(inner, opset, rows, reference) for inner in a.g.node]) for a in node.attribute if a.type == a.GRAPH}
        trusted = all(not (rows[word].reference if word in rows else "") for word in words(node))
        self.engines = [Reference] if reference else [Runtime, older_runtime] + [Reference] * trusted
        self.trusted, self.kinds = trusted, set()

    def __call__(self, known):
        feeds = {name: known[name] for name in self.names}
        made = [name for name in self.node.output if name]
        if self.node.op_type == "Constant" and self.node.attribute[0].name == "value":
            return {made[0]: numpy_helper.to_array(self.node.attribute[0].t)}
        if self.run:
            return dict(zip(made, self.run(feeds)))
        error = Refused(3, f"{self.node.op_type} is not trusted to the reference evaluator")
        for engine in self.engines:
            try:
                run = engine_of(engine, self.node, self.opset, feeds)
                results = run(feeds)
            except Refused as refused:
                error = refused
                continue
            if any(result is None for result in results):
                continue
            self.run = run
            self.kinds.add(Reference if engine is Reference else Runtime)
            return dict(zip(made, results))
        raise error

    def turns(self, known, move, look):
        """What the node makes, its bodies run turn by turn; None where no turn says what is stacked."""
        def turn(name, *given):
            graph, engines = self.bodies[name]
            inside = known | {value.name: array for value, array in zip(graph.input, given)}
            walk(engines, inside, move, look)
            return [inside[value.name] for value in graph.output]

        node, inputs, rows = self.node, [known[name] if name else None for name in self.node.input], []
        if node.op_type == "If":
            results = turn("then_branch" if inputs[0].item() else "else_branch")
        elif node.op_type == "Loop":
            trips, going, *state = inputs
            while len(rows) < (trips.item() if trips is not None else np.inf) and (going is None or going.item()):
                going, *made = turn("body", np.array(len(rows), np.int64), np.array(True), *state)
                state, rows = made[:len(state)], [*rows, made[len(state):]]
            results = state
        else:
            by, count = {a.name: helper.get_attribute_value(a) for a in node.attribute}, len(inputs)
            state, read = inputs[:count - by["num_scan_inputs"]], inputs[count - by["num_scan_inputs"]:]
            read = [a[::-1] if back else a for a, back in zip(read, by.get("scan_input_directions", [0] * len(read)))]
            for items in zip(*read):
                made = turn("body", *state, *items)
                state, rows = made[:len(state)], [*rows, made[len(state):]]
            results = state
        if node.op_type != "If":
            if not rows and len(results) < len(node.output):
                return None
            stacked = [np.stack(column) for column in zip(*rows)]
            back = by.get("scan_output_directions", [0] * len(stacked)) if node.op_type == "Scan" else [0] * len(stacked)
            results = [*results, *(a[::-1] if b else a for a, b in zip(stacked, back))]
        return dict(zip(node.output, results))


def older_runtime(model):
    return Runtime(model)


def engine_of(engine, node, opset, feeds):
    """The node as a model. The reference evaluator computes narrow floats as they are: it is given f32, as kernels compute in."""
    if engine is older_runtime and older(node, opset) == opset:
        raise Refused(3, "")
    run = engine(of_node(node, older(node, opset) if engine is older_runtime else opset, feeds))
    narrow = any(isinstance(x, np.ndarray) and x.dtype == np.float16 for x in feeds.values())
    if engine is not Reference or not narrow or any(graphs_of(node)):
        return run

    def widened(feeds):
        types = [r.dtype if isinstance(r, np.ndarray) else None for r in run(feeds)]
        results = run({name: x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float16 else x for name, x in feeds.items()})
        with np.errstate(over="ignore"):
            return [r.astype(dtype) if dtype else r for r, dtype in zip(results, types)]

    return widened


def distance(a, b):
    if is_text(a):
        return (a != b).astype(float)
    with np.errstate(all="ignore"):
        off = np.abs(a.astype(np.float64) - b.astype(np.float64))
        return np.where((a == b) | (np.isnan(a.astype(float)) & np.isnan(b.astype(float))), 0, np.where(np.isnan(off), np.inf, off))


def apart(found, wanted, bounds=None):
    """What is wrong with results, or None. Without bounds only the last steps may differ."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs, not {len(wanted)}"
    for at, (a, b) in enumerate(zip(found, wanted)):
        if not same_kind(a, b):
            return f"output {at} is {kind_of(a)}, not {kind_of(b)}"
    for at, (a, b) in enumerate(zip(flat(found), flat(wanted))):
        if is_text(b):
            wrong = a != b
        elif bounds is None and not is_float(b):
            wrong = a != b
        else:
            bound, far = bounds[at] if bounds is not None else last_steps(b), distance(a, b)
            with np.errstate(all="ignore"):
                wrong = np.where(np.isinf(bound), False, far > bound)
        if np.any(wrong):
            place = tuple(int(k) for k in np.unravel_index(np.argmax(wrong), np.shape(wrong)))
            by = f", by up to {np.max(far[wrong]) / max(np.abs(b[np.isfinite(b)].astype(float)).max(initial=0), 1e-300):.0e} of the largest" if is_float(b) else ""
            return f"output {at}{list(place)}: {a[place]}, not {b[place]}; {int(np.sum(wrong))} of {a.size} elements differ{by}"
    return None


def kind_of(value):
    return f"a sequence of {[kind_of(item) for item in value]}" if isinstance(value, list) else f"{value.dtype}{list(value.shape)}"


class Failure:
    def __init__(self, kind, message, model, feeds, found=None, wanted=None):
        self.kind, self.message, self.model, self.feeds, self.found, self.wanted = kind, message, model, feeds, found, wanted


def other_sizes(rng, model, rows, judge):
    """Feeds of other sizes, for which the standard says what comes out too."""
    ones = [] if any(node.op_type == "Squeeze" and len(node.input) + len(node.attribute) == 1 for node in model.nodes) else [1]
    sizes = {symbol: int(rng.choice([*ones, 2, 3, 4, 5, 7, 8, 10, 13, 17, 32])) if rng.random() > 0.03 else 0
             for source in model.sources.values() for symbol in source.sizes if symbol}
    if not sizes:
        return None
    feeds = {}
    for name, source in model.sources.items():
        if source.constant:
            continue
        if not source.sizes or not any(source.sizes):
            feeds[name] = source.array
            continue
        shape = tuple(sizes[symbol] if symbol else size for symbol, size in zip(source.sizes, source.array.shape))
        if not source.fill or np.prod(shape, dtype=np.int64) > 20000:
            return None
        feeds[name] = np.asarray(source.fill(rng, shape))

    try:
        known = judge.values_of(feeds, look=asks(rows))
    except (Refused, IndexError, ValueError):
        return None
    for node in model.nodes:
        outcomes = [known[name] for name in node.output if name]
        if any(array.size > 50000 for array in flat(arrays_only(outcomes))):
            return None
        if any(array.dtype == np.float16 and np.abs(array[~np.isnan(array)].astype(float)).max(initial=0) > 3e4 for array in flat(arrays_only(outcomes))):
            return None
    return feeds


def asks(rows):
    """A look that refuses a node whose operator's condition is not met."""

    def look(node, known):
        needs = rows[node.op_type].needs if node.op_type in rows else None
        if needs and not needs([known[name] if name else None for name in node.input], node):
            raise Refused(3, "a condition")

    return look


def arrays_only(values):
    return [value for value in values if value is not None]


def differs(library, rows, model, sets, judge=None, tell=lambda phase: None):
    """How often ours agreed at once, and within bounds; and the first Failure or None."""
    counts = {"equal": 0, "within": 0, "nobody": 0}
    tell("judging")
    try:
        judge = judge or Judge(model, rows)
    except Refused:
        counts["nobody"] += 1
        return counts, None
    tell("opening")
    try:
        ours = Ours(library, model.bytes(), model.threads)
    except Refused as refused:
        return counts, Failure("refused", f"{refused.code}: {refused}", model, sets[0])
    try:
        for feeds in sets:
            tell("judging")
            values = judge.values_of(feeds)
            wanted = judge.wanted(values)
            tell("running")
            try:
                found = ours(feeds)
            except Refused as refused:
                return counts, Failure("fails", f"{refused.code}: {refused}", model, feeds, None, wanted)
            tell("comparing")
            if not apart(found, wanted):
                counts["equal"] += 1
                continue
            for draws in DRAWS:
                bounds = judge.bounds(feeds, values, draws)
                message = bounds and apart(found, wanted, bounds)
                if not message:
                    break
            if message:
                return counts, Failure("differs", message, model, feeds, found, wanted)
            counts["within"] += 1
    finally:
        ours.close()
    return counts, None


def with_feeds(model, feeds, judge_values):
    """The model as if it had been drawn with these feeds."""
    sources = {name: Source(feeds.get(name, s.array), s.fill, s.sizes, s.constant, s.exact) for name, s in model.sources.items()}
    return model.with_(sources=sources, values={**model.values, **judge_values, **feeds})


def shrink(library, rows, failure, tell=lambda phase: None):
    """A failure of the same kind of as small a part of the model as can be found."""
    best = failure
    try:
        best.model = with_feeds(best.model, best.feeds, Judge(best.model, rows).values_of(best.feeds))
    except Refused:
        pass

    def attempt(model):
        nonlocal best
        model = model.pruned()
        if not model.nodes or not model.outputs:
            return False
        try:
            found = differs(library, rows, model, [model.feeds()], None, tell)[1]
        except Exception:  # a model that makes no sense
            return False
        if not found or found.kind != best.kind:
            return False
        best = found
        return True

    if len(best.model.outputs) > 1:
        any(attempt(best.model.with_(outputs=[name])) for name in best.model.outputs)
    changed = True
    while changed:
        changed = False
        for node in best.model.nodes[::-1]:
            made = [name for name in node.output if name]
            if not any(node is other for other in best.model.nodes) or len(best.model.nodes) == 1:
                continue
            # as an input; as the model's end
            nodes = [other for other in best.model.nodes if other is not node]
            sources = {**best.model.sources, **{name: Source(best.model.values[name]) for name in made}}
            ends = [name for name in best.model.outputs if name not in made]
            changed |= attempt(best.model.with_(nodes=nodes, sources=sources, outputs=ends)) or \
                made != best.model.outputs and attempt(best.model.with_(outputs=made))
    if best.model.open_sizes:
        attempt(best.model.with_(open_sizes=False))
    attempt(best.model.with_(threads=1))
    return best


def verdict(failure, rows):
    """Who is alone: "ours", "ONNX Runtime"; "all differ"; "two differ" where only two ran. And whether that is sure: what ours does not take, or
    where it is alone and off by many bounds."""
    if failure.kind != "differs":
        return failure.kind, True
    model = failure.model
    try:
        first = Judge(model, rows)
        values = first.values_of(failure.feeds)
        if first.alone() or not all(engine.trusted for engine in first.engines):
            return "two differ", False
        bounds = first.bounds(failure.feeds, values, DRAWS[-1])
        if not bounds:
            return "two differ", False
        other = first.wanted(Judge(model, rows, True).values_of(failure.feeds))
    except Refused:
        return "two differ", False
    fits = all(map(same_kind, first.wanted(values), other))
    if fits and not apart(other, first.wanted(values), bounds):
        return "ours", bool(apart(failure.found, other, [SURE * bound if is_float(y) else bound for bound, y in zip(bounds, flat(other))]))
    if fits:  # where the first one has 0, its bounds are those of 0
        bounds = [np.maximum(bound, last_steps(y)) if is_float(y) else bound for bound, y in zip(bounds, flat(other))]
    return "all differ" if apart(failure.found, other, bounds if fits else None) else "ONNX Runtime", False


def describe(model):
    """The model on one line."""

    def of(name):
        value = model.values.get(name)
        if not name:
            return "-"
        if not isinstance(value, np.ndarray):
            return f"sequence[{len(value)}]" if isinstance(value, list) else "?"
        source = model.sources.get(name)
        data = f"={value.tolist()}" if value.size <= 8 and np.prod([max(n, 1) for n in value.shape], dtype=float) <= 8 else ""
        return f"{'const ' if source and source.constant else ''}{value.dtype}{list(value.shape)}{data}"

    def attribute(a):
        if a.type in (a.GRAPH, a.TENSOR):
            return f"{a.name}=" + (f"({', '.join(n.op_type for n in a.g.node)})" if a.type == a.GRAPH else "tensor")
        return f"{a.name}={helper.get_attribute_value(a)}"

    nodes = [f"{node.op_type}({', '.join(map(of, node.input))}) {{{', '.join(attribute(a) for a in node.attribute)}}} -> {', '.join(map(of, node.output))}"
             for node in model.nodes]
    return f"opset {model.opset}{' open' if model.open_sizes else ''}: " + "; ".join(nodes)
