/* SPDX-License-Identifier: Apache-2.0 */
/* The primitives in the standard's operators: one row each (graph/prim.h says what they mean). */
#include <math.h>

#include "optimize/standard/writer.h"

typedef Value *(*WriteFn)(Writer *w, const Node *n, const char *op, Value *const *in);

static DType result_type(const Node *n) { return n->outputs[0]->dtype; }

static int width_of(DType dtype) { return (int)dtype_size(dtype) * 8; }

/* One node of the same inputs. */
static Value *plain(Writer *w, const Node *n, const char *op, Value *const *in) {
    return apply(w, op, result_type(n), in, n->input_count, NULL, 0);
}

/* --- one input -------------------------------------------------------------------------------------------------------------- */

/* The operator takes no unsigned integers: 0 - x wraps. */
static Value *negative(Writer *w, const Node *n, const char *op, Value *const *in) {
    bool is_unsigned = dtype_class(in[0]->dtype) == DTYPE_UNSIGNED;
    return is_unsigned ? apply2(w, "Sub", whole(w, in[0]->dtype, 0), in[0]) : plain(w, n, op, in);
}

/* Integers are what they are. */
static Value *rounded(Writer *w, const Node *n, const char *op, Value *const *in) {
    return dtype_is_integer(in[0]->dtype) ? in[0] : plain(w, n, op, in);
}

static Value *truncated(Writer *w, const Node *n, const char *op, Value *const *in) {
    (void)n, (void)op;
    Value *x = in[0];
    if (dtype_is_integer(x->dtype)) return x;
    return choose(w, compare(w, "Less", x, number(w, x->dtype, 0)), apply1(w, "Ceil", x), apply1(w, "Floor", x));
}

/* f16 and bf16 are computed in f32, so that formulas round once. */
static Value *widened(Writer *w, Value *x) { return x->dtype == DT_F64 ? x : convert(w, x, DT_F32); }

/* With u = 1 + x rounded, log(u) x / (u - 1) is exact to some units of the last place, as the error of u cancels (Kahan; Higham,
 * "Accuracy and Stability of Numerical Algorithms", 2002, 1.14.1). Where u = 1 it is x, where 1 does not count log(x). */
static Value *log_of_one_and(Writer *w, const Node *n, const char *op, Value *const *in) {
    (void)op;
    Value *x = widened(w, in[0]);
    Value *one = number(w, x->dtype, 1), *u = apply2(w, "Add", one, x), *log = apply1(w, "Log", u);
    Value *scaled = apply2(w, "Mul", log, apply2(w, "Div", x, apply2(w, "Sub", u, one)));
    Value *large = choose(w, compare(w, "Equal", u, x), log, scaled);
    return convert(w, choose(w, compare(w, "Equal", u, one), x, large), result_type(n));
}

/* exp(x) - 1 = 2 t / (1 - t) with t = tanh(x / 2), where nothing cancels below x = 1; above, nothing cancels in exp(x) - 1. */
static Value *exp_less_one(Writer *w, const Node *n, const char *op, Value *const *in) {
    (void)op;
    Value *x = widened(w, in[0]);
    Value *one = number(w, x->dtype, 1);
    Value *t = apply1(w, "Tanh", apply2(w, "Mul", x, number(w, x->dtype, 0.5)));
    Value *small = apply2(w, "Div", apply2(w, "Add", t, t), apply2(w, "Sub", one, t));
    Value *large = apply2(w, "Sub", apply1(w, "Exp", x), one);
    return convert(w, choose(w, compare(w, "Less", x, one), small, large), result_type(n));
}

static Value *inverted(Writer *w, const Node *n, const char *op, Value *const *in) {
    return plain(w, n, in[0]->dtype == DT_BOOL ? op : "BitwiseNot", in);
}

/* --- two inputs ------------------------------------------------------------------------------------------------------------- */

