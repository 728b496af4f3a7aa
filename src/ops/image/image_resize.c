/* SPDX-License-Identifier: Apache-2.0 */
/* Resize and Upsample. Interpolation is separable: each resized axis has a table that gives, for every index of the
 * result, the source indices and their weights. The host kernel resizes two neighbouring axes at once: a row of the
 * result is first blended from source rows (one long contiguous loop), then blended along the second axis. Images with
 * enough channels are taken channels-last, so that the inner loops run over the channels. */
#include "ops/image/image.h"

#include <math.h>
#include "lowering/gradient.h"
#include "lowering/sizes.h"

/* ---- sizes ---- */

/* floor(dim * scale) as an expression, where the scale is a fraction with a small denominator; NULL where it is not. */
static const Dim *scaled_size(const Lowering *l, const Dim *dim, float scale) {
    int64_t known;
    if (dim_is_const(dim, &known)) {
        float size = (float)known * scale; /* in f32, as the models' exporters reckon */
        return size >= 0 && size < 1e15f ? size_const(l, (int64_t)size) : NULL;
    }
    for (int64_t q = 1; q <= 64; q++) {
        double p = nearbyint((double)scale * (double)q);
        if (p >= 1 && p < 1e6 && (float)(p / (double)q) == scale)
            return dim_div(l->dims, size_mul(l, dim, size_const(l, (int64_t)p)), size_const(l, q));
    }
    return NULL;
}

/* The sizes of axes `in` [count] after scaling, or as keep_aspect_ratio_policy adapts the wanted ones; false when one
 * is out of range. */
static bool adapted_sizes(const char *policy, const int64_t *in, const Tensor *wanted, int64_t count, int64_t *out) {
    bool by_scale = dtype_is_float(wanted->dtype), larger = strcmp(policy, "not_smaller") == 0;
    double common = larger ? 0 : INFINITY;
    for (int64_t i = 0; i < count && !by_scale; i++) {
        double scale = (double)dtype_load_int(wanted->dtype, wanted->data, i) / (double)in[i];
        if (larger ? scale > common : scale < common) common = scale;
    }
    for (int64_t i = 0; i < count; i++) {
        double size = by_scale ? (double)((float)in[i] * (float)dtype_load_double(wanted->dtype, wanted->data, i))
                               : floor(common * (double)in[i] + 0.5);
        if (!(size >= 0 && size < 1e15)) return false;
        out[i] = (int64_t)size;
    }
    return true;
}

/* Inputs: the resized dims (i64), and the scales (float) or the sizes that keep_aspect_ratio_policy adapts (i64). */
Status host_resize_sizes(HostCall *call) {
    const Tensor *dims, *wanted;
    Tensor *y;
    TRY(host_tensor(call, 0, DT_I64, &dims));
    TRY(host_tensor(call, 1, DT_NONE, &wanted));
    int64_t count = tensor_count(dims);
    if (tensor_count(wanted) != count)
        return host_error(call, "%lld sizes are given for %lld axes", (long long)tensor_count(wanted),
                          (long long)count);
    TRY(host_output(call, 0, DT_I64, 1, &count, &y));
    const char *policy = attr_string(call->node, "keep_aspect_ratio_policy", "stretch");
    if (y && !adapted_sizes(policy, dims->data, wanted, count, y->data))
        return host_error(call, "a size of the result is out of range");
    return NULL;
}

/* ---- lowering ---- */

typedef struct ResizeInputs {
    Value *x, *roi, *scales, *sizes;
    int axes[MAX_RANK], count; /* which axes scales, sizes and roi speak of */
    const char *mode, *coordinates, *nearest;
} ResizeInputs;

static Value *nonempty(Value *v) { return v && v->rank == 1 && dim_equals(v->dims[0], 0) ? NULL : v; }

