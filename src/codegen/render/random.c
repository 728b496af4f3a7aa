/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10, as philox_u32 and philox_half_u32 of graph/prim.c define it. 64 elements in a row share 16 counters of
 * four words, or 8 whose words serve twice: the rounds run once for such a group, or for two of them, which then hide each
 * other's latency (a GELU with dropout from the second cache is 1.2 times as fast as with one). The words go to memory, where
 * the loop over the group's elements finds them: so its copies are as many as there are registers for. Elsewhere (tails, groups
 * that begin elsewhere) the word of each lane is computed by itself. */
#include "codegen/render/render.h"

#include <stdio.h>

enum { WORD_BYTES = 4 };

typedef struct Words {
    IrValue w[4];
} Words;

/* x times a constant, of the low words of 64-bit lanes: one instruction where the hardware multiplies so. */
static IrValue wide_product(Render *r, IrValue x, uint32_t by) {
    IrType wide = ir_type(x);
    IrValue word = build_and(r->builder, x, constant_int(r, wide, 0xffffffff));
    return build_mul(r->builder, word, constant_int(r, wide, by));
}

/* The key goes into the word, which is there before the product is: so a round's chain is one instruction shorter. */
static IrValue mixed(Render *r, IrValue product, IrValue word, IrValue key) {
    IrType wide = ir_type(product);
    IrValue high = build_lshr(r->builder, product, constant_int(r, wide, 32));
    key = splat(r, build_cast(r->builder, IR_ZEXT, key, IR_I64), type_lane_count(wide));
    return build_xor(r->builder, high, build_xor(r->builder, word, key));
}

/* From the low and high halves of counters, w[0] and w[1] of `count` vectors, to their four words. Each word stands in
 * the low half of a 64-bit lane all the way, whatever is above it: so no round moves words between lanes. The vectors'
 * rounds alternate, for each is one chain of ten. */
static void rounds_of(Render *r, IrValue seed, Words *vectors, int count) {
    IrBuilder *b = r->builder;
    for (int n = 0; n < count; n++) vectors[n].w[2] = vectors[n].w[3] = zero_of(r, ir_type(vectors[n].w[0]));
    IrValue key0 = build_cast(b, IR_CUT, seed, IR_I32);
    IrValue key1 = build_cast(b, IR_CUT, build_lshr(b, seed, constant_i64(r, 32)), IR_I32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        for (int n = 0; n < count; n++) {
            IrValue *c = vectors[n].w, product0 = wide_product(r, c[0], PHILOX_FACTOR_0);
            IrValue product1 = wide_product(r, c[2], PHILOX_FACTOR_1);
            c[0] = mixed(r, product1, c[1], key0);
            c[2] = mixed(r, product0, c[3], key1);
            c[1] = product1;
            c[3] = product0;
        }
        key0 = build_add(b, key0, constant_int(r, IR_I32, PHILOX_STEP_0));
        key1 = build_add(b, key1, constant_int(r, IR_I32, (int32_t)PHILOX_STEP_1));
    }
}

/* Vectors of a register's length: all at once where registers hold them, else two, whose counters make one line. (AVX2, an AMD EPYC of family 25,
 * two threads, `bench_kernels`, medians of 6 rounds, November 2026: a GELU with dropout takes 0.67 of the time that it takes with all at once,
 * bias, dropout, residual and LayerNorm 0.63; with three 1.04 and 1.08 of that, with four 1.15 and 1.2, by what then goes over the stack.) */
static void rounds(Render *r, IrValue seed, Words *vectors, int count) {
    int some = render_has_32_registers(r) || count < 2 ? count : 2;
    for (int n = 0; n < count; n += some) rounds_of(r, seed, vectors + n, some);
}

/* --- each lane by itself --- */

/* philox_half_place */
static IrValue half_place(Render *r, IrValue index) {
    IrBuilder *b = r->builder;
    IrType wide = ir_type(index);
    IrValue high = build_shl(b, build_lshr(b, index, constant_int(r, wide, 7)), constant_int(r, wide, 6));
    IrValue second = build_and(b, build_lshr(b, index, constant_int(r, wide, 3)), constant_int(r, wide, 8));
    IrValue word = build_and(b, index, constant_int(r, wide, 0x30));
    IrValue pair = build_and(b, build_lshr(b, index, constant_int(r, wide, 1)), constant_int(r, wide, 7));
    return build_or(b, build_or(b, high, second), build_or(b, word, pair));
}

/* Of odd elements with its halves swapped. */
static IrValue half_word(Render *r, IrValue word, IrValue index) {
    IrBuilder *b = r->builder;
    IrType type = ir_type(word);
    IrValue distance = constant_int(r, type, 16),
            odd = build_and(b, build_cast(b, IR_CUT, index, type), constant_int(r, type, 1));
    IrValue swapped = build_or(b, build_shl(b, word, distance), build_lshr(b, word, distance));
    return build_select(b, build_compare(b, IR_NE, odd, zero_of(r, type)), swapped, word);
}

