/* SPDX-License-Identifier: Apache-2.0 */
#include "two_memories.h"

#include <stdio.h>
#include <stdlib.h>

#include "passes/passes.h"
#include "runtime/run/run.h"

/* No process has memory there: x86-64 and aarch64 give user programs at most 48 bits unless asked for more. */
static const uintptr_t OFFSET = (uintptr_t)1 << 52;
enum { ALIGNMENT = 256, GUARD = 256, PATTERN = 0xA5 };

typedef struct TwoBlock {
    struct TwoBlock *next;
    char *memory; /* the host's address; GUARD bytes follow */
    size_t bytes;
    bool dead; /* to be freed when the stream comes to it: no new work may use it */
} TwoBlock;

typedef enum WorkKind { WORK_LAUNCH, WORK_ANCHOR, WORK_PRIM, WORK_COPY, WORK_FREE } WorkKind;

typedef struct Work {
    struct Work *next;
    Arena *arena; /* of all that the work needs, itself included */
    WorkKind kind;
    const struct TwoKernel *kernel;
    const struct TwoAnchor *anchor;
    const AnchorFinish *finish; /* with the CPU's kernel; NULL: none */
    const Node *node;
    void **buffers;
    const int64_t *params, *symbols;
    int64_t amount;
    void *scratch;
    const Tensor **inputs;
    Tensor outputs[EPILOGUE_OUTPUTS];
    CopyKind copy;
    void *to;
    const void *from;
    size_t bytes;
    TwoBlock *block;
} Work;

typedef struct TwoStream {
    Work *first, **end;
    Status failure;                   /* of work that was done, until the next wait */
    struct DeviceRecording *recorded; /* what is being recorded */
} TwoStream;

struct DeviceRecording {
    Work *first, **end;
};

typedef struct TwoKernel {
    DeviceKernel *inner;
    int buffers, params;
} TwoKernel;

typedef struct TwoAnchor {
    DeviceAnchor *inner;
    const Node *node;
} TwoAnchor;

static TwoMemories *two(const Device *device) { return (TwoMemories *)(uintptr_t)device; }

static void complain(TwoMemories *d, const char *what, const void *where) {
    pthread_mutex_lock(&d->lock);
    if (!*d->complaint) snprintf(d->complaint, sizeof d->complaint, "%s (%p)", what, where);
    pthread_mutex_unlock(&d->lock);
}

static Status may_fail(TwoMemories *d, const char *what) {
    int call = atomic_fetch_add(&d->calls, 1) + 1;
    return call == d->fail_at ? status_error(STATUS_FAULT, "injected: %s", what) : NULL;
}

static uint64_t mix(uint64_t x) { /* the finalizer of splitmix64 (Steele, Lea, Flood 2014) */
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* --- memory ------------------------------------------------------------------------------------------------------ */
static bool is_device_address(const void *address) { return (uintptr_t)address & OFFSET; }

static TwoBlock *block_of(TwoMemories *d, const char *memory, size_t bytes) {
    TwoBlock *b = d->allocated;
    while (b && (memory < b->memory || memory + bytes > b->memory + b->bytes)) b = b->next;
    return b;
}

/* The host's address of device memory; queueing: it must not have been given back. */
static void *follow(TwoMemories *d, const void *address, size_t bytes, bool queueing) {
    if (!address) return NULL;
    char *memory = (char *)((uintptr_t)address & ~OFFSET);
    if (!is_device_address(address)) {
        complain(d, "a device call with a host address", address);
        return memory;
    }
    pthread_mutex_lock(&d->lock);
    const TwoBlock *b = block_of(d, memory, bytes);
    bool wrong = !b || (queueing && b->dead);
    pthread_mutex_unlock(&d->lock);
    if (wrong) complain(d, b ? "memory that was given back is used" : "an address outside all memory", address);
    return b ? memory : NULL;
}

static bool is_recorded(TwoMemories *d, const Stream *stream, const char *forbidden) {
    const TwoStream *s = (const TwoStream *)stream;
    bool recorded = s && s->recorded;
    if (recorded && forbidden) complain(d, forbidden, stream);
    return recorded;
}

static Status two_allocate(Device *device, Stream *stream, Memory *memory, size_t bytes, void **out_data) {
    TwoMemories *d = two(device);
    (void)memory;
    is_recorded(d, stream, "an allocation is recorded");
    TRY(may_fail(d, "allocate"));
    TwoBlock *b = calloc(1, sizeof *b);
    size_t size = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (b) b->memory = aligned_alloc(ALIGNMENT, size + GUARD);
    if (!b || !b->memory) abort();
    memset(b->memory, PATTERN, size + GUARD);
    b->bytes = size;
    pthread_mutex_lock(&d->lock);
    b->next = d->allocated;
    d->allocated = b;
    pthread_mutex_unlock(&d->lock);
    atomic_fetch_add(&d->blocks, 1);
    *out_data = (void *)((uintptr_t)b->memory | OFFSET);
    return NULL;
}

static void free_block(TwoMemories *d, TwoBlock *block) {
    pthread_mutex_lock(&d->lock);
    TwoBlock **at = &d->allocated;
    while (*at != block) at = &(*at)->next;
    *at = block->next;
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < GUARD; i++)
        if ((unsigned char)block->memory[block->bytes + (size_t)i] != PATTERN)
            complain(d, "memory was written over its end", block->memory);
    memset(block->memory, PATTERN, block->bytes);
    free(block->memory);
    free(block);
    atomic_fetch_sub(&d->blocks, 1);
}

