/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of operators from version to version: attributes that became inputs, axes that may count from the back,
 * meanings that moved. What only gained types or attributes with defaults needs no row. */
#include "optimize/convert.h"

#include <math.h>

/* --- axes and other integers: attributes, then inputs --- */

static const char *axes_to_input(Convert *c, Node *node) {
    convert_attr_to_input(c, node, "axes", 1);
    return NULL;
}

static const char *axes_to_attr(Convert *c, Node *node) { return convert_input_to_attr(c, node, 1, "axes"); }

/* Of a reduction without axes: over all of them, or none at all. */
static const char *reduced_axes_to_attr(Convert *c, Node *node) {
    const Tensor *axes = convert_constant(c, node_in(node, 1));
    bool none = !node_in(node, 1) || (axes && !tensor_count(axes));
    bool nothing = attr_int(node, "noop_with_empty_axes", 0) != 0;
    convert_drop_attr(node, "noop_with_empty_axes");
    if (!none) return axes_to_attr(c, node);
    convert_drop_input(node, 1);
    if (!nothing) return NULL;
    /* No axes: what the operator does with one element at a time. */
    const char *op = node->op;
    Value *x = node_in(node, 0);
    if (strcmp(op, "ReduceL1") == 0 || strcmp(op, "ReduceL2") == 0)
        convert_become(node, "Abs", 13, x, NULL, NULL);
    else if (strcmp(op, "ReduceSumSquare") == 0)
        convert_become(node, "Mul", 13, x, x, NULL);
    else if (strcmp(op, "ReduceLogSum") == 0)
        convert_become(node, "Log", 13, x, NULL, NULL);
    else
        convert_become(node, "Identity", 13, x, NULL, NULL);
    return NULL;
}

static const char *split_to_input(Convert *c, Node *node) {
    convert_attr_to_input(c, node, "split", 1);
    return NULL;
}

static const char *split_to_attr(Convert *c, Node *node) { return convert_input_to_attr(c, node, 1, "split"); }

static const char *split_told(Convert *c, Node *node) {
    (void)c;
    if (!node_in(node, 1)) node_set_int(node, "num_outputs", node->output_count);
    return NULL;
}

/* Into equal parts, the last one smaller: older versions know but equal ones. */
static const char *split_in_parts(Convert *c, Node *node) {
    int64_t axis = attr_int(node, "axis", 0), size, parts = attr_int(node, "num_outputs", 0), sizes[64];
    convert_drop_attr(node, "num_outputs");
    if (node_in(node, 1) || !parts) return NULL;
    if (!convert_axis(c, node_in(node, 0), &axis) || !convert_size(c, node_in(node, 0), (int)axis, &size))
        return "the size that it splits is not known";
    if (size % parts == 0) return NULL;
    if (parts > 64) return "it splits in more than 64 unequal parts";
    int64_t part = (size + parts - 1) / parts;
    for (int64_t i = 0, left = size; i < parts; i++, left -= sizes[i - 1]) sizes[i] = left < part ? left : part;
    node_put_input(node, 1, convert_ints_value(c, node, sizes, (int)parts));
    return NULL;
}

static const char *slice_to_inputs(Convert *c, Node *node) {
    convert_attr_to_input(c, node, "starts", 1);
    convert_attr_to_input(c, node, "ends", 2);
    convert_attr_to_input(c, node, "axes", 3);
    return NULL;
}

static const char *slice_to_attrs(Convert *c, Node *node) {
    int64_t steps[64];
    int count = 0;
    if (node_in(node, 4) && !convert_ints(c, node_in(node, 4), steps, &count)) return "its steps are computed";
    for (int i = 0; i < count; i++)
        if (steps[i] != 1) return "it has steps, which older versions have not";
    convert_drop_input(node, 4);
    const char *reason = convert_input_to_attr(c, node, 3, "axes");
    if (!reason) reason = convert_input_to_attr(c, node, 2, "ends");
    return reason ? reason : convert_input_to_attr(c, node, 1, "starts");
}

