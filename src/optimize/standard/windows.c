/* SPDX-License-Identifier: Apache-2.0 */
/* Host steps over windows of images, pooling, its gradients, columns and regions, in the standard's operators. */
#include "optimize/standard/writer.h"

enum { MOST_WINDOW_ATTRS = 6 };

typedef struct WindowAttrs {
    Attr items[MOST_WINDOW_ATTRS];
    int count;
    int64_t pads[2 * MAX_RANK];
} WindowAttrs;

/* What pooling operators share. Where only a run knows how far it is padded, auto_pad has said so. */
static void window_attrs(const Node *n, WindowAttrs *out) {
    static const char *const lists[] = {"kernel_shape", "strides", "dilations"};
    int count;
    bool known = true;
    const Dim *const *pads = attr_dims(n, "pads", &count);
    for (int i = 0; i < count; i++) known &= dim_is_const(pads[i], &out->pads[i]);
    out->items[0] = known ? ints_attr("pads", out->pads, count) : text_attr("auto_pad", attr_string(n, "auto_pad", ""));
    for (int i = 0; i < 3; i++) {
        const int64_t *list = attr_ints(n, lists[i], &count);
        out->items[1 + i] = ints_attr(lists[i], list, count);
    }
    out->items[4] = int_attr("ceil_mode", attr_int(n, "ceil_mode", 0));
    out->count = 5;
}

/* *out_places: in x flattened, as the standard counts them. */
static Value *max_pool(Writer *w, const Node *n, Value *x, int64_t storage_order, Value **out_places) {
    WindowAttrs attrs;
    if (!x) return NULL;
    window_attrs(n, &attrs);
    attrs.items[attrs.count++] = int_attr("storage_order", storage_order);
    Value *y = apply(w, "MaxPool", x->dtype, &x, 1, attrs.items, attrs.count);
    if (!y || !out_places) return y;
    *out_places = further_result(y, "MaxPool", "places", DT_I64);
    return y;
}

static void write_max_pool(Writer *w, const Node *n) {
    int rank = n->inputs[0]->rank;
    Value *x = channels_second(w, form_of(w, n->inputs[0]), rank), *places = NULL;
    Value *indices = n->output_count > 1 ? n->outputs[1] : NULL;
    Value *y = max_pool(w, n, x, attr_int(n, "storage_order", 0), indices ? &places : NULL);
    if (n->outputs[0]) set_form(w, n->outputs[0], channels_last(w, y, rank));
    if (indices) set_form(w, indices, channels_last(w, places, rank));
}

/* dx: zeros, to which each window's dy is added at the place of its maximum. */
static void write_max_pool_gradient(Writer *w, const Node *n) {
    const Value *input = n->inputs[0];
    int rank = input->rank;
    Value *x = channels_second(w, form_of(w, input), rank), *g = channels_second(w, form_of(w, n->inputs[1]), rank);
    Value *places = NULL;
    if (!max_pool(w, n, x, 0, &places) || !g) return;
    const Dim *total = dim_product(w->table, input->dims, rank), *dims[MAX_RANK];
    const Dim *windows = dim_product(w->table, n->inputs[1]->dims, rank);
    for (int i = 0; i < rank; i++) dims[i] = input->dims[i == 0 ? 0 : i == 1 ? rank - 1 : i - 1];
    Value *size = shape_value(w, &total, 1);
    Value *zeros = size ? apply(w, "Expand", g->dtype, (Value *[]){number(w, g->dtype, 0), size}, 2, NULL, 0) : NULL;
    Attr attrs[] = {int_attr("axis", 0), text_attr("reduction", "add")};
    Value *list[] = {zeros, reshape_to(w, places, &windows, 1), reshape_to(w, g, &windows, 1)};
    if (!list[0] || !list[1] || !list[2]) return;
    Value *sum = apply(w, "ScatterElements", g->dtype, list, 3, attrs, 2);
    set_form(w, n->outputs[0], channels_last(w, reshape_to(w, sum, dims, rank), rank));
}

/* more: of this operator alone, or NULL. */
static void write_pool(Writer *w, const Node *n, const Attr *more) {
    int rank = n->inputs[0]->rank;
    Value *x = channels_second(w, form_of(w, n->inputs[0]), rank);
    WindowAttrs attrs;
    if (!x) return;
    window_attrs(n, &attrs);
    if (more) attrs.items[attrs.count++] = *more;
    Value *y = apply(w, n->op, x->dtype, &x, 1, attrs.items, attrs.count);
    set_form(w, n->outputs[0], channels_last(w, y, rank));
}

static void write_average_pool(Writer *w, const Node *n) {
    Attr include = int_attr("count_include_pad", attr_int(n, "count_include_pad", 0));
    write_pool(w, n, &include);
}

