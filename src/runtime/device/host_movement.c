/* SPDX-License-Identifier: Apache-2.0 */
/* Rows are copied whole; what has no rows goes to the evaluator. */
#include "runtime/device/host_movement.h"

#include <stdatomic.h>
#include "graph/eval/eval.h"

/* Bytes that one thread should move, and elements that it should scatter, at least: below, waking another costs more. */
enum { PIECE_BYTES = 64 << 10, SCATTER_WORK = 16384 };

static int64_t rows_a_piece(size_t row) { return row >= PIECE_BYTES ? 1 : PIECE_BYTES / (int64_t)(row ? row : 1); }

/* --- concat --- */
/* The first input may be in the result's memory already, where the axis is the first: a state that grows (GraphKept). */
typedef struct ConcatCall {
    const Tensor *const *inputs;
    int count;
    size_t *rows;   /* [count] bytes that an input gives to one outer index */
    size_t *starts; /* [count] where they go in the result's row */
    size_t row;
    char *to;
} ConcatCall;

static void concat_rows(void *context, int64_t begin, int64_t end, int worker) {
    const ConcatCall *c = context;
    (void)worker;
    for (int64_t o = begin; o < end; o++)
        for (int i = 0; i < c->count; i++)
            if (c->rows[i] && c->inputs[i]->data != c->to)
                memcpy(c->to + (size_t)o * c->row + c->starts[i],
                       (const char *)c->inputs[i]->data + (size_t)o * c->rows[i], c->rows[i]);
}

static void move_concat(const Node *node, const Tensor *const *inputs, Tensor *output, Pool *pool, Arena *scratch) {
    int axis = (int)attr_int(node, "axis", 0), count = node->input_count;
    size_t size = dtype_size(output->dtype);
    int64_t outer = 1;
    for (int d = 0; d < axis; d++) outer *= output->dims[d];
    ConcatCall c = {inputs, count,       ARENA_ARRAY(scratch, size_t, count), ARENA_ARRAY(scratch, size_t, count),
                    0,      output->data};
    for (int i = 0; i < count; i++) {
        size_t row = size;
        for (int d = axis; d < inputs[i]->rank; d++) row *= (size_t)inputs[i]->dims[d];
        c.rows[i] = row;
        c.starts[i] = c.row;
        c.row += row;
    }
    pool_for(pool, outer, rows_a_piece(c.row), concat_rows, &c);
}

/* --- gather --- */
typedef struct GatherCall {
    const char *from;
    const Tensor *indices;
    char *to;
    int64_t count, limit; /* of indices; size of the axis */
    size_t row;
    _Atomic(int64_t) bad; /* position of an index out of range, -1 */
} GatherCall;

static void gather_rows(void *context, int64_t begin, int64_t end, int worker) {
    GatherCall *c = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) {
        int64_t outer = i / c->count, index = dtype_load_int(c->indices->dtype, c->indices->data, i % c->count);
        if (index < 0) index += c->limit;
        if (index < 0 || index >= c->limit) {
            c->bad = i % c->count;
            continue;
        }
        memcpy(c->to + (size_t)i * c->row, c->from + (size_t)(outer * c->limit + index) * c->row, c->row);
    }
}

static Status move_gather(const Node *node, const Tensor *const *inputs, Tensor *output, Pool *pool) {
    const Tensor *data = inputs[0], *indices = inputs[1];
    int axis = (int)attr_int(node, "axis", 0);
    int64_t outer = 1;
    size_t row = dtype_size(data->dtype);
    for (int d = 0; d < axis; d++) outer *= data->dims[d];
    for (int d = axis + 1; d < data->rank; d++) row *= (size_t)data->dims[d];
    GatherCall c = {data->data, indices, output->data, tensor_count(indices), data->dims[axis], row, -1};
    if (!row || !c.count) return NULL;
    pool_for(pool, outer * c.count, rows_a_piece(row), gather_rows, &c);
    if (c.bad >= 0)
        return status_at(
            eval_index_error(node, dtype_load_int(indices->dtype, indices->data, c.bad), c.limit, indices, c.bad),
            "%s (%s)", node_origin_name(node), attr_string(node, "labels", node->op));
    return NULL;
}

/* --- strided copies: permute, slice, expand, pad's inside --- */
typedef struct StridedCall {
    const char *from; /* at the first element */
    char *to;
    int rank;
    int64_t dims[MAX_RANK], from_stride[MAX_RANK],
        to_stride[MAX_RANK]; /* bytes; the last axis is copied by the inner loop */
    size_t size;
} StridedCall;

#define COPY_ROW(type)                                                                                                 \
    for (int64_t i = 0; i < n; i++) *(type *)(void *)(to + i * ts) = *(const type *)(const void *)(from + i * fs)

