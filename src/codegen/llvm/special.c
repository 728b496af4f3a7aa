/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions that some sets have and others are spared: scaling by a power of two, tables of eight, division of many
 * by one. Every set gets the same values. */
#include "codegen/divide.h"
#include "codegen/llvm/render.h"

#include <stdio.h>

/* Lanes [from, from + lanes) of a vector; those beyond its end are poison. */
static LLVMValueRef piece_of(Render *r, LLVMValueRef vector, int from, int lanes) {
    LLVMValueRef at[MAX_LANES];
    int all = type_lane_count(LLVMTypeOf(vector));
    if (all == lanes) return vector;
    if (all == 1) {
        LLVMTypeRef type = type_lanes(LLVMTypeOf(vector), lanes);
        return LLVMBuildInsertElement(r->builder, LLVMGetPoison(type), vector, constant_i64(r, 0), "");
    }
    for (int i = 0; i < lanes; i++)
        at[i] = from + i < all ? LLVMConstInt(r->i32, (unsigned)(from + i), 0) : LLVMGetPoison(r->i32);
    return LLVMBuildShuffleVector(r->builder, vector, LLVMGetPoison(LLVMTypeOf(vector)),
                                  LLVMConstVector(at, (unsigned)lanes), "");
}

/* The first `lanes` lanes of pieces one behind the other. */
static LLVMValueRef joined(Render *r, LLVMValueRef *pieces, int count, int lanes) {
    for (; count > 1; count /= 2)
        for (int n = 0; n < count / 2; n++) {
            int half = type_lane_count(LLVMTypeOf(pieces[2 * n]));
            LLVMValueRef at[MAX_LANES];
            for (int i = 0; i < 2 * half; i++) at[i] = LLVMConstInt(r->i32, (unsigned)i, 0);
            pieces[n] = LLVMBuildShuffleVector(r->builder, pieces[2 * n], pieces[2 * n + 1],
                                               LLVMConstVector(at, (unsigned)(2 * half)), "");
        }
    if (lanes == 1) return LLVMBuildExtractElement(r->builder, pieces[0], constant_i64(r, 0), "");
    return piece_of(r, pieces[0], 0, lanes);
}

/* --- a * 2^b --- */

static LLVMValueRef scale_by_instruction(Render *r, LLVMValueRef a, LLVMValueRef b, bool wide) {
    int lanes = type_lane_count(LLVMTypeOf(a)), size = wide ? 8 : 4, bits = 512;
    while (bits > 128 && lanes * size * 8 < bits) bits /= 2;
    int native = bits / 8 / size, count = lanes > native ? lanes / native : 1;
    char name[64];
    snprintf(name, sizeof name, "llvm.x86.avx512.mask.scalef.%s.%d", wide ? "pd" : "ps", bits);
    LLVMTypeRef mask = LLVMIntTypeInContext(r->context, native > 8 ? 16 : 8);
    LLVMValueRef pieces[MAX_LANES];
    for (int n = 0; n < count; n++) {
        LLVMValueRef x = piece_of(r, a, n * native, native), y = piece_of(r, b, n * native, native);
        LLVMValueRef args[] = {x, y, LLVMConstNull(LLVMTypeOf(x)), LLVMConstAllOnes(mask), LLVMConstInt(r->i32, 4, 0)};
        pieces[n] = intrinsic(r, name, NULL, 0, args, bits == 512 ? 5 : 4);
    }
    return joined(r, pieces, count, lanes);
}

/* By two factors, the first of which keeps clear of what is subnormal or infinite, so that the second product alone
 * rounds. b + 1.5 * 2^mantissa + bias has the exponent field in its low bits. */
static LLVMValueRef scale_by_factors(Render *r, LLVMValueRef a, LLVMValueRef b, bool wide) {
    LLVMBuilderRef at = r->builder;
    LLVMTypeRef real = LLVMTypeOf(a), bits = type_integer(r, wide ? 64 : 32, real);
    double middle = wide ? 0x1.8p52 + 1023 : 0x1.8p23 + 127, guard = wide ? 64 : 32;
    double up = wide ? 0x1p64 : 0x1p32;
    LLVMValueRef small = LLVMBuildFCmp(at, LLVMRealOLT, b, constant_real(real, 0), "");
    LLVMValueRef shifter =
        LLVMBuildSelect(at, small, constant_real(real, middle + guard), constant_real(real, middle - guard), "");
    LLVMValueRef factor = LLVMBuildSelect(at, small, constant_real(real, 1 / up), constant_real(real, up), "");
    LLVMValueRef field = LLVMBuildBitCast(at, LLVMBuildFAdd(at, b, shifter, ""), bits, "");
    field = LLVMBuildShl(at, field, constant_int(bits, wide ? 52 : 23), "");
    LLVMValueRef near = LLVMBuildFMul(at, a, LLVMBuildBitCast(at, field, real, ""), "");
    return LLVMBuildFMul(at, near, factor, "");
}