/* The result's sizes of the named axes. */
static const Dim *const *resized_sizes(Lowering *l, const Node *n, const ResizeInputs *r) {
    const char *policy = attr_string(n, "keep_aspect_ratio_policy", "stretch");
    bool stretch = strcmp(policy, "stretch") == 0;
    const Dim **named = size_array(l, r->count), **result = size_array(l, r->count);
    int count = 0;
    if (r->sizes && stretch) {
        const Dim *const *sizes = sizes_of(l, with_length(l, r->sizes, r->count), "resized", &count);
        if (sizes && count != r->count) invalid(l, "sizes has %d elements for %d axes", count, r->count);
        return l->error ? NULL : sizes;
    }
    const Tensor *scales = constant_of(r->scales);
    for (int i = 0; i < r->count; i++) named[i] = r->x->dims[r->axes[i]];
    if (scales && tensor_count(scales) != r->count) {
        invalid(l, "scales has %lld elements for %d axes", (long long)tensor_count(scales), r->count);
        return NULL;
    }
    for (int i = 0; scales && i < r->count; i++) {
        float scale = (float)dtype_load_double(scales->dtype, scales->data, i);
        if (!(scale > 0)) {
            invalid(l, "a scale is not positive");
            return NULL;
        }
        if (!(result[i] = scaled_size(l, named[i], scale))) scales = NULL;
    }
    if (scales) return result;
    const Tensor *wanted = constant_of(r->sizes);
    int64_t known[MAX_RANK], adapted[MAX_RANK];
    for (int i = 0; wanted && i < r->count; i++)
        if (!dim_is_const(named[i], &known[i])) wanted = NULL;
    if (wanted && tensor_count(wanted) == r->count && adapted_sizes(policy, known, wanted, r->count, adapted)) {
        for (int i = 0; i < r->count; i++) result[i] = size_const(l, adapted[i]);
        return result;
    }
    Value *inputs[] = {dims_value(l, named, r->count), r->sizes ? cast(l, r->sizes, DT_I64) : r->scales};
    const Dim *length = size_const(l, r->count);
    Node *host = l->error ? NULL : host_node(l, n, host_resize_sizes, inputs, 2);
    Value *sizes = host ? host_result(l, host, DT_I64, 1, &length) : NULL;
    return sizes ? bind_sizes(l, sizes, "resized", r->count) : NULL;
}

enum { MANY_CHANNELS = 8 }; /* from here on a loop over channels beats one over neighbouring columns */

static bool prefers_channels_last(const Value *x, const int *resized, int count) {
    int64_t channels;
    if (x->rank < 3 || (dim_is_const(x->dims[1], &channels) && channels < MANY_CHANNELS)) return false;
    for (int i = 0; i < count; i++)
        if (resized[i] < 2) return false;
    return true;
}

static bool one_of(const char *name, const char *const *names) {
    for (; *names; names++)
        if (strcmp(name, *names) == 0) return true;
    return false;
}

static const char *const modes[] = {"nearest", "linear", "cubic", "bilinear", NULL};
static const char *const coordinate_modes[] = {
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",   "align_corners",
    "asymmetric", "tf_crop_and_resize",   "tf_half_pixel_for_nn", NULL};
