/* SPDX-License-Identifier: Apache-2.0 */
/* Between the host's memory and the device's while a plan runs: the copies that the plan holds, waiting for the device,
 * and inputs and outputs that are in device memory already, for which the plan's copies are left out. */
#include "runtime/run/state.h"

Status wait_for_device(State *s) {
    if (!s->run->busy) return NULL;
    s->run->busy = false;
    Device *device = s->plan->device;
    return device->table->synchronize(device, s->run->stream);
}

static Status copy(State *s, CopyKind kind, void *to, const void *from, size_t bytes) {
    Device *device = s->plan->device;
    s->run->busy = true;
    return bytes ? device->table->copy(device, s->run->stream, kind, to, from, bytes) : NULL;
}

Status copy_out(State *s, int number, void *to, size_t bytes) {
    TRY(copy(s, COPY_OUT, to, s->data[number], bytes));
    return wait_for_device(s);
}

/* Whether anything reads a root in host memory when the caller takes some outputs on the device. */
static bool host_needs(const State *s, int root) {
    if (!s->output_on_device || slot_at(s, root)->on_host) return true;
    for (int o = 0; o < s->plan->graph->outputs.count; o++)
        if (!s->output_on_device[o] && slot_at(s, s->plan->outputs[o])->root == root) return true;
    return false;
}

Status run_copy(State *s, const Step *step) {
    int from = step->inputs[0], to = step->outputs[0];
    const Slot *target = slot_at(s, to);
    if (s->given && s->given[from]) {
        s->data[to] = s->given[from];
        return NULL;
    }
    if (target->place == PLACE_HOST && !host_needs(s, to)) return NULL;
    TRY(ensure_data(s, to));
    CopyKind kind = target->place == PLACE_HOST ? COPY_OUT : COPY_IN;
    return status_at(copy(s, kind, s->data[to], s->data[from], (size_t)s->values[target->bytes_expr]),
                     "value \"%s\" is copied", target->value->name);
}

/* --- the caller's device memory --- */
static Status stage(State *s, size_t bytes, void **out_data) {
    TRY(memory_alloc(s->run->memory, bytes, out_data));
    VEC_PUSH(s->memory, s->staged, *out_data);
    return NULL;
}

void free_staged(State *s) {
    for (int i = 0; i < s->staged.count; i++) memory_free(s->run->memory, s->staged.items[i]);
}

Status bind_device_input(State *s, int number, const Item *input) {
    if (!s->given) s->given = ARENA_ARRAY(s->memory, void *, s->plan->slot_count);
    s->given[number] = input->tensor.data;
    if (!slot_at(s, number)->on_host) return NULL;
    size_t bytes = tensor_bytes(&input->tensor);
    TRY(stage(s, bytes, &s->data[number]));
    Item *here = ARENA_NEW(s->memory, Item);
    *here = *input;
    here->tensor.data = s->data[number];
    s->items[number] = here;
    return copy(s, COPY_OUT, s->data[number], input->tensor.data, bytes);
}

const Tensor *given_output(const State *s, const Slot *slot) {
    return slot->device_output >= 0 && is_device_output(s, slot->device_output)
               ? &s->outputs[slot->device_output].item.tensor
               : NULL;
}

Status stage_output(State *s, int root, size_t bytes) {
    return host_needs(s, root) ? stage(s, bytes, &s->data[root]) : NULL;
}

Status finish_device_output(State *s, int output) {
    const Tensor *to = &s->outputs[output].item.tensor;
    int here = s->plan->outputs[output], there = s->plan->device_outputs[output];
    const Slot *slot = slot_at(s, here);
    size_t bytes = (size_t)s->values[slot->bytes_expr];
    if (tensor_bytes(to) != bytes)
        return status_error(STATUS_INVALID,
                            "output \"%s\": the given buffer does not fit: it has %zu bytes, the result %zu",
                            s->plan->graph->output_names.items[output], tensor_bytes(to), bytes);
    if (there < 0) return copy(s, COPY_IN, to->data, s->data[here], bytes);
    TRY(ready(s, there));
    return s->data[there] == to->data ? NULL : copy(s, COPY_WITHIN, to->data, s->data[there], bytes);
}
