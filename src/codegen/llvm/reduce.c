/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions: accumulators in registers (allocas that mem2reg promotes), several of them so that their latencies
 * overlap. */
#include "codegen/llvm/render.h"

static bool is_position(KernelOp op) { return op == K_REDUCE_ARGMAX || op == K_REDUCE_ARGMIN; }
static bool wants_greater(KernelOp op) { return op == K_REDUCE_ARGMAX || op == K_REDUCE_MAX; }

static DType argument_dtype(const Render *r, const KernelInst *inst) { return r->slots[inst->args[0]].inst->dtype; }

static LLVMValueRef neutral(Render *r, const KernelInst *inst, int lanes) {
    DType dtype = argument_dtype(r, inst);
    LLVMTypeRef type = type_compute(r, dtype, lanes);
    bool most = !wants_greater(inst->op), is_float = dtype_is_float(dtype);
    if (inst->op == K_REDUCE_SUM || inst->op == K_REDUCE_PROD) {
        int start = inst->op == K_REDUCE_PROD;
        return is_float ? constant_real(type, start) : constant_int(type, start);
    }
    if (is_float) return constant_real(type, most ? __builtin_inf() : -__builtin_inf());
    if (dtype_class(dtype) != DTYPE_SIGNED) return most ? LLVMConstAllOnes(type) : LLVMConstNull(type);
    int bits = 8 * (int)dtype_size(dtype);
    int64_t least = (int64_t)((uint64_t)-1 << (bits - 1));
    return constant_int(type, most ? ~least : least);
}

static LLVMValueRef select_value(Render *r, LLVMValueRef condition, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(r->builder, condition, a, b, "");
}

static LLVMValueRef unordered(Render *r, LLVMValueRef a) { return LLVMBuildFCmp(r->builder, LLVMRealUNO, a, a, ""); }

/* a better than b, without regard to NaN. */
static LLVMValueRef better(Render *r, const KernelInst *inst, LLVMValueRef a, LLVMValueRef b) {
    bool greater = wants_greater(inst->op);
    DType dtype = argument_dtype(r, inst);
    if (dtype_is_float(dtype)) return LLVMBuildFCmp(r->builder, greater ? LLVMRealOGT : LLVMRealOLT, a, b, "");
    bool is_signed = dtype_class(dtype) == DTYPE_SIGNED;
    LLVMIntPredicate predicate = greater ? (is_signed ? LLVMIntSGT : LLVMIntUGT) : is_signed ? LLVMIntSLT : LLVMIntULT;
    return LLVMBuildICmp(r->builder, predicate, a, b, "");
}

/* Maxima and minima of floats along lanes: the instruction passes NaN over, and one comparison of two vectors with each
 * other sees whether either has some. */
static bool watches_nan(const Render *r, const KernelInst *inst) {
    bool extreme = inst->op == K_REDUCE_MAX || inst->op == K_REDUCE_MIN;
    return extreme && r->class == CLASS_INNER && dtype_is_float(argument_dtype(r, inst));
}

/* b when neither is better, so too when either is NaN. */
static LLVMValueRef better_of(Render *r, const KernelInst *inst, LLVMValueRef a, LLVMValueRef b) {
    return select_value(r, better(r, inst, a, b), a, b);
}

/* Masks where the hardware has registers for them, else words as wide as the values. */
static LLVMTypeRef watch_type(Render *r, DType dtype, int lanes) {
    return type_lanes(r->isa.avx512 ? r->i1 : dtype == DT_F64 ? r->i64 : r->i32, lanes);
}

static LLVMValueRef watched(Render *r, LLVMValueRef condition, DType dtype) {
    LLVMTypeRef type = watch_type(r, dtype, type_lane_count(LLVMTypeOf(condition)));
    return LLVMTypeOf(condition) == type ? condition : LLVMBuildSExt(r->builder, condition, type, "");
}

