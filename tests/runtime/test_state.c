/* SPDX-License-Identifier: Apache-2.0 */
/* States that a session keeps between runs, beside the same model whose caller carries them from run to run. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "counted_memory.h"
#include "models.h"
#include "runtime/api/session.h"

/* Attention over all that came before; new rows are products, so that their values are made by the run. */
#define CONCAT                                                                                                         \
    "graph (x: f32[b, s, 4], past.k: f32[b, 2, p, 2], past.v: f32[b, 2, p, 2]) -> (y, now.k, now.v) {\n"               \
    "w = constant f32[4, 4] {1, 2, 0, 1, 0, 1, -1, 1, 1, 0, 1, 0, 0, 1, 1, -2}\nh = constant i64[4] {0, 0, 2, 2}\n"    \
    "f = constant i64[3] {0, 0, 4}\nm = onnx MatMul@21 x, w\nr = onnx Reshape@21 m, h\n"                               \
    "k = onnx Transpose@21 r {perm = [0, 2, 1, 3]}\nt = onnx Tanh@21 k\n"                                              \
    "now.k = onnx Concat@21 past.k, k {axis = 2}\nnow.v = onnx Concat@21 past.v, t {axis = -2}\n"                      \
    "kt = onnx Transpose@21 now.k {perm = [0, 1, 3, 2]}\na = onnx MatMul@21 k, kt\n"                                   \
    "p = onnx Softmax@21 a {axis = -1}\no = onnx MatMul@21 p, now.v\n"                                                 \
    "u = onnx Transpose@21 o {perm = [0, 2, 1, 3]}\ny = onnx Reshape@21 u, f\n}\n"

/* Grouped attention into a cache with room. */
#define GROUPED                                                                                                        \
    "opset 21\nopset \"com.microsoft\" 1\n"                                                                            \
    "graph (x: f32[1, s, 8], lens: i32[1], mask: f32[all], past.k: f32[1, 1, p, 8], past.v: f32[1, 1, p, 8]) -> (y, "  \
    "now.k, now.v) {\nt = onnx Tanh@21 x\nl = onnx Shape@21 mask\ntotal = onnx Cast@21 l {to = i32}\n"                 \
    "y, now.k, now.v = onnx \"com.microsoft\" GroupQueryAttention@1 x, x, t, past.k, past.v, lens, total {num_heads "  \
    "= 1, kv_num_heads = 1}\n}\n"

/* A recurrence: the next value is of the same size, and the old one is read behind it, too. */
#define RECURRENT                                                                                                      \
    "graph (x: f32[n, 2], h: f32[n, 2]) -> (y, next) {\nhalf = constant f32[] 0.5\na = onnx Mul@21 h, half\n"          \
    "w = constant f32[2, 2] {1, 0, 0, 1}\nnext = onnx Add@21 a, x\nm = onnx MatMul@21 next, w\ny = onnx Sub@21 m, "    \
    "h\n}\n"

/* A cache of a declared size, written at a place that comes with the run. */
#define PLACED                                                                                                         \
    "opset 24\ngraph (x: f32[1, 1, s, 2], at: i64[1], past: f32[1, 1, 6, 2]) -> (y, now) {\n"                          \
    "now = onnx TensorScatter@24 past, x, at {axis = 2}\ny = onnx ReduceSum@24 now {keepdims = 0}\n}\n"

#define KEEP(input, output, more)                                                                                      \
    "{\"cache\": {\"enable\": false}, \"state\": [{\"input\": \"" input "\", \"output\": \"" output "\"" more "}]}"

static void must(OnnxfuseStatus status) { cr_assert(!status, "%s", onnxfuse_status_message(status)); }

static void expect_error(OnnxfuseStatus status, OnnxfuseCode code, const char *part, const char *name) {
    cr_expect(status && onnxfuse_status_code(status) == code && strstr(onnxfuse_status_message(status), part),
              "%s: code %d, expected %d; \"%s\" should hold \"%s\"", name, onnxfuse_status_code(status), code,
              onnxfuse_status_message(status), part);
    onnxfuse_status_free(status);
}