static const char *k_to_input(Convert *c, Node *node) {
    node_put_input(node, 1, convert_int_value(c, node, attr_int(node, "k", 0)));
    convert_drop_attr(node, "k");
    return NULL;
}

static const char *k_to_attr(Convert *c, Node *node) {
    double k;
    if (!convert_number(c, node_in(node, 1), &k)) return "k is computed, and an attribute in older versions";
    node_set_int(node, "k", (int64_t)k);
    convert_drop_input(node, 1);
    return NULL;
}

/* --- numbers: attributes, then inputs --- */

static bool fits_float(double number) { return isnan(number) || (double)(float)number == number; }

static const char *clip_to_inputs(Convert *c, Node *node) {
    static const char *const names[] = {"min", "max"};
    DType dtype = convert_type(c, node_in(node, 0)).dtype;
    for (int i = 0; i < 2; i++) {
        const Attr *attr = node_attr(node, names[i]);
        if (!attr || attr->kind != ATTR_FLOAT) continue;
        if (dtype == DT_NONE) return "the type of its input is not known";
        node_put_input(node, i + 1, convert_number_value(c, node, dtype, attr->f));
    }
    convert_drop_attr(node, "min");
    convert_drop_attr(node, "max");
    return NULL;
}

/* Bounds that are computed: Min(Max(x, min), max). */
static void clip_by_comparison(Convert *c, Node *node) {
    enum { ANY_SHAPES = 8, ANY_TYPES = 12 };
    Value *x = node_in(node, 0), *min = node_in(node, 1), *max = node_in(node, 2);
    int form = dtype_is_float(convert_type(c, x).dtype) ? ANY_SHAPES : ANY_TYPES;
    if (min && max) x = convert_add(c, node, "Max", form, x, min, NULL);
    convert_become(node, max ? "Min" : "Max", form, x, max ? max : min, NULL);
}

static const char *clip_to_attrs(Convert *c, Node *node) {
    static const char *const names[] = {"min", "max"};
    double bounds[2];
    for (int i = 0; i < 2; i++) {
        if (!node_in(node, i + 1)) continue;
        if (convert_number(c, node_in(node, i + 1), &bounds[i]) && fits_float(bounds[i])) continue;
        clip_by_comparison(c, node);
        return NULL;
    }
    for (int i = 0; i < 2; i++)
        if (node_in(node, i + 1)) node_set_float(node, names[i], bounds[i]);
    convert_drop_input(node, 2);
    convert_drop_input(node, 1);
    return NULL;
}

/* Clip of integers before they were allowed. */
static const char *clip_types(Convert *c, Node *node) {
    if (dtype_is_integer(convert_type(c, node_in(node, 0)).dtype) && (node_in(node, 1) || node_in(node, 2)))
        clip_by_comparison(c, node);
    return NULL;
}

static const char *dropout_to_inputs(Convert *c, Node *node) {
    const Attr *ratio = node_attr(node, "ratio");
    if (ratio && ratio->kind == ATTR_FLOAT) node_put_input(node, 1, convert_number_value(c, node, DT_F32, ratio->f));
    convert_drop_attr(node, "ratio");
    return NULL;
}

static const char *dropout_to_attrs(Convert *c, Node *node) {
    double training = 0, ratio;
    if (node_in(node, 2) && (!convert_number(c, node_in(node, 2), &training) || training != 0))
        return "it draws random numbers, as it may be in training mode";
    convert_drop_input(node, 2);
    if (convert_number(c, node_in(node, 1), &ratio)) node_set_float(node, "ratio", ratio);
    convert_drop_input(node, 1);
    convert_drop_attr(node, "seed"); /* nothing is drawn */
    return NULL;
}

static const char *dropout_mask(Convert *c, Node *node) {
    (void)c;
    return convert_is_used(node, 1) ? "its mask is of another type in the other version" : NULL;
}

/* --- axes that count from the back --- */

