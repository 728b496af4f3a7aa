/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise primitives, casts, generators and reductions: the result's type and dims, the simplifications that leave
 * every bit as it is (or, for powers and exact divisions, the more exact form), then emit(). */
#include "lowering/build_internal.h"

#include <math.h>
#include "lowering/sizes.h"

static bool accepts(Lowering *l, Prim prim, const Value *x) {
    if (!prim_accepts(prim, x->dtype))
        invalid(l, "%s does not work on %s (\"%s\")", prim_info(prim)->name, dtype_onnx_name(x->dtype), x->name);
    return !l->error;
}

/* --- elementwise ------------------------------------------------------------------------------------------------ */

bool broadcast_dims(Lowering *l, Value *const *inputs, int count, const Dim **dims, int *out_rank) {
    int rank = 0;
    for (int i = 0; i < count; i++)
        if (inputs[i]->rank > rank) rank = inputs[i]->rank;
    for (int axis = 0; axis < rank; axis++) dims[axis] = dim_const(l->dims, 1);
    for (int i = 0; i < count; i++) {
        int shift = rank - inputs[i]->rank;
        for (int axis = shift; axis < rank; axis++) {
            const Dim *size = size_broadcast(l, dims[axis], inputs[i]->dims[axis - shift]);
            if (!size) {
                const char *first = shape_text(l, inputs[0]->dims, inputs[0]->rank);
                invalid(l, "shapes %s and %s do not broadcast", first, shape_text(l, inputs[i]->dims, inputs[i]->rank));
                return false;
            }
            dims[axis] = size;
        }
    }
    *out_rank = rank;
    return true;
}

Value *align_to(Lowering *l, Value *x, const Dim *const *dims, int rank) {
    if (!present(l, &x, 1)) return NULL;
    NodeSpec spec = {.prim = PRIM_EXPAND, .inputs = &x, .input_count = 1, .dtype = x->dtype, .rank = x->rank};
    bool differs = false;
    for (int i = 0; i < x->rank; i++) {
        const Dim *wanted = dims[i + rank - x->rank];
        spec.dims[i] = dim_equals(x->dims[i], 1) ? x->dims[i] : wanted;
        differs |= spec.dims[i] != x->dims[i];
    }
    if (!differs) return x;
    spec_dims(&spec, "shape", spec.dims, spec.rank);
    return emit(l, &spec);
}

bool is_static_expand(const Value *x) {
    if (!is_made_by(x, PRIM_EXPAND)) return false;
    const Value *source = x->producer->inputs[0];
    for (int i = 0; i < x->rank; i++)
        if (source->dims[i] != x->dims[i] && !dim_equals(source->dims[i], 1)) return false;
    return true;
}

static void strip_expands(Lowering *l, Value **inputs, int count, const Dim *const *dims, int rank) {
    const Dim *others[MAX_RANK];
    int other_rank;
    for (int i = 0; i < count; i++) {
        Value *full = inputs[i];
        if (!is_static_expand(full)) continue;
        inputs[i] = full->producer->inputs[0];
        bool same = broadcast_dims(l, inputs, count, others, &other_rank) && other_rank == rank;
        for (int axis = 0; same && axis < rank; axis++) same = others[axis] == dims[axis];
        if (!same) inputs[i] = full;
    }
}

/* Broadcasts the inputs in place and fills the spec's dims. */
static bool shape_elementwise(Lowering *l, NodeSpec *spec, Value **inputs, int count) {
    if (!present(l, inputs, count) || !broadcast_dims(l, inputs, count, spec->dims, &spec->rank)) return false;
    strip_expands(l, inputs, count, spec->dims, spec->rank);
    for (int i = 0; i < count; i++)
        if (!(inputs[i] = align_to(l, inputs[i], spec->dims, spec->rank))) return false;
    spec->inputs = inputs;
    spec->input_count = count;
    return true;
}

