/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: run, give memory back, tell what they are and did. open.c makes them. */
#include "runtime/api/session.h"

#include <stdlib.h>

#include "base/heap.h"
#include "base/log.h"
#include "runtime/inspect/report.h"
#include "runtime/plan/recordings.h"
#include "runtime/api/state.h"
#include "base/fork.h"

void onnxfuse_log(int level, void (*sink)(void *user, int level, const char *message), void *user) {
    log_set_level(level);
    log_set_sink(sink, user);
}

int onnxfuse_session_input_count(const OnnxfuseSession *s) { return session_inputs(s); }
int onnxfuse_session_output_count(const OnnxfuseSession *s) { return session_outputs(s); }

const OnnxfuseValueInfo *onnxfuse_session_input(const OnnxfuseSession *s, int index) {
    return index >= 0 && index < session_inputs(s) ? &s->inputs[index] : NULL;
}

const OnnxfuseValueInfo *onnxfuse_session_output(const OnnxfuseSession *s, int index) {
    return index >= 0 && index < session_outputs(s) ? &s->outputs[index] : NULL;
}

/* --- running
 * ------------------------------------------------------------------------------------------------------------- */
enum { MOST_VALUES = 160 }; /* on the stack; more go to the heap */

typedef struct Call {
    const OnnxfuseValue *const *inputs;
    OnnxfuseValue **outputs;
    const Item **items;                 /* [inputs] */
    RunOutput *made;                    /* [outputs] */
    bool *in_on_device, *out_on_device; /* [inputs], [outputs] */
    bool any_on_device;
    Stop *stop;                 /* or NULL */
    const Observer *observer;   /* or NULL */
    const uint64_t *run_number; /* NULL: the number of runs before */
    OnnxfuseState *state;       /* NULL: the session's own */
} Call;

/* Whether the value's data is in device memory, and this session can use it. */
static Status check_device(const OnnxfuseSession *s, const OnnxfuseValue *value, const char *what, const char *name,
                           bool *out_on_device) {
    const DeviceTable *table = s->devices.device->table;
    *out_on_device = value && value->on_device;
    if (!*out_on_device) return NULL;
    if (!table->separate_memory)
        return status_error(STATUS_USAGE, "%s \"%s\" is in device memory, but this session runs on the CPU", what,
                            name);
    if (value->device == DEVICE_AUTO) return NULL;
    if (value->device != table->kind)
        return status_error(STATUS_USAGE, "%s \"%s\" is in memory of device %s, but this session runs on %s", what,
                            name, device_name(value->device), table->name);
    if (value->device == DEVICE_CUDA && value->ordinal != s->policy.cuda.device)
        return status_error(STATUS_USAGE, "%s \"%s\" is in memory of GPU %d, but this session runs on GPU %d", what,
                            name, value->ordinal, s->policy.cuda.device);
    return NULL;
}

static Status take_inputs(const OnnxfuseSession *s, Call *c) {
    for (int i = 0; i < session_inputs(s); i++) {
        const Value *v = s->graph->inputs.items[i];
        const OnnxfuseValue *input = c->inputs[i];
        bool optional = value_kind_is_optional(v->kind);
        if (!input && !optional) return status_error(STATUS_INVALID, "input \"%s\" is missing", v->name);
        c->items[i] = input ? &input->item : NULL;
        if (v->kind == VALUE_SEQUENCE && input->item.kind != ITEM_SEQUENCE)
            return status_error(STATUS_INVALID, "input \"%s\": a sequence is expected", v->name);
        TRY(check_device(s, input, "input", v->name, &c->in_on_device[i]));
        c->any_on_device |= c->in_on_device[i];
    }
    return NULL;
}

