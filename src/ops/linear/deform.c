/* SPDX-License-Identifier: Apache-2.0 */
/* DeformConv: a 2-D convolution whose taps are moved by learnt offsets and weighed by an optional mask (Zhu et al.,
 * "Deformable ConvNets v2", 2018). For each position of the result the moved taps of all channels are gathered to a column; the
 * weight times the columns is a matrix product as any. */
#include "ops/linear/linear.h"

#include <math.h>
#include "lowering/gradient.h"
#include "lowering/sizes.h"
#include "ops/image/between.h"
#include "ops/linear/geometry.h"

typedef struct Deform {
    int64_t channels, height, width, offset_group, taps;
    int64_t kernel[2], stride[2], dilation[2], before[2], out[2];
    const double *x, *offset, *mask, *dy; /* mask may be NULL; dy [images, channels * taps, out] */
    double *y, *dx, *doffset, *dmask;     /* each may be NULL */
} Deform;

/* The four elements of a plane around a position: what lies outside the image is -1. Derivatives of the weights by y and x. */
typedef struct Corners {
    int64_t at[4];
    double weight[4], slope[2][4];
} Corners;

static Corners corners_of(const Deform *d, double y, double x) {
    Corners c = {.at = {-1, -1, -1, -1}};
    if (!(y > -1 && x > -1 && y < (double)d->height && x < (double)d->width)) return c;
    int64_t y0 = (int64_t)floor(y), x0 = (int64_t)floor(x);
    double fy = y - (double)y0, fx = x - (double)x0;
    for (int i = 0; i < 4; i++) {
        int64_t row = y0 + i / 2, column = x0 + i % 2;
        double by_row = i / 2 ? fy : 1 - fy, by_column = i % 2 ? fx : 1 - fx;
        if (row >= 0 && column >= 0 && row < d->height && column < d->width) c.at[i] = row * d->width + column;
        c.weight[i] = by_row * by_column;
        c.slope[0][i] = i / 2 ? by_column : -by_column;
        c.slope[1][i] = i % 2 ? by_row : -by_row;
    }
    return c;
}

/* Where tap t of the group that is `number` / taps stands for position `at` of the result. */
static Corners moved_tap(const Deform *d, int64_t number, int64_t t, int64_t at) {
    int64_t plane = d->out[0] * d->out[1], row = at / d->out[1], column = at % d->out[1];
    double y = (double)(row * d->stride[0] - d->before[0] + t / d->kernel[1] * d->dilation[0]);
    double x = (double)(column * d->stride[1] - d->before[1] + t % d->kernel[1] * d->dilation[1]);
    return corners_of(d, y + d->offset[2 * number * plane + at], x + d->offset[(2 * number + 1) * plane + at]);
}

static double sample(const Corners *c, const double *weight, const double *plane) {
    double sum = 0;
    for (int i = 0; i < 4; i++)
        if (c->at[i] >= 0) sum += weight[i] * plane[c->at[i]];
    return sum;
}

/* A task is a tap of the channels of a group, of an image. */
static void gather_taps(void *context, int64_t begin, int64_t end, int worker) {
    const Deform *d = context;
    int64_t each = d->channels / d->offset_group, plane = d->out[0] * d->out[1], size = d->height * d->width;
    (void)worker;
    for (int64_t number = begin; number < end; number++) {
        int64_t t = number % d->taps, first = number / d->taps * each; /* first: of all images' channels */
        for (int64_t at = 0; at < plane; at++) {
            Corners c = moved_tap(d, number, t, at);
            double weight = d->mask ? d->mask[number * plane + at] : 1;
            for (int64_t k = first; k < first + each; k++)
                d->y[(k * d->taps + t) * plane + at] = weight * sample(&c, c.weight, d->x + k * size);
        }
    }
}

