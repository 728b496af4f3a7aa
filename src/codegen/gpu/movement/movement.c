/* SPDX-License-Identifier: Apache-2.0 */
/* From a node and its tensors to launches of the programs in movement_source.c: strides, merged axes, units, grids. */
#include "codegen/gpu/movement/movement.h"

#include "base/integer.h"
#include "codegen/gpu/region/divide.h"

enum {
    BLOCK_THREADS = 256,
    NEAR_AXES = 4,
    NEAR_ITEMS = 4, /* units a thread takes at once in near functions */
    MOST_BLOCKS = 1 << 20,
    CONCAT_INPUTS = 8, /* of one launch */
    LONG_LINE = 64,    /* updates from which on a block takes a scatter's line... */
    MANY_LINES = 8192, /* ... unless there are lines enough for a thread each */
};
static const int64_t near_limit = INT64_C(1) << 31; /* units: what `divide` takes */

/* --- what runs --- */

static Prim combine_of(const Node *node) {
    static const struct {
        const char *name;
        Prim prim;
    } names[] = {{"add", PRIM_ADD}, {"mul", PRIM_MUL}, {"min", PRIM_MIN}, {"max", PRIM_MAX}};
    const char *name = attr_string(node, "reduction", "none");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].name, name)) return names[i].prim;
    return PRIM_NONE;
}

static GpuMoveKind kind_of(Prim prim) {
    switch (prim) {
    case PRIM_PERMUTE:
    case PRIM_SLICE:
    case PRIM_EXPAND: return GPU_MOVE_COPY;
    case PRIM_PAD: return GPU_MOVE_PAD;
    case PRIM_CONCAT: return GPU_MOVE_CONCAT;
    case PRIM_GATHER: return GPU_MOVE_GATHER;
    case PRIM_GATHER_ELEMENTS: return GPU_MOVE_GATHER_ELEMENTS;
    case PRIM_SCATTER_ELEMENTS: return GPU_MOVE_SCATTER_ELEMENTS;
    case PRIM_SCATTER_ND: return GPU_MOVE_SCATTER_ND;
    default: return GPU_MOVE_NONE;
    }
}

/* Whether elements are always moved one by one. */
static bool by_element(GpuMoveKind kind, Prim combine) {
    return kind == GPU_MOVE_GATHER_ELEMENTS || kind == GPU_MOVE_SCATTER_ELEMENTS || combine;
}

static bool node_runs(const Node *node, const GpuLimits *limits) {
    if (node->kind != NODE_PRIM || node->output_count < 1 || kind_of(node->prim) == GPU_MOVE_NONE) return false;
    DType dtype = node->outputs[0]->dtype;
    if (dtype == DT_STRING || dtype == DT_NONE) return false;
    if (prim_info(node->prim)->klass == PRIM_CLASS_INDEXED) {
        DType index = node->inputs[1]->dtype;
        if (index != DT_I32 && index != DT_I64) return false;
    }
    Prim combine = combine_of(node);
    if (!combine) return true;
    return gpu_move_combines(dtype) && prim_accepts(combine, dtype) && (dtype != DT_F64 || limits->fp64);
}

static GpuMoveProgram program_of(const Node *node, int unit, bool far) {
    Prim combine = combine_of(node);
    return (GpuMoveProgram){kind_of(node->prim), far, unit, combine, combine ? node->outputs[0]->dtype : DT_NONE};
}

/* Elements are moved one by one, by 4 bytes where they are smaller, or by 16. */
int gpu_move_programs(const Node *node, const GpuLimits *limits, GpuMoveProgram *out_programs) {
    if (!node_runs(node, limits)) return 0;
    const Value *wide = node->inputs[0]->rank > node->outputs[0]->rank ? node->inputs[0] : node->outputs[0];
    GpuMoveKind kind = kind_of(node->prim);
    bool always_near = kind == GPU_MOVE_CONCAT || kind == GPU_MOVE_GATHER;
    int size = (int)dtype_size(node->outputs[0]->dtype), units[3] = {size}, unit_count = 1, count = 0;
    if (!by_element(kind, combine_of(node))) {
        if (size < 4) units[unit_count++] = 4;
        if (size < 16) units[unit_count++] = 16;
    }
    for (int far = 0; far < 2; far++)
        for (int i = 0; i < unit_count && (!far || (wide->rank > NEAR_AXES && !always_near)); i++)
            out_programs[count++] = program_of(node, units[i], far);
    return count;
}

