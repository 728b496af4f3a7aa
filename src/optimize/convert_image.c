/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of operators on images and signals: resizing, padding, sampling, Fourier transforms. */
#include "optimize/convert.h"

#include <math.h>

enum { MOST = 64 };

/* --- Upsample, Resize --- */

static Value *floats_value(Convert *c, Node *node, const float *values, int count) {
    Tensor *tensor = tensor_new(c->arena, DT_F32, 1, (const int64_t[]){count});
    if (count) memcpy(tensor->data, values, (size_t)count * sizeof *values);
    return graph_add_constant(node->graph, arena_format(c->arena, "%s_floats", node_origin_name(node)), tensor);
}

static int constant_floats(const Convert *c, const Value *value, float *out) {
    const Tensor *tensor = convert_constant(c, value);
    if (!tensor || tensor->dtype != DT_F32 || tensor_count(tensor) > MOST) return -1;
    int count = (int)tensor_count(tensor);
    if (count) memcpy(out, tensor->data, (size_t)count * sizeof *out);
    return count;
}

static const char *scales_to_input(Convert *c, Node *node) {
    const Attr *scales = node_attr(node, "scales");
    if (!scales || scales->kind != ATTR_FLOATS) return "it has no scales";
    node_put_input(node, 1, floats_value(c, node, scales->floats, scales->count));
    convert_drop_attr(node, "scales");
    return NULL;
}

static const char *scales_to_attr(Convert *c, Node *node) {
    float scales[MOST];
    int count = constant_floats(c, node_in(node, 1), scales);
    if (count < 0) return "its scales are computed, and an attribute in older versions";
    Attr attr = {.name = "scales", .kind = ATTR_FLOATS, .count = count};
    attr.floats = arena_copy(c->arena, scales, (size_t)count * sizeof *scales);
    node_set_attr(node, attr);
    convert_drop_input(node, 1);
    return NULL;
}

static const char *to_resize(Convert *c, Node *node) {
    (void)c;
    node->op = "Resize";
    node->opset = 10;
    return NULL;
}

/* Upsample does not make smaller. */
static const char *to_upsample(Convert *c, Node *node) {
    float scales[MOST];
    int count = constant_floats(c, node_in(node, 1), scales);
    if (count < 0) return "its scales are computed";
    for (int i = 0; i < count; i++)
        if (scales[i] < 1) return "it makes its input smaller, which older versions cannot";
    node->op = "Upsample";
    node->opset = 9;
    return NULL;
}

/* Version 10 takes the pixel at floor(position / scale). */
static const char *resize_told(Convert *c, Node *node) {
    Value *scales = node_in(node, 1);
    node_put_input(node, 2, scales);
    node_set_input(node, 1, floats_value(c, node, NULL, 0));
    node_set_string(node, "coordinate_transformation_mode", "asymmetric");
    if (strcmp(attr_string(node, "mode", "nearest"), "nearest") == 0) node_set_string(node, "nearest_mode", "floor");
    return NULL;
}

static bool all_whole(const float *scales, int count) {
    for (int i = 0; i < count; i++)
        if (scales[i] < 1 || scales[i] != floorf(scales[i])) return false;
    return true;
}

/* Scales that give these sizes. */
static int scales_for(const Convert *c, const Node *node, const int64_t *sizes, int count, float *out) {
    for (int i = 0; i < count; i++) {
        int64_t size;
        if (!convert_size(c, node_in(node, 0), i, &size) || size < 1) return -1;
        out[i] = (float)sizes[i] / (float)size;
        if ((int64_t)floorf(out[i] * (float)size) != sizes[i]) return -1;
    }
    return count;
}

static const char *resize_untold(Convert *c, Node *node) {
    const char *coordinates = attr_string(node, "coordinate_transformation_mode", "half_pixel");
    const char *mode = attr_string(node, "mode", "nearest"),
               *rounding = attr_string(node, "nearest_mode", "round_prefer_floor");
    bool nearest = strcmp(mode, "nearest") == 0, told = strcmp(coordinates, "asymmetric") == 0;
    int64_t sizes[MOST];
    float scales[MOST];
    int size_count, count = constant_floats(c, node_in(node, 2), scales);
    if (count <= 0 && node_in(node, 3) && convert_ints(c, node_in(node, 3), sizes, &size_count))
        count = scales_for(c, node, sizes, size_count, scales);
    if (strcmp(mode, "cubic") == 0) return "older versions have no cubic interpolation";
    if (count <= 0 && (!told || !node_in(node, 2) || (nearest && strcmp(rounding, "floor") != 0)))
        return "its scales are computed, and matter in how older versions have it";
    bool whole = count > 0 && all_whole(scales, count);
    if (nearest && whole) /* the middle of a pixel's copies lies within it, however it is rounded */
        told |= strcmp(coordinates, "half_pixel") == 0 && strncmp(rounding, "round", 5) == 0;
    bool floors = !nearest || strcmp(rounding, "floor") == 0 || (whole && strncmp(coordinates, "half", 4) == 0);
    if (!told || !floors) return "older versions map pixels in another way";
    for (int i = 0; nearest && i < count; i++)
        if (scales[i] < 1) return "it makes its input smaller, which older versions leave open how to do";
    Value *given = count > 0 ? floats_value(c, node, scales, count) : node_in(node, 2);
    convert_become(node, "Resize", 10, node_in(node, 0), given, NULL);
    node_set_string(node, "mode", mode);
    return NULL;
}

