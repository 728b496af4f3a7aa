/* SPDX-License-Identifier: Apache-2.0 */
/* Loads, stores and kept values, in the present form: scalars, vectors, masked vectors. No buffer is aligned beyond its
 * elements. */
#include "codegen/llvm/render.h"

LLVMTypeRef type_memory(Render *r, DType dtype, int lanes) {
    if (dtype == DT_BOOL) return type_lanes(r->i8, lanes);
    if (dtype == DT_F16 && r->isa.half) return type_lanes(LLVMHalfTypeInContext(r->context), lanes);
    if (dtype == DT_F16 || dtype == DT_BF16) return type_lanes(LLVMInt16TypeInContext(r->context), lanes);
    return type_compute(r, dtype, lanes);
}

int64_t access_bytes(const Render *r, const KernelInst *inst) {
    return (int64_t)dtype_size(r->kernel->buffers.items[inst->buffer].dtype);
}

LLVMValueRef access_stride(Render *r, const KernelInst *inst, int axis) {
    int64_t bytes = access_bytes(r, inst), value = inst->access->stride[axis];
    switch (inst->access->kind[axis]) {
    case STRIDE_ZERO: return constant_i64(r, 0);
    case STRIDE_ONE: return constant_i64(r, bytes);
    case STRIDE_CONST: return constant_i64(r, (int64_t)((uint64_t)value * (uint64_t)bytes));
    case STRIDE_PARAM: return LLVMBuildMul(r->builder, r->params[value], constant_i64(r, bytes), "");
    }
    return NULL;
}

LLVMValueRef lane_mask(Render *r, LLVMValueRef live, int lanes) {
    LLVMTypeRef element = lanes > 16 ? r->i8 : r->i32;
    LLVMValueRef count = splat(r, LLVMBuildTrunc(r->builder, live, element, ""), lanes);
    return LLVMBuildICmp(r->builder, LLVMIntULT, iota(r, element, lanes), count, "");
}

static LLVMValueRef offset_pointer(Render *r, LLVMValueRef pointer, LLVMValueRef bytes) {
    return LLVMBuildGEP2(r->builder, r->i8, pointer, &bytes, 1, "");
}

static LLVMValueRef plain_load(Render *r, LLVMTypeRef type, LLVMValueRef pointer, int64_t align) {
    LLVMValueRef load = LLVMBuildLoad2(r->builder, type, pointer, "");
    LLVMSetAlignment(load, (unsigned)align);
    return load;
}

static void plain_store(Render *r, LLVMValueRef value, LLVMValueRef pointer, int64_t align) {
    LLVMSetAlignment(LLVMBuildStore(r->builder, value, pointer), (unsigned)align);
}

/* --- contiguous --- */

LLVMValueRef load_line(Render *r, LLVMTypeRef type, LLVMValueRef pointer, int64_t align) {
    if (!r->mask || type_lane_count(type) == 1) return plain_load(r, type, pointer, align);
    LLVMTypeRef overload[] = {type, r->pointer};
    LLVMValueRef args[] = {pointer, LLVMConstInt(r->i32, (unsigned long long)align, 0), r->mask, LLVMConstNull(type)};
    return intrinsic(r, "llvm.masked.load", overload, 2, args, 4);
}

void store_line(Render *r, LLVMValueRef value, LLVMValueRef pointer, int64_t align) {
    LLVMTypeRef type = LLVMTypeOf(value);
    if (!r->mask || type_lane_count(type) == 1) {
        plain_store(r, value, pointer, align);
        return;
    }
    LLVMTypeRef overload[] = {type, r->pointer};
    LLVMValueRef args[] = {value, pointer, LLVMConstInt(r->i32, (unsigned long long)align, 0), r->mask};
    intrinsic(r, "llvm.masked.store", overload, 2, args, 4);
}

static void store_past_caches(Render *r, LLVMValueRef value, LLVMValueRef pointer, int64_t align) {
    LLVMValueRef store = LLVMBuildStore(r->builder, value, pointer);
    LLVMMetadataRef one = LLVMValueAsMetadata(LLVMConstInt(r->i32, 1, 0));
    LLVMMetadataRef node = LLVMMDNodeInContext2(r->context, &one, 1);
    LLVMSetAlignment(store, (unsigned)align);
    LLVMSetMetadata(store, LLVMGetMDKindIDInContext(r->context, "nontemporal", 11),
                    LLVMMetadataAsValue(r->context, node));
}