/* --- launches --- */

typedef struct Moving {
    Arena *arena;
    const Node *node;
    const Tensor *const *inputs;
    const int64_t *symbols;
    const Tensor *output;
    void *faults;
    GpuMoves *moves;
} Moving;

/* A launch in the making: units and axes from the innermost on. */
typedef struct Launch {
    GpuMove move;
    bool near;
} Launch;

static void put_buffer(Launch *l, const void *buffer) { l->move.buffers[l->move.buffer_count++] = buffer; }
static void put(Launch *l, int64_t param) { l->move.params[l->move.param_count++] = param; }

/* A size by which an index is divided. */
static void put_size(Launch *l, int64_t size) {
    put(l, size);
    if (l->near) put(l, gpu_divide_magic(size));
}

static int axes_of(const Launch *l) { return l->near ? NEAR_AXES : MAX_RANK; }

static int64_t blocks_for(int64_t n, int64_t each) { return least(ceil_div(n, each), MOST_BLOCKS); }

static void finish(Moving *m, Launch *l, const char *name, int unit, int64_t blocks) {
    l->move.function = name;
    l->move.program = program_of(m->node, unit, !l->near);
    l->move.grid = blocks;
    l->move.block = BLOCK_THREADS;
    VEC_PUSH(m->arena, m->moves->items, l->move);
}

static void finish_units(Moving *m, Launch *l, const char *name, int unit, int64_t n) {
    finish(m, l, name, unit, blocks_for(n, BLOCK_THREADS * (l->near ? NEAR_ITEMS : 1)));
}

static void plain_copy(Moving *m, const void *from, void *to, size_t bytes) {
    GpuMove move = {.bytes = bytes, .buffer_count = 2, .buffers = {from, to}};
    if (bytes && from != to) VEC_PUSH(m->arena, m->moves->items, move);
}

/* The unit for everything that has been or-ed into `bits`, elements of `size` bytes (gpu_move_programs). */
static int unit_of(uint64_t bits, int64_t size) {
    uint64_t low = bits & (~bits + 1);
    if (low == 0 || low >= 16) return 16;
    if (low >= 4 && size < 4) return 4;
    return low < (uint64_t)size ? (int)low : (int)size;
}

static Status misfit(const Moving *m) {
    return status_error(STATUS_INVALID, "node \"%s\": the sizes of its inputs do not fit each other",
                        node_origin_name(m->node));
}

static int64_t product(const int64_t *dims, int from, int to) {
    int64_t count = 1;
    for (int d = from; d < to; d++) count *= dims[d];
    return count;
}

static void dense_strides(const Tensor *t, int64_t unit, int64_t *strides) {
    for (int d = t->rank - 1; d >= 0; d--) {
        strides[d] = unit;
        unit *= t->dims[d];
    }
}

/* --- strided copies --- */

/* Over `dims`, two addresses with strides in bytes. */
typedef struct Strided {
    const char *from;
    char *to;
    int rank;
    int64_t dims[MAX_RANK], from_stride[MAX_RANK], to_stride[MAX_RANK];
} Strided;

static Strided strided(const Tensor *from, const Tensor *to) {
    Strided s = {.from = from->data, .to = to->data, .rank = to->rank};
    memcpy(s.dims, to->dims, sizeof s.dims);
    dense_strides(to, (int64_t)dtype_size(to->dtype), s.to_stride);
    return s;
}

