/* SPDX-License-Identifier: Apache-2.0 */
/* Element types that anchors compute in, conversions to and from them, and strided copies; all over the pool's threads.
 */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CPU_WORK_H
#define ONNXFUSE_RUNTIME_DEVICE_CPU_WORK_H

#include "base/pool.h"
#include "graph/tensor.h"
#include "runtime/device/cpu/scratch.h"

/* DT_F64 for itself, DT_F32 for all other floats, DT_U64 for integers of 8 bytes, DT_U32 for smaller ones (arithmetic
 * wraps, so signs do not matter). */
bool is_work(DType dtype); /* in memory, it is its work type */
/* Multiply-adds that take as long as moving an element: at 116 G a second and 44 GB/s (a Zen 4 of 2 cores) 21. */
enum { MOVING_WORK = 21 };
void work_widen(DType from, const void *data, void *out, int64_t count, Pool *pool);
void work_narrow(DType to, const void *work, void *out, int64_t count, Pool *pool);
/* Of data that may stand unaligned in a mapped file. */
static inline float float_at(const void *data, int64_t index) {
    float value;
    memcpy(&value, (const char *)data + index * (int64_t)sizeof value, sizeof value);
    return value;
}
/* data itself, or widened in scratch memory with `slack` more elements (of any value) behind it. */
Status work_take(DType dtype, const void *data, int64_t count, int64_t slack, Pool *pool, Scratch *scratch,
                 const void **out_data);

/* out[i0, i1, ...] dense = in[i0 * strides[0] + i1 * strides[1] + ...]; strides in elements of `size` 4 or 8 bytes. */
void strided_copy(size_t size, int rank, const int64_t *dims, const int64_t *strides, const void *in, void *out,
                  Pool *pool);

#endif
