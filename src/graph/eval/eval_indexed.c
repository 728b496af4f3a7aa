/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers and scatters. A negative index counts from the end; one out of range is the user's error, named with its
 * place. */
#include "graph/eval/eval_kernels.h"

#include <stdio.h>

static Status check_indices(const Tensor *indices) {
    if (indices->dtype == DT_I32 || indices->dtype == DT_I64) return NULL;
    return status_error(STATUS_INVALID, "indices are %s, not i32 or i64", dtype_name(indices->dtype));
}

/* "sample 3", "sample 3, place [0, 7]": the labels are [samples, places...]. */
static void print_sample(char *text, size_t size, const Tensor *labels, int64_t at) {
    int64_t places = 1;
    for (int i = 1; i < labels->rank; i++) places *= labels->dims[i];
    int length = snprintf(text, size, "sample %lld", (long long)(at / places));
    bool first = true;
    at %= places;
    for (int i = 1; i < labels->rank; i++) {
        places /= labels->dims[i];
        if (labels->dims[i] > 1) {
            length += snprintf(text + length, size - (size_t)length, "%s%lld", first ? ", place [" : ", ",
                               (long long)(at / places));
            first = false;
        }
        at %= places;
    }
    if (!first) snprintf(text + length, size - (size_t)length, "]");
}

/* A label below 0 has come as far below the classes (ops/math/reduction.c). */
static Status label_error(int64_t label, int64_t classes, const Tensor *labels, int64_t at) {
    char sample[32 + MAX_RANK * 24] = "a sample";
    if (labels) print_sample(sample, sizeof sample, labels, at);
    return status_error(STATUS_INVALID, "%s has the label %lld, and there are %lld classes, 0 to %lld", sample,
                        (long long)(label < 0 ? label + classes : label), (long long)classes, (long long)classes - 1);
}

Status eval_index_error(const Node *node, int64_t index, int64_t size, const Tensor *indices, int64_t at) {
    if (node_attr(node, "labels")) return label_error(index, size, indices, at);
    if (!indices)
        return status_error(STATUS_INVALID, "index %lld is out of range for an axis of size %lld", (long long)index,
                            (long long)size);
    return status_error(STATUS_INVALID, "index %lld (element %lld of the indices) is out of range for size %lld",
                        (long long)index, (long long)at, (long long)size);
}

static Status read_index(const Eval *e, const Tensor *indices, int64_t at, int64_t size, int64_t *out_index) {
    int64_t index = dtype_load_int(indices->dtype, indices->data, at);
    *out_index = index < 0 ? index + size : index;
    if (*out_index >= 0 && *out_index < size) return NULL;
    return eval_index_error(e->node, index, size, indices, at);
}

static int64_t product(const Tensor *t, int from, int to) {
    int64_t count = 1;
    for (int i = from; i < to; i++) count *= t->dims[i];
    return count;
}

static Status gather(Eval *e) {
    const Tensor *data = e->inputs[0], *indices = e->inputs[1];
    int axis, rank = data->rank - 1 + indices->rank;
    int64_t dims[2 * MAX_RANK];
    TRY(eval_axis(e, data->rank, &axis));
    memcpy(dims, data->dims, (size_t)axis * sizeof *dims);
    memcpy(dims + axis, indices->dims, (size_t)indices->rank * sizeof *dims);
    memcpy(dims + axis + indices->rank, data->dims + axis + 1, (size_t)(data->rank - axis - 1) * sizeof *dims);
    TRY(eval_output(e, data->dtype, rank, dims));
    if (tensor_count(e->out) == 0) return NULL;
    int64_t outer = product(data, 0, axis), count = tensor_count(indices), size = data->dims[axis];
    size_t piece = (size_t)product(data, axis + 1, data->rank) * dtype_size(data->dtype);
    for (int64_t k = 0; k < count; k++) {
        int64_t index;
        TRY(read_index(e, indices, k, size, &index));
        for (int64_t o = 0; o < outer; o++)
            memcpy((char *)e->out->data + (size_t)(o * count + k) * piece,
                   (const char *)data->data + (size_t)(o * size + index) * piece, piece);
    }
    return NULL;
}

