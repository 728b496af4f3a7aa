/* SPDX-License-Identifier: Apache-2.0 */
#include "models.h"

#include <stdio.h>
#include <stdlib.h>

#include "graph/graph.h"
#include "importer/importer.h"

static void stop(const char *what, const char *text, Status status) {
    fprintf(stderr, "%s: %s\n%s\n", what, status_message(status), text);
    abort();
}

void *model_bytes(const char *text, size_t *out_size) {
    Graph *graph = NULL;
    Arena *arena = arena_create(0);
    bool has_opset = strncmp(text, "opset", 5) == 0;
    Status status = graph_parse(arena_format(arena, "%s%s", has_opset ? "" : "opset 21\n", text), &graph);
    if (status) stop("a test's text", text, status);
    void *bytes;
    graph->info->ir_version = 10;
    status = export_model(graph, arena, &bytes, out_size);
    if (status) stop("a test's model", text, status);
    void *copy = malloc(*out_size + 1);
    if (copy) memcpy(copy, bytes, *out_size);
    graph_destroy(graph);
    arena_destroy(arena);
    return copy;
}

OnnxfuseStatus open_text(const char *text, const OnnxfuseOptions *options, OnnxfuseSession **out_session) {
    static const OnnxfuseOptions quiet = {.policy_json = "{\"cache\": {\"enable\": false}}"};
    size_t size;
    void *bytes = model_bytes(text, &size);
    OnnxfuseStatus status = onnxfuse_session_open_memory(bytes, size, NULL, options ? options : &quiet, out_session);
    free(bytes);
    return status;
}

OnnxfuseSession *must_open(const char *text) {
    OnnxfuseSession *session = NULL;
    Status status = open_text(text, NULL, &session);
    if (status) stop("a session", text, status);
    return session;
}

/* --- values ---------------------------------------------------------------------------------------------- */
static OnnxfuseValue *tensor_of(const char *text, size_t size) {
    Arena *arena = arena_create(0);
    Graph *graph = NULL;
    Status status =
        graph_parse(arena_format(arena, "graph () -> (c) {\nc = constant %.*s\n}", (int)size, text), &graph);
    if (status) stop("a test's tensor", text, status);
    const Tensor *t = graph->outputs.items[0]->constant;
    OnnxfuseValue *value = NULL;
    status = onnxfuse_value_tensor((OnnxfuseDType)t->dtype, t->rank, t->dims, NULL, &value);
    if (status) stop("a test's tensor", text, status);
    static Arena *characters; /* live as long as the test */
    if (!characters) characters = arena_create(0);
    if (t->dtype == DT_STRING)
        for (int64_t i = 0; i < tensor_count(t); i++) {
            const StringView *from = (const StringView *)t->data + i;
            ((OnnxfuseString *)onnxfuse_value_data(value))[i] =
                (OnnxfuseString){arena_string_n(characters, from->data, from->size), from->size};
        }
    else if (tensor_bytes(t))
        memcpy(onnxfuse_value_data(value), t->data, tensor_bytes(t));
    graph_destroy(graph);
    arena_destroy(arena);
    return value;
}

static OnnxfuseValue *map_of_text(const char *text, size_t size) {
    const char *to = strstr(text, " to ");
    OnnxfuseValue *map = NULL;
    if (!to || to > text + size) stop("a test's map", text, NULL);
    Status status = onnxfuse_value_map(tensor_of(text, (size_t)(to - text)),
                                       tensor_of(to + 4, size - (size_t)(to + 4 - text)), &map);
    if (status) stop("a test's map", text, status);
    return map;
}

static OnnxfuseValue *item_of(const char *text, size_t size) {
    while (size && *text == ' ') text++, size--;
    return size > 4 && strncmp(text, "map ", 4) == 0 ? map_of_text(text + 4, size - 4) : tensor_of(text, size);
}

OnnxfuseValue *value_from(const char *text) {
    OnnxfuseValue *value = NULL, *items[16];
    Status status = NULL;
    int count = 0;
    if (strcmp(text, "none") == 0) {
        status = onnxfuse_value_absent(&value);
    } else if (strncmp(text, "seq", 3) == 0) {
        for (const char *at = text + 3, *end; *at; at = end + (*end == '|')) {
            end = strchr(at, '|');
            if (!end) end = at + strlen(at);
            items[count++] = item_of(at, (size_t)(end - at));
        }
        status = onnxfuse_value_sequence(items, count, &value);
    } else {
        value = item_of(text, strlen(text));
    }
    if (status) stop("a test's value", text, status);
    return value;
}

static void add_value(Text *text, const OnnxfuseValue *value) {
    Tensor t = {.dtype = (DType)onnxfuse_value_dtype(value), .rank = onnxfuse_value_rank(value)};
    if (onnxfuse_value_kind(value) == ONNXFUSE_ABSENT) {
        text_add(text, "none");
        return;
    }
    if (onnxfuse_value_kind(value) == ONNXFUSE_SEQUENCE) {
        text_add(text, "seq");
        for (int i = 0; i < onnxfuse_value_count(value); i++) {
            text_add(text, i ? " | " : " ");
            add_value(text, onnxfuse_value_item(value, i));
        }
        return;
    }
    if (onnxfuse_value_kind(value) == ONNXFUSE_MAP) {
        text_add(text, "map ");
        add_value(text, onnxfuse_value_keys(value));
        text_add(text, " to ");
        add_value(text, onnxfuse_value_values(value));
        return;
    }
    t.data = onnxfuse_value_data(value);
    text_add(text, "%s[", dtype_name(t.dtype));
    for (int d = 0; d < t.rank; d++) {
        t.dims[d] = onnxfuse_value_dims(value)[d];
        text_add(text, "%s%lld", d ? ", " : "", (long long)t.dims[d]);
    }
    text_add(text, "] ");
    tensor_print(text, &t, 1000);
}

char *value_text(const OnnxfuseValue *value) {
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    add_value(&text, value);
    char *copy = strdup(text.data);
    arena_destroy(arena);
    return copy;
}

static char *compare_value(int index, const OnnxfuseValue *got, const char *expected) {
    OnnxfuseValue *want = value_from(expected);
    char *got_text = value_text(got), *want_text = value_text(want), *problem = NULL;
    if (strcmp(got_text, want_text) &&
        asprintf(&problem, "output %d: got %s, expected %s", index, got_text, want_text) < 0)
        problem = strdup("no memory");
    free(got_text);
    free(want_text);
    onnxfuse_value_free(want);
    return problem;
}

char *run_and_compare(OnnxfuseSession *session, const char *const *inputs, const char *const *outputs) {
    OnnxfuseValue *in[MOST_VALUES] = {NULL}, *out[MOST_VALUES] = {NULL};
    int count = onnxfuse_session_input_count(session), results = onnxfuse_session_output_count(session);
    if (count > MOST_VALUES || results > MOST_VALUES) return strdup("too many values");
    for (int i = 0; i < count; i++) in[i] = inputs[i] ? value_from(inputs[i]) : NULL;
    Status status = onnxfuse_session_run(session, (const OnnxfuseValue *const *)in, out);
    char *problem = status ? strdup(status_message(status)) : NULL;
    status_free(status);
    for (int o = 0; o < results; o++) {
        if (!problem && outputs[o]) problem = compare_value(o, out[o], outputs[o]);
        onnxfuse_value_free(out[o]);
    }
    for (int i = 0; i < count; i++) onnxfuse_value_free(in[i]);
    return problem;
}
