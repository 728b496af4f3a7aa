/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of an epilogue's body as bias, residual, bounds and gates, and where the reading ends. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "lowering/anchor/plain_epilogue.h"

/* The body of an anchor of x f32[n, 8] by w f32[8, 4]: its inputs are the raw result r, b f32[4], c f32[4], a and d
 * f32[n, 4], s f32[1], m f32[n, 1]: in this order, the node's inputs 2 to 7. Lines of a few words: `v = add r, b`. */
#define INPUTS "b, c, a, d, s, m"
enum { BIAS = 2, OTHER_BIAS, ADDEND, OTHER_ADDEND };
enum { NONE = -1 };
#define FREE (double)INFINITY

typedef struct Row {
    const char *name, *body, *result; /* result: outputs of the body */
    const char *end;                  /* the value up to which it is plain */
    bool whole;
    int bias, addend;
    double low, high; /* without bounds: -FREE, FREE */
} Row;

static const Row rows[] = {
    {"nothing", "", "r", "r", true, NONE, NONE, -FREE, FREE},
    {"a bias", "v = add r, b\n", "v", "v", true, BIAS, NONE, -FREE, FREE},
    {"a bias on the left", "v = add b, r\n", "v", "v", true, BIAS, NONE, -FREE, FREE},
    {"a residual", "v = add r, a\n", "v", "v", true, NONE, ADDEND, -FREE, FREE},
    {"a residual on the left", "v = add a, r\n", "v", "v", true, NONE, ADDEND, -FREE, FREE},
    {"both", "u = add r, b\nv = add u, a\n", "v", "v", true, BIAS, ADDEND, -FREE, FREE},
    {"both in the other order", "u = add d, r\nv = add c, u\n", "v", "v", true, OTHER_BIAS, OTHER_ADDEND, -FREE, FREE},
    {"ReLU", "v = max r, zero\n", "v", "v", true, NONE, NONE, 0, FREE},
    {"ReLU with the zero first", "v = max zero, r\n", "v", "v", true, NONE, NONE, 0, FREE},
    {"an upper bound", "v = min r, six\n", "v", "v", true, NONE, NONE, -FREE, 6},
    {"both bounds", "u = max r, zero\nv = min u, six\n", "v", "v", true, NONE, NONE, 0, 6},
    {"both bounds, the upper one first", "u = min r, six\nv = max u, zero\n", "v", "v", true, NONE, NONE, 0, 6},
    {"bounds of one number", "u = max r, six\nv = min u, six\n", "v", "v", true, NONE, NONE, 6, 6},
    {"bias, residual and bounds", "t = add r, b\nu = add t, a\nz = max u, zero\nv = min z, six\n", "v", "v", true, BIAS,
     ADDEND, 0, 6},

    {"bounds that leave nothing", "u = max r, six\nv = min u, zero\n", "v", "u", false, NONE, NONE, 6, FREE},
    {"a second lower bound", "u = max r, zero\nv = max u, six\n", "v", "u", false, NONE, NONE, 0, FREE},
    {"a second upper bound", "u = min r, six\nv = min u, zero\n", "v", "u", false, NONE, NONE, -FREE, 6},
    {"a bound that is NaN", "v = max r, nan\n", "v", "r", false, NONE, NONE, -FREE, FREE},
    {"a bound of several numbers", "v = max r, four\n", "v", "r", false, NONE, NONE, -FREE, FREE},
    {"a bound that is an input", "v = max r, s\n", "v", "r", false, NONE, NONE, -FREE, FREE},
    {"a second bias", "u = add r, b\nv = add u, c\n", "v", "u", false, BIAS, NONE, -FREE, FREE},
    {"a second residual", "u = add r, a\nv = add u, d\n", "v", "u", false, NONE, ADDEND, -FREE, FREE},
    {"a bias behind ReLU", "u = max r, zero\nv = add u, b\n", "v", "u", false, NONE, NONE, 0, FREE},
    {"a residual behind ReLU", "t = add r, b\nu = max t, zero\nv = add u, a\n", "v", "u", false, BIAS, NONE, 0, FREE},
    {"one element for all columns", "v = add r, s\n", "v", "r", false, NONE, NONE, -FREE, FREE},
    {"an element a row", "v = add r, m\n", "v", "r", false, NONE, NONE, -FREE, FREE},
    {"a constant row", "v = add r, four\n", "v", "r", false, NONE, NONE, -FREE, FREE},
    {"a difference", "v = sub r, b\n", "v", "r", false, NONE, NONE, -FREE, FREE},
    {"a product behind the bias", "u = add r, b\nv = mul u, a\n", "v", "u", false, BIAS, NONE, -FREE, FREE},
    {"the raw result and itself", "v = add r, r\n", "v", "r", false, NONE, NONE, -FREE, FREE},
    {"a function", "u = add r, b\nv = tanh u\n", "v", "u", false, BIAS, NONE, -FREE, FREE},
    {"the sum is read twice", "u = add r, b\ng = sigmoid u\nv = mul u, g\n", "v", "u", false, BIAS, NONE, -FREE, FREE},
    {"the raw result is read twice", "g = sigmoid r\nu = add r, b\nv = mul u, g\n", "v", "r", false, NONE, NONE, -FREE,
     FREE},
    {"the sum is a result, too", "u = add r, b\nv = max u, zero\n", "u, v", "u", false, BIAS, NONE, -FREE, FREE},
    {"the raw result is a result, too", "v = max r, zero\n", "r, v", "r", false, NONE, NONE, -FREE, FREE},
    {"the same result twice", "v = max r, zero\n", "v, v as again", "v", false, NONE, NONE, 0, FREE},
};

