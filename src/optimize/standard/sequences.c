/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences and optionals, and their gradients (ops/sequence/sequence_gradient.c and optional_gradient.c say what their steps mean). That of a sequence
 * has an element of no shape where that is zero, which the standard has not: here it is a tensor of as many axes without elements. One of a tensor that
 * has none is zero as well, so nothing else has to tell them apart. A zero of no axes is a zero. */
#include "optimize/standard/writer.h"

typedef Value *(*SequenceFn)(Writer *w, const Node *n, Value *const *in);

static DType type_of(const Node *n) { return n->outputs[0]->dtype; }

static Value *as_sequence(Writer *w, const char *op, Value *sequence, Value *const *rest, int count) {
    Value *inputs[3] = {sequence};
    if (!sequence) return NULL;
    for (int i = 0; i < count; i++) inputs[1 + i] = rest[i];
    return apply_to_items(w, op, VALUE_SEQUENCE, sequence->dtype, inputs, 1 + count, NULL, 0);
}

static Value *inserted(Writer *w, Value *sequence, Value *element, Value *place) {
    if (!element) return NULL;
    return as_sequence(w, "SequenceInsert", sequence, (Value *[]){element, place}, place ? 2 : 1);
}

static Value *erased(Writer *w, Value *sequence, Value *place) {
    return as_sequence(w, "SequenceErase", sequence, &place, place ? 1 : 0);
}

static Value *element_at(Writer *w, Value *sequence, Value *place) {
    if (!sequence || !place) return NULL;
    return apply(w, "SequenceAt", sequence->dtype, (Value *[]){sequence, place}, 2, NULL, 0);
}

Value *no_elements(Writer *w, DType dtype) {
    Attr attr = int_attr("dtype", dtype);
    return apply_to_items(w, "SequenceEmpty", VALUE_SEQUENCE, dtype, NULL, 0, &attr, 1);
}

static Value *length_of(Writer *w, Value *sequence) {
    return sequence ? apply(w, "SequenceLength", DT_I64, &sequence, 1, NULL, 0) : NULL;
}

/* --- elements of gradients -------------------------------------------------------------------------------------------------------- */

/* Of the elements of such a sequence; 1 where it is not known. */
static int element_rank(const Value *sequence) { return sequence->rank >= 0 ? sequence->rank : 1; }

static Value *no_element(Writer *w, DType dtype, int rank) {
    static const int64_t none[MAX_RANK];
    return small_constant(w, tensor_new(w->arena, dtype, rank, none));
}

/* An element as a tensor of the shape (i64, a vector): zeros where it has none. */
static Value *filled(Writer *w, Value *element, Value *shape) {
    if (!element || !shape) return NULL;
    Attr keep = int_attr("keepdims", 1), zero_stays = int_attr("allowzero", 1);
    Value *flat = apply(w, "Reshape", element->dtype, (Value *[]){element, vector_of(w, -1)}, 2, NULL, 0);
    Value *count = apply(w, "ReduceProd", DT_I64, &shape, 1, &keep, 1);
    Value *missing = apply2(w, "Sub", count, shape_of(w, flat));
    if (!missing) return NULL;
    Value *zeros = apply(w, "Expand", element->dtype, (Value *[]){number(w, element->dtype, 0), missing}, 2, NULL, 0);
    Value *all = join_vectors(w, (Value *[]){flat, zeros}, 2);
    return apply(w, "Reshape", element->dtype, (Value *[]){all, shape}, 2, &zero_stays, 1);
}

/* An If whose branches, already written, give these values, as a result of the type and kind of `like`. */
static Value *chosen(Writer *w, Value *condition, Writer *then, Value *a, Writer *otherwise, Value *b,
                     const Value *like) {
    if (!condition || !a || !b) return NULL;
    add_result(then, a);
    add_result(otherwise, b);
    Node *node = add_flow_node(w, "If", &condition, 1, (Writer *[]){then, otherwise}, 2);
    return node ? add_flow_result(w, node, like) : NULL;
}

