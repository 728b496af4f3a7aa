/* SPDX-License-Identifier: Apache-2.0 */
/* A graph of ONNX nodes as a model's file, with its weights inside or in a file beside it: both appear whole or not at all. */
#ifndef ONNXFUSE_RUNTIME_API_MODEL_FILE_H
#define ONNXFUSE_RUNTIME_API_MODEL_FILE_H

#include "base/file.h"
#include "importer/files.h"
#include "importer/importer.h"

typedef struct ModelFile {
    Arena *arena;
    NewFile model, data;
} ModelFile;

/* import_file, which refuses a compiled model by that name. */
Status model_file_import(const char *path, const ImportOptions *options, Graph **out_graph);

/* model_file_abandon is due from here on. */
ModelFile model_file_none(void);
void model_file_at(ModelFile *file, Arena *arena, const char *path);
/* options->write and user are set here. external_data: weights go to a file of their own, PATH.data; so do they where the model
 * would take more than protobuf can. */
Status model_file_write(ModelFile *file, const Graph *graph, bool external_data, ExportOptions options);
Status model_file_publish(ModelFile *file);
/* And hands over the text of a report, or NULL, which is freed where there is nothing to report. out_report may be NULL. */
Status model_file_publish_with(ModelFile *file, char *text, char **out_report);
/* The member "unread_data" of a report: a file of the data file's name that stood there before, where what is written needs none. It may be another
 * model's, so it stays. */
void model_file_report_unread(const ModelFile *file, Text *text);
void model_file_abandon(ModelFile *file); /* what is in its place is not touched */

/* A graph of ONNX nodes as a model in memory, whose initializers stay where they are: each is a data file of its own, named by its
 * number. The graph must live as long as it, and it as long as what is imported from it. */
typedef struct KeptModel {
    Arena *arena;
    MappedFile model;
    VEC(MappedFile) data;
} KeptModel;
/* original: as in ExportOptions, or NULL. */
Status kept_model(Arena *arena, const Graph *graph, const MappedFile *original, KeptModel **out_model);
Status kept_import(KeptModel *model, Graph **out_graph);
const void *kept_data(void *model, const char *location, size_t *out_size); /* an ExternalDataFn */

#endif