/* --- strided --- */

static LLVMValueRef lane_pointers(Render *r, LLVMValueRef pointer, LLVMValueRef stride, int lanes) {
    LLVMValueRef offsets = LLVMBuildMul(r->builder, iota(r, r->i64, lanes), splat(r, stride, lanes), "");
    return LLVMBuildGEP2(r->builder, r->i8, pointer, &offsets, 1, "");
}

static LLVMValueRef full_mask(Render *r, int lanes) {
    return r->mask ? r->mask : LLVMConstAllOnes(type_lanes(r->i1, lanes));
}

/* Element by element; lanes beyond the live ones read the last live element. */
static LLVMValueRef load_elements(Render *r, LLVMTypeRef type, LLVMValueRef pointer, LLVMValueRef stride,
                                  int64_t align) {
    LLVMValueRef vector = LLVMGetPoison(type);
    LLVMValueRef last = r->live ? LLVMBuildSub(r->builder, r->live, constant_i64(r, 1), "") : NULL;
    for (int lane = 0; lane < type_lane_count(type); lane++) {
        LLVMValueRef n = constant_i64(r, lane);
        if (last) n = LLVMBuildSelect(r->builder, LLVMBuildICmp(r->builder, LLVMIntSLT, n, last, ""), n, last, "");
        LLVMValueRef at = offset_pointer(r, pointer, LLVMBuildMul(r->builder, n, stride, ""));
        LLVMValueRef element = plain_load(r, type_element(type), at, align);
        vector = LLVMBuildInsertElement(r->builder, vector, element, constant_i64(r, lane), "");
    }
    return vector;
}

static LLVMValueRef load_strided(Render *r, LLVMTypeRef type, LLVMValueRef pointer, LLVMValueRef stride,
                                 int64_t align) {
    int lanes = type_lane_count(type);
    if (!r->isa.avx512 || align < 4) return load_elements(r, type, pointer, stride, align);
    LLVMValueRef pointers = lane_pointers(r, pointer, stride, lanes);
    LLVMTypeRef overload[] = {type, LLVMTypeOf(pointers)};
    LLVMValueRef args[] = {pointers, LLVMConstInt(r->i32, (unsigned long long)align, 0), full_mask(r, lanes),
                           LLVMConstNull(type)};
    return intrinsic(r, "llvm.masked.gather", overload, 2, args, 4);
}

static void store_strided(Render *r, LLVMValueRef value, LLVMValueRef pointer, LLVMValueRef stride, int64_t align) {
    LLVMTypeRef type = LLVMTypeOf(value);
    int lanes = type_lane_count(type);
    if (r->isa.avx512 && align >= 4) {
        LLVMValueRef pointers = lane_pointers(r, pointer, stride, lanes);
        LLVMTypeRef overload[] = {type, LLVMTypeOf(pointers)};
        LLVMValueRef args[] = {value, pointers, LLVMConstInt(r->i32, (unsigned long long)align, 0),
                               full_mask(r, lanes)};
        intrinsic(r, "llvm.masked.scatter", overload, 2, args, 4);
        return;
    }
    for (int lane = 0; lane < lanes; lane++) {
        LLVMValueRef n = constant_i64(r, lane),
                     at = offset_pointer(r, pointer, LLVMBuildMul(r->builder, n, stride, ""));
        plain_store(r, LLVMBuildExtractElement(r->builder, value, n, ""), at, align);
    }
}

/* --- instructions --- */

static LLVMValueRef copy_pointer(Render *r, Slot *s, int copy) {
    LLVMValueRef pointer = s->pointer[s->level];
    if (copy == 0) return pointer;
    LLVMValueRef stride = access_stride(r, s->inst, r->vector_axis);
    return offset_pointer(r, pointer, LLVMBuildMul(r->builder, stride, constant_i64(r, (int64_t)copy * r->lanes), ""));
}

void prefetch(Render *r, LLVMValueRef address, LLVMValueRef bytes) {
    LLVMValueRef args[] = {offset_pointer(r, address, bytes), LLVMConstInt(r->i32, 0, 0), LLVMConstInt(r->i32, 3, 0),
                           LLVMConstInt(r->i32, 1, 0)};
    intrinsic(r, "llvm.prefetch", &r->pointer, 1, args, 4);
}

