/* SPDX-License-Identifier: Apache-2.0 */
/* SSA -> machine instructions. Blocks are walked backwards, so that what nobody asks for (a comparison that a branch does
 * itself, a load that another instruction reads from memory) is never made. */
#include "codegen/native/machine.h"

typedef struct Select {
    Machine *m;
    VEC(Code) chunk; /* of the present instruction, forwards */
    int *loads_at;   /* [inst number]: stores before it in its block */
    VEC(Inst *) undefined;
} Select;

enum { VARIANTS = 4 }; /* PS, PD, SS, SD */

int reg_new(Machine *m, RegClass class) {
    Reg reg = {.class = class, .same = m->regs.count, .place = -1, .slot = -1};
    VEC_PUSH(m->arena, m->regs, reg);
    return m->regs.count - 1;
}

static RegClass class_of(const Inst *i) {
    if (i->op == I_PART && i->element != IR_I1) return CLASS_VECTOR; /* of one lane, too */
    if (i->op == I_PART) return CLASS_MASK;
    if (i->lanes > 1 || is_float_element(i->element)) return i->element == IR_I1 ? CLASS_MASK : CLASS_VECTOR;
    return CLASS_INTEGER;
}

static int length_of(const Inst *i) {
    int bits = i->lanes * ir_bits(i->element);
    return bits <= 128 ? 0 : bits <= 256 ? 1 : 2;
}

static Code *code(Select *s, MachineOp op, int dst, int x, int y) {
    Code c = {.op = (short)op, .dst = dst, .src = {x, y}, .count = y ? 2 : x ? 1 : 0, .scale = 1, .wide = true};
    VEC_PUSH(s->m->arena, s->chunk, c);
    return &s->chunk.items[s->chunk.count - 1];
}

static Code *vector_code(Select *s, MachineOp op, int length, int dst, int x, int y) {
    Code *c = code(s, op, dst, x, y);
    c->length = (unsigned char)length;
    return c;
}

/* --- operands --- */

static int pool_place(Machine *m, const int64_t *words, int bytes) {
    for (int n = 0; n < m->pool.count; n++)
        if (m->pool.items[n].bytes == bytes &&
            memcmp(m->pool.items[n].words, words, sizeof m->pool.items[n].words) == 0)
            return n;
    Constant c = {.bytes = bytes};
    memcpy(c.words, words, sizeof c.words);
    VEC_PUSH(m->arena, m->pool, c);
    return m->pool.count - 1;
}

/* A whole register, what the lanes leave over being more of the same; then as few bytes of it as repeat. */
static int constant_place(Machine *m, const Inst *i) {
    unsigned char bytes[64];
    int64_t words[8] = {0};
    int size = ir_bits(i->element) / 8;
    for (int at = 0; at < 64; at += size) memcpy(bytes + at, &i->bits[at / size % i->lanes], (size_t)size);
    memcpy(words, bytes, sizeof words);
    int repeat = 8;
    for (int n = 1; n < 8; n++)
        if (words[n] != words[0]) repeat = whole_bytes(m);
    if (repeat == 8 && (uint32_t)words[0] == (uint64_t)words[0] >> 32) repeat = 4;
    return pool_place(m, words, repeat);
}

static int place_reg(Machine *m, int place) {
    if (m->pool.items[place].reg) return m->pool.items[place].reg;
    int reg = reg_new(m, CLASS_VECTOR);
    m->regs.items[reg].constant = place + 1;
    m->pool.items[place].reg = reg;
    Code c = {.op = X_P_VECTOR, .dst = reg, .length = (unsigned char)whole_length(m), .scale = 1};
    VEC_PUSH(m->arena, m->entry, c);
    return reg;
}

static int constant_reg(Machine *m, const Inst *i) { return place_reg(m, constant_place(m, i)); }

/* Bits set in so many bytes of a register, and none behind. */
static int low_bytes_reg(Machine *m, int bytes) {
    int64_t words[8] = {0};
    memset(words, 255, (size_t)bytes);
    return place_reg(m, pool_place(m, words, whole_bytes(m)));
}

static int ones_reg(Machine *m) { return low_bytes_reg(m, whole_bytes(m)); }

static int number_reg(Select *s, int64_t value) {
    int reg = reg_new(s->m, CLASS_INTEGER);
    code(s, X_P_CONSTANT, reg, 0, 0)->imm = value;
    return reg;
}

static int mask_reg(Select *s, int64_t bits) {
    int reg = reg_new(s->m, CLASS_MASK);
    code(s, X_KMOVQ_TO, reg, number_reg(s, bits), 0);
    return reg;
}

static int64_t mask_bits(const Inst *i) {
    uint64_t bits = 0;
    for (int n = 0; i->bits && n < i->lanes; n++) bits |= (uint64_t)(i->bits[n] & 1) << n;
    return (int64_t)bits;
}

/* Another type for the same bits of a vector register: no instruction. */
static bool is_another_name(const Inst *i) {
    return i->op == I_CAST && i->kind == IR_BITS && class_of(i) == CLASS_VECTOR && class_of(i->args[0]) == CLASS_VECTOR;
}

static int use(Select *s, Inst *i) {
    Machine *m = s->m;
    while (is_another_name(i)) i = i->args[0];
    if (i->op == I_CONST) return number_reg(s, i->element == IR_I1 ? i->imm & 1 : i->imm);
    if (i->op == I_VCONST) return i->element == IR_I1 ? mask_reg(s, mask_bits(i)) : constant_reg(m, i);
    if (i->op == I_UNDEFINED) {
        static const int64_t zero[MOST_LANES];
        Inst none = *i;
        none.bits = zero;
        if (class_of(i) == CLASS_INTEGER) return number_reg(s, 0);
        return class_of(i) == CLASS_MASK ? mask_reg(s, 0) : constant_reg(m, &none);
    }
    if (i->op == I_STACK) {
        int reg = reg_new(m, CLASS_INTEGER);
        Code *c = code(s, X_LEA, reg, 0, 0);
        c->memory = c->frame = true;
        c->displacement = (int)i->imm;
        return reg;
    }
    if (!i->reg) i->reg = reg_new(m, class_of(i));
    return i->reg;
}

static void set_memory(Select *s, Code *c, const Inst *address) {
    /* using may move the chunk, so the registers come first */
    int at = (int)(c - s->chunk.items), base = 0, index = 0, displacement = (int)address->imm;
    Inst *x = address->args[0];
    bool frame = x->op == I_STACK;
    Code saved = *c;
    s->chunk.count = at;
    if (frame)
        displacement += (int)x->imm;
    else
        base = use(s, x);
    if (address->args[1]) index = use(s, address->args[1]);
    VEC_PUSH(s->m->arena, s->chunk, saved);
    c = &s->chunk.items[s->chunk.count - 1];
    c->memory = true;
    c->frame = frame;
    c->base = base;
    c->index = index;
    c->scale = address->scale ? address->scale : 1;
    c->displacement = displacement;
}

/* Whether i may read y, a whole vector or scalar of its own, from memory itself. */
static bool can_fold(const Select *s, const Inst *i, const Inst *y) {
    return y->op == I_LOAD && !y->args[2] && y->uses == 1 && y->block == i->block && !y->reg &&
           s->loads_at[y->number] == s->loads_at[i->number];
}

static bool whole(const Inst *y) {
    int bits = y->lanes * ir_bits(y->element);
    return bits >= 128 || (y->lanes == 1 && is_float_element(y->element));
}

/* dst = op(x, y), y perhaps from memory. */
static Code *two(Select *s, const Inst *i, MachineOp op, int length, Inst *x, Inst *y) {
    bool fold = can_fold(s, i, y) && whole(y) && x != y;
    int dst = i->reg, u = use(s, x), v = fold ? 0 : use(s, y);
    Code *c = vector_code(s, op, length, dst, u, v);
    if (fold) set_memory(s, c, y);
    return &s->chunk.items[s->chunk.count - 1];
}

