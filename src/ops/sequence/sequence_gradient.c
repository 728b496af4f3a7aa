/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients through sequences whose elements only the run knows (of others there is no sequence left): the gradient of a sequence is a
 * sequence, an element for each of its own, and none (ITEM_NONE) where that is zero. What takes elements out and puts them in is undone by what
 * puts them in and takes them out: SequenceAt and SequenceConstruct, SequenceInsert and SequenceErase, SplitToSequence and ConcatFromSequence.
 *
 * As zeros need no shape, hardly any kernel here reads a sequence of the forward pass: most know from the gradient, or from the length alone,
 * how many elements there are. So a loop that puts an element in, or reads one, in each iteration keeps no sequences for its backward pass, and its
 * kernels change the one that is carried in place. */
#include "ops/sequence/sequence.h"

#include "lowering/item_type.h"
#include "ops/families.h"

/* ---- kernels ---- */

static Item zeros_as(const HostCall *call, const Tensor *t) {
    return (Item){.kind = ITEM_TENSOR, .tensor = *tensor_new(call->arena, t->dtype, t->rank, t->dims)};
}

static Item sum_of(const HostCall *call, const Item *a, const Item *b);

static Item sum_of_elements(const HostCall *call, const Item *a, const Item *b) {
    Item *items = ARENA_ARRAY(call->arena, Item, a->count);
    for (int i = 0; i < a->count; i++) items[i] = sum_of(call, &a->items[i], &b->items[i]);
    return (Item){.kind = ITEM_SEQUENCE, .items = items, .count = a->count};
}

static Item sum_of(const HostCall *call, const Item *a, const Item *b) {
    if (a->kind == ITEM_NONE || b->kind == ITEM_NONE) return a->kind == ITEM_NONE ? *b : *a;
    if (a->kind == ITEM_SEQUENCE) return sum_of_elements(call, a, b);
    const Tensor *x = &a->tensor, *y = &b->tensor;
    Item sum = zeros_as(call, x);
    for (int64_t e = 0; e < tensor_count(x); e++)
        dtype_store_double(x->dtype, sum.tensor.data, e,
                           dtype_load_double(x->dtype, x->data, e) + dtype_load_double(y->dtype, y->data, e));
    return sum;
}

/* The number of elements: zeros. */
static Status host_zeros(HostCall *call) {
    const Tensor *length = host_input(call, 0);
    int count = (int)dtype_load_int(length->dtype, length->data, 0);
    Item *items = ARENA_ARRAY(call->arena, Item, count);
    for (int i = 0; i < count; i++) items[i] = (Item){.kind = ITEM_NONE};
    give_sequence(call, items, count);
    return NULL;
}

/* The gradient so far, dy, position: dy added there. */
static Status host_at_gradient(HostCall *call) {
    const Item *from;
    const Tensor *dy = host_input(call, 1);
    int64_t at;
    TRY(sequence_at(call, 0, &from));
    TRY(sequence_position(call, 2, from->count, from->count - 1, 0, &at));
    Item sum = sum_of(call, &from->items[at], &(Item){.kind = ITEM_TENSOR, .tensor = *dy});
    return give_changed(call, from, (int)at, 1, &sum.tensor);
}

/* Output `index`: the element, whose shape is input `shape` where it is none. */
static Status give_element(HostCall *call, int index, const Item *element, int shape) {
    Tensor *result;
    const Tensor *sizes = host_input(call, shape);
    bool zero = element->kind != ITEM_TENSOR;
    DType dtype = zero ? call->node->outputs[index]->dtype : element->tensor.dtype;
    TRY(host_output(call, index, dtype, zero ? (int)tensor_count(sizes) : element->tensor.rank,
                    zero ? sizes->data : element->tensor.dims, &result));
    if (!result || !tensor_bytes(result)) return NULL;
    if (zero)
        memset(result->data, 0, tensor_bytes(result));
    else
        memcpy(result->data, element->tensor.data, tensor_bytes(result));
    return NULL;
}

