/* SPDX-License-Identifier: Apache-2.0 */
/* A case becomes a node with random inputs, the same every time. */
#include "attention_cases.h"

#include <criterion/criterion.h>
#include <math.h>

#include "rounding.h"

static uint64_t state = 1;
static double draw(void) { /* in [-1, 1) */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 33) * 0x1p-30 - 1;
}

static void add_input(AttentionSetup *s, DType dtype, int rank, const int64_t *dims, double scale) {
    const Dim *sizes[MAX_RANK];
    for (int i = 0; i < rank; i++) sizes[i] = dim_const(s->graph->dims, dims[i]);
    Tensor *t = tensor_new(s->arena, dtype, rank, dims);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        double x = draw();
        if (dtype == DT_BOOL)
            ((uint8_t *)t->data)[i] = x < 0.4;
        else
            dtype_store_double(dtype, t->data, i, scale < 0 ? (x < -0.5 ? -(double)INFINITY : x) : scale * x);
    }
    s->inputs[s->count++] = t;
    node_append_input(s->node, graph_add_input(s->graph, NULL, dtype, rank, sizes));
}

static void add_step(AttentionSetup *s, const int64_t *kinds, const float *alpha, const float *beta, int count) {
    Arena *arena = s->graph->arena;
    node_set_ints(s->node, "steps", kinds, count);
    node_set_attr(s->node, (Attr){.name = "steps_alpha",
                                  .kind = ATTR_FLOATS,
                                  .count = count,
                                  .floats = arena_copy(arena, alpha, (size_t)count * sizeof *alpha)});
    node_set_attr(s->node, (Attr){.name = "steps_beta",
                                  .kind = ATTR_FLOATS,
                                  .count = count,
                                  .floats = arena_copy(arena, beta, (size_t)count * sizeof *beta)});
}

static void add_mask(AttentionSetup *s, const AttentionCase *c) {
    const float none[ATTENTION_STEPS] = {0}, hidden[] = {-INFINITY};
    const int64_t full[] = {c->batch, c->heads, c->queries, c->keys}, row[] = {c->batch, 1, 1, c->keys},
                  plain[] = {c->queries, c->keys}, column[] = {c->queries, 1}, sinks[] = {c->heads, 1, 1};
    switch (c->mask) {
    case MASK_BIAS:
        add_input(s, DT_F32, 4, row, 2);
        add_input(s, c->dtype, 4, full, 1);
        add_step(s, (const int64_t[]){SCORE_ADD, SCORE_ADD}, none, none, 2);
        break;
    case MASK_HIDING:
        add_input(s, DT_F32, 4, full, -1);
        add_step(s, (const int64_t[]){SCORE_ADD_HIDING}, none, none, 1);
        break;
    case MASK_KEEP:
        add_input(s, DT_BOOL, 2, plain, 1);
        add_input(s, DT_F16, 2, column, 1);
        add_step(s, (const int64_t[]){SCORE_KEEP, SCORE_ADD}, (const float[]){-1e9f, 0}, none, 2);
        break;
    case MASK_HIDE:
        add_input(s, DT_BOOL, 4, row, 1);
        add_step(s, (const int64_t[]){SCORE_HIDE}, hidden, none, 1);
        break;
    case MASK_WINDOW: {
        add_input(s, DT_BOOL, 2, plain, 1);
        uint8_t *seen = s->inputs[s->count - 1]->data;
        for (int64_t i = 0; i < c->queries * c->keys; i++) {
            int64_t key = i % c->keys - i / c->keys - c->offset;
            seen[i] = key >= 0 && key < 9;
        }
        add_step(s, (const int64_t[]){SCORE_KEEP}, hidden, none, 1);
        break;
    }
    case MASK_RISING:
        add_input(s, DT_F32, 4, row, 1);
        for (int64_t i = 0; i < c->batch * c->keys; i++)
            ((float *)s->inputs[s->count - 1]->data)[i] -= 0.125f * (float)(c->keys - 1 - i % c->keys);
        add_step(s, (const int64_t[]){SCORE_ADD}, none, none, 1);
        break;
    case MASK_CAUSAL:
    case MASK_CAUSAL_ADD: {
        const Dim *offset = dim_const(s->graph->dims, c->offset);
        bool adds = c->mask == MASK_CAUSAL_ADD;
        add_step(s, (const int64_t[]){adds ? SCORE_CAUSAL_ADD : SCORE_CAUSAL}, adds ? (const float[]){-1e9f} : hidden,
                 none, 1);
        node_set_dims(s->node, "offset", &offset, 1);
        break;
    }
    case MASK_CAPPED:
        add_step(s, (const int64_t[]){SCORE_SCALE, SCORE_TANH, SCORE_SCALE, SCORE_CLIP},
                 (const float[]){0.2f, 0, 5, -3}, (const float[]){0, 0, 0, 4}, 4);
        break;
    case MASK_DROP:
        add_input(s, DT_F32, 4, row, 2);
        add_input(s, DT_U64, 0, NULL, 1);
        *(uint64_t *)s->inputs[s->count - 1]->data = UINT64_C(0x123456789abcdef);
        add_step(s, (const int64_t[]){SCORE_ADD, SCORE_DROP}, (const float[]){0, 0x1p22f}, (const float[]){0, 4.0f / 3},
                 2);
        break;
    case MASK_SINK:
        add_input(s, DT_BOOL, 4, row, 1);
        add_input(s, c->dtype, 3, sinks, 6);
        add_step(s, (const int64_t[]){SCORE_HIDE, SCORE_SINK}, (const float[]){-INFINITY, 0}, none, 2);
        break;
    default: break;
    }
}