static const char *const nearest_modes[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", NULL};

static Status check_resize(Lowering *l, const ResizeInputs *r) {
    if (!r->x) return l->error;
    if (!r->scales && !r->sizes) return invalid(l, "neither scales nor sizes are given");
    if (!one_of(r->mode, modes)) return invalid(l, "mode \"%s\" is not known", r->mode);
    if (!one_of(r->coordinates, coordinate_modes))
        return invalid(l, "coordinate_transformation_mode \"%s\" is not known", r->coordinates);
    if (!one_of(r->nearest, nearest_modes)) return invalid(l, "nearest_mode \"%s\" is not known", r->nearest);
    if (strcmp(r->coordinates, "tf_crop_and_resize") == 0 && !r->roi)
        return invalid(l, "tf_crop_and_resize needs the input roi");
    return NULL;
}

/* Whether named axis `place` is left as it is: only sizes can say so, or a scale that is known. */
static bool stays(const Node *n, const ResizeInputs *r, int place, const Dim *size) {
    const Tensor *scales = constant_of(r->scales);
    if (strcmp(r->coordinates, "tf_crop_and_resize") == 0) return false;
    if (scales) return dtype_load_double(scales->dtype, scales->data, place) == 1;
    bool stretch = strcmp(attr_string(n, "keep_aspect_ratio_policy", "stretch"), "stretch") == 0;
    return r->sizes && stretch && size == r->x->dims[r->axes[place]];
}

/* Interpolation is done in f32 or f64; nearest moves elements of any type. */
static Value *interpolated_type(Lowering *l, Value *x, bool nearest) {
    if (nearest || x->dtype == DT_F32 || x->dtype == DT_F64) return x;
    if ((x->dtype == DT_F16 || x->dtype == DT_BF16) && keeps_small_floats(l)) return x;
    bool wide = dtype_is_integer(x->dtype) && dtype_size(x->dtype) > 2;
    return cast(l, x, wide ? DT_F64 : DT_F32);
}

static Value *resized_type(Lowering *l, Value *y, const Value *x) {
    if (!y || y->dtype == x->dtype) return y;
    return cast(l, dtype_is_integer(x->dtype) ? unary(l, PRIM_ROUND, y) : y, x->dtype);
}

static Status emit_resize(Lowering *l, const Node *n, ResizeInputs *r) {
    TRY(check_resize(l, r));
    const Dim *const *sizes = resized_sizes(l, n, r);
    if (!sizes) return l->error;
    Value *x = r->x;
    bool crop = strcmp(r->coordinates, "tf_crop_and_resize") == 0, nearest = strcmp(r->mode, "nearest") == 0;
    int resized[MAX_RANK], count = 0;
    int64_t axes[MAX_RANK],
        places[MAX_RANK]; /* resized axes as the kernel sees them, and where scales and roi speak of them */
    const Dim *out_sizes[MAX_RANK];
    for (int axis = 0; axis < x->rank; axis++) {
        for (int i = 0; i < r->count; i++) {
            if (r->axes[i] != axis || stays(n, r, i, sizes[i])) continue;
            resized[count] = axis;
            places[count] = i;
            out_sizes[count++] = sizes[i];
            break;
        }
    }
    if (!count) return out(l, n, 0, x);
    bool last = prefers_channels_last(x, resized, count);
    Value *source = interpolated_type(l, x, nearest);
    if (last) source = to_channels_last(l, source);
    if (!source) return l->error;
    const Dim **dims = dims_copy(l, source, source->rank);
    for (int i = 0; i < count; i++) {
        axes[i] = last ? resized[i] - 1 : resized[i];
        dims[axes[i]] = out_sizes[i];
    }
    bool stretch = strcmp(attr_string(n, "keep_aspect_ratio_policy", "stretch"), "stretch") == 0;
    Value *inputs[] = {source, r->scales, crop ? r->roi : NULL, stretch ? NULL : r->sizes};
    Node *host = host_node(l, n, host_resize, inputs, 4);
    if (!host) return l->error;
    node_set_ints(host, "axes", axes, count);
    node_set_ints(host, "places", places, count);
    node_set_int(host, "named_axes", r->count);
    node_set_dims(host, "size", out_sizes, count);
    node_set_string(host, "mode", r->mode);
    node_set_string(host, "coordinate_transformation_mode", r->coordinates);
    node_set_string(host, "nearest_mode", r->nearest);
    Value *y = host_result(l, host, source->dtype, source->rank, dims);
    return out(l, n, 0, resized_type(l, last ? from_channels_last(l, y) : y, x));
}

/* Version 10 knows scales alone and maps coordinates plainly; from 11 on roi and sizes come in, from 18 on axes. */
Status lower_resize(Lowering *l, const Node *n) {
    bool old = n->opset < 11;
    ResizeInputs r = {.x = in(l, n, 0), .mode = attr_string(n, "mode", "nearest")};
    r.coordinates = old ? "asymmetric" : attr_string(n, "coordinate_transformation_mode", "half_pixel");
    r.nearest = old ? "floor" : attr_string(n, "nearest_mode", "round_prefer_floor");
    r.roi = old ? NULL : nonempty(optional_in(l, n, 1));
    r.scales = nonempty(optional_in(l, n, old ? 1 : 2));
    r.sizes = old ? NULL : nonempty(optional_in(l, n, 3));
    if (!r.x) return l->error;
    if (r.sizes) r.scales = NULL;
    int given;
    const int64_t *axes = attr_ints(n, "axes", &given);
    r.count = axes ? given : r.x->rank;
    if (r.count > MAX_RANK) return invalid(l, "axes has %d elements", r.count);
    for (int i = 0; i < r.count; i++) r.axes[i] = axes ? axis_of(l, axes[i], r.x->rank) : i;
    return l->error ? l->error : emit_resize(l, n, &r);
}

/* Upsample-1 has two scales as attributes, -7 a list of them, -9 an input. */
Status lower_upsample(Lowering *l, const Node *n) {
    ResizeInputs r = {
        .x = in(l, n, 0), .mode = attr_string(n, "mode", "nearest"), .coordinates = "asymmetric", .nearest = "floor"};
    if (!r.x) return l->error;
    r.count = r.x->rank;
    for (int i = 0; i < r.count; i++) r.axes[i] = i;
    if (n->opset >= 9) {
        r.scales = in(l, n, 1);
        return r.scales ? emit_resize(l, n, &r) : l->error;
    }
    const Attr *list = node_attr(n, "scales");
    Tensor *scales = tensor_new(l->arena, DT_F32, 1, (int64_t[]){r.count});
    float *values = scales->data;
    if (list && (list->kind != ATTR_FLOATS || list->count != r.count))
        return invalid(l, "attribute scales does not have %d numbers", r.count);
    if (!list && r.count != 4) return invalid(l, "the input has rank %d instead of 4", r.count);
    for (int i = 0; i < r.count; i++) values[i] = list ? list->floats[i] : 1;
    if (!list) {
        values[2] = (float)attr_float(n, "height_scale", 1);
        values[3] = (float)attr_float(n, "width_scale", 1);
    }
    r.scales = constant(l, scales);
    return r.scales ? emit_resize(l, n, &r) : l->error;
}

/* ---- tables ---- */

typedef struct Taps {
    int64_t in, out; /* sizes of the axis */
    int width;       /* source indices an index of the result has */
    int64_t *index;  /* [out * width], each in [0, in) */
    double *weight;  /* [out * width] */
    float *weight_f32;
    bool *outside; /* [out]: the extrapolation value stands there */
} Taps;

typedef struct Sampling {
    const char *mode, *coordinates, *nearest;
    bool antialias, exclude_outside;
    double cubic_a;
    bool wide; /* places between elements are f64, as the elements are */
} Sampling;

/* Keys, "Cubic convolution interpolation for digital image processing", 1981, equation 4. */
static double cubic(double x, double a) {
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double filter(const Sampling *s, double x) {
    if (s->mode[0] == 'c') return cubic(x, s->cubic_a);
    return fmax(0, 1 - fabs(x));
}

/* Where index i of the result lies in the source; the formulas of ONNX Resize-19, for f64 in f64 and else in f32, as runtimes
 * reckon them: which neighbour is nearest hangs on the rounding. */
#define DEFINE_SOURCE(T, NAME)                                                                                         \
    static T NAME(const char *mode, int64_t i, T scale, int64_t in, int64_t out, const double *roi) {                  \
        T x = (T)i, width = scale * (T)in, last = (T)(in - 1), half = (T)0.5;                                          \
        if (strcmp(mode, "asymmetric") == 0) return x / scale;                                                         \
        if (strcmp(mode, "align_corners") == 0) return width == 1 ? 0 : x * last / (width - 1);                        \
        if (strcmp(mode, "tf_crop_and_resize") == 0) {                                                                 \
            T start = (T)roi[0], span = ((T)roi[1] - start) * last;                                                    \
            return start * last + (width == 1 ? span / 2 : x * span / (width - 1));                                    \
        }                                                                                                              \
        if (strcmp(mode, "tf_half_pixel_for_nn") == 0) return (x + half) / scale;                                      \
        if (strcmp(mode, "pytorch_half_pixel") == 0 && out <= 1) return 0;                                             \
        T offset = strcmp(mode, "half_pixel_symmetric") == 0 ? (T)in / 2 * (1 - (T)out / width) : 0;                   \
        return offset + (x + half) / scale - half;                                                                     \
    }
DEFINE_SOURCE(float, source_f32)
DEFINE_SOURCE(double, source_f64)

static int64_t clamp(double x, int64_t in) { return x > 0 ? x < (double)(in - 1) ? (int64_t)x : in - 1 : 0; }

static double nearest_of(const char *mode, double x) {
    if (mode[0] == 'f') return floor(x);
    if (mode[0] == 'c') return ceil(x);
    return strcmp(mode, "round_prefer_floor") == 0 ? ceil(x - 0.5) : floor(x + 0.5);
}

/* The taps of one index around x: all whose filter may not be 0; those beyond the edges take the edge's value or are
 * left out. */
static void fill_taps(const Sampling *s, const Taps *t, int64_t i, double x, double stretch) {
    int64_t *index = t->index + i * t->width, first = (int64_t)floor(x) - t->width / 2 + 1;
    double *weight = t->weight + i * t->width, sum = 0;
    for (int k = 0; k < t->width; k++) {
        int64_t at = first + k;
        bool beyond = at < 0 || at >= t->in;
        weight[k] = s->exclude_outside && beyond ? 0 : filter(s, ((double)at - x) * stretch);
        index[k] = clamp((double)at, t->in);
        sum += weight[k];
    }
    bool normalise = (s->antialias || s->exclude_outside) && sum != 0;
    for (int k = 0; k < t->width && normalise; k++) weight[k] /= sum;
}

enum { MOST_TAPS = 1 << 16 };

static Status make_taps(HostCall *call, const Sampling *s, int64_t in, int64_t out, double scale, const double *roi,
                        Taps *t) {
    double stretch = s->antialias && scale < 1 ? scale : 1;
    double support = ceil((s->mode[0] == 'c' ? 2 : 1) / stretch);
    bool nearest = s->mode[0] == 'n', crop = s->coordinates[0] == 't' && s->coordinates[3] == 'c';
    if (!(scale > 0) || (out > 0 && in < 1))
        return host_error(call, "cannot resize an axis of %lld by %g", (long long)in, scale);
    if (!(support <= MOST_TAPS)) return host_error(call, "the scale %g is too small", scale);
    *t = (Taps){in, out, nearest ? 1 : 2 * (int)support, NULL, NULL, NULL, NULL};
    t->index = arena_array(call->arena, (size_t)out, (size_t)t->width * sizeof *t->index);
    t->weight = arena_array(call->arena, (size_t)out, (size_t)t->width * sizeof *t->weight);
    t->weight_f32 = arena_array(call->arena, (size_t)out, (size_t)t->width * sizeof *t->weight_f32);
    if (crop) t->outside = ARENA_ARRAY(call->arena, bool, out);
    for (int64_t i = 0; i < out; i++) {
        double x = s->wide ? source_f64(s->coordinates, i, scale, in, out, roi)
                           : (double)source_f32(s->coordinates, i, (float)scale, in, out, roi);
        if (!(fabs(x) < 1e15)) return host_error(call, "a coordinate of the region is not finite");
        if (crop) t->outside[i] = x < 0 || x > (double)(in - 1);
        if (nearest)
            t->index[i] = clamp(nearest_of(s->nearest, x), in), t->weight[i] = 1;
        else
            fill_taps(s, t, i, x, stretch);
        for (int k = 0; k < t->width; k++) t->weight_f32[i * t->width + k] = (float)t->weight[i * t->width + k];
    }
    return NULL;
}

/* The table the other way: which indices of the result have taken an index of the source. */
static void transpose_taps(HostCall *call, Taps *t) {
    Taps back = {.in = t->out, .out = t->in, .width = 1};
    int64_t *count = ARENA_ARRAY(call->arena, int64_t, t->in);
    for (int64_t k = 0; k < t->out * t->width; k++) {
        bool left_out = t->outside && t->outside[k / t->width];
        if (!left_out && ++count[t->index[k]] > back.width) back.width = (int)count[t->index[k]];
    }
    back.index = arena_array(call->arena, (size_t)back.out, (size_t)back.width * sizeof *back.index);
    back.weight = arena_array(call->arena, (size_t)back.out, (size_t)back.width * sizeof *back.weight);
    back.weight_f32 = arena_array(call->arena, (size_t)back.out, (size_t)back.width * sizeof *back.weight_f32);
    memset(back.index, 0, (size_t)(back.out * back.width) * sizeof *back.index);
    memset(back.weight, 0, (size_t)(back.out * back.width) * sizeof *back.weight);
    for (int64_t k = t->out * t->width - 1; k >= 0; k--) {
        if (t->outside && t->outside[k / t->width]) continue;
        int64_t to = t->index[k] * back.width + --count[t->index[k]];
        back.index[to] = k / t->width;
        back.weight[to] = t->weight[k];
    }
    for (int64_t k = 0; k < back.out * back.width; k++) back.weight_f32[k] = (float)back.weight[k];
    *t = back;
}

/* The table of an axis that stays. */
static void identity_taps(HostCall *call, int64_t size, Taps *t) {
    *t = (Taps){size, size, 1, NULL, NULL, NULL, NULL};
    t->index = ARENA_ARRAY(call->arena, int64_t, size);
    for (int64_t i = 0; i < size; i++) t->index[i] = i;
}

/* ---- the kernel ---- */

/* [outer, rows.in, columns.in, inner] -> [outer, rows.out, columns.out, inner] */
typedef struct Pass {
    Taps rows, columns;
    int64_t outer, inner;
    DType dtype;
    const char *x;
    char *y, *blended; /* [workers][columns.in * inner] a row before it is blended along the columns */
    bool moves;        /* nearest: elements are copied */
    bool keeps_columns;
    double fill;
} Pass;

#define DEFINE_BLEND(T, NAME, WEIGHT)                                                                                  \
    VECTORISED static void scale_##NAME(const T *x, T *y, T w, int64_t n) {                                            \
        for (int64_t i = 0; i < n; i++) y[i] = w * x[i];                                                               \
    }                                                                                                                  \
    VECTORISED static void axpy_##NAME(const T *x, T *y, T w, int64_t n) {                                             \
        for (int64_t i = 0; i < n; i++) y[i] += w * x[i];                                                              \
    }                                                                                                                  \
    VECTORISED static void blend2_##NAME(const T *a, const T *b, T *y, T wa, T wb, int64_t n) {                        \
        for (int64_t i = 0; i < n; i++) y[i] = wa * a[i] + wb * b[i];                                                  \
    }                                                                                                                  \
    /* y = sum over k of w[k] * x[index[k] * step] */                                                                  \
    static void blend_##NAME(const T *x, int64_t step, const int64_t *index, const T *w, int width, T *y, int64_t n) { \
        if (width == 2) {                                                                                              \
            blend2_##NAME(x + index[0] * step, x + index[1] * step, y, w[0], w[1], n);                                 \
            return;                                                                                                    \
        }                                                                                                              \
        scale_##NAME(x + index[0] * step, y, w[0], n);                                                                 \
        for (int k = 1; k < width; k++) axpy_##NAME(x + index[k] * step, y, w[k], n);                                  \
    }                                                                                                                  \
    static void blend_columns_##NAME(const Pass *p, const T *x, T *y) {                                                \
        const Taps *t = &p->columns;                                                                                   \
        for (int64_t i = 0; i < t->out; i++) {                                                                         \
            const int64_t *index = t->index + i * t->width;                                                            \
            const T *w = t->WEIGHT + i * t->width;                                                                     \
            if (p->inner > 1) {                                                                                        \
                blend_##NAME(x, p->inner, index, w, t->width, y + i * p->inner, p->inner);                             \
                continue;                                                                                              \
            }                                                                                                          \
            T sum = 0;                                                                                                 \
            for (int k = 0; k < t->width; k++) sum += w[k] * x[index[k]];                                              \
            y[i] = sum;                                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static void resize_row_##NAME(const Pass *p, const T *plane, int64_t row, T *y, T *blended) {                      \
        const Taps *t = &p->rows;                                                                                      \
        int64_t length = p->columns.in * p->inner;                                                                     \
        const T *source = plane + t->index[row * t->width] * length;                                                   \
        if (t->weight) {                                                                                               \
            T *to = p->keeps_columns ? y : blended;                                                                    \
            blend_##NAME(plane, length, t->index + row * t->width, t->WEIGHT + row * t->width, t->width, to, length);  \
            source = to;                                                                                               \
        }                                                                                                              \
        if (!p->keeps_columns) blend_columns_##NAME(p, source, y);                                                     \
    }
