/* SPDX-License-Identifier: Apache-2.0 */
/* Plain loops for the anchors. Elements are widened to one of four work types (f32, f64, and 32- and 64-bit integers
 * that wrap), so that each loop is written once a work type; the inner loops run over contiguous memory and are
 * vectorised by the compiler. */
#include "lowering/anchor/anchor_eval.h"

#include <math.h>
#include "graph/eval/eval.h"
#include "lowering/anchor/weight_blocks.h"
#include "lowering/anchors.h"
#include "lowering/sizes.h"

/* A tensor in its work type. */
typedef struct Work {
    DType dtype; /* DT_F32, DT_F64, DT_U32 or DT_U64 */
    int rank;
    int64_t dims[MAX_RANK];
    void *data;
} Work;

typedef struct Eval {
    const Node *node;
    Tensor *const *inputs;
    const int64_t *symbols;
    Arena *arena;
} Eval;

static Status wrong(const Eval *e, const char *what) {
    return status_error(STATUS_INVALID, "%s (%s): %s", node_origin_name(e->node), e->node->op, what);
}

static int64_t product(const int64_t *dims, int from, int to) {
    int64_t count = 1;
    for (int i = from; i < to; i++) count *= dims[i];
    return count;
}

/* ---- element types ---- */

static void widen_floats(const Tensor *t, float *to, int64_t count) {
    const uint16_t *bits = t->data;
    if (t->dtype == DT_F16)
        for (int64_t i = 0; i < count; i++) to[i] = f16_to_f32(bits[i]);
    else if (t->dtype == DT_BF16)
        for (int64_t i = 0; i < count; i++) to[i] = bf16_to_f32(bits[i]);
    else
        for (int64_t i = 0; i < count; i++) to[i] = (float)dtype_load_double(t->dtype, t->data, i);
}

static Work widened(const Eval *e, const Tensor *t) {
    Work work = {anchor_work_type(t->dtype), t->rank, {0}, t->data};
    int64_t count = tensor_count(t);
    memcpy(work.dims, t->dims, sizeof work.dims);
    if (dtype_size(work.dtype) == dtype_size(t->dtype)) return work;
    work.data = arena_array(e->arena, (size_t)count, dtype_size(work.dtype));
    if (work.dtype == DT_F32)
        widen_floats(t, work.data, count);
    else
        for (int64_t i = 0; i < count; i++) ((uint32_t *)work.data)[i] = (uint32_t)dtype_load_int(t->dtype, t->data, i);
    return work;
}

static Tensor *narrowed(const Eval *e, const Work *work, DType to) {
    Tensor *t = ARENA_NEW(e->arena, Tensor);
    int64_t count = product(work->dims, 0, work->rank);
    t->dtype = to;
    t->rank = work->rank;
    memcpy(t->dims, work->dims, sizeof t->dims);
    if (dtype_size(work->dtype) == dtype_size(to)) {
        t->data = work->data;
        return t;
    }
    t->data = arena_array(e->arena, (size_t)count, dtype_size(to));
    if (work->dtype == DT_F32)
        for (int64_t i = 0; i < count; i++) dtype_store_double(to, t->data, i, ((const float *)work->data)[i]);
    else /* the low bits of a wrapped integer */
        for (int64_t i = 0; i < count; i++)
            if (dtype_size(to) == 2)
                ((uint16_t *)t->data)[i] = (uint16_t)((const uint32_t *)work->data)[i];
            else
                ((uint8_t *)t->data)[i] = (uint8_t)((const uint32_t *)work->data)[i];
    return t;
}

/* Copies so that axis i of the result is axis perm[i] of the source. */
static void permute_into(const Work *from, const int64_t *perm, Work *to) {
    int rank = from->rank;
    int64_t steps[MAX_RANK], strides[MAX_RANK], at[MAX_RANK] = {0}, count = product(from->dims, 0, rank), source = 0;
    size_t size = dtype_size(from->dtype);
    for (int i = rank - 1; i >= 0; i--) steps[i] = i == rank - 1 ? 1 : steps[i + 1] * from->dims[i + 1];
    for (int i = 0; i < rank; i++) strides[i] = steps[perm[i]];
    for (int64_t i = 0; i < count; i++) {
        if (size == 4)
            ((uint32_t *)to->data)[i] = ((const uint32_t *)from->data)[source];
        else
            ((uint64_t *)to->data)[i] = ((const uint64_t *)from->data)[source];
        for (int axis = rank - 1; axis >= 0; axis--) {
            source += strides[axis];
            if (++at[axis] < to->dims[axis]) break;
            source -= strides[axis] * to->dims[axis];
            at[axis] = 0;
        }
    }
}

static Status permuted(const Eval *e, const Work *from, const char *attr, Work *out) {
    int count;
    const int64_t *perm = attr_ints(e->node, attr, &count);
    bool seen[MAX_RANK] = {0};
    *out = *from;
    if (!perm) return NULL;
    if (count != from->rank) return wrong(e, "a permute does not fit its tensor's rank");
    for (int i = 0; i < count; i++) {
        if (perm[i] < 0 || perm[i] >= count || seen[perm[i]]) return wrong(e, "a permute is not a permutation");
        seen[perm[i]] = true;
        out->dims[i] = from->dims[perm[i]];
    }
    out->data = arena_array(e->arena, (size_t)product(from->dims, 0, count), dtype_size(from->dtype));
    permute_into(from, perm, out);
    return NULL;
}

/* A work tensor of zeros. */
static Status work_new(const Eval *e, DType dtype, int rank, const int64_t *dims, Work *out) {
    size_t bytes;
    *out = (Work){dtype, rank, {0}, NULL};
    TRY(tensor_size_of(dtype, rank, dims, NULL, &bytes));
    memcpy(out->dims, dims, (size_t)rank * sizeof *dims);
    out->data = arena_alloc(e->arena, bytes);
    return NULL;
}