/* What the tap's column gives back at one position: to the image, the offsets and the mask. */
static void give_tap(const Deform *d, int64_t number, int64_t at) {
    int64_t each = d->channels / d->offset_group, plane = d->out[0] * d->out[1], size = d->height * d->width;
    int64_t t = number % d->taps, first = number / d->taps * each;
    double weight = d->mask ? d->mask[number * plane + at] : 1, moved[2] = {0}, masked = 0;
    Corners c = moved_tap(d, number, t, at);
    for (int64_t k = first; k < first + each; k++) {
        double g = d->dy[(k * d->taps + t) * plane + at];
        for (int i = 0; d->dx && i < 4; i++)
            if (c.at[i] >= 0) d->dx[k * size + c.at[i]] += g * weight * c.weight[i];
        for (int axis = 0; d->doffset && axis < 2; axis++)
            moved[axis] += g * sample(&c, c.slope[axis], d->x + k * size);
        if (d->dmask) masked += g * sample(&c, c.weight, d->x + k * size);
    }
    for (int axis = 0; d->doffset && axis < 2; axis++)
        d->doffset[(2 * number + axis) * plane + at] = weight * moved[axis];
    if (d->dmask) d->dmask[number * plane + at] = masked;
}

/* A task is a group of an image, whose channels are its own. */
static void give_groups(void *context, int64_t begin, int64_t end, int worker) {
    const Deform *d = context;
    int64_t each = d->channels / d->offset_group, plane = d->out[0] * d->out[1], size = d->height * d->width;
    (void)worker;
    for (int64_t group = begin; group < end; group++) {
        for (int64_t i = group * each * size; d->dx && i < (group + 1) * each * size; i++) d->dx[i] = 0;
        for (int64_t number = group * d->taps; number < (group + 1) * d->taps; number++)
            for (int64_t at = 0; at < plane; at++) give_tap(d, number, at);
    }
}

static bool shaped(const Tensor *t, int rank, const int64_t *dims) {
    return t && t->dtype == DT_F64 && t->rank == rank && memcmp(t->dims, dims, (size_t)rank * sizeof *dims) == 0;
}

/* The first three inputs: x, offset, mask, all f64. columns [3]: the dims of what is gathered. */
static Status deform_of(HostCall *call, Deform *out, int64_t *columns) {
    const Tensor *x, *offset, *mask = host_input(call, 2);
    int64_t pads[4], size[2];
    int count;
    TRY(host_tensor(call, 0, DT_F64, &x));
    TRY(host_tensor(call, 1, DT_F64, &offset));
    TRY(host_sizes(call, "pads", 4, pads));
    TRY(host_sizes(call, "size", 2, size));
    Deform d = {.offset_group = attr_int(call->node, "offset_group", 1)};
    TRY(host_sizes(call, "kernel", 2, d.kernel));
    const int64_t *strides = attr_ints(call->node, "strides", &count),
                  *dilations = attr_ints(call->node, "dilations", &count);
    if (x->rank != 4 || size[0] < 0 || size[1] < 0) return host_error(call, "the inputs do not fit together");
    for (int i = 0; i < 2; i++) {
        d.stride[i] = strides[i], d.dilation[i] = dilations[i];
        d.before[i] = pads[i], d.out[i] = size[i];
    }
    d.channels = x->dims[1], d.height = x->dims[2], d.width = x->dims[3];
    d.taps = d.kernel[0] * d.kernel[1];
    int64_t places[] = {x->dims[0], 2 * d.offset_group * d.taps, size[0], size[1]};
    if (d.channels % d.offset_group || !shaped(offset, 4, places))
        return host_error(call, "the offsets do not fit the input");
    places[1] /= 2;
    if (mask && !shaped(mask, 4, places)) return host_error(call, "the mask does not fit");
    d.x = x->data, d.offset = offset->data, d.mask = mask ? mask->data : NULL;
    columns[0] = x->dims[0], columns[1] = d.channels * d.taps, columns[2] = size[0] * size[1];
    *out = d;
    return NULL;
}

