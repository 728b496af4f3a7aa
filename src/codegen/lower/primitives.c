/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise primitives as kernel instructions, with the exact semantics of graph/prim.h. */
#include "codegen/lower/lower_region.h"

#include <math.h>
#include "codegen/math.h"
#include "codegen/small_types.h"

/* One node: its arithmetic type (of its first arithmetic input) and arguments. */
typedef struct Operation {
    Emit *e;
    DType dtype;
    int a, b;
} Operation;

static int op1(const Operation *o, KernelOp op, int a) { return emit1(o->e, op, o->dtype, a); }
static int op2(const Operation *o, KernelOp op, int a, int b) { return emit2(o->e, op, o->dtype, a, b); }
static int test(const Operation *o, KernelOp op, int a, int b) { return emit2(o->e, op, DT_BOOL, a, b); }
static int both(const Operation *o, int a, int b) { return emit2(o->e, K_AND, DT_BOOL, a, b); }
static int not(const Operation *o, int a) { return emit1(o->e, K_NOT, DT_BOOL, a); }
static int choose(const Operation *o, int c, int a, int b) { return emit_op(o->e, K_SELECT, o->dtype, c, a, b); }

static int number(const Operation *o, int64_t x) {
    return dtype_is_float(o->dtype) ? emit_float(o->e, o->dtype, (double)x) : emit_int(o->e, o->dtype, x);
}

static bool is_signed(const Operation *o) { return dtype_class(o->dtype) == DTYPE_SIGNED; }
static bool is_float(const Operation *o) { return dtype_is_float(o->dtype); }

/* -1, 0, 1; NaN stays. */
static int sign(const Operation *o) {
    int zero = number(o, 0), one = number(o, 1), positive = test(o, K_GT, o->a, zero);
    if (dtype_class(o->dtype) == DTYPE_UNSIGNED) return choose(o, positive, one, zero);
    int rest = is_float(o) ? choose(o, test(o, K_EQ, o->a, zero), zero, o->a) : zero;
    int negative = test(o, K_LT, o->a, zero);
    return choose(o, positive, one, choose(o, negative, number(o, -1), rest));
}

static bool is_zero(const Operation *o, int inst) {
    int64_t x;
    return emit_is_int(o->e, inst, &x) && x == 0;
}

static bool is_plain_number(const Operation *o, int inst) {
    double x;
    return emit_is_float(o->e, inst, &x) && x == x;
}

/* K_MIN and K_MAX give the second operand when either is NaN: right where the first is a number for sure. */
static int extreme(const Operation *o, bool least) {
    KernelOp op = least ? K_MIN : K_MAX;
    if (o->dtype == DT_BOOL) return op2(o, least ? K_AND : K_OR, o->a, o->b);
    if (dtype_class(o->dtype) == DTYPE_UNSIGNED) { /* nothing is below zero */
        if (is_zero(o, o->a)) return least ? o->a : o->b;
        if (is_zero(o, o->b)) return least ? o->b : o->a;
    }
    if (is_plain_number(o, o->b)) return op2(o, op, o->b, o->a);
    int y = op2(o, op, o->a, o->b);
    if (!is_float(o) || is_plain_number(o, o->a)) return y;
    return choose(o, test(o, K_NE, o->a, o->a), o->a, y);
}

/* Python's %: the remainder moved to the divisor's side; a float remainder of zero takes the divisor's sign. */
static int modulo(const Operation *o) {
    int r = op2(o, K_REM, o->a, o->b), zero = number(o, 0);
    if (!is_float(o) && !is_signed(o)) return r;
    int differ = emit2(o->e, K_XOR, DT_BOOL, test(o, K_LT, r, zero), test(o, K_LT, o->b, zero));
    int moved = op2(o, K_ADD, r, o->b), none = test(o, K_EQ, r, zero);
    if (!is_float(o)) return choose(o, both(o, differ, not(o, none)), moved, r);
    DType bits = o->dtype == DT_F32 ? DT_I32 : DT_I64;
    int mask = emit_int(o->e, bits, bits == DT_I32 ? INT32_MIN : INT64_MIN);
    int side = emit2(o->e, K_AND, bits, emit1(o->e, K_BITCAST, bits, o->b), mask);
    return choose(o, none, emit1(o->e, K_BITCAST, o->dtype, side), choose(o, differ, moved, r));
}

