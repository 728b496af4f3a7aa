/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded inputs of a model, one set after the other: folders test_data_set_N with input_J.pb, archives .npz, or a folder of
 * NAME.npy. */
#ifndef ONNXFUSE_CLI_INPUT_SAMPLES_H
#define ONNXFUSE_CLI_INPUT_SAMPLES_H

#include "cli/value/npy.h"

typedef struct Samples {
    char **sets; /* [set_count] paths, in order */
    int set_count, set;
    Loaded *arrays; /* [count] of the present set */
    int count;
    OnnxfuseValue **slices; /* [count] of the present part, where the set has several */
    int64_t parts, part;    /* of the present set; parts 0: none is read yet */
} Samples;

/* path: a folder of such folders or archives, or one archive. */
Problem *samples_open(const char *path, Samples *out_samples);
/* The next inputs, from the first ones again for number 0. An array whose first axis is a multiple of what the model fixes it to holds
 * several. *out_there: whether there are any more. */
Problem *samples_next(Samples *samples, const OnnxfuseSession *session, int number, const OnnxfuseValue **out_inputs,
                      bool *out_there);
void samples_free(Samples *samples);

#endif
