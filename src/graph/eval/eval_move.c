/* SPDX-License-Identifier: Apache-2.0 */
/* Movement, which copies elements of any dtype bit for bit, next to the primitives that make tensors from nothing but
 * sizes. */
#include "graph/eval/eval_kernels.h"

/* ---- generate ---- */

static Status iota(Eval *e, int rank, const int64_t *dims) {
    DType dtype = attr_dtype(e->node, "dtype", DT_I64);
    if (!prim_accepts(PRIM_CAST, dtype))
        return status_error(STATUS_INVALID, "no numbers of type %s", dtype_name(dtype));
    int axis;
    TRY(eval_axis(e, rank, &axis));
    TRY(eval_output(e, dtype, rank, dims));
    int64_t inner = 1, count = tensor_count(e->out);
    for (int i = axis + 1; i < rank; i++) inner *= dims[i];
    Lane lanes[LANES];
    for (int64_t at = 0; at < count; at += LANES) {
        int64_t n = count - at < LANES ? count - at : LANES;
        for (int64_t k = 0; k < n; k++) lanes[k].i = (at + k) / inner % dims[axis];
        lanes_store(lanes, LANE_SIGNED, dtype, false, e->out->data, at, n);
    }
    return NULL;
}

static Status philox(Eval *e, int rank, const int64_t *dims) {
    const Tensor *seed = e->inputs[0];
    if (seed->dtype != DT_U64 || tensor_count(seed) != 1)
        return status_error(STATUS_INVALID, "the seed is not a scalar of type u64");
    TRY(eval_output(e, DT_U32, rank, dims));
    uint64_t key = (uint64_t)dtype_load_int(DT_U64, seed->data, 0);
    bool halves = attr_int(e->node, "halves", 0);
    uint32_t *out = e->out->data;
    for (int64_t i = 0, count = tensor_count(e->out); i < count; i++)
        out[i] = halves ? philox_half_u32(key, (uint64_t)i) : philox_u32(key, (uint64_t)i);
    return NULL;
}

/* The vector may be longer than a rank can be. */
static Status dims_vector(Eval *e) {
    int count;
    const Dim *const *sizes = attr_dims(e->node, "shape", &count);
    TRY(eval_output(e, DT_I64, 1, &(int64_t){count}));
    for (int i = 0; i < count; i++) {
        int64_t value = UNBOUND_DIM;
        if (!dim_is_const(sizes[i], &value) && e->symbols) value = dim_eval(sizes[i], e->symbols);
        if (value == UNBOUND_DIM) return status_error(STATUS_INVALID, "element %d of shape is not known", i);
        ((int64_t *)e->out->data)[i] = value;
    }
    return NULL;
}

Status eval_generate(Eval *e) {
    if (e->node->prim == PRIM_DIMS) return dims_vector(e);
    int rank;
    int64_t dims[MAX_RANK];
    TRY(eval_sizes(e, "shape", &rank, dims));
    return e->node->prim == PRIM_IOTA ? iota(e, rank, dims) : philox(e, rank, dims);
}

/* ---- move ---- */

static Status sizes_of_rank(const Eval *e, const char *attr, int rank, int64_t *sizes) {
    int count;
    TRY(eval_sizes(e, attr, &count, sizes));
    if (count == rank) return NULL;
    return status_error(STATUS_INVALID, "%s has %d elements for rank %d", attr, count, rank);
}

static Status reshape(Eval *e) {
    const Tensor *in = e->inputs[0];
    int rank;
    int64_t dims[MAX_RANK], count;
    TRY(eval_sizes(e, "shape", &rank, dims));
    TRY(tensor_size_of(in->dtype, rank, dims, &count, NULL));
    if (count != tensor_count(in))
        return status_error(STATUS_INVALID, "%lld elements cannot take a shape of %lld", (long long)tensor_count(in),
                            (long long)count);
    TRY(eval_output(e, in->dtype, rank, dims));
    size_t bytes = tensor_bytes(in);
    if (bytes) memcpy(e->out->data, in->data, bytes);
    return NULL;
}

