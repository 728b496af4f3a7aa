/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that plain C functions and nested plans take, on the host. */
#include "runtime/run/state.h"

typedef struct HostState {
    State *s;
    const Step *step;
    Item *from, made; /* what `splice` changes, what it has made of it */
} HostState;

static Status too_large(const Step *step, int64_t size) {
    return status_error(STATUS_UNSUPPORTED, "node \"%s\" (%s): a size of %lld (at most %d are supported)",
                        node_origin_name(step->node), step->node->op, (long long)size, LARGEST_SIZE);
}

static Status bind_output(State *s, const Step *step, int index, int rank, const int64_t *dims) {
    const Value *v = step->node->outputs[index];
    if (rank != v->rank)
        return status_error(STATUS_FAULT, "node \"%s\" (%s): output %d has rank %d, expected %d",
                            node_origin_name(step->node), step->node->op, index, rank, v->rank);
    for (int d = 0; d < rank; d++) {
        int symbol = dim_symbol_index(v->dims[d]);
        if (symbol >= 0 && s->symbols[symbol] == UNBOUND_DIM) {
            if (dims[d] > LARGEST_SIZE) return too_large(step, dims[d]);
            s->symbols[symbol] = dims[d];
        }
        int64_t expected = dim_eval(v->dims[d], s->symbols);
        if (expected != dims[d])
            return status_error(STATUS_INVALID, "node \"%s\" (%s): axis %d of output %d has size %lld, expected %lld",
                                node_origin_name(step->node), step->node->op, d, index, (long long)dims[d],
                                (long long)expected);
    }
    if (s->own_values) update_late(s);
    return NULL;
}

static Status host_allocate(HostCall *call, int index, DType dtype, int rank, const int64_t *dims, void **out_data) {
    HostState *h = call->user;
    int number = h->step->outputs[index];
    const Slot *slot = slot_at(h->s, number);
    if (!is_tensor_slot(slot)) { /* a tensor in an optional: copied afterwards */
        size_t bytes;
        TRY(tensor_size_of(dtype, rank, dims, NULL, &bytes));
        *out_data = arena_alloc(call->arena, bytes);
        return NULL;
    }
    if (dtype != slot->value->dtype)
        return status_error(STATUS_FAULT, "host kernel %s gave %s for %s", call->node->op, dtype_name(dtype),
                            dtype_name(slot->value->dtype));
    TRY(bind_output(h->s, h->step, index, rank, dims));
    if (dtype == DT_STRING) {
        size_t bytes;
        TRY(tensor_size_of(dtype, rank, dims, NULL, &bytes));
        *out_data = arena_alloc(call->arena, bytes);
        return NULL;
    }
    TRY(ensure_data(h->s, number));
    *out_data = h->s->data[number];
    return NULL;
}

/* As many elements as the block has room for need no other one. */
static Status make_room(Memory *memory, Item *sequence, int count) {
    if ((size_t)count <= memory_size(sequence->items) / sizeof *sequence->items) return NULL;
    void *items;
    TRY(memory_alloc(memory, sizeof *sequence->items * (size_t)count * 2, &items));
    memcpy(items, sequence->items, sizeof *sequence->items * (size_t)sequence->count);
    memory_free(memory, sequence->items);
    sequence->items = items;
    return NULL;
}

static Status host_splice(HostCall *call, int at, int removed, const Tensor *added) {
    HostState *h = call->user;
    Memory *memory = h->s->run->memory;
    Item *from = h->from, copy = {.kind = ITEM_NONE};
    int rest = from->count - at - removed;
    if (added) {
        TRY(item_copy(memory, &(Item){.kind = ITEM_TENSOR, .tensor = *added}, &copy));
        Status status = make_room(memory, from, from->count - removed + 1);
        if (status) {
            item_free(memory, &copy);
            return status;
        }
    }
    for (int i = 0; i < removed; i++) item_free(memory, &from->items[at + i]);
    Item *behind = &from->items[at + (added ? 1 : 0)];
    if (rest) memmove(behind, &from->items[at + removed], sizeof *behind * (size_t)rest);
    if (added) from->items[at] = copy;
    from->count += (added ? 1 : 0) - removed;
    h->made = *from;
    *from = (Item){.kind = ITEM_NONE};
    return NULL;
}