/* They may do so from version 11 on. The axes are those of the first input, or of the result. */
static const char *count_from_front(Convert *c, Node *node, const Value *of) {
    const char *const unknown = "the rank that its negative axis counts from is not known";
    int count;
    const int64_t *axes = attr_ints(node, "axes", &count);
    const Attr *axis = node_attr(node, "axis");
    if (axis && axis->kind == ATTR_INT) {
        int64_t number = axis->i;
        if (!convert_axis(c, of, &number)) return unknown;
        node_set_int(node, "axis", number);
    }
    if (!axes) return NULL;
    int64_t *fixed = ARENA_ARRAY(c->arena, int64_t, count);
    for (int i = 0; i < count; i++) {
        fixed[i] = axes[i];
        if (!convert_axis(c, of, &fixed[i])) return unknown;
    }
    node_set_ints(node, "axes", fixed, count);
    return NULL;
}

static const char *plain_axes(Convert *c, Node *node) { return count_from_front(c, node, node_in(node, 0)); }

static const char *plain_result_axes(Convert *c, Node *node) { return count_from_front(c, node, node->outputs[0]); }

static const char *plain_concat_axis(Convert *c, Node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (convert_rank(c, node_in(node, i)) >= 0) return count_from_front(c, node, node_in(node, i));
    return plain_result_axes(c, node);
}

static const char *plain_slice_axes(Convert *c, Node *node) {
    int64_t axes[64];
    int count;
    if (!node_in(node, 3) || !convert_ints(c, node_in(node, 3), axes, &count)) return NULL;
    bool negative = false;
    for (int i = 0; i < count; i++) {
        negative |= axes[i] < 0;
        if (!convert_axis(c, node_in(node, 0), &axes[i]))
            return "the rank that its negative axis counts from is not known";
    }
    if (negative) node_put_input(node, 3, convert_ints_value(c, node, axes, count));
    return NULL;
}

/* Indices that are known are counted from the front; computed ones are taken to be so already. */
static const char *plain_indices(Convert *c, Node *node) {
    const Tensor *indices = convert_constant(c, node_in(node, 1));
    int64_t axis = attr_int(node, "axis", 0), size;
    if (!indices || !dtype_is_integer(indices->dtype)) return NULL;
    Tensor *plain = tensor_new(c->arena, indices->dtype, indices->rank, indices->dims);
    bool negative = false;
    for (int64_t i = 0; i < tensor_count(indices); i++) {
        int64_t index = dtype_load_int(indices->dtype, indices->data, i);
        if (index < 0) {
            negative = true;
            if (!convert_axis(c, node_in(node, 0), &axis) || !convert_size(c, node_in(node, 0), (int)axis, &size))
                return "the size that its negative index counts from is not known";
            index += size;
        }
        dtype_store_int(plain->dtype, plain->data, i, index);
    }
    if (negative) node_put_input(node, 1, graph_add_constant(node->graph, "indices", plain));
    return NULL;
}

/* --- Softmax, LogSoftmax, Hardmax: over all axes from `axis` on, since 13 along the one axis --- */

/* Whether all axes behind this one are of size 1. */
static bool is_last(const Convert *c, const Value *x, int64_t axis) {
    int rank = convert_rank(c, x);
    for (int64_t i = axis + 1, size; i < rank; i++)
        if (!convert_size(c, x, (int)i, &size) || size != 1) return false;
    return rank >= 0;
}

static Value *shape_of(Convert *c, Node *at, Value *x) {
    Value *shape = convert_add(c, at, "Shape", 13, x, NULL, NULL);
    return convert_typed(c, shape, DT_I64, 1);
}

static const char *softmax_along(Convert *c, Node *node) {
    Value *x = node_in(node, 0);
    int64_t axis = attr_int(node, "axis", 1);
    if (!convert_axis(c, x, &axis)) return "the rank of its input is not known";
    node_set_int(node, "axis", axis);
    if (is_last(c, x, axis)) return NULL;
    int64_t rows = axis; /* Flatten gives two axes */
    Value *flat = convert_add(c, node, "Flatten", 9, x, NULL, NULL);
    node_set_int(flat->producer, "axis", rows);
    convert_typed(c, flat, convert_type(c, x).dtype, 2);
    Value *soft = convert_add(c, node, node->op, 13, flat, NULL, NULL);
    node_set_int(soft->producer, "axis", 1);
    convert_become(node, "Reshape", 13, soft, shape_of(c, node, x), NULL);
    return NULL;
}

