/* Anchors against the plain evaluator: many random configurations a row, the same anchor again with other sizes, and
 * two threads on one anchor. */
#include <criterion/criterion.h>

#include <math.h>
#include <pthread.h>
#include "ops/anchor_eval.h"
#include "runtime/cpu/anchor.h"

/* ---- numbers ---- */

static uint64_t random_bits(uint64_t *state) { /* SplitMix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int below(uint64_t *state, int count) { return (int)(random_bits(state) % (uint64_t)count); }

static Tensor *random_tensor(Arena *arena, uint64_t *state, DType dtype, int rank, const int64_t *dims) {
    Tensor *t = tensor_new(arena, dtype, rank, dims);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        if (dtype_is_float(dtype))
            dtype_store_double(dtype, t->data, i, (double)(random_bits(state) >> 11) * 0x1p-52 - 1);
        else
            dtype_store_int(dtype, t->data, i, (int64_t)random_bits(state) >> 40);
    }
    return t;
}

/* Rounding of sums of `terms` products of numbers up to 1, in the type that they are added in and the one that is
 * stored. */
static double tolerance(DType dtype, int64_t terms) {
    if (!dtype_is_float(dtype)) return 0;
    double sum = dtype == DT_F64 ? 1e-15 : 1.2e-7, stored = dtype == DT_F16 ? 1e-3 : dtype == DT_BF16 ? 8e-3 : sum;
    return sum * (double)(terms + 8) + stored * sqrt((double)terms + 4);
}

static void expect_equal(const Tensor *got, const Tensor *want, int64_t terms, const char *what, uint64_t seed) {
    double bound = tolerance(want->dtype, terms);
    for (int64_t i = 0; i < tensor_count(want); i++) {
        if (dtype_is_float(want->dtype)) {
            double a = dtype_load_double(got->dtype, got->data, i), b = dtype_load_double(want->dtype, want->data, i);
            cr_assert(fabs(a - b) <= bound * fmax(1, fabs(b)) || (isnan(a) && isnan(b)),
                      "%s of %s, seed %llu: element %lld is %.9g, not %.9g", what, dtype_name(want->dtype),
                      (unsigned long long)seed, (long long)i, a, b);
        } else {
            int64_t a = dtype_load_int(got->dtype, got->data, i), b = dtype_load_int(want->dtype, want->data, i);
            cr_assert_eq(a, b, "%s, seed %llu: element %lld is %lld, not %lld", what, (unsigned long long)seed,
                         (long long)i, (long long)a, (long long)b);
        }
    }
}

/* ---- one configuration ---- */

typedef struct Setup {
    Graph *graph;
    Node *node;
    Tensor *tensors[8];
    bool constant[8];
    int count;
    int64_t terms;
    uint64_t state, seed;
    const char *what;
} Setup;

static Value *add_tensor(Setup *s, DType dtype, int rank, const int64_t *dims) {
    const Dim *sizes[MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = dim_const(s->graph->dims, dims[i]);
    s->tensors[s->count++] = random_tensor(s->graph->arena, &s->state, dtype, rank, dims);
    return graph_add_input(s->graph, NULL, dtype, rank, sizes);
}

static void set_floats(Setup *s, const char *name, const float *values, int count) {
    node_set_attr(s->node, (Attr){.name = name,
                                  .kind = ATTR_FLOATS,
                                  .count = count,
                                  .floats = arena_copy(s->graph->arena, values, (size_t)count * 4)});
}

/* Up to three random steps; result: its dims before perm_out. */
static void add_epilogue(Setup *s, DType dtype, int rank, const int64_t *result, bool may_add) {
    int64_t kinds[3];
    float alpha[3], beta[3];
    int count = below(&s->state, 4);
    for (int i = 0; i < count; i++) {
        kinds[i] = below(&s->state, dtype_is_float(dtype) ? EPILOGUE_COUNT : EPILOGUE_RELU + 1);
        if (kinds[i] == EPILOGUE_ADD && !may_add) kinds[i] = EPILOGUE_BIAS;
        alpha[i] = kinds[i] == EPILOGUE_CLIP ? -0.5f : 0.2f;
        beta[i] = kinds[i] == EPILOGUE_CLIP ? 0.75f : 0.5f;
        if (kinds[i] == EPILOGUE_BIAS) node_append_input(s->node, add_tensor(s, dtype, 1, result + rank - 1));
        if (kinds[i] == EPILOGUE_ADD) node_append_input(s->node, add_tensor(s, dtype, rank, result));
    }
    node_set_ints(s->node, "epilogue", kinds, count);
    set_floats(s, "epilogue_alpha", alpha, count);
    set_floats(s, "epilogue_beta", beta, count);
}

static void add_output(Setup *s, DType dtype, int rank, const int64_t *dims) {
    const Dim *sizes[MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = dim_const(s->graph->dims, dims[i]);
    node_add_output(s->node, NULL, dtype, rank, sizes);
}

static void check(Setup *s, Pool *pool) {
    const Tensor *constants[8], *inputs[8];
    Tensor hidden[8], *want, *got;
    CpuAnchor *anchor;
    uint32_t released;
    for (int i = 0; i < s->count; i++) constants[i] = s->constant[i] ? s->tensors[i] : NULL;
    Status status = cpu_anchor_prepare(s->node, constants, pool, &anchor, &released);
    cr_assert_null(status, "%s, seed %llu: %s", s->what, (unsigned long long)s->seed, status_message(status));
    for (int i = 0; i < s->count; i++) {
        hidden[i] = *s->tensors[i];
        cr_assert(!(released >> i & 1) || s->constant[i]);
        if (released >> i & 1) hidden[i].data = NULL;
        inputs[i] = &hidden[i];
    }
    status = eval_anchor(s->node, s->tensors, NULL, s->graph->arena, &want);
    cr_assert_null(status, "%s, seed %llu: %s", s->what, (unsigned long long)s->seed, status_message(status));
    got = tensor_new(s->graph->arena, want->dtype, want->rank, want->dims);
    memset(got->data, 0xee, tensor_bytes(got));
    status = cpu_anchor_run(anchor, inputs, NULL, got, pool);
    cr_assert_null(status, "%s, seed %llu: %s", s->what, (unsigned long long)s->seed, status_message(status));
    expect_equal(got, want, s->terms, s->what, s->seed);
    cpu_anchor_destroy(anchor);
    graph_destroy(s->graph);
}

static DType any_type(uint64_t *state) {
    static const DType types[] = {DT_F32, DT_F32,  DT_F32, DT_F32, DT_F32, DT_F64,
                                  DT_F16, DT_BF16, DT_I32, DT_I64, DT_U8,  DT_I8};
    return types[below(state, sizeof types / sizeof *types)];
}

static void random_perm(uint64_t *state, int rank, int64_t *perm) {
    for (int i = 0; i < rank; i++) perm[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        int j = below(state, i + 1);
        int64_t kept = perm[i];
        perm[i] = perm[j];
        perm[j] = kept;
    }
}

/* dims such that permuting them by perm gives `wanted`. */
static void before_perm(int rank, const int64_t *perm, const int64_t *wanted, int64_t *dims) {
    for (int i = 0; i < rank; i++) dims[perm[i]] = wanted[i];
}

static const int sizes[] = {0, 1, 1, 2, 3, 5, 6, 7, 12, 13, 16, 17, 31, 33, 48, 64, 65, 70, 97, 130};
static int any_size(uint64_t *state) { return sizes[below(state, sizeof sizes / sizeof *sizes)]; }

static void check_matmul(uint64_t seed, Pool *pool) {
    Setup s = {.graph = graph_create(0), .state = seed, .seed = seed, .what = "matmul"};
    DType dtype = any_type(&s.state);
    int rank_a = 2 + below(&s.state, 3), rank_b = below(&s.state, 2) ? 2 : 2 + below(&s.state, 3),
        rank = rank_a > rank_b ? rank_a : rank_b;
    int64_t a[4], b[4], r[4], batch[2] = {1 + below(&s.state, 3), 1 + below(&s.state, 4)}, perm[4], dims[4], out[4];
    int64_t m = any_size(&s.state), n = any_size(&s.state), k = below(&s.state, 12) ? any_size(&s.state) : 1500;
    for (int i = 0; i < rank - 2; i++) {
        int ai = i - (rank - rank_a), bi = i - (rank - rank_b);
        int64_t extent = batch[i + 2 - (rank - 2)];
        bool a_one = ai >= 0 && !below(&s.state, 4), b_one = bi >= 0 && !below(&s.state, 4);
        if (ai >= 0) a[ai] = a_one ? 1 : extent;
        if (bi >= 0) b[bi] = b_one ? 1 : extent;
        r[i] = (ai >= 0 && !a_one) || (bi >= 0 && !b_one) ? extent : 1;
    }
    a[rank_a - 2] = m, a[rank_a - 1] = k, b[rank_b - 2] = k, b[rank_b - 1] = n, r[rank - 2] = m, r[rank - 1] = n;
    s.terms = k;
    int64_t perm_a[4], perm_b[4];
    random_perm(&s.state, rank_a, perm_a);
    random_perm(&s.state, rank_b, perm_b);
    bool turned_a = below(&s.state, 2), turned_b = below(&s.state, 2), turned_out = !below(&s.state, 3);
    before_perm(rank_a, perm_a, a, dims);
    Value *va = add_tensor(&s, dtype, rank_a, turned_a ? dims : a);
    before_perm(rank_b, perm_b, b, dims);
    Value *vb = add_tensor(&s, dtype, rank_b, turned_b ? dims : b);
    s.node = graph_add_node(s.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){va, vb}, 2);
    if (turned_a) node_set_ints(s.node, "perm_a", perm_a, rank_a);
    if (turned_b) node_set_ints(s.node, "perm_b", perm_b, rank_b);
    memcpy(out, r, sizeof out);
    if (turned_out) {
        random_perm(&s.state, rank, perm);
        node_set_ints(s.node, "perm_out", perm, rank);
        for (int i = 0; i < rank; i++) out[i] = r[perm[i]];
    }
    if (dtype_is_float(dtype) && !below(&s.state, 3)) node_set_float(s.node, "alpha", 0.125);
    add_epilogue(&s, dtype, rank, r, !turned_out);
    add_output(&s, dtype, rank, out);
    for (int i = 1; i < s.count; i++) s.constant[i] = below(&s.state, 2);
    check(&s, pool);
}

static void check_conv(uint64_t seed, bool transposed, Pool *pool) {
    Setup s = {.graph = graph_create(0), .state = seed, .seed = seed, .what = transposed ? "conv_transpose" : "conv"};
    DType dtype = any_type(&s.state);
    int spatial = 1 + below(&s.state, 3), rank = spatial + 2;
    int64_t x[5], w[5], y[5], strides[3], dilations[3], pads[6], group = 1, inputs = 1 + below(&s.state, 40),
                                                                 outputs = 1 + below(&s.state, 70);
    switch (below(&s.state, 4)) {
    case 0: group = 1 + below(&s.state, 70), inputs = outputs = 1; break; /* depthwise */
    case 1: group = 2 + below(&s.state, 3), inputs = 1 + below(&s.state, 9), outputs = 1 + below(&s.state, 20); break;
    default: break;
    }
    if (!below(&s.state, 10)) inputs = 300;
    bool tiled = transposed && !below(&s.state, 3);
    x[0] = y[0] = 1 + below(&s.state, 2);
    x[rank - 1] = inputs * group;
    y[rank - 1] = outputs * group;
    w[0] = transposed ? inputs * group : outputs * group;
    w[1] = transposed ? outputs : inputs;
    s.terms = inputs;
    for (int i = 0; i < spatial; i++) {
        int64_t kernel = w[2 + i] = 1 + below(&s.state, spatial == 1 ? 9 : 4);
        strides[i] = 1 + below(&s.state, 3);
        dilations[i] = 1 + (below(&s.state, 3) == 0);
        int64_t extent = (kernel - 1) * dilations[i] + 1;
        pads[i] = below(&s.state, (int)kernel + 1);
        pads[spatial + i] = below(&s.state, (int)kernel + 1);
        if (tiled) strides[i] = kernel, dilations[i] = 1, pads[i] = pads[spatial + i] = 0;
        x[1 + i] = extent + below(&s.state, spatial == 1 ? 150 : spatial == 2 ? 24 : 7);
        y[1 + i] = (x[1 + i] + pads[i] + pads[spatial + i] - extent) / strides[i] + 1;
        if (transposed) {
            y[1 + i] = (x[1 + i] - 1) * strides[i] + extent - pads[i] - pads[spatial + i];
            if (!tiled) y[1 + i] += below(&s.state, (int)strides[i]);
            if (y[1 + i] < 0) y[1 + i] = 0;
        }
        s.terms *= kernel;
    }
    Value *vx = add_tensor(&s, dtype, rank, x), *vw = add_tensor(&s, dtype, rank, w);
    s.node = graph_add_node(s.graph, NULL, NODE_ANCHOR, s.what, (Value *[]){vx, vw}, 2);
    node_set_ints(s.node, "strides", strides, spatial);
    node_set_ints(s.node, "dilations", dilations, spatial);
    node_set_int(s.node, "group", group);
    const Dim *pad_dims[6];
    for (int i = 0; i < 2 * spatial; i++) pad_dims[i] = dim_const(s.graph->dims, pads[i]);
    node_set_dims(s.node, "pads", pad_dims, 2 * spatial);
    add_epilogue(&s, dtype, rank, y, true);
    add_output(&s, dtype, rank, y);
    for (int i = 1; i < s.count; i++) s.constant[i] = below(&s.state, 3) > 0;
    check(&s, pool);
}

static Pool *pool_of(int threads) {
    Pool *pool;
    cr_assert_null(pool_shared(threads, &pool));
    return pool;
}

Test(anchors, matmuls_agree_with_the_evaluator) {
    for (uint64_t seed = 0; seed < 1500; seed++) check_matmul(seed, pool_of(1 + (int)(seed % 3)));
}

Test(anchors, convolutions_agree_with_the_evaluator) {
    for (uint64_t seed = 0; seed < 800; seed++) check_conv(seed, false, pool_of(1 + (int)(seed % 3)));
}

Test(anchors, transposed_convolutions_agree_with_the_evaluator) {
    for (uint64_t seed = 0; seed < 600; seed++) check_conv(seed, true, pool_of(1 + (int)(seed % 3)));
}

/* ---- one anchor, many sizes, several threads ---- */

typedef struct Shared {
    Graph *graph;
    Node *node;
    Tensor *weight, *bias;
    CpuAnchor *anchor;
    Pool *pool;
    uint64_t seed;
    const char *failure;
} Shared;

static const char *run_rows(const Shared *s, Arena *arena, uint64_t *state, int64_t rows) {
    Tensor *x = random_tensor(arena, state, DT_F32, 2, (int64_t[]){rows, 96}), *want;
    Tensor hidden_weight = *s->weight, hidden_bias = *s->bias,
           *y = tensor_new(arena, DT_F32, 2, (int64_t[]){rows, 150});
    hidden_weight.data = hidden_bias.data = NULL;
    if (cpu_anchor_run(s->anchor, (const Tensor *[]){x, &hidden_weight, &hidden_bias}, NULL, y, s->pool))
        return "the run failed";
    if (eval_anchor(s->node, (Tensor *[]){x, s->weight, s->bias}, NULL, arena, &want)) return "the evaluator failed";
    for (int64_t i = 0; i < rows * 150; i++)
        if (fabsf(((float *)y->data)[i] - ((float *)want->data)[i]) > 1e-4f) return "an element differs";
    return NULL;
}

static void *run_many_sizes(void *context) {
    Shared *s = context;
    uint64_t state = s->seed;
    for (int i = 0; i < 60 && !s->failure; i++) {
        Arena *arena = arena_create(0);
        s->failure = run_rows(s, arena, &state, 1 + below(&state, 200));
        arena_destroy(arena);
    }
    return NULL;
}

Test(anchors, one_anchor_runs_any_number_of_rows_from_two_threads_at_once) {
    Shared s = {.graph = graph_create(0), .pool = pool_of(2)};
    uint64_t state = 1;
    uint32_t released;
    const Dim *rows = dim_symbol(s.graph->dims, "rows"), *k = dim_const(s.graph->dims, 96),
              *n = dim_const(s.graph->dims, 150);
    Value *x = graph_add_input(s.graph, NULL, DT_F32, 2, (const Dim *[]){rows, k}),
          *w = graph_add_input(s.graph, NULL, DT_F32, 2, (const Dim *[]){k, n});
    Value *b = graph_add_input(s.graph, NULL, DT_F32, 1, &n);
    s.node = graph_add_node(s.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){x, w, b}, 3);
    node_set_ints(s.node, "epilogue", (int64_t[]){EPILOGUE_BIAS, EPILOGUE_GELU_ERF}, 2);
    node_add_output(s.node, NULL, DT_F32, 2, (const Dim *[]){rows, n});
    s.weight = random_tensor(s.graph->arena, &state, DT_F32, 2, (int64_t[]){96, 150});
    s.bias = random_tensor(s.graph->arena, &state, DT_F32, 1, (int64_t[]){150});
    cr_assert_null(
        cpu_anchor_prepare(s.node, (const Tensor *[]){NULL, s.weight, s.bias}, s.pool, &s.anchor, &released));
    cr_assert_eq(released, 6u);
    Shared shared[2] = {s, s};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        shared[i].seed = (uint64_t)i;
        pthread_create(&threads[i], NULL, run_many_sizes, &shared[i]);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_null(shared[i].failure, "%s", shared[i].failure);
    }
    cpu_anchor_destroy(s.anchor);
    graph_destroy(s.graph);
}

