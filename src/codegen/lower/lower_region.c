/* SPDX-License-Identifier: Apache-2.0 */
/* A region becomes a kernel: its space scheduled, its primitives as instructions, its inputs and outputs as buffers,
 * its sizes as parameters. */
#include "codegen/lower/lower_region.h"

#include "base/log.h"

/* ---- operands ---- */

int lower_load(Lowered *l, const Access *access) {
    const Value *source = access->source;
    int buffer = 0;
    while (buffer < l->sources.count && l->sources.items[buffer] != source) buffer++;
    if (buffer == l->sources.count) {
        VEC_PUSH(l->arena, l->kernel->buffers, (KernelBuffer){.dtype = dtype_of_code(source->dtype)});
        VEC_PUSH(l->arena, l->sources, source);
        VEC_PUSH(l->arena, l->outputs, -1);
    }
    return emit_inst(&l->emit, (KernelInst){.op = K_LOAD,
                                            .dtype = compute_dtype(source->dtype),
                                            .buffer = buffer,
                                            .access = access_resolve(l, access)});
}

static int constant_value(Lowered *l, const Value *value) {
    const Tensor *t = value->constant;
    DType dtype = compute_dtype(value->dtype);
    if (dtype_is_float(dtype)) return emit_float(&l->emit, dtype, dtype_load_double(t->dtype, t->data, 0));
    return emit_int(&l->emit, dtype, dtype_load_int(dtype_of_code(t->dtype), t->data, 0));
}

/* values: Value -> instruction + 1. */
static int operand(Lowered *l, Map *values, const Value *value) {
    intptr_t known = (intptr_t)map_get_id(values, MAP_POINTER_KEY(value));
    if (known) return (int)known - 1;
    const Access *access = map_get_id(&l->loads, MAP_POINTER_KEY(value));
    const Value *source = access->source;
    bool constant = source->constant && tensor_count(source->constant) == 1;
    int inst = constant ? constant_value(l, source) : lower_load(l, access);
    map_set_id(values, MAP_POINTER_KEY(value), (void *)(intptr_t)(inst + 1));
    return inst;
}

/* ---- primitives that are not elementwise ---- */

static bool reduces_something(const Lowered *l, const Node *node) {
    const SpaceValue *in = space_value(l->space, node->inputs[0]);
    int count;
    const int64_t *axes = attr_ints(node, "axes", &count);
    for (int i = 0; i < count; i++)
        if (in->axis_count[axes[i]]) return true;
    return false;
}

static KernelOp reduction_of(Prim prim) {
    switch (prim) {
    case PRIM_REDUCE_SUM: return K_REDUCE_SUM;
    case PRIM_REDUCE_PROD: return K_REDUCE_PROD;
    case PRIM_REDUCE_MAX: return K_REDUCE_MAX;
    case PRIM_REDUCE_MIN: return K_REDUCE_MIN;
    case PRIM_ARGMAX: return K_REDUCE_ARGMAX;
    default: return K_REDUCE_ARGMIN;
    }
}

static bool is_column_sum(const Lowered *l, const Value *value) {
    return l->space && space_value(l->space, value)->column;
}

/* Over constant sizes 1 there is nothing to do; bool is reduced as u8; the store sums columns. */
static int lower_reduce(Lowered *l, const Node *node, int arg) {
    Emit *e = &l->emit;
    if (is_column_sum(l, node->outputs[0])) return arg;
    bool position = node->prim == PRIM_ARGMAX || node->prim == PRIM_ARGMIN;
    if (!reduces_something(l, node)) return position ? emit_int(e, DT_I64, 0) : arg;
    DType dtype = emit_dtype(e, arg), wide = dtype == DT_BOOL ? DT_U8 : dtype;
    KernelInst inst = {.op = reduction_of(node->prim), .dtype = position ? DT_I64 : wide};
    inst.args[0] = emit_cast(e, wide, arg);
    inst.bits = position && attr_int(node, "last", 0) != 0;
    int result = emit_inst(e, inst);
    return position ? result : emit_cast(e, dtype, result);
}

static int lower_iota(Lowered *l, const Node *node) {
    Emit *e = &l->emit;
    DType dtype = node->outputs[0]->dtype;
    int index = access_emit_index(l, map_get_id(&l->indices, MAP_POINTER_KEY(node->outputs[0])));
    int result = emit_cast(e, compute_dtype(dtype), index);
    if (dtype == DT_F16) return emit1(e, K_ROUND_F16, DT_F32, result);
    return dtype == DT_BF16 ? emit1(e, K_ROUND_BF16, DT_F32, result) : result;
}

