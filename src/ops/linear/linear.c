/* SPDX-License-Identifier: Apache-2.0 */
/* Linear algebra: MatMul, Gemm, Conv, ConvTranspose, their integer forms, Det; and the builder's anchors, which check
 * shapes, infer the result's and leave the computing to the device's library. Convolutions run channels-last: the
 * permutes around them cancel between neighbours. */
#include "ops/linear/linear.h"

#include <math.h>
#include "lowering/anchor/anchor_eval.h"
#include "lowering/anchors.h"
#include "ops/linear/geometry.h"
#include "ops/families.h"
#include "ops/math/activation.h"

/* ---- anchors ---- */

static bool is_one_product(const Node *node) {
    const OpRow *row = ops_find(node->domain ? node->domain : "", node->op, node->opset);
    return row && row->flags & OP_ONE_PRODUCT;
}

/* The form in which the node's constant matrices are to be held (runtime/device/cpu/anchor.h), and what meets them. Of an operator of several
 * products, those of two activations have none; of the others the device says where it cannot be done. */
static void ask_for_weights(Lowering *l, Node *anchor) {
    int64_t wanted = l->node && !l->elsewhere ? attr_int(l->node, WEIGHT_PRECISION, 0) : 0;
    if (wanted && (is_one_product(l->node) || is_of_constants(l, anchor->inputs[1])))
        node_set_int(anchor, WEIGHT_PRECISION, wanted);
    if (wanted && attr_int(l->node, ROWS_INT8, 0)) node_set_int(anchor, ROWS_INT8, 1);
}

static Node *anchor(Lowering *l, const char *op, Value *const *inputs, int count) {
    Node *node = graph_add_node(l->graph, builder_place(l), NODE_ANCHOR, op, inputs, count);
    if (l->node) node_add_origin(node, l->node->origin);
    if (l->node) node_follow_rules(node, l->node);
    node->backward |= l->elsewhere;
    ask_for_weights(l, node);
    if (l->policy && !l->policy->winograd && strcmp(op, "conv") == 0) node_set_int(node, "winograd", 0);
    return node;
}

/* Constants folded up to this many multiplications; beyond it the work is left to the first run. */
static const double FOLD_WORK = 1 << 28;

static Value *fold_matmul(Lowering *l, Node *node, Value *y) {
    Value *a = node->inputs[0], *b = node->inputs[1];
    int64_t elements;
    if (!a->constant || !b->constant || !dim_is_const(value_elements(l->graph, y), &elements)) return y;
    double work = (double)elements * (double)a->constant->dims[a->rank - 1];
    if (work > FOLD_WORK || (double)elements * (double)dtype_size(y->dtype) > FOLD_LIMIT) return y;
    Tensor *inputs[] = {aligned_constant(l, a), aligned_constant(l, b)}, *result;
    Status status = eval_anchor(node, inputs, NULL, l->arena, &result);
    release_aligned(l, a, inputs[0]);
    release_aligned(l, b, inputs[1]);
    if (status) {
        if (l->error)
            status_free(status);
        else
            l->error = status;
        return NULL;
    }
    graph_remove_node(l->graph, node);
    return constant(l, result);
}

/* a, b: rank >= 2. */
static Value *matmul_node(Lowering *l, Value *a, Value *b) {
    const Dim *ka = a->dims[a->rank - 1], *kb = b->dims[b->rank - 2];
    int64_t x = 0, y = 0;
    if (!sizes_agree(ka, kb)) {
        dim_is_const(ka, &x);
        dim_is_const(kb, &y);
        invalid(l, "the inner dimensions of the product differ: %lld and %lld", (long long)x, (long long)y);
        return NULL;
    }
    int rank = a->rank > b->rank ? a->rank : b->rank;
    const Dim **dims = size_array(l, rank);
    for (int i = 1; i <= rank - 2; i++) {
        const Dim *da = i <= a->rank - 2 ? a->dims[a->rank - 2 - i] : size_const(l, 1);
        const Dim *db = i <= b->rank - 2 ? b->dims[b->rank - 2 - i] : size_const(l, 1);
        if (!(dims[rank - 2 - i] = size_broadcast(l, da, db))) {
            invalid(l, "the leading dimensions of the factors cannot be broadcast");
            return NULL;
        }
    }
    dims[rank - 2] = a->dims[a->rank - 2];
    dims[rank - 1] = b->dims[b->rank - 1];
    Node *node = anchor(l, "matmul", (Value *[]){a, b}, 2);
    return fold_matmul(l, node, node_add_output(node, NULL, dtype_of_sums(a->dtype), rank, dims));
}

