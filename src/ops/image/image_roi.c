/* SPDX-License-Identifier: Apache-2.0 */
/* RoiAlign: a host kernel over regions of an image. */
#include "ops/image/image.h"

#include <math.h>
#include "lowering/gradient.h"
#include "lowering/sizes.h"

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

/* To the image alone. The regions are taken as given, as where the operator comes from: they are proposals, trained by a loss of their own (He et
 * al., "Mask R-CNN", 2017, sections 3 and 3.1). */
void back_roi_align(Backward *w, const Node *n) {
    Lowering *l = w->l;
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
