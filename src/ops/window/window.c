/* SPDX-License-Identifier: Apache-2.0 */
/* Sliding windows: pooling (host kernels in pooling.c, channels-last), global pooling as reductions, MaxUnpool,
 * MaxRoiPool, Col2Im. */
#include "ops/window/window.h"

#include <math.h>
#include "lowering/gradient.h"
#include "lowering/sizes.h"
#include "ops/linear/geometry.h"
#include "ops/families.h"

/* ---- pooling ---- */

/* f16 and bf16 go through f32: maxima are exact, averages rounded once. */
static Value *pooled_type(Lowering *l, Value *x) {
    bool small = x->dtype == DT_F16 || x->dtype == DT_BF16;
    return small && !keeps_small_floats(l) ? cast(l, x, DT_F32) : x;
}

/* Of the channels-first x, as node n's attributes say; the maxima's places through out_places, where they are wanted. */
static Value *pooled(Lowering *l, const Node *n, Value *x, HostFn kernel, Value **out_places) {
    if (l->error || !x) return NULL;
    int spatial = x->rank - 2;
    bool small = x->dtype == DT_I8 || x->dtype == DT_U8;
    if (!dtype_is_float(x->dtype) && !(small && kernel == host_max_pool))
        return unsupported(l, "elements of type %s", dtype_onnx_name(x->dtype)), NULL;
    if (spatial < 1 || spatial > 3) return unsupported(l, "an input of rank %d (3 to 5 are)", x->rank), NULL;
    Geometry g;
    const Dim *window[MAX_SPATIAL];
    int64_t kernel_shape[MAX_SPATIAL];
    if (kernel_shape_of(l, n, spatial, window) || geometry_of(l, n, spatial, x->dims + 2, window, WINDOW_POOL, &g))
        return NULL;
    for (int i = 0; i < spatial; i++) dim_is_const(window[i], &kernel_shape[i]);
    Value *last = to_channels_last(l, pooled_type(l, x));
    if (!last) return NULL;
    Node *host = host_node(l, n, kernel, &last, 1);
    node_set_ints(host, "kernel_shape", kernel_shape, spatial);
    node_set_ints(host, "strides", g.strides, spatial);
    node_set_ints(host, "dilations", g.dilations, spatial);
    node_set_dims(host, "pads", g.pads, 2 * spatial);
    node_set_dims(host, "size", g.size, spatial);
    const Dim **dims = dims_copy(l, last, last->rank);
    for (int i = 0; i < spatial; i++) dims[1 + i] = g.size[i];
    Value *y = host_result(l, host, last->dtype, last->rank, dims);
    if (out_places) *out_places = from_channels_last(l, host_result(l, host, DT_I64, last->rank, dims));
    return cast_like(l, from_channels_last(l, y), x);
}

Value *average_pool(Lowering *l, const Node *n, Value *x) { return pooled(l, n, x, host_average_pool, NULL); }

static Status lower_pool(Lowering *l, const Node *n, HostFn kernel) {
    bool placed = kernel == host_max_pool && wants_output(n, 1);
    Value *places, *y = pooled(l, n, in(l, n, 0), kernel, placed ? &places : NULL);
    if (l->error) return l->error;
    if (placed) TRY(out(l, n, 1, places));
    return wants_output(n, 0) ? out(l, n, 0, y) : l->error;
}

static Status lower_max_pool(Lowering *l, const Node *n) { return lower_pool(l, n, host_max_pool); }
static Status lower_average_pool(Lowering *l, const Node *n) { return lower_pool(l, n, host_average_pool); }

/* com.microsoft's, of channels-last data. */
static Status lower_nhwc_max_pool(Lowering *l, const Node *n) {
    Value *y = pooled(l, n, from_channels_last(l, in(l, n, 0)), host_max_pool, NULL);
    return out(l, n, 0, y ? to_channels_last(l, y) : NULL);
}

static Status lower_lp_pool(Lowering *l, const Node *n) {
    if (!(attr_float(n, "p", 2) > 0)) return invalid(l, "p must be positive");
    return lower_pool(l, n, host_lp_pool);
}

/* All axes from the third on. */
static Value *spatial_axes(Lowering *l, const Node *n, int *axes, int *out_count) {
    Value *x = in(l, n, 0);
    if (!x) return NULL;
    if (x->rank < 3) {
        invalid(l, "the input has rank %d; a batch, channels and at least one more axis are needed", x->rank);
        return NULL;
    }
    *out_count = x->rank - 2;
    for (int i = 2; i < x->rank; i++) axes[i - 2] = i;
    return x;
}

