/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of epilogues off the node, and their split into what the tiles do and what is applied to finished ones. */
#include <math.h>
#include "runtime/device/cpu/product.h"

double epilogue_double(EpilogueKind kind, double x, double alpha, double beta) {
    switch (kind) {
    case EPILOGUE_RELU: return x < 0 ? 0 : x;
    case EPILOGUE_LEAKY_RELU: return x < 0 ? x * alpha : x;
    case EPILOGUE_CLIP: return x < alpha ? alpha : x > beta ? beta : x;
    case EPILOGUE_GELU_ERF: return 0.5 * x * erfc(-x * M_SQRT1_2);
    case EPILOGUE_GELU_TANH: return 0.5 * x * (1 + tanh(M_2_SQRTPI * M_SQRT1_2 * (x + 0.044715 * x * x * x)));
    case EPILOGUE_SIGMOID: return 1 / (1 + exp(-x));
    case EPILOGUE_TANH: return tanh(x);
    case EPILOGUE_SWISH: return x / (1 + exp(-alpha * x));
    case EPILOGUE_HARD_SWISH: x *= epilogue_double(EPILOGUE_HARD_SIGMOID, x, alpha, beta); return x;
    case EPILOGUE_HARD_SIGMOID: x = alpha * x + beta; return x < 0 ? 0 : x > 1 ? 1 : x;
    case EPILOGUE_LINEAR: return alpha * x + beta;
    default: return x;
    }
}

static float nth_float(const Node *node, const char *name, int index) {
    const Attr *attr = node_attr(node, name);
    return attr && attr->kind == ATTR_FLOATS && index < attr->count ? attr->floats[index] : 0;
}

/* A bias and an addend before any activation, in either order, are where the sum starts; bounds right after them are
 * where it ends. */
static void fold(Epilogue *e, DType type) {
    for (; e->folded < e->count; e->folded++) {
        const EpilogueStep *s = &e->steps[e->folded];
        int *start = s->kind == EPILOGUE_BIAS ? &e->bias : s->kind == EPILOGUE_ADD ? &e->addend : NULL;
        if (!start || *start >= 0) break;
        *start = e->folded;
    }
    if (e->folded == e->count || (type != DT_F32 && type != DT_F64)) return;
    const EpilogueStep *s = &e->steps[e->folded];
    if (s->kind != EPILOGUE_RELU && s->kind != EPILOGUE_CLIP) return;
    e->clamp = true;
    e->low = s->kind == EPILOGUE_RELU ? 0 : (double)s->alpha;
    e->high = s->kind == EPILOGUE_RELU ? (double)INFINITY : (double)s->beta;
    /* Below `low` first, as the oracle does: with crossed bounds, what is below stays at low. */
    if (e->low > e->high)
        e->clamp = false;
    else
        e->folded++;
}

Status epilogue_of(const Node *node, DType type, Epilogue *out) {
    *out = (Epilogue){.bias = -1, .addend = -1};
    int count, input = 2;
    const int64_t *kinds = attr_ints(node, "epilogue", &count);
    if (count > MAX_EPILOGUE)
        return status_error(STATUS_FAULT, "an epilogue of %d steps, %d are the most", count, MAX_EPILOGUE);
    for (int i = 0; i < count; i++) {
        if (kinds[i] < 0 || kinds[i] >= EPILOGUE_COUNT)
            return status_error(STATUS_FAULT, "there is no epilogue %lld", (long long)kinds[i]);
        EpilogueStep *step = &out->steps[out->count++];
        *step = (EpilogueStep){(EpilogueKind)kinds[i], -1, nth_float(node, "epilogue_alpha", i),
                               nth_float(node, "epilogue_beta", i)};
        if (!epilogue_reads_input(step->kind)) continue;
        if (input >= node->input_count || !node->inputs[input])
            return status_error(STATUS_FAULT, "the epilogue lacks an input");
        step->input = input++;
    }
    fold(out, type);
    return NULL;
}

/* ---- application ---- */

static void apply_relu_integers(const BoundEpilogue *bound, void *values, int count) {
    if (!bound->is_signed) return;
    if (bound->type == DT_U32)
        for (int i = 0; i < count; i++)
            ((int32_t *)values)[i] = ((int32_t *)values)[i] < 0 ? 0 : ((int32_t *)values)[i];
    else
        for (int i = 0; i < count; i++)
            ((int64_t *)values)[i] = ((int64_t *)values)[i] < 0 ? 0 : ((int64_t *)values)[i];
}

static void add_values(DType type, void *to, const void *from, int count) {
    switch (type) {
#define CASE(which, T)                                                                                                 \
    case which:                                                                                                        \
        for (int i = 0; i < count; i++) ((T *)to)[i] += ((const T *)from)[i];                                          \
        break;
        CASE(DT_F32, float)
        CASE(DT_F64, double)
        CASE(DT_U32, uint32_t)
        CASE(DT_U64, uint64_t)
#undef CASE
    default: break;
    }
}

/* Where rows are much shorter than a vector, all of a tile's make one: in memory they often follow each other anyway.
 */
enum { FEW_COLUMNS = 4 };

static bool follow_each_other(void *const *rows, int m, int64_t bytes) {
    for (int i = 1; i < m; i++)
        if ((const char *)rows[i] != (const char *)rows[i - 1] + bytes) return false;
    return true;
}

static void activate_gathered(const EpilogueStep *s, void *const *rows, int m, int64_t column, int count) {
    if (follow_each_other(rows, m, count * (int64_t)sizeof(float))) {
        tile_isa()->activate(rows, 1, column, (int64_t)m * count, s->kind, s->alpha, s->beta);
        return;
    }
    float values[TILE_MAX_ROWS * FEW_COLUMNS];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < count; j++) values[i * count + j] = ((const float *)rows[i])[column + j];
    tile_isa()->activate((void *[]){values}, 1, 0, (int64_t)m * count, s->kind, s->alpha, s->beta);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < count; j++) ((float *)rows[i])[column + j] = values[i * count + j];
}

static void apply_step(const BoundEpilogue *bound, int step, void *const *rows, int m, int64_t column, int count) {
    const EpilogueStep *s = &bound->epilogue->steps[step];
    size_t size = dtype_size(bound->type);
    if (bound->type == DT_F32 && !epilogue_reads_input(s->kind)) {
        if (count <= FEW_COLUMNS)
            activate_gathered(s, rows, m, column, count);
        else
            tile_isa()->activate(rows, m, column, count, s->kind, s->alpha, s->beta);
        return;
    }
    for (int i = 0; i < m; i++) {
        char *values = (char *)rows[i] + (size_t)column * size;
        if (s->kind == EPILOGUE_BIAS)
            add_values(bound->type, values, (const char *)bound->operands[step] + (size_t)column * size, count);
        else if (s->kind == EPILOGUE_ADD)
            add_values(bound->type, values,
                       (const char *)bound->operands[step] + (values - (const char *)bound->result), count);
        else if (bound->type == DT_F64)
            for (int j = 0; j < count; j++)
                ((double *)(void *)values)[j] =
                    epilogue_double(s->kind, ((double *)(void *)values)[j], s->alpha, s->beta);
        else if (s->kind == EPILOGUE_RELU)
            apply_relu_integers(bound, values, count);
    }
}

void epilogue_apply(const BoundEpilogue *bound, int from, void *const *rows, int m, int64_t column, int count) {
    for (int step = from; step < bound->epilogue->count; step++) apply_step(bound, step, rows, m, column, count);
}
