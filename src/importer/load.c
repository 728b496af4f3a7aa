/* SPDX-License-Identifier: Apache-2.0 */
/* The way in: a file or bytes, unpacked, checked, built into a graph. */
#include "importer/importer.h"
#include "importer/build.h"

enum { INLINING_BUDGET = 512 << 20 }; /* bytes that calls of functions may add: about half a million nodes */

static void describe_model(Importer *im) {
    const Onnx__ModelProto *model = im->model;
    ModelInfo *info = im->graph->info;
    info->ir_version = model->ir_version;
    const char *name = model->producer_name ? model->producer_name : "";
    const char *version = model->producer_version ? model->producer_version : "";
    info->producer = arena_format(im->arena, "%s%s%s", name, *name && *version ? " " : "", version);
    info->doc = model->doc_string ? model->doc_string : "";
    for (size_t i = 0; i < model->n_opset_import; i++) {
        OpsetImport import = {domain_of(model->opset_import[i]->domain), model->opset_import[i]->version};
        VEC_PUSH(im->arena, info->opsets, import);
    }
    for (size_t i = 0; i < model->n_metadata_props; i++) {
        const Onnx__StringStringEntryProto *entry = model->metadata_props[i];
        VEC_PUSH(im->arena, info->metadata, (Metadata){entry->key ? entry->key : "", entry->value ? entry->value : ""});
    }
    im->graph->name = model->graph->name ? model->graph->name : "";
}

static Status check_model(const Onnx__ModelProto *model) {
    if (!model->has_ir_version && !model->graph) return status_error(STATUS_INVALID, "is not an ONNX model");
    if (!model->has_ir_version || model->ir_version < 1)
        return status_error(STATUS_INVALID, "it declares no IR version, or one that is none");
    if (model->ir_version < OLDEST_IR_VERSION || model->ir_version > NEWEST_IR_VERSION)
        return status_error(STATUS_UNSUPPORTED, "IR version %lld is not supported, only %d to %d",
                            (long long)model->ir_version, OLDEST_IR_VERSION, NEWEST_IR_VERSION);
    if (!model->graph) return status_error(STATUS_INVALID, "it holds no graph");
    return NULL;
}

static Status import_bytes(Importer *im, const void *bytes, size_t size) {
    Onnx__ModelProto *model;
    TRY(wire_unpack(im->scratch, im->arena, &onnx__model_proto__descriptor, bytes, size, &model));
    TRY(check_model(model));
    im->model = model;
    describe_model(im);
    return build_graph(im);
}

/* Where a model comes from. */
typedef struct Request {
    const char *path; /* of a file, or NULL: */
    const void *bytes;
    size_t size;
    const char *folder; /* of external data, may be NULL */
    const ImportOptions *options;
} Request;

static Status import_into(Graph *graph, Arena *scratch, const Request *request) {
    Arena *arena = graph->arena;
    Importer *im = ARENA_NEW(scratch, Importer);
    *im = (Importer){.arena = arena, .scratch = scratch, .graph = graph, .budget = INLINING_BUDGET};
    im->unaligned_weights = request->options && request->options->unaligned_weights;
    im->functions = im->opsets = im->read = im->orders = map_make(scratch);
    MappedFile source = {request->bytes, request->size};
    const char *folder_path = request->folder;
    if (request->path) {
        TRY(file_map(arena, request->path, &source));
        VEC_PUSH(arena, graph->info->mapped, source);
        folder_path = folder_of(arena, request->path);
        graph->info->path = arena_string(arena, request->path);
    } else if (!request->options || !request->options->borrow_bytes)
        source.bytes = arena_copy(arena, request->bytes, request->size);
    Folder *folder = ARENA_NEW(arena, Folder);
    *folder = folder_open(arena, folder_path);
    folder->info = graph->info;
    im->tensors = (TensorReader){.arena = arena, .folder = folder, .options = request->path ? NULL : request->options};
    if (request->path) im->tensors.source = source;
    return status_at(import_bytes(im, source.bytes, source.size), "%s", request->path ? request->path : "model");
}

/* Both arenas unwind to here when memory runs out. */
static Status import_guarded(Graph *graph, Arena *scratch, const Request *request) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(graph->arena, &guard);
    arena_guard(scratch, &guard);
    return import_into(graph, scratch, request);
}

static Status import_request(const Request *request, Graph **out_graph) {
    *out_graph = NULL;
    size_t limit = request->options ? request->options->arena_limit : 0;
    Graph *graph = graph_create(limit);
    Arena *scratch = arena_create(limit);
    if (!graph || !scratch) {
        graph_destroy(graph);
        arena_destroy(scratch);
        return status_out_of_memory();
    }
    Status status = import_guarded(graph, scratch, request);
    arena_destroy(scratch);
    arena_guard(graph->arena, NULL);
    if (status)
        graph_destroy(graph);
    else
        *out_graph = graph;
    return status;
}

Status import_file(const char *path, const ImportOptions *options, Graph **out_graph) {
    return import_request(&(Request){.path = path, .options = options}, out_graph);
}

Status import_memory(const void *bytes, size_t size, const char *folder, const ImportOptions *options,
                     Graph **out_graph) {
    return import_request(&(Request){.bytes = bytes, .size = size, .folder = folder, .options = options}, out_graph);
}

void import_discard(const Graph *graph, const Tensor *tensor) {
    if (graph->info->path && tensor->dtype != DT_STRING && tensor->data) tensor_forget(tensor);
}