static Value *simplify_unary(Prim prim, Value *x) {
    bool rounds = prim == PRIM_FLOOR || prim == PRIM_CEIL || prim == PRIM_ROUND || prim == PRIM_TRUNC;
    if (rounds && dtype_is_integer(x->dtype)) return x;
    if (rounds && (is_made_by(x, PRIM_FLOOR) || is_made_by(x, PRIM_CEIL) || is_made_by(x, PRIM_ROUND) ||
                   is_made_by(x, PRIM_TRUNC)))
        return x;
    if ((prim == PRIM_NEG || prim == PRIM_NOT) && is_made_by(x, prim)) return x->producer->inputs[0];
    if (prim == PRIM_ABS && (is_made_by(x, prim) || dtype_class(x->dtype) == DTYPE_UNSIGNED)) return x;
    return NULL;
}

Value *unary(Lowering *l, Prim prim, Value *x) {
    if (!present(l, &x, 1) || !accepts(l, prim, x)) return NULL;
    Value *simpler = simplify_unary(prim, x);
    if (simpler) return simpler;
    NodeSpec spec = {.prim = prim, .inputs = &x, .input_count = 1};
    spec.dtype = prim_info(prim)->klass == PRIM_CLASS_TEST ? DT_BOOL : x->dtype;
    spec_shape(&spec, x->rank, x->dims);
    return emit(l, &spec);
}

/* Exponents that are told by cheaper primitives. */
static Value *simplify_power(Lowering *l, Value *x, double exponent) {
    if (exponent == 1) return x;
    if (exponent == 2) return mul(l, x, x);
    if (exponent == 3) return mul(l, mul(l, x, x), x);
    if (exponent == 0.5 && dtype_is_float(x->dtype)) return unary(l, PRIM_SQRT, x);
    if (exponent == -1 && dtype_is_float(x->dtype)) return unary(l, PRIM_RECIPROCAL, x);
    return NULL;
}

/* 1/divisor, where that and every product with it is the same as the quotient: powers of two well inside the type's
 * range. */
static bool exact_reciprocal(DType dtype, double divisor, double *out_reciprocal) {
    int exponent, widest = dtype == DT_F16 ? 10 : 60;
    if (divisor == 0 || !isfinite(divisor) || fabs(frexp(divisor, &exponent)) != 0.5) return false;
    if (dtype != DT_F32 && dtype != DT_F64 && dtype != DT_F16 && dtype != DT_BF16) return false;
    *out_reciprocal = 1 / divisor;
    return exponent > -widest && exponent < widest;
}

static Value *simplify_by_number(Lowering *l, Prim prim, Value *x, double number) {
    bool is_float = dtype_is_float(x->dtype);
    double reciprocal;
    switch (prim) {
    case PRIM_ADD: return number == 0 && (!is_float || signbit(number)) ? x : NULL;
    case PRIM_SUB: return number == 0 && !signbit(number) ? x : NULL;
    case PRIM_MUL: return number == 1 ? x : NULL;
    case PRIM_DIV:
        if (number == 1) return x;
        return is_float && exact_reciprocal(x->dtype, number, &reciprocal) ? mul(l, x, like(l, x, reciprocal)) : NULL;
    case PRIM_POW: return simplify_power(l, x, number);
    case PRIM_AND: return x->dtype == DT_BOOL && number != 0 ? x : NULL;
    case PRIM_OR: return number == 0 ? x : NULL;
    case PRIM_XOR:
    case PRIM_SHL:
    case PRIM_SHR: return number == 0 ? x : NULL;
    default: return NULL;
    }
}

static bool is_commutative(Prim prim) {
    return prim == PRIM_ADD || prim == PRIM_MUL || prim == PRIM_AND || prim == PRIM_OR || prim == PRIM_XOR;
}

/* A constant of one number, or one that is repeated for want of room. */
static bool is_repeated_number(const Value *x, double *out_number) {
    return is_splat(is_static_expand(x) ? x->producer->inputs[0] : x, out_number);
}

static Value *simplify_binary(Lowering *l, Prim prim, Value *a, Value *b, const NodeSpec *spec) {
    double number;
    Value *simpler = NULL;
    if (a == b && (prim == PRIM_MIN || prim == PRIM_MAX || prim == PRIM_AND || prim == PRIM_OR)) return a;
    if (is_repeated_number(b, &number)) simpler = simplify_by_number(l, prim, a, number);
    if (!simpler && is_commutative(prim) && is_repeated_number(a, &number))
        simpler = simplify_by_number(l, prim, b, number);
    return simpler && !l->error ? expand(l, simpler, spec->dims, spec->rank) : NULL;
}