/* dst = op(x), x perhaps from memory. */
static Code *one(Select *s, const Inst *i, MachineOp op, int length, Inst *x, bool may_fold) {
    bool fold = may_fold && can_fold(s, i, x);
    int dst = i->reg, u = fold ? 0 : use(s, x);
    Code *c = vector_code(s, op, length, dst, u, 0);
    if (fold) set_memory(s, c, x);
    return &s->chunk.items[s->chunk.count - 1];
}

static int variant_of(const Inst *i) { return (i->lanes == 1 ? 2 : 0) + (i->element == IR_F64); }
static void none_such(Select *s, const char *what) { no_rule(s->m->ir, what); }

/* --- integers --- */

static bool fits(int64_t value) { return value == (int32_t)value; }

static int extended(Select *s, Inst *x, bool is_signed) {
    int bits = ir_bits(x->element), from = use(s, x);
    if (bits >= 32 || bits == 1 || x->op == I_CONST) return from;
    int reg = reg_new(s->m, CLASS_INTEGER);
    MachineOp op = is_signed ? (bits == 8 ? X_MOVSX8 : X_MOVSX16) : bits == 8 ? X_MOVZX8 : X_MOVZX16;
    code(s, op, reg, from, 0)->wide = false;
    return reg;
}

static Inst *narrow_constant(Select *s, Inst *x, bool is_signed) {
    int bits = ir_bits(x->element);
    if (x->op != I_CONST || is_signed || bits >= 32) return x;
    Inst *i = inst_new(s->m->ir, I_CONST, x->element);
    i->imm = x->imm & (((int64_t)1 << bits) - 1);
    return i;
}

static void integer_binop(Select *s, const Inst *i) {
    static const short plain[] = {
        [IR_ADD] = X_ADD, [IR_SUB] = X_SUB, [IR_MUL] = X_IMUL, [IR_AND] = X_AND, [IR_OR] = X_OR, [IR_XOR] = X_XOR};
    static const short by_number[] = {
        [IR_ADD] = X_ADD_I, [IR_SUB] = X_SUB_I, [IR_MUL] = X_IMUL_I, [IR_AND] = X_AND_I, [IR_OR] = X_OR_I,
        [IR_XOR] = X_XOR_I, [IR_SHL] = X_SHL_I, [IR_LSHR] = X_SHR_I, [IR_ASHR] = X_SAR_I};
    IrOp op = (IrOp)i->kind;
    Inst *x = i->args[0], *y = i->args[1];
    bool is_signed = op == IR_SDIV || op == IR_SREM || op == IR_ASHR;
    bool widens = is_signed || op == IR_UDIV || op == IR_UREM || op == IR_LSHR;
    bool shift = op == IR_SHL || op == IR_LSHR || op == IR_ASHR, wide = i->element >= IR_I64;
    if (widens) {
        x = narrow_constant(s, x, is_signed);
        y = narrow_constant(s, y, is_signed);
    }
    int u = widens ? extended(s, x, is_signed) : use(s, x);
    Code *c;
    if (op >= IR_SDIV && op <= IR_UREM) {
        int v = extended(s, y, is_signed);
        c = code(s, X_P_DIVIDE, i->reg, u, v);
        c->imm = op;
    } else if (y->op == I_CONST && fits(y->imm)) {
        c = code(s, (MachineOp)by_number[op], i->reg, u, 0);
        c->imm = i->element == IR_I1 ? y->imm & 1 : y->imm;
        c->tied = op != IR_MUL;
    } else if (shift) {
        int v = use(s, y); /* its low bits alone count */
        c = code(s, op == IR_SHL ? X_SHLX : op == IR_LSHR ? X_SHRX : X_SARX, i->reg, v, u);
    } else {
        int v = use(s, y);
        c = code(s, (MachineOp)plain[op], i->reg, u, v);
        c->tied = true;
        c->early = op == IR_SUB;
    }
    c->wide = wide;
}

/* The flags of x ? y; the condition's code. */
static int compare_flags(Select *s, const Inst *i) {
    static const signed char conditions[] = {COND_E,  COND_NE, COND_L,  COND_LE, COND_G,
                                             COND_GE, COND_B,  COND_BE, COND_A,  COND_AE};
    bool is_signed = i->kind >= IR_SLT && i->kind <= IR_SGE;
    Inst *x = narrow_constant(s, i->args[0], is_signed), *y = narrow_constant(s, i->args[1], is_signed);
    int u = extended(s, x, is_signed);
    Code *c;
    if (y->op == I_CONST && fits(y->imm)) {
        c = code(s, X_CMP_I, 0, u, 0);
        c->imm = y->imm;
    } else {
        int v = extended(s, y, is_signed);
        c = code(s, X_CMP, 0, u, v);
    }
    c->wide = i->args[0]->element >= IR_I64;
    return conditions[i->kind];
}

static bool compares_integers(const Inst *i) {
    return i->op == I_COMPARE && i->lanes == 1 && !is_float_element(i->args[0]->element);
}

/* Equal where no lane is set. */
static void any_flags(Select *s, const Inst *any) {
    Inst *x = any->args[0];
    int mask = use(s, x), bytes = x->lanes * ir_bits(x->element) / 8;
    if (s->m->avx512) {
        code(s, X_KORTESTQ, 0, mask, 0);
        return;
    }
    int lanes = bytes < 16 ? low_bytes_reg(s->m, bytes) : mask; /* of a smaller one the register has more */
    vector_code(s, X_VPTEST, length_of(x), 0, mask, lanes);
}

static int condition_flags(Select *s, Inst *condition) {
    if (compares_integers(condition)) return compare_flags(s, condition);
    if (condition->op == I_ANY) {
        any_flags(s, condition);
        return COND_NE;
    }
    int reg = use(s, condition);
    code(s, X_TEST, 0, reg, reg)->wide = false;
    return COND_NE;
}

/* --- vectors --- */

static MachineOp by_element(const Inst *i, MachineOp b, MachineOp w, MachineOp d, MachineOp q) {
    int bits = ir_bits(i->element);
    return bits == 8 ? b : bits == 16 ? w : bits == 32 ? d : q;
}

static void vector_shift(Select *s, const Inst *i, IrOp op) {
    static const short by_number[3][3] = {
        {X_VPSLLW, X_VPSLLD, X_VPSLLQ}, {X_VPSRLW, X_VPSRLD, X_VPSRLQ}, {X_VPSRAW, X_VPSRAD, X_VPSRAQ}};
    static const short by_lanes[3][3] = {
        {X_VPSLLVW, X_VPSLLVD, X_VPSLLVQ}, {X_VPSRLVW, X_VPSRLVD, X_VPSRLVQ}, {X_VPSRAVW, X_VPSRAVD, X_VPSRAVQ}};
    Inst *y = i->args[1];
    int row = op - IR_SHL, column = ir_bits(i->element) == 16 ? 0 : ir_bits(i->element) == 32 ? 1 : 2;
    bool same = y->op == I_VCONST;
    for (int n = 1; same && n < y->lanes; n++) same = y->bits[n] == y->bits[0];
    bool lacks = op == IR_ASHR ? column == 2 || (column == 0 && !same) : column == 0 && !same;
    if (lacks && !s->m->avx512) none_such(s, "a shift of such lanes on AVX2");
    if (same)
        one(s, i, (MachineOp)by_number[row][column], length_of(i), i->args[0], false)->imm = y->bits[0];
    else
        two(s, i, (MachineOp)by_lanes[row][column], length_of(i), i->args[0], y);
}

