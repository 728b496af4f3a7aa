/* SPDX-License-Identifier: Apache-2.0 */
/* Printing tensors: shape, a few elements, the best labels. */
#include "cli/value/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PREVIEW_ELEMENTS = 6, PREVIEW_STRING = 40, SUMMARY_FROM = 12 };

/* --- labels --- */
Problem *labels_read(const char *path, Labels *out_labels) {
    Labels labels = {0};
    TRY(file_read(path, &labels.text));
    char *at = (char *)labels.text.data;
    for (size_t i = 0; i < labels.text.size; i++) labels.count += at[i] == '\n';
    labels.lines = calloc((size_t)labels.count + 1, sizeof *labels.lines);
    if (!labels.lines) {
        labels_free(&labels);
        return problem_out_of_memory();
    }
    labels.count = 0;
    for (char *end = at + labels.text.size; at < end;) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end; /* where file_read put a zero byte */
        if (stop > at && stop[-1] == '\r') stop[-1] = 0;
        *stop = 0;
        labels.lines[labels.count++] = at;
        at = stop + 1;
    }
    *out_labels = labels;
    return NULL;
}

void labels_free(Labels *labels) {
    free(labels->lines);
    free(labels->text.data);
    *labels = (Labels){0};
}

bool labels_fit(const Labels *labels, const OnnxfuseValue *tensor, int64_t *out_rows) {
    if (onnxfuse_value_kind(tensor) != ONNXFUSE_TENSOR || !labels->count) return false;
    int rank = onnxfuse_value_rank(tensor);
    const int64_t *dims = onnxfuse_value_dims(tensor);
    OnnxfuseDType dtype = onnxfuse_value_dtype(tensor);
    bool is_number = dtype != ONNXFUSE_STRING && dtype != ONNXFUSE_COMPLEX64 && dtype != ONNXFUSE_COMPLEX128;
    if (!is_number || !rank || dims[rank - 1] != labels->count) return false;
    *out_rows = onnxfuse_value_count(tensor) / labels->count;
    return true;
}

int labels_best(const Labels *labels, const OnnxfuseValue *tensor, int64_t row, Best best[BEST_COUNT]) {
    int count = 0;
    for (int64_t i = 0; i < labels->count; i++) {
        double score = onnxfuse_value_element(tensor, row * labels->count + i);
        if (isnan(score)) continue;
        int place = count;
        while (place > 0 && best[place - 1].score < score) place--;
        if (place == BEST_COUNT) continue;
        if (count < BEST_COUNT) count++;
        memmove(best + place + 1, best + place, sizeof *best * (size_t)(count - 1 - place));
        best[place] = (Best){i, score};
    }
    return count;
}

bool labels_are_shares(const Labels *labels, const OnnxfuseValue *tensor, int64_t row) {
    double sum = 0;
    for (int64_t i = 0; i < labels->count; i++) {
        double score = onnxfuse_value_element(tensor, row * labels->count + i);
        if (!(score >= 0 && score <= 1)) return false;
        sum += score;
    }
    return fabs(sum - 1) < 0.01;
}

/* --- elements
 * ---------------------------------------------------------------------------------------------------------- */
static void print_string(FILE *out, const OnnxfuseString *string) {
    bool cut = string->size > PREVIEW_STRING;
    fputc('"', out);
    print_safe_n(out, string->data, cut ? PREVIEW_STRING : string->size);
    fputs(cut ? "...\"" : "\"", out);
}

void print_element(FILE *out, const OnnxfuseValue *tensor, int64_t index) {
    const void *data = onnxfuse_value_data(tensor);
    switch (onnxfuse_value_dtype(tensor)) {
    case ONNXFUSE_STRING: print_string(out, (const OnnxfuseString *)data + index); break;
    case ONNXFUSE_BOOL: fputs(((const uint8_t *)data)[index] ? "true" : "false", out); break;
    case ONNXFUSE_INT64: fprintf(out, "%lld", (long long)((const int64_t *)data)[index]); break;
    case ONNXFUSE_UINT64: fprintf(out, "%llu", (unsigned long long)((const uint64_t *)data)[index]); break;
    case ONNXFUSE_FLOAT64: fprintf(out, "%.10g", ((const double *)data)[index]); break;
    case ONNXFUSE_COMPLEX64:
        fprintf(out, "%.6g%+.6gi", ((const float *)data)[2 * index], ((const float *)data)[2 * index + 1]);
        break;
    case ONNXFUSE_COMPLEX128:
        fprintf(out, "%.10g%+.10gi", ((const double *)data)[2 * index], ((const double *)data)[2 * index + 1]);
        break;
    default: fprintf(out, "%.7g", onnxfuse_value_element(tensor, index)); break;
    }
}