/* Each line's result gets its type. */
static void put_body(Text *text, const char *dtype, const char *lines) {
    while (*lines) {
        int name = (int)strcspn(lines, " "), line = (int)strcspn(lines, "\n");
        text_add(text, "  %.*s: %s[n, 4]%.*s\n", name, lines, dtype, line - name, lines + name);
        lines += line + 1;
    }
}

static Graph *parsed(const char *dtype, const char *body, const char *result) {
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    Graph *graph = NULL;
    bool real = strcmp(dtype, "f32") == 0;
    text_add(&text, "graph (x: %s[n, 8], w: %s[8, 4]", dtype, dtype);
    static const char *const names[] = {"b", "c", "a", "d", "s", "m"}, *const sizes[] = {"4",    "4", "n, 4",
                                                                                         "n, 4", "1", "n, 1"};
    for (int i = 0; i < 6; i++) text_add(&text, ", %s: %s[%s]", names[i], dtype, sizes[i]);
    int outputs = strchr(result, ',') ? 2 : 1;
    text_add(&text, ") -> (y0) {\n");
    for (int i = 0; i < outputs; i++) text_add(&text, "%sy%d: %s[n, 4]", i ? ", " : "", i, dtype);
    text_add(&text, " = anchor matmul x, w, " INPUTS " graph (r: %s[n, 4]", dtype);
    for (int i = 0; i < 6; i++) text_add(&text, ", %s: %s[%s]", names[i], dtype, sizes[i]);
    text_add(&text, ") -> (%s) {\n  zero = constant %s[] 0\n  six = constant %s[1] {6}\n", result, dtype, dtype);
    text_add(&text, "  four = constant %s[4] {1, 2, 3, 4}\n", dtype);
    if (real) text_add(&text, "  nan = constant f32[] nan\n  one = constant f32[] 1\n  half = constant f32[] 0.5\n");
    if (real) text_add(&text, "  eighth = constant f32[] 0.125\n");
    put_body(&text, dtype, body);
    text_add(&text, "}\n}\n");
    Status status = graph_parse(text.data, &graph);
    cr_assert(!status, "%s\n%s", status_message(status), text.data);
    status = graph_verify(graph, LEVEL_PRIM);
    cr_assert(!status, "%s\n%s", status_message(status), text.data);
    arena_destroy(arena);
    return graph;
}

static const Value *end_of(const Graph *graph, int forms, PlainEpilogue *got) {
    plain_epilogue_of(graph->last, forms, got);
    return got->end;
}

static bool is_whole(const Graph *graph, PlainEpilogue *got) {
    plain_epilogue_of(graph->last, PLAIN_SUMS | PLAIN_ADDEND | PLAIN_GATE, got);
    return got->whole;
}

static void expect_numbers(const Row *row, const PlainEpilogue *got, int addend) {
    bool clamp = row->low != -FREE || row->high != FREE;
    cr_expect(got->bias == row->bias && got->addend == addend, "%s: bias %d, addend %d", row->name, got->bias,
              got->addend);
    cr_expect_eq(got->bounds.clamp, clamp, "%s", row->name);
    cr_expect(got->bounds.low == row->low && got->bounds.high == row->high, "%s: %g to %g", row->name, got->bounds.low,
              got->bounds.high);
}

enum { ROWS = sizeof rows / sizeof *rows };