static void vector_binop(Select *s, const Inst *i) {
    IrOp op = (IrOp)i->kind;
    Inst *x = i->args[0], *y = i->args[1];
    bool wide = ir_bits(i->element) == 64;
    int length = length_of(i);
    if (op >= IR_FADD && op <= IR_FDIV) {
        static const short floats[] = {X_VADDPS, X_VSUBPS, X_VMULPS, X_VDIVPS};
        bool commutes = op == IR_FADD || op == IR_FMUL;
        if (i->element == IR_F16) none_such(s, "arithmetic on f16");
        bool from_memory = can_fold(s, i, y) || (y->op == I_VCONST && y->uses == 1); /* else a register holds it */
        bool swap = commutes && (x->op == I_VCONST || (can_fold(s, i, x) && !from_memory));
        two(s, i, (MachineOp)(floats[op - IR_FADD] + variant_of(i)), length, swap ? y : x, swap ? x : y);
        return;
    }
    if (i->element == IR_I1) {
        if (op != IR_AND && op != IR_OR && op != IR_XOR) none_such(s, "arithmetic on masks");
        two(s, i, op == IR_AND ? X_KANDQ : op == IR_OR ? X_KORQ : X_KXORQ, 0, x, y);
        return;
    }
    switch (op) {
    case IR_ADD: two(s, i, by_element(i, X_VPADDB, X_VPADDW, X_VPADDD, X_VPADDQ), length, x, y); return;
    case IR_SUB: two(s, i, by_element(i, X_VPSUBB, X_VPSUBW, X_VPSUBD, X_VPSUBQ), length, x, y); return;
    case IR_MUL: two(s, i, by_element(i, X_VPMULLW, X_VPMULLW, X_VPMULLD, X_VPMULLQ), length, x, y); return;
    case IR_AND: two(s, i, wide ? X_VPANDQ : X_VPANDD, length, x, y); return;
    case IR_OR: two(s, i, wide ? X_VPORQ : X_VPORD, length, x, y); return;
    case IR_XOR: two(s, i, wide ? X_VPXORQ : X_VPXORD, length, x, y); return;
    case IR_SHL:
    case IR_LSHR:
    case IR_ASHR: vector_shift(s, i, op); return;
    default: none_such(s, "an operation on vectors");
    }
}

static void sign_bit(Select *s, const Inst *i) {
    int64_t bits[MOST_LANES];
    bool wide = i->element == IR_F64, clear = i->kind == IR_FABS;
    for (int n = 0; n < i->lanes; n++) bits[n] = wide ? INT64_MIN : (int64_t)INT32_MIN;
    if (clear)
        for (int n = 0; n < i->lanes; n++) bits[n] = wide ? INT64_MAX : (int64_t)INT32_MAX;
    Inst mask = {.op = I_VCONST, .element = i->element, .lanes = i->lanes, .bits = bits};
    int constant = constant_reg(s->m, &mask), x = use(s, i->args[0]);
    vector_code(s,
                clear  ? (wide ? X_VPANDQ : X_VPANDD)
                : wide ? X_VPXORQ
                       : X_VPXORD,
                length_of(i), i->reg, x, constant);
}

static void unary(Select *s, const Inst *i) {
    static const signed char roundings[] = {[IR_FLOOR] = 9, [IR_CEIL] = 10, [IR_TRUNC] = 11, [IR_RINT] = 4};
    int variant = variant_of(i), length = length_of(i);
    Inst *x = i->args[0];
    switch ((IrUnary)i->kind) {
    case IR_FABS:
    case IR_FNEG: sign_bit(s, i); return;
    case IR_SQRT:
        if (variant < 2)
            one(s, i, (MachineOp)(X_VSQRTPS + variant), length, x, whole(x));
        else
            two(s, i, (MachineOp)(X_VSQRTPS + variant), length, x, x);
        return;
    case IR_FLOOR:
    case IR_CEIL:
    case IR_TRUNC:
    case IR_RINT:
        if (variant < 2)
            one(s, i, (MachineOp)(X_VRNDSCALEPS + variant), length, x, whole(x))->imm = roundings[i->kind];
        else
            two(s, i, (MachineOp)(X_VRNDSCALEPS + variant), length, x, x)->imm = roundings[i->kind];
        return;
    case IR_CTLZ:
        if (i->lanes == 1) {
            int from = use(s, x);
            code(s, X_LZCNT, i->reg, from, 0)->wide = i->element == IR_I64;
        } else if (ir_bits(i->element) >= 32 && s->m->avx512) {
            one(s, i, i->element == IR_I64 ? X_VPLZCNTQ : X_VPLZCNTD, length, x, false);
        } else {
            none_such(s, "leading zeros of such integers");
        }
        return;
    }
}

static void least_or_most(Select *s, const Inst *i) {
    bool most = i->op == I_MAX;
    Inst *x = i->args[0], *y = i->args[1];
    if (is_float_element(i->element)) {
        two(s, i, (MachineOp)((most ? X_VMAXPS : X_VMINPS) + variant_of(i)), length_of(i), x, y);
        return;
    }
    MachineOp first = most ? (i->kind ? X_VPMAXSB : X_VPMAXUB) : i->kind ? X_VPMINSB : X_VPMINUB;
    two(s, i, by_element(i, first, first + 1, first + 2, first + 3), length_of(i), x, y);
}

/* Of which operand at most one comes from memory: the addend first. */
static void fused(Select *s, const Inst *i) {
    static const int order[] = {2, 1, 0};
    int memory = -1, regs[3] = {0};
    for (int n = 0; n < 3 && memory < 0; n++) {
        Inst *x = i->args[order[n]];
        if (can_fold(s, i, x) && whole(x)) memory = order[n];
    }
    for (int n = 0; n < 3; n++)
        if (n != memory) regs[n] = use(s, i->args[n]);
    Code *c = vector_code(s, X_P_FMA, length_of(i), i->reg, 0, 0);
    memcpy(c->src, regs, sizeof regs);
    c->count = 3;
    c->imm = i->kind * 16 + variant_of(i);
    c->memory_at = memory < 0 ? 3 : (unsigned char)memory;
    if (memory >= 0) set_memory(s, c, i->args[memory]);
}

static int temporary(Select *s, MachineOp op, int length, int x, int y) {
    int reg = reg_new(s->m, CLASS_VECTOR);
    vector_code(s, op, length, reg, x, y);
    return reg;
}

/* AVX2 knows equal and, with signs, greater; what is least or most of two says the rest. */
static void compare_lanes_of_integers(Select *s, const Inst *i) {
    IrCompare how = (IrCompare)i->kind;
    Inst *x = i->args[0];
    int u = use(s, x), v = use(s, i->args[1]), length = length_of(x);
    bool is_signed = how >= IR_SLT && how <= IR_SGE, equal = how == IR_EQ || how == IR_NE;
    bool less = how == IR_SLT || how == IR_ULT || how == IR_SGE || how == IR_UGE; /* or its opposite */
    bool opposite = how == IR_NE || how == IR_SLE || how == IR_SGE || how == IR_ULE || how == IR_UGE;
    MachineOp equals = by_element(x, X_VPCMPEQB, X_VPCMPEQW, X_VPCMPEQD, X_VPCMPEQQ),
              greater = by_element(x, X_VPCMPGTB, X_VPCMPGTW, X_VPCMPGTD, X_VPCMPGTQ);
    if (!is_signed && !equal && x->element == IR_I64) {
        int64_t bits[MOST_LANES];
        for (int n = 0; n < x->lanes; n++) bits[n] = INT64_MIN;
        Inst sign = {.op = I_VCONST, .element = x->element, .lanes = x->lanes, .bits = bits};
        int flip = constant_reg(s->m, &sign);
        u = temporary(s, X_VPXORQ, length, u, flip);
        v = temporary(s, X_VPXORQ, length, v, flip);
        is_signed = true;
    }
    if (!is_signed && !equal) { /* x <= y where the lesser is x: what is wanted, or its opposite */
        MachineOp end = less ? by_element(x, X_VPMAXUB, X_VPMAXUW, X_VPMAXUD, X_VPMAXUD)
                             : by_element(x, X_VPMINUB, X_VPMINUW, X_VPMINUD, X_VPMINUD);
        v = temporary(s, end, length, u, v);
        equal = true;
        opposite = !opposite;
    }
    int to = opposite ? reg_new(s->m, CLASS_VECTOR) : i->reg;
    vector_code(s, equal ? equals : greater, length, to, less && !equal ? v : u, less && !equal ? u : v);
    if (opposite) vector_code(s, X_VPXORD, length, i->reg, to, ones_reg(s->m));
}