/* Squaring for each bit of the exponent. A negative exponent leaves nothing but 1 and -1. */
static int integer_power(const Operation *o) {
    int x = o->a, y = o->b, one = number(o, 1), zero = number(o, 0), r = one, width = (int)dtype_size(o->dtype) * 8;
    int64_t exponent;
    bool known = emit_is_int(o->e, y, &exponent);
    for (int i = 0, power = x; i < width; i++, power = op2(o, K_MUL, power, power)) {
        if (known && (exponent < 0 || exponent >> i == 0)) break;
        int bit = op2(o, K_AND, op2(o, K_SHR, y, number(o, i)), one);
        r = op2(o, K_MUL, r, choose(o, test(o, K_NE, bit, zero), power, one));
    }
    if (!is_signed(o) || (known && exponent >= 0)) return r;
    int odd = test(o, K_NE, op2(o, K_AND, y, one), zero), minus = number(o, -1);
    int inverse = choose(o, test(o, K_EQ, x, minus), choose(o, odd, minus, one), zero);
    inverse = choose(o, test(o, K_EQ, x, one), one, inverse);
    return choose(o, test(o, K_LT, y, zero), inverse, r);
}

/* The square root as a power: +0 for -0, infinity for -infinity. */
static int root(const Operation *o) {
    int infinite = emit_float(o->e, o->dtype, (double)INFINITY);
    int low = test(o, K_EQ, o->a, op1(o, K_NEG, infinite));
    return choose(o, low, infinite, op1(o, K_SQRT, op2(o, K_ADD, o->a, number(o, 0))));
}

static int small_power(const Operation *o, int exponent) {
    int square = op2(o, K_MUL, o->a, o->a);
    switch (exponent) {
    case 0: return number(o, 1);
    case 1: return o->a;
    case 2: return square;
    case 3: return op2(o, K_MUL, square, o->a);
    default: return op2(o, K_MUL, square, square);
    }
}

/* Exponents that networks write as powers need no logarithm. Results are within 2 units in the last place, as
 * everywhere. */
static int power(const Operation *o) {
    double y;
    if (!is_float(o)) return integer_power(o);
    if (emit_is_float(o->e, o->b, &y)) {
        if (y == 0 || y == 1 || y == 2 || y == 3 || y == 4) return small_power(o, (int)y);
        if (y == -1 || y == -2) return op2(o, K_DIV, number(o, 1), small_power(o, (int)-y));
        if (y == 0.5) return root(o);
        if (y == -0.5) return op2(o, K_DIV, number(o, 1), root(o));
    }
    return math_expand(o->e, PRIM_POW, o->a, o->b);
}

/* ---- comparisons, casts ---- */

static int compare(const Operation *o, KernelOp op) {
    if (o->dtype != DT_BOOL) return test(o, op, o->a, o->b);
    int a = o->a, b = o->b;
    switch (op) {
    case K_EQ: return not(o, op2(o, K_XOR, a, b));
    case K_NE: return op2(o, K_XOR, a, b);
    case K_LT: return both(o, not(o, a), b);
    case K_LE: return op2(o, K_OR, not(o, a), b);
    case K_GT: return both(o, a, not(o, b));
    default: return op2(o, K_OR, a, not(o, b));
    }
}

static int cast_to(Emit *e, const Node *node, DType from, DType to, int a) {
    if (dtype_is_small(from) && dtype_is_float(from)) a = small_to_f32(e, from, a);
    if (dtype_is_small(to)) return small_from(e, to, a, attr_int(node, "saturate", 1) != 0);
    int wide = emit_cast(e, compute_dtype(to), a);
    if (attr_int(node, "loose", 0)) return wide;
    if (to == DT_F16) return emit1(e, K_ROUND_F16, DT_F32, wide);
    if (to == DT_BF16) return emit1(e, K_ROUND_BF16, DT_F32, wide);
    return wide;
}

static int bitcast(Emit *e, DType from, DType to, int a) {
    from = dtype_of_code(from), to = dtype_of_code(to);
    if (from == to) return a;
    if (from == DT_BOOL || to == DT_BOOL) return emit_cast(e, to, a);
    return emit1(e, K_BITCAST, to, a);
}

