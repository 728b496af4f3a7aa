/* What several operators are made of: means, softmax, GELU, random draws, and the anchors with their shapes. */
#include "ops/build_internal.h"

#include <math.h>

/* --- composites -------------------------------------------------------------------------------------------------- */

Value *widen(Lowering *l, Value *x) {
    if (!present(l, &x, 1)) return NULL;
    return dtype_is_float(x->dtype) && dtype_size(x->dtype) < 4 ? cast(l, x, DT_F32) : x;
}

Value *mean(Lowering *l, Value *x, const int *axes, int count, bool keepdims) {
    if (!present(l, &x, 1)) return NULL;
    const Dim *elements = dim_const(l->dims, 1);
    for (int i = 0; i < count; i++) elements = dim_mul(l->dims, elements, x->dims[axes[i]]);
    Value *wide = widen(l, x), *sum = reduce(l, PRIM_REDUCE_SUM, wide, axes, count, keepdims);
    return cast_like(l, divide(l, sum, cast_like(l, dim_scalar(l, elements), wide)), x);
}

Value *softmax(Lowering *l, Value *x, int axis) {
    Value *wide = widen(l, x);
    Value *e = unary(l, PRIM_EXP, sub(l, wide, reduce(l, PRIM_REDUCE_MAX, wide, &axis, 1, true)));
    return cast_like(l, divide(l, e, reduce(l, PRIM_REDUCE_SUM, e, &axis, 1, true)), x);
}

Value *log_softmax(Lowering *l, Value *x, int axis) {
    Value *wide = widen(l, x), *d = sub(l, wide, reduce(l, PRIM_REDUCE_MAX, wide, &axis, 1, true));
    Value *sum = reduce(l, PRIM_REDUCE_SUM, unary(l, PRIM_EXP, d), &axis, 1, true);
    return cast_like(l, sub(l, d, unary(l, PRIM_LOG, sum)), x);
}

/* x/2 (1 + erf(x / sqrt 2)), or x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): Hendrycks and Gimpel, "Gaussian Error
 * Linear Units", 2016. */
Value *gelu(Lowering *l, Value *x, bool tanh_form) {
    Value *w = widen(l, x), *inner;
    if (tanh_form) {
        Value *cube = mul(l, mul(l, w, w), w);
        Value *sum = add(l, w, mul(l, like(l, w, 0.044715), cube));
        inner = unary(l, PRIM_TANH, mul(l, like(l, w, M_2_SQRTPI * M_SQRT1_2), sum));
    } else {
        inner = unary(l, PRIM_ERF, mul(l, w, like(l, w, M_SQRT1_2)));
    }
    return cast_like(l, mul(l, mul(l, w, like(l, w, 0.5)), add(l, like(l, w, 1), inner)), x);
}

Value *clip(Lowering *l, Value *x, Value *low, Value *high) {
    if (low) x = maximum(l, x, low);
    return high ? minimum(l, x, high) : x;
}

/* --- random draws --------------------------------------------------------------------------------------------------
 */