static Status take_outputs(const OnnxfuseSession *s, Call *c) {
    for (int o = 0; o < session_outputs(s); o++) {
        const Value *v = s->graph->outputs.items[o];
        const OnnxfuseValue *given = c->outputs[o];
        const char *name = s->outputs[o].name;
        c->made[o] = (RunOutput){.given = given != NULL};
        TRY(check_device(s, given, "output", name, &c->out_on_device[o]));
        c->any_on_device |= c->out_on_device[o];
        if (!given) continue;
        if (value_is_read_only(given))
            return status_error(STATUS_INVALID, "output \"%s\": the given buffer is read-only", name);
        if (given->item.kind != ITEM_TENSOR || v->kind != VALUE_TENSOR)
            return status_error(STATUS_INVALID, "output \"%s\": only tensors can be written to a given buffer", name);
        if (given->item.tensor.dtype != v->dtype)
            return status_error(STATUS_INVALID, "output \"%s\": the given buffer has element type %s, the result %s",
                                name, dtype_onnx_name(given->item.tensor.dtype), dtype_onnx_name(v->dtype));
        c->made[o].item = given->item;
    }
    return NULL;
}

/* ---- outputs in the memory of inputs ---- */

static bool overlap(const Tensor *a, const Tensor *b) {
    uintptr_t x = (uintptr_t)a->data, y = (uintptr_t)b->data;
    return x < y + tensor_bytes(b) && y < x + tensor_bytes(a);
}

/* Whether an output is given memory of the input that would be written before the input's last read. */
static bool is_written_early(const OnnxfuseSession *s, const Call *c, int input) {
    const Item *item = c->items[input];
    if (!item || item->kind != ITEM_TENSOR || c->in_on_device[input]) return false;
    for (int o = 0; o < session_outputs(s); o++) {
        const Tensor *to = &c->made[o].item.tensor;
        if (!c->made[o].given || c->out_on_device[o] || !overlap(&item->tensor, to)) continue;
        bool same = to->data == item->tensor.data && tensor_bytes(to) == tensor_bytes(&item->tensor);
        if (!same || s->buckets || !plan_writes_over(s->plan, input, o)) return true;
    }
    return false;
}

/* Such inputs are copied first: *out_copies [inputs], which is NULL where there is none. */
static Status set_aside(OnnxfuseSession *s, Call *c, Item **out_copies) {
    int count = session_inputs(s);
    *out_copies = NULL;
    for (int i = 0; i < count; i++) {
        if (!is_written_early(s, c, i)) continue;
        if (!*out_copies && !(*out_copies = calloc((size_t)count, sizeof(Item)))) return status_out_of_memory();
        TRY(item_copy(&s->memory, c->items[i], &(*out_copies)[i]));
        c->items[i] = &(*out_copies)[i];
    }
    return NULL;
}

static void release_copies(OnnxfuseSession *s, Item *copies) {
    for (int i = 0; copies && i < session_inputs(s); i++)
        if (copies[i].kind != ITEM_NONE) item_free(&s->memory, &copies[i]);
    free(copies);
}

/* With sizes rounded up to the policy's buckets. */
static Status run_padded(OnnxfuseSession *s, Call *c, Run *run) {
    Padding padding;
    Status status = buckets_pad(s->buckets, &s->memory, c->items, c->in_on_device, c->made, c->out_on_device, &padding);
    if (!status) status = plan_run(s->plan, run, NULL, c->items, c->made);
    if (!status) status = buckets_crop(s->buckets, &s->memory, &padding, c->made);
    buckets_release(&s->memory, &padding);
    return status;
}

static Status run_call(OnnxfuseSession *s, Call *c) {
    Stop *outer;
    TRY(take_inputs(s, c));
    TRY(take_outputs(s, c));
    for (int i = 0; i < s->graph->kept.count; i++)
        c->in_on_device[session_inputs(s) + i] = c->out_on_device[session_outputs(s) + i] = false;
    uint64_t before = atomic_fetch_add(&s->runs, 1);
    Run run = {.memory = &s->memory,
               .profile = atomic_load(&s->profile),
               .stop = c->stop,
               .observer = c->observer,
               .run_number = c->run_number ? *c->run_number : before,
               .buffers = s->buffers,
               .peak_arena = &s->peak_arena,
               .input_on_device = c->any_on_device ? c->in_on_device : NULL,
               .output_on_device = c->any_on_device ? c->out_on_device : NULL};
    Item *copies;
    StateRun kept;
    TRY(state_begin(s, c->state, c->items, c->made, &kept));
    Status status = set_aside(s, c, &copies);
    outer = pool_stop_with(NULL); /* set when this run began inside another's callback */
    if (!status) status = s->buckets ? run_padded(s, c, &run) : plan_run(s->plan, &run, NULL, c->items, c->made);
    pool_stop_with(outer);
    release_copies(s, copies);
    state_end(&kept, status, c->made);
    return status;
}

