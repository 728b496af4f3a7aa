/* SPDX-License-Identifier: Apache-2.0 */
/* The renderer's calls but those of lanes: constants are folded here, since the renderer asks whether it knows a value. */
#include "codegen/native/ir.h"

#include <math.h>

/* --- values --- */

void no_rule(IrBuilder *b, const char *what) {
    if (!b->unsupported) b->unsupported = what;
}

IrType ir_type(IrValue value) { return value->type; }

/* A mask is one register, whatever its lanes; without such registers it is a vector. */
int part_lanes(const IrBuilder *b, IrType type) {
    bool condition = is_lane_condition(type);
    int lanes = ir_lane_count(type), bits = b->avx512 ? 512 : 256, most = bits / (condition ? 32 : ir_bits(type));
    return (condition && b->avx512) || lanes < most ? lanes : most;
}

int part_count(const IrBuilder *b, IrType type) { return ir_lane_count(type) / part_lanes(b, type); }

IrType part_type(const IrBuilder *b, IrType type) {
    IrType element = is_lane_condition(type) && !b->avx512 ? (IrType)IR_I32 : ir_element(type);
    return ir_lanes(element, part_lanes(b, type));
}

Inst *inst_new(IrBuilder *b, InstOp op, IrType type) {
    Inst *i = ARENA_NEW(b->arena, Inst);
    i->op = (unsigned char)op;
    i->element = (unsigned char)ir_element(type);
    i->lanes = (unsigned char)ir_lane_count(type);
    i->number = b->inst_count++;
    return i;
}

static Inst *append(IrBuilder *b, Inst *i) {
    i->block = b->at;
    VEC_PUSH(b->arena, b->at->insts, i);
    return i;
}

Inst *inst_add(IrBuilder *b, InstOp op, IrType type, Inst *x, Inst *y, Inst *z) {
    Inst *i = inst_new(b, op, type);
    i->args[0] = x;
    i->args[1] = y;
    i->args[2] = z;
    return append(b, i);
}

IrValue native_value_new(IrBuilder *b, IrType type) {
    IrValue v = ARENA_NEW(b->arena, struct IrNode);
    v->type = type;
    v->count = type == IR_VOID ? 1 : part_count(b, type);
    if (v->count > MOST_PARTS) {
        no_rule(b, "a vector of more than eight registers");
        v->count = MOST_PARTS;
    }
    return v;
}

IrValue native_value(IrBuilder *b, IrType type, Inst *inst) {
    IrValue v = native_value_new(b, type);
    v->parts[0] = inst;
    return v;
}

/* --- constants --- */

static int64_t cut(IrType type, int64_t value) {
    int bits = ir_bits(type);
    if (bits == 1) return value & 1;
    return bits == 64 ? value : (int64_t)((uint64_t)value << (64 - bits)) >> (64 - bits);
}

Inst *inst_constant(IrBuilder *b, IrType type, const int64_t *bits) {
    int lanes = ir_lane_count(type);
    bool is_float = is_float_element((int)ir_element(type));
    Inst *i = inst_new(b, lanes > 1 || is_float ? I_VCONST : I_CONST, type);
    if (i->op == I_CONST) {
        i->imm = cut(type, bits[0]);
    } else {
        int64_t *copy = ARENA_ARRAY(b->arena, int64_t, lanes);
        for (int n = 0; n < lanes; n++) copy[n] = cut(type, bits[n]);
        i->bits = copy;
    }
    return append(b, i);
}

IrValue ir_vector(IrBuilder *b, IrType type, const int64_t *bits) {
    IrValue v = native_value_new(b, type);
    int64_t all[MOST_LANES];
    bool condition = is_lane_condition(type) && !b->avx512;
    for (int n = 0; n < ir_lane_count(type); n++) all[n] = condition ? -(bits[n] & 1) : bits[n];
    for (int p = 0; p < v->count; p++)
        v->parts[p] = inst_constant(b, part_type(b, type), all + p * part_lanes(b, type));
    return v;
}

IrValue ir_int(IrBuilder *b, IrType type, int64_t value) {
    int64_t all[MOST_LANES];
    for (int n = 0; n < ir_lane_count(type); n++) all[n] = value;
    return ir_vector(b, type, all);
}

static int64_t real_bits(IrType element, double value) {
    float narrow = (float)value;
    int32_t word;
    int64_t wide;
    memcpy(&word, &narrow, sizeof word);
    memcpy(&wide, &value, sizeof wide);
    return element == IR_F64 ? wide : word;
}

IrValue ir_real(IrBuilder *b, IrType type, double value) { return ir_int(b, type, real_bits(ir_element(type), value)); }

bool ir_constant(IrValue value, int64_t *out_value) {
    if (value->count != 1 || value->parts[0]->op != I_CONST) return false;
    *out_value = value->parts[0]->imm;
    return true;
}

IrValue ir_undefined(IrBuilder *b, IrType type) {
    IrValue v = native_value_new(b, type);
    for (int p = 0; p < v->count; p++) v->parts[p] = inst_add(b, I_UNDEFINED, part_type(b, type), NULL, NULL, NULL);
    return v;
}