/* To [images, channels * taps, positions]. */
Status host_deform_columns(HostCall *call) {
    Deform d;
    Tensor *y;
    int64_t columns[3];
    TRY(deform_of(call, &d, columns));
    TRY(host_output(call, 0, DT_F64, 3, columns, &y));
    if (!y || !tensor_count(y)) return NULL;
    d.y = y->data;
    pool_for(call->pool, columns[0] * d.offset_group * d.taps, 1, gather_taps, &d);
    return NULL;
}

/* Inputs x, offset, mask and dy; the gradients of the first three. */
Status host_deform_columns_gradient(HostCall *call) {
    Deform d;
    const Tensor *dy;
    int64_t columns[3];
    double **results[] = {&d.dx, &d.doffset, &d.dmask};
    TRY(deform_of(call, &d, columns));
    TRY(host_tensor(call, 3, DT_F64, &dy));
    if (!shaped(dy, 3, columns)) return host_error(call, "the gradient does not fit the columns");
    d.dy = dy->data;
    for (int i = 0; i < 3; i++) {
        const Tensor *x = host_input(call, i);
        Tensor *made = NULL;
        if (x) TRY(host_output(call, i, DT_F64, x->rank, x->dims, &made));
        *results[i] = made ? made->data : NULL;
    }
    pool_for(call->pool, columns[0] * d.offset_group, 1, give_groups, &d);
    return NULL;
}

/* A column is linear in the image and the mask; a position is where the offset says (Dai et al., "Deformable Convolutional Networks",
 * 2017, appendix A). */
void back_deform_columns(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *inputs[] = {n->inputs[0], n->inputs[1], n->inputs[2], dy(w, n, 0)};
    Node *node = backward_host(w, n, "DeformColumnsGradient", host_deform_columns_gradient, inputs, 4);
    for (int i = 0; node && i < 3; i++) {
        if (wants(w, n, i))
            give(w, n, i, host_result_like(l, node, n->inputs[i]));
        else
            node_attach_output(node, NULL);
    }
}

static Value *columns_by_host(Lowering *l, const Node *n, const Geometry *g, Value *x, Value *offset, Value *mask,
                              const Dim *const *kernel, const Dim *const *columns) {
    Value *inputs[] = {cast(l, x, DT_F64), cast(l, offset, DT_F64), mask ? cast(l, mask, DT_F64) : NULL};
    Node *host = host_node(l, n, host_deform_columns, inputs, 3);
    if (!host) return NULL;
    node_set_ints(host, "strides", g->strides, 2);
    node_set_ints(host, "dilations", g->dilations, 2);
    node_set_dims(host, "pads", g->pads, 4);
    node_set_dims(host, "size", g->size, 2);
    node_set_dims(host, "kernel", kernel, 2);
    return host_result(l, host, DT_F64, 3, columns);
}

/* ---- the columns in primitives, which have a gradient in any operators ---- */

/* Along axis k of the image: [images and groups, kernel..., positions...] from the offsets [.., kernel..., 2, positions...]. */
static Taps told_taps(Lowering *l, const Geometry *g, Value *offset, const Dim *size, int k, DType dtype) {
    const Dim *one = size_const(l, 1), *dims[] = {one, one, one, one, one};
    Value *moved = slice_axis(l, cast(l, offset, DT_F64), 3, size_const(l, k), one);
    if (!moved) return (Taps){0};
    dims[1 + k] = moved->dims[1 + k];
    Value *tap = mul(l, iota(l, dims, 5, 1 + k, DT_F64), scalar(l, DT_F64, (double)g->dilations[k]));
    dims[1 + k] = one;
    dims[3 + k] = g->size[k];
    Value *start = mul(l, iota(l, dims, 5, 3 + k, DT_F64), scalar(l, DT_F64, (double)g->strides[k]));
    start = sub(l, start, cast(l, dim_scalar(l, g->pads[k]), DT_F64));
    Value *at = bounded_position(l, add(l, squeeze(l, moved, (int[]){3}, 1), add(l, start, tap)));
    return linear_taps(l, at, &(ImageAxis){size, OUTSIDE_ZEROS, 0}, dtype);
}

