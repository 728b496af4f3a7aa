/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients through optionals of which only the run knows whether they hold something (of others there is no optional left). The gradient of an
 * optional is one, too: what it holds is the gradient of what that one holds, and it is empty where that is zero, or where that one is empty.
 * Whether there is something is no number, so OptionalHasElement has no gradient. What a loop carries and its backward pass reads again is kept
 * as a sequence of what it holds (autodiff/rules_control.c). */
#include "ops/families.h"
#include "ops/sequence/sequence.h"

/* A gradient, the shape of the tensor, or the length of the sequence, that it is of: no optional, but zeros where the gradient is empty. */
static Status host_element_or_zeros(HostCall *call) {
    const Item *gradient = item_in(call, 0);
    const Tensor *sizes = host_input(call, 1);
    const Value *y = call->node->outputs[0];
    Tensor *zeros;
    if (gradient) return give_item(call, gradient);
    if (y->kind == VALUE_SEQUENCE) {
        int count = (int)dtype_load_int(sizes->dtype, sizes->data, 0);
        give_sequence(call, ARENA_ARRAY(call->arena, Item, count), count);
        return NULL;
    }
    TRY(host_output(call, 0, y->dtype, (int)tensor_count(sizes), sizes->data, &zeros));
    if (zeros && tensor_bytes(zeros)) memset(zeros->data, 0, tensor_bytes(zeros));
    return NULL;
}

/* An optional, and (of a gradient) how many elements are meant where it is empty: what it holds as a sequence: one tensor, or its elements. */
static Status host_items(HostCall *call) {
    const Item *item = item_in(call, 0);
    const Tensor *length = host_input(call, 1);
    if (item && item->kind == ITEM_SEQUENCE) return give_item(call, item);
    int count = item ? 1 : length ? (int)dtype_load_int(length->dtype, length->data, 0) : 0;
    Item *items = ARENA_ARRAY(call->arena, Item, count);
    if (item) items[0] = *item;
    give_sequence(call, items, count);
    return NULL;
}

/* Such a sequence, whether there is something: the optional. */
static Status host_of_items(HostCall *call) {
    const Item *from;
    bool has = *(const uint8_t *)host_input(call, 1)->data != 0;
    TRY(sequence_at(call, 0, &from));
    if (has && call->node->outputs[0]->kind == VALUE_OPTIONAL_SEQUENCE) return give_item(call, from);
    return give_item(call, has ? &from->items[0] : &(Item){.kind = ITEM_NONE});
}

static void back_items(Backward *w, const Node *n) {
    Value *x = n->inputs[0], *has = backward_step_of(w->l, "OptionalHasElement", DT_BOOL, &x, 1);
    Value *inputs[] = {dy(w, n, 0), has};
    give(w, n, 0, backward_step(w->l, "OptionalOfItems", x, inputs, 2));
}

static void back_of_items(Backward *w, const Node *n) {
    Value *x = n->inputs[0], *inputs[] = {dy(w, n, 0), backward_step_of(w->l, "SequenceLength", DT_I64, &x, 1)};
    give(w, n, 0, backward_step(w->l, "OptionalItems", x, inputs, 2));
}

const HostRow hosts_optional[] = {
    {"Optional", host_optional, back_same},
    {"OptionalGetElement", host_get_element, back_same},
    {"OptionalHasElement", host_has_element, NULL},
    {"OptionalElementOrZeros", host_element_or_zeros, back_same},
    {"OptionalItems", host_items, back_items},
    {"OptionalOfItems", host_of_items, back_of_items},
    {0},
};