DEFINE_BLEND(float, f32, weight_f32)
DEFINE_BLEND(double, f64, weight)

static void move_row(const Pass *p, const char *plane, int64_t row, char *y) {
    size_t size = dtype_size(p->dtype) * (size_t)p->inner;
    const int64_t *index = p->columns.index;
    const char *x = plane + (size_t)(p->rows.index[row] * p->columns.in) * size;
    if (size == 4)
        for (int64_t i = 0; i < p->columns.out; i++) ((uint32_t *)y)[i] = ((const uint32_t *)x)[index[i]];
    else if (size == 1)
        for (int64_t i = 0; i < p->columns.out; i++) y[i] = x[index[i]];
    else
        for (int64_t i = 0; i < p->columns.out; i++) memcpy(y + (size_t)i * size, x + (size_t)index[i] * size, size);
}

static void fill_elements(const Pass *p, char *y, int64_t first, int64_t count) {
    for (int64_t i = first; i < first + count; i++) {
        if (dtype_is_float(p->dtype))
            dtype_store_double(p->dtype, y, i, p->fill);
        else
            dtype_store_int(p->dtype, y, i, (int64_t)fmax(-9e15, fmin(9e15, p->fill)));
    }
}

static void resize_rows(void *context, int64_t begin, int64_t end, int worker) {
    const Pass *p = context;
    size_t size = dtype_size(p->dtype);
    int64_t in_plane = p->rows.in * p->columns.in * p->inner, length = p->columns.out * p->inner;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i % p->rows.out;
        const char *plane = p->x + (size_t)(i / p->rows.out * in_plane) * size;
        char *y = p->y + (size_t)(i * length) * size;
        void *blended = p->blended + (size_t)worker * (size_t)(p->columns.in * p->inner) * size;
        if (p->rows.outside && p->rows.outside[row]) {
            fill_elements(p, y, 0, length);
            continue;
        }
        if (p->moves)
            move_row(p, plane, row, y);
        else if (p->dtype == DT_F32)
            resize_row_f32(p, (const float *)plane, row, (float *)y, blended);
        else
            resize_row_f64(p, (const double *)plane, row, (double *)y, blended);
        for (int64_t k = 0; p->columns.outside && k < p->columns.out; k++)
            if (p->columns.outside[k]) fill_elements(p, y, k * p->inner, p->inner);
    }
}