/* --- blocks --- */

IrBlock build_block_new(IrBuilder *b, const char *name) {
    Block *block = ARENA_NEW(b->arena, Block);
    (void)name;
    block->number = b->blocks.count;
    VEC_PUSH(b->arena, b->blocks, block);
    return block;
}

IrBlock build_block(IrBuilder *b) { return b->at; }
void build_at(IrBuilder *b, IrBlock block) { b->at = block; }

static void leads_to(IrBuilder *b, Block *to, int which) {
    b->at->next[which] = to;
    VEC_PUSH(b->arena, to->before, b->at);
}

void build_br(IrBuilder *b, IrBlock to) {
    inst_add(b, I_BRANCH, IR_VOID, NULL, NULL, NULL);
    leads_to(b, to, 0);
}

void build_condbr(IrBuilder *b, IrValue condition, IrBlock yes, IrBlock no) {
    int64_t known;
    if (ir_constant(condition, &known)) {
        build_br(b, known ? yes : no);
        return;
    }
    inst_add(b, I_IF, IR_VOID, condition->parts[0], NULL, NULL);
    leads_to(b, yes, 0);
    leads_to(b, no, 1);
}

void build_retvoid(IrBuilder *b) { inst_add(b, I_RETURN, IR_VOID, NULL, NULL, NULL); }

/* Its parts remember it by the first one's number; incoming values follow with phi_add. */
typedef struct PhiValue {
    struct IrNode node; /* first */
    IrBuilder *builder;
} PhiValue;

IrValue build_phi(IrBuilder *b, IrType type) {
    PhiValue *phi = ARENA_NEW(b->arena, PhiValue);
    phi->node = *native_value_new(b, type);
    phi->builder = b;
    for (int p = 0; p < phi->node.count; p++)
        phi->node.parts[p] = inst_add(b, I_PHI, part_type(b, type), NULL, NULL, NULL);
    return &phi->node;
}

void phi_add(IrValue phi, IrValue value, IrBlock from) {
    IrBuilder *b = ((PhiValue *)(void *)phi)->builder;
    Arena *arena = b->arena;
    if (is_lane_condition(phi->type) && !b->avx512) no_rule(b, "conditions of lanes that blocks choose");
    for (int p = 0; p < phi->count; p++) VEC_PUSH(arena, phi->parts[p]->incoming, (PhiArg){value->parts[p], from});
}

IrValue build_parameter(IrBuilder *b, int number) { return b->parameters.items[number]; }

void ir_begin(IrBuilder *b, Arena *arena, bool avx512) {
    static const IrType types[] = {IR_POINTER, IR_POINTER, IR_I64, IR_I64, IR_POINTER};
    *b = (IrBuilder){.arena = arena, .avx512 = avx512};
    build_at(b, build_block_new(b, "entry"));
    for (int i = 0; i < 5; i++) {
        Inst *inst = inst_add(b, I_PARAMETER, types[i], NULL, NULL, NULL);
        inst->imm = i;
        VEC_PUSH(arena, b->parameters, native_value(b, types[i], inst));
    }
}

/* --- arithmetic --- */

static bool is_constant(const Inst *i) { return i->op == I_CONST || i->op == I_VCONST; }
static int64_t lane_bits(const Inst *i, int lane) { return i->op == I_CONST ? i->imm : i->bits[lane]; }

static bool fold(IrOp op, IrType type, int64_t x, int64_t y, int64_t *out) {
    int bits = ir_bits(type);
    uint64_t low = bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1, u = (uint64_t)x & low, v = (uint64_t)y & low;
    switch (op) {
    case IR_ADD: *out = (int64_t)((uint64_t)x + (uint64_t)y); return true;
    case IR_SUB: *out = (int64_t)((uint64_t)x - (uint64_t)y); return true;
    case IR_MUL: *out = (int64_t)((uint64_t)x * (uint64_t)y); return true;
    case IR_UDIV: *out = v ? (int64_t)(u / v) : 0; return v != 0;
    case IR_UREM: *out = v ? (int64_t)(u % v) : 0; return v != 0;
    case IR_AND: *out = x & y; return true;
    case IR_OR: *out = x | y; return true;
    case IR_XOR: *out = x ^ y; return true;
    case IR_SHL: *out = v < 64 ? (int64_t)(u << v) : 0; return true;
    case IR_LSHR: *out = v < 64 ? (int64_t)(u >> v) : 0; return true;
    default: return false;
    }
}

static bool all_lanes(const Inst *i, int64_t value) {
    if (!is_constant(i) || is_float_element(i->element)) return false;
    for (int n = 0; n < i->lanes; n++)
        if (lane_bits(i, n) != cut(i->element, value)) return false;
    return true;
}

static Inst *folded(IrBuilder *b, IrOp op, IrType type, Inst *x, Inst *y) {
    int64_t all[MOST_LANES];
    if (op >= IR_FADD || !is_constant(x) || !is_constant(y)) return NULL;
    for (int n = 0; n < x->lanes; n++)
        if (!fold(op, type, lane_bits(x, n), lane_bits(y, n), &all[n])) return NULL;
    return inst_constant(b, type, all);
}

