/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel IR as text, what it may contain, and the sizes of its launch. */
#include "codegen/kernel.h"

#include "base/integer.h"
#include "base/map.h"

static const struct {
    const char *name;
    int args;
} ops[KERNEL_OP_COUNT] = {
#define X(enumerator, name, args, comment) {name, args},
    KERNEL_OPS(X)
#undef X
};

static const char *const role_names[] = {"task", "lane", "reduce", "reduce_lane"}; /* keep the order of AxisRole */

const char *kernel_op_name(KernelOp op) { return ops[op].name; }
int kernel_op_args(KernelOp op) { return ops[op].args; }

/* ---- text ---- */

static void print_number(Text *text, StrideKind kind, int64_t value) {
    switch (kind) {
    case STRIDE_ZERO: text_add(text, "0"); break;
    case STRIDE_ONE: text_add(text, "1"); break;
    case STRIDE_CONST: text_add(text, "=%lld", (long long)value); break;
    case STRIDE_PARAM: text_add(text, "p%lld", (long long)value); break;
    }
}

static void print_access(Text *text, const Kernel *kernel, int buffer, const KernelAccess *access) {
    text_add(text, " b%d[", buffer);
    for (int i = 0; i < kernel->axis_count; i++) {
        if (i) text_add(text, " ");
        print_number(text, access->kind[i], access->stride[i]);
    }
    if (access->offset_kind != STRIDE_ZERO) {
        text_add(text, " + ");
        print_number(text, access->offset_kind, access->offset);
    }
    text_add(text, "]");
}

static void print_axis(Text *text, const KernelAxis *axis) {
    text_add(text, "axis %s ", role_names[axis->role]);
    if (axis->param >= 0)
        text_add(text, "p%d", axis->param);
    else
        text_add(text, "%lld", (long long)axis->size);
    if (axis->multiple > 1) text_add(text, " multiple %lld", (long long)axis->multiple);
    text_add(text, "\n");
}

static void print_constant(Text *text, const KernelInst *inst) {
    if (!dtype_is_float(inst->dtype)) {
        text_add(text, " %lld", (long long)inst->bits);
        return;
    }
    double value;
    memcpy(&value, &inst->bits, sizeof value);
    text_add(text, " ");
    if (value != value)
        text_add(text, "nan:%llx", (unsigned long long)inst->bits);
    else
        text_add_double(text, value);
}

static void print_inst(Text *text, const Kernel *kernel, int index) {
    const KernelInst *inst = &kernel->insts.items[index];
    if (inst->op == K_STORE)
        text_add(text, "%s", ops[inst->op].name);
    else
        text_add(text, "%%%d = %s %s", index, ops[inst->op].name, dtype_name(inst->dtype));
    if (inst->op == K_CONST) print_constant(text, inst);
    if (inst->op == K_PARAM) text_add(text, " p%lld", (long long)inst->bits);
    if (inst->op == K_INDEX) text_add(text, " axis %d", inst->axis);
    if (inst->op == K_LOAD || inst->op == K_STORE) print_access(text, kernel, inst->buffer, inst->access);
    for (int i = 0; i < ops[inst->op].args; i++) text_add(text, " %%%d", inst->args[i]);
    if (inst->op == K_DIV && inst->bits) text_add(text, " by_row");
    if (inst->op == K_SCALE && inst->bits) text_add(text, " down");
    if (inst->op == K_RANDOM && inst->bits & RANDOM_HALVES) text_add(text, " halves");
    if (kernel_is_sum(inst)) text_add(text, " sum");
    if ((inst->op == K_REDUCE_ARGMAX || inst->op == K_REDUCE_ARGMIN) && inst->bits) text_add(text, " last");
    if (inst->stage) text_add(text, " @%d", inst->stage);
    if (inst->keep) text_add(text, " keep");
    text_add(text, "\n");
}

