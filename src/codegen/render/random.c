/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10, as philox_u32 and philox_half_u32 of graph/prim.c define it. 64 elements in a row share 16 counters of
 * four words, or 8 whose words serve twice: where an unrolled loop covers such a group, or two of them, whose rounds then
 * hide each other's latency (a GELU with dropout from the second cache is 1.2 times as fast as with one), the rounds run
 * once for all of it; elsewhere (tails, groups that begin elsewhere) a function computes the word of each lane. */
#include "codegen/render/render.h"

#include <stdio.h>

typedef struct Words {
    IrValue w[4];
} Words;

/* x times a constant, of the low words of 64-bit lanes: one instruction where the hardware multiplies so. */
static IrValue wide_product(Render *r, IrValue x, uint32_t by) {
    IrType wide = ir_type(x);
    IrValue word = build_and(r->builder, x, constant_int(r, wide, 0xffffffff));
    return build_mul(r->builder, word, constant_int(r, wide, by));
}

static IrValue mixed(Render *r, IrValue product, IrValue word, IrValue key) {
    IrType wide = ir_type(product);
    IrValue high = build_lshr(r->builder, product, constant_int(r, wide, 32));
    key = splat(r, build_cast(r->builder, IR_ZEXT, key, IR_I64), type_lane_count(wide));
    return build_xor(r->builder, build_xor(r->builder, high, word), key);
}

/* From the low and high halves of counters, w[0] and w[1] of `count` vectors, to their four words. Each word stands in
 * the low half of a 64-bit lane all the way, whatever is above it: so no round moves words between lanes. The vectors'
 * rounds alternate, for each is one chain of ten. */
static void rounds(Render *r, IrValue seed, Words *vectors, int count) {
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

/* --- a group at once --- */

bool render_shares_random(const Render *r) {
    bool outer = r->class == CLASS_OUTER && !r->kernel->band;
    if (outer || r->class == CLASS_TILE || r->vector_lanes > RANDOM_COUNTERS) return false;
    if (RANDOM_GROUP / r->vector_lanes > MAX_UNROLL) return false;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (s->inst->op == K_RANDOM && s->inst->bits & RANDOM_CONSECUTIVE && s->vectorial) return true;
    }
    return false;
}

/* Lanes [from, from + lanes) of a vector of 16. */
static IrValue part_of(Render *r, IrValue vector, int from, int lanes) {
    int at[RANDOM_COUNTERS];
    if (lanes == RANDOM_COUNTERS) return vector;
    if (lanes == 1) return build_extract(r->builder, vector, from);
    for (int i = 0; i < lanes; i++) at[i] = from + i;
    return build_shuffle(r->builder, vector, vector, at, lanes);
}

/* Words of even and of odd counters, in the low halves of 64-bit lanes, as one vector. */
static IrValue interleaved(Render *r, IrValue even, IrValue odd) {
    IrType wide = ir_type(even), words = type_lanes(IR_I32, RANDOM_COUNTERS);
    IrValue high = build_shl(r->builder, odd, constant_int(r, wide, 32));
    int at[RANDOM_COUNTERS];
    for (int i = 0; i < RANDOM_COUNTERS; i++) at[i] = i + (i & 1 ? RANDOM_COUNTERS : 0);
    return build_shuffle(r->builder, build_cast(r->builder, IR_BITS, even, words),
                         build_cast(r->builder, IR_BITS, high, words), at, RANDOM_COUNTERS);
}

/* Words in the low halves of 64-bit lanes, each followed by itself with its halves swapped. */
static IrValue paired(Render *r, IrValue words) {
    enum { QUARTERS = 2 * RANDOM_COUNTERS };
    IrType quarters = type_lanes(IR_I16, QUARTERS);
    int at[QUARTERS];
    for (int i = 0; i < QUARTERS; i++) at[i] = i / 4 * 4 + (i % 4 == 1 || i % 4 == 2);
    words = build_cast(r->builder, IR_BITS, words, quarters);
    words = build_shuffle(r->builder, words, words, at, QUARTERS);
    return build_cast(r->builder, IR_BITS, words, type_lanes(IR_I32, RANDOM_COUNTERS));
}

