/* Opening the device, placing tensors. */
#include "gpu_bench.h"

#include "skip.h"

void bench_open(Bench *b) {
    b->policy = policy_default();
    b->policy.device = DEVICE_OPENCL;
    skip_without_device(opencl_device.open(&b->policy, &b->device));
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
