# SPDX-License-Identifier: Apache-2.0
"""Models with control flow, sequences and sizes that only a run knows, for run.py: a row a case, `FLOW[name] = (graph, [feeds, ...])`. Gradients are asked for with
respect to all initializers; the loss is y. Feeds that follow the first meet another branch, another number of iterations, or none."""
import numpy as np
from onnx import parser

X, STEPS, TABLE = np.array([0.5, 1.5]), np.array(3), np.arange(10.0).reshape(5, 2) / 5
NONE = np.array(0)
W = "double[2] w = {0.7, -1.3}"
WV = "double[2] w = {0.7, -1.3}, double[2] v = {0.3, 0.2}"
SUM = "y = ReduceSum<keepdims = 0>(z)"


def flow_model(graph, opset=21):
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {graph}')


def steps(count):
    return {"x": X, "n": np.array(count)}


FLOW = {
    "if": (
        f"""g (double[2] x, bool c) => (double y) <{WV}> {{
            z = If(c) <then_branch = t () => (double[2] a) {{ a = Mul(x, w) }},
                       else_branch = f () => (double[2] b) {{ q = Mul(x, v) b = Tanh(q) }}> {SUM} }}""",
        [{"x": X, "c": np.array(True)}, {"x": X, "c": np.array(False)}]),
    "if_optional": (
        f"""g (double[2] x, bool c) => (double y) <{WV}> {{
            o = If(c) <then_branch = t () => (optional(double[2]) a) {{ p = Mul(x, w) a = Optional(p) }},
                       else_branch = f () => (optional(double[2]) b) {{ q = Sin(v) b = Optional(q) }}>
            e = OptionalGetElement(o) z = Mul(e, w) {SUM} }}""",
        [{"x": X, "c": np.array(True)}, {"x": X, "c": np.array(False)}]),
    "if_empty_optional": (
        f"""g (double[2] x, bool c) => (double y) <{WV}> {{
            o = If(c) <then_branch = t () => (optional(double[2]) a) {{ p = Mul(x, w) a = Optional(p) }},
                       else_branch = f () => (optional(double[2]) b) {{ b = Optional<type = double[2]>() }}>
            h = OptionalHasElement(o)
            z = If(h) <then_branch = t2 () => (double[2] r) {{ e = OptionalGetElement(o) r = Mul(e, w) }},
                       else_branch = f2 () => (double[2] s) {{ s = Mul(v, v) }}> {SUM} }}""",
        [{"x": X, "c": np.array(True)}, {"x": X, "c": np.array(False)}]),
    "loop_optional": (
        f"""g (double[2] x, int64 n) => (double y) <{WV}> {{
            o = Optional(x)
            l = Loop(n, "", o) <body = b (int64 i, bool c, optional(double[2]) a) => (bool d, optional(double[2]) r) {{
                d = Identity(c) e = OptionalGetElement(a) p = Mul(e, w) q = Sin(p) r = Optional(q) }}>
            e2 = OptionalGetElement(l) z = Mul(e2, v) {SUM} }}""",
        [steps(3), steps(1), steps(0)]),
    "loop_for": (
        f"""g (double[2] x, int64 n) => (double y) <{W}> {{
            z = Loop(n, "", x) <body = b (int64 i, bool c, double[2] a) => (bool d, double[2] e) {{
                d = Identity(c) p = Mul(a, w) e = Sin(p) }}> {SUM} }}""",
        [steps(3), steps(0)]),
    "loop_while": (
        f"""g (double[2] x) => (double y) <{WV}> {{
            t = Constant<value = bool {{1}}>() most = Constant<value = double {{9}}>()
            z1, s = Loop("", t, x) <body = b (int64 i, bool c, double[2] a) => (bool d, double[2] e, double[2] o) {{
                p = Mul(a, w) p1 = Sigmoid(p) e = Add(a, p1) o = Mul(e, v) r = ReduceSum<keepdims = 0>(e) d = Less(r, most) }}>
            z2 = Tanh(s) z3 = Add(z1, z2) z = Sin(z3) {SUM} }}""",
        [{"x": X}, {"x": 4 * X}]),
    "loop_results": (
        f"""g (double[2] x, int64 n) => (double y) <{WV}> {{
            z1, s = Loop(n, "", x) <body = b (int64 i, bool c, double[2] a) => (bool d, double[2] e, double[2] o) {{
                d = Identity(c) p = Mul(a, w) e = Sin(p) o = Mul(e, v) }}>
            m = Shape(s) f = Cast<to = 11>(m) z2 = Concat<axis = 0>(z1, f) q = ReduceSum<keepdims = 0>(s) z = Mul(z2, q) {SUM} }}""",
        [steps(3), steps(0)]),
    "loop_in_loop": (
        f"""g (double[2] x, int64 n) => (double y) <{WV}> {{
            z = Loop(n, "", x) <body = b (int64 i, bool c, double[2] a) => (bool d, double[2] e) {{
                d = Identity(c)
                k = Loop(n, "", a) <body = b2 (int64 i2, bool c2, double[2] a2) => (bool d2, double[2] e2) {{
                    d2 = Identity(c2) p2 = Mul(a2, w) e2 = Sin(p2) }}>
                p = Mul(k, v) e = Add(p, a) }}> {SUM} }}""",
        [steps(3), steps(0)]),
    "loop_grows": (
        f"""g (double[2] x, int64 n) => (double y) <{W}> {{
            z1 = Loop(n, "", x) <body = b (int64 i, bool c, double[k] a) => (bool d, double[j] e) {{
                d = Identity(c) s = ReduceSum<keepdims = 1>(a) p = Mul(s, w) q = Sin(p) e = Concat<axis = 0>(a, q) }}>
            z = Mul(z1, z1) {SUM} }}""",
        [steps(3), steps(0)]),
    "sizes_in_body": (
        f"""g (double[n, k] x, int64 m) => (double y) <double[1, 1] w = {{0.7}}> {{
            z1 = Loop(m, "", x) <body = b (int64 i, bool c, double[n, k] a) => (bool d, double[n, k] e) {{
                d = Identity(c) aw = Mul(a, w) q = Softmax<axis = 1>(aw) s = Shape(x) all = ReduceProd<keepdims = 1>(s)
                line = Reshape(q, all) r = Sin(line) e = Reshape(r, s) }}>
            z = Mul(z1, z1) {SUM} }}""",
        [{"x": TABLE, "m": STEPS}, {"x": TABLE.T.copy(), "m": np.array(1)}]),
    "if_of_ranks": (
        f"""g (double[n, 2] x) => (double y) <{WV}> {{
            xw = Mul(x, w) rows = Shape<start = 0, end = 1>(x) one = Constant<value = int64[1] {{1}}>() is_one = Equal(rows, one)
            q = If(is_one) <then_branch = t () => (a) {{ axis = Constant<value = int64[1] {{0}}>() a = Squeeze(xw, axis) }},
                            else_branch = f () => (b) {{ b = Identity(xw) }}>
            p = Mul(q, v) z = Sin(p) {SUM} }}""",
        [{"x": TABLE}, {"x": TABLE[:1]}]),
    "branch_fails": (
        f"""g (double[n, 2] x) => (double y) <{WV}> {{
            xw = Mul(x, w) rows = Shape<start = 0, end = 1>(x) one = Constant<value = int64[1] {{1}}>() is_one = Equal(rows, one)
            q = If(is_one) <then_branch = t () => (a) {{ axis = Constant<value = int64[1] {{0}}>() a = Squeeze(xw, axis) }},
                            else_branch = f () => (b) {{ b = Identity(xw) }}>
            p = Mul(q, v) turned = Transpose<perm = [1, 0]>(p) z = Sin(turned) {SUM} }}""",
        [{"x": TABLE}]),
    "if_in_loop": (
        f"""g (double[2] x, int64 n) => (double y) <{WV}> {{
            one = Constant<value = int64 {{1}}>()
            z = Loop(n, "", x) <body = b (int64 i, bool c, double[2] a) => (bool d, double[2] e) {{
                d = Identity(c) g = Greater(i, one)
                e = If(g) <then_branch = t () => (double[2] r) {{ r = Mul(a, w) }},
                           else_branch = f () => (double[2] h) {{ p = Mul(a, v) h = Sin(p) }}> }}> {SUM} }}""",
        [steps(4), steps(0)]),
    "loop_in_if": (
        f"""g (double[2] x, bool c, int64 n) => (double y) <{WV}> {{
            z = If(c) <then_branch = t () => (double[2] a) {{
                           a = Loop(n, "", x) <body = b (int64 i, bool c1, double[2] a1) => (bool d, double[2] e1) {{
                               d = Identity(c1) p = Mul(a1, w) e1 = Sin(p) }}> }},
                       else_branch = f () => (double[2] h) {{ h = Mul(x, v) }}> {SUM} }}""",
        [{**steps(2), "c": np.array(True)}, {**steps(2), "c": np.array(False)}]),
    "scan": (
        f"""g (double[n, 2] x, double[2] s0) => (double y) <{WV}> {{
            z1, s = Scan(s0, x) <num_scan_inputs = 1, body = b (double[2] a, double[2] u) => (double[2] e, double[2] o) {{
                p = Mul(a, w) q = Add(p, u) e = Tanh(q) o = Mul(e, v) }}>
            z = Mul(z1, s) {SUM} }}""",
        [{"x": TABLE, "s0": X}]),
    "scan_axes": (
        f"""g (double[n, 2] x, double[2, n] x2, double[2] s0) => (double y) <{WV}> {{
            z1, s, r = Scan(s0, x, x2) <num_scan_inputs = 2, scan_input_axes = [0, 1], scan_input_directions = [1, 0],
                scan_output_axes = [1, -1], scan_output_directions = [1, 0],
                body = b (double[2] a, double[2] u, double[2] u2) => (double[2] e, double[2] o, double[2] o2) {{
                p = Mul(a, w) q = Add(p, u) q1 = Mul(q, u2) e = Tanh(q1) o = Mul(e, v) o2 = Sin(o) }}>
            z2 = Mul(s, r) z3 = Transpose(z2) z = Add(z3, z1) {SUM} }}""",
        [{"x": TABLE, "x2": TABLE.T.copy(), "s0": X}]),
    "scan_of_inputs": (
        f"""g (double[4, 2] t0) => (double y) <double[3, 2] w = {{0.1, 0.2, 0.3, -0.4, 0.5, 0.6}}> {{
            x = Tanh(w) s0 = ReduceSum<keepdims = 0>(t0)
            z1, s = Scan(s0, x) <num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [1],
                body = b (double a, double[2] u) => (double e, double[2] o) {{ q = ReduceProd<keepdims = 0>(u) e = Add(a, q) o = Mul(u, e) }}>
            z = Add(s, z1) {SUM} }}""",
        [{"t0": TABLE[:4]}]),
    "lstm_scan": (
        """g (double[t, b, 3] x) => (double y) <double[3, 8] W = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8, 0.9, -1, 1.1, 0.2, 0.3,
            0.4, -0.5, 0.6, 0.7, 0.8, -0.9, 1, 0.1, 0.2, 0.3, -0.4}, double[2, 8] R = {0.3, -0.2, 0.1, 0.5, -0.7, 0.2, 0.4, 0.6, 0.1, 0.9,
            -0.3, 0.2, 0.5, 0.4, -0.6, 0.2}, double[8] B = {0.1, 0.1, 0.2, -0.2, 0.3, 0.1, 0.2, 0.4}> {
            batch = Shape<start = 1, end = 2>(x) two = Constant<value = int64[1] {2}>() s = Concat<axis = 0>(batch, two)
            zero = Constant<value = double {0}>() h0 = Expand(zero, s)
            h, c, hs = Scan(h0, h0, x) <num_scan_inputs = 1,
                body = b (double[b, 2] h1, double[b, 2] c1, double[b, 3] u) => (double[b, 2] h2, double[b, 2] c2, double[b, 2] o2) {
                uw = MatMul(u, W) hr = MatMul(h1, R) a0 = Add(uw, hr) a = Add(a0, B) i0, o0, f0, g0 = Split<axis = 1, num_outputs = 4>(a)
                i = Sigmoid(i0) o = Sigmoid(o0) f = Sigmoid(f0) g1 = Tanh(g0) fc = Mul(f, c1) ig = Mul(i, g1) c2 = Add(fc, ig)
                tc = Tanh(c2) h2 = Mul(o, tc) o2 = Identity(h2) }>
            z = Mul(hs, c) y = ReduceSum<keepdims = 0>(z) }""",
        [{"x": np.sin(np.arange(30.0)).reshape(5, 2, 3)}]),
    "lstm_loop": (
        """g (double[t, b, 3] x) => (double y) <double[3, 8] W = {0.1, 0.2, -0.3, 0.4, 0.5, -0.6, 0.7, 0.8, 0.9, -1, 1.1, 0.2, 0.3,
            0.4, -0.5, 0.6, 0.7, 0.8, -0.9, 1, 0.1, 0.2, 0.3, -0.4}, double[2, 8] R = {0.3, -0.2, 0.1, 0.5, -0.7, 0.2, 0.4, 0.6, 0.1, 0.9,
            -0.3, 0.2, 0.5, 0.4, -0.6, 0.2}> {
            batch = Shape<start = 1, end = 2>(x) two = Constant<value = int64[1] {2}>() s = Concat<axis = 0>(batch, two)
            zero = Constant<value = double {0}>() h0 = Expand(zero, s) times = Shape<start = 0, end = 1>(x)
            h, c, hs = Loop(times, "", h0, h0) <
                body = b (int64 k, bool on, double[b, 2] h1, double[b, 2] c1) => (bool on2, double[b, 2] h2, double[b, 2] c2, double[b, 2] o2) {
                on2 = Identity(on) u = Gather<axis = 0>(x, k) uw = MatMul(u, W) hr = MatMul(h1, R) a = Add(uw, hr)
                i0, o0, f0, g0 = Split<axis = 1, num_outputs = 4>(a)
                i = Sigmoid(i0) o = Sigmoid(o0) f = Sigmoid(f0) g1 = Tanh(g0) fc = Mul(f, c1) ig = Mul(i, g1) c2 = Add(fc, ig)
                tc = Tanh(c2) h2 = Mul(o, tc) o2 = Identity(h2) }>
            q = ReduceSum<keepdims = 0>(hs) z = Add(q, c) y = ReduceSum<keepdims = 0>(z) }""",
        [{"x": np.sin(np.arange(30.0)).reshape(5, 2, 3)}, {"x": np.zeros((0, 2, 3))}]),
    "sequence_made": (
        f"""g (double[2] x, int64 n) => (double y) <{W}> {{
            s0 = SequenceEmpty<dtype = 11>()
            s = Loop(n, "", s0) <body = b (int64 i, bool c, seq(double[2]) q) => (bool d, seq(double[2]) u) {{
                d = Identity(c) f = Cast<to = 11>(i) p = Mul(x, w) p1 = Add(p, f) t = Sin(p1) u = SequenceInsert(q, t) }}>
            z = ConcatFromSequence<axis = 0>(s) {SUM} }}""",
        [steps(3), steps(1)]),
    "sequence_of_numbers": (
        f"""g (double[2] x, int64 n) => (double y) <{W}> {{
            s0 = SequenceEmpty<dtype = 11>() one = Constant<value = int64 {{1}}>() last = Constant<value = int64 {{-1}}>()
            s = Loop(n, "", s0) <body = b (int64 i, bool c, seq(double) q) => (bool d, seq(double) u) {{
                d = Identity(c) f = Cast<to = 11>(i) p = Mul(x, w) p1 = Mul(p, f) p2 = Sin(p1) t = ReduceSum<keepdims = 0>(p2)
                u = SequenceInsert(q, t) }}>
            a = SequenceAt(s, one) a2 = SequenceAt(s, last) y = Mul(a, a2) }}""",
        [steps(3), steps(2)]),
    "sequence_read": (
        f"""g (double[n, 2] x) => (double y) <{WV}> {{
            xw = Mul(x, w) s = SplitToSequence<axis = 0>(xw) n = SequenceLength(s) z0 = Constant<value = double[1, 2] {{0, 0}}>()
            first = Constant<value = int64 {{0}}>()
            z = Loop(n, "", z0) <body = b (int64 i, bool c, double[1, 2] a) => (bool d, double[1, 2] e) {{
                d = Identity(c) q = SequenceAt(s, i) q0 = SequenceAt(s, first) t = Mul(q, v) t1 = Add(t, q0) t2 = Sin(t1)
                e = Add(a, t2) }}> {SUM} }}""",
        [{"x": TABLE}]),
    "sequence_carried": (
        f"""g (double[2] x, int64 n) => (double y) <{WV}> {{
            s0 = SequenceConstruct(x, w) first = Constant<value = int64 {{0}}>()
            s, m = Loop(n, "", s0, x) <
                body = b (int64 i, bool c, seq(double[2]) q, double[2] m1) => (bool d, seq(double[2]) u, double[2] m2) {{
                d = Identity(c) r = SequenceAt(q, i) p = Mul(r, v) t = Sin(p) q1 = SequenceInsert(q, t) u = SequenceErase(q1, first)
                m2 = Add(m1, t) }}>
            j = ConcatFromSequence<axis = 0, new_axis = 1>(s) j2 = Mul(j, j) z = Add(j2, m) {SUM} }}""",
        [steps(1), steps(0)]),
    "sequence_read_whole": (
        f"""g (double[2] x, int64 n) => (double y) <{WV}> {{
            s0 = SequenceConstruct(x, w) axis = Constant<value = int64[1] {{0}}>()
            s, z = Loop(n, "", s0, x) <
                body = b (int64 i, bool c, seq(double[2]) q, double[2] m1) => (bool d, seq(double[2]) u, double[2] m2) {{
                d = Identity(c) r = ConcatFromSequence<axis = 0, new_axis = 1>(q) r1 = ReduceSum<keepdims = 0>(r, axis) p = Mul(r1, v)
                t = Sin(p) u = SequenceInsert(q, t) m2 = Add(m1, t) }}> {SUM} }}""",
        [steps(3), steps(0)]),
    "sequence_cut": (
        f"""g (double[n, 2] x, int64[k] sizes) => (double y) <{W}> {{
            xw = Mul(x, w) s = SplitToSequence<axis = 0>(xw, sizes) last = Constant<value = int64 {{-1}}>() a = SequenceAt(s, last)
            e = SequenceErase(s) f = SequenceInsert(e, a, last) j = ConcatFromSequence<axis = 0>(f) j2 = Mul(j, j)
            b = SequenceAt(f, last) b1 = Sin(b) s1 = ReduceSum<keepdims = 0>(a) s2 = ReduceSum<keepdims = 0>(b1) s3 = Mul(s1, s2)
            z = Add(j2, s3) {SUM} }}""",
        [{"x": TABLE, "sizes": np.array([2, 1, 2])}, {"x": TABLE, "sizes": np.array([2, 3])}]),
    "sequence_in_if": (
        f"""g (double[n, 2] x, bool c) => (double y) <{WV}> {{
            xw = Mul(x, w) s = SplitToSequence<axis = 0>(xw)
            t = If(c) <then_branch = t1 () => (seq(double[1, 2]) u) {{ u = SequenceErase(s) }},
                       else_branch = f1 () => (seq(double[1, 2]) r) {{ xv = Mul(x, v) r = SplitToSequence<axis = 0>(xv) }}>
            z0 = ConcatFromSequence<axis = 0>(t) z = Sin(z0) {SUM} }}""",
        [{"x": TABLE, "c": np.array(True)}, {"x": TABLE, "c": np.array(False)}]),
    "sequence_map": (
        f"""g (double[n, 2] x) => (double y) <{WV}> {{
            xw = Mul(x, w) s = SplitToSequence<axis = 0>(xw) vv = Mul(v, v) first = Constant<value = int64 {{0}}>()
            t, t2 = SequenceMap(s, x) <body = b (double[1, 2] a, double[n, 2] all) => (double[1, 2] e, double r) {{
                p = Mul(a, vv) e = Sin(p) q = Mul(all, a) r = ReduceSum<keepdims = 0>(q) }}>
            z1 = SequenceAt(t, first) z2 = ConcatFromSequence<axis = 0, new_axis = 1>(t2) z3 = ReduceSum<keepdims = 0>(z2) z = Add(z1, z3) {SUM} }}""",
        [{"x": TABLE}]),
    "sequence_in_nested_loops": (
        f"""g (double[2] x, int64 n) => (double y) <{WV}> {{
            axis = Constant<value = int64[1] {{0}}>()
            z = Loop(n, "", x) <body = b (int64 i, bool c, double[2] a) => (bool d, double[2] e) {{
                d = Identity(c) s0 = SequenceEmpty<dtype = 11>()
                s = Loop(n, "", s0) <body = b2 (int64 i2, bool c2, seq(double[2]) q) => (bool d2, seq(double[2]) u) {{
                    d2 = Identity(c2) f = Cast<to = 11>(i2) p2 = Mul(a, w) p3 = Add(p2, f) e2 = Sin(p3) u = SequenceInsert(q, e2) }}>
                j = ConcatFromSequence<axis = 0, new_axis = 1>(s) r = ReduceSum<keepdims = 0>(j, axis) e = Mul(r, v) }}> {SUM} }}""",
        [steps(3), steps(0)]),
    "top_k": (
        f"""g (double[n, 2] x, int64[1] k) => (double y) <{WV}> {{
            xw = Mul(x, w) m = Sin(xw) t, places = TopK<axis = 0, largest = 0>(m, k) f = Cast<to = 11>(places) tf = Mul(t, f) z = Mul(tf, v) {SUM} }}""",
        [{"x": TABLE, "k": np.array([3])}]),
    "running_sum": (
        f"""g (double[n, 2] x) => (double y) <{W}> {{
            xw = Mul(x, w) axis = Constant<value = int64 {{0}}>() s = CumSum<exclusive = 1, reverse = 1>(xw, axis) z = Sin(s) {SUM} }}""",
        [{"x": TABLE}]),
    "axes_of_the_run": (
        f"""g (double[n, 2] x, int64[1] axes) => (double y) <{WV}> {{
            xw = Mul(x, w) s = Sin(xw) m = ReduceMax(s, axes) p = ReduceProd(s, axes) q = Add(m, p) q1 = ReduceMean(s, axes) q2 = Mul(q, q1) z = Mul(q2, v) {SUM} }}""",
        [{"x": TABLE + 0.3, "axes": np.array([0])}, {"x": TABLE + 0.3, "axes": np.array([-1])}]),
    "places_of_the_run": (
        f"""g (double[n, 2] x, int64[2] from, int64[2] to, bool[k] taken, int64[2] shape, int64[4] pads) => (double y) <{WV}> {{
            xw = Mul(x, w) s = Slice(xw, from, to) c = Compress<axis = 0>(xw, taken) cv = Mul(c, v) r = Reshape(s, shape) p = Pad(cv, pads)
            hits = NonZero(taken) f = Cast<to = 11>(hits) s1 = Sin(r) s2 = Sin(p) a = ReduceSum<keepdims = 0>(s1) b = ReduceSum<keepdims = 0>(s2)
            h = ReduceSum<keepdims = 0>(f) ab = Add(a, b) z = Mul(ab, h) {SUM} }}""",
        [{"x": TABLE, "from": np.array([1, -2]), "to": np.array([-1, 9]), "taken": np.array([True, False, True, True, False]), "shape": np.array([-1, 3]),
          "pads": np.array([1, 0, 2, -1])},
         {"x": TABLE, "from": np.array([0, 0]), "to": np.array([4, 1]), "taken": np.array([False, True, False, False, False]), "shape": np.array([0, -1]),
          "pads": np.array([0, -1, -1, 3])}]),
    "axes_of_slices": (
        f"""g (double[n, 2] x, int64[1] from, int64[1] to, int64[1] axes, int64[1] steps, int64 last) => (double y) <{WV}> {{
            xw = Mul(x, w) s = Slice(xw, from, to, axes, steps) sw = Sin(s) a = ReduceSum<keepdims = 0>(sw) none = Constant<value = int64 {{0}}>()
            one = Constant<value = int64 {{1}}>() line = Range(none, last, one) f = Cast<to = 11>(line) q = ReduceSum<keepdims = 0>(f) rows = Gather<axis = 0>(x, line)
            b = Mul(rows, v) c = Mul(b, a) z = Mul(c, q) {SUM} }}""",
        [{"x": TABLE, "from": np.array([4]), "to": np.array([0]), "axes": np.array([0]), "steps": np.array([-2]), "last": np.array(3)}]),
    "images_in_body": (
        f"""g (double[n, 2] x, int64 m) => (double y) <double[1, 1, 2, 2] w = {{0.3, -0.4, 1.7, 0.1}}, double[1] v = {{0.8}}> {{
            image = Constant<value = int64[4] {{1, 1, -1, 2}}>() a0 = Reshape(x, image) rois = Constant<value = double[1, 4] {{0.2, 0.1, 1.9, 2.3}}>()
            first = Constant<value = int64[1] {{0}}>()
            z = Loop(m, "", a0) <body = b (int64 i, bool c, double[1, 1, h, 2] a) => (bool d, double[1, 1, k, 2] e) {{
                d = Identity(c) p = Mul(a, v) s = GridSample<padding_mode = "reflection">(p, w) q = Sin(s)
                t = RoiAlign<output_height = 1, output_width = 2>(q, rois, first) u = Sin(t) e = Add(p, u) }}> {SUM} }}""",
        [{"x": TABLE, "m": np.array(3)}, {"x": TABLE[:2], "m": np.array(1)}]),
}
