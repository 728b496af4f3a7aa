/* SPDX-License-Identifier: Apache-2.0 */
/* An inference request out of its bytes: JSON, behind which binary tensor data may follow. Relies on nothing of HTTP
 * and nothing of the model; a tensor's elements stay where they are in the body wherever that is possible. */
#ifndef SERVE_REQUEST_H
#define SERVE_REQUEST_H

#include "tensor.h"

enum {
    REQUEST_ALIGNMENT = 64,         /* of the binary part, for which a body is best placed so */
    REQUEST_LARGEST_JSON = 1 << 20, /* bytes of JSON beside the elements of tensors */
    REQUEST_MOST_TENSORS = 1024,
};

typedef struct RequestedOutput {
    const char *name;
    bool binary;
} RequestedOutput;

typedef struct Request {
    const char *id; /* NULL: none */
    Tensor *inputs;
    int input_count;
    RequestedOutput *outputs; /* in the order of the response */
    int output_count;         /* 0: all outputs of the model */
    bool binary_outputs;      /* unless an output says otherwise */
    double timeout_ms;        /* 0: none */
    struct cJSON *json;       /* owner of the names */
} Request;

/* Whether the model takes an input of this name and datatype, of which nothing else is known yet; false: *problem says
 * what it takes. */
typedef struct RequestCheck {
    bool (*datatype)(const void *context, const char *input, const char *datatype, Problem *problem);
    const void *context;
} RequestCheck;

/* body[size + 1]; body[size] is 0. The first json_size bytes are JSON, the rest is binary data. The body is changed
 * (strings are decoded where they stand) and must live as long as the request. On failure the request is empty. */
bool request_parse(char *body, size_t size, size_t json_size, RequestCheck check, Request *out_request,
                   Problem *problem);
void request_free(Request *request);

#endif