/* op: of floats. */
static void compare_without_masks(Select *s, const Inst *i, MachineOp op, int predicate) {
    Inst *x = i->args[0], *y = i->args[1];
    if (!is_float_element(x->element)) {
        compare_lanes_of_integers(s, i);
        return;
    }
    if (x->lanes > 1) {
        two(s, i, op, length_of(x), x, y)->imm = predicate;
        return;
    }
    Inst scalar = *i;
    int lanes = scalar.reg = reg_new(s->m, CLASS_VECTOR), all = reg_new(s->m, CLASS_INTEGER);
    two(s, &scalar, op, 0, x, y)->imm = predicate;
    vector_code(s, X_VMOVD_FROM, 0, all, lanes, 0);
    Code *c = code(s, X_AND_I, i->reg, all, 0);
    c->imm = 1;
    c->tied = true;
}

static void compare(Select *s, const Inst *i) {
    static const unsigned char predicates[] = {
        [IR_EQ] = 0,   [IR_NE] = 4,    [IR_SLT] = 1,   [IR_SLE] = 2,   [IR_SGT] = 6,  [IR_SGE] = 5,
        [IR_ULT] = 1,  [IR_ULE] = 2,   [IR_UGT] = 6,   [IR_UGE] = 5,   [IR_FOEQ] = 0, [IR_FOLT] = 1,
        [IR_FOLE] = 2, [IR_FOGT] = 14, [IR_FOGE] = 13, [IR_FONE] = 12, [IR_FORD] = 7, [IR_FUNE] = 4,
        [IR_FULT] = 9, [IR_FULE] = 10, [IR_FUGT] = 6,  [IR_FUGE] = 5,  [IR_FUNO] = 3,
    };
    Inst *x = i->args[0], *y = i->args[1];
    if (compares_integers(i)) {
        int condition = compare_flags(s, i);
        code(s, X_P_SET, i->reg, 0, 0)->condition = (unsigned char)condition;
        return;
    }
    bool unsigned_ones = i->kind >= IR_ULT && i->kind <= IR_UGE;
    MachineOp op = (MachineOp)(X_VCMPPS + variant_of(x));
    if (!is_float_element(x->element))
        op = unsigned_ones ? by_element(x, X_VPCMPUB, X_VPCMPUW, X_VPCMPUD, X_VPCMPUQ)
                           : by_element(x, X_VPCMPB, X_VPCMPW, X_VPCMPD, X_VPCMPQ);
    if (!s->m->avx512) {
        compare_without_masks(s, i, op, predicates[i->kind]);
        return;
    }
    if (x->lanes == 1) { /* of floats: from the mask to a register */
        Inst scalar = *i;
        int mask = scalar.reg = reg_new(s->m, CLASS_MASK);
        two(s, &scalar, op, 0, x, y)->imm = predicates[i->kind];
        code(s, X_KMOVQ_FROM, i->reg, mask, 0);
        return;
    }
    if (x->lanes * ir_bits(x->element) >= 128) {
        two(s, i, op, length_of(x), x, y)->imm = predicates[i->kind];
        return;
    }
    Inst wider = *i; /* the register has more lanes, whose bits must be zero */
    int all = wider.reg = reg_new(s->m, CLASS_MASK), cut = reg_new(s->m, CLASS_MASK);
    two(s, &wider, op, 0, x, y)->imm = predicates[i->kind];
    code(s, X_KSHIFTLQ, cut, all, 0)->imm = 64 - i->lanes;
    code(s, X_KSHIFTRQ, i->reg, cut, 0)->imm = 64 - i->lanes;
}

/* One condition for all lanes, as a mask. */
static int condition_mask(Select *s, Inst *condition, int lanes) {
    int reg = use(s, condition), all = reg_new(s->m, CLASS_INTEGER), mask = reg_new(s->m, CLASS_MASK);
    code(s, X_NEG, all, reg, 0)->tied = true;
    if (lanes < 64) {
        int cut = reg_new(s->m, CLASS_INTEGER);
        Code *c = code(s, X_SHR_I, cut, all, 0);
        c->imm = 64 - lanes;
        c->tied = true;
        all = cut;
    }
    code(s, X_KMOVQ_TO, mask, all, 0);
    return mask;
}

static bool is_zero_vector(const Inst *i) {
    for (int n = 0; i->op == I_VCONST && n < i->lanes; n++)
        if (i->bits[n]) return false;
    return i->op == I_VCONST;
}

/* One condition for all lanes, without masks. */
static int condition_vector(Select *s, Inst *condition, const Inst *like) {
    int reg = use(s, condition), all = reg_new(s->m, CLASS_INTEGER);
    code(s, X_NEG, all, reg, 0)->tied = true;
    int one = temporary(s, X_VMOVQ_TO, 0, all, 0);
    return like->lanes == 1 ? one : temporary(s, X_VPBROADCASTQ_X, length_of(like), one, 0);
}

static void select_without_masks(Select *s, const Inst *i) {
    Inst *condition = i->args[0], *yes = i->args[1], *no = i->args[2];
    int mask = condition->lanes > 1 ? use(s, condition) : condition_vector(s, condition, i), length = length_of(i);
    if (is_zero_vector(no)) {
        int u = use(s, yes);
        vector_code(s, X_VPANDD, length, i->reg, mask, u);
    } else if (is_zero_vector(yes)) {
        int u = use(s, no);
        vector_code(s, X_VPANDN, length, i->reg, mask, u);
    } else {
        int bits = ir_bits(i->element);
        bool fold = can_fold(s, i, yes) && i->lanes * bits >= 128;
        int u = use(s, no), v = fold ? 0 : use(s, yes);
        MachineOp op = bits == 32 ? X_VBLENDVPS : bits == 64 ? X_VBLENDVPD : X_VPBLENDVB;
        Code *c = vector_code(s, op, length, i->reg, u, v);
        c->mask = mask;
        if (fold) set_memory(s, c, yes);
    }
}

static void select_values(Select *s, const Inst *i) {
    Inst *condition = i->args[0], *yes = i->args[1], *no = i->args[2];
    if (class_of(i) == CLASS_INTEGER) {
        int u = use(s, no), v = use(s, yes), flags = condition_flags(s, condition);
        Code *c = code(s, X_P_CMOV, i->reg, u, v);
        c->tied = c->early = true;
        c->condition = (unsigned char)flags;
        c->wide = i->element >= IR_I64;
        return;
    }
    if (!s->m->avx512) {
        select_without_masks(s, i);
        return;
    }
    int mask = condition->lanes > 1 ? use(s, condition) : condition_mask(s, condition, i->lanes);
    bool is_float = is_float_element(i->element) && i->element != IR_F16;
    if (is_zero_vector(no) && ir_bits(i->element) == 32 && !can_fold(s, i, yes)) {
        Code *c = one(s, i, X_VMOVAPS, length_of(i), yes, false);
        c->mask = mask;
        c->zeroing = true;
        return;
    }
    MachineOp op = is_float ? (i->element == IR_F64 ? X_VBLENDMPD : X_VBLENDMPS)
                            : by_element(i, X_VPBLENDMB, X_VPBLENDMW, X_VPBLENDMD, X_VPBLENDMQ);
    int length = length_of(i);
    bool fold = can_fold(s, i, yes) && i->lanes * ir_bits(i->element) >= 128;
    int u = use(s, no), v = fold ? 0 : use(s, yes);
    Code *c = vector_code(s, op, length, i->reg, u, v);
    c->mask = mask;
    if (fold) set_memory(s, c, yes);
}

/* --- casts --- */