/* The sum of two elements, of which either may have no shape. */
static Value *sum_of(Writer *w, Value *a, Value *b) {
    if (!a || !b) return NULL;
    Value *size = apply(w, "Size", DT_I64, &b, 1, NULL, 0);
    Value *condition = size ? compare(w, "Greater", size, whole(w, DT_I64, 0)) : NULL;
    if (!condition) return NULL;
    Writer sum = writer_of_body(w, "sum"), other = writer_of_body(w, "other");
    Value *y = capture(&sum, b), *all = apply2(&sum, "Add", filled(&sum, capture(&sum, a), shape_of(&sum, y)), y);
    return chosen(w, condition, &sum, all, &other, copied(&other, capture(&other, a)), a);
}

/* `at` of a sequence as long as that, counted from its first element. NULL: `otherwise`. */
static Value *place_in(Writer *w, Value *at, Value *length, Value *otherwise) {
    if (!at) return otherwise;
    at = convert(w, to_scalar(w, at), DT_I64);
    if (!at || !length) return NULL;
    return choose(w, compare(w, "Less", at, whole(w, DT_I64, 0)), apply2(w, "Add", at, length), at);
}

static Value *replaced(Writer *w, Value *sequence, Value *place, Value *element) {
    return inserted(w, erased(w, sequence, place), element, place);
}

/* --- sequences, one by one ---------------------------------------------------------------------------------------------------------- */

/* Each element of one sequence becomes, with the one of the same place of another, an element of the result. */
static Value *each(Writer *w, Value *sequence, Value *other, Value *(*make)(Writer *w, Value *a, Value *b)) {
    Value *none = sequence && other ? no_elements(w, sequence->dtype) : NULL;
    Repeat *r = begin_repeat(w, length_of(w, other), none);
    if (!r) return NULL;
    Writer *b = &r->body;
    Value *x = element_at(b, capture(b, sequence), r->number), *y = element_at(b, capture(b, other), r->number);
    return end_repeat(w, r, inserted(b, r->carried, make(b, x, y), NULL));
}

static Value *filled_like(Writer *w, Value *element, Value *other) { return filled(w, element, shape_of(w, other)); }

/* --- operators of the standard ---------------------------------------------------------------------------------------------------------- */

static Value *construct(Writer *w, const Node *n, Value *const *in) {
    if (!n->input_count) return no_elements(w, type_of(n));
    return apply_to_items(w, "SequenceConstruct", VALUE_SEQUENCE, type_of(n), in, n->input_count, NULL, 0);
}

/* A place is a tensor of no axes. */
static Value *place(Writer *w, const Node *n, Value *const *in, int index) {
    return index < n->input_count && in[index] ? to_scalar(w, in[index]) : NULL;
}

static Value *insert(Writer *w, const Node *n, Value *const *in) {
    return inserted(w, in[0], in[1], place(w, n, in, 2));
}

static Value *erase(Writer *w, const Node *n, Value *const *in) { return erased(w, in[0], place(w, n, in, 1)); }

static Value *at(Writer *w, const Node *n, Value *const *in) { return element_at(w, in[0], place(w, n, in, 1)); }

static Value *length(Writer *w, const Node *n, Value *const *in) {
    (void)n;
    return length_of(w, in[0]);
}

static Value *split(Writer *w, const Node *n, Value *const *in) {
    bool by_sizes = n->input_count > 1 && in[1];
    Attr attrs[] = {int_attr("axis", attr_int(n, "axis", 0)), int_attr("keepdims", attr_int(n, "keepdims", 1))};
    return apply_to_items(w, "SplitToSequence", VALUE_SEQUENCE, type_of(n), in, by_sizes ? 2 : 1, attrs,
                          by_sizes ? 1 : 2);
}

static Value *join(Writer *w, const Node *n, Value *const *in) {
    Attr attrs[] = {int_attr("axis", attr_int(n, "axis", 0)), int_attr("new_axis", attr_int(n, "new_axis", 0))};
    return apply(w, "ConcatFromSequence", type_of(n), in, 1, attrs, 2);
}