/* Axes of size 1 go, and axes that are one run in both are merged. */
static void merge_axes(Strided *s) {
    int kept = 0;
    for (int d = 0; d < s->rank; d++) {
        int64_t size = s->dims[d];
        if (size == 1) continue;
        bool merges = kept && s->from_stride[kept - 1] == s->from_stride[d] * size &&
                      s->to_stride[kept - 1] == s->to_stride[d] * size;
        if (!merges) s->dims[kept++] = 1;
        s->dims[kept - 1] *= size;
        s->from_stride[kept - 1] = s->from_stride[d];
        s->to_stride[kept - 1] = s->to_stride[d];
    }
    s->rank = kept;
}

/* Axis d from the innermost on; beyond the rank an axis of size 1. */
static int64_t axis_value(const int64_t *values, int rank, int d, int64_t otherwise) {
    return d < rank ? values[rank - 1 - d] : otherwise;
}

static void copy_units(Moving *m, const Strided *s, int unit) {
    int64_t n = product(s->dims, 0, s->rank);
    Launch l = {.near = s->rank <= NEAR_AXES && n < near_limit};
    put_buffer(&l, s->from);
    put_buffer(&l, s->to);
    put(&l, n);
    for (int d = 0; d < axes_of(&l); d++) {
        put_size(&l, axis_value(s->dims, s->rank, d, 1));
        put(&l, axis_value(s->from_stride, s->rank, d, 0) / unit);
        put(&l, axis_value(s->to_stride, s->rank, d, 0) / unit);
    }
    finish_units(m, &l, "copy", unit, n);
}

/* Rows that are contiguous in both are cut into the widest units. */
static void copy_strided(Moving *m, Strided *s) {
    int64_t size = (int64_t)dtype_size(m->output->dtype);
    for (int d = 0; d < s->rank; d++)
        if (s->dims[d] <= 0) return;
    merge_axes(s);
    int last = s->rank - 1, unit = (int)size;
    bool rows = last >= 0 && s->from_stride[last] == size && s->to_stride[last] == size;
    if (rows) {
        int64_t row = s->dims[last] * size;
        uint64_t bits = (uint64_t)(uintptr_t)s->from | (uint64_t)(uintptr_t)s->to | (uint64_t)row;
        if (last == 0) {
            plain_copy(m, s->from, s->to, (size_t)row);
            return;
        }
        for (int d = 0; d < last; d++) bits |= (uint64_t)s->from_stride[d] | (uint64_t)s->to_stride[d];
        unit = unit_of(bits, size);
        s->dims[last] = row / unit;
        s->from_stride[last] = s->to_stride[last] = unit;
    }
    copy_units(m, s, unit);
}

static Status move_permute(Moving *m) {
    const Tensor *from = m->inputs[0];
    int count;
    const int64_t *perm = attr_ints(m->node, "perm", &count);
    int64_t strides[MAX_RANK];
    Strided s = strided(from, m->output);
    if (count != s.rank || from->rank != s.rank) return misfit(m);
    dense_strides(from, (int64_t)dtype_size(from->dtype), strides);
    for (int d = 0; d < s.rank; d++) {
        if (from->dims[perm[d]] != s.dims[d]) return misfit(m);
        s.from_stride[d] = strides[perm[d]];
    }
    copy_strided(m, &s);
    return NULL;
}

static Status move_expand(Moving *m) {
    const Tensor *from = m->inputs[0];
    int64_t strides[MAX_RANK];
    Strided s = strided(from, m->output);
    dense_strides(from, (int64_t)dtype_size(from->dtype), strides);
    for (int d = 0; d < s.rank; d++) {
        int f = d - (s.rank - from->rank);
        int64_t size = f < 0 ? 1 : from->dims[f];
        if (size != 1 && size != s.dims[d])
            return status_error(STATUS_INVALID, "node \"%s\": sizes %lld and %lld of axis %d do not broadcast",
                                node_origin_name(m->node), (long long)size, (long long)s.dims[d], d);
        s.from_stride[d] = size == 1 ? 0 : strides[f];
    }
    copy_strided(m, &s);
    return NULL;
}

