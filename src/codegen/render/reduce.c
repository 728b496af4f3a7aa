/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions: accumulators in registers (allocas that mem2reg promotes), several of them so that their latencies
 * overlap. */
#include "codegen/render/render.h"

static bool is_position(KernelOp op) { return op == K_REDUCE_ARGMAX || op == K_REDUCE_ARGMIN; }
static bool wants_greater(KernelOp op) { return op == K_REDUCE_ARGMAX || op == K_REDUCE_MAX; }

static DType argument_dtype(const Render *r, const KernelInst *inst) { return r->slots[inst->args[0]].inst->dtype; }

static IrValue neutral(Render *r, const KernelInst *inst, int lanes) {
    DType dtype = argument_dtype(r, inst);
    IrType type = type_compute(r, dtype, lanes);
    bool most = !wants_greater(inst->op), is_float = dtype_is_float(dtype);
    if (inst->op == K_REDUCE_SUM || inst->op == K_REDUCE_PROD) {
        int start = inst->op == K_REDUCE_PROD;
        return is_float ? constant_real(r, type, start) : constant_int(r, type, start);
    }
    if (is_float) return constant_real(r, type, most ? __builtin_inf() : -__builtin_inf());
    if (dtype_class(dtype) != DTYPE_SIGNED) return most ? ones_of(r, type) : zero_of(r, type);
    int bits = 8 * (int)dtype_size(dtype);
    int64_t least = (int64_t)((uint64_t)-1 << (bits - 1));
    return constant_int(r, type, most ? ~least : least);
}

static IrValue select_value(Render *r, IrValue condition, IrValue a, IrValue b) {
    return build_select(r->builder, condition, a, b);
}

static IrValue unordered(Render *r, IrValue a) { return build_compare(r->builder, IR_FUNO, a, a); }

/* a better than b, without regard to NaN. */
static IrValue better(Render *r, const KernelInst *inst, IrValue a, IrValue b) {
    bool greater = wants_greater(inst->op);
    DType dtype = argument_dtype(r, inst);
    if (dtype_is_float(dtype)) return build_compare(r->builder, greater ? IR_FOGT : IR_FOLT, a, b);
    bool is_signed = dtype_class(dtype) == DTYPE_SIGNED;
    IrCompare predicate = greater ? (is_signed ? IR_SGT : IR_UGT) : is_signed ? IR_SLT : IR_ULT;
    return build_compare(r->builder, predicate, a, b);
}

/* Maxima and minima of floats along lanes: the instruction passes NaN over, and one comparison of two vectors with each
 * other sees whether either has some. */
static bool watches_nan(const Render *r, const KernelInst *inst) {
    bool extreme = inst->op == K_REDUCE_MAX || inst->op == K_REDUCE_MIN;
    return extreme && r->class == CLASS_INNER && dtype_is_float(argument_dtype(r, inst));
}

/* b when neither is better, so too when either is NaN. */
static IrValue better_of(Render *r, const KernelInst *inst, IrValue a, IrValue b) {
    return select_value(r, better(r, inst, a, b), a, b);
}

/* Masks where the hardware has registers for them, else words as wide as the values. */
static IrType watch_type(Render *r, DType dtype, int lanes) {
    return type_lanes(r->isa.avx512 ? IR_I1 : dtype == DT_F64 ? IR_I64 : IR_I32, lanes);
}

static IrValue watched(Render *r, IrValue condition, DType dtype) {
    IrType type = watch_type(r, dtype, type_lane_count(ir_type(condition)));
    return ir_type(condition) == type ? condition : build_cast(r->builder, IR_SEXT, condition, type);
}

static IrValue combine(Render *r, const KernelInst *inst, IrValue a, IrValue b) {
    DType dtype = argument_dtype(r, inst);
    bool is_float = dtype_is_float(dtype);
    switch (inst->op) {
    case K_REDUCE_SUM:
        if (dtype == DT_BOOL) return build_or(r->builder, a, b);
        return is_float ? build_fadd(r->builder, a, b) : build_add(r->builder, a, b);
    case K_REDUCE_PROD:
        if (dtype == DT_BOOL) return build_and(r->builder, a, b);
        return is_float ? build_fmul(r->builder, a, b) : build_mul(r->builder, a, b);
    default: break;
    }
    IrValue best = better_of(r, inst, a, b);
    return is_float ? select_value(r, unordered(r, a), a, best) : best;
}

