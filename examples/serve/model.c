/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool model_wants_tensor(const OnnxfuseValueInfo *info) { return info->kind == ONNXFUSE_PROTO_TENSOR; }

static char *name_of(const char *argument, const char **out_path) {
    const char *equals = strchr(argument, '='), *slash = strchr(argument, '/');
    if (equals && (!slash || equals < slash)) {
        *out_path = equals + 1;
        return strndup(argument, (size_t)(equals - argument));
    }
    *out_path = argument;
    const char *base = strrchr(argument, '/'), *begin = base ? base + 1 : argument, *dot = strrchr(begin, '.');
    size_t size = dot && dot > begin ? (size_t)(dot - begin) : strlen(begin);
    if (base && base > argument && size == 5 && memcmp(begin, "model", 5) == 0) { /* FOLDER/model.onnx */
        const char *folder = base;
        while (folder > argument && folder[-1] != '/') folder--;
        if (folder < base && *folder != '.') return strndup(folder, (size_t)(base - folder));
    }
    return strndup(begin, size);
}

/* Whether the axis that requests are put together along is there: a first dim of the same name everywhere. */
static const char *why_unbatched(const Model *m) {
    const char *symbol = NULL;
    if (!m->input_count || !m->output_count) return "it has no inputs or no outputs";
    for (int i = 0; i < m->input_count + m->output_count; i++) {
        bool output = i >= m->input_count;
        const OnnxfuseValueInfo *info = output ? m->outputs[i - m->input_count] : m->inputs[i];
        if (output && info->random) return "its outputs are random";
        if (info->rank < 1 || info->dims[0] >= 0 || !info->symbols[0])
            return "the first dimension of an input or output is not variable";
        if (symbol && strcmp(symbol, info->symbols[0]) != 0)
            return "its inputs and outputs have different first dimensions";
        symbol = info->symbols[0];
    }
    return NULL;
}

void model_write_shape(Text *out, const OnnxfuseValueInfo *info) {
    text_append(out, "[", 1);
    for (int i = 0; i < info->rank; i++) {
        if (info->dims[i] >= 0)
            text_format(out, "%s%" PRId64, i ? ", " : "", info->dims[i]);
        else
            text_format(out, "%s%s", i ? ", " : "", info->symbols[i] ? info->symbols[i] : "?");
    }
    text_append(out, "]", 1);
}

static void write_tensors(Text *out, const OnnxfuseValueInfo *const *infos, int count) {
    for (int i = 0; i < count; i++) {
        text_format(out, "%s{\"name\":", i ? "," : "");
        text_json_string(out, infos[i]->name, strlen(infos[i]->name));
        text_format(out, ",\"datatype\":\"%s\",\"shape\":[", datatype_of(infos[i]->dtype)->name);
        for (int d = 0; d < infos[i]->rank; d++) text_format(out, "%s%" PRId64, d ? "," : "", infos[i]->dims[d]);
        text_append(out, "]}", 2);
    }
}

static void write_metadata(Model *m) {
    Text *out = &m->metadata;
    text_format(out, "{\"name\":");
    text_json_string(out, m->name, strlen(m->name));
    text_format(out, ",\"versions\":[\"1\"],\"platform\":\"onnx_onnxfuse\",\"inputs\":[");
    write_tensors(out, m->inputs, m->input_count);
    text_format(out, "],\"outputs\":[");
    write_tensors(out, m->outputs, m->output_count);
    text_format(out, "]}");
}

static OnnxfuseStatus unservable(const Model *m, const OnnxfuseValueInfo *info, const char *why) {
    char message[PROBLEM_SIZE];
    snprintf(message, sizeof message, "model %s cannot be served: \"%.64s\" is %s", m->name, info->name, why);
    return onnxfuse_error(ONNXFUSE_UNSUPPORTED, message);
}

static OnnxfuseStatus check_values(const Model *m) {
    for (int i = 0; i < m->input_count + m->output_count; i++) {
        bool output = i >= m->input_count;
        const OnnxfuseValueInfo *info = output ? m->outputs[i - m->input_count] : m->inputs[i];
        bool optional = !output && info->kind == ONNXFUSE_PROTO_OPTIONAL;
        if (!optional && !model_wants_tensor(info))
            return unservable(m, info, "no tensor, and the protocol has nothing else");
        if (!datatype_of(info->dtype)) return unservable(m, info, "of an element type that the protocol has not");
        if (!text_is_utf8(info->name, strlen(info->name))) return unservable(m, info, "no name in UTF-8");
    }
    return NULL;
}

static OnnxfuseStatus open_session(Model *m, const char *path, const OnnxfuseOptions *options) {
    OnnxfuseStatus status = onnxfuse_session_open(path, options, &m->session);
    if (status) return status;
    m->input_count = onnxfuse_session_input_count(m->session);
    m->output_count = onnxfuse_session_output_count(m->session);
    m->inputs = calloc((size_t)m->input_count + 1, sizeof *m->inputs);
    m->outputs = calloc((size_t)m->output_count + 1, sizeof *m->outputs);
    if (!m->inputs || !m->outputs) return onnxfuse_error(ONNXFUSE_FAULT, "out of memory");
    for (int i = 0; i < m->input_count; i++) m->inputs[i] = onnxfuse_session_input(m->session, i);
    for (int i = 0; i < m->output_count; i++) m->outputs[i] = onnxfuse_session_output(m->session, i);
    status = check_values(m);
    if (status) return status;
    m->unbatched = why_unbatched(m);
    write_metadata(m);
    return m->metadata.failed ? onnxfuse_error(ONNXFUSE_FAULT, "out of memory") : NULL;
}

OnnxfuseStatus model_open(const char *argument, const OnnxfuseOptions *options, Model *out_model) {
    const char *path;
    *out_model = (Model){.name = name_of(argument, &path)};
    OnnxfuseStatus status = NULL;
    if (!out_model->name)
        status = onnxfuse_error(ONNXFUSE_FAULT, "out of memory");
    else if (!*out_model->name || strchr(out_model->name, '/') ||
             !text_is_utf8(out_model->name, strlen(out_model->name)))
        status = onnxfuse_error(ONNXFUSE_USAGE, "a model's name must not be empty, must have no \"/\" and be UTF-8");
    else
        status = open_session(out_model, path, options);
    if (status) model_close(out_model);
    return status;
}

void model_close(Model *model) {
    onnxfuse_session_close(model->session);
    text_free(&model->metadata);
    free(model->inputs);
    free(model->outputs);
    free(model->running_shapes);
    free(model->name);
    *model = (Model){0};
}
