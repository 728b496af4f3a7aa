/* SPDX-License-Identifier: Apache-2.0 */
/* Every row is a graph body that computes y and states what y must be as the constant want: same type, same shape, same
 * bits, any NaN for a NaN. */
#include <criterion/criterion.h>

#include "graph/eval/eval.h"

#include <math.h>
#include <setjmp.h>

typedef struct Row {
    const char *name, *body;
} Row;

static const Row rows[] = {
    {"add broadcasts a scalar", "a = constant f32[2] {1, 2}\nb = constant f32[] 0.5\ny: f32[2] = add a, b\n"
                                "want = constant f32[2] {1.5, 2.5}"},
    {"add broadcasts rows and columns",
     "a = constant i32[2, 1] {10, 20}\nb = constant i32[3] {1, 2, 3}\ny: i32[2, 3] = add a, b\n"
     "want = constant i32[2, 3] {11, 12, 13, 21, 22, 23}"},
    {"add of an empty tensor",
     "a = constant f32[0] {}\nb = constant f32[] 1\ny: f32[0] = add a, b\nwant = constant f32[0] {}"},
    {"i8 addition wraps", "a = constant i8[2] {127, -128}\nb = constant i8[2] {1, -1}\ny: i8[2] = add a, b\n"
                          "want = constant i8[2] {-128, 127}"},
    {"i4 multiplication wraps", "a = constant i4[2] {7, -8}\nb = constant i4[2] {2, 3}\ny: i4[2] = mul a, b\n"
                                "want = constant i4[2] {-2, -8}"},
    {"u8 negation wraps", "a = constant u8[2] {1, 0}\ny: u8[2] = neg a\nwant = constant u8[2] {255, 0}"},
    {"i64 least / -1 wraps", "a = constant i64[1] {-9223372036854775808}\nb = constant i64[] -1\ny: i64[1] = div a, b\n"
                             "want = constant i64[1] {-9223372036854775808}"},
    {"integer division is toward zero, by zero is 0", "a = constant i32[3] {-7, 7, 5}\nb = constant i32[3] {2, -2, "
                                                      "0}\ny: i32[3] = div a, b\nwant = constant i32[3] {-3, -3, 0}"},
    {"mod has the divisor's sign",
     "a = constant i32[5] {-7, 7, -7, 7, 5}\nb = constant i32[5] {3, -3, -3, 3, 0}\ny: i32[5] = mod a, b\n"
     "want = constant i32[5] {2, -2, -1, 1, 0}"},
    {"fmod has the dividend's sign", "a = constant i32[3] {-7, 7, 5}\nb = constant i32[3] {3, -3, 0}\ny: i32[3] = fmod "
                                     "a, b\nwant = constant i32[3] {-1, 1, 0}"},
    {"float mod has the divisor's sign", "a = constant f32[3] {-5.5, 5.5, -4}\nb = constant f32[3] {2, -2, 2}\ny: "
                                         "f32[3] = mod a, b\nwant = constant f32[3] {0.5, -0.5, 0}"},
    {"float fmod", "a = constant f32[2] {-5.5, 5.5}\nb = constant f32[] 2\ny: f32[2] = fmod a, b\nwant = constant "
                   "f32[2] {-1.5, 1.5}"},
    {"integer powers, negative exponents",
     "a = constant i32[5] {3, -2, -1, 1, 2}\nb = constant i32[5] {4, 3, -3, -9, -1}\ny: i32[5] = pow a, b\n"
     "want = constant i32[5] {81, -8, -1, 1, 0}"},
    {"min keeps NaN of either side", "a = constant f32[3] {nan, 1, 3}\nb = constant f32[3] {1, nan, 2}\ny: f32[3] = "
                                     "min a, b\nwant = constant f32[3] {nan, nan, 2}"},
    {"max keeps NaN of either side", "a = constant f32[3] {nan, 1, 3}\nb = constant f32[3] {1, nan, 2}\ny: f32[3] = "
                                     "max a, b\nwant = constant f32[3] {nan, nan, 3}"},
    {"shl gives 0 from the width on", "a = constant u8[3] {1, 255, 1}\nb = constant u8[3] {7, 4, 8}\ny: u8[3] = shl a, "
                                      "b\nwant = constant u8[3] {128, 240, 0}"},
    {"shr is arithmetic on signed ones", "a = constant i16[3] {-8, -8, 8}\nb = constant i16[3] {1, 16, 2}\ny: i16[3] = "
                                         "shr a, b\nwant = constant i16[3] {-4, -1, 2}"},
    {"not on bool", "a = constant bool[2] {true, false}\ny: bool[2] = not a\nwant = constant bool[2] {false, true}"},
    {"not on u8 is the complement", "a = constant u8[1] {15}\ny: u8[1] = not a\nwant = constant u8[1] {240}"},
    {"round is half to even",
     "a = constant f32[4] {0.5, 1.5, -2.5, 2.4}\ny: f32[4] = round a\nwant = constant f32[4] {0, 2, -2, 2}"},
    {"sign keeps NaN",
     "a = constant f32[4] {-3, 0, 2, nan}\ny: f32[4] = sign a\nwant = constant f32[4] {-1, 0, 1, nan}"},
    {"exp of f32 is rounded once",
     "a = constant f32[3] {0, 1, 100}\ny: f32[3] = exp a\nwant = constant f32[3] {1, 2.7182817, inf}"},
    {"sigmoid at the ends",
     "a = constant f64[3] {-1000, 0, 1000}\ny: f64[3] = sigmoid a\nwant = constant f64[3] {0, 0.5, 1}"},
    {"erf of f64", "a = constant f64[1] {0.5}\ny: f64[1] = erf a\nwant = constant f64[1] {0.5204998778130465}"},
    {"f16 addition rounds to f16",
     "a = constant f16[1] {2048}\nb = constant f16[1] {1}\ny: f16[1] = add a, b\nwant = constant f16[1] {2048}"},
    {"bf16 multiplication rounds", "a = constant bf16[1] {1.0078125}\nb = constant bf16[] 3\ny: bf16[1] = mul a, "
                                   "b\nwant = constant bf16[1] {3.03125}"},
    {"isnan and isinf", "a = constant f32[3] {nan, -inf, 1}\nn: bool[3] = isnan a\ni: bool[3] = isinf a\n"
                        "y: bool[3] = or n, i\nwant = constant bool[3] {true, true, false}"},
    {"ne is true for NaN", "a = constant f32[2] {nan, 1}\ny: bool[2] = ne a, a\nwant = constant bool[2] {true, false}"},
    {"u64 compares above 2^63", "a = constant u64[1] {18446744073709551615}\nb = constant u64[1] {1}\ny: bool[1] = gt "
                                "a, b\nwant = constant bool[1] {true}"},
    {"strings compare", "a = constant string[2] {\"a\", \"\"}\nb = constant string[] \"a\"\ny: bool[2] = eq a, b\n"
                        "want = constant bool[2] {true, false}"},
    {"where selects strings",
     "c = constant bool[2] {true, false}\na = constant string[] \"x\"\nb = constant string[2] {\"p\", \"q\"}\n"
     "y: string[2] = where c, a, b\nwant = constant string[2] {\"x\", \"q\"}"},
    {"float to integer saturates", "a = constant f32[5] {300, -1.5, nan, 2.9, -inf}\ny: u8[5] = cast a {to = u8}\nwant "
                                   "= constant u8[5] {255, 0, 0, 2, 0}"},
    {"float to i64 saturates", "a = constant f64[2] {1e30, -1e30}\ny: i64[2] = cast a {to = i64}\n"
                               "want = constant i64[2] {9223372036854775807, -9223372036854775808}"},
    {"integer to narrower integer wraps",
     "a = constant i32[2] {257, -129}\ny: i8[2] = cast a {to = i8}\nwant = constant i8[2] {1, 127}"},
    {"i64 to f32 rounds once", "a = constant i64[1] {9007199791611905}\ny: f32[1] = cast a {to = f32}\nwant = constant "
                               "f32[1] {9007200328482816}"},
    {"f64 to f16 rounds once", "a = constant f64[1] {1.00048828125000001}\nb = constant f64[1] {1.000488281250000222}\n"
                               "y: f16[1] = cast b {to = f16}\nwant = constant f16[1] {1.0009766}"},
    {"number to bool", "a = constant f32[3] {0, -0.5, nan}\ny: bool[3] = cast a {to = bool}\nwant = constant bool[3] "
                       "{false, true, true}"},
    {"f8 saturates by default",
     "a = constant f32[1] {1000}\ny: f8e4m3fn[1] = cast a {to = f8e4m3fn}\nwant = constant f8e4m3fn[1] {448}"},
    {"f8 without saturation gives NaN", "a = constant f32[1] {1000}\ny: f8e4m3fn[1] = cast a {to = f8e4m3fn, saturate "
                                        "= 0}\nwant = constant f8e4m3fn[1] {nan}"},
    {"bitcast", "a = constant f32[1] {1}\ny: u32[1] = bitcast a {to = u32}\nwant = constant u32[1] {1065353216}"},
    {"iota along the first axis",
     "y: i32[2, 2] = iota {shape = (2, 2), axis = 0, dtype = i32}\nwant = constant i32[2, 2] {0, 0, 1, 1}"},
    {"iota of floats along the last axis, type as a number",
     "y: f32[2, 3] = iota {shape = (2, 3), axis = 1, dtype = 1}\nwant = constant f32[2, 3] {0, 1, 2, 0, 1, 2}"},
    {"philox gives the published words of counter 0, key 0, 16 elements apart",
     "s = constant u64[] 0\np: u32[64] = philox s {shape = (64)}\n"
     "y: u32[4] = slice p {shape = (4), start = (0), step = [16]}\n"
     "want = constant u32[4] {1713891541, 3781805453, 3159862348, 2600524760}"},
    {"philox of halves gives those words to two elements, the second with its halves swapped",
     "s = constant u64[] 0\np: u32[4, 16] = philox s {shape = (4, 16), halves = 1}\n"
     "y: u32[4, 2] = slice p {shape = (4, 2), start = (0, 0), step = [1, 1]}\n"
     "want = constant u32[4, 2] {1713891541, 3906299431, 3781805453, 3314409833, 3159862348, 2890710103, 2600524760, "
     "3688405760}"},
    {"dims", "y: i64[2] = dims {shape = (3, 4)}\nwant = constant i64[2] {3, 4}"},
    {"reduce_sum of outer and inner axes", "a = constant f32[2, 2, 2] {1, 2, 3, 4, 5, 6, 7, 8}\ny: f32[1, 2, 1] = "
                                           "reduce_sum a {axes = [0, 2]}\nwant = constant f32[1, 2, 1] {14, 22}"},
    {"reduce_sum of nothing is 0",
     "a = constant f32[2, 0] {}\ny: f32[2, 1] = reduce_sum a {axes = [1]}\nwant = constant f32[2, 1] {0, 0}"},
    {"reduce_prod of nothing is 1",
     "a = constant i32[0] {}\ny: i32[1] = reduce_prod a {axes = [0]}\nwant = constant i32[1] {1}"},
    {"reduce_max of no i8 is the least",
     "a = constant i8[0] {}\ny: i8[1] = reduce_max a {axes = [0]}\nwant = constant i8[1] {-128}"},
    {"reduce_min of no u16 is the greatest",
     "a = constant u16[0] {}\ny: u16[1] = reduce_min a {axes = [0]}\nwant = constant u16[1] {65535}"},
    {"reduce_max of no f32",
     "a = constant f32[0] {}\ny: f32[1] = reduce_max a {axes = [0]}\nwant = constant f32[1] {-inf}"},
    {"reduce_max keeps NaN", "a = constant f32[2, 2] {1, nan, 3, 2}\ny: f32[2, 1] = reduce_max a {axes = [1]}\nwant = "
                             "constant f32[2, 1] {nan, 3}"},
    {"reduce_min of bool",
     "a = constant bool[2, 2] {true, false, true, true}\ny: bool[2, 1] = reduce_min a {axes = [1]}\n"
     "want = constant bool[2, 1] {false, true}"},
    {"argmax takes the first", "a = constant f32[2, 3] {1, 3, 3, nan, 5, nan}\ny: i64[2, 1] = argmax a {axes = "
                               "[1]}\nwant = constant i64[2, 1] {1, 0}"},
    {"argmax takes the last on demand", "a = constant f32[2, 3] {1, 3, 3, nan, 5, nan}\ny: i64[2, 1] = argmax a {axes "
                                        "= [1], last = 1}\nwant = constant i64[2, 1] {2, 2}"},
    {"argmin of an outer axis", "a = constant i32[2, 3] {1, 5, 3, 0, 6, 3}\ny: i64[1, 3] = argmin a {axes = [0]}\nwant "
                                "= constant i64[1, 3] {1, 0, 0}"},
    {"reshape", "a = constant string[2, 1] {\"a\", \"b\"}\ny: string[2] = reshape a {shape = (2)}\nwant = constant "
                "string[2] {\"a\", \"b\"}"},
    {"permute", "a = constant c64[2, 2] {(1, 0), (2, 0), (3, 1), (4, 0)}\ny: c64[2, 2] = permute a {perm = [1, 0]}\n"
                "want = constant c64[2, 2] {(1, 0), (3, 1), (2, 0), (4, 0)}"},
    {"expand",
     "a = constant u8[2, 1] {1, 2}\ny: u8[2, 2] = expand a {shape = (2, 2)}\nwant = constant u8[2, 2] {1, 1, 2, 2}"},
    {"slice backwards",
     "a = constant i16[5] {0, 1, 2, 3, 4}\ny: i16[3] = slice a {shape = (3), start = (4), step = [-2]}\n"
     "want = constant i16[3] {4, 2, 0}"},
    {"pad before and crop after",
     "a = constant i32[2, 2] {1, 2, 3, 4}\nf = constant i32[] 9\n"
     "y: i32[3, 1] = pad a, f {before = (1, 0), after = (0, -1)}\nwant = constant i32[3, 1] {9, 1, 3}"},
    {"pad that crops all of the input",
     "a = constant i32[2] {1, 2}\nf = constant i32[] 9\ny: i32[3] = pad a, f {before = (-2), after = (3)}\n"
     "want = constant i32[3] {9, 9, 9}"},
    {"concat along the last axis",
     "a = constant f64[2, 1] {1, 2}\nb = constant f64[2, 2] {3, 4, 5, 6}\ny: f64[2, 3] = concat a, b {axis = 1}\n"
     "want = constant f64[2, 3] {1, 3, 4, 2, 5, 6}"},
    {"gather with negative indices",
     "a = constant i32[2, 3] {1, 2, 3, 4, 5, 6}\ni = constant i64[2] {-1, 0}\ny: i32[2, 2] = gather a, i {axis = 1}\n"
     "want = constant i32[2, 2] {3, 1, 6, 4}"},
    {"gather of a scalar index drops the axis", "a = constant i32[2, 2] {1, 2, 3, 4}\ni = constant i32[] 1\ny: i32[2] "
                                                "= gather a, i {axis = 0}\nwant = constant i32[2] {3, 4}"},
    {"gather_elements", "a = constant i32[2, 2] {1, 2, 3, 4}\ni = constant i64[2, 1] {1, 0}\ny: i32[2, 1] = "
                        "gather_elements a, i {axis = 1}\n"
                        "want = constant i32[2, 1] {2, 3}"},
    {"scatter_elements",
     "a = constant f32[3, 2] {0, 0, 0, 0, 0, 0}\ni = constant i64[1, 2] {2, -3}\nu = constant f32[1, 2] {1, 2}\n"
     "y: f32[3, 2] = scatter_elements a, i, u {axis = 0, reduction = \"none\"}\nwant = constant f32[3, 2] {0, 2, 0, 0, "
     "1, 0}"},
    {"scatter_elements adds up",
     "a = constant f16[2] {1, 1}\ni = constant i64[3] {0, 0, 1}\nu = constant f16[3] {1, 2, 3}\n"
     "y: f16[2] = scatter_elements a, i, u {axis = 0, reduction = \"add\"}\nwant = constant f16[2] {4, 4}"},
    {"scatter_nd of slices",
     "a = constant i32[2, 2] {1, 2, 3, 4}\ni = constant i64[1, 1] {1}\nu = constant i32[1, 2] {9, 2}\n"
     "y: i32[2, 2] = scatter_nd a, i, u {reduction = \"max\"}\nwant = constant i32[2, 2] {1, 2, 9, 4}"},
    {"a region computes its body",
     "a = constant f32[2] {1, 2}\ny: f32[2] = region a graph (p: f32[2]) -> (q) {\n  q: f32[2] = neg p\n}\n"
     "want = constant f32[2] {-1, -2}"},
};

