/* Compiling ahead of time: an open session, written down (compiled.h), to a file or to memory. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/kernel_store.h"
#include "importer/files.h"
#include "lowering/custom.h"
#include "runtime/compiled/compiled.h"
#include "runtime/device/cpu/tile.h"

/* Data of a section that stays where it is until it is written. */
typedef struct Piece {
    const void *data;
    size_t bytes;
    uint64_t at; /* in its section */
} Piece;

typedef VEC(Piece) Pieces;

typedef struct Compiling {
    Arena *arena;
    SessionParts parts;
    const char *policy; /* JSON, or NULL */
    StoreWriter writer;
    Text model;
    Map steps;                 /* Node -> Step, of all plans */
    Map kept, left_out;        /* by a constant's data: something reads it; an anchor has packed it */
    Map places;                /* by a constant's data: 1 + the number of its piece */
    Map kernel_numbers;        /* text -> 1 + number */
    Map packed_places;         /* by packed data: 1 + the number of its piece */
    VEC(const Step *) kernels; /* the first of each */
    Pieces code, constants, weights;
    uint64_t ends[PARTS];
    CompiledHeader header;
    CompiledSection sections[PARTS];
} Compiling;

/* --- what is written ------------------------------------------------------------------------------------------------
 */
static uint64_t add_piece(Compiling *c, Pieces *pieces, CompiledPart part, const void *data, size_t bytes) {
    uint64_t align = bytes >= 16 * COMPILED_PAGE ? COMPILED_PAGE : COMPILED_LINE;
    uint64_t at = (c->ends[part] + align - 1) / align * align;
    VEC_PUSH(c->arena, *pieces, (Piece){data, bytes, at});
    c->ends[part] = at + bytes;
    return at;
}

static void list_steps(Compiling *c, const Plan *plan) {
    for (int s = 0; s < plan->step_count; s++) {
        const Step *step = &plan->steps[s];
        if (step->kind == STEP_KERNEL || step->kind == STEP_ANCHOR)
            map_set_id(&c->steps, MAP_POINTER_KEY(step->node), (void *)step);
        for (int n = 0; n < step->nested_count; n++) list_steps(c, step->nested[n]);
    }
}

static const Step *step_of(const Compiling *c, const Node *node) {
    return map_get_id(&c->steps, MAP_POINTER_KEY(node));
}

static int packed_of(const Step *step, const Packed **out_packed, uint32_t *out_released) {
    *out_released = 0;
    const DeviceTable *table = step->on->table;
    return table->anchor_packed ? table->anchor_packed(step->anchor, out_packed, out_released) : 0;
}

/* Whether an anchor has packed the constant and does not read it any more. */
static bool is_released(const Compiling *c, Use use) {
    const Step *step = use.node->kind == NODE_ANCHOR ? step_of(c, use.node) : NULL;
    const Packed *packed;
    uint32_t released = 0;
    if (step && step->anchor) packed_of(step, &packed, &released);
    return use.index < 32 && released >> use.index & 1;
}

static void sort_constants(Compiling *c, const Graph *graph) {
    for (int i = 0; i < graph->values.count; i++) {
        const Value *value = graph->values.items[i];
        if (!value->constant || !value->constant->data) continue;
        uint64_t key = MAP_POINTER_KEY(value->constant->data);
        bool read = value_is_output(value);
        for (int u = 0; u < value->uses.count && !read; u++) read = !is_released(c, value->uses.items[u]);
        map_set_id(read ? &c->kept : &c->left_out, key, c);
    }
    FOR_EACH_NODE(node, graph)
    for (int i = 0; i < node->subgraph_count; i++) sort_constants(c, node->subgraphs[i]);
}

static bool put_constant(void *user, const Tensor *tensor, uint64_t *out_place) {
    Compiling *c = user;
    uint64_t key = MAP_POINTER_KEY(tensor->data);
    if (!map_get_id(&c->kept, key) && map_get_id(&c->left_out, key)) return false;
    intptr_t number = (intptr_t)map_get_id(&c->places, key);
    if (!number || c->constants.items[number - 1].bytes != tensor_bytes(tensor)) {
        add_piece(c, &c->constants, PART_CONSTANTS, tensor->data, tensor_bytes(tensor));
        number = c->constants.count;
        map_set_id(&c->places, key, (void *)number);
    }
    *out_place = c->constants.items[number - 1].at;
    return true;
}

static const char *host_name(void *user, const Node *node) {
    Compiling *c = user;
    if (node->custom) return arena_format(c->arena, "own:%s", ((const CustomOperator *)node->custom)->name);
    return ops_host_name(c->arena, (HostFn)node->host);
}

/* --- kernels and nodes ----------------------------------------------------------------------------------------------
 */
