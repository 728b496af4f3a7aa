/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise arithmetic, comparison, logic, bits, casts and trigonometry: mostly one primitive each. */
#include "ops/math/elementwise.h"

#include "ops/families.h"
#include "lowering/build.h"
#include "base/plain.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* --- one primitive --------------------------------------------------------------------------------------------- */

typedef struct PrimOf {
    const char *op;
    Prim prim;
} PrimOf;

static const PrimOf prims[] = {
    {"Abs", PRIM_ABS},           {"Acos", PRIM_ACOS},       {"Acosh", PRIM_ACOSH},
    {"Asin", PRIM_ASIN},         {"Asinh", PRIM_ASINH},     {"Atan", PRIM_ATAN},
    {"Atanh", PRIM_ATANH},       {"Ceil", PRIM_CEIL},       {"Cos", PRIM_COS},
    {"Cosh", PRIM_COSH},         {"Erf", PRIM_ERF},         {"Exp", PRIM_EXP},
    {"Floor", PRIM_FLOOR},       {"IsNaN", PRIM_ISNAN},     {"Log", PRIM_LOG},
    {"Neg", PRIM_NEG},           {"Not", PRIM_NOT},         {"Reciprocal", PRIM_RECIPROCAL},
    {"Round", PRIM_ROUND},       {"Sigmoid", PRIM_SIGMOID}, {"Sign", PRIM_SIGN},
    {"Sin", PRIM_SIN},           {"Sinh", PRIM_SINH},       {"Sqrt", PRIM_SQRT},
    {"Tan", PRIM_TAN},           {"Tanh", PRIM_TANH},       {"BitwiseNot", PRIM_NOT},
    {"Add", PRIM_ADD},           {"Sub", PRIM_SUB},         {"Mul", PRIM_MUL},
    {"Div", PRIM_DIV},           {"And", PRIM_AND},         {"Or", PRIM_OR},
    {"Xor", PRIM_XOR},           {"BitwiseAnd", PRIM_AND},  {"BitwiseOr", PRIM_OR},
    {"BitwiseXor", PRIM_XOR},    {"Equal", PRIM_EQ},        {"Greater", PRIM_GT},
    {"GreaterOrEqual", PRIM_GE}, {"Less", PRIM_LT},         {"LessOrEqual", PRIM_LE},
    {"Max", PRIM_MAX},           {"Min", PRIM_MIN},         {"Sum", PRIM_ADD},
    {"Mean", PRIM_ADD},          {NULL, PRIM_NONE},
};

static Prim prim_of(const Node *n) {
    const PrimOf *p = prims;
    while (p->op && strcmp(p->op, n->op) != 0) p++;
    return p->prim;
}

static Status lower_unary(Lowering *l, const Node *n) { return out(l, n, 0, unary(l, prim_of(n), in(l, n, 0))); }

/* Before opset 7 the second input is broadcast only where attribute `broadcast` says so, its axes standing from `axis`
 * on (without it: at the end). */
static Value *old_broadcast(Lowering *l, const Node *n, Value *a, Value *b) {
    int64_t axis = attr_int(n, "axis", INT64_MIN);
    if (!a || !b || n->opset >= 7 || !attr_int(n, "broadcast", 0) || axis == INT64_MIN || b->rank < 1) return b;
    int first = axis_of(l, axis, a->rank), rank = a->rank - first;
    if (l->error) return NULL;
    if (b->rank > rank) {
        invalid(l, "axis %lld leaves %d axes of the first input, the second has %d", (long long)axis, rank, b->rank);
        return NULL;
    }
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = i < b->rank ? b->dims[i] : dim_const(l->dims, 1);
    return reshape(l, b, dims, rank);
}

static Status lower_binary(Lowering *l, const Node *n) {
    Value *a = in(l, n, 0), *b = in(l, n, 1);
    return out(l, n, 0, binary(l, prim_of(n), a, old_broadcast(l, n, a, b)));
}

static Status lower_mod(Lowering *l, const Node *n) {
    return out(l, n, 0, binary(l, attr_int(n, "fmod", 0) ? PRIM_FMOD : PRIM_MOD, in(l, n, 0), in(l, n, 1)));
}

static Status lower_bit_shift(Lowering *l, const Node *n) {
    const char *direction = attr_string(n, "direction", "");
    bool left = strcmp(direction, "LEFT") == 0;
    if (!left && strcmp(direction, "RIGHT") != 0)
        return invalid(l, "direction must be LEFT or RIGHT, not \"%s\"", direction);
    return out(l, n, 0, binary(l, left ? PRIM_SHL : PRIM_SHR, in(l, n, 0), in(l, n, 1)));
}