Test(plain_epilogue, is_read_from_the_beginning_on) {
    for (int i = 0; i < ROWS; i++) {
        PlainEpilogue got;
        Graph *graph = parsed("f32", rows[i].body, rows[i].result);
        const Value *end = end_of(graph, PLAIN_SUMS | PLAIN_ADDEND, &got);
        cr_assert_not_null(end);
        cr_expect_str_eq(end->name, rows[i].end, "%s: up to %s", rows[i].name, end->name);
        expect_numbers(&rows[i], &got, rows[i].addend);
        cr_expect_eq(is_whole(graph, &got), rows[i].whole, "%s", rows[i].name);
        graph_destroy(graph);
    }
}

typedef struct Gate {
    const char *name, *body, *result;
    bool whole;
    double scale, shift, low, high;
    bool divided;          /* by 6 */
    double factor, addend; /* 0: there is none */
} Gate;

#define SIXTH 0x1.555554p-3 /* the greater part of 1/6 (base/math/divide.h): a float below it */

/* Behind a bias t. */
static const Gate gates[] = {
    {"HardSwish", "u = mul t, eighth\ng = add u, half\nl = max g, zero\nh = min l, one\nv = mul t, h\n", "v", true,
     0.125, 0.5, 0, 1},
    {"all on the left", "u = mul eighth, t\ng = add half, u\nh = min one, g\nl = max zero, h\nv = mul l, t\n", "v",
     true, 0.125, 0.5, 0, 1},
    {"without a factor", "g = add t, half\nh = min g, one\nv = mul t, h\n", "v", true, 1, 0.5, -FREE, 1},
    {"bounds alone", "h = max t, zero\nv = mul h, t\n", "v", true, 1, 0, 0, FREE},
    {"a factor behind it", "h = max t, zero\nu = mul t, h\nv = mul eighth, u\n", "v", true, 1, 0, 0, FREE, false,
     0.125},
    {"divided by 6", "g = add t, half\nl = max g, zero\nh = min l, six\nu = mul t, h\nv = div u, six\n", "v", true, 1,
     0.5, 0, 6, true},
    {"divided, multiplied and added to",
     "h = max t, zero\nu = mul t, h\nq = div u, six\nw = mul q, half\nv = add one, w\n", "v", true, 1, 0, 0, FREE, true,
     0.5, 1},
    {"added to", "h = max t, zero\nu = mul t, h\nv = add u, half\n", "v", true, 1, 0, 0, FREE, false, 0, 0.5},
    {"multiplied before it is divided", "h = max t, zero\nu = mul t, h\nw = mul u, half\nv = div w, six\n", "v", false,
     0, 0, 0, 0},
    {"a factor behind it that is NaN", "h = max t, zero\nu = mul t, h\nv = mul u, nan\n", "v", false, 0, 0, 0, 0},
    {"a second factor", "h = max t, zero\nu = mul t, h\nw = mul eighth, u\nv = mul w, half\n", "v", false, 0, 0, 0, 0},
    {"divided by 0", "h = max t, zero\nu = mul t, h\nv = div u, zero\n", "v", false, 0, 0, 0, 0},
    {"what is divided by it", "h = max t, zero\nu = mul t, h\nv = div six, u\n", "v", false, 0, 0, 0, 0},
    {"divided by itself", "h = max t, zero\nu = mul t, h\nv = div u, u\n", "v", false, 0, 0, 0, 0},
    {"divided by a row", "h = max t, zero\nu = mul t, h\nv = div u, four\n", "v", false, 0, 0, 0, 0},
    {"the product is a result, too", "h = max t, zero\nu = mul t, h\nv = div u, six\n", "v, u", false, 0, 0, 0, 0},
    {"without bounds", "g = add t, half\nv = mul t, g\n", "v", false, 0, 0, 0, 0},
    {"the sum before the product", "g = add t, half\nu = mul g, eighth\nh = max u, zero\nv = mul t, h\n", "v", false, 0,
     0, 0, 0},
    {"a product behind the bounds", "h = max t, zero\nu = mul h, eighth\nv = mul t, u\n", "v", false, 0, 0, 0, 0},
    {"two products", "g = mul t, eighth\nu = mul g, eighth\nh = max u, zero\nv = mul t, h\n", "v", false, 0, 0, 0, 0},
    {"two bounds from below", "h = max t, zero\nu = max h, half\nv = mul t, u\n", "v", false, 0, 0, 0, 0},
    {"a factor that is a row", "u = mul t, four\nh = max u, zero\nv = mul t, h\n", "v", false, 0, 0, 0, 0},
    {"a factor that is NaN", "u = mul t, nan\nh = max u, zero\nv = mul t, h\n", "v", false, 0, 0, 0, 0},
    {"the gate is a result, too", "h = max t, zero\nv = mul t, h\n", "v, h", false, 0, 0, 0, 0},
    {"the sum is a result, too", "h = max t, zero\nv = mul t, h\n", "v, t", false, 0, 0, 0, 0},
    {"the sum is read a third time", "h = max t, zero\nu = mul t, h\nv = mul u, t\n", "v", false, 0, 0, 0, 0},
    {"the gate is read twice", "h = max t, zero\nu = mul t, h\nv = mul u, h\n", "v", false, 0, 0, 0, 0},
    {"something behind it", "h = max t, zero\nu = mul t, h\nv = tanh u\n", "v", false, 0, 0, 0, 0},
    {"a function between", "g = sigmoid t\nh = max g, zero\nv = mul t, h\n", "v", false, 0, 0, 0, 0},
    {"the other factor is the raw result", "h = max t, zero\nv = mul r, h\n", "v", false, 0, 0, 0, 0},
};

