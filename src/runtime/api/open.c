/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a session: policy, import and passes or a compiled model, plan; and what it tells of inputs and outputs. */
#include "runtime/api/session.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "importer/files.h"
#include "importer/importer.h"
#include "lowering/anchors.h"
#include "passes/passes.h"
#include "policy/json.h"
#include "runtime/compiled/compiled.h"
#include "runtime/api/registry.h"
#include "runtime/api/state.h"
#include "base/fork.h"

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

/* The keys of `over` go before those of `under`, section by section. */
static bool merge(cJSON *under, const cJSON *over) {
    const cJSON *item;
    cJSON_ArrayForEach(item, over) {
        cJSON *there = cJSON_GetObjectItemCaseSensitive(under, item->string), *copy;
        if (cJSON_IsObject(there) && cJSON_IsObject(item)) {
            if (!merge(there, item)) return false;
            continue;
        }
        cJSON_DeleteItemFromObjectCaseSensitive(under, item->string);
        if (!(copy = cJSON_Duplicate(item, true)) || !cJSON_AddItemToObject(under, item->string, copy)) return false;
    }
    return true;
}

static Status policy_json_over(Arena *arena, const char *under, const char *over, const char **out_json) {
    cJSON *root, *above;
    TRY(json_parse(arena, under ? under : "{}", &root));
    TRY(json_parse(arena, over, &above));
    *out_json = under;
    if (!cJSON_IsObject(root)) return NULL; /* which reading it says */
    if (!merge(root, above)) return status_out_of_memory();
    return json_text(arena, root, out_json);
}

static Status key_json(Arena *arena, const char *section, const char *key, const char *text, const char **out_json) {
    cJSON *root, *inner;
    TRY(json_parse(arena, "{}", &root));
    inner = section ? cJSON_AddObjectToObject(root, section) : root;
    if (!inner || !cJSON_AddStringToObject(inner, key, text)) return status_out_of_memory();
    return json_text(arena, root, out_json);
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
    if (path) {
        TRY(file_map(arena, path, &file));
        *out_json = arena_string_n(arena, (const char *)file.bytes, file.size);
    }
    const char *precision;
    if (options && options->overrides) TRY(policy_json_over(arena, *out_json, options->overrides, out_json));
    if (!options || !options->precision) return NULL;
    TRY(key_json(arena, NULL, "precision", options->precision, &precision));
    return policy_json_over(arena, *out_json, precision, out_json);
}

Status session_options_of(const OnnxfuseOptions *options, const char *model_path, Arena *arena,
                          OnnxfuseOptions *out_options) {
    *out_options = options ? *options : (OnnxfuseOptions){.size = sizeof *out_options};
    TRY(check_struct("OnnxfuseOptions", out_options->size, sizeof *out_options));
    out_options->policy_file = policy_path(options, model_path, arena);
    return NULL;
}

Status training_options_of(const OnnxfuseOptions *options, const char *model_path, Arena *arena,
                           OnnxfuseOptions *out_options) {
    const char *precision;
    TRY(session_options_of(options, model_path, arena, out_options));
    if (!out_options->precision) return NULL;
    TRY(key_json(arena, "training", "precision", out_options->precision, &precision));
    out_options->precision = NULL;
    return policy_json_over(arena, out_options->overrides, precision, &out_options->overrides);
}

Status session_policy(const OnnxfuseOptions *options, const char *model_path, Arena *arena, Policy *out_policy) {
    *out_policy = policy_default();
    return session_policy_over(options, model_path, arena, out_policy);
}

Status session_policy_over(const OnnxfuseOptions *options, const char *model_path, Arena *arena, Policy *out_policy) {
    TRY(check_struct("OnnxfuseOptions", options ? options->size : 0, sizeof *options));
    TRY(read_policy(options, model_path, arena, out_policy));
    if (options && options->overrides) TRY(policy_override(options->overrides, arena, out_policy));
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
    if (options && options->precision) {
        const char *json;
        TRY(key_json(arena, NULL, "precision", options->precision, &json));
        TRY(policy_override(json, arena, out_policy));
    }
    out_policy->registry = registry_of(options ? options->registry : NULL);
    if (out_policy->fusion.custom_kernels) TRY(registry_of_builtins(arena, &out_policy->builtins));
    return NULL;
}