static OnnxfuseSession *open_with(const char *model, const char *policy) {
    OnnxfuseSession *session = NULL;
    must(open_text(model, &(OnnxfuseOptions){.policy_json = policy, .threads = 2}, &session));
    return session;
}

/* rows x columns numbers that follow from the seed. */
static OnnxfuseValue *numbers(int rank, const int64_t *dims, int seed) {
    OnnxfuseValue *value = NULL;
    must(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, rank, dims, NULL, &value));
    float *data = onnxfuse_value_data(value);
    for (int64_t i = 0; i < onnxfuse_value_count(value); i++) data[i] = (float)((i * 7 + seed * 13) % 23) / 16 - 0.7f;
    return value;
}

static void expect_same(const OnnxfuseValue *a, const OnnxfuseValue *b, const char *name, int step) {
    cr_assert(
        onnxfuse_value_rank(a) == onnxfuse_value_rank(b) &&
            !memcmp(onnxfuse_value_dims(a), onnxfuse_value_dims(b), sizeof(int64_t) * (size_t)onnxfuse_value_rank(a)),
        "%s, run %d: sizes differ", name, step);
    const float *x = onnxfuse_value_data(a), *y = onnxfuse_value_data(b);
    for (int64_t i = 0; i < onnxfuse_value_count(a); i++)
        cr_assert(fabsf(x[i] - y[i]) <= 1e-6f, "%s, run %d: element %lld is %g, expected %g", name, step, (long long)i,
                  (double)x[i], (double)y[i]);
}

static OnnxfuseValue *run_state(OnnxfuseSession *s, OnnxfuseState *state, const OnnxfuseValue *const *inputs) {
    OnnxfuseValue *y = NULL;
    must(onnxfuse_session_run_with(s, inputs, &y,
                                   &(OnnxfuseRunOptions){.size = sizeof(OnnxfuseRunOptions), .state = state}));
    return y;
}

/* ---- a model that concatenates ---- */

typedef struct Carried {
    OnnxfuseSession *session;
    OnnxfuseValue *k, *v;
} Carried;

/* The caller of the plain model passes what it got. */
static OnnxfuseValue *carry(Carried *c, const OnnxfuseValue *x) {
    OnnxfuseValue *out[3] = {NULL};
    must(onnxfuse_session_run(c->session, (const OnnxfuseValue *const[]){x, c->k, c->v}, out));
    onnxfuse_value_free(c->k);
    onnxfuse_value_free(c->v);
    c->k = out[1];
    c->v = out[2];
    return out[0];
}

static Carried carried(OnnxfuseSession *plain, int64_t batch) {
    Carried c = {plain, NULL, NULL};
    const int64_t dims[] = {batch, 2, 0, 2};
    c.k = numbers(4, dims, 0);
    c.v = numbers(4, dims, 0);
    return c;
}

static void drop(Carried *c) {
    onnxfuse_value_free(c->k);
    onnxfuse_value_free(c->v);
}

static void both(Carried *c, OnnxfuseSession *s, OnnxfuseState *state, int64_t batch, int64_t rows, int seed) {
    OnnxfuseValue *x = numbers(3, (const int64_t[]){batch, rows, 4}, seed), *kept[2];
    OnnxfuseValue *expected = carry(c, x), *got = run_state(s, state, (const OnnxfuseValue *const[]){x});
    expect_same(got, expected, "result", seed);
    for (int i = 0; i < 2; i++) {
        must(onnxfuse_state_get(state ? state : onnxfuse_session_own_state(s), i, &kept[i]));
        expect_same(kept[i], i ? c->v : c->k, "state", seed);
        onnxfuse_value_free(kept[i]);
    }
    onnxfuse_value_free(x);
    onnxfuse_value_free(expected);
    onnxfuse_value_free(got);
}

