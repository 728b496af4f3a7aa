/* One function a primitive class: the result's type and dims, the simplifications that leave every bit as it is (or,
 * for powers and exact divisions, the more exact form), then emit(). */
#include "ops/build_internal.h"

#include <math.h>

static const Dim *one(Lowering *l) { return dim_const(l->dims, 1); }
static const Dim *zero(Lowering *l) { return dim_const(l->dims, 0); }

static bool same_dims(const Value *x, const Dim *const *dims, int rank) {
    if (x->rank != rank) return false;
    for (int i = 0; i < rank; i++)
        if (x->dims[i] != dims[i]) return false;
    return true;
}

static bool made_by(const Value *x, Prim prim) {
    return x->producer && x->producer->kind == NODE_PRIM && x->producer->prim == prim;
}

static bool accepts(Lowering *l, Prim prim, const Value *x) {
    if (!prim_accepts(prim, x->dtype))
        invalid(l, "%s does not work on %s (\"%s\")", prim_info(prim)->name, dtype_onnx_name(x->dtype), x->name);
    return !l->error;
}

/* --- elementwise ------------------------------------------------------------------------------------------------ */

/* The size of two broadcast against each other; NULL when they cannot be. */
static const Dim *broadcast_pair(Lowering *l, const Dim *a, const Dim *b) {
    if (a == b || dim_equals(b, 1)) return a;
    if (dim_equals(a, 1)) return b;
    bool a_known = dim_is_const(a, NULL), b_known = dim_is_const(b, NULL);
    if (a_known && b_known) return NULL;
    return a_known ? a : b_known ? b : dim_max(l->dims, a, b);
}

