/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory from the device's pool, and copies. A copy from or to the host goes through a ring of pinned slots that
 * belongs to the stream: the host's memory is free as soon as the call returns, and the driver never has to wait for
 * the stream before it reads pageable memory. Large copies pass in pieces, so that one slot is filled or emptied while
 * the device works on the others. What comes from the device is moved to its place when the slot is needed again or the
 * stream is waited for. */
#include "runtime/device/cuda/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* PCIe needs pieces of about a megabyte for its full rate; four of two fill and empty without gaps. */
enum { SLOT_BYTES = 2 << 20, SLOT_ALIGNMENT = 256 };

/* --- allocation --- */

Status cuda_pool_open(CudaContext *c) {
    if (!c->has_pools) return NULL;
    CuPoolProps props = {
        .allocation_type = CU_ALLOCATION_PINNED, .location_type = CU_LOCATION_DEVICE, .location_id = c->device};
    uint64_t keep = UINT64_MAX; /* the next run takes it without asking the system */
    TRY(cuda_check(c, c->api->pool_create(&c->pool, &props), "the GPU gives no memory pool"));
    return cuda_check(c, c->api->pool_set(c->pool, CU_POOL_RELEASE_THRESHOLD, &keep), "the memory pool cannot be used");
}

void cuda_pool_close(CudaContext *c) {
    if (c->pool) c->api->pool_destroy(c->pool);
    c->pool = NULL;
}

Status cuda_memory_trim(CudaContext *c) {
    TRY(cuda_synchronize(c, &c->own)); /* what was released on it is free now */
    cuda_staging_free(c, &c->own);
    return c->pool ? cuda_check(c, c->api->pool_trim(c->pool, 0), "the memory pool gives nothing back") : NULL;
}

static CuResult try_allocate(CudaContext *c, CudaStream *s, size_t bytes, CuDevicePointer *out_data) {
    return c->pool ? c->api->allocate_from(out_data, bytes, c->pool, s->handle) : c->api->allocate(out_data, bytes);
}

size_t cuda_free_memory(CudaContext *c) {
    size_t free_bytes = 0, total = 0;
    uint64_t reserved = 0, used = 0;
    if (c->api->memory_info(&free_bytes, &total)) return 0;
    /* What the pool holds and nobody uses can be had, too. */
    if (c->pool && !c->api->pool_get(c->pool, CU_POOL_RESERVED_CURRENT, &reserved) &&
        !c->api->pool_get(c->pool, CU_POOL_USED_CURRENT, &used) && reserved > used)
        free_bytes += (size_t)(reserved - used);
    return free_bytes;
}

Status cuda_allocate(CudaContext *c, CudaStream *s, size_t bytes, CuDevicePointer *out_data) {
    if (s->recording) return status_error(STATUS_FAULT, "CUDA: memory cannot be allocated in a recording");
    if (!bytes) bytes = 1;
    CuResult result = try_allocate(c, s, bytes, out_data);
    if (result == CU_OUT_OF_MEMORY && c->pool) {
        /* The pool may hold pieces that fit nobody; it can return them once their last work is known to be done. */
        result = c->api->stream_synchronize(s->handle);
        if (!result) result = c->api->pool_trim(c->pool, 0);
        if (!result) result = try_allocate(c, s, bytes, out_data);
    }
    if (result == CU_OUT_OF_MEMORY)
        return status_error(STATUS_FAULT, "out of GPU memory: %zu MiB asked, %zu MiB free", (bytes + 0xfffff) >> 20,
                            cuda_free_memory(c) >> 20);
    return cuda_check(c, result, "cannot allocate %zu bytes", bytes);
}

void cuda_release(CudaContext *c, CudaStream *s, CuDevicePointer data) {
    if (!data) return;
    CuResult result;
    if (c->pool) {
        result = c->api->release_async(data, s->handle);
    } else {
        result = c->api->stream_synchronize(s->handle);
        CuResult released = c->api->release(data);
        if (!result) result = released;
    }
    Status status = cuda_check(c, result, "cannot release memory");
    if (status) LOG(1, "%s", status_message(status));
    status_free(status);
}

/* --- the ring of pinned slots --- */

static void deliver(CudaStagingSlot *slot) {
    for (int i = 0; i < slot->arrival_count; i++)
        memcpy(slot->arrivals[i].to, slot->arrivals[i].from, slot->arrivals[i].bytes);
}

static void reset(CudaStagingSlot *slot) {
    slot->arrival_count = 0;
    slot->used = 0;
    slot->in_flight = false;
}

static Status prepare_slot(CudaContext *c, CudaStagingSlot *slot) {
    if (!slot->event) {
        CuEvent event;
        TRY(cuda_check(c, c->api->event_create(&event, CU_EVENT_WITHOUT_TIMING), "cannot create an event"));
        slot->event = event;
    }
    if (!slot->pinned) {
        void *pinned;
        TRY(cuda_check(c, c->api->host_allocate(&pinned, SLOT_BYTES, 0), "cannot allocate pinned memory"));
        slot->pinned = pinned;
    }
    if (slot->in_flight) {
        TRY(cuda_check(c, c->api->event_synchronize(slot->event), "a copy failed"));
        deliver(slot);
        reset(slot);
    }
    return NULL;
}