static bool all_elements_differ(const Value *value, int64_t a, int64_t b) {
    if (!value->constant) return false;
    for (int64_t i = 0; i < tensor_count(value->constant); i++) {
        int64_t element = dtype_load_int(value->dtype, value->constant->data, i);
        if (element == a || element == b) return false;
    }
    return true;
}

/* x op y of integers as the standard leaves it undefined: by 0 the result is 0; by -1, which overflows where x is the least integer,
 * it is `by_minus_one`. */
static Value *guarded(Writer *w, const char *op, Value *x, Value *y, Value *by_minus_one, const Attr *attrs,
                      int attr_count) {
    DType type = y->dtype;
    bool is_signed = dtype_class(type) == DTYPE_SIGNED;
    if (all_elements_differ(y, 0, is_signed ? -1 : 0))
        return apply(w, op, type, (Value *[]){x, y}, 2, attrs, attr_count);
    Value *zero = whole(w, type, 0), *one = whole(w, type, 1), *is_zero = compare(w, "Equal", y, zero),
          *special = is_zero;
    Value *is_minus_one = is_signed ? compare(w, "Equal", y, whole(w, type, -1)) : NULL;
    if (is_signed) special = compare(w, "Or", is_zero, is_minus_one);
    Value *safe = choose(w, special, one, y);
    Value *result = safe ? apply(w, op, type, (Value *[]){x, safe}, 2, attrs, attr_count) : NULL;
    if (is_signed) result = choose(w, is_minus_one, by_minus_one, result);
    return choose(w, is_zero, zero, result);
}

static Value *quotient(Writer *w, const Node *n, const char *op, Value *const *in) {
    if (dtype_is_float(in[0]->dtype)) return plain(w, n, op, in);
    bool is_signed = dtype_class(in[0]->dtype) == DTYPE_SIGNED;
    return guarded(w, op, in[0], in[1], is_signed ? apply1(w, "Neg", in[0]) : NULL, NULL, 0);
}

/* The remainder of the divisor's sign; of floats where there is none, 0 has it. */
static Value *floor_remainder(Writer *w, const Node *n, const char *op, Value *const *in) {
    (void)n;
    Value *x = in[0], *y = in[1], *zero = number(w, x->dtype, 0);
    if (!dtype_is_float(x->dtype)) return guarded(w, op, x, y, zero, NULL, 0);
    Attr fmod = int_attr("fmod", 1);
    Value *r = apply(w, op, x->dtype, (Value *[]){x, y}, 2, &fmod, 1);
    Value *negative_y = compare(w, "Less", y, zero),
          *differ = compare(w, "Xor", r ? compare(w, "Less", r, zero) : NULL, negative_y);
    Value *none = apply2(w, "Mul", zero, apply1(w, "Sign", y));
    return choose(w, compare(w, "Equal", r, zero), none, choose(w, differ, apply2(w, "Add", r, y), r));
}

static Value *remainder_of(Writer *w, const Node *n, const char *op, Value *const *in) {
    Attr fmod = int_attr("fmod", 1);
    if (dtype_is_float(in[0]->dtype)) return apply(w, op, result_type(n), in, 2, &fmod, 1);
    return guarded(w, op, in[0], in[1], whole(w, in[0]->dtype, 0), &fmod, 1);
}

/* The operator's largest integers are 64-bit signed ones, in which those of 64 bits without a sign wrap alike, but for exponents
 * that no result is right for. */
static Value *power(Writer *w, const Node *n, const char *op, Value *const *in) {
    DType type = result_type(n);
    if (type != DT_U64) return plain(w, n, op, in);
    return convert(w, apply2(w, op, convert(w, in[0], DT_I64), convert(w, in[1], DT_I64)), type);
}

/* Logical on bool, bitwise on integers. */
static Value *bitwise(Writer *w, const Node *n, const char *op, Value *const *in) {
    if (in[0]->dtype == DT_BOOL) return plain(w, n, op, in);
    return plain(w, n, arena_format(w->arena, "Bitwise%s", op), in);
}

