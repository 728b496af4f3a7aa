/* Sessions: open (import, passes, plan), run, describe. */
#include "runtime/session.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/heap.h"
#include "base/log.h"
#include "importer/files.h"
#include "importer/importer.h"
#include "passes/passes.h"
#include "runtime/compiled.h"
#include "runtime/registry.h"
#include "runtime/outline.h"
#include "runtime/replay.h"
#include "runtime/shapes.h"
#include "runtime/cpu/scratch.h"
#include "runtime/gpu/gpu.h"

struct OnnxfuseSession {
    Arena *arena; /* policy, value infos */
    Policy policy;
    Graph *graph;
    Devices devices;
    Pool *pool; /* over the embedder's threads, or NULL */
    Plan *plan;
    Memory memory;
    struct RunMemory *buffers;
    KernelCacheStats kernels;
    OnnxfuseValueInfo *inputs, *outputs;
    int nodes, primitives;
    const Outline *outline; /* of the model as imported; NULL: not known */
    bool plain;             /* opened beside another session, without its rules' precision and weights */
    const Buckets *buckets; /* sizes that are rounded up; NULL: none */
    _Atomic(Profile *) profile;
    Profile *kept_profile; /* lives until the session closes, also while off */
    atomic_ullong runs;
    atomic_size_t peak_arena;
};

const char *onnxfuse_version(void) { return ONNXFUSE_VERSION; }
OnnxfuseCode onnxfuse_status_code(OnnxfuseStatus status) { return (OnnxfuseCode)status_code(status); }
const char *onnxfuse_status_message(OnnxfuseStatus status) { return status_message(status); }
void onnxfuse_status_free(OnnxfuseStatus status) { status_free(status); }
void onnxfuse_free(void *memory) { free(memory); }

void onnxfuse_log(int level, void (*sink)(void *user, int level, const char *message), void *user) {
    log_set_level(level);
    log_set_sink(sink, user);
}

/* --- policy
 * ------------------------------------------------------------------------------------------------------------ */
/* The file to read, where the policy does not stand in the options; NULL: there is none. */
static const char *policy_path(const OnnxfuseOptions *options, const char *model_path, Arena *arena) {
    if (options && options->policy_json) return NULL;
    if (options && options->policy_file) return options->policy_file;
    if (!model_path) return NULL;
    size_t length = strlen(model_path);
    if (length > 5 && strcmp(model_path + length - 5, ".onnx") == 0) length -= 5;
    const char *beside = arena_format(arena, "%.*s.policy.json", (int)length, model_path);
    return access(beside, F_OK) == 0 ? beside : NULL;
}

static Status read_policy(const OnnxfuseOptions *options, const char *model_path, Arena *arena, Policy *policy) {
    if (options && options->policy_json)
        return policy_parse(options->policy_json, strlen(options->policy_json), "policy", arena, policy);
    const char *path = policy_path(options, model_path, arena);
    return path ? policy_read(path, arena, policy) : NULL;
}

Status session_policy_json(const OnnxfuseOptions *options, const char *model_path, Arena *arena,
                           const char **out_json) {
    MappedFile file;
    const char *path = policy_path(options, model_path, arena);
    *out_json = options ? options->policy_json : NULL;
    if (!path) return NULL;
    TRY(file_map(arena, path, &file));
    *out_json = arena_string_n(arena, (const char *)file.bytes, file.size);
    return NULL;
}

Status session_policy(const OnnxfuseOptions *options, const char *model_path, Arena *arena, Policy *out_policy) {
    *out_policy = policy_default();
    return session_policy_over(options, model_path, arena, out_policy);
}

Status session_policy_over(const OnnxfuseOptions *options, const char *model_path, Arena *arena, Policy *out_policy) {
    TRY(check_struct("OnnxfuseOptions", options ? options->size : 0, sizeof *options));
    TRY(read_policy(options, model_path, arena, out_policy));
    if (options && options->device) {
        TRY(device_from_name(options->device, &out_policy->device));
        policy_by_flag(out_policy, "device");
    }
    if (options && options->threads) {
        if (options->threads < 0 || options->threads > 1024)
            return status_error(STATUS_USAGE, "%d threads (1 to 1024 are possible)", options->threads);
        out_policy->threads = options->threads;
        policy_by_flag(out_policy, "threads");
    }
    out_policy->registry = registry_of(options ? options->registry : NULL);
    if (out_policy->fusion.custom_kernels) TRY(registry_of_builtins(arena, &out_policy->builtins));
    return NULL;
}