static Inst *simplified(IrOp op, Inst *x, Inst *y) {
    bool zero_y = all_lanes(y, 0), zero_x = all_lanes(x, 0);
    if (zero_y &&
        (op == IR_ADD || op == IR_SUB || op == IR_OR || op == IR_XOR || op == IR_SHL || op == IR_LSHR || op == IR_ASHR))
        return x;
    if (zero_x && (op == IR_ADD || op == IR_OR || op == IR_XOR)) return y;
    if ((op == IR_MUL || op == IR_AND) && (zero_x || zero_y)) return zero_x ? x : y;
    if ((op == IR_MUL || op == IR_UDIV || op == IR_SDIV) && all_lanes(y, 1)) return x;
    if (op == IR_MUL && all_lanes(x, 1)) return y;
    if (op == IR_AND && (all_lanes(x, -1) || all_lanes(y, -1))) return all_lanes(x, -1) ? y : x;
    return NULL;
}

/* Whether only the low halves of 64-bit lanes can be set. */
static bool is_low_half(const Inst *i) {
    if (i->op == I_BINOP && i->kind == IR_AND) return is_low_half(i->args[0]) || is_low_half(i->args[1]);
    if (!is_constant(i)) return false;
    for (int n = 0; n < i->lanes; n++)
        if ((uint64_t)lane_bits(i, n) >> 32) return false;
    return true;
}

static Inst *without_low_mask(Inst *i) {
    if (i->op != I_BINOP || i->kind != IR_AND) return i;
    return all_lanes(i->args[1], 0xffffffff) ? i->args[0] : all_lanes(i->args[0], 0xffffffff) ? i->args[1] : i;
}

static Inst *cast_part(IrBuilder *b, IrCast cast, Inst *x, IrType type) {
    if (x->op == I_VCONST && (cast == IR_SEXT || cast == IR_CUT)) return inst_constant(b, type, x->bits);
    Inst *i = inst_add(b, I_CAST, type, x, NULL, NULL);
    i->kind = (unsigned char)cast;
    return i;
}

/* Of which another is one instruction with it, as in the rounds of random numbers. */
static bool is_xor_of_vectors(const Inst *x) {
    return x->op == I_BINOP && x->kind == IR_XOR && x->element != IR_I1 && x->lanes * ir_bits(x->element) >= 128;
}

static Inst *binop(IrBuilder *b, IrOp op, Inst *x, Inst *y);

/* What AVX2 lacks for lanes of 64 bits: products, of halves, and shifts that keep the sign; NULL: nothing. */
static Inst *binop_of_wide_lanes(IrBuilder *b, IrOp op, Inst *x, Inst *y) {
    IrType type = inst_type(x);
    if (op == IR_MUL) {
        Inst *half = ir_int(b, type, 32)->parts[0], *low = inst_add(b, I_MULU32, type, x, y, NULL);
        Inst *u = inst_add(b, I_MULU32, type, binop(b, IR_LSHR, x, half), y, NULL);
        Inst *v = inst_add(b, I_MULU32, type, x, binop(b, IR_LSHR, y, half), NULL);
        return binop(b, IR_ADD, low, binop(b, IR_SHL, binop(b, IR_ADD, u, v), half));
    }
    if (op == IR_ASHR && is_constant(y)) {
        Inst *sign = binop(b, IR_LSHR, ir_int(b, type, INT64_MIN)->parts[0], y);
        return binop(b, IR_SUB, binop(b, IR_XOR, binop(b, IR_LSHR, x, y), sign), sign);
    }
    return NULL;
}

static Inst *binop(IrBuilder *b, IrOp op, Inst *x, Inst *y) {
    IrType type = inst_type(x);
    Inst *known = folded(b, op, type, x, y);
    if (!known) known = simplified(op, x, y);
    if (known) return known;
    bool commutes = op == IR_ADD || op == IR_MUL || op == IR_AND || op == IR_OR || op == IR_XOR;
    if (commutes && is_constant(x)) {
        Inst *swap = x;
        x = y;
        y = swap;
    }
    if (op == IR_MUL && type == IR_I64 && y->op == I_CONST && y->imm > 0 && !(y->imm & (y->imm - 1)))
        return binop(b, IR_SHL, x, inst_constant(b, type, (int64_t[]){__builtin_ctzll((uint64_t)y->imm)}));
    if (op == IR_MUL && x->lanes > 1 && x->element == IR_I64 && is_low_half(x) && is_low_half(y))
        return inst_add(b, I_MULU32, type, without_low_mask(x), without_low_mask(y), NULL);
    if ((op == IR_UDIV || op == IR_UREM) && y->op == I_CONST && x->lanes == 1 && y->imm > 0 &&
        !(y->imm & (y->imm - 1))) {
        int64_t by = op == IR_UDIV ? __builtin_ctzll((uint64_t)y->imm) : y->imm - 1;
        return binop(b, op == IR_UDIV ? IR_LSHR : IR_AND, x, inst_constant(b, type, &by));
    }
    if (x->lanes > 1 && x->element == IR_I64 && !b->avx512) {
        Inst *several = binop_of_wide_lanes(b, op, x, y);
        if (several) return several;
    }
    if (op == IR_XOR && b->avx512 && is_xor_of_vectors(x)) return inst_add(b, I_XOR3, type, x->args[0], x->args[1], y);
    Inst *i = inst_add(b, I_BINOP, type, x, y, NULL);
    i->kind = (unsigned char)op;
    return i;
}