/* --- describing inputs and outputs --- */
static OnnxfuseProto proto_of(ValueKind kind) {
    return kind == VALUE_TENSOR         ? ONNXFUSE_PROTO_TENSOR
           : kind == VALUE_SEQUENCE     ? ONNXFUSE_PROTO_SEQUENCE
           : kind == VALUE_MAP_SEQUENCE ? ONNXFUSE_PROTO_SEQUENCE
           : kind == VALUE_MAP          ? ONNXFUSE_PROTO_MAP
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
    info.key = (OnnxfuseDType)v->key;
    return info;
}

/* The dims of an input with the sizes of the policy's first hint. */
static const int64_t *hinted_dims(const OnnxfuseSession *s, const Value *v) {
    const ShapeHint *hint = s->policy.shapes.hint_count ? &s->policy.shapes.hints[0] : NULL;
    int rank = v->rank < 0 ? 0 : v->rank;
    int64_t *dims = ARENA_ARRAY(s->arena, int64_t, rank + 1);
    for (int d = 0; d < rank; d++) {
        int symbol = dim_symbol_index(v->dims[d]);
        if (dim_is_const(v->dims[d], &dims[d])) continue;
        dims[d] = -1;
        for (int i = 0; symbol >= 0 && hint && i < hint->count; i++)
            if (strcmp(dim_symbol_name(s->graph->dims, symbol), hint->symbols[i]) == 0) dims[d] = hint->sizes[i];
    }
    return dims;
}

/* Whether a lowered node draws: an operator that may (Dropout) often does not, so this asks what it became. */
static bool draws(const Node *node) {
    if (node->kind == NODE_PRIM) return node->prim == PRIM_PHILOX;
    if (attention_drops(node)) return true;
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
        for (int i = 0; !node_has_body(node) && i < node->subgraph_count; i++) count += count_nodes(node->subgraphs[i]);
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
    Graph *graph;       /* or: imported already; the session's from now on */
    GraphChange change; /* what is done to it on the way (pipeline_run_changing); its fn may be NULL */
    bool to_compile;    /* constants keep their data */
} Source;

typedef struct Opening {
    OnnxfuseSession *session;
    const OnnxfuseOptions *options;
    GraphChange change;
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
    if (strcmp(pass, "take_states") == 0) find_random(graph, opening->random);
    if (strcmp(pass, "merge_common") == 0) opening->session->primitives = count_nodes(graph);
    if (log_level() >= 3) {
        Arena *arena = arena_create_inside(graph->arena);
        Text text = text_make(arena);
        graph_print(&text, graph);
        log_write(3, "graph after %s:\n%s", pass, text.data);
        arena_destroy(arena);
    }
    opening->done += (1 - opening->done) / 10; /* however many passes there are; half of all is compiling */
    report(opening, pass, opening->done);
}

