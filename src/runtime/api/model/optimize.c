/* SPDX-License-Identifier: Apache-2.0 */
/* A model in, a smaller model of the standard's operators out: import, rewriting, export, and files that appear whole
 * or not at all. */
#include "runtime/api/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "importer/files.h"
#include "importer/importer.h"
#include "optimize/region_functions.h"
#include "optimize/rewrite.h"
#include "optimize/schema.h"
#include "runtime/api/model/model_file.h"
#include "runtime/device/device.h"

/* --- the inputs' shapes --- */
typedef struct Work {
    Arena *arena;
    const char *path, *out_path;
    const OnnxfuseOptimizeOptions *options;
    Graph *graph, *twin;
    Graph *whole, *whole_twin; /* before a part was extracted: the part uses their data; else NULL */
    Graph *partitioned;        /* a copy, as kernels; NULL: no regions are asked for */
    Map fixed;                 /* name of a size -> int64_t * */
    Regions regions;
    KeptModel *part; /* the part of the model that is extracted */
    ModelFile file;
    char **out_report; /* or NULL */
} Work;

static Status wrong_shapes(const char *text) {
    return status_error(STATUS_USAGE, "fixed shapes \"%s\": expected NAME=1x3x224x224, more of them after commas",
                        text);
}

static Value *input_named(const Graph *graph, const char *name) {
    for (int i = 0; i < graph->inputs.count; i++)
        if (strcmp(graph->inputs.items[i]->name, name) == 0) return graph->inputs.items[i];
    return NULL;
}

static Status fix_dim(Work *w, const Value *input, int axis, int64_t size) {
    int64_t known;
    const int64_t *before = NULL;
    int symbol = dim_symbol_index(input->dims[axis]);
    const char *name = symbol >= 0 ? dim_symbol_name(w->graph->dims, symbol) : NULL;
    if (dim_is_const(input->dims[axis], &known)) before = &known;
    if (name && map_get(&w->fixed, name)) before = map_get(&w->fixed, name);
    if (before && *before != size)
        return status_error(STATUS_USAGE, "input \"%s\": axis %d is %lld, it cannot be %lld", input->name, axis,
                            (long long)*before, (long long)size);
    if (name && !before) map_set(&w->fixed, name, arena_copy(w->arena, &size, sizeof size));
    return NULL;
}

/* One NAME=SIZES, sizes joined by x. */
static Status fix_input(Work *w, const char *name, const char *sizes) {
    const Value *input = input_named(w->graph, name);
    if (!input) return status_error(STATUS_USAGE, "the model has no input \"%s\"", name);
    if (input->rank < 0 || input->kind != VALUE_TENSOR)
        return status_error(STATUS_USAGE, "input \"%s\" declares no number of axes", name);
    int axis = 0;
    for (const char *at = sizes; *at; axis++) {
        char *end;
        errno = 0;
        long long size = strtoll(at, &end, 10);
        if (end == at || errno || size < 0 || size > LARGEST_SIZE || (*end && *end != 'x') || (*end && !end[1]))
            return wrong_shapes(w->options->fix_shapes);
        if (axis >= input->rank) break;
        TRY(fix_dim(w, input, axis, size));
        at = *end ? end + 1 : end;
    }
    if (axis == input->rank) return NULL;
    return status_error(STATUS_USAGE, "input \"%s\" has %d axes, not those of \"%s\"", name, input->rank, sizes);
}

static void substitute(Work *w, Graph *graph) {
    int count = dim_symbol_count(graph->dims);
    const Dim **by_symbol = ARENA_ARRAY(w->arena, const Dim *, count + 1);
    for (int i = 0; i < count; i++) {
        const int64_t *size = map_get(&w->fixed, dim_symbol_name(graph->dims, i));
        if (size) by_symbol[i] = dim_const(graph->dims, *size);
    }
    for (int i = 0; i < graph->inputs.count; i++) {
        Value *input = graph->inputs.items[i];
        for (int k = 0; k < input->rank; k++)
            input->dims[k] = dim_substitute(graph->dims, input->dims[k], by_symbol, count);
    }
}

