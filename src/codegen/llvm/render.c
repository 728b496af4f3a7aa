/* SPDX-License-Identifier: Apache-2.0 */
/* The function around the instructions: tasks, stages, loops. */
#include "codegen/llvm/render.h"

/* --- types, constants, small helpers --- */

LLVMTypeRef type_lanes(LLVMTypeRef element, int lanes) {
    return lanes > 1 ? LLVMVectorType(element, (unsigned)lanes) : element;
}

LLVMTypeRef type_compute(Render *r, DType dtype, int lanes) {
    LLVMTypeRef element = dtype == DT_BOOL        ? r->i1
                          : dtype == DT_F64       ? LLVMDoubleTypeInContext(r->context)
                          : dtype_is_float(dtype) ? LLVMFloatTypeInContext(r->context)
                                                  : LLVMIntTypeInContext(r->context, 8 * (unsigned)dtype_size(dtype));
    return type_lanes(element, lanes);
}

int type_lane_count(LLVMTypeRef type) {
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? (int)LLVMGetVectorSize(type) : 1;
}

LLVMTypeRef type_element(LLVMTypeRef type) {
    return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
}

LLVMTypeRef type_integer(Render *r, int bits, LLVMTypeRef like) {
    return type_lanes(LLVMIntTypeInContext(r->context, (unsigned)bits), type_lane_count(like));
}

static LLVMValueRef repeated(LLVMValueRef element, int lanes) {
    LLVMValueRef all[MAX_LANES];
    if (lanes == 1) return element;
    for (int i = 0; i < lanes; i++) all[i] = element;
    return LLVMConstVector(all, (unsigned)lanes);
}

LLVMValueRef constant_int(LLVMTypeRef type, int64_t value) {
    return repeated(LLVMConstInt(type_element(type), (unsigned long long)value, 1), type_lane_count(type));
}

LLVMValueRef constant_real(LLVMTypeRef type, double value) {
    return repeated(LLVMConstReal(type_element(type), value), type_lane_count(type));
}

LLVMValueRef constant_i64(Render *r, int64_t value) { return LLVMConstInt(r->i64, (unsigned long long)value, 1); }

bool constant_value(LLVMValueRef value, int64_t *out_value) {
    if (!LLVMIsAConstantInt(value)) return false;
    *out_value = LLVMConstIntGetSExtValue(value);
    return true;
}

LLVMValueRef splat(Render *r, LLVMValueRef scalar, int lanes) {
    if (lanes == 1) return scalar;
    if (LLVMIsConstant(scalar)) return repeated(scalar, lanes);
    LLVMTypeRef type = type_lanes(LLVMTypeOf(scalar), lanes);
    LLVMValueRef one = LLVMBuildInsertElement(r->builder, LLVMGetPoison(type), scalar, constant_i64(r, 0), "");
    return LLVMBuildShuffleVector(r->builder, one, LLVMGetPoison(type), constant_int(type_lanes(r->i32, lanes), 0), "");
}

LLVMValueRef iota(Render *r, LLVMTypeRef element, int lanes) {
    LLVMValueRef all[MAX_LANES];
    (void)r;
    for (int i = 0; i < lanes; i++) all[i] = LLVMConstInt(element, (unsigned)i, 0);
    return lanes == 1 ? all[0] : LLVMConstVector(all, (unsigned)lanes);
}

LLVMValueRef intrinsic(Render *r, const char *name, LLVMTypeRef *overload, int overloads, LLVMValueRef *args,
                       int count) {
    unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
    LLVMValueRef callee = LLVMGetIntrinsicDeclaration(r->module, id, overload, (size_t)overloads);
    LLVMTypeRef type = LLVMIntrinsicGetType(r->context, id, overload, (size_t)overloads);
    return LLVMBuildCall2(r->builder, type, callee, args, (unsigned)count, "");
}

LLVMValueRef intrinsic_1(Render *r, const char *name, LLVMValueRef a) {
    LLVMTypeRef type = LLVMTypeOf(a);
    return intrinsic(r, name, &type, 1, &a, 1);
}

LLVMValueRef any_lane(Render *r, LLVMValueRef condition) {
    int lanes = type_lane_count(LLVMTypeOf(condition));
    if (lanes == 1) return condition;
    LLVMTypeRef bits = LLVMIntTypeInContext(r->context, (unsigned)lanes);
    return LLVMBuildICmp(r->builder, LLVMIntNE, LLVMBuildBitCast(r->builder, condition, bits, ""),
                         constant_int(bits, 0), "");
}

