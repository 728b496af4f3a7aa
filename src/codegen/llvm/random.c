/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10, as philox_u32 of graph/prim.c defines it. 64 elements in a row share 16 counters of four words: where
 * an unrolled loop covers such a group, or two of them, whose rounds then hide each other's latency (a GELU with dropout
 * from the second cache is 1.2 times as fast as with one), the rounds run once for all of it; elsewhere (tails, groups
 * that begin elsewhere) a function computes the word of each lane. */
#include "codegen/llvm/render.h"

#include <stdio.h>

enum { ROUNDS = 10 };

typedef struct Words {
    LLVMValueRef w[4];
} Words;

/* x times a constant, of the low words of 64-bit lanes: one instruction where the hardware multiplies so. */
static LLVMValueRef wide_product(Render *r, LLVMValueRef x, uint32_t by) {
    LLVMTypeRef wide = LLVMTypeOf(x);
    LLVMValueRef word = LLVMBuildAnd(r->builder, x, constant_int(wide, 0xffffffff), "");
    return LLVMBuildMul(r->builder, word, constant_int(wide, by), "");
}

static LLVMValueRef mixed(Render *r, LLVMValueRef product, LLVMValueRef word, LLVMValueRef key) {
    LLVMTypeRef wide = LLVMTypeOf(product);
    LLVMValueRef high = LLVMBuildLShr(r->builder, product, constant_int(wide, 32), "");
    key = splat(r, LLVMBuildZExt(r->builder, key, r->i64, ""), type_lane_count(wide));
    return LLVMBuildXor(r->builder, LLVMBuildXor(r->builder, high, word, ""), key, "");
}

/* From the low and high halves of counters, w[0] and w[1] of `count` vectors, to their four words. Each word stands in
 * the low half of a 64-bit lane all the way, whatever is above it: so no round moves words between lanes. The vectors'
 * rounds alternate, for each is one chain of ten. */
static void rounds(Render *r, LLVMValueRef seed, Words *vectors, int count) {
    LLVMBuilderRef b = r->builder;
    for (int n = 0; n < count; n++) vectors[n].w[2] = vectors[n].w[3] = LLVMConstNull(LLVMTypeOf(vectors[n].w[0]));
    LLVMValueRef key0 = LLVMBuildTrunc(b, seed, r->i32, "");
    LLVMValueRef key1 = LLVMBuildTrunc(b, LLVMBuildLShr(b, seed, constant_i64(r, 32), ""), r->i32, "");
    for (int round = 0; round < ROUNDS; round++) {
        for (int n = 0; n < count; n++) {
            LLVMValueRef *c = vectors[n].w, product0 = wide_product(r, c[0], 0xD2511F53u);
            LLVMValueRef product1 = wide_product(r, c[2], 0xCD9E8D57u);
            c[0] = mixed(r, product1, c[1], key0);
            c[2] = mixed(r, product0, c[3], key1);
            c[1] = product1;
            c[3] = product0;
        }
        key0 = LLVMBuildAdd(b, key0, constant_int(r->i32, 0x9E3779B9), "");
        key1 = LLVMBuildAdd(b, key1, constant_int(r->i32, (int32_t)0xBB67AE85u), "");
    }
}

/* --- each lane by itself --- */

static LLVMValueRef word_of(Render *r, LLVMValueRef seed, LLVMValueRef index) {
    LLVMBuilderRef b = r->builder;
    LLVMTypeRef wide = LLVMTypeOf(index), type = type_lanes(r->i32, type_lane_count(wide));
    LLVMValueRef group = LLVMBuildShl(b, LLVMBuildLShr(b, index, constant_int(wide, 6), ""), constant_int(wide, 4), "");
    LLVMValueRef counter = LLVMBuildOr(b, group, LLVMBuildAnd(b, index, constant_int(wide, 15), ""), "");
    Words words = {{counter, LLVMBuildLShr(b, counter, constant_int(wide, 32), "")}};
    rounds(r, seed, &words, 1);
    LLVMValueRef which = LLVMBuildTrunc(b, LLVMBuildLShr(b, index, constant_int(wide, 4), ""), type, "");
    which = LLVMBuildAnd(b, which, constant_int(type, 3), "");
    LLVMValueRef result = LLVMBuildTrunc(b, words.w[0], type, "");
    for (int n = 1; n < 4; n++) {
        LLVMValueRef is = LLVMBuildICmp(b, LLVMIntEQ, which, constant_int(type, n), "");
        result = LLVMBuildSelect(b, is, LLVMBuildTrunc(b, words.w[n], type, ""), result, "");
    }
    return result;
}