static Status lower_global_average(Lowering *l, const Node *n) {
    int axes[MAX_RANK], count;
    Value *x = spatial_axes(l, n, axes, &count);
    return x ? out(l, n, 0, cast_like(l, mean(l, widen(l, x), axes, count, true), x)) : l->error;
}

static Status lower_global_max(Lowering *l, const Node *n) {
    int axes[MAX_RANK], count;
    Value *x = spatial_axes(l, n, axes, &count);
    return x ? out(l, n, 0, reduce(l, PRIM_REDUCE_MAX, x, axes, count, true)) : l->error;
}

/* (sum |x|^p)^(1/p) */
static Status lower_global_lp(Lowering *l, const Node *n) {
    int axes[MAX_RANK], count;
    Value *x = spatial_axes(l, n, axes, &count);
    double p = attr_float(n, "p", 2);
    if (!x) return l->error;
    if (!(p > 0)) return invalid(l, "p must be positive");
    Value *size = unary(l, PRIM_ABS, widen(l, x));
    if (!size) return l->error;
    Value *power = p == 1 ? size : p == 2 ? mul(l, size, size) : binary(l, PRIM_POW, size, like(l, size, p));
    Value *sum = reduce(l, PRIM_REDUCE_SUM, power, axes, count, true);
    if (!sum) return l->error;
    Value *root = p == 1 ? sum : p == 2 ? unary(l, PRIM_SQRT, sum) : binary(l, PRIM_POW, sum, like(l, sum, 1 / p));
    return out(l, n, 0, cast_like(l, root, x));
}

/* ---- MaxUnpool ---- */

/* The maxima go back to their places in a tensor of zeros of the size that pooling would have started from; an
 * output_shape that is larger adds zeros at the ends (ONNX MaxUnpool-22). */
static Status lower_max_unpool(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *places = in(l, n, 1), *shape = optional_in(l, n, 2);
    if (!x || !places) return l->error;
    int spatial = x->rank - 2, count;
    if (spatial < 1 || places->rank != x->rank)
        return invalid(l, "the input has rank %d, the indices %d", x->rank, places->rank);
    int64_t strides[MAX_SPATIAL], pads[2 * MAX_SPATIAL];
    const Dim *kernel[MAX_SPATIAL], **dims = dims_copy(l, x, x->rank);
    TRY(kernel_shape_of(l, n, spatial, kernel));
    TRY(spatial_ints(l, n, "strides", spatial, 1, 1, strides));
    TRY(spatial_ints(l, n, "pads", 2 * spatial, 0, 0, pads));
    for (int i = 0; i < spatial; i++) {
        const Dim *steps = size_mul(l, size_sub(l, x->dims[2 + i], size_const(l, 1)), size_const(l, strides[i]));
        dims[2 + i] = size_sub(l, size_add(l, steps, kernel[i]), size_const(l, pads[i] + pads[spatial + i]));
    }
    const Dim *total = dim_product(l->dims, dims, x->rank);
    Value *zeros = expand(l, like(l, x, 0), &total, 1);
    Value *flat =
        scatter_elements(l, zeros, flatten_to(l, places, 0, x->rank), flatten_to(l, x, 0, x->rank), 0, "none");
    Value *y = reshape(l, flat, dims, x->rank);
    if (!shape || !y) return out(l, n, 0, y);
    const Dim *const *wanted = sizes_of(l, shape, "unpooled", &count);
    if (!wanted) return l->error;
    if (count != x->rank) return invalid(l, "output_shape has %d elements instead of %d", count, x->rank);
    const Dim **before = size_array(l, count), **after = size_array(l, count);
    for (int i = 0; i < count; i++) {
        before[i] = size_const(l, 0);
        after[i] = size_sub(l, wanted[i], dims[i]);
    }
    return out(l, n, 0, pad(l, y, before, after, like(l, x, 0)));
}

/* ---- MaxRoiPool ---- */

typedef struct RoiPool {
    const Tensor *x, *rois;
    int64_t pooled[2];
    float scale, *y;
    int64_t *places; /* of the maxima in x, -1 where a bin is empty; NULL: not asked for */
} RoiPool;

