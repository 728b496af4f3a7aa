/* SPDX-License-Identifier: Apache-2.0 */
/* GridSample: values of an image at positions that a grid gives; AffineGrid: such a grid from affine matrices. The
 * kernel of GridSample works channels-last: the taps of a position are worked out once and blended over contiguous
 * channels. */
#include "ops/image/image.h"

#include <math.h>
#include "lowering/gradient.h"
#include "lowering/sizes.h"
#include "ops/image/between.h"

enum { MOST_AXES = 3 };

typedef enum Interpolation { SAMPLE_NEAREST, SAMPLE_LINEAR, SAMPLE_CUBIC } Interpolation;

typedef struct GridSample {
    int axes;                                   /* spatial */
    int64_t in[MOST_AXES], channels, positions; /* positions: of the grid, an image */
    Interpolation mode;
    Outside outside;
    bool align_corners, wide; /* wide: f64, else f32 */
    const void *x, *grid;
    void *y;
} GridSample;

typedef struct AxisTaps {
    int count;
    int64_t index[MOST_TAPS];                   /* -1: zero */
    double weight[MOST_TAPS], slope[MOST_TAPS]; /* slope: derivatives of the weights by the normalised position */
} AxisTaps;

/* Mirrors x at the borders until it lies between them. *rate changes its sign with the direction. */
static double reflected(double x, double low, double high, double *rate) {
    double span = high - low, beyond = x < low ? low - x : x - high;
    if (beyond <= 0) return x;
    if (!(span > 0)) return *rate = 0, low;
    double turns = floor(beyond / span), rest = beyond - turns * span;
    bool even = fmod(turns, 2) == 0;
    if (even) *rate = -*rate;
    return (x < low) == even ? low + rest : high - rest;
}

/* Normalised [-1, 1] to a position among `size` elements; finite, whatever the grid holds. */
static double position_of(const GridSample *g, double normal, int64_t size) {
    double x = g->align_corners ? (normal + 1) / 2 * (double)(size - 1) : ((normal + 1) * (double)size - 1) / 2;
    if (!g->wide) x = (double)(float)x;
    return isnan(x) ? -1e9 : fmax(-1e9, fmin(1e9, x));
}

static int64_t index_of(const GridSample *g, int64_t i, int64_t size) {
    if (i >= 0 && i < size) return i;
    if (g->outside == OUTSIDE_ZEROS) return -1;
    if (g->outside == OUTSIDE_BORDER) return i < 0 ? 0 : size - 1;
    double edge = g->align_corners ? 0 : 0.5, rate = 1;
    int64_t mirrored = (int64_t)reflected((double)i, -edge, (double)(size - 1) + edge, &rate);
    return mirrored < 0 ? 0 : mirrored >= size ? size - 1 : mirrored;
}

/* Keys' cubic convolution with a = -0.75, and its derivative. */
static void cubic_weights(double t, double *weight, double *slope) {
    const double a = -0.75;
    double far0 = t + 1, near1 = 1 - t, far1 = 2 - t;
    weight[0] = ((a * far0 - 5 * a) * far0 + 8 * a) * far0 - 4 * a;
    weight[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    weight[2] = ((a + 2) * near1 - (a + 3)) * near1 * near1 + 1;
    weight[3] = ((a * far1 - 5 * a) * far1 + 8 * a) * far1 - 4 * a;
    slope[0] = (3 * a * far0 - 10 * a) * far0 + 8 * a;
    slope[1] = (3 * (a + 2) * t - 2 * (a + 3)) * t;
    slope[2] = -(3 * (a + 2) * near1 - 2 * (a + 3)) * near1;
    slope[3] = -(3 * a * far1 - 10 * a) * far1 - 8 * a;
}

static AxisTaps taps_at(const GridSample *g, double normal, int64_t size) {
    AxisTaps taps = {.count = 1, .weight = {1}};
    double x = position_of(g, normal, size), edge = g->align_corners ? 0 : 0.5;
    double rate = (double)(g->align_corners ? size - 1 : size) / 2;
    if (g->mode == SAMPLE_NEAREST) x = nearbyint(x);
    /* With a border, cubic clamps each of the four elements and not the position, as PyTorch and ONNX Runtime do;
     * ONNX's reference implementation clamps the position and so differs within two elements outside. */
    if (x < -edge || x > (double)(size - 1) + edge) {
        if (g->outside == OUTSIDE_BORDER && g->mode != SAMPLE_CUBIC) x = x < 0 ? 0 : (double)(size - 1), rate = 0;
        if (g->outside == OUTSIDE_REFLECTION) x = reflected(x, -edge, (double)(size - 1) + edge, &rate);
    }
    double whole = g->mode == SAMPLE_NEAREST ? x : floor(x);
    int64_t first = (int64_t)whole;
    if (g->mode == SAMPLE_LINEAR) {
        taps.count = 2;
        taps.weight[0] = 1 - (x - whole);
        taps.weight[1] = x - whole;
        taps.slope[0] = -rate;
        taps.slope[1] = rate;
    } else if (g->mode == SAMPLE_CUBIC) {
        taps.count = 4;
        cubic_weights(x - whole, taps.weight, taps.slope);
        for (int k = 0; k < taps.count; k++) taps.slope[k] *= rate;
        first--;
    }
    for (int k = 0; k < taps.count; k++) taps.index[k] = index_of(g, first + k, size);
    return taps;
}

#define DEFINE_ADD(T, NAME)                                                                                            \
    VECTORISED static void add_scaled_##NAME(const T *x, T w, T *y, int64_t n) {                                       \
        for (int64_t i = 0; i < n; i++) y[i] += w * x[i];                                                              \
    }