void kernel_print(Text *text, const Kernel *kernel) {
    text_add(text, "kernel params %d stages %d", kernel->param_count, kernel->stage_count);
    if (kernel->lane_block) text_add(text, " lane_block %d", kernel->lane_block);
    if (kernel->tile_axis >= 0) text_add(text, " tile %d:%d", kernel->tile_axis, kernel->tile_block);
    if (kernel->band) text_add(text, " band %d", kernel->band);
    text_add(text, "\n");
    for (int i = 0; kernel->param_multiples && i < kernel->param_count; i++)
        if (kernel->param_multiples[i] > 1)
            text_add(text, "param %d multiple %lld\n", i, (long long)kernel->param_multiples[i]);
    for (int i = 0; i < kernel->axis_count; i++) print_axis(text, &kernel->axes[i]);
    for (int i = 0; i < kernel->buffers.count; i++) {
        const KernelBuffer *b = &kernel->buffers.items[i];
        text_add(text, "buffer %s %s\n", dtype_name(b->dtype), b->output ? "out" : "in");
    }
    for (int i = 0; i < kernel->insts.count; i++) print_inst(text, kernel, i);
}

const char *kernel_text(Arena *arena, const Kernel *kernel) {
    Text text = text_make(arena);
    kernel_print(&text, kernel);
    return text.data;
}

/* ---- equality ---- */

bool kernel_same_access(const Kernel *k, const KernelAccess *a, const KernelAccess *b) {
    for (int i = 0; i < k->axis_count; i++)
        if (a->kind[i] != b->kind[i] || a->stride[i] != b->stride[i]) return false;
    return a->offset_kind == b->offset_kind && a->offset == b->offset;
}

bool kernel_same_inst(const Kernel *k, const KernelInst *a, const KernelInst *b) {
    return a->op == b->op && a->dtype == b->dtype && a->args[0] == b->args[0] && a->args[1] == b->args[1] &&
           a->args[2] == b->args[2] && a->bits == b->bits && a->axis == b->axis && a->buffer == b->buffer &&
           (!a->access || kernel_same_access(k, a->access, b->access));
}

static bool same_axes(const Kernel *a, const Kernel *b) {
    for (int i = 0; i < a->axis_count; i++) {
        const KernelAxis *x = &a->axes[i], *y = &b->axes[i];
        if (x->role != y->role || x->param != y->param || x->multiple != y->multiple) return false;
        if (x->param < 0 && x->size != y->size) return false;
    }
    return true;
}

static bool same_params(const Kernel *a, const Kernel *b) {
    if (!a->param_multiples || !b->param_multiples) return a->param_multiples == b->param_multiples;
    return memcmp(a->param_multiples, b->param_multiples, (size_t)a->param_count * sizeof *a->param_multiples) == 0;
}

bool kernel_same(const Kernel *a, const Kernel *b) {
    if (a->axis_count != b->axis_count || a->lane_block != b->lane_block || a->tile_axis != b->tile_axis ||
        a->tile_block != b->tile_block || a->band != b->band || a->param_count != b->param_count ||
        a->stage_count != b->stage_count || a->buffers.count != b->buffers.count || a->insts.count != b->insts.count ||
        !same_axes(a, b) || !same_params(a, b))
        return false;
    for (int i = 0; i < a->buffers.count; i++)
        if (a->buffers.items[i].dtype != b->buffers.items[i].dtype ||
            a->buffers.items[i].output != b->buffers.items[i].output)
            return false;
    for (int i = 0; i < a->insts.count; i++) {
        const KernelInst *x = &a->insts.items[i], *y = &b->insts.items[i];
        if (!kernel_same_inst(a, x, y) || x->axes != y->axes || x->stage != y->stage || x->keep != y->keep)
            return false;
    }
    return true;
}

