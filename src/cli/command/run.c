/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse run: one run of a model, its outputs shown and, where asked, written as .npy. */
#include "cli/command/commands.h"
#include "cli/value/inputs.h"
#include "cli/base/session.h"
#include "cli/value/show.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 32, LONGEST_NAME = 200 };

typedef struct RunOptions {
    InputOptions base;
    const char *output_dir, *labels;
} RunOptions;

static const Flag run_flags[] = {
    {"output-dir", "DIR", FLAG_TEXT, offsetof(RunOptions, output_dir), "write each output to DIR/NAME.npy"},
    {"labels", "FILE", FLAG_TEXT, offsetof(RunOptions, labels), "names of classes, one a line: print the best three"},
    {0},
};

typedef struct Writer {
    const char *folder;
    char **taken; /* file names used so far */
    int count;
} Writer;

/* --- writing outputs --- */
static bool is_taken(const Writer *writer, const char *name) {
    for (int i = 0; i < writer->count; i++)
        if (strcmp(writer->taken[i], name) == 0) return true;
    return false;
}

/* A file name for an output: what is no letter, digit, '.', '-' or '_' becomes '_'; made distinct by a number. */
static Problem *file_name(Writer *writer, const char *name, char **out_name) {
    char safe[LONGEST_NAME + 1];
    size_t length = 0;
    for (; name[length] && length < LONGEST_NAME; length++) {
        unsigned char c = (unsigned char)name[length];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                     (c == '.' && length) || c >= 0x80;
        safe[length] = plain ? (char)c : '_';
    }
    safe[length] = 0;
    char *made = strdup(length ? safe : "_");
    for (int number = 2; made && is_taken(writer, made); number++) {
        free(made);
        if (asprintf(&made, "%s_%d", safe, number) < 0) made = NULL;
    }
    char **taken = made ? realloc(writer->taken, sizeof *taken * ((size_t)writer->count + 1)) : NULL;
    if (!taken) {
        free(made);
        return problem_out_of_memory();
    }
    writer->taken = taken;
    taken[writer->count++] = *out_name = made;
    return NULL;
}

static Problem *write_tensor(Writer *writer, const char *name, const OnnxfuseValue *tensor) {
    char *file = NULL, *path = NULL;
    TRY(file_name(writer, name, &file));
    if (asprintf(&path, "%s/%s.npy", writer->folder, file) < 0) return problem_out_of_memory();
    NewFile new;
    Problem *found = file_begin(path, &new);
    if (!found) {
        npy_write(tensor, new.stream);
        found = file_finish(&new);
    }
    free(path);
    return found;
}

static Problem *write_value(Writer *writer, const char *name, const OnnxfuseValue *value);

/* As NAME.WHICH, or of the sequence's item of that number as NAME.NUMBER where WHICH is NULL. */
static Problem *write_part(Writer *writer, const char *name, const char *which, int number, const OnnxfuseValue *part) {
    char *path = NULL;
    if (!part || (which ? asprintf(&path, "%s.%s", name, which) : asprintf(&path, "%s.%d", name, number)) < 0)
        return problem_out_of_memory();
    Problem *found = write_value(writer, path, part);
    free(path);
    return found;
}

/* The items of a sequence as NAME.0, NAME.1, ..., a map as NAME.keys and NAME.values. */
static Problem *write_value(Writer *writer, const char *name, const OnnxfuseValue *value) {
    OnnxfuseKind kind = onnxfuse_value_kind(value);
    if (kind == ONNXFUSE_TENSOR) return write_tensor(writer, name, value);
    if (kind == ONNXFUSE_MAP) {
        TRY(write_part(writer, name, "keys", 0, onnxfuse_value_keys(value)));
        return write_part(writer, name, "values", 0, onnxfuse_value_values(value));
    }
    for (int i = 0; i < onnxfuse_value_count(value); i++)
        TRY(write_part(writer, name, NULL, i, onnxfuse_value_item(value, i)));
    return NULL;
}

/* --- showing outputs
 * -------------------------------------------------------------------------------------------------- */
