/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/cost.h"

#include <string.h>

const char *work_type_name(WorkType type) {
    static const char *const names[] = {"f32", "f64", "int", "bf16", "int8"};
    return names[type];
}

WorkType work_type(DType dtype) {
    if (!dtype_is_float(dtype)) return WORK_INTEGER;
    return dtype == DT_F64 ? WORK_F64 : WORK_F32;
}

WorkType product_type(DType dtype) {
    if (dtype == DT_U8 || dtype == DT_I8) return WORK_BYTES;
    return dtype == DT_BF16 ? WORK_BF16 : work_type(dtype);
}

void cost_add(Cost *to, const Cost *more) {
    to->read += more->read;
    to->written += more->written;
    to->weights += more->weights;
    for (int t = 0; t < WORK_TYPES; t++) {
        to->products[t] += more->products[t];
        to->others[t] += more->others[t];
    }
}

void cost_add_read(Cost *to, const Value *value, double bytes) {
    to->read += bytes;
    if (value->constant) to->weights += bytes;
}

double cost_bytes(const Cost *cost) { return cost->read + cost->written; }
double cost_work(const Cost *cost, WorkType type) { return cost->products[type] + cost->others[type]; }

double cost_all_work(const Cost *cost) {
    double work = 0;
    for (int t = 0; t < WORK_TYPES; t++) work += cost_work(cost, (WorkType)t);
    return work;
}

/* --- primitives --- */

/* Of what kernels compute by polynomials (codegen/math.c), the arithmetic instructions of f32 and f64; of all else
 * there is one. tests/codegen/test_cost.c compares them with the kernels, and says what to write here. */
static const struct {
    Prim prim;
    short f32, f64;
} expanded[] = {
    {PRIM_EXP, 13, 19},   {PRIM_LOG, 34, 38},  {PRIM_LOG1P, 39, 43},   {PRIM_EXPM1, 16, 22}, {PRIM_SIN, 42, 212},
    {PRIM_COS, 43, 213},  {PRIM_TAN, 45, 212}, {PRIM_ASIN, 23, 26},    {PRIM_ACOS, 29, 32},  {PRIM_ATAN, 21, 33},
    {PRIM_SINH, 31, 41},  {PRIM_COSH, 21, 27}, {PRIM_TANH, 28, 39},    {PRIM_ASINH, 56, 57}, {PRIM_ACOSH, 53, 54},
    {PRIM_ATANH, 49, 50}, {PRIM_ERF, 21, 70},  {PRIM_SIGMOID, 17, 23}, {PRIM_POW, 75, 124},
};

enum {
    PHILOX_WORK = 25
}; /* ten rounds of two products, their halves and four exclusive ors, two key sums: four words */

int prim_work(Prim prim, DType dtype) {
    switch (prim_info(prim)->klass) {
    case PRIM_CLASS_MOVE:
    case PRIM_CLASS_INDEXED:
    case PRIM_CLASS_CAST: return 0;
    case PRIM_CLASS_GENERATE: return prim == PRIM_PHILOX ? PHILOX_WORK : 0;
    default: break;
    }
    for (size_t i = 0; i < sizeof expanded / sizeof *expanded && dtype_is_float(dtype); i++)
        if (expanded[i].prim == prim) return dtype == DT_F64 ? expanded[i].f64 : expanded[i].f32;
    return 1;
}

bool value_count(const Value *value, const int64_t *symbols, double *out_count) {
    double count = 1;
    if (value->rank < 0) return false;
    for (int d = 0; d < value->rank; d++) {
        int64_t size = dim_eval(value->dims[d], symbols);
        if (size == UNBOUND_DIM) return false;
        count *= (double)size;
    }
    *out_count = count;
    return true;
}

static bool value_size(const Value *value, const int64_t *symbols, double *out_bytes) {
    if (!value_count(value, symbols, out_bytes)) return false;
    *out_bytes *= (double)dtype_size(value->dtype);
    return true;
}

static double least(double a, double b) { return a < b ? a : b; }

