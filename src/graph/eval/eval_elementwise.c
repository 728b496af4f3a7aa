/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise primitives. Floats of every width are computed in double and rounded once: for + - * / sqrt of f32 and
 * narrower that is the exact result of the narrow operation, for the functions of libm it is closer than the narrow
 * function's. */
#include "graph/eval/eval_kernels.h"

#include <math.h>

/* ---- the arithmetic ---- */

#define UNARY(prim, member, type, expression)                                                                          \
    case prim:                                                                                                         \
        for (int64_t k = 0; k < count; k++) {                                                                          \
            type x = a[k].member;                                                                                      \
            r[k].member = (expression);                                                                                \
        }                                                                                                              \
        break;
#define TEST(prim, expression)                                                                                         \
    case prim:                                                                                                         \
        for (int64_t k = 0; k < count; k++) {                                                                          \
            double x = a[k].f;                                                                                         \
            r[k].u = (expression);                                                                                     \
        }                                                                                                              \
        break;
#define BINARY_TO(prim, member, type, result, expression)                                                              \
    case prim:                                                                                                         \
        for (int64_t k = 0; k < count; k++) {                                                                          \
            type x = a[k].member, y = b[k].member;                                                                     \
            r[k].result = (expression);                                                                                \
        }                                                                                                              \
        break;
#define BINARY(prim, member, type, expression) BINARY_TO(prim, member, type, member, expression)
#define COMPARES(member, type)                                                                                         \
    BINARY_TO(PRIM_EQ, member, type, u, x == y)                                                                        \
    BINARY_TO(PRIM_NE, member, type, u, x != y)                                                                        \
    BINARY_TO(PRIM_LT, member, type, u, x < y)                                                                         \
    BINARY_TO(PRIM_LE, member, type, u, x <= y)                                                                        \
    BINARY_TO(PRIM_GT, member, type, u, x > y)                                                                         \
    BINARY_TO(PRIM_GE, member, type, u, x >= y)

/* The remainder with the divisor's sign, as Python's % on floats. */
static double floor_mod(double x, double y) {
    double r = fmod(x, y);
    if (r == 0) return copysign(0.0, y);
    return (r < 0) != (y < 0) ? r + y : r;
}

static void apply_float(Prim prim, const Lane *a, const Lane *b, Lane *r, int64_t count) {
    switch (prim) {
        UNARY(PRIM_NEG, f, double, -x)
        UNARY(PRIM_ABS, f, double, fabs(x))
        UNARY(PRIM_SIGN, f, double, isnan(x) ? x : (double)((x > 0) - (x < 0)))
        UNARY(PRIM_FLOOR, f, double, floor(x))
        UNARY(PRIM_CEIL, f, double, ceil(x))
        UNARY(PRIM_ROUND, f, double, rint(x))
        UNARY(PRIM_TRUNC, f, double, trunc(x))
        UNARY(PRIM_SQRT, f, double, sqrt(x))
        UNARY(PRIM_RECIPROCAL, f, double, 1 / x)
        UNARY(PRIM_EXP, f, double, exp(x))
        UNARY(PRIM_LOG, f, double, log(x))
        UNARY(PRIM_LOG1P, f, double, log1p(x))
        UNARY(PRIM_EXPM1, f, double, expm1(x))
        UNARY(PRIM_SIN, f, double, sin(x))
        UNARY(PRIM_COS, f, double, cos(x))
        UNARY(PRIM_TAN, f, double, tan(x))
        UNARY(PRIM_ASIN, f, double, asin(x))
        UNARY(PRIM_ACOS, f, double, acos(x))
        UNARY(PRIM_ATAN, f, double, atan(x))
        UNARY(PRIM_SINH, f, double, sinh(x))
        UNARY(PRIM_COSH, f, double, cosh(x))
        UNARY(PRIM_TANH, f, double, tanh(x))
        UNARY(PRIM_ASINH, f, double, asinh(x))
        UNARY(PRIM_ACOSH, f, double, acosh(x))
        UNARY(PRIM_ATANH, f, double, atanh(x))
        UNARY(PRIM_ERF, f, double, erf(x))
        UNARY(PRIM_SIGMOID, f, double, 1 / (1 + exp(-x)))
        TEST(PRIM_ISNAN, isnan(x) != 0)
        TEST(PRIM_ISINF, isinf(x) != 0)
        BINARY(PRIM_ADD, f, double, x + y)
        BINARY(PRIM_SUB, f, double, x - y)
        BINARY(PRIM_MUL, f, double, x *y)
        BINARY(PRIM_DIV, f, double, x / y)
        BINARY(PRIM_MOD, f, double, floor_mod(x, y))
        BINARY(PRIM_FMOD, f, double, fmod(x, y))
        BINARY(PRIM_POW, f, double, pow(x, y))
        BINARY(PRIM_MIN, f, double, isnan(x) || x < y ? x : y)
        BINARY(PRIM_MAX, f, double, isnan(x) || x > y ? x : y)
        COMPARES(f, double)
    default: break;
    }
}