static bool arithmetic(DType dtype) { return dtype_is_float(dtype) || dtype_is_integer(dtype); }

/* 8-bit integers whose sums are to wrap as they do are multiplied as wider ones: products of bytes (bytes_matmul) are
 * another anchor. */
static bool wraps_as_byte(const Value *x) { return x && x->dtype != dtype_of_sums(x->dtype); }

static bool same_arithmetic(Lowering *l, const Value *a, const Value *b) {
    if (l->error) return false;
    if (!a || !b) {
        invalid(l, "a required input is missing");
    } else if (a->dtype != b->dtype || !arithmetic(a->dtype)) {
        invalid(l, "element types %s and %s do not go together", dtype_onnx_name(a->dtype), dtype_onnx_name(b->dtype));
    }
    return !l->error;
}

static Value *product_of(Lowering *l, Value *a, Value *b) {
    if (a->rank < 1 || b->rank < 1) {
        invalid(l, "a scalar cannot be a factor of a matrix product");
        return NULL;
    }
    bool row = a->rank == 1, column = b->rank == 1;
    if (row) a = unsqueeze(l, a, (int[]){0}, 1);
    if (column) b = unsqueeze(l, b, (int[]){1}, 1);
    if (!a || !b) return NULL;
    Value *y = matmul_node(l, a, b);
    if (y && column) y = squeeze(l, y, (int[]){y->rank - 1}, 1);
    if (y && row) y = squeeze(l, y, (int[]){column ? y->rank - 1 : y->rank - 2}, 1);
    return y;
}

Value *matmul(Lowering *l, Value *a, Value *b) {
    if (!same_arithmetic(l, a, b)) return NULL;
    if (!wraps_as_byte(a)) return product_of(l, a, b);
    return cast(l, product_of(l, cast(l, a, DT_I32), cast(l, b, DT_I32)), a->dtype);
}

Value *bytes_matmul(Lowering *l, Value *a, Value *b) { return l->error ? NULL : product_of(l, a, b); }

static void set_blocks(Node *node, const WeightBlocks *blocks) {
    if (blocks->scales)
        node_set_attr(node, (Attr){.name = WEIGHT_SCALES, .kind = ATTR_TENSOR, .tensor = (Tensor *)blocks->scales});
    if (blocks->zeros)
        node_set_attr(node, (Attr){.name = WEIGHT_ZEROS, .kind = ATTR_TENSOR, .tensor = (Tensor *)blocks->zeros});
    node_set_int(node, WEIGHT_BITS, blocks->bits);
    node_set_int(node, WEIGHT_BLOCK, blocks->block);
    node_set_int(node, WEIGHT_DEPTH, blocks->k);
}

static Value *product_of_blocks(Lowering *l, const char *op, Value *const *inputs, int count,
                                const WeightBlocks *blocks) {
    const Value *a = inputs[0];
    if (l->error) return NULL;
    if (!sizes_agree(a->dims[a->rank - 1], size_const(l, blocks->k))) {
        invalid(l, "the rows of A do not have K elements");
        return NULL;
    }
    const Dim **dims = size_array(l, a->rank);
    for (int i = 0; i < a->rank; i++) dims[i] = a->dims[i];
    dims[a->rank - 1] = size_const(l, blocks->n);
    Node *node = anchor(l, op, inputs, count);
    set_blocks(node, blocks);
    return node_add_output(node, NULL, DT_F32, a->rank, dims);
}