LLVMValueRef slot_alloca(Render *r, LLVMTypeRef type, const char *name) {
    LLVMBasicBlockRef here = LLVMGetInsertBlock(r->builder);
    LLVMValueRef first = LLVMGetFirstInstruction(r->entry);
    if (first)
        LLVMPositionBuilderBefore(r->builder, first);
    else
        LLVMPositionBuilderAtEnd(r->builder, r->entry);
    LLVMValueRef memory = LLVMBuildAlloca(r->builder, type, name);
    LLVMPositionBuilderAtEnd(r->builder, here);
    return memory;
}

/* --- values --- */

LLVMValueRef slot_value(Render *r, int inst, int copy) {
    Slot *s = &r->slots[inst];
    if (s->vectorial) return s->vector[copy];
    if (r->lanes == 1) return s->scalar;
    return s->splat;
}

void slot_set(Render *r, int inst, int copy, LLVMValueRef value) {
    Slot *s = &r->slots[inst];
    if (s->vectorial) {
        s->vector[copy] = value;
        return;
    }
    s->scalar = value;
    s->splat = splat(r, value, r->vector_lanes);
}

static LLVMBasicBlockRef block_new(Render *r, const char *name) {
    return LLVMAppendBasicBlockInContext(r->context, r->function, name);
}

/* Tested at the end; the first test stands before it. Iterations need not divide the range: the caller's limit does. */
Loop loop_begin(Render *r, LLVMValueRef start, LLVMValueRef limit, int64_t step) {
    Loop loop = {.index = start, .limit = limit, .step = step};
    int64_t from, to;
    bool known = constant_value(start, &from) && constant_value(limit, &to);
    if (known && from < to && (!step || from + step >= to)) return loop;
    LLVMBasicBlockRef before = LLVMGetInsertBlock(r->builder);
    loop.body = block_new(r, "loop");
    loop.exit = block_new(r, "done");
    LLVMBuildCondBr(r->builder, LLVMBuildICmp(r->builder, LLVMIntSLT, start, limit, ""), loop.body, loop.exit);
    LLVMPositionBuilderAtEnd(r->builder, loop.body);
    if (!step) return loop;
    loop.index = LLVMBuildPhi(r->builder, r->i64, "i");
    LLVMAddIncoming(loop.index, &start, &before, 1);
    return loop;
}

void loop_end(Render *r, Loop *loop) {
    if (!loop->body) return;
    if (!loop->step) {
        LLVMBuildBr(r->builder, loop->exit);
        LLVMPositionBuilderAtEnd(r->builder, loop->exit);
        return;
    }
    LLVMValueRef next = LLVMBuildNSWAdd(r->builder, loop->index, constant_i64(r, loop->step), "");
    LLVMBasicBlockRef here = LLVMGetInsertBlock(r->builder);
    LLVMBuildCondBr(r->builder, LLVMBuildICmp(r->builder, LLVMIntSLT, next, loop->limit, ""), loop->body, loop->exit);
    LLVMAddIncoming(loop->index, &next, &here, 1);
    LLVMPositionBuilderAtEnd(r->builder, loop->exit);
}

/* --- one level's instructions --- */

static bool is_memory(const KernelInst *inst) { return inst->op == K_LOAD || inst->op == K_STORE; }

void render_advance(Render *r, int stage, int level, int axis, LLVMValueRef index) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_memory(s->inst) || !r->needed[stage][i] || s->level < level) continue;
        LLVMValueRef from = s->pointer[level - 1];
        s->pointer[level] = from;
        if (axis < 0 || s->inst->access->kind[axis] == STRIDE_ZERO) continue;
        LLVMValueRef bytes = LLVMBuildMul(r->builder, index, access_stride(r, s->inst, axis), "");
        s->pointer[level] = LLVMBuildGEP2(r->builder, r->i8, from, &bytes, 1, "");
    }
}