DEFINE_ADD(float, f32)
DEFINE_ADD(double, f64)

/* The taps of a position along each axis; returns how many combinations there are. */
static int64_t position_taps(const GridSample *g, int64_t at, AxisTaps *taps) {
    int64_t combinations = 1;
    for (int i = 0; i < g->axes; i++) { /* the grid names the innermost axis first */
        int64_t k = at * g->axes + g->axes - 1 - i;
        taps[i] = taps_at(g, g->wide ? ((const double *)g->grid)[k] : (double)((const float *)g->grid)[k], g->in[i]);
        combinations *= taps[i].count;
    }
    return combinations;
}

static void sample_position(const GridSample *g, int64_t at) {
    AxisTaps taps[MOST_AXES];
    int64_t image = at / g->positions, combinations = position_taps(g, at, taps), size = g->wide ? 8 : 4;
    char *y = (char *)g->y + at * g->channels * size;
    memset(y, 0, (size_t)(g->channels * size));
    for (int64_t c = 0; c < combinations; c++) {
        int64_t rest = c, place = image;
        double weight = 1;
        bool zero = false;
        for (int i = 0; i < g->axes; i++) {
            int64_t k = rest % taps[i].count;
            rest /= taps[i].count;
            zero |= taps[i].index[k] < 0;
            place = place * g->in[i] + taps[i].index[k];
            weight *= taps[i].weight[k];
        }
        if (zero) continue;
        const char *x = (const char *)g->x + place * g->channels * size;
        if (g->wide)
            add_scaled_f64((const double *)x, weight, (double *)y, g->channels);
        else
            add_scaled_f32((const float *)x, (float)weight, (float *)y, g->channels);
    }
}

static void sample_positions(void *context, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t at = begin; at < end; at++) sample_position(context, at);
}