uint64_t kernel_hash(const Kernel *kernel) {
    int64_t shape[] = {kernel->axis_count,  kernel->lane_block,    kernel->tile_axis,   kernel->param_count,
                       kernel->stage_count, kernel->buffers.count, kernel->insts.count, kernel->axes[0].multiple};
    uint64_t hash = hash_bytes(shape, sizeof shape, 0);
    for (int i = 0; i < kernel->insts.count; i++) {
        const KernelInst *inst = &kernel->insts.items[i];
        int64_t key[] = {(int64_t)inst->op * 64 + inst->dtype, inst->args[0], inst->args[1], inst->bits, inst->buffer};
        hash = hash_bytes(key, sizeof key, hash);
    }
    return hash;
}

Kernel *kernel_copy(Arena *arena, const Kernel *kernel) {
    Kernel *copy = arena_copy(arena, kernel, sizeof *kernel);
    copy->insts.items = arena_copy(arena, kernel->insts.items, (size_t)kernel->insts.count * sizeof(KernelInst));
    copy->buffers.items =
        arena_copy(arena, kernel->buffers.items, (size_t)kernel->buffers.count * sizeof(KernelBuffer));
    copy->insts.capacity = copy->insts.count;
    for (int i = 0; i < copy->insts.count; i++) {
        KernelInst *inst = &copy->insts.items[i];
        if (inst->access) inst->access = arena_copy(arena, inst->access, sizeof *inst->access);
    }
    copy->buffers.capacity = copy->buffers.count;
    if (kernel->param_multiples)
        copy->param_multiples =
            arena_copy(arena, kernel->param_multiples, (size_t)kernel->param_count * sizeof *kernel->param_multiples);
    return copy;
}

/* ---- rules ---- */

static bool is_reduced(const Kernel *k, int axis) {
    return k->axes[axis].role == AXIS_REDUCE || k->axes[axis].role == AXIS_REDUCE_LANE;
}

static uint32_t reduced_axes(const Kernel *k) {
    uint32_t axes = 0;
    for (int i = 0; i < k->axis_count; i++)
        if (is_reduced(k, i)) axes |= 1u << i;
    return axes;
}

/* An inner reduction whose tasks are rows. */
static bool reduces_rows(const Kernel *k) {
    return k->axes[0].role == AXIS_TASK && k->axes[k->axis_count - 1].role == AXIS_REDUCE_LANE;
}

static bool sums_columns(const Kernel *k) {
    for (int i = 0; i < k->insts.count; i++)
        if (kernel_is_sum(&k->insts.items[i])) return true;
    return false;
}

bool kernel_can_band(const Kernel *k) {
    uint32_t reduced = reduced_axes(k);
    int rows = 0, sums = 0, lane = -1;
    for (int i = 0; i < k->axis_count; i++) {
        rows += k->axes[i].role == AXIS_REDUCE;
        if (k->axes[i].role == AXIS_LANE) lane = i;
    }
    if (lane < 0) return reduces_rows(k) && sums_columns(k);
    if (rows != 1) return false;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        sums += kernel_op_is_reduce(inst->op);
        bool later = inst->stage > 0 && (inst->axes & reduced || kernel_op_is_reduce(inst->op));
        bool repeated = inst->op == K_STORE && inst->stage == 0 && !(inst->axes & reduced);
        if (later || repeated || inst->keep || inst->op == K_REDUCE_ARGMAX || inst->op == K_REDUCE_ARGMIN) return false;
    }
    return sums > 0;
}

