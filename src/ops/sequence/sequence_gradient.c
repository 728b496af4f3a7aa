/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients through sequences whose elements only the run knows (of others there is no sequence left): the gradient of a sequence is a
 * sequence, an element for each of its own. What takes elements out and puts them in is undone by what puts them in and takes them
 * out: SequenceAt and SequenceConstruct, SequenceInsert and SequenceErase, SplitToSequence and ConcatFromSequence. */
#include "ops/sequence/sequence.h"

#include "lowering/gradient.h"
#include "lowering/item_type.h"
#include "ops/families.h"

/* ---- kernels ---- */

static Item zeros_like(const HostCall *call, const Item *item) {
    const Tensor *t = &item->tensor;
    return (Item){.kind = ITEM_TENSOR, .tensor = *tensor_new(call->arena, t->dtype, t->rank, t->dims)};
}

/* dy, sequence, position: zeros but for dy at the position. */
static Status host_at_gradient(HostCall *call) {
    const Item *from;
    const Tensor *dy = host_input(call, 0);
    int64_t at;
    TRY(sequence_at(call, 1, &from));
    TRY(sequence_position(call, 2, from->count, from->count - 1, 0, &at));
    Item *items = ARENA_ARRAY(call->arena, Item, from->count);
    for (int i = 0; i < from->count; i++)
        items[i] = i == at ? (Item){.kind = ITEM_TENSOR, .tensor = *dy} : zeros_like(call, &from->items[i]);
    give_sequence(call, items, from->count);
    return NULL;
}

/* The gradient of the longer sequence, the shorter one, the position of what was put in: the gradients of both. */
static Status host_insert_gradient(HostCall *call) {
    const Item *gradient, *from;
    Tensor *result;
    int64_t at;
    TRY(sequence_at(call, 0, &gradient));
    TRY(sequence_at(call, 1, &from));
    TRY(sequence_position(call, 2, from->count, from->count, from->count, &at));
    Item *items = ARENA_ARRAY(call->arena, Item, from->count);
    for (int i = 0; i < from->count; i++) items[i] = gradient->items[i + (i >= at)];
    give_sequence(call, items, from->count);
    const Tensor *own = &gradient->items[at].tensor;
    TRY(host_output(call, 1, own->dtype, own->rank, own->dims, &result));
    if (result && tensor_bytes(own)) memcpy(result->data, own->data, tensor_bytes(own));
    return NULL;
}

/* The gradient of the shorter sequence, the longer one, the position of what was taken out: the gradient of the longer. */
static Status host_erase_gradient(HostCall *call) {
    const Item *gradient, *from;
    int64_t at;
    TRY(sequence_at(call, 0, &gradient));
    TRY(sequence_at(call, 1, &from));
    TRY(sequence_position(call, 2, from->count, from->count - 1, from->count - 1, &at));
    Item *items = ARENA_ARRAY(call->arena, Item, from->count);
    for (int i = 0; i < from->count; i++)
        items[i] = i == at ? zeros_like(call, &from->items[i]) : gradient->items[i - (i > at)];
    give_sequence(call, items, from->count);
    return NULL;
}

/* The gradient of the pieces, what they were cut from: its gradient. */
static Status host_split_gradient(HostCall *call) {
    const Item *gradient;
    const Tensor *x = host_input(call, 1);
    Tensor *result;
    int64_t axis = attr_int(call->node, "axis", 0);
    TRY(sequence_at(call, 0, &gradient));
    TRY(host_output(call, 0, x->dtype, x->rank, x->dims, &result));
    if (axis < 0) axis += x->rank;
    for (int64_t i = 0, at = 0; result && i < gradient->count; i++) {
        const Tensor *piece = &gradient->items[i].tensor;
        Tensor view = joined_view(piece, (int)axis, piece->rank < x->rank);
        copy_slab(result, at, &view, 0, view.dims[axis], (int)axis);
        at += view.dims[axis];
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
        items[i] = zeros_like(call, &from->items[i]);
        Tensor view = joined_view(&items[i].tensor, (int)axis, new_axis);
        copy_slab(&view, 0, dy, at, view.dims[axis], (int)axis);
        at += view.dims[axis];
    }
    give_sequence(call, items, from->count);
    return NULL;
}

