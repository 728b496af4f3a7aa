/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions. Every operand is a name or a literal, so it may be written twice. The results are those that kernel.h
 * states, to the bit. */
#include "codegen/gpu/region/render.h"

#include "base/math/divide.h"

#include <math.h>

#define F(...) arena_format(r->arena, __VA_ARGS__)

void need_helper(GpuRender *r, const char *name, const char *text) {
    for (int i = 0; i < r->known_helpers.count; i++)
        if (strcmp(r->known_helpers.items[i], name) == 0) return;
    VEC_PUSH(r->arena, r->known_helpers, name);
    text_add(&r->helpers, "%s", text);
}

/* --- operands --- */
static const char *float_literal(GpuRender *r, DType dtype, int64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    bool wide = dtype == DT_F64;
    if (value != value) { /* the payload's high bits survive, as in a conversion */
        if (wide) return F("FLOAT_u64(0x%llxul)", (unsigned long long)bits);
        uint32_t narrow =
            (uint32_t)((uint64_t)bits >> 63 << 31) | 0x7fc00000u | (uint32_t)((uint64_t)bits >> 29 & 0x3fffff);
        return F("FLOAT_u32(0x%xu)", (unsigned)narrow);
    }
    if (isinf(value)) return F("%sINFINITY_%s", value < 0 ? "-" : "", wide ? "f64" : "f32");
    Text text = text_make(r->arena);
    if (wide)
        text_add_double(&text, value);
    else
        text_add_float(&text, (float)value);
    bool whole = !strpbrk(text.data, ".e");
    const char *digits = F("%s%s%s", text.data, whole ? ".0" : "", wide ? "" : "f");
    return signbit(value) ? F("(%s)", digits) : digits;
}

static const char *int_literal(GpuRender *r, DType dtype, int64_t bits) {
    switch (dtype) {
    case DT_BOOL: return bits ? "1" : "0";
    case DT_U32: return F("%uu", (unsigned)bits);
    case DT_U64: return F("%lluul", (unsigned long long)bits);
    case DT_I64:
        return bits == INT64_MIN ? "(-9223372036854775807l - 1)" : F(bits < 0 ? "(%lldl)" : "%lldl", (long long)bits);
    case DT_I32: return bits == INT32_MIN ? "(-2147483647 - 1)" : F(bits < 0 ? "(%lld)" : "%lld", (long long)bits);
    default: return F("(%s)%lld", compute_type(dtype), (long long)bits);
    }
}

static const char *index_text(GpuRender *r, int axis) {
    if (axis != r->vector_axis || !r->inside) return F("i%d", axis);
    return F("(i%d + %s)", axis, place_of_element(r));
}

const char *value_of(GpuRender *r, int i) {
    const KernelInst *inst = inst_at(r, i);
    bool wide = is_wide(r, i);
    if (inst->op == K_CONST)
        return dtype_is_float(inst->dtype) ? float_literal(r, inst->dtype, inst->bits)
                                           : int_literal(r, inst->dtype, inst->bits);
    if (inst->op == K_PARAM) return F(r->narrow ? "p%lld_" : "p%lld", (long long)inst->bits);
    if (inst->op == K_INDEX) return F(r->narrow ? "(i64)%s" : "%s", index_text(r, inst->axis));
    if (kernel_op_is_reduce(inst->op)) return F(wide ? "r%d[j]" : "r%d", i);
    if (in_loop(r, i) && r->hold && r->hold[i] && inst->stage < r->stage) return F(wide ? "h%d[e][j]" : "h%d[e]", i);
    if (wide && !in_loop(r, i)) return F("k%d[j]", i);
    return F("x%d", i);
}

/* --- integers --- */
static bool is_signed(DType t) { return dtype_class(t) == DTYPE_SIGNED; }
static int bits_of(DType t) { return 8 * (int)dtype_size(t); }
static const char *unsigned_type(DType t) { return bits_of(t) == 64 ? "u64" : "u32"; } /* in which nothing overflows */

static const char *wrapped(GpuRender *r, DType t, const char *operation, const char *a, const char *b) {
    const char *u = unsigned_type(t);
    return F("(%s)((%s)%s %s (%s)%s)", compute_type(t), u, a, operation, u, b);
}