/* Hands the new items out as values. Results no longer count against the session's limit: they are the caller's. */
static Status wrap_outputs(OnnxfuseSession *s, OnnxfuseValue **outputs, RunOutput *made) {
    int count = session_outputs(s), o = 0;
    for (; o < count; o++) {
        if (made[o].given) continue;
        outputs[o] = calloc(1, sizeof **outputs);
        if (!outputs[o]) break;
        outputs[o]->item = made[o].item;
        outputs[o]->owns = true;
    }
    if (o == count) return NULL;
    for (int i = 0; i < count; i++) {
        if (made[i].given) continue;
        if (i < o) {
            free(outputs[i]);
            outputs[i] = NULL;
        }
        item_free(NULL, &made[i].item);
    }
    return status_out_of_memory();
}

static void uncount(Memory *memory, const Item *item) {
    if (item->kind == ITEM_TENSOR) atomic_fetch_sub(&memory->used, memory_size(item->tensor.data));
    if (!item_has_items(item)) return;
    atomic_fetch_sub(&memory->used, memory_size(item->items));
    for (int i = 0; i < item->count; i++) uncount(memory, &item->items[i]);
}

static Status run_and_wrap(OnnxfuseSession *s, Call *c) {
    TRY(run_call(s, c));
    for (int o = 0; o < session_outputs(s); o++)
        if (!c->made[o].given) uncount(&s->memory, &c->made[o].item);
    return wrap_outputs(s, c->outputs, c->made);
}

Status session_check_fork(const OnnxfuseSession *s) {
    const Device *device = s->devices.device;
    if (s->born == fork_count() || !device || device->table->kind == DEVICE_CPU) return NULL;
    return status_error(
        STATUS_USAGE,
        "the session was opened on device \"%s\" before the process was forked, and works in the parent alone",
        device->table->name);
}

static Status run_in_call(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs, Stop *stop,
                          const Observer *observer, const uint64_t *run_number, OnnxfuseState *state) {
    size_t in = (size_t)s->graph->inputs.count, out = (size_t)s->graph->outputs.count;
    if (in <= MOST_VALUES && out <= MOST_VALUES) {
        const Item *items[MOST_VALUES];
        RunOutput made[MOST_VALUES];
        bool flags[2 * MOST_VALUES];
        Call call = {inputs, outputs, items,    made,       flags, flags + MOST_VALUES,
                     false,  stop,    observer, run_number, state};
        return run_and_wrap(s, &call);
    }
    Call call = {inputs,
                 outputs,
                 calloc(in + 1, sizeof(Item *)),
                 calloc(out + 1, sizeof(RunOutput)),
                 calloc(in + 1, sizeof(bool)),
                 calloc(out + 1, sizeof(bool)),
                 false,
                 stop,
                 observer,
                 run_number,
                 state};
    bool room = call.items && call.made && call.in_on_device && call.out_on_device;
    Status status = room ? run_and_wrap(s, &call) : status_out_of_memory();
    free(call.items);
    free(call.made);
    free(call.in_on_device);
    free(call.out_on_device);
    return status;
}

Status with_arena(Status (*work)(Arena *arena, void *context), void *context) {
    Arena *arena = arena_create(0);
    jmp_buf guard;
    Status status;
    if (!arena || setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(arena, &guard);
        status = work(arena, context);
    }
    arena_destroy(arena);
    return status;
}