/* Pointers at the vector axis: the start of its range is applied before the loop, elements of the range inside. */
static void range_pointers(Render *r, int stage, int level) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_memory(s->inst) || s->level < level) continue;
        if (r->class != CLASS_OUTER && !r->needed[stage][i]) continue;
        s->range_pointer = s->pointer[level - 1];
        if (s->inst->access->kind[r->vector_axis] == STRIDE_ZERO || LLVMIsNull(r->range_start)) continue;
        LLVMValueRef bytes = LLVMBuildMul(r->builder, r->range_start, access_stride(r, s->inst, r->vector_axis), "");
        s->range_pointer = LLVMBuildGEP2(r->builder, r->i8, s->range_pointer, &bytes, 1, "");
    }
}

static void advance_in_range(Render *r, int stage, int level, LLVMValueRef index) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_memory(s->inst) || !r->needed[stage][i] || s->level < level) continue;
        StrideKind kind = s->inst->access->kind[r->vector_axis];
        s->pointer[level] = s->range_pointer;
        if (kind == STRIDE_ZERO) continue;
        DType dtype = r->kernel->buffers.items[s->inst->buffer].dtype;
        LLVMValueRef steps = index;
        if (kind != STRIDE_ONE) steps = LLVMBuildMul(r->builder, index, access_stride(r, s->inst, r->vector_axis), "");
        LLVMTypeRef unit = kind == STRIDE_ONE ? type_memory(r, dtype, 1) : r->i8;
        s->pointer[level] = LLVMBuildGEP2(r->builder, unit, s->range_pointer, &steps, 1, "");
    }
}

static void render_copy(Render *r, int i, int copy) {
    const KernelInst *inst = r->slots[i].inst;
    LLVMValueRef values[3];
    for (int n = 0; n < render_op_args(inst->op); n++) values[n] = slot_value(r, inst->args[n], copy);
    bool index = inst->op == K_INDEX;
    slot_set(r, i, copy, index ? vector_index(r, inst->axis, copy) : render_arithmetic(r, inst, values));
}

/* Nothing but arithmetic on vectors, of which each copy may stand by itself. */
static bool is_plain(const Render *r, int i) {
    const KernelInst *inst = r->slots[i].inst;
    bool other = inst->op == K_LOAD || inst->op == K_STORE || inst->op == K_RANDOM || (inst->op == K_DIV && inst->bits);
    return r->slots[i].vectorial && !other && !inst->keep;
}

/* An instruction of all copies, then the next. Of eight copies a few instructions of one at a time: the processor's
 * window holds those of all copies, and what lives from one instruction to the next needs a register in one copy at a
 * time (8 instructions are up to 7 % faster than one, and 32 up to 40 % slower); of four, loads would come later, which
 * costs up to 6 % where memory is the limit. */
static void render_run(Render *r, const int *run, int count) {
    int piece = r->unroll < 8 ? 1 : 8;
    for (int from = 0; from < count; from += piece)
        for (int c = 0; c < r->unroll; c++)
            for (int n = from; n < from + piece && n < count; n++) render_copy(r, run[n], c);
}

static void render_one(Render *r, int stage, int i) {
    Slot *s = &r->slots[i];
    const KernelInst *inst = s->inst;
    bool inside = s->level > r->outlive;
    if (inst->keep && inst->stage < stage && inside) {
        render_keep(r, i, false);
        return;
    }
    if (inst->op == K_LOAD) {
        render_load(r, i);
    } else if (inst->op == K_STORE) {
        render_store(r, i);
    } else if (inst->op == K_RANDOM) {
        render_random(r, i);
    } else if (inst->op == K_DIV && inst->bits && s->vectorial) {
        render_divide_row(r, i);
    } else {
        int copies = s->vectorial ? r->unroll : 1, lanes = r->lanes;
        if (!s->vectorial) r->lanes = 1;
        for (int c = 0; c < copies; c++) render_copy(r, i, c);
        r->lanes = lanes;
    }
    if (inst->keep && inst->stage == stage && inside) render_keep(r, i, true);
}

void render_level(Render *r, int stage, int level) {
    int *run = ARENA_ARRAY(r->arena, int, r->kernel->insts.count + 1), count = 0;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (s->level != level || !r->needed[stage][i] || kernel_op_is_reduce(s->inst->op)) continue;
        if (level <= r->outlive && (s->done || s->stage > stage)) continue;
        s->done = true;
        if (is_plain(r, i)) {
            run[count++] = i;
            continue;
        }
        if (s->vectorial) {
            render_run(r, run, count);
            count = 0;
        }
        render_one(r, stage, i);
    }
    render_run(r, run, count);
    if (level != r->levels) return;
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (r->needed[stage][i] && kernel_op_is_reduce(r->slots[i].inst->op) && r->slots[i].inst->stage == stage)
            reduce_step(r, i, level);
}

