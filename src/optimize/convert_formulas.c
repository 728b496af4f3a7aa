/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that an older version lacks, as the formulas that the standard gives for them. */
#include "optimize/convert.h"

#include <math.h>

enum { PLAIN = 13, COMPARE = 11, SHAPED = 13 }; /* opset versions in whose forms the formulas are written */

static Value *number(Convert *c, Node *n, const Value *like, double value) {
    return convert_number_value(c, n, convert_type(c, like).dtype, value);
}

static Value *op1(Convert *c, Node *n, const char *op, Value *a) { return convert_add(c, n, op, PLAIN, a, NULL, NULL); }

static Value *op2(Convert *c, Node *n, const char *op, Value *a, Value *b) {
    return convert_add(c, n, op, PLAIN, a, b, NULL);
}

static const char *const no_type = "the type of its input is not known";
static const char *const no_rank = "the rank of its input is not known";

static bool has_type(const Convert *c, const Node *n) { return convert_type(c, node_in(n, 0)).dtype != DT_NONE; }

/* --- activations --- */

/* x max(0, min(1, x / 6 + 1/2)) */
static const char *hard_swish(Convert *c, Node *n) {
    Value *x = node_in(n, 0), *gate = op1(c, n, "HardSigmoid", x);
    node_set_float(gate->producer, "alpha", 1.0 / 6);
    node_set_float(gate->producer, "beta", 0.5);
    convert_become(n, "Mul", PLAIN, x, gate, NULL);
    return NULL;
}

/* x tanh(log(1 + exp(x))) */
static const char *mish(Convert *c, Node *n) {
    Value *x = node_in(n, 0);
    convert_become(n, "Mul", PLAIN, x, op1(c, n, "Tanh", op1(c, n, "Softplus", x)), NULL);
    return NULL;
}

/* x sigmoid(alpha x) */
static const char *swish(Convert *c, Node *n) {
    Value *x = node_in(n, 0), *scaled = x;
    double alpha = attr_float(n, "alpha", 1);
    if (!has_type(c, n)) return no_type;
    if (alpha != 1) scaled = op2(c, n, "Mul", x, number(c, n, x, alpha));
    convert_become(n, "Mul", PLAIN, x, op1(c, n, "Sigmoid", scaled), NULL);
    return NULL;
}

/* x / 2 (1 + erf(x / sqrt 2)), or with tanh(sqrt(2 / pi) (x + 0.044715 x^3)) */
static const char *gelu(Convert *c, Node *n) {
    Value *x = node_in(n, 0), *inner;
    if (!has_type(c, n)) return no_type;
    if (strcmp(attr_string(n, "approximate", "none"), "tanh") == 0) {
        Value *cube = op2(c, n, "Mul", op2(c, n, "Mul", x, x), x);
        Value *sum = op2(c, n, "Add", x, op2(c, n, "Mul", cube, number(c, n, x, 0.044715)));
        inner = op1(c, n, "Tanh", op2(c, n, "Mul", sum, number(c, n, x, sqrt(2 / 3.14159265358979323846))));
    } else {
        inner = op1(c, n, "Erf", op2(c, n, "Mul", x, number(c, n, x, sqrt(0.5))));
    }
    Value *half = op2(c, n, "Mul", x, number(c, n, x, 0.5));
    convert_become(n, "Mul", PLAIN, half, op2(c, n, "Add", inner, number(c, n, x, 1)), NULL);
    return NULL;
}

/* max(0, x) + min(0, alpha (exp(x / alpha) - 1)), which is alpha Elu(x / alpha) */
static const char *celu(Convert *c, Node *n) {
    Value *x = node_in(n, 0);
    double alpha = attr_float(n, "alpha", 1);
    if (!has_type(c, n)) return no_type;
    Value *elu = op1(c, n, "Elu", op2(c, n, "Div", x, number(c, n, x, alpha)));
    convert_become(n, "Mul", PLAIN, elu, number(c, n, x, alpha), NULL);
    return NULL;
}