static Value *unequal(Writer *w, const Node *n, const char *op, Value *const *in) {
    return apply1(w, "Not", plain(w, n, op, in));
}

/* Of bool: false < true. */
static Value *ordered(Writer *w, const Node *n, const char *op, Value *const *in) {
    if (in[0]->dtype != DT_BOOL) return plain(w, n, op, in);
    return compare(w, op, convert(w, in[0], DT_I32), convert(w, in[1], DT_I32));
}

static Value *extreme(Writer *w, const Node *n, const char *op, Value *const *in) {
    if (in[0]->dtype != DT_BOOL) return plain(w, n, op, in);
    return plain(w, n, strcmp(op, "Min") == 0 ? "And" : "Or", in);
}

static DType without_sign(DType type) {
    static const DType types[] = {[1] = DT_U8, [2] = DT_U16, [4] = DT_U32, [8] = DT_U64};
    return types[dtype_size(type)];
}

static Value *shifted(Writer *w, Value *x, Value *distance, const char *direction) {
    Attr attr = text_attr("direction", direction);
    if (!x || !distance) return NULL;
    return apply(w, "BitShift", x->dtype, (Value *[]){x, distance}, 2, &attr, 1);
}

/* The operator shifts numbers without sign, by less than their width. A negative one to the right is ~(~x >> distance). */
static Value *shift(Writer *w, const Node *n, const char *op, Value *const *in) {
    DType type = result_type(n), bits = without_sign(type);
    bool right = strcmp(op, "RIGHT") == 0, has_sign = right && type != bits;
    Value *x = convert(w, in[0], bits), *distance = convert(w, in[1], bits);
    Value *inside = compare(w, "Less", distance, whole(w, bits, width_of(type)));
    Value *most = whole(w, bits, width_of(type) - 1);
    Value *near = choose(w, inside, distance, most);
    if (has_sign) {
        Value *negative_x = compare(w, "Less", in[0], whole(w, type, 0)), *flipped = apply1(w, "BitwiseNot", x);
        Value *result = shifted(w, choose(w, negative_x, flipped, x), near, op);
        return convert(w, choose(w, negative_x, apply1(w, "BitwiseNot", result), result), type);
    }
    return convert(w, choose(w, inside, shifted(w, x, near, op), whole(w, bits, 0)), type);
}

/* --- conversions and generators ----------------------------------------------------------------------------------------------- */

static Value *conversion(Writer *w, const Node *n, const char *op, Value *const *in) {
    Attr attrs[] = {int_attr("to", result_type(n)), int_attr("saturate", 0)};
    return apply(w, op, result_type(n), in, 1, attrs, attr_int(n, "saturate", 1) ? 1 : 2);
}

static Value *bits_of(Writer *w, const Node *n, const char *op, Value *const *in) {
    Attr to = int_attr("to", result_type(n));
    if (in[0]->dtype == result_type(n)) return in[0];
    return apply(w, op, result_type(n), in, 1, &to, 1);
}

static Value *indices(Writer *w, const Node *n, const char *op, Value *const *in) {
    (void)in;
    int rank;
    const Dim *const *shape = attr_dims(n, "shape", &rank), *line[MAX_RANK];
    int axis = (int)attr_int(n, "axis", 0);
    bool is_line = true;
    for (int i = 0; i < rank; i++) {
        line[i] = i == axis ? shape[i] : dim_const(w->table, 1);
        is_line &= i == axis || dim_equals(shape[i], 1);
    }
    Value *most = size_number(w, shape[axis]);
    if (!most) return NULL;
    Value *range = apply(w, op, DT_I64, (Value *[]){whole(w, DT_I64, 0), most, whole(w, DT_I64, 1)}, 3, NULL, 0);
    range = convert(w, range, result_type(n));
    if (rank > 1) range = reshape_to(w, range, line, rank);
    if (is_line || !range) return range;
    Value *sizes = shape_value(w, shape, rank);
    return sizes ? apply(w, "Expand", range->dtype, (Value *[]){range, sizes}, 2, NULL, 0) : NULL;
}

