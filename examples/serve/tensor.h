/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as the protocol has them: datatypes by name, and elements written in JSON, in both directions. */
#ifndef SERVE_TENSOR_H
#define SERVE_TENSOR_H

#include <onnxfuse.h>
#include "text.h"

typedef struct Tensor {
    const char *name;
    OnnxfuseDType dtype;
    int rank;
    int64_t dims[ONNXFUSE_MAX_RANK];
    int64_t count; /* of elements */
    void *data;    /* [count], OnnxfuseString for BYTES; strings point into the request's body */
    size_t bytes;
    bool owned; /* data is the tensor's own, from malloc; else it lies in the request's body */
} Tensor;

enum { PROBLEM_SIZE = 320 };
/* What is wrong with a request, in the client's words. */
typedef struct Problem {
    int status; /* HTTP's: 400, or 500 when it is not the client's fault */
    char text[PROBLEM_SIZE];
} Problem;
bool problem_memory(Problem *problem); /* 500; returns false, for `return` */
/* 400 */
bool problem_say(Problem *problem, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef struct DatatypeInfo {
    const char *name; /* "FP32" */
    OnnxfuseDType dtype;
    size_t size;  /* bytes of an element in memory */
    size_t align; /* of an element in memory */
} DatatypeInfo;
const DatatypeInfo *datatype_of(OnnxfuseDType dtype);   /* NULL: the protocol has no such type */
const DatatypeInfo *datatype_named(const char *name);   /* NULL: unknown */
bool tensor_set_dims(Tensor *tensor, Problem *problem); /* count and bytes, from dtype, rank and dims */

/* Reads the elements of a tensor whose type and dims are set out of a JSON array, flat or nested as its dims are:
 * json[size], which begins with '[' and ends with ']'. Strings are decoded where they stand. Allocates tensor->data. */
bool tensor_read_json(Tensor *tensor, char *json, size_t size, Problem *problem);
/* A flat JSON array of `count` elements. FP16 and BF16 are written as numbers. False: an element cannot stand in JSON.
 */
bool tensor_write_json(Text *out, OnnxfuseDType dtype, const void *data, int64_t count, Problem *problem);
/* BYTES as binary tensor data: the length of each element in 4 bytes, little-endian, and the element. */
bool tensor_read_strings(Tensor *tensor, const char *bytes, size_t size, Problem *problem); /* allocates tensor->data */
bool tensor_write_strings(Text *out, const OnnxfuseString *strings, int64_t count, Problem *problem);

#endif
