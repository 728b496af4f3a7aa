/* SPDX-License-Identifier: Apache-2.0 */
/* DeformConv: a 2-D convolution whose taps are moved by learnt offsets and weighed by an optional mask (Zhu et al.,
 * "Deformable ConvNets v2", 2018). For each position of the result the moved taps of all channels are gathered, then
 * multiplied by the weight. */
#include "ops/linear/linear.h"

#include <math.h>
#include "ops/linear/geometry.h"

typedef struct Deform {
    int64_t channels, height, width, outputs, group, offset_group, taps;
    int64_t kernel[2], stride[2], dilation[2], before[2], out[2];
    const double *x, *w, *offset, *bias, *mask; /* mask and bias may be NULL */
    double *y, *gathered;                       /* gathered: [workers][channels * taps] */
} Deform;

/* Bilinear; what lies outside the image is 0. */
static double sample(const double *plane, int64_t height, int64_t width, double y, double x) {
    if (!(y > -1 && x > -1 && y < (double)height && x < (double)width)) return 0;
    int64_t y0 = (int64_t)floor(y), x0 = (int64_t)floor(x);
    double fy = y - (double)y0, fx = x - (double)x0, sum = 0;
    for (int i = 0; i < 4; i++) {
        int64_t r = y0 + i / 2, c = x0 + i % 2;
        if (r < 0 || c < 0 || r >= height || c >= width) continue;
        sum += (i / 2 ? fy : 1 - fy) * (i % 2 ? fx : 1 - fx) * plane[r * width + c];
    }
    return sum;
}

/* The moved taps of all channels for one position of image n, as [channels][taps]. */
static void gather_taps(const Deform *d, int64_t n, int64_t row, int64_t column, double *to) {
    int64_t each = d->channels / d->offset_group, plane = d->out[0] * d->out[1], at = row * d->out[1] + column;
    for (int64_t g = 0; g < d->offset_group; g++) {
        for (int64_t t = 0; t < d->taps; t++) {
            int64_t number = (n * d->offset_group + g) * d->taps + t;
            double y = (double)(row * d->stride[0] - d->before[0] + t / d->kernel[1] * d->dilation[0]) +
                       d->offset[2 * number * plane + at];
            double x = (double)(column * d->stride[1] - d->before[1] + t % d->kernel[1] * d->dilation[1]) +
                       d->offset[(2 * number + 1) * plane + at];
            double weight = d->mask ? d->mask[number * plane + at] : 1;
            for (int64_t c = g * each; c < (g + 1) * each; c++)
                to[c * d->taps + t] =
                    weight * sample(d->x + (n * d->channels + c) * d->height * d->width, d->height, d->width, y, x);
        }
    }
}

static void deform_rows(void *context, int64_t begin, int64_t end, int worker) {
    const Deform *d = context;
    double *gathered = d->gathered + worker * d->channels * d->taps;
    int64_t inputs = d->channels / d->group * d->taps, outputs = d->outputs / d->group;
    for (int64_t r = begin; r < end; r++) {
        int64_t n = r / d->out[0], row = r % d->out[0];
        for (int64_t column = 0; column < d->out[1]; column++) {
            gather_taps(d, n, row, column, gathered);
            for (int64_t o = 0; o < d->outputs; o++) {
                const double *w = d->w + o * inputs, *from = gathered + o / outputs * inputs;
                double sum = d->bias ? d->bias[o] : 0;
                for (int64_t i = 0; i < inputs; i++) sum += w[i] * from[i];
                d->y[((n * d->outputs + o) * d->out[0] + row) * d->out[1] + column] = sum;
            }
        }
    }
}

static bool shaped(const Tensor *t, int rank, const int64_t *dims) {
    return t && t->dtype == DT_F64 && t->rank == rank && memcmp(t->dims, dims, (size_t)rank * sizeof *dims) == 0;
}