static LLVMValueRef combine(Render *r, const KernelInst *inst, LLVMValueRef a, LLVMValueRef b) {
    DType dtype = argument_dtype(r, inst);
    bool is_float = dtype_is_float(dtype);
    switch (inst->op) {
    case K_REDUCE_SUM:
        if (dtype == DT_BOOL) return LLVMBuildOr(r->builder, a, b, "");
        return is_float ? LLVMBuildFAdd(r->builder, a, b, "") : LLVMBuildAdd(r->builder, a, b, "");
    case K_REDUCE_PROD:
        if (dtype == DT_BOOL) return LLVMBuildAnd(r->builder, a, b, "");
        return is_float ? LLVMBuildFMul(r->builder, a, b, "") : LLVMBuildMul(r->builder, a, b, "");
    default: break;
    }
    LLVMValueRef best = better_of(r, inst, a, b);
    return is_float ? select_value(r, unordered(r, a), a, best) : best;
}

/* Whether (b, at_b) takes the place of (a, at_a) when positions may stand in any order. */
static LLVMValueRef takes_place(Render *r, const KernelInst *inst, LLVMValueRef a, LLVMValueRef at_a, LLVMValueRef b,
                                LLVMValueRef at_b) {
    LLVMIntPredicate side = inst->bits ? LLVMIntSGT : LLVMIntSLT;
    LLVMValueRef sooner = LLVMBuildICmp(r->builder, side, at_b, at_a, ""), wins = better(r, inst, b, a), tie;
    if (!dtype_is_float(argument_dtype(r, inst))) {
        tie = LLVMBuildICmp(r->builder, LLVMIntEQ, a, b, "");
    } else {
        LLVMValueRef nan_a = unordered(r, a), nan_b = unordered(r, b);
        tie = LLVMBuildOr(r->builder, LLVMBuildFCmp(r->builder, LLVMRealOEQ, a, b, ""),
                          LLVMBuildAnd(r->builder, nan_a, nan_b, ""), "");
        LLVMValueRef fresh = LLVMBuildAnd(r->builder, nan_b, LLVMBuildNot(r->builder, nan_a, ""), "");
        wins = LLVMBuildOr(r->builder, wins, fresh, "");
    }
    return LLVMBuildOr(r->builder, wins, LLVMBuildAnd(r->builder, tie, sooner, ""), "");
}

/* As above where b stands behind a. */
static LLVMValueRef takes_place_behind(Render *r, const KernelInst *inst, LLVMValueRef a, LLVMValueRef b) {
    bool last = inst->bits != 0;
    if (!dtype_is_float(argument_dtype(r, inst)))
        return last ? LLVMBuildNot(r->builder, better(r, inst, a, b), "") : better(r, inst, b, a);
    bool greater = wants_greater(inst->op);
    LLVMRealPredicate predicate = last ? (greater ? LLVMRealUGE : LLVMRealULE) : greater ? LLVMRealUGT : LLVMRealULT;
    LLVMValueRef wins = LLVMBuildFCmp(r->builder, predicate, b, a, ""); /* also when either is NaN */
    LLVMValueRef number = LLVMBuildFCmp(r->builder, LLVMRealORD, a, a, "");
    if (last) number = LLVMBuildOr(r->builder, number, unordered(r, b), "");
    return LLVMBuildAnd(r->builder, wins, number, "");
}

/* Of lanes that nothing was taken in: beyond all others in the order of preference. */
static int64_t no_position(const KernelInst *inst) { return inst->bits ? -1 : INT64_MAX; }

static bool has_scalar_tail(const Render *r) {
    return r->class == CLASS_INNER && !r->masked && r->vector_lanes > 1 && r->count_multiple % r->vector_lanes != 0;
}

static bool is_chunked(const Render *r, int i, int stage) {
    const KernelInst *inst = r->slots[i].inst;
    return !r->kernel->band && r->needed[stage][i] && inst->op == K_REDUCE_SUM && inst->stage == stage &&
           dtype_is_float(argument_dtype(r, inst));
}