static Status run_pass(HostCall *call, Pass *p) {
    p->keeps_columns = !p->columns.weight;
    size_t row = (size_t)(p->columns.in * p->inner) * dtype_size(p->dtype);
    p->blended = arena_array(call->arena, (size_t)pool_threads(call->pool), row + 1);
    int64_t work = p->columns.out * p->inner * (p->columns.width + p->rows.width);
    pool_for(call->pool, p->outer * p->rows.out, 1 + 16384 / (work + 1), resize_rows, p);
    return NULL;
}

/* An axis to resize, at run time. */
typedef struct ResizeAxis {
    int axis;
    int64_t place; /* where scales, sizes and roi speak of it */
    int64_t size;
    double scale, roi[2];
} ResizeAxis;

static Status roi_of(HostCall *call, ResizeAxis *a) {
    const Tensor *t = host_input(call, 2);
    int64_t named = attr_int(call->node, "named_axes", 0);
    if (!t) return NULL;
    if (tensor_count(t) != 2 * named) return host_error(call, "roi does not have two numbers for each axis");
    a->roi[0] = dtype_load_double(t->dtype, t->data, a->place);
    a->roi[1] = dtype_load_double(t->dtype, t->data, named + a->place);
    return NULL;
}

/* Reads the node's axes; with keep_aspect_ratio_policy all have one scale. */
static Status resize_axes(HostCall *call, const Tensor *x, ResizeAxis *axes, int *out_count) {
    int count, places_given;
    const int64_t *axis = attr_ints(call->node, "axes", &count),
                  *places = attr_ints(call->node, "places", &places_given);
    const Tensor *scales = host_input(call, 1), *sizes = host_input(call, 3);
    bool larger = strcmp(attr_string(call->node, "keep_aspect_ratio_policy", ""), "not_smaller") == 0;
    int64_t size[MAX_RANK];
    double common = larger ? 0 : INFINITY;
    TRY(host_sizes(call, "size", count, size));
    for (int i = 0; i < count; i++) {
        ResizeAxis *a = &axes[i];
        *a = (ResizeAxis){(int)axis[i], places[i], size[i], (double)size[i] / (double)x->dims[axis[i]], {0, 1}};
        const Tensor *given = scales ? scales : sizes;
        if (given && a->place >= tensor_count(given)) return host_error(call, "scales or sizes has too few elements");
        if (scales) a->scale = dtype_load_double(scales->dtype, scales->data, a->place);
        if (sizes) a->scale = (double)dtype_load_int(sizes->dtype, sizes->data, a->place) / (double)x->dims[axis[i]];
        if (larger ? a->scale > common : a->scale < common) common = a->scale;
        TRY(roi_of(call, a));
    }
    for (int i = 0; sizes && i < count; i++) axes[i].scale = common;
    *out_count = count;
    return NULL;
}