Value *bits_matmul(Lowering *l, Value *a, Value *b, const WeightBlocks *blocks) {
    return product_of_blocks(l, MATMUL_BITS, (Value *[]){a, b}, 2, blocks);
}

Value *blocks_matmul(Lowering *l, Value *a, Value *b, Value *scales, Value *zeros, const WeightBlocks *blocks) {
    WeightBlocks sizes = *blocks;
    sizes.packed = sizes.scales = sizes.zeros = NULL;
    return product_of_blocks(l, MATMUL_BLOCKS, (Value *[]){a, b, scales, zeros}, zeros ? 4 : 3, &sizes);
}

Value *grouped_matmul(Lowering *l, Value *a, Value *b, Value *groups, Value *bias, const WeightBlocks *blocks) {
    Value *inputs[] = {a, b, groups, bias};
    if (!present(l, inputs, bias ? 4 : 3)) return NULL;
    if (!sizes_agree(a->dims[a->rank - 1], blocks ? size_const(l, blocks->k) : b->dims[2])) {
        invalid(l, "the rows do not have as many elements as the groups' matrices ask for");
        return NULL;
    }
    if (bias &&
        (bias->rank != 2 || !sizes_agree(bias->dims[0], b->dims[0]) || !sizes_agree(bias->dims[1], b->dims[1]))) {
        invalid(l, "the bias does not have one element for each group and column");
        return NULL;
    }
    const Dim **dims = size_array(l, groups->rank + 1);
    for (int i = 0; i < groups->rank; i++) dims[i] = groups->dims[i];
    dims[groups->rank] = b->dims[1];
    Node *node = anchor(l, MATMUL_GROUPED, inputs, bias ? 4 : 3);
    if (blocks)
        set_blocks(node, blocks);
    else
        node_set_ints(node, "perm_b", (int64_t[]){0, 2, 1}, 3);
    return node_add_output(node, NULL, a->dtype, groups->rank + 1, dims);
}

static Status check_conv(Lowering *l, const Value *x, const Value *w, const Value *bias, const ConvAttrs *attrs,
                         bool transposed) {
    int rank = attrs->spatial + 2, in_axis = transposed ? 0 : 1;
    if (x->rank != rank || w->rank != rank) return invalid(l, "the input has rank %d, the weight %d", x->rank, w->rank);
    const Dim *channels = size_mul(l, w->dims[in_axis], size_const(l, transposed ? 1 : attrs->group));
    int64_t in = 0, expected = 0, outputs = 0;
    if (!sizes_agree(x->dims[rank - 1], channels)) {
        dim_is_const(x->dims[rank - 1], &in);
        dim_is_const(channels, &expected);
        return invalid(l, "the input has %lld channels where the weight expects %lld", (long long)in,
                       (long long)expected);
    }
    if (dim_is_const(w->dims[0], &outputs) && outputs % attrs->group)
        return invalid(l, "%lld channels do not divide into %lld groups", (long long)outputs, (long long)attrs->group);
    const Dim *out = transposed ? size_mul(l, w->dims[1], size_const(l, attrs->group)) : w->dims[0];
    if (bias && (bias->rank != 1 || !sizes_agree(bias->dims[0], out)))
        return invalid(l, "the bias does not have one element for each output channel");
    return NULL;
}

static Value *conv_node(Lowering *l, const char *op, Value *x, Value *w, Value *bias, const ConvAttrs *attrs,
                        const Dim *const *size, const Dim *channels) {
    int spatial = attrs->spatial;
    Node *node = anchor(l, op, (Value *[]){x, w}, 2);
    node_set_ints(node, "strides", attrs->strides, spatial);
    node_set_ints(node, "dilations", attrs->dilations, spatial);
    node_set_dims(node, "pads", attrs->pads, 2 * spatial);
    node_set_int(node, "group", attrs->group);
    if (attrs->pad_value) node_set_int(node, PAD_VALUE, attrs->pad_value);
    const Dim **dims = size_array(l, spatial + 2);
    dims[0] = x->dims[0];
    for (int i = 0; i < spatial; i++) dims[1 + i] = size[i];
    dims[1 + spatial] = channels;
    Value *y = node_add_output(node, NULL, dtype_of_sums(x->dtype), spatial + 2, dims);
    return bias ? add(l, y, bias) : y;
}

