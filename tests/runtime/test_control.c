/* SPDX-License-Identifier: Apache-2.0 */
/* Control flow through whole sessions: a row is a model, its inputs and what must come out. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "models.h"

typedef struct Row {
    const char *name, *model;
    const char *inputs[MOST_VALUES], *outputs[MOST_VALUES];
} Row;

#define IF_MODEL                                                                                                       \
    "graph (c: bool[], x: f32[n]) -> (y) {\n"                                                                          \
    "y = onnx If@21 c, x captures 1 graph \"then\" (x: f32[n]) -> (a) {\n"                                             \
    "a = onnx Neg@21 x\n} graph \"else\" (x: f32[n]) -> (b) {\n"                                                       \
    "b = onnx Concat@21 x, x {axis = 0}\n}\n}\n"

#define SUM_LOOP                                                                                                       \
    "graph (m: i64[], c: bool[], x: f32[2]) -> (y, s) {\n"                                                             \
    "y, s = onnx Loop@21 m, c, x captures 0 graph \"body\" (i: i64[], c: bool[], v: f32[2]) -> (c, w, w) {\n"          \
    "w = onnx Add@21 v, v\n}\n}\n"

#define WHILE_LOOP                                                                                                     \
    "graph (x: f32[], limit: f32[]) -> (y, s) {\n"                                                                     \
    "t = constant bool[] true\n"                                                                                       \
    "y, s = onnx Loop@21 _, t, x, limit captures 1 graph \"body\" (i: i64[], c: bool[], v: f32[], limit: f32[]) -> "   \
    "(d, w, i) {\nw = onnx Add@21 v, v\nd = onnx Less@21 w, limit\n}\n}\n"

#define GROW_LOOP                                                                                                      \
    "graph (m: i64[], x: i64[k]) -> (y) {\n"                                                                           \
    "y = onnx Loop@21 m, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: i64[p]) -> (c, w) {\n"                \
    "axis = constant i64[1] {0}\nlast = onnx Unsqueeze@21 i, axis\nw = onnx Concat@21 v, last {axis = 0}\n}\n}\n"

#define NESTED_LOOP                                                                                                    \
    "graph (m: i64[], x: f32[1]) -> (y) {\n"                                                                           \
    "y = onnx Loop@21 m, _, x, m captures 1 graph \"outer\" (i: i64[], c: bool[], v: f32[1], m: i64[]) -> (c, w) {\n"  \
    "w = onnx Loop@21 m, _, v, v captures 1 graph \"inner\" (k: i64[], d: bool[], u: f32[1], v: f32[1]) -> (d, t) {\n" \
    "t = onnx Add@21 u, v\n}\n}\n}\n"

#define SCAN_SUM                                                                                                       \
    "graph (s: f32[2], x: f32[t, 2]) -> (y, z) {\n"                                                                    \
    "y, z = onnx Scan@21 s, x {num_scan_inputs = 1} captures 0 graph \"body\" (a: f32[2], b: f32[2]) -> (c, d) {\n"    \
    "c = onnx Add@21 a, b\nd = onnx Identity@21 c\n}\n}\n"

#define SCAN_BACK                                                                                                      \
    "graph (s: f32[2], x: f32[2, t]) -> (y, z) {\n"                                                                    \
    "y, z = onnx Scan@21 s, x {num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1], "              \
    "scan_output_axes = [1], scan_output_directions = [1]} captures 0 graph \"body\" (a: f32[2], b: f32[2]) -> (c, d)" \
    " {\nc = onnx Add@21 a, b\nd = onnx Identity@21 c\n}\n}\n"

#define IF_STRINGS                                                                                                     \
    "graph (c: bool[], x: string[2]) -> (y) {\n"                                                                       \
    "y = onnx If@21 c, x captures 1 graph \"then\" (x: string[2]) -> (a) {\n"                                          \
    "a = onnx Identity@21 x\n} graph \"else\" (x: string[2]) -> (b) {\n"                                               \
    "b = onnx StringConcat@21 x, x\n}\n}\n"

#define MAP_MODEL                                                                                                      \
    "graph (q: seq(f32[p]), x: f32[1]) -> (r) {\n"                                                                     \
    "r = onnx SequenceMap@21 q, x captures 0 graph \"body\" (a: f32[p], b: f32[1]) -> (c) {\n"                         \
    "c = onnx Mul@21 a, b\n}\n}\n"

/* The sum of each element's squares over all axes, as [1]. */
#define MAP_RANKS                                                                                                      \
    "graph (q: seq(f32[*])) -> (y) {\n"                                                                                \
    "r = onnx SequenceMap@21 q captures 0 graph \"body\" (a: f32[*]) -> (c) {\n"                                       \
    "s = onnx ReduceSumSquare@21 a {keepdims = 0}\none = constant i64[1] {1}\nc = onnx Reshape@21 s, one\n}\n"         \
    "y = onnx ConcatFromSequence@21 r {axis = 0}\n}\n"