/* ---- sizes that do not fit ---- */

typedef struct Misfit {
    const char *name;
    int64_t x[4], w[4], y[4];
} Misfit;

static const Misfit misfits[] = {
    {"the input's channels are not the weight's", {1, 8, 8, 5}, {4, 3, 3, 3}, {1, 8, 8, 4}},
    {"the result has fewer channels than the weight", {1, 8, 8, 3}, {4, 3, 3, 3}, {1, 8, 8, 3}},
    {"the result is wider than the input gives", {1, 8, 8, 3}, {4, 3, 3, 3}, {1, 8, 9, 4}},
    {"the batches differ", {2, 8, 8, 3}, {4, 3, 3, 3}, {1, 8, 8, 4}},
};

Test(anchors, sizes_that_do_not_fit_are_refused) {
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        const Misfit *m = &misfits[i];
        Setup s = {.graph = graph_create(0), .state = i};
        Value *x = add_tensor(&s, DT_F32, 4, m->x), *w = add_tensor(&s, DT_F32, 4, m->w);
        s.node = graph_add_node(s.graph, NULL, NODE_ANCHOR, "conv", (Value *[]){x, w}, 2);
        const Dim *one = dim_const(s.graph->dims, 1);
        node_set_ints(s.node, "strides", (int64_t[]){1, 1}, 2);
        node_set_ints(s.node, "dilations", (int64_t[]){1, 1}, 2);
        node_set_dims(s.node, "pads", (const Dim *[]){one, one, one, one}, 4);
        add_output(&s, DT_F32, 4, m->y);
        CpuAnchor *anchor;
        uint32_t released;
        cr_assert_null(cpu_anchor_prepare(s.node, (const Tensor *[]){NULL, s.tensors[1]}, NULL, &anchor, &released));
        Tensor *y = tensor_new(s.graph->arena, DT_F32, 4, m->y);
        Status status = cpu_anchor_run(anchor, (const Tensor *[]){s.tensors[0], s.tensors[1]}, NULL, y, NULL);
        cr_expect_eq(status_code(status), STATUS_INVALID, "%s", m->name);
        status_free(status);
        cpu_anchor_destroy(anchor);
        graph_destroy(s.graph);
    }
}