/* ---- loops ---- */

enum { BLOCK_K = 256, BLOCK_N = 512 }; /* a block of b stays in the second-level cache, a row of c in the first */

#define DEFINE_LOOPS(T, NAME)                                                                                          \
    /* c[n] += the sum over k of a[k] * b[k * stride + n], four k at a time */                                         \
    VECTORISED static void accumulate_##NAME(const T *a, const T *b, T *c, int64_t k, int64_t n, int64_t stride) {     \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 <= k; i += 4, b += 4 * stride) {                                                                  \
            const T a0 = a[i], a1 = a[i + 1], a2 = a[i + 2], a3 = a[i + 3];                                            \
            const T *b1 = b + stride, *b2 = b1 + stride, *b3 = b2 + stride;                                            \
            for (int64_t j = 0; j < n; j++) c[j] += a0 * b[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j];                  \
        }                                                                                                              \
        for (; i < k; i++, b += stride)                                                                                \
            for (int64_t j = 0; j < n; j++) c[j] += a[i] * b[j];                                                       \
    }                                                                                                                  \
    static void matmul_##NAME(const T *a, const T *b, T *c, int64_t m, int64_t k, int64_t n) {                         \
        for (int64_t k0 = 0; k0 < k; k0 += BLOCK_K)                                                                    \
            for (int64_t n0 = 0; n0 < n; n0 += BLOCK_N) {                                                              \
                int64_t ks = k - k0 < BLOCK_K ? k - k0 : BLOCK_K, ns = n - n0 < BLOCK_N ? n - n0 : BLOCK_N;            \
                for (int64_t i = 0; i < m; i++)                                                                        \
                    accumulate_##NAME(a + i * k + k0, b + k0 * n + n0, c + i * n + n0, ks, ns, n);                     \
            }                                                                                                          \
    }
DEFINE_LOOPS(float, f32)
DEFINE_LOOPS(double, f64)
DEFINE_LOOPS(uint32_t, u32)
DEFINE_LOOPS(uint64_t, u64)

static void accumulate(DType dtype, const void *a, const void *b, void *c, int64_t k, int64_t n) {
    if (dtype == DT_F32)
        accumulate_f32(a, b, c, k, n, n);
    else if (dtype == DT_F64)
        accumulate_f64(a, b, c, k, n, n);
    else if (dtype == DT_U32)
        accumulate_u32(a, b, c, k, n, n);
    else
        accumulate_u64(a, b, c, k, n, n);
}

static void multiply(DType dtype, const void *a, const void *b, void *c, int64_t m, int64_t k, int64_t n) {
    if (dtype == DT_F32)
        matmul_f32(a, b, c, m, k, n);
    else if (dtype == DT_F64)
        matmul_f64(a, b, c, m, k, n);
    else if (dtype == DT_U32)
        matmul_u32(a, b, c, m, k, n);
    else
        matmul_u64(a, b, c, m, k, n);
}

/* ---- matmul ---- */

/* The batch index of `x` for the flat batch index of the result. */
static int64_t batch_of(const Work *x, const Work *result, int64_t flat) {
    int64_t index = 0, scale = 1;
    for (int i = 3; i <= result->rank; i++) {
        int64_t extent = result->dims[result->rank - i], at = flat % extent;
        flat /= extent;
        if (i > x->rank) continue;
        int64_t own = x->dims[x->rank - i];
        index += (own == 1 ? 0 : at) * scale;
        scale *= own;
    }
    return index;
}

static Status matmul_dims(const Eval *e, const Work *a, const Work *b, int *out_rank, int64_t *dims) {
    if (a->rank < 2 || b->rank < 2) return wrong(e, "a factor has a rank below 2");
    if (a->dims[a->rank - 1] != b->dims[b->rank - 2])
        return status_error(STATUS_INVALID, "%s (%s): the inner dimensions differ: %lld and %lld",
                            node_origin_name(e->node), e->node->op, (long long)a->dims[a->rank - 1],
                            (long long)b->dims[b->rank - 2]);
    int rank = a->rank > b->rank ? a->rank : b->rank;
    for (int i = 3; i <= rank; i++) {
        int64_t da = i <= a->rank ? a->dims[a->rank - i] : 1, db = i <= b->rank ? b->dims[b->rank - i] : 1;
        if (da != db && da != 1 && db != 1)
            return wrong(e, "the leading dimensions of the factors cannot be broadcast");
        dims[rank - i] = da == 1 ? db : da;
    }
    dims[rank - 2] = a->dims[a->rank - 2];
    dims[rank - 1] = b->dims[b->rank - 1];
    *out_rank = rank;
    return NULL;
}

/* The matrix that b stands for. */
static Status unpacked(const Eval *e, Work *out) {
    WeightBlocks blocks;
    TRY(weight_blocks_of(e->node, (const Tensor *const *)e->inputs, &blocks));
    Work columns;
    TRY(work_new(e, DT_F32, 2, (int64_t[]){blocks.n, blocks.k}, &columns));
    TRY(work_new(e, DT_F32, 2, (int64_t[]){blocks.k, blocks.n}, out));
    weight_blocks_unpack(&blocks, columns.data);
    for (int64_t n = 0; n < blocks.n; n++)
        for (int64_t k = 0; k < blocks.k; k++)
            ((float *)out->data)[k * blocks.n + n] = ((float *)columns.data)[n * blocks.k + k];
    return NULL;
}