static Value *draws(Writer *w, const Node *n, const char *op, Value *const *in) {
    (void)n, (void)op, (void)in;
    return refuse(w, "the standard has no operator that draws its random numbers"), NULL;
}

static Value *sizes(Writer *w, const Node *n, const char *op, Value *const *in) {
    (void)op, (void)in;
    int count;
    const Dim *const *shape = attr_dims(n, "shape", &count);
    const Value *result = n->outputs[0];
    Value *vector = shape_value(w, shape, count);
    if (result->rank == 0) vector = reshape_to(w, vector, NULL, 0);
    return convert(w, vector, result->dtype);
}

/* --- reductions ----------------------------------------------------------------------------------------------------------------- */

static Value *reduction(Writer *w, const Node *n, const char *op, Value *const *in) {
    int count;
    const int64_t *axes = attr_ints(n, "axes", &count);
    if (!count) return in[0];
    Attr keep = int_attr("keepdims", 1);
    return apply(w, op, result_type(n), (Value *[]){in[0], ints_value(w, axes, count)}, 2, &keep, 1);
}

static Value *place_of_extreme(Writer *w, const Node *n, const char *op, Value *const *in) {
    int count;
    const int64_t *axes = attr_ints(n, "axes", &count);
    Value *x = in[0]->dtype == DT_BOOL ? convert(w, in[0], DT_U8) : in[0];
    Attr attrs[] = {int_attr("axis", axes[0]), int_attr("keepdims", 1), int_attr("select_last_index", 1)};
    return apply(w, op, DT_I64, &x, 1, attrs, attr_int(n, "last", 0) ? 3 : 2);
}

/* --- movement ------------------------------------------------------------------------------------------------------------------- */

static Value *reshaped(Writer *w, const Node *n, const char *op, Value *const *in) {
    (void)op;
    return reshape_to(w, in[0], n->outputs[0]->dims, n->outputs[0]->rank);
}

static Value *permuted(Writer *w, const Node *n, const char *op, Value *const *in) {
    (void)op;
    int count;
    const int64_t *perm = attr_ints(n, "perm", &count);
    return transpose(w, in[0], perm, count);
}

/* An axis that is repeated nowhere is asked for 1, which leaves it. */
static Value *expanded(Writer *w, const Node *n, const char *op, Value *const *in) {
    const Value *from = n->inputs[0], *to = n->outputs[0];
    const Dim *shape[MAX_RANK];
    bool stays = true;
    for (int i = 0; i < to->rank; i++) {
        bool same = from->dims[i] == to->dims[i];
        shape[i] = same ? dim_const(w->table, 1) : to->dims[i];
        stays &= same;
    }
    Value *asked = stays ? NULL : shape_value(w, shape, to->rank);
    if (stays) return in[0];
    return asked ? apply(w, op, to->dtype, (Value *[]){in[0], asked}, 2, NULL, 0) : NULL;
}

/* Where a slice of this size ends. Going backwards it may be before the first element: far before it, as -1 would be the last one. */
static const Dim *end_of(Writer *w, const Dim *start, const Dim *size, int64_t step) {
    enum { FAR = 1 << 30 };
    DimTable *t = w->table;
    const Dim *end = dim_add(t, start, dim_mul(t, size, dim_const(t, step)));
    if (step > 0) return end;
    return dim_add(t, end, dim_mul(t, dim_const(t, FAR), dim_min(t, end, dim_const(t, 0))));
}