/* --- describing inputs and outputs ---------------------------------------------------------------------------------
 */
static OnnxfuseProto proto_of(ValueKind kind) {
    return kind == VALUE_TENSOR     ? ONNXFUSE_PROTO_TENSOR
           : kind == VALUE_SEQUENCE ? ONNXFUSE_PROTO_SEQUENCE
                                    : ONNXFUSE_PROTO_OPTIONAL;
}

static OnnxfuseValueInfo describe(Arena *arena, const char *name, const Value *v) {
    OnnxfuseValueInfo info = {
        .name = name, .kind = proto_of(v->kind), .dtype = (OnnxfuseDType)v->dtype, .rank = v->rank};
    int rank = v->rank < 0 ? 0 : v->rank;
    int64_t *dims = ARENA_ARRAY(arena, int64_t, rank + 1);
    const char **symbols = ARENA_ARRAY(arena, const char *, rank + 1);
    for (int d = 0; d < rank; d++) {
        if (dim_is_const(v->dims[d], &dims[d])) continue;
        dims[d] = -1;
        Text text = text_make(arena);
        dim_print(&text, v->dims[d]);
        symbols[d] = text.data;
    }
    info.dims = dims;
    info.symbols = symbols;
    return info;
}

/* Whether a lowered node draws: an operator that may (Dropout) often does not, so this asks what it became. */
static bool draws(const Node *node) {
    if (node->kind == NODE_PRIM) return node->prim == PRIM_PHILOX;
    const OpRow *row =
        node->kind == NODE_HOST && node->domain && !node->custom ? ops_find(node->domain, node->op, node->opset) : NULL;
    if ((row && row->flags & OP_RANDOM) || custom_is_random(node)) return true;
    for (int i = 0; i < node->subgraph_count; i++) FOR_EACH_NODE(inner, node->subgraphs[i])
    if (draws(inner)) return true;
    return false;
}

/* Marks the outputs that depend on a draw. */
static void find_random(const Graph *graph, bool *outputs) {
    Arena *arena = arena_create_inside(graph->arena);
    Map random = map_make(arena);
    FOR_EACH_NODE(node, graph) {
        bool is_random = draws(node);
        for (int i = 0; i < node->input_count && !is_random; i++)
            is_random = node->inputs[i] && map_get_id(&random, MAP_POINTER_KEY(node->inputs[i]));
        for (int o = 0; is_random && o < node->output_count; o++)
            if (node->outputs[o]) map_set_id(&random, MAP_POINTER_KEY(node->outputs[o]), (void *)node);
    }
    for (int o = 0; o < graph->outputs.count; o++)
        outputs[o] = map_get_id(&random, MAP_POINTER_KEY(graph->outputs.items[o])) != NULL;
    arena_destroy(arena);
}

int count_nodes(const Graph *graph) {
    int count = 0;
    FOR_EACH_NODE(node, graph) {
        count++;
        for (int i = 0; node->kind != NODE_REGION && i < node->subgraph_count; i++)
            count += count_nodes(node->subgraphs[i]);
    }
    return count;
}

/* --- opening
 * ------------------------------------------------------------------------------------------------------------ */
typedef struct Source {
    const char *path; /* or: */
    const void *bytes;
    size_t size;
    const char *folder;
    bool to_compile; /* constants keep their data */
} Source;

typedef struct Opening {
    OnnxfuseSession *session;
    const OnnxfuseOptions *options;
    double done;
    bool *random; /* [outputs] */
} Opening;

static void report(Opening *opening, const char *what, double done) {
    if (opening->options && opening->options->progress)
        opening->options->progress(opening->options->progress_user, what, done);
}

static void after_pass(void *user, const char *pass, const Graph *graph) {
    Opening *opening = user;
    if (strcmp(pass, "import") == 0) opening->session->outline = outline_make(graph);
    if (strcmp(pass, "lower") == 0) find_random(graph, opening->random);
    if (strcmp(pass, "merge_common") == 0) opening->session->primitives = count_nodes(graph);
    if (log_level() >= 3) {
        Arena *arena = arena_create_inside(graph->arena);
        Text text = text_make(arena);
        graph_print(&text, graph);
        log_write(3, "graph after %s:\n%s", pass, text.data);
        arena_destroy(arena);
    }
    opening->done += 0.1;
    report(opening, pass, opening->done);
}