static int lower_philox(Lowered *l, const Node *node, int seed) {
    Emit *e = &l->emit;
    const Access *access = map_get_id(&l->indices, MAP_POINTER_KEY(node->outputs[0]));
    RandomBits bits = attr_int(node, "halves", 0) ? RANDOM_HALVES : 0;
    bool consecutive = false;
    for (int i = 0; i < l->axis_count; i++) {
        AxisRole role = l->kernel->axes[i].role;
        if (role == AXIS_LANE || role == AXIS_REDUCE_LANE) consecutive = dim_equals(access->stride[i], 1);
    }
    if (consecutive) bits |= RANDOM_CONSECUTIVE;
    int index = emit_cast(e, DT_U64, access_emit_index(l, access));
    return emit_inst(e, (KernelInst){.op = K_RANDOM, .dtype = DT_U32, .args = {seed, index}, .bits = bits});
}

/* ---- the body ---- */

static void lower_node(Lowered *l, Map *values, const Node *node) {
    const Value *out = node->outputs[0];
    if (map_get_id(&l->loads, MAP_POINTER_KEY(out)) || (l->space && !space_value(l->space, out)))
        return; /* part of a load */
    int args[3], result;
    for (int i = 0; i < node->input_count; i++) args[i] = operand(l, values, node->inputs[i]);
    switch (prim_info(node->prim)->klass) {
    case PRIM_CLASS_MOVE: result = args[0]; break;
    case PRIM_CLASS_REDUCE: result = lower_reduce(l, node, args[0]); break;
    case PRIM_CLASS_GENERATE:
        result = node->prim == PRIM_IOTA ? lower_iota(l, node) : lower_philox(l, node, args[0]);
        break;
    default: result = lower_elementwise(&l->emit, node, args); break;
    }
    map_set_id(values, MAP_POINTER_KEY(out), (void *)(intptr_t)(result + 1));
}

static void store_output(Lowered *l, Map *values, int index) {
    const Value *out = l->body->outputs.items[index];
    int value = operand(l, values, out);
    const Access *access = &l->accesses.items[l->accesses.count - l->body->outputs.count + index];
    const KernelInst *inst = &l->kernel->insts.items[value];
    KernelOp rounds = out->dtype == DT_F16 ? K_ROUND_F16 : K_ROUND_BF16;
    if (inst->op == rounds && dtype_size(out->dtype) == 2) value = inst->args[0]; /* the store rounds */
    VEC_PUSH(l->arena, l->kernel->buffers, (KernelBuffer){.dtype = dtype_of_code(out->dtype), .output = true});
    VEC_PUSH(l->arena, l->sources, NULL);
    VEC_PUSH(l->arena, l->outputs, index);
    emit_inst(&l->emit, (KernelInst){.op = K_STORE,
                                     .dtype = compute_dtype(out->dtype),
                                     .args = {value},
                                     .bits = is_column_sum(l, out),
                                     .buffer = l->kernel->buffers.count - 1,
                                     .access = access_resolve(l, access)});
}

/* ---- canonical numbers ---- */

typedef struct Renumber {
    int *to; /* old -> new, or -1 */
    int count;
} Renumber;

static Renumber renumber_begin(Arena *arena, int count) {
    Renumber r = {.to = ARENA_ARRAY(arena, int, count + 1)};
    for (int i = 0; i < count; i++) r.to[i] = -1;
    return r;
}

static int renumber(Renumber *r, int old) {
    if (r->to[old] < 0) r->to[old] = r->count++;
    return r->to[old];
}

static void renumber_access(Renumber *params, KernelAccess *a, int axes) {
    for (int i = 0; i < axes; i++)
        if (a->kind[i] == STRIDE_PARAM) a->stride[i] = renumber(params, (int)a->stride[i]);
    if (a->offset_kind == STRIDE_PARAM) a->offset = renumber(params, (int)a->offset);
}

/* Parameters and buffers by first appearance in the kernel, so that regions that differ in the order of their inputs
 * alone are the same kernel. What does not appear goes. */
