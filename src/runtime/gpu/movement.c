/* Primitives outside regions on a GPU: programs of codegen/gpu/movement.h, one a kind, and their launches. */
#include <pthread.h>
#include <stdlib.h>

#include "codegen/gpu/movement.h"
#include "runtime/gpu/gpu.h"

/* The programs that a device has used so far; it holds them until it is closed. */
typedef struct Held {
    struct Held *next;
    GpuMoveProgram key;
    GpuProgram *program;
} Held;
struct GpuMovement {
    pthread_mutex_t lock;
    Held *held;
};

Status gpu_movement_create(struct GpuMovement **out_movement) {
    struct GpuMovement *movement = calloc(1, sizeof *movement);
    if (!movement) return status_out_of_memory();
    pthread_mutex_init(&movement->lock, NULL);
    *out_movement = movement;
    return NULL;
}

void gpu_movement_destroy(struct GpuMovement *movement) {
    if (!movement) return;
    for (Held *held = movement->held, *next; held; held = next) {
        next = held->next;
        gpu_program_release(held->program);
        free(held);
    }
    pthread_mutex_destroy(&movement->lock);
    free(movement);
}

static bool same_program(GpuMoveProgram a, GpuMoveProgram b) {
    return a.kind == b.kind && a.unit == b.unit && a.combine == b.combine && a.dtype == b.dtype;
}

static GpuProgram *find_program(struct GpuMovement *movement, GpuMoveProgram key) {
    pthread_mutex_lock(&movement->lock);
    Held *held = movement->held;
    while (held && !same_program(held->key, key)) held = held->next;
    pthread_mutex_unlock(&movement->lock);
    return held ? held->program : NULL;
}

static Status source_of(Arena *arena, GpuDialect dialect, GpuMoveProgram key, const char **out_source) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    Text text = text_make(arena);
    gpu_move_source(&text, dialect, key);
    arena_guard(arena, NULL);
    *out_source = text.data;
    return NULL;
}

static Status make_program(GpuDevice *d, GpuMoveProgram key, KernelCacheStats *stats, GpuProgram **out_program) {
    const char *source;
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Status status = source_of(arena, d->driver->dialect, key, &source);
    if (!status) status = gpu_program_get(d, source, stats, out_program);
    arena_destroy(arena);
    return status;
}

/* Two threads may make the same program at once: the device then holds it twice, which does no harm. */
static Status get_program(GpuDevice *d, GpuMoveProgram key, KernelCacheStats *stats, GpuProgram **out_program) {
    *out_program = find_program(d->movement, key);
    if (*out_program) return NULL;
    Held *held = calloc(1, sizeof *held);
    if (!held) return status_out_of_memory();
    Status status = make_program(d, key, stats, &held->program);
    if (status) {
        free(held);
        return status;
    }
    held->key = key;
    *out_program = held->program;
    pthread_mutex_lock(&d->movement->lock);
    held->next = d->movement->held;
    d->movement->held = held;
    pthread_mutex_unlock(&d->movement->lock);
    return NULL;
}

bool gpu_prim_runs(const Device *device, const Node *node) {
    return gpu_move_program(node, gpu_device(device)->limits).kind != GPU_MOVE_NONE;
}

Status gpu_prim_prepare(Device *device, const Node *node, KernelCacheStats *stats) {
    GpuDevice *d = gpu_device(device);
    GpuProgram *program;
    return status_at(get_program(d, gpu_move_program(node, d->limits), stats, &program), "node \"%s\"",
                     node_origin_name(node));
}

static Status launch_move(GpuDevice *d, Stream *stream, GpuProgram *program, const GpuMove *move) {
    GpuArgument arguments[GPU_MOVE_BUFFERS + GPU_MOVE_PARAMS] = {0};
    const GpuFunction *function;
    int count = 0;
    TRY(gpu_program_function(program, move->function, &function));
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
    GpuProgram *program;
    TRY(gpu_moves(scratch, node, inputs, symbols, output, s->faults, &moves));
    TRY(get_program(d, gpu_move_program(node, d->limits), NULL, &program));
    for (int i = 0; i < moves.items.count; i++) {
        const GpuMove *move = &moves.items.items[i];
        if (move->function)
            TRY(launch_move(d, s->stream, program, move));
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