Value *conv(Lowering *l, Value *x, Value *w, Value *bias, const ConvAttrs *attrs) {
    bool bytes = x && w && x->dtype == DT_U8 && w->dtype == DT_I8;
    if (!bytes && wraps_as_byte(x) && w) {
        Value *y = conv(l, cast(l, x, DT_I32), cast(l, w, DT_I32), bias ? cast(l, bias, DT_I32) : NULL, attrs);
        return cast(l, y, x->dtype);
    }
    if ((!bytes && !same_arithmetic(l, x, w)) || check_conv(l, x, w, bias, attrs, false)) return NULL;
    const Dim **size = size_array(l, attrs->spatial);
    for (int i = 0; i < attrs->spatial; i++) {
        const Dim *padded = size_add(l, x->dims[1 + i], size_add(l, attrs->pads[i], attrs->pads[attrs->spatial + i]));
        const Dim *room = size_sub(l, padded, window_extent(l, w->dims[2 + i], attrs->dilations[i]));
        size[i] = size_add(l, dim_div(l->dims, room, size_const(l, attrs->strides[i])), size_const(l, 1));
    }
    return conv_node(l, "conv", x, w, bias, attrs, size, w->dims[0]);
}

Value *conv_transpose(Lowering *l, Value *x, Value *w, Value *bias, const ConvAttrs *attrs, const Dim *const *size) {
    if (!same_arithmetic(l, x, w) || check_conv(l, x, w, bias, attrs, true)) return NULL;
    const Dim *channels = size_mul(l, w->dims[1], size_const(l, attrs->group));
    return conv_node(l, "conv_transpose", x, w, bias, attrs, size, channels);
}

Value *to_channels_last(Lowering *l, Value *x) {
    int perm[MAX_RANK] = {0};
    if (!x) return NULL;
    for (int i = 1; i < x->rank - 1; i++) perm[i] = i + 1;
    if (x->rank > 1) perm[x->rank - 1] = 1;
    return permute(l, x, perm);
}

Value *from_channels_last(Lowering *l, Value *x) {
    int perm[MAX_RANK] = {0};
    if (!x) return NULL;
    for (int i = 2; i < x->rank; i++) perm[i] = i - 1;
    if (x->rank > 1) perm[1] = x->rank - 1;
    return permute(l, x, perm);
}

/* ---- products of matrices ---- */

static Status lower_matmul(Lowering *l, const Node *n) { return out(l, n, 0, matmul(l, in(l, n, 0), in(l, n, 1))); }

/* x * factor; integer tensors are scaled in f64, as the factor need not be whole. */
static Value *scaled(Lowering *l, Value *x, double factor) {
    if (!x || factor == 1) return x;
    if (dtype_is_float(x->dtype)) return cast_like(l, mul(l, widen(l, x), like(l, widen(l, x), factor)), x);
    return cast_like(l, mul(l, cast(l, x, DT_F64), scalar(l, DT_F64, factor)), x);
}

/* Y = alpha * A' * B' + beta * C, A' and B' transposed where asked (ONNX Gemm-13). A constant B takes alpha, a constant
 * C beta. */