LLVMValueRef special_scale(Render *r, const KernelInst *inst, LLVMValueRef a, LLVMValueRef b) {
    bool wide = inst->dtype == DT_F64;
    return r->isa.avx512 ? scale_by_instruction(r, a, b, wide) : scale_by_factors(r, a, b, wide);
}

/* --- tables --- */

static LLVMValueRef table_constant(Render *r, int64_t number, int lanes) {
    LLVMValueRef entries[MAX_LANES];
    LLVMTypeRef real = LLVMFloatTypeInContext(r->context);
    for (int i = 0; i < lanes; i++) entries[i] = LLVMConstReal(real, kernel_table(number)[i % TABLE_ENTRIES]);
    return LLVMConstVector(entries, (unsigned)lanes);
}

/* A permutation with lanes as indices looks at the low bits alone; 16 entries repeat the table. */
static LLVMValueRef table_by_permutation(Render *r, int64_t number, LLVMValueRef index) {
    int lanes = type_lane_count(LLVMTypeOf(index)), native = r->isa.avx512 && lanes >= 16 ? 16 : TABLE_ENTRIES;
    int count = lanes > native ? lanes / native : 1;
    LLVMValueRef pieces[MAX_LANES], table = table_constant(r, number, native);
    for (int n = 0; n < count; n++) {
        LLVMValueRef args[] = {table, piece_of(r, index, n * native, native)};
        pieces[n] =
            intrinsic(r, native == 16 ? "llvm.x86.avx512.permvar.sf.512" : "llvm.x86.avx2.permps", NULL, 0, args, 2);
    }
    return joined(r, pieces, count, lanes);
}

static LLVMValueRef table_memory(Render *r, int64_t number, LLVMTypeRef *out_type) {
    char name[32];
    snprintf(name, sizeof name, "table_%d", (int)number);
    LLVMValueRef entries[TABLE_ENTRIES], memory = LLVMGetNamedGlobal(r->module, name);
    LLVMTypeRef real = LLVMFloatTypeInContext(r->context);
    *out_type = LLVMArrayType(real, TABLE_ENTRIES);
    if (memory) return memory;
    for (int i = 0; i < TABLE_ENTRIES; i++) entries[i] = LLVMConstReal(real, kernel_table(number)[i]);
    memory = LLVMAddGlobal(r->module, *out_type, name);
    LLVMSetInitializer(memory, LLVMConstArray(real, entries, TABLE_ENTRIES));
    LLVMSetGlobalConstant(memory, 1);
    LLVMSetLinkage(memory, LLVMPrivateLinkage);
    LLVMSetUnnamedAddress(memory, LLVMGlobalUnnamedAddr);
    return memory;
}

static LLVMValueRef table_by_loads(Render *r, int64_t number, LLVMValueRef index) {
    LLVMTypeRef type, real = LLVMFloatTypeInContext(r->context);
    LLVMValueRef memory = table_memory(r, number, &type);
    int lanes = type_lane_count(LLVMTypeOf(index));
    LLVMValueRef low = LLVMBuildAnd(r->builder, index, constant_int(LLVMTypeOf(index), TABLE_ENTRIES - 1), "");
    LLVMValueRef result = LLVMGetPoison(type_lanes(real, lanes));
    for (int i = 0; i < lanes; i++) {
        LLVMValueRef n = lanes > 1 ? LLVMBuildExtractElement(r->builder, low, constant_i64(r, i), "") : low;
        LLVMValueRef path[] = {constant_i64(r, 0), LLVMBuildZExt(r->builder, n, r->i64, "")};
        LLVMValueRef at = LLVMBuildGEP2(r->builder, type, memory, path, 2, "");
        LLVMValueRef entry = LLVMBuildLoad2(r->builder, real, at, "");
        result = lanes > 1 ? LLVMBuildInsertElement(r->builder, result, entry, constant_i64(r, i), "") : entry;
    }
    return result;
}

LLVMValueRef special_table(Render *r, const KernelInst *inst, LLVMValueRef index) {
    bool permutes = r->isa.avx2 && type_lane_count(LLVMTypeOf(index)) > 1;
    return permutes ? table_by_permutation(r, inst->bits, index) : table_by_loads(r, inst->bits, index);
}