/* Whether (b, at_b) takes the place of (a, at_a) when positions may stand in any order. */
static IrValue takes_place(Render *r, const KernelInst *inst, IrValue a, IrValue at_a, IrValue b, IrValue at_b) {
    IrCompare side = inst->bits ? IR_SGT : IR_SLT;
    IrValue sooner = build_compare(r->builder, side, at_b, at_a), wins = better(r, inst, b, a), tie;
    if (!dtype_is_float(argument_dtype(r, inst))) {
        tie = build_compare(r->builder, IR_EQ, a, b);
    } else {
        IrValue nan_a = unordered(r, a), nan_b = unordered(r, b);
        tie = build_or(r->builder, build_compare(r->builder, IR_FOEQ, a, b), build_and(r->builder, nan_a, nan_b));
        IrValue fresh = build_and(r->builder, nan_b, build_not(r->builder, nan_a));
        wins = build_or(r->builder, wins, fresh);
    }
    return build_or(r->builder, wins, build_and(r->builder, tie, sooner));
}

/* As above where b stands behind a. */
static IrValue takes_place_behind(Render *r, const KernelInst *inst, IrValue a, IrValue b) {
    bool last = inst->bits != 0;
    if (!dtype_is_float(argument_dtype(r, inst)))
        return last ? build_not(r->builder, better(r, inst, a, b)) : better(r, inst, b, a);
    bool greater = wants_greater(inst->op);
    IrCompare predicate = last ? (greater ? IR_FUGE : IR_FULE) : greater ? IR_FUGT : IR_FULT;
    IrValue wins = build_compare(r->builder, predicate, b, a); /* also when either is NaN */
    IrValue number = build_compare(r->builder, IR_FORD, a, a);
    if (last) number = build_or(r->builder, number, unordered(r, b));
    return build_and(r->builder, wins, number);
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
        s->accumulator[n] = slot_alloca(r, type_compute(r, dtype, lanes));
        build_store(r->builder, neutral(r, inst, lanes), s->accumulator[n], 0);
        if (watches_nan(r, inst)) {
            s->unordered[n] = slot_alloca(r, watch_type(r, dtype, lanes));
            build_store(r->builder, zero_of(r, watch_type(r, dtype, lanes)), s->unordered[n], 0);
        }
        if (!is_position(inst->op)) continue;
        IrType type = type_lanes(IR_I64, lanes);
        s->position[n] = slot_alloca(r, type);
        build_store(r->builder, constant_int(r, type, no_position(inst)), s->position[n], 0);
    }
    for (int n = 0; n < r->unroll && is_chunked(r, i, inst->stage); n++) {
        s->total[n] = slot_alloca(r, type_compute(r, dtype, lanes));
        build_store(r->builder, neutral(r, inst, lanes), s->total[n], 0);
    }
    if (!has_scalar_tail(r)) return;
    s->tail_accumulator = slot_alloca(r, type_compute(r, dtype, 1));
    build_store(r->builder, neutral(r, inst, 1), s->tail_accumulator, 0);
    if (!is_position(inst->op)) return;
    s->tail_position = slot_alloca(r, IR_I64);
    build_store(r->builder, constant_i64(r, no_position(inst)), s->tail_position, 0);
}

void reduce_take(Render *r, int i, int copy, IrValue value) {
    Slot *s = &r->slots[i];
    IrValue old = build_load(r->builder, ir_type(value), s->accumulator[copy], 0);
    build_store(r->builder, combine(r, s->inst, old, value), s->accumulator[copy], 0);
}

static IrValue here(Render *r, int level, int copy) {
    if (r->class != CLASS_INNER) return splat(r, r->flat[level], r->lanes);
    IrValue base = build_add(r->builder, r->flat[level], constant_i64(r, (int64_t)copy * r->lanes));
    return build_add(r->builder, splat(r, base, r->lanes), lane_iota(r, IR_I64, r->lanes));
}

/* Copies two at a time; a copy that is left over is compared with itself. */
static void watch_nan(Render *r, Slot *s) {
    DType dtype = argument_dtype(r, s->inst);
    for (int c = 0; c < r->unroll; c += 2) {
        IrValue memory = s->unordered[r->accumulator_base + c];
        IrValue a = slot_value(r, s->inst->args[0], c),
                b = c + 1 < r->unroll ? slot_value(r, s->inst->args[0], c + 1) : a;
        IrValue some = build_compare(r->builder, IR_FUNO, a, b);
        if (r->mask) some = build_and(r->builder, some, r->mask);
        some = watched(r, some, dtype);
        IrValue old = build_load(r->builder, ir_type(some), memory, 0);
        build_store(r->builder, build_or(r->builder, old, some), memory, 0);
    }
}