static Status import(OnnxfuseSession *s, const Source *source, const OnnxfuseOptions *given, Graph **out_graph) {
    ImportOptions options = {.external_data = given ? given->external_data : NULL,
                             .external_data_user = given ? given->external_data_user : NULL};
    if (s->policy.memory_limit_megabytes > 0) options.arena_limit = s->memory.limit;
    if (source->path) return import_file(source->path, &options, out_graph);
    return import_memory(source->bytes, source->size, source->folder, &options, out_graph);
}

/* The parts of a compiled model; the policy begins as the one that it was made with. */
static Status read_compiled(OnnxfuseSession *s, const Source *source, const OnnxfuseOptions *options, Compiled *c) {
    MappedFile file = {source->bytes, source->size};
    const char *given;
    if (source->path)
        TRY(file_map(s->arena, source->path, &file));
    else
        file.bytes = bytes_copy_aligned(s->arena, source->bytes, source->size);
    TRY(compiled_read(s->arena, file.bytes, file.size, c));
    TRY(policy_parse(c->policy, strlen(c->policy), "compiled model", s->arena, &s->policy));
    TRY(session_policy_over(options, source->path, s->arena, &s->policy));
    TRY(session_policy_json(options, source->path, s->arena, &given));
    TRY(compiled_fits(s->arena, c, &s->policy, given));
    s->policy.device = c->device;
    s->policy.target.level = c->target;
    s->nodes = c->nodes;
    s->primitives = c->primitives;
    return NULL;
}

/* Import and passes, or what a compiled model has of them. The graph's arena gets the guard. */
static Status make_graph(OnnxfuseSession *s, const Source *source, const Compiled *compiled, Opening *opening,
                         jmp_buf *guard, CompiledGraph *out) {
    if (compiled) {
        TRY(compiled_graph(compiled, &s->policy, s->memory.limit, &s->kernels, out));
        s->graph = out->graph;
        arena_guard(s->graph->arena, guard);
        return NULL;
    }
    TRY(import(s, source, opening->options, &s->graph));
    arena_guard(s->graph->arena, guard);
    s->nodes = count_nodes(s->graph);
    out->random = opening->random = ARENA_ARRAY(s->arena, bool, s->graph->outputs.count + 1);
    TRY(pipeline_run(s->graph, &s->policy, after_pass, opening));
    if (s->policy.rule_count) discard_unread(s->graph);
    return NULL;
}

static Status open_guarded(OnnxfuseSession *s, const Source *source, const OnnxfuseOptions *options) {
    Opening opening = {s, options, 0.1, NULL};
    bool is_compiled = source->path ? compiled_is_file(source->path) : compiled_is(source->bytes, source->size);
    Compiled compiled;
    CompiledGraph made = {.given = {.keep_constants = source->to_compile}};
    s->policy = policy_default();
    TRY(is_compiled ? read_compiled(s, source, options, &compiled)
                    : session_policy_over(options, source->path, s->arena, &s->policy));
    if (s->plain) policy_without_precision(s->arena, &s->policy);
    s->plain |= is_compiled; /* tolerances were checked when it was compiled */
    memory_init(&s->memory, s->policy.memory_limit_megabytes);
    report(&opening, "import", 0);
    if (options && options->thread_pool) TRY(embedded_pool(options->thread_pool, &s->pool));
    s->policy.pool = s->pool;
    TRY(devices_open(&s->policy, s->arena, &s->devices));
    jmp_buf guard; /* of the graph's arena; the session's is under the caller's */
    if (setjmp(guard))
        return status_error(STATUS_FAULT, "out of memory while opening the model (limit %zu bytes)", s->memory.limit);
    TRY(make_graph(s, source, is_compiled ? &compiled : NULL, &opening, &guard, &made));
    s->inputs = ARENA_ARRAY(s->arena, OnnxfuseValueInfo, s->graph->inputs.count + 1);
    s->outputs = ARENA_ARRAY(s->arena, OnnxfuseValueInfo, s->graph->outputs.count + 1);
    for (int i = 0; i < s->graph->inputs.count; i++)
        s->inputs[i] = describe(s->arena, s->graph->inputs.items[i]->name, s->graph->inputs.items[i]);
    for (int i = 0; i < s->graph->outputs.count; i++) {
        s->outputs[i] = describe(s->arena, s->graph->output_names.items[i], s->graph->outputs.items[i]);
        s->outputs[i].random = made.random[i];
    }
    report(&opening, "compile", opening.done);
    TRY(plan_create_given(s->graph, s->devices.device, s->devices.host, &made.given, &s->kernels, &s->plan));
    TRY(check_fallback(s->plan, &s->policy, s->arena));
    s->buffers = run_memory_create(s->devices.device, s->devices.host, &s->memory);
    if (!s->buffers) return status_out_of_memory();
    TRY(buckets_make(s->arena, &s->policy, s->graph, &s->buckets));
    TRY(hints_prepare(s->plan, &s->policy, s->buffers));
    arena_guard(s->graph->arena, NULL);
    report(&opening, "ready", 1);
    return NULL;
}