static bool parse_modes(const Node *n, GridSample *g) {
    static const char *const modes[] = {"nearest", "bilinear", "bicubic", "nearest", "linear", "cubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    const char *mode = attr_string(n, "mode", "linear"), *padding = attr_string(n, "padding_mode", "zeros");
    int m = 0, p = 0;
    while (m < 6 && strcmp(mode, modes[m]) != 0) m++;
    while (p < 3 && strcmp(padding, paddings[p]) != 0) p++;
    g->mode = (Interpolation)(m % 3);
    g->outside = (Outside)(p % 3);
    g->align_corners = attr_int(n, "align_corners", 0) != 0;
    return m < 6 && p < 3;
}

/* The inputs x [N, spatial..., C] and grid [N, positions..., axes], both f32 or both f64; dims: of the result. */
static Status grid_sample_of(HostCall *call, GridSample *g, int64_t *dims) {
    const Tensor *x, *grid;
    TRY(host_tensor(call, 0, DT_NONE, &x));
    TRY(host_tensor(call, 1, x->dtype, &grid));
    *g = (GridSample){.axes = x->rank - 2, .wide = x->dtype == DT_F64, .x = x->data, .grid = grid->data};
    if (g->axes < 1 || g->axes > MOST_AXES || grid->rank != x->rank || grid->dims[grid->rank - 1] != g->axes ||
        grid->dims[0] != x->dims[0] || (x->dtype != DT_F32 && x->dtype != DT_F64) || !parse_modes(call->node, g))
        return host_error(call, "the grid does not fit the input");
    g->channels = x->dims[x->rank - 1];
    g->positions = 1;
    memcpy(dims, grid->dims, sizeof grid->dims);
    dims[x->rank - 1] = g->channels;
    for (int i = 0; i < g->axes; i++) {
        g->in[i] = x->dims[1 + i];
        g->positions *= dims[1 + i];
    }
    return NULL;
}

Status host_grid_sample(HostCall *call) {
    const Tensor *x = host_input(call, 0);
    Tensor *y;
    GridSample g;
    int64_t dims[MAX_RANK];
    TRY(grid_sample_of(call, &g, dims));
    TRY(host_output(call, 0, x->dtype, x->rank, dims, &y));
    if (!y || !tensor_count(y)) return NULL;
    if (!tensor_count(x)) return host_error(call, "the input is empty");
    g.y = y->data;
    pool_for(call->pool, x->dims[0] * g.positions, 1 + 4096 / (g.channels + 1), sample_positions, &g);
    return NULL;
}

/* ---- the gradient ---- */

typedef struct GridGradient {
    GridSample g;
    const Tensor *x, *dy;
    Tensor *dx, *dgrid;
    int64_t blocks; /* of channels an image */
} GridGradient;

enum { BLOCK = 16 }; /* channels that one task adds to: positions share elements of the image */

/* What a combination of taps reads: its row of channels in x, -1 for zeros; and its weight, or, for `axis` >= 0, the derivative by the
 * position along that axis. */
static int64_t combined(const GridSample *g, const AxisTaps *taps, int64_t image, int64_t c, int axis,
                        double *out_weight) {
    int64_t place = image;
    *out_weight = 1;
    for (int i = 0; i < g->axes; i++) {
        int64_t k = c % taps[i].count;
        c /= taps[i].count;
        if (taps[i].index[k] < 0) return -1;
        place = place * g->in[i] + taps[i].index[k];
        *out_weight *= i == axis ? taps[i].slope[k] : taps[i].weight[k];
    }
    return place;
}

static void give_image(void *context, int64_t begin, int64_t end, int worker) {
    const GridGradient *b = context;
    const GridSample *g = &b->g;
    int64_t plane = tensor_count(b->x) / b->x->dims[0] / g->channels;
    (void)worker;
    for (int64_t task = begin; task < end; task++) {
        int64_t image = task / b->blocks, from = task % b->blocks * BLOCK;
        int64_t count = g->channels - from < BLOCK ? g->channels - from : BLOCK;
        for (int64_t i = image * plane; i < (image + 1) * plane; i++)
            for (int64_t k = 0; k < count; k++)
                dtype_store_double(b->dx->dtype, b->dx->data, i * g->channels + from + k, 0);
        for (int64_t at = image * g->positions; at < (image + 1) * g->positions; at++) {
            AxisTaps taps[MOST_AXES];
            int64_t combinations = position_taps(g, at, taps);
            for (int64_t c = 0; c < combinations; c++) {
                double weight;
                int64_t place = combined(g, taps, image, c, -1, &weight);
                if (place < 0) continue;
                if (g->wide)
                    add_scaled_f64((const double *)b->dy->data + at * g->channels + from, weight,
                                   (double *)b->dx->data + place * g->channels + from, count);
                else
                    add_scaled_f32((const float *)b->dy->data + at * g->channels + from, (float)weight,
                                   (float *)b->dx->data + place * g->channels + from, count);
            }
        }
    }
}

static void give_grid(void *context, int64_t begin, int64_t end, int worker) {
    const GridGradient *b = context;
    const GridSample *g = &b->g;
    (void)worker;
    for (int64_t at = begin; at < end; at++) {
        AxisTaps taps[MOST_AXES];
        int64_t combinations = position_taps(g, at, taps);
        for (int axis = 0; axis < g->axes; axis++) {
            double sum = 0;
            for (int64_t c = 0; c < combinations; c++) {
                double weight, product = 0;
                int64_t place = combined(g, taps, at / g->positions, c, axis, &weight);
                if (place < 0 || weight == 0) continue;
                for (int64_t k = 0; k < g->channels; k++)
                    product += dtype_load_double(b->x->dtype, b->x->data, place * g->channels + k) *
                               dtype_load_double(b->dy->dtype, b->dy->data, at * g->channels + k);
                sum += weight * product;
            }
            dtype_store_double(b->dgrid->dtype, b->dgrid->data, at * g->axes + g->axes - 1 - axis, sum);
        }
    }
}

/* Inputs x, grid and dy; outputs the gradients of the first two. */
Status host_grid_sample_gradient(HostCall *call) {
    GridGradient b = {.x = host_input(call, 0)};
    int64_t dims[MAX_RANK];
    TRY(grid_sample_of(call, &b.g, dims));
    TRY(host_tensor(call, 2, b.x->dtype, &b.dy));
    if (tensor_count(b.dy) != b.x->dims[0] * b.g.positions * b.g.channels)
        return host_error(call, "the gradient does not fit the grid");
    const Tensor *grid = host_input(call, 1);
    TRY(host_output(call, 0, b.x->dtype, b.x->rank, b.x->dims, &b.dx));
    TRY(host_output(call, 1, b.x->dtype, grid->rank, grid->dims, &b.dgrid));
    if (!tensor_count(b.x)) {
        if (b.dgrid) memset(b.dgrid->data, 0, tensor_bytes(b.dgrid));
        return NULL;
    }
    b.blocks = (b.g.channels + BLOCK - 1) / BLOCK;
    if (b.dx) pool_for(call->pool, b.x->dims[0] * b.blocks, 1, give_image, &b);
    if (b.dgrid) pool_for(call->pool, b.x->dims[0] * b.g.positions, 1 + 4096 / (b.g.channels + 1), give_grid, &b);
    return NULL;
}

/* y = sum of weight(grid) x: dx adds weight dy, dgrid sums weight' x dy (Jaderberg et al., "Spatial Transformer Networks", 2015, equations 6
 * and 7). */
void back_grid_sample(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *inputs[] = {n->inputs[0], n->inputs[1], dy(w, n, 0)};
    Node *node = backward_host(w, n, "GridSampleGradient", host_grid_sample_gradient, inputs, 3);
    for (int i = 0; node && i < 2; i++) {
        if (wants(w, n, i))
            give(w, n, i, host_result_like(l, node, n->inputs[i]));
        else
            node_attach_output(node, NULL);
    }
}

/* ---- in primitives: the same, which has a gradient in any operators ---- */

/* The weights of cubic_weights, at t between the second and the third element. */
static void told_cubic_weights(Lowering *l, Value *t, Value **weights) {
    const double a = -0.75, near[] = {a + 2, -(a + 3), 0, 1}, far[] = {a, -5 * a, 8 * a, -4 * a};
    for (int k = 0; k < 4; k++) { /* by the distances t + 1, t, 1 - t, 2 - t */
        const double *factors = k == 1 || k == 2 ? near : far;
        Value *distance = unary(l, PRIM_ABS, sub(l, t, scalar(l, DT_F64, k - 1))), *sum = scalar(l, DT_F64, factors[0]);
        for (int i = 1; i < 4; i++) sum = add(l, mul(l, sum, distance), scalar(l, DT_F64, factors[i]));
        weights[k] = sum;
    }
}

/* As taps_at does; normal: f64 [N, positions...]. */
static Taps told_taps(Lowering *l, const GridSample *g, Value *normal, const Dim *size, DType dtype) {
    Value *one = scalar(l, DT_F64, 1), *half = scalar(l, DT_F64, 0.5), *end = axis_end(l, size), *weights[MOST_TAPS];
    ImageAxis axis = {size, g->outside, g->align_corners ? 0 : 0.5};
    Value *low = scalar(l, DT_F64, -axis.edge), *high = add(l, end, scalar(l, DT_F64, axis.edge));
    Value *x = mul(l, mul(l, add(l, normal, one), half), sub(l, high, low));
    x = bounded_position(l, cast(l, cast(l, add(l, x, low), dtype), DT_F64));
    if (g->mode == SAMPLE_NEAREST) x = unary(l, PRIM_ROUND, x);
    if (g->outside == OUTSIDE_BORDER && g->mode != SAMPLE_CUBIC) {
        x = where(l, binary(l, PRIM_LT, x, low), scalar(l, DT_F64, 0), x);
        x = where(l, binary(l, PRIM_GT, x, high), end, x);
    }
    if (g->outside == OUTSIDE_REFLECTION) x = mirrored(l, x, &axis);
    if (g->mode == SAMPLE_LINEAR) return linear_taps(l, x, &axis, dtype);
    Value *whole = unary(l, PRIM_FLOOR, x), *t = sub(l, x, whole);
    if (g->mode == SAMPLE_NEAREST) return neighbours(l, whole, (Value *[]){sub(l, one, t)}, 1, &axis, dtype);
    told_cubic_weights(l, t, weights);
    return neighbours(l, sub(l, whole, one), weights, MOST_TAPS, &axis, dtype);
}

/* x and the result channels-last. */
static Value *told_grid_sample(Lowering *l, const GridSample *g, Value *x, Value *grid) {
    Taps taps[MOST_AXES];
    int last = grid->rank - 1;
    Value *wide = cast(l, grid, DT_F64);
    for (int i = 0; i < last - 1; i++) { /* the grid names the innermost axis first */
        Value *normal = slice_axis(l, wide, last, size_const(l, last - 2 - i), size_const(l, 1));
        taps[i] = told_taps(l, g, squeeze(l, normal, &last, 1), x->dims[1 + i], x->dtype);
    }
    const Dim **positions = dims_copy(l, grid, last);
    for (int i = 1; i < last; i++) positions[i] = size_const(l, 1);
    Between b = between(l, x, iota(l, positions, last, 0, DT_I64), taps);
    return blended(l, &b);
}

Status lower_grid_sample(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *grid = in(l, n, 1);
    GridSample modes = {0};
    if (!x || !grid) return l->error;
    if (x->rank < 3 || x->rank > 2 + MOST_AXES) return unsupported(l, "an input of rank %d (3 to 5 are)", x->rank);
    if (grid->rank != x->rank || !sizes_agree(grid->dims[x->rank - 1], size_const(l, x->rank - 2)) ||
        !sizes_agree(grid->dims[0], x->dims[0]))
        return invalid(l, "the grid does not fit the input");
    if (!parse_modes(n, &modes)) return invalid(l, "mode or padding_mode is not known");
    DType work = x->dtype == DT_F64 || (dtype_is_integer(x->dtype) && dtype_size(x->dtype) > 2) ? DT_F64 : DT_F32;
    Value *inputs[] = {to_channels_last(l, cast(l, x, work)), cast(l, grid, work)};
    if (l->error) return l->error;
    const Dim **dims = dims_copy(l, grid, grid->rank);
    dims[x->rank - 1] = x->dims[1];
    Value *y = lowers_to_standard(l)
                   ? told_grid_sample(l, &modes, inputs[0], inputs[1])
                   : host_result(l, host_node(l, n, host_grid_sample, inputs, 2), work, x->rank, dims);
    return out(l, n, 0, cast_like(l, from_channels_last(l, y), x));
}

/* ---- AffineGrid ---- */

/* The positions along spatial axis i of `axes` as [1, .., size, .., 1, 1], from -1 to 1: (2 k - (size - 1)) / (align ?
 * size - 1 : size). */
static Value *ramp(Lowering *l, const Dim *size, int i, int axes, bool align, DType dtype) {
    const Dim *shape[MOST_AXES + 2], *one = size_const(l, 1), *last = size_sub(l, size, one);
    for (int k = 0; k < axes + 2; k++) shape[k] = k == i + 1 ? size : one;
    Value *twice = mul(l, iota(l, shape, axes + 2, i + 1, dtype), scalar(l, dtype, 2));
    const Dim *span = align ? dim_max(l->dims, last, one) : size;
    return divide(l, sub(l, twice, cast(l, dim_scalar(l, last), dtype)), cast(l, dim_scalar(l, span), dtype));
}

/* grid[n, .., j] = sum over axes of theta[n, j, axis] * position(axis) + theta[n, j, last] (ONNX AffineGrid-20). */
Status lower_affine_grid(Lowering *l, const Node *n) {
    Value *theta = in(l, n, 0), *given = in(l, n, 1);
    int count;
    if (!theta || !given) return l->error;
    int64_t rows;
    if (theta->rank == 3 && dim_is_const(theta->dims[1], &rows)) given = with_length(l, given, (int)rows + 2);
    const Dim *const *size = sizes_of(l, given, "grid", &count);
    if (!size) return l->error;
    int axes = count - 2;
    if (axes < 2 || axes > MOST_AXES || theta->rank != 3)
        return invalid(l, "theta has rank %d, size %d elements", theta->rank, count);
    bool align = attr_int(n, "align_corners", 0) != 0;
    Value *wide = widen(l, theta), *y = NULL;
    const Dim *shape[MOST_AXES + 2];
    if (!wide) return l->error;
    for (int k = 0; k < axes + 2; k++)
        shape[k] = k == 0 ? theta->dims[0] : k == axes + 1 ? theta->dims[1] : size_const(l, 1);
    for (int column = 0; column <= axes;
         column++) { /* column 0 scales the innermost axis; the last is the translation */
        Value *factor = reshape(l, slice_axis(l, wide, 2, size_const(l, column), size_const(l, 1)), shape, axes + 2);
        int axis = axes - 1 - column;
        Value *term = column == axes ? factor : mul(l, factor, ramp(l, size[2 + axis], axis, axes, align, wide->dtype));
        y = y ? add(l, y, term) : term;
    }
    return out(l, n, 0, cast_like(l, y, theta));
}