Value *binary(Lowering *l, Prim prim, Value *a, Value *b) {
    Value *inputs[] = {a, b};
    if (!present(l, inputs, 2) || !accepts(l, prim, a)) return NULL;
    if (a->dtype != b->dtype) {
        invalid(l, "%s of %s (\"%s\") and %s (\"%s\"): the types must be equal", prim_info(prim)->name,
                dtype_onnx_name(a->dtype), a->name, dtype_onnx_name(b->dtype), b->name);
        return NULL;
    }
    bool compares = prim_info(prim)->klass == PRIM_CLASS_COMPARE;
    NodeSpec spec = {.prim = prim, .dtype = compares ? DT_BOOL : a->dtype};
    if (!shape_elementwise(l, &spec, inputs, 2)) return NULL;
    Value *simpler =
        constant_of(inputs[0]) && constant_of(inputs[1]) ? NULL : simplify_binary(l, prim, inputs[0], inputs[1], &spec);
    return simpler || l->error ? simpler : emit(l, &spec);
}

Value *where(Lowering *l, Value *condition, Value *then, Value *otherwise) {
    Value *inputs[] = {condition, then, otherwise};
    if (!present(l, inputs, 3)) return NULL;
    if (condition->dtype != DT_BOOL || then->dtype != otherwise->dtype) {
        invalid(l, "a choice by %s between %s and %s: the condition must be bool, the branches of one type",
                dtype_onnx_name(condition->dtype), dtype_onnx_name(then->dtype), dtype_onnx_name(otherwise->dtype));
        return NULL;
    }
    NodeSpec spec = {.prim = PRIM_WHERE, .dtype = then->dtype};
    if (!shape_elementwise(l, &spec, inputs, 3)) return NULL;
    double yes;
    if (is_repeated_number(inputs[0], &yes)) return expand(l, inputs[yes != 0 ? 1 : 2], spec.dims, spec.rank);
    if (inputs[1] == inputs[2] && has_dims(inputs[1], spec.dims, spec.rank)) return inputs[1];
    return emit(l, &spec);
}

/* --- casts ------------------------------------------------------------------------------------------------------ */

static int integer_bits(DType t) { return t == DT_BOOL ? 1 : dtype_file_bits(t); }

/* Whether every number of `from` is one of `to`, so that a later cast sees the same number. */
static bool widens(DType from, DType to) {
    static const int mantissa[DTYPE_COUNT] = {[DT_F16] = 11, [DT_BF16] = 8, [DT_F32] = 24, [DT_F64] = 53};
    if (from == to) return true;
    if (dtype_is_float(from)) {
        bool half = from == DT_F16 || from == DT_BF16;
        return (half && (to == DT_F32 || to == DT_F64)) || (from == DT_F32 && to == DT_F64);
    }
    bool from_signed = dtype_class(from) == DTYPE_SIGNED, to_signed = dtype_class(to) == DTYPE_SIGNED;
    int bits = integer_bits(from) - from_signed;
    if (dtype_is_float(to)) return bits <= mantissa[to];
    return dtype_is_integer(to) && (!from_signed || to_signed) && bits <= integer_bits(to) - to_signed;
}

/* Whether from -> through -> to is from -> to. Between integers casts wrap, from floats they saturate. */
static bool step_is_idle(DType from, DType through, DType to) {
    bool wraps = dtype_is_integer(from) && dtype_is_integer(to) && !widens(from, to);
    return widens(from, through) && !(wraps && dtype_is_float(through));
}

static bool is_small_float(DType t) { return dtype_is_float(t) && dtype_size(t) == 1; }

static Value *convert(Lowering *l, Value *x, DType to, bool saturate, bool loose) {
    if (!present(l, &x, 1)) return NULL;
    if (x->dtype == to) return x;
    if (!accepts(l, PRIM_CAST, x)) return NULL;
    if (!prim_accepts(PRIM_CAST, to)) {
        invalid(l, "%s cannot be converted to %s", dtype_onnx_name(x->dtype), dtype_onnx_name(to));
        return NULL;
    }
    Value *source = x;
    while (is_made_by(source, PRIM_CAST) && step_is_idle(source->producer->inputs[0]->dtype, source->dtype, to))
        source = source->producer->inputs[0];
    if (source->dtype == to) return source;
    NodeSpec spec = {.prim = PRIM_CAST, .inputs = &source, .input_count = 1, .dtype = to};
    spec_shape(&spec, x->rank, x->dims);
    spec_dtype(&spec, "to", to);
    if (is_small_float(to)) spec_int(&spec, "saturate", saturate);
    if (loose && (to == DT_F16 || to == DT_BF16)) spec_int(&spec, "loose", 1);
    return emit(l, &spec);
}