/* Whether f32 holds the exponents: small types, or constants that are. */
static bool holds_exponents(const Value *y) {
    const Tensor *known = constant_of(y);
    if (!dtype_is_integer(y->dtype) || dtype_size(y->dtype) < 4) return true;
    for (int64_t i = 0; known && i < tensor_count(known); i++)
        if (fabs(dtype_load_double(known->dtype, known->data, i)) > 0x1p24) return false;
    return known;
}

/* x ** y in x's type. An integer base with a fractional exponent is computed in double, and so is a base that may be
 * negative with an exponent whose last bit f32 would lose; integers of two types in one that holds both. */
static Status lower_pow(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *y = in(l, n, 1);
    y = old_broadcast(l, n, x, y);
    if (!x || !y) return l->error;
    bool whole = dtype_is_integer(x->dtype);
    if (whole ? dtype_is_float(y->dtype) : !holds_exponents(y))
        return out(l, n, 0, cast_like(l, binary(l, PRIM_POW, cast(l, x, DT_F64), cast(l, y, DT_F64)), x));
    if (x->dtype == y->dtype) return out(l, n, 0, binary(l, PRIM_POW, x, y));
    Value *wide = whole ? cast(l, x, x->dtype == DT_U64 ? DT_U64 : DT_I64) : widen(l, x);
    return out(l, n, 0, cast_like(l, binary(l, PRIM_POW, wide, cast_like(l, y, wide)), x));
}

/* --- any number of inputs --------------------------------------------------------------------------------------- */

static Value *join_inputs(Lowering *l, const Node *n, bool wide) {
    Value *total = in(l, n, 0);
    if (wide && total) total = widen(l, total);
    for (int i = 1; i < n->input_count && total; i++) {
        Value *next = in(l, n, i);
        if (next && next->dtype != n->inputs[0]->dtype)
            invalid(l, "the inputs are %s and %s: the types must be equal", dtype_onnx_name(n->inputs[0]->dtype),
                    dtype_onnx_name(next->dtype));
        total = binary(l, prim_of(n), total, wide ? widen(l, next) : next);
    }
    return total;
}

static Status lower_extreme(Lowering *l, const Node *n) { return out(l, n, 0, join_inputs(l, n, false)); }

static Status lower_sum(Lowering *l, const Node *n) {
    return out(l, n, 0, cast_like(l, join_inputs(l, n, true), in(l, n, 0)));
}

static Status lower_mean(Lowering *l, const Node *n) {
    Value *sum = join_inputs(l, n, true);
    return out(l, n, 0, cast_like(l, divide(l, sum, like(l, sum, n->input_count)), in(l, n, 0)));
}

/* --- tests and choices ------------------------------------------------------------------------------------------ */

static Status lower_is_inf(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    bool negative = attr_int(n, "detect_negative", 1), positive = attr_int(n, "detect_positive", 1);
    if (!x) return l->error;
    if (negative && positive) return out(l, n, 0, unary(l, PRIM_ISINF, x));
    if (!negative && !positive) return out(l, n, 0, expand(l, scalar_int(l, DT_BOOL, 0), x->dims, x->rank));
    return out(l, n, 0, binary(l, PRIM_EQ, x, like(l, x, negative ? -INFINITY : INFINITY)));
}

static Status lower_where(Lowering *l, const Node *n) {
    return out(l, n, 0, where(l, in(l, n, 0), in(l, n, 1), in(l, n, 2)));
}

/* A bound: attribute (before opset 11; from 6 on it has a default, which infinities are clipped to), else input; NULL when there is none. */
static Value *clip_bound(Lowering *l, const Node *n, const Value *x, const char *name, int index) {
    if (n->opset < 6 && !node_attr(n, name)) return NULL;
    if (n->opset < 11) return like(l, x, attr_float(n, name, index == 1 ? -FLT_MAX : FLT_MAX));
    Value *bound = optional_in(l, n, index);
    return bound && bound->rank == 1 ? reshape(l, bound, NULL, 0) : bound;
}

static Status lower_clip(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    if (!x) return l->error;
    return out(l, n, 0, clip(l, x, clip_bound(l, n, x, "min", 1), clip_bound(l, n, x, "max", 2)));
}

/* --- casts ------------------------------------------------------------------------------------------------------ */

static bool equals_word(StringView s, const char *word) { return plain_equal(s.data, s.size, word); }

enum { LONGEST_NUMBER = 512 }; /* characters; longer ones are refused */

/* The number a string tells; inf and nan in any case. */
static bool number_from(StringView s, double *out_number, bool *out_is_int, int64_t *out_int) {
    *out_is_int = false;
    char text[LONGEST_NUMBER], *end;
    if (equals_word(s, "inf") || equals_word(s, "+inf")) return *out_number = INFINITY, true;
    if (equals_word(s, "-inf")) return *out_number = -INFINITY, true;
    if (equals_word(s, "nan")) return *out_number = NAN, true;
    if (s.size == 0 || s.size >= sizeof text) return false;
    memcpy(text, s.data, s.size);
    text[s.size] = '\0';
    if (strlen(text) != s.size) return false;
    if (!strpbrk(text, ".eExXpPnN")) {
        *out_int = strtoll(text, &end, 10);
        *out_is_int = end != text && !*end;
    }
    *out_number = plain_double(text, &end);
    return end != text && !*end;
}