static const char *resize_all_inputs(Convert *c, Node *node) {
    for (int i = 1; i < 3; i++)
        if (!node_in(node, i)) node_put_input(node, i, floats_value(c, node, NULL, 0));
    return NULL;
}

static const char *resize_modes(Convert *c, Node *node) {
    (void)c;
    return strcmp(attr_string(node, "coordinate_transformation_mode", ""), "tf_half_pixel_for_nn") == 0
               ? "the other version maps pixels in another way"
               : NULL;
}

static const char *resize_symmetric(Convert *c, Node *node) {
    (void)c;
    return strcmp(attr_string(node, "coordinate_transformation_mode", ""), "half_pixel_symmetric") == 0
               ? "older versions map pixels in another way"
               : NULL;
}

/* Sizes or scales of some axes, as those of all. */
static const char *resize_all_axes(Convert *c, Node *node) {
    int axis_count, count, rank = convert_rank(c, node_in(node, 0));
    const int64_t *axes = attr_ints(node, "axes", &axis_count);
    int64_t sizes[MOST], all_sizes[MOST];
    float scales[MOST], all_scales[MOST];
    if (!axes) return NULL;
    if (rank < 0 || rank > MOST) return "the rank of its input is not known";
    if (node_in(node, 1) && strcmp(attr_string(node, "coordinate_transformation_mode", ""), "tf_crop_and_resize") == 0)
        return "it has a region of some axes";
    convert_drop_input(node, 1);
    bool by_size = node_in(node, 3) && convert_ints(c, node_in(node, 3), sizes, &count);
    if (!by_size) count = constant_floats(c, node_in(node, 2), scales);
    if (count != axis_count) return "its sizes are computed, and of some axes";
    if (by_size && strcmp(attr_string(node, "keep_aspect_ratio_policy", "stretch"), "stretch") != 0)
        return "it keeps the aspect ratio";
    for (int i = 0; i < rank; i++) {
        all_scales[i] = 1;
        if (by_size && !convert_size(c, node_in(node, 0), i, &all_sizes[i]))
            return "the sizes of its input are not known";
    }
    for (int i = 0; i < axis_count; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 0 || axis >= rank) return "its axes are not those of its input";
        if (by_size)
            all_sizes[axis] = sizes[i];
        else
            all_scales[axis] = scales[i];
    }
    convert_drop_attr(node, "axes");
    if (by_size)
        node_put_input(node, 3, convert_ints_value(c, node, all_sizes, rank));
    else
        node_put_input(node, 2, floats_value(c, node, all_scales, rank));
    return NULL;
}

/* --- Pad --- */

static const char *pads_to_inputs(Convert *c, Node *node) {
    DType dtype = convert_type(c, node_in(node, 0)).dtype;
    double value = attr_float(node, "value", 0);
    convert_attr_to_input(c, node, "pads", 1);
    convert_drop_attr(node, "value");
    if (value == 0) return NULL;
    if (dtype == DT_NONE) return "the type of its input is not known";
    node_put_input(node, 2, convert_number_value(c, node, dtype, value));
    return NULL;
}

static const char *pads_to_attrs(Convert *c, Node *node) {
    double value = 0;
    if (node_in(node, 2) && !convert_number(c, node_in(node, 2), &value))
        return "its value is computed, and an attribute in older versions";
    if ((double)(float)value != value && !isnan(value))
        return "its value is not exact as the attribute of older versions";
    convert_drop_input(node, 2);
    node_set_float(node, "value", value);
    return convert_input_to_attr(c, node, 1, "pads");
}

static const char *pads_of_all_axes(Convert *c, Node *node) {
    int64_t axes[MOST], pads[MOST], all[2 * MAX_RANK] = {0};
    int axis_count, count, rank = convert_rank(c, node_in(node, 0));
    if (!node_in(node, 3)) return NULL;
    if (rank < 0 || rank > MAX_RANK) return "the rank of its input is not known";
    if (!convert_ints(c, node_in(node, 3), axes, &axis_count) || !convert_ints(c, node_in(node, 1), pads, &count))
        return "its pads of some axes are computed";
    if (count != 2 * axis_count) return "it has not two pads for each axis";
    for (int i = 0; i < axis_count; i++) {
        int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 0 || axis >= rank) return "its axes are not those of its input";
        all[axis] = pads[i];
        all[rank + axis] = pads[axis_count + i];
    }
    convert_drop_input(node, 3);
    node_put_input(node, 1, convert_ints_value(c, node, all, 2 * rank));
    return NULL;
}

