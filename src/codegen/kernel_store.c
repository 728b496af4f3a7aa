/* SPDX-License-Identifier: Apache-2.0 */
/* Writer and reader of kernels and of what regions hand them (store.h). */
#include "codegen/kernel_store.h"

/* --- kernels ------------------------------------------------------------------------------------------------------ */
static void store_axis(StoreWriter *w, const KernelAxis *axis) {
    store_number(w, axis->role);
    store_signed(w, axis->size);
    store_number(w, (uint64_t)(axis->param < 0 ? 0 : axis->param + 1));
    store_signed(w, axis->multiple);
}

static KernelAxis restore_axis(StoreReader *r) {
    KernelAxis axis = {.role = (AxisRole)restore_int(r, AXIS_REDUCE_LANE), .size = restore_signed(r)};
    axis.param = restore_int(r, INT32_MAX) - 1;
    axis.multiple = restore_signed(r);
    return axis;
}

static bool touches_memory(KernelOp op) { return op == K_LOAD || op == K_STORE; }

static void store_access(StoreWriter *w, const Kernel *k, const KernelAccess *access) {
    for (int i = 0; i < k->axis_count; i++) {
        store_number(w, access->kind[i]);
        store_signed(w, access->stride[i]);
    }
    store_number(w, access->offset_kind);
    store_signed(w, access->offset);
}

static KernelAccess *restore_access(StoreReader *r, const Kernel *k) {
    KernelAccess *access = ARENA_NEW(r->graph->arena, KernelAccess);
    for (int i = 0; i < k->axis_count; i++) {
        access->kind[i] = (StrideKind)restore_int(r, STRIDE_PARAM);
        access->stride[i] = restore_signed(r);
    }
    access->offset_kind = (StrideKind)restore_int(r, STRIDE_PARAM);
    access->offset = restore_signed(r);
    return access;
}

static void store_inst(StoreWriter *w, const Kernel *k, const KernelInst *inst) {
    store_number(w, inst->op);
    store_number(w, inst->dtype);
    for (int i = 0; i < kernel_op_args(inst->op); i++) store_number(w, (uint64_t)inst->args[i]);
    store_signed(w, inst->bits);
    store_number(w, (uint64_t)inst->axis);
    store_number(w, (uint64_t)inst->buffer);
    store_number(w, inst->axes);
    store_number(w, (uint64_t)inst->stage);
    store_number(w, inst->keep);
    if (touches_memory(inst->op)) store_access(w, k, inst->access);
}

static KernelInst restore_inst(StoreReader *r, const Kernel *k) {
    KernelInst inst = {.op = (KernelOp)restore_int(r, KERNEL_OP_COUNT - 1),
                       .dtype = (DType)restore_int(r, DTYPE_COUNT - 1)};
    for (int i = 0; i < kernel_op_args(inst.op); i++) inst.args[i] = restore_int(r, INT32_MAX);
    inst.bits = restore_signed(r);
    inst.axis = restore_int(r, KERNEL_MAX_AXES - 1);
    inst.buffer = restore_int(r, INT32_MAX);
    inst.axes = (uint32_t)restore_int(r, (1 << KERNEL_MAX_AXES) - 1);
    inst.stage = restore_int(r, INT32_MAX >> 1);
    inst.keep = restore_int(r, 1);
    if (touches_memory(inst.op)) inst.access = restore_access(r, k);
    return inst;
}

void store_kernel(StoreWriter *w, const Kernel *k) {
    store_number(w, (uint64_t)k->axis_count);
    for (int i = 0; i < k->axis_count; i++) store_axis(w, &k->axes[i]);
    store_number(w, (uint64_t)k->lane_block);
    store_number(w, (uint64_t)(k->tile_axis + 1));
    store_number(w, (uint64_t)k->tile_block);
    store_number(w, (uint64_t)k->band);
    store_number(w, (uint64_t)k->param_count);
    store_number(w, k->param_multiples != NULL);
    for (int i = 0; k->param_multiples && i < k->param_count; i++) store_signed(w, k->param_multiples[i]);
    store_number(w, (uint64_t)k->stage_count);
    store_number(w, (uint64_t)k->buffers.count);
    for (int i = 0; i < k->buffers.count; i++) {
        store_number(w, k->buffers.items[i].dtype);
        store_number(w, k->buffers.items[i].output);
    }
    store_number(w, (uint64_t)k->insts.count);
    for (int i = 0; i < k->insts.count; i++) store_inst(w, k, &k->insts.items[i]);
}

