/* SPDX-License-Identifier: Apache-2.0 */
/* Examples to train on: an array for each input, an example a row of its first axis; and batches of them in an order that depends on the seed and
 * the step alone, so that a training that goes on sees what one that was never interrupted would. */
#ifndef ONNXFUSE_CLI_INPUT_DATASET_H
#define ONNXFUSE_CLI_INPUT_DATASET_H

#include "cli/value/npy.h"

typedef struct Dataset {
    Loaded *arrays;               /* [count] all examples */
    Loaded *batch;                /* [count] those of the present batch */
    const OnnxfuseValue **inputs; /* [count] the batch's values */
    int count;
    int64_t examples, batch_size;
    int64_t *order; /* [examples] of the present epoch */
    int64_t epoch;  /* that `order` is of; -1: none yet */
    uint64_t seed;
} Dataset;

/* path: a .npz with an array NAME for each of the training's inputs, or a folder with NAME.npy. batch_size 0: the models' own, where it has one,
 * else 32, or all there are. */
Problem *dataset_read(const OnnxfuseTraining *training, const char *path, int64_t batch_size, uint64_t seed,
                      Dataset *out_dataset);
/* That all labels of a loss by classes are 0 or more, or -100, which does not count. labels: their input's name; no error where there is none. */
Problem *dataset_check_labels(const Dataset *dataset, const OnnxfuseTraining *training, const char *labels);
void dataset_free(Dataset *dataset);
/* Batch `batch` (from 0): of each epoch's shuffled examples the next ones; what is left over at its end is not seen in that
 * epoch. */
void dataset_batch(Dataset *dataset, int64_t batch);

#endif