void reduce_step(Render *r, int i, int level) {
    Slot *s = &r->slots[i];
    const KernelInst *inst = s->inst;
    bool tail = r->lanes == 1 && has_scalar_tail(r), watch = watches_nan(r, inst) && !tail;
    if (watch) watch_nan(r, s);
    for (int c = 0; c < r->unroll; c++) {
        IrValue memory = tail ? s->tail_accumulator : s->accumulator[r->accumulator_base + c];
        IrValue value = slot_value(r, inst->args[0], c);
        IrValue old = build_load(r->builder, ir_type(value), memory, 0), fresh;
        if (!is_position(inst->op)) {
            fresh = watch ? better_of(r, inst, value, old) : combine(r, inst, old, value);
            if (r->mask && r->class == CLASS_INNER) fresh = select_value(r, r->mask, fresh, old);
            build_store(r->builder, fresh, memory, 0);
            continue;
        }
        IrValue at_memory = tail ? s->tail_position : s->position[r->accumulator_base + c], at = here(r, level, c);
        IrValue at_old = build_load(r->builder, ir_type(at), at_memory, 0);
        IrValue take = takes_place_behind(r, inst, old, value);
        if (r->mask && r->class == CLASS_INNER) take = build_and(r->builder, take, r->mask);
        build_store(r->builder, select_value(r, take, value, old), memory, 0);
        build_store(r->builder, select_value(r, take, at, at_old), at_memory, 0);
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
        IrType type = type_compute(r, argument_dtype(r, s->inst), r->lanes);
        bool all = r->lanes == r->vector_lanes && r->unroll == r->main_unroll;
        for (int n = 0; n < (all ? r->accumulators : r->unroll); n++) {
            IrValue sum = build_load(r->builder, type, s->accumulator[n], 0);
            IrValue total = build_load(r->builder, type, s->total[n % r->unroll], 0);
            build_store(r->builder, build_fadd(r->builder, total, sum), s->total[n % r->unroll], 0);
            build_store(r->builder, neutral(r, s->inst, r->lanes), s->accumulator[n], 0);
        }
    }
}

typedef struct Pair {
    IrValue value, at; /* at: NULL for plain reductions */
} Pair;

static Pair merge(Render *r, const KernelInst *inst, Pair a, Pair b) {
    if (watches_nan(r, inst)) return (Pair){better_of(r, inst, a.value, b.value), NULL};
    if (!a.at) return (Pair){combine(r, inst, a.value, b.value), NULL};
    IrValue take = takes_place(r, inst, a.value, a.at, b.value, b.at);
    return (Pair){select_value(r, take, b.value, a.value), select_value(r, take, b.at, a.at)};
}

static Pair load_pair(Render *r, IrValue value, IrValue at, IrType type) {
    IrType position = type_lanes(IR_I64, type_lane_count(type));
    return (Pair){build_load(r->builder, type, value, 0), at ? build_load(r->builder, position, at, 0) : NULL};
}

static IrValue half_of(Render *r, IrValue vector, int lanes, int from) {
    int at[MAX_LANES];
    for (int n = 0; n < lanes; n++) at[n] = from + n;
    if (lanes == 1) return build_extract(r->builder, vector, from);
    return build_shuffle(r->builder, vector, vector, at, lanes);
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
static IrValue position_or_zero(Render *r, const KernelInst *inst, IrValue at) {
    IrType type = ir_type(at);
    IrValue none = build_compare(r->builder, IR_EQ, at, constant_int(r, type, no_position(inst)));
    return select_value(r, none, constant_int(r, type, 0), at);
}

/* NaN where some was seen, also in the scalar tail. */
static IrValue with_nan(Render *r, const Slot *s, IrValue value) {
    DType dtype = argument_dtype(r, s->inst);
    IrType type = watch_type(r, dtype, r->vector_lanes);
    IrValue seen = build_load(r->builder, type, s->unordered[0], 0);
    for (int n = 1; n < r->accumulators; n++)
        seen = build_or(r->builder, seen, build_load(r->builder, type, s->unordered[n], 0));
    if (!r->isa.avx512) seen = build_compare(r->builder, IR_NE, seen, zero_of(r, type));
    IrValue nan = constant_real(r, ir_type(value), __builtin_nan(""));
    value = select_value(r, any_lane(r, seen), nan, value);
    if (!has_scalar_tail(r)) return value;
    return combine(r, s->inst, build_load(r->builder, ir_type(value), s->tail_accumulator, 0), value);
}

void reduce_finish(Render *r, int i) {
    Slot *s = &r->slots[i];
    const KernelInst *inst = s->inst;
    bool inner = r->class == CLASS_INNER,
         unrolled = inner || (r->lanes == r->vector_lanes && r->unroll == r->main_unroll);
    int lanes = inner ? r->vector_lanes : r->lanes, copies = inner ? 1 : r->unroll;
    IrType type = type_compute(r, argument_dtype(r, inst), lanes);
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