static Status open_source(const Source *source, const OnnxfuseOptions *options, bool plain,
                          OnnxfuseSession **out_session);

static Status check_tolerance(OnnxfuseSession *s, const Source *source, const OnnxfuseOptions *options) {
    OnnxfuseSession *plain = NULL;
    if (s->plain || !has_tolerance(&s->policy)) return NULL;
    TRY(open_source(source, options, true, &plain));
    Status status = check_precision(s, plain, &s->policy);
    onnxfuse_session_close(plain);
    return status;
}

static Status open_source(const Source *source, const OnnxfuseOptions *options, bool plain,
                          OnnxfuseSession **out_session) {
    OnnxfuseSession *s = calloc(1, sizeof *s);
    if (!s) return status_out_of_memory();
    s->plain = plain;
    s->arena = arena_create(0);
    jmp_buf guard;
    Status status;
    if (!s->arena || setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(s->arena, &guard);
        status = open_guarded(s, source, options);
        arena_guard(s->arena, NULL);
        if (!status) status = check_tolerance(s, source, options);
    }
    if (status) {
        onnxfuse_session_close(s);
        return status;
    }
    *out_session = s;
    return NULL;
}

OnnxfuseStatus onnxfuse_session_open(const char *path, const OnnxfuseOptions *options, OnnxfuseSession **out_session) {
    return open_source(&(Source){.path = path}, options, false, out_session);
}

OnnxfuseStatus onnxfuse_session_open_memory(const void *bytes, size_t size, const char *folder,
                                            const OnnxfuseOptions *options, OnnxfuseSession **out_session) {
    return open_source(&(Source){.bytes = bytes, .size = size, .folder = folder}, options, false, out_session);
}

Status session_open_to_compile(const char *path, const void *bytes, size_t size, const char *folder,
                               const OnnxfuseOptions *options, OnnxfuseSession **out_session) {
    Source source = {.path = path, .bytes = bytes, .size = size, .folder = folder, .to_compile = true};
    return open_source(&source, options, false, out_session);
}

SessionParts session_parts(const OnnxfuseSession *s) {
    return (SessionParts){&s->policy, s->graph, s->plan, s->outputs, &s->kernels, s->nodes, s->primitives};
}

void onnxfuse_session_close(OnnxfuseSession *s) {
    if (!s) return;
    run_memory_destroy(s->buffers);
    plan_destroy(s->plan);
    devices_close(&s->devices);
    pool_destroy(s->pool);
    graph_destroy(s->graph);
    profile_destroy(s->kept_profile);
    arena_destroy(s->arena);
    free(s);
}

int onnxfuse_session_input_count(const OnnxfuseSession *s) { return s->graph->inputs.count; }
int onnxfuse_session_output_count(const OnnxfuseSession *s) { return s->graph->outputs.count; }

const OnnxfuseValueInfo *onnxfuse_session_input(const OnnxfuseSession *s, int index) {
    return index >= 0 && index < s->graph->inputs.count ? &s->inputs[index] : NULL;
}

const OnnxfuseValueInfo *onnxfuse_session_output(const OnnxfuseSession *s, int index) {
    return index >= 0 && index < s->graph->outputs.count ? &s->outputs[index] : NULL;
}

/* --- running
 * ------------------------------------------------------------------------------------------------------------- */
enum { MOST_VALUES = 64 }; /* on the stack; more go to the heap */