static void renumber_all(Lowered *l) {
    Kernel *k = l->kernel;
    Renumber params = renumber_begin(l->arena, l->params.count), buffers = renumber_begin(l->arena, k->buffers.count);
    for (int i = 0; i < k->axis_count; i++)
        if (k->axes[i].param >= 0) k->axes[i].param = renumber(&params, k->axes[i].param);
    for (int i = 0; i < k->insts.count; i++) {
        KernelInst *inst = &k->insts.items[i];
        if (inst->op == K_PARAM) inst->bits = renumber(&params, (int)inst->bits);
        if (inst->op != K_LOAD && inst->op != K_STORE) continue;
        inst->buffer = renumber(&buffers, inst->buffer);
        renumber_access(&params, inst->access, k->axis_count);
    }
    const Dim **dims = ARENA_ARRAY(l->arena, const Dim *, params.count + 1);
    for (int i = 0; i < l->params.count; i++)
        if (params.to[i] >= 0) dims[params.to[i]] = l->params.items[i];
    l->params.items = dims;
    l->params.count = k->param_count = params.count;
    Lowered old = *l;
    Kernel old_kernel = *k;
    k->buffers.items = ARENA_ARRAY(l->arena, KernelBuffer, buffers.count + 1);
    l->sources.items = ARENA_ARRAY(l->arena, const Value *, buffers.count + 1);
    l->outputs.items = ARENA_ARRAY(l->arena, int, buffers.count + 1);
    for (int i = 0; i < old_kernel.buffers.count; i++) {
        int to = buffers.to[i];
        if (to < 0) continue;
        k->buffers.items[to] = old_kernel.buffers.items[i];
        l->sources.items[to] = old.sources.items[i];
        l->outputs.items[to] = old.outputs.items[i];
    }
    k->buffers.count = l->sources.count = l->outputs.count = buffers.count;
}

/* ---- what the runtime wants to know ---- */

static int input_index(const Lowered *l, const Value *source) {
    for (int i = 0; i < l->body->inputs.count; i++)
        if (l->body->inputs.items[i] == source) return i;
    return -1;
}

static const Dim *all_elements(Lowered *l, uint32_t axes) {
    const Dim *product = dim_const(l->dims, 1);
    for (int i = 0; i < l->axis_count; i++)
        if (axes >> i & 1) product = dim_mul(l->dims, product, l->axes[i].size);
    return product;
}

static uint32_t access_axes(const Kernel *k, const KernelAccess *access) {
    uint32_t axes = 0;
    for (int i = 0; i < k->axis_count; i++)
        if (access->kind[i] != STRIDE_ZERO) axes |= 1u << i;
    return axes;
}

static void set_work(Lowered *l, RegionKernel *out) {
    const Kernel *k = l->kernel;
    int64_t steps = 0, stages = k->stage_count;
    for (int i = 0; i < k->insts.count; i++) steps += instruction_cost(&k->insts.items[i]);
    /* each stage walks the reduced axes; on average it needs a part of the instructions, one at least */
    out->work = dim_mul(l->dims, all_elements(l, (1u << k->axis_count) - 1), dim_const(l->dims, steps + stages - 1));
}

/* The last stage in which each instruction is computed: where it feeds something of that stage. */
static int *last_stages(const Lowered *l) {
    const Kernel *k = l->kernel;
    int *last = ARENA_ARRAY(l->arena, int, k->insts.count + 1);
    for (int i = 0; i < k->insts.count; i++) last[i] = k->insts.items[i].stage;
    for (int i = k->insts.count - 1; i >= 0; i--) { /* users come after what they use */
        const KernelInst *user = &k->insts.items[i];
        bool fixed = user->op == K_STORE || kernel_op_is_reduce(user->op) || user->keep;
        int until = fixed ? user->stage : last[i];
        for (int n = 0; n < kernel_op_args(user->op); n++)
            if (until > last[user->args[n]]) last[user->args[n]] = until;
    }
    return last;
}

/* Whether the store may overwrite the buffer: its elements are read nowhere but at the same index, by the same task,
 * and not after. */
static bool may_overwrite(const Lowered *l, const KernelInst *store, int buffer, const int *last) {
    const Kernel *k = l->kernel;
    uint32_t kept = 0;
    for (int i = 0; i < k->axis_count; i++)
        if (!(l->emit.reduced >> i & 1)) kept |= 1u << i;
    uint32_t axes = access_axes(k, store->access);
    bool unit = k->axis_count == 1 && k->axes[0].param < 0 && k->axes[0].size == 1;
    if (k->buffers.items[buffer].output || (axes & kept) != (unit ? 0 : kept) ||
        dtype_size(k->buffers.items[buffer].dtype) != dtype_size(k->buffers.items[store->buffer].dtype))
        return false;
    /* A GPU's threads and blocks share a row: one of them stores the row's results when others may still read. */
    if (l->for_gpu && l->emit.reduced && !(axes & l->emit.reduced)) return false;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *load = &k->insts.items[i];
        if (load->op != K_LOAD || load->buffer != buffer) continue;
        if (!kernel_same_access(k, load->access, store->access) || last[i] > store->stage) return false;
    }
    return true;
}