Test(plain_epilogue, gates) {
    for (size_t i = 0; i < sizeof gates / sizeof *gates; i++) {
        const Gate *row = &gates[i];
        PlainEpilogue got;
        char body[200];
        snprintf(body, sizeof body, "t = add r, b\n%s", row->body);
        Graph *graph = parsed("f32", body, row->result);
        cr_expect_eq(is_whole(graph, &got), row->whole, "%s", row->name);
        const Bounds *b = &got.bounds;
        if (row->whole)
            cr_expect(b->clamp && b->gate && b->scale == row->scale && b->shift == row->shift && b->low == row->low &&
                          b->high == row->high && b->factor == (row->factor ? row->factor : 1) &&
                          b->addend == row->addend && b->inverse == (row->divided ? SIXTH : 1) && got.bias == BIAS,
                      "%s: %g %g, %g to %g, %a, %g %g", row->name, b->scale, b->shift, b->low, b->high, b->inverse,
                      b->factor, b->addend);
        cr_expect_str_neq(end_of(graph, PLAIN_SUMS | PLAIN_ADDEND, &got)->name, "v", "%s: libraries have no gates",
                          row->name);
        cr_expect_not(got.bounds.gate, "%s", row->name);
        graph_destroy(graph);
    }
}

/* Where no addend is taken, the reading ends before it, and is the same where there is none. */
Test(plain_epilogue, ends_before_an_addend_that_is_not_taken) {
    static const Row others[] = {
        {"a residual", "v = add r, a\n", "v", "r", false, NONE, NONE, -FREE, FREE},
        {"a residual behind a bias", "u = add r, b\nv = add u, a\n", "v", "u", false, BIAS, NONE, -FREE, FREE},
        {"a residual before a bias", "u = add r, a\nv = add u, b\n", "v", "r", false, NONE, NONE, -FREE, FREE},
    };
    PlainEpilogue got;
    for (int i = 0; i < 3; i++) {
        Graph *graph = parsed("f32", others[i].body, others[i].result);
        cr_expect_str_eq(end_of(graph, PLAIN_SUMS, &got)->name, others[i].end, "%s", others[i].name);
        expect_numbers(&others[i], &got, NONE);
        graph_destroy(graph);
    }
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].addend != NONE) continue;
        Graph *graph = parsed("f32", rows[i].body, rows[i].result);
        cr_expect_str_eq(end_of(graph, PLAIN_SUMS, &got)->name, rows[i].end, "%s", rows[i].name);
        expect_numbers(&rows[i], &got, NONE);
        graph_destroy(graph);
    }
}

/* Sums of integers are plain, bounds are not. */
Test(plain_epilogue, of_integers) {
    static const Row integers[] = {
        {"a bias and a residual", "u = add r, b\nv = add u, a\n", "v", "v", true, BIAS, ADDEND, -FREE, FREE},
        {"ReLU", "u = add r, b\nv = max u, zero\n", "v", "u", false, BIAS, NONE, -FREE, FREE},
    };
    for (int i = 0; i < 2; i++) {
        PlainEpilogue got;
        Graph *graph = parsed("i32", integers[i].body, integers[i].result);
        cr_expect_str_eq(end_of(graph, PLAIN_SUMS | PLAIN_ADDEND, &got)->name, integers[i].end, "%s", integers[i].name);
        expect_numbers(&integers[i], &got, integers[i].addend);
        cr_expect_eq(is_whole(graph, &got), integers[i].whole, "%s", integers[i].name);
        graph_destroy(graph);
    }
}

static Graph *whole_text(const char *text) {
    Graph *graph = NULL;
    Status status = graph_parse(text, &graph);
    cr_assert(!status, "%s", status_message(status));
    return graph;
}

