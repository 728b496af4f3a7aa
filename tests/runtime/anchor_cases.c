/* SPDX-License-Identifier: Apache-2.0 */
/* Tests' random anchors. */
#include "anchor_cases.h"

#include <criterion/criterion.h>
#include <string.h>

#include "anchor_body.h"
#include "lowering/anchors.h"

/* ---- numbers ---- */

uint64_t anchor_case_bits(uint64_t *state) { /* SplitMix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int anchor_case_below(uint64_t *state, int count) { return (int)(anchor_case_bits(state) % (uint64_t)count); }

Tensor *anchor_case_tensor(Arena *arena, uint64_t *state, DType dtype, int rank, const int64_t *dims) {
    Tensor *t = tensor_new(arena, dtype, rank, dims);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        if (dtype_is_float(dtype))
            dtype_store_double(dtype, t->data, i, (double)(anchor_case_bits(state) >> 11) * 0x1p-52 - 1);
        else
            dtype_store_int(dtype, t->data, i, (int64_t)anchor_case_bits(state) >> 40);
    }
    return t;
}

/* ---- how near ---- */

Tensor *anchor_case_room(const AnchorCase *c, Arena *arena, const Tensor *shape) {
    Tensor *room = ARENA_ARRAY(arena, Tensor, c->node->output_count);
    for (int o = 0; o < c->node->output_count; o++) {
        room[o] = *tensor_new(arena, c->node->outputs[o]->dtype, shape->rank, shape->dims);
        memset(room[o].data, 0xee, tensor_bytes(&room[o]));
    }
    return room;
}

void anchor_case_expect(const AnchorCase *c, Tensor *const *tensors, const Tensor *got) {
    const char *difference = anchor_difference(c, tensors, got, c->graph->arena);
    cr_assert_null(difference, "%s of %s, seed %llu: %s", c->what, dtype_name(tensors[0]->dtype),
                   (unsigned long long)c->seed, difference);
}

/* ---- one configuration ---- */

AnchorCase anchor_case_new(const char *what, uint64_t seed) {
    return (AnchorCase){.graph = graph_create(0), .state = seed, .seed = seed, .what = what};
}

Value *anchor_case_input(AnchorCase *s, DType dtype, int rank, const int64_t *dims) {
    const Dim *sizes[MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = dim_const(s->graph->dims, dims[i]);
    s->tensors[s->count++] = anchor_case_tensor(s->graph->arena, &s->state, dtype, rank, dims);
    return graph_add_input(s->graph, NULL, dtype, rank, sizes);
}

static void add_results(AnchorCase *s, DType dtype, int rank, const int64_t *dims, const AnchorStep *steps, int count) {
    const Dim *sizes[MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = dim_const(s->graph->dims, dims[i]);
    anchor_case_results(s, dtype, rank, sizes, steps, count);
}

void anchor_case_output(AnchorCase *s, DType dtype, int rank, const int64_t *dims) {
    add_results(s, dtype, rank, dims, NULL, 0);
}

/* Whether the result's last axis is the products' columns, and its type one that has epilogues. */
static bool takes_epilogue(const AnchorCase *s, DType dtype, int rank) {
    int count;
    const int64_t *perm = attr_ints(s->node, "perm_out", &count);
    return (!perm || perm[rank - 1] == rank - 1) && (dtype_is_float(dtype) || dtype_size(dtype) >= 4);
}

enum { RECIPES = 120 };

static bool for_units(AnchorDraw draw) { return draw == ANCHOR_UNITS || draw == ANCHOR_TF32; }

static void draw_results(AnchorCase *s, DType dtype, int rank, const int64_t *dims, AnchorDraw draw) {
    AnchorStep steps[ANCHOR_MOST_STEPS] = {ANCHOR_BIAS, ANCHOR_RELU};
    int count = 2;
    if (!for_units(draw) && draw != ANCHOR_PLAIN) count = anchor_draw_steps(s->seed % RECIPES, dtype, draw, steps);
    add_results(s, dtype, rank, dims, steps, takes_epilogue(s, dtype, rank) ? count : 0);
}

static DType any_type(uint64_t *state, AnchorDraw draw) {
    static const DType types[] = {DT_F32, DT_F32,  DT_F32, DT_F32, DT_F32, DT_F64,
                                  DT_F16, DT_BF16, DT_I32, DT_I64, DT_U8,  DT_I16};
    if (draw == ANCHOR_TF32) return DT_F32;
    if (draw == ANCHOR_UNITS) return anchor_case_below(state, 2) ? DT_BF16 : DT_F16;
    if (draw == ANCHOR_PLAIN || draw == ANCHOR_HALVES) return draw == ANCHOR_PLAIN ? DT_F32 : DT_F16;
    return types[anchor_case_below(state, sizeof types / sizeof *types)];
}

static DType weight_type(DType dtype) { return dtype == DT_U8 ? DT_I8 : dtype; }

static void random_perm(uint64_t *state, int rank, int64_t *perm) {
    for (int i = 0; i < rank; i++) perm[i] = i;
    for (int i = rank - 1; i > 0; i--) {
        int j = anchor_case_below(state, i + 1);
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
static int any_size(uint64_t *state) { return sizes[anchor_case_below(state, sizeof sizes / sizeof *sizes)]; }

/* Three of four sizes for matrix units are multiples of 8. */
static int64_t unit_size(uint64_t *state, AnchorDraw draw, int64_t size) {
    return for_units(draw) && anchor_case_below(state, 4) ? (size + 7) / 8 * 8 : size;
}

/* Factors that tf32 holds as they are. */
static void shorten(const AnchorCase *s, AnchorDraw draw) {
    for (int i = 0; draw == ANCHOR_TF32 && i < 2; i++) {
        uint32_t *bits = s->tensors[i]->data;
        for (int64_t k = 0; k < tensor_count(s->tensors[i]); k++) bits[k] &= 0xffffe000u;
    }
}

AnchorCase anchor_case_matmul(uint64_t seed, AnchorDraw draw) {
    AnchorCase s = anchor_case_new("matmul", seed);
    DType dtype = any_type(&s.state, draw);
    int rank_a = 2 + anchor_case_below(&s.state, 3),
        rank_b = anchor_case_below(&s.state, 2) ? 2 : 2 + anchor_case_below(&s.state, 3),
        rank = rank_a > rank_b ? rank_a : rank_b;
    int64_t a[4], b[4], r[4], batch[2] = {1 + anchor_case_below(&s.state, 3), 1 + anchor_case_below(&s.state, 4)},
                              perm[4], dims[4], out[4];
    int64_t m = any_size(&s.state), n = any_size(&s.state),
            k = anchor_case_below(&s.state, 12) ? any_size(&s.state) : 1500;
    m = unit_size(&s.state, draw, m), n = unit_size(&s.state, draw, n), k = unit_size(&s.state, draw, k);
    for (int i = 0; i < rank - 2; i++) {
        int ai = i - (rank - rank_a), bi = i - (rank - rank_b);
        int64_t extent = batch[i + 2 - (rank - 2)];
        bool a_one = ai >= 0 && !anchor_case_below(&s.state, 4), b_one = bi >= 0 && !anchor_case_below(&s.state, 4);
        if (ai >= 0) a[ai] = a_one ? 1 : extent;
        if (bi >= 0) b[bi] = b_one ? 1 : extent;
        r[i] = (ai >= 0 && !a_one) || (bi >= 0 && !b_one) ? extent : 1;
    }
    a[rank_a - 2] = m, a[rank_a - 1] = k, b[rank_b - 2] = k, b[rank_b - 1] = n, r[rank - 2] = m, r[rank - 1] = n;
    s.terms = k;
    int64_t perm_a[4], perm_b[4];
    random_perm(&s.state, rank_a, perm_a);
    random_perm(&s.state, rank_b, perm_b);
    bool turned_a = anchor_case_below(&s.state, 2), turned_b = anchor_case_below(&s.state, 2),
         turned_out = !anchor_case_below(&s.state, 3);
    before_perm(rank_a, perm_a, a, dims);
    Value *va = anchor_case_input(&s, dtype, rank_a, turned_a ? dims : a);
    before_perm(rank_b, perm_b, b, dims);
    Value *vb = anchor_case_input(&s, weight_type(dtype), rank_b, turned_b ? dims : b);
    s.node = graph_add_node(s.graph, NULL, NODE_ANCHOR, "matmul", (Value *[]){va, vb}, 2);
    if (turned_a) node_set_ints(s.node, "perm_a", perm_a, rank_a);
    if (turned_b) node_set_ints(s.node, "perm_b", perm_b, rank_b);
    memcpy(out, r, sizeof out);
    if (turned_out) {
        random_perm(&s.state, rank, perm);
        node_set_ints(s.node, "perm_out", perm, rank);
        for (int i = 0; i < rank; i++) out[i] = r[perm[i]];
    }
    if (dtype_is_float(dtype) && !anchor_case_below(&s.state, 3)) node_set_float(s.node, "alpha", 0.125);
    draw_results(&s, dtype_of_sums(dtype), rank, out, draw);
    shorten(&s, draw);
    for (int i = 1; i < s.count; i++) s.constant[i] = anchor_case_below(&s.state, 2);
    return s;
}

AnchorCase anchor_case_conv(uint64_t seed, bool transposed, AnchorDraw draw) {
    AnchorCase s = anchor_case_new(transposed ? "conv_transpose" : "conv", seed);
    DType dtype = any_type(&s.state, draw);
    int spatial = 1 + anchor_case_below(&s.state, 3), rank = spatial + 2;
    int64_t x[5], w[5], y[5], strides[3], dilations[3], pads[6],
        group = 1, inputs = 1 + anchor_case_below(&s.state, 40), outputs = 1 + anchor_case_below(&s.state, 70);
    switch (anchor_case_below(&s.state, 4)) {
    case 0: group = 1 + anchor_case_below(&s.state, 70), inputs = outputs = 1; break; /* depthwise */
    case 1:
        group = 2 + anchor_case_below(&s.state, 3), inputs = 1 + anchor_case_below(&s.state, 9),
        outputs = 1 + anchor_case_below(&s.state, 20);
        break;
    default: break;
    }
    if (!anchor_case_below(&s.state, 10)) inputs = 300;
    if (inputs > 1) inputs = unit_size(&s.state, draw, inputs), outputs = unit_size(&s.state, draw, outputs);
    bool tiled = transposed && !anchor_case_below(&s.state, 3);
    x[0] = y[0] = 1 + anchor_case_below(&s.state, 2);
    x[rank - 1] = inputs * group;
    y[rank - 1] = outputs * group;
    w[0] = transposed ? inputs * group : outputs * group;
    w[1] = transposed ? outputs : inputs;
    s.terms = inputs;
    for (int i = 0; i < spatial; i++) {
        int64_t kernel = w[2 + i] = 1 + anchor_case_below(&s.state, spatial == 1 ? 9 : 4);
        strides[i] = 1 + anchor_case_below(&s.state, 3);
        bool far = anchor_case_below(&s.state, 8) == 0;
        dilations[i] = 1 + (anchor_case_below(&s.state, 3) == 0) + (far ? anchor_case_below(&s.state, 12) : 0);
        int64_t extent = (kernel - 1) * dilations[i] + 1;
        int most_padding = (int)(far ? extent : kernel + 1);
        pads[i] = anchor_case_below(&s.state, most_padding);
        pads[spatial + i] = anchor_case_below(&s.state, most_padding);
        if (tiled) strides[i] = kernel, dilations[i] = 1, pads[i] = pads[spatial + i] = 0;
        x[1 + i] = extent + anchor_case_below(&s.state, spatial == 1 ? 150 : spatial == 2 ? 24 : 7);
        y[1 + i] = (x[1 + i] + pads[i] + pads[spatial + i] - extent) / strides[i] + 1;
        if (transposed) {
            y[1 + i] = (x[1 + i] - 1) * strides[i] + extent - pads[i] - pads[spatial + i];
            if (!tiled) y[1 + i] += anchor_case_below(&s.state, (int)strides[i]);
            if (y[1 + i] < 0) y[1 + i] = 0;
        }
        s.terms *= kernel;
    }
    Value *vx = anchor_case_input(&s, dtype, rank, x), *vw = anchor_case_input(&s, weight_type(dtype), rank, w);
    s.node = graph_add_node(s.graph, NULL, NODE_ANCHOR, s.what, (Value *[]){vx, vw}, 2);
    node_set_ints(s.node, "strides", strides, spatial);
    node_set_ints(s.node, "dilations", dilations, spatial);
    node_set_int(s.node, "group", group);
    const Dim *pad_dims[6];
    for (int i = 0; i < 2 * spatial; i++) pad_dims[i] = dim_const(s.graph->dims, pads[i]);
    node_set_dims(s.node, "pads", pad_dims, 2 * spatial);
    if (dtype == DT_U8 && !transposed) node_set_int(s.node, PAD_VALUE, seed % 3 ? anchor_case_below(&s.state, 256) : 0);
    draw_results(&s, dtype_of_sums(dtype), rank, y, draw);
    shorten(&s, draw);
    for (int i = 1; i < s.count; i++) s.constant[i] = anchor_case_below(&s.state, 3) > 0;
    return s;
}

/* ---- sizes that do not fit ---- */

const AnchorMisfit anchor_misfits[] = {
    {"the input's channels are not the weight's", {1, 8, 8, 5}, {4, 3, 3, 3}, {1, 8, 8, 4}},
    {"the result has fewer channels than the weight", {1, 8, 8, 3}, {4, 3, 3, 3}, {1, 8, 8, 3}},
    {"the result is wider than the input gives", {1, 8, 8, 3}, {4, 3, 3, 3}, {1, 8, 9, 4}},
    {"the batches differ", {2, 8, 8, 3}, {4, 3, 3, 3}, {1, 8, 8, 4}},
};
const int anchor_misfit_count = (int)(sizeof anchor_misfits / sizeof *anchor_misfits);

AnchorCase anchor_case_misfit(const AnchorMisfit *m) {
    AnchorCase s = anchor_case_new("conv", 1);
    Value *x = anchor_case_input(&s, DT_F32, 4, m->x), *w = anchor_case_input(&s, DT_F32, 4, m->w);
    s.node = graph_add_node(s.graph, NULL, NODE_ANCHOR, "conv", (Value *[]){x, w}, 2);
    const Dim *one = dim_const(s.graph->dims, 1);
    node_set_ints(s.node, "strides", (int64_t[]){1, 1}, 2);
    node_set_ints(s.node, "dilations", (int64_t[]){1, 1}, 2);
    node_set_dims(s.node, "pads", (const Dim *[]){one, one, one, one}, 4);
    anchor_case_output(&s, DT_F32, 4, m->y);
    return s;
}