/* To s->graph. */
static Status import(OnnxfuseSession *s, const Source *source, const OnnxfuseOptions *given) {
    ImportOptions options = {.unaligned_weights = true,
                             .external_data = given ? given->external_data : NULL,
                             .external_data_user = given ? given->external_data_user : NULL};
    if (source->graph) return NULL;
    if (s->policy.memory_limit_megabytes > 0) options.arena_limit = s->memory.limit;
    if (source->path) return import_file(source->path, &options, &s->graph);
    return import_memory(source->bytes, source->size, source->folder, &options, &s->graph);
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

static void change(void *user, Graph *graph) {
    Opening *opening = user;
    opening->change.fn(opening->change.user, graph);
    opening->random = ARENA_ARRAY(opening->session->arena, bool, graph->outputs.count + 1);
    find_random(graph, opening->random);
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
    TRY(import(s, source, opening->options));
    arena_guard(s->graph->arena, guard);
    s->nodes = count_nodes(s->graph);
    opening->random = ARENA_ARRAY(s->arena, bool, s->graph->outputs.count + 1);
    TRY(pipeline_run_changing(s->graph, &s->policy, after_pass, opening->change.fn ? change : NULL, opening));
    out->random = opening->random;
    discard_unread(s->graph);
    return NULL;
}

static Status open_guarded(OnnxfuseSession *s, const Source *source, const OnnxfuseOptions *options) {
    Opening opening = {s, options, source->change, 0.1, NULL};
    bool is_compiled = source->path    ? compiled_is_file(source->path)
                       : source->bytes ? compiled_is(source->bytes, source->size)
                                       : false;
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
    for (int i = 0; i < s->graph->inputs.count; i++) {
        s->inputs[i] = describe(s->arena, s->graph->inputs.items[i]->name, s->graph->inputs.items[i]);
        s->inputs[i].hinted = hinted_dims(s, s->graph->inputs.items[i]);
    }
    for (int i = 0; i < s->graph->outputs.count; i++) {
        s->outputs[i] = describe(s->arena, s->graph->output_names.items[i], s->graph->outputs.items[i]);
        s->outputs[i].random = made.random[i];
    }
    report(&opening, "compile", opening.done);
    TRY(plan_create_given(s->graph, s->devices.device, s->devices.host, &made.given, &s->kernels, &s->plan));
    TRY(check_fallback(s->plan, &s->policy, s->arena));
    s->buffers = run_memory_create(s->devices.device, s->devices.host, &s->memory);
    if (!s->buffers) return status_out_of_memory();
    TRY(states_make(s));
    TRY(buckets_make(s->arena, &s->policy, s->graph, &s->buckets));
    TRY(hints_prepare(s->plan, &s->policy, s->buffers));
    arena_guard(s->graph->arena, NULL);
    arena_drop_spare(s->graph->arena);
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
    if (!s) {
        graph_destroy(source->graph);
        return status_out_of_memory();
    }
    s->graph = source->graph;
    s->plain = plain;
    s->born = fork_count();
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

static Status open_in_call(const Source *source, const OnnxfuseOptions *options, OnnxfuseSession **out_session) {
    TRY(fork_enter());
    Status status = open_source(source, options, false, out_session);
    fork_leave();
    return status;
}

OnnxfuseStatus onnxfuse_session_open(const char *path, const OnnxfuseOptions *options, OnnxfuseSession **out_session) {
    return open_in_call(&(Source){.path = path}, options, out_session);
}

OnnxfuseStatus onnxfuse_session_open_memory(const void *bytes, size_t size, const char *folder,
                                            const OnnxfuseOptions *options, OnnxfuseSession **out_session) {
    return open_in_call(&(Source){.bytes = bytes, .size = size, .folder = folder}, options, out_session);
}

Status session_open_to_compile(const char *path, const void *bytes, size_t size, const char *folder,
                               const OnnxfuseOptions *options, OnnxfuseSession **out_session) {
    Source source = {.path = path, .bytes = bytes, .size = size, .folder = folder, .to_compile = true};
    return open_in_call(&source, options, out_session);
}

Status session_open_graph(Graph *graph, GraphChange change, const OnnxfuseOptions *options,
                          OnnxfuseSession **out_session) {
    return open_source(&(Source){.graph = graph, .change = change}, options, true, out_session);
}

/* A forked child leaves to the parent what it cannot take apart: what is on a device, and what another thread held. */
void onnxfuse_session_close(OnnxfuseSession *s) {
    if (!s) return;
    Status refused = session_check_fork(s);
    if (!refused) refused = fork_enter();
    if (refused) {
        status_free(refused);
        return;
    }
    if (s->graph && s->plan) states_destroy(s);
    run_memory_destroy(s->buffers);
    plan_destroy(s->plan);
    devices_close(&s->devices);
    pool_destroy(s->pool);
    graph_destroy(s->graph);
    profile_destroy(s->kept_profile);
    arena_destroy(s->arena);
    free(s);
    fork_leave();
}