/* --- loops over the axes of a task --- */

static void render_nest(Render *r, int stage, int level);
static void render_stage(Render *r, int stage, int level);

static void set_flat(Render *r, int level, LLVMValueRef index) {
    LLVMValueRef size = r->size[r->level_axis[level]];
    LLVMValueRef outer = level > 2 && r->flat[level - 1] ? r->flat[level - 1] : constant_i64(r, 0);
    r->flat[level] = LLVMBuildAdd(r->builder, LLVMBuildMul(r->builder, outer, size, ""), index, "");
}

/* The body at the vector axis, in the present form, from `index` elements into the task's range. */
static void vector_body(Render *r, int stage, int level, LLVMValueRef index) {
    int axis = r->vector_axis;
    r->index[axis] = LLVMBuildNSWAdd(r->builder, r->range_start, index, "");
    if (r->class != CLASS_OUTER) {
        advance_in_range(r, stage, level, index);
        set_flat(r, level, r->index[axis]);
        render_level(r, stage, level);
        return;
    }
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (r->slots[i].level >= level) r->slots[i].done = false;
    r->flat[level] = constant_i64(r, 0);
    if (r->bands.phase != BANDS_NONE) {
        for (int s = 0; s < r->kernel->stage_count; s++) advance_in_range(r, s, level, index);
        bands_body(r, level);
        return;
    }
    for (int s = 0; s < r->kernel->stage_count; s++) {
        advance_in_range(r, s, level, index);
        render_stage(r, s, level);
    }
}

static void vector_form(Render *r, int lanes, int unroll, LLVMValueRef live) {
    r->lanes = lanes;
    r->unroll = unroll;
    r->live = live;
    r->mask = live ? lane_mask(r, live, lanes) : NULL;
}

static LLVMValueRef rounded_down(Render *r, LLVMValueRef start, LLVMValueRef limit, int64_t step) {
    LLVMValueRef span = LLVMBuildSub(r->builder, limit, start, "");
    LLVMValueRef whole = step & (step - 1)
                             ? LLVMBuildMul(r->builder, LLVMBuildUDiv(r->builder, span, constant_i64(r, step), ""),
                                            constant_i64(r, step), "")
                             : LLVMBuildAnd(r->builder, span, constant_i64(r, -step), "");
    return LLVMBuildAdd(r->builder, start, whole, "");
}

static LLVMValueRef vector_loop(Render *r, int stage, int level, LLVMValueRef start, LLVMValueRef limit, int unroll) {
    int64_t step = (int64_t)unroll * r->vector_lanes, from, to;
    LLVMValueRef whole = rounded_down(r, start, limit, step);
    if (constant_value(start, &from) && constant_value(whole, &to) && from >= to) return start;
    vector_form(r, r->vector_lanes, unroll, NULL);
    Loop loop = loop_begin(r, start, whole, step);
    vector_body(r, stage, level, loop.index);
    loop_end(r, &loop);
    return whole;
}

/* several: more than one vector may be left. */
static void masked_rest(Render *r, int stage, int level, LLVMValueRef start, LLVMValueRef limit, bool several) {
    Loop loop = loop_begin(r, start, limit, several ? r->vector_lanes : 0);
    LLVMValueRef left = LLVMBuildSub(r->builder, limit, loop.index, ""), all = constant_i64(r, r->vector_lanes);
    LLVMValueRef live =
        LLVMBuildSelect(r->builder, LLVMBuildICmp(r->builder, LLVMIntSLT, left, all, ""), left, all, "");
    vector_form(r, r->vector_lanes, 1, live);
    vector_body(r, stage, level, loop.index);
    loop_end(r, &loop);
}

static void scalar_rest(Render *r, int stage, int level, LLVMValueRef start, LLVMValueRef limit) {
    Loop loop = loop_begin(r, start, limit, 1);
    vector_form(r, 1, 1, NULL);
    vector_body(r, stage, level, loop.index);
    loop_end(r, &loop);
}