/* Bytes have neither products nor shifts: as words. */
static bool wants_words(IrOp op, IrType type) {
    bool shift = op == IR_SHL || op == IR_LSHR || op == IR_ASHR;
    return ir_lane_count(type) > 1 && ir_element(type) == IR_I8 && (op == IR_MUL || shift);
}

static IrValue by_lanes(IrBuilder *b, IrOp op, IrValue x, IrValue y) {
    IrValue result = ir_undefined(b, x->type);
    for (int n = 0; n < ir_lane_count(x->type); n++)
        result = build_insert(b, result, build_binop(b, op, build_extract(b, x, n), build_extract(b, y, n)), n);
    return result;
}

IrValue build_binop(IrBuilder *b, IrOp op, IrValue x, IrValue y) {
    bool divides = op >= IR_SDIV && op <= IR_UREM;
    if (op == IR_COPYSIGN) no_rule(b, "copysign");
    if (wants_words(op, x->type)) {
        IrType words = ir_lanes(IR_I16, ir_lane_count(x->type));
        IrCast wider = op == IR_ASHR ? IR_SEXT : IR_ZEXT;
        IrValue u = build_cast(b, wider, x, words), v = build_cast(b, IR_ZEXT, y, words);
        return build_cast(b, IR_CUT, build_binop(b, op, u, v), x->type);
    }
    if (divides && ir_lane_count(x->type) > 1) return by_lanes(b, op, x, y);
    if (is_lane_condition(x->type) && !b->avx512) {
        int bits = ir_bits((x->parts[0]->op == I_VCONST ? y : x)->parts[0]->element);
        IrValue u = condition_lanes(b, x, bits), v = condition_lanes(b, y, bits);
        return condition_of_lanes(b, build_binop(b, op, u, v));
    }
    IrValue v = native_value_new(b, x->type);
    for (int p = 0; p < v->count; p++) v->parts[p] = binop(b, op, x->parts[p], y->parts[p]);
    return v;
}

IrValue build_unary(IrBuilder *b, IrUnary op, IrValue x) {
    IrValue v = native_value_new(b, x->type);
    bool counts = op == IR_CTLZ && ir_lane_count(x->type) == 1;
    if (counts && ir_bits(x->type) < 32) no_rule(b, "leading zeros of narrow integers");
    for (int p = 0; p < v->count; p++) {
        v->parts[p] = inst_add(b, I_UNARY, part_type(b, x->type), x->parts[p], NULL, NULL);
        v->parts[p]->kind = (unsigned char)op;
    }
    return v;
}

static Inst *without_sign(Inst *x, unsigned char *kind, unsigned char flag) {
    if (x->op != I_UNARY || x->kind != IR_FNEG) return x;
    *kind ^= flag;
    return x->args[0];
}

IrValue build_fma(IrBuilder *b, IrValue x, IrValue y, IrValue z) {
    IrValue v = native_value_new(b, x->type);
    for (int p = 0; p < v->count; p++) {
        unsigned char kind = 0;
        Inst *u = without_sign(x->parts[p], &kind, FMA_NEG_PRODUCT);
        Inst *w = without_sign(y->parts[p], &kind, FMA_NEG_PRODUCT);
        Inst *addend = without_sign(z->parts[p], &kind, FMA_NEG_ADDEND);
        v->parts[p] = inst_add(b, I_FMA, part_type(b, x->type), u, w, addend);
        v->parts[p]->kind = kind;
    }
    return v;
}

static bool compare_constants(IrCompare how, IrType type, int64_t x, int64_t y) {
    int bits = ir_bits(type);
    uint64_t low = bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1, u = (uint64_t)x & low, v = (uint64_t)y & low;
    switch (how) {
    case IR_EQ: return u == v;
    case IR_NE: return u != v;
    case IR_SLT: return x < y;
    case IR_SLE: return x <= y;
    case IR_SGT: return x > y;
    case IR_SGE: return x >= y;
    case IR_ULT: return u < v;
    case IR_ULE: return u <= v;
    case IR_UGT: return u > v;
    default: return u >= v;
    }
}

IrValue condition_lanes(IrBuilder *b, IrValue condition, int bits) {
    int own = ir_bits(condition->parts[0]->element), lanes = ir_lane_count(condition->type);
    IrValue v = native_value_new(b, ir_lanes(integer_of_bits(own), lanes));
    memcpy(v->parts, condition->parts, sizeof v->parts);
    return own == bits ? v : build_cast(b, own < bits ? IR_SEXT : IR_CUT, v, ir_lanes(integer_of_bits(bits), lanes));
}