static void write_lp_pool(Writer *w, const Node *n) { write_pool(w, n, node_attr(n, "p")); }

static void write_columns(Writer *w, const Node *n) {
    static const char *const lists[] = {"dilations", "pads", "strides"};
    int spatial, count;
    const Dim *const *image = attr_dims(n, "image", &spatial), *const *block = attr_dims(n, "block", &spatial);
    Value *inputs[] = {form_of(w, n->inputs[0]), shape_value(w, image, spatial), shape_value(w, block, spatial)};
    Attr attrs[3];
    for (int i = 0; i < 3; i++) {
        const int64_t *list = attr_ints(n, lists[i], &count);
        attrs[i] = ints_attr(lists[i], list, count);
    }
    if (!inputs[0] || !inputs[1] || !inputs[2]) return;
    set_form(w, n->outputs[0], apply(w, "Col2Im", inputs[0]->dtype, inputs, 3, attrs, 3));
}

static void write_regions(Writer *w, const Node *n) {
    static const char *const kept[] = {"mode", "output_height", "output_width", "sampling_ratio", "spatial_scale"};
    Value *inputs[] = {channels_second(w, form_of(w, n->inputs[0]), 4), form_of(w, n->inputs[1]),
                       form_of(w, n->inputs[2])};
    const char *shift = attr_int(n, "half_pixel", 0) ? "half_pixel" : "output_half_pixel";
    Attr attrs[6] = {text_attr("coordinate_transformation_mode", shift)};
    int count = 1;
    for (int i = 0; i < 5; i++)
        if (node_attr(n, kept[i])) attrs[count++] = *node_attr(n, kept[i]);
    if (!inputs[0] || !inputs[1] || !inputs[2]) return;
    Value *y = apply(w, "RoiAlign", inputs[0]->dtype, inputs, 3, attrs, count);
    set_form(w, n->outputs[0], channels_last(w, y, 4));
}

/* Each window's number on all of its elements: a transposed convolution with ones. */
static void write_spread_windows(Writer *w, const Node *n) {
    int rank, spatial, unused;
    const Dim *const *image = attr_dims(n, "image", &rank), *const *size = attr_dims(n, "size", &spatial);
    const Dim *const *pads = attr_dims(n, "pads", &unused), *cut[2 * MAX_RANK], *ones[MAX_RANK], *flat[MAX_RANK],
                     *dims[MAX_RANK];
    const int64_t *kernel = attr_ints(n, "kernel_shape", &unused), *strides = attr_ints(n, "strides", &unused),
                  *dilations = attr_ints(n, "dilations", &unused);
    DimTable *t = w->table;
    Value *g = channels_second(w, form_of(w, n->inputs[0]), rank);
    if (!g) return;
    dims[0] = image[0];
    dims[1] = image[rank - 1];
    flat[0] = dim_mul(t, dims[0], dims[1]); /* each channel by itself */
    flat[1] = ones[0] = ones[1] = dim_const(t, 1);
    for (int i = 0; i < spatial; i++) {
        const Dim *steps = dim_mul(t, dim_sub(t, size[i], dim_const(t, 1)), dim_const(t, strides[i]));
        const Dim *whole = dim_add(t, steps, dim_const(t, (kernel[i] - 1) * dilations[i] + 1));
        cut[i] = pads[i];
        cut[spatial + i] = dim_sub(t, whole, dim_add(t, pads[i], image[1 + i]));
        ones[2 + i] = dim_const(t, kernel[i]);
        flat[2 + i] = size[i];
        dims[2 + i] = image[1 + i];
    }
    Value *shape = shape_value(w, ones, rank);
    Value *weight = shape ? apply(w, "Expand", g->dtype, (Value *[]){number(w, g->dtype, 1), shape}, 2, NULL, 0) : NULL;
    Value *x = reshape_to(w, g, flat, rank);
    Value *y = spread_windows(w, x, weight, cut, spatial, strides, dilations, 1);
    set_form(w, n->outputs[0], channels_last(w, reshape_to(w, y, dims, rank), rank));
}

bool write_window(Writer *w, const Node *n) {
    static const struct {
        const char *op;
        void (*write)(Writer *w, const Node *n);
    } rows[] = {{"MaxPool", write_max_pool},
                {"MaxPoolGradient", write_max_pool_gradient},
                {"AveragePool", write_average_pool},
                {"LpPool", write_lp_pool},
                {"Col2Im", write_columns},
                {"RoiAlign", write_regions},
                {"SpreadWindows", write_spread_windows}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].op, n->op) != 0 || *n->domain) continue;
        rows[i].write(w, n);
        return true;
    }
    return false;
}