static Status move_slice(Moving *m) {
    const Tensor *from = m->inputs[0];
    int count, steps;
    const Dim *const *start = attr_dims(m->node, "start", &count);
    const int64_t *step = attr_ints(m->node, "step", &steps);
    int64_t strides[MAX_RANK];
    Strided s = strided(from, m->output);
    if (count != s.rank || from->rank != s.rank) return misfit(m);
    dense_strides(from, (int64_t)dtype_size(from->dtype), strides);
    for (int d = 0; d < s.rank; d++) {
        int64_t first = dim_eval(start[d], m->symbols), by = steps ? step[d] : 1, size = s.dims[d];
        int64_t last = first + (size - 1) * by;
        if (size > 0 && (first < 0 || first >= from->dims[d] || last < 0 || last >= from->dims[d]))
            return status_error(STATUS_INVALID, "node \"%s\": slice of axis %d is out of range",
                                node_origin_name(m->node), d);
        s.from += size > 0 ? first * strides[d] : 0;
        s.from_stride[d] = strides[d] * by;
    }
    copy_strided(m, &s);
    return NULL;
}

/* --- pad --- */

/* Of each axis of the result: its size, where the input begins in it (negative: cropped), the input's size and its
 * stride. Sizes are in elements until they are cut into units. */
typedef struct Padding {
    int rank;
    int64_t size[MAX_RANK], before[MAX_RANK], inner[MAX_RANK], stride[MAX_RANK];
} Padding;

/* An axis that is not padded is merged into the one outside it. */
static void merge_unpadded(Padding *p) {
    int kept = 0;
    for (int d = 0; d < p->rank; d++) {
        bool whole = p->before[d] == 0 && p->inner[d] == p->size[d];
        if (!kept || !whole) {
            p->size[kept] = p->size[d];
            p->before[kept] = p->before[d];
            p->inner[kept] = p->inner[d];
            p->stride[kept++] = p->stride[d];
            continue;
        }
        p->size[kept - 1] *= p->size[d];
        p->before[kept - 1] *= p->size[d];
        p->inner[kept - 1] *= p->size[d];
        p->stride[kept - 1] = p->stride[d];
    }
    p->rank = kept;
}

static int padding_unit(const Moving *m, const Padding *p, int64_t size) {
    int last = p->rank - 1;
    uint64_t bits = (uint64_t)(uintptr_t)m->inputs[0]->data | (uint64_t)(uintptr_t)m->output->data;
    bits |= (uint64_t)((p->size[last] | p->before[last] | p->inner[last]) * size);
    for (int d = 0; d < last; d++) bits |= (uint64_t)(p->stride[d] * size);
    return unit_of(bits, size);
}

static void pad_units(Moving *m, Padding *p) {
    int64_t size = (int64_t)dtype_size(m->output->dtype);
    int unit = padding_unit(m, p, size), last = p->rank - 1;
    for (int d = 0; d < last; d++) p->stride[d] = p->stride[d] * size / unit;
    p->size[last] = p->size[last] * size / unit;
    p->before[last] = p->before[last] * size / unit;
    p->inner[last] = p->inner[last] * size / unit;
    int64_t n = product(p->size, 0, p->rank);
    Launch l = {.near = p->rank <= NEAR_AXES && n < near_limit};
    put_buffer(&l, m->inputs[0]->data);
    put_buffer(&l, m->inputs[1]->data);
    put_buffer(&l, m->output->data);
    put(&l, n);
    put(&l, size);
    for (int d = 0; d < axes_of(&l); d++) {
        put_size(&l, axis_value(p->size, p->rank, d, 1));
        put(&l, axis_value(p->before, p->rank, d, 0));
        put(&l, axis_value(p->inner, p->rank, d, 1));
        put(&l, axis_value(p->stride, p->rank, d, 0));
    }
    finish_units(m, &l, "pad", unit, n);
}

