/* SPDX-License-Identifier: Apache-2.0 */
/* How near to the exact result an anchor's must be. The raw result may be off by what rounding does to its sum
 * (numeric/rounding.h). Its epilogue is computed once more in f64, node by node, of the exact raw result and of the ends
 * of that range: what becomes of the range is allowed, and besides, in units of the largest number on the way, a rounding
 * for each sum and product, several for each function, and, where results are kept in f16 or bf16, one more for each. */
#include "anchor_cases.h"

#include <math.h>
#include <string.h>

#include "graph/eval/eval.h"
#include "lowering/anchor/anchor_eval.h"
#include "rounding.h"

enum { OF_FUNCTION = 8 };

static bool is_float(const Value *v) { return dtype_is_float(v->dtype); }

static Tensor *widened(Arena *arena, const Tensor *t, bool magnitudes) {
    if (!dtype_is_float(t->dtype)) return arena_copy(arena, t, sizeof *t);
    Tensor *wide = tensor_new(arena, DT_F64, t->rank, t->dims);
    for (int64_t n = 0; n < tensor_count(t); n++) {
        double x = dtype_load_double(t->dtype, t->data, n);
        ((double *)wide->data)[n] = magnitudes ? fabs(x) : x;
    }
    return wide;
}

/* Without its epilogue, in f64; NULL when it cannot be evaluated. */
static Tensor *raw_result(const Node *node, Tensor *const *tensors, bool magnitudes, Arena *arena) {
    Node raw = *node;
    Tensor *inputs[2], *result;
    for (int i = 0; i < 2; i++) inputs[i] = widened(arena, tensors[i], magnitudes);
    raw.subgraph_count = 0;
    raw.input_count = 2;
    raw.output_count = 1;
    Status status = eval_anchor(&raw, inputs, NULL, arena, &result);
    status_free(status);
    return status ? NULL : result;
}

const double *anchor_magnitudes(const AnchorCase *c, Tensor *const *tensors) {
    Tensor *sums = raw_result(c->node, tensors, true, c->graph->arena);
    return sums ? sums->data : NULL;
}

/* ---- the epilogue in f64 ---- */

/* All that is made of one raw result: Value * of the body -> Tensor *. */
typedef struct Twin {
    Arena *arena;
    const Node *node;
    Map tensors;
} Twin;

static Tensor *tensor_of(Twin *t, const Value *v) {
    Tensor *found = map_get_id(&t->tensors, MAP_POINTER_KEY(v));
    if (found || !v->constant) return found;
    found = widened(t->arena, v->constant, false);
    map_set_id(&t->tensors, MAP_POINTER_KEY(v), found);
    return found;
}

static Tensor *compute(Twin *t, const Node *node, const Tensor *raw) {
    Tensor *inputs[3], *result;
    Node wide = *node;
    Value value = *node->outputs[0], *out = &value;
    for (int i = 0; i < node->input_count; i++) inputs[i] = tensor_of(t, node->inputs[i]);
    if (node->prim == PRIM_CAST && is_float(node->inputs[0]) && is_float(node->outputs[0])) return inputs[0];
    if (is_float(out)) value.dtype = DT_F64;
    wide.outputs = &out;
    Status status = eval_prim(&wide, inputs, NULL, t->arena, &result);
    status_free(status);
    return !status && tensor_same_shape(result, raw) ? result : NULL;
}

static bool twin_of(Twin *t, Arena *arena, const Node *node, Tensor *const *tensors, Tensor *raw) {
    const Graph *body = node->subgraphs[0];
    *t = (Twin){arena, node, map_make(arena)};
    map_set_id(&t->tensors, MAP_POINTER_KEY(body->inputs.items[0]), raw);
    for (int i = 1; i < body->inputs.count; i++)
        map_set_id(&t->tensors, MAP_POINTER_KEY(body->inputs.items[i]), widened(arena, tensors[i + 1], false));
    FOR_EACH_NODE(inner, body) {
        Tensor *result = compute(t, inner, raw);
        if (!result) return false;
        map_set_id(&t->tensors, MAP_POINTER_KEY(inner->outputs[0]), result);
    }
    return true;
}

static double *numbers(Twin *t, const Value *v) { return tensor_of(t, v)->data; }

/* ---- how far off ---- */

static double roundings_of(const Node *node) {
    switch (node->prim) {
    case PRIM_ADD:
    case PRIM_SUB:
    case PRIM_MUL: return 1;
    case PRIM_CAST: return 0; /* counted as stored */
    case PRIM_MIN:
    case PRIM_MAX:
    case PRIM_NEG:
    case PRIM_ABS:
    case PRIM_WHERE: return 0;
    default: return OF_FUNCTION;
    }
}

/* What a value's own computation adds to its error, relative to the largest number on the way. */
static double lost_by(const Node *node) {
    DType dtype = node->outputs[0]->dtype;
    double roundings = roundings_of(node);
    bool stored = roundings > 0 || node->prim == PRIM_CAST;
    return roundings * rounding_unit(rounding_work_type(dtype)) * (dtype == DT_F64 ? 2 : 1) +
           (stored ? rounding_unit(dtype) : 0);
}

typedef struct Way {
    Twin *twin;
    Map seen;
    double lost, least; /* relative to the largest number on the way; whatever it is */
    double *largest;
    int64_t count;
} Way;