static Status parse_strings(HostCall *call, const Tensor *from, Tensor *to) {
    const StringView *strings = from->data;
    int64_t count = tensor_count(from), whole = 0;
    double number = 0;
    for (int64_t i = 0; i < count; i++) {
        bool is_int;
        if (!number_from(strings[i], &number, &is_int, &whole))
            return host_error(call, "\"%.*s\" is not a number", (int)(strings[i].size < 64 ? strings[i].size : 64),
                              strings[i].data);
        if (is_int && !dtype_is_float(to->dtype))
            dtype_store_int(to->dtype, to->data, i, whole);
        else
            dtype_store_double(to->dtype, to->data, i, number);
    }
    return NULL;
}

static void print_number(Text *text, const Tensor *from, int64_t i) {
    if (!dtype_is_float(from->dtype)) {
        int64_t number = dtype_load_int(from->dtype, from->data, i);
        if (from->dtype == DT_U64)
            text_add(text, "%llu", (unsigned long long)number);
        else
            text_add(text, "%lld", (long long)number);
        return;
    }
    double number = dtype_load_double(from->dtype, from->data, i);
    if (isnan(number))
        text_add(text, "NaN");
    else if (isinf(number))
        text_add(text, number > 0 ? "INF" : "-INF");
    else if (from->dtype == DT_F64)
        text_add_double(text, number);
    else
        text_add_float(text, (float)number);
}

static Status print_strings(HostCall *call, const Tensor *from, Tensor *to) {
    StringView *strings = to->data;
    int64_t count = tensor_count(from);
    for (int64_t i = 0; i < count; i++) {
        Text text = text_make(call->arena);
        print_number(&text, from, i);
        strings[i] = (StringView){text.data, text.size};
    }
    return NULL;
}

/* Cast between strings and numbers; attr dtype result_type. */
static Status cast_kernel(HostCall *call) {
    const Tensor *from = host_input(call, 0);
    DType to_type = attr_dtype(call->node, "result_type", DT_NONE);
    Tensor *to;
    if (!from) return host_error(call, "its input is not a tensor");
    TRY(host_output(call, 0, to_type, from->rank, from->dims, &to));
    if (!to) return NULL;
    return to_type == DT_STRING ? print_strings(call, from, to) : parse_strings(call, from, to);
}

Value *cast_strings(Lowering *l, const Node *n, Value *x, DType to) {
    if (to != DT_STRING && !prim_accepts(PRIM_CAST, to)) {
        unsupported(l, "conversion from string to %s", dtype_onnx_name(to));
        return NULL;
    }
    Node *host = host_node(l, n, cast_kernel, &x, 1);
    if (host) node_set_dtype(host, "result_type", to);
    return host_result(l, host, to, x->rank, x->dims);
}

/* x as a power of two, rounded as `mode` says, so that the cast to float8e8m0 is exact: the mantissa's bits are
 * cleared, after half (nearest) or all but one (up) of a unit has been added. */
static Value *round_to_power(Lowering *l, Value *x, const char *mode) {
    int64_t carry = strcmp(mode, "down") == 0 ? 0 : strcmp(mode, "nearest") == 0 ? 0x400000 : 0x7fffff;
    Value *wide = cast(l, x, DT_F32), *bits = bitcast(l, wide, DT_U32);
    Value *moved = add(l, bits, scalar_int(l, DT_U32, carry));
    Value *power = bitcast(l, binary(l, PRIM_AND, moved, scalar_int(l, DT_U32, 0xff800000)), DT_F32);
    Value *finite = binary(l, PRIM_LT, unary(l, PRIM_ABS, wide), scalar(l, DT_F32, INFINITY));
    return where(l, finite, power, wide);
}

static Value *convert(Lowering *l, const Node *n, Value *x, DType to) {
    if (!x) return NULL;
    if (to == DT_NONE) {
        invalid(l, "the type to convert to is not known");
        return NULL;
    }
    if (x->dtype == to) return x;
    if (x->kind == VALUE_TENSOR && x->rank >= 0 && (x->dtype == DT_STRING || to == DT_STRING))
        return cast_strings(l, n, x, to);
    bool saturate = attr_int(n, "saturate", 1), narrow = dtype_is_integer(to) && dtype_file_bits(to) < 8;
    if (narrow && dtype_is_float(x->dtype)) x = cast(l, x, DT_I32); /* the integer's low bits, as between integers */
    if (to == DT_F8E8M0 && dtype_is_float(x->dtype)) x = round_to_power(l, x, attr_string(n, "round_mode", "up"));
    return cast_saturate(l, x, to, saturate);
}

