/* SPDX-License-Identifier: Apache-2.0 */
/* Resize, the sizes that it comes to, and its gradient. An axis is resized by a matrix, whatever the mode: Resize of the identity along one axis is
 * that matrix, in any runtime and of sizes that only a run knows, and the gradient is the product by it turned (ops/image/image_resize.c goes through
 * its rows instead). */
#include "optimize/standard/writer.h"

enum { MOST_RESIZE_ATTRS = 9 };

/* A step of ops/image/image_resize.c: what is said of its axes stands at their `places` in vectors about `named` axes. */
typedef struct Resizing {
    const int64_t *axes, *places;
    int count;
    int64_t named;
    const Dim *const *size; /* [count] of the result */
    Value *scales, *roi,
        *sizes; /* NULL: `size` says it; there is no region; sizes: one scale holds for all axes (keep_aspect_ratio_policy) */
    Attr attrs[MOST_RESIZE_ATTRS];
    int attr_count;
} Resizing;

static Resizing resizing_of(const Node *n, Value *const *in) {
    static const char *const names[] = {
        "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside", "antialias",
        "keep_aspect_ratio_policy"};
    Resizing r = {.named = attr_int(n, "named_axes", 0), .scales = in[1], .roi = in[2], .sizes = in[3]};
    const char *mode = attr_string(n, "mode", "nearest");
    r.axes = attr_ints(n, "axes", &r.count);
    r.places = attr_ints(n, "places", &r.count);
    r.size = attr_dims(n, "size", &r.count);
    r.attrs[r.attr_count++] = text_attr("mode", strcmp(mode, "bilinear") == 0 ? "linear" : mode);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const Attr *attr = node_attr(n, names[i]);
        if (attr) r.attrs[r.attr_count++] = *attr;
    }
    return r;
}

/* What a vector says of `count` of the axes, and again of them `further` elements on, where that is not 0. */
static Value *said_of(Writer *w, const Resizing *r, Value *vector, int from, int count, int64_t further) {
    int64_t places[2 * MAX_RANK];
    for (int i = 0; i < count; i++) {
        places[i] = r->places[from + i];
        places[count + i] = further + places[i];
    }
    Value *list[] = {vector, ints_value(w, places, further ? 2 * count : count)};
    return list[1] ? apply(w, "Gather", vector->dtype, list, 2, NULL, 0) : NULL;
}

/* x with `count` of the axes resized, which are its own from `first` on. */
static Value *resized(Writer *w, Resizing *r, Value *x, int first, int from, int count) {
    int64_t axes[MAX_RANK];
    for (int i = 0; i < count; i++) axes[i] = first + i;
    Value *inputs[] = {x, r->roi ? said_of(w, r, r->roi, from, count, r->named) : NULL,
                       r->scales ? said_of(w, r, r->scales, from, count, 0) : NULL, NULL};
    if (!r->scales)
        inputs[3] = r->sizes ? said_of(w, r, r->sizes, from, count, 0) : shape_value(w, r->size + from, count);
    if (!x || (!inputs[2] && !inputs[3])) return NULL;
    r->attrs[r->attr_count] = ints_attr("axes", axes, count);
    return apply(w, "Resize", x->dtype, inputs, r->scales ? 3 : 4, r->attrs, r->attr_count + 1);
}

/* Inputs: the sizes before, and scales, or the sizes wanted. */
static void write_resized_sizes(Writer *w, const Node *n, Value *const *in) {
    Value *wanted = in[1], *factor, *half = number(w, DT_F64, 0.5);
    if (dtype_is_float(wanted->dtype)) {
        Value *size = apply2(w, "Mul", convert(w, in[0], DT_F32), convert(w, wanted, DT_F32));
        set_form(w, n->outputs[0], convert(w, size, DT_I64));
        return;
    }
    bool larger = strcmp(attr_string(n, "keep_aspect_ratio_policy", ""), "not_smaller") == 0;
    Value *size = convert(w, in[0], DT_F64);
    factor = apply1(w, larger ? "ReduceMax" : "ReduceMin", apply2(w, "Div", convert(w, wanted, DT_F64), size));
    size = apply1(w, "Floor", apply2(w, "Add", apply2(w, "Mul", factor, size), half));
    set_form(w, n->outputs[0], convert(w, size, DT_I64));
}

