/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/api/model/model_file.h"
#include "runtime/compiled/compiled.h"

#include <stdlib.h>
#include <unistd.h>

enum { MOST_INSIDE = 1800000000 }; /* bytes of a model that keeps its weights: protobuf ends at 2 GiB */
enum { DATA_ALIGNMENT = 4096 };    /* of an initializer in the data file, so that readers can map it */

Status model_file_import(const char *path, const ImportOptions *options, Graph **out_graph) {
    if (compiled_is_file(path))
        return status_error(STATUS_USAGE, "\"%s\" is a compiled model: the ONNX file that it was made of is needed",
                            path);
    return import_file(path, options, out_graph);
}

ModelFile model_file_none(void) { return (ModelFile){.model = {.file = -1}, .data = {.file = -1}}; }

void model_file_at(ModelFile *file, Arena *arena, const char *path) {
    file->arena = arena;
    file->model = new_file(arena_string(arena, path));
    file->data = new_file(arena_format(arena, "%s.data", path));
}

/* An initializer's data for the data file. */
static Status add_data(void *user, const void *data, size_t size, const char **out_location, int64_t *out_offset) {
    static const char zeros[DATA_ALIGNMENT];
    NewFile *file = &((ModelFile *)user)->data;
    const char *slash = strrchr(file->path, '/');
    *out_location = slash ? slash + 1 : file->path;
    if (file->file < 0) TRY(new_file_begin(file));
    int64_t gap = (DATA_ALIGNMENT - file->size % DATA_ALIGNMENT) % DATA_ALIGNMENT;
    TRY(new_file_append(file, zeros, (size_t)gap));
    *out_offset = file->size;
    return new_file_append(file, data, size);
}

Status model_file_write(ModelFile *file, const Graph *graph, bool external_data, ExportOptions options) {
    void *bytes;
    size_t size;
    options.write = add_data;
    options.user = file;
    options.most_inside = external_data ? 0 : MOST_INSIDE;
    TRY(export_model_with(graph, file->arena, &options, &bytes, &size));
    TRY(new_file_begin(&file->model));
    TRY(new_file_append(&file->model, bytes, size));
    TRY(new_file_close(&file->model));
    return file->data.file >= 0 ? new_file_close(&file->data) : NULL;
}

void model_file_report_unread(const ModelFile *file, Text *text) {
    if (file->data.place || access(file->data.path, F_OK) != 0) return;
    text_add(text, ",\"unread_data\":");
    text_add_json(text, file->data.path, strlen(file->data.path));
}

Status model_file_publish(ModelFile *file) {
    if (file->data.temporary) return new_files_publish((NewFile *[]){&file->data, &file->model}, 2);
    return new_file_publish(&file->model);
}

Status model_file_publish_with(ModelFile *file, char *text, char **out_report) {
    Status status = model_file_publish(file);
    if (status)
        free(text);
    else if (out_report)
        *out_report = text;
    return status;
}

void model_file_abandon(ModelFile *file) {
    new_file_abandon(&file->model);
    new_file_abandon(&file->data);
}

/* --- models in memory --- */

static Status keep_data(void *user, const void *data, size_t size, const char **out_location, int64_t *out_offset) {
    KeptModel *kept = user;
    *out_location = arena_format(kept->arena, "%d", kept->data.count);
    *out_offset = 0;
    VEC_PUSH(kept->arena, kept->data, (MappedFile){data, size});
    return NULL;
}

const void *kept_data(void *model, const char *location, size_t *out_size) {
    const KeptModel *kept = model;
    const MappedFile *file = &kept->data.items[atoi(location)];
    *out_size = file->size;
    return file->bytes;
}

Status kept_model(Arena *arena, const Graph *graph, const MappedFile *original, KeptModel **out_model) {
    KeptModel *kept = ARENA_NEW(arena, KeptModel);
    *kept = (KeptModel){.arena = arena};
    ExportOptions options = {.write = keep_data, .user = kept};
    void *bytes;
    size_t size;
    if (original) {
        options.original = original->bytes;
        options.original_size = original->size;
    }
    TRY(export_model_with(graph, arena, &options, &bytes, &size));
    kept->model = (MappedFile){bytes, size};
    *out_model = kept;
    return NULL;
}

Status kept_import(KeptModel *model, Graph **out_graph) {
    ImportOptions options = {.borrow_bytes = true, .external_data = kept_data, .external_data_user = model};
    return import_memory(model->model.bytes, model->model.size, NULL, &options, out_graph);
}
