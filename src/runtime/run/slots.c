/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of slots while a plan runs, and sizes that become known meanwhile. */
#include "runtime/plan/recordings.h"
#include "runtime/run/replay.h"

/* Of the sizes those that there are: steps take dozens of nanoseconds. */
void tensor_at(const State *s, int number, Tensor *out_tensor) {
    const Slot *slot = slot_at(s, number);
    out_tensor->dtype = slot->value->dtype;
    out_tensor->rank = slot->value->rank;
    out_tensor->data = s->data[number];
    const int64_t *dims = dims_of(s, number);
    for (int i = 0; i < out_tensor->rank; i++) out_tensor->dims[i] = dims[i];
}

/* --- late sizes
 * ------------------------------------------------------------------------------------------------------- */
void update_late(State *s) {
    for (int i = 0; i < s->plan->late_exprs.count; i++) {
        int e = s->plan->late_exprs.items[i];
        if (s->own_values[e] == UNBOUND_DIM) s->own_values[e] = dim_eval(s->plan->exprs.items[e], s->symbols);
    }
}

static Status check_known(const State *s, int number, size_t *out_bytes) {
    const Slot *slot = slot_at(s, number);
    for (int d = 0; d < slot->value->rank; d++)
        if (dims_of(s, number)[d] == UNBOUND_DIM)
            return status_error(STATUS_FAULT, "value \"%s\": size of axis %d is not known when it is needed",
                                slot->value->name, d);
    return status_at(tensor_size_of(slot->value->dtype, slot->value->rank, dims_of(s, number), NULL, out_bytes),
                     "value \"%s\"", slot->value->name);
}

/* --- memory of a result
 * ----------------------------------------------------------------------------------------------- */
static Status check_given(const State *s, int output, DType dtype, size_t need) {
    const Tensor *t = &s->outputs[output].item.tensor;
    if (tensor_bytes(t) == need && t->dtype == dtype) return NULL;
    return status_error(STATUS_INVALID,
                        "output \"%s\": the given buffer does not fit: it has %zu bytes, the result %zu",
                        s->plan->graph->output_names.items[output], tensor_bytes(t), need);
}

Status allocate_output(State *s, int root, int rank, const int64_t *dims) {
    const Slot *slot = slot_at(s, root);
    RunOutput *output = &s->outputs[slot->output];
    size_t need;
    TRY(tensor_size_of(slot->value->dtype, rank, dims, NULL, &need));
    if (output->given) TRY(check_given(s, slot->output, slot->value->dtype, need));
    if (is_device_output(s, slot->output)) return stage_output(s, root, need);
    if (!output->given) TRY(item_new_tensor(s->run->memory, slot->value->dtype, rank, dims, &output->item));
    s->data[root] = output->item.tensor.data;
    return NULL;
}

static Status allocate_on_device(State *s, int number, size_t bytes) {
    const Slot *slot = slot_at(s, number);
    const Tensor *given = given_output(s, slot);
    Device *device = s->plan->device;
    if (!given) {
        const DeviceTable *table = device->table;
        size_t taken = bytes ? bytes : 1;
        Status status = table->allocate(device, s->run->stream, s->run->memory, taken, &s->data[number]);
        if (!status || !recordings_trim(s->run->recordings, device)) return status;
        status_free(status);
        return table->allocate(device, s->run->stream, s->run->memory, taken, &s->data[number]);
    }
    TRY(check_given(s, slot->device_output, slot->value->dtype, bytes));
    s->data[number] = given->data;
    return NULL;
}

Status ensure_data(State *s, int number) {
    const Slot *slot = slot_at(s, number);
    if (s->data[number]) return NULL;
    size_t bytes;
    TRY(check_known(s, number, &bytes));
    if (slot->output >= 0) return allocate_output(s, number, slot->value->rank, dims_of(s, number));
    if (slot->place == PLACE_DEVICE) return allocate_on_device(s, number, bytes);
    void *data;
    TRY(memory_alloc(s->run->memory, bytes, &data));
    s->data[number] = data;
    return NULL;
}