static Status eval_matmul(const Eval *e, Work *out) {
    Work a, b, from_a = widened(e, e->inputs[0]), from_b;
    int rank = 2;
    int64_t dims[MAX_RANK];
    TRY(permuted(e, &from_a, "perm_a", &a));
    if (anchor_holds_bits(e->node)) {
        TRY(unpacked(e, &b));
    } else {
        from_b = widened(e, e->inputs[1]);
        TRY(permuted(e, &from_b, "perm_b", &b));
    }
    TRY(matmul_dims(e, &a, &b, &rank, dims));
    TRY(work_new(e, a.dtype, rank, dims, out));
    int64_t m = dims[rank - 2], n = dims[rank - 1], k = a.dims[a.rank - 1], batches = product(dims, 0, rank - 2);
    size_t size = dtype_size(a.dtype);
    if (!m || !n || !k) return NULL;
    for (int64_t i = 0; i < batches; i++)
        multiply(a.dtype, (char *)a.data + (size_t)(batch_of(&a, out, i) * m * k) * size,
                 (char *)b.data + (size_t)(batch_of(&b, out, i) * k * n) * size,
                 (char *)out->data + (size_t)(i * m * n) * size, m, k, n);
    double alpha = attr_float(e->node, "alpha", 1);
    for (int64_t i = 0; alpha != 1 && i < batches * m * n; i++) {
        if (a.dtype == DT_F32)
            ((float *)out->data)[i] *= (float)alpha;
        else if (a.dtype == DT_F64)
            ((double *)out->data)[i] *= alpha;
    }
    return NULL;
}

/* b' of "matmul_grouped". */
static Status group_matrices(const Eval *e, Work *out) {
    Work b = {0};
    const Tensor *packed = e->inputs[1];
    if (!anchor_holds_bits(e->node)) {
        b = widened(e, packed);
        TRY(permuted(e, &b, "perm_b", out));
        return out->rank == 3 ? NULL : wrong(e, "the second factor is not a matrix a group");
    }
    if (packed->rank != 4) return wrong(e, "the second factor does not have blocks a column and group");
    int64_t groups = packed->dims[0], columns = packed->dims[1];
    Work all;
    TRY(unpacked(e, &all)); /* [K, G * N] */
    TRY(work_new(e, DT_F32, 3, (int64_t[]){groups, all.dims[0], columns}, out));
    for (int64_t g = 0; g < groups; g++)
        for (int64_t k = 0; k < all.dims[0]; k++)
            memcpy((float *)out->data + (g * all.dims[0] + k) * columns,
                   (const float *)all.data + (k * groups + g) * columns, (size_t)columns * sizeof(float));
    return NULL;
}

static Status eval_grouped(const Eval *e, Work *out) {
    if (e->node->input_count < 3 || !e->inputs[2] || e->inputs[2]->dtype != DT_I64)
        return wrong(e, "there are no numbers of groups");
    const Tensor *numbers = e->inputs[2], *bias = e->node->input_count > 3 ? e->inputs[3] : NULL;
    Work a = widened(e, e->inputs[0]), b, shifts = {0};
    TRY(group_matrices(e, &b));
    int64_t groups = b.dims[0], k = b.dims[1], n = b.dims[2], rows = tensor_count(numbers), dims[MAX_RANK];
    int rank = numbers->rank + 1;
    bool fits = a.rank >= 1 && a.rank <= rank && a.dims[a.rank - 1] == k && rank <= MAX_RANK;
    for (int i = 2; fits && i <= a.rank; i++)
        fits = a.dims[a.rank - i] == 1 || a.dims[a.rank - i] == numbers->dims[rank - i];
    if (bias) shifts = widened(e, bias);
    if (bias) fits &= shifts.dtype == a.dtype && shifts.rank == 2 && shifts.dims[0] == groups && shifts.dims[1] == n;
    if (!fits) return wrong(e, "the inputs' shapes do not go together");
    for (int i = 0; i < rank; i++) dims[i] = i < rank - 1 ? numbers->dims[i] : n;
    TRY(work_new(e, a.dtype, rank, dims, out));
    size_t size = dtype_size(a.dtype);
    for (int64_t i = 0; i < rows; i++) {
        int64_t group = ((const int64_t *)numbers->data)[i], from = 0, rest = i, stride = 1;
        if (group < 0 || group >= groups) return wrong(e, "there is no group of a row's number");
        for (int d = 2; d <= rank; d++) {
            int64_t own = d <= a.rank ? a.dims[a.rank - d] : 1;
            from += own == 1 ? 0 : rest % dims[rank - d] * stride;
            rest /= dims[rank - d];
            stride *= own;
        }
        char *to = (char *)out->data + (size_t)(i * n) * size;
        if (bias && n) memcpy(to, (const char *)shifts.data + (size_t)(group * n) * size, (size_t)n * size);
        if (n)
            accumulate(a.dtype, (const char *)a.data + (size_t)(from * k) * size,
                       (const char *)b.data + (size_t)(group * k * n) * size, to, k, n);
    }
    return NULL;
}

/* ---- convolutions ---- */

typedef struct Window {
    int spatial;
    int64_t group;
    const int64_t *strides, *dilations;
    int64_t pads[2 * MAX_RANK];
    int64_t taps;            /* elements of the kernel */
    const uint32_t *outside; /* [channels]: what padding holds; NULL: zeros */
    const int64_t *kernel;   /* [spatial] */
} Window;