void reduce_begin(Render *r, int i) {
    Slot *s = &r->slots[i];
    const KernelInst *inst = s->inst;
    DType dtype = argument_dtype(r, inst);
    int lanes = r->class == CLASS_INNER ? r->vector_lanes : r->lanes;
    for (int n = 0; n < r->accumulators; n++) {
        s->accumulator[n] = slot_alloca(r, type_compute(r, dtype, lanes), "sum");
        LLVMBuildStore(r->builder, neutral(r, inst, lanes), s->accumulator[n]);
        if (watches_nan(r, inst)) {
            s->unordered[n] = slot_alloca(r, watch_type(r, dtype, lanes), "nan");
            LLVMBuildStore(r->builder, LLVMConstNull(watch_type(r, dtype, lanes)), s->unordered[n]);
        }
        if (!is_position(inst->op)) continue;
        LLVMTypeRef type = type_lanes(r->i64, lanes);
        s->position[n] = slot_alloca(r, type, "at");
        LLVMBuildStore(r->builder, constant_int(type, no_position(inst)), s->position[n]);
    }
    for (int n = 0; n < r->unroll && is_chunked(r, i, inst->stage); n++) {
        s->total[n] = slot_alloca(r, type_compute(r, dtype, lanes), "total");
        LLVMBuildStore(r->builder, neutral(r, inst, lanes), s->total[n]);
    }
    if (!has_scalar_tail(r)) return;
    s->tail_accumulator = slot_alloca(r, type_compute(r, dtype, 1), "sum");
    LLVMBuildStore(r->builder, neutral(r, inst, 1), s->tail_accumulator);
    if (!is_position(inst->op)) return;
    s->tail_position = slot_alloca(r, r->i64, "at");
    LLVMBuildStore(r->builder, constant_i64(r, no_position(inst)), s->tail_position);
}

void reduce_take(Render *r, int i, int copy, LLVMValueRef value) {
    Slot *s = &r->slots[i];
    LLVMValueRef old = LLVMBuildLoad2(r->builder, LLVMTypeOf(value), s->accumulator[copy], "");
    LLVMBuildStore(r->builder, combine(r, s->inst, old, value), s->accumulator[copy]);
}

static LLVMValueRef here(Render *r, int level, int copy) {
    if (r->class != CLASS_INNER) return splat(r, r->flat[level], r->lanes);
    LLVMValueRef base = LLVMBuildAdd(r->builder, r->flat[level], constant_i64(r, (int64_t)copy * r->lanes), "");
    return LLVMBuildAdd(r->builder, splat(r, base, r->lanes), iota(r, r->i64, r->lanes), "");
}

/* Copies two at a time; a copy that is left over is compared with itself. */
static void watch_nan(Render *r, Slot *s) {
    DType dtype = argument_dtype(r, s->inst);
    for (int c = 0; c < r->unroll; c += 2) {
        LLVMValueRef memory = s->unordered[r->accumulator_base + c];
        LLVMValueRef a = slot_value(r, s->inst->args[0], c),
                     b = c + 1 < r->unroll ? slot_value(r, s->inst->args[0], c + 1) : a;
        LLVMValueRef some = LLVMBuildFCmp(r->builder, LLVMRealUNO, a, b, "");
        if (r->mask) some = LLVMBuildAnd(r->builder, some, r->mask, "");
        some = watched(r, some, dtype);
        LLVMValueRef old = LLVMBuildLoad2(r->builder, LLVMTypeOf(some), memory, "");
        LLVMBuildStore(r->builder, LLVMBuildOr(r->builder, old, some, ""), memory);
    }
}