void render_load(Render *r, int i) {
    Slot *s = &r->slots[i];
    DType dtype = r->kernel->buffers.items[s->inst->buffer].dtype;
    int64_t align = access_bytes(r, s->inst);
    if (!s->vectorial) {
        LLVMValueRef scalar = plain_load(r, type_memory(r, dtype, 1), s->pointer[s->level], align);
        slot_set(r, i, 0, convert_from_memory(r, scalar, dtype));
        return;
    }
    LLVMTypeRef type = type_memory(r, dtype, r->lanes);
    LLVMValueRef ahead = bands_ahead(r, s->inst);
    for (int c = 0; c < r->unroll; c++) {
        LLVMValueRef value = s->tile_row;
        if (!value) {
            LLVMValueRef pointer = copy_pointer(r, s, c);
            if (ahead && c * r->lanes * align % CACHE_LINE == 0) prefetch(r, pointer, ahead);
            bool line = r->lanes == 1 || s->inst->access->kind[r->vector_axis] == STRIDE_ONE;
            value = line ? load_line(r, type, pointer, align)
                         : load_strided(r, type, pointer, access_stride(r, s->inst, r->vector_axis), align);
        }
        slot_set(r, i, c, convert_from_memory(r, value, dtype));
    }
}

static void store_copies(Render *r, int i, bool past_caches) {
    Slot *s = &r->slots[i];
    int64_t align = access_bytes(r, s->inst);
    StrideKind kind = s->inst->access->kind[r->vector_axis];
    for (int c = 0; c < r->unroll; c++) {
        LLVMValueRef value = s->memory[c], pointer = copy_pointer(r, s, c);
        if (past_caches)
            store_past_caches(r, value, pointer, align * r->lanes);
        else if (r->lanes == 1 || kind == STRIDE_ONE)
            store_line(r, value, pointer, align);
        else if (kind == STRIDE_ZERO) /* all lanes hold the one element */
            plain_store(r, LLVMBuildExtractElement(r->builder, value, constant_i64(r, 0), ""), pointer, align);
        else
            store_strided(r, value, pointer, access_stride(r, s->inst, r->vector_axis), align);
    }
}

void render_store(Render *r, int i) {
    Slot *s = &r->slots[i];
    DType dtype = r->kernel->buffers.items[s->inst->buffer].dtype;
    int arg = s->inst->args[0];
    if (!s->vectorial) {
        plain_store(r, convert_to_memory(r, r->slots[arg].scalar, dtype), s->pointer[s->level],
                    access_bytes(r, s->inst));
        return;
    }
    for (int c = 0; c < r->unroll; c++) s->memory[c] = convert_to_memory(r, slot_value(r, arg, c), dtype);
    if (!s->stream || r->mask || r->lanes != r->vector_lanes) {
        store_copies(r, i, false);
        return;
    }
    LLVMBasicBlockRef past = LLVMAppendBasicBlockInContext(r->context, r->function, "past");
    LLVMBasicBlockRef plain = LLVMAppendBasicBlockInContext(r->context, r->function, "plain");
    LLVMBasicBlockRef stored = LLVMAppendBasicBlockInContext(r->context, r->function, "stored");
    LLVMBuildCondBr(r->builder, s->stream, past, plain);
    LLVMPositionBuilderAtEnd(r->builder, past);
    store_copies(r, i, true);
    LLVMBuildBr(r->builder, stored);
    LLVMPositionBuilderAtEnd(r->builder, plain);
    store_copies(r, i, false);
    LLVMBuildBr(r->builder, stored);
    LLVMPositionBuilderAtEnd(r->builder, stored);
}

/* --- stores past the caches
 * ------------------------------------------------------------------------------------------- An output that would not
 * stay in the caches anyway is written around them: that saves reading each line first (measured: 3x on 128 MB, 2x on
 * 32 MB). The instructions want alignment, which is tested a task; both ways stand in the loop, behind a branch that is
 * always predicted. */

static bool may_stream(const Render *r, const Slot *s) {
    if (!r->isa.x86 || s->inst->op != K_STORE || !s->vectorial || s->level != r->levels || r->cache_bytes == 0)
        return false;
    int64_t bytes = access_bytes(r, s->inst) * r->vector_lanes;
    return s->inst->access->kind[r->vector_axis] == STRIDE_ONE && bytes >= 16 && bytes <= r->isa.vector_bytes;
}