static Status window_of(const Eval *e, const Work *x, const Work *w, bool transposed, Window *window) {
    int spatial = x->rank - 2, strides, dilations, pads;
    window->spatial = spatial;
    window->group = attr_int(e->node, "group", 1);
    window->strides = attr_ints(e->node, "strides", &strides);
    window->dilations = attr_ints(e->node, "dilations", &dilations);
    const Dim *const *dims = attr_dims(e->node, "pads", &pads);
    if (spatial < 1 || w->rank != x->rank || strides != spatial || dilations != spatial || pads != 2 * spatial ||
        window->group < 1)
        return wrong(e, "attributes and ranks do not fit together");
    for (int i = 0; i < pads; i++) {
        window->pads[i] = dim_eval(dims[i], e->symbols);
        if (window->pads[i] == UNBOUND_DIM) return wrong(e, "a padding is not known");
    }
    window->kernel = w->dims + 2;
    window->taps = product(w->dims, 2, w->rank);
    int64_t channels = x->dims[x->rank - 1];
    if (w->dims[0] % window->group || (transposed ? w->dims[0] : w->dims[1] * window->group) != channels)
        return wrong(e, "the input's channels do not fit the weight and its groups");
    return NULL;
}

/* The weight as [taps, group, inputs a group, outputs a group]. */
static Status weight_by_tap(const Eval *e, const Work *w, const Window *window, bool transposed, Work *out) {
    int64_t g = window->group, taps = window->taps, first = w->dims[0] / g, second = w->dims[1];
    int64_t inputs = transposed ? first : second, outputs = transposed ? second : first;
    TRY(work_new(e, w->dtype, 4, (int64_t[]){taps, g, inputs, outputs}, out));
    Work view = {w->dtype, 4, {g, first, second, taps}, w->data};
    permute_into(&view, transposed ? (int64_t[]){3, 0, 1, 2} : (int64_t[]){3, 0, 2, 1}, out);
    return NULL;
}

/* Steps `at` to the next index within `dims`, the last axis fastest. */
static void step_index(int64_t *at, const int64_t *dims, int rank) {
    for (int i = rank - 1; i >= 0; i--) {
        if (++at[i] < dims[i]) return;
        at[i] = 0;
    }
}

/* Where index `small` (into the result of a convolution, or the input of a transposed one) with kernel tap
 * `tap` falls on the other side [dims]; -1: outside. */
static int64_t tap_position(const Window *window, const int64_t *small, const int64_t *tap, const int64_t *dims) {
    int64_t position = 0;
    for (int i = 0; i < window->spatial; i++) {
        int64_t at = small[i] * window->strides[i] + tap[i] * window->dilations[i] - window->pads[i];
        if (at < 0 || at >= dims[i]) return -1;
        position = position * dims[i] + at;
    }
    return position;
}

/* small: the side that the index runs over; a convolution gathers from `large`, a transposed one scatters to it. */
static void slide(const Window *window, const Work *x, const Work *taps, Work *y, bool transposed) {
    const Work *small = transposed ? x : y, *large = transposed ? y : x;
    int64_t g = window->group, inputs = taps->dims[2], outputs = taps->dims[3],
            positions = product(small->dims, 1, small->rank - 1);
    int64_t others = product(large->dims, 1, large->rank - 1);
    size_t size = dtype_size(x->dtype);
    for (int64_t n = 0; n < x->dims[0]; n++) {
        int64_t at[MAX_RANK] = {0};
        for (int64_t p = 0; p < positions; p++, step_index(at, small->dims + 1, window->spatial)) {
            int64_t tap[MAX_RANK] = {0};
            for (int64_t t = 0; t < window->taps; t++, step_index(tap, window->kernel, window->spatial)) {
                int64_t other = tap_position(window, at, tap, large->dims + 1);
                if (other < 0 && !window->outside) continue;
                int64_t from = n * (transposed ? positions : others) + (transposed ? p : other);
                int64_t to = n * (transposed ? others : positions) + (transposed ? other : p);
                const char *row = other < 0 ? (const char *)window->outside
                                            : (const char *)x->data + (size_t)(from * g * inputs) * size;
                for (int64_t k = 0; k < g; k++)
                    accumulate(x->dtype, row + (size_t)(k * inputs) * size,
                               (char *)taps->data + (size_t)((t * g + k) * inputs * outputs) * size,
                               (char *)y->data + (size_t)((to * g + k) * outputs) * size, inputs, outputs);
            }
        }
    }
}

static Status result_dims(const Eval *e, const Work *x, const Work *w, const Window *window, bool transposed,
                          int64_t *dims) {
    const Value *value = e->node->outputs[0];
    dims[0] = x->dims[0];
    dims[x->rank - 1] = transposed ? w->dims[1] * window->group : w->dims[0];
    for (int i = 0; i < window->spatial; i++) {
        int64_t extent = (window->kernel[i] - 1) * window->dilations[i] + 1;
        int64_t room = x->dims[1 + i] + window->pads[i] + window->pads[window->spatial + i] - extent;
        dims[1 + i] = transposed ? dim_eval(value->dims[1 + i], e->symbols)
                      : room < 0 ? 0
                                 : room / window->strides[i] + 1;
        if (dims[1 + i] < 0) return wrong(e, "the result's size is not known or negative");
    }
    return NULL;
}

/* NULL: zeros, of which sums do not take notice. */
static const uint32_t *padding_of(const Eval *e, const Work *x) {
    uint32_t value = (uint32_t)attr_int(e->node, PAD_VALUE, 0);
    if (!value || e->inputs[0]->dtype != DT_U8) return NULL;
    int64_t channels = x->dims[x->rank - 1];
    uint32_t *padding = arena_array(e->arena, (size_t)channels, sizeof *padding);
    for (int64_t i = 0; i < channels; i++) padding[i] = value;
    return padding;
}