static void list_kernels(Compiling *c, const Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        const Step *step = node->kind == NODE_REGION ? step_of(c, node) : NULL;
        if (!step) {
            for (int i = 0; i < node->subgraph_count && node->kind != NODE_REGION; i++)
                list_kernels(c, node->subgraphs[i]);
        } else if (!map_get(&c->kernel_numbers, step->region.text)) {
            VEC_PUSH(c->arena, c->kernels, step);
            map_set(&c->kernel_numbers, step->region.text, (void *)(intptr_t)c->kernels.count);
        }
    }
}

static void free_object(void *object) { free(object); }

static Status store_code(Compiling *c, const Step *step) {
    char *key;
    void *object;
    size_t text_size, size;
    TRY(kernel_cache_object(step->region.kernel, step->on->policy, &key, &text_size, &object, &size));
    arena_defer(c->arena, free_object, key);
    arena_defer(c->arena, free_object, object);
    store_string(&c->writer, key);
    store_number(&c->writer, text_size);
    store_kernel(&c->writer, step->region.kernel);
    store_number(&c->writer, 1);
    store_number(&c->writer, add_piece(c, &c->code, PART_CODE, object, size));
    store_number(&c->writer, size);
    return NULL;
}

static Status store_kernels(Compiling *c) {
    store_number(&c->writer, (uint64_t)c->kernels.count);
    for (int i = 0; i < c->kernels.count; i++) {
        const Step *step = c->kernels.items[i];
        if (step->place == PLACE_HOST) {
            TRY(store_code(c, step));
            continue;
        }
        store_string(&c->writer, step->region.text);
        store_number(&c->writer, strlen(step->region.text));
        store_kernel(&c->writer, step->region.kernel);
        store_number(&c->writer, 0);
    }
    return NULL;
}

static void store_packed(Compiling *c, const Step *step) {
    const Packed *packed = NULL;
    uint32_t released;
    int count = packed_of(step, &packed, &released);
    store_number(&c->writer, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        store_number(&c->writer, add_piece(c, &c->weights, PART_WEIGHTS, packed[i].data, packed[i].bytes));
        store_number(&c->writer, packed[i].bytes);
    }
}

static Status store_given(Compiling *c, const Graph *graph) {
    FOR_EACH_NODE(node, graph) {
        if (node->kind != NODE_REGION && node->kind != NODE_ANCHOR) {
            for (int i = 0; i < node->subgraph_count; i++) TRY(store_given(c, node->subgraphs[i]));
            continue;
        }
        const Step *step = step_of(c, node);
        if (!step) return status_error(STATUS_FAULT, "node \"%s\" has no step", node_origin_name(node));
        store_number(&c->writer, step->place);
        if (node->kind == NODE_ANCHOR) {
            store_packed(c, step);
            continue;
        }
        store_number(&c->writer, (uint64_t)(intptr_t)map_get(&c->kernel_numbers, step->region.text) - 1);
        store_region(&c->writer, node, &step->region);
    }
    return NULL;
}

static Status store_model(Compiling *c) {
    const Graph *graph = c->parts.graph;
    c->model = text_make(c->arena);
    c->writer = store_writer(c->arena, graph->dims, &c->model);
    c->writer.put_data = put_constant;
    c->writer.host_name = host_name;
    c->writer.user = c;
    list_steps(c, c->parts.plan);
    sort_constants(c, graph);
    TRY(store_graph(&c->writer, graph));
    for (int i = 0; i < graph->outputs.count; i++) store_number(&c->writer, c->parts.outputs[i].random);
    list_kernels(c, graph);
    TRY(store_kernels(c));
    return store_given(c, graph);
}

static Status make_about(Compiling *c, const char **out_text) {
    const Plan *plan = c->parts.plan;
    const Policy *host = plan->host->policy;
    cJSON *about = cJSON_CreateObject();
    cJSON_AddStringToObject(about, "version", ONNXFUSE_VERSION);
    cJSON_AddStringToObject(about, "device", plan->device->table->name);
    cJSON_AddStringToObject(about, "target", target_level_name(&host->target));
    cJSON_AddStringToObject(about, "tiles", tile_isa()->name);
    cJSON_AddNumberToObject(about, "nodes", c->parts.nodes);
    cJSON_AddNumberToObject(about, "primitives", c->parts.primitives);
    cJSON_AddNumberToObject(about, "kernels", c->kernels.count);
    cJSON_AddItemToObject(about, "policy", cJSON_Parse(c->policy ? policy_plan_part(c->policy, c->arena) : "{}"));
    char *text = cJSON_PrintUnformatted(about);
    *out_text = arena_string(c->arena, text ? text : "");
    free(text);
    cJSON_Delete(about);
    return **out_text ? NULL : status_out_of_memory();
}

/* --- layout ---------------------------------------------------------------------------------------------------------
 */