static void many_runs(const char *policy, bool in_place) {
    OnnxfuseSession *plain = must_open(CONCAT), *s = open_with(CONCAT, policy);
    cr_assert_eq(onnxfuse_session_input_count(s), 1);
    cr_assert_eq(onnxfuse_session_output_count(s), 1);
    cr_assert_eq(onnxfuse_session_state_count(s), 2);
    const OnnxfuseStateInfo *info = onnxfuse_session_state(s, 1);
    cr_expect_str_eq(info->input, "past.v");
    cr_expect_str_eq(info->output, "now.v");
    cr_expect(info->in_place == in_place && info->axis == (in_place ? 2 : -1) && info->rank == 4 &&
              info->dtype == ONNXFUSE_FLOAT32);
    cr_expect_null(onnxfuse_session_state(s, 2));
    for (int64_t batch = 1; batch <= 3; batch += 2) { /* the second begins anew */
        Carried c = carried(plain, batch);
        must(onnxfuse_state_reset(onnxfuse_session_own_state(s)));
        for (int i = 0; i < 40; i++) both(&c, s, NULL, batch, i ? 1 + i % 3 : 9, i);
        drop(&c);
    }
    onnxfuse_session_close(plain);
    onnxfuse_session_close(s);
}

Test(state, grows_where_it_is) { many_runs(KEEP("past.*", "now.*", ""), true); }
Test(state, has_a_capacity) { many_runs(KEEP("past.*", "now.*", ", \"capacity\": 100, \"axis\": -2"), true); }
Test(state, is_grown_without_fusion) {
    many_runs("{\"fusion\": {\"enable\": false}, \"state\": [{\"input\": \"past.*\", \"output\": \"now.*\"}]}", true);
}

Test(state, several_of_one_session) {
    OnnxfuseSession *plain = must_open(CONCAT), *s = open_with(CONCAT, KEEP("past.*", "now.*", ""));
    Carried c[3] = {carried(plain, 1), carried(plain, 2), {plain, NULL, NULL}};
    OnnxfuseState *state[3];
    for (int i = 0; i < 2; i++) must(onnxfuse_state_create(s, &state[i]));
    for (int i = 0; i < 20; i++)
        for (int k = 0; k < 2; k++) both(&c[k], s, state[k], k + 1, 1 + (i + k) % 4, i * 3 + k);
    must(onnxfuse_state_copy(state[0], &state[2])); /* both go on, each with its own rows */
    must(onnxfuse_state_get(state[2], 0, &c[2].k));
    must(onnxfuse_state_get(state[2], 1, &c[2].v));
    for (int i = 0; i < 20; i++)
        for (int k = 0; k < 3; k++) both(&c[k], s, state[k], k == 1 ? 2 : 1, 1, i * 5 + k);
    must(onnxfuse_state_reset(state[1]));
    must(onnxfuse_state_set(state[1], 0, c[0].k)); /* and one that is put in */
    must(onnxfuse_state_set(state[1], 1, c[0].v));
    drop(&c[1]);
    c[1] = (Carried){plain, NULL, NULL};
    must(onnxfuse_state_get(state[1], 0, &c[1].k));
    must(onnxfuse_state_get(state[1], 1, &c[1].v));
    expect_same(c[1].k, c[0].k, "put in", 0);
    for (int i = 0; i < 3; i++) both(&c[1], s, state[1], 1, 2, i);
    cr_expect(onnxfuse_state_bytes(state[1]) >= (int64_t)onnxfuse_value_bytes(c[1].k) * 2);
    for (int i = 0; i < 3; i++) {
        drop(&c[i]);
        onnxfuse_state_free(state[i]);
    }
    onnxfuse_session_close(plain);
    onnxfuse_session_close(s);
}