static Status eval_conv(const Eval *e, bool transposed, Work *out) {
    Work x, w, from_x = widened(e, e->inputs[0]), from_w = widened(e, e->inputs[1]), taps;
    Window window = {0};
    int64_t dims[MAX_RANK];
    TRY(permuted(e, &from_x, "perm_x", &x));
    TRY(permuted(e, &from_w, "perm_w", &w));
    TRY(window_of(e, &x, &w, transposed, &window));
    TRY(weight_by_tap(e, &w, &window, transposed, &taps));
    TRY(result_dims(e, &x, &w, &window, transposed, dims));
    TRY(work_new(e, x.dtype, x.rank, dims, out));
    window.outside = padding_of(e, &x);
    slide(&window, &x, &taps, out, transposed);
    return NULL;
}

/* ---- attention ---- */

static double nth_float(const Node *node, const char *name, int index) {
    const Attr *attr = node_attr(node, name);
    return attr && attr->kind == ATTR_FLOATS && index < attr->count ? (double)attr->floats[index] : 0;
}

/* Leading axes of the result: where each operand stands in its own memory. */
typedef struct Attention {
    Work q, k, v, y; /* q' [lead..., s_q or 1, d], k', v', r */
    Work lse;        /* no data: not asked for */
    int rank;
    int64_t queries, keys, size, width; /* s_q, s_k, d, d_v */
    const int64_t *steps;
    int step_count;
    Work inputs[ATTENTION_STEPS];
    int64_t offset;
    const Work *sink; /* of SCORE_SINK; NULL: there is none */
    uint64_t seed;    /* of SCORE_DROP */
    bool wide;        /* f64; else all is rounded to f32 */
} Attention;

static double work_at(const Work *w, int64_t index) {
    return w->dtype == DT_F64 ? ((const double *)w->data)[index] : (double)((const float *)w->data)[index];
}

static double rounded(const Attention *a, double x) { return a->wide ? x : (double)(float)x; }

/* Agreeing sizes, or 1. */
static bool grow(int64_t *size, int64_t other) {
    if (*size == 1) *size = other;
    return other == *size || other == 1;
}

static Status attention_dims(const Eval *e, Attention *a) {
    int rank = a->rank = a->q.rank, heads = rank - 3;
    int64_t *dims = a->y.dims;
    if (rank < 2 || rank > ATTENTION_RANK || a->k.rank != rank || a->v.rank != rank)
        return wrong(e, "queries, keys and values do not have the same number of axes");
    a->queries = a->q.dims[rank - 2], a->size = a->q.dims[rank - 1];
    a->keys = a->k.dims[rank - 2], a->width = a->v.dims[rank - 1];
    if (a->k.dims[rank - 1] != a->size) return wrong(e, "queries and keys differ in size");
    if (a->v.dims[rank - 2] != a->keys) return wrong(e, "there are not as many values as keys");
    bool fits = true;
    for (int i = 0; i <= rank - 2; i++) dims[i] = a->q.dims[i];
    for (int s = 0; s < a->step_count; s++) {
        const Work *in = &a->inputs[s];
        for (int i = 1; in->data && i <= in->rank; i++)
            fits &= in->rank <= rank &&
                    (i == 1 ? in->dims[in->rank - 1] == (in == a->sink ? 1 : a->keys) || in->dims[in->rank - 1] == 1
                            : grow(&dims[rank - i], in->dims[in->rank - i]));
    }
    for (int i = 0; i < rank - 2; i++) {
        const int64_t own[] = {a->k.dims[i], a->v.dims[i]};
        for (int k = 0; k < 2; k++) fits &= i == heads ? own[k] > 0 || !dims[i] : grow(&dims[i], own[k]);
    }
    for (int k = 0; rank > 2 && k < 2; k++) {
        int64_t own = k ? a->v.dims[heads] : a->k.dims[heads];
        if (dims[heads] == 1) dims[heads] = own;
        fits &= own ? dims[heads] % own == 0 : !dims[heads];
    }
    a->queries = dims[rank - 2];
    dims[rank - 1] = a->width;
    return fits ? NULL : wrong(e, "the shapes of queries, keys, values and masks do not fit together");
}

/* The matrix (the last two axes) of w at index `at` of the leading axes; along the heads several may share one. */
static int64_t matrix_of(const Attention *a, const Work *w, const int64_t *at) {
    int64_t index = 0;
    int missing = a->rank - w->rank;
    for (int i = missing; i < a->rank - 2; i++) {
        int64_t own = w->dims[i - missing], all = a->y.dims[i];
        index = index * own + (own ? at[i] / (all / own) : 0);
    }
    return index;
}

/* The element of a step's input for this query and key. */
static int64_t input_index(const Attention *a, const Work *w, const int64_t *at, int64_t query, int64_t key) {
    int64_t rows = w->rank > 1 ? w->dims[w->rank - 2] : 1, columns = w->rank > 0 ? w->dims[w->rank - 1] : 1;
    return (matrix_of(a, w, at) * rows + (rows == 1 ? 0 : query)) * columns + (columns == 1 ? 0 : key);
}

static double score_step(const Eval *e, const Attention *a, int step, const int64_t *at, int64_t query, int64_t key,
                         double x) {
    double alpha = nth_float(e->node, "steps_alpha", step), beta = nth_float(e->node, "steps_beta", step);
    const Work *in = &a->inputs[step];
    double y = in->data ? work_at(in, input_index(a, in, at, query, key)) : 0;
    switch ((ScoreStep)a->steps[step]) {
    case SCORE_SCALE: return x * alpha;
    case SCORE_TANH: return tanh(x);
    case SCORE_CLIP: return x < alpha ? alpha : x > beta ? beta : x;
    case SCORE_ADD: return x + y;
    case SCORE_ADD_HIDING: return y == -(double)INFINITY ? y : x + y;
    case SCORE_KEEP: return y != 0 ? x : alpha;
    case SCORE_HIDE: return y != 0 ? alpha : x;
    case SCORE_CAUSAL: return key <= query + a->offset ? x : alpha;
    case SCORE_CAUSAL_ADD: return key <= query + a->offset ? x : x + alpha;
    default: return x;
    }
}

