/* SPDX-License-Identifier: Apache-2.0 */
/* Host steps that are operators of the standard, and those that compute sizes which only a run knows: by the operator itself, on a tensor of truth
 * values of the same shape, whose result then has these sizes. */
#include "optimize/standard/writer.h"

static DType type_of(const Node *n) { return n->outputs[0]->dtype; }

static Value *of_one_axis(Writer *w, Value *x) {
    const Dim *one = dim_const(w->table, 1);
    return x ? reshape_to(w, x, &one, 1) : NULL;
}

/* --- operators ---------------------------------------------------------------------------------------------------------------- */

static void top_k(Writer *w, const Node *n, Value *const *in) {
    int count;
    Value *inputs[] = {in[0], shape_value(w, attr_dims(n, "k", &count), 1)};
    Attr attrs[] = {int_attr("axis", attr_int(n, "axis", 0)), int_attr("largest", attr_int(n, "largest", 1)),
                    int_attr("sorted", attr_int(n, "sorted", 1))};
    Value *values = inputs[1] ? apply(w, "TopK", in[0]->dtype, inputs, 2, attrs, 3) : NULL;
    Value *places = values ? further_result(values, "TopK", "places", DT_I64) : NULL;
    if (n->outputs[0]) set_form(w, n->outputs[0], values);
    if (n->outputs[1]) set_form(w, n->outputs[1], places);
}

static void running(Writer *w, const Node *n, Value *const *in) {
    Attr attrs[] = {int_attr("exclusive", attr_int(n, "exclusive", 0)), int_attr("reverse", attr_int(n, "reverse", 0))};
    Value *inputs[] = {in[0], convert(w, to_scalar(w, in[1]), DT_I64)};
    if (inputs[1]) set_form(w, n->outputs[0], apply(w, n->op, type_of(n), inputs, 2, attrs, 2));
}

static void determinant(Writer *w, const Node *n, Value *const *in) {
    set_form(w, n->outputs[0], apply1(w, "Det", in[0]));
}

/* The size that the attribute holds, as a number; NULL: there is none such. */
static Value *size_attr(Writer *w, const Node *n, const char *name) {
    int count;
    const Dim *const *sizes = attr_dims(n, name, &count);
    return sizes ? size_number(w, sizes[0]) : NULL;
}

/* Inputs: x, and the axis where only a run knows it. */
static void fourier(Writer *w, const Node *n, Value *const *in) {
    Value *axis = n->input_count > 1 ? to_scalar(w, in[1]) : whole(w, DT_I64, attr_int(n, "axis", 0));
    Value *inputs[] = {in[0], size_attr(w, n, "length"), convert(w, axis, DT_I64)};
    Attr attrs[] = {int_attr("inverse", attr_int(n, "inverse", 0)), int_attr("onesided", attr_int(n, "onesided", 0))};
    if (axis) set_form(w, n->outputs[0], apply(w, "DFT", type_of(n), inputs, 3, attrs, 2));
}

static void short_fourier(Writer *w, const Node *n, Value *const *in) {
    Value *inputs[] = {in[0], size_attr(w, n, "step"), n->input_count > 1 ? in[1] : NULL, size_attr(w, n, "length")};
    Attr onesided = int_attr("onesided", attr_int(n, "onesided", 1));
    if (inputs[1] && inputs[3]) set_form(w, n->outputs[0], apply(w, "STFT", type_of(n), inputs, 4, &onesided, 1));
}

/* Over axes that only a run knows. */
static void reduction(Writer *w, const Node *n, Value *const *in) {
    const char *op = prim_operator(prim_from_name(attr_string(n, "reduce_prim", "")));
    Attr attrs[] = {int_attr("keepdims", attr_int(n, "reduce_keepdims", 1)),
                    int_attr("noop_with_empty_axes", attr_int(n, "noop_with_empty_axes", 0))};
    set_form(w, n->outputs[0], apply(w, op, type_of(n), in, 2, attrs, 2));
}

/* Whether an element is zero does not depend on its type. */
static Value *true_places(Writer *w, Value *x) {
    if (x->dtype == DT_STRING) return refuse(w, "strings have no zero"), NULL;
    Value *truth = convert(w, x, DT_BOOL);
    return apply(w, "NonZero", DT_I64, &truth, 1, NULL, 0);
}

static void non_zero(Writer *w, const Node *n, Value *const *in) { set_form(w, n->outputs[0], true_places(w, in[0])); }

/* Of Compress, whose elements are gathered from there. */
static void true_elements(Writer *w, const Node *n, Value *const *in) {
    Value *places = true_places(w, in[0]);
    Value *line = places ? apply(w, "Reshape", DT_I64, (Value *[]){places, vector_of(w, -1)}, 2, NULL, 0) : NULL;
    set_form(w, n->outputs[0], line);
}

/* --- sizes ----------------------------------------------------------------------------------------------------------------------- */

static Value *truths(Writer *w, Value *sizes) {
    Value *no = small_constant(w, tensor_new(w->arena, DT_BOOL, 0, NULL));
    return apply(w, "Expand", DT_BOOL, (Value *[]){no, sizes}, 2, NULL, 0);
}

/* Inputs: the data's sizes, and the operator's second input. */
static void resized(Writer *w, const Node *n, Value *const *in) {
    Attr zero = int_attr("allowzero", 1);
    if (attr_int(n, "takes_ones", 0)) {
        refuse(w, "%s is not written in operators of the standard here where it is left to the run which sizes are 1",
               n->op);
        return;
    }
    Value *data = truths(w, in[0]);
    if (!data) return;
    Value *result = apply(w, n->op, DT_BOOL, (Value *[]){data, in[1]}, 2, &zero, attr_int(n, "allowzero", 0) != 0);
    set_form(w, n->outputs[0], shape_of(w, result));
}