/* Elements of the result that are computed one by one, or of a reduction's input. */
static bool prim_steps(const Node *node, const int64_t *symbols, double *out_count) {
    bool reduces = prim_info(node->prim)->klass == PRIM_CLASS_REDUCE;
    return value_count(reduces ? node->inputs[0] : node->outputs[0], symbols, out_count);
}

static void add_work(const Node *node, double count, Cost *cost) {
    DType dtype = node->input_count && node->prim != PRIM_WHERE ? node->inputs[0]->dtype : node->outputs[0]->dtype;
    if (node->prim == PRIM_PHILOX) {
        dtype = DT_U32;
        if (attr_int(node, "halves", 0)) count /= 2;
    }
    cost->others[work_type(dtype)] += count * prim_work(node->prim, dtype);
}

/* What is read of an input of a primitive by itself: of what is looked up or cut out of, no more than the result. */
static bool prim_reads(const Node *node, int input, const int64_t *symbols, double *out_bytes) {
    double result;
    if (!value_size(node->inputs[input], symbols, out_bytes) || !value_size(node->outputs[0], symbols, &result))
        return false;
    bool part = node->prim == PRIM_SLICE || node->prim == PRIM_GATHER || node->prim == PRIM_GATHER_ELEMENTS;
    if (part && input == 0) *out_bytes = least(*out_bytes, result);
    return true;
}

bool prim_cost(const Node *node, const int64_t *symbols, Cost *out_cost) {
    double count;
    *out_cost = (Cost){0};
    for (int i = 0; i < node->input_count; i++) {
        double bytes;
        bool again = false;
        for (int k = 0; k < i; k++) again |= node->inputs[k] == node->inputs[i];
        if (again || !node->inputs[i]) continue;
        if (!prim_reads(node, i, symbols, &bytes)) return false;
        cost_add_read(out_cost, node->inputs[i], bytes);
    }
    if (!value_size(node->outputs[0], symbols, &out_cost->written) || !prim_steps(node, symbols, &count)) return false;
    add_work(node, count, out_cost);
    return true;
}

/* --- regions --- */

enum { LONGEST_CHAIN = 32 }; /* of movement; whatever lies behind is taken to read all */

/* Elements of the value that are needed: by slices no more than they hand on. */
static bool needed_of(const Value *value, const int64_t *symbols, int depth, double *out_count) {
    double all, needed = 0;
    if (!value_count(value, symbols, &all)) return false;
    *out_count = all;
    if (value_is_output(value) || depth == LONGEST_CHAIN) return true;
    for (int u = 0; u < value->uses.count && needed < all; u++) {
        const Node *user = value->uses.items[u].node;
        bool moves = user->prim == PRIM_SLICE || user->prim == PRIM_PERMUTE || user->prim == PRIM_RESHAPE;
        double some = all;
        if (moves && !needed_of(user->outputs[0], symbols, depth + 1, &some)) return false;
        needed += some;
    }
    *out_count = least(all, needed);
    return true;
}

bool body_work(const Graph *body, const int64_t *symbols, Cost *cost) {
    FOR_EACH_NODE(node, body) {
        double count;
        if (!prim_steps(node, symbols, &count)) return false;
        add_work(node, count, cost);
    }
    return true;
}

/* Each value once: what a reader repeats of it is not what must be done. */
bool region_cost(const Node *region, const int64_t *symbols, Cost *out_cost) {
    const Graph *body = region->subgraphs[0];
    double count;
    *out_cost = (Cost){0};
    for (int i = 0; i < body->inputs.count; i++) {
        const Value *v = body->inputs.items[i];
        if (!needed_of(v, symbols, 0, &count)) return false;
        cost_add_read(out_cost, region->inputs[i], count * (double)dtype_size(v->dtype));
    }
    for (int i = 0; i < body->outputs.count; i++) {
        const Value *v = body->outputs.items[i];
        if (!value_count(v, symbols, &count)) return false;
        out_cost->written += count * (double)dtype_size(v->dtype);
    }
    return body_work(body, symbols, out_cost);
}