static void scalar_cast(Select *s, const Inst *i) {
    Inst *x = i->args[0];
    bool from_wide = x->element >= IR_I64, to_wide = i->element >= IR_I64;
    int from = ir_bits(x->element);
    Code *c;
    switch ((IrCast)i->kind) {
    case IR_ZEXT:
    case IR_SEXT: {
        bool is_signed = i->kind == IR_SEXT;
        int u = use(s, x);
        if (from == 1 && is_signed) {
            c = code(s, X_NEG, i->reg, u, 0);
            c->tied = true;
        } else if (from == 1 || (from == 32 && !is_signed)) {
            c = code(s, X_MOV, i->reg, u, 0);
            c->wide = false;
        } else if (from == 32) {
            c = code(s, X_MOVSXD, i->reg, u, 0);
        } else {
            c = code(s,
                     is_signed   ? (from == 8 ? X_MOVSX8 : X_MOVSX16)
                     : from == 8 ? X_MOVZX8
                                 : X_MOVZX16,
                     i->reg, u, 0);
        }
        return;
    }
    case IR_CUT: {
        int u = use(s, x);
        if (i->element == IR_I1) {
            c = code(s, X_AND_I, i->reg, u, 0);
            c->imm = 1;
            c->tied = true;
        } else {
            code(s, X_P_COPY, i->reg, u, 0);
        }
        return;
    }
    case IR_FEXT:
        if (x->element == IR_F16)
            one(s, i, X_VCVTPH2PS, 0, x, false);
        else
            two(s, i, X_VCVTSS2SD, 0, x, x);
        return;
    case IR_FCUT:
        if (i->element == IR_F16)
            one(s, i, X_VCVTPS2PH, 0, x, false)->imm = 4;
        else
            two(s, i, X_VCVTSD2SS, 0, x, x);
        return;
    case IR_FTOSI:
    case IR_FTOUI: {
        bool by_sign = i->kind == IR_FTOSI || !s->m->avx512; /* of 64 bits, which hold all of 32 without sign */
        MachineOp op = by_sign ? X_VCVTTSS2SI_D : X_VCVTTSS2USI_D;
        bool wide = to_wide || (by_sign && i->kind == IR_FTOUI);
        one(s, i, (MachineOp)(op + (x->element == IR_F64 ? 2 : 0) + wide), 0, x, false);
        return;
    }
    case IR_SITOF:
    case IR_UITOF: {
        static const int64_t zero[1];
        Inst none = {.op = I_VCONST, .element = i->element, .lanes = 1, .bits = zero};
        bool by_sign = i->kind == IR_SITOF || !s->m->avx512;
        MachineOp op = by_sign ? X_VCVTSI2SS_D : X_VCVTUSI2SS_D;
        int v = use(s, x), u = constant_reg(s->m, &none);
        if (by_sign && i->kind == IR_UITOF) {
            int low = reg_new(s->m, CLASS_INTEGER);
            code(s, X_MOV, low, v, 0)->wide = false;
            v = low;
            from_wide = true;
        }
        vector_code(s, (MachineOp)(op + (i->element == IR_F64 ? 2 : 0) + from_wide), 0, i->reg, u, v);
        return;
    }
    case IR_BITS: {
        bool from_float = is_float_element(x->element), to_float = is_float_element(i->element);
        int u = use(s, x);
        if (from_float == to_float) {
            code(s, X_P_COPY, i->reg, u, 0);
        } else if (ir_bits(i->element) == 16) {
            none_such(s, "bits of f16");
        } else if (from_float) {
            vector_code(s, from == 64 ? X_VMOVQ_FROM : X_VMOVD_FROM, 0, i->reg, u, 0);
        } else {
            vector_code(s, from == 64 ? X_VMOVQ_TO : X_VMOVD_TO, 0, i->reg, u, 0);
        }
        return;
    }
    }
}

/* On AVX2: the bytes that stay go to the begin of each 16, and those of the upper 16 behind the lower ones'. */
static void cut_lanes(Select *s, const Inst *i) {
    const Inst *x = i->args[0];
    int from = ir_bits(x->element) / 8, to = ir_bits(i->element) / 8, bytes = 16 / from * to;
    unsigned char order[16];
    int64_t words[8];
    memset(order, 128, sizeof order); /* zero */
    for (int n = 0; n < bytes; n++) order[n] = (unsigned char)(n / to * from + n % to);
    for (int n = 0; n < 4; n++) memcpy(&words[2 * n], order, sizeof order);
    int u = use(s, i->args[0]), length = length_of(x),
        constant = place_reg(s->m, pool_place(s->m, words, whole_bytes(s->m)));
    if (length == 0) {
        vector_code(s, X_VPSHUFB, 0, i->reg, u, constant);
        return;
    }
    int low = temporary(s, X_VPSHUFB, length, u, constant), high = reg_new(s->m, CLASS_VECTOR);
    vector_code(s, X_VEXTRACTI32X4, length, high, low, 0)->imm = 1;
    vector_code(s, bytes == 8 ? X_VPUNPCKLQDQ : bytes == 4 ? X_VPUNPCKLDQ : X_VPUNPCKLWD, 0, i->reg, low, high);
}

/* Instructions of a cast by the elements' sizes; 0: none. length: the wider side's. */
static void vector_cast(Select *s, const Inst *i) {
    static const short zero[4][4] = {
        {0, X_VPMOVZXBW, X_VPMOVZXBD, X_VPMOVZXBQ}, {0, 0, X_VPMOVZXWD, X_VPMOVZXWQ}, {0, 0, 0, X_VPMOVZXDQ}};
    static const short sign[4][4] = {
        {0, X_VPMOVSXBW, X_VPMOVSXBD, X_VPMOVSXBQ}, {0, 0, X_VPMOVSXWD, X_VPMOVSXWQ}, {0, 0, 0, X_VPMOVSXDQ}};
    static const short cut[4][4] = {{0}, {X_VPMOVWB}, {X_VPMOVDB, X_VPMOVDW}, {X_VPMOVQB, X_VPMOVQW, X_VPMOVQD}};
    Inst *x = i->args[0];
    int from = __builtin_ctz((unsigned)ir_bits(x->element)) - 3, to = __builtin_ctz((unsigned)ir_bits(i->element)) - 3;
    int length = length_of(from > to ? x : i);
    bool wide = i->element == IR_F64, u64 = x->element == IR_I64;
    MachineOp op = (MachineOp)0;
    if (i->element == IR_I1 || x->element == IR_I1) none_such(s, "a cast of masks");
    if (i->kind == IR_CUT && !s->m->avx512) {
        cut_lanes(s, i);
        return;
    }
    switch ((IrCast)i->kind) {
    case IR_ZEXT: op = (MachineOp)zero[from & 3][to & 3]; break;
    case IR_SEXT: op = (MachineOp)sign[from & 3][to & 3]; break;
    case IR_CUT: op = (MachineOp)cut[from & 3][to & 3]; break;
    case IR_FEXT: op = x->element == IR_F16 ? X_VCVTPH2PS : X_VCVTPS2PD; break;
    case IR_FCUT: op = i->element == IR_F16 ? X_VCVTPS2PH : X_VCVTPD2PS; break;
    case IR_SITOF: op = wide ? (u64 ? X_VCVTQQ2PD : X_VCVTDQ2PD) : u64 ? X_VCVTQQ2PS : X_VCVTDQ2PS; break;
    case IR_UITOF: op = wide ? (u64 ? X_VCVTUQQ2PD : X_VCVTUDQ2PD) : u64 ? X_VCVTUQQ2PS : X_VCVTUDQ2PS; break;
    case IR_FTOSI:
        wide = x->element == IR_F64;
        op = i->element == IR_I64 ? (wide ? X_VCVTTPD2QQ : X_VCVTTPS2QQ) : wide ? X_VCVTTPD2DQ : X_VCVTTPS2DQ;
        break;
    case IR_FTOUI:
        wide = x->element == IR_F64;
        op = i->element == IR_I64 ? (wide ? X_VCVTTPD2UQQ : X_VCVTTPS2UQQ) : wide ? X_VCVTTPD2UDQ : X_VCVTTPS2UDQ;
        break;
    case IR_BITS: code(s, X_P_COPY, i->reg, use(s, x), 0); return;
    }
    if (op == (MachineOp)0) {
        none_such(s, "a cast");
        return;
    }
    bool fold = machine_rows[op].form == RM && x->lanes * ir_bits(x->element) >= 64;
    Code *c = one(s, i, op, length, x, fold);
    if (op == X_VCVTPS2PH) c->imm = 4;
}