/* x / 0 = 0, x % 0 = 0, MIN / -1 = MIN, MIN % -1 = 0. */
static const char *divided(GpuRender *r, const KernelInst *inst, const char *a, const char *b) {
    DType t = inst->dtype;
    bool quotient = inst->op == K_DIV;
    const char *type = compute_type(t), *name = F("%s_%s", quotient ? "divide" : "remainder", type);
    Text text = text_make(r->arena);
    text_add(&text, "FUNCTION %s %s(%s a, %s b) {\n    if (b == 0) return 0;\n", type, name, type, type);
    if (is_signed(t))
        text_add(&text, "    if (b == -1) return %s;\n", quotient ? F("(%s)(0 - (%s)a)", type, unsigned_type(t)) : "0");
    text_add(&text, "    return (%s)(a %s b);\n}\n\n", type, quotient ? "/" : "%");
    need_helper(r, name, text.data);
    return F("%s(%s, %s)", name, a, b);
}

static const char *shifted(GpuRender *r, const KernelInst *inst, const char *a, const char *b) {
    DType t = inst->dtype;
    int bits = bits_of(t);
    const char *u = unsigned_type(t), *type = compute_type(t);
    const char *far = F("(u64)%s >= %d", b, bits); /* negative distances are large */
    if (inst->op == K_SHL) return F("(%s ? 0 : (%s)((%s)%s << %s))", far, type, u, a, b);
    if (is_signed(t)) return F("(%s)(%s >> (%s ? %d : (i32)%s))", type, a, far, bits - 1, b);
    return F("(%s ? 0 : (%s)(%s >> %s))", far, type, a, b);
}

/* --- conversions --- */
/* Toward zero, saturating, NaN to 0. The bounds are exact in both float types but for the upper ones of wide integers,
 * which is why the comparison is with the power of two beyond. */
static const char *to_integer(GpuRender *r, DType from, DType to, const char *a) {
    const char *type = compute_type(to), *suffix = from == DT_F32 ? "f" : "",
               *name = F("%s_from_%s", type, memory_type(from));
    int bits = bits_of(to);
    double beyond = ldexp(1, is_signed(to) ? bits - 1 : bits);
    uint64_t most = is_signed(to) ? (UINT64_C(1) << (bits - 1)) - 1
                    : bits == 64  ? UINT64_MAX
                                  : (UINT64_C(1) << bits) - 1;
    const char *least = is_signed(to) ? F("(-%llul - 1)", (unsigned long long)most) : "0";
    Text text = text_make(r->arena);
    text_add(&text, "FUNCTION %s %s(%s x) {\n    if (x != x) return 0;\n", type, name, memory_type(from));
    text_add(&text, "    if (x <= %s%.1f%s) return (%s)%s;\n", is_signed(to) ? "-" : "", is_signed(to) ? beyond : 0.0,
             suffix, type, least);
    text_add(&text, "    if (x >= %.1f%s) return (%s)%llu%s;\n    return (%s)x;\n}\n\n", beyond, suffix, type,
             (unsigned long long)most, is_signed(to) ? "l" : "ul", type);
    need_helper(r, name, text.data);
    return F("%s(%s)", name, a);
}

static const char *cast(GpuRender *r, DType from, DType to, const char *a) {
    if (from == to) return a;
    if (to == DT_BOOL) return F("(%s != 0)", a);
    if (dtype_is_float(from) && !dtype_is_float(to)) return to_integer(r, from, to, a);
    return F("(%s)%s", compute_type(to), a);
}

static const char *bitcast(GpuRender *r, DType from, DType to, const char *a) {
    const char *type = compute_type(to);
    if (from == to) return a;
    if (from == DT_F32) return F("(%s)BITS_f32(%s)", type, a);
    if (from == DT_F64) return F("(%s)BITS_f64(%s)", type, a);
    if (to == DT_F32) return F("FLOAT_u32((u32)%s)", a);
    if (to == DT_F64) return F("FLOAT_u64((u64)%s)", a);
    return F("(%s)%s", type, a);
}

/* --- random words --- */
/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) as graph/prim.c indexes it. */
static const char philox_text[] = "FUNCTION void philox(u64 seed, u64 index, u32 *c) {\n"
                                  "    const u64 block = (index >> 6 << 4) | (index & 15);\n"
                                  "    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);\n"
                                  "    c[0] = (u32)block, c[1] = (u32)(block >> 32), c[2] = 0, c[3] = 0;\n"
                                  "    UNROLL for (i32 n = 0; n < 10; n++) {\n"
                                  "        const u32 l0 = 0xD2511F53u * c[0], h0 = MUL_HIGH_u32(0xD2511F53u, c[0]);\n"
                                  "        const u32 l1 = 0xCD9E8D57u * c[2], h1 = MUL_HIGH_u32(0xCD9E8D57u, c[2]);\n"
                                  "        c[0] = h1 ^ c[1] ^ k0, c[1] = l1, c[2] = h0 ^ c[3] ^ k1, c[3] = l0;\n"
                                  "        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;\n"
                                  "    }\n"
                                  "}\n\n";
