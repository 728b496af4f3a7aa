/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as numpy's files: .npy (format versions 1 to 3) and .npz (a zip archive of them). */
#ifndef ONNXFUSE_CLI_INPUT_NPY_H
#define ONNXFUSE_CLI_INPUT_NPY_H

#include "cli/value/files.h"

/* A value with the memory it borrows. */
typedef struct Loaded {
    OnnxfuseValue *value;
    void *data;
    char *text; /* what its strings point into */
} Loaded;

void loaded_free(Loaded *loaded);
/* A tensor over new memory of dims; strings start out empty. */
Problem *loaded_tensor(OnnxfuseDType dtype, int rank, const int64_t *dims, Loaded *out_loaded);

/* declared: the model's type, which says what numpy's plain bytes (descr "V1", "V2": bfloat16 and smaller) are. */
Problem *npy_parse(const Bytes *bytes, OnnxfuseDType declared, Loaded *out_loaded);
Problem *npy_write(const OnnxfuseValue *tensor, FILE *out);

/* The array `name` of an archive, as the bytes of its .npy. With `only` any name is right when there is one array. */
Problem *npz_member(const Bytes *archive, const char *name, bool only, Bytes *out_npy);
bool npz_has(const Bytes *archive, const char *name);

#endif