static Value *sliced(Writer *w, const Node *n, const char *op, Value *const *in) {
    int rank, count = 0;
    const Value *from = n->inputs[0], *to = n->outputs[0];
    const Dim *const *start = attr_dims(n, "start", &rank), *starts[MAX_RANK], *ends[MAX_RANK];
    const int64_t *step = attr_ints(n, "step", &rank);
    int64_t axes[MAX_RANK], steps[MAX_RANK];
    for (int i = 0; i < from->rank; i++) {
        if (step[i] == 1 && from->dims[i] == to->dims[i]) continue;
        starts[count] = start[i];
        ends[count] = end_of(w, start[i], to->dims[i], step[i]);
        axes[count] = i;
        steps[count++] = step[i];
    }
    if (!count) return in[0];
    Value *from_value = shape_value(w, starts, count), *to_value = shape_value(w, ends, count);
    if (!from_value || !to_value) return NULL;
    Value *inputs[] = {in[0], from_value, to_value, ints_value(w, axes, count), ints_value(w, steps, count)};
    return apply(w, op, to->dtype, inputs, 5, NULL, 0);
}

static Value *padded(Writer *w, const Node *n, const char *op, Value *const *in) {
    int rank;
    const Dim *const *before = attr_dims(n, "before", &rank), *const *after = attr_dims(n, "after", &rank);
    const Dim *pads[2 * MAX_RANK];
    bool stays = true;
    for (int i = 0; i < rank; i++) {
        pads[i] = before[i];
        pads[rank + i] = after[i];
        stays &= dim_equals(before[i], 0) && dim_equals(after[i], 0);
    }
    Value *amounts = stays ? NULL : shape_value(w, pads, 2 * rank);
    if (stays) return in[0];
    Value *fill = n->inputs[1]->rank ? reshape_to(w, in[1], NULL, 0) : in[1];
    if (!amounts || !fill) return NULL;
    return apply(w, op, result_type(n), (Value *[]){in[0], amounts, fill}, 3, NULL, 0);
}

static Value *joined(Writer *w, const Node *n, const char *op, Value *const *in) {
    Attr axis = int_attr("axis", attr_int(n, "axis", 0));
    return n->input_count == 1 ? in[0] : apply(w, op, result_type(n), in, n->input_count, &axis, 1);
}

static Value *along_axis(Writer *w, const Node *n, const char *op, Value *const *in) {
    const char *reduction = attr_string(n, "reduction", "none");
    Attr attrs[2] = {int_attr("axis", attr_int(n, "axis", 0)), text_attr("reduction", reduction)};
    return apply(w, op, result_type(n), in, n->input_count, attrs, strcmp(reduction, "none") == 0 ? 1 : 2);
}

static Value *scattered(Writer *w, const Node *n, const char *op, Value *const *in) {
    const char *reduction = attr_string(n, "reduction", "none");
    Attr attr = text_attr("reduction", reduction);
    Value *list[] = {in[0], convert(w, in[1], DT_I64), in[2]};
    return apply(w, op, result_type(n), list, 3, &attr, strcmp(reduction, "none") != 0);
}