/* The finalizer of SplitMix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014. */
static uint64_t mix_seed(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t random_base(Lowering *l, bool has_seed, float seed) {
    uint32_t bits;
    memcpy(&bits, &seed, sizeof bits);
    uint64_t own = has_seed ? (uint64_t)bits << 32 | 1 : l->graph->info->next_seed++ << 1;
    return mix_seed(mix_seed(own) ^ (l->policy ? l->policy->seed : 0));
}

Value *random_draw(Lowering *l, const Dim *const *shape, int rank, uint64_t base, int draw) {
    if (l->error) return NULL;
    uint64_t start = mix_seed(base + (uint64_t)draw * 0x9e3779b97f4a7c15u);
    Value *run = cast(l, dim_scalar(l, dim_symbol(l->dims, "$run")), DT_U64);
    Value *step = scalar_int(l, DT_U64, (int64_t)0x9e3779b97f4a7c15u); /* odd: no two runs share a seed */
    Value *seed = add(l, scalar_int(l, DT_U64, (int64_t)start), mul(l, run, step));
    NodeSpec spec = {.prim = PRIM_PHILOX, .inputs = &seed, .input_count = 1, .dtype = DT_U32};
    spec_shape(&spec, rank, shape);
    spec_dims(&spec, "shape", shape, rank);
    return emit(l, &spec);
}

Value *random_bits(Lowering *l, const Dim *const *shape, int rank, bool has_seed, float seed) {
    return l->error ? NULL : random_draw(l, shape, rank, random_base(l, has_seed, seed), 0);
}

Value *random_uniform(Lowering *l, const Dim *const *shape, int rank, bool has_seed, float seed) {
    Value *bits = random_bits(l, shape, rank, has_seed, seed);
    Value *top = binary(l, PRIM_SHR, bits, scalar_int(l, DT_U32, 8));
    return mul(l, cast(l, top, DT_F32), scalar(l, DT_F32, 0x1p-24));
}

/* --- matmul --------------------------------------------------------------------------------------------------------
 */

static bool inner_sizes_fit(Lowering *l, const Value *a, const Value *b) {
    const Dim *k = a->dims[a->rank - 1], *other = b->dims[b->rank - 2];
    if (k == other || !dim_is_const(k, NULL) || !dim_is_const(other, NULL)) return true;
    const char *text = shape_text(l, a->dims, a->rank);
    invalid(l, "matrices %s and %s do not fit: the inner sizes differ", text, shape_text(l, b->dims, b->rank));
    return false;
}

/* The matrix axes stay, those before are broadcast to the batch. */
static Value *align_batch(Lowering *l, Value *x, const Dim *const *batch, int batch_rank) {
    const Dim *dims[MAX_RANK];
    int own = x->rank - 2;
    for (int i = 0; i < own; i++) dims[i] = batch[i + batch_rank - own];
    dims[own] = x->dims[own];
    dims[own + 1] = x->dims[own + 1];
    return align_to(l, x, dims, x->rank);
}

Value *matmul(Lowering *l, Value *a, Value *b) {
    Value *inputs[] = {a, b};
    if (!present(l, inputs, 2)) return NULL;
    if (a->dtype != b->dtype || (!dtype_is_float(a->dtype) && !dtype_is_integer(a->dtype))) {
        invalid(l, "matrices of %s and %s cannot be multiplied", dtype_onnx_name(a->dtype), dtype_onnx_name(b->dtype));
        return NULL;
    }
    if (a->rank < 1 || b->rank < 1) {
        invalid(l, "a scalar is no matrix");
        return NULL;
    }
    bool row = a->rank == 1, column = b->rank == 1;
    if (row) inputs[0] = a = unsqueeze(l, a, (const int[]){0}, 1);
    if (column) inputs[1] = b = unsqueeze(l, b, (const int[]){1}, 1);
    if (!a || !b || !inner_sizes_fit(l, a, b)) return NULL;
    NodeSpec spec = {.anchor = "matmul", .inputs = inputs, .input_count = 2, .dtype = a->dtype};
    Value batch_a = *a, batch_b = *b; /* seen without their matrix axes */
    batch_a.rank -= 2;
    batch_b.rank -= 2;
    if (!broadcast_dims(l, (Value *const[]){&batch_a, &batch_b}, 2, spec.dims, &spec.rank)) return NULL;
    inputs[0] = align_batch(l, a, spec.dims, spec.rank);
    inputs[1] = align_batch(l, b, spec.dims, spec.rank);
    spec.dims[spec.rank++] = a->dims[a->rank - 2];
    spec.dims[spec.rank++] = b->dims[b->rank - 1];
    Value *result = emit(l, &spec);
    if (!result || (!row && !column)) return result;
    int axes[2], count = 0;
    if (row) axes[count++] = result->rank - 2;
    if (column) axes[count++] = result->rank - 1;
    return squeeze(l, result, axes, count);
}

/* --- convolution ---------------------------------------------------------------------------------------------------
 */

Value *to_channels_last(Lowering *l, Value *x) {
    int perm[MAX_RANK];
    if (!present(l, &x, 1)) return NULL;
    if (x->rank < 2) {
        invalid(l, "\"%s\" needs a batch and a channel axis", x->name);
        return NULL;
    }
    perm[0] = 0;
    for (int i = 1; i + 1 < x->rank; i++) perm[i] = i + 1;
    perm[x->rank - 1] = 1;
    return permute(l, x, perm);
}

Value *from_channels_last(Lowering *l, Value *x) {
    int perm[MAX_RANK];
    if (!present(l, &x, 1)) return NULL;
    if (x->rank < 2) {
        invalid(l, "\"%s\" needs a batch and a channel axis", x->name);
        return NULL;
    }
    perm[0] = 0;
    perm[1] = x->rank - 1;
    for (int i = 2; i < x->rank; i++) perm[i] = i - 1;
    return permute(l, x, perm);
}

static bool conv_fits(Lowering *l, const Value *x, const Value *w, const Dim *channels, const Dim *expected,
                      const ConvAttrs *attrs) {
    const char *text = shape_text(l, x->dims, x->rank);
    if (x->dtype != w->dtype)
        invalid(l, "data is %s, the weights are %s", dtype_onnx_name(x->dtype), dtype_onnx_name(w->dtype));
    else if (x->rank != attrs->spatial + 2 || w->rank != x->rank)
        invalid(l, "data %s and weights %s do not fit %d spatial axes", text, shape_text(l, w->dims, w->rank),
                attrs->spatial);
    else if (attrs->group < 1)
        invalid(l, "group must be 1 or more, not %lld", (long long)attrs->group);
    else if (channels != expected && dim_is_const(channels, NULL) && dim_is_const(expected, NULL))
        invalid(l, "data %s (channels last) and weights %s in %lld groups do not fit", text,
                shape_text(l, w->dims, w->rank), (long long)attrs->group);
    for (int i = 0; !l->error && i < attrs->spatial; i++)
        if (attrs->strides[i] < 1 || attrs->dilations[i] < 1) invalid(l, "strides and dilations must be 1 or more");
    return !l->error;
}

static void spec_conv(NodeSpec *spec, const ConvAttrs *attrs) {
    spec_ints(spec, "strides", attrs->strides, attrs->spatial);
    spec_ints(spec, "dilations", attrs->dilations, attrs->spatial);
    spec_dims(spec, "pads", attrs->pads, 2 * attrs->spatial);
    spec_int(spec, "group", attrs->group);
}

/* floor((size + pads - (kernel - 1) dilation - 1) / stride) + 1 */
static const Dim *conv_size(Lowering *l, const Dim *size, const Dim *kernel, const ConvAttrs *attrs, int axis) {
    DimTable *t = l->dims;
    const Dim *padded = dim_add(t, size, dim_add(t, attrs->pads[axis], attrs->pads[axis + attrs->spatial]));
    const Dim *reach = dim_mul(t, dim_sub(t, kernel, dim_const(t, 1)), dim_const(t, attrs->dilations[axis]));
    const Dim *steps = dim_sub(t, dim_sub(t, padded, reach), dim_const(t, 1));
    return dim_add(t, dim_div(t, steps, dim_const(t, attrs->strides[axis])), dim_const(t, 1));
}

static Value *add_bias(Lowering *l, Value *result, Value *bias) {
    if (!bias || !result) return result;
    if (present(l, &bias, 1) && bias->rank != 1) invalid(l, "the bias must have one axis, it has %d", bias->rank);
    return add(l, result, bias);
}

Value *conv(Lowering *l, Value *x, Value *w, Value *bias, const ConvAttrs *attrs) {
    Value *inputs[] = {x, w};
    if (!present(l, inputs, 2)) return NULL;
    if (w->rank < 2 || x->rank < 2) {
        invalid(l, "data and weights need two axes at least");
        return NULL;
    }
    const Dim *expected = dim_mul(l->dims, w->dims[w->rank > 1 ? 1 : 0], dim_const(l->dims, attrs->group));
    if (!conv_fits(l, x, w, x->dims[x->rank - 1], expected, attrs)) return NULL;
    int64_t channels_out;
    if (dim_is_const(w->dims[0], &channels_out) && channels_out % attrs->group != 0) {
        invalid(l, "%lld output channels do not divide into %lld groups", (long long)channels_out,
                (long long)attrs->group);
        return NULL;
    }
    NodeSpec spec = {.anchor = "conv", .inputs = inputs, .input_count = 2, .dtype = x->dtype, .rank = x->rank};
    spec.dims[0] = x->dims[0];
    for (int i = 0; i < attrs->spatial; i++) spec.dims[i + 1] = conv_size(l, x->dims[i + 1], w->dims[i + 2], attrs, i);
    spec.dims[x->rank - 1] = w->dims[0];
    spec_conv(&spec, attrs);
    return add_bias(l, emit(l, &spec), bias);
}

Value *conv_transpose(Lowering *l, Value *x, Value *w, Value *bias, const ConvAttrs *attrs, const Dim *const *size) {
    Value *inputs[] = {x, w};
    if (!present(l, inputs, 2)) return NULL;
    if (w->rank < 2 || x->rank < 2) {
        invalid(l, "data and weights need two axes at least");
        return NULL;
    }
    if (!conv_fits(l, x, w, x->dims[x->rank - 1], w->dims[0], attrs)) return NULL;
    NodeSpec spec = {
        .anchor = "conv_transpose", .inputs = inputs, .input_count = 2, .dtype = x->dtype, .rank = x->rank};
    spec.dims[0] = x->dims[0];
    for (int i = 0; i < attrs->spatial; i++) spec.dims[i + 1] = size[i];
    spec.dims[x->rank - 1] = dim_mul(l->dims, w->dims[1], dim_const(l->dims, attrs->group));
    spec_conv(&spec, attrs);
    Value *result = emit(l, &spec);
    return add_bias(l, result, bias);
}
