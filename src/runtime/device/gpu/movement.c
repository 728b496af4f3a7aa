/* SPDX-License-Identifier: Apache-2.0 */
/* Primitives outside regions on a GPU: the programs of codegen/gpu/movement/movement.h and their launches. */
#include <stdatomic.h>
#include <stdlib.h>

#include "codegen/gpu/movement/movement.h"
#include "runtime/device/gpu/gpu.h"

/* The programs that a device has used so far; it holds them until it is closed. */
typedef struct Held {
    struct Held *next;
    GpuMoveProgram key;
    GpuProgram *program;
} Held;
struct GpuMovement {
    _Atomic(Held *) held; /* only grows: what is found stays until the device is closed */
};

Status gpu_movement_create(struct GpuMovement **out_movement) {
    struct GpuMovement *movement = calloc(1, sizeof *movement);
    if (!movement) return status_out_of_memory();
    *out_movement = movement;
    return NULL;
}

void gpu_movement_destroy(struct GpuMovement *movement) {
    if (!movement) return;
    for (Held *held = atomic_load(&movement->held), *next; held; held = next) {
        next = held->next;
        gpu_program_release(held->program);
        free(held);
    }
    free(movement);
}

static bool same_program(GpuMoveProgram a, GpuMoveProgram b) {
    return a.kind == b.kind && a.far == b.far && a.unit == b.unit && a.combine == b.combine && a.dtype == b.dtype;
}

static GpuProgram *find_program(struct GpuMovement *movement, GpuMoveProgram key) {
    Held *held = atomic_load(&movement->held);
    while (held && !same_program(held->key, key)) held = held->next;
    return held ? held->program : NULL;
}

/* Adds programs that the device does not hold yet. Two threads may add the same at once: it is held twice then, which
 * does no harm. */
static Status hold_programs(GpuDevice *d, const GpuMoveProgram *keys, GpuProgram *const *programs, int count) {
    for (int i = 0; i < count; i++) {
        Held *held = malloc(sizeof *held);
        if (!held) {
            for (; i < count; i++) gpu_program_release(programs[i]);
            return status_out_of_memory();
        }
        held->key = keys[i];
        held->program = programs[i];
        held->next = atomic_load(&d->movement->held);
        while (!atomic_compare_exchange_weak(&d->movement->held, &held->next, held)) {}
    }
    return NULL;
}

static Status make_programs(GpuDevice *d, Arena *arena, const GpuMoveProgram *keys, int count,
                            KernelCacheStats *stats) {
    const char *sources[GPU_MOVE_PROGRAMS];
    GpuProgram *programs[GPU_MOVE_PROGRAMS];
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    for (int i = 0; i < count; i++) {
        Text text = text_make(arena);
        gpu_move_source(&text, d->driver->dialect, keys[i]);
        sources[i] = text.data;
    }
    arena_guard(arena, NULL);
    TRY(gpu_programs_get(d, sources, count, stats, programs));
    return hold_programs(d, keys, programs, count);
}

/* So that the device holds all of them. */
static Status prepare(GpuDevice *d, const GpuMoveProgram *keys, int count, KernelCacheStats *stats) {
    GpuMoveProgram missing[GPU_MOVE_PROGRAMS];
    int missing_count = 0;
    for (int i = 0; i < count; i++)
        if (!find_program(d->movement, keys[i])) missing[missing_count++] = keys[i];
    if (!missing_count) return NULL;
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Status status = make_programs(d, arena, missing, missing_count, stats);
    arena_destroy(arena);
    return status;
}

bool gpu_prim_runs(const Device *device, const Node *node) {
    GpuMoveProgram keys[GPU_MOVE_PROGRAMS];
    return gpu_move_programs(node, gpu_device(device)->limits, keys) > 0;
}

Status gpu_prim_prepare(Device *device, const Node *node, KernelCacheStats *stats) {
    GpuDevice *d = gpu_device(device);
    GpuMoveProgram keys[GPU_MOVE_PROGRAMS];
    int count = gpu_move_programs(node, d->limits, keys);
    return status_at(prepare(d, keys, count, stats), "node \"%s\"", node_origin_name(node));
}

static Status launch_move(GpuDevice *d, Stream *stream, const GpuMove *move) {
    GpuArgument arguments[GPU_MOVE_BUFFERS + GPU_MOVE_PARAMS] = {0};
    const GpuFunction *function;
    int count = 0;
    TRY(prepare(d, &move->program, 1, NULL)); /* what gpu_prim_prepare did not foresee */
    TRY(gpu_program_function(find_program(d->movement, move->program), move->function, &function));
    for (int i = 0; i < move->buffer_count; i++)
        arguments[count++] = (GpuArgument){.kind = GPU_ARG_BUFFER, .buffer = (void *)(uintptr_t)move->buffers[i]};
    for (int i = 0; i < move->param_count; i++)
        arguments[count++] = (GpuArgument){.kind = GPU_ARG_I64, .i64 = move->params[i]};
    return gpu_watch(d, d->driver->launch(d->context, stream, function, move->grid, move->block, arguments, count));
}

Status gpu_prim_run(Device *device, Stream *stream, const Node *node, const Tensor *const *inputs,
                    const int64_t *symbols, Tensor *output, Arena *scratch) {
    GpuDevice *d = gpu_device(device);
    GpuStream *s = gpu_stream(stream);
    GpuMoves moves;
    TRY(gpu_moves(scratch, node, inputs, symbols, output, s->faults, &moves));
    for (int i = 0; i < moves.items.count; i++) {
        const GpuMove *move = &moves.items.items[i];
        if (move->function)
            TRY(launch_move(d, s->stream, move));
        else
            TRY(gpu_copy(device, stream, COPY_WITHIN, (void *)(uintptr_t)move->buffers[1], move->buffers[0],
                         move->bytes));
    }
    if (moves.may_fault) {
        s->may_fault = true;
        s->suspect = node;
    }
    return NULL;
}