/* image: the sizes before the resizing that is to be undone; NULL: it is to be done. */
static Status axis_taps(HostCall *call, const Sampling *s, const int64_t *dims, const int64_t *image,
                        const ResizeAxis *a, Taps *t) {
    TRY(make_taps(call, s, (image ? image : dims)[a->axis], a->size, a->scale, a->roi, t));
    if (image) transpose_taps(call, t);
    return NULL;
}

static int64_t product(const int64_t *dims, int from, int to) {
    int64_t count = 1;
    for (int i = from; i < to; i++) count *= dims[i];
    return count;
}

/* Resizes from the last axis to the first, neighbours in pairs; the last pass writes the output. */
static Status run_passes(HostCall *call, const Sampling *s, const Tensor *x, const ResizeAxis *axes, int count,
                         const int64_t *image, Tensor *y) {
    int64_t dims[MAX_RANK];
    memcpy(dims, x->dims, sizeof dims);
    const void *source = x->data;
    for (int i = count - 1; i >= 0; i--) {
        bool pair = i > 0 && axes[i - 1].axis == axes[i].axis - 1;
        int last = axes[i].axis, first = pair ? last - 1 : last;
        Pass p = {.outer = product(dims, 0, first),
                  .inner = product(dims, last + 1, x->rank),
                  .dtype = x->dtype,
                  .x = source};
        p.moves = s->mode[0] == 'n' && !image;
        p.fill = attr_float(call->node, "extrapolation_value", 0);
        if (pair) {
            TRY(axis_taps(call, s, dims, image, &axes[i - 1], &p.rows));
            TRY(axis_taps(call, s, dims, image, &axes[i], &p.columns));
        } else if (p.inner > 1) { /* one axis: a row is all that lies within */
            TRY(axis_taps(call, s, dims, image, &axes[i], &p.rows));
            identity_taps(call, 1, &p.columns);
        } else {
            identity_taps(call, 1, &p.rows);
            TRY(axis_taps(call, s, dims, image, &axes[i], &p.columns));
        }
        dims[last] = image ? image[last] : axes[i].size;
        if (pair) i--;
        if (pair) dims[first] = image ? image[first] : axes[i].size;
        size_t bytes;
        TRY(tensor_size_of(x->dtype, x->rank, dims, NULL, &bytes));
        p.y = i == 0 ? y->data : arena_alloc(call->arena, bytes);
        if (bytes) TRY(run_pass(call, &p));
        source = p.y;
    }
    return NULL;
}