/* --- streams ----------------------------------------------------------------------------------------------------- */
static Tensor followed(TwoMemories *d, const Tensor *t) {
    Tensor made = *t;
    made.data = follow(d, t->data, tensor_bytes(t), false);
    return made;
}

/* A primitive's are its first. */
static int outputs_of(const Work *w) { return w->kind == WORK_ANCHOR ? w->node->output_count : 1; }

static Status run_tensors(TwoMemories *d, const Work *w) {
    int count = w->node->input_count;
    Tensor *tensors = ARENA_ARRAY(w->arena, Tensor, count), outputs[EPILOGUE_OUTPUTS];
    const Tensor **inputs = ARENA_ARRAY(w->arena, const Tensor *, count);
    for (int i = 0; i < count; i++) {
        if (!w->inputs[i]) continue;
        tensors[i] = followed(d, w->inputs[i]);
        inputs[i] = &tensors[i];
    }
    for (int o = 0; o < outputs_of(w); o++) outputs[o] = followed(d, &w->outputs[o]);
    const DeviceTable *cpu = d->cpu->table;
    return w->kind == WORK_ANCHOR
               ? cpu->run_anchor(d->cpu, NULL, w->anchor->inner, w->finish, inputs, w->symbols, outputs)
               : cpu->run_prim(d->cpu, NULL, w->node, inputs, w->symbols, outputs, w->arena);
}

/* What was taken when the work was queued. */
static Status hand_over(void *owner, size_t bytes, void **out_data) {
    (void)bytes;
    *out_data = owner;
    return NULL;
}

static Status run_launch(TwoMemories *d, const Work *w) {
    void **buffers = ARENA_ARRAY(w->arena, void *, w->kernel->buffers);
    for (int i = 0; i < w->kernel->buffers; i++) buffers[i] = follow(d, w->buffers[i], 0, false);
    void *scratch = follow(d, w->scratch, 0, false);
    const Workspace workspace = {hand_over, scratch};
    return d->cpu->table->launch(d->cpu, NULL, w->kernel->inner, buffers, w->params, w->amount, &workspace);
}

static void do_copy(TwoMemories *d, const Work *w) {
    void *to = w->copy == COPY_OUT ? w->to : follow(d, w->to, w->bytes, false);
    const void *from = w->copy == COPY_IN ? w->from : follow(d, w->from, w->bytes, false);
    if (to && from) memmove(to, from, w->bytes);
}

static Status do_work(TwoMemories *d, const Work *w) {
    switch (w->kind) {
    case WORK_LAUNCH: return run_launch(d, w);
    case WORK_COPY: do_copy(d, w); return NULL;
    case WORK_FREE: free_block(d, w->block); return NULL;
    default: return run_tensors(d, w);
    }
}

