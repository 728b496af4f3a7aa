/* SPDX-License-Identifier: Apache-2.0 */
/* RoiAlign: a host kernel over regions of an image. */
#include "ops/image/image.h"

#include <math.h>
#include "lowering/gradient.h"
#include "lowering/sizes.h"
#include "ops/image/between.h"

enum { MOST_SAMPLES = 1 << 12 }; /* a side of a bin; a region that would need more is refused */
enum { BLOCK = 16 };             /* channels that one task adds to: regions share cells */

#define REAL float
#define TYPE DT_F32
#define NAMED(x) x##_f32
#include "ops/image/roi_align.h"
#define REAL double
#define TYPE DT_F64
#define NAMED(x) x##_f64
#include "ops/image/roi_align.h"

static bool is_wide(const HostCall *call) { return host_input(call, 0) && host_input(call, 0)->dtype == DT_F64; }

Status host_roi_align(HostCall *call) { return is_wide(call) ? host_roi_align_f64(call) : host_roi_align_f32(call); }

Status host_roi_align_gradient(HostCall *call) {
    return is_wide(call) ? host_roi_align_gradient_f64(call) : host_roi_align_gradient_f32(call);
}

/* ---- the gradient in primitives: by the steps of roi_align.h ---- */

/* Column `column` of the regions (x1, y1, x2, y2) as a position in the image: [regions, 1, 1, 1]. */
static Value *told_edge(Lowering *l, const Node *n, Value *rois, int column) {
    const Dim *one = size_const(l, 1), *dims[] = {rois->dims[0], one, one, one};
    Value *edge = reshape(l, slice_axis(l, rois, 1, size_const(l, column), one), dims, 4);
    Value *at = mul(l, edge, like(l, rois, attr_float(n, "spatial_scale", 1)));
    return sub(l, at, like(l, rois, attr_int(n, "half_pixel", 0) ? 0.5 : 0));
}

/* The largest number of samples, [regions, 1, 1, 1] of a float; 1 where there are no regions. */
static const Dim *most_samples(Lowering *l, Value *samples) {
    const Dim *one = size_const(l, 1);
    Value *line = samples ? flatten_to(l, samples, 0, samples->rank) : NULL;
    Value *parts[] = {line, line ? reshape(l, like(l, line, 1), &one, 1) : NULL};
    Value *all = line ? concat(l, parts, 2, 0) : NULL;
    return size_from(l, reduce(l, PRIM_REDUCE_MAX, all, (int[]){0}, 1, false), "samples");
}

/* Of axis k of the image: two for each sample of a bin, [regions, rows, 1, taps] or [regions, 1, columns, taps]. Samples that a region lacks beside
 * others do not count. */
static Taps told_roi_taps(Lowering *l, const Node *n, Value *rois, const Dim *size, int k) {
    const Dim *one = size_const(l, 1), *bins = size_const(l, attr_int(n, k ? "output_width" : "output_height", 1));
    int64_t sampling = attr_int(n, "sampling_ratio", 0);
    Value *start = told_edge(l, n, rois, 1 - k), *length = sub(l, told_edge(l, n, rois, 3 - k), start);
    if (!attr_int(n, "half_pixel", 0)) length = maximum(l, length, like(l, rois, 1));
    Value *bin = divide(l, length, cast_like(l, dim_scalar(l, bins), rois));
    Value *grid = sampling ? like(l, rois, (double)sampling) : maximum(l, unary(l, PRIM_CEIL, bin), like(l, rois, 0));
    const Dim *samples = sampling ? size_const(l, sampling) : most_samples(l, grid);
    if (!samples) return (Taps){0};
    const Dim *along[] = {one, k ? one : bins, k ? bins : one, one},
              *of_bin[] = {one, one, one, samples, size_const(l, 2)};
    Value *count = maximum(l, grid, like(l, rois, 1)), *sample = iota(l, of_bin, 4, 3, rois->dtype);
    Value *in_bin = divide(l, mul(l, add(l, sample, like(l, rois, 0.5)), bin), count);
    Value *at = add(l, add(l, start, mul(l, iota(l, along, 4, 1 + k, rois->dtype), bin)), in_bin);
    Value *near = binary(l, PRIM_GE, at, like(l, rois, -1));
    near = binary(l, PRIM_AND, near, binary(l, PRIM_LE, at, cast_like(l, dim_scalar(l, size), rois)));
    Value *inside = clip(l, cast(l, at, DT_F64), scalar(l, DT_F64, 0), axis_end(l, size));
    Taps taps = linear_taps(l, inside, &(ImageAxis){size, OUTSIDE_BORDER, 0}, rois->dtype);
    Value *weight = where(l, unsqueeze(l, near, (int[]){4}, 1), taps.weight, like(l, rois, 0));
    if (strcmp(attr_string(n, "mode", "avg"), "max") != 0)
        weight = divide(l, weight, sampling ? count : unsqueeze(l, count, (int[]){4}, 1));
    taps.weight = flatten_to(l, weight, 3, 5);
    taps.index = flatten_to(l, taps.index, 3, 5);
    if (sampling) return taps;
    Value *counts = binary(l, PRIM_LT, iota(l, of_bin, 5, 3, rois->dtype), unsqueeze(l, grid, (int[]){4}, 1));
    taps.inside = flatten_to(l, counts, 3, 5);
    return taps;
}