static Sampling sampling_of(const HostCall *call) {
    Sampling s = {
        attr_string(call->node, "mode", ""),         attr_string(call->node, "coordinate_transformation_mode", ""),
        attr_string(call->node, "nearest_mode", ""), attr_int(call->node, "antialias", 0),
        attr_int(call->node, "exclude_outside", 0),  attr_float(call->node, "cubic_coeff_a", -0.75)};
    if (s.mode[0] == 'b') s.mode = "linear";
    s.wide = s.mode[0] != 'n' && host_input(call, 0)->dtype == DT_F64;
    return s;
}

/* Leaves out the axes that stay. */
static int active_axes(const int64_t *dims, ResizeAxis *axes, int count) {
    int active = 0;
    for (int i = 0; i < count; i++) {
        bool same =
            axes[i].scale == 1 && axes[i].size == dims[axes[i].axis] && axes[i].roi[0] == 0 && axes[i].roi[1] == 1;
        if (!same) axes[active++] = axes[i];
    }
    return active;
}

Status host_resize(HostCall *call) {
    const Tensor *x;
    Tensor *y;
    ResizeAxis axes[MAX_RANK];
    int64_t dims[MAX_RANK];
    int count = 0;
    TRY(host_tensor(call, 0, DT_NONE, &x));
    TRY(resize_axes(call, x, axes, &count));
    Sampling s = sampling_of(call);
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 0; i < count; i++) dims[axes[i].axis] = axes[i].size;
    int active = active_axes(x->dims, axes, count);
    TRY(host_output(call, 0, x->dtype, x->rank, dims, &y));
    if (y && !active) memcpy(y->data, x->data, tensor_bytes(x));
    if (!y || !active) return NULL;
    const Tensor *source = s.mode[0] == 'n' ? x : host_widened(call, x);
    if (source == x) return run_passes(call, &s, x, axes, active, NULL, y);
    Tensor *wide = tensor_new(call->arena, source->dtype, y->rank, y->dims);
    TRY(run_passes(call, &s, source, axes, active, NULL, wide));
    host_narrow(wide, y);
    return NULL;
}