/* Operand 0: the dense indices; operand 1: `data`, where `axis` is left to the index. */
static Status elements_walk(const Eval *e, const Tensor *data, int *out_axis, int64_t *out_stride, Walk *w) {
    const Tensor *indices = e->inputs[1];
    TRY(eval_axis(e, data->rank, out_axis));
    bool fits = indices->rank == data->rank;
    for (int i = 0; fits && i < data->rank; i++) fits = i == *out_axis || indices->dims[i] <= data->dims[i];
    if (!fits) return status_error(STATUS_INVALID, "the indices do not fit into the data's shape");
    *w = (Walk){.operands = 2, .rank = data->rank};
    memcpy(w->dims, indices->dims, sizeof w->dims);
    dense_strides(w->rank, indices->dims, w->strides[0]);
    dense_strides(w->rank, data->dims, w->strides[1]);
    *out_stride = w->strides[1][*out_axis];
    w->strides[1][*out_axis] = 0;
    return NULL;
}

static Status gather_elements(Eval *e) {
    const Tensor *data = e->inputs[0], *indices = e->inputs[1];
    int axis;
    int64_t stride, index;
    Walk w;
    TRY(elements_walk(e, data, &axis, &stride, &w));
    TRY(eval_output(e, data->dtype, indices->rank, indices->dims));
    size_t size = dtype_size(data->dtype);
    for (bool more = walk_begin(&w); more; more = walk_next(&w)) {
        for (int64_t k = 0; k < w.length; k++) {
            int64_t at = w.offsets[0] + k * w.step[0];
            TRY(read_index(e, indices, at, data->dims[axis], &index));
            int64_t from = w.offsets[1] + k * w.step[1] + index * stride;
            memcpy((char *)e->out->data + (size_t)at * size, (const char *)data->data + (size_t)from * size, size);
        }
    }
    return NULL;
}

/* ---- scatters ---- */

typedef struct Scatter {
    Prim combine; /* PRIM_NONE: the update replaces the element */
    DType dtype;
    size_t size;
    char *out;
    const char *updates;
    int64_t first, end; /* elements of the result that are this part's: the others stay as they are */
} Scatter;

static Status scatter_begin(Eval *e, Scatter *s) {
    static const struct {
        const char *name;
        Prim prim;
    } reductions[] = {{"none", PRIM_NONE}, {"add", PRIM_ADD}, {"mul", PRIM_MUL}, {"min", PRIM_MIN}, {"max", PRIM_MAX}};
    const Tensor *data = e->inputs[0], *updates = e->inputs[2];
    const char *name = attr_string(e->node, "reduction", "none");
    size_t i = 0, count = sizeof reductions / sizeof *reductions;
    while (i < count && strcmp(reductions[i].name, name) != 0) i++;
    if (i == count) return status_error(STATUS_INVALID, "no reduction \"%s\"", name);
    if (updates->dtype != data->dtype || (reductions[i].prim && !prim_accepts(reductions[i].prim, data->dtype)))
        return status_error(STATUS_INVALID, "no reduction \"%s\" of %s into %s", name, dtype_name(updates->dtype),
                            dtype_name(data->dtype));
    if (!e->out) { /* else it holds the data already */
        TRY(eval_output(e, data->dtype, data->rank, data->dims));
        size_t bytes = tensor_bytes(data);
        if (bytes) memcpy(e->out->data, data->data, bytes);
    }
    int64_t all = tensor_count(data), part = e->parts ? (all + e->parts - 1) / e->parts : all, first = e->part * part;
    *s = (Scatter){reductions[i].prim, data->dtype, dtype_size(data->dtype), e->out->data, updates->data, first,
                   first + part};
    return NULL;
}

/* Elements [to, to + count) take updates [from, from + count), as far as they are the part's. */
static void scatter_run(const Scatter *s, int64_t to, int64_t from, int64_t count) {
    int64_t begin = to > s->first ? to : s->first, end = to + count < s->end ? to + count : s->end;
    if (begin >= end) return;
    from += begin - to;
    to = begin;
    count = end - begin;
    if (s->combine == PRIM_ADD && s->dtype == DT_F32) {
        float *sums = (float *)(void *)s->out + to;
        const float *updates = (const float *)(const void *)s->updates + from;
        for (int64_t i = 0; i < count; i++) sums[i] += updates[i];
        return;
    }
    if (!s->combine) {
        memcpy(s->out + (size_t)to * s->size, s->updates + (size_t)from * s->size, (size_t)count * s->size);
        return;
    }
    Lane a[LANES], b[LANES], r[LANES];
    for (int64_t at = 0; at < count; at += LANES) {
        int64_t n = count - at < LANES ? count - at : LANES;
        lanes_load(a, s->dtype, s->out, to + at, 1, n);
        lanes_load(b, s->dtype, s->updates, from + at, 1, n);
        lanes_apply(s->combine, s->dtype, a, b, r, n);
        lanes_store(r, lane_class(s->dtype), s->dtype, true, s->out, to + at, n);
    }
}