void render_vector_range(Render *r, int stage, int level, LLVMValueRef start, LLVMValueRef limit, LLVMValueRef count) {
    int64_t from, to, known = constant_value(start, &from) && constant_value(limit, &to) ? to - from : -1;
    int64_t multiple = known >= 0 ? known : count ? r->count_multiple : 1;
    range_pointers(r, stage, level);
    int64_t step = (int64_t)r->main_unroll * r->vector_lanes, at;
    bool masked_loop = r->masked && r->isa.avx512 && multiple % r->vector_lanes != 0 && r->class != CLASS_OUTER;
    if (!r->one_loop) {
        start = vector_loop(r, stage, level, start, limit, r->main_unroll);
        if (r->main_unroll > 1 && multiple % step != 0 && !masked_loop)
            start = vector_loop(r, stage, level, start, limit, 1);
    }
    bool over = constant_value(start, &at) && constant_value(limit, &to) && at >= to;
    if (multiple % r->vector_lanes != 0 && !over) {
        if (!r->masked)
            scalar_rest(r, stage, level, start, limit);
        else
            masked_rest(r, stage, level, start, limit, r->one_loop || (masked_loop && r->main_unroll > 1));
    }
    vector_form(r, r->vector_lanes, 1, NULL);
}

static void reduce_loop(Render *r, int stage, int level, LLVMValueRef start, LLVMValueRef limit, int rows) {
    int axis = r->level_axis[level];
    Loop loop = loop_begin(r, start, limit, rows);
    for (int row = 0; row < rows; row++) {
        r->index[axis] = LLVMBuildNSWAdd(r->builder, loop.index, constant_i64(r, row), "");
        r->accumulator_base = row * r->unroll;
        render_advance(r, stage, level, axis, r->index[axis]);
        set_flat(r, level, r->index[axis]);
        render_level(r, stage, level);
        if (level < r->levels) render_nest(r, stage, level + 1);
    }
    r->accumulator_base = 0;
    loop_end(r, &loop);
}

void reduce_range(Render *r, int stage, int level, LLVMValueRef start, LLVMValueRef limit) {
    int rows = level == r->levels && r->class == CLASS_OUTER ? r->accumulators / r->main_unroll : 1;
    if (rows > 1 && r->lanes == r->vector_lanes && r->unroll == r->main_unroll) {
        int64_t size;
        LLVMValueRef whole = rounded_down(r, start, limit, rows);
        if (!constant_value(whole, &size) || size > 0) reduce_loop(r, stage, level, start, whole, rows);
        start = whole;
        if (constant_value(limit, &size) && size % rows == 0) return;
    }
    reduce_loop(r, stage, level, start, limit, 1);
}

static void render_nest(Render *r, int stage, int level) {
    int axis = r->level_axis[level];
    if (axis == r->vector_axis) {
        render_vector_range(r, stage, level, constant_i64(r, 0), r->range_count, r->range_count);
        return;
    }
    if (!reduce_in_chunks(r, stage, level)) {
        reduce_range(r, stage, level, constant_i64(r, 0), r->size[axis]);
        return;
    }
    Loop chunks = loop_begin(r, constant_i64(r, 0), r->size[axis], REDUCE_CHUNK);
    LLVMValueRef end = LLVMBuildNSWAdd(r->builder, chunks.index, constant_i64(r, REDUCE_CHUNK), "");
    LLVMValueRef over = LLVMBuildICmp(r->builder, LLVMIntSGT, end, r->size[axis], "");
    reduce_range(r, stage, level, chunks.index, LLVMBuildSelect(r->builder, over, r->size[axis], end, ""));
    reduce_flush(r, stage);
    loop_end(r, &chunks);
}

static bool has_inside(const Render *r, int stage, int level) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (!r->needed[stage][i]) continue;
        if (s->level > level && s->inst->op != K_CONST && !kernel_op_is_reduce(s->inst->op)) return true;
        if (kernel_op_is_reduce(s->inst->op) && s->inst->stage == stage) return true;
    }
    return false;
}

/* What stands at `level` of the stage, then its loops. */
static void render_stage(Render *r, int stage, int level) {
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (kernel_op_is_reduce(r->slots[i].inst->op) && r->slots[i].inst->stage == stage) reduce_begin(r, i);
    render_level(r, stage, level);
    if (level < r->levels && has_inside(r, stage, level)) render_nest(r, stage, level + 1);
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (kernel_op_is_reduce(r->slots[i].inst->op) && r->slots[i].inst->stage == stage) reduce_finish(r, i);
}