/* r: x without its axis 1 where that is of size 1, else x, as exporters write x.squeeze(1). */
#define SQUEEZE(outputs)                                                                                               \
    "graph (x: f32[n, m]) -> (" outputs ") {\n"                                                                        \
    "sh = onnx Shape@21 x\none = constant i64[] 1\nm = onnx Gather@21 sh, one\nc = onnx Equal@21 m, one\n"             \
    "r = onnx If@21 c, x captures 1 graph \"then\" (x: f32[n, m]) -> (a) {\n"                                          \
    "axis = constant i64[1] {1}\na = onnx Squeeze@21 x, axis\n} graph \"else\" (x: f32[n, m]) -> (b) {\n"              \
    "b = onnx Identity@21 x\n}\n"

/* In a body that has axis 1 of x as a capture of open size. */
#define SQUEEZE_LOOP                                                                                                   \
    "graph (t: i64[], x: f32[n, m], z: f32[]) -> (y, s) {\n"                                                           \
    "sh = onnx Shape@21 x\none = constant i64[] 1\nm = onnx Gather@21 sh, one\nc = onnx Equal@21 m, one\n"             \
    "y, s = onnx Loop@21 t, _, z, c, x captures 2 graph \"body\" (i: i64[], k: bool[], v: f32[], c: bool[], x: "       \
    "f32[n, m])"                                                                                                       \
    " -> (k, w, r) {\n"                                                                                                \
    "r = onnx If@21 c, x captures 1 graph \"then\" (x: f32[n, m]) -> (a) {\n"                                          \
    "axis = constant i64[1] {1}\na = onnx Squeeze@21 x, axis\n} graph \"else\" (x: f32[n, m]) -> (b) {\n"              \
    "b = onnx Identity@21 x\n}\n"                                                                                      \
    "d = onnx Add@21 r, v\nw = onnx ReduceSum@21 d {keepdims = 0}\n}\n}\n"

/* One squeeze after the other: the second is of what the first has left. */
#define SQUEEZE_IN_BRANCHES                                                                                            \
    "graph (p: bool[], q: bool[], x: f32[n, 1, 1]) -> (r, y) {\n"                                                      \
    "r = onnx If@21 p, q, x captures 2 graph \"then\" (q: bool[], x: f32[n, 1, 1]) -> (a) {\n"                         \
    "a = onnx If@21 q, x captures 1 graph \"both\" (x: f32[n, 1, 1]) -> (u) {\n"                                       \
    "axes = constant i64[2] {1, 2}\nu = onnx Squeeze@21 x, axes\n} graph \"one\" (x: f32[n, 1, 1]) -> (w) {\n"         \
    "axes = constant i64[1] {2}\nw = onnx Squeeze@21 x, axes\n}\n} graph \"else\" (q: bool[], x: f32[n, 1, 1]) -> "    \
    "(b) {\n"                                                                                                          \
    "b = onnx Neg@21 x\n}\ny = onnx Shape@21 r\n}\n"

/* The branch is taken while the model is lowered, and what follows it is the tail of the If inside. */
#define KNOWN_AROUND_SQUEEZE                                                                                           \
    "graph (x: f32[n, m]) -> (y) {\n"                                                                                  \
    "sh = onnx Shape@21 x\none = constant i64[] 1\nm = onnx Gather@21 sh, one\nc = onnx Equal@21 m, one\n"             \
    "t = constant bool[] true\n"                                                                                       \
    "r = onnx If@21 t, c, x captures 2 graph \"taken\" (c: bool[], x: f32[n, m]) -> (q) {\n"                           \
    "q = onnx If@21 c, x captures 1 graph \"then\" (x: f32[n, m]) -> (a) {\n"                                          \
    "axis = constant i64[1] {1}\na = onnx Squeeze@21 x, axis\n} graph \"else\" (x: f32[n, m]) -> (b) {\n"              \
    "b = onnx Identity@21 x\n}\n} graph \"never\" (c: bool[], x: f32[n, m]) -> (z) {\nz = onnx Neg@21 x\n}\n"          \
    "y = onnx Neg@21 r\n}\n"
