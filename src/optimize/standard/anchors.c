/* SPDX-License-Identifier: Apache-2.0 */
/* The anchors in the standard's operators (lowering/anchors.h says what they mean). */
#include "lowering/anchors.h"

#include "optimize/standard/writer.h"

static Value *by_perm(Writer *w, Value *x, const Node *n, const char *name) {
    int count;
    const int64_t *perm = attr_ints(n, name, &count);
    return perm ? transpose(w, x, perm, count) : x;
}

static Value *product(Writer *w, const Node *n) {
    Value *a = by_perm(w, form_of(w, n->inputs[0]), n, "perm_a");
    Value *b = by_perm(w, form_of(w, n->inputs[1]), n, "perm_b");
    double alpha = attr_float(n, "alpha", 1);
    Value *result = apply2(w, "MatMul", a, b);
    if (result && alpha != 1) result = apply2(w, "Mul", result, number(w, result->dtype, alpha));
    return by_perm(w, result, n, "perm_out");
}

/* --- convolutions: channels are the standard's second axis, and the anchors' last -------------------------------------------- */

Value *channels_second(Writer *w, Value *x, int rank) {
    int64_t perm[MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i == 0 ? 0 : i == 1 ? rank - 1 : i - 1;
    return transpose(w, x, perm, rank);
}

Value *channels_last(Writer *w, Value *x, int rank) {
    int64_t perm[MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i == 0 ? 0 : i == rank - 1 ? 1 : i + 1;
    return transpose(w, x, perm, rank);
}

static bool all_known(const Dim *const *dims, int count, bool natural, int64_t *out_sizes) {
    for (int i = 0; i < count; i++)
        if (!dim_is_const(dims[i], &out_sizes[i]) || (natural && out_sizes[i] < 0)) return false;
    return true;
}

/* Zeros around the spatial axes of x [N, C, spatial...], or less of them where sizes are negative. */
static Value *pad_spatial(Writer *w, Value *x, const Dim *const *before, const Dim *const *after, int spatial) {
    const Dim *pads[2 * MAX_RANK];
    int rank = spatial + 2;
    bool stays = true;
    for (int i = 0; i < rank; i++) {
        pads[i] = i < 2 ? dim_const(w->table, 0) : before[i - 2];
        pads[rank + i] = i < 2 ? dim_const(w->table, 0) : after[i - 2];
        stays &= dim_equals(pads[i], 0) && dim_equals(pads[rank + i], 0);
    }
    Value *amounts = stays ? NULL : shape_value(w, pads, 2 * rank);
    if (stays || !amounts || !x) return stays ? x : NULL;
    return apply(w, "Pad", x->dtype, (Value *[]){x, amounts, number(w, x->dtype, 0)}, 3, NULL, 0);
}

static Value *convolution(Writer *w, const Node *n) {
    int count, rank = n->inputs[0]->rank, spatial = rank - 2;
    const Dim *const *pads = attr_dims(n, "pads", &count);
    int64_t known[2 * MAX_RANK];
    Value *x = channels_second(w, form_of(w, n->inputs[0]), rank), *weight = form_of(w, n->inputs[1]);
    bool inside = all_known(pads, 2 * spatial, true, known);
    if (!inside) x = pad_spatial(w, x, pads, pads + spatial, spatial);
    if (!x || !weight) return NULL;
    Attr attrs[] = {ints_attr("strides", attr_ints(n, "strides", &count), spatial),
                    ints_attr("dilations", attr_ints(n, "dilations", &count), spatial),
                    int_attr("group", attr_int(n, "group", 1)), ints_attr("pads", known, 2 * spatial)};
    return channels_last(w, apply(w, "Conv", x->dtype, (Value *[]){x, weight}, 2, attrs, inside ? 4 : 3), rank);
}

/* How long an axis is that nothing is cut off, less what is asked for. */
static const Dim *surplus(Writer *w, const Node *n, int axis, const Dim *before) {
    int count;
    DimTable *t = w->table;
    int64_t stride = attr_ints(n, "strides", &count)[axis], dilation = attr_ints(n, "dilations", &count)[axis];
    const Dim *one = dim_const(t, 1), *in = n->inputs[0]->dims[1 + axis], *kernel = n->inputs[1]->dims[2 + axis];
    const Dim *reach = dim_mul(t, dim_sub(t, kernel, one), dim_const(t, dilation));
    const Dim *whole = dim_add(t, dim_mul(t, dim_sub(t, in, one), dim_const(t, stride)), dim_add(t, reach, one));
    return dim_sub(t, whole, dim_add(t, before, n->outputs[0]->dims[1 + axis]));
}

Value *spread_windows(Writer *w, Value *x, Value *weight, const Dim *const *cut, int spatial, const int64_t *strides,
                      const int64_t *dilations, int64_t group) {
    const Dim *less[2 * MAX_RANK];
    int64_t known[2 * MAX_RANK];
    if (!x || !weight) return NULL;
    for (int i = 0; i < 2 * spatial; i++) less[i] = dim_sub(w->table, dim_const(w->table, 0), cut[i]);
    bool inside = all_known(cut, 2 * spatial, true, known);
    Attr attrs[] = {ints_attr("strides", strides, spatial), ints_attr("dilations", dilations, spatial),
                    int_attr("group", group), ints_attr("pads", known, 2 * spatial)};
    Value *y = apply(w, "ConvTranspose", x->dtype, (Value *[]){x, weight}, 2, attrs, inside ? 4 : 3);
    return inside ? y : pad_spatial(w, y, less, less + spatial, spatial);
}

static Value *transposed_convolution(Writer *w, const Node *n) {
    int count, rank = n->inputs[0]->rank, spatial = rank - 2;
    const Dim *const *pads = attr_dims(n, "pads", &count), *cut[2 * MAX_RANK];
    for (int i = 0; i < spatial; i++) {
        cut[i] = pads[i];
        cut[spatial + i] = surplus(w, n, i, pads[i]);
    }
    Value *x = channels_second(w, form_of(w, n->inputs[0]), rank), *weight = form_of(w, n->inputs[1]);
    Value *y = spread_windows(w, x, weight, cut, spatial, attr_ints(n, "strides", &count),
                              attr_ints(n, "dilations", &count), attr_int(n, "group", 1));
    return channels_last(w, y, rank);
}

void write_anchor(Writer *w, const Node *n) {
    static const struct {
        const char *op;
        Value *(*write)(Writer *w, const Node *n);
    } rows[] = {{"matmul", product}, {"conv", convolution}, {"conv_transpose", transposed_convolution}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !n->subgraph_count; i++)
        if (strcmp(rows[i].op, n->op) == 0) {
            set_form(w, n->outputs[0], rows[i].write(w, n));
            return;
        }
    refuse(w, "%s has no operator of the standard", n->op);
}