/* What the node gives, with something in it, or (NULL) without. */
static Value *optional_of(Writer *w, const Node *n, Value *held) {
    ValueKind kind = n->outputs[0]->kind, inner = kind == VALUE_OPTIONAL ? VALUE_TENSOR : VALUE_SEQUENCE;
    Attr attrs[] = {{.name = "type", .kind = ATTR_TYPE, .dtype = type_of(n)}, int_attr("type_kind", inner)};
    return apply_to_items(w, "Optional", kind, type_of(n), &held, held ? 1 : 0, attrs, held ? 0 : 2);
}

static Value *optional(Writer *w, const Node *n, Value *const *in) {
    return optional_of(w, n, n->input_count ? in[0] : NULL);
}

static Value *element_of_optional(Writer *w, const Node *n, Value *const *in) {
    return apply_to_items(w, "OptionalGetElement", n->outputs[0]->kind, type_of(n), in, 1, NULL, 0);
}

static Value *has_element(Writer *w, const Node *n, Value *const *in) {
    return apply(w, "OptionalHasElement", DT_BOOL, in, n->input_count ? 1 : 0, NULL, 0);
}

/* --- steps of gradients -------------------------------------------------------------------------------------------------------------------- */

/* As many elements that are zero: the pieces of a tensor of that many rows. */
static Value *zeros(Writer *w, const Node *n, Value *const *in) {
    const Dim *one = dim_const(w->table, 1);
    Value *count = reshape_to(w, convert(w, in[0], DT_I64), &one, 1);
    Attr axis = int_attr("axis", 0), keep = int_attr("keepdims", 0);
    if (!count) return NULL;
    static const int64_t none[MAX_RANK];
    Value *row = ints_value(w, none, element_rank(n->outputs[0]));
    Value *shape = join_vectors(w, (Value *[]){count, row}, 2);
    if (!shape) return NULL;
    Value *rows = apply(w, "Expand", type_of(n), (Value *[]){number(w, type_of(n), 0), shape}, 2, NULL, 0);
    return apply_to_items(w, "SplitToSequence", VALUE_SEQUENCE, type_of(n), &rows, 1, (Attr[]){axis, keep}, 2);
}

static Value *element(Writer *w, const Node *n, Value *const *in) {
    return filled(w, element_at(w, in[0], place(w, n, in, 1)), in[2]);
}

static Value *at_gradient(Writer *w, const Node *n, Value *const *in) {
    (void)n;
    Value *where_to = place_in(w, in[2], length_of(w, in[0]), NULL), *before = element_at(w, in[0], where_to);
    return replaced(w, in[0], where_to, before ? sum_of(w, before, in[1]) : NULL);
}

static Value *insert_gradient(Writer *w, const Node *n, Value *const *in) {
    Value *last = apply2(w, "Sub", length_of(w, in[0]), whole(w, DT_I64, 1));
    Value *where_to = place_in(w, in[1], last, last);
    if (n->outputs[1]) set_form(w, n->outputs[1], filled(w, element_at(w, in[0], where_to), in[2]));
    return erased(w, in[0], where_to);
}

static Value *erase_gradient(Writer *w, const Node *n, Value *const *in) {
    Value *last = length_of(w, in[0]), *one = whole(w, DT_I64, 1);
    Value *where_to = place_in(w, n->input_count > 1 ? in[1] : NULL, apply2(w, "Add", last, one), last);
    return inserted(w, in[0], no_element(w, type_of(n), element_rank(n->outputs[0])), where_to);
}

/* The pieces again, of which there may be none, so that an empty one is put behind them. */
static Value *split_gradient(Writer *w, const Node *n, Value *const *in) {
    Attr axis = int_attr("axis", attr_int(n, "axis", 0));
    Value *pieces = apply_to_items(w, "SplitToSequence", VALUE_SEQUENCE, type_of(n), in, in[1] ? 2 : 1, &axis, 1);
    Value *gradients = each(w, in[2], pieces, filled_like), *none = vector_of(w, 0), *along = vector_of(w, axis.i);
    Value *empty = apply(w, "Slice", type_of(n), (Value *[]){in[0], none, none, along}, 4, NULL, 0);
    Value *all = inserted(w, gradients, empty, NULL);
    return all ? apply(w, "ConcatFromSequence", type_of(n), &all, 1, &axis, 1) : NULL;
}