Test(state, a_run_that_fails_changes_nothing) {
    OnnxfuseSession *plain = must_open(CONCAT), *s = open_with(CONCAT, KEEP("past.*", "now.*", ", \"capacity\": 12"));
    Carried c = carried(plain, 2);
    OnnxfuseValue *y = NULL, *x = numbers(3, (const int64_t[]){1, 1, 4}, 1),
                  *many = numbers(3, (const int64_t[]){2, 4, 4}, 1);
    both(&c, s, NULL, 2, 5, 1);
    expect_error(onnxfuse_session_run(s, (const OnnxfuseValue *const[]){x}, &y), ONNXFUSE_INVALID, "past.k",
                 "another batch");
    both(&c, s, NULL, 2, 4, 2);
    expect_error(onnxfuse_session_run(s, (const OnnxfuseValue *const[]){many}, &y), ONNXFUSE_INVALID,
                 "state \"past.k\" of \"now.k\": 13 rows along axis 2, and its capacity is 12", "beyond the capacity");
    OnnxfuseCancel *cancel = NULL;
    must(onnxfuse_cancel_create(&cancel));
    onnxfuse_cancel(cancel);
    OnnxfuseRunOptions cancelled = {.size = sizeof cancelled, .cancel = cancel};
    OnnxfuseValue *two = numbers(3, (const int64_t[]){2, 1, 4}, 1);
    expect_error(onnxfuse_session_run_with(s, (const OnnxfuseValue *const[]){two}, &y, &cancelled), ONNXFUSE_CANCELLED,
                 "", "a cancelled run");
    both(&c, s, NULL, 2, 3, 3);
    onnxfuse_cancel_free(cancel);
    OnnxfuseSession *other = open_with(CONCAT, KEEP("past.*", "now.*", ""));
    OnnxfuseState *foreign = NULL;
    must(onnxfuse_state_create(other, &foreign));
    OnnxfuseRunOptions with = {.size = sizeof with, .state = foreign};
    expect_error(onnxfuse_session_run_with(s, (const OnnxfuseValue *const[]){two}, &y, &with), ONNXFUSE_USAGE,
                 "another session", "a state of another session");
    expect_error(onnxfuse_state_create(plain, &foreign), ONNXFUSE_USAGE, "no states", "a model without states");
    expect_error(onnxfuse_state_set(foreign, 0, x), ONNXFUSE_INVALID, "rank 4", "a value of another rank");
    expect_error(onnxfuse_state_get(foreign, 2, &y), ONNXFUSE_USAGE, "2 of 2", "an index out of range");
    cr_expect_null(y);
    onnxfuse_state_free(foreign);
    onnxfuse_session_close(other);
    drop(&c);
    onnxfuse_value_free(x);
    onnxfuse_value_free(two);
    onnxfuse_value_free(many);
    onnxfuse_session_close(plain);
    onnxfuse_session_close(s);
}

Test(state, of_a_compiled_model) {
    size_t size, compiled_size;
    void *bytes = model_bytes(CONCAT, &size), *compiled = NULL;
    OnnxfuseOptions options = {.policy_json = KEEP("past.*", "now.*", "")};
    must(onnxfuse_compile_memory(bytes, size, NULL, &options, &compiled, &compiled_size));
    OnnxfuseSession *plain = must_open(CONCAT), *s = NULL;
    must(onnxfuse_session_open_memory(compiled, compiled_size, NULL, NULL, &s));
    cr_assert_eq(onnxfuse_session_state_count(s), 2);
    Carried c = carried(plain, 1);
    for (int i = 0; i < 10; i++) both(&c, s, NULL, 1, 1 + i % 3, i);
    drop(&c);
    onnxfuse_session_close(plain);
    onnxfuse_session_close(s);
    onnxfuse_free(compiled);
    free(bytes);
}

/* ---- other forms ---- */

static OnnxfuseValue *whole(OnnxfuseDType dtype, int64_t number) {
    OnnxfuseValue *value = NULL;
    must(onnxfuse_value_tensor(dtype, 1, (const int64_t[]){1}, NULL, &value));
    if (dtype == ONNXFUSE_INT32)
        *(int32_t *)onnxfuse_value_data(value) = (int32_t)number;
    else
        *(int64_t *)onnxfuse_value_data(value) = number;
    return value;
}