static uint64_t power(uint64_t x, uint64_t y) {
    uint64_t result = 1;
    for (; y; y >>= 1, x *= x)
        if (y & 1) result *= x;
    return result;
}

/* x ** y as a fraction truncated toward zero: nothing but 1 and -1 survives a negative exponent. */
static int64_t signed_power(int64_t x, int64_t y) {
    if (y >= 0) return (int64_t)power((uint64_t)x, (uint64_t)y);
    return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
}

static int64_t signed_div(int64_t x, int64_t y) {
    if (y == 0) return 0;
    return y == -1 ? (int64_t)(0 - (uint64_t)x) : x / y;
}

static int64_t signed_fmod(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x % y; }

static int64_t signed_mod(int64_t x, int64_t y) {
    int64_t r = signed_fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

static void apply_signed(Prim prim, int width, const Lane *a, const Lane *b, Lane *r, int64_t count) {
    switch (prim) {
        UNARY(PRIM_NEG, u, uint64_t, 0 - x)
        UNARY(PRIM_ABS, i, int64_t, x < 0 ? (int64_t)(0 - (uint64_t)x) : x)
        UNARY(PRIM_SIGN, i, int64_t, (x > 0) - (x < 0))
        UNARY(PRIM_FLOOR, i, int64_t, x)
        UNARY(PRIM_CEIL, i, int64_t, x)
        UNARY(PRIM_ROUND, i, int64_t, x)
        UNARY(PRIM_TRUNC, i, int64_t, x)
        UNARY(PRIM_NOT, i, int64_t, ~x)
        BINARY(PRIM_ADD, u, uint64_t, x + y)
        BINARY(PRIM_SUB, u, uint64_t, x - y)
        BINARY(PRIM_MUL, u, uint64_t, x * y)
        BINARY(PRIM_DIV, i, int64_t, signed_div(x, y))
        BINARY(PRIM_MOD, i, int64_t, signed_mod(x, y))
        BINARY(PRIM_FMOD, i, int64_t, signed_fmod(x, y))
        BINARY(PRIM_POW, i, int64_t, signed_power(x, y))
        BINARY(PRIM_MIN, i, int64_t, x < y ? x : y)
        BINARY(PRIM_MAX, i, int64_t, x > y ? x : y)
        BINARY(PRIM_AND, u, uint64_t, x & y)
        BINARY(PRIM_OR, u, uint64_t, x | y)
        BINARY(PRIM_XOR, u, uint64_t, x ^ y)
        BINARY(PRIM_SHL, u, uint64_t, y >= (uint64_t)width ? 0 : x << y)
        BINARY(PRIM_SHR, i, int64_t, x >> ((uint64_t)y >= (uint64_t)width ? 63 : y))
        COMPARES(i, int64_t)
    default: break;
    }
}

static void apply_unsigned(Prim prim, int width, bool logical, const Lane *a, const Lane *b, Lane *r, int64_t count) {
    switch (prim) {
        UNARY(PRIM_NEG, u, uint64_t, 0 - x)
        UNARY(PRIM_ABS, u, uint64_t, x)
        UNARY(PRIM_SIGN, u, uint64_t, x != 0)
        UNARY(PRIM_FLOOR, u, uint64_t, x)
        UNARY(PRIM_CEIL, u, uint64_t, x)
        UNARY(PRIM_ROUND, u, uint64_t, x)
        UNARY(PRIM_TRUNC, u, uint64_t, x)
        UNARY(PRIM_NOT, u, uint64_t, logical ? !x : ~x)
        BINARY(PRIM_ADD, u, uint64_t, x + y)
        BINARY(PRIM_SUB, u, uint64_t, x - y)
        BINARY(PRIM_MUL, u, uint64_t, x * y)
        BINARY(PRIM_DIV, u, uint64_t, y ? x / y : 0)
        BINARY(PRIM_MOD, u, uint64_t, y ? x % y : 0)
        BINARY(PRIM_FMOD, u, uint64_t, y ? x % y : 0)
        BINARY(PRIM_POW, u, uint64_t, power(x, y))
        BINARY(PRIM_MIN, u, uint64_t, x < y ? x : y)
        BINARY(PRIM_MAX, u, uint64_t, x > y ? x : y)
        BINARY(PRIM_AND, u, uint64_t, x & y)
        BINARY(PRIM_OR, u, uint64_t, x | y)
        BINARY(PRIM_XOR, u, uint64_t, x ^ y)
        BINARY(PRIM_SHL, u, uint64_t, y >= (uint64_t)width ? 0 : x << y)
        BINARY(PRIM_SHR, u, uint64_t, y >= (uint64_t)width ? 0 : x >> y)
        COMPARES(u, uint64_t)
    default: break;
    }
}

void lanes_apply(Prim prim, DType dtype, const Lane *a, const Lane *b, Lane *r, int64_t count) {
    switch (lane_class(dtype)) {
    case LANE_FLOAT: apply_float(prim, a, b, r, count); break;
    case LANE_SIGNED: apply_signed(prim, dtype_file_bits(dtype), a, b, r, count); break;
    case LANE_UNSIGNED: apply_unsigned(prim, dtype_file_bits(dtype), dtype == DT_BOOL, a, b, r, count); break;
    }
}

/* ---- shapes and loops ---- */

static Status result_dims(const Eval *e, int *out_rank, int64_t *dims) {
    int rank = 0;
    for (int k = 0; k < e->node->input_count; k++)
        if (e->inputs[k]->rank > rank) rank = e->inputs[k]->rank;
    for (int i = 0; i < rank; i++) {
        dims[i] = 1;
        for (int k = 0; k < e->node->input_count; k++) {
            int axis = i - (rank - e->inputs[k]->rank);
            int64_t dim = axis < 0 ? 1 : e->inputs[k]->dims[axis];
            if (dim == 1 || dim == dims[i]) continue;
            if (dims[i] != 1)
                return status_error(STATUS_INVALID, "sizes %lld and %lld of axis %d do not broadcast",
                                    (long long)dims[i], (long long)dim, i);
            dims[i] = dim;
        }
    }
    *out_rank = rank;
    return NULL;
}

/* Operand 0 is the output, 1 and on are the inputs. */
static Walk broadcast_walk(const Eval *e) {
    const Tensor *out = e->out;
    Walk w = {.operands = e->node->input_count + 1, .rank = out->rank};
    memcpy(w.dims, out->dims, sizeof w.dims);
    dense_strides(out->rank, out->dims, w.strides[0]);
    for (int k = 0; k < e->node->input_count; k++) {
        const Tensor *in = e->inputs[k];
        int64_t dense[MAX_RANK];
        dense_strides(in->rank, in->dims, dense);
        for (int i = 0; i < in->rank; i++) w.strides[k + 1][out->rank - in->rank + i] = in->dims[i] == 1 ? 0 : dense[i];
    }
    return w;
}

typedef struct LaneLoop {
    const Eval *e;
    Walk walk; /* begun */
} LaneLoop;

/* Indices [begin, end) of the outermost axis. */
static void run_piece(void *context, int64_t begin, int64_t end, int worker) {
    const LaneLoop *loop = context;
    const Eval *e = loop->e;
    const Tensor *a = e->inputs[0], *b = e->node->input_count > 1 ? e->inputs[1] : NULL;
    Prim prim = e->node->prim;
    bool copies = prim == PRIM_CAST, saturate = attr_int(e->node, "saturate", 1) != 0;
    LaneClass from = e->out->dtype == DT_BOOL && !copies ? LANE_UNSIGNED : lane_class(a->dtype);
    Lane x[LANES], y[LANES], r[LANES];
    Walk w = loop->walk;
    (void)worker;
    w.dims[0] = end - begin;
    if (w.rank < 2) w.length = end - begin;
    for (int k = 0; k < w.operands; k++) w.offsets[k] += begin * w.strides[k][0];
    for (bool more = true; more; more = walk_next(&w)) {
        for (int64_t at = 0; at < w.length; at += LANES) {
            int64_t count = w.length - at < LANES ? w.length - at : LANES;
            lanes_load(x, a->dtype, a->data, w.offsets[1] + at * w.step[1], w.step[1], count);
            if (b) lanes_load(y, b->dtype, b->data, w.offsets[2] + at * w.step[2], w.step[2], count);
            if (!copies) lanes_apply(prim, a->dtype, x, y, r, count);
            lanes_store(copies ? x : r, from, e->out->dtype, saturate, e->out->data, w.offsets[0] + at, count);
        }
    }
}

static void run_lanes(Eval *e) {
    enum { GRAIN = 1 << 15 }; /* elements a piece: some ten microseconds */
    LaneLoop loop = {e, broadcast_walk(e)};
    if (!walk_begin(&loop.walk)) return;
    int64_t outermost = loop.walk.rank ? loop.walk.dims[0] : 1;
    int64_t row = tensor_count(e->out) / outermost, grain = (GRAIN + row - 1) / row;
    if (e->pool)
        pool_for(e->pool, outermost, grain, run_piece, &loop);
    else /* whole, even where the caller's loops are being stopped: what is evaluated may be sizes */
        run_piece(&loop, 0, outermost, 0);
}

static bool same_string(StringView a, StringView b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static void compare_strings(Eval *e) {
    const StringView *a = e->inputs[0]->data, *b = e->inputs[1]->data;
    uint8_t *out = e->out->data;
    bool equal = e->node->prim == PRIM_EQ;
    Walk w = broadcast_walk(e);
    for (bool more = walk_begin(&w); more; more = walk_next(&w))
        for (int64_t k = 0; k < w.length; k++)
            out[w.offsets[0] + k] =
                same_string(a[w.offsets[1] + k * w.step[1]], b[w.offsets[2] + k * w.step[2]]) == equal;
}

static void select_elements(Eval *e) {
    const uint8_t *condition = e->inputs[0]->data;
    const char *yes = e->inputs[1]->data, *no = e->inputs[2]->data;
    char *out = e->out->data;
    int64_t size = (int64_t)dtype_size(e->out->dtype);
    Walk w = broadcast_walk(e);
    for (bool more = walk_begin(&w); more; more = walk_next(&w)) {
        for (int64_t k = 0; k < w.length; k++) {
            const char *from = condition[w.offsets[1] + k * w.step[1]] ? yes + (w.offsets[2] + k * w.step[2]) * size
                                                                       : no + (w.offsets[3] + k * w.step[3]) * size;
            memcpy(out + (w.offsets[0] + k) * size, from, (size_t)size);
        }
    }
}

/* The dtype rule of the table; the result's dtype through out_dtype. */
static Status result_dtype(const Eval *e, DType *out_dtype) {
    const Node *node = e->node;
    PrimClass klass = prim_info(node->prim)->klass;
    int first = klass == PRIM_CLASS_SELECT ? 1 : 0;
    DType dtype = e->inputs[first]->dtype;
    for (int k = first; k < node->input_count; k++)
        if (e->inputs[k]->dtype != dtype)
            return status_error(STATUS_INVALID, "inputs of types %s and %s", dtype_name(dtype),
                                dtype_name(e->inputs[k]->dtype));
    if (klass == PRIM_CLASS_SELECT && e->inputs[0]->dtype != DT_BOOL)
        return status_error(STATUS_INVALID, "the condition is %s, not bool", dtype_name(e->inputs[0]->dtype));
    if (!prim_accepts(node->prim, dtype)) return status_error(STATUS_INVALID, "not defined on %s", dtype_name(dtype));
    *out_dtype = dtype;
    if (klass == PRIM_CLASS_COMPARE || klass == PRIM_CLASS_TEST) *out_dtype = DT_BOOL;
    if (klass != PRIM_CLASS_CAST) return NULL;
    *out_dtype = attr_dtype(node, "to", DT_NONE);
    bool fits = node->prim == PRIM_BITCAST
                    ? dtype_size(dtype) == dtype_size(*out_dtype) && prim_accepts(PRIM_BITCAST, *out_dtype)
                    : prim_accepts(PRIM_CAST, *out_dtype);
    if (fits) return NULL;
    return status_error(STATUS_INVALID, "no conversion from %s to %s", dtype_name(dtype), dtype_name(*out_dtype));
}

Status eval_elementwise(Eval *e) {
    DType dtype = DT_NONE;
    int rank = 0;
    int64_t dims[MAX_RANK];
    TRY(result_dtype(e, &dtype));
    TRY(result_dims(e, &rank, dims));
    TRY(tensor_size_of(dtype, rank, dims, NULL, NULL));
    e->out = tensor_new_unset(e->arena, dtype, rank, dims);
    if (e->node->prim == PRIM_WHERE)
        select_elements(e);
    else if (e->node->prim == PRIM_BITCAST)
        memcpy(e->out->data, e->inputs[0]->data, tensor_bytes(e->out));
    else if (e->inputs[0]->dtype == DT_STRING)
        compare_strings(e);
    else
        run_lanes(e);
    return NULL;
}