void stream_setup(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!may_stream(r, s)) continue;
        LLVMValueRef bytes = constant_i64(r, access_bytes(r, s->inst));
        for (int a = 0; a < r->kernel->axis_count; a++)
            if (s->inst->access->kind[a] != STRIDE_ZERO) bytes = LLVMBuildMul(r->builder, bytes, r->size[a], "");
        s->large = LLVMBuildICmp(r->builder, LLVMIntSGT, bytes, constant_i64(r, r->cache_bytes / 2), "");
        if (LLVMIsNull(s->large)) s->large = NULL;
    }
}

void stream_task(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!s->large) continue;
        LLVMValueRef start = LLVMBuildMul(r->builder, r->range_start, constant_i64(r, access_bytes(r, s->inst)), "");
        LLVMValueRef bits =
            LLVMBuildAdd(r->builder, LLVMBuildPtrToInt(r->builder, s->pointer[1], r->i64, ""), start, "");
        for (int a = 0; a < r->kernel->axis_count; a++)
            if (r->axis_level[a] > 1 && a != r->vector_axis)
                bits = LLVMBuildOr(r->builder, bits, access_stride(r, s->inst, a), "");
        bits = LLVMBuildAnd(r->builder, bits, constant_i64(r, access_bytes(r, s->inst) * r->vector_lanes - 1), "");
        LLVMValueRef aligned = LLVMBuildICmp(r->builder, LLVMIntEQ, bits, constant_i64(r, 0), "");
        s->stream = LLVMBuildAnd(r->builder, s->large, aligned, "");
    }
}

/* Such stores are not ordered by the lock or flag that tells other threads of the result. */
void stream_end(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (r->slots[i].large) {
            intrinsic(r, "llvm.x86.sse.sfence", NULL, 0, NULL, 0);
            return;
        }
}

/* --- kept values: [reduced axes row-major][elements of the lane block, where they vary along LANE]
 * -------------------- */

static int64_t keep_bytes(const KernelInst *inst) {
    return inst->dtype == DT_BOOL ? 1 : (int64_t)dtype_size(inst->dtype);
}

static bool keeps_lanes(const Render *r, const Slot *s) { return r->class == CLASS_OUTER && s->vectorial; }

void render_scratch(Render *r) {
    LLVMValueRef rows = constant_i64(r, 1), at = constant_i64(r, 0);
    for (int a = 0; a < r->kernel->axis_count; a++)
        if (r->kernel->axes[a].role == AXIS_REDUCE || r->kernel->axes[a].role == AXIS_REDUCE_LANE)
            rows = LLVMBuildMul(r->builder, rows, r->size[a], "");
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!s->inst->keep) continue;
        int64_t element = keep_bytes(s->inst) * (keeps_lanes(r, s) ? r->kernel->lane_block : 1);
        s->keep = offset_pointer(r, r->scratch, at);
        LLVMValueRef end =
            LLVMBuildAdd(r->builder, at, LLVMBuildMul(r->builder, rows, constant_i64(r, element), ""), "");
        at = LLVMBuildAnd(r->builder, LLVMBuildAdd(r->builder, end, constant_i64(r, 63), ""), constant_i64(r, -64), "");
    }
}

void render_keep(Render *r, int i, bool store) {
    Slot *s = &r->slots[i];
    int64_t bytes = keep_bytes(s->inst);
    LLVMValueRef index = r->flat[r->levels];
    if (keeps_lanes(r, s)) {
        LLVMValueRef lane = LLVMBuildSub(r->builder, r->index[r->vector_axis], r->range_start, "");
        index = LLVMBuildAdd(r->builder, LLVMBuildMul(r->builder, index, constant_i64(r, r->kernel->lane_block), ""),
                             lane, "");
    }
    LLVMValueRef base = offset_pointer(r, s->keep, LLVMBuildMul(r->builder, index, constant_i64(r, bytes), ""));
    LLVMTypeRef type = type_memory(r, s->inst->dtype, s->vectorial ? r->lanes : 1);
    LLVMValueRef mask = r->mask;
    if (!s->vectorial) r->mask = NULL;
    for (int c = 0; c < (s->vectorial ? r->unroll : 1); c++) {
        LLVMValueRef at = offset_pointer(r, base, constant_i64(r, c * bytes * r->lanes));
        if (store)
            store_line(r, convert_to_memory(r, s->vectorial ? s->vector[c] : s->scalar, s->inst->dtype), at, bytes);
        else
            slot_set(r, i, c, convert_from_memory(r, load_line(r, type, at, bytes), s->inst->dtype));
    }
    r->mask = mask;
}
