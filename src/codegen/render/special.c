/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions that some sets have and others are spared: scaling by a power of two, division of many
 * by one. Every set gets the same values. */
#include "base/math/divide.h"
#include "codegen/render/render.h"

/* --- a * 2^b --- */

/* By two factors, the first of which keeps clear of what is subnormal or infinite, so that the second product alone
 * rounds: 2^(b - guard) and 2^guard, or for negative b 2^(b + guard) and 2^-guard. b + 1.5 * 2^mantissa + bias has the
 * exponent field in its low bits, and what differs for negative b is added to the fields, out of b's sign bit: integer
 * instructions go to units that multiply-adds leave free, comparing and selecting to the same ones. A zero may have either
 * sign. down: b is not above 0, so that it is the factors for negative b. */
static IrValue scale_by_factors(Render *r, IrValue a, IrValue b, bool wide, bool down) {
    IrBuilder *at = r->builder;
    IrType real = ir_type(a), bits = type_integer(r, wide ? 64 : 32, real);
    int mantissa = wide ? 52 : 23, bias = wide ? 1023 : 127, guard = wide ? 64 : 32;
    double shifter = (wide ? 0x1.8p52 : 0x1.8p23) + bias + (down ? guard : -guard);
    IrValue sum = build_cast(at, IR_BITS, build_fadd(at, b, constant_real(r, real, shifter)), bits), twice = NULL;
    if (!down) {
        IrValue mask = constant_int(r, bits, wide ? INT64_MIN : INT32_MIN);
        IrValue sign = build_and(at, build_cast(at, IR_BITS, b, bits), mask);
        twice = build_lshr(at, sign, constant_int(r, bits, wide ? 4 : 2)); /* 2 guard in the field, or 0 */
    }
    IrValue field = build_shl(at, sum, constant_int(r, bits, mantissa)), factor;
    if (down) {
        factor = constant_real(r, real, wide ? 0x1p-64 : 0x1p-32);
    } else {
        field = build_add(at, field, twice);
        factor = build_sub(at, constant_int(r, bits, (int64_t)(bias + guard) << mantissa), twice);
        factor = build_cast(at, IR_BITS, factor, real);
    }
    IrValue near = build_fmul(at, a, build_cast(at, IR_BITS, field, real));
    return build_fmul(at, near, factor);
}

IrValue special_scale(Render *r, const KernelInst *inst, IrValue a, IrValue b) {
    bool wide = inst->dtype == DT_F64;
    return r->isa.avx512 ? build_scale(r->builder, a, b) : scale_by_factors(r, a, b, wide, inst->bits);
}

/* --- many divided by one (divide.h) --- */

typedef struct Inverse {
    IrValue r, l; /* 1/b in two parts */
    IrValue safe; /* i1 or a vector of them: b is neither large nor small */
} Inverse;

static IrValue fma_of(Render *r, IrValue a, IrValue b, IrValue c) {
    IrValue args[] = {a, b, c};
    return fused(r, args);
}

static Inverse inverse_of(Render *r, IrValue b) {
    IrBuilder *at = r->builder;
    IrType type = ir_type(b);
    IrValue one = constant_real(r, type, 1), size = build_unary(r->builder, IR_FABS, b);
    Inverse v;
    v.safe = build_and(at, build_compare(at, IR_FOGE, size, constant_real(r, type, DIVISOR_LEAST)),
                       build_compare(at, IR_FOLE, size, constant_real(r, type, DIVISOR_MOST)));
    v.r = build_fmul(at, build_fdiv(at, one, b), constant_real(r, type, DIVISOR_BEFORE));
    v.l = build_fmul(at, fma_of(r, build_unary(at, IR_FNEG, v.r), b, one), v.r);
    return v;
}

static bool is_safe_constant(const KernelInst *b) {
    if (b->op == K_PARAM) return true;
    double value;
    memcpy(&value, &b->bits, sizeof value);
    return b->op == K_CONST && fabs(value) >= DIVISOR_LEAST && fabs(value) <= DIVISOR_MOST;
}

static IrValue every_lane(Render *r, IrValue condition) {
    return build_not(r->builder, any_lane(r, build_not(r->builder, condition)));
}

/* The inverse stands where the quotients are; being the same for all of them it leaves their loop. */
void render_divide_row(Render *r, int i) {
    const KernelInst *inst = r->slots[i].inst;
    const Slot *divisor = &r->slots[inst->args[1]];
    int copies = r->unroll, inverses = divisor->vectorial ? copies : 1;
    IrValue quick[MAX_UNROLL], slow[MAX_UNROLL], safe = NULL;
    Inverse inverse[MAX_UNROLL];
    for (int c = 0; c < inverses; c++) {
        inverse[c] = inverse_of(r, divisor->vectorial ? divisor->vector[c] : divisor->scalar);
        IrValue all = every_lane(r, inverse[c].safe);
        safe = safe ? build_and(r->builder, safe, all) : all;
    }
    for (int c = inverses; c < copies; c++) inverse[c] = inverse[0];
    for (int c = 0; c < copies && !divisor->vectorial; c++) {
        inverse[c].r = splat(r, inverse[c].r, r->lanes);
        inverse[c].l = splat(r, inverse[c].l, r->lanes);
    }
    bool known = is_safe_constant(divisor->inst);
    IrBlock by_inverse = NULL, by_division = NULL, after = NULL;
    if (!known) {
        by_inverse = build_block_new(r->builder, "by_inverse");
        by_division = build_block_new(r->builder, "by_division");
        after = build_block_new(r->builder, "divided");
        build_condbr(r->builder, safe, by_inverse, by_division);
        build_at(r->builder, by_inverse);
    }
    for (int c = 0; c < copies; c++) {
        IrValue a = slot_value(r, inst->args[0], c);
        quick[c] = fma_of(r, a, inverse[c].r, build_fmul(r->builder, a, inverse[c].l));
        if (known) slot_set(r, i, c, quick[c]);
    }
    if (known) return;
    build_br(r->builder, after);
    build_at(r->builder, by_division);
    for (int c = 0; c < copies; c++)
        slow[c] = build_fdiv(r->builder, slot_value(r, inst->args[0], c), slot_value(r, inst->args[1], c));
    build_br(r->builder, after);
    build_at(r->builder, after);
    for (int c = 0; c < copies; c++) {
        IrValue phi = build_phi(r->builder, ir_type(quick[c]));
        phi_add(phi, quick[c], by_inverse);
        phi_add(phi, slow[c], by_division);
        slot_set(r, i, c, phi);
    }
}