/* A gradient, a position, the shape of what is there: that element. */
static Status host_element(HostCall *call) {
    const Item *gradient;
    int64_t at;
    TRY(sequence_at(call, 0, &gradient));
    TRY(sequence_position(call, 1, gradient->count, gradient->count - 1, 0, &at));
    return give_element(call, 0, &gradient->items[at], 2);
}

/* The gradient of the longer sequence, the position and the shape of what was put in: the gradients of the shorter one, and of that. */
static Status host_insert_gradient(HostCall *call) {
    const Item *gradient;
    int64_t at;
    TRY(sequence_at(call, 0, &gradient));
    int count = gradient->count - 1;
    TRY(sequence_position(call, 1, count, count, count, &at));
    TRY(give_element(call, 1, &gradient->items[at], 2));
    return give_changed(call, gradient, (int)at, 1, NULL);
}

/* The gradient of the shorter sequence, the position of what was taken out: the gradient of the longer. */
static Status host_erase_gradient(HostCall *call) {
    const Item *gradient;
    int64_t at;
    TRY(sequence_at(call, 0, &gradient));
    int count = gradient->count + 1;
    TRY(sequence_position(call, 1, count, count - 1, count - 1, &at));
    Item *items = ARENA_ARRAY(call->arena, Item, count);
    for (int i = 0; i < count; i++) items[i] = i == at ? (Item){.kind = ITEM_NONE} : gradient->items[i - (i > at)];
    give_sequence(call, items, count);
    return NULL;
}

/* What was cut, its pieces' sizes, their gradient: that of what was cut. */
static Status host_split_gradient(HostCall *call) {
    const Item *gradient;
    const Tensor *x = host_input(call, 0);
    Tensor *result;
    int64_t axis = attr_int(call->node, "axis", 0), *sizes = NULL, count = 0;
    TRY(sequence_at(call, 2, &gradient));
    if (axis < 0) axis += x->rank;
    TRY(piece_sizes(call, x->dims[axis], &sizes, &count));
    TRY(host_output(call, 0, x->dtype, x->rank, x->dims, &result));
    if (result && tensor_bytes(result)) memset(result->data, 0, tensor_bytes(result));
    for (int64_t i = 0, at = 0; result && i < gradient->count; at += sizes[i++]) {
        const Item *piece = &gradient->items[i];
        if (piece->kind != ITEM_TENSOR) continue;
        Tensor view = joined_view(&piece->tensor, (int)axis, piece->tensor.rank < x->rank);
        copy_slab(result, at, &view, 0, sizes[i], (int)axis);
    }
    return NULL;
}

/* dy, what was joined: its gradient. */
static Status host_concat_gradient(HostCall *call) {
    const Item *from;
    const Tensor *dy = host_input(call, 0);
    int64_t axis = attr_int(call->node, "axis", 0), at = 0;
    bool new_axis = attr_int(call->node, "new_axis", 0) != 0;
    TRY(sequence_at(call, 1, &from));
    if (axis < 0) axis += dy->rank;
    Item *items = ARENA_ARRAY(call->arena, Item, from->count);
    for (int i = 0; i < from->count; i++) {
        items[i] = zeros_as(call, &from->items[i].tensor);
        Tensor view = joined_view(&items[i].tensor, (int)axis, new_axis);
        copy_slab(&view, 0, dy, at, view.dims[axis], (int)axis);
        at += view.dims[axis];
    }
    give_sequence(call, items, from->count);
    return NULL;
}

/* Element by element; of optionals, too. */
static Status host_sum(HostCall *call) {
    const Item none = {.kind = ITEM_NONE}, *a = item_in(call, 0), *b = item_in(call, 1);
    Item sum = sum_of(call, a ? a : &none, b ? b : &none);
    return give_item(call, &sum);
}