static const char *softmax_from(Convert *c, Node *node) {
    Value *x = node_in(node, 0);
    int64_t axis = attr_int(node, "axis", -1), perm[MAX_RANK];
    int rank = convert_rank(c, x);
    if (!convert_axis(c, x, &axis)) return "the rank of its input is not known";
    node_set_int(node, "axis", axis);
    if (is_last(c, x, axis)) return NULL;
    if (rank < 0 || axis >= rank) return "the rank of its input is not known";
    for (int i = 0; i < rank; i++) perm[i] = i == axis ? rank - 1 : i == rank - 1 ? axis : i;
    Value *soft = convert_add(c, node, node->op, 11, convert_transpose(c, node, x, perm, rank), NULL, NULL);
    node_set_int(soft->producer, "axis", rank - 1);
    convert_become(node, "Transpose", 1, soft, NULL, NULL);
    node_set_ints(node, "perm", perm, rank);
    return NULL;
}

/* --- normalisation, recurrence --- */

static const char *one_output(Convert *c, Node *node) {
    (void)c;
    if (attr_int(node, "training_mode", 0)) return "it is in training mode";
    for (int i = 1; i < node->output_count; i++)
        if (convert_is_used(node, i)) return "its other outputs are of another kind in the other version";
    node->output_count = 1;
    return NULL;
}

/* layout 1 puts the batch first: transposed before and after. */
static const char *layout_by_transposes(Convert *c, Node *node) {
    static const int64_t all[] = {2, 0, 1, 3}, last[] = {1, 0, 2};
    bool batch_first = attr_int(node, "layout", 0) == 1;
    convert_drop_attr(node, "layout");
    if (!batch_first) return NULL;
    Node *copy = convert_copy(c, node);
    Node *at = copy;
    static const int inputs[] = {0, 5, 6};
    for (int i = 0; i < 3; i++) {
        Value *value = node_in(copy, inputs[i]);
        if (value) node_set_input(copy, inputs[i], convert_transpose(c, at, value, last, 3));
    }
    for (int i = 0; i < copy->output_count; i++)
        if (copy->outputs[i]) {
            Value *result = convert_transpose(c, node, copy->outputs[i], i ? last : all, i ? 3 : 4);
            convert_give(c, node, i, result);
        }
    c->gone = true;
    return NULL;
}

/* --- products, sums --- */

static const char *gemm_summand(Convert *c, Node *node) {
    DType dtype = convert_type(c, node_in(node, 0)).dtype;
    if (node_in(node, 2)) return NULL;
    if (dtype == DT_NONE) return "the type of its input is not known";
    Tensor *zero = tensor_new(c->arena, dtype, 1, (const int64_t[]){1});
    node_put_input(node, 2, graph_add_constant(node->graph, "zero", zero));
    return NULL;
}

static bool same_sizes(const Convert *c, const Value *a, const Value *b) {
    int rank = convert_rank(c, a);
    if (rank < 0 || rank != convert_rank(c, b)) return false;
    const Value *x = fact_of(c->rewrite, a), *y = fact_of(c->rewrite, b);
    if (x && y) return value_same_shape(x, y);
    for (int64_t i = 0, m, n; i < rank; i++)
        if (!convert_size(c, a, (int)i, &m) || !convert_size(c, b, (int)i, &n) || m != n) return false;
    return true;
}

/* Before 8, all inputs are of one shape. */
static const char *sum_of_equals(Convert *c, Node *node) {
    bool mean = strcmp(node->op, "Mean") == 0, equal = true;
    int count = node->input_count;
    Value *sum = node_in(node, 0);
    for (int i = 1; i < count; i++) equal &= same_sizes(c, sum, node_in(node, i));
    if (equal) return NULL;
    if (!mean && strcmp(node->op, "Sum") != 0) return "its inputs are broadcast";
    for (int i = 1; i < count - !mean; i++) sum = convert_add(c, node, "Add", 7, sum, node_in(node, i), NULL);
    if (mean)
        convert_become(node, "Div", 7, sum, convert_number_value(c, node, convert_type(c, sum).dtype, count), NULL);
    else
        convert_become(node, "Add", 7, sum, node_in(node, count - 1), NULL);
    return NULL;
}