/* How long each element of the sequence is along the axis, as a vector. */
static Value *sizes_along(Writer *w, Value *sequence, int64_t axis) {
    Repeat *r = begin_repeat(w, length_of(w, sequence), ints_value(w, NULL, 0));
    if (!r) return NULL;
    Writer *b = &r->body;
    Value *shape = shape_of(b, element_at(b, capture(b, sequence), r->number));
    return end_repeat(w, r, join_vectors(b, (Value *[]){r->carried, vector_element(b, shape, axis)}, 2));
}

static Value *join_gradient(Writer *w, const Node *n, Value *const *in) {
    bool new_axis = attr_int(n, "new_axis", 0) != 0;
    Attr attrs[] = {int_attr("axis", attr_int(n, "axis", 0)), int_attr("keepdims", 0)};
    Value *inputs[] = {in[0], new_axis ? NULL : sizes_along(w, in[1], attrs[0].i)};
    if (!new_axis && !inputs[1]) return NULL;
    return apply_to_items(w, "SplitToSequence", VALUE_SEQUENCE, type_of(n), inputs, new_axis ? 1 : 2, attrs,
                          new_axis ? 2 : 1);
}

static Value *sum(Writer *w, const Node *n, Value *const *in) {
    (void)n;
    return each(w, in[0], in[1], sum_of);
}

static Value *fill(Writer *w, const Node *n, Value *const *in) {
    (void)n;
    return each(w, in[0], in[1], filled_like);
}

static Value *total(Writer *w, const Node *n, Value *const *in) {
    Repeat *r = begin_repeat(w, length_of(w, in[0]), filled(w, no_element(w, type_of(n), 1), in[1]));
    if (!r) return NULL;
    Writer *b = &r->body;
    Value *part = filled(b, element_at(b, capture(b, in[0]), r->number), capture(b, in[1]));
    return end_repeat(w, r, apply2(b, "Add", r->carried, part));
}

/* The three steps of optionals, as branches over whether there is something. */
static Value *element_or_zeros(Writer *w, const Node *n, Value *const *in) {
    Writer held = writer_of_body(w, "held"), empty = writer_of_body(w, "empty");
    Value *inside = capture(&held, in[0]), *sizes = capture(&empty, in[1]);
    bool tensor = n->outputs[0]->kind == VALUE_TENSOR;
    Value *none = tensor ? filled(&empty, no_element(&empty, type_of(n), 1), sizes) : zeros(&empty, n, &sizes);
    return chosen(w, has_element(w, n, in), &held, element_of_optional(&held, n, &inside), &empty, none, n->outputs[0]);
}

static Value *items(Writer *w, const Node *n, Value *const *in) {
    Writer held = writer_of_body(w, "held"), empty = writer_of_body(w, "empty");
    Value *optional = capture(&held, in[0]), *count = n->input_count > 1 ? capture(&empty, in[1]) : NULL;
    bool tensor = in[0] && in[0]->kind == VALUE_OPTIONAL;
    Value *all = apply_to_items(&held, "OptionalGetElement", tensor ? VALUE_TENSOR : VALUE_SEQUENCE, type_of(n),
                                &optional, 1, NULL, 0);
    if (tensor && all) all = apply_to_items(&held, "SequenceConstruct", VALUE_SEQUENCE, type_of(n), &all, 1, NULL, 0);
    Value *none = count ? zeros(&empty, n, &count) : no_elements(&empty, type_of(n));
    return chosen(w, has_element(w, n, in), &held, all, &empty, none, n->outputs[0]);
}