void print_shape(FILE *out, const OnnxfuseValue *tensor) {
    fputc('[', out);
    for (int d = 0; d < onnxfuse_value_rank(tensor); d++)
        fprintf(out, "%s%lld", d ? ", " : "", (long long)onnxfuse_value_dims(tensor)[d]);
    fputc(']', out);
}

static bool is_summed(OnnxfuseDType dtype) {
    return dtype != ONNXFUSE_STRING && dtype != ONNXFUSE_BOOL && dtype != ONNXFUSE_COMPLEX64 &&
           dtype != ONNXFUSE_COMPLEX128;
}

void print_preview(FILE *out, const OnnxfuseValue *tensor) {
    int64_t count = onnxfuse_value_count(tensor);
    for (int64_t i = 0; i < count && i < PREVIEW_ELEMENTS; i++) {
        if (i) fputc(' ', out);
        print_element(out, tensor, i);
    }
    if (count > PREVIEW_ELEMENTS) fputs(" ...", out);
    if (count < SUMMARY_FROM || !is_summed(onnxfuse_value_dtype(tensor))) return;
    double low = INFINITY, high = -INFINITY, sum = 0;
    int64_t nans = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = onnxfuse_value_element(tensor, i);
        nans += isnan(x);
        low = fmin(low, x);
        high = fmax(high, x);
        sum += isnan(x) ? 0 : x;
    }
    if (nans < count) fprintf(out, "  (least %.5g, mean %.5g, largest %.5g)", low, sum / (double)(count - nans), high);
    if (nans) fprintf(out, "  (%lld not a number)", (long long)nans);
}

void print_map(FILE *out, const OnnxfuseValue *map) {
    const OnnxfuseValue *keys = onnxfuse_value_keys(map), *values = onnxfuse_value_values(map);
    int64_t count = keys && values ? onnxfuse_value_count(map) : 0;
    fputc('{', out);
    for (int64_t i = 0; i < count && i < PREVIEW_ELEMENTS; i++) {
        if (i) fputs(", ", out);
        print_element(out, keys, i);
        fputs(": ", out);
        print_element(out, values, i);
    }
    fputs(count > PREVIEW_ELEMENTS ? ", ...}" : "}", out);
}

/* --- JSON
 * ------------------------------------------------------------------------------------------------------------------ */
cJSON *json_shape(const OnnxfuseValue *tensor) {
    cJSON *shape = cJSON_CreateArray();
    for (int d = 0; d < onnxfuse_value_rank(tensor); d++)
        cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)onnxfuse_value_dims(tensor)[d]));
    return shape;
}

/* As numbers where JSON has them, else as the text that a person sees. */
static cJSON *json_element(const OnnxfuseValue *tensor, int64_t index) {
    OnnxfuseDType dtype = onnxfuse_value_dtype(tensor);
    if (dtype == ONNXFUSE_BOOL) return cJSON_CreateBool(onnxfuse_value_element(tensor, index) != 0);
    if (is_summed(dtype)) return cJSON_CreateNumber(onnxfuse_value_element(tensor, index));
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out) return cJSON_CreateNull();
    print_element(out, tensor, index);
    fclose(out);
    cJSON *made = cJSON_CreateString(text);
    free(text);
    return made;
}

cJSON *json_preview(const OnnxfuseValue *tensor) {
    cJSON *preview = cJSON_CreateArray();
    for (int64_t i = 0; i < onnxfuse_value_count(tensor) && i < PREVIEW_ELEMENTS; i++)
        cJSON_AddItemToArray(preview, json_element(tensor, i));
    return preview;
}

double json_number(const cJSON *object, const char *name) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return item ? item->valuedouble : 0;
}

void json_add_measure(cJSON *object, const char *name, double value) {
    char text[64];
    snprintf(text, sizeof text, "%.6f", value);
    cJSON_AddRawToObject(object, name, text);
}

void print_json(cJSON *object) {
    char *text = cJSON_PrintUnformatted(object);
    if (text) puts(text);
    cJSON_free(text);
    cJSON_Delete(object);
}

/* Of an earlier model of this name, mostly. */
static void print_unread_data(const cJSON *report, const char *output) {
    const char *data = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(report, "unread_data"));
    if (!data) return;
    print_safe(stdout, data);
    fputs(" is still there, but not read by ", stdout);
    print_safe(stdout, output);
    putchar('\n');
}

Problem *print_report_of(char *text, bool json, void (*print)(const cJSON *report, const char *output),
                         const char *output) {
    cJSON *report = cJSON_Parse(text);
    onnxfuse_free(text);
    if (!report) return problem_out_of_memory();
    if (json) {
        print_json(report);
        return NULL;
    }
    print(report, output);
    print_unread_data(report, output);
    cJSON_Delete(report);
    return NULL;
}