static Value *gemm(Lowering *l, const Node *n) {
    Value *a = in(l, n, 0), *b = in(l, n, 1), *c = optional_in(l, n, 2);
    if (!a || !b) return NULL;
    if (a->rank != 2 || b->rank != 2)
        return invalid(l, "both factors must be matrices, but have ranks %d and %d", a->rank, b->rank), NULL;
    if (attr_int(n, "transA", 0)) a = swap_last(l, a);
    if (attr_int(n, "transB", 0)) b = swap_last(l, b);
    double alpha = attr_float(n, "alpha", 1), beta = attr_float(n, "beta", 1);
    bool early = constant_of(b) != NULL && dtype_is_float(b->dtype);
    Value *y = matmul(l, a, early ? scaled(l, b, alpha) : b);
    if (!early) y = scaled(l, y, alpha);
    if (!c || !y) return y;
    if (c->rank > 2) return invalid(l, "C has rank %d instead of at most 2", c->rank), NULL;
    /* A row vector is the bias that devices fuse. */
    if (c->rank == 2 && dim_equals(c->dims[0], 1) && !dim_equals(c->dims[1], 1)) c = squeeze(l, c, (int[]){0}, 1);
    return beta == 0 ? y : add(l, y, scaled(l, c, beta));
}

static Status lower_gemm(Lowering *l, const Node *n) { return out(l, n, 0, gemm(l, n)); }

static Status lower_fused_gemm(Lowering *l, const Node *n) { return out(l, n, 0, activated(l, n, gemm(l, n))); }

Value *along_axis(Lowering *l, Value *v, int axis, int rank) {
    if (!v || v->rank != 1 || dim_equals(v->dims[0], 1)) return v && v->rank == 1 ? squeeze(l, v, (int[]){0}, 1) : v;
    if (axis == rank - 1) return v;
    const Dim **dims = size_array(l, rank);
    for (int i = 0; i < rank; i++) dims[i] = size_const(l, 1);
    dims[axis] = v->dims[0];
    return reshape(l, v, dims, rank);
}

bool is_all(const Tensor *t, double value) {
    for (int64_t i = 0; t && i < tensor_count(t); i++)
        if (dtype_load_double(t->dtype, t->data, i) != value) return false;
    return t != NULL;
}

Value *centred(Lowering *l, Value *x, Value *zero_point, int axis) {
    if (!x) return NULL;
    Value *wide = cast(l, x, DT_I32);
    if (!zero_point) return wide;
    const Tensor *known = constant_of(zero_point);
    return known && dtype_is_integer(known->dtype) && is_all(known, 0)
               ? wide
               : sub(l, wide, along_axis(l, cast(l, zero_point, DT_I32), axis, x->rank));
}

/* (A - a_zero_point) * (B - b_zero_point) in i32; zero points per tensor, per row of A, per column of B (ONNX
 * MatMulInteger-10). */
static Status lower_matmul_integer(Lowering *l, const Node *n) {
    Value *sum = integer_matmul(l, in(l, n, 0), optional_in(l, n, 2), in(l, n, 1), optional_in(l, n, 3));
    return out(l, n, 0, sum ? cast(l, sum, DT_I32) : NULL);
}

/* ---- convolutions ---- */

static Status conv_geometry(Lowering *l, const Node *n, const Value *x, const Value *w, WindowKind kind,
                            Geometry *geometry) {
    if (x->rank < 3 || x->rank != w->rank)
        return invalid(l,
                       "the input has rank %d and the weight %d; both need a batch, channels and as many spatial axes",
                       x->rank, w->rank);
    int given;
    attr_ints(n, "kernel_shape", &given);
    if (given) {
        const Dim *kernel[MAX_SPATIAL];
        TRY(kernel_shape_of(l, n, x->rank - 2, kernel));
        for (int i = 0; i < given; i++)
            if (!sizes_agree(kernel[i], w->dims[2 + i]))
                return invalid(l, "kernel_shape differs from the weight's shape");
    }
    int64_t known;
    for (int i = 2; i < w->rank; i++)
        if (dim_is_const(w->dims[i], &known) && known < 1) return invalid(l, "the weight has an empty kernel");
    return geometry_of(l, n, x->rank - 2, x->dims + 2, w->dims + 2, kind, geometry);
}

static Status group_of(Lowering *l, const Node *n, int64_t *out_group) {
    *out_group = attr_int(n, "group", 1);
    if (*out_group < 1 || *out_group > INT32_MAX) return invalid(l, "group is %lld", (long long)*out_group);
    return NULL;
}