/* Cast-1 names the type: "FLOAT", "INT64", ... */
static DType type_named(const char *name) {
    static const struct {
        const char *name;
        DType dtype;
    } names[] = {{"FLOAT", DT_F32},  {"UINT8", DT_U8},   {"INT8", DT_I8},      {"UINT16", DT_U16},  {"INT16", DT_I16},
                 {"INT32", DT_I32},  {"INT64", DT_I64},  {"BOOL", DT_BOOL},    {"FLOAT16", DT_F16}, {"DOUBLE", DT_F64},
                 {"UINT32", DT_U32}, {"UINT64", DT_U64}, {"STRING", DT_STRING}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) return names[i].dtype;
    return DT_NONE;
}

static Status lower_cast(Lowering *l, const Node *n) {
    const Attr *to = node_attr(n, "to");
    DType dtype = to && to->kind == ATTR_STRING ? type_named(to->s.data) : attr_dtype(n, "to", DT_NONE);
    return out(l, n, 0, convert(l, n, in(l, n, 0), dtype));
}

static Status lower_cast_like(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *model = in(l, n, 1);
    return model ? out(l, n, 0, convert(l, n, x, model->dtype)) : l->error;
}

static Status lower_bit_cast(Lowering *l, const Node *n) {
    return out(l, n, 0, bitcast(l, in(l, n, 0), attr_dtype(n, "to", DT_NONE)));
}

const OpRow ops_elementwise[] = {
    {"", "Abs", 1, 0, lower_unary},
    {"", "Acos", 7, 0, lower_unary},
    {"", "Acosh", 9, 0, lower_unary},
    {"", "Add", 1, 0, lower_binary},
    {"", "And", 1, 0, lower_binary},
    {"", "Asin", 7, 0, lower_unary},
    {"", "Asinh", 9, 0, lower_unary},
    {"", "Atan", 7, 0, lower_unary},
    {"", "Atanh", 9, 0, lower_unary},
    {"", "BitCast", 26, 0, lower_bit_cast},
    {"", "BitShift", 11, 0, lower_bit_shift},
    {"", "BitwiseAnd", 18, 0, lower_binary},
    {"", "BitwiseNot", 18, 0, lower_unary},
    {"", "BitwiseOr", 18, 0, lower_binary},
    {"", "BitwiseXor", 18, 0, lower_binary},
    {"", "Cast", 1, 0, lower_cast, cast_kernel},
    {"", "CastLike", 15, 0, lower_cast_like, cast_kernel},
    {"", "Ceil", 1, 0, lower_unary},
    {"", "Clip", 1, 0, lower_clip},
    {"", "Cos", 7, 0, lower_unary},
    {"", "Cosh", 9, 0, lower_unary},
    {"", "Div", 1, 0, lower_binary},
    {"", "Equal", 1, 0, lower_binary},
    {"", "Erf", 9, 0, lower_unary},
    {"", "Exp", 1, 0, lower_unary},
    {"", "Floor", 1, 0, lower_unary},
    {"", "Greater", 1, 0, lower_binary},
    {"", "GreaterOrEqual", 12, 0, lower_binary},
    {"", "IsInf", 10, 0, lower_is_inf},
    {"", "IsNaN", 9, 0, lower_unary},
    {"", "Less", 1, 0, lower_binary},
    {"", "LessOrEqual", 12, 0, lower_binary},
    {"", "Log", 1, 0, lower_unary},
    {"", "Max", 1, 0, lower_extreme},
    {"", "Mean", 1, 0, lower_mean},
    {"", "Min", 1, 0, lower_extreme},
    {"", "Mod", 10, 0, lower_mod},
    {"", "Mul", 1, 0, lower_binary},
    {"", "Neg", 1, 0, lower_unary},
    {"", "Not", 1, 0, lower_unary},
    {"", "Or", 1, 0, lower_binary},
    {"", "Pow", 1, 0, lower_pow},
    {"", "Reciprocal", 1, 0, lower_unary},
    {"", "Round", 11, 0, lower_unary},
    {"", "Sigmoid", 1, 0, lower_unary},
    {"", "Sign", 9, 0, lower_unary},
    {"", "Sin", 7, 0, lower_unary},
    {"", "Sinh", 9, 0, lower_unary},
    {"", "Sqrt", 1, 0, lower_unary},
    {"", "Sub", 1, 0, lower_binary},
    {"", "Sum", 1, 0, lower_sum},
    {"", "Tan", 7, 0, lower_unary},
    {"", "Tanh", 1, 0, lower_unary},
    {"", "Where", 9, 0, lower_where},
    {"", "Xor", 1, 0, lower_binary},
    {0},
};