/* The cells [from, to) of bin `index` of `bins` over the region [start, start + length), within [0, limit). */
static void bin_range(int64_t start, int64_t length, int64_t index, int64_t bins, int64_t limit, int64_t *from,
                      int64_t *to) {
    double bin = (double)length / (double)bins;
    double low = floor((double)index * bin) + (double)start, high = ceil((double)(index + 1) * bin) + (double)start;
    *from = low < 0 ? 0 : low > (double)limit ? limit : (int64_t)low;
    *to = high < 0 ? 0 : high > (double)limit ? limit : (int64_t)high;
}

static void roi_pool_rows(void *context, int64_t begin, int64_t end, int worker) {
    const RoiPool *p = context;
    int64_t channels = p->x->dims[1], height = p->x->dims[2], width = p->x->dims[3];
    (void)worker;
    for (int64_t row = begin; row < end; row++) {
        const float *roi = (const float *)p->rois->data + row / channels * 5;
        int64_t edges[4], y0, y1, x0, x1; /* x1, y1, x2, y2 of the region, in cells */
        for (int i = 0; i < 4; i++) edges[i] = (int64_t)fmaxf(-1e9f, fminf(1e9f, roundf(roi[1 + i] * p->scale)));
        int64_t w = edges[2] - edges[0] + 1, h = edges[3] - edges[1] + 1;
        const float *plane = (const float *)p->x->data + ((int64_t)roi[0] * channels + row % channels) * height * width;
        int64_t bins = row * p->pooled[0] * p->pooled[1], start = plane - (const float *)p->x->data;
        for (int64_t i = 0; i < p->pooled[0] * p->pooled[1]; i++) {
            bin_range(edges[1], h > 1 ? h : 1, i / p->pooled[1], p->pooled[0], height, &y0, &y1);
            bin_range(edges[0], w > 1 ? w : 1, i % p->pooled[1], p->pooled[1], width, &x0, &x1);
            float most = y0 < y1 && x0 < x1 ? -INFINITY : 0;
            int64_t place = -1;
            for (int64_t r = y0; r < y1; r++)
                for (int64_t c = x0; c < x1; c++)
                    if (plane[r * width + c] > most) most = plane[r * width + c], place = start + r * width + c;
            if (p->y) p->y[bins + i] = most;
            if (p->places) p->places[bins + i] = place;
        }
    }
}

static Status host_max_roi_pool(HostCall *call) {
    RoiPool p = {.scale = (float)attr_float(call->node, "spatial_scale", 1)};
    Tensor *y, *places = NULL;
    int count;
    TRY(host_tensor(call, 0, DT_F32, &p.x));
    TRY(host_tensor(call, 1, DT_F32, &p.rois));
    const int64_t *pooled = attr_ints(call->node, "pooled_shape", &count);
    if (count != 2 || p.x->rank != 4 || p.rois->rank != 2 || p.rois->dims[1] != 5)
        return host_error(call, "the inputs do not fit together");
    p.pooled[0] = pooled[0], p.pooled[1] = pooled[1];
    int64_t rois = p.rois->dims[0], channels = p.x->dims[1];
    for (int64_t i = 0; i < rois; i++) {
        float image = ((const float *)p.rois->data)[i * 5];
        if (!(image >= 0 && image < (float)p.x->dims[0]))
            return host_error(call, "region %lld names an image out of range", (long long)i);
    }
    int64_t dims[] = {rois, channels, pooled[0], pooled[1]};
    TRY(host_output(call, 0, DT_F32, 4, dims, &y));
    if (call->node->output_count > 1) TRY(host_output(call, 1, DT_I64, 4, dims, &places));
    p.y = y ? y->data : NULL;
    p.places = places ? places->data : NULL;
    pool_for(call->pool, rois * channels, 4, roi_pool_rows, &p);
    return NULL;
}

/* To the maxima, which a second run of the kernel finds. The regions, which it rounds, have none. */
static void back_max_roi_pool(Backward *w, const Node *n) {
    Lowering *l = w->l;
    const Value *y = n->outputs[0];
    Node *pool = backward_host(w, n, n->op, host_max_roi_pool, n->inputs, 2);
    host_result_like(l, pool, y);
    Value *places = host_result(l, pool, DT_I64, y->rank, (const Dim *const *)y->dims),
          *zero = scalar_int(l, DT_I64, 0);
    Value *found = binary(l, PRIM_GE, places, zero), *part = where(l, found, dy(w, n, 0), like(l, y, 0));
    give(w, n, 0, added_at(l, n->inputs[0], maximum(l, places, zero), part));
}