static uint64_t page_up(uint64_t bytes) { return (bytes + COMPILED_PAGE - 1) / COMPILED_PAGE * COMPILED_PAGE; }

/* All pieces of a section in order, with what fills it up between them. */
static const char zeros[COMPILED_PAGE];

typedef Status (*WriteFn)(void *user, const void *bytes, size_t size);

static Status each_piece(const Pieces *pieces, WriteFn write, void *user) {
    uint64_t at = 0;
    for (int i = 0; i < pieces->count; i++) {
        const Piece *p = &pieces->items[i];
        if (p->at > at) TRY(write(user, zeros, (size_t)(p->at - at)));
        TRY(write(user, p->data, p->bytes));
        at = p->at + p->bytes;
    }
    return NULL;
}

static Status hash_piece(void *user, const void *bytes, size_t size) {
    compiled_checksum_add(user, bytes, size);
    return NULL;
}

static Status sections_of(Compiling *c, Pieces *pieces) {
    const char *about;
    TRY(store_model(c));
    TRY(make_about(c, &about));
    pieces[PART_CODE] = c->code;
    pieces[PART_CONSTANTS] = c->constants;
    pieces[PART_WEIGHTS] = c->weights;
    add_piece(c, &pieces[PART_ABOUT], PART_ABOUT, about, strlen(about));
    add_piece(c, &pieces[PART_MODEL], PART_MODEL, c->model.data, c->model.size);
    uint64_t at = page_up(sizeof(CompiledHeader) + sizeof c->sections);
    for (int i = 0; i < PARTS; i++) {
        struct CompiledChecksum *sum = compiled_checksum_begin();
        if (!sum) return status_out_of_memory();
        Status status = each_piece(&pieces[i], hash_piece, sum);
        c->sections[i] = (CompiledSection){.at = at, .bytes = c->ends[i], .checksum = compiled_checksum_end(sum)};
        snprintf(c->sections[i].name, sizeof c->sections[i].name, "%s", compiled_part_name((CompiledPart)i));
        TRY(status);
        at = page_up(at + c->ends[i]);
    }
    c->header = (CompiledHeader){
        .format = COMPILED_FORMAT, .sections = PARTS, .bytes = c->sections[PARTS - 1].at + c->ends[PARTS - 1]};
    memcpy(c->header.magic, compiled_magic, sizeof c->header.magic);
    snprintf(c->header.version, sizeof c->header.version, "%s", ONNXFUSE_VERSION);
    return NULL;
}

static Status write_sections(Compiling *c, const Pieces *pieces, WriteFn write, void *user) {
    char begin[sizeof c->header + sizeof c->sections];
    memcpy(begin, &c->header, sizeof c->header);
    memcpy(begin + sizeof c->header, c->sections, sizeof c->sections);
    c->header.checksum = compiled_checksum(begin, sizeof begin);
    memcpy(begin, &c->header, sizeof c->header);
    TRY(write(user, begin, sizeof begin));
    uint64_t at = sizeof begin;
    for (int i = 0; i < PARTS; i++) {
        TRY(write(user, zeros, (size_t)(c->sections[i].at - at)));
        TRY(each_piece(&pieces[i], write, user));
        at = c->sections[i].at + c->sections[i].bytes;
    }
    return NULL;
}

/* --- where it goes --------------------------------------------------------------------------------------------------
 */
typedef struct File {
    const char *path, *temporary; /* temporary NULL: not begun, or moved to its place */
    int file;                     /* -1: closed */
} File;

static Status cannot_write(const char *path) {
    return status_error(STATUS_INVALID, "\"%s\" cannot be written: %s", path, strerror(errno));
}

static Status begin_file(Arena *arena, File *f) {
    static atomic_uint number;
    enum { TRIES = 100 };
    for (int i = 0; i < TRIES && f->file < 0; i++) {
        const char *name = arena_format(arena, "%s.%ld-%u.tmp", f->path, (long)getpid(), atomic_fetch_add(&number, 1));
        f->file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (f->file >= 0) f->temporary = name;
        if (f->file < 0 && errno != EEXIST) break;
    }
    return f->file < 0 ? cannot_write(f->path) : NULL;
}

static Status write_file(void *user, const void *bytes, size_t size) {
    const File *f = user;
    for (size_t at = 0; at < size;) {
        size_t some = size - at < (1 << 30) ? size - at : 1 << 30;
        ssize_t put = write(f->file, (const char *)bytes + at, some);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return cannot_write(f->path);
        at += (size_t)put;
    }
    return NULL;
}