static const char *celu_types(Convert *c, Node *n) {
    return convert_type(c, node_in(n, 0)).dtype == DT_F32 ? NULL : celu(c, n);
}

/* --- comparison --- */

static const char *or_equal(Convert *c, Node *n) {
    bool greater = n->op[0] == 'G';
    Value *a = node_in(n, 0), *b = node_in(n, 1);
    int rank = convert_rank(c, n->outputs[0]);
    if (dtype_is_integer(convert_type(c, a).dtype)) {
        Value *other = convert_add(c, n, greater ? "Less" : "Greater", PLAIN, a, b, NULL);
        convert_become(n, "Not", 1, convert_typed(c, other, DT_BOOL, rank), NULL, NULL);
        return NULL;
    }
    Value *apart = convert_add(c, n, greater ? "Greater" : "Less", PLAIN, a, b, NULL);
    Value *equal = convert_add(c, n, "Equal", COMPARE, a, b, NULL);
    convert_become(n, "Or", 7, convert_typed(c, apart, DT_BOOL, rank), convert_typed(c, equal, DT_BOOL, rank), NULL);
    return NULL;
}

static const char *cast_like(Convert *c, Node *n) {
    DType to = convert_type(c, node_in(n, 1)).dtype;
    int64_t saturate = attr_int(n, "saturate", 1);
    int form = n->opset;
    if (to == DT_NONE) return "the type of its second input is not known";
    convert_become(n, "Cast", form < 19 ? 13 : form, node_in(n, 0), NULL, NULL);
    node_set_int(n, "to", to);
    if (!saturate) node_set_int(n, "saturate", 0);
    return NULL;
}

/* --- normalisation --- */

typedef struct Normalized {
    Value *result, *mean, *inverse; /* inverse: of the deviation */
} Normalized;

/* (x - mean) / sqrt(var + epsilon) over these axes. */
static Normalized normalize(Convert *c, Node *n, Value *x, const int64_t *axes, int count, double epsilon) {
    Value *mean = convert_reduce(c, n, "ReduceMean", x, axes, count, true);
    Value *apart = op2(c, n, "Sub", x, mean);
    Value *var = convert_reduce(c, n, "ReduceMean", op2(c, n, "Mul", apart, apart), axes, count, true);
    Value *deviation = op1(c, n, "Sqrt", op2(c, n, "Add", var, number(c, n, x, epsilon)));
    Value *inverse = op1(c, n, "Reciprocal", deviation);
    return (Normalized){op2(c, n, "Mul", apart, inverse), mean, inverse};
}

static int last_axes(const Convert *c, const Node *n, int64_t *axes) {
    int64_t axis = attr_int(n, "axis", -1);
    int rank = convert_rank(c, node_in(n, 0)), count = 0;
    if (rank < 0 || rank > MAX_RANK || !convert_axis(c, node_in(n, 0), &axis)) return -1;
    for (int64_t i = axis; i < rank; i++) axes[count++] = i;
    return count;
}

/* Computed in 32 bits, as stash_type says, where the input has less. */
static DType stash_type(const Node *n, DType dtype) {
    return attr_int(n, "stash_type", 1) == DT_F32 && dtype != DT_F64 ? DT_F32 : dtype;
}

static void scaled(Convert *c, Node *n, Value *x, Value *scale, Value *bias) {
    if (bias)
        convert_become(n, "Add", PLAIN, op2(c, n, "Mul", x, scale), bias, NULL);
    else
        convert_become(n, "Mul", PLAIN, x, scale, NULL);
}