IrValue condition_of_lanes(IrBuilder *b, IrValue lanes) {
    IrValue v = ARENA_NEW(b->arena, struct IrNode);
    *v = *lanes;
    v->type = ir_lanes(IR_I1, ir_lane_count(lanes->type));
    return v;
}

/* Masks of several registers' worth of lanes are one register, so the parts' are joined. */
IrValue build_compare(IrBuilder *b, IrCompare how, IrValue x, IrValue y) {
    IrType type = ir_lanes(IR_I1, ir_lane_count(x->type));
    const Inst *u = x->parts[0], *v = y->parts[0];
    Inst *masks[MOST_PARTS];
    if (u->op == I_CONST && v->op == I_CONST) {
        int64_t result = compare_constants(how, x->type, u->imm, v->imm);
        return ir_int(b, type, result);
    }
    if (ir_element(x->type) == IR_I1) { /* only equality is asked of conditions */
        if (how != IR_EQ && how != IR_NE) no_rule(b, "an order of conditions");
        IrValue differ = build_xor(b, x, y);
        return how == IR_NE ? differ : build_not(b, differ);
    }
    if (ir_element(x->type) == IR_F16) no_rule(b, "arithmetic on f16");
    bool integers = ir_lane_count(x->type) > 1 && !b->avx512;
    IrType element = integers ? integer_of_bits(ir_bits(x->type)) : IR_I1;
    for (int p = 0; p < x->count; p++) {
        masks[p] = inst_add(b, I_COMPARE, ir_lanes(element, part_lanes(b, x->type)), x->parts[p], y->parts[p], NULL);
        masks[p]->kind = (unsigned char)how;
    }
    if (integers) {
        IrValue lanes = native_value_new(b, ir_lanes(element, ir_lane_count(x->type)));
        memcpy(lanes->parts, masks, (size_t)x->count * sizeof *masks);
        return condition_of_lanes(b, lanes);
    }
    return native_value(b, type, join(b, masks, x->count));
}

/* a > b ? a : b and the like, which the hardware has. */
static Inst *min_or_max(IrBuilder *b, Inst *condition, Inst *yes, Inst *no) {
    if (condition->op != I_COMPARE) return NULL;
    IrCompare how = (IrCompare)condition->kind;
    Inst *x = condition->args[0], *y = condition->args[1];
    bool less = how == IR_FOLT || how == IR_SLT || how == IR_ULT,
         more = how == IR_FOGT || how == IR_SGT || how == IR_UGT;
    bool same = x == yes && y == no, crossed = x == no && y == yes;
    bool is_float = is_float_element(x->element);
    if ((!less && !more) || (!same && !crossed) || (x->lanes == 1 && !is_float)) return NULL;
    if (!is_float && x->element == IR_I64 && !b->avx512) return NULL;
    /* crossed: x < y ? y : x is y > x ? y : x, and so on */
    Inst *i = inst_add(b, (less == same) ? I_MIN : I_MAX, inst_type(yes), yes, no, NULL);
    i->kind = how == IR_SLT || how == IR_SGT;
    return i;
}

IrValue build_select(IrBuilder *b, IrValue condition, IrValue yes, IrValue no) {
    int64_t known;
    IrValue v = native_value_new(b, yes->type);
    if (ir_constant(condition, &known)) return known ? yes : no;
    if (ir_element(yes->type) == IR_I1) { /* of conditions, themselves masks */
        if (ir_lane_count(condition->type) != ir_lane_count(yes->type)) no_rule(b, "one condition for masks");
        return build_or(b, build_and(b, condition, yes), build_and(b, build_not(b, condition), no));
    }
    bool one = ir_lane_count(condition->type) == 1;
    for (int p = 0; p < v->count; p++) {
        Inst *u = yes->parts[p], *w = no->parts[p];
        Inst *simple = v->count == condition->count ? min_or_max(b, condition->parts[p], u, w) : NULL;
        Inst *mask = one ? condition->parts[0] : mask_part(b, condition, yes->type, p);
        v->parts[p] = simple ? simple : u == w ? u : inst_add(b, I_SELECT, inst_type(u), mask, u, w);
    }
    return v;
}

/* --- casts --- */

static bool is_integer(IrType type) { return ir_element(type) >= IR_I8 && ir_element(type) <= IR_I64; }

static IrValue cast_parts(IrBuilder *b, IrCast cast, IrValue x, IrType type) {
    IrValue v = native_value_new(b, type);
    int lanes = part_lanes(b, x->type) < part_lanes(b, type) ? part_lanes(b, x->type) : part_lanes(b, type);
    int count = ir_lane_count(type) / lanes, pieces = count / v->count; /* of each result */
    Inst *all[MOST_PARTS];
    if (count > MOST_PARTS) {
        no_rule(b, "a cast of more than eight registers");
        count = MOST_PARTS;
    }
    for (int n = 0; n < count; n++) {
        int at = n * lanes;
        Inst *from = part_of(b, x->parts[at / part_lanes(b, x->type)], at % part_lanes(b, x->type), lanes);
        all[n] = cast_part(b, cast, from, ir_lanes(ir_element(type), lanes));
    }
    for (int p = 0; p < v->count && (p + 1) * pieces <= count; p++) v->parts[p] = join(b, all + p * pieces, pieces);
    return v;
}