/* ---- the table ---- */

static int unary(const Operation *o, Prim prim) {
    bool number_type = is_float(o), whole = !number_type;
    switch (prim) {
    case PRIM_NEG: return op1(o, K_NEG, o->a);
    case PRIM_ABS: return whole && !is_signed(o) ? o->a : op1(o, K_ABS, o->a);
    case PRIM_SIGN: return sign(o);
    case PRIM_FLOOR: return whole ? o->a : op1(o, K_FLOOR, o->a);
    case PRIM_CEIL: return whole ? o->a : op1(o, K_CEIL, o->a);
    case PRIM_ROUND: return whole ? o->a : op1(o, K_RINT, o->a);
    case PRIM_TRUNC: return whole ? o->a : op1(o, K_TRUNC, o->a);
    case PRIM_SQRT: return op1(o, K_SQRT, o->a);
    case PRIM_RECIPROCAL: return op2(o, K_DIV, number(o, 1), o->a);
    case PRIM_NOT: return op1(o, K_NOT, o->a);
    case PRIM_ISNAN: return test(o, K_NE, o->a, o->a);
    case PRIM_ISINF: return test(o, K_EQ, op1(o, K_ABS, o->a), emit_float(o->e, o->dtype, (double)INFINITY));
    default: return math_expand(o->e, prim, o->a, 0);
    }
}

/* a + b; 1 + tanh(x), of which a GELU is made, has a shorter form. */
static int sum(const Operation *o) {
    for (int i = 0; i < o->e->tanhs.count; i++) {
        const EmitPair *tanh = &o->e->tanhs.items[i];
        double one;
        bool left = tanh->result == o->a && emit_is_float(o->e, o->b, &one);
        bool right = tanh->result == o->b && emit_is_float(o->e, o->a, &one);
        if ((left || right) && one == 1) return math_one_plus_tanh(o->e, tanh->argument);
    }
    return op2(o, K_ADD, o->a, o->b);
}

static int binary(const Operation *o, Prim prim) {
    switch (prim) {
    case PRIM_ADD: return sum(o);
    case PRIM_SUB: return op2(o, K_SUB, o->a, o->b);
    case PRIM_MUL: return op2(o, K_MUL, o->a, o->b);
    case PRIM_DIV: return op2(o, K_DIV, o->a, o->b);
    case PRIM_MOD: return modulo(o);
    case PRIM_FMOD: return op2(o, K_REM, o->a, o->b);
    case PRIM_POW: return power(o);
    case PRIM_MIN: return extreme(o, true);
    case PRIM_MAX: return extreme(o, false);
    case PRIM_AND: return op2(o, K_AND, o->a, o->b);
    case PRIM_OR: return op2(o, K_OR, o->a, o->b);
    case PRIM_XOR: return op2(o, K_XOR, o->a, o->b);
    case PRIM_SHL: return op2(o, K_SHL, o->a, o->b);
    case PRIM_SHR: return op2(o, K_SHR, o->a, o->b);
    case PRIM_EQ: return compare(o, K_EQ);
    case PRIM_NE: return compare(o, K_NE);
    case PRIM_LT: return compare(o, K_LT);
    case PRIM_LE: return compare(o, K_LE);
    case PRIM_GT: return compare(o, K_GT);
    default: return compare(o, K_GE);
    }
}

int lower_elementwise(Emit *e, const Node *node, const int *args) {
    DType from = node->inputs[0]->dtype, to = node->outputs[0]->dtype;
    Operation o = {e, compute_dtype(from), args[0], node->input_count > 1 ? args[1] : 0};
    switch (prim_info(node->prim)->klass) {
    case PRIM_CLASS_SELECT: return emit_op(e, K_SELECT, compute_dtype(to), args[0], args[1], args[2]);
    case PRIM_CLASS_CAST:
        if (node->prim == PRIM_BITCAST) return bitcast(e, from, to, args[0]);
        return cast_to(e, node, from, to, args[0]);
    case PRIM_CLASS_UNARY:
    case PRIM_CLASS_TEST: return unary(&o, node->prim);
    default: return binary(&o, node->prim);
    }
}