Status call_with_arena(Status (*work)(Arena *arena, void *context), void *context) {
    TRY(fork_enter());
    Status status = with_arena(work, context);
    fork_leave();
    return status;
}

static Status run_until(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs, Stop *stop,
                        const Observer *observer, const uint64_t *run_number, OnnxfuseState *state) {
    TRY(session_check_fork(s));
    TRY(fork_enter());
    Status status = run_in_call(s, inputs, outputs, stop, observer, run_number, state);
    fork_leave();
    return status;
}

static Status run_with(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs,
                       const OnnxfuseRunOptions *options, const uint64_t *run_number) {
    if (!options) return run_until(s, inputs, outputs, NULL, NULL, run_number, NULL);
    Stop stop;
    TRY(embedded_stop(options, &stop));
    Observer observer = embedded_observer(options);
    return run_until(s, inputs, outputs, stop.cancelled || stop.deadline_ns ? &stop : NULL,
                     options->observe ? &observer : NULL, run_number, options->state);
}

Status session_run_as(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs,
                      const OnnxfuseRunOptions *options, uint64_t run_number) {
    return run_with(s, inputs, outputs, options, &run_number);
}

OnnxfuseStatus onnxfuse_session_run(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs) {
    return run_with(s, inputs, outputs, NULL, NULL);
}

OnnxfuseStatus onnxfuse_session_run_with(OnnxfuseSession *s, const OnnxfuseValue *const *inputs,
                                         OnnxfuseValue **outputs, const OnnxfuseRunOptions *options) {
    return run_with(s, inputs, outputs, options, NULL);
}

void onnxfuse_trim(OnnxfuseSession *s) {
    Status refused = s ? session_check_fork(s) : NULL;
    if (!refused) refused = fork_enter();
    if (refused) {
        status_free(refused);
        return;
    }
    if (s) run_memory_trim(s->buffers);
    if (s) recordings_trim(s->plan->recordings, s->devices.device);
    for (const DeviceTable *const *t = device_tables(); *t; t++)
        if (!device_is_inherited(*t)) (*t)->trim(s && s->devices.device->table == *t ? s->devices.device : NULL);
    heap_trim();
    fork_leave();
}

const char *onnxfuse_session_device_name(const OnnxfuseSession *s) { return s->devices.device->table->name; }

/* --- statistics, profile
 * ------------------------------------------------------------------------------------------------ */
void onnxfuse_session_stats(const OnnxfuseSession *session, OnnxfuseStats *out, size_t size) {
    OnnxfuseSession *s = (OnnxfuseSession *)(uintptr_t)session; /* atomic_load takes no const */
    PlanCounts counts;
    plan_count(s->plan, &counts);
    OnnxfuseStats stats = {
        .kernels_compiled = s->kernels.compiled,
        .kernels_cached = s->kernels.from_disk + s->kernels.from_memory,
        .compile_ms = s->kernels.compile_ms,
        .nodes = s->nodes,
        .primitives = s->primitives,
        .regions = counts.regions,
        .anchors = counts.anchors,
        .host_steps = counts.host_steps,
        .kernels = counts.kernels,
        .weight_bytes = counts.weight_bytes,
        .arena_bytes = (int64_t)atomic_load(&s->peak_arena),
        .device = s->devices.device->table->name,
        .copies = counts.copies,
        .threads = pool_threads(s->devices.host->pool),
        .runs = (int64_t)atomic_load(&s->runs),
        .memory_bytes = (int64_t)atomic_load(&s->memory.used),
        .memory_peak_bytes = (int64_t)atomic_load(&s->memory.peak),
    };
    if (stats.memory_peak_bytes < stats.memory_bytes) stats.memory_peak_bytes = stats.memory_bytes; /* noted later */
    memset(out, 0, size);
    memcpy(out, &stats, size < sizeof stats ? size : sizeof stats);
}