/* A loop that carries a sequence: `body` makes r of it, with a = x + i. */
#define SEQUENCE_LOOP(body)                                                                                            \
    "graph (n: i64[], q: seq(f32[p]), x: f32[1]) -> (y, z) {\n"                                                        \
    "s = onnx Loop@21 n, _, q, x captures 1 graph \"body\" (i: i64[], c: bool[], q: seq(f32[*]), x: f32[1]) -> "       \
    "(c, r) {\n"                                                                                                       \
    "f = onnx Cast@21 i {to = 1}\na = onnx Add@21 x, f\nzero = constant i64[] 0\n" body "}\n"                          \
    "y = onnx ConcatFromSequence@21 s {axis = 0}\nz = onnx ConcatFromSequence@21 q {axis = 0}\n}\n"

static const Row rows[] = {
    {"Loop that appends to a sequence, which is read after it",
     SEQUENCE_LOOP("r = onnx SequenceInsert@21 q, a\n"),
     {"i64[] 3", "seq f32[1] {7}", "f32[1] {1}"},
     {"f32[4] {7, 1, 2, 3}", "f32[1] {7}"}},
    {"Loop of no trips that would append",
     SEQUENCE_LOOP("r = onnx SequenceInsert@21 q, a\n"),
     {"i64[] 0", "seq f32[1] {7}", "f32[1] {1}"},
     {"f32[1] {7}", "f32[1] {7}"}},
    {"Loop that inserts before the first element",
     SEQUENCE_LOOP("r = onnx SequenceInsert@21 q, a, zero\n"),
     {"i64[] 9", "seq f32[1] {7}", "f32[1] {1}"},
     {"f32[10] {9, 8, 7, 6, 5, 4, 3, 2, 1, 7}", "f32[1] {7}"}},
    {"Loop that inserts two and erases one",
     SEQUENCE_LOOP("g = onnx SequenceInsert@21 q, a\nh = onnx SequenceInsert@21 g, a, zero\n"
                   "r = onnx SequenceErase@21 h\n"),
     {"i64[] 3", "seq f32[1] {7}", "f32[1] {1}"},
     {"f32[4] {3, 2, 1, 7}", "f32[1] {7}"}},
    {"Loop in which two read the sequence before it changes",
     SEQUENCE_LOOP("g = onnx SequenceInsert@21 q, a\nh = onnx SequenceInsert@21 q, x\n"
                   "k = onnx ConcatFromSequence@21 g {axis = 0}\nm = onnx ReduceSum@21 k {keepdims = 1}\n"
                   "r = onnx SequenceInsert@21 h, m\n"),
     {"i64[] 2", "seq f32[1] {7}", "f32[1] {1}"},
     {"f32[5] {7, 1, 8, 1, 18}", "f32[1] {7}"}},
    {"Loop that appends in a branch and hands the sequence on in the other",
     SEQUENCE_LOOP("two = constant i64[] 2\nk = onnx Mod@21 i, two\nb = onnx Cast@21 k {to = 9}\n"
                   "r = onnx If@21 b, q, a captures 2 graph \"then\" (q: seq(f32[*]), a: f32[1]) -> (u) {\n"
                   "u = onnx SequenceInsert@21 q, a\n} graph \"else\" (q: seq(f32[*]), a: f32[1]) -> (q) {\n}\n"),
     {"i64[] 6", "seq f32[1] {7}", "f32[1] {0}"},
     {"f32[4] {7, 1, 3, 5}", "f32[1] {7}"}},
    {"Loop in a loop that appends to the outer's sequence",
     SEQUENCE_LOOP("two = constant i64[] 2\n"
                   "r = onnx Loop@21 two, _, q, a captures 1 graph \"inner\" (j: i64[], d: bool[], p: seq(f32[*]), a: "
                   "f32[1]) -> (d, w) {\n"
                   "w = onnx SequenceInsert@21 p, a\n}\n"),
     {"i64[] 2", "seq f32[1] {7}", "f32[1] {1}"},
     {"f32[5] {7, 1, 1, 2, 2}", "f32[1] {7}"}},
    {"Loop in a loop that appends to a sequence which it captures as well",
     SEQUENCE_LOOP("two = constant i64[] 2\n"
                   "r = onnx Loop@21 two, _, q, q captures 1 graph \"inner\" (j: i64[], d: bool[], p: seq(f32[*]), q: "
                   "seq(f32[*])) -> (d, w) {\n"
                   "m = onnx ConcatFromSequence@21 q {axis = 0}\ns = onnx ReduceSum@21 m {keepdims = 1}\n"
                   "w = onnx SequenceInsert@21 p, s\n}\n"),
     {"i64[] 2", "seq f32[1] {1}", "f32[1] {1}"},
     {"f32[5] {1, 1, 1, 3, 3}", "f32[1] {1}"}},
    {"Loop that hands on the sequence of the trip before",
     "graph (n: i64[], q: seq(f32[p]), x: f32[1]) -> (y, z) {\n"
     "s, t = onnx Loop@21 n, _, q, q, x captures 1 graph \"body\" (i: i64[], c: bool[], q: seq(f32[*]), p: "
     "seq(f32[*]), "
     "x: f32[1]) -> (c, r, q) {\n"
     "r = onnx SequenceInsert@21 q, x\n}\n"
     "y = onnx ConcatFromSequence@21 s {axis = 0}\nz = onnx ConcatFromSequence@21 t {axis = 0}\n}\n",
     {"i64[] 3", "seq f32[1] {7}", "f32[1] {1}"},
     {"f32[4] {7, 1, 1, 1}", "f32[3] {7, 1, 1}"}},
    {"If of two ranks, its result an output: then", SQUEEZE("r") "}\n", {"f32[2, 1] {1, 2}"}, {"f32[2] {1, 2}"}},
    {"If of two ranks, its result an output: else", SQUEEZE("r") "}\n", {"f32[1, 2] {1, 2}"}, {"f32[1, 2] {1, 2}"}},
    {"If of two ranks before Shape: then",
     SQUEEZE("r, y") "y = onnx Shape@21 r\n}\n",
     {"f32[2, 1] {1, 2}"},
     {"f32[2] {1, 2}", "i64[1] {2}"}},
    {"If of two ranks before Shape: else",
     SQUEEZE("r, y") "y = onnx Shape@21 r\n}\n",
     {"f32[1, 2] {1, 2}"},
     {"f32[1, 2] {1, 2}", "i64[2] {1, 2}"}},
    {"If of two ranks in a branch that is known to be taken, read behind that: then",
     KNOWN_AROUND_SQUEEZE,
     {"f32[2, 1] {1, 2}"},
     {"f32[2] {-1, -2}"}},
    {"If of two ranks in a branch that is known to be taken, read behind that: else",
     KNOWN_AROUND_SQUEEZE,
     {"f32[1, 2] {1, 2}"},
     {"f32[1, 2] {-1, -2}"}},
    {"If of two ranks before Add with what stands behind it: then",
     SQUEEZE("y") "g = onnx Neg@21 x\ny = onnx Add@21 r, g\n}\n",
     {"f32[2, 1] {1, 2}"},
     {"f32[2, 2] {0, 1, -1, 0}"}},
    {"If of two ranks before Add with what stands behind it: else",
     SQUEEZE("y") "g = onnx Neg@21 x\ny = onnx Add@21 r, g\n}\n",
     {"f32[1, 2] {1, 2}"},
     {"f32[1, 2] {0, 0}"}},
    {"If of two ranks that meet in Reshape: then",
     SQUEEZE("y, z") "f = constant i64[2] {1, -1}\ny = onnx Reshape@21 r, f\nz = onnx Mul@21 y, y\n}\n",
     {"f32[3, 1] {1, 2, 3}"},
     {"f32[1, 3] {1, 2, 3}", "f32[1, 3] {1, 4, 9}"}},
    {"If of two ranks that meet in Reshape: else",
     SQUEEZE("y, z") "f = constant i64[2] {1, -1}\ny = onnx Reshape@21 r, f\nz = onnx Mul@21 y, y\n}\n",
     {"f32[2, 2] {1, 2, 3, 4}"},
     {"f32[1, 4] {1, 2, 3, 4}", "f32[1, 4] {1, 4, 9, 16}"}},
    {"If of two ranks, read on two ways that meet: then",
     SQUEEZE("y, e") "g = onnx Neg@21 r\nd = onnx ReduceSum@21 r {keepdims = 0}\ne = onnx Mul@21 d, d\ny = onnx Mul@21 "
                     "g, e\n}\n",
     {"f32[2, 1] {1, 2}"},
     {"f32[2] {-9, -18}", "f32[] 9"}},
    {"If of two ranks, read on two ways that meet: else",
     SQUEEZE("y, e") "g = onnx Neg@21 r\nd = onnx ReduceSum@21 r {keepdims = 0}\ne = onnx Mul@21 d, d\ny = onnx Mul@21 "
                     "g, e\n}\n",
     {"f32[1, 2] {1, 2}"},
     {"f32[1, 2] {-9, -18}", "f32[] 9"}},
    {"If of two ranks before what makes sense for one: then",
     SQUEEZE("y") "y = onnx Transpose@21 r {perm = [0]}\n}\n",
     {"f32[2, 1] {1, 2}"},
     {"f32[2] {1, 2}"}},
    {"If of two ranks in a loop: then",
     SQUEEZE_LOOP,
     {"i64[] 2", "f32[2, 1] {1, 2}", "f32[] 1"},
     {"f32[] 13", "f32[2, 2] {1, 2, 1, 2}"}},
    {"If of two ranks in a loop: else",
     SQUEEZE_LOOP,
     {"i64[] 2", "f32[1, 3] {1, 2, 3}", "f32[] 1"},
     {"f32[] 33", "f32[2, 1, 3] {1, 2, 3, 1, 2, 3}"}},
    {"If of three ranks in a branch: 1",
     SQUEEZE_IN_BRANCHES,
     {"bool[] true", "bool[] true", "f32[2, 1, 1] {1, 2}"},
     {"f32[2] {1, 2}", "i64[1] {2}"}},
    {"If of three ranks in a branch: 2",
     SQUEEZE_IN_BRANCHES,
     {"bool[] true", "bool[] false", "f32[2, 1, 1] {1, 2}"},
     {"f32[2, 1] {1, 2}", "i64[2] {2, 1}"}},
    {"If of three ranks in a branch: 3",
     SQUEEZE_IN_BRANCHES,
     {"bool[] false", "bool[] true", "f32[2, 1, 1] {1, 2}"},
     {"f32[2, 1, 1] {-1, -2}", "i64[3] {2, 1, 1}"}},
    {"If takes the then branch", IF_MODEL, {"bool[] true", "f32[2] {1, 2}"}, {"f32[2] {-1, -2}"}},
    {"If takes the else branch, whose result has another size",
     IF_MODEL,
     {"bool[] false", "f32[2] {1, 2}"},
     {"f32[4] {1, 2, 1, 2}"}},
    {"Loop runs its trip count and stacks scan values",
     SUM_LOOP,
     {"i64[] 3", "bool[] true", "f32[2] {1, 2}"},
     {"f32[2] {8, 16}", "f32[3, 2] {2, 4, 4, 8, 8, 16}"}},
    {"Loop of no trips gives its initial value and empty scan values",
     SUM_LOOP,
     {"i64[] 0", "bool[] true", "f32[2] {1, 2}"},
     {"f32[2] {1, 2}", "f32[0, 2] {}"}},
    {"Loop whose condition is false at once",
     SUM_LOOP,
     {"i64[] 3", "bool[] false", "f32[2] {1, 2}"},
     {"f32[2] {1, 2}", "f32[0, 2] {}"}},
    {"Loop of a negative trip count does nothing",
     SUM_LOOP,
     {"i64[] -5", "bool[] true", "f32[2] {1, 2}"},
     {"f32[2] {1, 2}", "f32[0, 2] {}"}},
    {"Loop ends when the body's condition is false",
     WHILE_LOOP,
     {"f32[] 1", "f32[] 10"},
     {"f32[] 16", "i64[4] {0, 1, 2, 3}"}},
    {"Loop whose carried value grows", GROW_LOOP, {"i64[] 3", "i64[1] {7}"}, {"i64[4] {7, 0, 1, 2}"}},
    {"Loop in a loop, reading the outer's value", NESTED_LOOP, {"i64[] 2", "f32[1] {1}"}, {"f32[1] {9}"}},
    {"Scan carries a state and stacks its values",
     SCAN_SUM,
     {"f32[2] {0, 0}", "f32[3, 2] {1, 2, 3, 4, 5, 6}"},
     {"f32[2] {9, 12}", "f32[3, 2] {1, 2, 4, 6, 9, 12}"}},
    {"Scan over nothing", SCAN_SUM, {"f32[2] {1, 2}", "f32[0, 2] {}"}, {"f32[2] {1, 2}", "f32[0, 2] {}"}},
    {"Scan backwards, along the last axis, stacked backwards",
     SCAN_BACK,
     {"f32[2] {0, 0}", "f32[2, 3] {1, 3, 5, 2, 4, 6}"},
     {"f32[2] {9, 12}", "f32[2, 3] {9, 8, 5, 12, 10, 6}"}},
    {"If of strings: then",
     IF_STRINGS,
     {"bool[] true", "string[2] {\"a\", \"longer than a view\"}"},
     {"string[2] {\"a\", \"longer than a view\"}"}},
    {"If of strings: else",
     IF_STRINGS,
     {"bool[] false", "string[2] {\"a\", \"longer than a view\"}"},
     {"string[2] {\"aa\", \"longer than a viewlonger than a view\"}"}},
    {"Loop that carries strings and stacks them",
     "graph (m: i64[], x: string[2]) -> (y, s) {\n"
     "y, s = onnx Loop@21 m, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: string[2]) -> (c, w, w) {\n"
     "w = onnx StringConcat@21 v, v\n}\n}\n",
     {"i64[] 2", "string[2] {\"a\", \"\"}"},
     {"string[2] {\"aaaa\", \"\"}", "string[2, 2] {\"aa\", \"\", \"aaaa\", \"\"}"}},
    {"Loop of no trips stacks no strings",
     "graph (m: i64[], x: string[2]) -> (y, s) {\n"
     "y, s = onnx Loop@21 m, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: string[2]) -> (c, w, w) {\n"
     "w = onnx StringConcat@21 v, v\n}\n}\n",
     {"i64[] 0", "string[2] {\"a\", \"b\"}"},
     {"string[2] {\"a\", \"b\"}", "string[0, 2] {}"}},
    {"Scan of strings along an inner axis, stacked backwards",
     "graph (s: string[2], x: string[2, t]) -> (y, z) {\n"
     "y, z = onnx Scan@21 s, x {num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1], "
     "scan_output_directions = [1]} captures 0 graph \"body\" (a: string[2], b: string[2]) -> (c, b) {\n"
     "c = onnx StringConcat@21 a, b\n}\n}\n",
     {"string[2] {\"<\", \">\"}", "string[2, 3] {\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"}"},
     {"string[2] {\"<abc\", \">def\"}", "string[2, 3] {\"c\", \"b\", \"a\", \"f\", \"e\", \"d\"}"}},
    {"SequenceMap over tensors of several shapes",
     MAP_MODEL,
     {"seq f32[1] {2} | f32[3] {1, 2, 3}", "f32[1] {10}"},
     {"seq f32[1] {20} | f32[3] {10, 20, 30}"}},
    {"SequenceMap over an empty sequence", MAP_MODEL, {"seq", "f32[1] {10}"}, {"seq"}},
    {"SequenceMap over tensors of several ranks",
     MAP_RANKS,
     {"seq f32[2] {1, 2} | f32[] 3 | f32[2, 2] {1, 1, 1, 2} | f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] {4} "
      "| f32[0, 3] {}"},
     {"f32[5] {5, 9, 7, 16, 0}"}},
    {"SequenceMap over an empty sequence of tensors of any rank",
     "graph (q: seq(f32[*])) -> (r) {\n"
     "r = onnx SequenceMap@21 q captures 0 graph \"body\" (a: f32[*]) -> (c) {\nc = onnx Neg@21 a\n}\n}\n",
     {"seq"},
     {"seq"}},
    {"SequenceMap over two sequences of several ranks, one element by element, beside a tensor and a capture",
     "graph (q: seq(f32[*]), p: seq(f32[*]), x: f32[n], z: f32[n]) -> (r, s) {\n"
     "r, s = onnx SequenceMap@21 q, p, x captures 0 graph \"body\" (a: f32[*], b: f32[*], x: f32[n]) -> (c, d) {\n"
     "m = onnx Mul@21 a, b\nc = onnx Add@21 m, x\nd = onnx Shape@21 a\n}\n}\n",
     {"seq f32[2] {1, 2} | f32[1, 2] {3, 4} | f32[] 5", "seq f32[] 10 | f32[2, 1] {1, 2} | f32[2] {1, 2}",
      "f32[2] {1, 0}", "f32[2] {0, 0}"},
     {"seq f32[2] {11, 20} | f32[2, 2] {4, 4, 7, 8} | f32[2] {6, 10}", "seq i64[1] {2} | i64[2] {1, 2} | i64[0] {}"}},
    {"SequenceMap over tensors of two ranks that are told one by one, with a capture",
     "graph (x: f32[2], y: f32[2, 2], z: f32[2]) -> (r) {\nq = onnx SequenceConstruct@21 x, y\n"
     "r = onnx SequenceMap@21 q, z captures 1 graph \"body\" (a: f32[*], z: f32[2]) -> (c) {\n"
     "c = onnx MatMul@21 a, z\n}\n}\n",
     {"f32[2] {1, 2}", "f32[2, 2] {1, 2, 3, 4}", "f32[2] {1, 10}"},
     {"seq f32[] 21 | f32[2] {21, 43}"}},
    {"SequenceMap of a body that makes sense for one rank, whose results are joined",
     "graph (q: seq(f32[*])) -> (y) {\n"
     "r = onnx SequenceMap@21 q captures 0 graph \"body\" (a: f32[*]) -> (c) {\n"
     "c = onnx Transpose@21 a {perm = [1, 0]}\n}\ny = onnx ConcatFromSequence@21 r {axis = 0}\n}\n",
     {"seq f32[2, 1] {1, 2} | f32[2, 2] {3, 4, 5, 6}"},
     {"f32[3, 2] {1, 2, 3, 5, 4, 6}"}},
    {"SequenceMap in a SequenceMap, both over tensors of several ranks",
     "graph (q: seq(f32[*]), p: seq(f32[*])) -> (r) {\n"
     "r = onnx SequenceMap@21 q, p captures 1 graph \"body\" (a: f32[*], p: seq(f32[*])) -> (c) {\n"
     "m = onnx SequenceMap@21 p captures 0 graph \"inner\" (b: f32[*]) -> (d) {\nd = onnx ReduceMax@21 b {keepdims = "
     "0}\n}\n"
     "j = onnx ConcatFromSequence@21 m {axis = 0, new_axis = 1}\ns = onnx ReduceSum@21 j {keepdims = 0}\n"
     "c = onnx Mul@21 a, s\n}\n}\n",
     {"seq f32[2] {1, 2} | f32[1, 1] {3}", "seq f32[] 1 | f32[2] {1, 3} | f32[2, 1, 1] {5, 2}"},
     {"seq f32[2] {9, 18} | f32[1, 1] {27}"}},
};

