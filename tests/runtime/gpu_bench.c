/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the device, placing tensors. */
#include "gpu_bench.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/api/devices.h"
#include "skip.h"

static GpuDriver driver; /* the device's, without its library; outlives programs that a failed test leaves */

void bench_open(Bench *b) {
    const char *name = getenv("ONNXFUSE_TEST_DEVICE");
    const DeviceTable *table = name ? NULL : &opencl_device;
    for (const DeviceTable *const *t = device_tables(); name && *t; t++)
        if (strcmp((*t)->name, name) == 0) table = *t;
    cr_assert(table && table->separate_memory, "no GPU device \"%s\"", name);
    b->policy = policy_default();
    b->policy.device = table->kind;
    Status status = table->open(&b->policy, &b->device);
    if (name)
        DONE(status);
    else
        skip_without_device(status);
    driver = *gpu_device(b->device)->driver;
    if (!getenv("ONNXFUSE_TEST_LIBRARY")) driver.gemm = NULL;
    gpu_device(b->device)->driver = &driver;
    DONE(gpu_stream_create(b->device, &b->stream));
    b->limits = *gpu_device(b->device)->limits;
}

void bench_close(Bench *b) {
    gpu_stream_destroy(b->device, b->stream);
    gpu_close(b->device);
    gpu_program_trim();
}

Placed place(Bench *b, Arena *arena, const Tensor *t, bool filled, size_t lead) {
    Placed p = {.bytes = tensor_bytes(t) + 2 * GUARD, .tensor = *t};
    char *image = arena_alloc(arena, p.bytes);
    void *block;
    memset(image, GUARD_BYTE, p.bytes);
    if (filled && tensor_bytes(t)) memcpy(image + GUARD + lead, t->data, tensor_bytes(t));
    DONE(gpu_allocate(b->device, b->stream, NULL, p.bytes, &block));
    DONE(gpu_copy(b->device, b->stream, COPY_IN, block, image, p.bytes));
    p.block = block;
    p.tensor.data = p.block + GUARD + lead;
    return p;
}

bool unchanged(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != GUARD_BYTE) return false;
    return true;
}