static Status fix_shapes(Work *w) {
    char *at = arena_string(w->arena, w->options->fix_shapes);
    while (*at) {
        size_t length = strcspn(at, ",");
        char *next = at + length + (at[length] == ',');
        at[length] = 0;
        char *equals = strrchr(at, '=');
        if (!equals || equals == at) return wrong_shapes(w->options->fix_shapes);
        *equals = 0;
        TRY(fix_input(w, at, equals + 1));
        at = next;
    }
    substitute(w, w->graph);
    substitute(w, w->twin);
    return NULL;
}

/* --- the report --- */
typedef struct Count {
    const char *op; /* with its domain where that is not the standard's */
    int before, after;
} Count;

typedef struct Counts {
    Arena *arena;
    Map rows; /* op -> Count * */
    VEC(Count *) order;
    int before, after;
} Counts;

static Count *count_of(Counts *c, const Node *node) {
    const char *op = *node->domain ? arena_format(c->arena, "%s.%s", node->domain, node->op) : node->op;
    Count *row = map_get(&c->rows, op);
    if (row) return row;
    row = ARENA_NEW(c->arena, Count);
    row->op = arena_string(c->arena, op);
    map_set(&c->rows, row->op, row);
    VEC_PUSH(c->arena, c->order, row);
    return row;
}

static void count(Counts *c, const Graph *graph, bool after) {
    FOR_EACH_NODE(node, graph) {
        Count *row = count_of(c, node);
        row->before += !after;
        row->after += after;
        c->before += !after;
        c->after += after;
        for (int i = 0; i < node->subgraph_count; i++) count(c, node->subgraphs[i], after);
    }
}

static Status report(const Work *w, const Counts *c, int64_t bytes_before, char **out_report) {
    Text text = text_make(w->arena);
    text_add(&text, "{\"nodes_before\":%d,\"nodes_after\":%d,\"bytes_before\":%lld,\"bytes_after\":%lld,", c->before,
             c->after, (long long)bytes_before, (long long)w->file.model.size);
    text_add(&text, "\"external_bytes\":%lld,\"operators\":{", (long long)w->file.data.size);
    for (int i = 0; i < c->order.count; i++) {
        text_add(&text, "%s", i ? "," : "");
        text_add_json(&text, c->order.items[i]->op, strlen(c->order.items[i]->op));
        text_add(&text, ":{\"before\":%d,\"after\":%d}", c->order.items[i]->before, c->order.items[i]->after);
    }
    text_add(&text, "}");
    for (int i = 0; i < w->graph->info->opsets.count; i++)
        if (!*w->graph->info->opsets.items[i].domain)
            text_add(&text, ",\"opset\":%lld", (long long)w->graph->info->opsets.items[i].version);
    if (w->options->regions)
        text_add(&text, ",\"regions\":%d,\"nodes_in_regions\":%d", w->regions.kinds.count, w->regions.nodes);
    model_file_report_unread(&w->file, &text);
    text_add(&text, "}");
    char *copy = strdup(text.data);
    if (!copy) return status_out_of_memory();
    *out_report = copy;
    return NULL;
}

/* --- all of it --- */

static Status write_model(Work *w, const MappedFile *original) {
    const char **regions = ARENA_ARRAY(w->arena, const char *, w->regions.kinds.count);
    for (int i = 0; i < w->regions.kinds.count; i++) regions[i] = w->regions.kinds.items[i].text;
    ExportOptions options = {.original = original->bytes,
                             .original_size = original->size,
                             .fixed = w->options->fix_shapes ? &w->fixed : NULL,
                             .regions = regions,
                             .region_count = w->regions.kinds.count};
    return model_file_write(&w->file, w->graph, w->options->external_data, options);
}

/* The part of the model becomes the model. */
static Status extract(Work *w, const Policy *policy, MappedFile *original) {
    TRY(extract_graph(w->graph, w->twin, policy, w->options->extract));
    TRY(kept_model(w->arena, w->graph, original, &w->part));
    *original = w->part->model;
    w->whole = w->graph;
    w->whole_twin = w->twin;
    w->graph = w->twin = NULL;
    TRY(kept_import(w->part, &w->graph));
    return kept_import(w->part, &w->twin);
}