static Graph *parse_body(const char *body, const char *outputs) {
    Arena *arena = arena_create(0);
    Graph *graph = NULL;
    Status status = graph_parse(arena_format(arena, "graph () -> (%s) {\n%s\n}", outputs, body), &graph);
    cr_assert(!status, "%s", status_message(status));
    arena_destroy(arena);
    return graph;
}

static bool same_element(const Tensor *a, const Tensor *b, int64_t i) {
    size_t size = dtype_size(a->dtype);
    if (a->dtype == DT_STRING) {
        const StringView *x = (StringView *)a->data + i, *y = (StringView *)b->data + i;
        return x->size == y->size && memcmp(x->data, y->data, x->size) == 0;
    }
    if (dtype_is_float(a->dtype) && isnan(dtype_load_double(a->dtype, a->data, i)))
        return isnan(dtype_load_double(b->dtype, b->data, i));
    return memcmp((char *)a->data + (size_t)i * size, (char *)b->data + (size_t)i * size, size) == 0;
}

static bool same_tensor(const Tensor *a, const Tensor *b) {
    bool same = a->dtype == b->dtype && tensor_same_shape(a, b);
    for (int64_t i = 0; same && i < tensor_count(a); i++) same = same_element(a, b, i);
    return same;
}

Test(eval, rows) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Graph *graph = parse_body(rows[i].body, "y, want");
        GraphLevel level = strstr(rows[i].body, "region") ? LEVEL_PARTITIONED : LEVEL_PRIM;
        Status status = graph_verify(graph, level);
        cr_expect(!status, "%s: %s", rows[i].name, status_message(status));
        Tensor *out[2];
        status = eval_graph(graph, NULL, NULL, graph->arena, out);
        cr_assert(!status, "%s: %s", rows[i].name, status_message(status));
        Text got = text_make(graph->arena);
        tensor_print(&got, out[0], 64);
        cr_expect(same_tensor(out[0], out[1]), "%s: got %s", rows[i].name, got.data);
        graph_destroy(graph);
    }
}