/* Runtimes resize the last axes of a picture in all modes. */
void write_resize(Writer *w, const Node *n, Value *const *in) {
    if (!node_attr(n, "places")) {
        write_resized_sizes(w, n, in);
        return;
    }
    Resizing r = resizing_of(n, in);
    const Attr *fill = node_attr(n, "extrapolation_value");
    int64_t perm[MAX_RANK], back[MAX_RANK];
    int rank = n->inputs[0]->rank, stays = 0, next = 0;
    for (int i = 0; i < rank; i++) {
        bool moves = next < r.count && r.axes[next] == i;
        back[i] = moves ? rank - r.count + next++ : stays++;
        perm[back[i]] = i;
    }
    if (fill) r.attrs[r.attr_count++] = *fill;
    Value *y = resized(w, &r, transpose(w, in[0], perm, rank), rank - r.count, 0, r.count);
    set_form(w, n->outputs[0], transpose(w, y, back, rank));
}

/* --- the gradient ----------------------------------------------------------------------------------------------------------------- */

/* [size, size] */
static Value *identity(Writer *w, DType type, const Dim *size) {
    Attr dtype = int_attr("dtype", type);
    Value *shape = shape_value(w, (const Dim *const[]){size, size}, 2);
    Value *like = shape ? apply(w, "Expand", type, (Value *[]){number(w, type, 0), shape}, 2, NULL, 0) : NULL;
    return like ? apply(w, "EyeLike", type, &like, 1, &dtype, 1) : NULL;
}

/* The matrix [from, to] of axis i. The identity lies along a picture's channels and that axis. Where one scale holds for all axes, all are resized:
 * they are equal along the others, of which the first element is taken. */
static Value *matrix(Writer *w, Resizing *r, DType dtype, const Dim *const *image, int i) {
    bool all = r->sizes != NULL;
    int from = all ? 0 : i, count = all ? r->count : 1, rank = count < 2 ? 4 : 2 + count;
    const Dim *one = dim_const(w->table, 1), *size = image[r->axes[i]], *line[MAX_RANK], *whole[MAX_RANK];
    const Dim *result[] = {size, r->size[i]};
    for (int k = 0; k < rank; k++) {
        bool named = k >= 2 && k < 2 + count;
        line[k] = k == 1 || k == 2 + i - from ? size : one;
        whole[k] = named ? image[r->axes[from + k - 2]] : line[k];
    }
    Value *x = reshape_to(w, identity(w, dtype, size), line, rank), *shape = shape_value(w, whole, rank);
    if (!x || !shape) return NULL;
    if (count > 1) x = apply(w, "Expand", dtype, (Value *[]){x, shape}, 2, NULL, 0);
    Value *y = resized(w, r, x, 2, from, count);
    for (int k = 0; y && k < count; k++)
        if (from + k != i) {
            Attr axis = int_attr("axis", 2 + k);
            y = apply(w, "Gather", dtype, (Value *[]){y, vector_of(w, 0)}, 2, &axis, 1);
        }
    return reshape_to(w, y, result, 2);
}

/* g with that axis multiplied by the matrix [another size, the axis's] turned. */
static Value *multiplied(Writer *w, Value *g, Value *by, int axis, int rank) {
    int64_t perm[MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i;
    perm[axis] = rank - 1;
    perm[rank - 1] = axis; /* the same perm leads back */
    by = by ? transpose(w, by, (int64_t[]){1, 0}, 2) : NULL;
    g = g && by ? transpose(w, g, perm, rank) : NULL;
    return g ? transpose(w, apply2(w, "MatMul", g, by), perm, rank) : NULL;
}

void write_resize_gradient(Writer *w, const Node *n, Value *const *in) {
    int rank;
    const Dim *const *image = attr_dims(n, "image", &rank);
    DType narrow = n->outputs[0]->dtype, dtype = narrow == DT_F64 ? DT_F64 : DT_F32;
    Resizing r = resizing_of(n, in);
    Value *g = convert(w, in[0], dtype);
    for (int i = 0; i < r.count && g; i++) g = multiplied(w, g, matrix(w, &r, dtype, image, i), (int)r.axes[i], rank);
    if (g) set_form(w, n->outputs[0], convert(w, g, narrow));
}
