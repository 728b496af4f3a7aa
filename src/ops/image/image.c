/* SPDX-License-Identifier: Apache-2.0 */
/* Images: the family's rows, and those of its operators that are told in movements alone. */
#include "ops/image/image.h"

#include "lowering/sizes.h"
#include "ops/families.h"

/* ---- DepthToSpace, SpaceToDepth ---- */

static Status block_of(Lowering *l, const Node *n, const Value *x, const Dim **out_block) {
    int64_t block = attr_int(n, "blocksize", 0);
    if (x->rank != 4) return invalid(l, "the input has rank %d instead of 4", x->rank);
    if (block < 1 || block > INT32_MAX) return invalid(l, "blocksize is %lld", (long long)block);
    *out_block = size_const(l, block);
    return NULL;
}

static bool is_crd(const Node *n) { return strcmp(attr_string(n, "mode", "DCR"), "CRD") == 0; }

/* Depth holds [block, block, channels] (DCR) or [channels, block, block] (CRD); the blocks go beside rows and columns.
 */
static Status lower_depth_to_space(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    const Dim *b = NULL, *quotient;
    if (!x) return l->error;
    TRY(block_of(l, n, x, &b));
    const Dim *square = size_mul(l, b, b), *h = x->dims[2], *w = x->dims[3];
    if (!dim_divides(l->dims, x->dims[1], square, &quotient)) {
        if (dim_is_const(x->dims[1], NULL)) return invalid(l, "the channels do not divide into blocks");
        quotient = dim_div(l->dims, x->dims[1], square);
    }
    const Dim *dcr[] = {x->dims[0], b, b, quotient, h, w}, *crd[] = {x->dims[0], quotient, b, b, h, w};
    const Dim *joined[] = {x->dims[0], quotient, size_mul(l, h, b), size_mul(l, w, b)};
    Value *split = reshape(l, x, is_crd(n) ? crd : dcr, 6);
    Value *turned = permute(l, split, is_crd(n) ? (int[]){0, 1, 4, 2, 5, 3} : (int[]){0, 3, 4, 1, 5, 2});
    return out(l, n, 0, reshape(l, turned, joined, 4));
}

static Status lower_space_to_depth(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    const Dim *b = NULL, *part[2];
    if (!x) return l->error;
    TRY(block_of(l, n, x, &b));
    for (int i = 0; i < 2; i++) {
        if (dim_divides(l->dims, x->dims[2 + i], b, &part[i])) continue;
        if (dim_is_const(x->dims[2 + i], NULL)) return invalid(l, "the image does not divide into blocks");
        part[i] = dim_div(l->dims, x->dims[2 + i], b);
    }
    const Dim *c = x->dims[1], *shape[] = {x->dims[0], c, part[0], b, part[1], b};
    const Dim *joined[] = {x->dims[0], size_mul(l, c, size_mul(l, b, b)), part[0], part[1]};
    Value *turned =
        permute(l, reshape(l, x, shape, 6), is_crd(n) ? (int[]){0, 1, 3, 5, 2, 4} : (int[]){0, 3, 5, 1, 2, 4});
    return out(l, n, 0, reshape(l, turned, joined, 4));
}

/* ---- CenterCropPad ---- */

/* Too long: cut from floor(excess / 2) on. Too short: zeros on both sides, the odd one after (ONNX CenterCropPad-18).
 */
static Status lower_center_crop_pad(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0), *shape = in(l, n, 1);
    int count, given;
    if (!x || !shape) return l->error;
    const int64_t *axes = attr_ints(n, "axes", &given);
    const Dim *const *wanted = sizes_of(l, with_length(l, shape, axes ? given : x->rank), "cropped", &count);
    if (!wanted) return l->error;
    if (count != (axes ? given : x->rank))
        return invalid(l, "shape has %d elements for %d axes", count, axes ? given : x->rank);
    const Dim *zero = size_const(l, 0), *two = size_const(l, 2), **size = dims_copy(l, x, x->rank);
    const Dim **start = size_array(l, x->rank), **before = size_array(l, x->rank), **after = size_array(l, x->rank);
    for (int i = 0; i < x->rank; i++) start[i] = before[i] = after[i] = zero;
    for (int i = 0; i < count; i++) {
        int axis = axis_of(l, axes ? axes[i] : i, x->rank);
        if (l->error) return l->error;
        const Dim *d = x->dims[axis], *lacking = dim_max(l->dims, size_sub(l, wanted[i], d), zero);
        start[axis] = dim_div(l->dims, dim_max(l->dims, size_sub(l, d, wanted[i]), zero), two);
        size[axis] = dim_min(l->dims, d, wanted[i]);
        before[axis] = dim_div(l->dims, lacking, two);
        after[axis] = size_sub(l, lacking, before[axis]);
    }
    Value *cut = slice(l, x, start, size, NULL);
    return out(l, n, 0, cut ? pad(l, cut, before, after, like(l, x, 0)) : NULL);
}

const OpRow ops_image[] = {
    {"", "Resize", 10, 0, lower_resize, host_resize, 0, host_resize_sizes},
    {"", "Upsample", 1, 10, lower_upsample, host_resize, 0},
    {"", "GridSample", 16, 0, lower_grid_sample, host_grid_sample, 0},
    {"com.microsoft", "GridSample", 1, 0, lower_grid_sample, host_grid_sample, 0},
    {"", "AffineGrid", 20, 0, lower_affine_grid, NULL, 0},
    {"", "RoiAlign", 10, 0, lower_roi_align, host_roi_align, 0},
    {"", "NonMaxSuppression", 10, 0, lower_non_max_suppression, host_non_max_suppression, 0},
    {"", "ImageDecoder", 20, 0, lower_image_decoder, host_image_decoder, 0},
    {"", "DepthToSpace", 1, 0, lower_depth_to_space, NULL, 0},
    {"", "SpaceToDepth", 1, 0, lower_space_to_depth, NULL, 0},
    {"", "CenterCropPad", 18, 0, lower_center_crop_pad, NULL, 0},
    {0},
};

const HostRow hosts_image[] = {
    {"Resize", host_resize, back_resize},
    {"ResizeGradient", host_resize_gradient, back_resize_gradient},
    {"GridSample", host_grid_sample, back_grid_sample},
    {"GridSampleGradient", host_grid_sample_gradient, NULL},
    {"RoiAlign", host_roi_align, back_roi_align},
    {"RoiAlignGradient", host_roi_align_gradient, back_roi_align_gradient},
    {0},
};