static const char *layer_normalization(Convert *c, Node *n) {
    int64_t axes[MAX_RANK];
    Value *x = node_in(n, 0), *scale = node_in(n, 1), *bias = node_in(n, 2);
    DType dtype = convert_type(c, x).dtype, inside = stash_type(n, dtype);
    int count = last_axes(c, n, axes);
    if (dtype == DT_NONE) return no_type;
    if (count < 0) return no_rank;
    Normalized y = normalize(c, n, convert_cast(c, n, x, inside), axes, count, attr_float(n, "epsilon", 1e-5));
    convert_give(c, n, 1, y.mean);
    convert_give(c, n, 2, y.inverse);
    scaled(c, n, convert_cast(c, n, y.result, dtype), scale, bias);
    n->output_count = 1;
    return NULL;
}

/* x / sqrt(mean(x^2) + epsilon) scale */
static const char *rms_normalization(Convert *c, Node *n) {
    int64_t axes[MAX_RANK];
    Value *x = node_in(n, 0), *scale = node_in(n, 1);
    DType dtype = convert_type(c, x).dtype, inside = stash_type(n, dtype);
    int count = last_axes(c, n, axes);
    if (dtype == DT_NONE) return no_type;
    if (count < 0) return no_rank;
    Value *wide = convert_cast(c, n, x, inside);
    Value *mean = convert_reduce(c, n, "ReduceMean", op2(c, n, "Mul", wide, wide), axes, count, true);
    Value *root = op1(c, n, "Sqrt", op2(c, n, "Add", mean, number(c, n, wide, attr_float(n, "epsilon", 1e-5))));
    scaled(c, n, convert_cast(c, n, op2(c, n, "Div", wide, root), dtype), scale, NULL);
    return NULL;
}

static Value *shape_of(Convert *c, Node *n, Value *x) {
    return convert_typed(c, convert_add(c, n, "Shape", SHAPED, x, NULL, NULL), DT_I64, 1);
}

/* Each group normalised as one axis; scale and bias are one a channel. */
static const char *group_normalization(Convert *c, Node *n) {
    static const int64_t last = 2;
    Value *x = node_in(n, 0);
    DType dtype = convert_type(c, x).dtype, inside = stash_type(n, dtype);
    int rank = convert_rank(c, x);
    if (dtype == DT_NONE) return no_type;
    if (rank < 2 || rank > MAX_RANK) return no_rank;
    const int64_t groups[] = {0, attr_int(n, "num_groups", 1), -1};
    int64_t channels[MAX_RANK];
    for (int i = 0; i < rank - 1; i++) channels[i] = i ? 1 : -1;
    Value *grouped = convert_reshape(c, n, convert_cast(c, n, x, inside), groups, 3);
    Value *y = normalize(c, n, grouped, &last, 1, attr_float(n, "epsilon", 1e-5)).result;
    y = convert_add(c, n, "Reshape", SHAPED, convert_cast(c, n, y, dtype), shape_of(c, n, x), NULL);
    convert_typed(c, y, dtype, rank);
    scaled(c, n, y, convert_reshape(c, n, node_in(n, 1), channels, rank - 1),
           convert_reshape(c, n, node_in(n, 2), channels, rank - 1));
    return NULL;
}

/* Scale and bias of 18 are one a group: repeated for the group's channels. */
static const char *group_scales(Convert *c, Node *n) {
    int64_t channels, groups = attr_int(n, "num_groups", 1);
    if (!convert_size(c, node_in(n, 0), 1, &channels) || groups < 1 || channels % groups)
        return "the number of its channels is not known";
    const int64_t column[] = {-1, 1}, repeated[] = {groups, channels / groups}, flat[] = {-1};
    for (int i = 1; i < 3; i++) {
        Value *each = convert_reshape(c, n, node_in(n, i), column, 2);
        each = convert_add(c, n, "Expand", PLAIN, each, convert_ints_value(c, n, repeated, 2), NULL);
        node_set_input(n, i, convert_reshape(c, n, each, flat, 1));
    }
    return NULL;
}

static const char *group_normalization_18(Convert *c, Node *n) {
    const char *reason = group_scales(c, n);
    return reason ? reason : group_normalization(c, n);
}

