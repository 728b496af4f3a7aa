/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an inference request (examples/serve/request.h): the first two say how much of the rest is JSON. What is
 * taken has the elements that its shapes say, all of them readable, and can be written as JSON. */
#include "request.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads every byte, for AddressSanitizer to look at. */
static void touch(const void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) (void)((const volatile uint8_t *)bytes)[i];
}

static void check_tensor(const Tensor *t) {
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->dims[i];
    if (count != t->count || (uintptr_t)t->data % datatype_of(t->dtype)->align) abort();
    touch(t->data, t->bytes);
    if (t->dtype == ONNXFUSE_STRING)
        for (int64_t i = 0; i < count; i++)
            touch(((const OnnxfuseString *)t->data)[i].data, ((const OnnxfuseString *)t->data)[i].size);
    Text text = {0};
    Problem problem;
    bool written = tensor_write_json(&text, t->dtype, t->data, t->count, &problem);
    if (written && !text_is_utf8(text.data, text.size)) abort();
    if (!written && !problem.text[0]) abort();
    text_free(&text);
}

static bool takes_all(const void *context, const char *input, const char *datatype, Problem *problem) {
    (void)context, (void)problem;
    touch(input, strlen(input));
    touch(datatype, strlen(datatype));
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t json = data[0] | (size_t)data[1] << 8;
    size -= 2;
    if (json > size) json = size;
    char *body = malloc(size + 1);
    if (!body) return 0;
    memcpy(body, data + 2, size);
    body[size] = 0;
    Request request;
    Problem problem = {0, ""};
    if (request_parse(body, size, json, (RequestCheck){takes_all, NULL}, &request, &problem)) {
        for (int i = 0; i < request.input_count; i++) check_tensor(&request.inputs[i]);
        for (int i = 0; i < request.output_count; i++) (void)strlen(request.outputs[i].name);
    } else if (!problem.status || !problem.text[0] || request.json || request.inputs) {
        abort();
    }
    request_free(&request);
    free(body);
    return 0;
}