typedef struct Call {
    const OnnxfuseValue *const *inputs;
    OnnxfuseValue **outputs;
    const Item **items;                 /* [inputs] */
    RunOutput *made;                    /* [outputs] */
    bool *in_on_device, *out_on_device; /* [inputs], [outputs] */
    bool any_on_device;
    Stop *stop;               /* or NULL */
    const Observer *observer; /* or NULL */
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
    for (int i = 0; i < s->graph->inputs.count; i++) {
        const Value *v = s->graph->inputs.items[i];
        const OnnxfuseValue *input = c->inputs[i];
        bool optional = v->kind == VALUE_OPTIONAL || v->kind == VALUE_OPTIONAL_SEQUENCE;
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
    for (int o = 0; o < s->graph->outputs.count; o++) {
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
    Run run = {.memory = &s->memory,
               .profile = atomic_load(&s->profile),
               .stop = c->stop,
               .observer = c->observer,
               .run_number = atomic_fetch_add(&s->runs, 1),
               .buffers = s->buffers,
               .peak_arena = &s->peak_arena,
               .input_on_device = c->any_on_device ? c->in_on_device : NULL,
               .output_on_device = c->any_on_device ? c->out_on_device : NULL};
    outer = pool_stop_with(NULL); /* set when this run began inside another's callback */
    Status status = s->buckets ? run_padded(s, c, &run) : plan_run(s->plan, &run, NULL, c->items, c->made);
    pool_stop_with(outer);
    return status;
}

/* Hands the new items out as values. Results no longer count against the session's limit: they are the caller's. */
static Status wrap_outputs(OnnxfuseSession *s, OnnxfuseValue **outputs, RunOutput *made) {
    int count = s->graph->outputs.count, o = 0;
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
    if (item->kind != ITEM_SEQUENCE) return;
    atomic_fetch_sub(&memory->used, memory_size(item->items));
    for (int i = 0; i < item->count; i++) uncount(memory, &item->items[i]);
}

static Status run_and_wrap(OnnxfuseSession *s, Call *c) {
    TRY(run_call(s, c));
    for (int o = 0; o < s->graph->outputs.count; o++)
        if (!c->made[o].given) uncount(&s->memory, &c->made[o].item);
    return wrap_outputs(s, c->outputs, c->made);
}

static Status run_until(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs, Stop *stop,
                        const Observer *observer) {
    size_t in = (size_t)s->graph->inputs.count, out = (size_t)s->graph->outputs.count;
    if (in <= MOST_VALUES && out <= MOST_VALUES) {
        const Item *items[MOST_VALUES];
        RunOutput made[MOST_VALUES];
        bool flags[2 * MOST_VALUES];
        Call call = {inputs, outputs, items, made, flags, flags + MOST_VALUES, false, stop, observer};
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
                 observer};
    bool room = call.items && call.made && call.in_on_device && call.out_on_device;
    Status status = room ? run_and_wrap(s, &call) : status_out_of_memory();
    free(call.items);
    free(call.made);
    free(call.in_on_device);
    free(call.out_on_device);
    return status;
}

OnnxfuseStatus onnxfuse_session_run(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs) {
    return run_until(s, inputs, outputs, NULL, NULL);
}

OnnxfuseStatus onnxfuse_session_run_with(OnnxfuseSession *s, const OnnxfuseValue *const *inputs,
                                         OnnxfuseValue **outputs, const OnnxfuseRunOptions *options) {
    if (!options) return run_until(s, inputs, outputs, NULL, NULL);
    Stop stop;
    TRY(embedded_stop(options, &stop));
    Observer observer = embedded_observer(options);
    return run_until(s, inputs, outputs, stop.cancelled || stop.deadline_ns ? &stop : NULL,
                     options->observe ? &observer : NULL);
}

void onnxfuse_trim(OnnxfuseSession *s) {
    if (s) run_memory_trim(s->buffers);
    if (s) replays_trim(s->plan->replays, s->devices.device);
    scratch_trim();
    kernel_cache_trim();
    gpu_program_trim();
    heap_trim();
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
    if (on && !s->kept_profile) s->kept_profile = profile_create();
    atomic_store(&s->profile, on ? s->kept_profile : NULL);
}

OnnxfuseStatus onnxfuse_session_profile_json(OnnxfuseSession *s, char **out_json) {
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

/* --- report ---------------------------------------------------------------------------------------------------------
 */
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
    add_infos(text, "inputs", s->inputs, s->graph->inputs.count);
    add_infos(text, "outputs", s->outputs, s->graph->outputs.count);
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
