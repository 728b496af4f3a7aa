/* SPDX-License-Identifier: Apache-2.0 */
/* Sliding windows: sizes and paddings of convolutions and pooling as expressions of the input's sizes. */
#include "ops/linear/geometry.h"

Status spatial_ints(Lowering *l, const Node *n, const char *name, int count, int64_t least, int64_t otherwise,
                    int64_t *out) {
    int given;
    const int64_t *values = attr_ints(n, name, &given);
    if (given && given != count) return invalid(l, "attribute %s has %d elements instead of %d", name, given, count);
    for (int i = 0; i < count; i++) {
        out[i] = given ? values[i] : otherwise;
        if (out[i] < least || out[i] > INT32_MAX)
            return invalid(l, "attribute %s holds %lld, which is out of range", name, (long long)out[i]);
    }
    return NULL;
}

const Dim *window_extent(const Lowering *l, const Dim *kernel, int64_t dilation) {
    const Dim *one = size_const(l, 1);
    return size_add(l, size_mul(l, size_sub(l, kernel, one), size_const(l, dilation)), one);
}

Status kernel_shape_of(Lowering *l, const Node *n, int spatial, const Dim **out_kernel) {
    int given;
    attr_ints(n, "kernel_shape", &given);
    if (!given) return invalid(l, "attribute kernel_shape is missing");
    int64_t kernel[MAX_SPATIAL];
    TRY(spatial_ints(l, n, "kernel_shape", spatial, 1, 1, kernel));
    for (int i = 0; i < spatial; i++) out_kernel[i] = size_const(l, kernel[i]);
    return NULL;
}

typedef enum AutoPad { PAD_NOTSET, PAD_VALID, PAD_SAME_UPPER, PAD_SAME_LOWER, PAD_UNKNOWN } AutoPad;

static AutoPad auto_pad_of(const Node *n) {
    static const char *const names[] = {"NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"};
    const char *name = attr_string(n, "auto_pad", "NOTSET");
    if (!*name) return PAD_NOTSET;
    for (int i = 0; i < PAD_UNKNOWN; i++)
        if (strcmp(name, names[i]) == 0) return (AutoPad)i;
    return PAD_UNKNOWN;
}

/* SAME: ceil(in / stride) windows; what they need beyond the input is split over both ends, the odd one where the name
 * says. */
static void pad_same(const Lowering *l, const Dim *in, const Dim *extent, int64_t stride, bool upper, const Dim **size,
                     const Dim **before, const Dim **after) {
    *size = dim_ceil_div(l->dims, in, size_const(l, stride));
    const Dim *covered = size_add(l, size_mul(l, size_sub(l, *size, size_const(l, 1)), size_const(l, stride)), extent);
    const Dim *total = dim_max(l->dims, size_sub(l, covered, in), size_const(l, 0));
    const Dim *less = dim_div(l->dims, total, size_const(l, 2)), *more = size_sub(l, total, less);
    *before = upper ? less : more;
    *after = upper ? more : less;
}

/* With ceil_mode a last window may reach over the end, but not start in the padding after it. */
static const Dim *window_count(const Lowering *l, const Dim *in, const Dim *extent, int64_t stride, const Dim *before,
                               const Dim *after, bool ceil_mode) {
    const Dim *from = size_add(l, in, before), *s = size_const(l, stride), *one = size_const(l, 1);
    const Dim *room = size_sub(l, size_add(l, from, after), extent);
    if (!ceil_mode) return size_add(l, dim_div(l->dims, room, s), one);
    return dim_min(l->dims, size_add(l, dim_ceil_div(l->dims, room, s), one), dim_ceil_div(l->dims, from, s));
}

Status geometry_of(Lowering *l, const Node *n, int spatial, const Dim *const *in, const Dim *const *kernel,
                   WindowKind kind, Geometry *out) {
    int64_t pads[2 * MAX_SPATIAL];
    if (spatial < 1 || spatial > MAX_SPATIAL)
        return invalid(l, "the input has %d dimensions; a batch, channels and at least one more are needed",
                       spatial + 2);
    out->spatial = spatial;
    TRY(spatial_ints(l, n, "strides", spatial, 1, 1, out->strides));
    TRY(spatial_ints(l, n, "dilations", spatial, 1, 1, out->dilations));
    AutoPad mode = auto_pad_of(n);
    if (mode == PAD_UNKNOWN) return invalid(l, "auto_pad \"%s\" is not known", attr_string(n, "auto_pad", ""));
    if (mode == PAD_NOTSET)
        TRY(spatial_ints(l, n, "pads", 2 * spatial, 0, 0, pads));
    else
        memset(pads, 0, sizeof pads);
    bool ceil_mode = kind == WINDOW_POOL && attr_int(n, "ceil_mode", 0);
    for (int i = 0; i < spatial; i++) {
        const Dim *extent = window_extent(l, kernel[i], out->dilations[i]);
        const Dim **before = &out->pads[i], **after = &out->pads[spatial + i];
        out->kernel[i] = kernel[i];
        if (mode >= PAD_SAME_UPPER) {
            pad_same(l, in[i], extent, out->strides[i], mode == PAD_SAME_UPPER, &out->size[i], before, after);
            continue;
        }
        *before = size_const(l, pads[i]);
        *after = size_const(l, pads[spatial + i]);
        if (kind == WINDOW_TRANSPOSED) continue;
        out->size[i] = window_count(l, in[i], extent, out->strides[i], *before, *after, ceil_mode);
        int64_t known;
        if (dim_is_const(out->size[i], &known) && known < 0)
            return invalid(l, "the window of spatial axis %d is larger than the padded input", i);
    }
    return NULL;
}