/* A cast ends it, and with it what is in the other type. */
Test(plain_epilogue, ends_at_another_type) {
    PlainEpilogue got;
    Graph *graph =
        whole_text("graph (x: f16[n, 8], w: f16[8, 4], b: f16[4], c: f32[4]) -> (y) {\n"
                   "y: f32[n, 4] = anchor matmul x, w, b, c graph (r: f16[n, 4], b: f16[4], c: f32[4]) -> (v) {\n"
                   "t: f16[n, 4] = add r, b\nu: f32[n, 4] = cast t {to = f32}\nv: f32[n, 4] = add u, c\n}\n}\n");
    cr_expect_str_eq(end_of(graph, PLAIN_SUMS | PLAIN_ADDEND, &got)->name, "t");
    cr_expect(got.bias == 2 && got.addend == NONE && !got.bounds.clamp && !is_whole(graph, &got));
    graph_destroy(graph);
}

typedef struct Bf16Row {
    const char *name, *type, *body; /* of the result v */
    bool whole;
    int bias, addend;
    double low;
} Bf16Row;

#define WIDE(name, rest) name ": f32[n, 4] = " rest "\n"
#define HALF(name, rest) name ": bf16[n, 4] = " rest "\n"

/* The node's inputs 2 to 4 are b f32[4], a bf16[n, 4], f f32[n, 4]. */
static const Bf16Row bf16_rows[] = {
    {"bounds", "bf16", HALF("v", "max r, zero"), true, NONE, NONE, 0},
    {"a residual", "bf16", HALF("v", "add a, r"), true, NONE, 3, -FREE},
    {"a bias in f32, rounded where it is stored", "bf16",
     WIDE("t", "cast r {to = f32}") WIDE("u", "add t, b") HALF("v", "cast u {to = bf16, loose = 1}"), true, BIAS, NONE,
     -FREE},
    {"bias, residual and bounds", "bf16",
     WIDE("t", "cast r {to = f32}") WIDE("u", "add t, b") HALF("s", "cast u {to = bf16, loose = 1}")
         HALF("p", "add a, s") HALF("v", "max p, zero"),
     true, BIAS, 3, 0},
    {"a rounding that the model wants", "bf16",
     WIDE("t", "cast r {to = f32}") WIDE("u", "add t, b") HALF("s", "cast u {to = bf16}") HALF("v", "max s, zero"),
     false, BIAS, NONE, -FREE},
    {"a residual in f32", "bf16",
     WIDE("t", "cast r {to = f32}") WIDE("u", "add t, f") HALF("v", "cast u {to = bf16, loose = 1}"), false, NONE, 4,
     -FREE},
    {"a result in f32", "f32", WIDE("t", "cast r {to = f32}") WIDE("v", "add t, b"), false, BIAS, NONE, -FREE},
    {"a function", "bf16", HALF("v", "tanh r"), false, NONE, NONE, -FREE},
};

Test(plain_epilogue, of_bf16) {
    for (size_t i = 0; i < sizeof bf16_rows / sizeof *bf16_rows; i++) {
        const Bf16Row *row = &bf16_rows[i];
        PlainEpilogue got;
        char text[800];
        snprintf(text, sizeof text,
                 "graph (x: bf16[n, 8], w: bf16[8, 4], b: f32[4], a: bf16[n, 4], f: f32[n, 4]) -> (y) {\n"
                 "y: %s[n, 4] = anchor matmul x, w, b, a, f graph (r: bf16[n, 4], b: f32[4], a: bf16[n, 4], f: f32[n, "
                 "4]) -> (v) {\nzero = constant bf16[] 0\n%s}\n}\n",
                 row->type, row->body);
        Graph *graph = whole_text(text);
        plain_epilogue_of(graph->last, PLAIN_SUMS | PLAIN_ADDEND | PLAIN_OF_BF16, &got);
        cr_expect_eq(got.whole, row->whole, "%s", row->name);
        cr_expect(got.bias == row->bias && got.addend == row->addend && got.bounds.low == row->low, "%s: %d, %d, %g",
                  row->name, got.bias, got.addend, got.bounds.low);
        graph_destroy(graph);
    }
}

Test(plain_epilogue, an_anchor_without_one_is_plain) {
    PlainEpilogue got;
    Graph *graph = whole_text("graph (x: f32[n, 8], w: f32[8, 4]) -> (y) {\ny: f32[n, 4] = anchor matmul x, w\n}\n");
    cr_expect_null(end_of(graph, PLAIN_SUMS | PLAIN_ADDEND, &got));
    cr_expect(is_whole(graph, &got) && got.bias == NONE && got.addend == NONE && !got.bounds.clamp);
    graph_destroy(graph);
}