/* Does the first piece of work. Once something has failed the rest is let go, as a device does. */
static void advance(TwoMemories *d, TwoStream *s) {
    Work *w = s->first;
    s->first = w->next;
    if (!s->first) s->end = &s->first;
    if (!s->failure || w->kind == WORK_FREE) {
        Status status = do_work(d, w);
        if (status && !s->failure) s->failure = status;
    }
    if (w->kind != WORK_FREE) atomic_fetch_sub(&d->pending, 1);
    arena_destroy(w->arena);
}

static Work *new_work(TwoMemories *d, Stream *stream, WorkKind kind) {
    if (!stream) complain(d, "work without a stream", NULL);
    Arena *arena = arena_create(0);
    Work *w = ARENA_NEW(arena, Work);
    *w = (Work){.arena = arena, .kind = kind};
    return w;
}

static void append(Work ***end, Work *w) {
    **end = w;
    *end = &w->next;
}

static void queue(TwoMemories *d, Stream *stream, Work *w) {
    TwoStream *s = (TwoStream *)stream;
    if (s->recorded) {
        append(&s->recorded->end, w);
        return;
    }
    append(&s->end, w);
    int number = w->kind != WORK_FREE ? atomic_fetch_add(&d->pending, 1) : 0;
    uint64_t drawn = mix(d->options.seed * 31 + (uint64_t)atomic_load(&d->calls) + (uint64_t)number);
    if ((int)(drawn % 100) >= d->options.early) return;
    for (uint64_t pieces = 1 + (drawn >> 32) % 8; pieces && s->first; pieces--) advance(d, s);
}

static Status two_stream_create(Device *device, Stream **out_stream) {
    TwoMemories *d = two(device);
    TRY(may_fail(d, "stream_create"));
    TwoStream *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->end = &s->first;
    atomic_fetch_add(&d->streams, 1);
    *out_stream = (Stream *)s;
    return NULL;
}

static void two_stream_destroy(Device *device, Stream *stream) {
    TwoStream *s = (TwoStream *)stream;
    if (!s) return;
    while (s->first) advance(two(device), s);
    status_free(s->failure);
    free(s);
    atomic_fetch_sub(&two(device)->streams, 1);
}

static Status two_synchronize(Device *device, Stream *stream) {
    TwoMemories *d = two(device);
    TwoStream *s = (TwoStream *)stream;
    atomic_fetch_add(&d->waits, 1);
    if (!s) return may_fail(d, "synchronize");
    is_recorded(d, stream, "a wait is recorded");
    Status injected = may_fail(d, "synchronize");
    if (injected && !s->failure)
        s->failure = injected;
    else
        status_free(injected);
    while (s->first) advance(d, s);
    Status status = s->failure;
    s->failure = NULL;
    return status;
}

static void two_release(Device *device, Stream *stream, Memory *memory, void *data) {
    TwoMemories *d = two(device);
    (void)memory;
    if (!data) return;
    is_recorded(d, stream, "memory is given back in a recording");
    char *at = follow(d, data, 0, true);
    pthread_mutex_lock(&d->lock);
    TwoBlock *b = at ? block_of(d, at, 0) : NULL;
    if (b && b->memory == at) b->dead = true;
    pthread_mutex_unlock(&d->lock);
    if (!b || b->memory != at) {
        complain(d, "what is given back was not allocated", data);
    } else if (stream) {
        Work *w = new_work(d, stream, WORK_FREE);
        w->block = b;
        queue(d, stream, w);
    } else {
        free_block(d, b);
    }
}

/* --- copies, kernels, anchors, primitives ------------------------------------------------------------------------ */
static Status two_copy(Device *device, Stream *stream, CopyKind kind, void *to, const void *from, size_t bytes) {
    TwoMemories *d = two(device);
    TRY(may_fail(d, "copy"));
    if (kind != COPY_WITHIN) is_recorded(d, stream, "a copy between the memories is recorded");
    atomic_fetch_add(&d->copies[kind], 1);
    Work *w = new_work(d, stream, WORK_COPY);
    w->copy = kind;
    w->to = to;
    w->from = from;
    w->bytes = bytes;
    if (kind != COPY_OUT) follow(d, to, bytes, true);
    if (kind != COPY_IN) follow(d, from, bytes, true);
    if (kind == COPY_IN && is_device_address(from)) complain(d, "a copy in from a device address", from);
    if (kind == COPY_OUT && is_device_address(to)) complain(d, "a copy out to a device address", to);
    if (kind == COPY_OUT) memset(to, PATTERN, bytes);
    if (kind == COPY_IN) w->from = arena_copy(w->arena, from, bytes);
    queue(d, stream, w);
    return NULL;
}