static void print_value(const char *name, const OnnxfuseValue *value, int depth) {
    printf("%*s", 2 * depth, "");
    print_safe(stdout, name);
    if (onnxfuse_value_kind(value) == ONNXFUSE_ABSENT) {
        puts("  absent");
    } else if (onnxfuse_value_kind(value) == ONNXFUSE_TENSOR) {
        printf("  %s", onnxfuse_dtype_name(onnxfuse_value_dtype(value)));
        print_shape(stdout, value);
        fputs("  ", stdout);
        print_preview(stdout, value);
        putchar('\n');
    } else if (onnxfuse_value_kind(value) == ONNXFUSE_MAP) {
        printf("  map of %lld  ", (long long)onnxfuse_value_count(value));
        print_map(stdout, value);
        putchar('\n');
    } else {
        int64_t count = onnxfuse_value_count(value);
        printf("  sequence of %lld\n", (long long)count);
        for (int i = 0; i < count && i < MOST_ROWS; i++) {
            char item[32];
            snprintf(item, sizeof item, "%d", i);
            print_value(item, onnxfuse_value_item(value, i), depth + 1);
        }
        if (count > MOST_ROWS) printf("%*s...\n", 2 * depth + 2, "");
    }
}

static void print_rows(const Labels *labels, const OnnxfuseValue *tensor, int64_t rows) {
    for (int64_t row = 0; row < rows && row < MOST_ROWS; row++) {
        Best best[BEST_COUNT];
        int count = labels_best(labels, tensor, row, best);
        bool shares = labels_are_shares(labels, tensor, row);
        fputs("  ", stdout);
        if (rows > 1) printf("row %lld: ", (long long)row);
        for (int i = 0; i < count; i++) {
            if (i) fputs(", ", stdout);
            print_safe(stdout, labels->lines[best[i].index]);
            printf(shares ? " %.1f %%" : " %.5g", best[i].score * (shares ? 100 : 1));
        }
        putchar('\n');
    }
    if (rows > MOST_ROWS) printf("  ... %lld more rows\n", (long long)(rows - MOST_ROWS));
}

static cJSON *json_rows(const Labels *labels, const OnnxfuseValue *tensor, int64_t rows) {
    cJSON *all = cJSON_CreateArray();
    for (int64_t row = 0; row < rows; row++) {
        Best best[BEST_COUNT];
        int count = labels_best(labels, tensor, row, best);
        cJSON *list = cJSON_CreateArray();
        for (int i = 0; i < count; i++) {
            cJSON *one = cJSON_CreateObject();
            cJSON_AddStringToObject(one, "label", labels->lines[best[i].index]);
            cJSON_AddNumberToObject(one, "score", best[i].score);
            cJSON_AddItemToArray(list, one);
        }
        cJSON_AddItemToArray(all, list);
    }
    return all;
}

static cJSON *json_value(const char *name, const OnnxfuseValue *value) {
    cJSON *object = cJSON_CreateObject();
    OnnxfuseKind kind = onnxfuse_value_kind(value);
    if (name) cJSON_AddStringToObject(object, "name", name);
    cJSON_AddStringToObject(object, "kind",
                            kind == ONNXFUSE_TENSOR     ? "tensor"
                            : kind == ONNXFUSE_SEQUENCE ? "sequence"
                            : kind == ONNXFUSE_MAP      ? "map"
                                                        : "absent");
    if (kind == ONNXFUSE_TENSOR) {
        cJSON_AddStringToObject(object, "dtype", onnxfuse_dtype_name(onnxfuse_value_dtype(value)));
        cJSON_AddItemToObject(object, "shape", json_shape(value));
        cJSON_AddItemToObject(object, "preview", json_preview(value));
    } else if (kind == ONNXFUSE_SEQUENCE) {
        cJSON *items = cJSON_AddArrayToObject(object, "items");
        for (int i = 0; i < onnxfuse_value_count(value); i++)
            cJSON_AddItemToArray(items, json_value(NULL, onnxfuse_value_item(value, i)));
    } else if (kind == ONNXFUSE_MAP && onnxfuse_value_keys(value)) {
        cJSON_AddItemToObject(object, "keys", json_value(NULL, onnxfuse_value_keys(value)));
        cJSON_AddItemToObject(object, "values", json_value(NULL, onnxfuse_value_values(value)));
    }
    return object;
}