static LLVMValueRef word_function(Render *r, int lanes, LLVMTypeRef *out_type) {
    char name[32];
    snprintf(name, sizeof name, "philox_%d", lanes);
    LLVMTypeRef parameters[] = {r->i64, type_lanes(r->i64, lanes)};
    *out_type = LLVMFunctionType(type_lanes(r->i32, lanes), parameters, 2, 0);
    LLVMValueRef function = LLVMGetNamedFunction(r->module, name);
    if (function) return function;
    function = LLVMAddFunction(r->module, name, *out_type);
    LLVMSetLinkage(function, LLVMInternalLinkage);
    function_attributes(r, function);
    LLVMBasicBlockRef here = LLVMGetInsertBlock(r->builder);
    LLVMPositionBuilderAtEnd(r->builder, LLVMAppendBasicBlockInContext(r->context, function, "entry"));
    LLVMBuildRet(r->builder, word_of(r, LLVMGetParam(function, 0), LLVMGetParam(function, 1)));
    LLVMPositionBuilderAtEnd(r->builder, here);
    return function;
}

static LLVMValueRef call_word(Render *r, LLVMValueRef seed, LLVMValueRef index) {
    LLVMTypeRef type;
    LLVMValueRef function = word_function(r, type_lane_count(LLVMTypeOf(index)), &type), args[] = {seed, index};
    return LLVMBuildCall2(r->builder, type, function, args, 2, "");
}

/* --- a group at once --- */

bool render_shares_random(const Render *r) {
    if (r->class == CLASS_OUTER || r->class == CLASS_TILE || r->vector_lanes > RANDOM_COUNTERS) return false;
    if (RANDOM_GROUP / r->vector_lanes > MAX_UNROLL) return false;
    for (int i = 0; i < r->kernel->insts.count; i++) {
        const Slot *s = &r->slots[i];
        if (s->inst->op == K_RANDOM && s->inst->bits && s->vectorial) return true;
    }
    return false;
}

/* Lanes [from, from + lanes) of a vector of 16. */
static LLVMValueRef part_of(Render *r, LLVMValueRef vector, int from, int lanes) {
    LLVMValueRef at[RANDOM_COUNTERS];
    if (lanes == RANDOM_COUNTERS) return vector;
    if (lanes == 1) return LLVMBuildExtractElement(r->builder, vector, constant_i64(r, from), "");
    for (int i = 0; i < lanes; i++) at[i] = LLVMConstInt(r->i32, (unsigned)(from + i), 0);
    return LLVMBuildShuffleVector(r->builder, vector, LLVMGetPoison(LLVMTypeOf(vector)),
                                  LLVMConstVector(at, (unsigned)lanes), "");
}

/* Words of even and of odd counters, in the low halves of 64-bit lanes, as one vector. */
static LLVMValueRef interleaved(Render *r, LLVMValueRef even, LLVMValueRef odd) {
    LLVMTypeRef wide = LLVMTypeOf(even), words = type_lanes(r->i32, RANDOM_COUNTERS);
    LLVMValueRef high = LLVMBuildShl(r->builder, odd, constant_int(wide, 32), ""), at[RANDOM_COUNTERS];
    for (int i = 0; i < RANDOM_COUNTERS; i++)
        at[i] = LLVMConstInt(r->i32, (unsigned)(i + (i & 1 ? RANDOM_COUNTERS : 0)), 0);
    return LLVMBuildShuffleVector(r->builder, LLVMBuildBitCast(r->builder, even, words, ""),
                                  LLVMBuildBitCast(r->builder, high, words, ""), LLVMConstVector(at, RANDOM_COUNTERS),
                                  "");
}