/* The words of groups. Of whole ones the counters stand in two vectors, the even and the odd ones. */
static void group_words(Render *r, IrValue seed, IrValue first, int groups, bool halves, IrValue *out_copies) {
    enum { LANES = RANDOM_COUNTERS / 2 };
    IrBuilder *b = r->builder;
    Words words[2 * MOST_GROUPS];
    int vectors = halves ? 1 : 2;
    for (int n = 0; n < vectors * groups; n++) { /* first is a multiple of 64, the counter of 8 or 16 */
        int64_t own[LANES];
        IrValue start = build_add(b, first, constant_i64(r, n / vectors * RANDOM_GROUP));
        IrValue counter = build_lshr(b, start, constant_i64(r, halves ? 3 : 2));
        for (int i = 0; i < LANES; i++) own[i] = vectors * i + n % vectors;
        words[n].w[0] = build_or(b, splat(r, counter, LANES), ir_vector(b, ir_lanes(IR_I64, LANES), own));
        words[n].w[1] = splat(r, build_lshr(b, counter, constant_i64(r, 32)), LANES);
    }
    rounds(r, seed, words, vectors * groups);
    IrValue all[4 * MOST_GROUPS];
    for (int n = 0; n < 4 * groups; n++) {
        const Words *own = &words[n / 4 * vectors];
        all[n] = halves ? paired(r, own->w[n % 4]) : interleaved(r, own[0].w[n % 4], own[1].w[n % 4]);
    }
    for (int c = 0; c < r->unroll; c++) {
        int element = c * r->lanes;
        out_copies[c] = part_of(r, all[element / RANDOM_COUNTERS], element % RANDOM_COUNTERS, r->lanes);
    }
}

static void render_group(Render *r, int inst, IrValue seed, IrValue first) {
    bool halves = r->slots[inst].inst->bits & RANDOM_HALVES;
    IrValue fast[MAX_UNROLL], slow[MAX_UNROLL];
    IrBlock together = build_block_new(r->builder, "group");
    IrBlock apart = build_block_new(r->builder, "apart");
    IrBlock after = build_block_new(r->builder, "drawn");
    IrValue offset = build_and(r->builder, first, constant_i64(r, RANDOM_GROUP - 1));
    build_condbr(r->builder, build_compare(r->builder, IR_EQ, offset, constant_i64(r, 0)), together, apart);
    build_at(r->builder, together);
    group_words(r, seed, first, r->unroll * r->lanes / RANDOM_GROUP, halves, fast);
    build_br(r->builder, after);
    build_at(r->builder, apart);
    for (int c = 0; c < r->unroll; c++)
        slow[c] = call_word(r, seed, slot_value(r, r->slots[inst].inst->args[1], c), halves);
    build_br(r->builder, after);
    build_at(r->builder, after);
    for (int c = 0; c < r->unroll; c++) {
        IrValue phi = build_phi(r->builder, ir_type(fast[c]));
        phi_add(phi, fast[c], together);
        phi_add(phi, slow[c], apart);
        slot_set(r, inst, c, phi);
    }
}

void render_random(Render *r, int i) {
    const Slot *s = &r->slots[i];
    IrValue seed = r->slots[s->inst->args[0]].scalar; /* one for all elements: it is loaded outside the lanes */
    bool group = s->vectorial && s->inst->bits & RANDOM_CONSECUTIVE && !r->mask &&
                 r->unroll * r->lanes % RANDOM_GROUP == 0 && r->lanes <= RANDOM_COUNTERS;
    if (group) {
        IrValue index = slot_value(r, s->inst->args[1], 0);
        if (r->lanes > 1) index = build_extract(r->builder, index, 0);
        render_group(r, i, seed, index);
        return;
    }
    int copies = s->vectorial ? r->unroll : 1;
    for (int c = 0; c < copies; c++) {
        IrValue index = s->vectorial ? slot_value(r, s->inst->args[1], c) : r->slots[s->inst->args[1]].scalar;
        slot_set(r, i, c, call_word(r, seed, index, s->inst->bits & RANDOM_HALVES));
    }
}