static void copy_row(const StridedCall *c, const char *from, char *to) {
    int last = c->rank - 1;
    int64_t n = c->dims[last], fs = c->from_stride[last], ts = c->to_stride[last];
    if (fs == (int64_t)c->size && ts == fs) {
        memcpy(to, from, (size_t)n * c->size);
        return;
    }
    switch (c->size) {
    case 1: COPY_ROW(uint8_t); break;
    case 2: COPY_ROW(uint16_t); break;
    case 4: COPY_ROW(uint32_t); break;
    case 8: COPY_ROW(uint64_t); break;
    default:
        for (int64_t i = 0; i < n; i++) memcpy(to + i * ts, from + i * fs, c->size);
    }
}

static void copy_rows(void *context, int64_t begin, int64_t end, int worker) {
    const StridedCall *c = context;
    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const char *from = c->from;
        char *to = c->to;
        int64_t rest = r;
        for (int d = c->rank - 2; d >= 0; d--) {
            int64_t at = rest % c->dims[d];
            rest /= c->dims[d];
            from += at * c->from_stride[d];
            to += at * c->to_stride[d];
        }
        copy_row(c, from, to);
    }
}

/* All in one run: as pieces for the threads. */
static void cut_lone_row(StridedCall *c) {
    int64_t piece = PIECE_BYTES / (int64_t)c->size, count = c->dims[0];
    if (c->rank > 1 || piece < 1) return;
    while (piece > 1 && count % piece) piece /= 2;
    if (piece * (int64_t)c->size < PIECE_BYTES / 16 || count == piece) return;
    c->rank = 2;
    c->dims[0] = count / piece;
    c->dims[1] = piece;
    c->from_stride[1] = c->from_stride[0];
    c->to_stride[1] = c->to_stride[0];
    c->from_stride[0] *= piece;
    c->to_stride[0] *= piece;
}

/* Merges axes that are one run in both, then copies. */
static void copy_strided(StridedCall *c, Pool *pool) {
    int kept = 0;
    for (int d = 0; d < c->rank; d++) {
        if (c->dims[d] == 0) return;
        if (c->dims[d] == 1) continue;
        if (kept && c->from_stride[kept - 1] == c->from_stride[d] * c->dims[d] &&
            c->to_stride[kept - 1] == c->to_stride[d] * c->dims[d]) {
            c->dims[kept - 1] *= c->dims[d];
            c->from_stride[kept - 1] = c->from_stride[d];
            c->to_stride[kept - 1] = c->to_stride[d];
        } else {
            c->dims[kept] = c->dims[d];
            c->from_stride[kept] = c->from_stride[d];
            c->to_stride[kept++] = c->to_stride[d];
        }
    }
    if (!kept) {
        c->dims[0] = 1;
        c->from_stride[0] = c->to_stride[0] = (int64_t)c->size;
        kept = 1;
    }
    c->rank = kept;
    cut_lone_row(c);
    kept = c->rank;
    int64_t rows = 1;
    for (int d = 0; d + 1 < kept; d++) rows *= c->dims[d];
    pool_for(pool, rows, rows_a_piece((size_t)c->dims[kept - 1] * c->size), copy_rows, c);
}

static void dense_strides(const Tensor *t, int64_t *strides) {
    int64_t stride = (int64_t)dtype_size(t->dtype);
    for (int d = t->rank - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= t->dims[d];
    }
}

static StridedCall strided(const Tensor *from, Tensor *to) {
    StridedCall c = {.from = from->data, .to = to->data, .rank = to->rank, .size = dtype_size(to->dtype)};
    memcpy(c.dims, to->dims, sizeof c.dims);
    dense_strides(to, c.to_stride);
    return c;
}

Status move_broadcast(const Tensor *from, Tensor *to, Pool *pool) {
    StridedCall c = strided(from, to);
    int64_t strides[MAX_RANK];
    dense_strides(from, strides);
    for (int d = 0; d < to->rank; d++) {
        int f = d - (to->rank - from->rank);
        int64_t size = f < 0 ? 1 : from->dims[f];
        if (size != 1 && size != to->dims[d])
            return status_error(STATUS_INVALID, "sizes %lld and %lld of axis %d do not broadcast", (long long)size,
                                (long long)to->dims[d], d);
        c.from_stride[d] = size == 1 ? 0 : strides[f];
    }
    copy_strided(&c, pool);
    return NULL;
}

static void move_permute(const Node *node, const Tensor *from, Tensor *to, Pool *pool) {
    int count;
    const int64_t *perm = attr_ints(node, "perm", &count);
    StridedCall c = strided(from, to);
    int64_t strides[MAX_RANK];
    dense_strides(from, strides);
    for (int d = 0; d < to->rank; d++) c.from_stride[d] = strides[perm[d]];
    copy_strided(&c, pool);
}