static IrValue word_of(Render *r, IrValue seed, IrValue index) {
    IrBuilder *b = r->builder;
    IrType wide = ir_type(index), type = type_lanes(IR_I32, type_lane_count(wide));
    IrValue group = build_shl(b, build_lshr(b, index, constant_int(r, wide, 6)), constant_int(r, wide, 4));
    IrValue counter = build_or(b, group, build_and(b, index, constant_int(r, wide, 15)));
    Words words = {{counter, build_lshr(b, counter, constant_int(r, wide, 32))}};
    rounds(r, seed, &words, 1);
    IrValue which = build_cast(b, IR_CUT, build_lshr(b, index, constant_int(r, wide, 4)), type);
    which = build_and(b, which, constant_int(r, type, 3));
    IrValue result = build_cast(b, IR_CUT, words.w[0], type);
    for (int n = 1; n < 4; n++) {
        IrValue is = build_compare(b, IR_EQ, which, constant_int(r, type, n));
        result = build_select(b, is, build_cast(b, IR_CUT, words.w[n], type), result);
    }
    return result;
}

static IrValue bits_of(Render *r, IrValue seed, IrValue index, bool halves) {
    return halves ? half_word(r, word_of(r, seed, half_place(r, index)), index) : word_of(r, seed, index);
}

static IrValue call_word(Render *r, IrValue seed, IrValue index, bool halves) {
    char name[32];
    int lanes = type_lane_count(ir_type(index));
    IrType result = type_lanes(IR_I32, lanes), parameters[] = {IR_I64, type_lanes(IR_I64, lanes)};
    IrValue arguments[] = {seed, index};
    snprintf(name, sizeof name, "philox_%s%d", halves ? "half_" : "", lanes);
    if (build_function_begin(r->builder, name, result, parameters, 2)) {
        IrValue own_seed = build_parameter(r->builder, 0), own_index = build_parameter(r->builder, 1);
        build_function_end(r->builder, bits_of(r, own_seed, own_index, halves));
    }
    IrValue words = build_call(r->builder, name, arguments, 2);
    return words ? words : bits_of(r, seed, index, halves);
}

/* --- groups --- */

bool random_in_groups(const Render *r, int inst) {
    const Slot *s = &r->slots[inst];
    bool outer = r->class == CLASS_OUTER && !r->kernel->band;
    return s->inst->op == K_RANDOM && s->inst->bits & RANDOM_CONSECUTIVE && s->vectorial && !outer &&
           r->class != CLASS_TILE && r->vector_lanes > 1 && r->vector_lanes <= RANDOM_COUNTERS;
}

static bool is_drawn(const Render *r, int stage, int inst) {
    const KernelInst *random = render_inst(r, inst);
    bool kept = random->keep && random->stage < stage;
    return random_in_groups(r, inst) && r->needed[stage][inst] && !kept &&
           (r->class != CLASS_OUTER || r->bands.phase == BANDS_SUM);
}

bool random_in_stage(const Render *r, int stage) {
    for (int i = 0; i < r->kernel->insts.count; i++)
        if (is_drawn(r, stage, i)) return true;
    return false;
}

/* Words of even and of odd counters, in the low halves of 64-bit lanes, as one vector. */
static IrValue interleaved(Render *r, IrValue even, IrValue odd) {
    IrType wide = ir_type(even), words = type_lanes(IR_I32, 2 * type_lane_count(wide));
    IrValue high = build_shl(r->builder, odd, constant_int(r, wide, 32));
    int at[RANDOM_COUNTERS], count = type_lane_count(words);
    for (int i = 0; i < count; i++) at[i] = i + (i & 1 ? count : 0);
    return build_shuffle(r->builder, build_cast(r->builder, IR_BITS, even, words),
                         build_cast(r->builder, IR_BITS, high, words), at, count);
}

/* Words in the low halves of 64-bit lanes, each followed by itself with its halves swapped. */
static IrValue paired(Render *r, IrValue words) {
    int at[2 * RANDOM_COUNTERS], count = 4 * type_lane_count(ir_type(words));
    IrType quarters = type_lanes(IR_I16, count);
    for (int i = 0; i < count; i++) at[i] = i / 4 * 4 + (i % 4 == 1 || i % 4 == 2);
    words = build_cast(r->builder, IR_BITS, words, quarters);
    words = build_shuffle(r->builder, words, words, at, count);
    return build_cast(r->builder, IR_BITS, words, type_lanes(IR_I32, count / 2));
}

/* The words of the present group, whose first counts as `first`, a multiple of 64: so its counters begin at a multiple of 8 or
 * of 16. Of whole ones they stand in two vectors, the even and the odd ones. A part is what one register, or two, have of a group's
 * counters. */