/* --- regions --- */

static Status run_passes(Graph *graph, const Policy *policy) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(graph->arena, &guard);
    return pipeline_run(graph, policy, NULL, NULL);
}

static Status partition_copy(Work *w, Policy *policy) {
    Devices devices;
    KeptModel *copy;
    TRY(kept_model(w->arena, w->graph, NULL, &copy));
    TRY(kept_import(copy, &w->partitioned));
    TRY(devices_open(policy, w->arena, &devices));
    Status status = run_passes(w->partitioned, policy);
    devices_close(&devices);
    return status;
}

static Status find_regions(Work *w) {
    OnnxfuseOptions given = {.size = sizeof given, .policy_file = w->options->policy_file};
    Policy policy;
    TRY(session_policy(&given, w->path, w->arena, &policy));
    RegionNames names = regions_name(w->graph);
    Status status = partition_copy(w, &policy);
    if (!status) regions_mark(w->graph, &names, w->partitioned, &w->regions);
    regions_restore(&names);
    return status;
}

static Status optimize_graph(Work *w, Counts *counts, const MappedFile *original, const Policy *policy) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(w->arena, &guard);
    arena_guard(w->graph->arena, &guard);
    arena_guard(w->twin->arena, &guard);
    if (w->options->fix_shapes) TRY(fix_shapes(w));
    count(counts, w->graph, false);
    TRY(rewrite_onnx(w->graph, w->twin, policy, w->options->convert_opset));
    count(counts, w->graph, true);
    if (w->options->regions) TRY(find_regions(w));
    return write_model(w, original);
}

static Status optimize(Work *w, jmp_buf *guard) {
    Counts counts = {.arena = w->arena, .rows = map_make(w->arena)};
    Policy policy = policy_default();
    MappedFile original;
    TRY(model_file_import(w->path, NULL, &w->graph));
    TRY(model_file_import(w->path, NULL, &w->twin));
    TRY(file_map(w->arena, w->path, &original));
    int64_t bytes_before = (int64_t)original.size;
    if (w->options->extract) {
        arena_guard(w->graph->arena, guard);
        arena_guard(w->twin->arena, guard);
        TRY(extract(w, &policy, &original));
    }
    TRY(optimize_graph(w, &counts, &original, &policy));
    arena_guard(w->arena, guard);
    char *text = NULL;
    if (w->out_report) TRY(report(w, &counts, bytes_before, &text));
    return model_file_publish_with(&w->file, text, w->out_report);
}

static Status optimize_guarded(Work *w) {
    jmp_buf guard; /* the graphs' too */
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(w->arena, &guard);
    w->fixed = map_make(w->arena);
    model_file_at(&w->file, w->arena, w->out_path);
    return optimize(w, &guard);
}

static Status optimize_in_call(Arena *arena, void *context) {
    Work *w = context;
    w->arena = arena;
    Status status = optimize_guarded(w);
    model_file_abandon(&w->file);
    graph_destroy(w->partitioned);
    graph_destroy(w->twin);
    graph_destroy(w->graph);
    graph_destroy(w->whole_twin);
    graph_destroy(w->whole);
    return status;
}

OnnxfuseStatus onnxfuse_optimize(const char *path, const char *out_path, const OnnxfuseOptimizeOptions *options,
                                 char **out_report) {
    static const OnnxfuseOptimizeOptions defaults = {.size = sizeof defaults};
    TRY(check_struct("OnnxfuseOptimizeOptions", options ? options->size : 0, sizeof *options));
    if (options && options->convert_opset &&
        (options->convert_opset < SCHEMA_OLDEST || options->convert_opset > schema_newest()))
        return status_error(STATUS_USAGE, "version %d of the operator set: known are %d to %d", options->convert_opset,
                            SCHEMA_OLDEST, schema_newest());
    Work w = {.path = path,
              .out_path = out_path,
              .options = options ? options : &defaults,
              .file = model_file_none(),
              .out_report = out_report};
    return call_with_arena(optimize_in_call, &w);
}