/* ---- the gradient ---- */

/* Of dy and the further inputs of Resize; the attribute `image` has the sizes of x. */
Status host_resize_gradient(HostCall *call) {
    const Tensor *dy;
    Tensor *dx;
    ResizeAxis axes[MAX_RANK];
    int count = 0;
    TRY(host_tensor(call, 0, DT_NONE, &dy));
    Tensor image = *dy;
    TRY(host_sizes(call, "image", dy->rank, image.dims));
    TRY(resize_axes(call, &image, axes, &count));
    for (int i = 0; i < count; i++)
        if (axes[i].size != dy->dims[axes[i].axis]) return host_error(call, "the gradient has another size");
    Sampling s = sampling_of(call);
    TRY(host_output(call, 0, dy->dtype, dy->rank, image.dims, &dx));
    if (!dx || !tensor_count(dx)) return NULL;
    int active = active_axes(image.dims, axes, count);
    const Tensor *source = host_widened(call, dy);
    Tensor *wide = source == dy ? dx : tensor_new(call->arena, source->dtype, dx->rank, dx->dims);
    if (!tensor_count(dy))
        memset(wide->data, 0, tensor_bytes(wide));
    else if (active)
        TRY(run_passes(call, &s, source, axes, active, image.dims, wide));
    else
        memcpy(wide->data, source->data, tensor_bytes(source));
    if (wide != dx) host_narrow(wide, dx);
    return NULL;
}

static Node *resize_like(Backward *w, const Node *n, const char *op, HostFn host) {
    Value **inputs = ARENA_ARRAY(w->l->arena, Value *, n->input_count);
    for (int i = 1; i < n->input_count; i++) inputs[i] = n->inputs[i];
    inputs[0] = dy(w, n, 0);
    return backward_host(w, n, op, host, inputs, n->input_count);
}

/* Resizing is linear, each axis a matrix of which the table has the rows: the gradient has the columns. */
void back_resize(Backward *w, const Node *n) {
    const Value *x = n->inputs[0];
    for (int i = 1; i < n->input_count; i++)
        if (wants(w, n, i)) unsupported(w->l, "the gradient with respect to scales or a region");
    Node *node = resize_like(w, n, "ResizeGradient", host_resize_gradient);
    if (!node) return;
    node_set_dims(node, "image", (const Dim *const *)x->dims, x->rank);
    give(w, n, 0, host_result_like(w->l, node, x));
}

void back_resize_gradient(Backward *w, const Node *n) {
    Node *node = resize_like(w, n, "Resize", host_resize);
    if (!node) return;
    node_set_float(node, "extrapolation_value", 0);
    give(w, n, 0, host_result_like(w->l, node, n->inputs[0]));
}