static void counted(Writer *w, const Node *n, Value *const *in) {
    Value *ends[] = {to_scalar(w, in[0]), to_scalar(w, in[1]), to_scalar(w, in[2])};
    if (!ends[0] || !ends[1] || !ends[2]) return;
    set_form(w, n->outputs[0], shape_of(w, apply(w, "Range", ends[0]->dtype, ends, 3, NULL, 0)));
}

/* Inputs: the data's sizes, starts, ends. Result: where each axis begins, then how long it is: the numbers of the places along it are cut. */
static void cut(Writer *w, const Node *n, Value *const *in) {
    int count;
    const int64_t *axes = attr_ints(n, "slice_axes", &count), *steps = attr_ints(n, "slice_steps", &count);
    Value *parts[2 * MAX_RANK];
    for (int i = 0; i < count; i++) {
        Value *length = to_scalar(w, vector_element(w, in[0], axes[i])), *zero = whole(w, DT_I64, 0);
        Value *ends[] = {zero, length, whole(w, DT_I64, 1)};
        Value *places = length ? apply(w, "Range", DT_I64, ends, 3, NULL, 0) : NULL;
        Value *list[] = {places, vector_element(w, in[1], i), vector_element(w, in[2], i), vector_of(w, 0),
                         vector_of(w, steps[i])};
        if (!places || !list[1] || !list[2]) return;
        Value *taken = apply(w, "Slice", DT_I64, list, 5, NULL, 0);
        parts[i] = vector_element(w, join_vectors(w, (Value *[]){taken, vector_of(w, 0)}, 2), 0);
        parts[count + i] = shape_of(w, taken);
    }
    set_form(w, n->outputs[0], join_vectors(w, parts, 2 * count));
}

static void sliced(Writer *w, const Node *n, Value *const *in) {
    Value *list[5] = {in[0]};
    if (node_attr(n, "slice_axes")) {
        cut(w, n, in);
        return;
    }
    for (int i = 1; i < n->input_count; i++)
        list[i] = in[i] ? convert(w, in[i]->rank ? in[i] : of_one_axis(w, in[i]), DT_I64) : NULL;
    set_form(w, n->outputs[0], apply(w, "Slice", type_of(n), list, n->input_count, NULL, 0));
}

/* Inputs: as many numbers as there are axes, pads, axes. Result: what is added before each axis, cut off there, added behind, cut off there. */
static void padded(Writer *w, const Node *n, Value *const *in) {
    Value *rank = shape_of(w, in[0]), *pads = in[1], *axes = n->input_count > 2 ? in[2] : NULL, *parts[4];
    Value *count = axes ? shape_of(w, axes) : rank, *none = vector_of(w, 0);
    Value *ends[] = {none, count, count ? apply2(w, "Add", count, count) : NULL};
    for (int side = 0; side < 2; side++) {
        if (!ends[2] || !rank) return;
        Value *list[] = {pads, ends[side], ends[side + 1]};
        Value *amounts = apply(w, "Slice", DT_I64, list, 3, NULL, 0);
        if (axes) {
            Value *zeros = apply(w, "Expand", DT_I64, (Value *[]){none, rank}, 2, NULL, 0);
            Value *spread[] = {zeros, convert(w, axes, DT_I64), amounts};
            amounts = zeros && amounts ? apply(w, "ScatterElements", DT_I64, spread, 3, NULL, 0) : NULL;
        }
        parts[2 * side] = apply2(w, "Max", amounts, none);
        parts[2 * side + 1] = apply2(w, "Max", apply1(w, "Neg", amounts), none);
    }
    set_form(w, n->outputs[0], join_vectors(w, parts, 4));
}

/* --- the table -------------------------------------------------------------------------------------------------------------------- */

static void branch_that_fails(Writer *w, const Node *n, Value *const *in) {
    (void)in;
    write_refusal(w, n);
}

void write_host(Writer *w, const Node *n) {
    static const struct {
        const char *op;
        void (*write)(Writer *w, const Node *n, Value *const *in);
    } rows[] = {{"TopK", top_k},
                {"Det", determinant},
                {"DFT", fourier},
                {"STFT", short_fourier},
                {"CumSum", running},
                {"CumProd", running},
                {"NonZero", non_zero},
                {"Range", counted},
                {"Compress", true_elements},
                {"Slice", sliced},
                {"Reshape", resized},
                {"Squeeze", resized},
                {"Unsqueeze", resized},
                {"Pad", padded},
                {"If", branch_that_fails},
                {"Resize", write_resize},
                {"Upsample", write_resize},
                {"ResizeGradient", write_resize_gradient}};
    void (*write)(Writer *, const Node *, Value *const *) = node_attr(n, "reduce_prim") ? reduction : NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !write; i++)
        if (strcmp(rows[i].op, n->op) == 0 && !*n->domain) write = rows[i].write;
    if (!write) {
        if (!write_window(w, n) && !write_sequence(w, n))
            refuse(w, "%s is not written in operators of the standard here", n->op);
        return;
    }
    Value **inputs = ARENA_ARRAY(w->arena, Value *, n->input_count + 1);
    for (int i = 0; i < n->input_count; i++) inputs[i] = form_of(w, n->inputs[i]);
    if (!*w->error) write(w, n, inputs);
}