/* The output dense, the input with the given strides from `offset` on, in elements. */
static void gather_box(Eval *e, const int64_t *strides, int64_t offset) {
    Walk w = {.operands = 2, .rank = e->out->rank, .offsets = {0, offset}};
    memcpy(w.dims, e->out->dims, sizeof w.dims);
    dense_strides(w.rank, w.dims, w.strides[0]);
    memcpy(w.strides[1], strides, (size_t)w.rank * sizeof *strides);
    copy_strided(&w, dtype_size(e->out->dtype), e->out->data, e->inputs[0]->data);
}

static Status permute(Eval *e) {
    const Tensor *in = e->inputs[0];
    int count;
    const int64_t *perm = attr_ints(e->node, "perm", &count);
    int64_t dense[MAX_RANK], strides[MAX_RANK], dims[MAX_RANK];
    bool seen[MAX_RANK] = {false};
    dense_strides(in->rank, in->dims, dense);
    if (count != in->rank) return status_error(STATUS_INVALID, "perm has %d elements for rank %d", count, in->rank);
    for (int i = 0; i < count; i++) {
        if (perm[i] < 0 || perm[i] >= count || seen[perm[i]])
            return status_error(STATUS_INVALID, "perm is not a permutation");
        seen[perm[i]] = true;
        dims[i] = in->dims[perm[i]];
        strides[i] = dense[perm[i]];
    }
    TRY(eval_output(e, in->dtype, in->rank, dims));
    gather_box(e, strides, 0);
    return NULL;
}

static Status expand(Eval *e) {
    const Tensor *in = e->inputs[0];
    int64_t dims[MAX_RANK], strides[MAX_RANK];
    TRY(sizes_of_rank(e, "shape", in->rank, dims));
    dense_strides(in->rank, in->dims, strides);
    for (int i = 0; i < in->rank; i++) {
        if (in->dims[i] != dims[i] && in->dims[i] != 1)
            return status_error(STATUS_INVALID, "axis %d of size %lld does not expand to %lld", i,
                                (long long)in->dims[i], (long long)dims[i]);
        if (in->dims[i] == 1) strides[i] = 0;
    }
    TRY(eval_output(e, in->dtype, in->rank, dims));
    gather_box(e, strides, 0);
    return NULL;
}

static bool slice_fits(int64_t size, int64_t start, int64_t step, int64_t count) {
    int64_t last;
    if (count <= 0) return count == 0;
    if (start < 0 || start >= size || __builtin_mul_overflow(count - 1, step, &last)) return false;
    return !__builtin_add_overflow(last, start, &last) && last >= 0 && last < size;
}

static Status slice(Eval *e) {
    const Tensor *in = e->inputs[0];
    int64_t dims[MAX_RANK], starts[MAX_RANK], strides[MAX_RANK], offset = 0;
    int steps;
    const int64_t *step = attr_ints(e->node, "step", &steps);
    TRY(sizes_of_rank(e, "shape", in->rank, dims));
    TRY(sizes_of_rank(e, "start", in->rank, starts));
    if (step && steps != in->rank)
        return status_error(STATUS_INVALID, "step has %d elements for rank %d", steps, in->rank);
    dense_strides(in->rank, in->dims, strides);
    bool empty = false;
    for (int i = 0; i < in->rank; i++) {
        int64_t by = step ? step[i] : 1;
        if (!slice_fits(in->dims[i], starts[i], by, dims[i]))
            return status_error(STATUS_INVALID, "axis %d of size %lld has no %lld elements from %lld by %lld", i,
                                (long long)in->dims[i], (long long)dims[i], (long long)starts[i], (long long)by);
        if (dims[i] == 0) {
            empty = true;
            continue;
        }
        offset += starts[i] * strides[i];
        strides[i] = dims[i] > 1 ? strides[i] * by : 0;
    }
    TRY(eval_output(e, in->dtype, in->rank, dims));
    if (!empty) gather_box(e, strides, offset);
    return NULL;
}