static Value *of_items(Writer *w, const Node *n, Value *const *in) {
    Writer held = writer_of_body(w, "held"), empty = writer_of_body(w, "empty");
    Value *all = capture(&held, in[0]);
    if (n->outputs[0]->kind == VALUE_OPTIONAL) all = element_at(&held, all, whole(&held, DT_I64, 0));
    return chosen(w, in[1], &held, all ? optional_of(&held, n, all) : NULL, &empty, optional_of(&empty, n, NULL),
                  n->outputs[0]);
}

/* Of inputs 1 and 2, how many elements the sequence of each iteration has, and an iteration: where its elements begin, and their number. */
static Value *first_of(Writer *w, Value *lengths, Value *iteration, Value **out_count) {
    const Dim *one = dim_const(w->table, 1);
    Attr flat = int_attr("keepdims", 0);
    *out_count = lengths && iteration ? apply2(w, "Gather", lengths, to_scalar(w, iteration)) : NULL;
    if (!*out_count) return NULL;
    Value *list[] = {lengths, vector_of(w, 0), reshape_to(w, iteration, &one, 1)};
    Value *before = apply(w, "Slice", DT_I64, list, 3, NULL, 0);
    return before ? apply(w, "ReduceSum", DT_I64, &before, 1, &flat, 1) : NULL;
}

static Value *of_iteration(Writer *w, const Node *n, Value *const *in) {
    Value *count, *first = first_of(w, in[1], in[2], &count);
    Repeat *r = begin_repeat(w, count, no_elements(w, type_of(n)));
    if (!r) return NULL;
    Writer *b = &r->body;
    Value *where_from = apply2(b, "Add", capture(b, first), r->number);
    return end_repeat(w, r, inserted(b, r->carried, element_at(b, capture(b, in[0]), where_from), NULL));
}

static Value *of_iteration_gradient(Writer *w, const Node *n, Value *const *in) {
    (void)n;
    Value *count, *first = first_of(w, in[1], in[2], &count);
    Repeat *r = begin_repeat(w, count, in[0]);
    if (!r) return NULL;
    Writer *b = &r->body;
    Value *where_to = apply2(b, "Add", capture(b, first), r->number);
    Value *before = element_at(b, r->carried, where_to), *part = element_at(b, capture(b, in[3]), r->number);
    return end_repeat(w, r, replaced(b, r->carried, where_to, sum_of(b, before, part)));
}

/* --- the table ------------------------------------------------------------------------------------------------------------------------------- */

bool write_sequence(Writer *w, const Node *n) {
    static const struct {
        const char *op;
        SequenceFn write;
    } rows[] = {{"SequenceConstruct", construct},
                {"SequenceEmpty", construct},
                {"SequenceInsert", insert},
                {"SequenceErase", erase},
                {"SequenceAt", at},
                {"SequenceLength", length},
                {"SplitToSequence", split},
                {"ConcatFromSequence", join},
                {"Optional", optional},
                {"OptionalGetElement", element_of_optional},
                {"OptionalHasElement", has_element},
                {"OptionalElementOrZeros", element_or_zeros},
                {"OptionalItems", items},
                {"OptionalOfItems", of_items},
                {"SequenceElement", element},
                {"SequenceZeros", zeros},
                {"SequenceOfIteration", of_iteration},
                {"SequenceOfIterationGradient", of_iteration_gradient},
                {"SequenceAtGradient", at_gradient},
                {"SequenceInsertGradient", insert_gradient},
                {"SequenceEraseGradient", erase_gradient},
                {"SplitToSequenceGradient", split_gradient},
                {"ConcatFromSequenceGradient", join_gradient},
                {"SequenceTotal", total},
                {"SequenceFilled", fill},
                {"SequenceSum", sum}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].op, n->op) != 0 || *n->domain) continue;
        Value **inputs = ARENA_ARRAY(w->arena, Value *, n->input_count + 4);
        for (int k = 0; k < n->input_count; k++) inputs[k] = form_of(w, n->inputs[k]);
        if (!*w->error) set_form(w, n->outputs[0], rows[i].write(w, n, inputs));
        return true;
    }
    return false;
}