/* The standard's own: (x - mean(x)) / (sqrt(mean(x^2) - mean(x)^2) + 1e-9) */
static const char *mean_variance(Convert *c, Node *n) {
    static const int64_t otherwise[] = {0, 2, 3};
    int count = 3;
    const int64_t *axes = attr_ints(n, "axes", &count);
    Value *x = node_in(n, 0);
    if (!axes) axes = otherwise, count = 3;
    if (!has_type(c, n)) return no_type;
    Value *mean = convert_reduce(c, n, "ReduceMean", x, axes, count, true);
    Value *squares = convert_reduce(c, n, "ReduceMean", op2(c, n, "Mul", x, x), axes, count, true);
    Value *root = op1(c, n, "Sqrt", op2(c, n, "Sub", squares, op2(c, n, "Mul", mean, mean)));
    Value *deviation = op2(c, n, "Add", root, number(c, n, x, 1e-9));
    convert_become(n, "Div", PLAIN, op2(c, n, "Sub", x, mean), deviation, NULL);
    return NULL;
}

/* --- structure --- */

/* Where(row + k <= column, x, 0), or the other half. */
static const char *triangle(Convert *c, Node *n) {
    Value *x = node_in(n, 0);
    ValueType type = convert_type(c, x);
    double k = 0;
    int64_t rows, columns;
    if (type.dtype == DT_NONE) return no_type;
    if (node_in(n, 1) && !convert_number(c, node_in(n, 1), &k)) return "its diagonal is computed";
    if (!convert_size(c, x, type.rank - 2, &rows) || !convert_size(c, x, type.rank - 1, &columns))
        return "the sizes of its input are not known";
    if (rows * columns > 1 << 20) return "its mask would take more than a megabyte";
    bool upper = attr_int(n, "upper", 1) != 0;
    Tensor *mask = tensor_new(c->arena, DT_BOOL, 2, (const int64_t[]){rows, columns});
    for (int64_t i = 0; i < rows * columns; i++) {
        double apart = (double)(i % columns) - (double)(i / columns);
        ((uint8_t *)mask->data)[i] = upper ? apart >= k : apart <= k;
    }
    convert_become(n, "Where", 9, graph_add_constant(n->graph, "mask", mask), x,
                   graph_add_constant(n->graph, "zero", tensor_new(c->arena, type.dtype, 0, NULL)));
    return NULL;
}

/* x1 cos - x2 sin, x1 sin + x2 cos for halves or neighbours x1, x2 of the head. */
static Value *slice_last(Convert *c, Node *n, Value *x, int axis, int64_t start, int64_t end, int64_t step) {
    ValueType type = convert_type(c, x);
    Value *made = convert_add(c, n, "Slice", PLAIN, x, convert_int_value(c, n, start), convert_int_value(c, n, end));
    node_put_input(made->producer, 3, convert_int_value(c, n, axis));
    if (step != 1) node_put_input(made->producer, 4, convert_int_value(c, n, step));
    return convert_typed(c, made, type.dtype, type.rank);
}

static Value *join(Convert *c, Node *n, Value *a, Value *b, int axis) {
    Value *made = convert_add(c, n, "Concat", PLAIN, a, b, NULL);
    node_set_int(made->producer, "axis", axis);
    return made;
}

static Value *unsqueeze(Convert *c, Node *n, Value *x, int64_t axis) {
    ValueType type = convert_type(c, x);
    Value *made = convert_add(c, n, "Unsqueeze", PLAIN, x, convert_int_value(c, n, axis), NULL);
    return convert_typed(c, made, type.dtype, type.rank < 0 ? -1 : type.rank + 1);
}

