/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as numpy's .npy (an even first byte) or .npz, for an input of the type that the second byte says: refused with
 * a message, or a tensor that can be written, and what is written reads back as the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/utf8.h"
#include "cli/value/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(Problem *found) {
    if (found && !*problem_text(found)) abort();
    problem_free(found);
}

/* What numpy's code points, filled up with zeros, can say: UTF-8 that does not end with a zero. */
static bool is_kept(const OnnxfuseString *string) {
    const unsigned char *at = (const unsigned char *)string->data, *end = at + string->size;
    if (at < end && !end[-1]) return false;
    while (at < end)
        if (utf8_decode(&at, end) == 0xFFFD) return false;
    return true;
}

static bool same(const OnnxfuseValue *a, const OnnxfuseValue *b) {
    int rank = onnxfuse_value_rank(a);
    int64_t count = onnxfuse_value_count(a);
    OnnxfuseDType dtype = onnxfuse_value_dtype(a);
    if (onnxfuse_value_dtype(b) != dtype || onnxfuse_value_rank(b) != rank || onnxfuse_value_count(b) != count ||
        (rank && memcmp(onnxfuse_value_dims(a), onnxfuse_value_dims(b), sizeof(int64_t) * (size_t)rank)))
        return false;
    if (dtype != ONNXFUSE_STRING)
        return !count ||
               !memcmp(onnxfuse_value_data(a), onnxfuse_value_data(b), onnxfuse_dtype_size(dtype) * (size_t)count);
    const OnnxfuseString *x = onnxfuse_value_data(a), *y = onnxfuse_value_data(b);
    for (int64_t i = 0; i < count; i++)
        if (is_kept(&x[i]) && (x[i].size != y[i].size || (x[i].size && memcmp(x[i].data, y[i].data, x[i].size))))
            return false;
    return true;
}

static void write_and_read(const OnnxfuseValue *value) {
    char *written = NULL;
    size_t size = 0;
    Loaded again = {0};
    FILE *out = open_memstream(&written, &size);
    if (!out) abort();
    Problem *refused = npy_write(value, out); /* strings that are no UTF-8, and types that numpy lacks */
    fclose(out);
    if (!refused) {
        Bytes bytes = {.data = (void *)written, .size = size};
        Problem *found = npy_parse(&bytes, onnxfuse_value_dtype(value), &again);
        if (found) {
            fprintf(stderr, "what was written is not read: %s\n", problem_text(found));
            abort();
        }
        if (!same(value, again.value)) abort();
        loaded_free(&again);
    }
    check_message(refused);
    free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    Bytes bytes = {.data = malloc(size - 1), .size = size - 2}, member = {0};
    if (!bytes.data) abort();
    memcpy(bytes.data, data + 2, size - 2);
    Problem *found = NULL;
    const Bytes *npy = &bytes;
    if (data[0] & 1) {
        npz_has(&bytes, "x");
        found = npz_member(&bytes, "x", data[0] & 2, &member);
        npy = &member;
    }
    if (!found) {
        Loaded loaded = {0};
        found = npy_parse(npy, (OnnxfuseDType)(data[1] % 32), &loaded);
        if (!found) write_and_read(loaded.value);
        if (!found) loaded_free(&loaded);
    }
    check_message(found);
    free(member.data);
    free(bytes.data);
    return 0;
}