static const struct {
    const char *name, *body, *message;
} failures[] = {
    {"gather out of range",
     "a = constant i32[2] {1, 2}\ni = constant i64[1] {2}\ny: i32[1] = gather a, i {axis = 0} # from Lookup",
     "Lookup (gather): index 2 (element 0 of the indices) is out of range for size 2"},
    {"sizes that do not broadcast", "a = constant i32[2] {1, 2}\nb = constant i32[3] {1, 2, 3}\ny: i32[2] = add a, b",
     "add: sizes 2 and 3"},
    {"types that differ", "a = constant i32[1] {1}\nb = constant i64[1] {1}\ny: i32[1] = add a, b",
     "inputs of types i32 and i64"},
    {"no arithmetic on bool", "a = constant bool[1] {true}\ny: bool[1] = add a, a", "not defined on bool"},
    {"slice out of range", "a = constant i32[2] {1, 2}\ny: i32[2] = slice a {shape = (2), start = (1), step = [1]}",
     "axis 0 of size 2"},
    {"reshape to another count", "a = constant i32[2] {1, 2}\ny: i32[3] = reshape a {shape = (3)}", "2 elements"},
    {"a size that is not known", "a = constant i32[1] {1}\ny: i32[n] = expand a {shape = (n)}",
     "element 0 of shape is not known"},
    {"argmax over nothing", "a = constant i32[0] {}\ny: i64[1] = argmax a {axes = [0]}", "axis 0 is empty"},
    {"pad to a negative size",
     "a = constant i32[1] {1}\nf = constant i32[] 0\ny: i32[0] = pad a, f {before = (-2), after = (0)}",
     "padded by -2"},
    {"scatter_nd of misfit updates",
     "a = constant i32[2] {1, 2}\ni = constant i64[1, 1] {0}\nu = constant i32[2] {1, 2}\ny: i32[2] = scatter_nd a, i, "
     "u",
     "do not fit"},
};