/* --- the table -------------------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *op;
    WriteFn write;
} rows[PRIM_COUNT] = {
    [PRIM_NEG] = {"Neg", negative},
    [PRIM_ABS] = {"Abs", plain},
    [PRIM_SIGN] = {"Sign", plain},
    [PRIM_FLOOR] = {"Floor", rounded},
    [PRIM_CEIL] = {"Ceil", rounded},
    [PRIM_ROUND] = {"Round", rounded},
    [PRIM_TRUNC] = {"", truncated},
    [PRIM_SQRT] = {"Sqrt", plain},
    [PRIM_RECIPROCAL] = {"Reciprocal", plain},
    [PRIM_EXP] = {"Exp", plain},
    [PRIM_LOG] = {"Log", plain},
    [PRIM_LOG1P] = {"", log_of_one_and},
    [PRIM_EXPM1] = {"", exp_less_one},
    [PRIM_SIN] = {"Sin", plain},
    [PRIM_COS] = {"Cos", plain},
    [PRIM_TAN] = {"Tan", plain},
    [PRIM_ASIN] = {"Asin", plain},
    [PRIM_ACOS] = {"Acos", plain},
    [PRIM_ATAN] = {"Atan", plain},
    [PRIM_SINH] = {"Sinh", plain},
    [PRIM_COSH] = {"Cosh", plain},
    [PRIM_TANH] = {"Tanh", plain},
    [PRIM_ASINH] = {"Asinh", plain},
    [PRIM_ACOSH] = {"Acosh", plain},
    [PRIM_ATANH] = {"Atanh", plain},
    [PRIM_ERF] = {"Erf", plain},
    [PRIM_SIGMOID] = {"Sigmoid", plain},
    [PRIM_NOT] = {"Not", inverted},
    [PRIM_ISNAN] = {"IsNaN", plain},
    [PRIM_ISINF] = {"IsInf", plain},
    [PRIM_ADD] = {"Add", plain},
    [PRIM_SUB] = {"Sub", plain},
    [PRIM_MUL] = {"Mul", plain},
    [PRIM_DIV] = {"Div", quotient},
    [PRIM_MOD] = {"Mod", floor_remainder},
    [PRIM_FMOD] = {"Mod", remainder_of},
    [PRIM_POW] = {"Pow", power},
    [PRIM_MIN] = {"Min", extreme},
    [PRIM_MAX] = {"Max", extreme},
    [PRIM_AND] = {"And", bitwise},
    [PRIM_OR] = {"Or", bitwise},
    [PRIM_XOR] = {"Xor", bitwise},
    [PRIM_SHL] = {"LEFT", shift},
    [PRIM_SHR] = {"RIGHT", shift},
    [PRIM_EQ] = {"Equal", plain},
    [PRIM_NE] = {"Equal", unequal},
    [PRIM_LT] = {"Less", ordered},
    [PRIM_LE] = {"LessOrEqual", ordered},
    [PRIM_GT] = {"Greater", ordered},
    [PRIM_GE] = {"GreaterOrEqual", ordered},
    [PRIM_WHERE] = {"Where", plain},
    [PRIM_CAST] = {"Cast", conversion},
    [PRIM_BITCAST] = {"BitCast", bits_of},
    [PRIM_IOTA] = {"Range", indices},
    [PRIM_PHILOX] = {"", draws},
    [PRIM_DIMS] = {"", sizes},
    [PRIM_REDUCE_SUM] = {"ReduceSum", reduction},
    [PRIM_REDUCE_PROD] = {"ReduceProd", reduction},
    [PRIM_REDUCE_MAX] = {"ReduceMax", reduction},
    [PRIM_REDUCE_MIN] = {"ReduceMin", reduction},
    [PRIM_ARGMAX] = {"ArgMax", place_of_extreme},
    [PRIM_ARGMIN] = {"ArgMin", place_of_extreme},
    [PRIM_RESHAPE] = {"Reshape", reshaped},
    [PRIM_PERMUTE] = {"Transpose", permuted},
    [PRIM_EXPAND] = {"Expand", expanded},
    [PRIM_SLICE] = {"Slice", sliced},
    [PRIM_PAD] = {"Pad", padded},
    [PRIM_CONCAT] = {"Concat", joined},
    [PRIM_GATHER] = {"Gather", along_axis},
    [PRIM_GATHER_ELEMENTS] = {"GatherElements", along_axis},
    [PRIM_SCATTER_ELEMENTS] = {"ScatterElements", along_axis},
    [PRIM_SCATTER_ND] = {"ScatterND", scattered},
};

const char *prim_operator(Prim prim) { return rows[prim].op; }

void write_prim(Writer *w, const Node *n) {
    Value **inputs = ARENA_ARRAY(w->arena, Value *, n->input_count + 1);
    for (int i = 0; i < n->input_count; i++)
        if (n->prim != PRIM_PHILOX) inputs[i] = form_of(w, n->inputs[i]);
    if (!*w->error) set_form(w, n->outputs[0], rows[n->prim].write(w, n, rows[n->prim].op, inputs));
}