/* Element by element. */
static Status host_sum(HostCall *call) {
    const Item *a, *b;
    TRY(sequence_at(call, 0, &a));
    TRY(sequence_at(call, 1, &b));
    Item *items = ARENA_ARRAY(call->arena, Item, a->count);
    for (int i = 0; i < a->count; i++) {
        const Tensor *x = &a->items[i].tensor, *y = &b->items[i].tensor;
        items[i] = zeros_like(call, &a->items[i]);
        for (int64_t e = 0; e < tensor_count(x); e++)
            dtype_store_double(x->dtype, items[i].tensor.data, e,
                               dtype_load_double(x->dtype, x->data, e) + dtype_load_double(y->dtype, y->data, e));
    }
    give_sequence(call, items, a->count);
    return NULL;
}

/* ---- rules ---- */

static Value *host_sequence(Backward *w, const Node *n, const char *op, HostFn host, const Value *like,
                            Value *const *inputs, int count) {
    Node *node = backward_host(w, n, op, host, inputs, count);
    ItemType type = item_type_of(like);
    return node ? item_result(w->l, node, &type) : NULL;
}

/* A part of the gradient of the node's input, which is a sequence. */
static void give_part(Backward *w, const Node *n, int input, Value *gradient) {
    uint64_t key = MAP_POINTER_KEY(n->inputs[input]);
    if (!gradient || !wants(w, n, input)) return;
    Value *before = map_get_id(&w->gradients, key);
    if (before)
        gradient =
            host_sequence(w, n, "SequenceSum", host_sum, n->inputs[input], (Value *const[]){before, gradient}, 2);
    if (gradient) map_set_id(&w->gradients, key, gradient);
}

static void back_construct(Backward *w, const Node *n) {
    for (int i = 0; i < n->input_count; i++) {
        if (!wants(w, n, i)) continue;
        Node *at =
            backward_host(w, n, "SequenceAt", host_at, (Value *const[]){dy(w, n, 0), scalar_int(w->l, DT_I64, i)}, 2);
        if (at) give(w, n, i, host_result_like(w->l, at, n->inputs[i]));
    }
}

static void back_at(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), n->inputs[0], n->inputs[1]};
    give_part(w, n, 0, host_sequence(w, n, "SequenceAtGradient", host_at_gradient, n->inputs[0], inputs, 3));
}

static void back_insert(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), n->inputs[0], optional_in(w->l, n, 2)};
    Node *node = backward_host(w, n, "SequenceInsertGradient", host_insert_gradient, inputs, 3);
    ItemType type = item_type_of(n->inputs[0]);
    if (!node) return;
    give_part(w, n, 0, item_result(w->l, node, &type));
    give(w, n, 1, host_result_like(w->l, node, n->inputs[1]));
}

static void back_erase(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), n->inputs[0], optional_in(w->l, n, 1)};
    give_part(w, n, 0, host_sequence(w, n, "SequenceEraseGradient", host_erase_gradient, n->inputs[0], inputs, 3));
}

static void back_split(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), n->inputs[0]};
    Node *node = backward_host(w, n, "SplitToSequenceGradient", host_split_gradient, inputs, 2);
    if (node) give(w, n, 0, host_result_like(w->l, node, n->inputs[0]));
}

static void back_concat(Backward *w, const Node *n) {
    Value *inputs[] = {dy(w, n, 0), n->inputs[0]};
    give_part(w, n, 0,
              host_sequence(w, n, "ConcatFromSequenceGradient", host_concat_gradient, n->inputs[0], inputs, 2));
}

const HostRow hosts_sequence[] = {
    {"SequenceConstruct", host_construct, back_construct},
    {"SequenceAt", host_at, back_at},
    {"SequenceInsert", host_insert, back_insert},
    {"SequenceErase", host_erase, back_erase},
    {"SplitToSequence", host_split, back_split},
    {"ConcatFromSequence", host_concat, back_concat},
    {"SequenceAtGradient", host_at_gradient, NULL},
    {"SequenceInsertGradient", host_insert_gradient, NULL},
    {"SequenceEraseGradient", host_erase_gradient, NULL},
    {"SplitToSequenceGradient", host_split_gradient, NULL},
    {"ConcatFromSequenceGradient", host_concat_gradient, NULL},
    {"SequenceSum", host_sum, NULL},
    {0},
};
