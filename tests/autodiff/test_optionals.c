/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients through optionals that branches give, loops carry, or bodies read, against central differences. */
#include <criterion/criterion.h>

#include "differences.h"

/* Comparisons of numbers that no pass can tell. */
#define YES NUMBERS "h = onnx Less@13 one, two\n"
#define NO NUMBERS "h = onnx Less@13 two, one\n"

/* o: an If over h: the square of x, or nothing. */
#define GIVEN                                                                                                          \
    "o = onnx If@21 h, x captures 1 graph \"then\" (x: f64[n]) -> (t) {\na = onnx Mul@14 x, x\nt = onnx "              \
    "Optional@15 a\n} graph \"else\" (x: f64[n]) -> (e) {\ne = onnx Optional@15 {type = 11}\n}\n"
/* g: what `o` holds times x, or sin x. */
#define READ(o)                                                                                                        \
    "b = onnx OptionalHasElement@18 " o "\ng = onnx If@21 b, " o                                                       \
    ", x captures 2 graph \"then\" (o: opt(f64[n]), x: f64[n]) -> (t) {\nf = onnx OptionalGetElement@18 o\nt = onnx "  \
    "Mul@14 f, x\n} graph \"else\" (o: opt(f64[n]), x: f64[n]) -> (e) {\ne = onnx Sin@7 x\n}\n"
#define NOTHING "start = onnx Optional@15 {type = 11}\n"
#define SOMETHING "start = onnx Optional@15 x\n"
#define LOOP(count, body)                                                                                              \
    "o = onnx Loop@21 " count ", _, start, x captures 1 graph \"body\" (i: i64[], c: bool[], q: opt(f64[n]), x: "      \
    "f64[n]) -> (c, r) {\nk = onnx Cast@13 i {to = 11}\n" body "\n}\n"
#define SQUARED "\ny = onnx Mul@14 g, g"

/* The same of sequences. */
#define NO_SEQUENCE "start = onnx Optional@15 {type = 11, type_kind = 1}\n"
#define LOOP_OF_SEQUENCES(count, body)                                                                                 \
    "o = onnx Loop@21 " count ", _, start, x captures 1 graph \"body\" (i: i64[], c: bool[], q: optseq(f64[*]), x: "   \
    "f64[2]) -> (c, r) {\nk = onnx Cast@13 i {to = 11}\n" body "\n}\n"
#define HELD_OR_NEW                                                                                                    \
    "b = onnx OptionalHasElement@18 q\ns = onnx If@21 b, q, x captures 2 graph \"then\" (o: optseq(f64[*]), x: "       \
    "f64[2]) -> (t) {\nt = onnx OptionalGetElement@18 o\n} graph \"else\" (o: optseq(f64[*]), x: f64[2]) -> (e) {\ne " \
    "= onnx SequenceConstruct@11 x\n}\n"