/* Inputs x, w, offset, bias, mask, all f64. */
Status host_deform_conv(HostCall *call) {
    const Tensor *x, *w, *offset, *bias = host_input(call, 3), *mask = host_input(call, 4);
    Tensor *y;
    int64_t pads[4], size[2];
    int count;
    TRY(host_tensor(call, 0, DT_F64, &x));
    TRY(host_tensor(call, 1, DT_F64, &w));
    TRY(host_tensor(call, 2, DT_F64, &offset));
    TRY(host_sizes(call, "pads", 4, pads));
    TRY(host_sizes(call, "size", 2, size));
    Deform d = {.group = attr_int(call->node, "group", 1), .offset_group = attr_int(call->node, "offset_group", 1)};
    const int64_t *strides = attr_ints(call->node, "strides", &count),
                  *dilations = attr_ints(call->node, "dilations", &count);
    if (x->rank != 4 || w->rank != 4 || size[0] < 0 || size[1] < 0)
        return host_error(call, "the inputs do not fit together");
    for (int i = 0; i < 2; i++) {
        d.kernel[i] = w->dims[2 + i], d.stride[i] = strides[i], d.dilation[i] = dilations[i];
        d.before[i] = pads[i], d.out[i] = size[i];
    }
    d.channels = x->dims[1], d.height = x->dims[2], d.width = x->dims[3], d.outputs = w->dims[0];
    d.taps = d.kernel[0] * d.kernel[1];
    int64_t places[] = {x->dims[0], 2 * d.offset_group * d.taps, size[0], size[1]};
    bool fits = d.channels == w->dims[1] * d.group && d.outputs % d.group == 0 && d.channels % d.offset_group == 0;
    if (!fits || !shaped(offset, 4, places)) return host_error(call, "the weight or the offsets do not fit the input");
    places[1] /= 2;
    if ((mask && !shaped(mask, 4, places)) || (bias && !shaped(bias, 1, &d.outputs)))
        return host_error(call, "bias or mask do not fit");
    TRY(host_output(call, 0, DT_F64, 4, (int64_t[]){x->dims[0], d.outputs, size[0], size[1]}, &y));
    if (!y || !tensor_count(y)) return NULL;
    d.x = x->data, d.w = w->data, d.offset = offset->data, d.y = y->data;
    d.bias = bias ? bias->data : NULL, d.mask = mask ? mask->data : NULL;
    d.gathered = arena_array(call->arena, (size_t)pool_threads(call->pool),
                             (size_t)(d.channels * d.taps) * sizeof *d.gathered + 1);
    pool_for(call->pool, x->dims[0] * size[0], 1, deform_rows, &d);
    return NULL;
}

Status lower_deform_conv(Lowering *l, const Node *n) {
    Value *inputs[5] = {in(l, n, 0), in(l, n, 1), in(l, n, 2), optional_in(l, n, 3), optional_in(l, n, 4)};
    Value *x = inputs[0], *w = inputs[1];
    if (l->error) return l->error;
    if (x->rank != 4 || w->rank != 4) return unsupported(l, "an input of rank %d (4 is)", x->rank);
    int64_t group = attr_int(n, "group", 1), offset_group = attr_int(n, "offset_group", 1);
    if (group < 1 || offset_group < 1 || group > INT32_MAX || offset_group > INT32_MAX)
        return invalid(l, "group is %lld, offset_group %lld", (long long)group, (long long)offset_group);
    Geometry g;
    TRY(geometry_of(l, n, 2, x->dims + 2, w->dims + 2, WINDOW_CONV, &g));
    for (int i = 0; i < 5; i++) inputs[i] = inputs[i] ? cast(l, inputs[i], DT_F64) : NULL;
    if (l->error) return l->error;
    Node *host = host_node(l, n, host_deform_conv, inputs, 5);
    node_set_ints(host, "strides", g.strides, 2);
    node_set_ints(host, "dilations", g.dilations, 2);
    node_set_dims(host, "pads", g.pads, 4);
    node_set_dims(host, "size", g.size, 2);
    const Dim *dims[] = {x->dims[0], w->dims[0], g.size[0], g.size[1]};
    return out(l, n, 0, cast_like(l, host_result(l, host, DT_F64, 4, dims), x));
}