static IrValue cast_constant(IrBuilder *b, IrCast cast, IrValue x, IrType type) {
    int64_t value = x->parts[0]->imm;
    int bits = ir_bits(x->type);
    if (cast == IR_ZEXT && bits < 64) value &= ((int64_t)1 << bits) - 1;
    return ir_int(b, type, cast == IR_SEXT && bits == 1 ? -value : value);
}

static IrValue cast_by_lanes(IrBuilder *b, IrCast cast, IrValue x, IrType type) {
    IrValue result = ir_undefined(b, type);
    for (int n = 0; n < ir_lane_count(type); n++)
        result = build_insert(b, result, build_cast(b, cast, build_extract(b, x, n), ir_element(type)), n);
    return result;
}

IrValue build_cast(IrBuilder *b, IrCast cast, IrValue x, IrType type) {
    int lanes = ir_lane_count(type);
    IrType from = ir_element(x->type), to = ir_element(type);
    if (x->parts[0]->op == I_CONST && lanes == 1 && cast <= IR_CUT) return cast_constant(b, cast, x, type);
    if (x->parts[0]->op == I_CONST && lanes == 1 && cast == IR_BITS) return ir_int(b, type, x->parts[0]->imm);
    if (cast == IR_BITS && (from == IR_I1 || to == IR_I1)) no_rule(b, "bits of a mask");
    if (from == IR_I1 && lanes > 1) { /* masks: zero or one, zero or minus one */
        if (cast == IR_SEXT && !b->avx512) return condition_lanes(b, x, ir_bits(type));
        if (cast == IR_ZEXT || cast == IR_SEXT)
            return build_select(b, x, ir_int(b, type, cast == IR_ZEXT ? 1 : -1), ir_int(b, type, 0));
        if (cast == IR_UITOF || cast == IR_SITOF)
            return build_select(b, x, ir_real(b, type, cast == IR_UITOF ? 1 : -1), ir_real(b, type, 0));
    }
    if (to == IR_I1 && cast == IR_CUT) {
        IrValue low = build_and(b, x, ir_int(b, x->type, 1));
        return build_compare(b, IR_NE, low, ir_int(b, x->type, 0));
    }
    /* floats know integers of 32 and 64 bits */
    bool narrow = ir_bits(from) < 32 && (cast == IR_SITOF || cast == IR_UITOF);
    if (narrow) {
        IrValue word = build_cast(b, cast == IR_SITOF ? IR_SEXT : IR_ZEXT, x, ir_lanes(IR_I32, lanes));
        return build_cast(b, IR_SITOF, word, type);
    }
    if ((cast == IR_FTOSI || cast == IR_FTOUI) && ir_bits(to) < 32) no_rule(b, "narrow integers of floats");
    bool of_signed = cast == IR_SITOF || cast == IR_FTOSI, of_unsigned = cast == IR_UITOF || cast == IR_FTOUI;
    bool wide = from == IR_I64 || to == IR_I64;
    if (!b->avx512 && of_unsigned && wide) no_rule(b, "floats and unsigned integers of 64 bits, on AVX2");
    if (!b->avx512 && lanes > 1 && (of_unsigned || (of_signed && wide))) return cast_by_lanes(b, cast, x, type);
    if ((from == IR_F16 || to == IR_F16) && cast != IR_BITS && from != IR_F32 && to != IR_F32)
        no_rule(b, "f16 but of f32");
    if (lanes == 1 && is_integer(from) && is_integer(to) && ir_bits(from) == ir_bits(to)) return x;
    if (cast == IR_BITS && from == IR_POINTER) return native_value(b, type, x->parts[0]);
    if (cast != IR_BITS || ir_lane_count(x->type) == ir_lane_count(type)) return cast_parts(b, cast, x, type);
    IrValue v = native_value_new(b, type); /* bits of another number of lanes: the registers stay */
    if (v->count != x->count || lanes == 1 || ir_lane_count(x->type) == 1) no_rule(b, "bits of other lanes");
    for (int p = 0; p < v->count; p++) v->parts[p] = cast_part(b, cast, x->parts[p], part_type(b, type));
    return v;
}

/* --- memory --- */

/* An address is folded as far as its parts are: pointer + index * scale + imm. */
static Inst *address(IrBuilder *b, Inst *pointer, Inst *index, int scale, int64_t displacement) {
    Inst *i = inst_add(b, I_ADDRESS, IR_POINTER, pointer, index, NULL);
    i->scale = (unsigned char)scale;
    i->imm = displacement;
    return i;
}

static bool is_small(int64_t displacement) {
    return displacement >= -((int64_t)1 << 30) && displacement < (int64_t)1 << 30;
}