void onnxfuse_session_profile(OnnxfuseSession *s, bool on) {
    if (on && !s->kept_profile) s->lacks_profile = !(s->kept_profile = profile_create());
    atomic_store(&s->profile, on ? s->kept_profile : NULL);
}

OnnxfuseStatus onnxfuse_session_profile_json(OnnxfuseSession *s, char **out_json) {
    if (!s->kept_profile && s->lacks_profile) return status_out_of_memory();
    if (!s->kept_profile) return status_error(STATUS_USAGE, "profiling was never switched on");
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    jmp_buf guard;
    Status status;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(arena, &guard);
        Text text = text_make(arena);
        status = profile_json(s->kept_profile, &text);
        if (!status && !(*out_json = strdup(text.data))) status = status_out_of_memory();
    }
    arena_destroy(arena);
    return status;
}

/* --- report --- */
static void add_infos(Text *text, const char *key, const OnnxfuseValueInfo *infos, int count) {
    text_add(text, ",\"%s\":[", key);
    for (int i = 0; i < count; i++) {
        const OnnxfuseValueInfo *info = &infos[i];
        text_add(text, "%s{\"name\":", i ? "," : "");
        text_add_json(text, info->name, strlen(info->name));
        text_add(text, ",\"dtype\":\"%s\",\"shape\":", info->dtype ? onnxfuse_dtype_name(info->dtype) : "");
        text_add(text, info->rank < 0 ? "null" : "[");
        for (int d = 0; d < info->rank; d++) {
            const char *symbol = info->symbols && info->symbols[d] ? info->symbols[d] : "?";
            if (d) text_add(text, ",");
            if (info->dims[d] >= 0)
                text_add(text, "%lld", (long long)info->dims[d]);
            else
                text_add_json(text, symbol, strlen(symbol));
        }
        text_add(text, info->rank < 0 ? "}" : "]}");
    }
    text_add(text, "]");
}

static void add_state(Text *text, const OnnxfuseStateInfo *info, int number) {
    text_add(text, "%s{\"input\":", number ? "," : "");
    text_add_json(text, info->input, strlen(info->input));
    text_add(text, ",\"output\":");
    text_add_json(text, info->output, strlen(info->output));
    text_add(text, ",\"axis\":%d,\"capacity\":%lld,\"in_place\":%s}", info->axis, (long long)info->capacity,
             info->in_place ? "true" : "false");
}

static void add_report(Text *text, OnnxfuseSession *s) {
    OnnxfuseStats stats;
    onnxfuse_session_stats(s, &stats, sizeof stats);
    text_add(text,
             "{\"version\":\"" ONNXFUSE_VERSION
             "\",\"device\":\"%s\",\"threads\":%d,\"runs\":%lld,\"nodes\":%d,\"primitives\":%d,\"weight_bytes\":%lld,"
             "\"memory_peak_bytes\":%lld,\"kernels_compiled\":%d,\"kernels_cached\":%d",
             stats.device, stats.threads, (long long)stats.runs, stats.nodes, stats.primitives,
             (long long)stats.weight_bytes, (long long)stats.memory_peak_bytes, stats.kernels_compiled,
             stats.kernels_cached);
    add_infos(text, "inputs", s->inputs, session_inputs(s));
    add_infos(text, "outputs", s->outputs, session_outputs(s));
    text_add(text, ",\"states\":[");
    for (int i = 0; i < s->graph->kept.count; i++) add_state(text, &s->states[i], i);
    text_add(text, "]");
    text_add(text, ",\"model\":");
    outline_print(text, s->outline);
    text_add(text, ",");
    plan_report(text, s->plan, s->kept_profile);
    text_add(text, "}\n");
}

OnnxfuseStatus onnxfuse_session_report_json(OnnxfuseSession *s, char **out_json) {
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    jmp_buf guard;
    Status status = NULL;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(arena, &guard);
        Text text = text_make(arena);
        add_report(&text, s);
        if (!(*out_json = strdup(text.data))) status = status_out_of_memory();
    }
    arena_destroy(arena);
    return status;
}