/* A slot with room. */
static Status slot_with_room(CudaContext *c, CudaStream *s, CudaStagingSlot **out_slot) {
    CudaStagingSlot *slot = &s->slots[s->slot];
    if (slot->used == SLOT_BYTES) {
        if (!slot->in_flight)
            TRY(cuda_check(c, c->api->event_record(slot->event, s->handle), "cannot record an event"));
        slot->in_flight = true;
        int next = (s->slot + 1) % CUDA_STAGING_SLOTS;
        TRY(prepare_slot(c, &s->slots[next]));
        s->slot = next;
        slot = &s->slots[next];
    } else {
        TRY(prepare_slot(c, slot));
    }
    *out_slot = slot;
    return NULL;
}

static void take(CudaStagingSlot *slot, size_t bytes) {
    slot->used += (bytes + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT; /* SLOT_BYTES is a multiple */
}

static bool expect_arrivals(CudaStagingSlot *slot) {
    if (slot->arrival_count < slot->arrival_capacity) return true;
    int capacity = slot->arrival_capacity ? slot->arrival_capacity * 2 : 16;
    CudaArrival *grown = realloc(slot->arrivals, (size_t)capacity * sizeof *grown);
    if (!grown) return false;
    slot->arrivals = grown;
    slot->arrival_capacity = capacity;
    return true;
}

static Status piece_in(CudaContext *c, CudaStream *s, CudaStagingSlot *slot, CuDevicePointer to, const void *from,
                       size_t bytes) {
    char *pinned = slot->pinned + slot->used;
    memcpy(pinned, from, bytes);
    take(slot, bytes);
    return cuda_check(c, c->api->copy_in(to, pinned, bytes, s->handle), "cannot copy %zu bytes to the GPU", bytes);
}

static Status piece_out(CudaContext *c, CudaStream *s, CudaStagingSlot *slot, void *to, CuDevicePointer from,
                        size_t bytes) {
    char *pinned = slot->pinned + slot->used;
    if (!expect_arrivals(slot)) return status_out_of_memory();
    take(slot, bytes);
    TRY(cuda_check(c, c->api->copy_out(pinned, from, bytes, s->handle), "cannot copy %zu bytes from the GPU", bytes));
    slot->arrivals[slot->arrival_count++] = (CudaArrival){to, pinned, bytes};
    return NULL;
}

static Status copy_staged(CudaContext *c, CudaStream *s, bool in, void *to, const void *from, size_t bytes) {
    for (size_t at = 0, piece; at < bytes; at += piece) {
        CudaStagingSlot *slot;
        TRY(slot_with_room(c, s, &slot));
        piece = bytes - at;
        if (piece > SLOT_BYTES - slot->used) piece = SLOT_BYTES - slot->used;
        if (in)
            TRY(piece_in(c, s, slot, (CuDevicePointer)(uintptr_t)to + at, (const char *)from + at, piece));
        else
            TRY(piece_out(c, s, slot, (char *)to + at, (CuDevicePointer)(uintptr_t)from + at, piece));
    }
    return NULL;
}

Status cuda_copy(CudaContext *c, CudaStream *s, CopyKind kind, void *to, const void *from, size_t bytes) {
    if (!bytes) return NULL;
    if (kind == COPY_WITHIN)
        return cuda_check(
            c, c->api->copy_within((CuDevicePointer)(uintptr_t)to, (CuDevicePointer)(uintptr_t)from, bytes, s->handle),
            "cannot copy %zu bytes inside the GPU", bytes);
    if (s->recording) return status_error(STATUS_FAULT, "CUDA: a copy from or to the host cannot be recorded");
    return copy_staged(c, s, kind == COPY_IN, to, from, bytes);
}

/* The oldest copies first, so that the last of several to one place stays. */
Status cuda_synchronize(CudaContext *c, CudaStream *s) {
    if (s->recording) return status_error(STATUS_FAULT, "CUDA: a recording cannot be waited for");
    CuResult result = c->api->stream_synchronize(s->handle);
    for (int i = 1; i <= CUDA_STAGING_SLOTS; i++) {
        CudaStagingSlot *slot = &s->slots[(s->slot + i) % CUDA_STAGING_SLOTS];
        if (!result) deliver(slot);
        reset(slot);
    }
    s->slot = 0;
    return cuda_check(c, result, "work on the GPU failed");
}

void cuda_staging_free(CudaContext *c, CudaStream *s) {
    for (int i = 0; i < CUDA_STAGING_SLOTS; i++) {
        CudaStagingSlot *slot = &s->slots[i];
        if (slot->event) c->api->event_destroy(slot->event);
        if (slot->pinned) c->api->host_release(slot->pinned);
        free(slot->arrivals);
        *slot = (CudaStagingSlot){0};
    }
    s->slot = 0;
}