static Inst *moved(IrBuilder *b, Inst *pointer, int64_t by) {
    if (by == 0) return pointer;
    if (!is_small(by)) return address(b, pointer, inst_constant(b, IR_I64, &by), 1, 0);
    if (pointer->op == I_ADDRESS && is_small(pointer->imm + by))
        return address(b, pointer->args[0], pointer->args[1], pointer->scale, pointer->imm + by);
    return address(b, pointer, NULL, 1, by);
}

/* What of an index an address has for nothing: c of x + c, and 1 to 8 times. */
static Inst *without_constants(Inst *index, int64_t *scale, int64_t *displacement) {
    for (;; index = index->args[0]) {
        if (index->op != I_BINOP || index->args[1]->op != I_CONST) return index;
        int64_t value = index->args[1]->imm;
        if (index->kind == IR_ADD && is_small(value) && is_small(*displacement + value * *scale))
            *displacement += value * *scale;
        else if (index->kind == IR_SHL && value <= 3 && *scale << value <= 8)
            *scale <<= value;
        else
            return index;
    }
}

IrValue build_offset(IrBuilder *b, IrValue pointer, IrValue index, int scale) {
    int64_t known, times = scale, displacement = 0;
    Inst *base = pointer->parts[0];
    if (ir_constant(index, &known))
        return native_value(b, IR_POINTER, moved(b, base, (int64_t)((uint64_t)known * (uint64_t)scale)));
    Inst *by = without_constants(index->parts[0], &times, &displacement);
    if (times > 8 || times & (times - 1)) {
        by = binop(b, IR_MUL, by, inst_constant(b, IR_I64, &times));
        times = 1;
    }
    if (base->op == I_ADDRESS && is_small(displacement + base->imm)) {
        displacement += base->imm;
        base = base->args[1] ? address(b, base->args[0], base->args[1], base->scale, 0) : base->args[0];
    }
    return native_value(b, IR_POINTER, address(b, base, by, (int)times, displacement));
}

static void set_address(Inst *i, Inst *pointer, int64_t displacement) {
    i->args[0] = pointer;
    i->scale = 1;
    i->imm = displacement;
    if (pointer->op != I_ADDRESS || !is_small(pointer->imm + displacement)) return;
    i->args[0] = pointer->args[0];
    i->args[1] = pointer->args[1];
    i->scale = pointer->scale;
    i->imm = pointer->imm + displacement;
}

static bool is_variable(IrValue pointer) { return pointer->parts[0]->variable != NULL; }
static int64_t part_bytes(const IrBuilder *b, IrType type) { return (int64_t)part_lanes(b, type) * ir_bits(type) / 8; }

static IrValue load(IrBuilder *b, IrType type, IrValue pointer, IrValue mask) {
    IrValue v = native_value_new(b, type);
    if (ir_element(type) == IR_I1) no_rule(b, "conditions in memory");
    for (int p = 0; p < v->count; p++) {
        Inst *live = mask ? mask_part(b, mask, type, p) : NULL;
        v->parts[p] = inst_add(b, I_LOAD, part_type(b, type), NULL, NULL, live);
        set_address(v->parts[p], pointer->parts[0], p * part_bytes(b, type));
    }
    return v;
}

IrValue build_load(IrBuilder *b, IrType type, IrValue pointer, int64_t align) {
    (void)align;
    if (!is_variable(pointer)) return load(b, type, pointer, NULL);
    IrValue v = native_value_new(b, type);
    for (int p = 0; p < v->count; p++) {
        v->parts[p] = inst_add(b, I_GET, part_type(b, type), NULL, NULL, NULL);
        v->parts[p]->variable = pointer->parts[p];
    }
    return v;
}

static void store(IrBuilder *b, IrValue value, IrValue pointer, IrValue mask, int kind) {
    if (ir_element(value->type) == IR_I1) no_rule(b, "conditions in memory");
    for (int p = 0; p < value->count; p++) {
        Inst *live = mask ? mask_part(b, mask, value->type, p) : NULL;
        Inst *i = inst_add(b, I_STORE, part_type(b, value->type), NULL, NULL, live);
        i->args[3] = value->parts[p];
        i->kind = (unsigned char)kind;
        set_address(i, pointer->parts[0], p * part_bytes(b, value->type));
    }
}

void build_store(IrBuilder *b, IrValue value, IrValue pointer, int64_t align) {
    (void)align;
    if (!is_variable(pointer)) {
        store(b, value, pointer, NULL, 0);
        return;
    }
    for (int p = 0; p < value->count; p++)
        inst_add(b, I_SET, part_type(b, value->type), value->parts[p], NULL, NULL)->variable = pointer->parts[p];
}

void build_store_past(IrBuilder *b, IrValue value, IrValue pointer, int64_t align) {
    (void)align;
    store(b, value, pointer, NULL, 1);
}

IrValue build_load_masked(IrBuilder *b, IrType type, IrValue pointer, int64_t align, IrValue mask) {
    (void)align;
    return load(b, type, pointer, mask);
}