/* --- tasks --- */

static LLVMValueRef ceil_divide(Render *r, LLVMValueRef value, int64_t by) {
    if (by <= 1) return value;
    LLVMValueRef up = LLVMBuildAdd(r->builder, value, constant_i64(r, by - 1), "");
    return LLVMBuildUDiv(r->builder, up, constant_i64(r, by), "");
}

/* Digits of the task number, outermost first: the TASK axes (the tile axis in blocks), then the blocks of LANE. */
typedef struct Digits {
    int count, axis[KERNEL_MAX_AXES + 1];
    LLVMValueRef radix[KERNEL_MAX_AXES + 1], memory[KERNEL_MAX_AXES + 1];
} Digits;

static bool is_one(LLVMValueRef value) {
    int64_t known;
    return constant_value(value, &known) && known == 1;
}

static Digits task_digits(Render *r, LLVMValueRef begin) {
    const Kernel *k = r->kernel;
    Digits d = {0};
    for (int a = 0; a < k->axis_count; a++) {
        if (k->axes[a].role != AXIS_TASK && k->axes[a].role != AXIS_LANE) continue;
        int64_t block = k->axes[a].role == AXIS_LANE ? k->lane_block : a == k->tile_axis ? k->tile_block : 1;
        LLVMValueRef radix = ceil_divide(r, r->size[a], block);
        if (is_one(radix)) { /* no digit */
            r->index[a] = constant_i64(r, 0);
            continue;
        }
        d.axis[d.count] = a;
        d.radix[d.count++] = radix;
    }
    LLVMValueRef rest = begin;
    for (int n = d.count - 1; n >= 0; n--) {
        d.memory[n] = slot_alloca(r, r->i64, "digit");
        LLVMValueRef digit = n ? LLVMBuildURem(r->builder, rest, d.radix[n], "") : rest;
        if (n) rest = LLVMBuildUDiv(r->builder, rest, d.radix[n], "");
        LLVMBuildStore(r->builder, digit, d.memory[n]);
    }
    return d;
}

static void count_on(Render *r, const Digits *d) {
    LLVMValueRef carry = LLVMConstInt(r->i1, 1, 0);
    for (int n = d->count - 1; n >= 0; n--) {
        LLVMValueRef old = LLVMBuildLoad2(r->builder, r->i64, d->memory[n], "");
        LLVMValueRef next = LLVMBuildAdd(r->builder, old, LLVMBuildZExt(r->builder, carry, r->i64, ""), "");
        if (n > 0) {
            carry = LLVMBuildICmp(r->builder, LLVMIntEQ, next, d->radix[n], "");
            next = LLVMBuildSelect(r->builder, carry, constant_i64(r, 0), next, "");
        }
        LLVMBuildStore(r->builder, next, d->memory[n]);
    }
}

static LLVMValueRef least(Render *r, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(r->builder, LLVMBuildICmp(r->builder, LLVMIntSLT, a, b, ""), a, b, "");
}

/* The vector axis in the present task. */
static void set_range(Render *r) {
    int a = r->vector_axis;
    const KernelAxis *axis = &r->kernel->axes[a];
    r->range_start = constant_i64(r, 0);
    r->range_count = r->size[a];
    if (axis->role != AXIS_LANE) return;
    LLVMValueRef block = constant_i64(r, r->lane_block);
    r->range_start = LLVMBuildNSWMul(r->builder, r->index[a], block, "");
    r->range_count = r->constant_count >= 0 ? constant_i64(r, r->constant_count)
                                            : least(r, LLVMBuildSub(r->builder, r->size[a], r->range_start, ""), block);
}

static void task_pointers(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_memory(s->inst)) continue;
        LLVMValueRef at = s->pointer[0];
        for (int a = 0; a < r->kernel->axis_count; a++) {
            if (r->axis_level[a] != 1 || s->inst->access->kind[a] == STRIDE_ZERO) continue;
            LLVMValueRef bytes = LLVMBuildMul(r->builder, r->index[a], access_stride(r, s->inst, a), "");
            at = LLVMBuildGEP2(r->builder, r->i8, at, &bytes, 1, "");
        }
        s->pointer[1] = at;
    }
}

void render_task_begin(Render *r) {
    set_range(r);
    task_pointers(r);
    stream_task(r);
}