static Status two_compile(Device *device, const RegionKernel *const *kernels, int count, KernelCacheStats *stats,
                          DeviceKernel **out_kernels) {
    TwoMemories *d = two(device);
    TRY(may_fail(d, "compile"));
    TRY(d->cpu->table->compile(d->cpu, kernels, count, stats, out_kernels));
    for (int i = 0; i < count; i++) {
        TwoKernel *k = calloc(1, sizeof *k);
        if (!k) abort();
        *k = (TwoKernel){out_kernels[i], kernels[i]->buffer_count, kernels[i]->kernel->param_count};
        out_kernels[i] = (DeviceKernel *)k;
        atomic_fetch_add(&d->kernels, 1);
    }
    return NULL;
}

static void two_release_kernel(Device *device, DeviceKernel *kernel) {
    TwoMemories *d = two(device);
    TwoKernel *k = (TwoKernel *)kernel;
    d->cpu->table->release_kernel(d->cpu, k->inner);
    free(k);
    atomic_fetch_sub(&d->kernels, 1);
}

static size_t two_kernel_scratch(const Device *device, const DeviceKernel *kernel, const int64_t *params) {
    const TwoMemories *d = two(device);
    return d->cpu->table->kernel_scratch(d->cpu, ((const TwoKernel *)kernel)->inner, params);
}

static Status two_launch(Device *device, Stream *stream, const DeviceKernel *kernel, void *const *buffers,
                         const int64_t *params, int64_t work, const Workspace *workspace) {
    TwoMemories *d = two(device);
    const TwoKernel *k = (const TwoKernel *)kernel;
    TRY(may_fail(d, "launch"));
    size_t bytes = two_kernel_scratch(device, kernel, params);
    void *scratch = NULL;
    if (bytes) TRY(workspace->take(workspace->owner, bytes, &scratch));
    atomic_fetch_add(&d->launches, 1);
    Work *w = new_work(d, stream, WORK_LAUNCH);
    w->kernel = k;
    w->buffers = arena_copy(w->arena, buffers, sizeof *buffers * (size_t)k->buffers);
    w->params = arena_copy(w->arena, params, sizeof *params * (size_t)k->params);
    w->amount = work;
    w->scratch = scratch;
    for (int i = 0; i < k->buffers; i++) follow(d, buffers[i], 0, true);
    follow(d, scratch, 0, true);
    queue(d, stream, w);
    return NULL;
}

static void keep_call(TwoMemories *d, Work *w, const Node *node, const Tensor *const *inputs, const int64_t *symbols,
                      const Tensor *outputs) {
    w->node = node;
    w->symbols = arena_copy(w->arena, symbols, sizeof *symbols * (size_t)dim_symbol_count(node->graph->dims));
    w->inputs = ARENA_ARRAY(w->arena, const Tensor *, node->input_count);
    for (int i = 0; i < node->input_count; i++) {
        if (!inputs[i]) continue;
        w->inputs[i] = arena_copy(w->arena, inputs[i], sizeof *inputs[i]);
        follow(d, inputs[i]->data, tensor_bytes(inputs[i]), true);
    }
    for (int o = 0; o < outputs_of(w); o++) {
        w->outputs[o] = outputs[o];
        follow(d, outputs[o].data, tensor_bytes(&outputs[o]), true);
    }
}

static Status two_prepare_anchor(Device *device, const Node *node, const Tensor *const *constants,
                                 DeviceAnchor **out_anchor, uint32_t *out_released) {
    TwoMemories *d = two(device);
    TRY(may_fail(d, "prepare_anchor"));
    TwoAnchor *a = calloc(1, sizeof *a);
    if (!a) abort();
    a->node = node;
    Status status = d->cpu->table->prepare_anchor(d->cpu, node, constants, &a->inner, out_released);
    if (status) {
        free(a);
        return status;
    }
    atomic_fetch_add(&d->anchors, 1);
    *out_anchor = (DeviceAnchor *)a;
    return NULL;
}