static const int64_t *restore_multiples(StoreReader *r, int count) {
    if (count > r->end - r->at) store_wrong(r, "it ends too early");
    if (store_failed(r)) return NULL;
    int64_t *multiples = ARENA_ARRAY(r->graph->arena, int64_t, count + 1);
    for (int i = 0; i < count && !store_failed(r); i++) {
        multiples[i] = restore_signed(r);
        if (multiples[i] < 1 || multiples[i] & (multiples[i] - 1)) store_wrong(r, "a multiple is no power of two");
    }
    return multiples;
}

const Kernel *restore_kernel(StoreReader *r) {
    Arena *arena = r->graph->arena;
    Kernel *k = ARENA_NEW(arena, Kernel);
    k->axis_count = restore_int(r, KERNEL_MAX_AXES);
    for (int i = 0; i < k->axis_count; i++) k->axes[i] = restore_axis(r);
    k->lane_block = restore_int(r, 1 << 20);
    k->tile_axis = restore_int(r, KERNEL_MAX_AXES) - 1;
    k->tile_block = restore_int(r, 1 << 20);
    k->band = restore_int(r, 1 << 20);
    k->param_count = restore_int(r, 1 << 20);
    if (restore_int(r, 1)) k->param_multiples = restore_multiples(r, k->param_count);
    k->stage_count = restore_int(r, INT32_MAX);
    int buffers = restore_count(r, 2);
    for (int i = 0; i < buffers; i++) {
        KernelBuffer buffer = {.dtype = (DType)restore_int(r, DTYPE_COUNT - 1)};
        buffer.output = restore_int(r, 1);
        VEC_PUSH(arena, k->buffers, buffer);
    }
    int insts = restore_count(r, 8);
    for (int i = 0; i < insts && !store_failed(r); i++) VEC_PUSH(arena, k->insts, restore_inst(r, k));
    if (store_failed(r)) return NULL;
    Status status = kernel_verify(k);
    if (status) store_wrong(r, "%s", status_message(status));
    status_free(status);
    return store_failed(r) ? NULL : k;
}

/* --- calls of kernels --- */
void store_region(StoreWriter *w, const Node *node, const RegionKernel *region) {
    store_number(w, (uint64_t)region->buffer_count);
    for (int i = 0; i < region->buffer_count; i++) {
        store_number(w, (uint64_t)(region->buffer_input[i] + 1));
        store_number(w, (uint64_t)(region->buffer_output[i] + 1));
    }
    for (int i = 0; region->tile && i < region->kernel->param_count; i++) {
        store_number(w, (uint64_t)region->tile[i].kind);
        store_number(w, (uint64_t)region->tile[i].buffer);
        store_signed(w, region->tile[i].number);
    }
    if (region->tile) return;
    store_dims(w, region->params, region->kernel->param_count);
    store_dim(w, region->work);
    for (int i = 0; i < node->output_count; i++) store_number(w, region->inplace[i]);
}

/* A buffer is an input of the body that is there, or an output; an anchor's raw result may be wider there than in the
 * body. */
static void check_buffer(StoreReader *r, const Node *node, const RegionKernel *region, int buffer) {
    const Graph *body = node->subgraphs[0];
    int in = region->buffer_input[buffer], out = region->buffer_output[buffer];
    const KernelBuffer *b = &region->kernel->buffers.items[buffer];
    const Value *value = b->output ? (out >= 0 && out < body->outputs.count ? body->outputs.items[out] : NULL)
                                   : (in >= 0 && in < body->inputs.count ? body->inputs.items[in] : NULL);
    bool raw = node->kind == NODE_ANCHOR && in == 0 && b->dtype == DT_F32;
    if (!value || (in >= 0) == (out >= 0) || (dtype_of_code(value->dtype) != b->dtype && !raw))
        store_wrong(r, "a buffer of a kernel is none of its region's values");
}

static bool is_set_to(const RegionKernel *region, int64_t param, TileParamKind kind, int buffer) {
    if (param < 0 || param >= region->kernel->param_count) return false;
    const TileParam *to = &region->tile[param];
    return to->kind == kind && (kind != TILE_PARAM_ROW_STRIDE || to->buffer == buffer);
}

/* In tile form (codegen_tile), the kernel takes each parameter for what its caller sets it to: else it would reach beyond the
 * block. */