static Status lower_max_roi_pool(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *rois = in(l, n, 1);
    int64_t pooled[2];
    int given;
    if (!x || !rois) return l->error;
    attr_ints(n, "pooled_shape", &given);
    if (x->rank != 4 || rois->rank != 2 || given != 2)
        return invalid(l, "needs images of rank 4, regions of rank 2 and a pooled_shape of 2");
    TRY(spatial_ints(l, n, "pooled_shape", 2, 1, 1, pooled));
    Value *inputs[] = {cast(l, x, DT_F32), cast(l, rois, DT_F32)};
    if (l->error) return l->error;
    const Dim *dims[] = {rois->dims[0], x->dims[1], size_const(l, pooled[0]), size_const(l, pooled[1])};
    Value *y = host_result(l, host_node(l, n, host_max_roi_pool, inputs, 2), DT_F32, 4, dims);
    return out(l, n, 0, cast_like(l, y, x));
}

/* ---- Col2Im ---- */

typedef struct Columns {
    int spatial;
    int64_t taps, blocks, plane; /* elements of the kernel, blocks an image, elements of a channel's image */
    int64_t image[MAX_SPATIAL], block[MAX_SPATIAL], count[MAX_SPATIAL], strides[MAX_SPATIAL], dilations[MAX_SPATIAL],
        pads[2 * MAX_SPATIAL];
    DType dtype; /* f32 or f64 */
    const void *x;
    void *y;
} Columns;

/* Where tap `tap` of block `block` falls in the image; -1 in the padding. */
static int64_t column_place(const Columns *c, int64_t tap, int64_t block) {
    int64_t place = 0, scale = 1;
    for (int i = c->spatial - 1; i >= 0; i--) {
        int64_t at = block % c->count[i] * c->strides[i] + tap % c->block[i] * c->dilations[i] - c->pads[i];
        if (at < 0 || at >= c->image[i]) return -1;
        place += at * scale;
        scale *= c->image[i];
        block /= c->count[i];
        tap /= c->block[i];
    }
    return place;
}

static void fold_columns(void *context, int64_t begin, int64_t end, int worker) {
    const Columns *c = context;
    (void)worker;
    for (int64_t p = begin; p < end; p++) {
        memset((char *)c->y + (size_t)(p * c->plane) * dtype_size(c->dtype), 0,
               (size_t)c->plane * dtype_size(c->dtype));
        for (int64_t i = 0; i < c->taps * c->blocks; i++) {
            int64_t place = column_place(c, i / c->blocks, i % c->blocks), from = p * c->taps * c->blocks + i;
            if (place < 0) continue;
            if (c->dtype == DT_F32)
                ((float *)c->y)[p * c->plane + place] += ((const float *)c->x)[from];
            else
                ((double *)c->y)[p * c->plane + place] += ((const double *)c->x)[from];
        }
    }
}

static void copy_ints(const Node *node, const char *name, int count, int64_t *to) {
    int given;
    const int64_t *from = attr_ints(node, name, &given);
    for (int i = 0; i < count && i < given; i++) to[i] = from[i];
}

static Status columns_of(HostCall *call, const Tensor *x, Columns *c) {
    int count;
    attr_dims(call->node, "image", &count);
    *c = (Columns){.spatial = count, .taps = 1, .blocks = 1, .plane = 1, .dtype = x->dtype, .x = x->data};
    if (x->dtype != DT_F32 && x->dtype != DT_F64)
        return host_error(call, "does not take elements of type %s", dtype_onnx_name(x->dtype));
    if (count < 1 || count > MAX_SPATIAL) return host_error(call, "an image has %d axes", count);
    TRY(host_sizes(call, "image", count, c->image));
    TRY(host_sizes(call, "block", count, c->block));
    copy_ints(call->node, "strides", count, c->strides);
    copy_ints(call->node, "dilations", count, c->dilations);
    copy_ints(call->node, "pads", 2 * count, c->pads);
    for (int i = 0; i < c->spatial; i++) {
        if (c->image[i] < 1 || c->block[i] < 1 || c->image[i] > INT32_MAX || c->block[i] > INT32_MAX)
            return host_error(call, "image or block size %d is out of range", i);
        int64_t room = c->image[i] + c->pads[i] + c->pads[c->spatial + i] - (c->block[i] - 1) * c->dilations[i] - 1;
        c->count[i] = room < 0 ? 0 : room / c->strides[i] + 1;
        if (__builtin_mul_overflow(c->taps, c->block[i], &c->taps) ||
            __builtin_mul_overflow(c->blocks, c->count[i], &c->blocks) ||
            __builtin_mul_overflow(c->plane, c->image[i], &c->plane))
            return host_error(call, "the image is too large");
    }
    return NULL;
}