enum { MOST_INPLACE = 64 };

static void set_inplace(Lowered *l, RegionKernel *out) {
    const Kernel *k = l->kernel;
    uint64_t *inplace = ARENA_ARRAY(l->arena, uint64_t, l->body->outputs.count + 1);
    const int *last = last_stages(l);
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *store = &k->insts.items[i];
        if (store->op != K_STORE) continue;
        int output = l->outputs.items[store->buffer];
        for (int b = 0; b < k->buffers.count; b++) {
            const Value *source = l->sources.items[b], *to = l->body->outputs.items[output];
            int input = source ? input_index(l, source) : MOST_INPLACE;
            if (input >= 0 && input < MOST_INPLACE && may_overwrite(l, store, b, last) &&
                dim_product(l->dims, source->dims, source->rank) == dim_product(l->dims, to->dims, to->rank))
                inplace[output] |= UINT64_C(1) << input;
        }
    }
    out->inplace = inplace;
}

static Status describe(Lowered *l, RegionKernel *out) {
    Kernel *k = l->kernel;
    int *inputs = ARENA_ARRAY(l->arena, int, k->buffers.count + 1);
    for (int i = 0; i < k->buffers.count; i++) {
        const Value *source = l->sources.items[i];
        inputs[i] = source ? input_index(l, source) : -1;
        if (source && inputs[i] < 0)
            return status_error(STATUS_FAULT, "a region reads '%s', which is none of its inputs", source->name);
    }
    *out = (RegionKernel){.kernel = k,
                          .buffer_count = k->buffers.count,
                          .buffer_input = inputs,
                          .buffer_output = l->outputs.items,
                          .params = l->params.items};
    set_work(l, out);
    set_inplace(l, out);
    return NULL;
}

/* ---- face ---- */

static Status find_space(Lowered *l) {
    const char *why;
    Node **nodes = ARENA_ARRAY(l->arena, Node *, l->body->node_count + 1);
    int count = 0;
    FOR_EACH_NODE(node, l->body) nodes[count++] = node;
    l->space = space_analyse(l->arena, l->dims, nodes, count, !l->for_gpu, &why);
    if (!l->space) return status_error(STATUS_FAULT, "the region fits no iteration space: %s", why);
    for (int i = 0; i < l->body->outputs.count; i++)
        if (!space_value(l->space, l->body->outputs.items[i]))
            return status_error(STATUS_FAULT, "a region hands on its input '%s'", l->body->outputs.items[i]->name);
    l->axis_count = l->space->axis_count;
    memcpy(l->axes, l->space->axes, sizeof l->axes);
    return NULL;
}

void lower_body(Lowered *l, Map *values) {
    FOR_EACH_NODE(node, l->body) lower_node(l, values, node);
    for (int i = 0; i < l->body->outputs.count; i++) store_output(l, values, i);
    if (!l->for_gpu) numbers_as_params(l);
    emit_sweep(&l->emit);
    renumber_all(l);
    l->kernel->stage_count = 1;
    for (int i = 0; i < l->kernel->insts.count; i++) {
        const KernelInst *inst = &l->kernel->insts.items[i];
        if (inst->stage >= l->kernel->stage_count) l->kernel->stage_count = inst->stage + 1;
    }
}

static Status lower_region(Lowered *l, RegionKernel *out) {
    TRY(find_space(l));
    access_collect(l);
    TRY(schedule_axes(l));
    Map values = map_make(l->arena);
    emit_begin(&l->emit, l->arena, l->kernel);
    l->emit.for_gpu = l->for_gpu;
    lower_body(l, &values);
    schedule_blocks(l);
    if (l->for_gpu) /* GPUs keep values in registers or compute them again; their accesses are vectors where sizes
                       divide */
        l->kernel->param_multiples = access_param_multiples(l);
    else
        choose_kept(l);
    if (log_verify()) TRY(status_at(kernel_verify(l->kernel), "internal error"));
    return describe(l, out);
}

/* On CPUs schedules suit all vector widths; the renderer picks lanes and unrolling. */
Status codegen_region(Arena *arena, DimTable *dims, const Node *region, const Target *target,
                      RegionKernel *out_kernel) {
    Lowered l = {.arena = arena, .dims = dims, .body = region->subgraphs[0], .kernel = ARENA_NEW(arena, Kernel)};
    l.for_gpu = target_is_gpu(target);
    l.loads = map_make(arena);
    l.indices = map_make(arena);
    return status_at(lower_region(&l, out_kernel), "%s", node_origin_name(region));
}

