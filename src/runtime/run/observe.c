/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the values of the model to who watches a run: after each step those that it stores, and those that are other
 * views of the same memory.
 *
 * What a value of the graph stands for is listed at it (graph/graph.h); where the axes stand in another order than in
 * the model, a copy in the model's order is shown. What lies in a device's memory is copied out. */
#include "runtime/run/state.h"

typedef struct Watch {
    int *first_view; /* [slot_count] of a root: 1 + the first alias of it that stands for something; 0: none */
    int *next_view;  /* [slot_count] of an alias: the next, likewise */
    VEC(int) late;   /* aliases whose sizes were not known when their root was stored */
} Watch;

void watch_begin(State *s) {
    const Plan *plan = s->plan;
    Watch *watch = ARENA_NEW(s->memory, Watch);
    watch->first_view = ARENA_ARRAY(s->memory, int, plan->slot_count + 1);
    watch->next_view = ARENA_ARRAY(s->memory, int, plan->slot_count + 1);
    for (int i = plan->slot_count - 1; i >= 0; i--) {
        const Slot *slot = &plan->slots[i];
        bool copied = slot->twin >= 0 && slot->twin < i; /* in the other place, where it was made, it is shown */
        if (slot->storage != STORE_ALIAS || !slot->value->stands_for || copied) continue;
        watch->next_view[i] = watch->first_view[slot->root];
        watch->first_view[slot->root] = i + 1;
    }
    s->watch = watch;
}

/* --- one value --- */
static bool sizes_are_known(const State *s, int number) {
    for (int d = 0; d < slot_at(s, number)->value->rank; d++)
        if (dims_of(s, number)[d] == UNBOUND_DIM) return false;
    return true;
}

/* to = permute(from, perm) */
static void permute_into(const Tensor *from, const int8_t *perm, Tensor *to) {
    size_t size = dtype_size(from->dtype);
    int64_t strides[MAX_RANK], at[MAX_RANK] = {0}, stride = 1, offset = 0, count = tensor_count(to);
    for (int d = from->rank - 1; d >= 0; stride *= from->dims[d--])
        for (int i = 0; i < to->rank; i++)
            if (perm[i] == d) strides[i] = stride;
    for (int64_t i = 0; i < count; i++) {
        memcpy((char *)to->data + (size_t)i * size, (const char *)from->data + (size_t)offset * size, size);
        for (int d = to->rank - 1; d >= 0; d--) {
            offset += strides[d];
            if (++at[d] < to->dims[d]) break;
            offset -= strides[d] * to->dims[d];
            at[d] = 0;
        }
    }
}

static Status show_turned(State *s, const ModelValue *what, const Tensor *from) {
    const Observer *observer = s->run->observer;
    int64_t dims[MAX_RANK];
    Item turned;
    for (int i = 0; i < from->rank; i++) dims[i] = from->dims[what->perm[i]];
    TRY(item_new_tensor(s->run->memory, from->dtype, from->rank, dims, &turned));
    permute_into(from, what->perm, &turned.tensor);
    Status status = observer->see(observer->user, what, &turned);
    item_free(s->run->memory, &turned);
    return status;
}

static Status show_item(State *s, const Value *value, const Item *item) {
    const Observer *observer = s->run->observer;
    for (const ModelValue *m = value->stands_for; m; m = m->next)
        TRY(m->perm && item->kind == ITEM_TENSOR ? show_turned(s, m, &item->tensor)
                                                 : observer->see(observer->user, m, item));
    return NULL;
}

static Status show_from_device(State *s, int number) {
    Item here = {.kind = ITEM_TENSOR};
    tensor_at(s, number, &here.tensor);
    size_t bytes = tensor_bytes(&here.tensor);
    TRY(memory_alloc(s->run->memory, bytes, &here.tensor.data));
    Status status = copy_out(s, number, here.tensor.data, bytes);
    if (!status) status = show_item(s, slot_at(s, number)->value, &here);
    memory_free(s->run->memory, here.tensor.data);
    return status;
}

static Status show(State *s, int number) {
    const Slot *slot = slot_at(s, number);
    TRY(ready(s, number));
    Item storage;
    const Item *item = item_at(s, number, &storage);
    if (!item || item->kind == ITEM_NONE) return NULL;
    bool there = slot->place == PLACE_DEVICE && item->kind == ITEM_TENSOR;
    return there ? show_from_device(s, number) : show_item(s, slot->value, item);
}

/* --- one step --- */
static Status show_or_wait(State *s, int number) {
    const Slot *slot = slot_at(s, number);
    if (!slot->value->stands_for) return NULL;
    if (!is_tensor_slot(slot) || sizes_are_known(s, number)) return show(s, number);
    if (slot->storage == STORE_ALIAS) VEC_PUSH(s->memory, s->watch->late, number);
    return NULL;
}

static Status show_late(State *s) {
    Watch *watch = s->watch;
    int kept = 0;
    for (int i = 0; i < watch->late.count; i++) {
        int number = watch->late.items[i];
        if (sizes_are_known(s, number))
            TRY(show(s, number));
        else
            watch->late.items[kept++] = number;
    }
    watch->late.count = kept;
    return NULL;
}

Status watch_inputs(State *s) {
    for (int i = 0; i < s->plan->graph->inputs.count; i++) {
        int number = s->plan->inputs[i];
        TRY(show_or_wait(s, number));
        for (int view = s->watch->first_view[number]; view; view = s->watch->next_view[view - 1])
            TRY(show_or_wait(s, view - 1));
    }
    return NULL;
}

Status watch_step(State *s, const Step *step) {
    if (s->watch->late.count) TRY(show_late(s));
    for (int o = 0; o < step->output_count && step->kind != STEP_COPY; o++) {
        if (step->outputs[o] < 0) continue;
        TRY(show_or_wait(s, step->outputs[o]));
        for (int view = s->watch->first_view[step->outputs[o]]; view; view = s->watch->next_view[view - 1])
            TRY(show_or_wait(s, view - 1));
    }
    return NULL;
}