static Status move_pad(Moving *m) {
    const Tensor *from = m->inputs[0], *to = m->output;
    int count;
    const Dim *const *before = attr_dims(m->node, "before", &count);
    if (from->rank != to->rank || count != to->rank) return misfit(m);
    if (tensor_count(to) == 0) return NULL;
    Padding p = {.rank = to->rank};
    dense_strides(from, 1, p.stride);
    for (int d = 0; d < to->rank; d++) {
        p.size[d] = to->dims[d];
        p.inner[d] = from->dims[d];
        p.before[d] = dim_eval(before[d], m->symbols);
        if (p.before[d] == UNBOUND_DIM)
            return status_error(STATUS_FAULT, "node \"%s\": padding is not known", node_origin_name(m->node));
    }
    if (!p.rank) {
        plain_copy(m, from->data, to->data, dtype_size(to->dtype));
        return NULL;
    }
    merge_unpadded(&p);
    pad_units(m, &p);
    return NULL;
}

/* --- concat --- */

typedef struct Part {
    const void *data;
    int64_t row; /* bytes that it gives to a row of the result */
} Part;

/* Parts side by side from byte `start` of the result's rows on. */
static void concat_parts(Moving *m, const Part *parts, int count, int64_t outer, int64_t row, int64_t start) {
    uint64_t bits = (uint64_t)(uintptr_t)m->output->data | (uint64_t)row | (uint64_t)start;
    int64_t window = 0;
    for (int i = 0; i < count; i++) {
        bits |= (uint64_t)(uintptr_t)parts[i].data | (uint64_t)parts[i].row;
        window += parts[i].row;
    }
    int unit = unit_of(bits, (int64_t)dtype_size(m->output->dtype));
    int64_t n = outer * (window / unit), at = 0;
    Launch l = {.near = n < near_limit};
    for (int i = 0; i < CONCAT_INPUTS; i++) put_buffer(&l, parts[i < count ? i : 0].data);
    put_buffer(&l, m->output->data);
    put(&l, n);
    put_size(&l, window / unit);
    put(&l, row / unit);
    put(&l, start / unit);
    for (int i = 0; i < CONCAT_INPUTS; i++) {
        if (i) put(&l, i < count ? at / unit : INT64_MAX);
        put(&l, i < count ? parts[i].row / unit : 0);
        if (i < count) at += parts[i].row;
    }
    finish_units(m, &l, "concat", unit, n);
}

static Status move_concat(Moving *m) {
    const Tensor *to = m->output;
    int axis = (int)attr_int(m->node, "axis", 0), count = m->node->input_count, kept = 0;
    int64_t size = (int64_t)dtype_size(to->dtype), outer = product(to->dims, 0, axis);
    int64_t row = product(to->dims, axis, to->rank) * size, all = 0, start = 0;
    Part *parts = ARENA_ARRAY(m->arena, Part, count);
    for (int i = 0; i < count; i++) {
        const Tensor *from = m->inputs[i];
        if (from->rank != to->rank || product(from->dims, 0, axis) != outer) return misfit(m);
        Part part = {from->data, product(from->dims, axis, from->rank) * size};
        if (part.row) parts[kept++] = part;
        all += part.row;
    }
    if (all != row) return misfit(m);
    if (!outer || !row) return NULL;
    for (int i = 0; i < kept; i += CONCAT_INPUTS) {
        int some = kept - i < CONCAT_INPUTS ? kept - i : CONCAT_INPUTS;
        if (some == 1 && kept == 1)
            plain_copy(m, parts[0].data, to->data, (size_t)(outer * row));
        else
            concat_parts(m, parts + i, some, outer, row, start);
        for (int k = 0; k < some; k++) start += parts[i + k].row;
    }
    return NULL;
}

/* --- gathers --- */

static bool wide_indices(const Moving *m) { return m->inputs[1]->dtype == DT_I64; }

static void put_indexed(Moving *m, Launch *l, const void *from) {
    put_buffer(l, from);
    put_buffer(l, m->inputs[1]->data);
    put_buffer(l, m->output->data);
    put_buffer(l, m->faults);
    m->moves->may_fault = true;
}