static void render_task(Render *r, const Digits *digits) {
    for (int n = 0; n < digits->count; n++)
        r->index[digits->axis[n]] = LLVMBuildLoad2(r->builder, r->i64, digits->memory[n], "");
    render_task_begin(r);
    if (r->class == CLASS_TILE) {
        render_level(r, 0, 1);
        render_tiles(r);
    } else if (r->class == CLASS_OUTER) {
        for (int s = 0; s < r->kernel->stage_count; s++) render_level(r, s, 1);
        render_nest(r, 0, 2);
    } else {
        for (int s = 0; s < r->kernel->stage_count; s++) render_stage(r, s, 1);
    }
}

/* --- the function --- */

static void load_arguments(Render *r) {
    const Kernel *k = r->kernel;
    LLVMValueRef buffers = LLVMGetParam(r->function, 0), params = LLVMGetParam(r->function, 1);
    r->scratch = LLVMGetParam(r->function, 4);
    r->buffers = ARENA_ARRAY(r->arena, LLVMValueRef, k->buffers.count + 1);
    r->params = ARENA_ARRAY(r->arena, LLVMValueRef, k->param_count + 1);
    for (int i = 0; i < k->buffers.count; i++) {
        LLVMValueRef n = constant_i64(r, i), at = LLVMBuildGEP2(r->builder, r->pointer, buffers, &n, 1, "");
        r->buffers[i] = LLVMBuildLoad2(r->builder, r->pointer, at, "buffer");
    }
    for (int i = 0; i < k->param_count; i++) {
        LLVMValueRef n = constant_i64(r, i), at = LLVMBuildGEP2(r->builder, r->i64, params, &n, 1, "");
        r->params[i] = LLVMBuildLoad2(r->builder, r->i64, at, "param");
    }
    for (int a = 0; a < k->axis_count; a++) {
        const KernelAxis *axis = &k->axes[a];
        r->size[a] = axis->param < 0 ? constant_i64(r, axis->size) : r->params[axis->param];
    }
}

static void entry_pointers(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_memory(s->inst)) continue;
        const KernelAccess *access = s->inst->access;
        s->pointer[0] = r->buffers[s->inst->buffer];
        if (access->offset_kind == STRIDE_ZERO) continue;
        LLVMValueRef offset =
            access->offset_kind == STRIDE_PARAM ? r->params[access->offset] : constant_i64(r, access->offset);
        LLVMValueRef bytes = LLVMBuildMul(r->builder, offset, constant_i64(r, access_bytes(r, s->inst)), "");
        s->pointer[0] = LLVMBuildGEP2(r->builder, r->i8, s->pointer[0], &bytes, 1, "");
    }
}

static void render_tasks(Render *r, LLVMValueRef from, LLVMValueRef to) {
    Digits digits = task_digits(r, from);
    Loop tasks = loop_begin(r, from, to, 1);
    render_task(r, &digits);
    count_on(r, &digits);
    loop_end(r, &tasks);
}

void render_kernel(Render *r) {
    LLVMTypeRef types[5] = {r->pointer, r->pointer, r->i64, r->i64, r->pointer};
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(r->context), types, 5, 0);
    r->function = LLVMAddFunction(r->module, KERNEL_SYMBOL, type);
    r->entry = block_new(r, "entry");
    LLVMBasicBlockRef setup = block_new(r, "setup"), end = block_new(r, "end");
    LLVMPositionBuilderAtEnd(r->builder, end);
    LLVMBuildRetVoid(r->builder);
    LLVMValueRef from = LLVMGetParam(r->function, 2), to = LLVMGetParam(r->function, 3);
    LLVMPositionBuilderAtEnd(r->builder, r->entry);
    LLVMBuildCondBr(r->builder, LLVMBuildICmp(r->builder, LLVMIntSLT, from, to, ""), setup, end);
    LLVMPositionBuilderAtEnd(r->builder, setup);
    load_arguments(r);
    entry_pointers(r);
    vector_form(r, r->vector_lanes, 1, NULL);
    render_scratch(r);
    stream_setup(r);
    for (int s = 0; s < r->kernel->stage_count; s++) render_level(r, s, 0);
    if (r->kernel->band)
        render_bands(r, from, to);
    else
        render_tasks(r, from, to);
    stream_end(r);
    LLVMBuildBr(r->builder, end);
}