/* What SCORE_DROP multiplies the probability of a row, numbered among all, and a key by; without it 1. */
static double dropped(const Eval *e, const Attention *a, int64_t row, int64_t key) {
    int last = a->step_count - 1;
    if (!attention_drops(e->node)) return 1;
    uint32_t word = philox_half_u32(a->seed, (uint64_t)(row * a->keys + key)) >> 8;
    return (double)word >= nth_float(e->node, "steps_alpha", last) ? nth_float(e->node, "steps_beta", last) : 0;
}

/* p = softmax(x) in place, beside the score `sink` (-inf: none); false when the row is to be zero. *out_lse: the logarithm of the sum of
 * e^x. */
static bool softmax_row(const Attention *a, AttentionEmpty empty, double sink, double *x, double *out_lse) {
    double top = -(double)INFINITY, sum = 0;
    bool nan = false;
    *out_lse = (double)INFINITY;
    for (int64_t i = 0; i < a->keys; i++) {
        nan |= isnan(x[i]);
        if (x[i] > top) top = x[i];
    }
    if (empty != EMPTY_NAN && !nan && top == -(double)INFINITY) return false;
    if (empty == EMPTY_NAN_ZERO && (nan || top == (double)INFINITY)) return false;
    if (sink > top && top > -(double)INFINITY) top = sink;
    if (nan) top = (double)NAN;
    for (int64_t i = 0; i < a->keys; i++) {
        x[i] = rounded(a, exp(rounded(a, x[i] - top)));
        sum += x[i];
    }
    sum += exp(sink - top);
    for (int64_t i = 0; i < a->keys; i++) x[i] = rounded(a, x[i] / rounded(a, sum));
    *out_lse = top + log(sum);
    return true;
}

static void set_work(const Work *w, int64_t index, double x) {
    if (w->dtype == DT_F64)
        ((double *)w->data)[index] = x;
    else
        ((float *)w->data)[index] = (float)x;
}

static double dot(const Work *a, int64_t a_first, const Work *b, int64_t b_first, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += work_at(a, a_first + i) * work_at(b, b_first + i);
    return sum;
}

static void attention_rows(const Eval *e, const Attention *a, const int64_t *at, int64_t matrix, double *x,
                           double *row) {
    double scale = attr_float(e->node, "scale", 1), lse;
    AttentionEmpty empty = (AttentionEmpty)attr_int(e->node, "empty", EMPTY_NAN);
    int64_t rows = a->q.dims[a->rank - 2], q = matrix_of(a, &a->q, at) * rows * a->size;
    int64_t k = matrix_of(a, &a->k, at) * a->keys * a->size, v = matrix_of(a, &a->v, at) * a->keys * a->width;
    for (int64_t s = 0; s < a->queries; s++) {
        for (int64_t t = 0; t < a->keys; t++) {
            double sum = dot(&a->q, q + (rows == 1 ? 0 : s) * a->size, &a->k, k + t * a->size, a->size);
            x[t] = rounded(a, scale * sum);
            for (int step = 0; step < a->step_count; step++) x[t] = rounded(a, score_step(e, a, step, at, s, t, x[t]));
        }
        int64_t to = matrix * a->queries + s;
        for (int64_t i = 0; i < a->width; i++) row[i] = 0;
        double sink = a->sink ? work_at(a->sink, input_index(a, a->sink, at, s, 0)) : -(double)INFINITY;
        if (softmax_row(a, empty, sink, x, &lse))
            for (int64_t t = 0; t < a->keys; t++) {
                double kept = dropped(e, a, to, t), p = kept == 0 ? 0 : rounded(a, kept * x[t]);
                for (int64_t i = 0; i < a->width; i++) row[i] += p * work_at(&a->v, v + t * a->width + i);
            }
        for (int64_t i = 0; i < a->width; i++) set_work(&a->y, to * a->width + i, row[i]);
        if (a->lse.data) set_work(&a->lse, to, lse);
    }
}

/* `first`: of the node's inputs that steps read. */
static Status attention_steps(const Eval *e, Attention *a, int first) {
    int input = first, sizes;
    a->steps = attr_ints(e->node, "steps", &a->step_count);
    if (a->step_count > ATTENTION_STEPS) return wrong(e, "too many steps");
    const Dim *const *offset = attr_dims(e->node, "offset", &sizes);
    a->offset = sizes ? dim_eval(offset[0], e->symbols) : 0;
    if (a->offset == UNBOUND_DIM) return wrong(e, "the offset of a causal mask is not known");
    for (int i = 0; i < a->step_count; i++) {
        if (!score_step_reads_input((ScoreStep)a->steps[i])) continue;
        if (input >= e->node->input_count || !e->inputs[input]) return wrong(e, "a step lacks its input");
        const Tensor *t = e->inputs[input++];
        Work *to = &a->inputs[i];
        if (a->steps[i] == SCORE_DROP) {
            if (t->dtype != DT_U64 || tensor_count(t) != 1) return wrong(e, "a seed is no u64");
            memcpy(&a->seed, t->data, sizeof a->seed);
            continue;
        }
        if (a->steps[i] == SCORE_SINK) a->sink = to;
        TRY(work_new(e, DT_F64, t->rank, t->dims, to));
        for (int64_t n = 0; n < tensor_count(t); n++) ((double *)to->data)[n] = dtype_load_double(t->dtype, t->data, n);
    }
    return NULL;
}