/* How many of `most` indices from `at` on are the same: what they place goes in one run. */
static int64_t equal_indices(const Tensor *indices, int64_t at, int64_t most) {
    int64_t count = 1;
    if (indices->dtype == DT_I32)
        for (const int32_t *i = (const int32_t *)indices->data + at; count < most && i[count] == *i;) count++;
    else
        for (const int64_t *i = (const int64_t *)indices->data + at; count < most && i[count] == *i;) count++;
    return count;
}

static Status scatter_elements(Eval *e) {
    const Tensor *indices = e->inputs[1];
    int axis;
    int64_t stride, index;
    Walk w;
    Scatter s;
    TRY(elements_walk(e, e->inputs[0], &axis, &stride, &w));
    if (!tensor_same_shape(indices, e->inputs[2]))
        return status_error(STATUS_INVALID, "indices and updates differ in shape");
    TRY(scatter_begin(e, &s));
    for (bool more = walk_begin(&w); more; more = walk_next(&w)) {
        for (int64_t k = 0, run; k < w.length; k += run) {
            int64_t from = w.offsets[0] + k * w.step[0];
            TRY(read_index(e, indices, from, e->out->dims[axis], &index));
            run = w.step[0] == 1 && w.step[1] == 1 ? equal_indices(indices, from, w.length - k) : 1;
            scatter_run(&s, w.offsets[1] + k * w.step[1] + index * stride, from, run);
        }
    }
    return NULL;
}

/* updates: indices.shape[:-1] + data.shape[depth:], where depth is the last axis of the indices. */
static Status check_nd_shapes(const Tensor *data, const Tensor *indices, const Tensor *updates) {
    int64_t depth = indices->rank ? indices->dims[indices->rank - 1] : -1;
    bool fits = depth >= 0 && depth <= data->rank && updates->rank == indices->rank - 1 + data->rank - depth;
    for (int i = 0; fits && i < updates->rank; i++)
        fits =
            updates->dims[i] == (i < indices->rank - 1 ? indices->dims[i] : data->dims[i - indices->rank + 1 + depth]);
    return fits ? NULL : status_error(STATUS_INVALID, "data, indices and updates do not fit each other");
}

/* Long runs are cut instead of the result: then parts have equal work wherever the indices point. */
static const int64_t SCATTER_CUT = 16; /* elements of a part's run */

static Status scatter_nd(Eval *e) {
    const Tensor *data = e->inputs[0], *indices = e->inputs[1];
    int64_t strides[MAX_RANK];
    Scatter s;
    TRY(check_nd_shapes(data, indices, e->inputs[2]));
    TRY(scatter_begin(e, &s));
    dense_strides(data->rank, data->dims, strides);
    int depth = (int)indices->dims[indices->rank - 1];
    int64_t count = product(indices, 0, indices->rank - 1), run = product(data, depth, data->rank), first = 0,
            length = run;
    if (e->parts && run / e->parts >= SCATTER_CUT) {
        int64_t part = (run / e->parts + SCATTER_CUT - 1) / SCATTER_CUT * SCATTER_CUT;
        first = e->part * part;
        length = run - first < part ? run - first : part;
        s.first = 0;
        s.end = tensor_count(data);
    }
    for (int64_t k = 0; k < count && run; k++) {
        int64_t to = 0;
        for (int i = 0; i < depth; i++) {
            int64_t index;
            TRY(read_index(e, indices, k * depth + i, data->dims[i], &index));
            to += index * strides[i];
        }
        if (length > 0) scatter_run(&s, to + first, k * run + first, length);
    }
    return NULL;
}

Status eval_scatter_into(const Node *node, Tensor *const *inputs, int part, int parts, Tensor *out) {
    Eval e = {.node = node, .inputs = inputs, .out = out, .part = part, .parts = parts};
    return status_at(eval_indexed(&e), "node \"%s\"", node_origin_name(node));
}

Status eval_indexed(Eval *e) {
    TRY(check_indices(e->inputs[1]));
    switch (e->node->prim) {
    case PRIM_GATHER: return gather(e);
    case PRIM_GATHER_ELEMENTS: return gather_elements(e);
    case PRIM_SCATTER_ELEMENTS: return scatter_elements(e);
    default: return scatter_nd(e);
    }
}