/* The counters of groups, each in two halves, the even and the odd ones. */
static void group_words(Render *r, LLVMValueRef seed, LLVMValueRef first, int groups, LLVMValueRef *out_copies) {
    enum { HALF = RANDOM_COUNTERS / 2 };
    LLVMBuilderRef b = r->builder;
    Words words[2 * MOST_GROUPS];
    for (int n = 0; n < 2 * groups; n++) { /* first is a multiple of 64, the counter of 16 */
        LLVMValueRef at = LLVMBuildAdd(b, first, constant_i64(r, n / 2 * RANDOM_GROUP), ""), own[HALF];
        LLVMValueRef counter = LLVMBuildLShr(b, at, constant_i64(r, 2), "");
        for (int i = 0; i < HALF; i++) own[i] = constant_i64(r, 2 * i + (n & 1));
        words[n].w[0] = LLVMBuildOr(b, splat(r, counter, HALF), LLVMConstVector(own, HALF), "");
        words[n].w[1] = splat(r, LLVMBuildLShr(b, counter, constant_i64(r, 32), ""), HALF);
    }
    rounds(r, seed, words, 2 * groups);
    LLVMValueRef all[4 * MOST_GROUPS];
    for (int n = 0; n < 4 * groups; n++)
        all[n] = interleaved(r, words[n / 4 * 2].w[n % 4], words[n / 4 * 2 + 1].w[n % 4]);
    for (int c = 0; c < r->unroll; c++) {
        int element = c * r->lanes;
        out_copies[c] = part_of(r, all[element / RANDOM_COUNTERS], element % RANDOM_COUNTERS, r->lanes);
    }
}

static void render_group(Render *r, int inst, LLVMValueRef seed, LLVMValueRef first) {
    LLVMValueRef fast[MAX_UNROLL], slow[MAX_UNROLL];
    LLVMBasicBlockRef together = LLVMAppendBasicBlockInContext(r->context, r->function, "group");
    LLVMBasicBlockRef apart = LLVMAppendBasicBlockInContext(r->context, r->function, "apart");
    LLVMBasicBlockRef after = LLVMAppendBasicBlockInContext(r->context, r->function, "drawn");
    LLVMValueRef offset = LLVMBuildAnd(r->builder, first, constant_i64(r, RANDOM_GROUP - 1), "");
    LLVMBuildCondBr(r->builder, LLVMBuildICmp(r->builder, LLVMIntEQ, offset, constant_i64(r, 0), ""), together, apart);
    LLVMPositionBuilderAtEnd(r->builder, together);
    group_words(r, seed, first, r->unroll * r->lanes / RANDOM_GROUP, fast);
    LLVMBuildBr(r->builder, after);
    LLVMPositionBuilderAtEnd(r->builder, apart);
    for (int c = 0; c < r->unroll; c++) slow[c] = call_word(r, seed, slot_value(r, r->slots[inst].inst->args[1], c));
    LLVMBuildBr(r->builder, after);
    LLVMPositionBuilderAtEnd(r->builder, after);
    for (int c = 0; c < r->unroll; c++) {
        LLVMValueRef phi = LLVMBuildPhi(r->builder, LLVMTypeOf(fast[c]), "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){fast[c], slow[c]}, (LLVMBasicBlockRef[]){together, apart}, 2);
        slot_set(r, inst, c, phi);
    }
}

void render_random(Render *r, int i) {
    const Slot *s = &r->slots[i];
    LLVMValueRef seed = r->slots[s->inst->args[0]].scalar; /* one for all elements: it is loaded outside the lanes */
    bool group = s->vectorial && s->inst->bits && !r->mask && r->unroll * r->lanes % RANDOM_GROUP == 0 &&
                 r->lanes <= RANDOM_COUNTERS;
    if (group) {
        LLVMValueRef index = slot_value(r, s->inst->args[1], 0);
        if (r->lanes > 1) index = LLVMBuildExtractElement(r->builder, index, constant_i64(r, 0), "");
        render_group(r, i, seed, index);
        return;
    }
    int copies = s->vectorial ? r->unroll : 1;
    for (int c = 0; c < copies; c++) {
        LLVMValueRef index = s->vectorial ? slot_value(r, s->inst->args[1], c) : r->slots[s->inst->args[1]].scalar;
        slot_set(r, i, c, call_word(r, seed, index));
    }
}