/* The slot has the item from now on. */
static void place_item(State *s, int number, Item *made) {
    const Slot *slot = slot_at(s, number);
    if (slot->output >= 0) {
        s->outputs[slot->output].item = *made;
    } else {
        s->owned[number] = *made;
        s->items[number] = &s->owned[number];
    }
    *made = (Item){.kind = ITEM_NONE};
}

static Status keep_item(State *s, int number, const Item *made) {
    Item copy;
    TRY(item_copy(s->run->memory, made, &copy));
    place_item(s, number, &copy);
    return NULL;
}

static const Item *const *gather_items(State *s, const Step *step, Arena *arena) {
    int count = step->node->input_count;
    Item *storage = ARENA_ARRAY(arena, Item, count);
    const Item **items = ARENA_ARRAY(arena, const Item *, count);
    for (int i = 0; i < count; i++) items[i] = step->inputs[i] < 0 ? NULL : item_at(s, step->inputs[i], &storage[i]);
    return items;
}

Status run_host_step(State *s, const Step *step, Arena *arena) {
    int count = step->node->output_count;
    HostState h = {s, step, NULL, {.kind = ITEM_NONE}};
    Item *made = ARENA_ARRAY(arena, Item, count), **outputs = ARENA_ARRAY(arena, Item *, count);
    for (int o = 0; o < count; o++) outputs[o] = step->outputs[o] < 0 ? NULL : &made[o];
    HostCall call = {.node = step->node,
                     .inputs = gather_items(s, step, arena),
                     .outputs = outputs,
                     .symbols = s->symbols,
                     .pool = s->plan->host->pool,
                     .arena = arena,
                     .allocate = host_allocate,
                     .user = &h};
    bool changes = count && step->outputs[0] >= 0 && !is_tensor_slot(slot_at(s, step->outputs[0]));
    if (changes && step->input_count) h.from = dying_item(s, step, step->inputs[0]);
    if (h.from && h.from->kind == ITEM_SEQUENCE) call.splice = host_splice;
    TRY(step->host(&call));
    for (int o = 0; o < count; o++) {
        if (step->outputs[o] < 0) continue;
        const Slot *slot = slot_at(s, step->outputs[o]);
        if (o == 0 && h.made.kind != ITEM_NONE)
            place_item(s, step->outputs[o], &h.made);
        else if (!is_tensor_slot(slot))
            TRY(keep_item(s, step->outputs[o], &made[o]));
        else if (slot->value->dtype == DT_STRING)
            TRY(keep_strings(s, step->outputs[o], &made[o]));
        else if (!s->data[step->outputs[o]])
            return status_error(STATUS_FAULT, "node \"%s\" (%s) made no output %d", node_origin_name(step->node),
                                step->node->op, o);
    }
    return NULL;
}

Status run_nested_step(State *s, const Step *step, Arena *arena) {
    int count = step->node->output_count;
    RunOutput *outputs = ARENA_ARRAY(arena, RunOutput, count);
    Item **given_up = ARENA_ARRAY(arena, Item *, step->input_count);
    for (int i = 0; i < step->input_count; i++) given_up[i] = dying_item(s, step, step->inputs[i]);
    Status status = run_control(step, s->run, s->symbols, gather_items(s, step, arena), given_up, outputs);
    for (int o = 0; o < count; o++) {
        Item *made = &outputs[o].item;
        int number = step->outputs[o];
        if (!status && number >= 0) {
            const Slot *slot = slot_at(s, number);
            if (!is_tensor_slot(slot)) {
                place_item(s, number, made);
            } else {
                if (made->kind != ITEM_TENSOR)
                    status = status_error(STATUS_INVALID, "node \"%s\" (%s): output %d is no tensor",
                                          node_origin_name(step->node), step->node->op, o);
                if (!status) status = bind_output(s, step, o, made->tensor.rank, made->tensor.dims);
                bool moved =
                    !status && slot->storage == STORE_DYNAMIC && (slot->output < 0 || !s->outputs[slot->output].given);
                if (moved) {
                    if (slot->output >= 0) s->outputs[slot->output].item = *made;
                    s->data[number] = made->tensor.data;
                    *made = (Item){.kind = ITEM_NONE};
                } else if (!status) {
                    status = ensure_data(s, number);
                    size_t bytes = tensor_bytes(&made->tensor);
                    if (!status && bytes) memcpy(s->data[number], made->tensor.data, bytes);
                }
            }
        }
        item_free(s->run->memory, made);
    }
    return status;
}
