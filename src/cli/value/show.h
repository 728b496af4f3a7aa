/* SPDX-License-Identifier: Apache-2.0 */
/* Values for a person to read. */
#ifndef ONNXFUSE_CLI_SHOW_H
#define ONNXFUSE_CLI_SHOW_H

#include <cjson/cJSON.h>
#include "cli/value/files.h"

enum { BEST_COUNT = 3 };

typedef struct Labels {
    Bytes text;
    char **lines; /* into text */
    int count;
} Labels;

Problem *labels_read(const char *path, Labels *out_labels);
void labels_free(Labels *labels);

typedef struct Best {
    int64_t index;
    double score;
} Best;

/* Whether the tensor is one score a label: N numbers along its last axis; the rows are all before it. */
bool labels_fit(const Labels *labels, const OnnxfuseValue *tensor, int64_t *out_rows);
/* The highest scores of a row, best first; how many. */
int labels_best(const Labels *labels, const OnnxfuseValue *tensor, int64_t row, Best best[BEST_COUNT]);
/* Whether the row is probabilities: none below 0 or above 1, their sum 1. */
bool labels_are_shares(const Labels *labels, const OnnxfuseValue *tensor, int64_t row);

void print_element(FILE *out, const OnnxfuseValue *tensor, int64_t index);
void print_shape(FILE *out, const OnnxfuseValue *tensor); /* "[1, 3]" */
/* The first few elements, and of many numbers their least, mean and largest. */
void print_preview(FILE *out, const OnnxfuseValue *tensor);
/* "{"cat": 0.25, "dog": 0.75}", the first few entries of a map. */
void print_map(FILE *out, const OnnxfuseValue *map);
cJSON *json_shape(const OnnxfuseValue *tensor);
cJSON *json_preview(const OnnxfuseValue *tensor);
double json_number(const cJSON *object, const char *name); /* 0: the object has no such number */
/* A time or size to six decimals, which is more than a clock knows. */
void json_add_measure(cJSON *object, const char *name, double value);
/* The object as the last line of standard output; frees it. */
void print_json(cJSON *object);
/* A report that the library made, which is freed: as it is for --json, else through `print`; output: the file that it
 * is about. */
Problem *print_report_of(char *text, bool json, void (*print)(const cJSON *report, const char *output),
                         const char *output);

#endif