static void fill(Tensor *out, const void *element) {
    size_t size = dtype_size(out->dtype), bytes = tensor_bytes(out);
    for (size_t at = 0; at < bytes; at += size) memcpy((char *)out->data + at, element, size);
}

/* The part of the input that lands in the output, as a box at an offset in each. */
static Status pad(Eval *e) {
    const Tensor *in = e->inputs[0];
    int64_t before[MAX_RANK], after[MAX_RANK], dims[MAX_RANK];
    TRY(sizes_of_rank(e, "before", in->rank, before));
    TRY(sizes_of_rank(e, "after", in->rank, after));
    if (e->inputs[1]->dtype != in->dtype || tensor_count(e->inputs[1]) != 1)
        return status_error(STATUS_INVALID, "the fill is not a scalar of type %s", dtype_name(in->dtype));
    Walk w = {.operands = 2, .rank = in->rank};
    for (int i = 0; i < in->rank; i++) {
        if (__builtin_add_overflow(in->dims[i], before[i], &dims[i]) ||
            __builtin_add_overflow(dims[i], after[i], &dims[i]) || dims[i] < 0)
            return status_error(STATUS_INVALID, "axis %d of size %lld padded by %lld and %lld", i,
                                (long long)in->dims[i], (long long)before[i], (long long)after[i]);
    }
    TRY(eval_output(e, in->dtype, in->rank, dims));
    fill(e->out, e->inputs[1]->data);
    dense_strides(w.rank, dims, w.strides[0]);
    dense_strides(w.rank, in->dims, w.strides[1]);
    for (int i = 0; i < in->rank; i++) {
        int64_t to = before[i] > 0 ? before[i] : 0, from = before[i] < 0 ? -before[i] : 0;
        int64_t room = dims[i] - to, left = in->dims[i] - from;
        w.dims[i] = room < left ? room : left;
        if (w.dims[i] <= 0) return NULL; /* nothing of the input is left */
        w.offsets[0] += to * w.strides[0][i];
        w.offsets[1] += from * w.strides[1][i];
    }
    copy_strided(&w, dtype_size(in->dtype), e->out->data, in->data);
    return NULL;
}

static Status concat(Eval *e) {
    const Tensor *first = e->inputs[0];
    int axis;
    int64_t dims[MAX_RANK], outer = 1, inner = (int64_t)dtype_size(first->dtype), total = 0, done = 0;
    TRY(eval_axis(e, first->rank, &axis));
    memcpy(dims, first->dims, sizeof dims);
    for (int k = 0; k < e->node->input_count; k++) {
        const Tensor *in = e->inputs[k];
        bool fits = in->dtype == first->dtype && in->rank == first->rank;
        for (int i = 0; fits && i < in->rank; i++) fits = i == axis || in->dims[i] == first->dims[i];
        if (!fits || __builtin_add_overflow(total, in->dims[axis], &total))
            return status_error(STATUS_INVALID, "input %d differs from input 0 in more than axis %d", k, axis);
    }
    dims[axis] = total;
    TRY(eval_output(e, first->dtype, first->rank, dims));
    if (tensor_count(e->out) == 0) return NULL;
    for (int i = 0; i < first->rank; i++) *(i < axis ? &outer : &inner) *= i == axis ? 1 : dims[i];
    for (int k = 0; k < e->node->input_count; k++) {
        size_t piece = (size_t)(e->inputs[k]->dims[axis] * inner);
        char *to = (char *)e->out->data + done * inner;
        for (int64_t o = 0; o < outer && piece; o++)
            memcpy(to + o * total * inner, (const char *)e->inputs[k]->data + (size_t)o * piece, piece);
        done += e->inputs[k]->dims[axis];
    }
    return NULL;
}

Status eval_move(Eval *e) {
    switch (e->node->prim) {
    case PRIM_RESHAPE: return reshape(e);
    case PRIM_PERMUTE: return permute(e);
    case PRIM_EXPAND: return expand(e);
    case PRIM_SLICE: return slice(e);
    case PRIM_PAD: return pad(e);
    default: return concat(e);
    }
}