/* As host_deform_columns, of the kernel's sizes and as many groups of channels. */
static Value *told_columns(Lowering *l, const Geometry *g, Value *x, Value *offset, Value *mask,
                           const Dim *const *kernel, const Dim *groups, const Dim *const *columns) {
    const Dim *one = size_const(l, 1), *images = size_mul(l, x->dims[0], groups);
    const Dim *parts[] = {images, dim_div(l->dims, x->dims[1], groups), x->dims[2], x->dims[3]};
    const Dim *moves[] = {images, kernel[0], kernel[1], size_const(l, 2), g->size[0], g->size[1]};
    const Dim *weights[] = {images, kernel[0], kernel[1], g->size[0], g->size[1], one};
    const Dim *image[] = {images, one, one, one, one};
    Value *image_parts = to_channels_last(l, reshape(l, widen(l, x), parts, 4)), *moved = reshape(l, offset, moves, 6);
    if (l->error) return NULL;
    Taps taps[2];
    for (int k = 0; k < 2; k++) taps[k] = told_taps(l, g, moved, x->dims[2 + k], k, image_parts->dtype);
    Between b = between(l, image_parts, iota(l, image, 5, 0, DT_I64), taps);
    Value *read = blended(l, &b);
    if (mask) read = mul(l, read, cast_like(l, reshape(l, mask, weights, 6), read));
    return reshape(l, permute(l, read, (int[]){0, 5, 1, 2, 3, 4}), columns, 3);
}

Status lower_deform_conv(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *w = in(l, n, 1), *offset = in(l, n, 2), *bias = optional_in(l, n, 3),
          *mask = optional_in(l, n, 4);
    if (l->error) return l->error;
    if (x->rank != 4 || w->rank != 4) return unsupported(l, "an input of rank %d (4 is)", x->rank);
    int64_t group = attr_int(n, "group", 1), offset_group = attr_int(n, "offset_group", 1);
    if (group < 1 || offset_group < 1 || group > INT32_MAX || offset_group > INT32_MAX)
        return invalid(l, "group is %lld, offset_group %lld", (long long)group, (long long)offset_group);
    Geometry g;
    TRY(geometry_of(l, n, 2, x->dims + 2, w->dims + 2, WINDOW_CONV, &g));
    const Dim *taps = size_mul(l, w->dims[2], w->dims[3]), *groups = size_const(l, group);
    const Dim *depth = size_mul(l, w->dims[1], taps), *positions = size_mul(l, g.size[0], g.size[1]);
    const Dim *columns[] = {x->dims[0], size_mul(l, x->dims[1], taps), positions};
    const Dim *parts[] = {x->dims[0], groups, depth, positions};
    const Dim *weights[] = {groups, dim_div(l->dims, w->dims[0], groups), depth};
    const Dim *result[] = {x->dims[0], w->dims[0], g.size[0], g.size[1]};
    Value *made = lowers_to_standard(l)
                      ? told_columns(l, &g, x, offset, mask, (const Dim *const *)w->dims + 2,
                                     size_const(l, offset_group), columns)
                      : columns_by_host(l, n, &g, x, offset, mask, (const Dim *const *)w->dims + 2, columns);
    Value *gathered = reshape(l, cast_like(l, made, x), parts, 4);
    Value *y = matmul(l, reshape(l, w, weights, 3), gathered);
    y = y ? reshape(l, y, result, 4) : NULL;
    if (bias) y = add(l, y, unsqueeze(l, bias, (int[]){1, 2}, 2));
    return out(l, n, 0, y);
}
