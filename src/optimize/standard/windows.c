/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling and its gradients, host steps over channels-last tensors, in the standard's operators. */
#include "optimize/standard/writer.h"

enum { MOST_WINDOW_ATTRS = 6 };

typedef struct WindowAttrs {
    Attr items[MOST_WINDOW_ATTRS];
    int count;
    int64_t pads[2 * MAX_RANK];
} WindowAttrs;

static bool known_sizes(const Dim *const *dims, int count, int64_t *out_sizes) {
    for (int i = 0; i < count; i++)
        if (!dim_is_const(dims[i], &out_sizes[i])) return false;
    return true;
}

/* What MaxPool and AveragePool share; false: refused. Of a step, "pads" are those that auto_pad came to. */
static bool window_attrs(Writer *w, const Node *n, WindowAttrs *out) {
    static const char *const lists[] = {"kernel_shape", "strides", "dilations"};
    int count;
    const Dim *const *pads = attr_dims(n, "pads", &count);
    if (!known_sizes(pads, count, out->pads)) return refuse(w, "how far it is padded only a run knows"), false;
    out->items[0] = ints_attr("pads", out->pads, count);
    for (int i = 0; i < 3; i++) {
        const int64_t *list = attr_ints(n, lists[i], &count);
        out->items[1 + i] = ints_attr(lists[i], list, count);
    }
    out->items[4] = int_attr("ceil_mode", attr_int(n, "ceil_mode", 0));
    out->count = 5;
    return true;
}

/* *out_places: in x flattened, as the standard counts them. */
static Value *max_pool(Writer *w, const Node *n, Value *x, int64_t storage_order, Value **out_places) {
    WindowAttrs attrs;
    if (!x || !window_attrs(w, n, &attrs)) return NULL;
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

static void write_average_pool(Writer *w, const Node *n) {
    int rank = n->inputs[0]->rank;
    WindowAttrs attrs;
    Value *x = channels_second(w, form_of(w, n->inputs[0]), rank);
    if (!x || !window_attrs(w, n, &attrs)) return;
    attrs.items[attrs.count++] = int_attr("count_include_pad", attr_int(n, "count_include_pad", 0));
    Value *y = apply(w, "AveragePool", x->dtype, &x, 1, attrs.items, attrs.count);
    set_form(w, n->outputs[0], channels_last(w, y, rank));
}

/* How many elements the window at place `at` of an axis counts: those between low and high. */
static int64_t counted(int64_t at, int64_t stride, int64_t dilation, int64_t kernel, int64_t before, int64_t low,
                       int64_t high) {
    int64_t count = 0;
    for (int64_t tap = 0; tap < kernel; tap++) {
        int64_t place = at * stride - before + tap * dilation;
        count += place >= low && place < high;
    }
    return count;
}

/* 1 over what each window counts, of shape [1, 1, windows]; one number where it is the same in all. */
static Value *parts(Writer *w, const Node *n, const Dim *const *image, DType dtype) {
    int spatial, unused;
    const int64_t *kernel = attr_ints(n, "kernel_shape", &spatial), *strides = attr_ints(n, "strides", &unused),
                  *dilations = attr_ints(n, "dilations", &unused);
    bool with_pads = attr_int(n, "count_include_pad", 0);
    int64_t pads[2 * MAX_RANK], in[MAX_RANK], dims[MAX_RANK] = {1, 1}, whole = 1;
    bool inside = attr_int(n, "ceil_mode", 0) == 0;
    if (!known_sizes(attr_dims(n, "pads", &unused), 2 * spatial, pads))
        return refuse(w, "how far it is padded only a run knows"), NULL;
    for (int i = 0; i < spatial; i++) {
        whole *= kernel[i];
        inside &= with_pads || (!pads[i] && !pads[spatial + i]);
    }
    if (inside) return number(w, dtype, 1 / (double)whole);
    if (!known_sizes(image, spatial, in) || !known_sizes(attr_dims(n, "size", &unused), spatial, dims + 2))
        return refuse(w, "how many elements its windows average only a run knows"), NULL;
    Tensor *tensor = tensor_new(w->arena, DT_F64, spatial + 2, dims);
    for (int64_t e = 0; e < tensor_count(tensor); e++) {
        int64_t rest = e, count = 1;
        for (int i = spatial - 1; i >= 0; i--) {
            int64_t more = with_pads ? 1 : 0;
            count *= counted(rest % dims[2 + i], strides[i], dilations[i], kernel[i], pads[i], -more * pads[i],
                             in[i] + more * pads[spatial + i]);
            rest /= dims[2 + i];
        }
        ((double *)tensor->data)[e] = 1 / (double)(count ? count : 1);
    }
    return convert(w, small_constant(w, tensor), dtype);
}

/* dx: each window's part of dy on all of its elements, a transposed convolution with ones. */
static void write_average_pool_gradient(Writer *w, const Node *n) {
    int rank, spatial, unused;
    const Dim *const *image = attr_dims(n, "image", &rank), *const *size = attr_dims(n, "size", &spatial);
    const Dim *const *pads = attr_dims(n, "pads", &unused), *cut[2 * MAX_RANK], *ones[MAX_RANK], *flat[MAX_RANK],
                     *dims[MAX_RANK];
    const int64_t *kernel = attr_ints(n, "kernel_shape", &unused), *strides = attr_ints(n, "strides", &unused),
                  *dilations = attr_ints(n, "dilations", &unused);
    DimTable *t = w->table;
    Value *g = channels_second(w, form_of(w, n->inputs[0]), rank);
    Value *part = g ? parts(w, n, image + 1, g->dtype) : NULL;
    if (!part) return;
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
    Value *x = reshape_to(w, apply2(w, "Mul", g, part), flat, rank);
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
                {"AveragePoolGradient", write_average_pool_gradient}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].op, n->op) != 0 || *n->domain) continue;
        rows[i].write(w, n);
        return true;
    }
    return false;
}
