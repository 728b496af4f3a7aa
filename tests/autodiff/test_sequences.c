/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients through sequences that loops carry, or that bodies and branches read, against central differences. */
#include <criterion/criterion.h>

#include "differences.h"

/* A loop from `start` (a sequence), `count` iterations (a value's name), whose body also has x; its result is s. */
#define LOOP(count, start, shape, body)                                                                                \
    NUMBERS "s = onnx Loop@21 " count ", _, " start ", x captures 1 graph \"body\" (i: i64[], c: bool[], q: "          \
            "seq(f64[*]), x: f64" shape ") -> (c, r) {\nk = onnx Cast@13 i {to = 11}\n" body "\n}\n"
#define JOINED "a = onnx ConcatFromSequence@11 s {axis = 0}\ny = onnx Mul@14 a, a"
#define INSERTED "f = onnx Add@14 x, k\ng = onnx Mul@14 f, x\nr = onnx SequenceInsert@11 q, g"

static const Row rows[] = {
    /* inserted */
    {"from none, at the end, once", "x: f64[2]", LOOP("one", "empty", "[2]", INSERTED) JOINED, -2, 2, false, false},
    {"from none, at the end, five times", "x: f64[3]", LOOP("five", "empty", "[3]", INSERTED) JOINED, -2, 2, false,
     false},
    {"at the end, in no iteration", "x: f64[2]", LOOP("zero", "first", "[2]", INSERTED) JOINED, -2, 2, false, false},
    {"at the end, three times", "x: f64[2, 3]", LOOP("three", "first", "[2, 3]", INSERTED) JOINED, -2, 2, false, false},
    {"of a size that only the run knows", "x: f64[n]", LOOP("three", "first", "[n]", INSERTED) JOINED, -2, 2, false,
     false},
    {"of sizes that differ", "x: f64[2]",
     LOOP("three", "first", "[2]",
          "z = constant i64[1] {0}\nu = constant i64[] 1\nm = onnx Add@14 i, u\nj = onnx Unsqueeze@13 m, z\nt = onnx "
          "Tile@13 x, j\ng = onnx Mul@14 t, t\nr = onnx SequenceInsert@11 q, g") JOINED,
     -2, 2, false, false},
    {"in front", "x: f64[2]",
     LOOP("three", "first", "[2]",
          "p = constant i64[] 0\nf = onnx Add@14 x, k\ng = onnx Mul@14 f, x\nr = onnx SequenceInsert@11 q, g, p")
         JOINED,
     -2, 2, false, false},
    {"before the last, counted from the end", "x: f64[2]",
     LOOP("three", "first", "[2]",
          "p = constant i64[] -1\nf = onnx Add@14 x, k\ng = onnx Mul@14 f, x\nr = onnx SequenceInsert@11 q, g, p")
         JOINED,
     -2, 2, false, false},
    {"at a place that the iteration says", "x: f64[2]",
     LOOP("three", "first", "[2]", "f = onnx Add@14 x, k\ng = onnx Mul@14 f, x\nr = onnx SequenceInsert@11 q, g, i")
         JOINED,
     -2, 2, false, false},
    {"at a place that the length says", "x: f64[2]",
     LOOP("three", "first", "[2]",
          "l = onnx SequenceLength@11 q\nu = constant i64[] 1\np = onnx Sub@14 l, u\nf = onnx Add@14 x, k\ng = onnx "
          "Mul@14 f, x\nr = onnx SequenceInsert@11 q, g, p") JOINED,
     -2, 2, false, false},
    {"of which only one is read", "x: f64[2]",
     LOOP("four", "empty", "[2]", INSERTED) "a = onnx SequenceAt@11 s, two\ny = onnx Mul@14 a, a", -2, 2, false, false},
    {"of which only the first is read, which was there before", "x: f64[2]",
     LOOP("four", "first", "[2]", INSERTED) "a = onnx SequenceAt@11 s, zero\ny = onnx Mul@14 a, a", -2, 2, false,
     false},
    {"of which only the length is read", "x: f64[2]",
     LOOP("four", "first", "[2]",
          INSERTED) "a = onnx SequenceLength@11 s\nb = onnx Cast@13 a {to = 11}\ny = onnx Mul@14 x, b",
     -2, 2, false, false},
    /* taken out */
    {"the last erased", "x: f64[5, 2]",
     NUMBERS "e = onnx SplitToSequence@11 x, one {axis = 0}\ns = onnx Loop@21 three, _, e captures 0 graph \"body\" "
             "(i: i64[], c: bool[], q: seq(f64[*])) -> (c, r) {\nr = onnx SequenceErase@11 q\n}\n" JOINED,
     -2, 2, false, false},
    {"erased, multiplied by the one before and put back in front", "x: f64[5, 2]",
     NUMBERS "e = onnx SplitToSequence@11 x, one {axis = 0}\ns = onnx Loop@21 three, _, e captures 0 graph \"body\" "
             "(i: i64[], c: bool[], q: seq(f64[*])) -> (c, r) {\nl = constant i64[] -1\nz = constant i64[] 0\na = "
             "onnx SequenceAt@11 q, i\nb = onnx SequenceAt@11 q, l\nt = onnx SequenceErase@11 q, i\nd = onnx Mul@14 "
             "a, b\nr = onnx SequenceInsert@11 t, d, z\n}\n" JOINED,
     0.5, 1.5, false, false},
    /* read */
    {"the last read in each iteration", "x: f64[3]",
     LOOP("four", "first", "[3]",
          "l = constant i64[] -1\nh = onnx SequenceAt@11 q, l\nf = onnx Mul@14 h, x\ng = onnx Sin@7 f\nr = onnx "
          "SequenceInsert@11 q, g") JOINED,
     0.5, 1.5, false, false},
    {"the last read in each iteration, of a size that only the run knows", "x: f64[n]",
     LOOP("four", "first", "[n]",
          "l = constant i64[] -1\nh = onnx SequenceAt@11 q, l\nf = onnx Mul@14 h, x\ng = onnx Sin@7 f\nr = onnx "
          "SequenceInsert@11 q, g") JOINED,
     0.5, 1.5, false, false},
    {"all read in each iteration", "x: f64[2]",
     LOOP("three", "first", "[2]",
          "h = onnx ConcatFromSequence@11 q {axis = 0, new_axis = 1}\nm = onnx ReduceMean@13 h {axes = [0], keepdims = "
          "0}\nf = onnx Mul@14 m, x\ng = onnx Sin@7 f\nr = onnx SequenceInsert@11 q, g") JOINED,
     -2, 2, false, false},
    {"all read, in no iteration", "x: f64[2]",
     LOOP("zero", "first", "[2]",
          "h = onnx ConcatFromSequence@11 q {axis = 0, new_axis = 1}\nm = onnx ReduceMean@13 h {axes = [0], keepdims = "
          "0}\nf = onnx Mul@14 m, x\nr = onnx SequenceInsert@11 q, f") JOINED,
     -2, 2, false, false},
    {"made anew in each iteration", "x: f64[2]",
     LOOP("three", "first", "[2]",
          "z = constant i64[] 0\nh = onnx SequenceAt@11 q, z\nf = onnx Mul@14 h, x\nr = onnx SequenceConstruct@11 f, "
          "h") JOINED,
     0.5, 1.5, false, false},
    {"nothing reads it behind the loop, but what was stacked", "x: f64[2]",
     NUMBERS "s, b = onnx Loop@21 three, _, first, x captures 1 graph \"body\" (i: i64[], c: bool[], q: seq(f64[*]), "
             "x: f64[2]) -> (c, r, h) {\nl = constant i64[] -1\nh = onnx SequenceAt@11 q, l\nf = onnx Mul@14 h, x\nr = "
             "onnx SequenceInsert@11 q, f\n}\ny = onnx Mul@14 b, b",
     0.5, 1.5, false, false},
    {"two that change places", "x: f64[2]",
     NUMBERS
     "s, t = onnx Loop@21 three, _, first, empty, x captures 1 graph \"body\" (i: i64[], c: bool[], q: "
     "seq(f64[*]), o: seq(f64[*]), x: f64[2]) -> (c, r, q) {\nk = onnx Cast@13 i {to = 11}\nf = onnx Add@14 x, "
     "k\ng = onnx Mul@14 f, x\nr = onnx SequenceInsert@11 o, g\n}\nb = onnx ConcatFromSequence@11 s {axis = "
     "0}\nd = onnx ConcatFromSequence@11 t {axis = 0}\ne = onnx Concat@13 b, d {axis = 0}\ny = onnx Mul@14 e, e",
     -2, 2, false, false},
    {"of whole numbers, beside one of floats", "x: f64[2]",
     NUMBERS "places = onnx SequenceConstruct@11 two\ns, t = onnx Loop@21 three, _, first, places, x captures 1 graph "
             "\"body\" (i: i64[], c: bool[], q: seq(f64[*]), o: seq(i64[]), x: f64[2]) -> (c, r, v) {\nl = constant "
             "i64[] -1\nh = onnx SequenceAt@11 o, l\nk = onnx Cast@13 h {to = 11}\nf = onnx Mul@14 x, k\nr = onnx "
             "SequenceInsert@11 q, f\nj = onnx Add@14 h, i\nv = onnx SequenceInsert@11 o, j\n}\n" JOINED,
     -2, 2, false, false},
    /* how many iterations only the run knows */
    {"until its condition ends it", "x: f64[2]",
     NUMBERS
     "s = onnx Loop@21 _, _, first, x, three captures 2 graph \"body\" (i: i64[], c: bool[], q: seq(f64[*]), x: "
     "f64[2], m: i64[]) -> (o, r) {\nk = onnx Cast@13 i {to = 11}\n" INSERTED "\no = onnx Less@13 i, m\n}\n" JOINED,
     -2, 2, false, false},
    {"until it is long enough", "x: f64[2]",
     NUMBERS "s = onnx Loop@21 _, _, first, x, four captures 2 graph \"body\" (i: i64[], c: bool[], q: seq(f64[*]), x: "
             "f64[2], m: i64[]) -> (o, r) {\nk = onnx Cast@13 i {to = 11}\n" INSERTED
             "\nl = onnx SequenceLength@11 r\no = onnx Less@13 l, m\n}\n" JOINED,
     -2, 2, false, false},
    {"as long as the last is small", "x: f64[2]",
     NUMBERS "s = onnx Loop@21 _, _, first, x captures 1 graph \"body\" (i: i64[], c: bool[], q: seq(f64[*]), x: "
             "f64[2]) -> (o, r) {\nl = constant i64[] -1\nh = onnx SequenceAt@11 q, l\nf = onnx Mul@14 h, x\nr = onnx "
             "SequenceInsert@11 q, f\nm = onnx ReduceMax@13 f {keepdims = 0}\nb = constant f64[] 9\no = onnx Less@13 "
             "m, b\n}\n" JOINED,
     1.3, 1.9, false, false},
    /* read from outside */
    {"captured, each element in turn", "x: f64[4, 2]",
     NUMBERS
     "p = onnx SplitToSequence@11 x, one {axis = 0}\nz = constant f64[1, 2] {1, 1}\ny = onnx Loop@21 four, _, z, "
     "p captures 1 graph \"body\" (i: i64[], c: bool[], v: f64[1, 2], p: seq(f64[*])) -> (c, u) {\na = onnx "
     "SequenceAt@11 p, i\nb = onnx Mul@14 a, v\nu = onnx Add@14 a, b\n}",
     0.5, 1.5, false, false},
    {"captured, in no iteration", "x: f64[4, 2]",
     NUMBERS
     "p = onnx SplitToSequence@11 x, one {axis = 0}\nz = onnx SequenceAt@11 p, two\na = onnx Loop@21 zero, _, z, "
     "p captures 1 graph \"body\" (i: i64[], c: bool[], v: f64[1, 2], p: seq(f64[*])) -> (c, u) {\na = onnx "
     "SequenceAt@11 p, i\nu = onnx Mul@14 a, v\n}\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"captured, some elements twice and put into another one", "x: f64[4, 2]",
     NUMBERS "p = onnx SplitToSequence@11 x, one {axis = 0}\ns = onnx Loop@21 three, _, p, p captures 1 graph \"body\" "
             "(i: i64[], c: bool[], q: seq(f64[*]), p: seq(f64[*])) -> (c, r) {\nm = constant i64[] 2\na = onnx "
             "SequenceAt@11 p, i\nb = onnx SequenceAt@11 p, m\nd = onnx Mul@14 a, b\nr = onnx SequenceInsert@11 q, "
             "d\n}\n" JOINED,
     0.5, 1.5, false, false},
    {"captured by a Scan", "x: f64[4, 2]",
     NUMBERS "p = onnx SplitToSequence@11 x, one {axis = 0}\nw = constant i64[3] {0, 3, 3}\nz = constant f64[1, 2] {1, "
             "1}\na, b = onnx Scan@21 z, w, p {num_scan_inputs = 1} captures 1 graph \"body\" (v: f64[1, 2], i: i64[], "
             "p: seq(f64[*])) -> (u, t) {\nt = onnx SequenceAt@11 p, i\nu = onnx Mul@14 t, v\n}\nd = onnx ReduceSum@13 "
             "b {keepdims = 0}\ny = onnx Mul@14 a, d",
     0.5, 1.5, false, false},
    {"carried by a Scan", "x: f64[3, 2]",
     NUMBERS "s = onnx Scan@21 empty, x {num_scan_inputs = 1} captures 0 graph \"body\" (q: seq(f64[*]), v: f64[2]) -> "
             "(r) {\nt = onnx Mul@14 v, v\nr = onnx SequenceInsert@11 q, t\n}\n" JOINED,
     -2, 2, false, false},
    /* branches */
    {"put in by one branch, taken out by the other", "x: f64[2]",
     LOOP("five", "first", "[2]",
          "u = constant i64[] 2\nd = onnx Mod@13 i, u\nh = onnx Cast@13 d {to = 9}\nr = onnx If@21 h, q, x, k captures "
          "3 graph \"then\" (q: seq(f64[*]), x: f64[2], k: f64[]) -> (t) {\nt = onnx SequenceErase@11 q\n} graph "
          "\"else\" (q: seq(f64[*]), x: f64[2], k: f64[]) -> (e) {\nf = onnx Add@14 x, k\ng = onnx Mul@14 f, x\ne = "
          "onnx SequenceInsert@11 q, g\n}") JOINED,
     -2, 2, false, false},
    {"put in by one branch, left alone by the other", "x: f64[2]",
     LOOP("four", "first", "[2]",
          "u = constant i64[] 2\nh = onnx Less@13 i, u\nr = onnx If@21 h, q, x, k captures 3 graph \"then\" (q: "
          "seq(f64[*]), x: f64[2], k: f64[]) -> (t) {\nf = onnx Add@14 x, k\ng = onnx Mul@14 f, x\nt = onnx "
          "SequenceInsert@11 q, g\n} graph \"else\" (q: seq(f64[*]), x: f64[2], k: f64[]) -> (q) {\n}") JOINED,
     -2, 2, false, false},
    {"read by one branch in a loop", "x: f64[2]",
     LOOP("four", "first", "[2]",
          "u = constant i64[] 2\nh = onnx Less@13 i, u\ng = onnx If@21 h, q, x captures 2 graph \"then\" (q: "
          "seq(f64[*]), x: f64[2]) -> (t) {\nl = constant i64[] -1\na = onnx SequenceAt@11 q, l\nt = onnx Mul@14 a, "
          "x\n} graph \"else\" (q: seq(f64[*]), x: f64[2]) -> (e) {\ne = onnx Sin@7 x\n}\nr = onnx SequenceInsert@11 "
          "q, g") JOINED,
     -2, 2, false, false},
    {"read by both branches, one of which nothing depends on", "x: f64[4, 2]",
     NUMBERS
     "p = onnx SplitToSequence@11 x, one {axis = 0}\nh = onnx Less@13 one, two\na = onnx If@21 h, p captures 1 "
     "graph \"then\" (p: seq(f64[*])) -> (t) {\nu = constant i64[] 1\na = onnx SequenceAt@11 p, u\nt = onnx "
     "Mul@14 a, a\n} graph \"else\" (p: seq(f64[*])) -> (e) {\nm = onnx SequenceLength@11 p\nd = onnx Cast@13 m "
     "{to = 11}\nw = constant f64[1, 2] {1, 2}\ne = onnx Mul@14 d, w\n}\nb = onnx SequenceAt@11 p, last\ny = "
     "onnx Mul@14 a, b",
     -2, 2, false, false},
    {"read by both branches, the other one taken", "x: f64[4, 2]",
     NUMBERS
     "p = onnx SplitToSequence@11 x, one {axis = 0}\nh = onnx Less@13 two, one\na = onnx If@21 h, p captures 1 "
     "graph \"then\" (p: seq(f64[*])) -> (t) {\nu = constant i64[] 1\na = onnx SequenceAt@11 p, u\nt = onnx "
     "Mul@14 a, a\n} graph \"else\" (p: seq(f64[*])) -> (e) {\nm = onnx SequenceLength@11 p\nd = onnx Cast@13 m "
     "{to = 11}\nw = constant f64[1, 2] {1, 2}\ne = onnx Mul@14 d, w\n}\nb = onnx SequenceAt@11 p, last\ny = "
     "onnx Mul@14 a, b",
     -2, 2, false, false},
    {"a loop in a branch", "x: f64[2]",
     NUMBERS "h = onnx Less@13 one, two\ns = onnx If@21 h, first, x captures 2 graph \"then\" (o: seq(f64[*]), x: "
             "f64[2]) -> (t) {\nn = constant i64[] 3\nt = onnx Loop@21 n, _, o, x captures 1 graph \"body\" (i: i64[], "
             "c: bool[], q: seq(f64[*]), x: f64[2]) -> (c, r) {\nk = onnx Cast@13 i {to = 11}\n" INSERTED
             "\n}\n} graph \"else\" (o: seq(f64[*]), x: f64[2]) -> (o) {\n}\n" JOINED,
     -2, 2, false, false},
    /* loops in loops */
    {"carried through both loops", "x: f64[2]",
     LOOP("two", "first", "[2]",
          "n = constant i64[] 2\nr = onnx Loop@21 n, _, q, x, k captures 2 graph \"inner\" (j: i64[], c: bool[], p: "
          "seq(f64[*]), x: f64[2], m: f64[]) -> (c, t) {\nd = onnx Cast@13 j {to = 11}\ne = onnx Add@14 d, m\nf = onnx "
          "Mul@14 e, x\ng = onnx Mul@14 f, x\nt = onnx SequenceInsert@11 p, g\n}") JOINED,
     -2, 2, false, false},
    {"carried by one loop, read by one in it", "x: f64[2]",
     LOOP("three", "first", "[2]",
          "n = onnx SequenceLength@11 q\ng = onnx Loop@21 n, _, x, q captures 1 graph \"inner\" (j: i64[], c: bool[], "
          "v: f64[2], q: seq(f64[*])) -> (c, u) {\na = onnx SequenceAt@11 q, j\nb = onnx Mul@14 a, v\nu = onnx Sin@7 "
          "b\n}\nr = onnx SequenceInsert@11 q, g") JOINED,
     -2, 2, false, false},
    {"of each iteration its own", "x: f64[2]",
     NUMBERS
     "z = constant f64[2] {1, 2}\na = onnx Loop@21 two, _, z, x captures 1 graph \"outer\" (i: i64[], c: "
     "bool[], v: f64[2], x: f64[2]) -> (c, u2) {\no = onnx SequenceConstruct@11 v\nn = constant i64[] 2\ns = "
     "onnx Loop@21 n, _, o, x captures 1 graph \"inner\" (j: i64[], c: bool[], q: seq(f64[*]), x: f64[2]) -> "
     "(c, r) {\nl = constant i64[] -1\nh = onnx SequenceAt@11 q, l\nf = onnx Mul@14 h, x\nr = onnx "
     "SequenceInsert@11 q, f\n}\nm = onnx ConcatFromSequence@11 s {axis = 0, new_axis = 1}\nu = onnx "
     "ReduceSum@13 m {keepdims = 0}\nw = constant f64[2] {1, 1}\nu2 = onnx Mul@14 u, w\n}\ny = onnx Mul@14 a, a",
     0.5, 1.2, false, false},
    /* SequenceMap */
    {"mapped, with a tensor that all elements share, another sequence and a capture",
     "x: f64[4, 2], w: f64[2], z: f64[2]",
     NUMBERS
     "p = onnx SplitToSequence@11 x, one {axis = 0}\nv = onnx Sin@7 x\no = onnx SplitToSequence@11 v, one {axis = "
     "0}\ns, t = onnx SequenceMap@17 p, w, o, z captures 1 graph \"body\" (a: f64[1, 2], w: f64[2], b: f64[1, 2], "
     "z: f64[2]) -> (c, d) {\ne = onnx Mul@14 a, w\nc = onnx Mul@14 e, b\nd = onnx Add@14 e, z\n}\ng = onnx "
     "ConcatFromSequence@11 s {axis = 0}\nh = onnx SequenceAt@11 t, two\ny = onnx Mul@14 g, h",
     -2, 2, false, false},
    {"mapped, elements of sizes that only the run knows", "x: f64[n, 2]",
     NUMBERS
     "p = onnx SplitToSequence@11 x, two {axis = 0}\ns = onnx SequenceMap@17 p, x captures 1 graph \"body\" (a: "
     "f64[*], x: f64[n, 2]) -> (c) {\nt = onnx Transpose@13 x {perm = [1, 0]}\nm = onnx MatMul@13 a, t\nc = onnx "
     "Sin@7 m\n}\n" JOINED,
     -1, 1, false, false},
    {"mapped, with a capture that is a sequence", "x: f64[4, 2]",
     NUMBERS
     "p = onnx SplitToSequence@11 x, one {axis = 0}\ns = onnx SequenceMap@17 p, p captures 1 graph \"body\" (a: "
     "f64[1, 2], p: seq(f64[*])) -> (c) {\nu = constant i64[] 2\nb = onnx SequenceAt@11 p, u\nc = onnx Mul@14 a, "
     "b\n}\n" JOINED,
     -2, 2, false, false},
    {"mapped, none", "x: f64[4, 2], w: f64[2]",
     NUMBERS
     "p = onnx SplitToSequence@11 x, one {axis = 0}\nz = onnx Loop@21 four, _, p captures 0 graph \"body\" (i: "
     "i64[], c: bool[], q: seq(f64[1, 2])) -> (c, r) {\nr = onnx SequenceErase@11 q\n}\ns = onnx SequenceMap@17 z, w "
     "captures 0 graph \"body\" (a: f64[1, 2], w: f64[2]) -> (c) {\nc = onnx Mul@14 a, w\n}\nl = onnx "
     "SequenceInsert@11 s, x\na = onnx SequenceAt@11 l, zero\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"mapped in a loop", "x: f64[4, 2], w: f64[2]",
     NUMBERS
     "p = onnx SplitToSequence@11 x, one {axis = 0}\ns = onnx Loop@21 three, _, p, w captures 1 graph \"body\" (i: "
     "i64[], c: bool[], q: seq(f64[1, 2]), w: f64[2]) -> (c, r) {\nr = onnx SequenceMap@17 q, w captures 0 graph "
     "\"inner\" (a: f64[1, 2], w: f64[2]) -> (d) {\nb = onnx Mul@14 a, w\nd = onnx Sin@7 b\n}\n}\n" JOINED,
     -2, 2, false, false},
    /* tensors that are kept as elements of a sequence */
    {"tensors that grow", "x: f64[2]",
     NUMBERS "a = onnx Loop@21 three, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: f64[k]) -> (c, u) {\nw = "
             "onnx Mul@14 v, v\nu = onnx Concat@13 v, w {axis = 0}\n}\ny = onnx Mul@14 a, a",
     0.5, 1.1, false, false},
    {"tensors that grow, in no iteration", "x: f64[2]",
     NUMBERS "a = onnx Loop@21 zero, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: f64[k]) -> (c, u) {\nw = "
             "onnx Mul@14 v, v\nu = onnx Concat@13 v, w {axis = 0}\n}\ny = onnx Mul@14 a, a",
     0.5, 1.1, false, false},
    {"tensors that grow, of which only sums are read", "x: f64[n, 2], w: f64[2]",
     NUMBERS
     "a, b = onnx Loop@21 three, _, x, w captures 1 graph \"body\" (i: i64[], c: bool[], v: f64[k, 2], w: "
     "f64[2]) -> (c, u, s) {\nt = onnx Mul@14 v, w\nu = onnx Concat@13 v, t {axis = 0}\ns = onnx ReduceSum@13 t "
     "{keepdims = 0}\n}\ny = onnx Mul@14 b, b",
     0.5, 1.1, false, false},
    {"tensors that grow, of which the sizes alone are read", "x: f64[2]",
     NUMBERS
     "a, b = onnx Loop@21 three, _, x captures 0 graph \"body\" (i: i64[], c: bool[], v: f64[k]) -> (c, u, s) "
     "{\nf = constant f64[] 2\nw = onnx Mul@14 v, f\nu = onnx Concat@13 v, w {axis = 0}\ns = onnx ReduceSum@13 u "
     "{keepdims = 0}\n}\nc = onnx ReduceSum@13 b {keepdims = 0}\nd = onnx Mul@14 c, c\ny = onnx Mul@14 a, d",
     0.5, 1.1, false, false},
    {"tensors that shrink in a Scan", "x: f64[5], z: f64[3]",
     "a, b = onnx Scan@21 x, z {num_scan_inputs = 1, scan_input_directions = [1]} captures 0 graph \"body\" (v: "
     "f64[k], "
     "e: f64[]) -> (u, s) {\nf = constant i64[1] {1}\nl = constant i64[1] {9}\nt = onnx Slice@13 v, f, l\nu = onnx "
     "Mul@14 t, e\ns = onnx ReduceSum@13 v {keepdims = 0}\n}\nc = onnx ReduceSum@13 b {keepdims = 0}\ny = onnx Mul@14 "
     "a, c",
     0.5, 1.5, false, false},
    /* in straight code */
    {"pieces of which only one is read", "x: f64[4, 2]",
     NUMBERS "p = onnx SplitToSequence@11 x, one {axis = 0}\na = onnx SequenceAt@11 p, two\ny = onnx Mul@14 a, a", -2,
     2, false, false},
};

Test(sequences, have_gradients) { check_differences(rows, sizeof rows / sizeof *rows); }