/* Numbers that are none, at places that a few queries and keys have. */
static void poison(AttentionSetup *s) {
    const double numbers[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int i = 0; i < 3; i++) {
        Tensor *q = s->inputs[0], *k = s->inputs[1];
        dtype_store_double(q->dtype, q->data, tensor_count(q) * (i + 1) / 7, numbers[i]);
        if (i) dtype_store_double(k->dtype, k->data, tensor_count(k) * (i + 1) / 5, numbers[i]);
    }
}

AttentionSetup attention_case_setup(const AttentionCase *c, Arena *arena) {
    AttentionSetup s = {.arena = arena, .graph = graph_create(0)};
    s.node = graph_add_node(s.graph, NULL, NODE_ANCHOR, "attention", NULL, 0);
    const int64_t v_heads = c->v_heads ? c->v_heads : c->kv_heads, more = c->parts ? 3 : 0;
    const int64_t q[] = {c->batch, c->heads + more, c->queries, c->size},
                  k[] = {c->batch, c->kv_heads + more, c->keys, c->size},
                  v[] = {c->batch, v_heads + more, c->keys, c->width},
                  out[] = {c->batch, c->heads, c->queries, c->width};
    const int64_t q1[] = {q[0], q[2], q[1], q[3]}, k1[] = {k[0], k[1], k[3], k[2]}, v1[] = {v[2], v[0], v[1], v[3]},
                  out1[] = {out[0], out[2], out[1], out[3]};
    const int64_t k2[] = {k[2], k[0], k[1], k[3]}, v2[] = {v[2], v[0], v[1], v[3]};
    const int64_t q3[] = {q[0], q[1], q[3], q[2]}, v3[] = {v[0], v[1], v[3], v[2]},
                  out3[] = {out[0], out[1], out[3], out[2]};
    double spread = c->spread > 0 ? (double)c->spread : 2;
    add_input(&s, c->dtype, 4, c->permuted ? q1 : c->apart ? q3 : q, spread);
    add_input(&s, c->dtype, 4, c->permuted || c->apart ? k1 : c->interleaved ? k2 : k, spread);
    add_input(&s, c->dtype, 4, c->permuted ? v1 : c->interleaved ? v2 : c->apart ? v3 : v, 1);
    if (c->permuted) {
        node_set_ints(s.node, "perm_q", (const int64_t[]){0, 2, 1, 3}, 4);
        node_set_ints(s.node, "perm_k", (const int64_t[]){0, 1, 3, 2}, 4);
        node_set_ints(s.node, "perm_v", (const int64_t[]){1, 2, 0, 3}, 4);
        node_set_ints(s.node, "perm_out", (const int64_t[]){0, 2, 1, 3}, 4);
    }
    static const char *const perms[] = {"perm_q", "perm_k", "perm_v", "perm_out"};
    for (int i = 0; c->apart && i < 4; i++) node_set_ints(s.node, perms[i], (const int64_t[]){0, 1, 3, 2}, 4);
    if (c->interleaved) {
        node_set_ints(s.node, "perm_k", (const int64_t[]){1, 2, 0, 3}, 4);
        node_set_ints(s.node, "perm_v", (const int64_t[]){1, 2, 0, 3}, 4);
    }
    if (c->parts) {
        node_set_ints(s.node, "part_q", (const int64_t[]){0, c->heads}, 2);
        node_set_ints(s.node, "part_k", (const int64_t[]){1, c->kv_heads}, 2);
        node_set_ints(s.node, "part_v", (const int64_t[]){3, v_heads}, 2);
    }
    node_set_float(s.node, "scale", 1 / sqrt((double)c->size));
    node_set_int(s.node, "empty", c->empty);
    if (c->poisoned) poison(&s);
    add_mask(&s, c);
    const Dim *dims[4];
    for (int i = 0; i < 4; i++) dims[i] = dim_const(s.graph->dims, (c->permuted ? out1 : c->apart ? out3 : out)[i]);
    node_add_output(s.node, NULL, c->dtype, 4, dims);
    return s;
}

void attention_case_compare(const AttentionCase *c, const Tensor *want, const Tensor *got) {
    for (int64_t i = 0; i < tensor_count(want); i++) {
        double x = dtype_load_double(want->dtype, want->data, i), y = dtype_load_double(got->dtype, got->data, i);
        /* Means of numbers up to 1: in f32 64 roundings, probabilities are rounded for matrix units that take the stored
         * type, and both sides are rounded once more when stored. */
        double error = (rounding_gamma(c->dtype, 64) + rounding_stored(c->dtype, 1, 0)) * fmax(1, fabs(x));
        double bound = rounding_stored(c->dtype, x, error) + rounding_stored(c->dtype, x, 0);
        cr_assert(rounding_agrees(c->dtype, y, x, bound), "%s: element %lld is %.9g, not %.9g within %.3g", c->name,
                  (long long)i, y, x, bound);
    }
}