/* Before 12, the exponent is of the base's type. */
static const char *exponent_of_type(Convert *c, Node *node) {
    DType dtype = convert_type(c, node_in(node, 0)).dtype, other = convert_type(c, node_in(node, 1)).dtype;
    const Tensor *exponent = convert_constant(c, node_in(node, 1));
    if (dtype == other || dtype == DT_NONE || other == DT_NONE) return NULL;
    if (!exponent) return "its exponent is computed, in another type than its base";
    Tensor *same = tensor_new(c->arena, dtype, exponent->rank, exponent->dims);
    for (int64_t i = 0; i < tensor_count(exponent); i++) {
        double number = dtype_load_double(other, exponent->data, i);
        dtype_store_double(dtype, same->data, i, number);
        if (dtype_load_double(dtype, same->data, i) != number)
            return "its exponent cannot be written in its base's type";
    }
    node_set_input(node, 1, graph_add_constant(node->graph, "exponent", same));
    return NULL;
}

/* Modulus of floats by the floor, from 28 on. */
static const char *integer_modulus(Convert *c, Node *node) {
    bool floats = !dtype_is_integer(convert_type(c, node_in(node, 0)).dtype);
    return floats && !attr_int(node, "fmod", 0) ? "of floats it is the remainder of truncation alone in older versions"
                                                : NULL;
}

/* A wider type for what an older version does not take, and back: exact, as these choose among their inputs' values or
 * ask about them. */
static const char *through(Convert *c, Node *node, DType from, DType via) {
    Value *x = node_in(node, 0);
    if (convert_type(c, x).dtype != from) return NULL;
    Node *copy = convert_copy(c, node);
    node_set_input(copy, 0, convert_cast(c, copy, x, via));
    convert_typed(c, copy->outputs[0], via, -1);
    convert_become(node, "Cast", 13, copy->outputs[0], NULL, NULL);
    node_set_int(node, "to", from);
    return NULL;
}

static const char *reduce_bool(Convert *c, Node *node) { return through(c, node, DT_BOOL, DT_I32); }

static const char *reduce_bytes(Convert *c, Node *node) {
    const char *reason = through(c, node, DT_U8, DT_I32);
    return reason || strcmp(node->op, "Cast") == 0 ? reason : through(c, node, DT_I8, DT_I32);
}

static const char *ask_wider(Convert *c, Node *node) {
    DType dtype = convert_type(c, node_in(node, 0)).dtype;
    if (dtype_is_float(dtype) && dtype != DT_F32 && dtype != DT_F64)
        node_set_input(node, 0, convert_cast(c, node, node_in(node, 0), DT_F32));
    return NULL;
}

/* --- quantisation --- */

static bool is_scalar(const Convert *c, const Value *value) {
    int64_t size;
    int rank = convert_rank(c, value);
    return rank == 0 || (rank == 1 && convert_size(c, value, 0, &size) && size == 1);
}

static const char *scale_of_all(Convert *c, Node *node) {
    if (!is_scalar(c, node_in(node, 1))) return "it has scales by axis, which older versions have not";
    convert_drop_attr(node, "axis");
    return NULL;
}

/* The result's type is said by a zero point before it was by an attribute. */
static const char *type_by_zero_point(Convert *c, Node *node) {
    DType to = attr_dtype(node, "output_dtype", DT_NONE);
    const Value *fact = fact_of(c->rewrite, node_in(node, 1));
    const Tensor *scale = convert_constant(c, node_in(node, 1));
    convert_drop_attr(node, "output_dtype");
    if (node_in(node, 2) || to == DT_NONE || to == DT_U8) return NULL;
    int64_t sizes[MAX_RANK];
    int rank = scale ? scale->rank : fact ? fact->rank : -1;
    for (int i = 0; i < rank; i++)
        if (!convert_size(c, node_in(node, 1), i, &sizes[i])) rank = -1;
    if (rank < 0) return "the sizes of its scale are not known";
    node_put_input(node, 2, graph_add_constant(node->graph, "zero_point", tensor_new(c->arena, to, rank, sizes)));
    return NULL;
}