/* ---- kernels that regions share ---- */

typedef struct PooledKernel {
    const Kernel *kernel;
    struct PooledKernel *next; /* of the same hash */
} PooledKernel;

KernelPool kernel_pool(Arena *arena) { return (KernelPool){arena, map_make(arena), graph_key_table(arena)}; }

static const Kernel *pooled(KernelPool *pool, const Kernel *kernel) {
    uint64_t hash = kernel_hash(kernel);
    PooledKernel *first = map_get_id(&pool->kernels, hash);
    for (PooledKernel *p = first; p; p = p->next)
        if (kernel_same(p->kernel, kernel)) return p->kernel;
    PooledKernel *made = ARENA_NEW(pool->arena, PooledKernel);
    *made = (PooledKernel){kernel_copy(pool->arena, kernel), first};
    map_set_id(&pool->kernels, hash, made);
    return made->kernel;
}

/* From scratch memory to the pool's. */
static void keep_kernel(KernelPool *pool, int outputs, RegionKernel *k) {
    Arena *arena = pool->arena;
    size_t buffers = (size_t)k->buffer_count * sizeof(int), params = (size_t)k->kernel->param_count;
    k->kernel = pooled(pool, k->kernel);
    k->buffer_input = arena_copy(arena, k->buffer_input, buffers);
    k->buffer_output = arena_copy(arena, k->buffer_output, buffers);
    if (k->params) k->params = arena_copy(arena, k->params, params * sizeof *k->params);
    if (k->tile) k->tile = arena_copy(arena, k->tile, params * sizeof *k->tile);
    if (k->inplace) k->inplace = arena_copy(arena, k->inplace, (size_t)outputs * sizeof *k->inplace);
}

/* All that a region's kernel depends on, and the target's device; a body's values are numbered on the way. */
static void make_key(GraphKey *key, const Graph *body, const Target *target) {
    uint64_t number = 0;
    graph_key_add(key, (int64_t)target->device);
    for (int i = 0; i < body->inputs.count; i++) {
        body->inputs.items[i]->tag = number++;
        graph_key_type(key, body->inputs.items[i]);
    }
    for (int i = 0; i < body->values.count; i++) {
        Value *v = body->values.items[i];
        if (!v->constant) continue;
        v->tag = number++;
        graph_key_type(key, v);
        graph_key_bytes(key, v->constant->data, tensor_bytes(v->constant));
    }
    FOR_EACH_NODE(node, body) {
        graph_key_add(key, node->prim | (int64_t)node->input_count << 16 | (int64_t)node->attrs.count << 32);
        for (int i = 0; i < node->input_count; i++) graph_key_add(key, (int64_t)node->inputs[i]->tag);
        for (int a = 0; a < node->attrs.count; a++) graph_key_attr(key, &node->attrs.items[a]);
        node->outputs[0]->tag = number++;
        graph_key_type(key, node->outputs[0]);
    }
    for (int i = 0; i < body->outputs.count; i++) graph_key_add(key, (int64_t)body->outputs.items[i]->tag);
}

Status codegen_region_pooled(KernelPool *pool, DimTable *dims, const Node *region, const Target *target,
                             RegionKernel *out_kernel) {
    Arena *scratch = arena_create_inside(pool->arena);
    GraphKey key = {.arena = scratch};
    const void *known;
    make_key(&key, region->subgraphs[0], target);
    Status status = NULL;
    if (graph_key_find(&pool->regions, &key, &known)) {
        *out_kernel = *(const RegionKernel *)known;
    } else {
        status = codegen_region(scratch, dims, region, target, out_kernel);
        if (!status) keep_kernel(pool, region->output_count, out_kernel);
        if (!status) graph_key_keep(&pool->regions, &key, arena_copy(pool->arena, out_kernel, sizeof *out_kernel));
    }
    arena_destroy(scratch);
    return status;
}

Status codegen_tile_pooled(KernelPool *pool, const Node *anchor, const Value *begin, DType raw, const Target *target,
                           RegionKernel *out_kernel) {
    Arena *scratch = arena_create_inside(pool->arena);
    Status status = codegen_tile(scratch, anchor, begin, raw, target, out_kernel);
    if (!status) keep_kernel(pool, anchor->output_count, out_kernel);
    arena_destroy(scratch);
    return status;
}