/* --- the command
 * --------------------------------------------------------------------------------------------------------- */
typedef struct Showing {
    const RunOptions *options;
    const OnnxfuseSession *session;
    const Inputs *inputs;
    Labels labels;
    Writer writer;
    cJSON *outputs;
    bool labelled;
} Showing;

static Problem *show_output(Showing *s, int index, const OnnxfuseValue *value) {
    const char *name = onnxfuse_session_output(s->session, index)->name;
    cJSON *object = s->options->base.common.json ? json_value(name, value) : NULL;
    int64_t rows = 0;
    print_value(name, value, 0);
    if (labels_fit(&s->labels, value, &rows)) {
        s->labelled = true;
        print_rows(&s->labels, value, rows);
        if (object) cJSON_AddItemToObject(object, "best", json_rows(&s->labels, value, rows));
    }
    if (object) cJSON_AddItemToArray(s->outputs, object);
    return s->options->output_dir ? write_value(&s->writer, name, value) : NULL;
}

static Problem *show_outputs(Showing *s, OnnxfuseValue **outputs, double milliseconds) {
    if (s->options->labels) TRY(labels_read(s->options->labels, &s->labels));
    if (s->options->output_dir) TRY(folder_make(s->options->output_dir));
    s->outputs = cJSON_CreateArray();
    for (int i = 0; i < onnxfuse_session_output_count(s->session); i++) TRY(show_output(s, i, outputs[i]));
    if (s->options->labels && !s->labelled)
        return problem(ONNXFUSE_INVALID, "\"%s\" has %d labels, but no output's last axis has as many elements",
                       s->options->labels, s->labels.count);
    if (!s->options->base.common.json) return NULL;
    OnnxfuseStats stats;
    onnxfuse_session_stats(s->session, &stats, sizeof stats);
    cJSON *result = cJSON_CreateObject();
    cJSON_AddStringToObject(result, "device", stats.device);
    json_add_measure(result, "run_ms", milliseconds);
    cJSON_AddItemToObject(result, "outputs", s->outputs);
    s->outputs = NULL;
    inputs_json(s->inputs, result);
    print_json(result);
    return NULL;
}

static Problem *run_once(const RunOptions *options, OnnxfuseSession *session, const Inputs *inputs) {
    int count = onnxfuse_session_output_count(session);
    OnnxfuseValue **outputs = calloc((size_t)count + 1, sizeof *outputs);
    if (!outputs) return problem_out_of_memory();
    double begin = now_ms();
    Problem *found = inputs_explain(inputs, problem_from(onnxfuse_session_run(session, inputs->values, outputs)));
    Showing showing = {
        .options = options, .session = session, .inputs = inputs, .writer = {.folder = options->output_dir}};
    if (!found) found = show_outputs(&showing, outputs, now_ms() - begin);
    cJSON_Delete(showing.outputs);
    labels_free(&showing.labels);
    for (int i = 0; i < showing.writer.count; i++) free(showing.writer.taken[i]);
    free(showing.writer.taken);
    for (int i = 0; i < count; i++) onnxfuse_value_free(outputs[i]);
    free(outputs);
    return found;
}

static Problem *run(void *given) {
    const RunOptions *options = given;
    OnnxfuseSession *session;
    InputRequest request;
    Inputs inputs = {0};
    TRY(request_read(&options->base, &request));
    Problem *found = session_open(&options->base.common, options->base.common.arguments.items[0], &session);
    if (!found) {
        found = inputs_make(session, &request, NULL, &inputs);
        if (!found) found = run_once(options, session, &inputs);
        inputs_free(&inputs);
        onnxfuse_session_close(session);
    }
    request_free(&request);
    return found;
}

const Command run_command = {
    .name = "run",
    .arguments = "MODEL",
    .summary = "run a model once and show its outputs",
    .more = print_inputs_help,
    .flag_tables = (const Flag *const[]){input_flags, run_flags, model_flags, common_flags, NULL},
    .options_size = sizeof(RunOptions),
    .least = 1,
    .most = 1,
    .run = run,
};