Test(eval, failures) {
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        Graph *graph = parse_body(failures[i].body, "y");
        Tensor *out;
        Status status = eval_graph(graph, NULL, (int64_t[]){UNBOUND_DIM}, graph->arena, &out);
        cr_expect(status_code(status) == STATUS_INVALID, "%s", failures[i].name);
        cr_expect(strstr(status_message(status), failures[i].message), "%s: %s", failures[i].name,
                  status_message(status));
        status_free(status);
        graph_destroy(graph);
    }
}

/* Blocks of lanes, long rows and awkward strides against sums told by a formula. */
Test(eval, long_rows) {
    Graph *graph = NULL;
    Status status = graph_parse("graph () -> (r, c) {\n"
                                "x: i64[3, 1500] = iota {shape = (3, 1500), axis = 1}\n"
                                "t: i64[1500, 3] = permute x {perm = [1, 0]}\n"
                                "r: i64[3, 1] = reduce_sum x {axes = [1]}\n"
                                "c: i64[1, 3] = reduce_sum t {axes = [0]}\n}",
                                &graph);
    cr_assert(!status, "%s", status_message(status));
    Tensor *out[2];
    cr_assert(!eval_graph(graph, NULL, NULL, graph->arena, out));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++) cr_expect(((int64_t *)out[k]->data)[i] == 1500 * 1499 / 2);
    graph_destroy(graph);
}