/* Whether windows neither overlap nor leave anything out nor reach beyond the edges, and have few channels, of which a
 * convolution's loops would be short: a picture's patches, as vision transformers embed them. */
enum { PATCH_CHANNELS = 8, PATCH_ELEMENTS = 128 };

static bool takes_patches(const Value *x, const Value *w, const Geometry *g, int64_t group, int64_t pad_value) {
    int64_t channels, kernel, size, pad, elements = 1;
    bool whole = group == 1 && !pad_value && dtype_is_float(x->dtype) && x->dtype == w->dtype &&
                 x->rank + g->spatial <= MAX_RANK && dim_is_const(w->dims[1], &channels) &&
                 channels <= PATCH_CHANNELS && x->dims[1] == w->dims[1];
    for (int i = 0; i < g->spatial && whole; i++) {
        whole = dim_is_const(w->dims[2 + i], &kernel) && dim_is_const(x->dims[2 + i], &size) &&
                kernel == g->strides[i] && g->dilations[i] == 1 && size % kernel == 0;
        for (int end = 0; end < 2 && whole; end++)
            whole = dim_is_const(g->pads[end * g->spatial + i], &pad) && pad == 0;
        if (whole) elements *= kernel;
    }
    return whole && elements * channels >= PATCH_ELEMENTS;
}

/* A product of the patches, each in a row, by the kernels: x [N, C, s * k...], w [M, C, k...]. */
static Value *conv_of_patches(Lowering *l, Value *x, Value *w, Value *bias, const Geometry *g) {
    const Dim **apart = size_array(l, x->rank + g->spatial), **rows = size_array(l, 3), **matrix = size_array(l, 2),
              **result = size_array(l, x->rank);
    int perm[MAX_RANK] = {0};
    const Dim *places = size_const(l, 1), *length = w->dims[1];
    apart[0] = x->dims[0], apart[1] = x->dims[1];
    perm[1 + g->spatial] = 1;
    for (int i = 0; i < g->spatial; i++) {
        const Dim *kernel = w->dims[2 + i], *count = dim_div(l->dims, x->dims[2 + i], kernel);
        apart[2 + 2 * i] = result[1 + i] = count;
        apart[3 + 2 * i] = kernel;
        perm[1 + i] = 2 + 2 * i;
        perm[2 + g->spatial + i] = 3 + 2 * i;
        places = size_mul(l, places, count);
        length = size_mul(l, length, kernel);
    }
    rows[0] = result[0] = x->dims[0], rows[1] = places, rows[2] = matrix[1] = length;
    matrix[0] = result[x->rank - 1] = w->dims[0];
    Value *patches = reshape(l, permute(l, reshape(l, x, apart, x->rank + g->spatial), perm), rows, 3);
    Value *y = matmul(l, patches, swap_last(l, reshape(l, w, matrix, 2)));
    if (y && bias) y = add(l, y, bias);
    return y ? from_channels_last(l, reshape(l, y, result, x->rank)) : NULL;
}

Value *conv_as(Lowering *l, const Node *n, Value *x, Value *w, Value *bias) { return conv_padded(l, n, x, w, bias, 0); }

Value *conv_padded(Lowering *l, const Node *n, Value *x, Value *w, Value *bias, int64_t pad_value) {
    Geometry g;
    int64_t group;
    if (l->error || !x || !w || group_of(l, n, &group) || conv_geometry(l, n, x, w, WINDOW_CONV, &g)) return NULL;
    ConvAttrs attrs = {g.spatial, g.strides, g.dilations, g.pads, group, pad_value};
    Value *last = to_channels_last(l, x);
    if (takes_patches(x, w, &g, group, pad_value))
        return check_conv(l, last, w, bias, &attrs, false) ? NULL : conv_of_patches(l, x, w, bias, &g);
    Value *y = conv(l, last, w, bias, &attrs);
    return y ? from_channels_last(l, y) : NULL;
}

