/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the length of one anchor's run. Blocks come from a small process-wide store, so that a run does not pay
 * for fresh pages each time. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_SCRATCH_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_SCRATCH_H

#include <stddef.h>
#include "base/status.h"

enum { MAX_SCRATCH = 32 };

typedef struct Scratch {
    void *blocks[MAX_SCRATCH];
    int count;
    /* What is left of the last block taken from the store: most of what a run asks for is small. */
    char *rest;
    size_t rest_bytes;
} Scratch;

/* 64-byte aligned, not zeroed. */
Status scratch_take(Scratch *scratch, size_t bytes, void **out_data);
void scratch_release(Scratch *scratch);
/* Frees what is kept. */
void scratch_trim(void);

#endif