static void with_room(const char *policy, int most, bool grows) {
    enum { ROOM = 64 };
    OnnxfuseSession *plain = must_open(GROUPED), *s = open_with(GROUPED, policy);
    const int64_t cache[] = {1, 1, ROOM, 8};
    OnnxfuseValue *k = NULL, *v = NULL;
    must(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 4, cache, NULL, &k));
    must(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 4, cache, NULL, &v));
    cr_expect(onnxfuse_session_state(s, 0)->in_place && onnxfuse_session_state(s, 0)->axis == 2);
    for (int step = 0, past = 0; past < most; step++) {
        int64_t rows = step ? 1 : 5;
        OnnxfuseValue *x = numbers(3, (const int64_t[]){1, rows, 8}, step),
                      *lens = whole(ONNXFUSE_INT32, past + rows - 1),
                      *total = numbers(1, (const int64_t[]){past + rows}, 0), *out[3] = {NULL, k, v}, *y;
        must(onnxfuse_session_run(plain, (const OnnxfuseValue *const[]){x, lens, total, k, v}, out));
        y = run_state(s, NULL, (const OnnxfuseValue *const[]){x, lens, total});
        expect_same(y, out[0], "grouped attention", step);
        onnxfuse_value_free(out[0]);
        onnxfuse_value_free(x);
        onnxfuse_value_free(lens);
        onnxfuse_value_free(total);
        onnxfuse_value_free(y);
        past += (int)rows;
    }
    OnnxfuseValue *kept = NULL, *lens = whole(ONNXFUSE_INT32, most),
                  *total = numbers(1, (const int64_t[]){most + 1}, 0), *x = numbers(3, (const int64_t[]){1, 1, 8}, 1),
                  *y = NULL;
    must(onnxfuse_state_get(onnxfuse_session_own_state(s), 1, &kept));
    for (int i = 0; i < most * 8; i++)
        cr_assert_eq(((float *)onnxfuse_value_data(kept))[i], ((float *)onnxfuse_value_data(v))[i]);
    if (!grows)
        expect_error(onnxfuse_session_run(s, (const OnnxfuseValue *const[]){x, lens, total}, &y), ONNXFUSE_INVALID,
                     "its capacity is", "beyond the capacity");
    onnxfuse_value_free(kept);
    onnxfuse_value_free(x);
    onnxfuse_value_free(lens);
    onnxfuse_value_free(total);
    onnxfuse_value_free(k);
    onnxfuse_value_free(v);
    onnxfuse_session_close(plain);
    onnxfuse_session_close(s);
}

Test(state, room_of_a_capacity) { with_room(KEEP("past.*", "now.*", ", \"capacity\": 40"), 40, false); }
Test(state, room_that_grows) { with_room(KEEP("past.*", "now.*", ""), 60, true); }

Test(state, a_recurrence) {
    OnnxfuseSession *s = open_with(RECURRENT, KEEP("h", "next", ""));
    float expected[4] = {0};
    cr_expect_not(onnxfuse_session_state(s, 0)->in_place);
    for (int i = 0; i < 8; i++) {
        OnnxfuseValue *x = numbers(2, (const int64_t[]){2, 2}, i),
                      *y = run_state(s, NULL, (const OnnxfuseValue *const[]){x});
        for (int k = 0; k < 4; k++) {
            float next = expected[k] * 0.5f + ((const float *)onnxfuse_value_data(x))[k];
            cr_expect_float_eq(((const float *)onnxfuse_value_data(y))[k], next - expected[k], 1e-6, "run %d", i);
            expected[k] = next;
        }
        if (i == 4) {
            must(onnxfuse_state_reset(onnxfuse_session_own_state(s)));
            memset(expected, 0, sizeof expected);
        }
        onnxfuse_value_free(x);
        onnxfuse_value_free(y);
    }
    onnxfuse_session_close(s);
}