Value *cast_saturate(Lowering *l, Value *x, DType to, bool saturate) {
    return convert(l, x, to, saturate, l->restores != DT_NONE);
}

Value *cast(Lowering *l, Value *x, DType to) { return cast_saturate(l, x, to, true); }

Value *cast_as(Lowering *l, Value *x, const Node *cast) {
    return convert(l, x, attr_dtype(cast, "to", DT_NONE), attr_int(cast, "saturate", 1) != 0,
                   attr_int(cast, "loose", 0) != 0);
}

Value *cast_like(Lowering *l, Value *x, const Value *model) {
    return present(l, (Value *const *)&model, 1) ? cast(l, x, model->dtype) : NULL;
}

Value *bitcast(Lowering *l, Value *x, DType to) {
    if (!present(l, &x, 1)) return NULL;
    if (x->dtype == to) return x;
    if (dtype_size(x->dtype) != dtype_size(to) || dtype_file_bits(x->dtype) != dtype_file_bits(to) ||
        !prim_accepts(PRIM_BITCAST, x->dtype) || to == DT_STRING) {
        invalid(l, "the bits of %s cannot be read as %s", dtype_onnx_name(x->dtype), dtype_onnx_name(to));
        return NULL;
    }
    NodeSpec spec = {.prim = PRIM_BITCAST, .inputs = &x, .input_count = 1, .dtype = to};
    spec_shape(&spec, x->rank, x->dims);
    spec_dtype(&spec, "to", to);
    return emit(l, &spec);
}

/* --- generators ------------------------------------------------------------------------------------------------- */

Value *iota(Lowering *l, const Dim *const *shape, int rank, int axis, DType dtype) {
    if (l->error || !rank_is_supported(l, rank)) return NULL;
    NodeSpec spec = {.prim = PRIM_IOTA, .dtype = dtype};
    spec_shape(&spec, rank, shape);
    spec_dims(&spec, "shape", shape, rank);
    spec_int(&spec, "axis", axis);
    spec_dtype(&spec, "dtype", dtype);
    return emit(l, &spec);
}

/* --- reductions ------------------------------------------------------------------------------------------------- */

static Value *emit_reduce(Lowering *l, Prim prim, Value *x, const int *axes, int count, DType dtype, bool last) {
    int64_t list[MAX_RANK];
    NodeSpec spec = {.prim = prim, .inputs = &x, .input_count = 1, .dtype = dtype};
    spec_shape(&spec, x->rank, x->dims);
    for (int i = 0; i < count; i++) {
        list[i] = axes[i];
        spec.dims[axes[i]] = dim_const(l->dims, 1);
    }
    spec_ints(&spec, "axes", list, count);
    if (last) spec_int(&spec, "last", 1);
    return emit(l, &spec);
}

Value *reduce(Lowering *l, Prim prim, Value *x, const int *axes, int count, bool keepdims) {
    if (!present(l, &x, 1) || !accepts(l, prim, x)) return NULL;
    int kept[MAX_RANK], kept_count = 0; /* an axis of size 1 changes nothing */
    for (int i = 0; i < count; i++)
        if (!dim_equals(x->dims[axes[i]], 1)) kept[kept_count++] = axes[i];
    Value *result = kept_count ? emit_reduce(l, prim, x, kept, kept_count, x->dtype, false) : x;
    return keepdims || !result ? result : squeeze(l, result, axes, count);
}

Value *arg_reduce(Lowering *l, Prim prim, Value *x, int axis, bool keepdims, bool last) {
    if (!present(l, &x, 1) || !accepts(l, prim, x)) return NULL;
    Value *result = emit_reduce(l, prim, x, &axis, 1, DT_I64, last);
    return keepdims || !result ? result : squeeze(l, result, &axis, 1);
}