bool broadcast_dims(Lowering *l, Value *const *inputs, int count, const Dim **dims, int *out_rank) {
    int rank = 0;
    for (int i = 0; i < count; i++)
        if (inputs[i]->rank > rank) rank = inputs[i]->rank;
    for (int axis = 0; axis < rank; axis++) dims[axis] = one(l);
    for (int i = 0; i < count; i++) {
        int shift = rank - inputs[i]->rank;
        for (int axis = shift; axis < rank; axis++) {
            const Dim *size = broadcast_pair(l, dims[axis], inputs[i]->dims[axis - shift]);
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

/* An expand whose axes are all either kept or the constant 1 adds nothing where another input has the full shape. */
static bool is_static_expand(const Value *x) {
    if (!made_by(x, PRIM_EXPAND)) return false;
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
    if (rounds && (made_by(x, PRIM_FLOOR) || made_by(x, PRIM_CEIL) || made_by(x, PRIM_ROUND) || made_by(x, PRIM_TRUNC)))
        return x;
    if ((prim == PRIM_NEG || prim == PRIM_NOT) && made_by(x, prim)) return x->producer->inputs[0];
    if (prim == PRIM_ABS && (made_by(x, prim) || dtype_class(x->dtype) == DTYPE_UNSIGNED)) return x;
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

static Value *simplify_binary(Lowering *l, Prim prim, Value *a, Value *b, const NodeSpec *spec) {
    double number;
    Value *simpler = NULL;
    if (a == b && (prim == PRIM_MIN || prim == PRIM_MAX || prim == PRIM_AND || prim == PRIM_OR)) return a;
    if (is_splat(b, &number) && same_dims(a, spec->dims, spec->rank)) simpler = simplify_by_number(l, prim, a, number);
    if (!simpler && is_commutative(prim) && is_splat(a, &number) && same_dims(b, spec->dims, spec->rank))
        simpler = simplify_by_number(l, prim, b, number);
    return simpler;
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
    if (is_splat(inputs[0], &yes)) return expand(l, inputs[yes != 0 ? 1 : 2], spec.dims, spec.rank);
    if (inputs[1] == inputs[2] && same_dims(inputs[1], spec.dims, spec.rank)) return inputs[1];
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

Value *cast_saturate(Lowering *l, Value *x, DType to, bool saturate) {
    if (!present(l, &x, 1)) return NULL;
    if (x->dtype == to) return x;
    if (!accepts(l, PRIM_CAST, x)) return NULL;
    if (!prim_accepts(PRIM_CAST, to)) {
        invalid(l, "%s cannot be converted to %s", dtype_onnx_name(x->dtype), dtype_onnx_name(to));
        return NULL;
    }
    Value *source = x;
    while (made_by(source, PRIM_CAST) && step_is_idle(source->producer->inputs[0]->dtype, source->dtype, to))
        source = source->producer->inputs[0];
    if (source->dtype == to) return source;
    NodeSpec spec = {.prim = PRIM_CAST, .inputs = &source, .input_count = 1, .dtype = to};
    spec_shape(&spec, x->rank, x->dims);
    spec_dtype(&spec, "to", to);
    if (is_small_float(to)) spec_int(&spec, "saturate", saturate);
    return emit(l, &spec);
}

Value *cast(Lowering *l, Value *x, DType to) { return cast_saturate(l, x, to, true); }

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

static bool rank_fits(Lowering *l, int rank) {
    if (rank > MAX_RANK) unsupported(l, "%d axes are more than the %d supported", rank, MAX_RANK);
    return !l->error;
}

Value *iota(Lowering *l, const Dim *const *shape, int rank, int axis, DType dtype) {
    if (l->error || !rank_fits(l, rank)) return NULL;
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
        spec.dims[axes[i]] = one(l);
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

/* --- movement --------------------------------------------------------------------------------------------------- */

static Value *movement(Lowering *l, NodeSpec *spec) { return rank_fits(l, spec->rank) ? emit(l, spec) : NULL; }

Value *reshape(Lowering *l, Value *x, const Dim *const *shape, int rank) {
    if (!present(l, &x, 1) || !rank_fits(l, rank)) return NULL;
    if (same_dims(x, shape, rank)) return x;
    int64_t before, after;
    if (dim_is_const(value_elements(l->graph, x), &before) && dim_is_const(dim_product(l->dims, shape, rank), &after) &&
        before != after) {
        const char *from = shape_text(l, x->dims, x->rank);
        invalid(l, "shape %s cannot become %s: %lld elements are not %lld", from, shape_text(l, shape, rank),
                (long long)before, (long long)after);
        return NULL;
    }
    while (made_by(x, PRIM_RESHAPE) && !x->content) x = x->producer->inputs[0];
    if (same_dims(x, shape, rank)) return x;
    NodeSpec spec = {.prim = PRIM_RESHAPE, .inputs = &x, .input_count = 1, .dtype = x->dtype};
    spec_shape(&spec, rank, shape);
    spec_dims(&spec, "shape", shape, rank);
    return movement(l, &spec);
}

/* Whether the permutation keeps the order of all axes that are not of size 1: then it is a reshape. */
static bool moves_ones_only(const Value *x, const int64_t *perm) {
    int last = -1;
    for (int i = 0; i < x->rank; i++) {
        if (dim_equals(x->dims[perm[i]], 1)) continue;
        if (perm[i] < last) return false;
        last = (int)perm[i];
    }
    return true;
}

Value *permute(Lowering *l, Value *x, const int *perm) {
    if (!present(l, &x, 1)) return NULL;
    int64_t order[MAX_RANK];
    NodeSpec spec = {.prim = PRIM_PERMUTE, .input_count = 1, .dtype = x->dtype, .rank = x->rank};
    for (int i = 0; i < x->rank; i++) {
        order[i] = perm[i];
        spec.dims[i] = x->dims[perm[i]];
    }
    if (moves_ones_only(x, order)) return reshape(l, x, spec.dims, spec.rank);
    if (made_by(x, PRIM_PERMUTE)) {
        int inner_count;
        const int64_t *inner = attr_ints(x->producer, "perm", &inner_count);
        x = x->producer->inputs[0];
        for (int i = 0; i < spec.rank; i++) order[i] = inner[order[i]];
        if (moves_ones_only(x, order)) return reshape(l, x, spec.dims, spec.rank);
    }
    double number;
    if (is_splat(x, &number)) return reshape(l, x, spec.dims, spec.rank);
    spec.inputs = &x;
    spec_ints(&spec, "perm", order, spec.rank);
    return movement(l, &spec);
}

Value *swap_last(Lowering *l, Value *x) {
    int perm[MAX_RANK];
    if (!present(l, &x, 1)) return NULL;
    if (x->rank < 2) {
        invalid(l, "\"%s\" needs two axes at least, it has %d", x->name, x->rank);
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) perm[i] = i;
    perm[x->rank - 1] = x->rank - 2;
    perm[x->rank - 2] = x->rank - 1;
    return permute(l, x, perm);
}

static Value *add_leading_axes(Lowering *l, Value *x, int rank) {
    const Dim *dims[MAX_RANK];
    for (int i = 0; i < rank; i++) dims[i] = i < rank - x->rank ? one(l) : x->dims[i - (rank - x->rank)];
    return reshape(l, x, dims, rank);
}

Value *expand(Lowering *l, Value *x, const Dim *const *shape, int rank) {
    if (!present(l, &x, 1) || !rank_fits(l, rank)) return NULL;
    if (rank < x->rank) {
        invalid(l, "%d axes cannot be broadcast to %d", x->rank, rank);
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        const Dim *from = x->dims[i], *to = shape[i + rank - x->rank];
        if (from == to || dim_equals(from, 1) || !dim_is_const(from, NULL) || !dim_is_const(to, NULL)) continue;
        const char *text = shape_text(l, x->dims, x->rank);
        invalid(l, "shape %s cannot be broadcast to %s", text, shape_text(l, shape, rank));
        return NULL;
    }
    if (x->rank < rank) x = add_leading_axes(l, x, rank);
    if (!x || same_dims(x, shape, rank)) return x;
    if (is_static_expand(x)) x = x->producer->inputs[0];
    NodeSpec spec = {.prim = PRIM_EXPAND, .inputs = &x, .input_count = 1, .dtype = x->dtype};
    spec_shape(&spec, rank, shape);
    spec_dims(&spec, "shape", shape, rank);
    return movement(l, &spec);
}

Value *unsqueeze(Lowering *l, Value *x, const int *axes, int count) {
    if (!present(l, &x, 1) || !rank_fits(l, x->rank + count)) return NULL;
    const Dim *dims[MAX_RANK];
    int rank = x->rank + count, next = 0, from = 0;
    for (int i = 0; i < rank; i++) {
        bool added = next < count && axes[next] == i;
        if (!added && from == x->rank) {
            invalid(l, "axes to add are out of range for %d axes", rank);
            return NULL;
        }
        dims[i] = added ? one(l) : x->dims[from++];
        next += added;
    }
    return reshape(l, x, dims, rank);
}

Value *squeeze(Lowering *l, Value *x, const int *axes, int count) {
    if (!present(l, &x, 1)) return NULL;
    const Dim *dims[MAX_RANK];
    int rank = 0, next = 0;
    for (int i = 0; i < x->rank; i++) {
        if (next < count && axes[next] == i) {
            next++;
            if (!dim_is_const(x->dims[i], NULL) || dim_equals(x->dims[i], 1)) continue;
            invalid(l, "axis %d of %s is not of size 1", i, shape_text(l, x->dims, x->rank));
            return NULL;
        }
        dims[rank++] = x->dims[i];
    }
    return reshape(l, x, dims, rank);
}

Value *flatten_to(Lowering *l, Value *x, int from, int to) {
    if (!present(l, &x, 1)) return NULL;
    const Dim *dims[MAX_RANK + 1];
    int rank = 0;
    for (int i = 0; i < from; i++) dims[rank++] = x->dims[i];
    dims[rank++] = value_elements_between(l->graph, x, from, to);
    for (int i = to; i < x->rank; i++) dims[rank++] = x->dims[i];
    return reshape(l, x, dims, rank);
}

static bool slice_is_in_range(Lowering *l, const Value *x, int axis, const Dim *start, const Dim *size, int64_t step) {
    int64_t length, first, count;
    if (!dim_is_const(x->dims[axis], &length) || !dim_is_const(start, &first) || !dim_is_const(size, &count))
        return true;
    int64_t last, distance;
    bool fits = count == 0 || (count > 0 && !__builtin_mul_overflow(count - 1, step, &distance) &&
                               !__builtin_add_overflow(first, distance, &last) && first >= 0 && first < length &&
                               last >= 0 && last < length);
    if (!fits)
        invalid(l, "%lld elements from %lld in steps of %lld are not in axis %d of %s", (long long)count,
                (long long)first, (long long)step, axis, shape_text(l, x->dims, x->rank));
    return fits;
}

Value *slice(Lowering *l, Value *x, const Dim *const *start, const Dim *const *size, const int64_t *step) {
    if (!present(l, &x, 1)) return NULL;
    int64_t steps[MAX_RANK];
    bool whole = true;
    for (int i = 0; i < x->rank; i++) {
        steps[i] = step ? step[i] : 1;
        if (!slice_is_in_range(l, x, i, start[i], size[i], steps[i])) return NULL;
        whole &= size[i] == x->dims[i] && dim_equals(start[i], 0) && (steps[i] == 1 || dim_equals(size[i], 1));
    }
    if (whole) return x;
    NodeSpec spec = {.prim = PRIM_SLICE, .inputs = &x, .input_count = 1, .dtype = x->dtype};
    spec_shape(&spec, x->rank, size);
    spec_dims(&spec, "shape", size, x->rank);
    spec_dims(&spec, "start", start, x->rank);
    spec_ints(&spec, "step", steps, x->rank);
    return movement(l, &spec);
}

Value *slice_axis(Lowering *l, Value *x, int axis, const Dim *start, const Dim *size) {
    if (!present(l, &x, 1)) return NULL;
    const Dim *starts[MAX_RANK], *sizes[MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        starts[i] = i == axis ? start : zero(l);
        sizes[i] = i == axis ? size : x->dims[i];
    }
    return slice(l, x, starts, sizes, NULL);
}

Value *pad(Lowering *l, Value *x, const Dim *const *before, const Dim *const *after, Value *fill) {
    Value *inputs[] = {x, fill};
    if (!present(l, inputs, 2)) return NULL;
    if (fill->dtype != x->dtype) {
        invalid(l, "the fill value is %s, the data %s", dtype_onnx_name(fill->dtype), dtype_onnx_name(x->dtype));
        return NULL;
    }
    inputs[1] = fill = reshape(l, fill, NULL, 0);
    NodeSpec spec = {.prim = PRIM_PAD, .inputs = inputs, .input_count = 2, .dtype = x->dtype, .rank = x->rank};
    bool none = true;
    for (int i = 0; i < x->rank; i++) {
        spec.dims[i] = dim_add(l->dims, dim_add(l->dims, before[i], x->dims[i]), after[i]);
        none &= dim_equals(before[i], 0) && dim_equals(after[i], 0);
    }
    if (none || !fill) return fill ? x : NULL;
    spec_dims(&spec, "before", before, x->rank);
    spec_dims(&spec, "after", after, x->rank);
    return movement(l, &spec);
}

/* The dims that all parts share, a known size before a symbolic one; those of `axis` are added up. */
static bool concat_dims(Lowering *l, Value *const *parts, int count, int axis, const Dim **dims) {
    const Value *first = parts[0];
    for (int i = 0; i < first->rank; i++) dims[i] = first->dims[i];
    for (int p = 1; p < count; p++) {
        bool fits = parts[p]->rank == first->rank && parts[p]->dtype == first->dtype;
        for (int i = 0; fits && i < first->rank; i++) {
            const Dim *size = parts[p]->dims[i];
            if (i == axis)
                dims[i] = dim_add(l->dims, dims[i], size);
            else if (!dim_is_const(dims[i], NULL) && dim_is_const(size, NULL))
                dims[i] = size;
            else
                fits = dims[i] == size || !dim_is_const(size, NULL);
        }
        if (fits) continue;
        const char *text = shape_text(l, first->dims, first->rank);
        invalid(l, "%s%s and %s%s cannot be joined along axis %d", dtype_name(first->dtype), text,
                dtype_name(parts[p]->dtype), shape_text(l, parts[p]->dims, parts[p]->rank), axis);
        return false;
    }
    return true;
}

Value *concat(Lowering *l, Value *const *parts, int count, int axis) {
    if (count < 1 && !l->error) invalid(l, "nothing to join");
    if (l->error || !present(l, parts, count)) return NULL;
    NodeSpec spec = {.prim = PRIM_CONCAT, .dtype = parts[0]->dtype, .rank = parts[0]->rank};
    if (axis < 0 || axis >= spec.rank) {
        invalid(l, "axis %d is out of range for %d axes", axis, spec.rank);
        return NULL;
    }
    if (!concat_dims(l, parts, count, axis, spec.dims)) return NULL;
    Value **kept = ARENA_ARRAY(l->arena, Value *, count);
    int filled = 0;
    for (int i = 0; i < count; i++) {
        if (dim_equals(parts[i]->dims[axis], 0) && (filled || i + 1 < count)) continue; /* adds nothing */
        const Dim *dims[MAX_RANK]; /* sizes that must agree are checked at run time where they are not known to */
        for (int k = 0; k < spec.rank; k++) dims[k] = k == axis ? parts[i]->dims[k] : spec.dims[k];
        kept[filled++] = align_to(l, parts[i], dims, spec.rank);
    }
    if (l->error) return NULL;
    if (filled == 1) return kept[0];
    spec.inputs = kept;
    spec.input_count = filled;
    spec_int(&spec, "axis", axis);
    return emit(l, &spec);
}

/* --- indexing ----------------------------------------------------------------------------------------------------- */

static bool indices_fit(Lowering *l, const Value *indices) {
    if (indices->dtype != DT_I64 && indices->dtype != DT_I32)
        invalid(l, "indices must be int32 or int64, \"%s\" is %s", indices->name, dtype_onnx_name(indices->dtype));
    return !l->error;
}

static bool axis_fits(Lowering *l, int axis, int rank) {
    if (axis < 0 || axis >= rank) invalid(l, "axis %d is out of range for %d axes", axis, rank);
    return !l->error;
}

/* One known index of an axis of known size is a slice. */
static Value *gather_one(Lowering *l, Value *data, const Value *indices, int axis, const NodeSpec *spec) {
    int64_t length, at;
    if (!indices->content || indices->rank > 1 || (indices->rank == 1 && !dim_equals(indices->dims[0], 1)) ||
        !dim_is_const(indices->content[0], &at) || !dim_is_const(data->dims[axis], &length) || at < -length ||
        at >= length)
        return NULL;
    Value *part = slice_axis(l, data, axis, dim_const(l->dims, at < 0 ? at + length : at), one(l));
    return part ? reshape(l, part, spec->dims, spec->rank) : NULL;
}

Value *gather(Lowering *l, Value *data, Value *indices, int axis) {
    Value *inputs[] = {data, indices};
    if (!present(l, inputs, 2) || !indices_fit(l, indices) || !axis_fits(l, axis, data->rank) ||
        !rank_fits(l, data->rank + indices->rank - 1))
        return NULL;
    NodeSpec spec = {.prim = PRIM_GATHER, .inputs = inputs, .input_count = 2, .dtype = data->dtype};
    for (int i = 0; i < axis; i++) spec.dims[spec.rank++] = data->dims[i];
    for (int i = 0; i < indices->rank; i++) spec.dims[spec.rank++] = indices->dims[i];
    for (int i = axis + 1; i < data->rank; i++) spec.dims[spec.rank++] = data->dims[i];
    Value *part = gather_one(l, data, indices, axis, &spec);
    if (part || l->error) return part;
    spec_int(&spec, "axis", axis);
    return emit(l, &spec);
}

Value *gather_elements(Lowering *l, Value *data, Value *indices, int axis) {
    Value *inputs[] = {data, indices};
    if (!present(l, inputs, 2) || !indices_fit(l, indices) || !axis_fits(l, axis, data->rank)) return NULL;
    if (indices->rank != data->rank) {
        invalid(l, "data has %d axes, the indices %d", data->rank, indices->rank);
        return NULL;
    }
    NodeSpec spec = {.prim = PRIM_GATHER_ELEMENTS, .inputs = inputs, .input_count = 2, .dtype = data->dtype};
    spec_shape(&spec, indices->rank, indices->dims);
    spec_int(&spec, "axis", axis);
    return emit(l, &spec);
}

static Value *scatter(Lowering *l, Prim prim, Value *const *inputs, int axis, const char *reduction) {
    if (!present(l, inputs, 3) || !indices_fit(l, inputs[1])) return NULL;
    if (inputs[0]->dtype != inputs[2]->dtype) {
        invalid(l, "data is %s, the updates are %s", dtype_onnx_name(inputs[0]->dtype),
                dtype_onnx_name(inputs[2]->dtype));
        return NULL;
    }
    NodeSpec spec = {.prim = prim, .inputs = inputs, .input_count = 3, .dtype = inputs[0]->dtype};
    spec_shape(&spec, inputs[0]->rank, inputs[0]->dims);
    if (prim == PRIM_SCATTER_ELEMENTS) spec_int(&spec, "axis", axis);
    spec_string(&spec, "reduction", reduction ? reduction : "none");
    return emit(l, &spec);
}

Value *scatter_elements(Lowering *l, Value *data, Value *indices, Value *updates, int axis, const char *reduction) {
    Value *inputs[] = {data, indices, updates};
    if (!present(l, inputs, 3) || !axis_fits(l, axis, data->rank)) return NULL;
    if (indices->rank != data->rank || updates->rank != data->rank) {
        invalid(l, "data, indices and updates have %d, %d and %d axes", data->rank, indices->rank, updates->rank);
        return NULL;
    }
    return scatter(l, PRIM_SCATTER_ELEMENTS, inputs, axis, reduction);
}

Value *scatter_nd(Lowering *l, Value *data, Value *indices, Value *updates, const char *reduction) {
    Value *inputs[] = {data, indices, updates};
    if (!present(l, inputs, 3)) return NULL;
    int64_t depth;
    if (indices->rank < 1 || !dim_is_const(indices->dims[indices->rank - 1], &depth)) {
        unsupported(l, "the length of an index of \"%s\" is not known", indices->name);
        return NULL;
    }
    if (depth > data->rank || updates->rank != indices->rank - 1 + data->rank - (int)depth) {
        invalid(l, "indices %s do not fit data %s and updates of %d axes", shape_text(l, indices->dims, indices->rank),
                shape_text(l, data->dims, data->rank), updates->rank);
        return NULL;
    }
    return scatter(l, PRIM_SCATTER_ND, inputs, 0, reduction);
}