Test(control, rows) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseSession *session = must_open(rows[i].model);
        for (int again = 0; again < 3; again++) { /* memory of the first run serves the next */
            char *problem = run_and_compare(session, rows[i].inputs, rows[i].outputs);
            cr_expect(!problem, "%s: %s", rows[i].name, problem);
            free(problem);
        }
        onnxfuse_session_close(session);
    }
}

#define SCAN_8                                                                                                         \
    "opset 8\ngraph (l: i64[k], s: f32[b], x: f32[b, t]) -> (z, y) {\n"                                                \
    "z, y = onnx Scan@8 l, s, x {num_scan_inputs = 1} captures 0 graph \"body\" (p: f32[], q: f32[]) -> (r, r) {\n"    \
    "r = onnx Add@8 p, q\n}\n}\n"

static const struct {
    const char *name, *model, *inputs[MOST_VALUES], *message;
} failures[] = {
    {"a branch for which what follows makes no sense",
     SQUEEZE("y") "y = onnx Transpose@21 r {perm = [0]}\n}\n",
     {"f32[1, 2] {1, 2}"},
     "else branch would be taken, for whose results what follows cannot be computed: node \"Transpose"},
    {"a loop that can only end where there is no memory for its scan output",
     "graph (n: i64[], x: f32[2]) -> (y, z) {\n"
     "y, z = onnx Loop@21 n, _, x {carried = 1} captures 0 graph \"body\" (i: i64[], c: bool[], a: f32[2]) -> (c, b, "
     "b) {\n"
     "b = onnx Add@21 a, a\n}\n}\n",
     {"i64[] 9223372036854775807", "f32[2] {1, 2}"},
     "9223372036854775807 iterations with scan outputs of 8 bytes each"},
    {"an element of which the body makes no sense",
     "graph (q: seq(f32[*])) -> (r) {\n"
     "r = onnx SequenceMap@21 q captures 0 graph \"body\" (a: f32[*]) -> (c) {\n"
     "c = onnx Transpose@21 a {perm = [1, 0]}\n}\n}\n",
     {"seq f32[1, 2] {1, 2} | f32[1, 1, 2] {1, 2}"},
     "the body cannot be computed of an element of so many axes: node \"Transpose"},
    {"scan inputs of different lengths",
     "graph (x: f32[a], y: f32[b]) -> (z) {\n"
     "z = onnx Scan@21 x, y {num_scan_inputs = 2} captures 0 graph \"body\" (p: f32[], q: f32[]) -> (r) {\n"
     "r = onnx Add@21 p, q\n}\n}\n",
     {"f32[2] {1, 2}", "f32[3] {1, 2, 3}"},
     "length"},
    {"a sequence of a batch that ends behind the longest",
     SCAN_8,
     {"i64[2] {3, 4}", "f32[2] {0, 0}", "f32[2, 3] {1, 2, 3, 4, 5, 6}"},
     "sequence_lens[1] is 4, and the sequences have 3 elements"},
    {"a sequence of a batch that ends before it begins",
     SCAN_8,
     {"i64[2] {-1, 3}", "f32[2] {0, 0}", "f32[2, 3] {1, 2, 3, 4, 5, 6}"},
     "sequence_lens[0] is -1"},
    {"ends of the sequences of another batch",
     SCAN_8,
     {"i64[1] {3}", "f32[2] {0, 0}", "f32[2, 3] {1, 2, 3, 4, 5, 6}"},
     "1 lengths for a batch of 2"},
    {"a sequence position out of range",
     "graph (q: seq(f32[p]), i: i64[]) -> (y) {\ny = onnx SequenceAt@21 q, i\n}\n",
     {"seq f32[1] {1}", "i64[] 5"},
     "SequenceAt"},
    {"a position out of range in a loop that changes a sequence, found in the third trip",
     SEQUENCE_LOOP("g = onnx SequenceInsert@21 q, a\nh = onnx SequenceErase@21 g\nfour = constant i64[] 4\n"
                   "k = onnx Mul@21 four, i\nm = onnx SequenceInsert@21 h, a\n"
                   "r = onnx SequenceInsert@21 m, a, k\n"),
     {"i64[] 3", "seq f32[1] {7}", "f32[1] {1}"},
     "position 8 in a sequence of 6"},
    {"an index out of range in a loop's body, found in the third trip",
     "graph (m: i64[], x: f32[2]) -> (y) {\n"
     "z = constant f32[] 0\n"
     "y = onnx Loop@21 m, _, z, x captures 1 graph \"body\" (i: i64[], c: bool[], v: f32[], x: f32[2]) -> (c, w) {\n"
     "g = onnx Gather@21 x, i\nw = onnx Add@21 v, g\n}\n}\n",
     {"i64[] 3", "f32[2] {1, 2}"},
     "out of range"},
};

Test(control, failures) {
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        OnnxfuseSession *session = must_open(failures[i].model);
        const char *outputs[MOST_VALUES] = {NULL};
        char *problem = run_and_compare(session, failures[i].inputs, outputs);
        cr_expect(problem && strstr(problem, failures[i].message), "%s: %s", failures[i].name,
                  problem ? problem : "no error");
        free(problem);
        onnxfuse_session_close(session);
    }
}