Test(state, a_cache_of_a_declared_size) {
    OnnxfuseSession *s = open_with(PLACED, KEEP("past", "now", ""));
    float sum = 0;
    cr_expect(onnxfuse_session_state(s, 0)->in_place);
    for (int i = 0; i < 6; i++) {
        OnnxfuseValue *x = numbers(4, (const int64_t[]){1, 1, 1, 2}, i), *at = whole(ONNXFUSE_INT64, i);
        OnnxfuseValue *y = run_state(s, NULL, (const OnnxfuseValue *const[]){x, at});
        sum += ((const float *)onnxfuse_value_data(x))[0] + ((const float *)onnxfuse_value_data(x))[1];
        cr_expect_float_eq(*(const float *)onnxfuse_value_data(y), sum, 1e-5, "run %d", i);
        onnxfuse_value_free(x);
        onnxfuse_value_free(at);
        onnxfuse_value_free(y);
    }
    onnxfuse_session_close(s);
}

/* ---- a thousand tokens ---- */

/* A prompt and then a token a run: behind the second token nothing is placed in memory, compiled or allocated. The grouped model is told how
 * long the context is. */
static void many_tokens(const char *model, const char *policy, int width, bool told) {
    enum { PROMPT = 8, TOKENS = 1000 };
    OnnxfuseSession *s = NULL;
    must(open_text(model, &(OnnxfuseOptions){.policy_json = policy, .threads = 1}, &s));
    OnnxfuseValue *y = NULL, *ones = numbers(1, (const int64_t[]){PROMPT + TOKENS}, 0);
    OnnxfuseStats stats;
    uint64_t placed = 0;
    int compiled = 0;
    for (int t = 0; t <= TOKENS; t++) {
        int64_t rows = t ? 1 : PROMPT, all = PROMPT + t;
        OnnxfuseValue *x = numbers(3, (const int64_t[]){1, rows, width}, t), *lens = whole(ONNXFUSE_INT32, all - 1),
                      *mask = NULL;
        must(onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 1, &all, onnxfuse_value_data(ones), &mask));
        if (t < 2) {
            onnxfuse_value_free(y);
            y = numbers(3, (const int64_t[]){1, rows, width}, 0);
        }
        counted_begin(0);
        OnnxfuseStatus status = onnxfuse_session_run(s, (const OnnxfuseValue *const[]){x, lens, mask}, &y);
        long long allocated = counted_end();
        must(status);
        onnxfuse_session_stats(s, &stats, sizeof stats);
        if (t > 2) {
            cr_assert_eq(allocated, 0, "token %d: %lld allocations", t, allocated);
            cr_assert_eq(sizes_placed(s->plan), placed, "token %d: memory is placed anew", t);
            cr_assert_eq(stats.kernels_compiled, compiled, "token %d: a kernel is compiled", t);
        }
        placed = sizes_placed(s->plan);
        compiled = stats.kernels_compiled;
        onnxfuse_value_free(x);
        onnxfuse_value_free(lens);
        onnxfuse_value_free(mask);
    }
    cr_expect(told == (onnxfuse_session_input_count(s) == 3));
    onnxfuse_value_free(y);
    onnxfuse_value_free(ones);
    onnxfuse_session_close(s);
}

Test(state, tokens_place_and_allocate_nothing) {
    many_tokens(CONCAT, KEEP("past.*", "now.*", ", \"capacity\": 1024"), 4, false);
    many_tokens(GROUPED, KEEP("past.*", "now.*", ", \"capacity\": 1024"), 8, true);
    many_tokens(CONCAT, /* scores in memory, which are longer with each token */
                "{\"cache\": {\"enable\": false}, \"fusion\": {\"enable\": false}, \"state\": [{\"input\": \"past.*\", "
                "\"output\": \"now.*\", \"capacity\": 1024}]}",
                4, false);
}

/* ---- what does not fit ---- */