static const struct {
    const char *name;
    int64_t a[3], b[3];
} shared[] = {
    {"one axis", {1, 1, 300001}, {1, 1, 300001}},
    {"a factor a row", {70, 3, 1700}, {70, 1, 1}},
    {"a factor a column, and a row repeated", {1, 90, 1701}, {5, 90, 1}},
    {"one row", {1, 1, 40000}, {1, 1, 1}},
    {"one element", {1, 1, 1}, {1, 1, 1}},
    {"nothing", {0, 3, 5}, {1, 3, 5}},
};

/* Pieces of several threads give the bits of one thread, from addresses that are not aligned, too. */
Test(eval, shared_by_threads) {
    Pool *pool;
    cr_assert(!pool_create(3, &pool));
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        Graph *graph = graph_create(0);
        Tensor *in[2], *alone, *together;
        Value *values[2];
        for (int k = 0; k < 2; k++) {
            const int64_t *dims = k ? shared[i].b : shared[i].a;
            in[k] = tensor_new(graph->arena, DT_F32, 3, dims);
            char *data = arena_alloc(graph->arena, tensor_bytes(in[k]) + 1);
            in[k]->data = data + 1;
            for (int64_t n = 0; n < tensor_count(in[k]); n++) {
                float x = (float)(n * (k + 7) % 1013) / 1013.0f;
                memcpy(data + 1 + n * (int64_t)sizeof x, &x, sizeof x);
            }
            values[k] = graph_add_constant(graph, NULL, in[k]);
        }
        Node *node = graph_add_prim(graph, NULL, PRIM_MUL, values, 2);
        cr_assert(!eval_prim(node, in, NULL, graph->arena, &alone));
        cr_assert(!eval_prim_on(pool, node, in, NULL, graph->arena, &together));
        cr_expect(same_tensor(alone, together), "%s", shared[i].name);
        graph_destroy(graph);
    }
    pool_destroy(pool);
}