/* --- many divided by one (divide.h) --- */

typedef struct Inverse {
    LLVMValueRef r, l; /* 1/b in two parts */
    LLVMValueRef safe; /* i1 or a vector of them: b is neither large nor small */
} Inverse;

static LLVMValueRef fma_of(Render *r, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
    LLVMValueRef args[] = {a, b, c};
    return fused(r, args);
}

static Inverse inverse_of(Render *r, LLVMValueRef b) {
    LLVMBuilderRef at = r->builder;
    LLVMTypeRef type = LLVMTypeOf(b);
    LLVMValueRef one = constant_real(type, 1), size = intrinsic_1(r, "llvm.fabs", b);
    Inverse v;
    v.safe = LLVMBuildAnd(at, LLVMBuildFCmp(at, LLVMRealOGE, size, constant_real(type, DIVISOR_LEAST), ""),
                          LLVMBuildFCmp(at, LLVMRealOLE, size, constant_real(type, DIVISOR_MOST), ""), "");
    v.r = LLVMBuildFMul(at, LLVMBuildFDiv(at, one, b, ""), constant_real(type, DIVISOR_BEFORE), "");
    v.l = LLVMBuildFMul(at, fma_of(r, LLVMBuildFNeg(at, v.r, ""), b, one), v.r, "");
    return v;
}

static bool is_safe_constant(const KernelInst *b) {
    double value;
    memcpy(&value, &b->bits, sizeof value);
    return b->op == K_CONST && fabs(value) >= DIVISOR_LEAST && fabs(value) <= DIVISOR_MOST;
}

static LLVMValueRef every_lane(Render *r, LLVMValueRef condition) {
    return LLVMBuildNot(r->builder, any_lane(r, LLVMBuildNot(r->builder, condition, "")), "");
}

/* The inverse stands where the quotients are; being the same for all of them it leaves their loop. */
void render_divide_row(Render *r, int i) {
    const KernelInst *inst = r->slots[i].inst;
    const Slot *divisor = &r->slots[inst->args[1]];
    int copies = r->unroll, inverses = divisor->vectorial ? copies : 1;
    LLVMValueRef quick[MAX_UNROLL], slow[MAX_UNROLL], safe = NULL;
    Inverse inverse[MAX_UNROLL];
    for (int c = 0; c < inverses; c++) {
        inverse[c] = inverse_of(r, divisor->vectorial ? divisor->vector[c] : divisor->scalar);
        LLVMValueRef all = every_lane(r, inverse[c].safe);
        safe = safe ? LLVMBuildAnd(r->builder, safe, all, "") : all;
    }
    for (int c = inverses; c < copies; c++) inverse[c] = inverse[0];
    for (int c = 0; c < copies && !divisor->vectorial; c++) {
        inverse[c].r = splat(r, inverse[c].r, r->lanes);
        inverse[c].l = splat(r, inverse[c].l, r->lanes);
    }
    bool known = is_safe_constant(divisor->inst);
    LLVMBasicBlockRef by_inverse = NULL, by_division = NULL, after = NULL;
    if (!known) {
        by_inverse = LLVMAppendBasicBlockInContext(r->context, r->function, "by_inverse");
        by_division = LLVMAppendBasicBlockInContext(r->context, r->function, "by_division");
        after = LLVMAppendBasicBlockInContext(r->context, r->function, "divided");
        LLVMBuildCondBr(r->builder, safe, by_inverse, by_division);
        LLVMPositionBuilderAtEnd(r->builder, by_inverse);
    }
    for (int c = 0; c < copies; c++) {
        LLVMValueRef a = slot_value(r, inst->args[0], c);
        quick[c] = fma_of(r, a, inverse[c].r, LLVMBuildFMul(r->builder, a, inverse[c].l, ""));
        if (known) slot_set(r, i, c, quick[c]);
    }
    if (known) return;
    LLVMBuildBr(r->builder, after);
    LLVMPositionBuilderAtEnd(r->builder, by_division);
    for (int c = 0; c < copies; c++)
        slow[c] = LLVMBuildFDiv(r->builder, slot_value(r, inst->args[0], c), slot_value(r, inst->args[1], c), "");
    LLVMBuildBr(r->builder, after);
    LLVMPositionBuilderAtEnd(r->builder, after);
    for (int c = 0; c < copies; c++) {
        LLVMValueRef phi = LLVMBuildPhi(r->builder, LLVMTypeOf(quick[c]), "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){quick[c], slow[c]}, (LLVMBasicBlockRef[]){by_inverse, by_division}, 2);
        slot_set(r, i, c, phi);
    }
}