static const char *type_of_scale(Convert *c, Node *node) {
    DType to = attr_dtype(node, "output_dtype", DT_NONE), scale = convert_type(c, node_in(node, 1)).dtype;
    if (to != DT_NONE && to == scale) convert_drop_attr(node, "output_dtype");
    return NULL;
}

/* --- other --- */

static const char *to_scatter_elements(Convert *c, Node *node) {
    (void)c;
    node->op = "ScatterElements";
    node->opset = 11;
    return NULL;
}

static const char *to_scatter(Convert *c, Node *node) {
    const char *reason = plain_axes(c, node);
    if (!reason) reason = plain_indices(c, node);
    node->op = "Scatter";
    node->opset = 10;
    return reason;
}

/* With a shape that holds no 0, it makes no difference what 0 would mean. */
static const char *zero_in_shape(Convert *c, Node *node) {
    int64_t shape[64];
    int count;
    if (!attr_int(node, "allowzero", 0)) return NULL;
    if (!convert_ints(c, node_in(node, 1), shape, &count)) return "a 0 in its shape means a size of 0";
    for (int i = 0; i < count; i++)
        if (!shape[i]) return "a 0 in its shape means a size of 0";
    convert_drop_attr(node, "allowzero");
    return NULL;
}

static const char *part_of_shape(Convert *c, Node *node) {
    int64_t start = attr_int(node, "start", 0), end = attr_int(node, "end", INT64_MAX);
    if (start == 0 && end == INT64_MAX) return NULL;
    Value *shape = shape_of(c, node, node_in(node, 0));
    convert_become(node, "Slice", 13, shape, convert_int_value(c, node, start), convert_int_value(c, node, end));
    return NULL;
}

static const char *other_meaning(Convert *c, Node *node) {
    (void)c, (void)node;
    return "it means something else in the other version";
}

/* Before 11, both branches of an If give the same shapes. */
static const char *same_branches(Convert *c, Node *node) {
    if (node->subgraph_count != 2) return NULL;
    for (int i = 0; i < node->output_count; i++) {
        const Value *a = node->subgraphs[0]->outputs.items[i], *b = node->subgraphs[1]->outputs.items[i];
        if (convert_type(c, a).kind == VALUE_TENSOR && !same_sizes(c, a, b))
            return "its branches may give different shapes, which older versions do not allow";
    }
    return NULL;
}

/* OneHot of an index below 0: off before 11, from the end since. */
static const char *known_indices(Convert *c, Node *node) {
    const Tensor *indices = convert_constant(c, node_in(node, 0));
    if (!indices) return "an index below 0 means something else in the other version";
    for (int64_t i = 0; i < tensor_count(indices); i++)
        if (dtype_load_double(indices->dtype, indices->data, i) < 0)
            return "an index below 0 means something else in the other version";
    return plain_result_axes(c, node);
}

static const char *drop_legacy(Convert *c, Node *node) {
    (void)c;
    convert_drop_attr(node, "consumed_inputs");
    return NULL;
}

#define REDUCTION(name)                                                                                                \
    {name, 18, axes_to_input, reduced_axes_to_attr}, { name, 11, NULL, plain_axes }
#define AXIS_FROM_BACK(name)                                                                                           \
    { name, 11, NULL, plain_axes }