static Status host_col2im(HostCall *call) {
    const Tensor *x;
    Tensor *y;
    Columns c;
    TRY(host_tensor(call, 0, DT_NONE, &x));
    TRY(columns_of(call, x, &c));
    if (x->rank != 3) return host_error(call, "the input has rank %d instead of 3", x->rank);
    if (x->dims[1] % c.taps || x->dims[2] != c.blocks)
        return host_error(call, "%lld columns of %lld elements do not make up the image", (long long)x->dims[2],
                          (long long)x->dims[1]);
    int64_t dims[MAX_RANK] = {x->dims[0], x->dims[1] / c.taps};
    memcpy(dims + 2, c.image, (size_t)c.spatial * sizeof *dims);
    TRY(host_output(call, 0, x->dtype, c.spatial + 2, dims, &y));
    if (!y) return NULL;
    c.y = y->data;
    pool_for(call->pool, dims[0] * dims[1], 1, fold_columns, &c);
    return NULL;
}

/* It adds up the elements of blocks: each is read where it was added, and as 0 in the padding. Axis after axis of the padded image becomes the taps and
 * the blocks along it. */
static void back_col2im(Backward *w, const Node *n) {
    Lowering *l = w->l;
    int count, spatial, perm[2 * MAX_RANK] = {0, 1};
    const Dim *const *block = attr_dims(n, "block", &spatial), *before[MAX_RANK], *after[MAX_RANK];
    const int64_t *strides = attr_ints(n, "strides", &count), *dilations = attr_ints(n, "dilations", &count),
                  *pads = attr_ints(n, "pads", &count);
    for (int i = 0; i < spatial + 2; i++) {
        before[i] = size_const(l, i < 2 ? 0 : pads[i - 2]);
        after[i] = size_const(l, i < 2 ? 0 : pads[spatial + i - 2]);
    }
    Value *g = dy(w, n, 0), *columns = g ? pad(l, g, before, after, like(l, g, 0)) : NULL;
    for (int i = 0; i < spatial && columns; i++) {
        const Dim *one = size_const(l, 1),
                  *reach = size_mul(l, size_sub(l, block[i], one), size_const(l, dilations[i]));
        const Dim *room = size_sub(l, columns->dims[2 + 2 * i], size_add(l, reach, one));
        const Dim *blocks = size_add(l, dim_div(l->dims, room, size_const(l, strides[i])), one);
        const Dim *dims[] = {block[i], dim_max(l->dims, blocks, size_const(l, 0))};
        Value *tap = mul(l, iota(l, dims, 2, 0, DT_I64), scalar_int(l, DT_I64, dilations[i]));
        Value *start = mul(l, iota(l, dims, 2, 1, DT_I64), scalar_int(l, DT_I64, strides[i]));
        columns = gather(l, columns, add(l, tap, start), 2 + 2 * i);
        perm[2 + i] = 2 + 2 * i;
        perm[2 + spatial + i] = 3 + 2 * i;
    }
    if (columns) give(w, n, 0, reshape(l, permute(l, columns, perm), n->inputs[0]->dims, 3));
}

/* Blocks that lie beside each other and make up the image are its elements in another order. */
static Value *laid_blocks(Lowering *l, Value *x, const Dim *const *image, const Dim *const *block, int spatial,
                          const int64_t *strides, const int64_t *dilations, const int64_t *pads) {
    const Dim *dims[MAX_RANK] = {x->dims[0]}, *whole[MAX_RANK] = {x->dims[0]}, *taps = size_const(l, 1), *blocks = taps;
    int perm[MAX_RANK] = {0, 1};
    int64_t size, length;
    if (2 + 2 * spatial > MAX_RANK) return NULL;
    for (int i = 0; i < spatial; i++) {
        bool beside = dim_is_const(block[i], &size) && dim_is_const(image[i], &length) && size > 0 && length > 0 &&
                      length % size == 0 && strides[i] == size && (dilations[i] == 1 || size == 1) && !pads[i] &&
                      !pads[spatial + i];
        if (!beside) return NULL;
        dims[2 + i] = block[i];
        dims[2 + spatial + i] = dim_const(l->dims, length / size);
        taps = dim_mul(l->dims, taps, block[i]);
        blocks = dim_mul(l->dims, blocks, dims[2 + spatial + i]);
        perm[2 + 2 * i] = 2 + spatial + i;
        perm[3 + 2 * i] = 2 + i;
        whole[2 + i] = image[i];
    }
    if (x->dims[2] != blocks || !dim_divides(l->dims, x->dims[1], taps, &dims[1])) return NULL;
    whole[1] = dims[1];
    return reshape(l, permute(l, reshape(l, x, dims, 2 + 2 * spatial), perm), whole, 2 + spatial);
}