static Status move_gather(Moving *m) {
    const Tensor *data = m->inputs[0], *indices = m->inputs[1];
    int axis = (int)attr_int(m->node, "axis", 0);
    int64_t outer = product(data->dims, 0, axis), count = tensor_count(indices);
    int64_t row = product(data->dims, axis + 1, data->rank);
    if (tensor_count(m->output) != outer * count * row) return misfit(m);
    if (!outer || !count || !row) return NULL;
    int64_t size = (int64_t)dtype_size(data->dtype);
    row *= size;
    int unit = unit_of((uint64_t)(uintptr_t)data->data | (uint64_t)(uintptr_t)m->output->data | (uint64_t)row, size);
    int64_t n = outer * count * (row / unit);
    Launch l = {.near = n < near_limit};
    put_indexed(m, &l, data->data);
    put(&l, n);
    put_size(&l, row / unit);
    put_size(&l, count);
    put(&l, data->dims[axis]);
    put(&l, wide_indices(m));
    finish_units(m, &l, "gather", unit, n);
    return NULL;
}

/* The indices' shape may be smaller than the data's along all axes but the one that they run along. */
static bool elements_fit(const Tensor *data, const Tensor *indices, int axis) {
    if (data->rank != indices->rank || axis >= data->rank) return false;
    for (int d = 0; d < data->rank; d++)
        if (d != axis && indices->dims[d] > data->dims[d]) return false;
    return true;
}

/* Over the indices: from_stride are theirs, to_stride the data's; in elements. */
static Strided elements_walk(const Tensor *data, const Tensor *indices) {
    Strided s = {.rank = indices->rank};
    memcpy(s.dims, indices->dims, sizeof s.dims);
    dense_strides(indices, 1, s.from_stride);
    dense_strides(data, 1, s.to_stride);
    return s;
}

static Status move_gather_elements(Moving *m) {
    const Tensor *data = m->inputs[0], *indices = m->inputs[1];
    int axis = (int)attr_int(m->node, "axis", 0);
    int64_t n = tensor_count(indices);
    if (!elements_fit(data, indices, axis) || !tensor_same_shape(indices, m->output)) return misfit(m);
    if (!n) return NULL;
    Strided s = elements_walk(data, indices);
    int64_t along = s.to_stride[axis];
    s.to_stride[axis] = 0;
    merge_axes(&s);
    Launch l = {.near = s.rank <= NEAR_AXES && n < near_limit};
    put_indexed(m, &l, data->data);
    put(&l, n);
    put(&l, along);
    put(&l, data->dims[axis]);
    put(&l, wide_indices(m));
    for (int d = 0; d < axes_of(&l); d++) {
        put_size(&l, axis_value(s.dims, s.rank, d, 1));
        put(&l, axis_value(s.to_stride, s.rank, d, 0));
    }
    finish_units(m, &l, "gather_elements", (int)dtype_size(data->dtype), n);
    return NULL;
}

/* --- scatters --- */

static void copy_data(Moving *m) { plain_copy(m, m->inputs[0]->data, m->output->data, tensor_bytes(m->output)); }

static Status move_scatter_elements(Moving *m) {
    const Tensor *data = m->inputs[0], *indices = m->inputs[1];
    int axis = (int)attr_int(m->node, "axis", 0);
    if (!elements_fit(data, indices, axis) || !tensor_same_shape(indices, m->inputs[2]) ||
        !tensor_same_shape(data, m->output))
        return misfit(m);
    copy_data(m);
    if (!tensor_count(indices)) return NULL;
    Strided s = elements_walk(data, indices);
    int64_t count = s.dims[axis], from_along = s.from_stride[axis], to_along = s.to_stride[axis];
    s.dims[axis] = 1;
    merge_axes(&s);
    int64_t lines = product(s.dims, 0, s.rank);
    bool block_a_line = count >= LONG_LINE && lines < MANY_LINES;
    Launch l = {.near = s.rank <= NEAR_AXES && lines < near_limit};
    put_indexed(m, &l, m->inputs[2]->data);
    put(&l, lines);
    put(&l, count);
    put(&l, from_along);
    put(&l, to_along);
    put(&l, data->dims[axis]);
    put(&l, wide_indices(m));
    for (int d = 0; d < axes_of(&l); d++) {
        put_size(&l, axis_value(s.dims, s.rank, d, 1));
        put(&l, axis_value(s.from_stride, s.rank, d, 0));
        put(&l, axis_value(s.to_stride, s.rank, d, 0));
    }
    finish(m, &l, block_a_line ? "scatter_long" : "scatter_lines", (int)dtype_size(data->dtype),
           blocks_for(lines, block_a_line ? 1 : BLOCK_THREADS));
    return NULL;
}