static const char word_text[] = "FUNCTION u32 philox_word(u64 seed, u64 index) {\n"
                                "    u32 c[4];\n"
                                "    philox(seed, index, c);\n"
                                "    const u32 which = (u32)(index >> 4) & 3;\n"
                                "    return which == 0 ? c[0] : which == 1 ? c[1] : which == 2 ? c[2] : c[3];\n"
                                "}\n\n";

/* philox_half_place, and the word of that place as philox_half_u32 takes it, of graph/prim.c. */
static const char half_text[] =
    "FUNCTION u64 philox_half_place(u64 index) {\n"
    "    return (index >> 7 << 6) | ((index >> 6 & 1) << 3) | (index & 48) | ((index & 15) >> 1);\n"
    "}\n\n"
    "FUNCTION u32 philox_half(u32 word, u64 index) {\n"
    "    return index & 1 ? word << 16 | word >> 16 : word;\n"
    "}\n\n";

static const char *random_word(GpuRender *r, int i) {
    const KernelInst *inst = inst_at(r, i);
    bool halves = inst->bits & RANDOM_HALVES;
    const char *index = value_of(r, inst->args[1]), *place = halves ? F("philox_half_place(%s)", index) : index;
    need_helper(r, "philox", philox_text);
    need_helper(r, "philox_word", word_text);
    if (halves) need_helper(r, "philox_half", half_text);
    const char *word = F("philox_word(%s, %s)", value_of(r, inst->args[0]), place);
    if (r->schedule.step > 1 && inst->bits & RANDOM_CONSECUTIVE && is_wide(r, i)) word = F("w%d[j]", i);
    return halves ? F("philox_half(%s, %s)", word, index) : word;
}

/* --- powers of two, tables --- */
/* By two factors, the first of which keeps clear of what is subnormal or infinite, so that the second product alone
 * rounds. */
static const char scale_f32_text[] = "FUNCTION f32 scale_f32(f32 a, f32 b) {\n"
                                     "    const f32 shifted = b + (b < 0 ? 12583071.0f : 12583007.0f);\n"
                                     "    return a * FLOAT_u32(BITS_f32(shifted) << 23) *\n"
                                     "           (b < 0 ? 2.3283064365386963e-10f : 4294967296.0f);\n"
                                     "}\n\n";
static const char scale_f64_text[] = "FUNCTION f64 scale_f64(f64 a, f64 b) {\n"
                                     "    const f64 shifted = b + (b < 0 ? 6755399441056831.0 : 6755399441056703.0);\n"
                                     "    return a * FLOAT_u64(BITS_f64(shifted) << 52) *\n"
                                     "           (b < 0 ? 5.421010862427522e-20 : 18446744073709551616.0);\n"
                                     "}\n\n";

static const char *scaled(GpuRender *r, DType t, const char *a, const char *b) {
    const char *name = F("scale_%s", memory_type(t));
    need_helper(r, name, t == DT_F64 ? scale_f64_text : scale_f32_text);
    return F("%s(%s, %s)", name, a, b);
}

/* --- many divided by one (base/math/divide.h) --- */
static const char *number(GpuRender *r, double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return float_literal(r, DT_F32, bits);
}

void need_inverse(GpuRender *r) {
    need_helper(r, "divide_by_row",
                F("FUNCTION bool has_inverse(f32 b) { return fabs_f32(b) >= %s && fabs_f32(b) <= %s; }\n"
                  "FUNCTION f32 inverse_of(f32 b) { return 1.0f / b * %s; }\n"
                  "FUNCTION f32 rest_of_inverse(f32 inverse, f32 b) { return fma_f32(-inverse, b, 1.0f) * inverse; }\n"
                  "FUNCTION f32 divide_by_row(f32 a, f32 b) {\n"
                  "    const f32 inverse = inverse_of(b);\n"
                  "    return has_inverse(b) ? fma_f32(a, inverse, a * rest_of_inverse(inverse, b)) : a / b;\n"
                  "}\n\n",
                  number(r, DIVISOR_LEAST), number(r, DIVISOR_MOST), number(r, DIVISOR_BEFORE)));
}

bool divides_row(const GpuRender *r, int i) {
    const KernelInst *inst = inst_at(r, i);
    if (inst->op != K_DIV || !inst->bits || !dtype_is_float(inst->dtype)) return false;
    int by = inst->args[1];
    return inst_at(r, by)->op != K_CONST && !in_loop(r, by) && !is_wide(r, by);
}