static Status move_slice(const Node *node, const Tensor *from, const int64_t *symbols, Tensor *to, Pool *pool) {
    int count, steps;
    const Dim *const *start = attr_dims(node, "start", &count);
    const int64_t *step = attr_ints(node, "step", &steps);
    StridedCall c = strided(from, to);
    int64_t strides[MAX_RANK];
    dense_strides(from, strides);
    for (int d = 0; d < to->rank; d++) {
        int64_t first = dim_eval(start[d], symbols), by = steps ? step[d] : 1, size = to->dims[d];
        int64_t last = first + (size - 1) * by;
        if (size > 0 && (first < 0 || first >= from->dims[d] || last < 0 || last >= from->dims[d]))
            return status_error(STATUS_INVALID, "node \"%s\": slice of axis %d is out of range", node_origin_name(node),
                                d);
        c.from += size > 0 ? first * strides[d] : 0;
        c.from_stride[d] = strides[d] * by;
    }
    copy_strided(&c, pool);
    return NULL;
}

static void fill(Tensor *to, const Tensor *value) {
    size_t size = dtype_size(to->dtype), bytes = tensor_bytes(to);
    if (!bytes) return;
    memcpy(to->data, value->data, size);
    for (size_t done = size; done < bytes;) { /* doubles what is filled */
        size_t more = done < bytes - done ? done : bytes - done;
        memcpy((char *)to->data + done, to->data, more);
        done += more;
    }
}

static Status move_pad(const Node *node, const Tensor *const *inputs, const int64_t *symbols, Tensor *to, Pool *pool) {
    int count;
    const Dim *const *before = attr_dims(node, "before", &count);
    const Tensor *from = inputs[0];
    fill(to, inputs[1]);
    StridedCall c = strided(from, to);
    dense_strides(from, c.from_stride);
    for (int d = 0; d < to->rank; d++) {
        int64_t b = dim_eval(before[d], symbols), source = b < 0 ? -b : 0, target = b > 0 ? b : 0;
        int64_t size = from->dims[d] - source;
        if (b == UNBOUND_DIM)
            return status_error(STATUS_FAULT, "node \"%s\": padding is not known", node_origin_name(node));
        if (size > to->dims[d] - target) size = to->dims[d] - target;
        if (size <= 0) return NULL;
        c.from += source * c.from_stride[d];
        c.to += target * c.to_stride[d];
        c.dims[d] = size;
    }
    copy_strided(&c, pool);
    return NULL;
}

typedef struct ScatterCall {
    const Node *node;
    const Tensor *const *inputs;
    Tensor *to;
    int parts;
    _Atomic(Status) error;
} ScatterCall;

static void scatter_parts(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    ScatterCall *call = context;
    for (int64_t part = begin; part < end; part++) {
        Status error = eval_scatter_into(call->node, (Tensor *const *)call->inputs, (int)part, call->parts, call->to),
               none = NULL;
        if (error && !atomic_compare_exchange_strong(&call->error, &none, error)) status_free(error);
    }
}

/* As many parts as there are threads: each reads all indices. What an element comes to does not depend on it. The data
 * may be in the result's memory already: a caller that gives both the same scatters in place. */
static Status move_scatter(const Node *node, const Tensor *const *inputs, Tensor *to, Pool *pool) {
    if (!tensor_same_shape(inputs[0], to))
        return status_error(STATUS_FAULT, "node \"%s\": a result of another shape", node_origin_name(node));
    if (to->data != inputs[0]->data) TRY(move_broadcast(inputs[0], to, pool));
    int threads = pool_threads(pool);
    ScatterCall call = {node, inputs, to, tensor_count(inputs[2]) < SCATTER_WORK * threads ? 1 : threads, NULL};
    pool_for(pool, call.parts, 1, scatter_parts, &call);
    return call.error;
}

Status move_prim(const Node *node, const Tensor *const *inputs, const int64_t *symbols, Tensor *output, Pool *pool,
                 Arena *scratch) {
    switch (node->prim) {
    case PRIM_CONCAT: move_concat(node, inputs, output, pool, scratch); return NULL;
    case PRIM_GATHER: return move_gather(node, inputs, output, pool);
    case PRIM_PERMUTE: move_permute(node, inputs[0], output, pool); return NULL;
    case PRIM_SLICE: return move_slice(node, inputs[0], symbols, output, pool);
    case PRIM_EXPAND: return status_at(move_broadcast(inputs[0], output, pool), "node \"%s\"", node_origin_name(node));
    case PRIM_PAD: return move_pad(node, inputs, symbols, output, pool);
    case PRIM_SCATTER_ELEMENTS:
    case PRIM_SCATTER_ND: return move_scatter(node, inputs, output, pool);
    default: break;
    }
    Tensor *made;
    TRY(eval_prim(node, (Tensor *const *)inputs, symbols, scratch, &made));
    size_t bytes = tensor_bytes(output);
    if (tensor_bytes(made) != bytes)
        return status_error(STATUS_INVALID, "node \"%s\": the result has %zu bytes, expected %zu",
                            node_origin_name(node), tensor_bytes(made), bytes);
    if (bytes) memcpy(output->data, made->data, bytes);
    return NULL;
}