static Status verify_axes(const Kernel *k) {
    int lanes = 0, reduces = 0;
    if (k->axis_count < 1 || k->axis_count > KERNEL_MAX_AXES)
        return status_error(STATUS_FAULT, "kernel with %d axes", k->axis_count);
    for (int i = 0; i < k->axis_count; i++) {
        const KernelAxis *a = &k->axes[i];
        bool lane = a->role == AXIS_LANE || a->role == AXIS_REDUCE_LANE;
        lanes += lane;
        reduces += is_reduced(k, i);
        if (a->param < 0 && a->size < 1) return status_error(STATUS_FAULT, "axis %d has no size", i);
        if (a->param >= k->param_count) return status_error(STATUS_FAULT, "axis %d: no parameter %d", i, a->param);
        if (a->multiple < 1 || (a->multiple & (a->multiple - 1)))
            return status_error(STATUS_FAULT, "axis %d: multiple is no power of two", i);
        if (a->role == AXIS_TASK && (lanes || reduces))
            return status_error(STATUS_FAULT, "axis %d: a task axis inside others", i);
        if (a->role == AXIS_LANE && reduces) return status_error(STATUS_FAULT, "axis %d: lanes inside a reduction", i);
        if (a->role == AXIS_REDUCE_LANE && i != k->axis_count - 1)
            return status_error(STATUS_FAULT, "axis %d: reduced lanes are not innermost", i);
        if (a->role == AXIS_LANE && k->lane_block < 1) return status_error(STATUS_FAULT, "lanes without a block");
    }
    if (lanes != 1) return status_error(STATUS_FAULT, "%d lane axes", lanes);
    if (k->tile_axis >= 0 &&
        (k->tile_axis >= k->axis_count || k->axes[k->tile_axis].role != AXIS_TASK || k->tile_block < 1 || reduces))
        return status_error(STATUS_FAULT, "a tile along axis %d", k->tile_axis);
    if (k->band < 0 || (k->band && !kernel_can_band(k)) || (!k->band && sums_columns(k)))
        return status_error(STATUS_FAULT, "bands of %d", k->band);
    return NULL;
}

static Status verify_access(const Kernel *k, const KernelInst *inst) {
    if (inst->buffer < 0 || inst->buffer >= k->buffers.count)
        return status_error(STATUS_FAULT, "no buffer %d", inst->buffer);
    const KernelBuffer *b = &k->buffers.items[inst->buffer];
    bool narrow = b->dtype == DT_F16 || b->dtype == DT_BF16;
    if (inst->dtype != (narrow ? DT_F32 : b->dtype))
        return status_error(STATUS_FAULT, "%s meets a buffer of %s", dtype_name(inst->dtype), dtype_name(b->dtype));
    if (b->output != (inst->op == K_STORE)) return status_error(STATUS_FAULT, "buffer %d the wrong way", inst->buffer);
    for (int i = 0; i < k->axis_count; i++)
        if (inst->access->kind[i] == STRIDE_PARAM && (uint64_t)inst->access->stride[i] >= (uint64_t)k->param_count)
            return status_error(STATUS_FAULT, "no parameter %lld", (long long)inst->access->stride[i]);
    if (inst->access->offset_kind == STRIDE_PARAM && (uint64_t)inst->access->offset >= (uint64_t)k->param_count)
        return status_error(STATUS_FAULT, "no parameter %lld", (long long)inst->access->offset);
    return NULL;
}

static uint32_t access_axes(const Kernel *k, const KernelAccess *access) {
    uint32_t axes = 0;
    for (int i = 0; i < k->axis_count; i++)
        if (access->kind[i] != STRIDE_ZERO) axes |= 1u << i;
    return axes;
}

static bool computes(DType t) { return t == DT_BOOL || t == DT_F32 || t == DT_F64 || dtype_is_integer(t); }

