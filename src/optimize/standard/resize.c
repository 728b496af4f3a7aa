/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of Resize. An axis is resized by a matrix, whatever the mode: Resize of the identity along one axis is that matrix, in any runtime
 * and of sizes that only a run knows, and the gradient is the product by it turned (ops/image/image_resize.c goes through its rows instead). */
#include "optimize/standard/writer.h"

/* What the matrices of all axes are made with. */
typedef struct Matrices {
    const Node *n;
    Value *scales; /* of the named axes, f32; NULL: the sizes say it */
    DType dtype;
    Attr attrs[8];
    int attr_count;
} Matrices;

static void copy_attrs(Matrices *m) {
    static const char *const names[] = {"coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a",
                                        "exclude_outside", "antialias"};
    const char *mode = attr_string(m->n, "mode", "nearest");
    m->attrs[m->attr_count++] = text_attr("mode", strcmp(mode, "bilinear") == 0 ? "linear" : mode);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const Attr *attr = node_attr(m->n, names[i]);
        if (attr) m->attrs[m->attr_count++] = *attr;
    }
}

/* [size, size] */
static Value *identity(Writer *w, const Matrices *m, const Dim *size) {
    Attr dtype = int_attr("dtype", m->dtype);
    Value *shape = shape_value(w, (const Dim *const[]){size, size}, 2);
    Value *like = shape ? apply(w, "Expand", m->dtype, (Value *[]){number(w, m->dtype, 0), shape}, 2, NULL, 0) : NULL;
    return like ? apply(w, "EyeLike", m->dtype, &like, 1, &dtype, 1) : NULL;
}

/* 1, 1, the scale at that place, 1. */
static Value *scales_of_axis(Writer *w, const Matrices *m, int64_t place) {
    Value *one = convert(w, vector_of(w, 1), DT_F32);
    return join_vectors(w, (Value *[]){one, one, vector_element(w, m->scales, place), one}, 4);
}

/* [to, from]. Runtimes resize pictures of four axes in all modes. */
static Value *matrix(Writer *w, const Matrices *m, const Dim *from, const Dim *to, int64_t place) {
    const Dim *one = dim_const(w->table, 1), *picture[] = {one, one, from, from}, *result[] = {one, one, to, from};
    Value *eye = identity(w, m, from), *x = eye ? reshape_to(w, eye, picture, 4) : NULL;
    Value *inputs[] = {x, NULL, m->scales ? scales_of_axis(w, m, place) : NULL,
                       m->scales ? NULL : shape_value(w, result, 4)};
    if (!x || (!inputs[2] && !inputs[3])) return NULL;
    Value *resized = apply(w, "Resize", m->dtype, inputs, m->scales ? 3 : 4, m->attrs, m->attr_count);
    return resized ? reshape_to(w, resized, result + 2, 2) : NULL;
}

/* g with that axis multiplied by the matrix [the axis's size, another]. */
static Value *multiplied(Writer *w, Value *g, Value *by, int axis, int rank) {
    int64_t perm[MAX_RANK];
    for (int i = 0; i < rank; i++) perm[i] = i;
    perm[axis] = rank - 1;
    perm[rank - 1] = axis; /* the same perm leads back */
    g = g && by ? transpose(w, g, perm, rank) : NULL;
    return g ? transpose(w, apply2(w, "MatMul", g, by), perm, rank) : NULL;
}

void write_resize_gradient(Writer *w, const Node *n, Value *const *in) {
    int rank, count, unused;
    const Dim *const *image = attr_dims(n, "image", &rank), *const *size = attr_dims(n, "size", &count);
    const int64_t *axes = attr_ints(n, "axes", &unused), *places = attr_ints(n, "places", &unused);
    DType narrow = n->outputs[0]->dtype;
    Matrices m = {.n = n, .scales = in[1], .dtype = narrow == DT_F64 ? DT_F64 : DT_F32};
    if (n->inputs[2] || n->inputs[3]) {
        refuse(w, "its gradient by %s is not written here", n->inputs[2] ? "a region" : "keep_aspect_ratio_policy");
        return;
    }
    copy_attrs(&m);
    Value *g = convert(w, in[0], m.dtype);
    for (int i = 0; i < count && g; i++) {
        Value *by = matrix(w, &m, image[axes[i]], size[i], places[i]);
        g = multiplied(w, g, by, (int)axes[i], rank);
    }
    if (g) set_form(w, n->outputs[0], convert(w, g, narrow));
}
