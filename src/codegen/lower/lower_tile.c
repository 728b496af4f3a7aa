/* SPDX-License-Identifier: Apache-2.0 */
/* The body of an anchor's epilogue becomes a kernel in tile form: rows and columns of a block, whose sizes and strides
 * the caller gives. They stand for the call's numbers as symbols of a table of their own. */
#include "codegen/lower/lower_region.h"

#include "base/log.h"
#include "graph/broadcast.h"

enum { ROWS, COLUMNS, AXES };

typedef struct Symbols {
    const Dim *zero, *one, *rows, *columns, *index_step, *index_start;
    const Dim **strides; /* [body inputs + outputs] */
} Symbols;

static Symbols make_symbols(Arena *arena, DimTable *dims, const Graph *body) {
    int count = body->inputs.count + body->outputs.count;
    Symbols s = {.zero = dim_const(dims, 0),
                 .one = dim_const(dims, 1),
                 .rows = dim_symbol(dims, "rows"),
                 .columns = dim_symbol(dims, "columns"),
                 .index_step = dim_symbol(dims, "index_step"),
                 .index_start = dim_symbol(dims, "index_start"),
                 .strides = ARENA_ARRAY(arena, const Dim *, count)};
    for (int i = 0; i < count; i++) s.strides[i] = dim_symbol(dims, arena_format(arena, "stride%d", i));
    return s;
}

static Access *add_access(Lowered *l, const Symbols *s, AccessKind kind, const Value *value, const Dim *row,
                          const Dim *column) {
    Access a = {.kind = kind, .value = value, .source = value, .element = dtype_size(value->dtype), .offset = s->zero};
    for (int i = 0; i < SPACE_MAX_AXES; i++) a.stride[i] = s->zero;
    a.stride[ROWS] = row;
    a.stride[COLUMNS] = column;
    VEC_PUSH(l->arena, l->accesses, a);
    return &l->accesses.items[l->accesses.count - 1];
}

static void collect(Lowered *l, const Symbols *s, const Value *begin) {
    const Graph *body = l->body;
    for (int i = 0; i < body->inputs.count; i++) {
        const Value *v = body->inputs.items[i];
        bool varies = i == 0 || !broadcast_is_row(v), wide = i == 0 || broadcast_keeps_last(v);
        Access *a =
            add_access(l, s, ACCESS_LOAD, i ? v : begin, varies ? s->strides[i] : s->zero, wide ? s->one : s->zero);
        a->source = v;
    }
    for (int i = 0; i < body->values.count; i++)
        if (body->values.items[i]->constant) add_access(l, s, ACCESS_LOAD, body->values.items[i], s->zero, s->zero);
    FOR_EACH_NODE(node, body)
    if (node->prim == PRIM_PHILOX)
        add_access(l, s, ACCESS_INDEX, node->outputs[0], s->index_step, s->one)->offset = s->index_start;
    for (int i = 0; i < body->outputs.count; i++)
        add_access(l, s, ACCESS_STORE, body->outputs.items[i], s->strides[body->inputs.count + i], s->one);
    for (int i = 0; i < l->accesses.count; i++) { /* they do not move any more */
        Access *a = &l->accesses.items[i];
        if (a->kind == ACCESS_LOAD) map_set_id(&l->loads, MAP_POINTER_KEY(a->value), a);
        if (a->kind == ACCESS_INDEX) map_set_id(&l->indices, MAP_POINTER_KEY(a->value), a);
    }
}

static void set_axes(Lowered *l, const Symbols *s) {
    Kernel *k = l->kernel;
    l->axis_count = k->axis_count = AXES;
    l->axes[ROWS] = (SpaceAxis){.size = s->rows};
    l->axes[COLUMNS] = (SpaceAxis){.size = s->columns};
    k->axes[ROWS] = (KernelAxis){.role = AXIS_TASK, .param = access_param(l, s->rows), .multiple = 1};
    k->axes[COLUMNS] = (KernelAxis){.role = AXIS_LANE, .param = access_param(l, s->columns), .multiple = 1};
    k->lane_block = KERNEL_WHOLE_ROW;
    k->tile_axis = -1;
}

/* What makes the value that is read is done already: it is left out, as if it were a part of the load. */
static void leave_out(Lowered *l, const Value *begin) {
    for (const Value *v = l->body->inputs.items[0]; v != begin; v = value_only_user(v)->outputs[0])
        map_set_id(&l->loads, MAP_POINTER_KEY(v), map_get_id(&l->loads, MAP_POINTER_KEY(begin)));
}