static Status lower_col2im(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *image_shape = in(l, n, 1), *block_shape = in(l, n, 2);
    int spatial, blocks;
    if (!x || !image_shape || !block_shape) return l->error;
    const Dim *const *image = sizes_of(l, image_shape, "image", &spatial), *const *block = sizes_of(l, block_shape,
                                                                                                    "block", &blocks);
    if (l->error) return l->error;
    if (x->rank != 3 || spatial < 1 || spatial > MAX_SPATIAL || blocks != spatial)
        return invalid(l, "the input has rank %d, image_shape %d and block_shape %d elements", x->rank, spatial,
                       blocks);
    int64_t strides[MAX_SPATIAL], dilations[MAX_SPATIAL], pads[2 * MAX_SPATIAL];
    TRY(spatial_ints(l, n, "strides", spatial, 1, 1, strides));
    TRY(spatial_ints(l, n, "dilations", spatial, 1, 1, dilations));
    TRY(spatial_ints(l, n, "pads", 2 * spatial, 0, 0, pads));
    Value *laid = laid_blocks(l, x, image, block, spatial, strides, dilations, pads);
    if (laid || l->error) return out(l, n, 0, laid);
    Value *wide = x->dtype == DT_F32 || x->dtype == DT_F64 ? x : cast(l, x, dtype_is_float(x->dtype) ? DT_F32 : DT_F64);
    if (!wide) return l->error;
    Node *host = host_node(l, n, host_col2im, &wide, 1);
    node_set_dims(host, "image", image, spatial);
    node_set_dims(host, "block", block, spatial);
    node_set_ints(host, "strides", strides, spatial);
    node_set_ints(host, "dilations", dilations, spatial);
    node_set_ints(host, "pads", pads, 2 * spatial);
    const Dim **dims = size_array(l, spatial + 2);
    dims[0] = x->dims[0];
    dims[1] = dim_div(l->dims, x->dims[1], dim_product(l->dims, block, spatial));
    for (int i = 0; i < spatial; i++) dims[2 + i] = image[i];
    return out(l, n, 0, cast_like(l, host_result(l, host, wide->dtype, spatial + 2, dims), x));
}

const OpRow ops_window[] = {
    {"", "MaxPool", 1, 0, lower_max_pool, host_max_pool, 0},
    {"", "AveragePool", 1, 0, lower_average_pool, host_average_pool, 0},
    {"com.microsoft", "NhwcMaxPool", 1, 0, lower_nhwc_max_pool, host_max_pool, 0},
    {"", "LpPool", 1, 0, lower_lp_pool, host_lp_pool, 0},
    {"", "GlobalAveragePool", 1, 0, lower_global_average, NULL, 0},
    {"", "GlobalMaxPool", 1, 0, lower_global_max, NULL, 0},
    {"", "GlobalLpPool", 1, 0, lower_global_lp, NULL, 0},
    {"", "MaxUnpool", 9, 0, lower_max_unpool, NULL, 0},
    {"", "MaxRoiPool", 1, 0, lower_max_roi_pool, host_max_roi_pool, 0},
    {"", "Col2Im", 18, 0, lower_col2im, host_col2im, 0},
    {0},
};

const HostRow hosts_window[] = {
    {"MaxPool", host_max_pool, back_max_pool},
    {"AveragePool", host_average_pool, back_average_pool},
    {"LpPool", host_lp_pool, back_lp_pool},
    {"MaxPoolGradient", host_max_pool_gradient, back_max_pool_gradient},
    {"SpreadWindows", host_spread_windows, back_spread_windows},
    {"MaxRoiPool", host_max_roi_pool, back_max_roi_pool},
    {"Col2Im", host_col2im, back_col2im},
    {0},
};