static void two_release_anchor(Device *device, DeviceAnchor *anchor) {
    TwoMemories *d = two(device);
    TwoAnchor *a = (TwoAnchor *)anchor;
    d->cpu->table->release_anchor(d->cpu, a->inner);
    free(a);
    atomic_fetch_sub(&d->anchors, 1);
}

static size_t two_anchor_bytes(const DeviceAnchor *anchor) {
    return cpu_device.anchor_bytes(((const TwoAnchor *)anchor)->inner);
}

static const char *two_anchor_how(const DeviceAnchor *anchor) {
    return cpu_device.anchor_how(((const TwoAnchor *)anchor)->inner);
}

static DType two_finishes_with(const Device *device, const Node *node, const Value **out_begin) {
    const TwoMemories *d = two(device);
    return d->cpu->table->finishes_with(d->cpu, node, out_begin);
}

static Status two_run_anchor(Device *device, Stream *stream, DeviceAnchor *anchor, const AnchorFinish *finish,
                             const Tensor *const *inputs, const int64_t *symbols, Tensor *outputs) {
    TwoMemories *d = two(device);
    TRY(may_fail(d, "run_anchor"));
    Work *w = new_work(d, stream, WORK_ANCHOR);
    w->anchor = (TwoAnchor *)anchor;
    if (finish) {
        AnchorFinish *inner = ARENA_NEW(w->arena, AnchorFinish);
        *inner = (AnchorFinish){finish->region, ((const TwoKernel *)finish->kernel)->inner};
        w->finish = inner;
    }
    keep_call(d, w, w->anchor->node, inputs, symbols, outputs);
    queue(d, stream, w);
    return NULL;
}

static Status two_prepare_prim(Device *device, const Node *node, KernelCacheStats *stats) {
    (void)node, (void)stats;
    return may_fail(two(device), "prepare_prim");
}

static Status two_run_prim(Device *device, Stream *stream, const Node *node, const Tensor *const *inputs,
                           const int64_t *symbols, Tensor *output, Arena *scratch) {
    TwoMemories *d = two(device);
    (void)scratch;
    TRY(may_fail(d, "run_prim"));
    Work *w = new_work(d, stream, WORK_PRIM);
    keep_call(d, w, node, inputs, symbols, output);
    queue(d, stream, w);
    return NULL;
}

static bool two_runs(const Device *device, const Node *node) {
    const TwoMemoriesOptions *o = &two(device)->options;
    const char *name = node->outputs[0] ? node->outputs[0]->name : node->op;
    uint64_t hash = o->seed;
    if (o->refused && strncmp(name, o->refused, strlen(o->refused)) == 0) return false;
    for (; *name; name++) hash = mix(hash ^ (unsigned char)*name);
    return (int)(hash % 100) >= o->refuses;
}

/* --- recordings -------------------------------------------------------------------------------------------------- */
static bool two_records(const Device *device) { return two(device)->options.records; }

static Status two_record_begin(Device *device, Stream *stream) {
    TwoMemories *d = two(device);
    TwoStream *s = (TwoStream *)stream;
    TRY(may_fail(d, "record_begin"));
    if (s->recorded || s->first) complain(d, "a stream is recorded that is not idle", stream);
    s->recorded = calloc(1, sizeof *s->recorded);
    if (!s->recorded) abort();
    s->recorded->end = &s->recorded->first;
    atomic_fetch_add(&d->recordings, 1);
    return NULL;
}

static void two_record_free(Device *device, DeviceRecording *recording) {
    if (!recording) return;
    for (Work *w = recording->first, *next; w; w = next) {
        next = w->next;
        arena_destroy(w->arena);
    }
    free(recording);
    atomic_fetch_sub(&two(device)->recordings, 1);
}

