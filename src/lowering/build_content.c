/* SPDX-License-Identifier: Apache-2.0 */
/* Integer data that only computes sizes, followed element by element as symbolic expressions: Shape, Gather, Concat,
 * Mul, ... never run. Sizes are taken as >= 0 where they are dims; ONNX's truncating division is only followed where it
 * equals the floor. */
#include "lowering/build_internal.h"

static int element_count(const Value *value) {
    int64_t count = 1;
    if (value->rank > 1 || (value->rank == 1 && !dim_is_const(value->dims[0], &count))) return -1;
    return count <= MAX_CONTENT ? (int)count : -1;
}

static const Dim *element(const Value *value, int index) {
    return value->content[element_count(value) == 1 ? 0 : index];
}

static bool all_have_content(const NodeSpec *spec, int from) {
    for (int i = from; i < spec->input_count; i++)
        if (!spec->inputs[i]->content || element_count(spec->inputs[i]) < 0) return false;
    return true;
}

static int result_count(const NodeSpec *spec) {
    int64_t count = 1;
    if (spec->rank > 1 || (spec->rank == 1 && !dim_is_const(spec->dims[0], &count))) return -1;
    return count <= MAX_CONTENT ? (int)count : -1;
}

static const Dim *divide_sizes(Lowering *l, const Dim *a, const Dim *b) {
    const Dim *quotient;
    if (dim_equals(b, 0)) return NULL;
    if (!dim_is_const(b, NULL) && dim_divides(l->dims, a, b, &quotient)) return quotient;
    return size_is_natural(l, a) && size_is_natural(l, b) ? dim_div(l->dims, a, b) : NULL;
}

static const Dim *modulo_sizes(Lowering *l, const Dim *a, const Dim *b) {
    return !dim_equals(b, 0) && size_is_natural(l, a) && size_is_natural(l, b) ? dim_mod(l->dims, a, b) : NULL;
}

static const Dim *multiply_sizes(Lowering *l, const Dim *a, const Dim *b) { return dim_mul(l->dims, a, b); }

static const Dim *binary_content(Lowering *l, Prim prim, const Dim *a, const Dim *b) {
    switch (prim) {
    case PRIM_ADD:
    case PRIM_REDUCE_SUM: return dim_add(l->dims, a, b);
    case PRIM_SUB: return dim_sub(l->dims, a, b);
    case PRIM_MUL:
    case PRIM_REDUCE_PROD: return multiply_sizes(l, a, b);
    case PRIM_DIV: return divide_sizes(l, a, b);
    case PRIM_MOD:
    case PRIM_FMOD: return modulo_sizes(l, a, b);
    case PRIM_MIN:
    case PRIM_REDUCE_MIN: return dim_min(l->dims, a, b);
    case PRIM_MAX:
    case PRIM_REDUCE_MAX: return dim_max(l->dims, a, b);
    default: return NULL;
    }
}

static const Dim *unary_content(Lowering *l, Prim prim, const Dim *a) {
    switch (prim) {
    case PRIM_NEG: return dim_sub(l->dims, dim_const(l->dims, 0), a);
    case PRIM_ABS: return size_is_natural(l, a) ? a : NULL;
    case PRIM_FLOOR:
    case PRIM_CEIL:
    case PRIM_ROUND:
    case PRIM_TRUNC:
    case PRIM_CAST: return a;
    default: return NULL;
    }
}

static bool elementwise_content(Lowering *l, const NodeSpec *spec, const Dim **content) {
    int count = result_count(spec);
    if (!all_have_content(spec, 0)) return false;
    for (int i = 0; i < count; i++) {
        const Dim *a = element(spec->inputs[0], i);
        content[i] = spec->input_count == 1 ? unary_content(l, spec->prim, a)
                                            : binary_content(l, spec->prim, a, element(spec->inputs[1], i));
        if (!content[i]) return false;
    }
    return true;
}

static bool where_content(const NodeSpec *spec, const Dim **content) {
    const Tensor *condition = spec->inputs[0]->constant;
    if (!condition || !all_have_content(spec, 1)) return false;
    for (int i = 0; i < result_count(spec); i++) {
        bool yes = ((const uint8_t *)condition->data)[tensor_count(condition) == 1 ? 0 : i];
        content[i] = element(spec->inputs[yes ? 1 : 2], i);
    }
    return true;
}

static bool copied_content(const NodeSpec *spec, const Dim **content) {
    if (!all_have_content(spec, 0)) return false;
    for (int i = 0; i < result_count(spec); i++) content[i] = element(spec->inputs[0], i);
    return true;
}