/* --- lanes --- */

static void splat(Select *s, const Inst *i) {
    Inst *x = i->args[0];
    int bits = ir_bits(i->element), length = length_of(i);
    if (i->element == IR_I1) {
        code(s, X_P_COPY, i->reg, condition_mask(s, x, i->lanes), 0);
        return;
    }
    bool memory = can_fold(s, i, x) && x->lanes == 1;
    MachineOp eight = s->m->avx512 ? X_VPBROADCASTQ : X_VPBROADCASTQ_X,
              op = is_float_element(i->element) && bits == 32
                       ? X_VBROADCASTSS
                       : by_element(i, X_VPBROADCASTB, X_VPBROADCASTW, X_VPBROADCASTD, eight);
    if (memory || class_of(x) == CLASS_VECTOR) {
        one(s, i, op, length, x, true);
        return;
    }
    if (!s->m->avx512) {
        int from = use(s, x), lane = temporary(s, bits == 64 ? X_VMOVQ_TO : X_VMOVD_TO, 0, from, 0);
        vector_code(s, op, length, i->reg, lane, 0);
        return;
    }
    one(s, i, by_element(i, X_VPBROADCASTB_R, X_VPBROADCASTW_R, X_VPBROADCASTD_R, X_VPBROADCASTQ_R), length, x, false);
}

static void mask_part_of(Select *s, const Inst *i) {
    int from = use(s, i->args[0]), left = 64 - (int)i->imm - i->lanes, at = from;
    if (left > 0) {
        at = reg_new(s->m, CLASS_MASK);
        code(s, X_KSHIFTLQ, at, from, 0)->imm = left;
    }
    code(s, X_KSHIFTRQ, i->reg, at, 0)->imm = 64 - i->lanes;
}

/* Bits [imm, ...) of a register to its begin: in steps of 256 and 128, then within 16 bytes. */
static void part(Select *s, const Inst *i) {
    Inst *x = i->args[0];
    if (i->element == IR_I1) {
        mask_part_of(s, i);
        return;
    }
    int bits = ir_bits(i->element), at = (int)i->imm * bits, size = i->lanes * bits, from = use(s, x);
    if (at == 0) {
        code(s, X_P_COPY, i->reg, from, 0);
        return;
    }
    if (size == 256) {
        vector_code(s, X_VEXTRACTI64X4, 2, i->reg, from, 0)->imm = at / 256;
        return;
    }
    if (at >= 128) {
        int rest = at % 128, to = rest ? reg_new(s->m, CLASS_VECTOR) : i->reg;
        vector_code(s, X_VEXTRACTI32X4, length_of(x), to, from, 0)->imm = at / 128;
        from = to;
        at = rest;
    }
    if (at + size > 128) none_such(s, "a part across 16 bytes");
    if (at) vector_code(s, X_VPSRLDQ, 0, i->reg, from, 0)->imm = at / 8;
}

static void join_two(Select *s, const Inst *i) {
    int u = use(s, i->args[0]), v = use(s, i->args[1]), half = i->lanes / 2;
    if (i->element == IR_I1) {
        if (half >= 8) {
            code(s, half == 8 ? X_KUNPCKBW : half == 16 ? X_KUNPCKWD : X_KUNPCKDQ, i->reg, v, u);
        } else {
            int high = reg_new(s->m, CLASS_MASK);
            code(s, X_KSHIFTLQ, high, v, 0)->imm = half;
            code(s, X_KORQ, i->reg, u, high);
        }
        return;
    }
    int bits = half * ir_bits(i->element);
    if (bits == 256)
        vector_code(s, X_VINSERTI64X4, 2, i->reg, u, v)->imm = 1;
    else if (bits == 128)
        vector_code(s, X_VINSERTI32X4, 1, i->reg, u, v)->imm = 1;
    else if (bits == 64)
        vector_code(s, X_VPUNPCKLQDQ, 0, i->reg, u, v);
    else if (bits == 32)
        vector_code(s, X_VPUNPCKLDQ, 0, i->reg, u, v);
    else if (bits == 16)
        vector_code(s, X_VPUNPCKLWD, 0, i->reg, u, v);
    else
        none_such(s, "a join of narrow pieces");
}

/* All lanes are the piece, of which then one is taken. */
static void place_by_blend(Select *s, const Inst *i) {
    static const short all[] = {X_VPBROADCASTB, X_VPBROADCASTW, X_VPBROADCASTD, X_VPBROADCASTQ_X};
    Inst *x = i->args[0], *y = i->args[1];
    int bits = ir_bits(i->element), size = y->lanes * bits, at = (int)i->imm * bits, length = length_of(i);
    int u = use(s, x), v = use(s, y);
    if (class_of(y) != CLASS_VECTOR) v = temporary(s, size == 64 ? X_VMOVQ_TO : X_VMOVD_TO, 0, v, 0);
    v = temporary(s, (MachineOp)all[__builtin_ctz((unsigned)size) - 3], length, v, 0);
    if (size >= 32) {
        vector_code(s, X_VPBLENDD, length, i->reg, u, v)->imm = ((1 << size / 32) - 1) << at / 32;
        return;
    }
    int64_t words[8] = {0};
    memset((char *)words + at / 8, 255, (size_t)size / 8);
    int mask = place_reg(s->m, pool_place(s->m, words, whole_bytes(s->m)));
    vector_code(s, X_VPBLENDVB, length, i->reg, u, v)->mask = mask;
}

static void place(Select *s, const Inst *i) {
    Inst *x = i->args[0], *y = i->args[1];
    int bits = ir_bits(i->element), size = y->lanes * bits, at = (int)i->imm * bits, length = length_of(i);
    if (size == 128 && at % 128 == 0) {
        if (length == 0) {
            code(s, X_P_COPY, i->reg, use(s, y), 0);
            return;
        }
        two(s, i, X_VINSERTI32X4, length, x, y)->imm = at / 128;
        return;
    }
    if (size == 256 && length == 2) {
        two(s, i, X_VINSERTI64X4, length, x, y)->imm = at / 256;
        return;
    }
    if (size > 64 || at % size) {
        no_rule(s->m->ir, "a piece put into a vector");
        return;
    }
    if (!s->m->avx512) {
        place_by_blend(s, i);
        return;
    }
    /* broadcast under a mask, over a copy */
    static const short from_vector[] = {X_VPBROADCASTB, X_VPBROADCASTW, X_VPBROADCASTD, X_VPBROADCASTQ};
    static const short from_integer[] = {X_VPBROADCASTB_R, X_VPBROADCASTW_R, X_VPBROADCASTD_R, X_VPBROADCASTQ_R};
    int mask = mask_reg(s, (int64_t)((uint64_t)1 << at / size)), u = use(s, x), v = use(s, y),
        row = __builtin_ctz((unsigned)size) - 3;
    MachineOp op = (MachineOp)(class_of(y) == CLASS_VECTOR ? from_vector[row] : from_integer[row]);
    Code *c = vector_code(s, op, length, i->reg, u, v);
    c->mask = mask;
    c->tied = c->early = true;
}

static void unpack(Select *s, const Inst *i) {
    MachineOp op = by_element(i, X_VPUNPCKLBW, X_VPUNPCKLWD, X_VPUNPCKLDQ, X_VPUNPCKLQDQ);
    two(s, i, (MachineOp)(op + (i->kind ? X_VPUNPCKHBW - X_VPUNPCKLBW : 0)), length_of(i), i->args[0], i->args[1]);
}