/* Whether an element of what the bins read, [regions, rows, columns, taps, taps, C], is the largest of its bin: the first of these. */
static Value *is_largest(Lowering *l, Value *read) {
    Value *line = read ? flatten_to(l, read, 3, 5) : NULL;
    if (!line) return NULL;
    Value *best = arg_reduce(l, PRIM_ARGMAX, line, 3, true, false);
    Value *own = iota(l, (const Dim *const *)line->dims, line->rank, 3, DT_I64);
    return reshape(l, binary(l, PRIM_EQ, own, best), read->dims, read->rank);
}

/* Each element that a bin reads gets its share of dy, or of maxima all of it where it is the largest. */
static void told_back_roi_align(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *x = n->inputs[0], *rois = n->inputs[1], *g = dy(w, n, 0);
    const Dim *one = size_const(l, 1), *image[] = {rois->dims[0], one, one};
    Taps taps[] = {told_roi_taps(l, n, rois, x->dims[1], 0), told_roi_taps(l, n, rois, x->dims[2], 1)};
    Between b = between(l, x, reshape(l, n->inputs[2], image, 3), taps);
    Value *parts = mul(l, unsqueeze(l, g, (int[]){3, 4}, 2), unsqueeze(l, b.weight, (int[]){5}, 1));
    if (b.inside) parts = where(l, unsqueeze(l, b.inside, (int[]){5}, 1), parts, like(l, x, 0));
    if (strcmp(attr_string(n, "mode", "avg"), "max") == 0)
        parts = where(l, is_largest(l, weighed(l, &b, -INFINITY)), parts, like(l, x, 0));
    give(w, n, 0, added_to_rows(l, x, &b, parts));
}

/* To the image alone. The regions are taken as given, as where the operator comes from: they are proposals, trained by a loss of their own (He et
 * al., "Mask R-CNN", 2017, sections 3 and 3.1). */
void back_roi_align(Backward *w, const Node *n) {
    Lowering *l = w->l;
    if (lowers_to_standard(l)) {
        told_back_roi_align(w, n);
        return;
    }
    Value *inputs[] = {n->inputs[0], n->inputs[1], n->inputs[2], dy(w, n, 0)};
    Node *node = backward_host(w, n, "RoiAlignGradient", host_roi_align_gradient, inputs, 4);
    give(w, n, 0, host_result_like(l, node, n->inputs[0]));
}

/* With respect to dy: averages are linear, so that it is RoiAlign. */
void back_roi_align_gradient(Backward *w, const Node *n) {
    Lowering *l = w->l;
    Value *inputs[] = {dy(w, n, 0), n->inputs[1], n->inputs[2]};
    if (strcmp(attr_string(n, "mode", "avg"), "max") == 0) unsupported(l, "the gradient of the gradient of maxima");
    give(w, n, 3, host_result_like(l, backward_host(w, n, "RoiAlign", host_roi_align, inputs, 3), n->inputs[3]));
}

/* Before version 16 positions were not shifted by half a pixel (ONNX RoiAlign-16, coordinate_transformation_mode). */
Status lower_roi_align(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *rois = in(l, n, 1), *images = in(l, n, 2);
    if (!x || !rois || !images) return l->error;
    const char *mode = attr_string(n, "mode", "avg");
    const char *shift =
        attr_string(n, "coordinate_transformation_mode", n->opset < 16 ? "output_half_pixel" : "half_pixel");
    int64_t height = attr_int(n, "output_height", 1), width = attr_int(n, "output_width", 1),
            sampling = attr_int(n, "sampling_ratio", 0);
    if (x->rank != 4 || rois->rank != 2 || images->rank != 1)
        return invalid(l, "the inputs have ranks %d, %d and %d", x->rank, rois->rank, images->rank);
    if (height < 1 || width < 1 || height > INT32_MAX || width > INT32_MAX || sampling < 0 || sampling > MOST_SAMPLES)
        return invalid(l, "output_height, output_width or sampling_ratio is out of range");
    if (strcmp(mode, "avg") != 0 && strcmp(mode, "max") != 0) return invalid(l, "mode \"%s\" is not known", mode);
    DType work = x->dtype == DT_F64 ? DT_F64 : DT_F32;
    Value *inputs[] = {to_channels_last(l, cast(l, x, work)), cast(l, rois, work), cast(l, images, DT_I64)};
    if (l->error) return l->error;
    Node *host = host_node(l, n, host_roi_align, inputs, 3);
    node_set_int(host, "half_pixel", strcmp(shift, "half_pixel") == 0);
    const Dim *dims[] = {rois->dims[0], size_const(l, height), size_const(l, width), x->dims[1]};
    return out(l, n, 0, cast_like(l, from_channels_last(l, host_result(l, host, work, 4, dims)), x));
}