static bool concat_content(const NodeSpec *spec, const Dim **content) {
    if (!all_have_content(spec, 0)) return false;
    int filled = 0;
    for (int i = 0; i < spec->input_count; i++)
        for (int k = 0; k < element_count(spec->inputs[i]); k++) content[filled++] = spec->inputs[i]->content[k];
    return true;
}

static const Attr *spec_attr(const NodeSpec *spec, const char *name) {
    for (int i = 0; i < spec->attr_count; i++)
        if (strcmp(spec->attrs[i].name, name) == 0) return &spec->attrs[i];
    return NULL;
}

static bool slice_content(const NodeSpec *spec, const Dim **content) {
    int64_t start;
    if (!all_have_content(spec, 0) || !dim_is_const(spec_attr(spec, "start")->dims[0], &start)) return false;
    int64_t step = spec_attr(spec, "step")->ints[0];
    int count = result_count(spec), available = element_count(spec->inputs[0]);
    for (int i = 0; i < count; i++) {
        int64_t at = start + i * step;
        if (at < 0 || at >= available) return false;
        content[i] = spec->inputs[0]->content[at];
    }
    return true;
}

static bool gather_content(const NodeSpec *spec, const Dim **content) {
    if (!all_have_content(spec, 0) || spec->inputs[0]->rank != 1) return false;
    int available = element_count(spec->inputs[0]);
    for (int i = 0; i < result_count(spec); i++) {
        int64_t at;
        if (!dim_is_const(element(spec->inputs[1], i), &at) || at < -available || at >= available) return false;
        content[i] = spec->inputs[0]->content[at < 0 ? at + available : at];
    }
    return true;
}

static bool reduce_content(Lowering *l, const NodeSpec *spec, const Dim **content) {
    if (!all_have_content(spec, 0) || spec->inputs[0]->rank != 1) return false;
    int count = element_count(spec->inputs[0]);
    if (count == 0) return false;
    content[0] = spec->inputs[0]->content[0];
    for (int i = 1; i < count && content[0]; i++)
        content[0] = binary_content(l, spec->prim, content[0], spec->inputs[0]->content[i]);
    return content[0] != NULL;
}

bool infer_content(Lowering *l, const NodeSpec *spec, const Dim **content) {
    switch (spec->prim) {
    case PRIM_WHERE: return where_content(spec, content);
    case PRIM_RESHAPE:
    case PRIM_EXPAND: return copied_content(spec, content);
    case PRIM_CONCAT: return concat_content(spec, content);
    case PRIM_SLICE: return spec->rank == 1 && slice_content(spec, content);
    case PRIM_GATHER: return gather_content(spec, content);
    case PRIM_REDUCE_SUM:
    case PRIM_REDUCE_PROD:
    case PRIM_REDUCE_MAX:
    case PRIM_REDUCE_MIN: return reduce_content(l, spec, content);
    default: break;
    }
    PrimClass klass = prim_info(spec->prim)->klass;
    bool known = klass == PRIM_CLASS_UNARY || klass == PRIM_CLASS_BINARY || spec->prim == PRIM_CAST;
    return known && elementwise_content(l, spec, content);
}

/* The sign of a - b, where it is known: sizes are >= 0, so they exceed every negative number. */
static bool compare_sizes(Lowering *l, const Dim *a, const Dim *b, int *out_sign) {
    int64_t number;
    if (dim_is_const(dim_sub(l->dims, a, b), &number)) {
        *out_sign = (number > 0) - (number < 0);
        return true;
    }
    if (dim_is_const(b, &number) && number < 0 && size_is_natural(l, a)) {
        *out_sign = 1;
        return true;
    }
    if (dim_is_const(a, &number) && number < 0 && size_is_natural(l, b)) {
        *out_sign = -1;
        return true;
    }
    return false;
}

static bool holds(Prim prim, int sign) {
    switch (prim) {
    case PRIM_EQ: return sign == 0;
    case PRIM_NE: return sign != 0;
    case PRIM_LT: return sign < 0;
    case PRIM_LE: return sign <= 0;
    case PRIM_GT: return sign > 0;
    default: return sign >= 0;
    }
}

bool infer_comparison(Lowering *l, const NodeSpec *spec, bool *results) {
    int count = result_count(spec), sign;
    if (count < 0 || !all_have_content(spec, 0)) return false;
    for (int i = 0; i < count; i++) {
        if (!compare_sizes(l, element(spec->inputs[0], i), element(spec->inputs[1], i), &sign)) return false;
        results[i] = holds(spec->prim, sign);
    }
    return true;
}