/* Of a constant divisor the compiler computes the inverse. */
static const char *divided_by_row(GpuRender *r, int i, const char *a, const char *b) {
    int by = inst_at(r, i)->args[1];
    need_inverse(r);
    return r->quick && divides_row(r, i) ? F("fma_f32(%s, n%d, %s * m%d)", a, by, a, by)
                                         : F("divide_by_row(%s, %s)", a, b);
}

/* --- all --- */
static const char *arithmetic(GpuRender *r, const KernelInst *inst, const char *const *v) {
    static const char *const symbols[KERNEL_OP_COUNT] = {
        [K_ADD] = "+", [K_SUB] = "-", [K_MUL] = "*", [K_AND] = "&", [K_OR] = "|", [K_XOR] = "^"};
    DType t = inst->dtype;
    bool real = dtype_is_float(t);
    const char *suffix = memory_type(t);
    switch (inst->op) {
    case K_ADD:
    case K_SUB:
    case K_MUL:
        return real ? F("%s %s %s", v[0], symbols[inst->op], v[1]) : wrapped(r, t, symbols[inst->op], v[0], v[1]);
    case K_AND:
    case K_OR:
    case K_XOR: return F("(%s)(%s %s %s)", compute_type(t), v[0], symbols[inst->op], v[1]);
    case K_DIV: return real ? F("%s / %s", v[0], v[1]) : divided(r, inst, v[0], v[1]);
    case K_REM: return real ? F("fmod_%s(%s, %s)", suffix, v[0], v[1]) : divided(r, inst, v[0], v[1]);
    case K_FMA: return F("fma_%s(%s, %s, %s)", suffix, v[0], v[1], v[2]);
    case K_SCALE: return scaled(r, t, v[0], v[1]);
    case K_NEG: return real ? F("-%s", v[0]) : F("(%s)(0 - (%s)%s)", compute_type(t), unsigned_type(t), v[0]);
    case K_ABS:
        if (real) return F("fabs_%s(%s)", suffix, v[0]);
        return is_signed(t) ? F("(%s < 0 ? (%s)(0 - (%s)%s) : %s)", v[0], compute_type(t), unsigned_type(t), v[0], v[0])
                            : v[0];
    case K_MIN: return F("(%s < %s ? %s : %s)", v[0], v[1], v[0], v[1]);
    case K_MAX: return F("(%s > %s ? %s : %s)", v[0], v[1], v[0], v[1]);
    case K_SQRT: return F("sqrt_%s(%s)", suffix, v[0]);
    case K_FLOOR: return F("floor_%s(%s)", suffix, v[0]);
    case K_CEIL: return F("ceil_%s(%s)", suffix, v[0]);
    case K_TRUNC: return F("trunc_%s(%s)", suffix, v[0]);
    case K_RINT: return F("rint_%s(%s)", suffix, v[0]);
    case K_NOT: return t == DT_BOOL ? F("!%s", v[0]) : F("(%s)~%s", compute_type(t), v[0]);
    case K_SHL:
    case K_SHR: return shifted(r, inst, v[0], v[1]);
    case K_SELECT: return F("(%s ? %s : %s)", v[0], v[1], v[2]);
    case K_ROUND_F16: return F("load_f16(store_f16(%s))", v[0]);
    case K_ROUND_BF16: return F("load_bf16(store_bf16(%s))", v[0]);
    default: return NULL;
    }
}

const char *expression_of(GpuRender *r, int i) {
    static const char *const comparisons[] = {"==", "!=", "<", "<=", ">", ">="}; /* in the order of K_EQ to K_GE */
    const KernelInst *inst = inst_at(r, i);
    const char *v[3] = {NULL, NULL, NULL};
    for (int n = 0; n < kernel_op_args(inst->op); n++) v[n] = value_of(r, inst->args[n]);
    DType from = kernel_op_args(inst->op) ? inst_at(r, inst->args[0])->dtype : DT_NONE;
    switch (inst->op) {
    case K_EQ:
    case K_NE:
    case K_LT:
    case K_LE:
    case K_GT:
    case K_GE: return F("%s %s %s", v[0], comparisons[inst->op - K_EQ], v[1]);
    case K_DIV:
        if (inst->bits && dtype_is_float(inst->dtype)) return divided_by_row(r, i, v[0], v[1]);
        return arithmetic(r, inst, v);
    case K_CAST: return cast(r, from, inst->dtype, v[0]);
    case K_BITCAST: return bitcast(r, from, inst->dtype, v[0]);
    case K_RANDOM: return random_word(r, i);
    default: return arithmetic(r, inst, v);
    }
}