void reduce_step(Render *r, int i, int level) {
    Slot *s = &r->slots[i];
    const KernelInst *inst = s->inst;
    bool tail = r->lanes == 1 && has_scalar_tail(r), watch = watches_nan(r, inst) && !tail;
    if (watch) watch_nan(r, s);
    for (int c = 0; c < r->unroll; c++) {
        LLVMValueRef memory = tail ? s->tail_accumulator : s->accumulator[r->accumulator_base + c];
        LLVMValueRef value = slot_value(r, inst->args[0], c);
        LLVMValueRef old = LLVMBuildLoad2(r->builder, LLVMTypeOf(value), memory, ""), fresh;
        if (!is_position(inst->op)) {
            fresh = watch ? better_of(r, inst, value, old) : combine(r, inst, old, value);
            if (r->mask && r->class == CLASS_INNER) fresh = select_value(r, r->mask, fresh, old);
            LLVMBuildStore(r->builder, fresh, memory);
            continue;
        }
        LLVMValueRef at_memory = tail ? s->tail_position : s->position[r->accumulator_base + c], at = here(r, level, c);
        LLVMValueRef at_old = LLVMBuildLoad2(r->builder, LLVMTypeOf(at), at_memory, "");
        LLVMValueRef take = takes_place_behind(r, inst, old, value);
        if (r->mask && r->class == CLASS_INNER) take = LLVMBuildAnd(r->builder, take, r->mask, "");
        LLVMBuildStore(r->builder, select_value(r, take, value, old), memory);
        LLVMBuildStore(r->builder, select_value(r, take, at, at_old), at_memory);
    }
}

bool reduce_in_chunks(const Render *r, int stage, int level) {
    const KernelAxis *axis = &r->kernel->axes[r->level_axis[level]];
    if (r->class != CLASS_OUTER || level != r->levels || (axis->param < 0 && axis->size <= REDUCE_CHUNK)) return false;
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (is_chunked(r, i, stage)) return true;
    return false;
}

void reduce_flush(Render *r, int stage) {
    for (int i = 0; i < r->kernel->insts.count; i++) {
        Slot *s = &r->slots[i];
        if (!is_chunked(r, i, stage)) continue;
        LLVMTypeRef type = type_compute(r, argument_dtype(r, s->inst), r->lanes);
        bool all = r->lanes == r->vector_lanes && r->unroll == r->main_unroll;
        for (int n = 0; n < (all ? r->accumulators : r->unroll); n++) {
            LLVMValueRef sum = LLVMBuildLoad2(r->builder, type, s->accumulator[n], "");
            LLVMValueRef total = LLVMBuildLoad2(r->builder, type, s->total[n % r->unroll], "");
            LLVMBuildStore(r->builder, LLVMBuildFAdd(r->builder, total, sum, ""), s->total[n % r->unroll]);
            LLVMBuildStore(r->builder, neutral(r, s->inst, r->lanes), s->accumulator[n]);
        }
    }
}

typedef struct Pair {
    LLVMValueRef value, at; /* at: NULL for plain reductions */
} Pair;

static Pair merge(Render *r, const KernelInst *inst, Pair a, Pair b) {
    if (watches_nan(r, inst)) return (Pair){better_of(r, inst, a.value, b.value), NULL};
    if (!a.at) return (Pair){combine(r, inst, a.value, b.value), NULL};
    LLVMValueRef take = takes_place(r, inst, a.value, a.at, b.value, b.at);
    return (Pair){select_value(r, take, b.value, a.value), select_value(r, take, b.at, a.at)};
}

static Pair load_pair(Render *r, LLVMValueRef value, LLVMValueRef at, LLVMTypeRef type) {
    LLVMTypeRef position = type_lanes(r->i64, type_lane_count(type));
    return (Pair){LLVMBuildLoad2(r->builder, type, value, ""),
                  at ? LLVMBuildLoad2(r->builder, position, at, "") : NULL};
}