const ConvertRule convert_rules[] = {
    {"Squeeze", 13, axes_to_input, axes_to_attr},
    {"Squeeze", 11, NULL, plain_axes},
    {"Unsqueeze", 13, axes_to_input, axes_to_attr},
    {"Unsqueeze", 11, NULL, plain_result_axes},
    {"ReduceSum", 13, axes_to_input, reduced_axes_to_attr},
    {"ReduceSum", 11, NULL, plain_axes},
    REDUCTION("ReduceL1"),
    REDUCTION("ReduceL2"),
    REDUCTION("ReduceLogSum"),
    REDUCTION("ReduceLogSumExp"),
    REDUCTION("ReduceMax"),
    {"ReduceMax", 20, NULL, reduce_bool},
    {"ReduceMax", 12, NULL, reduce_bytes},
    REDUCTION("ReduceMean"),
    REDUCTION("ReduceMin"),
    {"ReduceMin", 20, NULL, reduce_bool},
    {"ReduceMin", 12, NULL, reduce_bytes},
    REDUCTION("ReduceProd"),
    REDUCTION("ReduceSumSquare"),
    {"Split", 18, split_told, split_in_parts},
    {"Split", 13, split_to_input, split_to_attr},
    {"Split", 11, NULL, plain_axes},
    {"Slice", 10, slice_to_inputs, slice_to_attrs},
    {"Slice", 11, NULL, plain_slice_axes},
    {"TopK", 10, k_to_input, k_to_attr},
    {"Clip", 11, clip_to_inputs, clip_to_attrs},
    {"Clip", 12, NULL, clip_types},
    {"Dropout", 12, dropout_to_inputs, dropout_to_attrs},
    {"Dropout", 10, dropout_mask, dropout_mask},
    AXIS_FROM_BACK("ArgMax"),
    AXIS_FROM_BACK("ArgMin"),
    AXIS_FROM_BACK("Compress"),
    AXIS_FROM_BACK("Flatten"),
    {"Concat", 11, NULL, plain_concat_axis},
    {"Gather", 11, NULL, plain_indices},
    {"OneHot", 11, known_indices, known_indices},
    {"Softmax", 13, softmax_along, softmax_from},
    {"Softmax", 11, NULL, plain_axes},
    {"LogSoftmax", 13, softmax_along, softmax_from},
    {"LogSoftmax", 11, NULL, plain_axes},
    {"Hardmax", 13, softmax_along, softmax_from},
    {"Hardmax", 11, NULL, plain_axes},
    {"BatchNormalization", 14, one_output, one_output},
    {"LSTM", 14, NULL, layout_by_transposes},
    {"GRU", 14, NULL, layout_by_transposes},
    {"RNN", 14, NULL, layout_by_transposes},
    {"Gemm", 11, NULL, gemm_summand},
    {"Sum", 8, NULL, sum_of_equals},
    {"Mean", 8, NULL, sum_of_equals},
    {"Max", 8, NULL, sum_of_equals},
    {"Min", 8, NULL, sum_of_equals},
    {"Pow", 12, NULL, exponent_of_type},
    {"Mod", 28, NULL, integer_modulus},
    {"IsInf", 20, NULL, ask_wider},
    {"IsNaN", 20, NULL, ask_wider},
    {"IsNaN", 13, NULL, ask_wider},
    {"QuantizeLinear", 21, NULL, type_by_zero_point},
    {"QuantizeLinear", 13, NULL, scale_of_all},
    {"DequantizeLinear", 23, NULL, type_of_scale},
    {"DequantizeLinear", 13, NULL, scale_of_all},
    {"Scatter", 11, to_scatter_elements, NULL},
    {"ScatterElements", 11, NULL, to_scatter},
    {"Reshape", 14, NULL, zero_in_shape},
    {"Shape", 15, NULL, part_of_shape},
    {"If", 11, NULL, same_branches},
    {"Scan", 9, other_meaning, other_meaning},
    {"Abs", 6, drop_legacy, NULL},
    {"Ceil", 6, drop_legacy, NULL},
    {"Exp", 6, drop_legacy, NULL},
    {"Floor", 6, drop_legacy, NULL},
    {"Log", 6, drop_legacy, NULL},
    {"Neg", 6, drop_legacy, NULL},
    {"Reciprocal", 6, drop_legacy, NULL},
    {"Relu", 6, drop_legacy, NULL},
    {"Sigmoid", 6, drop_legacy, NULL},
    {"Sqrt", 6, drop_legacy, NULL},
    {"Tanh", 6, drop_legacy, NULL},
    {0},
};