static void groups(Select *s, const Inst *i) {
    int length = length_of(i);
    if (!s->m->avx512) {
        two(s, i, X_VPERM2I128, length, i->args[0], i->args[1])->imm = i->kind ? 0x31 : 0x20;
        return;
    }
    two(s, i, X_VSHUFI32X4, length, i->args[0], i->args[1])->imm = length == 2 ? (i->kind ? 0xDD : 0x88) : i->kind * 3;
}

static void permute(Select *s, const Inst *i) {
    if (!s->m->avx512) { /* of one register, by indices of bytes, within 16, or of 32 bits */
        int from = use(s, i->args[0]), lanes = use(s, i->args[1]);
        if (i->args[1]->element == IR_I8)
            vector_code(s, X_VPSHUFB, length_of(i), i->reg, from, lanes);
        else
            vector_code(s, X_VPERMD_Y, 1, i->reg, lanes, from);
        return;
    }
    int x = use(s, i->args[0]), y = use(s, i->args[1]), indices = use(s, i->args[2]);
    Code *c =
        vector_code(s, by_element(i, X_VPERMT2W, X_VPERMT2W, X_VPERMT2D, X_VPERMT2Q), length_of(i), i->reg, x, indices);
    c->src[2] = y;
    c->count = 3;
    c->tied = c->early = true;
}

static void xor_of_three(Select *s, const Inst *i) {
    enum { XOR = 0x96 }; /* the results of 000, 001, ... */
    int x = use(s, i->args[0]), y = use(s, i->args[1]), z = use(s, i->args[2]);
    Code *c = vector_code(s, X_VPTERNLOGQ, length_of(i), i->reg, x, y);
    c->src[2] = z;
    c->count = 3;
    c->imm = XOR;
    c->tied = c->early = true;
}

static void first(Select *s, const Inst *i) {
    Inst *x = i->args[0];
    int from = use(s, x);
    if (x->element == IR_I1)
        code(s, X_KMOVQ_FROM, i->reg, from, 0);
    else if (class_of(i) == CLASS_VECTOR)
        code(s, X_P_COPY, i->reg, from, 0);
    else
        vector_code(s, ir_bits(x->element) == 64 ? X_VMOVQ_FROM : X_VMOVD_FROM, 0, i->reg, from, 0);
}

/* --- memory --- */

/* Of a vector that is smaller than the least register the lanes behind it are none of memory's. */
static int access_mask(Select *s, const Inst *i) {
    int bytes = i->lanes * ir_bits(i->element) / 8, mask = use(s, i->args[2]);
    if (s->m->avx512) return mask;
    if (ir_bits(i->element) < 32) none_such(s, "masks of narrow elements in memory, on AVX2");
    return bytes < 16 ? temporary(s, X_VPANDD, 0, mask, low_bytes_reg(s->m, bytes)) : mask;
}

static void load(Select *s, const Inst *i) {
    int bits = ir_bits(i->element), size = i->lanes * bits, mask = i->args[2] ? access_mask(s, i) : 0;
    bool is_float = is_float_element(i->element);
    Code *c;
    if (i->lanes == 1 && !is_float) {
        c = code(s, bits == 8 ? X_MOVZX8 : bits == 16 ? X_MOVZX16 : X_MOV, i->reg, 0, 0);
        c->wide = bits == 64;
    } else if (mask && !s->m->avx512) {
        c = vector_code(s, bits == 32 ? X_VMASKMOVPS_LOAD : X_VMASKMOVPD_LOAD, length_of(i), i->reg, 0, 0);
        c->mask = mask;
    } else if (mask) {
        c = vector_code(s, by_element(i, X_VMOVDQU8_LOAD, X_VMOVDQU16_LOAD, X_VMOVUPS_LOAD, X_VMOVUPD_LOAD),
                        length_of(i), i->reg, 0, 0);
        c->mask = mask;
        c->zeroing = true;
    } else {
        MachineOp op = size >= 128  ? X_VMOVUPS_LOAD
                       : size == 64 ? X_VMOVSD_LOAD
                       : size == 32 ? X_VMOVSS_LOAD
                       : size == 16 ? X_VPBROADCASTW
                                    : X_VPBROADCASTB;
        c = vector_code(s, op, length_of(i), i->reg, 0, 0);
    }
    set_memory(s, c, i);
}

static void store(Select *s, const Inst *i) {
    Inst *value = i->args[3];
    int bits = ir_bits(i->element), size = i->lanes * bits, mask = i->args[2] ? access_mask(s, i) : 0;
    Code *c;
    int from = use(s, value);
    if (i->lanes == 1 && !is_float_element(i->element)) {
        c = code(s, bits == 8 ? X_MOV_STORE8 : bits == 16 ? X_MOV_STORE16 : X_MOV_STORE, 0, from, 0);
        c->wide = bits == 64;
    } else if (mask && !s->m->avx512) {
        c = vector_code(s, bits == 32 ? X_VMASKMOVPS_STORE : X_VMASKMOVPD_STORE, length_of(i), 0, from, 0);
        c->mask = mask;
    } else if (mask) {
        c = vector_code(s, by_element(i, X_VMOVDQU8_STORE, X_VMOVDQU16_STORE, X_VMOVUPS_STORE, X_VMOVUPD_STORE),
                        length_of(i), 0, from, 0);
        c->mask = mask;
    } else if (i->kind) {
        c = vector_code(s, X_VMOVNTPS, length_of(i), 0, from, 0);
    } else {
        MachineOp op = size >= 128  ? X_VMOVUPS_STORE
                       : size == 64 ? X_VMOVSD_STORE
                       : size == 32 ? X_VMOVSS_STORE
                       : size == 16 ? X_VPEXTRW
                                    : X_VPEXTRB;
        c = vector_code(s, op, length_of(i), 0, from, 0);
    }
    set_memory(s, c, i);
}

/* The instruction empties its mask, so it has a copy of its own; lanes that are not read are zero. */
static void gather(Select *s, const Inst *i) {
    bool wide = ir_bits(i->element) == 64;
    static const int64_t zero[MOST_LANES];
    Inst none = {.op = I_VCONST, .element = i->element, .lanes = i->lanes, .bits = zero};
    int mask = reg_new(s->m, CLASS_MASK), all = use(s, i->args[2]), start = constant_reg(s->m, &none);
    code(s, X_KMOVQ, mask, all, 0);
    Code *c = vector_code(s, wide ? X_VGATHERQPD : X_VGATHERQPS, length_of(i->args[1]), i->reg, start, 0);
    c->tied = c->early = true;
    c->mask = mask;
    set_memory(s, c, i);
}

static void scatter(Select *s, const Inst *i) {
    bool wide = ir_bits(i->element) == 64;
    int mask = reg_new(s->m, CLASS_MASK), all = use(s, i->args[2]);
    code(s, X_KMOVQ, mask, all, 0);
    int from = use(s, i->args[3]);
    Code *c = vector_code(s, wide ? X_VSCATTERQPD : X_VSCATTERQPS, length_of(i->args[1]), 0, from, 0);
    c->mask = mask;
    set_memory(s, c, i);
}

static void address(Select *s, const Inst *i) {
    Code *c = code(s, X_LEA, i->reg, 0, 0);
    set_memory(s, c, i);
}

/* --- control --- */

static void phi_moves(Select *s, const Block *block, const Block *to) {
    VEC(Move) moves = {0};
    for (int k = 0; k < to->insts.count && to->insts.items[k]->op == I_PHI; k++) {
        const Inst *phi = to->insts.items[k];
        for (int n = 0; n < phi->incoming.count; n++)
            if (phi->incoming.items[n].from == block && phi->reg) {
                Move move = {phi->reg, use(s, phi->incoming.items[n].value)};
                VEC_PUSH(s->m->arena, moves, move);
            }
    }
    if (!moves.count) return;
    Code *c = code(s, X_P_MOVES, 0, 0, 0);
    c->moves = moves.items;
    c->move_count = moves.count;
}