static const char *pad_wraps(Convert *c, Node *node) {
    (void)c;
    return strcmp(attr_string(node, "mode", "constant"), "wrap") == 0 ? "older versions do not wrap" : NULL;
}

/* --- sampling and transforms --- */

static const struct { const char *old, *now; } sample_modes[] = {{"bilinear", "linear"}, {"bicubic", "cubic"}};

static const char *sample_renamed(Convert *c, Node *node) {
    (void)c;
    const char *mode = attr_string(node, "mode", "bilinear");
    for (int i = 0; i < 2; i++)
        if (strcmp(mode, sample_modes[i].old) == 0) node_set_string(node, "mode", sample_modes[i].now);
    return NULL;
}

static const char *sample_named_as_before(Convert *c, Node *node) {
    const char *mode = attr_string(node, "mode", "linear");
    int rank = convert_rank(c, node_in(node, 0));
    if (rank != 4) return "older versions sample images of two axes alone";
    for (int i = 0; i < 2; i++)
        if (strcmp(mode, sample_modes[i].now) == 0) node_set_string(node, "mode", sample_modes[i].old);
    return NULL;
}

static const char *transform_axis_to_input(Convert *c, Node *node) {
    int64_t axis = attr_int(node, "axis", 1);
    Tensor *tensor = tensor_scalar_int(c->arena, DT_I64, axis);
    node_put_input(node, 2, graph_add_constant(node->graph, "axis", tensor));
    convert_drop_attr(node, "axis");
    return NULL;
}

static const char *transform_axis_to_attr(Convert *c, Node *node) {
    double number = -2;
    if (node_in(node, 2) && !convert_number(c, node_in(node, 2), &number))
        return "its axis is computed, and an attribute in older versions";
    int64_t axis = (int64_t)number;
    if (!convert_axis(c, node_in(node, 0), &axis)) return "the rank of its input is not known";
    convert_drop_input(node, 2);
    node_set_int(node, "axis", axis);
    return NULL;
}

/* Before 16, pixels were not shifted by a half. */
static const char *align_told(Convert *c, Node *node) {
    (void)c;
    node_set_string(node, "coordinate_transformation_mode", "output_half_pixel");
    return NULL;
}

static const char *align_untold(Convert *c, Node *node) {
    (void)c;
    if (strcmp(attr_string(node, "coordinate_transformation_mode", "half_pixel"), "output_half_pixel") != 0)
        return "older versions do not shift pixels by a half";
    convert_drop_attr(node, "coordinate_transformation_mode");
    return NULL;
}

/* Before 22, ceil_mode also counted a last window that begins in the padding behind; there is one where the stride is
 * wider than what the window covers of the image. */
static const char *last_window(Convert *c, Node *node) {
    int count, strides = 0, dilations = 0, pads = 0;
    const int64_t *kernel = attr_ints(node, "kernel_shape", &count);
    const int64_t *stride = attr_ints(node, "strides", &strides), *dilation = attr_ints(node, "dilations", &dilations),
                  *pad = attr_ints(node, "pads", &pads);
    (void)c;
    if (!kernel || !attr_int(node, "ceil_mode", 0)) return NULL;
    for (int i = 0; i < count; i++) {
        int64_t covered = (kernel[i] - 1) * (i < dilations ? dilation[i] : 1) + 1;
        int64_t behind = count + i < pads ? pad[count + i] : 0;
        if (i < strides && stride[i] > covered - behind)
            return "the last window is counted in another way in the other version";
    }
    return NULL;
}

const ConvertRule convert_images[] = {
    {"AveragePool", 22, last_window, last_window},
    {"MaxPool", 22, last_window, last_window},
    {"LpPool", 22, last_window, last_window},
    {"Upsample", 9, scales_to_input, scales_to_attr},
    {"Upsample", 10, to_resize, NULL},
    {"Resize", 10, NULL, to_upsample},
    {"Resize", 11, resize_told, resize_untold},
    {"Resize", 13, resize_modes, resize_all_inputs},
    {"Resize", 18, NULL, resize_all_axes},
    {"Resize", 19, NULL, resize_symmetric},
    {"Pad", 11, pads_to_inputs, pads_to_attrs},
    {"Pad", 18, NULL, pads_of_all_axes},
    {"Pad", 19, NULL, pad_wraps},
    {"GridSample", 20, sample_renamed, sample_named_as_before},
    {"DFT", 20, transform_axis_to_input, transform_axis_to_attr},
    {"RoiAlign", 16, align_told, align_untold},
    {0},
};