/* In: [batch, sequence, heads, size]; caches [batch, sequence, 1, rotated / 2]. */
static Value *rotate(Convert *c, Node *n, Value *x, Value *cosine, Value *sine, int64_t size) {
    bool interleaved = attr_int(n, "interleaved", 0) != 0;
    int64_t rotated = attr_int(n, "rotary_embedding_dim", 0), end = INT64_MAX;
    if (!rotated) rotated = size;
    Value *part = rotated == size ? x : slice_last(c, n, x, 3, 0, rotated, 1);
    Value *a = interleaved ? slice_last(c, n, part, 3, 0, end, 2) : slice_last(c, n, part, 3, 0, rotated / 2, 1);
    Value *b = interleaved ? slice_last(c, n, part, 3, 1, end, 2) : slice_last(c, n, part, 3, rotated / 2, end, 1);
    Value *real = op2(c, n, "Sub", op2(c, n, "Mul", a, cosine), op2(c, n, "Mul", b, sine));
    Value *imaginary = op2(c, n, "Add", op2(c, n, "Mul", a, sine), op2(c, n, "Mul", b, cosine));
    Value *result;
    if (interleaved) {
        const int64_t flat[] = {0, 0, 0, rotated};
        Value *pairs = join(c, n, unsqueeze(c, n, real, 4), unsqueeze(c, n, imaginary, 4), 4);
        result = convert_reshape(c, n, pairs, flat, 4);
    } else {
        result = join(c, n, real, imaginary, 3);
    }
    return rotated == size ? result : join(c, n, result, slice_last(c, n, x, 3, rotated, end, 1), 3);
}

static const char *rotary(Convert *c, Node *n) {
    static const int64_t heads_last[] = {0, 2, 1, 3};
    Value *x = node_in(n, 0), *cosine = node_in(n, 1), *sine = node_in(n, 2), *at = node_in(n, 3);
    ValueType type = convert_type(c, x);
    int64_t size, heads = attr_int(n, "num_heads", 0);
    if (type.dtype == DT_NONE) return no_type;
    if (type.rank != 3 && type.rank != 4) return no_rank;
    if (!convert_size(c, x, type.rank - 1, &size)) return "the size of its heads is not known";
    if (type.rank == 3 && heads <= 0) return "it has no number of heads";
    if (type.rank == 3) size /= heads;
    if (at) {
        cosine = convert_typed(c, convert_add(c, n, "Gather", PLAIN, cosine, at, NULL), type.dtype, 3);
        sine = convert_typed(c, convert_add(c, n, "Gather", PLAIN, sine, at, NULL), type.dtype, 3);
    }
    const int64_t split[] = {0, 0, heads, size};
    Value *y = type.rank == 3 ? convert_reshape(c, n, x, split, 4) : convert_transpose(c, n, x, heads_last, 4);
    y = rotate(c, n, y, unsqueeze(c, n, cosine, 2), unsqueeze(c, n, sine, 2), size);
    if (type.rank == 3) {
        convert_become(n, "Reshape", PLAIN, y, shape_of(c, n, x), NULL);
        return NULL;
    }
    convert_become(n, "Transpose", PLAIN, y, NULL, NULL);
    node_set_ints(n, "perm", heads_last, 4);
    return NULL;
}

const ConvertRule convert_formulas[] = {
    {"HardSwish", 14, NULL, hard_swish},
    {"Mish", 18, NULL, mish},
    {"Swish", 24, NULL, swish},
    {"Gelu", 20, NULL, gelu},
    {"Celu", 28, NULL, celu_types},
    {"Celu", 12, NULL, celu},
    {"GreaterOrEqual", 12, NULL, or_equal},
    {"LessOrEqual", 12, NULL, or_equal},
    {"CastLike", 15, NULL, cast_like},
    {"LayerNormalization", 17, NULL, layer_normalization},
    {"RMSNormalization", 23, NULL, rms_normalization},
    {"GroupNormalization", 21, group_scales, group_normalization},
    {"GroupNormalization", 18, NULL, group_normalization_18},
    {"MeanVarianceNormalization", 9, NULL, mean_variance},
    {"Trilu", 14, NULL, triangle},
    {"RotaryEmbedding", 23, NULL, rotary},
    {0},
};