/* updates: indices.shape[:-1] + data.shape[depth:], where depth is the last axis of the indices. */
static bool scatter_nd_fits(const Tensor *data, const Tensor *indices, const Tensor *updates) {
    int64_t depth = indices->rank ? indices->dims[indices->rank - 1] : -1;
    if (depth < 0 || depth > data->rank || updates->rank != indices->rank - 1 + data->rank - depth) return false;
    for (int i = 0; i < updates->rank; i++) {
        int64_t want = i < indices->rank - 1 ? indices->dims[i] : data->dims[i - indices->rank + 1 + depth];
        if (updates->dims[i] != want) return false;
    }
    return true;
}

static Status move_scatter_nd(Moving *m) {
    const Tensor *data = m->inputs[0], *indices = m->inputs[1], *updates = m->inputs[2];
    if (!scatter_nd_fits(data, indices, updates) || !tensor_same_shape(data, m->output)) return misfit(m);
    int depth = (int)indices->dims[indices->rank - 1], unit = (int)dtype_size(data->dtype);
    int64_t size = unit, count = product(indices->dims, 0, indices->rank - 1);
    int64_t run = product(data->dims, depth, data->rank) * size, lanes = 1, strides[MAX_RANK];
    copy_data(m);
    if (!count || !run) return NULL;
    if (!combine_of(m->node))
        unit = unit_of((uint64_t)(uintptr_t)updates->data | (uint64_t)(uintptr_t)m->output->data | (uint64_t)run, size);
    run /= unit;
    while (lanes < run && lanes < BLOCK_THREADS) lanes *= 2;
    dense_strides(data, size, strides);
    Launch l = {.near = depth <= NEAR_AXES};
    put_indexed(m, &l, updates->data);
    put(&l, count);
    put(&l, run);
    put(&l, depth);
    put(&l, lanes);
    put(&l, wide_indices(m));
    for (int d = 0; d < axes_of(&l); d++) {
        put(&l, d < depth ? data->dims[d] : 1);
        put(&l, d < depth ? strides[d] / unit : 0);
    }
    finish(m, &l, "scatter_nd", unit, blocks_for(run, lanes));
    return NULL;
}

Status gpu_moves(Arena *arena, const Node *node, const Tensor *const *inputs, const int64_t *symbols,
                 const Tensor *output, void *faults, GpuMoves *out_moves) {
    *out_moves = (GpuMoves){0};
    Moving m = {arena, node, inputs, symbols, output, faults, out_moves};
    switch (node->prim) {
    case PRIM_PERMUTE: return move_permute(&m);
    case PRIM_SLICE: return move_slice(&m);
    case PRIM_EXPAND: return move_expand(&m);
    case PRIM_PAD: return move_pad(&m);
    case PRIM_CONCAT: return move_concat(&m);
    case PRIM_GATHER: return move_gather(&m);
    case PRIM_GATHER_ELEMENTS: return move_gather_elements(&m);
    case PRIM_SCATTER_ELEMENTS: return move_scatter_elements(&m);
    case PRIM_SCATTER_ND: return move_scatter_nd(&m);
    default: return status_error(STATUS_FAULT, "primitive %s does not run on the device", node->op);
    }
}
