/* SPDX-License-Identifier: Apache-2.0 */
/* Division by a size that is known at run time. */
#ifndef ONNXFUSE_CODEGEN_GPU_REGION_DIVIDE_H
#define ONNXFUSE_CODEGEN_GPU_REGION_DIVIDE_H

#include <stdint.h>

/* By a multiplication: x / d for x < 2^31 as (mulhi(x, m) + x) >> s, s = ceil(log2 d), m = floor(2^32 (2^s - d) / d) + 1
 * (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994). The size is followed by
 * m | s << 32 among a kernel's arguments. */
#define GPU_DIVIDE_SOURCE                                                                                              \
    "FUNCTION u32 divide(u32 x, i64 magic) { return (MUL_HIGH_u32(x, (u32)magic) + x) >> (u32)(magic >> 32); }\n"

/* Where the multiplier is not at hand, or numbers are larger: in 32 bits where these suffice, which is most of the time and much faster. */
#define GPU_QUOTIENT_SOURCE                                                                                            \
    "FUNCTION i64 quotient(i64 a, i64 b) { return (u64)(a | b) >> 32 ? a / b : (i64)((u32)a / (u32)b); }\n"

/* size: 0 to 2^31; of 0 the result is not used. */
static inline int64_t gpu_divide_magic(int64_t size) {
    int64_t shift = 0;
    if (size < 1) return 0;
    while (INT64_C(1) << shift < size) shift++;
    uint64_t excess = (uint64_t)((INT64_C(1) << shift) - size);
    return (int64_t)((excess << 32) / (uint64_t)size + 1) | shift << 32;
}

#endif