/* Those heads of the operand that are the anchor's. */
static Status take_part(const Eval *e, const char *attr, Work *w) {
    int count, heads = w->rank - 3;
    const int64_t *part = attr_ints(e->node, attr, &count);
    if (!part) return NULL;
    if (count != 2 || heads < 0 || part[0] < 0 || part[1] < 1 || part[0] > w->dims[heads] - part[1])
        return wrong(e, "a part of heads is outside of its tensor");
    size_t head = (size_t)product(w->dims, heads + 1, w->rank) * dtype_size(w->dtype);
    size_t whole = head * (size_t)w->dims[heads], own = head * (size_t)part[1];
    int64_t outer = product(w->dims, 0, heads);
    char *to = arena_array(e->arena, (size_t)outer, own ? own : 1);
    for (int64_t i = 0; i < outer; i++)
        memcpy(to + (size_t)i * own, (const char *)w->data + (size_t)i * whole + head * (size_t)part[0], own);
    w->dims[heads] = part[1];
    w->data = to;
    return NULL;
}

static Status attention_operands(const Eval *e, Attention *a, int inputs) {
    if (e->node->input_count < inputs) return wrong(e, "inputs are missing");
    for (int i = 0; i < inputs; i++)
        if (!e->inputs[i] || (i < 3 && e->inputs[i]->dtype != e->inputs[0]->dtype))
            return wrong(e, "three inputs of one element type are needed");
    Work q = widened(e, e->inputs[0]), k = widened(e, e->inputs[1]), v = widened(e, e->inputs[2]);
    if (!dtype_is_float(e->inputs[0]->dtype)) return wrong(e, "this element type has no softmax");
    TRY(permuted(e, &q, "perm_q", &a->q));
    TRY(permuted(e, &k, "perm_k", &a->k));
    TRY(permuted(e, &v, "perm_v", &a->v));
    TRY(take_part(e, "part_q", &a->q));
    TRY(take_part(e, "part_k", &a->k));
    TRY(take_part(e, "part_v", &a->v));
    TRY(attention_steps(e, a, inputs));
    TRY(attention_dims(e, a));
    a->wide = a->q.dtype == DT_F64;
    return NULL;
}

/* out: r, and the logarithms where the node has them as its second output. */
static Status eval_attention(const Eval *e, Work *out) {
    Attention a = {0};
    TRY(attention_operands(e, &a, ATTENTION_INPUTS));
    TRY(work_new(e, a.q.dtype, a.rank, a.y.dims, out));
    a.y = *out;
    if (e->node->output_count > 1) {
        TRY(work_new(e, a.q.dtype, a.rank - 1, a.y.dims, out + 1));
        a.lse = out[1];
    }
    double *x = ARENA_ARRAY(e->arena, double, a.keys + 1), *row = ARENA_ARRAY(e->arena, double, a.width + 1);
    int64_t at[MAX_RANK] = {0}, matrices = product(a.y.dims, 0, a.rank - 2);
    for (int64_t i = 0; i < matrices; i++, step_index(at, a.y.dims, a.rank - 2)) attention_rows(e, &a, at, i, x, row);
    return NULL;
}

/* ---- its gradients ---- */

typedef struct AttentionGradient {
    Attention a;
    Work g, lse, d;  /* inputs, g as r */
    Work dq, dk, dv; /* as q', k', v' */
} AttentionGradient;

/* The score of a query and a key, and by how much each of its steps changes as what it changes does. */
static double score_with_slopes(const Eval *e, const Attention *a, const int64_t *at, int64_t query, int64_t key,
                                double x, double *out_slope) {
    *out_slope = 1;
    for (int step = 0; step < a->step_count; step++) {
        double alpha = nth_float(e->node, "steps_alpha", step), beta = nth_float(e->node, "steps_beta", step);
        double before = x, shown;
        const Work *in = &a->inputs[step];
        x = rounded(a, score_step(e, a, step, at, query, key, x));
        switch ((ScoreStep)a->steps[step]) {
        case SCORE_SCALE: *out_slope *= alpha; break;
        case SCORE_TANH: *out_slope *= 1 - x * x; break;
        case SCORE_CLIP: *out_slope *= before > alpha && before < beta; break;
        case SCORE_KEEP:
        case SCORE_HIDE:
            shown = work_at(in, input_index(a, in, at, query, key)) != 0;
            *out_slope *= a->steps[step] == SCORE_KEEP ? shown : 1 - shown;
            break;
        case SCORE_CAUSAL: *out_slope *= key <= query + a->offset; break;
        default: break;
        }
    }
    return x;
}

static void add_multiple(const Work *to, int64_t to_first, double factor, const Work *x, int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        set_work(to, to_first + i, work_at(to, to_first + i) + factor * work_at(x, first + i));
}

static void attention_gradient_rows(const Eval *e, const AttentionGradient *b, const int64_t *at, int64_t matrix) {
    const Attention *a = &b->a;
    double scale = attr_float(e->node, "scale", 1);
    int64_t keys = matrix_of(a, &a->k, at) * a->keys;
    for (int64_t row = matrix * a->queries; row < (matrix + 1) * a->queries; row++)
        for (int64_t key = keys; key < keys + a->keys; key++) {
            int64_t query = row - matrix * a->queries, q = row * a->size, k = key * a->size, g = row * a->width,
                    v = key * a->width;
            double slope, x = rounded(a, scale * dot(&a->q, q, &a->k, k, a->size)), lse = work_at(&b->lse, row);
            x = score_with_slopes(e, a, at, query, key - keys, x, &slope);
            double p = lse == (double)INFINITY ? 0 : rounded(a, exp(x - lse)), m = dropped(e, a, row, key - keys);
            double dx = p * (m * dot(&b->g, g, &a->v, v, a->width) - work_at(&b->d, row)) * slope * scale;
            add_multiple(&b->dq, q, dx, &a->k, k, a->size);
            add_multiple(&b->dk, k, dx, &a->q, q, a->size);
            add_multiple(&b->dv, v, m * p, &b->g, g, a->width);
        }
}