/* A gradient, what it is of: zeros where it has no element. */
static Status host_filled(HostCall *call) {
    const Item *gradient, *from;
    TRY(sequence_at(call, 0, &gradient));
    TRY(sequence_at(call, 1, &from));
    Item *items = ARENA_ARRAY(call->arena, Item, from->count);
    for (int i = 0; i < from->count; i++) {
        bool zero = gradient->items[i].kind != ITEM_TENSOR;
        items[i] = zero ? zeros_as(call, &from->items[i].tensor) : gradient->items[i];
    }
    give_sequence(call, items, from->count);
    return NULL;
}

/* Of input 1, how many elements the sequence of each of a loop's iterations has, and 2, an iteration: where its elements are among all. */
static int first_of(const HostCall *call, int *out_count) {
    const int64_t *lengths = host_input(call, 1)->data, *iteration = host_input(call, 2)->data;
    int64_t first = 0;
    for (int64_t i = 0; i < *iteration; i++) first += lengths[i];
    *out_count = (int)lengths[*iteration];
    return (int)first;
}

/* The elements of all iterations, how many each has, an iteration: its sequence. */
static Status host_of_iteration(HostCall *call) {
    const Item *all;
    int count, first = first_of(call, &count);
    TRY(sequence_at(call, 0, &all));
    give_sequence(call, all->items + first, count);
    return NULL;
}

/* The gradient so far of the elements of all iterations, how many each has, an iteration, the gradient of its sequence: that added. */
static Status host_of_iteration_gradient(HostCall *call) {
    const Item *all, *part;
    int count, first = first_of(call, &count);
    TRY(sequence_at(call, 0, &all));
    TRY(sequence_at(call, 3, &part));
    Item *items = ARENA_ARRAY(call->arena, Item, all->count);
    for (int i = 0; i < all->count; i++) {
        bool inside = i >= first && i < first + count;
        items[i] = inside ? sum_of(call, &all->items[i], &part->items[i - first]) : all->items[i];
    }
    give_sequence(call, items, all->count);
    return NULL;
}

/* ---- rules ---- */

static Value *shape_of(Backward *w, Value *x) {
    return present(w->l, &x, 1) ? dims_value(w->l, (const Dim *const *)x->dims, x->rank) : NULL;
}

static Value *host_sequence(Backward *w, const Node *n, const char *op, HostFn host, const Value *like,
                            Value *const *inputs, int count) {
    Node *node = backward_host(w, n, op, host, inputs, count);
    return node ? result_like(w->l, node, like) : NULL;
}

static void back_construct(Backward *w, const Node *n) {
    for (int i = 0; i < n->input_count; i++) {
        if (!wants(w, n, i)) continue;
        Value *inputs[] = {dy(w, n, 0), scalar_int(w->l, DT_I64, i), shape_of(w, n->inputs[i])};
        Node *node = backward_host(w, n, "SequenceElement", host_element, inputs, 3);
        if (node) give(w, n, i, result_like(w->l, node, n->inputs[i]));
    }
}

static void back_at(Backward *w, const Node *n) {
    if (!wants(w, n, 0)) return;
    Value *inputs[] = {take_gradient(w, n, 0), dy(w, n, 0), n->inputs[1]};
    give(w, n, 0, host_sequence(w, n, "SequenceAtGradient", host_at_gradient, n->inputs[0], inputs, 3));
}

static void back_insert(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), optional_in(w->l, n, 2), shape_of(w, n->inputs[1])};
    Node *node = backward_host(w, n, "SequenceInsertGradient", host_insert_gradient, inputs, 3);
    if (!node) return;
    give(w, n, 0, result_like(w->l, node, n->inputs[0]));
    give(w, n, 1, result_like(w->l, node, n->inputs[1]));
}

static void back_erase(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), optional_in(w->l, n, 1)};
    give(w, n, 0, host_sequence(w, n, "SequenceEraseGradient", host_erase_gradient, n->inputs[0], inputs, 2));
}