static void two_record_abandon(Device *device, Stream *stream) {
    TwoStream *s = (TwoStream *)stream;
    if (!s->recorded) complain(two(device), "what is not recorded is abandoned", stream);
    two_record_free(device, s->recorded);
    s->recorded = NULL;
}

static Status two_record_end(Device *device, Stream *stream, DeviceRecording **out_recording) {
    TwoStream *s = (TwoStream *)stream;
    Status status = may_fail(two(device), "record_end");
    if (status) {
        two_record_abandon(device, stream);
        return status;
    }
    *out_recording = s->recorded;
    s->recorded = NULL;
    return NULL;
}

/* What a recording names must be there still. */
static void check_addresses(TwoMemories *d, const Work *w) {
    for (int i = 0; w->kind == WORK_LAUNCH && i < w->kernel->buffers; i++) follow(d, w->buffers[i], 0, true);
    for (int i = 0; w->inputs && i < w->node->input_count; i++)
        if (w->inputs[i]) follow(d, w->inputs[i]->data, tensor_bytes(w->inputs[i]), true);
    for (int o = 0; w->inputs && o < outputs_of(w); o++)
        follow(d, w->outputs[o].data, tensor_bytes(&w->outputs[o]), true);
    follow(d, w->scratch, 0, true);
    follow(d, w->to, w->bytes, true);
    follow(d, w->from, w->bytes, true);
}

static Status two_replay(Device *device, Stream *stream, DeviceRecording *recording) {
    TwoMemories *d = two(device);
    TRY(may_fail(d, "replay"));
    atomic_fetch_add(&d->replays, 1);
    for (const Work *w = recording->first; w; w = w->next) {
        Work *again = new_work(d, stream, w->kind);
        Arena *arena = again->arena;
        check_addresses(d, w);
        *again = *w;
        again->arena = arena;
        again->next = NULL;
        queue(d, stream, again);
    }
    return NULL;
}

static void two_close(Device *device) { (void)device; }

static const DeviceTable two_memories_device = {
    .kind = DEVICE_CPU, /* its kernels are the CPU's */
    .name = "two",
    .separate_memory = true,
    .close = two_close,
    .runs = two_runs,
    .compile = two_compile,
    .release_kernel = two_release_kernel,
    .prepare_anchor = two_prepare_anchor,
    .release_anchor = two_release_anchor,
    .anchor_bytes = two_anchor_bytes,
    .anchor_how = two_anchor_how,
    .finishes_with = two_finishes_with,
    .prepare_prim = two_prepare_prim,
    .kernel_scratch = two_kernel_scratch,
    .launch = two_launch,
    .run_anchor = two_run_anchor,
    .run_prim = two_run_prim,
    .allocate = two_allocate,
    .release = two_release,
    .copy = two_copy,
    .stream_create = two_stream_create,
    .stream_destroy = two_stream_destroy,
    .synchronize = two_synchronize,
    .records = two_records,
    .record_begin = two_record_begin,
    .record_end = two_record_end,
    .record_abandon = two_record_abandon,
    .replay = two_replay,
    .record_free = two_record_free,
};

TwoMemories *two_memories_open(const Policy *policy, TwoMemoriesOptions options) {
    TwoMemories *d = calloc(1, sizeof *d);
    if (!d) abort();
    d->options = options;
    pthread_mutex_init(&d->lock, NULL);
    if (cpu_device.open(policy, &d->cpu)) abort();
    d->base = (Device){.table = &two_memories_device, .policy = policy, .pool = d->cpu->pool};
    return d;
}

const char *two_memories_close(TwoMemories *d, Arena *arena) {
    const char *problem = NULL;
    int blocks = d->blocks, streams = d->streams, kernels = d->kernels, anchors = d->anchors, pending = d->pending;
    if (*d->complaint)
        problem = arena_string(arena, d->complaint);
    else if (blocks || streams || kernels || anchors || pending || d->recordings)
        problem =
            arena_format(arena, "left: %d blocks, %d streams, %d kernels, %d anchors, %d recordings, %d pieces of work",
                         blocks, streams, kernels, anchors, d->recordings, pending);
    d->cpu->table->close(d->cpu);
    pthread_mutex_destroy(&d->lock);
    free(d);
    return problem;
}