Status place_planned(State *s, int number) {
    const Slot *slot = slot_at(s, number);
    if (slot->output >= 0) return allocate_output(s, number, slot->value->rank, dims_of(s, number));
    if (slot->device_output >= 0 && given_output(s, slot))
        return allocate_on_device(s, number, (size_t)s->values[slot->bytes_expr]);
    s->data[number] = (char *)s->arenas[slot->place].data + s->sizes->offsets[number];
    return NULL;
}

Status ready(State *s, int number) {
    const Slot *slot = slot_at(s, number);
    if (slot->storage == STORE_ALIAS) {
        size_t bytes;
        if (slot->late) TRY(check_known(s, number, &bytes));
        const Slot *root = slot_at(s, slot->root);
        if (s->values[slot->bytes_expr] != s->values[root->bytes_expr])
            return status_error(STATUS_INVALID, "value \"%s\": %lld bytes cannot be reshaped to %lld",
                                slot->value->name, (long long)s->values[root->bytes_expr],
                                (long long)s->values[slot->bytes_expr]);
        s->data[number] = s->data[slot->root];
    }
    return NULL;
}

static void free_data(State *s, int root) {
    const Slot *slot = slot_at(s, root);
    Device *device = s->plan->device;
    if (!s->data[root]) return;
    if (slot->place == PLACE_HOST)
        memory_free(s->run->memory, s->data[root]);
    else if (!given_output(s, slot))
        device->table->release(device, s->run->stream, s->run->memory, s->data[root]);
    s->data[root] = NULL;
}

void free_slot(State *s, int root) {
    const Slot *slot = slot_at(s, root);
    if (slot->storage == STORE_DYNAMIC && slot->output < 0) {
        free_data(s, root);
    } else if (slot->storage == STORE_ITEM) {
        item_free(s->run->memory, &s->owned[root]);
        s->items[root] = NULL;
    }
}

/* --- items --- */
const Item *item_at(State *s, int number, Item *storage) {
    const Slot *slot = slot_at(s, number);
    if (!is_tensor_slot(slot))
        return slot->storage == STORE_ITEM && slot->output >= 0 ? &s->outputs[slot->output].item : s->items[number];
    if (!s->data[number]) return NULL;
    *storage = (Item){.kind = ITEM_TENSOR};
    tensor_at(s, number, &storage->tensor);
    return storage;
}

static Item *own_item(const State *s, int number) {
    const Slot *slot = slot_at(s, number);
    if (is_tensor_slot(slot) || slot->output >= 0) return NULL;
    if (slot->storage == STORE_ITEM) return &s->owned[number];
    for (int i = 0; s->given_up && i < s->plan->graph->inputs.count; i++)
        if (s->plan->inputs[i] == number) return s->given_up[i];
    return NULL;
}

Item *dying_item(const State *s, const Step *step, int number) {
    int readers = 0;
    if (number < 0 || slot_at(s, number)->last != step - s->plan->steps) return NULL;
    for (int i = 0; i < step->input_count; i++) readers += step->inputs[i] == number;
    return readers == 1 ? own_item(s, number) : NULL;
}

Item *dying_output(const State *s, int number) {
    int readers = 0;
    for (int o = 0; o < s->plan->graph->outputs.count; o++) readers += s->plan->outputs[o] == number;
    return readers == 1 ? own_item(s, number) : NULL;
}

Status keep_strings(State *s, int number, const Item *made) {
    const Slot *slot = slot_at(s, number);
    Item copy;
    TRY(item_copy(s->run->memory, made, &copy));
    if (slot->output < 0) {
        s->data[number] = copy.tensor.data;
        return NULL;
    }
    RunOutput *output = &s->outputs[slot->output];
    if (output->given) {
        item_free(s->run->memory, &copy);
        return status_error(STATUS_INVALID, "output \"%s\": strings cannot be written to a given buffer",
                            s->plan->graph->output_names.items[slot->output]);
    }
    output->item = copy;
    s->data[number] = copy.tensor.data;
    return NULL;
}