static void back_split(Backward *w, const Node *n) {
    Value *inputs[] = {n->inputs[0], optional_in(w->l, n, 1), dy(w, n, 0)};
    Node *node = backward_host(w, n, "SplitToSequenceGradient", host_split_gradient, inputs, 3);
    if (node) give(w, n, 0, result_like(w->l, node, n->inputs[0]));
}

static void back_concat(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), n->inputs[0]};
    give(w, n, 0, host_sequence(w, n, "ConcatFromSequenceGradient", host_concat_gradient, n->inputs[0], inputs, 2));
}

/* ---- rules of gradients ---- */

static void back_at_gradient(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), n->inputs[2], shape_of(w, n->inputs[1])};
    give(w, n, 0, dy(w, n, 0));
    Node *node = backward_host(w, n, "SequenceElement", host_element, inputs, 3);
    if (node) give(w, n, 1, result_like(w->l, node, n->inputs[1]));
}

static void back_insert_gradient(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), dy(w, n, 1), optional_in(w->l, n, 1)};
    give(w, n, 0, host_sequence(w, n, "SequenceInsert", host_insert, n->inputs[0], inputs, 3));
}

static void back_erase_gradient(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), optional_in(w->l, n, 1)};
    give(w, n, 0, host_sequence(w, n, "SequenceErase", host_erase, n->inputs[0], inputs, 2));
}

static void back_split_gradient(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), optional_in(w->l, n, 1)};
    give(w, n, 2, host_sequence(w, n, "SplitToSequence", host_split, n->inputs[2], inputs, 2));
}

static void back_concat_gradient(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), n->inputs[1]};
    Value *filled = host_sequence(w, n, "SequenceFilled", host_filled, n->inputs[1], inputs, 2);
    Node *node = filled ? backward_host(w, n, "ConcatFromSequence", host_concat, &filled, 1) : NULL;
    if (node) give(w, n, 0, result_like(w->l, node, n->inputs[0]));
}

void back_same(Backward *w, const Node *n) { give(w, n, 0, dy(w, n, 0)); }

static void back_sum(Backward *w, const Node *n) {
    give(w, n, 0, dy(w, n, 0));
    give(w, n, 1, dy(w, n, 0));
}

static void back_of_iteration(Backward *w, const Node *n) {
    Value *inputs[] = {take_gradient(w, n, 0), n->inputs[1], n->inputs[2], dy(w, n, 0)};
    give(w, n, 0,
         host_sequence(w, n, "SequenceOfIterationGradient", host_of_iteration_gradient, n->inputs[0], inputs, 4));
}

static void back_of_iteration_gradient(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), n->inputs[1], n->inputs[2]};
    give(w, n, 0, dy(w, n, 0));
    give(w, n, 3, host_sequence(w, n, "SequenceOfIteration", host_of_iteration, n->inputs[3], inputs, 3));
}

const HostRow hosts_sequence[] = {
    {"SequenceConstruct", host_construct, back_construct},
    {"SequenceAt", host_at, back_at},
    {"SequenceInsert", host_insert, back_insert},
    {"SequenceErase", host_erase, back_erase},
    {"SplitToSequence", host_split, back_split},
    {"ConcatFromSequence", host_concat, back_concat},
    {"SequenceLength", host_length, NULL},
    {"SequenceElement", host_element, back_at},
    {"SequenceZeros", host_zeros, NULL},
    {"SequenceOfIteration", host_of_iteration, back_of_iteration},
    {"SequenceOfIterationGradient", host_of_iteration_gradient, back_of_iteration_gradient},
    {"SequenceAtGradient", host_at_gradient, back_at_gradient},
    {"SequenceInsertGradient", host_insert_gradient, back_insert_gradient},
    {"SequenceEraseGradient", host_erase_gradient, back_erase_gradient},
    {"SplitToSequenceGradient", host_split_gradient, back_split_gradient},
    {"ConcatFromSequenceGradient", host_concat_gradient, back_concat_gradient},
    {"SequenceFilled", host_filled, back_same},
    {"SequenceSum", host_sum, back_sum},
    {0},
};