/* To the memory's order of the input of that permute. */
static Status unpermuted(const Eval *e, const Work *from, const char *attr, Work *out) {
    int count;
    int64_t inverse[MAX_RANK];
    const int64_t *perm = attr_ints(e->node, attr, &count);
    *out = *from;
    if (!perm) return NULL;
    for (int i = 0; i < count; i++) inverse[perm[i]] = i;
    for (int i = 0; i < count; i++) out->dims[i] = from->dims[inverse[i]];
    out->data = arena_array(e->arena, (size_t)product(from->dims, 0, count), dtype_size(from->dtype));
    permute_into(from, inverse, out);
    return NULL;
}

static Status eval_attention_backward(const Eval *e, Work *out) {
    AttentionGradient b = {0};
    Attention *a = &b.a;
    TRY(attention_operands(e, a, ATTENTION_BACKWARD_INPUTS));
    Work stored = widened(e, e->inputs[3]);
    TRY(unpermuted(e, &stored, "perm_out", &b.g));
    b.lse = widened(e, e->inputs[4]);
    b.d = widened(e, e->inputs[5]);
    int64_t rows = product(a->y.dims, 0, a->rank - 1);
    if (b.g.rank != a->rank || memcmp(b.g.dims, a->y.dims, (size_t)a->rank * sizeof *a->y.dims) ||
        product(b.lse.dims, 0, b.lse.rank) != rows || product(b.d.dims, 0, b.d.rank) != rows)
        return wrong(e, "the result's gradient does not have its shape");
    if (product(a->q.dims, 0, a->rank - 1) != rows ||
        product(a->k.dims, 0, a->rank - 1) != product(a->v.dims, 0, a->rank - 1))
        return wrong(e, "queries, keys or values are repeated");
    TRY(work_new(e, a->q.dtype, a->rank, a->q.dims, &b.dq));
    TRY(work_new(e, a->q.dtype, a->rank, a->k.dims, &b.dk));
    TRY(work_new(e, a->q.dtype, a->rank, a->v.dims, &b.dv));
    int64_t at[MAX_RANK] = {0}, matrices = product(a->y.dims, 0, a->rank - 2);
    for (int64_t i = 0; i < matrices; i++, step_index(at, a->y.dims, a->rank - 2))
        attention_gradient_rows(e, &b, at, i);
    TRY(unpermuted(e, &b.dq, "perm_q", &out[0]));
    TRY(unpermuted(e, &b.dk, "perm_k", &out[1]));
    return unpermuted(e, &b.dv, "perm_v", &out[2]);
}

/* ---- epilogues ---- */

static Status eval_epilogue(const Eval *e, Tensor *raw, Tensor **out) {
    const Graph *body = e->node->subgraphs[0];
    int count = dim_symbol_count(body->dims);
    int64_t *symbols = ARENA_ARRAY(e->arena, int64_t, count + 1);
    Tensor **inputs = ARENA_ARRAY(e->arena, Tensor *, body->inputs.count);
    for (int i = 0; i < count; i++) symbols[i] = e->symbols ? e->symbols[i] : UNBOUND_DIM;
    if (body->inputs.count != e->node->input_count - 1) return wrong(e, "the epilogue has other inputs");
    inputs[0] = raw;
    for (int i = 1; i < body->inputs.count; i++) {
        inputs[i] = e->inputs[i + 1];
        if (!inputs[i]) return wrong(e, "the epilogue lacks an input");
    }
    return eval_graph(body, inputs, symbols, e->arena, out);
}

Status eval_anchor(const Node *node, Tensor *const *inputs, const int64_t *symbols, Arena *arena, Tensor **out) {
    Eval e = {node, inputs, symbols, arena};
    Work results[3], turned; /* "attention" may have two, "attention_backward" has three */
    if (node->input_count < 2 || !inputs[0] || !inputs[1] ||
        !anchor_takes(inputs[0]->dtype, anchor_holds_bits(node) ? inputs[0]->dtype : inputs[1]->dtype))
        return wrong(&e, "two inputs of one element type are needed");
    if (strcmp(node->op, "matmul") == 0 || strcmp(node->op, MATMUL_BITS) == 0 || strcmp(node->op, MATMUL_BLOCKS) == 0)
        TRY(eval_matmul(&e, results));
    else if (strcmp(node->op, MATMUL_GROUPED) == 0)
        TRY(eval_grouped(&e, results));
    else if (strcmp(node->op, "conv") == 0)
        TRY(eval_conv(&e, false, results));
    else if (strcmp(node->op, "conv_transpose") == 0)
        TRY(eval_conv(&e, true, results));
    else if (strcmp(node->op, ATTENTION) == 0)
        TRY(eval_attention(&e, results));
    else if (strcmp(node->op, ATTENTION_BACKWARD) == 0)
        TRY(eval_attention_backward(&e, results));
    else
        return status_error(STATUS_FAULT, "no evaluator for anchor %s", node->op);
    bool lies_as_inputs = strcmp(node->op, ATTENTION_BACKWARD) == 0;
    if (!lies_as_inputs) {
        TRY(permuted(&e, results, "perm_out", &turned));
        results[0] = turned;
    }
    for (int i = 0; i < (node->subgraph_count ? 1 : node->output_count); i++)
        out[i] = narrowed(&e, &results[i], i && !lies_as_inputs ? results[i].dtype : dtype_of_sums(inputs[0]->dtype));
    return node->subgraph_count ? eval_epilogue(&e, out[0], out) : NULL;
}