Test(state, wrong_pairs) {
#define TYPES                                                                                                          \
    "graph (a: f32[n], b: i64[n], c: f32[n, 2], t: string[n]) -> (y, z, u) {\ny = onnx Identity@21 a\nz = onnx "       \
    "Neg@21 a\nu = onnx Identity@21 t\n}\n"
    static const struct {
        const char *name, *model, *policy, *part;
    } rows[] = {
        {"no such input", CONCAT, KEEP("cache.*", "now.*", ""),
         "state[0]: no input of the model is called \"cache.*\""},
        {"no such output", CONCAT, KEEP("past.*", "present.*", ""), "input \"past.k\" has no output \"present.k\""},
        {"two outputs for one input", CONCAT,
         "{\"state\": [{\"input\": \"past.*\", \"output\": \"now.*\"}, {\"input\": \"past.k\", \"output\": \"y\"}]}",
         "state[1]: input \"past.k\" has an output already, by state[0]"},
        {"two inputs for one output", TYPES,
         "{\"state\": [{\"input\": \"a\", \"output\": \"y\"}, {\"input\": \"c\", \"output\": \"y\"}]}",
         "state[1]: output \"y\" is the next value of input \"a\" already, by state[0]"},
        {"another type", TYPES, KEEP("b", "y", ""), "input \"b\" is i64 of rank 1, output \"y\" is f32 of rank 1"},
        {"another rank", TYPES, KEEP("c", "y", ""), "input \"c\" is f32 of rank 2, output \"y\" is f32 of rank 1"},
        {"strings", TYPES, KEEP("t", "u", ""), "strings cannot be a state"},
        {"an axis beyond the rank", CONCAT, KEEP("past.k", "now.k", ", \"axis\": 4"), "state[0].axis: 4"},
        {"a capacity of what does not grow", RECURRENT, KEEP("h", "next", ", \"capacity\": 4"), "does not grow"},
        {"a capacity along another axis", CONCAT, KEEP("past.k", "now.k", ", \"capacity\": 4, \"axis\": 3"),
         "along that axis"},
        {"as many *", CONCAT, KEEP("past.*", "now.k", ""), "state[0]: input and output need as many *"},
        {"no output", CONCAT, "{\"state\": [{\"input\": \"past.k\"}]}", "state[0]: output is missing"},
        {"buckets beside it", CONCAT,
         "{\"state\": [{\"input\": \"past.*\", \"output\": \"now.*\"}], \"shapes\": {\"buckets\": {\"s\": {\"sizes\": "
         "[4], \"pad\": {\"x\": 0}}}}}",
         "where there are states"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        OnnxfuseSession *session = NULL;
        expect_error(open_text(rows[i].model, &(OnnxfuseOptions){.policy_json = rows[i].policy}, &session),
                     ONNXFUSE_INVALID, rows[i].part, rows[i].name);
        cr_expect_null(session, "%s", rows[i].name);
    }
}

/* A state that is in use is refused, not waited for: here by a callback of the run that uses it. */
typedef struct Again {
    OnnxfuseSession *session;
    const OnnxfuseValue *x;
} Again;

static OnnxfuseStatus run_again(void *user, const char *name, const char *node, const OnnxfuseValue *value) {
    (void)name, (void)node, (void)value;
    const Again *again = user;
    OnnxfuseValue *y = NULL;
    expect_error(onnxfuse_session_run(again->session, &again->x, &y), ONNXFUSE_USAGE, "in use", "a second run");
    expect_error(onnxfuse_state_reset(onnxfuse_session_own_state(again->session)), ONNXFUSE_USAGE, "in use", "a reset");
    cr_expect_eq(onnxfuse_state_bytes(onnxfuse_session_own_state(again->session)), -1);
    return NULL;
}

Test(state, one_call_at_a_time) {
    OnnxfuseSession *s = open_with(CONCAT, KEEP("past.*", "now.*", ""));
    OnnxfuseValue *x = numbers(3, (const int64_t[]){1, 2, 4}, 1), *y = NULL;
    Again again = {s, x};
    OnnxfuseRunOptions options = {.size = sizeof options, .observe = run_again, .observe_user = &again};
    must(onnxfuse_session_run_with(s, (const OnnxfuseValue *const[]){x}, &y, &options));
    onnxfuse_value_free(y);
    onnxfuse_value_free(x);
    onnxfuse_session_close(s);
}