static LLVMValueRef half_of(Render *r, LLVMValueRef vector, int lanes, int from) {
    LLVMValueRef mask[MAX_LANES];
    for (int n = 0; n < lanes; n++) mask[n] = LLVMConstInt(r->i32, (unsigned)(from + n), 0);
    if (lanes == 1) return LLVMBuildExtractElement(r->builder, vector, constant_i64(r, from), "");
    return LLVMBuildShuffleVector(r->builder, vector, LLVMGetPoison(LLVMTypeOf(vector)),
                                  LLVMConstVector(mask, (unsigned)lanes), "");
}

static Pair across_lanes(Render *r, const KernelInst *inst, Pair p, int lanes) {
    while (lanes > 1) {
        lanes /= 2;
        Pair low = {half_of(r, p.value, lanes, 0), p.at ? half_of(r, p.at, lanes, 0) : NULL};
        Pair high = {half_of(r, p.value, lanes, lanes), p.at ? half_of(r, p.at, lanes, lanes) : NULL};
        p = merge(r, inst, low, high);
    }
    return p;
}

/* Nothing was taken where all values equal the neutral one, or there are none: the first position, or the last one's
 * stand-in. */
static LLVMValueRef position_or_zero(Render *r, const KernelInst *inst, LLVMValueRef at) {
    LLVMTypeRef type = LLVMTypeOf(at);
    LLVMValueRef none = LLVMBuildICmp(r->builder, LLVMIntEQ, at, constant_int(type, no_position(inst)), "");
    return select_value(r, none, constant_int(type, 0), at);
}

/* NaN where some was seen, also in the scalar tail. */
static LLVMValueRef with_nan(Render *r, const Slot *s, LLVMValueRef value) {
    DType dtype = argument_dtype(r, s->inst);
    LLVMTypeRef type = watch_type(r, dtype, r->vector_lanes);
    LLVMValueRef seen = LLVMBuildLoad2(r->builder, type, s->unordered[0], "");
    for (int n = 1; n < r->accumulators; n++)
        seen = LLVMBuildOr(r->builder, seen, LLVMBuildLoad2(r->builder, type, s->unordered[n], ""), "");
    if (!r->isa.avx512) seen = LLVMBuildICmp(r->builder, LLVMIntNE, seen, LLVMConstNull(type), "");
    LLVMValueRef nan = constant_real(LLVMTypeOf(value), __builtin_nan(""));
    value = select_value(r, any_lane(r, seen), nan, value);
    if (!has_scalar_tail(r)) return value;
    return combine(r, s->inst, LLVMBuildLoad2(r->builder, LLVMTypeOf(value), s->tail_accumulator, ""), value);
}

void reduce_finish(Render *r, int i) {
    Slot *s = &r->slots[i];
    const KernelInst *inst = s->inst;
    bool inner = r->class == CLASS_INNER,
         unrolled = inner || (r->lanes == r->vector_lanes && r->unroll == r->main_unroll);
    int lanes = inner ? r->vector_lanes : r->lanes, copies = inner ? 1 : r->unroll;
    LLVMTypeRef type = type_compute(r, argument_dtype(r, inst), lanes);
    for (int c = 0; c < copies; c++) {
        Pair p = load_pair(r, s->accumulator[c], s->position[c], type);
        for (int n = c + copies; unrolled && n < r->accumulators; n += copies)
            p = merge(r, inst, p, load_pair(r, s->accumulator[n], s->position[n], type));
        if (!inner && is_chunked(r, i, inst->stage)) p = merge(r, inst, p, load_pair(r, s->total[c], NULL, type));
        if (inner) p = across_lanes(r, inst, p, lanes);
        if (watches_nan(r, inst)) {
            slot_set(r, i, c, with_nan(r, s, p.value));
            continue;
        }
        if (inner && has_scalar_tail(r))
            p = merge(r, inst, p, load_pair(r, s->tail_accumulator, s->tail_position, type_element(type)));
        slot_set(r, i, c, p.at ? position_or_zero(r, inst, p.at) : p.value);
    }
}