/* All that goes into v. */
static void follow(Way *way, const Value *v) {
    if (v->constant || !is_float(v) || map_get_id(&way->seen, MAP_POINTER_KEY(v))) return;
    map_set_id(&way->seen, MAP_POINTER_KEY(v), way);
    const Tensor *t = tensor_of(way->twin, v);
    for (int64_t i = 0; tensor_count(t) == way->count && i < way->count; i++)
        way->largest[i] = fmax(way->largest[i], fabs(((const double *)t->data)[i]));
    if (!v->producer) return;
    way->lost += lost_by(v->producer);
    way->least += rounding_stored(v->dtype, 0, 0);
    for (int i = 0; i < v->producer->input_count; i++) follow(way, v->producer->inputs[i]);
}

/* What the epilogue adds before anything else is a term of the sum, which may start from it: its magnitudes go to
 * `magnitude`. How many there are. */
static int count_addends(Twin *t, const Graph *body, double *magnitude, int64_t count) {
    const Value *v = body->inputs.items[0];
    int addends = 0;
    for (const Node *node; (node = value_only_user(v)) && node->prim == PRIM_ADD; v = node->outputs[0], addends++) {
        const double *before = numbers(t, v), *after = numbers(t, node->outputs[0]);
        for (int64_t i = 0; i < count; i++) magnitude[i] += fabs(after[i] - before[i]);
    }
    return addends;
}

static const char *compare(Arena *arena, int output, const Tensor *got, const double *exact, const double *error) {
    DType dtype = got->dtype;
    for (int64_t i = 0; i < tensor_count(got); i++) {
        double x = dtype_load_double(dtype, got->data, i);
        if (!rounding_agrees(dtype, x, exact[i], error[i]))
            return arena_format(arena, "element %lld of result %d is %.9g, not %.9g within %.3g", (long long)i, output,
                                x, exact[i], error[i]);
    }
    return NULL;
}

static const char *epilogue_difference(Twin *twins, const Tensor *got, double *error, Arena *arena) {
    const Graph *body = twins[0].node->subgraphs[0];
    int64_t count = tensor_count(got);
    for (int o = 0; o < body->outputs.count; o++) {
        const Value *v = body->outputs.items[o];
        const double *exact = numbers(&twins[0], v), *low = numbers(&twins[1], v), *high = numbers(&twins[2], v);
        Way way = {.twin = &twins[0], .seen = map_make(arena), .count = count};
        way.largest = ARENA_ARRAY(arena, double, count + 1);
        follow(&way, v);
        for (int64_t i = 0; i < count; i++) {
            double range = fmax(fabs(low[i] - exact[i]), fabs(high[i] - exact[i]));
            error[i] = range + way.lost / (1 - way.lost) * (way.largest[i] + range) + way.least;
        }
        const char *difference = compare(arena, o, &got[o], exact, error);
        if (difference) return difference;
    }
    return NULL;
}

/* f64 is compared with what has been rounded as often itself. */
static void raw_errors(DType dtype, double roundings, const double *exact, const double *magnitude, double *error,
                       int64_t count) {
    double gamma = rounding_gamma(dtype, roundings * (dtype == DT_F64 ? 2 : 1));
    for (int64_t i = 0; i < count; i++) error[i] = rounding_stored(dtype, exact[i], gamma * magnitude[i]);
}

static const char *float_difference(const AnchorCase *c, Tensor *const *tensors, const Tensor *got, Arena *arena) {
    const Node *node = c->node;
    DType dtype = tensors[0]->dtype;
    int64_t count = tensor_count(got);
    double *error = ARENA_ARRAY(arena, double, count + 1), roundings = (double)c->terms + 1;
    Tensor *sums = raw_result(node, tensors, true, arena), *exact = raw_result(node, tensors, false, arena);
    Twin twins[3];
    if (!sums || !exact) return "the evaluator fails";
    double *magnitude = sums->data;
    for (int64_t i = 0; i < count; i++) magnitude[i] = c->magnitudes ? c->magnitudes[i] : fabs(magnitude[i]);
    if (!node->subgraph_count) {
        raw_errors(dtype, roundings, exact->data, magnitude, error, count);
        return compare(arena, 0, got, exact->data, error);
    }
    if (!twin_of(&twins[0], arena, node, tensors, exact)) return "the epilogue cannot be evaluated";
    if (rounding_work_type(dtype) == dtype) roundings += count_addends(&twins[0], node->subgraphs[0], magnitude, count);
    raw_errors(dtype, roundings, exact->data, magnitude, error, count);
    for (int end = 1; end < 3; end++) {
        Tensor *moved = widened(arena, exact, false);
        for (int64_t i = 0; i < count; i++) ((double *)moved->data)[i] += end == 1 ? -error[i] : error[i];
        if (!twin_of(&twins[end], arena, node, tensors, moved)) return "the epilogue cannot be evaluated";
    }
    return epilogue_difference(twins, got, error, arena);
}

static const char *integer_difference(const Node *node, Tensor *const *tensors, const Tensor *got, Arena *arena) {
    Tensor *want[EPILOGUE_OUTPUTS];
    Status status = eval_anchor(node, tensors, NULL, arena, want);
    status_free(status);
    if (status) return "the evaluator fails";
    for (int o = 0; o < node->output_count; o++)
        for (int64_t i = 0; i < tensor_count(want[o]); i++) {
            int64_t a = dtype_load_int(got[o].dtype, got[o].data, i);
            int64_t b = dtype_load_int(want[o]->dtype, want[o]->data, i);
            if (a != b)
                return arena_format(arena, "element %lld of result %d is %lld, not %lld", (long long)i, o, (long long)a,
                                    (long long)b);
        }
    return NULL;
}

const char *anchor_difference(const AnchorCase *c, Tensor *const *tensors, const Tensor *got, Arena *arena) {
    return dtype_is_float(tensors[0]->dtype) ? float_difference(c, tensors, got, arena)
                                             : integer_difference(c->node, tensors, got, arena);
}