/* The types of arguments and result. */
static bool types_fit(const Kernel *k, const KernelInst *inst) {
    DType a[3] = {DT_NONE, DT_NONE, DT_NONE}, t = inst->dtype;
    for (int i = 0; i < ops[inst->op].args; i++) a[i] = k->insts.items[inst->args[i]].dtype;
    switch (inst->op) {
    case K_CONST:
    case K_LOAD: return true;
    case K_PARAM: return t == DT_I64 || t == DT_I32 || t == DT_F32;
    case K_INDEX: return t == DT_I64;
    case K_FMA: return dtype_is_float(t) && a[0] == t && a[1] == t && a[2] == t;
    case K_SCALE: return dtype_is_float(t) && a[0] == t && a[1] == t;
    case K_SQRT:
    case K_FLOOR:
    case K_CEIL:
    case K_TRUNC:
    case K_RINT: return dtype_is_float(t) && a[0] == t;
    case K_AND:
    case K_OR:
    case K_XOR: return !dtype_is_float(t) && a[0] == t && a[1] == t;
    case K_NOT: return !dtype_is_float(t) && a[0] == t;
    case K_SHL:
    case K_SHR: return dtype_is_integer(t) && a[0] == t && a[1] == t;
    case K_EQ:
    case K_NE:
    case K_LT:
    case K_LE:
    case K_GT:
    case K_GE: return t == DT_BOOL && a[0] == a[1] && a[0] != DT_BOOL;
    case K_SELECT: return a[0] == DT_BOOL && a[1] == t && a[2] == t;
    case K_CAST: return true;
    case K_BITCAST: return t != DT_BOOL && a[0] != DT_BOOL && dtype_size(a[0]) == dtype_size(t);
    case K_ROUND_F16:
    case K_ROUND_BF16: return t == DT_F32 && a[0] == t;
    case K_RANDOM: return t == DT_U32 && a[0] == DT_U64 && a[1] == DT_U64;
    case K_REDUCE_ARGMAX:
    case K_REDUCE_ARGMIN: return t == DT_I64 && a[0] != DT_BOOL;
    case K_STORE: return a[0] == t;
    default: /* arithmetic and reductions */
        for (int i = 0; i < ops[inst->op].args; i++)
            if (a[i] != t) return false;
        return t != DT_BOOL;
    }
}

static Status verify_inst(const Kernel *k, int index) {
    const KernelInst *inst = &k->insts.items[index];
    uint32_t axes = 0, reduced = reduced_axes(k);
    int stage = 0;
    if ((unsigned)inst->op >= KERNEL_OP_COUNT || !computes(inst->dtype))
        return status_error(STATUS_FAULT, "operation %d on %s", (int)inst->op, dtype_name(inst->dtype));
    for (int i = 0; i < ops[inst->op].args; i++) {
        if (inst->args[i] < 0 || inst->args[i] >= index)
            return status_error(STATUS_FAULT, "argument %%%d stands later", inst->args[i]);
        const KernelInst *arg = &k->insts.items[inst->args[i]];
        if (arg->op == K_STORE) return status_error(STATUS_FAULT, "argument %%%d is a store", inst->args[i]);
        axes |= arg->axes;
        int ready = arg->stage + kernel_op_is_reduce(arg->op);
        if (ready > stage) stage = ready;
    }
    if (!types_fit(k, inst)) return status_error(STATUS_FAULT, "types do not fit");
    if (inst->op == K_INDEX) axes = 1u << inst->axis;
    if (inst->op == K_LOAD) axes = access_axes(k, inst->access);
    if (inst->op == K_STORE) {
        uint32_t to = access_axes(k, inst->access);
        if (axes & reduced & ~to) return status_error(STATUS_FAULT, "stores a value that differs along reduced axes");
        if (inst->bits && (to != reduced || !reduces_rows(k))) return status_error(STATUS_FAULT, "sums up no columns");
        axes |= to;
    }
    if (kernel_op_is_reduce(inst->op)) axes &= ~reduced;
    if (inst->axes != axes) return status_error(STATUS_FAULT, "axes %x, not %x", (unsigned)inst->axes, (unsigned)axes);
    if (inst->stage != stage || stage >= k->stage_count)
        return status_error(STATUS_FAULT, "stage %d, not %d", inst->stage, stage);
    if (inst->keep && ((inst->axes & reduced) != reduced || inst->op == K_STORE))
        return status_error(STATUS_FAULT, "keeps a value that does not vary along all reduced axes");
    if (inst->op == K_INDEX && (inst->axis < 0 || inst->axis >= k->axis_count))
        return status_error(STATUS_FAULT, "no axis %d", inst->axis);
    if (inst->op == K_PARAM && (uint64_t)inst->bits >= (uint64_t)k->param_count)
        return status_error(STATUS_FAULT, "no parameter %lld", (long long)inst->bits);
    return inst->op == K_LOAD || inst->op == K_STORE ? verify_access(k, inst) : NULL;
}