void build_store_masked(IrBuilder *b, IrValue value, IrValue pointer, int64_t align, IrValue mask) {
    (void)align;
    store(b, value, pointer, mask, 0);
}

/* Lanes of 64-bit offsets, eight at a time. */
static Inst *lane_offsets(IrBuilder *b, IrValue stride, int from, int lanes) {
    int64_t numbers[MOST_LANES];
    for (int n = 0; n < lanes; n++) numbers[n] = from + n;
    IrType type = ir_lanes(IR_I64, lanes);
    IrValue steps = build_mul(b, ir_vector(b, type, numbers), build_splat(b, stride, lanes));
    return steps->parts[0];
}

enum { GATHER_LANES = 8 };

static Inst *gather_mask(IrBuilder *b, IrValue mask, int from, int lanes) {
    if (mask) return part_of(b, mask->parts[0], from, lanes);
    return ir_int(b, ir_lanes(IR_I1, lanes), -1)->parts[0];
}

static void unsupported_narrow(IrBuilder *b, IrType type) {
    if (ir_bits(type) < 32 || ir_lane_count(type) < 2) no_rule(b, "strided access of narrow elements");
}

IrValue build_gather(IrBuilder *b, IrType type, IrValue pointer, IrValue stride, int64_t align, IrValue mask) {
    int lanes = ir_lane_count(type), most = lanes < GATHER_LANES ? lanes : GATHER_LANES, own = part_lanes(b, type);
    IrValue v = native_value_new(b, type);
    (void)align;
    unsupported_narrow(b, type);
    if (!b->avx512) no_rule(b, "strided access");
    for (int p = 0; p < v->count; p++) {
        Inst *pieces[MOST_PARTS];
        for (int n = 0; n < own; n += most) {
            Inst *offsets = lane_offsets(b, stride, p * own + n, most), *live = gather_mask(b, mask, p * own + n, most);
            IrType piece = ir_lanes(ir_element(type), most);
            pieces[n / most] = inst_add(b, I_GATHER, piece, pointer->parts[0], offsets, live);
        }
        v->parts[p] = join(b, pieces, own / most);
    }
    return v;
}

void build_scatter(IrBuilder *b, IrValue value, IrValue pointer, IrValue stride, int64_t align, IrValue mask) {
    int lanes = ir_lane_count(value->type), most = lanes < GATHER_LANES ? lanes : GATHER_LANES;
    int own = part_lanes(b, value->type);
    (void)align;
    unsupported_narrow(b, value->type);
    if (!b->avx512) no_rule(b, "strided access");
    for (int from = 0; from < lanes; from += most) {
        Inst *piece = part_of(b, value->parts[from / own], from % own, most);
        Inst *offsets = lane_offsets(b, stride, from, most), *live = gather_mask(b, mask, from, most);
        Inst *i = inst_add(b, I_SCATTER, ir_lanes(ir_element(value->type), most), pointer->parts[0], offsets, live);
        i->args[3] = piece;
    }
}

void build_prefetch(IrBuilder *b, IrValue pointer, int cache) {
    Inst *i = inst_add(b, I_PREFETCH, IR_VOID, NULL, NULL, NULL);
    i->kind = (unsigned char)cache;
    set_address(i, pointer->parts[0], 0);
}

void build_fence(IrBuilder *b) { inst_add(b, I_FENCE, IR_VOID, NULL, NULL, NULL); }

IrValue build_variable(IrBuilder *b, IrType type, int count) {
    if (is_lane_condition(type) && !b->avx512) no_rule(b, "variables of conditions of lanes");
    if (count == 1) {
        IrValue v = native_value_new(b, type);
        for (int p = 0; p < v->count; p++) {
            Inst *i = inst_new(b, I_UNDEFINED, part_type(b, type));
            i->variable = i;
            i->imm = b->variable_count++;
            v->parts[p] = i;
        }
        return v;
    }
    Inst *i = inst_add(b, I_STACK, IR_POINTER, NULL, NULL, NULL);
    i->imm = b->frame;
    b->frame += (count * (int64_t)ir_lane_count(type) * ir_bits(type) / 8 + 63) & -64;
    return native_value(b, IR_POINTER, i);
}

/* --- what is repeated instead of called --- */

bool build_function_begin(IrBuilder *b, const char *name, IrType result, const IrType *parameters, int count) {
    (void)b, (void)name, (void)result, (void)parameters, (void)count;
    return false;
}

void build_function_end(IrBuilder *b, IrValue result) { (void)b, (void)result; }

IrValue build_call(IrBuilder *b, const char *name, const IrValue *arguments, int count) {
    (void)b, (void)name, (void)arguments, (void)count;
    return NULL;
}

IrValue build_scale(IrBuilder *b, IrValue x, IrValue exponent) {
    IrValue v = native_value_new(b, x->type);
    for (int p = 0; p < v->count; p++)
        v->parts[p] = inst_add(b, I_SCALE, part_type(b, x->type), x->parts[p], exponent->parts[p], NULL);
    return v;
}