static const Row rows[] = {
    /* given by branches */
    {"given by the branch that is taken", "x: f64[n]", YES GIVEN READ("o") SQUARED, -2, 2, false, false},
    {"given empty by the branch that is taken", "x: f64[n]", NO GIVEN READ("o") SQUARED, -2, 2, false, false},
    {"given by one branch, what it would hold by the other", "x: f64[n]",
     NO "o = onnx If@21 h, x captures 1 graph \"then\" (x: f64[n]) -> (t) {\nt = onnx Optional@15 {type = 11}\n} "
        "graph \"else\" (x: f64[n]) -> (e) {\ne = onnx Mul@14 x, x\n}\n" READ("o") SQUARED,
     -2, 2, false, false},
    {"given by branches, and read by nothing but OptionalHasElement", "x: f64[n]",
     YES GIVEN "b = onnx OptionalHasElement@18 o\nd = onnx Cast@13 b {to = 11}\ny = onnx Mul@14 x, d", -2, 2, false,
     false},
    {"read twice", "x: f64[n]", YES GIVEN "d = onnx OptionalGetElement@18 o\n" READ("o") "y = onnx Mul@14 d, g", -2, 2,
     false, false},
    {"a sequence, given by the branch that is taken", "x: f64[2]",
     YES "o = onnx If@21 h, x captures 1 graph \"then\" (x: f64[2]) -> (t) {\na = onnx Mul@14 x, x\ns = onnx "
         "SequenceConstruct@11 a, x\nt = onnx Optional@15 s\n} graph \"else\" (x: f64[2]) -> (e) {\ne = onnx "
         "Optional@15 {type = 11, type_kind = 1}\n}\ns = onnx OptionalGetElement@18 o\na = onnx ConcatFromSequence@11 "
         "s {axis = 0}\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    {"a sequence, of which one element is read", "x: f64[2]",
     YES "o = onnx If@21 h, x captures 1 graph \"then\" (x: f64[2]) -> (t) {\na = onnx Mul@14 x, x\ns = onnx "
         "SequenceConstruct@11 a, x\nt = onnx Optional@15 s\n} graph \"else\" (x: f64[2]) -> (e) {\ne = onnx "
         "Optional@15 {type = 11, type_kind = 1}\n}\ns = onnx OptionalGetElement@18 o\na = onnx SequenceAt@11 s, "
         "zero\ny = onnx Mul@14 a, a",
     -2, 2, false, false},
    /* carried */
    {"carried, from nothing, in no iteration", "x: f64[n]",
     YES NOTHING LOOP("zero", READ("q") "r = onnx Optional@15 g") READ("o") SQUARED, -2, 2, false, false},
    {"carried, from something, in no iteration", "x: f64[n]",
     YES SOMETHING LOOP("zero", READ("q") "r = onnx Optional@15 g") READ("o") SQUARED, -2, 2, false, false},
    {"carried, from nothing", "x: f64[n]",
     YES NOTHING LOOP("three", READ("q") "r = onnx Optional@15 g") READ("o") SQUARED, 0.5, 1.2, false, false},
    {"carried, from something", "x: f64[n]",
     YES SOMETHING LOOP("three", READ("q") "r = onnx Optional@15 g") READ("o") SQUARED, 0.5, 1.2, false, false},
    {"carried, what it holds is what iterations make", "x: f64[n]",
     YES NOTHING LOOP("three", READ("q") "r = onnx Add@14 g, k") READ("o") SQUARED, 0.5, 1.2, false, false},
    {"carried, read without asking", "x: f64[2]",
     NUMBERS SOMETHING "o = onnx Loop@21 three, _, start, x captures 1 graph \"body\" (i: i64[], c: bool[], q: "
                       "opt(f64[2]), x: f64[2]) -> (c, r) {\nd = onnx OptionalGetElement@18 q\na = onnx Mul@14 d, x\nf "
                       "= onnx Sin@7 a\nr = onnx Optional@15 f\n}\ng = onnx OptionalGetElement@18 o" SQUARED,
     0.5, 1.2, false, false},
    {"carried, read without asking, of a size that differs", "x: f64[2]",
     NUMBERS SOMETHING
     "o = onnx Loop@21 three, _, start, x captures 1 graph \"body\" (i: i64[], c: bool[], q: opt(f64[m]), x: f64[2]) "
     "-> (c, r) {\nd = onnx OptionalGetElement@18 q\na = onnx Mul@14 d, d\nf = onnx Concat@13 a, x {axis = 0}\nr = "
     "onnx Optional@15 f\n}\ng = onnx OptionalGetElement@18 o" SQUARED,
     0.5, 1.1, false, false},
    {"carried, empty in every other iteration", "x: f64[n]",
     YES NOTHING LOOP("five", READ("q") "m = constant i64[] 2\nd = onnx Mod@13 i, m\nz = onnx Cast@13 d {to = 9}\nr = "
                                        "onnx If@21 z, g captures 1 graph \"then\" (g: f64[n]) -> (t) {\nt = onnx "
                                        "Optional@15 {type = 11}\n} graph \"else\" (g: f64[n]) -> (e) {\ne = onnx "
                                        "Optional@15 g\n}") READ("o") SQUARED,
     0.5, 1.2, false, false},
    {"carried, handed on as it is", "x: f64[n]",
     YES GIVEN "p, d = onnx Loop@21 three, _, o, x captures 1 graph \"body\" (i: i64[], c: bool[], q: opt(f64[n]), x: "
               "f64[n]) -> (c, q, g) {\n" READ("q") "}\ng = onnx ReduceSum@13 d {keepdims = 0}" SQUARED,
     -2, 2, false, false},
    {"two that change places", "x: f64[n]",
     YES NOTHING
     "o, p = onnx Loop@21 three, _, start, start, x captures 1 graph \"body\" (i: i64[], c: bool[], q: opt(f64[n]), v: "
     "opt(f64[n]), x: f64[n]) -> (c, r, q) {\n" READ("v") "r = onnx Optional@15 g\n}\nw = onnx OptionalGetElement@18 "
                                                          "p\n" READ("o") "y = onnx Mul@14 g, w",
     0.5, 1.2, false, false},
    {"carried by a Scan", "x: f64[n]",
     YES NOTHING "w = constant f64[3] {1, 2, 3}\no = onnx Scan@21 start, w, x {num_scan_inputs = 1} captures 1 graph "
                 "\"body\" (q: opt(f64[n]), v: f64[], x: f64[n]) -> (r) {\n" READ("q") "d = onnx Mul@14 g, v\nr = onnx "
                                                                                       "Optional@15 d\n}\n" READ("o")
                                                                                           SQUARED,
     0.5, 1.2, false, false},
    {"until its condition ends it", "x: f64[n]",
     YES NOTHING
     "o = onnx Loop@21 _, _, start, x, three captures 2 graph \"body\" (i: i64[], c: bool[], q: opt(f64[n]), x: "
     "f64[n], m: i64[]) -> (l, r) {\n" READ("q") "r = onnx Optional@15 g\nl = onnx Less@13 i, m\n}\n" READ("o") SQUARED,
     0.5, 1.1, false, false},
    {"a sequence, from nothing", "x: f64[2]",
     NUMBERS NO_SEQUENCE LOOP_OF_SEQUENCES("three", HELD_OR_NEW "f = onnx Add@14 x, k\ng = onnx Mul@14 f, x\nr = onnx "
                                                                "SequenceInsert@11 s, g") "s = onnx "
                                                                                          "OptionalGetElement@18 o\na "
                                                                                          "= onnx "
                                                                                          "ConcatFromSequence@11 s "
                                                                                          "{axis = 0}\ny = onnx Mul@14 "
                                                                                          "a, a",
     -2, 2, false, false},
    {"a sequence, whose last element is read", "x: f64[2]",
     NUMBERS NO_SEQUENCE LOOP_OF_SEQUENCES(
         "three", HELD_OR_NEW "l = constant i64[] -1\nf = onnx SequenceAt@11 s, l\ng = onnx Mul@14 f, x\nj = onnx "
                              "SequenceInsert@11 s, g\nr = onnx Optional@15 j") "s = onnx OptionalGetElement@18 o\na = "
                                                                                "onnx ConcatFromSequence@11 s {axis = "
                                                                                "0}\ny = onnx Mul@14 a, a",
     0.5, 1.2, false, false},
    {"a sequence, read without asking", "x: f64[2]",
     NUMBERS "start = onnx Optional@15 first\n" LOOP_OF_SEQUENCES(
         "three", "s = onnx OptionalGetElement@18 q\nl = constant i64[] -1\nf = onnx SequenceAt@11 s, l\ng = onnx "
                  "Mul@14 f, x\nj = onnx SequenceInsert@11 s, g\nr = onnx Optional@15 j") "s = onnx "
                                                                                          "OptionalGetElement@18 o\na "
                                                                                          "= onnx "
                                                                                          "ConcatFromSequence@11 s "
                                                                                          "{axis = 0}\ny = onnx Mul@14 "
                                                                                          "a, a",
     0.5, 1.2, false, false},
    /* captured */
    {"captured by a loop", "x: f64[n]",
     YES GIVEN
     "z = constant f64[] 1\nv = onnx Add@14 x, z\ng = onnx Loop@21 three, _, v, o, x captures 2 graph "
     "\"body\" (i: i64[], c: bool[], v: f64[n], o: opt(f64[n]), x: f64[n]) -> (c, u) {\n" READ("o") "u = "
                                                                                                    "onnx "
                                                                                                    "Mul@14 "
                                                                                                    "g, v\n}" SQUARED,
     0.5, 1.1, true, false},
    {"captured by a loop, empty", "x: f64[n]",
     NO GIVEN
     "z = constant f64[] 1\nv = onnx Add@14 x, z\ng = onnx Loop@21 three, _, v, o, x captures 2 graph "
     "\"body\" (i: i64[], c: bool[], v: f64[n], o: opt(f64[n]), x: f64[n]) -> (c, u) {\n" READ("o") "u = onnx "
                                                                                                    "Mul@14 "
                                                                                                    "g, v\n}" SQUARED,
     0.5, 1.1, false, false},
    {"captured by a Scan", "x: f64[n]",
     YES GIVEN "w = constant f64[3] {1, 2, 3}\nv = onnx Sin@7 x\ng = onnx Scan@21 v, w, o, x {num_scan_inputs = 1} "
               "captures 2 graph \"body\" (v: f64[n], e: f64[], o: opt(f64[n]), x: f64[n]) -> (u) {\n" READ(
                   "o") "d = onnx Mul@14 g, e\nu = onnx Add@14 d, v\n}" SQUARED,
     0.5, 1.1, false, false},
    {"captured by a SequenceMap", "x: f64[n]",
     YES GIVEN
     "m = onnx SequenceConstruct@11 x, x\np = onnx SequenceInsert@11 m, x, zero\nt = onnx SequenceMap@17 p, o, x "
     "captures 2 graph \"body\" (a: f64[n], o: opt(f64[n]), x: f64[n]) -> (u) {\n" READ(
         "o") "u = onnx Mul@14 g, a\n}\ng = onnx ConcatFromSequence@11 t {axis = 0}" SQUARED,
     -2, 2, false, false},
    /* in each other */
    {"carried by a loop in a loop", "x: f64[n]",
     YES NOTHING LOOP("two", "m = constant i64[] 2\nr = onnx Loop@21 m, _, q, x captures 1 graph \"inner\" (j: i64[], "
                             "d: bool[], q: opt(f64[n]), x: f64[n]) -> (d, t) {\n" READ("q") "t = onnx Optional@15 "
                                                                                             "g\n}") READ("o") SQUARED,
     0.5, 1.1, false, false},
    {"carried by a loop in a branch", "x: f64[n]",
     YES NOTHING "o = onnx If@21 h, start, x captures 2 graph \"then\" (start: opt(f64[n]), x: f64[n]) -> (o) {\nm = "
                 "constant i64[] 3\n" LOOP("m", READ("q") "r = onnx Optional@15 g") "} graph \"else\" (start: "
                                                                                    "opt(f64[n]), x: f64[n]) -> "
                                                                                    "(start) {\n}\n" READ("o") SQUARED,
     0.5, 1.2, false, false},
};

Test(optionals, have_gradients) { check_differences(rows, sizeof rows / sizeof *rows); }