/* Whatever a damaged text still says, evaluating it gives a result, an error or the arena's limit; the sanitizers
 * watch. */
static void evaluate_damaged(const char *text) {
    Graph *graph = NULL;
    Status status = graph_parse(text, &graph);
    status_free(status);
    if (status) return;
    Arena *volatile arena = arena_create(1 << 22);
    int64_t symbols[16];
    for (int i = 0; i < 16; i++) symbols[i] = 3;
    jmp_buf guard;
    if (!setjmp(guard) && graph->inputs.count == 0 && dim_symbol_count(graph->dims) <= 16) {
        arena_guard(arena, &guard);
        Tensor *out[64];
        if (graph->outputs.count <= 64) status_free(eval_graph(graph, NULL, symbols, arena, out));
    }
    arena_destroy(arena);
    graph_destroy(graph);
}

Test(eval, damaged_graphs_never_crash) {
    static const char bytes[] = "019-,f()";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Arena *arena = arena_create(0);
        char *text = arena_format(arena, "graph () -> (y, want) {\n%s\n}", rows[i].body);
        for (size_t at = 24; text[at]; at++) {
            char kept = text[at];
            for (size_t k = 0; bytes[k]; k++) {
                text[at] = bytes[k];
                evaluate_damaged(text);
            }
            text[at] = kept;
        }
        arena_destroy(arena);
    }
}