/* The raw result in the type that it was computed in. */
static void load_raw(Lowered *l, const Value *v, DType raw, Map *values) {
    const Access *access = map_get_id(&l->loads, MAP_POINTER_KEY(v));
    int inst = lower_load(l, access);
    l->kernel->buffers.items[l->kernel->insts.items[inst].buffer].dtype = raw;
    map_set_id(values, MAP_POINTER_KEY(v), (void *)(intptr_t)(inst + 1));
}

static int input_of(const Lowered *l, const Value *source) {
    for (int i = 0; i < l->body->inputs.count; i++)
        if (l->body->inputs.items[i] == source) return i;
    return -1;
}

static TileParam param_of(const Lowered *l, const Symbols *s, const Dim *dim) {
    int64_t number;
    if (dim_is_const(dim, &number)) return (TileParam){TILE_PARAM_NUMBER, .number = number};
    if (dim == s->rows) return (TileParam){TILE_PARAM_ROWS, 0};
    if (dim == s->columns) return (TileParam){TILE_PARAM_COLUMNS, 0};
    if (dim == s->index_step) return (TileParam){TILE_PARAM_INDEX_STEP, 0};
    if (dim == s->index_start) return (TileParam){TILE_PARAM_INDEX_START, 0};
    int buffer = 0;
    for (; buffer < l->sources.count; buffer++) {
        const Value *source = l->sources.items[buffer];
        int slot = source ? input_of(l, source) : l->body->inputs.count + l->outputs.items[buffer];
        if (s->strides[slot] == dim) break;
    }
    return (TileParam){TILE_PARAM_ROW_STRIDE, buffer};
}

static void describe(const Lowered *l, const Symbols *s, RegionKernel *out) {
    Kernel *k = l->kernel;
    int *inputs = ARENA_ARRAY(l->arena, int, k->buffers.count + 1);
    TileParam *params = ARENA_ARRAY(l->arena, TileParam, k->param_count + 1);
    for (int i = 0; i < k->buffers.count; i++) inputs[i] = l->sources.items[i] ? input_of(l, l->sources.items[i]) : -1;
    for (int i = 0; i < k->param_count; i++) params[i] = param_of(l, s, l->params.items[i]);
    *out = (RegionKernel){.kernel = k,
                          .buffer_count = k->buffers.count,
                          .buffer_input = inputs,
                          .buffer_output = l->outputs.items,
                          .tile = params};
}

Status codegen_tile(Arena *arena, const Node *anchor, const Value *begin, DType raw, const Target *target,
                    RegionKernel *out_kernel) {
    DimTable *dims = dim_table_create(arena);
    Lowered l = {.arena = arena, .dims = dims, .body = anchor->subgraphs[0], .kernel = ARENA_NEW(arena, Kernel)};
    l.for_gpu = target_is_gpu(target);
    l.loads = map_make(arena);
    l.indices = map_make(arena);
    Symbols symbols = make_symbols(arena, dims, l.body);
    Map values = map_make(arena);
    set_axes(&l, &symbols);
    emit_begin(&l.emit, arena, l.kernel);
    l.emit.for_gpu = l.for_gpu;
    if (!begin) begin = l.body->inputs.items[0];
    collect(&l, &symbols, begin);
    leave_out(&l, begin);
    load_raw(&l, begin, raw, &values);
    lower_body(&l, &values);
    if (log_verify()) TRY(status_at(kernel_verify(l.kernel), "internal error in %s", node_origin_name(anchor)));
    describe(&l, &symbols, out_kernel);
    return NULL;
}

/* Whether nothing of the buffer is read but the element at which results are then stored. */
static bool is_read_in_place(const Kernel *k, int buffer) {
    bool stored = false;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        stored |= inst->op == K_STORE;
        if (inst->op != K_LOAD || inst->buffer != buffer) continue;
        if (stored || inst->access->kind[ROWS] != STRIDE_PARAM || inst->access->kind[COLUMNS] != STRIDE_ONE)
            return false;
    }
    return true;
}

uint64_t codegen_tile_inplace(const Node *anchor, const RegionKernel *region, int output) {
    const Value *to = anchor->outputs[output];
    uint64_t inputs = 0;
    for (int b = 0; b < region->buffer_count; b++) {
        if (region->buffer_input[b] <= 0) continue; /* the raw result, or an output */
        int input = region->buffer_input[b] + 1;
        const Value *from = anchor->inputs[input];
        if (value_same_shape(from, to) && dtype_size(from->dtype) == dtype_size(to->dtype) &&
            is_read_in_place(region->kernel, b))
            inputs |= UINT64_C(1) << input;
    }
    return inputs;
}