static void draw_together(Render *r, const KernelInst *inst, IrValue seed, IrValue first, IrValue memory) {
    enum { LANES = RANDOM_COUNTERS / 2 };
    IrBuilder *b = r->builder;
    Words words[2 * MOST_GROUPS * LANES];
    bool halves = inst->bits & RANDOM_HALVES;
    int vectors = halves ? 1 : 2, lanes = r->isa.vector_bytes < 8 * LANES ? r->isa.vector_bytes / 8 : LANES;
    int parts = r->group / RANDOM_GROUP * LANES / lanes, each = LANES / lanes;
    for (int n = 0; n < vectors * parts; n++) {
        int64_t own[LANES];
        int part = n / vectors;
        IrValue start = build_add(b, first, constant_i64(r, part / each * RANDOM_GROUP));
        IrValue counter = build_lshr(b, start, constant_i64(r, halves ? 3 : 2));
        for (int i = 0; i < lanes; i++) own[i] = vectors * (part % each * lanes + i) + n % vectors;
        words[n].w[0] = build_or(b, splat(r, counter, lanes), ir_vector(b, ir_lanes(IR_I64, lanes), own));
        words[n].w[1] = splat(r, build_lshr(b, counter, constant_i64(r, 32)), lanes);
    }
    rounds(r, seed, words, vectors * parts);
    for (int part = 0; part < parts; part++)
        for (int n = 0; n < 4; n++) {
            const Words *own = &words[part * vectors];
            IrValue all = halves ? paired(r, own->w[n]) : interleaved(r, own[0].w[n], own[1].w[n]);
            int64_t at = part / each * RANDOM_GROUP + n * RANDOM_COUNTERS + part % each * 2 * lanes;
            build_store(b, all, build_offset(b, memory, constant_i64(r, at), WORD_BYTES), 0);
        }
}

static void draw_apart(Render *r, const KernelInst *inst, IrValue seed, IrValue first, IrValue memory) {
    IrBuilder *b = r->builder;
    Loop loop = loop_begin(r, constant_i64(r, 0), constant_i64(r, r->group), r->vector_lanes);
    IrValue begin = build_add(b, first, loop.index);
    IrValue index = build_add(b, splat(r, begin, r->vector_lanes), lane_iota(r, IR_I64, r->vector_lanes));
    IrValue words = call_word(r, seed, index, inst->bits & RANDOM_HALVES);
    build_store(b, words, build_offset(b, memory, loop.index, WORD_BYTES), 0);
    loop_end(r, &loop);
}

/* Of the element at the present indices: sums and products of these and of strides. */
static IrValue number_of(Render *r, int inst) {
    const Slot *s = &r->slots[inst];
    IrValue values[3];
    if (s->inst->op == K_INDEX) return r->index[s->inst->axis];
    if (!s->axes) return s->scalar;
    for (int n = 0; n < render_op_args(s->inst->op); n++) values[n] = number_of(r, s->inst->args[n]);
    return render_arithmetic(r, s->inst, values);
}

void random_begin(Render *r, int stage) {
    IrBuilder *b = r->builder;
    IrType line = type_lanes(IR_I32, RANDOM_COUNTERS); /* as wide as any vector, and so aligned for all */
    int lanes = r->lanes;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        if (!is_drawn(r, stage, i)) continue;
        const KernelInst *inst = render_inst(r, i);
        IrValue seed = r->slots[inst->args[0]].scalar, memory = build_variable(b, line, r->group / RANDOM_COUNTERS);
        r->lanes = 1;
        IrValue first = number_of(r, inst->args[1]);
        r->lanes = lanes;
        IrBlock together = build_block_new(b, "group"), apart = build_block_new(b, "apart");
        IrBlock after = build_block_new(b, "drawn");
        IrValue offset = build_and(b, first, constant_i64(r, RANDOM_GROUP - 1));
        build_condbr(b, build_compare(b, IR_EQ, offset, constant_i64(r, 0)), together, apart);
        build_at(b, together);
        draw_together(r, inst, seed, first, memory);
        build_br(b, after);
        build_at(b, apart);
        draw_apart(r, inst, seed, first, memory);
        build_br(b, after);
        build_at(b, after);
        r->slots[i].drawn = memory;
    }
}

void random_end(Render *r) {
    for (int i = 0; i < r->kernel->insts.count; i++) r->slots[i].drawn = NULL;
}

/* Of the present elements. */
static IrValue drawn_words(Render *r, IrValue memory, int copy) {
    IrValue first = build_offset(r->builder, memory, r->in_group, WORD_BYTES);
    IrValue at = build_offset(r->builder, first, constant_i64(r, (int64_t)copy * r->lanes), WORD_BYTES);
    return build_load(r->builder, type_lanes(IR_I32, r->lanes), at, 0);
}

void render_random(Render *r, int i) {
    const Slot *s = &r->slots[i];
    IrValue seed = r->slots[s->inst->args[0]].scalar; /* one for all elements: it is loaded outside the lanes */
    int copies = s->vectorial ? r->unroll : 1;
    for (int c = 0; c < copies; c++) {
        if (s->drawn) {
            slot_set(r, i, c, drawn_words(r, s->drawn, c));
            continue;
        }
        IrValue index = s->vectorial ? slot_value(r, s->inst->args[1], c) : r->slots[s->inst->args[1]].scalar;
        slot_set(r, i, c, call_word(r, seed, index, s->inst->bits & RANDOM_HALVES));
    }
}