static const struct {
    const char *name, *type;
    int64_t dims[2];
    int64_t b;           /* as bound; UNBOUND_DIM where it stays so */
    const char *message; /* NULL: fits */
} bindings[] = {
    {"a symbol is bound", "f32[b, 3]", {5, 3}, 5, NULL},
    {"the same symbol twice must agree", "f32[b, b]", {5, 6}, 5, "has size 6 in axis 1, but b = 5 is declared"},
    {"an expression is checked", "f32[b, b*2]", {5, 11}, 5, "b*2 = 10 is declared"},
    {"a constant is checked", "f32[b, 3]", {5, 4}, 5, "in axis 1, but 3 is declared"},
    {"an expression of unknown symbols waits", "f32[b + 1, 3]", {5, 3}, UNBOUND_DIM, NULL},
};

Test(eval, bind_dims) {
    for (size_t i = 0; i < sizeof bindings / sizeof *bindings; i++) {
        Arena *arena = arena_create(0);
        Graph *graph = NULL;
        Status status = graph_parse(arena_format(arena, "graph (x: %s) -> () {\n}", bindings[i].type), &graph);
        cr_assert(!status, "%s", status_message(status));
        int64_t symbols[1] = {UNBOUND_DIM};
        status = bind_dims(graph->dims, graph->inputs.items[0], 2, bindings[i].dims, symbols);
        cr_expect(!status == !bindings[i].message, "%s: %s", bindings[i].name, status_message(status));
        if (bindings[i].message)
            cr_expect(strstr(status_message(status), bindings[i].message), "%s: %s", bindings[i].name,
                      status_message(status));
        cr_expect(symbols[0] == bindings[i].b, "%s", bindings[i].name);
        status_free(status);
        graph_destroy(graph);
        arena_destroy(arena);
    }
}