static bool fits_tile(const RegionKernel *region) {
    const Kernel *k = region->kernel;
    if (k->axis_count != 2 || k->axes[0].role != AXIS_TASK || k->axes[1].role != AXIS_LANE || k->tile_axis >= 0 ||
        k->param_count >= region->buffer_count + TILE_PARAM_KINDS + KERNEL_NUMBERS ||
        !is_set_to(region, k->axes[0].param, TILE_PARAM_ROWS, 0) ||
        !is_set_to(region, k->axes[1].param, TILE_PARAM_COLUMNS, 0))
        return false;
    for (int i = 0; i < k->insts.count; i++) {
        const KernelInst *inst = &k->insts.items[i];
        const KernelAccess *a = inst->access;
        bool number = inst->dtype != DT_I64;
        if (inst->op == K_PARAM && !(number && is_set_to(region, inst->bits, TILE_PARAM_NUMBER, 0)) &&
            !(!number && is_set_to(region, inst->bits, TILE_PARAM_INDEX_STEP, 0)) &&
            !(!number && is_set_to(region, inst->bits, TILE_PARAM_INDEX_START, 0)))
            return false;
        if (!touches_memory(inst->op)) continue;
        bool row = a->kind[0] == STRIDE_ZERO ||
                   (a->kind[0] == STRIDE_PARAM && is_set_to(region, a->stride[0], TILE_PARAM_ROW_STRIDE, inst->buffer));
        if (!row || a->offset_kind != STRIDE_ZERO || (a->kind[1] != STRIDE_ZERO && a->kind[1] != STRIDE_ONE))
            return false;
    }
    return true;
}

static const TileParam *restore_tile(StoreReader *r, const RegionKernel *region) {
    TileParam *params = ARENA_ARRAY(r->graph->arena, TileParam, region->kernel->param_count + 1);
    for (int i = 0; i < region->kernel->param_count && !store_failed(r); i++) {
        params[i].kind = (TileParamKind)restore_int(r, TILE_PARAM_KINDS - 1);
        params[i].buffer = restore_int(r, region->buffer_count);
        params[i].number = restore_signed(r);
        if (params[i].buffer >= region->buffer_count) store_wrong(r, "a stride of no buffer");
    }
    return params;
}

static void check_inplace(StoreReader *r, const Node *node, const RegionKernel *region, int output) {
    for (int input = 0; input < 64; input++) {
        if (!(region->inplace[output] >> input & 1)) continue;
        if (input >= node->input_count || !node->inputs[input] ||
            dtype_size(node->inputs[input]->dtype) != dtype_size(node->outputs[output]->dtype))
            store_wrong(r, "a result takes the place of an input of another type");
    }
}

void restore_region(StoreReader *r, const Node *node, RegionKernel *region) {
    Arena *arena = r->graph->arena;
    int count = restore_int(r, region->kernel->buffers.count);
    if (count != region->kernel->buffers.count) store_wrong(r, "a kernel has not as many buffers as its region");
    int *inputs = ARENA_ARRAY(arena, int, count + 1), *outputs = ARENA_ARRAY(arena, int, count + 1);
    uint64_t *inplace = ARENA_ARRAY(arena, uint64_t, node->output_count + 1);
    *region = (RegionKernel){.kernel = region->kernel,
                             .code = region->code,
                             .buffer_count = count,
                             .buffer_input = inputs,
                             .buffer_output = outputs,
                             .inplace = inplace};
    for (int i = 0; i < count; i++) {
        inputs[i] = restore_int(r, node->subgraphs[0]->inputs.count) - 1;
        outputs[i] = restore_int(r, node->output_count) - 1;
        if (!store_failed(r)) check_buffer(r, node, region, i);
    }
    if (region->kernel->param_count > r->end - r->at) store_wrong(r, "it ends too early");
    if (store_failed(r)) return;
    if (node->kind == NODE_ANCHOR) {
        region->inplace = NULL;
        region->tile = restore_tile(r, region);
        if (!store_failed(r) && !fits_tile(region))
            store_wrong(r, "an epilogue's kernel is called in another way than it works");
        return;
    }
    region->params = restore_dims(r, region->kernel->param_count);
    region->work = restore_dim(r);
    if (!region->work) store_wrong(r, "a size is missing");
    for (int i = 0; i < node->output_count && !store_failed(r); i++) {
        inplace[i] = restore_number(r);
        if (!store_failed(r)) check_inplace(r, node, region, i);
    }
}
