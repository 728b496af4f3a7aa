/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a session beside the machine's limits: of the runs that were profiled, or for inputs that it could run
 * on. */
#include "runtime/api/session.h"

#include <stdlib.h>
#include "base/fork.h"
#include "graph/eval/eval.h"
#include "runtime/inspect/roofline.h"

/* --- sizes --- */
static Status bind_items(const OnnxfuseSession *s, const Item *const *items, int64_t *symbols) {
    const Graph *graph = s->graph;
    for (int i = 0; i < graph->inputs.count; i++) {
        const Value *v = graph->inputs.items[i];
        if (v->kind != VALUE_TENSOR) continue; /* what depends on it is known in a run alone */
        if (!items[i] || items[i]->kind != ITEM_TENSOR)
            return status_error(STATUS_INVALID, "input \"%s\": a tensor is expected", v->name);
        TRY(bind_dims(graph->dims, v, items[i]->tensor.rank, items[i]->tensor.dims, symbols));
    }
    return NULL;
}

/* As a run would have them: rounded up where the policy says so. */
static Status bind_sizes(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, Arena *arena, int64_t *symbols) {
    int in = s->graph->inputs.count, out = s->graph->outputs.count;
    const Item **items = ARENA_ARRAY(arena, const Item *, in + 1);
    bool *on_device = ARENA_ARRAY(arena, bool, in + out + 1);
    RunOutput *made = ARENA_ARRAY(arena, RunOutput, out + 1);
    for (int i = 0; i < in; i++) {
        items[i] = inputs[i] ? &inputs[i]->item : NULL;
        on_device[i] = inputs[i] && inputs[i]->on_device;
    }
    if (!s->buckets) return bind_items(s, items, symbols);
    Padding padding;
    Status status = buckets_pad(s->buckets, &s->memory, items, on_device, made, on_device + in, &padding);
    if (!status) status = bind_items(s, items, symbols);
    buckets_release(&s->memory, &padding);
    return status;
}

/* --- limits --- */
/* NULL: of this device they are not known. */
static Status find_limits(OnnxfuseSession *s, bool again, Arena *arena, Roofline *roofline) {
    if (s->plan->device != s->plan->host) return NULL;
    MachineLimits *limits = ARENA_NEW(arena, MachineLimits);
    TRY(machine_limits(&s->policy, s->devices.host->pool, again, limits));
    roofline->limits = limits;
    roofline->machine = machine_key(arena, limits->threads);
    return NULL;
}

static Status print_in(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, bool again, Arena *arena, Text *text) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    Roofline roofline = {.plan = s->plan};
    int count = dim_symbol_count(s->graph->dims);
    int64_t *symbols = ARENA_ARRAY(arena, int64_t, count + 1);
    for (int i = 0; i < count; i++) symbols[i] = UNBOUND_DIM;
    if (inputs) {
        TRY(bind_sizes(s, inputs, arena, symbols));
    } else {
        if (!s->kept_profile) return status_error(STATUS_USAGE, "profiling was never switched on");
        roofline.profile = s->kept_profile;
    }
    roofline.symbols = symbols;
    TRY(find_limits(s, again, arena, &roofline));
    *text = text_make(arena);
    roofline_print(text, &roofline);
    return NULL;
}

static Status print_roofline(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, bool again, char **out_json) {
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Text text;
    Status status = print_in(s, inputs, again, arena, &text);
    if (!status && !(*out_json = strdup(text.data))) status = status_out_of_memory();
    arena_destroy(arena);
    return status;
}

OnnxfuseStatus onnxfuse_session_roofline_json(OnnxfuseSession *s, const OnnxfuseValue *const *inputs,
                                              bool measure_again, char **out_json) {
    TRY(session_check_fork(s));
    if (inputs && s->graph->kept.count)
        return status_error(STATUS_USAGE, "the session has states: the roofline is of runs that were profiled");
    TRY(fork_enter());
    Status status = print_roofline(s, inputs, measure_again, out_json);
    fork_leave();
    return status;
}
