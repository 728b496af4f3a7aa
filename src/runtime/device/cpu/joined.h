/* SPDX-License-Identifier: Apache-2.0 */
/* Long sums of few rows and columns, which do not make slices enough for many threads: their depth is cut into parts, too,
 * each summed up by itself, and what comes last to a block of the result adds the parts up, in their order. How many parts
 * there are depends on sizes alone, so results do not depend on the number of threads. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_JOINED_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_JOINED_H

#include <stdatomic.h>
#include "runtime/device/cpu/product.h"

typedef struct Joined {
    const Product *product;
    int64_t parts, joint; /* 1: not cut; depths of a part (the last may have fewer), whole blocks of the weight */
    /* Where parts are slices of their own; else their sums are added to the result, one by one: */
    char *sums;           /* [parts][rows][columns] in the work type; rows as blocks have them */
    _Atomic int *arrived; /* [chunks of rows][panels]: parts that are there */
} Joined;

/* products: how many are run together. */
Joined joined_of(const Product *product, int64_t products);
/* Where the sums of a row begin, and of the rows behind it. */
void *joined_row(const Joined *joined, int64_t part, int64_t row);
/* Adds up the parts of rows [first_row, first_row + count) of the panel and finishes them, to results [count]. */
void joined_finish(const Joined *joined, const Panel *panel, int64_t first_row, int count, void *const *results);

#endif