static Status finish_file(Arena *arena, File *f) {
    bool failed = fsync(f->file) < 0 && errno != EINVAL; /* EINVAL: a file system without it */
    failed |= close(f->file) < 0;
    f->file = -1;
    if (failed || rename(f->temporary, f->path) < 0) return cannot_write(f->path);
    f->temporary = NULL;
    int folder = open(folder_of(arena, f->path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
    return NULL;
}

static void abandon_file(File *f) {
    if (f->file >= 0) close(f->file);
    if (f->temporary) unlink(f->temporary);
}

typedef struct MemorySink {
    char *bytes;
    size_t size;
} MemorySink;

static Status write_memory(void *user, const void *bytes, size_t size) {
    MemorySink *sink = user;
    if (size) memcpy(sink->bytes + sink->size, bytes, size);
    sink->size += size;
    return NULL;
}

/* --- all of it ------------------------------------------------------------------------------------------------------
 */
typedef struct Job {
    const char *path; /* or: */
    const void *bytes;
    size_t size;
    const char *folder;
    const OnnxfuseOptions *options;
    File *file; /* NULL: to memory */
    void **out_bytes;
    size_t *out_size;
    char **out_report; /* or NULL */
} Job;

static Status report(const Compiling *c, char **out_report) {
    cJSON *root = cJSON_CreateObject(), *parts = cJSON_AddObjectToObject(root, "parts");
    for (int i = 0; i < PARTS; i++)
        cJSON_AddNumberToObject(parts, compiled_part_name((CompiledPart)i), (double)c->sections[i].bytes);
    cJSON_AddNumberToObject(root, "bytes", (double)c->header.bytes);
    cJSON_AddNumberToObject(root, "kernels", c->kernels.count);
    cJSON_AddNumberToObject(root, "nodes", c->parts.nodes);
    cJSON_AddStringToObject(root, "device", c->parts.plan->device->table->name);
    cJSON_AddStringToObject(root, "target", target_level_name(&c->parts.plan->host->policy->target));
    *out_report = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return *out_report ? NULL : status_out_of_memory();
}

static Status write_job(Compiling *c, const Job *job, const Pieces *pieces) {
    if (job->file) {
        TRY(begin_file(c->arena, job->file));
        TRY(write_sections(c, pieces, write_file, job->file));
        return finish_file(c->arena, job->file);
    }
    MemorySink sink = {malloc(c->header.bytes), 0};
    if (!sink.bytes) return status_out_of_memory();
    Status status = write_sections(c, pieces, write_memory, &sink);
    if (status) {
        free(sink.bytes);
        return status;
    }
    *job->out_bytes = sink.bytes;
    *job->out_size = sink.size;
    return NULL;
}

static Status compile_session(Arena *arena, const OnnxfuseSession *session, const Job *job) {
    Compiling *c = ARENA_NEW(arena, Compiling);
    Pieces pieces[PARTS] = {0};
    *c = (Compiling){.arena = arena, .parts = session_parts(session)};
    c->steps = c->kept = c->left_out = c->places = c->kernel_numbers = map_make(arena);
    TRY(session_policy_json(job->options, job->path, arena, &c->policy));
    TRY(sections_of(c, pieces));
    if (job->out_report) TRY(report(c, job->out_report));
    Status status = write_job(c, job, pieces);
    if (status && job->out_report) {
        free(*job->out_report);
        *job->out_report = NULL;
    }
    return status;
}

static Status compile_guarded(Arena *arena, const OnnxfuseSession *session, const Job *job) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    return compile_session(arena, session, job);
}

static Status compile(const Job *job) {
    OnnxfuseSession *session;
    TRY(session_open_to_compile(job->path, job->bytes, job->size, job->folder, job->options, &session));
    Arena *arena = arena_create(0);
    Status status = arena ? compile_guarded(arena, session, job) : status_out_of_memory();
    arena_destroy(arena);
    onnxfuse_session_close(session);
    return status;
}

OnnxfuseStatus onnxfuse_compile(const char *path, const OnnxfuseOptions *options, const char *out_path,
                                char **out_report) {
    File file = {.path = out_path, .file = -1};
    Job job = {.path = path, .options = options, .file = &file, .out_report = out_report};
    if (out_report) *out_report = NULL;
    if (compiled_is_file(path)) return status_error(STATUS_USAGE, "\"%s\" is compiled already", path);
    Status status = compile(&job);
    abandon_file(&file); /* what is in its place is not touched */
    return status;
}

OnnxfuseStatus onnxfuse_compile_memory(const void *bytes, size_t size, const char *folder,
                                       const OnnxfuseOptions *options, void **out_bytes, size_t *out_size) {
    Job job = {.bytes = bytes,
               .size = size,
               .folder = folder,
               .options = options,
               .out_bytes = out_bytes,
               .out_size = out_size};
    *out_bytes = NULL;
    *out_size = 0;
    if (compiled_is(bytes, size)) return status_error(STATUS_USAGE, "the model is compiled already");
    return compile(&job);
}