static Status lower_conv(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *w = in(l, n, 1);
    return out(l, n, 0, conv_as(l, n, x, w, optional_in(l, n, 2)));
}

/* com.microsoft's, with a residual and an activation. */
static Status lower_fused_conv(Lowering *l, const Node *n) {
    Value *y = conv_as(l, n, in(l, n, 0), in(l, n, 1), optional_in(l, n, 2));
    return out(l, n, 0, activated(l, n, with_bias(l, n, y, 3)));
}

/* com.microsoft's, of channels-last data and of a weight that lies as ever. */
static Status lower_nhwc_conv(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *y = x ? conv_as(l, n, from_channels_last(l, x), in(l, n, 1), optional_in(l, n, 2)) : NULL;
    return out(l, n, 0, y ? to_channels_last(l, y) : NULL);
}

/* Padding stands for the zero point, so it is 0 once that is taken off (ONNX ConvInteger-10). */
static Status lower_conv_integer(Lowering *l, const Node *n) {
    Value *sum = integer_conv(l, n, in(l, n, 0), optional_in(l, n, 2), in(l, n, 1), optional_in(l, n, 3), NULL);
    return out(l, n, 0, sum ? cast(l, sum, DT_I32) : NULL);
}

/* Sizes and paddings of ONNX ConvTranspose-11: total = stride * (in - 1) + output_padding + extent - output. */
static Status transposed_geometry(Lowering *l, const Node *n, const Value *x, const Value *w, Geometry *g) {
    int spatial = x->rank - 2, shaped;
    int64_t extra[MAX_SPATIAL], wanted[MAX_RANK];
    const char *mode = attr_string(n, "auto_pad", "NOTSET");
    bool same = strncmp(mode, "SAME", 4) == 0, upper = strcmp(mode, "SAME_UPPER") == 0;
    TRY(conv_geometry(l, n, x, w, WINDOW_TRANSPOSED, g));
    TRY(spatial_ints(l, n, "output_padding", spatial, 0, 0, extra));
    const int64_t *shape = attr_ints(n, "output_shape", &shaped);
    if (shaped == spatial + 2) shape += 2, shaped = spatial; /* version 1 gave the batch and the channels too */
    if (shaped && shaped != spatial) return invalid(l, "output_shape has %d elements instead of %d", shaped, spatial);
    for (int i = 0; i < spatial; i++) {
        const Dim *stride = size_const(l, g->strides[i]), *extent = window_extent(l, w->dims[2 + i], g->dilations[i]);
        const Dim *reach = size_add(l, size_mul(l, stride, size_sub(l, x->dims[2 + i], size_const(l, 1))),
                                    size_add(l, size_const(l, extra[i]), extent));
        if (!shaped && !same) {
            g->size[i] = size_sub(l, reach, size_add(l, g->pads[i], g->pads[spatial + i]));
        } else {
            wanted[i] = shaped ? shape[i] : 0;
            if (shaped && (wanted[i] < 1 || wanted[i] > INT32_MAX))
                return invalid(l, "output_shape holds %lld", (long long)wanted[i]);
            g->size[i] = shaped ? size_const(l, wanted[i]) : size_mul(l, x->dims[2 + i], stride);
            const Dim *total = dim_max(l->dims, size_sub(l, reach, g->size[i]), size_const(l, 0));
            const Dim *half = dim_div(l->dims, total, size_const(l, 2)), *rest = size_sub(l, total, half);
            g->pads[i] = upper ? half : rest;
            g->pads[spatial + i] = upper ? rest : half;
        }
        int64_t known;
        if (dim_is_const(g->size[i], &known) && known < 0)
            return invalid(l, "the paddings leave nothing of spatial axis %d", i);
    }
    return NULL;
}