/* --- plans ------------------------------------------------------------------------------------------------------- */
static Status run_passes(Graph *graph, const Policy *policy, bool lower) {
    if (lower) return pipeline_run(graph, policy, NULL, NULL);
    for (const Pass *p = pipeline(); p->name; p++)
        if (strcmp(p->name, "lower")) TRY(p->run(graph, policy));
    return graph_verify(graph, LEVEL_PARTITIONED);
}

Status loaded_open(Loaded *l, Graph *graph, bool lower, const TwoMemoriesOptions *options, int fail_at) {
    *l = (Loaded){.policy = policy_default(), .graph = graph};
    l->policy.cache.enable = false;
    l->policy.threads = 2;
    l->policy.device = DEVICE_CPU;
    l->policy.target.epilogue = cpu_device.epilogue;
    memory_init(&l->memory, 0);
    TRY(target_resolve(graph->arena, &l->policy.target));
    TRY(run_passes(graph, &l->policy, lower));
    TRY(cpu_device.open(&l->policy, &l->host));
    if (options) {
        l->two = two_memories_open(&l->policy, *options);
        l->two->fail_at = fail_at;
    }
    Device *device = l->two ? &l->two->base : l->host;
    KernelCacheStats stats = {0};
    TRY(plan_create(graph, device, l->host, &stats, &l->plan));
    l->buffers = run_memory_create(device, l->host, &l->memory);
    return l->buffers ? NULL : status_out_of_memory();
}

Status loaded_run_on_device(Loaded *l, const Item *const *inputs, RunOutput *outputs, const bool *input_on_device,
                            const bool *output_on_device) {
    Run run = {.memory = &l->memory,
               .run_number = atomic_fetch_add(&l->runs, 1),
               .buffers = l->buffers,
               .peak_arena = &l->peak,
               .input_on_device = input_on_device,
               .output_on_device = output_on_device};
    return plan_run(l->plan, &run, NULL, inputs, outputs);
}

Status loaded_run(Loaded *l, const Item *const *inputs, RunOutput *outputs) {
    return loaded_run_on_device(l, inputs, outputs, NULL, NULL);
}

const char *loaded_close(Loaded *l, Arena *arena) {
    const char *problem = NULL;
    run_memory_destroy(l->buffers);
    plan_destroy(l->plan);
    if (l->two) problem = two_memories_close(l->two, arena);
    if (l->host) l->host->table->close(l->host);
    size_t used = atomic_load(&l->memory.used);
    if (!problem && used) problem = arena_format(arena, "%zu bytes of host memory are not freed", used);
    return problem;
}

static const char *tensor_bits_difference(const Tensor *a, const Tensor *b, Arena *arena) {
    if (a->dtype != b->dtype || !tensor_same_shape(a, b)) return "types or shapes differ";
    int64_t count = tensor_count(a);
    size_t size = dtype_size(a->dtype);
    for (int64_t i = 0; i < count; i++) {
        const char *x = (const char *)a->data + (size_t)i * size, *y = (const char *)b->data + (size_t)i * size;
        if (a->dtype == DT_STRING) {
            const StringView *p = (const void *)x, *q = (const void *)y;
            if (p->size != q->size || (p->size && memcmp(p->data, q->data, p->size)))
                return arena_format(arena, "string %lld differs", (long long)i);
        } else if (memcmp(x, y, size)) {
            return arena_format(arena, "element %lld differs: %g, %g is expected", (long long)i,
                                dtype_load_double(b->dtype, b->data, i), dtype_load_double(a->dtype, a->data, i));
        }
    }
    return NULL;
}

const char *item_difference(const Item *expected, const Item *got, Arena *arena) {
    if (expected->kind != got->kind) return "kinds differ";
    if (expected->kind == ITEM_TENSOR) return tensor_bits_difference(&expected->tensor, &got->tensor, arena);
    if (expected->kind == ITEM_SEQUENCE && expected->count != got->count) return "lengths differ";
    for (int i = 0; expected->kind == ITEM_SEQUENCE && i < expected->count; i++) {
        const char *difference = item_difference(&expected->items[i], &got->items[i], arena);
        if (difference) return difference;
    }
    return NULL;
}