Status kernel_verify(const Kernel *kernel) {
    TRY(status_at(verify_axes(kernel), "kernel"));
    for (int i = 0; i < kernel->insts.count; i++) TRY(status_at(verify_inst(kernel, i), "kernel: %%%d", i));
    return NULL;
}

/* ---- launches ---- */

static int64_t axis_size(const KernelAxis *axis, const int64_t *params) {
    return axis->param < 0 ? axis->size : params[axis->param];
}

static int64_t task_count(const Kernel *kernel, const int64_t *params, int64_t lane_block) {
    int64_t tasks = 1;
    for (int i = 0; i < kernel->axis_count; i++) {
        const KernelAxis *a = &kernel->axes[i];
        int64_t size = axis_size(a, params);
        if (a->role == AXIS_LANE) size = ceil_div(size, lane_block);
        if (i == kernel->tile_axis) size = ceil_div(size, kernel->tile_block);
        if (a->role == AXIS_TASK || a->role == AXIS_LANE) tasks *= size;
    }
    return tasks;
}

static int64_t reduced_elements(const Kernel *kernel, const int64_t *params) {
    int64_t elements = 1;
    for (int i = 0; i < kernel->axis_count; i++)
        if (is_reduced(kernel, i)) elements *= axis_size(&kernel->axes[i], params);
    return elements;
}

int64_t kernel_tasks(const Kernel *kernel, const int64_t *params) {
    if (!kernel->band || kernel->lane_block) return task_count(kernel, params, kernel->lane_block);
    int64_t blocks = ceil_div(reduced_elements(kernel, params), KERNEL_SUM_BLOCK);
    return blocks ? blocks : 1; /* where there are no columns, rows are to be stored yet */
}

static int64_t band_count(const Kernel *kernel, const int64_t *params) {
    if (!kernel->lane_block) {
        int64_t rows = task_count(kernel, params, 0);
        return ceil_div(rows, kernel_band_rows(kernel, rows));
    }
    for (int i = 0; i < kernel->axis_count; i++)
        if (kernel->axes[i].role == AXIS_REDUCE) return ceil_div(axis_size(&kernel->axes[i], params), kernel->band);
    return 0;
}

int64_t kernel_band_tasks(const Kernel *kernel, const int64_t *params) {
    if (!kernel->band) return 0;
    if (!kernel->lane_block) return band_count(kernel, params);
    return task_count(kernel, params, (int64_t)kernel->lane_block * KERNEL_BAND_BLOCKS) * band_count(kernel, params);
}

static size_t band_bytes(const Kernel *kernel, const int64_t *params) {
    size_t elements = (size_t)band_count(kernel, params), bytes = 0;
    for (int i = 0; i < kernel->axis_count; i++)
        if (!is_reduced(kernel, i)) elements *= (size_t)axis_size(&kernel->axes[i], params);
    for (int i = 0; i < kernel->insts.count; i++) {
        const KernelInst *inst = &kernel->insts.items[i];
        if (kernel_op_is_reduce(inst->op)) bytes += (elements * dtype_size(inst->dtype) + 63) / 64 * 64;
    }
    return bytes;
}

size_t kernel_scratch_bytes(const Kernel *kernel, const int64_t *params) {
    if (kernel->band && kernel->lane_block) return band_bytes(kernel, params);
    size_t elements = (size_t)reduced_elements(kernel, params), bytes = 0;
    if (kernel->lane_block) elements *= (size_t)kernel->lane_block;
    for (int i = 0; i < kernel->insts.count; i++) {
        const KernelInst *inst = &kernel->insts.items[i];
        if (inst->keep || kernel_is_sum(inst)) bytes += (elements * dtype_size(inst->dtype) + 63) / 64 * 64;
    }
    return kernel->band ? bytes * (size_t)band_count(kernel, params) : bytes;
}