static Status lower_conv_transpose(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *w = in(l, n, 1), *bias = optional_in(l, n, 2);
    Geometry g;
    int64_t group;
    if (!x || !w) return l->error;
    TRY(group_of(l, n, &group));
    TRY(transposed_geometry(l, n, x, w, &g));
    ConvAttrs attrs = {g.spatial, g.strides, g.dilations, g.pads, group, 0};
    Value *y = conv_transpose(l, to_channels_last(l, x), w, bias, &attrs, g.size);
    return out(l, n, 0, y ? from_channels_last(l, y) : NULL);
}

/* ---- com.microsoft ---- */

/* [d0, batch..., last] -> [batch..., d0, last]. */
static Value *batch_first(Lowering *l, Value *x) {
    if (!x || x->rank < 3) return x;
    int perm[MAX_RANK];
    for (int i = 0; i < x->rank - 2; i++) perm[i] = i + 1;
    perm[x->rank - 2] = 0;
    perm[x->rank - 1] = x->rank - 1;
    return permute(l, x, perm);
}

/* com.microsoft's product of matrices that may stand transposed. */
static Status lower_fused_matmul(Lowering *l, const Node *n) {
    Value *a = in(l, n, 0), *b = in(l, n, 1);
    if (attr_int(n, "transBatchA", 0)) a = batch_first(l, a);
    if (attr_int(n, "transBatchB", 0)) b = batch_first(l, b);
    if (a && attr_int(n, "transA", 0) && a->rank > 1) a = swap_last(l, a);
    if (b && attr_int(n, "transB", 0) && b->rank > 1) b = swap_last(l, b);
    Value *y = matmul(l, a, b);
    double alpha = attr_float(n, "alpha", 1);
    return out(l, n, 0, alpha == 1 || !y ? y : mul(l, y, like(l, y, alpha)));
}

/* Of 16-bit integers, sums of 32 bits. */
static Status lower_matmul_integer16(Lowering *l, const Node *n) {
    return out(l, n, 0, matmul(l, cast(l, in(l, n, 0), DT_I32), cast(l, in(l, n, 1), DT_I32)));
}

enum { WEIGHTED = OP_WEIGHTED | OP_ONE_PRODUCT };

const OpRow ops_linear[] = {
    {"", "MatMul", 1, 0, lower_matmul, NULL, WEIGHTED},
    {"", "Gemm", 1, 0, lower_gemm, NULL, WEIGHTED},
    {"", "MatMulInteger", 10, 0, lower_matmul_integer, NULL, 0},
    {"", "Einsum", 12, 0, lower_einsum, NULL, 0},
    {"", "Det", 11, 0, lower_det, host_det, 0},
    {"", "Conv", 1, 0, lower_conv, NULL, WEIGHTED},
    {"", "ConvInteger", 10, 0, lower_conv_integer, NULL, 0},
    {"", "ConvTranspose", 1, 0, lower_conv_transpose, NULL, WEIGHTED},
    {"", "DeformConv", 19, 0, lower_deform_conv, host_deform_columns, 0},
    {"com.microsoft", "FusedConv", 1, 0, lower_fused_conv, NULL, WEIGHTED},
    {"com.microsoft", "FusedGemm", 1, 0, lower_fused_gemm, NULL, WEIGHTED},
    {"com.microsoft", "FusedMatMul", 1, 0, lower_fused_matmul, NULL, WEIGHTED},
    {"com.microsoft", "Inverse", 1, 0, lower_inverse, host_inverse, 0},
    {"com.microsoft", "MatMulInteger16", 1, 0, lower_matmul_integer16, NULL, 0},
    {"com.microsoft", "NhwcConv", 1, 0, lower_nhwc_conv, NULL, WEIGHTED},
    {"com.microsoft", "TransposeMatMul", 1, 0, lower_fused_matmul, NULL, WEIGHTED},
    {0},
};

const HostRow hosts_linear[] = {
    {"Det", host_det, back_det},
    {"Cofactors", host_cofactors, NULL},
    {"Inverse", host_inverse, back_inverse},
    {"DeformConv", host_deform_columns, back_deform_columns},
    {"DeformColumnsGradient", host_deform_columns_gradient, NULL},
    {0},
};