static void end_block(Select *s, const Block *block, const Inst *i) {
    Code *c;
    if (i->op == I_IF) {
        int flags = condition_flags(s, i->args[0]);
        c = code(s, X_P_IF, 0, 0, 0);
        c->condition = (unsigned char)flags;
        c->to = block->next[0];
        c->other = block->next[1];
        return;
    }
    if (i->op == I_BRANCH) {
        phi_moves(s, block, block->next[0]);
        code(s, X_P_JUMP, 0, 0, 0)->to = block->next[0];
        return;
    }
    code(s, X_P_RETURN, 0, 0, 0);
}

static void select_inst(Select *s, const Block *block, const Inst *i) {
    switch ((InstOp)i->op) {
    case I_BRANCH:
    case I_IF:
    case I_RETURN: end_block(s, block, i); return;
    case I_STORE: store(s, i); return;
    case I_SCATTER: scatter(s, i); return;
    case I_PREFETCH: set_memory(s, code(s, i->kind == 1 ? X_PREFETCHT0 : X_PREFETCHT1, 0, 0, 0), i); return;
    case I_FENCE: code(s, X_P_FENCE, 0, 0, 0); return;
    case I_PHI:
    case I_PARAMETER: return;
    default: break;
    }
    if (!i->reg) return;
    switch ((InstOp)i->op) {
    case I_BINOP:
        if (class_of(i) == CLASS_INTEGER)
            integer_binop(s, i);
        else
            vector_binop(s, i);
        return;
    case I_UNARY: unary(s, i); return;
    case I_MIN:
    case I_MAX: least_or_most(s, i); return;
    case I_XOR3: xor_of_three(s, i); return;
    case I_MULU32: two(s, i, X_VPMULUDQ, length_of(i), i->args[0], i->args[1]); return;
    case I_FMA: fused(s, i); return;
    case I_COMPARE: compare(s, i); return;
    case I_CAST:
        if (i->lanes == 1 && i->args[0]->lanes == 1)
            scalar_cast(s, i);
        else
            vector_cast(s, i);
        return;
    case I_SELECT: select_values(s, i); return;
    case I_SCALE: two(s, i, (MachineOp)(X_VSCALEFPS + variant_of(i)), length_of(i), i->args[0], i->args[1]); return;
    case I_SPLAT: splat(s, i); return;
    case I_PART: part(s, i); return;
    case I_JOIN: join_two(s, i); return;
    case I_PLACE: place(s, i); return;
    case I_UNPACK: unpack(s, i); return;
    case I_GROUPS: groups(s, i); return;
    case I_PERMUTE: permute(s, i); return;
    case I_FIRST: first(s, i); return;
    case I_ANY: {
        any_flags(s, i);
        code(s, X_P_SET, i->reg, 0, 0)->condition = COND_NE;
        return;
    }
    case I_ADDRESS: address(s, i); return;
    case I_LOAD: load(s, i); return;
    case I_GATHER: gather(s, i); return;
    default: none_such(s, "an instruction"); return;
    }
}

/* --- edges --- */

/* Where one block has two ends and the next two begins, moves of phis have no place: a block between. */
static void split_edges(IrBuilder *b) {
    VEC(Block *) all = {0};
    for (int n = 0; n < b->blocks.count; n++) {
        Block *block = b->blocks.items[n];
        VEC_PUSH(b->arena, all, block);
        if (!block->next[1]) continue;
        for (int e = 1; e >= 0; e--) { /* what goes on follows; the loop's way back last */
            Block *to = block->next[e];
            if (!to->insts.count || to->insts.items[0]->op != I_PHI || to->before.count < 2) continue;
            Block *between = ARENA_NEW(b->arena, Block);
            *between =
                (Block){.next = {to}, .depth = to->depth < block->depth ? to->depth : block->depth, .reached = true};
            VEC_PUSH(b->arena, between->before, block);
            Inst *end = inst_new(b, I_BRANCH, IR_VOID);
            VEC_PUSH(b->arena, between->insts, end);
            end->block = between;
            for (int p = 0; p < to->before.count; p++)
                if (to->before.items[p] == block) {
                    to->before.items[p] = between;
                    break;
                }
            for (int k = 0; k < to->insts.count && to->insts.items[k]->op == I_PHI; k++) {
                Inst *phi = to->insts.items[k];
                for (int a = 0; a < phi->incoming.count; a++)
                    if (phi->incoming.items[a].from == block) {
                        phi->incoming.items[a].from = between;
                        break;
                    }
            }
            block->next[e] = between;
            VEC_PUSH(b->arena, all, between);
        }
    }
    b->blocks.items = all.items;
    b->blocks.count = all.count;
    b->blocks.capacity = all.capacity;
    for (int n = 0; n < b->blocks.count; n++) b->blocks.items[n]->order = n;
}

/* --- all --- */

static void count_uses(Select *s) {
    const IrBuilder *b = s->m->ir;
    for (int n = 0; n < b->blocks.count; n++) {
        const Block *block = b->blocks.items[n];
        int stores = 0;
        for (int k = 0; k < block->insts.count; k++) {
            Inst *i = block->insts.items[k];
            s->loads_at[i->number] = stores;
            stores += i->op == I_STORE || i->op == I_SCATTER;
            for (int a = 0; a < 4; a++)
                if (i->args[a]) i->args[a]->uses++;
            for (int a = 0; a < i->incoming.count; a++) i->incoming.items[a].value->uses++;
        }
    }
}

static void request_phis(Select *s) {
    const IrBuilder *b = s->m->ir;
    for (int n = 0; n < b->blocks.count; n++)
        for (int k = 0; k < b->blocks.items[n]->insts.count; k++) {
            Inst *i = b->blocks.items[n]->insts.items[k];
            if (i->op != I_PHI) continue;
            use(s, i);
            for (int a = 0; a < i->incoming.count; a++) {
                Inst *value = i->incoming.items[a].value;
                if (value->op > I_STACK || value->op == I_PARAMETER) use(s, value);
            }
        }
}

static void select_block(Select *s, const Block *block) {
    Machine *m = s->m;
    CodeBlock *to = &m->blocks[block->order];
    for (int k = block->insts.count - 1; k >= 0; k--) {
        s->chunk.count = 0;
        select_inst(s, block, block->insts.items[k]);
        for (int n = s->chunk.count - 1; n >= 0; n--) VEC_PUSH(m->arena, to->code, s->chunk.items[n]);
    }
    for (int l = 0, h = to->code.count - 1; l < h; l++, h--) {
        Code swap = to->code.items[l];
        to->code.items[l] = to->code.items[h];
        to->code.items[h] = swap;
    }
}

static void insert_entry(Machine *m, Code *codes, int count) {
    CodeBlock *first = &m->blocks[0];
    VEC(Code) all = {0};
    for (int n = 0; n < count; n++) VEC_PUSH(m->arena, all, codes[n]);
    for (int n = 0; n < first->code.count; n++) VEC_PUSH(m->arena, all, first->code.items[n]);
    first->code.items = all.items;
    first->code.count = all.count;
    first->code.capacity = all.capacity;
}

void select_code(Machine *m) {
    IrBuilder *b = m->ir;
    Select s = {.m = m};
    split_edges(b);
    m->blocks = ARENA_ARRAY(m->arena, CodeBlock, b->blocks.count + 1);
    s.loads_at = ARENA_ARRAY(m->arena, int, b->inst_count + 1);
    reg_new(m, CLASS_INTEGER); /* 0: none */
    count_uses(&s);
    request_phis(&s);
    for (int n = b->blocks.count - 1; n >= 0 && !b->unsupported; n--) select_block(&s, b->blocks.items[n]);
    Code parameters = {.op = X_P_PARAMETERS, .scale = 1};
    parameters.moves = ARENA_ARRAY(m->arena, Move, b->parameters.count);
    for (int n = 0; n < b->parameters.count; n++)
        if (b->parameters.items[n]->parts[0]->reg)
            parameters.moves[parameters.move_count++] = (Move){b->parameters.items[n]->parts[0]->reg, n};
    insert_entry(m, m->entry.items, m->entry.count);
    insert_entry(m, &parameters, 1);
}
